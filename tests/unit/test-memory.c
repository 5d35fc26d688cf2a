/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of `profcapture memory` on captures with results that can be counted by hand.
 */
#include "tests/unit/build-capture.h"
#include "tests/unit/test.h"
#include "tools/profcapture/memory.h"

#include <math.h>
#include <sys/stat.h>
#include <time.h>

/* Image 1 has functions a, b, c at 0x100, 0x200, 0x300, and d, which is C++ new. Stacks 1: a, 2: a
 * → b, 3: a → b → c, 4: a → d, 5: a → b → a. Processes 1 and 2 are pids 100 and 200. Threads 1 and
 * 2 (tids 101, 102) belong to process 1, thread 3 (tid 201) to process 2. */
static void add_names(struct build *build)
{
	static const char *const names[] = { "a", "b", "c", "operator new(unsigned long)" };
	static const unsigned stacks[][3] = {
		{ 1, 0, 1 }, { 2, 1, 2 }, { 3, 2, 3 }, { 4, 1, 4 }, { 5, 2, 1 }
	};

	build_text(build, 1, "/lib/x.so");
	BUILD(build, PROF_TABLE_IMAGE, N(1), N(1), PROF_BYTES(NULL, 0), N(10), N(1), N(5),
	      N(PROF_IMAGE_FILE), N(5), N(0));
	for (unsigned i = 0; i < 4; i++) {
		build_text(build, i + 2, names[i]);
		BUILD(build, PROF_TABLE_SYMBOL, N(i + 1), N(1), N(0x100 * (i + 1)), N(0x100),
		      N(i + 2), N(0), N(0), N(0), N(0));
		BUILD(build, PROF_TABLE_FRAME, N(i + 1), N(1), N(0x100 * (i + 1)),
		      N(PROF_FRAME_EXACT));
	}
	for (unsigned i = 0; i < ARRAY_SIZE(stacks); i++)
		BUILD(build, PROF_TABLE_STACK, N(stacks[i][0]), N(stacks[i][1]), N(stacks[i][2]));
	build_text(build, 8, "comm");
	for (unsigned i = 1; i <= 2; i++)
		BUILD(build, PROF_TABLE_PROCESS, N(i), N(100 * i), N(1), N(5), N(0),
		      PROF_BYTES(NULL, 0), N(0), N(0), N(0), PROF_BYTES(NULL, 0));
	BUILD(build, PROF_TABLE_THREAD, N(1), N(1), N(101), N(5), N(8), PROF_BYTES(NULL, 0));
	BUILD(build, PROF_TABLE_THREAD, N(2), N(1), N(102), N(5), N(8), PROF_BYTES(NULL, 0));
	BUILD(build, PROF_TABLE_THREAD, N(3), N(2), N(201), N(5), N(8), PROF_BYTES(NULL, 0));
}

static void begin(struct build *build)
{
	build_begin(build);
	add_names(build);
}

static void alloc_row(struct build *build, uint64_t time, uint64_t thread,
		      enum prof_alloc_kind kind, uint64_t block, uint64_t size, uint64_t stack,
		      uint64_t prior)
{
	BUILD(build, PROF_TABLE_ALLOC, N(BUILD_START + time), N(thread), N(kind), N(block), N(size),
	      N(0), N(stack), N(prior));
}

static void malloc_row(struct build *build, uint64_t time, uint64_t thread, uint64_t block,
		       uint64_t size, uint64_t stack)
{
	alloc_row(build, time, thread, PROF_ALLOC_MALLOC, block, size, stack, 0);
}

static void end_row(struct build *build, uint64_t time, uint64_t thread, uint64_t block,
		    enum prof_free_kind kind)
{
	BUILD(build, PROF_TABLE_FREE, N(BUILD_START + time), N(thread), N(block), PROF_NULL,
	      N(kind), N(0));
}

static void free_row(struct build *build, uint64_t time, uint64_t thread, uint64_t block)
{
	end_row(build, time, thread, block, PROF_FREE_FREE);
}

static void heap_row(struct build *build, uint64_t time, uint64_t process,
		     enum prof_heap_event event, uint64_t bytes, uint64_t blocks, uint64_t peak,
		     uint64_t peak_time)
{
	BUILD(build, PROF_TABLE_HEAP, N(BUILD_START + time), N(process), N(event), N(bytes),
	      N(blocks), N(peak), N(BUILD_START + peak_time), N(0));
}

static void live_row(struct build *build, uint64_t time, uint64_t thread, uint64_t block,
		     uint64_t size, uint64_t stack, uint64_t since)
{
	BUILD(build, PROF_TABLE_LIVE, N(BUILD_START + time), N(thread), N(PROF_ALLOC_MALLOC),
	      N(block), N(size), N(0), N(stack), N(BUILD_START + since));
}

static void exit_row(struct build *build, uint64_t time, uint64_t thread)
{
	BUILD(build, PROF_TABLE_TASK, N(BUILD_START + time), N(thread), N(PROF_TASK_EXIT), N(0),
	      PROF_NULL, N(0));
}

/* ---- queries --------------------------------------------------------------------------------- */

static void ask(struct memory *memory, enum memory_view view)
{
	*memory = (struct memory){ .view = view,
				   .threshold = 1,
				   .within_ns = UINT64_MAX,
				   .is_tree = view == MEMORY_CROSS_THREAD };
}

static bool answer(struct memory *memory, const struct build *build)
{
	GError *error = NULL;
	bool ok = memory_run(memory, build->path, &error);

	if (!ok)
		printf("# %s\n", error->message);
	g_clear_error(&error);
	return ok;
}

static bool ask_view(struct memory *memory, enum memory_view view, const struct build *build)
{
	ask(memory, view);
	return answer(memory, build);
}

static bool ask_at(struct memory *memory, uint64_t time, const struct build *build)
{
	ask(memory, MEMORY_AT);
	memory->reader.writes_empty = true; /* a time after the capture's end is no error */
	memory->at = (struct units_time){ .kind = UNITS_TIME_START, .ns = time };
	return answer(memory, build);
}

static const struct memory_line *line_of(const struct memory *memory, const char *name)
{
	static const struct memory_counts nothing;
	static const struct memory_line none = { .counts = &nothing };

	for (guint i = 0; i < memory->lines->len; i++) {
		const struct memory_line *line =
			&g_array_index(memory->lines, struct memory_line, i);

		if (g_strcmp0(line->name, name) == 0)
			return line;
	}
	return &none;
}

static const struct memory_counts *counts_of(const struct memory *memory, uint32_t entity)
{
	static const struct memory_counts none;

	return entity < memory->entities->len
		       ? &g_array_index(memory->entities, struct memory_counts, entity)
		       : &none;
}

#define CHECK_SUM(sum, want_bytes, want_blocks)                \
	do {                                                   \
		CHECK_INT(llround((sum).bytes), want_bytes);   \
		CHECK_INT(llround((sum).blocks), want_blocks); \
	} while (0)
#define CHECK_NUMBER(number, want) CHECK_INT(llround(number), want)

/* ---- one process ----------------------------------------------------------------------------- */

/*
 * Time  live                                 Time  live
 * 10    100   1: 100 bytes by c              60           a malloc by a fails
 * 20    150   2: 50 bytes by b, calloc       70    300    3 is freed by thread 1
 * 30    100   2 is freed                     80           an unknown block is freed
 * 40    1100  3: 1000 bytes by c, thread 2   90           free(NULL)
 * 50    1300  1 becomes 4: 300 by b          100   308    5: 8 bytes by new, for a, thread 2
 */
static void write_rows(struct build *build)
{
	malloc_row(build, 10, 1, 1, 100, 3);
	alloc_row(build, 20, 1, PROF_ALLOC_CALLOC, 2, 50, 2, 0);
	free_row(build, 30, 1, 2);
	malloc_row(build, 40, 2, 3, 1000, 3);
	alloc_row(build, 50, 1, PROF_ALLOC_REALLOC, 4, 300, 2, 1);
	malloc_row(build, 60, 1, 0, 9999, 1);
	free_row(build, 70, 1, 3);
	BUILD(build, PROF_TABLE_FREE, N(BUILD_START + 80), N(1), N(0), N(0x1234), N(PROF_FREE_FREE),
	      N(0));
	BUILD(build, PROF_TABLE_FREE, N(BUILD_START + 90), N(1), N(0), PROF_NULL, N(PROF_FREE_FREE),
	      N(0));
	malloc_row(build, 100, 2, 5, 8, 4);
}

static void write_one(struct build *build, bool has_end)
{
	begin(build);
	heap_row(build, 5, 1, PROF_HEAP_BEGIN, 0, 0, 0, 5);
	write_rows(build);
	if (has_end) {
		heap_row(build, 200, 1, PROF_HEAP_END, 308, 2, 1300, 50);
		live_row(build, 200, 1, 4, 300, 2, 50);
		live_row(build, 200, 2, 5, 8, 4, 100);
	}
	build_finish(build);
}

static void check_summary(const struct memory *memory)
{
	const struct memory_counts *all = &memory->all;

	CHECK_NUMBER(all->calls[PROF_ALLOC_MALLOC], 4);
	CHECK_NUMBER(all->calls[PROF_ALLOC_CALLOC], 1);
	CHECK_NUMBER(all->calls[PROF_ALLOC_REALLOC], 1);
	CHECK_NUMBER(all->calls[MEMORY_CALL_FREE], 3);
	CHECK_NUMBER(all->calls[MEMORY_CALL_FREE_NULL], 1);
	CHECK_NUMBER(all->failed, 1);
	CHECK_NUMBER(all->foreign, 1);
	CHECK_NUMBER(all->allocations, 5);
	CHECK_NUMBER(all->allocated_bytes, 1458);
	CHECK_NUMBER(all->freed_bytes, 1150);
	CHECK_NUMBER(all->live_bytes, 308);
	CHECK_NUMBER(all->live_blocks, 2);
	CHECK_NUMBER(all->leaked_bytes, 308);
	CHECK_NUMBER(all->leaked_blocks, 2);
	CHECK_NUMBER(all->temporary, 1);
	CHECK_NUMBER(all->peak_bytes, 1300);
	CHECK_INT(all->peak_ns, 50);
	CHECK_NUMBER(all->reallocs, 1);
	CHECK_INT(memory->lost, 0);
	CHECK_INT(memory->unknown, 0);
	CHECK(!memory->is_incomplete);
}

