/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Probe arguments - reads the arguments of a static probe (USDT) out of a sample
 *
 * The note of a static probe describes where the compiler put each argument: a constant, a
 * register, or memory. The description is text from an untrusted file. A sample at the probe has
 * registers and a copy of the stack. For an argument in other memory, the result is the reason why
 * it cannot be read. On a machine with Java, PostgreSQL, Python, Ruby and GCC, 97 % of the
 * arguments of all static probes were constants, in registers, or relative to the stack or frame
 * pointer.
 *
 * The alternative is a tracefs probe, whose arguments the kernel reads. But a tracefs probe remains
 * if profd crashes, and an argument that could not be read looks like 0.
 */
#pragma once

#include "arch/regs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROBE_MAX_ARGUMENTS 16 /* <sys/sdt.h> has at most 12; further ones are not recorded */
#define PROBE_NO_REGISTER UINT8_MAX

enum probe_operand {
	PROBE_OPERAND_OTHER, /* a form that is not supported */
	PROBE_OPERAND_CONSTANT,
	PROBE_OPERAND_REGISTER, /* base */
	PROBE_OPERAND_MEMORY,   /* at base + index * scale + number */
	PROBE_OPERAND_VARIABLE, /* memory at an address of the file */
};

/* Registers are bit numbers in perf_event_attr.sample_regs_user, or PROBE_NO_REGISTER. */
struct probe_argument {
	uint8_t operand; /* enum probe_operand */
	uint8_t bytes;   /* 1, 2, 4 or 8 */
	uint8_t is_signed, is_float;
	uint8_t base, index, scale;
	uint8_t pad;
	int64_t number;
};

/* Why a value is not known. */
enum probe_unread {
	PROBE_READ,             /* the value is known */
	PROBE_UNREAD_OPERAND,   /* the operand has a form that is not supported */
	PROBE_UNREAD_REGISTERS, /* the sample has no registers */
	PROBE_UNREAD_REGISTER,  /* this register is not recorded */
	PROBE_UNREAD_BELOW,     /* the value is in memory below the stack pointer */
	PROBE_UNREAD_OUTSIDE,   /* the value is in memory that was not copied */
	PROBE_UNREAD_ABSENT,    /* another place of the probe has this argument */
	PROBE_N_UNREAD
};

struct probe_value {
	/* extended to 64 bits; for a float, the bits of a double; 0 if not known */
	uint64_t value;
	uint32_t unread; /* enum probe_unread */
	uint32_t pad;
};

/* The user's state in a sample. */
struct probe_state {
	const uint64_t *registers; /* in the order of regs->perf_mask; NULL: none */
	const uint8_t *stack;      /* from the stack pointer on */
	size_t stack_bytes;
};

/* Parses a description such as "-4@%edi 8@-16(%rbp)". Returns the number of arguments. */
unsigned probe_arguments_parse(enum regs_arch arch, const char *text,
			       struct probe_argument ret_arguments[PROBE_MAX_ARGUMENTS]);
/* Returns whether the parser could have returned this argument. */
bool probe_argument_is_valid(const struct probe_argument *argument);
struct probe_value probe_argument_read(const struct regs *regs,
				       const struct probe_argument *argument,
				       const struct probe_state *state);
/* Returns why a value is not known, as text that begins with "not read: ". NULL: it is known. */
const char *probe_unread_text(uint32_t unread);
