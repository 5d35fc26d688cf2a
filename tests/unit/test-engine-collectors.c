/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of collectors.c, collector-peer.c and collector-rows.c in daemon/engine: this process is the one that registers, writes
 * into its rings, and lies.
 */
#include "config.h"

#include "daemon/engine/collectors.h"
#include "libcollector/ring.h"
#include "tests/unit/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <malloc.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

#define N_RINGS 45 /* of the first arena */
#define OTHER_TID 2000000001
#define STRANGER_PID 2000000002

struct fixture {
	struct parts parts;
	struct collectors collectors;
	int socket; /* the process's end */
	int pidfd;  /* the engine's, a number only */
	struct ring_arena *arena;
	struct ring_arena_header *shared;
	unsigned int warnings;
};

static uint64_t now(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return (uint64_t)at.tv_sec * 1000000000 + (uint64_t)at.tv_nsec;
}

static void on_warning(const char *code, const char *text, void *data)
{
	((struct fixture *)data)->warnings++;
}

static void fixture_init(struct fixture *fixture, enum engine_policy policy)
{
	*fixture = (struct fixture){ .socket = -1 };
	parts_init(&fixture->parts);
	tasks_filter(&fixture->parts.tasks, (const int32_t[]){ getpid() }, 1, true);
	tasks_found(&fixture->parts.tasks, getpid(), getpid(), 1);
	tasks_found(&fixture->parts.tasks, getpid(), OTHER_TID, 1);
	tasks_found(&fixture->parts.tasks, STRANGER_PID, STRANGER_PID, 1);
	collectors_init(&fixture->collectors, &(struct collectors_options){
						      .output = &fixture->parts.output,
						      .tasks = &fixture->parts.tasks,
						      .losses = &fixture->parts.losses,
						      .images = &fixture->parts.images,
						      .epoll_fd = -1,
						      .session = 7,
						      .policy = policy,
						      .warn = on_warning,
						      .data = fixture,
					      });
}

static void fixture_done(struct fixture *fixture)
{
	collectors_done(&fixture->collectors);
	parts_done(&fixture->parts);
	ring_arena_unmap(fixture->arena);
	if (fixture->socket >= 0)
		close(fixture->socket);
}

static void step(struct fixture *fixture)
{
	parts_step(&fixture->parts, &fixture->collectors, now());
}

/* Until all that was written is a row. */
static void settle(struct fixture *fixture)
{
	for (int i = 0; i < 3; i++) {
		usleep(1000);
		step(fixture);
	}
}

/* Until there is an answer, or the connection is closed: arenas are made a third of the time at most. */
static void step_until_answer(struct fixture *fixture)
{
	struct pollfd item = { .fd = fixture->socket, .events = POLLIN };

	for (int i = 0; i < 20000 && poll(&item, 1, 1) == 0; i++)
		step(fixture);
}

static void finish(struct fixture *fixture)
{
	parts_finish_collectors(&fixture->parts, &fixture->collectors);
}

static void connect_as(struct fixture *fixture, int32_t pid, uint32_t wants)
{
	const struct message_peer message = { .pid = pid, .wants = wants };
	int sockets[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
		abort();
	if (fixture->socket >= 0)
		close(fixture->socket);
	fixture->socket = sockets[0];
	fixture->pidfd = pidfd_open(getpid(), 0);
	collectors_add_peer(&fixture->collectors, &message, sockets[1], fixture->pidfd, now());
}

/* -1: no answer; *ret_fd: -1 without one. */
static int receive(struct fixture *fixture, int *ret_fd)
{
	struct control_answer answer;
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(4 * sizeof(int))];
	} control;
	struct iovec part = { &answer, sizeof(answer) };
	struct msghdr header = { .msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control) };

	*ret_fd = -1;
	if (recvmsg(fixture->socket, &header, MSG_DONTWAIT) != sizeof(answer))
		return -1;
	CHECK_INT(answer.magic, CONTROL_ANSWER_MAGIC);
	CHECK_INT(answer.bytes, CONTROL_BYTES);
	CHECK_INT(answer.session, answer.status == CONTROL_OK ? 7 : 0);
	if (CMSG_FIRSTHDR(&header))
		memcpy(ret_fd, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof(*ret_fd));
	CHECK_INT(*ret_fd >= 0, answer.status == CONTROL_OK);
	return (int)answer.status;
}

static bool take_arena(struct fixture *fixture)
{
	void *shared;
	size_t bytes;
	int fd;

	if (!CHECK_INT(receive(fixture, &fd), CONTROL_OK))
		return false;
	ring_arena_unmap(fixture->arena);
	fixture->arena = NULL;
	if (!CHECK_INT(ring_arena_map(fd, &fixture->arena), 0))
		return false;
	close(fd);
	ring_arena_range(fixture->arena, &shared, &bytes);
	fixture->shared = shared;
	return true;
}

static bool begin(struct fixture *fixture, enum engine_policy policy)
{
	fixture_init(fixture, policy);
	connect_as(fixture, getpid(), 0);
	step_until_answer(fixture);
	return take_arena(fixture);
}

static struct ring *claim(struct fixture *fixture, uint32_t tid)
{
	return ring_claim(fixture->arena, tid, 0, 0);
}

/* The header of the i-th ring of the arena, as this side maps it. */
static struct ring_header *header_of(const struct fixture *fixture, size_t i)
{
	const struct ring_place *places =
		(const void *)((const char *)fixture->shared + fixture->shared->directory_offset);

	return (void *)((char *)fixture->shared + places[i].header_offset);
}

static uint8_t *data_of(const struct fixture *fixture, size_t i)
{
	const struct ring_place *places =
		(const void *)((const char *)fixture->shared + fixture->shared->directory_offset);

	return (uint8_t *)fixture->shared + places[i].data_offset;
}

static void write_string(struct ring *ring, uint32_t id, const void *text, uint32_t n,
			 uint16_t flags)
{
	struct ring_string *string = ring_begin(ring, RING_STRING, sizeof(*string) + n);

	if (!string)
		return;
	*string = (struct ring_string){ id, n };
	memcpy(string + 1, text, n);
	ring_set_flags(string, flags);
	ring_end(ring, string);
}

