/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Collectors, merge - drains rings into queues, merges the queues by time, and writes rows
 *
 * Each drain of a ring reports a time before which the ring adds no more records. Rows are written
 * up to the earliest of these times, but not beyond the time that the side band has reached,
 * because the thread of a record must be known before its row.
 * A drain is due when a doorbell rings, soon after a drain that found a ring more than a third
 * full, and in each round of the session. So idle processes cause no additional wake-ups. Rings
 * without doorbells are polled.
 * The queues are bounded. When they are full, records of the processes that have queued the most
 * wait in their rings.
 * Invariants: (1) rows are in time order, or counted as late  [test-engine-collectors-rows: order]
 *             (2) a process that writes endlessly causes no loss of another's records
 *                 [test-engine-collectors-rows: fair, fair_end]
 *             (3) rings are drained between the pieces of long steps
 *                 [test-engine-collectors-stacks: keep_up]
 *             (4) a doorbell that rings without reason is ignored  [test-engine-collectors: floods]
 *             (5) if all doorbells work and nothing waits, only session rounds check rings
 *                 [test-engine-collectors: quiet]
 * Runs on the drain thread only.
 */
#include "base/each.h"
#include "base/pqueue.h"
#include "daemon/engine/peers/collectors-internal.h"

#include <stdio.h>

#define AHEAD 24u /* addresses that are prefetched together */
#define NEAR_BYTES 256u
#define FALSE_BELLS 16
#define MAX_POLL_MS 4u /* maximum poll interval; rings without doorbells have room for that time */
#define DEAF_NS (1000 * MS)
#define TURN_BYTES (1u << 20) /* drained from one ring before the next ring */
#define KEEP_UP_NS (2 * MS)
#define WAKE_NS (4 * MS) /* a producer without room checks again only after 10 ms */
#define PATIENT_NS \
	(500 * MS) /* a thread that a busy machine preempts may get no CPU for this long */
#define MODEST_NS (100 * MS) /* extra time at the end, for processes with few queued records */
#define MAX_FAULTS 64        /* number of faults reported with a text */
#define MANY_RINGS 256u      /* five processes usually have fewer */

/* ---- Draining -------------------------------------------------------------------------------- */

/* Reports a ring's fault in the capture and to the client. */
static void report_fault(struct collectors *collectors, struct peer_ring *ring)
{
	struct collector_process *process = &ring->peer->process;
	uint64_t now_ns = clock_now();
	char text[160];

	ring->reported_fault = true;
	loss_stream_add(&process->losses, PROF_LOSS_RING_CORRUPT, 1, ring->reader.drain_ns, now_ns);
	if (collectors->n_faults++ >= MAX_FAULTS)
		return;
	snprintf(text, sizeof(text),
		 "a ring of process %d was given up: its %s is wrong at %" G_GUINT64_FORMAT,
		 process->pid, ring_fault_name(ring->reader.fault), ring->reader.fault_at);
	collectors->options.warn("collector-ring", text, collectors->options.data);
	output_add(collectors->options.output, PROF_TABLE_METADATA,
		   (const struct prof_value[]){
			   [PROF_METADATA_TIME] = PROF_NUMBER(now_ns),
			   [PROF_METADATA_KEY] = PROF_BYTES("quarantine", strlen("quarantine")),
			   [PROF_METADATA_VALUE] = PROF_BYTES(text, strlen(text)),
		   });
}

/* Returns how many more bytes of the peer may be queued. The rest stays in the peer's rings; when a
 * ring is full, its producer counts the losses. Other peers' rows do not wait for records that stay
 * in a ring, so these may come late. */
static uint64_t find_share(const struct collectors *collectors, const struct peer *peer)
{
	uint64_t of_all = COLLECTORS_MAX_QUEUED -
			  MIN_OF(collectors->queued_bytes, COLLECTORS_MAX_QUEUED),
		 most = 2 * COLLECTORS_MAX_QUEUED / MAX_OF(collectors->n_active, 1u);

	return MAX_OF(of_all, most - MIN_OF(peer->queued_bytes, most));
}

