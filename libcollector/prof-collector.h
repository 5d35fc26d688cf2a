/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * libprofcollector - adds a program's marks, counters, logs and names to its recording
 *
 * Marks (instants and spans), counters, logs and thread names, for C, C++, and any language that
 * can call C. Programs that do not want to depend on this library use <prof/mark.h>, which finds it
 * at run time.
 *
 * A program is recorded if profctl started it or one of its ancestors (PROF_CONTROL is in the
 * environment), or after prof_collector_connect(). Otherwise every function returns at once and
 * does nothing: prof_collector_enabled() is one load.
 *
 * All functions may be called from any thread, from signal handlers, and in children of fork() and
 * vfork(). Those that return bool return true if the record was written. False means that nobody
 * records, or that the record is lost and the recording counts it. No function allocates from the
 * heap, takes a lock, raises or waits for a signal, prints, aborts, or changes errno.
 *
 * Functions wait only in two cases:
 * - The first use in a process waits for profd's answer, at most 500 ms (10 ms in a real-time
 *   thread).
 * - A thread that finds no ring waits at most 10 ms; in a session that must lose nothing, a thread
 *   that finds no ring or a full one waits longer. Handlers and real-time threads do not wait.
 *   These waits take at most 1 s a minute for the whole process, in which several threads may wait.
 *
 * Strings are UTF-8, NUL-terminated, of any length up to 64 MiB, and copied before the function
 * returns. NULL is "". Each string is sent once a thread, as long as it is among the last few
 * hundred that the thread used.
 * Times are CLOCK_MONOTONIC in ns.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef PROF_PUBLIC
#define PROF_PUBLIC __attribute__((visibility("default")))
#endif

/* ---- State ----------------------------------------------------------------------------------- */

/* Not 0: somebody may record. Read only. */
PROF_PUBLIC extern uint32_t prof_collector_state;

static inline bool prof_collector_enabled(void)
{
	return __atomic_load_n(&prof_collector_state, __ATOMIC_RELAXED) != 0;
}

/*
 * Connects to profd without profctl. addresses: as in PROF_CONTROL; NULL: the system's profd, which
 * records the processes that a session of the same user names. Returns 0; -EALREADY if this process
 * is recorded, or another thread is connecting; -EINVAL; another -errno if nobody answers; or a
 * positive number if profd refuses: 1 not a target of the session, 2 no session, 3 another version,
 * 4 a limit, 5 a failure, 6 not authorized. May be called again after a session ended. Waits at
 * most 500 ms. Not in handlers.
 */
PROF_PUBLIC int prof_collector_connect(const char *addresses);

/*
 * From now on, the calling thread makes no system call in this library. Call it before the thread
 * installs a seccomp filter that kills for futex(2) or sigaltstack(2). The thread then never waits
 * for room. Returns false if the thread has no ring, and records nothing. If the filter was
 * installed before the thread's first record, this call is not needed.
 */
PROF_PUBLIC bool prof_collector_no_syscalls(void);

/* ---- Marks ----------------------------------------------------------------------------------- */

enum prof_arg_kind {
	PROF_ARG_S64,
	PROF_ARG_U64,
	PROF_ARG_DOUBLE,
	PROF_ARG_STRING,
	PROF_ARG_ADDRESS
};

/* An additional value of a mark. */
struct prof_arg {
	const char *name;
	uint64_t kind; /* enum prof_arg_kind */
	union {
		int64_t s64;
		uint64_t u64;
		double number;
		const char *string;
		const void *address;
	} value;
};

#define PROF_MAX_ARGS 32 /* of a mark; the others are dropped */

/* An instant: now. args may be NULL if n_args is 0. */
PROF_PUBLIC bool prof_mark_instant(const char *group, const char *name, const struct prof_arg *args,
				   size_t n_args);

/* Returns an id that no other mark of this process has, or 0 if nobody records. */
PROF_PUBLIC uint64_t prof_mark_new_id(void);

/*
 * A span. It may end in another thread than it began in. Its id is from prof_mark_new_id(), or the
 * program's own. No other open span of the process may have the same group, name and id.
 */
PROF_PUBLIC bool prof_mark_begin(uint64_t id, const char *group, const char *name,
				 const struct prof_arg *args, size_t n_args);
PROF_PUBLIC bool prof_mark_end(uint64_t id, const char *group, const char *name,
			       const struct prof_arg *args, size_t n_args);

/* A span in one record: it began at begin_ns (of prof_clock_ns()) and ends now. */
PROF_PUBLIC bool prof_mark_complete(uint64_t begin_ns, const char *group, const char *name,
				    const struct prof_arg *args, size_t n_args);
PROF_PUBLIC uint64_t prof_clock_ns(void);

/* ---- Stacks ---------------------------------------------------------------------------------- */

#define PROF_MAX_FRAMES \
	512 /* innermost frames of a stack; others are dropped. Small rings take at least 60 */

