/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Disassembly - the instructions of a stretch of code, as objdump prints them
 */
#pragma once

#include "arch/base.h"

#include <glib.h>

struct disassembly_line {
	uint64_t address;
	char *text; /* "mov    %rsp,%rbp", spaces for tabs; not escaped */
};

/*
 * What the ELF file has at [start, end), addresses as it counts them, in their order; of struct
 * disassembly_line, at most DISASSEMBLY_MAX_LINES. `fd` is borrowed. Fails where there is no
 * objdump, it ends with an error, or takes longer than that.
 */
#define DISASSEMBLY_MAX_LINES 200000
GArray *disassembly_read(int fd, uint64_t start, uint64_t end, unsigned timeout_ms, GError **error);
