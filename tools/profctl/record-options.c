/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Record-options - converts the command line to the options of a session
 *
 * Refuses only contradictions. profd checks whether events exist and the frequency is allowed.
 */
#include "config.h"

#include "tools/profctl/record-options.h"

#include "daemon/broker/events.h"
#include "tools/profctl/probe-names.h"

#include <glib/gi18n.h>

static const char *const call_graphs[] = { "auto", "fp", "dwarf", "none", NULL };
static const char *const policies[] = { "lossless", "drop", NULL };
const char *const record_buses[] = { "auto", "system", "private", NULL };
static const char *const counter_groups[] = { "all",    "cpu",         "frequency", "pressure",
					      "memory", "disk",        "network",   "cgroup",
					      "energy", "temperature", "process",   NULL };
static const char *const memory_modes[] = { "all", "sample:", NULL };

#define CHEAP_SLEEPS 3000      /* per second: about 1 % of a CPU, at 3 us each */
#define MAX_COMMAND_BYTES 8192 /* half of profd's limit, which also counts other data */

#define FIELD(name) offsetof(struct record_options, name)

const struct cli_option record_what_options[] = {
	{ "system", 'a', CLI_FLAG, FIELD(system), NULL, N_("Every process") },
	{ "pid", 'p', CLI_NUMBERS, FIELD(pids), N_("PID"),
	  N_("Record this process, its threads and later children; repeatable") },
	{ NULL },
};

static const struct cli_option sampling_options[] = {
	{ "event", 'e', CLI_LIST, FIELD(events), N_("EVENT[,...]"),
	  N_("Sample on EVENT: an event named as in perf, a function (FILE:FUNCTION[%return]) or a static probe (default: cycles, else cpu-clock)") },
	{ "frequency", 'F', CLI_UINT, FIELD(frequency), N_("HZ"),
	  N_("Samples per second on each CPU (default: 999; 0: none)"), NULL, 0, UINT32_MAX },
	{ NULL },
};

const struct cli_option record_stack_options[] = {
	{ "call-graph", 'g', CLI_CHOICE, FIELD(call_graph), N_("MODE"),
	  N_("How to find callers (default: auto; -g without a value: auto)"), call_graphs,
	  .bare = true },
	{ "no-kernel", 0, CLI_FLAG, FIELD(no_kernel), NULL, N_("Leave out kernel functions") },
	{ "no-interpreters", 0, CLI_FLAG, FIELD(no_interpreters), NULL,
	  N_("Do not read the functions of Python, Ruby, PHP, Perl and Node.js programs") },
	{ NULL },
};

static const struct cli_option python_options[] = {
	{ "python-perf", 0, CLI_FLAG, FIELD(python_perf), NULL,
	  N_("Set PYTHONPERFSUPPORT=1: Python 3.12 and later names its functions itself, but runs more slowly. Use it if the names are missing otherwise") },
	{ NULL },
};

static const char *const off_cpu_times[] = { "1ms", NULL };

static const struct cli_option wait_options[] = {
	{ "off-cpu", 0, CLI_OPTIONAL, FIELD(off_cpu), "[=TIME]",
	  N_("Record where threads wait (default for COMMAND and --pid without --control, but then without stacks if the machine's threads wait more than 3000 times a second). If the kernel gives no stack for a wait longer than TIME (default: 1ms), profd reads it from the waiting thread"),
	  off_cpu_times },
	{ "no-off-cpu", 0, CLI_FLAG, FIELD(no_off_cpu), NULL,
	  N_("Do not record where threads wait") },
	{ "wakers", 0, CLI_FLAG, FIELD(wakers), NULL,
	  N_("Record which thread wakes a waiting thread, such as the one that releases a lock (needs root or the profd service)") },
	{ NULL },
};

static const struct cli_option counter_options[] = {
	{ "counters", 0, CLI_OPTIONAL, FIELD(counters), "[=LIST]",
	  N_("Record what the machine and the processes do, ten times a second: all, or a list of cpu,frequency,pressure,memory,disk,network,cgroup,energy,temperature,process"),
	  counter_groups },
	{ NULL },
};

