/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Oracle - unwind rules from elfutils
 *
 * Translates libdw's results to our rules, so that both can be compared byte by byte. As in our
 * code, a rule is CFI_CFA_UNSUPPORTED if its CFA, sp or return address cannot be expressed; an fp
 * that cannot be expressed is CFI_UNDEFINED.
 */
#pragma once

#include "arch/cfi.h"

#include <elfutils/libdw.h>

/* Why our rules cannot express libdw's result. */
enum oracle_why {
	ORACLE_CFA_REGISTER,   /* the CFA is a register plus an offset, one of which does not fit */
	ORACLE_CFA_EXPRESSION, /* the CFA is any other expression */
	ORACLE_SP,             /* the caller's sp is not the CFA */
	ORACLE_RA_REGISTER,    /* our rules lack the return address's register, or its base */
	ORACLE_RA_EXPRESSION,  /* the return address is any other expression */
	ORACLE_BROKEN,         /* libdw has no CFA: the CFI program is broken */
	ORACLE_N_WHYS,
};

struct oracle {
	Dwarf_CFI *eh_frame;
	Dwarf *dwarf;
	Dwarf_CFI *debug_frame;
	enum regs_arch arch;
	enum oracle_why why; /* reason for the last CFI_CFA_UNSUPPORTED */
};

void oracle_init(struct oracle *oracle, Elf *elf, enum regs_arch arch);
void oracle_done(struct oracle *oracle);

/* Returns false if libdw has no CFA: no FDE covers pc, or libdw considers the CFI program broken
 * before pc. */
bool oracle_get(struct oracle *oracle, bool is_debug_frame, uint64_t pc, struct cfi_rule *ret_rule,
		uint64_t *ret_end);
