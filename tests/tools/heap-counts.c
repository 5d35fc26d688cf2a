/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Heap-counts - sums up the allocations in a capture, independently of the readers' code
 *
 *     heap-counts CAPTURE
 *
 * Prints JSON with, for each process, calls by kind, frees, leaks and the peak, all computed from
 * the rows of alloc and free, and the totals in the rows of heap and live. `wrong` counts rows that
 * contradict others. Mappings are counted only as calls.
 */
#include "arch/base.h"
#include "libcapture/prof-capture.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const alloc_kinds[PROF_ALLOC_KINDS] = {
	"malloc",        "calloc",   "realloc", "reallocarray", "posix_memalign",
	"aligned_alloc", "memalign", "valloc",  "pvalloc",      "new",
	"mmap",          "mremap",   "brk",
};
static const char *const free_kinds[PROF_FREE_UNTOLD] = {
	"free",         "cfree",  "free_sized", "free_aligned_sized", "delete", "realloc",
	"reallocarray", "munmap", "brk",
};

struct block {
	uint64_t size;
	uint64_t turn; /* number of allocations of the block's thread up to this one */
	uint32_t thread;
	uint8_t kind;
	bool is_live;
};

#define SIZE_STEP 16u /* step and number of libmemusage's size classes */
#define N_SIZES 4096u

struct thread {
	uint64_t tid, start, n;
	size_t process;
};

struct process {
	uint64_t pid, ppid, start, generation;
	char exe[256];
	uint64_t allocs[PROF_ALLOC_KINDS], frees[PROF_FREE_UNTOLD];
	uint64_t failed, bytes, freed_bytes, live, peak, n_live;
	uint64_t free_null, foreign, free_aligned, cross, temporary, untold, wrong;
	/* highest number of an inherited block; number of inherited blocks that ended */
	uint64_t inherited, inherited_ends;
	uint64_t heap_time, heap_bytes, heap_blocks, heap_peak, live_rows, live_bytes;
	unsigned int begins, ends, event;
	struct block *blocks; /* indexed by number */
	size_t n_blocks;
	uint64_t sizes[N_SIZES + 1]; /* calls by size class; last: larger sizes */
};

static struct process *processes;
static struct thread *threads;
static size_t n_processes, n_threads;
static uint64_t lost;

static void *more(void *at, size_t n, size_t size)
{
	void *grown = (n & (n - 1)) == 0 ? realloc(at, (n ? 2 * n : 1) * size) : at;

	if (!grown) {
		fprintf(stderr, "heap-counts: out of memory\n");
		exit(2);
	}
	return grown;
}

static void must(int r)
{
	if (r) {
		fprintf(stderr, "heap-counts: cannot read: %s\n", strerror(r < 0 ? -r : 0));
		exit(2);
	}
}

/* ---- Names ---- */

/* The dictionaries of the current epoch. */
struct names {
	const struct prof_reader *reader;
	uint32_t epoch;
	struct prof_dictionary *processes, *threads, *strings;
};

static void load_names(struct names *names, uint32_t epoch)
{
	if (names->epoch == epoch)
		return;
	if (names->epoch) {
		prof_dictionary_free(names->processes);
		prof_dictionary_free(names->threads);
		prof_dictionary_free(names->strings);
	}
	names->epoch = epoch;
	must(prof_dictionary_load(names->reader, PROF_TABLE_PROCESS, epoch, NULL, 0,
				  &names->processes));
	must(prof_dictionary_load(names->reader, PROF_TABLE_THREAD, epoch, NULL, 0,
				  &names->threads));
	must(prof_dictionary_load(names->reader, PROF_TABLE_STRING, epoch, NULL, 0,
				  &names->strings));
}

static uint64_t value(const struct prof_dictionary *dictionary, ssize_t row, size_t column)
{
	const uint64_t *numbers = prof_dictionary_column(dictionary, column)->numbers;

	return row < 0 || !numbers ? 0 : numbers[row];
}

static void copy_text(const struct names *names, uint64_t id, char *ret_text, size_t size)
{
	const struct prof_array *texts = prof_dictionary_column(names->strings, PROF_STRING_TEXT);
	ssize_t row = prof_dictionary_find(names->strings, id);
	size_t n = 0;

	if (row >= 0 && texts->bytes)
		n = MIN_OF((size_t)(texts->offsets[row + 1] - texts->offsets[row]), size - 1);
	if (n > 0)
		memcpy(ret_text, texts->bytes + texts->offsets[row], n);
	ret_text[n] = '\0';
	for (size_t i = 0; i < n; i++)
		if (ret_text[i] < ' ' || ret_text[i] == '"' || ret_text[i] == '\\')
			ret_text[i] = '?';
}

