/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Ring reader - the consumer's half: reads records from a ring that an untrusted process writes
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
 * length leads outside a record. The caller checks the ids, tids and enums in payloads.
 */
#pragma once

#include "libcollector/ring/ring-arena.h"
#include "libcollector/ring/tick-clock.h"

#define RING_BUSY_NS \
	UINT64_C(50000000) /* default for how long an open record holds back the merge */
#define RING_SLACK_NS UINT64_C(100000) /* many times the delay until other CPUs see a store */
#define RING_MIN_BUFFER RING_MAX_RECORD

/* Why a ring is quarantined. */
enum ring_fault {
	RING_FAULT_NONE,
	RING_FAULT_STATE, /* invalid state, or an unexpected generation */
	/* head went back, is more than a ring ahead, or is unaligned */
	RING_FAULT_POSITION,
	/* length of a record is 0, unaligned or too large, or leads beyond head or the data */
	RING_FAULT_LENGTH,
	RING_FAULT_TYPE,
	RING_FAULT_PAYLOAD, /* length of the payload does not match its type or its count */
	/* a count fell, or grew faster than a thread can count; or more records were written or
	 * lost than attempted */
	RING_FAULT_COUNTS,
	RING_FAULT_TID, /* set by the caller: the owner is not a thread of the process */
	RING_N_FAULTS
};

enum ring_drain {
	RING_DRAIN_LIVE,
	RING_DRAIN_DEAD, /* the process has ended: no record will be added */
};

/* Totals since ring_reader_init(), over all owners of the ring. They never decrease. */
struct ring_totals {
	uint64_t attempted; /* including RING_LOST_NESTED */
	uint64_t records;
	uint64_t lost[RING_N_LOST];
	uint64_t abandoned;   /* open records that siglongjmp() left */
	uint64_t unpublished; /* records that were open when their owner ended */
	uint64_t waits, waited_ns;
	/* records whose time was before grant_ns or the previous record, or after the drain */
	uint64_t clamped;
	uint64_t late; /* records whose time is before a bound that was returned earlier */
};

struct ring_reader {
	struct ring_header *shared;
	const uint8_t *data;
	uint64_t size;
	uint64_t tail, head;
	uint32_t generation;
	uint64_t grant_ns; /* lower limit for times of this owner's records */
	uint64_t last_ns;  /* time of the record read last */
	/* time at which the new block of the last realloc existed, in ticks or ns
	 * (moved_has_ticks) */
	uint64_t moved_at;
	uint64_t moved_ns; /* the same time in ns, after clamping */
	bool moved_has_ticks;
	uint64_t drain_ns; /* start of the last drain, before the counts were loaded */
	uint64_t bound_ns; /* last returned bound */
	uint64_t busy_ns;  /* time since which the current record has been open; 0: none is open */
	/* limit for how long an open record holds back the merge */
	uint64_t patience_ns;
	uint64_t seen; /* position: data beyond it was published after seen_ns */
	uint64_t seen_ns;
	uint64_t floor_ns; /* unread data was published after this time */
	bool gave_room;    /* room was made since the last wake-up */
	enum ring_fault fault;
	uint64_t fault_at;        /* position */
	struct tick_clock *ticks; /* borrowed; NULL: times are ns, whatever the flags say */
	struct ring_totals totals;
};

#define RING_RECORD_CLAMPED 0x01u
#define RING_RECORD_LATE 0x02u

/* After the checks, the headers between ring_batch's `next` and `end` hold the clamped time and, in
 * the bits above the type, the verdict. */
#define RING_VERDICT_SHIFT 8
static_assert(RING_N_TYPES <= 1 << RING_VERDICT_SHIFT, "where the verdict is");

struct ring_record {
	enum ring_type type;
	uint16_t flags;  /* as the producer wrote them, without RING_FLAG_TICKS */
	uint8_t verdict; /* RING_RECORD_* */
	uint64_t time_ns;
	const void *payload; /* in the caller's buffer, 8-aligned */
	uint32_t n_bytes;
};

struct ring_batch {
	const uint8_t *next, *end;
	uint64_t now_ns, promised_ns;
	uint32_t tid;   /* as the owner wrote it */
	bool is_closed; /* all records were read, and none will come: call ring_reader_recycle() */
	bool is_more;   /* more records are available, because the buffer was too small */
	/* records before this time are RING_RECORD_LATE in later batches */
	uint64_t bound_ns;
};

void ring_reader_init(struct ring_reader *reader, const struct ring_arena_memory *memory,
		      uint32_t i);
/* Accepts times in ticks. Call this before a producer can map the arena. */
void ring_reader_use_ticks(struct ring_reader *reader, struct tick_clock *clock);

/*
 * Copies the available records and checks the copy; the producer may then reuse the room. The
 * buffer must be 8-aligned and at least RING_MIN_BUFFER. Read the batch to its end before the next
 * call. A batch in which a fault is found has the records before the fault; later batches are
 * empty. After a fault, the bound does not hold back other rings.
 */
void ring_reader_drain(struct ring_reader *reader, enum ring_drain how, void *buffer,
		       size_t n_bytes, struct ring_batch *ret_batch);
bool ring_batch_next(struct ring_batch *batch, struct ring_record *ret_record);
/* Wakes the producer if it waits for room, and now has enough room to write for some time. Call
 * this after the drains of all rings, because the woken thread may get this CPU. */
void ring_reader_wake(struct ring_reader *reader);

/* Quarantines a ring after a check by the caller failed. */
void ring_reader_quarantine(struct ring_reader *reader, enum ring_fault fault);

/* Frees a ring, so that another thread may claim it. Call this after is_closed, or after its owner
 * ended and the ring was drained as dead. */
void ring_reader_recycle(struct ring_reader *reader);

const char *ring_fault_name(enum ring_fault fault);

/* Before sleeping: call ring_arena_arm(), check that no ring is a third full (ring_reader_fill()),
 * then FUTEX_WAIT on *ret_doorbell with the returned value and a timeout. */
uint32_t ring_arena_arm(struct ring_arena_memory *memory, uint32_t **ret_doorbell);
/* Requests that producers stop, because the session ends. Records that they publish before they see
 * the request must still be drained. */
void ring_arena_end(struct ring_arena_memory *memory);
/* Returns the number of unread bytes, limited to the ring's size; 0 after a fault. */
uint64_t ring_reader_fill(const struct ring_reader *reader);
/* Returns whether a process has joined the arena. The process itself sets this flag. */
bool ring_arena_is_joined(const struct ring_arena_memory *memory);
/* Returns the number of records that found no ring, as the process counted them. */
uint64_t ring_arena_lost(const struct ring_arena_memory *memory);
