/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of libcollector/ring/ring-reader.c: any contents of the shared memory. The input is a
 * series of drains, each with the kind of drain, the words of the ring's header, and bytes that
 * overwrite the data.
 */
#include "libcollector/ring/ring-reader.h"

#include <stdlib.h>

#define RING_SIZE 4096u
#define STEP_BYTES 64u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct ring_arena_memory memory;
static volatile uint64_t sum;

/* The words of the header; the data follows. */
struct step {
	/* bit 0: drain as dead, 1: recycle, 2: a small buffer, 3: keep the ring's header */
	uint8_t how;
	uint8_t n_words; /* number of data words, 8 bytes each */
	uint16_t at;     /* offset of the first data word, rounded down to 8 bytes */
	uint32_t busy;   /* lower half: `busy`; upper half: `waiting` */
	uint64_t state, head, attempted;
	uint64_t lost[RING_N_LOST];
};
_Static_assert(sizeof(struct step) == STEP_BYTES, "step");

/* Returns a reading that is one millisecond later each time. */
static struct tick_reading read_made_up(void *data)
{
	uint64_t *ms = data;

	++*ms;
	return (struct tick_reading){ *ms * 3000000, *ms * 1000000 };
}

static void read_all(struct ring_batch *batch)
{
	struct ring_record record;

	while (ring_batch_next(batch, &record)) {
		const uint8_t *bytes = record.payload;

		sum += record.time_ns + record.verdict;
		for (uint32_t i = 0; i < record.n_bytes; i++)
			sum += bytes[i];
	}
}

/* Each drain has a new buffer, so that a sanitizer detects reads past its end. */
static void drain(struct ring_reader *reader, const struct step *step)
{
	size_t n_bytes = step->how & 4 ? 520 : RING_MIN_BUFFER;
	uint8_t *buffer = malloc(n_bytes);
	struct ring_batch batch;

	if (!buffer)
		abort();
	ring_reader_drain(reader, step->how & 1 ? RING_DRAIN_DEAD : RING_DRAIN_LIVE, buffer,
			  n_bytes, &batch);
	read_all(&batch);
	free(buffer);
	sum += ring_reader_fill(reader) + (uint8_t)ring_fault_name(reader->fault)[0];
	if (step->how & 2)
		ring_reader_recycle(reader);
}

static void write_step(struct ring_header *header, const struct step *step)
{
	if (step->how & 8)
		return;
	header->state = step->state;
	header->head = step->head;
	header->busy = step->busy & UINT16_MAX;
	header->waiting = step->busy >> 16;
	header->attempted = step->attempted;
	memcpy(header->lost, step->lost, sizeof(header->lost));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct ring_arena_sizes sizes = { { { RING_SIZE, 1, RING_DROP } } };
	struct ring_header *header;
	struct ring_reader reader;
	uint32_t *doorbell;
	uint64_t ms = 1000000;
	struct tick_clock *clock = tick_clock_new_of(read_made_up, &ms);
	struct step step;
	int fd;

	if (!clock)
		abort();
	if (!memory.base) {
		if (ring_arena_make(&sizes, &memory, &fd) < 0)
			abort();
		close(fd);
	}
	header = (void *)(memory.base + memory.places[0].header_offset);
	memset(header, 0, sizeof(*header));
	memset(memory.base + memory.places[0].data_offset, 0, RING_SIZE);
	ring_reader_init(&reader, &memory, 0);
	ring_reader_use_ticks(&reader, clock);
	sum += ring_arena_arm(&memory, &doorbell) + ring_arena_lost(&memory);
	while (size >= sizeof(step)) {
		size_t at, n;

		memcpy(&step, data, sizeof(step));
		data += sizeof(step);
		size -= sizeof(step);
		at = step.at % RING_SIZE / 8 * 8;
		n = MIN_OF(MIN_OF((size_t)step.n_words * 8, size), RING_SIZE - at);
		memcpy(memory.base + memory.places[0].data_offset + at, data, n);
		data += n;
		size -= n;
		write_step(header, &step);
		drain(&reader, &step);
	}
	tick_clock_free(clock);
	return 0;
}
