/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profcapture info - what is in a capture
 *
 * Reads every chunk, so that the report of damage is complete.
 */
#include "config.h"

#include "base/each.h"
#include "base/order.h"
#include "tools/common/capture-error.h"
#include "tools/common/json-copy.h"
#include "tools/profcapture/capture-losses.h"
#include "tools/profcapture/profile.h"
#include "tools/profcapture/verbs.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <string.h>

#define DEFAULT_LIMIT 20
#define FINE_SAMPLES 1000 /* from this number on, shares have a decimal */
#define NAMED_MOST 3      /* the summary names at most this many processes, and images */

struct table_info {
	const struct prof_table_def *table;
	uint64_t rows, chunks, bytes, raw_bytes;
	int64_t from_ns, to_ns;
};

/* A process or an image. */
struct subject {
	uint32_t index; /* index in names */
	uint64_t samples;
	int64_t end_ns; /* end of a process; INT64_MIN: no end was seen */
	const char *comm;
};

struct info {
	struct reader reader;
	struct profile functions, threads;
	GArray *tables;    /* struct table_info */
	GArray *processes; /* struct subject, the busiest first */
	GArray *images;    /* struct subject, the most sampled first */
	bool is_verbose;
};

static const struct cli_option options[] = {
	{ "verbose", 'v', CLI_FLAG, offsetof(struct info, is_verbose), NULL,
	  N_("Add the tables with their chunks, the images, the processes and the options of the recording") },
	{ NULL },
};

/* ---- gathering ------------------------------------------------------------------------------- */

static bool gather_chunk(const struct prof_chunk *chunk, void *data, GError **error)
{
	struct info *info = data;
	const struct capture *capture = info->reader.capture;

	ARRAY_EACH(struct table_info, table, info->tables) {
		if (table->table->id != chunk->table)
			continue;
		table->rows += chunk->rows;
		table->chunks++;
		table->bytes += chunk->stored_bytes;
		table->raw_bytes += chunk->raw_bytes;
		table->from_ns =
			MIN_OF(table->from_ns, capture_time(capture, chunk->segment, chunk->t_min));
		table->to_ns =
			MAX_OF(table->to_ns, capture_time(capture, chunk->segment, chunk->t_max));
	}
	return true;
}

static bool gather_tables(struct info *info, GError **error)
{
	const struct capture *capture = info->reader.capture;
	size_t n;
	const struct prof_table_def *const *tables = prof_reader_tables(capture->reader, &n);

	info->tables = g_array_new(FALSE, TRUE, sizeof(struct table_info));
	for (size_t i = 0; i < n; i++) {
		struct table_info table = { .table = tables[i],
					    .from_ns = INT64_MAX,
					    .to_ns = INT64_MIN };

		g_array_append_val(info->tables, table);
	}
	return capture_each_chunk(capture, 0, gather_chunk, info, error);
}

static struct subject *process_of(struct info *info, uint32_t process)
{
	for (uint32_t i = info->processes->len; i <= process; i++) {
		struct subject subject = { .index = i, .end_ns = INT64_MIN };

		g_array_append_val(info->processes, subject);
	}
	return &g_array_index(info->processes, struct subject, process);
}

static void note_exit(uint32_t process, int64_t time_ns, void *data)
{
	struct subject *subject = process_of(data, process);

	subject->end_ns = MAX_OF(subject->end_ns, time_ns);
}

COMPARE_BY(compare_subjects, struct subject, ORDER(b->samples, a->samples),
	   ORDER(a->index, b->index))

static void gather_processes(struct info *info)
{
	const struct names *names = info->reader.capture->names;

	for (uint32_t i = NAMES_LOST + 1; i < names->threads->len; i++) {
		const struct names_thread *thread = names_thread_at(names, i);
		struct subject *process = process_of(info, thread->process);

		process->samples += profile_count_at(info->threads.counts, i).self.samples;
		if (!process->comm || thread->tid == names_process_at(names, thread->process)->pid)
			process->comm = thread->comm;
	}
	if (names->processes->len > 0)
		(void)process_of(info, names->processes->len - 1);
	/* Remove the two entries that are not processes: none, and lost. */
	g_array_remove_range(info->processes, 0, MIN_OF(info->processes->len, NAMES_LOST + 1));
	g_array_sort(info->processes, compare_subjects);
}

