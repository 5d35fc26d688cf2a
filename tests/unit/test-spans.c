/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of spans, which pair begin marks with end marks, and of percentiles, with results that can
 * be counted by hand.
 */
#include "tests/unit/build-capture.h"
#include "tests/unit/test.h"
#include "tools/profcapture/durations.h"
#include "tools/profcapture/reader.h"
#include "tools/profcapture/span-set.h"
#include "tools/profcapture/spans.h"

#define GROUP 10
#define A 11
#define B 12
#define NOBODY 77

/* Threads 1 and 2 belong to process 1, thread 3 to process 2. */
static void begin_epoch(struct build *build)
{
	static const uint64_t process_of[] = { 1, 1, 2 };

	build_text(build, GROUP, "group");
	build_text(build, A, "a");
	build_text(build, B, "b");
	for (unsigned i = 1; i <= 2; i++)
		BUILD(build, PROF_TABLE_PROCESS, N(i), N(100 * i), N(1), N(5), N(0),
		      PROF_BYTES(NULL, 0), N(0), N(0), N(0), PROF_BYTES(NULL, 0));
	for (unsigned i = 1; i <= 3; i++)
		BUILD(build, PROF_TABLE_THREAD, N(i), N(process_of[i - 1]), N(100 + i), N(5), N(0),
		      PROF_BYTES(NULL, 0));
}

static void begin(struct build *build)
{
	build_begin(build);
	begin_epoch(build);
}

static void mark(struct build *build, uint64_t time, uint64_t thread, enum prof_mark_kind kind,
		 uint64_t id, uint64_t name)
{
	BUILD(build, PROF_TABLE_MARK, N(BUILD_START + time), N(thread), N(kind), N(id),
	      N(name ? GROUP : 0), N(name), N(kind == PROF_MARK_COMPLETE ? 5 : 0),
	      PROF_BYTES(NULL, 0), PROF_BYTES(NULL, 0), PROF_BYTES(NULL, 0), PROF_BYTES(NULL, 0),
	      N(0));
}

#define OPEN(time, thread, id, name) mark(&build, (time), (thread), PROF_MARK_BEGIN, (id), (name))
#define SHUT(time, thread, id, name) mark(&build, (time), (thread), PROF_MARK_END, (id), (name))

struct answer {
	struct span spans[32];
	unsigned n;
	uint64_t all;
};

static void keep(const struct span *span, void *data)
{
	struct answer *answer = data;

	answer->all++;
	if (answer->n < ARRAY_SIZE(answer->spans))
		answer->spans[answer->n++] = *span;
}

/* Returns the spans. Their threads are valid until the caller frees the capture. */
static struct answer read_spans(struct build *build, struct capture **ret_capture)
{
	struct answer answer = { 0 };

	build_finish(build);
	*ret_capture = capture_open(build->path, false, NULL);
	CHECK(*ret_capture && spans_read(*ret_capture, keep, &answer, NULL));
	return answer;
}

/* Returns whether there is exactly one span like this, of the thread with this tid. */
static bool has(const struct answer *answer, const struct capture *capture, enum span_kind kind,
		const char *name, int64_t start, int64_t end, uint64_t tid)
{
	unsigned n = 0;

	for (unsigned i = 0; i < answer->n; i++) {
		const struct span *span = &answer->spans[i];

		n += span->kind == kind && g_strcmp0(span->name, name) == 0 &&
		     span->start_ns == start && span->end_ns == end &&
		     (span->thread <= NAMES_LOST
			      ? 0
			      : names_thread_at(capture->names, span->thread)->tid) == tid;
	}
	return n == 1;
}

#define CHECK_WHOLE(name, start, end, tid) \
	CHECK(has(&answer, capture, SPAN_WHOLE, (name), (start), (end), (tid)))
#define CHECK_NO_END(name, start, tid) \
	CHECK(has(&answer, capture, SPAN_NO_END, (name), (start), (start), (tid)))
#define CHECK_NO_BEGIN(name, start, tid) \
	CHECK(has(&answer, capture, SPAN_NO_BEGIN, (name), (start), (start), (tid)))

static void done(struct build *build, struct capture *capture)
{
	capture_free(capture);
	build_done(build);
}

/* Without ids, an end mark belongs to the newest begin mark with its name on its thread. */
static void test_nested(void)
{
	struct build build;
	struct capture *capture;
	struct answer answer;

	begin(&build);
	OPEN(0, 1, 0, A);
	OPEN(10, 1, 0, A);
	OPEN(15, 2, 0, A);
	OPEN(20, 1, 0, B);
	SHUT(30, 1, 0, B);
	SHUT(40, 1, 0, A);
	SHUT(45, 2, 0, A);
	SHUT(50, 1, 0, A);
	answer = read_spans(&build, &capture);
	CHECK_INT(answer.n, 4);
	CHECK_WHOLE("b", 20, 30, 101);
	CHECK_WHOLE("a", 10, 40, 101);
	CHECK_WHOLE("a", 15, 45, 102);
	CHECK_WHOLE("a", 0, 50, 101);
	done(&build, capture);
}