static const struct cli_option memory_options[] = {
	{ "memory", 0, CLI_OPTIONAL, FIELD(memory_mode), "[=all|sample:BYTES]",
	  N_("Record allocations: all (the default without '=...'), or on average one per BYTES allocated"),
	  memory_modes },
	{ "memory-min", 0, CLI_SIZE, FIELD(memory_min), N_("SIZE"),
	  N_("Ignore smaller allocations") },
	{ "memory-mmap", 0, CLI_FLAG, FIELD(memory_mmap), NULL,
	  N_("Also record memory that the program maps with mmap()") },
	{ NULL },
};

static const struct cli_option when_options[] = {
	{ "duration", 'd', CLI_DURATION, FIELD(duration_ns), N_("TIME"),
	  N_("Stop after TIME: 10, 1.5, 500ms, 2m") },
	{ "delay", 'D', CLI_DURATION, FIELD(delay_ns), N_("TIME"),
	  N_("Wait TIME before sampling") },
	{ "control", 0, CLI_UINT, FIELD(control), "FD",
	  N_("Let the program at the other end of socket FD start and stop sampling"), NULL, 0,
	  INT32_MAX },
	{ NULL },
};

static const struct cli_option mark_options[] = {
	{ "policy", 0, CLI_CHOICE, FIELD(policy), N_("WHAT"),
	  N_("If marks or allocations arrive too fast, drop them or make the program wait briefly (lossless). Default: drop marks, wait for allocations"),
	  policies },
	{ "no-sysprof", 0, CLI_FLAG, FIELD(no_sysprof), NULL,
	  N_("Ignore marks that programs send through sysprof's protocol") },
	{ NULL },
};

static const struct cli_option output_options[] = {
	{ "output", 'o', CLI_STRING, FIELD(output), N_("FILE"),
	  N_("Write FILE (default: NAME-DATE-TIME.cap; \"-\": standard output)") },
	{ "force", 0, CLI_FLAG, FIELD(force), NULL, N_("Overwrite an existing FILE") },
	{ "append", 0, CLI_FLAG, FIELD(append), NULL, N_("Continue an existing FILE") },
	{ "no-symbols", 0, CLI_FLAG, FIELD(no_symbols), NULL,
	  N_("Add no function names; 'profcapture symbolize' can do so later") },
	{ "bus", 0, CLI_CHOICE, FIELD(bus), N_("WHICH"),
	  N_("Use the profd service (system), a profd of its own (private), or the service if there is one (auto, the default)"),
	  record_buses },
	{ "view", 0, CLI_FLAG, FIELD(view), NULL,
	  N_("After recording, show the report in the browser, like 'profcapture view'") },
	{ "quiet", 'q', CLI_FLAG, FIELD(quiet), NULL, N_("Print errors only") },
	{ "json", 0, CLI_FLAG, FIELD(json), NULL, N_("Print the summary as one line of JSON") },
	{ NULL },
};

static const struct cli_spec spec = {
	.synopsis = N_("[--system | --pid PID... | [--] COMMAND [ARG...]]"),
	.description = N_(
		"Record where time is spent. Ctrl-C stops; a second one skips symbol names; a third aborts."),
	.max_operands = UINT_MAX,
	.command = true,
};

int record_split_events(GPtrArray **list)
{
	g_autoptr(GPtrArray) events = g_ptr_array_new_with_free_func(g_free);

	for (guint i = 0; i < (*list)->len; i++) {
		const char *given = (*list)->pdata[i];
		const char *start = given, *end;

		do {
			g_autofree char *event = NULL;
			bool is_path = *start == '/' || *start == '.'; /* path of a probe's file */
			bool in_terms = false; /* between the slashes of "pmu/term,term/" */
			bool in_quotes = false;

			for (end = start; *end && (*end != ',' || in_terms || in_quotes); end++) {
				in_quotes ^= *end == '"';
				in_terms ^= *end == '/' && !is_path && !in_quotes;
			}
			event = g_strndup(start, (gsize)(end - start));
			if (!*event)
				return cli_usage_error(_("--event: '%s' has an empty name"), given);
			if (!g_utf8_validate(event, -1, NULL))
				return cli_usage_error(_("--event: '%s' is not UTF-8"), event);
			if (!g_ptr_array_find_with_equal_func(events, event, g_str_equal, NULL))
				g_ptr_array_add(events, g_steal_pointer(&event));
			start = end + 1;
		} while (*end);
	}
	g_ptr_array_unref(*list);
	*list = g_steal_pointer(&events);
	return CLI_CONTINUE;
}

