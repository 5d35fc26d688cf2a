/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <gio/gio.h>
#include <stdbool.h>
#include <sys/types.h>

/* Makes later calls of child_spawn() look for programs in the folder of profd's own program and
 * ignore PROF_LIBEXEC_DIR. For the system service. */
void child_use_own_folder(void);

#define CHILD_FREE_FD 64 /* first descriptor that is not reserved for children */

/* Reserves descriptors 3 to CHILD_FREE_FD - 1 by opening /dev/null on each. Closes whatever was
 * open there. Must be called before there is a client or a child. On failure, returns false and
 * sets errno. */
bool child_keep_numbers(void);

/* Starts a program from PROF_LIBEXEC_DIR, else from the installation directory. The child is in
 * profd's process session (setsid(2)) if profd leads one, else in a new one. `fds` become
 * descriptors 3 and 4, stdin is null, stdout and stderr are profd's stderr, and no signal is
 * blocked or ignored. `argument` may be NULL. */
bool child_spawn(const char *program, const char *argument, const int *fds, unsigned n_fds,
		 pid_t *ret_pid, GError **error);