static bool write_mark(struct ring *ring, uint32_t name, uint64_t id)
{
	struct ring_mark *mark = ring_begin(ring, RING_MARK, sizeof(*mark));

	if (!mark)
		return false;
	*mark = (struct ring_mark){ .name = name, .id = id };
	ring_end(ring, mark);
	return true;
}

static uint64_t lost(struct fixture *fixture, enum prof_loss_cause cause)
{
	GHashTableIter iter;
	gpointer value;
	uint64_t sum = 0;

	g_hash_table_iter_init(&iter, fixture->parts.losses.total);
	while (g_hash_table_iter_next(&iter, NULL, &value))
		if (((struct loss *)value)->key.cause == cause)
			sum += ((struct loss *)value)->count;
	return sum;
}

static uint64_t mark_id(const struct fixture *fixture, size_t i)
{
	return number_of(&fixture->parts, PROF_TABLE_MARK, PROF_MARK_ID, i);
}

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
	/* more than a process may have */
	request.min_data_bytes = COLLECTORS_MAX_PEER_BYTES;
	CHECK_INT(send(fixture.socket, &request, sizeof(request), 0), sizeof(request));
	collectors_wake(&fixture.collectors, connection);
	step_until_answer(&fixture);
	CHECK_INT(receive(&fixture, &fd), CONTROL_LIMIT);
	/* what is no request ends the connection, and nothing else */
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

/* Who is no target, or nobody knows, gets no arena; the second not before it would be known. */
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

/* The broker had no room for them: one row of a target, none of others; what has its rings keeps them. */
static void test_refused(void)
{
	struct fixture fixture;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	add_refused(&fixture, getpid());
	add_refused(&fixture, STRANGER_PID);
	add_refused(&fixture, STRANGER_PID + 1);
	step(&fixture);
	CHECK_INT(lost(&fixture, PROF_LOSS_RING_REFUSED), 1);
	CHECK_INT(fixture.collectors.peers->len, 1);
	CHECK(write_mark(claim(&fixture, getpid()), 0, 41));
	/* at the end nobody is waited for */
	add_refused(&fixture, getpid());
	finish(&fixture);
	CHECK_INT(lost(&fixture, PROF_LOSS_RING_REFUSED), 2);
	CHECK_INT(mark_id(&fixture, 0), 41);
	fixture_done(&fixture);
}

/* There are as many as there may be: who is a target is told so and counted, of either protocol. */
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
	CHECK_INT(lost(&fixture, PROF_LOSS_RING_REFUSED), 2);
	CHECK_INT(fixture.collectors.peers->len, 0);
	close(sockets[0]);
	finish(&fixture);
	fixture_done(&fixture);
}

/* A number that is taken: the one who has it stays, unless it has hung up. */
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

/* Targets that cannot be let in, or wait no longer: each is a loss of one, and the next one is let in. */
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
	CHECK_INT(lost(&fixture, PROF_LOSS_RING_REFUSED), 1);
	connect_as(&fixture, getpid(), 0);
	close(steal_fd(&fixture.socket));
	settle(&fixture);
	CHECK_INT(lost(&fixture, PROF_LOSS_RING_REFUSED), 2);
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
	CHECK_INT(lost(&fixture, PROF_LOSS_RING_REFUSED), 2);
	fixture_done(&fixture);
}

static void connect_ended(struct fixture *fixture, int32_t pid)
{
	connect_as(fixture, pid, 0);
	CHECK(collectors_wake(&fixture->collectors, fixture->pidfd));
}

/* Targets that end before they are let in: a loss of one each, however the side band and the pidfd are in turn. */
static void test_ended_before(void)
{
	const struct record_task exited = { .pid = getpid(), .tid = getpid() };
	struct fixture fixture;
	uint64_t at;

	fixture_init(&fixture, ENGINE_POLICY_DEFAULT);
	connect_ended(&fixture, getpid());
	at = now();
	collectors_serve(&fixture.collectors, at - 1000000000, at);
	CHECK_INT(lost(&fixture, PROF_LOSS_RING_REFUSED), 0);
	settle(&fixture);
	CHECK_INT(lost(&fixture, PROF_LOSS_RING_REFUSED), 1);
	connect_ended(&fixture, STRANGER_PID);
	settle(&fixture);
	CHECK_INT(lost(&fixture, PROF_LOSS_RING_REFUSED), 1);
	tasks_exit(&fixture.parts.tasks, &exited, now());
	tasks_exit(&fixture.parts.tasks, &(struct record_task){ .pid = getpid(), .tid = OTHER_TID },
		   now());
	connect_ended(&fixture, getpid());
	settle(&fixture);
	CHECK_INT(lost(&fixture, PROF_LOSS_RING_REFUSED), 2);
	connect_ended(&fixture, getpid());
	finish(&fixture);
	CHECK_INT(lost(&fixture, PROF_LOSS_RING_REFUSED), 3);
	fixture_done(&fixture);
}

static void write_rich_mark(struct ring *ring)
{
	const struct ring_argument arguments[] = { { 1, 0, (uint64_t)-5 }, { 2, 3, 1 } };
	struct ring_mark *mark = ring_begin(ring, RING_MARK, sizeof(*mark) + sizeof(arguments));

	*mark = (struct ring_mark){
		.kind = RING_MARK_BEGIN, .group = 1, .name = 2, .id = 9, .n_arguments = 2
	};
	memcpy(mark + 1, arguments, sizeof(arguments));
	ring_end(ring, mark);
}

static void write_counter(struct ring *ring, uint32_t id, uint32_t kind, uint64_t value)
{
	struct ring_counter *counter = ring_begin(ring, RING_COUNTER, sizeof(*counter));
	struct ring_counter_value *set;

	*counter = (struct ring_counter){ .id = id, .kind = kind, .name = 2 };
	ring_end(ring, counter);
	set = ring_begin(ring, RING_COUNTER_VALUE, sizeof(*set));
	*set = (struct ring_counter_value){ .id = id, .value = value };
	ring_end(ring, set);
}

static void write_log(struct ring *ring, const char *text, uint16_t flags, uint32_t part)
{
	uint32_t n = (uint32_t)strlen(text);
	struct ring_log *log = ring_begin(ring, RING_LOG, sizeof(*log) + n);

	*log = (struct ring_log){ .level = 6, .part = part, .n_bytes = n };
	memcpy(log + 1, text, n);
	ring_set_flags(log, flags);
	ring_end(ring, log);
}

