/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profcapture annotate - where in a function the time went, by source line and by instruction
 *
 * JSON and CSV have a row for each source line, with inlined functions under their own names. Text
 * has only the lines of the function itself. Below each line, it has a row for each function of the
 * program, and for each class of a library, that is inlined at that line.
 */
#include "config.h"

#include "base/each.h"
#include "base/order.h"
#include "tools/profcapture/annotate-code.h"
#include "tools/profcapture/code-files.h"
#include "tools/profcapture/verbs.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_SITES 3           /* maximum number of places that inline the function, in text */
#define DEFAULT_LIMIT 200     /* a longer list shows only rows near a sample */
#define CONTEXT 3u            /* rows shown before and after a row with samples */
#define MAX_GAP 12            /* lines with code that are further apart have a gap between them */
#define HOTTEST 3             /* at most this many instructions are shown below the lines */
#define MIN_FINE_SAMPLES 1000 /* with fewer samples, shares have no decimals */

struct annotate {
	struct reader reader;
	struct profile profile;
	struct code_files files;
	struct annotate_code code;
	int by;
	struct json json;
};

enum annotate_by { ANNOTATE_BOTH, ANNOTATE_BY_LINE, ANNOTATE_BY_INSTRUCTION };
static const char *const annotate_by_names[] = { "both", "line", "instruction", NULL };

static const struct cli_option options[] = {
	{ "by", 0, CLI_CHOICE, offsetof(struct annotate, by), N_("WHAT"),
	  N_("Show source lines, instructions or both (default: both; lines in csv and ndjson)"),
	  annotate_by_names },
	{ "total", 0, CLI_FLAG, offsetof(struct annotate, code.wants_total), NULL,
	  N_("Add the time of the functions that a line called (always shown in text)") },
	{ "no-inline", 0, CLI_FLAG, offsetof(struct annotate, code.no_inline), NULL,
	  N_("Attribute inlined functions to the lines that call them") },
	{ "image", 0, CLI_STRING, offsetof(struct annotate, code.image), N_("PATH"),
	  N_("Use the function of this image, a path or a file name") },
	{ "full-names", 0, CLI_FLAG, offsetof(struct annotate, code.full_names), NULL,
	  N_("Do not shorten names") },
	{ NULL },
};

static const struct annotate_line *line_at(const struct annotate *annotate, guint index)
{
	return annotate->code.lines->pdata[index];
}

/* ---- cells ----------------------------------------------------------------------------------- */

enum field {
	SELF_PCT,
	TOTAL_PCT,
	SELF,
	TOTAL,
	WEIGHT,
	TOTAL_WEIGHT,
	FUNCTION,
	INLINED,
	FILE_NAME,
	LINE,
	TEXT,
	OFFSET,
	ADDRESS,
	WHERE,
};

static const struct table_member line_members[] = {
	{ "function", FUNCTION },
	{ "inlined", INLINED },
	{ "file", FILE_NAME },
	{ "line", LINE },
	{ "text", TEXT },
	{ "self", SELF },
	{ "self_pct", SELF_PCT },
	{ "total", TOTAL },
	{ "total_pct", TOTAL_PCT },
	{ "self_weight", WEIGHT },
	{ "total_weight", TOTAL_WEIGHT },
	{ NULL },
};
static const struct table_member instruction_members[] = {
	{ "offset", OFFSET },
	{ "address", ADDRESS },
	{ "text", TEXT },
	{ "function", FUNCTION },
	{ "inlined", INLINED },
	{ "file", FILE_NAME },
	{ "line", LINE },
	{ "self", SELF },
	{ "self_pct", SELF_PCT },
	{ "self_weight", WEIGHT },
	{ NULL },
};

