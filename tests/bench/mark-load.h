/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Mark load - the operations that mark-load performs with each of the libraries that it is built
 * with
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A mark with a group and a name. False: the library reports that it is not recorded. */
bool load_mark(void);
/* A mark with a name of 20 bytes and two numbers. */
bool load_arguments(uint64_t width, uint64_t height);
