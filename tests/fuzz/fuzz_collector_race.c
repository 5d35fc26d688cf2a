/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of the engine's handling of a collector's arena to which another thread writes
 * meanwhile: from libcollector/ring/ring-reader.c through collector-peer.c to rows in
 * collector-rows.c and in alloc-decoder.c.
 *
 * The input is a list of steps (race.h). Rings are filled with the records, one after another. One
 * ring is honest, and must be read as if it were alone.
 */
#include "tests/fuzz/race.h"

#define HONEST 31u /* the last of the small rings */
#define HONEST_MARKS 10u
#define DRAINS 3

enum { STEP_RECORD = RACE_RECORD, STEP_DATA, STEP_HEADER, STEP_ARENA, N_STEPS };

static const struct ring_arena_memory *memory;

/* Plans a record. The step's `at` has the record's flags. */
static void plan_record(const struct race_step *step, const uint8_t *payload, size_t n)
{
	struct ring_record_header header = { .bytes = (uint32_t)(sizeof(header) + n),
					     .type = step->type,
					     .flags = step->at };

	if (step->value)
		header.bytes = (uint32_t)step->value;
	race_put(&header, sizeof(header), payload, n);
}

/* ---- The process's side ---- */

static struct ring_header *header_of(uint32_t ring)
{
	return (void *)(memory->base + memory->places[ring].header_offset);
}

static uint8_t *data_of(uint32_t ring)
{
	return memory->base + memory->places[ring].data_offset;
}

/* Changes a word. Words of data have 4 bytes, like the lengths of records. Changes in headers are
 * not undone, because each ring has its own header. */
static void change(const struct race_word *word, uint32_t ring, bool back)
{
	uint32_t at = word->at % (RACE_BYTES / 4) * 4;
	uint64_t *place;

	if (word->kind == STEP_DATA) {
		__atomic_store_n((uint32_t *)(void *)(data_of(ring) + at),
				 back ? race_planned(at) : (uint32_t)word->value, __ATOMIC_RELAXED);
		return;
	}
	place = word->kind == STEP_HEADER ? (void *)header_of(ring) : (void *)memory->base;
	place += word->at % (RING_LINE * 3 / sizeof(*place));
	if (!back)
		__atomic_store_n(place, word->value, __ATOMIC_RELAXED);
}

static void publish(uint32_t ring, uint32_t n_bytes, uint32_t n_records)
{
	struct ring_header *header = header_of(ring);

	header->tid = (uint32_t)getpid();
	header->attempted = n_records;
	header->state = UINT64_C(1) << 32 | RING_OWNED;
	__atomic_store_n(&header->head, n_bytes, __ATOMIC_RELEASE);
}

static void fill_honestly(uint32_t ring)
{
	for (uint64_t i = 0; i < HONEST_MARKS; i++) {
		struct {
			struct ring_record_header header;
			struct ring_mark mark;
		} record = { { sizeof(record), RING_MARK, 0, race_now() }, { .id = i } };

		memcpy(data_of(ring) + i * sizeof(record), &record, sizeof(record));
		publish(ring, (uint32_t)((i + 1) * sizeof(record)), (uint32_t)i + 1);
	}
}

/* ---- The engine's side ---- */

/* Connects. Returns the process's end of the connection. */
static int open_peer(void)
{
	const struct message_peer message = { .pid = getpid() };
	int sockets[2];
	const struct peer *peer;

	race_must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0);
	collectors_add_peer(&race.collectors, &message, sockets[1], pidfd_open(getpid(), 0),
			    race_now());
	peer = g_ptr_array_index(race.collectors.peers, 0);
	collectors_serve(&race.collectors, race_now(), race_now());
	race_must(peer->n_arenas == 1);
	memory = &peer->arenas[0]->memory;
	return sockets[0];
}

static void fill_all(void)
{
	fill_honestly(HONEST);
	race_start();
	for (uint32_t ring = 0; ring < HONEST; ring++) {
		memcpy(data_of(ring), race.plan.records, race.plan.n_bytes);
		/* The other thread reaches this ring while the previous one is being drained. */
		race_go_to(ring);
		race_drain(race_now());
		publish(ring, race.plan.n_bytes, race.plan.n_records);
		for (int i = 0; i < DRAINS; i++)
			race_drain(race_now());
	}
	race_end();
}

static void check_honest(void)
{
	const struct peer *peer = g_ptr_array_index(race.collectors.peers, 0);
	const struct ring_reader *honest = &peer->arenas[0]->rings[HONEST].reader;

	race_must(honest->fault == RING_FAULT_NONE && honest->totals.records == HONEST_MARKS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct race_kinds kinds = { N_STEPS, plan_record, change };
	int fd;

	race_open(data, size, &kinds);
	fd = open_peer();
	fill_all();
	check_honest();
	race_finish();
	race_must(race.collectors.rows->text_bytes <= COLLECTOR_PROCESS_TEXT + RACE_BYTES);
	race_close();
	close(fd);
	return 0;
}
