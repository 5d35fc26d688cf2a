/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Heap-life - makes a known number of allocations before it exits or executes another program
 *
 *     heap-life reuse THREADS N  threads allocate, reallocate and free, also each other's blocks;
 *                                everything is freed
 *     heap-life hand-over N      one thread allocates, another one frees
 *     heap-life END N            N blocks of 1009 bytes, and then END: exit, _exit, kill, abort,
 *                                exec, fork, vfork, spawn
 *     heap-life inherit N        N blocks, which a process, its child and its grandchild all have;
 *                                each frees them
 *     heap-life phases N         blocks that are allocated, then replaced or reallocated, then
 *                                freed; each later phase begins when a byte arrives
 *     heap-life steady           blocks that are freed immediately, until SIGTERM; prints how many
 *
 * With END exec, fork, vfork or spawn, the new program or child allocates N blocks of 2003 bytes.
 */
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OWN_BYTES 1009u
#define CHILD_BYTES 2003u
#define N_SLOTS 64u

/* Declared in no header. */
extern void __libc_freeres(void);

static const char *program;
static _Atomic(char *) slots[N_SLOTS];
static unsigned long n_each;
static sem_t is_made, is_taken;
static char *volatile handed;

/* Keeps the compiler from removing the call. */
static char *keep(char *block)
{
	__asm__ volatile("" : "+r"(block) : : "memory");
	if (!block)
		_exit(99);
	return block;
}

static void allocate(unsigned long n, size_t size)
{
	for (unsigned long i = 0; i < n; i++)
		keep(malloc(size));
}

/* ---- Reuse ---- */

static void *reuse(void *data)
{
	unsigned seed = (unsigned)(uintptr_t)data;

	for (unsigned long i = 0; i < n_each; i++) {
		_Atomic(char *) *slot = &slots[(unsigned)rand_r(&seed) % N_SLOTS];
		char *block = atomic_exchange(slot, NULL);
		size_t size = 16 + (unsigned)rand_r(&seed) % 8 * 16;

		if (!block)
			block = keep(malloc(size));
		else if (i % 3)
			block = keep(realloc(block, size));
		block = atomic_exchange(slot, block);
		free(block);
		free(keep(realloc(keep(malloc(24)), 200)));
		/* so that the threads alternate even on one CPU */
		if (i % 16 == 0)
			sched_yield();
	}
	return NULL;
}

static int run_reuse(unsigned n_threads)
{
	pthread_t ids[16];

	for (uintptr_t i = 0; i < n_threads && i < 16; i++)
		if (pthread_create(&ids[i], NULL, reuse, (void *)(i + 1)))
			return 1;
	for (unsigned i = 0; i < n_threads && i < 16; i++)
		pthread_join(ids[i], NULL);
	for (unsigned i = 0; i < N_SLOTS; i++)
		free(slots[i]);
	/* Frees the libc's caches of ended threads. */
	__libc_freeres();
	return 0;
}

static void *take(void *data)
{
	for (unsigned long i = 0; i < n_each; i++) {
		sem_wait(&is_made);
		free(handed);
		sem_post(&is_taken);
	}
	return NULL;
}

static int run_hand_over(void)
{
	pthread_t id;

	sem_init(&is_made, 0, 0);
	sem_init(&is_taken, 0, 0);
	if (pthread_create(&id, NULL, take, NULL))
		return 1;
	for (unsigned long i = 0; i < n_each; i++) {
		handed = keep(malloc(OWN_BYTES));
		sem_post(&is_made);
		sem_wait(&is_taken);
	}
	pthread_join(id, NULL);
	__libc_freeres();
	return 0;
}

/* ---- Ends ---- */

extern char **environ;

static char **child_arguments(void)
{
	static char number[32];
	static char *arguments[] = { NULL, (char *)"child", number, NULL };

	arguments[0] = (char *)program;
	snprintf(number, sizeof(number), "%lu", n_each);
	return arguments;
}

