/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The source is read in parts. A part is one epoch of one segment. Its tables are read one after
 * another, because the format only requires that the rows of a table keep their order.
 *
 * A slice (the time range that `cut` keeps) needs state from before its start: a task row "exists"
 * for each live thread, and the mappings, generated code and live blocks of their processes. It
 * also gets all metadata, except the memory settings of earlier segments. A loss that overlaps the
 * slice is kept with its full count, because its distribution over time is unknown. A switch row
 * that crosses an end of the slice is clamped. A thread that is not on a CPU at an end of the slice
 * gets a switch row of length 0 there (at the later end, only if the source has later switch rows).
 * So readers also find the off-CPU time from the start of the slice to the thread's next switch,
 * and from its last switch to the end of the slice.
 */
#include "config.h"

#include "tools/profcapture/rewrite.h"

#include "base/each.h"
#include "base/order.h"
#include "tools/common/sorted.h"
#include "tools/profcapture/rewrite-heaps.h"
#include "tools/profcapture/row-copier.h"

#include <assert.h>

struct rewrite {
	struct capture *from;
	const struct rewrite_options *options;
	struct new_capture to;
	struct row_copier copier;
	GArray *parts; /* struct rewrite_part, in order */
	size_t first;  /* index of the first segment that is kept */
	/* segment of the source that is being copied; NULL at first */
	const struct prof_segment *segment;
	uint64_t start, end; /* clock range of the rows to keep */
	/* set of row_key(): the task rows of threads that are alive at the start of the slice */
	GHashTable *alive_rows;
	GHashTable *alive_processes; /* set of processes: indexes in names */
	GHashTable *alive_threads;   /* set of threads: indexes in names */
	GHashTable *states; /* thread (index in names) → struct thread_state at the current row */
	GHashTable *exited_threads; /* set of threads that exited in the slice */
	bool cuts_switches;         /* a switch row after the end was seen */
	GArray *damages;            /* struct damage_row, by segment and time */
	guint next_damage;
	bool is_damaged; /* a loss row was added for damage other than a cut-off end */
	uint64_t rows;
	/* ordinal of the current task row, from the first segment that is kept */
	uint64_t task_row;
	bool before; /* reading a segment before the first one that is kept: metadata only */
};

/* Damage for which a loss row is added. */
struct damage_row {
	uint64_t offset;
	uint32_t segment;
	uint64_t time, time_end;
	const char *stream;
	uint64_t count, bytes;
	bool is_cut;
	bool is_timed; /* a timed table lost rows; else names were lost, which any row may need */
};

/* The state of a thread after its last switch row, and its id in the row's epoch. */
struct thread_state {
	uint64_t thread; /* index in names */
	uint64_t id;
	uint32_t epoch, state;
};

/* ---- parts ----------------------------------------------------------------------------------- */

static bool list_part(const struct prof_chunk *chunk, void *data, GError **error)
{
	GArray *parts = data;
	const struct rewrite_part new = { .key = (uint64_t)chunk->segment << 32 | chunk->epoch,
					  .segment = chunk->segment,
					  .epoch = chunk->epoch };
	guint i = parts->len;

	while (i > 0 && g_array_index(parts, struct rewrite_part, i - 1).key != new.key)
		i--;
	if (i == 0) {
		g_array_append_val(parts, new);
		i = parts->len;
	}
	if (chunk->table == PROF_TABLE_STACK)
		g_array_index(parts, struct rewrite_part, i - 1).dictionary_rows += chunk->rows;
	return true;
}

/* ---- segments -------------------------------------------------------------------------------- */

static int64_t segment_start(const struct rewrite *rewrite, const struct prof_segment *segment)
{
	return capture_time(rewrite->from, segment->number, segment->start_monotonic_ns);
}

/* Returns whether the slice overlaps the segment, which lasts until the next one begins. */
static bool segment_kept(const struct rewrite *rewrite, size_t index)
{
	const struct rewrite_options *options = rewrite->options;
	const struct prof_segment *segments = rewrite->from->segments;
	bool last = index + 1 == rewrite->from->n_segments;

	if (!options->timed)
		return true;
	if (!last && segment_start(rewrite, &segments[index + 1]) <= options->from_ns)
		return false;
	return index == 0 || segment_start(rewrite, &segments[index]) <= options->to_ns;
}

