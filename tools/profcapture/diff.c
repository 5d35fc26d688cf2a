/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profcapture diff - shows what got slower or faster, and what is only noise
 *
 * Functions are matched by name, even across builds (diff-rows.c). A change is reported only if it
 * exceeds the noise between recordings of the same program (block-noise.h).
 */
#include "config.h"

#include "tools/profcapture/diff.h"

#include "base/each.h"
#include "tools/profcapture/capture-losses.h"
#include "tools/profcapture/verbs.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The verdict names at most this many changes. */
#define NAMED_CHANGES 3
/* At most this many rows that exceed --fail-over are listed; the others are counted. */
#define NAMED_EXCEEDED 10
/* In text, at most this many callers are shown after a function. */
#define SHOWN_CALLERS 6
#define LINE_COLUMNS 100u
/* With fewer samples, shares have no decimal. */
#define LEAST_FINE 1000

struct diff_verb {
	struct diff diff;
	const char *normalise, *memory, *fail_over;
	bool wants_inline, no_inline, full_names, all;
	struct diff_row whole; /* the first row of text */
	double samples;        /* smaller number of samples of the first runs of A and B */
	/* short name → struct diff_identity, or &ambiguous if different names share it */
	GHashTable *names;
	struct json json;
};

static const char *const memory_measures[] = { "bytes", "calls", "peak", NULL };

static const struct cli_option options[] = {
	{ "normalize", 0, CLI_STRING, offsetof(struct diff_verb, normalise), "BY",
	  N_("Compare shares of all samples (samples), amounts per second (time), per mark (mark:NAME) or in total (run). Default: run if --memory or --fail-over is given, or if the output is text and both captures are whole runs of a command; else samples") },
	{ "normalise", 0, CLI_STRING, offsetof(struct diff_verb, normalise), "BY",
	  N_("The same as --normalize") },
	{ "paths", 0, CLI_FLAG, offsetof(struct diff_verb, diff.paths), NULL,
	  N_("Compare call paths, not functions") },
	{ "no-inline", 0, CLI_FLAG, offsetof(struct diff_verb, no_inline), NULL,
	  N_("Attribute inlined functions to their callers") },
	{ "inline", 0, CLI_FLAG, offsetof(struct diff_verb, wants_inline), NULL,
	  N_("Count inlined functions separately from their callers (default)") },
	{ "mode", 0, CLI_CHOICE, offsetof(struct diff_verb, diff.mode), N_("MODE"),
	  N_("Use only samples taken in this mode (default: any)"), profile_modes },
	{ "memory", 0, CLI_OPTIONAL, offsetof(struct diff_verb, memory), "[=bytes|calls|peak]",
	  N_("Compare allocations: bytes, calls, or the bytes live at the peak (default: bytes)"),
	  memory_measures },
	{ "fail-over", 0, CLI_STRING, offsetof(struct diff_verb, fail_over), N_("PERCENT"),
	  N_("Exit 7 if the run or a function grew by more than PERCENT and more than the noise; exit 8 if there is too little data") },
	{ "all", 0, CLI_FLAG, offsetof(struct diff_verb, all), NULL,
	  N_("Also show functions that did not change (text only; other formats always have them)") },
	{ "full-names", 0, CLI_FLAG, offsetof(struct diff_verb, full_names), NULL,
	  N_("Do not shorten names") },
	{ NULL },
};

static const struct diff_identity ambiguous;

/* ---- options --------------------------------------------------------------------------------- */

static int check_options(struct diff_verb *verb)
{
	static const char *const norms[] = { "samples", "time", "run", "mark:NAME", NULL };
	static const char mark[] = "mark:";
	struct diff *diff = &verb->diff;
	int i = 0;

	diff->inlined = !verb->no_inline;
	/* Shares stay equal if everything is slower, so these options compare totals. */
	diff->norm = verb->memory || verb->fail_over ? DIFF_BY_RUN : DIFF_BY_SAMPLES;
	diff->chooses_norm = !verb->normalise && !verb->memory && !verb->fail_over &&
			     diff->options.format == READER_TEXT && !diff->options.json;
	if (verb->normalise && g_str_has_prefix(verb->normalise, mark) &&
	    verb->normalise[sizeof(mark) - 1]) {
		diff->norm = DIFF_BY_MARK;
		diff->mark = verb->normalise + sizeof(mark) - 1;
	} else if (verb->normalise) {
		while (i < DIFF_BY_MARK && strcmp(verb->normalise, norms[i]) != 0)
			i++;
		if (i == DIFF_BY_MARK)
			return cli_unknown_value("--normalize", verb->normalise, norms);
		diff->norm = (enum diff_norm)i;
	}
	if (verb->fail_over &&
	    !g_regex_match_simple("^[0-9]{1,9}(\\.[0-9]+)?%?\\z", verb->fail_over, 0, 0))
		return cli_usage_error(
			_("--fail-over: '%s' is not a percentage such as 5%% or 0.5%%"),
			verb->fail_over);
	if (!verb->memory)
		return CLI_CONTINUE;
	for (i = 0; memory_measures[i] && strcmp(verb->memory, memory_measures[i]) != 0;)
		i++;
	if (!memory_measures[i])
		return cli_unknown_value("--memory", verb->memory, memory_measures);
	diff->measure = (enum diff_measure)(DIFF_BYTES + i);
	if (diff->mode != PROFILE_ANY_MODE || frame_filters_any(&diff->filters) ||
	    diff->options.cpus)
		return cli_usage_error(
			_("--mode, --cpu and filters of frames do not go with --memory"));
	if (diff->measure == DIFF_PEAK && (diff->paths || diff->norm != DIFF_BY_RUN))
		return cli_usage_error(_("--paths and --normalize do not go with --memory=peak"));
	return CLI_CONTINUE;
}

