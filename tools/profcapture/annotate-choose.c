/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Annotate-choose - finds the function that a user names, or lists those that the name may mean
 */
#include "config.h"

#include "base/order.h"
#include "tools/profcapture/annotate-code.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <string.h>

#define MAX_CANDIDATES 20

/* Returns whether `text` is "image+0xOFFSET" of an address in the function. */
static bool is_place_in(const struct annotate_code *code, const struct function *function,
			const char *text)
{
	const char *plus = strstr(text, "+0x");
	const char *path = names_image_at(code->reader->capture->names, function->image)->path;
	g_autofree char *image = plus ? g_strndup(text, (gsize)(plus - text)) : NULL;
	char *end;
	uint64_t offset;

	if (!plus || !path || strcmp(image, functions_basename(path)) != 0 || function->is_inlined)
		return false;
	offset = g_ascii_strtoull(plus + 3, &end, 16);
	return end != plus + 3 && !*end && offset >= function->offset &&
	       offset < annotate_code_end(code, function);
}

/* Returns whether the function has samples and belongs to the chosen image. */
static bool is_choosable(const struct annotate_code *code, uint32_t index)
{
	const char *path = functions_image(code->profile->functions, index);

	return profile_count_at(code->profile->counts, index).total.samples > 0 &&
	       (!code->image || (path && (strcmp(path, code->image) == 0 ||
					  strcmp(functions_basename(path), code->image) == 0)));
}

static gint compare_hits(gconstpointer left, gconstpointer right, gpointer data)
{
	const struct annotate_code *code = data;
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
	struct profile_count x = profile_count_at(code->profile->counts, a);
	struct profile_count y = profile_count_at(code->profile->counts, b);

	return ORDER_BY(amount_compare(x.self, y.self), amount_compare(x.total, y.total),
			ORDER(a, b));
}

/* Returns the functions that match `text` best: by whole name, by name without parameters, or by
 * last component. Among equally good matches, functions with out-of-line code hide functions that
 * are only inlined. */
static GArray *find_called(const struct annotate_code *code, const char *text)
{
	enum function_name_match best = FUNCTION_NAME_COMPONENT;
	GArray *found = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	bool has_own = false;

	for (uint32_t i = FUNCTION_LOST + 1; i < code->profile->functions->all->len; i++) {
		const struct function *at = functions_at(code->profile->functions, i);
		enum function_name_match how =
			!is_choosable(code, i) ? FUNCTION_NAME_DIFFERS
			: is_place_in(code, at, text)
				? FUNCTION_NAME_WHOLE
				: function_name_match(at->name, at->raw_name, text);

		if (how < best || (how == best && has_own && at->is_inlined))
			continue;
		if (how > best || (!at->is_inlined && !has_own))
			g_array_set_size(found, 0);
		has_own = !at->is_inlined;
		best = how;
		g_array_append_val(found, i);
	}
	return found;
}

static void list_candidates(struct annotate_code *code, GArray *found)
{
	code->candidates = g_string_new(NULL);
	g_array_sort_with_data(found, compare_hits, code);
	for (guint i = 0; i < found->len && i < MAX_CANDIDATES; i++) {
		uint32_t index = g_array_index(found, uint32_t, i);
		const struct function *function = functions_at(code->profile->functions, index);
		const char *path = functions_image(code->profile->functions, index);
		g_autofree char *name = function_name_simplify(function->name, function->raw_name);
		g_autoptr(GString) line = g_string_new(NULL);
		g_autofree char *escaped = NULL;

		g_string_printf(line, "  %10" PRIu64 "  ",
				profile_count_at(code->profile->counts, index).self.samples);
		if (!function->is_inlined && strcmp(function->kind, "unresolved") != 0)
			g_string_append_printf(line, "%s+0x%" PRIx64 "  ",
					       path ? functions_basename(path) : "-",
					       function->offset);
		g_string_append_printf(line, "%s  [%s]", name, path ? path : "-");
		escaped = text_escape(line->str);
		g_string_append_printf(code->candidates, "%s\n", escaped);
	}
}