/* Returns a cell of a column that both lines and instructions have. */
static struct cell place_cell(const struct annotate *annotate, unsigned field,
			      const struct annotate_place *at, bool has_total)
{
	const struct annotate_code *code = &annotate->code;

	switch ((enum field)field) {
	case FUNCTION:
		return cell_text(at->function);
	case INLINED:
		return cell_bool(at->is_inlined);
	case FILE_NAME:
		return cell_text(at->file);
	case LINE:
		return at->line ? cell_uint(at->line) : cell_unknown();
	case SELF:
		return cell_uint(at->self.samples);
	case SELF_PCT:
		return cell_double(amount_percent(at->self, code->self));
	case WEIGHT:
		return cell_uint(at->self.weight);
	default:
		return !has_total           ? cell_unknown()
		       : field == TOTAL     ? cell_uint(at->total.samples)
		       : field == TOTAL_PCT ? cell_double(amount_percent(at->total, code->total))
					    : cell_uint(at->total.weight);
	}
}

/* A table whose rows are struct annotate_line, text_row or annotate_instruction. A NULL instruction
 * is a gap. If `rows` is NULL, the rows are all instructions. */
struct listing {
	struct annotate *annotate;
	GPtrArray *rows;
	struct table table;
};

static struct cell get_line_cell(const void *data, size_t row, unsigned field)
{
	const struct listing *listing = data;
	const struct annotate_line *line = listing->rows->pdata[row];
	const struct source_text *source =
		code_files_source(&listing->annotate->files, line->at.file);

	if (field != TEXT)
		return place_cell(listing->annotate, field, &line->at,
				  listing->annotate->code.wants_total);
	return source ? cell_own_text(source_text_line(source, line->at.line)) : cell_none();
}

/* Returns an instruction with short names, such as "call 2190 <std::string::append>". Removes the
 * shown function's own name. */
static char *shorten_instruction(const char *shown, const char *text)
{
	const char *at = text, *end = text + strlen(text);
	GString *to = g_string_new(NULL);
	g_autofree char *operand = NULL, *name = NULL;
	bool is_plt;

	for (; *at && *at != '<'; at++)
		if (*at != ' ' || (to->len > 0 && to->str[to->len - 1] != ' '))
			g_string_append_c(to, *at);
	/* After "#", objdump names the symbol nearest to a data address, often an unrelated one. */
	if (!*at || to->len == 0 || end[-1] != '>' || strchr(to->str, '#'))
		return g_strchomp(g_string_free(to, FALSE));
	operand = g_strndup(at + 1, (gsize)(end - at - 2));
	if (g_str_has_prefix(operand, shown) && g_str_has_prefix(operand + strlen(shown), "+0x"))
		return g_strchomp(g_string_free(to, FALSE));
	/* A name with parameters was demangled: pass any mangled name as its raw name. */
	is_plt = g_str_has_suffix(operand, "@plt");
	operand[strlen(operand) - (is_plt ? strlen("@plt") : 0)] = '\0';
	name = function_name_for_people(operand, strchr(operand, '(') ? "_Z1f" : operand);
	g_string_append_printf(to, "<%s%s>", name, is_plt ? "@plt" : "");
	return g_string_free(to, FALSE);
}

static struct cell get_instruction_cell(const void *data, size_t row, unsigned field)
{
	const struct listing *listing = data;
	const struct annotate_code *code = &listing->annotate->code;
	bool is_text = code->reader->format == READER_TEXT;
	const struct annotate_instruction *at = listing->rows ? listing->rows->pdata[row]
							      : annotate_instruction_at(code, row);

	if (!at)
		return field == ADDRESS ? cell_text("...") : cell_none();
	switch ((enum field)field) {
	case TEXT:
		return at->text && is_text
			       ? cell_own_text(shorten_instruction(code->shown.name, at->text))
			       : cell_text(at->text);
	case OFFSET:
		return (struct cell){ .kind = CELL_HEX, .number = at->offset };
	case ADDRESS:
		return is_text ? cell_own_text(g_strdup_printf("%" PRIx64, at->address))
			       : (struct cell){ .kind = CELL_HEX, .number = at->address };
	case WHERE: /* such as "shop.cpp:24  shop::poly" */
		if (!at->at.file)
			return cell_none();
		return cell_own_text(g_strdup_printf(
			"%s:%" PRIu32 "%s%s", functions_basename(at->at.file), at->at.line,
			at->callee ? "  " : "", at->callee ? at->callee : ""));
	default:
		return place_cell(listing->annotate, field, &at->at, false);
	}
}

