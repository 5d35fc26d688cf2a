/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Stack - the stack of a record, as given by the program
 *
 * Each stack is sent once, like strings, before the record, and after the images of its frames.
 */
#pragma once

#include "libcollector/prof-collector.h"

#include <assert.h>

struct producer;

struct stack {
	const struct prof_stack *from;
	uint32_t id; /* 0: the stack is empty or found no room */
};

struct self_maps_stack;

/* Sends the images of the stack's frames that were not sent yet. Makes system calls, so it must not
 * be called with RING_NO_SYSCALL. Returns an enum message_outcome: MESSAGE_AGAIN if the epoch has
 * changed. */
int stack_define_images(struct producer *producer, uint32_t epoch,
			const struct self_maps_stack *stack);
/* Returns an enum message_outcome. */
int stack_write(struct producer *producer, uint32_t epoch, struct stack *stack);
