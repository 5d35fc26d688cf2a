/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of what the engine does with a ring of sysprof's, while another thread of the process writes there: from
 * daemon/engine/sysprof-ring.c over sysprof-peer.c and sysprof-frames.c to the rows of collector-rows.c.
 *
 * The input is steps: frames, which are put into the ring again and again, and words that the other thread changes there and
 * changes back, over and over, while the ring is drained. Another ring of the process is honest, and has to be read as if it
 * were alone.
 */
#include "daemon/engine/collectors.h"
#include "daemon/engine/sysprof-peer.h"
#include "tests/unit/engine.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <time.h>

#define FILLED_BYTES 4096u
#define MAX_WORDS 16u
#define MAX_PAYLOAD 512u
#define ROUNDS 8
#define DRAINS 2
#define KEPT_INPUTS 64 /* so many go into one capture */
#define LATER_NS UINT64_C(2000000000)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STEP_FRAME, STEP_BODY, STEP_HEADER, N_STEPS };

struct step {
	uint8_t kind; /* STEP_*, modulo */
	uint8_t type; /* of a frame */
	uint16_t
		at; /* of a frame: 1, it is of another process; 2, its time is 0; else which word */
	uint32_t n; /* bytes of a frame's payload, which follow */
	uint64_t value; /* of a word; bytes of a frame where that is not what they are */
};
_Static_assert(sizeof(struct step) == 16, "step");

/* As sysprof's library writes it. */
struct frame {
	uint16_t bytes;
	int16_t cpu;
	int32_t pid;
	int64_t time_ns;
	uint8_t type;
	uint8_t reserved[7];
};
_Static_assert(sizeof(struct frame) == SYSPROF_FRAME_BYTES, "frame");

struct word {
	uint8_t kind;
	uint16_t at;
	uint64_t value;
};

/* The process's mapping of a ring: head, tail, where the body is, how long. */
struct own_ring {
	uint32_t *words;
	uint8_t *body;
	uint32_t page, size;
};

static struct parts parts;
static unsigned int n_inputs;

static struct {
	struct word words[MAX_WORDS];
	size_t n_words;
	uint8_t frames[FILLED_BYTES];
	uint32_t n_bytes;
} plan;

static struct collectors collectors;
static struct own_ring hostile, honest;
static uint32_t start;   /* atomic: where the frames are; UINT32_MAX: it is over */
static uint32_t n_turns; /* atomic */

static uint64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void must(bool is_so)
{
	if (!is_so)
		abort();
}

/* ---- The input ---- */

/* Returns how many bytes of the payload there are. */
static size_t plan_frame(const struct step *step, const uint8_t *payload, size_t rest)
{
	size_t n = MIN_OF((size_t)(step->n % (MAX_PAYLOAD + 1)), rest) / 8 * 8;
	struct frame frame = { .bytes = (uint16_t)(sizeof(frame) + n),
			       .pid = getpid() + (step->at & 1),
			       .time_ns = step->at & 2 ? 0 : (int64_t)clock_ns(),
			       .type = step->type };
	uint32_t bytes = frame.bytes;

	if (step->type == 0xff)
		frame.pid = 0;
	if (plan.n_bytes + bytes > sizeof(plan.frames))
		return n;
	if (step->value)
		frame.bytes = (uint16_t)step->value;
	memcpy(plan.frames + plan.n_bytes, &frame, sizeof(frame));
	memcpy(plan.frames + plan.n_bytes + sizeof(frame), payload, n);
	plan.n_bytes += bytes;
	return n;
}

static void make_plan(const uint8_t *data, size_t size)
{
	struct step step;

	memset(&plan, 0, sizeof(plan));
	while (size >= sizeof(step)) {
		size_t n = 0;

		memcpy(&step, data, sizeof(step));
		data += sizeof(step);
		size -= sizeof(step);
		step.kind %= N_STEPS;
		if (step.kind == STEP_FRAME)
			n = plan_frame(&step, data, size);
		else if (plan.n_words < MAX_WORDS)
			plan.words[plan.n_words++] =
				(struct word){ step.kind, step.at, step.value };
		data += n;
		size -= n;
	}
}

/* ---- The process's side ---- */

static void store(uint32_t *place, uint32_t value)
{
	__atomic_store_n(place, value, __ATOMIC_RELEASE);
}

/* What is changed in the header stays so until the next frames are published. */
static void change(const struct word *word, uint32_t from, bool back)
{
	uint32_t at = word->at % (FILLED_BYTES / 4) * 4;

	if (word->kind == STEP_BODY)
		store((uint32_t *)(void *)(hostile.body + (from + at) % hostile.size),
		      back ? load_le32(plan.frames + at) : (uint32_t)word->value);
	else if (!back)
		store(&hostile.words[word->at % 4], (uint32_t)word->value);
}

