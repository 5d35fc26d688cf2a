/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Bench mark - what prof-collector.h costs a program, beside an empty function and clock_gettime() in the same run
 *
 * disabled: nobody records; through <prof/mark.h>, and by the function. mark: a group and a name. arguments: a name of 20
 * bytes and two named numbers. span: begin and end. full: what is lost at once. thread: one that makes one mark, over one that makes none.
 * Each is the best of many rounds, in ns a call; rings are emptied between rounds.
 */
#define PROF_LINKED
#include "config.h"
#include "libcollector/control.h"
#include "libcollector/ring-reader.h"

#include <inttypes.h>
#include <prof/mark.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#ifdef HAVE_SYSPROF_CAPTURE
#include <sysprof-capture.h>
#endif

#define RING_SIZE (UINT64_C(1) << 23)
#define N_RINGS 4
#define RUNS 20000
#define ROUNDS 61
#define N_THREADS 2000

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

static double measure(void (*function)(void), void (*before)(void))
{
	double best = 1e18;

	for (int round = 0; round < ROUNDS; round++) {
		uint64_t start;

		if (before)
			before();
		start = clock_ns();
		for (int i = 0; i < RUNS; i++)
			function();
		best = MIN_OF(best, (double)(clock_ns() - start) / RUNS);
	}
	return best;
}

static void *run_once(void *function)
{
	((void (*)(void))function)();
	return NULL;
}

static double measure_threads(void (*function)(void))
{
	uint64_t start = clock_ns();

	for (int i = 0; i < N_THREADS; i++) {
		pthread_t id;

		if (pthread_create(&id, NULL, run_once, (void *)function) != 0)
			return -1;
		pthread_join(id, NULL);
		if (i % 2 == 0)
			drain();
	}
	return (double)(clock_ns() - start) / N_THREADS;
}

/* The engine's side of one registration. */
static void *answer(void *data)
{
	const struct ring_arena_sizes sizes = { { { RING_SIZE, N_RINGS, RING_DROP } } };
	const struct control_answer reply = { .magic = CONTROL_ANSWER_MAGIC,
					      .version = CONTROL_VERSION,
					      .bytes = CONTROL_BYTES };
	struct iovec iov = { .iov_base = (void *)&reply, .iov_len = sizeof(reply) };
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { .header = { .cmsg_level = SOL_SOCKET,
				  .cmsg_type = SCM_RIGHTS,
				  .cmsg_len = CMSG_LEN(sizeof(int)) } };
	struct msghdr message = { .msg_iov = &iov,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control) };
	char hello[CONTROL_BYTES];
	int fd = accept(listener, NULL, NULL), memfd;

	if (recv(fd, hello, sizeof(hello), 0) != (ssize_t)sizeof(hello) ||
	    ring_arena_make(&sizes, &memory, &memfd) < 0)
		return NULL;
	for (uint32_t i = 0; i < N_RINGS; i++)
		ring_reader_init(&readers[i], &memory, i);
	memcpy(CMSG_DATA(&control.header), &memfd, sizeof(memfd));
	sendmsg(fd, &message, 0);
	return NULL;
}

static int connect_here(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	char name[40], text[80];
	size_t n = (size_t)snprintf(name, sizeof(name), "prof-bench-%d", getpid());
	pthread_t id;
	int r;

	memcpy(address.sun_path + 1, name, n);
	snprintf(text, sizeof(text), "unix-abstract:%s", name);
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (bind(listener, (const struct sockaddr *)&address,
		 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)) < 0 ||
	    listen(listener, 1) < 0 || pthread_create(&id, NULL, answer, NULL) != 0)
		return -1;
	r = prof_collector_connect(text);
	pthread_join(id, NULL);
	return r;
}

static void print(const char *name, double ns, double less, const char *over, double goal)
{
	printf("%-18s %6.1f ns   over %s %5.1f ns (goal %.0f)\n", name, ns, over, ns - less, goal);
}

int main(void)
{
	double call, peer, front, function, thread;

	measure(call_clock, NULL);
	call = measure(call_nothing, NULL);
	peer = measure(call_clock, NULL);
	front = measure(call_front, NULL);
	function = measure(call_mark, NULL);
	printf("call               %6.1f ns\n", call);
	printf("clock              %6.1f ns\n", peer);
	print("disabled, mark.h", front, call, "a call", 1);
	print("disabled, function", function, call, "a call", 1);
#ifdef HAVE_SYSPROF_CAPTURE
	printf("disabled, sysprof  %6.1f ns   over a call %5.1f ns\n", measure(call_sysprof, NULL),
	       measure(call_sysprof, NULL) - call);
#endif
	thread = measure_threads(call_nothing);
	if (connect_here() != 0)
		return 1;
	counter = prof_counter_define("bench", "counter", "", 0);
	measure(call_mark, drain);
	print("mark", measure(call_mark, drain), peer, "the clock", 10);
	print("mark, mark.h", measure(call_front, drain), peer, "the clock", 10);
	print("arguments", measure(call_arguments, drain), peer, "the clock", 25);
	print("span (two)", measure(call_span, drain), 2 * peer, "two clocks", 20);
	print("counter", measure(call_counter, drain), peer, "the clock", 10);
	printf("thread             %6.0f ns   over one without %5.0f ns\n",
	       measure_threads(call_mark), measure_threads(call_mark) - thread);
	drain();
	for (uint64_t i = 0; i < RING_SIZE / 32; i++)
		call_mark();
	print("full", measure(call_mark, NULL), call, "a call", 2);
	return 0;
}
