/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "tools/profctl/preload.h"

#include <glib.h>
#include <stdbool.h>
#include <sys/types.h>

/* The command to record: a child process that waits before exec until it is released. */
struct command {
	pid_t pid; /* 0: none */
	/* socket: a NUL-terminated PROF_CONTROL releases the child; end-of-file makes it exit. The
	 * first byte may carry the descriptor for SYSPROF_CONTROL_FD */
	int go_fd;
	int error_fd; /* to read the errno of a failed exec */
	bool running; /* released and not ended yet */
	int wait_status;
};

/* Forks the child. Must be called while there is only one thread. `stdout_to_stderr`: keeps the
 * command's output out of the capture. Fails with CLI_ERROR. */
bool command_start(struct command *command, char **argv, const struct preload *preload,
		   bool stdout_to_stderr, GError **error);
/* Releases the child. `control`: address for its collectors, prepended to PROF_CONTROL; NULL: none.
 * `sysprof`: the descriptor for sysprof's collectors; -1: leave the environment unchanged. If the
 * command cannot be run, fails with CLI_ERROR, code 127 or 126. */
bool command_release(struct command *command, const char *name, const char *control, int sysprof,
		     GError **error);
void command_cancel(struct command *command);
/* Returns the exit status that a shell would report: the status, or 128 plus the signal. */
int command_exit_status(const struct command *command);
