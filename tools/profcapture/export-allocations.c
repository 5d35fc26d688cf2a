/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Export-allocations - reads allocations into the tree of an export
 *
 * A block that is live at the start of the time range gets an allocation event at that start.
 */
#include "config.h"

#include "tools/profcapture/export-allocations.h"

#include "base/each.h"
#include "base/order.h"
#include "tools/common/keyed.h"
#include "tools/profcapture/memory-peak.h"
#include "tools/profcapture/memory.h"
#include "tools/profcapture/suppressions.h"

#include <string.h>

#define MOST_LIVES 1000000u
#define LEAST_STEPS 1024 /* the unit stops growing when it reaches the duration divided by this */
#define HEAP_PARTS 1024

struct reading {
	struct allocations *allocations;
	struct export *export;
	struct memory_tree tree;
	struct memory_heaps heaps;
	struct number_map sum_of; /* thread and node → index + 1 */
	GHashTable *lives; /* set of struct allocation_life, keyed by all but the sums; or NULL */
	struct suppressions suppressions; /* suppressions of the runtime's pools */
	struct memory_peak heap;
};

static bool note_chunk(const struct prof_chunk *chunk, void *data, GError **error)
{
	bool *any = data;

	*any = true;
	return false;
}

bool allocations_are_there(const struct export *export)
{
	bool any = false;

	(void)capture_each_chunk(export->reader.capture, PROF_TABLE_ALLOC, note_chunk, &any, NULL);
	return any;
}

static struct allocation_sum *sum_of(struct reading *reading, const struct memory_block *block)
{
	uint64_t key = (uint64_t)block->thread << 32 | block->node;
	uint32_t *known = number_map_at(&reading->sum_of, key);
	struct allocation_sum sum = { .thread = block->thread, .node = block->node };
	GArray *sums = reading->allocations->sums;

	if (*known == 0) {
		g_array_append_val(sums, sum);
		*known = sums->len;
	}
	return &g_array_index(sums, struct allocation_sum, *known - 1);
}

static void add_event(struct reading *reading, const struct allocation_event *event)
{
	struct allocations *allocations = reading->allocations;

	/* leave out zero bytes: viewers recognize a free by its minus sign alone, so a free of zero
	 * bytes would be an allocation */
	if (!allocations->events || (event->bytes <= 0 && event->bytes >= 0))
		return;
	if (allocations->events->len < ALLOCATIONS_MOST_EVENTS)
		g_array_append_vals(allocations->events, event, 1);
	else
		allocations->left_out++;
}

KEYED_BY(life, struct allocation_life, (uint64_t)a->node << 32 | a->time,
	 (uint64_t)a->freed << 32 | a->thread, (uint64_t)a->size << 32 | a->kind)

static void merge_life(struct reading *reading, const struct allocation_life *life)
{
	struct allocation_life *at = g_hash_table_lookup(reading->lives, life);

	if (!at) {
		g_hash_table_add(reading->lives, g_memdup2(life, sizeof(*life)));
		return;
	}
	at->blocks += life->blocks;
	at->bytes += life->bytes;
	at->brief += life->brief;
}

COMPARE_BY(compare_lives, struct allocation_life, ORDER(a->time, b->time),
	   ORDER(a->thread, b->thread), ORDER(a->node, b->node), ORDER(a->freed, b->freed),
	   ORDER(a->kind, b->kind), ORDER(a->size, b->size))

/* Doubles the unit of the lives, so that more of them are equal. The sums are added in the order of
 * the lives, so that they do not depend on addresses. */
static void widen_unit(struct reading *reading)
{
	g_autoptr(GArray)
		lives = keyed_copies(reading->lives, sizeof(struct allocation_life), compare_lives);

	g_hash_table_remove_all(reading->lives);
	reading->allocations->unit_ns *= 2;
	for (guint i = 0; i < lives->len; i++) {
		struct allocation_life life = g_array_index(lives, struct allocation_life, i);

		life.time /= 2;
		life.freed = life.freed ? (life.freed - 1) / 2 + 1 : 0;
		merge_life(reading, &life);
	}
}

