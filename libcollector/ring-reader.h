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
 * One thread at a time may use a reader. Records are checked as docs/ring.md specifies, so that no
 * length leads out of a record; the caller checks ids, tids and enums of payloads.
 */
#pragma once

#include "libcollector/ring-arena.h"
#include "libcollector/tick-clock.h"

#define RING_BUSY_NS \
	UINT64_C(50000000) /* how long a record that is begun holds back the merge, by default */
#define RING_SLACK_NS UINT64_C(100000) /* many times the delay until other CPUs see a store */
#define RING_MIN_BUFFER RING_MAX_RECORD

/* Why a ring is in quarantine. */
enum ring_fault {
	RING_FAULT_NONE,
	RING_FAULT_STATE, /* not free, owned or closed, or an old generation */
	/* head before the read position, more than a ring ahead, or not aligned */
	RING_FAULT_POSITION,
	RING_FAULT_LENGTH, /* of a record: 0, unaligned, too large, beyond head or the data */
	RING_FAULT_TYPE,
	RING_FAULT_PAYLOAD, /* shorter than its type or its count requires */
	/* decreased, faster than a thread can count, or lost more than attempted */
	RING_FAULT_COUNTS,
	RING_FAULT_TID, /* set by the caller: the owner is not a thread of the process */
	RING_N_FAULTS
};

enum ring_drain {
	RING_DRAIN_LIVE,
	RING_DRAIN_DEAD, /* the process ended: nothing will be added */
};

/* Monotone totals since ring_reader_init(), over all of the ring's owners. */
struct ring_totals {
	uint64_t attempted; /* with RING_LOST_NESTED */
	uint64_t records;
	uint64_t lost[RING_N_LOST];
	uint64_t abandoned;   /* left by siglongjmp() */
	uint64_t unpublished; /* open when their owner ended */
	uint64_t waits, waited_ns;
	/* records whose time was before the grant or the previous record, or after the drain */
	uint64_t clamped;
	uint64_t late; /* records whose time is before a bound that was returned */
};

struct ring_reader {
	struct ring_header *shared;
	const uint8_t *data;
	uint64_t size;
	uint64_t tail, head;
	uint32_t generation;
	uint64_t grant_ns; /* no record of this owner is older */
	uint64_t last_ns;  /* of the record read last */
	/* when the block of the last realloc existed, in ticks or ns (moved_has_ticks), */
	uint64_t moved_at;
	uint64_t moved_ns; /* and the same in ns, as clamped */
	bool moved_has_ticks;
	uint64_t drain_ns; /* time before its counts were loaded last */
	uint64_t bound_ns; /* the last one returned */
	uint64_t busy_ns;  /* since when the same record is open; 0: none is */
	/* how long an open record holds the merge: RING_BUSY_NS, or set by the caller */
	uint64_t patience_ns;
	uint64_t seen; /* data from this position on was published after seen_ns */
	uint64_t seen_ns;
	uint64_t floor_ns; /* unread data was published after this time */
	bool gave_room;    /* since the last wake-up */
	enum ring_fault fault;
	uint64_t fault_at;        /* position */
	struct tick_clock *ticks; /* borrowed; NULL: times are ns, whatever the flags */
	struct ring_totals totals;
};

#define RING_RECORD_CLAMPED 0x01u
#define RING_RECORD_LATE 0x02u

/* For the headers between ring_batch's next and end: the verdict is above the type, and the time is
 * the clamped one. */
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
	uint64_t now_ns, promised_ns;
	uint32_t tid;      /* as the owner states it */
	bool is_closed;    /* nothing is left and nothing will come: call ring_reader_recycle() */
	bool is_more;      /* the buffer was too small */
	uint64_t bound_ns; /* later batches have no earlier record, except RING_RECORD_LATE */
};

void ring_reader_init(struct ring_reader *reader, const struct ring_arena_memory *memory,
		      uint32_t i);
/* Accepts ticks as times. To be called before a producer can map the arena. */
void ring_reader_use_ticks(struct ring_reader *reader, struct tick_clock *clock);

/*
 * Copies the available records and checks the copy; the producer may then reuse the room. The
 * buffer is 8-aligned and at least RING_MIN_BUFFER. Read the batch to its end before the next call.
 * After a fault, one batch has the records before it; later batches are empty, with a bound that
 * holds back no other ring.
 */
void ring_reader_drain(struct ring_reader *reader, enum ring_drain how, void *buffer,
		       size_t n_bytes, struct ring_batch *ret_batch);
bool ring_batch_next(struct ring_batch *batch, struct ring_record *ret_record);
/*
 * Wakes producers that wait for the room that drains made, if it is enough to write for a while.
 * Call it after the drains of all rings: the woken thread may get this CPU, and the others would
 * wait longer.
 */
void ring_reader_wake(struct ring_reader *reader);

/* For checks by the caller. */
void ring_reader_quarantine(struct ring_reader *reader, enum ring_fault fault);

/* Frees a ring after is_closed, or after its owner ended and was drained as dead: another thread
 * may claim it. */
void ring_reader_recycle(struct ring_reader *reader);

const char *ring_fault_name(enum ring_fault fault);

/*
 * Before sleeping, with the arena's doorbell as the futex: ring_arena_arm(), then check whether a
 * ring is a third full (ring_reader_fill()), then FUTEX_WAIT on the returned value, with a timeout.
 */
uint32_t ring_arena_arm(struct ring_arena_memory *memory, uint32_t **ret_doorbell);
void ring_arena_disarm(struct ring_arena_memory *memory);
/* Tells producers to stop because nobody will read any more. Records that they publish before they
 * see it must still be drained. */
void ring_arena_end(struct ring_arena_memory *memory);
/* Returns the unread bytes, limited to the ring's size. */
uint64_t ring_reader_fill(const struct ring_reader *reader);
/* Returns whether a process uses the arena, according to that process. */
bool ring_arena_is_joined(const struct ring_arena_memory *memory);
/* Returns the attempts of threads that had no ring, according to the process. */
uint64_t ring_arena_lost(const struct ring_arena_memory *memory);
