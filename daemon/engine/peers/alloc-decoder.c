/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Alloc decoder - checks a producer's allocation records
 *
 * A `calls` record adds call nodes under the ids that the producer chose for them. A `code` record
 * adds a function that an interpreter executes; call nodes refer to it. Alloc, free and realloc
 * records go to heap-rows.c.
 *
 * Invariants: (1) an impossible record is a fault of the ring, and has no effect
 *                 [test-engine-heap: lies]
 *             (2) an allocation whose stack was never announced gets the stack "<lost>"
 *                 [test-engine-heap-stacks: nodes]
 * Runs on the drain thread only.
 */
#include "daemon/engine/peers/alloc-decoder.h"

#include "arch/base.h"
#include "daemon/engine/interp/interp-record.h"
#include "daemon/engine/peers/collector-stacks.h"

#include <assert.h>

/* the number of every function for which there was no room */
#define NO_ROOM UINT32_MAX

static_assert((int)RING_ALLOC_N_KINDS == (int)PROF_ALLOC_KINDS &&
		      (int)RING_ALLOC_BRK == (int)PROF_ALLOC_BRK,
	      "alloc.kind");
static_assert((int)RING_FREE_N_KINDS == (int)PROF_FREE_UNTOLD &&
		      (int)RING_FREE_BRK == (int)PROF_FREE_BRK,
	      "free.kind");

void alloc_decoder_init(struct alloc_decoder *decoder, struct heap_rows *rows,
			struct thread *thread, struct collector_stacks *stacks)
{
	*decoder = (struct alloc_decoder){
		.rows = rows,
		.stacks = stacks,
		.nodes = heap_rows_nodes(rows),
		.number = heap_rows_add_thread(rows, thread),
	};
}

void alloc_decoder_done(struct alloc_decoder *decoder)
{
	if (!decoder->rows)
		return;
	call_ids_done(&decoder->ids, decoder->nodes->budget);
	call_ids_done(&decoder->functions, decoder->nodes->budget);
	heap_rows_end_producer(decoder->rows, decoder->number);
	*decoder = (struct alloc_decoder){ 0 };
}

static void lose(const struct alloc_decoder *decoder, enum prof_loss_cause cause, uint64_t count,
		 uint64_t time_ns)
{
	loss_stream_add(&decoder->stacks->process->losses, cause, count, time_ns, time_ns);
}

/* Returns the node of all stacks that were never announced. */
static uint32_t lost_node(struct alloc_decoder *decoder)
{
	const struct output_place place = {
		.image = &collector_lost_image(decoder->stacks->process->rows)->row,
	};

	return call_nodes_add(decoder->nodes, 0, &place);
}

/* Returns the node of an allocation's stack. */
static uint32_t find_calls(struct alloc_decoder *decoder, uint32_t id, uint8_t flags,
			   uint64_t time_ns)
{
	uint32_t node;

	if (id == 0)
		return 0;
	node = flags & RING_ALLOC_STACK ? collector_stacks_node(decoder->stacks, id, decoder->nodes)
					: call_ids_get(&decoder->ids, id);
	if (!node) {
		lose(decoder, PROF_LOSS_RING_CORRUPT, 1, time_ns);
		return lost_node(decoder);
	}
	decoder->stacks->process->n_unread += decoder->nodes->nodes[node - 1].is_unread;
	return node;
}

/* ---- Functions of an interpreter ------------------------------------------------------------- */

static enum ring_fault add_code(struct alloc_decoder *decoder, const struct ring_record *record)
{
	const struct ring_code *head = record->payload;
	const uint8_t *texts = (const uint8_t *)(head + 1);
	struct interpreted_code *all = decoder->nodes->code;
	struct interp_code_text code = { .family = INTERP_PYTHON,
					 .first_line = head->first_line,
					 .minor = head->minor };
	const struct interp_function *function;

