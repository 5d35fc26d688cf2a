/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Capture-error - converts results of libprofcapture to GErrors
 *
 * The exit status of a positive result (a defect of the file) is "unreadable", that of -EACCES and
 * -EPERM "not permitted", that of any other -errno "failure".
 */
#pragma once

#include "arch/base.h"

#include <glib.h>

/* Sets "WHAT: why; what to do next" and returns false. `result` must not be 0. `what` names the
 * action, and the object in quotes. */
bool capture_error(GError **error, int result, const char *what, ...) PRINTF_LIKE(3, 4);
/* Like capture_error(), for a capture that cannot be opened, with errno. If the capture does not
 * exist, the message lists the captures in the current folder. */
bool capture_open_error(GError **error, const char *path);