/* ---- JSON and CSV ---------------------------------------------------------------------------- */

COMPARE_AT(compare_lines, struct annotate_place, ORDER(a->is_inlined, b->is_inlined),
	   strcmp(a->function, b->function), g_strcmp0(a->file, b->file), ORDER(a->line, b->line))

static void write_head(struct annotate *annotate)
{
	const struct annotate_code *code = &annotate->code;
	struct json *json = &annotate->json;

	json_string(json, "event", profile_event_name(code->profile));
	json_string(json, "unit", profile_unit(code->profile));
	json_uint(json, "samples", code->profile->all.samples);
	json_uint(json, "weight", code->profile->all.weight);
	json_begin_object(json, "function");
	functions_write(code->profile->functions, code->function, json);
	json_uint_if(json, "length", code->end > code->start, code->end - code->start);
	json_uint(json, "self", code->self.samples);
	json_uint(json, "total", code->total.samples);
	json_double(json, "self_pct", amount_percent(code->self, code->profile->all));
	json_double(json, "total_pct", amount_percent(code->total, code->profile->all));
	json_uint(json, "self_weight", code->self.weight);
	json_uint(json, "total_weight", code->total.weight);
	json_uint(json, "own_self", code->own_self.samples);
	json_uint(json, "own_self_weight", code->own_self.weight);
	json_begin_array(json, "inlined_into");
	POINTER_EACH(const struct inline_site, site, code->sites) {
		json_begin_object(json, NULL);
		json_begin_array(json, "callers");
		for (guint i = 0; i < site->callers->len; i++)
			json_string(json, NULL, site->callers->pdata[i]);
		json_end(json);
		json_uint(json, "self", site->self.samples);
		json_uint(json, "self_weight", site->self.weight);
		json_end(json);
	}
	json_end(json);
	json_end(json);
	json_string(json, "no_code", code->why_no_code);
}

static void write_answer(struct annotate *annotate)
{
	const struct reader *reader = &annotate->reader;
	const struct listing listing = { .annotate = annotate, .rows = annotate->code.lines };
	const struct listing all = { .annotate = annotate };
	bool is_json = reader->format == READER_JSON;
	bool has_lines = is_json || annotate->by != ANNOTATE_BY_INSTRUCTION;
	bool has_instructions = is_json || !has_lines;
	const struct table lines = { .key = "lines",
				     .rows = annotate->code.lines->len,
				     .get = get_line_cell,
				     .data = &listing,
				     .members = line_members };
	const struct table instructions = { .key = "instructions",
					    .rows = annotate->code.instructions->len,
					    .get = get_instruction_cell,
					    .data = &all,
					    .members = instruction_members };

	g_ptr_array_sort(annotate->code.lines, compare_lines);
	reader_begin(reader, &annotate->json, "annotate",
		     (has_lines && reader_shown(reader, lines.rows) < lines.rows) ||
			     (has_instructions &&
			      reader_shown(reader, instructions.rows) < instructions.rows),
		     (has_lines ? lines.rows : 0) + (has_instructions ? instructions.rows : 0));
	if (is_json)
		write_head(annotate);
	if (has_lines)
		reader_write_table(reader, &annotate->json, &lines);
	if (has_instructions)
		reader_write_table(reader, &annotate->json, &instructions);
	reader_end(reader, &annotate->json);
}

/* ---- the first lines of text ----------------------------------------------------------------- */

static void say(const struct annotate *annotate, struct out *out, const char *format, ...)
	PRINTF_LIKE(3, 4);

static void say(const struct annotate *annotate, struct out *out, const char *format, ...)
{
	g_autofree char *sentence = NULL, *escaped = NULL;
	va_list arguments;

	va_start(arguments, format);
	sentence = g_strdup_vprintf(format, arguments);
	va_end(arguments);
	escaped = text_escape(sentence);
	text_wrap(out, escaped, 0, 2, annotate->reader.columns);
}

