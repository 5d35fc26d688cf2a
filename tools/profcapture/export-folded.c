/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Export-folded - "comm;outermost;…;innermost count", a line for each stack of threads of one name
 *
 * The format of flamegraph.pl and inferno (stackcollapse-perf's): no ';' and no line break in a
 * name, the count last. The count is samples of a clock, or the weight of another event's samples.
 */
#include "config.h"

#include "tools/profcapture/export.h"

#include <inttypes.h>
#include <string.h>

static void append_name(GString *line, const char *name)
{
	g_autofree char *escaped = text_escape_utf8(name, strlen(name));

	g_string_append(line, g_strdelimit(escaped, ";", ':'));
}

/* Merges threads of the same name, and functions that are spelled alike, into one line. */
static GHashTable *collapse(const struct export *export)
{
	GHashTable *counts = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
	g_autoptr(GArray) stacks = export_stacks(export);
	g_autoptr(GArray) path = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	g_autoptr(GString) line = g_string_new(NULL);

	for (guint i = 0; i < stacks->len; i++) {
		const struct export_stack *stack = &g_array_index(stacks, struct export_stack, i);
		uint64_t *count;

		g_string_truncate(line, 0);
		append_name(line, stack->name);
		export_path(export, stack->node, path);
		for (guint k = 0; k < path->len; k++) {
			g_string_append_c(line, ';');
			append_name(line, functions_at(export->profile.functions,
						       g_array_index(path, uint32_t, k))
						  ->name);
		}
		count = g_hash_table_lookup(counts, line->str);
		if (!count) {
			count = g_new0(uint64_t, 1);
			g_hash_table_insert(counts, g_strdup(line->str), count);
		}
		*count += export_value_of(export, stack->amount);
	}
	return counts;
}

bool export_folded(struct export *export, struct out *out, GError **error)
{
	g_autoptr(GHashTable) counts = collapse(export);
	g_autoptr(GList)
		lines = g_list_sort(g_hash_table_get_keys(counts), (GCompareFunc)(void *)strcmp);

	for (const GList *line = lines; line; line = line->next) {
		const uint64_t *count = g_hash_table_lookup(counts, line->data);

		out_printf(out, "%s %" PRIu64 "\n", (const char *)line->data, *count);
	}
	return true;
}