static void test_summary(void)
{
	for (unsigned has_end = 0; has_end < 2; has_end++) {
		const struct memory_line *line;
		struct memory memory;
		struct build build;

		write_one(&build, has_end);
		REQUIRE(ask_view(&memory, MEMORY_SUMMARY, &build));
		check_summary(&memory);
		CHECK_INT(memory.lines->len, 4);
		CHECK_STR(g_array_index(memory.lines, struct memory_line, 0).name, "c");
		line = line_of(&memory, "c");
		CHECK_SUM(line->self, 1100, 2);
		CHECK_SUM(line->total, 1100, 2);
		CHECK_NUMBER(line->counts->peak_bytes, 1000);
		CHECK_NUMBER(line->counts->calls[MEMORY_CALL_FREE], 1);
		line = line_of(&memory, "b");
		CHECK_SUM(line->self, 350, 2);
		CHECK_SUM(line->total, 1450, 4);
		CHECK_NUMBER(line->counts->peak_bytes, 300);
		CHECK_NUMBER(line->counts->leaked_bytes, 300);
		line = line_of(&memory, "a");
		CHECK_SUM(line->self, 8, 1);
		CHECK_SUM(line->total, 1458, 5);
		CHECK_NUMBER(line->counts->failed, 1);
		CHECK_NUMBER(line->counts->leaked_blocks, 1);
		memory_done(&memory);
		build_done(&build);
	}
}

/* With one large block of b and four small blocks of a, the order and the tree depend on
 * --by-blocks. */
static void test_by_blocks(void)
{
	for (unsigned by_blocks = 0; by_blocks < 2; by_blocks++) {
		const char *const rows[] = { "b", "a" };
		struct memory memory;
		struct build build;
		struct out out;

		begin(&build);
		malloc_row(&build, 10, 1, 1, 1000, 2);
		for (unsigned i = 0; i < 4; i++)
			malloc_row(&build, 20, 1, 2 + i, 10, 1);
		build_finish(&build);
		ask(&memory, MEMORY_LEAKS);
		memory.by_blocks = by_blocks;
		memory.is_tree = true;
		memory.reader.limit = 20;
		REQUIRE(answer(&memory, &build));
		CHECK_STR(g_array_index(memory.lines, struct memory_line, 0).name, rows[by_blocks]);
		out = out_buffer();
		memory_print_tree(&memory, &out);
		CHECK(strstr(out.text->str, by_blocks ? "\n   20.0    1000 B       1  `- b"
						      : "\n   96.2    1000 B       1  `- b"));
		out_done(&out);
		memory_done(&memory);
		build_done(&build);
	}
}

static void test_leaks(void)
{
	for (unsigned has_end = 0; has_end < 2; has_end++) {
		struct memory memory;
		struct build build;

		write_one(&build, has_end);
		REQUIRE(ask_view(&memory, MEMORY_LEAKS, &build));
		CHECK_NUMBER(memory.all.leaked_bytes, 308);
		CHECK_SUM(line_of(&memory, "b")->self, 300, 1);
		CHECK_SUM(line_of(&memory, "a")->self, 8, 1);
		CHECK_SUM(line_of(&memory, "a")->total, 308, 2);
		CHECK_SUM(line_of(&memory, "c")->total, 0, 0);
		memory_done(&memory);
		build_done(&build);
	}
}

static void test_peak(void)
{
	for (unsigned has_end = 0; has_end < 2; has_end++) {
		struct memory memory;
		struct build build;

		write_one(&build, has_end);
		REQUIRE(ask_view(&memory, MEMORY_PEAK, &build));
		CHECK_NUMBER(memory.all.peak_bytes, 1300);
		CHECK_INT(memory.all.peak_ns, 50);
		CHECK_NUMBER(memory.all.live_bytes, 1300);
		CHECK_NUMBER(memory.all.live_blocks, 2);
		CHECK_SUM(line_of(&memory, "c")->self, 1000, 1);
		CHECK_SUM(line_of(&memory, "b")->self, 300, 1);
		CHECK_SUM(line_of(&memory, "b")->total, 1300, 2);
		memory_done(&memory);
		build_done(&build);
	}
}

static void test_at(void)
{
	static const struct {
		uint64_t time;
		int bytes, blocks;
	} times[] = { { 0, 0, 0 },     { 9, 0, 0 },     { 10, 100, 1 },  { 29, 150, 2 },
		      { 30, 100, 1 },  { 45, 1100, 2 }, { 50, 1300, 2 }, { 70, 300, 1 },
		      { 100, 308, 2 }, { 150, 308, 2 }, { 5000, 308, 2 } };
	struct memory memory;
	struct build build;

	write_one(&build, true);
	for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
		REQUIRE(ask_at(&memory, times[i].time, &build));
		CHECK_NUMBER(memory.all.live_bytes, times[i].bytes);
		CHECK_NUMBER(memory.all.live_blocks, times[i].blocks);
		memory_done(&memory);
	}
	ask(&memory, MEMORY_DIFF);
	memory.diff.from = (struct units_time){ .kind = UNITS_TIME_START, .ns = 25 };
	memory.diff.to = (struct units_time){ .kind = UNITS_TIME_START, .ns = 75 };
	REQUIRE(answer(&memory, &build));
	CHECK_SUM(line_of(&memory, "b")->self, 300, 1);
	CHECK_SUM(line_of(&memory, "b")->before, 50, 1);
	CHECK_SUM(line_of(&memory, "c")->self, 0, 0);
	CHECK_SUM(line_of(&memory, "c")->before, 100, 1);
	CHECK_STR(g_array_index(memory.lines, struct memory_line, 0).name, "b");
	memory_done(&memory);
	build_done(&build);
}

static void test_sizes(void)
{
	static const unsigned sizes[] = { 100, 50, 1000, 300, 8 };
	struct memory memory;
	struct build build;
	uint64_t from, to;

	write_one(&build, true);
	REQUIRE(ask_view(&memory, MEMORY_SIZES, &build));
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		const struct memory_counts *counts =
			counts_of(&memory, memory_size_class(sizes[i]));

		memory_size_range(memory_size_class(sizes[i]), &from, &to);
		CHECK(from <= sizes[i] && sizes[i] <= to);
		CHECK_NUMBER(counts->allocations, 1);
		CHECK_NUMBER(counts->allocated_bytes, sizes[i]);
	}
	CHECK_NUMBER(counts_of(&memory, memory_size_class(9999))->failed, 1);
	CHECK_NUMBER(counts_of(&memory, memory_size_class(300))->leaked_bytes, 300);
	CHECK_NUMBER(counts_of(&memory, memory_size_class(1000))->peak_bytes, 1000);
	CHECK_NUMBER(counts_of(&memory, memory_size_class(50))->temporary, 1);
	CHECK_INT(memory.lines->len, 6);
	CHECK_INT(g_array_index(memory.lines, struct memory_line, 0).entity, memory_size_class(8));
	memory_size_range(64, &from, &to);
	CHECK(from == UINT64_C(1) << 63 && to == UINT64_MAX);
	memory_size_range(0, &from, &to);
	CHECK(from == 0 && to == 0);
	memory_done(&memory);
	build_done(&build);
}

/* All sizes are shown, even in text, unless --limit is given. */
static void test_all_sizes(void)
{
	struct memory memory;
	struct build build;

	begin(&build);
	for (unsigned i = 0; i < 40; i++)
		malloc_row(&build, 10 + i, 1, 1 + i, UINT64_C(1) << i, 1);
	build_finish(&build);
	for (unsigned i = 0; i < 2; i++) {
		ask(&memory, MEMORY_SIZES);
		memory.reader.text_limit = 20;
		memory.reader.limit = i ? 7 : READER_LIMIT_UNSET;
		REQUIRE(answer(&memory, &build));
		CHECK_INT(memory.lines->len, 40);
		CHECK_INT(reader_shown(&memory.reader, memory.lines->len), i ? 7 : 40);
		memory_done(&memory);
	}
	build_done(&build);
}

static void test_lifetimes(void)
{
	uint64_t from, to, before = UINT64_MAX;
	struct memory memory;
	struct build build;

	write_one(&build, true);
	REQUIRE(ask_view(&memory, MEMORY_LIFETIMES, &build));
	CHECK_NUMBER(counts_of(&memory, 0)->allocations, 3);
	CHECK_NUMBER(counts_of(&memory, 0)->allocated_bytes, 1150);
	CHECK_NUMBER(counts_of(&memory, 0)->calls[MEMORY_CALL_FREE], 2);
	CHECK_NUMBER(counts_of(&memory, MEMORY_NEVER_FREED)->leaked_bytes, 308);
	CHECK_INT(memory.lines->len, 2);
	for (uint32_t class = 0; class < MEMORY_NEVER_FREED; class ++) {
		memory_lifetime_range(class, &from, &to);
		if (before == UINT64_MAX && class > 0)
			break;
		CHECK(from == before + 1);
		CHECK_INT(memory_lifetime_class(from), class);
		CHECK_INT(memory_lifetime_class(to), class);
		before = to;
	}
	CHECK_INT(memory_lifetime_class(999), 0);
	CHECK_INT(memory_lifetime_class(1000), 1);
	CHECK(memory_lifetime_class(UINT64_MAX) < MEMORY_NEVER_FREED);
	memory_done(&memory);
	build_done(&build);
}

static uint32_t thread_of(const struct memory *memory, uint64_t tid)
{
	const struct names *names = memory->reader.capture->names;

	for (uint32_t i = 0; i < names->threads->len; i++)
		if (names_thread_at(names, i)->tid == tid)
			return i;
	return UINT32_MAX;
}

static void test_threads(void)
{
	const struct memory_counts *one, *two;
	struct memory memory;
	struct build build;

	write_one(&build, true);
	REQUIRE(ask_view(&memory, MEMORY_THREADS, &build));
	one = counts_of(&memory, thread_of(&memory, 101));
	two = counts_of(&memory, thread_of(&memory, 102));
	CHECK_NUMBER(one->allocations, 3);
	CHECK_NUMBER(one->allocated_bytes, 450);
	CHECK_NUMBER(one->calls[MEMORY_CALL_FREE], 3);
	CHECK_NUMBER(one->calls[MEMORY_CALL_FREE_NULL], 1);
	CHECK_NUMBER(one->failed, 1);
	CHECK_NUMBER(one->foreign, 1);
	CHECK_NUMBER(one->freed_bytes, 1150);
	CHECK_NUMBER(one->peak_bytes, 300);
	CHECK_NUMBER(one->leaked_bytes, 300);
	CHECK_NUMBER(two->allocations, 2);
	CHECK_NUMBER(two->allocated_bytes, 1008);
	CHECK_NUMBER(two->calls[MEMORY_CALL_FREE], 0);
	CHECK_NUMBER(two->peak_bytes, 1000);
	CHECK_NUMBER(two->leaked_bytes, 8);
	memory_done(&memory);
	build_done(&build);
}

