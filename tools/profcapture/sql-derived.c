/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profcapture/sql-derived.h"

#include "base/order.h"
#include "tools/profcapture/memory-replay.h"
#include "tools/profcapture/run-times.h"
#include "tools/profcapture/spans.h"
#include "tools/profile/wait-causes.h"

/* A mark, a block or a state of a thread, from its begin to its end. A capture may have one for
 * each allocation, so members share memory. */
struct interval {
	int64_t begin_ns, end_ns;
	union {
		struct {
			const char *group, *name;
		} mark;
		struct {
			uint64_t number, size;
		} block;
		uint64_t cpu;
	};
	uint32_t thread, call;
	uint32_t heap;
	uint8_t kind; /* kind of a mark, how a block ended, or state of a thread */
	bool has_begin, has_end, is_mapping;
};

struct sql_derived {
	struct reader *reader;
	struct functions *functions;           /* NULL: not needed yet */
	struct memory_tree *tree;              /* tree of calls */
	struct memory_heaps *heaps;            /* heaps of the blocks; NULL: not read yet */
	GArray *intervals[SQL_DERIVED_TABLES]; /* struct interval; NULL: not read yet */
	GArray *waits; /* struct wait_place by call, as far as needed; NULL: not needed yet */
	bool has_all_calls;
};

static const char *const mark_kinds[] = { [SPAN_INSTANT] = "instant",
					  [SPAN_WHOLE] = "span",
					  [SPAN_NO_END] = "no-end",
					  [SPAN_NO_BEGIN] = "no-begin" };
#define NOT_FREED (MEMORY_GONE + 1)
static const char *const ends[] = { [MEMORY_FREED] = "freed",
				    [MEMORY_REALLOCATED] = "reallocated",
				    [MEMORY_GONE] = "lost",
				    [NOT_FREED] = NULL };
static const char *const states[] = { [PROF_SWITCH_WAIT] = "waiting",
				      [PROF_SWITCH_PREEMPTED] = "preempted",
				      [PROF_SWITCH_RUNNING] = "running",
				      [PROF_SWITCH_RUNNABLE] = "runnable" };

/* Fields of the tables. SQL_FUNCTIONS has the fields of functions_cell() and FUNCTION_ID. */
#define FUNCTION_ID FN_FIELDS
enum call_field { CALL_ID, CALLER, DEPTH, FUNCTION, SOURCE_FILE, LINE, INLINED, STACK };
enum interval_field {
	BEGIN = SQL_THREAD_FIELDS,
	END,
	DURATION,
	KIND,
	GROUP,
	NAME,
	NUMBER,
	SIZE,
	BLOCKS,
	BYTES,
	CALL,
	CPU
};

/* clang-format off */
#define OF_TIME(end, duration) \
	{ "time_ns", "INTEGER", BEGIN }, { end, "INTEGER", END }, \
	{ duration, "INTEGER", DURATION }
#define OF_THREAD \
	{ "pid", "INTEGER", SQL_PID }, { "tid", "INTEGER", SQL_TID }, \
	{ "comm", "TEXT", SQL_COMM }, { "exe", "TEXT", SQL_EXE }