/* ---- cells ----------------------------------------------------------------------------------- */

enum field {
	INLINED = FN_FIELDS,
	PATH,
	CALLER,
	CALLER_IMAGE,
	CALL_FILE,
	CALL_LINE,
	A,
	B,
	DELTA,
	DELTA_PCT,
	NOISE,
	SIGNIFICANT,
	VERDICT,
	SAMPLES_NEEDED,
	CHANGE, /* this and the following: text only */
	CHANGE_NOISE,
	VALUE_A,
	VALUE_B,
	VERDICT_TEXT,
	SHORT_NAME,
	PLACE,
};

#define CHANGE_MEMBERS                                                                      \
	{ "a", A }, { "b", B }, { "delta", DELTA }, { "delta_pct", DELTA_PCT },             \
		{ "noise", NOISE }, { "significant", SIGNIFICANT }, { "verdict", VERDICT }, \
	{                                                                                   \
		"samples_needed", SAMPLES_NEEDED                                            \
	}
static const struct table_member change_members[] = { CHANGE_MEMBERS, { NULL } };
static const struct table_member members[] = {
	FN_MEMBERS, { "inlined", INLINED }, CHANGE_MEMBERS, { NULL }
};
static const struct table_member path_members[] = {
	FN_MEMBERS, { "inlined", INLINED }, { "path", PATH }, CHANGE_MEMBERS, { NULL }
};
static const struct table_member memory_members[] = { FN_MEMBERS,
						      { "inlined", INLINED },
						      { "caller", CALLER },
						      { "caller_image", CALLER_IMAGE },
						      { "call_file", CALL_FILE },
						      { "call_line", CALL_LINE },
						      CHANGE_MEMBERS,
						      { NULL } };

static const struct {
	const char *name, *title, *whole;
} verdicts[DIFF_VERDICTS] = {
	[DIFF_SLOWER] = { N_("slower"), N_("Slower: "), N_("The whole run is slower") },
	[DIFF_FASTER] = { N_("faster"), N_("Faster: "), N_("The whole run is faster") },
	[DIFF_MORE] = { N_("more"), N_("More: "), N_("The whole run uses more") },
	[DIFF_LESS] = { N_("less"), N_("Less: "), N_("The whole run uses less") },
	[DIFF_NEW] = { N_("new"), N_("New: "), N_("Nothing was there before") },
	[DIFF_GONE] = { N_("gone"), N_("Gone: "), N_("Nothing is left") },
	[DIFF_SAME] = { N_("same"), NULL, N_("The whole run is unchanged") },
	[DIFF_UNCLEAR] = { N_("unclear"), NULL, N_("It is unclear whether the whole run changed") },
};

static const struct diff_note *note_at(const struct diff *diff, guint index)
{
	return diff->notes->pdata[index];
}

static struct cell function_cell(const struct diff_row *row, enum function_field field)
{
	if (row->id->has_name)
		return functions_cell(row->functions, row->function, field);
	switch (field) {
	case FN_NAME:
	case FN_RAW_NAME:
		return cell_text(row->id->name);
	case FN_IMAGE:
		return cell_text(row->functions ? functions_image(row->functions, row->function)
						: row->id->image);
	case FN_KIND:
		return cell_text(row->functions ? "unresolved" : "kernel");
	default:
		return cell_unknown();
	}
}

/* Returns the row of the caller, or NULL. */
static const struct diff_row *caller_of(const struct diff *diff, const struct diff_row *row)
{
	return row->parent ? diff_row_at(diff, row->parent - 1) : NULL;
}

/* Returns a cell with the names of the row and its callers, outermost first. */
static struct cell path_cell(const struct diff *diff, const struct diff_row *row)
{
	const char **names;
	size_t n = 0;

	for (const struct diff_row *at = row; at; at = caller_of(diff, at))
		n++;
	names = g_new0(const char *, n + 1);
	for (; row; row = caller_of(diff, row))
		names[--n] = row->id->name;
	return cell_own_list(names);
}

/* Returns a cell of a row of memory: the file or line of the call that allocates, or the name or
 * image of the calling function. */
static struct cell caller_cell(const struct diff *diff, const struct diff_row *row,
			       enum field field)
{
	const struct diff_row *caller = caller_of(diff, row);

	if (field == CALL_FILE || field == CALL_LINE)
		return row->place ? functions_cell(row->functions, row->place,
						   field == CALL_FILE ? FN_FILE : FN_LINE)
				  : cell_unknown();
	return caller ? function_cell(caller, field == CALLER ? FN_NAME : FN_IMAGE)
		      : cell_unknown();
}

static struct cell change_cell(const struct diff *diff, const struct diff_row *row, unsigned field)
{
	uint64_t needed;

