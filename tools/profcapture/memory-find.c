/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory-find - finds the blocks that are live at a time, at the peak, at the end, or over time
 *
 * Heap marks (memory-heaps.h) reduce how much of the file is read. For leaks of a heap that ended,
 * only the blocks of its last mark are read, if they are complete. For a point in time, only the
 * rows after the last marks before it are read. For the peak, the time ranges between marks
 * (stretches) are searched, the highest upper bound first, until no other stretch can hold a higher
 * peak, or an equal, earlier one. With many processes, most stretches may be searched. Once the
 * search has read as many rows as the file has, the whole file is read instead. For the timeline,
 * all rows are replayed once; blocks of a process that ended are not live.
 *
 * Invariants: (1) a stretch that is skipped because of a mark cannot exceed the peak that was found
 *                 [test-memory: peak of two]
 *             (2) the sum of all nodes is the peak  [test-memory: peak]
 *             (3) of several equal peaks, the first one is reported [test-memory: equal peaks]
 *             (4) the cost of the peak is proportional to the file's size, whatever the marks say
 *                 [test-memory: many processes]
 *             (5) a point of the timeline equals the result of --at for its time
 *                 [test_memory_reader: timeline]
 */
#include "config.h"

#include "base/each.h"
#include "base/order.h"
#include "tools/profcapture/memory-peak.h"
#include "tools/profcapture/memory.h"

#include "tools/common/grown-array.h"
#include "tools/profcapture/counter-values.h"

#include <math.h>
#include <string.h>

#define POINTS 240u /* default number of points; text has more points than rows, for a sparkline */
#define MOST_POINTS 1000u

/* ---- ledger: live blocks by node and by process, now and at the peak ------------------------- */

struct ledger {
	struct memory *memory;
	struct memory_peak heap;
	struct memory_parts nodes, processes;
	bool wants_most, is_best;
	/* for a timeline */
	GArray *functions; /* double: live bytes by function of the program; or NULL */
	int64_t from_ns, to_ns;
	int64_t row_ns;       /* rows are at its multiples; 0: points divide the range equally */
	int64_t before;       /* with row_ns: number of points before the range */
	guint n_points, step; /* step: every step-th point becomes a row */
};

static void ledger_init(struct ledger *ledger, struct memory *memory, bool wants_most)
{
	*ledger = (struct ledger){ .memory = memory, .wants_most = wants_most };
	memory_parts_init(&ledger->nodes);
	memory_parts_init(&ledger->processes);
}

static void ledger_done(struct ledger *ledger)
{
	memory_parts_done(&ledger->nodes);
	memory_parts_done(&ledger->processes);
}

static void ledger_add(struct ledger *ledger, const struct memory_live *live, double sign)
{
	const struct memory_tree *tree = &ledger->memory->tree;
	uint32_t node = live->block.node, process;
	double bytes = sign * live->bytes, blocks = sign * live->blocks;

	ledger->heap.bytes += bytes;
	ledger->heap.blocks += blocks;
	if (ledger->functions) {
		uint32_t own = memory_node_at(tree, node)->own;
		uint32_t function = functions_whole(
			tree->functions, memory_node_at(tree, own ? own : node)->function);

		if (function >= ledger->functions->len)
			g_array_set_size(ledger->functions, function + 1);
		g_array_index(ledger->functions, double, function) += bytes;
		return;
	}
	process = memory_heap_at(&ledger->memory->heaps, live->heap)->process;
	memory_parts_add(&ledger->nodes, node, bytes, blocks, ledger->wants_most);
	memory_parts_add(&ledger->processes, process, bytes, blocks, ledger->wants_most);
}

static void note_peak(struct ledger *ledger, int64_t time_ns)
{
	if (!ledger->wants_most || !memory_peak_note(&ledger->heap, time_ns))
		return;
	memory_parts_note(&ledger->nodes);
	memory_parts_note(&ledger->processes);
}

static int64_t point_time(const struct ledger *ledger, guint point)
{
	double length = (double)(ledger->to_ns - ledger->from_ns);
	int64_t n = ledger->before + point + 1;

	if (!ledger->row_ns)
		return ledger->from_ns + (int64_t)(length * (point + 1) / ledger->n_points);
	return MIN_OF(n / ledger->step * ledger->row_ns +
			      (int64_t)((double)ledger->row_ns * (double)(n % ledger->step) /
					ledger->step),
		      ledger->to_ns);
}

