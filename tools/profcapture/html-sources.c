/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Html-sources - source lines and instructions of the hottest functions, for the page
 *
 * One pass over the samples notes the address of each. Each instruction then lists the addresses
 * whose samples count there; inlined code may count in two of the functions. Generated code has no
 * instructions: its lines have the sums of the whole capture.
 */
#include "config.h"

#include "tools/profcapture/html-sources.h"

#include "base/each.h"
#include "base/order.h"
#include "tools/profcapture/annotate-code.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <string.h>

#define MOST_FUNCTIONS 24u
#define LEAST_PERCENT 0.1
#define MOST_BYTES (4u << 20)   /* total size of source and assembly */
#define MOST_LINE 2000u         /* at most this many bytes of a line are shown */
#define MOST_INSTRUCTIONS 1000u /* longer functions show only instructions near samples */
#define CONTEXT 5u              /* lines or instructions shown on each side of one with samples */

/* A source file, and which of its lines are on the page. */
struct page_source {
	uint32_t number;  /* index in sources.all */
	const char *path; /* interned */
	const struct source_text *text;
	GByteArray *shown; /* bool by line */
};

struct sources {
	struct html_rows *rows;
	struct code_files *files;
	struct export *export;
	struct sampled_frames sampled; /* in the images of the functions on the page */
	struct html_samples samples;   /* samples; `stack`: index of a sampled frame */
	GArray *places;                /* uint32_t by sampled frame: number on the page + 1, or 0 */
	GPtrArray *all;                /* struct page_source */
	GHashTable *by_path;           /* path → struct page_source */
	uint32_t n_places;
	size_t bytes;
};

/* ---- places of samples ----------------------------------------------------------------------- */

static void take_samples(const struct profile_sample *each, size_t n, void *data)
{
	struct sources *sources = data;

	for (size_t i = 0; i < n; i++) {
		struct profile_sample sample = each[i];

		/* without a tree, the node is the entity of the frame that the sample hit */
		if (sample.node == NAMES_NONE || sample.node < SAMPLED_FRAME_FIRST)
			continue;
		sample.node -= SAMPLED_FRAME_FIRST;
		if (!sampled_frame_at(sources->sampled.all, sample.node)->returns)
			html_samples_take(&sample, 1, &sources->samples);
	}
}

/* Adds the samples that count in a function on the page. */
static void write_places(struct sources *sources)
{
	GArray *all = sources->samples.all;
	guint kept = 0;

	for (guint i = 0; i < all->len; i++) {
		struct html_sample sample = g_array_index(all, struct html_sample, i);
		uint32_t place = g_array_index(sources->places, uint32_t, sample.stack);

		if (place == 0)
			continue;
		sample.stack = place - 1;
		g_array_index(all, struct html_sample, kept++) = sample;
	}
	g_array_set_size(all, kept);
	html_rows_write_places(sources->rows, &sources->samples);
}

/* ---- sources --------------------------------------------------------------------------------- */

static void free_source(gpointer pointer)
{
	struct page_source *source = pointer;

	g_byte_array_unref(source->shown);
	g_free(source);
}

/* Marks a line of a file and the lines around it as shown. Returns the index of the file. */
static uint32_t show_line(struct sources *sources, const char *path, uint32_t line)
{
	struct page_source *source = g_hash_table_lookup(sources->by_path, path);
	uint32_t end;

	if (!source) {
		source = g_new0(struct page_source, 1);
		source->number = sources->all->len;
		source->path = path;
		source->text = code_files_source(sources->files, path);
		source->shown = g_byte_array_new();
		if (source->text) {
			g_byte_array_set_size(source->shown, source->text->starts->len);
			memset(source->shown->data, 0, source->shown->len);
		}
		g_ptr_array_add(sources->all, source);
		g_hash_table_insert(sources->by_path, (gpointer)path, source);
	}
	end = line < source->shown->len && sources->bytes < MOST_BYTES
		      ? MIN_OF(line + CONTEXT + 1, source->shown->len)
		      : 0;
	for (uint32_t at = line > CONTEXT ? line - CONTEXT : 1; at < end; at++) {
		const GArray *starts = source->text->starts;

		if (!source->shown->data[at])
			sources->bytes += MIN_OF(g_array_index(starts, uint32_t, at) -
							 g_array_index(starts, uint32_t, at - 1),
						 MOST_LINE);
		source->shown->data[at] = true;
	}
	return source->number;
}

