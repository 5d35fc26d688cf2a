/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Output - collects rows for the writer
 *
 * Each table collects rows in a block. All blocks are closed together, every 850 ms (session.c) or
 * when one is full, dictionaries before the tables that refer to them. Rows of long-lived objects
 * (processes, threads, images) are queued when a row refers to them, and written with the latest
 * values when the blocks close.
 * Ids of strings, frames and stacks start over in each epoch; ids of objects never do.
 * Invariants: (1) a dictionary row reaches the writer before a row that refers to it
 *                 [test-engine-rows: order]
 *             (2) rows of a timed table are in time order  [test-engine-rows: time]
 *             (3) a row reaches the writer or is counted in `drops`  [test-engine-rows: backlog]
 *             (4) the epoch changes only between records, never between making an id and using it
 * Runs on the drain thread only.
 */
#include "daemon/engine/out/output.h"

#include "arch/base.h"
#include "daemon/engine/out/writer.h"

#include <assert.h>
#include <sys/random.h>

/* Rows of one group of a chunk. Larger blocks leave the cache before the writer reads them, which
 * made recording allocations 5 to 10 % slower. */
#define BLOCK_ROWS 16384u
#define BLOCK_BYTES (7u << 20) /* less than the size up to which the writer keeps blocks */
#define EPOCH_NS (30 * G_GUINT64_CONSTANT(1000000000))

/* A table precedes the tables that refer to it. */
static const enum prof_table closing_order[] = {
	PROF_TABLE_STRING, PROF_TABLE_PROCESS, PROF_TABLE_THREAD,        PROF_TABLE_IMAGE,
	PROF_TABLE_FRAME,  PROF_TABLE_STACK,   PROF_TABLE_SOURCE,        PROF_TABLE_SYMBOL,
	PROF_TABLE_LINE,   PROF_TABLE_COUNTER, PROF_TABLE_LOSS,          PROF_TABLE_METADATA,
	PROF_TABLE_TASK,   PROF_TABLE_MAPPING, PROF_TABLE_SAMPLE,        PROF_TABLE_SWITCH,
	PROF_TABLE_MARK,   PROF_TABLE_LOG,     PROF_TABLE_COUNTER_VALUE, PROF_TABLE_JIT,
	PROF_TABLE_ALLOC,  PROF_TABLE_FREE,    PROF_TABLE_HEAP,          PROF_TABLE_LIVE,
	PROF_TABLE_WAIT,
};

void row_init(struct row *row, uint32_t id, void (*write)(struct row *row, struct output *output),
	      void (*free)(struct row *row))
{
	*row = (struct row){ .id = id, .refs = 1, .write = write, .free = free };
}

struct row *row_ref(struct row *row)
{
	row->refs++;
	return row;
}

void row_unref(struct row *row)
{
	if (row && --row->refs == 0)
		row->free(row);
}

void output_init(struct output *output, struct writer *writer, uint32_t first_epoch)
{
	uint64_t seed = 0;

	/* Without a random seed the tables still work, but are predictable. */
	if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != sizeof(seed))
		seed = (uintptr_t)output;
	*output = (struct output){ .writer = writer, .epoch = first_epoch };
	output->queued = g_ptr_array_new();
	intern_strings_init(&output->strings, seed);
	intern_pairs_init(&output->frames, seed + 1);
	intern_pairs_init(&output->stacks, seed + 2);
}

void output_done(struct output *output)
{
	for (guint i = 0; i < OUTPUT_TABLES; i++)
		prof_block_free(output->blocks[i]);
	for (guint i = 0; output->queued && i < output->queued->len; i++)
		row_unref(g_ptr_array_index(output->queued, i));
	if (output->queued)
		g_ptr_array_free(output->queued, TRUE);
	intern_strings_done(&output->strings);
	intern_pairs_done(&output->frames);
	intern_pairs_done(&output->stacks);
	*output = (struct output){ 0 };
}

static void drop_rows(struct output *output, enum prof_table table, uint64_t rows, uint64_t bytes,
		      uint64_t from_ns, uint64_t to_ns)
{
	struct output_drops *drops = &output->drops[table];

	if (drops->rows == 0)
		drops->from_ns = from_ns;
	drops->rows += rows;
	drops->bytes += bytes;
	drops->to_ns = MAX_OF(drops->to_ns, to_ns);
}

static bool is_timed(enum prof_table table)
{
	return prof_table_v1(table)->flags & PROF_TABLE_TIMED;
}

