/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Steady - writes marks on request, and measures how long the calls take
 *
 * Each letter on standard input requests an action, which ends with a line on standard output:
 *     s    some marks
 *     m    many marks, more than fit into all rings of the first arena
 *     t    300 threads, one after another
 *     c    40 threads at once
 *     f    a child that writes some marks
 *     k    a child that writes in four threads and is killed meanwhile
 *     r    many marks in a SCHED_FIFO thread; o: in a SCHED_RR thread
 *     a    40 threads at once, while the process gets no more memory
 * The line is "TRUE FALSE WAITS WAITED LONGEST": marks reported as recorded, marks reported as not
 * recorded, how many of these calls waited, and for how many microseconds, in total and at most.
 * The program exits at the end of its input. The first argument is a file in which every process
 * counts its marks before and after each call, as two numbers of 8 bytes, so that the counts
 * survive a kill.
 */
#include "libcollector/prof-collector.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MANY 100000
#define N_AT_ONCE 40
#define N_IN_TURN 300
#define ERRNO 4711
#define SLOW_NS 2000000 /* a call that takes longer, and leaves the CPU voluntarily, has waited */

static struct counts {
	atomic_ulong begun, recorded;
} * counts;

static atomic_ulong n_true, n_false, n_waits, waited_us, longest_us;
static pthread_barrier_t barrier;

static void must(bool is_good, int line)
{
	if (is_good)
		return;
	dprintf(2, "steady: line %d, errno %d\n", line, errno);
	_exit(99);
}
#define MUST(condition) must(condition, __LINE__)

static long count_switches(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw;
}

static void note_wait(uint64_t us)
{
	unsigned long longest = atomic_load(&longest_us);

	atomic_fetch_add(&n_waits, 1);
	atomic_fetch_add(&waited_us, us);
	while (us > longest && !atomic_compare_exchange_weak(&longest_us, &longest, us))
		;
}

static void mark(const char *name, uint64_t n)
{
	const struct prof_arg arg = { .name = "n", .kind = PROF_ARG_U64, .value.u64 = n };
	uint64_t start = prof_clock_ns(), took;
	static __thread long switches = -1;
	bool is_recorded;

	if (switches < 0)
		switches = count_switches();
	errno = ERRNO;
	atomic_fetch_add(&counts->begun, 1);
	is_recorded = prof_mark_instant("steady", name, &arg, 1);
	if (is_recorded)
		atomic_fetch_add(&counts->recorded, 1);
	MUST(errno == ERRNO);
	atomic_fetch_add(is_recorded ? &n_true : &n_false, 1);
	took = prof_clock_ns() - start;
	if (took > SLOW_NS) {
		long now = count_switches();

		if (now > switches)
			note_wait(took / 1000);
		switches = now;
	}
}

static void marks(const char *name, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		mark(name, i);
}

static void *mark_some(void *data)
{
	marks("thread", 10);
	return NULL;
}

static void run_in_turn(void)
{
	for (int i = 0; i < N_IN_TURN; i++) {
		pthread_t id;

		MUST(pthread_create(&id, NULL, mark_some, NULL) == 0);
		pthread_join(id, NULL);
	}
}

static void *mark_at_once(void *data)
{
	pthread_barrier_wait(&barrier);
	marks("at once", 200);
	pthread_barrier_wait(&barrier);
	return NULL;
}

/* Creates the threads before the limit applies, so that their stacks exist. */
static void run_at_once(bool is_limited)
{
	struct rlimit before, limit = { 0, 0 };
	pthread_t ids[N_AT_ONCE];

	MUST(getrlimit(RLIMIT_AS, &before) == 0);
	limit.rlim_max = before.rlim_max;
	pthread_barrier_init(&barrier, NULL, N_AT_ONCE + 1);
	for (int i = 0; i < N_AT_ONCE; i++)
		MUST(pthread_create(&ids[i], NULL, mark_at_once, NULL) == 0);
	MUST(!is_limited || setrlimit(RLIMIT_AS, &limit) == 0);
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	MUST(setrlimit(RLIMIT_AS, &before) == 0);
	for (int i = 0; i < N_AT_ONCE; i++)
		pthread_join(ids[i], NULL);
}

static void run_child(void)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		marks("child", 100);
		_exit(0);
	}
	MUST(waitpid(pid, &status, 0) == pid && status == 0);
}

static void *mark_for_ever(void *data)
{
	for (uint64_t i = 0;; i++)
		mark("for ever", i);
	return NULL;
}

/* Kills a child at a random point. */
static void kill_child(void)
{
	uint64_t before = atomic_load(&counts->recorded);
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		pthread_t id;

		mark("for ever", 0);
		if (!prof_collector_enabled()) {
			atomic_fetch_sub(&counts->begun, 1);
			_exit(5);
		}
		for (int i = 0; i < 3; i++)
			pthread_create(&id, NULL, mark_for_ever, NULL);
		mark_for_ever(NULL);
	}
	while (atomic_load(&counts->recorded) < before + 500 && waitpid(pid, &status, WNOHANG) == 0)
		usleep((useconds_t)(prof_clock_ns() % 1000));
	/* If the child did not register in time, try another one. */
	if (atomic_load(&counts->recorded) < before + 500) {
		kill_child();
		return;
	}
	MUST(kill(pid, SIGKILL) == 0);
	MUST(waitpid(pid, &status, 0) == pid && WTERMSIG(status) == SIGKILL);
}

static void *mark_realtime(void *data)
{
	const struct sched_param parameter = { .sched_priority = 1 };

	MUST(pthread_setschedparam(pthread_self(), *(const int *)data, &parameter) == 0);
	marks("real-time", MANY);
	return NULL;
}

static void run_realtime(int policy)
{
	pthread_t id;

	MUST(pthread_create(&id, NULL, mark_realtime, &policy) == 0);
	pthread_join(id, NULL);
}

static void run(char what)
{
	switch (what) {
	case 's':
		marks("some", 10);
		break;
	case 'm':
		marks("many", MANY);
		break;
	case 't':
		run_in_turn();
		break;
	case 'c':
		run_at_once(false);
		break;
	case 'a':
		run_at_once(true);
		break;
	case 'f':
		run_child();
		break;
	case 'k':
		kill_child();
		break;
	case 'r':
		run_realtime(SCHED_FIFO);
		break;
	case 'o':
		run_realtime(SCHED_RR);
		break;
	default:
		MUST(false);
	}
}

int main(int argc, char **argv)
{
	int fd = argc == 2 ? open(argv[1], O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
	char what;

	MUST(fd >= 0 && ftruncate(fd, sizeof(*counts)) == 0);
	counts = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	MUST(counts != MAP_FAILED);
	close(fd);
	while (read(STDIN_FILENO, &what, 1) == 1) {
		run(what);
		printf("%lu %lu %lu %lu %lu\n", atomic_exchange(&n_true, 0),
		       atomic_exchange(&n_false, 0), atomic_exchange(&n_waits, 0),
		       atomic_exchange(&waited_us, 0), atomic_exchange(&longest_us, 0));
		fflush(stdout);
	}
	return 0;
}
