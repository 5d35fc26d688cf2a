/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Options - turns CreateSession's dictionary into a checked struct
 *
 * A table has the type of each key and the function that parses its value. Nothing is ignored: an
 * unknown key, a value of the wrong type, and options that contradict each other are refused by
 * name, before anything is opened.
 */
#include "config.h"

#include "daemon/broker/options.h"

#include "arch/base.h"
#include "arch/regs.h"
#include "daemon/broker/counter-files.h"
#include "daemon/broker/error.h"
#include "daemon/broker/interpreters.h"
#include "daemon/broker/limits.h"
#include "daemon/broker/perf.h"
#include "daemon/deferred-close.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define DEFAULT_FREQUENCY 999
#define DEFAULT_THRESHOLD_NS 1000000
#define MAX_COMMAND_BYTES 16384
#define NO_STACKS "stacks are not unwound on this architecture"
#define POSSIBLE_US (5 * G_USEC_PER_SEC)
/* For "auto": DWARF, unless the unwinder does not support this architecture's registers. */
#define BEST_CALL_GRAPH (REGS_NATIVE == REGS_NONE ? ENGINE_CALL_GRAPH_FP : ENGINE_CALL_GRAPH_DWARF)

struct parse {
	struct options *options;
	GUnixFDList *fds;
	GVariant *events; /* type "as"; parsed last, because it depends on the frequency */
	uint32_t seen;    /* bit i: keys[i] was given */
};

static bool parse_kernel(struct parse *parse, GVariant *value, GError **error)
{
	parse->options->kernel_requested = g_variant_get_boolean(value);
	parse->options->kernel = parse->options->kernel_requested;
	return true;
}

static bool check_pid(uint32_t pid, GError **error)
{
	if (pid == 0 || pid > INT32_MAX || (kill((pid_t)pid, 0) < 0 && errno == ESRCH))
		return broker_fail(error, BROKER_ERROR_FAILED, "there is no process %u", pid);
	return true;
}

static bool has_pid(const struct options *options, int32_t pid)
{
	for (unsigned i = 0; i < options->n_pids; i++)
		if (options->pids[i] == pid)
			return true;
	return false;
}

/* Keeps each pid once, because many descriptors may be opened for a process. */
static bool parse_pids(struct parse *parse, GVariant *value, GError **error)
{
	struct options *options = parse->options;
	gsize n;
	const uint32_t *pids = g_variant_get_fixed_array(value, &n, sizeof(*pids));

	if (n == 0 || n > ENGINE_MAX_TARGETS)
		return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
				   "option \"pids\" has %zu processes; 1 to %d are possible", n,
				   ENGINE_MAX_TARGETS);
	for (gsize i = 0; i < n; i++) {
		if (!check_pid(pids[i], error))
			return false;
		if (!has_pid(options, (int32_t)pids[i]))
			options->pids[options->n_pids++] = (int32_t)pids[i];
	}
	return true;
}

static bool parse_frequency(struct parse *parse, GVariant *value, GError **error)
{
	uint32_t frequency = g_variant_get_uint32(value);
	uint32_t max = perf_max_frequency();

	if (frequency > max)
		return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
				   "frequency %u is above the kernel's limit of %u "
				   "(kernel.perf_event_max_sample_rate). Use -F %u or less.",
				   frequency, max, max);
	parse->options->frequency = frequency;
	return true;
}

static bool keep_events(struct parse *parse, GVariant *value, GError **error)
{
	gsize n = g_variant_n_children(value);

	if (n == 0 || n > ENGINE_MAX_SOURCES)
		return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
				   "option \"events\" has %zu events; 1 to %d are possible", n,
				   ENGINE_MAX_SOURCES);
	parse->events = g_variant_ref(value);
	return true;
}

