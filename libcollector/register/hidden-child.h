/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Hidden child - starts a program from within a process that does not notice it
 *
 * The program is not the process's child: no wait() finds it, and it causes no SIGCHLD, however the
 * process handles children. It runs in its own session, with no signal blocked, ignored or caught,
 * the null device as stdin, stdout and stderr, and one more descriptor.
 */
#pragma once

#include "arch/base.h"

#define HIDDEN_CHILD_FD 3

struct hidden_child {
	const char *path;
	const char *const *argv;
	int fd; /* passed to the program as HIDDEN_CHILD_FD */
};

/* Returns 0, or -errno of the failed step, including the exec. Does not pass on environment
 * variables about recording, preloads and systemd's sockets. Must not be called in handlers, or
 * while another thread changes the environment. */
MUST_CHECK int hidden_child_start(const struct hidden_child *child);
/* Returns the value of an environment variable, or NULL. */
const char *hidden_child_variable(const char *name);
