/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Child - the processes that profd starts: profd-engine and profd-files
 */
#include "config.h"

#include "daemon/broker/child.h"

#include "arch/base.h"
#include "daemon/broker/error.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>

#define FIRST_FD 3

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

/* Copies of them above the numbers that they get, so that none is overwritten before it is moved. */
static bool lift(const int *fds, unsigned n_fds, int ret_lifted[CHILD_MAX_FDS])
{
	for (unsigned i = 0; i < n_fds; i++) {
		ret_lifted[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, FIRST_FD + CHILD_MAX_FDS);
		if (ret_lifted[i] >= 0)
			continue;
		while (i-- > 0)
			close(ret_lifted[i]);
		return false;
	}
	return true;
}

static int spawn(const char *path, const char *program, const char *argument, const int *fds,
		 unsigned n_fds, pid_t *ret_pid)
{
	char *const argv[] = { (char *)program, (char *)argument, NULL };
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t all, none;
	int r;

	sigfillset(&all);
	sigemptyset(&none);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
	for (unsigned i = 0; i < n_fds; i++)
		posix_spawn_file_actions_adddup2(&actions, fds[i], FIRST_FD + (int)i);
	posix_spawn_file_actions_addclosefrom_np(&actions, FIRST_FD + (int)n_fds);
	posix_spawnattr_init(&attributes);
	/* sandbox.c has raised our session */
	posix_spawnattr_setflags(&attributes,
				 POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK |
					 (getsid(0) == getpid() ? 0 : POSIX_SPAWN_SETSID));
	posix_spawnattr_setsigdefault(&attributes, &all);
	posix_spawnattr_setsigmask(&attributes, &none);
	r = posix_spawn(ret_pid, path, &actions, &attributes, argv, environ);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	return r;
}

bool child_spawn(const char *program, const char *argument, const int *fds, unsigned n_fds,
		 pid_t *ret_pid, GError **error)
{
	g_autofree char *path = find_program(program);
	int lifted[CHILD_MAX_FDS] = { 0 }, r;

	assert(n_fds <= CHILD_MAX_FDS);
	r = lift(fds, n_fds, lifted) ? 0 : errno;
	if (r == 0) {
		r = spawn(path, program, argument, lifted, n_fds, ret_pid);
		while (n_fds > 0)
			close(lifted[--n_fds]);
	}
	if (r == 0)
		return true;
	return broker_fail(error, BROKER_ERROR_FAILED,
			   "starting \"%s\": %s; PROF_LIBEXEC_DIR names the folder that it is in",
			   path, g_strerror(r));
}