static bool parse_call_graph(struct parse *parse, GVariant *value, GError **error)
{
	const char *name = g_variant_get_string(value, NULL);

	if (strcmp(name, "none") == 0)
		parse->options->call_graph = ENGINE_CALL_GRAPH_NONE;
	else if (strcmp(name, "fp") == 0)
		parse->options->call_graph = ENGINE_CALL_GRAPH_FP;
	else if (strcmp(name, "auto") == 0)
		parse->options->call_graph = BEST_CALL_GRAPH;
	else if (strcmp(name, "dwarf") == 0 && REGS_NATIVE == REGS_NONE)
		return broker_fail(error, BROKER_ERROR_NOT_SUPPORTED,
				   "call-graph \"dwarf\" is not there for this architecture; "
				   "\"fp\" follows frame pointers");
	else if (strcmp(name, "dwarf") == 0)
		parse->options->call_graph = ENGINE_CALL_GRAPH_DWARF;
	else
		return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
				   "unknown call-graph \"%s\"; valid are auto, fp, dwarf, none",
				   name);
	return true;
}

static bool parse_policy(struct parse *parse, GVariant *value, GError **error)
{
	const char *name = g_variant_get_string(value, NULL);

	/* Only collectors' rings have a policy: perf's rings always drop, and count the losses. */
	if (strcmp(name, "drop") == 0)
		parse->options->policy = ENGINE_POLICY_DROP;
	else if (strcmp(name, "lossless") == 0)
		parse->options->policy = ENGINE_POLICY_LOSSLESS;
	else
		return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
				   "unknown policy \"%s\"; valid are lossless, drop", name);
	return true;
}

static bool parse_descriptor(const struct parse *parse, const char *key, GVariant *value,
			     int *ret_fd, GError **error)
{
	int index = g_variant_get_handle(value);
	int fd = -1;

	if (parse->fds && index >= 0 && index < g_unix_fd_list_get_length(parse->fds))
		fd = g_unix_fd_list_get(parse->fds, index, NULL);
	if (fd < 0)
		return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
				   "option \"%s\" names no descriptor of the message", key);
	*ret_fd = fd;
	return true;
}

static bool parse_lifetime(struct parse *parse, GVariant *value, GError **error)
{
	int *fd = &parse->options->lifetime_fd;
	struct statx status;

	if (!parse_descriptor(parse, "lifetime", value, fd, error))
		return false;
	/* AT_STATX_DONT_SYNC: do not query a file's server. */
	if (statx(*fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &status) < 0 ||
	    !(S_ISFIFO(status.stx_mode) || S_ISSOCK(status.stx_mode)))
		return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
				   "option \"lifetime\" is neither a pipe nor a socket, so it "
				   "would never hang up");
	return true;
}

/* The descriptor must be a socket, because the engine reads from it without waiting. */
static bool parse_switch(struct parse *parse, GVariant *value, GError **error)
{
	int *fd = &parse->options->switch_fd, domain, type;
	socklen_t bytes = sizeof(domain);

	if (!parse_descriptor(parse, "switch", value, fd, error))
		return false;
	if (getsockopt(*fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) < 0 || domain != AF_UNIX ||
	    getsockopt(*fd, SOL_SOCKET, SO_TYPE, &type, &bytes) < 0 || type != SOCK_SEQPACKET)
		return broker_fail(
			error, BROKER_ERROR_INVALID_OPTION,
			"option \"switch\" is not an AF_UNIX socket of type SOCK_SEQPACKET");
	return true;
}

static bool parse_command(struct parse *parse, GVariant *value, GError **error)
{
	if (g_variant_get_size(value) > MAX_COMMAND_BYTES)
		return broker_fail(error, BROKER_ERROR_LIMIT_EXCEEDED,
				   "option \"command\" is longer than %d bytes", MAX_COMMAND_BYTES);
	parse->options->command = g_variant_dup_bytestring_array(value, NULL);
	return true;
}

static bool parse_memory_pid(struct parse *parse, GVariant *value, GError **error)
{
	parse->options->memory_pid = (int32_t)g_variant_get_uint32(value);
	return check_pid(g_variant_get_uint32(value), error);
}

