/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory-heaps - the state of each process's heap over time, as marks record it
 *
 * Invariants: (1) all blocks of a mark count or none: blocks lost to a cut or damage are found by
 *                 the mark's number of blocks  [test-memory: broken]
 *             (2) the cost of reading a mark's blocks depends on them, not on the file
 *                 [bench_memory_reader]
 */
#include "config.h"

#include "tools/profcapture/memory-heaps.h"

#include "tools/common/capture-error.h"

#include <glib/gi18n.h>
#include <math.h>

/* At most this many different times are looked up one by one. For more, the whole table is read. */
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
	/* Marks are in time order. A mark out of order cannot be looked up, so it is dropped. */
	if (heap->last && memory_mark_at(heaps, heap->last - 1)->time > mark->time)
		return;
	g_array_append_vals(heaps->marks, mark, 1);
	heap->last = heaps->marks->len;
	if (!heap->first)
		heap->first = heap->last;
	heap->end = mark->event == PROF_HEAP_END ? heap->last : 0;
}

static void add_marks(struct memory_heaps *heaps, struct names_epoch *names,
		      const struct prof_batch *batch)
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
			add_mark(heaps, &mark, process);
	}
}

static bool read_table(struct memory_heaps *heaps, const struct prof_cursor_options *options,
		       bool (*rows)(struct memory_heaps *heaps, struct names_epoch *names,
				    const struct prof_batch *batch, void *data, GError **error),
		       void *data, GError **error)
{
	struct capture *capture = heaps->reader->capture;
	struct prof_cursor *cursor;
	struct prof_batch batch;
	bool ok = true;
	int r = prof_cursor_new(capture->reader, options, &cursor);

	if (r == PROF_NO_TABLE)
		return true;
	if (r != 0)
		return capture_error(error, r, _("cannot read allocations of '%s'"), capture->file);
	while (ok && (r = prof_cursor_next(cursor, &batch)) == 0) {
		struct names_epoch *names = names_epoch(capture->names, batch.epoch, error);

		ok = names && names_load_identities(names, error) &&
		     rows(heaps, names, &batch, data, error);
	}
	prof_cursor_free(cursor);
	return ok && (r == PROF_END ||
		      capture_error(error, r, _("cannot read allocations of '%s'"), capture->file));
}

static bool heap_rows(struct memory_heaps *heaps, struct names_epoch *names,
		      const struct prof_batch *batch, void *data, GError **error)
{
	(void)data;
	(void)error;
	add_marks(heaps, names, batch);
	return true;
}

/* ---- how processes ended --------------------------------------------------------------------- */

const char *const memory_end_names[] = { "running", "exit", "killed", "exec" };

static void set_end(struct memory_heaps *heaps, uint32_t process, enum memory_end end)
{
	guint before = heaps->ends->len;

	if (before <= process) {
		g_byte_array_set_size(heaps->ends, process + 64);
		memset(heaps->ends->data + before, MEMORY_RUNNING, heaps->ends->len - before);
	}
	heaps->ends->data[process] = (uint8_t)end;
}

static int *left_of(GArray *left, uint32_t process)
{
	if (process >= left->len)
		g_array_set_size(left, process + 1);
	return &((int *)(void *)left->data)[process];
}

/* The status has the format of wait(): the low bits are the signal. */
static void add_ends(struct memory_heaps *heaps, struct names_epoch *names,
		     const struct prof_batch *batch, GArray *left)
{
	const struct prof_array *c = batch->columns;

	for (size_t i = 0; i < batch->rows; i++) {
		uint32_t thread = names_thread(names, array_number_or(&c[0], i, 0));
		uint32_t process = names_thread_at(names->names, thread)->process;
		uint64_t event = array_number_or(&c[1], i, PROF_TASK_EXISTS);

		if (process <= NAMES_LOST || (event != PROF_TASK_EXIT && event != PROF_TASK_STATUS))
			continue;
		/* A process that was waited for has no threads left, even if their exits were
		 * lost. */
		*left_of(left, process) = event == PROF_TASK_STATUS ? INT_MIN / 2
								    : *left_of(left, process) - 1;
		if (event == PROF_TASK_EXIT && memory_heaps_end(heaps, process) != MEMORY_RUNNING)
			continue;
		set_end(heaps, process,
			array_number_or(&c[2], i, 0) & 0x7f ? MEMORY_KILLED : MEMORY_EXIT);
	}
}

static bool task_rows(struct memory_heaps *heaps, struct names_epoch *names,
		      const struct prof_batch *batch, void *data, GError **error)
{
	(void)error;
	add_ends(heaps, names, batch, data);
	return true;
}

static guint same_process_hash(gconstpointer key)
{
	const struct names_process *process = key;

	return (guint)(process->pid * 2654435761u ^ process->start_time ^
		       (process->exec_generation << 7));
}

static gboolean same_process(gconstpointer left, gconstpointer right)
{
	const struct names_process *a = left, *b = right;

	return a->pid == b->pid && a->start_time == b->start_time &&
	       a->exec_generation == b->exec_generation;
}

