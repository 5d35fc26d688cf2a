/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Lost - the list of chunks that were found unreadable, each once
 *
 * Belongs to a reader; any thread may add and query.
 */
#pragma once

#include "libcapture/format.h"

struct lost;

MUST_CHECK int lost_new(struct lost **ret_lost);
void lost_free(struct lost *lost);
/* Adds a chunk with `rows` rows that cannot be read. A chunk that is added again is counted once,
 * with its highest number of lost rows. */
MUST_CHECK int lost_add(struct lost *lost, const struct prof_chunk *chunk, uint32_t rows);
/* Adds the lost chunks of a table (0: of all tables) to *sum. */
void lost_sum(struct lost *lost, unsigned int table, struct prof_lost *sum);
