/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* CPU, riscv64; arch/cpu.h.in describes the functions. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define REGS_NATIVE REGS_RISCV64
#define CPU_HAS_RECORDS false
#define CPU_HAS_TICK false
#define CPU_SIGNS false

static inline uint64_t cpu_thread_pointer(void)
{
	uint64_t pointer;

	__asm__("mv %0, tp" : "=r"(pointer));
	return pointer;
}

static inline __attribute__((always_inline)) void cpu_get_registers(uint64_t *ret_pc,
								    uint64_t *ret_sp,
								    uint64_t *ret_fp,
								    uint64_t *ret_lr)
{
	__asm__ volatile("auipc %0, 0\n\tmv %1, sp\n\tmv %2, s0\n\tmv %3, ra"
			 : "=&r"(*ret_pc), "=&r"(*ret_sp), "=&r"(*ret_fp), "=&r"(*ret_lr));
}

static inline __attribute__((always_inline)) uint64_t cpu_caller_fp(const uint64_t *frame)
{
	return frame[-2];
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
