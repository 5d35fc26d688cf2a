/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Oracle - what elfutils says
 *
 * libdw's reading of CFI, in our words, to be compared byte by byte. Of the pieces of a rule that
 * ours cannot hold it says so by the same rules: no CFA or return address is CFI_CFA_UNSUPPORTED,
 * no fp is CFI_UNDEFINED.
 */
#pragma once

#include "arch/cfi.h"

#include <elfutils/libdw.h>

/* Why a rule cannot hold what libdw says. */
enum oracle_why {
	ORACLE_CFA_REGISTER,   /* the CFA is relative to another register than sp or fp */
	ORACLE_CFA_EXPRESSION, /* or any other expression */
	ORACLE_SP,             /* the caller's sp is not the CFA */
	ORACLE_RA_REGISTER,    /* the return address is in another register */
	ORACLE_RA_EXPRESSION,  /* or any other expression */
	ORACLE_BROKEN,         /* libdw has no CFA: its program is broken */
	ORACLE_N_WHYS,
};

struct oracle {
	Dwarf_CFI *eh_frame;
	Dwarf *dwarf;
	Dwarf_CFI *debug_frame;
	enum regs_arch arch;
	enum oracle_why why; /* of the last rule that is CFI_CFA_UNSUPPORTED */
};

void oracle_init(struct oracle *oracle, Elf *elf, enum regs_arch arch);
void oracle_done(struct oracle *oracle);

/* False where libdw has no CFA: nothing covers pc, or the program before it is broken, in
 * libdw's eyes. */
bool oracle_get(struct oracle *oracle, bool is_debug_frame, uint64_t pc, struct cfi_rule *ret_rule,
		uint64_t *ret_end);
