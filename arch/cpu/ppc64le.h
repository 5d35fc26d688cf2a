/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* CPU, ppc64le; arch/cpu.h.in describes the functions. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define REGS_NATIVE REGS_PPC64LE
#define CPU_HAS_RECORDS false
#define CPU_HAS_TICK false
#define CPU_SIGNS false

static inline uint64_t cpu_thread_pointer(void)
{
	uint64_t pointer;

	/* ELFv2 ABI 3.7.2: r13 is 0x7000 above the thread pointer */
	__asm__("addi %0, 13, -0x7000" : "=b"(pointer));
	return pointer;
}

static inline __attribute__((always_inline)) void cpu_get_registers(uint64_t *ret_pc,
								    uint64_t *ret_sp,
								    uint64_t *ret_fp,
								    uint64_t *ret_lr)
{
	__asm__ volatile(
		"mflr %3\n\tbcl 20, 31, 1f\n1:\tmflr %0\n\tmtlr %3\n\tmr %1, 1\n\tmr %2, 31"
		: "=&b"(*ret_pc), "=&b"(*ret_sp), "=&b"(*ret_fp), "=&b"(*ret_lr));
}

static inline __attribute__((always_inline)) uint64_t cpu_caller_fp(const uint64_t *frame)
{
	uint64_t fp;

	(void)frame;
	__asm__ volatile("" : "=r"(fp));
	return fp;
}

static inline uint64_t cpu_pac_mask(void)
{
	return 0;
}

static inline uint64_t cpu_tick(void)
{
	return 0;
}

static inline uint64_t cpu_tick_ordered(void)
{
	return 0;
}