static char *percent_text(const struct annotate *annotate, struct amount part, struct amount whole)
{
	return text_percent(amount_percent(part, whole),
			    annotate->profile.all.samples >= MIN_FINE_SAMPLES);
}

/* Returns text such as "shop::kernel<double> at shop.cpp:26". */
static char *describe_function(const struct annotate *annotate)
{
	const struct annotate_code *code = &annotate->code;
	g_autofree char *name =
		code->full_names ? g_strdup(code->shown.name)
				 : function_name_for_people(code->shown.name, code->shown.raw_name);
	const char *path = functions_image(code->profile->functions, code->function);
	const char *file = code->shown.line ? code->shown.file : NULL;
	uint32_t first = file ? code->shown.line : UINT32_MAX;
	const struct annotate_place *hottest = NULL;

	/* Older captures do not have the declarations of inlined functions: use the first line of
	 * the code. */
	for (guint i = 0; !file && i < code->lines->len; i++) {
		const struct annotate_place *at = &line_at(annotate, i)->at;

		if (at->file && at->line && !at->is_inlined &&
		    (!hottest || amount_compare(at->total, hottest->total) < 0))
			hottest = at;
	}
	for (guint i = 0; hottest && i < code->lines->len; i++) {
		const struct annotate_place *at = &line_at(annotate, i)->at;

		file = hottest->file;
		if (at->file == file && at->line && !at->is_inlined)
			first = MIN_OF(first, at->line);
	}
	if (file)
		return g_strdup_printf(_("%s at %s:%" PRIu32), name, functions_basename(file),
				       first);
	return path ? g_strdup_printf(_("%s in %s"), name, functions_basename(path))
		    : g_steal_pointer(&name);
}

static void print_verdict(const struct annotate *annotate, struct out *out)
{
	const struct annotate_code *code = &annotate->code;
	const struct profile *profile = code->profile;
	g_autofree char *function = describe_function(annotate);
	g_autofree char *self = percent_text(annotate, code->own_self, profile->all);
	g_autofree char *total = percent_text(annotate, code->total, profile->all);
	g_autofree char *of = strcmp(profile_unit(profile), "ns") == 0
				      ? g_strdup(_("the CPU time"))
				      : g_strdup_printf(_("all %s"), profile_event_name(profile));

	reader_style(code->reader, out, READER_BOLD);
	say(annotate, out, _("%s has %s %% of %s itself, %s %% with its callees."), function, self,
	    of, total);
	reader_style(code->reader, out, READER_PLAIN);
}

/* Prints "Inlined once: < shop::accumulate_pairs<double, int> < shop::price_order." */
static void print_sites(const struct annotate *annotate, struct out *out)
{
	const struct annotate_code *code = &annotate->code;
	const GPtrArray *sites = code->sites;
	g_autoptr(GString) text = g_string_new(NULL);

	if (sites->len == 0)
		return;
	if (sites->len == 1)
		g_string_append(text, _("Inlined once:"));
	else
		g_string_append_printf(text, _("Inlined at %u places:"), sites->len);
	for (guint i = 0; i < sites->len && i < MAX_SITES; i++) {
		const struct inline_site *site = sites->pdata[i];
		g_autofree char *share = percent_text(annotate, site->self, code->self);

		g_string_append(text, i ? "," : "");
		for (guint k = 0; k < site->callers->len; k++)
			g_string_append_printf(text, " < %s", (char *)site->callers->pdata[k]);
		if (sites->len > 1 && site->self.samples > 0)
			g_string_append_printf(text, " (%s %%)", share);
	}
	if (sites->len > MAX_SITES)
		g_string_append_printf(text, _(", and %u more"), sites->len - MAX_SITES);
	say(annotate, out, "%s.", text->str);
	if (code->end > code->start)
		say(annotate, out,
		    _("The numbers include these places and the function's own code."));
	if (code->unread_containers)
		say(annotate, out,
		    _("In %u of the functions that contain it, instructions without samples are left out."),
		    code->unread_containers);
}