static size_t find_process(struct names *names, uint64_t id)
{
	ssize_t row = prof_dictionary_find(names->processes, id);
	struct process key = {
		.pid = value(names->processes, row, PROF_PROCESS_PID),
		.ppid = value(names->processes, row, PROF_PROCESS_PPID),
		.start = value(names->processes, row, PROF_PROCESS_START_TIME),
		.generation = value(names->processes, row, PROF_PROCESS_EXEC_GENERATION),
	};
	size_t i;

	for (i = 0; i < n_processes; i++)
		if (processes[i].pid == key.pid && processes[i].start == key.start &&
		    processes[i].generation == key.generation)
			break;
	if (i < n_processes)
		return i;
	copy_text(names, value(names->processes, row, PROF_PROCESS_EXE), key.exe, sizeof(key.exe));
	processes = more(processes, n_processes, sizeof(*processes));
	memcpy(&processes[n_processes], &key, sizeof(key));
	return n_processes++;
}

static uint32_t find_thread(struct names *names, uint64_t id)
{
	static uint64_t last_id;
	static uint32_t last_epoch, last_found;
	ssize_t row;
	struct thread key;
	uint32_t i;

	if (last_epoch == names->epoch && last_id == id)
		return last_found;
	row = prof_dictionary_find(names->threads, id);
	key = (struct thread){
		.process = find_process(names, value(names->threads, row, PROF_THREAD_PROCESS)),
		.tid = value(names->threads, row, PROF_THREAD_TID),
		.start = value(names->threads, row, PROF_THREAD_START_TIME),
	};
	for (i = 0; i < n_threads; i++)
		if (threads[i].process == key.process && threads[i].tid == key.tid &&
		    threads[i].start == key.start)
			break;
	if (i == n_threads) {
		threads = more(threads, n_threads, sizeof(*threads));
		threads[n_threads++] = key;
	}
	last_epoch = names->epoch;
	last_id = id;
	last_found = i;
	return i;
}

/* ---- Events ---- */

static bool is_mapping(uint64_t kind)
{
	return kind == PROF_ALLOC_MMAP || kind == PROF_ALLOC_MREMAP || kind == PROF_ALLOC_BRK;
}

static bool is_aligned(uint64_t kind)
{
	return kind >= PROF_ALLOC_POSIX_MEMALIGN && kind <= PROF_ALLOC_PVALLOC;
}

static struct block *find_block(struct process *process, uint64_t number)
{
	return number > 0 && number < process->n_blocks && process->blocks[number].is_live
		       ? &process->blocks[number]
		       : NULL;
}

static void end_block(struct process *process, uint64_t number)
{
	struct block *block = find_block(process, number);

	if (number <= process->inherited) {
		process->inherited_ends++;
		return;
	}
	if (!block) {
		process->wrong++;
		return;
	}
	block->is_live = false;
	if (is_mapping(block->kind))
		return;
	process->n_live--;
	process->live -= block->size;
	process->freed_bytes += block->size;
}

static void add_block(struct process *process, uint64_t number, const struct block *block)
{
	/* Numbers increase by one, and start after those of the inherited blocks. */
	if (process->n_blocks == 0) {
		process->blocks = more(process->blocks, 0, sizeof(*block));
		process->blocks[process->n_blocks++] = (struct block){ 0 };
	}
	process->wrong += number != MAX_OF(process->n_blocks, process->inherited + 1);
	while (process->n_blocks <= number) {
		process->blocks = more(process->blocks, process->n_blocks, sizeof(*block));
		process->blocks[process->n_blocks++] = (struct block){ 0 };
	}
	process->blocks[number] = *block;
	if (is_mapping(block->kind))
		return;
	process->n_live++;
	process->bytes += block->size;
	process->live += block->size;
	process->peak = MAX_OF(process->peak, process->live);
}

struct stream {
	struct prof_cursor *cursor;
	struct prof_batch batch;
	size_t row;
	bool is_done;
};

static void stream_open(struct stream *stream, const struct prof_reader *reader, unsigned int table)
{
	const struct prof_cursor_options options = { .table = table };

	*stream = (struct stream){ 0 };
	must(prof_cursor_new(reader, &options, &stream->cursor));
}

static bool stream_fill(struct stream *stream)
{
	int r;

	while (!stream->is_done && stream->row >= stream->batch.rows) {
		r = prof_cursor_next(stream->cursor, &stream->batch);
		stream->row = 0;
		stream->is_done = r == PROF_END;
		if (!stream->is_done)
			must(r);
	}
	return !stream->is_done;
}

static uint64_t cell(const struct stream *stream, size_t column)
{
	const struct prof_array *array = &stream->batch.columns[column];

	return !array->numbers || (array->nulls && array->nulls[stream->row])
		       ? 0
		       : array->numbers[stream->row];
}

