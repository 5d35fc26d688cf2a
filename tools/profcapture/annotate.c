/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profcapture annotate - where in a function the time went, by source line and by instruction
 *
 * The function is chosen among those with samples: by its name, or by "image+0xOFFSET" of any place
 * in it, which distinguishes functions of the same name.
 */
#include "config.h"

#include "tools/profcapture/annotate.h"

#include "tools/common/capture-error.h"
#include "tools/profcapture/verbs.h"

#include <errno.h>
#include <glib/gi18n.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_CANDIDATES 20
#define DEFAULT_LIMIT 200 /* longer lists show only what is near a sample */
#define MAX_CODE_BYTES (4u << 20)

const char *const annotate_by_names[] = { "both", "line", "instruction", NULL };

static const struct cli_option options[] = {
	{ "by", 0, CLI_CHOICE, offsetof(struct annotate, by), N_("WHAT"),
	  N_("Show source lines, instructions or both (default: both; lines in csv and ndjson)"),
	  annotate_by_names },
	{ "total", 0, CLI_FLAG, offsetof(struct annotate, wants_total), NULL,
	  N_("Add the time of the functions that a line called") },
	{ "image", 0, CLI_STRING, offsetof(struct annotate, image), N_("PATH"),
	  N_("Use the function of this image, a path or a file name") },
	{ "source-dir", 0, CLI_LIST, offsetof(struct annotate, source_folders), N_("DIRECTORY"),
	  N_("Look for source files here, too; repeatable") },
	{ "sysroot", 0, CLI_STRING, offsetof(struct annotate, sysroot), N_("DIRECTORY"),
	  N_("Root folder of the recorded machine") },
	{ "debug-dir", 0, CLI_LIST, offsetof(struct annotate, debug_folders), N_("DIRECTORY"),
	  N_("Look for debug files here, too; repeatable") },
	{ NULL },
};

/* ---- which function -------------------------------------------------------------------------- */

static const char *base_of(const char *path)
{
	const char *slash = path ? strrchr(path, '/') : NULL;

	return slash ? slash + 1 : path;
}

static bool is_image(const struct annotate *annotate, uint32_t function)
{
	const char *path = functions_image(annotate->tally.functions, function);

	return !annotate->image || (path && (strcmp(path, annotate->image) == 0 ||
					     strcmp(base_of(path), annotate->image) == 0));
}

/* Returns the end, as far as it is known: a symbol without a length extends to the next one. */
static uint64_t end_of(const struct annotate *annotate, const struct function *function)
{
	const struct symbol_rows *rows = annotate->tally.functions->symbols;
	const struct symbol_row *symbol = symbol_rows_find(rows, function->image, function->offset);
	uint64_t length = 1, beyond = MAX_CODE_BYTES;

	if (function->length)
		return function->offset + MIN_OF(function->length, beyond);
	if (!symbol || symbol->start != function->offset)
		return function->offset + 1;
	if (symbol->length)
		return function->offset + MIN_OF(symbol->length, beyond);
	while (beyond - length > 1) {
		uint64_t middle = length + (beyond - length) / 2;

		if (symbol_rows_find(rows, function->image, function->offset + middle) == symbol)
			length = middle;
		else
			beyond = middle;
	}
	return function->offset + beyond;
}

/* Returns whether `text` is "image+0xOFFSET" of a place in the function. */
static bool is_place_in(const struct annotate *annotate, const struct function *function,
			const char *text)
{
	const char *plus = strstr(text, "+0x");
	const char *path = names_image_at(annotate->reader.capture->names, function->image)->path;
	g_autofree char *image = plus ? g_strndup(text, (gsize)(plus - text)) : NULL;
	char *end;
	uint64_t offset;

	if (!plus || !path || strcmp(image, base_of(path)) != 0 || function->is_inlined)
		return false;
	offset = g_ascii_strtoull(plus + 3, &end, 16);
	return end != plus + 3 && !*end && offset >= function->offset &&
	       offset < end_of(annotate, function);
}

static enum function_name_match match(const struct annotate *annotate, uint32_t index,
				      const char *text)
{
	const struct function *function = functions_at(annotate->tally.functions, index);

	if (!is_image(annotate, index))
		return FUNCTION_NAME_DIFFERS;
	return is_place_in(annotate, function, text)
		       ? FUNCTION_NAME_WHOLE
		       : function_name_match(function->name, function->raw_name, text);
}

static bool is_called(const struct annotate *annotate, uint32_t index, const char *text)
{
	return match(annotate, index, text) == FUNCTION_NAME_WHOLE;
}

static bool is_called_without_parameters(const struct annotate *annotate, uint32_t index,
					 const char *text)
{
	return match(annotate, index, text) == FUNCTION_NAME_PLAIN;
}

static bool is_last_component(const struct annotate *annotate, uint32_t index, const char *text)
{
	return match(annotate, index, text) == FUNCTION_NAME_COMPONENT;
}

static bool was_hit(const struct annotate *annotate, uint32_t index)
{
	return tally_count_at(annotate->tally.counts, index).total.samples > 0;
}

