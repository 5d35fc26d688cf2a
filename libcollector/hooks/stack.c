/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Stack - the stack of a record, as given by the program
 *
 * Frames are written directly into the ring, because a handler's stack may be small. Records that
 * interrupt another record, and records of threads that make no system calls, get addresses instead
 * of images; the engine looks these up in the process's mappings.
 *
 * Invariants: (1) a frame's image was sent in the same epoch, by the same owner  [test_jit: epochs]
 *             (2) a module that replaced another one is sent                   [test_jit: dlclose]
 *             (3) errno does not change  [test_collector: front]
 */
#include "libcollector/hooks/stack.h"

#include "libcollector/hooks/message.h"

#include <errno.h>

#define SALT UINT64_C(0x737461636b) /* initial hash of a stack; a string's is 0 */

struct image_definition {
	struct producer *producer;
	uint32_t epoch;
	enum message_outcome outcome;
};

static struct self_maps_stack measure(const struct producer *producer,
				      const struct prof_stack *from)
{
	uint64_t room = (producer->current->most_bytes - sizeof(struct ring_stack)) /
			sizeof(struct ring_frame);
	uint32_t n = (uint32_t)MIN_OF(MIN_OF((uint64_t)from->n, room), (uint64_t)PROF_MAX_FRAMES);

	return (struct self_maps_stack){
		.pcs = from->pcs,
		.n = n,
		.n_exact = from->kind == PROF_STACK_EXACT         ? n
			   : from->kind == PROF_STACK_INTERRUPTED ? 1
								  : 0,
	};
}

/* ---- Images ---- */

static int64_t lose(struct image_definition *definition, enum message_outcome outcome)
{
	definition->outcome = outcome;
	return -1;
}

static int64_t define_image(void *data, const struct self_maps_range *range, uint64_t dev,
			    uint64_t inode, const char *path)
{
	struct image_definition *definition = data;
	struct producer *producer = definition->producer;
	uint32_t n = range->has_build_id ? range->n_id_bytes : 0,
		 id = intern_new_id(&producer->intern);
	struct ring_image *image;
	struct ring *ring;
	struct text text = { .is_name = false };

	intern_measure(path, &text);
	if (message_write_text(producer, definition->epoch, &text) == MESSAGE_AGAIN)
		return lose(definition, MESSAGE_AGAIN);
	ring = producer->current;
	image = ring_begin(ring, RING_IMAGE, sizeof(*image) + n);
	if (!image)
		return lose(definition, register_again(producer) ? MESSAGE_AGAIN : MESSAGE_LOST);
	if (message_is_other(producer, definition->epoch)) {
		message_waste(ring, image, sizeof(*image) + n);
		return lose(definition, MESSAGE_AGAIN);
	}
	*image = (struct ring_image){
		.id = id,
		.n_build_id_bytes = n,
		.start = range->start,
		.end = range->end,
		.file_offset = range->file_offset,
		.dev = dev,
		.inode = inode,
		.path = text.id,
	};
	memcpy(image + 1, range->id, n);
	ring_end(ring, image);
	return id;
}

int stack_define_images(struct producer *producer, uint32_t epoch,
			const struct self_maps_stack *stack)
{
	struct image_definition definition = { producer, epoch, MESSAGE_WRITTEN };
	uint64_t before;

	if (self_maps_check(&producer->code, stack, epoch))
		return MESSAGE_WRITTEN;
	before = register_block_signals();
	if (message_is_other(producer, epoch))
		definition.outcome = MESSAGE_AGAIN;
	else
		self_maps_scan(&producer->code, stack, define_image, &definition);
	register_restore_signals(before);
	return definition.outcome;
}

/* ---- Stacks ---- */

static struct ring_frame make_frame(const struct self_maps *code,
				    const struct self_maps_stack *stack, uint32_t i)
{
	const struct self_maps_range *range = code ? self_maps_find(code, self_maps_byte(stack, i))
						   : NULL;
	uint64_t pc = (uintptr_t)stack->pcs[i];
	struct ring_frame frame = { .offset = pc,
				    .kind = i >= stack->n_exact ? RING_FRAME_RETURN : 0 };

	if (range && range->image == 0)
		frame.kind |= RING_FRAME_NO_FILE;
	if (range && range->image != 0) {
		frame.offset = pc - range->start + range->file_offset;
		frame.image = range->image;
	}
	return frame;
}

static enum message_outcome write_frames(struct producer *producer, uint32_t epoch,
					 const struct self_maps *code,
					 const struct self_maps_stack *stack, struct text *text)
{
	uint32_t version = code ? code->version : 0;
	size_t bytes = sizeof(struct ring_stack) + stack->n * sizeof(struct ring_frame);
	struct ring *ring = producer->current;
	struct ring_stack *to = ring_begin(ring, RING_STACK, bytes);
	struct ring_frame *frames;

	if (!to)
		return register_again(producer) ? MESSAGE_AGAIN : MESSAGE_LOST;
	if (message_is_other(producer, epoch) || (code && code->version != version)) {
		message_waste(ring, to, bytes);
		return MESSAGE_AGAIN;
	}
	*to = (struct ring_stack){ .id = text->id, .n_frames = stack->n };
	frames = (struct ring_frame *)(to + 1);
	for (uint32_t i = 0; i < stack->n; i++)
		frames[i] = make_frame(code, stack, i);
	ring_end(ring, to);
	intern_add(&producer->intern, text, epoch);
	return MESSAGE_WRITTEN;
}

static enum message_outcome write_stack(struct producer *producer, uint32_t epoch,
					struct stack *stack)
{
	struct self_maps_stack pcs = measure(producer, stack->from);
	bool is_nested = producer->current->open[0].sp != 0;
	struct self_maps *code = &producer->code;
	enum message_outcome outcome;
	struct text text;

	if (pcs.n == 0)
		return MESSAGE_WRITTEN;
	if (is_nested || (producer->current->flags & RING_NO_SYSCALL))
		code = NULL;
	outcome = code ? (enum message_outcome)stack_define_images(producer, epoch, &pcs)
		       : MESSAGE_WRITTEN;
	if (outcome != MESSAGE_WRITTEN)
		return outcome;
	/* The frames' hash makes the stack a text, so that `intern` can find it. */
	text = (struct text){ .n_bytes = 1, .hash = SALT };
	for (uint32_t i = 0; i < pcs.n; i++) {
		struct ring_frame frame = make_frame(code, &pcs, i);

		text.hash = intern_mix(frame.offset ^ text.hash,
				       (uint64_t)frame.image << 2 | frame.kind);
	}
	if (!intern_find(&producer->intern, &text)) {
		text.id = intern_new_id(&producer->intern);
		outcome = write_frames(producer, epoch, code, &pcs, &text);
	}
	if (outcome == MESSAGE_WRITTEN)
		stack->id = text.id;
	return outcome;
}

int stack_write(struct producer *producer, uint32_t epoch, struct stack *stack)
{
	int error = errno;
	enum message_outcome outcome;

	stack->id = 0;
	outcome = write_stack(producer, epoch, stack);
	errno = error;
	return outcome;
}
