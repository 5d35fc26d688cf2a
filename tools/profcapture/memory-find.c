/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory-find - blocks live at a time, at the peak, or at the end
 *
 * Marks of heaps say where to look. For leaks, only the blocks of the last mark are read. For a
 * time, only the rows since the mark before it. For the peak, the stretches between marks that may
 * contain it are searched, the likeliest first, until no other stretch can have more, or as much at
 * an earlier time. With many processes, most stretches may qualify. Once the search has cost as
 * much as the whole file, the whole file is read instead.
 *
 * Invariants: (1) a stretch that is skipped because of a mark cannot exceed the peak that was found
 *                 [test-memory: peak of two]
 *             (2) the sum of all nodes is the peak  [test-memory: peak]
 *             (3) of several equal peaks, the first one is reported
 *                 [test-memory: equal peaks]
 *             (4) the peak costs by the file, whatever its marks are  [test-memory: many processes]
 */
#include "config.h"

#include "tools/profcapture/memory.h"

#include <math.h>
#include <string.h>

/* ---- ledger: live blocks by node and by process, now and at the peak ------------------------- */

struct account {
	GArray *now, *most; /* struct memory_sum by index: now, and at the peak */
	GArray *changed;    /* uint32_t: indices that changed since `most` */
	GByteArray *flags;  /* by index: whether it is in `changed` */
};

struct ledger {
	struct memory *memory;
	struct memory_replay replay;
	struct account nodes, processes;
	double bytes, most;
	int64_t most_ns;
	bool wants_most, has_begun, is_best;
};

static void account_init(struct account *account)
{
	account->now = g_array_new(FALSE, TRUE, sizeof(struct memory_sum));
	account->most = g_array_new(FALSE, TRUE, sizeof(struct memory_sum));
	account->changed = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	account->flags = g_byte_array_new();
}

static void account_done(struct account *account)
{
	g_array_unref(account->now);
	g_array_unref(account->most);
	g_array_unref(account->changed);
	g_byte_array_unref(account->flags);
}

static void account_add(struct account *account, uint32_t index, double bytes, double blocks,
			bool wants_most)
{
	struct memory_sum *sum = memory_sum_of(account->now, index);
	guint before = account->flags->len;

	sum->bytes += bytes;
	sum->blocks += blocks;
	if (!wants_most)
		return;
	if (index >= before) {
		g_byte_array_set_size(account->flags, index * 2 + 64);
		memset(account->flags->data + before, 0, account->flags->len - before);
	}
	if (!account->flags->data[index])
		g_array_append_val(account->changed, index);
	account->flags->data[index] = 1;
}

static void account_note(struct account *account)
{
	if (account->most->len < account->now->len)
		g_array_set_size(account->most, account->now->len);
	for (guint i = 0; i < account->changed->len; i++) {
		uint32_t index = g_array_index(account->changed, uint32_t, i);

		g_array_index(account->most, struct memory_sum, index) =
			memory_sum_at(account->now, index);
		account->flags->data[index] = 0;
	}
	g_array_set_size(account->changed, 0);
}

static void ledger_init(struct ledger *ledger, struct memory *memory, bool wants_most)
{
	*ledger = (struct ledger){ .memory = memory, .wants_most = wants_most };
	account_init(&ledger->nodes);
	account_init(&ledger->processes);
}

static void ledger_done(struct ledger *ledger)
{
	account_done(&ledger->nodes);
	account_done(&ledger->processes);
}

static void ledger_add(struct ledger *ledger, uint32_t heap, const struct memory_block *block,
		       double sign)
{
	const struct memory_heap *of = memory_heap_at(&ledger->memory->heaps, heap);
	double blocks = sign * memory_weight(of, block);
	double bytes = blocks * (double)block->size;

	ledger->bytes += bytes;
	account_add(&ledger->nodes, block->node, bytes, blocks, ledger->wants_most);
	account_add(&ledger->processes, of->process, bytes, blocks, ledger->wants_most);
}

static void ledger_note(struct ledger *ledger, int64_t time_ns)
{
	ledger->most = ledger->bytes;
	ledger->most_ns = time_ns;
	account_note(&ledger->nodes);
	account_note(&ledger->processes);
}

static void loaded(const struct memory_live *live, void *data)
{
	ledger_add(data, live->heap, &live->block, 1);
}

