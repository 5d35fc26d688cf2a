/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Translates the operations from dwarf_frame_cfa() and dwarf_frame_register() back to rules. */
#include "tests/oracle/oracle.h"

#include "arch/base.h"

#include <dwarf.h>

void oracle_init(struct oracle *oracle, Elf *elf, enum regs_arch arch)
{
	*oracle = (struct oracle){
		.eh_frame = dwarf_getcfi_elf(elf),
		.dwarf = dwarf_begin_elf(elf, DWARF_C_READ, NULL),
		.arch = arch,
	};
	if (oracle->dwarf)
		oracle->debug_frame = dwarf_getcfi(oracle->dwarf);
}

void oracle_done(struct oracle *oracle)
{
	dwarf_cfi_end(oracle->eh_frame);
	dwarf_end(oracle->dwarf);
}

/* Returns whether `op` is DW_OP_bregN or DW_OP_bregx; libdw also uses them for rules of the form
 * register plus offset. */
static bool is_register(const Dwarf_Op *op, uint64_t *ret_register, int64_t *ret_offset)
{
	if (op->atom == DW_OP_bregx) {
		*ret_register = op->number;
		*ret_offset = (int64_t)op->number2;
		return true;
	}
	if (op->atom < DW_OP_breg0 || op->atom > DW_OP_breg31)
		return false;
	*ret_register = op->atom - DW_OP_breg0;
	*ret_offset = (int64_t)op->number;
	return true;
}

/* Returns whether the operations are the pattern of a PLT. */
static bool is_plt(const Dwarf_Op *ops, size_t n, unsigned int *ret_from)
{
	static const uint8_t atoms[] = {
		DW_OP_breg7, DW_OP_breg16, DW_OP_lit15, DW_OP_and,  0, /* DW_OP_lit n */
		DW_OP_ge,    DW_OP_lit3,   DW_OP_shl,   DW_OP_plus,
	};

	if (n != ARRAY_SIZE(atoms) || ops[0].number != 8 || ops[1].number != 0)
		return false;
	for (size_t i = 0; i < n; i++)
		if (i != 4 && ops[i].atom != atoms[i])
			return false;
	if (ops[4].atom < DW_OP_lit0 || ops[4].atom > DW_OP_lit15)
		return false;
	*ret_from = ops[4].atom - DW_OP_lit0;
	return true;
}

static bool set_offset(int64_t offset, int32_t *set)
{
	*set = (int32_t)offset;
	return offset == *set;
}

/* Sets a rule from `deref`, or `deref` and `plus_uconst n`. */
static bool set_deref(const Dwarf_Op *ops, size_t n, struct cfi_rule *rule)
{
	if (ops[0].atom != DW_OP_deref || n > 2)
		return false;
	if (n == 1)
		return true;
	rule->flags |= (uint8_t)(ops[1].number / 8 << CFI_NUMBER_SHIFT);
	return ops[1].atom == DW_OP_plus_uconst && ops[1].number % 8 == 0 &&
	       ops[1].number / 8 <= CFI_MAX_NUMBER;
}

static bool set_cfa(const struct regs *regs, const Dwarf_Op *ops, size_t n, struct cfi_rule *rule)
{
	unsigned int from;
	uint64_t reg;
	int64_t offset;
	bool deref;

	if (is_plt(ops, n, &from)) {
		rule->cfa = CFI_CFA_PLT;
		rule->cfa_offset = 8;
		rule->flags |= (uint8_t)(from << CFI_NUMBER_SHIFT);
		return true;
	}
	if (n == 0 || !is_register(&ops[0], &reg, &offset))
		return false;
	if (n == 1 && reg != regs->sp && reg != regs->fp && reg < regs->n_numbered) {
		rule->cfa = CFI_CFA_REGISTER;
		rule->flags |= (uint8_t)(reg << CFI_NUMBER_SHIFT);
		return set_offset(offset, &rule->cfa_offset);
	}
	if (reg != regs->sp && reg != regs->fp)
		return false;
	deref = n > 1;
	if (deref && !set_deref(ops + 1, n - 1, rule))
		return false;
	if (reg == regs->sp)
		rule->cfa = deref ? CFI_CFA_AT_SP : CFI_CFA_SP;
	else
		rule->cfa = deref ? CFI_CFA_AT_FP : CFI_CFA_FP;
	return set_offset(offset, &rule->cfa_offset);
}

static bool is_lr_copy(const Dwarf_Op *op, const struct regs *regs)
{
	if (regs->lr_copy == REGS_NO_COPY)
		return false;
	return (op->atom == DW_OP_regx && op->number == regs->lr_copy) ||
	       op->atom == DW_OP_reg0 + regs->lr_copy;
}