const struct sql_derived_def sql_derived_defs[SQL_DERIVED_TABLES] = {
	[SQL_CALLS] = { "calls", "id", {
		{ "id", "INTEGER", CALL_ID }, { "caller", "INTEGER", CALLER },
		{ "depth", "INTEGER", DEPTH }, { "function", "INTEGER", FUNCTION },
		{ "file", "TEXT", SOURCE_FILE }, { "line", "INTEGER", LINE },
		{ "inlined", "INTEGER", INLINED }, { "stack", "TEXT HIDDEN", STACK } } },
	[SQL_FUNCTIONS] = { "functions", "id", {
		{ "id", "INTEGER", FUNCTION_ID }, { "name", "TEXT", FN_NAME },
		{ "raw_name", "TEXT", FN_RAW_NAME }, { "image", "TEXT", FN_IMAGE },
		{ "build_id", "TEXT", FN_BUILD_ID }, { "offset", "INTEGER", FN_OFFSET },
		{ "kind", "TEXT", FN_KIND }, { "file", "TEXT", FN_FILE },
		{ "line", "INTEGER", FN_LINE } } },
	[SQL_MARKS] = { "marks", "time_ns", {
		OF_TIME("end_ns", "duration_ns"), OF_THREAD,
		{ "kind", "TEXT", KIND }, { "group", "TEXT", GROUP }, { "name", "TEXT", NAME } } },
	[SQL_BLOCKS] = { "blocks", "time_ns", {
		OF_TIME("freed_ns", "lifetime_ns"), OF_THREAD,
		{ "block", "INTEGER", NUMBER }, { "size", "INTEGER", SIZE },
		{ "blocks", "REAL", BLOCKS }, { "bytes", "REAL", BYTES },
		{ "ended", "TEXT", KIND }, { "call", "INTEGER", CALL } } },
	[SQL_STATES] = { "thread_states", "time_ns", {
		OF_TIME("end_ns", "duration_ns"), OF_THREAD,
		{ "state", "TEXT", KIND }, { "cpu", "INTEGER", CPU } } },
};
/* clang-format on */

struct sql_derived *sql_derived_new(struct reader *reader)
{
	struct sql_derived *derived = g_new0(struct sql_derived, 1);

	derived->reader = reader;
	return derived;
}

void sql_derived_free(struct sql_derived *derived)
{
	if (!derived)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(derived->intervals); i++)
		g_clear_pointer(&derived->intervals[i], g_array_unref);
	g_clear_pointer(&derived->waits, g_array_unref);
	if (derived->heaps)
		memory_heaps_done(derived->heaps);
	g_free(derived->heaps);
	if (derived->tree)
		memory_tree_done(derived->tree);
	g_free(derived->tree);
	functions_free(derived->functions);
	g_free(derived);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static bool load_tree(struct sql_derived *derived, GError **error)
{
	if (derived->tree)
		return true;
	derived->functions = functions_new(derived->reader->capture->names, error);
	if (!derived->functions)
		return false;
	/* the same places and inlined calls as in report */
	derived->functions->detail = FUNCTIONS_PLACES;
	derived->functions->inlined = derived->functions->joins_inlined = true;
	derived->tree = g_new0(struct memory_tree, 1);
	memory_tree_init_with(derived->tree, derived->reader, derived->functions);
	return true;
}

bool sql_derived_call(struct sql_derived *derived, uint32_t epoch, uint64_t stack, uint32_t segment,
		      uint64_t time, uint32_t *ret_call, GError **error)
{
	struct names_epoch *names;
	struct memory_epoch *of;

	if (!load_tree(derived, error))
		return false;
	names = names_epoch(derived->reader->capture->names, epoch, error);
	if (!names || !names_load(names, NAMES_STACK, error) ||
	    !names_load(names, NAMES_FRAME, error))
		return false;
	of = memory_tree_epoch(derived->tree, names, error);
	if (of)
		*ret_call = memory_tree_node(derived->tree, of, stack, segment, time);
	return of;
}

const char *sql_derived_cause(struct sql_derived *derived, uint32_t call)
{
	if (!derived->waits)
		derived->waits = g_array_new(FALSE, TRUE, sizeof(struct wait_place));
	/* a caller comes before the calls that it makes */
	for (guint i = derived->waits->len; i <= call; i++) {
		const struct memory_node *node = memory_node_at(derived->tree, i);
		struct wait_place place = wait_place_below(
			node->parent
				? &g_array_index(derived->waits, struct wait_place, node->parent)
				: NULL,
			derived->functions, functions_whole(derived->functions, node->function));

		g_array_append_val(derived->waits, place);
	}
	return wait_cause_names[g_array_index(derived->waits, struct wait_place, call).cause];
}

