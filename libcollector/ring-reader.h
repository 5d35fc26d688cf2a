/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Ring reader - the consumer's half: takes records out of a ring that an untrusted process writes
 *
 *     ring_reader_init(&reader, &memory, i);
 *     ring_reader_drain(&reader, RING_DRAIN_LIVE, buffer, sizeof(buffer), &batch);
 *     while (ring_batch_next(&batch, &record))
 *             …
 *     if (batch.is_closed)
 *             ring_reader_recycle(&reader);
 *     ring_reader_wake(&reader);
 *
 * One thread at a time a reader. What a record says is checked as far as docs/ring.md says, so that
 * no length leads out of it; ids, tids and enums of payloads are the caller's to check.
 */
#pragma once

#include "libcollector/ring-arena.h"
#include "libcollector/tick-clock.h"

#define RING_BUSY_NS \
	UINT64_C(50000000) /* how long a record that was begun holds the merge, usually */
#define RING_SLACK_NS UINT64_C(100000) /* many times what a store takes to be seen by another CPU */
#define RING_MIN_BUFFER RING_MAX_RECORD

/* Why a ring is in quarantine. */
enum ring_fault {
	RING_FAULT_NONE,
	RING_FAULT_STATE, /* neither free nor owned nor closed, or a generation that was before */
	/* head before what was read, or more than a ring ahead, or between words */
	RING_FAULT_POSITION,
	RING_FAULT_LENGTH, /* of a record: 0, odd, huge, beyond head or the end of the data */
	RING_FAULT_TYPE,
	RING_FAULT_PAYLOAD, /* shorter than its type says, or than its own count */
	/* went back, faster than a thread can, or lost more than was attempted */
	RING_FAULT_COUNTS,
	RING_FAULT_TID, /* the caller's: its owner is no thread of the process */
	RING_N_FAULTS
};

enum ring_drain {
	RING_DRAIN_LIVE,
	RING_DRAIN_DEAD, /* the process is gone: what is there now is all */
};

/* Monotone totals since ring_reader_init(), over all of the ring's owners. */
struct ring_totals {
	uint64_t attempted; /* with RING_LOST_NESTED */
	uint64_t records;
	uint64_t lost[RING_N_LOST];
	uint64_t abandoned;   /* begun and left by siglongjmp() */
	uint64_t unpublished; /* begun when their owner ended */
	uint64_t waits, waited_ns;
	/* records whose time was before the grant, before the record before, or after the drain */
	uint64_t clamped;
	uint64_t late; /* whose time is before a bound that was told */
};

struct ring_reader {
	struct ring_header *shared;
	const uint8_t *data;
	uint64_t size;
	uint64_t tail, head;
	uint32_t generation;
	uint64_t grant_ns; /* no record of this owner is older */
	uint64_t last_ns;  /* of the record read last */
	/* when the block of the last realloc was there, in ticks or ns as it says, */
	uint64_t moved_at;
	uint64_t moved_ns; /* and as it counts */
	bool moved_has_ticks;
	uint64_t drain_ns; /* before its counts were loaded last */
	uint64_t bound_ns; /* told */
	uint64_t busy_ns;  /* since when it is busy with the same record; 0: it is not */
	/* how long that holds the merge; RING_BUSY_NS, or as the caller says */
	uint64_t patience_ns;
	uint64_t seen; /* what is not before this position was published after seen_ns */
	uint64_t seen_ns;
	uint64_t floor_ns; /* what was not read yet was published after */
	bool gave_room;    /* since a wake */
	enum ring_fault fault;
	uint64_t fault_at;        /* position */
	struct tick_clock *ticks; /* borrowed; NULL: times are ns, whatever is said */
	struct ring_totals totals;
};

#define RING_RECORD_CLAMPED 0x01u
#define RING_RECORD_LATE 0x02u

/* Of the headers between ring_batch's next and end: the verdict is above the type, and the time
 * is the one that counts. */
#define RING_VERDICT_SHIFT 8
static_assert(RING_N_TYPES <= 1 << RING_VERDICT_SHIFT, "where the verdict is");

struct ring_record {
	enum ring_type type;
	uint16_t flags;  /* the producer's */
	uint8_t verdict; /* RING_RECORD_* */
	uint64_t time_ns;
	const void *payload; /* in the caller's buffer, 8-aligned */
	uint32_t n_bytes;
};

struct ring_batch {
	const uint8_t *next, *end;
	uint64_t now_ns, told_ns;
	uint32_t tid;      /* what the owner says */
	bool is_closed;    /* nothing will come, and nothing is left: to be recycled */
	bool is_more;      /* the buffer was too small */
	uint64_t bound_ns; /* what comes in later batches is not before, or RING_RECORD_LATE */
};

void ring_reader_init(struct ring_reader *reader, const struct ring_arena_memory *memory,
		      uint32_t i);
/* Times may be ticks; to be told before a producer can map the arena. */
void ring_reader_take_ticks(struct ring_reader *reader, struct tick_clock *clock);

/*
 * Copies what is there, and checks all of the copy; it is the producer's to write over afterwards.
 * The buffer is 8-aligned and at least RING_MIN_BUFFER. To be read to its end before the next call.
 * Behind a fault there is what was good before it, once; then nothing, and a bound that holds
 * nobody.
 */
void ring_reader_drain(struct ring_reader *reader, enum ring_drain how, void *buffer,
		       size_t n_bytes, struct ring_batch *ret_batch);
bool ring_batch_next(struct ring_batch *batch, struct ring_record *ret_record);
/*
 * Who waits for the room that drains gave goes on, if it is enough to write on for a while. Behind
 * the drains of all rings there are: whoever is woken may get this CPU, and the others would go on
 * waiting.
 */
void ring_reader_wake(struct ring_reader *reader);

/* For what the caller has to check. */
void ring_reader_quarantine(struct ring_reader *reader, enum ring_fault fault);

/* Where is_closed, or the owner is known to be gone and has been drained as dead: another thread
 * may claim it. */
void ring_reader_recycle(struct ring_reader *reader);

const char *ring_fault_name(enum ring_fault fault);

/*
 * Before sleeping, with the arena's doorbell as the futex: ring_arena_arm(), then a look whether a
 * ring is a third full (ring_reader_fill()), then FUTEX_WAIT on the returned value, with a timeout.
 */
uint32_t ring_arena_arm(struct ring_arena_memory *memory, uint32_t **ret_doorbell);
void ring_arena_disarm(struct ring_arena_memory *memory);
/* Nobody will read it any more: producers stop. What they publish before they see it is still to
 * be drained. */
void ring_arena_end(struct ring_arena_memory *memory);
/* Bytes that wait, at most the ring's size, whatever it says. */
uint64_t ring_reader_fill(const struct ring_reader *reader);
/* Whether a process has it, as that says. */
bool ring_arena_is_joined(const struct ring_arena_memory *memory);
/* Attempts of threads that had no ring, as they say. */
uint64_t ring_arena_lost(const struct ring_arena_memory *memory);