static gint compare_hits(gconstpointer left, gconstpointer right, gpointer data)
{
	const struct annotate *annotate = data;
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
	struct tally_count x = tally_count_at(annotate->tally.counts, a);
	struct tally_count y = tally_count_at(annotate->tally.counts, b);
	int order = amount_compare(x.self, y.self);

	if (order == 0)
		order = amount_compare(x.total, y.total);
	return order ? order : a < b ? -1 : a > b;
}

/* Returns the functions with samples that `is_one` accepts, those with the most samples first. */
static GArray *find(const struct annotate *annotate, const char *text,
		    bool (*is_one)(const struct annotate *annotate, uint32_t index,
				   const char *text))
{
	GArray *found = g_array_new(FALSE, FALSE, sizeof(uint32_t));

	for (uint32_t i = FUNCTION_LOST + 1; i < annotate->tally.functions->all->len; i++)
		if (was_hit(annotate, i) && is_one(annotate, i, text))
			g_array_append_val(found, i);
	g_array_sort_with_data(found, compare_hits, (gpointer)annotate);
	return found;
}

static void add_candidate(struct annotate *annotate, uint32_t index)
{
	g_autoptr(GString) to = g_string_new(NULL);
	const struct function *function = functions_at(annotate->tally.functions, index);
	const char *path = functions_image(annotate->tally.functions, index);

	g_string_append_printf(to, "  %10" PRIu64 "  ",
			       tally_count_at(annotate->tally.counts, index).self.samples);
	if (function->is_inlined || strcmp(function->kind, "unresolved") == 0)
		g_string_append(to, function->name);
	else
		g_string_append_printf(to, "%s+0x%" PRIx64 "  %s", path ? base_of(path) : "-",
				       function->offset, function->name);
	g_string_append_printf(to, "  [%s]", path ? path : "-");
	g_ptr_array_add(annotate->candidates, g_string_free(g_steal_pointer(&to), FALSE));
}

static void add_candidates(struct annotate *annotate, const GArray *found)
{
	for (guint i = 0; i < found->len && i < MAX_CANDIDATES; i++)
		add_candidate(annotate, g_array_index(found, uint32_t, i));
}

static bool refuse_many(struct annotate *annotate, const GArray *found, const char *text,
			GError **error)
{
	add_candidates(annotate, found);
	g_set_error(error, CLI_ERROR, CLI_USAGE,
		    _("%u functions are called '%s'; choose one by its place, or with --image"),
		    found->len, text);
	return false;
}

static bool has_part(const struct annotate *annotate, uint32_t index, const char *text)
{
	g_autofree char *name =
		g_utf8_casefold(functions_at(annotate->tally.functions, index)->name, -1);
	g_autofree char *part = g_utf8_casefold(text, -1);

	return is_image(annotate, index) && *part && strstr(name, part);
}

/* Returns the name of a function that `text` may misspell, or NULL. */
static const char *suggest(const struct annotate *annotate, const char *text)
{
	g_autoptr(GPtrArray) names = g_ptr_array_new();

	for (uint32_t i = FUNCTION_LOST + 1; i < annotate->tally.functions->all->len; i++)
		if (was_hit(annotate, i) && is_image(annotate, i))
			g_ptr_array_add(names,
					(gpointer)functions_at(annotate->tally.functions, i)->name);
	g_ptr_array_add(names, NULL);
	return cli_suggest(text, (const char *const *)names->pdata);
}

static bool refuse_none(struct annotate *annotate, const char *text, GError **error)
{
	g_autoptr(GArray) similar = find(annotate, text, has_part);
	const char *meant = suggest(annotate, text);

	add_candidates(annotate, similar);
	if (annotate->tally.all.samples == 0)
		g_set_error(
			error, CLI_ERROR, CLI_USAGE,
			_("there are no samples in capture '%s', or none that pass the filters"),
			annotate->reader.capture->file);
	else if (similar->len > 0)
		g_set_error(error, CLI_ERROR, CLI_USAGE,
			    _("no sample has function '%s'; did you mean one of these?"), text);
	else if (meant)
		g_set_error(error, CLI_ERROR, CLI_USAGE,
			    _("no sample has function '%s'; did you mean '%s'?"), text, meant);
	else if (annotate->image)
		g_set_error(error, CLI_ERROR, CLI_USAGE,
			    _("no sample has function '%s' of an image '%s'; 'profcapture report' "
			      "lists what there is"),
			    text, annotate->image);
	else
		g_set_error(error, CLI_ERROR, CLI_USAGE,
			    _("no sample has function '%s'; 'profcapture report' lists those that "
			      "there are"),
			    text);
	return false;
}

