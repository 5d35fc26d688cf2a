/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Invariant: names of the capture cannot break a declaration                  [test_sql: hostile]
 */
#include "config.h"

#include "tools/profcapture/sql-tables.h"

#include "base/each.h"
#include "tools/profcapture/sql-cursors.h"
#include "tools/profcapture/sql-views.h"

#include <glib/gi18n.h>
#include <string.h>

static const char *type_of(const struct prof_column_def *column)
{
	bool is_text = (column->flags & PROF_COLUMN_LIST) || column->type == PROF_TYPE_ENUM ||
		       column->type == PROF_TYPE_TEXT || column->type == PROF_TYPE_BINARY ||
		       (column->type == PROF_TYPE_REF && column->ref == PROF_TABLE_STRING);

	return is_text ? "TEXT" : column->type == PROF_TYPE_FLOAT ? "REAL" : "INTEGER";
}

static bool has_column(const struct sql_table *table, const char *name)
{
	for (guint i = 0; i < table->columns->len; i++)
		if (g_ascii_strcasecmp(sql_column_at(table, (int)i)->name, name) == 0)
			return true;
	return false;
}

/* Adds a column. Appends underscores to a name that SQLite would not distinguish from an earlier
 * one. */
static void add_column(struct sql_table *table, const char *name, const char *type, unsigned field,
		       unsigned position)
{
	struct sql_column column = { g_utf8_make_valid(name, -1), type, field, position };

	while (has_column(table, column.name)) {
		char *longer = g_strconcat(column.name, "_", NULL);

		g_free(column.name);
		column.name = longer;
	}
	g_array_append_val(table->columns, column);
}

/* Adds a computed column, unless the table has a column of that name. */
static void add_own_column(struct sql_table *table, const char *name, const char *type,
			   unsigned field)
{
	for (unsigned i = 0; i < table->def->n_columns; i++)
		if (strcmp(table->def->columns[i].name, name) == 0)
			return;
	add_column(table, name, type, field, 0);
}

static bool is_name_taken(const struct sql_tables *tables, const char *name)
{
	for (guint i = 0; i < tables->all->len; i++)
		if (g_ascii_strcasecmp(name, ((struct sql_table *)tables->all->pdata[i])->name) ==
		    0)
			return true;
	return sql_views_has(name) || *name == '\0' ||
	       g_ascii_strncasecmp(name, "sqlite_", 7) == 0 ||
	       g_ascii_strncasecmp(name, "pragma_", 7) == 0 ||
	       g_ascii_strncasecmp(name, "json_", 5) == 0;
}

static struct sql_table *add_table(struct sql_tables *tables, const char *name)
{
	struct sql_table *table = g_new0(struct sql_table, 1);

	table->name = g_utf8_make_valid(name, -1);
	while (is_name_taken(tables, table->name)) {
		char *longer = g_strconcat("_", table->name, NULL);

		g_free(table->name);
		table->name = longer;
	}
	table->columns = g_array_new(FALSE, FALSE, sizeof(struct sql_column));
	table->thread = table->process = table->stack = CAPTURE_NO_COLUMN;
	g_ptr_array_add(tables->all, table);
	return table;
}

static void describe(struct sql_tables *tables, const struct prof_table_def *def)
{
	struct sql_table *table = add_table(tables, def->name);
	bool is_sample = def->id == PROF_TABLE_SAMPLE;

	table->def = def;
	/* A row of these two tables is the thread or process itself. */
	table->thread =
		def->id == PROF_TABLE_THREAD ? 0 : capture_column_referring(def, PROF_TABLE_THREAD);
	table->process = def->id == PROF_TABLE_PROCESS
				 ? 0
				 : capture_column_referring(def, PROF_TABLE_PROCESS);
	table->source = PROF_SAMPLE_SOURCE;
	table->weight = PROF_SAMPLE_WEIGHT;
	if (sql_table_is_timed(table)) {
		table->stack = capture_column_referring(def, PROF_TABLE_STACK);
		table->index = "time_ns";
		add_column(table, "time_ns", "INTEGER", SQL_TIME, 0);
	} else if (def->flags & PROF_TABLE_DICTIONARY) {
		table->index = "epoch, id";
	}
	if (table->thread != CAPTURE_NO_COLUMN || table->process != CAPTURE_NO_COLUMN)
		add_own_column(table, "pid", "INTEGER", SQL_PID);
	if (table->thread != CAPTURE_NO_COLUMN) {
		add_own_column(table, "tid", "INTEGER", SQL_TID);
		add_own_column(table, "comm", "TEXT", SQL_COMM);
	}
	if (table->thread != CAPTURE_NO_COLUMN || table->process != CAPTURE_NO_COLUMN)
		add_own_column(table, "exe", "TEXT", SQL_EXE);
	for (unsigned i = sql_table_is_timed(table) ? 1 : 0; i < def->n_columns; i++)
		add_column(table, def->columns[i].name, type_of(&def->columns[i]), SQL_STORED, i);
	if (table->stack != CAPTURE_NO_COLUMN)
		add_own_column(table, "call", "INTEGER", SQL_CALL);
	if (def->id == PROF_TABLE_WAIT) {
		add_own_column(table, "cause", "TEXT", SQL_CAUSE);
		add_own_column(table, "waker_call", "INTEGER", SQL_WAKER_CALL);
	}
	if (is_sample) {
		add_own_column(table, "event", "TEXT", SQL_EVENT);
		add_own_column(table, "amount", "INTEGER", SQL_AMOUNT);
		add_own_column(table, "fields", "TEXT", SQL_FIELDS);
	}
	add_own_column(table, "segment", "INTEGER", SQL_SEGMENT);
	add_own_column(table, "epoch", "INTEGER", SQL_EPOCH);
}

