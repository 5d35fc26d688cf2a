/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Invariant: a capture without readable data is an error  [test_readers: test_a_lost_dictionary]
 * Opening a capture reads no samples (sampled-events.c and profile.c do). It reads only the names
 * (names.c) that losses and metadata refer to, or all texts if the capture is redacted.
 */
#include "config.h"

#include "tools/profcapture/capture.h"

#include "tools/profcapture/capture-losses.h"
#include "tools/profcapture/redact.h"

#include "tools/common/budget.h"
#include "tools/common/capture-error.h"
#include "tools/common/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gi18n.h>
#include <inttypes.h>
#include <string.h>

/* Key of metadata_of: the segment number, and the name. */
#define METADATA_KEY "%" PRIu32 "\n%s"

/* Captures that are shown together are redacted together. NULL: none is redacted. */
static struct redactor *redactor;

bool capture_is_event_table(const struct prof_table_def *table)
{
	return (table->flags & PROF_TABLE_TIMED) && table->id != PROF_TABLE_LOSS &&
	       table->id != PROF_TABLE_METADATA;
}

bool capture_has_no_number(const struct prof_table_def *table, unsigned column,
			   const struct prof_array *texts, size_t row, uint64_t item)
{
	return table->id == PROF_TABLE_SAMPLE && column == PROF_SAMPLE_VALUES &&
	       table->n_columns > PROF_SAMPLE_TEXTS && texts->numbers && texts->offsets &&
	       item < texts->offsets[row + 1] - texts->offsets[row] &&
	       texts->numbers[texts->offsets[row] + item] != 0;
}

unsigned capture_column_referring(const struct prof_table_def *def, unsigned table)
{
	for (unsigned i = 0; i < def->n_columns; i++)
		if (def->columns[i].type == PROF_TYPE_REF && def->columns[i].ref == table &&
		    !(def->columns[i].flags & PROF_COLUMN_LIST))
			return i;
	return CAPTURE_NO_COLUMN;
}

/* Returns the offset from the segment's clock values to relative times. The sum may wrap. */
static uint64_t shift_of(const struct capture *capture, uint32_t number)
{
	const struct prof_segment *first = capture->segments, *segment;
	size_t i = 0;

	if (capture->n_segments == 0)
		return 0;
	while (i < capture->n_segments && capture->segments[i].number != number)
		i++;
	segment = &capture->segments[i];
	if (i == capture->n_segments ||
	    memcmp(segment->boot_id, first->boot_id, sizeof(first->boot_id)) == 0)
		return -first->start_monotonic_ns;
	return (uint64_t)segment->wall_ns - (uint64_t)first->wall_ns - segment->start_monotonic_ns;
}

int64_t capture_time(const struct capture *capture, uint32_t segment, uint64_t time)
{
	return (int64_t)(time + shift_of(capture, segment));
}

uint64_t capture_clock(const struct capture *capture, uint32_t segment, int64_t relative)
{
	int64_t clock = (int64_t)((uint64_t)relative - shift_of(capture, segment));

	/* The time is before the clock's zero or beyond its range: clamp it. */
	if (clock < 0)
		return relative > 0 ? UINT64_MAX : 0;
	return (uint64_t)clock;
}

const char *capture_state_name(const struct capture *capture)
{
	static const char *const names[] = { [PROF_STATE_FINISHED] = "finished",
					     [PROF_STATE_UNFINISHED] = "unfinished",
					     [PROF_STATE_DAMAGED] = "damaged" };

	return names[capture_state(capture)];
}

/* ---- totals ---------------------------------------------------------------------------------- */

bool capture_each_chunk(const struct capture *capture, unsigned table,
			bool (*chunk)(const struct prof_chunk *chunk, void *data, GError **error),
			void *data, GError **error)
{
	struct prof_chunks *chunks = NULL;
	struct prof_chunk at;
	bool ok = true;
	int r = prof_chunks_new(capture->reader, table, &chunks);

	while (ok && !r && !(r = prof_chunks_next(chunks, &at)))
		ok = chunk(&at, data, error);
	prof_chunks_free(chunks);
	return ok && (r == PROF_END ||
		      capture_error(error, r, _("cannot read capture '%s'"), capture->file));
}

