/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Stack-places - the place in the program that a stack ends in, and what a thread waits for there
 *
 * The place is the innermost frame of the program itself, else the innermost frame outside the
 * kernel. The place's number belongs to `functions`, not to the epoch, so it stays valid in later
 * epochs.
 */
#pragma once

#include "tools/profile/stacks.h"
#include "tools/profile/wait-causes.h"

struct stack_place {
	uint32_t place; /* FUNCTION_NO_STACK: no stack */
	bool is_own;    /* the place is in the program's own code */
	enum wait_cause cause;
	const char *call; /* name of the system call or of the cause, static; NULL: unknown */
};

struct stack_places {
	struct functions *functions; /* with inlined calls and lines */
	struct stacks *stacks;       /* stacks of the last epoch */
	/* the rest is private */
	uint32_t epoch;
	struct number_map known; /* node of `stacks` → index in found + 1 */
	GArray *path;            /* uint32_t: nodes that are not known yet */
	GArray *found;           /* struct stack_place */
};

/* Borrows `names`. The caller zeroes the struct. */
bool stack_places_init(struct stack_places *places, struct names *names, GError **error);
void stack_places_done(struct stack_places *places);
/* Must be called before the functions below use stacks of an epoch. Nodes of another epoch become
 * invalid. */
bool stack_places_begin(struct stack_places *places, struct names_epoch *epoch, GError **error);
/* Returns the node of a stack at a clock value of a segment; STACKS_NO_ROW: no stack. */
uint32_t stack_places_node(struct stack_places *places, uint64_t stack, uint32_t segment,
			   uint64_t time_ns);
struct stack_place stack_places_find(struct stack_places *places, uint32_t node);
/* Stores the places of a node's frame, outermost first, and returns their number, at most
 * FUNCTIONS_MAX_AT_ROW. */
size_t stack_places_of_frame(struct stack_places *places, uint32_t node, uint32_t *ret_places);
/* Returns "acquire (convoy.c:44)"; without full_names, the name is shortened. The caller frees
 * it. */
char *stack_places_describe(const struct functions *functions, uint32_t place, bool full_names)
	MUST_CHECK;
