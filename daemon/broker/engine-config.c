/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Engine config - makes and sends the configuration that a session's engine receives
 *
 * Besides the options, the configuration contains the metadata rows, which say where and how the
 * capture was made; the fields of tracepoints; and descriptors of files that the engine's sandbox
 * cannot open.
 */
#include "config.h"

#include "daemon/broker/engine-config.h"

#include "arch/base.h"
#include "arch/errno-text.h"
#include "daemon/broker/error.h"
#include "daemon/broker/options-json.h"
#include "daemon/broker/probes.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/utsname.h>

#define READ_STACK_BYTES 65536

static void add_metadata(GByteArray *bytes, const char *key, const void *value, size_t value_bytes)
{
	const struct message_metadata item = { .key_bytes = (uint32_t)strlen(key),
					       .value_bytes = (uint32_t)value_bytes };

	g_byte_array_append(bytes, (const uint8_t *)&item, sizeof(item));
	g_byte_array_append(bytes, (const uint8_t *)key, item.key_bytes);
	g_byte_array_append(bytes, value, item.value_bytes);
}

static void add_text(GByteArray *bytes, const char *key, const char *value)
{
	add_metadata(bytes, key, value, strlen(value));
}

/* Adds how allocations were sampled, because readers compute total sizes from it. */
static void add_memory(GByteArray *bytes, const struct options *options)
{
	char number[24];

	add_text(bytes, "memory.mode", options->memory_sample ? "sample" : "all");
	snprintf(number, sizeof(number), "%" PRIu64, options->memory_sample);
	if (options->memory_sample)
		add_text(bytes, "memory.sample_bytes", number);
	snprintf(number, sizeof(number), "%" PRIu64, options->memory_min);
	if (options->memory_min)
		add_text(bytes, "memory.min_bytes", number);
	if (options->memory_mmap)
		add_text(bytes, "memory.mmap", "yes");
}

static void add_all_metadata(GByteArray *bytes, const struct options *options,
			     const struct perf_plan *plan)
{
	static const char *const call_graphs[] = { [ENGINE_CALL_GRAPH_NONE] = "none",
						   [ENGINE_CALL_GRAPH_FP] = "fp",
						   [ENGINE_CALL_GRAPH_DWARF] = "dwarf" };
	g_autoptr(GString) text = g_string_new(NULL);
	g_autofree char *json = options_to_json(options->given);
	struct utsname machine;

	if (uname(&machine) == 0) {
		add_text(bytes, "host", machine.nodename);
		add_text(bytes, "kernel", machine.release);
		add_text(bytes, "arch", machine.machine);
	}
	for (unsigned i = 0; i < options->n_events; i++)
		if (!options->events[i].same_as)
			g_string_append_printf(text, "%s%s", i ? "," : "", options->events[i].name);
	if (text->len)
		add_text(bytes, "event", text->str);
	add_text(bytes, "version", PROF_VERSION);
	g_string_printf(text, "%u", options->frequency);
	add_text(bytes, "frequency_hz", text->str);
	add_text(bytes, "call_graph", call_graphs[options->call_graph]);
	g_string_printf(text, "%u", plan->stack_bytes);
	if (plan->stack_bytes)
		add_text(bytes, "stack_bytes", text->str);
	if (options->reduced)
		add_text(bytes, "reduced", options->reduced);
	if (options->off_cpu)
		add_text(bytes, "off_cpu", plan->sleep_id ? "stacks" : "times");
	if (plan->waking_id)
		add_text(bytes, "wakers", "sched:sched_waking");
	if (options->memory)
		add_memory(bytes, options);
	if (options->counters_missing)
		add_text(bytes, "counters.missing", options->counters_missing);
	add_text(bytes, "options", json);
	g_string_truncate(text, 0);
	for (char **word = options->command; word && *word; word++)
		g_string_append_len(text, *word, (gssize)strlen(*word) + 1);
	if (text->len)
		add_metadata(bytes, "command", text->str, text->len);
}

static void describe_source(const struct options *options, const struct event *event,
			    struct message_source *source)
{
	g_strlcpy(source->name, event->name, sizeof(source->name));
	source->kind = event->kind;
	source->uses_callgraph = options->call_graph != ENGINE_CALL_GRAPH_NONE;
	source->counts_ns = event->counts_ns;
	source->off_cpu = event->off_cpu + event->wakes;
	source->same_as = event->same_as;
	if (event->every_one)
		source->period = event->attr.sample_period;
	else if (event->counts_ns)
		source->period = 1000000000 / options->frequency;
	else
		source->frequency = options->frequency;
}

/* Returns the body of MESSAGE_CONFIG: struct message_config, then the metadata. The caller sets
 * has_kallsyms. */