static double value_of(const struct fixture *fixture, size_t i)
{
	uint64_t bits =
		number_of(&fixture->parts, PROF_TABLE_COUNTER_VALUE, PROF_COUNTER_VALUE_VALUE, i);
	double value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static void test_rows(void)
{
	struct fixture fixture;
	struct ring *ring;
	double half = 0.5;
	uint64_t bits;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	ring = claim(&fixture, getpid());
	write_string(ring, 1, "gro", 3, RING_FLAG_MORE);
	write_string(ring, 1, "up", 2, 0);
	write_string(ring, 2, "name", 4, 0);
	write_rich_mark(ring);
	write_counter(ring, 5, 0, (uint64_t)-3);
	memcpy(&bits, &half, sizeof(bits));
	write_counter(ring, 6, RING_COUNTER_DOUBLE | RING_COUNTER_SUM, bits);
	write_counter(claim(&fixture, OTHER_TID), 1, 0, 0); /* its name is not known there */
	write_log(ring, "one ", RING_FLAG_MORE, 1);
	write_log(ring, "a handler's", 0, 0);
	write_log(ring, "text", 0, 1);
	settle(&fixture);
	finish(&fixture);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_MARK), 1);
	CHECK_STR(text_of(&fixture.parts,
			  number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_GROUP, 0)),
		  "group");
	CHECK_STR(text_of(&fixture.parts,
			  number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_NAME, 0)),
		  "name");
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_KIND, 0), PROF_MARK_BEGIN);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_COUNTER), 3);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_COUNTER_VALUE), 3);
	CHECK(value_of(&fixture, 0) == -3);
	CHECK(value_of(&fixture, 1) == 0.5);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_LOG), 2);
	CHECK_INT(lost(&fixture, PROF_LOSS_RING_CORRUPT), 1);
	CHECK_INT(fixture.warnings, 0);
	fixture_done(&fixture);
}

/* Two threads in turn; then one that has begun what it does not end. */
static void test_order(void)
{
	struct fixture fixture;
	struct ring *rings[2];
	struct ring_mark *open;
	uint64_t last = 0, at;
	size_t n;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	rings[0] = claim(&fixture, getpid());
	rings[1] = claim(&fixture, OTHER_TID);
	for (uint64_t i = 0; i < 200; i++) {
		write_mark(rings[i % 3 == 0], 0, i);
		if (i % 50 == 49)
			step(&fixture);
	}
	settle(&fixture);
	CHECK_INT(fixture.parts.output.rows[PROF_TABLE_MARK], 200);
	open = ring_begin(rings[1], RING_MARK, sizeof(*open));
	write_mark(rings[0], 0, 201);
	step(&fixture);
	usleep(2000);
	step(&fixture);
	at = now();
	/* held, unless this machine was so slow that it need not be any more */
	if (at - fixture.collectors.emitted_ns < RING_BUSY_NS)
		CHECK_INT(fixture.parts.output.rows[PROF_TABLE_MARK], 200);
	usleep(RING_BUSY_NS / 1000 + 10000);
	settle(&fixture);
	CHECK_INT(fixture.parts.output.rows[PROF_TABLE_MARK], 201);
	*open = (struct ring_mark){ .id = 202 };
	ring_end(rings[1], open);
	settle(&fixture);
	finish(&fixture);
	n = rows_of(&fixture.parts, PROF_TABLE_MARK);
	CHECK_INT(n, 202);
	for (size_t i = 0; i < n; i++) {
		uint64_t time_ns = number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_TIME, i);

		CHECK(time_ns >= last);
		last = time_ns;
		if (i < 200)
			CHECK_INT(mark_id(&fixture, i), i);
	}
	CHECK_INT(lost(&fixture, PROF_LOSS_LATE), 1);
	fixture_done(&fixture);
}

/* One thread says that it is somebody else's, another that it is nobody's; a third is honest. */
static void test_tids(void)
{
	struct fixture fixture;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	write_mark(claim(&fixture, STRANGER_PID), 0, 1);
	write_mark(claim(&fixture, 12345), 0, 2);
	write_mark(claim(&fixture, OTHER_TID), 0, 3);
	settle(&fixture);
	finish(&fixture);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_MARK), 1);
	CHECK_INT(mark_id(&fixture, 0), 3);
	CHECK_INT(fixture.warnings, 2);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_METADATA), 2);
	CHECK_INT(lost(&fixture, PROF_LOSS_RING_CORRUPT), 4); /* two rings, and a record in each */
	fixture_done(&fixture);
}

/* In a ring that is full a thread goes on in a larger one, and its strings go along. */
static void test_larger_ring(void)
{
	struct fixture fixture;
	struct ring *ring;

	REQUIRE(begin(&fixture, ENGINE_POLICY_LOSSLESS));
	ring = claim(&fixture, getpid());
	write_string(ring, 1, "name", 4, 0);
	for (uint64_t i = 0; i < 3000; i++)
		write_mark(ring, 1, i);
	CHECK((uint32_t)header_of(&fixture, 32)->state == RING_OWNED);
	settle(&fixture);
	finish(&fixture);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_MARK), 3000);
	CHECK_STR(text_of(&fixture.parts,
			  number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_NAME, 2999)),
		  "name");
	CHECK_INT(lost(&fixture, PROF_LOSS_RING_CORRUPT), 0);
	fixture_done(&fixture);
}

static void test_ids(void)
{
	struct fixture fixture;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	write_mark(claim(&fixture, getpid()), 77, 1);
	settle(&fixture);
	finish(&fixture);
	CHECK_STR(text_of(&fixture.parts,
			  number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_NAME, 0)),
		  "<lost>");
	CHECK_INT(lost(&fixture, PROF_LOSS_RING_CORRUPT), 1);
	fixture_done(&fixture);
}

/* What each does to a ring that had one good mark. */
static void lie_head(struct fixture *fixture)
{
	header_of(fixture, 0)->head += 1 << 30;
}

static void lie_state(struct fixture *fixture)
{
	header_of(fixture, 0)->state = 0x1234567800000009;
}

static void lie_length(struct fixture *fixture)
{
	((struct ring_record_header *)(void *)(data_of(fixture, 0) + 48))->bytes = 0;
	header_of(fixture, 0)->head += 48;
}

