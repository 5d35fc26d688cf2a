/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Live views: samples of a recording's last seconds, by function, process, thread and caller
 *
 * Promises:
 * - a sample counts in its second, and seconds before the window do not count [window]
 * - functions and threads keep their identity across epochs with other ids [epochs]
 * - places get names as soon as the names arrive: the innermost symbol, or an offset [names]
 * - an inlined function is the callee of the function that it is inlined into [inlined]
 * - a function and its clones are one; names are shown without parameters [shown]
 * - a recursive function counts a sample once; self counts only the leaf [recursion]
 * - callers are those of the selected function [callers]
 * - keys open a process, or callers, and go back; the selection is kept [browse]
 * - equal rows keep their order; a filter ignores case [order]
 * - rows are sorted by the weight of their samples [weights]
 * - unknown ids, invalid data and names with escapes are harmless [hostile]
 * - if too much is stored, the next epoch starts empty [forgets]
 */
#include "config.h"

#include "arch/base.h"
#include "tests/unit/build-capture.h"
#include "tests/unit/test.h"
#include "tools/profctl/top-screen.h"

#include <locale.h>

#define SECOND UINT64_C(1000000000)

/* Process 1 has thread 1, called "one"; process 2 has thread 2, called "Two"; image 1 is lib.so. */
static void describe(struct build *build)
{
	static const uint64_t none[] = { 0 };

	build_text(build, 1, "/usr/lib/lib.so");
	build_text(build, 2, "one");
	build_text(build, 3, "Two");
	for (unsigned i = 1; i <= 2; i++) {
		BUILD(build, PROF_TABLE_PROCESS, N(i), N(100 * i), N(1), N(5), N(0),
		      PROF_BYTES(none, 0), N(0), N(0), N(0), PROF_BYTES(none, 0));
		BUILD(build, PROF_TABLE_THREAD, N(i), N(i), N(100 * i), N(5), N(1 + i),
		      PROF_BYTES(none, 0));
	}
	BUILD(build, PROF_TABLE_IMAGE, N(1), N(1), PROF_BYTES("abcd", 4), N(4096), N(1), N(2),
	      N(PROF_IMAGE_FILE), N(0), N(0));
}

static void add_frame(struct build *build, unsigned id, uint64_t offset)
{
	BUILD(build, PROF_TABLE_FRAME, N(id), N(1), N(offset), N(PROF_FRAME_EXACT));
}

static void add_stack(struct build *build, unsigned id, unsigned parent, unsigned frame)
{
	BUILD(build, PROF_TABLE_STACK, N(id), N(parent), N(frame));
}

/* Stack 1 is frame 1, which is in lib.so. */
static void begin_with_stack(struct build *build)
{
	build_begin(build);
	describe(build);
	add_frame(build, 1, 0x10);
	add_stack(build, 1, 0, 1);
}

static void add_weighted(struct build *build, unsigned second, unsigned thread, unsigned stack,
			 uint64_t weight)
{
	BUILD(build, PROF_TABLE_SAMPLE, N(second * SECOND + 7), N(thread), N(0), N(PROF_MODE_USER),
	      N(stack), N(weight), N(0), N(PROF_METHOD_CFI), N(PROF_STOP_ROOT), N(0));
}

static void add_sample(struct build *build, unsigned second, unsigned thread, unsigned stack)
{
	add_weighted(build, second, thread, stack, 1);
}

/* Reads all rows built so far. */
static void read_into(struct live *live, const struct build *build)
{
	struct prof_stream *stream = NULL;
	struct prof_batch batch;
	unsigned table;
	int r;

	CHECK(lseek(build->fd, 0, SEEK_SET) == 0);
	r = prof_stream_new(build->fd, live_tables(), &stream);
	CHECK_INT(r, 0);
	while ((r = prof_stream_next(stream, &table, &batch)) == 0)
		live_add(live, table, &batch);
	CHECK_INT(r, PROF_END);
	prof_stream_free(stream);
}

/* Returns the rows as "name self total, …". */
static const char *rows_of(const struct live *live, const struct top_view *view)
{
	static char text[512];
	struct amount all;
	g_autoptr(GArray) rows = top_view_rows(view, live, &all);
	size_t at = 0;

	text[0] = 0;
	for (guint i = 0; i < rows->len; i++) {
		const struct top_row *row = &g_array_index(rows, struct top_row, i);

		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s %d %d", i ? ", " : "",
				       row->name, (int)row->self.samples, (int)row->total.samples);
	}
	return text;
}

static const char *functions_of(const struct live *live)
{
	return rows_of(live, &(struct top_view){ .kind = TOP_FUNCTIONS, .sort = TOP_BY_SELF });
}

