/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of daemon/engine/perf/ring.c and ring-merge.c with rings in memory: order, wrapped
 * records, false lengths and merging.
 */
#include "daemon/engine/perf/ring-merge.h"
#include "daemon/engine/perf/ring.h"
#include "tests/unit/engine.h"

#define RING_BYTES 4096

struct memory {
	struct perf_event_mmap_page control;
	_Alignas(8) uint8_t data[RING_BYTES];
	struct ring ring;
};

static void memory_init(struct memory *memory, uint64_t position)
{
	memset(memory, 0, sizeof(*memory));
	memory->control.data_head = memory->control.data_tail = position;
	ring_init_memory(&memory->ring, &memory->control, memory->data, RING_BYTES);
}

/* Writes like the kernel: first the bytes, which may wrap around the end, then the head. */
static void memory_write(struct memory *memory, const void *bytes, size_t length)
{
	const uint8_t *from = bytes;
	size_t i;

	for (i = 0; i < length; i++)
		memory->data[(memory->control.data_head + i) % RING_BYTES] = from[i];
	memory->control.data_head += length;
}

static void write_comm(struct memory *memory, const char *name, uint64_t time_ns)
{
	struct bytes bytes = { .length = 0 };

	put_comm(&bytes, 5, name, false, time_ns);
	memory_write(memory, bytes.data, bytes.length);
}

static const char *name_in(const struct perf_event_header *record)
{
	return (const char *)record + sizeof(*record) + 8;
}

static void test_order(void)
{
	const struct perf_event_header *record;
	struct memory memory;

	memory_init(&memory, 0);
	write_comm(&memory, "one", 1);
	write_comm(&memory, "two", 2);
	CHECK_INT(ring_peek(&memory.ring, &record), RING_EMPTY);
	ring_load(&memory.ring);
	CHECK_INT(ring_peek(&memory.ring, &record), RING_RECORD);
	CHECK_STR(name_in(record), "one");
	ring_skip(&memory.ring, record);
	CHECK_INT(ring_peek(&memory.ring, &record), RING_RECORD);
	CHECK_STR(name_in(record), "two");
	ring_skip(&memory.ring, record);
	CHECK_INT(ring_peek(&memory.ring, &record), RING_EMPTY);
	CHECK_INT(memory.control.data_tail, 0);
	ring_release_skipped(&memory.ring);
	CHECK(memory.control.data_tail == memory.control.data_head);
	ring_done(&memory.ring);
}

/* Starts at positions close to the end of the ring and to 2^64. */
static void test_wrapped(void)
{
	static const uint64_t starts[] = { RING_BYTES - 8, RING_BYTES - 40, UINT64_MAX - 15 };
	const struct perf_event_header *record;
	struct memory memory;
	size_t i;

	for (i = 0; i < G_N_ELEMENTS(starts); i++) {
		memory_init(&memory, starts[i]);
		write_comm(&memory, "a name that is long", 1);
		ring_load(&memory.ring);
		REQUIRE(ring_peek(&memory.ring, &record) == RING_RECORD);
		CHECK_STR(name_in(record), "a name that is long");
		ring_skip(&memory.ring, record);
		CHECK_INT(ring_peek(&memory.ring, &record), RING_EMPTY);
		ring_done(&memory.ring);
	}
}

/*
 * If a stack is at the end of the address space, the kernel does not round the size of its copy. So
 * later records are unaligned.
 */
static void test_odd(void)
{
	static const size_t lengths[] = { 13, 500, 4, 701, 16, 3, 2810 };
	struct perf_event_header header = { .type = PERF_RECORD_SAMPLE };
	const struct perf_event_header *record;
	uint8_t body[4096];
	struct memory memory;
	size_t i, k;

	for (i = 0; i < sizeof(body); i++)
		body[i] = (uint8_t)(i * 7);
	memory_init(&memory, 0);
	for (k = 0; k < 100 * G_N_ELEMENTS(lengths); k++) {
		size_t length = lengths[k % G_N_ELEMENTS(lengths)];

		header.size = (uint16_t)(sizeof(header) + length);
		memory_write(&memory, &header, sizeof(header));
		memory_write(&memory, body, length);
		ring_load(&memory.ring);
		REQUIRE(ring_peek(&memory.ring, &record) == RING_RECORD);
		CHECK_INT((uintptr_t)record % 8, 0);
		CHECK_INT(record->size, header.size);
		CHECK(memcmp(record + 1, body, length) == 0);
		ring_skip(&memory.ring, record);
		CHECK_INT(ring_peek(&memory.ring, &record), RING_EMPTY);
	}
	ring_done(&memory.ring);
}

