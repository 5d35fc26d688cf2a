/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Hidden child - starts a program from within another one, which does not notice
 *
 * It is not the process's child: no wait() finds it, and it causes no SIGCHLD, whatever the process
 * does about these. It is in a session of its own, with no signal blocked, ignored or caught, and
 * has the null device for stdin, stdout and stderr, and one descriptor.
 */
#pragma once

#include "arch/base.h"

#define HIDDEN_CHILD_FD 3

struct hidden_child {
	const char *path;
	const char *const *argv;
	int fd; /* its HIDDEN_CHILD_FD */
};

/*
 * Returns 0, or -errno of the step that failed, including the exec. Passes the environment, except
 * for variables about recording and preloads. Not in handlers; not while another thread changes the
 * environment.
 */
MUST_CHECK int hidden_child_start(const struct hidden_child *child);
/* Returns the value of a variable of the environment, or NULL. */
const char *hidden_child_variable(const char *name);