/* Checks the options of --memory. Returns CLI_CONTINUE, or an exit status after a message. */
static int check_memory(struct record_options *options)
{
	struct preload_memory *memory = &options->memory;
	const char *mode = options->memory_mode, *meant;
	g_autoptr(GError) error = NULL;

	if (!mode && options->memory_min != RECORD_NO_MIN)
		return cli_usage_error(_("--memory-min needs --memory"));
	if (!mode && options->memory_mmap)
		return cli_usage_error(_("--memory-mmap needs --memory"));
	if (!mode)
		return CLI_CONTINUE;
	memory->wanted = true;
	if (g_str_has_prefix(mode, memory_modes[1])) {
		if (!units_parse_size(mode + strlen(memory_modes[1]), &memory->sample_bytes,
				      &error))
			return cli_usage_error("--memory: %s", error->message);
		if (memory->sample_bytes == 0 || memory->sample_bytes > INT64_MAX)
			return cli_usage_error(
				_("--memory: '%s': BYTES must be at least 1; --memory=all records each allocation"),
				mode);
	} else if (strcmp(mode, memory_modes[0]) != 0) {
		meant = cli_suggest(mode, memory_modes);
		if (meant)
			cli_error(_("--memory: unknown value '%s'. Did you mean '%s'?"), mode,
				  meant);
		else
			cli_error(_("--memory: unknown value '%s'. Valid: all sample:BYTES"), mode);
		return CLI_USAGE;
	}
	if (!options->command && !options->pids)
		return cli_usage_error(_(
			"--memory needs a COMMAND, or --pid of programs that were started with the "
			"library that records allocations"));
	memory->mmap = options->memory_mmap;
	if (options->memory_min != RECORD_NO_MIN)
		memory->min_bytes = options->memory_min;
	return CLI_CONTINUE;
}

/* Checks the list of --counters. Returns CLI_CONTINUE, or an exit status after a message. */
static int check_counters(const struct record_options *options)
{
	g_auto(GStrv) groups = g_strsplit(options->counters, ",", -1);
	g_autofree char *valid = g_strjoinv(" ", (char **)counter_groups);

	if (!groups[0])
		return cli_usage_error(_("--counters: the list is empty. Valid: %s"), valid);
	for (char **group = groups; *group; group++) {
		const char *meant = cli_suggest(*group, counter_groups);

		if (g_strv_contains(counter_groups, *group))
			continue;
		if (meant)
			cli_error(_("--counters: unknown value '%s'. Did you mean '%s'?"), *group,
				  meant);
		else
			cli_error(_("--counters: unknown value '%s'. Valid: %s"), *group, valid);
		return CLI_USAGE;
	}
	return CLI_CONTINUE;
}

/* Refuses contradictions. Returns CLI_CONTINUE, or an exit status after a message. */
static int check(const struct record_options *options)
{
	bool to_stdout = options->output && strcmp(options->output, "-") == 0;

	if (options->pids && options->command)
		return cli_usage_error(_("--pid and a command exclude each other"));
	if (options->pids && options->system)
		return cli_usage_error(_("--pid and --system exclude each other"));
	if (options->python_perf && !options->command)
		return cli_usage_error(_("--python-perf needs a COMMAND"));
	if (options->off_cpu && options->no_off_cpu)
		return cli_usage_error(_("--off-cpu and --no-off-cpu exclude each other"));
	if (options->wakers && options->no_off_cpu)
		return cli_usage_error(_("--wakers and --no-off-cpu exclude each other"));
	if (options->append && options->force)
		return cli_usage_error(_("--append and --force exclude each other"));
	if (options->append && (!options->output || to_stdout))
		return cli_usage_error(_("--append needs --output FILE, the capture to continue"));
	if (options->control != RECORD_NO_CONTROL && (!options->pids || options->delay_ns))
		return cli_usage_error(_("--control needs --pid, and excludes --delay"));
	if (options->json && to_stdout)
		return cli_usage_error(_("--json and '--output -' both write to standard output"));
	if (options->view && (options->json || to_stdout))
		return cli_usage_error(_("--view excludes --json and '--output -'"));
	if (options->duration_ns == 0)
		return cli_usage_error(
			_("--duration: 0 would record nothing; leave it out to record until "
			  "Ctrl-C or the end of the command"));
	if (options->duration_ns != RECORD_NO_END && options->duration_ns > RECORD_MAX_NS)
		return cli_usage_error(
			_("--duration: at most %d days are possible; leave it out to record until "
			  "Ctrl-C or the end of the command"),
			RECORD_MAX_DAYS);
	if (options->delay_ns > RECORD_MAX_NS)
		return cli_usage_error(_("--delay: at most %d days are possible"), RECORD_MAX_DAYS);
	return CLI_CONTINUE;
}