static size_t segment_index(const struct rewrite *rewrite, uint32_t number)
{
	for (size_t i = 0; i < rewrite->from->n_segments; i++)
		if (rewrite->from->segments[i].number == number)
			return i;
	return SIZE_MAX;
}

/* Returns the segment's header for the new capture. Sets the clock range of the rows to keep. */
static struct prof_segment use_segment(struct rewrite *rewrite, const struct prof_segment *segment)
{
	const struct rewrite_options *options = rewrite->options;
	struct prof_segment new = *segment;

	rewrite->segment = segment;
	rewrite->start = 0;
	rewrite->end = UINT64_MAX;
	if (!options->timed)
		return new;
	if (options->from_ns != INT64_MIN)
		rewrite->start = capture_clock(rewrite->from, segment->number, options->from_ns);
	if (options->to_ns != INT64_MAX)
		rewrite->end = capture_clock(rewrite->from, segment->number, options->to_ns);
	if (rewrite->start > segment->start_monotonic_ns) {
		new.start_monotonic_ns = rewrite->start;
		new.wall_ns = (int64_t)((uint64_t)segment->wall_ns + rewrite->start -
					segment->start_monotonic_ns);
	}
	return new;
}

/* ---- threads alive when a slice begins ------------------------------------------------------- */

/* Returns the key of a task row: its ordinal number in the order of reading. */
static gpointer row_key(uint64_t ordinal)
{
	return GSIZE_TO_POINTER((gsize)ordinal + 1);
}

struct alive {
	uint32_t thread; /* index in names */
	uint64_t ordinal;
};

/* Handles a row; returns false to stop. */
typedef bool each_row_function(struct rewrite *rewrite, struct names_epoch *epoch,
			       const struct prof_batch *batch, size_t row, void *data,
			       GError **error);

struct each_row {
	struct rewrite *rewrite;
	each_row_function *row;
	void *data;
};

static bool each_row_of_batch(struct names_epoch *epoch, const struct prof_batch *batch, void *data,
			      GError **error)
{
	const struct each_row *each = data;

	for (size_t i = 0; i < batch->rows; i++)
		if (!each->row(each->rewrite, epoch, batch, i, each->data, error))
			return false;
	return true;
}

static bool each_row(struct rewrite *rewrite, const struct rewrite_part *part, unsigned table,
		     each_row_function *row, void *data, GError **error)
{
	const struct prof_cursor_options options = { .table = table,
						     .segment = part->segment,
						     .epoch = part->epoch };
	struct each_row each = { rewrite, row, data };

	return names_each_batch(rewrite->from->names, &options, each_row_of_batch, &each, error);
}

static bool each_row_of_segment(struct rewrite *rewrite, const struct prof_segment *segment,
				unsigned table, each_row_function *row, void *data, GError **error)
{
	ARRAY_EACH(const struct rewrite_part, part, rewrite->parts)
		if (part->segment == segment->number &&
		    !each_row(rewrite, part, table, row, data, error))
			return false;
	return true;
}

struct scan {
	GHashTable *alive; /* tid → struct alive */
	uint64_t ordinal;
	uint64_t before; /* time of the slice's start, as a clock value */
};

static bool scan_task(struct rewrite *rewrite, struct names_epoch *epoch,
		      const struct prof_batch *batch, size_t row, void *data, GError **error)
{
	const struct prof_array *columns = batch->columns;
	struct scan *scan = data;
	const struct alive entry = {
		.thread = names_thread(epoch, array_number_or(&columns[PROF_TASK_THREAD], row, 0)),
		.ordinal = scan->ordinal++,
	};
	uint64_t tid = names_thread_at(rewrite->from->names, entry.thread)->tid;

	if (array_number_or(&columns[PROF_TASK_TIME], row, 0) >= scan->before ||
	    entry.thread <= NAMES_LOST)
		return true;
	if (array_number_or(&columns[PROF_TASK_EVENT], row, PROF_TASK_EXISTS) == PROF_TASK_EXIT)
		g_hash_table_remove(scan->alive, GSIZE_TO_POINTER((gsize)tid));
	else
		g_hash_table_replace(scan->alive, GSIZE_TO_POINTER((gsize)tid),
				     g_memdup2(&entry, sizeof(entry)));
	return true;
}

