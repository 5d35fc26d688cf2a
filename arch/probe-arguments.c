/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Probe arguments - reads the arguments of a static probe (USDT) out of a sample
 *
 * A description has an item for each argument: its size in bytes, negative for a signed number,
 * with "f" for a floating-point one; "@"; and an operand in the assembler's syntax.
 *
 *     x86_64     -4@%edi   8@-16(%rbp)   4@$5   -8@8(%rax,%rbx,4)   8@name(%rip)   8f@%xmm0
 *     aarch64    -4@w0     8@[sp, 12]    4@5    -8@[x19, x0, lsl 3]
 *
 * An item without a size and "@", as in assembler code of older libraries, must be a register,
 * whose size it then has, or a constant, which is read as 8 signed bytes.
 * Invariants: (1) the text may be anything  [fuzz_probe_arguments]
 *             (2) only the registers and the copied stack are read  [fuzz_probe_arguments]
 * Pure.
 */
#include "arch/probe-arguments.h"

#include "arch/base.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TEXT 256 /* size of the longest argument, with its NUL */
#define AARCH64_SP 31
#define RED_ZONE 128 /* bytes below the stack pointer that functions of x86_64 may use */

/* Names of x86_64's registers by size, and perf's number (<asm/perf_regs.h>). */
static const struct {
	uint8_t number;
	char names[4][5]; /* names of the parts with 8, 4, 2 and 1 bytes */
} x86_64_names[] = {
	{ 0, { "rax", "eax", "ax", "al" } },       { 1, { "rbx", "ebx", "bx", "bl" } },
	{ 2, { "rcx", "ecx", "cx", "cl" } },       { 3, { "rdx", "edx", "dx", "dl" } },
	{ 4, { "rsi", "esi", "si", "sil" } },      { 5, { "rdi", "edi", "di", "dil" } },
	{ 6, { "rbp", "ebp", "bp", "bpl" } },      { 7, { "rsp", "esp", "sp", "spl" } },
	{ 16, { "r8", "r8d", "r8w", "r8b" } },     { 17, { "r9", "r9d", "r9w", "r9b" } },
	{ 18, { "r10", "r10d", "r10w", "r10b" } }, { 19, { "r11", "r11d", "r11w", "r11b" } },
	{ 20, { "r12", "r12d", "r12w", "r12b" } }, { 21, { "r13", "r13d", "r13w", "r13b" } },
	{ 22, { "r14", "r14d", "r14w", "r14b" } }, { 23, { "r15", "r15d", "r15w", "r15b" } },
};

/* ---- Parsing --------------------------------------------------------------------------------- */

