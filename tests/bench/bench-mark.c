/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Bench-mark - measures the cost of prof-collector.h for a program, compared with empty functions
 * and clock_gettime() in the same run
 *
 *     bench-mark [ticks]      ticks: the arena offers the processor's time stamp counter
 *
 * The first part measures marks while nobody records, by <prof/mark.h> and by a direct call of
 * prof_mark_instant(). The difference from an empty call is the program's whole cost; that from an
 * empty function of the same type in another library is the cost of our function's body. mark: a
 * group and a name. arguments: a name of 20 bytes and two named numbers. span: begin and end. full:
 * marks that are dropped at once. thread: a thread with one mark, compared with one without marks.
 *
 * If a process has only one thread, the time stamp counter is read without waiting for preceding
 * instructions, so marks are measured before and after a second thread exists. Results are in ns
 * per call: best and median of many short rounds. Rings have the size of a thread's first ring, and
 * are emptied between rounds. Other work on the machine affects the median, so the goals apply to
 * the best.
 */
#define PROF_LINKED
#include "config.h"

#include "arch/packet.h"
#include "libcollector/control.h"
#include "libcollector/ring/ring-reader.h"
#include "tests/bench/bench-mark-empty.h"

#include <inttypes.h>
#include <prof/mark.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#ifdef HAVE_SYSPROF_CAPTURE
#include <sysprof-capture.h>
#endif

#define RING_SIZE (UINT64_C(1) << 16)
#define N_RINGS 4
#define RUNS 500
#define ROUNDS 2001
#define N_THREADS 2 /* one ring each; the other N_RINGS - 2 rings may be waiting to be drained */
#define THREAD_ROUNDS 500

static _Alignas(8) uint8_t buffer[RING_SIZE];
static struct ring_arena_memory memory;
static struct ring_reader readers[N_RINGS];
static volatile uint64_t sink;
static int listener;
static uint32_t counter;

static uint64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void drain(void)
{
	for (uint32_t i = 0; i < memory.n_rings; i++) {
		struct ring_batch batch;

		do
			ring_reader_drain(&readers[i], RING_DRAIN_LIVE, buffer, sizeof(buffer),
					  &batch);
		while (batch.is_more);
		if (batch.is_closed)
			ring_reader_recycle(&readers[i]);
	}
}

static __attribute__((noinline)) void call_nothing(void)
{
	sink = 1;
}

/* Calls an empty function of a library: the minimum cost of any library call. */
static __attribute__((noinline)) void call_library(void)
{
	sink = 1;
	bench_mark_empty("bench", "mark", NULL, 0);
}

static __attribute__((noinline)) void call_clock(void)
{
	sink = clock_ns();
}

static __attribute__((noinline)) void call_front(void)
{
	sink = 1;
	(void)prof_instant("bench", "front");
}

static __attribute__((noinline)) void call_mark(void)
{
	sink = 1;
	prof_mark_instant("bench", "mark", NULL, 0);
}

static __attribute__((noinline)) void call_arguments(void)
{
	const struct prof_arg args[2] = { PROF_S64("width", 640), PROF_S64("height", 480) };

	sink = 1;
	prof_mark_instant("bench", "a name of 20 bytes..", args, 2);
}

static __attribute__((noinline)) void call_span(void)
{
	sink = 1;
	prof_mark_begin(1, "bench", "span", NULL, 0);
	prof_mark_end(1, "bench", "span", NULL, 0);
}

static __attribute__((noinline)) void call_counter(void)
{
	sink = 1;
	prof_counter_set(counter, 1);
}

#ifdef HAVE_SYSPROF_CAPTURE
static __attribute__((noinline)) void call_sysprof(void)
{
	sink = 1;
	sysprof_collector_mark(0, 0, "bench", "mark", NULL);
}
#endif

struct cost {
	double best, median;
};

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double run(void (*function)(void))
{
	uint64_t start = clock_ns();

	for (int i = 0; i < RUNS; i++)
		function();
	return (double)(clock_ns() - start) / RUNS;
}

static struct cost summarize(double *rounds, size_t n)
{
	qsort(rounds, n, sizeof(rounds[0]), compare);
	return (struct cost){ rounds[0], rounds[n / 2] };
}

/* Alternates rounds of both functions, because the machine's speed varies. */
static void measure(void (*function)(void), void (*reference)(void), void (*before)(void),
		    struct cost *ret_cost, struct cost *ret_reference)
{
	static double rounds[ROUNDS], references[ROUNDS];

	for (int round = 0; round < ROUNDS; round++) {
		if (before)
			before();
		rounds[round] = run(function);
		references[round] = run(reference);
	}
	*ret_cost = summarize(rounds, ROUNDS);
	*ret_reference = summarize(references, ROUNDS);
}

static void *run_once(void *function)
{
	((void (*)(void))function)();
	return NULL;
}

static double run_threads(void (*function)(void))
{
	uint64_t start = clock_ns();

	for (int i = 0; i < N_THREADS; i++) {
		pthread_t id;

		if (pthread_create(&id, NULL, run_once, (void *)function) != 0)
			return -1;
		pthread_join(id, NULL);
	}
	return (double)(clock_ns() - start) / N_THREADS;
}