static bool parse_max_sleeps(struct parse *parse, GVariant *value, GError **error)
{
	parse->options->off_cpu_max_rate = g_variant_get_uint32(value);
	return true;
}

static bool parse_counters(struct parse *parse, GVariant *value, GError **error)
{
	return counter_groups_parse(value, &parse->options->counters, error);
}

#define FIELD(name) NULL, offsetof(struct options, name)

/* If parse is NULL, the value is stored unchanged. */
static const struct {
	const char *key, *type;
	bool (*parse)(struct parse *parse, GVariant *value, GError **error);
	size_t offset; /* offset of a bool ("b") or uint64_t ("t") in struct options */
} keys[] = {
	{ "append", "b", FIELD(append) },
	{ "call-graph", "s", parse_call_graph },
	{ "children", "b", FIELD(children) },
	{ "command", "aay", parse_command },
	{ "counters", "as", parse_counters },
	{ "events", "as", keep_events },
	{ "frequency", "u", parse_frequency },
	{ "interpreters", "b", FIELD(interpreters) },
	{ "kernel", "b", parse_kernel },
	{ "lifetime", "h", parse_lifetime },
	{ "max-bytes", "t", FIELD(max_bytes) },
	{ "max-duration", "t", FIELD(max_duration_ns) },
	{ "max-rate", "t", FIELD(max_rate) },
	{ "memory", "b", FIELD(memory) },
	{ "memory-min", "t", FIELD(memory_min) },
	{ "memory-mmap", "b", FIELD(memory_mmap) },
	{ "memory-pid", "u", parse_memory_pid },
	{ "memory-sample", "t", FIELD(memory_sample) },
	{ "off-cpu", "b", FIELD(off_cpu) },
	{ "off-cpu-max-rate", "u", parse_max_sleeps },
	{ "off-cpu-threshold", "t", FIELD(off_cpu_threshold_ns) },
	{ "paused", "b", FIELD(paused) },
	{ "pids", "au", parse_pids },
	{ "policy", "s", parse_policy },
	{ "ring-bytes", "t", FIELD(ring_bytes) },
	{ "switch", "h", parse_switch },
	{ "system", "b", FIELD(system) },
	{ "wakers", "b", FIELD(wakers) },
};

static bool parse_option(struct parse *parse, const char *key, GVariant *value, GError **error)
{
	const char *names[ARRAY_SIZE(keys) + 1] = { NULL };
	g_autofree char *valid = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		if (strcmp(keys[i].key, key) == 0) {
			void *field = (char *)parse->options + keys[i].offset;

			if (parse->seen & 1u << i)
				return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
						   "option \"%s\" is given twice", key);
			parse->seen |= 1u << i;
			if (!g_variant_is_of_type(value, G_VARIANT_TYPE(keys[i].type)))
				return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
						   "option \"%s\" is of type \"%s\", not \"%s\"",
						   key, keys[i].type,
						   g_variant_get_type_string(value));
			if (keys[i].parse)
				return keys[i].parse(parse, value, error);
			if (keys[i].type[0] == 'b')
				*(bool *)field = g_variant_get_boolean(value);
			else
				*(uint64_t *)field = g_variant_get_uint64(value);
			return true;
		}
		names[i] = keys[i].key;
	}
	valid = g_strjoinv(", ", (char **)names);
	return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
			   "unknown option \"%s\"; valid are %s", key, valid);
}

/* Checks that "memory", the options "memory-…" and "system" fit together. */
static bool check_memory(const struct options *options, GError **error)
{
	if (!options->memory && (options->memory_pid || options->memory_min ||
				 options->memory_sample || options->memory_mmap))
		return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
				   "options \"memory-…\" need \"memory\"");
	if (options->memory && options->system != (options->memory_pid != 0))
		return broker_fail(
			error, BROKER_ERROR_INVALID_OPTION,
			options->system ? "with \"system\", option \"memory\" needs \"memory-pid\""
					: "option \"memory-pid\" is for \"system\" alone");
	return true;
}

