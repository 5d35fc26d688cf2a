/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory-count - totals of all rows of a time range: calls, bytes, the peak, temporary blocks
 *
 * Each row counts for its process and for a row of the view: the function that allocated the block,
 * its size, its lifetime, its thread, or the pair of threads that allocated and freed it.
 *
 * Invariants: (1) allocated - freed is what lives at the end, where all is counted
 *                 [test-memory: summary]
 *             (2) the rest of a partly unmapped mapping is neither freed with it nor allocated anew
 *                 [test-memory: rests]
 *             (3) the peak of a function, thread or size is its value at the peak of all
 *                 [test-memory: threads]
 */
#include "config.h"

#include "tools/profcapture/memory.h"

#include <string.h>

/* A mapping that was partly unmapped. Its rest follows as new blocks, which are not freed with
 * it. */
struct split {
	uint64_t number, bytes; /* bytes: upper bound for the rest */
	uint32_t heap, entity;  /* entity: the row that the unmapping counted for */
};

struct count {
	struct memory *memory;
	struct memory_replay replay;
	double now_bytes;        /* of all heaps that have not ended */
	GArray *changed;         /* uint32_t: entities that changed since the peak */
	struct number_map pairs; /* allocator and freer → index + 1 */
	struct split split;
	bool has_begun;
};

/* ---- classes --------------------------------------------------------------------------------- */

uint32_t memory_size_class(uint64_t size)
{
	return size == 0 ? 0 : 64 - (uint32_t)__builtin_clzll(size);
}

void memory_size_range(uint32_t class, uint64_t *ret_from, uint64_t *ret_to)
{
	*ret_from = class == 0 ? 0 : UINT64_C(1) << (class - 1);
	*ret_to = class == 0 ? 0 : *ret_from - 1 + *ret_from;
}

/* Class 0 is below 1 microsecond. Each next class reaches ten times as far. */
uint32_t memory_lifetime_class(uint64_t ns)
{
	uint32_t class = 0;

	for (uint64_t most = 999; ns > most && class < MEMORY_NEVER_FREED - 1; class ++)
		most = most > UINT64_MAX / 10 - 1 ? UINT64_MAX : most * 10 + 9;
	return class;
}

void memory_lifetime_range(uint32_t class, uint64_t *ret_from, uint64_t *ret_to)
{
	uint64_t from = 0, to = 999;

	for (; class > 0; class --) {
		from = to + 1;
		to = to > UINT64_MAX / 10 - 1 ? UINT64_MAX : to * 10 + 9;
	}
	*ret_from = from;
	*ret_to = to;
}

static uint32_t pair_of(struct count *count, uint32_t allocator, uint32_t freer)
{
	struct memory_pair pair = { allocator, freer };
	uint32_t *known = number_map_at(&count->pairs, (uint64_t)allocator << 32 | freer);

	if (*known == 0) {
		g_array_append_val(count->memory->pairs, pair);
		*known = count->memory->pairs->len;
	}
	return *known - 1;
}

/* ---- the row that an event counts for -------------------------------------------------------- */

static const struct memory_heap *heap_at(const struct count *count, uint32_t heap)
{
	return memory_heap_at(&count->memory->heaps, heap);
}

static struct memory_counts *process_of(struct count *count, uint32_t heap)
{
	return memory_counts_of(count->memory->processes, heap_at(count, heap)->process);
}

#define NOBODY UINT32_MAX

static uint32_t owner(const struct memory *memory, const struct memory_block *block)
{
	switch (memory_query_of(memory)->key) {
	case MEMORY_BY_THREAD:
		return block->thread;
	case MEMORY_BY_SIZE:
		return memory_size_class(block->size);
	case MEMORY_BY_LIFETIME:
	case MEMORY_BY_PAIR:
		return NOBODY;
	default:
		return memory_node_at(&memory->tree, block->node)->site;
	}
}

/* Returns whether rows are known only when their blocks are released. */
static bool gets_row_at_release(const struct memory *memory)
{
	return memory_query_of(memory)->key == MEMORY_BY_LIFETIME ||
	       memory_query_of(memory)->key == MEMORY_BY_PAIR;
}

