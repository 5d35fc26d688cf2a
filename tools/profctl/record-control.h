/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib.h>
#include <stdbool.h>

/* The program that started us with --control, and which switches sampling on and off by itself. */
struct record_control {
	int fd;         /* -1: there is none */
	int switch_fd;  /* for the session */
	int program_fd; /* the other end of that, until the program has it */
	int pidfd;
	guint watches[2];
	void (*gone)(void *data);
	void *data;
	char *failure; /* NULL: none */
};

/* fd: an inherited socket of libcollector/control.h. CLI_ERROR. */
bool record_control_open(int fd, struct record_control *ret_control, GError **error);
/* `gone` is called once, from the main loop: the program wants the end, or is at its own. */
void record_control_watch(struct record_control *control, void (*gone)(void *data), void *data);
/* The recording has begun. where: for PROF_CONTROL; NULL: nowhere. */
void record_control_ready(struct record_control *control, const char *where);
/* What record_control_end() is to say. */
void record_control_fail(struct record_control *control, const char *text);
/* Says that it is over, with this exit status, and closes all. */
void record_control_end(struct record_control *control, int status);
