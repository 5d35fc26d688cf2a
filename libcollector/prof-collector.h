/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * libprofcollector - adds a program's marks, counters, logs and names to its recording
 *
 * Records marks (instants and spans), counters, logs and thread names, from C, C++, and any
 * language that can call C. Programs that do not want to depend on this library use <prof/mark.h>,
 * which finds the library at run time.
 *
 * A program is recorded if profctl started it or one of its ancestors (PROF_CONTROL is in the
 * environment), or after prof_collector_connect(). Otherwise every function that records returns at
 * once and does nothing: prof_collector_enabled() is one load.
 *
 * All functions may be called from any thread, from signal handlers, and in children of fork() and
 * vfork(), unless stated otherwise. Functions that return bool return true if the record was
 * written, and false if no session records the program, an argument is invalid, or the record was
 * lost; the recording counts losses. No function except the recorder's (prof_recorder_*) allocates
 * from the heap, takes a lock, raises or waits for a signal, prints, aborts, or changes errno.
 *
 * Functions, except prof_collector_connect() and the recorder's, wait only in two cases:
 * - The first use in a process waits for profd's answer, at most 500 ms (10 ms in a real-time
 *   thread).
 * - A thread that finds no ring, or needs a larger one, waits at most 10 ms. In a lossless session,
 *   a thread that finds no ring or a full one waits longer. Real-time threads do not wait here. A
 *   handler that interrupts a record does not wait for room, and a handler on a signal stack does
 *   not wait for a ring. Waits add up to at most 1 s per minute for the whole process; time in
 *   which several threads wait is counted once.
 *
 * Strings are UTF-8, NUL-terminated, of any length up to 64 MiB, and copied before the function
 * returns. NULL is "". A thread sends a string only once as long as the string is among the last
 * few hundred that the thread used.
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

/* Not 0 if a session may be recording the program. Read only. */
PROF_PUBLIC extern uint32_t prof_collector_state;

static inline bool prof_collector_enabled(void)
{
	return __atomic_load_n(&prof_collector_state, __ATOMIC_RELAXED) != 0;
}

/*
 * Connects to profd without profctl. addresses: as in PROF_CONTROL (-EINVAL if invalid); NULL: the
 * system's profd, which accepts the process if a session of the same user records it. Returns 0;
 * -EALREADY if the process is recorded, or another thread is connecting; another -errno if there is
 * no answer; or a positive number if profd refuses: 1 not a target of the session, 2 no session, 3
 * another version, 4 a limit, 5 a failure, 6 not authorized. May be called again after a session
 * ended. Waits at most 500 ms. Not for handlers.
 */
PROF_PUBLIC int prof_collector_connect(const char *addresses);

/*
 * After this call, this library makes no system call in the calling thread, and the thread never
 * waits for room. Call it before the thread installs a seccomp filter that kills the thread for
 * calling futex(2) or sigaltstack(2). Returns false if the thread has no ring; the thread then
 * records nothing. The call is not needed if the filter was installed before the thread's first
 * record.
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

#define PROF_MAX_ARGS 32 /* maximum number for each mark; further arguments are dropped */

/* Records an instant, at the current time. args may be NULL if n_args is 0. */
PROF_PUBLIC bool prof_mark_instant(const char *group, const char *name, const struct prof_arg *args,
				   size_t n_args);

/* Returns an id that is unique in this process, unless the program itself chooses the same id for
 * another mark; or 0 if no session records the program. */
PROF_PUBLIC uint64_t prof_mark_new_id(void);

/* Begin and end a span; it may end in another thread. Its id is from prof_mark_new_id() or chosen
 * by the program. No other open span of the process may have the same group, name and id. */
PROF_PUBLIC bool prof_mark_begin(uint64_t id, const char *group, const char *name,
				 const struct prof_arg *args, size_t n_args);
PROF_PUBLIC bool prof_mark_end(uint64_t id, const char *group, const char *name,
			       const struct prof_arg *args, size_t n_args);

