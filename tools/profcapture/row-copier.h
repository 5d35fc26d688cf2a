/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Row-copier - rows of one epoch, with whatever they refer to, into a new capture
 *
 * Knows tables by their schema only. A reference is followed when the first row that has it is
 * copied, so dictionary rows that nobody names are left behind. What the source does not explain
 * becomes NEW_CAPTURE_LOST.
 */
#pragma once

#include "tools/profcapture/capture.h"
#include "tools/profcapture/new-capture.h"

/* One row, ready to be changed and added; its lists are its own. */
struct copied_row {
	struct prof_value values[PROF_MAX_COLUMNS];
	uint64_t *lists[PROF_MAX_COLUMNS];
	unsigned n_lists;
};
void copied_row_done(struct copied_row *row);
#define CLEANUP_ROW CLEANUP(copied_row_done)

/* One dictionary of the epoch at hand. */
struct copied_dictionary {
	struct prof_dictionary
		*rows; /* NULL before the first use, and where the table is missing */
	uint32_t *ids; /* new ids by row; 0 = not copied yet */
	bool loaded;
};

struct row_copier {
	const struct capture *from;
	struct new_capture *to;
	const struct prof_table_def *const *tables; /* the same order as in `to` */
	size_t n_tables;
	struct copied_dictionary *dictionaries;
	uint32_t epoch;          /* of the source */
	GByteArray *used_images; /* by image index of names: 1 = a row of it was copied */
	uint64_t lost;           /* references that the source does not explain */
	GError *error;           /* the first failure; everything after it is void */
};

void row_copier_init(struct row_copier *copier, const struct capture *from, struct new_capture *to);
void row_copier_done(struct row_copier *copier);

/* From here on ids are those of this epoch. */
void row_copier_use(struct row_copier *copier, uint32_t epoch);
/* The new capture has begun an epoch: nothing has been copied into it yet. */
void row_copier_forget(struct row_copier *copier);

/* The values of row `row` of a batch of all columns of a table, with references translated. */
void row_copier_translate(struct row_copier *copier, size_t table, const struct prof_array *columns,
			  size_t row, struct copied_row *ret_row);
/* New id of a dictionary row. */
uint32_t row_copier_id(struct row_copier *copier, unsigned table_id, uint64_t id);
