/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Schema - table definitions: checked, encoded and decoded
 *
 * A schema is the set of tables of one capture, in id order. Its definitions come from programs
 * (schema_add(), borrowed) and from files (schema_decode(), owned). If two definitions of a table
 * agree (schema_tables_agree()), the larger one is kept, so that later versions may add columns and
 * enum values.
 */
#pragma once

#include "libcapture/buffer.h"
#include "libcapture/prof-capture.h"

/* How the rows of a column are stored. FORM_NONE: a type or flag of a later version; the column is
 * then absent. */
enum column_form {
	FORM_NONE,
	FORM_SCALAR, /* one number per row */
	FORM_LIST,   /* numbers, and one length per row */
	FORM_BYTES,  /* bytes, and one length per row */
};

struct schema {
	const struct prof_table_def **tables; /* sorted by id */
	size_t n_tables;
	struct prof_table_def **owned; /* one allocation for each */
	size_t n_owned;
};

/* A further result of schema_add() and schema_decode(). */
enum schema_result {
	SCHEMA_CONFLICT = 1000
}; /* another definition of a table was there first, and was kept */

enum column_form schema_column_form(const struct prof_column_def *column);
/* Returns whether a definition satisfies the rules of the format: limits, ascending ids, first
 * column of timed and dictionary tables. */
bool schema_table_valid(const struct prof_table_def *def);
/* Returns whether two definitions have the same id, name and flags, and define each common column
 * in the same way. */
bool schema_tables_agree(const struct prof_table_def *a, const struct prof_table_def *b);

void schema_done(struct schema *schema);
const struct prof_table_def *schema_find(const struct schema *schema, unsigned int id);
/* Returns 0, -EINVAL if `def` is invalid, -ENOMEM, SCHEMA_CONFLICT, or PROF_LIMIT if there are too
 * many tables. `def` must outlive the schema. */
MUST_CHECK int schema_add(struct schema *schema, const struct prof_table_def *def);
MUST_CHECK int schema_encode(const struct schema *schema, struct buffer *buffer);
/* Decodes a schema and adds its tables. If a table replaces one from an earlier schema_decode(),
 * the earlier one is freed. Returns 0, PROF_DAMAGED, -ENOMEM, SCHEMA_CONFLICT (the other tables
 * were added) or PROF_LIMIT. */
MUST_CHECK int schema_decode(struct schema *schema, const uint8_t *data, size_t size);
