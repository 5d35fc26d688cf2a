/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib.h>
#include <stdbool.h>

/* Runs work() on another thread, then done() in the main loop. Returns false with a CLI_ERROR, and
 * calls neither, if no thread can be started. (A GTask would wait forever, without an error.) */
bool worker_start(void (*work)(void *data), void (*done)(void *data), void *data, GError **error);