static void check_corrupt(uint16_t size, uint64_t available)
{
	const struct perf_event_header header = { .type = PERF_RECORD_COMM, .size = size };
	const struct perf_event_header *record;
	struct memory memory;

	memory_init(&memory, 0);
	memcpy(memory.data, &header, sizeof(header));
	memory.control.data_head = available;
	ring_load(&memory.ring);
	CHECK_INT(ring_peek(&memory.ring, &record), RING_CORRUPT);
	CHECK_INT(ring_peek(&memory.ring, &record), RING_EMPTY);
	ring_done(&memory.ring);
}

static void test_hostile(void)
{
	check_corrupt(0, 64);
	check_corrupt(4, 64);
	check_corrupt(72, 64);
	check_corrupt(65528, 64);
	check_corrupt(64, RING_BYTES + 64);
	check_corrupt(64, UINT64_MAX - 7);
	check_corrupt(8, 4);
}

struct seen {
	char names[64];
	unsigned int late, corrupt;
};

static void on_record(const struct ring_merge_input *input, bool late, void *data)
{
	struct seen *seen = data;

	g_strlcat(seen->names, name_in(input->record), sizeof(seen->names));
	seen->late += late;
}

static void on_corrupt(const struct ring_merge_input *input, void *data)
{
	((struct seen *)data)->corrupt++;
}

static void on_finalize(void *data)
{
}

static void start_round(struct ring_merge *merge, struct seen *seen)
{
	*seen = (struct seen){ 0 };
	ring_merge_init(merge, &(struct ring_merge_handlers){ .record = on_record,
							      .corrupt = on_corrupt,
							      .finalize = on_finalize,
							      .data = seen });
}

static void test_merge(void)
{
	struct memory a, b, c;
	struct ring_merge merge;
	struct seen seen;

	memory_init(&a, 0);
	memory_init(&b, 128);
	memory_init(&c, 8);
	start_round(&merge, &seen);
	ring_merge_add_ring(&merge, &a.ring, &a, false);
	ring_merge_add_ring(&merge, &b.ring, &b, true);
	ring_merge_add_ring(&merge, &c.ring, &c, true);
	write_comm(&a, "A", 100);
	write_comm(&a, "D", 400);
	write_comm(&a, "F", 600);
	write_comm(&b, "B", 200);
	write_comm(&b, "E", 600); /* at equal times, the side band comes before a sample */
	write_comm(&c, "C", 300);
	ring_merge_run(&merge, 1000);
	CHECK_STR(seen.names, "ABCDEF");
	CHECK_INT(seen.late, 0);
	CHECK(a.control.data_tail == a.control.data_head);
	ring_merge_done(&merge);
}

static void test_limit(void)
{
	struct memory a, b;
	struct ring_merge merge;
	struct seen seen;

	memory_init(&a, 0);
	memory_init(&b, 0);
	start_round(&merge, &seen);
	ring_merge_add_ring(&merge, &a.ring, &a, false);
	ring_merge_add_ring(&merge, &b.ring, &b, true);
	write_comm(&a, "A", 100);
	write_comm(&a, "C", 300);
	write_comm(&b, "B", 200);
	ring_merge_run(&merge, 150);
	CHECK_STR(seen.names, "A");
	ring_merge_run(&merge, 250);
	CHECK_STR(seen.names, "AB");
	ring_merge_run(&merge, UINT64_MAX);
	CHECK_STR(seen.names, "ABC");
	ring_merge_done(&merge);
}

/* A ring counts as filled until its records are handled. */
static void test_filled(void)
{
	struct memory a, b;
	struct ring_merge merge;
	struct seen seen;

	memory_init(&a, RING_BYTES - 8);
	memory_init(&b, 0);
	start_round(&merge, &seen);
	CHECK(!ring_merge_is_filled(&merge));
	ring_merge_add_ring(&merge, &a.ring, &a, false);
	ring_merge_add_ring(&merge, &b.ring, &b, true);
	while (b.control.data_head < RING_BYTES / 8) {
		CHECK(!ring_merge_is_filled(&merge));
		write_comm(&b, "B", 100);
	}
	CHECK(ring_merge_is_filled(&merge));
	ring_merge_run(&merge, 50);
	CHECK(ring_merge_is_filled(&merge));
	ring_merge_run(&merge, UINT64_MAX);
	CHECK(!ring_merge_is_filled(&merge));
	ring_merge_done(&merge);
}

