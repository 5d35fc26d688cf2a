/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Collectors - the processes that record from inside, and their rows in time order
 *
 *     a peer ▶ is it a target (tasks.c) ▶ an arena ▶ its rings are drained ▶ queues ▶ merged by time ▶ rows
 *
 * Each drain of a ring tells a time before which nothing will come from it; the smallest of all rings is how far rows may
 * go. That and the side band's limit, as a thread has to be known before what it did.
 * A drain is due when a doorbell rings, when a ring was last seen more than a third full, and ten times a second with the
 * round of the session: so idle processes cost no wake-ups of their own.
 * What processes can make us do is bounded: so many peers, arenas, bytes; the time to make arenas; the doorbells that are
 * listened to; what is queued, beyond which those have to wait in their rings of whom the most is queued.
 * Invariants: (1) a peer gets an arena only if it is a target       [test-engine-collectors: stranger]
 *             (2) rows are in time order, or counted as late        [test-engine-collectors: order]
 *             (3) what was written before its producer died is kept [test-engine-collectors: death]
 *             (4) who rings or asks without end is not listened to  [test-engine-collectors: floods]
 *             (5) who writes without end costs nobody else a record [test-engine-collectors: fair]
 * Runs on the drain thread only.
 */
#include "daemon/engine/collectors.h"

#include "daemon/engine/sysprof-peer.h"

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <time.h>

#define MS UINT64_C(1000000)
#define PATIENCE_NS (400 * MS) /* a client has 500 ms for everything */
#define MAX_INTERVAL_MS 100u
#define FALSE_BELLS 16
#define DEAF_NS (1000 * MS)
#define BUFFER_BYTES (256u << 10)
#define IDENTIFY_NS (100 * MS)
#define IDENTIFY_MAX_SHIFT 6u
#define MODEST_NS (100 * MS) /* for those of whom little is queued, at the end */
#define MAX_FAULTS 64        /* that are told in words */
/* That a ring of sysprof's is kept whose process ended, and which nobody has written into. */
#define UNCLAIMED_NS (1000 * MS)
/* Their rings have no doorbell; they hold more than is written meanwhile. */
#define MAX_POLL_MS 4u

/* The first arena of a process, and one where many have some already. */
static const struct ring_arena_sizes usual_sizes = {
	{ { 64u << 10, 32, 0 }, { 512u << 10, 4, 0 }, { 4u << 20, 1, 0 } },
};
static const struct ring_arena_sizes small_sizes = {
	{ { 16u << 10, 16, 0 }, { 64u << 10, 4, 0 }, { 256u << 10, 1, 0 } },
};

static uint64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static struct peer *peer_at(const struct collectors *collectors, guint i)
{
	return g_ptr_array_index(collectors->peers, i);
}

void collectors_init(struct collectors *collectors, const struct collectors_options *options)
{
	*collectors = (struct collectors){
		.options = *options,
		.rows = g_new0(struct collector_rows, 1),
		.peers = g_ptr_array_new(),
		.by_fd = g_hash_table_new(g_direct_hash, g_direct_equal),
		.interval_ms = MAX_INTERVAL_MS,
		.due_ns = UINT64_MAX,
		.buffer = g_malloc(BUFFER_BYTES),
	};
	collectors->rows->output = options->output;
	collectors->rows->tasks = options->tasks;
	collectors->rows->losses = options->losses;
	collectors->rows->images = options->images;
	collectors->rows->want = options->want;
	collectors->rows->want_data = options->data;
}

/* ---- Descriptors -------------------------------------------------------------------------------- */

static void watch(struct collectors *collectors, struct peer *peer, int fd)
{
	/* Once for each that comes: what is to be done about it may have to wait. */
	struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.fd = fd };

	g_hash_table_insert(collectors->by_fd, GINT_TO_POINTER(fd), peer);
	if (collectors->options.epoll_fd >= 0)
		(void)epoll_ctl(collectors->options.epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

/* Closes it, if it is open. */
static void unwatch(struct collectors *collectors, int *fd)
{
	if (*fd < 0)
		return;
	g_hash_table_remove(collectors->by_fd, GINT_TO_POINTER(*fd));
	if (collectors->options.epoll_fd >= 0)
		(void)epoll_ctl(collectors->options.epoll_fd, EPOLL_CTL_DEL, *fd, NULL);
	close(steal_fd(fd));
}

bool collectors_wake(struct collectors *collectors, int fd)
{
	struct peer *peer = collectors->by_fd
				    ? g_hash_table_lookup(collectors->by_fd, GINT_TO_POINTER(fd))
				    : NULL;

	if (peer) {
		/* What follows from it is done between events: a descriptor that is closed amid them may come again. */
		peer->ended = peer->ended || fd == peer->pidfd;
		peer->called = peer->called || fd == peer->connection;
		return true;
	}
	if (!collectors->options.bells || fd != bells_fd(collectors->options.bells))
		return false;
	bells_take(collectors->options.bells);
	collectors->rung = true;
	return true;
}

/* ---- Peers -------------------------------------------------------------------------------------- */

/* Threads that wait for a ring of sysprof's go on without. */
static void refuse_wanted(struct peer *peer)
{
	for (; peer->n_wanted > 0; peer->n_wanted--)
		sysprof_peer_answer(peer, -1);
}

static void refuse(struct collectors *collectors, struct peer *peer, enum control_status status)
{
	if (!peer->is_sysprof)
		(void)peer_answer(peer, status, 0, -1);
	refuse_wanted(peer);
	unwatch(collectors, &peer->connection);
	unwatch(collectors, &peer->pidfd);
	peer->state = PEER_GONE;
}

static uint64_t bytes_of(const struct peer *peer)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < peer->n_arenas; i++)
		bytes += peer->arenas[i]->memory.bytes;
	return bytes;
}

