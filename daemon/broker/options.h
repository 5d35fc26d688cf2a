/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/events.h"
#include "daemon/broker/target.h"
#include "daemon/protocol.h"

#include <gio/gio.h>
#include <gio/gunixfdlist.h>
#include <stdbool.h>

/* What CreateSession asks for, checked and complete. */
struct options {
	bool system, children, kernel, append, paused;
	bool kernel_asked;  /* "kernel" was given, as true */
	bool kernel_denied; /* it was not, and the client may not have it */
	int32_t pids[ENGINE_MAX_TARGETS];
	unsigned n_pids;
	uint32_t frequency;
	struct event events[ENGINE_MAX_SOURCES];
	unsigned n_events;
	enum engine_call_graph call_graph;
	enum engine_policy policy;
	uint64_t ring_bytes, max_bytes, max_duration_ns;
	uint64_t max_rate; /* samples a second; 0 = what the service allows */
	int lifetime_fd;   /* -1: none */
	int switch_fd;     /* the engine's in the end; -1: none */
	GStrv command;     /* NULL: none */
	bool memory, memory_mmap;
	int32_t memory_pid; /* whose allocations, and whose children's; 0: those of pids */
	uint64_t memory_sample, memory_min;
	struct targets *targets; /* of pids, where it matters whose they are; else NULL */
	GVariant *given;         /* a{sv} for the property Options */
	char *reduced;           /* what is less than was asked for, in words; NULL: nothing */
};

/* *ret_options is to be given to options_free() where true is returned. */
bool options_parse(GVariant *variant, GUnixFDList *fds, struct options **ret_options,
		   GError **error);
/* Looks up events that have no fixed number: which there are, is for those who may record them. */
bool options_find_events(struct options *options, GError **error);
/* The session gives less than was asked for: readers are told by the options and the capture. */
void options_set_reduced(struct options *options, bool kernel, const char *text);
/* For one who did not ask for it, and may not have it. */
void options_deny_kernel(struct options *options);
void options_free(struct options *options);

/* The answer to GetCapabilities: a{sv}. system, kernel: whether the client may have them, as far
 * as profd can. */
GVariant *options_capabilities(bool system, bool kernel);
