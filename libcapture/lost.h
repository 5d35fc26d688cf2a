/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Lost - the chunks that turned out to be unreadable, each once
 *
 * See lost.c. Belongs to a reader; any thread may add and ask.
 */
#pragma once

#include "libcapture/format.h"

struct lost;

MUST_CHECK int lost_new(struct lost **ret_lost);
void lost_free(struct lost *lost);
/* `rows` of the chunk cannot be read. Added again, the chunk counts once, with the most rows
 * that were ever lost of it. */
MUST_CHECK int lost_add(struct lost *lost, const struct prof_chunk *chunk, uint32_t rows);
/* Adds up the chunks of a table, or of all (0). */
void lost_sum(struct lost *lost, unsigned int table, struct prof_lost *sum);
