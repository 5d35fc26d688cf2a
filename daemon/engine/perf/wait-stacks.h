/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Wait-stacks - finds a stack that a wait can share if its own stack is unknown */
#pragma once

#include "daemon/engine/perf/wait.h"

struct wait_stacks {
	struct samples *samples;
	struct wait_stratum *strata;
	/* by place: the last code with its own stack, in an interpreted process; referenced, or
	 * NULL */
	struct wait_code **natives;
};

void wait_stacks_init(struct wait_stacks *stacks, struct samples *samples);
void wait_stacks_done(struct wait_stacks *stacks);
/* Chooses the stack that the code shares, and lets other codes share the stack of this one. Rows
 * are written much later, for many codes at once, so the choice is made now. */
void wait_stacks_offer(struct wait_stacks *stacks, struct wait_code *code);
/* Finds the code's stack. Sets `stack`, `call`, `method`, `stop` and `interpreter` of *ret_found.
 * A copied stack without interpreter frames is replaced by the shared stack if the shared stack
 * has interpreter frames and the same native frames. */
enum prof_stack_source wait_stacks_find(struct wait_stacks *stacks, struct wait_code *code,
					struct wait_stratum *ret_found);
/* Returns whether a better stack for the code may still come. */
bool wait_stacks_may_improve(const struct wait_stacks *stacks, const struct wait_code *code);
