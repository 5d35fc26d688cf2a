/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of libcollector/ring/ring-reader.c: false claims of a producer are not accepted, and times
 * are plausible.
 */
#include "base/clock.h"
#include "config.h"
#include "libcollector/ring/ring-inline.h"
#include "tests/unit/ring-pair.h"

#include <pthread.h>
#include <stdlib.h>

#define N_CHANGES (PROF_SANITIZED ? 2000 : 20000)
#define YEAR_2500_NS UINT64_C(16725225600000000000)

/* ---- A producer that lies ---- */

struct lie {
	const char *name;
	uint32_t bytes;
	uint16_t type;
	uint32_t counts[2]; /* first words of the payload */
	enum ring_fault fault;
};

static const struct lie lies[] = {
	{ "zero", 0, RING_MARK, { 0, 0 }, RING_FAULT_LENGTH },
	{ "hole", 0, RING_NONE, { 0, 0 }, RING_FAULT_LENGTH },
	{ "odd", 49, RING_MARK, { 0, 0 }, RING_FAULT_LENGTH },
	{ "misaligned", 52, RING_MARK, { 0, 0 }, RING_FAULT_LENGTH },
	{ "beyond head", 96, RING_MARK, { 0, 0 }, RING_FAULT_LENGTH },
	{ "beyond a record", RING_MAX_RECORD + 8, RING_PAD, { 0, 0 }, RING_FAULT_LENGTH },
	{ "huge", UINT32_MAX & ~7u, RING_MARK, { 0, 0 }, RING_FAULT_LENGTH },
	{ "no type", 48, RING_NONE, { 0, 0 }, RING_FAULT_TYPE },
	{ "unknown", 48, RING_N_TYPES, { 0, 0 }, RING_FAULT_TYPE },
	{ "most unknown", 48, UINT16_MAX, { 0, 0 }, RING_FAULT_TYPE },
	{ "header only", 16, RING_MARK, { 0, 0 }, RING_FAULT_PAYLOAD },
	{ "no header", 8, RING_MARK, { 0, 0 }, RING_FAULT_PAYLOAD },
	{ "too much", 48, RING_COUNTER_VALUE, { 0, 0 }, RING_FAULT_PAYLOAD },
	{ "frames", 48, RING_STACK, { 0, 2 }, RING_FAULT_PAYLOAD },
	{ "many frames", 48, RING_STACK, { 0, UINT32_MAX }, RING_FAULT_PAYLOAD },
	{ "string", 48, RING_STRING, { 0, 25 }, RING_FAULT_PAYLOAD },
	{ "short string", 48, RING_STRING, { 0, 16 }, RING_FAULT_PAYLOAD },
	{ "long string", 48, RING_STRING, { 0, UINT32_MAX }, RING_FAULT_PAYLOAD },
};

/* Writes a valid record, then a false one. */
static void check_lie(const struct lie *lie)
{
	struct ring_record_header header = { .bytes = lie->bytes, .type = lie->type };
	struct ring_batch batch;
	uint64_t last = 0;

	REQUIRE(pair_init(&pair, SMALL, 1, RING_DROP));
	CHECK(write_mark(pair.ring, 1) && write_mark(pair.ring, 2));
	memcpy(pair.data + MARK_BYTES, &header, sizeof(header));
	memcpy(pair.data + MARK_BYTES + sizeof(header), lie->counts, sizeof(lie->counts));
	batch = drain(RING_DRAIN_LIVE);
	if (!CHECK_INT(pair.reader.fault, lie->fault))
		printf("# %s: %s\n", lie->name, ring_fault_name(pair.reader.fault));
	CHECK_INT(pair.reader.fault_at, MARK_BYTES);
	CHECK_INT(check_marks(&batch, &last), 1);
	CHECK_INT(batch.bound_ns, UINT64_MAX);
	CHECK(write_mark(pair.ring, 3));
	batch = drain(RING_DRAIN_DEAD);
	CHECK(batch.next == batch.end && !batch.is_closed);
	ring_reader_recycle(&pair.reader);
	CHECK_INT(pair.header->state & UINT32_MAX, RING_OWNED);
	pair_done(&pair);
}

static void test_hostile(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(lies); i++)
		check_lie(&lies[i]);
}

/* After one record was read, the process changes a word of the ring's header. */
static void check_header(size_t offset, uint64_t value, enum ring_fault fault)
{
	REQUIRE(pair_init(&pair, SMALL, 1, RING_DROP));
	CHECK(write_mark(pair.ring, 1));
	drain(RING_DRAIN_LIVE);
	memcpy((uint8_t *)pair.header + offset, &value, sizeof(value));
	drain(RING_DRAIN_LIVE);
	CHECK_INT(pair.reader.fault, fault);
	pair_done(&pair);
}

