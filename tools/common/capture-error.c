/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/common/capture-error.h"

#include "libcapture/prof-capture.h"
#include "tools/common/cli.h"

#include <errno.h>
#include <stdarg.h>

static enum cli_status status_of(int result)
{
	if (result > 0)
		return CLI_UNREADABLE;
	if (result == -EACCES || result == -EPERM)
		return CLI_NOT_PERMITTED;
	return CLI_FAILURE;
}

bool capture_error(GError **error, int result, const char *what, ...)
{
	g_autofree char *text = NULL;
	va_list args;

	va_start(args, what);
	text = g_strdup_vprintf(what, args);
	va_end(args);
	g_set_error(error, CLI_ERROR, (int)status_of(result), "%s: %s", text,
		    prof_strerror(result));
	return false;
}
