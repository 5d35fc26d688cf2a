/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Waits - each thread waits in one function for one cause, and measures how long
 *
 *     waits FILE    prints a line "FUNCTION TID NANOSECONDS" for each thread
 *
 * The measured time includes the waits and the time until the thread ran again.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TURNS 150
#define PAGE 4096

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int pipes[2], polled[2], sockets[2];
static const char *file;
/* another thread fills in each page after a fault; NULL: faults cannot be watched */
static volatile char *pages;
static int faults = -1;

struct waiter {
	const char *name;
	void (*wait)(void);
	void (*pause)(void); /* not measured; or NULL */
	pthread_t thread;
	int tid;
	uint64_t ns;
};

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void check(int ok)
{
	if (!ok)
		abort();
}

static void nap(long ns)
{
	nanosleep(&(struct timespec){ .tv_nsec = ns }, NULL);
}

__attribute__((noinline)) static void wait_timer(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
	__asm__ volatile("");
}

/* Two threads take turns: while one has the mutex, the other waits. */
__attribute__((noinline)) static void wait_futex(void)
{
	pthread_mutex_lock(&mutex);
	for (uint64_t end = now() + 2000000; now() < end;)
		continue;
	pthread_mutex_unlock(&mutex);
}

static void let_lock(void)
{
	nap(100000);
}

__attribute__((noinline)) static void wait_pipe(void)
{
	char byte;

	check(read(pipes[0], &byte, 1) == 1);
}

__attribute__((noinline)) static void wait_network(void)
{
	char byte;

	check(read(sockets[0], &byte, 1) == 1);
}

__attribute__((noinline)) static void wait_poll(void)
{
	char byte;

	check(poll(&(struct pollfd){ .fd = polled[0], .events = POLLIN }, 1, -1) == 1);
	check(read(polled[0], &byte, 1) == 1);
}

__attribute__((noinline)) static void wait_file(void)
{
	static char page[4096];
	static int fd = -1;

	if (fd < 0)
		check((fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600)) >= 0);
	check(pwrite(fd, page, sizeof(page), 0) == sizeof(page) && fsync(fd) == 0);
}

__attribute__((noinline)) static void wait_process(void)
{
	pid_t child = fork();

	if (child == 0) {
		nap(2000000);
		_exit(0);
	}
	check(waitpid(child, NULL, 0) == child);
}

__attribute__((noinline)) static void wait_fault(void)
{
	static int turn;

	check(pages[turn++ * PAGE] == 0);
}

static void *fill(void *data)
{
	static char page[PAGE];
	struct uffd_msg message;

	for (int i = 0; i < TURNS; i++) {
		check(read(faults, &message, sizeof(message)) == sizeof(message));
		nap(2000000);
		check(ioctl(faults, UFFDIO_COPY,
			    &(struct uffdio_copy){ .dst = message.arg.pagefault.address &
							  ~(uint64_t)(PAGE - 1),
						   .src = (uintptr_t)page,
						   .len = PAGE }) == 0);
	}
	return data;
}

/* Leaves `pages` NULL if the kernel does not permit userfaultfd. */
static void watch_faults(void)
{
	void *memory = mmap(NULL, TURNS * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);

	faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	if (memory != MAP_FAILED && faults >= 0 &&
	    ioctl(faults, UFFDIO_API, &(struct uffdio_api){ .api = UFFD_API }) == 0 &&
	    ioctl(faults, UFFDIO_REGISTER,
		  &(struct uffdio_register){
			  .range = { .start = (uintptr_t)memory, .len = TURNS * PAGE },
			  .mode = UFFDIO_REGISTER_MODE_MISSING }) == 0)
		pages = memory;
}

static void *run(void *data)
{
	struct waiter *waiter = data;

	waiter->tid = (int)syscall(SYS_gettid);
	for (int i = 0; i < TURNS; i++) {
		uint64_t begin = now();

		waiter->wait();
		waiter->ns += now() - begin;
		if (waiter->pause)
			waiter->pause();
	}
	return NULL;
}

static void *feed(void *data)
{
	for (int i = 0; i < TURNS; i++) {
		nap(1000000);
		check(write(pipes[1], "x", 1) == 1 && write(sockets[1], "x", 1) == 1 &&
		      write(polled[1], "x", 1) == 1);
	}
	return data;
}

int main(int argc, char **argv)
{
	struct waiter waiters[] = {
		{ .name = "wait_timer", .wait = wait_timer },
		{ .name = "wait_futex", .wait = wait_futex, .pause = let_lock },
		{ .name = "wait_futex", .wait = wait_futex, .pause = let_lock },
		{ .name = "wait_pipe", .wait = wait_pipe },
		{ .name = "wait_network", .wait = wait_network },
		{ .name = "wait_poll", .wait = wait_poll },
		{ .name = "wait_file", .wait = wait_file },
		{ .name = "wait_process", .wait = wait_process },
		{ .name = "wait_fault", .wait = wait_fault },
	};
	size_t n = sizeof(waiters) / sizeof(waiters[0]);
	pthread_t feeder, filler;

	if (argc != 2)
		return 2;
	file = argv[1];
	check(pipe(pipes) == 0 && pipe(polled) == 0 &&
	      socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
	watch_faults();
	if (pages)
		check(pthread_create(&filler, NULL, fill, NULL) == 0);
	else
		n--; /* wait_fault */
	for (size_t i = 0; i < n; i++)
		check(pthread_create(&waiters[i].thread, NULL, run, &waiters[i]) == 0);
	check(pthread_create(&feeder, NULL, feed, NULL) == 0);
	for (size_t i = 0; i < n; i++)
		pthread_join(waiters[i].thread, NULL);
	pthread_join(feeder, NULL);
	if (pages)
		pthread_join(filler, NULL);
	for (size_t i = 0; i < n; i++)
		printf("%s %d %lu\n", waiters[i].name, waiters[i].tid,
		       (unsigned long)waiters[i].ns);
	return 0;
}