static void set_policy(const struct collectors *collectors, const struct peer *peer,
		       struct ring_arena_sizes *sizes)
{
	bool lossless = collectors->options.policy == ENGINE_POLICY_LOSSLESS ||
			(collectors->options.policy == ENGINE_POLICY_DEFAULT &&
			 peer->wants & CONTROL_WANTS_ALLOCATIONS);

	for (size_t i = 0; i < RING_ARENA_MAX_SIZES; i++)
		sizes->sizes[i].policy = lossless ? RING_LOSSLESS : RING_DROP;
}

/* The sizes that were asked for, within what there is room for; false: none. */
static bool choose_sizes(const struct collectors *collectors, const struct peer *peer,
			 const struct control_request *request, struct ring_arena_sizes *ret_sizes)
{
	uint64_t room = MIN_OF(COLLECTORS_MAX_BYTES - collectors->arena_bytes,
			       COLLECTORS_MAX_PEER_BYTES - bytes_of(peer));
	bool many = collectors->arena_bytes > COLLECTORS_MAX_BYTES / 2;
	struct ring_arena_size *size = &ret_sizes->sizes[0];

	*ret_sizes = many ? small_sizes : usual_sizes;
	if (request && (request->min_data_bytes || request->n_rings)) {
		uint64_t wanted = MAX_OF(request->min_data_bytes, size->data_bytes);

		if (wanted > room)
			return false;
		*ret_sizes = (struct ring_arena_sizes){ .sizes[0].data_bytes = RING_MIN_BYTES };
		while (size->data_bytes < wanted)
			size->data_bytes *= 2;
		size->n = (uint32_t)MIN_OF((uint64_t)MAX_OF(request->n_rings, 1u),
					   room / (size->data_bytes +
						   2 * sizeof(struct ring_header)));
		size->n = MIN_OF(size->n, RING_MAX_RINGS);
	}
	set_policy(collectors, peer, ret_sizes);
	return size->n > 0;
}

/* One that was begun to be made then. */
static void count_arena(struct collectors *collectors, const struct peer_arena *arena,
			uint64_t begin_ns)
{
	/* A third of the time at most goes into clearing memory. */
	collectors->arena_until_ns = clock_ns() + 2 * (clock_ns() - begin_ns);
	collectors->arena_bytes += arena->memory.bytes;
	collectors->n_rings += arena->memory.n_rings;
}

static enum control_status make_arena(struct collectors *collectors, struct peer *peer,
				      const struct control_request *request, int *ret_fd)
{
	struct ring_arena_sizes sizes;
	uint64_t begin_ns = clock_ns();
	int r;

	if (peer->n_arenas == PEER_MAX_ARENAS || !choose_sizes(collectors, peer, request, &sizes))
		return CONTROL_LIMIT;
	r = peer_add_arena(peer, &sizes, ret_fd);
	if (r < 0)
		return r == -EINVAL ? CONTROL_LIMIT : CONTROL_FAILED;
	count_arena(collectors, peer->arenas[peer->n_arenas - 1], begin_ns);
	return CONTROL_OK;
}

/* One message gets one answer. False: the connection is not to be used any more. */
static bool give_arena(struct collectors *collectors, struct peer *peer,
		       const struct control_request *request)
{
	CLEANUP_CLOSE int fd = -1;
	enum control_status status = make_arena(collectors, peer, request, &fd);

	return peer_answer(peer, status, status == CONTROL_OK ? collectors->options.session : 0,
			   fd) &&
	       (request || status == CONTROL_OK);
}

/* ---- Sysprof's rings ---------------------------------------------------------------------------- */

/* As large as there is room for, by quarters of it, in all and for the process; 0: there is none. */
static uint32_t sysprof_bytes(const struct collectors *collectors, const struct peer *peer)
{
	uint64_t used = MAX_OF(collectors->arena_bytes / (COLLECTORS_MAX_BYTES / 4),
			       bytes_of(peer) / (COLLECTORS_MAX_PEER_BYTES / 4));
	uint32_t bytes = SYSPROF_RING_MIN_BYTES << 2 * (3 - MIN_OF(used, (uint64_t)3));

	if (peer->n_arenas >= PEER_MAX_SYSPROF ||
	    collectors->arena_bytes + 2 * (uint64_t)bytes > COLLECTORS_MAX_BYTES ||
	    bytes_of(peer) + 2 * (uint64_t)bytes > COLLECTORS_MAX_PEER_BYTES)
		return 0;
	return bytes;
}

