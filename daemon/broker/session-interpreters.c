/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Session-interpreters - reads the functions of interpreted programs during a session
 *
 * A family of interpreters has its own BPF programs. With CPU-wide events, they are loaded only
 * when a process may have such an interpreter, or when the command has the name of one.
 * Loading takes up to 0.2 s, so a thread does it. The engine repeats requests that it sent before
 * the programs were attached.
 */
#include "config.h"

#include "daemon/broker/session-interpreters.h"

#include "arch/base.h"
#include "daemon/broker/error.h"
#include "daemon/broker/target.h"

#include <string.h>
#include <unistd.h>

#define MAX_CHECKS_US 5000000 /* limit for checks of processes, because an engine may name many */

struct session_interpreters {
	struct session_interpreters_options options;
	struct interpreters *interpreters; /* NULL: not needed yet, or impossible */
	/* thread that loads `loaded`, or adds loading_families to `interpreters`; NULL: not
	 * running */
	GThread *loading;
	/* bits 1 << enum interp_family: families that processes need; families being loaded */
	unsigned wanted_families, loading_families;
	struct interpreters *loaded; /* NULL: loading failed because of load_error */
	GError *load_error;
	guint loaded_watch;
	/* families for which the engine was sent the reason of the refusal */
	uint32_t refused_families;
	int64_t checks_us; /* time that checks of processes took */
	bool tried_sleeps; /* attaching the program for sleeps was tried, or is no longer wanted */
	bool has_failed;   /* nothing can be read; the engine was sent the reason */
	bool has_stopped;
};

struct session_interpreters *session_interpreters_new(
	const struct session_interpreters_options *options)
{
	struct session_interpreters *reading = g_new0(struct session_interpreters, 1);

	reading->options = *options;
	return reading;
}

void session_interpreters_free(struct session_interpreters *reading)
{
	if (!reading)
		return;
	if (reading->loading) {
		g_thread_join(reading->loading);
		g_source_remove(reading->loaded_watch);
	}
	interpreters_free(reading->loaded);
	interpreters_free(reading->interpreters);
	g_clear_error(&reading->load_error);
	g_free(reading);
}

bool session_interpreters_need_events(const struct session_interpreters *reading)
{
	const struct perf_plan *plan = reading->options.plan;

	return plan->by_task ? reading->interpreters != NULL
			     : plan->stack_bytes > 0 && reading->options.is_wanted;
}

/* ---- Attaching ------------------------------------------------------------------------------- */

static void tell_engine(struct session_interpreters *reading, const char *reason)
{
	engine_send(reading->options.engine, MESSAGE_NO_OUTPUTS, reason, strlen(reason), NULL, 0,
		    NULL);
}

/* Stops reading, and sends the engine the reason. */
static void fail(struct session_interpreters *reading, const GError *error)
{
	reading->has_failed = true;
	g_clear_pointer(&reading->interpreters, interpreters_free);
	tell_engine(reading, error->message);
}

/* Makes the BPF program read frames on a CPU. Sends the engine the program's events first, because
 * otherwise the engine could not identify their records. */
static bool attach_cpu(struct session_interpreters *reading, const struct perf_cpu *cpu,
		       bool is_last, GError **error)
{
	const struct perf_plan *plan = reading->options.plan;
	const struct perf_event_attr attr = perf_source_attr(plan, &plan->events[0]);
	struct message_outputs body = { .cpu = cpu->cpu, .is_last = is_last };
	struct interpreter_outputs outputs;
	int fds[2];
	bool ok;

	if (!interpreters_open_outputs(reading->interpreters, &attr, cpu->fds[1], cpu->cpu,
				       &outputs, error))
		return false;
	body.sample_id = outputs.sample_id;
	body.code_id = outputs.code_id;
	fds[0] = outputs.sample;
	fds[1] = outputs.code;
	ok = engine_send(reading->options.engine, MESSAGE_OUTPUTS, &body, sizeof(body), fds,
			 ARRAY_SIZE(fds), error);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
	/* With per-task events, perf-tasks.c has attached the program. */
	for (unsigned i = 0; ok && !plan->by_task && i < plan->n_events; i++)
		ok = interpreters_attach(reading->interpreters, &plan->events[i], cpu->fds[1 + i],
					 error);
	return ok;
}

static bool attach_all(struct session_interpreters *reading, GError **error)
{
	const GArray *cpus = reading->options.cpus;

	for (unsigned i = 0; i < cpus->len; i++)
		if (!attach_cpu(reading, &g_array_index(cpus, struct perf_cpu, i),
				i + 1 == cpus->len, error))
			return false;
	return true;
}

void session_interpreters_take(struct session_interpreters *reading,
			       struct interpreters *interpreters, GError *error)
{
	reading->interpreters = interpreters;
	reading->load_error = error;
}

void session_interpreters_start(struct session_interpreters *reading)
{
	if (reading->interpreters && !attach_all(reading, &reading->load_error))
		g_clear_pointer(&reading->interpreters, interpreters_free);
}

bool session_interpreters_add_cpu(struct session_interpreters *reading, const struct perf_cpu *cpu,
				  GError **error)
{
	return !reading->interpreters || attach_cpu(reading, cpu, true, error);
}

