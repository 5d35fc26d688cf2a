/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Html-sources - source lines and instructions of the hottest functions, for the page
 *
 * One pass over the samples notes at which address each was taken. Each function's instructions
 * then name the addresses whose samples count there; code that is inlined may count in two of the
 * functions. Generated code has no instructions: its lines have the sums of the whole capture.
 */
#include "config.h"

#include "tools/profcapture/html-sources.h"

#include "base/hash.h"
#include "tools/profcapture/annotate-code.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <string.h>

#define MOST_FUNCTIONS 24u
#define LEAST_PERCENT 0.1
#define MOST_BYTES (4u << 20)   /* total size of source and assembly */
#define MOST_LINE 2000u         /* bytes of a line that are shown */
#define MOST_INSTRUCTIONS 1000u /* longer functions show only instructions near samples */
#define CONTEXT 5u              /* lines or instructions shown on each side of one that counts */

/* The first entity that stands for an address. The profile reserves smaller entities. */
#define ADDRESS_FIRST 2u

struct sampled_address {
	uint64_t offset;
	uint32_t image;
	uint32_t place; /* number on the page + 1; 0: in no function on the page */
};

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
	GArray *addresses;   /* struct sampled_address */
	GHashTable *known;   /* image and offset → index in `addresses` + 1 */
	GHashTable *wanted;  /* set of the images of the functions on the page */
	GPtrArray *all;      /* struct page_source */
	GHashTable *by_path; /* path → struct page_source */
	uint32_t n_places;
	size_t bytes;
};

/* ---- addresses of samples -------------------------------------------------------------------- */

static uint64_t hash_seed; /* random: a capture must not be able to choose the buckets */

static guint hash_address(gconstpointer key)
{
	const struct sampled_address *address = key;

	return hash_fold(hash_words(address->offset ^ hash_seed, address->image));
}

static gboolean is_same_address(gconstpointer left, gconstpointer right)
{
	const struct sampled_address *a = left, *b = right;

	return a->offset == b->offset && a->image == b->image;
}

static uint32_t entity_of_address(struct names_epoch *epoch, size_t row, void *data)
{
	struct sources *sources = data;
	struct sampled_address address = { 0 };
	uint64_t image = 0, kind = PROF_FRAME_EXACT;
	gpointer at;

	(void)names_number(epoch, NAMES_FRAME, PROF_FRAME_KIND, row, &kind);
	if (kind == PROF_FRAME_RETURN ||
	    !names_number(epoch, NAMES_FRAME, PROF_FRAME_IMAGE, row, &image) ||
	    !names_number(epoch, NAMES_FRAME, PROF_FRAME_OFFSET, row, &address.offset))
		return NAMES_NONE;
	address.image = names_image(epoch, image);
	if (!g_hash_table_contains(sources->wanted, GUINT_TO_POINTER(address.image)))
		return NAMES_NONE;
	at = g_hash_table_lookup(sources->known, &address);
	if (!at) {
		g_array_append_val(sources->addresses, address);
		at = GUINT_TO_POINTER(sources->addresses->len);
		g_hash_table_insert(sources->known, g_memdup2(&address, sizeof(address)), at);
	}
	return ADDRESS_FIRST + GPOINTER_TO_UINT(at) - 1;
}

static struct sampled_address *address_at(const struct sources *sources, guint index)
{
	return &g_array_index(sources->addresses, struct sampled_address, index);
}

/* Adds the samples that count in a function on the page. */
static void write_places(struct sources *sources, const struct profile *profile)
{
	g_autoptr(GArray) each = g_array_new(FALSE, FALSE, sizeof(struct profile_sample));

	for (guint i = 0; i < profile->each->len; i++) {
		struct profile_sample sample =
			g_array_index(profile->each, struct profile_sample, i);
		uint32_t entity =
			g_array_index(profile->tree.nodes, struct profile_node, sample.node).entity;
		uint32_t place = entity >= ADDRESS_FIRST
					 ? address_at(sources, entity - ADDRESS_FIRST)->place
					 : 0;

		if (place == 0)
			continue;
		sample.node = place - 1;
		g_array_append_val(each, sample);
	}
	html_rows_write_places(sources->rows, each);
}

/* ---- sources --------------------------------------------------------------------------------- */

static void free_source(gpointer pointer)
{
	struct page_source *source = pointer;

	g_byte_array_unref(source->shown);
	g_free(source);
}

/* Marks a line of a file, and those around it, as shown. Returns the index of the file. */
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

/* Writes the shown lines: [first line, texts…] for each run of them. */
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
	for (guint i = 0; i < sources->all->len; i++) {
		const struct page_source *source = sources->all->pdata[i];

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
	if (numbers)
		g_array_unref(numbers);
}