	switch (field) {
	case DELTA_PCT:
		return row->a > 0 ? cell_double(diff_percent(row)) : cell_unknown();
	case NOISE:
		return row->has_noise ? cell_double(row->noise) : cell_unknown();
	case SIGNIFICANT:
		return diff->is_damaged ? cell_unknown() : cell_bool(row->is_significant);
	case VERDICT:
		return cell_text(verdicts[diff_verdict_of(diff, row)].name);
	case SAMPLES_NEEDED:
		needed = diff_samples_needed(diff, row);
		return needed ? cell_uint(needed) : cell_unknown();
	default:
		return cell_double(field == A ? row->a : field == B ? row->b : row->b - row->a);
	}
}

static struct cell get_cell(const void *data, size_t place, unsigned field)
{
	const struct diff *diff = data;
	const struct diff_row *row = diff->order->pdata[place];

	return field < FN_FIELDS  ? function_cell(row, field)
	       : field == INLINED ? cell_bool(row->id->is_inlined)
	       : field == PATH    ? path_cell(diff, row)
	       : field < A        ? caller_cell(diff, row, field)
				  : change_cell(diff, row, field);
}

/* Returns text such as "16.6 s", "2.15 MiB/s" or "9.8 %". */
static char *value_text(const char *unit, double value, const char *sign)
{
	double size = fabs(value);
	bool is_percent = g_str_has_prefix(unit, "percent");
	g_autofree char *text =
		is_percent                            ? text_percent(size, true)
		: g_str_has_prefix(unit, "ns")        ? text_duration((uint64_t)(size + 0.5))
		: g_str_has_prefix(unit, "bytes")     ? text_bytes((uint64_t)(size + 0.5))
		: size < 99.95 && size != floor(size) ? g_strdup_printf("%.3g", size)
						      : text_count((uint64_t)(size + 0.5));

	return g_strconcat(sign, text,
			   is_percent                            ? " %"
			   : g_str_has_suffix(unit, "_per_s")    ? _("/s")
			   : g_str_has_suffix(unit, "_per_mark") ? _("/mark")
								 : "",
			   NULL);
}

/* Returns a difference in percent of the row's value in A; if that is 0, the difference itself. */
static char *change_text(const struct diff_verb *verb, const struct diff_row *row, const char *unit,
			 double change, const char *sign)
{
	g_autofree char *percent = NULL;

	if (!(row->a > 0))
		return value_text(unit, change, sign);
	percent = text_percent(fabs(100 * change / row->a), verb->samples >= LEAST_FINE);
	return g_strconcat(sign, percent, " %", NULL);
}

static char *name_of(const struct diff_verb *verb, const struct diff_row *row,
		     char *(*shorten)(const char *name, const char *raw_name))
{
	const char *name = row->id->name;
	const char *raw_name =
		row->functions ? functions_at(row->functions, row->function)->raw_name : name;

	return verb->full_names ? g_strdup(name) : shorten(name, raw_name);
}

/* Finds short names that different functions in the text share. With memory, the text also names
 * the callers of rows. */
static void note_names(struct diff_verb *verb, size_t shown)
{
	for (size_t i = 0; i < shown; i++)
		for (const struct diff_row *row = verb->diff.order->pdata[i]; row;
		     row = verb->diff.paths ? NULL : caller_of(&verb->diff, row)) {
			const struct diff_identity *id = row->id;
			char *name = name_of(verb, row, function_name_for_people);
			const struct diff_identity *other = g_hash_table_lookup(verb->names, name);

			if (other && (other == &ambiguous || other->is_inlined != id->is_inlined ||
				      strcmp(other->name, id->name) != 0))
				id = &ambiguous;
			g_hash_table_replace(verb->names, name, (gpointer)id);
		}
}

/* Returns the short name, or the whole name if shown rows with other names share the short one. */
static char *short_name(const struct diff_verb *verb, const struct diff_row *row)
{
	char *name = name_of(verb, row, function_name_for_people);
	g_autofree char *whole = NULL;

	if (g_hash_table_lookup(verb->names, name) != &ambiguous)
		return name;
	g_free(name);
	whole = name_of(verb, row, function_name_simplify);
	return g_strconcat(whole, row->id->is_inlined ? _(" (inlined)") : "", NULL);
}

/* Returns text such as "f < its caller < …". */
static char *path_text(const struct diff_verb *verb, const struct diff_row *row)
{
	GString *text = g_string_new(NULL);

	for (unsigned n = 0; n <= SHOWN_CALLERS; n++) {
		g_autofree char *name = short_name(verb, row);

		g_string_append_printf(text, "%s%s", n ? " < " : "", name);
		row = caller_of(&verb->diff, row);
		if (!row)
			return g_string_free(text, FALSE);
	}
	g_string_append_printf(text, " < %s", text_sign(TEXT_ELLIPSIS));
	return g_string_free(text, FALSE);
}

/* Returns the name of a row for a sentence, in which a whole call path would be too long. */
static char *sentence_name(const struct diff_verb *verb, const struct diff_row *row)
{
	return (verb->diff.paths ? short_name : path_text)(verb, row);
}

/* Returns a cell such as "shop.cpp:26", or the image. With memory, the line is where the program
 * allocates. */
static struct cell place_cell(const struct diff *diff, const struct diff_row *row)
{
	const struct diff_row *own = diff->paths || !row->parent ? row : caller_of(diff, row);
	const struct diff_identity *id = own->id;
	const struct function *function = row->place ? functions_at(row->functions, row->place)
					  : id->has_name
						  ? functions_at(own->functions, own->function)
						  : NULL;
	g_autofree char *file = function && function->file && function->line
					? g_path_get_basename(function->file)
					: NULL;

