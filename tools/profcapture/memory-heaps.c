/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Invariants: (1) either all blocks of a mark are used or none: the mark's number of blocks shows
 *                 whether a cut or damage removed some  [test-memory: broken]
 *             (2) the cost of reading a mark's blocks depends on their number, not on the file's
 *                 size [bench_memory_reader]
 */
#include "config.h"

#include "tools/profcapture/memory-heaps.h"

#include "base/each.h"
#include "base/order.h"
#include "tools/common/keyed.h"

#include <math.h>

/* Up to this many different times are looked up one by one; for more, the whole table is read. */
#define MOST_TIMES 64

uint64_t memory_setting(const struct capture *capture, uint32_t segment, const char *key)
{
	const char *text = capture_metadata_of(capture, segment, key);
	uint64_t number;

	if (!text && !capture_metadata_of(capture, segment, "memory.mode"))
		text = capture_metadata(capture, key);
	return text && g_ascii_string_to_unsigned(text, 10, 0, G_MAXUINT64, &number, NULL) ? number
											   : 0;
}

uint64_t memory_most_setting(const struct capture *capture, const char *key, bool *ret_by_all)
{
	uint64_t most = 0, least = UINT64_MAX;

	for (size_t i = 0; i < capture->n_segments; i++) {
		uint64_t of = memory_setting(capture, capture->segments[i].number, key);

		most = MAX_OF(most, of);
		least = MIN_OF(least, of);
	}
	*ret_by_all = least >= most;
	return most;
}

double memory_weight(const struct memory_heap *heap, const struct memory_block *block)
{
	double chance;

	if (heap->sampled_bytes <= 0 || block->is_mapping)
		return 1;
	chance = -expm1(-(double)block->size / heap->sampled_bytes);
	return chance > 0 ? 1 / chance : 1;
}

void memory_weigh(const struct memory_heaps *heaps, struct memory_live *live)
{
	live->blocks = memory_weight(memory_heap_at(heaps, live->heap), &live->block);
	live->bytes = live->blocks * (double)live->block.size;
}

bool memory_heaps_wants(const struct memory_heaps *heaps, uint32_t heap)
{
	uint32_t process = memory_heap_at(heaps, heap)->process;
	const GArray *pids = heaps->reader->pids;

	for (guint i = 0; pids && i < pids->len; i++)
		if (process > NAMES_LOST &&
		    names_process_at(heaps->reader->capture->names, process)->pid ==
			    g_array_index(pids, uint32_t, i))
			return true;
	return !pids;
}

uint32_t memory_heaps_get(struct memory_heaps *heaps, uint32_t segment, uint32_t process)
{
	struct memory_heap heap = { .segment = segment, .process = process };
	uint32_t *known = number_map_at(&heaps->index, (uint64_t)segment << 32 | process);

	if (*known == 0) {
		heap.sampled_bytes = (double)memory_setting(heaps->reader->capture, segment,
							    MEMORY_SAMPLE_BYTES);
		g_array_append_val(heaps->heaps, heap);
		*known = heaps->heaps->len;
	}
	return *known - 1;
}

bool memory_mark_has_blocks(const struct memory_mark *mark)
{
	return mark->event == PROF_HEAP_CHECKPOINT || mark->event == PROF_HEAP_PAUSED ||
	       mark->event == PROF_HEAP_END;
}

uint32_t memory_heaps_before(const struct memory_heaps *heaps, uint32_t heap, uint64_t time)
{
	uint32_t at = memory_heap_at(heaps, heap)->last;

	while (at) {
		const struct memory_mark *mark = memory_mark_at(heaps, at - 1);

		if (mark->time <= time && memory_mark_has_blocks(mark) && !mark->is_broken)
			break;
		at = mark->before;
	}
	return at;
}

/* ---- heap ------------------------------------------------------------------------------------ */