/* Returns whether `bytes` is a valid size of a number. Scales of an index have the same values. */
static bool is_size(int64_t bytes)
{
	return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Skips the prefix if it is there. Returns whether it was skipped. */
static bool skip(const char **at, const char *prefix)
{
	size_t n = strlen(prefix);

	if (strncmp(*at, prefix, n) != 0)
		return false;
	*at += n;
	return true;
}

/* Parses "-16", "0x10" or a sum such as "8+4". Returns false if a number is missing or does not
 * fit. */
static bool parse_sum(const char **at, int64_t *ret_sum)
{
	uint64_t sum = 0;
	bool found = false;

	for (;;) {
		const char *digits = *at;
		bool minus = *digits == '-';
		uint64_t number;
		char *end;

		digits += minus || *digits == '+';
		if (!is_digit(*digits))
			break;
		errno = 0;
		number = strtoull(digits, &end, 0);
		if (errno)
			return false;
		sum += minus ? -number : number;
		found = true;
		*at = end;
		if (*end != '+' && *end != '-')
			break;
	}
	*ret_sum = (int64_t)sum;
	return found;
}

/* Parses a name without '%', of letters and digits. Returns its perf number and size;
 * PROBE_NO_REGISTER: no such name. */
static uint8_t parse_x86_64_name(const char **at, uint8_t *ret_bytes)
{
	size_t length = strspn(*at, "abcdefghijklmnopqrstuvwxyz0123456789");

	for (size_t i = 0; i < ARRAY_SIZE(x86_64_names); i++)
		for (unsigned size = 0; size < 4; size++) {
			const char *name = x86_64_names[i].names[size];

			if (strlen(name) != length || strncmp(*at, name, length) != 0)
				continue;
			*at += length;
			*ret_bytes = (uint8_t)(8 >> size);
			return x86_64_names[i].number;
		}
	return PROBE_NO_REGISTER;
}

/* Like parse_x86_64_name(), for "x19", "w0", "sp", and other names of aarch64. */
static uint8_t parse_aarch64_name(const char **at, uint8_t *ret_bytes)
{
	const char *name = *at;
	uint64_t number;
	char *end;

	*ret_bytes = *name == 'w' ? 4 : 8;
	if (skip(at, "sp"))
		return AARCH64_SP;
	if ((*name != 'x' && *name != 'w') || !is_digit(name[1]))
		return PROBE_NO_REGISTER;
	number = strtoull(name + 1, &end, 10);
	if (number >= AARCH64_SP)
		return PROBE_NO_REGISTER;
	*at = end;
	return (uint8_t)number;
}

/* Parses "(%base,%index,scale)" after the displacement. */
static bool parse_x86_64_address(const char *at, struct probe_argument *argument)
{
	uint8_t bytes;
	int64_t scale = 1;

	if (!skip(&at, "("))
		return false;
	if (skip(&at, "%")) {
		argument->base = parse_x86_64_name(&at, &bytes);
		if (argument->base == PROBE_NO_REGISTER || bytes != 8)
			return false;
	}
	if (skip(&at, ",")) {
		argument->index = skip(&at, "%") ? parse_x86_64_name(&at, &bytes)
						 : PROBE_NO_REGISTER;
		if (argument->index == PROBE_NO_REGISTER || bytes != 8 ||
		    (skip(&at, ",") && !parse_sum(&at, &scale)))
			return false;
	}
	if (!is_size(scale) || strcmp(at, ")") != 0)
		return false;
	argument->scale = (uint8_t)scale;
	return argument->base != PROBE_NO_REGISTER || argument->index != PROBE_NO_REGISTER;
}

static enum probe_operand parse_x86_64(const char *at, struct probe_argument *argument,
				       uint8_t *ret_bytes)
{
	size_t length = strlen(at);

	*ret_bytes = 0;
	if (skip(&at, "$"))
		return parse_sum(&at, &argument->number) && !*at ? PROBE_OPERAND_CONSTANT
								 : PROBE_OPERAND_OTHER;
	if (skip(&at, "%")) {
		argument->base = parse_x86_64_name(&at, ret_bytes);
		return argument->base != PROBE_NO_REGISTER && !*at ? PROBE_OPERAND_REGISTER
								   : PROBE_OPERAND_OTHER;
	}
	if (length > 6 && strcmp(at + length - 6, "(%rip)") == 0)
		return PROBE_OPERAND_VARIABLE;
	parse_sum(&at, &argument->number);
	return parse_x86_64_address(at, argument) ? PROBE_OPERAND_MEMORY : PROBE_OPERAND_OTHER;
}

/* Parses "[base]", "[base, number]" or "[base, index, lsl shift]". */
static enum probe_operand parse_aarch64_address(const char *at, struct probe_argument *argument)
{
	uint8_t bytes;
	int64_t shift = 0;

	argument->base = parse_aarch64_name(&at, &bytes);
	if (argument->base == PROBE_NO_REGISTER || bytes != 8)
		return PROBE_OPERAND_OTHER;
	if (skip(&at, ",")) {
		at += strspn(at, " #");
		if (skip(&at, ":lo12:"))
			return PROBE_OPERAND_VARIABLE;
		if (!parse_sum(&at, &argument->number)) {
			argument->index = parse_aarch64_name(&at, &bytes);
			if (argument->index == PROBE_NO_REGISTER || bytes != 8)
				return PROBE_OPERAND_OTHER;
			if (skip(&at, ", lsl ")) {
				at += strspn(at, "#");
				if (!parse_sum(&at, &shift) || shift < 0 || shift > 3)
					return PROBE_OPERAND_OTHER;
			}
		}
	}
	argument->scale = (uint8_t)(1 << shift);
	return strcmp(at, "]") == 0 ? PROBE_OPERAND_MEMORY : PROBE_OPERAND_OTHER;
}

static enum probe_operand parse_aarch64(const char *at, struct probe_argument *argument,
					uint8_t *ret_bytes)
{
	*ret_bytes = 0;
	if (skip(&at, "["))
		return parse_aarch64_address(at, argument);
	if (parse_sum(&at, &argument->number))
		return *at ? PROBE_OPERAND_OTHER : PROBE_OPERAND_CONSTANT;
	argument->base = parse_aarch64_name(&at, ret_bytes);
	return argument->base != PROBE_NO_REGISTER && !*at ? PROBE_OPERAND_REGISTER
							   : PROBE_OPERAND_OTHER;
}

static void parse_argument(enum regs_arch arch, const char *at, struct probe_argument *argument)
{
	enum probe_operand (*const parsers[REGS_N_ARCHS])(const char *, struct probe_argument *,
							  uint8_t *) = {
		[REGS_X86_64] = parse_x86_64,
		[REGS_AARCH64] = parse_aarch64,
	};
	const char *operand = strchr(at, '@');
	int64_t size = 0;
	uint8_t bytes = 0;

	*argument = (struct probe_argument){
		.bytes = 8, .base = PROBE_NO_REGISTER, .index = PROBE_NO_REGISTER, .scale = 1
	};
	if (operand) {
		bool has_size = parse_sum(&at, &size);

		argument->is_float = skip(&at, "f");
		if (!has_size || at != operand || size < -8 || !is_size(size < 0 ? -size : size) ||
		    (argument->is_float && size > -4 && size < 4)) {
			argument->is_float = 0;
			return;
		}
		argument->is_signed = size < 0;
		argument->bytes = (uint8_t)(size < 0 ? -size : size);
		at++;
	}
	if (arch < REGS_N_ARCHS && parsers[arch])
		argument->operand = (uint8_t)parsers[arch](at, argument, &bytes);
	if (operand)
		return;
	/* Without "@", the size of an operand in memory is unknown. */
	if (argument->operand == PROBE_OPERAND_REGISTER)
		argument->bytes = bytes;
	else if (argument->operand != PROBE_OPERAND_CONSTANT)
		argument->operand = PROBE_OPERAND_OTHER;
	argument->is_signed = argument->operand == PROBE_OPERAND_CONSTANT;
}

unsigned probe_arguments_parse(enum regs_arch arch, const char *text,
			       struct probe_argument ret_arguments[PROBE_MAX_ARGUMENTS])
{
	char one[MAX_TEXT];
	unsigned n = 0;

	while (n < PROBE_MAX_ARGUMENTS) {
		size_t length = 0;
		int depth = 0;

		text += strspn(text, " \t");
		if (!*text)
			break;
		/* Operands of aarch64 may have spaces in brackets. */
		for (; text[length] && (depth > 0 || (text[length] != ' ' && text[length] != '\t'));
		     length++)
			depth += (text[length] == '[') - (text[length] == ']');
		/* An argument that is too long is parsed as an unsupported operand. */
		memcpy(one, text, MIN_OF(length, sizeof(one) - 1));
		one[MIN_OF(length, sizeof(one) - 1)] = '\0';
		parse_argument(arch, length < sizeof(one) ? one : "", &ret_arguments[n++]);
		text += length;
	}
	return n;
}

/* ---- Reading --------------------------------------------------------------------------------- */

bool probe_argument_is_valid(const struct probe_argument *argument)
{
	return argument->operand <= PROBE_OPERAND_VARIABLE && is_size(argument->bytes) &&
	       argument->is_signed <= 1 && argument->is_float <= 1 && is_size(argument->scale) &&
	       (!argument->is_float || argument->bytes >= 4) &&
	       (argument->base < 64 || argument->base == PROBE_NO_REGISTER) &&
	       (argument->index < 64 || argument->index == PROBE_NO_REGISTER);
}

/* Reads a register; PROBE_NO_REGISTER is read as 0. Returns false if samples lack it. */
static bool read_register(const struct regs *regs, const uint64_t *registers, uint8_t number,
			  uint64_t *ret_value)
{
	*ret_value = 0;
	if (number == PROBE_NO_REGISTER)
		return true;
	if (number >= 64 || !(regs->perf_mask >> number & 1))
		return false;
	*ret_value =
		registers[__builtin_popcountll(regs->perf_mask & ((UINT64_C(1) << number) - 1))];
	return true;
}

static enum probe_unread read_memory(const struct regs *regs, const struct probe_argument *argument,
				     const struct probe_state *state, uint64_t *ret_value)
{
	uint64_t sp = state->registers[regs->perf_sp], base, index, offset;
	uint8_t bytes[8] = { 0 };

	if (!read_register(regs, state->registers, argument->base, &base) ||
	    !read_register(regs, state->registers, argument->index, &index))
		return PROBE_UNREAD_REGISTER;
	offset = base + index * argument->scale + (uint64_t)argument->number - sp;
	if ((int64_t)offset < 0 && (int64_t)offset >= -RED_ZONE)
		return PROBE_UNREAD_BELOW;
	if (offset > state->stack_bytes || argument->bytes > state->stack_bytes - offset)
		return PROBE_UNREAD_OUTSIDE;
	memcpy(bytes, state->stack + offset, argument->bytes);
	*ret_value = load_le64(bytes);
	return PROBE_READ;
}

/* Extends the lowest argument->bytes bytes of a value to 64 bits; a float becomes a double. */
static uint64_t extend(const struct probe_argument *argument, uint64_t value)
{
	unsigned unused = 64 - 8 * (unsigned)argument->bytes;

	if (argument->is_float && argument->bytes == 4) {
		uint32_t bits = (uint32_t)value;
		double wide;
		float narrow;

		memcpy(&narrow, &bits, sizeof(narrow));
		wide = (double)narrow;
		memcpy(&value, &wide, sizeof(value));
		return value;
	}
	value <<= unused;
	return argument->is_signed ? (uint64_t)((int64_t)value >> unused) : value >> unused;
}

struct probe_value probe_argument_read(const struct regs *regs,
				       const struct probe_argument *argument,
				       const struct probe_state *state)
{
	enum probe_unread unread = PROBE_READ;
	uint64_t value = (uint64_t)argument->number;

	if (!probe_argument_is_valid(argument) || argument->operand == PROBE_OPERAND_OTHER)
		unread = PROBE_UNREAD_OPERAND;
	else if (argument->operand == PROBE_OPERAND_VARIABLE)
		unread = PROBE_UNREAD_OUTSIDE;
	else if (argument->operand != PROBE_OPERAND_CONSTANT && !state->registers)
		unread = PROBE_UNREAD_REGISTERS;
	else if (argument->operand == PROBE_OPERAND_MEMORY)
		unread = read_memory(regs, argument, state, &value);
	else if (argument->operand == PROBE_OPERAND_REGISTER &&
		 !read_register(regs, state->registers, argument->base, &value))
		unread = PROBE_UNREAD_REGISTER;
	if (unread != PROBE_READ)
		return (struct probe_value){ .unread = unread };
	return (struct probe_value){ .value = extend(argument, value) };
}

const char *probe_unread_text(uint32_t unread)
{
	static const char *const texts[PROBE_N_UNREAD] = {
		[PROBE_UNREAD_OPERAND] = "not read: its kind of operand is not supported",
		[PROBE_UNREAD_REGISTERS] = "not read: the sample has no registers",
		[PROBE_UNREAD_REGISTER] = "not read: its register is not recorded",
		[PROBE_UNREAD_BELOW] = "not read: it is below the stack pointer",
		[PROBE_UNREAD_OUTSIDE] = "not read: it is in memory outside the copied stack",
		[PROBE_UNREAD_ABSENT] = "not read: this place of the probe does not have it",
	};

	return unread < PROBE_N_UNREAD ? texts[unread] : texts[PROBE_UNREAD_OPERAND];
}