static void window(void)
{
	CLEANUP(build_done) struct build build;
	CLEANUP(live_done) struct live live;

	begin_with_stack(&build);
	for (unsigned second = 1; second <= 10; second++)
		for (unsigned i = 0; i < second; i++)
			add_sample(&build, second, 1, 1);
	add_sample(&build, 2, 1, 1); /* late: later seconds have samples already */
	build_finish(&build);
	live_init(&live, 3);
	read_into(&live, &build);
	CHECK_INT(live.samples, 56);
	CHECK_INT(top_view_samples(&live), 8 + 9 + 10);
	CHECK_INT(top_view_seconds(&live), 3);
	CHECK_STR(functions_of(&live), "[names are being read] 27 27");
}

static void weights(void)
{
	CLEANUP(build_done) struct build build;
	CLEANUP(live_done) struct live live;
	struct top_view view = { .kind = TOP_THREADS };
	struct amount all;

	begin_with_stack(&build);
	for (unsigned i = 0; i < 3; i++)
		add_weighted(&build, 1, 1, 1, 10);
	add_weighted(&build, 1, 2, 1, 70);
	build_finish(&build);
	live_init(&live, 3);
	read_into(&live, &build);
	CHECK_STR(rows_of(&live, &view), "Two 1 1, one 3 3");
	g_array_unref(top_view_rows(&view, &live, &all));
	CHECK_INT(all.samples, 4);
	CHECK_INT(all.weight, 100);
}

static void epochs(void)
{
	CLEANUP(build_done) struct build build;
	CLEANUP(live_done) struct live live;

	begin_with_stack(&build);
	add_sample(&build, 1, 1, 1);
	build_next_epoch(&build);
	describe(&build);
	add_frame(&build, 1, 0x20);
	add_frame(&build, 2, 0x10);
	add_stack(&build, 1, 0, 2);
	add_sample(&build, 1, 1, 1);
	build_finish(&build);
	live_init(&live, 3);
	read_into(&live, &build);
	live_add_symbol(&live, 1, 0x10, 4, "f", "f");
	live_name_all(&live);
	CHECK_STR(functions_of(&live), "f 2 2");
	CHECK_INT(live.images->len, 2);
	CHECK_INT(live.threads->len, 3);
}

static void names(void)
{
	CLEANUP(build_done) struct build build;
	CLEANUP(live_done) struct live live;

	build_begin(&build);
	describe(&build);
	for (unsigned i = 1; i <= 4; i++) {
		add_frame(&build, i, i * 0x10);
		add_stack(&build, i, 0, i);
		add_sample(&build, 1, 1, i);
	}
	build_text(&build, 4, "outer");
	BUILD(&build, PROF_TABLE_SYMBOL, N(1), N(1), N(0x10), N(0x30), N(4), N(4), N(0), N(0),
	      N(0));
	build_finish(&build);
	live_init(&live, 3);
	read_into(&live, &build);
	CHECK_STR(functions_of(&live), "[names are being read] 4 4");
	live_add_symbol(&live, 1, 0x20, 1, "inner", "inner");
	live_name_all(&live);
	CHECK_STR(functions_of(&live), "outer 2 2, [names are being read] 1 1, inner 1 1");
	CHECK_INT(live.unnamed->len, 1);
	live_name_by_offset(&live, g_array_index(live.unnamed, uint32_t, 0));
	live_name_all(&live);
	CHECK_INT(live.unnamed->len, 0);
	CHECK_STR(functions_of(&live), "outer 2 2, inner 1 1, lib.so+0x40 1 1");
}

/* A leaf at 0x20, called from 0x10. */
static void begin_pair(struct build *build)
{
	begin_with_stack(build);
	add_frame(build, 2, 0x20);
	add_stack(build, 2, 1, 2);
	add_sample(build, 1, 1, 2);
	build_finish(build);
}

static void inlined(void)
{
	struct top_view view = { .kind = TOP_CALLERS, .function = 0 };
	CLEANUP(build_done) struct build build;
	CLEANUP(live_done) struct live live;

	begin_pair(&build);
	live_init(&live, 3);
	read_into(&live, &build);
	live_add_symbol(&live, 1, 0x10, 1, "main", "main");
	live_add_symbol(&live, 1, 0x20, 1, "outer", "outer");
	live_name_all(&live);
	CHECK_STR(functions_of(&live), "outer 1 1, main 0 1");
	CHECK_INT(live.plain->len, 2);
	live_add_inlined(&live, 2, "inner", "inner", true);
	live_add_inlined(&live, 2, "middle", "middle", false);
	live_add_inlined(&live, 2, "outer", "outer", false);
	CHECK_STR(functions_of(&live), "inner 1 1, main 0 1, middle 0 1, outer 0 1");
	for (view.function = 1; view.function < live.functions->len; view.function++)
		if (strcmp(LIVE_AT(live.functions, live_function, view.function)->name, "middle") ==
		    0)
			break;
	CHECK_STR(rows_of(&live, &view), "outer 0 1");
}