static void lie_counts(struct fixture *fixture)
{
	header_of(fixture, 0)->lost[RING_LOST_FULL] = UINT64_C(1) << 60;
	header_of(fixture, 0)->attempted = UINT64_C(1) << 61;
}

static void lie_kind(struct fixture *fixture)
{
	struct ring_record_header *header = (void *)(data_of(fixture, 0) + 48);

	*header = (struct ring_record_header){ .bytes = 48, .type = RING_MARK, .time_ns = now() };
	*(struct ring_mark *)(header + 1) = (struct ring_mark){ .kind = 99 };
	header_of(fixture, 0)->attempted++;
	header_of(fixture, 0)->head += 48;
}

static void test_hostile(void)
{
	static void (*const lies[])(struct fixture *) = { lie_head, lie_state, lie_length,
							  lie_counts, lie_kind };

	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		struct fixture fixture;
		struct ring *good;

		REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
		write_mark(claim(&fixture, getpid()), 0, 1);
		good = claim(&fixture, OTHER_TID);
		settle(&fixture);
		lies[i](&fixture);
		write_mark(good, 0, 2);
		settle(&fixture);
		write_mark(good, 0, 3);
		settle(&fixture);
		CHECK_INT(fixture.warnings, 1);
		CHECK(lost(&fixture, PROF_LOSS_RING_CORRUPT) >= 1);
		CHECK(lost(&fixture, PROF_LOSS_RING_CORRUPT) <= 2);
		CHECK_INT(lost(&fixture, PROF_LOSS_RING_FULL), 0);
		finish(&fixture);
		CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_MARK), 3);
		CHECK_INT(mark_id(&fixture, 2), 3);
		fixture_done(&fixture);
	}
}

/* What was begun in the past, or is said to be, holds others no longer than what is begun now. */
static void test_past(void)
{
	struct ring_record_header *header;
	struct fixture fixture;
	struct ring *good;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	write_mark(claim(&fixture, getpid()), 0, 1);
	good = claim(&fixture, OTHER_TID);
	settle(&fixture);
	write_mark(good, 0, 2);
	header_of(&fixture, 0)->busy = 1;
	for (uint64_t i = 1; i < 100 && fixture.parts.output.rows[PROF_TABLE_MARK] <= i; i++) {
		header = (void *)(data_of(&fixture, 0) + i * 48);
		*header =
			(struct ring_record_header){ .bytes = 48, .type = RING_MARK, .time_ns = 1 };
		memset(header + 1, 0, sizeof(struct ring_mark));
		header_of(&fixture, 0)->attempted++;
		header_of(&fixture, 0)->head += 48;
		usleep(2000);
		step(&fixture);
	}
	CHECK(header_of(&fixture, 0)->head < 99 * 48);
	finish(&fixture);
	CHECK_INT(fixture.warnings, 0);
	fixture_done(&fixture);
}

/* The year 2500, and more losses than there can be. */
static void test_times(void)
{
	struct fixture fixture;
	struct ring *ring;
	struct ring_mark *mark;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	ring = claim(&fixture, getpid());
	mark = ring_begin(ring, RING_MARK, sizeof(*mark));
	*mark = (struct ring_mark){ .id = 1 };
	((struct ring_record_header *)(void *)mark - 1)->time_ns = UINT64_C(16725225600000000000);
	ring_end(ring, mark);
	fixture.shared->lost_no_ring = UINT64_C(1) << 60;
	settle(&fixture);
	write_mark(claim(&fixture, OTHER_TID), 0, 2);
	settle(&fixture);
	finish(&fixture);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_MARK), 2);
	CHECK(number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_TIME, 0) < now());
	CHECK_INT(mark_id(&fixture, 1), 2);
	CHECK_INT(lost(&fixture, PROF_LOSS_LATE), 0);
	CHECK_INT(lost(&fixture, PROF_LOSS_RING_REFUSED), 0);
	CHECK_INT(lost(&fixture, PROF_LOSS_RING_CORRUPT), 1);
	fixture_done(&fixture);
}

/* Strings without end, and counters. */
static void test_endless(void)
{
	static const char text[8000];
	struct fixture fixture;
	struct ring *ring;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	ring = claim(&fixture, getpid());
	for (uint32_t i = 1; i < 1000; i++) {
		write_counter(ring, 100000 + i, 0, i);
		if (i % 100 == 0)
			settle(&fixture);
	}
	for (uint32_t i = 1; i < 3000; i++) {
		write_string(ring, i, text, sizeof(text), 0);
		if (i % 4 == 0)
			collectors_drain(&fixture.collectors, now());
		if (i % 400 == 0)
			settle(&fixture);
	}
	settle(&fixture);
	CHECK(fixture.collectors.rows->text_bytes <= COLLECTOR_PROCESS_TEXT + 100000);
	CHECK(lost(&fixture, PROF_LOSS_RING_REFUSED) > 0);
	/* one that goes on for ever */
	for (uint32_t i = 1; i < 1000; i++) {
		write_log(ring, "0123456789012345678901234567890123456789", RING_FLAG_MORE, 1);
		if (i % 100 == 0)
			settle(&fixture);
	}
	CHECK(fixture.collectors.rows->text_bytes <= COLLECTOR_PROCESS_TEXT + 100000);
	finish(&fixture);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_COUNTER_VALUE), 999);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_COUNTER), 1);
	fixture_done(&fixture);
}

/* A string that takes another one's place takes its memory, too. */
static void test_replaced(void)
{
#if PROF_SANITIZED
	SKIP("the sanitizer has a heap of its own");
#else
	static const char text[8000];
	struct fixture fixture;
	struct ring *ring;
	size_t before;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	ring = claim(&fixture, getpid());
	write_mark(ring, 0, 1);
	settle(&fixture);
	before = mallinfo2().uordblks + mallinfo2().hblkhd;
	for (uint32_t i = 1; i < 3000; i++) {
		write_string(ring, i, text, sizeof(text), 0);
		write_string(ring, i, text, 1, 0);
		if (i % 4 == 0)
			step(&fixture);
	}
	settle(&fixture);
	CHECK_INT(lost(&fixture, PROF_LOSS_RING_REFUSED) + lost(&fixture, PROF_LOSS_RING_FULL), 0);
	CHECK(mallinfo2().uordblks + mallinfo2().hblkhd < before + 4 * sizeof(text) * 100);
	finish(&fixture);
	fixture_done(&fixture);
#endif
}

