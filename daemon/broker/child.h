/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <gio/gio.h>
#include <stdbool.h>
#include <sys/types.h>

/* Makes later calls look for programs in the folder of profd's program and ignore the environment.
 * For the system service. */
void child_use_own_folder(void);

#define CHILD_FREE_FD 64 /* first number that is not reserved for children's descriptors */

/* Reserves the numbers from 3 to CHILD_FREE_FD - 1, and replaces descriptors with these numbers.
 * Must be called before there is a client or a child. Returns false with errno. */
bool child_keep_numbers(void);

/* Starts a program from PROF_LIBEXEC_DIR, else from the installation directory; in profd's session
 * if profd leads one, else in a new session. The descriptors become 3 and 4, stdin is null, stdout
 * and stderr are profd's stderr, and no signal is blocked or ignored. `argument` may be NULL. */
bool child_spawn(const char *program, const char *argument, const int *fds, unsigned n_fds,
		 pid_t *ret_pid, GError **error);
