/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profcapture verify - checks that every byte of a capture is intact
 */
#include "config.h"

#include "base/each.h"
#include "tools/common/capture-error.h"
#include "tools/profcapture/reader.h"
#include "tools/profcapture/verbs.h"

#include <glib/gi18n.h>
#include <string.h>

/* The part of the file in which rows of a table were lost to damage, and the time range of these
 * rows, according to the chunks before and after. */
struct gap {
	uint64_t first, last; /* offsets; first > last: none */
	int64_t from_ns, to_ns;
	int64_t next_ns; /* end of the next chunk */
};

struct verify {
	struct reader reader;
	GArray *damages; /* struct prof_damage */
	uint64_t chunks, good_chunks, cut_chunks;
	uint64_t rows_lost; /* a lower bound if is_rows_known is false */
	bool is_rows_known;
	enum prof_state state;
	/* what the damage affects */
	uint64_t present, lost; /* bit sets of tables: with rows, and with lost rows */
	uint64_t rows;          /* rows of the capture, according to the headers */
	struct gap gaps[PROF_TABLE_LAST + 1];
	int64_t from_ns, to_ns; /* when rows were lost; from_ns > to_ns: not known or none */
};

/* Returns whether the damage is in a second capture that was joined to this one. */
static bool belongs_to_second(const struct verify *verify, const struct prof_damage *damage)
{
	uint64_t second_at = prof_reader_info(verify->reader.capture->reader)->second_at;

	return second_at && damage->offset >= second_at;
}

static int found(const struct prof_damage *damage, void *data)
{
	struct verify *verify = data;

	g_array_append_vals(verify->damages, damage, 1);
	if (damage->rows != UINT64_MAX)
		verify->rows_lost += damage->rows;
	else if (!belongs_to_second(verify, damage))
		verify->is_rows_known = false;
	if (damage->reason == PROF_DAMAGE_CUT)
		verify->cut_chunks++;
	else
		verify->state = PROF_STATE_DAMAGED;
	return 0;
}

/* ---- what the damage affects ----------------------------------------------------------------- */

#define BIT(table) (UINT64_C(1) << (table))
#define STACK_TABLES                                                                \
	(BIT(PROF_TABLE_STRING) | BIT(PROF_TABLE_IMAGE) | BIT(PROF_TABLE_FRAME) |   \
	 BIT(PROF_TABLE_STACK) | BIT(PROF_TABLE_PROCESS) | BIT(PROF_TABLE_THREAD) | \
	 BIT(PROF_TABLE_SYMBOL) | BIT(PROF_TABLE_LINE) | BIT(PROF_TABLE_MAPPING) |  \
	 BIT(PROF_TABLE_JIT))

/* The items that the output lists as affected or not, and the tables that each needs. Lost rows of
 * `events` change numbers, lost rows of `names` only names. */
static const struct verify_answer {
	const char *name;
	uint64_t events, names;
} answers[] = {
	{ N_("report"), BIT(PROF_TABLE_SAMPLE), STACK_TABLES | BIT(PROF_TABLE_SOURCE) },
	{ N_("annotate"), BIT(PROF_TABLE_SAMPLE), STACK_TABLES },
	{ N_("running and waiting times"), BIT(PROF_TABLE_SWITCH) | BIT(PROF_TABLE_TASK),
	  BIT(PROF_TABLE_STRING) | BIT(PROF_TABLE_THREAD) },
	{ N_("places of waiting"), BIT(PROF_TABLE_WAIT), STACK_TABLES },
	{ N_("memory"),
	  BIT(PROF_TABLE_ALLOC) | BIT(PROF_TABLE_FREE) | BIT(PROF_TABLE_HEAP) |
		  BIT(PROF_TABLE_LIVE),
	  STACK_TABLES },
	{ N_("marks"), BIT(PROF_TABLE_MARK), BIT(PROF_TABLE_STRING) | BIT(PROF_TABLE_THREAD) },
	{ N_("counters"), BIT(PROF_TABLE_COUNTER_VALUE),
	  BIT(PROF_TABLE_STRING) | BIT(PROF_TABLE_COUNTER) },
	{ N_("list of losses"), BIT(PROF_TABLE_LOSS), 0 },
};