static uint8_t kind_of_life(struct reading *reading, const struct memory_live *live,
			    int64_t start_ns, bool is_freed)
{
	if (start_ns < reading->export->reader.from_ns)
		return ALLOCATION_EARLIER;
	if (is_freed)
		return ALLOCATION_FREED;
	return suppressions_pool(&reading->suppressions, &reading->tree, live->block.node) <
			       RUNTIME_POOLS
		       ? ALLOCATION_RUNTIME
		       : ALLOCATION_KEPT;
}

/* Adds a block that was freed, or whose process ended, at `end_ns` (-1: neither). */
static void add_life(struct reading *reading, const struct memory_live *live, int64_t end_ns,
		     bool is_freed)
{
	int64_t unit_ns = reading->allocations->unit_ns;
	int64_t start_ns = capture_time(reading->export->reader.capture,
					memory_heap_at(&reading->heaps, live->heap)->segment,
					live->more.since);
	struct allocation_life life = {
		.time = (uint32_t)(MAX_OF(start_ns, INT64_C(0)) / unit_ns),
		.freed = end_ns < 0 ? 0 : (uint32_t)(end_ns / unit_ns) + 1,
		.thread = live->block.thread,
		.node = live->block.node,
		.kind = kind_of_life(reading, live, start_ns, is_freed),
		.size = (uint8_t)memory_size_class(live->block.size),
	};

	/* ignore blocks after the range, where the replay continues */
	if (start_ns > reading->export->reader.to_ns)
		return;
	life.blocks = live->blocks;
	life.bytes = live->bytes;
	if (is_freed && end_ns - start_ns < ALLOCATIONS_BRIEF_NS)
		life.brief = live->blocks;
	merge_life(reading, &life);
	while (g_hash_table_size(reading->lives) > export_most(reading->export, MOST_LIVES) &&
	       reading->allocations->unit_ns <
		       reading->export->reader.capture->duration_ns / LEAST_STEPS)
		widen_unit(reading);
}

/* Adds the missing parts of the time up to `time_ns` (INT64_MAX: all). The live heap did not change
 * in them. Returns the last part. */
static struct allocation_most *add_parts(struct reading *reading, int64_t time_ns)
{
	const struct reader *reader = &reading->export->reader;
	GArray *heap = reading->allocations->heap;
	int64_t end_ns = MIN_OF(reader->to_ns, reader->capture->duration_ns);
	int64_t until_ns = MAX_OF(MIN_OF(time_ns, end_ns), INT64_C(0));

	for (;;) {
		struct allocation_most part = {
			.time_ns = (int64_t)((double)reader->capture->duration_ns / HEAP_PARTS *
					     heap->len),
			.bytes = reading->heap.bytes
		};

		part.time_ns = MAX_OF(part.time_ns, MAX_OF(reader->from_ns, INT64_C(0)));
		if (heap->len && (part.time_ns > until_ns || heap->len == HEAP_PARTS))
			break;
		g_array_append_val(heap, part);
	}
	return &g_array_index(heap, struct allocation_most, heap->len - 1);
}

/* Adds a block to the live heap or, if `bytes` is negative, removes it. */
static void change_heap(struct reading *reading, int64_t time_ns, double bytes)
{
	const struct reader *reader = &reading->export->reader;
	bool is_shown = reading->lives && time_ns >= reader->from_ns && time_ns <= reader->to_ns;

	if (is_shown) {
		struct allocation_most *part = add_parts(reading, time_ns);

		part->bytes = MAX_OF(part->bytes, reading->heap.bytes + bytes);
		(void)memory_peak_note(&reading->heap, MAX_OF(time_ns, INT64_C(0)));
	}
	reading->heap.bytes += bytes;
	if (is_shown)
		(void)memory_peak_note(&reading->heap, MAX_OF(time_ns, INT64_C(0)));
}

