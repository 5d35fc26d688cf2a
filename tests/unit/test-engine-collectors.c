/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of collectors.c, collectors-merge.c and collector-peer.c in daemon/engine: which processes
 * get rings, which doorbells the engine listens to, and the cleanup after processes that end.
 * Records are in test-engine-collectors-rows.c, stacks and allocations in
 * test-engine-collectors-stacks.c.
 */
#include "tests/unit/collectors.h"

#include <linux/futex.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static void test_registration(void)
{
	struct control_request request = { .magic = CONTROL_REQUEST_MAGIC,
					   .version = CONTROL_VERSION,
					   .bytes = CONTROL_BYTES,
					   .min_data_bytes = 100000,
					   .n_rings = 3 };
	struct fixture fixture;
	int fd, connection;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	CHECK_INT(fixture.shared->n_rings, N_RINGS);
	CHECK_INT(header_of(&fixture, 0)->policy, RING_DROP);
	connection = ((struct peer *)g_ptr_array_index(fixture.collectors.peers, 0))->connection;
	CHECK_INT(send(fixture.socket, &request, sizeof(request), 0), sizeof(request));
	CHECK(collectors_wake(&fixture.collectors, connection));
	step_until_answer(&fixture);
	REQUIRE(take_arena(&fixture));
	CHECK_INT(fixture.shared->n_rings, 3);
	CHECK(ring_claim(fixture.arena, 1, 100000, 0) != NULL);
	/* more than the limit of a process */
	request.min_data_bytes = COLLECTORS_MAX_PEER_BYTES;
	CHECK_INT(send(fixture.socket, &request, sizeof(request), 0), sizeof(request));
	collectors_wake(&fixture.collectors, connection);
	step_until_answer(&fixture);
	CHECK_INT(receive(&fixture, &fd), CONTROL_LIMIT);
	/* an invalid request closes the connection, and has no other effect */
	CHECK_INT(send(fixture.socket, "?", 1, 0), 1);
	collectors_wake(&fixture.collectors, connection);
	step_until_answer(&fixture);
	CHECK_INT(recv(fixture.socket, &fd, sizeof(fd), MSG_DONTWAIT), 0);
	CHECK(!collectors_wake(&fixture.collectors, connection));
	CHECK_INT(fixture.collectors.peers->len, 1);
	finish(&fixture);
	fixture_done(&fixture);
}

static void test_policy(void)
{
	struct fixture fixture;

	fixture_init(&fixture, ENGINE_POLICY_DEFAULT);
	connect_as(&fixture, getpid(), CONTROL_WANTS_ALLOCATIONS);
	step(&fixture);
	if (take_arena(&fixture))
		CHECK_INT(header_of(&fixture, 0)->policy, RING_LOSSLESS);
	finish(&fixture);
	fixture_done(&fixture);
	fixture_init(&fixture, ENGINE_POLICY_DROP);
	connect_as(&fixture, getpid(), CONTROL_WANTS_ALLOCATIONS);
	step(&fixture);
	if (take_arena(&fixture))
		CHECK_INT(header_of(&fixture, 0)->policy, RING_DROP);
	finish(&fixture);
	fixture_done(&fixture);
}

/* A process that is not a target gets no arena. An unknown process is refused only after the side
 * band has been read past the time at which the process connected. */
static void test_stranger(void)
{
	struct fixture fixture;
	uint64_t at;
	int fd;

	fixture_init(&fixture, ENGINE_POLICY_DEFAULT);
	connect_as(&fixture, STRANGER_PID, 0);
	step(&fixture);
	CHECK_INT(receive(&fixture, &fd), CONTROL_NOT_A_TARGET);
	connect_as(&fixture, STRANGER_PID + 1, 0);
	at = now();
	collectors_serve(&fixture.collectors, at - 1000000000, at);
	CHECK_INT(receive(&fixture, &fd), -1);
	collectors_serve(&fixture.collectors, at, at);
	CHECK_INT(receive(&fixture, &fd), CONTROL_NOT_A_TARGET);
	step(&fixture);
	CHECK_INT(fixture.collectors.peers->len, 0);
	CHECK_INT(fixture.collectors.arena_bytes, 0);
	finish(&fixture);
	fixture_done(&fixture);
}

