/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of libcollector/ring and ring-reader: what goes in comes out or is counted, and a producer that lies is believed
 * nothing. What interrupts a record is in test-ring-interrupted.c.
 */
#include "config.h"
#include "libcollector/ring-own.h"
#include "tests/unit/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#define SMALL 4096u
#define N_THREADS 8
#define PER_THREAD (PROF_SANITIZED ? 25000u : 1250000u)
#define N_CHANGES (PROF_SANITIZED ? 2000 : 20000)
#define YEAR_2500_NS UINT64_C(16725225600000000000)

static struct pair pair;

static struct ring_batch drain(enum ring_drain how)
{
	struct ring_batch batch;

	ring_reader_drain(&pair.reader, how, pair.buffer, sizeof(pair.buffer), &batch);
	return batch;
}

static void pause_ms(long ms)
{
	const struct timespec pause = { .tv_nsec = ms * 1000000 };

	nanosleep(&pause, NULL);
}

/* ---- The arena ---- */

static void test_arena(void)
{
	const struct ring_arena_sizes sizes = { { { SMALL, 3, RING_DROP },
						  { 4 * SMALL, 2, RING_LOSSLESS } } };
	struct ring_arena_memory memory;
	struct ring_arena *arena;
	int fd;

	REQUIRE(CHECK_INT(ring_arena_make(&sizes, &memory, &fd), 0));
	CHECK(ftruncate(fd, 0) < 0 && errno == EPERM);
	CHECK(ftruncate(fd, (off_t)memory.bytes * 2) < 0 && errno == EPERM);
	CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) < 0);
	CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	for (uint32_t i = 0; i + 1 < memory.n_rings; i++) {
		const struct ring_place *place = &memory.places[i];

		CHECK(place[0].header_offset + sizeof(struct ring_header) <=
		      place[1].header_offset);
		CHECK(place[0].data_offset + place[0].data_bytes <= place[1].data_offset);
	}
	CHECK_INT(memory.places[4].data_offset + memory.places[4].data_bytes, memory.bytes);
	REQUIRE(CHECK_INT(ring_arena_map(fd, &arena), 0));
	ring_arena_count_lost(arena);
	CHECK_INT(ring_arena_lost(&memory), 1);
	ring_arena_unmap(arena);
	ring_arena_memory_done(&memory);
	close(fd);
}

static void check_bad_sizes(uint64_t bytes, uint32_t n)
{
	const struct ring_arena_sizes sizes = { { { bytes, n, RING_DROP } } };
	struct ring_arena_memory memory;
	int fd;

	CHECK_INT(ring_arena_make(&sizes, &memory, &fd), -EINVAL);
}

static void test_sizes(void)
{
	check_bad_sizes(0, 1);
	check_bad_sizes(SMALL - 1, 1);
	check_bad_sizes(SMALL + 8, 1);
	check_bad_sizes(RING_MAX_BYTES * 2, 1);
	check_bad_sizes(SMALL, 0);
	check_bad_sizes(SMALL, RING_MAX_RINGS + 1);
	check_bad_sizes(RING_MAX_BYTES, 5);
}

/* The producer's own checks: what is mapped is what it can use without a signal. */
static void test_map(void)
{
	struct ring_arena *arena;
	struct ring_arena_header *header;
	int fd = memfd_create("unsealed", MFD_CLOEXEC);

	CHECK_INT(ring_arena_map(-1, &arena), -EBADF);
	REQUIRE(fd >= 0 && ftruncate(fd, SMALL) == 0);
	CHECK_INT(ring_arena_map(fd, &arena), -EPROTO);
	close(fd);
	REQUIRE(pair_init(&pair, SMALL, 1, RING_DROP));
	header = (void *)pair.memory.base;
#define BAD(field, value)                                            \
	do {                                                         \
		__typeof__(header->field) was = header->field;       \
		header->field = (value);                             \
		CHECK_INT(ring_arena_map(pair.fd, &arena), -EPROTO); \
		header->field = was;                                 \
	} while (0)
	BAD(magic, 1);
	BAD(version, 2);
	BAD(incompat, 1);
	BAD(clock, 2);
	BAD(arena_bytes, 1);
	BAD(n_rings, 1000000);
	BAD(directory_offset, 4);
	BAD(directory_offset, UINT32_MAX & ~7u);
#undef BAD
	pair_done(&pair);
}