static bool parse_events(struct parse *parse, GError **error)
{
	struct options *options = parse->options;
	bool ok = true;

	if (options->frequency == 0 && parse->events)
		return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
				   "frequency 0 means no sampling, and \"events\" asks for some");
	if (options->frequency == 0)
		return true;
	if (!parse->events) {
		ok = perf_default_event(&options->events[0], error);
		options->n_events = ok;
	}
	for (gsize i = 0; ok && parse->events && i < g_variant_n_children(parse->events); i++) {
		const char *name;

		g_variant_get_child(parse->events, i, "&s", &name);
		ok = event_parse(NULL, name, &options->events[i], error);
		options->n_events += ok;
	}
	return ok;
}

bool options_find_events(struct options *options, GError **error)
{
	struct event_dirs dirs;
	bool ok = true;

	event_dirs_open(&dirs);
	for (unsigned i = 0; ok && i < options->n_events; i++) {
		char name[EVENT_MAX_NAME];

		if (options->events[i].kind == PROF_SOURCE_PROBE) /* see probes.c */
			continue;
		g_strlcpy(name, options->events[i].name, sizeof(name));
		ok = event_parse(&dirs, name, &options->events[i], error);
	}
	event_dirs_done(&dirs);
	return ok;
}

/* Returns the requested options with the values that took effect, without descriptors. */
static GVariant *describe(const struct options *options, GVariant *variant)
{
	GVariantDict dict;
	GVariantIter iter;
	const char *key;
	GVariant *value;
	const char *names[ENGINE_MAX_SOURCES];

	g_variant_dict_init(&dict, NULL);
	g_variant_iter_init(&iter, variant);
	while (g_variant_iter_loop(&iter, "{&sv}", &key, &value))
		if (!g_variant_is_of_type(value, G_VARIANT_TYPE_HANDLE))
			g_variant_dict_insert_value(&dict, key, value);
	for (unsigned i = 0; i < options->n_events; i++)
		names[i] = options->events[i].name;
	g_variant_dict_insert_value(&dict, "events", g_variant_new_strv(names, options->n_events));
	g_variant_dict_insert(&dict, "frequency", "u", options->frequency);
	g_variant_dict_insert(&dict, "kernel", "b", options->kernel);
	return g_variant_ref_sink(g_variant_dict_end(&dict));
}

static bool parse_all(struct parse *parse, GVariant *variant, GError **error)
{
	GVariantIter iter;
	const char *key;
	GVariant *value;

	g_variant_iter_init(&iter, variant);
	while (g_variant_iter_next(&iter, "{&sv}", &key, &value)) {
		bool parsed = parse_option(parse, key, value, error);

		g_variant_unref(value);
		if (!parsed)
			return false;
	}
	return true;
}