/* One request is answered, by a ring or without one. */
static void give_sysprof_ring(struct collectors *collectors, struct peer *peer)
{
	uint32_t bytes = sysprof_bytes(collectors, peer);
	uint64_t begin_ns = clock_ns();
	CLEANUP_CLOSE int fd = -1;

	peer->n_wanted--;
	if (bytes > 0 && sysprof_peer_add_ring(peer, bytes, &fd) == 0)
		count_arena(collectors, peer->arenas[peer->n_arenas - 1], begin_ns);
	else
		collector_process_lose(&peer->process, PROF_LOSS_RING_REFUSED, 1, begin_ns,
				       begin_ns);
	sysprof_peer_answer(peer, fd);
	collectors->poll_ms = 1;
	collectors->poll_ns = 0;
}

/* Who asked, under the number that the frames of a ring say; NULL: nobody. */
static struct peer *find_sysprof_peer(const struct collectors *collectors, int32_t number)
{
	for (guint i = 0; i < collectors->peers->len; i++) {
		struct peer *peer = peer_at(collectors, i);

		if (peer->is_sysprof && peer->state != PEER_GONE &&
		    sysprof_peer_number(peer) == number)
			return peer;
	}
	return NULL;
}

static void sort_rings_of(struct collectors *collectors, struct peer *peer, uint64_t now_ns)
{
	for (uint32_t i = 0; i < peer->n_arenas; i++) {
		struct peer_arena *arena = peer->arenas[i];
		int32_t pid = arena->sysprof->pid ? 0 : sysprof_arena_pid(arena);
		struct peer *owner = peer;

		if (pid == 0)
			continue;
		if (pid != sysprof_peer_number(peer))
			owner = find_sysprof_peer(collectors, pid);
		/* It took another one's answer before it was judged, or before its own request came. */
		if (owner ? owner->state != PEER_ACTIVE
			  : peer->state != PEER_ACTIVE || !sysprof_arena_is_overdue(arena, now_ns))
			continue;
		if (owner && owner != peer)
			peer_take_arena(owner, peer_steal_arena(peer, i--));
		/* Nobody's frames are refused by the drain. */
		sysprof_arena_bind(arena, owner ? owner : peer);
	}
}

/* Rings that are written into by now go to who does so: an answer may have reached another one that asked. */
static void sort_sysprof_rings(struct collectors *collectors, uint64_t now_ns)
{
	for (guint i = 0; i < collectors->peers->len; i++)
		if (peer_at(collectors, i)->is_sysprof)
			sort_rings_of(collectors, peer_at(collectors, i), now_ns);
}

static void forget_ended_rings(struct collectors *collectors, struct peer *peer, uint64_t now_ns)
{
	for (uint32_t i = 0; i < peer->n_arenas; i++) {
		struct peer_arena *arena;

		if (!sysprof_arena_is_done(peer->arenas[i], now_ns))
			continue;
		arena = peer_steal_arena(peer, i--);
		collectors->arena_bytes -= arena->memory.bytes;
		collectors->n_rings -= arena->memory.n_rings;
		peer_arena_free(arena);
	}
}

/* ---- The end of a peer -------------------------------------------------------------------------- */

static size_t drain_ring(struct collectors *collectors, struct peer_arena *arena, uint32_t i,
			 enum ring_drain how, uint64_t *ret_fill)
{
	return arena->sysprof
		       ? sysprof_arena_drain(arena, collectors->buffer, BUFFER_BYTES, ret_fill)
		       : peer_ring_drain(&arena->rings[i], how, collectors->buffer, BUFFER_BYTES,
					 ret_fill);
}

static void stop_producers(struct peer *peer)
{
	for (uint32_t i = 0; i < peer->n_arenas; i++)
		if (!peer->arenas[i]->sysprof)
			ring_arena_end(&peer->arenas[i]->memory);
}

static void bind(struct collectors *collectors, struct peer *peer)
{
	if (collector_process_bind(&peer->process) && collectors->options.ask)
		collectors->options.ask(peer->process.process, collectors->options.data);
}

/* Its memory is not mapped by anybody any more, or it is not to be used. */
static void end_peer(struct collectors *collectors, struct peer *peer)
{
	uint64_t now_ns = clock_ns(), fill;

	if (!peer->process.process)
		bind(collectors, peer);
	stop_producers(peer);
	refuse_wanted(peer);
	sort_sysprof_rings(collectors, now_ns);
	for (uint32_t i = 0; i < peer->n_arenas; i++) {
		struct peer_arena *arena = peer->arenas[i];

		for (uint32_t k = 0; k < arena->memory.n_rings; k++)
			collectors->queued_bytes +=
				drain_ring(collectors, arena, k, RING_DRAIN_DEAD, &fill);
		peer_arena_count_lost(peer, arena, now_ns);
	}
	unwatch(collectors, &peer->connection);
	unwatch(collectors, &peer->pidfd);
	peer->state = PEER_GONE;
	peer->gone_ns = now_ns;
}

