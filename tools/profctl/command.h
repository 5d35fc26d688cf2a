/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "tools/profctl/preload.h"

#include <glib.h>
#include <stdbool.h>
#include <sys/types.h>

/* The command that is recorded: a child that waits before its exec until it is let go. */
struct command {
	pid_t pid; /* 0: none */
	/* what stands before a NUL is its PROF_CONTROL, and lets it go; end-of-file ends it. With
	 * the first byte comes what SYSPROF_CONTROL_FD is to be, if anything */
	int go_fd;
	int error_fd; /* the errno of a failed exec */
	bool running; /* let go and not ended yet */
	int wait_status;
};

/* Forks; call it before any thread exists. With stdout_to_stderr its output stays out of the
 * capture. CLI_ERROR. */
bool command_start(struct command *command, char **argv, const struct preload *preload,
		   bool stdout_to_stderr, GError **error);
/* Lets it go. control: where its collectors register, put before PROF_CONTROL; NULL: nowhere.
 * sysprof: where those of sysprof do; -1: the environment stays. CLI_ERROR, with 127 or 126 as
 * code, where it cannot be run. */
bool command_release(struct command *command, const char *name, const char *control, int sysprof,
		     GError **error);
/* Ends one that was never let go. */
void command_cancel(struct command *command);
/* The shell's view of how it ended: its status, or 128 and the signal. */
int command_exit_status(const struct command *command);
