/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Alloc decoder - checks a producer's allocation records
 *
 * A `calls` record adds call nodes under the ids that the producer chose for them. Alloc, free and
 * realloc records go to heap-rows.c.
 *
 * Invariants: (1) an impossible record is a fault of the ring, and has no effect
 *                 [test-engine-heap: lies]
 *             (2) an allocation whose stack was never announced gets the stack "<lost>"
 *                 [test-engine-heap-stacks: nodes]
 * Runs on the drain thread only.
 */
#include "daemon/engine/alloc/heap-rows-internal.h"

void alloc_decoder_init(struct alloc_decoder *decoder, struct heap_rows *rows,
			struct thread *thread, struct collector_stacks *stacks)
{
	*decoder = (struct alloc_decoder){
		.rows = rows,
		.stacks = stacks,
		.number = heap_rows_add_thread(rows, thread),
	};
}

void alloc_decoder_done(struct alloc_decoder *decoder)
{
	struct heap_rows *rows = decoder->rows;

	if (!rows)
		return;
	call_ids_done(&decoder->ids, &rows->budget);
	heap_rows_thread(rows, decoder->number)->n_producers--;
	heap_rows_drop_thread(rows, decoder->number);
	*decoder = (struct alloc_decoder){ 0 };
}

/* Returns the node that stands for stacks that were never announced. */
static uint32_t lost_node(struct alloc_decoder *decoder)
{
	struct heap_rows *rows = decoder->rows;
	const struct output_place place = {
		.image = &collector_lost_image(rows->process->rows)->row,
	};

	if (!rows->lost)
		rows->lost = call_nodes_add(&rows->nodes, 0, &place);
	return rows->lost;
}

/* Returns the node of an allocation's stack. */
static uint32_t find_calls(struct alloc_decoder *decoder, uint32_t id, uint8_t flags,
			   uint64_t time_ns)
{
	uint32_t node;

	if (id == 0)
		return 0;
	node = flags & RING_ALLOC_STACK
		       ? collector_stacks_node(decoder->stacks, id, &decoder->rows->nodes)
		       : call_ids_get(&decoder->ids, id);
	if (node)
		return node;
	heap_rows_lose(decoder->rows, PROF_LOSS_RING_CORRUPT, time_ns);
	return lost_node(decoder);
}

/* Adds a frame below `node`, or below missing callers. Returns 0 if there is no room. */
static uint32_t add_node(struct alloc_decoder *decoder, uint32_t node,
			 const struct ring_frame *frame)
{
	struct heap_rows *rows = decoder->rows;
	const struct output_place place = collector_stacks_place(decoder->stacks, frame);
	struct output_place missing = { 0 };

	if (frame->kind & RING_FRAME_CUT) {
		missing.image = &collector_cut_image(rows->process->rows)->row;
		node = call_nodes_add(&rows->nodes, node, &missing);
		if (!node)
			return 0;
	}
	return call_nodes_add(&rows->nodes, node, &place);
}

static enum ring_fault add_calls(struct alloc_decoder *decoder, const struct ring_record *record)
{
	const struct ring_calls *calls = record->payload;
	const struct ring_frame *frames = (const void *)(calls + 1);
	struct heap_rows *rows = decoder->rows;
	uint32_t node = 0, n = calls->n_frames, refused = 0;

	if (calls->first >= RING_MAX_CALLS || n > RING_MAX_CALLS - calls->first ||
	    calls->parent >= RING_MAX_CALLS)
		return RING_FAULT_PAYLOAD;
	for (uint32_t i = 0; i < n; i++)
		if (frames[i].kind & ~(RING_FRAME_RETURN | RING_FRAME_NO_FILE | RING_FRAME_CUT))
			return RING_FAULT_PAYLOAD;
	/* The writer abandoned this record, so it has no contents. */
	if (calls->first == 0)
		return RING_FAULT_NONE;
	if (calls->parent) {
		node = call_ids_get(&decoder->ids, calls->parent);
		if (!node) {
			heap_rows_lose(rows, PROF_LOSS_RING_CORRUPT, record->time_ns);
			node = lost_node(decoder);
		}
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t added = add_node(decoder, node, &frames[i]);

		/* Without room, attribute the frame to its caller. */
		node = added ? added : node;
		if (!call_ids_set(&decoder->ids, &rows->budget, calls->first + i, node) || !added)
			refused++;
	}
	collector_process_lose(rows->process, PROF_LOSS_RING_REFUSED, refused, record->time_ns,
			       record->time_ns);
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
	if (decoder->rows->pending->is_paused) {
		heap_rows_pass(decoder->rows, &block, record->time_ns);
		return RING_FAULT_NONE;
	}
	block.calls = find_calls(decoder, alloc->stack, alloc->flags, record->time_ns);
	heap_rows_thread(decoder->rows, decoder->number)->n_blocks++;
	heap_rows_add(decoder->rows, &block, 0, record->time_ns, true);
	return RING_FAULT_NONE;
}

