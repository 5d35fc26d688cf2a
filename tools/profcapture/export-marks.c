/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profcapture/export-marks.h"

#include "base/order.h"
#include "tools/profcapture/run-times.h"

#include <inttypes.h>
#include <string.h>

static const char waiting[] = "Waiting";

static void keep_mark(const struct span *span, void *data)
{
	struct export_marks *marks = data;
	struct reader *reader = &marks->export->reader;
	struct export_mark mark = { span->thread,
				    span->kind == SPAN_NO_END ? INT64_MAX : span->end_ns, *span,
				    false };

	if (span->end_ns >= reader->from_ns && span->start_ns <= reader->to_ns &&
	    reader_wants_thread_at(reader, span->thread, span->start_ns))
		g_array_append_val(marks->all, mark);
}

/* A damaged file may have times that are further apart than an int64_t holds. */
static uint64_t length_of(const struct export_mark *mark)
{
	return (uint64_t)mark->span.end_ns - (uint64_t)mark->span.start_ns;
}

/* Sorts the longest first; equally long waits by time. */
COMPARE_BY(compare_waits, struct export_mark, ORDER(length_of(b), length_of(a)),
	   ORDER(a->time_ns, b->time_ns), ORDER(a->thread, b->thread))

/* Keeps the longest waits. */
static void limit_waits(struct export_marks *marks)
{
	GArray *waits = marks->waits;

	if (waits->len <= EXPORT_MOST_WAITS)
		return;
	g_array_sort(waits, compare_waits);
	for (guint i = EXPORT_MOST_WAITS; i < waits->len; i++)
		marks->left_out_ns += length_of(&g_array_index(waits, struct export_mark, i));
	marks->left_out += waits->len - EXPORT_MOST_WAITS;
	marks->longest_left_out_ns =
		MAX_OF(marks->longest_left_out_ns,
		       length_of(&g_array_index(waits, struct export_mark, EXPORT_MOST_WAITS)));
	g_array_set_size(waits, EXPORT_MOST_WAITS);
}

static void keep_wait(const struct run_state *state, void *data)
{
	static const char *const names[] = { [PROF_SWITCH_WAIT] = waiting,
					     [PROF_SWITCH_PREEMPTED] = "Preempted",
					     [PROF_SWITCH_RUNNABLE] = "Ready to run" };
	struct export_marks *marks = data;
	struct reader *reader = &marks->export->reader;
	struct export_mark mark = { .thread = state->thread, .is_wait = true };

	if (state->state == PROF_SWITCH_RUNNING)
		return;
	mark.span = (struct span){ .kind = SPAN_WHOLE,
				   .thread = state->thread,
				   .name = names[state->state],
				   .start_ns = MAX_OF(state->from_ns, reader->from_ns),
				   .end_ns = MIN_OF(state->to_ns, reader->to_ns) };
	mark.time_ns = mark.span.end_ns;
	if (mark.span.start_ns >= mark.span.end_ns ||
	    !reader_wants_thread_at(reader, state->thread, mark.span.start_ns))
		return;
	g_array_append_val(marks->waits, mark);
	if (marks->waits->len == 2 * EXPORT_MOST_WAITS)
		limit_waits(marks);
}

/* Sorts by thread and end. Marks without an end are reported in no fixed order, so they are also
 * sorted by start, group and name. */
static gint compare_marks(gconstpointer left, gconstpointer right)
{
	const struct span *a = &((const struct export_mark *)left)->span;
	const struct span *b = &((const struct export_mark *)right)->span;
	gint order = export_compare(left, right);

	return order || a->kind != SPAN_NO_END
		       ? order
		       : ORDER_BY(ORDER(a->start_ns, b->start_ns), g_strcmp0(a->group, b->group),
				  g_strcmp0(a->name, b->name));
}

bool export_marks_read(struct export_marks *marks, struct export *export, GError **error)
{
	g_autoptr(GArray) times = NULL;

	*marks = (struct export_marks){
		.export = export,
		.all = g_array_new(FALSE, FALSE, sizeof(struct export_mark)),
		.waits = g_array_new(FALSE, FALSE, sizeof(struct export_mark)),
	};
	times = run_times_each_state(&export->reader, keep_wait, marks, error);
	if (!times || !spans_read(export->reader.capture, keep_mark, marks, error))
		return false;
	if (export_has_waits(export)) {
		marks->sleeps = export_samples(&export->waits);
		marks->places =
			wait_places_of_nodes(export->waits.tree.nodes, export->profile.functions);
	}
	limit_waits(marks);
	g_array_append_vals(marks->all, marks->waits->data, marks->waits->len);
	g_array_sort(marks->all, compare_marks);
	return true;
}

void export_marks_done(struct export_marks *marks)
{
	g_clear_pointer(&marks->sleeps, g_array_unref);
	g_free(marks->places);
	g_array_unref(marks->waits);
	g_array_unref(marks->all);
}

char *export_marks_left_out(const struct export_marks *marks)
{
	return marks->left_out
		       ? g_strdup_printf("%" PRIu64 ", none longer than %.3f ms, %.3f s in all",
					 marks->left_out, (double)marks->longest_left_out_ns / 1e6,
					 (double)marks->left_out_ns / 1e9)
		       : NULL;
}

void export_marks_write_cause(const struct export_marks *marks, const struct export_mark *mark,
			      struct json *json)
{
	const struct export_key key = { mark->thread, mark->span.start_ns };
	const GArray *sleeps = marks->sleeps;
	const struct export_stack *sleep =
		sleeps && sleeps->len && mark->is_wait && mark->span.name == waiting
			? bsearch(&key, sleeps->data, sleeps->len, sizeof(*sleep), export_compare)
			: NULL;
	const struct wait_place *place = sleep ? &marks->places[sleep->node] : NULL;
	const struct functions *functions = marks->export->profile.functions;

	if (!place || place->cause == WAIT_UNKNOWN)
		return;
	json_string(json, "cause", wait_cause_names[place->cause]);
	if (place->call)
		json_string(json, "call", place->call);
	if (place->function > FUNCTION_LOST)
		json_string(json, "function", functions_at(functions, place->function)->name);
}
