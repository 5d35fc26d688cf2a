/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of the engine's half of sysprof's protocol (sysprof-frames.c, sysprof-ring.c,
 * sysprof-peer.c and their use in collectors.c): this process sends requests, writes frames like
 * the library, and lies. The library itself is tested in test_sysprof.py.
 */
#include "daemon/engine/peers/collectors.h"
#include "tests/unit/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <time.h>

#define STRANGER_PID 2000000002
#define OTHER_PID 2000000003

enum { MAP = 3, SAMPLE = 2, COUNTERS = 8, VALUES = 9, MARK = 10, LOG = 12, END = 0xff };

struct fixture {
	struct parts parts;
	struct collectors collectors;
	int socket; /* for the answers to the last request */
	unsigned int warnings;
};

/* A ring, mapped as by the library, but without the second mapping of the body. */
struct writer_ring {
	uint32_t *words; /* head, tail, start of the body, its size */
	uint8_t *body;
	size_t bytes;
	int fd;
};

struct frame {
	_Alignas(8) uint8_t bytes[4096];
	size_t n;
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

static void fixture_init(struct fixture *fixture)
{
	*fixture = (struct fixture){ .socket = -1 };
	parts_init(&fixture->parts);
	tasks_filter(&fixture->parts.tasks, (const int32_t[]){ getpid(), OTHER_PID }, 2, true);
	tasks_found(&fixture->parts.tasks, getpid(), getpid(), 1);
	tasks_found(&fixture->parts.tasks, OTHER_PID, OTHER_PID, 1);
	tasks_found(&fixture->parts.tasks, STRANGER_PID, STRANGER_PID, 1);
	collectors_init(&fixture->collectors, &(struct collectors_options){
						      .output = &fixture->parts.output,
						      .tasks = &fixture->parts.tasks,
						      .losses = &fixture->parts.losses,
						      .epoll_fd = -1,
						      .warn = on_warning,
						      .data = fixture,
					      });
}

static void fixture_done(struct fixture *fixture)
{
	collectors_done(&fixture->collectors);
	parts_done(&fixture->parts);
	close(fixture->socket);
}

static void step(struct fixture *fixture)
{
	parts_step(&fixture->parts, &fixture->collectors, now());
}

static void finish(struct fixture *fixture)
{
	parts_finish_collectors(&fixture->parts, &fixture->collectors);
}

/* Sends a request in the form in which the broker forwards it. */
static void ask_as(struct fixture *fixture, int32_t pid)
{
	const struct message_peer message = { .pid = pid, .protocol = PEER_SYSPROF };
	int sockets[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
		abort();
	if (fixture->socket >= 0)
		close(fixture->socket);
	fixture->socket = sockets[0];
	collectors_add_peer(&fixture->collectors, &message, sockets[1], pidfd_open(getpid(), 0),
			    now());
}

/* Requests a ring for another thread of this process. The answer comes on the same socket. */
static void ask_again(struct fixture *fixture)
{
	const struct message_peer message = { .pid = getpid(), .protocol = PEER_SYSPROF };

	collectors_add_peer(&fixture->collectors, &message, dup(fixture->socket), -1, now());
}

/* Takes the next answer. Returns false if it has no ring. */
static bool take_ring(struct fixture *fixture, struct writer_ring *ret_ring)
{
	struct pollfd item = { .fd = fixture->socket, .events = POLLIN };
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	char byte;
	struct iovec part = { &byte, 1 };
	struct msghdr header = { .msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control) };
	off_t bytes;

	for (int i = 0; i < 20000 && poll(&item, 1, 1) == 0; i++)
		step(fixture);
	*ret_ring = (struct writer_ring){ .fd = -1 };
	if (recvmsg(fixture->socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1 ||
	    !CMSG_FIRSTHDR(&header))
		return false;
	memcpy(&ret_ring->fd, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof(int));
	bytes = lseek(ret_ring->fd, 0, SEEK_END);
	ret_ring->bytes = (size_t)bytes;
	ret_ring->words =
		mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ret_ring->fd, 0);
	if (ret_ring->words == MAP_FAILED)
		abort();
	ret_ring->body = (uint8_t *)ret_ring->words + ret_ring->words[2];
	return true;
}

static void ring_done(struct writer_ring *ring)
{
	munmap(ring->words, ring->bytes);
	close(ring->fd);
}

static bool begin(struct fixture *fixture, struct writer_ring *ret_ring)
{
	fixture_init(fixture);
	ask_as(fixture, getpid());
	return take_ring(fixture, ret_ring);
}

/* ---- Frames ---------------------------------------------------------------------------------- */

static void add(struct frame *frame, const void *data, size_t n)
{
	memcpy(frame->bytes + frame->n, data, n);
	frame->n += n;
}

static void add_text(struct frame *frame, const char *text, size_t width)
{
	memset(frame->bytes + frame->n, 0, width);
	memcpy(frame->bytes + frame->n, text, MIN_OF(strlen(text), width));
	frame->n += width;
}

static void add_word(struct frame *frame, uint64_t value)
{
	add(frame, &value, sizeof(value));
}

static struct frame frame_begin(uint8_t type, int32_t pid, uint64_t time_ns)
{
	struct frame frame = { .n = 0 };

