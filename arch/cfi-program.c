/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * CFI program - runs the instructions of a CIE and of an FDE
 *
 * A program moves through the code of a function and describes at each pc where the CFA and the
 * registers are. Only the registers that a walk needs are tracked: fp, the return address, and sp,
 * which must be the CFA. A table describes the operands, so that irrelevant instructions are
 * skipped by the same code.
 * Invariants: (1) rows ascend, do not overlap and stay within the FDE  [test-cfi-files; fuzz_cfi]
 *             (2) each row but the last costs at least one byte of program [fuzz_cfi]
 *             (3) a state that no rule can express is marked, and later rows are still read
 *                                                                          [test-cfi: prefixes]
 * These DWARF expressions are supported: `reg + n`, `*(reg + n) + 8 * m` (for gcc's realigned
 * frames and libcrypto), and the pattern that linkers write for the PLT.
 */
#include "arch/cfi-program.h"

#include "arch/base.h"

/* DWARF 5, 7.24, and the extensions of GNU and of the psABIs */
enum cfa_op {
	OP_NOP = 0x00,
	OP_SET_LOC = 0x01,
	OP_ADVANCE_LOC1 = 0x02,
	OP_ADVANCE_LOC2 = 0x03,
	OP_ADVANCE_LOC4 = 0x04,
	OP_OFFSET_EXTENDED = 0x05,
	OP_RESTORE_EXTENDED = 0x06,
	OP_UNDEFINED = 0x07,
	OP_SAME_VALUE = 0x08,
	OP_REGISTER = 0x09,
	OP_REMEMBER_STATE = 0x0a,
	OP_RESTORE_STATE = 0x0b,
	OP_DEF_CFA = 0x0c,
	OP_DEF_CFA_REGISTER = 0x0d,
	OP_DEF_CFA_OFFSET = 0x0e,
	OP_DEF_CFA_EXPRESSION = 0x0f,
	OP_EXPRESSION = 0x10,
	OP_OFFSET_EXTENDED_SF = 0x11,
	OP_DEF_CFA_SF = 0x12,
	OP_DEF_CFA_OFFSET_SF = 0x13,
	OP_VAL_OFFSET = 0x14,
	OP_VAL_OFFSET_SF = 0x15,
	OP_VAL_EXPRESSION = 0x16,
	OP_ADVANCE_LOC8 = 0x1d,
	OP_NEGATE_RA_STATE = 0x2d,
	OP_ARGS_SIZE = 0x2e,
	OP_NEGATIVE_OFFSET_EXTENDED = 0x2f,
	/* The low six bits of the next three opcodes hold the first operand. */
	OP_ADVANCE_LOC = 0x40,
	OP_OFFSET = 0x80,
	OP_RESTORE = 0xc0,
	OP_SHORT_MASK = 0xc0,
};

/* DWARF 5, 7.7.1 */
enum expression_op {
	EXPR_DEREF = 0x06,
	EXPR_PLUS_UCONST = 0x23,
	EXPR_LIT0 = 0x30,
	EXPR_LIT15 = 0x3f,
	EXPR_BREG0 = 0x70,
	EXPR_BREG31 = 0x8f,
};

enum operand {
	OPERAND_INVALID,
	OPERAND_NONE,
	OPERAND_U,
	OPERAND_S,
	OPERAND_1,
	OPERAND_2,
	OPERAND_4,
	OPERAND_8,
	OPERAND_ADDRESS,
	OPERAND_BLOCK
};