/* A process that is there already has another program now, or has given up its memory: the number is the new one's. */
static bool supersede(struct collectors *collectors, int32_t pid)
{
	for (guint i = 0; i < collectors->peers->len; i++) {
		struct peer *peer = peer_at(collectors, i);

		if (peer->process.pid != pid || peer->state == PEER_GONE || peer->is_sysprof)
			continue;
		if (!peer_has_hung_up(peer))
			return false;
		end_peer(collectors, peer);
	}
	return true;
}

/* Another thread of a process that has asked before. */
static bool ask_again(struct collectors *collectors, const struct message_peer *message,
		      uint64_t now_ns)
{
	for (guint i = 0; i < collectors->peers->len; i++) {
		struct peer *peer = peer_at(collectors, i);

		if (!peer->is_sysprof || peer->process.pid != message->pid || peer->ended ||
		    peer->state == PEER_GONE)
			continue;
		peer->n_wanted++;
		peer->wanted_ns = now_ns;
		return true;
	}
	return false;
}

void collectors_add_peer(struct collectors *collectors, const struct message_peer *message,
			 int connection, int pidfd, uint64_t now_ns)
{
	bool is_sysprof = message->protocol == PEER_SYSPROF;
	struct peer *peer;
	bool has_room;

	collectors->due_ns = 0;
	collectors->has_sysprof = collectors->has_sysprof || is_sysprof;
	if (is_sysprof && ask_again(collectors, message, now_ns)) {
		close(connection);
		if (pidfd >= 0)
			close(pidfd);
		return;
	}
	has_room = collectors->peers->len < COLLECTORS_MAX_PEERS &&
		   (is_sysprof || supersede(collectors, message->pid));
	peer = peer_new(collectors->rows, message, connection, pidfd, now_ns);
	g_ptr_array_add(collectors->peers, peer);
	/* The other one is the broker's to read. */
	if (!is_sysprof)
		watch(collectors, peer, peer->connection);
	peer->ended = pidfd < 0;
	if (pidfd >= 0)
		watch(collectors, peer, peer->pidfd);
	if (!has_room)
		refuse(collectors, peer, CONTROL_LIMIT);
	else
		peer->state = PEER_WAITING;
}

/* Whether it is one that we record; `known`: by now it is known if so. */
static bool is_target(const struct collectors *collectors, const struct peer *peer, bool *ret_known)
{
	const struct tasks *tasks = collectors->options.tasks;
	const struct thread *leader = tasks_thread(tasks, peer->process.pid);

	*ret_known = leader && leader->process->pid == peer->process.pid;
	/* By another one's answer a thread of sysprof's may have come to its end before it is judged. */
	if (*ret_known && peer->is_sysprof && peer->ended)
		return leader->exit_ns == 0 || leader->exit_ns + UNCLAIMED_NS > peer->came_ns;
	*ret_known = *ret_known && !leader->process->gone;
	return *ret_known && tasks_wants(tasks, peer->process.pid);
}

static void admit(struct collectors *collectors, struct peer *peer)
{
	if (peer->is_sysprof) {
		give_sysprof_ring(collectors, peer);
		peer->state = PEER_ACTIVE;
		return;
	}
	if (give_arena(collectors, peer, NULL)) {
		peer->state = PEER_ACTIVE;
		return;
	}
	/* It has its answer, or does not read. */
	unwatch(collectors, &peer->connection);
	unwatch(collectors, &peer->pidfd);
	peer->state = PEER_GONE;
}

static void serve_waiting(struct collectors *collectors, struct peer *peer, uint64_t limit_ns,
			  uint64_t now_ns)
{
	bool known, is_ours;

	if (peer->ended && !peer->is_sysprof) {
		refuse(collectors, peer, CONTROL_FAILED);
		return;
	}
	is_ours = is_target(collectors, peer, &known);
	if (!known && limit_ns > peer->came_ns && !collectors->options.tasks->filtered) {
		/* Who is not announced is there all the same. */
		tasks_found(collectors->options.tasks, peer->process.pid, peer->process.pid,
			    peer->came_ns);
		known = is_ours = true;
	}
	if (is_ours && now_ns >= collectors->arena_until_ns)
		admit(collectors, peer);
	else if (!is_ours && (known || limit_ns > peer->came_ns))
		refuse(collectors, peer, CONTROL_NOT_A_TARGET);
	else if (now_ns - peer->came_ns > PATIENCE_NS)
		refuse(collectors, peer, is_ours ? CONTROL_LIMIT : CONTROL_FAILED);
}

/* Who says that it has always others is asked for less and less often. */
static void identify_threads(struct collectors *collectors, struct peer *peer, uint64_t now_ns)
{
	struct collector_process *process = &peer->process;
	uint64_t pause_ns = IDENTIFY_NS << MIN_OF(peer->n_asked, IDENTIFY_MAX_SHIFT);

	if (!process->has_unknown || !collectors->options.ask_again ||
	    now_ns - peer->asked_ns < pause_ns ||
	    !collectors->options.ask_again(process->process, collectors->options.data))
		return;
	process->has_unknown = false;
	peer->asked_ns = now_ns;
	peer->n_asked++;
}

