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
	bool is_unknown; /* set by loss_add(); the count is 0 then */
};

struct loss {
	struct loss_key key;
	uint64_t count, bytes, from_ns, to_ns;
};

/* Lost records: `pending` goes into the loss table at the next flush, `total` is for the whole
 * session. */
struct loss_table {
	GHashTable *pending, *total; /* struct loss, by itself */
};

void loss_init(struct loss_table *table);
void loss_done(struct loss_table *table);
/* Adds losses of a stream and cause. Losses of an unknown number have a row of their own. */
void loss_add(struct loss_table *table, const struct loss *loss);
/* The stream is "cpuN", "cpuN/side-band" or the name of a table. */
void loss_add_cpu(struct loss_table *table, uint32_t cpu, bool side_band,
		  enum prof_loss_cause cause, uint64_t count, uint64_t from_ns, uint64_t to_ns);
/* Writes pending losses, one row for each stream and cause. Losses of the output are added
 * first. */
void loss_flush(struct loss_table *table, struct output *output);
/* Sums all losses but ticks-missed, and ticks-missed alone. A row of unknown count adds 1, so the
 * sum is a lower bound. */
void loss_sum(const struct loss_table *table, uint64_t *ret_lost, uint64_t *ret_missed_ticks);
/* Exports at most MESSAGE_MAX_LOSS rows. Returns how many. */
size_t loss_export(const struct loss_table *table, struct message_loss *losses);