/* ---- Images, stacks and code ---- */

#define CODE UINT64_C(0x700000001000)
#define LIBRARY UINT64_C(0x700000400000)

static void write_image(struct ring *ring, uint32_t id, uint32_t path, uint64_t start)
{
	struct ring_image *image = ring_begin(ring, RING_IMAGE, sizeof(*image) + 20);

	*image = (struct ring_image){ .id = id,
				      .n_build_id_bytes = 20,
				      .start = start,
				      .end = start + 0x2000,
				      .file_offset = 0x1000,
				      .dev = 5,
				      .inode = 6,
				      .path = path };
	memset(image + 1, 0xab, 20);
	ring_end(ring, image);
}

static void write_stack(struct ring *ring, uint32_t id, const struct ring_frame *frames, uint32_t n)
{
	struct ring_stack *stack =
		ring_begin(ring, RING_STACK, sizeof(*stack) + n * sizeof(*frames));

	*stack = (struct ring_stack){ .id = id, .n_frames = n };
	memcpy(stack + 1, frames, n * sizeof(*frames));
	ring_end(ring, stack);
}

static void write_mark_at(struct ring *ring, uint32_t stack, uint64_t id)
{
	struct ring_at *at = ring_begin(ring, RING_MARK_AT, sizeof(*at) + sizeof(struct ring_mark));

	if (!at)
		return;
	*at = (struct ring_at){ .stack = stack };
	*(struct ring_mark *)(at + 1) = (struct ring_mark){ .id = id };
	ring_end(ring, at);
}

static void write_log_at(struct ring *ring, uint32_t stack, const char *text, uint16_t flags)
{
	struct ring_at *at =
		ring_begin(ring, RING_LOG_AT, sizeof(*at) + sizeof(struct ring_log) + strlen(text));
	struct ring_log *log = (struct ring_log *)(at + 1);

	*at = (struct ring_at){ .stack = stack };
	*log = (struct ring_log){ .level = 6, .part = flags, .n_bytes = (uint32_t)strlen(text) };
	memcpy(log + 1, text, strlen(text));
	ring_set_flags(at, flags);
	ring_end(ring, at);
}

static void write_jit(struct ring *ring, struct ring_jit jit)
{
	struct ring_jit *to = ring_begin(ring, RING_JIT, sizeof(*to));

	*to = jit;
	ring_end(ring, to);
}

static void map_library(struct fixture *fixture, const char *path, uint64_t inode)
{
	const struct image_key key = {
		.path = path, .path_bytes = strlen(path), .dev = 5, .inode = inode
	};
	struct process *process = tasks_process(&fixture->parts.tasks, getpid());
	const struct mapping mapping = { .start = LIBRARY,
					 .end = LIBRARY + 0x3000,
					 .file_offset = 0x1000,
					 .image = images_of_mapping(&fixture->parts.images, &key) };

	maps_insert(&process->maps, &mapping);
}

/* A column of the rows of a dictionary, in the order in which they were written. */
static uint64_t frame_number(const struct fixture *fixture, uint16_t column, size_t i)
{
	return number_of(&fixture->parts, PROF_TABLE_FRAME, column, i);
}

/* Frames in an image of the process's telling, in one that the side band knows too, and in no file. */
static void test_stacks(void)
{
	const struct ring_frame frames[] = { { LIBRARY + 0x10, 0, RING_FRAME_NO_FILE },
					     { LIBRARY + 0x10, 0, RING_FRAME_RETURN },
					     { 0x1234, 3, 1 },
					     { 0x1fff, 4, 0 } };
	struct fixture fixture;
	struct ring *ring;
	uint64_t code;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	map_library(&fixture, "/lib/known.so", 6);
	ring = claim(&fixture, getpid());
	write_string(ring, 1, "/lib/told.so", 12, 0);
	write_string(ring, 2, "/lib/known.so (deleted)", 23, 0);
	write_image(ring, 3, 1, CODE + 0x100000);
	write_image(ring, 4, 2, LIBRARY);
	write_stack(ring, 5, frames, 4);
	write_mark_at(ring, 5, 1);
	write_mark_at(ring, 5, 2);
	write_log_at(ring, 5, "one ", RING_FLAG_MORE);
	write_log(ring, "log", 0, RING_FLAG_MORE);
	/* the same address in a handler, and one that is behind the image's end */
	write_stack(ring, 6,
		    (const struct ring_frame[]){ { CODE + 0x100234, 0, 0 },
						 { CODE + 0x102000, 0, 1 } },
		    2);
	write_mark_at(ring, 6, 3);
	settle(&fixture);
	finish(&fixture);
	CHECK_INT(lost(&fixture, PROF_LOSS_RING_CORRUPT), 0);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_IMAGE), 3);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_STACK), 6);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_LOG), 1);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_STACK, 0), 4);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_STACK, 1), 4);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_STACK, 2), 6);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_LOG, PROF_LOG_STACK, 0), 4);
	/* root first */
	CHECK_INT(frame_number(&fixture, PROF_FRAME_OFFSET, 0), 0x1fff);
	CHECK_INT(frame_number(&fixture, PROF_FRAME_OFFSET, 1), 0x1234);
	CHECK_INT(frame_number(&fixture, PROF_FRAME_OFFSET, 2), 0x1010);
	CHECK_INT(frame_number(&fixture, PROF_FRAME_OFFSET, 3), LIBRARY + 0x10);
	CHECK_INT(frame_number(&fixture, PROF_FRAME_OFFSET, 4), 0x3000);
	CHECK_INT(frame_number(&fixture, PROF_FRAME_OFFSET, 5), 0x1234);
	CHECK_INT(frame_number(&fixture, PROF_FRAME_KIND, 2), PROF_FRAME_RETURN);
	CHECK_INT(frame_number(&fixture, PROF_FRAME_KIND, 3), PROF_FRAME_EXACT);
	code = frame_number(&fixture, PROF_FRAME_IMAGE, 3);
	CHECK_INT(frame_number(&fixture, PROF_FRAME_IMAGE, 0),
		  frame_number(&fixture, PROF_FRAME_IMAGE, 2));
	CHECK_INT(frame_number(&fixture, PROF_FRAME_IMAGE, 1),
		  frame_number(&fixture, PROF_FRAME_IMAGE, 4));
	CHECK(frame_number(&fixture, PROF_FRAME_IMAGE, 1) != code);
	CHECK(frame_number(&fixture, PROF_FRAME_IMAGE, 0) != code);
	fixture_done(&fixture);
}