static bool count_chunk(const struct prof_chunk *chunk, void *data, GError **error)
{
	struct capture *capture = data;
	const struct prof_table_def *table = prof_reader_table(capture->reader, chunk->table);
	int64_t end;

	if (!table || !(table->flags & PROF_TABLE_TIMED))
		return true;
	end = capture_time(capture, chunk->segment, chunk->t_max);
	capture->duration_ns = MAX_OF(capture->duration_ns, end);
	if (capture_is_event_table(table))
		capture->indexed_events += chunk->rows;
	if (table->id == PROF_TABLE_SAMPLE)
		capture->indexed_samples += chunk->rows;
	return true;
}

static void read_metadata_batch(struct capture *capture, const struct prof_batch *batch)
{
	const struct prof_array *value = &batch->columns[PROF_METADATA_VALUE];

	for (size_t i = 0; i < batch->rows; i++) {
		const char *key =
			names_text_at(capture->names, &batch->columns[PROF_METADATA_KEY], i);
		GBytes *bytes;

		const uint8_t *from;
		size_t length;

		if (!key || !value->bytes || !value->offsets)
			continue;
		from = value->bytes + value->offsets[i];
		length = value->offsets[i + 1] - value->offsets[i];
		bytes = capture->redactor ? redact_metadata(capture->redactor, key, from, length)
					  : g_bytes_new(from, length);
		if (!bytes)
			continue;
		g_hash_table_replace(capture->metadata, (char *)key, bytes);
		g_hash_table_replace(capture->metadata_of,
				     g_strdup_printf(METADATA_KEY, batch->segment, key),
				     g_bytes_ref(bytes));
	}
}

static bool read_small_table(struct capture *capture, unsigned table,
			     void (*add)(struct capture *capture, const struct prof_batch *batch),
			     GError **error)
{
	const struct prof_cursor_options options = { .table = table };
	struct prof_cursor *cursor = NULL;
	struct prof_batch batch;
	int r = prof_cursor_new(capture->reader, &options, &cursor);

	while (r == 0 && (r = prof_cursor_next(cursor, &batch)) == 0)
		add(capture, &batch);
	prof_cursor_free(cursor);
	return r == PROF_END || r == PROF_NO_TABLE ||
	       capture_error(error, r, _("cannot read capture '%s'"), capture->file);
}

/* ---- open ------------------------------------------------------------------------------------ */

bool capture_refuse_nothing(const struct capture *capture, GError **error)
{
	uint64_t n = prof_reader_info(capture->reader)->chunks;

	if (capture_state(capture) == PROF_STATE_FINISHED ||
	    (n > 0 && capture_unreadable(capture, 0).chunks < n))
		return true;
	return cli_set_error(
		error, CLI_UNREADABLE,
		_("nothing in capture '%s' can be read: it is %s and has no whole chunk; "
		  "record again"),
		capture->file, capture_state_name(capture));
}

static bool open_reader(const char *file, struct prof_reader **ret_reader, GError **error)
{
	static const int copy_errors[] = { ENOENT, ENOTDIR, EACCES,     EROFS,
					   ENOSPC, EDQUOT,  EOPNOTSUPP, EFBIG };
	CLEANUP_CLOSE int opened = -1;
	bool standard_input = strcmp(file, "-") == 0;
	int r;

	if (!standard_input) {
		opened = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY);
		if (opened < 0)
			return capture_open_error(error, file);
	}
	r = prof_reader_open(standard_input ? STDIN_FILENO : opened, ret_reader);
	/* The capture itself is open, so these errors are from the temporary file for a pipe. */
	for (size_t i = 0; i < ARRAY_SIZE(copy_errors); i++)
		if (r == -copy_errors[i])
			return capture_error(
				error, r,
				_("cannot copy capture '%s' into TMPDIR, by default /tmp"), file);
	if (r != 0)
		return capture_error(error, r, _("cannot read capture '%s'"), file);
	return true;
}

/* Learns the names to redact from all texts of a capture, before any text is shown. */
static bool learn_names(const struct prof_reader *reader, const char *file, GError **error)
{
	int r;

	if (!redactor)
		redactor = redactor_new();
	r = redactor_learn_capture(redactor, reader);
	return r == 0 || capture_error(error, r, _("cannot read capture '%s'"), file);
}

bool capture_learn_names(const char *file, GError **error)
{
	struct prof_reader *reader = NULL;
	bool ok = open_reader(file, &reader, error) && learn_names(reader, file, error);

	prof_reader_free(reader);
	return ok;
}

