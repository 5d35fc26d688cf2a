/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Annotate-show - a function's lines and instructions with their samples, as text, JSON, ndjson and
 * CSV
 *
 * Text lists lines in the order of their file: first those of the function, then those inlined into
 * it, by function and file. Lines without samples are shown between lines with samples, except in
 * long gaps.
 */
#include "config.h"

#include "tools/profcapture/annotate.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <string.h>

#define CONTEXT 3  /* lines or instructions shown around one with samples */
#define MAX_GAP 12 /* source lines without code shown between two with code */

static const struct annotate_line *line_at(const struct annotate *annotate, guint index)
{
	return &g_array_index(annotate->lines, struct annotate_line, index);
}

static const struct annotate_instruction *instruction_at(const struct annotate *annotate,
							 guint index)
{
	return &g_array_index(annotate->instructions, struct annotate_instruction, index);
}

static struct amount own_total(const struct annotate *annotate)
{
	return tally_count_at(annotate->tally.counts, annotate->function).total;
}

/* ---- groups of lines ------------------------------------------------------------------------- */

static gint compare_lines(gconstpointer left, gconstpointer right, gpointer data)
{
	const struct annotate *annotate = data;
	const struct annotate_line *a = line_at(annotate, *(const uint32_t *)left);
	const struct annotate_line *b = line_at(annotate, *(const uint32_t *)right);
	int order;

	if (a->is_inlined != b->is_inlined)
		return a->is_inlined ? 1 : -1;
	order = strcmp(a->function, b->function);
	if (order == 0)
		order = g_strcmp0(a->file, b->file);
	if (order == 0)
		order = a->line < b->line ? -1 : a->line > b->line;
	return order;
}

/* Returns the indexes of the lines in the order in which they are shown. */
static GArray *order_lines(struct annotate *annotate)
{
	GArray *order = g_array_new(FALSE, FALSE, sizeof(uint32_t));

	for (uint32_t i = 0; i < annotate->lines->len; i++)
		g_array_append_val(order, i);
	g_array_sort_with_data(order, compare_lines, annotate);
	return order;
}

static guint limit_of(const struct annotate *annotate, guint n)
{
	uint64_t limit = annotate->reader.limit;

	return limit && limit < n ? (guint)limit : n;
}

/* ---- JSON and CSV ---------------------------------------------------------------------------- */

static void write_text(struct json *json, const char *key, char *text)
{
	json_string(json, key, text);
	g_free(text);
}

static void write_place(const struct annotate_line *line, struct json *json)
{
	json_string(json, "function", line->function);
	json_bool(json, "inlined", line->is_inlined);
	json_string(json, "file", line->file);
	if (line->line)
		json_uint(json, "line", line->line);
	else
		json_null(json, "line");
}

static void write_line(struct annotate *annotate, struct json *json,
		       const struct annotate_line *line)
{
	const struct source_text *source = annotate_source(annotate, line->file);

	write_place(line, json);
	write_text(json, "text", source ? source_text_line(source, line->line) : NULL);
	json_uint(json, "self", line->self.samples);
	json_double(json, "self_pct", amount_percent(line->self, annotate->self));
	if (annotate->wants_total) {
		json_uint(json, "total", line->total.samples);
		json_double(json, "total_pct", amount_percent(line->total, own_total(annotate)));
	} else {
		json_null(json, "total");
		json_null(json, "total_pct");
	}
	json_uint(json, "self_weight", line->self.weight);
	if (annotate->wants_total)
		json_uint(json, "total_weight", line->total.weight);
	else
		json_null(json, "total_weight");
}

static void write_instruction(struct annotate *annotate, struct json *json,
			      const struct annotate_instruction *instruction)
{
	json_hex(json, "offset", instruction->offset);
	json_hex(json, "address", instruction->address);
	json_string(json, "text", instruction->text);
	write_place(line_at(annotate, instruction->line), json);
	json_uint(json, "self", instruction->self.samples);
	json_double(json, "self_pct", amount_percent(instruction->self, annotate->self));
	json_uint(json, "self_weight", instruction->self.weight);
}

static void write_head(struct annotate *annotate, struct json *json)
{
	json_string(json, "event", tally_event_name(&annotate->tally));
	json_string(json, "unit", tally_unit(&annotate->tally));
	json_uint(json, "samples", annotate->tally.all.samples);
	json_uint(json, "weight", annotate->tally.all.weight);
	json_begin_object(json, "function");
	functions_write(annotate->tally.functions, annotate->function, json);
	json_uint(json, "length", annotate->end - annotate->start);
	json_uint(json, "self", annotate->self.samples);
	json_uint(json, "total", own_total(annotate).samples);
	json_double(json, "self_pct", amount_percent(annotate->self, annotate->tally.all));
	json_double(json, "total_pct", amount_percent(own_total(annotate), annotate->tally.all));
	json_uint(json, "self_weight", annotate->self.weight);
	json_uint(json, "total_weight", own_total(annotate).weight);
	json_end(json);
	json_string(json, "no_code", annotate->why_no_code);
}