/* Returns how many bytes to drain. Usually that is a small piece, which becomes rows while it is in
 * the caches. The whole ring is drained if it is more than half full or its rows lag, because the
 * queue has more room, and if there are many rings, because visiting all of them costs more than
 * a piece.
 * The limits are TURN_BYTES and the peer's share, so that other producers do not wait too long. */
static uint64_t choose_most(const struct collectors *collectors, const struct peer_ring *ring,
			    enum ring_drain how, uint64_t fill)
{
	bool is_behind = ring->queue.n_put - ring->queue.n_skipped > 2 * COLLECTORS_BUFFER_BYTES,
	     are_many = collectors->n_rings > MANY_RINGS;

	if (how == RING_DRAIN_DEAD)
		return 2 * ring->reader.size;
	/* The next drain reads the records that a fast producer writes during this one. */
	return MIN_OF(find_share(collectors, ring->peer),
		      are_many || is_behind || fill > ring->reader.size / 2
			      ? MIN_OF(fill, (uint64_t)TURN_BYTES)
			      : COLLECTORS_BUFFER_BYTES);
}

size_t collectors_drain_own(struct collectors *collectors, struct peer_arena *arena, uint32_t i,
			    enum ring_drain how, uint64_t *ret_fill)
{
	struct peer_ring *ring = &arena->rings[i];

	/* Wait longer for a preempted writer while the queues are short. */
	if (arena->is_lossless)
		ring->reader.patience_ns = collectors->queued_bytes < COLLECTORS_MAX_QUEUED / 4
						   ? PATIENT_NS
						   : RING_BUSY_NS;
	*ret_fill = ring_reader_fill(&ring->reader);
	return peer_ring_drain(ring, how, collectors->buffer, COLLECTORS_BUFFER_BYTES,
			       choose_most(collectors, ring, how, *ret_fill));
}

void collectors_drain_ring(struct collectors *collectors, struct peer_arena *arena, uint32_t i,
			   enum ring_drain how)
{
	struct peer_ring *ring = &arena->rings[i];
	uint64_t fill;

	collectors->queued_bytes += ring->peer->type->drain(collectors, arena, i, how, &fill);
	arena->is_filling = arena->is_filling || fill > ring->reader.size / 3;
}

/* Applies a drain's results: the time bound, whether more is left, and a fault. */
static void note_drain(struct collectors *collectors, struct peer_ring *ring)
{
	collectors->bound_ns = MIN_OF(collectors->bound_ns, ring->bound_ns);
	collectors->has_more = collectors->has_more || ring->has_more;
	if (ring->reader.fault != RING_FAULT_NONE && !ring->reported_fault)
		report_fault(collectors, ring);
}

static void wake_producers(struct collectors *collectors, uint64_t now_ns)
{
	collectors->woke_ns = now_ns;
	POINTER_EACH(struct peer, peer, collectors->peers) {
		if (peer->state != PEER_ACTIVE || !peer->type->has_doorbells)
			continue;
		for (uint32_t k = 0; k < peer->n_arenas; k++)
			for (uint32_t n = 0; n < peer->arenas[k]->memory.n_rings; n++)
				ring_reader_wake(&peer->arenas[k]->rings[n].reader);
	}
}

/* Wakes producers while rings are drained, because draining many rings may take longer than
 * producers wait. */
static void wake_in_time(struct collectors *collectors)
{
	uint64_t now_ns = clock_now();

	if (now_ns - collectors->woke_ns > WAKE_NS)
		wake_producers(collectors, now_ns);
}

static void drain_arena(struct collectors *collectors, struct peer *peer, struct peer_arena *arena,
			uint64_t now_ns)
{
	uint32_t n_before = arena->memory.n_rings;
	uint64_t begin_ns;

	/* Rings may be added now, because their records are later than the drain's bound. */
	if (peer_arena_needs_more(arena) &&
	    (begin_ns = clock_now()) >= collectors->arena_until_ns) {
		peer_arena_grow(arena, collectors->options.ticks);
		collectors->n_rings += arena->memory.n_rings - n_before;
		collectors_note_clearing(collectors, begin_ns);
	}
	for (uint32_t i = 0; i < arena->memory.n_rings; i++) {
		if (find_share(collectors, peer) == 0) {
			arena->is_filling = true;
			return;
		}
		collectors_drain_ring(collectors, arena, i, RING_DRAIN_LIVE);
		note_drain(collectors, &arena->rings[i]);
		wake_in_time(collectors);
	}
	peer_arena_count_lost(peer, arena, now_ns);
}

