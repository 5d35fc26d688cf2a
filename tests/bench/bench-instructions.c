/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Bench-instructions - runs one hot path many times, for instructions.py, which counts instructions
 *
 *     bench-instructions PATH     PATH: one of those below; prints how many operations measured()
 *                                 performs
 *
 * ring-write: a mark. malloc-hook: a malloc and its free, with a known stack. new-stack: the same
 * with a stack that is always new. unwind-step: a frame of a walk of this thread's stack, with
 * cached rules. row-decode: a sample row with all its columns.
 */
#include "libcollector/hooks/heap-record.h"
#include "tests/unit/build-capture.h"
#include "tests/unit/ring.h"

#include <stdio.h>
#include <stdlib.h>

#define RUNS 20000u
#define DEPTH 24
#define PATH_BITS 16
static_assert(2 * RUNS <= 1u << PATH_BITS, "each path is new");

static struct pair pair;
static struct producer producer;
static const uint32_t never_ended;
static struct self_unwind own;
static uint64_t pcs[SELF_UNWIND_MAX_FRAMES];
static struct prof_reader *reader;
static volatile uint64_t sink;

static uint64_t write_marks(void)
{
	for (uint32_t i = 0; i < RUNS; i++)
		write_mark(pair.ring, i + 1);
	return RUNS;
}

static __attribute__((noinline)) void hook(uint64_t i)
{
	struct walk_registers caller;

	unwind_cache_get_caller(&caller);
	heap_record_alloc(RING_ALLOC_MALLOC, 24, (void *)(uintptr_t)(i * 32 + 4096), caller.pc,
			  caller.sp, caller.fp);
	heap_record_free(RING_FREE_FREE, (void *)(uintptr_t)(i * 32 + 4096), 0);
}

static uint64_t call_hooks(void)
{
	for (uint32_t i = 0; i < RUNS; i++)
		hook(i);
	return RUNS;
}

/* Calls the hook through n nested calls. Each bit of `path` selects one of two call sites. */
static __attribute__((noinline)) int follow(uint32_t path, int n)
{
	volatile int r = 0;

	if (n == 0)
		hook(path);
	else if (path & 1)
		r += follow(path >> 1, n - 1) + 1;
	else
		r += follow(path >> 1, n - 1) - 1;
	return r;
}

static uint64_t call_new(void)
{
	static uint32_t path;

	for (uint32_t i = 0; i < RUNS; i++)
		follow(path++, PATH_BITS);
	return RUNS;
}

static uint64_t walk_stacks(void)
{
	struct walk_registers registers;
	struct self_unwind_chain chain;
	uint64_t n = 0;

	self_unwind_get_registers(&registers);
	for (uint32_t i = 0; i < RUNS / DEPTH; i++) {
		self_unwind_walk(&own, &registers, pcs, ARRAY_SIZE(pcs), &chain);
		n += chain.n;
	}
	return n;
}

static uint64_t read_rows(void)
{
	const struct prof_cursor_options options = { .table = PROF_TABLE_SAMPLE };
	struct prof_cursor *cursor;
	struct prof_batch batch;
	uint64_t n = 0;

	if (prof_cursor_new(reader, &options, &cursor) != 0)
		abort();
	for (; prof_cursor_next(cursor, &batch) == 0; n += batch.rows)
		sink = batch.columns[0].numbers[batch.rows - 1];
	prof_cursor_free(cursor);
	return n;
}

/* Callgrind collects while this function runs. */
__attribute__((noinline)) uint64_t measured(uint64_t (*run)(void));
uint64_t measured(uint64_t (*run)(void))
{
	uint64_t n = run();

	__asm__ volatile("" ::: "memory");
	return n;
}

static __attribute__((noinline)) uint64_t deep(uint64_t (*run)(void), int depth)
{
	uint64_t n = 0;

	/* The first run fills the caches. */
	if (depth == 0) {
		run();
		return measured(run);
	}
	n = deep(run, depth - 1);
	__asm__ volatile("" ::: "memory");
	return n;
}

static void make_rows(void)
{
	static struct build build;

	build_begin(&build);
	for (uint64_t i = 0; i < 4 * RUNS; i++)
		BUILD(&build, PROF_TABLE_SAMPLE, N(BUILD_START + i * 1003 + i * i % 97),
		      N(i % 3 + 1), N(i % 2), N(i % 8 == 0), N(i * i % 1009 + 1), N(1000000), N(1),
		      N(1), N(0), N(0));
	build_finish(&build);
	if (prof_reader_open(build.fd, &reader) != 0)
		abort();
}

static bool set_up(void)
{
	if (self_unwind_setup() < 0 || !pair_init(&pair, UINT64_C(1) << 26, 2, RING_DROP))
		return false;
	/* Map the arena again, with ticks. */
	ring_arena_unmap(pair.arena);
	ring_arena_offer_ticks(&pair.memory);
	if (ring_arena_map(pair.fd, &pair.arena) != 0 ||
	    !(pair.ring = ring_claim(pair.arena, 1, 0, 0)))
		return false;
	producer.ring = producer.current = pair.ring;
	producer.ended = &never_ended;
	producer.n_types = RING_N_TYPES;
	intern_restart(&producer.intern);
	register_self.producer = &producer;
	make_rows();
	return true;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		uint64_t (*run)(void);
	} paths[] = {
		{ "ring-write", write_marks }, { "malloc-hook", call_hooks },
		{ "new-stack", call_new },     { "unwind-step", walk_stacks },
		{ "row-decode", read_rows },
	};

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
		if (argc == 2 && strcmp(argv[1], paths[i].name) == 0 && set_up()) {
			printf("%lu\n", deep(paths[i].run, DEPTH));
			return 0;
		}
	return 2;
}