/* Reports source files of the shown lines that cannot be read or have changed. */
static void print_sources(struct annotate *annotate, struct out *out)
{
	g_autoptr(GHashTable) seen = g_hash_table_new(NULL, NULL);

	for (guint i = 0; i < annotate->code.lines->len; i++) {
		const struct annotate_place *at = &line_at(annotate, i)->at;
		const struct source_text *source = code_files_source(&annotate->files, at->file);

		if (!at->file || at->is_inlined || !g_hash_table_add(seen, (gpointer)at->file))
			continue;
		if (!source)
			say(annotate, out, _("%s cannot be read; --source-dir says where it is."),
			    at->file);
		else if (code_files_is_newer(source, annotate->reader.capture))
			say(annotate, out,
			    _("%s has changed since the recording: its lines may differ."),
			    source->path);
	}
}

static void print_head(struct annotate *annotate, struct out *out, bool has_lines)
{
	const struct annotate_code *code = &annotate->code;
	const struct reader *reader = code->reader;
	g_autofree char *event = text_escape(profile_event_name(code->profile));

	print_verdict(annotate, out);
	print_sites(annotate, out);
	if (code->self.samples == 0)
		say(annotate, out, _("No sample hit its own code, only its callees."));
	/* Name the event if it is not obvious. */
	if (profile_is_weighted(code->profile) || reader->capture->sampled->all->len > 1) {
		out_printf(out, _("Samples of %s"), event);
		profile_print_sum(code->profile, out);
		profile_print_other_events(code->profile, out);
		out_text(out, ".\n");
	}
	if (code->why_no_code && annotate->by != ANNOTATE_BY_LINE)
		say(annotate, out, _("No instructions: %s."), code->why_no_code);
	if (has_lines)
		print_sources(annotate, out);
	else if (annotate->by != ANNOTATE_BY_INSTRUCTION && annotate_code_is_generated(code))
		say(annotate, out,
		    _("Lines are unknown: no jitdump describes this code, or other code was at its "
		      "addresses, too."));
	else if (annotate->by != ANNOTATE_BY_INSTRUCTION && strcmp(code->shown.kind, "user") == 0)
		say(annotate, out,
		    _("Without lines: no debug information of it was found; 'apt install' its "
		      "-dbgsym package, or see --debug-dir."));
	reader_print_losses(reader, out, READER_LOSSES);
	if (reader_is_complete(reader))
		out_text(out, _("Lost: nothing.\n"));
	reader_print_missed_ticks(reader, out);
}

/* ---- lines as text --------------------------------------------------------------------------- */

struct text_row {
	const struct annotate_line *line; /* NULL: a line without code, a gap, or a file's name */
	const char *file;
	uint32_t number; /* line number in the file; 0: unknown, a gap, or a title */
	bool is_title;
};

COMPARE_AT(compare_text_lines, struct annotate_place, g_strcmp0(a->file, b->file),
	   ORDER(a->line, b->line), ORDER(a->is_inlined, b->is_inlined),
	   amount_compare(a->self, b->self), strcmp(a->function, b->function))

/* Returns whether to show row i of n: all rows if --limit allows, else those near a sample. */
static bool is_shown(const struct annotate *annotate, guint i, guint n, const uint8_t *is_hit)
{
	if (reader_shown(&annotate->reader, n) == n)
		return true;
	for (guint k = i - MIN_OF(i, CONTEXT); k < n && k <= i + CONTEXT; k++)
		if (is_hit[k])
			return true;
	return false;
}

static void add_row(GPtrArray *rows, struct text_row row)
{
	g_ptr_array_add(rows, g_memdup2(&row, sizeof(row)));
}

