/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Oracle - unwind rules from elfutils
 *
 * Translates libdw's results to our rules, so that both can be compared byte by byte. If a part of
 * a rule cannot be expressed, it is set as our code does: the CFA and the return address to
 * CFI_CFA_UNSUPPORTED, fp to CFI_UNDEFINED.
 */
#pragma once

#include "arch/cfi.h"

#include <elfutils/libdw.h>

/* Why our rules cannot express libdw's result. */
enum oracle_why {
	ORACLE_CFA_REGISTER,   /* the CFA is a register plus an offset, one of which does not fit */
	ORACLE_CFA_EXPRESSION, /* the CFA is any other expression */
	ORACLE_SP,             /* the caller's sp is not the CFA */
	ORACLE_RA_REGISTER,    /* the return address is in a register that our rules lack */
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