static bool ask_thread(struct memory *memory, enum memory_view view, uint32_t tid,
		       const struct build *build)
{
	ask(memory, view);
	memory->reader.tids = g_array_new(FALSE, FALSE, sizeof(tid));
	g_array_append_val(memory->reader.tids, tid);
	return answer(memory, build);
}

/* Block 3 was allocated by thread 102, and freed by 101. */
static void test_thread_passes(void)
{
	static const enum memory_view views[] = { MEMORY_LEAKS, MEMORY_PEAK };
	struct memory memory;
	struct build build;

	write_one(&build, true);
	REQUIRE(ask_thread(&memory, MEMORY_SUMMARY, 101, &build));
	CHECK_INT(memory.unknown, 0);
	CHECK_NUMBER(memory.all.allocations, 3);
	memory_done(&memory);
	REQUIRE(ask_thread(&memory, MEMORY_THREADS, 102, &build));
	CHECK_INT(memory.lines->len, 1);
	CHECK_NUMBER(memory.all.freed_bytes, 1000);
	memory_done(&memory);
	/* Heap marks have only the peak of all threads together, so a single thread has no peak. */
	for (size_t i = 0; i < ARRAY_SIZE(views); i++) {
		REQUIRE(ask_thread(&memory, views[i], 101, &build));
		CHECK(!(memory.has_processes & MEMORY_HAS_PEAK));
		memory_done(&memory);
		REQUIRE(ask_view(&memory, views[i], &build));
		CHECK(memory.has_processes & MEMORY_HAS_PEAK);
		memory_done(&memory);
	}
	build_done(&build);
}

static const struct memory_counts *pair_of(const struct memory *memory, uint64_t allocator,
					   uint64_t freer)
{
	for (guint i = 0; i < memory->pairs->len; i++) {
		const struct memory_pair *pair =
			&g_array_index(memory->pairs, struct memory_pair, i);

		if (pair->allocator == thread_of(memory, allocator) &&
		    pair->freer == thread_of(memory, freer))
			return counts_of(memory, i);
	}
	return counts_of(memory, UINT32_MAX);
}

static void test_cross_thread(void)
{
	struct memory memory;
	struct build build;

	write_one(&build, true);
	REQUIRE(ask_view(&memory, MEMORY_CROSS_THREAD, &build));
	CHECK_INT(memory.lines->len, 2);
	CHECK_NUMBER(pair_of(&memory, 102, 101)->allocations, 1);
	CHECK_NUMBER(pair_of(&memory, 102, 101)->freed_bytes, 1000);
	CHECK_NUMBER(pair_of(&memory, 101, 101)->allocations, 2);
	CHECK_NUMBER(pair_of(&memory, 101, 101)->freed_bytes, 150);
	CHECK_NUMBER(pair_of(&memory, 101, 101)->calls[MEMORY_CALL_FREE], 1);
	/* Pairs of different threads come first, and have a tree. */
	CHECK_NUMBER(g_array_index(memory.lines, struct memory_line, 0).counts->freed_bytes, 1000);
	CHECK_INT(memory.sums->len > 0, 1);
	memory_done(&memory);
	build_done(&build);
}

static void test_reallocs(void)
{
	struct memory memory;
	struct build build;

	begin(&build);
	heap_row(&build, 5, 1, PROF_HEAP_BEGIN, 0, 0, 0, 5);
	alloc_row(&build, 10, 1, PROF_ALLOC_REALLOC, 1, 10, 2, 0);
	alloc_row(&build, 20, 1, PROF_ALLOC_REALLOC, 2, 20, 2, 1);
	alloc_row(&build, 30, 1, PROF_ALLOC_REALLOCARRAY, 3, 15, 2, 2);
	alloc_row(&build, 40, 1, PROF_ALLOC_REALLOC, 0, 1 << 30, 2, 3); /* fails: 3 stays live */
	alloc_row(&build, 50, 1, PROF_ALLOC_REALLOC, 4, 35, 3, 3);
	BUILD(&build, PROF_TABLE_FREE, N(BUILD_START + 60), N(1), N(4), PROF_NULL,
	      N(PROF_FREE_REALLOC), N(0));
	build_finish(&build);
	REQUIRE(ask_view(&memory, MEMORY_REALLOCS, &build));
	CHECK_NUMBER(memory.all.calls[PROF_ALLOC_REALLOC], 5);
	CHECK_NUMBER(memory.all.calls[PROF_ALLOC_REALLOCARRAY], 1);
	CHECK_NUMBER(memory.all.calls[MEMORY_CALL_FREE], 0);
	CHECK_NUMBER(memory.all.failed, 1);
	CHECK_NUMBER(memory.all.reallocs, 3);
	CHECK_NUMBER(memory.all.grown_bytes, 30);
	CHECK_NUMBER(memory.all.copied_bytes, 40);
	CHECK_NUMBER(memory.all.live_bytes, 0);
	CHECK_NUMBER(memory.all.leaked_blocks, 0);
	CHECK_NUMBER(memory.all.temporary, 1);
	CHECK_NUMBER(line_of(&memory, "b")->counts->reallocs, 2);
	CHECK_INT(line_of(&memory, "b")->counts->longest_chain, 2);
	CHECK_NUMBER(line_of(&memory, "c")->counts->reallocs, 1);
	CHECK_INT(line_of(&memory, "c")->counts->longest_chain, 3);
	CHECK_SUM(line_of(&memory, "b")->self, 35, 2);
	memory_done(&memory);
	build_done(&build);
}

/* 10 bytes in a mapping of 400 are unmapped. Then malloc() returns the address of a block whose
 * free is missing; this must not count as a realloc. */
static void write_rests(struct build *build)
{
	begin(build);
	heap_row(build, 5, 1, PROF_HEAP_BEGIN, 0, 0, 0, 5);
	alloc_row(build, 10, 1, PROF_ALLOC_MMAP, 1, 400, 2, 0);
	alloc_row(build, 20, 1, PROF_ALLOC_MMAP, 2, 200, 2, 1);
	alloc_row(build, 20, 1, PROF_ALLOC_MMAP, 3, 190, 2, 1);
	malloc_row(build, 30, 1, 4, 50, 3);
	alloc_row(build, 40, 1, PROF_ALLOC_MALLOC, 5, 60, 3, 4);
	alloc_row(build, 50, 1, PROF_ALLOC_REALLOC, 6, 70, 3, 5);
	end_row(build, 60, 1, 3, PROF_FREE_MUNMAP);
	build_finish(build);
}

static void test_rests(void)
{
	double lived = 0;
	struct memory memory;
	struct build build;

	write_rests(&build);
	REQUIRE(ask_view(&memory, MEMORY_SUMMARY, &build));
	CHECK_NUMBER(memory.all.calls[PROF_ALLOC_MMAP], 1);
	CHECK_NUMBER(memory.all.allocations, 4);
	CHECK_NUMBER(memory.all.allocated_bytes, 400 + 50 + 60 + 70);
	CHECK_NUMBER(memory.all.freed_bytes, 10 + 50 + 60 + 190);
	CHECK_NUMBER(memory.all.live_bytes, 200 + 70);
	CHECK_NUMBER(memory.all.live_blocks, 2);
	CHECK_NUMBER(memory.all.peak_bytes, 390 + 70);
	CHECK_NUMBER(memory.all.leaked_bytes, 200 + 70);
	CHECK_SUM(line_of(&memory, "b")->self, 400, 1);
	CHECK_NUMBER(line_of(&memory, "b")->counts->freed_bytes, 200);
	memory_done(&memory);
	REQUIRE(ask_view(&memory, MEMORY_REALLOCS, &build));
	CHECK_NUMBER(memory.all.reallocs, 1);
	CHECK_NUMBER(memory.all.grown_bytes, 10);
	CHECK_NUMBER(memory.all.copied_bytes, 60);
	CHECK_SUM(line_of(&memory, "b")->self, 0, 0);
	CHECK_INT(line_of(&memory, "c")->counts->longest_chain, 1);
	memory_done(&memory);
	REQUIRE(ask_view(&memory, MEMORY_LIFETIMES, &build));
	for (uint32_t i = 0; i < MEMORY_NEVER_FREED; i++)
		lived += counts_of(&memory, i)->allocated_bytes;
	CHECK_NUMBER(lived, 10 + 50 + 60 + 190);
	memory_done(&memory);
	build_done(&build);
}

/* ---- temporary blocks ------------------------------------------------------------------------ */

/* Thread 1 allocates block 1, then zero to three others, and frees block 1. Meanwhile, thread 2
 * allocates one block. */
static void test_temporary(void)
{
	for (unsigned others = 0; others < 4; others++) {
		struct memory memory;
		struct build build;

		begin(&build);
		malloc_row(&build, 10, 1, 1, 10, 3);
		malloc_row(&build, 11, 2, 2, 10, 1);
		for (unsigned i = 0; i < others; i++)
			malloc_row(&build, 20 + i, 1, 3 + i, 10, 1);
		free_row(&build, 100, 1, 1);
		free_row(&build, 101, 1, 2);
		build_finish(&build);
		REQUIRE(ask_view(&memory, MEMORY_TEMPORARY, &build));
		CHECK_NUMBER(memory.all.temporary, others <= 1);
		CHECK_SUM(line_of(&memory, "c")->self, others <= 1 ? 10 : 0, others <= 1);
		memory_done(&memory);
		ask(&memory, MEMORY_TEMPORARY);
		memory.threshold = 2;
		REQUIRE(answer(&memory, &build));
		CHECK_NUMBER(memory.all.temporary, others <= 2);
		memory_done(&memory);
		/* With --within, the freeing thread does not matter. */
		ask(&memory, MEMORY_TEMPORARY);
		memory.within_ns = 90;
		REQUIRE(answer(&memory, &build));
		CHECK_NUMBER(memory.all.temporary, 2);
		memory_done(&memory);
		build_done(&build);
	}
}

