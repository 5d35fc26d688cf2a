/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Stack - where a record was made, as the program says it
 *
 * Sent once, as strings are, and before the record; with what each of its frames lies in before
 * that.
 */
#pragma once

#include "libcollector/prof-collector.h"

#include <assert.h>

struct producer;

struct stack {
	const struct prof_stack *from;
	uint32_t id; /* 0: there was no room for it */
};

struct own_code_stack;

/*
 * Sees to it that all is told that the stack goes through; not where that may not be. An enum
 * message_outcome: another epoch, or what could be told.
 */
int stack_tell_images(struct producer *producer, uint32_t epoch,
		      const struct own_code_stack *stack);
/* An enum message_outcome. */
int stack_write(struct producer *producer, uint32_t epoch, struct stack *stack);
