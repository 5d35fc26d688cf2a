/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Registers - the numbers, and the encodings of calls
 *
 * Sources: the psABIs for DWARF's register numbers; arch/ARCH/include/uapi/asm/perf_regs.h for
 * perf's; for signals the struct rt_sigframe of arch/ARCH/kernel/signal*.c with <asm/sigcontext.h>;
 * for trampolines CPython's Python/asm_trampoline.S.
 */
#include "arch/regs.h"

#include "arch/base.h"

#define BIT(n) (UINT64_C(1) << (n))

static const struct regs table[REGS_N_ARCHS] = {
	[REGS_X86_64] = {
		.name = "x86_64",
		.elf_machine = 62,
		.sp = 7,
		.fp = 6,
		.ra = 16,
		.base = 3,
		.lr_copy = REGS_NO_COPY,
		.code_align = 1,
		.frame = REGS_FRAME_RECORD,
		.ra_from_cfa = -8,
		.perf_mask = 0xff01ff, /* AX, BX, CX, DX, SI, DI, BP, SP, IP, R8 to R15 */
		.perf_sleep_mask = 0xf001e2, /* BX, DI, BP, SP, IP, R12 to R15 */
		.perf_pc_bit = 8,
		.perf_sp_bit = 7,
		.perf_argument_bit = 5,
		.perf_fp = 6,
		.perf_sp = 7,
		.perf_pc = 8,
		.perf_lr = UINT8_MAX,
		.perf_n = 17,
		/* rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 to r15 */
		.perf_numbered = { 0, 3, 2, 1, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16 },
		.n_numbered = 16,
		/* mov $15, %rax; syscall */
		.sigreturn = { 0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05 },
		.sigreturn_size = 9,
		/* struct ucontext, whose uc_mcontext is at 40 */
		.signal_fp = 120,
		.signal_sp = 160,
		.signal_pc = 168,
		/* sub $8, %rsp; call *%rcx; add $8, %rsp; ret */
		.trampoline = { 0x48, 0x83, 0xec, 0x08, 0xff, 0xd1, 0x48, 0x83, 0xc4, 0x08, 0xc3 },
		.trampoline_size = 11,
		.trampoline_return = 6,
	},
	[REGS_AARCH64] = {
		.name = "aarch64",
		.elf_machine = 183,
		.sp = 31,
		.fp = 29,
		.ra = 30,
		.has_lr = true,
		.is_pac = true,
		.lr_copy = REGS_NO_COPY,
		.code_align = 4,
		.frame = REGS_FRAME_RECORD,
		.perf_mask = BIT(29) | BIT(30) | BIT(31) | BIT(32), /* X29, LR, SP, PC */
		.perf_sleep_mask = BIT(0) | BIT(29) | BIT(30) | BIT(31) | BIT(32),
		.perf_pc_bit = 32,
		.perf_sp_bit = 31,
		.perf_argument_bit = 0,
		.perf_fp = 0,
		.perf_lr = 1,
		.perf_sp = 2,
		.perf_pc = 3,
		.perf_n = 4,
		/* mov x8, #139; svc #0 */
		.sigreturn = { 0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4 },
		.sigreturn_size = 8,
		/* siginfo has 128 bytes; in the struct ucontext after it, uc_mcontext is at 176,
		 * with regs[] at 8 */
		.signal_fp = 312 + 29 * 8,
		.signal_lr = 312 + 30 * 8,
		.signal_sp = 312 + 31 * 8,
		.signal_pc = 312 + 32 * 8,
	},
	[REGS_RISCV64] = {
		.name = "riscv64",
		.elf_machine = 243,
		.sp = 2,
		.fp = 8,
		.ra = 1,
		.has_lr = true,
		.lr_copy = REGS_NO_COPY,
		.code_align = 2,
		.frame = REGS_FRAME_BELOW,
		.perf_mask = BIT(0) | BIT(1) | BIT(2) | BIT(8), /* PC, RA, SP, S0 */
		.perf_sleep_mask = BIT(0) | BIT(1) | BIT(2) | BIT(8) | BIT(10),
		.perf_pc_bit = 0,
		.perf_sp_bit = 2,
		.perf_argument_bit = 10,
		.perf_pc = 0,
		.perf_lr = 1,
		.perf_sp = 2,
		.perf_fp = 3,
		.perf_n = 4,
		/* li a7, 139; ecall */
		.sigreturn = { 0x93, 0x08, 0xb0, 0x08, 0x73, 0x00, 0x00, 0x00 },
		.sigreturn_size = 8,
		/* siginfo has 128 bytes; in the struct ucontext after it, uc_mcontext is at 176:
		 * pc, then x1 to x31 */
		.signal_pc = 304,
		.signal_lr = 304 + 1 * 8,
		.signal_sp = 304 + 2 * 8,
		.signal_fp = 304 + 8 * 8,
	},
	[REGS_PPC64LE] = {
		.name = "ppc64le",
		.elf_machine = 21,
		.sp = 1,
		.fp = 31,
		.ra = 65,
		.has_lr = true,
		.lr_copy = 0,
		.code_align = 4,
		.frame = REGS_FRAME_CHAIN,
		.chain_ra = 16,
		.perf_mask = BIT(1) | BIT(31) | BIT(32) | BIT(36), /* R1, R31, NIP, LINK */
		.perf_sleep_mask = BIT(1) | BIT(3) | BIT(31) | BIT(32) | BIT(36),
		.perf_pc_bit = 32,
		.perf_sp_bit = 1,
		.perf_argument_bit = 3,
		.perf_sp = 0,
		.perf_fp = 1,
		.perf_pc = 2,
		.perf_lr = 3,
		.perf_n = 4,
		/* addi r1, r1, 128; li r0, 172; sc */
		.sigreturn = { 0x80, 0x00, 0x21, 0x38, 0xac, 0x00, 0x00, 0x38, 0x02, 0x00, 0x00,
			       0x44 },
		.sigreturn_size = 12,
		/* struct ucontext is at sp + 128, its uc_mcontext at 168, with gp_regs[] at 64 */
		.signal_sp = 360 + 1 * 8,
		.signal_fp = 360 + 31 * 8,
		.signal_pc = 360 + 32 * 8,
		.signal_lr = 360 + 36 * 8,
	},
};