	return file ? cell_own_text(g_strdup_printf("%s:%" PRIu32, file, function->line))
	       : strcmp(id->image, "-") != 0 ? cell_text(id->image)
					     : cell_none();
}

static struct cell row_cell(const struct diff_verb *verb, const struct diff_row *row,
			    unsigned field)
{
	const struct diff *diff = &verb->diff;
	bool is_whole = row == &verb->whole;
	const char *unit = is_whole && diff->norm == DIFF_BY_SAMPLES ? diff->total_unit
								     : diff->unit;
	double value = field == VALUE_A        ? row->a
		       : field == VALUE_B      ? row->b
		       : field == CHANGE_NOISE ? row->noise
					       : row->b - row->a;
	const char *verdict = verdicts[diff_verdict_of(diff, row)].name;

	switch (field) {
	case VERDICT_TEXT:
		return cell_text(verdict ? _(verdict) : NULL);
	case SHORT_NAME:
		return is_whole ? cell_text(_("(whole run)")) : cell_own_text(path_text(verb, row));
	case PLACE:
		return is_whole ? cell_none() : place_cell(diff, row);
	}
	if ((is_whole && !diff->has_events) || (field == CHANGE_NOISE && !row->has_noise))
		return cell_unknown();
	if (value == 0)
		return cell_uint(0);
	/* If the share in A is 0, the change equals the share in B, so show it only once. */
	if (row->a == 0 && field <= CHANGE_NOISE && g_str_has_prefix(unit, "percent"))
		return cell_none();
	return cell_own_text(
		field == CHANGE ? change_text(verb, row, unit, value, value < 0 ? "-" : "+")
		: field == CHANGE_NOISE
			? change_text(verb, row, unit, value, text_sign(TEXT_PLUS_MINUS))
			: value_text(unit, value, ""));
}

static struct cell get_text(const void *data, size_t place, unsigned field)
{
	const struct diff_verb *verb = data;

	return row_cell(verb, place ? verb->diff.order->pdata[place - 1] : &verb->whole, field);
}

static struct cell get_process(const void *data, size_t place, unsigned field)
{
	const struct diff_verb *verb = data;
	const struct diff_row *row = verb->diff.processes->pdata[place];

	return field == SHORT_NAME ? cell_text(row->comm) : row_cell(verb, row, field);
}

/* ---- JSON and CSV ---------------------------------------------------------------------------- */

/* Writes the members of a change up to `last`. */
static void write_change(const struct diff *diff, struct json *json, const struct diff_row *row,
			 enum field last)
{
	for (const struct table_member *member = change_members;
	     member->key && member->field <= last; member++) {
		struct cell cell = change_cell(diff, row, member->field);

		cell_write(json, member->key, &cell);
	}
}
static void write_head(const struct diff *diff, struct json *json)
{
	static const char *const norms[] = { "samples", "time", "run" };
	static const char *const metrics[] = { "samples", "bytes", "calls", "peak" };
	g_autofree char *by_mark = diff->mark ? g_strconcat("mark:", diff->mark, NULL) : NULL;

	json_string(json, "normalised_by", by_mark ? by_mark : norms[diff->norm]);
	json_string(json, "metric",
		    diff->options.metric == READER_CPU ? metrics[diff->measure]
						       : reader_metrics[diff->options.metric]);
	json_string(json, "unit", diff->unit);
	if (diff->measure == DIFF_SAMPLES)
		json_string(json, "event", profile_event_name(&diff_run_at(diff, 0)->profile));
	json_begin_array(json, "captures");
	for (guint i = 0; i < diff->runs->len; i++)
		capture_write_json(diff_run_at(diff, i)->reader->capture, json, NULL);
	json_end(json);
	json_begin_array(json, "runs");
	for (unsigned side = 0; side < DIFF_SIDES; side++)
		json_uint(json, NULL, diff->n_runs[side]);
	json_end(json);
	json_begin_array(json, "notes");
	for (guint i = 0; i < diff->notes->len; i++) {
		json_begin_object(json, NULL);
		json_string(json, "code", note_at(diff, i)->code);
		json_string(json, "text", note_at(diff, i)->text);
		json_end(json);
	}
	json_end(json);
	json_uint(json, "compared", diff->tests);
	json_uint_if(json, "significant", !diff->is_damaged, diff->significant);
	json_begin_object(json, "all");
	write_change(diff, json, &diff->all, SAMPLES_NEEDED);
	json_end(json);
	if (!diff->processes)
		return;
	json_begin_array(json, "processes");
	POINTER_EACH(const struct diff_row, row, diff->processes) {
		json_begin_object(json, NULL);
		json_string(json, "comm", row->comm);
		write_change(diff, json, row, DELTA_PCT);
		json_end(json);
	}
	json_end(json);
}