/* Spans with different names or ids may end in the order in which they began. */
static void test_overlapping(void)
{
	struct build build;
	struct capture *capture;
	struct answer answer;

	begin(&build);
	OPEN(0, 1, 0, A);
	OPEN(10, 1, 0, B);
	SHUT(20, 1, 0, A);
	SHUT(30, 1, 0, B);
	OPEN(40, 1, 1, A);
	OPEN(50, 1, 2, A);
	SHUT(60, 1, 1, A);
	SHUT(80, 1, 2, A);
	answer = read_spans(&build, &capture);
	CHECK_INT(answer.n, 4);
	CHECK_WHOLE("a", 0, 20, 101);
	CHECK_WHOLE("b", 10, 30, 101);
	CHECK_WHOLE("a", 40, 60, 101);
	CHECK_WHOLE("a", 50, 80, 101);
	done(&build, capture);
}

/* Marks with an id are paired within a process, even without a name; others, within a thread. */
static void test_across_threads(void)
{
	struct build build;
	struct capture *capture;
	struct answer answer;

	begin(&build);
	OPEN(0, 1, 7, A);
	OPEN(5, 3, 7, A);
	SHUT(10, 2, 7, 0);
	SHUT(20, 3, 7, A);
	OPEN(30, 1, 0, A);
	SHUT(40, 2, 0, A);
	answer = read_spans(&build, &capture);
	CHECK_INT(answer.n, 4);
	CHECK_WHOLE("a", 0, 10, 101);
	CHECK_WHOLE("a", 5, 20, 103);
	CHECK_NO_END("a", 30, 101);
	CHECK_NO_BEGIN("a", 40, 102);
	done(&build, capture);
}

/* The same id is used with two names, and again after the end of its span, even if that end was
 * lost. */
static void test_same_id(void)
{
	struct build build;
	struct capture *capture;
	struct answer answer;

	begin(&build);
	OPEN(0, 1, 5, A);
	OPEN(1, 1, 5, B);
	SHUT(2, 1, 5, A);
	SHUT(3, 1, 5, B);
	OPEN(10, 1, 6, A);
	OPEN(20, 1, 6, A);
	SHUT(25, 1, 6, A);
	answer = read_spans(&build, &capture);
	CHECK_INT(answer.n, 4);
	CHECK_WHOLE("a", 0, 2, 101);
	CHECK_WHOLE("b", 1, 3, 101);
	CHECK_WHOLE("a", 20, 25, 101);
	CHECK_NO_END("a", 10, 101);
	done(&build, capture);

	/* Ten thousand open spans do not take quadratic time, because an end mark looks at only
	 * 64. */
	begin(&build);
	OPEN(0, 1, 5, B);
	for (unsigned i = 0; i < 10000; i++)
		OPEN(1, 1, 5, A);
	for (unsigned i = 0; i < 10000; i++)
		SHUT(2, 1, 5, B);
	answer = read_spans(&build, &capture);
	CHECK_INT(answer.all, 20001);
	CHECK_INT(answer.spans[0].kind, SPAN_NO_BEGIN);
	done(&build, capture);
}

/* Every row is reported once, whatever is missing. Unknown kinds are instants. */
static void test_every_row(void)
{
	struct build build;
	struct capture *capture;
	struct answer answer;

	begin(&build);
	SHUT(0, 1, 0, A);
	SHUT(1, 1, 9, A);
	mark(&build, 2, 1, PROF_MARK_INSTANT, 0, A);
	mark(&build, 3, 1, PROF_MARK_COMPLETE, 0, B);
	mark(&build, 4, 1, (enum prof_mark_kind)9, 0, B);
	OPEN(5, 1, 0, A);
	SHUT(5, 1, 0, A);
	OPEN(6, 1, 4, 0);
	answer = read_spans(&build, &capture);
	CHECK_INT(answer.n, 7);
	CHECK_NO_BEGIN("a", 0, 101);
	CHECK_NO_BEGIN("a", 1, 101);
	CHECK(has(&answer, capture, SPAN_INSTANT, "a", 2, 2, 101));
	CHECK_WHOLE("b", -2, 3, 101);
	CHECK(has(&answer, capture, SPAN_INSTANT, "b", 4, 4, 101));
	CHECK_WHOLE("a", 5, 5, 101);
	CHECK_NO_END(NULL, 6, 101);
	done(&build, capture);
}

