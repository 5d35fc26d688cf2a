/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Events - turns perf's event names into attributes
 *
 *     cpu-clock  page-faults           software        cycles  branch-misses    hardware
 *     LLC-load-misses                  cache           r1a8                     raw
 *     sched:sched_switch               tracepoint      cpu/event=0x3c,umask=1/  dynamic PMU
 *     sched:sched_switch/prev_pid==1/  tracepoint with a filter, which the kernel evaluates
 *     /usr/lib/libc.so.6:malloc%return  probe: file, and function or PROVIDER:NAME (probes.c)
 *     /opt/shop:shop:sold/arg1==3/      static probe with a filter, which the engine evaluates
 * Modifiers may follow every name except a probe's: ":u" user only, ":k" kernel only, ":p" to
 * ":ppp" precise.
 *
 * The text comes from the client.
 * Invariants: (1) a name is used in a path only after name_is_plain()  [test-events: hostile]
 *             (2) a text that cannot be parsed completely is refused  [test-events: refused]
 * No state. perf.c opens the events.
 */
#include "config.h"

#include "daemon/broker/events.h"

#include "arch/base.h"
#include "daemon/broker/error.h"

#define COUNTS_NS 1u
#define KERNEL_ONLY 2u

struct event_entry {
	const char *name;
	uint32_t type;
	uint32_t flags;
	uint64_t config;
};

#define SOFTWARE(name, config, flags)                                   \
	{                                                               \
		name, PERF_TYPE_SOFTWARE, flags, PERF_COUNT_SW_##config \
	}
#define HARDWARE(name, config)                                      \
	{                                                           \
		name, PERF_TYPE_HARDWARE, 0, PERF_COUNT_HW_##config \
	}

static const struct event_entry table[] = {
	HARDWARE("cycles", CPU_CYCLES),
	HARDWARE("cpu-cycles", CPU_CYCLES),
	HARDWARE("instructions", INSTRUCTIONS),
	HARDWARE("cache-references", CACHE_REFERENCES),
	HARDWARE("cache-misses", CACHE_MISSES),
	HARDWARE("branches", BRANCH_INSTRUCTIONS),
	HARDWARE("branch-instructions", BRANCH_INSTRUCTIONS),
	HARDWARE("branch-misses", BRANCH_MISSES),
	HARDWARE("bus-cycles", BUS_CYCLES),
	HARDWARE("ref-cycles", REF_CPU_CYCLES),
	HARDWARE("stalled-cycles-frontend", STALLED_CYCLES_FRONTEND),
	HARDWARE("idle-cycles-frontend", STALLED_CYCLES_FRONTEND),
	HARDWARE("stalled-cycles-backend", STALLED_CYCLES_BACKEND),
	HARDWARE("idle-cycles-backend", STALLED_CYCLES_BACKEND),
	SOFTWARE("cpu-clock", CPU_CLOCK, COUNTS_NS),
	SOFTWARE("task-clock", TASK_CLOCK, COUNTS_NS),
	SOFTWARE("page-faults", PAGE_FAULTS, 0),
	SOFTWARE("faults", PAGE_FAULTS, 0),
	SOFTWARE("minor-faults", PAGE_FAULTS_MIN, 0),
	SOFTWARE("major-faults", PAGE_FAULTS_MAJ, 0),
	SOFTWARE("context-switches", CONTEXT_SWITCHES, KERNEL_ONLY),
	SOFTWARE("cs", CONTEXT_SWITCHES, KERNEL_ONLY),
	SOFTWARE("cpu-migrations", CPU_MIGRATIONS, KERNEL_ONLY),
	SOFTWARE("migrations", CPU_MIGRATIONS, KERNEL_ONLY),
	SOFTWARE("cgroup-switches", CGROUP_SWITCHES, KERNEL_ONLY),
	SOFTWARE("alignment-faults", ALIGNMENT_FAULTS, 0),
	SOFTWARE("emulation-faults", EMULATION_FAULTS, 0),
};