static void remove_mapping(struct alloc_decoder *decoder, const struct ring_free_block *freed,
			   uint64_t time_ns)
{
	struct heap_rows *rows = decoder->rows;
	uint64_t bytes = MAX_OF(freed->pages, 1u) * UINT64_C(4096);

	if (heap_rows_has_passed(rows, freed->address))
		return;
	time_ns = heap_rows_prepare(rows, time_ns);
	if (!heap_rows_unmap(rows, decoder->number, freed->address,
			     freed->address + MIN_OF(bytes, UINT64_MAX - freed->address),
			     freed->kind, time_ns))
		heap_rows_write_free(rows, decoder->number, time_ns, 0, freed->address,
				     freed->kind);
}

static enum ring_fault add_free(struct alloc_decoder *decoder, const struct ring_record *record)
{
	const struct ring_free_block *freed = record->payload;

	if (freed->kind >= RING_FREE_N_KINDS)
		return RING_FAULT_PAYLOAD;
	if (freed->kind == RING_FREE_MUNMAP || freed->kind == RING_FREE_BRK) {
		remove_mapping(decoder, freed, record->time_ns);
		return RING_FAULT_NONE;
	}
	heap_rows_remove(decoder->rows, decoder->number, freed->address, freed->kind,
			 record->time_ns);
	return RING_FAULT_NONE;
}

static enum prof_free_kind free_kind_of(uint8_t realloc_kind)
{
	switch (realloc_kind) {
	case RING_ALLOC_REALLOCARRAY:
		return PROF_FREE_REALLOCARRAY;
	case RING_ALLOC_MREMAP:
		return PROF_FREE_MUNMAP;
	default:
		return PROF_FREE_REALLOC;
	}
}

/* Ends the block at `prior`, unless the realloc failed. */
static void end_prior(struct pending_realloc *pending, const struct ring_realloc *record)
{
	struct heap_rows *rows = pending->rows;
	struct live_blocks *live = &rows->live;
	bool is_moved = record->address != 0;
	struct live_block block = { 0 };
	const struct live_block *found;

	if (record->prior == 0 ||
	    (is_moved && live_blocks_remove(&rows->passed, record->prior, &block)))
		return;
	if (is_moved && record->kind == RING_ALLOC_MREMAP) {
		(void)live_blocks_unmap(live, record->prior, record->prior + 1, &pending->prior);
		block = pending->prior;
	} else if (is_moved) {
		if (live_blocks_hold(live, record->prior, &pending->prior))
			block = pending->prior;
		else
			(void)live_blocks_remove(&rows->parent.inherited, record->prior, &block);
		if (block.label)
			heap_forks_end(&rows->pending->forks, &rows->parent, &block);
	} else {
		found = record->kind == RING_ALLOC_MREMAP ? live_blocks_mapped(live, record->prior)
							  : live_blocks_find(live, record->prior);
		if (!found)
			found = live_blocks_find(&rows->parent.inherited, record->prior);
		block.label = found ? found->label : 0;
	}
	pending->prior_number = live_block_number(&block);
}

static enum ring_fault add_realloc(struct alloc_decoder *decoder, const struct ring_record *record)
{
	const struct ring_realloc *moved = record->payload;
	struct heap_thread *thread = heap_rows_thread(decoder->rows, decoder->number);
	struct pending_realloc pending = {
		.rows = decoder->rows,
		.time_ns = record->time_ns,
		.block = {
			.address = moved->address,
			.size = moved->size,
			.label = live_block_label(0, moved->kind, 0),
			.thread = decoder->number,
		},
	};

	if (moved->kind >= RING_ALLOC_N_KINDS || moved->is_freed > 1 ||
	    moved->flags & ~RING_ALLOC_STACK)
		return RING_FAULT_PAYLOAD;
	if (moved->address == 0 && moved->is_freed) {
		heap_rows_remove(decoder->rows, decoder->number, moved->prior,
				 free_kind_of(moved->kind), record->time_ns);
		return RING_FAULT_NONE;
	}
	if (decoder->rows->pending->is_paused) {
		if (moved->address && moved->prior)
			heap_rows_remove(decoder->rows, decoder->number, moved->prior,
					 free_kind_of(moved->kind), record->time_ns);
		heap_rows_pass(decoder->rows, &pending.block, record->time_ns);
		return RING_FAULT_NONE;
	}
	pending.block.calls = find_calls(decoder, moved->stack, moved->flags, record->time_ns);
	heap_forks_run(&decoder->rows->pending->forks, &decoder->rows->parent, record->time_ns);
	end_prior(&pending, moved);
	thread->n_blocks++;
	if (thread->n_pending >= HEAP_MAX_PENDING) {
		heap_rows_lose(decoder->rows, PROF_LOSS_RING_CORRUPT, record->time_ns);
		heap_rows_complete_at(&pending, record->time_ns);
		return RING_FAULT_NONE;
	}
	thread->n_pending++;
	pending.time_ns += MIN_OF(moved->duration_ns, UINT64_MAX - pending.time_ns);
	pending_reallocs_push(decoder->rows->pending, &pending);
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
	default:
		return add_calls(decoder, record);
	}
}
