/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Collectors - the processes that record from inside
 *
 *     a peer ▶ target check (tasks.c) ▶ gets an arena ▶ rings are drained ▶ queues
 *            ▶ merged by time ▶ rows
 *
 * This file keeps the processes and the memory that they write into. collectors-merge.c decides
 * when a drain is due, drains that memory, and makes rows. A peer's type (collector-peer.h) defines
 * how its process records. The cost of processes is bounded: peers, arenas, bytes, the time to
 * make arenas, doorbells, and queues.
 * Invariants: (1) a peer gets an arena only if it is a target  [test-engine-collectors: stranger]
 *             (2) a dead producer's records are kept [test-engine-collectors: death]
 *             (3) the connection of a peer that sends too many requests is closed
 *                 [test-engine-collectors: floods]
 *             (4) a target that gets no arena is counted as a loss
 *                 [test-engine-collectors: no_room, refused]
 * Runs on the drain thread only.
 */
#include "base/each.h"
#include "daemon/deferred-close.h"
#include "daemon/engine/peers/collectors-internal.h"
#include "daemon/engine/peers/sysprof-peer.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>

#define PATIENCE_NS (400 * MS) /* a client waits at most 500 ms for its answer */
#define IDENTIFY_NS (100 * MS)
#define IDENTIFY_MAX_SHIFT 6u
/* How long an arena without a known writer is kept after its process ended. */
#define UNCLAIMED_NS (1000 * MS)

/* The sizes of a process's first arena; small_sizes if all arenas together are large. A thread
 * starts with the smallest ring, which is enough for most threads, and moves from a full ring to a
 * larger ring. In a lossless arena, the two largest sizes get memory only when the rings of the
 * other sizes are in use, because clearing all memory is the largest cost of a short process. */
static const struct ring_arena_sizes usual_sizes = {
	{ { 32u << 10, 32, 0 }, { 128u << 10, 8, 0 }, { 512u << 10, 4, 0 }, { 4u << 20, 1, 0 } },
	.n_later = 2,
};
static const struct ring_arena_sizes small_sizes = {
	{ { 16u << 10, 16, 0 }, { 64u << 10, 4, 0 }, { 256u << 10, 1, 0 } },
};

void collectors_init(struct collectors *collectors, const struct collectors_options *options)
{
	*collectors = (struct collectors){
		.options = *options,
		.rows = g_new0(struct collector_rows, 1),
		.peers = g_ptr_array_new(),
		.by_fd = g_hash_table_new(g_direct_hash, g_direct_equal),
		.interval_ms = COLLECTORS_MAX_INTERVAL_MS,
		.sysprof_max_bytes = MIN_OF(COLLECTORS_MAX_SYSPROF_BYTES,
					    (uint64_t)sysconf(_SC_PHYS_PAGES) *
						    (uint64_t)sysconf(_SC_PAGESIZE) / 16),
		.due_ns = UINT64_MAX,
		.buffer = g_malloc(COLLECTORS_BUFFER_BYTES),
	};
	collectors->rows->output = options->output;
	collectors->rows->tasks = options->tasks;
	collectors->rows->losses = options->losses;
	collectors->rows->images = options->images;
	collectors->rows->request_image = options->request_image;
	collectors->rows->request_data = options->data;
	all_heaps_init(&collectors->rows->heaps, options->output, options->tasks);
	collectors->rows->heaps.code = options->code;
	exit_statuses_init(&collectors->statuses, options->tasks);
}

/* ---- Descriptors ----------------------------------------------------------------------------- */

