/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

struct output_options {
	const char *path; /* NULL: a default name; "-": standard output */
	const char *stem; /* of the default name: the command's, "pid-N" or "system" */
	bool force, append;
	bool needs_reading; /* symbols are added afterwards */
};

/* Where a recording goes. */
struct output {
	char *path;      /* as the user knows it */
	char *temporary; /* what it is called until output_commit(), or NULL */
	int fd;          /* of the capture, for the session */
	int stream_fd;   /* -1, or where the capture is copied when it is whole */
	bool created;    /* by us: removed again where nothing was recorded */
};

/* CLI_ERROR; an existing file is refused without force or append. */
bool output_open(const struct output_options *options, struct output *ret_output, GError **error);
/* The recording has begun: with force, the old file gives way. */
bool output_commit(struct output *output, GError **error);
/* Copies a spooled capture to its stream. */
bool output_finish(struct output *output, GError **error);
/* Removes a file that nothing was recorded into. */
void output_discard(struct output *output);
void output_done(struct output *output);
/* Bytes of the capture; 0 where it went straight into a pipe. */
uint64_t output_bytes(const struct output *output);
/* What was written has no whole chunk, as where the engine was ended before its first one.
 * False: it cannot be looked at. */
bool output_is_unreadable(const struct output *output);
/* It can be read again: it went neither into a pipe nor into a device. */
bool output_is_kept(const struct output *output);