static bool note_chunk(const struct prof_chunk *chunk, void *data, GError **error)
{
	struct verify *verify = data;
	const struct capture *capture = verify->reader.capture;
	int64_t from = capture_time(capture, chunk->segment, chunk->t_min);
	int64_t to = capture_time(capture, chunk->segment, chunk->t_max);
	struct gap *gap;

	verify->rows += chunk->rows;
	if (chunk->table > PROF_TABLE_LAST)
		return true;
	gap = &verify->gaps[chunk->table];
	verify->present |= BIT(chunk->table);
	if (chunk->offset < gap->first) {
		gap->from_ns = MAX_OF(gap->from_ns, to);
	} else if (chunk->offset > gap->last) {
		gap->to_ns = MIN_OF(gap->to_ns, from);
		gap->next_ns = MIN_OF(gap->next_ns, to);
	} else {
		gap->from_ns = MIN_OF(gap->from_ns, from);
		gap->to_ns = MAX_OF(gap->to_ns, to);
	}
	return true;
}

/* Finds when rows were lost: the range that contains the gaps of all tables with times. */
static void find_lost_time(struct verify *verify)
{
	verify->from_ns = INT64_MAX;
	verify->to_ns = 0;
	for (unsigned table = 1; table <= PROF_TABLE_LAST; table++) {
		const struct prof_table_def *def =
			prof_reader_table(verify->reader.capture->reader, table);
		const struct gap *gap = &verify->gaps[table];

		if (!(verify->lost & verify->present & BIT(table)) || !def ||
		    !(def->flags & PROF_TABLE_TIMED))
			continue;
		verify->from_ns = MIN_OF(verify->from_ns, MAX_OF(gap->from_ns, INT64_C(0)));
		/* A wait is stored at its end, so the chunks before and after may overlap. */
		verify->to_ns = MAX_OF(verify->to_ns,
				       gap->from_ns <= gap->to_ns ? gap->to_ns : gap->next_ns);
	}
}

static bool find_effect(struct verify *verify, GError **error)
{
	for (unsigned table = 0; table <= PROF_TABLE_LAST; table++)
		verify->gaps[table] =
			(struct gap){ .first = UINT64_MAX,
				      .to_ns = verify->reader.capture->duration_ns,
				      .next_ns = verify->reader.capture->duration_ns };
	ARRAY_EACH(const struct prof_damage, damage, verify->damages) {
		/* Without a known table, rows of any table may be lost. */
		unsigned first = damage->table ? damage->table : 1;
		unsigned last = damage->table ? damage->table : PROF_TABLE_LAST;

		if (damage->rows == 0 || belongs_to_second(verify, damage) ||
		    (damage->reason == PROF_DAMAGE_CUT && !damage->table))
			continue;
		for (unsigned table = first; table <= last && table <= PROF_TABLE_LAST; table++) {
			struct gap *gap = &verify->gaps[table];

			verify->lost |= BIT(table);
			gap->first = MIN_OF(gap->first, damage->offset);
			gap->last = MAX_OF(gap->last, damage->offset);
		}
	}
	if (!capture_each_chunk(verify->reader.capture, 0, note_chunk, verify, error))
		return false;
	find_lost_time(verify);
	return true;
}

/* Appends a clause and frees it. */
static void add_clause(GString *sentence, const char *separator, char *clause)
{
	g_string_append_printf(sentence, "%s%s", sentence->len ? separator : "", clause);
	g_free(clause);
}

