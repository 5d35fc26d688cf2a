/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Options-json - turns a session's options into the JSON text in its capture
 *
 * Invariant: the text is valid JSON, whatever strings the options contain
 * [test-options-json: strings]
 */
#include "daemon/broker/options-json.h"

#include <stdbool.h>
#include <string.h>

static void add_string(GString *json, const char *text)
{
	g_string_append_c(json, '"');
	for (; *text; text++) {
		if ((guchar)*text < ' ')
			g_string_append_printf(json, "\\u%04x", (guint)*text);
		else if (*text == '"' || *text == '\\')
			g_string_append_printf(json, "\\%c", *text);
		else
			g_string_append_c(json, *text);
	}
	g_string_append_c(json, '"');
}

static bool add_value(GString *json, GVariant *value);

static bool add_array(GString *json, GVariant *value)
{
	g_string_append_c(json, '[');
	for (gsize i = 0; i < g_variant_n_children(value); i++) {
		g_autoptr(GVariant) item = g_variant_get_child_value(value, i);

		g_string_append(json, i ? "," : "");
		if (!add_value(json, item))
			return false;
	}
	g_string_append_c(json, ']');
	return true;
}

static bool add_value(GString *json, GVariant *value)
{
	switch (g_variant_classify(value)) {
	case G_VARIANT_CLASS_BOOLEAN:
		g_string_append(json, g_variant_get_boolean(value) ? "true" : "false");
		return true;
	case G_VARIANT_CLASS_UINT32:
		g_string_append_printf(json, "%u", g_variant_get_uint32(value));
		return true;
	case G_VARIANT_CLASS_UINT64:
		g_string_append_printf(json, "%" G_GUINT64_FORMAT, g_variant_get_uint64(value));
		return true;
	case G_VARIANT_CLASS_STRING:
		add_string(json, g_variant_get_string(value, NULL));
		return true;
	case G_VARIANT_CLASS_ARRAY:
		return add_array(json, value);
	default:
		return false;
	}
}

static gint compare_members(gconstpointer left, gconstpointer right)
{
	return strcmp(*(const char *const *)left, *(const char *const *)right);
}

char *options_to_json(GVariant *options)
{
	g_autoptr(GPtrArray) members = g_ptr_array_new_with_free_func(g_free);
	g_autofree char *joined = NULL;
	GVariantIter iter;
	const char *key;
	GVariant *value;

	g_variant_iter_init(&iter, options);
	while (g_variant_iter_loop(&iter, "{&sv}", &key, &value)) {
		GString *member = g_string_new(NULL);

		add_string(member, key);
		g_string_append_c(member, ':');
		if (add_value(member, value))
			g_ptr_array_add(members, g_string_free(member, FALSE));
		else
			g_string_free(member, TRUE);
	}
	g_ptr_array_sort(members, compare_members);
	g_ptr_array_add(members, NULL);
	joined = g_strjoinv(",", (char **)members->pdata);
	return g_strdup_printf("{%s}", joined);
}
