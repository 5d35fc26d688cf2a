/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Ring reader - the consumer's half: reads records from a ring that an untrusted process writes
 *
 * Each shared word is loaded once per drain, and the data between tail and head is copied before it
 * is examined. All later checks use the copy and the reader's private state. The tail in shared
 * memory is written for the producer, and never read.
 * Invariants: (1) tail does not pass head, and neither goes back  [test-ring-reader: positions]
 *             (2) returned records are whole and checked
 *                 [test-ring-reader: hostile, changing; fuzz_ring_reader]
 *             (3) a ring that lies is quarantined, other rings are not [test-ring-reader: hostile]
 *             (4) records before a returned bound are marked late    [test-ring: busy]; whatever
 *                 times the producer writes, the bound follows the clock
 *                 [test-engine-collectors-rows: past]
 *             (5) attempted == records + abandoned + lost + unpublished in a closed ring
 *                                                                      [test-ring: conservation]
 * The reader does not interpret payloads or tids.
 */
#include "libcollector/ring/ring-reader.h"

#include "base/clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>

#define PER_NS 2 /* limit for the number of attempts of a thread per ns */
#define BURST 4096
#define ENOUGH_BYTES (512u << 10) /* writing this much takes far longer than sleeping and waking */
#define TICKS_ERROR_NS 1000u      /* maximum error of valid ticks */

#define LOAD(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define LOAD_ACQUIRE(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)

/* Layout of a payload: a fixed part, then units. The number of units is at offset `count_at` of the
 * fixed part. */
struct shape {
	uint16_t fixed, count_at, unit;
};

static const struct shape shapes[RING_N_TYPES] = {
	[RING_STRING] = { sizeof(struct ring_string), offsetof(struct ring_string, n_bytes), 1 },
	[RING_IMAGE] = { sizeof(struct ring_image), offsetof(struct ring_image, n_build_id_bytes),
			 1 },
	[RING_STACK] = { sizeof(struct ring_stack), offsetof(struct ring_stack, n_frames),
			 sizeof(struct ring_frame) },
	[RING_MARK] = { sizeof(struct ring_mark), offsetof(struct ring_mark, n_arguments),
			sizeof(struct ring_argument) },
	[RING_COUNTER] = { sizeof(struct ring_counter), 0, 0 },
	[RING_COUNTER_VALUE] = { sizeof(struct ring_counter_value), 0, 0 },
	[RING_LOG] = { sizeof(struct ring_log), offsetof(struct ring_log, n_bytes), 1 },
	[RING_ALLOC] = { sizeof(struct ring_alloc), 0, 0 },
	[RING_FREE_BLOCK] = { sizeof(struct ring_free_block), 0, 0 },
	[RING_THREAD_NAME] = { sizeof(struct ring_thread_name), 0, 0 },
	[RING_JIT] = { sizeof(struct ring_jit), 0, 0 },
	[RING_MARK_AT] = { sizeof(struct ring_at) + sizeof(struct ring_mark),
			   sizeof(struct ring_at) + offsetof(struct ring_mark, n_arguments),
			   sizeof(struct ring_argument) },
	[RING_REALLOC] = { sizeof(struct ring_realloc), 0, 0 },
	[RING_CALLS] = { sizeof(struct ring_calls), offsetof(struct ring_calls, n_frames),
			 sizeof(struct ring_frame) },
	[RING_CODE] = { sizeof(struct ring_code), offsetof(struct ring_code, n_bytes), 1 },
	[RING_LOG_AT] = { sizeof(struct ring_at) + sizeof(struct ring_log),
			  sizeof(struct ring_at) + offsetof(struct ring_log, n_bytes), 1 },
};

static const char *const fault_names[RING_N_FAULTS] = {
	[RING_FAULT_NONE] = "none",         [RING_FAULT_STATE] = "state",
	[RING_FAULT_POSITION] = "position", [RING_FAULT_LENGTH] = "length",
	[RING_FAULT_TYPE] = "type",         [RING_FAULT_PAYLOAD] = "payload",
	[RING_FAULT_COUNTS] = "counts",     [RING_FAULT_TID] = "tid",
};

