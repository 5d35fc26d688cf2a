/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Report-rows - one row for each entity, and the callers and callees of one function
 *
 * Rows are sorted by the weight of self, then total, then name, so that the same capture gives the
 * same bytes.
 */
#include "config.h"

#include "tools/profcapture/function-names.h"
#include "tools/profcapture/report.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* At least this many columns of a name are shown. */
#define MIN_NAME 16u

/* ---- rows ------------------------------------------------------------------------------------ */

void report_describe(const struct report *report, struct report_line *line)
{
	const struct tally *tally = &report->tally;
	const struct names *names = report->reader.capture->names;
	const struct names_thread *thread;

	switch (tally->by) {
	case TALLY_FUNCTION:
	case TALLY_LINE:
		line->name = functions_at(tally->functions, line->entity)->name;
		line->image = functions_image(tally->functions, line->entity);
		line->offset = functions_at(tally->functions, line->entity)->offset;
		break;
	case TALLY_IMAGE:
		line->name = names_image_at(names, line->entity)->path;
		line->image = names_image_at(names, line->entity)->build_id;
		break;
	case TALLY_THREAD:
		thread = names_thread_at(names, line->entity);
		line->name = thread->comm;
		line->offset = thread->tid;
		break;
	case TALLY_PROCESS:
		line->name = names_process_at(names, line->entity)->exe;
		line->offset = names_process_at(names, line->entity)->pid;
		break;
	case TALLY_CGROUP:
		line->name = tally->cgroups->pdata[line->entity];
		break;
	}
}

gint report_compare_lines(gconstpointer left, gconstpointer right)
{
	const struct report_line *a = left, *b = right;
	int order = amount_compare(a->count.self, b->count.self);

	if (order == 0)
		order = amount_compare(a->count.total, b->count.total);
	if (order == 0)
		order = g_strcmp0(a->name, b->name);
	if (order == 0)
		order = g_strcmp0(a->image, b->image);
	if (order == 0)
		order = a->offset < b->offset ? -1 : a->offset > b->offset;
	return order ? order : (a->entity < b->entity ? -1 : 1);
}

static bool worth_a_line(const struct report *report, uint32_t entity, struct tally_count count)
{
	if (report->no_children && count.self.samples == 0)
		return false;
	/* A thread that only waited gets a row, too. */
	return count.total.samples > 0 ||
	       (report->times && entity < report->times->len &&
		g_array_index(report->times, struct run_time, entity).known);
}

static GArray *lines_of(const struct report *report, const GArray *counts)
{
	GArray *lines = g_array_new(FALSE, TRUE, sizeof(struct report_line));
	guint n = counts->len;

	if (report->times)
		n = MAX_OF(n, report->times->len);
	for (guint entity = 0; entity < n; entity++) {
		struct report_line line = { .entity = entity,
					    .count = tally_count_at(counts, entity) };

		if (!worth_a_line(report, entity, line.count))
			continue;
		report_describe(report, &line);
		g_array_append_val(lines, line);
	}
	g_array_sort(lines, report_compare_lines);
	return lines;
}

static guint shown(const struct report *report, const GArray *lines)
{
	uint64_t limit = report->reader.limit;

	return limit && limit < lines->len ? (guint)limit : lines->len;
}

/* ---- JSON and CSV ---------------------------------------------------------------------------- */

void report_write_counts(const struct report *report, struct json *json, struct tally_count count)
{
	json_uint(json, "self", count.self.samples);
	json_uint(json, "total", count.total.samples);
	json_double(json, "self_pct", report_percent(report, count.self));
	json_double(json, "total_pct", report_percent(report, count.total));
	json_uint(json, "self_weight", count.self.weight);
	json_uint(json, "total_weight", count.total.weight);
}

static void write_pid(struct json *json, const struct names *names, uint32_t process)
{
	if (process > NAMES_LOST)
		json_uint(json, "pid", names_process_at(names, process)->pid);
	else
		json_null(json, "pid");
}

static const char *process_comm(const struct report *report, uint32_t process)
{
	if (process == NAMES_LOST)
		return NAMES_LOST_TEXT;
	return process < report->process_comms->len ? report->process_comms->pdata[process] : NULL;
}