/* Checks the schema: the tools address columns of version 1 by position. Later versions keep the
 * positions, but a forged schema may not. Columns that an older file lacks read as absent. */
static bool check_schema(const struct capture *capture, GError **error)
{
	/* tables that got columns after version 1 was finalized, and the first new column */
	static const uint16_t added[][2] = { { PROF_TABLE_FREE, PROF_FREE_YOUNGER },
					     { PROF_TABLE_SOURCE, PROF_SOURCE_FIELDS },
					     { PROF_TABLE_SYMBOL, PROF_SYMBOL_DECLARED_FILE },
					     { PROF_TABLE_SAMPLE, PROF_SAMPLE_VALUES },
					     { PROF_TABLE_WAIT, PROF_WAIT_WAKER } };
	size_t n;
	const struct prof_table_def *const *tables = prof_reader_tables(capture->reader, &n);

	for (size_t i = 0; i < n; i++) {
		const struct prof_table_def *ours = prof_table_v1(tables[i]->id);
		unsigned n_both = ours ? MIN_OF(ours->n_columns, tables[i]->n_columns) : 0;
		bool fits = !ours || n_both == ours->n_columns;

		for (size_t a = 0; !fits && a < ARRAY_SIZE(added); a++)
			fits = ours->id == added[a][0] && n_both >= added[a][1];
		for (unsigned c = 0; fits && c < n_both; c++)
			fits = tables[i]->columns[c].id == ours->columns[c].id;
		if (!fits)
			return capture_error(error, PROF_UNSUPPORTED,
					     _("cannot read table '%s' of capture '%s'"),
					     ours->name, capture->file);
	}
	return true;
}

struct capture *capture_open(const char *file, bool redacts, GError **error)
{
	struct capture *capture = g_new0(struct capture, 1);
	bool ok;

	capture->file = g_strdup(file);
	capture->sampled = g_new(struct sampled_events, 1);
	sampled_events_init(capture->sampled);
	capture->losses = g_array_new(FALSE, FALSE, sizeof(struct capture_loss));
	capture->loss_indexes = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
	capture->metadata =
		g_hash_table_new_full(g_str_hash, g_str_equal, NULL, (GDestroyNotify)g_bytes_unref);
	capture->metadata_of = g_hash_table_new_full(g_str_hash, g_str_equal, g_free,
						     (GDestroyNotify)g_bytes_unref);
	ok = open_reader(file, &capture->reader, error);
	if (ok) {
		budget_add_capture(capture->reader, file);
		capture->segments = prof_reader_segments(capture->reader, &capture->n_segments);
		capture->names = names_new(capture->reader);
		capture->names->file = capture->file;
	}
	if (ok && redacts) {
		ok = learn_names(capture->reader, file, error);
		capture->names->redact = redact_text;
		capture->names->redactor = capture->redactor = redactor;
	}
	if (ok && check_schema(capture, error) &&
	    capture_each_chunk(capture, 0, count_chunk, capture, error) &&
	    read_small_table(capture, PROF_TABLE_LOSS, capture_losses_add, error) &&
	    read_small_table(capture, PROF_TABLE_METADATA, read_metadata_batch, error) &&
	    capture_refuse_nothing(capture, error)) {
		capture->names->of_system = capture_is_system(capture);
		/* the path of the file may be private, too, so only its last part is shown */
		if (redacts) {
			g_autofree char *name = g_path_get_basename(file);

			g_free(capture->file);
			capture->names->file = capture->file = redact_text(capture->redactor, name);
		}
		return capture;
	}
	capture_free(capture);
	return NULL;
}

void capture_free(struct capture *capture)
{
	if (!capture)
		return;
	g_hash_table_unref(capture->metadata);
	g_hash_table_unref(capture->metadata_of);
	g_array_unref(capture->losses);
	g_hash_table_unref(capture->loss_indexes);
	sampled_events_done(capture->sampled);
	g_free(capture->sampled);
	names_free(capture->names);
	prof_reader_free(capture->reader);
	g_free(capture->file);
	g_free(capture);
}

/* ---- damage ---------------------------------------------------------------------------------- */

struct prof_lost capture_unreadable(const struct capture *capture, unsigned table)
{
	struct prof_lost lost;

	prof_reader_lost(capture->reader, table, &lost);
	return lost;
}

