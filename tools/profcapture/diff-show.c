/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Diff-show - the comparison as text and as data
 */
#include "config.h"

#include "tools/profcapture/diff.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Callers shown after a function, in text. */
#define SHOWN_CALLERS 6
/* Functions listed if a threshold is exceeded. */
#define TOLD_EXCEEDED 10
/* Longer paths are cut. */
#define MAX_PATH 4096

static guint shown(const struct diff *diff)
{
	uint64_t limit = diff_reader(diff)->limit;

	return limit && limit < diff->order->len ? (guint)limit : diff->order->len;
}

static const struct diff_row *row_in_order(const struct diff *diff, guint place)
{
	return diff_row_at(diff, g_array_index(diff->order, uint32_t, place));
}

/* Returns the side that describes the row: B if the row is in it. */
static unsigned side_of(const struct diff_row *row)
{
	return row->function[DIFF_B] == DIFF_NO_FUNCTION ? DIFF_A : DIFF_B;
}

/* ---- JSON and CSV ---------------------------------------------------------------------------- */

static void write_function(const struct diff *diff, struct json *json, const struct diff_row *row)
{
	const struct diff_identity *id = diff_identity_at(diff, row);
	unsigned side = side_of(row);
	bool is_function = row->function[side] != DIFF_NO_FUNCTION;

	if (id->has_name) {
		functions_write(diff_functions(diff, row, side), row->function[side], json);
		return;
	}
	json_string(json, "name", id->name);
	json_string(json, "raw_name", id->name);
	json_string(json, "image",
		    is_function
			    ? functions_image(diff_functions(diff, row, side), row->function[side])
			    : id->image);
	json_null(json, "build_id");
	json_null(json, "offset");
	json_string(json, "kind", is_function ? "unresolved" : "kernel");
	json_null(json, "file");
	json_null(json, "line");
}

static void write_change(const struct diff *diff, struct json *json, const struct diff_row *row)
{
	double percent;

	json_double(json, "a", row->a);
	json_double(json, "b", row->b);
	json_double(json, "delta", row->b - row->a);
	if (diff_percent(row, &percent))
		json_double(json, "delta_pct", percent);
	else
		json_null(json, "delta_pct");
	if (row->has_noise)
		json_double(json, "noise", row->noise);
	else
		json_null(json, "noise");
	if (diff->is_damaged)
		json_null(json, "significant");
	else
		json_bool(json, "significant", row->is_significant);
}

/* Writes the names from the root to the row. */
static void write_path(const struct diff *diff, struct json *json, const struct diff_row *row)
{
	g_autoptr(GPtrArray) names = g_ptr_array_new();

	for (; names->len < MAX_PATH; row = diff_row_at(diff, row->parent - 1)) {
		g_ptr_array_add(names, diff_identity_at(diff, row)->name);
		if (!row->parent)
			break;
	}
	json_begin_array(json, "path");
	for (guint i = names->len; i > 0; i--)
		json_string(json, NULL, names->pdata[i - 1]);
	json_end(json);
}

static void write_row(const struct diff *diff, struct json *json, const struct diff_row *row)
{
	rows_begin(json);
	write_function(diff, json, row);
	json_bool(json, "inlined", diff_identity_at(diff, row)->is_inlined);
	if (diff->paths)
		write_path(diff, json, row);
	write_change(diff, json, row);
	rows_end(json);
}

static void write_processes(const struct diff *diff, struct json *json)
{
	json_begin_array(json, "processes");
	for (guint i = 0; i < diff->processes->len; i++) {
		const struct diff_process *process = diff->processes->pdata[i];
		const struct diff_row row = { .a = process->of[DIFF_A], .b = process->of[DIFF_B] };
		double percent;

		json_begin_object(json, NULL);
		json_string(json, "comm", process->comm);
		json_double(json, "a", row.a);
		json_double(json, "b", row.b);
		json_double(json, "delta", row.b - row.a);
		if (diff_percent(&row, &percent))
			json_double(json, "delta_pct", percent);
		else
			json_null(json, "delta_pct");
		json_end(json);
	}
	json_end(json);
}

static const char *const metrics[] = { "samples", "bytes", "calls", "peak" };

