/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Loss - counts the records that are not in the capture
 *
 * Losses come in storms, so they are summed by struct loss_key: each loss_flush(), about once a
 * second, writes one row for each key with new losses. The summary at the end has the totals.
 * Invariants: (1) the rows written add up to the summary         [test-engine-rows: loss_sums]
 *             (2) a storm takes a row per flush, not per loss  [test-engine-rows: loss_storm]
 *             (3) an unknown count is never added to a known one
 *                 [test-engine-rows: loss_unknown]
 * Runs on the drain thread only.
 */
#include "daemon/engine/out/loss.h"

#include "arch/base.h"
#include "base/order.h"

#include <stdio.h>

#define MAX_STREAMS 256u

static guint hash_loss(gconstpointer data)
{
	const struct loss_key *key = data;

	return (g_str_hash(key->stream) * 31 + key->cause) * 2 + key->is_unknown;
}

static gboolean same_loss(gconstpointer a, gconstpointer b)
{
	const struct loss_key *x = a, *y = b;

	return x->cause == y->cause && x->is_unknown == y->is_unknown &&
	       strcmp(x->stream, y->stream) == 0;
}

void loss_init(struct loss_table *table)
{
	table->n_streams = 0;
	table->pending = g_hash_table_new_full(hash_loss, same_loss, NULL, g_free);
	table->total = g_hash_table_new_full(hash_loss, same_loss, NULL, g_free);
}

void loss_done(struct loss_table *table)
{
	g_clear_pointer(&table->pending, g_hash_table_destroy);
	g_clear_pointer(&table->total, g_hash_table_destroy);
	*table = (struct loss_table){ 0 };
}

static void add_to(GHashTable *losses, const struct loss *loss)
{
	struct loss *sum = g_hash_table_lookup(losses, &loss->key);

	if (!sum) {
		sum = g_memdup2(loss, sizeof(*loss));
		g_hash_table_insert(losses, sum, sum);
		return;
	}
	sum->count += loss->count;
	sum->bytes += loss->bytes;
	sum->from_ns = MIN_OF(sum->from_ns, loss->from_ns);
	sum->to_ns = MAX_OF(sum->to_ns, loss->to_ns);
}

void loss_add(struct loss_table *table, const struct loss *loss)
{
	struct loss added = *loss;

	if (loss->count == 0)
		return;
	added.key.is_unknown = loss->count == LOSS_UNKNOWN;
	if (added.key.is_unknown)
		added.count = 0;
	add_to(table->pending, &added);
	add_to(table->total, &added);
}

void loss_add_cpu(struct loss_table *table, uint32_t cpu, bool side_band,
		  enum prof_loss_cause cause, uint64_t count, uint64_t from_ns, uint64_t to_ns)
{
	struct loss loss = { .key.cause = cause,
			     .count = count,
			     .from_ns = MIN_OF(from_ns, to_ns),
			     .to_ns = to_ns };

	snprintf(loss.key.stream, sizeof(loss.key.stream), side_band ? "cpu%u/side-band" : "cpu%u",
		 cpu);
	loss_add(table, &loss);
}

void loss_stream_init(struct loss_stream *stream, struct loss_table *table, int32_t pid)
{
	*stream = (struct loss_stream){ .table = table };
	snprintf(stream->name, sizeof(stream->name), "collector/%d", pid);
}

void loss_stream_add(struct loss_stream *stream, enum prof_loss_cause cause, uint64_t count,
		     uint64_t from_ns, uint64_t to_ns)
{
	struct loss loss = { .key.cause = cause,
			     .count = count,
			     .from_ns = MIN_OF(from_ns, to_ns),
			     .to_ns = to_ns };

	if (count == 0)
		return;
	if (!stream->has_lost && stream->table->n_streams++ >= MAX_STREAMS)
		g_strlcpy(stream->name, "collectors", sizeof(stream->name));
	stream->has_lost = true;
	g_strlcpy(loss.key.stream, stream->name, sizeof(loss.key.stream));
	loss_add(stream->table, &loss);
}

