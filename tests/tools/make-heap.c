/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * make-heap - writes a capture of generated allocations, and prints the expected results
 *
 * Several threads of one process allocate, reallocate and free blocks at random; some blocks live
 * long. The numbers that `profcapture memory` must find are counted here in the simplest way, and
 * printed as a line of JSON. Used by tests and, with millions of rows, by a benchmark.
 */
#include "arch/base.h"
#include "libcapture/prof-capture.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define START UINT64_C(5000000000000)
#define STEP UINT64_C(100)
#define FUNCTIONS 50u
#define MOST_THREADS 64

struct block {
	uint64_t number, since;
	uint32_t size, stack, thread;
	uint64_t order; /* number of allocations of the block's thread up to this one */
};

struct sums {
	uint64_t bytes, blocks;
	uint64_t of_function[FUNCTIONS];
};

struct heap {
	/* options */
	uint64_t events, live, stacks, threads, checkpoint, epoch_events, at, sampled;
	bool killed;
	/* the capture */
	struct prof_writer *writer;
	struct prof_block *rows[PROF_TABLE_LAST + 1];
	uint32_t epoch;
	/* live blocks, unordered */
	struct block *blocks;
	size_t n, room;
	uint64_t random, time, next, made[MOST_THREADS];
	struct sums now, peak, then;
	uint64_t peak_ns, span_peak, span_peak_time;
	/* counts */
	uint64_t mallocs, reallocs, frees, allocated, freed, temporary, crossed;
};

static const char usage[] =
	"Usage: make-heap [OPTION…] FILE\n"
	"  --events N       calls (100000)\n"
	"  --live N         blocks that live, about (1000)\n"
	"  --stacks N       different stacks (200)\n"
	"  --threads N      that allocate and free (2)\n"
	"  --checkpoint N   events between lists of what lives (20000)\n"
	"  --epoch N        events of an epoch (0: one for all)\n"
	"  --at N           event after which what lives is told (half of them)\n"
	"  --sampled BYTES  the capture says that it is a sample (0: it does not)\n"
	"  --killed         no end, and the file is not finished\n";

static void check(int r, const char *what)
{
	if (r == 0)
		return;
	fprintf(stderr, "make-heap: %s: %s\n", what, prof_strerror(r));
	exit(1);
}