bool capture_lacks_rows(const struct capture *capture, unsigned table)
{
	struct prof_lost lost = capture_unreadable(capture, table);

	return lost.rows > 0 || lost.stretches > 0;
}

enum prof_state capture_state(const struct capture *capture)
{
	struct prof_lost lost = capture_unreadable(capture, 0);

	return capture->is_damaged || lost.chunks > 0 || lost.flawed > 0
		       ? PROF_STATE_DAMAGED
		       : prof_reader_info(capture->reader)->state;
}

uint64_t capture_samples(const struct capture *capture)
{
	uint64_t lost = capture_unreadable(capture, PROF_TABLE_SAMPLE).rows;

	return capture->indexed_samples - MIN_OF(lost, capture->indexed_samples);
}

uint64_t capture_events(const struct capture *capture)
{
	uint64_t events = capture->indexed_events;
	size_t n;
	const struct prof_table_def *const *tables = prof_reader_tables(capture->reader, &n);

	for (size_t i = 0; i < n; i++)
		if (capture_is_event_table(tables[i]))
			events -= MIN_OF(capture_unreadable(capture, tables[i]->id).rows, events);
	return events;
}

struct scan {
	const struct capture *capture;
	int64_t from_ns, to_ns;
};

static bool is_in_scan(const struct prof_chunk *chunk, void *data)
{
	const struct scan *scan = data;
	const struct prof_table_def *table = prof_reader_table(scan->capture->reader, chunk->table);

	return !table || !(table->flags & PROF_TABLE_TIMED) ||
	       (capture_time(scan->capture, chunk->segment, chunk->t_min) <= scan->to_ns &&
		capture_time(scan->capture, chunk->segment, chunk->t_max) >= scan->from_ns);
}

bool capture_scan(struct capture *capture, int64_t from_ns, int64_t to_ns, GError **error)
{
	struct scan scan = { capture, from_ns, to_ns };
	int r = prof_reader_scan(capture->reader, is_in_scan, &scan);

	return r == 0 || capture_error(error, r, _("cannot read capture '%s'"), capture->file);
}

static bool check_chunk(const struct prof_chunk *chunk, void *data, GError **error)
{
	const struct capture *capture = data;
	struct prof_damage damage;
	int r = prof_reader_check(capture->reader, chunk, &damage);

	return r == 0 || r == PROF_DAMAGED ||
	       capture_error(error, r, _("cannot read capture '%s'"), capture->file);
}

bool capture_check(struct capture *capture, unsigned table, GError **error)
{
	return capture_each_chunk(capture, table, check_chunk, capture, error) &&
	       capture_refuse_nothing(capture, error);
}

/* ---- reporting ------------------------------------------------------------------------------- */

static const char *value_text(const struct capture *capture, GBytes *value)
{
	gsize length;
	const char *bytes;

	if (!value)
		return NULL;
	bytes = g_bytes_get_data(value, &length);
	return names_intern(capture->names, bytes, length);
}

const char *capture_metadata(const struct capture *capture, const char *key)
{
	return value_text(capture, g_hash_table_lookup(capture->metadata, key));
}

const char *capture_metadata_of(const struct capture *capture, uint32_t segment, const char *key)
{
	g_autofree char *name = g_strdup_printf(METADATA_KEY, segment, key);

	return value_text(capture, g_hash_table_lookup(capture->metadata_of, name));
}

bool capture_is_system(const struct capture *capture)
{
	const char *options = capture_metadata(capture, "options");

	return options && strstr(options, "\"system\":true");
}

static void warn_damaged(const struct capture *capture)
{
	struct prof_lost lost = capture_unreadable(capture, 0);
	g_autoptr(GString) names = g_string_new(NULL);
	size_t n;
	const struct prof_table_def *const *tables = prof_reader_tables(capture->reader, &n);

	for (size_t i = 0; i < n; i++)
		if (capture_unreadable(capture, tables[i]->id).chunks > 0)
			g_string_append_printf(names, "%s%s", names->len ? ", " : "",
					       tables[i]->name);
	if (lost.chunks > 0)
		cli_warning(ngettext("capture '%s' is damaged: %" PRIu64
				     " unreadable chunk with %" PRIu64
				     " rows (%s) was left out; 'profcapture verify' lists it",
				     "capture '%s' is damaged: %" PRIu64
				     " unreadable chunks with %" PRIu64
				     " rows (%s) were left out; 'profcapture verify' lists them",
				     (unsigned long)lost.chunks),
			    capture->file, lost.chunks, lost.rows, names->len ? names->str : "?");
	if (lost.stretches > 0)
		cli_warning(_("capture '%s' is damaged: rows of any table may be missing where no "
			      "chunk can be found; 'profcapture verify' lists these places"),
			    capture->file);
	if (lost.chunks == 0 && lost.stretches == 0 &&
	    prof_reader_info(capture->reader)->second_at == 0)
		cli_warning(
			_("capture '%s' is damaged, but no row is lost; 'profcapture verify' lists the damage"),
			capture->file);
}

