/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of ring.c, ring-arena.c, ring-map.c and ring-reader.c in libcollector/ring: every record
 * is read or counted. test-ring-full.c has full rings, test-ring-reader.c producers that lie, and
 * test-ring-interrupted.c interrupted records.
 */
#include "config.h"
#include "tests/unit/ring-pair.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define N_THREADS 8
#define PER_THREAD (PROF_SANITIZED ? 25000u : 1250000u)

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

static uint64_t count_blocks(int fd)
{
	struct stat status;

	return CHECK_INT(fstat(fd, &status), 0) ? (uint64_t)status.st_blocks * 512 : 0;
}

/* A larger ring can be claimed only when all of its memory is populated. */
static void test_grow(void)
{
	const struct ring_arena_sizes sizes = { { { SMALL, 2, RING_DROP },
						  { 16 * SMALL, 2, RING_DROP },
						  { 256 * SMALL, 1, RING_DROP } },
						.n_later = 2 };
	struct ring_arena_memory memory;
	struct ring_reader reader;
	struct ring_arena *arena;
	uint64_t n_blocks;
	int fd;

	REQUIRE(CHECK_INT(ring_arena_make(&sizes, &memory, &fd), 0));
	CHECK_INT(memory.n_places, 5);
	if (memory.n_rings == 5)
		return; /* not supported by this kernel */
	CHECK_INT(memory.n_rings, 2);
	n_blocks = count_blocks(fd);
	CHECK(n_blocks < 16 * SMALL);
	REQUIRE(CHECK_INT(ring_arena_map(fd, &arena), 0));
	CHECK_INT(ring_arena_count_free(arena), 5);
	CHECK(!ring_claim(arena, 1, 2 * SMALL, 0));
	ring_arena_grow(&memory);
	CHECK_INT(memory.n_rings, 3);
	CHECK(!ring_claim(arena, 1, 2 * SMALL, 0));
	CHECK(count_blocks(fd) >= n_blocks + 16 * SMALL && count_blocks(fd) < memory.bytes);
	ring_reader_init(&reader, &memory, 2);
	ring_reader_recycle(&reader);
	CHECK(ring_claim(arena, 1, 2 * SMALL, 0));
	CHECK(!ring_claim(arena, 1, 2 * SMALL, 0));
	ring_arena_grow(&memory);
	CHECK_INT(memory.n_rings, 4);
	/* a large ring, in pieces */
	for (unsigned n = 256 * SMALL / RING_ARENA_PIECE; n > 0; n--) {
		CHECK_INT(memory.n_rings, 4);
		n_blocks = count_blocks(fd);
		ring_arena_grow(&memory);
		CHECK(count_blocks(fd) - n_blocks <= RING_ARENA_PIECE);
	}
	CHECK_INT(memory.n_rings, 5);
	CHECK_INT(count_blocks(fd), memory.bytes);
	ring_arena_grow(&memory);
	CHECK_INT(memory.n_rings, 5);
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

/* The producer accepts only a mapping whose use cannot raise a signal. */
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

/* Stores the flags that /proc/self/smaps shows for the mapping at `start`. */
static void read_flags(const void *start, char *ret_flags, size_t size)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	char line[4352];
	bool is_there = false;

	ret_flags[0] = 0;
	if (!CHECK(file))
		return;
	while (ret_flags[0] == 0 && fgets(line, sizeof(line), file)) {
		unsigned long from, to;

		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			is_there = from == (uintptr_t)start;
		else if (is_there && strncmp(line, "VmFlags:", 8) == 0)
			snprintf(ret_flags, size, "%.*s", (int)size - 1, line + 8);
	}
	fclose(file);
}

/* Neither a child nor a core dump has the arena. */
static void test_kept_out(void)
{
	char flags[256];
	size_t bytes;
	void *start;

	REQUIRE(pair_init(&pair, SMALL, 1, RING_DROP));
	ring_arena_range(pair.arena, &start, &bytes);
	read_flags(start, flags, sizeof(flags));
	CHECK(strstr(flags, " dc") != NULL);
	CHECK(strstr(flags, " dd") != NULL);
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

/* String records with 0 to 699 bytes of text are read, wherever they meet the end of the data. */
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

/* A small buffer gets whole records; the rest is read later. */
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

/* Two threads repeatedly claim and release the two rings of an arena, while one consumer drains and
 * recycles them. */
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

/* Merges like the engine: a record not marked as late is never before the merged ones. */
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

/* ---- A consumer that lies ---- */

/* Whatever the tail is, the producer writes only inside of the ring. */
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

/* A header that changes after the arena was mapped does not move the directory. */
static void test_changed_header(void)
{
	struct ring_arena_header *header;
	struct ring *ring;

	REQUIRE(pair_init(&pair, SMALL, 2, RING_LOSSLESS));
	header = (void *)pair.memory.base;
	header->directory_offset = UINT32_MAX & ~7u;
	header->n_rings = UINT16_MAX;
	CHECK(ring_arena_is_lossless(pair.arena));
	ring = ring_claim(pair.arena, 1, 0, 0);
	CHECK(ring != NULL);
	ring_release(ring);
	pair_done(&pair);
}

int main(void)
{
	RUN(test_arena);
	RUN(test_grow);
	RUN(test_sizes);
	RUN(test_map);
	RUN(test_kept_out);
	RUN(test_order);
	RUN(test_laps);
	RUN(test_budget);
	RUN(test_recycle);
	RUN(test_claims);
	RUN(test_doorbell);
	RUN(test_busy);
	RUN(test_conservation_drop);
	RUN(test_conservation_lossless);
	RUN(test_hostile_consumer);
	RUN(test_changed_header);
	return test_end();
}
