/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of collector-rows.c, collectors-merge.c and collector-peer.c in daemon/engine: the rows
 * made from records, their order, losses, and processes that lie.
 */
#include "config.h"

#include "tests/unit/collectors.h"

#include <malloc.h>

static uint8_t *data_of(const struct fixture *fixture, size_t i)
{
	const struct ring_place *places =
		(const void *)((const char *)fixture->shared + fixture->shared->directory_offset);

	return (uint8_t *)fixture->shared + places[i].data_offset;
}

static void write_rich_mark(struct ring *ring)
{
	const struct ring_argument arguments[] = { { 1, 0, (uint64_t)-5 }, { 2, 3, 1 } };
	struct ring_mark *mark = ring_begin(ring, RING_MARK, sizeof(*mark) + sizeof(arguments));

	*mark = (struct ring_mark){
		.kind = RING_MARK_BEGIN, .group = 1, .name = 2, .id = 9, .n_arguments = 2
	};
	memcpy(mark + 1, arguments, sizeof(arguments));
	ring_end(ring, mark);
}

static void write_counter(struct ring *ring, uint32_t id, uint32_t kind, uint64_t value)
{
	struct ring_counter *counter = ring_begin(ring, RING_COUNTER, sizeof(*counter));
	struct ring_counter_value *set;

	*counter = (struct ring_counter){ .id = id, .kind = kind, .name = 2 };
	ring_end(ring, counter);
	set = ring_begin(ring, RING_COUNTER_VALUE, sizeof(*set));
	*set = (struct ring_counter_value){ .id = id, .value = value };
	ring_end(ring, set);
}

static double value_of(const struct fixture *fixture, size_t i)
{
	uint64_t bits =
		number_of(&fixture->parts, PROF_TABLE_COUNTER_VALUE, PROF_COUNTER_VALUE_VALUE, i);
	double value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static void test_rows(void)
{
	struct fixture fixture;
	struct ring *ring;
	double half = 0.5;
	uint64_t bits;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	ring = claim(&fixture, getpid());
	write_string(ring, 1, "gro", 3, RING_FLAG_MORE);
	write_string(ring, 1, "up", 2, 0);
	write_string(ring, 2, "name", 4, 0);
	write_rich_mark(ring);
	write_counter(ring, 5, 0, (uint64_t)-3);
	memcpy(&bits, &half, sizeof(bits));
	write_counter(ring, 6, RING_COUNTER_DOUBLE | RING_COUNTER_SUM, bits);
	write_counter(claim(&fixture, OTHER_TID), 1, 0, 0); /* a name that this ring lacks */
	write_log(ring, "one ", RING_FLAG_MORE, 1);
	write_log(ring, "a handler's", 0, 0);
	write_log(ring, "text", 0, 1);
	settle(&fixture);
	finish(&fixture);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_MARK), 1);
	CHECK_STR(text_of(&fixture.parts,
			  number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_GROUP, 0)),
		  "group");
	CHECK_STR(text_of(&fixture.parts,
			  number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_NAME, 0)),
		  "name");
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_KIND, 0), PROF_MARK_BEGIN);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_COUNTER), 3);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_COUNTER_VALUE), 3);
	CHECK(value_of(&fixture, 0) == -3);
	CHECK(value_of(&fixture, 1) == 0.5);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_LOG), 2);
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_CORRUPT), 1);
	CHECK_INT(fixture.warnings, 0);
	fixture_done(&fixture);
}

/* Two threads alternate; then one has an unfinished record. */
static void test_order(void)
{
	struct fixture fixture;
	struct ring *rings[2];
	struct ring_mark *open;
	uint64_t last = 0, at;
	size_t n;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	rings[0] = claim(&fixture, getpid());
	rings[1] = claim(&fixture, OTHER_TID);
	for (uint64_t i = 0; i < 200; i++) {
		write_mark(rings[i % 3 == 0], 0, i);
		if (i % 50 == 49)
			step(&fixture);
	}
	settle(&fixture);
	CHECK_INT(fixture.parts.output.rows[PROF_TABLE_MARK], 200);
	open = ring_begin(rings[1], RING_MARK, sizeof(*open));
	write_mark(rings[0], 0, 201);
	step(&fixture);
	usleep(2000);
	step(&fixture);
	at = now();
	/* mark 201 is held, unless this machine is so slow that the hold has ended */
	if (at - fixture.collectors.emitted_ns < RING_BUSY_NS)
		CHECK_INT(fixture.parts.output.rows[PROF_TABLE_MARK], 200);
	usleep(RING_BUSY_NS / 1000 + 10000);
	settle(&fixture);
	CHECK_INT(fixture.parts.output.rows[PROF_TABLE_MARK], 201);
	*open = (struct ring_mark){ .id = 202 };
	ring_end(rings[1], open);
	settle(&fixture);
	finish(&fixture);
	n = rows_of(&fixture.parts, PROF_TABLE_MARK);
	CHECK_INT(n, 202);
	for (size_t i = 0; i < n; i++) {
		uint64_t time_ns = number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_TIME, i);

		CHECK(time_ns >= last);
		last = time_ns;
		if (i < 200)
			CHECK_INT(mark_id(&fixture, i), i);
	}
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_LATE), 1);
	fixture_done(&fixture);
}

