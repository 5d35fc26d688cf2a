/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

struct output_options {
	const char *path; /* NULL: a default name; "-": standard output */
	const char *stem; /* of the default name: the command's, "pid-N" or "system" */
	bool force, append;
	bool needs_reading; /* for adding symbols afterwards */
};

/* The destination of a recording. */
struct output {
	char *path;      /* as shown to the user */
	char *temporary; /* the file's name until output_commit(), or NULL */
	int fd;          /* of the capture, for the session */
	int stream_fd;   /* -1, or the destination of the completed capture */
	bool created;    /* by us: removed again if nothing was recorded */
};

/* CLI_ERROR; an existing file is refused without force or append. */
bool output_open(const struct output_options *options, struct output *ret_output, GError **error);
/* Call it when the recording has begun: with force, this replaces the old file. */
bool output_commit(struct output *output, GError **error);
/* Copies a spooled capture to its stream. */
bool output_finish(struct output *output, GError **error);
/* Removes a file without a recording in it. */
void output_discard(struct output *output);
void output_done(struct output *output);
/* Returns the bytes of the capture; 0 if it went straight into a pipe. */
uint64_t output_bytes(const struct output *output);
/* Returns whether the capture has no complete chunk, for example because the engine was killed
 * early. False if that cannot be checked. */
bool output_is_unreadable(const struct output *output);
/* Returns whether it can be read again: not if it went into a pipe or a device. */
bool output_is_kept(const struct output *output);