/* A file that the side band has another one for in the same place is another image. */
static void test_other_image(void)
{
	const struct ring_frame frame = { 0x1010, 4, 0 };
	struct fixture fixture;
	struct ring *ring;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	map_library(&fixture, "/lib/known.so", 7);
	ring = claim(&fixture, getpid());
	write_string(ring, 2, "/lib/known.so", 13, 0);
	write_image(ring, 4, 2, LIBRARY);
	write_stack(ring, 5, &frame, 1);
	write_mark_at(ring, 5, 1);
	settle(&fixture);
	finish(&fixture);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_IMAGE, PROF_IMAGE_INODE, 0), 6);
	fixture_done(&fixture);
}

/* Ids of another owner, of nobody, and of frames of an image that was never told of; an id that is told anew. */
static void test_stack_ids(void)
{
	const struct ring_frame first = { CODE, 0, 0 }, second = { CODE + 8, 77, 0 };
	struct fixture fixture;
	struct ring *ring, *other;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	ring = claim(&fixture, getpid());
	other = claim(&fixture, OTHER_TID);
	write_stack(ring, 1, &first, 1);
	write_stack(ring, 0, &first, 1);
	write_stack(ring, 2, &first, 0);
	settle(&fixture);
	write_mark_at(other, 1, 1);
	settle(&fixture);
	write_mark_at(ring, 1, 2);
	write_mark_at(ring, 2, 3);
	settle(&fixture);
	output_end_epoch(&fixture.parts.output);
	write_mark_at(ring, 1, 4);
	write_stack(ring, 1, &second, 1);
	write_mark_at(ring, 1, 5);
	settle(&fixture);
	finish(&fixture);
	CHECK_INT(lost(&fixture, PROF_LOSS_RING_CORRUPT), 1);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_STACK, 0), 0);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_STACK, 1), 1);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_STACK, 2), 0);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_STACK, 3), 1);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_STACK, 4), 2);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_STACK), 3);
	CHECK_INT(frame_number(&fixture, PROF_FRAME_OFFSET, 2), CODE + 8);
	CHECK_INT(fixture.warnings, 0);
	fixture_done(&fixture);
}

static void test_code(void)
{
	struct fixture fixture;
	struct ring *ring;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	ring = claim(&fixture, getpid());
	write_string(ring, 1, "f", 1, 0);
	write_jit(ring, (struct ring_jit){ .name = 1, .address = CODE, .size = 64, .from = 9 });
	write_jit(ring,
		  (struct ring_jit){
			  .kind = RING_JIT_MOVE, .name = 77, .address = CODE + 64, .from = CODE });
	write_jit(ring, (struct ring_jit){ .kind = RING_JIT_UNLOAD, .address = CODE + 64 });
	settle(&fixture);
	write_jit(ring, (struct ring_jit){ .kind = RING_JIT_N_KINDS });
	settle(&fixture);
	CHECK_INT(fixture.warnings, 1);
	finish(&fixture);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_JIT), 3);
	CHECK_STR(text_of(&fixture.parts,
			  number_of(&fixture.parts, PROF_TABLE_JIT, PROF_JIT_NAME, 0)),
		  "f");
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_JIT, PROF_JIT_NAME, 1), 0);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_JIT, PROF_JIT_FROM, 0), 0);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_JIT, PROF_JIT_FROM, 1), CODE);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_JIT, PROF_JIT_ADDRESS, 2), CODE + 64);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_JIT, PROF_JIT_EVENT, 2), PROF_JIT_UNLOAD);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_JIT, PROF_JIT_PROCESS, 0), 1);
	fixture_done(&fixture);
}

static void lie_about_frames(struct ring *ring)
{
	write_stack(ring, 1, &(const struct ring_frame){ .kind = 4 }, 1);
}

static void lie_about_image(struct ring *ring)
{
	struct ring_image *image = ring_begin(ring, RING_IMAGE, sizeof(*image));

	*image = (struct ring_image){ .id = 1, .start = CODE, .end = CODE };
	ring_end(ring, image);
}

static void test_lying_stacks(void)
{
	static void (*const lies[])(struct ring *) = { lie_about_frames, lie_about_image };

	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		struct fixture fixture;

		REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
		lies[i](claim(&fixture, getpid()));
		settle(&fixture);
		CHECK_INT(fixture.warnings, 1);
		finish(&fixture);
		fixture_done(&fixture);
	}
}

/* Stacks and images without end. */
static void test_endless_stacks(void)
{
	static struct ring_frame frames[1000];
	struct fixture fixture;
	struct ring *ring;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	ring = ring_claim(fixture.arena, (uint32_t)getpid(), 64u << 10, 0);
	write_string(ring, 1, "/x", 2, 0);
	for (uint32_t i = 1; i < 3000; i++) {
		write_image(ring, i, 1, CODE + i * 0x4000);
		write_string(ring, 1, &i, sizeof(i), 0);
		write_stack(ring, i, frames, 900);
		collectors_drain(&fixture.collectors, now());
		if (i % 100 == 0)
			settle(&fixture);
	}
	settle(&fixture);
	CHECK(fixture.collectors.rows->text_bytes <= COLLECTOR_PROCESS_TEXT);
	CHECK(fixture.collectors.rows->n_images <= COLLECTOR_MAX_IMAGES);
	CHECK(lost(&fixture, PROF_LOSS_RING_REFUSED) > 3000);
	finish(&fixture);
	fixture_done(&fixture);
}

static void test_conservation(void)
{
	struct fixture fixture;
	struct ring *ring;
	uint64_t written = 0;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DROP));
	ring = claim(&fixture, getpid());
	for (uint64_t i = 0; i < 300000; i++) {
		written += write_mark(ring, 0, i);
		if (i % 100000 == 0)
			step(&fixture);
	}
	ring_arena_count_lost(fixture.arena);
	ring_release(ring);
	settle(&fixture);
	/* the same ring, another thread */
	ring = claim(&fixture, OTHER_TID);
	written += write_mark(ring, 0, 1);
	settle(&fixture);
	finish(&fixture);
	CHECK(written < 300001);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_MARK), written);
	CHECK_INT(lost(&fixture, PROF_LOSS_RING_FULL), 300001 - written);
	CHECK_INT(lost(&fixture, PROF_LOSS_RING_REFUSED), 1);
	CHECK(number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_THREAD, written - 1) !=
	      number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_THREAD, 0));
	fixture_done(&fixture);
}