static const uint8_t operands[OP_ADVANCE_LOC][2] = {
	[OP_NOP] = { OPERAND_NONE },
	[OP_SET_LOC] = { OPERAND_ADDRESS },
	[OP_ADVANCE_LOC1] = { OPERAND_1 },
	[OP_ADVANCE_LOC2] = { OPERAND_2 },
	[OP_ADVANCE_LOC4] = { OPERAND_4 },
	[OP_ADVANCE_LOC8] = { OPERAND_8 },
	[OP_OFFSET_EXTENDED] = { OPERAND_U, OPERAND_U },
	[OP_RESTORE_EXTENDED] = { OPERAND_U },
	[OP_UNDEFINED] = { OPERAND_U },
	[OP_SAME_VALUE] = { OPERAND_U },
	[OP_REGISTER] = { OPERAND_U, OPERAND_U },
	[OP_REMEMBER_STATE] = { OPERAND_NONE },
	[OP_RESTORE_STATE] = { OPERAND_NONE },
	[OP_DEF_CFA] = { OPERAND_U, OPERAND_U },
	[OP_DEF_CFA_REGISTER] = { OPERAND_U },
	[OP_DEF_CFA_OFFSET] = { OPERAND_U },
	[OP_DEF_CFA_EXPRESSION] = { OPERAND_BLOCK },
	[OP_EXPRESSION] = { OPERAND_U, OPERAND_BLOCK },
	[OP_OFFSET_EXTENDED_SF] = { OPERAND_U, OPERAND_S },
	[OP_DEF_CFA_SF] = { OPERAND_U, OPERAND_S },
	[OP_DEF_CFA_OFFSET_SF] = { OPERAND_S },
	[OP_VAL_OFFSET] = { OPERAND_U, OPERAND_U },
	[OP_VAL_OFFSET_SF] = { OPERAND_U, OPERAND_S },
	[OP_VAL_EXPRESSION] = { OPERAND_U, OPERAND_BLOCK },
	[OP_NEGATE_RA_STATE] = { OPERAND_NONE },
	[OP_ARGS_SIZE] = { OPERAND_U },
	[OP_NEGATIVE_OFFSET_EXTENDED] = { OPERAND_U, OPERAND_U },
};

struct instruction {
	uint8_t op;
	uint64_t operand[2];
	struct byte_reader block;
};

/* Stores the operand in *set. For a block, sets *block and stores its size in *set. */
static void read_operand(const struct cfi_rows *rows, const struct cfi_cie *cie,
			 struct byte_reader *bytes, uint8_t kind, uint64_t *set,
			 struct byte_reader *block)
{
	switch (kind) {
	case OPERAND_U:
		*set = byte_reader_uleb(bytes);
		break;
	case OPERAND_S:
		*set = (uint64_t)byte_reader_sleb(bytes);
		break;
	case OPERAND_1:
		*set = byte_reader_u8(bytes);
		break;
	case OPERAND_2:
		*set = byte_reader_u16(bytes);
		break;
	case OPERAND_4:
		*set = byte_reader_u32(bytes);
		break;
	case OPERAND_8:
		*set = byte_reader_u64(bytes);
		break;
	case OPERAND_ADDRESS:
		*set = cfi_read_pointer(rows->reader->section, bytes, cie->encoding,
					rows->fde ? rows->fde->start : 0);
		break;
	case OPERAND_BLOCK:
		*set = byte_reader_uleb(bytes);
		block->at = byte_reader_read(bytes, *set);
		block->end = bytes->at;
		block->failed = bytes->failed;
		break;
	}
}

static bool parse_instruction(const struct cfi_rows *rows, const struct cfi_cie *cie,
			      struct byte_reader *bytes, struct instruction *ret_instruction)
{
	uint8_t byte = byte_reader_u8(bytes);
	struct instruction *instruction = ret_instruction;

	instruction->op = byte & OP_SHORT_MASK ? byte & OP_SHORT_MASK : byte;
	if (instruction->op != byte || (byte & OP_SHORT_MASK)) {
		instruction->operand[0] = byte & ~OP_SHORT_MASK;
		if (instruction->op == OP_OFFSET)
			instruction->operand[1] = byte_reader_uleb(bytes);
		return !bytes->failed;
	}
	if (operands[byte][0] == OPERAND_INVALID)
		return false;
	for (size_t i = 0; i < 2; i++)
		read_operand(rows, cie, bytes, operands[byte][i], &instruction->operand[i],
			     &instruction->block);
	return !bytes->failed;
}

static void set_cfa(struct cfi_state *state, uint64_t reg, int64_t offset)
{
	state->cfa = CFI_CFA_SP;
	state->cfa_register = reg;
	state->cfa_offset = offset;
}

/* ---- Expressions ---- */

/* Parses one of DW_OP_breg0 to DW_OP_breg31, with its offset. Does not read the rest of the
 * block. */
static bool parse_register_offset(struct byte_reader *block, uint64_t *ret_register,
				  int64_t *ret_offset)
{
	uint8_t op = byte_reader_u8(block);
	int64_t offset = byte_reader_sleb(block);

	if (block->failed || op < EXPR_BREG0 || op > EXPR_BREG31)
		return false;
	*ret_register = op - EXPR_BREG0;
	*ret_offset = offset;
	return true;
}