/* Returns the block that collects rows of a table; NULL if there is no memory for it. */
static struct prof_block *open_block(struct output *output, enum prof_table table)
{
	struct prof_block *block = output->blocks[table];

	if (block)
		return block;
	block = writer_get_block(output->writer, table);
	if (!block && prof_block_new(prof_table_v1(table), &block) != 0)
		return NULL;
	output->blocks[table] = block;
	output->block_from_ns[table] = 0;
	return block;
}

void output_add(struct output *output, enum prof_table table, const struct prof_value *values)
{
	struct prof_value row[PROF_MAX_COLUMNS];
	const struct prof_table_def *def = prof_table_v1(table);
	bool timed = def->flags & PROF_TABLE_TIMED;
	uint64_t time_ns = timed ? values[0].number : output->now_ns;
	struct prof_block *block = open_block(output, table);
	int r;

	if (timed && time_ns < output->last_ns[table]) {
		memcpy(row, values, def->n_columns * sizeof(*row));
		row[0].number = time_ns = output->last_ns[table];
		values = row;
	}
	r = block ? prof_block_add(block, values) : -ENOMEM;
	if (r == PROF_LIMIT && prof_block_rows(block) > 0) {
		output_flush(output);
		block = open_block(output, table);
		r = block ? prof_block_add(block, values) : -ENOMEM;
	}
	if (r != 0) {
		drop_rows(output, table, 1, 0, time_ns, time_ns);
		return;
	}
	output->last_ns[table] = time_ns;
	if (output->block_from_ns[table] == 0)
		output->block_from_ns[table] = time_ns;
	output->rows[table]++;
	if (prof_block_rows(block) >= BLOCK_ROWS || prof_block_bytes(block) >= BLOCK_BYTES)
		output_flush(output);
}

void output_add_numbers(struct output *output, enum prof_table table, const uint64_t *numbers,
			uint64_t nulls)
{
	struct prof_block *block = output->blocks[table];
	uint64_t row[PROF_MAX_COLUMNS], time_ns = numbers[0];

	if (G_UNLIKELY(time_ns < output->last_ns[table])) {
		memcpy(row, numbers, prof_table_v1(table)->n_columns * sizeof(*row));
		row[0] = time_ns = output->last_ns[table];
		numbers = row;
	}
	if (G_UNLIKELY(!block)) {
		block = open_block(output, table);
		output->block_from_ns[table] = time_ns;
	}
	if (!block || prof_block_add_numbers(block, numbers, nulls) != 0) {
		drop_rows(output, table, 1, 0, time_ns, time_ns);
		return;
	}
	output->last_ns[table] = time_ns;
	output->rows[table]++;
	/* BLOCK_ROWS rows never exceed BLOCK_BYTES: tables of numbers have too few columns. */
	if (++output->n_numbers[table] == BLOCK_ROWS)
		output_flush(output);
}

uint32_t output_string(struct output *output, const void *text, size_t length)
{
	bool added;
	uint32_t id;

	if (length == 0)
		return 0;
	id = intern_strings_add(&output->strings, text, length, &added);
	if (added)
		output_add(output, PROF_TABLE_STRING,
			   (const struct prof_value[]){
				   [PROF_STRING_ID] = PROF_NUMBER(id),
				   [PROF_STRING_TEXT] = PROF_BYTES(text, length),
			   });
	return id;
}

uint32_t output_text(struct output *output, const char *text)
{
	return text ? output_string(output, text, strlen(text)) : 0;
}

void output_frames(struct output *output, const struct output_place *places, size_t n,
		   uint32_t *ret_frames, bool *ret_new)
{
	uint64_t offsets[OUTPUT_MAX_PATH];
	uint32_t keys[OUTPUT_MAX_PATH];

	assert(n <= OUTPUT_MAX_PATH);
	if (n == 0)
		return;
	for (size_t i = 0; i < n; i++) {
		offsets[i] = places[i].offset;
		keys[i] = places[i].image->id << 1 | places[i].kind;
	}
	intern_pairs_add_all(&output->frames, offsets, keys, n, ret_frames, ret_new);
	for (size_t i = 0; i < n; i++) {
		if (!ret_new[i])
			continue;
		output_need(output, places[i].image);
		output_add(output, PROF_TABLE_FRAME,
			   (const struct prof_value[]){
				   [PROF_FRAME_ID] = PROF_NUMBER(ret_frames[i]),
				   [PROF_FRAME_IMAGE] = PROF_NUMBER(places[i].image->id),
				   [PROF_FRAME_OFFSET] = PROF_NUMBER(places[i].offset),
				   [PROF_FRAME_KIND] = PROF_NUMBER(places[i].kind),
			   });
	}
}