/* How the addresses of a stack are meant. */
enum prof_stack_kind {
	PROF_STACK_RETURNS,     /* each is a return address, as from backtrace(3) */
	PROF_STACK_INTERRUPTED, /* the first is where a signal came, others are return addresses */
	PROF_STACK_EXACT /* each is the place itself, as for made-up addresses of an interpreter */
};

/*
 * The program's own stack, for interpreters and JITs, whose frames nobody else can find. An address
 * may be of any module, or of code that prof_jit_load() named. The library looks up the file that
 * each address lies in, so that names are found after the process ended or the file was mapped
 * elsewhere. That takes some system calls for each stack, and /proc/self/maps if an address is new.
 * Stacks are sent once a thread, like strings.
 */
struct prof_stack {
	const void *const *pcs; /* innermost first */
	size_t n;
	uint64_t kind; /* enum prof_stack_kind */
};

/* Like the functions without a stack. stack may be NULL. */
PROF_PUBLIC bool prof_mark_instant_with_stack(const char *group, const char *name,
					      const struct prof_arg *args, size_t n_args,
					      const struct prof_stack *stack);
PROF_PUBLIC bool prof_mark_begin_with_stack(uint64_t id, const char *group, const char *name,
					    const struct prof_arg *args, size_t n_args,
					    const struct prof_stack *stack);
PROF_PUBLIC bool prof_mark_complete_with_stack(uint64_t begin_ns, const char *group,
					       const char *name, const struct prof_arg *args,
					       size_t n_args, const struct prof_stack *stack);
PROF_PUBLIC bool prof_log_with_stack(uint32_t level, const char *domain, const char *text,
				     const struct prof_stack *stack);

/* ---- Generated code -------------------------------------------------------------------------- */

/*
 * Names the `size` bytes at `address`, until they are unloaded or moved, or other code is loaded or
 * moved over any of them. Call it before the code runs. Samples and stacks have the name that was
 * valid at their time. An interpreter may name any memory of its own that represents a function,
 * and use its address in stacks of kind EXACT. Code that is loaded while nobody records must be
 * loaded again after a later connect; a forked child has its parent's names.
 */
PROF_PUBLIC bool prof_jit_load(const void *address, size_t size, const char *name);
/* The code that was loaded at `from` is now at `address`. Call it after each move, in the order of
 * the moves. */
PROF_PUBLIC bool prof_jit_move(const void *from, const void *address);
/* Call it when nothing runs there any more, and before anything else is put there. */
PROF_PUBLIC bool prof_jit_unload(const void *address);

/* ---- Counters -------------------------------------------------------------------------------- */

#define PROF_COUNT_DOUBLE 0x01u /* values are double, not int64_t */
#define PROF_COUNT_SUM 0x02u    /* values are a sum that grows, not a current value */

/*
 * Counters are the process's; the same group, name, unit and flags are the same counter. unit:
 * "bytes", "ns", … or "". Returns the counter's number, which is valid as long as the process
 * lives, and in its children; or 0 if there are 1024 already. Keeps the strings. May be called
 * while nobody records. Not in handlers.
 */
PROF_PUBLIC uint32_t prof_counter_define(const char *group, const char *name, const char *unit,
					 uint32_t flags);
/* The value does not change while nobody records. Return false if the function does not match the
 * kind that the counter was defined with. */
PROF_PUBLIC bool prof_counter_set(uint32_t counter, int64_t value);
PROF_PUBLIC bool prof_counter_add(uint32_t counter, int64_t difference);
PROF_PUBLIC bool prof_counter_set_double(uint32_t counter, double value);
PROF_PUBLIC bool prof_counter_add_double(uint32_t counter, double difference);

/* ---- Logs and names -------------------------------------------------------------------------- */

/* level: as in syslog(3), 0 to 7. */
PROF_PUBLIC bool prof_log(uint32_t level, const char *domain, const char *text);

/* Names the calling thread in the recording; the kernel's name for it does not change. */
PROF_PUBLIC bool prof_thread_set_name(const char *name);

/* ---- For <prof/mark.h> ----------------------------------------------------------------------- */

/* All of the above. Functions are added at the end; `bytes` tells which ones exist. */
struct prof_collector_table {
	size_t bytes;
	const uint32_t *state;
	bool (*mark_instant)(const char *, const char *, const struct prof_arg *, size_t);
	uint64_t (*mark_new_id)(void);
	bool (*mark_begin)(uint64_t, const char *, const char *, const struct prof_arg *, size_t);
	bool (*mark_end)(uint64_t, const char *, const char *, const struct prof_arg *, size_t);
	bool (*mark_complete)(uint64_t, const char *, const char *, const struct prof_arg *,
			      size_t);
	uint64_t (*clock_ns)(void);
	uint32_t (*counter_define)(const char *, const char *, const char *, uint32_t);
	bool (*counter_set)(uint32_t, int64_t);
	bool (*counter_add)(uint32_t, int64_t);
	bool (*counter_set_double)(uint32_t, double);
	bool (*counter_add_double)(uint32_t, double);
	bool (*log)(uint32_t, const char *, const char *);
	bool (*thread_set_name)(const char *);
	bool (*mark_instant_with_stack)(const char *, const char *, const struct prof_arg *, size_t,
					const struct prof_stack *);
	bool (*mark_begin_with_stack)(uint64_t, const char *, const char *, const struct prof_arg *,
				      size_t, const struct prof_stack *);
	bool (*mark_complete_with_stack)(uint64_t, const char *, const char *,
					 const struct prof_arg *, size_t,
					 const struct prof_stack *);
	bool (*log_with_stack)(uint32_t, const char *, const char *, const struct prof_stack *);
	bool (*jit_load)(const void *, size_t, const char *);
	bool (*jit_move)(const void *, const void *);
	bool (*jit_unload)(const void *);
};
PROF_PUBLIC extern const struct prof_collector_table prof_collector_table;