/* It is dead before anything was drained; what it had begun is counted. */
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
	CHECK_INT(lost(&fixture, PROF_LOSS_RING_REENTRANT), 1);
	fixture_done(&fixture);
}

/* The session's end: who lives is told, and has all its rows. */
static void write_alloc(struct ring *ring, uint64_t address, uint64_t size, uint32_t stack)
{
	struct ring_alloc *alloc = ring_begin(ring, RING_ALLOC, sizeof(*alloc));

	*alloc = (struct ring_alloc){ .address = address, .size = size, .stack = stack };
	ring_end(ring, alloc);
}

static void write_free(struct ring *ring, uint64_t address)
{
	struct ring_free_block *freed = ring_begin(ring, RING_FREE_BLOCK, sizeof(*freed));

	*freed = (struct ring_free_block){ .address = address };
	ring_end(ring, freed);
}

static void write_calls(struct ring *ring, uint32_t first, uint32_t parent, uint64_t address)
{
	struct ring_calls *calls =
		ring_begin(ring, RING_CALLS, sizeof(*calls) + sizeof(struct ring_frame));

	*calls = (struct ring_calls){ .first = first, .parent = parent, .n_frames = 1 };
	*(struct ring_frame *)(calls + 1) = (struct ring_frame){ address, 0, RING_FRAME_NO_FILE };
	ring_end(ring, calls);
}

static uint64_t heap_number(const struct fixture *fixture, uint16_t column, size_t i)
{
	return number_of(&fixture->parts, PROF_TABLE_HEAP, column, i);
}

/* What one thread allocates and another one frees; what lives when the process ends, or the session. */
static void check_allocations(bool dies)
{
	struct fixture fixture;
	struct ring *ring, *other;
	uint64_t begin_ns = now();

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	ring = claim(&fixture, getpid());
	other = claim(&fixture, OTHER_TID);
	write_calls(ring, 1, 0, CODE);
	write_calls(ring, 2, 1, CODE + 8);
	for (uint64_t i = 1; i <= 100; i++) {
		write_alloc(ring, i * 16, i, 2);
		/* so that the clock has moved on */
		usleep(1);
		write_free(other, i * 16);
	}
	write_alloc(ring, 16, 1000, 2);
	settle(&fixture);
	write_alloc(other, 32, 2000, 0);
	if (dies) {
		CHECK(collectors_wake(&fixture.collectors, fixture.pidfd));
		settle(&fixture);
		CHECK_INT(fixture.collectors.peers->len, 0);
	}
	/* producers stop, and no time is too short */
	for (int i = 0; i < 1000 && collectors_finish_some(&fixture.collectors, 0) > 0; i++)
		usleep(1000);
	CHECK_INT(collectors_finish_some(&fixture.collectors, 0), 0);
	CHECK(dies || fixture.shared->ended == 1);
	finish(&fixture);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_ALLOC), 102);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_FREE), 100);
	for (size_t i = 0; i < 100; i++)
		CHECK_INT(number_of(&fixture.parts, PROF_TABLE_FREE, PROF_FREE_BLOCK, i), i + 1);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_STACK), 2);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_HEAP), 2);
	CHECK_INT(heap_number(&fixture, PROF_HEAP_EVENT, 1), PROF_HEAP_END);
	CHECK_INT(heap_number(&fixture, PROF_HEAP_LIVE_BYTES, 1), 3000);
	CHECK(heap_number(&fixture, PROF_HEAP_TIME, 0) > begin_ns);
	CHECK(heap_number(&fixture, PROF_HEAP_TIME, 1) <= now());
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_LIVE), 2);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_LIVE, PROF_LIVE_BLOCK, 1), 102);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_LIVE, PROF_LIVE_STACK, 0), 2);
	CHECK_INT(lost(&fixture, PROF_LOSS_LATE), 0);
	CHECK_INT(fixture.warnings, 0);
	fixture_done(&fixture);
}

static void test_allocations(void)
{
	check_allocations(false);
	check_allocations(true);
}

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

/* Requests without end, of one who reads no answers. */
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

/* Two processes, one of which has all of its rings; NULL: it could not be. */
static struct ring_arena *begin_greedy(struct fixture *fixture, struct ring **ret_rings, size_t n)
{
	struct ring_arena *greedy;

	if (!begin(fixture, ENGINE_POLICY_DROP))
		return NULL;
	greedy = steal_ptr(&fixture->arena);
	for (size_t i = 0; i < n; i++)
		ret_rings[i] = ring_claim(greedy, OTHER_TID, 0, 0);
	tasks_filter(&fixture->parts.tasks, (const int32_t[]){ getpid(), STRANGER_PID }, 2, true);
	connect_as(fixture, STRANGER_PID, 0);
	step_until_answer(fixture);
	return take_arena(fixture) && ret_rings[n - 1] ? greedy : NULL;
}

/* There is no time for what one has written, and there is for the other one. */
static void test_fair_end(void)
{
	const size_t n_marks = 100;
	struct fixture fixture;
	struct ring_arena *greedy;
	struct ring *rings[N_RINGS], *modest;
	uint64_t n_greedy = 0;

	REQUIRE(greedy = begin_greedy(&fixture, rings, ARRAY_SIZE(rings)));
	modest = claim(&fixture, STRANGER_PID);
	for (size_t i = 0; i < ARRAY_SIZE(rings); i++)
		for (write_string(rings[i], 1, "name", 4, 0); write_mark(rings[i], 0, 1);)
			n_greedy++;
	for (size_t i = 0; i < n_marks; i++)
		write_mark(modest, 0, 2);
	collectors_finish(&fixture.collectors, 0);
	loss_flush(&fixture.parts.losses, &fixture.parts.output);
	parts_finish(&fixture.parts);
	CHECK(lost(&fixture, PROF_LOSS_WRITER_BACKLOG) > 100000);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_MARK) +
			  lost(&fixture, PROF_LOSS_WRITER_BACKLOG),
		  n_greedy + n_marks);
	CHECK_INT(mark_id(&fixture, rows_of(&fixture.parts, PROF_TABLE_MARK) - n_marks), 2);
	ring_arena_unmap(greedy);
	fixture_done(&fixture);
}