static void take_alloc(struct names *names, const struct stream *stream)
{
	uint64_t number = cell(stream, PROF_ALLOC_BLOCK), prior = cell(stream, PROF_ALLOC_PRIOR);
	uint64_t kind = cell(stream, PROF_ALLOC_KIND);
	struct block block = { .size = cell(stream, PROF_ALLOC_SIZE), .is_live = true };
	struct process *process;

	load_names(names, stream->batch.epoch);
	block.thread = find_thread(names, cell(stream, PROF_ALLOC_THREAD));
	process = &processes[threads[block.thread].process];
	if (kind >= PROF_ALLOC_KINDS) {
		process->wrong++;
		return;
	}
	block.kind = (uint8_t)kind;
	process->allocs[kind]++;
	if (kind <= PROF_ALLOC_REALLOCARRAY)
		process->sizes[MIN_OF(block.size / SIZE_STEP, (uint64_t)N_SIZES)]++;
	if (!is_mapping(kind))
		block.turn = ++threads[block.thread].n;
	if (number == 0) {
		process->failed++;
		return;
	}
	process->cross += find_block(process, prior) && !is_mapping(kind) &&
			  find_block(process, prior)->thread != block.thread;
	if (prior && kind != PROF_ALLOC_REALLOC && kind != PROF_ALLOC_REALLOCARRAY &&
	    !is_mapping(kind))
		process->untold++;
	/* all parts of a split mapping refer to the mapping, which ends only once */
	if (prior && (!is_mapping(kind) || find_block(process, prior)))
		end_block(process, prior);
	add_block(process, number, &block);
}

static void take_free(struct names *names, const struct stream *stream)
{
	uint64_t number = cell(stream, PROF_FREE_BLOCK), kind = cell(stream, PROF_FREE_KIND);
	uint32_t thread;
	const struct block *block;
	struct process *process;

	load_names(names, stream->batch.epoch);
	thread = find_thread(names, cell(stream, PROF_FREE_THREAD));
	process = &processes[threads[thread].process];
	if (kind >= PROF_FREE_KINDS) {
		process->wrong++;
		return;
	}
	if (kind == PROF_FREE_UNTOLD)
		process->untold++;
	else
		process->frees[kind]++;
	if (number == 0) {
		*(cell(stream, PROF_FREE_ADDRESS) ? &process->foreign : &process->free_null) += 1;
		return;
	}
	block = find_block(process, number);
	if (block && !is_mapping(block->kind)) {
		process->free_aligned += is_aligned(block->kind);
		process->cross += block->thread != thread;
		process->temporary += block->thread == thread &&
				      threads[thread].n - block->turn <= 1;
	}
	end_block(process, number);
}

/* Returns whether the next row is a free, not an allocation. At equal times, a block is allocated
 * before it is freed. */
static bool is_free_next(struct names *names, const struct stream *allocs,
			 const struct stream *frees)
{
	uint64_t at = cell(allocs, PROF_ALLOC_TIME), until = cell(frees, PROF_FREE_TIME);
	const struct process *process;

	if (at != until)
		return until < at;
	load_names(names, frees->batch.epoch);
	process = &processes[threads[find_thread(names, cell(frees, PROF_FREE_THREAD))].process];
	return cell(frees, PROF_FREE_BLOCK) + cell(frees, PROF_FREE_YOUNGER) < process->n_blocks;
}

static void replay(struct names *names, const struct prof_reader *reader)
{
	struct stream allocs, frees;

	stream_open(&allocs, reader, PROF_TABLE_ALLOC);
	stream_open(&frees, reader, PROF_TABLE_FREE);
	for (;;) {
		bool is_alloc = stream_fill(&allocs), is_free = stream_fill(&frees);

		if (!is_alloc && !is_free)
			break;
		if (is_free && (!is_alloc || is_free_next(names, &allocs, &frees))) {
			take_free(names, &frees);
			frees.row++;
		} else {
			take_alloc(names, &allocs);
			allocs.row++;
		}
	}
	prof_cursor_free(allocs.cursor);
	prof_cursor_free(frees.cursor);
}

/* ---- Summary rows ---- */

static void read_heaps(struct names *names, const struct prof_reader *reader)
{
	struct stream stream;

	stream_open(&stream, reader, PROF_TABLE_HEAP);
	for (; stream_fill(&stream); stream.row++) {
		uint64_t event = cell(&stream, PROF_HEAP_EVENT);
		struct process *process;
		size_t at;

		load_names(names, stream.batch.epoch);
		at = find_process(names, cell(&stream, PROF_HEAP_PROCESS));
		process = &processes[at];
		process->begins += event == PROF_HEAP_BEGIN;
		process->ends += event == PROF_HEAP_END;
		process->event = (unsigned int)event;
		process->inherited = cell(&stream, PROF_HEAP_INHERITED);
		process->heap_bytes = cell(&stream, PROF_HEAP_LIVE_BYTES);
		process->heap_blocks = cell(&stream, PROF_HEAP_LIVE_BLOCKS);
		process->heap_peak =
			MAX_OF(process->heap_peak, cell(&stream, PROF_HEAP_PEAK_BYTES));
		process->heap_time = cell(&stream, PROF_HEAP_TIME);
	}
	prof_cursor_free(stream.cursor);
}

