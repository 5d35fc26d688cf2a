/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profcapture info - what is in a capture
 *
 * Reads every chunk once, so that its report of damage is complete.
 */
#include "config.h"

#include "tools/common/capture-error.h"
#include "tools/common/json-copy.h"
#include "tools/profcapture/tally.h"
#include "tools/profcapture/verbs.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <string.h>

#define DEFAULT_LIMIT 20

struct table_info {
	const struct prof_table_def *table;
	uint64_t rows, chunks, bytes, raw_bytes;
	int64_t from_ns, to_ns;
};

struct process_info {
	uint32_t process;
	uint64_t samples;
	int64_t end_ns; /* INT64_MIN = it did not end, or its end was not seen */
	const char *comm;
};

struct image_info {
	uint32_t image;
	uint64_t samples;
};

struct info {
	struct reader reader;
	struct tally functions, threads;
	GArray *tables;    /* struct table_info */
	GArray *processes; /* struct process_info, the busiest first */
	GArray *images;    /* struct image_info, likewise */
	struct json json;
};

/* ---- gathering ------------------------------------------------------------------------------- */

static struct table_info *table_info_of(struct info *info, unsigned id)
{
	for (guint i = 0; i < info->tables->len; i++)
		if (g_array_index(info->tables, struct table_info, i).table->id == id)
			return &g_array_index(info->tables, struct table_info, i);
	return NULL;
}

