/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "tools/profctl/preload.h"

#include <glib.h>
#include <stdbool.h>
#include <sys/types.h>

/* The command to record: a child that waits before its exec until it is released. */
struct command {
	pid_t pid; /* 0: none */
	/* the bytes before a NUL are its PROF_CONTROL, and release it; end-of-file ends it. The
	 * first byte carries the descriptor for SYSPROF_CONTROL_FD, if any */
	int go_fd;
	int error_fd; /* the errno of a failed exec */
	bool running; /* released and not ended yet */
	int wait_status;
};

/* Forks; call it before any thread exists. With stdout_to_stderr its output stays out of the
 * capture. CLI_ERROR. */
bool command_start(struct command *command, char **argv, const struct preload *preload,
		   bool stdout_to_stderr, GError **error);
/* Releases it. control: where its collectors register, put before PROF_CONTROL; NULL: nowhere.
 * sysprof: the same for sysprof's; -1: the environment stays. CLI_ERROR, with code 127 or 126, if
 * it cannot be run. */
bool command_release(struct command *command, const char *name, const char *control, int sysprof,
		     GError **error);
/* Ends a command that was never released. */
void command_cancel(struct command *command);
/* Returns how it ended as a shell does: its status, or 128 and the signal. */
int command_exit_status(const struct command *command);