/* rsp + 8 + ((rip & 15) >= n) * 8, as written by binutils, gold and lld for .plt (x86_64) */
static bool is_plt(const struct byte_reader *block, uint8_t *ret_from)
{
	static const uint8_t before[] = { 0x77, 8, 0x80, 0, EXPR_LIT15, 0x1a };
	static const uint8_t after[] = { 0x2a, EXPR_LIT0 + 3, 0x24, 0x22 };
	const size_t at = sizeof(before);

	if (byte_reader_left(block) != sizeof(before) + 1 + sizeof(after) ||
	    memcmp(block->at, before, sizeof(before)) != 0 ||
	    memcmp(block->at + at + 1, after, sizeof(after)) != 0 || block->at[at] < EXPR_LIT0 ||
	    block->at[at] > EXPR_LIT15)
		return false;
	*ret_from = block->at[at] - EXPR_LIT0;
	return true;
}

/* Parses `deref`, optionally followed by `plus_uconst n`. */
static bool parse_deref(struct byte_reader *block, uint8_t *ret_number)
{
	uint64_t add = 0;

	if (byte_reader_u8(block) != EXPR_DEREF)
		return false;
	if (byte_reader_left(block) > 0) {
		if (byte_reader_u8(block) != EXPR_PLUS_UCONST)
			return false;
		add = byte_reader_uleb(block);
	}
	if (block->failed || byte_reader_left(block) > 0 || add % 8 != 0 ||
	    add / 8 > CFI_MAX_NUMBER)
		return false;
	*ret_number = (uint8_t)(add / 8);
	return true;
}

static void set_cfa_expression(const struct regs *regs, struct cfi_state *state,
			       struct byte_reader block)
{
	struct byte_reader rest = block;
	uint64_t reg;
	int64_t offset;

	state->cfa = CFI_CFA_UNSUPPORTED;
	state->number = 0;
	if (regs->elf_machine == regs_get(REGS_X86_64)->elf_machine &&
	    is_plt(&block, &state->number)) {
		state->cfa = CFI_CFA_PLT;
		state->expression_offset = 8;
		return;
	}
	if (!parse_register_offset(&rest, &reg, &offset))
		return;
	state->expression_offset = offset;
	if (byte_reader_left(&rest) == 0)
		set_cfa(state, reg, offset);
	else if (reg == regs->sp && parse_deref(&rest, &state->number))
		state->cfa = CFI_CFA_AT_SP;
	else if (reg == regs->fp && parse_deref(&rest, &state->number))
		state->cfa = CFI_CFA_AT_FP;
}

/* Returns where an expression says that a register's value is stored. */
static struct cfi_value value_of_expression(const struct regs *regs, struct byte_reader block)
{
	struct cfi_value value = { .place = CFI_N_PLACES };
	uint64_t reg;

	if (!parse_register_offset(&block, &reg, &value.offset) || byte_reader_left(&block) != 0)
		return (struct cfi_value){ .place = CFI_N_PLACES };
	if (reg == regs->sp)
		value.place = CFI_AT_SP;
	else if (reg == regs->fp)
		value.place = CFI_AT_FP;
	return value;
}

/* ---- Instructions ---- */

static struct cfi_value value_at_cfa(const struct cfi_cie *cie, uint64_t factored)
{
	struct cfi_value value = { .place = CFI_AT_CFA };

	if (__builtin_mul_overflow((int64_t)factored, cie->data_align, &value.offset))
		value.place = CFI_N_PLACES;
	return value;
}

/*
 * ppc64le: after `mflr r0`, until r0 is stored, CFI says that the return address is in r0. The
 * address is also still in lr, which only a call changes. In the files of Debian's libc6 and gcc
 * packages, the only call in between is in the linker's __glink_PLTresolve. For two instructions,
 * lr then holds an address in that function, and a walk ends with WALK_BAD_FRAME.
 */
