/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Child - the processes that profd starts: profd-engine and profd-files
 */
#include "config.h"

#include "daemon/broker/child.h"

#include "arch/base.h"
#include "arch/spawn.h"
#include "daemon/broker/error.h"

#include <assert.h>

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

bool child_spawn(const char *program, const char *argument, const int *fds, unsigned n_fds,
		 pid_t *ret_pid, GError **error)
{
	g_autofree char *path = find_program(program);
	struct spawn spawn = {
		.path = path,
		.name = program,
		.argument = argument,
		.n_fds = n_fds,
		/* sandbox.c has raised our session */
		.own_session = getsid(0) != getpid(),
	};
	int r;

	assert(n_fds <= SPAWN_MAX_FDS);
	memcpy(spawn.fds, fds, n_fds * sizeof(*fds));
	r = spawn_program(&spawn, ret_pid);
	if (r == 0)
		return true;
	return broker_fail(error, BROKER_ERROR_FAILED, "starting \"%s\": %s; %s", path,
			   g_strerror(-r),
			   own_folder ? "it has to be installed beside profd"
				      : "PROF_LIBEXEC_DIR names the folder that it is in");
}