static void check_head(uint64_t head, enum ring_fault fault)
{
	check_header(offsetof(struct ring_header, head), head, fault);
}

static void check_state(uint64_t state, enum ring_fault fault)
{
	check_header(offsetof(struct ring_header, state), state, fault);
}

static void test_positions(void)
{
	check_head(MARK_BYTES, RING_FAULT_NONE);
	check_head(MARK_BYTES + 4, RING_FAULT_POSITION);
	check_head(0, RING_FAULT_POSITION);
	check_head(MARK_BYTES + SMALL + 8, RING_FAULT_POSITION);
	check_head(UINT64_MAX & ~UINT64_C(7), RING_FAULT_POSITION);
	check_head(MARK_BYTES + SMALL, RING_FAULT_LENGTH); /* beyond what was written */
}

/* A record that would wrap to the start of the data is refused. */
static void test_wrapped(void)
{
	const struct ring_record_header header = { .bytes = 2 * MARK_BYTES, .type = RING_PAD };
	uint64_t end = SMALL - SMALL % MARK_BYTES;

	REQUIRE(pair_init(&pair, SMALL, 1, RING_DROP));
	for (uint64_t i = 1; i <= end / MARK_BYTES; i++)
		CHECK(write_mark(pair.ring, i));
	drain(RING_DRAIN_LIVE);
	memcpy(pair.data + end, &header, sizeof(header));
	pair.header->head = end + 2 * MARK_BYTES;
	drain(RING_DRAIN_LIVE);
	CHECK_INT(pair.reader.fault, RING_FAULT_LENGTH);
	CHECK_INT(pair.reader.fault_at, end);
	pair_done(&pair);
}

static void test_states(void)
{
	check_state(UINT64_C(1) << 32 | RING_OWNED, RING_FAULT_NONE);
	check_state(UINT64_C(1) << 32 | RING_N_STATES, RING_FAULT_STATE);
	check_state(UINT64_C(3) << 32 | RING_OWNED, RING_FAULT_STATE);
	check_state(UINT64_C(0) << 32 | RING_OWNED, RING_FAULT_STATE);
	check_state(UINT64_MAX, RING_FAULT_STATE);
}

static void check_counts(uint64_t attempted, uint64_t lost, enum ring_fault fault)
{
	REQUIRE(pair_init(&pair, SMALL, 1, RING_DROP));
	CHECK(write_mark(pair.ring, 1));
	pair.header->attempted += attempted;
	pair.header->lost[RING_LOST_FULL] = lost;
	drain(RING_DRAIN_LIVE);
	CHECK_INT(pair.reader.fault, fault);
	pair_done(&pair);
}

static void test_counts(void)
{
	check_counts(5, 5, RING_FAULT_NONE);
	check_counts(5, 6, RING_FAULT_COUNTS);
	check_counts((uint64_t)-1, 0, RING_FAULT_COUNTS);
	check_counts(UINT64_C(1) << 60, UINT64_C(1) << 60, RING_FAULT_COUNTS);
	check_counts(UINT64_MAX - 1, UINT64_MAX, RING_FAULT_COUNTS);
}

/* Whatever time a record claims, the resulting time is between the grant of the ring and the drain,
 * and never decreases. */
static void test_times(void)
{
	const uint64_t times[] = { YEAR_2500_NS, 0, UINT64_MAX, 1 };
	struct ring_record record;
	struct ring_batch batch;
	uint64_t before;
	size_t n = 0;

	REQUIRE(pair_init(&pair, SMALL, 1, RING_DROP));
	before = pair.reader.grant_ns;
	for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
		CHECK(write_mark(pair.ring, i + 1));
		memcpy(pair.data + i * MARK_BYTES + 8, &times[i], 8);
	}
	batch = drain(RING_DRAIN_LIVE);
	for (; ring_batch_next(&batch, &record); n++) {
		CHECK(record.time_ns >= before && record.time_ns <= batch.now_ns);
		CHECK(record.verdict & RING_RECORD_CLAMPED);
		before = record.time_ns;
	}
	CHECK_INT(n, ARRAY_SIZE(times));
	CHECK_INT(pair.reader.totals.clamped, n);
	pair_done(&pair);
}

static atomic_bool stop_changing;