void session_interpreters_stop(struct session_interpreters *reading)
{
	reading->has_stopped = true;
	if (reading->interpreters)
		interpreters_detach_sleeps(reading->interpreters);
}

/* ---- Loading --------------------------------------------------------------------------------- */

/* Sends the engine the reason why the frames of a family are not read; once for each family. */
static void note_refused(struct session_interpreters *reading, uint32_t family, const char *reason)
{
	if (!reason || reading->refused_families & 1u << family % 32)
		return;
	reading->refused_families |= 1u << family % 32;
	tell_engine(reading, reason);
}

static gboolean on_loaded(gpointer data);

static gpointer load(gpointer data)
{
	struct session_interpreters *reading = data;

	if (reading->interpreters)
		interpreters_add(reading->interpreters, reading->loading_families);
	else
		reading->loaded = interpreters_new(reading->loading_families,
						   reading->options.plan->sleep_id != 0,
						   &reading->load_error);
	reading->loaded_watch = g_idle_add_full(G_PRIORITY_DEFAULT, on_loaded, reading, NULL);
	return NULL;
}

/* Loads the BPF programs that processes need and that are not loaded yet, unless some are being
 * loaded. Returns false if the thread cannot be started. */
static bool load_wanted(struct session_interpreters *reading, GError **error)
{
	unsigned families = reading->wanted_families;

	if (reading->loading)
		return true;
	if (reading->interpreters)
		families &= interpreters_lacking(reading->interpreters);
	if (reading->interpreters && families == 0)
		return true;
	reading->loading_families = families;
	reading->loading = g_thread_try_new("interpreters", load, reading, error);
	return reading->loading;
}

static gboolean on_loaded(gpointer data)
{
	struct session_interpreters *reading = data;
	g_autoptr(GError) error = NULL;

	g_thread_join(g_steal_pointer(&reading->loading));
	if (reading->has_stopped)
		return G_SOURCE_REMOVE;
	if (!reading->interpreters) {
		reading->interpreters = g_steal_pointer(&reading->loaded);
		error = g_steal_pointer(&reading->load_error);
		if (!reading->interpreters || !attach_all(reading, &error)) {
			fail(reading, error);
			return G_SOURCE_REMOVE;
		}
	}
	for (unsigned i = INTERP_NONE + 1; i < INTERP_FAMILIES; i++)
		if (reading->loading_families & 1u << i)
			note_refused(reading, i, interpreters_refusal(reading->interpreters, i));
	if (!load_wanted(reading, &error))
		reading->options.warn(error->message, reading->options.data);
	return G_SOURCE_REMOVE;
}

/* ---- Processes ------------------------------------------------------------------------------- */

/* Makes the BPF program read the frames of a process. If the process has ended meanwhile, nothing
 * needs to be read. */
static void add_process(struct session_interpreters *reading,
			const struct message_interpreted *request)
{
	const struct session_interpreters_options *options = &reading->options;
	struct interp_process process = {
		.family = request->family,
		.minor = request->minor,
		.start_stack = interpreters_start_stack(request->pid),
	};
	CLEANUP_CLOSE int pidfd = target_open(request->pid);

	g_autoptr(GError) error = NULL;
	int64_t begin_us = g_get_monotonic_time();
	bool is_allowed;

	for (unsigned i = 0; i < INTERP_ADDRESSES; i++)
		process.addresses[i] = request->addresses[i];
	if (interpreters_has_process(reading->interpreters, request->pid, &process) ||
	    reading->checks_us > MAX_CHECKS_US)
		return;
	/* Check the owner, because the program for sleeps reads every process that it is given. Do
	 * this after reading the address of the stack, which exec moves. */
	is_allowed = pidfd >= 0 && (!options->access->own_only ||
				    target_is_owned(pidfd, request->pid, options->access->uid));
	reading->checks_us += g_get_monotonic_time() - begin_us;
	if (!is_allowed)
		return;
	if (!interpreters_set_process(reading->interpreters, request->pid, &process, &error)) {
		if (g_error_matches(error, BROKER_ERROR, BROKER_ERROR_NOT_SUPPORTED))
			note_refused(reading, request->family, error->message);
		return;
	}
	if (reading->tried_sleeps || !options->plan->sleep_id)
		return;
	reading->tried_sleeps = true;
	if (!interpreters_attach_sleeps(reading->interpreters, options->plan->sleep_id, &error))
		options->warn(error->message, options->data);
}

void session_interpreters_receive(struct session_interpreters *reading,
				  const struct message_interpreted *request)
{
	g_autoptr(GError) error = NULL;

	if (reading->has_failed || reading->has_stopped)
		return;
	for (uint32_t i = INTERP_NONE + 1; i < INTERP_FAMILIES; i++)
		if (i == request->family || i == request->expected)
			reading->wanted_families |= 1u << i;
	if (reading->interpreters && !request->sleeps) {
		reading->tried_sleeps = true;
		interpreters_detach_sleeps(reading->interpreters);
	}
	if (reading->interpreters && request->family)
		add_process(reading, request);
	if (session_interpreters_need_events(reading)) {
		if (!load_wanted(reading, &error) && reading->interpreters)
			reading->options.warn(error->message, reading->options.data);
	} else if (reading->options.plan->by_task) {
		error = g_steal_pointer(&reading->load_error);
	}
	if (error && !reading->interpreters)
		fail(reading, error);
}
