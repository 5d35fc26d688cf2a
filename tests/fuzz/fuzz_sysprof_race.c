/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of the engine's reading of one of sysprof's rings while another thread writes to it:
 * from daemon/engine/peers/sysprof-ring.c through sysprof-peer.c and sysprof-frames.c to rows in
 * collector-rows.c.
 *
 * The input is a list of steps (race.h). The records are sysprof's frames, which are written to the
 * ring repeatedly. Another ring of the process is honest, and must be read as if it were alone.
 */
#include "daemon/engine/peers/sysprof-peer.h"
#include "tests/fuzz/race.h"

#include <sys/mman.h>

#define ROUNDS 8
#define DRAINS 2
#define LATER_NS UINT64_C(2000000000)

enum { STEP_FRAME = RACE_RECORD, STEP_BODY, STEP_HEADER, N_STEPS };

/* A frame's header, as sysprof's library writes it. */
struct frame {
	uint16_t bytes;
	int16_t cpu;
	int32_t pid;
	int64_t time_ns;
	uint8_t type;
	uint8_t reserved[7];
};
_Static_assert(sizeof(struct frame) == SYSPROF_FRAME_BYTES, "frame");

/* The process's mapping of a ring: words with head and tail, the body, and their sizes. */
struct own_ring {
	uint32_t *words;
	uint8_t *body;
	uint32_t page, size;
};

static struct own_ring hostile, honest;

/* Plans a frame. The step's `at`: bit 0: the frame is another process's; bit 1: its time is 0. */
static void plan_frame(const struct race_step *step, const uint8_t *payload, size_t n)
{
	struct frame frame = { .bytes = (uint16_t)(sizeof(frame) + n),
			       .pid = getpid() + (step->at & 1),
			       .time_ns = step->at & 2 ? 0 : (int64_t)race_now(),
			       .type = step->type };

	if (step->type == 0xff)
		frame.pid = 0;
	if (step->value)
		frame.bytes = (uint16_t)step->value;
	race_put(&frame, sizeof(frame), payload, n);
}

/* ---- The process's side ---- */

static void store(uint32_t *place, uint32_t value)
{
	__atomic_store_n(place, value, __ATOMIC_RELEASE);
}

/* Changes in the header are not undone, but publish() stores the tail again. */
static void change(const struct race_word *word, uint32_t from, bool back)
{
	uint32_t at = word->at % (RACE_BYTES / 4) * 4;

	if (word->kind == STEP_BODY)
		store((uint32_t *)(void *)(hostile.body + (from + at) % hostile.size),
		      back ? race_planned(at) : (uint32_t)word->value);
	else if (!back)
		store(&hostile.words[word->at % 4], (uint32_t)word->value);
}

/* Appends frames. Returns the position after them. */
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
			   .time_ns = (int64_t)race_now() },
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

	race_must(recvmsg(socket, &message, MSG_DONTWAIT) == 1 && CMSG_FIRSTHDR(&message));
	memcpy(&fd, CMSG_DATA(&control.header), sizeof(fd));
	ret_ring->page = (uint32_t)sysconf(_SC_PAGESIZE);
	ret_ring->words = mmap(NULL, ret_ring->page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	race_must(ret_ring->words != MAP_FAILED);
	ret_ring->size = ret_ring->words[3];
	ret_ring->body = mmap(NULL, ret_ring->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			      ret_ring->words[2]);
	race_must(ret_ring->body != MAP_FAILED);
	close(fd);
}

static void drop_ring(const struct own_ring *ring)
{
	munmap(ring->body, ring->size);
	munmap(ring->words, ring->page);
}

/* ---- The engine's side ---- */

static void ask(const int sockets[2], struct own_ring *ret_ring)
{
	const struct message_peer message = { .pid = getpid(), .protocol = PEER_SYSPROF };
	uint32_t n = race.collectors.n_rings;

	collectors_add_peer(&race.collectors, &message, dup(sockets[1]), pidfd_open(getpid(), 0),
			    race_now());
	while (race.collectors.n_rings == n)
		race_drain(race_now());
	receive_ring(sockets[0], ret_ring);
}

static void open_peer(int sockets[2])
{
	race_must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0);
	/* rings of the minimum size, so that they are created and cleared fast */
	race.collectors.sysprof_max_bytes = 8 * SYSPROF_RING_MIN_BYTES;
	ask(sockets, &honest);
	ask(sockets, &hostile);
}

static void fill_again_and_again(void)
{
	uint32_t honest_at = 0, at = 0;

	race_start();
	for (int round = 0; round < ROUNDS; round++) {
		/* sometimes start near the end of the body, so that frames wrap; the engine may
		 * reject that */
		at = round % 4 == 3 ? hostile.size - RACE_BYTES / 2 : at;
		race_go_to(at);
		at = publish(&hostile, at, race.plan.records, race.plan.n_bytes) & ~7u;
		honest_at = publish_mark(&honest, honest_at);
		for (int i = 0; i < DRAINS; i++)
			race_drain(race_now());
	}
	race_end();
	race_drain(race_now());
}

static void check_honest(void)
{
	const struct peer *peer = g_ptr_array_index(race.collectors.peers, 0);
	const struct peer_arena *arena = peer->arenas[0];

	race_must(arena->sysprof->pid == getpid());
	race_must(arena->rings[0].reader.fault == RING_FAULT_NONE && arena->sysprof->n_faults == 0);
	race_must(honest.words[0] == honest.words[1] && honest.words[1] == ROUNDS * 96u);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct race_kinds kinds = { N_STEPS, plan_frame, change };
	int sockets[2];

	race_open(data, size, &kinds);
	open_peer(sockets);
	fill_again_and_again();
	check_honest();
	/* rings of threads that announced their end are released */
	race_drain(race_now() + LATER_NS);
	race_finish();
	race_close();
	drop_ring(&hostile);
	drop_ring(&honest);
	close(sockets[0]);
	close(sockets[1]);
	return 0;
}
