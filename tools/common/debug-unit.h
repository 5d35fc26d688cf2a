/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Debug unit - one unit of DWARF, flattened into ranges of functions and of lines
 */
#pragma once

#include "tools/common/debug-info.h"
#include "tools/common/debug-split.h"

#include <glib.h>

/* The budget for one file, all units together. */
struct debug_budget {
	uint64_t dies;     /* visited */
	uint64_t ranges;   /* of functions and calls */
	uint64_t lines;    /* rows */
	uint64_t until_ns; /* CLOCK_MONOTONIC */
	bool spent;        /* one of these ran out */
};

/* [start, start of the next range) belongs to functions[function]. A range without a function ends
 * a stretch of code. */
struct debug_range {
	uint64_t start;
	uint32_t function; /* DEBUG_UNIT_NONE = none */
};

/* Likewise; NULL = unknown. */
struct debug_line {
	uint64_t start;
	const char *file;
	uint32_t line;
};

#define DEBUG_UNIT_NONE UINT32_MAX

/* A namespace or a class: all DIEs in [start, end). */
struct debug_scope {
	uint64_t start, end;
	uint32_t parent; /* DEBUG_UNIT_NONE = none */
	uint32_t depth;  /* in the tree of DIEs */
};

struct debug_unit {
	struct debug_info_function *functions;
	struct debug_range *ranges; /* by start */
	struct debug_line *lines;   /* by start */
	GArray *scopes;             /* struct debug_scope, by start */
	GStringChunk *names;        /* that the file does not have in one piece; NULL = none */
	size_t n_functions, n_ranges, n_lines;
	Dwarf_Die die;           /* of the unit; of its other half if that was split off */
	Dwarf_Die skeleton;      /* the half in the program or its debug file */
	struct debug_half *half; /* the half that was split off; NULL = none, or not found */
};

/* Never fails: unreadable parts, and those beyond the budget, are missing. */
void debug_unit_init(struct debug_unit *unit, Dwarf_Die *die, struct debug_split *split,
		     struct debug_budget *budget);
void debug_unit_done(struct debug_unit *unit);

/* If nothing is known, these return NULL. [start, end) is narrowed to the addresses that have the
 * same answer. */
struct debug_info_function *debug_unit_find_function(struct debug_unit *unit, uint64_t address,
						     uint64_t *start, uint64_t *end);
const struct debug_line *debug_unit_find_line(const struct debug_unit *unit, uint64_t address,
					      uint64_t *start, uint64_t *end);