/* ---- Recording from inside of the program ---------------------------------------------------- */

/*
 *     prof_recorder_open("slow.cap", &(struct prof_recorder_options){ .append = 1 });
 *     …
 *     prof_recorder_begin("frame");
 *     …                               sampled code
 *     prof_recorder_end("frame");
 *     …
 *     prof_recorder_close();
 *
 * Samples the calling process, its threads, and the processes that it starts after open. Only the
 * time in which at least one block is open is sampled. Each block is a mark. `profctl record` does
 * the sampling, in a process of its own that is not a child of this one: no wait() finds it, and it
 * causes no SIGCHLD. If this process ends without close, or executes another program, the file is
 * finished nevertheless.
 *
 * A process has one recorder. Blocks nest and overlap, up to 64 of them, in any threads. A forked
 * child has no recorder, and may open its own. Not in handlers; do not call open while another
 * thread changes the environment. The functions print nothing, and errno does not change.
 *
 * All return 0, a -errno, or an enum prof_recorder_status.
 */
enum prof_recorder_status {
	PROF_RECORDER_NO_PROFCTL = 1, /* it was not found, or is not a program */
	PROF_RECORDER_NOT_PERMITTED,  /* profctl may not record this process, or write the file */
	PROF_RECORDER_NO_DAEMON,      /* no profd answers, and none could be started */
	PROF_RECORDER_UNREADABLE,     /* the file to continue is not a capture */
	PROF_RECORDER_FAILED,         /* any other failure of profctl; also if it ended */
	PROF_RECORDER_NO_COLLECTOR,   /* prof_collector_connect() would fail, too */
	PROF_RECORDER_RECORDED,       /* by another session, which gets the process's marks */
	PROF_RECORDER_OPEN,           /* one is open already, or another thread is opening one */
	PROF_RECORDER_NOT_OPEN,       /* or only in the parent of this forked process */
	PROF_RECORDER_NO_BLOCK,       /* no open block has that name */
	PROF_RECORDER_TOO_MANY,       /* too many blocks are open */
	PROF_RECORDER_PAUSED, /* by `profctl pause` or another client; the block is not begun */
	/* the recording was stopped, or profd ended; only close is left to do */
	PROF_RECORDER_ENDED
};

/* Zeros are the defaults. */
struct prof_recorder_options {
	uint32_t frequency;     /* samples a second and CPU; default: 999 */
	uint32_t append;        /* 1: continue an existing capture; 0: fail with -EEXIST */
	const char *call_graph; /* as profctl's option; default: "auto" */
	const char *events;     /* as profctl's option, separated by commas */
	const char *group;      /* of the blocks' marks, up to 255 bytes; default: "recorder" */
	const char *profctl;    /* default: the first in PATH, else the installed one */
	const char *bus;        /* as profctl's option; default: "auto" */
	uint64_t reserved[4];   /* must be 0 */
};

/* Waits for profctl, typically 50 ms, at most 30 s. path: of a file, from the current directory.
 * options: may be NULL. */
PROF_PUBLIC int prof_recorder_open(const char *path, const struct prof_recorder_options *options);
/*
 * Begin returns when sampling is enabled in all threads. Samples after an end are dropped while no
 * other block is open. name: of the mark; NULL is "block". A block may end in another thread than
 * it began in. If several blocks have one name, end ends the last one that the thread began, else
 * the last one of any thread. Each call waits at most 1 s for a profd that does not answer
 * (-ETIMEDOUT).
 */
PROF_PUBLIC int prof_recorder_begin(const char *name);
PROF_PUBLIC int prof_recorder_end(const char *name);
/* Waits until the file is complete, with names, at most 60 s. After -ETIMEDOUT the file is still
 * completed. Ends blocks that are open. */
PROF_PUBLIC int prof_recorder_close(void);

/* Returns the meaning of a number that the above return, in English. */
PROF_PUBLIC const char *prof_recorder_error(int status);
/* Returns profctl's message of the last open or close that failed, in the user's language, or "".
 * Valid until the next of these. */
PROF_PUBLIC const char *prof_recorder_message(void);

#ifdef __cplusplus
}
#endif
