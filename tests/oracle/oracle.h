/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Oracle - the rules that elfutils finds
 *
 * libdw's reading of CFI, translated to our rules, for a comparison byte by byte. Parts of a rule
 * that our rules cannot express are marked in the same way as in ours: no CFA or return address is
 * CFI_CFA_UNSUPPORTED, no fp is CFI_UNDEFINED.
 */
#pragma once

#include "arch/cfi.h"

#include <elfutils/libdw.h>

/* Why our rules cannot express libdw's result. */
enum oracle_why {
	ORACLE_CFA_REGISTER,   /* the CFA is relative to a register other than sp and fp */
	ORACLE_CFA_EXPRESSION, /* the CFA is another expression */
	ORACLE_SP,             /* the caller's sp is not the CFA */
	ORACLE_RA_REGISTER,    /* the return address is in another register */
	ORACLE_RA_EXPRESSION,  /* the return address is another expression */
	ORACLE_BROKEN,         /* libdw has no CFA: the CFI program is broken */
	ORACLE_N_WHYS,
};

struct oracle {
	Dwarf_CFI *eh_frame;
	Dwarf *dwarf;
	Dwarf_CFI *debug_frame;
	enum regs_arch arch;
	enum oracle_why why; /* of the last rule with CFI_CFA_UNSUPPORTED */
};

void oracle_init(struct oracle *oracle, Elf *elf, enum regs_arch arch);
void oracle_done(struct oracle *oracle);

/* False if libdw has no CFA: nothing covers pc, or libdw considers the program before it broken. */
bool oracle_get(struct oracle *oracle, bool is_debug_frame, uint64_t pc, struct cfi_rule *ret_rule,
		uint64_t *ret_end);