/* Reads the live rows that belong to the last heap row of each process. */
static void read_live(struct names *names, const struct prof_reader *reader)
{
	struct stream stream;

	stream_open(&stream, reader, PROF_TABLE_LIVE);
	for (; stream_fill(&stream); stream.row++) {
		struct process *process;

		load_names(names, stream.batch.epoch);
		process = &processes[threads[find_thread(names, cell(&stream, PROF_LIVE_THREAD))]
					     .process];
		if (cell(&stream, PROF_LIVE_TIME) != process->heap_time)
			continue;
		process->live_rows++;
		process->live_bytes += cell(&stream, PROF_LIVE_SIZE);
	}
	prof_cursor_free(stream.cursor);
}

/* Reads losses of collectors, not of samples. */
static void read_losses(const struct prof_reader *reader)
{
	struct stream stream;

	stream_open(&stream, reader, PROF_TABLE_LOSS);
	for (; stream_fill(&stream); stream.row++) {
		const struct prof_array *names = &stream.batch.columns[PROF_LOSS_STREAM];
		const char *name = (const char *)names->bytes + names->offsets[stream.row];
		size_t n = (size_t)(names->offsets[stream.row + 1] - names->offsets[stream.row]);

		if (n >= strlen("collector") && memcmp(name, "collector", strlen("collector")) == 0)
			lost += cell(&stream, PROF_LOSS_COUNT);
	}
	prof_cursor_free(stream.cursor);
}

static void print_kinds(const char *name, const uint64_t *counts, const char *const *kinds,
			size_t n)
{
	printf(",\"%s\":{", name);
	for (size_t i = 0; i < n; i++)
		printf("%s\"%s\":%" PRIu64, i ? "," : "", kinds[i], counts[i]);
	printf("}");
}

static void print_sizes(const struct process *process)
{
	bool is_next = false;

	printf(",\"sizes\":{");
	for (size_t i = 0; i <= N_SIZES; i++) {
		if (process->sizes[i] == 0)
			continue;
		printf("%s\"%zu\":%" PRIu64, is_next ? "," : "", i * SIZE_STEP, process->sizes[i]);
		is_next = true;
	}
	printf("}");
}

static void print_process(const struct process *process)
{
	const struct {
		const char *name;
		uint64_t value;
	} numbers[] = {
		{ "pid", process->pid },
		{ "ppid", process->ppid },
		{ "generation", process->generation },
		{ "failed", process->failed },
		{ "bytes", process->bytes },
		{ "freed_bytes", process->freed_bytes },
		{ "peak", process->peak },
		{ "leaked_blocks", process->n_live },
		{ "leaked_bytes", process->live },
		{ "free_null", process->free_null },
		{ "foreign", process->foreign },
		{ "free_aligned", process->free_aligned },
		{ "cross", process->cross },
		{ "temporary", process->temporary },
		{ "untold", process->untold },
		{ "inherited_ends", process->inherited_ends },
		{ "wrong", process->wrong },
		{ "begins", process->begins },
		{ "ends", process->ends },
		{ "event", process->event },
		{ "heap_bytes", process->heap_bytes },
		{ "heap_blocks", process->heap_blocks },
		{ "heap_peak", process->heap_peak },
		{ "live_rows", process->live_rows },
		{ "live_bytes", process->live_bytes },
	};

	printf("{\"exe\":\"%s\"", process->exe);
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		printf(",\"%s\":%" PRIu64, numbers[i].name, numbers[i].value);
	print_sizes(process);
	print_kinds("allocs", process->allocs, alloc_kinds, PROF_ALLOC_KINDS);
	print_kinds("frees", process->frees, free_kinds, PROF_FREE_UNTOLD);
	printf("}");
}

int main(int argc, char **argv)
{
	CLEANUP_CLOSE int fd = argc == 2 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1;
	struct names names = { 0 };
	struct prof_reader *reader;

	if (fd < 0 || prof_reader_open(fd, &reader) != 0) {
		fprintf(stderr, "heap-counts: cannot read \"%s\"\n", argc == 2 ? argv[1] : "");
		return 2;
	}
	names.reader = reader;
	read_heaps(&names, reader);
	replay(&names, reader);
	read_live(&names, reader);
	read_losses(reader);
	printf("{\"lost\":%" PRIu64 ",\"processes\":[", lost);
	for (size_t i = 0; i < n_processes; i++) {
		printf(i ? ",\n" : "\n");
		print_process(&processes[i]);
	}
	printf("\n]}\n");
	return 0;
}