void output_stacks(struct output *output, uint32_t parent, const uint32_t *frames, size_t n,
		   uint32_t *ret_stacks)
{
	bool added[OUTPUT_MAX_PATH];

	assert(n <= OUTPUT_MAX_PATH);
	intern_pairs_add_path(&output->stacks, parent, frames, n, ret_stacks, added);
	for (size_t i = 0; i < n; i++)
		if (added[i])
			output_add(output, PROF_TABLE_STACK,
				   (const struct prof_value[]){
					   [PROF_STACK_ID] = PROF_NUMBER(ret_stacks[i]),
					   [PROF_STACK_PARENT] =
						   PROF_NUMBER(i ? ret_stacks[i - 1] : parent),
					   [PROF_STACK_FRAME] = PROF_NUMBER(frames[i]),
				   });
}

void output_queue(struct output *output, struct row *row)
{
	row->queued = true;
	g_ptr_array_add(output->queued, row_ref(row));
}

void output_touch(struct output *output, struct row *row)
{
	if (row->epoch == output->epoch && !row->queued)
		output_queue(output, row);
}

/* Writing a row may append rows that it refers to, so the length is read in each iteration. */
static void write_queued(struct output *output)
{
	struct row *row;

	for (guint i = 0; i < output->queued->len; i++) {
		row = g_ptr_array_index(output->queued, i);
		row->epoch = output->epoch;
		row->queued = false;
		row->write(row, output);
		row_unref(row);
	}
	g_ptr_array_set_size(output->queued, 0);
}

/* Passes a table's block to the writer. If the queue is full, drops the rows, and keeps the block
 * for later rows. */
static void close_block(struct output *output, enum prof_table table)
{
	struct prof_block *block = steal_ptr(&output->blocks[table]);
	struct writer_batch batch = { .block = block };

	if (!block)
		return;
	if (prof_block_rows(block) == 0) {
		output->blocks[table] = block;
		return;
	}
	output->n_numbers[table] = 0;
	prof_block_set_epoch(block, output->epoch);
	batch.from_ns = output->block_from_ns[table];
	batch.to_ns = is_timed(table) ? output->last_ns[table] : output->now_ns;
	if (writer_push(output->writer, &batch, is_timed(table)))
		return;
	output->rows[table] -= prof_block_rows(block);
	drop_rows(output, table, prof_block_rows(block), prof_block_bytes(block), batch.from_ns,
		  batch.to_ns);
	if (!is_timed(table))
		output->restart = true;
	prof_block_reset(block);
	output->blocks[table] = block;
}

void output_flush(struct output *output)
{
	/* Do not nest: a full block may grow until all queued rows are written. */
	if (output->writing)
		return;
	output->writing = true;
	write_queued(output);
	output->writing = false;
	for (size_t i = 0; i < ARRAY_SIZE(closing_order); i++)
		close_block(output, closing_order[i]);
}

void output_end_epoch(struct output *output)
{
	output_flush(output);
	intern_strings_clear(&output->strings);
	intern_pairs_clear(&output->frames);
	intern_pairs_clear(&output->stacks);
	output->epoch++;
	output->epoch_ns = output->now_ns;
	output->restart = false;
}

void output_tick(struct output *output, uint64_t now_ns)
{
	output->now_ns = now_ns;
	if (output->epoch_ns == 0)
		output->epoch_ns = now_ns;
	if (output->restart || output_epoch_full(output))
		output_end_epoch(output);
}

bool output_epoch_due(const struct output *output)
{
	return output->epoch_ns && output->now_ns - output->epoch_ns >= EPOCH_NS;
}

uint64_t output_events(const struct output *output)
{
	uint64_t events = 0;
	int table;

	for (table = 0; table < OUTPUT_TABLES; table++)
		if (table != PROF_TABLE_LOSS && table != PROF_TABLE_METADATA &&
		    output->rows[table] && is_timed(table))
			events += output->rows[table];
	return events;
}

bool output_collect_drops(struct output *output, enum prof_table table,
			  struct output_drops *ret_drops)
{
	if (output->drops[table].rows == 0)
		return false;
	*ret_drops = output->drops[table];
	output->drops[table] = (struct output_drops){ 0 };
	return true;
}