/* Returns the rows: struct text_row. */
static GPtrArray *list_text_rows(struct annotate *annotate)
{
	GPtrArray *lines = annotate->code.lines, *rows = g_ptr_array_new_with_free_func(g_free);
	g_autofree uint8_t *is_hit = g_new(uint8_t, lines->len + 1);
	const char *file = NULL;
	uint32_t before = 0;
	bool is_one_file;

	g_ptr_array_sort(lines, compare_text_lines);
	is_one_file = lines->len > 0 &&
		      line_at(annotate, 0)->at.file == line_at(annotate, lines->len - 1)->at.file;
	for (guint i = 0; i < lines->len; i++)
		is_hit[i] = line_at(annotate, i)->at.self.samples ||
			    line_at(annotate, i)->at.total.samples;
	for (guint i = 0; i < lines->len; i++) {
		const struct annotate_line *line = line_at(annotate, i);
		const struct annotate_place *at = &line->at;
		const struct source_text *source = code_files_source(&annotate->files, at->file);

		if (!is_shown(annotate, i, lines->len, is_hit) ||
		    ((at->is_inlined || !source) && !is_hit[i]))
			continue;
		if (!is_one_file && (file != at->file || i == 0))
			add_row(rows, (struct text_row){ .file = at->file, .is_title = true });
		if (file != at->file || at->is_inlined || !source)
			before = 0;
		file = at->file;
		if (before && at->line > before + MAX_GAP)
			add_row(rows, (struct text_row){ .file = file });
		else if (before)
			while (++before < at->line)
				add_row(rows, (struct text_row){ .file = file, .number = before });
		before = at->line;
		add_row(rows, (struct text_row){ .line = line, .file = file, .number = at->line });
	}
	return rows;
}

static struct cell get_text_cell(const void *data, size_t row, unsigned field)
{
	const struct listing *listing = data;
	const struct text_row *at = listing->rows->pdata[row];
	const struct annotate_line *line = at->line;
	const struct source_text *source = code_files_source(&listing->annotate->files, at->file);
	bool is_callee = line && line->at.is_inlined, is_source = !is_callee && !at->is_title;
	GString *text;

	switch ((enum field)field) {
	case LINE:
		return !is_source   ? cell_none()
		       : at->number ? cell_uint(at->number)
				    : cell_text(line ? NULL : "...");
	case TEXT:
		if (is_callee) { /* such as "+19 std::vector  vector.tcc:119": 19 functions */
			text = g_string_new(NULL);
			g_string_printf(text, "+%u %s",
					line->functions ? g_hash_table_size(line->functions) : 1,
					line->at.function);
			if (line->hottest.self.samples && line->hottest.file)
				g_string_append_printf(text, "  %s:%" PRIu32,
						       functions_basename(line->hottest.file),
						       line->hottest.line);
			return cell_own_text(g_string_free(text, FALSE));
		}
		if (at->is_title)
			return cell_own_text(g_strdup_printf(
				"%s:", at->file ? functions_basename(at->file) : "-"));
		return source && at->number ? cell_own_text(source_text_line(source, at->number))
					    : cell_none();
	default:
		return line ? place_cell(listing->annotate, field, &line->at,
					 !is_callee || listing->annotate->code.has_callee_totals)
			    : cell_none();
	}
}

static bool is_hot(const void *data, size_t row)
{
	const struct listing *listing = data;
	struct cell cell = listing->table.get(data, row, SELF_PCT);

	return cell.kind == CELL_DOUBLE && cell.real >= 10;
}

/* Adds the columns of shares, samples and weights. */
static void add_columns(struct listing *listing)
{
	const struct profile *profile = &listing->annotate->profile;
	struct table *table = &listing->table;

	table->rows = listing->rows->len;
	table->data = listing;
	table->is_bold = is_hot;
	table->is_coarse = profile->all.samples < MIN_FINE_SAMPLES;
	table_add_column(table, SELF_PCT, COLUMN_PERCENT, _("self %"));
	if (table->get == get_text_cell)
		table_add_column(table, TOTAL_PCT, COLUMN_PERCENT, _("total %"));
	table_add_column(table, SELF, COLUMN_COUNT, _("samples"));
	if (profile_is_weighted(profile))
		table_add_column(table, WEIGHT, COLUMN_COUNT,
				 strcmp(profile_unit(profile), "ns") == 0
					 ? "ns"
					 : profile_event_name(profile));
}

