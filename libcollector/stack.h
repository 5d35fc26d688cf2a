/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Stack - the stack of a record, as given by the program
 *
 * Sent once, like strings, before the record; the images of its frames are sent before that.
 */
#pragma once

#include "libcollector/prof-collector.h"

#include <assert.h>

struct producer;

struct stack {
	const struct prof_stack *from;
	uint32_t id; /* 0: there was no room for it */
};

struct self_maps_stack;

/*
 * Sends the images of the stack's frames that have not been sent. Not in handlers, and not with
 * RING_NO_SYSCALL. Returns an enum message_outcome: MESSAGE_AGAIN in another epoch, else whether
 * all images were sent.
 */
int stack_define_images(struct producer *producer, uint32_t epoch,
			const struct self_maps_stack *stack);
/* An enum message_outcome. */
int stack_write(struct producer *producer, uint32_t epoch, struct stack *stack);