	add(&frame, (const uint8_t[4]){ 0 }, 4);
	add(&frame, &pid, sizeof(pid));
	add_word(&frame, time_ns);
	add_word(&frame, type);
	return frame;
}

static void frame_end(struct frame *frame)
{
	uint16_t n;

	while (frame->n % 8)
		add(frame, "", 1);
	n = (uint16_t)frame->n;
	memcpy(frame->bytes, &n, sizeof(n));
}

static struct frame mark_frame(int32_t pid, uint64_t time_ns, uint64_t duration_ns,
			       const char *name, const char *message)
{
	struct frame frame = frame_begin(MARK, pid, time_ns);

	add_word(&frame, duration_ns);
	add_text(&frame, "group", 24);
	add_text(&frame, name, 40);
	add_text(&frame, message, strlen(message) + 1);
	frame_end(&frame);
	return frame;
}

/* Writes a frame, which may wrap around the end of the body. (The library maps the body twice for
 * this.) */
static void put_frame(struct writer_ring *ring, const struct frame *frame)
{
	uint32_t size = ring->words[3], tail = ring->words[1];

	for (size_t i = 0; i < frame->n; i++)
		ring->body[(tail + i) % size] = frame->bytes[i];
	__atomic_store_n(&ring->words[1], (uint32_t)((tail + frame->n) % size), __ATOMIC_SEQ_CST);
}

static void put_mark(struct writer_ring *ring, int32_t pid, const char *name)
{
	struct frame frame = mark_frame(pid, now(), 0, name, "");

	put_frame(ring, &frame);
}

static const char *mark_name(const struct fixture *fixture, size_t i)
{
	return text_of(&fixture->parts,
		       number_of(&fixture->parts, PROF_TABLE_MARK, PROF_MARK_NAME, i));
}

/* ---- Cases ----------------------------------------------------------------------------------- */

static void test_ring(void)
{
	struct fixture fixture;
	struct writer_ring ring;

	REQUIRE(begin(&fixture, &ring));
	CHECK_INT(ring.words[0], 0);
	CHECK_INT(ring.words[1], 0);
	CHECK_INT(ring.words[2], sysconf(_SC_PAGESIZE));
	CHECK_INT(ring.words[2] + ring.words[3], ring.bytes);
	CHECK_INT(ftruncate(ring.fd, 4096), -1);
	CHECK_INT(ftruncate(ring.fd, (off_t)ring.bytes * 2), -1);
	CHECK_INT(fcntl(ring.fd, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
		  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	finish(&fixture);
	ring_done(&ring);
	fixture_done(&fixture);
}

static void test_marks(void)
{
	uint64_t start = now();
	struct fixture fixture;
	struct writer_ring ring;
	struct frame span, micro;

	REQUIRE(begin(&fixture, &ring));
	span = mark_frame(getpid(), start, now() - start, "span", "what it is about");
	put_frame(&ring, &span);
	put_mark(&ring, getpid(), "a name that takes all forty of the bytes");
	micro = mark_frame(getpid(), start / 1000, start - start / 1000, "begun in microseconds",
			   "");
	put_frame(&ring, &micro);
	finish(&fixture);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_MARK), 3);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_KIND, 0),
		  PROF_MARK_COMPLETE);
	/* the time of the row is that of the mark's end */
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_TIME, 0) -
			  number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_DURATION, 0),
		  start);
	CHECK_STR(mark_name(&fixture, 0), "span");
	CHECK_STR(mark_name(&fixture, 1), "a name that takes all forty of the bytes");
	for (size_t i = 1; i < 3; i++) {
		CHECK_INT(number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_KIND, i),
			  PROF_MARK_INSTANT);
		CHECK_INT(number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_DURATION, i), 0);
	}
	ring_done(&ring);
	fixture_done(&fixture);
}

