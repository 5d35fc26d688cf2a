/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "libcapture/prof-capture.h"

#include <gio/gio.h>
#include <linux/perf_event.h>
#include <stdbool.h>

#define EVENT_MAX_NAME 128

struct event {
	char name[EVENT_MAX_NAME]; /* as the user wrote it */
	struct perf_event_attr
		attr; /* type, config and what the modifiers ask for; the rest is perf.c's */
	enum prof_source_kind kind;
	bool counts_ns; /* a clock: one count is a nanosecond */
	/* each occurrence is a sample (tracepoints), or attr.sample_period was given */
	bool every_one;
	bool kernel_only; /* happens in the kernel only: exclude_kernel would hide it */
};

/* Where the kernel lists events that have no fixed number; -1: not there, with errno. */
struct event_dirs {
	int pmus;        /* /sys/bus/event_source/devices */
	int tracepoints; /* events/ of tracefs */
	int pmus_error, tracepoints_error;
};

/* Once, while mounting is still possible: a tracefs that nobody mounted is opened without a
 * place, where the rights suffice. */
void event_dirs_prepare(void);
void event_dirs_open(struct event_dirs *ret_dirs);
void event_dirs_done(struct event_dirs *dirs);

/* Turns a name as perf knows it into an attr. BROKER_ERROR_INVALID_OPTION with the nearest
 * names, _NOT_AUTHORIZED, _NOT_SUPPORTED. Says nothing about whether the event can be opened
 * here. With dirs NULL nothing is looked up: of a tracepoint and of a PMU's event only `kind`
 * and `name` are set, and whether they exist is not said. */
bool event_parse(const struct event_dirs *dirs, const char *text, struct event *ret_event,
		 GError **error);

/* Whether a tracepoint's records have a field of four bytes there. */
bool event_has_field(const struct event_dirs *dirs, const char *system, const char *name,
		     const char *field, unsigned offset);

/* Software and hardware names, the best known first; NULL-terminated, static. */
const char *const *event_names(void);

/* Of event-dirs.c, for event_parse(). */
bool event_parse_tracepoint(const struct event_dirs *dirs, const char *system, const char *name,
			    struct event *event, GError **error);
bool event_parse_dynamic(const struct event_dirs *dirs, const char *pmu, const char *terms,
			 struct event *event, GError **error);
/* The candidate nearest to word, or NULL when none is near. */
const char *event_suggest(const char *word, const char *const *candidates);