static void gather_images(struct info *info)
{
	const struct names *names = info->reader.capture->names;
	g_autofree uint64_t *samples = g_new0(uint64_t, names->images->len);

	for (guint i = 0; i < info->functions.counts->len; i++)
		samples[functions_at(info->functions.functions, i)->image] +=
			profile_count_at(info->functions.counts, i).self.samples;
	info->images = g_array_new(FALSE, TRUE, sizeof(struct subject));
	for (uint32_t i = NAMES_LOST; i < names->images->len; i++) {
		struct subject image = { .index = i, .samples = samples[i] };

		if (samples[i])
			g_array_append_val(info->images, image);
	}
	g_array_sort(info->images, compare_subjects);
}

/* ---- tables ---------------------------------------------------------------------------------- */

enum field {
	NAME,
	ROWS,
	CHUNKS,
	BYTES,
	RAW_BYTES,
	BYTES_A_ROW,
	FROM,
	TO,
	BUILD_ID,
	SAMPLES,
	WEIGHT,
	UNIT,
	PID,
	PPID,
};

static const struct table_member table_members[] = {
	{ "name", NAME },           { "rows", ROWS },     { "chunks", CHUNKS }, { "bytes", BYTES },
	{ "raw_bytes", RAW_BYTES }, { "t_min_ns", FROM }, { "t_max_ns", TO },   { NULL },
};
static const struct table_member image_members[] = {
	{ "path", NAME }, { "build_id", BUILD_ID }, { "samples", SAMPLES }, { NULL }
};
static const struct table_member process_members[] = {
	{ "pid", PID },   { "ppid", PPID },       { "comm", NAME }, { "start_ns", FROM },
	{ "end_ns", TO }, { "samples", SAMPLES }, { NULL },
};

static struct cell get_table(const void *data, size_t row, unsigned field)
{
	const struct info *info = data;
	const struct table_info *table = &g_array_index(info->tables, struct table_info, row);
	const uint64_t numbers[] = { [ROWS] = table->rows,
				     [CHUNKS] = table->chunks,
				     [BYTES] = table->bytes,
				     [RAW_BYTES] = table->raw_bytes };

	if (field == NAME)
		return cell_text(table->table->name);
	else if (field < ARRAY_SIZE(numbers))
		return cell_uint(numbers[field]);
	else if (field == BYTES_A_ROW && table->rows)
		return cell_double((double)table->bytes / (double)table->rows);
	else if ((table->table->flags & PROF_TABLE_TIMED) && table->chunks > 0)
		return cell_int(field == FROM ? table->from_ns : table->to_ns);
	return cell_none();
}

static struct cell get_event(const void *data, size_t row, unsigned field)
{
	const struct info *info = data;
	const struct sampled_event *event =
		sampled_event_at(info->reader.capture->sampled, (uint32_t)row);

	return field == SAMPLES  ? cell_uint(event->counted.samples)
	       : field == WEIGHT ? cell_uint(event->counted.weight)
				 : cell_text(field == UNIT ? event->unit : event->name);
}

static struct cell get_image(const void *data, size_t row, unsigned field)
{
	const struct info *info = data;
	const struct subject *at = &g_array_index(info->images, struct subject, row);
	const struct names_image *image = names_image_at(info->reader.capture->names, at->index);

	return field == SAMPLES    ? cell_uint(at->samples)
	       : field == BUILD_ID ? cell_text(image->build_id)
				   : cell_text(image->path);
}

static struct cell get_process(const void *data, size_t row, unsigned field)
{
	const struct info *info = data;
	const struct capture *capture = info->reader.capture;
	const struct subject *at = &g_array_index(info->processes, struct subject, row);
	const struct names_process *process = names_process_at(capture->names, at->index);
	uint32_t segment = capture->n_segments ? capture->segments[0].number : 0;

	if (field == NAME)
		return cell_text(at->comm);
	else if (field == FROM && process->start_time)
		return cell_int(capture_time(capture, segment, process->start_time));
	else if (field == TO && at->end_ns != INT64_MIN)
		return cell_int(at->end_ns);
	else if (field == PID || field == PPID || field == SAMPLES)
		return cell_uint(field == PID    ? process->pid
				 : field == PPID ? process->ppid
						 : at->samples);
	return cell_none();
}

enum listing { TABLES, EVENTS, IMAGES, PROCESSES, LISTINGS };