static void print_threads(void)
{
	static double rounds[THREAD_ROUNDS], references[THREAD_ROUNDS];
	struct cost cost, reference;

	for (int round = 0; round < THREAD_ROUNDS; round++) {
		drain();
		rounds[round] = run_threads(call_mark);
		references[round] = run_threads(call_nothing);
	}
	cost = summarize(rounds, THREAD_ROUNDS);
	reference = summarize(references, THREAD_ROUNDS);
	printf("%-20s %6.0f ns, median %6.0f   over one without %5.0f ns\n", "thread", cost.best,
	       cost.median, cost.best - reference.best);
}

/* Answers one registration like the engine, in a child process. Returns the child's exit status. */
static int answer(int memfd)
{
	const struct control_answer reply = { .magic = CONTROL_ANSWER_MAGIC,
					      .version = CONTROL_VERSION,
					      .bytes = CONTROL_BYTES };
	struct iovec iov = { .iov_base = (void *)&reply, .iov_len = sizeof(reply) };
	char hello[CONTROL_BYTES];
	int fd = accept(listener, NULL, NULL);

	return recv(fd, hello, sizeof(hello), 0) == (ssize_t)sizeof(hello) &&
			       packet_send(fd, &iov, 1, memfd, 0) == (ssize_t)sizeof(reply)
		       ? 0
		       : 1;
}

static int make_arena(bool ticks)
{
	const struct ring_arena_sizes sizes = { { { RING_SIZE, N_RINGS, RING_DROP } } };
	int memfd;

	if (ring_arena_make(&sizes, &memory, &memfd) < 0)
		return -1;
	if (ticks)
		ring_arena_offer_ticks(&memory);
	for (uint32_t i = 0; i < N_RINGS; i++)
		ring_reader_init(&readers[i], &memory, i);
	return memfd;
}

static int connect_here(bool ticks)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	char name[40], text[80];
	size_t n = (size_t)snprintf(name, sizeof(name), "prof-bench-%d", getpid());
	int r, memfd = make_arena(ticks);
	pid_t child;

	memcpy(address.sun_path + 1, name, n);
	snprintf(text, sizeof(text), "unix-abstract:%s", name);
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (memfd < 0 ||
	    bind(listener, (const struct sockaddr *)&address,
		 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)) < 0 ||
	    listen(listener, 1) < 0)
		return -1;
	child = fork();
	if (child == 0)
		_exit(answer(memfd));
	r = prof_collector_connect(text);
	waitpid(child, NULL, 0);
	return r;
}

/* Prints the cost of `function`, and by how much it exceeds the cost of n calls of `reference`. */
static void print(const char *name, void (*function)(void), int n, void (*reference)(void),
		  void (*before)(void), double goal)
{
	struct cost cost, peer;
	double over;

	measure(function, reference, before, &cost, &peer);
	over = cost.best - n * peer.best;
	printf("%-20s %6.1f ns, median %6.1f   over %d of %.1f: %5.1f ns, median %5.1f", name,
	       cost.best, cost.median, n, peer.best, over, cost.median - n * peer.median);
	if (goal > 0)
		printf(", goal %.0f: %s", goal, over <= goal ? "met" : "MISSED");
	printf("\n");
}

static void print_disabled(void)
{
	printf("Nobody records; over an empty call.\n");
	print("mark.h", call_front, 1, call_nothing, NULL, 1);
	print("function", call_mark, 1, call_nothing, NULL, 1);
	print("empty function", call_library, 1, call_nothing, NULL, 0);
	print("function, over that", call_mark, 1, call_library, NULL, 1);
#ifdef HAVE_SYSPROF_CAPTURE
	print("sysprof-capture-4", call_sysprof, 1, call_nothing, NULL, 0);
#endif
}

static void print_marks(bool ticks)
{
	printf("Recorded; over clock_gettime().\n");
	print("mark", call_mark, 1, call_clock, drain, ticks ? 0 : 10);
	print("mark, mark.h", call_front, 1, call_clock, drain, ticks ? 0 : 10);
	print("arguments", call_arguments, 1, call_clock, drain, ticks ? 0 : 25);
	print("span (two)", call_span, 2, call_clock, drain, ticks ? 0 : 20);
	print("counter", call_counter, 1, call_clock, drain, ticks ? 0 : 10);
	printf("Recorded; over an empty call.\n");
	print("mark in all", call_mark, 1, call_nothing, drain, ticks ? 15 : 0);
}

static void print_full(void)
{
	drain();
	for (uint64_t i = 0; i < N_RINGS * RING_SIZE / 32; i++)
		call_mark();
	printf("Lost; over an empty call, and over an empty function.\n");
	print("full", call_mark, 1, call_nothing, NULL, 2);
	print("full, mark.h", call_front, 1, call_nothing, NULL, 2);
	print("full, over that", call_mark, 1, call_library, NULL, 2);
}

int main(int argc, char **argv)
{
	bool ticks = argc == 2 && strcmp(argv[1], "ticks") == 0;

	if (!ticks)
		print_disabled();
	if (connect_here(ticks) != 0)
		return 1;
	counter = prof_counter_define("bench", "counter", "", 0);
	print_marks(ticks);
	print_threads();
	printf("Recorded, in a process that has had threads; over an empty call.\n");
	print("mark in all", call_mark, 1, call_nothing, drain, ticks ? 15 : 0);
	print_full();
	return 0;
}
