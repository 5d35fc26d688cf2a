/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Preload - the library that records the allocations of a command
 *
 * The dynamic linker loads the library into the command and into all programs that it starts,
 * because they inherit LD_PRELOAD. The user's own preloads come after it. Programs with more
 * privileges than their caller, or without a dynamic linker, do not load the library; the engine
 * detects these programs (daemon/engine/alloc/heap-excluded.c).
 *
 * The library needs glibc. The loader of another libc would load it, and then end the program
 * because of missing symbols. So the path starts with a token that only glibc's loader expands:
 * musl's loader looks for a directory named $LIB, and continues without the library
 * [test_record_memory: musl].
 */
#include "config.h"

#include "arch/errno-text.h"
#include "tools/profctl/preload.h"

#include "arch/base.h"
#include "tools/common/cli.h"

#include <dlfcn.h>
#include <errno.h>
#include <glib/gi18n.h>
#include <inttypes.h>

#define LIBRARY "libprofpreload-memory.so"
#define MEMORY_VARIABLE "PROF_MEMORY"
#define PRELOAD_VARIABLE "LD_PRELOAD"
#define ASAN_VARIABLE "ASAN_OPTIONS"
#define ASAN_ORDER "verify_asan_link_order=0"
#define SEPARATORS " :" /* separators in LD_PRELOAD, which has no quoting */
/* The root directory, as a path that only glibc's loader can resolve: it replaces $LIB with lib64,
 * lib or lib/x86_64-linux-gnu, which may be a symbolic link. Superfluous ".." stay at the root. */
#define GLIBC_ROOT "/$LIB/../../../../../../../.."

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

/* Returns an absolute path, because the command may start programs in other directories. */
static char *library_in(const char *folder)
{
	g_autofree char *path = g_build_filename(folder, LIBRARY, NULL);

	return g_canonicalize_filename(path, NULL);
}

/* Returns whether the loader finds an already loaded library through GLIBC_ROOT. */
static bool has_root(void)
{
	g_autofree char *path = NULL;
	void *handle = NULL;
	Dl_info info;

	if (dladdr((void *)g_free, &info) && g_path_is_absolute(info.dli_fname)) {
		path = g_strconcat(GLIBC_ROOT, info.dli_fname, NULL);
		handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
	}
	if (handle)
		dlclose(handle);
	return handle != NULL;
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
		return cli_set_error(
			error, CLI_FAILURE,
			_("cannot record allocations: '%s': %s; PROF_LIB_DIR names the folder that it is in"),
			preload->library, ERRNO_TEXT(failed));
	}
	if (strpbrk(preload->library, SEPARATORS))
		return cli_set_error(
			error, CLI_FAILURE,
			_("cannot record allocations: '%s' has a blank or a colon in its path, which no program can preload"),
			preload->library);
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
	all = g_strconcat(has_root() ? GLIBC_ROOT : "", preload->library,
			  before && *before ? ":" : "", before, NULL);
	g_setenv(PRELOAD_VARIABLE, all, TRUE);
	/* gcc's AddressSanitizer ends a program in which it is not the first library */
	before = g_getenv(ASAN_VARIABLE);
	g_free(all);
	all = g_strconcat(ASAN_ORDER, before && *before ? ":" : "", before, NULL);
	g_setenv(ASAN_VARIABLE, all, TRUE);
	g_setenv(MEMORY_VARIABLE, preload->settings, TRUE);
}
