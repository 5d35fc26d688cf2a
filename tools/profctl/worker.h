/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib.h>
#include <stdbool.h>

/* Runs work() on another thread, and then done() in the main loop. False: no thread can be started,
 * and neither is called; CLI_ERROR. (A GTask would wait forever for its thread, without an
 * error.) */
bool worker_start(void (*work)(void *data), void (*done)(void *data), void *data, GError **error);