/* The last point, at the end of the range, is always a row. */
static bool point_is_row(const struct ledger *ledger, guint point)
{
	return (ledger->before + point + 1) % ledger->step == 0 || point + 1 == ledger->n_points;
}

/* Puts the rows at the multiples of row_ns: the smallest of the numbers 1, 2 or 5 times a power of
 * ten that has at most `rows` multiples in the range. */
static void round_points(struct ledger *ledger, guint rows)
{
	static const int64_t factors[] = { 1, 2, 5 };
	int64_t row_ns = 1, power = 1;

	for (guint i = 1; ledger->to_ns / row_ns - ledger->from_ns / row_ns > rows; i++) {
		if (i % 3 == 0)
			power *= 10;
		row_ns = factors[i % 3] * power;
	}
	ledger->row_ns = row_ns;
	ledger->before =
		ledger->from_ns / row_ns * ledger->step +
		(int64_t)((double)(ledger->from_ns % row_ns) * ledger->step / (double)row_ns);
	ledger->n_points = 1;
	while (point_time(ledger, ledger->n_points - 1) < ledger->to_ns)
		ledger->n_points++;
}

/* Adds the points of the timeline before a time. */
static void add_points(struct ledger *ledger, int64_t before_ns)
{
	GArray *points = ledger->memory->points;

	while (points->len < ledger->n_points && point_time(ledger, points->len) < before_ns) {
		struct memory_point point = { .time_ns = point_time(ledger, points->len),
					      .bytes = ledger->heap.bytes,
					      .blocks = ledger->heap.blocks };
		bool is_row = point_is_row(ledger, points->len);

		for (uint32_t i = 0; is_row && i < ledger->functions->len; i++) {
			double bytes = g_array_index(ledger->functions, double, i);

			if (bytes > point.largest_bytes) {
				point.largest_bytes = bytes;
				point.largest = i;
			}
		}
		g_array_append_val(points, point);
	}
}

static void loaded(const struct memory_live *live, void *data)
{
	ledger_add(data, live, 1);
}

static void allocated(const struct memory_event *event, const struct memory_live *live, void *data)
{
	struct ledger *ledger = data;

	add_points(ledger, event->time_ns);
	ledger_add(ledger, live, 1);
	if (event->is_counted)
		note_peak(ledger, event->time_ns);
}

/* If a stretch starts with a release, the state before that release is the first peak. */
static void released(const struct memory_event *event, const struct memory_live *live,
		     enum memory_release how, void *data)
{
	struct ledger *ledger = data;

	add_points(ledger, event->time_ns);
	if (event->is_counted)
		note_peak(ledger, event->time_ns);
	ledger_add(ledger, live, -1);
}

static void ended(const struct memory_live *live, void *data)
{
	struct ledger *ledger = data;
	const struct memory_heaps *heaps = &ledger->memory->heaps;
	const struct memory_heap *heap = memory_heap_at(heaps, live->heap);

	if (ledger->functions && heap->end && heap->has_ended) {
		const struct memory_mark *mark = memory_mark_at(heaps, heap->end - 1);

		add_points(ledger,
			   capture_time(ledger->memory->reader.capture, mark->segment, mark->time));
	}
	ledger_add(ledger, live, -1);
}

static bool ledger_run(struct ledger *ledger, uint32_t segment, int64_t from_ns, int64_t to_ns,
		       GError **error)
{
	static const struct memory_ops ops = { loaded, NULL, allocated, released, ended };
	struct memory_replay replay = { .heaps = &ledger->memory->heaps,
					.ops = &ops,
					.data = ledger,
					.from_ns = from_ns,
					.to_ns = to_ns,
					.segment = segment,
					.wants_nodes = true };
	bool ok = memory_replay_run(&replay, error);

	memory_replay_done(&replay);
	note_peak(ledger, MAX_OF(from_ns, INT64_C(0)));
	return ok;
}

static void set_peak(struct memory *memory, const struct ledger *ledger)
{
	memory->all.peak_bytes = ledger->heap.most_bytes;
	memory->all.peak_ns = ledger->heap.most_ns;
	memory->all.has_peak_time = ledger->heap.most_bytes > 0;
}

