/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Probes - turns the names of probes into places in files, and lets the kernel check them
 *
 * A separate profd-files process opens the file, finds the function or static probe, and refuses
 * unsafe places (daemon/files/probe.c). If this process is stuck or crashes, the session is
 * refused. The kernel reports whether it can replace the instruction only when a recorded process
 * maps the file. So profd maps the code once, without executing it, and opens the probe for itself.
 *
 * The events are CPU-wide, and the engine ignores hits in other processes, which the probe slows
 * down too. Per-task events would not slow them down, but threads cannot inherit a probe: to open
 * it for a new thread, the kernel reads the path of the file again at the address that profd gave,
 * but in the memory of the program that creates the thread. clone() and fork() then fail there,
 * with EFAULT. Several places of a static probe are several events, and one source in the capture.
 *
 * Invariants: (1) the probe is placed in the file that was examined, through its descriptor
 *             (2) a place that the kernel refuses is refused here, not silently omitted
 *                 [test_probes: test_refused_instruction]
 *             (3) descriptions of arguments that profd-files sends are checked
 * Main thread only.
 */
#include "config.h"

#include "daemon/broker/probes.h"

#include "arch/base.h"
#include "arch/errno-text.h"
#include "arch/probe-filter.h"
#include "arch/regs.h"
#include "daemon/broker/error.h"
#include "daemon/broker/files-worker.h"
#include "daemon/broker/perf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/utsname.h>

#define PATIENCE_US 1000000
#define TICK_MS 100

struct probes {
	struct options *options;
	uid_t uid;
	/* index of the event whose places are requested; number of events that the client gave */
	unsigned at, n_given;
	struct files_worker *worker;
	guint tick;
	void (*done)(const GError *error, void *data);
	void *data;
};

static void finish(struct probes *probes, const GError *error)
{
	g_clear_handle_id(&probes->tick, g_source_remove);
	if (probes->worker)
		files_worker_free(probes->worker, false, probes->uid);
	probes->done(error, probes->data);
	g_free(probes);
}

/* Linux 6.18 to at least 7.0 replaces a 5-byte nop by a call on x86_64. */
static bool kernel_optimizes_nops(void)
{
	unsigned major = 0, minor = 0;
	struct utsname machine;

	if (REGS_NATIVE != REGS_X86_64 || uname(&machine) < 0 ||
	    sscanf(machine.release, "%u.%u", &major, &minor) != 2)
		return false;
	return major > 6 || (major == 6 && minor >= 18);
}

#define ENOTSUPP 524 /* an errno of the kernel without a name in <errno.h> */

/* Opens the probe for this process, with the code mapped, so that the kernel examines it. */
static bool kernel_accepts(const struct event *event, GError **error)
{
	const struct perf_plan plan = { .kernel = true };
	struct perf_event_attr attr = perf_source_attr(&plan, event);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *code = mmap(NULL, page, PROT_READ | PROT_EXEC, MAP_PRIVATE, event->probe_fd,
			  (off_t)(event->attr.probe_offset & ~(uint64_t)(page - 1)));
	CLEANUP_CLOSE int fd = -1;
	int failed = 0;

	if (code == MAP_FAILED)
		return broker_fail(error, BROKER_ERROR_NOT_SUPPORTED,
				   "event \"%s\": the file's code cannot be mapped: %s",
				   event->name, ERRNO_TEXT(errno));
	fd = perf_open_event(&attr, 0, -1);
	if (fd < 0)
		failed = errno;
	munmap(code, page);
	if (failed == 0)
		return true;
	if (failed == EACCES || failed == EPERM)
		return broker_fail(
			error, BROKER_ERROR_NOT_AUTHORIZED,
			"event \"%s\": this profd may place no probes in programs (this kernel demands CAP_SYS_ADMIN, which the service does not have); run `profctl record` as root",
			event->name);
	if (failed != ENOTSUPP && failed != EINVAL && failed != EOPNOTSUPP && failed != ENOEXEC)
		return broker_fail(error, BROKER_ERROR_FAILED,
				   "event \"%s\": the probe cannot be opened: %s", event->name,
				   ERRNO_TEXT(failed));
	return broker_fail(
		error, BROKER_ERROR_NOT_SUPPORTED,
		"event \"%s\": the kernel refuses a probe there (error %d): it cannot execute the first instruction elsewhere",
		event->name, failed);
}

