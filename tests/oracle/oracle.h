/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Oracle - what elfutils says
 *
 * libdw's reading of CFI, in our words, to be compared byte by byte. Of the pieces of a rule that ours cannot hold it
 * says so by the same rules: no CFA or return address is CFI_CFA_UNSUPPORTED, no fp is CFI_UNDEFINED.
 */
#pragma once

#include "arch/cfi.h"

#include <elfutils/libdw.h>

struct oracle {
	Dwarf_CFI *eh_frame;
	Dwarf *dwarf;
	Dwarf_CFI *debug_frame;
	enum regs_arch arch;
};

void oracle_init(struct oracle *oracle, Elf *elf, enum regs_arch arch);
void oracle_done(struct oracle *oracle);

/* False where libdw has no CFA: nothing covers pc, or the program before it is broken, in libdw's eyes. */
bool oracle_get(struct oracle *oracle, bool is_debug_frame, uint64_t pc, struct cfi_rule *ret_rule,
		uint64_t *ret_end);