static void shown(void)
{
	CLEANUP(build_done) struct build build;
	CLEANUP(live_done) struct live live;

	begin_pair(&build);
	live_init(&live, 3);
	read_into(&live, &build);
	live_add_symbol(&live, 1, 0x10, 1, "a::b(int)", "_ZN1a1bEi");
	live_add_symbol(&live, 1, 0x20, 1, "a::b(int) [clone .cold]", "_ZN1a1bEi.cold");
	live_name_all(&live);
	CHECK_STR(functions_of(&live), "a::b(int) 1 1");
	CHECK_STR(LIVE_AT(live.functions, live_function, live.functions->len - 1)->shown, "a::b");
}

/* Stacks 1: a; 2: a, b; 3: a, b, a. a is at offset 0x10, b at 0x20. */
static void begin_recursion(struct build *build)
{
	build_begin(build);
	describe(build);
	add_frame(build, 1, 0x10);
	add_frame(build, 2, 0x20);
	add_stack(build, 1, 0, 1);
	add_stack(build, 2, 1, 2);
	add_stack(build, 3, 2, 1);
	add_sample(build, 1, 1, 3);
	add_sample(build, 1, 2, 2);
	add_sample(build, 1, 2, 3);
	build_finish(build);
}

static void name_recursion(struct live *live)
{
	live_add_symbol(live, 1, 0x10, 1, "a", "a");
	live_add_symbol(live, 1, 0x20, 1, "b", "b");
	live_name_all(live);
}

static void recursion(void)
{
	CLEANUP(build_done) struct build build;
	CLEANUP(live_done) struct live live;

	begin_recursion(&build);
	live_init(&live, 3);
	read_into(&live, &build);
	name_recursion(&live);
	CHECK_STR(functions_of(&live), "a 2 3, b 1 3");
	CHECK_STR(rows_of(&live, &(struct top_view){ .kind = TOP_PROCESSES }), "Two 2 2, one 1 1");
	CHECK_STR(rows_of(&live, &(struct top_view){ .kind = TOP_THREADS }), "Two 2 2, one 1 1");
	CHECK_STR(rows_of(&live, &(struct top_view){ .kind = TOP_FUNCTIONS, .process = 1 }),
		  "a 1 1, b 0 1");
}

static void callers(void)
{
	struct top_view view = { .kind = TOP_CALLERS, .sort = TOP_BY_TOTAL };
	CLEANUP(build_done) struct build build;
	CLEANUP(live_done) struct live live;

	begin_recursion(&build);
	live_init(&live, 3);
	read_into(&live, &build);
	name_recursion(&live);
	for (view.function = 1; view.function < live.functions->len; view.function++)
		if (strcmp(LIVE_AT(live.functions, live_function, view.function)->name, "b") == 0)
			break;
	CHECK_STR(rows_of(&live, &view), "a 1 3");
	for (view.function = 1; view.function < live.functions->len; view.function++)
		if (strcmp(LIVE_AT(live.functions, live_function, view.function)->name, "a") == 0)
			break;
	CHECK_STR(rows_of(&live, &view), "- 0 3, b 2 2");
}

static void order(void)
{
	struct top_view view = { .kind = TOP_PROCESSES, .sort = TOP_BY_NAME };
	CLEANUP(build_done) struct build build;
	CLEANUP(live_done) struct live live;

	begin_recursion(&build);
	live_init(&live, 3);
	read_into(&live, &build);
	name_recursion(&live);
	CHECK_STR(rows_of(&live, &view), "Two 2 2, one 1 1");
	view.filter = "tWO";
	CHECK_STR(rows_of(&live, &view), "Two 2 2");
	view.filter = "three";
	CHECK_STR(rows_of(&live, &view), "");
	CHECK_STR(rows_of(&live, &(struct top_view){ .sort = TOP_BY_TOTAL }), "a 2 3, b 1 3");
}

static void press_all(struct top_browse *browse, const char *keys)
{
	for (; *keys; keys++) {
		unsigned key = *keys == '\n'  ? (unsigned)TOP_KEY_ENTER
			       : *keys == '<' ? (unsigned)TOP_KEY_BACK
					      : (unsigned char)*keys;

		CHECK(!top_browse_press(browse, key, 10));
	}
}

#define CHECK_STATUS(browse, expected)                               \
	do {                                                         \
		g_autofree char *status = top_browse_status(browse); \
		CHECK_STR(status, expected);                         \
	} while (0)

