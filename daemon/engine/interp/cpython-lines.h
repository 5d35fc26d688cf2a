/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Cpython-lines - the source line of a position in a Python function
 *
 * Understands the tables of 3.8 and 3.9 (co_lnotab), of 3.10 (PEP 626) and of 3.11 and later
 * (locations). A table is not trusted.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct cpython_lines {
	unsigned minor;
	uint32_t first_line;
	const uint8_t *bytes;
	size_t size;
};

/* `position`: offset in the bytecode, in bytes; up to 3.10, the frame's f_lasti. Returns 0 if the
 * table gives no line. */
uint32_t cpython_lines_find(const struct cpython_lines *lines, int64_t position);