/* A process that called exec has a successor that differs only in its generation. */
static void find_execs(struct memory_heaps *heaps)
{
	const struct names *names = heaps->reader->capture->names;
	g_autoptr(GHashTable) all = g_hash_table_new(same_process_hash, same_process);

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

	if (!read_table(heaps, &options, task_rows, left, error))
		return false;
	/* A process runs as long as any of its threads. */
	for (uint32_t i = NAMES_LOST + 1; i < names->threads->len; i++)
		(*left_of(left, names_thread_at(names, i)->process))++;
	for (uint32_t i = 0; i < left->len; i++)
		if (*left_of(left, i) > 0)
			set_end(heaps, i, MEMORY_RUNNING);
	find_execs(heaps);
	for (uint32_t i = 0; i < heaps->heaps->len; i++) {
		struct memory_heap *heap = memory_heap_at(heaps, i);

		heap->has_ended = memory_heaps_end(heaps, heap->process) != MEMORY_RUNNING;
	}
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
	return read_table(heaps, &options, heap_rows, NULL, error) && read_ends(heaps, error);
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
	uint32_t *marks;                /* by heap: index + 1 of the wanted mark */
	uint64_t *found;                /* by heap */
	const struct memory_mark *only; /* read only its time; NULL: all times */
	void (*live)(const struct memory_live *live, void *data);
	void *data;
};

enum { TIME, THREAD, KIND, BLOCK, SIZE, STACK, SINCE, N_COLUMNS };
static const uint16_t live_columns[N_COLUMNS] = { PROF_LIVE_TIME, PROF_LIVE_THREAD,
						  PROF_LIVE_KIND, PROF_LIVE_BLOCK,
						  PROF_LIVE_SIZE, PROF_LIVE_STACK,
						  PROF_LIVE_SINCE };

static bool live_rows(struct memory_heaps *heaps, struct names_epoch *names,
		      const struct prof_batch *batch, void *data, GError **error)
{
	struct live_pass *pass = data;
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
		pass->live(&live, pass->data);
	}
	return epoch;
}

static gint compare_marks(gconstpointer left, gconstpointer right, gpointer data)
{
	const struct memory_heaps *heaps = data;
	const struct memory_mark *a = memory_mark_at(heaps, *(const uint32_t *)left - 1);
	const struct memory_mark *b = memory_mark_at(heaps, *(const uint32_t *)right - 1);

	if (a->segment != b->segment)
		return a->segment < b->segment ? -1 : 1;
	return a->time < b->time ? -1 : a->time > b->time;
}

static bool read_at(struct memory_heaps *heaps, const struct memory_mark *mark,
		    struct live_pass *pass, GError **error)
{
	const struct prof_cursor_options options = {
		.table = PROF_TABLE_LIVE,
		.columns = live_columns,
		.n_columns = N_COLUMNS,
		.segment = mark ? mark->segment : 0,
		.t_from = mark ? mark->time : 0,
		/* 0, 0 would select all rows. */
		.t_to = mark ? MAX_OF(mark->time, UINT64_C(1)) : 0,
	};

	pass->only = mark;
	return read_table(heaps, &options, live_rows, pass, error);
}

static size_t count_times(const struct memory_heaps *heaps, const uint32_t *sorted, size_t n)
{
	size_t times = n > 0;

	for (size_t i = 1; i < n; i++)
		times += compare_marks(&sorted[i - 1], &sorted[i], (gpointer)heaps) != 0;
	return times;
}

static bool read_all(struct memory_heaps *heaps, struct live_pass *pass, const uint32_t *sorted,
		     size_t n, GError **error)
{
	if (count_times(heaps, sorted, n) > MOST_TIMES)
		return read_at(heaps, NULL, pass, error);
	for (size_t i = 0; i < n; i++)
		if ((i == 0 || compare_marks(&sorted[i - 1], &sorted[i], heaps) != 0) &&
		    !read_at(heaps, memory_mark_at(heaps, sorted[i] - 1), pass, error))
			return false;
	return true;
}

bool memory_heaps_read_live(struct memory_heaps *heaps, const uint32_t *marks, size_t n,
			    void (*live)(const struct memory_live *live, void *data), void *data,
			    bool *ret_broken, GError **error)
{
	g_autofree uint32_t *sorted = g_memdup2(marks, n * sizeof(*marks));
	g_autofree uint32_t *wanted = g_new0(uint32_t, heaps->heaps->len + 1);
	g_autofree uint64_t *found = g_new0(uint64_t, heaps->heaps->len + 1);
	struct live_pass pass = { .marks = wanted, .found = found, .live = live, .data = data };

	for (size_t i = 0; i < n; i++)
		wanted[memory_mark_at(heaps, marks[i] - 1)->heap] = marks[i];
	if (n > 1)
		g_qsort_with_data(sorted, (gint)n, sizeof(*sorted), compare_marks, heaps);
	if (!read_all(heaps, &pass, sorted, n, error))
		return false;
	*ret_broken = false;
	for (size_t i = 0; i < n; i++) {
		struct memory_mark *mark = memory_mark_at(heaps, marks[i] - 1);

		if (found[mark->heap] < mark->live_blocks)
			*ret_broken = mark->is_broken = true;
	}
	return true;
}