static GByteArray *make_config(const struct options *options, const struct perf_plan *plan,
			       uint32_t session)
{
	GByteArray *bytes = g_byte_array_new();
	struct message_config config = {
		.system = options->system,
		.children = options->children,
		.n_targets = options->n_pids,
		.kernel = plan->kernel,
		.call_graph = options->call_graph,
		.stack_bytes = plan->stack_bytes,
		.has_stacks = plan->copy_bytes > 0,
		.build_ids = plan->build_ids,
		.by_task = plan->by_task,
		.append = options->append,
		.paused = options->paused,
		.n_sources = plan->n_events,
		.max_bytes = options->max_bytes,
		.max_duration_ns = options->max_duration_ns,
		.max_rate = options->max_rate,
		.begin_ns = plan->begin_ns,
		.policy = options->policy,
		.session = session,
		.memory = options->memory,
		.memory_pid = options->memory_pid,
		.interpreters = options->interpreters,
		.off_cpu = options->off_cpu,
		.off_cpu_max_rate = options->off_cpu_max_rate,
		.off_cpu_threshold_ns = MAX_OF(options->off_cpu_threshold_ns, UINT64_C(1)),
		.is_command = options->command != NULL,
		.process_counters = !options->system &&
				    options->counters >> COUNTER_GROUP_PROCESS & 1,
		.has_fields = plan->fields,
	};

	static_assert(sizeof(config.targets) == sizeof(options->pids), "the same pids");
	/* Even without events that copy stacks, the engine reads stacks of waits. */
	if (options->off_cpu && plan->n_events == 0 &&
	    options->call_graph == ENGINE_CALL_GRAPH_DWARF)
		config.stack_bytes = READ_STACK_BYTES;
	memcpy(config.targets, options->pids, sizeof(config.targets));
	for (unsigned i = 0; i < plan->n_events; i++)
		describe_source(options, &options->events[i], &config.sources[i]);
	g_byte_array_append(bytes, (const uint8_t *)&config, sizeof(config));
	add_all_metadata(bytes, options, plan);
	((struct message_config *)bytes->data)->metadata_bytes =
		(uint32_t)(bytes->len - sizeof(config));
	return bytes;
}

bool engine_config_send(struct engine *engine, const struct options *options,
			const struct perf_plan *plan, uint32_t session, int capture_fd,
			GError **error)
{
	g_autoptr(GByteArray) body = make_config(options, plan, session);
	int fds[4] = { capture_fd, -1, -1, -1 };
	static const char *const paths[] = { "/proc/stat", "/sys/devices/system/cpu/online",
					     "/proc/kallsyms" };
	unsigned n = 1;
	bool ok = true;

	for (size_t i = 0; ok && i < ARRAY_SIZE(paths); i++) {
		bool optional = i == ARRAY_SIZE(paths) - 1;
		int fd = -1;

		/* Kernel addresses are only for clients that may see them. */
		if (!optional || options->kernel)
			fd = open(paths[i], O_RDONLY | O_CLOEXEC);
		if (fd >= 0)
			fds[n++] = fd;
		else if (!optional)
			ok = broker_fail(error, BROKER_ERROR_FAILED, "opening \"%s\": %s", paths[i],
					 ERRNO_TEXT(errno));
	}
	((struct message_config *)body->data)->has_kallsyms = n == ARRAY_SIZE(fds);
	ok = ok && engine_send(engine, MESSAGE_CONFIG, body->data, body->len, fds, n, error);
	while (n > 1)
		close(fds[--n]);
	return ok;
}

static bool send_arguments(struct engine *engine, const struct event *event, unsigned source,
			   GError **error)
{
	struct message_arguments body = { .source = source, .n = event->n_arguments };

	memcpy(body.arguments, event->arguments, sizeof(body.arguments));
	g_strlcpy(body.filter, event->filter, sizeof(body.filter));
	return engine_send(engine, MESSAGE_ARGUMENTS, &body, sizeof(body), NULL, 0, error);
}

bool engine_config_send_fields(struct engine *engine, const struct perf_plan *plan, GError **error)
{
	struct event_dirs dirs;
	bool ok = true;

	event_dirs_open(&dirs);
	for (unsigned i = 0; ok && i < plan->n_events; i++) {
		const struct event *event = &plan->events[i];
		g_autoptr(GByteArray) body = g_byte_array_new();
		g_autoptr(GArray) fields = NULL;
		struct message_fields header = { .source = i };

		if (event->kind == PROF_SOURCE_PROBE)
			ok = send_arguments(engine, event, i, error);
		if (event->kind == PROF_SOURCE_PROBE && !event->same_as)
			fields = probes_fields(plan->events, plan->n_events, i);
		else if (plan->fields && !event->off_cpu)
			fields = event_fields(&dirs, event);
		if (!ok || !fields || fields->len == 0)
			continue;
		header.n = fields->len;
		g_byte_array_append(body, (const uint8_t *)&header, sizeof(header));
		g_byte_array_append(body, (const uint8_t *)fields->data,
				    fields->len * (unsigned)sizeof(struct message_field));
		ok = engine_send(engine, MESSAGE_FIELDS, body->data, body->len, NULL, 0, error);
	}
	event_dirs_done(&dirs);
	return ok;
}

bool engine_config_send_counters(struct engine *engine, const struct counter_files *files,
				 GError **error)
{
	bool ok = true;

	for (unsigned first = 0; ok && first < files->n; first += MESSAGE_MAX_FDS) {
		unsigned n = MIN_OF(files->n - first, (unsigned)MESSAGE_MAX_FDS);

		ok = engine_send(engine, MESSAGE_COUNTERS, files->files + first,
				 n * sizeof(files->files[0]), files->fds + first, n, error);
	}
	return ok;
}