static void add_drops(struct loss_table *table, struct output *output)
{
	struct output_drops drops;

	for (enum prof_table i = 0; i < OUTPUT_TABLES; i++) {
		struct loss loss = { .key.cause = PROF_LOSS_WRITER_BACKLOG };

		if (!output_collect_drops(output, i, &drops))
			continue;
		g_strlcpy(loss.key.stream, prof_table_v1(i)->name, sizeof(loss.key.stream));
		loss.count = drops.rows;
		loss.bytes = drops.bytes;
		loss.from_ns = drops.from_ns;
		loss.to_ns = drops.to_ns;
		loss_add(table, &loss);
	}
}

COMPARE_AT(by_time, struct loss, ORDER(a->from_ns, b->from_ns))

static GPtrArray *sorted(GHashTable *losses)
{
	GPtrArray *array = g_ptr_array_sized_new(g_hash_table_size(losses));
	GHashTableIter iter;
	gpointer value;

	g_hash_table_iter_init(&iter, losses);
	while (g_hash_table_iter_next(&iter, NULL, &value))
		g_ptr_array_add(array, value);
	g_ptr_array_sort(array, by_time);
	return array;
}

void loss_flush(struct loss_table *table, struct output *output)
{
	g_autoptr(GPtrArray) losses = NULL;
	const struct loss *loss;
	uint64_t from_ns;

	add_drops(table, output);
	if (g_hash_table_size(table->pending) == 0)
		return;
	losses = sorted(table->pending);
	for (guint i = 0; i < losses->len; i++) {
		loss = g_ptr_array_index(losses, i);
		/* Rows must be in time order, so a row that is late begins later than its loss. */
		from_ns = MAX_OF(loss->from_ns, output->last_ns[PROF_TABLE_LOSS]);
		output_add(output, PROF_TABLE_LOSS,
			   (const struct prof_value[]){
				   [PROF_LOSS_TIME] = PROF_NUMBER(from_ns),
				   [PROF_LOSS_TIME_END] = PROF_NUMBER(MAX_OF(loss->to_ns, from_ns)),
				   [PROF_LOSS_STREAM] =
					   PROF_BYTES(loss->key.stream, strlen(loss->key.stream)),
				   [PROF_LOSS_CAUSE] = PROF_NUMBER(loss->key.cause),
				   [PROF_LOSS_COUNT] = PROF_NUMBER(loss->count),
				   [PROF_LOSS_BYTES] = PROF_NUMBER(loss->bytes),
			   });
	}
	g_hash_table_remove_all(table->pending);
}

void loss_sum(const struct loss_table *table, uint64_t *ret_lost, uint64_t *ret_missed_ticks)
{
	GHashTableIter iter;
	gpointer value;

	*ret_lost = *ret_missed_ticks = 0;
	g_hash_table_iter_init(&iter, table->total);
	while (g_hash_table_iter_next(&iter, NULL, &value)) {
		const struct loss *loss = value;

		if (loss->key.cause == PROF_LOSS_TICKS_MISSED)
			*ret_missed_ticks += loss->count;
		else
			*ret_lost += loss->key.is_unknown ? 1 : loss->count;
	}
}

static struct message_loss to_message(const struct loss *loss)
{
	struct message_loss message = {
		.cause = loss->key.cause,
		.count = loss->count,
		.bytes = loss->bytes,
		.from_ns = loss->from_ns,
		.to_ns = loss->to_ns,
	};

	g_strlcpy(message.stream, loss->key.stream, sizeof(message.stream));
	return message;
}

size_t loss_export(const struct loss_table *table, struct message_loss *losses)
{
	/* If there are more losses than fit into a message, merge the losses of equal cause. */
	bool by_cause = g_hash_table_size(table->total) > MESSAGE_MAX_LOSS;
	g_autoptr(GHashTable) merged = g_hash_table_new_full(hash_loss, same_loss, NULL, g_free);
	g_autoptr(GPtrArray) rows = NULL;
	GHashTableIter iter;
	gpointer value;

	g_hash_table_iter_init(&iter, table->total);
	while (g_hash_table_iter_next(&iter, NULL, &value)) {
		struct loss loss = *(struct loss *)value;

		if (by_cause)
			g_strlcpy(loss.key.stream, "all", sizeof(loss.key.stream));
		add_to(merged, &loss);
	}
	rows = sorted(merged);
	for (guint i = 0; i < rows->len; i++)
		losses[i] = to_message(g_ptr_array_index(rows, i));
	return rows->len;
}
