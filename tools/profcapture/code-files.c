/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profcapture/code-files.h"

#include "tools/common/capture-error.h"

#include <glib/gi18n.h>

#define MOST_BYTES (UINT64_C(256) << 20)

const struct cli_option code_files_options[] = {
	{ "source-dir", 0, CLI_LIST, offsetof(struct code_files, source_folders), N_("DIRECTORY"),
	  N_("Also look for source files in DIRECTORY; repeatable") },
	{ "sysroot", 0, CLI_STRING, offsetof(struct code_files, sysroot), N_("DIRECTORY"),
	  N_("Look for the recorded files under DIRECTORY, a copy of the recorded machine's root") },
	{ "debug-dir", 0, CLI_LIST, offsetof(struct code_files, debug_folders), N_("DIRECTORY"),
	  N_("Also look for debug files in DIRECTORY; repeatable") },
	{ NULL },
};

bool code_files_open(struct code_files *files, GError **error)
{
	const char *const *folders = NULL;

	if (files->debug_folders) {
		g_ptr_array_add(files->debug_folders, NULL);
		folders = (const char *const *)files->debug_folders->pdata;
	}
	files->sources = g_hash_table_new_full(NULL, NULL, NULL, source_text_free);
	files->debug = debug_files_new(files->sysroot, folders);
	return files->debug ||
	       capture_error(error, -errno, _("cannot open the folder '%s'"), files->sysroot);
}

void code_files_done(struct code_files *files)
{
	g_clear_pointer(&files->debug_folders, g_ptr_array_unref);
	g_clear_pointer(&files->source_folders, g_ptr_array_unref);
	g_clear_pointer(&files->sources, g_hash_table_unref);
	debug_files_free(files->debug);
}

const struct source_text *code_files_source(struct code_files *files, const char *file)
{
	gpointer known;

	if (!file)
		return NULL;
	if (!g_hash_table_lookup_extended(files->sources, file, NULL, &known)) {
		known = files->bytes < MOST_BYTES
				? source_text_find(files->debug, files->source_folders, file)
				: NULL;
		files->bytes += known ? ((struct source_text *)known)->bytes->len : 0;
		g_hash_table_insert(files->sources, (gpointer)file, known);
	}
	return known;
}

bool code_files_is_newer(const struct source_text *source, const struct capture *capture)
{
	return capture->n_segments > 0 &&
	       source->mtime_s > capture->segments[0].wall_ns / 1000000000;
}