static bool find_alive(struct rewrite *rewrite, const struct prof_segment *segment, GError **error)
{
	struct scan scan = { .before = rewrite->start };
	GHashTableIter iter;
	struct alive *alive;
	bool ok;

	scan.alive = g_hash_table_new_full(NULL, NULL, NULL, g_free);
	ok = each_row_of_segment(rewrite, segment, PROF_TABLE_TASK, scan_task, &scan, error);
	g_hash_table_iter_init(&iter, scan.alive);
	while (g_hash_table_iter_next(&iter, NULL, (gpointer *)&alive)) {
		uint32_t process = names_thread_at(rewrite->from->names, alive->thread)->process;

		g_hash_table_add(rewrite->alive_rows, row_key(alive->ordinal));
		g_hash_table_add(rewrite->alive_processes, GUINT_TO_POINTER(process));
		g_hash_table_add(rewrite->alive_threads, GUINT_TO_POINTER(alive->thread));
	}
	g_hash_table_unref(scan.alive);
	return ok;
}

/* ---- thread states at the ends of a slice ---------------------------------------------------- */

/* Stores the state of a row's thread. `reaches`: the row covers the start or end of the slice, so
 * the thread is on a CPU there. */
static void note_state(struct rewrite *rewrite, struct names_epoch *epoch,
		       const struct prof_batch *batch, size_t row, bool reaches)
{
	const struct prof_array *columns = batch->columns;
	struct thread_state state = { .epoch = batch->epoch, .state = PROF_SWITCH_RUNNING };

	state.id = array_number_or(&columns[PROF_SWITCH_THREAD], row, 0);
	state.thread = names_thread(epoch, state.id);
	if (!reaches)
		state.state = (uint32_t)array_number_or(&columns[PROF_SWITCH_STATE], row,
							PROF_SWITCH_RUNNING);
	if (state.thread > NAMES_LOST)
		g_hash_table_replace(rewrite->states, GSIZE_TO_POINTER((gsize)state.thread),
				     g_memdup2(&state, sizeof(state)));
}

static bool scan_switch(struct rewrite *rewrite, struct names_epoch *epoch,
			const struct prof_batch *batch, size_t row, void *data, GError **error)
{
	uint64_t time = array_number_or(&batch->columns[PROF_SWITCH_TIME], row, 0);
	bool is_after = time >= rewrite->start;

	if (!is_after ||
	    array_number_or(&batch->columns[PROF_SWITCH_START], row, time) < rewrite->start)
		note_state(rewrite, epoch, batch, row, is_after);
	return true;
}

/* Writes a switch row for each thread that has not exited and is not on a CPU at `time`. */
static bool write_states(struct rewrite *rewrite, uint64_t time, GError **error)
{
	g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(struct thread_state));
	struct row_copier *copier = &rewrite->copier;
	const struct thread_state *state;
	GHashTableIter iter;
	gpointer thread;
	bool ok = true;

	g_hash_table_iter_init(&iter, rewrite->states);
	while (g_hash_table_iter_next(&iter, &thread, (gpointer *)&state))
		if (state->state != PROF_SWITCH_RUNNING &&
		    !g_hash_table_contains(rewrite->exited_threads, thread))
			g_array_append_vals(all, state, 1);
	g_array_sort(all, sorted_compare);
	for (guint i = 0; ok && i < all->len; i++) {
		struct prof_value values[PROF_MAX_COLUMNS] = {
			[PROF_SWITCH_TIME] = PROF_NUMBER(time),
			[PROF_SWITCH_CPU] = PROF_NUMBER(PROF_SWITCH_NO_CPU),
			[PROF_SWITCH_START] = PROF_NUMBER(time),
		};

		state = &g_array_index(all, struct thread_state, i);
		row_copier_use(copier, state->epoch);
		values[PROF_SWITCH_THREAD] =
			PROF_NUMBER(row_copier_id(copier, PROF_TABLE_THREAD, state->id));
		values[PROF_SWITCH_STATE] = PROF_NUMBER(state->state);
		ok = row_copier_add(copier, PROF_TABLE_SWITCH, values, error);
	}
	return ok;
}

static gboolean is_not_alive(gpointer key, gpointer value, gpointer data)
{
	return !g_hash_table_contains(((struct rewrite *)data)->alive_threads, key);
}

