/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Symbolize - gives a capture the names and lines of what it hit
 *
 * Reads which places of which files the stacks of a capture name, asks for each file once, and
 * appends what the places are called, in an epoch of its own. Places whose line is known already,
 * and images of the kernel, whose names the engine writes, are left alone; a place that has a name
 * gets its line, where one is found now. So a second run adds nothing, and one that finds more adds
 * that.
 */
#pragma once

#include "tools/common/debug-files.h"
#include "tools/common/names.h"

/* The file of an image, open for reading, which symbolize closes; or -1. `image->id` is its id
 * in epoch `image->epoch` of the capture. */
typedef int symbolize_open(const struct names_image *image, void *data);

struct symbolize_sources {
	symbolize_open *open; /* called from one thread */
	void *data;
	/* NULL = only what is in the files themselves; the roots of processes that live are
	 * added to it */
	struct debug_files *debug_files;
	const char *file; /* of the capture, for messages */
};

struct symbolize_result {
	uint64_t places;    /* frames that had no name */
	uint64_t named;     /* and have one now */
	uint64_t symbols;   /* rows that were added, */
	uint64_t lines;     /* and of lines */
	uint64_t images;    /* files that were asked for */
	GPtrArray *changed; /* paths of files that are not those that were recorded */
	GPtrArray *missing; /* paths of files that were not there or are no ELF files */
};
void symbolize_result_done(struct symbolize_result *result);

/* `fd` is a finished or cut capture, open O_RDWR, which nobody writes. ret_result is filled in
 * on success. */
bool symbolize_capture(int fd, const struct symbolize_sources *sources,
		       struct symbolize_result *ret_result, GError **error);