static void add_mark(struct memory_heaps *heaps, struct memory_mark *mark, uint32_t process)
{
	uint32_t index = memory_heaps_get(heaps, mark->segment, process);
	struct memory_heap *heap = memory_heap_at(heaps, index);

	if (mark->event >= PROF_HEAP_STATIC) {
		heap->excluded = mark->event;
		return;
	}
	heap->inherited = MAX_OF(heap->inherited, mark->inherited);
	mark->heap = index;
	mark->before = heap->last;
	/* Look-ups need marks in time order, so drop a mark that is out of order. */
	if (heap->last && memory_mark_at(heaps, heap->last - 1)->time > mark->time)
		return;
	g_array_append_vals(heaps->marks, mark, 1);
	heap->last = heaps->marks->len;
	if (!heap->first)
		heap->first = heap->last;
	heap->end = mark->event == PROF_HEAP_END ? heap->last : 0;
}

static bool heap_rows(struct names_epoch *names, const struct prof_batch *batch, void *data,
		      GError **error)
{
	const struct prof_array *c = batch->columns;

	for (size_t i = 0; i < batch->rows; i++) {
		struct memory_mark mark = {
			.time = array_number_or(&c[PROF_HEAP_TIME], i, 0),
			.segment = batch->segment,
			.event = (uint32_t)MIN_OF(array_number_or(&c[PROF_HEAP_EVENT], i, 0),
						  (uint64_t)PROF_HEAP_EVENTS),
			.live_bytes = array_number_or(&c[PROF_HEAP_LIVE_BYTES], i, 0),
			.live_blocks = array_number_or(&c[PROF_HEAP_LIVE_BLOCKS], i, 0),
			.peak_bytes = array_number_or(&c[PROF_HEAP_PEAK_BYTES], i, 0),
			.peak_time = array_number_or(&c[PROF_HEAP_PEAK_TIME], i, 0),
			.inherited = array_number_or(&c[PROF_HEAP_INHERITED], i, 0),
		};
		uint32_t process =
			names_process(names, array_number_or(&c[PROF_HEAP_PROCESS], i, 0));

		if (process > NAMES_LOST)
			add_mark(data, &mark, process);
	}
	return true;
}

/* ---- how processes ended --------------------------------------------------------------------- */

const char *const memory_end_names[] = { "running", "exit", "killed", "exec" };

static void set_end(struct memory_heaps *heaps, uint32_t process, enum memory_end end)
{
	*memory_byte_at(heaps->ends, process) = (uint8_t)end; /* new bytes are 0: MEMORY_RUNNING */
}

struct ends {
	struct memory_heaps *heaps;
	GArray *left; /* int by process: threads that have not ended */
};

static int *left_of(GArray *left, uint32_t process)
{
	if (process >= left->len)
		g_array_set_size(left, process + 1);
	return &((int *)(void *)left->data)[process];
}

/* Reads exits. The status has the format of wait(): the low bits are the signal. */
static bool task_rows(struct names_epoch *names, const struct prof_batch *batch, void *data,
		      GError **error)
{
	const struct prof_array *c = batch->columns;
	struct ends *ends = data;

	for (size_t i = 0; i < batch->rows; i++) {
		uint32_t thread = names_thread(names, array_number_or(&c[0], i, 0));
		uint32_t process = names_thread_at(names->names, thread)->process;
		uint64_t event = array_number_or(&c[1], i, PROF_TASK_EXISTS);
		int *left;

		if (process <= NAMES_LOST || (event != PROF_TASK_EXIT && event != PROF_TASK_STATUS))
			continue;
		/* A process with an exit status has no threads left, even if their exits were
		 * lost. */
		left = left_of(ends->left, process);
		*left = event == PROF_TASK_STATUS ? INT_MIN / 2 : *left - 1;
		if (event == PROF_TASK_STATUS ||
		    memory_heaps_end(ends->heaps, process) == MEMORY_RUNNING)
			set_end(ends->heaps, process,
				array_number_or(&c[2], i, 0) & 0x7f ? MEMORY_KILLED : MEMORY_EXIT);
	}
	return true;
}

KEYED_BY(process, struct names_process, a->pid, a->start_time, a->exec_generation)