static bool are_times_incomplete(const struct report *report)
{
	return capture_lacks_rows(report->reader.capture, PROF_TABLE_SWITCH);
}

static void write_thread(const struct report *report, struct json *json, uint32_t entity)
{
	const struct names *names = report->reader.capture->names;
	const struct names_thread *thread = names_thread_at(names, entity);
	struct run_time time = { 0 };

	write_pid(json, names, thread->process);
	if (entity > NAMES_LOST)
		json_uint(json, "tid", thread->tid);
	else
		json_null(json, "tid");
	json_string(json, "comm", thread->comm);
	json_uint(json, "names", thread_names_count(report->reader.thread_names, entity));
	if (entity < report->times->len)
		time = g_array_index(report->times, struct run_time, entity);
	if (time.known) {
		json_uint(json, "run_ns", time.run_ns);
		json_uint(json, "wait_ns", time.wait_ns);
		json_uint(json, "preempted_ns", time.preempted_ns);
		if (run_times_have_wakeups(report->reader.capture))
			json_uint(json, "runnable_ns", time.runnable_ns);
		else
			json_null(json, "runnable_ns");
	} else {
		json_null(json, "run_ns");
		json_null(json, "wait_ns");
		json_null(json, "preempted_ns");
		json_null(json, "runnable_ns");
	}
	json_bool(json, "times_incomplete", are_times_incomplete(report));
}

void report_write_entity(const struct report *report, struct json *json, uint32_t entity)
{
	const struct tally *tally = &report->tally;
	const struct names *names = report->reader.capture->names;

	switch (tally->by) {
	case TALLY_FUNCTION:
	case TALLY_LINE:
		functions_write(tally->functions, entity, json);
		break;
	case TALLY_IMAGE:
		json_string(json, "image", names_image_at(names, entity)->path);
		json_string(json, "build_id", names_image_at(names, entity)->build_id);
		break;
	case TALLY_THREAD:
		write_thread(report, json, entity);
		break;
	case TALLY_PROCESS:
		write_pid(json, names, entity);
		json_string(json, "comm", process_comm(report, entity));
		break;
	case TALLY_CGROUP:
		json_string(json, "cgroup", tally->cgroups->pdata[entity]);
		break;
	}
}

#define COUNT_COLUMNS "self", "total", "self_pct", "total_pct", "self_weight", "total_weight", NULL
static const char *const function_columns[] = { "name", "raw_name", "image", "build_id",   "offset",
						"kind", "file",     "line",  COUNT_COLUMNS };
static const char *const image_columns[] = { "image", "build_id", COUNT_COLUMNS };
static const char *const thread_columns[] = { "pid",          "tid",         "comm",
					      "names",        "run_ns",      "wait_ns",
					      "preempted_ns", "runnable_ns", "times_incomplete",
					      COUNT_COLUMNS };
static const char *const process_columns[] = { "pid", "comm", COUNT_COLUMNS };
static const char *const cgroup_columns[] = { "cgroup", COUNT_COLUMNS };
static const char *const *const columns_by[] = {
	function_columns, function_columns, image_columns,
	thread_columns,   process_columns,  cgroup_columns
};

static const struct amount *timeline_of(const struct report *report, uint32_t entity)
{
	static const struct tally_timeline none;
	const GArray *all = report->tally.timelines;

	return entity < all->len ? g_array_index(all, struct tally_timeline, entity).self
				 : none.self;
}

static void write_timeline(const struct report *report, struct json *json, uint32_t entity)
{
	json_begin_array(json, "timeline");
	for (unsigned i = 0; i < TALLY_BINS; i++)
		json_uint(json, NULL, timeline_of(report, entity)[i].samples);
	json_end(json);
	json_begin_array(json, "timeline_weight");
	for (unsigned i = 0; i < TALLY_BINS; i++)
		json_uint(json, NULL, timeline_of(report, entity)[i].weight);
	json_end(json);
}

