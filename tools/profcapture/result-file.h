/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Result file - the destination of a file that is made from a capture
 *
 * An incomplete file is removed if writing fails, or if SIGINT, SIGTERM or SIGHUP ends the program.
 * With force, an existing file stays until the new one is complete. A destination that may not be
 * able to seek (standard output, a pipe, a device) gets the whole file at the end, from a temporary
 * one; /dev/null needs none.
 */
#pragma once

#include "arch/base.h"

#include <glib.h>

struct result_file {
	const char *path; /* path as given; "-" is standard output */
	char *temporary;  /* name of the file until result_file_commit(), or NULL */
	int fd;           /* descriptor for the content: empty, O_RDWR; or /dev/null, O_WRONLY */
	int stream_fd;    /* destination of the copy when the content is complete, or -1 */
};

/* Fails if the destination is the capture `input`, even under another name. In `path`, "-" is
 * standard output; in `input`, standard input. */
bool result_file_refuse_input(const char *path, const char *input, GError **error);
/* Opens the destination. Refuses an existing regular file without force, and always a terminal. An
 * existing device or pipe is written to. */
bool result_file_open(const char *path, bool force, struct result_file *ret_file, GError **error);
/* Moves or copies the file to its destination. Must be called when the content is complete. */
bool result_file_commit(struct result_file *file, GError **error);
/* Closes the file, and removes it if it was not committed. Accepts a file that was never opened
 * (path is NULL). */
void result_file_done(struct result_file *file);
