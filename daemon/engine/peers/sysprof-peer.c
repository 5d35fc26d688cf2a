/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Sysprof peer - a process that uses sysprof's protocol, and the rings of its threads
 *
 * Each thread of each copy of the library requests a ring over a socket that all processes below
 * the command share, so an answer may reach another process that waits for one. So a ring belongs
 * to no process until its first frame names a pid. The process with this pid must have sent a
 * request; the kernel reports the sender. All later frames must be from this process. Frames are
 * read in order. After a frame of invalid length, which may come from two processes that write into
 * one ring, all unread bytes are skipped. After many invalid frames, or one of another process, the
 * ring is quarantined. The library drops frames that do not fit, without counting them: a full ring
 * is a loss of an unknown number of frames.
 * Invariants: (1) no frame of a process that sent no request becomes a row
 *                 [test-engine-sysprof: stranger, swapped]
 *             (2) a ring with false contents loses only its own frames
 *                 [test-engine-sysprof: hostile, fuzz_sysprof_race]
 *             (3) a full ring is reported                       [test-engine-sysprof: full]
 * Runs on the drain thread only.
 */
#include "daemon/engine/peers/sysprof-peer.h"

#include "arch/packet.h"
#include "base/clock.h"
#include "base/each.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#define MAX_FAULTS 64
/* With less room than this, or than the largest frame, a frame may have been dropped. */
#define FULL_BYTES 1024u
#define END_NS UINT64_C(1000000000)
#define PATIENCE_NS UINT64_C(400000000) /* maximum time that a request is in transit */

/* Returns the process's pid in its own PID namespace, as in its frames. */
static int32_t peer_number(const struct peer *peer)
{
	return peer->process.inner_pid ? (int32_t)peer->process.inner_pid : peer->process.pid;
}

/* Returns whether an answer can be sent. The process waits without a timeout, so the answer must
 * not get lost. */
static bool can_answer(const struct peer *peer)
{
	struct pollfd item = { .fd = peer->connection, .events = POLLOUT };

	return poll(&item, 1, 0) > 0;
}