/* ---- Order ---- */

static void test_order(void)
{
	struct ring_record record;
	struct ring_batch batch;

	REQUIRE(pair_init(&pair, SMALL, 1, RING_DROP));
	CHECK(write_mark(pair.ring, 1) && write_mark(pair.ring, 2));
	batch = drain(RING_DRAIN_LIVE);
	CHECK_INT(batch.tid, 1);
	CHECK(ring_batch_next(&batch, &record));
	CHECK_INT(((const struct ring_mark *)record.payload)->id, 1);
	CHECK_INT(record.verdict, 0);
	CHECK(ring_batch_next(&batch, &record));
	CHECK_INT(((const struct ring_mark *)record.payload)->id, 2);
	CHECK(!ring_batch_next(&batch, &record));
	CHECK(!batch.is_closed && !batch.is_more && batch.bound_ns <= batch.now_ns);
	CHECK_INT(pair.header->tail, 2 * MARK_BYTES);
	ring_release(pair.ring);
	batch = drain(RING_DRAIN_LIVE);
	CHECK(batch.is_closed && batch.next == batch.end);
	check_law(&pair.reader.totals);
	pair_done(&pair);
}

/* Lengths that meet the end of the data in every way. */
static void test_laps(void)
{
	uint64_t n = 0, seen = 0;

	REQUIRE(pair_init(&pair, SMALL, 1, RING_DROP));
	for (uint32_t i = 0; i < 20000; i++) {
		uint32_t n_bytes = i % 700;
		struct ring_string *string =
			ring_begin(pair.ring, RING_STRING, sizeof(*string) + n_bytes);
		struct ring_record record;
		struct ring_batch batch;

		REQUIRE(string);
		*string = (struct ring_string){ .id = i, .n_bytes = n_bytes };
		memset(string + 1, (int)i, n_bytes);
		ring_set_flags(string, RING_FLAG_MORE);
		ring_end(pair.ring, string);
		n++;
		for (batch = drain(RING_DRAIN_LIVE); ring_batch_next(&batch, &record); seen++) {
			const struct ring_string *read = record.payload;
			const uint8_t *bytes = (const uint8_t *)(read + 1);

			CHECK_INT(record.n_bytes, sizeof(*read) + n_bytes);
			CHECK_INT(record.flags, RING_FLAG_MORE);
			CHECK(read->id == i &&
			      (n_bytes == 0 ||
			       (bytes[0] == (uint8_t)i && bytes[n_bytes - 1] == (uint8_t)i)));
		}
	}
	CHECK_INT(seen, n);
	CHECK_INT(pair.reader.fault, RING_FAULT_NONE);
	pair_done(&pair);
}

/* A small buffer takes whole records, and the rest later. */
static void test_budget(void)
{
	uint64_t n = 0, last = 0;
	struct ring_batch batch;

	REQUIRE(pair_init(&pair, 1u << 18, 1, RING_DROP));
	for (uint64_t i = 1; i <= 3000; i++)
		CHECK(write_mark(pair.ring, i));
	do {
		ring_reader_drain(&pair.reader, RING_DRAIN_LIVE, pair.buffer, RING_MIN_BUFFER + 4,
				  &batch);
		n += check_marks(&batch, &last);
	} while (batch.is_more && CHECK(batch.bound_ns <= pair.reader.last_ns));
	CHECK_INT(n, 3000);
	pair_done(&pair);
}

