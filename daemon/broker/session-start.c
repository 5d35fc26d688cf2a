/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Session, start - gives a session's engine the config, the events and the targets' files
 *
 * CPU-wide events are opened at once. perf-tasks.c opens per-task events, and the engine gets them
 * when all are open. For CPUs that come online later, events are opened when the engine requests
 * them.
 * Main thread only.
 */
#include "daemon/broker/session-internal.h"

#include "arch/base.h"
#include "arch/errno-text.h"
#include "daemon/broker/engine-config.h"
#include "daemon/broker/error.h"
#include "daemon/broker/target.h"
#include "daemon/deferred-close.h"

#include <errno.h>
#include <fcntl.h>

#define MAX_RETURNED_BYTES (8 * PERF_RING_BUDGET) /* rings of CPUs that came online again */

static void on_request_failed(const GError *error, void *data)
{
	struct session *session = data;

	session_give_up(session, "snapshot", error->message);
}

static void on_request_warning(const char *code, const char *text, void *data)
{
	struct session *session = data;

	session->listener->warning(session, code, text, session->data);
}

static bool start_requests(struct session *session, GError **error)
{
	const struct requests_options options = {
		.access = &session->access,
		.gives_files = session->options->call_graph == ENGINE_CALL_GRAPH_DWARF ||
			       session->options->memory,
		.kernel = session->options->kernel,
		.memory_usage = session->options->memory,
		.targets = session->options->pids,
		.n_targets = session->options->n_pids,
		.failed = on_request_failed,
		.warning = on_request_warning,
		.data = session,
	};

	session->requests = requests_new(session->engine, session->images, &options, error);
	return session->requests != NULL;
}

/* ---- CPUs and events ------------------------------------------------------------------------- */

static bool send_cpu(struct session *session, struct perf_cpu *cpu, GError **error)
{
	struct message_cpu body = {
		.cpu = cpu->cpu,
		.side_band_pages = session->plan.side_band_pages,
		.sample_pages = session->plan.sample_pages,
		.n_sources = cpu->n_fds - 1 - cpu->has_wakeups,
		.side_band_id = cpu->ids[0],
		.has_wakeups = cpu->has_wakeups,
	};

	memcpy(body.source_ids, cpu->ids + 1, sizeof(body.source_ids));
	if (!engine_send(session->engine, MESSAGE_CPU, &body, sizeof(body), cpu->fds, cpu->n_fds,
			 error))
		return false;
	perf_cpu_close_fds(cpu);
	return true;
}

/* On success the engine owns the descriptors. */
static bool send_events(struct session *session, GError **error)
{
	GArray *events = session->events;
	bool ok = true;

	for (unsigned first = 0; ok && events && first < events->len; first += MESSAGE_MAX_FDS) {
		unsigned n = MIN_OF(events->len - first, (unsigned)MESSAGE_MAX_FDS);
		struct message_event bodies[MESSAGE_MAX_FDS];
		int fds[MESSAGE_MAX_FDS];

		for (unsigned i = 0; i < n; i++) {
			const struct perf_task_event *event =
				&g_array_index(events, struct perf_task_event, first + i);

			fds[i] = event->fd;
			bodies[i] = (struct message_event){
				.id = event->id,
				.cpu = event->cpu,
				.tid = event->tid,
				.rank = event->rank,
				.position = event->position,
			};
		}
		ok = engine_send(session->engine, MESSAGE_EVENTS, bodies, n * sizeof(bodies[0]),
				 fds, n, error);
		for (unsigned i = 0; ok && i < n; i++)
			close(steal_fd(
				&g_array_index(events, struct perf_task_event, first + i).fd));
	}
	g_clear_pointer(&session->events, g_array_unref);
	return ok;
}

static bool is_online(unsigned number)
{
	g_autoptr(GArray) online = NULL;

	if (perf_online_cpus(&online, NULL))
		for (unsigned i = 0; i < online->len; i++)
			if (g_array_index(online, unsigned, i) == number)
				return true;
	return false;
}

void session_receive_cpu_request(struct session *session, const void *body, size_t bytes)
{
	unsigned number = ((const struct message_cpu_request *)body)->cpu;
	g_autoptr(GError) error = NULL;
	struct perf_cpu cpu;

	if (session->plan.by_task || session->returned_bytes >= MAX_RETURNED_BYTES ||
	    !is_online(number))
		return;
	if (perf_cpu_open(&session->plan, number, &cpu, &error)) {
		/* Count all rings, because only the engine knows whether the CPU's former ones
		 * still exist, and it may have been taken over. */
		session->returned_bytes +=
			((uint64_t)session->plan.side_band_pages + session->plan.sample_pages) *
			(uint64_t)sysconf(_SC_PAGESIZE);
		if (session->returned_bytes >= MAX_RETURNED_BYTES)
			session->listener->warning(
				session, "cpu-online",
				"CPUs came online so often that those that come from now on are not recorded",
				session->data);
		send_cpu(session, &cpu, &error);
		for (unsigned i = 0; i < session->cpus->len; i++)
			if (g_array_index(session->cpus, struct perf_cpu, i).cpu == number)
				g_array_remove_index_fast(session->cpus, i--);
		g_array_append_val(session->cpus, cpu);
	}
	if (error)
		session->listener->warning(session, "cpu-online", error->message, session->data);
}

/* ---- Handing over ---------------------------------------------------------------------------- */