/* ---- the tree -------------------------------------------------------------------------------- */

static void test_tree(void)
{
	struct memory memory;
	struct build build;

	begin(&build);
	malloc_row(&build, 10, 1, 1, 10, 5); /* a → b → a */
	malloc_row(&build, 20, 1, 2, 20, 3);
	malloc_row(&build, 30, 1, 3, 40, 0);
	malloc_row(&build, 40, 1, 4, 80, 77);
	build_next_epoch(&build);
	/* The same names, with other ids. */
	build_text(&build, 1, "/lib/x.so");
	build_text(&build, 2, "comm");
	BUILD(&build, PROF_TABLE_IMAGE, N(1), N(1), PROF_BYTES(NULL, 0), N(10), N(1), N(5),
	      N(PROF_IMAGE_FILE), N(5), N(0));
	BUILD(&build, PROF_TABLE_PROCESS, N(7), N(100), N(1), N(5), N(0), PROF_BYTES(NULL, 0), N(0),
	      N(0), N(0), PROF_BYTES(NULL, 0));
	BUILD(&build, PROF_TABLE_THREAD, N(9), N(7), N(101), N(5), N(2), PROF_BYTES(NULL, 0));
	BUILD(&build, PROF_TABLE_FRAME, N(1), N(1), N(0x350), N(PROF_FRAME_EXACT));
	BUILD(&build, PROF_TABLE_FRAME, N(2), N(1), N(0x250), N(PROF_FRAME_EXACT));
	BUILD(&build, PROF_TABLE_FRAME, N(3), N(1), N(0x150), N(PROF_FRAME_EXACT));
	BUILD(&build, PROF_TABLE_STACK, N(1), N(0), N(3));
	BUILD(&build, PROF_TABLE_STACK, N(2), N(1), N(2));
	BUILD(&build, PROF_TABLE_STACK, N(3), N(2), N(1));
	malloc_row(&build, 50, 9, 5, 100, 3);
	free_row(&build, 60, 9, 2);
	build_finish(&build);
	REQUIRE(ask_view(&memory, MEMORY_LEAKS, &build));
	CHECK_SUM(line_of(&memory, "a")->self, 10, 1);
	CHECK_SUM(line_of(&memory, "a")->total, 110, 2);
	CHECK_SUM(line_of(&memory, "b")->total, 110, 2);
	CHECK_SUM(line_of(&memory, "c")->self, 100, 1);
	CHECK_SUM(line_of(&memory, "<no stack>")->self, 40, 1);
	CHECK_SUM(line_of(&memory, "<lost>")->self, 80, 1);
	for (uint32_t i = 1; i < memory.tree.nodes->len; i++)
		CHECK(memory_node_at(&memory.tree, i)->parent < i);
	CHECK_INT(memory.tree.nodes->len, 3 + 4);
	memory_done(&memory);
	build_done(&build);
}

/* a's increases and decreases cancel out except for one byte, in the tree of calls and in that of
 * callers. */
static void test_tree_of_differences(void)
{
	/* A function's share is its part of the sum of absolute changes. */
	static const char *const want[2][2] = {
		{ "\n  >99.9      +1 B  a ", "\n   50.0  +977 KiB  `- a  +1" },
		{ "\n  >99.9      +1 B  a ", "\n   50.0  +977 KiB  `- b  " },
	};

	for (unsigned inverted = 0; inverted < 2; inverted++) {
		struct memory memory;
		struct build build;
		struct out out;

		begin(&build);
		malloc_row(&build, 10, 1, 1, 1000000, 1);
		free_row(&build, 100, 1, 1);
		malloc_row(&build, 110, 1, 2, 1000001, 5);
		malloc_row(&build, 120, 1, 3, 500, 0);
		build_finish(&build);
		ask(&memory, MEMORY_DIFF);
		memory.diff.from = (struct units_time){ .kind = UNITS_TIME_START, .ns = 50 };
		memory.diff.to = (struct units_time){ .kind = UNITS_TIME_START, .ns = 150 };
		memory.is_tree = true;
		memory.is_inverted = inverted;
		memory.reader.limit = 20;
		REQUIRE(answer(&memory, &build));
		out = out_buffer();
		memory_print_tree(&memory, &out);
		for (size_t i = 0; i < ARRAY_SIZE(want[0]); i++)
			if (!CHECK(strstr(out.text->str, want[inverted][i])))
				printf("# %s\n", out.text->str);
		out_done(&out);
		memory_done(&memory);
		build_done(&build);
	}
}

/* The tree's depth is limited. Deeper blocks count in its last level. */
static void test_deep_tree(void)
{
	for (unsigned inverted = 0; inverted < 2; inverted++) {
		struct memory memory;
		struct build build;
		struct out out;

		begin(&build);
		for (unsigned i = 6; i <= 400; i++)
			BUILD(&build, PROF_TABLE_STACK, N(i), N(i - 1), N(1 + i % 2));
		malloc_row(&build, 10, 1, 1, 77, 400);
		build_finish(&build);
		ask(&memory, MEMORY_LEAKS);
		memory.is_tree = true;
		memory.is_inverted = inverted;
		REQUIRE(answer(&memory, &build));
		out = out_buffer();
		json_init(&memory.json, &out);
		json_begin_object(&memory.json, NULL);
		memory_write_tree(&memory, &memory.json);
		json_end(&memory.json);
		CHECK(strstr(out.text->str, "\"self_bytes\":77,"));
		CHECK(memory_tree_is_cut(&memory));
		out_done(&out);
		memory_done(&memory);
		build_done(&build);
	}
}

/* With --through, allocations of c and b are charged to their caller a, or to the root if there is
 * no caller left. */
static void test_through(void)
{
	static const char *const patterns[] = { "^b$", "^c$", "^a$" };

	for (unsigned n = 0; n <= ARRAY_SIZE(patterns); n++) {
		static const char *const names[] = { "c", "c", "a", "a" };
		struct memory memory;
		struct build build;

		begin(&build);
		malloc_row(&build, 10, 1, 1, 20, 3);
		build_finish(&build);
		ask(&memory, MEMORY_LEAKS);
		memory.through = g_ptr_array_new();
		for (unsigned i = 0; i < n; i++)
			g_ptr_array_add(memory.through, (gpointer)patterns[i]);
		REQUIRE(answer(&memory, &build));
		CHECK_SUM(line_of(&memory, names[n])->self, 20, 1);
		CHECK_SUM(line_of(&memory, "c")->total, 20, 1);
		memory_done(&memory);
		build_done(&build);
	}
}

/* ---- heap marks ------------------------------------------------------------------------------ */

/* The blocks before a mark differ from those in the mark, so that a reader that reads the wrong
 * part gets other results. */
static void write_marks(struct build *build)
{
	begin(build);
	heap_row(build, 5, 1, PROF_HEAP_BEGIN, 0, 0, 0, 5);
	malloc_row(build, 10, 1, 1, 7, 1);
	build_next_epoch(build);
	add_names(build);
	heap_row(build, 100, 1, PROF_HEAP_CHECKPOINT, 5000, 2, 6000, 50);
	live_row(build, 100, 1, 10, 2000, 2, 60);
	live_row(build, 100, 2, 11, 3000, 3, 70);
	malloc_row(build, 100, 2, 11, 3000, 3); /* the mark includes rows of its own time */
	free_row(build, 100, 1, 9);
	malloc_row(build, 110, 1, 12, 100, 1);
	free_row(build, 120, 1, 10);
	build_next_epoch(build);
	add_names(build);
	heap_row(build, 200, 1, PROF_HEAP_CHECKPOINT, 1, 1, 5100, 110);
	live_row(build, 200, 1, 20, 1, 1, 150);
	malloc_row(build, 210, 1, 21, 10, 1);
	free_row(build, 220, 1, 20);
	build_next_epoch(build);
	add_names(build);
	heap_row(build, 300, 1, PROF_HEAP_END, 555, 1, 11, 210);
	live_row(build, 300, 1, 21, 555, 3, 210);
	build_finish(build);
}

static void test_marks(void)
{
	static const struct {
		uint64_t time;
		int bytes;
	} times[] = { { 99, 7 },  { 100, 5000 }, { 110, 5100 }, { 120, 3100 }, { 199, 3100 },
		      { 200, 1 }, { 210, 11 },   { 220, 10 },   { 299, 10 },   { 300, 555 } };
	struct memory memory;
	struct build build;

	write_marks(&build);
	for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
		REQUIRE(ask_at(&memory, times[i].time, &build));
		CHECK_NUMBER(memory.all.live_bytes, times[i].bytes);
		memory_done(&memory);
	}
	REQUIRE(ask_view(&memory, MEMORY_LEAKS, &build));
	CHECK_NUMBER(memory.all.leaked_bytes, 555);
	CHECK_SUM(line_of(&memory, "c")->self, 555, 1);
	memory_done(&memory);
	/* The mark allows a peak of up to 6000 bytes in the first part, but the rows of that part
	 * reach less; the second part reaches 5100. */
	REQUIRE(ask_view(&memory, MEMORY_PEAK, &build));
	CHECK_NUMBER(memory.all.peak_bytes, 5100);
	CHECK_INT(memory.all.peak_ns, 110);
	CHECK_SUM(line_of(&memory, "b")->self, 2000, 1);
	memory_done(&memory);
	/* A range is read from the mark before it; only rows in the range count. */
	ask(&memory, MEMORY_SUMMARY);
	memory.reader.range.from = (struct units_time){ .kind = UNITS_TIME_START, .ns = 105 };
	memory.reader.range.to = (struct units_time){ .kind = UNITS_TIME_START, .ns = 150 };
	REQUIRE(answer(&memory, &build));
	CHECK_NUMBER(memory.all.calls[PROF_ALLOC_MALLOC], 1);
	CHECK_NUMBER(memory.all.calls[MEMORY_CALL_FREE], 1);
	CHECK_NUMBER(memory.all.freed_bytes, 2000);
	CHECK_NUMBER(memory.all.live_bytes, 3100);
	CHECK_NUMBER(memory.all.peak_bytes, 5100);
	CHECK_NUMBER(memory.all.leaked_bytes, 0);
	memory_done(&memory);
	build_done(&build);
}