static void write_all(struct diff_verb *verb, const struct reader *reader)
{
	const struct diff *diff = &verb->diff;
	const struct table table = { .rows = diff->order->len,
				     .get = get_cell,
				     .data = diff,
				     .members = diff->paths                     ? path_members
						: diff->measure == DIFF_SAMPLES ? members
										: memory_members };
	struct json *json = &verb->json;

	reader_begin(reader, json, "diff", reader_shown(reader, table.rows) < table.rows,
		     table.rows);
	if (reader->format == READER_JSON)
		write_head(diff, json);
	reader_write_table(reader, json, &table);
	reader_end(reader, json);
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Returns text such as "f by 11 % (+1.10 s), g by 8 % (+12 ms)", of the functions with this
 * verdict; NULL if no function has it. Names at most *left functions, and subtracts their number
 * from *left. */
static char *changes_text(const struct diff_verb *verb, enum diff_verdict verdict, guint *left)
{
	const struct diff *diff = &verb->diff;
	GString *text = g_string_new(NULL);
	guint n = 0, most = *left;

	for (guint i = 0; i < diff->significant; i++) {
		const struct diff_row *row = diff->order->pdata[i];
		double change = row->b - row->a;
		g_autofree char *name = NULL, *escaped = NULL, *value = NULL;

		if (diff_verdict_of(diff, row) != verdict || n++ >= most)
			continue;
		name = sentence_name(verb, row);
		escaped = text_escape(name);
		value = value_text(diff->unit, change, change < 0 ? "-" : "+");
		g_string_append_printf(text, "%s%s", n == 1 ? "" : ", ", escaped);
		if (verdict != DIFF_NEW && verdict != DIFF_GONE)
			g_string_append_printf(text, _(" by %.0f %%"), fabs(100 * change / row->a));
		if (!g_str_has_prefix(diff->unit, "percent"))
			g_string_append_printf(text, " (%s)", value);
	}
	*left -= MIN_OF(n, most);
	if (n > most && most > 0)
		g_string_append_printf(text, _(" and %u more"), n - most);
	else if (n > most)
		g_string_append_printf(text,
				       diff->paths ? ngettext("%u call path", "%u call paths", n)
						   : ngettext("%u function", "%u functions", n),
				       n);
	return g_string_free(text, n == 0);
}

/* Returns "The whole run is unchanged (+3.6 %, noise 7.2 %)." Stores the change, or NULL if shares
 * are compared. */
static char *whole_text(const struct diff_verb *verb, char **ret_change)
{
	const struct diff *diff = &verb->diff;
	const struct diff_row *all = &diff->all;
	GString *text = g_string_new(NULL);
	g_autofree char *noise = change_text(verb, all, diff->unit, all->noise, "");

	*ret_change = NULL;
	if (diff->norm == DIFF_BY_SAMPLES)
		return g_string_free(
			g_string_append(
				text, _("Only the functions' shares of all samples are compared.")),
			FALSE);
	*ret_change =
		change_text(verb, all, diff->unit, all->b - all->a, all->b < all->a ? "-" : "+");
	g_string_append(text, _(verdicts[diff_verdict_of(diff, all)].whole));
	if (diff->norm == DIFF_BY_TIME)
		g_string_append(text, _(" per second"));
	else if (diff->norm == DIFF_BY_MARK)
		g_string_append_printf(text, _(" per mark '%s'"), diff->mark);
	g_string_append_printf(text, all->noise > 0 ? _(" (%s, noise %s).") : " (%s).", *ret_change,
			       noise);
	return g_string_free(text, FALSE);
}

static const char *no_change_text(const struct diff *diff)
{
	return diff->paths ? _("No call path changed by more than noise.")
			   : _("No function changed by more than noise.");
}

/* Prints "Slower: f by 11 % (+1.10 s). The whole run is unchanged (+3.6 %, noise 7.2 %)." */
static void print_verdict(const struct diff_verb *verb, struct out *out, unsigned columns)
{
	g_autoptr(GString) text = g_string_new(NULL);
	g_autofree char *change = NULL, *whole = whole_text(verb, &change);
	guint left = NAMED_CHANGES;

	for (enum diff_verdict verdict = DIFF_SLOWER; verdict <= DIFF_GONE; verdict++) {
		g_autofree char *changes = changes_text(verb, verdict, &left);

		if (changes)
			g_string_append_printf(text, "%s%s. ", _(verdicts[verdict].title), changes);
	}
	if (verb->diff.significant == 0)
		g_string_append_printf(text, "%s ", no_change_text(&verb->diff));
	g_string_append(text, whole);
	text_wrap(out, text->str, 0, 2, columns);
}

/* Returns "A: ./shop 40000, 16.6 s of CPU". Names the file instead of the command if both sides ran
 * the same command, or the command is unknown. */
static char *side_text(const struct diff_verb *verb, unsigned side)
{
	const struct diff *diff = &verb->diff;
	const struct diff_run *first = diff_first(diff, side);
	const struct capture *of_other = diff_first(diff, !side)->reader->capture;
	g_autofree char *file = text_escape(first->reader->capture->file);
	g_autofree char *command = capture_command(first->reader->capture, CAPTURE_COMMAND_COLUMNS);
	g_autofree char *other = capture_command(of_other, CAPTURE_COMMAND_COLUMNS);
	g_autofree char *value = NULL, *event = NULL, *more = NULL;
	bool is_samples = diff->measure == DIFF_SAMPLES;
	bool is_time = is_samples && strcmp(profile_unit(&first->profile), "ns") == 0;
	const char *unit = is_time ? "ns" : is_samples ? "" : diff->total_unit;
	int metric = first->reader->metric;
	double total = 0, interrupts = 0;
	GString *text = g_string_new(side == DIFF_A ? "A: " : "B: ");

	for (guint i = 0; i < diff->runs->len; i++) {
		const struct diff_run *run = diff_run_at(diff, i);

		total += run->side == side ? run->all.count / diff->n_runs[side] : 0;
		interrupts += run->side == side ? run->interrupts / diff->n_runs[side] : 0;
	}
	if (diff->n_runs[side] > 1)
		g_string_append_printf(text, _("mean of %u runs, "), diff->n_runs[side]);
	value = value_text(unit, total, "");
	g_string_append_printf(text, "%s, %s",
			       *command && strcmp(command, other) != 0 ? command : file, value);
	event = is_samples ? text_escape(profile_event_name(&first->profile)) : NULL;
	if (is_samples && !is_time)
		g_string_append_printf(text, _(" events of %s"), event);
	else
		g_string_append(text, is_time && metric == READER_OFF_CPU ? _(" of waiting")
				      : is_time && metric == READER_WALL  ? _(" of wall time")
				      : is_time                           ? _(" of CPU")
				      : diff->measure == DIFF_CALLS       ? _(" allocations")
				      : diff->measure == DIFF_BYTES       ? _(" allocated")
									  : _(" at the peak"));
	if (interrupts > 0) {
		more = value_text(unit, interrupts, "");
		g_string_append_printf(text, _(" (interrupts: %s)"), more);
	}
	return g_string_free(text, FALSE);
}

static void print_head(const struct diff_verb *verb, const struct reader *reader, struct out *out)
{
	const struct diff *diff = &verb->diff;
	g_autofree char *a = side_text(verb, DIFF_A), *b = side_text(verb, DIFF_B);
	unsigned columns = reader->columns ? reader->columns : LINE_COLUMNS;
	bool is_complete = true;
	CLEANUP_OUT struct out warnings = out_buffer();

	for (guint i = 0; i < diff->notes->len; i++) {
		g_autofree char *text = text_escape(note_at(diff, i)->text);

		if (note_at(diff, i)->prevents_verdict)
			out_printf(out, _("No verdict: %s\n"), text);
	}
	if (!diff->prevents_verdict)
		print_verdict(verb, out, reader->columns);
	out_printf(out, text_width(a) + 3 + text_width(b) <= columns ? "%s   %s" : "%s\n%s", a, b);
	if (diff->measure == DIFF_SAMPLES)
		profile_print_other_events(&diff_run_at(diff, 0)->profile, out);
	out_char(out, '\n');
	for (guint i = 0; i < diff->notes->len; i++) {
		g_autofree char *text = text_escape(note_at(diff, i)->text);

		if (!note_at(diff, i)->prevents_verdict &&
		    strcmp(note_at(diff, i)->code, "loss") != 0)
			out_printf(&warnings, _("Note: %s\n"), text);
	}
	for (guint i = 0; i < diff->runs->len; i++) {
		const struct capture *capture = diff_run_at(diff, i)->reader->capture;
		g_autofree char *file = text_escape(capture->file);
		g_autofree char *lost = capture_lost_text(capture);

		is_complete &= reader_is_complete(diff_run_at(diff, i)->reader);
		if (capture->lost)
			out_printf(&warnings, _("Lost: %s of %s, which may look like a change.\n"),
				   lost, file);
	}
	if (warnings.text->len) {
		reader_style(reader, out, READER_WARNING);
		out_text(out, warnings.text->str);
		reader_style(reader, out, READER_PLAIN);
	}
	if (is_complete)
		out_text(out, _("Lost: nothing.\n"));
}

/* Returns the number of changed rows; 0 if there is no verdict. */
static guint changes_of(const struct diff *diff)
{
	return diff->prevents_verdict ? 0 : diff->significant;
}

/* Prints how many rows are not in the table, and why. */
static void print_hidden(const struct diff *diff, struct out *out)
{
	guint same = 0, unclear = 0;
	const char *rows = diff->paths ? _("call paths") : _("functions");

	for (guint i = changes_of(diff); i < diff->order->len; i++) {
		const struct diff_row *row = diff->order->pdata[i];

		same += row->has_noise;
		unclear += !row->has_noise && !row->is_unjudged;
	}
	if (diff->prevents_verdict && same + unclear > 0)
		out_printf(out, _("%u %s not judged (--all)\n"), same + unclear, rows);
	else if (same > 0 && unclear > 0)
		out_printf(out, _("%u %s within noise, %u with too few samples (--all)\n"), same,
			   rows, unclear);
	else if (same > 0)
		out_printf(out, _("%u %s within noise (--all)\n"), same, rows);
	else if (unclear > 0)
		out_printf(out, _("%u %s with too few samples (--all)\n"), unclear, rows);
}

static struct table table_of(const struct diff_verb *verb, bool is_processes)
{
	const struct diff *diff = &verb->diff;
	guint changes = verb->all ? diff->order->len : changes_of(diff);
	struct table table = { .rows = is_processes ? diff->processes->len : 1 + changes,
			       .get = is_processes ? get_process : get_text,
			       .data = verb,
			       .fit = diff->paths || verb->full_names ? NULL
								      : &function_name_fits };

	table_add_column(&table, CHANGE, COLUMN_COUNT, _("change"));
	if (!is_processes)
		table_add_column(&table, CHANGE_NOISE, COLUMN_COUNT, _("noise"));
	table_add_column(&table, VALUE_A, COLUMN_COUNT, "A");
	table_add_column(&table, VALUE_B, COLUMN_COUNT, "B");
	if (!is_processes)
		table_add_column(&table, VERDICT_TEXT, COLUMN_WORD, _("verdict"));
	table_add_column(&table, SHORT_NAME, COLUMN_NAME,
			 is_processes                    ? _("process")
			 : diff->paths                   ? _("function < its callers")
			 : diff->measure == DIFF_SAMPLES ? _("function")
							 : _("function < own caller"));
	if (!is_processes)
		table_add_column(&table, PLACE, COLUMN_PLACE, NULL);
	return table;
}

static void print_all(struct diff_verb *verb, const struct reader *reader, struct out *out)
{
	const struct diff *diff = &verb->diff;
	const struct table table = table_of(verb, false);
	struct reader with_whole = *reader;

	verb->whole = diff->all;
	/* The share of the whole is always 100 %, so the row of the whole shows totals, without a
	 * verdict. */
	if (diff->norm == DIFF_BY_SAMPLES) {
		verb->whole.a = diff->all.counts[DIFF_A].count / diff->n_runs[DIFF_A];
		verb->whole.b = diff->all.counts[DIFF_B].count / diff->n_runs[DIFF_B];
	}
	note_names(verb, table.rows - 1);
	print_head(verb, reader, out);
	out_char(out, '\n');
	with_whole.limit += with_whole.limit > 0;
	reader_print_table(&with_whole, out, &table);
	if (!verb->all)
		print_hidden(diff, out);
	/* With only one process, the table would repeat the totals. */
	if (diff->processes && diff->processes->len > 1) {
		const struct table processes = table_of(verb, true);

		out_char(out, '\n');
		reader_print_table(reader, out, &processes);
	}
}

/* ---- the exit status ------------------------------------------------------------------------- */

/* Prints a line on stderr, after everything written to stdout so far. Frees the line. */
static void say(char *line)
{
	g_autofree char *text = line, *escaped = text_escape(text);

	(void)out_flush(out_stdout());
	fprintf(stderr, "%s\n", escaped);
}

/* Reports the rows (also the whole run) that grew significantly and by more than --fail-over.
 * Returns whether any did. */
static bool exceeds(const struct diff_verb *verb)
{
	const struct diff *diff = &verb->diff;
	double most = g_ascii_strtod(verb->fail_over, NULL);
	unsigned n = 0;

	/* Significant rows come first. */
	for (guint i = 0; i <= diff->significant; i++) {
		const struct diff_row *row = i ? diff->order->pdata[i - 1] : &diff->all;
		g_autofree char *name = i ? sentence_name(verb, row) : g_strdup(_("The whole run"));
		double percent = diff_percent(row);

		if (!row->is_significant || row->b <= row->a || percent <= most ||
		    n++ >= NAMED_EXCEEDED)
			continue;
		say(isinf(percent) ? g_strdup_printf(_("%s is new, more than %g %%."), name, most)
				   : g_strdup_printf(_("%s grew by %.1f %%, more than %g %%."),
						     name, percent, most));
	}
	if (n > NAMED_EXCEEDED)
		say(g_strdup_printf(_("And %u more."), n - NAMED_EXCEEDED));
	return n > 0;
}

static int status_of(const struct diff_verb *verb, bool is_text)
{
	const struct diff *diff = &verb->diff;
	/* A damaged capture's readable part is an answer, unless --fail-over needs a verdict. */
	bool is_failure = verb->fail_over
				  ? diff->prevents_verdict
				  : diff->is_few && !diff->is_damaged && !diff->is_unfinished;

	for (guint i = 0; is_failure && i < diff->notes->len; i++)
		if (note_at(diff, i)->prevents_verdict && !is_text)
			say(g_strdup_printf(_("No verdict: %s"), note_at(diff, i)->text));
	if (is_failure)
		return CLI_NO_VERDICT;
	if (verb->fail_over)
		return exceeds(verb) ? CLI_THRESHOLD : CLI_OK;
	if (is_text && diff_has_one_run(diff) && diff->significant > 0)
		say(g_strdup(_(
			"Hint: runs of the same program may differ by more than this noise; to compare programs, record several: diff A1 A2 A3 --to B1 B2 B3")));
	return CLI_OK;
}

/* ---- the verb -------------------------------------------------------------------------------- */

/*
 * Returns the index of the --to that separates the captures of A and B, or argc. If a time follows,
 * --to is the end of the time range. A file named like a time must be given as ./5s.
 */
static int find_to(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		struct units_time time;
		g_autoptr(GError) error = NULL;

		if (strcmp(argv[i], "--to") == 0 && i + 1 < argc &&
		    !units_parse_time(argv[i + 1], &time, &error))
			return i;
	}
	return argc;
}