static void write_lines(const struct report *report, struct json *json, const GArray *lines)
{
	for (guint i = 0; i < shown(report, lines); i++) {
		const struct report_line *line = &g_array_index(lines, struct report_line, i);

		rows_begin(json);
		report_write_entity(report, json, line->entity);
		report_write_counts(report, json, line->count);
		if (report->tally.wants_timeline)
			write_timeline(report, json, line->entity);
		rows_end(json);
	}
}

static void write_rows(const struct report *report, struct json *json, const GArray *lines)
{
	enum json_format format = reader_json_format(&report->reader);

	reader_begin(&report->reader, json, "report", shown(report, lines) < lines->len);
	if (format == JSON_FORMAT_JSON)
		report_write_head(report, json);
	rows_open(json, format, columns_by[report->tally.by]);
	write_lines(report, json, lines);
	rows_close(json);
	reader_end(&report->reader, json);
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Returns whether the total can differ from self. */
static bool has_children(const struct report *report)
{
	return !report->no_children &&
	       (report->tally.by == TALLY_FUNCTION || report->tally.by == TALLY_LINE ||
		report->tally.by == TALLY_IMAGE);
}

static bool has_wakeups(const struct report *report)
{
	return report->tally.by == TALLY_THREAD && run_times_have_wakeups(report->reader.capture);
}

static void print_columns(const struct report *report, struct out *out)
{
	static const char *const titles[] = { N_("function"), N_("line"),    N_("image"),
					      N_("thread"),   N_("process"), N_("cgroup") };

	reader_style(&report->reader, out, READER_BOLD);
	if (has_children(report))
		out_printf(out, "%8s %8s %10s  ", _("self %"), _("total %"), _("samples"));
	else
		out_printf(out, "%8s %10s  ", _("self %"), _("samples"));
	tally_print_weight_title(&report->tally, out);
	if (report->tally.wants_timeline)
		out_printf(out, "%-*s  ", TALLY_BINS, _("over time"));
	if (report->tally.by == TALLY_THREAD)
		out_printf(out, "%12s %12s %12s ", _("run"), _("wait"), _("preempted"));
	if (has_wakeups(report))
		out_printf(out, "%12s ", _("runnable"));
	if (report->tally.by == TALLY_THREAD)
		out_char(out, ' ');
	out_printf(out, "%s\n", _(titles[report->tally.by]));
	reader_style(&report->reader, out, READER_PLAIN);
}

/* Returns the number of columns that it printed. */
static unsigned print_count(const struct report *report, struct out *out, struct tally_count count)
{
	double self = report_percent(report, count.self);
	unsigned used = has_children(report) ? 30 : 21;

	reader_style(&report->reader, out, reader_heat(self));
	if (has_children(report))
		out_printf(out, "%8.2f %8.2f %10" PRIu64 "  ", self,
			   report_percent(report, count.total), count.self.samples);
	else
		out_printf(out, "%8.2f %10" PRIu64 "  ", self, count.self.samples);
	used += tally_print_weight(&report->tally, out, &count.self);
	if (reader_heat(self) != READER_PLAIN)
		reader_style(&report->reader, out, READER_PLAIN);
	return used;
}

static void print_time(const struct report *report, struct out *out, uint64_t ns)
{
	g_autofree char *text = g_strdup_printf(
		"%s%.6f", are_times_incomplete(report) ? text_sign(TEXT_AT_LEAST) : "",
		(double)ns / 1e9);
	unsigned width = text_width(text);

	out_printf(out, "%*s%s s ", width < 10 ? (int)(10 - width) : 0, "", text);
}

/* Returns the number of columns that it printed. */
static unsigned print_times(const struct report *report, struct out *out, uint32_t entity)
{
	struct run_time time = { 0 };

	if (entity < report->times->len)
		time = g_array_index(report->times, struct run_time, entity);
	if (time.known) {
		print_time(report, out, time.run_ns);
		print_time(report, out, time.wait_ns);
		print_time(report, out, time.preempted_ns);
	} else
		out_printf(out, "%12s %12s %12s ", "-", "-", "-");
	if (has_wakeups(report) && time.known)
		print_time(report, out, time.runnable_ns);
	else if (has_wakeups(report))
		out_printf(out, "%12s ", "-");
	out_char(out, ' ');
	return has_wakeups(report) ? 53 : 40;
}

static void print_name(struct out *out, const char *name)
{
	g_autofree char *escaped = text_escape(name ? name : "-");

	out_text(out, escaped);
}

/* Prints the text that follows a function's name and is never cut. */
static void print_behind(const struct report *report, struct out *out, uint32_t entity)
{
	const struct function *function = functions_at(report->tally.functions, entity);

	if (strcmp(function->kind, "unresolved") != 0)
		functions_print_image(report->tally.functions, entity, out);
	functions_print_line(report->tally.functions, entity, out);
}

/* Prints the name as it is if it fits, else without template arguments, else cut. */
static void print_function(const struct report *report, struct out *out, uint32_t entity,
			   unsigned used)
{
	const struct function *function = functions_at(report->tally.functions, entity);
	g_autofree char *people = function_name_for_people(function->name, function->raw_name);
	g_autofree char *name = text_escape(report->full_names ? function->name : people);
	unsigned columns = report->full_names ? 0 : report->reader.columns;
	unsigned room;
	struct out behind;

	out_init(&behind, -1);
	print_behind(report, &behind, entity);
	used += text_width(behind.text->str);
	room = columns > used + MIN_NAME ? columns - used : MIN_NAME;
	if (columns && text_width(name) > room) {
		g_autofree char *shortened = function_name_fit(name, room);
		g_autofree char *fitted =
			text_width(shortened) > room ? text_fit(shortened, room, TEXT_LEFT) : NULL;

		out_text(out, fitted ? fitted : shortened);
	} else {
		out_text(out, name);
	}
	out_text(out, behind.text->str);
	out_char(out, '\n');
	out_done(&behind);
}

void report_print_entity(const struct report *report, struct out *out, uint32_t entity,
			 unsigned used)
{
	const struct names *names = report->reader.capture->names;
	const struct names_thread *thread;
	g_autofree char *text = NULL;
	g_autofree char *other = NULL;
	unsigned n_names;

	switch (report->tally.by) {
	case TALLY_FUNCTION:
	case TALLY_LINE:
		print_function(report, out, entity, used);
		return;
	case TALLY_IMAGE:
		text = g_strdup(names_image_at(names, entity)->path);
		break;
	case TALLY_THREAD:
		thread = names_thread_at(names, entity);
		n_names = thread_names_count(report->reader.thread_names, entity);
		other = n_names > 1 ? g_strdup_printf(_(" (%u names)"), n_names) : NULL;
		text = g_strdup_printf("%" PRIu64 "/%" PRIu64 " %s%s",
				       names_process_at(names, thread->process)->pid, thread->tid,
				       thread->comm ? thread->comm : "-", other ? other : "");
		break;
	case TALLY_PROCESS:
		text = g_strdup_printf("%" PRIu64 " %s", names_process_at(names, entity)->pid,
				       process_comm(report, entity) ? process_comm(report, entity)
								    : "-");
		break;
	case TALLY_CGROUP:
		text = g_strdup(report->tally.cgroups->pdata[entity]);
		break;
	}
	if (report->full_names) {
		print_name(out, text);
		out_char(out, '\n');
	} else {
		reader_end_line(&report->reader, out, text ? text : "-", used);
	}
}

/* Scales each part to the greatest of the row. Returns the number of columns that it printed. */
static unsigned print_timeline(const struct report *report, struct out *out, uint32_t entity)
{
	static const char *const levels[] = { " ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
	const uint64_t highest = ARRAY_SIZE(levels) - 1;
	const struct amount *self = timeline_of(report, entity);
	uint64_t most = 1;

	for (unsigned i = 0; i < TALLY_BINS; i++)
		most = MAX_OF(most, self[i].weight);
	for (unsigned i = 0; i < TALLY_BINS; i++)
		out_text(out, levels[(size_t)ceil((double)self[i].weight / (double)most *
						  (double)highest)]);
	out_text(out, "  ");
	return TALLY_BINS + 2;
}

static void print_lines(const struct report *report, struct out *out, const GArray *lines)
{
	print_columns(report, out);
	for (guint i = 0; i < shown(report, lines); i++) {
		const struct report_line *line = &g_array_index(lines, struct report_line, i);

		unsigned used = print_count(report, out, line->count);

		if (report->tally.by == TALLY_THREAD)
			used += print_times(report, out, line->entity);
		if (report->tally.wants_timeline)
			used += print_timeline(report, out, line->entity);
		report_print_entity(report, out, line->entity, used);
	}
	reader_print_limit(&report->reader, out, shown(report, lines), lines->len);
}

/* ---- three shapes of an answer --------------------------------------------------------------- */

void report_show_rows(struct report *report, struct out *out)
{
	g_autoptr(GArray) lines = lines_of(report, report->tally.counts);

	if (report->reader.format == READER_TEXT) {
		report_print_head(report, out);
		print_lines(report, out, lines);
	} else {
		write_rows(report, &report->json, lines);
	}
}

static void write_edges(struct report *report, const char *key, const GArray *lines)
{
	struct json *json = &report->json;

	json_begin_array(json, key);
	for (guint i = 0; i < shown(report, lines); i++) {
		const struct report_line *line = &g_array_index(lines, struct report_line, i);

		json_begin_object(json, NULL);
		report_write_entity(report, json, line->entity);
		report_write_counts(report, json, line->count);
		json_end(json);
	}
	json_end(json);
}

/* Returns the index of the function that --callers or --callees selects, or FUNCTION_NO_STACK. */
static uint32_t focus_index(const struct report *report)
{
	const GArray *all = report->tally.functions->all;

	for (guint i = 0; report->tally.focus_found && i < all->len; i++) {
		const struct function *f = functions_at(report->tally.functions, i);

		if ((strcmp(f->name, report->tally.focus) == 0 ||
		     strcmp(f->raw_name, report->tally.focus) == 0) &&
		    tally_count_at(report->tally.counts, i).total.samples > 0)
			return i;
	}
	return FUNCTION_NO_STACK;
}

static void write_edges_json(struct report *report, const GArray *callers, const GArray *callees)
{
	struct json *json = &report->json;
	bool truncated = shown(report, callers) < callers->len ||
			 shown(report, callees) < callees->len;

	reader_begin(&report->reader, json, "report", truncated);
	report_write_head(report, json);
	if (report->tally.focus_found) {
		json_begin_object(json, "function");
		report_write_entity(report, json, focus_index(report));
		report_write_counts(report, json, report->tally.focus_count);
		json_end(json);
	} else {
		json_null(json, "function");
	}
	write_edges(report, "callers", callers);
	write_edges(report, "callees", callees);
	reader_end(&report->reader, json);
}

static void print_edges(struct report *report, struct out *out, const GArray *callers,
			const GArray *callees)
{
	report_print_head(report, out);
	if (!report->tally.focus_found)
		return;
	print_columns(report, out);
	report_print_entity(report, out, focus_index(report),
			    print_count(report, out, report->tally.focus_count));
	if (report->callers) {
		out_text(out, _("\nCallers\n"));
		print_lines(report, out, callers);
	}
	if (report->callees) {
		out_text(out, _("\nCallees\n"));
		print_lines(report, out, callees);
	}
}

static void warn_not_found(const struct report *report)
{
	const GArray *all = report->tally.functions->all;
	g_autoptr(GPtrArray) names = g_ptr_array_new();
	const char *meant;

	for (guint i = FUNCTION_LOST + 1; i < all->len; i++)
		g_ptr_array_add(names, (gpointer)functions_at(report->tally.functions, i)->name);
	g_ptr_array_add(names, NULL);
	meant = cli_suggest(report->tally.focus, (const char *const *)names->pdata);
	if (meant)
		cli_warning(_("no sample has function '%s'; did you mean '%s'?"),
			    report->tally.focus, meant);
	else
		cli_warning(_("no sample has function '%s'"), report->tally.focus);
}

void report_show_edges(struct report *report, struct out *out)
{
	g_autoptr(GArray) callers = lines_of(report, report->tally.callers);
	g_autoptr(GArray) callees = lines_of(report, report->tally.callees);

	if (!report->tally.focus_found)
		warn_not_found(report);
	if (report->reader.format == READER_TEXT)
		print_edges(report, out, callers, callees);
	else
		write_edges_json(report, callers, callees);
}
