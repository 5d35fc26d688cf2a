/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * SQL vtab - what virtual tables of the capture and derived ones share: plans, values and errors
 */
#pragma once

#include "tools/profcapture/sql-tables.h"

struct sql_vtab {
	sqlite3_vtab base;
	struct sql_tables *tables;
	const struct sql_table *table;
};

/* Takes ownership of `error`. The caller of the query reports it instead of SQLite's message. */
int sql_vtab_fail(sqlite3_vtab *base, GError *error);
int sql_vtab_connect(sqlite3 *db, void *data, int argc, const char *const *argv,
		     sqlite3_vtab **ret_vtab, char **ret_error);
int sql_vtab_disconnect(sqlite3_vtab *vtab);

/* A plan is a letter for each constraint that the cursor uses, a space, and the mask of columns. */
enum sql_plan {
	SQL_PLAN_FROM = 'f',
	SQL_PLAN_TO = 't',
	SQL_PLAN_AT = '=',
	SQL_PLAN_EPOCH = 'e',
	SQL_PLAN_ID = 'i',
	SQL_PLAN_PID = 'p',
	SQL_PLAN_TID = 'd'
};
int sql_vtab_plan(sqlite3_vtab *base, sqlite3_index_info *info);

/* `text` must be interned or a constant, because SQLite does not copy it. NULL stays NULL. */
void sql_put_text(struct sql_tables *tables, sqlite3_context *context, const char *text);
void sql_put_uint(sqlite3_context *context, uint64_t value);
/* Frees the data of the cell. */
void sql_put_cell(struct sql_tables *tables, sqlite3_context *context, struct cell *cell);
