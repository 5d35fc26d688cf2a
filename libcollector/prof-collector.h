/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * libprofcollector - what a program says about itself to profd, while it is recorded
 *
 * Marks (moments and spans), counters, logs and names of threads, for C, C++, and whatever can call
 * C. Programs that do not want to depend on this library use <prof/mark.h>, which finds it at run
 * time.
 *
 * A program is recorded where profctl started it, or one of its ancestors (the environment has
 * PROF_CONTROL), or after prof_collector_connect(). Otherwise every function returns at once and
 * does nothing: prof_collector_enabled() is one load.
 *
 * All functions: any thread, signal handlers, children of fork() and vfork(). Those that return
 * bool say whether there is now a record; false: nobody records, or it is lost and counted where
 * the recording says what it lost. None allocates from the heap, takes a lock, raises or waits for
 * a signal, prints, aborts, or changes errno. Nothing waits but the first use in a process, for the
 * answer of profd, at most 500 ms (10 ms in a real-time thread); and a thread that finds no ring,
 * at most 10 ms, or, in a session that is to lose nothing, finds none or has a full one; not in a
 * handler or a real-time thread. These are at most 1 s a minute for all of the process, in which
 * several threads may wait.
 *
 * Strings are UTF-8 that ends with a 0, of any length up to 64 MiB, copied before the function
 * returns. NULL is "". Each is sent once a thread, as long as it is among the last few hundred that
 * the thread used.
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

/* ---- Whether anybody records ----------------------------------------------------------------- */

/* Not 0: somebody may. Only to be read. */
PROF_PUBLIC extern uint32_t prof_collector_state;

static inline bool prof_collector_enabled(void)
{
	return __atomic_load_n(&prof_collector_state, __ATOMIC_RELAXED) != 0;
}

/*
 * Goes to a profd by itself. addresses: as in PROF_CONTROL; NULL: the system's, which records whom
 * a session of the same user names. Returns 0; -EALREADY where this process is recorded, or another
 * thread is about to connect; -EINVAL; another -errno where nobody answers; or a positive number
 * where profd refuses: 1 not a target of the session, 2 no session, 3 another version, 4 a limit, 5
 * a failure, 6 not authorised. May be called again after a session ended. Waits at most 500 ms. Not
 * in handlers.
 */
PROF_PUBLIC int prof_collector_connect(const char *addresses);

/*
 * The calling thread makes no system call from now on in this library: for before it installs a
 * seccomp filter that kills for futex(2) or sigaltstack(2). It never waits for room then. False:
 * the thread has no ring, and records nothing. Where there was a filter before the thread's first
 * record, nothing has to be called.
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

/* What a mark says besides. */
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

#define PROF_MAX_ARGS 32 /* of a mark; more are left out */

/* A moment: now. args may be NULL where n_args is 0. */
PROF_PUBLIC bool prof_mark_instant(const char *group, const char *name, const struct prof_arg *args,
				   size_t n_args);

/* An id that no other mark of this process has; 0 where nobody records. */
PROF_PUBLIC uint64_t prof_mark_new_id(void);

/*
 * A span, which may end in another thread than it began in. Its id is one of prof_mark_new_id(), or
 * the program's own; group, name and id together are those of no other span of the process that is
 * open.
 */
PROF_PUBLIC bool prof_mark_begin(uint64_t id, const char *group, const char *name,
				 const struct prof_arg *args, size_t n_args);
PROF_PUBLIC bool prof_mark_end(uint64_t id, const char *group, const char *name,
			       const struct prof_arg *args, size_t n_args);

/* A span in one record: it began at begin_ns, of prof_clock_ns(), and ends now. */
PROF_PUBLIC bool prof_mark_complete(uint64_t begin_ns, const char *group, const char *name,
				    const struct prof_arg *args, size_t n_args);
PROF_PUBLIC uint64_t prof_clock_ns(void);

/* ---- Stacks ---------------------------------------------------------------------------------- */

#define PROF_MAX_FRAMES \
	512 /* of a stack; more are left out, the outermost. Smaller rings take less: 60 at least */

/* What the addresses of a stack are. */
enum prof_stack_kind {
	PROF_STACK_RETURNS,     /* each is behind a call, as backtrace(3) has them */
	PROF_STACK_INTERRUPTED, /* the first is where a signal came, the others are behind calls */
	PROF_STACK_EXACT /* each is what it means itself, as where an interpreter makes them up */
};

/*
 * Where the program says that it is: for interpreters and JITs, whose frames nobody else can find.
 * An address may be of any module, or of what prof_jit_load() has given a name to. It is told which
 * file an address lies in, so that names are found when the process is gone and the file mapped
 * elsewhere. That takes some system calls for each stack, and /proc/self/maps where something is
 * new. Stacks are sent once a thread, like strings.
 */
struct prof_stack {
	const void *const *pcs; /* innermost first */
	size_t n;
	uint64_t kind; /* enum prof_stack_kind */
};

/* As without a stack; NULL is none. */
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
 * From now on `size` bytes at `address` are called `name`, until they are unloaded or moved, or
 * others are loaded or moved to where any of them are. To be called before the code runs. Samples
 * and stacks have the name that held at their time. An interpreter may give a name to any memory of
 * its own that stands for a function, and use its address in stacks of kind EXACT. What is loaded
 * while nobody records has to be loaded again by who connects later; a forked child has what its
 * parent had.
 */
PROF_PUBLIC bool prof_jit_load(const void *address, size_t size, const char *name);
/* What was loaded at `from` is at `address` now. To be called in the order in which memory is
 * moved, behind each. */
