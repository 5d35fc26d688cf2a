/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* SQL derived cursor - reads the rows of derived tables, which are in memory */
#include "config.h"

#include "tools/profcapture/sql-cursors.h"
#include "tools/profcapture/sql-vtab.h"

struct derived_cursor {
	sqlite3_vtab_cursor base;
	uint32_t at, end;
};

static void skip_others(struct derived_cursor *cursor)
{
	const struct sql_vtab *vtab = (struct sql_vtab *)cursor->base.pVtab;

	while (cursor->at < cursor->end &&
	       !sql_derived_is_row(vtab->tables->derived, vtab->table->derived, cursor->at))
		cursor->at++;
}

static int filter_derived(sqlite3_vtab_cursor *base, int number, const char *plan, int argc,
			  sqlite3_value **argv)
{
	struct derived_cursor *cursor = (struct derived_cursor *)base;
	const struct sql_table *table = ((struct sql_vtab *)base->pVtab)->table;
	struct sql_derived *derived = ((struct sql_vtab *)base->pVtab)->tables->derived;
	GError *error = NULL;

	cursor->at = cursor->end = 0;
	if (argc > 0 && sqlite3_value_numeric_type(argv[0]) == SQLITE_NULL)
		return SQLITE_OK;
	if (argc > 0 && sqlite3_value_numeric_type(argv[0]) == SQLITE_INTEGER) {
		int64_t id = sqlite3_value_int64(argv[0]);

		if (id >= 0 && id < sql_derived_rows(derived, table->derived)) {
			cursor->at = (uint32_t)id;
			cursor->end = cursor->at + 1;
		}
	} else {
		if (!sql_derived_read(derived, table->derived, &error))
			return sql_vtab_fail(base->pVtab, error);
		cursor->end = sql_derived_rows(derived, table->derived);
	}
	skip_others(cursor);
	return SQLITE_OK;
}

static int next_derived(sqlite3_vtab_cursor *base)
{
	struct derived_cursor *cursor = (struct derived_cursor *)base;

	cursor->at++;
	skip_others(cursor);
	return SQLITE_OK;
}

static int put_derived_column(sqlite3_vtab_cursor *base, sqlite3_context *context, int index)
{
	const struct derived_cursor *cursor = (struct derived_cursor *)base;
	const struct sql_vtab *vtab = (struct sql_vtab *)base->pVtab;
	GError *error = NULL;
	struct cell cell;

	if (!sql_derived_cell(vtab->tables->derived, vtab->table->derived, cursor->at,
			      sql_column_at(vtab->table, index)->field, &cell, &error))
		return sql_vtab_fail(base->pVtab, error);
	sql_put_cell(vtab->tables, context, &cell);
	return SQLITE_OK;
}

static int open_derived_cursor(sqlite3_vtab *vtab, sqlite3_vtab_cursor **ret_cursor)
{
	struct derived_cursor *cursor = g_new0(struct derived_cursor, 1);

	*ret_cursor = &cursor->base;
	return SQLITE_OK;
}

static int close_derived_cursor(sqlite3_vtab_cursor *base)
{
	g_free(base);
	return SQLITE_OK;
}

static int is_at_end_of_derived(sqlite3_vtab_cursor *base)
{
	const struct derived_cursor *cursor = (struct derived_cursor *)base;

	return cursor->at >= cursor->end;
}

static int put_derived_number(sqlite3_vtab_cursor *base, sqlite3_int64 *ret_row)
{
	*ret_row = ((struct derived_cursor *)base)->at;
	return SQLITE_OK;
}

const sqlite3_module sql_derived_module = {
	.xCreate = sql_vtab_connect,
	.xConnect = sql_vtab_connect,
	.xBestIndex = sql_vtab_plan,
	.xDisconnect = sql_vtab_disconnect,
	.xDestroy = sql_vtab_disconnect,
	.xOpen = open_derived_cursor,
	.xClose = close_derived_cursor,
	.xFilter = filter_derived,
	.xNext = next_derived,
	.xEof = is_at_end_of_derived,
	.xColumn = put_derived_column,
	.xRowid = put_derived_number,
};