/* Writes the state at the start of the slice: live blocks, and threads that are not on a CPU. */
static bool begin_slice(struct rewrite *rewrite, const struct prof_segment *segment, GError **error)
{
	if (!rewrite_heaps_copy(rewrite->from, segment->number, rewrite->start, rewrite->parts,
				&rewrite->copier, error) ||
	    !each_row_of_segment(rewrite, segment, PROF_TABLE_SWITCH, scan_switch, NULL, error))
		return false;
	g_hash_table_foreach_remove(rewrite->states, is_not_alive, rewrite);
	return write_states(rewrite, rewrite->start, error);
}

static bool end_states(struct rewrite *rewrite, GError **error)
{
	bool ok = !rewrite->cuts_switches || write_states(rewrite, rewrite->end, error);

	rewrite->cuts_switches = false;
	g_hash_table_remove_all(rewrite->states);
	g_hash_table_remove_all(rewrite->exited_threads);
	return ok;
}

/* Tracks thread states and exits over the rows of the slice. */
static void follow_row(struct rewrite *rewrite, unsigned table, struct names_epoch *epoch,
		       const struct prof_batch *batch, size_t row)
{
	const struct prof_array *c = batch->columns;
	uint64_t time = array_number_or(&c[0], row, 0);

	if (!rewrite->options->timed || rewrite->before)
		return;
	if (table == PROF_TABLE_SWITCH && time > rewrite->end) {
		rewrite->cuts_switches = true;
		if (array_number_or(&c[PROF_SWITCH_START], row, time) <= rewrite->end)
			note_state(rewrite, epoch, batch, row, true);
	} else if (time < rewrite->start || time > rewrite->end) {
		return;
	} else if (table == PROF_TABLE_SWITCH) {
		note_state(rewrite, epoch, batch, row, false);
	} else if (table == PROF_TABLE_TASK &&
		   array_number_or(&c[PROF_TASK_EVENT], row, 0) == PROF_TASK_EXIT) {
		uint64_t id = array_number_or(&c[PROF_TASK_THREAD], row, 0);

		g_hash_table_add(rewrite->exited_threads,
				 GUINT_TO_POINTER(names_thread(epoch, id)));
	}
}

/* ---- rows to keep ---------------------------------------------------------------------------- */

/* Returns whether a row from before the slice is kept, because it sets state that still holds in
 * the slice. */
static bool state_stays(struct rewrite *rewrite, const struct prof_table_def *def,
			struct names_epoch *epoch, const struct prof_batch *batch, size_t row)
{
	const struct prof_array *c = batch->columns;
	uint32_t process;

	static_assert((int)PROF_JIT_PROCESS == (int)PROF_MAPPING_PROCESS, "columns");
	switch (def->id) {
	case PROF_TABLE_LOSS:
		return array_number_or(&c[PROF_LOSS_TIME_END], row, 0) >= rewrite->start;
	case PROF_TABLE_TASK:
		return g_hash_table_contains(rewrite->alive_rows, row_key(rewrite->task_row));
	case PROF_TABLE_MAPPING:
	case PROF_TABLE_JIT:
		process = names_process(epoch, array_number_or(&c[PROF_MAPPING_PROCESS], row, 0));
		return g_hash_table_contains(rewrite->alive_processes, GUINT_TO_POINTER(process));
	default:
		return false;
	}
}

/* Returns whether to keep metadata. Memory settings from segments before the slice are dropped,
 * because they do not apply to later segments. */
static bool metadata_stays(const struct rewrite *rewrite, const struct prof_batch *batch,
			   size_t row)
{
	static const char prefix[] = "memory.";
	const struct prof_array *key = &batch->columns[PROF_METADATA_KEY];
	size_t length = sizeof(prefix) - 1;

	return !rewrite->before || !key->bytes || !key->offsets ||
	       key->offsets[row + 1] - key->offsets[row] < length ||
	       memcmp(key->bytes + key->offsets[row], prefix, length) != 0;
}

/* Returns whether to keep a row. Called before the dictionary rows that the row refers to are
 * copied, because those of a dropped row are not needed. */
static bool row_stays(struct rewrite *rewrite, const struct prof_table_def *def,
		      struct names_epoch *epoch, const struct prof_batch *batch, size_t row)
{
	uint64_t time;

