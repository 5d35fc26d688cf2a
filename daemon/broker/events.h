/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "arch/probe-arguments.h"
#include "daemon/protocol.h"
#include "libcapture/prof-capture.h"

#include <gio/gio.h>
#include <linux/perf_event.h>
#include <stdbool.h>

#define EVENT_MAX_NAME ENGINE_SOURCE_NAME

struct event {
	char name[EVENT_MAX_NAME]; /* as the user wrote it */
	/* evaluated by the kernel (tracepoints) or the engine (static probes); empty: none */
	char filter[EVENT_MAX_NAME];
	/* type, config and settings of modifiers; perf.c sets the rest */
	struct perf_event_attr attr;
	enum prof_source_kind kind;
	bool counts_ns; /* counts ns of a clock */
	/* true: attr.sample_period is fixed (tracepoints: 1); false: a frequency is used */
	bool every_one;
	bool kernel_only; /* only occurs in the kernel, so exclude_kernel would hide it */
	bool off_cpu;     /* copies the stacks of threads that are about to sleep */
	bool wakes;       /* with off_cpu: copies the stacks of threads that wake others instead */
	/* probes: path at which the kernel finds the file of probe_fd (-1: none) */
	char probe_path[32];
	int probe_fd;
	/* for a further place of a probe: 1 + index of the event of the first place; else 0 */
	unsigned same_as;
	unsigned n_arguments; /* arguments of a static probe at this place */
	struct probe_argument arguments[PROBE_MAX_ARGUMENTS];
};

/* Directories that describe the events whose numbers differ between machines. If a directory cannot
 * be opened, its descriptor is -1, and its error is an errno. */
struct event_dirs {
	int pmus;        /* /sys/bus/event_source/devices */
	int tracepoints; /* events/ of tracefs */
	int pmus_error, tracepoints_error;
};

/* Must be called once, while mounting is still possible. If tracefs is not mounted, mounts it
 * without a path, if permitted. */
void event_dirs_prepare(void);
void event_dirs_open(struct event_dirs *ret_dirs);
void event_dirs_done(struct event_dirs *dirs);

/* Turns one of perf's event names into an attr. Fails with BROKER_ERROR_INVALID_OPTION (the
 * message suggests a name), _NOT_AUTHORIZED or _NOT_SUPPORTED. Does not check whether the event can
 * be opened here. If `dirs` is NULL, looks up nothing: the numbers of tracepoints and PMU events
 * are not set, and these events need not exist. */
bool event_parse(const struct event_dirs *dirs, const char *text, struct event *ret_event,
		 GError **error);

/* Returns whether records of the tracepoint have this field at `offset`, with `bytes` bytes. */
bool event_has_field(const struct event_dirs *dirs, const char *system, const char *name,
		     const char *field, unsigned offset, unsigned bytes);

/* Returns the fields (struct message_field) of a tracepoint's records, without those that every
 * record has. NULL: the event is not a tracepoint, or its description cannot be read. */
GArray *event_fields(const struct event_dirs *dirs, const struct event *event);

/* Returns the names of software and hardware events, best known first. NULL-terminated, static. */
const char *const *event_names(void);

/* Called by event_parse(); in event-dirs.c. */
bool event_parse_tracepoint(const struct event_dirs *dirs, const char *system, const char *name,
			    struct event *event, GError **error);
bool event_parse_dynamic(const struct event_dirs *dirs, const char *pmu, const char *terms,
			 struct event *event, GError **error);
/* Returns whether the text names a probe: "/FILE:FUNCTION", "/FILE:FUNCTION%return",
 * "/FILE:PROVIDER:NAME" or "/FILE:PROVIDER:NAME/FILTER/". */
bool event_is_probe(const char *text);
/* Returns the length of a probe's name without a filter. */
size_t event_probe_length(const char *text);
/* Makes the event a probe at an offset of an open file. The event owns `fd`, even on failure. */
bool event_set_probe(const struct event_dirs *dirs, struct event *event, int fd, uint64_t offset,
		     uint64_t semaphore, GError **error);
/* Returns the candidate nearest to `word`, or NULL if none is near. */
const char *event_suggest(const char *word, const char *const *candidates);