static void add_refused(struct fixture *fixture, int32_t pid)
{
	const struct message_peer message = { .pid = pid, .protocol = PEER_REFUSED };

	collectors_add_peer(&fixture->collectors, &message, -1, -1, now());
}

/* The broker had no room for these processes. Each target counts as one loss; other processes do
 * not count. A process with rings keeps them. */
static void test_refused(void)
{
	struct fixture fixture;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	add_refused(&fixture, getpid());
	add_refused(&fixture, STRANGER_PID);
	add_refused(&fixture, STRANGER_PID + 1);
	step(&fixture);
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_REFUSED), 1);
	CHECK_INT(fixture.collectors.peers->len, 1);
	CHECK(write_mark(claim(&fixture, getpid()), 0, 41));
	/* finishing does not wait for refused processes */
	add_refused(&fixture, getpid());
	finish(&fixture);
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_REFUSED), 2);
	CHECK_INT(mark_id(&fixture, 0), 41);
	fixture_done(&fixture);
}

/* With the maximum number of peers, further targets of either protocol are refused and counted. */
static void test_no_room(void)
{
	const struct message_peer other = { .pid = getpid(), .protocol = PEER_SYSPROF };
	struct fixture fixture;
	int sockets[2], fd;

	fixture_init(&fixture, ENGINE_POLICY_DEFAULT);
	for (uint32_t i = 0; i < COLLECTORS_MAX_PEERS; i++)
		add_refused(&fixture, STRANGER_PID);
	connect_as(&fixture, getpid(), 0);
	REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0);
	collectors_add_peer(&fixture.collectors, &other, sockets[1], pidfd_open(getpid(), 0),
			    now());
	CHECK_INT(receive(&fixture, &fd), CONTROL_LIMIT);
	CHECK_INT(recv(sockets[0], &fd, sizeof(fd), MSG_DONTWAIT), 1);
	step(&fixture);
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_REFUSED), 2);
	CHECK_INT(fixture.collectors.peers->len, 0);
	close(sockets[0]);
	finish(&fixture);
	fixture_done(&fixture);
}

/* If two connections have the same pid, the first one is kept unless it has hung up. */
static void test_same_process(void)
{
	struct fixture fixture;
	struct ring *ring;
	int first, fd;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	ring = claim(&fixture, getpid());
	write_mark(ring, 0, 41);
	first = fixture.socket;
	fixture.socket = -1;
	connect_as(&fixture, getpid(), 0);
	step(&fixture);
	CHECK_INT(receive(&fixture, &fd), CONTROL_LIMIT);
	close(first);
	connect_as(&fixture, getpid(), 0);
	step_until_answer(&fixture);
	REQUIRE(take_arena(&fixture));
	write_mark(claim(&fixture, getpid()), 0, 42);
	settle(&fixture);
	finish(&fixture);
	CHECK_INT(mark_id(&fixture, 0), 41);
	CHECK_INT(mark_id(&fixture, 1), 42);
	fixture_done(&fixture);
}

/* A target that cannot be admitted, or has stopped waiting, counts as one loss. The next target is
 * admitted. */
static void test_not_let_in(void)
{
	struct fixture fixture;
	struct rlimit limit, none;
	int fd;

	fixture_init(&fixture, ENGINE_POLICY_DEFAULT);
	REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	none = (struct rlimit){ 1, limit.rlim_max };
	connect_as(&fixture, getpid(), 0);
	REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
	step_until_answer(&fixture);
	setrlimit(RLIMIT_NOFILE, &limit);
	CHECK_INT(receive(&fixture, &fd), CONTROL_FAILED);
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_REFUSED), 1);
	connect_as(&fixture, getpid(), 0);
	close(steal_fd(&fixture.socket));
	settle(&fixture);
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_REFUSED), 2);
	connect_as(&fixture, STRANGER_PID, 0);
	close(steal_fd(&fixture.socket));
	settle(&fixture);
	connect_as(&fixture, getpid(), 0);
	step_until_answer(&fixture);
	REQUIRE(take_arena(&fixture));
	write_mark(claim(&fixture, getpid()), 0, 1);
	settle(&fixture);
	finish(&fixture);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_MARK), 1);
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_REFUSED), 2);
	fixture_done(&fixture);
}