/* If a mark claims more blocks than it lists, it is ignored, and the rows before it are read. */
static void test_broken(void)
{
	struct memory memory;
	struct build build;

	begin(&build);
	heap_row(&build, 5, 1, PROF_HEAP_BEGIN, 0, 0, 0, 5);
	malloc_row(&build, 10, 1, 1, 7, 1);
	malloc_row(&build, 20, 1, 2, 8, 2);
	heap_row(&build, 100, 1, PROF_HEAP_CHECKPOINT, 15, 2, 15, 20);
	live_row(&build, 100, 1, 1, 7, 1, 10);
	malloc_row(&build, 110, 1, 3, 9, 2);
	heap_row(&build, 200, 1, PROF_HEAP_END, 24, 3, 24, 110);
	live_row(&build, 200, 1, 1, 7, 1, 10);
	build_finish(&build);
	REQUIRE(ask_view(&memory, MEMORY_LEAKS, &build));
	CHECK_NUMBER(memory.all.leaked_bytes, 24);
	CHECK_NUMBER(memory.all.leaked_blocks, 3);
	CHECK_SUM(line_of(&memory, "b")->self, 17, 2);
	memory_done(&memory);
	REQUIRE(ask_at(&memory, 105, &build));
	CHECK_NUMBER(memory.all.live_bytes, 15);
	memory_done(&memory);
	REQUIRE(ask_view(&memory, MEMORY_PEAK, &build));
	CHECK_NUMBER(memory.all.peak_bytes, 24);
	memory_done(&memory);
	build_done(&build);
}

/* ---- several processes ----------------------------------------------------------------------- */

/* The first process has 1000 bytes at 10, has 600 at 110, and ends at 130. The second one has 700
 * at 120, which is the time of the joint peak. */
static void test_peak_of_two(void)
{
	struct memory memory;
	struct build build;

	begin(&build);
	heap_row(&build, 5, 1, PROF_HEAP_BEGIN, 0, 0, 0, 5);
	malloc_row(&build, 10, 1, 1, 1000, 1);
	free_row(&build, 20, 1, 1);
	heap_row(&build, 100, 1, PROF_HEAP_CHECKPOINT, 0, 0, 1000, 10);
	heap_row(&build, 105, 2, PROF_HEAP_BEGIN, 0, 0, 0, 105);
	malloc_row(&build, 110, 1, 2, 600, 2);
	malloc_row(&build, 120, 3, 1, 700, 3);
	heap_row(&build, 130, 1, PROF_HEAP_END, 600, 1, 600, 110);
	live_row(&build, 130, 1, 2, 600, 2, 110);
	exit_row(&build, 130, 1);
	exit_row(&build, 130, 2);
	malloc_row(&build, 140, 3, 2, 500, 3);
	heap_row(&build, 200, 2, PROF_HEAP_END, 1200, 2, 1200, 140);
	live_row(&build, 200, 3, 1, 700, 3, 120);
	live_row(&build, 200, 3, 2, 500, 3, 140);
	build_finish(&build);
	REQUIRE(ask_view(&memory, MEMORY_PEAK, &build));
	CHECK_NUMBER(memory.all.peak_bytes, 1300);
	CHECK_INT(memory.all.peak_ns, 120);
	CHECK_SUM(line_of(&memory, "b")->self, 600, 1);
	CHECK_SUM(line_of(&memory, "c")->self, 700, 1);
	memory_done(&memory);
	REQUIRE(ask_view(&memory, MEMORY_SUMMARY, &build));
	CHECK_NUMBER(memory.all.peak_bytes, 1300);
	CHECK_INT(memory.all.peak_ns, 120);
	CHECK_NUMBER(line_of(&memory, "c")->counts->peak_bytes, 700);
	CHECK_NUMBER(memory.all.leaked_bytes, 1800);
	CHECK_NUMBER(memory.all.live_bytes, 1800);
	memory_done(&memory);
	/* Blocks of a process that ended are not live. */
	REQUIRE(ask_at(&memory, 125, &build));
	CHECK_NUMBER(memory.all.live_bytes, 1300);
	memory_done(&memory);
	REQUIRE(ask_at(&memory, 135, &build));
	CHECK_NUMBER(memory.all.live_bytes, 700);
	memory_done(&memory);
	ask(&memory, MEMORY_PEAK);
	memory.reader.pids = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	g_array_append_val(memory.reader.pids, (uint32_t){ 100 });
	REQUIRE(answer(&memory, &build));
	CHECK_NUMBER(memory.all.peak_bytes, 1000);
	CHECK_INT(memory.all.peak_ns, 10);
	memory_done(&memory);
	build_done(&build);
}

#define CHILDREN 100
#define CHILD_ROWS 20
#define CHILD_TIME(child) (100 + 100 * (uint64_t)(child))

/* Writes one of many processes, in its own epoch: it repeatedly allocates and frees 10 bytes, has
 * at most 20, and ends with 10. */
static void add_child(struct build *build, unsigned child)
{
	uint64_t time = CHILD_TIME(child);

	BUILD(build, PROF_TABLE_PROCESS, N(9), N(1000 + child), N(1), N(5), N(0),
	      PROF_BYTES(NULL, 0), N(0), N(0), N(0), PROF_BYTES(NULL, 0));
	BUILD(build, PROF_TABLE_THREAD, N(9), N(9), N(1000 + child), N(5), N(8),
	      PROF_BYTES(NULL, 0));
	heap_row(build, time, 9, PROF_HEAP_BEGIN, 0, 0, 0, time);
	malloc_row(build, time + 1, 9, 1, 10, 1);
	for (unsigned i = 2; i <= CHILD_ROWS / 2; i++) {
		malloc_row(build, time + 2 * i, 9, i, 10, 2);
		free_row(build, time + 2 * i + 1, 9, i);
	}
	heap_row(build, time + 90, 9, PROF_HEAP_END, 10, 1, 20, time + 4);
	live_row(build, time + 90, 9, 1, 10, 1, time + 1);
	exit_row(build, time + 90, 9);
}

/* The parent has 1000 bytes, but frees them before its children run, one after another. */
static void write_children(struct build *build, bool has_parent)
{
	begin(build);
	if (has_parent) {
		heap_row(build, 5, 1, PROF_HEAP_BEGIN, 0, 0, 0, 5);
		malloc_row(build, 10, 1, 1, 1000, 3);
		free_row(build, 15, 1, 1);
	}
	for (unsigned i = 0; i < CHILDREN; i++) {
		if (i > 0) {
			build_next_epoch(build);
			add_names(build);
		}
		add_child(build, i);
	}
	if (has_parent)
		heap_row(build, CHILD_TIME(CHILDREN), 1, PROF_HEAP_END, 0, 0, 1000, 10);
	build_finish(build);
}

/* Processes that ended before the requested time need not be read. */
static void test_ended(void)
{
	struct memory memory;
	struct build build;

	write_children(&build, false);
	REQUIRE(ask_at(&memory, CHILD_TIME(CHILDREN / 2) + 4, &build));
	CHECK_NUMBER(memory.all.live_bytes, 20);
	CHECK(memory.heaps.n_rows < 5 * CHILD_ROWS);
	memory_done(&memory);
	REQUIRE(ask_at(&memory, CHILD_TIME(CHILDREN + 1), &build));
	CHECK_NUMBER(memory.all.live_bytes, 0);
	CHECK(memory.heaps.n_rows < 5 * CHILD_ROWS);
	memory_done(&memory);
	ask(&memory, MEMORY_SUMMARY);
	memory.reader.range.from =
		(struct units_time){ .kind = UNITS_TIME_START, .ns = CHILD_TIME(CHILDREN - 1) };
	REQUIRE(answer(&memory, &build));
	CHECK_NUMBER(memory.all.live_bytes, 10);
	CHECK_NUMBER(memory.all.peak_bytes, 20);
	memory_done(&memory);
	build_done(&build);
}

/* The heap marks allow the peak to be in any child, because the parent's earlier maximum might
 * still be live while the child runs. */
static void test_many_processes(void)
{
	struct memory memory;
	struct build build;

	write_children(&build, true);
	REQUIRE(ask_view(&memory, MEMORY_PEAK, &build));
	CHECK_NUMBER(memory.all.peak_bytes, 1000);
	CHECK_INT(memory.all.peak_ns, 10);
	CHECK_SUM(line_of(&memory, "c")->self, 1000, 1);
	CHECK(memory.heaps.n_rows < 4 * CHILDREN * CHILD_ROWS);
	memory_done(&memory);
	build_done(&build);
}

/* The sum is 100 bytes from 10 to 65, and again from 80 on; the first is the peak. The marks would
 * allow up to 200 bytes between 55 and 100, so that stretch is searched first. */
static void test_equal_peaks(void)
{
	struct memory memory;
	struct build build;

	begin(&build);
	heap_row(&build, 5, 1, PROF_HEAP_BEGIN, 0, 0, 0, 5);
	malloc_row(&build, 10, 1, 1, 100, 1);
	heap_row(&build, 50, 1, PROF_HEAP_CHECKPOINT, 100, 1, 100, 10);
	live_row(&build, 50, 1, 1, 100, 1, 10);
	heap_row(&build, 55, 2, PROF_HEAP_BEGIN, 0, 0, 0, 55);
	free_row(&build, 65, 1, 1);
	malloc_row(&build, 70, 3, 1, 50, 2);
	malloc_row(&build, 80, 3, 2, 50, 3);
	heap_row(&build, 100, 1, PROF_HEAP_END, 0, 0, 100, 50);
	heap_row(&build, 100, 2, PROF_HEAP_END, 100, 2, 100, 80);
	live_row(&build, 100, 3, 1, 50, 2, 70);
	live_row(&build, 100, 3, 2, 50, 3, 80);
	build_finish(&build);
	REQUIRE(ask_view(&memory, MEMORY_PEAK, &build));
	CHECK_NUMBER(memory.all.peak_bytes, 100);
	CHECK_INT(memory.all.peak_ns, 10);
	CHECK_SUM(line_of(&memory, "a")->self, 100, 1);
	memory_done(&memory);
	build_done(&build);
}

static void ask_range(struct memory *memory, enum memory_view view, uint64_t from, uint64_t to)
{
	ask(memory, view);
	memory->reader.range.from = (struct units_time){ .kind = UNITS_TIME_START, .ns = from };
	memory->reader.range.to = (struct units_time){ .kind = UNITS_TIME_START, .ns = to };
}