static void test_late(void)
{
	struct memory a, b;
	struct ring_merge merge;
	struct seen seen;

	memory_init(&a, 0);
	memory_init(&b, 0);
	start_round(&merge, &seen);
	ring_merge_add_ring(&merge, &a.ring, &a, false);
	ring_merge_add_ring(&merge, &b.ring, &b, true);
	write_comm(&a, "A", 5 * RING_MERGE_SLACK_NS);
	ring_merge_run(&merge, UINT64_MAX);
	write_comm(&b, "B", 5 * RING_MERGE_SLACK_NS - 10);
	write_comm(&b, "C", RING_MERGE_SLACK_NS);
	ring_merge_run(&merge, UINT64_MAX);
	CHECK_STR(seen.names, "ABC");
	CHECK_INT(seen.late, 1);
	ring_merge_done(&merge);
}

static void test_corrupt(void)
{
	struct memory a, b;
	struct ring_merge merge;
	struct seen seen;

	memory_init(&a, 0);
	memory_init(&b, 0);
	start_round(&merge, &seen);
	ring_merge_add_ring(&merge, &a.ring, &a, false);
	ring_merge_add_ring(&merge, &b.ring, &b, true);
	memory_write(&a, "\0\0\0\0\0\0\0\0garbage", 16);
	write_comm(&b, "B", 10);
	ring_merge_run(&merge, UINT64_MAX);
	CHECK_STR(seen.names, "B");
	CHECK_INT(seen.corrupt, 1);
	write_comm(&a, "A", 20);
	ring_merge_run(&merge, UINT64_MAX);
	CHECK_STR(seen.names, "BA");
	ring_merge_remove_owner(&merge, &a);
	write_comm(&a, "X", 30);
	write_comm(&b, "C", 40);
	ring_merge_run(&merge, UINT64_MAX);
	CHECK_STR(seen.names, "BAC");
	ring_merge_done(&merge);
}

/* Records that are kept for later checks. */
struct kept {
	const struct memory *memory;
	const struct perf_event_header *records[RING_BYTES / 16];
	size_t n, n_finalized, n_turns;
	uint64_t tail;
};

static void keep(const struct ring_merge_input *input, bool late, void *data)
{
	struct kept *kept = data;

	if (kept->n == 0)
		kept->tail = kept->memory->control.data_tail;
	kept->records[kept->n++] = input->record;
}

static void look_at_kept(void *data)
{
	struct kept *kept = data;

	CHECK(kept->n == 0 || kept->memory->control.data_tail == kept->tail);
	for (size_t i = 0; i < kept->n; i++)
		CHECK_INT(atoi(name_in(kept->records[i])), kept->n_finalized + i);
	kept->n_finalized += kept->n;
	kept->n_turns += kept->n > 0;
	kept->n = 0;
}

static void check_finalize(uint64_t start, size_t in_turn)
{
	const size_t n = RING_BYTES / 128;
	struct memory memory;
	struct kept kept = { .memory = &memory };
	struct ring_merge merge;

	memory_init(&memory, start);
	ring_merge_init(&merge, &(struct ring_merge_handlers){ .record = keep,
							       .corrupt = on_corrupt,
							       .finalize = look_at_kept,
							       .data = &kept });
	ring_merge_add_ring(&merge, &memory.ring, &memory, false);
	for (size_t i = 0; i < 8 * n; i++) {
		char name[8];

		g_snprintf(name, sizeof(name), "%zu", i);
		write_comm(&memory, name, i + 1);
		if (i % n == n - 1)
			ring_merge_run(&merge, UINT64_MAX);
	}
	CHECK_INT(kept.n_finalized, 8 * n);
	CHECK(kept.n_turns >= 8 * n / in_turn);
	ring_merge_done(&merge);
	ring_done(&memory.ring);
}

/* Records that are kept stay in the ring, up to an eighth of its size. An unaligned record is
 * copied to the only buffer, so just one can be kept. */
static void test_finalize(void)
{
	check_finalize(0, RING_BYTES / 8 / 32);
	check_finalize(4, 1);
}

int main(void)
{
	RUN(test_order);
	RUN(test_wrapped);
	RUN(test_odd);
	RUN(test_hostile);
	RUN(test_merge);
	RUN(test_limit);
	RUN(test_filled);
	RUN(test_late);
	RUN(test_corrupt);
	RUN(test_finalize);
	return test_end();
}