static int run_end(const char *end)
{
	char **arguments = child_arguments();
	pid_t pid = 0;
	int status = 0;

	allocate(n_each, strcmp(end, "child") == 0 ? CHILD_BYTES : OWN_BYTES);
	if (strcmp(end, "_exit") == 0)
		_exit(0);
	if (strcmp(end, "kill") == 0)
		raise(SIGKILL);
	if (strcmp(end, "abort") == 0)
		abort();
	if (strcmp(end, "exec") == 0)
		execv(program, arguments);
	if (strcmp(end, "fork") == 0 && (pid = fork()) == 0) {
		allocate(n_each, CHILD_BYTES);
		_exit(0);
	}
	if (strcmp(end, "vfork") == 0 && (pid = vfork()) == 0) {
		execv(program, arguments);
		_exit(99);
	}
	if (strcmp(end, "spawn") == 0 &&
	    posix_spawn(&pid, program, NULL, NULL, arguments, environ) != 0)
		return 1;
	if (pid != 0 && (waitpid(pid, &status, 0) != pid || status != 0))
		return 1;
	return 0;
}

static int free_all(void **blocks)
{
	for (unsigned long i = 0; i < n_each; i++)
		free(i % 2 ? blocks[i] : keep(realloc(blocks[i], CHILD_BYTES)));
	return 0;
}

/* Three processes have the same blocks, and free them one after another. */
static int run_inherit(void)
{
	void **blocks = malloc(n_each * sizeof(*blocks));
	int status = 0, both[2];
	char byte;
	pid_t pid;

	for (unsigned long i = 0; i < n_each; i++)
		blocks[i] = keep(malloc(OWN_BYTES));
	if (pipe(both) < 0 || (pid = fork()) < 0)
		return 1;
	if (pid == 0) {
		close(both[1]);
		pid = fork();
		if (pid == 0)
			_exit(read(both[0], &byte, 1) != 0 || free_all(blocks));
		_exit(waitpid(pid, &status, 0) != pid || status != 0 || free_all(blocks));
	}
	free_all(blocks);
	close(both[1]);
	return waitpid(pid, &status, 0) != pid || status != 0;
}

static int run_phases(void)
{
	void **kept = malloc(n_each * sizeof(*kept)), **passed = malloc(n_each * sizeof(*kept));
	char byte;

	for (unsigned long i = 0; i < n_each; i++)
		kept[i] = keep(malloc(OWN_BYTES));
	if (read(0, &byte, 1) != 1)
		return 1;
	for (unsigned long i = 0; i < n_each; i++) {
		if (i % 2)
			free(kept[i]);
		passed[i] = i % 2 ? keep(malloc(CHILD_BYTES)) : keep(realloc(kept[i], CHILD_BYTES));
	}
	if (read(0, &byte, 1) != 1)
		return 1;
	for (unsigned long i = 0; i < n_each; i++) {
		free(passed[i]);
		free(keep(malloc(OWN_BYTES)));
	}
	return 0;
}

static volatile sig_atomic_t is_over;

static void end_steady(int number)
{
	is_over = number;
}

static int run_steady(void)
{
	unsigned long n = 0;

	signal(SIGTERM, end_steady);
	if (write(STDOUT_FILENO, "begun\n", 6) != 6)
		return 1;
	for (; !is_over; n++)
		free(keep(malloc(OWN_BYTES)));
	printf("%lu\n", n);
	return fflush(stdout);
}

int main(int argc, char **argv)
{
	program = argv[0];
	if (argc == 2 && strcmp(argv[1], "steady") == 0)
		return run_steady();
	if (argc < 3)
		return 2;
	n_each = strtoul(argv[argc - 1], NULL, 10);
	if (strcmp(argv[1], "reuse") == 0 && argc == 4)
		return run_reuse((unsigned)atoi(argv[2]));
	if (strcmp(argv[1], "hand-over") == 0)
		return run_hand_over();
	if (strcmp(argv[1], "inherit") == 0)
		return run_inherit();
	if (strcmp(argv[1], "phases") == 0)
		return run_phases();
	return run_end(argv[1]);
}