static const char *const caches[PERF_COUNT_HW_CACHE_MAX + 1] = {
	[PERF_COUNT_HW_CACHE_L1D] = "L1-dcache", [PERF_COUNT_HW_CACHE_L1I] = "L1-icache",
	[PERF_COUNT_HW_CACHE_LL] = "LLC",        [PERF_COUNT_HW_CACHE_DTLB] = "dTLB",
	[PERF_COUNT_HW_CACHE_ITLB] = "iTLB",     [PERF_COUNT_HW_CACHE_BPU] = "branch",
	[PERF_COUNT_HW_CACHE_NODE] = "node",
};

/* Suffixes after a cache's name, with op | result << 8. */
static const struct {
	const char *suffix;
	uint64_t config;
} cache_operations[] = {
	{ "-loads", PERF_COUNT_HW_CACHE_OP_READ },
	{ "-load-misses", PERF_COUNT_HW_CACHE_OP_READ | PERF_COUNT_HW_CACHE_RESULT_MISS << 8 },
	{ "-stores", PERF_COUNT_HW_CACHE_OP_WRITE },
	{ "-store-misses", PERF_COUNT_HW_CACHE_OP_WRITE | PERF_COUNT_HW_CACHE_RESULT_MISS << 8 },
	{ "-prefetches", PERF_COUNT_HW_CACHE_OP_PREFETCH },
	{ "-prefetch-misses",
	  PERF_COUNT_HW_CACHE_OP_PREFETCH | PERF_COUNT_HW_CACHE_RESULT_MISS << 8 },
};

#define N_CACHE_NAMES (PERF_COUNT_HW_CACHE_MAX * ARRAY_SIZE(cache_operations))

const char *const *event_names(void)
{
	static const char *names[ARRAY_SIZE(table) + 1];
	static gsize filled;

	if (g_once_init_enter(&filled)) {
		for (size_t i = 0; i < ARRAY_SIZE(table); i++)
			names[i] = table[i].name;
		g_once_init_leave(&filled, 1);
	}
	return names;
}

/* Returns whether the name cannot leave the directory that it is appended to. */
static bool name_is_plain(const char *name)
{
	if (*name == '\0' || *name == '.')
		return false;
	for (; *name; name++)
		if (!g_ascii_isalnum(*name) && !strchr("_-.", *name))
			return false;
	return true;
}

/* Returns the edit distance of two words; SIZE_MAX if they are too long for the array. */
static size_t distance(const char *a, const char *b)
{
	size_t row[EVENT_MAX_NAME + 1];
	size_t length = strlen(b);

	if (length > EVENT_MAX_NAME || strlen(a) > EVENT_MAX_NAME)
		return SIZE_MAX;
	for (size_t j = 0; j <= length; j++)
		row[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= length; j++) {
			size_t above = row[j];
			size_t change = diagonal + (a[i - 1] != b[j - 1]);

			row[j] = MIN_OF(change, MIN_OF(above, row[j - 1]) + 1);
			diagonal = above;
		}
	}
	return row[length];
}

const char *event_suggest(const char *word, const char *const *candidates)
{
	const char *best = NULL;
	size_t best_distance = strlen(word) / 3 + 2;

	for (; *candidates; candidates++) {
		size_t d = distance(word, *candidates);

		if (d < best_distance) {
			best_distance = d;
			best = *candidates;
		}
	}
	return best;
}

static bool fail_unknown(const char *text, GError **error)
{
	const char *nearest = event_suggest(text, event_names());

	if (nearest)
		return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
				   "unknown event \"%s\"; did you mean \"%s\"?", text, nearest);
	return broker_fail(
		error, BROKER_ERROR_INVALID_OPTION,
		"unknown event \"%s\"; valid are perf's names: cycles, cpu-clock, page-faults, "
		"context-switches, LLC-load-misses, rHEX, SYSTEM:TRACEPOINT, PMU/TERM=VALUE/ "
		"(`perf list` shows all)",
		text);
}