static struct table table_of(const struct info *info, enum listing which)
{
	static const struct {
		enum listing of;
		unsigned field;
		enum column_format format;
		const char *title;
	} columns[] = {
		{ TABLES, ROWS, COLUMN_COUNT, N_("rows") },
		{ TABLES, CHUNKS, COLUMN_COUNT, N_("chunks") },
		{ TABLES, BYTES, COLUMN_SIZE, N_("size") },
		{ TABLES, BYTES_A_ROW, COLUMN_REAL, N_("bytes/row") },
		{ TABLES, NAME, COLUMN_NAME, N_("table") },
		{ EVENTS, SAMPLES, COLUMN_COUNT, N_("samples") },
		{ EVENTS, WEIGHT, COLUMN_COUNT, N_("weight") },
		{ EVENTS, UNIT, COLUMN_WORD, N_("unit") },
		{ EVENTS, NAME, COLUMN_NAME, N_("event") },
		{ IMAGES, SAMPLES, COLUMN_COUNT, N_("samples") },
		{ IMAGES, NAME, COLUMN_NAME, N_("image") },
		{ PROCESSES, SAMPLES, COLUMN_COUNT, N_("samples") },
		{ PROCESSES, PID, COLUMN_NUMBER, N_("pid") },
		{ PROCESSES, NAME, COLUMN_NAME, N_("process") },
	};
	struct table listings[LISTINGS] = {
		{ info->tables->len, get_table, info, table_members },
		{ info->reader.capture->sampled->all->len, get_event, info, NULL },
		{ info->images->len, get_image, info, image_members },
		{ info->processes->len, get_process, info, process_members },
	};

