/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Registers - what the unwinder has to know of a CPU
 *
 * One row an architecture, chosen at run time: the engine reads files of one, tests read files of
 * all. REGS_NATIVE is the one that this was compiled for. Immutable, async-signal-safe.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum regs_arch { REGS_NONE, REGS_X86_64, REGS_AARCH64, REGS_RISCV64, REGS_PPC64LE, REGS_N_ARCHS };

#if defined(__x86_64__)
#define REGS_NATIVE REGS_X86_64
#elif defined(__aarch64__)
#define REGS_NATIVE REGS_AARCH64
#elif defined(__riscv) && __riscv_xlen == 64
#define REGS_NATIVE REGS_RISCV64
#elif defined(__powerpc64__) && defined(__LITTLE_ENDIAN__)
#define REGS_NATIVE REGS_PPC64LE
#else
#define REGS_NATIVE REGS_NONE
#endif

#define REGS_MAX_SIGRETURN 12
#define REGS_MAX_TRAMPOLINE 11
#define REGS_MAX_NUMBERED 16
#define REGS_NO_COPY UINT8_MAX

/* A frame that a function with frame pointers makes. */
enum regs_frame {
	/* fp points at its caller's fp, and at fp_bytes above that stands the return address */
	REGS_FRAME_RECORD,
	REGS_FRAME_BELOW, /* the same, right below where fp points (riscv64) */
	/* sp points at its caller's sp, where the return address is too (ppc64le) */
	REGS_FRAME_CHAIN,
};

struct regs {
	const char *name;
	uint16_t elf_machine; /* of a 64-bit little-endian ELF file */
	/* DWARF's numbers, from each psABI. `ra` is the column of the return address: on x86_64
	 * no register. */
	uint8_t sp, fp, ra;
	bool has_lr; /* calls leave the return address in a register */
	/*
	 * Where prologues copy lr to before they store it, of which CFI says that the return
	 * address is there. lr still has it. REGS_NO_COPY: such rows are not known to exist.
	 */
	uint8_t lr_copy;
	bool is_pac;        /* return addresses may carry a signature */
	uint8_t code_align; /* every instruction's address is a multiple of it */
	uint8_t frame;      /* enum regs_frame */
	uint8_t chain_ra; /* REGS_FRAME_CHAIN: where the return address is, from the caller's sp */
	int8_t ra_from_cfa; /* where a call puts it, without lr */
	uint64_t perf_mask; /* for perf_event_attr.sample_regs_user, from <asm/perf_regs.h> */
	/* Where they stand in the sample: ascending by bit. lr is UINT8_MAX where there is none. */
	uint8_t perf_sp, perf_fp, perf_lr, perf_pc, perf_n;
	/* Where the sample has the registers that DWARF calls 0, 1, …: n_numbered of them, 0
	 * where only those above are sampled. */
	uint8_t perf_numbered[REGS_MAX_NUMBERED], n_numbered;
	/* What a signal handler returns to, and where that finds the interrupted registers, from
	 * its sp. */
	uint8_t sigreturn[REGS_MAX_SIGRETURN];
	uint8_t sigreturn_size;
	uint16_t signal_sp, signal_fp, signal_lr, signal_pc;
	/*
	 * What Python puts between its interpreter and itself, a copy for each Python function, so
	 * that profilers see which one runs: code without CFI or a frame pointer, that calls, and
	 * returns to where trampoline_return says. A size of 0: it keeps a frame pointer there.
	 */
	uint8_t trampoline[REGS_MAX_TRAMPOLINE];
	uint8_t trampoline_size, trampoline_return;
};

/* NULL for what is no architecture. */
const struct regs *regs_get(enum regs_arch arch);

/* REGS_NONE for machines that are not known. */
enum regs_arch regs_of_elf(uint16_t elf_machine);

/* Whether the code that ends at a return address is a call. `code` has the `size` bytes before
 * it. */
bool regs_is_call(enum regs_arch arch, const uint8_t *code, uint32_t size);

/*
 * The bits of a return address that hold its signature in this process, with which walks strip it.
 * 0 where nothing is signed; on a CPU that cannot sign, too.
 */
uint64_t regs_own_pac_mask(void);