static uint32_t caller(const struct memory *memory, const struct memory_event *event)
{
	const struct memory_block block = memory_event_block(event);

	if (event->is_free && memory_query_of(memory)->key != MEMORY_BY_THREAD)
		return NOBODY;
	return owner(memory, &block);
}

static struct memory_counts *entity(struct count *count, uint32_t index)
{
	return index == NOBODY ? NULL : memory_counts_of(count->memory->entities, index);
}

/* ---- the peak -------------------------------------------------------------------------------- */

static void note_peak(struct count *count, int64_t time_ns)
{
	struct memory *memory = count->memory;

	memory->all.peak_bytes = count->now_bytes;
	memory->all.peak_ns = time_ns;
	memory->all.has_peak_time = true;
	for (guint i = 0; i < count->changed->len; i++) {
		struct memory_counts *of =
			&g_array_index(memory->entities, struct memory_counts,
				       g_array_index(count->changed, uint32_t, i));

		of->peak_bytes = of->now_bytes;
		of->is_changed = false;
	}
	g_array_set_size(count->changed, 0);
}

static void note_process_peak(struct memory_counts *process, int64_t time_ns)
{
	if (process->has_peak_time && process->live_bytes <= process->peak_bytes)
		return;
	process->peak_bytes = process->live_bytes;
	process->peak_ns = time_ns;
	process->has_peak_time = true;
}

static int64_t time_of(const struct count *count, const struct memory_event *event)
{
	return capture_time(count->memory->reader.capture, event->segment, event->time);
}

/* The first peak is the state at the start of the range. */
static void begin(struct count *count, int64_t time_ns)
{
	GArray *processes = count->memory->processes;

	if (count->has_begun)
		return;
	count->has_begun = true;
	note_peak(count, time_ns);
	for (guint i = 0; i < processes->len; i++) {
		struct memory_counts *process = &g_array_index(processes, struct memory_counts, i);

		if (process->is_there)
			note_process_peak(process, time_ns);
	}
}

