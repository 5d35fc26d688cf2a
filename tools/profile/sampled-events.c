/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Invariants: (1) each sample belongs to one event  [test-report: events]
 *             (2) events without samples are also listed  [test_weights: info]
 */
#include "config.h"

#include "tools/profile/sampled-events.h"

#include "base/each.h"
#include "tools/common/capture-error.h"
#include "tools/common/cli.h"
#include "tools/common/text.h"

#include <glib/gi18n.h>
#include <string.h>

/* Name for --event of an event whose name is not in the capture. */
#define NO_NAME NAMES_LOST_TEXT

void sampled_events_init(struct sampled_events *events)
{
	*events = (struct sampled_events){ .all = g_array_new(FALSE, TRUE,
							      sizeof(struct sampled_event)) };
	number_map_init(&events->of);
}

void sampled_events_done(struct sampled_events *events)
{
	g_array_unref(events->all);
	number_map_done(&events->of);
}

static struct sampled_event *event_at(struct sampled_events *events, uint32_t index)
{
	return &g_array_index(events->all, struct sampled_event, index);
}

/* Adds an event, or returns the one with the same name. Names are interned. */
static uint32_t add_event(struct sampled_events *events, const struct sampled_event *event)
{
	for (uint32_t i = 0; i < events->all->len; i++) {
		struct sampled_event *known = event_at(events, i);

		if (known->name != event->name)
			continue;
		if (known->period != event->period || known->frequency != event->frequency)
			known->period = known->frequency = 0;
		return i;
	}
	g_array_append_vals(events->all, event, 1);
	return events->all->len - 1;
}

static bool add_sources(struct names_epoch *epoch, const struct prof_batch *batch, void *data,
			GError **error)
{
	const struct prof_array *c = batch->columns;
	struct sampled_events *events = data;

	for (size_t i = 0; i < batch->rows; i++) {
		const char *name = names_text(epoch, array_number_or(&c[1], i, 0));
		const char *unit = names_text(epoch, array_number_or(&c[2], i, 0));
		const struct sampled_event event = {
			.name = name ? name : NO_NAME,
			.unit = g_strcmp0(unit, "ns") == 0 ? "ns" : "events",
			.period = array_number_or(&c[3], i, 0),
			.frequency = array_number_or(&c[4], i, 0),
		};
		uint64_t id = array_number_or(&c[0], i, 0);

		*number_map_at(&events->of, (uint64_t)batch->epoch << 32 | (uint32_t)id) =
			add_event(events, &event) + 1;
	}
	return true;
}

static void count_samples(struct sampled_events *events, const struct prof_batch *batch)
{
	const struct prof_array *c = batch->columns;
	uint64_t last = UINT64_MAX;
	struct sampled_event *event = NULL;

	for (size_t i = 0; i < batch->rows; i++) {
		uint64_t source = array_number_or(&c[0], i, 0);

		if (!event || source != last) {
			uint32_t index = sampled_events_of(events, batch->epoch, source);

			/* All samples whose source is unknown have one event. */
			if (index == SAMPLED_NO_EVENT) {
				index = events->all->len;
				g_array_set_size(events->all, index + 1);
				events->unknown = index + 1;
			}
			last = source;
			event = event_at(events, index);
		}
		amount_add(&event->counted,
			   (struct amount){
				   1, sampled_event_weight(event, array_number_or(&c[1], i, 0)) });
	}
}

bool sampled_events_read(struct sampled_events *events, const struct prof_reader *reader,
			 struct names *names, GError **error)
{
	struct prof_cursor *cursor = NULL;
	struct prof_batch batch;
	int r;

	if (events->is_read)
		return true;
	events->is_read = true;
	if (!names_each_batch(names,
			      NAMES_COLUMNS(PROF_TABLE_SOURCE, PROF_SOURCE_ID, PROF_SOURCE_NAME,
					    PROF_SOURCE_UNIT, PROF_SOURCE_PERIOD,
					    PROF_SOURCE_FREQUENCY),
			      add_sources, events, error))
		return false;
	/* No names are needed for samples. */
	r = prof_cursor_new(
		reader, NAMES_COLUMNS(PROF_TABLE_SAMPLE, PROF_SAMPLE_SOURCE, PROF_SAMPLE_WEIGHT),
		&cursor);
	if (r == PROF_NO_TABLE)
		return true;
	while (r == 0 && (r = prof_cursor_next(cursor, &batch)) == 0)
		count_samples(events, &batch);
	prof_cursor_free(cursor);
	return r == PROF_END || capture_error(error, r, _("cannot read the events of the capture"));
}

uint32_t sampled_events_of(const struct sampled_events *events, uint32_t epoch, uint64_t source)
{
	uint32_t known = source <= UINT32_MAX
				 ? number_map_get(&events->of, (uint64_t)epoch << 32 | source)
				 : 0;

	if (!known)
		known = events->unknown;
	return known ? known - 1 : SAMPLED_NO_EVENT;
}

static const char *name_of(const struct sampled_event *event)
{
	return event->name ? event->name : NO_NAME;
}

bool sampled_events_find(const struct sampled_events *events, const char *name, const char *file,
			 uint32_t *ret_index, GError **error)
{
	g_autofree char *all = NULL;

	if (!name) {
		*ret_index = events->all->len > 0 ? 0 : SAMPLED_NO_EVENT;
		return true;
	}
	for (uint32_t i = 0; i < events->all->len; i++) {
		if (strcmp(name_of(sampled_event_at(events, i)), name) == 0) {
			*ret_index = i;
			return true;
		}
	}
	all = sampled_events_others(events, SAMPLED_NO_EVENT);
	return cli_set_error(error, CLI_USAGE,
			     all ? _("capture '%s' has no samples of event '%s'. Recorded: %s")
				 : _("capture '%s' has no samples of event '%s', nor of any other"),
			     file, name, all);
}

bool sampled_event_is_clock(const struct sampled_event *event)
{
	return event->unit && strcmp(event->unit, "ns") == 0;
}

uint64_t sampled_event_period_ns(const struct sampled_event *event)
{
	if (!sampled_event_is_clock(event))
		return 0;
	return event->frequency ? UINT64_C(1000000000) / event->frequency : event->period;
}

uint64_t sampled_event_weight(const struct sampled_event *event, uint64_t recorded)
{
	uint64_t period = event->period ? event->period : sampled_event_period_ns(event);

	if (!event->unit)
		return 1;
	return recorded ? recorded : period ? period : 1;
}

void sampled_events_write(const struct sampled_events *events, struct json *json, const char *key)
{
	json_begin_array(json, key);
	ARRAY_EACH(const struct sampled_event, event, events->all) {
		json_begin_object(json, NULL);
		json_string(json, "name", event->name);
		json_string(json, "unit", event->unit);
		json_uint(json, "samples", event->counted.samples);
		json_uint(json, "weight", event->counted.weight);
		json_uint_if(json, "period", event->period, event->period);
		json_uint_if(json, "frequency_hz", event->frequency, event->frequency);
		json_end(json);
	}
	json_end(json);
}

char *sampled_events_others(const struct sampled_events *events, uint32_t but)
{
	GString *names = NULL;

	for (uint32_t i = 0; i < events->all->len; i++) {
		if (i == but)
			continue;
		if (!names)
			names = g_string_new(NULL);
		g_string_append_printf(names, "%s%s", names->len ? ", " : "",
				       name_of(sampled_event_at(events, i)));
	}
	return names ? g_string_free(names, FALSE) : NULL;
}