const char *ring_fault_name(enum ring_fault fault)
{
	return fault < RING_N_FAULTS ? fault_names[fault] : "unknown";
}

void ring_reader_init(struct ring_reader *reader, const struct ring_arena_memory *memory,
		      uint32_t i)
{
	const struct ring_place *place = &memory->places[i];
	uint64_t now = clock_now();

	*reader = (struct ring_reader){
		.shared = (void *)(memory->base + place->header_offset),
		.data = memory->base + place->data_offset,
		.size = place->data_bytes,
		.patience_ns = RING_BUSY_NS,
		.grant_ns = now,
		.drain_ns = now,
		.seen_ns = now,
		.floor_ns = now,
	};
}

void ring_reader_use_ticks(struct ring_reader *reader, struct tick_clock *clock)
{
	reader->ticks = clock;
}

static void set_fault(struct ring_reader *reader, enum ring_fault fault, uint64_t at)
{
	reader->fault = fault;
	reader->fault_at = at;
}

void ring_reader_quarantine(struct ring_reader *reader, enum ring_fault fault)
{
	if (reader->fault == RING_FAULT_NONE)
		set_fault(reader, fault, reader->tail);
}

/* ---- The producer's state ---- */

struct view {
	uint64_t state, head;
	uint32_t busy, tid;
	uint64_t attempted, lost[RING_N_LOST], waits, waited_ns;
};

/* Loads in the order of docs/ring.md, so that a closed ring has its final head, a ring that is not
 * busy has published every begun record, and `attempted` includes each lost or recorded attempt. */
static void load_view(const struct ring_header *shared, struct view *ret_view)
{
	ret_view->state = LOAD_ACQUIRE(&shared->state); /* pairs with ring_release() */
	ret_view->busy = LOAD_ACQUIRE(&shared->busy);   /* pairs with ring_end() */
	ret_view->head = LOAD_ACQUIRE(&shared->head);   /* pairs with ring_end() */
	for (size_t i = 0; i < RING_N_LOST; i++)
		ret_view->lost[i] = LOAD_ACQUIRE(&shared->lost[i]); /* pairs with ring_begin() */
	ret_view->attempted = LOAD(&shared->attempted);
	ret_view->waits = LOAD(&shared->waits);
	ret_view->waited_ns = LOAD(&shared->waited_ns);
	ret_view->tid = LOAD(&shared->tid);
}

/* Sets a total. Returns false if it decreases, or grows by more than `most`. */
static bool grow(uint64_t *total, uint64_t value, uint64_t most)
{
	bool is_good = value >= *total && value - *total <= most;

	*total = value;
	return is_good;
}

static bool receive_counts(struct ring_reader *reader, const struct view *view, uint64_t now)
{
	struct ring_totals *totals = &reader->totals;
	uint64_t most = PER_NS * (now - reader->drain_ns) + BURST, accounted;
	bool is_good = true;

	accounted = totals->records + totals->abandoned + totals->unpublished;
	for (size_t i = 0; i < RING_N_LOST; i++) {
		is_good = is_good && grow(&totals->lost[i], view->lost[i], most);
		accounted += view->lost[i];
	}
	is_good = is_good &&
		  grow(&totals->attempted, view->attempted + view->lost[RING_LOST_NESTED],
		       2 * most) &&
		  grow(&totals->waits, view->waits, most) &&
		  grow(&totals->waited_ns, view->waited_ns, UINT64_MAX / 2);
	return is_good && accounted <= totals->attempted;
}

/* ---- Records ---- */

/* Computes how many bytes of the payload are used. Returns false if that does not match the
 * record's length. */
static bool measure_payload(const struct ring_record_header *header, uint32_t *ret_bytes)
{
	const struct shape *shape = &shapes[(uint8_t)header->type];
	uint64_t room = header->bytes - sizeof(*header), bytes = shape->fixed;

	if (room < bytes)
		return false;
	if (shape->unit != 0)
		bytes += (uint64_t)shape->unit *
			 load_le32((const uint8_t *)(header + 1) + shape->count_at);
	*ret_bytes = (uint32_t)bytes;
	return (bytes + 7) / 8 * 8 == room;
}