/* Collects the files of both sides, from "A B" or "A… --to B…". */
static int parse_files(const struct cli_group *groups, int argc, char **argv, GPtrArray *files,
		       guint *ret_a)
{
	int to = find_to(argc, argv), counts[DIFF_SIDES] = { to, argc - to };
	bool is_pair = to == argc;
	const struct cli_spec spec = {
		N_("A B | A... --to B..."),
		N_("Compare two captures: what got slower or faster, and what is only noise. To measure how much runs differ, give several captures of each side, with --to between the sides."),
		is_pair ? 2 : 1, is_pair ? 2 : UINT_MAX
	};

	for (unsigned side = 0; side < (is_pair ? 1 : DIFF_SIDES); side++) {
		char **operands = side == DIFF_A ? argv : argv + to;
		int status = cli_parse(&spec, groups, &counts[side], &operands);

		if (status != CLI_CONTINUE)
			return status;
		for (int i = 0; i < counts[side]; i++)
			g_ptr_array_add(files, operands[i]);
	}
	*ret_a = is_pair ? 1 : (guint)counts[DIFF_A];
	return CLI_CONTINUE;
}

static void verb_init(struct diff_verb *verb)
{
	json_init(&verb->json, out_stdout());
	verb->names = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
}

static bool compare(struct diff_verb *verb, const GPtrArray *files, guint n_a, GError **error)
{
	if (!diff_compare(&verb->diff, files, n_a, error))
		return false;
	verb->samples = MIN_OF(diff_first(&verb->diff, DIFF_A)->all.events,
			       diff_first(&verb->diff, DIFF_B)->all.events);
	return true;
}