/* Prints "Affected: marks, 1.12 s to 1.86 s; names in report. Not affected: annotate." */
static void print_effect(const struct verify *verify, struct out *out)
{
	const struct capture *capture = verify->reader.capture;
	g_autoptr(GString) events = g_string_new(NULL);
	g_autoptr(GString) names = g_string_new(NULL);
	g_autoptr(GString) others = g_string_new(NULL);
	CLEANUP_OUT struct out line = out_buffer();

	for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
		const struct verify_answer *answer = &answers[i];

		if (!(verify->present & answer->events))
			continue;
		add_clause(verify->lost & answer->events  ? events
			   : verify->lost & answer->names ? names
							  : others,
			   ", ", g_strdup(_(answer->name)));
	}
	if (events->len && verify->from_ns <= verify->to_ns) {
		g_autofree char *from = text_bound(verify->from_ns, false);
		g_autofree char *to = text_bound(verify->to_ns, true);

		g_string_append_printf(events, _(", %s s to %s s"), from, to);
	}
	if (names->len)
		add_clause(events, "; ", g_strdup_printf(_("names in %s"), names->str));
	if (verify->cut_chunks > 0 || verify->state == PROF_STATE_UNFINISHED) {
		g_autofree char *end = text_bound(capture->duration_ns, false);

		add_clause(events, "; ", g_strdup_printf(_("everything after %s s"), end));
		g_string_truncate(others, 0);
	}
	if (events->len)
		out_printf(&line, _("Affected: %s."), events->str);
	if (others->len)
		out_printf(&line, events->len ? _(" Not affected: %s.") : _("Not affected: %s."),
			   others->str);
	if (line.text->len)
		text_wrap(out, line.text->str, 0, 2, verify->reader.columns);
}

/* ---- the damage, as a table ------------------------------------------------------------------ */

/* Fields with numbers come before fields with texts. */
enum field { OFFSET, BYTES, STREAM, SEQUENCE, ROWS, TABLE, REASON, DESCRIPTION };

static const struct table_member members[] = {
	{ "offset", OFFSET },     { "bytes", BYTES }, { "table", TABLE },   { "stream", STREAM },
	{ "sequence", SEQUENCE }, { "rows", ROWS },   { "reason", REASON }, { NULL },
};

/* Indexed by enum prof_damage_reason. */
static const char *const descriptions[] = {
	N_("header wrong"), N_("structure wrong"), N_("checksum wrong"), N_("cannot be decoded"),
	N_("out of order"), N_("ids wrong"),       N_("index wrong"),    N_("cut off"),
};

static struct cell cell_known(uint64_t number)
{
	return number == UINT64_MAX ? cell_unknown() : cell_uint(number);
}

static struct cell get_cell(const void *data, size_t row, unsigned field)
{
	const struct verify *verify = data;
	const struct prof_damage *damage = &g_array_index(verify->damages, struct prof_damage, row);
	const struct prof_table_def *table =
		prof_reader_table(verify->reader.capture->reader, damage->table);
	const uint64_t numbers[] = { [OFFSET] = damage->offset,
				     [BYTES] = damage->bytes,
				     [STREAM] = damage->table ? damage->stream : UINT64_MAX,
				     [SEQUENCE] = damage->sequence,
				     [ROWS] = damage->rows };
	struct cell cell;

	if (field < ARRAY_SIZE(numbers)) {
		cell = cell_known(numbers[field]);
		/* An offset of 0 must be visible; counts of 0 are left empty. */
		if (field == OFFSET && damage->offset == 0)
			cell.format = COLUMN_NUMBER;
		return cell;
	}
	if (field == TABLE)
		return cell_text(table ? table->name : NULL);
	if (field == DESCRIPTION && belongs_to_second(verify, damage))
		return cell_text(_("belongs to another capture"));
	if (field == REASON || damage->reason >= ARRAY_SIZE(descriptions))
		return cell_text(prof_damage_reason_name(damage->reason));
	return cell_text(_(descriptions[damage->reason]));
}