/* Sets *ret_bytes to 0 if the record is invalid, or if the copy ends inside the record. */
static enum ring_fault check_record(const struct ring_reader *reader, const uint8_t *at,
				    uint64_t position, uint64_t rest, bool is_cut,
				    uint32_t *ret_bytes)
{
	const struct ring_record_header *header = (const void *)at;
	uint64_t lap = reader->size - (position & (reader->size - 1));
	uint32_t bytes = header->bytes, payload;

	*ret_bytes = 0;
	if (bytes == 0 || bytes % 8 != 0 || bytes > MIN_OF(lap, (uint64_t)RING_MAX_RECORD))
		return RING_FAULT_LENGTH;
	if (bytes > rest)
		return is_cut ? RING_FAULT_NONE : RING_FAULT_LENGTH;
	if (header->type == RING_NONE || header->type >= RING_N_TYPES)
		return RING_FAULT_TYPE;
	if (header->type != RING_PAD &&
	    (bytes < sizeof(*header) || !measure_payload(header, &payload)))
		return RING_FAULT_PAYLOAD;
	*ret_bytes = bytes;
	return RING_FAULT_NONE;
}

/* Returns the producer's time in ns; with has_ticks, its error is at most TICKS_ERROR_NS. */
static uint64_t ns_of(struct ring_reader *reader, uint64_t time, bool has_ticks)
{
	return has_ticks ? tick_clock_ns(reader->ticks, time) : time;
}

/* For a realloc that began at `time`: computes when its new block existed. The result is not before
 * the time of the realloc's record. It is not after the drain, except by the error of ticks. */
static void finalize_realloc(struct ring_reader *reader, const struct ring_batch *batch,
			     struct ring_realloc *moved, uint64_t time, bool has_ticks)
{
	uint64_t error_ns = has_ticks ? TICKS_ERROR_NS : 0;

	reader->moved_at = time + MIN_OF(moved->duration_ns, UINT64_MAX - time);
	reader->moved_has_ticks = has_ticks;
	reader->moved_ns = ns_of(reader, reader->moved_at, has_ticks);
	reader->moved_ns = MIN_OF(MAX_OF(reader->moved_ns, reader->last_ns),
				  MAX_OF(batch->now_ns + error_ns, reader->last_ns));
	moved->duration_ns = reader->moved_ns - reader->last_ns;
}

/* Stores the results in the copied header: the clamped time, and the verdict in the bits above the
 * type. */
static void finalize_record(struct ring_reader *reader, const struct ring_batch *batch,
			    struct ring_record_header *header)
{
	struct ring_totals *totals = &reader->totals;
	bool has_ticks = reader->ticks && (header->flags & RING_FLAG_TICKS);
	uint64_t time, least_ns = reader->last_ns;
	uint64_t error_ns, time_ns;
	uint8_t verdict;

	if (header->type == RING_PAD) {
		totals->abandoned += header->flags & RING_FLAG_ABANDONED;
		return;
	}
	time = header->time_ns;
	if (has_ticks == reader->moved_has_ticks && time >= reader->moved_at)
		least_ns = MAX_OF(least_ns, reader->moved_ns);
	header->flags &= (uint16_t)~RING_FLAG_TICKS;
	/* Keep a time that is later than now by at most the error of ticks, because the order of
	 * records in different rings depends on their times. */
	error_ns = has_ticks ? TICKS_ERROR_NS : 0;
	time_ns = ns_of(reader, time, has_ticks);
	reader->last_ns = MIN_OF(MAX_OF(time_ns, least_ns), batch->now_ns + error_ns);
	verdict = (reader->last_ns - time_ns + error_ns > 2 * error_ns ? RING_RECORD_CLAMPED : 0) |
		  (reader->last_ns < batch->promised_ns ? RING_RECORD_LATE : 0);
	header->time_ns = reader->last_ns;
	if (header->type == RING_REALLOC)
		finalize_realloc(reader, batch, (void *)(header + 1), time, has_ticks);
	header->type |= (uint16_t)(verdict << RING_VERDICT_SHIFT);
	totals->records++;
	totals->clamped += verdict & RING_RECORD_CLAMPED ? 1 : 0;
	totals->late += verdict & RING_RECORD_LATE ? 1 : 0;
}

