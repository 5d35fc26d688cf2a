/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/collector-rows.h"

/* Images and stacks that the owner of a ring has told of. */
struct collector_stacks {
	struct collector_process *process;
	GHashTable *images; /* struct told_image by id */
	GHashTable *stacks; /* struct told_stack by id */
};

void collector_stacks_init(struct collector_stacks *stacks, struct collector_process *process);
void collector_stacks_done(struct collector_stacks *stacks);

/* path: NULL where it is not known. Not NONE: the ring lies. */
enum ring_fault collector_stacks_add_image(struct collector_stacks *stacks,
					   const struct ring_image *image, const char *path,
					   size_t n_path, uint64_t time_ns);
enum ring_fault collector_stacks_add(struct collector_stacks *stacks,
				     const struct ring_stack *stack, uint64_t time_ns);
/* Of a frame: where it is. The image is borrowed. */
struct output_place collector_stacks_place(struct collector_stacks *stacks,
					   const struct ring_frame *frame);
/* A stack as a node of these; 0: nobody has told of it, or there is no room. */
uint32_t collector_stacks_node(struct collector_stacks *stacks, uint32_t id,
			       struct call_nodes *nodes);
/* Of frames in an image that nobody has told of; of what stands for callers that are missing. */
struct image *collector_lost_image(struct collector_rows *rows);
struct image *collector_cut_image(struct collector_rows *rows);
/* The capture's id of a stack; 0: none. */
uint32_t collector_stacks_id(struct collector_stacks *stacks, uint32_t id, uint64_t time_ns);