static void test_full(void)
{
	struct ring_batch batch;
	uint64_t n = 0, last = 0, room = SMALL / MARK_BYTES;

	REQUIRE(pair_init(&pair, SMALL, 1, RING_DROP));
	for (uint64_t i = 1; i <= 1000; i++)
		n += write_mark(pair.ring, i);
	CHECK_INT(n, room);
	CHECK(!ring_begin(pair.ring, RING_MARK, SMALL));
	CHECK(!ring_begin(pair.ring, RING_MARK, SIZE_MAX));
	/* what only tells of names is no attempt */
	CHECK(!ring_begin(pair.ring, RING_CALLS, SMALL / 8));
	CHECK(!ring_begin(pair.ring, RING_STRING, SMALL));
	batch = drain(RING_DRAIN_LIVE);
	CHECK_INT(check_marks(&batch, &last), room);
	CHECK_INT(pair.reader.totals.lost[RING_LOST_FULL], 1000 - room);
	CHECK_INT(pair.reader.totals.lost[RING_LOST_BIG], 2);
	CHECK_INT(pair.reader.totals.attempted, 1002);
	CHECK(write_mark(pair.ring, 1001));
	ring_release(pair.ring);
	batch = drain(RING_DRAIN_LIVE);
	CHECK_INT(check_marks(&batch, &last), 1);
	CHECK_INT(pair.reader.totals.unpublished, 0);
	check_law(&pair.reader.totals);
	pair_done(&pair);
}

/* ---- Claims ---- */

static void test_recycle(void)
{
	struct ring *second;
	struct ring_batch batch;
	uint64_t last = 0;

	REQUIRE(pair_init(&pair, SMALL, 2, RING_DROP));
	second = ring_claim(pair.arena, 2, 0, 0);
	CHECK(second != NULL && second != pair.ring);
	CHECK(ring_claim(pair.arena, 3, 0, 0) == NULL);
	CHECK(write_mark(pair.ring, 1));
	ring_release(pair.ring);
	CHECK(!write_mark(pair.ring, 2));
	CHECK(ring_claim(pair.arena, 3, 0, 0) == NULL);
	batch = drain(RING_DRAIN_LIVE);
	CHECK_INT(check_marks(&batch, &last), 1);
	REQUIRE(batch.is_closed);
	ring_reader_recycle(&pair.reader);
	pair.ring = ring_claim(pair.arena, 3, 0, 0);
	REQUIRE(pair.ring && write_mark(pair.ring, 3));
	batch = drain(RING_DRAIN_LIVE);
	CHECK_INT(batch.tid, 3);
	CHECK_INT(check_marks(&batch, &last), 1);
	CHECK_INT(pair.reader.totals.clamped, 0);
	CHECK(ring_claim(pair.arena, 4, 2 * SMALL, 0) == NULL);
	pair_done(&pair);
}

static void *claim_many(void *data)
{
	uint64_t n = 0;

	for (int i = 0; i < 10000; i++) {
		struct ring *ring = ring_claim(pair.arena, 7, 0, 0);

		if (!ring)
			continue;
		n += write_mark(ring, (uint64_t)i + 1);
		ring_release(ring);
	}
	*(uint64_t *)data = n;
	return NULL;
}

/* Threads one after another and beside each other in two rings, which one consumer gives back. */
static void test_claims(void)
{
	uint64_t written[2] = { 0 }, read = 0;
	struct ring_reader readers[2];
	struct ring_record record;
	struct ring_batch batch;
	pthread_t ids[2];

	REQUIRE(pair_init(&pair, SMALL, 2, RING_DROP));
	ring_release(pair.ring);
	for (uint32_t i = 0; i < 2; i++) {
		ring_reader_init(&readers[i], &pair.memory, i);
		REQUIRE(pthread_create(&ids[i], NULL, claim_many, &written[i]) == 0);
	}
	for (int i = 0, n_left = 2; n_left > 0; i ^= 1) {
		ring_reader_drain(&readers[i], RING_DRAIN_LIVE, pair.buffer, PAIR_BUFFER, &batch);
		while (ring_batch_next(&batch, &record))
			read++;
		if (batch.is_closed)
			ring_reader_recycle(&readers[i]);
		if (n_left == 2 && pthread_tryjoin_np(ids[0], NULL) == 0)
			n_left--;
		if (n_left == 1 && pthread_tryjoin_np(ids[1], NULL) == 0)
			n_left--;
	}
	for (int i = 0; i < 2; i++) {
		ring_reader_drain(&readers[i], RING_DRAIN_DEAD, pair.buffer, PAIR_BUFFER, &batch);
		while (ring_batch_next(&batch, &record))
			read++;
		CHECK_INT(readers[i].fault, RING_FAULT_NONE);
		CHECK_INT(readers[i].totals.unpublished, 0);
	}
	CHECK_INT(read, written[0] + written[1]);
	pair_done(&pair);
}

