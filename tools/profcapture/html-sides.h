/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Html-sides - the capture of a page, or the two that it compares, on one time axis
 *
 * The later capture follows the earlier one. Functions are matched as diff does, and stacks are
 * merged by their functions, so comparing two ranges of the axis compares the captures. As in diff,
 * all code that runs in interrupts counts as one function, unless --mode is kernel;
 * html_sides_init() adds this function  [test_html: compare].
 */
#pragma once

#include "tools/profcapture/export.h"

/* The finest unit of time is the grid's step divided by this. */
#define GRID_UNITS 256u

enum { HTML_FIRST, HTML_LATER, HTML_SIDES };

struct html_side {
	struct export *export;
	int64_t from_ns, to_ns; /* the range of the axis that the side covers */
	/* On the page, the number of a thread is its index + first_thread; that of a function is
	 * its index + first_function, or the number that the other side gave to the same
	 * function. */
	uint32_t first_thread, first_function;
	uint32_t *functions; /* number by index; NULL: numbers equal indexes */
	uint32_t *stacks;    /* node of the merged tree by node of the side; NULL: they are equal */
	/* like `stacks`, for the tree of waits; NULL: the side has no waits */
	uint32_t *wait_stacks;
	/* weight of the side's samples and waits, without those in interrupts */
	uint64_t compared, compared_waits;
};

struct html_sides {
	struct html_side each[HTML_SIDES];
	unsigned n;
	int64_t grid_ns; /* the step of the times at which ranges begin and end */
	/* struct profile_node: the merged stacks, whose entities are numbers of functions */
	GArray *nodes;
	guint folded;        /* how many stacks were folded into their callers */
	uint32_t interrupts; /* number of the function that represents interrupts */
	GHashTable *unnamed; /* numbers of functions that stand for code without a symbol */
};

void html_sides_init(struct html_sides *sides, struct export *export);
void html_sides_done(struct html_sides *sides);
/* Returns the side that has the function or thread with this number, and its index there. Returns
 * NULL for the function that represents interrupts. */
const struct html_side *html_function_side(const struct html_sides *sides, uint32_t number,
					   uint32_t *ret_index);
const struct html_side *html_thread_side(const struct html_sides *sides, uint32_t number,
					 uint32_t *ret_index);
/* Returns whether both sides are runs of commands with the same event. The page then compares
 * totals, otherwise shares. */
bool html_sides_are_runs(const struct html_sides *sides);
/* Return the factor that makes the first capture's weights comparable with the later's. */
double html_sides_scale(const struct html_sides *sides);
double html_sides_wait_scale(const struct html_sides *sides);
/* Returns whether each side has waits. */
bool html_sides_have_waits(const struct html_sides *sides);

static inline uint32_t html_stack(const struct html_side *side, uint32_t node)
{
	return side->stacks ? side->stacks[node] : node;
}