/* Answers a request. `fd`: the requested ring, or -1. */
static void answer(struct peer *peer, int fd)
{
	char byte = 0;
	const struct iovec part = { &byte, 1 };
	ssize_t n;

	do {
		n = packet_send(peer->connection, &part, 1, fd, MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	/* Ignore failure: a process whose socket is full is not waiting for this answer. */
}

/* ---- Rings ----------------------------------------------------------------------------------- */

static void on_record(enum ring_type type, uint64_t time_ns, const void *fixed, uint32_t n_fixed,
		      const void *text, uint32_t n_text, void *data)
{
	struct peer_arena *arena = data;

	arena->sysprof->n_queued +=
		peer_ring_put(&arena->rings[0], type, time_ns, fixed, n_fixed, text, n_text);
}

/* Makes a ring. n_bytes: size of its body. Returns 0 or -errno. */
MUST_CHECK static int add_ring(struct peer *peer, uint32_t n_bytes, int *ret_fd)
{
	struct peer_arena *arena = g_new0(struct peer_arena, 1);
	struct peer_sysprof *sysprof = g_new0(struct peer_sysprof, 1);
	uint64_t now_ns = clock_now();
	int r = sysprof_ring_make(n_bytes, &sysprof->ring, &arena->memory, ret_fd);

	if (r < 0) {
		g_free(sysprof);
		g_free(arena);
		return r;
	}
	/* A thread takes the time of its first mark before it requests the ring. */
	sysprof->frames = sysprof_frames_new(now_ns - SYSPROF_HOLD_NS, on_record, arena);
	arena->sysprof = sysprof;
	arena->rings = g_new0(struct peer_ring, 1);
	arena->rings[0].reader.size = n_bytes;
	arena->rings[0].reader.drain_ns = now_ns;
	peer_attach_arena(peer, arena);
	return 0;
}

/* Returns the pid in the first frame; 0: no frame yet. */
static int32_t arena_pid(const struct peer_arena *arena)
{
	_Alignas(8) uint8_t header[SYSPROF_FRAME_BYTES];
	uint32_t fill;

	if (!sysprof_ring_fill(&arena->sysprof->ring, &fill) || fill < sizeof(header))
		return 0;
	sysprof_ring_copy(&arena->sysprof->ring, header, sizeof(header));
	return sysprof_frame_pid(header);
}

/* Returns whether the request of the ring's writer should have arrived by now. */
static bool is_overdue(struct peer_arena *arena, uint64_t now_ns)
{
	if (arena->sysprof->found_ns == 0)
		arena->sysprof->found_ns = now_ns;
	return now_ns - arena->sysprof->found_ns > PATIENCE_NS;
}

/* Assigns the ring to this process. */
static void bind_arena(struct peer_arena *arena, struct peer *peer)
{
	arena->sysprof->pid = peer_number(peer);
	/* Sysprof's marks do not name their thread. */
	arena->rings[0].producer =
		collector_producer_new(&peer->process, (uint32_t)arena->sysprof->pid);
}

static bool poll_ring(struct peer_arena *arena)
{
	uint32_t fill;

	sysprof_ring_populate(&arena->sysprof->ring);
	return arena->rings[0].reader.fault == RING_FAULT_NONE &&
	       sysprof_ring_fill(&arena->sysprof->ring, &fill) &&
	       fill > arena->sysprof->ring.size / 16;
}

/* Returns whether the ring's thread ended at least END_NS ago, and all its records are rows. */
static bool is_done(const struct peer_arena *arena, uint64_t now_ns)
{
	uint64_t ended_ns = arena->sysprof->ended_ns;

	return ended_ns && now_ns - ended_ns > END_NS && !peer_ring_peek(&arena->rings[0]);
}

/* ---- A drain --------------------------------------------------------------------------------- */

static void lose(const struct peer_arena *arena, enum prof_loss_cause cause, uint64_t count)
{
	const struct peer_ring *ring = &arena->rings[0];

	loss_stream_add(&ring->peer->process.losses, cause, count, ring->reader.drain_ns,
			clock_now());
}

/* Counts an invalid frame. Quarantines the ring after too many of them, or if the frame is another
 * process's. */
static void count_fault(struct peer_arena *arena, enum ring_fault fault)
{
	lose(arena, PROF_LOSS_RING_CORRUPT, 1);
	if (fault == RING_FAULT_TID || ++arena->sysprof->n_faults == MAX_FAULTS)
		ring_reader_quarantine(&arena->rings[0].reader, fault);
}

static void add_frame(struct peer_arena *arena, const uint8_t *frame, size_t n_bytes,
		      uint64_t now_ns)
{
	struct peer_sysprof *sysprof = arena->sysprof;
	uint64_t lost;
	enum sysprof_result result = sysprof_frame_add(
		sysprof->frames, arena->rings[0].peer->counters, frame, n_bytes, now_ns, &lost);

	/* The end may be that of a forked child, so a later frame revokes it. */
	sysprof->ended_ns = result == SYSPROF_END ? now_ns : 0;
	if (result == SYSPROF_BAD)
		count_fault(arena, RING_FAULT_PAYLOAD);
	if (lost)
		lose(arena, PROF_LOSS_RING_REFUSED, lost);
}

/* Adds frames up to one of invalid length, or until the ring is quarantined. Returns the number of
 * bytes of the added frames. */
static size_t add_frames(struct peer_arena *arena, const uint8_t *buffer, size_t n, uint64_t now_ns)
{
	size_t at = 0, bytes;

	while ((bytes = sysprof_frame_bytes(buffer + at, n - at)) > 0) {
		int32_t pid = sysprof_frame_pid(buffer + at);

		if (pid != 0 && pid != arena->sysprof->pid)
			count_fault(arena, RING_FAULT_TID);
		if (arena->rings[0].reader.fault != RING_FAULT_NONE)
			break;
		arena->sysprof->largest = MAX_OF(arena->sysprof->largest, (uint32_t)bytes);
		add_frame(arena, buffer + at, bytes, now_ns);
		at += bytes;
	}
	return at;
}

/* Returns the number of bytes read; 0: nothing to read now. */
static uint32_t drain_some(struct peer_arena *arena, uint8_t *buffer, size_t n_bytes)
{
	struct sysprof_ring *ring = &arena->sysprof->ring;
	uint32_t fill, n, good;

	if (!sysprof_ring_fill(ring, &fill)) {
		count_fault(arena, RING_FAULT_POSITION);
		return 0;
	}
	if (fill == 0)
		return 0;
	n = MIN_OF(fill, (uint32_t)n_bytes);
	sysprof_ring_copy(ring, buffer, n);
	good = (uint32_t)add_frames(arena, buffer, n, clock_now());
	if (arena->rings[0].reader.fault != RING_FAULT_NONE)
		return 0;
	if (good == 0) {
		/* Skip all that is unread: the next frame will start at the writer's position. */
		count_fault(arena, RING_FAULT_LENGTH);
		good = fill;
	}
	/* Check before skipping the frames: until then the writer gets no room, so the ring is
	 * still full if a frame was dropped. */
	if (sysprof_ring_fill(ring, &fill) &&
	    ring->size - fill < MAX_OF(arena->sysprof->largest, FULL_BYTES))
		lose(arena, PROF_LOSS_RING_FULL, LOSS_UNKNOWN);
	sysprof_ring_skip(ring, good);
	return good;
}

static size_t drain(struct collectors *collectors, struct peer_arena *arena, uint32_t i,
		    enum ring_drain how, uint64_t *ret_fill)
{
	struct peer_ring *ring = &arena->rings[0];
	uint64_t start_ns = clock_now();
	uint32_t n;

	*ret_fill = 0;
	ring->bound_ns = UINT64_MAX;
	arena->sysprof->n_queued = 0;
	if (arena->sysprof->pid == 0 || ring->reader.fault != RING_FAULT_NONE)
		return 0;
	do {
		n = drain_some(arena, collectors->buffer, COLLECTORS_BUFFER_BYTES);
		*ret_fill += n;
		/* Stop after two rings' size, so that a fast writer does not block this thread. */
	} while (n > 0 && *ret_fill < 2 * (uint64_t)arena->sysprof->ring.size);
	ring->reader.drain_ns = start_ns;
	ring->reader.last_ns = sysprof_frames_last_ns(arena->sysprof->frames);
	if (n > 0)
		ring->bound_ns = ring->reader.last_ns;
	return arena->sysprof->n_queued;
}

static uint64_t unread(const struct peer_arena *arena, uint32_t i)
{
	uint32_t fill;

	return arena->sysprof->pid && arena->rings[i].reader.fault == RING_FAULT_NONE &&
			       sysprof_ring_fill(&arena->sysprof->ring, &fill)
		       ? fill
		       : 0;
}

/* ---- Requests -------------------------------------------------------------------------------- */

/* Returns the size of a new ring: at most a quarter of the room that is left for all processes, and
 * half of the room that is left for this process. A quarter of all room is kept for rings of the
 * minimum size, so that many threads get a ring. Returns 0 if there is no room. */
static uint32_t choose_bytes(const struct collectors *collectors, const struct peer *peer)
{
	uint64_t most = collectors->sysprof_max_bytes;
	uint64_t used = MAX_OF(collectors->sysprof_bytes, 2 * peer_arena_bytes(peer));
	uint32_t bytes = SYSPROF_RING_MAX_BYTES;

	while (bytes > SYSPROF_RING_MIN_BYTES && used + 4 * (uint64_t)bytes > most / 4 * 3)
		bytes /= 2;
	return peer->n_arenas < PEER_MAX_SYSPROF && used + 2 * (uint64_t)bytes <= most ? bytes : 0;
}

/* Answers one request, with or without a ring. */
static void give_ring(struct collectors *collectors, struct peer *peer)
{
	uint32_t bytes = choose_bytes(collectors, peer);
	uint64_t begin_ns = clock_now();
	CLEANUP_CLOSE int fd = -1;

	peer->n_unanswered--;
	if (bytes > 0 && add_ring(peer, bytes, &fd) == 0)
		collectors_count_arena(collectors, peer, begin_ns);
	else
		loss_stream_add(&peer->process.losses, PROF_LOSS_RING_REFUSED, LOSS_UNKNOWN,
				begin_ns, begin_ns);
	answer(peer, fd);
	collectors->poll_ms = 1;
	collectors->poll_ns = 0;
}

/* Returns the peer whose number is in the frames of a ring, or NULL. */
static struct peer *find_peer(const struct collectors *collectors, int32_t number)
{
	POINTER_EACH(struct peer, peer, collectors->peers) {
		if (peer->type == &sysprof_type && peer->state != PEER_GONE &&
		    peer_number(peer) == number)
			return peer;
	}
	return NULL;
}

/* Returns whether the writer of a ring is unknown, because it has not written yet, or its request
 * has not arrived. */
static bool is_unclaimed(const struct peer_arena *arena)
{
	return arena->sysprof->pid == 0;
}

static void sort_rings(struct collectors *collectors, struct peer *peer, uint64_t now_ns)
{
	for (uint32_t i = 0; i < peer->n_arenas; i++) {
		struct peer_arena *arena = peer->arenas[i];
		int32_t pid = is_unclaimed(arena) ? arena_pid(arena) : 0;
		struct peer *owner = peer;

		if (pid == 0)
			continue;
		if (pid != peer_number(peer))
			owner = find_peer(collectors, pid);
		/* The writer may have received another process's answer. Wait until the writer's
		 * own request has arrived and the writer is accepted as a target. */
		if (owner ? owner->state != PEER_ACTIVE
			  : peer->state != PEER_ACTIVE || !is_overdue(arena, now_ns))
			continue;
		if (owner && owner != peer)
			peer_attach_arena(owner, peer_detach_arena(peer, i--));
		/* If the writer is not known, the drain refuses its frames. */
		bind_arena(arena, owner ? owner : peer);
	}
}

static bool misses_request(const struct collectors *collectors, const struct peer *peer)
{
	for (uint32_t k = 0; k < peer->n_arenas; k++) {
		int32_t pid = is_unclaimed(peer->arenas[k]) ? arena_pid(peer->arenas[k]) : 0;

		if (pid != 0 && pid != peer_number(peer) && !find_peer(collectors, pid))
			return true;
	}
	return false;
}

static void drop_ended_rings(struct collectors *collectors, struct peer *peer, uint64_t now_ns)
{
	for (uint32_t i = 0; i < peer->n_arenas; i++) {
		struct peer_arena *arena;

		if (!is_done(peer->arenas[i], now_ns))
			continue;
		arena = peer_detach_arena(peer, i--);
		collectors->sysprof_bytes -= arena->memory.bytes;
		collectors->n_rings -= arena->memory.n_rings;
		peer_arena_free(arena);
	}
}

static void begin(struct collectors *collectors, struct peer *peer)
{
	peer->charged = &collectors->sysprof_bytes;
	peer->counters = sysprof_counters_new();
	peer->n_unanswered = 1;
}

static void done(struct peer *peer)
{
	sysprof_counters_free(peer->counters);
}

static bool admit(struct collectors *collectors, struct peer *peer)
{
	give_ring(collectors, peer);
	return true;
}

/* Each request waits a millisecond or two, until the side band reaches its time. */
static void serve(struct collectors *collectors, struct peer *peer, uint64_t limit_ns,
		  uint64_t now_ns)
{
	drop_ended_rings(collectors, peer, now_ns);
	if (peer->n_unanswered == 0 || limit_ns < peer->requested_ns)
		return;
	peer->is_blocked = !can_answer(peer);
	while (peer->n_unanswered > 0 && now_ns >= collectors->arena_until_ns &&
	       !peer->is_blocked) {
		give_ring(collectors, peer);
		peer->is_blocked = !can_answer(peer);
	}
}

/* Answers threads that wait for a ring; they continue without one. */
static void release(struct peer *peer)
{
	for (; peer->n_unanswered > 0; peer->n_unanswered--)
		answer(peer, -1);
}

/* Counts a loss for each ring that has a frame, but whose writer requested no ring. */
static void lose_unclaimed(struct peer *peer)
{
	uint64_t now_ns = clock_now();

	for (uint32_t i = 0; i < peer->n_arenas; i++)
		if (is_unclaimed(peer->arenas[i]) && arena_pid(peer->arenas[i]))
			loss_stream_add(&peer->process.losses, PROF_LOSS_RING_CORRUPT, 1, now_ns,
					now_ns);
}

static void free_arena(struct peer_arena *arena)
{
	sysprof_frames_free(arena->sysprof->frames);
	g_free(arena->sysprof);
}

const struct peer_type sysprof_type = {
	.hold_ns = SYSPROF_HOLD_NS,
	.begin = begin,
	.done = done,
	.admit = admit,
	.serve = serve,
	.release = release,
	.sort = sort_rings,
	.misses_request = misses_request,
	.is_unclaimed = is_unclaimed,
	.lose_unclaimed = lose_unclaimed,
	.drain = drain,
	.unread = unread,
	.poll = poll_ring,
	.free_arena = free_arena,
};