static void write_json(struct annotate *annotate, struct json *json, const GArray *order)
{
	guint n_lines = limit_of(annotate, order->len);
	guint n = limit_of(annotate, annotate->instructions->len);

	reader_begin(&annotate->reader, json, "annotate",
		     n_lines < order->len || n < annotate->instructions->len);
	write_head(annotate, json);
	json_begin_array(json, "lines");
	for (guint i = 0; i < n_lines; i++) {
		json_begin_object(json, NULL);
		write_line(annotate, json, line_at(annotate, g_array_index(order, uint32_t, i)));
		json_end(json);
	}
	json_end(json);
	json_begin_array(json, "instructions");
	for (guint i = 0; i < n; i++) {
		json_begin_object(json, NULL);
		write_instruction(annotate, json, instruction_at(annotate, i));
		json_end(json);
	}
	json_end(json);
	reader_end(&annotate->reader, json);
}

static const char *const line_columns[] = { "function",  "inlined",     "file",         "line",
					    "text",      "self",        "self_pct",     "total",
					    "total_pct", "self_weight", "total_weight", NULL };
static const char *const instruction_columns[] = { "offset",   "address",     "text", "function",
						   "inlined",  "file",        "line", "self",
						   "self_pct", "self_weight", NULL };

/* ndjson and CSV are one table. */
static void write_rows(struct annotate *annotate, struct json *json, const GArray *order)
{
	bool lines = annotate->by != ANNOTATE_BY_INSTRUCTION;
	guint all = lines ? order->len : annotate->instructions->len;
	guint n = limit_of(annotate, all);

	reader_begin(&annotate->reader, json, "annotate", n < all);
	rows_open(json, reader_json_format(&annotate->reader),
		  lines ? line_columns : instruction_columns);
	for (guint i = 0; i < n; i++) {
		rows_begin(json);
		if (lines)
			write_line(annotate, json,
				   line_at(annotate, g_array_index(order, uint32_t, i)));
		else
			write_instruction(annotate, json, instruction_at(annotate, i));
		rows_end(json);
	}
	rows_close(json);
	reader_end(&annotate->reader, json);
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Prints the event of the samples, if it is not obvious. */
static void print_event(const struct tally *tally, struct out *out)
{
	g_autofree char *event = text_escape(tally_event_name(tally));

	if (!tally_is_weighted(tally) && tally->reader->capture->sampled->all->len < 2)
		return;
	out_printf(out, _("Samples of %s"), event);
	tally_print_sum(tally, out);
	tally_print_other_events(tally, out);
	out_char(out, '\n');
}

static void print_head(struct annotate *annotate, struct out *out)
{
	const struct reader *reader = &annotate->reader;
	const struct function *function = annotate_function(annotate);
	const struct tally *tally = &annotate->tally;
	g_autofree char *samples = text_count(tally->all.samples);
	g_autofree char *self = text_count(annotate->self.samples);
	g_autofree char *total = text_count(own_total(annotate).samples);

	reader_print_losses(reader, out, READER_LOSSES);
	reader_print_missed_ticks(reader, out);
	reader_style(reader, out, READER_BOLD);
	functions_print(annotate->tally.functions, annotate->function, true, out);
	reader_style(reader, out, READER_PLAIN);
	out_printf(out,
		   annotate_is_generated(annotate)
			   ? _(", at first at 0x%" PRIx64 " to 0x%" PRIx64 " of its process\n")
			   : _(", at 0x%" PRIx64 " to 0x%" PRIx64 " of the file\n"),
		   function->offset, annotate->end);
	out_printf(out, _("%s of %s samples in it (%.2f %%), %s with what it calls (%.2f %%)\n"),
		   self, samples, amount_percent(annotate->self, tally->all), total,
		   amount_percent(own_total(annotate), tally->all));
	print_event(tally, out);
	if (annotate->why_no_code) {
		g_autofree char *why = text_escape(annotate->why_no_code);

		out_printf(out, _("Without instructions: %s\n"), why);
	}
	if (annotate->self.samples == 0)
		out_text(out, _("No sample hit its own code, only what it calls\n"));
}

/* Prints counts and shares, blank where they are zero. Returns the number of columns used. */
static unsigned print_count(const struct annotate *annotate, struct out *out, struct amount self,
			    const struct amount *total)
{
	double percent = amount_percent(self, annotate->self);
	unsigned used = total ? 28 : 19;

	reader_style(&annotate->reader, out, self.samples ? reader_heat(percent) : READER_PLAIN);
	if (self.samples)
		out_printf(out, "%8.2f %9" PRIu64 " ", percent, self.samples);
	else
		out_printf(out, "%8s %9s ", "", "");
	used += tally_print_weight(&annotate->tally, out, self.samples ? &self : NULL);
	if (total && total->samples)
		out_printf(out, "%8.2f ", amount_percent(*total, own_total(annotate)));
	else if (total)
		out_printf(out, "%8s ", "");
	return used;
}

static void end_line(const struct annotate *annotate, struct out *out, const char *text,
		     unsigned used)
{
	reader_end_line(&annotate->reader, out, text ? text : "", used);
	reader_style(&annotate->reader, out, READER_PLAIN);
}

/* Prints a line of the source file; `line` is NULL if it has no code. */
static void print_line(struct annotate *annotate, struct out *out, const struct annotate_line *line,
		       const struct source_text *source, uint32_t number)
{
	static const struct annotate_line none;
	g_autofree char *text = source ? source_text_line(source, number) : NULL;
	unsigned used;

	line = line ? line : &none;
	used = print_count(annotate, out, line->self, annotate->wants_total ? &line->total : NULL);
	out_printf(out, "%6" PRIu32 "  ", number);
	end_line(annotate, out, text, used + 8);
}

static void print_group_head(struct annotate *annotate, struct out *out,
			     const struct annotate_line *line, const struct source_text *source)
{
	g_autofree char *function = text_escape(line->function);
	g_autofree char *file = text_escape(line->file ? line->file : "-");

	reader_style(&annotate->reader, out, READER_BOLD);
	if (line->is_inlined)
		out_printf(out, _("\nInlined: %s, %s"), function, file);
	else
		out_printf(out, "\n%s", file);
	reader_style(&annotate->reader, out, READER_PLAIN);
	if (line->file && !source)
		out_text(out, _(" (cannot be read; --source-dir says where it is)"));
	else if (source && annotate->reader.capture->n_segments &&
		 source->mtime_s > annotate->reader.capture->segments[0].wall_ns / 1000000000)
		out_text(out, _(" (changed since the recording: lines may be others)"));
	out_char(out, '\n');
}

/* Prints the mark for omitted lines; it ends in that column. */
static void print_gap(const struct annotate *annotate, struct out *out, int column)
{
	(void)tally_print_weight(&annotate->tally, out, NULL);
	out_printf(out, "%*s\n", column, "...");
}

/* Returns which of n consecutive things to show: all, or those near one with samples. */
static uint8_t *choose(const struct annotate *annotate, guint n,
		       bool (*is_hit)(const struct annotate *annotate, guint index,
				      const void *data),
		       const void *data)
{
	uint8_t *chosen = g_new0(uint8_t, n + 1);

	for (guint i = 0; i < n; i++) {
		if (limit_of(annotate, n) == n)
			chosen[i] = 1;
		else if (is_hit(annotate, i, data))
			memset(&chosen[i > CONTEXT ? i - CONTEXT : 0], 1,
			       MIN_OF(n, i + CONTEXT + 1) - (i > CONTEXT ? i - CONTEXT : 0));
	}
	return chosen;
}

static bool is_hit_line(const struct annotate *annotate, guint index, const void *data)
{
	const struct annotate_line *line = line_at(annotate, ((const uint32_t *)data)[index]);

	return line->self.samples || line->total.samples;
}

/* Prints the lines of one function in one file. */
static void print_group(struct annotate *annotate, struct out *out, const uint32_t *order, guint n)
{
	const struct annotate_line *first = line_at(annotate, order[0]);
	const struct source_text *source = annotate_source(annotate, first->file);
	g_autofree uint8_t *chosen = choose(annotate, n, is_hit_line, order);
	uint32_t before = 0;

	print_group_head(annotate, out, first, source);
	for (guint i = 0; i < n; i++) {
		const struct annotate_line *line = line_at(annotate, order[i]);

		if (!chosen[i] || (!source && !is_hit_line(annotate, i, order)))
			continue;
		if (source && before && line->line > before + MAX_GAP)
			print_gap(annotate, out, annotate->wants_total ? 34 : 25);
		for (uint32_t gap = before + 1;
		     source && before && line->line <= before + MAX_GAP && gap < line->line; gap++)
			print_line(annotate, out, NULL, source, gap);
		print_line(annotate, out, line, source, line->line);
		before = line->line;
	}
}

static bool same_group(const struct annotate_line *a, const struct annotate_line *b)
{
	return a->function == b->function && a->file == b->file && a->is_inlined == b->is_inlined;
}

static bool has_samples(const struct annotate *annotate, const uint32_t *order, guint n)
{
	for (guint i = 0; i < n; i++)
		if (is_hit_line(annotate, i, order))
			return true;
	return false;
}

static void print_lines(struct annotate *annotate, struct out *out, const GArray *order)
{
	const uint32_t *at = (const uint32_t *)(void *)order->data;
	guint start = 0;

	out_char(out, '\n');
	reader_style(&annotate->reader, out, READER_BOLD);
	out_printf(out, "%8s %9s ", _("self %"), _("samples"));
	tally_print_weight_title(&annotate->tally, out);
	if (annotate->wants_total)
		out_printf(out, "%8s ", _("total %"));
	out_printf(out, "%6s  %s\n", _("line"), _("source"));
	reader_style(&annotate->reader, out, READER_PLAIN);
	for (guint i = 1; i <= order->len; i++) {
		if (i < order->len &&
		    same_group(line_at(annotate, at[i]), line_at(annotate, at[start])))
			continue;
		if (limit_of(annotate, order->len) == order->len ||
		    has_samples(annotate, at + start, i - start))
			print_group(annotate, out, at + start, i - start);
		start = i;
	}
}

static bool is_hit_instruction(const struct annotate *annotate, guint index, const void *data)
{
	(void)data;
	return instruction_at(annotate, index)->self.samples > 0;
}

/* Prints the source line of the instructions that follow. */
static void print_origin(const struct annotate *annotate, struct out *out,
			 const struct annotate_line *line)
{
	const char *slash = line->file ? strrchr(line->file, '/') : NULL;
	g_autofree char *text = g_strdup_printf("%s:%" PRIu32 "%s%s",
						line->file ? (slash ? slash + 1 : line->file) : "-",
						line->line,
						line->is_inlined ? _("  inlined: ") : "",
						line->is_inlined ? line->function : "");
	unsigned used = 21;

	if (!line->file)
		return;
	used += tally_print_weight(&annotate->tally, out, NULL);
	out_printf(out, "%*s", 21, "");
	end_line(annotate, out, text, used);
}

static void print_instructions(const struct annotate *annotate, struct out *out)
{
	guint n = annotate->instructions->len;
	g_autofree uint8_t *chosen = choose(annotate, n, is_hit_instruction, NULL);
	uint32_t line = UINT32_MAX;
	bool gap = false;

	reader_style(&annotate->reader, out, READER_BOLD);
	out_printf(out, "\n%8s %9s ", _("self %"), _("samples"));
	tally_print_weight_title(&annotate->tally, out);
	out_printf(out, "%10s  %s\n", _("address"), _("instruction"));
	reader_style(&annotate->reader, out, READER_PLAIN);
	for (guint i = 0; i < n; i++) {
		const struct annotate_instruction *at = instruction_at(annotate, i);
		unsigned used;

		if (!chosen[i] && !gap)
			print_gap(annotate, out, 29);
		gap = !chosen[i];
		if (gap)
			continue;
		if (at->line != line)
			print_origin(annotate, out, line_at(annotate, at->line));
		line = at->line;
		used = print_count(annotate, out, at->self, NULL);
		out_printf(out, "%10" PRIx64 "  ", at->address);
		end_line(annotate, out, at->text ? at->text : "-", used + 12);
	}
}

static bool has_lines(const struct annotate *annotate)
{
	for (guint i = 0; i < annotate->lines->len; i++)
		if (line_at(annotate, i)->file)
			return true;
	return false;
}

static void print(struct annotate *annotate, struct out *out, const GArray *order)
{
	print_head(annotate, out);
	if (annotate->by != ANNOTATE_BY_INSTRUCTION && has_lines(annotate))
		print_lines(annotate, out, order);
	else if (annotate->by != ANNOTATE_BY_INSTRUCTION &&
		 strcmp(annotate_function(annotate)->kind, "user") == 0)
		out_text(out,
			 _("Without lines: no debug information of it was found; 'apt install' "
			   "its -dbgsym package, or see --debug-dir\n"));
	else if (annotate->by != ANNOTATE_BY_INSTRUCTION && annotate_is_generated(annotate))
		out_text(out,
			 _("Without lines: no jitdump told them of this code, or other code was "
			   "in its place, too\n"));
	if (annotate->by != ANNOTATE_BY_LINE && annotate->instructions->len)
		print_instructions(annotate, out);
}

void annotate_show(struct annotate *annotate, struct out *out)
{
	g_autoptr(GArray) order = order_lines(annotate);
	struct json json;

	json_init(&json, out);
	if (annotate->reader.format == READER_TEXT)
		print(annotate, out, order);
	else if (annotate->reader.format == READER_JSON)
		write_json(annotate, &json, order);
	else
		write_rows(annotate, &json, order);
	json_done(&json);
}