/* Without blocks, the peak has no time. */
static void test_no_peak(void)
{
	static const enum memory_view views[] = { MEMORY_PEAK, MEMORY_SUMMARY };
	struct memory memory;
	struct build build;

	write_one(&build, true);
	for (size_t i = 0; i < ARRAY_SIZE(views); i++) {
		ask_range(&memory, views[i], 0, 9);
		REQUIRE(answer(&memory, &build));
		CHECK_NUMBER(memory.all.peak_bytes, 0);
		CHECK(!memory.all.has_peak_time);
		memory_done(&memory);
		ask_range(&memory, views[i], 0, 10);
		REQUIRE(answer(&memory, &build));
		CHECK_NUMBER(memory.all.peak_bytes, 100);
		CHECK(memory.all.has_peak_time);
		memory_done(&memory);
	}
	build_done(&build);
}

static void test_excluded(void)
{
	struct memory memory;
	struct build build;
	uint32_t process = 0;

	begin(&build);
	heap_row(&build, 5, 2, PROF_HEAP_STATIC, 0, 0, 0, 5);
	build_finish(&build);
	for (unsigned view = 0; view <= MEMORY_AT; view++) {
		REQUIRE(ask_view(&memory, (enum memory_view)view, &build));
		for (uint32_t i = 0; i < memory.processes->len; i++)
			if (g_array_index(memory.processes, struct memory_counts, i).is_there)
				process = i;
		REQUIRE(process > NAMES_LOST);
		CHECK_INT(names_process_at(memory.reader.capture->names, process)->pid, 200);
		CHECK_STR(memory_excluded(&memory, process), "static");
		memory_done(&memory);
	}
	build_done(&build);
}

/* ---- invalid input --------------------------------------------------------------------------- */

/* The time to describe a process does not depend on the number of processes. */
static void test_described_processes(void)
{
	enum { MANY = 40000 };
	struct memory memory;
	struct build build;
	clock_t took;
	unsigned right = 0;

	build_begin(&build);
	build_text(&build, 1, "main");
	build_text(&build, 2, "other");
	for (uint32_t i = 1; i <= MANY; i++) {
		BUILD(&build, PROF_TABLE_PROCESS, N(i), N(10 * i), N(1), N(5), N(0),
		      PROF_BYTES(NULL, 0), N(0), N(0), N(0), PROF_BYTES(NULL, 0));
		for (unsigned t = 0; t < 3; t++) {
			BUILD(&build, PROF_TABLE_THREAD, N(3 * i + t - 2), N(i), N(10 * i + t - 1),
			      N(5), N(t == 1 ? 1 : 2), PROF_BYTES(NULL, 0));
			exit_row(&build, 20, 3 * i + t - 2);
		}
		heap_row(&build, 10, i, i & 1 ? PROF_HEAP_STATIC : PROF_HEAP_END, 0, 0, 0, 0);
	}
	build_finish(&build);
	REQUIRE(ask_view(&memory, MEMORY_LEAKS, &build));
	CHECK_INT(memory.processes->len, NAMES_LOST + 1 + MANY);
	took = clock();
	for (uint32_t i = NAMES_LOST + 1; i < memory.processes->len; i++) {
		const char *excluded = memory_excluded(&memory, i);
		uint64_t pid = names_process_at(memory.reader.capture->names, i)->pid;

		right += g_strcmp0(memory_comm(&memory, i), "main") == 0 &&
			 (pid / 10 & 1 ? g_strcmp0(excluded, "static") == 0 : !excluded);
	}
	CHECK_INT(right, MANY);
	CHECK((double)(clock() - took) < 0.5 * CLOCKS_PER_SEC);
	CHECK_STR(memory_comm(&memory, NAMES_LOST), NAMES_LOST_TEXT);
	memory_done(&memory);
	build_done(&build);
}

/* Block 2 is allocated and freed, and the older block 1 is freed, all at one time. The older block
 * counts as freed first, so the peak is its size. */
static void test_ties(void)
{
	struct memory memory;
	struct build build;

	begin(&build);
	malloc_row(&build, 10, 1, 1, 100, 1);
	malloc_row(&build, 20, 1, 2, 50, 2);
	free_row(&build, 20, 1, 1);
	free_row(&build, 20, 1, 2);
	build_finish(&build);
	REQUIRE(ask_view(&memory, MEMORY_SUMMARY, &build));
	CHECK_NUMBER(memory.all.live_bytes, 0);
	CHECK_NUMBER(memory.all.peak_bytes, 100);
	CHECK_INT(memory.unknown, 0);
	memory_done(&memory);
	build_done(&build);
}

/* Two allocations and two frees have the same time. The first block is freed before or after the
 * second one was allocated. */
static void ask_order(uint64_t younger, double temporary)
{
	struct memory memory;
	struct build build;

	begin(&build);
	malloc_row(&build, 20, 1, 1, 100, 1);
	malloc_row(&build, 20, 1, 2, 50, 2);
	BUILD(&build, PROF_TABLE_FREE, N(BUILD_START + 20), N(1), N(1), PROF_NULL,
	      N(PROF_FREE_FREE), N(younger));
	free_row(&build, 20, 1, 2);
	build_finish(&build);
	ask(&memory, MEMORY_SUMMARY);
	memory.threshold = 0;
	REQUIRE(answer(&memory, &build));
	CHECK_NUMBER(memory.all.temporary, temporary);
	CHECK_NUMBER(memory.all.live_bytes, 0);
	CHECK_INT(memory.unknown, 0);
	memory_done(&memory);
	build_done(&build);
}

static void test_order(void)
{
	ask_order(0, 2);
	ask_order(1, 1);
	/* whatever the file says, no block ends before it begins */
	ask_order(UINT64_MAX, 1);
}

static void test_sampled(void)
{
	struct memory memory;
	struct build build;
	double chance = 1 - exp(-100.0 / 1000);

	begin(&build);
	build_metadata(&build, "memory.sample_bytes", "1000");
	malloc_row(&build, 10, 1, 1, 100, 3);
	malloc_row(&build, 20, 1, 2, 1000000, 2);
	free_row(&build, 30, 1, 2);
	malloc_row(&build, 40, 1, 3, 1000000, 2);
	end_row(&build, 50, 1, 3, PROF_FREE_REALLOC);
	/* mappings are not sampled, so each counts as one */
	alloc_row(&build, 60, 1, PROF_ALLOC_MMAP, 4, 10, 2, 0);
	end_row(&build, 70, 1, 4, PROF_FREE_MUNMAP);
	alloc_row(&build, 80, 1, PROF_ALLOC_BRK, 5, 1, 2, 0);
	build_finish(&build);
	REQUIRE(ask_view(&memory, MEMORY_SUMMARY, &build));
	CHECK(fabs(memory.all.allocations - (1 / chance + 4)) < 1e-6);
	CHECK_NUMBER(memory.all.calls[PROF_ALLOC_MMAP], 1);
	CHECK_NUMBER(memory.all.calls[MEMORY_CALL_FREE + PROF_FREE_MUNMAP], 1);
	CHECK_NUMBER(memory.all.calls[PROF_ALLOC_REALLOC], 0);
	CHECK(fabs(memory.all.calls[PROF_ALLOC_MALLOC] - (1 / chance + 2)) < 1e-6);
	CHECK(fabs(memory.all.leaked_bytes - (100 / chance + 1)) < 1e-6);
	CHECK(fabs(memory.all.live_bytes - (100 / chance + 1)) < 1e-6);
	CHECK_NUMBER(memory.all.calls[MEMORY_CALL_FREE], 1);
	CHECK(!(memory.has_all & MEMORY_HAS_TEMPORARY));
	CHECK(fabs(line_of(&memory, "c")->self.bytes - 100 / chance) < 1e-6);
	memory_done(&memory);
	REQUIRE(ask_view(&memory, MEMORY_PEAK, &build));
	CHECK(fabs(memory.all.peak_bytes - (100 / chance + 1000000)) < 1e-3);
	memory_done(&memory);
	build_done(&build);
}

static void test_loss(void)
{
	struct memory memory;
	struct build build;

	begin(&build);
	malloc_row(&build, 10, 1, 1, 100, 3);
	BUILD(&build, PROF_TABLE_LOSS, N(BUILD_START + 10), N(BUILD_START + 20),
	      PROF_BYTES("collector/100", 13), N(PROF_LOSS_RING_FULL), N(12), N(0));
	BUILD(&build, PROF_TABLE_LOSS, N(BUILD_START + 10), N(BUILD_START + 20),
	      PROF_BYTES("cpu0", 4), N(PROF_LOSS_PERF_RING), N(5), N(0));
	build_finish(&build);
	REQUIRE(ask_view(&memory, MEMORY_LEAKS, &build));
	CHECK(memory.is_incomplete);
	CHECK_INT(memory.lost, 12);
	memory_done(&memory);
	REQUIRE(ask_at(&memory, 5, &build));
	CHECK(!memory.is_incomplete);
	memory_done(&memory);
	build_done(&build);
}

/* Losses before a range may be allocations of blocks that are live in it. Losses after it may be
 * frees of blocks that are shown as leaked. */
static void test_loss_outside(void)
{
	static const struct {
		enum memory_view view;
		unsigned from, to;
		bool is_told;
	} cases[] = {
		{ MEMORY_SUMMARY, 0, 5, true },   { MEMORY_SUMMARY, 50, 60, true },
		{ MEMORY_SIZES, 0, 5, true },     { MEMORY_THREADS, 50, 60, true },
		{ MEMORY_LEAKS, 0, 5, true },     { MEMORY_LEAKS, 50, 60, false },
		{ MEMORY_PEAK, 0, 5, false },     { MEMORY_PEAK, 50, 60, true },
		{ MEMORY_LIFETIMES, 0, 5, true }, { MEMORY_CROSS_THREAD, 50, 60, true },
	};
	struct memory memory;
	struct build build;

	begin(&build);
	malloc_row(&build, 1, 1, 1, 100, 3);
	BUILD(&build, PROF_TABLE_LOSS, N(BUILD_START + 10), N(BUILD_START + 20),
	      PROF_BYTES("collector/100", 13), N(PROF_LOSS_RING_FULL), N(12), N(0));
	malloc_row(&build, 55, 1, 2, 100, 3);
	build_finish(&build);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		ask_range(&memory, cases[i].view, cases[i].from, cases[i].to);
		REQUIRE(answer(&memory, &build));
		CHECK(memory.is_incomplete == cases[i].is_told);
		CHECK_INT(memory.lost, cases[i].is_told ? 12 : 0);
		memory_done(&memory);
	}
	build_done(&build);
}

