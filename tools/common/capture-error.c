/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/common/capture-error.h"

#include "libcapture/prof-capture.h"
#include "tools/common/budget.h"
#include "tools/common/cli.h"

#include <errno.h>
#include <glib/gi18n.h>
#include <stdarg.h>

static enum cli_status status_of(int result)
{
	if (result > 0)
		return CLI_UNREADABLE;
	if (result == -EACCES || result == -EPERM)
		return CLI_NOT_PERMITTED;
	return CLI_FAILURE;
}

/* Returns the remedy for a file whose header cannot be read. */
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

bool capture_error(GError **error, int result, const char *what, ...)
{
	g_autofree char *text = NULL;
	va_list args;

	va_start(args, what);
	text = g_strdup_vprintf(what, args);
	va_end(args);
	if (result == PROF_OVER_BUDGET) {
		g_autofree char *why = budget_describe();

		g_set_error(error, CLI_ERROR, (int)status_of(result), "%s: %s", text, why);
		return false;
	}
	g_set_error(error, CLI_ERROR, (int)status_of(result), "%s: %s%s", text,
		    prof_strerror(result), next_step(result));
	return false;
}
