/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Source-text - the lines of a source file that can be found and read
 */
#pragma once

#include "tools/symbols/debug-files.h"

#include <glib.h>

struct source_text {
	char *path; /* path that was read */
	int64_t mtime_s;
	GString *bytes;
	GArray *starts; /* uint32_t: offset in `bytes` of each line, and of the end */
};

/*
 * `file` is a path from debug information. It is looked for below each of `folders` (NULL: none),
 * first with its whole path, then with ever fewer leading folders. Then the path itself is tried,
 * on the machine of `files`. Returns NULL if no file can be read.
 */
struct source_text *source_text_find(const struct debug_files *files, const GPtrArray *folders,
				     const char *file);
void source_text_free(gpointer source); /* or NULL */
/* Returns the line without its end, tabs as spaces (g_free); NULL after the last. Lines count from
 * 1. */
char *source_text_line(const struct source_text *source, uint32_t line);
