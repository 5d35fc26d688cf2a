/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory-count - totals of all rows of a time range: calls, bytes, the peak, temporary blocks
 *
 * Each event is counted for its process and for a row of the view: the function that allocated the
 * block, its size, its lifetime, its thread, or the pair of threads that allocated and freed it.
 *
 * Invariants: (1) allocated - freed equals what is live at the end, if all events are counted
 *                 [test-memory: summary]
 *             (2) after a part of a mapping is unmapped, the rest counts neither as freed nor as
 *                 allocated anew
 *                 [test-memory: rests]
 *             (3) the peak of a function, thread or size is its value at the peak of the total
 *                 [test-memory: threads]
 */
#include "config.h"

#include "base/each.h"
#include "tools/profcapture/memory-peak.h"
#include "tools/profcapture/memory.h"

#include <string.h>

/* A mapping that was partly unmapped. The next allocation rows are its remaining parts, which were
 * not freed. */
struct split {
	uint64_t number, bytes; /* bytes: upper bound for the remaining parts */
	uint32_t heap, entity;  /* entity: the row that counts the unmapping */
};

struct count {
	struct memory *memory;
	struct memory_peak heap;   /* sum of the heaps that have not ended */
	struct memory_parts parts; /* the parts of `heap`, by row */
	struct number_map pairs;   /* allocator and freer → index + 1 */
	struct split split;
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

/* Class 0 is below 1 microsecond. The limit of each further class is ten times as high. */
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

/* ---- the rows that count an event ------------------------------------------------------------ */

uint32_t memory_entity_of(const struct memory *memory, const struct memory_block *block)
{
	switch (memory_query_of(memory)->key) {
	case MEMORY_BY_THREAD:
		return block->thread;
	case MEMORY_BY_SIZE:
		return memory_size_class(block->size);
	case MEMORY_BY_LIFETIME:
	case MEMORY_BY_PAIR:
		return MEMORY_NOBODY;
	default:
		return memory_node_at(&memory->tree, block->node)->site;
	}
}

/* Returns whether a block's row is known only when the block is released. */
static bool gets_row_at_release(const struct memory *memory)
{
	return memory_query_of(memory)->key == MEMORY_BY_LIFETIME ||
	       memory_query_of(memory)->key == MEMORY_BY_PAIR;
}

/* Returns the row to which a call is charged: in --threads, that of the thread; else that of the
 * allocated block, or MEMORY_NOBODY if the call is a free or the row is known only at the
 * release. */
static uint32_t caller(const struct memory *memory, const struct memory_event *event)
{
	const struct memory_block block = memory_event_block(event);

	if (event->is_free && memory_query_of(memory)->key != MEMORY_BY_THREAD)
		return MEMORY_NOBODY;
	return memory_entity_of(memory, &block);
}

/* Returns the row in which the release of a block is counted; MEMORY_NOBODY: none. */
static uint32_t releaser(struct count *count, const struct memory_event *event,
			 const struct memory_live *live)
{
	struct memory_pair pair = { live->block.thread, event->thread };
	uint32_t *known;

	switch (memory_query_of(count->memory)->key) {
	case MEMORY_BY_THREAD:
		return event->is_wanted ? event->thread : MEMORY_NOBODY;
	case MEMORY_BY_LIFETIME:
		return memory_lifetime_class(event->time - MIN_OF(live->more.since, event->time));
	case MEMORY_BY_PAIR:
		known = number_map_at(&count->pairs, (uint64_t)pair.allocator << 32 | pair.freer);
		if (*known == 0) {
			g_array_append_val(count->memory->pairs, pair);
			*known = count->memory->pairs->len;
		}
		return *known - 1;
	default:
		return memory_entity_of(count->memory, &live->block);
	}
}

/* The counts to which an event is added: those of its process, and of its row, if known. A later
 * look-up may move the array, and so invalidate the pointers. */
struct count_targets {
	struct memory_counts *process, *row;
	struct memory_counts *each[2]; /* `process` and `row`, if not NULL */
	unsigned n;
};

static struct count_targets targets_of(struct count *count, uint32_t heap, uint32_t entity)
{
	struct memory *memory = count->memory;
	uint32_t process = memory_heap_at(&memory->heaps, heap)->process;
	struct count_targets targets = { .process = memory_counts_of(memory->processes, process) };