static bool parse_fixed(const char *name, struct event *event)
{
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		if (strcmp(table[i].name, name) != 0)
			continue;
		event->attr.type = table[i].type;
		event->attr.config = table[i].config;
		event->kind = table[i].type == PERF_TYPE_HARDWARE ? PROF_SOURCE_HARDWARE
								  : PROF_SOURCE_SOFTWARE;
		event->counts_ns = table[i].flags & COUNTS_NS;
		event->kernel_only = table[i].flags & KERNEL_ONLY;
		return true;
	}
	return false;
}

static bool parse_cache(const char *name, struct event *event)
{
	for (size_t i = 0; i < N_CACHE_NAMES; i++) {
		size_t cache = i / ARRAY_SIZE(cache_operations);
		size_t operation = i % ARRAY_SIZE(cache_operations);
		size_t length = strlen(caches[cache]);

		if (g_ascii_strncasecmp(name, caches[cache], length) != 0 ||
		    strcmp(name + length, cache_operations[operation].suffix) != 0)
			continue;
		event->attr.type = PERF_TYPE_HW_CACHE;
		event->attr.config = cache | cache_operations[operation].config << 8;
		event->kind = PROF_SOURCE_CACHE;
		return true;
	}
	return false;
}

static bool parse_raw(const char *name, struct event *event)
{
	size_t digits = strspn(name + 1, "0123456789abcdefABCDEF");

	if (name[0] != 'r' || digits == 0 || digits > 16 || name[1 + digits] != '\0')
		return false;
	event->attr.type = PERF_TYPE_RAW;
	event->attr.config = g_ascii_strtoull(name + 1, NULL, 16);
	event->kind = PROF_SOURCE_RAW;
	return true;
}

/* Parses an event's modifiers. Returns false if there are none, or if a letter is not a
 * modifier. */
static bool parse_modifiers(const char *letters, struct event *event)
{
	bool user = false, kernel = false;

	if (*letters == '\0')
		return false;
	for (; *letters; letters++) {
		if (*letters == 'u')
			user = true;
		else if (*letters == 'k')
			kernel = true;
		else if (*letters == 'p' && event->attr.precise_ip < 3)
			event->attr.precise_ip++;
		else
			return false;
	}
	if (user || kernel) {
		event->attr.exclude_user = !user;
		event->attr.exclude_kernel = !kernel;
		event->attr.exclude_hv = 1;
	}
	return true;
}

/* Parses "pmu/terms/", with optional modifiers after the second slash. */
static bool parse_slashes(const struct event_dirs *dirs, char *name, struct event *event,
			  GError **error)
{
	char *terms = strchr(name, '/') + 1;
	char *end = strchr(terms, '/');
	const char *modifiers;

	if (!end)
		return broker_fail(
			error, BROKER_ERROR_INVALID_OPTION,
			"event \"%s\": the second \"/\" is missing, as in PMU/TERM=VALUE/",
			event->name);
	terms[-1] = '\0';
	*end = '\0';
	modifiers = end[1] == ':' ? end + 2 : end + 1;
	if (!name_is_plain(name) || (*modifiers && !parse_modifiers(modifiers, event)))
		return fail_unknown(event->name, error);
	event->kind = PROF_SOURCE_DYNAMIC;
	return !dirs || event_parse_dynamic(dirs, name, terms, event, error);
}

/* Parses "a:b", an event with modifiers or a tracepoint; and "a:b:c", a tracepoint with
 * modifiers. */