static void write_head(const struct diff *diff, struct json *json)
{
	static const char *const norms[] = { "samples", "time", "run" };
	g_autofree char *by_mark = diff->mark ? g_strconcat("mark:", diff->mark, NULL) : NULL;

	json_string(json, "normalised_by", by_mark ? by_mark : norms[diff->norm]);
	json_string(json, "metric", metrics[diff->measure]);
	json_string(json, "unit", diff->unit);
	if (diff->measure == DIFF_SAMPLES)
		json_string(json, "event", tally_event_name(&diff_run(diff, DIFF_A, 0)->tally));
	json_begin_array(json, "captures");
	for (unsigned side = 0; side < DIFF_SIDES; side++)
		for (guint i = 0; i < diff->runs[side]->len; i++)
			capture_write_json(diff_run_reader(diff, diff_run(diff, side, i))->capture,
					   json, NULL);
	json_end(json);
	json_begin_array(json, "runs");
	for (unsigned side = 0; side < DIFF_SIDES; side++)
		json_uint(json, NULL, diff->runs[side]->len);
	json_end(json);
	json_begin_array(json, "notes");
	for (guint i = 0; i < diff->notes->len; i++) {
		const struct diff_note *note = &g_array_index(diff->notes, struct diff_note, i);

		json_begin_object(json, NULL);
		json_string(json, "code", note->code);
		json_string(json, "text", note->text);
		json_end(json);
	}
	json_end(json);
	json_uint(json, "compared", diff->tests);
	if (diff->is_damaged)
		json_null(json, "significant");
	else
		json_uint(json, "significant", diff->significant);
	json_begin_object(json, "all");
	write_change(diff, json, &diff->all);
	json_end(json);
	if (diff->processes)
		write_processes(diff, json);
}

static void write_all(struct diff *diff)
{
	static const char *const columns[] = {
		"name",      "raw_name", "image",       "build_id", "offset", "kind",
		"file",      "line",     "inlined",     "a",        "b",      "delta",
		"delta_pct", "noise",    "significant", NULL,
	};
	static const char *const path_columns[] = {
		"name",  "raw_name",  "image",   "build_id",    "offset", "kind",
		"file",  "line",      "inlined", "path",        "a",      "b",
		"delta", "delta_pct", "noise",   "significant", NULL,
	};
	const struct reader *reader = diff_reader(diff);
	enum json_format format = reader_json_format(reader);
	struct json *json = &diff->json;

	reader_begin(reader, json, "diff", shown(diff) < diff->order->len);
	if (format == JSON_FORMAT_JSON)
		write_head(diff, json);
	rows_open(json, format, diff->paths ? path_columns : columns);
	for (guint i = 0; i < shown(diff); i++)
		write_row(diff, json, row_in_order(diff, i));
	rows_close(json);
	reader_end(reader, json);
}

/* ---- text ------------------------------------------------------------------------------------ */

static void print_number(const struct diff *diff, struct out *out, double number, bool is_change)
{
	char text[64];

	if (g_str_has_prefix(diff->unit, "percent"))
		snprintf(text, sizeof(text), is_change ? "%+.3f" : "%.3f", number);
	else if (g_str_has_prefix(diff->unit, "ns"))
		snprintf(text, sizeof(text), is_change ? "%+.4f" : "%.4f", number / 1e6);
	else
		snprintf(text, sizeof(text), is_change ? "%+.1f" : "%.1f", number);
	out_printf(out, "%14s ", text);
}

static void print_change(const struct diff *diff, struct out *out, const struct diff_row *row)
{
	double percent;

	print_number(diff, out, row->a, false);
	print_number(diff, out, row->b, false);
	print_number(diff, out, row->b - row->a, true);
	if (diff_percent(row, &percent))
		out_printf(out, "%+9.1f %%", percent);
	else
		out_printf(out, "%11s", row->b > 0 ? _("new") : "-");
	if (!row->has_noise)
		out_printf(out, " %14s  ", _("not known"));
	else if (row->noise == 0)
		out_printf(out, " %14s  ", "-");
	else {
		out_text(out, " ");
		print_number(diff, out, row->noise, false);
		out_text(out, " ");
	}
	out_printf(out, "%-7s ", diff->is_damaged ? "-" : row->is_significant ? "" : _("noise"));
}

static void print_name(const struct diff *diff, struct out *out, const struct diff_row *row)
{
	const struct diff_identity *id = diff_identity_at(diff, row);

	text_cell(out, id->name, 0, TEXT_LEFT);
	if (id->is_inlined)
		out_text(out, _(" (inlined)"));
	if (strcmp(id->image, "-") != 0) {
		out_text(out, *id->image == '[' ? "  " : "  [");
		text_cell(out, id->image, 0, TEXT_LEFT);
		out_text(out, *id->image == '[' ? "" : "]");
	}
	for (unsigned n = 0; row->parent; n++) {
		row = diff_row_at(diff, row->parent - 1);
		out_text(out, " < ");
		if (n == SHOWN_CALLERS) {
			out_text(out, "…");
			break;
		}
		text_cell(out, diff_identity_at(diff, row)->name, 0, TEXT_LEFT);
	}
	out_char(out, '\n');
}

/* Prints the event of the samples, if it is not obvious. */
static void print_event(const struct tally *tally, struct out *out)
{
	g_autofree char *event = text_escape(tally_event_name(tally));

	if (!tally_is_weighted(tally) && tally->reader->capture->sampled->all->len < 2)
		return;
	out_printf(out, _(", of %s"), event);
	tally_print_sum(tally, out);
	tally_print_other_events(tally, out);
}

