/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Symbolize - adds the names and lines of sampled code to a capture
 *
 * Collects the offsets in files that the capture's stacks contain, opens each file once, and
 * appends the names in a new epoch. Skips offsets that already have a line, and images of the
 * kernel, whose names the engine writes. An offset that has a name but no line gets the line if it
 * is found now. So a second run adds nothing, or only what the first run did not find.
 */
#pragma once

#include "tools/symbols/debug-files.h"
#include "tools/symbols/names.h"

/* Returns the file of an image, open for reading, or -1; symbolize closes it. `image->id` is its id
 * in epoch `image->epoch` of the capture. */
typedef int symbolize_open(const struct names_image *image, void *data);

struct symbolize_sources {
	symbolize_open *open; /* called from one thread */
	void *data;
	/* The roots of live processes are added to these. NULL: use only the recorded files. */
	struct debug_files *debug_files;
	const char *file; /* name of the capture, for messages */
};

struct symbolize_result {
	uint64_t places;    /* number of offsets, in all files, that had no name before */
	uint64_t named;     /* number of those offsets that now have a name */
	uint64_t symbols;   /* number of rows of symbols and of generated code that were added */
	uint64_t lines;     /* number of line rows that were added */
	uint64_t images;    /* number of files that were requested */
	GPtrArray *changed; /* paths of files that differ from the recorded ones */
	GPtrArray *missing; /* paths of files that were missing or are not ELF files */
};
void symbolize_result_done(struct symbolize_result *result);

/* `fd` is a finished or truncated capture, open O_RDWR, to which nothing else writes. Sets
 * *ret_result on success. */
bool symbolize_capture(int fd, const struct symbolize_sources *sources,
		       struct symbolize_result *ret_result, GError **error);