static struct cfi_value value_in_register(const struct regs *regs, bool is_ra, uint64_t reg)
{
	if (is_ra && regs->lr_copy != REGS_NO_COPY && reg == regs->lr_copy)
		return (struct cfi_value){ .place = CFI_SAME };
	if (is_ra && reg < regs->n_numbered)
		return (struct cfi_value){ .place = CFI_IN_REGISTER, .offset = (int64_t)reg };
	return (struct cfi_value){ .place = CFI_N_PLACES };
}

static struct cfi_value *followed(const struct regs *regs, struct cfi_state *state, uint64_t reg)
{
	if (reg == regs->fp)
		return &state->fp;
	if (reg == regs->ra)
		return &state->ra;
	return reg == regs->sp ? &state->sp : NULL;
}

static void run_register(const struct cfi_reader *reader, const struct cfi_cie *cie,
			 struct cfi_state *state, const struct instruction *instruction)
{
	struct cfi_value *value = followed(reader->regs, state, instruction->operand[0]);

	if (!value)
		return;
	switch (instruction->op) {
	case OP_OFFSET:
	case OP_OFFSET_EXTENDED:
	case OP_OFFSET_EXTENDED_SF:
		*value = value_at_cfa(cie, instruction->operand[1]);
		break;
	case OP_NEGATIVE_OFFSET_EXTENDED:
		*value = value_at_cfa(cie, -instruction->operand[1]);
		break;
	case OP_RESTORE:
	case OP_RESTORE_EXTENDED:
		*value = *followed(reader->regs, (struct cfi_state *)&cie->initial,
				   instruction->operand[0]);
		break;
	case OP_UNDEFINED:
		*value = (struct cfi_value){ .place = CFI_UNDEFINED };
		break;
	case OP_SAME_VALUE:
		*value = (struct cfi_value){ .place = CFI_SAME };
		break;
	case OP_EXPRESSION:
		*value = value_of_expression(reader->regs, instruction->block);
		break;
	case OP_VAL_OFFSET:
	case OP_VAL_OFFSET_SF:
		/* A rule can express only one value of sp: the CFA itself (offset 0). */
		value->place = value == &state->sp && instruction->operand[1] == 0 ? CFI_SAME
										   : CFI_N_PLACES;
		break;
	case OP_REGISTER:
		*value = value_in_register(reader->regs, value == &state->ra,
					   instruction->operand[1]);
		break;
	default: /* OP_VAL_EXPRESSION */
		*value = (struct cfi_value){ .place = CFI_N_PLACES };
	}
}

static void set_cfa_factored(const struct cfi_cie *cie, struct cfi_state *state, uint64_t reg,
			     uint64_t factored)
{
	struct cfi_value value = value_at_cfa(cie, factored);

	set_cfa(state, reg, value.offset);
	if (value.place == CFI_N_PLACES)
		state->cfa = CFI_CFA_UNSUPPORTED;
}

/* Like libgcc: DW_CFA_def_cfa_register replaces a CFA expression, and the last offset is valid
 * again; DW_CFA_def_cfa_offset does not replace the expression. */
static void run_cfa(const struct cfi_reader *reader, const struct cfi_cie *cie,
		    struct cfi_state *state, const struct instruction *instruction)
{
	const uint64_t *operand = instruction->operand;
	uint8_t kind = state->cfa;

	switch (instruction->op) {
	case OP_DEF_CFA:
		set_cfa(state, operand[0], (int64_t)operand[1]);
		break;
	case OP_DEF_CFA_SF:
		set_cfa_factored(cie, state, operand[0], operand[1]);
		break;
	case OP_DEF_CFA_EXPRESSION:
		set_cfa_expression(reader->regs, state, instruction->block);
		break;
	case OP_DEF_CFA_REGISTER:
		set_cfa(state, operand[0], state->cfa_offset);
		break;
	case OP_DEF_CFA_OFFSET:
		state->cfa_offset = (int64_t)operand[0];
		break;
	default: /* OP_DEF_CFA_OFFSET_SF */
		set_cfa_factored(cie, state, state->cfa_register, operand[0]);
		if (kind != CFI_CFA_SP)
			state->cfa = kind;
	}
}

static bool run_state(struct cfi_rows *rows, const struct instruction *instruction)
{
	if (instruction->op == OP_REMEMBER_STATE) {
		if (rows->n_remembered == CFI_MAX_REMEMBERED)
			return false;
		rows->remembered[rows->n_remembered++] = rows->state;
		return true;
	}
	if (rows->n_remembered == 0)
		return false;
	rows->state = rows->remembered[--rows->n_remembered];
	return true;
}