/* Returns how many of the n bytes are valid whole records. */
static uint64_t check_records(struct ring_reader *reader, const struct ring_batch *batch,
			      uint8_t *buffer, uint64_t n, bool is_cut)
{
	uint64_t at = 0;
	uint32_t bytes;

	while (at < n) {
		enum ring_fault fault = check_record(reader, buffer + at, reader->tail + at, n - at,
						     is_cut, &bytes);

		if (fault != RING_FAULT_NONE)
			set_fault(reader, fault, reader->tail + at);
		if (bytes == 0)
			break;
		finalize_record(reader, batch, (void *)(buffer + at));
		at += bytes;
	}
	return at;
}

bool ring_batch_next(struct ring_batch *batch, struct ring_record *ret_record)
{
	while (batch->next < batch->end) {
		const struct ring_record_header *header = (const void *)batch->next;

		batch->next += header->bytes;
		if (header->type == RING_PAD)
			continue;
		ret_record->type = (uint8_t)header->type;
		ret_record->verdict = (uint8_t)(header->type >> RING_VERDICT_SHIFT);
		ret_record->flags = header->flags;
		ret_record->payload = header + 1;
		ret_record->time_ns = header->time_ns;
		return measure_payload(header, &ret_record->n_bytes);
	}
	return false;
}

/* ---- A drain ---- */

