/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Preload - the library that records the allocations of a command
 *
 * It is loaded by the dynamic linker of the command and of all that the command starts, which inherit LD_PRELOAD. What the
 * user preloads comes behind it. Whoever runs with more rights than its caller, or without a dynamic linker, is not reached;
 * the engine finds that out (daemon/engine/heap-excluded.c).
 */
#include "config.h"

#include "tools/profctl/preload.h"

#include "arch/base.h"
#include "tools/common/cli.h"

#include <errno.h>
#include <glib/gi18n.h>
#include <inttypes.h>

#define LIBRARY "libprofpreload-memory.so"
#define MEMORY_VARIABLE "PROF_MEMORY"
#define PRELOAD_VARIABLE "LD_PRELOAD"
#define SEPARATORS " :" /* of LD_PRELOAD; there is no way to quote them */

static char *settings_of(const struct preload_memory *memory)
{
	GString *text = g_string_new(NULL);

	if (memory->sample_bytes)
		g_string_append_printf(text, "sample=%" PRIu64, memory->sample_bytes);
	else
		g_string_append(text, "all");
	if (memory->min_bytes)
		g_string_append_printf(text, ",min=%" PRIu64, memory->min_bytes);
	if (memory->mmap)
		g_string_append(text, ",mmap");
	return g_string_free(text, FALSE);
}

/* Absolute: the command may go to another folder before it starts others. */
static char *library_in(const char *folder)
{
	g_autofree char *path = g_build_filename(folder, LIBRARY, NULL);

	return g_canonicalize_filename(path, NULL);
}

bool preload_init(struct preload *preload, const struct preload_memory *memory, GError **error)
{
	const char *folder = secure_getenv("PROF_LIB_DIR");
	g_autofree char *installed = library_in(PROF_DEFAULT_LIB_DIR);
	int failed;

	*preload = (struct preload){ 0 };
	if (!memory->wanted)
		return true;
	preload->settings = settings_of(memory);
	preload->library = library_in(folder ? folder : PROF_DEFAULT_LIB_DIR);
	if (folder && access(preload->library, R_OK) < 0 && access(installed, R_OK) == 0) {
		g_free(preload->library);
		preload->library = steal_ptr(&installed);
	}
	if (access(preload->library, R_OK) < 0) {
		failed = errno;
		g_set_error(
			error, CLI_ERROR, CLI_FAILURE,
			_("cannot record allocations: '%s': %s; PROF_LIB_DIR names the folder that it is in"),
			preload->library, g_strerror(failed));
		return false;
	}
	if (strpbrk(preload->library, SEPARATORS)) {
		g_set_error(
			error, CLI_ERROR, CLI_FAILURE,
			_("cannot record allocations: '%s' has a blank or a colon in its path, which no program can preload"),
			preload->library);
		return false;
	}
	return true;
}

void preload_done(struct preload *preload)
{
	g_free(preload->library);
	g_free(preload->settings);
	*preload = (struct preload){ 0 };
}

void preload_set(const struct preload *preload)
{
	const char *before = g_getenv(PRELOAD_VARIABLE);
	g_autofree char *all = NULL;

	if (!preload->library)
		return;
	all = g_strjoin(":", preload->library, before && *before ? before : NULL, NULL);
	g_setenv(PRELOAD_VARIABLE, all, TRUE);
	g_setenv(MEMORY_VARIABLE, preload->settings, TRUE);
}