void capture_warn(struct capture *capture)
{
	const struct prof_reader_info *info = prof_reader_info(capture->reader);
	struct prof_lost lost = capture_unreadable(capture, 0);
	uint64_t warned_of = lost.chunks + lost.rows + lost.flawed + 1;

	if (capture->warned_of == warned_of)
		return;
	if (!capture->is_quiet && capture_state(capture) == PROF_STATE_UNFINISHED)
		cli_warning(_("capture '%s' is unfinished: it ends at byte %" PRIu64 " of %" PRIu64
			      "; 'profcapture recover' makes a finished one"),
			    capture->file, MIN_OF(info->cut_at, info->bytes), info->bytes);
	else if (!capture->is_quiet && capture_state(capture) == PROF_STATE_DAMAGED)
		warn_damaged(capture);
	if (capture->warned_of == 0 && info->second_at) {
		g_autofree char *quoted = text_shell_file(capture->file);

		cli_warning(_("a second capture starts at byte %" PRIu64
			      " of '%s' and was not read; this makes it a file of its own: tail -c "
			      "+%" PRIu64 " %s > second.cap"),
			    info->second_at, capture->file, info->second_at + 1, quoted);
	}
	capture->warned_of = warned_of;
}

char *capture_command(const struct capture *capture, unsigned columns)
{
	GBytes *value = g_hash_table_lookup(capture->metadata, "command");
	gsize length = 0;
	const char *bytes = value ? g_bytes_get_data(value, &length) : NULL;
	CLEANUP_OUT struct out text = out_buffer();

	for (gsize start = 0; start < length;) {
		g_autofree char *word = g_strndup(bytes + start, length - start);
		g_autofree char *quoted = text_shell_word(word);

		if (start > 0)
			out_char(&text, ' ');
		text_cell(&text, quoted, 0);
		start += strlen(word) + 1;
	}
	return text_cut(text.text->str, columns);
}

static void write_command(const struct capture *capture, struct json *json)
{
	GBytes *value = g_hash_table_lookup(capture->metadata, "command");
	gsize length = 0, n;
	const char *bytes = value ? g_bytes_get_data(value, &length) : NULL;

	if (length == 0) {
		json_null(json, "command");
		return;
	}
	json_begin_array(json, "command");
	for (gsize start = 0; start < length; start += n + 1) {
		n = strnlen(bytes + start, length - start);
		json_string_n(json, NULL, bytes + start, n);
	}
	json_end(json);
}

