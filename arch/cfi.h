/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * CFI - call frame information: finds the rule for a pc, by which a walk finds the caller
 *
 *     struct cfi_reader reader;
 *     struct cfi_fde fde;
 *     struct cfi_rows rows;
 *     struct cfi_row row;
 *     size_t at = 0;
 *
 *     cfi_reader_init(&reader, &section);
 *     while (cfi_reader_next(&reader, &at, &fde))
 *             for (cfi_rows_init(&rows, &reader, &fde); cfi_rows_next(&rows, &row);)
 *                     use(row.start, row.end, &row.rule);
 *
 * Every function is async-signal-safe and allocates nothing. A reader belongs to one thread; the
 * section's bytes must not move. Little-endian and 64 bits only.
 * Sources: DWARF 5 section 6.4; Linux Standard Base Core 5.0 section 10.6 for .eh_frame and
 * .eh_frame_hdr.
 */
#pragma once

#include "arch/regs.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CFI_MAX_REMEMBERED 8 /* states that a program may have saved at once; compilers save one */
#define CFI_READER_CIES 8

/* How the CFA is computed. The CFA is the value that sp had before the call. */
enum cfi_cfa {
	CFI_CFA_NONE,        /* no CFI covers this pc */
	CFI_CFA_UNSUPPORTED, /* CFI that no rule can express */
	CFI_CFA_SP,          /* sp + cfa_offset */
	CFI_CFA_FP,          /* fp + cfa_offset */
	CFI_CFA_AT_SP,       /* word at sp + cfa_offset, plus 8 * CFI_NUMBER() */
	CFI_CFA_AT_FP,       /* word at fp + cfa_offset, plus 8 * CFI_NUMBER() */
	CFI_CFA_PLT,         /* sp + cfa_offset, plus 8 if pc % 16 >= CFI_NUMBER() */
	CFI_CFA_REGISTER,    /* cfa_offset + the register with DWARF number CFI_NUMBER() */
	CFI_N_CFAS,
};

/* Where the caller's value of a register is. */
enum cfi_place {
	CFI_SAME,   /* still in the register; for the return address: in lr */
	CFI_AT_CFA, /* at CFA + offset */
	CFI_AT_SP,  /* at sp + offset */
	CFI_AT_FP,  /* at fp + offset */
	/* in the register whose DWARF number is the offset; only for the return address */
	CFI_IN_REGISTER,
	/* nowhere, or not expressible; for the return address: this is the outermost frame */
	CFI_UNDEFINED,
	CFI_N_PLACES,
};

#define CFI_SIGNAL 0x01    /* the caller was interrupted: its pc is not a return address */
#define CFI_RA_SIGNED 0x02 /* the return address is signed at this pc (aarch64) */
/* code of clone() between the system call and the return: only the parent has a caller */
#define CFI_CLONE 0x04
#define CFI_NUMBER_SHIFT 4 /* position of CFI_NUMBER() in `flags` */
#define CFI_MAX_NUMBER 15
#define CFI_NUMBER(flags) ((unsigned int)(flags) >> CFI_NUMBER_SHIFT)

/* Equal rules have equal bytes: unused fields are 0. */
struct cfi_rule {
	uint8_t cfa; /* enum cfi_cfa */
	uint8_t fp;  /* enum cfi_place */
	uint8_t ra;  /* enum cfi_place */
	uint8_t flags;
	int32_t cfa_offset, fp_offset, ra_offset;
};
static_assert(sizeof(struct cfi_rule) == 16, "is hashed and stored as bytes");

/* The bytes of .eh_frame or .debug_frame. All addresses are link-time addresses of the file, or
 * addresses in one process. */
struct cfi_section {
	const uint8_t *bytes;
	size_t size;
	uint64_t address; /* address of bytes[0] */
	/* for DW_EH_PE_textrel and datarel; 0 in the output of linkers */
	uint64_t text_base, data_base;
	enum regs_arch arch;
	const struct regs *regs; /* registers to follow; NULL: those of `arch` */
	bool is_debug_frame;
	const uint8_t *header; /* .eh_frame_hdr; NULL: none, which makes cfi_find() slow */
	size_t header_size;
	uint64_t header_address;
};