static void allocated(const struct memory_event *event, const struct memory_block *block,
		      const struct memory_block_more *more, void *data)
{
	struct ledger *ledger = data;

	(void)more;
	ledger_add(ledger, event->heap, block, 1);
	if (ledger->wants_most && event->is_counted &&
	    (!ledger->has_begun || ledger->bytes > ledger->most)) {
		ledger->has_begun = true;
		ledger_note(ledger, capture_time(ledger->memory->reader.capture, event->segment,
						 event->time));
	}
}

/* If the stretch begins with a free, the state before that free counts. */
static void released(const struct memory_event *event, const struct memory_block *block,
		     const struct memory_block_more *more, enum memory_release how, void *data)
{
	struct ledger *ledger = data;

	(void)more;
	(void)how;
	if (ledger->wants_most && event->is_counted && !ledger->has_begun) {
		ledger->has_begun = true;
		ledger_note(ledger, capture_time(ledger->memory->reader.capture, event->segment,
						 event->time));
	}
	ledger_add(ledger, event->heap, block, -1);
}

struct end {
	struct ledger *ledger;
	uint32_t heap;
};

static void end_block(const struct memory_block *block, const struct memory_block_more *more,
		      void *data)
{
	struct end *end = data;

	(void)more;
	ledger_add(end->ledger, end->heap, block, -1);
}

static void ended(uint32_t heap, void *data)
{
	struct end end = { data, heap };

	memory_blocks_each(memory_replay_blocks(&end.ledger->replay, heap), end_block, &end);
}

static bool wants_heap(uint32_t heap, void *data)
{
	const struct ledger *ledger = data;

	return memory_wants_heap(ledger->memory, heap);
}

static bool ledger_run(struct ledger *ledger, uint32_t segment, int64_t from_ns, int64_t to_ns,
		       GError **error)
{
	static const struct memory_ops ops = { loaded, NULL, allocated, released, ended };
	bool ok;

	ledger->replay = (struct memory_replay){
		.heaps = &ledger->memory->heaps,
		.ops = &ops,
		.data = ledger,
		.from_ns = from_ns,
		.to_ns = to_ns,
		.segment = segment,
		.wants_nodes = true,
		.wants_heap = wants_heap,
	};
	ok = memory_replay_run(&ledger->replay, error);
	memory_replay_done(&ledger->replay);
	if (ok && ledger->wants_most && (!ledger->has_begun || ledger->bytes > ledger->most))
		ledger_note(ledger, MAX_OF(from_ns, INT64_C(0)));
	return ok;
}

/* ---- at a time ------------------------------------------------------------------------------- */

static void set_live(struct memory *memory, const GArray *processes)
{
	for (uint32_t i = 0; i < processes->len; i++) {
		struct memory_sum sum = memory_sum_at(processes, i);
		struct memory_counts *to;

		if (sum.blocks == 0 && sum.bytes == 0)
			continue;
		to = memory_counts_of(memory->processes, i);
		to->live_bytes = sum.bytes;
		to->live_blocks = sum.blocks;
		memory->all.live_bytes += sum.bytes;
		memory->all.live_blocks += sum.blocks;
	}
}

static bool find_at(struct memory *memory, int64_t time_ns, GArray **ret_sums, GError **error)
{
	struct ledger ledger;
	bool ok;

	ledger_init(&ledger, memory, false);
	ok = ledger_run(&ledger, 0, time_ns, time_ns, error);
	if (ok) {
		memory->all.live_bytes = memory->all.live_blocks = 0;
		for (guint i = 0; i < memory->processes->len; i++) {
			struct memory_counts *process =
				&g_array_index(memory->processes, struct memory_counts, i);

			process->live_bytes = process->live_blocks = 0;
		}
		set_live(memory, ledger.processes.now);
		*ret_sums = g_array_ref(ledger.nodes.now);
	}
	ledger_done(&ledger);
	memory->has_all = memory->has_processes = MEMORY_HAS_LIVE | MEMORY_HAS_LOST;
	return ok;
}

/* ---- the peak -------------------------------------------------------------------------------- */

/* The stretch between two times of marks, with an upper bound of what all heaps together had in
 * it. */
struct stretch {
	uint32_t segment;
	uint64_t from, to;
	double most;
};

static const struct stretch everything = { .to = UINT64_MAX };

/* Limits for searching stretches one by one. */
#define MOST_STRETCHES 10000
#define MOST_WORK 20000000