/* Ignores a doorbell for a while if it keeps ringing without reason. The arena is then drained by
 * the timer. */
static void judge_doorbell(struct peer_arena *arena, uint64_t now_ns)
{
	if (!arena->armed ||
	    __atomic_load_n(arena->doorbell.word, __ATOMIC_RELAXED) == arena->doorbell.value)
		return;
	arena->armed = false;
	arena->false_doorbells = arena->is_filling ? 0 : arena->false_doorbells + 1;
	if (arena->false_doorbells > FALSE_BELLS)
		arena->deaf_until_ns = now_ns + DEAF_NS;
}

static void begin_drain(struct collectors *collectors)
{
	/* A new ring may hold records that are older than the ring, by up to hold_ns. */
	collectors->bound_ns = collectors->hold_ns ? collectors->drained_ns - collectors->hold_ns
						   : UINT64_MAX;
	collectors->has_more = false;
}

void collectors_sort(struct collectors *collectors, uint64_t now_ns)
{
	POINTER_EACH(struct peer, peer, collectors->peers) {
		if (peer->type->sort)
			peer->type->sort(collectors, peer, now_ns);
	}
}

void collectors_drain(struct collectors *collectors, uint64_t now_ns)
{
	bool is_filling = false;

	collectors->n_active = 0;
	for (guint i = 0; i < collectors->peers->len; i++)
		collectors->n_active += peer_at(collectors, i)->state == PEER_ACTIVE;
	collectors->drained_ns = now_ns;
	begin_drain(collectors);
	collectors_sort(collectors, now_ns);
	POINTER_EACH(struct peer, peer, collectors->peers) {
		for (uint32_t k = 0; peer->state == PEER_ACTIVE && k < peer->n_arenas; k++) {
			struct peer_arena *arena = peer->arenas[k];

			drain_arena(collectors, peer, arena, now_ns);
			judge_doorbell(arena, now_ns);
			is_filling = is_filling || arena->is_filling;
			arena->is_filling = false;
		}
	}
	wake_producers(collectors, clock_now());
	if (is_filling)
		collectors->interval_ms = MAX_OF(collectors->interval_ms / 4, 1u);
	else
		collectors->interval_ms =
			MIN_OF(collectors->interval_ms * 2, COLLECTORS_MAX_INTERVAL_MS);
}

/* Drains the next piece of each ring that has more. */
static void drain_more(struct collectors *collectors)
{
	begin_drain(collectors);
	POINTER_EACH(struct peer, peer, collectors->peers) {
		for (uint32_t k = 0; peer->state == PEER_ACTIVE && k < peer->n_arenas; k++)
			for (uint32_t n = 0; n < peer->arenas[k]->memory.n_rings &&
					     find_share(collectors, peer) > 0;
			     n++) {
				struct peer_ring *ring = &peer->arenas[k]->rings[n];

				if (ring->has_more)
					collectors_drain_ring(collectors, peer->arenas[k], n,
							      RING_DRAIN_LIVE);
				note_drain(collectors, ring);
			}
	}
	wake_producers(collectors, clock_now());
}

/* Drains filling rings while rows are being written. This keeps the rows in order, because no
 * drained record is older than the records being written. Takes at most half of the time. */
