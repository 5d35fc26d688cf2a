/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Mark load - what mark-load does with each of the libraries that it is built with
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A mark with a group and a name. False: the library says that it is not recorded. */
bool load_mark(void);
/* Its name has 20 bytes, and two numbers are with it. */
bool load_arguments(uint64_t width, uint64_t height);
