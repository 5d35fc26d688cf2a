/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Row-copier - copies rows of one epoch, with all rows that they refer to, into a new capture
 *
 * This works on any table, from the schema alone. A dictionary row is copied with the first row
 * that refers to it, so dictionary rows without references are dropped. References to rows that the
 * source does not have, and references that close a cycle, become NEW_CAPTURE_LOST.
 */
#pragma once

#include "tools/profcapture/capture.h"
#include "tools/profcapture/new-capture.h"

/* One row, ready to be changed and added. It owns its lists. */
struct copied_row {
	struct prof_value values[PROF_MAX_COLUMNS];
	uint64_t *lists[PROF_MAX_COLUMNS];
	unsigned n_lists;
};
void copied_row_done(struct copied_row *row);
#define CLEANUP_ROW CLEANUP(copied_row_done)

/* One dictionary of the current epoch. */
struct copied_dictionary {
	struct prof_dictionary *rows; /* NULL before the first use, or if the table is missing */
	uint32_t *ids;                /* new ids by row; 0 = not copied yet */
	bool loaded;
};

struct row_copier {
	const struct capture *from;
	struct new_capture *to;
	const struct prof_table_def *const *tables; /* the same order as in `to` */
	size_t n_tables;
	struct copied_dictionary *dictionaries;
	uint32_t epoch;          /* current epoch of the source */
	unsigned depth;          /* depth of the references being followed */
	GByteArray *used_images; /* by image (index in names): 1 = its row was copied */
	uint64_t lost;           /* references that close a cycle, or to rows that are missing */
	GError *error;           /* the first error; later results are invalid */
};

void row_copier_init(struct row_copier *copier, const struct capture *from, struct new_capture *to);
void row_copier_done(struct row_copier *copier);

/* Selects the epoch of the source in which ids are looked up. */
void row_copier_use(struct row_copier *copier, uint32_t epoch);
/* Must be called when the new capture begins an epoch: forgets which rows were copied. */
void row_copier_forget(struct row_copier *copier);

/* Stores a row's values, with references translated. `columns` has all columns of the table. */
void row_copier_translate(struct row_copier *copier, const struct prof_table_def *def,
			  const struct prof_array *columns, size_t row, struct copied_row *ret_row);
/* Returns the new id of a dictionary row, and copies the row if necessary. */
uint32_t row_copier_id(struct row_copier *copier, unsigned table_id, uint64_t id);
/* Returns whether no error occurred. Moves the error to *error. */
bool row_copier_ok(struct row_copier *copier, GError **error);

/* Adds a row with translated references. Does nothing if the capture lacks the table. */
bool row_copier_add(struct row_copier *copier, unsigned table_id, const struct prof_value *values,
		    GError **error);