static void ended(const struct memory_live *live, void *data)
{
	struct reading *reading = data;
	const struct memory_heap *heap = memory_heap_at(&reading->heaps, live->heap);
	int64_t end_ns = -1;

	if (!reading->lives || !reader_wants_thread(&reading->export->reader, live->block.thread))
		return;
	if (heap->end && heap->has_ended) {
		const struct memory_mark *mark = memory_mark_at(&reading->heaps, heap->end - 1);

		end_ns = capture_time(reading->export->reader.capture, mark->segment, mark->time);
		change_heap(reading, end_ns, -live->bytes);
	}
	add_life(reading, live, end_ns, false);
}

static uint64_t number_of(const struct reading *reading, const struct memory_live *live)
{
	return live->block.number +
	       ((uint64_t)memory_heap_at(&reading->heaps, live->heap)->segment << 44);
}

static void begin(struct reading *reading, const struct memory_live *live, int64_t time_ns,
		  bool is_counted)
{
	struct allocation_sum *sum = sum_of(reading, &live->block);
	struct allocation_event event = {
		.time_ns = MAX_OF(time_ns, reading->export->reader.from_ns),
		.bytes = live->bytes,
		.block = number_of(reading, live),
		.thread = live->block.thread,
		.by = live->block.thread,
		.node = live->block.node,
	};

	sum->live_objects += live->blocks;
	sum->live_bytes += live->bytes;
	if (is_counted) {
		sum->objects += live->blocks;
		sum->bytes += live->bytes;
	}
	add_event(reading, &event);
	change_heap(reading, time_ns, live->bytes);
}

static void loaded(const struct memory_live *live, void *data)
{
	struct reading *reading = data;
	struct reader *reader = &reading->export->reader;

	if (reader_wants_thread(reader, live->block.thread))
		begin(reading, live, INT64_MIN, false);
}

static void allocated(const struct memory_event *event, const struct memory_live *live, void *data)
{
	begin(data, live, event->time_ns, event->is_counted && !memory_event_is_rest(event));
}

static void released(const struct memory_event *event, const struct memory_live *live,
		     enum memory_release how, void *data)
{
	struct reading *reading = data;
	struct reader *reader = &reading->export->reader;
	struct allocation_event end = {
		.time_ns = MAX_OF(event->time_ns, reader->from_ns),
		.bytes = -live->bytes,
		.block = number_of(reading, live),
		.thread = live->block.thread,
		.by = event->thread,
	};
	struct allocation_sum *sum;

	if (!reader_wants_thread(reader, live->block.thread))
		return;
	if (reading->lives)
		add_life(reading, live, event->time_ns, true);
	change_heap(reading, event->time_ns, -live->bytes);
	sum = sum_of(reading, &live->block);
	sum->live_objects -= live->blocks;
	sum->live_bytes += end.bytes;
	add_event(reading, &end);
}

/* Replaces nodes of the block tree, in the results, with nodes of the export's tree. */
static void settle(struct reading *reading)
{
	struct allocations *allocations = reading->allocations;
	guint n = reading->tree.nodes->len;
	g_autofree uint32_t *nodes = g_new0(uint32_t, n);

	for (uint32_t i = 1; i < n; i++) {
		const struct memory_node *node = memory_node_at(&reading->tree, i);

		nodes[i] = profile_tree_get(&reading->export->profile.tree, nodes[node->parent],
					    node->function);
	}
	ARRAY_EACH(struct allocation_sum, sum, allocations->sums)
		sum->node = nodes[sum->node];
	for (guint i = 0; allocations->events && i < allocations->events->len; i++) {
		struct allocation_event *event =
			&g_array_index(allocations->events, struct allocation_event, i);

		event->node = nodes[event->node];
	}
	for (guint i = 0; allocations->lives && i < allocations->lives->len; i++) {
		struct allocation_life *life =
			&g_array_index(allocations->lives, struct allocation_life, i);

		life->node = nodes[life->node];
	}
}

bool allocations_open(struct export *export, struct memory_tree *tree, struct memory_heaps *heaps,
		      GError **error)
{
	memory_tree_init_with(tree, &export->reader, export->profile.functions);
	return memory_heaps_init(heaps, tree, error);
}

