/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/output.h"
#include "daemon/protocol.h"

#include <glib.h>

#define LOSS_STREAM_BYTES 32
#define LOSS_UNKNOWN \
	UINT64_MAX /* a count: at least one record was lost, and their number is not known */

struct loss_key {
	char stream[LOSS_STREAM_BYTES];
	enum prof_loss_cause cause;
	bool is_unknown; /* loss_add() sets it; the count is 0 then */
};

struct loss {
	struct loss_key key;
	uint64_t count, bytes, from_ns, to_ns;
};

/* What was lost: `pending` goes into the loss table with the next flush, `total` is the whole
 * session's. */
struct loss_table {
	GHashTable *pending, *total; /* struct loss, by itself */
};

void loss_init(struct loss_table *table);
void loss_done(struct loss_table *table);
/* Adds to what the stream lost by this cause. Losses of an unknown number have a row of their
 * own. */
void loss_add(struct loss_table *table, const struct loss *loss);
/* The stream is "cpuN", "cpuN/side-band" or the name of a table. */
void loss_add_cpu(struct loss_table *table, uint32_t cpu, bool side_band,
		  enum prof_loss_cause cause, uint64_t count, uint64_t from_ns, uint64_t to_ns);
/* Writes what is pending, one row for each stream and cause; what the output dropped is added
 * first. */
void loss_flush(struct loss_table *table, struct output *output);
/* Everything but ticks-missed, and that alone. A row whose count is unknown adds 1: the sum is
 * at least that. */
void loss_sum(const struct loss_table *table, uint64_t *ret_lost, uint64_t *ret_missed_ticks);
/* At most MESSAGE_MAX_LOSS rows; returns how many. */
size_t loss_export(const struct loss_table *table, struct message_loss *losses);