/* Rings are claimed with the tid of another process, an unknown tid, and a tid of this process. */
static void test_tids(void)
{
	struct fixture fixture;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	write_mark(claim(&fixture, STRANGER_PID), 0, 1);
	write_mark(claim(&fixture, 12345), 0, 2);
	write_mark(claim(&fixture, OTHER_TID), 0, 3);
	settle(&fixture);
	finish(&fixture);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_MARK), 1);
	CHECK_INT(mark_id(&fixture, 0), 3);
	CHECK_INT(fixture.warnings, 2);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_METADATA), 2);
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_CORRUPT),
		  4); /* two rings, and a record in each */
	fixture_done(&fixture);
}

/* A thread moves from a full ring to a larger one, and its strings move along. */
static void test_larger_ring(void)
{
	struct fixture fixture;
	struct ring *ring;

	REQUIRE(begin(&fixture, ENGINE_POLICY_LOSSLESS));
	ring = claim(&fixture, getpid());
	write_string(ring, 1, "name", 4, 0);
	for (uint64_t i = 0; i < 3000; i++)
		write_mark(ring, 1, i);
	CHECK((uint32_t)header_of(&fixture, 32)->state == RING_OWNED);
	settle(&fixture);
	finish(&fixture);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_MARK), 3000);
	CHECK_STR(text_of(&fixture.parts,
			  number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_NAME, 2999)),
		  "name");
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_CORRUPT), 0);
	fixture_done(&fixture);
}

static void test_ids(void)
{
	struct fixture fixture;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	write_mark(claim(&fixture, getpid()), 77, 1);
	settle(&fixture);
	finish(&fixture);
	CHECK_STR(text_of(&fixture.parts,
			  number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_NAME, 0)),
		  "<lost>");
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_CORRUPT), 1);
	fixture_done(&fixture);
}

/* Each of these functions corrupts a ring that has one valid mark. */
static void lie_head(struct fixture *fixture)
{
	header_of(fixture, 0)->head += 1 << 30;
}

static void lie_state(struct fixture *fixture)
{
	header_of(fixture, 0)->state = 0x1234567800000009;
}

static void lie_length(struct fixture *fixture)
{
	((struct ring_record_header *)(void *)(data_of(fixture, 0) + 48))->bytes = 0;
	header_of(fixture, 0)->head += 48;
}

static void lie_counts(struct fixture *fixture)
{
	header_of(fixture, 0)->lost[RING_LOST_FULL] = UINT64_C(1) << 60;
	header_of(fixture, 0)->attempted = UINT64_C(1) << 61;
}

static void lie_kind(struct fixture *fixture)
{
	struct ring_record_header *header = (void *)(data_of(fixture, 0) + 48);

	*header = (struct ring_record_header){ .bytes = 48, .type = RING_MARK, .time_ns = now() };
	*(struct ring_mark *)(header + 1) = (struct ring_mark){ .kind = 99 };
	header_of(fixture, 0)->attempted++;
	header_of(fixture, 0)->head += 48;
}

