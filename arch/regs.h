/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Registers - the unwinder's description of each CPU
 *
 * A table has a row for each architecture. Callers choose the row at run time, because the engine
 * reads files of one architecture, but tests read files of all. REGS_NATIVE (arch/cpu.h) is the
 * architecture of this build. Immutable, async-signal-safe.
 */
#pragma once

#include "arch/cpu.h"

#include <stdbool.h>
#include <stdint.h>

enum regs_arch { REGS_NONE, REGS_X86_64, REGS_AARCH64, REGS_RISCV64, REGS_PPC64LE, REGS_N_ARCHS };

#define REGS_MAX_SIGRETURN 12
#define REGS_MAX_TRAMPOLINE 11
#define REGS_MAX_NUMBERED 16
#define REGS_NO_COPY UINT8_MAX

/* The frame of a function that keeps frame pointers. */
enum regs_frame {
	/* fp points to the caller's fp; the return address is 8 bytes above that */
	REGS_FRAME_RECORD,
	REGS_FRAME_BELOW, /* like RECORD, but both words are right below fp (riscv64) */
	/* sp points to the caller's sp; the return address is in the caller's frame (ppc64le) */
	REGS_FRAME_CHAIN,
};

struct regs {
	const char *name;
	uint16_t elf_machine; /* machine of a 64-bit little-endian ELF file */
	/* DWARF numbers, from each psABI. `ra`: column of the return address; not a register on
	 * x86_64. `result`: register of a system call's result; valid if n_numbered > 0. */
	uint8_t sp, fp, ra, result;
	/* A register that calls preserve, and from which ld.so's _dl_runtime_resolve computes the
	 * CFA during calls. 0: none. */
	uint8_t base;
	bool has_lr; /* calls leave the return address in a register */
	/* Register to which prologues copy lr before they store it; CFI then says that the return
	 * address is there, although lr still has it, too. REGS_NO_COPY: no such CFI is known. */
	uint8_t lr_copy;
	bool is_pac;        /* return addresses may be signed */
	uint8_t code_align; /* alignment of every instruction */
	uint8_t frame;      /* enum regs_frame */
	uint8_t chain_ra; /* REGS_FRAME_CHAIN: offset of the return address from the caller's sp */
	int8_t ra_from_cfa; /* without lr: offset at which a call stores the return address */
	uint64_t perf_mask; /* for perf_event_attr.sample_regs_user, from <asm/perf_regs.h> */
	/* The registers needed to unwind a thread that sleeps in a system call, and the call's
	 * first argument. The bit numbers of three of them follow. */
	uint64_t perf_sleep_mask;
	uint8_t perf_pc_bit, perf_sp_bit, perf_argument_bit;
	/* Positions in a sample, which has perf_n registers in the order of perf_mask. UINT8_MAX:
	 * no lr. */
	uint8_t perf_sp, perf_fp, perf_lr, perf_pc, perf_n;
	/* Positions in the sample of DWARF's registers 0, 1, …, n_numbered - 1. n_numbered 0: only
	 * the registers above are sampled. */
	uint8_t perf_numbered[REGS_MAX_NUMBERED], n_numbered;
	/* The code to which a signal handler returns, and the offsets of the interrupted registers
	 * from sp in that code. */
	uint8_t sigreturn[REGS_MAX_SIGRETURN];
	uint8_t sigreturn_size;
	uint16_t signal_sp, signal_fp, signal_lr, signal_pc;
	/*
	 * Python's trampoline. A copy for each Python function lies between the interpreter's
	 * frames, so that profilers see which function runs. It makes a call, which returns to
	 * offset trampoline_return, but has no CFI and no frame pointer. trampoline_size 0: on this
	 * CPU, it keeps a frame pointer.
	 */
	uint8_t trampoline[REGS_MAX_TRAMPOLINE];
	uint8_t trampoline_size, trampoline_return;
};

/* Returns the position of a register among those of perf_sleep_mask. */
static inline unsigned int regs_sleep_position(const struct regs *regs, unsigned int bit)
{
	return (unsigned int)__builtin_popcountll(regs->perf_sleep_mask &
						  ((UINT64_C(1) << bit) - 1));
}

/* The registers that identify the code of a thread that wakes another one. */
static inline uint64_t regs_waking_mask(const struct regs *regs)
{
	return UINT64_C(1) << regs->perf_pc_bit | UINT64_C(1) << regs->perf_sp_bit |
	       UINT64_C(1) << regs->perf_argument_bit;
}

/* Returns the position of a register among those of regs_waking_mask(). */
static inline unsigned int regs_waking_position(const struct regs *regs, unsigned int bit)
{
	return (unsigned int)__builtin_popcountll(regs_waking_mask(regs) &
						  ((UINT64_C(1) << bit) - 1));
}

/* Returns NULL if the architecture is invalid. */
const struct regs *regs_get(enum regs_arch arch);

/* Returns REGS_NONE for unknown machines. */
enum regs_arch regs_of_elf(uint16_t elf_machine);

/* Returns whether the code before a return address is a call. `code`: the `size` bytes before that
 * address. */
bool regs_is_call(enum regs_arch arch, const uint8_t *code, uint32_t size);