/* Computes the pc after an instruction that advances it. Returns false if the pc would decrease. */
static bool move(const struct cfi_rows *rows, const struct cfi_cie *cie,
		 const struct instruction *instruction, uint64_t *ret_pc)
{
	uint64_t distance, pc;

	if (instruction->op == OP_SET_LOC) {
		pc = instruction->operand[0];
	} else if (!mul_u64(instruction->operand[0], cie->code_align, &distance) ||
		   !add_u64(rows->pc, distance, &pc)) {
		return false;
	}
	if (pc < rows->pc)
		return false;
	*ret_pc = pc;
	return true;
}

/* Runs an instruction that does not advance the pc. */
static bool run(struct cfi_rows *rows, const struct cfi_cie *cie,
		const struct instruction *instruction)
{
	switch (instruction->op) {
	case OP_NOP:
	case OP_ARGS_SIZE:
		return true;
	case OP_REMEMBER_STATE:
	case OP_RESTORE_STATE:
		return run_state(rows, instruction);
	case OP_DEF_CFA:
	case OP_DEF_CFA_SF:
	case OP_DEF_CFA_REGISTER:
	case OP_DEF_CFA_OFFSET:
	case OP_DEF_CFA_OFFSET_SF:
	case OP_DEF_CFA_EXPRESSION:
		run_cfa(rows->reader, cie, &rows->state, instruction);
		return true;
	case OP_NEGATE_RA_STATE:
		rows->state.ra_signed = !rows->state.ra_signed;
		return rows->reader->regs->is_pac;
	default:
		run_register(rows->reader, cie, &rows->state, instruction);
		return true;
	}
}

static bool moves(uint8_t op)
{
	return op == OP_ADVANCE_LOC || (op >= OP_SET_LOC && op <= OP_ADVANCE_LOC4) ||
	       op == OP_ADVANCE_LOC8;
}

bool cfi_program_initial(struct cfi_reader *reader, struct cfi_cie *cie,
			 const struct byte_reader *program)
{
	struct cfi_rows *rows = &reader->rows;
	struct byte_reader bytes = *program;
	struct instruction instruction;

	/* Initially the return address is in lr or where the architecture's calls put it. */
	*rows = (struct cfi_rows){ .reader = reader, .state.cfa = CFI_CFA_UNSUPPORTED };
	if (!reader->regs->has_lr)
		rows->state.ra = (struct cfi_value){ CFI_AT_CFA, reader->regs->ra_from_cfa };
	cie->initial = rows->state;
	while (byte_reader_left(&bytes) > 0)
		if (!parse_instruction(rows, cie, &bytes, &instruction) || moves(instruction.op) ||
		    !run(rows, cie, &instruction))
			return false;
	cie->initial = rows->state;
	return true;
}

/* ---- Rows ---- */

static bool fits(int64_t value)
{
	return value >= INT32_MIN && value <= INT32_MAX;
}

/* Sets the places of the return address and of the caller's fp. Returns false if no rule can
 * express the return address. fp is CFI_UNDEFINED if no rule can express it. */
static bool set_places(const struct regs *regs, const struct cfi_state *state,
		       struct cfi_rule *rule)
{
	if (state->ra.place == CFI_N_PLACES || !fits(state->ra.offset) ||
	    (state->ra.place == CFI_SAME && !regs->has_lr))
		return false;
	rule->ra = state->ra.place;
	rule->ra_offset = (int32_t)state->ra.offset;
	rule->fp = CFI_UNDEFINED;
	if (state->fp.place != CFI_N_PLACES && fits(state->fp.offset)) {
		rule->fp = state->fp.place;
		rule->fp_offset = (int32_t)state->fp.offset;
	}
	return true;
}

/* Returns whether the caller's sp is the CFA. Some signal frames state that by an expression. */
static bool sp_is_cfa(const struct cfi_state *state)
{
	switch (state->sp.place) {
	case CFI_SAME:
		return true;
	case CFI_AT_SP:
		return state->cfa == CFI_CFA_AT_SP &&
		       state->sp.offset == state->expression_offset && state->number == 0;
	case CFI_AT_FP:
		return state->cfa == CFI_CFA_AT_FP &&
		       state->sp.offset == state->expression_offset && state->number == 0;
	default:
		return false;
	}
}

