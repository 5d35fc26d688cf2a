/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Disassembly - the instructions of a range of code, as objdump prints them
 */
#pragma once

#include "arch/base.h"

#include <glib.h>

struct disassembly_line {
	uint64_t address;
	char *text; /* "mov    %rsp,%rbp", spaces for tabs; not escaped */
};

/*
 * Returns the code of the ELF file at [start, end), ELF addresses, in order: struct
 * disassembly_line, at most DISASSEMBLY_MAX_LINES. `fd` is borrowed. Fails if objdump is missing,
 * exits with an error, or takes longer than the timeout.
 */
#define DISASSEMBLY_MAX_LINES 200000
GArray *disassembly_read(int fd, uint64_t start, uint64_t end, unsigned timeout_ms, GError **error);
