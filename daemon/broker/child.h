/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <gio/gio.h>
#include <stdbool.h>
#include <sys/types.h>

/* From now on they are looked for beside this one, and the environment is not asked: for the
 * system's service. */
void child_use_own_folder(void);

#define CHILD_FREE_FD 64 /* the first number that is not kept for children's descriptors */

/* Before there is a client, and a child: takes the numbers from 3 to CHILD_FREE_FD, whatever was
 * there. False with errno. */
bool child_keep_numbers(void);

/* Starts one of our programs (PROF_LIBEXEC_DIR, else where they are installed), in our session
 * if we lead one, else in one of its own. The descriptors are its 3 and 4, stdin is null, stdout
 * and stderr are our stderr, no signal is blocked or ignored; `argument` may be NULL. */
bool child_spawn(const char *program, const char *argument, const int *fds, unsigned n_fds,
		 pid_t *ret_pid, GError **error);
