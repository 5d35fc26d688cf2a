/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/common/capture-error.h"

#include "libcapture/prof-capture.h"
#include "tools/common/budget.h"
#include "tools/common/cli.h"

#include <errno.h>
#include <glib/gi18n.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_LISTED 5u

static int64_t time_of(const char *name)
{
	struct stat status;

	return stat(name, &status) == 0 ? (int64_t)status.st_mtim.tv_sec : INT64_MIN;
}

/* Sorts the newest first. */
static gint compare_times(gconstpointer a, gconstpointer b)
{
	const char *one = *(const char *const *)a, *other = *(const char *const *)b;
	int64_t left = time_of(one), right = time_of(other);

	return left == right ? strcmp(one, other) : (left < right) - (left > right);
}

static enum cli_status status_of(int result)
{
	if (result > 0)
		return CLI_UNREADABLE;
	if (result == -EACCES || result == -EPERM)
		return CLI_NOT_PERMITTED;
	return CLI_FAILURE;
}

/* Returns what to do about a file whose header cannot be read. */
static const char *next_step(int result)
{
	switch (result) {
	case PROF_NOT_CAPTURE:
		return _("; 'profctl record' writes captures, and 'perf report' reads perf.data");
	case PROF_UNSUPPORTED:
		return _("; a newer profcapture reads it");
	case PROF_TOO_SHORT:
	case PROF_BAD_HEADER:
		return _("; record again");
	default:
		return "";
	}
}

/* Returns "\n  Captures here: shop.cap, mem.cap" for the current folder, newest first, or "". */
static char *captures_here(void)
{
	g_autoptr(GDir) folder = g_dir_open(".", 0, NULL);
	g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
	g_autofree char *list = NULL;
	const char *name;

	while (folder && (name = g_dir_read_name(folder)))
		if (g_str_has_suffix(name, ".cap"))
			g_ptr_array_add(names, g_strdup(name));
	if (names->len == 0)
		return g_strdup("");
	g_ptr_array_sort(names, compare_times);
	if (names->len > MAX_LISTED) {
		g_ptr_array_set_size(names, MAX_LISTED);
		g_ptr_array_add(names, g_strdup("..."));
	}
	g_ptr_array_add(names, NULL);
	list = g_strjoinv(", ", (char **)names->pdata);
	return g_strdup_printf(_("\n  Captures here: %s"), list);
}

bool capture_error(GError **error, int result, const char *what, ...)
{
	const char *why = prof_strerror(result), *next = next_step(result);
	g_autofree char *text = NULL, *over = NULL;
	va_list args;

	va_start(args, what);
	text = g_strdup_vprintf(what, args);
	va_end(args);
	if (result == PROF_OVER_BUDGET)
		why = over = budget_describe();
	return cli_set_error(error, (int)status_of(result), "%s: %s%s", text, why, next);
}

bool capture_open_error(GError **error, const char *path)
{
	int failed = errno;
	g_autofree char *here = failed == ENOENT ? captures_here() : g_strdup("");

	return cli_set_error(error, (int)status_of(-failed), _("cannot open capture '%s': %s%s"),
			     path, prof_strerror(-failed), here);
}