static __attribute__((no_sanitize("thread"))) void *change_all(void *data)
{
	volatile uint32_t *words = (volatile uint32_t *)pair.data;
	uint32_t random = 1;

	while (!atomic_load(&stop_changing)) {
		random = random * 1664525 + 1013904223;
		words[(random >> 8) % (SMALL / 4)] = random % 3 == 0 ? 48 : random >> 16;
	}
	return NULL;
}

/* Lengths change while they are read. No read is outside of the copy (checked by the sanitizer). */
static void test_changing(void)
{
	pthread_t id;

#if defined(__SANITIZE_THREAD__)
	SKIP("a race is what this is about");
#endif
	REQUIRE(pair_init(&pair, SMALL, 1, RING_DROP));
	atomic_store(&stop_changing, false);
	REQUIRE(pthread_create(&id, NULL, change_all, NULL) == 0);
	for (int i = 0; i < N_CHANGES; i++) {
		struct ring_reader reader;
		struct ring_record record;
		struct ring_batch batch;
		uint64_t sum = 0;

		ring_reader_init(&reader, &pair.memory, 0);
		pair.header->head = SMALL;
		pair.header->attempted = SMALL;
		ring_reader_drain(&reader, RING_DRAIN_LIVE, pair.buffer, PAIR_BUFFER, &batch);
		while (ring_batch_next(&batch, &record)) {
			const uint8_t *bytes = record.payload;

			REQUIRE(bytes + record.n_bytes <= batch.end);
			for (uint32_t j = 0; j < record.n_bytes; j++)
				sum += bytes[j];
		}
		CHECK(sum < UINT64_MAX && reader.tail <= SMALL);
	}
	atomic_store(&stop_changing, true);
	pthread_join(id, NULL);
	pair_done(&pair);
}

/* ---- Ticks ---- */

/* A simulated counter that is twice as fast as the clock. */
static struct tick_reading read_made_up(void *data)
{
	uint64_t *ns = data, now = clock_now();

	*ns = MAX_OF(*ns + 1, now);
	return (struct tick_reading){ *ns * 2, *ns };
}

static void write_realloc(uint64_t ticks, uint64_t duration, uint16_t flags)
{
	struct ring_realloc *moved = ring_begin(pair.ring, RING_REALLOC, sizeof(*moved));

	REQUIRE(moved);
	*moved = (struct ring_realloc){ .address = 16, .duration_ns = duration };
	((struct ring_record_header *)(void *)moved)[-1].time_ns = ticks;
	ring_set_flags(moved, flags);
	ring_end(pair.ring, moved);
}

/* Times in ticks are converted if the reader has a tick clock. Otherwise, they are read as ns and
 * clamped. */
static void test_ticks(void)
{
	uint64_t last = 0, now;
	struct tick_clock *clock = tick_clock_new_of(read_made_up, &last);
	const struct ring_realloc *moved;
	struct ring_record record;
	struct ring_batch batch;

	REQUIRE(clock && pair_init(&pair, SMALL, 1, RING_DROP));
	pause_ms(2);
	now = clock_now();
	ring_reader_use_ticks(&pair.reader, clock);
	write_realloc(now * 2, 1000000, RING_FLAG_TICKS);
	write_realloc(now * 2 + 2000, 7, RING_FLAG_TICKS | RING_FLAG_MORE);
	write_realloc(now + 3000, 7, 0);
	write_realloc(UINT64_MAX, UINT64_MAX, RING_FLAG_TICKS);
	pause_ms(1);
	batch = drain(RING_DRAIN_LIVE);
	REQUIRE(ring_batch_next(&batch, &record));
	moved = record.payload;
	CHECK(llabs((long long)(record.time_ns - now)) < 1000 && record.verdict == 0);
	CHECK(moved->duration_ns > 499000 && moved->duration_ns < 501000);
	CHECK_INT(record.flags, 0);
	REQUIRE(ring_batch_next(&batch, &record));
	CHECK(llabs((long long)(record.time_ns - now - 1000)) < 1000 && record.verdict == 0);
	CHECK_INT(record.flags, RING_FLAG_MORE);
	REQUIRE(ring_batch_next(&batch, &record));
	CHECK_INT(record.time_ns, now + 3000);
	REQUIRE(ring_batch_next(&batch, &record));
	CHECK_INT(record.verdict, RING_RECORD_CLAMPED);
	CHECK_INT(record.time_ns, batch.now_ns + 1000);
	ring_reader_use_ticks(&pair.reader, NULL);
	write_realloc(now * 2, 7, RING_FLAG_TICKS);
	batch = drain(RING_DRAIN_LIVE);
	REQUIRE(ring_batch_next(&batch, &record));
	CHECK_INT(record.verdict, RING_RECORD_CLAMPED);
	CHECK_INT(((const struct ring_realloc *)record.payload)->duration_ns, 0);
	pair_done(&pair);
	tick_clock_free(clock);
}