bool allocations_replay(const struct export *export, struct memory_heaps *heaps,
			struct memory_replay *replay, GError **error)
{
	bool ok;

	replay->heaps = heaps;
	replay->from_ns = export->reader.from_ns;
	/* read up to the end, because only the end shows which blocks are not freed */
	replay->to_ns = replay->ends_all ? INT64_MAX : export->reader.to_ns;
	ok = memory_replay_run(replay, error);
	memory_replay_done(replay);
	return ok;
}

struct peak {
	struct memory_peak heap;
	uint64_t rows, most_rows;
};

static void peak_loaded(const struct memory_live *live, void *data)
{
	((struct peak *)data)->heap.bytes += live->bytes;
}

static void peak_allocated(const struct memory_event *event, const struct memory_live *live,
			   void *data)
{
	struct peak *peak = data;

	if (event->is_counted && !peak->heap.has_begun)
		(void)memory_peak_note(&peak->heap, event->time_ns);
	peak->heap.bytes += live->bytes;
	peak->rows += event->is_counted;
	if (event->is_counted && memory_peak_note(&peak->heap, event->time_ns))
		peak->most_rows = peak->rows;
}

static void peak_ended(const struct memory_live *live, void *data)
{
	((struct peak *)data)->heap.bytes -= live->bytes;
}

static void peak_released(const struct memory_event *event, const struct memory_live *live,
			  enum memory_release how, void *data)
{
	peak_ended(live, data);
}

bool allocations_find_peak(const struct export *export, struct memory_heaps *heaps, bool keeps,
			   uint64_t *ret_rows, GError **error)
{
	const struct memory_ops ops = { .loaded = peak_loaded,
					.allocated = peak_allocated,
					.released = peak_released,
					.ended = keeps ? NULL : peak_ended };
	struct peak peak = { 0 };
	struct memory_replay replay = { .ops = &ops, .data = &peak };

	if (!allocations_replay(export, heaps, &replay, error))
		return false;
	*ret_rows = peak.most_rows;
	return true;
}

bool allocations_read(struct allocations *allocations, struct export *export, bool wants_events,
		      GError **error)
{
	static const struct memory_ops ops = {
		.loaded = loaded, .allocated = allocated, .released = released, .ended = ended
	};
	struct reading reading = { .allocations = allocations, .export = export };
	struct memory_replay replay = { .ops = &ops,
					.data = &reading,
					.wants_nodes = true,
					.wants_more = allocations->unit_ns > 0,
					.ends_all = allocations->unit_ns > 0 };
	bool ok;

	if (allocations->unit_ns > 0) {
		reading.lives = g_hash_table_new_full(life_hash, life_equal, g_free, NULL);
		allocations->heap = g_array_new(FALSE, FALSE, sizeof(struct allocation_most));
	}
	allocations->sums = g_array_new(FALSE, FALSE, sizeof(struct allocation_sum));
	if (wants_events)
		allocations->events = g_array_new(FALSE, FALSE, sizeof(struct allocation_event));
	number_map_init(&reading.sum_of);
	ok = allocations_open(export, &reading.tree, &reading.heaps, error) &&
	     allocations_replay(export, &reading.heaps, &replay, error);
	if (ok && reading.lives) {
		(void)add_parts(&reading, INT64_MAX);
		allocations->peak =
			(struct allocation_most){ reading.heap.most_ns, reading.heap.most_bytes };
		allocations->lives =
			keyed_copies(reading.lives, sizeof(struct allocation_life), compare_lives);
	}
	if (ok)
		settle(&reading);
	memory_heaps_done(&reading.heaps);
	memory_tree_done(&reading.tree);
	suppressions_done(&reading.suppressions);
	number_map_done(&reading.sum_of);
	g_clear_pointer(&reading.lives, g_hash_table_unref);
	return ok;
}

void allocations_done(struct allocations *allocations)
{
	g_clear_pointer(&allocations->events, g_array_unref);
	g_clear_pointer(&allocations->sums, g_array_unref);
	g_clear_pointer(&allocations->lives, g_array_unref);
	g_clear_pointer(&allocations->heap, g_array_unref);
}