/* Uses more names than there are slots, in rotation. No name is confused with another. */
static void test_names(void)
{
	struct fixture fixture;
	struct writer_ring ring;
	char name[16];
	unsigned int wrong = 0;

	REQUIRE(begin(&fixture, &ring));
	for (unsigned int i = 0; i < 2000; i++) {
		snprintf(name, sizeof(name), "%u", i % 1000);
		put_mark(&ring, getpid(), name);
	}
	finish(&fixture);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_MARK), 2000);
	for (unsigned int i = 0; i < 2000; i += 7) {
		snprintf(name, sizeof(name), "%u", i % 1000);
		wrong += strcmp(mark_name(&fixture, i), name) != 0;
	}
	CHECK_INT(wrong, 0);
	ring_done(&ring);
	fixture_done(&fixture);
}

/* Frames claim any times. No row's time is before that of the previous row or in the future, and no
 * duration exceeds the row's time. */
static void test_times(void)
{
	static const struct {
		uint64_t time_ns, duration_ns;
	} odd[] = {
		{ 0, 0 },          { UINT64_MAX, 0 },          { INT64_MAX, INT64_MAX },
		{ 1, UINT64_MAX }, { 1, INT64_MAX },           { UINT64_C(1) << 63, 1 },
		{ 0, 1 },          { 1900000000000000000, 5 },
	};
	struct fixture fixture;
	struct writer_ring ring;
	uint64_t before = 0;

	REQUIRE(begin(&fixture, &ring));
	for (size_t i = 0; i < ARRAY_SIZE(odd); i++) {
		struct frame frame =
			mark_frame(getpid(), odd[i].time_ns, odd[i].duration_ns, "odd", "");

		put_frame(&ring, &frame);
	}
	finish(&fixture);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_MARK), ARRAY_SIZE(odd));
	for (size_t i = 0; i < ARRAY_SIZE(odd); i++) {
		uint64_t time_ns = number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_TIME, i);

		CHECK(time_ns >= before && time_ns <= now());
		CHECK(number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_DURATION, i) <= time_ns);
		before = time_ns;
	}
	ring_done(&ring);
	fixture_done(&fixture);
}

static void put_counter(struct writer_ring *ring, const char *name, uint32_t id, uint8_t type)
{
	struct frame frame = frame_begin(COUNTERS, getpid(), now());

	add_word(&frame, 1);
	add_text(&frame, "group", 32);
	add_text(&frame, name, 32);
	add_text(&frame, "what it counts", 52);
	id = (id & 0xffffff) | (uint32_t)type << 24;
	add(&frame, &id, sizeof(id));
	add_word(&frame, 77);
	frame_end(&frame);
	put_frame(ring, &frame);
}

static void put_value(struct writer_ring *ring, uint32_t id, uint64_t value)
{
	struct frame frame = frame_begin(VALUES, getpid(), now());
	const uint32_t ids[8] = { 0, id };
	const uint64_t values[8] = { 99, value };

	add_word(&frame, 1);
	add(&frame, ids, sizeof(ids));
	add(&frame, values, sizeof(values));
	frame_end(&frame);
	put_frame(ring, &frame);
}

