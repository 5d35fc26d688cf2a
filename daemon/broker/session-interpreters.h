/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Session-interpreters - reads the functions of interpreted programs during a session
 *
 * Loads the BPF programs of a family (interpreters.h) when the engine reports that a process needs
 * them, tells them which processes the session may read, and reports to the engine which
 * interpreters cannot be read.
 */
#pragma once

#include "daemon/broker/access.h"
#include "daemon/broker/engine.h"
#include "daemon/broker/interpreters.h"
#include "daemon/broker/perf.h"

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>

struct session_interpreters;

struct session_interpreters_options {
	struct engine *engine;
	const struct perf_plan *plan;
	const GArray *cpus; /* struct perf_cpu */
	const struct access *access;
	bool is_wanted; /* false: nothing is read */
	void (*warn)(const char *text, void *data);
	void *data;
};

/* Copies the options. The objects that they point to must outlive the result, except `engine`,
 * which session_interpreters_free() does not use. */
struct session_interpreters *session_interpreters_new(
	const struct session_interpreters_options *options);
void session_interpreters_free(struct session_interpreters *reading); /* NULL is allowed */
/* Takes ownership of the programs that were opened together with per-task events. If opening them
 * failed, `interpreters` is NULL and `error` is the reason. */
void session_interpreters_take(struct session_interpreters *reading,
			       struct interpreters *interpreters, GError *error);
/* Returns whether the CPUs' events must stay open, because a program may be attached to them later,
 * or will write into their rings. */
bool session_interpreters_need_events(const struct session_interpreters *reading);
/* Attaches the programs from session_interpreters_take() to all CPUs. */
void session_interpreters_start(struct session_interpreters *reading);
/* Attaches the loaded programs to a CPU that came online. */
bool session_interpreters_add_cpu(struct session_interpreters *reading, const struct perf_cpu *cpu,
				  GError **error);
/* Handles a MESSAGE_INTERPRETED of the engine. */
void session_interpreters_receive(struct session_interpreters *reading,
				  const struct message_interpreted *request);
/* Attaches nothing from now on, and stops reading frames before sleeps. */
void session_interpreters_stop(struct session_interpreters *reading);
