/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib.h>
#include <stdbool.h>

/* Runs work() on another thread, and done() in the main loop after it. False: no thread can be
 * started, and neither is called; CLI_ERROR. (A GTask waits for ever for its thread then, and
 * says nothing.) */
bool worker_start(void (*work)(void *data), void (*done)(void *data), void *data, GError **error);
