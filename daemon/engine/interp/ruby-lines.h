/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Ruby-lines - the source line of a position in a Ruby iseq
 *
 * The table is a copy of the program's memory, so it may have any content.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* `bytes`: a struct interp_ruby_lines, and what follows it. `position`: index of a word in the
 * iseq. Returns 0 if the table gives no line. */
uint32_t ruby_lines_find(const uint8_t *bytes, size_t size, uint32_t position);