static void test_hostile(void)
{
	static void (*const lies[])(struct fixture *) = { lie_head, lie_state, lie_length,
							  lie_counts, lie_kind };

	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		struct fixture fixture;
		struct ring *good;

		REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
		write_mark(claim(&fixture, getpid()), 0, 1);
		good = claim(&fixture, OTHER_TID);
		settle(&fixture);
		lies[i](&fixture);
		write_mark(good, 0, 2);
		settle(&fixture);
		write_mark(good, 0, 3);
		settle(&fixture);
		CHECK_INT(fixture.warnings, 1);
		CHECK(losses_of(&fixture.parts, PROF_LOSS_RING_CORRUPT) >= 1);
		CHECK(losses_of(&fixture.parts, PROF_LOSS_RING_CORRUPT) <= 2);
		CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_FULL), 0);
		finish(&fixture);
		CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_MARK), 3);
		CHECK_INT(mark_id(&fixture, 2), 3);
		fixture_done(&fixture);
	}
}

/* If a thread loses the CPU while it writes a record, it may delay other records for longer in a
 * lossless session than in other sessions. */
static void test_patient(void)
{
	struct fixture fixture;
	struct ring_mark *open;
	struct ring *rings[2];
	uint64_t begin_ns;

	REQUIRE(begin(&fixture, ENGINE_POLICY_LOSSLESS));
	rings[0] = claim(&fixture, getpid());
	rings[1] = claim(&fixture, OTHER_TID);
	begin_ns = now();
	open = ring_begin(rings[1], RING_MARK, sizeof(*open));
	write_mark(rings[0], 0, 2);
	step(&fixture);
	usleep(RING_BUSY_NS / 1000 + 50000);
	step(&fixture);
	*open = (struct ring_mark){ .id = 1 };
	ring_end(rings[1], open);
	if (now() - begin_ns < 400 * UINT64_C(1000000)) {
		settle(&fixture);
		finish(&fixture);
		CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_LATE), 0);
		CHECK_INT(mark_id(&fixture, 0), 1);
	}
	fixture_done(&fixture);
}

/* Records that claim an old time do not delay other records for longer than correct ones do. */
static void test_past(void)
{
	struct ring_record_header *header;
	struct fixture fixture;
	struct ring *good;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	write_mark(claim(&fixture, getpid()), 0, 1);
	good = claim(&fixture, OTHER_TID);
	settle(&fixture);
	write_mark(good, 0, 2);
	header_of(&fixture, 0)->busy = 1;
	for (uint64_t i = 1; i < 100 && fixture.parts.output.rows[PROF_TABLE_MARK] <= i; i++) {
		header = (void *)(data_of(&fixture, 0) + i * 48);
		*header =
			(struct ring_record_header){ .bytes = 48, .type = RING_MARK, .time_ns = 1 };
		memset(header + 1, 0, sizeof(struct ring_mark));
		header_of(&fixture, 0)->attempted++;
		header_of(&fixture, 0)->head += 48;
		usleep(2000);
		step(&fixture);
	}
	CHECK(header_of(&fixture, 0)->head < 99 * 48);
	finish(&fixture);
	CHECK_INT(fixture.warnings, 0);
	fixture_done(&fixture);
}

/* A record has a time in the year 2500, and the arena has an impossible number of losses. */
static void test_times(void)
{
	struct fixture fixture;
	struct ring *ring;
	struct ring_mark *mark;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	ring = claim(&fixture, getpid());
	mark = ring_begin(ring, RING_MARK, sizeof(*mark));
	*mark = (struct ring_mark){ .id = 1 };
	((struct ring_record_header *)(void *)mark - 1)->time_ns = UINT64_C(16725225600000000000);
	ring_end(ring, mark);
	fixture.shared->lost_no_ring = UINT64_C(1) << 60;
	settle(&fixture);
	write_mark(claim(&fixture, OTHER_TID), 0, 2);
	settle(&fixture);
	finish(&fixture);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_MARK), 2);
	CHECK(number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_TIME, 0) < now());
	CHECK_INT(mark_id(&fixture, 1), 2);
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_LATE), 0);
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_REFUSED), 0);
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_CORRUPT), 1);
	fixture_done(&fixture);
}