	if (def->id == PROF_TABLE_METADATA)
		return metadata_stays(rewrite, batch, row);
	if (!(def->flags & PROF_TABLE_TIMED))
		return true;
	time = array_number_or(&batch->columns[0], row, 0);
	if (def->id == PROF_TABLE_WAIT) {
		uint64_t duration = array_number_or(&batch->columns[PROF_WAIT_DURATION], row, 0);

		return time > rewrite->start && time - MIN_OF(duration, time) < rewrite->end;
	}
	if (def->id == PROF_TABLE_SWITCH)
		return time >= rewrite->start && array_number_or(&batch->columns[PROF_SWITCH_START],
								 row, time) <= rewrite->end;
	if (time < rewrite->start)
		return state_stays(rewrite, def, epoch, batch, row);
	return time <= rewrite->end;
}

static uint64_t in_slice(const struct rewrite *rewrite, uint64_t time)
{
	return MIN_OF(MAX_OF(time, rewrite->start), rewrite->end);
}

/* Clamps the times of a row to [start, end], and adjusts the event or state that a clamped task or
 * switch row shows. */
static void fit_row(const struct rewrite *rewrite, const struct prof_table_def *def,
		    struct prof_value *values)
{
	if (!(def->flags & PROF_TABLE_TIMED))
		return;
	if (def->id == PROF_TABLE_TASK && values[0].number < rewrite->start)
		values[PROF_TASK_EVENT] = PROF_NUMBER(PROF_TASK_EXISTS);
	if (def->id == PROF_TABLE_SWITCH) {
		values[PROF_SWITCH_START].number =
			MAX_OF(values[PROF_SWITCH_START].number, rewrite->start);
		if (values[0].number > rewrite->end)
			values[PROF_SWITCH_STATE] = PROF_NUMBER(PROF_SWITCH_RUNNING);
	}
	if (def->id == PROF_TABLE_WAIT) {
		uint64_t time = values[0].number, *duration = &values[PROF_WAIT_DURATION].number;
		uint64_t start = time - MIN_OF(*duration, time);

		*duration = in_slice(rewrite, time) - in_slice(rewrite, start);
	}
	if (def->id == PROF_TABLE_LOSS)
		values[PROF_LOSS_TIME_END].number =
			in_slice(rewrite, values[PROF_LOSS_TIME_END].number);
	/* Clock values of a dropped segment are invalid in this segment. */
	if (rewrite->before || values[0].number < rewrite->start)
		values[0].number = rewrite->start;
	values[0].number = MIN_OF(values[0].number, rewrite->end);
}

/* ---- losses from damage of the file ---------------------------------------------------------- */

COMPARE_BY(compare_damages, struct damage_row, ORDER(a->segment, b->segment),
	   ORDER(a->time, b->time))

/* The state of date_damages(), which goes through the chunks and the damage in file order. */
struct dating {
	GArray *damages; /* struct damage_row, in file order */
	guint next;      /* index of the first damage whose times are not set */
	struct damage_row now;
};

/* Sets the times of damage: the times of the damaged chunk if the index has that chunk, else the
 * time between the chunks before and after the damage. */
static bool date_damages(const struct prof_chunk *chunk, void *data, GError **error)
{
	struct dating *dating = data;
	struct damage_row *now = &dating->now;

	if (chunk->t_max == 0)
		return true;
	for (; dating->next < dating->damages->len; dating->next++) {
		struct damage_row *row =
			&g_array_index(dating->damages, struct damage_row, dating->next);

		if (chunk->offset < row->offset)
			break;
		if (chunk->offset == row->offset) {
			row->segment = chunk->segment;
			row->time = chunk->t_min;
			row->time_end = chunk->t_max;
			continue;
		}
		row->segment = now->segment;
		row->time = row->time_end = now->time;
		if (chunk->segment == now->segment)
			row->time_end = MAX_OF(now->time, chunk->t_min);
	}
	now->time = now->segment == chunk->segment ? MAX_OF(now->time, chunk->t_max) : chunk->t_max;
	now->segment = chunk->segment;
	return true;
}

