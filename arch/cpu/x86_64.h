/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* CPU, x86_64; arch/cpu.h.in describes the functions. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define REGS_NATIVE REGS_X86_64
#define CPU_HAS_RECORDS true
#define CPU_HAS_TICK true
#define CPU_SIGNS false

static inline uint64_t cpu_thread_pointer(void)
{
	uint64_t pointer;

	__asm__("mov %%fs:0, %0" : "=r"(pointer));
	return pointer;
}

static inline __attribute__((always_inline)) void cpu_get_registers(uint64_t *ret_pc,
								    uint64_t *ret_sp,
								    uint64_t *ret_fp,
								    uint64_t *ret_lr)
{
	__asm__ volatile("lea 0(%%rip), %0\n\tmov %%rsp, %1\n\tmov %%rbp, %2"
			 : "=&r"(*ret_pc), "=&r"(*ret_sp), "=&r"(*ret_fp));
	*ret_lr = 0;
}

static inline __attribute__((always_inline)) uint64_t cpu_caller_fp(const uint64_t *frame)
{
	return frame[0];
}

static inline uint64_t cpu_pac_mask(void)
{
	return 0;
}

static inline uint64_t cpu_tick(void)
{
	return __builtin_ia32_rdtsc();
}

static inline uint64_t cpu_tick_ordered(void)
{
	__builtin_ia32_lfence();
	return __builtin_ia32_rdtsc();
}