/* Sets how the CFA is computed; CFI_CFA_UNSUPPORTED if its register or offset does not fit. */
static void set_rule_cfa(const struct regs *regs, const struct cfi_state *state,
			 struct cfi_rule *rule)
{
	int64_t offset = state->expression_offset;

	rule->cfa = state->cfa;
	if (state->cfa == CFI_CFA_SP) {
		offset = state->cfa_offset;
		if (state->cfa_register == regs->fp) {
			rule->cfa = CFI_CFA_FP;
		} else if (state->cfa_register < regs->n_numbered &&
			   state->cfa_register != regs->sp) {
			rule->cfa = CFI_CFA_REGISTER;
			rule->flags |= (uint8_t)(state->cfa_register << CFI_NUMBER_SHIFT);
		} else if (state->cfa_register != regs->sp) {
			rule->cfa = CFI_CFA_UNSUPPORTED;
		}
	} else {
		rule->flags |= (uint8_t)(state->number << CFI_NUMBER_SHIFT);
	}
	rule->cfa_offset = (int32_t)offset;
	if (!fits(offset))
		rule->cfa = CFI_CFA_UNSUPPORTED;
}

static void make_rule(const struct regs *regs, const struct cfi_cie *cie,
		      const struct cfi_state *state, struct cfi_rule *ret_rule)
{
	struct cfi_rule rule = { .flags = cie->is_signal ? CFI_SIGNAL : 0 };

	if (state->ra_signed)
		rule.flags |= CFI_RA_SIGNED;
	set_rule_cfa(regs, state, &rule);
	if (rule.cfa == CFI_CFA_UNSUPPORTED || !sp_is_cfa(state) || !set_places(regs, state, &rule))
		rule = (struct cfi_rule){ .cfa = CFI_CFA_UNSUPPORTED };
	*ret_rule = rule;
}

void cfi_rows_init(struct cfi_rows *rows, const struct cfi_reader *reader,
		   const struct cfi_fde *fde)
{
	rows->reader = reader;
	rows->fde = fde;
	rows->at = fde->program;
	rows->pc = fde->start;
	rows->broken = false;
	rows->state = fde->cie.initial;
	rows->n_remembered = 0;
}

/* Runs the program up to the next row. Returns the end of the current row, and its rule. */
static uint64_t run_row(struct cfi_rows *rows, struct cfi_rule *ret_rule)
{
	const struct cfi_fde *fde = rows->fde;
	struct byte_reader bytes = { rows->at, fde->program_end, false };
	struct instruction instruction;
	uint64_t pc = rows->pc;

	while (!rows->broken && pc == rows->pc && byte_reader_left(&bytes) > 0) {
		bool good = parse_instruction(rows, &fde->cie, &bytes, &instruction);

		if (good && moves(instruction.op))
			good = move(rows, &fde->cie, &instruction, &pc);
		else if (good)
			good = run(rows, &fde->cie, &instruction);
		rows->broken = !good;
	}
	rows->at = bytes.at;
	if (rows->broken)
		*ret_rule = (struct cfi_rule){ .cfa = CFI_CFA_UNSUPPORTED };
	else
		make_rule(rows->reader->regs, &fde->cie, &rows->state, ret_rule);
	return pc == rows->pc ? fde->end : MIN_OF(pc, fde->end);
}

bool cfi_rows_next(struct cfi_rows *rows, struct cfi_row *ret_row)
{
	if (rows->pc >= rows->fde->end)
		return false;
	ret_row->start = rows->pc;
	ret_row->end = run_row(rows, &ret_row->rule);
	rows->pc = ret_row->end;
	return true;
}

void cfi_get_rule(struct cfi_reader *reader, uint64_t pc, struct cfi_rule *ret_rule)
{
	struct cfi_rule rule = { .cfa = CFI_CFA_NONE };
	struct cfi_rows *rows = &reader->rows;
	struct cfi_fde fde;
	struct cfi_row row;

	if (cfi_find(reader, pc, &fde))
		for (cfi_rows_init(rows, reader, &fde); cfi_rows_next(rows, &row);)
			if (pc < row.end) {
				rule = row.rule;
				break;
			}
	*ret_rule = rule;
}