static bool find_calls(struct names_epoch *epoch, const struct prof_batch *batch, void *data,
		       GError **error)
{
	uint32_t call;

	for (size_t i = 0; i < batch->rows; i++)
		if (!sql_derived_call(data, epoch->epoch, array_number_or(&batch->columns[1], i, 0),
				      batch->segment, array_number_or(&batch->columns[0], i, 0),
				      &call, error))
			return false;
	return true;
}

/* Adds the calls of all stacks to which rows of the capture refer. */
static bool find_all_calls(struct sql_derived *derived, GError **error)
{
	const struct capture *capture = derived->reader->capture;
	size_t n;
	const struct prof_table_def *const *defs = prof_reader_tables(capture->reader, &n);

	if (!load_tree(derived, error))
		return false;
	for (size_t i = 0; !derived->has_all_calls && i < n; i++)
		for (unsigned c = 0; c < defs[i]->n_columns; c++) {
			const struct prof_column_def *column = &defs[i]->columns[c];

			if ((defs[i]->flags & PROF_TABLE_TIMED) && column->type == PROF_TYPE_REF &&
			    column->ref == PROF_TABLE_STACK &&
			    !(column->flags & PROF_COLUMN_LIST) &&
			    !names_each_batch(capture->names,
					      NAMES_COLUMNS(defs[i]->id, defs[i]->columns[0].id,
							    column->id),
					      find_calls, derived, error))
				return false;
		}
	derived->has_all_calls = true;
	return true;
}

void sql_derived_complete(struct sql_derived *derived)
{
	derived->has_all_calls = true;
}

static char *stack_text(const struct sql_derived *derived, uint32_t call)
{
	g_autoptr(GPtrArray) names = g_ptr_array_new();

	g_ptr_array_add(names, NULL);
	for (; call; call = memory_node_at(derived->tree, call)->parent) {
		uint32_t function = functions_whole(derived->functions,
						    memory_node_at(derived->tree, call)->function);

		g_ptr_array_add(names, (gpointer)functions_at(derived->functions, function)->name);
	}
	for (guint i = 0; i < names->len / 2; i++) {
		gpointer other = names->pdata[names->len - 1 - i];

		names->pdata[names->len - 1 - i] = names->pdata[i];
		names->pdata[i] = other;
	}
	return g_strjoinv(";", (char **)names->pdata);
}

static struct cell call_cell(const struct sql_derived *derived, uint32_t call,
			     enum call_field field)
{
	const struct memory_node *node = memory_node_at(derived->tree, call);
	const struct function *place = functions_at(derived->functions, node->function);
	uint64_t depth = 0;

	switch (field) {
	case CALL_ID:
		return cell_uint(call);
	case CALLER:
		return node->parent ? cell_uint(node->parent) : cell_unknown();
	case DEPTH:
		for (; node->parent; node = memory_node_at(derived->tree, node->parent))
			depth++;
		return cell_uint(depth);
	case FUNCTION:
		return cell_uint(functions_whole(derived->functions, node->function));
	case SOURCE_FILE:
		return cell_text(place->is_line ? place->file : NULL);
	case LINE:
		return place->is_line && place->line ? cell_uint(place->line) : cell_unknown();
	case INLINED:
		return cell_uint(place->depth > 0);
	case STACK:
		return cell_own_text(stack_text(derived, call));
	}
	return cell_unknown();
}

/* ---- intervals ------------------------------------------------------------------------------- */

static void add_mark(const struct span *span, void *data)
{
	const struct interval mark = {
		.begin_ns = span->start_ns,
		.end_ns = span->end_ns,
		.mark = { span->group, span->name },
		.thread = span->thread,
		.kind = (uint8_t)span->kind,
		.has_begin = span->kind != SPAN_NO_BEGIN,
		.has_end = span->kind == SPAN_WHOLE || span->kind == SPAN_NO_BEGIN,
	};

	g_array_append_val((GArray *)data, mark);
}

