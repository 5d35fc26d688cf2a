/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Sysprof-load - records with Debian's libsysprof-capture-4, as GTK does; prints N, and whether
 * the library records
 *
 *     sysprof-load MODE [N]
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <sysprof-capture.h>
#include <unistd.h>

#define N_THREADS 8

/* Disables leak checks, because the library keeps the buffers of each thread until exit. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);

int __lsan_is_turned_off(void)
{
	return 1;
}

static unsigned long count = 1000;

static void mark(const char *group, const char *name, unsigned long n)
{
	for (unsigned long i = 0; i < n; i++)
		sysprof_collector_mark(SYSPROF_CAPTURE_CURRENT_TIME, 0, group, name, NULL);
}

/* Records N spans, N log lines, and N values of each of two counters. */
static void everything(void)
{
	SysprofCaptureCounter counters[2] = { 0 };
	unsigned int first = sysprof_collector_request_counters(2);

	for (unsigned int i = 0; i < 2; i++) {
		snprintf(counters[i].category, sizeof(counters[i].category), "load");
		snprintf(counters[i].name, sizeof(counters[i].name), i ? "real" : "whole");
		counters[i].id = first + i;
		counters[i].type = i ? SYSPROF_CAPTURE_COUNTER_DOUBLE
				     : SYSPROF_CAPTURE_COUNTER_INT64;
	}
	sysprof_collector_define_counters(counters, 2);
	for (unsigned long i = 0; i < count; i++) {
		const unsigned int ids[2] = { first, first + 1 };
		const SysprofCaptureCounterValue values[2] = { { .v64 = (int64_t)i },
							       { .vdbl = (double)i / 2 } };
		int64_t begin = SYSPROF_CAPTURE_CURRENT_TIME;

		sysprof_collector_set_counters(ids, values, 2);
		sysprof_collector_mark_printf(begin, SYSPROF_CAPTURE_CURRENT_TIME - begin, "load",
					      "span", "number %lu", i);
		sysprof_collector_log_printf(1 << 4, "load", "line %lu", i);
	}
}

static void *run_thread(void *data)
{
	mark("load", "thread", count);
	return NULL;
}

static void threads(void)
{
	pthread_t threads[N_THREADS];

	for (size_t i = 0; i < N_THREADS; i++)
		if (pthread_create(&threads[i], NULL, run_thread, NULL) != 0)
			abort();
	for (size_t i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
}

static void wait_for(pid_t pid)
{
	int status;

	if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
		abort();
}

/* The library does not handle fork(), so both processes write to one ring. */
static void fork_both(void)
{
	pid_t pid;

	mark("load", "before", 1);
	pid = fork();
	mark("load", "both", count);
	if (pid == 0)
		_exit(0);
	wait_for(pid);
	mark("load", "after", count);
}

/* Many processes request a ring at the same time. */
static void children(void)
{
	pid_t pids[N_THREADS];

	for (size_t i = 0; i < N_THREADS; i++)
		if ((pids[i] = fork()) == 0) {
			char name[32];

			snprintf(name, sizeof(name), "child %d", (int)getpid());
			mark("load", name, count);
			_exit(0);
		}
	for (size_t i = 0; i < N_THREADS; i++)
		wait_for(pids[i]);
	/* so that the last requests are read before the socket closes */
	usleep(300000);
}

static void exec_twice(char **argv)
{
	mark("load", argv[2] ? "second" : "first", count);
	if (argv[2])
		return;
	execl("/proc/self/exe", argv[0], "exec", "again", NULL);
	abort();
}

static int control_fd(void)
{
	const char *text = getenv("SYSPROF_CONTROL_FD");

	return text ? atoi(text) : -1;
}

static void check_status(void)
{
	if (errno != 0)
		abort();
}

/* The number of the library's descriptor now belongs to another file. */
static void reused(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	if (fd < 0 || dup2(fd, control_fd()) < 0)
		abort();
	mark("load", "nobody sees it", count);
	if (fcntl(control_fd(), F_GETFD) < 0)
		abort();
}

static void closed(void)
{
	closefrom(3);
	mark("load", "nobody sees it", count);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} modes[] = { { "everything", everything }, { "threads", threads }, { "fork", fork_both },
		      { "children", children },     { "reused", reused },   { "closed", closed } };

	if (argc > 2 && strcmp(argv[1], "exec") != 0)
		count = strtoul(argv[2], NULL, 10);
	errno = 0;
	for (size_t i = 0; argc > 1 && i < sizeof(modes) / sizeof(modes[0]); i++)
		if (strcmp(modes[i].name, argv[1]) == 0)
			modes[i].run();
	if (argc > 1 && strcmp(argv[1], "exec") == 0)
		exec_twice(argv);
	if (argc > 1 && strcmp(argv[1], "flat") == 0) {
		mark("load", "flat", count);
		check_status();
	}
	printf("%lu %d\n", count, sysprof_collector_is_active());
	return 0;
}
