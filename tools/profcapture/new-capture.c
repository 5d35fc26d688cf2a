/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Invariants: (1) before any other block, all dictionary blocks are written, in the order of rank
 *                 [test-rewrite: order]
 *             (2) the ids of an epoch start at 1 and never reach NEW_CAPTURE_LOST
 */
#include "config.h"

#include "tools/profcapture/new-capture.h"

#include "base/bytes.h"
#include "tools/common/capture-error.h"

#include <glib/gi18n.h>
#include <string.h>

/* The maximum number of rows in a chunk. */
#define CHUNK_ROWS (64u << 10)

/* ---- order of the dictionaries --------------------------------------------------------------- */

static void rank_table(struct new_capture *to, struct new_table *table, unsigned *next,
		       unsigned depth)
{
	/* If tables refer to each other in a cycle, no order is better than another, so stop. */
	if (table->rank || depth > to->n_tables)
		return;
	for (size_t i = 0; i < to->n_tables; i++) {
		struct new_table *named = &to->tables[i];
		bool names = false;

		for (unsigned c = 0; c < table->def->n_columns; c++)
			names = names || (table->def->columns[c].type == PROF_TYPE_REF &&
					  table->def->columns[c].ref == named->def->id);
		if (names && named != table)
			rank_table(to, named, next, depth + 1);
	}
	if (!table->rank)
		table->rank = ++*next;
}

/* ---- writing --------------------------------------------------------------------------------- */

static bool write_block(struct new_capture *to, struct new_table *table, GError **error)
{
	int r;

	if (prof_block_rows(table->block) == 0)
		return true;
	prof_block_set_epoch(table->block, to->epoch);
	r = prof_writer_write(to->writer, table->block);
	prof_block_reset(table->block);
	return r == 0 || capture_error(error, r, _("cannot write capture '%s'"), to->file);
}

static bool write_dictionaries(struct new_capture *to, GError **error)
{
	for (unsigned rank = 1; rank <= to->n_tables; rank++)
		for (size_t i = 0; i < to->n_tables; i++)
			if (to->tables[i].rank == rank &&
			    (to->tables[i].def->flags & PROF_TABLE_DICTIONARY) &&
			    !write_block(to, &to->tables[i], error))
				return false;
	return true;
}

static bool write_all(struct new_capture *to, GError **error)
{
	if (!write_dictionaries(to, error))
		return false;
	for (size_t i = 0; i < to->n_tables; i++)
		if (!write_block(to, &to->tables[i], error))
			return false;
	return true;
}

bool new_capture_add(struct new_capture *to, size_t index, const struct prof_value *values,
		     GError **error)
{
	struct new_table *table = &to->tables[index];
	int r = prof_block_rows(table->block) < CHUNK_ROWS ? prof_block_add(table->block, values)
							   : PROF_LIMIT;

	if (r == PROF_LIMIT) {
		if (!write_dictionaries(to, error) || !write_block(to, table, error))
			return false;
		r = prof_block_add(table->block, values);
	}
	return r == 0 ||
	       capture_error(error, r, _("cannot write a row of table '%s'"), table->def->name);
}

/* ---- interning ------------------------------------------------------------------------------- */

static void encode_value(GByteArray *to, const struct prof_column_def *column,
			 const struct prof_value *value)
{
	uint8_t null = value->data == &prof_null_marker, number[BYTES_MAX_LEB];
	bool bytes = column->type == PROF_TYPE_TEXT || column->type == PROF_TYPE_BINARY;

	if (column->flags & PROF_COLUMN_NULLABLE)
		g_byte_array_append(to, &null, 1);
	if (null)
		return;
	g_byte_array_append(to, number, bytes_put_uleb(number, value->number));
	if (bytes && value->number)
		g_byte_array_append(to, value->data, (guint)value->number);
	else if ((column->flags & PROF_COLUMN_LIST) && value->number)
		g_byte_array_append(to, value->data, (guint)(value->number * sizeof(uint64_t)));
}

/* Returns where the id of this content is stored; the id is 0 if the content is new. */
static uint32_t *find_content(struct new_table *table, const GByteArray *content)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */

	for (guint i = 0; i < content->len; i++)
		hash = (hash ^ content->data[i]) * UINT64_C(0x100000001b3);
	for (;; hash++) {
		uint32_t *id = number_map_at(&table->known, hash);
		size_t start = g_array_index(table->content_of, size_t, *id);
		size_t end = *id + 1 < table->content_of->len
				     ? g_array_index(table->content_of, size_t, *id + 1)
				     : table->contents->len;

		if (*id == 0 ||
		    (end - start == content->len &&
		     memcmp(table->contents->data + start, content->data, content->len) == 0))
			return id;
	}
}