/* The file ends within the second chunk of frees. The blocks that this chunk frees seem live;
 * results for earlier times are complete. */
static void test_truncated(void)
{
	struct memory memory;
	struct build build;
	struct stat status;

	begin(&build);
	malloc_row(&build, 10, 1, 1, 100, 3);
	free_row(&build, 20, 1, 1);
	build_next_epoch(&build);
	add_names(&build);
	for (unsigned i = 2; i <= 40; i++)
		malloc_row(&build, 10 * i + 1, 1, i, 100, 3);
	for (unsigned i = 2; i <= 40; i++)
		free_row(&build, 10 * i + 2, 1, i);
	build_next_epoch(&build);
	prof_writer_free(build.writer);
	build.writer = NULL;
	REQUIRE(fstat(build.fd, &status) == 0 && ftruncate(build.fd, status.st_size - 16) == 0);
	REQUIRE(ask_view(&memory, MEMORY_LEAKS, &build));
	CHECK_NUMBER(memory.all.leaked_blocks, 39);
	CHECK(memory.is_incomplete);
	CHECK_INT(memory.lost, 39);
	memory_done(&memory);
	REQUIRE(ask_at(&memory, 15, &build));
	CHECK_NUMBER(memory.all.live_bytes, 100);
	CHECK(!memory.is_incomplete);
	memory_done(&memory);
	REQUIRE(ask_at(&memory, 35, &build));
	CHECK(memory.is_incomplete);
	memory_done(&memory);
	build_done(&build);
}

/* With any numbers, each view has a result, and no sum is out of bounds. */
static void test_hostile(void)
{
	static const uint64_t numbers[] = {
		0, 1, 2, 3, 1u << 20, UINT64_MAX / 2, UINT64_MAX - 1, UINT64_MAX
	};
	struct memory memory;
	struct build build;
	uint32_t random = 1;

	begin(&build);
	for (unsigned i = 0; i < 3000; i++) {
		uint64_t pick[6];

		for (size_t p = 0; p < ARRAY_SIZE(pick); p++) {
			random = random * 1103515245 + 12345;
			pick[p] = numbers[random >> 16 & 7];
		}
		if (i % 100 == 0)
			BUILD(&build, PROF_TABLE_HEAP, N(i), N(pick[0]), N(pick[1] & 15),
			      N(pick[2]), N(pick[3]), N(pick[4]), N(pick[5]), N(pick[3]));
		BUILD(&build, PROF_TABLE_ALLOC, N(i), N(pick[0]), N(pick[1] & 63), N(pick[2]),
		      N(pick[3]), N(pick[4]), N(pick[5]), N(pick[1]));
		BUILD(&build, PROF_TABLE_FREE, N(i), N(pick[1]), N(pick[3]),
		      i & 1 ? PROF_NULL : N(pick[4]), N(pick[2] & 63), N(pick[5]));
		BUILD(&build, PROF_TABLE_LIVE, N(i), N(pick[0]), N(pick[1] & 63), N(pick[2]),
		      N(pick[3]), N(pick[4]), N(pick[5]), N(pick[0]));
	}
	build_finish(&build);
	for (unsigned view = 0; view < MEMORY_VIEWS; view++) {
		REQUIRE(ask_view(&memory, (enum memory_view)view, &build));
		CHECK(memory_integer(memory.all.live_bytes) <= UINT64_MAX);
		memory_done(&memory);
	}
	REQUIRE(ask_at(&memory, 1, &build));
	memory_done(&memory);
	build_done(&build);
}

/* A block is freed before it is allocated, a number is used twice, and a block is freed twice. */
static void test_inconsistent(void)
{
	struct memory memory;
	struct build build;

	begin(&build);
	free_row(&build, 5, 1, 9);
	malloc_row(&build, 10, 1, 9, 100, 1);
	malloc_row(&build, 20, 1, 9, 50, 2);
	malloc_row(&build, 30, 1, 10, 25, 2);
	free_row(&build, 40, 1, 10);
	free_row(&build, 50, 1, 10);
	build_finish(&build);
	REQUIRE(ask_view(&memory, MEMORY_SUMMARY, &build));
	CHECK_NUMBER(memory.all.calls[MEMORY_CALL_FREE], 3);
	CHECK_INT(memory.unknown, 2);
	CHECK_NUMBER(memory.all.live_bytes, 50);
	CHECK_NUMBER(memory.all.leaked_bytes, 50);
	CHECK_NUMBER(memory.all.allocated_bytes, 175);
	CHECK_NUMBER(memory.all.freed_bytes, 125);
	memory_done(&memory);
	build_done(&build);
}

/* Live blocks of one recording do not appear in the next one, whose numbers start again at 1. */
static void test_segments(void)
{
	struct memory memory;
	struct build build;

	begin(&build);
	heap_row(&build, 5, 1, PROF_HEAP_BEGIN, 0, 0, 0, 5);
	malloc_row(&build, 10, 1, 1, 100, 1);
	build_next_segment(&build, BUILD_START + 1000, 1);
	add_names(&build);
	heap_row(&build, 1005, 1, PROF_HEAP_BEGIN, 0, 0, 0, 1005);
	malloc_row(&build, 1010, 1, 1, 7, 2);
	build_finish(&build);
	REQUIRE(ask_view(&memory, MEMORY_LEAKS, &build));
	CHECK_NUMBER(memory.all.leaked_bytes, 107);
	memory_done(&memory);
	REQUIRE(ask_view(&memory, MEMORY_SUMMARY, &build));
	CHECK_NUMBER(memory.all.leaked_bytes, 107);
	CHECK_NUMBER(memory.all.peak_bytes, 100);
	memory_done(&memory);
	REQUIRE(ask_view(&memory, MEMORY_PEAK, &build));
	CHECK_NUMBER(memory.all.peak_bytes, 100);
	memory_done(&memory);
	REQUIRE(ask_at(&memory, 500, &build));
	CHECK_NUMBER(memory.all.live_bytes, 100);
	memory_done(&memory);
	REQUIRE(ask_at(&memory, 1500, &build));
	CHECK_NUMBER(memory.all.live_bytes, 7);
	memory_done(&memory);
	build_done(&build);
}

static void begin_sampled(struct build *build, unsigned sampled)
{
	char number[16];

	snprintf(number, sizeof(number), "%u", sampled);
	build_metadata(build, "memory.mode", sampled ? "sample" : "all");
	if (sampled)
		build_metadata(build, MEMORY_SAMPLE_BYTES, number);
}

static double weight(double size, double sampled)
{
	return sampled > 0 ? 1 / (1 - exp(-size / sampled)) : 1;
}

/* A block has the weight that its own recording's settings give it. */
static void check_sampled_segments(unsigned first, unsigned second)
{
	double lived = 100 * weight(100, first), lives = 70 * weight(70, second);
	struct memory memory;
	struct build build;

	begin(&build);
	begin_sampled(&build, first);
	heap_row(&build, 5, 1, PROF_HEAP_BEGIN, 0, 0, 0, 5);
	malloc_row(&build, 10, 1, 1, 100, 1);
	build_next_segment(&build, BUILD_START + 1000, 1);
	add_names(&build);
	begin_sampled(&build, second);
	heap_row(&build, 1005, 1, PROF_HEAP_BEGIN, 0, 0, 0, 1005);
	malloc_row(&build, 1010, 1, 1, 70, 1);
	malloc_row(&build, 1020, 1, 2, 70, 2);
	free_row(&build, 1030, 1, 2);
	build_finish(&build);
	REQUIRE(ask_view(&memory, MEMORY_SUMMARY, &build));
	CHECK(fabs(memory.all.leaked_bytes - (lived + lives)) < 1e-6);
	CHECK(fabs(memory.all.allocated_bytes - (lived + 2 * lives)) < 1e-6);
	CHECK(fabs(memory.all.freed_bytes - lives) < 1e-6);
	CHECK(fabs(memory.all.calls[MEMORY_CALL_FREE] - weight(70, second)) < 1e-6);
	CHECK(fabs(memory.all.peak_bytes - MAX_OF(lived, 2 * lives)) < 1e-6);
	CHECK_NUMBER(memory.sampled_bytes, MAX_OF(first, second));
	CHECK(memory.is_sampled_alike == (first == second));
	memory_done(&memory);
	REQUIRE(ask_view(&memory, MEMORY_PEAK, &build));
	CHECK(fabs(memory.all.peak_bytes - MAX_OF(lived, 2 * lives)) < 1e-6);
	memory_done(&memory);
	REQUIRE(ask_at(&memory, 500, &build));
	CHECK(fabs(memory.all.live_bytes - lived) < 1e-6);
	memory_done(&memory);
	REQUIRE(ask_at(&memory, 1500, &build));
	CHECK(fabs(memory.all.live_bytes - lives) < 1e-6);
	memory_done(&memory);
	build_done(&build);
}

static void test_sampled_segments(void)
{
	static const unsigned sampled[] = { 0, 64, 1000 };

	for (size_t i = 0; i < ARRAY_SIZE(sampled); i++)
		for (size_t j = 0; j < ARRAY_SIZE(sampled); j++)
			check_sampled_segments(sampled[i], sampled[j]);
}

/* A realloc's row has a prior block only if both blocks were sampled, each independently. All
 * mappings are recorded. */
static void test_sampled_reallocs(void)
{
	double stands_for = weight(100, 1000) * weight(300, 1000);
	struct memory memory;
	struct build build;

	begin(&build);
	begin_sampled(&build, 1000);
	malloc_row(&build, 10, 1, 1, 100, 3);
	alloc_row(&build, 20, 1, PROF_ALLOC_REALLOC, 2, 300, 2, 1);
	alloc_row(&build, 30, 1, PROF_ALLOC_MMAP, 3, 4096, 2, 0);
	alloc_row(&build, 40, 1, PROF_ALLOC_MREMAP, 4, 8192, 3, 3);
	build_finish(&build);
	REQUIRE(ask_view(&memory, MEMORY_REALLOCS, &build));
	CHECK(fabs(memory.all.reallocs - (stands_for + 1)) < 1e-6);
	CHECK(fabs(memory.all.grown_bytes - (200 * stands_for + 4096)) < 1e-6);
	CHECK(fabs(memory.all.copied_bytes - (100 * stands_for + 4096)) < 1e-6);
	CHECK(fabs(line_of(&memory, "b")->counts->reallocs - stands_for) < 1e-6);
	CHECK(fabs(line_of(&memory, "b")->self.bytes - 300 * stands_for) < 1e-6);
	CHECK_NUMBER(line_of(&memory, "c")->counts->reallocs, 1);
	CHECK(fabs(memory.all.freed_bytes - (100 * weight(100, 1000) + 4096)) < 1e-6);
	memory_done(&memory);
	build_done(&build);
}

