/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Export-speedscope - a profile for each thread, in speedscope's file format (its
 * file-format-schema.json)
 *
 * A comparison has the threads of both captures, the earlier first. Values are not scaled.
 *
 * Up to MAX_IN_ORDER samples are written in time order. If there are more, each stack is written
 * once, with the weight of all of its samples, because speedscope keeps all frames of each sample
 * in memory. Each stack of allocations is written once, too.
 */
#include "config.h"

#include "tools/profcapture/export.h"

#include <inttypes.h>

#define MAX_IN_ORDER 50000

static void write_frames(const struct export *export, struct json *json)
{
	const struct functions *functions = export->profile.functions;

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
}

/* Writes a thread's stacks in their order, and returns the sum of their weights. `side`: prefix of
 * the thread's name. `first`: index of the first frame that write_frames() wrote for the export. */
static uint64_t write_thread(const struct export *export, struct json *json, uint32_t thread,
			     const GArray *all, const char *side, guint first)
{
	g_autoptr(GArray) path = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	const struct names *names = export->reader.capture->names;
	const struct names_thread *at = names_thread_at(names, thread);
	bool is_weighted = export->value == EXPORT_SAMPLES && profile_is_weighted(&export->profile);
	bool is_time = export->value == EXPORT_SAMPLES && export_is_time(export);
	bool is_bytes = export->value == EXPORT_ALLOC_SPACE || export->value == EXPORT_INUSE_SPACE;
	uint64_t sum = 0;
	size_t n;
	const struct export_stack *stacks = export_of_thread(all, thread, &n);
	/* The format has no unit for events and no kinds of time, so the name says what is
	 * counted. */
	bool is_named = export->value == EXPORT_SAMPLES &&
			(export_counts_waits(export) || (is_weighted && !is_time));
	g_autofree char *name = g_strdup_printf("%s%s (%" PRIu64 "/%" PRIu64 ")%s%s", side,
						export_thread_name(export, thread),
						names_process_at(names, at->process)->pid, at->tid,
						is_named ? " " : "",
						is_named ? export_weight_name(export) : "");

	json_begin_object(json, NULL);
	json_string(json, "type", "sampled");
	json_string(json, "name", name);
	json_string(json, "unit", is_time ? "nanoseconds" : is_bytes ? "bytes" : "none");
	json_uint(json, "startValue", 0);
	json_begin_array(json, "samples");
	for (size_t i = 0; i < n; i++) {
		export_path(export, stacks[i].node, path);
		json_begin_array(json, NULL);
		for (guint k = 0; k < path->len; k++)
			json_uint(json, NULL, first + g_array_index(path, uint32_t, k));
		json_end(json);
	}
	json_end(json);
	json_begin_array(json, "weights");
	for (size_t i = 0; i < n; i++) {
		uint64_t weight = is_time ? stacks[i].amount.weight
					  : export_value_of(export, stacks[i].amount);

		json_uint(json, NULL, weight);
		sum += weight;
	}
	json_end(json);
	json_uint(json, "endValue", sum);
	json_end(json);
	return sum;
}

/* Writes the threads. Returns the index of the thread with the largest weight. */
static guint write_threads(const struct export *export, struct json *json, const char *side,
			   guint first)
{
	bool ordered = export->value == EXPORT_SAMPLES && export->profile.each->len <= MAX_IN_ORDER;
	g_autoptr(GArray) stacks = ordered ? export_samples(&export->profile)
					   : export_stacks(export);
	g_autoptr(GArray) threads = export_threads(export, stacks);
	static const uint32_t none = NAMES_NONE;
	uint64_t most = 0;
	guint heaviest = 0;

	/* speedscope rejects a file without a profile */
	if (threads->len == 0)
		g_array_append_val(threads, none);
	for (guint i = 0; i < threads->len; i++) {
		uint64_t sum = write_thread(export, json, g_array_index(threads, uint32_t, i),
					    stacks, side, first);

		if (sum > most) {
			most = sum;
			heaviest = i;
		}
	}
	return heaviest;
}

bool export_speedscope(struct export *export, struct out *out, GError **error)
{
	g_autofree char *title = export_title(export);
	struct json json;
	guint heaviest;

	json_init(&json, out);
	json_begin_object(&json, NULL);
	json_string(&json, "$schema", "https://www.speedscope.app/file-format-schema.json");
	json_string(&json, "exporter", "profcapture " PROF_VERSION);
	json_string(&json, "name", title);
	json_begin_object(&json, "shared");
	json_begin_array(&json, "frames");
	write_frames(export, &json);
	if (export->compared)
		write_frames(export->compared, &json);
	json_end(&json);
	json_end(&json);
	json_begin_array(&json, "profiles");
	heaviest = write_threads(export, &json, export->compared ? "before: " : "", 0);
	if (export->compared)
		(void)write_threads(export->compared, &json,
				    "after: ", export->profile.functions->all->len);
	json_end(&json);
	json_uint(&json, "activeProfileIndex", heaviest); /* the first profile may be a shell's */
	json_end(&json);
	json_done(&json);
	return true;
}
