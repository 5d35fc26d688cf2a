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
 * Returns the instructions in the range [start, end) of ELF addresses, in order, as struct
 * disassembly_line; at most DISASSEMBLY_MAX_LINES. Borrows `fd`, an ELF file. Fails if objdump is
 * missing, exits with an error, prints too much, or exceeds the timeout.
 */
#define DISASSEMBLY_MAX_LINES 200000
GArray *disassembly_read(int fd, uint64_t start, uint64_t end, unsigned timeout_ms, GError **error);
