/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "arch/base.h"

#include <sys/types.h>

#define SPAWN_FIRST_FD 3
#define SPAWN_MAX_FDS 2

struct spawn {
	const char *path;
	const char *name;       /* argv[0] */
	const char *argument;   /* argv[1]; NULL: none */
	int fds[SPAWN_MAX_FDS]; /* passed to the program as SPAWN_FIRST_FD and following */
	unsigned n_fds;
	/* call setsid(2), so that the terminal's Ctrl-C does not reach the program */
	bool own_session;
};

/* Starts the program with only these descriptors, /dev/null as stdin, this process's stderr as
 * stdout and stderr, and no signal blocked or ignored. Returns 0 or -errno. */
int spawn_program(const struct spawn *spawn, pid_t *ret_pid) MUST_CHECK;