	if (head->id >= RING_MAX_CALLS || head->name_bytes > INTERP_MAX_NAME ||
	    head->file_bytes > INTERP_MAX_FILE ||
	    (uint32_t)head->name_bytes + head->file_bytes > head->n_bytes ||
	    head->n_bytes - head->name_bytes - head->file_bytes > INTERP_MAX_LINES ||
	    head->flags & ~(RING_CODE_NAME_CUT | RING_CODE_FILE_CUT) ||
	    !interp_record_text(texts, head->name_bytes, head->name_width,
				head->flags & RING_CODE_NAME_CUT, code.name) ||
	    !interp_record_text(texts + head->name_bytes, head->file_bytes, head->file_width,
				head->flags & RING_CODE_FILE_CUT, code.file))
		return RING_FAULT_PAYLOAD;
	if (!all || head->id == 0)
		return RING_FAULT_NONE;
	code.lines = texts + head->name_bytes + head->file_bytes;
	code.lines_bytes = head->n_bytes - head->name_bytes - head->file_bytes;
	decoder->program = interpreted_code_program(
		all, collector_stacks_image(decoder->stacks, head->interpreter), INTERP_PYTHON,
		head->minor);
	function = interp_functions_intern(all->functions, &code);
	if (!call_ids_set(&decoder->functions, decoder->nodes->budget, head->id,
			  function ? (uint32_t)function->number : NO_ROOM) ||
	    !function)
		lose(decoder, PROF_LOSS_RING_REFUSED, 1, record->time_ns);
	return RING_FAULT_NONE;
}

/* Returns the place of a frame of kind RING_FRAME_CODE. */
static struct output_place place_of_code(struct alloc_decoder *decoder,
					 const struct ring_frame *frame, uint64_t time_ns)
{
	struct interpreted_code *all = decoder->nodes->code;
	const struct interp_frame at = { .position = (uint32_t)frame->offset };
	struct output_place place = { .kind = PROF_FRAME_EXACT };
	const struct interp_function *function;
	uint64_t number;

	if (!all || frame->image == 0) {
		place.image = &collector_unread_image(decoder->stacks->process->rows)->row;
		return place;
	}
	if (!decoder->program)
		decoder->program = interpreted_code_program(all, NULL, INTERP_PYTHON, 0);
	number = call_ids_get(&decoder->functions, frame->image);
	if (number == 0)
		lose(decoder, PROF_LOSS_RING_CORRUPT, 1, time_ns);
	function = interp_functions_at(all->functions, number);
	place.image = &decoder->program->row;
	if (function)
		place.offset = function->number * INTERP_FUNCTION_LINES +
			       interp_function_line(function, &at);
	return place;
}

/* ---- Stacks ---------------------------------------------------------------------------------- */

/* Adds the node of a frame that `node` calls. If the frame has RING_FRAME_CUT, adds a node for
 * missing callers between them. Returns 0 if there is no room. */
static uint32_t add_node(struct alloc_decoder *decoder, uint32_t node,
			 const struct ring_frame *frame, uint64_t time_ns)
{
	const struct output_place place = frame->kind & RING_FRAME_CODE
						  ? place_of_code(decoder, frame, time_ns)
						  : collector_stacks_place(decoder->stacks, frame);
	struct output_place missing = { 0 };

	if (frame->kind & RING_FRAME_CUT) {
		missing.image = &collector_cut_image(decoder->stacks->process->rows)->row;
		node = call_nodes_add(decoder->nodes, node, &missing);
		if (!node)
			return 0;
	}
	node = call_nodes_add(decoder->nodes, node, &place);
	if (node && (frame->kind & RING_FRAME_CODE) && frame->image == 0)
		decoder->nodes->nodes[node - 1].is_unread = true;
	return node;
}

static enum ring_fault add_calls(struct alloc_decoder *decoder, const struct ring_record *record)
{
	const struct ring_calls *calls = record->payload;
	const struct ring_frame *frames = (const void *)(calls + 1);
	uint32_t node = 0, n = calls->n_frames, refused = 0;