static gint compare_stretches(gconstpointer left, gconstpointer right)
{
	const struct stretch *a = left, *b = right;

	if (a->most != b->most)
		return a->most > b->most ? -1 : 1;
	if (a->segment != b->segment)
		return a->segment < b->segment ? -1 : 1;
	return a->from < b->from ? -1 : a->from > b->from;
}

/* Sorts by segment and time. The final order is compare_stretches(). */
static gint compare_times(gconstpointer left, gconstpointer right)
{
	const struct stretch *a = left, *b = right;

	if (a->segment != b->segment)
		return a->segment < b->segment ? -1 : 1;
	return a->to < b->to ? -1 : a->to > b->to;
}

static GArray *list_stretches(const struct memory *memory)
{
	GArray *all = g_array_new(FALSE, FALSE, sizeof(struct stretch));
	GArray *once = g_array_new(FALSE, FALSE, sizeof(struct stretch));

	for (uint32_t i = 0; i < memory->heaps.marks->len; i++) {
		const struct memory_mark *mark = memory_mark_at(&memory->heaps, i);
		struct stretch stretch = { .segment = mark->segment, .to = mark->time };

		if (memory_wants_heap(memory, mark->heap))
			g_array_append_val(all, stretch);
	}
	g_array_sort(all, compare_times);
	for (guint i = 0; i < all->len; i++) {
		struct stretch stretch = g_array_index(all, struct stretch, i);
		struct stretch *last =
			once->len ? &g_array_index(once, struct stretch, once->len - 1) : NULL;

		if (last && compare_times(last, &stretch) == 0)
			continue;
		stretch.from = last && last->segment == stretch.segment ? last->to : 0;
		g_array_append_val(once, stretch);
	}
	g_array_unref(all);
	return once;
}

static gint by_end(gconstpointer key, gconstpointer element)
{
	return compare_times(key, element);
}

/* Adds what a mark says to each stretch of the heap that the mark covers. The peak of that mark is
 * the upper bound of all of them. */
static void add_most(const struct memory *memory, GArray *stretches, uint32_t heap)
{
	const struct memory_heap *of = memory_heap_at(&memory->heaps, heap);
	struct stretch *all = (struct stretch *)(void *)stretches->data;

	for (uint32_t at = of->last; at; at = memory_mark_at(&memory->heaps, at - 1)->before) {
		const struct memory_mark *mark = memory_mark_at(&memory->heaps, at - 1);
		const struct stretch key = { .segment = mark->segment, .to = mark->time };
		struct stretch *end = bsearch(&key, all, stretches->len, sizeof(*all), by_end);
		uint64_t from =
			mark->before ? memory_mark_at(&memory->heaps, mark->before - 1)->time : 0;

		for (; end && end >= all && end->segment == mark->segment && end->to > from; end--)
			end->most += (double)MAX_OF(mark->peak_bytes, mark->live_bytes);
	}
}

/* Adds a stretch after the last mark of each segment with heaps that have no end. Its size is
 * unknown. */
static void add_tails(const struct memory *memory, GArray *stretches)
{
	const struct capture *capture = memory->reader.capture;

	for (size_t s = 0; s < capture->n_segments; s++) {
		struct stretch tail = { .segment = capture->segments[s].number,
					.to = UINT64_MAX,
					.most = INFINITY };
		bool is_open = false;

		for (uint32_t i = 0; i < memory->heaps.heaps->len; i++) {
			const struct memory_heap *heap = memory_heap_at(&memory->heaps, i);

			if (heap->segment == tail.segment && heap->last && !heap->end &&
			    memory_wants_heap(memory, i)) {
				const struct memory_mark *last =
					memory_mark_at(&memory->heaps, heap->last - 1);

				tail.from = is_open ? MIN_OF(tail.from, last->time) : last->time;
				is_open = true;
			}
		}
		if (is_open)
			g_array_append_val(stretches, tail);
	}
}

/* Swaps the two ledgers. The caller frees the other one. */
static void take_most(struct ledger *best, struct ledger *found)
{
	struct ledger other = *best;

	*best = *found;
	*found = other;
}

static bool is_better(const struct ledger *ledger, const struct ledger *best)
{
	if (!best->is_best || ledger->most != best->most)
		return !best->is_best || ledger->most > best->most;
	return ledger->most_ns < best->most_ns;
}

static bool search_stretch(struct memory *memory, const struct stretch *stretch,
			   struct ledger *best, GError **error)
{
	struct capture *capture = memory->reader.capture;
	int64_t from = memory->reader.from_ns, to = memory->reader.to_ns;
	struct ledger ledger;
	bool ok;