/* ---- suppressions ---------------------------------------------------------------------------- */

static void test_patterns(void)
{
	static const struct {
		const char *pattern, *text;
		bool matches;
	} cases[] = {
		{ "foo", "foo", true },
		{ "foo", "a foo b", true },
		{ "foo", "fo", false },
		{ "^foo", "foo b", true },
		{ "^foo", "a foo", false },
		{ "foo$", "a foo", true },
		{ "foo$", "foo b", false },
		{ "^foo$", "foo", true },
		{ "^foo$", "foofoo", false },
		{ "f*o", "fxxo", true },
		{ "^f*o$", "fxxob", false },
		{ "*", "", true },
		{ "^a*b*c$", "a1b2c", true },
		{ "^a*b*c$", "ab", false },
		{ "lib*.so", "/lib/libx.so.1", true },
		{ "", "x", false },
		{ "foo", "", false },
		{ "^*foo$", "barfoo", true },
	};
	char stars[2001], text[2001];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		if (!CHECK(suppression_matches(cases[i].pattern, cases[i].text) ==
			   cases[i].matches))
			printf("# %s in %s\n", cases[i].pattern, cases[i].text);
	CHECK(!suppression_matches("foo", NULL));
	for (unsigned i = 0; i < 2000; i++) {
		stars[i] = i & 1 ? '*' : 'a';
		text[i] = 'a';
	}
	stars[1998] = 'b';
	stars[1999] = stars[2000] = text[2000] = '\0';
	CHECK(!suppression_matches(stars, text));
}

/* Whether a block belongs to the runtime depends only on the functions between the allocation and
 * the program's innermost function, not on the loader or setlocale() calling the program. */
static void test_runtime_pools(void)
{
	enum { OWN, LIBC, LOADER, CPLUSPLUS, PYTHON, N_IMAGES };
	static const char *const images[] = { "/bin/own", "/lib/libc.so.6",
					      "/lib/ld-linux-x86-64.so.2", "/lib/libstdc++.so.6",
					      "/usr/bin/python3.11" };
	static const struct {
		unsigned image;
		const char *name;
	} functions[] = { { OWN, "main" },
			  { LIBC, "_IO_file_doallocate" },
			  { LIBC, "setlocale" },
			  { LIBC, "strdup.part.0" },
			  { LOADER, "call_init" },
			  { LOADER, "allocate_dtv" },
			  { LOADER, "other" },
			  { CPLUSPLUS, "init" },
			  { LIBC, "operator new(unsigned long)" },
			  { PYTHON, "PyObject_Malloc" },
			  { PYTHON, "new_arena.lto_priv.0" },
			  { PYTHON, "list_resize" },
			  { OWN, "new_arena" } };
	/* functions from the root down, by index + 1 */
	static const struct {
		unsigned stack[4];
		enum runtime_pool pool;
	} cases[] = {
		{ { 1 }, RUNTIME_POOLS },
		{ { 1, 2 }, RUNTIME_POOL_STDIO },
		{ { 1, 3, 4 }, RUNTIME_POOL_LOCALE },
		{ { 1, 4 }, RUNTIME_POOLS },
		{ { 3, 1, 4 }, RUNTIME_POOLS },
		{ { 5, 8, 9 }, RUNTIME_POOL_EXCEPTIONS },
		{ { 5, 1, 8, 9 }, RUNTIME_POOLS },
		{ { 1, 8, 9 }, RUNTIME_POOLS },
		{ { 1, 6 }, RUNTIME_POOL_DTV },
		{ { 1, 7 }, RUNTIME_POOL_LOADER },
		{ { 8 }, RUNTIME_POOLS },
		{ { 1, 10, 11, 9 }, RUNTIME_POOL_PYTHON },
		{ { 11, 1, 10 }, RUNTIME_POOLS },
		{ { 10, 12 }, RUNTIME_POOLS },
		{ { 1, 13 }, RUNTIME_POOLS },
	};
	struct build build;

	build_begin(&build);
	build_text(&build, 1, "comm");
	for (unsigned i = 0; i < N_IMAGES; i++) {
		build_text(&build, 10 + i, images[i]);
		BUILD(&build, PROF_TABLE_IMAGE, N(1 + i), N(10 + i), PROF_BYTES(NULL, 0), N(10),
		      N(1), N(5), N(PROF_IMAGE_FILE), N(5), N(0));
	}
	for (unsigned i = 0; i < ARRAY_SIZE(functions); i++) {
		build_text(&build, 20 + i, functions[i].name);
		BUILD(&build, PROF_TABLE_SYMBOL, N(1 + i), N(1 + functions[i].image),
		      N(0x100 * (1 + i)), N(0x100), N(20 + i), N(0), N(0), N(0), N(0));
		BUILD(&build, PROF_TABLE_FRAME, N(1 + i), N(1 + functions[i].image),
		      N(0x100 * (1 + i)), N(PROF_FRAME_EXACT));
	}
	BUILD(&build, PROF_TABLE_PROCESS, N(1), N(100), N(1), N(5), N(0), PROF_BYTES(NULL, 0), N(0),
	      N(0), N(0), PROF_BYTES(NULL, 0));
	BUILD(&build, PROF_TABLE_THREAD, N(1), N(1), N(101), N(5), N(1), PROF_BYTES(NULL, 0));
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		unsigned parent = 0, id = 4 * i;

		for (unsigned depth = 0; depth < 4 && cases[i].stack[depth]; depth++) {
			BUILD(&build, PROF_TABLE_STACK, N(++id), N(parent),
			      N(cases[i].stack[depth]));
			parent = id;
		}
		malloc_row(&build, 10 + i, 1, 1 + i, UINT64_C(1) << i, parent);
	}
	build_finish(&build);
	for (unsigned hides = 0; hides < 2; hides++) {
		uint64_t pools[RUNTIME_POOLS + 1] = { 0 }, all = 0;
		struct memory memory;

		for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
			pools[cases[i].pool] += UINT64_C(1) << i;
			all += UINT64_C(1) << i;
		}
		ask(&memory, MEMORY_LEAKS);
		memory.hides_runtime = hides;
		REQUIRE(answer(&memory, &build));
		for (unsigned i = 0; i < RUNTIME_POOLS; i++)
			CHECK_NUMBER(memory.suppressions.pools[i].bytes, pools[i]);
		CHECK_NUMBER(memory.all.leaked_bytes, hides ? pools[RUNTIME_POOLS] : all);
		memory_done(&memory);
		ask(&memory, MEMORY_SUMMARY);
		memory.no_suppressions = memory.hides_runtime = true;
		REQUIRE(answer(&memory, &build));
		CHECK_NUMBER(memory.all.leaked_bytes, all);
		memory_done(&memory);
	}
	build_done(&build);
}

static void test_suppressions(void)
{
	static const char rules[] = "# known\n\n  leak:^c$  \nleak:nothing*here\n";
	g_autofree char *file = NULL;
	int fd = g_file_open_tmp("suppressions-XXXXXX", &file, NULL);
	GError *error = NULL;
	struct memory memory;
	struct build build;

	REQUIRE(fd >= 0 && write(fd, rules, strlen(rules)) == (ssize_t)strlen(rules));
	begin(&build);
	malloc_row(&build, 10, 1, 1, 100, 3);
	malloc_row(&build, 20, 1, 2, 50, 2);
	malloc_row(&build, 30, 1, 3, 25, 3);
	build_finish(&build);
	ask(&memory, MEMORY_LEAKS);
	memory.suppression_files = g_ptr_array_new();
	g_ptr_array_add(memory.suppression_files, file);
	REQUIRE(answer(&memory, &build));
	CHECK_NUMBER(memory.all.leaked_bytes, 50);
	CHECK_SUM(line_of(&memory, "c")->self, 0, 0);
	CHECK_INT(memory.suppressions.all->len, 2);
	CHECK_NUMBER(g_array_index(memory.suppressions.all, struct suppression, 0).bytes, 125);
	CHECK_NUMBER(g_array_index(memory.suppressions.all, struct suppression, 1).blocks, 0);
	memory_done(&memory);
	REQUIRE(write(fd, "race:x\n", 7) == 7);
	ask(&memory, MEMORY_LEAKS);
	memory.suppression_files = g_ptr_array_new();
	g_ptr_array_add(memory.suppression_files, file);
	CHECK(!memory_run(&memory, build.path, &error));
	CHECK(error && strstr(error->message, "line 5"));
	g_clear_error(&error);
	memory_done(&memory);
	close(fd);
	unlink(file);
	build_done(&build);
}

int main(void)
{
	RUN(test_summary);
	RUN(test_by_blocks);
	RUN(test_leaks);
	RUN(test_peak);
	RUN(test_at);
	RUN(test_sizes);
	RUN(test_all_sizes);
	RUN(test_lifetimes);
	RUN(test_threads);
	RUN(test_thread_passes);
	RUN(test_cross_thread);
	RUN(test_reallocs);
	RUN(test_rests);
	RUN(test_temporary);
	RUN(test_tree);
	RUN(test_tree_of_differences);
	RUN(test_deep_tree);
	RUN(test_through);
	RUN(test_marks);
	RUN(test_broken);
	RUN(test_peak_of_two);
	RUN(test_ended);
	RUN(test_many_processes);
	RUN(test_equal_peaks);
	RUN(test_no_peak);
	RUN(test_excluded);
	RUN(test_described_processes);
	RUN(test_ties);
	RUN(test_order);
	RUN(test_sampled);
	RUN(test_loss);
	RUN(test_loss_outside);
	RUN(test_truncated);
	RUN(test_hostile);
	RUN(test_inconsistent);
	RUN(test_segments);
	RUN(test_sampled_segments);
	RUN(test_sampled_reallocs);
	RUN(test_patterns);
	RUN(test_runtime_pools);
	RUN(test_suppressions);
	return test_end();
}
