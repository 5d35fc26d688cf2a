/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Html-waits - the waits of a capture for the page, merged while they are read
 *
 * The page counts the part of each wait that is in a range, and its ranges begin and end on a grid.
 * So waits within one cell of the grid are merged like samples, and each wait across cells is a
 * separate row; a thread has at most one such wait at each border. If too many waits cross cells,
 * the cells grow, so that memory is bounded however long the recording is
 * [test-html-samples: waits]
 */
#pragma once

#include "tools/profcapture/html-samples.h"

struct html_wait {
	int64_t begin_ns;
	uint64_t length_ns;
	uint32_t thread, stack;
	/* begin_ns in whole units, and the remainder in ns; set by html-rows.c */
	uint32_t time, rest;
};

struct html_waits {
	guint most; /* maximum number of rows of `across`, unless the cells are the largest */
	int64_t cell_ns, most_cell_ns;
	struct html_samples within;
	GArray *across; /* struct html_wait */
};

/* `cell_ns`: a power of two, GRID_UNITS or more. */
void html_waits_init(struct html_waits *waits, int64_t cell_ns, int64_t duration_ns);
void html_waits_done(struct html_waits *waits);
/* Adds the waits of a profile; each has a thread (index in names) and a stack (node). `data`:
 * struct html_waits. */
void html_waits_take(const struct profile_sample *each, size_t n, void *data);
/* Sorts the waits across cells by begin, thread and stack. */
void html_waits_sort(struct html_waits *waits);