GArray *probes_fields(const struct event *events, unsigned n_events, unsigned first)
{
	GArray *fields = g_array_new(FALSE, TRUE, sizeof(struct message_field));

	for (unsigned i = first; i < n_events; i++) {
		const struct event *event = &events[i];

		if (i != first && event->same_as != first + 1)
			continue;
		for (unsigned k = 0; k < event->n_arguments; k++) {
			const struct probe_argument *argument = &event->arguments[k];
			struct message_field *field;

			if (k == fields->len)
				g_array_set_size(fields, k + 1);
			field = &g_array_index(fields, struct message_field, k);
			/* Until all places are added, `element` is the largest size so far. */
			field->element = MAX_OF(field->element, argument->bytes);
			field->is_signed |= argument->is_signed;
			if (argument->is_float)
				field->kind = PROF_ARGUMENT_DOUBLE;
		}
	}
	for (unsigned k = 0; k < fields->len; k++) {
		struct message_field *field = &g_array_index(fields, struct message_field, k);
		bool is_float = field->kind == PROF_ARGUMENT_DOUBLE;

		if (!is_float)
			field->kind = field->is_signed ? PROF_ARGUMENT_S64 : PROF_ARGUMENT_U64;
		g_snprintf(field->name, sizeof(field->name), "arg%u", k + 1);
		g_snprintf(field->type, sizeof(field->type), "%c%u",
			   is_float           ? 'f'
			   : field->is_signed ? 's'
					      : 'u',
			   field->element * 8u);
		field->element = 0;
		field->place = FIELD_ARGUMENT;
		field->offset = (uint16_t)(k * sizeof(struct probe_value));
		field->size = sizeof(struct probe_value);
	}
	return fields;
}

/* Checks the filter of a static probe, whose arguments are known now. */
static bool check_filter(const struct options *options, unsigned first, GError **error)
{
	const struct event *event = &options->events[first];
	g_autoptr(GArray) fields = probes_fields(options->events, options->n_events, first);
	struct probe_number numbers[PROBE_MAX_ARGUMENTS] = { { 0 } };
	const char *at = NULL;

	if (!event->filter[0])
		return true;
	if (fields->len == 0)
		return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
				   "event \"%s\": a filter compares arguments, and this probe has "
				   "none",
				   event->name);
	for (unsigned i = 0; i < fields->len; i++)
		numbers[i].is_float = g_array_index(fields, struct message_field, i).kind ==
				      PROF_ARGUMENT_DOUBLE;
	if (probe_filter_test(event->filter, numbers, fields->len, &at) != PROBE_FILTER_INVALID)
		return true;
	return broker_fail(
		error, BROKER_ERROR_INVALID_OPTION,
		"event \"%s\": the filter cannot be parsed at \"%s\"; it compares "
		"arguments with integers, as in arg1==3 && arg2>4096, and this probe has "
		"arg1 to arg%u",
		event->name, at, fields->len);
}

/* Stores the places: the first in the event that was given, others in further events. */
static bool add_places(struct probes *probes, const struct files_answer *answer, int file,
		       GError **error)
{
	struct options *options = probes->options;
	struct event_dirs dirs;
	bool ok = true;

	if (answer->n_places - 1 > ENGINE_MAX_SOURCES - options->n_events)
		return broker_fail(error, BROKER_ERROR_LIMIT_EXCEEDED,
				   "event \"%s\" has %u places; this session has room for %u more",
				   options->events[probes->at].name, answer->n_places,
				   ENGINE_MAX_SOURCES - options->n_events);
	event_dirs_open(&dirs);
	for (unsigned i = 0; ok && i < answer->n_places; i++) {
		struct event *event = &options->events[probes->at];
		int fd = fcntl(file, F_DUPFD_CLOEXEC, 0);

		if (i > 0) {
			event = &options->events[options->n_events++];
			*event = options->events[probes->at];
			event->attr.config = 0;
			event->same_as = 1 + probes->at;
			event->probe_fd = -1;
		}
		event->n_arguments = answer->places[i].n_arguments;
		memcpy(event->arguments, answer->places[i].arguments, sizeof(event->arguments));
		ok = fd >= 0 ? event_set_probe(&dirs, event, fd, answer->places[i].offset,
					       answer->places[i].semaphore, error) &&
				       kernel_accepts(event, error)
			     : broker_fail(error, BROKER_ERROR_LIMIT_EXCEEDED,
					   "too many open files; raise `ulimit -n`");
	}
	event_dirs_done(&dirs);
	return ok && check_filter(options, probes->at, error);
}

