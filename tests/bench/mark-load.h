/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Mark-load - the operations of mark-load, which each library under test implements
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Records a mark with group and name. Returns false if the library reports a failure. */
bool load_mark(void);
/* Does the same with a name of 20 bytes and two numbers. */
bool load_arguments(uint64_t width, uint64_t height);