struct cfi_value {
	uint8_t place; /* enum cfi_place, or CFI_N_PLACES: no rule can express it */
	int64_t offset;
};

/* The state of a CFI program. */
struct cfi_state {
	uint8_t cfa;    /* enum cfi_cfa; CFI_CFA_SP: relative to cfa_register, whichever it is */
	uint8_t number; /* CFI_NUMBER() of an expression */
	bool ra_signed;
	int64_t expression_offset;
	/* kept while an expression gives the CFA, because a later def_cfa_register uses the
	 * offset */
	uint64_t cfa_register;
	int64_t cfa_offset;
	struct cfi_value fp, ra, sp;
};

struct cfi_cie {
	size_t at; /* SIZE_MAX: none */
	bool usable;
	bool is_signal;
	bool has_data;    /* augmentation 'z' */
	uint8_t encoding; /* encoding of addresses in its FDEs */
	uint64_t code_align;
	int64_t data_align;
	struct cfi_state initial;
};

/* A function, or a part of a function. */
struct cfi_fde {
	size_t at;           /* offset in the section */
	uint64_t start, end; /* start < end */
	const uint8_t *program, *program_end;
	struct cfi_cie cie;
};

struct cfi_row {
	uint64_t start, end; /* start < end */
	struct cfi_rule rule;
};

/* The rows of an FDE, ascending and without gaps. If its program is broken, the last row is
 * CFI_CFA_UNSUPPORTED. */
struct cfi_rows {
	const struct cfi_reader *reader;
	const struct cfi_fde *fde;
	const uint8_t *at;
	uint64_t pc;
	bool broken;
	struct cfi_state state;
	size_t n_remembered;
	struct cfi_state remembered[CFI_MAX_REMEMBERED];
};

struct cfi_reader {
	const struct cfi_section *section;
	const struct regs *regs;
	struct cfi_cie cies[CFI_READER_CIES]; /* cache, by offset of the CIE */
	/* rows of the current FDE; not a local variable, because the stack may be small */
	struct cfi_rows rows;
};

/* The section's `arch` must be set. */
void cfi_reader_init(struct cfi_reader *reader, const struct cfi_section *section);

/* Returns the next usable FDE at or after *at, and moves *at past it. Returns false at the end.
 * The work is linear in the number of bytes. */
bool cfi_reader_next(struct cfi_reader *reader, size_t *at, struct cfi_fde *ret_fde);

/* Returns false if there is no usable FDE at `at`. */
bool cfi_reader_get(struct cfi_reader *reader, size_t at, struct cfi_fde *ret_fde);

/*
 * Finds the FDE that covers pc: the last one in address order that starts at or before pc. Returns
 * false if that one ends before pc, or if there is none. Uses .eh_frame_hdr if it has the usual
 * format; else reads the whole section and, of several FDEs with the same start, uses the first.
 */
bool cfi_find(struct cfi_reader *reader, uint64_t pc, struct cfi_fde *ret_fde);

void cfi_rows_init(struct cfi_rows *rows, const struct cfi_reader *reader,
		   const struct cfi_fde *fde);
bool cfi_rows_next(struct cfi_rows *rows, struct cfi_row *ret_row);

/* Stores a rule with CFI_CFA_NONE if no FDE covers pc. */
void cfi_get_rule(struct cfi_reader *reader, uint64_t pc, struct cfi_rule *ret_rule);

struct byte_reader;

/* Reads a number in one of the encodings DW_EH_PE_* of LSB 10.5.1 from a part of the section
 * (base/bytes.h). DW_EH_PE_funcrel is relative to `function`. */
uint64_t cfi_read_pointer(const struct cfi_section *section, struct byte_reader *bytes,
			  uint8_t encoding, uint64_t function);