static void connect_ended(struct fixture *fixture, int32_t pid)
{
	connect_as(fixture, pid, 0);
	CHECK(collectors_wake(&fixture->collectors, fixture->pidfd));
}

/* A target that ends before it is admitted counts as one loss, whether side band or pidfd reports
 * its end first. */
static void test_ended_before(void)
{
	const struct task_ids exited = { .pid = getpid(), .tid = getpid() };
	struct fixture fixture;
	uint64_t at;

	fixture_init(&fixture, ENGINE_POLICY_DEFAULT);
	connect_ended(&fixture, getpid());
	at = now();
	collectors_serve(&fixture.collectors, at - 1000000000, at);
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_REFUSED), 0);
	settle(&fixture);
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_REFUSED), 1);
	connect_ended(&fixture, STRANGER_PID);
	settle(&fixture);
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_REFUSED), 1);
	tasks_exit(&fixture.parts.tasks, &exited, now());
	tasks_exit(&fixture.parts.tasks, &(struct task_ids){ .pid = getpid(), .tid = OTHER_TID },
		   now());
	connect_ended(&fixture, getpid());
	settle(&fixture);
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_REFUSED), 2);
	connect_ended(&fixture, getpid());
	finish(&fixture);
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_REFUSED), 3);
	fixture_done(&fixture);
}

/* A process that got an arena, and could not map it or no longer waited, records nothing. That
 * counts as one loss. */
static void test_unused(void)
{
	struct fixture fixture;
	int fd;

	fixture_init(&fixture, ENGINE_POLICY_DEFAULT);
	connect_as(&fixture, getpid(), 0);
	step_until_answer(&fixture);
	CHECK_INT(receive(&fixture, &fd), CONTROL_OK);
	close(fd);
	CHECK(collectors_wake(&fixture.collectors, fixture.pidfd));
	settle(&fixture);
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_REFUSED), 1);
	finish(&fixture);
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_REFUSED), 1);
	fixture_done(&fixture);
}

/* A process dies before its ring is drained. Its unfinished record is counted. */
static void test_death(void)
{
	struct fixture fixture;
	struct ring *ring;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	ring = claim(&fixture, getpid());
	write_mark(ring, 0, 1);
	(void)ring_begin(ring, RING_MARK, sizeof(struct ring_mark));
	CHECK(collectors_wake(&fixture.collectors, fixture.pidfd));
	settle(&fixture);
	CHECK_INT(fixture.collectors.peers->len, 0);
	CHECK_INT(fixture.collectors.arena_bytes, 0);
	CHECK_INT(fixture.shared->ended, 1);
	finish(&fixture);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_MARK), 1);
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_REENTRANT), 1);
	fixture_done(&fixture);
}

/* At the end of the session, a living process is notified, and all of its rows are written. */
static void test_session_end(void)
{
	struct fixture fixture;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	write_mark(claim(&fixture, getpid()), 0, 1);
	finish(&fixture);
	CHECK_INT(fixture.shared->ended, 1);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_MARK), 1);
	fixture_done(&fixture);
}

/* A process sends requests without end, and reads no answers. Its connection is closed, but its
 * ring is still drained. */
static void test_floods(void)
{
	const struct control_request request = { .magic = CONTROL_REQUEST_MAGIC,
						 .version = CONTROL_VERSION,
						 .bytes = CONTROL_BYTES,
						 .min_data_bytes = UINT64_C(1) << 40 };
	struct fixture fixture;
	struct peer *peer;
	unsigned int sent = 0;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	peer = g_ptr_array_index(fixture.collectors.peers, 0);
	for (uint64_t until = now() + UINT64_C(20000000000);
	     now() < until && peer->connection >= 0;) {
		sent += send(fixture.socket, &request, sizeof(request), MSG_DONTWAIT) > 0;
		collectors_wake(&fixture.collectors, peer->connection);
		step(&fixture);
	}
	CHECK(sent > 10);
	CHECK_INT(peer->connection, -1);
	CHECK_INT(peer->n_arenas, 1);
	write_mark(claim(&fixture, getpid()), 0, 1);
	settle(&fixture);
	finish(&fixture);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_MARK), 1);
	fixture_done(&fixture);
}