/* One writes more than can be queued, and the other one loses nothing by that. */
static void test_fair(void)
{
	const size_t each = 1300, n_turns = 100;
	struct fixture fixture;
	struct ring_arena *greedy;
	struct ring *rings[N_RINGS], *modest;
	uint64_t most = 0;

	REQUIRE(greedy = begin_greedy(&fixture, rings, ARRAY_SIZE(rings)));
	modest = claim(&fixture, STRANGER_PID);
	for (size_t turn = 0; turn < n_turns; turn++) {
		for (size_t i = 0; i < ARRAY_SIZE(rings); i++)
			while (write_mark(rings[i], 0, 1))
				;
		for (size_t i = 0; i < each; i++)
			CHECK(write_mark(modest, 0, 1));
		collectors_drain(&fixture.collectors, now());
		most = MAX_OF(most, fixture.collectors.queued_bytes);
	}
	CHECK(most > COLLECTORS_MAX_QUEUED && most < 2 * COLLECTORS_MAX_QUEUED);
	/* nor does it wait for what is not read */
	usleep(RING_BUSY_NS / 1000);
	step(&fixture);
	CHECK_INT(fixture.collectors.queued_bytes, 0);
	finish(&fixture);
	CHECK(rows_of(&fixture.parts, PROF_TABLE_MARK) > n_turns * each);
	ring_arena_unmap(greedy);
	fixture_done(&fixture);
}

static bool has_rung(struct bells *bells, int timeout_ms)
{
	for (int i = 0; i < timeout_ms; i++) {
		struct timespec pause = { .tv_nsec = 1000000 };
		uint64_t count;

		if (read(bells_fd(bells), &count, sizeof(count)) > 0)
			return true;
		nanosleep(&pause, NULL);
	}
	return false;
}

/* A ring that fills wakes the engine; one that rings for nothing is not listened to for long. */
static void test_bells(void)
{
	struct bells *bells = bells_new(NULL);
	unsigned int rung = 0;
	struct fixture fixture;
	struct ring *ring;

	REQUIRE(bells != NULL);
	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	fixture.collectors.options.bells = bells;
	ring = claim(&fixture, getpid());
	step(&fixture);
	collectors_sleep(&fixture.collectors, now(), 0);
	CHECK(!has_rung(bells, 50));
	for (unsigned int i = 0; i < 600; i++)
		write_mark(ring, 0, i);
	CHECK(has_rung(bells, 5000));
	usleep(2000);
	step(&fixture);
	collectors_sleep(&fixture.collectors, now(), 0);
	for (unsigned int i = 0; i < 100; i++) {
		__atomic_fetch_add(&fixture.shared->doorbell, 1, __ATOMIC_SEQ_CST);
		syscall(SYS_futex, &fixture.shared->doorbell, FUTEX_WAKE, 1, NULL, NULL, 0);
		if (!has_rung(bells, i < 5 ? 5000 : 20))
			break;
		rung++;
		usleep(2000);
		collectors_wake(&fixture.collectors, bells_fd(bells));
		step(&fixture);
		collectors_sleep(&fixture.collectors, now(), 0);
	}
	CHECK(rung >= 5);
	CHECK(rung < 40);
	finish(&fixture);
	fixture_done(&fixture);
	bells_free(bells);
}

/* Until all is due again, if the session would let it be for longer than ever. */
static uint64_t sleep_ns(struct fixture *fixture)
{
	uint64_t now_ns = now();

	return collectors_sleep(&fixture->collectors, now_ns, UINT64_C(5000000000)) -
	       MIN_OF(now_ns, fixture->collectors.drained_ns);
}

/* Where nothing waits they may be looked at seldom, as whoever fills a ring can be heard; and no more often than that. */
static void test_quiet(void)
{
	const uint64_t at_most_ns = UINT64_C(1000000000); /* ten times as long as ever else */
	struct bells *bells = bells_new(NULL);
	struct fixture fixture;
	struct ring *ring;

	REQUIRE(bells != NULL);
	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	ring = claim(&fixture, getpid());
	step(&fixture);
	/* there are no bells */
	CHECK(sleep_ns(&fixture) < at_most_ns);
	fixture.collectors.options.bells = bells;
	sleep_ns(&fixture);
	step(&fixture);
	CHECK(sleep_ns(&fixture) > at_most_ns);
	CHECK(collectors_are_quiet(&fixture.collectors, now()));
	/* what is in the ring is not worth a look, what is taken is worth a row soon */
	write_mark(ring, 0, 1);
	CHECK(sleep_ns(&fixture) > at_most_ns);
	collectors_drain(&fixture.collectors, now());
	CHECK(fixture.collectors.queued_bytes > 0);
	CHECK(sleep_ns(&fixture) < at_most_ns);
	usleep(2000);
	step(&fixture);
	CHECK(sleep_ns(&fixture) > at_most_ns);
	/* who rings for nothing is looked at by the clock */
	fixture.collectors.rung = true;
	CHECK(!collectors_are_quiet(&fixture.collectors, now()));
	finish(&fixture);
	fixture_done(&fixture);
	bells_free(bells);
}

/* Who registers and executes another program at once, before the side band is looked at: it was the one before. */
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

/* Who had no room for what it got, and hung up, is no more than who never came. */
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
	RUN(test_rows);
	RUN(test_order);
	RUN(test_tids);
	RUN(test_larger_ring);
	RUN(test_ids);
	RUN(test_hostile);
	RUN(test_past);
	RUN(test_times);
	RUN(test_endless);
	RUN(test_replaced);
	RUN(test_stacks);
	RUN(test_other_image);
	RUN(test_stack_ids);
	RUN(test_code);
	RUN(test_lying_stacks);
	RUN(test_endless_stacks);
	RUN(test_conservation);
	RUN(test_death);
	RUN(test_session_end);
	RUN(test_allocations);
	RUN(test_floods);
	RUN(test_fair);
	RUN(test_fair_end);
	RUN(test_executed_at_once);
	RUN(test_given_up);
	RUN(test_bells);
	RUN(test_quiet);
	return test_end();
}
