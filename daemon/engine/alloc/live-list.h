/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/alloc/live-blocks.h"

struct live_item {
	uint64_t number;
	const struct live_block *block;
};

/* All blocks of a process by number. Valid until a block changes. */
struct live_list {
	struct live_item *items; /* sorted once live_list_run() has returned true */
	uint32_t n;
	/* The members below are state of live-list.c. */
	const struct live_blocks *live;
	struct live_item *other; /* items of the next pass */
	struct live_places *places;
	GTreeNode *mapped; /* next mapping; NULL: all are listed */
	uint32_t n_read;   /* number of blocks that have been read */
	uint32_t n_listed;
	uint32_t n_sorted; /* number of items that are sorted by the current digit */
	unsigned int pass; /* the current digit */
	unsigned int n_passes;
};

/* Begins a list of all blocks, including the held ones; free with live_list_done(). No number is
 * higher than `highest`. Returns false if there is no memory; then the list is empty. */
bool live_list_init(struct live_list *list, const struct live_blocks *live,
		    const struct live_block *const *held, uint64_t highest);
/* Continues the list. Returns whether it is complete. */
bool live_list_run(struct live_list *list);
void live_list_done(struct live_list *list);