/* The end of a realloc is not after the drain, and not after the thread's later records, such as a
 * free of the new block. */
static void test_ends(void)
{
	const uint64_t second = UINT64_C(1000000000);
	const struct ring_realloc *moved;
	struct ring_record record;
	struct ring_batch batch;
	uint64_t now, end;

	REQUIRE(pair_init(&pair, SMALL, 1, RING_DROP));
	pause_ms(1);
	now = clock_now();
	write_realloc(now, second, 0);
	write_realloc(now + 5, 0, 0); /* from a handler, in between */
	write_realloc(now + second, 0, 0);
	pause_ms(1);
	batch = drain(RING_DRAIN_LIVE);
	REQUIRE(ring_batch_next(&batch, &record));
	moved = record.payload;
	end = record.time_ns + moved->duration_ns;
	CHECK_INT(record.time_ns, now);
	CHECK_INT(end, batch.now_ns);
	REQUIRE(ring_batch_next(&batch, &record));
	CHECK_INT(record.time_ns, now + 5);
	/* this record claims a time after the drain, so it gets the time of the drain */
	REQUIRE(ring_batch_next(&batch, &record));
	CHECK(record.time_ns >= end);
	pair_done(&pair);
}

/* Ticks slightly after the drain are kept, because records of another ring may be in between. */
static void test_ticks_ahead(void)
{
	uint64_t last = 0, now;
	struct tick_clock *clock = tick_clock_new_of(read_made_up, &last);
	struct ring_record first, second;
	struct ring_batch batch;

	REQUIRE(clock && pair_init(&pair, SMALL, 1, RING_DROP));
	pause_ms(2);
	ring_reader_use_ticks(&pair.reader, clock);
	(void)tick_clock_ns(clock, clock_now() * 2);
	now = clock_now();
	write_realloc((now + 600000) * 2, 0, RING_FLAG_TICKS);
	write_realloc((now + 600100) * 2, 0, RING_FLAG_TICKS);
	while (clock_now() < now + 599200)
		;
	batch = drain(RING_DRAIN_LIVE);
	REQUIRE(ring_batch_next(&batch, &first) && ring_batch_next(&batch, &second));
	CHECK_INT(first.verdict | second.verdict, 0);
	CHECK(first.time_ns < second.time_ns);
	pair_done(&pair);
	tick_clock_free(clock);
}

/* On this machine, times in ticks agree with the clock. */
static void test_real_ticks(void)
{
	const struct ring_arena_sizes sizes = { { { SMALL, 1, RING_DROP } } };
	struct tick_clock *clock = tick_clock_new();
	struct ring_record record;
	struct ring_batch batch;
	uint64_t before, after;

	if (!clock)
		return;
	memset(&pair, 0, offsetof(struct pair, buffer));
	REQUIRE(CHECK_INT(ring_arena_make(&sizes, &pair.memory, &pair.fd), 0));
	ring_arena_offer_ticks(&pair.memory);
	REQUIRE(CHECK_INT(ring_arena_map(pair.fd, &pair.arena), 0));
	ring_reader_init(&pair.reader, &pair.memory, 0);
	ring_reader_use_ticks(&pair.reader, clock);
	pair.ring = ring_claim(pair.arena, 1, 0, 0);
	for (int i = 0; i < 100; i++) {
		before = clock_now();
		CHECK(write_mark(pair.ring, 1));
		after = clock_now();
		CHECK(pair.ring->time_flags == RING_FLAG_TICKS);
		batch = drain(RING_DRAIN_LIVE);
		REQUIRE(ring_batch_next(&batch, &record));
		CHECK(record.time_ns + 1000 >= before && record.time_ns <= after + 1000);
		CHECK_INT(record.verdict, 0);
		CHECK_INT(record.flags, 0);
	}
	pair_done(&pair);
	tick_clock_free(clock);
}

int main(void)
{
	RUN(test_hostile);
	RUN(test_positions);
	RUN(test_wrapped);
	RUN(test_states);
	RUN(test_counts);
	RUN(test_times);
	RUN(test_changing);
	RUN(test_ticks);
	RUN(test_ticks_ahead);
	RUN(test_ends);
	RUN(test_real_ticks);
	return test_end();
}
