/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "tools/common/cli.h"
#include "tools/profctl/preload.h"

#define RECORD_NO_END UINT64_MAX /* duration without limit */
#define RECORD_MAX_DAYS 49       /* a timer counts milliseconds in 32 bits */
#define RECORD_NO_CONTROL UINT64_MAX
#define RECORD_NO_MIN UINT64_MAX
#define RECORD_POLICY_DEFAULT (-1) /* the default depends on what is recorded */
#define RECORD_MAX_NS (UINT64_C(86400000000000) * RECORD_MAX_DAYS)

/* The command line of `profctl record`. */
struct record_options {
	bool system, force, append, no_kernel, no_interpreters, no_symbols, no_sysprof, view, quiet,
		json;
	bool python_perf;
	const char *off_cpu; /* as given on the command line; NULL: the default */
	uint64_t off_cpu_ns;
	bool no_off_cpu, wakers;
	GArray *pids;       /* uint32_t; NULL: none */
	GPtrArray *events;  /* char *; NULL: the default */
	const char *output; /* NULL: a default name */
	uint64_t frequency, duration_ns, delay_ns;
	uint64_t control; /* descriptor; RECORD_NO_CONTROL: none */
	int call_graph, policy;
	int bus;                 /* enum client_bus */
	const char *memory_mode; /* as given on the command line; NULL: none */
	uint64_t memory_min;     /* RECORD_NO_MIN: none */
	bool memory_mmap;
	const char *counters;         /* groups, separated by commas; NULL: none */
	struct preload_memory memory; /* computed from memory_mode, memory_min, memory_mmap */
	char **command;               /* NULL: none */
};

#define RECORD_OPTIONS_DEFAULT                                  \
	((struct record_options){ .frequency = 999,             \
				  .duration_ns = RECORD_NO_END, \
				  .control = RECORD_NO_CONTROL, \
				  .memory_min = RECORD_NO_MIN,  \
				  .policy = RECORD_POLICY_DEFAULT })

/* Options that `profctl top` also has: --system and --pid; --call-graph, --no-kernel and
 * --no-interpreters. */
extern const struct cli_option record_what_options[], record_stack_options[];
extern const char *const record_buses[]; /* by enum client_bus */

/* Returns CLI_CONTINUE, or an exit status. record_options_done() must be called in every case. */
int record_options_parse(struct record_options *options, int argc, char **argv) MUST_CHECK;
void record_options_done(struct record_options *options);
/* Returns whether an event is a probe of a function, or a static probe. */
bool record_options_have_probes(const struct record_options *options);
/* Splits "-e a,b" into "-e a -e b", and drops duplicates. Returns CLI_CONTINUE, or an exit status
 * after a message. The new list owns its texts. */
int record_split_events(GPtrArray **list) MUST_CHECK;

/* Returns the options for CreateSession, floating; `pid` 0: no command. The switch is passed as the
 * session's second descriptor. */
GVariant *record_options_session(const struct record_options *options, pid_t pid);
/* Returns the variable part of the capture's default name; g_free. */
char *record_options_stem(const struct record_options *options);
/* Returns the command, with or without arguments, "the system" or "process 12", escaped for
 * terminals and cut to 60 columns; g_free. */
char *record_options_target(const struct record_options *options, bool with_arguments);
