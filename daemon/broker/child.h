/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <gio/gio.h>
#include <stdbool.h>
#include <sys/types.h>

/* From now on they are looked for beside this one, and the environment is not asked: for the system's service. */
void child_use_own_folder(void);

/* Starts one of our programs (PROF_LIBEXEC_DIR, else where they are installed) as spawn_program() does, in our session if we
 * lead one, else in one of its own. The descriptors are its 3, 4, …; `argument` may be NULL. */
bool child_spawn(const char *program, const char *argument, const int *fds, unsigned n_fds,
		 pid_t *ret_pid, GError **error);