static bool count_rows(const struct prof_chunk *chunk, void *data, GError **error)
{
	const struct sql_tables *tables = data;

	POINTER_EACH(struct sql_table, table, tables->all)
		if (table->def && table->def->id == chunk->table)
			table->rows += chunk->rows;
	return true;
}

static void declare(struct sql_table *table)
{
	GString *text = g_string_new("(");

	for (guint i = 0; i < table->columns->len; i++) {
		const struct sql_column *column = sql_column_at(table, (int)i);
		char *quoted =
			sqlite3_mprintf("%s\"%w\" %s", i ? ", " : "", column->name, column->type);

		g_string_append(text, quoted ? quoted : "");
		sqlite3_free(quoted);
	}
	g_string_append_c(text, ')');
	table->declaration = g_string_free(text, FALSE);
}

static void table_free(gpointer data)
{
	struct sql_table *table = data;

	for (guint i = 0; i < table->columns->len; i++)
		g_free(sql_column_at(table, (int)i)->name);
	g_array_unref(table->columns);
	g_free(table->declaration);
	g_free(table->name);
	g_free(table);
}

uint64_t sql_tables_rows(const struct sql_tables *tables, unsigned id)
{
	POINTER_EACH(const struct sql_table, table, tables->all)
		if (table->def && table->def->id == id)
			return table->rows;
	return 0;
}

struct sql_tables *sql_tables_new(struct reader *reader, sqlite3 *db, GError **error)
{
	struct sql_tables *tables = g_new0(struct sql_tables, 1);
	size_t n;
	const struct prof_table_def *const *defs = prof_reader_tables(reader->capture->reader, &n);
	int r;

	tables->reader = reader;
	tables->derived = sql_derived_new(reader);
	tables->all = g_ptr_array_new_with_free_func(table_free);
	tables->list = out_buffer();
	json_init(&tables->json, &tables->list);
	for (unsigned i = 0; i < SQL_DERIVED_TABLES; i++) {
		const struct sql_derived_def *def = &sql_derived_defs[i];
		struct sql_table *table = add_table(tables, def->name);

		table->derived = i;
		table->index = def->index;
		table->rows = 10000;
		for (size_t c = 0; def->columns[c].name; c++)
			add_column(table, def->columns[c].name, def->columns[c].type,
				   def->columns[c].field, 0);
	}
	/* Tables of version 1 that the capture lacks are empty. */
	for (unsigned id = 1; id <= PROF_TABLE_LAST; id++) {
		const struct prof_table_def *def = prof_reader_table(reader->capture->reader, id);

		if (def || (def = prof_table_v1(id)))
			describe(tables, def);
	}
	for (size_t i = 0; i < n; i++)
		if (defs[i]->id > PROF_TABLE_LAST)
			describe(tables, defs[i]);
	if (!capture_each_chunk(reader->capture, 0, count_rows, tables, error)) {
		sql_tables_free(tables);
		return NULL;
	}
	r = sqlite3_create_module(db, "capture_rows", &sql_row_module, tables);
	if (r == SQLITE_OK)
		r = sqlite3_create_module(db, "capture_derived", &sql_derived_module, tables);
	for (guint i = 0; r == SQLITE_OK && i < tables->all->len; i++) {
		struct sql_table *table = tables->all->pdata[i];
		char *create = sqlite3_mprintf("CREATE VIRTUAL TABLE temp.\"%w\" USING %s(%u)",
					       table->name,
					       table->def ? "capture_rows" : "capture_derived", i);

		declare(table);
		r = create ? sqlite3_exec(db, create, NULL, NULL, NULL) : SQLITE_NOMEM;
		sqlite3_free(create);
	}
	if (r == SQLITE_OK)
		return tables;
	cli_set_error(error, CLI_FAILURE, _("cannot make the tables of '%s': %s"),
		      reader->capture->file, sqlite3_errmsg(db));
	sql_tables_free(tables);
	return NULL;
}

void sql_tables_free(struct sql_tables *tables)
{
	if (!tables)
		return;
	prof_dictionary_free(tables->sources);
	sql_derived_free(tables->derived);
	g_clear_error(&tables->error);
	g_ptr_array_unref(tables->all);
	json_done(&tables->json);
	out_done(&tables->list);
	g_free(tables);
}