/* Finds processes that called exec: the process after exec differs only in its exec_generation. */
static void find_execs(struct memory_heaps *heaps)
{
	const struct names *names = heaps->reader->capture->names;
	g_autoptr(GHashTable) all = g_hash_table_new(process_hash, process_equal);

	for (uint32_t i = NAMES_LOST + 1; i < names->processes->len; i++)
		g_hash_table_add(all, (gpointer)names_process_at(names, i));
	for (uint32_t i = NAMES_LOST + 1; i < names->processes->len; i++) {
		struct names_process successor = *names_process_at(names, i);

		successor.exec_generation++;
		if (g_hash_table_contains(all, &successor))
			set_end(heaps, i, MEMORY_EXEC);
	}
}

static bool read_ends(struct memory_heaps *heaps, GError **error)
{
	static const uint16_t columns[] = { PROF_TASK_THREAD, PROF_TASK_EVENT,
					    PROF_TASK_EXIT_STATUS };
	const struct prof_cursor_options options = { .table = PROF_TABLE_TASK,
						     .columns = columns,
						     .n_columns = ARRAY_SIZE(columns) };
	const struct names *names = heaps->reader->capture->names;
	g_autoptr(GArray) left = g_array_new(FALSE, TRUE, sizeof(int));
	struct ends ends = { heaps, left };

	if (!names_each_batch(heaps->reader->capture->names, &options, task_rows, &ends, error))
		return false;
	/* A process runs as long as any of its threads does. */
	for (uint32_t i = NAMES_LOST + 1; i < names->threads->len; i++)
		(*left_of(left, names_thread_at(names, i)->process))++;
	for (uint32_t i = 0; i < left->len; i++)
		if (*left_of(left, i) > 0)
			set_end(heaps, i, MEMORY_RUNNING);
	find_execs(heaps);
	ARRAY_EACH(struct memory_heap, heap, heaps->heaps)
		heap->has_ended = memory_heaps_end(heaps, heap->process) != MEMORY_RUNNING;
	return true;
}

bool memory_heaps_init(struct memory_heaps *heaps, struct memory_tree *tree, GError **error)
{
	const struct prof_cursor_options options = { .table = PROF_TABLE_HEAP };

	*heaps = (struct memory_heaps){ .reader = tree->reader, .tree = tree };
	number_map_init(&heaps->index);
	heaps->marks = g_array_new(FALSE, FALSE, sizeof(struct memory_mark));
	heaps->heaps = g_array_new(FALSE, FALSE, sizeof(struct memory_heap));
	heaps->ends = g_byte_array_new();
	return names_each_batch(heaps->reader->capture->names, &options, heap_rows, heaps, error) &&
	       read_ends(heaps, error);
}

void memory_heaps_done(struct memory_heaps *heaps)
{
	if (!heaps->marks)
		return;
	g_array_unref(heaps->marks);
	g_array_unref(heaps->heaps);
	g_byte_array_unref(heaps->ends);
	number_map_done(&heaps->index);
	*heaps = (struct memory_heaps){ 0 };
}

/* ---- live ------------------------------------------------------------------------------------ */

struct live_pass {
	struct memory_heaps *heaps;
	uint32_t *marks;                /* by heap: index + 1 of the mark to read */
	uint64_t *found;                /* by heap: number of blocks found */
	const struct memory_mark *only; /* read only blocks of this mark's time; NULL: all times */
	void (*live)(const struct memory_live *live, void *data);
	void *data;
};

enum { TIME, THREAD, KIND, BLOCK, SIZE, STACK, SINCE, N_COLUMNS };
static const uint16_t live_columns[N_COLUMNS] = { PROF_LIVE_TIME, PROF_LIVE_THREAD,
						  PROF_LIVE_KIND, PROF_LIVE_BLOCK,
						  PROF_LIVE_SIZE, PROF_LIVE_STACK,
						  PROF_LIVE_SINCE };

