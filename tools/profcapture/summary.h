/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Summary - the sentences with which every answer about CPU time begins, in text and on the page
 */
#pragma once

#include "tools/profcapture/profile.h"
#include "tools/profcapture/run-times.h"

/* The data for the sentences. All pointers are borrowed. */
struct summary {
	const struct reader *reader;
	const struct profile *profile; /* by function, with wants_threads */
	const struct own_weights *own;
	const GArray *times; /* struct run_time by thread */
	/* counted with the option `waiting`; NULL: where threads waited is unknown */
	const struct profile *waits;
	bool full_names;
};

/* A function of the program that used time, and the function below it that used most of that time
 * (`callee`; NULL: it would add no information). Texts are valid only in the callback. */
struct summary_where {
	uint32_t function;
	const char *name, *callee; /* not escaped */
	const char *place;         /* "libc.so.6", if another function has this name; else NULL */
	double pct, callee_pct;
};
void summary_each_where(const struct summary *summary,
			void (*each)(const struct summary_where *where, void *data), void *data);
/* The waits of threads for one cause in one function of the program. Texts are valid only in the
 * callback. */
struct summary_wait {
	const char *cause, *call; /* a name of enum wait_cause; the system call, or else `cause` */
	const char *name;         /* not escaped; NULL: unknown */
	const char *place;        /* like `place` of struct summary_where */
	uint64_t ns;
};
/* Calls `each` for the waits with at least 1 % of the waiting time, longest first: at most `most`
 * (0: all). Makes no call if it is unknown where threads waited. */
void summary_each_wait(const struct summary *summary, unsigned most,
		       void (*each)(const struct summary_wait *wait, void *data), void *data);
/* Counts the threads and processes that ran, waited or have samples. */
void summary_count_tasks(const struct summary *summary, unsigned *ret_threads,
			 unsigned *ret_processes);
/* Stores the CPU time of all threads, from samples of a clock, else from context switches. Returns
 * whether it is known. */
bool summary_cpu_ns(const struct summary *summary, uint64_t *ret_ns);
uint64_t summary_waited_ns(const struct summary *summary);
/* Returns how long threads were ready but had no CPU. */
uint64_t summary_ready_ns(const struct summary *summary);

/* Prints "./shop 40000 used 3.02 s of CPU in 3.18 s (0.95 CPUs), 5 threads." */
void summary_print_cost(const struct summary *summary, struct out *out);
/* Prints "6037 samples of cpu-clock in 3.02 s, from 0.100 s to 3.120 s.". This replaces
 * summary_print_cost() if some of the CPU time is left out. */
void summary_print_samples(const struct summary *summary, struct out *out);
/* Prints how many samples pass the filters of frames, if there are any. */
void summary_print_passed(const struct profile *profile, struct out *out);
/* Appends a sentence such as " Stacks cut short: 1.1 %." for each share above one percent. These
 * are shares of samples, not of weight: each sample is one attempt to unwind and name a stack. */
void summary_append_quality(const struct profile *profile, GString *to);
/* Prints "Most in shop::Stats::add 79 % (memcmp 42 %), shop::price 8 %."; nothing if no function
 * has 1 %. `out` must be empty. */
void summary_print_where(const struct summary *summary, struct out *out);
/* Prints "Waited 11.1 s in all threads: 7.2 s futex in shop::Stats::add, 0.7 s fsync; 4.29 s ready,
 * without a CPU."; nothing if no thread waited or was ready for long. */
void summary_print_waiting(const struct summary *summary, struct out *out);