static void write_uuid(struct json *json, const char *key, const uint8_t uuid[16])
{
	static const uint8_t none[16];
	GString *text;

	if (memcmp(uuid, none, sizeof(none)) == 0) {
		json_null(json, key);
		return;
	}
	text = g_string_new(NULL);
	for (unsigned i = 0; i < 16; i++)
		g_string_append_printf(text, "%s%02x",
				       i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
	json_string(json, key, text->str);
	g_string_free(text, TRUE);
}

static void write_wall_start(const struct capture *capture, struct json *json)
{
	int64_t wall = capture->n_segments ? capture->segments[0].wall_ns : 0;
	g_autoptr(GDateTime) second = wall ? g_date_time_new_from_unix_utc(wall / 1000000000)
					   : NULL;
	g_autofree char *text = second ? g_date_time_format(second, "%Y-%m-%dT%H:%M:%S") : NULL;
	g_autofree char *whole = NULL;

	if (text)
		whole = g_strdup_printf("%s.%09" PRId64 "Z", text, (int64_t)(wall % 1000000000));
	json_string(json, "wall_start", whole);
}

/* Writes the damage by table. Where no chunk can be found, table and rows are unknown. */
static void write_damage(const struct capture *capture, struct json *json)
{
	uint64_t stretches = capture_unreadable(capture, 0).stretches;
	uint64_t second_at = prof_reader_info(capture->reader)->second_at;
	size_t n;
	const struct prof_table_def *const *tables = prof_reader_tables(capture->reader, &n);

	json_begin_array(json, "unreadable");
	for (size_t i = 0; i < n; i++) {
		struct prof_lost lost = capture_unreadable(capture, tables[i]->id);

		if (lost.chunks == 0)
			continue;
		json_begin_object(json, NULL);
		json_string(json, "table", tables[i]->name);
		json_uint(json, "chunks", lost.chunks);
		json_uint(json, "rows", lost.rows);
		json_end(json);
	}
	if (stretches > 0) {
		json_begin_object(json, NULL);
		json_null(json, "table");
		json_null(json, "chunks");
		json_null(json, "rows");
		json_end(json);
	}
	json_end(json);
	json_uint_if(json, "second_capture_at", second_at > 0, second_at);
}

void capture_write_json(const struct capture *capture, struct json *json, const char *key)
{
	static const uint8_t unknown[16];
	const struct sampled_events *events = capture->sampled;
	const char *event, *frequency = capture_metadata(capture, "frequency_hz");
	uint64_t hz = 0;
	bool has_hz = frequency &&
		      g_ascii_string_to_unsigned(frequency, 10, 0, G_MAXUINT64, &hz, NULL);

	/* Events that cannot be read are left out. */
	(void)sampled_events_read(capture->sampled, capture->reader, capture->names, NULL);
	json_begin_object(json, key);
	json_string(json, "file", capture->file);
	write_uuid(json, "uuid", prof_reader_info(capture->reader)->uuid);
	json_string(json, "state", capture_state_name(capture));
	json_string(json, "host", capture_metadata(capture, "host"));
	json_string(json, "kernel", capture_metadata(capture, "kernel"));
	json_string(json, "arch", capture_metadata(capture, "arch"));
	write_uuid(json, "boot_id", capture->n_segments ? capture->segments[0].boot_id : unknown);
	write_wall_start(capture, json);
	json_uint(json, "start_monotonic_ns",
		  capture->n_segments ? capture->segments[0].start_monotonic_ns : 0);
	json_int(json, "duration_ns", capture->duration_ns);
	/* Readers count this event unless --event is given. */
	event = events->all->len > 0 ? sampled_event_at(events, 0)->name : NULL;
	json_string(json, "event", event ? event : capture_metadata(capture, "event"));
	json_uint_if(json, "frequency_hz", has_hz, hz);
	json_string(json, "call_graph", capture_metadata(capture, "call_graph"));
	write_command(capture, json);
	json_uint(json, "samples", capture_samples(capture));
	json_uint(json, "events", capture_events(capture));
	json_uint(json, "lost", capture->lost);
	json_bool(json, "lost_incomplete", capture->lost_incomplete);
	json_uint(json, "missed_ticks", capture->missed_ticks);
	sampled_events_write(capture->sampled, json, "sources");
	write_damage(capture, json);
	json_end(json);
}

struct exits {
	const struct capture *capture;
	void (*ended)(uint32_t process, int64_t time_ns, void *data);
	void *data;
};

static bool add_exits(struct names_epoch *epoch, const struct prof_batch *batch, void *data,
		      GError **error)
{
	const struct exits *exits = data;

	for (size_t i = 0; i < batch->rows; i++) {
		uint32_t thread = names_thread(epoch, array_number_or(&batch->columns[1], i, 0));
		uint32_t process = names_thread_at(epoch->names, thread)->process;

		if (process > NAMES_LOST &&
		    array_number_or(&batch->columns[2], i, PROF_TASK_EXISTS) == PROF_TASK_EXIT)
			exits->ended(process,
				     capture_time(exits->capture, batch->segment,
						  array_number_or(&batch->columns[0], i, 0)),
				     exits->data);
	}
	return true;
}

bool capture_each_exit(const struct capture *capture,
		       void (*ended)(uint32_t process, int64_t time_ns, void *data), void *data,
		       GError **error)
{
	struct exits exits = { capture, ended, data };

	return names_each_batch(capture->names,
				NAMES_COLUMNS(PROF_TABLE_TASK, PROF_TASK_TIME, PROF_TASK_THREAD,
					      PROF_TASK_EVENT),
				add_exits, &exits, error);
}