static void add_state(const struct run_state *state, void *data)
{
	const struct interval interval = {
		.begin_ns = state->from_ns,
		.end_ns = state->to_ns,
		.cpu = state->cpu,
		.thread = state->thread,
		.kind = (uint8_t)state->state,
		.has_begin = true,
		.has_end = true,
	};

	g_array_append_val((GArray *)data, interval);
}

struct blocks_reading {
	GArray *blocks;
	const struct sql_derived *derived;
};

static void add_block(struct blocks_reading *reading, const struct memory_live *live,
		      int64_t end_ns, unsigned how)
{
	uint32_t segment = memory_heap_at(reading->derived->heaps, live->heap)->segment;
	const struct interval block = {
		.begin_ns =
			capture_time(reading->derived->reader->capture, segment, live->more.since),
		.end_ns = end_ns,
		.block = { live->block.number, live->block.size },
		.thread = live->block.thread,
		.call = live->block.node,
		.heap = live->heap,
		.kind = (uint8_t)how,
		.has_begin = true,
		.has_end = how == MEMORY_FREED || how == MEMORY_REALLOCATED,
		.is_mapping = live->block.is_mapping,
	};

	g_array_append_val(reading->blocks, block);
}

static void add_released(const struct memory_event *event, const struct memory_live *live,
			 enum memory_release how, void *data)
{
	add_block(data, live, event->time_ns, how);
}

static void add_ended(const struct memory_live *live, void *data)
{
	add_block(data, live, 0, NOT_FREED);
}

static bool read_blocks(struct sql_derived *derived, GArray *blocks, GError **error)
{
	static const struct memory_ops ops = { .released = add_released, .ended = add_ended };
	struct blocks_reading reading = { blocks, derived };
	struct memory_replay replay = {
		.heaps = derived->heaps = g_new0(struct memory_heaps, 1),
		.ops = &ops,
		.data = &reading,
		.from_ns = INT64_MIN,
		.to_ns = INT64_MAX,
		.wants_nodes = true,
		.wants_more = true,
		.ends_all = true,
	};
	bool ok = load_tree(derived, error) &&
		  memory_heaps_init(derived->heaps, derived->tree, error) &&
		  memory_replay_run(&replay, error);

	memory_replay_done(&replay);
	return ok;
}

COMPARE_BY(compare_intervals, struct interval, ORDER(a->begin_ns, b->begin_ns),
	   ORDER(a->end_ns, b->end_ns), ORDER(a->thread, b->thread))

static struct cell interval_cell(const struct sql_derived *derived, const struct interval *at,
				 const char *const *kinds, enum interval_field field)
{
	struct memory_live live = {
		.heap = at->heap, .block = { .size = at->block.size, .is_mapping = at->is_mapping }
	};

	switch (field) {
	case BEGIN:
		return at->has_begin ? cell_int(at->begin_ns) : cell_unknown();
	case END:
		return at->has_end ? cell_int(at->end_ns) : cell_unknown();
	case DURATION:
		return at->has_begin && at->has_end
			       ? cell_uint((uint64_t)at->end_ns - (uint64_t)at->begin_ns)
			       : cell_unknown();
	case KIND:
		return cell_text(kinds[at->kind]);
	case GROUP:
		return cell_text(at->mark.group);
	case NAME:
		return cell_text(at->mark.name);
	case NUMBER:
		return cell_uint(at->block.number);
	case SIZE:
		return cell_uint(at->block.size);
	case BLOCKS:
	case BYTES:
		memory_weigh(derived->heaps, &live);
		return cell_double(field == BLOCKS ? live.blocks : live.bytes);
	case CALL:
		return cell_uint(at->call);
	case CPU:
		return at->cpu != PROF_SWITCH_NO_CPU ? cell_uint(at->cpu) : cell_unknown();
	}
	return cell_unknown();
}