/* Unknown threads are not treated as one thread. */
static void test_lost(void)
{
	struct build build;
	struct capture *capture;
	struct answer answer;

	begin(&build);
	OPEN(0, NOBODY, 0, A);
	SHUT(1, NOBODY, 0, A);
	OPEN(2, 0, 3, A);
	SHUT(3, 0, 3, A);
	mark(&build, 4, NOBODY, PROF_MARK_COMPLETE, 0, NOBODY);
	answer = read_spans(&build, &capture);
	CHECK_INT(answer.n, 5);
	CHECK_NO_END("a", 0, 0);
	CHECK_NO_BEGIN("a", 1, 0);
	CHECK_NO_END("a", 2, 0);
	CHECK_NO_BEGIN("a", 3, 0);
	CHECK_WHOLE(NAMES_LOST_TEXT, -1, 4, 0);
	done(&build, capture);
}

/* A span continues in the next epoch, with other ids, but not in the next segment. */
static void test_epochs_and_segments(void)
{
	struct build build;
	struct capture *capture;
	struct answer answer;

	begin(&build);
	OPEN(0, 1, 0, A);
	OPEN(1, 1, 8, B);
	build_next_epoch(&build);
	build_text(&build, A, "b");
	build_text(&build, B, "a");
	build_text(&build, GROUP, "group");
	BUILD(&build, PROF_TABLE_PROCESS, N(5), N(100), N(1), N(5), N(0), PROF_BYTES(NULL, 0), N(0),
	      N(0), N(0), PROF_BYTES(NULL, 0));
	BUILD(&build, PROF_TABLE_THREAD, N(2), N(5), N(101), N(5), N(0), PROF_BYTES(NULL, 0));
	SHUT(10, 2, 0, B);
	OPEN(11, 2, 0, B);
	build_next_segment(&build, BUILD_START + 100, 1);
	begin_epoch(&build);
	SHUT(120, 1, 0, A);
	SHUT(121, 1, 8, B);
	answer = read_spans(&build, &capture);
	CHECK_INT(answer.n, 5);
	CHECK_WHOLE("a", 0, 10, 101);
	CHECK_NO_END("b", 1, 101);
	CHECK_NO_END("a", 11, 101);
	CHECK_NO_BEGIN("a", 120, 101);
	CHECK_NO_BEGIN("b", 121, 101);
	done(&build, capture);
}

/* Spans without an end come in the order in which they began, so that a page or an export of the
 * same capture always is the same. */
static void test_order_of_open_spans(void)
{
	struct build build;
	struct capture *capture;
	struct answer answer;

	begin(&build);
	for (uint64_t i = 0; i < 20; i++)
		OPEN(i, 1 + i % 3, i % 5 ? 100 - i : 0, i % 2 ? A : B);
	answer = read_spans(&build, &capture);
	REQUIRE(CHECK_INT(answer.n, 20));
	for (unsigned i = 0; i < 20; i++)
		CHECK_INT(answer.spans[i].start_ns, i);
	done(&build, capture);
}

/* Finds lost records in the requested range that may have been marks. */
static void test_losses(void)
{
	static const struct {
		const char *stream;
		enum prof_loss_cause cause;
		bool counts;
	} losses[] = {
		{ "mark", PROF_LOSS_WRITER_BACKLOG, true },
		{ "log", PROF_LOSS_WRITER_BACKLOG, false },
		{ "thread 5", PROF_LOSS_RING_FULL, true },
		{ "cpu3", PROF_LOSS_PERF_RING, false },
		{ "cpu3", PROF_LOSS_LATE, false },
		{ "host", PROF_LOSS_TICKS_MISSED, false },
		{ "file", PROF_LOSS_DISK_FULL, true },
	};

	for (size_t i = 0; i < ARRAY_SIZE(losses); i++) {
		struct build build;
		struct reader whole = { 0 }, before = { .range.to = { UNITS_TIME_START, 9, NULL } };

		begin(&build);
		OPEN(0, 1, 0, A);
		BUILD(&build, PROF_TABLE_LOSS, N(BUILD_START + 10), N(BUILD_START + 20),
		      PROF_BYTES(losses[i].stream, strlen(losses[i].stream)), N(losses[i].cause),
		      N(1), N(0));
		build_finish(&build);
		REQUIRE(reader_open(&whole, build.path, NULL));
		REQUIRE(reader_open(&before, build.path, NULL));
		CHECK_INT(reader_misses_rows(&whole, "mark"), losses[i].counts);
		CHECK(!reader_misses_rows(&before, "mark"));
		reader_done(&whole);
		reader_done(&before);
		build_done(&build);
	}
}

