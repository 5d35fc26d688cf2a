/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib.h>
#include <stdbool.h>

/* The program that started profctl with --control, and that switches sampling on and off. */
struct record_control {
	int fd;         /* socket to the program; -1: none */
	int switch_fd;  /* the session's end of the switch (record-control.c) */
	int program_fd; /* the program's end of the switch, until it is sent */
	int pidfd;
	guint watches[2];
	void (*gone)(void *data);
	void *data;
};

/* `fd`: an inherited socket (libcollector/control.h). Fails with CLI_ERROR. */
bool record_control_open(int fd, struct record_control *ret_control, GError **error);
/* Calls `gone` once from the main loop, when the program exits or requests the end. */
void record_control_watch(struct record_control *control, void (*gone)(void *data), void *data);
/* Reports that the recording has begun. `where`: value for PROF_CONTROL; NULL: none. */
void record_control_ready(struct record_control *control, const char *where);
/* Reports the end with an exit status and a message (NULL: none). Closes all descriptors. */
void record_control_end(struct record_control *control, int status, const char *message);