/* Records a whole span, from begin_ns (see prof_clock_ns()) to the current time. */
PROF_PUBLIC bool prof_mark_complete(uint64_t begin_ns, const char *group, const char *name,
				    const struct prof_arg *args, size_t n_args);
PROF_PUBLIC uint64_t prof_clock_ns(void);

/* ---- Stacks ---------------------------------------------------------------------------------- */

#define PROF_MAX_FRAMES \
	512 /* at most this many innermost frames of a stack are kept; in small rings at least 60 */

/* Meaning of the addresses of a stack. */
enum prof_stack_kind {
	PROF_STACK_RETURNS, /* all are return addresses, as from backtrace(3) */
	/* the first is where a signal arrived, the others are return addresses */
	PROF_STACK_INTERRUPTED,
	PROF_STACK_EXACT /* each is the exact location, e.g. a made-up address of an interpreter */
};

/*
 * A stack that the program provides, for interpreters and JITs, whose frames no unwinder can find.
 * An address may be in any module, or in code that prof_jit_load() named. The library looks up the
 * file of each address, so that the address can be named after the process has ended or the file
 * was mapped elsewhere. The lookup takes some system calls for each stack, and reads
 * /proc/self/maps if an address is new. A thread sends a stack only once, like a string.
 */
struct prof_stack {
	const void *const *pcs; /* innermost first */
	size_t n;
	uint64_t kind; /* enum prof_stack_kind */
};

/* Like the functions of the same names without a stack. stack may be NULL. */
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
 * moved over any of them. Call it before the code runs. Samples and stacks use the name that was
 * valid at their time. An interpreter may name any memory of its own that represents a function,
 * and use that address in stacks of kind EXACT. A program that calls this before a session records
 * it must repeat the call for that code after it has connected. A forked child inherits its
 * parent's names.
 */
PROF_PUBLIC bool prof_jit_load(const void *address, size_t size, const char *name);
/* Code that was loaded at `from` is now at `address`. Call this after each move, in order. */
PROF_PUBLIC bool prof_jit_move(const void *from, const void *address);
/* Call this when the code no longer runs, and before other code is put at its address. */
PROF_PUBLIC bool prof_jit_unload(const void *address);

/* ---- Counters -------------------------------------------------------------------------------- */

#define PROF_COUNT_DOUBLE 0x01u /* values are double, not int64_t */
#define PROF_COUNT_SUM 0x02u    /* values are a sum that grows, not a current value */

/*
 * Defines a counter of the process. Calls with the same group, name, unit and flags return the same
 * counter. unit: "bytes", "ns", … or "". Returns the counter's number, which stays valid in this
 * process and its children, or 0 if there are 1024 counters already, a flag is unknown or memory is
 * exhausted. Copies the strings. May be called while no session records. Not for handlers.
 */
PROF_PUBLIC uint32_t prof_counter_define(const char *group, const char *name, const char *unit,
					 uint32_t flags);
/* Calls have no effect while no session records. They also return false if the counter's values
 * have the other type (int64_t or double). */
PROF_PUBLIC bool prof_counter_set(uint32_t counter, int64_t value);
PROF_PUBLIC bool prof_counter_add(uint32_t counter, int64_t difference);
PROF_PUBLIC bool prof_counter_set_double(uint32_t counter, double value);
PROF_PUBLIC bool prof_counter_add_double(uint32_t counter, double difference);

/* ---- Logs and names -------------------------------------------------------------------------- */

/* level: as in syslog(3), 0 to 7. */
PROF_PUBLIC bool prof_log(uint32_t level, const char *domain, const char *text);

/* Names the calling thread in the recording; the kernel's name of the thread does not change. */
PROF_PUBLIC bool prof_thread_set_name(const char *name);

/* ---- For <prof/mark.h> ----------------------------------------------------------------------- */

