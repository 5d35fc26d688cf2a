/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <gio/gio.h>
#include <stdbool.h>
#include <sys/types.h>

/* From now on looks for programs beside profd's own and ignores the environment. The system service
 * uses this. */
void child_use_own_folder(void);

#define CHILD_FREE_FD 64 /* the first number that is not reserved for children's descriptors */

/* Reserves the numbers from 3 up to CHILD_FREE_FD and replaces whatever has them. Call before there
 * is a client or a child. Returns false with errno. */
bool child_keep_numbers(void);

/* Starts one of our programs (from PROF_LIBEXEC_DIR, else from where they are installed), in our
 * session if we lead one, else in a new session. The descriptors become its 3 and 4, stdin is null,
 * stdout and stderr are our stderr, and no signal is blocked or ignored. `argument` may be NULL. */
bool child_spawn(const char *program, const char *argument, const int *fds, unsigned n_fds,
		 pid_t *ret_pid, GError **error);
