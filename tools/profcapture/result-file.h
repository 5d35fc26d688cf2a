/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Result file - where a capture that was made from another one goes
 *
 * A file has its whole content or is not there: it is removed when the work fails or a signal ends
 * the program, and with force the old one stays until the new one is whole. What cannot be sought
 * in (standard output, pipes, devices) gets the whole capture at the end, out of a temporary file.
 */
#pragma once

#include "arch/base.h"

#include <glib.h>

struct result_file {
	const char *path; /* as the user knows it; "-" is standard output */
	char *temporary;  /* what it is called until result_file_commit(), or NULL */
	int fd;           /* to write the capture into: empty, O_RDWR */
	int stream_fd;    /* where it is copied when it is whole, or -1 */
};

/* An existing regular file is refused without force; a device or a pipe is written into, a
 * terminal never. */
bool result_file_open(const char *path, bool force, struct result_file *ret_file, GError **error);
/* The capture is whole. */
bool result_file_commit(struct result_file *file, GError **error);
/* Closes, and removes what was not committed. Takes one that was never opened, { 0 } with path
 * NULL. */
void result_file_done(struct result_file *file);