/* Prints as many samples as report counts; those of interrupts are in a row without a verdict. */
static void print_run(const struct diff *diff, struct out *out, const struct diff_side *run)
{
	const struct capture *capture = diff_run_reader(diff, run)->capture;
	bool is_samples = diff->measure == DIFF_SAMPLES;
	g_autofree char *file = text_escape(capture->file);
	g_autofree char *count =
		text_count(is_samples ? run->tally.each->len : (uint64_t)run->all.events);
	g_autofree char *duration = text_duration((uint64_t)(run->to_ns - run->from_ns));

	out_printf(out,
		   is_samples ? _("%s: %s samples in %s, '%s'")
			      : _("%s: %s allocations in %s, '%s'"),
		   run->side == DIFF_A ? "a" : "b", count, duration, file);
	if (is_samples) {
		double interrupts = run->tally.each->len - run->all.events;

		print_event(&run->tally, out);
		if (interrupts > 0)
			out_printf(out, _(", %.0f of them in interrupts"), interrupts);
	}
	out_char(out, '\n');
}

/* Explains what the noise includes. */
static void print_runs(const struct diff *diff, struct out *out)
{
	for (unsigned side = 0; side < DIFF_SIDES; side++)
		for (guint i = 0; i < diff->runs[side]->len; i++)
			print_run(diff, out, diff_run(diff, side, i));
	if (diff->measure == DIFF_PEAK)
		return;
	if (diff_has_one_run(diff))
		out_text(
			out,
			_("One run a side: this compares these two runs, and runs of the same program may differ "
			  "by more. To compare programs: diff A1 A2 A3 --to B1 B2 B3\n"));
	else
		out_text(out,
			 _("Numbers are means of the runs, and noise is how much runs differ\n"));
}

static const char *unit_text(const struct diff *diff)
{
	static const struct {
		const char *unit, *text;
	} units[] = {
		{ "percent", N_("percent of all") },
		{ "percent_cpu", N_("percent of a CPU") },
		{ "ns", N_("milliseconds of CPU time") },
		{ "ns_per_mark", N_("milliseconds of CPU time a mark") },
		{ "samples", N_("samples") },
		{ "events", N_("events") },
		{ "events_per_s", N_("events a second") },
		{ "events_per_mark", N_("events a mark") },
		{ "samples_per_s", N_("samples a second") },
		{ "samples_per_mark", N_("samples a mark") },
		{ "bytes", N_("bytes") },
		{ "bytes_per_s", N_("bytes a second") },
		{ "bytes_per_mark", N_("bytes a mark") },
		{ "calls", N_("allocations") },
		{ "calls_per_s", N_("allocations a second") },
		{ "calls_per_mark", N_("allocations a mark") },
	};

	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		if (strcmp(units[i].unit, diff->unit) == 0)
			return _(units[i].text);
	return diff->unit;
}

static void print_head(const struct diff *diff, struct out *out)
{
	const struct reader *reader = diff_reader(diff);

	print_runs(diff, out);
	for (guint i = 0; i < diff->notes->len; i++) {
		g_autofree char *text =
			text_escape(g_array_index(diff->notes, struct diff_note, i).text);

		reader_style(reader, out, READER_WARNING);
		out_printf(out, _("Note: %s\n"), text);
		reader_style(reader, out, READER_PLAIN);
	}
	if (!diff->is_damaged)
		out_printf(out,
			   diff->paths ? _("%u of %u call paths changed by more than noise\n")
				       : _("%u of %u functions changed by more than noise\n"),
			   diff->significant, diff->order->len);
	out_printf(out, _("Numbers are %s\n\n"), unit_text(diff));
}

static void print_processes(const struct diff *diff, struct out *out)
{
	if (!diff->processes || diff->processes->len == 0)
		return;
	out_printf(out, _("\nProcesses, by name\n"));
	for (guint i = 0; i < diff->processes->len; i++) {
		const struct diff_process *process = diff->processes->pdata[i];

		print_number(diff, out, process->of[DIFF_A], false);
		print_number(diff, out, process->of[DIFF_B], false);
		print_number(diff, out, process->of[DIFF_B] - process->of[DIFF_A], true);
		out_char(out, ' ');
		text_cell(out, process->comm ? process->comm : "-", 0, TEXT_LEFT);
		out_char(out, '\n');
	}
}