static bool date_all(struct rewrite *rewrite, GError **error)
{
	const struct prof_segment *segments = rewrite->from->segments;
	const struct prof_chunk end = { .offset = UINT64_MAX, .t_max = 1 };
	struct dating dating = { .damages = rewrite->damages };

	if (rewrite->damages->len == 0)
		return true;
	if (rewrite->from->n_segments) {
		dating.now.segment = segments[0].number;
		dating.now.time = segments[0].start_monotonic_ns;
	}
	g_array_sort(rewrite->damages, sorted_compare);
	if (!capture_each_chunk(rewrite->from, 0, date_damages, &dating, error))
		return false;
	(void)date_damages(&end, &dating, NULL);
	g_array_sort(rewrite->damages, compare_damages);
	return true;
}

static bool list_damages(struct rewrite *rewrite, GError **error)
{
	const GArray *damages = rewrite->options->file_damages;
	uint64_t second_at = prof_reader_info(rewrite->from->reader)->second_at;

	rewrite->damages = g_array_new(FALSE, TRUE, sizeof(struct damage_row));
	for (guint i = 0; damages && i < damages->len; i++) {
		const struct prof_damage *damage = &g_array_index(damages, struct prof_damage, i);
		const struct prof_table_def *table =
			prof_reader_table(rewrite->from->reader, damage->table);
		struct damage_row row = {
			.stream = table ? table->name : "unknown",
			.count = damage->rows == UINT64_MAX ? 0 : damage->rows,
			.bytes = damage->bytes,
			.offset = damage->offset,
			.is_cut = damage->reason == PROF_DAMAGE_CUT,
			.is_timed = table && table->flags & PROF_TABLE_TIMED,
		};

		/* Ignore damage without lost rows: a damaged index, or a file that ends after a
		 * whole chunk. Ignore damage from second_at on, which is in another capture. */
		if (damage->rows == 0 || damage->bytes == 0 ||
		    (second_at && damage->offset >= second_at))
			continue;
		g_array_append_val(rewrite->damages, row);
	}
	return date_all(rewrite, error);
}

static bool add_damage(struct rewrite *rewrite, const struct damage_row *row, GError **error)
{
	const struct prof_value values[PROF_MAX_COLUMNS] = {
		[PROF_LOSS_TIME] = PROF_NUMBER(in_slice(rewrite, row->time)),
		[PROF_LOSS_TIME_END] = PROF_NUMBER(in_slice(rewrite, row->time_end)),
		[PROF_LOSS_STREAM] = PROF_BYTES(row->stream, strlen(row->stream)),
		[PROF_LOSS_CAUSE] = PROF_NUMBER(PROF_LOSS_FILE_DAMAGE),
		[PROF_LOSS_COUNT] = PROF_NUMBER(row->count),
		[PROF_LOSS_BYTES] = PROF_NUMBER(row->bytes),
	};

	return row_copier_add(&rewrite->copier, PROF_TABLE_LOSS, values, error);
}

/* Adds the loss rows for damage up to this time of this segment. */
static bool add_damages(struct rewrite *rewrite, uint32_t segment, uint64_t time, GError **error)
{
	for (; rewrite->next_damage < rewrite->damages->len; rewrite->next_damage++) {
		const struct damage_row *row =
			&g_array_index(rewrite->damages, struct damage_row, rewrite->next_damage);

		if (row->segment > segment || (row->segment == segment && row->time > time))
			return true;
		if (rewrite->options->timed && row->is_timed &&
		    (row->segment != rewrite->segment->number || row->time > rewrite->end ||
		     row->time_end < rewrite->start))
			continue;
		if (!add_damage(rewrite, row, error))
			return false;
		rewrite->is_damaged |= !row->is_cut;
	}
	return true;
}

/* Adds metadata at the end of the slice, so that the new capture is not shorter than the slice. */
static bool add_metadata(struct rewrite *rewrite, const char *key, const char *value,
			 GError **error)
{
	uint64_t last =
		capture_clock(rewrite->from, rewrite->segment->number, rewrite->from->duration_ns);
	const struct prof_value values[PROF_METADATA_COLUMNS] = {
		[PROF_METADATA_TIME] = PROF_NUMBER(in_slice(rewrite, last)),
		[PROF_METADATA_KEY] = PROF_BYTES(key, strlen(key)),
		[PROF_METADATA_VALUE] = PROF_BYTES(value, strlen(value)),
	};

	return row_copier_add(&rewrite->copier, PROF_TABLE_METADATA, values, error);
}