const struct regs *regs_get(enum regs_arch arch)
{
	return arch > REGS_NONE && arch < REGS_N_ARCHS ? &table[arch] : NULL;
}

enum regs_arch regs_of_elf(uint16_t elf_machine)
{
	for (enum regs_arch arch = REGS_NONE + 1; arch < REGS_N_ARCHS; arch++)
		if (table[arch].elf_machine == elf_machine)
			return arch;
	return REGS_NONE;
}

struct call {
	enum regs_arch arch;
	uint8_t size;
	uint32_t mask, bits; /* of the first min(size, 4) bytes of the call, little-endian */
};

static const struct call calls[] = {
	{ REGS_X86_64, 5, 0x000000ff, 0x000000e8 },  /* call rel32 */
	{ REGS_X86_64, 2, 0x0000f8ff, 0x0000d0ff },  /* call *%reg */
	{ REGS_X86_64, 2, 0x0000f8ff, 0x000010ff },  /* call *(%reg) */
	{ REGS_X86_64, 3, 0x0000ffff, 0x000014ff },  /* call *(%reg,%reg) */
	{ REGS_X86_64, 3, 0x0000f8ff, 0x000050ff },  /* call *disp8(%reg) */
	{ REGS_X86_64, 4, 0x0000ffff, 0x000054ff },  /* call *disp8(%reg,%reg) */
	{ REGS_X86_64, 6, 0x0000f8ff, 0x000090ff },  /* call *disp32(%reg) */
	{ REGS_X86_64, 6, 0x0000ffff, 0x000015ff },  /* call *disp32(%rip) */
	{ REGS_X86_64, 7, 0x0000ffff, 0x000014ff },  /* call *disp32(,%reg) */
	{ REGS_X86_64, 7, 0x0000ffff, 0x000094ff },  /* call *disp32(%reg,%reg) */
	{ REGS_AARCH64, 4, 0xfc000000, 0x94000000 }, /* bl */
	{ REGS_AARCH64, 4, 0xfffffc1f, 0xd63f0000 }, /* blr */
	{ REGS_AARCH64, 4, 0xfefff800, 0xd63f0800 }, /* blraa, blrab, blraaz, blrabz */
	{ REGS_RISCV64, 4, 0x00000fff, 0x000000ef }, /* jal ra */
	{ REGS_RISCV64, 4, 0x00007fff, 0x000000e7 }, /* jalr ra */
	{ REGS_RISCV64, 2, 0x0000f07f, 0x00009002 }, /* c.jalr */
	{ REGS_PPC64LE, 4, 0xfc000001, 0x48000001 }, /* bl */
	{ REGS_PPC64LE, 4, 0xfc000001, 0x40000001 }, /* bcl */
	{ REGS_PPC64LE, 4, 0xfc0007ff, 0x4c000421 }, /* bcctrl */
	{ REGS_PPC64LE, 4, 0xfc0007ff, 0x4c000021 }, /* bclrl */
};

bool regs_is_call(enum regs_arch arch, const uint8_t *code, uint32_t size)
{
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		uint8_t first[4] = { 0 };

		if (calls[i].arch != arch || calls[i].size > size)
			continue;
		memcpy(first, code + size - calls[i].size,
		       MIN_OF(sizeof(first), (size_t)calls[i].size));
		if ((load_le32(first) & calls[i].mask) == calls[i].bits)
			return true;
	}
	return false;
}
