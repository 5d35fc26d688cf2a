/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Bench-heap - measures the engine's cost of an allocation record, from the ring to the capture
 *
 * This process writes to its own rings, without counting the cost of writing. Loads: short-lived
 * blocks; 100 k blocks of random sizes with 1000 stacks; the first load in the rings of four
 * threads in turn, so that rings are merged; and a program's large table, whose items of four
 * adjacent blocks are allocated in order and freed in another order.
 */
#include "daemon/engine/peers/collectors.h"
#include "libcollector/ring/ring.h"
#include "tests/unit/engine.h"

#include <inttypes.h>
#include <sys/socket.h>
#include <time.h>

#define N_RECORDS 4000000u
#define N_STACKS 1000u
#define MAX_LIVE 1000000u
#define BURST 1000u
#define ITEM 4u /* blocks per item */

struct load {
	const char *name;
	uint32_t n_live, n_threads;
	bool is_table;
};

struct bench {
	struct parts parts;
	struct collectors collectors;
	struct ring_arena *arena;
	struct ring *rings[4];
	uint32_t random;
};

static bool live[MAX_LIVE];

static uint64_t clock_of(clockid_t id)
{
	struct timespec now;

	clock_gettime(id, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void on_warning(const char *code, const char *text, void *data)
{
	fprintf(stderr, "%s: %s\n", code, text);
	exit(1);
}

static void start(struct bench *bench)
{
	const struct message_peer message = {
		.pid = getpid(), .wants = CONTROL_WANTS_ALLOCATIONS | CONTROL_WANTS_ROOM
	};
	struct control_answer answer;
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec part = { &answer, sizeof(answer) };
	struct msghdr header = { .msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control) };
	uint64_t now = clock_of(CLOCK_MONOTONIC);
	int sockets[2], fd;

	parts_init(&bench->parts);
	tasks_found(&bench->parts.tasks, getpid(), getpid(), 1);
	for (int32_t i = 1; i < 4; i++)
		tasks_found(&bench->parts.tasks, getpid(), INT32_MAX - i, 1);
	collectors_init(&bench->collectors, &(struct collectors_options){
						    .output = &bench->parts.output,
						    .tasks = &bench->parts.tasks,
						    .losses = &bench->parts.losses,
						    .images = &bench->parts.images,
						    .epoll_fd = -1,
						    .warn = on_warning,
					    });
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
		abort();
	collectors_add_peer(&bench->collectors, &message, sockets[1], dup(sockets[0]), now);
	g_hash_table_remove_all(bench->collectors.by_fd);
	((struct peer *)g_ptr_array_index(bench->collectors.peers, 0))->ended = false;
	collectors_serve(&bench->collectors, now, now);
	if (recvmsg(sockets[0], &header, 0) != sizeof(answer) || !CMSG_FIRSTHDR(&header))
		abort();
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof(fd));
	if (ring_arena_map(fd, &bench->arena) != 0)
		abort();
	close(fd);
	for (int32_t i = 0; i < 4; i++)
		bench->rings[i] = ring_claim(bench->arena, (uint32_t)(i ? INT32_MAX - i : getpid()),
					     i ? 1 << 19 : 1 << 22, 0);
}

static uint32_t next_random(struct bench *bench)
{
	bench->random = bench->random * 1664525 + 1013904223;
	return bench->random >> 8;
}

static void write_stacks(struct ring *ring)
{
	for (uint32_t i = 1; i <= N_STACKS; i++) {
		struct ring_calls *calls =
			ring_begin(ring, RING_CALLS, sizeof(*calls) + sizeof(struct ring_frame));

		*calls = (struct ring_calls){ .first = i, .parent = i / 2, .n_frames = 1 };
		*(struct ring_frame *)(calls + 1) = (struct ring_frame){ i, 0, RING_FRAME_NO_FILE };
		ring_end(ring, calls);
	}
}

