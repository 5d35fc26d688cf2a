/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

struct output_options {
	const char *path; /* NULL: a default name; "-": standard output */
	const char *stem; /* for the default name: the command's name, "pid-N" or "system" */
	bool force, append;
	bool needs_reading; /* the capture will be read back, to add symbols */
};

/* The destination of a recording. */
struct output {
	char *path;      /* path as shown to the user */
	char *temporary; /* the file's name until output_commit(), or NULL */
	int fd;          /* the capture, for the session */
	int stream_fd;   /* where to copy the complete capture; -1: nowhere */
	bool created;    /* profctl created the file, and removes it if nothing was recorded */
};

/* Opens the destination. Refuses an existing file without force or append. Fails with CLI_ERROR. */
bool output_open(const struct output_options *options, struct output *ret_output, GError **error);
/* Must be called when recording has begun. With force, this replaces the old file. */
bool output_commit(struct output *output, GError **error);
/* Copies a temporary capture to stream_fd. */
bool output_finish(struct output *output, GError **error);
/* Removes the file if profctl created it. For a recording without data. */
void output_discard(struct output *output);
void output_done(struct output *output);
/* Returns the size of the capture; 0 if it was written to a pipe. */
uint64_t output_bytes(const struct output *output);
/* Returns whether the capture has no complete chunk, for example because the engine was killed
 * early. Returns false if this cannot be checked. */
bool output_is_unreadable(const struct output *output);
/* Returns whether the capture is recorded directly into a regular file, so that it can be read
 * again. */
bool output_is_kept(const struct output *output);
