/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Hidden child - starts a program from within a process that does not notice it
 *
 *     this process ── clone, exit signal 0 ──▶ middle ── clone ──▶ the program
 *
 * When middle exits, init becomes the program's parent.
 *
 * A child with exit signal 0 sends no signal, and wait() skips it unless the caller requests such
 * children. An exec makes such a child an ordinary one, so a second child is needed. Both children
 * borrow this process's memory like a child of vfork(), so the cost does not depend on the
 * process's size; the process's other threads continue. If this process is a reaper of orphans
 * (PR_SET_CHILD_SUBREAPER), it stops being one meanwhile; otherwise the program would become its
 * child.
 *
 * All signals are blocked meanwhile: no handler may run in this memory under another PID.
 * Invariants: (1) no child is left afterwards, whatever failed   [test_recorder: wait, subreaper]
 *             (2) the program inherits only the directory, limits, ids, one descriptor, and the
 *                 environment except the variables of is_left_out()  [test_recorder: inherited]
 * Threads: any, one at a time.
 */
#include "libcollector/register/hidden-child.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define STACK_BYTES (64u << 10)
#define KERNEL_SIGSET_BYTES 8L
#define N_SIGNALS 64
#define FIRST_FREE_FD 16
#define MAX_VARIABLES 65536

/* For the functions that run in the two children, which borrow this process's memory. Sanitizers
 * must not instrument such functions, because some of them never return. */
#define BORROWED __attribute__((no_sanitize("address", "thread", "undefined")))

extern char **environ;

struct start {
	const struct hidden_child *child;
	const char **variables;
	char *stack; /* end of the second clone's stack */
	int error;   /* errno of the failed step */
};

/* ---- The environment ---- */

static bool is_variable(const char *entry, const char *name)
{
	size_t i = 0;

	while (name[i] && entry[i] == name[i])
		i++;
	return !name[i] && entry[i] == '=';
}

const char *hidden_child_variable(const char *name)
{
	for (char **entry = environ; entry && *entry; entry++)
		if (is_variable(*entry, name)) {
			const char *value = *entry;

			while (*value != '=')
				value++;
			return value + 1;
		}
	return NULL;
}

/* Returns whether a variable is meant only for this process. */
static bool is_left_out(const char *entry)
{
	static const char names[][20] = { "LD_PRELOAD",  "LD_AUDIT",           "PROF_CONTROL",
					  "PROF_MEMORY", "SYSPROF_CONTROL_FD", "NOTIFY_SOCKET",
					  "LISTEN_FDS",  "LISTEN_PID" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (is_variable(entry, names[i]))
			return true;
	return false;
}

/* ---- In borrowed memory ---- */

BORROWED static void reset_signals(void)
{
	/* zeros, at least as long as the kernel's struct sigaction: SIG_DFL, no flags, an empty
	 * mask */
	static const uint64_t by_default[8];
	static const uint64_t none;

	for (long i = 1; i <= N_SIGNALS; i++)
		syscall(SYS_rt_sigaction, i, by_default, NULL, KERNEL_SIGSET_BYTES);
	syscall(SYS_rt_sigprocmask, (long)SIG_SETMASK, &none, NULL, KERNEL_SIGSET_BYTES);
}

/* Sets up the program's descriptors. Changes only a copy, because CLONE_FILES is not set. */
BORROWED static bool arrange_fds(int fd)
{
	long kept = syscall(SYS_fcntl, fd, (long)F_DUPFD, (long)FIRST_FREE_FD);
	long null = syscall(SYS_openat, (long)AT_FDCWD, "/dev/null", (long)O_RDWR, 0L);

	if (kept < 0 || null < 0)
		return false;
	for (long i = 0; i < HIDDEN_CHILD_FD; i++)
		if (i != null && syscall(SYS_dup3, null, i, 0L) < 0)
			return false;
	return syscall(SYS_dup3, kept, (long)HIDDEN_CHILD_FD, 0L) >= 0 &&
	       syscall(SYS_close_range, (long)HIDDEN_CHILD_FD + 1, (long)UINT32_MAX, 0L) == 0;
}

BORROWED static int run_program(void *data)
{
	static const struct sched_param ordinary;
	struct start *start = data;

	syscall(SYS_setsid);
	syscall(SYS_sched_setscheduler, 0L, (long)SCHED_OTHER, &ordinary);
	if (arrange_fds(start->child->fd)) {
		reset_signals();
		syscall(SYS_execve, start->child->path, start->child->argv, start->variables);
	}
	start->error = errno;
	syscall(SYS_exit_group, 127L);
	return 0;
}

BORROWED static int run_middle(void *data)
{
	struct start *start = data;
	int pid = clone(run_program, start->stack, CLONE_VM | CLONE_VFORK | SIGCHLD, start);

	if (pid < 0)
		start->error = errno;
	else if (start->error)
		syscall(SYS_wait4, (long)pid, NULL, (long)__WALL, NULL);
	syscall(SYS_exit_group, 0L);
	return 0;
}

/* ---- Starting ---- */

static int clone_both(struct start *start, char *stack)
{
	int is_reaper = 0, pid;

	syscall(SYS_prctl, (long)PR_GET_CHILD_SUBREAPER, &is_reaper, 0L, 0L, 0L);
	if (is_reaper)
		syscall(SYS_prctl, (long)PR_SET_CHILD_SUBREAPER, 0L, 0L, 0L, 0L);
	pid = clone(run_middle, stack, CLONE_VM | CLONE_VFORK, start);
	if (pid < 0)
		start->error = errno;
	else
		syscall(SYS_wait4, (long)pid, NULL, (long)__WALL, NULL);
	if (is_reaper)
		syscall(SYS_prctl, (long)PR_SET_CHILD_SUBREAPER, 1L, 0L, 0L, 0L);
	return -start->error;
}

int hidden_child_start(const struct hidden_child *child)
{
	size_t n = 0, n_copied = 0, bytes;
	uint64_t all = ~UINT64_C(0), before = 0;
	struct start start = { .child = child };
	char *memory;
	int r;

	while (environ && environ[n] && n < MAX_VARIABLES)
		n++;
	bytes = 2 * STACK_BYTES + (n + 1) * sizeof(char *);
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return -errno;
	start.stack = memory + 2 * STACK_BYTES;
	start.variables = (const char **)(void *)start.stack;
	for (size_t i = 0; i < n && environ[i]; i++)
		if (!is_left_out(environ[i]))
			start.variables[n_copied++] = environ[i];
	syscall(SYS_rt_sigprocmask, (long)SIG_SETMASK, &all, &before, KERNEL_SIGSET_BYTES);
	r = clone_both(&start, memory + STACK_BYTES);
	syscall(SYS_rt_sigprocmask, (long)SIG_SETMASK, &before, NULL, KERNEL_SIGSET_BYTES);
	munmap(memory, bytes);
	return r;
}