/* Whoever asks now is another program than who asked before. */
static bool has_executed(const struct collectors *collectors, const struct peer *peer)
{
	const struct thread *leader = tasks_thread(collectors->options.tasks, peer->process.pid);

	return peer->process.process && leader && leader->process != peer->process.process;
}

/* The requests, the connection and the pidfd are another peer's from now on. */
static void follow_exec(struct collectors *collectors, struct peer *peer, uint64_t now_ns)
{
	const struct message_peer message = {
		.pid = peer->process.pid,
		.inner_pid = peer->process.inner_pid,
		.protocol = PEER_SYSPROF,
	};
	struct peer *next = peer_new(collectors->rows, &message, steal_fd(&peer->connection),
				     steal_fd(&peer->pidfd), now_ns);

	next->n_wanted = peer->n_wanted;
	peer->n_wanted = 0;
	g_hash_table_insert(collectors->by_fd, GINT_TO_POINTER(next->pidfd), next);
	g_ptr_array_add(collectors->peers, next);
	end_peer(collectors, peer);
}

/* Each waits for what the side band says up to then, a millisecond or two. */
static void serve_sysprof(struct collectors *collectors, struct peer *peer, uint64_t limit_ns,
			  uint64_t now_ns)
{
	forget_ended_rings(collectors, peer, now_ns);
	if (peer->n_wanted == 0 || limit_ns < peer->wanted_ns)
		return;
	if (has_executed(collectors, peer))
		follow_exec(collectors, peer, now_ns);
	peer->is_blocked = !sysprof_peer_can_answer(peer);
	while (peer->n_wanted > 0 && now_ns >= collectors->arena_until_ns && !peer->is_blocked) {
		give_sysprof_ring(collectors, peer);
		peer->is_blocked = !sysprof_peer_can_answer(peer);
	}
}

static void serve_active(struct collectors *collectors, struct peer *peer, uint64_t limit_ns,
			 uint64_t now_ns)
{
	struct control_request request;
	enum peer_message message = PEER_NOTHING;

	/* As of what the side band says up to then: not of a program that it has executed since. */
	if (!peer->process.process && limit_ns >= peer->came_ns)
		bind(collectors, peer);
	identify_threads(collectors, peer, now_ns);
	if (peer->ended && limit_ns >= peer->came_ns) {
		end_peer(collectors, peer);
		return;
	}
	if (peer->is_sysprof)
		serve_sysprof(collectors, peer, limit_ns, now_ns);
	if (!peer->called || peer->connection < 0 || now_ns < collectors->arena_until_ns)
		return;
	message = peer_receive(peer, &request);
	peer->called = message == PEER_REQUEST;
	if (message == PEER_CLOSED ||
	    (message == PEER_REQUEST && !give_arena(collectors, peer, &request)))
		unwatch(collectors, &peer->connection);
}

/* Somebody may have it who has not written yet, or has not asked as far as we know. */
static bool is_unclaimed(const struct peer_arena *arena)
{
	return arena->sysprof && arena->sysprof->pid == 0;
}

static bool is_done(const struct peer *peer, uint64_t now_ns)
{
	if (peer->state != PEER_GONE)
		return false;
	for (uint32_t i = 0; i < peer->n_arenas; i++) {
		if (is_unclaimed(peer->arenas[i]) && now_ns - peer->gone_ns < UNCLAIMED_NS)
			return false;
		for (uint32_t k = 0; k < peer->arenas[i]->memory.n_rings; k++)
			if (peer_ring_peek(&peer->arenas[i]->rings[k]))
				return false;
	}
	return true;
}

/* Frames of who never asked. */
static void lose_unclaimed(struct peer *peer)
{
	uint64_t now_ns = clock_ns();

	for (uint32_t i = 0; i < peer->n_arenas; i++)
		if (is_unclaimed(peer->arenas[i]) && sysprof_arena_pid(peer->arenas[i]))
			collector_process_lose(&peer->process, PROF_LOSS_RING_CORRUPT, 1, now_ns,
					       now_ns);
}

static void forget(struct collectors *collectors, guint i)
{
	struct peer *peer = peer_at(collectors, i);

	/* Nobody is to sleep on what is unmapped. */
	if (peer->n_arenas && collectors->options.bells)
		bells_set(collectors->options.bells, NULL, 0);
	collectors->rung = true;
	collectors->arena_bytes -= bytes_of(peer);
	for (uint32_t k = 0; k < peer->n_arenas; k++)
		collectors->n_rings -= peer->arenas[k]->memory.n_rings;
	g_ptr_array_remove_index_fast(collectors->peers, i);
	peer_free(peer);
}

void collectors_serve(struct collectors *collectors, uint64_t limit_ns, uint64_t now_ns)
{
	for (guint i = 0; i < collectors->peers->len; i++) {
		struct peer *peer = peer_at(collectors, i);

		if (peer->state == PEER_WAITING)
			serve_waiting(collectors, peer, limit_ns, now_ns);
		if (peer->state == PEER_ACTIVE)
			serve_active(collectors, peer, limit_ns, now_ns);
		if (is_done(peer, now_ns)) {
			lose_unclaimed(peer);
			forget(collectors, i--);
		}
	}
}