static void browse(void)
{
	CLEANUP(top_browse_done) struct top_browse browse;
	CLEANUP(build_done) struct build build;
	CLEANUP(live_done) struct live live;

	begin_recursion(&build);
	live_init(&live, 3);
	read_into(&live, &build);
	name_recursion(&live);
	top_browse_init(&browse, &live, TOP_PROCESSES);
	top_browse_count(&browse);
	CHECK_INT(browse.rows->len, 2);
	press_all(&browse, "j");
	CHECK_INT(browse.selected, 1);
	press_all(&browse, "\n"); /* opens the functions of "one" */
	CHECK_STATUS(&browse, "only one, pid 100");
	CHECK_INT(browse.all.samples, 1);
	press_all(&browse, "j\n");
	CHECK_STATUS(&browse, "only one, pid 100   callers of b");
	press_all(&browse, "<<");
	CHECK_STATUS(&browse, "");
	CHECK_INT(browse.selected, 1);
	press_all(&browse, "<<<jjjjkss");
	CHECK_STATUS(&browse, "by name");
	press_all(&browse, "/q\xc3<<<w");
	CHECK_STATUS(&browse, "by name   /w_");
	CHECK_INT(browse.rows->len, 1);
	press_all(&browse, "\n ");
	CHECK_STATUS(&browse, "held; Space continues   by name   /w");
	press_all(&browse, "?");
	CHECK(browse.shows_keys);
	press_all(&browse, "s"); /* any key goes back, without another effect */
	CHECK(!browse.shows_keys);
	CHECK_STATUS(&browse, "held; Space continues   by name   /w");
	CHECK(top_browse_press(&browse, 'q', 10));
	live.generation++; /* all row numbers have become invalid */
	press_all(&browse, " f");
	top_browse_count(&browse);
	CHECK_INT(browse.steps->len, 0);
}

static void hostile(void)
{
	CLEANUP(build_done) struct build build;
	CLEANUP(live_done) struct live live;

	build_begin(&build);
	describe(&build);
	build_text(&build, 4, "\033[2J\377");
	BUILD(&build, PROF_TABLE_SYMBOL, N(1), N(1), N(0), N(UINT64_MAX), N(4), N(4), N(0), N(0),
	      N(0));
	BUILD(&build, PROF_TABLE_SYMBOL, N(2), N(77), N(0), N(9), N(99), N(4), N(0), N(0), N(0));
	BUILD(&build, PROF_TABLE_FRAME, N(1), N(77), N(0), N(PROF_FRAME_RETURN));
	BUILD(&build, PROF_TABLE_FRAME, N(2), N(1), N(0), N(PROF_FRAME_RETURN));
	add_stack(&build, 1, 1, 1); /* its own parent */
	add_stack(&build, 2, 9, 2);
	add_sample(&build, 1, 88, 1);
	add_sample(&build, 1, 1, 2);
	add_sample(&build, 1, 1, 3);
	BUILD(&build, PROF_TABLE_LOSS, N(1), N(1), N(0), N(PROF_LOSS_RING_FULL), N(5), N(0));
	BUILD(&build, PROF_TABLE_LOSS, N(1), N(1), N(0), N(PROF_LOSS_TICKS_MISSED), N(7), N(0));
	build_finish(&build);
	live_init(&live, 1);
	read_into(&live, &build);
	live_name_all(&live);
	CHECK_STR(functions_of(&live), "[no stack] 2 2, \\x1b[2J\xef\xbf\xbd 1 1");
	CHECK_INT(live.lost, 5);
}

static void forgets(void)
{
	CLEANUP(build_done) struct build build;
	CLEANUP(live_done) struct live live;

	begin_with_stack(&build);
	add_sample(&build, 1, 1, 1);
	build_finish(&build);
	live_init(&live, 2);
	read_into(&live, &build);
	g_array_set_size(live.nodes, (1u << 20) + 1);
	live.epoch = UINT32_MAX; /* later rows belong to another epoch */
	read_into(&live, &build);
	CHECK_INT(live.generation, 1);
	CHECK_INT(live.nodes->len, 2);
	CHECK_STR(functions_of(&live), "[names are being read] 1 1");
}

int main(void)
{
	setlocale(LC_ALL, "C.UTF-8"); /* invalid names are shown with U+FFFD */
	RUN(window);
	RUN(weights);
	RUN(epochs);
	RUN(names);
	RUN(inlined);
	RUN(shown);
	RUN(recursion);
	RUN(callers);
	RUN(browse);
	RUN(order);
	RUN(hostile);
	RUN(forgets);
	return test_end();
}