/* ---- Lossless ---- */

static void *drain_later(void *data)
{
	uint64_t *n = data, last = 0;

	while (*n == 0 || last < 4 * SMALL / MARK_BYTES) {
		struct ring_batch batch = drain(RING_DRAIN_LIVE);

		*n += check_marks(&batch, &last);
		sched_yield();
	}
	return NULL;
}

/* A consumer that reads: nothing is lost, though it may have to be tried again on a machine that stood still. */
static void test_lossless(void)
{
	uint64_t n = 0, written = 0;
	pthread_t id;

	REQUIRE(pair_init(&pair, SMALL, 1, RING_LOSSLESS));
	REQUIRE(pthread_create(&id, NULL, drain_later, &n) == 0);
	errno = 77;
	for (uint64_t i = 1; i <= 4 * SMALL / MARK_BYTES; i++)
		while (!write_mark(pair.ring, i))
			sched_yield();
	CHECK_INT(errno, 77);
	pthread_join(id, NULL);
	written = 4 * SMALL / MARK_BYTES;
	CHECK_INT(n, written);
	pair_done(&pair);
}

/* A consumer that never reads: one wait, and then none until the tail moves. */
static void test_timeout(void)
{
	uint64_t room = SMALL / MARK_BYTES;

	REQUIRE(pair_init(&pair, SMALL, 1, RING_LOSSLESS));
	errno = 77;
	for (uint64_t i = 1; i <= room + 1000; i++)
		write_mark(pair.ring, i);
	CHECK_INT(errno, 77);
	drain(RING_DRAIN_LIVE);
	CHECK_INT(pair.reader.totals.waits, 1);
	CHECK(pair.reader.totals.waited_ns >= RING_WAIT_NS);
	CHECK_INT(pair.reader.totals.lost[RING_LOST_TIMEOUT], 1);
	CHECK_INT(pair.reader.totals.lost[RING_LOST_FULL], 999);
	for (uint64_t i = 0; i <= room; i++)
		write_mark(pair.ring, i);
	drain(RING_DRAIN_LIVE);
	CHECK_INT(pair.reader.totals.waits, 2);
	ring_add_flags(pair.ring, RING_NO_SYSCALL);
	for (uint64_t i = 0; i <= room; i++)
		write_mark(pair.ring, i);
	drain(RING_DRAIN_LIVE);
	CHECK_INT(pair.reader.totals.waits, 2);
	pair_done(&pair);
}

static uint64_t full_waits(struct ring *ring)
{
	uint64_t before = pair.reader.totals.waits;

	for (uint64_t i = 0; i <= SMALL / MARK_BYTES; i++)
		write_mark(ring, i);
	drain(RING_DRAIN_LIVE);
	return pair.reader.totals.waits - before;
}

/* 1 s of waiting a minute, and whatever is taken and not used is given back. */
static void test_wait_budget(void)
{
	uint64_t n = 0;

	REQUIRE(pair_init(&pair, SMALL, 1, RING_LOSSLESS));
	while (n < 200 && full_waits(pair.ring) == 1)
		n++;
	CHECK(n > 0 && n <= RING_WAIT_BUDGET_NS / RING_WAIT_NS);
	CHECK(pair.reader.totals.waited_ns >= RING_WAIT_NS * n);
	pair_done(&pair);
}

/* What is left for a process is for all of its arenas. */
static void test_shared_budget(void)
{
	struct ring_budget budget = { 0 };
	uint64_t n = 0;

	REQUIRE(pair_init(&pair, SMALL, 1, RING_LOSSLESS));
	ring_arena_set_budget(pair.arena, &budget);
	while (ring_budget_take(&budget, pair.reader.grant_ns))
		n++;
	CHECK_INT(n, RING_WAIT_BUDGET_NS / RING_WAIT_NS);
	CHECK_INT(full_waits(pair.ring), 0);
	ring_budget_return(&budget, 0);
	CHECK_INT(full_waits(pair.ring), 1);
	CHECK_INT(full_waits(pair.ring), 0);
	pair_done(&pair);
}