static struct table table_of(const struct verify *verify)
{
	struct table table = {
		.rows = verify->damages->len, .get = get_cell, .data = verify, .members = members
	};

	table_add_column(&table, OFFSET, COLUMN_COUNT, _("at byte"));
	table_add_column(&table, BYTES, COLUMN_SIZE, _("size"));
	table_add_column(&table, TABLE, COLUMN_WORD, _("table"));
	table_add_column(&table, ROWS, COLUMN_COUNT, _("rows"));
	table_add_column(&table, DESCRIPTION, COLUMN_NAME, _("what"));
	return table;
}

static void write_verify(const void *data, struct json *json)
{
	const struct verify *verify = data;
	const struct prof_reader_info *info = prof_reader_info(verify->reader.capture->reader);
	const struct table table = table_of(verify);
	size_t shown = reader_shown(&verify->reader, table.rows);
	bool is_time_known = verify->from_ns <= verify->to_ns;
	struct cell cut_at = cell_known(info->cut_at);
	struct cell from = is_time_known ? cell_int(verify->from_ns) : cell_unknown();
	struct cell to = is_time_known ? cell_int(verify->to_ns) : cell_unknown();

	reader_begin(&verify->reader, json, "verify", shown < table.rows, table.rows);
	json_string(json, "state", capture_state_name(verify->reader.capture));
	json_uint(json, "bytes", info->bytes);
	json_uint(json, "chunks", verify->chunks);
	json_uint(json, "good_chunks", verify->good_chunks);
	cell_write(json, "cut_at", &cut_at);
	table_write_array(&table, json, "damaged", shown);
	json_uint(json, "rows_lost", verify->rows_lost);
	json_bool(json, "rows_lost_is_least", !verify->is_rows_known);
	cell_write(json, "lost_from_ns", &from);
	cell_write(json, "lost_to_ns", &to);
	reader_end(&verify->reader, json);
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Prints a line such as "bad.cap is damaged: 1 of 38 chunks, 10,276 of 34,816 events are lost." */
static void print_damaged(const struct verify *verify, const char *file, struct out *to)
{
	const struct capture *capture = verify->reader.capture;
	bool are_events = true;
	CLEANUP_OUT struct out line = out_buffer();
	struct out *out = &line;
	g_autofree char *chunks = text_count(verify->chunks),
			*good = text_count(verify->good_chunks);
	g_autofree char *bad = text_count(verify->chunks - verify->good_chunks);
	g_autofree char *lost = text_count(verify->rows_lost), *all = NULL;

	for (unsigned table = 1; table <= PROF_TABLE_LAST; table++)
		are_events &= !(verify->lost & verify->present & BIT(table)) ||
			      capture_is_event_table(prof_table_v1(table));
	all = text_count(are_events ? capture->indexed_events : verify->rows);
	if (verify->rows_lost == 0)
		out_printf(
			out,
			verify->is_rows_known
				? _("%s is damaged, but lacks no row: %s of %s chunks are whole.")
				: _("%s is damaged: %s of %s chunks are whole. How many rows "
				    "are lost is not known."),
			file, good, chunks);
	else if (!verify->is_rows_known)
		out_printf(out,
			   are_events ? _("%s is damaged: %s of %s chunks, at least %s events are "
					  "lost.")
				      : _("%s is damaged: %s of %s chunks, at least %s rows are "
					  "lost."),
			   file, bad, chunks, lost);
	else
		out_printf(out,
			   are_events
				   ? _("%s is damaged: %s of %s chunks, %s of %s events are lost.")
				   : _("%s is damaged: %s of %s chunks, %s of %s rows are lost."),
			   file, bad, chunks, lost, all);
	if (verify->lost && !(verify->lost & BIT(PROF_TABLE_SAMPLE)) &&
	    verify->present & BIT(PROF_TABLE_SAMPLE))
		out_text(out, _(" Samples are whole."));
	text_wrap(to, line.text->str, 0, 2, verify->reader.columns);
}

static void print_verify(const void *data, struct out *out)
{
	const struct verify *verify = data;
	const struct capture *capture = verify->reader.capture;
	const struct prof_reader_info *info = prof_reader_info(capture->reader);
	const struct table table = table_of(verify);
	g_autofree char *file = text_escape(capture->file),
			*chunks = text_count(verify->good_chunks);

	switch (verify->state) {
	case PROF_STATE_FINISHED:
		out_printf(out,
			   capture->lost || capture->lost_incomplete
				   ? _("%s is complete: %s chunks, all whole.\n")
				   : _("%s is complete: %s chunks, nothing lost.\n"),
			   file, chunks);
		reader_print_losses(&verify->reader, out, READER_LOSSES);
		break;
	case PROF_STATE_UNFINISHED:
		out_printf(out, _("%s is unfinished: %s chunks are whole, the end is missing.\n"),
			   file, chunks);
		break;
	default:
		print_damaged(verify, file, out);
	}
	if (info->cut_at != UINT64_MAX) {
		g_autofree char *at = text_count(info->cut_at), *bytes = text_count(info->bytes);

		out_printf(out, _("It can be read up to byte %s of %s.\n"), at, bytes);
	}
	if (table.rows > 0) {
		out_char(out, '\n');
		reader_print_table(&verify->reader, out, &table);
	}
	if (verify->state == PROF_STATE_FINISHED)
		return;
	print_effect(verify, out);
	if (verify->reader.columns > 0 && strcmp(capture->file, "-") != 0) {
		g_autofree char *word = text_shell_file(capture->file);
		g_autofree char *escaped = text_escape(word);

		out_printf(out, _("Next: profcapture recover %s -o fixed.cap\n"), escaped);
	}
}

/* ---- the verb -------------------------------------------------------------------------------- */

static int check_options(void *data)
{
	const struct verify *verify = data;

	if (verify->reader.format == READER_CSV || verify->reader.format == READER_NDJSON)
		return cli_usage_error(_("verify prints text or json"));
	return CLI_CONTINUE;
}

static bool verify_query(void *data, char **operands, GError **error)
{
	struct verify *verify = data;
	const struct prof_reader *reader;
	int r;

	if (!reader_open(&verify->reader, operands[0], error))
		return false;
	reader = verify->reader.capture->reader;
	verify->state = prof_reader_info(reader)->state;
	verify->is_rows_known = true;
	verify->damages = g_array_new(FALSE, FALSE, sizeof(struct prof_damage));
	r = prof_reader_verify(reader, found, verify, &verify->chunks, &verify->good_chunks);
	if (r < 0)
		return capture_error(error, r, _("cannot read capture '%s'"), operands[0]);
	if (verify->good_chunks + verify->cut_chunks < verify->chunks)
		verify->state = PROF_STATE_DAMAGED;
	verify->reader.capture->is_damaged = verify->state == PROF_STATE_DAMAGED;
	verify->reader.status = verify->state == PROF_STATE_FINISHED ? CLI_OK : CLI_UNREADABLE;
	return find_effect(verify, error);
}

static void verify_done(struct verify *verify)
{
	g_clear_pointer(&verify->damages, g_array_unref);
	reader_done(&verify->reader);
}

int verb_verify(int argc, char **argv)
{
	static const struct reader_verb verb = {
		.spec = { N_("FILE"),
			  N_("Check every chunk of a capture and list the damage. Exits 0 only if the capture is finished and undamaged."),
			  1, 1 },
		.check = check_options,
		.query = verify_query,
		.print = print_verify,
		.write = write_verify,
	};
	CLEANUP(verify_done) struct verify verify = { .reader.judges_damage = true };
	const struct cli_group groups[] = { { NULL, reader_output_options, &verify.reader },
					    { NULL } };

	return reader_run(&verb, groups, &verify, argc, argv);
}
