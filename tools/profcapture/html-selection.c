/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profcapture/html-selection.h"

#include <inttypes.h>

static void add_word(GString *text, const char *option, const char *value)
{
	g_autofree char *word = text_shell_word(value);

	g_string_append_printf(text, "%s--%s %s", text->len ? " " : "", option, word);
}

static void add_numbers(GString *text, const char *option, const GArray *numbers)
{
	for (guint i = 0; numbers && i < numbers->len; i++) {
		g_autofree char *number =
			g_strdup_printf("%" PRIu32, g_array_index(numbers, uint32_t, i));

		add_word(text, option, number);
	}
}

/* Interns the text, which redacts it: patterns and names of threads may contain names of users. */
static void write_list(struct json *json, const char *key, GString *text,
		       const struct export *export)
{
	json_string(json, key, names_intern(export->reader.capture->names, text->str, text->len));
	g_string_truncate(text, 0);
}

static void write_limit(struct json *json, bool is_limit, int64_t ns)
{
	if (is_limit)
		json_int(json, NULL, ns);
	else
		json_null(json, NULL);
}

bool html_selection_write(const struct html_sides *sides, struct json *json, GError **error)
{
	static const struct {
		const char *name;
		unsigned table;
	} kinds[] = {
		{ "cpu", PROF_TABLE_SAMPLE },      { "wait", PROF_TABLE_WAIT },
		{ "alloc", PROF_TABLE_ALLOC },     { "marks", PROF_TABLE_MARK },
		{ "switches", PROF_TABLE_SWITCH },
	};
	const struct export *export = sides->each[HTML_FIRST].export;
	g_autoptr(GString) text = g_string_new(NULL);

	json_begin_object(json, "filters");
	/* "threads" lacks --tid, which the page may replace */
	add_numbers(text, "pid", export->reader.pids);
	for (guint i = 0; export->reader.comms && i < export->reader.comms->len; i++)
		add_word(text, "comm", export->reader.comms->pdata[i]);
	write_list(json, "threads", text, export);
	add_numbers(text, "tid", export->reader.tids);
	write_list(json, "tids", text, export);
	/* "samples" lacks --metric, which the page adds itself */
	add_numbers(text, "cpu", export->reader.cpus);
	if (export->reader.event)
		add_word(text, "event", export->reader.event);
	write_list(json, "samples", text, export);
	if (export->profile.mode != PROFILE_ANY_MODE)
		add_word(text, "mode", profile_modes[export->profile.mode]);
	for (size_t i = 0; i < FRAME_FILTERS; i++)
		if (export->filters.pattern[i])
			add_word(text, frame_filter_options[i].name, export->filters.pattern[i]);
	write_list(json, "frames", text, export);
	json_string(json, "interpreter",
		    export->reader.interpreter_frames ? "--interpreter-frames" : "");
	json_begin_array(json, "ranges");
	for (unsigned i = 0; i < sides->n; i++) {
		const struct reader *reader = &sides->each[i].export->reader;

		json_begin_array(json, NULL);
		write_limit(json, reader->from_ns > 0, reader->from_ns);
		write_limit(json, reader->to_ns != INT64_MAX, reader->to_ns);
		json_end(json);
	}
	json_end(json);
	json_end(json);
	json_begin_object(json, "recorded");
	for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
		bool any = false;

		for (unsigned i = 0; i < sides->n && !any; i++)
			if (!reader_has_rows(&sides->each[i].export->reader, kinds[k].table, &any,
					     error))
				return false;
		json_bool(json, kinds[k].name, any);
	}
	json_end(json);
	return true;
}
