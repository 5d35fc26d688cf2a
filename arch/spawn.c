/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Spawn - starts another program: profctl starts its private profd
 *
 * Defines what a started program inherits: stderr, which is also its stdout, and the given
 * descriptors, but none of this process's signal settings.
 */
#include "arch/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>

/* Duplicates the descriptors to numbers above the target numbers, so that moving one overwrites no
 * other. */
static int lift(const struct spawn *spawn, int ret_lifted[SPAWN_MAX_FDS])
{
	for (unsigned i = 0; i < spawn->n_fds; i++) {
		ret_lifted[i] =
			fcntl(spawn->fds[i], F_DUPFD_CLOEXEC, SPAWN_FIRST_FD + SPAWN_MAX_FDS);
		if (ret_lifted[i] < 0) {
			int failed = errno;

			while (i-- > 0)
				close(ret_lifted[i]);
			return -failed;
		}
	}
	return 0;
}

static int start(const struct spawn *spawn, const int lifted[SPAWN_MAX_FDS], pid_t *ret_pid)
{
	char *const argv[] = { (char *)spawn->name, (char *)spawn->argument, NULL };
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t all, none;
	int r;

	sigfillset(&all);
	sigemptyset(&none);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
	for (unsigned i = 0; i < spawn->n_fds; i++)
		posix_spawn_file_actions_adddup2(&actions, lifted[i], SPAWN_FIRST_FD + (int)i);
	posix_spawn_file_actions_addclosefrom_np(&actions, SPAWN_FIRST_FD + (int)spawn->n_fds);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setflags(&attributes,
				 POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK |
					 (spawn->own_session ? POSIX_SPAWN_SETSID : 0));
	posix_spawnattr_setsigdefault(&attributes, &all);
	posix_spawnattr_setsigmask(&attributes, &none);
	r = posix_spawn(ret_pid, spawn->path, &actions, &attributes, argv, environ);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	return -r;
}

int spawn_program(const struct spawn *spawn, pid_t *ret_pid)
{
	int lifted[SPAWN_MAX_FDS];
	int r = lift(spawn, lifted);

	if (r < 0)
		return r;
	r = start(spawn, lifted, ret_pid);
	for (unsigned i = 0; i < spawn->n_fds; i++)
		close(lifted[i]);
	return r;
}