static bool live_rows(struct names_epoch *names, const struct prof_batch *batch, void *data,
		      GError **error)
{
	struct live_pass *pass = data;
	struct memory_heaps *heaps = pass->heaps;
	struct memory_epoch *epoch = memory_tree_epoch(heaps->tree, names, error);
	const struct prof_array *c = batch->columns;

	heaps->n_rows += batch->rows;
	for (size_t i = 0; epoch && i < batch->rows; i++) {
		uint32_t thread = names_thread(names, array_number_or(&c[THREAD], i, 0));
		uint32_t process = names_thread_at(names->names, thread)->process;
		uint32_t heap =
			number_map_get(&heaps->index, (uint64_t)batch->segment << 32 | process);
		uint64_t time = array_number_or(&c[TIME], i, 0);
		struct memory_live live = {
			.heap = heap - 1,
			.block = { .number = array_number_or(&c[BLOCK], i, 0),
				   .size = array_number_or(&c[SIZE], i, 0),
				   .thread = thread,
				   .is_mapping = array_number_or(&c[KIND], i, 0) >=
						 PROF_ALLOC_MMAP },
			.more.since = array_number_or(&c[SINCE], i, time),
		};

		if (heap == 0 || pass->marks[heap - 1] == 0 ||
		    (pass->only && pass->only->time != time) ||
		    memory_mark_at(heaps, pass->marks[heap - 1] - 1)->time != time)
			continue;
		pass->found[heap - 1]++;
		live.block.node = memory_tree_node(
			heaps->tree, epoch, array_number_or(&c[STACK], i, 0), batch->segment, time);
		memory_weigh(heaps, &live);
		pass->live(&live, pass->data);
	}
	return epoch;
}

static gint compare_marks(gconstpointer left, gconstpointer right, gpointer data)
{
	const struct memory_mark *a = memory_mark_at(data, *(const uint32_t *)left - 1);
	const struct memory_mark *b = memory_mark_at(data, *(const uint32_t *)right - 1);

	return ORDER_BY(ORDER(a->segment, b->segment), ORDER(a->time, b->time));
}

/* Reads the blocks of a mark's time; if `mark` is NULL, of all times. */
static bool read_at(struct live_pass *pass, const struct memory_mark *mark, GError **error)
{
	const struct prof_cursor_options options = {
		.table = PROF_TABLE_LIVE,
		.columns = live_columns,
		.n_columns = N_COLUMNS,
		.segment = mark ? mark->segment : 0,
		.t_from = mark ? mark->time : 0,
		/* The range 0 to 0 would select all rows. */
		.t_to = mark ? MAX_OF(mark->time, UINT64_C(1)) : 0,
	};

	pass->only = mark;
	return names_each_batch(pass->heaps->reader->capture->names, &options, live_rows, pass,
				error);
}

bool memory_heaps_read_live(struct memory_heaps *heaps, const uint32_t *marks, size_t n,
			    void (*live)(const struct memory_live *live, void *data), void *data,
			    bool *ret_broken, GError **error)
{
	g_autoptr(GArray) times = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	g_autofree uint32_t *wanted = g_new0(uint32_t, heaps->heaps->len + 1);
	g_autofree uint64_t *found = g_new0(uint64_t, heaps->heaps->len + 1);
	struct live_pass pass = { heaps, wanted, found, NULL, live, data };
	guint n_times = 0;

	for (size_t i = 0; i < n; i++)
		wanted[memory_mark_at(heaps, marks[i] - 1)->heap] = marks[i];
	g_array_append_vals(times, marks, (guint)n);
	g_array_sort_with_data(times, compare_marks, heaps);
	for (guint i = 0; i < n; i++) {
		const uint32_t *at = &g_array_index(times, uint32_t, i);

		if (i == 0 || compare_marks(at - 1, at, heaps) != 0)
			g_array_index(times, uint32_t, n_times++) = *at;
	}
	if (n_times > MOST_TIMES && !read_at(&pass, NULL, error))
		return false;
	for (guint i = 0; n_times <= MOST_TIMES && i < n_times; i++)
		if (!read_at(&pass, memory_mark_at(heaps, g_array_index(times, uint32_t, i) - 1),
			     error))
			return false;
	*ret_broken = false;
	for (size_t i = 0; i < n; i++) {
		struct memory_mark *mark = memory_mark_at(heaps, marks[i] - 1);

		if (found[mark->heap] < mark->live_blocks)
			*ret_broken = mark->is_broken = true;
	}
	return true;
}