/* Prints the table and frees its rows. */
static void print_listing(struct listing *listing, struct out *out)
{
	const struct reader *reader = &listing->annotate->reader;
	const struct table_style style = { .out = out,
					   .is_colored = reader->colored,
					   .columns = reader->columns,
					   .is_padded = true };

	out_char(out, '\n');
	table_print(&listing->table, &style, listing->table.rows);
	g_ptr_array_unref(listing->rows);
}

/* ---- instructions as text -------------------------------------------------------------------- */

COMPARE_AT(compare_heat, struct annotate_instruction, amount_compare(a->at.self, b->at.self),
	   ORDER(a, b))

/* Returns the instructions to show. A NULL element is a gap. */
static GPtrArray *list_instructions(const struct annotate *annotate, bool hottest)
{
	guint n = annotate->code.instructions->len;
	GPtrArray *rows = g_ptr_array_new();
	g_autofree uint8_t *is_hit = g_new(uint8_t, n + 1);

	for (guint i = 0; i < n; i++)
		is_hit[i] = annotate_instruction_at(&annotate->code, i)->at.self.samples > 0;
	for (guint i = 0; i < n; i++) {
		if (hottest ? is_hit[i] : is_shown(annotate, i, n, is_hit))
			g_ptr_array_add(rows, annotate_instruction_at(&annotate->code, i));
		else if (!hottest && (rows->len == 0 || rows->pdata[rows->len - 1]))
			g_ptr_array_add(rows, NULL);
	}
	if (hottest) {
		g_ptr_array_sort(rows, compare_heat);
		g_ptr_array_set_size(rows, (gint)MIN_OF(rows->len, (guint)HOTTEST));
	}
	return rows;
}

static void print_instructions(struct annotate *annotate, struct out *out, bool hottest)
{
	struct listing listing = { annotate,
				   list_instructions(annotate, hottest),
				   { .get = get_instruction_cell } };
	g_autofree char *all = text_count(annotate->code.instructions->len);
	g_autofree char *title =
		listing.rows->len < annotate->code.instructions->len && hottest
			? g_strdup_printf(_("instruction (%u of %s; --by instruction: all)"),
					  listing.rows->len, all)
			: g_strdup(_("instruction"));

	add_columns(&listing);
	table_add_column(&listing.table, ADDRESS, COLUMN_NUMBER, _("address"));
	table_add_column(&listing.table, TEXT, COLUMN_NAME, title);
	table_add_column(&listing.table, WHERE, COLUMN_PLACE, NULL);
	print_listing(&listing, out);
}

static void print_answer(struct annotate *annotate, struct out *out)
{
	bool has_lines = false;

	for (guint i = 0; annotate->by != ANNOTATE_BY_INSTRUCTION && i < annotate->code.lines->len;
	     i++)
		has_lines |= line_at(annotate, i)->at.file != NULL;
	print_head(annotate, out, has_lines);
	if (has_lines) {
		struct listing listing = { annotate,
					   list_text_rows(annotate),
					   { .get = get_text_cell } };

		add_columns(&listing);
		table_add_column(&listing.table, LINE, COLUMN_NUMBER, _("line"));
		table_add_column(&listing.table, TEXT, COLUMN_NAME, _("source"));
		print_listing(&listing, out);
	}
	if (annotate->by != ANNOTATE_BY_LINE && annotate->code.instructions->len)
		print_instructions(annotate, out, has_lines);
}

/* ---- the verb -------------------------------------------------------------------------------- */

static void annotate_done(struct annotate *annotate)
{
	json_done(&annotate->json);
	annotate_code_done(&annotate->code);
	code_files_done(&annotate->files);
	profile_done(&annotate->profile);
	reader_done(&annotate->reader);
}

/* Returns whether the function is part of an interpreter. By default, the samples of such functions
 * count for the interpreted functions. */
