/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <stdbool.h>

#define START_THREADS_MAX 8

/*
 * Returns whether n more threads (at most START_THREADS_MAX) can exist at once: starts and ends
 * them. Call this before libraries that may abort or hang if they cannot start a thread. Writes the
 * reason on failure, like errno_text().
 */
bool start_threads_check(unsigned n, char *ret_why);
