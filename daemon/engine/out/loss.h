/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/out/output.h"
#include "daemon/protocol.h"

#include <glib.h>

#define LOSS_STREAM_BYTES 32
#define LOSS_UNKNOWN UINT64_MAX /* count of an unknown number of records, at least one */

struct loss_key {
	char stream[LOSS_STREAM_BYTES];
	enum prof_loss_cause cause;
	bool is_unknown; /* set by loss_add(); if true, `count` is 0 */
};

struct loss {
	struct loss_key key;
	uint64_t count, bytes, from_ns, to_ns;
};

/* Lost records: `pending` is written as rows at the next flush, `total` sums up the session. */
struct loss_table {
	GHashTable *pending, *total; /* set of struct loss */
	unsigned int n_streams;      /* processes with losses */
};

/* The losses of records that a process sends. Their stream is "collector/PID", or "collectors" if
 * too many processes have losses. */
struct loss_stream {
	struct loss_table *table;
	char name[LOSS_STREAM_BYTES];
	bool has_lost;
};

void loss_init(struct loss_table *table);
void loss_done(struct loss_table *table);
/* Adds losses of a stream and cause. Losses of unknown number are in a separate row. */
void loss_add(struct loss_table *table, const struct loss *loss);
/* Like loss_add(), for the stream "cpuN" or "cpuN/side-band". */
void loss_add_cpu(struct loss_table *table, uint32_t cpu, bool side_band,
		  enum prof_loss_cause cause, uint64_t count, uint64_t from_ns, uint64_t to_ns);
void loss_stream_init(struct loss_stream *stream, struct loss_table *table, int32_t pid);
void loss_stream_add(struct loss_stream *stream, enum prof_loss_cause cause, uint64_t count,
		     uint64_t from_ns, uint64_t to_ns);
/* Writes pending losses, one row for each struct loss_key. First counts the rows that the output
 * dropped. */
void loss_flush(struct loss_table *table, struct output *output);
/* Sums all losses except ticks-missed, and ticks-missed separately. A row of unknown count adds 1,
 * so the sum is a lower bound. */
void loss_sum(const struct loss_table *table, uint64_t *ret_lost, uint64_t *ret_missed_ticks);
/* Exports at most MESSAGE_MAX_LOSS rows. Returns their number. */
size_t loss_export(const struct loss_table *table, struct message_loss *losses);
