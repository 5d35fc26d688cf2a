/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <gio/gio.h>
#include <stdbool.h>
#include <sys/types.h>

#define CHILD_MAX_FDS 2

/* From now on they are looked for beside this one, and the environment is not asked: for the system's service. */
void child_use_own_folder(void);

/* Starts one of our programs (PROF_LIBEXEC_DIR, else where they are installed) with one argument, or NULL, in our session if
 * we lead one, else in one of its own, so that a Ctrl-C at the terminal does not reach it. The descriptors are its 3, 4,
 * …; it has no others but stdin (null), stdout and stderr, which are our stderr. */
bool child_spawn(const char *program, const char *argument, const int *fds, unsigned n_fds,
		 pid_t *ret_pid, GError **error);