static void watch(struct collectors *collectors, struct peer *peer, int fd)
{
	/* Edge-triggered, because handling an event may have to wait. */
	struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.fd = fd };

	g_hash_table_insert(collectors->by_fd, GINT_TO_POINTER(fd), peer);
	if (collectors->options.epoll_fd >= 0)
		(void)epoll_ctl(collectors->options.epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

/* Returns *fd, and makes it -1. */
static int unwatch(struct collectors *collectors, int *fd)
{
	g_hash_table_remove(collectors->by_fd, GINT_TO_POINTER(*fd));
	if (collectors->options.epoll_fd >= 0 && *fd >= 0)
		(void)epoll_ctl(collectors->options.epoll_fd, EPOLL_CTL_DEL, *fd, NULL);
	return steal_fd(fd);
}

static void close_fds(struct collectors *collectors, struct peer *peer)
{
	deferred_close(unwatch(collectors, &peer->connection));
	deferred_close(unwatch(collectors, &peer->pidfd));
}

bool collectors_wake(struct collectors *collectors, int fd)
{
	struct peer *peer = collectors->by_fd
				    ? g_hash_table_lookup(collectors->by_fd, GINT_TO_POINTER(fd))
				    : NULL;

	if (peer) {
		/* Only note the event. Handling it may close descriptors, and later events of the
		 * same batch could then refer to reused numbers. */
		peer->ended = peer->ended || fd == peer->pidfd;
		peer->called = peer->called || fd == peer->connection;
		return true;
	}
	if (!collectors->options.doorbells || fd != doorbells_fd(collectors->options.doorbells))
		return false;
	doorbells_receive(collectors->options.doorbells);
	collectors->rung = true;
	return true;
}

/* ---- Peers ----------------------------------------------------------------------------------- */

static void refuse(struct collectors *collectors, struct peer *peer, enum control_status status)
{
	struct process *process = tasks_process(collectors->options.tasks, peer->process.pid);

	if (peer->type->is_program)
		(void)peer_answer(peer, status, 0, -1);
	if (peer->type->release)
		peer->type->release(peer);
	close_fds(collectors, peer);
	peer->state = PEER_GONE;
	if (process && peer->wants & CONTROL_WANTS_ALLOCATIONS)
		process->refused_heap = true;
}

static bool is_lossless(const struct collectors *collectors, const struct peer *peer)
{
	return collectors->options.policy == ENGINE_POLICY_LOSSLESS ||
	       (collectors->options.policy == ENGINE_POLICY_DEFAULT &&
		peer->wants & CONTROL_WANTS_ALLOCATIONS);
}

/* Chooses the sizes of a new arena: the usual ones, or those that `request` names, as far as there
 * is room. Returns false if there is no room for one requested ring. */
static bool choose_sizes(const struct collectors *collectors, const struct peer *peer,
			 const struct control_request *request, struct ring_arena_sizes *ret_sizes)
{
	uint64_t room = MIN_OF(COLLECTORS_MAX_BYTES - collectors->arena_bytes,
			       COLLECTORS_MAX_PEER_BYTES - peer_arena_bytes(peer));
	bool many = collectors->arena_bytes > COLLECTORS_MAX_BYTES / 2;
	struct ring_arena_size *size = &ret_sizes->sizes[0];

	*ret_sizes = many ? small_sizes : usual_sizes;
	if (request && (request->min_data_bytes || request->n_rings)) {
		uint64_t least = MAX_OF(request->min_data_bytes, size->data_bytes);

		if (least > room)
			return false;
		*ret_sizes = (struct ring_arena_sizes){ .sizes[0].data_bytes = RING_MIN_BYTES };
		while (size->data_bytes < least)
			size->data_bytes *= 2;
		size->n = (uint32_t)MIN_OF((uint64_t)MAX_OF(request->n_rings, 1u),
					   room / (size->data_bytes +
						   2 * sizeof(struct ring_header)));
		size->n = MIN_OF(size->n, RING_MAX_RINGS);
		/* Add larger rings for fast threads, as in the first arena. */
		if (request->min_data_bytes == 0 && room > COLLECTORS_MAX_PEER_BYTES / 2 &&
		    is_lossless(collectors, peer)) {
			ret_sizes->sizes[1] =
				(struct ring_arena_size){ 4 * size->data_bytes, size->n / 4, 0 };
			ret_sizes->sizes[2] =
				(struct ring_arena_size){ 16 * size->data_bytes, size->n / 16, 0 };
			ret_sizes->n_later = 2;
		}
	}
	for (size_t i = 0; i < RING_ARENA_MAX_SIZES; i++)
		ret_sizes->sizes[i].policy = is_lossless(collectors, peer) ? RING_LOSSLESS
									   : RING_DROP;
	if (!collectors->options.code)
		ret_sizes->n_types = RING_CODE;
	return size->n > 0;
}

static enum control_status make_arena(struct collectors *collectors, struct peer *peer,
				      const struct control_request *request, int *ret_fd)
{
	struct ring_arena_sizes sizes;
	struct peer_arena *arena;
	uint64_t begin_ns = clock_now();
	int r;

	if (peer->n_arenas == PEER_MAX_ARENAS || !choose_sizes(collectors, peer, request, &sizes))
		return CONTROL_LIMIT;
	r = peer_add_arena(peer, &sizes, collectors->options.ticks, ret_fd);
	if (r < 0)
		return r == -EINVAL ? CONTROL_LIMIT : CONTROL_FAILED;
	arena = peer->arenas[peer->n_arenas - 1];
	arena->is_lossless = is_lossless(collectors, peer);
	/* Get memory for all rings now if the process does not wait for room in a ring. */
	while ((!arena->is_lossless || peer->wants & CONTROL_WANTS_ROOM) &&
	       arena->memory.n_rings < arena->memory.n_places) {
		peer_arena_grow(arena, collectors->options.ticks);
		collectors_keep_up(collectors, clock_now());
	}
	collectors_count_arena(collectors, peer, begin_ns);
	return CONTROL_OK;
}

/* Answers a request, or the registration (NULL), with an arena or an error. Returns false if the
 * connection is now useless. */
static bool give_arena(struct collectors *collectors, struct peer *peer,
		       const struct control_request *request)
{
	CLEANUP_CLOSE int fd = -1;
	enum control_status status = make_arena(collectors, peer, request, &fd);

	return peer_answer(peer, status, status == CONTROL_OK ? collectors->options.session : 0,
			   fd) &&
	       (request || status == CONTROL_OK);
}

static void begin_own(struct collectors *collectors, struct peer *peer)
{
	peer->charged = &collectors->arena_bytes;
}

static bool admit_own(struct collectors *collectors, struct peer *peer)
{
	return give_arena(collectors, peer, NULL);
}

static void serve_own(struct collectors *collectors, struct peer *peer, uint64_t limit_ns,
		      uint64_t now_ns)
{
	struct control_request request;
	enum peer_message message;

	if (!peer->called || peer->connection < 0 || now_ns < collectors->arena_until_ns)
		return;
	message = peer_receive(peer, &request);
	peer->called = message == PEER_REQUEST;
	if (message == PEER_CLOSED ||
	    (message == PEER_REQUEST && !give_arena(collectors, peer, &request)))
		deferred_close(unwatch(collectors, &peer->connection));
}

static void stop_own(struct peer_arena *arena)
{
	ring_arena_end(&arena->memory);
}

static uint64_t unread_own(const struct peer_arena *arena, uint32_t i)
{
	return ring_reader_fill(&arena->rings[i].reader);
}

static const struct peer_type own_type = {
	.is_program = true,
	.has_doorbells = true,
	.begin = begin_own,
	.admit = admit_own,
	.serve = serve_own,
	.stop = stop_own,
	.drain = collectors_drain_own,
	.unread = unread_own,
};

/* Makes a peer, which takes ownership of the descriptors. */
static struct peer *add_peer(struct collectors *collectors, const struct peer_type *type,
			     const struct message_peer *message, int connection, int pidfd,
			     uint64_t now_ns)
{
	struct peer *peer = peer_new(collectors->rows, message, connection, pidfd, now_ns);

	peer->type = type;
	peer->type->begin(collectors, peer);
	collectors->hold_ns = MAX_OF(collectors->hold_ns, peer->type->hold_ns);
	g_ptr_array_add(collectors->peers, peer);
	return peer;
}

bool collectors_miss_requests(const struct collectors *collectors)
{
	POINTER_EACH(const struct peer, peer, collectors->peers) {
		if (peer->type->misses_request && peer->type->misses_request(collectors, peer))
			return true;
	}
	return false;
}

/* ---- The end of a peer ----------------------------------------------------------------------- */

static void stop_producers(struct peer *peer)
{
	for (uint32_t i = 0; peer->type->stop && i < peer->n_arenas; i++)
		peer->type->stop(peer->arenas[i]);
}

static void bind(struct collectors *collectors, struct peer *peer)
{
	/* Bind to the program that registered: by now the process may run another program. */
	if (!collector_process_bind(&peer->process, peer->came_ns))
		return;
	if (peer->wants & CONTROL_WANTS_ALLOCATIONS)
		peer->process.process->has_heap = true;
	if (collectors->options.query && !peer->process.process->replaced)
		collectors->options.query(peer->process.process, collectors->options.data);
}

/* Returns whether the process has mapped the arena: it has marked the arena, or used a ring. */
static bool is_used(const struct peer_arena *arena)
{
	bool is_used = ring_arena_is_joined(&arena->memory);

	for (uint32_t i = 0; !is_used && i < arena->memory.n_rings; i++)
		is_used = arena->rings[i].reader.totals.attempted > 0 ||
			  arena->rings[i].reader.fault != RING_FAULT_NONE;
	return is_used;
}

/* Notes that the process recorded nothing, because it could not map the arena or no longer waited
 * for it. A wrong answer of is_used() affects only what the capture says about the process. */
static void note_unused(struct peer *peer, uint64_t now_ns)
{
	if (peer->wants & CONTROL_WANTS_ALLOCATIONS) {
		peer->process.process->has_heap = false;
		peer->process.process->refused_heap = true;
	} else {
		loss_stream_add(&peer->process.losses, PROF_LOSS_RING_REFUSED, 1, peer->came_ns,
				now_ns);
	}
}

/* Called when the process no longer uses the peer's memory, or when the session ends. */
static void end_peer(struct collectors *collectors, struct peer *peer)
{
	uint64_t now_ns = clock_now();

	if (!peer->process.process)
		bind(collectors, peer);
	stop_producers(peer);
	if (peer->type->release)
		peer->type->release(peer);
	collectors_sort(collectors, now_ns);
	for (uint32_t i = 0; i < peer->n_arenas; i++) {
		struct peer_arena *arena = peer->arenas[i];

		for (uint32_t k = 0; k < arena->memory.n_rings; k++)
			collectors_drain_ring(collectors, arena, k, RING_DRAIN_DEAD);
		peer_arena_count_lost(peer, arena, now_ns);
	}
	if (peer->process.process && peer->state == PEER_ACTIVE && peer->type->is_program &&
	    peer->n_arenas > 0 && !is_used(peer->arenas[0]))
		note_unused(peer, now_ns);
	/* The exit status is known once the process has been waited for. If the process executed
	 * another program, the status is that program's. */
	if (peer->pidfd >= 0 && peer->type->is_program && peer->process.leader &&
	    (peer->ended || collectors->is_finishing))
		exit_statuses_add(&collectors->statuses, peer->process.leader,
				  unwatch(collectors, &peer->pidfd));
	close_fds(collectors, peer);
	peer->state = PEER_GONE;
	peer->gone_ns = now_ns;
}

/* Ends an earlier peer with this pid if it has executed another program or unmapped its memory.
 * Returns false if the earlier peer is still in use. */
static bool supersede(struct collectors *collectors, int32_t pid)
{
	POINTER_EACH(struct peer, peer, collectors->peers) {
		if (peer->process.pid != pid || peer->state == PEER_GONE ||
		    !peer->type->is_program || peer->is_refused)
			continue;
		if (!peer_has_hung_up(peer))
			return false;
		end_peer(collectors, peer);
	}
	return true;
}

/* Adds another thread's request to its process's peer. Returns false if there is no such peer. */
static bool add_request(struct collectors *collectors, const struct message_peer *message,
			uint64_t now_ns)
{
	POINTER_EACH(struct peer, peer, collectors->peers) {
		if (peer->type->is_program || peer->process.pid != message->pid || peer->ended ||
		    peer->is_refused || peer->state == PEER_GONE)
			continue;
		peer->n_unanswered++;
		peer->requested_ns = now_ns;
		return true;
	}
	return false;
}

void collectors_add_peer(struct collectors *collectors, const struct message_peer *message,
			 int connection, int pidfd, uint64_t now_ns)
{
	const struct peer_type *type = message->protocol == PEER_SYSPROF ? &sysprof_type
									 : &own_type;
	bool is_first, has_room = collectors->peers->len < COLLECTORS_MAX_PEERS;
	struct pollfd end = { .events = POLLIN };
	struct peer *peer;

	collectors->due_ns = 0;
	if (!type->is_program && add_request(collectors, message, now_ns)) {
		deferred_close(connection);
		if (pidfd >= 0)
			close(pidfd);
		return;
	}
	is_first = !has_room || message->protocol == PEER_REFUSED || !type->is_program ||
		   supersede(collectors, message->pid);
	peer = add_peer(collectors, type, message, connection, pidfd, now_ns);
	/* If requests come through the broker, the broker reads the connection. */
	if (peer->type->is_program && connection >= 0)
		watch(collectors, peer, peer->connection);
	if (pidfd >= 0)
		watch(collectors, peer, peer->pidfd);
	if (!has_room || !is_first)
		refuse(collectors, peer, CONTROL_LIMIT);
	/* Refusing a second peer of a process is not a loss. Refusing a peer for lack of room is a
	 * loss if the process is a target. */
	if (is_first)
		peer->state = PEER_WAITING;
	peer->is_refused = is_first && peer->connection < 0;
	end.fd = peer->pidfd;
	peer->ended = peer->pidfd < 0 || poll(&end, 1, 0) > 0;
}

/* Returns whether the process is a target. *ret_known: whether the answer is final. */
static bool is_target(const struct collectors *collectors, const struct peer *peer, bool *ret_known)
{
	const struct tasks *tasks = collectors->options.tasks;
	const struct thread *leader = tasks_thread(tasks, peer->process.pid);

	*ret_known = leader && leader->process->pid == peer->process.pid;
	/* The process may end before this check. If it ended long before the peer came, the pid now
	 * belongs to another process. */
	if (*ret_known && (leader->process->gone || (peer->ended && !peer->type->is_program)))
		return *ret_known = leader->exit_ns == 0 ||
				    leader->exit_ns + UNCLAIMED_NS > peer->came_ns;
	return *ret_known && tasks_is_target(tasks, peer->process.pid);
}

/* Counts a loss if the process is a target, because without a ring all its records are lost. */
static void lose_target(const struct collectors *collectors, struct peer *peer)
{
	bool known;

	if (is_target(collectors, peer, &known))
		loss_stream_add(&peer->process.losses, PROF_LOSS_RING_REFUSED, 1, peer->came_ns,
				clock_now());
}

static void admit(struct collectors *collectors, struct peer *peer)
{
	peer->state = PEER_ACTIVE;
	if (peer->type->admit(collectors, peer))
		return;
	/* The process has received its answer, or no longer waits for one. */
	lose_target(collectors, peer);
	close_fds(collectors, peer);
	peer->state = PEER_GONE;
}

static void serve_waiting(struct collectors *collectors, struct peer *peer, uint64_t limit_ns,
			  uint64_t now_ns)
{
	bool known, is_ours;

	if (peer->is_refused || (peer->ended && peer->type->is_program)) {
		/* The side band must reach the registration to show whether the process was a
		 * target. */
		if (limit_ns > peer->came_ns) {
			lose_target(collectors, peer);
			refuse(collectors, peer, CONTROL_FAILED);
		}
		return;
	}
	is_ours = is_target(collectors, peer, &known);
	if (!known && limit_ns > peer->came_ns && !collectors->options.tasks->filtered) {
		/* Add the process: the side band has no event of it, but it exists. */
		tasks_found(collectors->options.tasks, peer->process.pid, peer->process.pid,
			    peer->came_ns);
		known = is_ours = true;
	}
	if (is_ours && now_ns >= collectors->arena_until_ns)
		admit(collectors, peer);
	else if (!is_ours && (known || limit_ns > peer->came_ns))
		refuse(collectors, peer, CONTROL_NOT_A_TARGET);
	else if (now_ns - peer->came_ns > PATIENCE_NS) {
		lose_target(collectors, peer);
		refuse(collectors, peer, is_ours ? CONTROL_LIMIT : CONTROL_FAILED);
	}
}

/* Requests a look-up of unknown threads, ever less often, because a process may keep claiming new
 * thread numbers. */
static void identify_threads(struct collectors *collectors, struct peer *peer, uint64_t now_ns)
{
	struct collector_process *process = &peer->process;
	uint64_t pause_ns = IDENTIFY_NS << MIN_OF(peer->n_queries, IDENTIFY_MAX_SHIFT);

	if (!process->has_unknown || !collectors->options.query_again ||
	    now_ns - peer->queried_ns < pause_ns ||
	    !collectors->options.query_again(process->process, collectors->options.data))
		return;
	process->has_unknown = false;
	peer->queried_ns = now_ns;
	peer->n_queries++;
}

/* Returns whether the process has executed another program since it was bound. */
static bool has_executed(const struct collectors *collectors, const struct peer *peer)
{
	const struct thread *leader = tasks_thread(collectors->options.tasks, peer->process.pid);

	return peer->process.process && leader && leader->process != peer->process.process;
}

/* Moves requests, connection and pidfd to a new peer for the executed program. */
static void follow_exec(struct collectors *collectors, struct peer *peer, uint64_t now_ns)
{
	const struct message_peer message = {
		.pid = peer->process.pid,
		.inner_pid = peer->process.inner_pid,
		.protocol = PEER_SYSPROF,
	};
	struct peer *next = add_peer(collectors, peer->type, &message, steal_fd(&peer->connection),
				     steal_fd(&peer->pidfd), now_ns);

	next->n_unanswered = peer->n_unanswered;
	peer->n_unanswered = 0;
	g_hash_table_insert(collectors->by_fd, GINT_TO_POINTER(next->pidfd), next);
	end_peer(collectors, peer);
}

static void serve_active(struct collectors *collectors, struct peer *peer, uint64_t limit_ns,
			 uint64_t now_ns)
{
	bool is_replaced;
	uint64_t left;

	/* Bind to the program that registered: by now the process may run another program. */
	if (!peer->process.process && limit_ns >= peer->came_ns)
		bind(collectors, peer);
	identify_threads(collectors, peer, now_ns);
	is_replaced = has_executed(collectors, peer);
	/* After exec the memory is unmapped, and the new program may never register. end_peer()
	 * drains all that is left in the rings at once. Until that fits into the queues, drain as
	 * for a live peer. */
	if ((peer->ended || (peer->type->is_program && is_replaced)) && limit_ns >= peer->came_ns) {
		left = collectors_unread(peer);
		if (left == 0 || collectors->queued_bytes + left <= COLLECTORS_MAX_QUEUED) {
			end_peer(collectors, peer);
			return;
		}
	}
	if (peer->n_unanswered > 0 && is_replaced && limit_ns >= peer->requested_ns)
		follow_exec(collectors, peer, now_ns);
	peer->type->serve(collectors, peer, limit_ns, now_ns);
}

static bool is_done(const struct collectors *collectors, const struct peer *peer, uint64_t now_ns)
{
	if (peer->state != PEER_GONE)
		return false;
	/* Wait, because the end of the process's allocations becomes a row, which must be in order
	 * with other processes' rows. */
	if (peer->process.heap && collectors->reached_ns < peer->gone_ns)
		return false;
	for (uint32_t i = 0; i < peer->n_arenas; i++) {
		if (peer->type->is_unclaimed && peer->type->is_unclaimed(peer->arenas[i]) &&
		    now_ns < peer->gone_ns + UNCLAIMED_NS)
			return false;
		for (uint32_t k = 0; k < peer->arenas[i]->memory.n_rings; k++)
			if (peer_ring_peek(&peer->arenas[i]->rings[k]))
				return false;
	}
	return true;
}

static void remove_peer(struct collectors *collectors, guint i)
{
	struct peer *peer = peer_at(collectors, i);

	/* No thread may wait on futex words that are about to be unmapped. */
	if (peer->n_arenas && collectors->options.doorbells)
		doorbells_set(collectors->options.doorbells, NULL, 0);
	collectors->rung = true;
	*peer->charged -= peer_arena_bytes(peer);
	for (uint32_t k = 0; k < peer->n_arenas; k++)
		collectors->n_rings -= peer->arenas[k]->memory.n_rings;
	g_ptr_array_remove_index_fast(collectors->peers, i);
	peer_free(peer);
}

void collectors_serve(struct collectors *collectors, uint64_t limit_ns, uint64_t now_ns)
{
	exit_statuses_run(&collectors->statuses);
	for (guint i = 0; i < collectors->peers->len; i++) {
		struct peer *peer = peer_at(collectors, i);

		if (peer->state == PEER_WAITING)
			serve_waiting(collectors, peer, limit_ns, now_ns);
		if (peer->state == PEER_ACTIVE)
			serve_active(collectors, peer, limit_ns, now_ns);
		if (is_done(collectors, peer, now_ns)) {
			if (peer->type->lose_unclaimed)
				peer->type->lose_unclaimed(peer);
			while (!collector_process_end(&peer->process, peer->gone_ns))
				collectors_keep_up(collectors, clock_now());
			remove_peer(collectors, i--);
		}
	}
}

/* ---- The end --------------------------------------------------------------------------------- */

uint64_t collectors_finish_some(struct collectors *collectors, uint64_t until_ns)
{
	bool has_heap = false;

	for (guint i = 0; i < collectors->peers->len; i++)
		has_heap = has_heap || peer_at(collectors, i)->process.heap;
	if (!has_heap)
		return 0;
	for (guint i = 0; i < collectors->peers->len; i++)
		stop_producers(peer_at(collectors, i));
	collectors_drain(collectors, clock_now());
	collectors_emit(collectors, UINT64_MAX, until_ns);
	return collectors_all_unread(collectors) + collectors->queued_bytes;
}

void collectors_finish(struct collectors *collectors, uint64_t until_ns)
{
	bool known;

	collectors->is_finishing = true;
	POINTER_EACH(struct peer, peer, collectors->peers) {
		if (peer->state != PEER_WAITING)
			continue;
		/* The process may already use a ring, because it received another process's
		 * answer. */
		if (!peer->type->is_program && !peer->is_refused &&
		    is_target(collectors, peer, &known)) {
			peer->state = PEER_ACTIVE;
			continue;
		}
		if (peer->ended)
			lose_target(collectors, peer);
		refuse(collectors, peer, CONTROL_NO_SESSION);
	}
	/* Stop all producers first, so that they stop at about the same time. */
	for (guint i = 0; i < collectors->peers->len; i++)
		stop_producers(peer_at(collectors, i));
	collectors_drain_rest(collectors, until_ns);
	POINTER_EACH(struct peer, peer, collectors->peers) {
		peer->is_late = collectors_unread(peer) > COLLECTORS_MODEST;
		if (peer->state == PEER_ACTIVE)
			end_peer(collectors, peer);
	}
	POINTER_EACH(struct peer, peer, collectors->peers) {
		if (peer->type->lose_unclaimed)
			peer->type->lose_unclaimed(peer);
	}
	collectors_emit_rest(collectors, until_ns);
	exit_statuses_finish(&collectors->statuses);
	/* All producers have stopped, so no ring needs to be drained meanwhile. */
	for (guint i = 0; i < collectors->peers->len; i++)
		while (!collector_process_end(&peer_at(collectors, i)->process, clock_now()))
			continue;
}

void collectors_done(struct collectors *collectors)
{
	if (!collectors->peers)
		return;
	while (collectors->peers->len > 0)
		remove_peer(collectors, collectors->peers->len - 1);
	g_ptr_array_free(collectors->peers, TRUE);
	g_hash_table_destroy(collectors->by_fd);
	exit_statuses_done(&collectors->statuses);
	g_free(collectors->heap);
	peer_free_spare(collectors->rows);
	all_heaps_done(&collectors->rows->heaps);
	if (collectors->rows->lost_image)
		row_unref(&collectors->rows->lost_image->row);
	if (collectors->rows->cut_image)
		row_unref(&collectors->rows->cut_image->row);
	if (collectors->rows->unread_image)
		row_unref(&collectors->rows->unread_image->row);
	g_free(collectors->rows);
	g_free(collectors->buffer);
	*collectors = (struct collectors){ 0 };
}