static bool is_of_interpreter(const struct annotate *annotate)
{
	const struct names *names = annotate->reader.capture->names;
	const struct function *function =
		functions_at(annotate->profile.functions, annotate->code.function);
	const struct names_image *image = names_image_at(names, function->image);

	for (uint32_t i = NAMES_LOST + 1; i < names->images->len; i++) {
		const struct names_image *other = names_image_at(names, i);

		if (other->kind == PROF_IMAGE_INTERPRETER && other != image &&
		    image->kind == PROF_IMAGE_FILE && image->build_id == other->build_id &&
		    image->dev == other->dev && image->inode == other->inode)
			return true;
	}
	return false;
}

static bool choose_function(struct annotate *annotate, const char *name, GError **error)
{
	struct annotate_code *code = &annotate->code;

	return profile_run(&annotate->profile, &annotate->reader, error) &&
	       annotate_code_choose(code, name, error);
}

/* Looks up the name in interpreted functions first. The interpreter's own functions need a second
 * profile, because in the first one their samples count for the interpreted functions. */
static bool choose_in_either(struct annotate *annotate, const char *name, GError **error)
{
	struct annotate_code *code = &annotate->code;
	struct names *names = annotate->reader.capture->names;
	GError *refusal = NULL;
	bool found = choose_function(annotate, name, &refusal);

	if (found && !is_of_interpreter(annotate))
		return true;
	/* If `functions` is NULL, the capture could not be read. */
	if (!found && (code->has_hint || !annotate->profile.functions ||
		       !annotate->profile.functions->has_interpreter)) {
		g_propagate_error(error, refusal);
		return false;
	}
	g_clear_error(&refusal);
	names->native_frames = true;
	profile_done(&annotate->profile);
	annotate->profile =
		(struct profile){ .inlined = !code->no_inline, .joins_inlined = !code->no_inline };
	return choose_function(annotate, name, error);
}

static bool read_code(struct annotate *annotate, char **operands, GError **error)
{
	struct annotate_code *code = &annotate->code;

	annotate->profile.inlined = annotate->profile.joins_inlined = !code->no_inline;
	if (!code_files_open(&annotate->files, error) ||
	    !reader_open(&annotate->reader, operands[0], error))
		return false;
	code->reader = &annotate->reader;
	code->profile = &annotate->profile;
	code->debug_files = annotate->files.debug;
	code->merges_callees = annotate->reader.format == READER_TEXT;
	return choose_in_either(annotate, operands[1], error) && annotate_code_read(code, error) &&
	       annotate_code_count_totals(code, error);
}

int verb_annotate(int argc, char **argv)
{
	static const struct cli_spec spec = {
		N_("FILE FUNCTION"),
		N_("Show the hot source lines and instructions of a function. FUNCTION is the name of the function, or an address in the function: image+0xOFFSET."),
		2, 2
	};
	CLEANUP(annotate_done)
	struct annotate annotate = {
		.reader = READER_TEXT_ROWS(DEFAULT_LIMIT),
	};
	struct reader *reader = &annotate.reader;
	const struct cli_group groups[] = { { NULL, options, &annotate },
					    { NULL, code_files_options, &annotate.files },
					    READER_SELECT(N_("Select"), reader),
					    { NULL, reader_cpu_options, reader },
					    { NULL, reader_event_options, reader },
					    { N_("Output"), reader_output_options, reader },
					    { NULL, reader_pager_options, reader },
					    { NULL } };
	GError *error = NULL;
	int status = cli_parse(&spec, groups, &argc, &argv);

	json_init(&annotate.json, out_stdout());
	if (status != CLI_CONTINUE)
		return status;
	if (!read_code(&annotate, argv, &error)) {
		status = cli_fail(error);
		if (annotate.code.candidates)
			fputs(annotate.code.candidates->str, stderr);
		return status;
	}
	capture_warn(reader->capture);
	reader_page(reader);
	if (reader->format == READER_TEXT)
		print_answer(&annotate, out_stdout());
	else
		write_answer(&annotate);
	return CLI_OK;
}
