/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Export-speedscope - a profile for each thread, in speedscope's file format (its
 * file-format-schema.json)
 *
 * Up to MAX_IN_ORDER samples are written in time order: speedscope holds all frames of each in
 * memory. Beyond that, each stack occurs once, with the weight of all of its samples; so does each
 * stack of allocations.
 */
#include "config.h"

#include "tools/profcapture/export.h"

#include <inttypes.h>

#define MAX_IN_ORDER 50000

static void write_frames(const struct export *export, struct json *json)
{
	const struct functions *functions = export->tally.functions;

	json_begin_object(json, "shared");
	json_begin_array(json, "frames");
	for (guint i = 0; i < functions->all->len; i++) {
		const struct function *function = functions_at(functions, i);
		const char *file = function->file ? function->file : functions_image(functions, i);

		json_begin_object(json, NULL);
		json_string(json, "name", function->name);
		if (file)
			json_string(json, "file", file);
		if (function->file && function->line)
			json_uint(json, "line", function->line);
		json_end(json);
	}
	json_end(json);
	json_end(json);
}

static void write_stack(const struct export *export, struct json *json, uint32_t node, GArray *path)
{
	export_path(export, node, path);
	json_begin_array(json, NULL);
	for (guint i = 0; i < path->len; i++)
		json_uint(json, NULL, g_array_index(path, uint32_t, i));
	json_end(json);
}

static bool are_bytes(const struct export *export)
{
	return export->value == EXPORT_ALLOC_SPACE || export->value == EXPORT_INUSE_SPACE;
}

/* `stacks`: those of the thread, in the displayed order; NULL: none. */
static void write_thread(const struct export *export, struct json *json, uint32_t thread,
			 const GArray *stacks, GArray *path)
{
	const struct names *names = export->reader.capture->names;
	const struct names_thread *at = names_thread_at(names, thread);
	bool is_weighted = export->value == EXPORT_SAMPLES && tally_is_weighted(&export->tally);
	bool is_time = export->value == EXPORT_SAMPLES && export_is_time(export);
	uint64_t sum = 0;
	/* The format has no unit for events. */
	g_autofree char *name = g_strdup_printf(
		"%s (%" PRIu64 "/%" PRIu64 ")%s%s", export_thread_name(export, thread),
		names_process_at(names, at->process)->pid, at->tid,
		is_weighted && !is_time ? " " : "",
		is_weighted && !is_time ? tally_event_name(&export->tally) : "");

	json_begin_object(json, NULL);
	json_string(json, "type", "sampled");
	json_string(json, "name", name);
	json_string(json, "unit", is_time ? "nanoseconds" : are_bytes(export) ? "bytes" : "none");
	json_uint(json, "startValue", 0);
	json_begin_array(json, "samples");
	for (guint i = 0; stacks && i < stacks->len; i++)
		write_stack(export, json, g_array_index(stacks, struct export_stack, i).node, path);
	json_end(json);
	json_begin_array(json, "weights");
	for (guint i = 0; stacks && i < stacks->len; i++) {
		struct amount amount = g_array_index(stacks, struct export_stack, i).amount;
		uint64_t weight = is_time ? amount.weight : export_value_of(export, amount);

		json_uint(json, NULL, weight);
		sum += weight;
	}
	json_end(json);
	json_uint(json, "endValue", sum);
	json_end(json);
}

static GArray *in_order(const struct export *export)
{
	const GArray *each = export->tally.each;
	GArray *stacks = g_array_new(FALSE, FALSE, sizeof(struct export_stack));

	for (guint i = 0; i < each->len; i++) {
		const struct tally_sample *sample = &g_array_index(each, struct tally_sample, i);
		struct export_stack stack = { .thread = sample->thread,
					      .node = sample->node,
					      .amount = { 1, sample->weight } };

		g_array_append_val(stacks, stack);
	}
	return stacks;
}

/* Returns the stacks of each thread, in their order. */
static GPtrArray *by_thread(const struct export *export, const GArray *stacks)
{
	GPtrArray *threads = g_ptr_array_new();

	g_ptr_array_set_size(threads, (gint) export->reader.capture->names->threads->len);
	for (guint i = 0; i < stacks->len; i++) {
		const struct export_stack *stack = &g_array_index(stacks, struct export_stack, i);
		GArray **mine = (GArray **)&threads->pdata[stack->thread];

		if (!*mine)
			*mine = g_array_new(FALSE, FALSE, sizeof(struct export_stack));
		g_array_append_vals(*mine, stack, 1);
	}
	return threads;
}

bool export_speedscope(struct export *export, struct out *out, GError **error)
{
	bool ordered = export->value == EXPORT_SAMPLES && export->tally.each->len <= MAX_IN_ORDER;
	g_autoptr(GArray) stacks = ordered ? in_order(export) : export_stacks(export);
	g_autoptr(GPtrArray) of_thread = by_thread(export, stacks);
	g_autoptr(GArray) threads = export_threads(export);
	g_autoptr(GArray) path = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	g_autofree char *title = export_title(export);
	struct json json;

	json_init(&json, out);
	json_begin_object(&json, NULL);
	json_string(&json, "$schema", "https://www.speedscope.app/file-format-schema.json");
	json_string(&json, "exporter", "profcapture " PROF_VERSION);
	json_string(&json, "name", title);
	json_uint(&json, "activeProfileIndex", 0);
	write_frames(export, &json);
	json_begin_array(&json, "profiles");
	for (guint i = 0; i < threads->len; i++) {
		uint32_t thread = g_array_index(threads, uint32_t, i);

		write_thread(export, &json, thread, of_thread->pdata[thread], path);
		g_array_unref(of_thread->pdata[thread]);
	}
	/* speedscope rejects a file without a profile */
	if (threads->len == 0)
		write_thread(export, &json, NAMES_NONE, NULL, path);
	json_end(&json);
	json_end(&json);
	json_done(&json);
	return true;
}
