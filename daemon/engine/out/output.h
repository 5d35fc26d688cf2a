/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/out/intern.h"
#include "libcapture/prof-capture.h"

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OUTPUT_TABLES (PROF_TABLE_LAST + 1)

struct output;
struct writer;

/* A dictionary row of an object, embedded in the object as the first member. Its id is unique in
 * the session. The row is written when an epoch first refers to it, and again after
 * output_touch(). */
struct row {
	uint32_t id;
	uint32_t epoch; /* last epoch that has the row */
	unsigned int refs;
	bool queued;
	void (*write)(struct row *row, struct output *output);
	void (*free)(struct row *row);
};

void row_init(struct row *row, uint32_t id, void (*write)(struct row *row, struct output *output),
	      void (*free)(struct row *row));
struct row *row_ref(struct row *row);
void row_unref(struct row *row); /* NULL is allowed */

/* Dropped rows of one table. */
struct output_drops {
	uint64_t rows, bytes, from_ns, to_ns;
};

#define OUTPUT_MAX_PATH 4096

/* The location of a frame. */
struct output_place {
	struct row *image;
	uint64_t offset;
	enum prof_frame_kind kind;
};

struct output {
	struct writer *writer;
	struct prof_block *blocks[OUTPUT_TABLES];
	uint64_t block_from_ns[OUTPUT_TABLES];
	uint64_t last_ns[OUTPUT_TABLES];   /* time of the last row */
	uint32_t n_numbers[OUTPUT_TABLES]; /* rows in the block, if added by output_add_numbers() */
	struct output_drops drops[OUTPUT_TABLES];
	uint64_t rows[OUTPUT_TABLES]; /* rows written so far, without dropped ones */
	GPtrArray *queued;            /* struct row */
	struct intern_strings strings;
	struct intern_pairs frames, stacks;
	uint32_t epoch;
	uint64_t epoch_ns; /* start of the epoch; 0: the next output_tick() starts it */
	uint64_t now_ns;   /* time of the last output_tick() */
	bool writing;      /* queued rows are being written */
	bool restart;      /* a dictionary was dropped, so the epoch must end */
};

void output_init(struct output *output, struct writer *writer, uint32_t first_epoch);
void output_done(struct output *output);

void output_add(struct output *output, enum prof_table table, const struct prof_value *values);
/* Like output_add(), for a timed table with only numbers. Bit i of `nulls`: column i is null. */
void output_add_numbers(struct output *output, enum prof_table table, const uint64_t *numbers,
			uint64_t nulls);
/* Return the text's id in this epoch, and add a row on first use. Empty text and NULL have id 0. */
uint32_t output_string(struct output *output, const void *text, size_t length);
uint32_t output_text(struct output *output, const char *text);
/* Returns the ids of n frames; n is at most OUTPUT_MAX_PATH. ret_new[i]: frame i is new. */
void output_frames(struct output *output, const struct output_place *places, size_t n,
		   uint32_t *ret_frames, bool *ret_new);
/* Returns the ids of n stacks; n is at most OUTPUT_MAX_PATH. Stack 0 is `parent` (0: none) and
 * frame 0; stack i is stack i - 1 and frame i. */
void output_stacks(struct output *output, uint32_t parent, const uint32_t *frames, size_t n,
		   uint32_t *ret_stacks);

/* Queues a row. It is written before the next blocks are handed to the writer. */
void output_queue(struct output *output, struct row *row);
static inline void output_need(struct output *output, struct row *row)
{
	if (row->epoch != output->epoch && !row->queued)
		output_queue(output, row);
}
/* Writes the row of a changed object again, if this epoch has it. */
void output_touch(struct output *output, struct row *row);

/* Sets the time. Ends the epoch if it is full or has lost a dictionary. Must only be called between
 * records. */
void output_tick(struct output *output, uint64_t now_ns);
bool output_epoch_due(const struct output *output); /* whether the epoch has lasted long enough */
static inline bool output_epoch_full(const struct output *output)
{
	return output->stacks.n >= 2000000 || output->frames.n >= 2000000 ||
	       output->strings.n_bytes >= 128u << 20;
}
/* Hands all blocks to the writer. */
void output_flush(struct output *output);
void output_end_epoch(struct output *output);
/* Returns the number of rows with events: no dictionaries, no tables about the capture itself. */
uint64_t output_events(const struct output *output);
/* Gets and clears the drops of a table. Returns false if nothing was dropped. */
bool output_collect_drops(struct output *output, enum prof_table table,
			  struct output_drops *ret_drops);
