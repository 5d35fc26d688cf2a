/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * record-self STEP…: records itself and performs the steps. Prints a line for each call of the
 * recorder: its name, its result, and the message of a failed open or close. Fails if errno
 * changes.
 *
 *     frequency=HZ append=1 profctl=PATH bus=WHICH group=NAME
 *                                             options of the next open
 *     open=FILE begin=NAME end=NAME close     calls the recorder; an empty NAME is passed as NULL
 *     inside=MS outside=MS                    spends CPU time in a function of that name
 *     blocks=N                                N blocks of 1 ms with outside() between them; prints
 *                                             the blocks' CPU time, and the nanoseconds that a call
 *                                             of begin took on average
 *     short=N                                 N empty blocks
 *     sleep=MS
 *     threads=N                               N threads at once, with blocks of the same name
 *     fork=STEP clone=STEP vfork              a child performs STEP; after vfork, the child ends
 *                                             the block "block"
 *     sockets                                 prints the number of open sockets
 *     load=FILE                               calls work(50) of the shared library FILE
 *     wait reap chld ignore subreaper mask    child processes: print results, or set the mode
 *     go                                      prints "ready", and waits for a line
 *     exec                                    executes `sleep 0.1`
 */
#include "libcollector/prof-collector.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct prof_recorder_options options;
static volatile sig_atomic_t n_chld;
static volatile unsigned long sink;

static double cpu_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static __attribute__((noinline)) void inside(const char *ms)
{
	double end_ms = cpu_ms() + atof(ms);

	while (cpu_ms() < end_ms)
		for (int i = 0; i < 10000; i++)
			sink += (unsigned long)i;
}

static __attribute__((noinline)) void outside(const char *ms)
{
	double end_ms = cpu_ms() + atof(ms);

	while (cpu_ms() < end_ms)
		for (int i = 0; i < 10000; i++)
			sink ^= (unsigned long)i;
}

static const char *or_null(const char *name)
{
	return *name ? name : NULL;
}

static int say(const char *name, int status)
{
	if (errno != EXDEV) {
		printf("errno\n");
		exit(3);
	}
	printf("%s %d\n", name, status);
	return status;
}

static void take_frequency(const char *value)
{
	options.frequency = (uint32_t)atoi(value);
}

static void take_append(const char *value)
{
	options.append = (uint32_t)atoi(value);
}

static void take_profctl(const char *value)
{
	options.profctl = or_null(value);
}

static void take_bus(const char *value)
{
	options.bus = value;
}

static void take_group(const char *value)
{
	options.group = value;
}

static void take_open(const char *path)
{
	if (say("open", prof_recorder_open(path, &options)) != 0)
		printf("message %s\n", prof_recorder_message());
}

static void take_begin(const char *name)
{
	say("begin", prof_recorder_begin(or_null(name)));
}

static void take_end(const char *name)
{
	say("end", prof_recorder_end(or_null(name)));
}

static void take_close(const char *value)
{
	(void)value;
	if (say("close", prof_recorder_close()) != 0)
		printf("message %s\n", prof_recorder_message());
}

static double cpu_ns(void)
{
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return (double)used.tv_sec * 1e9 + (double)used.tv_nsec;
}

static void take_blocks(const char *value)
{
	double used_ns = 0;
	uint64_t took_ns = 0;
	int n = atoi(value), failed = 0;

	for (int i = 0; i < n; i++) {
		uint64_t start_ns = prof_clock_ns();

		failed += prof_recorder_begin("short") != 0;
		took_ns += prof_clock_ns() - start_ns;
		used_ns -= cpu_ns();
		inside("1");
		used_ns += cpu_ns();
		failed += prof_recorder_end("short") != 0;
		outside("0.2");
	}
	say("blocks", failed);
	printf("cpu %.0f\ntook %.0f\n", used_ns, (double)took_ns / n);
}

static void take_short(const char *value)
{
	int failed = 0;

	for (int i = atoi(value); i > 0; i--)
		failed += prof_recorder_begin("short") != 0 || prof_recorder_end("short") != 0;
	say("short", failed);
}

static void take_sleep(const char *value)
{
	usleep((useconds_t)atoi(value) * 1000);
}