static bool parse_colons(const struct event_dirs *dirs, char *name, struct event *event,
			 GError **error)
{
	char *second = strchr(name, ':');
	char *third = strchr(second + 1, ':');

	*second++ = '\0';
	if (!third &&
	    (parse_fixed(name, event) || parse_cache(name, event) || parse_raw(name, event))) {
		if (parse_modifiers(second, event))
			return true;
		return broker_fail(
			error, BROKER_ERROR_INVALID_OPTION,
			"event \"%s\": unknown modifier \"%s\"; valid are u, k, p, pp, ppp",
			event->name, second);
	}
	if (third)
		*third++ = '\0';
	if (!name_is_plain(name) || !name_is_plain(second) ||
	    (third && !parse_modifiers(third, event)))
		return fail_unknown(event->name, error);
	event->kind = PROF_SOURCE_TRACEPOINT;
	return !dirs || event_parse_tracepoint(dirs, name, second, event, error);
}

/* Parses "a:b/filter/". */
static bool parse_filter(const struct event_dirs *dirs, char *name, struct event *event,
			 GError **error)
{
	char *filter = strchr(name, '/') + 1;
	char *end = strrchr(filter, '/');

	if (!end || end == filter || end[1] != '\0')
		return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
				   "event \"%s\": a filter is between two \"/\", as in "
				   "sched:sched_switch/prev_pid==1/",
				   event->name);
	*end = filter[-1] = '\0';
	g_strlcpy(event->filter, filter, sizeof(event->filter));
	if (!parse_colons(dirs, name, event, error))
		return false;
	return event->kind == PROF_SOURCE_TRACEPOINT ||
	       broker_fail(error, BROKER_ERROR_INVALID_OPTION,
			   "event \"%s\": only tracepoints take a filter", event->name);
}

bool event_is_probe(const char *text)
{
	const char *name = text[0] == '/' ? strchr(text, ':') : NULL;

	return name && name[1] && name > text + 1;
}

size_t event_probe_length(const char *text)
{
	const char *name = strchr(text, ':');
	const char *filter = name ? strchr(name, '/') : NULL;
	size_t length = strlen(text);

	/* Names of Go's functions have slashes, so a filter must also end with a slash. */
	return filter && text[length - 1] == '/' ? (size_t)(filter - text) : length;
}

static bool parse_probe(const char *name, struct event *event, GError **error)
{
	size_t length = event_probe_length(name);

	event->kind = PROF_SOURCE_PROBE;
	event->attr.sample_period = 1;
	event->every_one = true;
	if (!name[length])
		return true;
	/* the rest is "/filter/", or only "/" */
	g_strlcpy(event->filter, name + length + 1, sizeof(event->filter));
	if (event->filter[0])
		event->filter[strlen(event->filter) - 1] = '\0';
	if (event->filter[0])
		return true;
	return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
			   "event \"%s\": a filter is between two \"/\", as in "
			   "/FILE:PROVIDER:NAME/arg1==3/",
			   event->name);
}

bool event_parse(const struct event_dirs *dirs, const char *text, struct event *ret_event,
		 GError **error)
{
	struct event event = { .attr.size = sizeof(event.attr), .probe_fd = -1 };
	char name[EVENT_MAX_NAME];

	if (g_strlcpy(name, text, sizeof(name)) >= sizeof(name))
		return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
				   "the name of an event has at most %d bytes", EVENT_MAX_NAME - 1);
	g_strlcpy(event.name, text, sizeof(event.name));

	if (event_is_probe(name)) {
		if (!parse_probe(name, &event, error))
			return false;
	} else if (strchr(name, '/') && memchr(name, ':', strcspn(name, "/"))) {
		if (!parse_filter(dirs, name, &event, error))
			return false;
	} else if (strchr(name, '/')) {
		if (!parse_slashes(dirs, name, &event, error))
			return false;
	} else if (strchr(name, ':')) {
		if (!parse_colons(dirs, name, &event, error))
			return false;
	} else if (!parse_fixed(name, &event) && !parse_cache(name, &event) &&
		   !parse_raw(name, &event)) {
		return fail_unknown(text, error);
	}
	*ret_event = event;
	return true;
}