/* Returns the index of the thread with this tid. */
static uint32_t thread_of(const struct reader *reader, uint64_t tid)
{
	const struct names *names = reader->capture->names;

	for (uint32_t i = NAMES_LOST + 1; i < names->threads->len; i++)
		if (names_thread_at(names, i)->tid == tid)
			return i;
	return NAMES_NONE;
}

/* Overlapping, nested and adjacent spans, of processes or of threads. Both ends of a span belong to
 * it. */
static void test_sets(void)
{
	static const struct {
		uint64_t tid;
		int64_t time;
		bool process, thread;
	} samples[] = {
		{ 101, 9, false, false },  { 101, 10, true, true },   { 101, 25, true, true },
		{ 101, 40, true, true },   { 101, 41, true, false },  { 102, 10, true, false },
		{ 102, 45, true, true },   { 101, 51, false, false }, { 101, 60, true, true },
		{ 101, 65, true, true },   { 101, 66, false, false }, { 103, 25, false, false },
		{ 103, 70, true, true },   { 101, 70, false, false }, { 101, 80, false, false },
		{ 101, 95, false, false },
	};
	struct build build;
	struct reader reader = { 0 };

	begin(&build);
	OPEN(10, 1, 0, A);
	OPEN(15, 1, 0, A);
	SHUT(20, 1, 0, A);
	SHUT(30, 1, 0, A);
	OPEN(30, 1, 4, A);
	OPEN(35, 2, 5, A);
	SHUT(40, 2, 4, 0);
	SHUT(50, 1, 5, A);
	mark(&build, 65, 1, PROF_MARK_COMPLETE, 0, A);
	mark(&build, 75, 3, PROF_MARK_COMPLETE, 0, A);
	mark(&build, 85, 1, PROF_MARK_COMPLETE, 0, B);
	OPEN(90, 1, 0, A);
	build_finish(&build);
	REQUIRE(reader_open(&reader, build.path, NULL));
	for (enum span_scope scope = SPAN_OF_PROCESS; scope <= SPAN_OF_THREAD; scope++) {
		struct span_set set = { .name = "a", .scope = scope };

		REQUIRE(span_set_read(&set, &reader, NULL));
		for (size_t i = 0; i < ARRAY_SIZE(samples); i++)
			if (span_set_has(&set, thread_of(&reader, samples[i].tid),
					 samples[i].time) !=
			    (scope == SPAN_OF_PROCESS ? samples[i].process : samples[i].thread))
				CHECK_INT(i, -1);
		CHECK(!span_set_has(&set, NAMES_NONE, 15) && !span_set_has(&set, NAMES_LOST, 15));
		CHECK_INT(set.spans, 6);
		CHECK_INT(set.total_ns, 5 + 20 + 10 + 15 + 5 + 5);
		CHECK_INT(set.no_end, 1);
		span_set_done(&set);
	}
	reader_done(&reader);
	build_done(&build);
}

static void test_percentiles(void)
{
	struct durations durations = { 0 };

	/* 1 to 1000, shuffled */
	for (uint64_t i = 0; i < 1000; i++)
		durations_add(&durations, i * 617 % 1000 + 1);
	CHECK_INT(durations_count(&durations), 1000);
	CHECK_INT(durations.total_ns, 500500);
	CHECK_INT(durations_mean(&durations), 501); /* 500.5 */
	for (unsigned percent = 1; percent <= 100; percent++)
		CHECK_INT(durations_percentile(&durations, percent), percent * 10);
	durations_add(&durations, 2000);
	CHECK_INT(durations_percentile(&durations, 50), 501);
	CHECK_INT(durations_percentile(&durations, 99), 991);
	CHECK_INT(durations_percentile(&durations, 100), 2000);
	durations_done(&durations);

	durations_add(&durations, 7);
	CHECK_INT(durations_percentile(&durations, 1), 7);
	CHECK_INT(durations_percentile(&durations, 99), 7);
	for (unsigned i = 0; i < 1000000; i++)
		durations_add(&durations, 3);
	CHECK_INT(durations_percentile(&durations, 99), 3);
	CHECK_INT(durations_percentile(&durations, 100), 7);
	durations_add(&durations, UINT64_MAX);
	CHECK(durations.total_ns == UINT64_MAX);
	durations_done(&durations);
}

int main(void)
{
	RUN(test_nested);
	RUN(test_overlapping);
	RUN(test_across_threads);
	RUN(test_same_id);
	RUN(test_every_row);
	RUN(test_lost);
	RUN(test_epochs_and_segments);
	RUN(test_order_of_open_spans);
	RUN(test_losses);
	RUN(test_sets);
	RUN(test_percentiles);
	return test_end();
}