/* A process registers and calls exec before the side band is read. The registration belongs to the
 * old program. */
static void test_executed_at_once(void)
{
	struct fixture fixture;
	struct process *before, *after;

	fixture_init(&fixture, ENGINE_POLICY_DEFAULT);
	before = tasks_thread(&fixture.parts.tasks, getpid())->process;
	row_ref(&before->row);
	connect_as(&fixture, getpid(), CONTROL_WANTS_ALLOCATIONS);
	collectors_serve(&fixture.collectors, 1, now());
	REQUIRE(take_arena(&fixture));
	ring_arena_join(fixture.arena);
	after = tasks_exec(&fixture.parts.tasks, getpid(), "next", now());
	for (int i = 0; i < 1000 && !before->has_heap && !after->has_heap; i++) {
		usleep(1000);
		collectors_serve(&fixture.collectors, now(), now());
	}
	CHECK(before->has_heap);
	CHECK(!after->has_heap);
	row_unref(&before->row);
	finish(&fixture);
	fixture_done(&fixture);
}

/* A process that could not map its arena and hung up is treated as one that never registered. */
static void test_given_up(void)
{
	struct fixture fixture;
	struct process *process;

	fixture_init(&fixture, ENGINE_POLICY_DEFAULT);
	process = tasks_thread(&fixture.parts.tasks, getpid())->process;
	connect_as(&fixture, getpid(), CONTROL_WANTS_ALLOCATIONS);
	step_until_answer(&fixture);
	close(steal_fd(&fixture.socket));
	settle(&fixture);
	row_ref(&process->row);
	finish(&fixture);
	CHECK(process->refused_heap && !process->has_heap);
	row_unref(&process->row);
	fixture_done(&fixture);
}

static bool has_rung(struct doorbells *doorbells, int timeout_ms)
{
	for (int i = 0; i < timeout_ms; i++) {
		struct timespec pause = { .tv_nsec = 1000000 };
		uint64_t count;

		if (read(doorbells_fd(doorbells), &count, sizeof(count)) > 0)
			return true;
		nanosleep(&pause, NULL);
	}
	return false;
}

/* A ring that fills wakes the engine. A doorbell that rings without need is soon ignored. */
static void test_doorbells(void)
{
	struct doorbells *doorbells = doorbells_new(NULL);
	unsigned int rung = 0;
	struct fixture fixture;
	struct ring *ring;

	REQUIRE(doorbells != NULL);
	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	fixture.collectors.options.doorbells = doorbells;
	ring = claim(&fixture, getpid());
	step(&fixture);
	collectors_sleep(&fixture.collectors, now(), 0);
	CHECK(!has_rung(doorbells, 50));
	for (unsigned int i = 0; i < 600; i++)
		write_mark(ring, 0, i);
	CHECK(has_rung(doorbells, 5000));
	usleep(2000);
	step(&fixture);
	collectors_sleep(&fixture.collectors, now(), 0);
	for (unsigned int i = 0; i < 100; i++) {
		__atomic_fetch_add(&fixture.shared->doorbell, 1, __ATOMIC_SEQ_CST);
		syscall(SYS_futex, &fixture.shared->doorbell, FUTEX_WAKE, 1, NULL, NULL, 0);
		if (!has_rung(doorbells, i < 5 ? 5000 : 20))
			break;
		rung++;
		usleep(2000);
		collectors_wake(&fixture.collectors, doorbells_fd(doorbells));
		step(&fixture);
		collectors_sleep(&fixture.collectors, now(), 0);
	}
	CHECK(rung >= 5);
	CHECK(rung < 40);
	finish(&fixture);
	fixture_done(&fixture);
	doorbells_free(doorbells);
}