static bool refuse_none(struct annotate_code *code, const char *text, GError **error)
{
	g_autoptr(GArray) similar = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	g_autoptr(GPtrArray) names = g_ptr_array_new();
	g_autofree char *part = g_utf8_casefold(text, -1);
	const char *file = code->reader->capture->file;
	const char *meant;
	bool lacks_names;

	for (uint32_t i = FUNCTION_LOST + 1; i < code->profile->functions->all->len; i++) {
		const char *name = functions_at(code->profile->functions, i)->name;
		g_autofree char *folded = g_utf8_casefold(name, -1);

		if (!is_choosable(code, i))
			continue;
		g_ptr_array_add(names, (gpointer)name);
		if (*part && strstr(folded, part))
			g_array_append_val(similar, i);
	}
	g_ptr_array_add(names, NULL);
	meant = cli_suggest(text, (const char *const *)names->pdata);
	lacks_names = code->profile->unresolved > 0 &&
		      !functions_have_names(code->profile->functions);
	if (!lacks_names && similar->len > 0)
		list_candidates(code, similar);
	code->has_hint = lacks_names || similar->len > 0 || meant;
	if (code->profile->all.samples == 0)
		return cli_set_error(
			error, CLI_USAGE,
			_("there are no samples in capture '%s', or none that pass the filters"),
			file);
	if (lacks_names)
		return cli_set_error(error, CLI_USAGE,
				     _("no function named '%s' in %s. Names are missing. Add them: "
				       "profcapture symbolize %s"),
				     text, file, file);
	if (similar->len > 0)
		return cli_set_error(
			error, CLI_USAGE,
			_("no function named '%s' in %s. Did you mean one of these (samples)?"),
			text, file);
	if (meant)
		return cli_set_error(error, CLI_USAGE,
				     _("no function named '%s' in %s. Did you mean '%s'?"), text,
				     file, meant);
	if (code->image)
		return cli_set_error(error, CLI_USAGE,
				     _("no function named '%s' of image '%s' in %s"), text,
				     code->image, file);
	return cli_set_error(error, CLI_USAGE, _("no function named '%s' in %s"), text, file);
}

/* Sets an error that lists the functions by name or, if some names are equal, by place. */
static bool refuse_several(struct annotate_code *code, const char *text, GArray *found,
			   GError **error)
{
	const struct functions *functions = code->profile->functions;
	g_autoptr(GHashTable) names = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
	g_autoptr(GString) list = g_string_new(NULL);

	code->has_hint = true;
	g_array_sort_with_data(found, compare_hits, code);
	for (guint i = 0; i < found->len; i++) {
		uint32_t index = g_array_index(found, uint32_t, i);
		const struct function *function = functions_at(functions, index);
		char *name = function_name_simplify(function->name, function->raw_name);

		g_string_append_printf(
			list, "%s%s (%" PRIu64 ")", i > 0 ? ", " : "", name,
			profile_count_at(code->profile->counts, index).total.samples);
		g_hash_table_add(names, name);
	}
	if (g_hash_table_size(names) == found->len)
		return cli_set_error(error, CLI_USAGE,
				     _("'%s' matches %u functions (samples); name one: %s"), text,
				     found->len, list->str);
	list_candidates(code, found);
	return cli_set_error(
		error, CLI_USAGE,
		_("'%s' matches %u functions (samples); name one by its place, or with "
		  "--image:"),
		text, found->len);
}

bool annotate_code_choose(struct annotate_code *code, const char *text, GError **error)
{
	g_autoptr(GArray) found = find_called(code, text);

	if (found->len == 0)
		return refuse_none(code, text, error);
	if (found->len > 1)
		return refuse_several(code, text, found, error);
	code->function = g_array_index(found, uint32_t, 0);
	return true;
}