	targets.each[targets.n++] = targets.process;
	if (entity != MEMORY_NOBODY)
		targets.each[targets.n++] = targets.row =
			memory_counts_of(memory->entities, entity);
	return targets;
}

/* ---- the peak -------------------------------------------------------------------------------- */

static void note_peak(struct count *count, int64_t time_ns)
{
	if (memory_peak_note(&count->heap, time_ns))
		memory_parts_note(&count->parts);
}

static void note_process_peak(struct memory_counts *process, int64_t time_ns)
{
	if (process->has_peak_time && process->live_bytes <= process->peak_bytes)
		return;
	process->peak_bytes = process->live_bytes;
	process->peak_ns = time_ns;
	process->has_peak_time = true;
}

/* Records the state at the start of the range as the first peak. */
static void begin(struct count *count, int64_t time_ns)
{
	GArray *processes = count->memory->processes;

	if (count->heap.has_begun)
		return;
	note_peak(count, time_ns);
	ARRAY_EACH(struct memory_counts, process, processes)
		if (process->is_there)
			note_process_peak(process, time_ns);
}

/* Adds or removes a live block. `ends`: the block's heap ends, so the block leaves count->heap, but
 * stays in live_*. */
static void change(struct count *count, const struct memory_live *live, double sign, bool ends)
{
	uint32_t index = memory_entity_of(count->memory, &live->block);
	const struct count_targets to = targets_of(count, live->heap, index);

	count->heap.bytes += sign * live->bytes;
	for (unsigned i = 0; i < to.n && !ends; i++) {
		to.each[i]->live_blocks += sign * live->blocks;
		to.each[i]->live_bytes += sign * live->bytes;
	}
	if (to.row)
		memory_parts_add(&count->parts, index, sign * live->bytes, sign * live->blocks,
				 true);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void loaded(const struct memory_live *live, void *data)
{
	change(data, live, 1, false);
}

static void ended(const struct memory_live *live, void *data)
{
	change(data, live, -1, true);
}

/* Returns the function that was called; MEMORY_CALLS: no call, or one of an unknown kind. */
static unsigned call_of(const struct memory_event *event)
{
	if (!event->is_free) {
		/* After munmap, the remaining part of a mapping has an allocation row without a
		 * call. */
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

	if (call < MEMORY_CALLS)
		to->calls[call] += weight;
	if (event->block)
		return;
	if (!event->is_free)
		to->failed += weight;
	else if (event->has_address)
		to->foreign += weight;
}

static void called(const struct memory_event *event, void *data)
{
	const struct memory_block block = memory_event_block(event);
	struct count *count = data;
	const struct memory_heap *heap = memory_heap_at(&count->memory->heaps, event->heap);
	struct count_targets to;

	if (!event->is_counted)
		return;
	begin(count, event->time_ns);
	/* released() counts this free, with the weight of its block, which is not known here. */
	if (event->is_free && event->block && heap->sampled_bytes > 0)
		return;
	to = targets_of(count, event->heap, caller(count->memory, event));
	for (unsigned i = 0; i < to.n; i++)
		add_call(to.each[i], event, event->is_free ? 1 : memory_weight(heap, &block));
}

static void add_allocation(struct memory_counts *to, const struct memory_live *live)
{
	to->allocations += live->blocks;
	to->allocated_bytes += live->bytes;
}

static void add_sum(struct count *count, uint32_t node, double bytes, double blocks)
{
	memory_sum_add(memory_sum_of(count->memory->sums, node), bytes, blocks);
}

static void count_allocation(struct count *count, const struct memory_event *event,
			     const struct memory_live *live)
{
	struct memory *memory = count->memory;
	const struct count_targets to =
		targets_of(count, event->heap, memory_entity_of(memory, &live->block));

	for (unsigned i = 0; i < to.n; i++)
		add_allocation(to.each[i], live);
	if (to.row)
		to.row->longest_chain = MAX_OF(to.row->longest_chain, live->more.chain);
	if (memory_query_of(memory)->filter == MEMORY_ALLOCATED)
		add_sum(count, live->block.node, live->bytes, live->blocks);
	if (memory->watch)
		memory->watch(event->time_ns, &live->block, live->blocks, memory->watch_data);
}

static void count_rest(struct count *count, const struct memory_event *event, uint64_t size)
{
	struct split *split = &count->split;
	struct count_targets to;

	if (event->heap != split->heap || event->prior != split->number || size > split->bytes)
		return;
	split->bytes -= size;
	to = targets_of(count, event->heap, split->entity);
	for (unsigned i = 0; i < to.n; i++)
		to.each[i]->freed_bytes -= (double)size;
	if (to.row && gets_row_at_release(count->memory))
		to.row->allocated_bytes -= (double)size;
}

static void allocated(const struct memory_event *event, const struct memory_live *live, void *data)
{
	struct count *count = data;
	struct memory_counts *process;

	change(count, live, 1, false);
	if (!event->is_counted)
		return;
	if (memory_event_is_rest(event))
		count_rest(count, event, live->block.size);
	else
		count_allocation(count, event, live);
	process = targets_of(count, event->heap, MEMORY_NOBODY).process;
	note_peak(count, event->time_ns);
	if (process->live_bytes > process->peak_bytes)
		note_process_peak(process, event->time_ns);
}

/* Counts a realloc. In a sampled recording, its two blocks were sampled independently, so their
 * weights are multiplied. */
static void count_realloc(struct count *count, const struct memory_event *event,
			  const struct memory_live *live)
{
	struct memory *memory = count->memory;
	const struct memory_block made = memory_event_block(event);
	uint64_t size = live->block.size;
	double weight = live->blocks *
			memory_weight(memory_heap_at(&memory->heaps, event->heap), &made);
	bool has_row = memory_query_of(memory)->filter == MEMORY_MOVED && event->is_wanted;
	const struct count_targets to =
		targets_of(count, event->heap, has_row ? caller(memory, event) : MEMORY_NOBODY);

	for (unsigned i = 0; i < to.n; i++) {
		to.each[i]->reallocs += weight;
		if (event->size > size)
			to.each[i]->grown_bytes += weight * (double)(event->size - size);
		to.each[i]->copied_bytes += weight * (double)MIN_OF(event->size, size);
	}
	if (has_row)
		add_sum(count, event->node, weight * (double)event->size, weight);
}

static void released(const struct memory_event *event, const struct memory_live *live,
		     enum memory_release how, void *data)
{
	struct count *count = data;
	struct memory *memory = count->memory;
	bool is_sampled = memory_heap_at(&memory->heaps, event->heap)->sampled_bytes > 0;
	bool temporary = how == MEMORY_FREED && memory_knows_temporary(memory);
	enum memory_filter filter = memory_query_of(memory)->filter;
	uint64_t since = live->more.since;
	struct count_targets to;
	uint32_t index;

	change(count, live, -1, false);
	if (!event->is_counted)
		return;
	if (memory->within_ns != UINT64_MAX)
		temporary &= event->time >= since && event->time - since <= memory->within_ns;
	else
		temporary &= event->thread == live->block.thread &&
			     event->others <= memory->threshold;
	index = releaser(count, event, live);
	to = targets_of(count, event->heap, index);
	for (unsigned i = 0; i < to.n; i++) {
		to.each[i]->freed_bytes += live->bytes;
		to.each[i]->temporary += temporary ? live->blocks : 0;
		/* A realloc() is sampled independently of its block, so the block's weight is not
		 * that of the call. */
		if (event->is_free && is_sampled && event->kind != PROF_FREE_REALLOC &&
		    event->kind != PROF_FREE_REALLOCARRAY)
			add_call(to.each[i], event, live->blocks);
	}
	if (to.row && gets_row_at_release(memory))
		add_allocation(to.row, live);
	/* For rows by thread, called() has already counted the call. */
	if (to.row && event->is_free && !is_sampled &&
	    memory_query_of(memory)->key != MEMORY_BY_THREAD)
		add_call(to.row, event, live->blocks);
	if ((filter == MEMORY_FREED_AT_ONCE && temporary) ||
	    (filter == MEMORY_FREED_ELSEWHERE && event->thread != live->block.thread))
		add_sum(count, live->block.node, live->bytes, live->blocks);
	if (how == MEMORY_REALLOCATED && memory_event_moves(event))
		count_realloc(count, event, live);
	else if (how == MEMORY_REALLOCATED && memory_event_is_rest(event))
		count->split = (struct split){ event->prior, live->block.size, event->heap, index };
}

bool memory_count(struct memory *memory, GError **error)
{
	static const struct memory_ops ops = { loaded, called, allocated, released, ended };
	const size_t n_sums = offsetof(struct memory_counts, peak_bytes) / sizeof(double);
	struct count count = { .memory = memory };
	struct memory_replay replay = { .heaps = &memory->heaps,
					.ops = &ops,
					.data = &count,
					.from_ns = memory->reader.from_ns,
					.to_ns = memory->reader.to_ns,
					.wants_more = true,
					.wants_nodes = memory_by_function(memory) ||
						       memory->is_tree };
	bool ok;

	number_map_init(&count.pairs);
	memory_parts_init(&count.parts);
	ok = memory_replay_run(&replay, error);
	memory->unknown = replay.unknown;
	begin(&count, MAX_OF(memory->reader.from_ns, INT64_C(0)));
	memory->all.peak_bytes = count.heap.most_bytes;
	memory->all.peak_ns = count.heap.most_ns;
	memory->all.has_peak_time = count.heap.most_bytes > 0;
	for (uint32_t i = 0; i < count.parts.most->len && i < memory->entities->len; i++)
		memory_counts_at(memory->entities, i)->peak_bytes =
			memory_sum_at(count.parts.most, i).bytes;
	memory_replay_done(&replay);
	number_map_done(&count.pairs);
	memory_parts_done(&count.parts);
	if (!ok)
		return false;
	for (guint p = 0; p < memory->processes->len; p++) {
		const double *process = (const double *)(const void *)&g_array_index(
			memory->processes, struct memory_counts, p);

		for (size_t i = 0; i < n_sums; i++)
			((double *)(void *)&memory->all)[i] += process[i];
	}
	memory->has_all = memory->has_processes = MEMORY_HAS_CALLS | MEMORY_HAS_LIVE |
						  MEMORY_HAS_PEAK | MEMORY_HAS_LOST;
	if (memory_knows_temporary(memory)) {
		memory->has_all |= MEMORY_HAS_TEMPORARY;
		memory->has_processes |= MEMORY_HAS_TEMPORARY;
	}
	return true;
}
