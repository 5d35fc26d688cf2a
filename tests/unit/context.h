/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* CONTEXT_REGISTERS(c) - an initializer for the registers that a walk starts with, from a
 * ucontext_t */
#pragma once

#include <ucontext.h>

#if defined(__x86_64__)
#define CONTEXT_REGISTERS(c)                                    \
	{                                                       \
		.pc = (uint64_t)(c).uc_mcontext.gregs[REG_RIP], \
		.sp = (uint64_t)(c).uc_mcontext.gregs[REG_RSP], \
		.fp = (uint64_t)(c).uc_mcontext.gregs[REG_RBP], \
	}
#elif defined(__aarch64__)
#define CONTEXT_REGISTERS(c)                                                    \
	{                                                                       \
		.pc = (c).uc_mcontext.pc, .sp = (c).uc_mcontext.sp,             \
		.fp = (c).uc_mcontext.regs[29], .lr = (c).uc_mcontext.regs[30], \
	}
#elif defined(__riscv)
#define CONTEXT_REGISTERS(c)                                                                  \
	{                                                                                     \
		.pc = (c).uc_mcontext.__gregs[REG_PC], .sp = (c).uc_mcontext.__gregs[REG_SP], \
		.fp = (c).uc_mcontext.__gregs[REG_S0], .lr = (c).uc_mcontext.__gregs[REG_RA], \
	}
#elif defined(__powerpc64__)
#define CONTEXT_REGISTERS(c)                                                          \
	{                                                                             \
		.pc = (c).uc_mcontext.gp_regs[32], .sp = (c).uc_mcontext.gp_regs[1],  \
		.fp = (c).uc_mcontext.gp_regs[31], .lr = (c).uc_mcontext.gp_regs[36], \
	}
#endif