bool options_parse(GVariant *variant, GUnixFDList *fds, struct options **ret_options,
		   GError **error)
{
	struct options *options = g_new0(struct options, 1);
	struct parse parse = { .options = options, .fds = fds };
	bool ok;

	if (g_variant_get_size(variant) > LIMITS_OPTIONS_BYTES) {
		g_free(options);
		return broker_fail(
			error, BROKER_ERROR_LIMIT_EXCEEDED,
			"the options have %zu bytes, which is more than MaxOptionsBytes, %d",
			g_variant_get_size(variant), LIMITS_OPTIONS_BYTES);
	}
	options->children = options->kernel = options->interpreters = true;
	options->frequency = DEFAULT_FREQUENCY;
	options->call_graph = BEST_CALL_GRAPH;
	options->lifetime_fd = options->switch_fd = -1;
	options->off_cpu_threshold_ns = DEFAULT_THRESHOLD_NS;
	ok = parse_all(&parse, variant, error);
	if (ok && options->system == (options->n_pids > 0))
		ok = broker_fail(error, BROKER_ERROR_INVALID_OPTION,
				 "either \"system\" or \"pids\" says what to record; %s",
				 options->system ? "both were given" : "neither was given");
	if (ok && options->off_cpu_max_rate && !options->off_cpu)
		ok = broker_fail(error, BROKER_ERROR_INVALID_OPTION,
				 "option \"off-cpu-max-rate\" needs \"off-cpu\"");
	/* Wakers are recorded for all waits or for none, so the waits' rate cannot be limited. */
	if (ok && options->wakers && (!options->off_cpu || options->off_cpu_max_rate))
		ok = broker_fail(
			error, BROKER_ERROR_INVALID_OPTION,
			"option \"wakers\" needs \"off-cpu\", without \"off-cpu-max-rate\"");
	ok = ok && check_memory(options, error) && parse_events(&parse, error);
	g_clear_pointer(&parse.events, g_variant_unref);
	if (!ok) {
		options_free(options);
		return false;
	}
	options->given = describe(options, variant);
	*ret_options = options;
	return true;
}

void options_set_reduced(struct options *options, bool kernel, const char *text)
{
	GVariantDict dict;

	g_variant_dict_init(&dict, options->given);
	g_variant_dict_insert(&dict, "kernel", "b", kernel);
	g_variant_dict_insert(&dict, "reduced", "s", text);
	g_variant_unref(options->given);
	options->given = g_variant_ref_sink(g_variant_dict_end(&dict));
	options->kernel = kernel;
	g_free(options->reduced);
	options->reduced = g_strdup(text);
}

void options_deny_kernel(struct options *options)
{
	GVariant *given = options->given;

	options->kernel = false;
	options->kernel_denied = true;
	options->given = describe(options, given);
	g_variant_unref(given);
}

void options_free(struct options *options)
{
	if (!options)
		return;
	deferred_close(options->lifetime_fd);
	deferred_close(options->switch_fd);
	for (unsigned i = 0; i < options->n_events; i++)
		if (options->events[i].kind == PROF_SOURCE_PROBE &&
		    options->events[i].probe_fd >= 0)
			close(options->events[i].probe_fd);
	g_strfreev(options->command);
	g_free(options->reduced);
	g_free(options->counters_missing);
	targets_free(options->targets);
	g_clear_pointer(&options->given, g_variant_unref);
	g_free(options);
}

/* The events and rights that profd has, found by opening events and loading programs. */
struct possible {
	GPtrArray *events; /* static names */
	bool system, kernel, off_cpu;
	char *no_tracepoints; /* why tracepoints cannot be recorded; NULL: they can */
	GStrv interpreters;   /* INTERP_FAMILY_KINDS of the interpreters that can be read */
	/* why the frames of other interpreters cannot be read; NULL: all can */
	char *no_interpreters;
	gint64 until_us; /* time of the next check, because sysctls may change */
};

static void find_interpreters(struct possible *possible)
{
	static const char *const kinds[] = INTERP_FAMILY_KINDS;
	g_autoptr(GStrvBuilder) readable = g_strv_builder_new();
	g_autoptr(GPtrArray) reasons = g_ptr_array_new_with_free_func(g_free);
	g_autoptr(GError) error = NULL;
	struct interpreters *loaded = NULL;

	if (BEST_CALL_GRAPH != ENGINE_CALL_GRAPH_DWARF)
		g_ptr_array_add(reasons, g_strdup(NO_STACKS));
	else if (!(loaded = interpreters_new(~0u, false, &error)))
		g_ptr_array_add(reasons, g_strdup(error->message));
	for (unsigned i = INTERP_NONE + 1; loaded && i < INTERP_FAMILIES; i++) {
		const char *refused = interpreters_refusal(loaded, i);

		if (refused)
			g_ptr_array_add(reasons, g_strdup(refused));
		else
			g_strv_builder_add(readable, kinds[i]);
	}
	interpreters_free(loaded);
	g_clear_pointer(&possible->interpreters, g_strfreev);
	g_clear_pointer(&possible->no_interpreters, g_free);
	possible->interpreters = g_strv_builder_end(readable);
	if (reasons->len) {
		g_ptr_array_add(reasons, NULL);
		possible->no_interpreters = g_strjoinv("; ", (char **)reasons->pdata);
	}
}

