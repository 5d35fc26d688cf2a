/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/alloc/call-nodes.h"
#include "daemon/engine/peers/collector-rows.h"

/* Images and stacks that a producer has announced. */
struct collector_stacks {
	struct collector_process *process;
	GHashTable *images; /* struct announced_image by id */
	GHashTable *stacks; /* struct announced_stack by id */
};

void collector_stacks_init(struct collector_stacks *stacks, struct collector_process *process);
void collector_stacks_done(struct collector_stacks *stacks);

/* `path`: NULL if unknown. Returns a fault if the record is invalid. */
enum ring_fault collector_stacks_add_image(struct collector_stacks *stacks,
					   const struct ring_image *image, const char *path,
					   size_t n_path, uint64_t time_ns);
enum ring_fault collector_stacks_add(struct collector_stacks *stacks,
				     const struct ring_stack *stack, uint64_t time_ns);
/* Returns the image and offset of a frame. The image is borrowed. */
struct output_place collector_stacks_place(struct collector_stacks *stacks,
					   const struct ring_frame *frame);
/* Returns the image that is mapped at an address; NULL if none is known. */
struct image *collector_stacks_image(struct collector_stacks *stacks, uint64_t address);
/* Adds a stack to `nodes`. Returns its node; without room, the node of the outermost frames that
 * fit. Returns 0 if the stack was never announced. */
uint32_t collector_stacks_node(struct collector_stacks *stacks, uint32_t id,
			       struct call_nodes *nodes);
/* The images of frames whose image was never announced, of missing callers, and of functions of an
 * interpreter that could not be read. */
struct image *collector_lost_image(struct collector_rows *rows);
struct image *collector_cut_image(struct collector_rows *rows);
struct image *collector_unread_image(struct collector_rows *rows);
/* Returns the id of a stack in the capture; 0 for id 0 or if the stack was never announced. */
uint32_t collector_stacks_id(struct collector_stacks *stacks, uint32_t id, uint64_t time_ns);