bool new_capture_intern(struct new_capture *to, size_t index, const struct prof_value *values,
			uint32_t *ret_id, GError **error)
{
	struct new_table *table = &to->tables[index];
	struct prof_value row[PROF_MAX_COLUMNS];
	uint32_t *id;

	g_byte_array_set_size(to->scratch, 0);
	for (unsigned i = 1; i < table->def->n_columns; i++)
		encode_value(to->scratch, &table->def->columns[i], &values[i]);
	id = find_content(table, to->scratch);
	if (*id == 0) {
		size_t start = table->contents->len;

		*id = table->next_id++;
		g_array_append_val(table->content_of, start);
		g_byte_array_append(table->contents, to->scratch->data, to->scratch->len);
		memcpy(row, values, table->def->n_columns * sizeof(*row));
		row[0] = PROF_NUMBER(*id);
		*ret_id = *id;
		return new_capture_add(to, index, row, error);
	}
	*ret_id = *id;
	return true;
}

static void forget(struct new_table *table)
{
	size_t none = 0;

	table->next_id = 1;
	number_map_clear(&table->known);
	g_byte_array_set_size(table->contents, 0);
	g_array_set_size(table->content_of, 0);
	g_array_append_val(table->content_of, none);
}

/* ---- epochs and segments --------------------------------------------------------------------- */

bool new_capture_next_epoch(struct new_capture *to, GError **error)
{
	if (!write_all(to, error))
		return false;
	to->epoch++;
	for (size_t i = 0; i < to->n_tables; i++)
		forget(&to->tables[i]);
	return true;
}

static bool begin(struct new_capture *to, enum prof_writer_mode mode,
		  const struct prof_segment *segment, GError **error)
{
	struct prof_writer_options options = { .mode = mode, .segment = *segment };
	int r = prof_writer_new(to->fd, &options, &to->writer);

	if (r != 0)
		return capture_error(error, r, _("cannot write capture '%s'"), to->file);
	for (size_t i = 0; i < to->n_tables; i++) {
		r = prof_writer_add_table(to->writer, to->tables[i].def);
		if (r != 0)
			return capture_error(error, r, _("cannot write table '%s'"),
					     to->tables[i].def->name);
	}
	to->epoch = prof_writer_first_epoch(to->writer);
	for (size_t i = 0; i < to->n_tables; i++)
		forget(&to->tables[i]);
	return true;
}

bool new_capture_next_segment(struct new_capture *to, const struct prof_segment *segment,
			      GError **error)
{
	return new_capture_finish(to, error) && begin(to, PROF_WRITE_APPEND, segment, error);
}

bool new_capture_finish(struct new_capture *to, GError **error)
{
	int r;

	if (!write_all(to, error))
		return false;
	r = prof_writer_finish(to->writer);
	prof_writer_free(to->writer);
	to->writer = NULL;
	return r == 0 || capture_error(error, r, _("cannot write capture '%s'"), to->file);
}

bool new_capture_init(struct new_capture *to, int fd, const char *file,
		      const struct prof_table_def *const *tables, size_t n_tables,
		      const struct prof_segment *segment, GError **error)
{
	unsigned rank = 0;

	*to = (struct new_capture){ .fd = fd, .file = file, .n_tables = n_tables };
	to->scratch = g_byte_array_new();
	to->tables = g_new0(struct new_table, n_tables + 1);
	for (size_t i = 0; i < n_tables; i++) {
		struct new_table *table = &to->tables[i];

		table->def = tables[i];
		table->contents = g_byte_array_new();
		table->content_of = g_array_new(FALSE, FALSE, sizeof(size_t));
		number_map_init(&table->known);
	}
	for (size_t i = 0; i < n_tables; i++) {
		int r = prof_block_new(tables[i], &to->tables[i].block);

		if (r != 0)
			return capture_error(error, r, _("cannot write table '%s'"),
					     tables[i]->name);
	}
	for (size_t i = 0; i < n_tables; i++)
		rank_table(to, &to->tables[i], &rank, 0);
	return begin(to, PROF_WRITE_NEW, segment, error);
}

void new_capture_done(struct new_capture *to)
{
	for (size_t i = 0; i < to->n_tables; i++) {
		prof_block_free(to->tables[i].block);
		number_map_done(&to->tables[i].known);
		g_byte_array_unref(to->tables[i].contents);
		g_array_unref(to->tables[i].content_of);
	}
	g_free(to->tables);
	prof_writer_free(to->writer);
	g_clear_pointer(&to->scratch, g_byte_array_unref);
	*to = (struct new_capture){ 0 };
}
