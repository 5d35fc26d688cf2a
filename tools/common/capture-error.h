/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Capture-error - where results of libprofcapture become GErrors
 *
 * A positive result (a defect of the file) has the exit status "unreadable", -EACCES and -EPERM
 * "not permitted", any other -errno "failure".
 */
#pragma once

#include "arch/base.h"

#include <glib.h>

/* Sets "WHAT: why; what to do next" and returns false. `result` is not 0; `what` names the action
 * and the object in quotes. */
bool capture_error(GError **error, int result, const char *what, ...) PRINTF_LIKE(3, 4);
/* Same for a capture that cannot be opened, with errno. If it does not exist, the message lists the
 * captures of the current folder. */
bool capture_open_error(GError **error, const char *path);