static bool is_valid(const struct files_answer *answer, unsigned serial, int fd)
{
	for (unsigned i = 0; i < MIN_OF(answer->n_places, (uint32_t)PROBE_MAX_PLACES); i++) {
		const struct probe_place *place = &answer->places[i];

		if (place->n_arguments > PROBE_MAX_ARGUMENTS)
			return false;
		for (unsigned k = 0; k < place->n_arguments; k++)
			if (!probe_argument_is_valid(&place->arguments[k]))
				return false;
	}
	return answer->serial == serial && answer->n_places <= PROBE_MAX_PLACES &&
	       memchr(answer->reason, 0, sizeof(answer->reason)) &&
	       g_utf8_validate(answer->reason, -1, NULL) &&
	       (answer->error == 0) == (fd >= 0 && answer->n_places > 0);
}

static void request_next(struct probes *probes);

static void on_input(struct files_worker *worker, void *data)
{
	struct probes *probes = data;
	const char *name = probes->options->events[probes->at].name;
	g_autoptr(GError) error = NULL;
	struct files_answer answer;
	CLEANUP_CLOSE int fd = -1;

	if (!files_worker_receive(worker, &answer, &fd))
		return;
	if (!is_valid(&answer, probes->at + 1, fd))
		broker_fail(&error, BROKER_ERROR_FAILED,
			    "event \"%s\": the process that searches for it sent an invalid answer",
			    name);
	else if (answer.error)
		broker_fail(&error, BROKER_ERROR_INVALID_OPTION, "event \"%s\": %s", name,
			    answer.reason[0] ? answer.reason : ERRNO_TEXT(answer.error));
	if (error || !add_places(probes, &answer, fd, &error)) {
		finish(probes, error);
		return;
	}
	probes->at++;
	request_next(probes);
}

static void on_ended(struct files_worker *worker, void *data)
{
	struct probes *probes = data;
	g_autoptr(GError) error = NULL;

	broker_fail(&error, BROKER_ERROR_FAILED,
		    "event \"%s\": the process that searches for it ended",
		    probes->options->events[probes->at].name);
	finish(probes, error);
}

static gboolean on_tick(gpointer data)
{
	struct probes *probes = data;
	g_autoptr(GError) error = NULL;

	if (!files_worker_is_stuck(probes->worker, PATIENCE_US))
		return G_SOURCE_CONTINUE;
	files_worker_give_up(g_steal_pointer(&probes->worker), probes->uid);
	probes->tick = 0;
	broker_fail(&error, BROKER_ERROR_FAILED,
		    "event \"%s\": the file could not be read within a second",
		    probes->options->events[probes->at].name);
	finish(probes, error);
	return G_SOURCE_REMOVE;
}

static void request_next(struct probes *probes)
{
	struct files_request request = {
		.type = FILES_PROBE,
		.probe.optimizes_nops = kernel_optimizes_nops(),
	};
	g_autofree char *place = NULL;
	g_autoptr(GError) error = NULL;
	const char *name;

	while (probes->at < probes->n_given &&
	       probes->options->events[probes->at].kind != PROF_SOURCE_PROBE)
		probes->at++;
	if (probes->at == probes->n_given) {
		finish(probes, NULL);
		return;
	}
	request.serial = probes->at + 1;
	name = probes->options->events[probes->at].name;
	place = g_strndup(name, event_probe_length(name));
	request.probe.text_bytes = (uint32_t)strlen(place);
	if (files_worker_send(probes->worker, &request, place, -1, true))
		return;
	broker_fail(&error, BROKER_ERROR_FAILED, "event \"%s\": cannot search for it: %s", name,
		    ERRNO_TEXT(errno));
	finish(probes, error);
}

void probes_find(const struct access *access, struct options *options,
		 void (*done)(const GError *error, void *data), void *data)
{
	static const struct files_worker_listener listener = { .input = on_input,
							       .ended = on_ended };
	const struct files_config config = {
		.uid = access->uid,
		.any_image = access->any_image,
		.probes = 1,
	};
	struct probes *probes;
	g_autoptr(GError) error = NULL;
	bool has_any = false;

	for (unsigned i = 0; i < options->n_events; i++)
		has_any |= options->events[i].kind == PROF_SOURCE_PROBE;
	if (!has_any) {
		done(NULL, data);
		return;
	}
	probes = g_new0(struct probes, 1);
	*probes = (struct probes){
		.options = options,
		.uid = access->uid,
		.n_given = options->n_events,
		.done = done,
		.data = data,
	};
	probes->worker = files_worker_new(&config, &listener, probes, &error);
	if (!probes->worker) {
		finish(probes, error);
		return;
	}
	probes->tick = g_timeout_add(TICK_MS, on_tick, probes);
	request_next(probes);
}