/* Numbers the places of a function. Returns an array of places (NULL: none) by instruction. */
static GPtrArray *place_samples(struct sources *sources, const struct annotate_code *code)
{
	GPtrArray *places = g_ptr_array_new_with_free_func(free_numbers);

	g_ptr_array_set_size(places, (gint)code->instructions->len);
	for (guint i = 0; i < sources->addresses->len; i++) {
		struct sampled_address *address = address_at(sources, i);
		guint at = address->image == code->shown.image
				   ? annotate_code_find(code, address->offset)
				   : ANNOTATE_NOWHERE;
		uint32_t place;

		if (at == ANNOTATE_NOWHERE)
			continue;
		if (address->place == 0)
			address->place = ++sources->n_places;
		place = address->place - 1;
		if (!places->pdata[at])
			places->pdata[at] = g_array_new(FALSE, FALSE, sizeof(uint32_t));
		g_array_append_val((GArray *)places->pdata[at], place);
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
static void write_instructions(struct sources *sources, const struct annotate_code *code)
{
	struct json *json = sources->rows->json;
	g_autoptr(GPtrArray) places = place_samples(sources, code);

	json_begin_array(json, "instructions");
	for (guint i = 0; i < places->len; i++) {
		const struct annotate_instruction *at = annotate_instruction_at(code, i);
		const GArray *numbers = places->pdata[i];
		g_autofree char *address = g_strdup_printf("%" PRIx64, at->address);
		g_autofree char *from = at->callee && at->at.file
						? g_strdup_printf("%s:%" PRIu32,
								  annotate_base_name(at->at.file),
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
				      .merges_callees = true,
				      .function = function };

	if (!annotate_code_read(&code, error))
		return false;
	json_begin_object(json, NULL);
	json_uint(json, "fn", html_index(&sources->rows->functions, function));
	json_string(json, "no_code", code.why_no_code);
	json_bool(json, "is_generated", annotate_code_is_generated(&code));
	write_lines(sources, &code);
	write_instructions(sources, &code);
	json_end(json);
	return true;
}

static gint compare_self(gconstpointer left, gconstpointer right, gpointer data)
{
	const GArray *counts = data;
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
	int order =
		amount_compare(profile_count_at(counts, a).self, profile_count_at(counts, b).self);

	return order ? order : a < b ? -1 : a > b;
}

/* Returns the functions to show, hottest first. Skips the kernel's, whose code is in no file. */
static GArray *hottest_functions(const struct profile *profile)
{
	GArray *found = g_array_new(FALSE, FALSE, sizeof(uint32_t));

	for (uint32_t i = FUNCTION_LOST + 1; i < profile->functions->all->len; i++)
		if (strcmp(functions_at(profile->functions, i)->kind, "kernel") != 0 &&
		    amount_percent(profile_count_at(profile->counts, i).self, profile->all) >=
			    LEAST_PERCENT)
			g_array_append_val(found, i);
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
	g_autoptr(GArray) functions = hottest_functions(&export->profile);
	g_autoptr(GArray) addresses = g_array_new(FALSE, FALSE, sizeof(struct sampled_address));
	g_autoptr(GHashTable)
		known = g_hash_table_new_full(hash_address, is_same_address, g_free, NULL);
	g_autoptr(GHashTable) wanted = g_hash_table_new(NULL, NULL);
	g_autoptr(GHashTable) by_path = g_hash_table_new(NULL, NULL);
	g_autoptr(GPtrArray) all = g_ptr_array_new_with_free_func(free_source);
	struct sources sources = { rows, files, export, addresses, known, wanted, all, by_path };
	struct profile profile = { .by = PROFILE_IMAGE,
				   .place_of = entity_of_address,
				   .place_data = &sources,
				   .wants_tree = true,
				   .wants_samples = true };
	bool ok;

	hash_seed = (uint64_t)g_random_int() << 32 | g_random_int();
	g_array_set_size(functions, MIN_OF(functions->len, MOST_FUNCTIONS));
	for (guint i = 0; i < functions->len; i++)
		g_hash_table_add(wanted, GUINT_TO_POINTER(
						 functions_at(export->profile.functions,
							      g_array_index(functions, uint32_t, i))
							 ->image));
	json_begin_object(rows->json, "sources");
	ok = profile_run(&profile, &export->reader, error) &&
	     write_functions(&sources, functions, error);
	if (ok) {
		write_files(&sources);
		write_places(&sources, &profile);
	}
	json_end(rows->json);
	profile_done(&profile);
	return ok;
}