	if (stretch->from)
		from = MAX_OF(from, capture_time(capture, stretch->segment, stretch->from));
	if (stretch->to != UINT64_MAX)
		to = MIN_OF(to, capture_time(capture, stretch->segment, stretch->to));
	if (from > to)
		return true;
	ledger_init(&ledger, memory, true);
	ok = ledger_run(&ledger, stretch->segment, from, to, error);
	if (ok && is_better(&ledger, best)) {
		take_most(best, &ledger);
		best->is_best = true;
	}
	ledger_done(&ledger);
	return ok;
}

static bool add_rows(const struct prof_chunk *chunk, void *data, GError **error)
{
	uint64_t *rows = data;

	(void)error;
	*rows += chunk->rows;
	return true;
}

/* The stretches are sorted by their upper bound, greatest first. */
static bool search_sorted(struct memory *memory, const GArray *stretches, struct ledger *best,
			  GError **error)
{
	const struct capture *capture = memory->reader.capture;
	uint64_t before = memory->heaps.n_rows, all = 0;

	if (!capture_each_chunk(capture, PROF_TABLE_ALLOC, add_rows, &all, error) ||
	    !capture_each_chunk(capture, PROF_TABLE_FREE, add_rows, &all, error))
		return false;
	for (guint i = 0; i < stretches->len; i++) {
		const struct stretch *stretch = &g_array_index(stretches, struct stretch, i);

		if (best->is_best && stretch->most < best->most)
			break;
		if (best->is_best && stretch->most <= best->most &&
		    capture_time(capture, stretch->segment, stretch->from) >= best->most_ns)
			continue;
		if (memory->heaps.n_rows - before > all)
			return search_stretch(memory, &everything, best, error);
		if (!search_stretch(memory, stretch, best, error))
			return false;
	}
	return true;
}

static bool search_stretches(struct memory *memory, struct ledger *best, GError **error)
{
	g_autoptr(GArray) stretches = list_stretches(memory);
	/* Marks include all threads, and blocks without weights. */
	bool usable = memory->sampled_bytes <= 0 && !memory->reader.tids && !memory->reader.comms &&
		      stretches->len > 0 && stretches->len <= MOST_STRETCHES &&
		      (uint64_t)stretches->len * memory->heaps.heaps->len <= MOST_WORK;

	if (!usable)
		return search_stretch(memory, &everything, best, error);
	for (uint32_t i = 0; i < memory->heaps.heaps->len; i++)
		if (memory_wants_heap(memory, i))
			add_most(memory, stretches, i);
	add_tails(memory, stretches);
	g_array_sort(stretches, compare_stretches);
	return search_sorted(memory, stretches, best, error);
}

/* Sets each process's own peak. It comes from marks only, so it includes the whole run and all
 * threads. */
static void set_process_peaks(struct memory *memory)
{
	struct capture *capture = memory->reader.capture;

	if (memory->sampled_bytes > 0 || memory->reader.timed || memory->reader.tids ||
	    memory->reader.comms)
		return;
	for (uint32_t i = 0; i < memory->heaps.marks->len; i++) {
		const struct memory_mark *mark = memory_mark_at(&memory->heaps, i);
		struct memory_counts *to;

		if (!memory_wants_heap(memory, mark->heap))
			continue;
		to = memory_counts_of(memory->processes,
				      memory_heap_at(&memory->heaps, mark->heap)->process);
		if (to->has_peak_time && (double)mark->peak_bytes <= to->peak_bytes)
			continue;
		to->peak_bytes = (double)mark->peak_bytes;
		to->peak_ns = capture_time(capture, mark->segment, mark->peak_time);
		to->has_peak_time = true;
	}
	memory->has_processes |= MEMORY_HAS_PEAK;
}

static bool find_peak(struct memory *memory, GError **error)
{
	struct ledger best;
	bool ok;

	ledger_init(&best, memory, true);
	ok = search_stretches(memory, &best, error);
	if (ok) {
		set_live(memory, best.processes.most);
		memory->all.peak_bytes = best.most;
		memory->all.peak_ns = best.most_ns;
		memory->all.has_peak_time = best.most > 0;
		g_array_unref(memory->sums);
		memory->sums = g_array_ref(best.nodes.most);
	}
	ledger_done(&best);
	memory->has_all = MEMORY_HAS_LIVE | MEMORY_HAS_PEAK | MEMORY_HAS_LOST;
	memory->has_processes = MEMORY_HAS_LIVE | MEMORY_HAS_LOST;
	set_process_peaks(memory);
	return ok;
}

