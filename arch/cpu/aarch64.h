/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* CPU, aarch64; arch/cpu.h.in describes the functions. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define REGS_NATIVE REGS_AARCH64
#define CPU_HAS_RECORDS true
#define CPU_HAS_TICK false
#define CPU_SIGNS true

static inline uint64_t cpu_thread_pointer(void)
{
	uint64_t pointer;

	__asm__("mrs %0, tpidr_el0" : "=r"(pointer));
	return pointer;
}

static inline __attribute__((always_inline)) void cpu_get_registers(uint64_t *ret_pc,
								    uint64_t *ret_sp,
								    uint64_t *ret_fp,
								    uint64_t *ret_lr)
{
	__asm__ volatile("adr %0, .\n\tmov %1, sp\n\tmov %2, x29\n\tmov %3, x30"
			 : "=&r"(*ret_pc), "=&r"(*ret_sp), "=&r"(*ret_fp), "=&r"(*ret_lr));
}

static inline __attribute__((always_inline)) uint64_t cpu_caller_fp(const uint64_t *frame)
{
	return frame[0];
}

static inline uint64_t cpu_pac_mask(void)
{
	/* Signing sets bits that are clear in addresses of user space; stripping clears them. */
	const uint64_t all = (UINT64_C(1) << 55) - 1;
	register uint64_t address __asm__("x30") = all;

	__asm__("hint #7" : "+r"(address)); /* xpaclri */
	return all & ~address;
}

static inline uint64_t cpu_tick(void)
{
	return 0;
}

static inline uint64_t cpu_tick_ordered(void)
{
	return 0;
}