void ring_reader_wake(struct ring_reader *reader)
{
	uint64_t room = reader->size - (reader->head - reader->tail);

	if (!reader->gave_room || room < MIN_OF(reader->size / 2, (uint64_t)ENOUGH_BYTES))
		return;
	reader->gave_room = false;
	if (__atomic_load_n(&reader->shared->waiting, __ATOMIC_SEQ_CST) != 0)
		syscall(SYS_futex, &reader->shared->room, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/*
 * Computes the bound: no later drain finds a record from before it. The time of an open record is
 * not before that of the previous record. A record that has begun, but is not visible yet, is later
 * than `start` minus the time until a store becomes visible. Times are untrusted, so an open record
 * holds back the other rings for at most patience_ns.
 */
static uint64_t find_bound(struct ring_reader *reader, bool is_busy, bool is_moving, bool is_more,
			   uint64_t start)
{
	uint64_t bound = start - RING_SLACK_NS;

	if (!is_busy)
		reader->busy_ns = 0;
	else if (reader->busy_ns == 0 || is_moving)
		reader->busy_ns = start;
	if (is_more || (is_busy && start - reader->busy_ns <= reader->patience_ns))
		bound = MAX_OF(reader->last_ns, reader->floor_ns - reader->patience_ns);
	reader->bound_ns = MAX_OF(reader->bound_ns, bound);
	return reader->bound_ns;
}

static void drain(struct ring_reader *reader, enum ring_drain how, const struct view *view,
		  uint64_t start, uint8_t *buffer, size_t n_bytes, struct ring_batch *batch)
{
	uint64_t waiting = view->head - reader->tail;
	uint64_t n = MIN_OF(waiting, (uint64_t)n_bytes / 8 * 8), good, first;
	uint64_t at = reader->tail & (reader->size - 1), accounted;
	bool is_dead = how == RING_DRAIN_DEAD;

	reader->generation = (uint32_t)(view->state >> 32);
	reader->head = view->head;
	reader->last_ns = MAX_OF(reader->last_ns, reader->grant_ns);
	first = MIN_OF(n, reader->size - at);
	memcpy(buffer, reader->data + at, first);
	memcpy(buffer + first, reader->data, n - first);
	good = check_records(reader, batch, buffer, n, n < waiting);
	batch->end = buffer + good;
	batch->is_more = reader->fault == RING_FAULT_NONE && good < waiting;
	if (good > 0) { /* the producer may now reuse the copied bytes */
		reader->tail += good;
		/* pairs with find_room() */
		__atomic_store_n(&reader->shared->tail, reader->tail, __ATOMIC_RELEASE);
		/* pairs with wait_for_room() */
		__atomic_fetch_add(&reader->shared->room, 1, __ATOMIC_SEQ_CST);
		reader->gave_room = true;
	}
	if (reader->fault == RING_FAULT_NONE && !receive_counts(reader, view, batch->now_ns))
		set_fault(reader, RING_FAULT_COUNTS, reader->tail);
	reader->drain_ns = start;
	if (reader->fault != RING_FAULT_NONE)
		return;
	batch->is_closed = !batch->is_more && (is_dead || (uint32_t)view->state == RING_CLOSED);
	if (batch->is_closed) {
		accounted = reader->totals.records + reader->totals.abandoned;
		for (size_t i = 0; i < RING_N_LOST; i++)
			accounted += reader->totals.lost[i];
		reader->totals.unpublished = reader->totals.attempted - accounted;
	}
	/* Data beyond an earlier head was published after that head was seen, whatever times the
	 * producer writes. */
	if (reader->tail >= reader->seen) {
		reader->floor_ns = reader->tail == reader->head ? start : reader->seen_ns;
		reader->seen = reader->head;
		reader->seen_ns = start;
	}
	batch->bound_ns =
		find_bound(reader, view->busy != 0 && !is_dead, good > 0, batch->is_more, start);
}

void ring_reader_drain(struct ring_reader *reader, enum ring_drain how, void *buffer,
		       size_t n_bytes, struct ring_batch *ret_batch)
{
	uint64_t start = clock_now();
	struct view view;
	uint64_t ahead;

	*ret_batch = (struct ring_batch){
		.next = buffer,
		.end = buffer,
		.promised_ns = reader->bound_ns,
		.bound_ns = UINT64_MAX,
	};
	if (reader->fault != RING_FAULT_NONE)
		return;
	load_view(reader->shared, &view);
	ret_batch->now_ns = clock_now();
	ret_batch->tid = view.tid;
	ahead = view.head - reader->tail;
	if ((uint32_t)view.state >= RING_N_STATES ||
	    (uint32_t)(view.state >> 32) - reader->generation > 1)
		reader->fault = RING_FAULT_STATE;
	else if (view.head % 8 != 0 || ahead > reader->size || ahead < reader->head - reader->tail)
		reader->fault = RING_FAULT_POSITION;
	reader->fault_at = reader->tail;
	if (reader->fault == RING_FAULT_NONE)
		drain(reader, how, &view, start, buffer, n_bytes, ret_batch);
}

void ring_reader_recycle(struct ring_reader *reader)
{
	if (reader->fault != RING_FAULT_NONE)
		return;
	reader->grant_ns = clock_now();
	reader->busy_ns = 0;
	/* pairs with ring_claim(): the next owner sees all that the previous one wrote */
	__atomic_store_n(&reader->shared->state, (uint64_t)reader->generation << 32 | RING_FREE,
			 __ATOMIC_RELEASE);
}

/* ---- Sleeping ---- */

uint32_t ring_arena_arm(struct ring_arena_memory *memory, uint32_t **ret_doorbell)
{
	struct ring_arena_header *shared = (void *)memory->base;

	memory->armed = (memory->armed + 1) | 1;
	/* pairs with kick(): either this sees the doorbell, or the producer sees `armed` */
	__atomic_exchange_n(&shared->armed, memory->armed, __ATOMIC_SEQ_CST);
	*ret_doorbell = &shared->doorbell;
	return __atomic_load_n(&shared->doorbell, __ATOMIC_SEQ_CST);
}

void ring_arena_end(struct ring_arena_memory *memory)
{
	struct ring_arena_header *shared = (void *)memory->base;

	__atomic_store_n(&shared->ended, 1, __ATOMIC_RELEASE);
}

uint64_t ring_reader_fill(const struct ring_reader *reader)
{
	uint64_t ahead = __atomic_load_n(&reader->shared->head, __ATOMIC_SEQ_CST) - reader->tail;

	return reader->fault != RING_FAULT_NONE ? 0 : MIN_OF(ahead, reader->size);
}

bool ring_arena_is_joined(const struct ring_arena_memory *memory)
{
	return LOAD(&((const struct ring_arena_header *)(const void *)memory->base)->joined) != 0;
}

uint64_t ring_arena_lost(const struct ring_arena_memory *memory)
{
	return LOAD(&((const struct ring_arena_header *)(const void *)memory->base)->lost_no_ring);
}
