/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Lost - the chunks that were found to be unreadable, each once
 *
 * See lost.c. Belongs to a reader; any thread may add and query.
 */
#pragma once

#include "libcapture/format.h"

struct lost;

MUST_CHECK int lost_new(struct lost **ret_lost);
void lost_free(struct lost *lost);
/* `rows` of the chunk cannot be read. A chunk that is added again counts once, with its highest
 * number of lost rows. */
MUST_CHECK int lost_add(struct lost *lost, const struct prof_chunk *chunk, uint32_t rows);
/* Sums the chunks of a table, or of all (0). */
void lost_sum(struct lost *lost, unsigned int table, struct prof_lost *sum);