static void verb_done(struct diff_verb *verb)
{
	json_done(&verb->json);
	g_hash_table_unref(verb->names);
	diff_done(&verb->diff);
}

int verb_diff(int argc, char **argv)
{
	CLEANUP(verb_done)
	struct diff_verb verb = { .diff.options = READER_TEXT_ROWS(READER_USUAL_ROWS) };
	struct reader *shared = &verb.diff.options;
	const struct cli_group groups[] = {
		{ NULL, options, &verb },
		READER_SELECT(N_("Select"), shared),
		{ NULL, reader_cpu_options, shared },
		{ NULL, reader_event_options, shared },
		{ N_("Frames (regular expressions on function, file or image, as in pprof)"),
		  frame_filter_options, &verb.diff.filters },
		{ NULL, reader_interpreter_options, shared },
		{ N_("Output"), reader_output_options, shared },
		{ NULL }
	};
	const struct reader *reader;
	g_autoptr(GPtrArray) files = g_ptr_array_new();
	guint n_a;
	GError *error = NULL;
	int status;

	verb_init(&verb);
	status = parse_files(groups, argc, argv, files, &n_a);
	if (status == CLI_CONTINUE)
		status = check_options(&verb);
	if (status != CLI_CONTINUE)
		return status;
	if (!compare(&verb, files, n_a, &error))
		return cli_fail(error);
	/* Options are the same for all runs. */
	reader = diff_run_at(&verb.diff, 0)->reader;
	if (reader->format == READER_TEXT)
		print_all(&verb, reader, out_stdout());
	else
		write_all(&verb, reader);
	return status_of(&verb, reader->format == READER_TEXT);
}