/* ---- leaks ----------------------------------------------------------------------------------- */

struct leaks {
	struct memory *memory;
	struct memory_replay replay;
	GByteArray *is_read; /* by heap: its end was read, so it is not replayed */
	uint32_t heap;
};

static uint32_t leak_entity(const struct memory *memory, const struct memory_block *block)
{
	switch (memory_query_of(memory)->key) {
	case MEMORY_BY_THREAD:
		return block->thread;
	case MEMORY_BY_SIZE:
		return memory_size_class(block->size);
	case MEMORY_BY_LIFETIME:
		return MEMORY_NEVER_FREED;
	default:
		return memory_node_at(&memory->tree, block->node)->site;
	}
}

static void add_leak(struct memory_counts *to, double bytes, double blocks)
{
	to->leaked_bytes += bytes;
	to->leaked_blocks += blocks;
}

static void found_leak(struct memory *memory, const struct memory_heap *heap,
		       const struct memory_block *block, uint64_t since)
{
	double blocks = memory_weight(heap, block);
	double bytes = blocks * (double)block->size;
	int64_t since_ns = capture_time(memory->reader.capture, heap->segment, since);
	struct suppression *suppression;

	if (since_ns < memory->reader.from_ns || since_ns > memory->reader.to_ns ||
	    !reader_wants_thread(&memory->reader, block->thread))
		return;
	suppression = suppressions_find(&memory->suppressions, &memory->tree, block->node);
	if (suppression) {
		suppression->bytes += bytes;
		suppression->blocks += blocks;
		return;
	}
	if (!memory->no_suppressions) {
		enum runtime_pool pool =
			suppressions_pool(&memory->suppressions, &memory->tree, block->node);

		if (pool < RUNTIME_POOLS) {
			memory->suppressions.pools[pool].bytes += bytes;
			memory->suppressions.pools[pool].blocks += blocks;
			if (memory->hides_runtime)
				return;
		}
	}
	add_leak(memory_counts_of(memory->processes, heap->process), bytes, blocks);
	add_leak(&memory->all, bytes, blocks);
	if (memory_query_of(memory)->filter == MEMORY_NOT_FREED) {
		struct memory_sum *sum = memory_sum_of(memory->sums, block->node);

		sum->bytes += bytes;
		sum->blocks += blocks;
	} else if (memory_query_of(memory)->measures & MEMORY_HAS_LEAKED) {
		add_leak(memory_counts_of(memory->entities, leak_entity(memory, block)), bytes,
			 blocks);
	}
}

static void found_live(const struct memory_live *live, void *data)
{
	struct leaks *leaks = data;

	found_leak(leaks->memory, memory_heap_at(&leaks->memory->heaps, live->heap), &live->block,
		   live->more.since);
}

static void found_block(const struct memory_block *block, const struct memory_block_more *more,
			void *data)
{
	struct leaks *leaks = data;

	found_leak(leaks->memory, memory_heap_at(&leaks->memory->heaps, leaks->heap), block,
		   more->since);
}

static void forget_leaks(struct memory *memory)
{
	GArray *const arrays[] = { memory->entities, memory->processes };

	for (size_t a = 0; a < ARRAY_SIZE(arrays); a++)
		for (guint i = 0; i < arrays[a]->len; i++) {
			struct memory_counts *counts =
				&g_array_index(arrays[a], struct memory_counts, i);

			counts->leaked_bytes = counts->leaked_blocks = 0;
		}
	memory->all.leaked_bytes = memory->all.leaked_blocks = 0;
	if (memory_query_of(memory)->filter == MEMORY_NOT_FREED)
		g_array_set_size(memory->sums, 0);
	suppressions_reset(&memory->suppressions);
}

