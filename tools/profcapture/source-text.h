/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Source-text - the lines of a source file, where it can be found and read
 */
#pragma once

#include "tools/common/debug-files.h"

#include <glib.h>

struct source_text {
	char *path; /* where it was read */
	int64_t mtime_s;
	GString *bytes;
	GArray *starts; /* uint32_t: where in `bytes` each line begins, and one behind the last */
};

/*
 * `file` as debug information has it. Looked for in `folders` (NULL: none), each with the whole
 * path below it, then with ever fewer of its leading folders; then as it is, on the machine of
 * `files`. NULL where it cannot be read.
 */
struct source_text *source_text_find(const struct debug_files *files, const GPtrArray *folders,
				     const char *file);
void source_text_free(struct source_text *source);
/* The line without its end, tabs as spaces (g_free); NULL beyond the last. Lines count from 1. */
char *source_text_line(const struct source_text *source, uint32_t line);
