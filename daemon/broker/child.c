/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Child - starts profd-engine and profd-files
 *
 * profd holds files that its clients opened. If a file's server does not answer, a process that has
 * a copy of the file's descriptor can neither close it nor execute a program. So a child first
 * shares profd's descriptor table, and then replaces it by a copy of only the first few entries
 * (CLOSE_RANGE_UNSHARE). The kernel copies the table in units of 64 entries, so the descriptors
 * below 64 are reserved for children.
 * Invariants: (1) a child has only descriptors 0 to 2 and those passed to it
 *             (2) a child never closes a descriptor that a client sent
 *                 [test_attack_capture: server that hangs]
 * Main thread only.
 */
#include "config.h"

#include "arch/errno-text.h"
#include "daemon/broker/child.h"

#include "arch/base.h"
#include "daemon/broker/error.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define FIRST_FD 3
#define MAX_FDS 2
#define STACK_BYTES 65536

static bool own_folder;

void child_use_own_folder(void)
{
	own_folder = true;
}

static char *find_program(const char *name)
{
	const char *dir = own_folder ? NULL : secure_getenv("PROF_LIBEXEC_DIR");
	g_autofree char *self = own_folder ? g_file_read_link("/proc/self/exe", NULL) : NULL;
	g_autofree char *folder = self ? g_path_get_dirname(self) : NULL;

	if (folder)
		dir = folder;
	return g_build_filename(dir ? dir : PROF_DEFAULT_LIBEXEC_DIR, name, NULL);
}

/* ---- Reserved numbers ------------------------------------------------------------------------ */

static bool numbers_kept;

static bool release_numbers(void)
{
	CLEANUP_CLOSE int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	bool ok = null >= 0;

	for (int fd = FIRST_FD; ok && fd < CHILD_FREE_FD; fd++)
		ok = fd == null || dup3(null, fd, O_CLOEXEC) >= 0;
	if (null < CHILD_FREE_FD)
		steal_fd(&null);
	return ok;
}

bool child_keep_numbers(void)
{
	numbers_kept = release_numbers();
	return numbers_kept;
}

/* ---- The child ------------------------------------------------------------------------------- */

struct start {
	const char *path;
	char *const *argv;
	char *const *environment;
	unsigned n_fds;
	bool own_session; /* so that a Ctrl-C at the terminal does not reach the child */
	int failed;
};

/* Runs in profd's memory, while the calling thread waits. */
static int run_child(void *data)
{
	const struct sigaction by_default = { .sa_handler = SIG_DFL };
	struct start *start = data;
	sigset_t no_signals;
	int null;

	if (close_range(FIRST_FD + start->n_fds, ~0U, CLOSE_RANGE_UNSHARE) == 0) {
		null = open("/dev/null", O_RDONLY);
		if (start->own_session)
			setsid();
		/* All signals are blocked, so none of profd's handlers can run here. */
		for (int i = 1; i < NSIG; i++)
			if (i != SIGKILL && i != SIGSTOP)
				sigaction(i, &by_default, NULL);
		sigemptyset(&no_signals);
		sigprocmask(SIG_SETMASK, &no_signals, NULL);
		if (null >= 0 && dup2(null, STDIN_FILENO) >= 0 &&
		    dup2(STDERR_FILENO, STDOUT_FILENO) >= 0 && close(null) == 0) {
			for (unsigned i = 0; i < start->n_fds; i++)
				fcntl(FIRST_FD + (int)i, F_SETFD, 0);
			execve(start->path, start->argv, start->environment);
		}
	}
	start->failed = errno;
	_exit(127);
}

/* Returns 0 or an errno. */
static int clone_child(struct start *start, pid_t *ret_pid)
{
	void *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	sigset_t all, before;
	pid_t pid;

	if (stack == MAP_FAILED)
		return errno;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	pid = clone(run_child, (char *)stack + STACK_BYTES,
		    CLONE_VM | CLONE_VFORK | CLONE_FILES | SIGCHLD, start);
	if (pid < 0)
		start->failed = errno;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	munmap(stack, STACK_BYTES);
	if (pid > 0 && start->failed)
		waitpid(pid, NULL, 0);
	*ret_pid = pid;
	return start->failed;
}

bool child_spawn(const char *program, const char *argument, const int *fds, unsigned n_fds,
		 pid_t *ret_pid, GError **error)
{
	g_autofree char *path = find_program(program);
	char *const argv[] = { (char *)program, (char *)argument, NULL };
	/* Users preload libraries into the program that they record. A preloaded allocator may be
	 * unable to start in the engine's sandbox. */
	g_auto(GStrv) environment = g_environ_unsetenv(g_get_environ(), "LD_PRELOAD");
	struct start start = {
		.path = path,
		.argv = argv,
		.environment = environment,
		.n_fds = n_fds,
		/* If profd leads its process session, the child stays in it, because sandbox.c has
		 * raised the session's priority. */
		.own_session = getsid(0) != getpid(),
	};
	pid_t pid = 0;
	int failed = 0;

	assert(n_fds <= MAX_FDS && numbers_kept);
	for (unsigned i = 0; i < n_fds && failed == 0; i++)
		if (dup3(fds[i], FIRST_FD + (int)i, O_CLOEXEC) < 0)
			failed = errno;
	if (failed == 0)
		failed = clone_child(&start, &pid);
	release_numbers();
	if (failed == 0) {
		*ret_pid = pid;
		return true;
	}
	return broker_fail(error, BROKER_ERROR_FAILED, "starting \"%s\": %s%s", path,
			   ERRNO_TEXT(failed),
			   failed == EAGAIN || failed == ENOMEM ? ""
			   : own_folder ? "; it has to be installed beside profd"
					: "; PROF_LIBEXEC_DIR names the folder that it is in");
}