int record_options_parse(struct record_options *options, int argc, char **argv)
{
	const struct cli_group groups[] = {
		{ N_("What to record (default: COMMAND if given, else the system)"),
		  record_what_options, options },
		{ N_("Sampling"), sampling_options, options },
		{ NULL, record_stack_options, options },
		{ NULL, python_options, options },
		{ N_("Waiting"), wait_options, options },
		{ N_("Memory (of COMMAND, or of a PID in which profd's collector library is loaded)"),
		  memory_options, options },
		{ N_("Counters"), counter_options, options },
		{ N_("When"), when_options, options },
		{ N_("Marks"), mark_options, options },
		{ N_("Output"), output_options, options },
		{ NULL },
	};
	g_autoptr(GError) error = NULL;
	int status;

	*options = RECORD_OPTIONS_DEFAULT;
	status = cli_parse(&spec, groups, &argc, &argv);
	if (status == CLI_CONTINUE && options->events)
		status = record_split_events(&options->events);
	if (status != CLI_CONTINUE)
		return status;
	if (argc > 0)
		options->command = argv;
	if (options->events &&
	    !probe_names_complete(options->events, options->command, options->pids, &error))
		return cli_usage_error("%s", error->message);
	status = check_memory(options);
	if (status == CLI_CONTINUE && options->counters)
		status = check_counters(options);
	if (status != CLI_CONTINUE)
		return status;
	if (options->wakers && !options->off_cpu)
		options->off_cpu = off_cpu_times[0];
	if (options->off_cpu &&
	    !units_parse_duration(options->off_cpu, &options->off_cpu_ns, &error))
		return cli_usage_error("--off-cpu: %s", error->message);
	if (!options->command && !options->pids)
		options->system = true;
	return check(options);
}

bool record_options_have_probes(const struct record_options *options)
{
	for (guint i = 0; options->events && i < options->events->len; i++)
		if (event_is_probe(options->events->pdata[i]))
			return true;
	return false;
}

void record_options_done(struct record_options *options)
{
	g_clear_pointer(&options->pids, g_array_unref);
	g_clear_pointer(&options->events, g_ptr_array_unref);
}

/* Returns the command for display. If it is very long, it is cut and ends with "…". */
static GVariant *command_of(char *const *command)
{
	g_autoptr(GPtrArray) words = g_ptr_array_new();
	size_t bytes = 0;

	for (; *command; command++) {
		bytes += strlen(*command) + 1;
		if (bytes > MAX_COMMAND_BYTES) {
			g_ptr_array_add(words, (char *)text_sign(TEXT_ELLIPSIS));
			break;
		}
		g_ptr_array_add(words, *command);
	}
	return g_variant_new_bytestring_array((const char *const *)words->pdata,
					      (gssize)words->len);
}