/* ---- all tables ------------------------------------------------------------------------------ */

bool sql_derived_read(struct sql_derived *derived, enum sql_derived_table table, GError **error)
{
	g_autoptr(GArray) intervals = NULL, times = NULL;
	bool ok;

	if (table == SQL_CALLS || table == SQL_FUNCTIONS)
		return find_all_calls(derived, error);
	if (derived->intervals[table])
		return true;
	intervals = g_array_new(FALSE, FALSE, sizeof(struct interval));
	if (table == SQL_MARKS)
		ok = spans_read(derived->reader->capture, add_mark, intervals, error);
	else if (table == SQL_BLOCKS)
		ok = read_blocks(derived, intervals, error);
	else
		ok = (times = run_times_each_state(derived->reader, add_state, intervals, error));
	g_array_sort(intervals, compare_intervals);
	if (ok)
		derived->intervals[table] = g_steal_pointer(&intervals);
	return ok;
}

uint32_t sql_derived_rows(const struct sql_derived *derived, enum sql_derived_table table)
{
	if (table == SQL_CALLS)
		return derived->tree ? derived->tree->nodes->len : 0;
	if (table == SQL_FUNCTIONS)
		return derived->functions ? derived->functions->all->len : 0;
	return derived->intervals[table] ? derived->intervals[table]->len : 0;
}

/* The node above the roots is not a call, and a place in a function is not a function. */
bool sql_derived_is_row(const struct sql_derived *derived, enum sql_derived_table table,
			uint32_t row)
{
	return table == SQL_CALLS       ? row > 0
	       : table == SQL_FUNCTIONS ? !functions_at(derived->functions, row)->whole
					: true;
}

bool sql_derived_cell(struct sql_derived *derived, enum sql_derived_table table, uint32_t row,
		      unsigned field, struct cell *ret_cell, GError **error)
{
	static const char *const *const kinds[] = {
		[SQL_MARKS] = mark_kinds, [SQL_BLOCKS] = ends, [SQL_STATES] = states
	};
	const struct interval *at;
	const int64_t *time_ns;

	if (table == SQL_CALLS) {
		*ret_cell = call_cell(derived, row, field);
		return true;
	}
	if (table == SQL_FUNCTIONS) {
		*ret_cell = field == FUNCTION_ID ? cell_uint(row)
						 : functions_cell(derived->functions, row, field);
		return true;
	}
	at = &g_array_index(derived->intervals[table], struct interval, row);
	if (field >= SQL_THREAD_FIELDS) {
		*ret_cell = interval_cell(derived, at, kinds[table], field);
		return true;
	}
	time_ns = at->has_begin ? &at->begin_ns : &at->end_ns;
	return sql_thread_cell(
		derived->reader, at->thread,
		names_thread_at(derived->reader->capture->names, at->thread)->process, time_ns,
		field, ret_cell, error);
}

bool sql_thread_cell(struct reader *reader, uint32_t thread, uint32_t process,
		     const int64_t *time_ns, enum sql_thread_field field, struct cell *ret_cell,
		     GError **error)
{
	const struct names *names = reader->capture->names;

	*ret_cell = cell_unknown();
	if (field == SQL_PID && process > NAMES_LOST)
		*ret_cell = cell_uint(names_process_at(names, process)->pid);
	else if (field == SQL_TID && thread > NAMES_LOST)
		*ret_cell = cell_uint(names_thread_at(names, thread)->tid);
	else if (field == SQL_EXE)
		*ret_cell = cell_text(names_process_at(names, process)->exe);
	else if (field == SQL_COMM && time_ns && !reader_load_names(reader, error))
		return false;
	else if (field == SQL_COMM)
		*ret_cell = cell_text(time_ns ? reader_comm_at(reader, thread, *time_ns)
					      : names_thread_at(names, thread)->comm);
	return true;
}