/* All functions above except prof_collector_connect() and prof_collector_no_syscalls(). New
 * functions are added at the end; `bytes` shows which ones exist. */
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
 * Records the calling process from within.
 *
 *     prof_recorder_open("slow.cap", &(struct prof_recorder_options){ .append = 1 });
 *     …
 *     prof_recorder_begin("frame");
 *     …                               sampled code
 *     prof_recorder_end("frame");
 *     …
 *     prof_recorder_close();
 *
 * Samples the calling process, its threads, and the processes that it starts after open, but only
 * while at least one block is open. Each block is a mark. `profctl record` does the sampling. It
 * runs in a process that is not a child of this one: no wait() finds it, and it causes no SIGCHLD.
 * If this process ends without close, or executes another program, the file is still completed.
 *
 * A process has one recorder. Up to 64 blocks may be open; they may nest or overlap, in any
 * threads. A forked child has no recorder, and may open its own. Not for handlers; do not call open
 * while another thread changes the environment. The functions print nothing, and preserve errno.
 *
 * open, begin, end and close return 0, a -errno, or an enum prof_recorder_status.
 */
enum prof_recorder_status {
	PROF_RECORDER_NO_PROFCTL = 1, /* profctl was not found, or is not executable */
	PROF_RECORDER_NOT_PERMITTED,  /* profctl may not record this process, or write the file */
	PROF_RECORDER_NO_DAEMON,      /* no profd answers, and profctl could not start one */
	PROF_RECORDER_UNREADABLE,     /* the file to continue is not a capture */
	PROF_RECORDER_FAILED,         /* any other failure of profctl, including a crash */
	PROF_RECORDER_NO_COLLECTOR,   /* prof_collector_connect() would fail, too */
	/* another session already records this process, and gets its marks */
	PROF_RECORDER_RECORDED,
	PROF_RECORDER_OPEN, /* a recorder is open, or another thread is opening one */
	/* no recorder is open; also in a forked process whose parent has one */
	PROF_RECORDER_NOT_OPEN,
	PROF_RECORDER_NO_BLOCK, /* no open block has that name */
	PROF_RECORDER_TOO_MANY, /* too many blocks are open */
	/* paused by `profctl pause` or another client; the block was not begun */
	PROF_RECORDER_PAUSED,
	/* the recording was stopped, or profd ended; call close */
	PROF_RECORDER_ENDED
};

/* A zeroed structure selects the defaults. */
struct prof_recorder_options {
	uint32_t frequency;     /* samples per second on each CPU; default: 999 */
	uint32_t append;        /* 1: continue an existing capture; 0: fail with -EEXIST */
	const char *call_graph; /* value of profctl's --call-graph; default: "auto" */
	const char *events;     /* values of profctl's --event, separated by commas */
	const char *group;    /* group of the blocks' marks, up to 255 bytes; default: "recorder" */
	const char *profctl;  /* path; default: the first one in PATH, else the installed one */
	const char *bus;      /* value of profctl's --bus; default: "auto" */
	uint64_t reserved[4]; /* must be 0 */
};

/* Waits for profctl, typically 50 ms, at most 30 s. path: the file, absolute or relative to the
 * current directory. options: may be NULL. */
PROF_PUBLIC int prof_recorder_open(const char *path, const struct prof_recorder_options *options);
/*
 * prof_recorder_begin() returns after sampling is enabled in all threads. Samples after an end are
 * dropped unless another block is open. name: name of the mark; NULL is "block". A block may end in
 * another thread than the one in which it began. If several open blocks have the same name,
 * prof_recorder_end() ends the last one that the calling thread began, or else the last one of any
 * thread. Each call waits at most 1 s for other threads' calls, and 1 s for profd (-ETIMEDOUT).
 */
PROF_PUBLIC int prof_recorder_begin(const char *name);
PROF_PUBLIC int prof_recorder_end(const char *name);
/* Ends the recording, even if blocks are open, and waits at most 60 s until the file is complete,
 * with names. After -ETIMEDOUT the file is still completed. */
PROF_PUBLIC int prof_recorder_close(void);

/* Returns the English text for a result of the functions above. */
PROF_PUBLIC const char *prof_recorder_error(int status);
/* Returns profctl's message about the last open or close that failed, in the user's language, or
 * "". Valid until the next open or close. */
PROF_PUBLIC const char *prof_recorder_message(void);

#ifdef __cplusplus
}
#endif
