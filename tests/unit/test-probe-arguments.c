/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of arch/probe-arguments.c
 */
#include "tests/unit/test.h"

#include "arch/base.h"
#include "arch/probe-arguments.h"

#define STACK 0x7ffe1000

/* The registers (by perf's numbers) and the stack of a sample, with recognizable values. */
static uint64_t registers[64];
static uint8_t stack[64];

static struct probe_value read_one(enum regs_arch arch, const char *text)
{
	struct probe_argument arguments[PROBE_MAX_ARGUMENTS];
	const struct regs *regs = regs_get(arch);
	struct probe_state state = { registers, stack, sizeof(stack) };
	unsigned n = probe_arguments_parse(arch, text, arguments), at = 0;

	for (unsigned bit = 0; bit < 64; bit++)
		if (regs->perf_mask >> bit & 1)
			registers[at++] = 0x1122334455667700 + bit;
	registers[regs->perf_sp] = STACK;
	registers[regs->perf_fp] = STACK + 32;
	for (size_t i = 0; i < sizeof(stack); i++)
		stack[i] = (uint8_t)(0x80 + i);
	if (!CHECK_INT(n, 1) || !CHECK(probe_argument_is_valid(&arguments[0])))
		return (struct probe_value){ .unread = PROBE_N_UNREAD };
	return probe_argument_read(regs, &arguments[0], &state);
}

#define CHECK_VALUE(arch, text, want)                             \
	do {                                                      \
		struct probe_value got = read_one(arch, text);    \
		CHECK_INT((intmax_t)got.value, (intmax_t)(want)); \
		CHECK_INT(got.unread, PROBE_READ);                \
	} while (0)

#define CHECK_UNREAD(arch, text, why)                          \
	do {                                                   \
		struct probe_value got = read_one(arch, text); \
		CHECK_INT(got.unread, why);                    \
		CHECK_INT(got.value, 0);                       \
	} while (0)

static void test_constants(void)
{
	CHECK_VALUE(REGS_X86_64, "-4@$5", 5);
	CHECK_VALUE(REGS_X86_64, "-4@$-1", -1);
	CHECK_VALUE(REGS_X86_64, "4@$-1", 0xffffffff);
	CHECK_VALUE(REGS_X86_64, "1@$-1", 0xff);
	CHECK_VALUE(REGS_X86_64, "8@$0x10", 16);
	CHECK_VALUE(REGS_X86_64, "-8@$-9223372036854775808", INT64_MIN);
	CHECK_VALUE(REGS_X86_64, "$-7", -7);
	CHECK_VALUE(REGS_AARCH64, "-4@-3", -3);
}

static void test_registers(void)
{
	CHECK_VALUE(REGS_X86_64, "8@%rax", 0x1122334455667700);
	CHECK_VALUE(REGS_X86_64, "-8@%r15", 0x1122334455667717);
	CHECK_VALUE(REGS_X86_64, "4@%edi", 0x55667705);
	CHECK_VALUE(REGS_X86_64, "-2@%r9w", 0x7711);
	CHECK_VALUE(REGS_X86_64, "1@%sil", 4);
	CHECK_VALUE(REGS_X86_64, "%ebx", 0x55667701);
	CHECK_VALUE(REGS_X86_64, "8@%rsp", STACK);
	CHECK_VALUE(REGS_AARCH64, "8@sp", STACK);
	CHECK_VALUE(REGS_AARCH64, "4@w29", STACK + 32);
}

static void test_memory(void)
{
	CHECK_VALUE(REGS_X86_64, "8@(%rsp)", 0x8786858483828180);
	CHECK_VALUE(REGS_X86_64, "-1@1(%rsp)", (int8_t)0x81);
	CHECK_VALUE(REGS_X86_64, "2@2(%rsp)", 0x8382);
	CHECK_VALUE(REGS_X86_64, "-4@-16(%rbp)", (int32_t)0x93929190);
	CHECK_VALUE(REGS_X86_64, "4@8+8(%rsp)", 0x93929190);
	CHECK_VALUE(REGS_X86_64, "8@56(%rsp)", 0xbfbebdbcbbbab9b8);
	CHECK_VALUE(REGS_AARCH64, "4@[sp, 12]", 0x8f8e8d8c);
	CHECK_VALUE(REGS_AARCH64, "-4@[x29, -16]", (int32_t)0x93929190);
	CHECK_VALUE(REGS_AARCH64, "1@[sp]", 0x80);
}

/* The stack pointer is 0x7ffe1000, and rbp - rsp is 32. */
static void test_index(void)
{
	struct probe_argument arguments[PROBE_MAX_ARGUMENTS];
	struct probe_state state = { registers, stack, sizeof(stack) };
	const struct regs *regs = regs_get(REGS_X86_64);

	CHECK_VALUE(REGS_X86_64, "8@%rbp", STACK + 32);
	CHECK_INT(probe_arguments_parse(REGS_X86_64, "1@-8(%rsp,%rcx,8)", arguments), 1);
	registers[2] = 3;
	CHECK_INT((intmax_t)probe_argument_read(regs, &arguments[0], &state).value, 0x90);
	CHECK_INT(probe_arguments_parse(REGS_X86_64, "1@0x7ffe0ff8(,%rcx,4)", arguments), 1);
	CHECK_INT((intmax_t)probe_argument_read(regs, &arguments[0], &state).value, 0x84);
}