/* Reads leaks from the ends of heaps. Sets *ret_broken if an end lacks blocks. */
static bool read_ends(struct leaks *leaks, bool *ret_broken, GError **error)
{
	struct memory_heaps *heaps = &leaks->memory->heaps;
	g_autoptr(GArray) ends = g_array_new(FALSE, FALSE, sizeof(uint32_t));

	g_byte_array_set_size(leaks->is_read, heaps->heaps->len);
	for (uint32_t i = 0; i < heaps->heaps->len; i++) {
		const struct memory_heap *heap = memory_heap_at(heaps, i);
		bool is_wanted = memory_wants_heap(leaks->memory, i);

		leaks->is_read->data[i] =
			!is_wanted || (heap->excluded && !heap->last) ||
			(heap->end && !memory_mark_at(heaps, heap->end - 1)->is_broken);
		if (is_wanted && heap->end && leaks->is_read->data[i])
			g_array_append_val(ends, heap->end);
	}
	*ret_broken = false;
	return ends->len == 0 ||
	       memory_heaps_read_live(heaps, (const uint32_t *)(void *)ends->data, ends->len,
				      found_live, leaks, ret_broken, error);
}

static bool wants_open_heap(uint32_t heap, void *data)
{
	const struct leaks *leaks = data;

	return heap < leaks->is_read->len ? !leaks->is_read->data[heap]
					  : memory_wants_heap(leaks->memory, heap);
}

/* Returns whether the segment may have rows of heaps without a usable end. */
static bool has_open_heap(const struct leaks *leaks, uint32_t segment)
{
	const struct memory_heaps *heaps = &leaks->memory->heaps;
	bool has_any = false;

	for (uint32_t i = 0; i < leaks->is_read->len; i++) {
		if (memory_heap_at(heaps, i)->segment != segment)
			continue;
		has_any = true;
		if (!leaks->is_read->data[i])
			return true;
	}
	return !has_any;
}

static void keep(uint32_t heap, void *data)
{
	struct leaks *leaks = data;

	leaks->heap = heap;
	memory_blocks_each(memory_replay_blocks(&leaks->replay, heap), found_block, leaks);
}

static bool replay_segment(struct leaks *leaks, uint32_t segment, GError **error)
{
	static const struct memory_ops ops = { .ended = keep };
	bool ok;

	leaks->replay = (struct memory_replay){
		.heaps = &leaks->memory->heaps,
		.ops = &ops,
		.data = leaks,
		.from_ns = INT64_MAX,
		.to_ns = INT64_MAX,
		.segment = segment,
		.wants_more = true,
		.wants_nodes = true,
		.wants_heap = wants_open_heap,
	};
	ok = memory_replay_run(&leaks->replay, error);
	for (uint32_t i = 0; ok && i < leaks->replay.blocks->len; i++)
		if (memory_replay_blocks(&leaks->replay, i))
			keep(i, leaks);
	memory_replay_done(&leaks->replay);
	return ok;
}

bool memory_find_leaks(struct memory *memory, GError **error)
{
	const struct capture *capture = memory->reader.capture;
	struct leaks leaks = { .memory = memory, .is_read = g_byte_array_new() };
	bool ok, broken;

	/* Each iteration finds at least one more broken end, so the loop ends. */
	do {
		forget_leaks(memory);
		ok = read_ends(&leaks, &broken, error);
	} while (ok && broken);
	for (size_t i = 0; ok && i < capture->n_segments; i++)
		if (has_open_heap(&leaks, capture->segments[i].number))
			ok = replay_segment(&leaks, capture->segments[i].number, error);
	g_byte_array_unref(leaks.is_read);
	memory->has_all |= MEMORY_HAS_LEAKED | MEMORY_HAS_LOST;
	memory->has_processes |= MEMORY_HAS_LEAKED | MEMORY_HAS_LOST;
	return ok;
}

/* ---- view ------------------------------------------------------------------------------------ */

bool memory_find(struct memory *memory, GError **error)
{
	GArray *sums = NULL;

	switch (memory_query_of(memory)->filter) {
	case MEMORY_NOT_FREED:
		if (!memory_find_leaks(memory, error))
			return false;
		set_process_peaks(memory);
		return true;
	case MEMORY_LIVE_AT_PEAK:
		return find_peak(memory, error);
	case MEMORY_LIVE:
		return memory_find_timeline(memory, error);
	case MEMORY_LIVE_SINCE:
	case MEMORY_LIVE_AT_TIME:
		if (memory_query_of(memory)->filter == MEMORY_LIVE_SINCE &&
		    !find_at(memory, memory->before_ns, &memory->before, error))
			return false;
		if (!find_at(memory, memory->at_ns, &sums, error))
			return false;
		g_array_unref(memory->sums);
		memory->sums = sums;
		return true;
	default:
		if (!memory_count(memory, error) || !memory_find_leaks(memory, error))
			return false;
		memory->all.has_peak_time = memory->all.peak_bytes > 0;
		return true;
	}
}