/* ---- at a time ------------------------------------------------------------------------------- */

static void set_live(struct memory *memory, const GArray *processes)
{
	memory->all.live_bytes = memory->all.live_blocks = 0;
	ARRAY_EACH(struct memory_counts, to, memory->processes)
		to->live_bytes = to->live_blocks = 0;
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
		set_live(memory, ledger.processes.now);
		*ret_sums = g_array_ref(ledger.nodes.now);
	}
	ledger_done(&ledger);
	memory->has_all = memory->has_processes = MEMORY_HAS_LIVE | MEMORY_HAS_LOST;
	return ok;
}

/* ---- the peak -------------------------------------------------------------------------------- */

/* A time range between two marks, with an upper bound of the bytes that were live in all heaps. */
struct stretch {
	uint32_t segment;
	uint64_t from, to;
	double most;
};

static const struct stretch everything = { .to = UINT64_MAX };

/* Above these limits (MOST_WORK: stretches times heaps), all rows are replayed at once instead. */
#define MOST_STRETCHES 10000
#define MOST_WORK 20000000

COMPARE_BY(compare_times, struct stretch, ORDER(a->segment, b->segment), ORDER(a->to, b->to))

/* Sorts by upper bound, greatest first. Only a tail (see add_tails()) may overlap other
 * stretches. */
COMPARE_BY(compare_stretches, struct stretch, ORDER(b->most, a->most), compare_times(a, b))

static GArray *list_stretches(const struct memory *memory)
{
	GArray *all = g_array_new(FALSE, FALSE, sizeof(struct stretch));
	guint n = 0;

	ARRAY_EACH(const struct memory_mark, mark, memory->heaps.marks) {
		struct stretch stretch = { .segment = mark->segment, .to = mark->time };

		if (memory_heaps_wants(&memory->heaps, mark->heap))
			g_array_append_val(all, stretch);
	}
	g_array_sort(all, compare_times);
	for (guint i = 0; i < all->len; i++) {
		struct stretch stretch = g_array_index(all, struct stretch, i);
		const struct stretch *last = n ? &g_array_index(all, struct stretch, n - 1) : NULL;

		if (last && compare_times(last, &stretch) == 0)
			continue;
		stretch.from = last && last->segment == stretch.segment ? last->to : 0;
		g_array_index(all, struct stretch, n++) = stretch;
	}
	g_array_set_size(all, n);
	return all;
}

/* For each mark of a heap, adds the mark's peak to the upper bounds of the stretches since the
 * heap's previous mark. */
static void add_most(const struct memory *memory, GArray *stretches, uint32_t heap)
{
	const struct memory_heap *of = memory_heap_at(&memory->heaps, heap);
	struct stretch *all = (struct stretch *)(void *)stretches->data;

	for (uint32_t at = of->last; at; at = memory_mark_at(&memory->heaps, at - 1)->before) {
		const struct memory_mark *mark = memory_mark_at(&memory->heaps, at - 1);
		const struct stretch key = { .segment = mark->segment, .to = mark->time };
		struct stretch *end =
			bsearch(&key, all, stretches->len, sizeof(*all), compare_times);
		uint64_t from =
			mark->before ? memory_mark_at(&memory->heaps, mark->before - 1)->time : 0;

		for (; end && end >= all && end->segment == mark->segment && end->to > from; end--)
			end->most += (double)MAX_OF(mark->peak_bytes, mark->live_bytes);
	}
}

/* For each segment that has heaps without an end, adds the stretch from the earliest of their last
 * marks on (the tail), with an infinite upper bound. */