static double value_at(const struct fixture *fixture, size_t i)
{
	uint64_t bits =
		number_of(&fixture->parts, PROF_TABLE_COUNTER_VALUE, PROF_COUNTER_VALUE_VALUE, i);
	double value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static uint64_t counter_at(const struct fixture *fixture, size_t i)
{
	return number_of(&fixture->parts, PROF_TABLE_COUNTER_VALUE, PROF_COUNTER_VALUE_COUNTER, i);
}

/* One thread may define a counter and another one set it. If two threads define the same number,
 * each uses its own definition. */
static void test_counters(void)
{
	struct fixture fixture;
	struct writer_ring first, second;
	double half = 0.5;
	uint64_t bits;

	memcpy(&bits, &half, sizeof(bits));
	REQUIRE(begin(&fixture, &first));
	ask_again(&fixture);
	REQUIRE(take_ring(&fixture, &second));
	put_counter(&first, "whole", 5, 0);
	put_counter(&first, "real", 6, 1);
	put_value(&first, 5, (uint64_t)-3);
	put_value(&first, 6, bits);
	put_value(&first, 7, 1);
	step(&fixture);
	put_value(&second, 5, 11);
	put_counter(&second, "another", 6, 0);
	put_value(&second, 6, 12);
	put_value(&first, 6, bits);
	finish(&fixture);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_COUNTER), 3);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_COUNTER_VALUE), 5);
	CHECK(value_at(&fixture, 0) == -3.0);
	CHECK(value_at(&fixture, 1) == 0.5);
	CHECK(value_at(&fixture, 2) == 11.0);
	CHECK(value_at(&fixture, 3) == 12.0);
	CHECK(value_at(&fixture, 4) == 0.5);
	CHECK_INT(counter_at(&fixture, 2), counter_at(&fixture, 0));
	CHECK_INT(counter_at(&fixture, 4), counter_at(&fixture, 1));
	CHECK(counter_at(&fixture, 3) != counter_at(&fixture, 1));
	/* a value with an undefined id */
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_REFUSED), 1);
	ring_done(&first);
	ring_done(&second);
	fixture_done(&fixture);
}

/* Newer libraries number counters from (pid << 16) on, but a definition stores only 24 bits of a
 * number. */
static void test_wide_counters(void)
{
	static const uint32_t numbers[] = { 0x16ce0000, 0x16000000, 0xce0001 };
	struct fixture fixture;
	struct writer_ring ring;

	REQUIRE(begin(&fixture, &ring));
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		put_counter(&ring, "counter", numbers[i], 0);
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		put_value(&ring, numbers[i], i);
	finish(&fixture);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_COUNTER_VALUE), ARRAY_SIZE(numbers));
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_REFUSED), 0);
	ring_done(&ring);
	fixture_done(&fixture);
}

/* A frame type without a table is counted as lost; a type that duplicates the side band is not. A
 * short frame loses only itself. */
static void test_refused(void)
{
	static const uint8_t types[] = { SAMPLE, 7, 11, 13, 14, 15, 16, 17, 18, 200 };
	struct fixture fixture;
	struct writer_ring ring;
	struct frame frame;

	REQUIRE(begin(&fixture, &ring));
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		frame = frame_begin(types[i], getpid(), now());
		frame_end(&frame);
		put_frame(&ring, &frame);
	}
	frame = frame_begin(MAP, getpid(), now());
	frame_end(&frame);
	put_frame(&ring, &frame);
	frame = frame_begin(LOG, getpid(), now());
	add_word(&frame, 1u << 3);
	add_text(&frame, "domain", 32);
	add_text(&frame, "a line", 7);
	frame_end(&frame);
	put_frame(&ring, &frame);
	finish(&fixture);
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_REFUSED), ARRAY_SIZE(types));
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_LOG), 1);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_LOG, PROF_LOG_LEVEL, 0), 4);
	ring_done(&ring);
	fixture_done(&fixture);
}

static void test_short(void)
{
	static const uint8_t types[] = { 0, COUNTERS, VALUES, MARK, LOG };
	struct fixture fixture;
	struct writer_ring ring;

	REQUIRE(begin(&fixture, &ring));
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		struct frame frame = frame_begin(types[i], getpid(), now());

		frame_end(&frame);
		put_frame(&ring, &frame);
	}
	for (uint8_t type = COUNTERS; type <= VALUES; type++) {
		struct frame frame = frame_begin(type, getpid(), now());

		add_word(&frame, 0xffff);
		frame_end(&frame);
		put_frame(&ring, &frame);
	}
	put_mark(&ring, getpid(), "behind");
	finish(&fixture);
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_CORRUPT), ARRAY_SIZE(types) + 2);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_MARK), 1);
	ring_done(&ring);
	fixture_done(&fixture);
}

/* If a length or position is impossible, pending data is dropped and later frames are read. After
 * too many impossible values, the ring is abandoned. */
