/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <stdbool.h>

#define START_THREADS_MAX 8

/* Whether so many more threads (START_THREADS_MAX or less) can be there at once: they are
 * started, and ended. Libraries that start threads end the process, or wait for ever, where that
 * fails. Else writes why, as errno_text() does. */
bool start_threads_check(unsigned n, char *ret_why);
