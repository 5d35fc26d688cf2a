/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/events.h"
#include "daemon/protocol.h"

#include <gio/gio.h>
#include <gio/gunixfdlist.h>
#include <stdbool.h>

/* What CreateSession asks for, checked and complete. */
struct options {
	bool system, children, kernel, append, paused;
	int32_t pids[ENGINE_MAX_TARGETS];
	unsigned n_pids;
	uint32_t frequency;
	struct event events[ENGINE_MAX_SOURCES];
	unsigned n_events;
	enum engine_call_graph call_graph;
	uint64_t ring_bytes, max_bytes, max_duration_ns;
	int lifetime_fd; /* -1: none */
	GStrv command;   /* NULL: none */
	GVariant *given; /* a{sv} for the property Options */
};

/* *ret_options is to be given to options_free() where true is returned. */
bool options_parse(GVariant *variant, GUnixFDList *fds, struct options **ret_options,
		   GError **error);
void options_free(struct options *options);

/* The answer to GetCapabilities: a{sv}. */
GVariant *options_capabilities(void);