/* Writes the shown lines: [first line, texts…] for each run of consecutive lines. */
static void write_text(const struct page_source *source, struct json *json)
{
	bool is_open = false;

	json_begin_array(json, "text");
	for (uint32_t line = 1; line < source->shown->len; line++) {
		g_autofree char *text = NULL;

		if (is_open && !source->shown->data[line])
			json_end(json);
		if (!is_open && source->shown->data[line]) {
			json_begin_array(json, NULL);
			json_uint(json, NULL, line);
		}
		is_open = source->shown->data[line];
		if (is_open) {
			text = source_text_line(source->text, line);
			json_string_n(json, NULL, text, strnlen(text, MOST_LINE));
		}
	}
	if (is_open)
		json_end(json);
	json_end(json);
}

static void write_files(struct sources *sources)
{
	struct json *json = sources->rows->json;

	json_begin_array(json, "files");
	POINTER_EACH(const struct page_source, source, sources->all) {
		json_begin_object(json, NULL);
		json_string(json, "path", source->path);
		if (source->text) {
			json_bool(json, "is_newer",
				  code_files_is_newer(source->text,
						      sources->export->reader.capture));
			write_text(source, json);
		}
		json_end(json);
	}
	json_end(json);
}

/* ---- functions ------------------------------------------------------------------------------- */

static void write_lines(struct sources *sources, const struct annotate_code *code)
{
	struct json *json = sources->rows->json;

	json_begin_array(json, "lines");
	for (guint i = 0; i < code->lines->len; i++) {
		const struct annotate_place *at =
			&((const struct annotate_line *)code->lines->pdata[i])->at;

		json_begin_array(json, NULL);
		json_int(json, NULL,
			 at->file && at->line ? (int64_t)show_line(sources, at->file, at->line)
					      : -1);
		json_uint(json, NULL, at->line);
		json_string(json, NULL, at->is_inlined ? at->function : NULL);
		if (annotate_code_is_generated(code))
			json_uint(json, NULL, at->self.weight);
		json_end(json);
	}
	json_end(json);
}

static void free_numbers(gpointer numbers)
{
	g_clear_pointer(&numbers, g_array_unref);
}

/* Numbers the places of a function. Returns, for each instruction, an array of its places (NULL:
 * none). Stores in *ret_any whether there are any. An interpreter's function may have none, because
 * stacks leave it out and its samples count in its caller. */
static GPtrArray *place_samples(struct sources *sources, const struct annotate_code *code,
				bool *ret_any)
{
	GPtrArray *places = g_ptr_array_new_with_free_func(free_numbers);

	*ret_any = false;
	g_ptr_array_set_size(places, (gint)code->instructions->len);
	for (guint i = 0; i < sources->sampled.all->len; i++) {
		const struct sampled_frame *frame = sampled_frame_at(sources->sampled.all, i);
		uint32_t *place = &g_array_index(sources->places, uint32_t, i);
		guint at = frame->image == code->shown.image && !frame->returns
				   ? annotate_code_find(code, frame->offset)
				   : ANNOTATE_NOWHERE;
		uint32_t number;

		if (at == ANNOTATE_NOWHERE)
			continue;
		*ret_any = true;
		if (*place == 0)
			*place = ++sources->n_places;
		number = *place - 1;
		if (!places->pdata[at])
			places->pdata[at] = g_array_new(FALSE, FALSE, sizeof(uint32_t));
		g_array_append_val((GArray *)places->pdata[at], number);
	}
	return places;
}

static bool is_near_sample(const GPtrArray *places, guint index)
{
	for (guint i = index - MIN_OF(index, CONTEXT); i < places->len && i <= index + CONTEXT; i++)
		if (places->pdata[i])
			return true;
	return places->len <= MOST_INSTRUCTIONS;
}

/* Writes [index, address, text, line, inlined from, places…] for each shown instruction. */
static void write_instructions(struct sources *sources, const struct annotate_code *code,
			       const GPtrArray *places)
{
	struct json *json = sources->rows->json;

	json_begin_array(json, "instructions");
	for (guint i = 0; i < places->len; i++) {
		const struct annotate_instruction *at = annotate_instruction_at(code, i);
		const GArray *numbers = places->pdata[i];
		g_autofree char *address = g_strdup_printf("%" PRIx64, at->address);
		g_autofree char *from = at->callee && at->at.file
						? g_strdup_printf("%s:%" PRIu32,
								  functions_basename(at->at.file),
								  at->at.line)
						: NULL;

		if (!is_near_sample(places, i))
			continue;
		sources->bytes += at->text ? strlen(at->text) : 0;
		json_begin_array(json, NULL);
		json_uint(json, NULL, i);
		json_string(json, NULL, address);
		json_string(json, NULL, at->text);
		json_uint(json, NULL, at->line);
		json_string(json, NULL, from);
		for (guint k = 0; numbers && k < numbers->len; k++)
			json_uint(json, NULL, g_array_index(numbers, uint32_t, k));
		json_end(json);
	}
	json_end(json);
}