static void test_hostile(void)
{
	static const uint16_t lengths[] = { 0, 8, 23, 25, 4096, 65528 };
	struct fixture fixture;
	struct writer_ring ring;

	REQUIRE(begin(&fixture, &ring));
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		struct frame frame = mark_frame(getpid(), now(), 0, "bad", "");

		memcpy(frame.bytes, &lengths[i], sizeof(lengths[i]));
		put_frame(&ring, &frame);
		step(&fixture);
		put_mark(&ring, getpid(), "good");
		step(&fixture);
	}
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_CORRUPT), ARRAY_SIZE(lengths));
	CHECK_INT(fixture.warnings, 0);
	for (size_t i = 0; i < 100; i++) {
		const uint32_t tails[] = { 4, ring.words[3], UINT32_MAX };

		ring.words[1] = tails[i % ARRAY_SIZE(tails)];
		step(&fixture);
	}
	CHECK_INT(fixture.warnings, 1);
	finish(&fixture);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_MARK), ARRAY_SIZE(lengths));
	ring_done(&ring);
	fixture_done(&fixture);
}

/* Two processes write to one ring: the position goes back, or forward over unwritten bytes. No
 * frame is read twice. */
static void test_back(void)
{
	struct fixture fixture;
	struct writer_ring ring;

	REQUIRE(begin(&fixture, &ring));
	for (int i = 0; i < 10; i++)
		put_mark(&ring, getpid(), "once");
	step(&fixture);
	ring.words[1] -= 104 * 3;
	step(&fixture);
	ring.words[1] += 104 * 7;
	step(&fixture);
	put_mark(&ring, getpid(), "again");
	finish(&fixture);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_MARK), 11);
	CHECK(losses_of(&fixture.parts, PROF_LOSS_RING_CORRUPT) >= 2);
	ring_done(&ring);
	fixture_done(&fixture);
}

static void test_full(void)
{
	struct fixture fixture;
	struct writer_ring ring;
	uint32_t n;

	REQUIRE(begin(&fixture, &ring));
	put_mark(&ring, getpid(), "one");
	step(&fixture);
	CHECK(!has_uncounted_loss(&fixture.parts, PROF_LOSS_RING_FULL));
	n = ring.words[3] / 104 - 1;
	for (uint32_t i = 0; i < n; i++)
		put_mark(&ring, getpid(), "more");
	step(&fixture);
	CHECK(has_uncounted_loss(&fixture.parts, PROF_LOSS_RING_FULL));
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_FULL), 0);
	finish(&fixture);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_MARK), 1 + n);
	ring_done(&ring);
	fixture_done(&fixture);
}

/* A process that is not a target gets no ring. A ring with frames of such a process is
 * abandoned. */
static void test_stranger(void)
{
	struct fixture fixture;
	struct writer_ring ring;

	fixture_init(&fixture);
	ask_as(&fixture, STRANGER_PID);
	CHECK(!take_ring(&fixture, &ring));
	ask_as(&fixture, getpid());
	REQUIRE(take_ring(&fixture, &ring));
	put_mark(&ring, getpid(), "mine");
	step(&fixture);
	put_mark(&ring, STRANGER_PID, "not mine");
	step(&fixture);
	CHECK_INT(fixture.warnings, 1);
	put_mark(&ring, getpid(), "too late");
	finish(&fixture);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_MARK), 1);
	ring_done(&ring);
	fixture_done(&fixture);
}

static uint64_t process_of_mark(const struct fixture *fixture, size_t i)
{
	uint64_t thread = number_of(&fixture->parts, PROF_TABLE_MARK, PROF_MARK_THREAD, i);

	for (size_t row = 0; row < rows_of(&fixture->parts, PROF_TABLE_THREAD); row++)
		if (number_of(&fixture->parts, PROF_TABLE_THREAD, PROF_THREAD_ID, row) == thread)
			return number_of(&fixture->parts, PROF_TABLE_THREAD, PROF_THREAD_TID, row);
	return 0;
}

