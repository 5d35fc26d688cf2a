/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Register - gets arenas for this process, and a ring for each of its threads
 *
 *     struct producer *producer = producer_get();
 *
 * Nothing here aborts, prints, allocates from the program's heap, or changes errno. Two things
 * wait: the first use in a process, at most CONTROL_WAIT_NS, or REGISTER_REALTIME_NS in a real-time
 * thread; and a thread that finds no ring, or no larger one, at most RING_WAIT_NS, within the
 * process's budget for waits.
 */
#pragma once

#include "libcollector/intern.h"
#include "libcollector/ring-internal.h"
#include "libcollector/self-maps.h"

#define REGISTER_MAX_COUNTERS 1025u /* number 0 is not used */
#define REGISTER_REALTIME_NS UINT64_C(10000000)

struct call_tree;

/* The state that a thread records with. One a ring, kept for the ring's next owner. */
struct producer {
	struct ring *ring;                        /* as claimed and released */
	struct ring *current;                     /* the ring that the thread moved to */
	const uint32_t *ended;                    /* read only if the ring is alive */
	uint32_t n_types;                         /* supported by the consumer */
	uint32_t calls_epoch;                     /* of the nodes of `calls` */
	uint32_t n_stuck;                         /* records lost without a wait */
	uint64_t next_id;                         /* of marks */
	struct call_tree *calls;                  /* call-tree.h; NULL: not needed yet */
	uint32_t counters[REGISTER_MAX_COUNTERS]; /* by number: epoch of its definition */
	struct intern intern;
	struct self_maps code; /* last, because only stacks use its memory */
};

/* One a thread; small, because a library that is loaded late gets only the rest of static TLS. */
struct register_thread {
	struct producer *producer;
	uint64_t forking; /* generation whose arenas a forked child must be shielded from */
	uint32_t skip;    /* attempts to lose before the next try to get a ring */
	uint32_t last_skip;
	bool is_inside;
	bool no_syscall;
	bool is_done; /* its destructors have run, perhaps not for the last time */
};

extern __thread struct register_thread register_self
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

/* CONTROL_WANTS_*, sent at registration, so set it before that. */
extern uint32_t register_wants __attribute__((visibility("hidden")));

/* The reason why register_start() did not begin, if it did not. */
extern enum control_reason register_start_reason __attribute__((visibility("hidden")));

/* Called when recording begins or ends, as far as is known. May be NULL. */
extern void (*register_on_state)(bool is_on) __attribute__((visibility("hidden")));

/* Prepares what register_connect() needs, for a process that may be asked to connect within a
 * hook. */
void register_prepare(void);
/* True if that has been done, and this is not a child of vfork(), which has its parent's memory. */
bool register_is_own(void);

/* For the thread that answers an attach request, with all signals blocked. One thread at a time; a
 * forked child has its own state. Returns false if another thread answers. */
bool register_begin_answer(void);
void register_end_answer(void);

/* Starts the library: called when it is loaded, or by a hook that is called before that. Repeated
 * calls do nothing. */
void register_start(void);
/* Tells the engine, as far as the process can, why its heap is not recorded. */
void register_explain(enum control_reason reason);
/* Reads a variable of the environment that the process was started with. Returns false if it is not
 * set, or too long. */
bool register_read_variable(const char *name, char *ret_value, size_t n_bytes);

/* Returns NULL if the record is lost; counts it. */
struct producer *register_producer(void);
/* As above, in a larger ring if there is one; else in the thread's ring. */
struct producer *register_bigger(struct producer *producer, uint64_t bytes);

static inline struct producer *producer_get(void)
{
	struct producer *producer = register_self.producer;

	return __builtin_expect(producer != NULL, 1) ? producer : register_producer();
}

/*
 * To be called after ring_begin() returned NULL. Returns true if the loss was not counted, because
 * this is a forked child, or the ring was released: retry with the result of producer_get().
 */
bool register_again(struct producer *producer);

/* Signals are blocked during everything but records, so that no handler interrupts it or leaves it.
 * Returns the mask to restore. */
uint64_t register_block_signals(void);
void register_restore_signals(uint64_t before);

/* Counts a record that was dropped. */
void register_count_lost(void);

/* Returns whether the thread has a seccomp filter, which may kill for a system call; also true if
 * unknown. This is itself a system call. */
bool register_is_filtered(void);

/* To be called when the session is over: nothing is recorded any more. */
void register_ended(struct producer *producer);

/* Sets RING_NO_SYSCALL for the calling thread; claims a ring first, because that takes system
 * calls. */
bool register_no_syscall(void);

/* True if a session records the process, as far as is known. May register it. */
bool register_is_recorded(void);
/* Ends the recording of the process. */
void register_leave(void);

/* Explicit connect, for a program that was started without PROF_CONTROL. Returns 0, an enum
 * control_status, or -errno. */
MUST_CHECK int register_connect(const char *addresses);
