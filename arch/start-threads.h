/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <stdbool.h>

#define START_THREADS_MAX 8

/*
 * Returns whether so many more threads (at most START_THREADS_MAX) can exist at once, by starting
 * and ending them. Libraries that start threads end the process, or wait forever, if that fails. On
 * failure writes the reason, like errno_text().
 */
bool start_threads_check(unsigned n, char *ret_why);