void collectors_keep_up(struct collectors *collectors, uint64_t now_ns)
{
	uint64_t took_ns;

	if (now_ns < collectors->keep_up_ns)
		return;
	POINTER_EACH(struct peer, peer, collectors->peers) {
		if (peer->state != PEER_ACTIVE || !peer->type->has_doorbells)
			continue;
		for (uint32_t k = 0; k < peer->n_arenas; k++) {
			struct peer_arena *arena = peer->arenas[k];

			for (uint32_t n = 0;
			     n < arena->memory.n_rings && find_share(collectors, peer) > 0; n++) {
				const struct ring_reader *reader = &arena->rings[n].reader;

				if (ring_reader_fill(reader) <= reader->size / 4)
					continue;
				collectors_drain_ring(collectors, arena, n, RING_DRAIN_LIVE);
				wake_in_time(collectors);
			}
		}
	}
	wake_producers(collectors, clock_now());
	took_ns = clock_now() - now_ns;
	collectors->keep_up_ns = now_ns + took_ns + MAX_OF(took_ns, KEEP_UP_NS);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static uint64_t head_ns(const struct peer_ring *ring)
{
	return peer_ring_peek(ring)->time_ns;
}

static bool is_earlier(const struct peer_ring *a, const struct peer_ring *b)
{
	return head_ns(a) < head_ns(b);
}

PQUEUE_DEFINE(peer_rings, struct peer_ring *, is_earlier)

static void fill_heap(struct collectors *collectors)
{
	collectors->n_heap = 0;
	if (collectors->heap_room < collectors->n_rings) {
		collectors->heap_room = collectors->n_rings * 2;
		collectors->heap =
			g_renew(struct peer_ring *, collectors->heap, collectors->heap_room);
	}
	POINTER_EACH(struct peer, peer, collectors->peers) {
		/* A process has no rows before it is identified. */
		if (!peer->process.process && peer->state != PEER_GONE)
			continue;
		for (uint32_t k = 0; k < peer->n_arenas; k++)
			for (uint32_t n = 0; n < peer->arenas[k]->memory.n_rings; n++)
				if (peer_ring_peek(&peer->arenas[k]->rings[n]))
					collectors->heap[collectors->n_heap++] =
						&peer->arenas[k]->rings[n];
	}
	peer_rings_order(collectors->heap, collectors->n_heap);
}

/* Turns the oldest record of a ring into a row. */
static void emit(struct collectors *collectors, struct peer_ring *ring)
{
	const struct peer_item *item = peer_ring_peek(ring);
	const struct ring_record record = {
		.type = item->type,
		.flags = item->flags,
		.verdict = item->verdict,
		.time_ns = item->time_ns,
		.payload = item + 1,
		.n_bytes = (uint32_t)(item->bytes - sizeof(*item)),
	};
	struct collector_process *process = &ring->peer->process;
	enum ring_fault fault = RING_FAULT_TID;

	if (record.time_ns < collectors->emitted_ns)
		loss_stream_add(&process->losses, PROF_LOSS_LATE, 1, record.time_ns,
				record.time_ns);
	collectors->emitted_ns = MAX_OF(collectors->emitted_ns, record.time_ns);
	while (process->process &&
	       !collector_producer_add(peer_ring_producer(ring), &record, &fault))
		collectors_keep_up(collectors, clock_now());
	if (fault != RING_FAULT_NONE) {
		collectors->queued_bytes -= peer_ring_quarantine(ring, fault);
		if (!ring->reported_fault)
			report_fault(collectors, ring);
		return;
	}
	collectors->queued_bytes -= peer_ring_skip(ring);
}

/* Collects up to AHEAD block addresses from the records at *at. Returns their number, and moves *at
 * past these records. */
static size_t get_addresses(const struct peer_chunk *chunk, size_t *at, size_t end, bool with_new,
			    uint64_t addresses[AHEAD])
{
	size_t n = 0;

	while (*at < end && n < AHEAD) {
		const struct peer_item *item = (const void *)(chunk->bytes + *at);

		*at += item->bytes;
		if (item->type == RING_FREE_BLOCK || item->type == RING_REALLOC ||
		    (with_new && item->type == RING_ALLOC))
			addresses[n++] = *(const uint64_t *)(const void *)(item + 1);
	}
	return n;
}

/* Prefetches the live blocks of upcoming records in two steps: first their hash slots; once these
 * are in the cache, the blocks. */
static void prefetch(struct peer_queue *queue, const struct live_blocks *live)
{
	const struct peer_chunk *chunk = queue->chunks;
	uint64_t addresses[AHEAD];
	size_t n;

	queue->blocks = MAX_OF(queue->blocks, queue->at);
	n = get_addresses(chunk, &queue->blocks, queue->slots, false, addresses);
	live_blocks_prefetch_blocks(live, addresses, n);
	queue->slots = MAX_OF(queue->slots, queue->at);
	n = get_addresses(chunk, &queue->slots, chunk->n, true, addresses);
	live_blocks_prefetch_slots(live, addresses, n);
}

/* Emits the ring's records up to limit_ns. *n counts emitted records. */
static void emit_ring(struct collectors *collectors, struct peer_ring *ring, uint64_t limit_ns,
		      uint64_t until_ns, unsigned int *n)
{
	const struct heap_rows *heap = ring->peer->process.heap;
	const struct live_blocks *live = heap ? heap_rows_live(heap) : NULL;
	bool is_far = live && live_blocks_is_far(live);
	struct output *output = collectors->options.output;
	const struct peer_item *item;
	uint64_t now_ns;

	do {
		if (is_far && ring->queue.blocks < ring->queue.at + NEAR_BYTES)
			prefetch(&ring->queue, live);
		if ((*n)++ % 256 == 255) {
			now_ns = clock_now();
			collectors->unfinished = now_ns >= until_ns;
			if (collectors->unfinished)
				return;
			collectors_keep_up(collectors, now_ns);
		}
		if (output_epoch_full(output))
			output_tick(output, output->now_ns);
		emit(collectors, ring);
		item = peer_ring_peek(ring);
	} while (item && item->time_ns <= limit_ns);
}

/* Emits queued records. Returns the time up to which rows are written, which is valid unless
 * `unfinished` is set. *n counts emitted records. */
static uint64_t emit_queued(struct collectors *collectors, uint64_t limit_ns, uint64_t until_ns,
			    unsigned int *n)
{
	collectors->unfinished = false;
	limit_ns = MIN_OF(limit_ns, collectors->bound_ns);
	collectors->n_heap = 0;
	if (collectors->queued_bytes > 0)
		fill_heap(collectors);
	while (!collectors->unfinished && collectors->n_heap > 0 &&
	       head_ns(collectors->heap[0]) <= limit_ns) {
		struct peer_ring *ring = collectors->heap[0];
		uint64_t ring_ns = limit_ns;

		/* Stop at the oldest record of all other rings. */
		for (size_t i = 1; i < MIN_OF(collectors->n_heap, (size_t)3); i++)
			ring_ns = MIN_OF(ring_ns, head_ns(collectors->heap[i]));
		emit_ring(collectors, ring, ring_ns, until_ns, n);
		if (peer_ring_peek(ring))
			peer_rings_sift_down(collectors->heap, collectors->n_heap, 0);
		else
			peer_rings_pop(collectors->heap, &collectors->n_heap);
	}
	return limit_ns;
}

void collectors_emit(struct collectors *collectors, uint64_t limit_ns, uint64_t until_ns)
{
	unsigned int n = 0;
	uint64_t reached_ns = emit_queued(collectors, limit_ns, until_ns, &n), before_ns;

	do {
		before_ns = reached_ns;
		if (collectors->unfinished || !collectors->has_more || before_ns >= limit_ns)
			break;
		drain_more(collectors);
		reached_ns = emit_queued(collectors, limit_ns, until_ns, &n);
	} while (reached_ns > before_ns);
	if (collectors->unfinished)
		return;
	if (reached_ns == UINT64_MAX)
		reached_ns = clock_now();
	while (!all_heaps_run(&collectors->rows->heaps, reached_ns))
		collectors_keep_up(collectors, clock_now());
	collectors->reached_ns = MAX_OF(collectors->reached_ns, reached_ns);
}

/* ---- When to drain next ---------------------------------------------------------------------- */

static bool has_filled(const struct peer_arena *arena)
{
	for (uint32_t i = 0; i < arena->memory.n_rings; i++)
		if (ring_reader_fill(&arena->rings[i].reader) > arena->rings[i].reader.size / 3)
			return true;
	return false;
}

static bool can_ring(const struct peer *peer, const struct peer_arena *arena, uint64_t now_ns)
{
	return peer->state == PEER_ACTIVE && peer->type->has_doorbells &&
	       now_ns >= arena->deaf_until_ns;
}

/* Arms all doorbells. Returns whether a ring has filled since it was drained, while the doorbell of
 * its arena was not armed. */
static bool listen_to_all(struct collectors *collectors, uint64_t now_ns)
{
	struct doorbell doorbells[DOORBELLS_MAX];
	bool is_full = false;
	size_t n = 0;

	POINTER_EACH(struct peer, peer, collectors->peers) {
		for (uint32_t k = 0; k < peer->n_arenas && n < DOORBELLS_MAX; k++) {
			struct peer_arena *arena = peer->arenas[k];

			if (!can_ring(peer, arena, now_ns))
				continue;
			if (!arena->armed) {
				arena->doorbell.value =
					ring_arena_arm(&arena->memory, &arena->doorbell.word);
				arena->armed = true;
				is_full = is_full || has_filled(arena);
			}
			doorbells[n++] = arena->doorbell;
		}
	}
	doorbells_set(collectors->options.doorbells, doorbells, n);
	collectors->rung = false;
	collectors->armed_ns = now_ns;
	return is_full;
}

/* Returns whether the list of doorbells must be set again: one has rung, or one is not armed. */
static bool is_outdated(const struct collectors *collectors, uint64_t now_ns)
{
	size_t n = 0;

	if (!collectors->options.doorbells)
		return false;
	for (guint i = 0; !collectors->rung && i < collectors->peers->len; i++) {
		const struct peer *peer = peer_at(collectors, i);

		for (uint32_t k = 0; k < peer->n_arenas && n < DOORBELLS_MAX; k++) {
			if (!can_ring(peer, peer->arenas[k], now_ns))
				continue;
			if (!peer->arenas[k]->armed)
				return true;
			n++;
		}
	}
	return collectors->rung;
}

/* Returns whether the peer must be checked again soon. */
static bool is_waiting(const struct peer *peer)
{
	return peer->state == PEER_WAITING ||
	       (peer->state == PEER_ACTIVE &&
		(!peer->process.process || peer->called || peer->ended ||
		 (peer->n_unanswered > 0 && !peer->is_blocked)));
}

/* Polls rings without doorbells, less often while they are idle. Returns when to poll next. */
static uint64_t poll_rings(struct collectors *collectors, uint64_t now_ns)
{
	bool is_filling = false, are_there = false;

	if (now_ns < collectors->poll_ns)
		return collectors->poll_ns;
	POINTER_EACH(const struct peer, peer, collectors->peers) {
		if (!peer->type->poll || peer->state != PEER_ACTIVE)
			continue;
		for (uint32_t k = 0; k < peer->n_arenas; k++) {
			are_there = true;
			is_filling |= peer->type->poll(peer->arenas[k]);
		}
	}
	if (is_filling) {
		collectors->poll_ms = 1;
		collectors->due_ns = now_ns;
	}
	collectors->poll_ns = are_there ? now_ns + collectors->poll_ms * MS : UINT64_MAX;
	collectors->poll_ms = MIN_OF(collectors->poll_ms * 2, MAX_POLL_MS);
	return collectors->poll_ns;
}

bool collectors_are_quiet(const struct collectors *collectors, uint64_t now_ns)
{
	size_t n_doorbells = 0;

	if (collectors->peers->len == 0)
		return true;
	if (collectors->hold_ns || collectors->unfinished || collectors->queued_bytes > 0 ||
	    collectors->rung || collectors->interval_ms < COLLECTORS_MAX_INTERVAL_MS ||
	    !collectors->options.doorbells || !doorbells_are_heard(collectors->options.doorbells))
		return false;
	POINTER_EACH(const struct peer, peer, collectors->peers) {
		if (is_waiting(peer))
			return false;
		for (uint32_t k = 0; peer->state == PEER_ACTIVE && k < peer->n_arenas; k++)
			if (!peer->arenas[k]->armed || !can_ring(peer, peer->arenas[k], now_ns) ||
			    ++n_doorbells > DOORBELLS_MAX)
				return false;
	}
	return true;
}

uint64_t collectors_sleep(struct collectors *collectors, uint64_t now_ns, uint64_t longest_ns)
{
	uint64_t interval_ns = collectors->interval_ms * MS;
	bool is_soon = false;

	collectors->due_ns = UINT64_MAX;
	if (!collectors->peers || collectors->peers->len == 0)
		return collectors->due_ns;
	for (guint i = 0; !is_soon && i < collectors->peers->len; i++)
		is_soon = is_waiting(peer_at(collectors, i));
	if (is_outdated(collectors, now_ns)) {
		/* Arm doorbells at most a thousand times a second. */
		if (now_ns - collectors->armed_ns < MS)
			is_soon = true;
		else
			is_soon = listen_to_all(collectors, now_ns) || is_soon;
	}
	if (is_soon)
		interval_ns = MS;
	else if (longest_ns > interval_ns && collectors_are_quiet(collectors, now_ns))
		interval_ns = longest_ns;
	collectors->due_ns = collectors->unfinished ? 0 : collectors->drained_ns + interval_ns;
	/* due_ns does not include the time of the next poll, because a poll is not a drain. */
	interval_ns = poll_rings(collectors, now_ns);
	return MIN_OF(collectors->due_ns, interval_ns);
}

/* ---- The rest -------------------------------------------------------------------------------- */

static void lose_peer(struct collectors *collectors, struct peer *peer)
{
	for (uint32_t k = 0; k < peer->n_arenas; k++)
		for (uint32_t n = 0; n < peer->arenas[k]->memory.n_rings; n++) {
			struct peer_ring *ring = &peer->arenas[k]->rings[n];
			struct peer_loss loss = { 0 };

			for (struct peer_item *item; (item = peer_ring_peek(ring));) {
				peer_loss_add(&loss, item->type, item->time_ns);
				collectors->queued_bytes -= peer_ring_skip(ring);
			}
			peer_loss_report(&loss, peer);
		}
}

/* Drops the queued records of each peer that has queued more than `more_than` bytes, because there
 * is no time left to write them. */
static void lose_queued(struct collectors *collectors, uint64_t more_than)
{
	for (guint i = 0; i < collectors->peers->len; i++)
		if (peer_at(collectors, i)->queued_bytes > more_than)
			lose_peer(collectors, peer_at(collectors, i));
}

uint64_t collectors_unread(const struct peer *peer)
{
	uint64_t bytes = 0;

	for (uint32_t k = 0; k < peer->n_arenas; k++)
		for (uint32_t n = 0; n < peer->arenas[k]->memory.n_rings; n++)
			bytes += peer->type->unread(peer->arenas[k], n);
	return bytes;
}

uint64_t collectors_all_unread(const struct collectors *collectors)
{
	uint64_t bytes = 0;

	for (guint i = 0; i < collectors->peers->len; i++)
		if (peer_at(collectors, i)->state == PEER_ACTIVE)
			bytes += collectors_unread(peer_at(collectors, i));
	return bytes;
}

void collectors_drain_rest(struct collectors *collectors, uint64_t until_ns)
{
	uint64_t now_ns = clock_now();
	uint64_t half_ns = now_ns + (until_ns - MIN_OF(now_ns, until_ns)) / 2;

	while (collectors_all_unread(collectors) > 0 && now_ns < half_ns) {
		collectors_drain(collectors, now_ns);
		collectors_emit(collectors, UINT64_MAX, half_ns);
		now_ns = clock_now();
	}
}

void collectors_emit_rest(struct collectors *collectors, uint64_t until_ns)
{
	uint64_t begin_ns = MIN_OF(clock_now(), until_ns);
	bool is_modest_waiting = false;

	collectors->bound_ns = UINT64_MAX;
	collectors_emit(collectors, UINT64_MAX, begin_ns + (until_ns - begin_ns) / 2);
	for (guint i = 0; i < collectors->peers->len; i++) {
		uint64_t bytes = peer_at(collectors, i)->queued_bytes;

		is_modest_waiting |= bytes > 0 && bytes <= COLLECTORS_MODEST;
	}
	if (is_modest_waiting) {
		lose_queued(collectors, COLLECTORS_MODEST);
		/* Dropping took time as well, so extend the deadline. */
		until_ns = MAX_OF(until_ns, clock_now() + MODEST_NS);
	}
	collectors_emit(collectors, UINT64_MAX, until_ns);
	lose_queued(collectors, 0);
}