/* A process sends strings and counters without end. */
static void test_endless(void)
{
	static const char text[8000];
	struct fixture fixture;
	struct ring *ring;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	ring = claim(&fixture, getpid());
	for (uint32_t i = 1; i < 1000; i++) {
		write_counter(ring, 100000 + i, 0, i);
		if (i % 100 == 0)
			settle(&fixture);
	}
	for (uint32_t i = 1; i < 3000; i++) {
		write_string(ring, i, text, sizeof(text), 0);
		if (i % 4 == 0)
			collectors_drain(&fixture.collectors, now());
		if (i % 400 == 0)
			settle(&fixture);
	}
	settle(&fixture);
	CHECK(fixture.collectors.rows->text_bytes <= COLLECTOR_PROCESS_TEXT + 100000);
	CHECK(losses_of(&fixture.parts, PROF_LOSS_RING_REFUSED) > 0);
	/* a log record without end */
	for (uint32_t i = 1; i < 1000; i++) {
		write_log(ring, "0123456789012345678901234567890123456789", RING_FLAG_MORE, 1);
		if (i % 100 == 0)
			settle(&fixture);
	}
	CHECK(fixture.collectors.rows->text_bytes <= COLLECTOR_PROCESS_TEXT + 100000);
	finish(&fixture);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_COUNTER_VALUE), 999);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_COUNTER), 1);
	fixture_done(&fixture);
}

/* A string that replaces another one releases its memory. */
static void test_replaced(void)
{
#if PROF_SANITIZED
	SKIP("the sanitizer has a heap of its own");
#else
	static const char text[8000];
	struct fixture fixture;
	struct ring *ring;
	size_t before;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	ring = claim(&fixture, getpid());
	write_mark(ring, 0, 1);
	settle(&fixture);
	before = mallinfo2().uordblks + mallinfo2().hblkhd;
	for (uint32_t i = 1; i < 3000; i++) {
		write_string(ring, i, text, sizeof(text), 0);
		write_string(ring, i, text, 1, 0);
		if (i % 4 == 0)
			step(&fixture);
	}
	settle(&fixture);
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_REFUSED) +
			  losses_of(&fixture.parts, PROF_LOSS_RING_FULL),
		  0);
	CHECK(mallinfo2().uordblks + mallinfo2().hblkhd < before + 4 * sizeof(text) * 100);
	finish(&fixture);
	fixture_done(&fixture);
#endif
}

static void test_conservation(void)
{
	struct fixture fixture;
	struct ring *ring;
	uint64_t written = 0;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DROP));
	ring = claim(&fixture, getpid());
	for (uint64_t i = 0; i < 300000; i++) {
		written += write_mark(ring, 0, i);
		if (i % 100000 == 0)
			step(&fixture);
	}
	ring_arena_count_lost(fixture.arena);
	ring_release(ring);
	settle(&fixture);
	/* another thread has the same ring now */
	ring = claim(&fixture, OTHER_TID);
	written += write_mark(ring, 0, 1);
	settle(&fixture);
	finish(&fixture);
	CHECK(written < 300001);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_MARK), written);
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_FULL), 300001 - written);
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_REFUSED), 1);
	CHECK(number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_THREAD, written - 1) !=
	      number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_THREAD, 0));
	fixture_done(&fixture);
}

/* Connects two processes, the first of which claims n rings. Returns the arena of that process, or
 * NULL on failure. */
static struct ring_arena *begin_greedy(struct fixture *fixture, struct ring **ret_rings, size_t n)
{
	struct ring_arena *greedy;

	if (!begin(fixture, ENGINE_POLICY_DROP))
		return NULL;
	greedy = steal_ptr(&fixture->arena);
	for (size_t i = 0; i < n; i++)
		ret_rings[i] = ring_claim(greedy, OTHER_TID, 0, 0);
	tasks_filter(&fixture->parts.tasks, (const int32_t[]){ getpid(), STRANGER_PID }, 2, true);
	connect_as(fixture, STRANGER_PID, 0);
	step_until_answer(fixture);
	return take_arena(fixture) && ret_rings[n - 1] ? greedy : NULL;
}

/* If one process writes more than can be queued, the other one loses nothing. */
static void test_fair(void)
{
	const size_t each = 1300, n_turns = 100;
	struct fixture fixture;
	struct ring_arena *greedy;
	struct ring *rings[N_RINGS], *modest;
	uint64_t most = 0;

	REQUIRE(greedy = begin_greedy(&fixture, rings, ARRAY_SIZE(rings)));
	modest = claim(&fixture, STRANGER_PID);
	for (size_t turn = 0; turn < n_turns; turn++) {
		for (size_t i = 0; i < ARRAY_SIZE(rings); i++)
			while (write_mark(rings[i], 0, 1))
				;
		for (size_t i = 0; i < each; i++)
			CHECK(write_mark(modest, 0, 1));
		collectors_drain(&fixture.collectors, now());
		most = MAX_OF(most, fixture.collectors.queued_bytes);
	}
	CHECK(most > COLLECTORS_MAX_QUEUED && most < 2 * COLLECTORS_MAX_QUEUED);
	/* Queued records do not wait for records in rings, and a step takes a bounded time. */
	for (int i = 0; i < 100 && fixture.collectors.queued_bytes > 0; i++) {
		usleep(RING_BUSY_NS / 1000);
		step(&fixture);
	}
	CHECK_INT(fixture.collectors.queued_bytes, 0);
	finish(&fixture);
	CHECK(rows_of(&fixture.parts, PROF_TABLE_MARK) > n_turns * each);
	ring_arena_unmap(greedy);
	fixture_done(&fixture);
}

