/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Register - how this process comes to its arenas, and each of its threads to a ring
 *
 *     struct producer *producer = producer_get();
 *
 * Nothing here aborts, prints, allocates from the program's heap, or changes errno. What waits is
 * the first use in a process, at most CONTROL_WAIT_NS, in a real-time thread REGISTER_REALTIME_NS;
 * and who finds no ring, or no bigger one: at most RING_WAIT_NS, within what a process may wait for
 * its rings.
 */
#pragma once

#include "libcollector/intern.h"
#include "libcollector/own-code.h"
#include "libcollector/ring-own.h"

#define REGISTER_MAX_COUNTERS 1025u /* number 0 is none */
#define REGISTER_REALTIME_NS UINT64_C(10000000)

struct call_tree;

/* What a thread records with. One a ring, kept for the ring's next owner. */
struct producer {
	struct ring *ring;                        /* as claimed; what is released */
	struct ring *current;                     /* where that moved to */
	const uint32_t *ended;                    /* only to be read where the ring is alive */
	uint32_t n_types;                         /* that the consumer knows */
	uint32_t calls_epoch;                     /* of the nodes of `calls` */
	uint32_t n_stuck;                         /* records that were lost without a wait */
	uint64_t next_id;                         /* of marks */
	struct call_tree *calls;                  /* call-tree.h; NULL: not yet needed */
	uint32_t counters[REGISTER_MAX_COUNTERS]; /* by number: the epoch in which it was defined */
	struct intern intern;
	struct own_code code; /* last, as only stacks take memory for it */
};

/* Of each thread; small, as a library that is opened late gets only what is left of static TLS. */
struct register_thread {
	struct producer *producer;
	uint64_t forking; /* the generation whose arenas a child has to be shielded from */
	uint32_t skip;    /* attempts to lose before the next try to get a ring */
	uint32_t last_skip;
	bool is_inside;
	bool no_syscall;
	bool is_done; /* its destructors have run, if for the last time is not known */
};

extern __thread struct register_thread register_self
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

/* CONTROL_WANTS_*: said when the process registers, so to be set before it does. */
extern uint32_t register_wants __attribute__((visibility("hidden")));

/* Why register_start() did not begin, where it did not. */
extern enum control_reason register_start_reason __attribute__((visibility("hidden")));

/* Called when it begins or ends that the process is recorded, as far as anybody knows; NULL:
 * nobody cares. */
extern void (*register_on_state)(bool is_on) __attribute__((visibility("hidden")));

/* Makes ready what register_connect() needs, for a process that may be asked to do so within a
 * hook. */
void register_prepare(void);
/* Whether that has been done, and this is not a child of vfork(), which has its parent's memory. */
bool register_is_own(void);

/* For who answers a wake, with all signals blocked: one thread at a time; a forked child has its
 * own turn. False: another one does. */
bool register_begin_answer(void);
void register_end_answer(void);

/* What the library does when it is loaded; where a hook is called before that, by the hook. More
 * than once does nothing. */
void register_start(void);
/* Tell the engine, as far as the process can, why there is no heap of it. */
void register_explain(enum control_reason reason);
/* A variable of the environment that the process was started with. False: there is none, or it
 * is too long. */
bool register_read_variable(const char *name, char *ret_value, size_t n_bytes);

/* NULL: counted. */
struct producer *register_producer(void);
/* As above, in a bigger ring if there can be one; else the one that the thread has. */
struct producer *register_bigger(struct producer *producer, uint64_t bytes);

static inline struct producer *producer_get(void)
{
	struct producer *producer = register_self.producer;

	return __builtin_expect(producer != NULL, 1) ? producer : register_producer();
}

/*
 * ring_begin() gave nothing: true where that was not counted, as this is a forked child, or the
 * ring was released; so there is another try with what producer_get() returns then.
 */
bool register_again(struct producer *producer);

/* Everything that is no record is done so: no handler interrupts it, and none leaves it. Returns
 * what restores. */
uint64_t register_block_signals(void);
void register_restore_signals(uint64_t before);

/* Of what was given up. */
void register_count_lost(void);

/* A filter that may kill is one that was seen here; asking takes a call itself. Also where it
 * cannot be known. */
bool register_is_filtered(void);

/* The session is over: nothing is recorded any more. */
void register_ended(struct producer *producer);

/* RING_NO_SYSCALL for the calling thread, from now on; claims a ring first, as that takes some. */
bool register_no_syscall(void);

/* The process is recorded by a session, as far as anybody knows. May register it. */
bool register_is_recorded(void);
/* It is not, from now on. */
void register_leave(void);

/* Explicitly, of a program that was not started with PROF_CONTROL. 0, an enum control_status, or
 * -errno. */
MUST_CHECK int register_connect(const char *addresses);