static void print_all(const struct diff *diff, struct out *out)
{
	const struct reader *reader = diff_reader(diff);

	print_head(diff, out);
	reader_style(reader, out, READER_BOLD);
	out_printf(out, "%14s %14s %14s %11s %14s  %-7s %s\n", "a", "b", _("change"), _("change %"),
		   _("noise up to"), "", diff->paths ? _("function < its callers") : _("function"));
	reader_style(reader, out, READER_PLAIN);
	if (diff->norm != DIFF_BY_SAMPLES) {
		print_change(diff, out, &diff->all);
		out_printf(out, "%s\n", _("(all)"));
	}
	for (guint i = 0; i < shown(diff); i++) {
		const struct diff_row *row = row_in_order(diff, i);

		print_change(diff, out, row);
		print_name(diff, out, row);
	}
	reader_print_limit(reader, out, shown(diff), diff->order->len);
	print_processes(diff, out);
}

void diff_show(struct diff *diff, struct out *out)
{
	if (diff_reader(diff)->format == READER_TEXT)
		print_all(diff, out);
	else
		write_all(diff);
}

/* ---- the threshold --------------------------------------------------------------------------- */

/* A capture without symbols has no functions to compare if more than this share of its samples has
 * no name. */
#define MOST_UNNAMED 0.5

/* Returns whether any file has symbols. The kernel's are known without symbolizing. */
static bool is_symbolized(const struct tally *tally)
{
	const struct names *names = tally->functions->names;

	for (uint32_t i = NAMES_LOST + 1; i < names->images->len; i++)
		if (names_image_at(names, i)->kind == PROF_IMAGE_FILE &&
		    symbol_rows_any(tally->functions->symbols, i))
			return true;
	return false;
}

static bool can_judge_run(const struct diff *diff, const struct diff_side *run)
{
	const struct capture *capture = diff_run_reader(diff, run)->capture;
	double evidence = diff_evidence(diff, &run->all);

	if (capture_state(capture) != PROF_STATE_FINISHED)
		cli_error(
			_("no verdict: capture '%s' is %s; record again, or compare what 'profcapture recover' saves without --fail-over"),
			capture->file, capture_state_name(capture));
	else if (diff->measure != DIFF_PEAK && run->all.events < DIFF_LEAST_ALL)
		cli_error(
			diff->measure == DIFF_SAMPLES
				? _("no verdict: '%s' has %.0f samples, and %d are needed; record longer, or with a higher --frequency")
				: _("no verdict: '%s' has %.0f allocations, and %d are needed; record longer"),
			capture->file, run->all.events, DIFF_LEAST_ALL);
	else if (diff->measure != DIFF_PEAK && evidence < DIFF_LEAST_ALL)
		cli_error(
			_("no verdict: a few samples of '%s' stand for most events, so that all tell as much as %.0f, and %d are needed; record longer"),
			capture->file, evidence, DIFF_LEAST_ALL);
	else if (diff->measure == DIFF_SAMPLES && !is_symbolized(&run->tally) &&
		 (double)run->tally.unresolved > MOST_UNNAMED * (double)run->tally.all.samples)
		cli_error(
			_("no verdict: most samples of '%s' have no name; 'profcapture symbolize %s' adds those that this machine has"),
			capture->file, capture->file);
	else
		return true;
	return false;
}

static bool exceeds(const struct diff *diff, const struct diff_row *row, double *ret_percent)
{
	if (!row->is_significant || row->b <= row->a)
		return false;
	*ret_percent = INFINITY;
	(void)diff_percent(row, ret_percent);
	return *ret_percent > diff->fail_percent;
}

static void tell(const struct diff *diff, const char *name, double percent)
{
	if (isinf(percent))
		cli_error(_("'%s' is new: more than %g %% is --fail-over"), name,
			  diff->fail_percent);
	else
		cli_error(_("'%s' grew by %.1f %%: more than %g %% is --fail-over"), name, percent,
			  diff->fail_percent);
}

int diff_judge(const struct diff *diff)
{
	bool can_judge = true;
	unsigned n = 0;
	double percent;

	if (diff->is_damaged) {
		cli_error(_("no verdict on --fail-over: a capture is damaged; record it again"));
		return CLI_NO_VERDICT;
	}
	for (unsigned side = 0; side < DIFF_SIDES; side++)
		for (guint i = 0; i < diff->runs[side]->len; i++)
			can_judge &= can_judge_run(diff, diff_run(diff, side, i));
	if (!can_judge)
		return CLI_NO_VERDICT;
	if (exceeds(diff, &diff->all, &percent)) {
		tell(diff, _("(all)"), percent);
		n++;
	}
	/* Significant rows come first. */
	for (guint i = 0; i < diff->significant && i < diff->order->len; i++) {
		const struct diff_row *row = row_in_order(diff, i);

		if (!exceeds(diff, row, &percent))
			continue;
		if (n++ < TOLD_EXCEEDED)
			tell(diff, diff_identity_at(diff, row)->name, percent);
	}
	if (n > TOLD_EXCEEDED)
		cli_error(_("and %u more"), n - TOLD_EXCEEDED);
	return n > 0 ? CLI_THRESHOLD : CLI_OK;
}