static bool write_function(struct sources *sources, uint32_t function, GError **error)
{
	struct json *json = sources->rows->json;
	CLEANUP(annotate_code_done)
	struct annotate_code code = { .reader = &sources->export->reader,
				      .profile = &sources->export->profile,
				      .debug_files = sources->files->debug,
				      .sampled = &sources->sampled,
				      .merges_callees = true,
				      .function = function };
	g_autoptr(GPtrArray) places = NULL;
	bool any;

	if (!annotate_code_read(&code, error))
		return false;
	places = place_samples(sources, &code, &any);
	if (!any && !code.why_no_code && !annotate_code_is_generated(&code))
		return true;
	json_begin_object(json, NULL);
	json_uint(json, "fn", html_index(&sources->rows->functions, function));
	json_string(json, "no_code", code.why_no_code);
	json_bool(json, "is_generated", annotate_code_is_generated(&code));
	write_lines(sources, &code);
	write_instructions(sources, &code, places);
	json_end(json);
	return true;
}

static gint compare_self(gconstpointer left, gconstpointer right, gpointer data)
{
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;

	return ORDER_BY(amount_compare(profile_count_at(data, a).self,
				       profile_count_at(data, b).self),
			ORDER(a, b));
}

/* Returns the functions with at least LEAST_PERCENT, hottest first. Skips the kernel's, whose code
 * is in no file, and interpreted ones, which have no instructions. */
static GArray *hottest_functions(const struct profile *profile, const struct names *names)
{
	GArray *found = g_array_new(FALSE, FALSE, sizeof(uint32_t));

	for (uint32_t i = FUNCTION_LOST + 1; i < profile->functions->all->len; i++) {
		const struct function *function = functions_at(profile->functions, i);

		if (strcmp(function->kind, "kernel") != 0 &&
		    names_image_at(names, function->image)->kind != PROF_IMAGE_INTERPRETER &&
		    amount_percent(profile_count_at(profile->counts, i).self, profile->all) >=
			    LEAST_PERCENT)
			g_array_append_val(found, i);
	}
	g_array_sort_with_data(found, compare_self, profile->counts);
	return found;
}

static bool write_functions(struct sources *sources, const GArray *functions, GError **error)
{
	guint n = 0;
	bool ok = true;

	json_begin_array(sources->rows->json, "functions");
	while (ok && n < functions->len && sources->bytes < MOST_BYTES)
		ok = write_function(sources, g_array_index(functions, uint32_t, n++), error);
	json_end(sources->rows->json);
	if (n < functions->len)
		g_ptr_array_add(
			sources->rows->notes,
			g_strdup_printf(
				_("The page has source and assembly of the %u hottest functions only (limit: %u MiB); 'profcapture annotate' shows the others."),
				n, MOST_BYTES >> 20));
	return ok;
}

bool html_sources_write(struct html_rows *rows, struct code_files *files, GError **error)
{
	struct export *export = rows->sides.each[HTML_FIRST].export;
	g_autoptr(GArray)
		functions = hottest_functions(&export->profile, export->reader.capture->names);
	g_autoptr(GArray) places = g_array_new(FALSE, TRUE, sizeof(uint32_t));
	g_autoptr(GHashTable) by_path = g_hash_table_new(NULL, NULL);
	g_autoptr(GPtrArray) all = g_ptr_array_new_with_free_func(free_source);
	struct sources sources = { .rows = rows,
				   .files = files,
				   .export = export,
				   .places = places,
				   .all = all,
				   .by_path = by_path };
	struct profile profile = { .wants_samples = true, .take = take_samples, .taker = &sources };
	bool ok;

	g_array_set_size(functions, MIN_OF(functions->len, MOST_FUNCTIONS));
	sampled_frames_init(&sources.sampled, export->profile.functions);
	html_samples_init(&sources.samples, rows->sample_unit, rows->sides.each[HTML_FIRST].to_ns);
	for (guint i = 0; i < functions->len; i++)
		sampled_frames_add_image(&sources.sampled,
					 functions_at(export->profile.functions,
						      g_array_index(functions, uint32_t, i))
						 ->image);
	json_begin_object(rows->json, "sources");
	ok = sampled_frames_count(&sources.sampled, &profile, &export->reader, error);
	if (ok) {
		html_samples_merge(&sources.samples);
		g_array_set_size(places, sources.sampled.all->len);
		ok = write_functions(&sources, functions, error);
	}
	if (ok) {
		write_files(&sources);
		write_places(&sources);
	}
	json_end(rows->json);
	profile_done(&profile);
	html_samples_done(&sources.samples);
	sampled_frames_done(&sources.sampled);
	return ok;
}