static bool get_place(Dwarf_Frame *frame, const struct regs *regs, int reg, uint8_t *ret_place,
		      int32_t *ret_offset)
{
	Dwarf_Op memory[3], *ops;
	uint64_t base;
	int64_t offset;
	size_t n;

	if (dwarf_frame_register(frame, reg, memory, &ops, &n) != 0)
		return false;
	*ret_offset = 0;
	if (n == 0) {
		*ret_place = ops ? CFI_UNDEFINED : CFI_SAME;
		return true;
	}
	/* An expression begins with the CFA on the stack (DWARF 5, 6.4.2.3), so libdw prepends
	 * it. */
	if (n == 2 && ops[0].atom == DW_OP_call_frame_cfa && ops[1].atom != DW_OP_plus_uconst) {
		ops++;
		n--;
	}
	if (ops[0].atom == DW_OP_call_frame_cfa) {
		offset = n == 2 ? (int64_t)ops[1].number : 0;
		*ret_place = CFI_AT_CFA;
		return (n == 1 || (n == 2 && ops[1].atom == DW_OP_plus_uconst)) &&
		       set_offset(offset, ret_offset);
	}
	if (reg == regs->ra && n == 1 && is_lr_copy(&ops[0], regs)) {
		*ret_place = CFI_SAME;
		return true;
	}
	if (reg == regs->ra && n == 1 && ops[0].atom >= DW_OP_reg0 &&
	    ops[0].atom < DW_OP_reg0 + regs->n_numbered) {
		*ret_place = CFI_IN_REGISTER;
		*ret_offset = ops[0].atom - DW_OP_reg0;
		return true;
	}
	if (reg == regs->ra && n == 1 && ops[0].atom == DW_OP_regx &&
	    ops[0].number < regs->n_numbered) {
		*ret_place = CFI_IN_REGISTER;
		*ret_offset = (int32_t)ops[0].number;
		return true;
	}
	if (n != 1 || !is_register(&ops[0], &base, &offset) ||
	    (base != regs->sp && base != regs->fp))
		return false;
	*ret_place = base == regs->sp ? CFI_AT_SP : CFI_AT_FP;
	return set_offset(offset, ret_offset);
}

/* Returns whether libdw says that sp is the CFA. libdw has forms of its own for this: no
 * operations, or DW_OP_call_frame_cfa and DW_OP_stack_value. */
static bool sp_is_cfa(Dwarf_Frame *frame, const struct regs *regs, const struct cfi_rule *rule)
{
	Dwarf_Op memory[3], *ops;
	uint8_t place;
	int32_t offset;
	size_t n;

	if (dwarf_frame_register(frame, regs->sp, memory, &ops, &n) != 0)
		return false;
	if ((n == 0 && !ops) ||
	    (n == 2 && ops[0].atom == DW_OP_call_frame_cfa && ops[1].atom == DW_OP_stack_value))
		return true;
	return get_place(frame, regs, regs->sp, &place, &offset) && offset == rule->cfa_offset &&
	       CFI_NUMBER(rule->flags) == 0 &&
	       ((place == CFI_AT_SP && rule->cfa == CFI_CFA_AT_SP) ||
		(place == CFI_AT_FP && rule->cfa == CFI_CFA_AT_FP));
}

static enum oracle_why why_no_cfa(const Dwarf_Op *ops, size_t n)
{
	uint64_t reg;
	int64_t offset;

	return n == 1 && is_register(&ops[0], &reg, &offset) ? ORACLE_CFA_REGISTER
							     : ORACLE_CFA_EXPRESSION;
}

static enum oracle_why why_no_ra(Dwarf_Frame *frame, const struct regs *regs)
{
	Dwarf_Op memory[3], *ops;
	size_t n;

	if (dwarf_frame_register(frame, regs->ra, memory, &ops, &n) != 0 || n > 1)
		return ORACLE_RA_EXPRESSION;
	return ORACLE_RA_REGISTER;
}

static bool make_rule(Dwarf_Frame *frame, const struct regs *regs, const Dwarf_Op *ops, size_t n,
		      struct cfi_rule *rule, enum oracle_why *ret_why)
{
	if (!set_cfa(regs, ops, n, rule)) {
		*ret_why = why_no_cfa(ops, n);
		return false;
	}
	if (!sp_is_cfa(frame, regs, rule)) {
		*ret_why = ORACLE_SP;
		return false;
	}
	if (!get_place(frame, regs, regs->ra, &rule->ra, &rule->ra_offset) ||
	    (rule->ra == CFI_SAME && !regs->has_lr)) {
		*ret_why = why_no_ra(frame, regs);
		return false;
	}
	if (!get_place(frame, regs, regs->fp, &rule->fp, &rule->fp_offset)) {
		rule->fp = CFI_UNDEFINED;
		rule->fp_offset = 0;
	}
	return true;
}

bool oracle_get(struct oracle *oracle, bool is_debug_frame, uint64_t pc, struct cfi_rule *ret_rule,
		uint64_t *ret_end)
{
	Dwarf_CFI *cfi = is_debug_frame ? oracle->debug_frame : oracle->eh_frame;
	struct cfi_rule rule = { 0 };
	CLEANUP_FREE Dwarf_Frame *frame = NULL;
	Dwarf_Addr start, end;
	bool is_signal;
	Dwarf_Op *ops;
	size_t n;

	if (!cfi || dwarf_cfi_addrframe(cfi, pc, &frame) != 0 ||
	    dwarf_frame_cfa(frame, &ops, &n) != 0) {
		oracle->why = ORACLE_BROKEN;
		return false;
	}
	/* `start` is not used: after DW_CFA_restore_state, elfutils 0.188 returns that of the saved
	 * state. */
	dwarf_frame_info(frame, &start, &end, &is_signal);
	if (is_signal)
		rule.flags |= CFI_SIGNAL;
	if (!make_rule(frame, regs_get(oracle->arch), ops, n, &rule, &oracle->why))
		rule = (struct cfi_rule){ .cfa = CFI_CFA_UNSUPPORTED };
	*ret_rule = rule;
	*ret_end = end;
	return true;
}