/* ---- the verdict for other verbs ------------------------------------------------------------- */

static void take_sentences(struct diff_verb *verb,
			   void (*take)(const struct diff_sentence *, void *), void *data)
{
	const struct diff *diff = &verb->diff;
	g_autofree char *change = NULL, *whole = whole_text(verb, &change);
	const struct diff_sentence of_all = { DIFF_NO_VERDICT, change, whole };
	guint left = NAMED_CHANGES;

	note_names(verb, changes_of(diff));
	for (enum diff_verdict verdict = DIFF_SLOWER; verdict <= DIFF_GONE; verdict++) {
		g_autofree char *changes = changes_text(verb, verdict, &left);
		const struct diff_sentence sentence = { verdict, _(verdicts[verdict].name),
							changes };

		if (changes)
			take(&sentence, data);
	}
	if (diff->significant == 0) {
		const struct diff_sentence none = { DIFF_SAME, NULL, no_change_text(diff) };

		take(&none, data);
	}
	take(&of_all, data);
}

bool diff_each_sentence(const struct reader *select, const struct frame_filters *filters,
			const char *a, const char *b,
			void (*take)(const struct diff_sentence *, void *), void *data,
			GError **error)
{
	CLEANUP(verb_done)
	struct diff_verb verb = { .diff = { .inlined = true, .chooses_norm = true } };
	struct reader *reader = &verb.diff.options;
	g_autoptr(GPtrArray) files = g_ptr_array_new();

	verb_init(&verb);
	*reader = (struct reader){ .range = select->range,
				   .pids = select->pids ? g_array_ref(select->pids) : NULL,
				   .tids = select->tids ? g_array_ref(select->tids) : NULL,
				   .cpus = select->cpus ? g_array_ref(select->cpus) : NULL,
				   .comms = select->comms ? g_ptr_array_ref(select->comms) : NULL,
				   .event = select->event,
				   .metric = select->metric,
				   .redacts = select->redacts,
				   .judges_damage = true };
	memcpy(verb.diff.filters.pattern, filters->pattern, sizeof(filters->pattern));
	g_ptr_array_add(files, (gpointer)a);
	g_ptr_array_add(files, (gpointer)b);
	if (!compare(&verb, files, 1, error))
		return false;
	if (!verb.diff.prevents_verdict)
		take_sentences(&verb, take, data);
	POINTER_EACH(const struct diff_note, note, verb.diff.notes) {
		const struct diff_sentence sentence = { DIFF_NO_VERDICT,
							note->prevents_verdict ? _("No verdict")
									       : _("Note"),
							note->text };

		if (strcmp(note->code, "loss") != 0 || note->prevents_verdict)
			take(&sentence, data);
	}
	return true;
}