static void add_tails(const struct memory *memory, GArray *stretches)
{
	guint n = stretches->len;

	for (uint32_t i = 0; i < memory->heaps.heaps->len; i++) {
		const struct memory_heap *heap = memory_heap_at(&memory->heaps, i);
		struct stretch tail = { .segment = heap->segment,
					.from = UINT64_MAX,
					.to = UINT64_MAX,
					.most = INFINITY };
		struct stretch *known;
		guint at = n;

		if (!heap->last || heap->end || !memory_heaps_wants(&memory->heaps, i))
			continue;
		while (at < stretches->len &&
		       g_array_index(stretches, struct stretch, at).segment != heap->segment)
			at++;
		if (at == stretches->len)
			g_array_append_val(stretches, tail);
		known = &g_array_index(stretches, struct stretch, at);
		known->from =
			MIN_OF(known->from, memory_mark_at(&memory->heaps, heap->last - 1)->time);
	}
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
	ledger.is_best = true;
	if (ok && (!best->is_best || ledger.heap.most_bytes > best->heap.most_bytes ||
		   (ledger.heap.most_bytes == best->heap.most_bytes &&
		    ledger.heap.most_ns < best->heap.most_ns))) {
		struct ledger other = *best;

		*best = ledger;
		ledger = other;
	}
	ledger_done(&ledger);
	return ok;
}

static bool add_rows(const struct prof_chunk *chunk, void *data, GError **error)
{
	uint64_t *rows = data;

	*rows += chunk->rows;
	return true;
}