static void change(struct count *count, uint32_t heap, const struct memory_block *block,
		   double blocks)
{
	struct memory_counts *process = process_of(count, heap);
	uint32_t index = owner(count->memory, block);
	struct memory_counts *of = entity(count, index);
	double bytes = blocks * (double)block->size;

	process->live_blocks += blocks;
	process->live_bytes += bytes;
	count->now_bytes += bytes;
	if (!of)
		return;
	of->live_blocks += blocks;
	of->live_bytes += bytes;
	of->now_bytes += bytes;
	if (!of->is_changed)
		g_array_append_val(count->changed, index);
	of->is_changed = true;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void loaded(const struct memory_live *live, void *data)
{
	struct count *count = data;

	change(count, live->heap, &live->block,
	       memory_weight(heap_at(count, live->heap), &live->block));
}

/* The entry point that was called, or MEMORY_CALLS for none. */
static unsigned call_of(const struct memory_event *event)
{
	if (!event->is_free) {
		/* The rest of a mapping after munmap has an allocation row, too. */
		if (memory_event_is_rest(event))
			return MEMORY_CALLS;
		return event->kind < PROF_ALLOC_KINDS ? event->kind : MEMORY_CALLS;
	}
	switch (event->kind) {
	case PROF_FREE_REALLOC:
		return PROF_ALLOC_REALLOC;
	case PROF_FREE_REALLOCARRAY:
		return PROF_ALLOC_REALLOCARRAY;
	case PROF_FREE_BRK:
		return PROF_ALLOC_BRK;
	default:
		if (event->block == 0 && !event->has_address)
			return MEMORY_CALL_FREE_NULL;
		return event->kind < PROF_FREE_KINDS ? MEMORY_CALL_FREE + event->kind
						     : MEMORY_CALLS;
	}
}

static void add_call(struct memory_counts *to, const struct memory_event *event, double weight)
{
	unsigned call = call_of(event);

	if (!to)
		return;
	if (call < MEMORY_CALLS)
		to->calls[call] += weight;
	if (!event->is_free && event->block == 0)
		to->failed += weight;
	if (event->is_free && event->block == 0 && event->has_address)
		to->foreign += weight;
}

static void called(const struct memory_event *event, void *data)
{
	const struct memory_block block = memory_event_block(event);
	struct count *count = data;
	const struct memory_heap *heap = heap_at(count, event->heap);
	double weight;

	if (!event->is_counted)
		return;
	begin(count, time_of(count, event));
	weight = event->is_free ? 1 : memory_weight(heap, &block);
	/* A free weighs as much as its block, which is not known yet. */
	if (event->is_free && event->block && heap->sampled_bytes > 0)
		return;
	add_call(process_of(count, event->heap), event, weight);
	add_call(entity(count, caller(count->memory, event)), event, weight);
}

static void add_allocation(struct memory_counts *to, double weight, uint64_t size)
{
	if (!to)
		return;
	to->allocations += weight;
	to->allocated_bytes += weight * (double)size;
}

static void add_sum(struct count *count, uint32_t node, double bytes, double blocks)
{
	struct memory_sum *sum = memory_sum_of(count->memory->sums, node);

	sum->bytes += bytes;
	sum->blocks += blocks;
}

static void count_allocation(struct count *count, const struct memory_event *event,
			     const struct memory_block *block, const struct memory_block_more *more)
{
	struct memory *memory = count->memory;
	double weight = memory_weight(heap_at(count, event->heap), block);
	struct memory_counts *of = entity(count, owner(memory, block));

	add_allocation(process_of(count, event->heap), weight, block->size);
	add_allocation(of, weight, block->size);
	if (of)
		of->longest_chain = MAX_OF(of->longest_chain, more->chain);
	if (memory_query_of(memory)->filter == MEMORY_ALLOCATED)
		add_sum(count, block->node, weight * (double)block->size, weight);
	if (memory->watch)
		memory->watch(time_of(count, event), block, weight, memory->watch_data);
}

static void count_rest(struct count *count, const struct memory_event *event,
		       const struct memory_block *block)
{
	struct split *split = &count->split;
	struct memory_counts *of;

	if (event->heap != split->heap || event->prior != split->number ||
	    block->size > split->bytes)
		return;
	split->bytes -= block->size;
	process_of(count, event->heap)->freed_bytes -= (double)block->size;
	of = entity(count, split->entity);
	if (!of)
		return;
	of->freed_bytes -= (double)block->size;
	if (gets_row_at_release(count->memory))
		of->allocated_bytes -= (double)block->size;
}

static void allocated(const struct memory_event *event, const struct memory_block *block,
		      const struct memory_block_more *more, void *data)
{
	struct count *count = data;
	struct memory *memory = count->memory;
	double weight = memory_weight(heap_at(count, event->heap), block);
	struct memory_counts *process;

	change(count, event->heap, block, weight);
	if (!event->is_counted)
		return;
	if (memory_event_is_rest(event))
		count_rest(count, event, block);
	else
		count_allocation(count, event, block, more);
	process = process_of(count, event->heap);
	if (count->now_bytes > memory->all.peak_bytes)
		note_peak(count, time_of(count, event));
	if (process->live_bytes > process->peak_bytes)
		note_process_peak(process, time_of(count, event));
}

static bool is_temporary(const struct memory *memory, const struct memory_event *event,
			 const struct memory_block *block, const struct memory_block_more *more)
{
	if (!memory_knows_temporary(memory))
		return false;
	if (memory->within_ns != UINT64_MAX)
		return event->time >= more->since && event->time - more->since <= memory->within_ns;
	return event->thread == block->thread && event->others <= memory->threshold;
}

/* The entity that a released block counts for. */
static uint32_t releaser(struct count *count, const struct memory_event *event,
			 const struct memory_block *block, const struct memory_block_more *more)
{
	switch (memory_query_of(count->memory)->key) {
	case MEMORY_BY_THREAD:
		return event->is_wanted ? event->thread : NOBODY;
	case MEMORY_BY_LIFETIME:
		return memory_lifetime_class(event->time - MIN_OF(more->since, event->time));
	case MEMORY_BY_PAIR:
		return pair_of(count, block->thread, event->thread);
	default:
		return owner(count->memory, block);
	}
}

static void add_release(struct count *count, struct memory_counts *to,
			const struct memory_event *event, const struct memory_block *block,
			bool temporary)
{
	const struct memory_heap *heap = heap_at(count, event->heap);
	double weight = memory_weight(heap, block);

	to->freed_bytes += weight * (double)block->size;
	to->freed_blocks += weight;
	if (temporary)
		to->temporary += weight;
	/* A call to realloc() is sampled independently of the block that it ends. */
	if (event->is_free && heap->sampled_bytes > 0 && event->kind != PROF_FREE_REALLOC &&
	    event->kind != PROF_FREE_REALLOCARRAY)
		add_call(to, event, weight);
}

static void add_realloc(struct memory_counts *to, const struct memory_event *event, uint64_t size,
			double weight)
{
	to->reallocs += weight;
	if (event->size > size)
		to->grown_bytes += weight * (double)(event->size - size);
	to->copied_bytes += weight * (double)MIN_OF(event->size, size);
}

static void add_whole(struct memory_counts *to, const struct memory_event *event,
		      const struct memory_block *block, const struct count *count)
{
	const struct memory_heap *heap = heap_at(count, event->heap);
	double weight = memory_weight(heap, block);

	add_allocation(to, weight, block->size);
	if (event->is_free && heap->sampled_bytes <= 0)
		add_call(to, event, weight);
}

/* In a sampled recording, both blocks were sampled independently. */
static void count_realloc(struct count *count, const struct memory_event *event,
			  const struct memory_block *block)
{
	struct memory *memory = count->memory;
	const struct memory_heap *heap = heap_at(count, event->heap);
	const struct memory_block made = memory_event_block(event);
	double weight = memory_weight(heap, block) * memory_weight(heap, &made);

	add_realloc(process_of(count, event->heap), event, block->size, weight);
	if (memory_query_of(memory)->filter != MEMORY_MOVED || !event->is_wanted)
		return;
	add_realloc(memory_counts_of(memory->entities, caller(memory, event)), event, block->size,
		    weight);
	add_sum(count, event->node, weight * (double)event->size, weight);
}

static void count_release(struct count *count, const struct memory_event *event,
			  const struct memory_block *block, const struct memory_block_more *more,
			  enum memory_release how)
{
	struct memory *memory = count->memory;
	const struct memory_heap *heap = heap_at(count, event->heap);
	double weight = memory_weight(heap, block);
	bool temporary = how == MEMORY_FREED && is_temporary(memory, event, block, more);
	struct memory_counts *process = process_of(count, event->heap);
	uint32_t index = releaser(count, event, block, more);
	struct memory_counts *of = entity(count, index);
	enum memory_filter filter = memory_query_of(memory)->filter;
	bool by_block = memory_query_of(memory)->key != MEMORY_BY_THREAD &&
			heap->sampled_bytes <= 0;

	add_release(count, process, event, block, temporary);
	if (of)
		add_release(count, of, event, block, temporary);
	if (gets_row_at_release(memory))
		add_whole(of, event, block, count);
	else if (event->is_free && by_block)
		add_call(of, event, weight);
	if ((filter == MEMORY_FREED_AT_ONCE && temporary) ||
	    (filter == MEMORY_FREED_ELSEWHERE && event->thread != block->thread))
		add_sum(count, block->node, weight * (double)block->size, weight);
	if (how == MEMORY_REALLOCATED && memory_event_moves(event))
		count_realloc(count, event, block);
	else if (how == MEMORY_REALLOCATED && memory_event_is_rest(event))
		count->split = (struct split){ event->prior, block->size, event->heap, index };
}

static void released(const struct memory_event *event, const struct memory_block *block,
		     const struct memory_block_more *more, enum memory_release how, void *data)
{
	struct count *count = data;

	change(count, event->heap, block, -memory_weight(heap_at(count, event->heap), block));
	if (event->is_counted)
		count_release(count, event, block, more, how);
}

struct end {
	struct count *count;
	const struct memory_heap *heap;
};

static void end_block(const struct memory_block *block, const struct memory_block_more *more,
		      void *data)
{
	const struct end *end = data;
	struct count *count = end->count;
	uint32_t index = owner(count->memory, block);
	struct memory_counts *of = entity(count, index);
	double bytes = memory_weight(end->heap, block) * (double)block->size;

	(void)more;
	count->now_bytes -= bytes;
	if (!of)
		return;
	of->now_bytes -= bytes;
	if (!of->is_changed)
		g_array_append_val(count->changed, index);
	of->is_changed = true;
}

/* Live counts keep the blocks of an ended heap, but now_bytes does not. */
static void ended(uint32_t heap, void *data)
{
	struct count *count = data;
	struct end end = { count, heap_at(count, heap) };

	memory_blocks_each(memory_replay_blocks(&count->replay, heap), end_block, &end);
}

/* ---- run ------------------------------------------------------------------------------------- */

static bool wants_nodes(const struct memory *memory)
{
	return memory_by_function(memory) || memory->is_tree;
}

static bool is_wanted(uint32_t heap, void *data)
{
	const struct count *count = data;

	return memory_wants_heap(count->memory, heap);
}

bool memory_wants_heap(const struct memory *memory, uint32_t heap)
{
	uint32_t process = memory_heap_at(&memory->heaps, heap)->process;
	const GArray *pids = memory->reader.pids;

	for (guint i = 0; pids && i < pids->len; i++)
		if (process > NAMES_LOST &&
		    names_process_at(memory->reader.capture->names, process)->pid ==
			    g_array_index(pids, uint32_t, i))
			return true;
	return !pids;
}

static void add_up(struct memory *memory)
{
	struct memory_counts *all = &memory->all;

	for (guint p = 0; p < memory->processes->len; p++) {
		const struct memory_counts *process =
			&g_array_index(memory->processes, struct memory_counts, p);

		for (unsigned i = 0; i < MEMORY_CALLS; i++)
			all->calls[i] += process->calls[i];
		all->failed += process->failed;
		all->foreign += process->foreign;
		all->allocations += process->allocations;
		all->allocated_bytes += process->allocated_bytes;
		all->freed_bytes += process->freed_bytes;
		all->freed_blocks += process->freed_blocks;
		all->temporary += process->temporary;
		all->live_bytes += process->live_bytes;
		all->live_blocks += process->live_blocks;
		all->reallocs += process->reallocs;
		all->grown_bytes += process->grown_bytes;
		all->copied_bytes += process->copied_bytes;
	}
}

bool memory_count(struct memory *memory, GError **error)
{
	static const struct memory_ops ops = { loaded, called, allocated, released, ended };
	struct count count = { .memory = memory };
	bool ok;

	count.replay = (struct memory_replay){
		.heaps = &memory->heaps,
		.ops = &ops,
		.data = &count,
		.from_ns = memory->reader.from_ns,
		.to_ns = memory->reader.to_ns,
		.wants_more = true,
		.wants_nodes = wants_nodes(memory),
		.wants_heap = is_wanted,
	};
	number_map_init(&count.pairs);
	count.changed = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	ok = memory_replay_run(&count.replay, error);
	memory->unknown = count.replay.unknown;
	begin(&count, MAX_OF(memory->reader.from_ns, INT64_C(0)));
	memory_replay_done(&count.replay);
	number_map_done(&count.pairs);
	g_array_unref(count.changed);
	if (!ok)
		return false;
	add_up(memory);
	memory->has_all = memory->has_processes = MEMORY_HAS_CALLS | MEMORY_HAS_LIVE |
						  MEMORY_HAS_PEAK | MEMORY_HAS_LOST;
	if (memory_knows_temporary(memory)) {
		memory->has_all |= MEMORY_HAS_TEMPORARY;
		memory->has_processes |= MEMORY_HAS_TEMPORARY;
	}
	return true;
}
