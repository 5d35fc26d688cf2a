/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Report-rows - the answers that are tables: entities, the programs of a system, and the callers
 * and callees of one function
 *
 * Rows are sorted by the weight of self, then total, then name (in text, callers and callees by
 * total first), so that the same capture gives the same bytes.
 */
#include "config.h"

#include "base/order.h"
#include "tools/common/grown-array.h"
#include "tools/present/sparkline.h"
#include "tools/profcapture/report.h"
#include "tools/profile/function-names.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <string.h>

#define MOST_PROGRAMS 10

/* A longer event name is not used as a column title. */
#define MOST_EVENT_COLUMNS 14u

/* The time of a thread before it executed a program has a separate row if that time has more than
 * this number of samples and at least this share. */
#define JOINED_SAMPLES 3
#define JOINED_PCT 1.0

/* Rows with at least this share are bold. */
#define HOT_PCT 10.0

/* ---- lines ----------------------------------------------------------------------------------- */

void report_describe(const struct report *report, struct report_line *line)
{
	const struct profile *profile = &report->profile;
	const struct names *names = report->reader.capture->names;
	const struct names_thread *thread;

	switch (profile->by) {
	case PROFILE_FUNCTION:
	case PROFILE_LINE:
		line->name = functions_at(profile->functions, line->entity)->name;
		line->image = functions_image(profile->functions, line->entity);
		line->offset = functions_at(profile->functions, line->entity)->offset;
		break;
	case PROFILE_IMAGE:
		line->name = names_image_at(names, line->entity)->path;
		line->image = names_image_at(names, line->entity)->build_id;
		break;
	case PROFILE_THREAD:
		thread = names_thread_at(names, line->entity);
		line->name = thread->comm;
		line->offset = thread->tid;
		break;
	case PROFILE_PROCESS:
		line->name = names_process_at(names, line->entity)->exe;
		line->offset = names_process_at(names, line->entity)->pid;
		break;
	case PROFILE_CGROUP:
		line->name = profile->cgroups->pdata[line->entity];
		break;
	case PROFILE_STATE:
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

static const struct run_time *time_at(const GArray *times, uint32_t entity)
{
	static const struct run_time none;

	return times && entity < times->len ? &g_array_index(times, struct run_time, entity)
					    : &none;
}

/* The rows of a table, and the data that is needed to print them as text. */
struct report_rows {
	const struct report *report;
	GArray *lines; /* struct report_line */
	GArray *times; /* struct run_time by entity; NULL unless entities are threads or programs */
	bool has_times;
	struct table_member members[TABLE_MAX_COLUMNS];
	/* text only */
	enum { ROWS_ENTITIES, ROWS_PROGRAMS, ROWS_CALLERS, ROWS_CALLEES } kind;
	struct function_labels *labels; /* labels of functions and lines */
	bool shows_processes;           /* the threads belong to several processes */
	double most;                    /* largest weight of a bin in any timeline */
	char *range;                    /* title of timelines */
	GArray *processes;              /* unsigned by program: number of its processes */
};

/* Lists all entities that get a row. */
static void rows_init(struct report_rows *rows, const struct report *report, const GArray *counts)
{
	*rows = (struct report_rows){ .report = report,
				      .lines = g_array_new(FALSE, TRUE, sizeof(struct report_line)),
				      .times = report->profile.by == PROFILE_THREAD ? report->times
										    : NULL };
	for (guint i = 0; i < MAX_OF(counts->len, rows->times ? rows->times->len : 0); i++) {
		struct report_line line = { .entity = i, .count = profile_count_at(counts, i) };
		bool has_time = time_at(rows->times, i)->known;

		rows->has_times |= has_time;
		if (report->no_children ? line.count.self.samples == 0
					: line.count.total.samples == 0 && !has_time)
			continue;
		report_describe(report, &line);
		g_array_append_val(rows->lines, line);
	}
	g_array_sort(rows->lines, report_compare_lines);
}

static void rows_done(struct report_rows *rows)
{
	g_array_unref(rows->lines);
	function_labels_free(rows->labels);
	g_free(rows->range);
}

static const struct report_line *line_at(const struct report_rows *rows, size_t row)
{
	return &g_array_index(rows->lines, struct report_line, row);
}

/* ---- cells ----------------------------------------------------------------------------------- */

enum field {
	SELF = FN_FIELDS,
	TOTAL,
	SELF_PCT,
	TOTAL_PCT,
	SELF_WEIGHT,
	TOTAL_WEIGHT,
	SHARE,
	TIMELINE,
	IMAGE,
	BUILD_ID,
	PID,
	TID,
	COMM,
	NAMES,
	START,
	RUN,
	WAIT,
	PREEMPTED,
	RUNNABLE,
	LIFE,
	INCOMPLETE,
	CGROUP,
	PROCESSES,
	NAME,
	PLACE,
};

static const struct table_member function_members[] = { FN_MEMBERS, { NULL } };
static const struct table_member image_members[] = { { "image", IMAGE },
						     { "build_id", BUILD_ID },
						     { NULL } };
static const struct table_member thread_members[] = { { "pid", PID },
						      { "tid", TID },
						      { "comm", COMM },
						      { "names", NAMES },
						      { "start", START },
						      { "run_ns", RUN },
						      { "wait_ns", WAIT },
						      { "preempted_ns", PREEMPTED },
						      { "runnable_ns", RUNNABLE },
						      { "times_incomplete", INCOMPLETE },
						      { NULL } };
static const struct table_member process_members[] = { { "pid", PID }, { "comm", COMM }, { NULL } };
static const struct table_member cgroup_members[] = { { "cgroup", CGROUP }, { NULL } };
static const struct table_member *const entity_members[] = { function_members, function_members,
							     image_members,    thread_members,
							     process_members,  cgroup_members };
static const struct table_member count_members[] = { { "self", SELF },
						     { "total", TOTAL },
						     { "self_pct", SELF_PCT },
						     { "total_pct", TOTAL_PCT },
						     { "self_weight", SELF_WEIGHT },
						     { "total_weight", TOTAL_WEIGHT },
						     { NULL } };

static const struct amount *timeline_of(const struct report *report, uint32_t entity)
{
	static const struct profile_timeline none;
	const GArray *all = report->profile.timelines;

	return entity < all->len ? g_array_index(all, struct profile_timeline, entity).self
				 : none.self;
}

static const char *comm_of_process(const struct report *report, uint32_t process)
{
	if (process == NAMES_LOST)
		return NAMES_LOST_TEXT;
	return process < report->process_comms->len ? report->process_comms->pdata[process] : NULL;
}

static char *name_of_thread(const struct report_rows *rows, uint32_t entity)
{
	const struct report *report = rows->report;
	const struct names *names = report->reader.capture->names;
	const struct names_thread *thread = names_thread_at(names, entity);
	unsigned n_names = thread_names_count(report->reader.thread_names, entity);
	GString *text = g_string_new(NULL);

	if (rows->shows_processes)
		g_string_printf(text, "%" PRIu64 "/",
				names_process_at(names, thread->process)->pid);
	g_string_append_printf(text, "%" PRIu64 " %s", thread->tid,
			       thread->comm ? thread->comm : "-");
	if (n_names > 1)
		g_string_append_printf(text, _(" (%u names)"), n_names);
	return g_string_free(text, FALSE);
}

/* Returns the basename of an image, with its folder if another image has the same basename. */
static char *image_label(const struct report_rows *rows, const char *path)
{
	bool has_twin = false;

	if (!path || rows->report->full_names)
		return g_strdup(path);
	for (guint i = 0; !has_twin && i < rows->lines->len; i++)
		has_twin = functions_have_one_basename(path, line_at(rows, i)->name);
	return g_strdup(functions_short_path(path, has_twin));
}

/* Returns the name of a row in text; NULL: it has none. */
static char *name_of(const struct report_rows *rows, const struct report_line *line)
{
	const struct profile *profile = &rows->report->profile;
	g_autofree char *label = NULL;
	const char *comm;

	if (rows->labels)
		label = function_labels_name(rows->labels, line->entity);
	if (rows->kind == ROWS_CALLERS) {
		const struct profile_entity *caller =
			&g_array_index(profile->callers, struct profile_entity, line->entity);

		/* "shop::Stats::add  +3": three frames between the caller and the function that it
		 * calls are hidden */
		if (caller->least_skipped < caller->most_skipped)
			return g_strdup_printf("%s  +%" PRIu32 "-%" PRIu32, label,
					       caller->least_skipped, caller->most_skipped);
		if (caller->most_skipped > 0)
			return g_strdup_printf("%s  +%" PRIu32, label, caller->most_skipped);
	}
	if (rows->labels)
		return g_steal_pointer(&label);
	if (rows->kind == ROWS_PROGRAMS || profile->by == PROFILE_CGROUP)
		return g_strdup(line->name);
	if (profile->by == PROFILE_IMAGE)
		return image_label(rows, line->name);
	if (profile->by == PROFILE_THREAD)
		return name_of_thread(rows, line->entity);
	comm = comm_of_process(rows->report, line->entity);
	return g_strdup_printf("%" PRIu64 " %s", line->offset, comm ? comm : "-");
}

static struct cell time_cell(const struct report_rows *rows, const struct report_line *line,
			     enum field field)
{
	const struct run_time *time = time_at(rows->times, line->entity);
	const struct capture *capture = rows->report->reader.capture;
	const uint64_t ns[] = { time->run_ns, time->wait_ns, time->preempted_ns, time->runnable_ns,
				time->run_ns + time->wait_ns + time->preempted_ns +
					time->runnable_ns };
	struct cell cell = cell_uint(ns[field - RUN]);

	if (!time->known && rows->kind == ROWS_PROGRAMS && field == RUN)
		return cell_uint(line->count.self.weight);
	if (!time->known || (field == RUNNABLE && !run_times_have_wakeups(capture)))
		return cell_unknown();
	cell.is_least = capture_lacks_rows(capture, PROF_TABLE_SWITCH);
	return cell;
}

/* Returns the function with which a thread began: shortened in text. */
static struct cell start_cell(const struct report *report, uint32_t thread)
{
	uint32_t start = thread_starts_of(&report->starts, thread);
	const struct function *f;

	if (start == FUNCTION_NO_STACK)
		return cell_unknown();
	f = functions_at(report->starts.functions, start);
	return report->reader.format != READER_TEXT || report->full_names
		       ? cell_text(f->name)
		       : cell_own_text(function_name_for_people(f->name, f->raw_name));
}

static struct cell id_cell(uint32_t index, uint64_t id)
{
	return index > NAMES_LOST ? cell_uint(id) : cell_unknown();
}

static struct cell cell_of(const struct report_rows *rows, const struct report_line *line,
			   unsigned field)
{
	const struct report *report = rows->report;
	const struct profile *profile = &report->profile;
	const struct names *names = report->reader.capture->names;
	uint32_t entity = line->entity;
	uint32_t process = profile->by == PROFILE_THREAD ? names_thread_at(names, entity)->process
							 : entity;

	switch (field) {
	case SELF:
		return cell_uint(line->count.self.samples);
	case TOTAL:
		return cell_uint(line->count.total.samples);
	case SELF_PCT:
		return cell_double(report_percent(report, line->count.self));
	case TOTAL_PCT:
		return cell_double(report_percent(report, line->count.total));
	case SELF_WEIGHT:
		/* Durations show 0 as a number, but a weight of 0 is an empty cell. */
		return (struct cell){ .kind = CELL_UINT,
				      .number = line->count.self.weight,
				      .format = line->count.self.weight ? 0 : COLUMN_COUNT };
	case TOTAL_WEIGHT:
		return cell_uint(line->count.total.weight);
	case SHARE:
		return cell_double(
			amount_percent(line->count.total, profile->focus_entity.count.total));
	case TIMELINE: {
		double values[PROFILE_BINS];

		for (unsigned i = 0; i < PROFILE_BINS; i++)
			values[i] = (double)timeline_of(report, entity)[i].weight;
		return cell_own_text(sparkline(values, PROFILE_BINS, rows->most));
	}
	case IMAGE:
		return cell_text(names_image_at(names, entity)->path);
	case BUILD_ID:
		return cell_text(names_image_at(names, entity)->build_id);
	case PID:
		return id_cell(process, names_process_at(names, process)->pid);
	case TID:
		return id_cell(entity, names_thread_at(names, entity)->tid);
	case COMM:
		return cell_text(profile->by == PROFILE_THREAD
					 ? names_thread_at(names, entity)->comm
					 : comm_of_process(report, entity));
	case NAMES:
		return cell_uint(thread_names_count(report->reader.thread_names, entity));
	case START:
		return start_cell(report, entity);
	case INCOMPLETE:
		return cell_bool(capture_lacks_rows(report->reader.capture, PROF_TABLE_SWITCH));
	case CGROUP:
		return cell_text(profile->cgroups->pdata[entity]);
	case PROCESSES:
		return cell_uint(g_array_index(rows->processes, unsigned, entity));
	case NAME:
		return cell_own_or_none(name_of(rows, line));
	case PLACE:
		return cell_own_or_none(function_labels_place(rows->labels, entity));
	default:
		return field < FN_FIELDS ? functions_cell(profile->functions, entity,
							  (enum function_field)field)
					 : time_cell(rows, line, (enum field)field);
	}
}

static struct cell get_cell(const void *data, size_t row, unsigned field)
{
	return cell_of(data, line_at(data, row), field);
}

/* ---- JSON and CSV ---------------------------------------------------------------------------- */

static void write_members(const struct report_rows *rows, struct json *json,
			  const struct report_line *line, const struct table_member *members)
{
	for (; members->key; members++) {
		struct cell cell = cell_of(rows, line, members->field);

		cell_write(json, members->key, &cell);
		cell_done(&cell);
	}
}

void report_write_entity(const struct report *report, struct json *json, uint32_t entity)
{
	write_members(&(struct report_rows){ .report = report }, json,
		      &(struct report_line){ .entity = entity },
		      entity_members[report->profile.by]);
}

void report_write_counts(const struct report *report, struct json *json, struct profile_count count)
{
	write_members(&(struct report_rows){ .report = report }, json,
		      &(struct report_line){ .count = count }, count_members);
}

static void write_timeline(const void *data, size_t row, struct json *json)
{
	const struct report_rows *rows = data;
	const struct amount *self = timeline_of(rows->report, line_at(rows, row)->entity);

	json_begin_array(json, "timeline");
	for (unsigned i = 0; i < PROFILE_BINS; i++)
		json_uint(json, NULL, self[i].samples);
	json_end(json);
	json_begin_array(json, "timeline_weight");
	for (unsigned i = 0; i < PROFILE_BINS; i++)
		json_uint(json, NULL, self[i].weight);
	json_end(json);
}

/* ---- text ------------------------------------------------------------------------------------ */

static const char *rest_format(const struct report_rows *rows, unsigned long n)
{
	if (rows->kind == ROWS_PROGRAMS)
		return ngettext("%s more program, %s %%", "%s more programs, %s %%", n);
	if (rows->kind != ROWS_ENTITIES) /* no sum: the shares of callers and callees overlap */
		return ngettext("%s more function", "%s more functions", n);
	switch (rows->report->profile.by) {
	case PROFILE_LINE:
		return ngettext("%s more line, %s %%", "%s more lines, %s %%", n);
	case PROFILE_IMAGE:
		return ngettext("%s more image, %s %%", "%s more images, %s %%", n);
	case PROFILE_THREAD:
		return ngettext("%s more thread, %s %%", "%s more threads, %s %%", n);
	case PROFILE_PROCESS:
		return ngettext("%s more process, %s %%", "%s more processes, %s %%", n);
	case PROFILE_CGROUP:
		return ngettext("%s more cgroup, %s %%", "%s more cgroups, %s %%", n);
	default:
		return ngettext("%s more function, %s %%", "%s more functions, %s %%", n);
	}
}

static char *describe_rest(const void *data, size_t shown)
{
	const struct report_rows *rows = data;
	unsigned long n = rows->lines->len - shown;
	g_autofree char *count = text_count(n), *percent = NULL;
	struct amount rest = { 0 };

	for (size_t i = shown; i < rows->lines->len; i++)
		amount_add(&rest, line_at(rows, i)->count.self);
	percent = text_percent(report_percent(rows->report, rest),
			       rows->report->profile.all.samples >= REPORT_FINE_SAMPLES);
	return g_strdup_printf(rest_format(rows, n), count, percent);
}

static bool is_hot(const void *data, size_t row)
{
	const struct report_rows *rows = data;

	return report_percent(rows->report, line_at(rows, row)->count.self) >= HOT_PCT;
}

/* Prepares the labels, titles and scales, which depend on all shown rows. */
static void prepare_text(struct report_rows *rows)
{
	const struct report *report = rows->report;
	const struct profile *profile = &report->profile;
	const struct names *names = report->reader.capture->names;
	uint64_t pid = 0;

	if (profile->by == PROFILE_FUNCTION || profile->by == PROFILE_LINE)
		rows->labels = function_labels_new(profile->functions, report->full_names);
	for (size_t i = 0; i < reader_shown(&report->reader, rows->lines->len); i++) {
		uint32_t entity = line_at(rows, i)->entity;

		if (rows->labels)
			function_labels_add(rows->labels, entity);
		if (profile->by == PROFILE_THREAD) {
			uint32_t process = names_thread_at(names, entity)->process;
			uint64_t other = names_process_at(names, process)->pid;

			rows->shows_processes |= i > 0 && other != pid;
			pid = other;
		}
		for (unsigned k = 0; profile->wants_timeline && k < PROFILE_BINS; k++)
			rows->most =
				MAX_OF(rows->most, (double)timeline_of(report, entity)[k].weight);
	}
	if (profile->wants_timeline)
		rows->range = sparkline_range(profile->bins_from_ns,
					      profile->bins_from_ns +
						      (int64_t)(PROFILE_BINS * profile->bin_ns));
}

static struct table table_of(struct report_rows *rows)
{
	const struct report *report = rows->report;
	struct table_member *member = rows->members;

	for (const struct table_member *m = entity_members[report->profile.by]; m->key; m++)
		*member++ = *m;
	for (const struct table_member *m = count_members; m->key; m++)
		*member++ = *m;
	return (struct table){
		.rows = rows->lines->len,
		.get = get_cell,
		.data = rows,
		.members = rows->members,
		.write = report->profile.wants_timeline ? write_timeline : NULL,
		.is_coarse = report->profile.all.samples < REPORT_FINE_SAMPLES,
		.fit = rows->labels ? &function_name_fits : NULL,
		.rest = describe_rest,
		.is_bold = is_hot,
	};
}

static void add_times(const struct report_rows *rows, struct table *table)
{
	const struct reader *reader = &rows->report->reader;

	table_add_column(table, RUN, COLUMN_SECONDS, _("CPU s"));
	if (!rows->has_times)
		return;
	table_add_column(table, WAIT, COLUMN_SECONDS, _("wait s"));
	table_add_column(table, PREEMPTED, COLUMN_SECONDS, _("preempted s"));
	if (rows->kind == ROWS_PROGRAMS)
		return;
	if (run_times_have_wakeups(reader->capture))
		table_add_column(table, RUNNABLE, COLUMN_SECONDS, _("runnable s"));
	/* If only a part is selected, a thread's times do not add up to its lifetime. */
	if (!reader->timed && !reader->cpus && !reader->comms)
		table_add_column(table, LIFE, COLUMN_SECONDS, _("life s"));
}

/* Says that the only row has all samples, and which option or command divides it. */
static void print_only_row(const struct report_rows *rows, struct out *out)
{
	static const char *const formats[] = {
		[PROFILE_FUNCTION] = N_("All %s are in this function; 'profcapture annotate' shows "
					"its lines.\n"),
		[PROFILE_LINE] = N_("All %s are in this line.\n"),
		[PROFILE_IMAGE] = N_("All %s are in this image; --by function divides them.\n"),
		[PROFILE_THREAD] = N_("All %s are of this thread; --by function divides them.\n"),
		[PROFILE_PROCESS] = N_("All %s are of this process; --by thread or --by function "
				       "divides them.\n"),
		[PROFILE_CGROUP] = N_("All %s are of processes in this cgroup; --by process or "
				      "--by function divides them.\n"),
	};
	const struct report *report = rows->report;
	bool is_unknown = report->profile.by == PROFILE_CGROUP && !line_at(rows, 0)->name;

	out_printf(out,
		   is_unknown ? _("The cgroups of all %s are unknown.\n")
			      : _(formats[report->profile.by]),
		   report_count_title(report));
}

static void print_rows(struct report_rows *rows, struct out *out)
{
	static const char *const titles[] = { N_("function"), N_("line"),    N_("image"),
					      N_("thread"),   N_("process"), N_("cgroup") };
	const struct report *report = rows->report;
	const struct profile *profile = &report->profile;
	bool is_clock = strcmp(profile_unit(profile), "ns") == 0;
	const char *event = profile_event_name(profile);
	struct table table;

	prepare_text(rows);
	table = table_of(rows);
	table_add_column(&table, SELF_PCT, COLUMN_PERCENT, _("self %"));
	if (!report->no_children && profile->by <= PROFILE_IMAGE)
		table_add_column(&table, TOTAL_PCT, COLUMN_PERCENT, _("total %"));
	if (!rows->has_times)
		table_add_column(&table, SELF, COLUMN_COUNT, report_count_title(report));
	if (profile_is_weighted(profile))
		table_add_column(&table, SELF_WEIGHT, is_clock ? COLUMN_DURATION : COLUMN_COUNT,
				 is_clock                                 ? _("time")
				 : text_width(event) > MOST_EVENT_COLUMNS ? _("events")
									  : event);
	if (profile->wants_timeline)
		table_add_column(&table, TIMELINE, COLUMN_SPARKLINE, rows->range);
	if (rows->has_times)
		add_times(rows, &table);
	table_add_column(&table, NAME, COLUMN_NAME, _(titles[profile->by]));
	if (profile->by == PROFILE_THREAD)
		table_add_column(&table, START, COLUMN_PLACE, _("start"));
	if (rows->labels)
		table_add_column(&table, PLACE, COLUMN_PLACE, NULL);
	reader_print_table(&report->reader, out, &table);
	if (rows->kind == ROWS_ENTITIES && rows->lines->len == 1 && profile->all.samples > 0)
		print_only_row(rows, out);
}

/* ---- the programs of a system ---------------------------------------------------------------- */

/* Returns the row of the program of that name. Adds it if needed. */
static struct report_line *line_of_program(struct report_rows *rows, GHashTable *by_comm,
					   const char *comm)
{
	gpointer known;

	if (!g_hash_table_lookup_extended(by_comm, comm, NULL, &known)) {
		struct report_line line = { .entity = rows->lines->len, .name = comm };

		known = GUINT_TO_POINTER(line.entity);
		g_hash_table_insert(by_comm, (gpointer)comm, known);
		g_array_append_val(rows->lines, line);
		g_array_set_size(rows->times, rows->lines->len);
		g_array_set_size(rows->processes, rows->lines->len);
	}
	return &g_array_index(rows->lines, struct report_line, GPOINTER_TO_UINT(known));
}

/* Prints the programs. Adds up the threads of all processes of one name. */
static void print_programs(const struct report *report, struct out *out)
{
	const struct names *names = report->reader.capture->names;
	const GArray *sampled = report->profile.threads;
	g_autoptr(GHashTable) by_comm = g_hash_table_new(g_str_hash, g_str_equal);
	g_autofree uint8_t *is_counted = g_new0(uint8_t, names->processes->len);
	g_autoptr(GArray) times = g_array_new(FALSE, TRUE, sizeof(struct run_time));
	g_autoptr(GArray) processes = g_array_new(FALSE, TRUE, sizeof(unsigned));
	CLEANUP(rows_done)
	struct report_rows rows = { .report = report,
				    .lines = g_array_new(FALSE, TRUE, sizeof(struct report_line)),
				    .kind = ROWS_PROGRAMS,
				    .times = times,
				    .processes = processes };
	struct reader top = report->reader;
	struct table table;

	for (guint i = 0; i < MAX_OF(report->times->len, sampled->len); i++) {
		const struct run_time *from = time_at(report->times, i);
		uint32_t process = names_thread_at(names, i)->process;
		const char *comm = comm_of_process(report, process);
		struct amount amount = i < sampled->len ? g_array_index(sampled, struct amount, i)
							: (struct amount){ 0 };
		struct report_line *line;
		struct run_time *to;

		if (amount.samples == 0 && !from->known)
			continue;
		line = line_of_program(&rows, by_comm, comm ? comm : "-");
		amount_add(&line->count.self, amount);
		to = &g_array_index(times, struct run_time, line->entity);
		run_time_add(to, from);
		rows.has_times |= from->known;
		g_array_index(processes, unsigned, line->entity) += is_counted[process] == 0;
		is_counted[process] = 1;
	}
	if (rows.lines->len == 0)
		return;
	g_array_sort(rows.lines, report_compare_lines);
	table = table_of(&rows);
	table_add_column(&table, SELF_PCT, COLUMN_PERCENT, _("self %"));
	add_times(&rows, &table);
	table_add_column(&table, PROCESSES, COLUMN_COUNT, _("processes"));
	table_add_column(&table, NAME, COLUMN_NAME, _("program"));
	top.limit = top.limit ? MIN_OF(top.limit, (uint64_t)MOST_PROGRAMS) : 0;
	reader_print_table(&top, out, &table);
	out_char(out, '\n');
}

/* ---- the answers: rows, or callers and callees ----------------------------------------------- */

/* Returns a pointer to the row of the last program that the thread of row `i` executed. Sets it to
 * `i` if the program of row `i` is later. */
static guint *last_execution(const struct report *report, GHashTable *last, guint i)
{
	const struct names *names = report->reader.capture->names;
	const struct names_thread *thread = names_thread_at(names, i);
	const struct names_process *process = names_process_at(names, thread->process);
	g_autofree char *key = g_strdup_printf("%" PRIu64 " %" PRIu64 " %" PRIu64, process->pid,
					       process->start_time, thread->tid);
	guint *known = g_hash_table_lookup(last, key);
	uint32_t other;

	if (!known) {
		known = g_new(guint, 1);
		*known = i;
		g_hash_table_insert(last, g_steal_pointer(&key), known);
	}
	other = names_thread_at(names, *known)->process;
	if (names_process_at(names, other)->exec_generation < process->exec_generation)
		*known = i;
	return known;
}

/* In text, a thread's row includes the time before it executed a program, unless that time gets a
 * separate row (JOINED_SAMPLES). */
static void join_executions(const struct report *report)
{
	GArray *counts = report->profile.counts, *times = report->times;
	guint n = MAX_OF(counts->len, times->len);
	g_autoptr(GHashTable) last = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);

	if (n == 0)
		return;
	(void)GROWN_AT(counts, struct profile_entity, n - 1);
	(void)GROWN_AT(times, struct run_time, n - 1);
	for (unsigned pass = 0; pass < 2; pass++) {
		for (guint i = NAMES_LOST + 1; i < n; i++) {
			struct profile_count
				*from = &g_array_index(counts, struct profile_entity, i).count,
				*to;
			struct run_time *time = &g_array_index(times, struct run_time, i);
			guint joined;

			if (from->total.samples == 0 && !time->known)
				continue;
			joined = *last_execution(report, last, i);
			if (pass == 0 || joined == i ||
			    (from->self.samples > JOINED_SAMPLES &&
			     report_percent(report, from->self) >= JOINED_PCT))
				continue;
			to = &g_array_index(counts, struct profile_entity, joined).count;
			amount_add(&to->self, from->self);
			amount_add(&to->total, from->total);
			run_time_add(&g_array_index(times, struct run_time, joined), time);
			*from = (struct profile_count){ 0 };
			*time = (struct run_time){ 0 };
		}
	}
}

void report_show_rows(struct report *report, struct out *out)
{
	CLEANUP(rows_done) struct report_rows rows;

	if (report->profile.by == PROFILE_THREAD && report->reader.format == READER_TEXT)
		join_executions(report);
	rows_init(&rows, report, report->profile.counts);
	if (report->reader.format == READER_TEXT) {
		report_print_head(report, out);
		if (report->profile.by == PROFILE_FUNCTION && report->process_comms)
			print_programs(report, out);
		print_rows(&rows, out);
	} else {
		const struct table table = table_of(&rows);

		reader_begin(&report->reader, &report->json, "report",
			     reader_shown(&report->reader, table.rows) < table.rows, table.rows);
		if (report->reader.format == READER_JSON)
			report_write_head(report, &report->json);
		reader_write_table(&report->reader, &report->json, &table);
		reader_end(&report->reader, &report->json);
	}
}

/* Returns the index of the function that --callers or --callees selects, or FUNCTION_NO_STACK. */
static uint32_t focus_index(const struct report *report)
{
	const GArray *all = report->profile.functions->all;

	for (guint i = 0; report->profile.focus_found && i < all->len; i++) {
		const struct function *f = functions_at(report->profile.functions, i);

		if ((strcmp(f->name, report->profile.focus) == 0 ||
		     strcmp(f->raw_name, report->profile.focus) == 0) &&
		    profile_count_at(report->profile.counts, i).total.samples > 0)
			return i;
	}
	return FUNCTION_NO_STACK;
}

/* Prints "pthread_mutex_lock (libc.so.6): 2.1 % of CPU time, 65 samples. … Its callers:" */
static void print_focus(const struct report *report, struct out *out)
{
	const struct profile *profile = &report->profile;
	uint32_t function = focus_index(report);
	struct amount total = profile->focus_entity.count.total;
	enum reader_metric metric = report->reader.metric;
	struct function_labels *labels =
		function_labels_new(profile->functions, report->full_names);
	g_autofree char *name = NULL, *place = NULL, *label = NULL, *label_text = NULL;
	g_autofree char *count = text_count(total.samples);
	g_autofree char *percent = text_percent(report_percent(report, total),
						profile->all.samples >= REPORT_FINE_SAMPLES);
	CLEANUP_OUT struct out line = out_buffer();
	CLEANUP_OUT struct out losses = out_buffer();

	function_labels_add(labels, function);
	name = function_labels_name(labels, function);
	place = function_labels_place(labels, function);
	label = place ? g_strdup_printf("%s (%s)", name, place) : g_strdup(name);
	label_text = text_escape(label);
	function_labels_free(labels);
	out_printf(&line, _("%s: %s %% of "), label_text, percent);
	if (strcmp(profile_unit(profile), "ns") == 0)
		out_text(&line, metric == READER_CPU       ? _("CPU time")
				: metric == READER_OFF_CPU ? _("the waiting time")
							   : _("the threads' time"));
	else
		text_cell(&line, profile_event_name(profile), 0);
	out_printf(&line,
		   metric == READER_OFF_CPU
			   ? ngettext(", %s wait.", ", %s waits.", (unsigned long)total.samples)
			   : ngettext(", %s sample.", ", %s samples.",
				      (unsigned long)total.samples),
		   count);
	if (reader_is_complete(&report->reader))
		out_text(&line, _(" Lost: nothing."));
	report_print_losses(report, &losses);
	if (losses.text->len) {
		text_wrap(out, line.text->str, 0, 2, report->reader.columns);
		out_text(out, losses.text->str);
		g_string_truncate(line.text, 0);
	} else {
		out_char(&line, ' ');
	}
	out_text(&line, report->callers ? _("Its callers:") : _("Its callees:"));
	text_wrap(out, line.text->str, 0, 2, report->reader.columns);
}

COMPARE_BY(compare_by_total, struct report_line, amount_compare(a->count.total, b->count.total),
	   report_compare_lines(a, b))

static void print_edges(struct report_rows *rows, struct out *out, const char *title)
{
	struct table table;

	g_array_sort(rows->lines, compare_by_total);
	prepare_text(rows);
	table = table_of(rows);
	table.is_coarse = rows->report->profile.focus_entity.count.total.samples <
			  REPORT_FINE_SAMPLES;
	table.is_bold = NULL;
	table_add_column(&table, TOTAL, COLUMN_COUNT, report_count_title(rows->report));
	table_add_column(&table, SHARE, COLUMN_PERCENT, _("share %"));
	table_add_column(&table, NAME, COLUMN_NAME, title);
	table_add_column(&table, PLACE, COLUMN_PLACE, NULL);
	out_char(out, '\n');
	reader_print_table(&rows->report->reader, out, &table);
}

/* Reports that the function was not found, and returns the exit status. In formats for programs, an
 * answer without a function is valid. */
static int say_not_found(const struct report *report)
{
	const char *focus = report->profile.focus, *file = report->reader.capture->file;
	const GArray *all = report->profile.functions->all;
	g_autoptr(GPtrArray) known = g_ptr_array_new();
	g_autofree char *message = NULL;
	const char *meant;

	for (guint i = FUNCTION_LOST + 1; i < all->len; i++)
		g_ptr_array_add(known, (gpointer)functions_at(report->profile.functions, i)->name);
	g_ptr_array_add(known, NULL);
	meant = cli_suggest(focus, (const char *const *)known->pdata);
	if (report->profile.unresolved > 0 && !functions_have_names(report->profile.functions))
		message = g_strdup_printf(_("no function named '%s' in %s. Names are missing. Add "
					    "them: profcapture symbolize %s"),
					  focus, file, file);
	else if (meant)
		message = g_strdup_printf(_("no function named '%s' in %s. Did you mean '%s'?"),
					  focus, file, meant);
	else if (report->profile.functions->has_interpreter &&
		 !report->reader.capture->names->interpreter_frames)
		message = g_strdup_printf(_("no function named '%s' in %s. The interpreter's own "
					    "functions need --interpreter-frames"),
					  focus, file);
	else
		message = g_strdup_printf(_("no function named '%s' in %s"), focus, file);
	if (reader_fails_empty(&report->reader) && report->profile.all.samples > 0)
		return cli_fail(g_error_new(CLI_ERROR, CLI_USAGE, "%s", message));
	cli_warning("%s", message);
	return CLI_OK;
}

int report_show_edges(struct report *report, struct out *out)
{
	CLEANUP(rows_done) struct report_rows callers;
	CLEANUP(rows_done) struct report_rows callees;
	const struct profile *profile = &report->profile;
	struct json *json = &report->json;
	int status = CLI_OK;

	rows_init(&callers, report, profile->callers);
	rows_init(&callees, report, profile->callees);
	callers.kind = profile->own_callers ? ROWS_CALLERS : ROWS_CALLEES;
	callees.kind = ROWS_CALLEES;
	if (!profile->focus_found)
		status = say_not_found(report);
	if (status != CLI_OK)
		return status;
	if (report->reader.format != READER_TEXT) {
		const struct table tables[] = { table_of(&callers), table_of(&callees) };
		const size_t shown[] = { reader_shown(&report->reader, tables[0].rows),
					 reader_shown(&report->reader, tables[1].rows) };

		reader_begin(&report->reader, json, "report",
			     shown[0] < tables[0].rows || shown[1] < tables[1].rows,
			     tables[0].rows + tables[1].rows);
		report_write_head(report, json);
		if (profile->focus_found) {
			json_begin_object(json, "function");
			report_write_entity(report, json, focus_index(report));
			report_write_counts(report, json, profile->focus_entity.count);
			json_end(json);
		} else {
			json_null(json, "function");
		}
		table_write_array(&tables[0], json, "callers", shown[0]);
		table_write_array(&tables[1], json, "callees", shown[1]);
		reader_end(&report->reader, json);
		return status;
	}
	if (!profile->focus_found)
		return status;
	print_focus(report, out);
	if (report->callers)
		print_edges(&callers, out, _("caller"));
	if (report->callers && report->callees)
		out_text(out, _("\nIts callees:\n"));
	if (report->callees)
		print_edges(&callees, out, _("callee"));
	return status;
}