/* ---- Draining ----------------------------------------------------------------------------------- */

/* What a ring that lies said, in the capture and to the client. */
static void tell_fault(struct collectors *collectors, struct peer_ring *ring)
{
	struct collector_process *process = &ring->peer->process;
	uint64_t now_ns = clock_ns();
	char text[160];

	ring->told_fault = true;
	collector_process_lose(process, PROF_LOSS_RING_CORRUPT, 1, ring->reader.drain_ns, now_ns);
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

/*
 * Whether more of it may be queued. What is left in the ring is counted by who writes, once that is full; others are not to
 * wait for it, so it may be late.
 */
static bool has_share(const struct collectors *collectors, const struct peer *peer)
{
	return collectors->queued_bytes <= COLLECTORS_MAX_QUEUED ||
	       peer->queued_bytes <= 2 * COLLECTORS_MAX_QUEUED / collectors->n_active;
}

/* Returns whether something in it was more than a third full. */
static bool drain_arena(struct collectors *collectors, struct peer *peer, struct peer_arena *arena,
			uint64_t now_ns)
{
	bool is_filling = false;

	for (uint32_t i = 0; i < arena->memory.n_rings; i++) {
		struct peer_ring *ring = &arena->rings[i];
		uint64_t fill;

		if (!has_share(collectors, peer))
			return true;
		collectors->queued_bytes +=
			drain_ring(collectors, arena, i, RING_DRAIN_LIVE, &fill);
		is_filling = is_filling || fill > ring->reader.size / 3;
		collectors->bound_ns = MIN_OF(collectors->bound_ns, ring->bound_ns);
		if (ring->reader.fault != RING_FAULT_NONE && !ring->told_fault)
			tell_fault(collectors, ring);
	}
	peer_arena_count_lost(peer, arena, now_ns);
	return is_filling;
}

/* Who rings without reason, again and again, is drained by the clock only. */
static void judge_bell(struct peer_arena *arena, bool is_filling, uint64_t now_ns)
{
	bool rang = arena->armed &&
		    __atomic_load_n(arena->bell.word, __ATOMIC_RELAXED) != arena->bell.value;

	if (!rang)
		return;
	arena->armed = false;
	arena->false_bells = is_filling ? 0 : arena->false_bells + 1;
	if (arena->false_bells > FALSE_BELLS)
		arena->deaf_until_ns = now_ns + DEAF_NS;
}

void collectors_drain(struct collectors *collectors, uint64_t now_ns)
{
	bool is_filling = false;

	collectors->n_active = 0;
	for (guint i = 0; i < collectors->peers->len; i++)
		collectors->n_active += peer_at(collectors, i)->state == PEER_ACTIVE;
	collectors->drained_ns = now_ns;
	/* A thread that asks has made its first mark already. */
	collectors->bound_ns = collectors->has_sysprof ? now_ns - SYSPROF_HOLD_NS : UINT64_MAX;
	sort_sysprof_rings(collectors, now_ns);
	for (guint i = 0; i < collectors->peers->len; i++) {
		struct peer *peer = peer_at(collectors, i);

		for (uint32_t k = 0; peer->state == PEER_ACTIVE && k < peer->n_arenas; k++) {
			bool is_full = drain_arena(collectors, peer, peer->arenas[k], now_ns);

			judge_bell(peer->arenas[k], is_full, now_ns);
			is_filling = is_filling || is_full;
		}
	}
	if (is_filling)
		collectors->interval_ms = MAX_OF(collectors->interval_ms / 4, 1u);
	else
		collectors->interval_ms = MIN_OF(collectors->interval_ms * 2, MAX_INTERVAL_MS);
}

/* ---- Rows --------------------------------------------------------------------------------------- */

static uint64_t head_ns(const struct peer_ring *ring)
{
	return peer_ring_peek(ring)->time_ns;
}

static void sift_down(struct collectors *collectors)
{
	struct peer_ring **heap = collectors->heap, *moved = heap[0];
	size_t i = 0, child;

	while ((child = 2 * i + 1) < collectors->n_heap) {
		if (child + 1 < collectors->n_heap &&
		    head_ns(heap[child + 1]) < head_ns(heap[child]))
			child++;
		if (head_ns(heap[child]) >= head_ns(moved))
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = moved;
}

static void push(struct collectors *collectors, struct peer_ring *ring)
{
	size_t i = collectors->n_heap++, parent;

	while (i > 0 && head_ns(ring) < head_ns(collectors->heap[parent = (i - 1) / 2])) {
		collectors->heap[i] = collectors->heap[parent];
		i = parent;
	}
	collectors->heap[i] = ring;
}

static void fill_heap(struct collectors *collectors)
{
	collectors->n_heap = 0;
	if (collectors->heap_room < collectors->n_rings) {
		collectors->heap_room = collectors->n_rings * 2;
		collectors->heap =
			g_renew(struct peer_ring *, collectors->heap, collectors->heap_room);
	}
	for (guint i = 0; i < collectors->peers->len; i++) {
		struct peer *peer = peer_at(collectors, i);

		/* Before it is known who it is, nothing of it can be a row. */
		if (!peer->process.process && peer->state != PEER_GONE)
			continue;
		for (uint32_t k = 0; k < peer->n_arenas; k++)
			for (uint32_t n = 0; n < peer->arenas[k]->memory.n_rings; n++)
				if (peer_ring_peek(&peer->arenas[k]->rings[n]))
					push(collectors, &peer->arenas[k]->rings[n]);
	}
}

/* The oldest record of a ring. */
static void emit(struct collectors *collectors, struct peer_ring *ring)
{
	struct peer_item *item = peer_ring_peek(ring);
	const struct ring_record record = {
		.type = item->type,
		.flags = item->flags,
		.verdict = item->verdict,
		.time_ns = item->time_ns,
		.payload = item + 1,
		.n_bytes = item->n_bytes,
	};
	struct collector_process *process = &ring->peer->process;
	enum ring_fault fault = RING_FAULT_TID;

	if (record.time_ns < collectors->emitted_ns)
		collector_process_lose(process, PROF_LOSS_LATE, 1, record.time_ns, record.time_ns);
	collectors->emitted_ns = MAX_OF(collectors->emitted_ns, record.time_ns);
	if (process->process)
		fault = collector_owner_add(item->owner, &record);
	if (fault != RING_FAULT_NONE) {
		collectors->queued_bytes -= peer_ring_quarantine(ring, fault);
		if (!ring->told_fault)
			tell_fault(collectors, ring);
		return;
	}
	collectors->queued_bytes -= peer_ring_skip(ring);
}

void collectors_emit(struct collectors *collectors, uint64_t limit_ns, uint64_t until_ns)
{
	struct output *output = collectors->options.output;
	unsigned int n = 0;

	collectors->unfinished = false;
	if (collectors->queued_bytes == 0)
		return;
	fill_heap(collectors);
	limit_ns = MIN_OF(limit_ns, collectors->bound_ns);
	while (collectors->n_heap > 0 && head_ns(collectors->heap[0]) <= limit_ns) {
		struct peer_ring *ring = collectors->heap[0];

		if (n++ % 256 == 255 && clock_ns() >= until_ns) {
			collectors->unfinished = true;
			break;
		}
		if (output_epoch_full(output))
			output_tick(output, output->now_ns);
		emit(collectors, ring);
		if (!peer_ring_peek(ring))
			collectors->heap[0] = collectors->heap[--collectors->n_heap];
		if (collectors->n_heap > 1)
			sift_down(collectors);
	}
}

/* ---- Sleeping ----------------------------------------------------------------------------------- */

static bool is_filling(const struct peer_arena *arena)
{
	for (uint32_t i = 0; i < arena->memory.n_rings; i++)
		if (ring_reader_fill(&arena->rings[i].reader) > arena->rings[i].reader.size / 3)
			return true;
	return false;
}

static bool can_ring(const struct peer *peer, const struct peer_arena *arena, uint64_t now_ns)
{
	return peer->state == PEER_ACTIVE && !arena->sysprof && now_ns >= arena->deaf_until_ns;
}

/* All of them; returns whether something filled between its drain and now, when it could not ring. */
static bool listen_to_all(struct collectors *collectors, uint64_t now_ns)
{
	struct bell bells[BELLS_MAX];
	bool is_full = false;
	size_t n = 0;

	for (guint i = 0; i < collectors->peers->len; i++) {
		struct peer *peer = peer_at(collectors, i);

		for (uint32_t k = 0; k < peer->n_arenas && n < BELLS_MAX; k++) {
			struct peer_arena *arena = peer->arenas[k];

			if (!can_ring(peer, arena, now_ns))
				continue;
			if (!arena->armed) {
				arena->bell.value =
					ring_arena_arm(&arena->memory, &arena->bell.word);
				arena->armed = true;
				is_full = is_full || is_filling(arena);
			}
			bells[n++] = arena->bell;
		}
	}
	bells_set(collectors->options.bells, bells, n);
	collectors->rung = false;
	collectors->armed_ns = now_ns;
	return is_full;
}

/* Whether what the bells are is not what they were listed as. */
static bool is_outdated(const struct collectors *collectors, uint64_t now_ns)
{
	size_t n = 0;

	if (!collectors->options.bells)
		return false;
	for (guint i = 0; !collectors->rung && i < collectors->peers->len; i++) {
		const struct peer *peer = peer_at(collectors, i);

		for (uint32_t k = 0; k < peer->n_arenas && n < BELLS_MAX; k++) {
			if (!can_ring(peer, peer->arenas[k], now_ns))
				continue;
			if (!peer->arenas[k]->armed)
				return true;
			n++;
		}
	}
	return collectors->rung;
}

/* Something is to be looked at again soon. */
static bool is_waiting(const struct peer *peer)
{
	return peer->state == PEER_WAITING ||
	       (peer->state == PEER_ACTIVE &&
		(!peer->process.process || peer->called || peer->ended ||
		 (peer->n_wanted > 0 && !peer->is_blocked)));
}

/* Sysprof's rings are looked at, where there are some; more seldom the longer nothing is to be done about them. */
static uint64_t poll_sysprof_rings(struct collectors *collectors, uint64_t now_ns)
{
	bool is_filling = false, are_there = false;

	if (now_ns < collectors->poll_ns)
		return collectors->poll_ns;
	for (guint i = 0; i < collectors->peers->len; i++) {
		const struct peer *peer = peer_at(collectors, i);

		for (uint32_t k = 0;
		     peer->is_sysprof && peer->state == PEER_ACTIVE && k < peer->n_arenas; k++) {
			are_there = true;
			is_filling = is_filling || sysprof_arena_is_filling(peer->arenas[k]);
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

uint64_t collectors_sleep(struct collectors *collectors, uint64_t now_ns)
{
	uint64_t interval_ns = collectors->interval_ms * MS;
	bool is_soon = false;

	collectors->due_ns = UINT64_MAX;
	if (!collectors->peers || collectors->peers->len == 0)
		return collectors->due_ns;
	for (guint i = 0; !is_soon && i < collectors->peers->len; i++)
		is_soon = is_waiting(peer_at(collectors, i));
	if (is_outdated(collectors, now_ns)) {
		/* No more than a thousand times a second. */
		if (now_ns - collectors->armed_ns < MS)
			is_soon = true;
		else
			is_soon = listen_to_all(collectors, now_ns) || is_soon;
	}
	if (is_soon)
		interval_ns = MS;
	collectors->due_ns = collectors->unfinished ? 0 : collectors->drained_ns + interval_ns;
	/* A look is not a round. */
	interval_ns = poll_sysprof_rings(collectors, now_ns);
	return MIN_OF(collectors->due_ns, interval_ns);
}

/* ---- The end ------------------------------------------------------------------------------------ */

/* What there was no time for, of those of whom more than that is queued. */
static void lose_queued(struct collectors *collectors, uint64_t more_than)
{
	for (guint i = 0; i < collectors->peers->len; i++) {
		struct peer *peer = peer_at(collectors, i);
		bool is_lost = peer->queued_bytes > more_than;

		for (uint32_t k = 0; is_lost && k < peer->n_arenas; k++)
			for (uint32_t n = 0; n < peer->arenas[k]->memory.n_rings; n++) {
				struct peer_ring *ring = &peer->arenas[k]->rings[n];

				for (struct peer_item *item; (item = peer_ring_peek(ring));) {
					collector_process_lose(&peer->process,
							       PROF_LOSS_WRITER_BACKLOG,
							       collector_is_event(item->type),
							       item->time_ns, item->time_ns);
					collectors->queued_bytes -= peer_ring_skip(ring);
				}
			}
	}
}

/* Behind those of whom much is queued. */
static bool is_modest_waiting(const struct collectors *collectors)
{
	for (guint i = 0; i < collectors->peers->len; i++) {
		uint64_t bytes = peer_at(collectors, i)->queued_bytes;

		if (bytes > 0 && bytes <= COLLECTORS_MODEST)
			return true;
	}
	return false;
}

void collectors_finish(struct collectors *collectors, uint64_t until_ns)
{
	uint64_t begin_ns = MIN_OF(clock_ns(), until_ns);
	bool known;

	for (guint i = 0; i < collectors->peers->len; i++) {
		struct peer *peer = peer_at(collectors, i);

		if (peer->state != PEER_WAITING)
			continue;
		/* It may have had another one's answer. */
		if (peer->is_sysprof && is_target(collectors, peer, &known))
			peer->state = PEER_ACTIVE;
		else
			refuse(collectors, peer, CONTROL_NO_SESSION);
	}
	/* All are told first, so that they stop at about the same time. */
	for (guint i = 0; i < collectors->peers->len; i++)
		stop_producers(peer_at(collectors, i));
	for (guint i = 0; i < collectors->peers->len; i++)
		if (peer_at(collectors, i)->state == PEER_ACTIVE)
			end_peer(collectors, peer_at(collectors, i));
	for (guint i = 0; i < collectors->peers->len; i++)
		lose_unclaimed(peer_at(collectors, i));
	collectors->bound_ns = UINT64_MAX;
	collectors_emit(collectors, UINT64_MAX, begin_ns + (until_ns - begin_ns) / 2);
	if (is_modest_waiting(collectors)) {
		lose_queued(collectors, COLLECTORS_MODEST);
		/* that took its time as well */
		until_ns = MAX_OF(until_ns, clock_ns() + MODEST_NS);
	}
	collectors_emit(collectors, UINT64_MAX, until_ns);
	lose_queued(collectors, 0);
}

void collectors_done(struct collectors *collectors)
{
	if (!collectors->peers)
		return;
	while (collectors->peers->len > 0)
		forget(collectors, collectors->peers->len - 1);
	g_ptr_array_free(collectors->peers, TRUE);
	g_hash_table_destroy(collectors->by_fd);
	g_free(collectors->heap);
	if (collectors->rows->lost_image)
		row_unref(&collectors->rows->lost_image->row);
	g_free(collectors->rows);
	g_free(collectors->buffer);
	*collectors = (struct collectors){ 0 };
}
