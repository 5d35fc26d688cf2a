/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Firefox-marks - marks as markers of the thread that began them
 *
 * A mark without an end, or without a begin, is written so; the profiler decides how to show it.
 */
#include "config.h"

#include "tools/profcapture/firefox.h"
#include "tools/profcapture/spans.h"

struct mark {
	const char *name, *group;
	int64_t start_ns, end_ns;
	enum span_kind kind;
};

static void keep_mark(const struct span *span, void *data)
{
	struct firefox *firefox = data;
	struct reader *reader = &firefox->export->reader;
	struct mark mark = { span->name, span->group, span->start_ns, span->end_ns, span->kind };
	GArray **marks;

	if (span->end_ns < reader->from_ns || span->start_ns > reader->to_ns ||
	    !reader_wants_thread_at(reader, span->thread, span->start_ns))
		return;
	if (firefox->marks->len <= span->thread)
		g_ptr_array_set_size(firefox->marks, (gint)span->thread + 1);
	marks = (GArray **)&firefox->marks->pdata[span->thread];
	if (!*marks)
		*marks = g_array_new(FALSE, FALSE, sizeof(struct mark));
	g_array_append_val(*marks, mark);
}

bool firefox_read_marks(struct firefox *firefox, GError **error)
{
	firefox->marks = g_ptr_array_new();
	return spans_read(firefox->export->reader.capture, keep_mark, firefox, error);
}

void firefox_free_marks(struct firefox *firefox)
{
	for (guint i = 0; i < firefox->marks->len; i++)
		if (firefox->marks->pdata[i])
			g_array_unref(firefox->marks->pdata[i]);
	g_ptr_array_unref(firefox->marks);
}

/* Returns the profiler's phase: an instant, a span, its begin, its end. */
static unsigned phase_of(const struct mark *mark)
{
	static const unsigned phases[] = {
		[SPAN_INSTANT] = 0, [SPAN_WHOLE] = 1, [SPAN_NO_END] = 2, [SPAN_NO_BEGIN] = 3
	};

	return phases[mark->kind];
}

static void write_mark_data(struct json *json, const struct mark *mark)
{
	json_begin_object(json, NULL);
	json_string(json, "type", "Mark");
	json_string(json, "group", mark->group ? mark->group : "");
	json_end(json);
}

void firefox_write_marks(struct firefox *firefox, uint32_t thread)
{
	const GArray *marks = firefox_has_marks(firefox, thread) ? firefox->marks->pdata[thread]
								 : NULL;
	struct json *json = &firefox->json;
	const struct mark *all = marks ? (const struct mark *)(void *)marks->data : NULL;
	guint n = marks ? marks->len : 0;

	json_begin_object(json, "markers");
	json_begin_array(json, "name");
	for (guint i = 0; i < n; i++)
		json_uint(json, NULL, firefox_string(firefox, all[i].name));
	json_end(json);
	json_begin_array(json, "startTime");
	for (guint i = 0; i < n; i++) {
		if (all[i].kind == SPAN_NO_BEGIN)
			json_null(json, NULL);
		else
			firefox_ms(json, NULL, all[i].start_ns);
	}
	json_end(json);
	json_begin_array(json, "endTime");
	for (guint i = 0; i < n; i++) {
		if (all[i].kind == SPAN_WHOLE || all[i].kind == SPAN_NO_BEGIN)
			firefox_ms(json, NULL, all[i].end_ns);
		else
			json_null(json, NULL);
	}
	json_end(json);
	json_begin_array(json, "phase");
	for (guint i = 0; i < n; i++)
		json_uint(json, NULL, phase_of(&all[i]));
	json_end(json);
	firefox_constant(json, "category", n, FIREFOX_OTHER);
	json_begin_array(json, "data");
	for (guint i = 0; i < n; i++)
		write_mark_data(json, &all[i]);
	json_end(json);
	json_uint(json, "length", n);
	json_end(json);
}

void firefox_write_mark_schema(struct json *json)
{
	json_begin_array(json, "markerSchema");
	json_begin_object(json, NULL);
	json_string(json, "name", "Mark");
	json_strings(json, "display",
		     (const char *const[]){ "marker-chart", "marker-table", "timeline-overview",
					    NULL });
	json_string(json, "tooltipLabel", "{marker.name}");
	json_string(json, "tableLabel", "{marker.data.group}");
	json_string(json, "chartLabel", "{marker.name}");
	json_begin_array(json, "fields");
	json_begin_object(json, NULL);
	json_string(json, "key", "group");
	json_string(json, "label", "Group");
	json_string(json, "format", "string");
	json_end(json);
	json_end(json);
	json_end(json);
	json_end(json);
}
