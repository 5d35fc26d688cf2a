/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Hidden child - a program that is started from within another one, which does not notice
 *
 * It is nobody's child: no wait() of the process finds it, and no SIGCHLD comes, whatever is waited
 * for and whatever is done about SIGCHLD. It is in a session of its own, with no signal blocked,
 * ignored or caught, and has the null device for stdin, stdout and stderr, and one descriptor.
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
 * 0, or -errno of what failed, the exec included. All of the environment is passed but what is
 * about programs that are to be recorded or changed by a preload. Not in handlers; not while
 * another thread changes the environment.
 */
MUST_CHECK int hidden_child_start(const struct hidden_child *child);
/* The value of a variable of the environment, or NULL. */
const char *hidden_child_variable(const char *name);