PROF_PUBLIC bool prof_jit_move(const void *from, const void *address);
/* Before anything else is put there, and when nothing runs there any more. */
PROF_PUBLIC bool prof_jit_unload(const void *address);

/* ---- Counters -------------------------------------------------------------------------------- */

#define PROF_COUNT_DOUBLE 0x01u /* values are double, else int64_t */
#define PROF_COUNT_SUM 0x02u    /* values are a sum that grows, else what holds at the time */

/*
 * Of the process; the same group, name, unit and flags are the same counter. unit: "bytes", "ns", …
 * or "". Returns its number, which is valid for as long as the process lives and in its children;
 * 0: there are 1024 already. Keeps the strings. May be called where nobody records. Not in
 * handlers.
 */
PROF_PUBLIC uint32_t prof_counter_define(const char *group, const char *name, const char *unit,
					 uint32_t flags);
/* While nobody records the value stays as it is. Of the kind that the counter was defined with,
 * else false. */
PROF_PUBLIC bool prof_counter_set(uint32_t counter, int64_t value);
PROF_PUBLIC bool prof_counter_add(uint32_t counter, int64_t difference);
PROF_PUBLIC bool prof_counter_set_double(uint32_t counter, double value);
PROF_PUBLIC bool prof_counter_add_double(uint32_t counter, double difference);

/* ---- Logs and names -------------------------------------------------------------------------- */

/* level: of syslog(3), 0 to 7. */
PROF_PUBLIC bool prof_log(uint32_t level, const char *domain, const char *text);

/* What the recording calls the calling thread; the kernel's name for it stays. */
PROF_PUBLIC bool prof_thread_set_name(const char *name);

/* ---- For <prof/mark.h> ----------------------------------------------------------------------- */

/* All of the above; functions are added at the end, so `bytes` says which there are. */
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
 *     …                               what is sampled
 *     prof_recorder_end("frame");
 *     …
 *     prof_recorder_close();
 *
 * Samples of the calling process, its threads and what it starts from open on, of the time while at
 * least one block is open and of no other; each block is a mark. `profctl record` does it, as a
 * process of its own that is no child of this one: no wait() finds it, and no SIGCHLD comes. Where
 * this process ends without close, or becomes another program, the file is finished all the same.
 *
 * One recorder a process. Blocks nest and overlap, up to 64 of them, in any threads. A forked child
 * has no recorder, and may open its own. Not in handlers; open not while another thread changes the
 * environment. Nothing is printed, and errno stays.
 *
 * All return 0, a -errno, or an enum prof_recorder_status.
 */
enum prof_recorder_status {
	PROF_RECORDER_NO_PROFCTL = 1, /* it was not found, or is no program */
	PROF_RECORDER_NOT_PERMITTED,  /* profctl may not record this process, or not write there */
	PROF_RECORDER_NO_DAEMON,      /* no profd answers, and none could be started */
	PROF_RECORDER_UNREADABLE,     /* what was to be continued is no capture */
	PROF_RECORDER_FAILED,         /* anything else with profctl; also that it is gone */
	PROF_RECORDER_NO_COLLECTOR,   /* prof_collector_connect() would not work either */
	PROF_RECORDER_RECORDED,       /* by somebody else, who gets the process's marks */
	PROF_RECORDER_OPEN,           /* there is one already, or another thread is about to */
	PROF_RECORDER_NOT_OPEN,       /* or it is the one of the process that this was forked of */
	PROF_RECORDER_NO_BLOCK,       /* of that name */
	PROF_RECORDER_TOO_MANY,       /* blocks */
	PROF_RECORDER_PAUSED, /* by `profctl pause`, or who else may: the block is not begun */
	/* stopped by somebody, or profd is gone; all that remains is to close */
	PROF_RECORDER_ENDED
};

/* Zeros are the defaults. */
struct prof_recorder_options {
	uint32_t frequency;     /* samples a second and CPU; 999 */
	uint32_t append;        /* 1: a capture that is there is continued, else that is -EEXIST */
	const char *call_graph; /* as profctl's option: "auto" */
	const char *events;     /* as profctl's option, separated by commas */
	const char *group;      /* of the blocks' marks, up to 255 bytes; "recorder" */
	const char *profctl;    /* the program; the first in PATH, else where it was installed */
	const char *bus;        /* as profctl's option: "auto" */
	uint64_t reserved[4];   /* 0 */
};

/* Waits for profctl, most often some 50 ms, at most 30 s. path: of a file, from the current
 * directory. options: may be NULL. */
PROF_PUBLIC int prof_recorder_open(const char *path, const struct prof_recorder_options *options);
/*
 * Returns when sampling is enabled: begin, in all threads. What comes after an end, where no other
 * block is open, is not kept. name: of the mark; NULL is "block". A block may end in another thread
 * than it began in; of several of one name ends the last that the thread has begun, else the last
 * of any. Each waits at most 1 s, for a profd that does not answer (-ETIMEDOUT).
 */
PROF_PUBLIC int prof_recorder_begin(const char *name);
PROF_PUBLIC int prof_recorder_end(const char *name);
/* Waits until the file is whole, with names, at most 60 s (-ETIMEDOUT: it will be). A block that
 * is open ends with it. */
PROF_PUBLIC int prof_recorder_close(void);

/* What a number returned by the above means, in English. */
PROF_PUBLIC const char *prof_recorder_error(int status);
/* What profctl said where the last open or close failed, in the user's language, or "". Until
 * the next of these. */
PROF_PUBLIC const char *prof_recorder_message(void);

#ifdef __cplusplus
}
#endif