static void *change_all(void *data)
{
	uint32_t from;

	while ((from = __atomic_load_n(&start, __ATOMIC_ACQUIRE)) != UINT32_MAX) {
		for (int turn = 0; turn < 64; turn++)
			for (size_t i = 0; i < plan.n_words; i++)
				change(&plan.words[i], from, turn % 2);
		__atomic_fetch_add(&n_turns, 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

/* Behind what is there; returns where that is. */
static uint32_t publish(const struct own_ring *ring, uint32_t at, const uint8_t *bytes, uint32_t n)
{
	uint32_t first = MIN_OF(n, ring->size - at);

	memcpy(ring->body + at, bytes, first);
	memcpy(ring->body, bytes + first, n - first);
	store(&ring->words[1], (at + n) % ring->size);
	return (at + n) % ring->size;
}

static uint32_t publish_mark(const struct own_ring *ring, uint32_t at)
{
	struct {
		struct frame frame;
		int64_t duration_ns;
		char group[24], name[40];
	} mark = {
		.frame = { .bytes = sizeof(mark),
			   .pid = getpid(),
			   .type = 10,
			   .time_ns = (int64_t)clock_ns() },
		.group = "honest",
		.name = "mark",
	};

	return publish(ring, at, (const uint8_t *)&mark, sizeof(mark));
}

static void receive_ring(int socket, struct own_ring *ret_ring)
{
	union {
		struct cmsghdr header;
		uint8_t space[CMSG_SPACE(sizeof(int))];
	} control;
	char byte;
	struct iovec part = { &byte, 1 };
	struct msghdr message = { .msg_iov = &part,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control) };
	int fd;

	must(recvmsg(socket, &message, MSG_DONTWAIT) == 1 && CMSG_FIRSTHDR(&message));
	memcpy(&fd, CMSG_DATA(&control.header), sizeof(fd));
	ret_ring->page = (uint32_t)sysconf(_SC_PAGESIZE);
	ret_ring->words = mmap(NULL, ret_ring->page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must(ret_ring->words != MAP_FAILED);
	ret_ring->size = ret_ring->words[3];
	ret_ring->body = mmap(NULL, ret_ring->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			      ret_ring->words[2]);
	must(ret_ring->body != MAP_FAILED);
	close(fd);
}

static void drop_ring(const struct own_ring *ring)
{
	munmap(ring->body, ring->size);
	munmap(ring->words, ring->page);
}

/* ---- The engine's side ---- */

static void on_warning(const char *code, const char *text, void *data)
{
	must(code && text);
}

static void open_parts(void)
{
	const int32_t self = getpid();

	parts_init(&parts);
	tasks_filter(&parts.tasks, &self, 1, true);
	tasks_found(&parts.tasks, self, self, 1);
}

static void step_at(uint64_t at)
{
	output_tick(&parts.output, at);
	collectors_drain(&collectors, at);
	collectors_serve(&collectors, at, at);
	collectors_emit(&collectors, at, UINT64_MAX);
	collectors_sleep(&collectors, at, 0);
}

static void ask(const int sockets[2], struct own_ring *ret_ring)
{
	const struct message_peer message = { .pid = getpid(), .protocol = PEER_SYSPROF };
	uint32_t n = collectors.n_rings;

	collectors_add_peer(&collectors, &message, dup(sockets[1]), pidfd_open(getpid(), 0),
			    clock_ns());
	while (collectors.n_rings == n)
		step_at(clock_ns());
	receive_ring(sockets[0], ret_ring);
}

static void open_peer(int sockets[2])
{
	collectors_init(&collectors, &(struct collectors_options){ .output = &parts.output,
								   .tasks = &parts.tasks,
								   .images = &parts.images,
								   .losses = &parts.losses,
								   .epoll_fd = -1,
								   .session = 7,
								   .warn = on_warning });
	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0);
	/* others have most of what there may be, so that rings are small and soon made */
	collectors.arena_bytes = COLLECTORS_MAX_BYTES / 4 * 3;
	ask(sockets, &honest);
	ask(sockets, &hostile);
}

/* Else the other thread may only have begun when all is over. */
static void wait_for_change(void)
{
	uint32_t before = __atomic_load_n(&n_turns, __ATOMIC_ACQUIRE);

	while (__atomic_load_n(&n_turns, __ATOMIC_ACQUIRE) - before < 2)
		sched_yield();
}

static void race(void)
{
	uint32_t honest_at = 0, at = 0;
	pthread_t id;

	__atomic_store_n(&start, at, __ATOMIC_RELEASE);
	must(pthread_create(&id, NULL, change_all, NULL) == 0);
	wait_for_change();
	for (int round = 0; round < ROUNDS; round++) {
		/* now and then near the body's end, whatever the engine makes of that, so that frames go over it */
		at = round % 4 == 3 ? hostile.size - FILLED_BYTES / 2 : at;
		__atomic_store_n(&start, at, __ATOMIC_RELEASE);
		at = publish(&hostile, at, plan.frames, plan.n_bytes) & ~7u;
		honest_at = publish_mark(&honest, honest_at);
		for (int i = 0; i < DRAINS; i++)
			step_at(clock_ns());
	}
	__atomic_store_n(&start, UINT32_MAX, __ATOMIC_RELEASE);
	pthread_join(id, NULL);
	step_at(clock_ns());
}

static void check_honest(void)
{
	const struct peer *peer = g_ptr_array_index(collectors.peers, 0);
	const struct peer_arena *arena = peer->arenas[0];

	must(arena->sysprof->pid == getpid());
	must(arena->rings[0].reader.fault == RING_FAULT_NONE && arena->sysprof->n_faults == 0);
	must(honest.words[0] == honest.words[1] && honest.words[1] == ROUNDS * 96u);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int sockets[2];

	if (n_inputs == 0)
		open_parts();
	make_plan(data, size);
	open_peer(sockets);
	race();
	check_honest();
	/* rings whose threads said that they end are given up */
	step_at(clock_ns() + LATER_NS);
	collectors_finish(&collectors, UINT64_MAX);
	must(collectors.queued_bytes == 0);
	collectors_done(&collectors);
	drop_ring(&hostile);
	drop_ring(&honest);
	close(sockets[0]);
	close(sockets[1]);
	if (++n_inputs < KEPT_INPUTS)
		return 0;
	parts_finish(&parts);
	parts_done(&parts);
	n_inputs = 0;
	return 0;
}