static void write_block(struct bench *bench, struct ring *ring, uint32_t i, uint32_t n_live,
			uint32_t step)
{
	const uint64_t address = (i + 1) * (uint64_t)step;

	if (live[i]) {
		struct ring_free_block *freed = ring_begin(ring, RING_FREE_BLOCK, sizeof(*freed));

		*freed = (struct ring_free_block){ .address = address };
		ring_end(ring, freed);
	} else {
		struct ring_alloc *alloc = ring_begin(ring, RING_ALLOC, sizeof(*alloc));

		*alloc = (struct ring_alloc){
			.address = address,
			.size = n_live > 100 ? next_random(bench) % 4096 : i,
			.stack = 1 + (n_live > 100 ? next_random(bench) % N_STACKS : i),
		};
		ring_end(ring, alloc);
	}
	live[i] = !live[i];
}

static void write_record(struct bench *bench, const struct load *load, uint32_t n)
{
	struct ring *ring = bench->rings[n / 16 % load->n_threads];
	uint32_t turn = n / load->n_live, at = n % load->n_live, item = at / ITEM;

	if (!load->is_table) {
		write_block(bench, ring, next_random(bench) % load->n_live, load->n_live, 48);
		return;
	}
	if (turn % 2 == 1) /* a multiplier coprime to the number of items visits each item once */
		item = (uint32_t)(item * UINT64_C(1000003) % (load->n_live / ITEM));
	write_block(bench, ring, item * ITEM + at % ITEM, load->n_live, 32);
}

/* The engine runs on this thread. The CPU time of other threads is that of the capture's writer. */
static void run(const struct load *load)
{
	struct bench bench = { .random = 1 };
	uint64_t ours = 0, all = clock_of(CLOCK_PROCESS_CPUTIME_ID), thread, bytes;
	uint64_t own = clock_of(CLOCK_THREAD_CPUTIME_ID);

	memset(live, 0, sizeof(live));
	start(&bench);
	for (uint32_t i = 0; i < load->n_threads; i++)
		write_stacks(bench.rings[i]);
	for (uint32_t n = 0; n < N_RECORDS; n++) {
		write_record(&bench, load, n);
		if (n % (BURST * 16) == 0) {
			uint64_t now = clock_of(CLOCK_MONOTONIC);

			thread = clock_of(CLOCK_THREAD_CPUTIME_ID);
			output_tick(&bench.parts.output, now);
			collectors_drain(&bench.collectors, now);
			collectors_emit(&bench.collectors, now, UINT64_MAX);
			ours += clock_of(CLOCK_THREAD_CPUTIME_ID) - thread;
		}
	}
	thread = clock_of(CLOCK_THREAD_CPUTIME_ID);
	collectors_finish(&bench.collectors, UINT64_MAX);
	ours += clock_of(CLOCK_THREAD_CPUTIME_ID) - thread;
	parts_finish(&bench.parts);
	own = clock_of(CLOCK_THREAD_CPUTIME_ID) - own;
	all = clock_of(CLOCK_PROCESS_CPUTIME_ID) - all;
	bytes = (uint64_t)lseek(bench.parts.fd, 0, SEEK_END);
	printf("%-40s %6.1f ns a record, writer %5.1f, %5.2f bytes\n", load->name,
	       (double)ours / N_RECORDS, (double)(all - own) / N_RECORDS,
	       (double)bytes / N_RECORDS);
	if (rows_of(&bench.parts, PROF_TABLE_ALLOC) + rows_of(&bench.parts, PROF_TABLE_FREE) !=
	    N_RECORDS)
		printf("  rows are missing\n");
	collectors_done(&bench.collectors);
	parts_done(&bench.parts);
	ring_arena_unmap(bench.arena);
}

int main(void)
{
	static const struct load loads[] = {
		{ "64 blocks", 64, 1, false },
		{ "100 k blocks, 1000 stacks, random sizes", 100000, 1, false },
		{ "64 blocks, four threads", 64, 4, false },
		{ "1 M blocks of a table", MAX_LIVE, 1, true },
	};

	for (size_t i = 0; i < ARRAY_SIZE(loads); i++)
		run(&loads[i]);
	return 0;
}
