/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory-timeline - the live heap over time, at a bounded number of points
 *
 * The rows are replayed once. Memory is proportional to the live blocks and to the functions of the
 * program, not to the rows. Blocks of a process that ended do not live.
 *
 * Invariant: a point has what --at its time has  [test_memory_reader: timeline]
 */
#include "config.h"

#include "tools/profcapture/memory.h"

#define POINTS 240u /* of JSON; also the fewest for a sparkline */
#define MOST_POINTS 1000u

struct timeline {
	struct memory *memory;
	struct memory_replay replay;
	GArray *functions; /* double: live bytes by function of the program */
	double bytes, blocks;
	int64_t from_ns, to_ns;
	guint n, step; /* step: only each step-th point is a row */
};

static int64_t time_of(const struct timeline *timeline, guint point)
{
	double length = (double)(timeline->to_ns - timeline->from_ns);

	return timeline->from_ns + (int64_t)(length * (point + 1) / timeline->n);
}

static void set_largest(const struct timeline *timeline, struct memory_point *point)
{
	for (uint32_t i = 0; i < timeline->functions->len; i++) {
		double bytes = g_array_index(timeline->functions, double, i);

		if (bytes <= point->largest_bytes)
			continue;
		point->largest_bytes = bytes;
		point->largest = i;
	}
}

/* Adds the points before a time. */
static void add_points(struct timeline *timeline, int64_t before_ns)
{
	GArray *points = timeline->memory->points;

	while (points->len < timeline->n && time_of(timeline, points->len) < before_ns) {
		struct memory_point point = { .time_ns = time_of(timeline, points->len),
					      .bytes = timeline->bytes,
					      .blocks = timeline->blocks };

		if ((points->len + 1) % timeline->step == 0)
			set_largest(timeline, &point);
		g_array_append_val(points, point);
	}
}

static uint32_t function_of(const struct memory_tree *tree, uint32_t node)
{
	uint32_t own = memory_node_at(tree, node)->own;

	return functions_whole(tree->functions, memory_node_at(tree, own ? own : node)->function);
}

static void change(struct timeline *timeline, uint32_t heap, const struct memory_block *block,
		   double sign)
{
	struct memory *memory = timeline->memory;
	double blocks = sign * memory_weight(memory_heap_at(&memory->heaps, heap), block);
	double bytes = blocks * (double)block->size;
	uint32_t function = function_of(&memory->tree, block->node);

	timeline->bytes += bytes;
	timeline->blocks += blocks;
	if (function >= timeline->functions->len)
		g_array_set_size(timeline->functions, function + 1);
	g_array_index(timeline->functions, double, function) += bytes;
}

static void note_peak(struct timeline *timeline, int64_t time_ns)
{
	struct memory_counts *all = &timeline->memory->all;

	if (timeline->bytes <= all->peak_bytes)
		return;
	all->peak_bytes = timeline->bytes;
	all->peak_ns = time_ns;
	all->has_peak_time = true;
}

static int64_t event_time(const struct timeline *timeline, const struct memory_event *event)
{
	return capture_time(timeline->memory->reader.capture, event->segment, event->time);
}

static void loaded(const struct memory_live *live, void *data)
{
	change(data, live->heap, &live->block, 1);
}

static void allocated(const struct memory_event *event, const struct memory_block *block,
		      const struct memory_block_more *more, void *data)
{
	struct timeline *timeline = data;
	int64_t time_ns = event_time(timeline, event);

	(void)more;
	add_points(timeline, time_ns);
	change(timeline, event->heap, block, 1);
	if (event->is_counted)
		note_peak(timeline, time_ns);
}

static void released(const struct memory_event *event, const struct memory_block *block,
		     const struct memory_block_more *more, enum memory_release how, void *data)
{
	struct timeline *timeline = data;
	int64_t time_ns = event_time(timeline, event);

	(void)more;
	(void)how;
	add_points(timeline, time_ns);
	if (event->is_counted)
		note_peak(timeline, time_ns); /* of the blocks from before the range */
	change(timeline, event->heap, block, -1);
}

struct end {
	struct timeline *timeline;
	uint32_t heap;
};

static void end_block(const struct memory_block *block, const struct memory_block_more *more,
		      void *data)
{
	const struct end *end = data;

	(void)more;
	change(end->timeline, end->heap, block, -1);
}

static void ended(uint32_t index, void *data)
{
	struct timeline *timeline = data;
	struct end end = { timeline, index };
	const struct memory *memory = timeline->memory;
	const struct memory_heap *heap = memory_heap_at(&memory->heaps, index);

	if (heap->end && heap->has_ended) {
		const struct memory_mark *mark = memory_mark_at(&memory->heaps, heap->end - 1);

		add_points(timeline,
			   capture_time(memory->reader.capture, mark->segment, mark->time));
	}
	memory_blocks_each(memory_replay_blocks(&timeline->replay, index), end_block, &end);
}

static bool wants_heap(uint32_t heap, void *data)
{
	const struct timeline *timeline = data;

	return memory_wants_heap(timeline->memory, heap);
}

bool memory_find_timeline(struct memory *memory, GError **error)
{
	static const struct memory_ops ops = { loaded, NULL, allocated, released, ended };
	const struct reader *reader = &memory->reader;
	struct timeline timeline = { .memory = memory, .step = 1 };
	guint rows = (guint)MIN_OF(reader->limit ? reader->limit : POINTS, (uint64_t)MOST_POINTS);
	bool ok;

	timeline.from_ns = MAX_OF(reader->from_ns, INT64_C(0));
	timeline.to_ns = MIN_OF(reader->to_ns, reader->capture->duration_ns);
	timeline.to_ns = MAX_OF(timeline.to_ns, timeline.from_ns);
	if (reader->format == READER_TEXT)
		timeline.step = MAX_OF(POINTS / rows, 1u);
	timeline.n = rows * timeline.step;
	timeline.functions = g_array_new(FALSE, TRUE, sizeof(double));
	timeline.replay = (struct memory_replay){
		.heaps = &memory->heaps,
		.ops = &ops,
		.data = &timeline,
		.from_ns = timeline.from_ns,
		.to_ns = timeline.to_ns,
		.wants_nodes = true,
		.wants_heap = wants_heap,
	};
	ok = memory_replay_run(&timeline.replay, error);
	add_points(&timeline, INT64_MAX);
	note_peak(&timeline, timeline.from_ns);
	memory_replay_done(&timeline.replay);
	g_array_unref(timeline.functions);
	memory->all.live_bytes = timeline.bytes;
	memory->all.live_blocks = timeline.blocks;
	memory->has_all = MEMORY_HAS_LIVE | MEMORY_HAS_PEAK | MEMORY_HAS_LOST;
	memory->has_processes = MEMORY_HAS_LOST;
	for (uint32_t i = timeline.step - 1; i < memory->points->len; i += timeline.step) {
		struct memory_line line = { .entity = i };

		g_array_append_val(memory->lines, line);
	}
	return ok;
}
