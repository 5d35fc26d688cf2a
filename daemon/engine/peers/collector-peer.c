/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Collector peer - one registered process: its connection, its arenas, and the records taken
 * out of their rings
 *
 * Any process that can connect may be a peer, so no read or answer blocks. Each ring's records are
 * copied into a queue. A record waits there until every ring has reported that it adds no older
 * records.
 * Invariants: (1) only an answer of status 0 carries a descriptor
 *                 [test-engine-collectors: registration]
 *             (2) recorded plus lost equals attempted
 *                 [test-engine-collectors-rows: conservation]
 *             (3) a ring with false contents loses only its own records
 *                 [test-engine-collectors-rows: hostile]
 *             (4) the cost of a thread does not depend on the number of rings
 *                 [test_hostile_peers: floods]
 * Runs on the drain thread only.
 */
#include "daemon/engine/peers/collector-peer.h"

#include "arch/packet.h"
#include "daemon/deferred-close.h"
#include "daemon/engine/huge-pages.h"
#include "daemon/stranger.h"

#include <errno.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define MAX_REQUESTS 256 /* per process; a correct process needs fewer */
#define LOST_PER_NS 2    /* records per ns; a higher loss is impossible, so the count is false */
#define LOST_BURST 4096
#define CHUNK_BYTES (256u << 10) /* enough for several drains; an empty queue keeps at most this */
/* Chunk size of a long queue, with the header: a huge page. Smaller pages would be allocated one by
 * one, which takes longer than copying into them. */
#define LARGE_BYTES HUGE_PAGE
#define LONG_QUEUE_BYTES (LARGE_BYTES / 2)
#define MAX_SPARE 8u

struct peer *peer_new(struct collector_rows *rows, const struct message_peer *message,
		      int connection, int pidfd, uint64_t now_ns)
{
	struct peer *peer = g_new0(struct peer, 1);

	collector_process_init(&peer->process, rows, message->pid, message->inner_pid);
	peer->connection = connection;
	peer->pidfd = pidfd;
	peer->wants = message->wants;
	peer->came_ns = now_ns;
	peer->claims = g_hash_table_new_full(g_direct_hash, g_direct_equal, NULL, g_free);
	return peer;
}

uint64_t peer_arena_bytes(const struct peer *peer)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < peer->n_arenas; i++)
		bytes += peer->arenas[i]->memory.bytes;
	return bytes;
}

/* Sets the ring's thread. A thread that moved to a larger ring has two rings, but one producer. */
static void set_producer(struct peer_ring *ring, uint32_t tid)
{
	struct peer *peer = ring->peer;
	struct peer_claim *claim = g_hash_table_lookup(peer->claims, GUINT_TO_POINTER(tid));

	if (claim) {
		ring->producer = collector_producer_ref(claim->producer);
		claim->n_rings++;
		return;
	}
	ring->producer = collector_producer_new(&peer->process, tid);
	claim = g_new(struct peer_claim, 1);
	*claim = (struct peer_claim){ ring->producer, 1 };
	g_hash_table_insert(peer->claims, GUINT_TO_POINTER(tid), claim);
}

static void drop_producer(struct peer_ring *ring)
{
	struct collector_producer *producer = steal_ptr(&ring->producer);
	struct peer_claim *claim;

	if (!producer)
		return;
	claim = g_hash_table_lookup(ring->peer->claims,
				    GUINT_TO_POINTER(collector_producer_tid(producer)));
	/* A sysprof ring has no claim, because its frames name the writer. */
	if (claim && --claim->n_rings == 0)
		g_hash_table_remove(ring->peer->claims,
				    GUINT_TO_POINTER(collector_producer_tid(producer)));
	collector_producer_unref(producer);
}