/* splitmix64 */
static uint64_t chance(struct heap *heap, uint64_t below)
{
	uint64_t x = heap->random += UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return (x ^ x >> 31) % below;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void flush(struct heap *heap, unsigned table)
{
	if (!heap->rows[table] || prof_block_rows(heap->rows[table]) == 0)
		return;
	prof_block_set_epoch(heap->rows[table], heap->epoch);
	check(prof_writer_write(heap->writer, heap->rows[table]), "cannot write");
	prof_block_reset(heap->rows[table]);
}

static void add(struct heap *heap, unsigned table, const struct prof_value *values)
{
	check(prof_block_add(heap->rows[table], values), "cannot add a row");
	if (prof_block_rows(heap->rows[table]) >= 65536)
		flush(heap, table);
}

#define N PROF_NUMBER
#define ADD(heap, table, ...) add(heap, table, (struct prof_value[]){ __VA_ARGS__ })

static void add_text(struct heap *heap, uint64_t id, const char *text)
{
	ADD(heap, PROF_TABLE_STRING, N(id), PROF_BYTES(text, strlen(text)));
}

static void add_names(struct heap *heap)
{
	add_text(heap, 1, "/lib/made-up.so");
	add_text(heap, 2, "made-up");
	ADD(heap, PROF_TABLE_IMAGE, N(1), N(1), PROF_BYTES(NULL, 0), N(1 << 20), N(1), N(5),
	    N(PROF_IMAGE_FILE), N(5), N(0));
	for (unsigned i = 0; i < FUNCTIONS; i++) {
		char name[16];

		snprintf(name, sizeof(name), "f%u", i);
		add_text(heap, i + 10, name);
		ADD(heap, PROF_TABLE_SYMBOL, N(i + 1), N(1), N(0x100 * (i + 1)), N(0x100),
		    N(i + 10), N(0), N(0), N(0), N(0), N(0), N(0));
		ADD(heap, PROF_TABLE_FRAME, N(i + 1), N(1), N(0x100 * (i + 1)),
		    N(PROF_FRAME_EXACT));
	}
	for (uint64_t i = 1; i <= heap->stacks; i++)
		ADD(heap, PROF_TABLE_STACK, N(i), N(i / 4), N(1 + i % FUNCTIONS));
	ADD(heap, PROF_TABLE_PROCESS, N(1), N(1000), N(1), N(5), N(0), PROF_BYTES(NULL, 0), N(0),
	    N(0), N(0), PROF_BYTES(NULL, 0));
	for (uint64_t i = 0; i < heap->threads; i++)
		ADD(heap, PROF_TABLE_THREAD, N(i + 1), N(1), N(1000 + i), N(5), N(2),
		    PROF_BYTES(NULL, 0));
	flush(heap, PROF_TABLE_STRING);
	flush(heap, PROF_TABLE_PROCESS);
	for (unsigned id = 1; id < PROF_TABLE_SAMPLE; id++)
		flush(heap, id);
}

static void add_sampling(struct heap *heap)
{
	char number[24];

	if (!heap->sampled)
		return;
	snprintf(number, sizeof(number), "%" PRIu64, heap->sampled);
	ADD(heap, PROF_TABLE_METADATA, N(START), PROF_BYTES("memory.sample_bytes", 19),
	    PROF_BYTES(number, strlen(number)));
}

static int compare_blocks(const void *left, const void *right)
{
	const struct block *a = left, *b = right;

	return a->number < b->number ? -1 : a->number > b->number;
}

static void add_mark(struct heap *heap, enum prof_heap_event event)
{
	ADD(heap, PROF_TABLE_HEAP, N(heap->time), N(1), N(event), N(heap->now.bytes),
	    N(heap->now.blocks), N(heap->span_peak), N(heap->span_peak_time), N(0));
	heap->span_peak = heap->now.bytes;
	heap->span_peak_time = heap->time;
	if (event == PROF_HEAP_BEGIN)
		return;
	qsort(heap->blocks, heap->n, sizeof(*heap->blocks), compare_blocks);
	for (size_t i = 0; i < heap->n; i++) {
		const struct block *block = &heap->blocks[i];

		ADD(heap, PROF_TABLE_LIVE, N(heap->time), N(block->thread + 1),
		    N(PROF_ALLOC_MALLOC), N(block->number), N(block->size), N(0), N(block->stack),
		    N(block->since));
	}
}

/* ---- events ---------------------------------------------------------------------------------- */

static void count(struct heap *heap, const struct block *block, bool is_there)
{
	uint64_t *of = &heap->now.of_function[block->stack % FUNCTIONS];

	heap->now.bytes += is_there ? block->size : -(uint64_t)block->size;
	heap->now.blocks += is_there ? 1 : (uint64_t)-1;
	*of += is_there ? block->size : -(uint64_t)block->size;
	if (heap->now.bytes > heap->peak.bytes) {
		heap->peak = heap->now;
		heap->peak_ns = heap->time - START;
	}
	if (heap->now.bytes > heap->span_peak) {
		heap->span_peak = heap->now.bytes;
		heap->span_peak_time = heap->time;
	}
}

static struct block make(struct heap *heap, uint32_t thread)
{
	/* Small sizes are frequent, as in real programs. */
	uint64_t size = chance(heap, 1 + (UINT64_C(16) << chance(heap, 8)));

	return (struct block){ .number = ++heap->next,
			       .since = heap->time,
			       .size = (uint32_t)size,
			       .stack = 1 + (uint32_t)chance(heap, heap->stacks),
			       .thread = thread,
			       .order = ++heap->made[thread] };
}

static void add_alloc(struct heap *heap, const struct block *block, enum prof_alloc_kind kind,
		      uint64_t prior)
{
	heap->allocated += block->size;
	ADD(heap, PROF_TABLE_ALLOC, N(heap->time), N(block->thread + 1), N(kind), N(block->number),
	    N(block->size), N(0), N(block->stack), N(prior));
}

static void allocate(struct heap *heap, uint32_t thread)
{
	struct block block = make(heap, thread);

	if (heap->n == heap->room) {
		heap->room = heap->room * 2 + 1024;
		heap->blocks = realloc(heap->blocks, heap->room * sizeof(*heap->blocks));
	}
	heap->blocks[heap->n++] = block;
	heap->mallocs++;
	add_alloc(heap, &block, PROF_ALLOC_MALLOC, 0);
	count(heap, &block, true);
}

static void reallocate(struct heap *heap, uint32_t thread)
{
	struct block *block = &heap->blocks[chance(heap, heap->n)];
	struct block old = *block;

	*block = make(heap, thread);
	heap->reallocs++;
	heap->freed += old.size;
	add_alloc(heap, block, PROF_ALLOC_REALLOC, old.number);
	heap->now.bytes -= old.size;
	heap->now.blocks--;
	heap->now.of_function[old.stack % FUNCTIONS] -= old.size;
	count(heap, block, true);
}

/* Frees the latest block half of the time, otherwise any block. */
static void release(struct heap *heap, uint32_t thread)
{
	size_t at = chance(heap, 2) ? heap->n - 1 : chance(heap, heap->n);
	struct block block = heap->blocks[at];

	heap->blocks[at] = heap->blocks[--heap->n];
	heap->frees++;
	heap->freed += block.size;
	heap->crossed += block.thread != thread;
	heap->temporary += block.thread == thread && heap->made[thread] - block.order <= 1;
	ADD(heap, PROF_TABLE_FREE, N(heap->time), N(thread + 1), N(block.number), PROF_NULL,
	    N(PROF_FREE_FREE), N(0));
	count(heap, &block, false);
}

static void step(struct heap *heap)
{
	uint32_t thread = (uint32_t)chance(heap, heap->threads);
	uint64_t pick = chance(heap, 100);

	heap->time += STEP;
	if (heap->n == 0 || (pick < 50 && heap->n < heap->live) || pick < 45)
		allocate(heap, thread);
	else if (pick < 55)
		reallocate(heap, thread);
	else
		release(heap, thread);
}

static void next_epoch(struct heap *heap)
{
	for (unsigned id = PROF_TABLE_SAMPLE; id <= PROF_TABLE_LAST; id++)
		if (prof_table_v1(id))
			flush(heap, id);
	heap->epoch++;
	add_names(heap);
}

static void run(struct heap *heap)
{
	add_mark(heap, PROF_HEAP_BEGIN);
	for (uint64_t i = 1; i <= heap->events; i++) {
		step(heap);
		if (i == heap->at)
			heap->then = heap->now;
		if (heap->epoch_events && i % heap->epoch_events == 0)
			next_epoch(heap);
		if (heap->checkpoint && i % heap->checkpoint == 0) {
			heap->time += STEP;
			add_mark(heap, PROF_HEAP_CHECKPOINT);
		}
	}
	heap->time += STEP;
	if (!heap->killed)
		add_mark(heap, PROF_HEAP_END);
}

/* ---- the whole capture ---- */

static void print_sums(const char *name, const struct sums *sums)
{
	printf(", \"%s\": {\"bytes\": %" PRIu64 ", \"blocks\": %" PRIu64 ", \"functions\": {", name,
	       sums->bytes, sums->blocks);
	for (unsigned i = 0, n = 0; i < FUNCTIONS; i++)
		if (sums->of_function[i])
			printf("%s\"f%u\": %" PRIu64, n++ ? ", " : "", i, sums->of_function[i]);
	printf("}}");
}

static void print_answer(const struct heap *heap)
{
	printf("{\"malloc\": %" PRIu64 ", \"realloc\": %" PRIu64 ", \"free\": %" PRIu64
	       ", \"allocated_bytes\": %" PRIu64 ", \"freed_bytes\": %" PRIu64
	       ", \"temporary\": %" PRIu64 ", \"crossed\": %" PRIu64 ", \"at_ns\": %" PRIu64
	       ", \"peak_ns\": %" PRIu64 ", \"bytes\": %" PRIu64,
	       heap->mallocs, heap->reallocs, heap->frees, heap->allocated, heap->freed,
	       heap->temporary, heap->crossed,
	       heap->at * STEP + (heap->checkpoint ? (heap->at - 1) / heap->checkpoint * STEP : 0),
	       heap->peak_ns, prof_writer_bytes(heap->writer));
	print_sums("leaked", &heap->now);
	print_sums("peak", &heap->peak);
	print_sums("then", &heap->then);
	printf("}\n");
}

static void open_capture(struct heap *heap, const char *file)
{
	const struct prof_writer_options options = {
		.mode = PROF_WRITE_NEW,
		.segment = { .boot_id = { 1 },
			     .start_monotonic_ns = START,
			     .wall_ns = INT64_C(1700000000000000000) },
	};
	int fd = open(file, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

	if (fd < 0) {
		fprintf(stderr, "make-heap: %s: %s\n", file, strerror(errno));
		exit(1);
	}
	for (unsigned id = 1; id <= PROF_TABLE_LAST; id++)
		if (prof_table_v1(id))
			check(prof_block_new(prof_table_v1(id), &heap->rows[id]), "no memory");
	check(prof_writer_new(fd, &options, &heap->writer), "cannot begin");
	heap->epoch = prof_writer_first_epoch(heap->writer);
}

static bool parse(struct heap *heap, int argc, char **argv)
{
	static const struct option options[] = {
		{ "events", required_argument, NULL, 'e' },
		{ "live", required_argument, NULL, 'l' },
		{ "stacks", required_argument, NULL, 's' },
		{ "threads", required_argument, NULL, 't' },
		{ "checkpoint", required_argument, NULL, 'c' },
		{ "epoch", required_argument, NULL, 'p' },
		{ "at", required_argument, NULL, 'a' },
		{ "sampled", required_argument, NULL, 'b' },
		{ "killed", no_argument, NULL, 'k' },
		{ 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		uint64_t *const numbers[128] = {
			['e'] = &heap->events,     ['l'] = &heap->live,
			['s'] = &heap->stacks,     ['t'] = &heap->threads,
			['c'] = &heap->checkpoint, ['p'] = &heap->epoch_events,
			['a'] = &heap->at,         ['b'] = &heap->sampled,
		};

		if (option == 'k')
			heap->killed = true;
		else if (option > 0 && option < 128 && numbers[option])
			*numbers[option] = strtoull(optarg, NULL, 10);
		else
			return false;
	}
	if (!heap->at)
		heap->at = heap->events / 2;
	return optind == argc - 1 && heap->threads > 0 && heap->threads <= MOST_THREADS &&
	       heap->stacks > 0 && heap->live > 0;
}

int main(int argc, char **argv)
{
	struct heap heap = { .events = 100000,
			     .live = 1000,
			     .stacks = 200,
			     .threads = 2,
			     .checkpoint = 20000,
			     .time = START };

	if (!parse(&heap, argc, argv)) {
		fputs(usage, stderr);
		return 2;
	}
	open_capture(&heap, argv[optind]);
	add_names(&heap);
	add_sampling(&heap);
	run(&heap);
	for (unsigned id = PROF_TABLE_SAMPLE; id <= PROF_TABLE_LAST; id++)
		if (heap.rows[id])
			flush(&heap, id);
	if (!heap.killed)
		check(prof_writer_finish(heap.writer), "cannot finish");
	print_answer(&heap);
	prof_writer_free(heap.writer);
	for (unsigned id = 1; id <= PROF_TABLE_LAST; id++)
		prof_block_free(heap.rows[id]);
	free(heap.blocks);
	return 0;
}
