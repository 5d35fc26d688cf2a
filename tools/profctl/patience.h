/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Patience - a time limit for waiting outside of the main loop
 *
 *     struct patience *patience = patience_begin(10, error);
 *     bool ok = patience && wait_for_it(patience_cancellable(patience), error);
 *
 *     return patience_end(patience, ok, error);
 */
#pragma once

#include <gio/gio.h>
#include <stdbool.h>

struct patience;

/* From here on, SIGINT, SIGTERM and the timeout cancel all calls that use the cancellable. NULL: no
 * thread can be started; CLI_ERROR. */
struct patience *patience_begin(unsigned seconds, GError **error);
GCancellable *patience_cancellable(const struct patience *patience);
/* Returns `ok`. If that is false because of a signal or the timeout, *error is CLI_INTERRUPTED or
 * CLI_NO_DAEMON. Does nothing for NULL. */
bool patience_end(struct patience *patience, bool ok, GError **error);