	if (calls->first >= RING_MAX_CALLS || n > RING_MAX_CALLS - calls->first ||
	    calls->parent >= RING_MAX_CALLS)
		return RING_FAULT_PAYLOAD;
	for (uint32_t i = 0; i < n; i++)
		if (frames[i].kind &
		    ~(RING_FRAME_RETURN | RING_FRAME_NO_FILE | RING_FRAME_CUT | RING_FRAME_CODE))
			return RING_FAULT_PAYLOAD;
	/* Ignore the id 0, which no node has. The library never sends it: a record that it abandons
	 * becomes a pad or a string, not a `calls` record of zeros. */
	if (calls->first == 0)
		return RING_FAULT_NONE;
	if (calls->parent) {
		node = call_ids_get(&decoder->ids, calls->parent);
		if (!node) {
			lose(decoder, PROF_LOSS_RING_CORRUPT, 1, record->time_ns);
			node = lost_node(decoder);
		}
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t added = add_node(decoder, node, &frames[i], record->time_ns);

		/* Without room, attribute the frame to its caller. */
		node = added ? added : node;
		if (!call_ids_set(&decoder->ids, decoder->nodes->budget, calls->first + i, node) ||
		    !added)
			refused++;
	}
	lose(decoder, PROF_LOSS_RING_REFUSED, refused, record->time_ns);
	return RING_FAULT_NONE;
}

static enum ring_fault add_alloc(struct alloc_decoder *decoder, const struct ring_record *record)
{
	const struct ring_alloc *alloc = record->payload;
	struct live_block block = {
		.address = alloc->address,
		.size = alloc->size,
		.label = live_block_label(0, alloc->kind, alloc->alignment_log2),
		.thread = decoder->number,
	};

	if (alloc->kind >= RING_ALLOC_N_KINDS || alloc->alignment_log2 > 63 ||
	    alloc->flags & ~RING_ALLOC_STACK)
		return RING_FAULT_PAYLOAD;
	if (!heap_rows_are_paused(decoder->rows))
		block.calls = find_calls(decoder, alloc->stack, alloc->flags, record->time_ns);
	heap_rows_alloc(decoder->rows, &block, record->time_ns);
	return RING_FAULT_NONE;
}

static enum ring_fault add_free(struct alloc_decoder *decoder, const struct ring_record *record)
{
	const struct ring_free_block *freed = record->payload;
	uint64_t from = freed->address, bytes = MAX_OF(freed->pages, 1u) * UINT64_C(4096);

	if (freed->kind >= RING_FREE_N_KINDS)
		return RING_FAULT_PAYLOAD;
	if (freed->kind == RING_FREE_MUNMAP || freed->kind == RING_FREE_BRK)
		heap_rows_unmap(decoder->rows, decoder->number, from,
				from + MIN_OF(bytes, UINT64_MAX - from), freed->kind,
				record->time_ns);
	else
		heap_rows_free_block(decoder->rows, decoder->number, from, freed->kind,
				     record->time_ns);
	return RING_FAULT_NONE;
}

static enum ring_fault add_realloc(struct alloc_decoder *decoder, const struct ring_record *record)
{
	const struct ring_realloc *from = record->payload;
	struct heap_realloc moved = {
		.block = {
			.address = from->address,
			.size = from->size,
			.label = live_block_label(0, from->kind, 0),
			.thread = decoder->number,
		},
		.prior = from->prior,
		.time_ns = record->time_ns,
		.duration_ns = from->duration_ns,
		.is_freed = from->is_freed,
	};

	if (from->kind >= RING_ALLOC_N_KINDS || from->is_freed > 1 ||
	    from->flags & ~RING_ALLOC_STACK)
		return RING_FAULT_PAYLOAD;
	if (!heap_rows_are_paused(decoder->rows) && (from->address || !from->is_freed))
		moved.block.calls = find_calls(decoder, from->stack, from->flags, record->time_ns);
	heap_rows_realloc(decoder->rows, &moved);
	return RING_FAULT_NONE;
}

enum ring_fault alloc_decoder_add(struct alloc_decoder *decoder, const struct ring_record *record)
{
	switch (record->type) {
	case RING_ALLOC:
		return add_alloc(decoder, record);
	case RING_FREE_BLOCK:
		return add_free(decoder, record);
	case RING_REALLOC:
		return add_realloc(decoder, record);
	case RING_CODE:
		return add_code(decoder, record);
	default:
		return add_calls(decoder, record);
	}
}