static void test_floats(void)
{
	double number;
	struct probe_value value;

	CHECK_UNREAD(REGS_X86_64, "8f@%xmm0", PROBE_UNREAD_OPERAND);
	CHECK_VALUE(REGS_X86_64, "8f@(%rsp)", 0x8786858483828180);
	value = read_one(REGS_X86_64, "4f@4(%rsp)");
	memcpy(&number, &value.value, sizeof(number));
	CHECK(number < 0 && number > -1e-30);
	CHECK_UNREAD(REGS_X86_64, "2f@(%rsp)", PROBE_UNREAD_OPERAND);
}

/* An argument that is not in the sample is not 0. */
static void test_unread(void)
{
	struct probe_argument arguments[PROBE_MAX_ARGUMENTS];
	const struct probe_state none = { NULL, NULL, 0 };

	CHECK_UNREAD(REGS_X86_64, "8@57(%rsp)", PROBE_UNREAD_OUTSIDE);
	CHECK_UNREAD(REGS_X86_64, "8@64(%rsp)", PROBE_UNREAD_OUTSIDE);
	CHECK_UNREAD(REGS_X86_64, "4@-4(%rsp)", PROBE_UNREAD_BELOW);
	CHECK_UNREAD(REGS_X86_64, "8@8(%rax)", PROBE_UNREAD_OUTSIDE);
	CHECK_UNREAD(REGS_X86_64, "-8@9223372036854775807(%rbp)", PROBE_UNREAD_OUTSIDE);
	CHECK_UNREAD(REGS_X86_64, "-4@40+CheckpointStats(%rip)", PROBE_UNREAD_OUTSIDE);
	CHECK_UNREAD(REGS_X86_64, "8@name(%rip)", PROBE_UNREAD_OUTSIDE);
	CHECK_UNREAD(REGS_AARCH64, "8@x0", PROBE_UNREAD_REGISTER);
	CHECK_UNREAD(REGS_AARCH64, "8@[x19, x0, lsl 3]", PROBE_UNREAD_REGISTER);
	CHECK_UNREAD(REGS_AARCH64, "8@[x19, #:lo12:name]", PROBE_UNREAD_OUTSIDE);
	CHECK_INT(probe_arguments_parse(REGS_X86_64, "4@%eax", arguments), 1);
	CHECK_INT(probe_argument_read(regs_get(REGS_X86_64), &arguments[0], &none).unread,
		  PROBE_UNREAD_REGISTERS);
	for (uint32_t i = 0; i < PROBE_N_UNREAD; i++)
		CHECK(!probe_unread_text(i) == (i == PROBE_READ));
}

static void test_unsupported(void)
{
	static const char *const texts[] = {
		"@",           "4@",    "3@%eax",  "16@%rax",         "-@%rax",
		"f@%rax",      "4@%ah", "4@%rip",  "4@%raxx",         "8@%fs:(%rax)",
		"8@(%eax)",    "8@()",  "8@(%rax", "8@(%rax,%rcx,3)", "8@(%rax)x",
		"8@$name",     "8@$",   "8@name",  "(%rsp)",          "99999999999999999999@%rax",
		"8@0(%rsp,,)",
	};
	char text[600];

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		CHECK_UNREAD(REGS_X86_64, texts[i], PROBE_UNREAD_OPERAND);
	CHECK_UNREAD(REGS_AARCH64, "8@x31", PROBE_UNREAD_OPERAND);
	CHECK_UNREAD(REGS_AARCH64, "8@[x0, w1, sxtw]", PROBE_UNREAD_OPERAND);
	CHECK_UNREAD(REGS_RISCV64, "8@a0", PROBE_UNREAD_OPERAND);
	memset(text, '1', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	CHECK_UNREAD(REGS_X86_64, text, PROBE_UNREAD_OPERAND);
}

static void test_lists(void)
{
	struct probe_argument arguments[PROBE_MAX_ARGUMENTS];
	char text[512] = "";

	CHECK_INT(probe_arguments_parse(REGS_X86_64, "", arguments), 0);
	CHECK_INT(probe_arguments_parse(REGS_X86_64, "  ", arguments), 0);
	CHECK_INT(probe_arguments_parse(REGS_X86_64, "8@%rdi -4@%esi  1@$0 ", arguments), 3);
	CHECK(arguments[1].is_signed && arguments[1].bytes == 4 && !arguments[0].is_signed);
	CHECK_INT(probe_arguments_parse(REGS_AARCH64, "4@[sp, 12] 8@x0 -4@[sp,8]", arguments), 3);
	CHECK_INT(arguments[2].number, 8);
	for (int i = 0; i < PROBE_MAX_ARGUMENTS + 5; i++)
		strcat(text, "8@%rax ");
	CHECK_INT(probe_arguments_parse(REGS_X86_64, text, arguments), PROBE_MAX_ARGUMENTS);
}

int main(void)
{
	RUN(test_constants);
	RUN(test_registers);
	RUN(test_memory);
	RUN(test_index);
	RUN(test_floats);
	RUN(test_unread);
	RUN(test_unsupported);
	RUN(test_lists);
	return test_end();
}