static void *use_blocks(void *data)
{
	int *failed = data;

	for (int i = 0; i < 20; i++) {
		__atomic_add_fetch(failed, prof_recorder_begin("shared") != 0, __ATOMIC_RELAXED);
		inside("0.5");
		__atomic_add_fetch(failed, prof_recorder_end("shared") != 0, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void take_threads(const char *value)
{
	pthread_t threads[16];
	int n = atoi(value), failed = 0;

	for (int i = 0; i < n; i++)
		pthread_create(&threads[i], NULL, use_blocks, &failed);
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	errno = EXDEV;
	say("threads", failed);
}

static void take_step(const char *step);

static void be_child_or_wait(pid_t pid, const char *step)
{
	errno = EXDEV;
	if (pid == 0) {
		take_step(step);
		exit(0);
	}
	waitpid(pid, NULL, 0);
	errno = EXDEV;
}

static void take_fork(const char *step)
{
	fflush(stdout);
	be_child_or_wait(fork(), step);
}

/* Clones by a system call, so libc does not run its handlers for fork(). */
static void take_clone(const char *step)
{
	fflush(stdout);
	be_child_or_wait((pid_t)syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L), step);
}

static void take_sockets(const char *value)
{
	struct stat status;
	int n = 0;

	(void)value;
	for (int fd = 0; fd < 2000; fd++)
		n += fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode);
	printf("sockets %d\n", n);
	errno = EXDEV;
}

static void take_vfork(const char *value)
{
	static volatile int status;
	pid_t pid = vfork();

	(void)value;
	if (pid == 0) {
		status = prof_recorder_end(NULL);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	errno = EXDEV;
	say("end", status);
}

static void take_load(const char *path)
{
	void *library = dlopen(path, RTLD_NOW);
	void (*work)(int ms) = library ? (void (*)(int))dlsym(library, "work") : NULL;

	if (!work)
		exit(4);
	work(50);
	errno = EXDEV;
}

static void take_wait(const char *value)
{
	int status = waitpid(-1, NULL, WNOHANG);

	(void)value;
	printf("wait %s\n", status == -1 && errno == ECHILD ? "ECHILD" : "child");
	errno = EXDEV;
}

/* Reaps all children. */
static void take_reap(const char *value)
{
	int n = 0;

	(void)value;
	while (wait(NULL) > 0)
		n++;
	printf("reap %d\n", n);
	errno = EXDEV;
}

static void on_chld(int number)
{
	(void)number;
	n_chld++;
}

static void take_chld(const char *value)
{
	(void)value;
	printf("chld %d\n", (int)n_chld);
}

static void take_ignore(const char *value)
{
	(void)value;
	signal(SIGCHLD, SIG_IGN);
}

static void take_subreaper(const char *value)
{
	prctl(PR_SET_CHILD_SUBREAPER, 1L, 0L, 0L, 0L);
	(void)value;
}

static void take_mask(const char *value)
{
	sigset_t all;

	(void)value;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	for (int i = 1; i < 32; i++)
		if (i != SIGKILL && i != SIGSTOP && i != SIGCHLD)
			signal(i, SIG_IGN);
	errno = EXDEV;
}

static void take_go(const char *value)
{
	char line[8];

	(void)value;
	printf("ready\n");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		exit(0);
	errno = EXDEV;
}

static void take_exec(const char *value)
{
	(void)value;
	fflush(stdout);
	execlp("sleep", "sleep", "0.1", (char *)NULL);
}

static const struct step {
	const char *name;
	void (*take)(const char *value);
} steps[] = {
	{ "frequency", take_frequency },
	{ "append", take_append },
	{ "profctl", take_profctl },
	{ "bus", take_bus },
	{ "group", take_group },
	{ "open", take_open },
	{ "begin", take_begin },
	{ "end", take_end },
	{ "close", take_close },
	{ "inside", inside },
	{ "outside", outside },
	{ "blocks", take_blocks },
	{ "short", take_short },
	{ "sleep", take_sleep },
	{ "threads", take_threads },
	{ "fork", take_fork },
	{ "clone", take_clone },
	{ "sockets", take_sockets },
	{ "vfork", take_vfork },
	{ "load", take_load },
	{ "wait", take_wait },
	{ "reap", take_reap },
	{ "chld", take_chld },
	{ "ignore", take_ignore },
	{ "subreaper", take_subreaper },
	{ "mask", take_mask },
	{ "go", take_go },
	{ "exec", take_exec },
};

static void take_step(const char *step)
{
	size_t n = strcspn(step, "=");

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		if (strlen(steps[i].name) == n && strncmp(steps[i].name, step, n) == 0) {
			steps[i].take(step[n] ? step + n + 1 : "");
			return;
		}
	fprintf(stderr, "record-self: no step '%s'\n", step);
	exit(2);
}

int main(int argc, char **argv)
{
	signal(SIGCHLD, on_chld);
	errno = EXDEV; /* no call here returns this error */
	for (int i = 1; i < argc; i++)
		take_step(argv[i]);
	return 0;
}
