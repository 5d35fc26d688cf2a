/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Diff-run - one of the captures that `diff` compares: its counts by function and block
 */
#pragma once

#include "tools/profcapture/diff.h"

/* Reads one capture. All runs have the same options; each run frees its own copy of the
 * filters. */
bool diff_run_read(struct diff *diff, unsigned side, const char *file, GError **error);
/* Sets run->weights, the denominators by which the counts of the blocks are divided, and their
 * sum. */
bool diff_run_weigh(struct diff_run *run, GError **error);
void diff_run_free(gpointer data);

void diff_count_add(struct diff_count *to, const struct diff_count *count);
/* Returns the block that a time is in. */
unsigned diff_run_block(const struct diff_run *run, int64_t time_ns);
static inline const struct profile_node *diff_run_node(const struct diff_run *run, uint32_t node)
{
	return &((const struct profile_node *)(void *)run->profile.tree.nodes->data)[node];
}

/* Returns the index in `counts` for a node of the run's tree. */
uint32_t diff_run_key(const struct diff_run *run, uint32_t node);