/* Returns the time from the last drain to the next one that is due; the session allows 5 s. */
static uint64_t sleep_ns(struct fixture *fixture)
{
	uint64_t now_ns = now();

	return collectors_sleep(&fixture->collectors, now_ns, UINT64_C(5000000000)) -
	       MIN_OF(now_ns, fixture->collectors.drained_ns);
}

/* If a ring fills while other records become rows, it may be drained at once. Its doorbell then
 * does not count as rung without need. */
static void test_doorbells_amid(void)
{
	struct doorbells *doorbells = doorbells_new(NULL);
	struct fixture fixture;
	struct peer_arena *arena;
	struct ring *ring;

	REQUIRE(doorbells != NULL);
	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	fixture.collectors.options.doorbells = doorbells;
	ring = ring_claim(fixture.arena, (uint32_t)getpid(), 4u << 20, 0);
	REQUIRE(ring != NULL);
	arena = ((struct peer *)g_ptr_array_index(fixture.collectors.peers, 0))->arenas[0];
	for (unsigned int i = 0; i < 50; i++) {
		uint64_t at = now();

		collectors_sleep(&fixture.collectors, at, 0);
		/* more marks than a drain takes, but less than a third of the ring */
		for (unsigned int k = 0; k < 4000; k++)
			CHECK(write_mark(ring, 0, k));
		collectors_drain(&fixture.collectors, at);
		for (unsigned int k = 0; k < 20000; k++)
			CHECK(write_mark(ring, 0, k));
		usleep(1000);
		collectors_emit(&fixture.collectors, now(), UINT64_MAX);
	}
	CHECK(arena->false_doorbells < 5);
	CHECK_INT(arena->deaf_until_ns, 0);
	finish(&fixture);
	fixture_done(&fixture);
	doorbells_free(doorbells);
}

/* Empty rings may be read as rarely as the session allows, because the doorbell rings when a ring
 * fills. */
static void test_quiet(void)
{
	const uint64_t at_most_ns = UINT64_C(1000000000); /* ten times the usual maximum */
	struct doorbells *doorbells = doorbells_new(NULL);
	struct fixture fixture;
	struct ring *ring;

	REQUIRE(doorbells != NULL);
	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	ring = claim(&fixture, getpid());
	step(&fixture);
	/* no doorbells yet */
	CHECK(sleep_ns(&fixture) < at_most_ns);
	fixture.collectors.options.doorbells = doorbells;
	sleep_ns(&fixture);
	step(&fixture);
	CHECK(sleep_ns(&fixture) > at_most_ns);
	CHECK(collectors_are_quiet(&fixture.collectors, now()));
	/* a record in the ring need not be read yet, but a queued one must soon become a row */
	write_mark(ring, 0, 1);
	CHECK(sleep_ns(&fixture) > at_most_ns);
	collectors_drain(&fixture.collectors, now());
	CHECK(fixture.collectors.queued_bytes > 0);
	CHECK(sleep_ns(&fixture) < at_most_ns);
	usleep(2000);
	step(&fixture);
	CHECK(sleep_ns(&fixture) > at_most_ns);
	/* a ring whose doorbell rings without need is read at short intervals */
	fixture.collectors.rung = true;
	CHECK(!collectors_are_quiet(&fixture.collectors, now()));
	finish(&fixture);
	fixture_done(&fixture);
	doorbells_free(doorbells);
}

int main(void)
{
	RUN(test_registration);
	RUN(test_policy);
	RUN(test_stranger);
	RUN(test_refused);
	RUN(test_no_room);
	RUN(test_same_process);
	RUN(test_not_let_in);
	RUN(test_ended_before);
	RUN(test_unused);
	RUN(test_death);
	RUN(test_session_end);
	RUN(test_floods);
	RUN(test_executed_at_once);
	RUN(test_given_up);
	RUN(test_doorbells);
	RUN(test_doorbells_amid);
	RUN(test_quiet);
	return test_end();
}
