/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * JIT - sends the program's events about generated code
 *
 * Each event is its own record. Readers derive from the events which code had which name at which
 * time.
 */
#include "libcollector/hooks/message.h"

static void fill(void *payload, const uint32_t *ids, const void *data)
{
	struct ring_jit *jit = payload;

	*jit = *(const struct ring_jit *)data;
	if (jit->kind == RING_JIT_LOAD)
		jit->name = ids[0];
}

static bool write_event(const struct ring_jit *event, const char *name)
{
	struct text text = { .is_name = false };
	struct message message = {
		.type = RING_JIT,
		.payload_bytes = sizeof(*event),
		.n_texts = event->kind == RING_JIT_LOAD,
		.texts = &text,
	};
	struct producer *producer = prof_collector_enabled() ? message_enter() : NULL;

	/* An engine that does not support the type would quarantine the ring. */
	if (!producer || producer->n_types <= RING_JIT)
		return false;
	intern_measure(name ? name : "", &text);
	return message_write(&message, fill, event);
}

bool prof_jit_load(const void *address, size_t size, const char *name)
{
	return write_event(&(struct ring_jit){ .kind = RING_JIT_LOAD,
					       .address = (uintptr_t)address,
					       .size = size },
			   name);
}

bool prof_jit_move(const void *from, const void *address)
{
	return write_event(&(struct ring_jit){ .kind = RING_JIT_MOVE,
					       .address = (uintptr_t)address,
					       .from = (uintptr_t)from },
			   NULL);
}

bool prof_jit_unload(const void *address)
{
	return write_event(
		&(struct ring_jit){ .kind = RING_JIT_UNLOAD, .address = (uintptr_t)address }, NULL);
}