/* A small ring, claimed, and one that is four times as big. */
static bool pair_init_two(enum ring_policy policy, struct ring_reader *readers)
{
	const struct ring_arena_sizes sizes = { { { SMALL, 1, policy },
						  { 4 * SMALL, 1, policy } } };

	memset(&pair, 0, offsetof(struct pair, buffer));
	if (!CHECK_INT(ring_arena_make(&sizes, &pair.memory, &pair.fd), 0) ||
	    !CHECK_INT(ring_arena_map(pair.fd, &pair.arena), 0))
		return false;
	for (uint32_t i = 0; i < 2; i++)
		ring_reader_init(&readers[i], &pair.memory, i);
	pair.ring = ring_claim(pair.arena, 9, 0, 0);
	return CHECK(pair.ring != NULL);
}

/* A ring that is full is left for a bigger one; what was in it comes first. */
static void check_bigger(enum ring_policy policy)
{
	uint64_t room = SMALL / MARK_BYTES, last = 0;
	struct ring_reader readers[2];
	struct ring_batch batch;

	REQUIRE(pair_init_two(policy, readers));
	for (uint64_t i = 1; i <= 4 * room; i++)
		CHECK(write_mark(pair.ring, i));
	ring_release(pair.ring);
	for (uint32_t i = 0; i < 2; i++) {
		ring_reader_drain(&readers[i], RING_DRAIN_LIVE, pair.buffer, PAIR_BUFFER, &batch);
		CHECK_INT(check_marks(&batch, &last), i == 0 ? room : 3 * room);
		CHECK_INT(batch.tid, 9);
		CHECK(batch.is_closed);
		check_law(&readers[i].totals);
	}
	pair_done(&pair);
}

static void test_bigger(void)
{
	check_bigger(RING_LOSSLESS);
	check_bigger(RING_DROP);
}

/* Four laps of a thread that takes that long for each, and has room always; the last is in that ring. */
static void check_laps(long lap_ms, uint32_t expected)
{
	struct ring_reader readers[2];
	struct ring_batch batch;
	uint64_t last = 0, id = 0, n = 0;
	uint32_t used = 0;

	REQUIRE(pair_init_two(RING_DROP, readers));
	for (int turn = 0; turn < 4 * 8; turn++) {
		if (turn % 8 == 0)
			pause_ms(lap_ms);
		for (uint64_t i = 0; i < SMALL / 8 / MARK_BYTES; i++)
			CHECK(write_mark(pair.ring, ++id));
		for (uint32_t i = 0; i < 2; i++) {
			uint64_t found;

			ring_reader_drain(&readers[i], RING_DRAIN_LIVE, pair.buffer, PAIR_BUFFER,
					  &batch);
			found = check_marks(&batch, &last);
			used = found ? i : used;
			n += found;
		}
	}
	CHECK_INT(n, id);
	CHECK_INT(used, expected);
	for (uint32_t i = 0; i < 2; i++) {
		check_law(&readers[i].totals);
		CHECK_INT(lost_of(&readers[i].totals), 0);
	}
	pair_done(&pair);
}

/* A ring that is filled quickly is left for a bigger one too, so that its consumer is not woken so often. */
static void test_fast(void)
{
	check_laps((long)(RING_LAP_NS / 1000000) + 5, 0);
	check_laps(0, 1);
}

/* ---- The doorbell ---- */

static void test_doorbell(void)
{
	uint32_t *doorbell, before, n_third = SMALL / 3 / MARK_BYTES + 1;

	REQUIRE(pair_init(&pair, SMALL, 1, RING_DROP));
	before = ring_arena_arm(&pair.memory, &doorbell);
	for (uint64_t i = 1; i < n_third; i++)
		CHECK(write_mark(pair.ring, i));
	CHECK_INT(*doorbell, before);
	CHECK(ring_reader_fill(&pair.reader) < SMALL / 3);
	CHECK(write_mark(pair.ring, n_third));
	CHECK(*doorbell != before);
	CHECK(ring_reader_fill(&pair.reader) >= SMALL / 3);
	ring_arena_disarm(&pair.memory);
	pair_done(&pair);
}

/* ---- The bound ---- */

