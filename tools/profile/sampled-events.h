/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Sampled-events - the events that a recording sampled
 *
 * Rows of the table of sources that have the same name are one event, in all epochs and segments.
 * Events are in the order of the file. Readers count the first one unless --event names another:
 * amounts of different events have different units and are never added.
 */
#pragma once

#include "tools/common/json.h"
#include "tools/common/number-map.h"
#include "tools/profile/amount.h"
#include "tools/symbols/names.h"

#define SAMPLED_NO_EVENT UINT32_MAX

struct sampled_event {
	const char *name; /* interned; NULL: the event of samples whose source is unknown */
	/* unit of weights: "ns", "events"; NULL if `name` is NULL: each sample has weight 1 */
	const char *unit;
	uint64_t period, frequency; /* 0: unknown, or not the same in all sources */
	struct amount counted;      /* sum over the whole capture */
};

struct sampled_events {
	GArray *all;          /* struct sampled_event */
	struct number_map of; /* epoch and id of a source → index + 1 */
	uint32_t unknown; /* index + 1 of the event of samples whose source is unknown; 0: none */
	bool is_read;
};

void sampled_events_init(struct sampled_events *events);
void sampled_events_done(struct sampled_events *events);
/* Reads the events. Later calls do nothing. */
bool sampled_events_read(struct sampled_events *events, const struct prof_reader *reader,
			 struct names *names, GError **error);

static inline const struct sampled_event *sampled_event_at(const struct sampled_events *events,
							   uint32_t index)
{
	return &((const struct sampled_event *)(void *)events->all->data)[index];
}

/* Returns the index of a source's event. For an unknown source, returns the event `unknown`;
 * SAMPLED_NO_EVENT if the capture has no such event. */
uint32_t sampled_events_of(const struct sampled_events *events, uint32_t epoch, uint64_t source);
/* Finds the event `name`; if `name` is NULL, the first event, or SAMPLED_NO_EVENT if there is none.
 * On failure, returns false and sets an error that lists all events. */
bool sampled_events_find(const struct sampled_events *events, const char *name, const char *file,
			 uint32_t *ret_index, GError **error);
/* Returns the weight of a sample. `recorded`: the weight in its row; 0: none. */
uint64_t sampled_event_weight(const struct sampled_event *event, uint64_t recorded);
/* Returns whether the event counts nanoseconds. */
bool sampled_event_is_clock(const struct sampled_event *event);
/* Returns the nanoseconds between two samples of a clock; 0: unknown, or not a clock. */
uint64_t sampled_event_period_ns(const struct sampled_event *event);
/* Writes the array "sources" of the capture. */
void sampled_events_write(const struct sampled_events *events, struct json *json, const char *key);
/* Returns the names of all events except one, separated by commas; NULL if there are no others. The
 * caller frees the result. */
char *sampled_events_others(const struct sampled_events *events, uint32_t but) MUST_CHECK;
