/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Code-files - finds the recorded machine's files, and keeps the source files that were read
 */
#pragma once

#include "tools/common/cli.h"
#include "tools/profcapture/capture.h"
#include "tools/profcapture/source-text.h"

struct code_files {
	/* options */
	const char *sysroot;
	GPtrArray *debug_folders, *source_folders; /* strings; NULL: none */
	/* set by code_files_open() */
	struct debug_files *debug;
	GHashTable *sources; /* interned path → struct source_text or NULL */
	size_t bytes;        /* total size of `sources` */
};

extern const struct cli_option code_files_options[]; /* --source-dir --sysroot --debug-dir */

bool code_files_open(struct code_files *files, GError **error);
void code_files_done(struct code_files *files);

/* Returns the source file of an interned path; NULL if the path is NULL, the file cannot be read,
 * or 256 MiB have been read. The limit exists because a hostile capture can name one file in many
 * ways. */
const struct source_text *code_files_source(struct code_files *files, const char *file);
/* Returns whether a source is newer than the recording, so that its lines may differ. */
bool code_files_is_newer(const struct source_text *source, const struct capture *capture);
