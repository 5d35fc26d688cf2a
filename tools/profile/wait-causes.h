/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Wait-causes - finds in a stack what its thread waits for, and charges the time to the program's
 * own functions
 *
 * The innermost function with a known name decides: a kernel function, or a function of the C
 * library if the kernel's frames were not recorded. If only the system call was recorded instead of
 * the kernel's frames, the readers add a frame for the call to the stack.
 */
#pragma once

#include "tools/profile/code-origin.h"

enum wait_cause {
	WAIT_FUTEX,
	WAIT_FILE,
	WAIT_NETWORK,
	WAIT_TIMER,
	WAIT_PIPE,
	WAIT_FAULT,
	WAIT_PROCESS,
	WAIT_POLL, /* for one of several descriptors */
	WAIT_OTHER,
	WAIT_UNKNOWN, /* the stack is unknown, or has no known name */
	WAIT_CAUSES
};
extern const char *const wait_cause_names[];

/* The waits for one cause below one own function. */
struct wait_place {
	uint32_t function; /* FUNCTION_NO_STACK: none */
	enum wait_cause cause;
	const char *call; /* name of the system call or of the cause; static; NULL: unknown */
	uint64_t weight;
	uint64_t n;
};

struct wait_places {
	GHashTable *all; /* set of struct wait_place */
};

/* Returns the cause for a function's name, or WAIT_UNKNOWN. *ret_call: a static text. */
enum wait_cause wait_cause_of(const char *name, const char **ret_call);
/* The columns of a wait's row that name the call in which the thread waited. */
struct wait_call {
	uint64_t source, state;    /* enum prof_stack_source, enum prof_wait_state */
	const char *call, *object; /* the system call, and what its descriptor refers to, or NULL */
};
/* Returns a name for wait_cause_of(): `call`, or a static text. NULL: the name is unknown, or the
 * kernel's frames in the stack show the call already. */
const char *wait_call_name(const struct wait_call *wait);
/* Returns the place of a wait whose innermost frame is `function`. `caller`: the place of a wait in
 * its caller; NULL: no caller. */
struct wait_place wait_place_below(const struct wait_place *caller,
				   const struct functions *functions, uint32_t function);
/* Returns for each node of a tree (struct profile_node, whose entities are functions) the cause and
 * the own function of a wait whose stack ends in the node. */
struct wait_place *wait_places_of_nodes(const GArray *nodes, const struct functions *functions)
	MUST_CHECK;
/* Adds the waits of each stack to their place. Must be called for each epoch, after stacks_settle()
 * with functions as entities. The first call allocates. */
void wait_places_count(struct wait_places *places, const struct functions *functions,
		       const struct stacks *stacks);
/* Counts waits without a stack. */
void wait_places_add_unknown(struct wait_places *places, struct amount amount);
void wait_places_done(struct wait_places *places);
/* Returns struct wait_place, greatest weight first. Unref it. */
GArray *wait_places_rows(const struct wait_places *places) MUST_CHECK;