/* A drain takes no more than the queue has room for. Records must become rows before more are
 * taken. */
static void test_share(void)
{
	struct fixture fixture;
	struct ring_arena *greedy;
	struct ring *rings[N_RINGS];
	uint64_t before;

	REQUIRE(greedy = begin_greedy(&fixture, rings, ARRAY_SIZE(rings)));
	do {
		before = fixture.collectors.queued_bytes;
		/* fill the largest ring */
		while (write_mark(rings[ARRAY_SIZE(rings) - 1], 0, 1))
			;
		collectors_drain(&fixture.collectors, now());
	} while (fixture.collectors.queued_bytes > before);
	CHECK(before >= COLLECTORS_MAX_QUEUED);
	CHECK(before < COLLECTORS_MAX_QUEUED + (1 << 20)); /* the limit plus one piece */
	finish(&fixture);
	ring_arena_unmap(greedy);
	fixture_done(&fixture);
}

/* At the end, there is no time for all records of the greedy process, but all records of the other
 * process are written. */
static void test_fair_end(void)
{
	const size_t n_marks = 100;
	struct fixture fixture;
	struct ring_arena *greedy;
	struct ring *rings[N_RINGS], *modest;
	uint64_t n_greedy = 0;

	REQUIRE(greedy = begin_greedy(&fixture, rings, ARRAY_SIZE(rings)));
	modest = claim(&fixture, STRANGER_PID);
	for (size_t i = 0; i < ARRAY_SIZE(rings); i++)
		for (write_string(rings[i], 1, "name", 4, 0); write_mark(rings[i], 0, 1);)
			n_greedy++;
	for (size_t i = 0; i < n_marks; i++)
		write_mark(modest, 0, 2);
	collectors_finish(&fixture.collectors, 0);
	loss_flush(&fixture.parts.losses, &fixture.parts.output);
	parts_finish(&fixture.parts);
	CHECK(losses_of(&fixture.parts, PROF_LOSS_WRITER_BACKLOG) > 100000);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_MARK) +
			  losses_of(&fixture.parts, PROF_LOSS_WRITER_BACKLOG),
		  n_greedy + n_marks);
	CHECK_INT(mark_id(&fixture, rows_of(&fixture.parts, PROF_TABLE_MARK) - n_marks), 2);
	ring_arena_unmap(greedy);
	fixture_done(&fixture);
}

/* Two rings hold more than one drain takes. All records become rows in one step, in order. */
static void test_pieces(void)
{
	const uint64_t n_marks = 10000;
	struct fixture fixture;
	struct ring *rings[2];

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	rings[0] = claim(&fixture, getpid());
	rings[1] = claim(&fixture, OTHER_TID);
	for (uint64_t i = 0; i < n_marks; i++)
		CHECK(write_mark(rings[i % 8 == 0], 0, i));
	usleep(2000);
	step(&fixture);
	CHECK_INT(fixture.parts.output.rows[PROF_TABLE_MARK], n_marks);
	finish(&fixture);
	for (uint64_t i = 0; i < n_marks; i++)
		CHECK_INT(mark_id(&fixture, i), i);
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_LATE), 0);
	fixture_done(&fixture);
}

int main(void)
{
	RUN(test_rows);
	RUN(test_order);
	RUN(test_patient);
	RUN(test_pieces);
	RUN(test_tids);
	RUN(test_larger_ring);
	RUN(test_ids);
	RUN(test_hostile);
	RUN(test_past);
	RUN(test_times);
	RUN(test_endless);
	RUN(test_replaced);
	RUN(test_conservation);
	RUN(test_fair);
	RUN(test_fair_end);
	RUN(test_share);
	return test_end();
}