/* Searches the stretches, which must be sorted by upper bound, greatest first. */
static bool search_sorted(struct memory *memory, const GArray *stretches, struct ledger *best,
			  GError **error)
{
	const struct capture *capture = memory->reader.capture;
	uint64_t before = memory->heaps.n_rows, all = 0;

	if (!capture_each_chunk(capture, PROF_TABLE_ALLOC, add_rows, &all, error) ||
	    !capture_each_chunk(capture, PROF_TABLE_FREE, add_rows, &all, error))
		return false;
	ARRAY_EACH(const struct stretch, stretch, stretches) {
		if (best->is_best && stretch->most < best->heap.most_bytes)
			break;
		if (best->is_best && stretch->most <= best->heap.most_bytes &&
		    capture_time(capture, stretch->segment, stretch->from) >= best->heap.most_ns)
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
	/* Marks include all threads, and count sampled blocks without weights. So they are unusable
	 * with sampling or a selection of threads. */
	bool usable = memory->sampled_bytes <= 0 && !memory->reader.tids && !memory->reader.comms &&
		      stretches->len > 0 && stretches->len <= MOST_STRETCHES &&
		      (uint64_t)stretches->len * memory->heaps.heaps->len <= MOST_WORK;

	if (!usable)
		return search_stretch(memory, &everything, best, error);
	for (uint32_t i = 0; i < memory->heaps.heaps->len; i++)
		if (memory_heaps_wants(&memory->heaps, i))
			add_most(memory, stretches, i);
	add_tails(memory, stretches);
	g_array_sort(stretches, compare_stretches);
	return search_sorted(memory, stretches, best, error);
}

/* Sets each process's own peak from its marks, unless blocks are sampled, or only a time range or
 * some threads are wanted. */
static void set_process_peaks(struct memory *memory)
{
	struct capture *capture = memory->reader.capture;

	if (memory->sampled_bytes > 0 || memory->reader.timed || memory->reader.tids ||
	    memory->reader.comms)
		return;
	ARRAY_EACH(const struct memory_mark, mark, memory->heaps.marks) {
		struct memory_counts *to;

		if (!memory_heaps_wants(&memory->heaps, mark->heap))
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
		set_peak(memory, &best);
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
	/* by heap: 1: skip the heap, because its end was read, or it is unwanted or excluded */
	GByteArray *is_read;
};

static void add_leak(struct memory_counts *to, const struct memory_live *live)
{
	to->leaked_bytes += live->bytes;
	to->leaked_blocks += live->blocks;
}

static void found_leak(const struct memory_live *live, void *data)
{
	struct leaks *leaks = data;
	struct memory *memory = leaks->memory;
	const struct memory_heap *heap = memory_heap_at(&memory->heaps, live->heap);
	int64_t since_ns = capture_time(memory->reader.capture, heap->segment, live->more.since);
	struct suppression *suppression;

	if (since_ns < memory->reader.from_ns || since_ns > memory->reader.to_ns ||
	    !reader_wants_thread(&memory->reader, live->block.thread))
		return;
	suppression = suppressions_find(&memory->suppressions, &memory->tree, live->block.node);
	if (suppression) {
		suppression->bytes += live->bytes;
		suppression->blocks += live->blocks;
		return;
	}
	if (!memory->no_suppressions) {
		enum runtime_pool pool =
			suppressions_pool(&memory->suppressions, &memory->tree, live->block.node);

		if (pool < RUNTIME_POOLS) {
			memory_sum_add(&memory->suppressions.pools[pool], live->bytes,
				       live->blocks);
			if (memory->hides_runtime)
				return;
		}
	}
	add_leak(memory_counts_of(memory->processes, heap->process), live);
	add_leak(&memory->all, live);
	if (memory_query_of(memory)->filter == MEMORY_NOT_FREED) {
		memory_sum_add(memory_sum_of(memory->sums, live->block.node), live->bytes,
			       live->blocks);
	} else if (memory_query_of(memory)->measures & MEMORY_HAS_LEAKED) {
		uint32_t entity = memory_entity_of(memory, &live->block);

		add_leak(memory_counts_of(memory->entities,
					  entity == MEMORY_NOBODY ? MEMORY_NEVER_FREED : entity),
			 live);
	}
}

static void forget_leaks(struct memory *memory)
{
	GArray *const arrays[] = { memory->entities, memory->processes };

	for (size_t a = 0; a < ARRAY_SIZE(arrays); a++)
		ARRAY_EACH(struct memory_counts, counts, arrays[a])
			counts->leaked_bytes = counts->leaked_blocks = 0;
	memory->all.leaked_bytes = memory->all.leaked_blocks = 0;
	if (memory_query_of(memory)->filter == MEMORY_NOT_FREED)
		g_array_set_size(memory->sums, 0);
	suppressions_reset(&memory->suppressions);
}

/* Reads leaks from the marks at which heaps ended. Sets *ret_broken if a mark lacks blocks. */
static bool read_ends(struct leaks *leaks, bool *ret_broken, GError **error)
{
	struct memory_heaps *heaps = &leaks->memory->heaps;
	g_autoptr(GArray) ends = g_array_new(FALSE, FALSE, sizeof(uint32_t));

	g_byte_array_set_size(leaks->is_read, heaps->heaps->len);
	for (uint32_t i = 0; i < heaps->heaps->len; i++) {
		const struct memory_heap *heap = memory_heap_at(heaps, i);
		bool is_wanted = memory_heaps_wants(heaps, i);

		leaks->is_read->data[i] =
			!is_wanted || (heap->excluded && !heap->last) ||
			(heap->end && !memory_mark_at(heaps, heap->end - 1)->is_broken);
		if (is_wanted && heap->end && leaks->is_read->data[i])
			g_array_append_val(ends, heap->end);
	}
	*ret_broken = false;
	return ends->len == 0 ||
	       memory_heaps_read_live(heaps, (const uint32_t *)(void *)ends->data, ends->len,
				      found_leak, leaks, ret_broken, error);
}

/* Returns whether rows of the segment must be read: it has no heap, or one that is_read does not
 * skip. */
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

static bool replay_segment(struct leaks *leaks, uint32_t segment, GError **error)
{
	static const struct memory_ops ops = { .ended = found_leak };
	struct memory_replay replay = { .heaps = &leaks->memory->heaps,
					.ops = &ops,
					.data = leaks,
					.from_ns = INT64_MAX,
					.to_ns = INT64_MAX,
					.segment = segment,
					.wants_more = true,
					.wants_nodes = true,
					.ends_all = true,
					.skipped = leaks->is_read };
	bool ok = memory_replay_run(&replay, error);

	memory_replay_done(&replay);
	return ok;
}

bool memory_find_leaks(struct memory *memory, GError **error)
{
	const struct capture *capture = memory->reader.capture;
	struct leaks leaks = { .memory = memory, .is_read = g_byte_array_new() };
	bool ok, broken;

	/* Each iteration finds at least one more broken mark, so the loop ends. */
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

/* ---- over time ------------------------------------------------------------------------------- */

/* Returns, by process, the time at which the process and its heap ended; INT64_MAX: they did not
 * end; 0: the process has no heap. */
static GArray *find_heap_ends(const struct memory *memory)
{
	GArray *ends = g_array_new(FALSE, TRUE, sizeof(int64_t));

	for (uint32_t i = 0; i < memory->heaps.heaps->len; i++) {
		const struct memory_heap *heap = memory_heap_at(&memory->heaps, i);
		int64_t *end = GROWN_AT(ends, int64_t, heap->process);

		if (heap->excluded)
			continue;
		*end = INT64_MAX;
		if (heap->end && heap->has_ended) {
			const struct memory_mark *mark =
				memory_mark_at(&memory->heaps, heap->end - 1);

			*end = capture_time(memory->reader.capture, mark->segment, mark->time);
		}
	}
	return ends;
}

/* Sets each point's resident memory: the sum over the processes that then have a heap. */
static bool find_rss(struct memory *memory, GError **error)
{
	struct counter_values values = { .capture = memory->reader.capture };
	g_autoptr(GArray) all = counter_values_read_rss(&values, &memory->reader, error);
	g_autoptr(GArray) ends = find_heap_ends(memory);
	g_autoptr(GArray) last = g_array_new(FALSE, TRUE, sizeof(double)); /* by counter */
	double bytes = 0;
	guint next = 0;

	for (guint i = 0; all && values.all && i < values.all->len; i++) {
		const struct counter_rss end = {
			*GROWN_AT(ends, int64_t, counter_at(&values, i)->process), i, 0
		};

		if (end.time_ns > 0 && end.time_ns < INT64_MAX)
			g_array_append_val(all, end);
	}
	if (all)
		g_array_sort(all, counter_rss_compare);
	for (guint i = 0; all && i < memory->points->len; i++) {
		struct memory_point *point = &g_array_index(memory->points, struct memory_point, i);

		for (; next < all->len; next++) {
			const struct counter_rss *rss =
				&g_array_index(all, struct counter_rss, next);
			const struct counter *counter = counter_at(&values, rss->counter);
			const int64_t end = g_array_index(ends, int64_t, counter->process);
			double *before = GROWN_AT(last, double, rss->counter);

			if (rss->time_ns > point->time_ns)
				break;
			if (end == 0 || rss->time_ns > end)
				continue;
			bytes += rss->bytes - *before;
			*before = rss->bytes;
		}
		point->rss_bytes = next > 0 ? bytes : -1;
	}
	counter_values_done(&values);
	return all != NULL;
}

static bool find_timeline(struct memory *memory, GError **error)
{
	const struct reader *reader = &memory->reader;
	guint rows = (guint)MIN_OF(reader->limit ? reader->limit : POINTS, (uint64_t)MOST_POINTS);
	struct ledger ledger;
	bool ok;

	ledger_init(&ledger, memory, true);
	ledger.from_ns = MAX_OF(reader->from_ns, INT64_C(0));
	ledger.to_ns = MIN_OF(reader->to_ns, reader->capture->duration_ns);
	ledger.to_ns = MAX_OF(ledger.to_ns, ledger.from_ns);
	ledger.step = reader->format == READER_TEXT ? MAX_OF(POINTS / rows, 1u) : 1;
	ledger.n_points = rows * ledger.step;
	if (reader->format == READER_TEXT)
		round_points(&ledger, rows);
	ledger.functions = g_array_new(FALSE, TRUE, sizeof(double));
	ok = ledger_run(&ledger, 0, ledger.from_ns, ledger.to_ns, error);
	add_points(&ledger, INT64_MAX);
	ok = ok && find_rss(memory, error);
	g_array_unref(ledger.functions);
	ledger_done(&ledger);
	set_peak(memory, &ledger);
	memory->all.live_bytes = ledger.heap.bytes;
	memory->all.live_blocks = ledger.heap.blocks;
	memory->has_all = MEMORY_HAS_LIVE | MEMORY_HAS_PEAK | MEMORY_HAS_LOST;
	memory->has_processes = MEMORY_HAS_LOST;
	for (uint32_t i = 0; i < memory->points->len && memory->lines->len < rows; i++) {
		const struct memory_point *point =
			&g_array_index(memory->points, struct memory_point, i);
		struct memory_line line = { .entity = i };

		/* If no process is left at the end of the capture, the last row would have no
		 * numbers. */
		if (reader->format == READER_TEXT && i + 1 == memory->points->len &&
		    point->bytes <= 0 && point->blocks <= 0)
			break;
		if (point_is_row(&ledger, i))
			g_array_append_val(memory->lines, line);
	}
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
		return find_timeline(memory, error);
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
		return true;
	}
}