/* Two processes request rings, and each takes the other's answer. */
static void test_swapped(void)
{
	struct fixture fixture;
	struct writer_ring mine, others;

	REQUIRE(begin(&fixture, &mine));
	ask_as(&fixture, OTHER_PID);
	REQUIRE(take_ring(&fixture, &others));
	put_mark(&mine, OTHER_PID, "first");
	put_mark(&others, getpid(), "second");
	step(&fixture);
	finish(&fixture);
	CHECK_INT(fixture.warnings, 0);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_MARK), 2);
	CHECK_INT(process_of_mark(&fixture, 0), OTHER_PID);
	CHECK_INT(process_of_mark(&fixture, 1), getpid());
	ring_done(&mine);
	ring_done(&others);
	fixture_done(&fixture);
}

/* A process that took another's answer exits before its own request is read. */
static void test_early(void)
{
	const struct message_peer message = { .pid = OTHER_PID, .protocol = PEER_SYSPROF };
	struct fixture fixture;
	struct writer_ring ring;
	int sockets[2];

	REQUIRE(begin(&fixture, &ring));
	put_mark(&ring, OTHER_PID, "early");
	step(&fixture);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
		abort();
	collectors_add_peer(&fixture.collectors, &message, sockets[1], -1, now());
	for (int i = 0; i < 20; i++) {
		step(&fixture);
		usleep(1000);
	}
	finish(&fixture);
	CHECK_INT(fixture.warnings, 0);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_MARK), 1);
	CHECK_INT(process_of_mark(&fixture, 0), OTHER_PID);
	close(sockets[0]);
	ring_done(&ring);
	fixture_done(&fixture);
}

/* The side band reports an exit before the pidfd does. */
static void test_exited(void)
{
	const struct task_ids exit = { .pid = OTHER_PID, .tid = OTHER_PID };
	struct fixture fixture;
	struct writer_ring ring;

	REQUIRE(begin(&fixture, &ring));
	put_mark(&ring, OTHER_PID, "exited");
	tasks_exit(&fixture.parts.tasks, &exit, now());
	ask_as(&fixture, OTHER_PID);
	step(&fixture);
	finish(&fixture);
	CHECK_INT(fixture.warnings, 0);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_MARK), 1);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_LOSS), 0);
	ring_done(&ring);
	fixture_done(&fixture);
}

/* If a thread ends, its ring is released, unless another thread uses it, too. */
static void test_thread_end(void)
{
	struct fixture fixture;
	struct writer_ring ring;
	struct frame frame;

	REQUIRE(begin(&fixture, &ring));
	put_mark(&ring, getpid(), "one");
	/* The library writes the end of a thread without a pid. */
	frame = frame_begin(END, -1, now());
	frame_end(&frame);
	put_frame(&ring, &frame);
	step(&fixture);
	CHECK_INT(fixture.collectors.n_rings, 1);
	usleep(1100000);
	step(&fixture);
	step(&fixture);
	CHECK_INT(fixture.collectors.n_rings, 0);
	CHECK_INT(fixture.collectors.sysprof_bytes, 0);
	finish(&fixture);
	CHECK_INT(fixture.warnings, 0);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_MARK), 1);
	ring_done(&ring);
	fixture_done(&fixture);
}

/* Each request in a flood is answered. Threads without room are a loss of unknown size. */
static void test_flood(void)
{
	struct fixture fixture;
	struct writer_ring ring;
	unsigned int n = 0;

	REQUIRE(begin(&fixture, &ring));
	ring_done(&ring);
	for (unsigned int i = 0; i < 1000; i++)
		ask_again(&fixture);
	for (unsigned int i = 0; i < 1000; i++) {
		bool is_there = take_ring(&fixture, &ring);

		n += is_there;
		if (is_there)
			ring_done(&ring);
	}
	CHECK(n > 100 && n < 1000);
	CHECK(fixture.collectors.sysprof_bytes <= fixture.collectors.sysprof_max_bytes / 2);
	CHECK(has_uncounted_loss(&fixture.parts, PROF_LOSS_RING_REFUSED));
	finish(&fixture);
	fixture_done(&fixture);
}

int main(void)
{
	RUN(test_ring);
	RUN(test_marks);
	RUN(test_names);
	RUN(test_times);
	RUN(test_counters);
	RUN(test_wide_counters);
	RUN(test_refused);
	RUN(test_short);
	RUN(test_hostile);
	RUN(test_back);
	RUN(test_full);
	RUN(test_stranger);
	RUN(test_swapped);
	RUN(test_early);
	RUN(test_exited);
	RUN(test_thread_end);
	RUN(test_flood);
	return test_end();
}
