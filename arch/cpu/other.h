/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A CPU whose stacks are not unwound; arch/cpu.h.in describes the functions. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define REGS_NATIVE REGS_NONE
#define CPU_HAS_RECORDS false
#define CPU_HAS_TICK false
#define CPU_SIGNS false

static inline uint64_t cpu_thread_pointer(void)
{
	return 0;
}

static inline __attribute__((always_inline)) void cpu_get_registers(uint64_t *ret_pc,
								    uint64_t *ret_sp,
								    uint64_t *ret_fp,
								    uint64_t *ret_lr)
{
	*ret_pc = *ret_sp = *ret_fp = *ret_lr = 0;
}

static inline __attribute__((always_inline)) uint64_t cpu_caller_fp(const uint64_t *frame)
{
	(void)frame;
	return 0;
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
