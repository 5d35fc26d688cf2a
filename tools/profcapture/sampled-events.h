/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Sampled events - the events that a capture has samples of
 *
 * Rows of the table of sources that have one name are one event, in all epochs and recordings.
 * Their order is that of the file, and the first one is what readers count if --event names no
 * other: amounts of different events have different units and are never added.
 */
#pragma once

#include "tools/common/json.h"
#include "tools/common/names.h"
#include "tools/common/number-map.h"
#include "tools/profcapture/amount.h"

#define SAMPLED_NO_EVENT UINT32_MAX

struct sampled_event {
	const char
		*name; /* interned; NULL: the capture does not say which event its samples are of */
	const char *unit; /* of weights: "ns", "events"; NULL with the name: each sample weighs 1 */
	uint64_t period, frequency; /* 0: unknown, or not the same in all recordings */
	struct amount counted;      /* in the whole capture */
};

struct sampled_events {
	GArray *all;          /* struct sampled_event */
	struct number_map of; /* epoch and id of a source → index + 1 */
	uint32_t unknown; /* index + 1 of the event of samples without a known source; 0: none */
	bool is_read;
};

void sampled_events_init(struct sampled_events *events);
void sampled_events_done(struct sampled_events *events);
/* Reads what is there, the first time that it is called. */
bool sampled_events_read(struct sampled_events *events, const struct prof_reader *reader,
			 struct names *names, GError **error);

static inline const struct sampled_event *sampled_event_at(const struct sampled_events *events,
							   uint32_t index)
{
	return &((const struct sampled_event *)(void *)events->all->data)[index];
}

/* Index of the event of a source, SAMPLED_NO_EVENT where the capture has no sample without a known
 * one. */
uint32_t sampled_events_of(const struct sampled_events *events, uint32_t epoch, uint64_t source);
/* The event of that name, or the first one for NULL. False with an error that lists all. */
bool sampled_events_find(const struct sampled_events *events, const char *name, const char *file,
			 uint32_t *ret_index, GError **error);
/* What a sample stands for whose row says `recorded` (0: nothing). */
uint64_t sampled_event_weight(const struct sampled_event *event, uint64_t recorded);
/* Does the event count nanoseconds? */
bool sampled_event_is_clock(const struct sampled_event *event);
/* Nanoseconds between two samples of a clock; 0: not a clock, or not known. */
uint64_t sampled_event_period_ns(const struct sampled_event *event);
/* The array "sources" of the capture. */
void sampled_events_write(const struct sampled_events *events, struct json *json, const char *key);
/* The names of all events but one, separated by commas; NULL where there are no others. New. */
char *sampled_events_others(const struct sampled_events *events, uint32_t but) MUST_CHECK;