/* ---- copying --------------------------------------------------------------------------------- */

static bool copy_row(struct rewrite *rewrite, struct names_epoch *epoch,
		     const struct prof_batch *batch, size_t row, void *data, GError **error)
{
	const struct prof_table_def *def = data;
	CLEANUP_ROW struct copied_row copied = { .n_lists = 0 };
	bool ok = true;

	if (row_stays(rewrite, def, epoch, batch, row)) {
		row_copier_translate(&rewrite->copier, def, batch->columns, row, &copied);
		fit_row(rewrite, def, copied.values);
		if (def->id == PROF_TABLE_LOSS)
			ok = add_damages(rewrite, batch->segment, copied.values[0].number, error);
		ok = ok && row_copier_add(&rewrite->copier, def->id, copied.values, error);
		rewrite->rows++;
	}
	if (def->id == PROF_TABLE_TASK)
		rewrite->task_row++;
	follow_row(rewrite, def->id, epoch, batch, row);
	return ok;
}

/* Copies a part. Dictionary rows are copied only with the rows that refer to them. */
static bool copy_part(struct rewrite *rewrite, const struct rewrite_part *part, GError **error)
{
	row_copier_use(&rewrite->copier, part->epoch);
	for (size_t i = 0; i < rewrite->copier.n_tables; i++) {
		const struct prof_table_def *def = rewrite->copier.tables[i];

		if ((def->flags & PROF_TABLE_DICTIONARY) ||
		    (rewrite->before && def->id != PROF_TABLE_METADATA))
			continue;
		if (!each_row(rewrite, part, def->id, copy_row, (void *)def, error))
			return false;
	}
	return true;
}

static bool next_epoch(struct rewrite *rewrite, GError **error)
{
	row_copier_forget(&rewrite->copier);
	return new_capture_next_epoch(&rewrite->to, error);
}

static bool epoch_is_full(const struct rewrite *rewrite, const struct rewrite_part *part)
{
	for (size_t i = 0; i < rewrite->to.n_tables; i++) {
		const struct new_table *table = &rewrite->to.tables[i];

		if (table->next_id > NEW_CAPTURE_EPOCH_ROWS ||
		    (table->def->id == PROF_TABLE_STACK &&
		     table->next_id + part->dictionary_rows > NEW_CAPTURE_EPOCH_ROWS))
			return true;
	}
	return false;
}

/* Begins the part's segment if it is a new one. Else begins an epoch, unless epochs are merged and
 * the current one has room for the part. */
static bool enter_part(struct rewrite *rewrite, const struct rewrite_part *part, size_t index,
		       GError **error)
{
	struct prof_segment segment;

	if (index != SIZE_MAX && &rewrite->from->segments[index] != rewrite->segment) {
		if (!add_damages(rewrite, rewrite->segment->number, UINT64_MAX, error) ||
		    !end_states(rewrite, error))
			return false;
		segment = use_segment(rewrite, &rewrite->from->segments[index]);
		row_copier_forget(&rewrite->copier);
		return new_capture_next_segment(&rewrite->to, &segment, error);
	}
	if (!rewrite->options->merge_epochs || epoch_is_full(rewrite, part))
		return next_epoch(rewrite, error);
	return true;
}

static bool copy_parts(struct rewrite *rewrite, GError **error)
{
	for (guint i = 0; i < rewrite->parts->len; i++) {
		const struct rewrite_part *part =
			&g_array_index(rewrite->parts, struct rewrite_part, i);
		size_t index = segment_index(rewrite, part->segment);

		if (index != SIZE_MAX && index > rewrite->first && !segment_kept(rewrite, index))
			continue;
		rewrite->before = index != SIZE_MAX && index < rewrite->first;
		if (!rewrite->before && i > 0 && !enter_part(rewrite, part, index, error))
			return false;
		if (!copy_part(rewrite, part, error))
			return false;
	}
	return end_states(rewrite, error) && add_damages(rewrite, UINT32_MAX, UINT64_MAX, error);
}

/* Copies a symbol or line if its image was copied, because no row refers to symbols and lines: they
 * are found by image and offset. */