static bool send_config(struct session *session, GError **error)
{
	g_autoptr(GByteArray)
		body = engine_config_new(session->options, &session->plan, session->id);
	int fds[4] = { session->capture_fd, -1, -1, -1 };
	static const char *const paths[] = { "/proc/stat", "/sys/devices/system/cpu/online",
					     "/proc/kallsyms" };
	unsigned n = 1;
	bool ok = true;

	for (size_t i = 0; ok && i < ARRAY_SIZE(paths); i++) {
		bool optional = i == ARRAY_SIZE(paths) - 1;
		int fd = -1;

		/* Kernel addresses are only for those who may see them. */
		if (!optional || session->options->kernel)
			fd = open(paths[i], O_RDONLY | O_CLOEXEC);
		if (fd >= 0)
			fds[n++] = fd;
		else if (!optional)
			ok = broker_fail(error, BROKER_ERROR_FAILED, "opening \"%s\": %s", paths[i],
					 ERRNO_TEXT(errno));
	}
	((struct message_config *)body->data)->has_kallsyms = n == ARRAY_SIZE(fds);
	ok = ok &&
	     engine_send(session->engine, MESSAGE_CONFIG, body->data, body->len, fds, n, error);
	while (n > 1)
		close(fds[--n]);
	return ok;
}

/* Reports to the capture and to the client that an unprivileged user gets less. */
static void notify_reduced(struct session *session)
{
	const struct perf_plan *plan = &session->plan;
	g_autofree char *stacks = NULL;
	g_autofree char *text = NULL;

	if (plan->stack_bytes)
		stacks = g_strdup_printf(", %u KiB of each stack", plan->stack_bytes >> 10);
	text = g_strdup_printf("without CAP_PERFMON: only the targets' own events%s%s",
			       plan->kernel ? "" : ", nothing of the kernel", stacks ? stacks : "");
	options_set_reduced(session->options, plan->kernel, text);
	session->listener->warning(session, "reduced", text, session->data);
}

/* Opens CPU-wide events, if that is permitted and they may be shown; else rings for per-task
 * events. Also uses per-task events if a switch must be fast: they can stay enabled, because they
 * cost nothing while the targets sleep. */
static bool open_events(struct session *session, GError **error)
{
	struct options *options = session->options;
	struct perf_plan *plan = &session->plan;
	g_autoptr(GError) refused = NULL;

	if (plan->by_task && options->n_pids == 0)
		return broker_fail(error, BROKER_ERROR_NOT_AUTHORIZED,
				   "this session may only record processes of your own; \"pids\" "
				   "names them");
	if (options->switch_fd >= 0 && perf_tasks_are_few(plan, options->pids, options->n_pids))
		plan->by_task = true;
	if (!plan->by_task) {
		plan->wakeup_id = perf_wakeup_id();
		if (perf_open_all(plan, &session->cpus, &refused))
			return true;
		plan->by_task =
			g_error_matches(refused, BROKER_ERROR, BROKER_ERROR_NOT_AUTHORIZED) &&
			options->n_pids > 0;
	}
	if (!plan->by_task) {
		g_propagate_error(error, g_steal_pointer(&refused));
		return false;
	}
	requests_drop_ahead(session->requests);
	if (!perf_open_all(plan, &session->cpus, error))
		return false;
	session->reduced = refused || plan->kernel != options->kernel;
	return true;
}

/* Sends the engine all that it needs. From then on the engine leads. */
static bool send_all(struct session *session, GError **error)
{
	int *switch_fd = &session->options->switch_fd;
	bool ok;

	if (session->reduced)
		notify_reduced(session);
	ok = send_config(session, error);
	/* The engine has the descriptor now. Close it here, so that a pipe ends when the engine
	 * does. */
	deferred_close(steal_fd(&session->capture_fd));
	for (unsigned i = 0; ok && i < session->cpus->len; i++)
		ok = send_cpu(session, &g_array_index(session->cpus, struct perf_cpu, i), error);
	ok = ok && send_events(session, error);
	/* Sampling begins only when the switch is turned on. */
	if (ok && *switch_fd >= 0) {
		ok = engine_send(session->engine, MESSAGE_SWITCH, NULL, 0, switch_fd, 1, error);
		if (ok)
			deferred_close(steal_fd(switch_fd));
	}
	return ok && engine_send(session->engine, MESSAGE_START, NULL, 0, NULL, 0, error);
}

static void on_tasks_open(void *data)
{
	struct session *session = data;
	struct options *options = session->options;
	g_autoptr(GError) error = NULL;
	bool ok = perf_tasks_steal(session->opening, options->pids, &options->n_pids,
				   &session->events, &error);

	ok = ok && send_all(session, &error);
	g_clear_pointer(&session->opening, perf_tasks_free);
	if (!ok)
		session_end(session, error);
	else if (session->stop_early)
		session_stop(session, session->stop_reason, NULL);
}

static bool open_tasks(struct session *session, GError **error)
{
	const struct perf_tasks_options options = {
		.plan = &session->plan,
		.cpus = session->cpus,
		.access = &session->access,
		.targets = session->options->targets,
		.pids = session->options->pids,
		.n_pids = session->options->n_pids,
		.done = on_tasks_open,
		.data = session,
	};

	session->opening = perf_tasks_new(&options, error);
	return session->opening != NULL;
}

/* With per-task events, continues when the events of all threads are open. */
bool session_hand_over(struct session *session, GError **error)
{
	if (!start_requests(session, error) || !open_events(session, error))
		return false;
	if (session->plan.by_task)
		return open_tasks(session, error);
	/* Check the targets last, so that no pid was reused before it was used. */
	return (!session->options->targets ||
		targets_check(session->options->targets, TARGETS_ANY_USER, error)) &&
	       send_all(session, error);
}