static void test_busy(void)
{
	struct ring_record record;
	struct ring_batch batch;
	struct ring_mark *mark;
	uint64_t published;

	REQUIRE(pair_init(&pair, SMALL, 1, RING_DROP));
	CHECK(write_mark(pair.ring, 1));
	mark = ring_begin(pair.ring, RING_MARK, sizeof(*mark));
	REQUIRE(mark);
	*mark = (struct ring_mark){ .id = 2 };
	batch = drain(RING_DRAIN_LIVE);
	published = pair.reader.last_ns;
	CHECK_INT(batch.bound_ns, published);
	pause_ms(60);
	batch = drain(RING_DRAIN_LIVE);
	CHECK(batch.bound_ns > published + RING_BUSY_NS);
	ring_end(pair.ring, mark);
	batch = drain(RING_DRAIN_LIVE);
	REQUIRE(ring_batch_next(&batch, &record));
	CHECK_INT(record.verdict, RING_RECORD_LATE);
	CHECK(record.time_ns > published);
	CHECK_INT(pair.reader.totals.late, 1);
	pair_done(&pair);
}

/* ---- Conservation ---- */

struct writer {
	struct ring *ring;
	uint64_t n_null;
};

static void *write_all(void *data)
{
	struct writer *writer = data;

	for (uint64_t i = 1; i <= PER_THREAD; i++)
		writer->n_null += !write_mark(writer->ring, i);
	ring_release(writer->ring);
	return NULL;
}

/* Merges as the engine does: what is not marked late is never before what was merged. */
static void check_order(struct ring_batch *batch, uint64_t merged_ns)
{
	struct ring_record record;
	uint64_t last = 0;

	while (ring_batch_next(batch, &record)) {
		const struct ring_mark *mark = record.payload;

		CHECK((record.verdict & RING_RECORD_LATE) || record.time_ns >= merged_ns);
		CHECK(mark->id > last && mark->duration_ns == ~mark->id);
		last = mark->id;
	}
}

static void check_conservation(enum ring_policy policy)
{
	struct writer writers[N_THREADS] = { { pair.ring, 0 } };
	struct ring_reader readers[N_THREADS];
	pthread_t ids[N_THREADS];
	uint64_t merged_ns = 0;
	uint32_t open = 0;

	for (uint32_t i = 0; i < N_THREADS; i++) {
		ring_reader_init(&readers[i], &pair.memory, i);
		if (i > 0)
			writers[i].ring = ring_claim(pair.arena, i, 0, 0);
		REQUIRE(writers[i].ring);
		REQUIRE(pthread_create(&ids[i], NULL, write_all, &writers[i]) == 0);
		open |= 1u << i;
	}
	while (open != 0) {
		uint64_t bound_ns = UINT64_MAX;

		for (uint32_t i = 0; i < N_THREADS; i++) {
			struct ring_batch batch;

			ring_reader_drain(&readers[i], RING_DRAIN_LIVE, pair.buffer, PAIR_BUFFER,
					  &batch);
			check_order(&batch, merged_ns);
			bound_ns = MIN_OF(bound_ns, batch.bound_ns);
			if (batch.is_closed || readers[i].fault != RING_FAULT_NONE)
				open &= ~(1u << i);
		}
		merged_ns = MAX_OF(merged_ns, bound_ns);
	}
	for (uint32_t i = 0; i < N_THREADS; i++) {
		pthread_join(ids[i], NULL);
		CHECK_INT(readers[i].fault, RING_FAULT_NONE);
		CHECK_INT(readers[i].totals.attempted, PER_THREAD);
		CHECK_INT(lost_of(&readers[i].totals), writers[i].n_null);
		CHECK_INT(readers[i].totals.unpublished, 0);
		CHECK_INT(readers[i].totals.clamped, 0);
		check_law(&readers[i].totals);
		CHECK(policy == RING_LOSSLESS || readers[i].totals.waits == 0);
	}
}

static void test_conservation_drop(void)
{
	REQUIRE(pair_init(&pair, 1u << 16, N_THREADS, RING_DROP));
	check_conservation(RING_DROP);
	pair_done(&pair);
}

static void test_conservation_lossless(void)
{
	REQUIRE(pair_init(&pair, 1u << 16, N_THREADS, RING_LOSSLESS));
	check_conservation(RING_LOSSLESS);
	pair_done(&pair);
}

/* ---- A producer that lies ---- */

