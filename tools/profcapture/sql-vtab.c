/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profcapture/sql-vtab.h"

#include <inttypes.h>
#include <string.h>

#define MAX_PLAN 16

/* ---- values ---------------------------------------------------------------------------------- */

static void put_text_n(sqlite3_context *context, const char *text, size_t length)
{
	char *valid;

	if (g_utf8_validate(text, (gssize)length, NULL)) {
		sqlite3_result_text64(context, text, length, SQLITE_TRANSIENT, SQLITE_UTF8);
		return;
	}
	valid = g_utf8_make_valid(text, (gssize)length);
	sqlite3_result_text64(context, valid, strlen(valid), g_free, SQLITE_UTF8);
}

void sql_put_text(struct sql_tables *tables, sqlite3_context *context, const char *text)
{
	const struct names *names = tables->reader->capture->names;
	struct sql_text *known = &tables->valid[((uintptr_t)text >> 4) % ARRAY_SIZE(tables->valid)];
	size_t length;

	if (!text)
		return;
	if (tables->removed_epochs != names->removed_epochs) {
		memset(tables->valid, 0, sizeof(tables->valid));
		tables->removed_epochs = names->removed_epochs;
	}
	if (known->text != text) {
		length = strlen(text);
		if (!g_utf8_validate(text, (gssize)length, NULL)) {
			put_text_n(context, text, length);
			return;
		}
		*known = (struct sql_text){ text, length };
	}
	sqlite3_result_text64(context, text, known->length, SQLITE_STATIC, SQLITE_UTF8);
}

void sql_put_uint(sqlite3_context *context, uint64_t value)
{
	char text[20];

	if (value <= INT64_MAX) {
		sqlite3_result_int64(context, (sqlite3_int64)value);
		return;
	}
	(void)g_snprintf(text, sizeof(text), "0x%016" PRIx64, value);
	put_text_n(context, text, strlen(text));
}

void sql_put_cell(struct sql_tables *tables, sqlite3_context *context, struct cell *cell)
{
	g_autofree char *hex = NULL;

	switch (cell->kind) {
	case CELL_UINT:
	case CELL_HEX:
	case CELL_BOOL:
		sql_put_uint(context, cell->number);
		break;
	case CELL_INT:
		sqlite3_result_int64(context, (int64_t)cell->number);
		break;
	case CELL_DOUBLE:
		sqlite3_result_double(context, cell->real);
		break;
	case CELL_TEXT:
		if (cell->owned)
			put_text_n(context, cell->text, strlen(cell->text));
		else
			sql_put_text(tables, context, cell->text);
		break;
	case CELL_SLICE:
		put_text_n(context, cell->text, cell->number);
		break;
	case CELL_BYTES:
		hex = text_hex(cell->text, cell->number);
		put_text_n(context, hex, strlen(hex));
		break;
	default:
		break;
	}
	if (cell->owned)
		cell_done(cell);
}

int sql_vtab_fail(sqlite3_vtab *base, GError *error)
{
	struct sql_tables *tables = ((struct sql_vtab *)base)->tables;

	sqlite3_free(base->zErrMsg);
	base->zErrMsg = sqlite3_mprintf("%s", error->message);
	if (tables->error)
		g_error_free(error);
	else
		tables->error = error;
	return SQLITE_ERROR;
}

/* ---- planning -------------------------------------------------------------------------------- */

static char letter_of(const struct sql_table *table, int index, unsigned char op)
{
	const struct sql_column *column = index >= 0 ? sql_column_at(table, index) : NULL;
	bool is_equal = op == SQLITE_INDEX_CONSTRAINT_EQ;
	bool is_id = column && (table->def ? column->field == SQL_STORED && column->position == 0 &&
						     (table->def->flags & PROF_TABLE_DICTIONARY)
					   : strcmp(column->name, "id") == 0);

	if (is_id && is_equal)
		return SQL_PLAN_ID;
	if (!column || !table->def)
		return 0;
	if (column->field == SQL_TIME)
		return is_equal ? SQL_PLAN_AT
		       : op == SQLITE_INDEX_CONSTRAINT_GE || op == SQLITE_INDEX_CONSTRAINT_GT
			       ? SQL_PLAN_FROM
		       : op == SQLITE_INDEX_CONSTRAINT_LE || op == SQLITE_INDEX_CONSTRAINT_LT
			       ? SQL_PLAN_TO
			       : 0;
	return !is_equal                    ? 0
	       : column->field == SQL_EPOCH ? SQL_PLAN_EPOCH
	       : column->field == SQL_PID   ? SQL_PLAN_PID
	       : column->field == SQL_TID   ? SQL_PLAN_TID
					    : 0;
}

int sql_vtab_plan(sqlite3_vtab *base, sqlite3_index_info *info)
{
	struct sql_vtab *vtab = (struct sql_vtab *)base;
	char plan[MAX_PLAN + 1] = "";
	double rows = (double)vtab->table->rows + 1, cost = rows;
	uint32_t epochs = prof_reader_info(vtab->tables->reader->capture->reader)->epochs;
	int n = 0;

	for (int i = 0; i < info->nConstraint && n < MAX_PLAN; i++) {
		char letter = info->aConstraint[i].usable
				      ? letter_of(vtab->table, info->aConstraint[i].iColumn,
						  info->aConstraint[i].op)
				      : 0;

		if (letter == 0)
			continue;
		plan[n++] = letter;
		info->aConstraintUsage[i].argvIndex = n;
	}
	for (const char *at = plan; *at; at++) {
		rows /= *at == SQL_PLAN_EPOCH ? MAX_OF(epochs, 1u) : *at == SQL_PLAN_AT ? 1000 : 4;
		if (*at != SQL_PLAN_PID && *at != SQL_PLAN_TID)
			cost = rows;
	}
	info->estimatedCost = cost * (1 + 0.1 * __builtin_popcountll(info->colUsed));
	info->estimatedRows = (sqlite3_int64)MAX_OF(rows, 1.0);
	if (strchr(plan, SQL_PLAN_ID) && (!vtab->table->def || strchr(plan, SQL_PLAN_EPOCH))) {
		info->estimatedCost = info->estimatedRows = 1;
		info->idxFlags = SQLITE_INDEX_SCAN_UNIQUE;
	}
	info->idxStr = sqlite3_mprintf("%s %llx", plan, info->colUsed);
	info->needToFreeIdxStr = 1;
	return info->idxStr ? SQLITE_OK : SQLITE_NOMEM;
}

/* ---- connecting ------------------------------------------------------------------------------ */

int sql_vtab_connect(sqlite3 *db, void *data, int argc, const char *const *argv,
		     sqlite3_vtab **ret_vtab, char **ret_error)
{
	struct sql_tables *tables = data;
	struct sql_vtab *vtab;
	g_autofree char *create = NULL;
	int r;

	vtab = sqlite3_malloc(sizeof(*vtab));
	if (!vtab)
		return SQLITE_NOMEM;
	*vtab = (struct sql_vtab){ .tables = tables, .table = tables->all->pdata[atoi(argv[3])] };
	create = g_strdup_printf("CREATE TABLE t %s", vtab->table->declaration);
	r = sqlite3_declare_vtab(db, create);
	if (r != SQLITE_OK)
		sqlite3_free(vtab);
	else
		*ret_vtab = &vtab->base;
	return r;
}

int sql_vtab_disconnect(sqlite3_vtab *vtab)
{
	sqlite3_free(vtab);
	return SQLITE_OK;
}