static bool gather_chunk(const struct prof_chunk *chunk, void *data, GError **error)
{
	struct info *info = data;
	const struct capture *capture = info->reader.capture;
	struct table_info *table = table_info_of(info, chunk->table);

	if (!table)
		return true;
	table->rows += chunk->rows;
	table->chunks++;
	table->bytes += chunk->stored_bytes;
	table->raw_bytes += chunk->raw_bytes;
	table->from_ns =
		MIN_OF(table->from_ns, capture_time(capture, chunk->segment, chunk->t_min));
	table->to_ns = MAX_OF(table->to_ns, capture_time(capture, chunk->segment, chunk->t_max));
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

static struct process_info *process_info_of(struct info *info, uint32_t process)
{
	guint before = info->processes->len;

	if (before <= process) {
		g_array_set_size(info->processes, process + 1);
		for (guint i = before; i <= process; i++)
			g_array_index(info->processes, struct process_info, i) =
				(struct process_info){ .process = i, .end_ns = INT64_MIN };
	}
	return &g_array_index(info->processes, struct process_info, process);
}

static void note_exit(uint32_t process, int64_t time_ns, void *data)
{
	struct process_info *info = process_info_of(data, process);

	info->end_ns = MAX_OF(info->end_ns, time_ns);
}

static gint compare_processes(gconstpointer left, gconstpointer right)
{
	const struct process_info *a = left, *b = right;

	if (a->samples != b->samples)
		return a->samples > b->samples ? -1 : 1;
	return a->process < b->process ? -1 : a->process > b->process;
}

static void gather_processes(struct info *info)
{
	const struct names *names = info->reader.capture->names;

	for (uint32_t i = NAMES_LOST + 1; i < names->threads->len; i++) {
		const struct names_thread *thread = names_thread_at(names, i);
		struct process_info *process = process_info_of(info, thread->process);

		process->samples += tally_count_at(info->threads.counts, i).self.samples;
		if (!process->comm || thread->tid == names_process_at(names, thread->process)->pid)
			process->comm = thread->comm;
	}
	if (names->processes->len > 0)
		(void)process_info_of(info, names->processes->len - 1);
	/* "None" and "<lost>" are not processes. */
	g_array_remove_range(info->processes, 0, MIN_OF(info->processes->len, NAMES_LOST + 1));
	g_array_sort(info->processes, compare_processes);
}

static gint compare_images(gconstpointer left, gconstpointer right)
{
	const struct image_info *a = left, *b = right;

	if (a->samples != b->samples)
		return a->samples > b->samples ? -1 : 1;
	return a->image < b->image ? -1 : a->image > b->image;
}

static void gather_images(struct info *info)
{
	const struct names *names = info->reader.capture->names;
	g_autofree uint64_t *samples = g_new0(uint64_t, names->images->len);

	for (guint i = 0; i < info->functions.counts->len; i++)
		samples[functions_at(info->functions.functions, i)->image] +=
			tally_count_at(info->functions.counts, i).self.samples;
	info->images = g_array_new(FALSE, TRUE, sizeof(struct image_info));
	for (uint32_t i = NAMES_LOST; i < names->images->len; i++) {
		struct image_info image = { .image = i, .samples = samples[i] };

		if (samples[i])
			g_array_append_val(info->images, image);
	}
	g_array_sort(info->images, compare_images);
}

static bool gather(struct info *info, const char *file, GError **error)
{
	if (!reader_open(&info->reader, file, error) ||
	    !capture_check(info->reader.capture, 0, error))
		return false;
	info->processes = g_array_new(FALSE, TRUE, sizeof(struct process_info));
	info->functions.by = TALLY_FUNCTION;
	info->threads.by = TALLY_THREAD;
	info->functions.wants_all_events = info->threads.wants_all_events = true;
	if (!gather_tables(info, error) || !tally_run(&info->functions, &info->reader, error) ||
	    !tally_run(&info->threads, &info->reader, error) ||
	    !capture_each_exit(info->reader.capture, note_exit, info, error))
		return false;
	gather_processes(info);
	gather_images(info);
	return true;
}

static guint shown(const struct info *info, const GArray *rows)
{
	uint64_t limit = info->reader.limit;

	return limit && limit < rows->len ? (guint)limit : rows->len;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void write_tables(const struct info *info, struct json *json)
{
	json_begin_array(json, "tables");
	for (guint i = 0; i < info->tables->len; i++) {
		const struct table_info *table = &g_array_index(info->tables, struct table_info, i);
		bool timed = (table->table->flags & PROF_TABLE_TIMED) && table->chunks > 0;

		json_begin_object(json, NULL);
		json_string(json, "name", table->table->name);
		json_uint(json, "rows", table->rows);
		json_uint(json, "chunks", table->chunks);
		json_uint(json, "bytes", table->bytes);
		json_uint(json, "raw_bytes", table->raw_bytes);
		if (timed) {
			json_int(json, "t_min_ns", table->from_ns);
			json_int(json, "t_max_ns", table->to_ns);
		} else {
			json_null(json, "t_min_ns");
			json_null(json, "t_max_ns");
		}
		json_end(json);
	}
	json_end(json);
}

static void write_images(const struct info *info, struct json *json)
{
	const struct names *names = info->reader.capture->names;

	json_begin_array(json, "images");
	for (guint i = 0; i < shown(info, info->images); i++) {
		const struct image_info *image = &g_array_index(info->images, struct image_info, i);

		json_begin_object(json, NULL);
		json_string(json, "path", names_image_at(names, image->image)->path);
		json_string(json, "build_id", names_image_at(names, image->image)->build_id);
		json_uint(json, "samples", image->samples);
		json_end(json);
	}
	json_end(json);
}

static int64_t process_start(const struct info *info, const struct names_process *process)
{
	const struct capture *capture = info->reader.capture;

	return capture_time(capture, capture->n_segments ? capture->segments[0].number : 0,
			    process->start_time);
}

static void write_processes(const struct info *info, struct json *json)
{
	const struct names *names = info->reader.capture->names;

	json_begin_array(json, "processes");
	for (guint i = 0; i < shown(info, info->processes); i++) {
		const struct process_info *at =
			&g_array_index(info->processes, struct process_info, i);
		const struct names_process *process = names_process_at(names, at->process);

		json_begin_object(json, NULL);
		json_uint(json, "pid", process->pid);
		json_uint(json, "ppid", process->ppid);
		json_string(json, "comm", at->comm);
		if (process->start_time)
			json_int(json, "start_ns", process_start(info, process));
		else
			json_null(json, "start_ns");
		if (at->end_ns != INT64_MIN)
			json_int(json, "end_ns", at->end_ns);
		else
			json_null(json, "end_ns");
		json_uint(json, "samples", at->samples);
		json_end(json);
	}
	json_end(json);
}

static void write_info(struct info *info)
{
	struct json *json = &info->json;
	const struct capture *capture = info->reader.capture;
	bool truncated = shown(info, info->images) < info->images->len ||
			 shown(info, info->processes) < info->processes->len;

	reader_begin(&info->reader, json, "info", truncated);
	/* ndjson: the members of "data" are the only row. */
	if (info->reader.format == READER_NDJSON)
		json_begin_object(json, NULL);
	write_tables(info, json);
	capture_write_losses(capture, json, "loss");
	write_images(info, json);
	write_processes(info, json);
	tally_write_unwind(&info->functions, json, "unwind");
	json_uint(json, "unresolved_samples", info->functions.unresolved);
	json_copy(json, "options", capture_metadata(capture, "options"));
	json_uint(json, "epochs", prof_reader_info(capture->reader)->epochs);
	json_uint(json, "segments", capture->n_segments);
	if (info->reader.format == READER_NDJSON)
		json_end(json);
	reader_end(&info->reader, json);
}

/* ---- text ------------------------------------------------------------------------------------ */

static void print_metadata(const struct capture *capture, struct out *out, const char *title,
			   const char *key)
{
	const char *value = capture_metadata(capture, key);

	if (!value)
		return;
	out_printf(out, "%-14s ", title);
	text_cell(out, value, 0, TEXT_LEFT);
	out_char(out, '\n');
}

static void print_command(const struct capture *capture, struct out *out)
{
	if (!capture_metadata(capture, "command"))
		return;
	out_printf(out, "%-14s ", _("Command"));
	capture_print_command(capture, out);
	out_char(out, '\n');
}

static void print_start(const struct capture *capture, struct out *out)
{
	g_autoptr(GDateTime) start = NULL;
	g_autofree char *text = NULL;

	if (capture->n_segments == 0 || capture->segments[0].wall_ns == 0)
		return;
	start = g_date_time_new_from_unix_utc(capture->segments[0].wall_ns / 1000000000);
	text = start ? g_date_time_format(start, "%Y-%m-%d %H:%M:%S UTC") : NULL;
	if (text)
		out_printf(out, "%-14s %s\n", _("Start"), text);
}

static void print_head(const struct info *info, struct out *out)
{
	const struct capture *capture = info->reader.capture;
	const struct prof_reader_info *reader = prof_reader_info(capture->reader);
	g_autofree char *duration = text_duration((uint64_t)capture->duration_ns);
	g_autofree char *bytes = text_bytes(reader->bytes);
	g_autofree char *samples = text_count(capture_samples(capture));
	g_autofree char *events = text_count(capture_events(capture));

	reader_print_losses(&info->reader, out, info->reader.limit);
	capture_print_missed_ticks(capture, out, 0);
	out_printf(out, "%-14s ", _("File"));
	text_cell(out, capture->file, 0, TEXT_LEFT);
	out_printf(out, ", %s, %s\n", bytes, capture_state_name(capture));
	print_metadata(capture, out, _("Host"), "host");
	print_metadata(capture, out, _("Kernel"), "kernel");
	print_metadata(capture, out, _("Machine"), "arch");
	print_command(capture, out);
	print_start(capture, out);
	out_printf(out, _("%-14s %s, %zu segments, %u epochs\n"), _("Duration"), duration,
		   capture->n_segments, reader->epochs);
	print_metadata(capture, out, _("Event"), "event");
	print_metadata(capture, out, _("Frequency"), "frequency_hz");
	print_metadata(capture, out, _("Call graph"), "call_graph");
	print_metadata(capture, out, _("Options"), "options");
	print_metadata(capture, out, _("Reduced"), "reduced");
	out_printf(out, "%-14s %s\n", _("Samples"), samples);
	out_printf(out, "%-14s %s\n", _("Events"), events);
}

static void print_quality(const struct info *info, struct out *out)
{
	const uint64_t *unwind = info->functions.unwind;
	uint64_t samples = info->functions.all.samples;
	g_autofree char *unresolved = text_count(info->functions.unresolved);

	if (samples == 0)
		return;
	out_printf(out,
		   _("%-14s %" PRIu64 " complete, %" PRIu64 " truncated, %" PRIu64
		     " guessed, %" PRIu64 " none, %" PRIu64 " without memory\n"),
		   _("User stacks"), unwind[UNWIND_COMPLETE], unwind[UNWIND_TRUNCATED],
		   unwind[UNWIND_GUESSED], unwind[UNWIND_NONE], unwind[UNWIND_NO_MEMORY]);
	out_printf(out, _("%-14s %s samples (%.2f %%)\n"), _("Without a name"), unresolved,
		   100.0 * (double)info->functions.unresolved / (double)samples);
}

static void print_tables(const struct info *info, struct out *out)
{
	out_printf(out, "\n%-16s %12s %8s %12s %12s\n", _("table"), _("rows"), _("chunks"),
		   _("bytes"), _("bytes/row"));
	for (guint i = 0; i < info->tables->len; i++) {
		const struct table_info *table = &g_array_index(info->tables, struct table_info, i);

		if (table->chunks == 0)
			continue;
		text_cell(out, table->table->name, 16, TEXT_LEFT);
		out_printf(out, " %12" PRIu64 " %8" PRIu64 " %12" PRIu64 " %12.2f\n", table->rows,
			   table->chunks, table->bytes,
			   table->rows ? (double)table->bytes / (double)table->rows : 0.0);
	}
}

static void print_events(const struct info *info, struct out *out)
{
	const struct sampled_events *events = info->reader.capture->sampled;

	if (events->all->len == 0)
		return;
	out_printf(out, "\n%12s %20s  %-8s %s\n", _("samples"), _("weight"), _("unit"), _("event"));
	for (uint32_t i = 0; i < events->all->len; i++) {
		const struct sampled_event *event = sampled_event_at(events, i);

		out_printf(out, "%12" PRIu64 " %20" PRIu64 "  %-8s ", event->counted.samples,
			   event->counted.weight, event->unit ? event->unit : "-");
		text_cell(out, event->name ? event->name : "-", 0, TEXT_LEFT);
		out_char(out, '\n');
	}
}

static void print_samples(const struct info *info, struct out *out)
{
	const struct names *names = info->reader.capture->names;

	out_printf(out, "\n%12s  %s\n", _("samples"), _("image"));
	for (guint i = 0; i < shown(info, info->images); i++) {
		const struct image_info *image = &g_array_index(info->images, struct image_info, i);
		const char *path = names_image_at(names, image->image)->path;

		out_printf(out, "%12" PRIu64 "  ", image->samples);
		text_cell(out, path ? path : "-", 0, TEXT_LEFT);
		out_char(out, '\n');
	}
	reader_print_limit(&info->reader, out, shown(info, info->images), info->images->len);
	out_printf(out, "\n%12s %10s  %s\n", _("samples"), _("pid"), _("process"));
	for (guint i = 0; i < shown(info, info->processes); i++) {
		const struct process_info *at =
			&g_array_index(info->processes, struct process_info, i);

		out_printf(out, "%12" PRIu64 " %10" PRIu64 "  ", at->samples,
			   names_process_at(names, at->process)->pid);
		text_cell(out, at->comm ? at->comm : "-", 0, TEXT_LEFT);
		out_char(out, '\n');
	}
	reader_print_limit(&info->reader, out, shown(info, info->processes), info->processes->len);
}

/* ---- the verb -------------------------------------------------------------------------------- */

static void info_done(struct info *info)
{
	json_done(&info->json);
	if (info->tables)
		g_array_unref(info->tables);
	if (info->processes)
		g_array_unref(info->processes);
	if (info->images)
		g_array_unref(info->images);
	tally_done(&info->functions);
	tally_done(&info->threads);
	reader_done(&info->reader);
}

int verb_info(int argc, char **argv)
{
	static const struct cli_spec spec = { N_("FILE"), N_("Show what a capture contains."), 1,
					      1 };
	CLEANUP(info_done)
	struct info info = { .reader.limit = READER_LIMIT_UNSET,
			     .reader.text_limit = DEFAULT_LIMIT };
	const struct cli_group groups[] = { { NULL, reader_output_options, &info.reader },
					    { NULL } };
	struct out *out = out_stdout();
	GError *error = NULL;
	int status = cli_parse(&spec, groups, &argc, &argv);

	json_init(&info.json, out);
	if (status != CLI_CONTINUE)
		return status;
	if (info.reader.format == READER_CSV)
		return cli_usage_error(_("info is printed as text, json or ndjson"));
	if (!gather(&info, argv[0], &error))
		return cli_fail(error);
	capture_warn(info.reader.capture);
	if (info.reader.format != READER_TEXT) {
		write_info(&info);
		return CLI_OK;
	}
	print_head(&info, out);
	print_quality(&info, out);
	print_tables(&info, out);
	print_events(&info, out);
	print_samples(&info, out);
	return CLI_OK;
}