	for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
		if (columns[i].of == which)
			table_add_column(&listings[which], columns[i].field, columns[i].format,
					 _(columns[i].title));
	return listings[which];
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void write_info(const void *data, struct json *json)
{
	const struct info *info = data;
	const struct reader *reader = &info->reader;
	const struct capture *capture = reader->capture;
	const struct table tables = table_of(info, TABLES), images = table_of(info, IMAGES),
			   processes = table_of(info, PROCESSES);
	size_t n_images = reader_shown(reader, images.rows);
	size_t n_processes = reader_shown(reader, processes.rows);

	reader_begin(reader, json, "info", n_images < images.rows || n_processes < processes.rows,
		     images.rows + processes.rows);
	/* In ndjson, the members of "data" are the only row. */
	if (reader->format == READER_NDJSON)
		json_begin_object(json, NULL);
	table_write_array(&tables, json, "tables", tables.rows);
	capture_write_losses(capture, json, "loss");
	table_write_array(&images, json, "images", n_images);
	table_write_array(&processes, json, "processes", n_processes);
	profile_write_unwind(&info->functions, json, "unwind");
	json_uint(json, "unresolved_samples", info->functions.unresolved);
	json_copy(json, "options", capture_metadata(capture, "options"));
	json_uint(json, "epochs", prof_reader_info(capture->reader)->epochs);
	json_uint(json, "segments", capture->n_segments);
	if (reader->format == READER_NDJSON)
		json_end(json);
	reader_end(reader, json);
}

/* ---- text: the summary ----------------------------------------------------------------------- */

/* Appends a separator, except before the first item. */
static void separate(struct out *line)
{
	if (line->text->len > 0)
		out_text(line, ", ");
}

static void add_name(struct out *line, const char *name)
{
	g_autofree char *escaped = text_escape(name ? name : "-");

	out_text(line, escaped);
}

static void add_count(struct out *line, uint64_t count)
{
	g_autofree char *text = text_count(count);

	out_text(line, text);
}

static void add_percent(struct out *line, uint64_t part, uint64_t whole)
{
	g_autofree char *text =
		text_percent(100.0 * (double)part / (double)whole, whole >= FINE_SAMPLES);

	out_printf(line, "%s %%", text);
}

/* Appends "shop.cap: ./shop 40000 on vm, 25 Nov 2026 09:49:26 UTC, 3.18 s. Complete (179 KiB)." */
static void add_verdict(const struct info *info, struct out *line)
{
	static const char *const states[] = { [PROF_STATE_FINISHED] = N_("Complete (%s)."),
					      [PROF_STATE_UNFINISHED] =
						      N_("Unfinished (%s): the end is missing."),
					      [PROF_STATE_DAMAGED] = N_("Damaged (%s).") };
	const struct capture *capture = info->reader.capture;
	const char *host = capture_metadata(capture, "host");
	int64_t wall = capture->n_segments ? capture->segments[0].wall_ns : 0;
	g_autoptr(GDateTime) start = wall ? g_date_time_new_from_unix_utc(wall / 1000000000) : NULL;
	g_autofree char *when = start ? g_date_time_format(start, "%-d %b %Y %H:%M:%S UTC") : NULL;
	g_autofree char *duration = text_duration((uint64_t)capture->duration_ns);
	g_autofree char *bytes = text_bytes(prof_reader_info(capture->reader)->bytes);
	g_autofree char *command =
		capture_command(capture, info->is_verbose ? 0 : CAPTURE_COMMAND_COLUMNS);

	add_name(line, capture->file);
	out_text(line, ": ");
	out_text(line, capture_metadata(capture, "command") ? command
		       : capture_is_system(capture)         ? _("the system")
							    : _("processes"));
	if (host) {
		out_text(line, _(" on "));
		add_name(line, host);
	}
	out_printf(line, when ? ", %s, %s. " : "%s, %s. ", when ? when : "", duration);
	out_printf(line, _(states[capture_state(capture)]), bytes);
}

/* Appends what was lost to damage. Losses of the recording are printed separately. */
static void add_lost(const struct info *info, struct out *line)
{
	struct prof_lost lost = capture_unreadable(info->reader.capture, 0);
	g_autofree char *rows = text_count(lost.rows);

	if (reader_is_complete(&info->reader))
		out_text(line, _(" Lost: nothing."));
	else if (lost.rows > 0 || lost.stretches > 0)
		out_printf(line,
			   lost.stretches > 0
				   ? _(" Lost: at least %s rows of damaged chunks.")
				   : ngettext(" Lost: %s rows of a damaged chunk.",
					      " Lost: %s rows of damaged chunks.", lost.chunks),
			   rows);
}

static uint64_t frequency_of(const struct sampled_event *event)
{
	uint64_t period_ns = sampled_event_period_ns(event);

	return period_ns ? (1000000000 + period_ns / 2) / period_ns : event->frequency;
}

/* Appends "3,066 of cpu-clock at 999 Hz on each CPU; user stacks from DWARF, 99.9 % complete". */
static void add_samples(const struct info *info, struct out *line)
{
	static const char *const kinds[] = { N_("complete"), N_("truncated"), N_("guessed"),
					     N_("none") };
	const struct capture *capture = info->reader.capture;
	const struct sampled_events *events = capture->sampled;
	const char *call_graph = capture_metadata(capture, "call_graph");
	const uint64_t *unwind = info->functions.unwind;
	uint64_t user = 0;

	for (uint32_t i = 0; i < events->all->len; i++) {
		const struct sampled_event *event = sampled_event_at(events, i);
		uint64_t hz = frequency_of(event);

		separate(line);
		if (capture_lacks_rows(capture, PROF_TABLE_SAMPLE))
			out_text(line, text_sign(TEXT_AT_LEAST));
		add_count(line, event->counted.samples);
		if (event->name) {
			out_text(line, _(" of "));
			add_name(line, event->name);
		}
		/* Print a rate only after the last of consecutive events that share it. */
		if (hz && (i + 1 == events->all->len ||
			   frequency_of(sampled_event_at(events, i + 1)) != hz))
			out_printf(line, _(" at %" PRIu64 " Hz on each CPU"), hz);
	}
	if (line->text->len == 0)
		out_text(line, _("none"));
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		user += unwind[i];
	if (user == 0)
		return;
	out_text(line, g_strcmp0(call_graph, "dwarf") == 0 ? _("; user stacks from DWARF")
		       : g_strcmp0(call_graph, "fp") == 0  ? _("; user stacks by frame pointers")
							   : _("; user stacks"));
	out_text(line, ", ");
	if (unwind[UNWIND_COMPLETE] == user) {
		out_text(line, _("all complete"));
	} else if ((user - unwind[UNWIND_COMPLETE]) * 200 < user) {
		g_autofree char *rest = text_count(user - unwind[UNWIND_COMPLETE]);

		out_printf(line,
			   ngettext("complete in all but %s sample",
				    "complete in all but %s samples",
				    (unsigned long)(user - unwind[UNWIND_COMPLETE])),
			   rest);
	} else {
		add_percent(line, unwind[UNWIND_COMPLETE], user);
		out_printf(line, " %s", _(kinds[UNWIND_COMPLETE]));
	}
	for (size_t i = UNWIND_TRUNCATED; i < ARRAY_SIZE(kinds); i++) {
		if (unwind[i] * 100 < user)
			continue;
		out_text(line, ", ");
		add_percent(line, unwind[i], user);
		out_printf(line, " %s", _(kinds[i]));
	}
}

/* Tables that the summary mentions. */
static const struct content {
	unsigned table;
	const char *one, *many;
	const char *missing; /* printed if the capture has no such rows; NULL: nothing */
} contents[] = {
	{ PROF_TABLE_SWITCH, N_("context switch"), N_("context switches"), N_("context switches") },
	{ PROF_TABLE_WAIT, N_("wait"), N_("waits"), NULL },
	{ PROF_TABLE_ALLOC, N_("allocation"), N_("allocations"), N_("allocations") },
	{ PROF_TABLE_FREE, N_("free"), N_("frees"), NULL },
	{ PROF_TABLE_MARK, N_("mark"), N_("marks"), N_("marks") },
	{ PROF_TABLE_COUNTER_VALUE, N_("counter value"), N_("counter values"), N_("counters") },
	{ PROF_TABLE_LOG, N_("log message"), N_("log messages"), NULL },
};

/* Lists the tables with rows, and those without. */
static void add_contents(const struct info *info, struct out *also, struct out *missing)
{
	const struct capture *capture = info->reader.capture;
	const char *recorded_with = capture_metadata(capture, "options");

	ARRAY_EACH(const struct table_info, table, info->tables) {
		unsigned id = table->table->id;
		uint64_t lost = capture_unreadable(capture, id).rows;
		uint64_t rows = table->rows - MIN_OF(lost, table->rows);

		const struct content *content = contents;
		const struct content *end = contents + ARRAY_SIZE(contents);
		bool lacks_rows = capture_lacks_rows(capture, id);

		while (content < end && content->table != id)
			content++;
		if (rows > 0 && (content < end || id >= PROF_TABLE_FIRST_FOREIGN)) {
			separate(also);
			if (content < end && lacks_rows)
				out_text(also, text_sign(TEXT_AT_LEAST));
			add_count(also, rows);
			if (content < end) {
				out_printf(also, " %s",
					   _(rows == 1 ? content->one : content->many));
			} else {
				out_text(also, _(" rows of "));
				add_name(also, table->table->name);
			}
		} else if (content < end && table->rows == 0 && !lacks_rows && content->missing) {
			separate(missing);
			out_text(missing, _(content->missing));
			if (id == PROF_TABLE_ALLOC)
				out_text(missing, " (--memory)");
		}
	}
	if (recorded_with && strstr(recorded_with, "\"interpreters\":false")) {
		separate(missing);
		out_text(missing, _("functions of interpreted programs"));
		out_text(missing, " (--no-interpreters)");
	}
}

/* Appends "5 in 1 process: shop (25308)". A process that calls exec remains one process. */
static void add_threads(const struct info *info, struct out *line)
{
	const struct names *names = info->reader.capture->names;
	g_autoptr(GHashTable) threads = g_hash_table_new(NULL, NULL);
	g_autoptr(GHashTable) pids = g_hash_table_new(NULL, NULL);
	CLEANUP_OUT struct out named = out_buffer();
	guint n_pids;

	for (uint32_t i = NAMES_LOST + 1; i < names->threads->len; i++) {
		const struct names_thread *thread = names_thread_at(names, i);
		uint64_t pid = names_process_at(names, thread->process)->pid;

		g_hash_table_add(threads, GSIZE_TO_POINTER(pid << 32 | thread->tid));
	}
	ARRAY_EACH(const struct subject, at, info->processes) {
		uint64_t pid = names_process_at(names, at->index)->pid;

		if (!g_hash_table_add(pids, GSIZE_TO_POINTER(pid)) ||
		    g_hash_table_size(pids) > NAMED_MOST)
			continue;
		separate(&named);
		add_name(&named, at->comm);
		out_printf(&named, " (%" PRIu64 ")", pid);
	}
	n_pids = g_hash_table_size(pids);
	if (n_pids > 0) {
		add_count(line, g_hash_table_size(threads));
		out_printf(line, ngettext(" in %u process: %s", " in %u processes: %s", n_pids),
			   n_pids, named.text->str);
	}
	if (n_pids > NAMED_MOST)
		out_printf(line, ", %s", text_sign(TEXT_ELLIPSIS));
}

static char *share_of(uint64_t part, uint64_t whole)
{
	return text_percent(100.0 * (double)part / (double)whole, false);
}

/* Appends text such as "libc.so.6 44 %, shop 42 %, kernel 14 %; every sample has a name". */
static void add_code(const struct info *info, struct out *line)
{
	const struct names *names = info->reader.capture->names;
	uint64_t samples = info->functions.all.samples, others = samples;

	for (guint i = 0; i < info->images->len && i < NAMED_MOST; i++) {
		const struct subject *at = &g_array_index(info->images, struct subject, i);
		const char *path = names_image_at(names, at->index)->path;
		g_autofree char *share = share_of(at->samples, samples);
		bool has_twin = false;

		for (guint k = 0; path && k < info->images->len; k++) {
			const struct subject *other =
				&g_array_index(info->images, struct subject, k);

			has_twin |= functions_have_one_basename(
				path, names_image_at(names, other->index)->path);
		}

		separate(line);
		add_name(line, g_strcmp0(path, "[kernel]") == 0 ? _("kernel")
			       : path ? functions_short_path(path, has_twin)
				      : NULL);
		out_printf(line, " %s %%", share);
		others -= at->samples;
	}
	if (samples == 0)
		return;
	if (others * 200 >= samples) {
		g_autofree char *share = share_of(others, samples);

		separate(line);
		out_printf(line, _("others %s %%"), share);
	}
	if (info->functions.unresolved == 0) {
		out_text(line, _("; every sample has a name"));
	} else if (info->functions.unresolved == samples) {
		out_text(line, _("; no sample has a name"));
	} else {
		out_text(line, "; ");
		add_percent(line, info->functions.unresolved, samples);
		out_text(line, _(" of samples have no name"));
	}
}

static void add_host(const struct info *info, struct out *line)
{
	const char *kernel = capture_metadata(info->reader.capture, "kernel");
	const char *arch = capture_metadata(info->reader.capture, "arch");
	const char *cpus = capture_metadata(info->reader.capture, "cpus");
	uint64_t n_cpus = cpus ? g_ascii_strtoull(cpus, NULL, 10) : 0;

	if (kernel) {
		out_text(line, "Linux ");
		add_name(line, kernel);
	}
	if (arch) {
		separate(line);
		add_name(line, arch);
	}
	if (n_cpus > 0) {
		separate(line);
		out_printf(line, ngettext("%" PRIu64 " CPU", "%" PRIu64 " CPUs", n_cpus), n_cpus);
	}
}

static void print_details(const struct info *info, struct out *out)
{
	const struct capture *capture = info->reader.capture;
	const uint64_t *unwind = info->functions.unwind;
	g_autofree char *events = text_count(capture_events(capture));
	g_autoptr(GList) keys =
		g_list_sort(g_hash_table_get_keys(capture->metadata), (GCompareFunc)(void *)strcmp);
	struct reader all = info->reader;

	out_printf(out, _("\nEvents: %s, segments: %zu, epochs: %u\n"), events, capture->n_segments,
		   prof_reader_info(capture->reader)->epochs);
	out_printf(out,
		   _("User stacks: %" PRIu64 " complete, %" PRIu64 " truncated, %" PRIu64
		     " guessed, %" PRIu64 " none, %" PRIu64 " without memory\n"),
		   unwind[UNWIND_COMPLETE], unwind[UNWIND_TRUNCATED], unwind[UNWIND_GUESSED],
		   unwind[UNWIND_NONE], unwind[UNWIND_NO_MEMORY]);
	out_printf(out, _("Samples without a name: %" PRIu64 "\n"), info->functions.unresolved);
	for (const GList *key = keys; key; key = key->next) {
		/* Skip the command, which is printed above. NUL bytes separate its words. */
		if (strcmp(key->data, "command") == 0)
			continue;
		text_cell(out, key->data, 14);
		out_char(out, ' ');
		text_cell(out, capture_metadata(capture, key->data), 0);
		out_char(out, '\n');
	}
	for (guint i = info->tables->len; i > 0; i--)
		if (g_array_index(info->tables, struct table_info, i - 1).chunks == 0)
			g_array_remove_index(info->tables, i - 1);
	all.limit = 0;
	for (enum listing i = TABLES; i < LISTINGS; i++) {
		const struct table table = table_of(info, i);

		if (table.rows == 0)
			continue;
		out_char(out, '\n');
		reader_print_table(i < IMAGES ? &all : &info->reader, out, &table);
	}
}

static void print_info(const void *data, struct out *out)
{
	enum { HEAD, SAMPLE, ALSO, THREADS, CODE, HOST, REDUCED, MISSING, LINES };
	static const char *const titles[LINES] = {
		"",         N_("Samples"), N_("Also"),    N_("Threads"),
		N_("Code"), N_("Host"),    N_("Reduced"), N_("Not here")
	};
	const struct info *info = data;
	const struct capture *capture = info->reader.capture;
	const char *reduced = capture_metadata(capture, "reduced");
	struct out lines[LINES];
	unsigned width = 0;

	for (size_t i = 0; i < LINES; i++) {
		lines[i] = out_buffer();
		if (i != HEAD)
			width = MAX_OF(width, text_width(_(titles[i])));
	}
	add_verdict(info, &lines[HEAD]);
	add_lost(info, &lines[HEAD]);
	add_samples(info, &lines[SAMPLE]);
	add_contents(info, &lines[ALSO], &lines[MISSING]);
	add_threads(info, &lines[THREADS]);
	add_code(info, &lines[CODE]);
	add_host(info, &lines[HOST]);
	if (reduced)
		add_name(&lines[REDUCED], reduced);
	text_wrap(out, lines[HEAD].text->str, 0, 2, info->reader.columns);
	reader_print_losses(&info->reader, out, info->reader.limit);
	capture_print_missed_ticks(capture, out, info->is_verbose ? 0 : READER_MIN_MISSED_PCT);
	out_char(out, '\n');
	for (size_t i = HEAD + 1; i < LINES; i++) {
		if (lines[i].text->len == 0)
			continue;
		out_printf(out, "%s%*s", _(titles[i]), (int)(width + 2 - text_width(_(titles[i]))),
			   "");
		text_wrap(out, lines[i].text->str, width + 2, width + 2, info->reader.columns);
	}
	for (size_t i = 0; i < LINES; i++)
		out_done(&lines[i]);
	if (info->is_verbose)
		print_details(info, out);
}

/* ---- the verb -------------------------------------------------------------------------------- */

static int check_options(void *data)
{
	if (((const struct info *)data)->reader.format == READER_CSV)
		return cli_usage_error(_("info prints text, json or ndjson"));
	return CLI_CONTINUE;
}

static bool info_query(void *data, char **operands, GError **error)
{
	struct info *info = data;

	if (!reader_open(&info->reader, operands[0], error) ||
	    !capture_check(info->reader.capture, 0, error))
		return false;
	info->processes = g_array_new(FALSE, TRUE, sizeof(struct subject));
	info->functions.by = PROFILE_FUNCTION;
	info->threads.by = PROFILE_THREAD;
	info->functions.wants_all_events = info->threads.wants_all_events = true;
	if (!gather_tables(info, error) || !profile_run(&info->functions, &info->reader, error) ||
	    !profile_run(&info->threads, &info->reader, error) ||
	    !capture_each_exit(info->reader.capture, note_exit, info, error))
		return false;
	gather_processes(info);
	gather_images(info);
	return true;
}

static void info_done(struct info *info)
{
	g_clear_pointer(&info->tables, g_array_unref);
	g_clear_pointer(&info->processes, g_array_unref);
	g_clear_pointer(&info->images, g_array_unref);
	profile_done(&info->functions);
	profile_done(&info->threads);
	reader_done(&info->reader);
}

int verb_info(int argc, char **argv)
{
	static const struct reader_verb verb = {
		.spec = { N_("FILE"), N_("Show what a capture contains."), 1, 1 },
		.check = check_options,
		.query = info_query,
		.print = print_info,
		.write = write_info,
	};
	CLEANUP(info_done)
	struct info info = { .reader = READER_TEXT_ROWS(DEFAULT_LIMIT) };
	const struct cli_group groups[] = { { NULL, options, &info },
					    { N_("Output"), reader_output_options, &info.reader },
					    { NULL } };

	return reader_run(&verb, groups, &info, argc, argv);
}
