/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Register - gets arenas for this process, and a ring for each of its threads
 *
 *     struct producer *producer = producer_get();
 *
 * The functions never abort, print, allocate from the program's heap, or change errno. There are
 * two waits: the first use in a process waits at most CONTROL_WAIT_NS, or REGISTER_REALTIME_NS in a
 * real-time thread; a thread that finds no ring, or no larger one, waits at most RING_WAIT_NS (for
 * a ring in a lossless session: longer), within the process's budget for waits.
 */
#pragma once

#include "libcollector/register/intern.h"
#include "libcollector/ring/ring-inline.h"
#include "libcollector/unwind/self-maps.h"

#define REGISTER_MAX_COUNTERS 1025u /* number 0 is not used */
#define REGISTER_REALTIME_NS UINT64_C(10000000)

struct call_tree;

/* The state with which a thread records. Each ring has one, kept for the ring's next owner. */
struct producer {
	struct ring *ring;       /* ring that was claimed and must be released */
	struct ring *current;    /* ring in use: `ring`, or a larger one that the thread moved to */
	const uint32_t *ended;   /* the arena's flag; read it only if the ring is alive */
	uint32_t n_types;        /* number of record types that the consumer supports */
	uint32_t calls_epoch;    /* epoch of the nodes in `calls` */
	uint32_t n_stuck;        /* number of records lost in a stuck ring (ring_is_stuck()) */
	uint64_t next_id;        /* next id of a mark */
	struct call_tree *calls; /* see call-tree.h; NULL: not needed yet */
	/* by counter number: epoch of the counter's definition */
	uint32_t counters[REGISTER_MAX_COUNTERS];
	struct intern intern;
	struct self_maps code; /* last, because only stacks use its memory */
};

/* One for each thread. Small, because a library that is loaded late gets only what is left of the
 * memory that the dynamic linker reserves for static TLS. */
struct register_thread {
	struct producer *producer;
	uint64_t forking; /* parent's generation; a forked child replaces the arenas of that
			   * generation by private memory (ring_arena_shield()) */
	uint32_t skip;    /* number of records to drop before the next try to get a ring */
	uint32_t last_skip;
	bool is_inside;
	bool no_syscall;
	bool is_done; /* thread_done() has run; it may run again */
};

extern __thread struct register_thread register_self
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

/* CONTROL_WANTS_*. Set these before the registration, which sends them. */
extern uint32_t register_wants __attribute__((visibility("hidden")));

/* Why register_start() did not start a recording. */
extern enum control_reason register_start_reason __attribute__((visibility("hidden")));

/* Called when the process finds that recording has begun or ended. May be NULL. */
extern void (*register_on_state)(bool is_on) __attribute__((visibility("hidden")));

/* Sets up the state that register_connect() needs. Call this early, because an attach request may
 * make any hook call register_connect() later. */
void register_prepare(void);
/* Returns whether the state is set up and belongs to this process. False in a child of vfork(),
 * which shares its parent's memory. */
bool register_is_own(void);

/* For the thread that answers an attach request, with all signals blocked. Returns false if another
 * thread is answering. A forked child has its own state. */
bool register_begin_answer(void);
void register_end_answer(void);

/* Starts the library. Called when it is loaded, or by an earlier hook. Repeated calls do
 * nothing. */
void register_start(void);
/* Reports to the engine, if possible, why the process's heap is not recorded. */
void register_explain(enum control_reason reason);
/* Reads an environment variable; if there may be other threads, the value that it had when the
 * process started. Returns false if it is not set or too long. */
bool register_read_variable(const char *name, char *ret_value, size_t n_bytes);

/* Returns NULL, and counts a lost record, if the thread gets no ring. */
struct producer *register_producer(void);
/* Moves the thread to a ring of at least `bytes`, if there is one. Returns the new producer, else
 * the given one. */
struct producer *register_bigger(struct producer *producer, uint64_t bytes);

static inline struct producer *producer_get(void)
{
	struct producer *producer = register_self.producer;

	return __builtin_expect(producer != NULL, 1) ? producer : register_producer();
}

/* Call this after ring_begin() returned NULL. Returns false if the loss was counted. Returns true
 * if this is a forked child or the ring was released: then retry with producer_get(). */
bool register_again(struct producer *producer);

/* Blocks all signals, so that no handler interrupts or leaves the code up to the restore. Used for
 * everything except records. Returns the mask to restore. */
uint64_t register_block_signals(void);
void register_restore_signals(uint64_t before);

void register_count_lost(void);

/* Returns true if the thread has a seccomp filter, which may kill it for a system call, or if that
 * is unknown. The check is itself a system call. */
bool register_is_filtered(void);

/* Call this when the session is over. Stops recording. */
void register_ended(struct producer *producer);

/* Sets RING_NO_SYSCALL for the calling thread. First claims a ring, because that takes system
 * calls. Returns false if the thread gets no ring. */
bool register_no_syscall(void);

/* Returns whether a session records the process, as far as the process can see. May register the
 * process. */
bool register_is_recorded(void);
void register_leave(void);

/* Connects a program that was started without PROF_CONTROL, or whose last session is over. Returns
 * 0, an enum control_status, or -errno. */
MUST_CHECK int register_connect(const char *addresses);