static bool copy_if_used(struct rewrite *rewrite, struct names_epoch *epoch,
			 const struct prof_batch *batch, size_t row, void *data, GError **error)
{
	const GByteArray *used = rewrite->copier.used_images;
	const struct prof_array *c = batch->columns;
	const unsigned *table = data;
	uint32_t image;

	static_assert((int)PROF_LINE_ID == (int)PROF_SYMBOL_ID &&
			      (int)PROF_LINE_IMAGE == (int)PROF_SYMBOL_IMAGE,
		      "columns");
	image = names_image(epoch, array_number_or(&c[PROF_SYMBOL_IMAGE], row, 0));
	if (image < used->len && used->data[image])
		(void)row_copier_id(&rewrite->copier, *table,
				    array_number_or(&c[PROF_SYMBOL_ID], row, 0));
	return row_copier_ok(&rewrite->copier, error);
}

static bool copy_symbols(struct rewrite *rewrite, GError **error)
{
	unsigned tables[] = { PROF_TABLE_SYMBOL, PROF_TABLE_LINE };

	if (!next_epoch(rewrite, error))
		return false;
	ARRAY_EACH(const struct rewrite_part, part, rewrite->parts) {
		row_copier_use(&rewrite->copier, part->epoch);
		for (size_t j = 0; j < ARRAY_SIZE(tables); j++)
			if (!each_row(rewrite, part, tables[j], copy_if_used, &tables[j], error))
				return false;
	}
	return true;
}

/* ---- run ------------------------------------------------------------------------------------- */

static bool run(struct rewrite *rewrite, int fd, GError **error)
{
	static const struct prof_segment unknown = { .number = 1 };
	struct capture *from = rewrite->from;
	const struct prof_segment *first;
	g_autofree char *name = g_path_get_basename(from->file);
	struct prof_segment segment;
	size_t n;
	const struct prof_table_def *const *tables = prof_reader_tables(from->reader, &n);

	while (rewrite->first + 1 < from->n_segments && !segment_kept(rewrite, rewrite->first))
		rewrite->first++;
	first = from->n_segments ? &from->segments[rewrite->first] : &unknown;
	segment = use_segment(rewrite, first);
	if (!capture_each_chunk(from, 0, list_part, rewrite->parts, error))
		return false;
	g_array_sort(rewrite->parts, sorted_compare);
	if (rewrite->options->timed && !find_alive(rewrite, first, error))
		return false;
	if (!new_capture_init(&rewrite->to, fd, rewrite->options->file, tables, n, &segment, error))
		return false;
	row_copier_init(&rewrite->copier, from, &rewrite->to);
	return list_damages(rewrite, error) &&
	       (rewrite->start <= first->start_monotonic_ns ||
		begin_slice(rewrite, first, error)) &&
	       copy_parts(rewrite, error) &&
	       (!rewrite->is_damaged || add_metadata(rewrite, "damaged", name, error)) &&
	       (!rewrite->options->timed || add_metadata(rewrite, "slice", name, error)) &&
	       copy_symbols(rewrite, error) && new_capture_finish(&rewrite->to, error);
}

bool rewrite_capture(struct capture *from, int fd, const struct rewrite_options *options,
		     struct rewrite_result *ret_result, GError **error)
{
	struct rewrite rewrite = { .from = from, .options = options };
	bool ok;

	rewrite.alive_rows = g_hash_table_new(NULL, NULL);
	rewrite.alive_processes = g_hash_table_new(NULL, NULL);
	rewrite.alive_threads = g_hash_table_new(NULL, NULL);
	rewrite.exited_threads = g_hash_table_new(NULL, NULL);
	rewrite.states = g_hash_table_new_full(NULL, NULL, NULL, g_free);
	rewrite.parts = g_array_new(FALSE, TRUE, sizeof(struct rewrite_part));
	ok = run(&rewrite, fd, error);
	if (ok)
		*ret_result = (struct rewrite_result){ .rows = rewrite.rows,
						       .lost = rewrite.copier.lost };
	row_copier_done(&rewrite.copier);
	new_capture_done(&rewrite.to);
	g_hash_table_unref(rewrite.alive_rows);
	g_hash_table_unref(rewrite.alive_processes);
	g_hash_table_unref(rewrite.alive_threads);
	g_hash_table_unref(rewrite.exited_threads);
	g_hash_table_unref(rewrite.states);
	g_array_unref(rewrite.parts);
	g_clear_pointer(&rewrite.damages, g_array_unref);
	return ok;
}