GVariant *record_options_session(const struct record_options *options, pid_t pid)
{
	const struct preload_memory *memory = &options->memory;
	uint32_t number = (uint32_t)pid;
	GVariantDict dict;

	g_variant_dict_init(&dict, NULL);
	if (options->system)
		g_variant_dict_insert(&dict, "system", "b", TRUE);
	else
		g_variant_dict_insert_value(
			&dict, "pids",
			g_variant_new_fixed_array(
				G_VARIANT_TYPE_UINT32,
				options->pids ? (uint32_t *)(void *)options->pids->data : &number,
				options->pids ? options->pids->len : 1, sizeof(number)));
	if (options->events)
		g_variant_dict_insert_value(
			&dict, "events",
			g_variant_new_strv((const char *const *)options->events->pdata,
					   options->events->len));
	g_variant_dict_insert(&dict, "frequency", "u", (guint32)options->frequency);
	g_variant_dict_insert(&dict, "call-graph", "s", call_graphs[options->call_graph]);
	/* without this option, profd excludes the kernel only if it must */
	if (options->no_kernel)
		g_variant_dict_insert(&dict, "kernel", "b", FALSE);
	if (options->no_interpreters)
		g_variant_dict_insert(&dict, "interpreters", "b", FALSE);
	if (options->policy != RECORD_POLICY_DEFAULT)
		g_variant_dict_insert(&dict, "policy", "s", policies[options->policy]);
	/* Unless the user asks for waits, they are recorded only while they cost less than 1 % of a
	 * CPU. */
	if (options->off_cpu ||
	    (!options->system && !options->no_off_cpu && options->control == RECORD_NO_CONTROL))
		g_variant_dict_insert(&dict, "off-cpu", "b", TRUE);
	if (options->wakers)
		g_variant_dict_insert(&dict, "wakers", "b", TRUE);
	if (options->off_cpu)
		g_variant_dict_insert(&dict, "off-cpu-threshold", "t",
				      (guint64)options->off_cpu_ns);
	if (!options->off_cpu && !options->system && !options->no_off_cpu &&
	    options->control == RECORD_NO_CONTROL)
		g_variant_dict_insert(&dict, "off-cpu-max-rate", "u", (guint32)CHEAP_SLEEPS);
	/* The library gets its settings from the environment. The session must know which
	 * allocations to expect, and from which process. */
	if (memory->wanted)
		g_variant_dict_insert(&dict, "memory", "b", TRUE);
	if (memory->wanted && options->system)
		g_variant_dict_insert(&dict, "memory-pid", "u", number);
	if (memory->sample_bytes)
		g_variant_dict_insert(&dict, "memory-sample", "t", (guint64)memory->sample_bytes);
	if (memory->min_bytes)
		g_variant_dict_insert(&dict, "memory-min", "t", (guint64)memory->min_bytes);
	if (memory->mmap)
		g_variant_dict_insert(&dict, "memory-mmap", "b", TRUE);
	if (options->counters) {
		g_auto(GStrv) groups = g_strsplit(options->counters, ",", -1);

		g_variant_dict_insert_value(&dict, "counters",
					    g_variant_new_strv((const char *const *)groups, -1));
	}
	if (options->append)
		g_variant_dict_insert(&dict, "append", "b", TRUE);
	if (options->delay_ns)
		g_variant_dict_insert(&dict, "paused", "b", TRUE);
	if (options->control != RECORD_NO_CONTROL)
		g_variant_dict_insert(&dict, "switch", "h", 1);
	if (options->command)
		g_variant_dict_insert_value(&dict, "command", command_of(options->command));
	return g_variant_dict_end(&dict);
}

char *record_options_stem(const struct record_options *options)
{
	if (options->command)
		return g_path_get_basename(options->command[0]);
	if (options->pids)
		return g_strdup_printf("pid-%u", g_array_index(options->pids, uint32_t, 0));
	return g_strdup("system");
}

#define MAX_TARGET 60 /* columns */

char *record_options_target(const struct record_options *options, bool with_arguments)
{
	g_autoptr(GString) text = g_string_new(NULL);
	g_autofree char *escaped = NULL;

	if (options->command) {
		for (char **word = options->command; *word; word++) {
			g_autofree char *quoted = text_shell_word(*word);

			g_string_append_printf(text, "%s%s", text->len ? " " : "", quoted);
			if (!with_arguments || text->len > MAX_COMMAND_BYTES)
				break;
		}
	} else if (options->pids) {
		g_autoptr(GString) pids = g_string_new(NULL);

		for (guint i = 0; i < options->pids->len; i++)
			g_string_append_printf(pids, "%s%u", i ? ", " : "",
					       g_array_index(options->pids, uint32_t, i));
		g_string_append_printf(text,
				       ngettext("process %s", "processes %s", options->pids->len),
				       pids->str);
	} else {
		g_string_append(text, _("the system"));
	}
	escaped = text_escape(text->str);
	return text_cut(escaped, MAX_TARGET);
}
