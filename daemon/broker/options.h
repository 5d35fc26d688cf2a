/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/events.h"
#include "daemon/broker/target.h"
#include "daemon/protocol.h"

#include <gio/gio.h>
#include <gio/gunixfdlist.h>
#include <stdbool.h>

/* The options of CreateSession, checked and complete. */
struct options {
	bool system, children, kernel, append, paused;
	bool kernel_requested; /* "kernel" was given, with value true */
	bool kernel_denied;    /* "kernel" was not given, and the client may not see the kernel */
	int32_t pids[ENGINE_MAX_TARGETS];
	unsigned n_pids;
	uint32_t frequency;
	struct event events[ENGINE_MAX_SOURCES];
	unsigned n_events;
	enum engine_call_graph call_graph;
	enum engine_policy policy;
	uint64_t ring_bytes, max_bytes, max_duration_ns;
	uint64_t max_rate; /* samples per second; 0: the service's limit */
	int lifetime_fd;   /* -1: none */
	int switch_fd;     /* passed on to the engine; -1: none */
	GStrv command;     /* NULL: none */
	bool interpreters; /* read the frames of interpreters, where that is possible */
	bool off_cpu;
	uint64_t off_cpu_threshold_ns;
	bool wakers;
	uint32_t off_cpu_max_rate; /* sleeps per second; 0: no limit */
	bool memory, memory_mmap;
	/* record allocations of this process and its descendants; 0: of `pids` and their
	 * descendants */
	int32_t memory_pid;
	uint64_t memory_sample, memory_min;
	uint32_t counters;       /* set of counter groups */
	char *counters_missing;  /* groups that cannot be read here; NULL: none */
	struct targets *targets; /* pidfds of `pids` if their owner must be checked; else NULL */
	GVariant *given;         /* a{sv}, for the property Options */
	/* text about what was requested, but is not recorded; NULL: nothing */
	char *reduced;
};

/* Recordings that a client may make, perhaps after a password, if profd can make them. */
struct client_rights {
	bool system, others, kernel;
};

/* If this returns true, release *ret_options with options_free(). */
bool options_parse(GVariant *variant, GUnixFDList *fds, struct options **ret_options,
		   GError **error);
/* Looks up events without a fixed number. Call it only for callers who may record them, because
 * others must not learn which events exist. */
bool options_find_events(struct options *options, GError **error);
/* Notes in the options and in the capture that the session records less than requested, and whether
 * it records the kernel. */
void options_set_reduced(struct options *options, bool kernel, const char *text);
/* Turns off recording of the kernel, for a client that did not request it and may not see it, and
 * notes this in the options. */
void options_deny_kernel(struct options *options);
void options_free(struct options *options);

/* Returns the answer to GetCapabilities, a{sv}, if the client has these rights. */
GVariant *options_capabilities(struct client_rights rights);