static const struct possible *find_possible(void)
{
	static struct possible possible;
	gint64 now_us = g_get_monotonic_time();
	g_autoptr(GError) error = NULL;
	struct event event;

	if (possible.events && now_us < possible.until_us)
		return &possible;
	g_clear_pointer(&possible.events, g_ptr_array_unref);
	possible.events = g_ptr_array_new();
	for (const char *const *name = event_names(); *name; name++)
		if (event_parse(NULL, *name, &event, NULL) && perf_event_works(&event))
			g_ptr_array_add(possible.events, (char *)*name);
	perf_rights(&possible.system, &possible.kernel);
	possible.off_cpu = perf_sleep_id(&event) != 0;
	g_clear_pointer(&possible.no_tracepoints, g_free);
	if (!perf_tracepoints_work(&error))
		possible.no_tracepoints = g_strdup(error->message);
	/* Loading takes 0.2 s, so it is not repeated once it has succeeded. */
	if (!possible.interpreters || !possible.interpreters[0])
		find_interpreters(&possible);
	possible.until_us = g_get_monotonic_time() + POSSIBLE_US;
	return &possible;
}

GVariant *options_capabilities(struct client_rights rights)
{
	static const char *const call_graphs[] = {
		"none", "fp", BEST_CALL_GRAPH == ENGINE_CALL_GRAPH_DWARF ? "dwarf" : NULL, NULL
	};
	const struct possible *possible = find_possible();
	const bool may_trace = rights.system || rights.others;
	GVariantDict dict;

	g_variant_dict_init(&dict, NULL);
	g_variant_dict_insert_value(&dict, "events",
				    g_variant_new_strv((const char *const *)possible->events->pdata,
						       possible->events->len));
	g_variant_dict_insert(&dict, "call-graphs", "^as", call_graphs);
	g_variant_dict_insert(&dict, "max-frequency", "u", perf_max_frequency());
	g_variant_dict_insert(&dict, "ring-bytes", "t", (guint64)PERF_RING_BUDGET);
	g_variant_dict_insert(&dict, "kernel", "b", rights.kernel && possible->kernel);
	g_variant_dict_insert(&dict, "system", "b", rights.system && possible->system);
	g_variant_dict_insert(&dict, "off-cpu", "s",
			      BEST_CALL_GRAPH != ENGINE_CALL_GRAPH_DWARF ? "none"
			      : possible->off_cpu                        ? "full"
									 : "own");
	if (BEST_CALL_GRAPH != ENGINE_CALL_GRAPH_DWARF)
		g_variant_dict_insert(&dict, "off-cpu-reason", "s", NO_STACKS);
	else if (!possible->off_cpu)
		g_variant_dict_insert(&dict, "off-cpu-reason", "s", PERF_NO_SLEEPS);
	g_variant_dict_insert(&dict, "interpreters", "^as", possible->interpreters);
	if (possible->no_interpreters)
		g_variant_dict_insert(&dict, "interpreters-reason", "s", possible->no_interpreters);
	g_variant_dict_insert(&dict, "tracepoints", "b", may_trace && !possible->no_tracepoints);
	if (possible->no_tracepoints)
		g_variant_dict_insert(&dict, "tracepoints-reason", "s", possible->no_tracepoints);
	else if (!may_trace)
		g_variant_dict_insert(&dict, "tracepoints-reason", "s",
				      "tracepoints need \"org.profd.record-others\"");
	return g_variant_dict_end(&dict);
}
