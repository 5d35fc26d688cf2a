/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Interpreters - makes a BPF program read the frames of interpreted programs at each sample
 *
 * Owns the BPF programs, their maps and the events that they write to (daemon/interp-protocol.h).
 * Other BPF programs read the frames before a thread sleeps. All programs describe each code object
 * once, before its first use, so nothing reads a running process later.
 *
 * A thread loads the programs of a family when the engine first requests a process's frames, or
 * when a mapped file has the name of an interpreter, so CPU-wide sessions without interpreters pay
 * nothing. Sessions with per-task events load the programs of all families at once, because threads
 * inherit events with their program.
 *
 * profd's own tables determine what the programs read of a process: the engine chooses only the
 * family and version, and addresses of the interpreter in a process that the session may record.
 */
#pragma once

#include "daemon/broker/events.h"
#include "daemon/interp-protocol.h"

#include <glib.h>
#include <linux/perf_event.h>
#include <stdbool.h>
#include <stdint.h>

struct interpreters;

/* Loads the programs that all families share, and those of `families` (bits 1 << enum
 * interp_family). `sleeps`: also loads the programs for sleeps. Fails if the kernel, its type
 * information or the rights do not suffice for the shared programs. */
struct interpreters *interpreters_new(unsigned families, bool sleeps, GError **error);
/* Loads the programs of further families, each of which takes 10 to 30 ms. May run in a separate
 * thread, but not at the same time as interpreters_lacking() or interpreters_free(). Processes of
 * the families may have been added before. */
void interpreters_add(struct interpreters *interpreters, unsigned families);
/* Returns the bits of the families that are neither loaded nor refused. Bits that stand for no
 * family may be set, too. */
unsigned interpreters_lacking(const struct interpreters *interpreters);
/* Returns why the kernel refuses the programs of a family; NULL: it does not. */
const char *interpreters_refusal(const struct interpreters *interpreters,
				 enum interp_family family);
void interpreters_free(struct interpreters *interpreters); /* NULL is allowed */

/* The events that the program writes to on one CPU. The caller owns the descriptors. */
struct interpreter_outputs {
	int sample, code;
	uint64_t sample_id, code_id; /* PERF_EVENT_IOC_ID */
};
/* Opens both events. They write into the ring of the event `ring`. `source`: the attributes of the
 * sampled event, whose records the program replaces. */
bool interpreters_open_outputs(struct interpreters *interpreters,
			       const struct perf_event_attr *source, int ring, unsigned cpu,
			       struct interpreter_outputs *ret_outputs, GError **error);
/* Runs the program for each sample of the event `fd`, and of events that will be inherited from it,
 * until the event is closed. Does nothing for tracepoints and probes, which run programs of another
 * kind. */
bool interpreters_attach(const struct interpreters *interpreters, const struct event *event, int fd,
			 GError **error);
/* Attaches the programs, which must be loaded, so that they also read frames when a thread is about
 * to sleep. `tracepoint`: the id of sched:sched_switch. */
bool interpreters_attach_sleeps(struct interpreters *interpreters, uint64_t tracepoint,
				GError **error);
void interpreters_detach_sleeps(struct interpreters *interpreters);
/* Returns the start of the stack of a process, which changes with exec; 0: the process does not
 * exist, or may not be inspected. */
uint64_t interpreters_start_stack(int32_t pid);
/* Returns whether the process was added with these values. */
bool interpreters_has_process(const struct interpreters *interpreters, int32_t pid,
			      const struct interp_process *process);
/* Adds or replaces a process, which is read as long as its stack starts at process->start_stack.
 * Fails with BROKER_ERROR_NOT_SUPPORTED if the version is not supported or the kernel refuses the
 * family's programs, with BROKER_ERROR_FAILED if start_stack is 0, and with
 * BROKER_ERROR_LIMIT_EXCEEDED if the map is full. */
bool interpreters_set_process(struct interpreters *interpreters, int32_t pid,
			      const struct interp_process *process, GError **error);
/* Returns the sum of the counters over all CPUs. */
struct interp_counts interpreters_count(const struct interpreters *interpreters);
