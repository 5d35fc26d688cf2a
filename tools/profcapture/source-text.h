/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Source-text - finds and reads the lines of a source file
 */
#pragma once

#include "tools/symbols/debug-files.h"

#include <glib.h>

struct source_text {
	char *path; /* the file that was read */
	int64_t mtime_s;
	GString *bytes;
	GArray *starts; /* uint32_t: offsets in `bytes`: of each line, and of the end */
};

/*
 * Finds a source file and reads it. `file` is a path from debug information. Looks below each of
 * `folders` (NULL: none), first with the whole path, then with fewer and fewer leading folders.
 * Then tries the path itself with debug_files_open_path(). Returns NULL if no file can be read.
 */
struct source_text *source_text_find(const struct debug_files *files, const GPtrArray *folders,
				     const char *file);
void source_text_free(gpointer source); /* accepts NULL */
/* Returns line `line` (the first is 1) without its newline, with tabs expanded; NULL after the
 * last line. Free the result with g_free(). */
char *source_text_line(const struct source_text *source, uint32_t line);