void peer_arena_free(struct peer_arena *arena)
{
	const struct peer_type *type = arena->rings[0].peer->type;

	for (uint32_t k = 0; k < arena->memory.n_rings; k++) {
		struct peer_ring *ring = &arena->rings[k];

		while (peer_ring_peek(ring))
			peer_ring_skip(ring);
		g_free(ring->queue.chunks);
		g_free(ring->queue.spans);
		drop_producer(ring);
	}
	if (type->free_arena)
		type->free_arena(arena);
	g_free(arena->rings);
	ring_arena_memory_done(&arena->memory);
	g_free(arena);
}

void peer_free(struct peer *peer)
{
	for (uint32_t i = 0; i < peer->n_arenas; i++)
		peer_arena_free(peer->arenas[i]);
	g_free(peer->arenas);
	if (peer->type->done)
		peer->type->done(peer);
	g_hash_table_destroy(peer->claims);
	collector_process_done(&peer->process);
	deferred_close(peer->connection);
	if (peer->pidfd >= 0)
		close(peer->pidfd);
	g_free(peer);
}

/* ---- The connection -------------------------------------------------------------------------- */

bool peer_answer(struct peer *peer, enum control_status status, uint64_t session, int arena_fd)
{
	struct control_answer answer = {
		.magic = CONTROL_ANSWER_MAGIC,
		.version = CONTROL_VERSION,
		.bytes = CONTROL_BYTES,
		.status = status,
		.session = session,
	};
	const struct iovec part = { &answer, sizeof(answer) };
	int fd = status == CONTROL_OK ? arena_fd : -1;
	ssize_t n;

	do {
		n = packet_send(peer->connection, &part, 1, fd, MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	return n == (ssize_t)sizeof(answer);
}

enum peer_message peer_receive(struct peer *peer, struct control_request *ret_request)
{
	ssize_t n = stranger_receive(peer->connection, ret_request, sizeof(*ret_request));

	if (n < 0 && errno == EAGAIN)
		return PEER_NOTHING;
	if (n != (ssize_t)sizeof(*ret_request) || ret_request->magic != CONTROL_REQUEST_MAGIC ||
	    ret_request->version != CONTROL_VERSION || ret_request->bytes != CONTROL_BYTES ||
	    ++peer->n_requests > MAX_REQUESTS)
		return PEER_CLOSED;
	return PEER_REQUEST;
}

bool peer_has_hung_up(const struct peer *peer)
{
	struct pollfd item = { .fd = peer->connection };

	return peer->connection < 0 || (poll(&item, 1, 0) > 0 && item.revents & POLLHUP);
}

/* ---- Arenas ---------------------------------------------------------------------------------- */

static void init_reader(struct peer_arena *arena, uint32_t i, struct tick_clock *ticks)
{
	ring_reader_init(&arena->rings[i].reader, &arena->memory, i);
	ring_reader_use_ticks(&arena->rings[i].reader, ticks);
}

int peer_add_arena(struct peer *peer, const struct ring_arena_sizes *sizes,
		   struct tick_clock *ticks, int *ret_fd)
{
	struct peer_arena *arena = g_new0(struct peer_arena, 1);
	int r = ring_arena_make(sizes, &arena->memory, ret_fd);

	if (r < 0) {
		g_free(arena);
		return r;
	}
	if (ticks)
		ring_arena_offer_ticks(&arena->memory);
	arena->rings = g_new0(struct peer_ring, arena->memory.n_places);
	for (uint32_t i = 0; i < arena->memory.n_rings; i++) {
		init_reader(arena, i, ticks);
		arena->lost_ns = arena->rings[i].reader.grant_ns;
	}
	peer_attach_arena(peer, arena);
	return 0;
}

bool peer_arena_needs_more(const struct peer_arena *arena)
{
	const struct ring_arena_memory *memory = &arena->memory;
	uint64_t largest;

	if (memory->n_rings == memory->n_places)
		return false;
	largest = memory->places[memory->n_rings - 1].data_bytes;
	for (uint32_t i = memory->n_rings; i-- > 0 && memory->places[i].data_bytes == largest;)
		if (arena->rings[i].reader.tail > 0 ||
		    ring_reader_fill(&arena->rings[i].reader) > 0)
			return true;
	return false;
}

void peer_arena_grow(struct peer_arena *arena, struct tick_clock *ticks)
{
	uint32_t i = arena->memory.n_rings;

	for (ring_arena_grow(&arena->memory); i < arena->memory.n_rings; i++) {
		init_reader(arena, i, ticks);
		/* Makes the ring claimable: sets its grant time, which no claim may precede. */
		ring_reader_recycle(&arena->rings[i].reader);
	}
}

void peer_attach_arena(struct peer *peer, struct peer_arena *arena)
{
	if (peer->n_arenas == peer->arena_room) {
		peer->arena_room = MAX_OF(peer->arena_room * 2, (uint32_t)PEER_MAX_ARENAS);
		peer->arenas = g_renew(struct peer_arena *, peer->arenas, peer->arena_room);
	}
	peer->arenas[peer->n_arenas++] = arena;
	for (uint32_t i = 0; i < arena->memory.n_places; i++)
		arena->rings[i].peer = peer;
}

struct peer_arena *peer_detach_arena(struct peer *peer, uint32_t i)
{
	struct peer_arena *arena = peer->arenas[i];

	peer->arenas[i] = peer->arenas[--peer->n_arenas];
	return arena;
}

/* Any process that maps the arena can set the arena's loss counter, so a count above the possible
 * rate is reported as corruption. */
void peer_arena_count_lost(struct peer *peer, struct peer_arena *arena, uint64_t now_ns)
{
	uint64_t lost = peer->type->has_doorbells ? ring_arena_lost(&arena->memory) : 0;
	uint64_t most = LOST_PER_NS * (now_ns - arena->lost_ns) + LOST_BURST;
	uint64_t more = lost - arena->reported_lost;

	if (more == 0)
		return;
	loss_stream_add(&peer->process.losses,
			more <= most ? PROF_LOSS_RING_REFUSED : PROF_LOSS_RING_CORRUPT,
			more <= most ? more : 1, arena->lost_ns, now_ns);
	arena->reported_lost = lost;
	arena->lost_ns = now_ns;
}

/* ---- A ring's queue -------------------------------------------------------------------------- */

static struct peer_chunk *pop_large(struct collector_rows *rows)
{
	struct peer_chunk *chunk = rows->spare;

	if (!chunk)
		return huge_pages_map(LARGE_BYTES);
	rows->spare = chunk->next;
	rows->n_spare--;
	return chunk;
}

static struct peer_chunk *new_chunk(struct collector_rows *rows, size_t n, uint64_t n_queued)
{
	size_t most = LARGE_BYTES - sizeof(struct peer_chunk), room;
	bool is_large = n_queued > LONG_QUEUE_BYTES && n <= most;
	struct peer_chunk *chunk = is_large ? pop_large(rows) : NULL;

	if (chunk) {
		*chunk = (struct peer_chunk){ .room = most, .is_large = true };
		return chunk;
	}
	/* Size the chunk by the number of queued bytes, because a ring that is never empty would
	 * otherwise get ever larger chunks. */
	room = MAX_OF(n, MIN_OF((size_t)n_queued * 2, (size_t)CHUNK_BYTES));
	chunk = g_malloc(sizeof(*chunk) + room);
	*chunk = (struct peer_chunk){ .room = room };
	return chunk;
}

static void free_chunk(struct collector_rows *rows, struct peer_chunk *chunk)
{
	if (!chunk->is_large) {
		g_free(chunk);
	} else if (rows->n_spare == MAX_SPARE) {
		munmap(chunk, LARGE_BYTES);
	} else {
		chunk->next = rows->spare;
		rows->spare = chunk;
		rows->n_spare++;
	}
}

void peer_free_spare(struct collector_rows *rows)
{
	while (rows->spare)
		munmap(pop_large(rows), LARGE_BYTES);
}

/* Returns room for n bytes in one chunk. Queued records do not move. */
static uint8_t *make_room(struct peer_ring *ring, size_t n)
{
	struct peer_queue *queue = &ring->queue;
	struct peer_chunk *last = queue->last, *chunk;

	if (last && last->room - last->n >= n)
		return last->bytes + last->n;
	/* The chunk that an empty queue has kept is too small, so replace it. */
	if (queue->n_skipped == queue->n_put)
		g_free(steal_ptr(&last));
	chunk = new_chunk(ring->peer->process.rows, n, queue->n_put - queue->n_skipped);
	*(last ? &last->next : &queue->chunks) = chunk;
	queue->last = chunk;
	return chunk->bytes;
}

/* Counts n bytes that were copied to the end of the queue. */
static void append(struct peer_ring *ring, size_t n)
{
	struct peer_queue *queue = &ring->queue;

	queue->last->n += n;
	queue->n_put += n;
	ring->peer->queued_bytes += n;
	if (queue->first == queue->n_spans)
		queue->first = queue->n_spans = 0;
	else if (queue->spans[queue->n_spans - 1].producer == ring->producer) {
		queue->spans[queue->n_spans - 1].end = queue->n_put;
		return;
	}
	if (queue->n_spans == queue->span_room) {
		queue->span_room = MAX_OF(queue->span_room * 2, 1u);
		queue->spans = g_renew(struct peer_span, queue->spans, queue->span_room);
	}
	queue->spans[queue->n_spans++] =
		(struct peer_span){ collector_producer_ref(ring->producer), queue->n_put };
}

size_t peer_ring_put(struct peer_ring *ring, enum ring_type type, uint64_t time_ns,
		     const void *fixed, uint32_t n_fixed, const void *text, uint32_t n_text)
{
	const struct peer_item item = {
		.bytes = (uint32_t)(sizeof(item) + ((size_t)n_fixed + n_text + 7) / 8 * 8),
		.type = (uint8_t)type,
		.time_ns = time_ns,
	};
	uint8_t *to = make_room(ring, item.bytes);

	memcpy(to, &item, sizeof(item));
	memcpy(to + sizeof(item), fixed, n_fixed);
	if (n_text)
		memcpy(to + sizeof(item) + n_fixed, text, n_text);
	append(ring, item.bytes);
	return item.bytes;
}

/* Frees the first chunk, which has no more records. Keeps it if it is the last and not too
 * large. */
static void leave_chunk(struct peer_ring *ring)
{
	struct peer_queue *queue = &ring->queue;
	struct peer_chunk *done = queue->chunks;

	queue->at = queue->slots = queue->blocks = 0;
	if (done->next) {
		queue->chunks = done->next;
		free_chunk(ring->peer->process.rows, done);
		return;
	}
	done->n = 0;
	/* Release the memory of a burst. There are many rings, so an empty queue must not keep more
	 * than the size of its ring. */
	if (done->room > MIN_OF(ring->reader.size, (uint64_t)CHUNK_BYTES)) {
		free_chunk(ring->peer->process.rows, done);
		queue->chunks = queue->last = NULL;
	}
}

size_t peer_ring_advance(struct peer_ring *ring)
{
	struct peer_queue *queue = &ring->queue;
	const struct peer_item *item;
	size_t bytes = 0;

	for (;;) {
		while (queue->first < queue->n_spans &&
		       queue->n_skipped == queue->spans[queue->first].end)
			collector_producer_unref(queue->spans[queue->first++].producer);
		while (queue->chunks && queue->at == queue->chunks->n &&
		       (queue->at > 0 || queue->chunks->next))
			leave_chunk(ring);
		item = peer_ring_peek(ring);
		if (!item || item->type != RING_PAD)
			break;
		queue->at += item->bytes;
		queue->n_skipped += item->bytes;
		bytes += item->bytes;
	}
	ring->peer->queued_bytes -= bytes;
	return bytes;
}

size_t peer_ring_quarantine(struct peer_ring *ring, enum ring_fault fault)
{
	const struct peer_item *item = peer_ring_peek(ring);
	uint64_t from_ns = item ? item->time_ns : ring->reader.last_ns, to_ns = from_ns, n = 0;
	size_t bytes = 0;

	ring_reader_quarantine(&ring->reader, fault);
	while ((item = peer_ring_peek(ring)) != NULL) {
		to_ns = item->time_ns;
		n += ring_type_is_event(item->type);
		bytes += peer_ring_skip(ring);
	}
	if (n)
		loss_stream_add(&ring->peer->process.losses, PROF_LOSS_RING_CORRUPT, n, from_ns,
				to_ns);
	return bytes;
}

/* ---- A drain --------------------------------------------------------------------------------- */

static const enum prof_loss_cause causes[RING_N_LOST] = {
	[RING_LOST_FULL] = PROF_LOSS_RING_FULL,
	[RING_LOST_TIMEOUT] = PROF_LOSS_RING_FULL,
	[RING_LOST_BIG] = PROF_LOSS_RING_REFUSED,
	[RING_LOST_NESTED] = PROF_LOSS_RING_REENTRANT,
};

static void count(struct peer_ring *ring, uint64_t total, uint64_t *reported,
		  enum prof_loss_cause cause, uint64_t from_ns)
{
	if (total > *reported)
		loss_stream_add(&ring->peer->process.losses, cause, total - *reported, from_ns,
				ring->reader.drain_ns);
	*reported = total;
}

void peer_loss_add(struct peer_loss *loss, enum ring_type type, uint64_t time_ns)
{
	if (!ring_type_is_event(type))
		return;
	if (loss->count++ == 0)
		loss->from_ns = time_ns;
	loss->to_ns = time_ns;
}

void peer_loss_report(const struct peer_loss *loss, struct peer *peer)
{
	loss_stream_add(&peer->process.losses, PROF_LOSS_WRITER_BACKLOG, loss->count, loss->from_ns,
			loss->to_ns);
}

size_t peer_ring_drain(struct peer_ring *ring, enum ring_drain how, void *buffer, size_t n_bytes,
		       uint64_t most)
{
	const struct ring_totals *totals = &ring->reader.totals;
	struct ring_totals *reported = &ring->reported;
	struct ring_batch batch;
	uint64_t from_ns = ring->reader.drain_ns, n_drained = 0;
	struct peer_loss late = { 0 };
	struct ring_record record;
	size_t bytes = 0, n;

	do {
		/* Copy directly into the queue, unless the records are only counted. Bytes that the
		 * producer writes meanwhile wait for the next drain. */
		n = n_bytes;
		if (!ring->peer->is_late) {
			n = MIN_OF(n_bytes, (size_t)ring_reader_fill(&ring->reader));
			if (n > 0)
				buffer = make_room(ring, n);
		}
		ring_reader_drain(&ring->reader, how, buffer, n, &batch);
		n = (size_t)(batch.end - batch.next);
		n_drained += n;
		if (n > 0 && !ring->producer)
			set_producer(ring, batch.tid);
		while (ring->peer->is_late && ring_batch_next(&batch, &record))
			peer_loss_add(&late, record.type, record.time_ns);
		if (!ring->peer->is_late && n > 0) {
			append(ring, n);
			bytes += n - peer_ring_advance(ring);
		}
	} while (batch.is_more && n_drained < most);
	ring->has_more = batch.is_more;
	peer_loss_report(&late, ring->peer);
	ring->bound_ns = batch.bound_ns;
	for (size_t i = 0; ring->reader.fault == RING_FAULT_NONE && i < RING_N_LOST; i++)
		count(ring, totals->lost[i], &reported->lost[i], causes[i], from_ns);
	if (ring->reader.fault == RING_FAULT_NONE) {
		count(ring, totals->abandoned, &reported->abandoned, PROF_LOSS_RING_REENTRANT,
		      from_ns);
		count(ring, totals->unpublished, &reported->unpublished, PROF_LOSS_RING_REENTRANT,
		      from_ns);
	}
	if (batch.is_closed && how == RING_DRAIN_LIVE) {
		drop_producer(ring);
		ring_reader_recycle(&ring->reader);
	}
	return bytes;
}
