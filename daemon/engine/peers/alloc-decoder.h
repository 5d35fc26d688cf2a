/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/alloc/call-nodes.h"
#include "daemon/engine/alloc/heap-rows.h"
#include "libcollector/ring/ring-reader.h"

struct collector_stacks;
struct image;

/* Decodes the allocation records of one producer. */
struct alloc_decoder {
	struct heap_rows *rows; /* NULL: the producer has reported no allocation */
	struct collector_stacks *stacks;
	struct call_nodes *nodes; /* the nodes of `rows` */
	uint32_t number;          /* number of the producer's thread in `rows` */
	struct call_ids ids;
	struct call_ids functions; /* numbers of functions by the ids of code objects */
	struct image *program;     /* image of the functions; NULL: not needed yet */
};

/* `stacks` is borrowed. */
void alloc_decoder_init(struct alloc_decoder *decoder, struct heap_rows *rows,
			struct thread *thread, struct collector_stacks *stacks);
void alloc_decoder_done(struct alloc_decoder *decoder);

/* Adds a record of an allocation, free or realloc, of calls, or of code. Returns a fault if the
 * record is impossible. */
enum ring_fault alloc_decoder_add(struct alloc_decoder *decoder, const struct ring_record *record);
