/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib.h>
#include <stdbool.h>

/* The program that started profctl with --control, and which switches sampling on and off
 * itself. */
struct record_control {
	int fd;         /* -1: none */
	int switch_fd;  /* for the session */
	int program_fd; /* the other end of switch_fd, until the program has it */
	int pidfd;
	guint watches[2];
	void (*gone)(void *data);
	void *data;
};

/* fd: an inherited socket of libcollector/control.h. CLI_ERROR. */
bool record_control_open(int fd, struct record_control *ret_control, GError **error);
/* Calls `gone` once, from the main loop, when the program asks for the end or exits. */
void record_control_watch(struct record_control *control, void (*gone)(void *data), void *data);
/* Reports that the recording has begun. where: for PROF_CONTROL; NULL: nowhere. */
void record_control_ready(struct record_control *control, const char *where);
/* Reports the end with this exit status and message (NULL: none), and closes everything. */
void record_control_end(struct record_control *control, int status, const char *message);
