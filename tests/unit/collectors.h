/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Collectors fixture - registers this process with the engine's collectors, and writes to its rings
 *
 *     struct fixture fixture;
 *     REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
 *     write_mark(claim(&fixture, getpid()), 0, 1);
 *     settle(&fixture);
 *     finish(&fixture);
 *     CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_MARK), 1);
 *     fixture_done(&fixture);
 */
#pragma once

#include "daemon/engine/peers/collectors.h"
#include "libcollector/ring/ring.h"
#include "tests/unit/engine.h"

#include <poll.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <time.h>

#define N_RINGS 45 /* number of rings in the first arena */
#define OTHER_TID 2000000001
#define STRANGER_PID 2000000002

struct fixture {
	struct parts parts;
	struct collectors collectors;
	int socket; /* the process's end of the connection */
	int pidfd;  /* number of the pidfd, which the engine owns */
	struct ring_arena *arena;
	struct ring_arena_header *shared;
	unsigned int warnings;
};

static inline uint64_t now(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return (uint64_t)at.tv_sec * 1000000000 + (uint64_t)at.tv_nsec;
}

static inline void on_warning(const char *code, const char *text, void *data)
{
	((struct fixture *)data)->warnings++;
}

static inline void fixture_init(struct fixture *fixture, enum engine_policy policy)
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

static inline void fixture_done(struct fixture *fixture)
{
	collectors_done(&fixture->collectors);
	parts_done(&fixture->parts);
	ring_arena_unmap(fixture->arena);
	if (fixture->socket >= 0)
		close(fixture->socket);
}

static inline void step(struct fixture *fixture)
{
	parts_step(&fixture->parts, &fixture->collectors, now());
}

/* Runs enough steps for all published records to become rows. */
static inline void settle(struct fixture *fixture)
{
	for (int i = 0; i < 3; i++) {
		usleep(1000);
		step(fixture);
	}
}

/* Steps until there is an answer or the connection is closed. This may take many steps, because the
 * engine creates arenas in at most a third of its time. */
static inline void step_until_answer(struct fixture *fixture)
{
	struct pollfd item = { .fd = fixture->socket, .events = POLLIN };

	for (int i = 0; i < 20000 && poll(&item, 1, 1) == 0; i++)
		step(fixture);
}

static inline void finish(struct fixture *fixture)
{
	parts_finish_collectors(&fixture->parts, &fixture->collectors);
}

static inline void connect_as(struct fixture *fixture, int32_t pid, uint32_t wants)
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

/* Returns the status of the answer; -1: no answer. *ret_fd: the answer's descriptor, or -1. */
static inline int receive(struct fixture *fixture, int *ret_fd)
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

static inline bool take_arena(struct fixture *fixture)
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
	ring_arena_join(fixture->arena);
	ring_arena_range(fixture->arena, &shared, &bytes);
	fixture->shared = shared;
	return true;
}

static inline bool begin(struct fixture *fixture, enum engine_policy policy)
{
	fixture_init(fixture, policy);
	connect_as(fixture, getpid(), 0);
	step_until_answer(fixture);
	return take_arena(fixture);
}

static inline struct ring *claim(struct fixture *fixture, uint32_t tid)
{
	return ring_claim(fixture->arena, tid, 0, 0);
}

/* Returns the header of the arena's i-th ring, in this process's mapping. */
static inline struct ring_header *header_of(const struct fixture *fixture, size_t i)
{
	const struct ring_place *places =
		(const void *)((const char *)fixture->shared + fixture->shared->directory_offset);

	return (void *)((char *)fixture->shared + places[i].header_offset);
}

static inline void write_string(struct ring *ring, uint32_t id, const void *text, uint32_t n,
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

static inline bool write_mark(struct ring *ring, uint32_t name, uint64_t id)
{
	struct ring_mark *mark = ring_begin(ring, RING_MARK, sizeof(*mark));

	if (!mark)
		return false;
	*mark = (struct ring_mark){ .name = name, .id = id };
	ring_end(ring, mark);
	return true;
}

static inline void write_log(struct ring *ring, const char *text, uint16_t flags, uint32_t part)
{
	uint32_t n = (uint32_t)strlen(text);
	struct ring_log *log = ring_begin(ring, RING_LOG, sizeof(*log) + n);

	*log = (struct ring_log){ .level = 6, .part = part, .n_bytes = n };
	memcpy(log + 1, text, n);
	ring_set_flags(log, flags);
	ring_end(ring, log);
}

static inline uint64_t mark_id(const struct fixture *fixture, size_t i)
{
	return number_of(&fixture->parts, PROF_TABLE_MARK, PROF_MARK_ID, i);
}