/* An inlined function has no code of its own: lists the functions that contain it. */
static bool refuse_inlined(struct annotate *annotate, const char *text, GError **error)
{
	struct tally around = { .inlined = true,
				.focus = annotate_function(annotate)->name,
				.mode = annotate->tally.mode };
	bool ok = tally_run(&around, &annotate->reader, error);

	for (uint32_t i = FUNCTION_LOST + 1; ok && i < around.callers->len; i++) {
		const struct function *caller = functions_at(around.functions, i);
		uint64_t total = tally_count_at(around.callers, i).total.samples;

		if (total > 0)
			g_ptr_array_add(annotate->candidates, g_strdup_printf("  %10" PRIu64 "  %s",
									      total, caller->name));
	}
	tally_done(&around);
	if (ok)
		g_set_error(error, CLI_ERROR, CLI_USAGE,
			    _("'%s' has no code of its own: it is inlined into these, where its "
			      "lines are marked"),
			    text);
	return false;
}

/* Returns the functions named `text`: by the whole name, else without parameters, else by the last
 * component. */
static GArray *find_called(const struct annotate *annotate, const char *text)
{
	GArray *found = find(annotate, text, is_called);

	if (found->len == 0) {
		g_array_unref(found);
		found = find(annotate, text, is_called_without_parameters);
	}
	if (found->len == 0) {
		g_array_unref(found);
		found = find(annotate, text, is_last_component);
	}
	return found;
}

static bool choose(struct annotate *annotate, const char *text, GError **error)
{
	g_autoptr(GArray) found = find_called(annotate, text);
	g_autoptr(GArray) own = g_array_new(FALSE, FALSE, sizeof(uint32_t));

	for (guint i = 0; i < found->len; i++) {
		uint32_t index = g_array_index(found, uint32_t, i);

		if (!functions_at(annotate->tally.functions, index)->is_inlined)
			g_array_append_val(own, index);
	}
	if (own->len > 1)
		return refuse_many(annotate, own, text, error);
	if (found->len == 0)
		return refuse_none(annotate, text, error);
	annotate->function = g_array_index(own->len ? own : found, uint32_t, 0);
	if (own->len == 0)
		return refuse_inlined(annotate, text, error);
	annotate->start = annotate_function(annotate)->offset;
	annotate->end = end_of(annotate, annotate_function(annotate));
	return true;
}

/* Prints the candidates on stderr, below the message. Escapes them, because names are untrusted. */
static int fail(const struct annotate *annotate, GError *error)
{
	int status = cli_fail(error);

	for (guint i = 0; i < annotate->candidates->len; i++) {
		g_autofree char *line = text_escape(annotate->candidates->pdata[i]);

		fprintf(stderr, "%s\n", line);
	}
	return status;
}

/* ---- the verb -------------------------------------------------------------------------------- */

static bool open_folders(struct annotate *annotate, GError **error)
{
	const char *const *folders = NULL;

	if (annotate->debug_folders) {
		g_ptr_array_add(annotate->debug_folders, NULL);
		folders = (const char *const *)annotate->debug_folders->pdata;
	}
	annotate->debug_files = debug_files_new(annotate->sysroot, folders);
	return annotate->debug_files ||
	       capture_error(error, -errno, _("cannot open the folder '%s'"), annotate->sysroot);
}

static bool run(struct annotate *annotate, const char *file, const char *function, GError **error)
{
	annotate->tally.inlined = true;
	annotate->candidates = g_ptr_array_new_with_free_func(g_free);
	return open_folders(annotate, error) && reader_open(&annotate->reader, file, error) &&
	       tally_run(&annotate->tally, &annotate->reader, error) &&
	       choose(annotate, function, error) && annotate_read_code(annotate, error);
}

static void annotate_done(struct annotate *annotate)
{
	annotate_code_done(annotate);
	tally_done(&annotate->tally);
	reader_done(&annotate->reader);
	debug_files_free(annotate->debug_files);
	if (annotate->candidates)
		g_ptr_array_unref(annotate->candidates);
	if (annotate->debug_folders)
		g_ptr_array_unref(annotate->debug_folders);
	if (annotate->source_folders)
		g_ptr_array_unref(annotate->source_folders);
}

int verb_annotate(int argc, char **argv)
{
	static const struct cli_spec spec = {
		N_("FILE FUNCTION"),
		N_("Show the hot source lines and instructions of a function. FUNCTION is its name, or an address in it: image+0xOFFSET."),
		2, 2
	};
	CLEANUP(annotate_done)
	struct annotate annotate = { .reader.limit = READER_LIMIT_UNSET,
				     .reader.text_limit = DEFAULT_LIMIT };
	const struct cli_group groups[] = { { NULL, options, &annotate },
					    { N_("Select"), reader_time_options, &annotate.reader },
					    { NULL, reader_process_options, &annotate.reader },
					    { NULL, reader_thread_options, &annotate.reader },
					    { NULL, reader_cpu_options, &annotate.reader },
					    { NULL, reader_event_options, &annotate.reader },
					    { N_("Output"), reader_output_options,
					      &annotate.reader },
					    { NULL, reader_pager_options, &annotate.reader },
					    { NULL } };
	GError *error = NULL;
	int status = cli_parse(&spec, groups, &argc, &argv);

	if (status != CLI_CONTINUE)
		return status;
	if (!run(&annotate, argv[0], argv[1], &error))
		return fail(&annotate, error);
	capture_warn(annotate.reader.capture);
	reader_page(&annotate.reader);
	annotate_show(&annotate, out_stdout());
	return CLI_OK;
}