struct lie {
	const char *name;
	uint32_t bytes;
	uint16_t type;
	uint32_t counts[2]; /* the first words of the payload */
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

/* A good record, and then one that lies. */
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

static void check_head(uint64_t head, enum ring_fault fault)
{
	REQUIRE(pair_init(&pair, SMALL, 1, RING_DROP));
	CHECK(write_mark(pair.ring, 1));
	drain(RING_DRAIN_LIVE);
	pair.header->head = head;
	drain(RING_DRAIN_LIVE);
	CHECK_INT(pair.reader.fault, fault);
	pair_done(&pair);
}

static void test_positions(void)
{
	check_head(MARK_BYTES, RING_FAULT_NONE);
	check_head(MARK_BYTES + 4, RING_FAULT_POSITION);
	check_head(0, RING_FAULT_POSITION);
	check_head(MARK_BYTES + SMALL + 8, RING_FAULT_POSITION);
	check_head(UINT64_MAX & ~UINT64_C(7), RING_FAULT_POSITION);
	check_head(MARK_BYTES + SMALL, RING_FAULT_LENGTH); /* of what was never written */
}

/* A record that goes on at the start of the data. */
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

static void check_state(uint64_t state, enum ring_fault fault)
{
	REQUIRE(pair_init(&pair, SMALL, 1, RING_DROP));
	CHECK(write_mark(pair.ring, 1));
	drain(RING_DRAIN_LIVE);
	pair.header->state = state;
	drain(RING_DRAIN_LIVE);
	CHECK_INT(pair.reader.fault, fault);
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

/* Whatever the time is that a record says, it is one between the grant and the drain, and none goes back. */
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

/* Lengths that change while they are read: nothing leads out of the copy, which is what the sanitizer looks at. */
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

/* ---- A consumer that lies ---- */

/* Whatever the tail says, what is written stays in the ring. */
static void test_hostile_consumer(void)
{
	const uint64_t tails[] = { UINT64_MAX, 8, UINT64_C(1) << 63, SMALL * 2, (uint64_t)-SMALL };
	const uint64_t unclaimed = UINT64_C(0x5a5a5a5a5a5a5a5a);
	uint8_t *behind;

	REQUIRE(pair_init(&pair, SMALL, 2, RING_DROP));
	behind = pair.memory.base + pair.memory.places[1].data_offset;
	memcpy(behind, &unclaimed, sizeof(unclaimed));
	for (size_t i = 0; i < ARRAY_SIZE(tails); i++) {
		pair.header->tail = tails[i];
		pair.header->head = tails[i];
		for (uint64_t j = 0; j < 1000; j++)
			write_mark(pair.ring, j);
	}
	CHECK(memcmp(behind, &unclaimed, sizeof(unclaimed)) == 0);
	pair_done(&pair);
}

/* What is lost before anything is done for it: as long as it would be, counted as it would be. */
static void test_known_full(void)
{
	struct ring_batch batch;
	size_t bytes = sizeof(struct ring_mark);
	uint64_t n = 1, last = 0;

	REQUIRE(pair_init(&pair, 4096, 1, RING_DROP));
	CHECK(!ring_is_full(pair.ring, bytes));
	while (write_mark(pair.ring, n))
		n++;
	for (int i = 0; i < 10; i++)
		CHECK(ring_is_full(pair.ring, bytes));
	/* Something smaller may fit. */
	CHECK(!ring_is_full(pair.ring, bytes - 8));
	ring_reader_drain(&pair.reader, RING_DRAIN_LIVE, pair.buffer, PAIR_BUFFER, &batch);
	CHECK_INT(check_marks(&batch, &last), n - 1);
	CHECK_INT(pair.reader.totals.lost[RING_LOST_FULL], 11);
	CHECK(check_law(&pair.reader.totals));
	CHECK(!ring_is_full(pair.ring, bytes));
	CHECK(write_mark(pair.ring, n));
	pair_done(&pair);
}

/* ---- Ticks ---- */

/* A counter that is twice as fast as the clock. */
static struct tick_reading read_made_up(void *data)
{
	uint64_t *ns = data, now = ring_now_ns();

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

/* What an arena offers is what its rings have; what one says of its times is believed only then. */
static void test_ticks(void)
{
	uint64_t last = 0, now;
	struct tick_clock *clock = tick_clock_new_of(read_made_up, &last);
	const struct ring_realloc *moved;
	struct ring_record record;
	struct ring_batch batch;

	REQUIRE(clock && pair_init(&pair, SMALL, 1, RING_DROP));
	pause_ms(2);
	now = ring_now_ns();
	ring_reader_take_ticks(&pair.reader, clock);
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
	ring_reader_take_ticks(&pair.reader, NULL);
	write_realloc(now * 2, 7, RING_FLAG_TICKS);
	batch = drain(RING_DRAIN_LIVE);
	REQUIRE(ring_batch_next(&batch, &record));
	CHECK_INT(record.verdict, RING_RECORD_CLAMPED);
	CHECK_INT(((const struct ring_realloc *)record.payload)->duration_ns, 0);
	pair_done(&pair);
	tick_clock_free(clock);
}

/* The end of a realloc is not after the drain, and not after what its thread did then, as to give up its block. */
static void test_ends(void)
{
	const uint64_t second = UINT64_C(1000000000);
	const struct ring_realloc *moved;
	struct ring_record record;
	struct ring_batch batch;
	uint64_t now, end;

	REQUIRE(pair_init(&pair, SMALL, 1, RING_DROP));
	pause_ms(1);
	now = ring_now_ns();
	write_realloc(now, second, 0);
	write_realloc(now + 5, 0, 0); /* a handler's, amid */
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
	/* which is the last one by now, so that the one behind it is not before the first */
	REQUIRE(ring_batch_next(&batch, &record));
	CHECK(record.time_ns >= end);
	pair_done(&pair);
}

/* Ticks that read as a bit later than the drain stay what they are: another ring's may be between. */
static void test_ticks_ahead(void)
{
	uint64_t last = 0, now;
	struct tick_clock *clock = tick_clock_new_of(read_made_up, &last);
	struct ring_record first, second;
	struct ring_batch batch;

	REQUIRE(clock && pair_init(&pair, SMALL, 1, RING_DROP));
	pause_ms(2);
	ring_reader_take_ticks(&pair.reader, clock);
	(void)tick_clock_ns(clock, ring_now_ns() * 2);
	now = ring_now_ns();
	write_realloc((now + 600000) * 2, 0, RING_FLAG_TICKS);
	write_realloc((now + 600100) * 2, 0, RING_FLAG_TICKS);
	while (ring_now_ns() < now + 599200)
		;
	batch = drain(RING_DRAIN_LIVE);
	REQUIRE(ring_batch_next(&batch, &first) && ring_batch_next(&batch, &second));
	CHECK_INT(first.verdict | second.verdict, 0);
	CHECK(first.time_ns < second.time_ns);
	pair_done(&pair);
	tick_clock_free(clock);
}

/* What a ring of this machine says in ticks is what the clock says. */
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
	ring_reader_take_ticks(&pair.reader, clock);
	pair.ring = ring_claim(pair.arena, 1, 0, 0);
	for (int i = 0; i < 100; i++) {
		before = ring_now_ns();
		CHECK(write_mark(pair.ring, 1));
		after = ring_now_ns();
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
	RUN(test_arena);
	RUN(test_sizes);
	RUN(test_map);
	RUN(test_order);
	RUN(test_laps);
	RUN(test_budget);
	RUN(test_full);
	RUN(test_recycle);
	RUN(test_claims);
	RUN(test_lossless);
	RUN(test_timeout);
	RUN(test_wait_budget);
	RUN(test_shared_budget);
	RUN(test_bigger);
	RUN(test_fast);
	RUN(test_doorbell);
	RUN(test_busy);
	RUN(test_conservation_drop);
	RUN(test_conservation_lossless);
	RUN(test_hostile);
	RUN(test_positions);
	RUN(test_wrapped);
	RUN(test_states);
	RUN(test_counts);
	RUN(test_times);
	RUN(test_changing);
	RUN(test_hostile_consumer);
	RUN(test_known_full);
	RUN(test_ticks);
	RUN(test_ticks_ahead);
	RUN(test_ends);
	RUN(test_real_ticks);
	return test_end();
}
