/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Export-sqlite - a database of SQLite with the tables and views of `sql`
 *
 * SQLite copies its virtual tables (sql-tables.h) into real ones, in one transaction. Nothing is
 * synchronized and there is no journal: result-file.h removes a database that is not complete.
 */
#include "config.h"

#include "tools/profcapture/export.h"

#include "tools/profcapture/sql-tables.h"
#include "tools/profcapture/sql-views.h"

#include <glib/gi18n.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static int run(sqlite3 *db, char *sql)
{
	int r = sql ? sqlite3_exec(db, sql, NULL, NULL, NULL) : SQLITE_NOMEM;

	sqlite3_free(sql);
	return r;
}

/* Creates the index before the rows, because the rows come in the order of the index. Creating it
 * later would sort them, which takes longer. */
static int copy_table(sqlite3 *db, const struct sql_table *table)
{
	int r = run(db, sqlite3_mprintf("CREATE TABLE main.\"%w\" AS SELECT * FROM temp.\"%w\" "
					"WHERE 0",
					table->name, table->name));

	if (r == SQLITE_OK && table->index)
		r = run(db,
			sqlite3_mprintf("CREATE %s main.\"%w by %s\" ON \"%w\"(%s)",
					strcmp(table->index, "id") == 0 ? "UNIQUE INDEX" : "INDEX",
					table->name, table->index, table->name, table->index));
	if (r == SQLITE_OK)
		r = run(db, sqlite3_mprintf("INSERT INTO main.\"%w\" SELECT * FROM temp.\"%w\"",
					    table->name, table->name));
	return r;
}

static bool write_tables(sqlite3 *db, struct sql_tables *tables, const char *output, GError **error)
{
	/* Large pages take fewer writes. An index by thread would take as long as writing half of
	 * the rows, and without one a query searches a million rows in 0.1 s. */
	int r = sqlite3_exec(db,
			     "PRAGMA main.page_size = 65536; "
			     "PRAGMA main.journal_mode = OFF; PRAGMA main.synchronous = OFF; "
			     "PRAGMA main.locking_mode = EXCLUSIVE; BEGIN",
			     NULL, NULL, NULL);

	/* In reverse order: calls and functions are first in the list, so they are written after
	 * all tables that add to them, and no stack needs to be read again. */
	for (guint i = tables->all->len; r == SQLITE_OK && i > 0; i--) {
		const struct sql_table *table = tables->all->pdata[i - 1];

		if (!table->def)
			sql_derived_complete(tables->derived);
		r = copy_table(db, table);
	}
	if (r == SQLITE_OK)
		r = sql_views_create(db, "main", false,
				     sql_tables_rows(tables, PROF_TABLE_WAIT) > 0);
	if (r == SQLITE_OK)
		r = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
	if (r == SQLITE_OK)
		return true;
	if (tables->error)
		g_propagate_error(error, g_steal_pointer(&tables->error));
	else
		cli_set_error(error, CLI_FAILURE, _("cannot write '%s': %s"), output,
			      sqlite3_errmsg(db));
	return false;
}

bool export_sqlite(struct export *export, struct out *out, GError **error)
{
	struct sql_tables *tables = NULL;
	sqlite3 *db = NULL;
	struct stat status;
	char path[32];
	bool ok = false;

	/* If the destination cannot seek, `out` is a temporary file without a name. */
	if (fstat(out->fd, &status) != 0 || status.st_nlink == 0 || !S_ISREG(status.st_mode))
		return cli_set_error(
			error, CLI_USAGE, "%s",
			_("a database cannot be written to a pipe, to standard output or compressed; name a new file with -o"));
	(void)g_snprintf(path, sizeof(path), "/proc/self/fd/%d", out->fd);
	/* Without locks, because only this thread uses the database. */
	if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) !=
	    SQLITE_OK)
		cli_set_error(error, CLI_FAILURE, _("cannot write '%s': %s"), export->output,
			      sqlite3_errmsg(db));
	else
		tables = sql_tables_new(&export->reader, db, error);
	if (tables)
		ok = write_tables(db, tables, export->output, error);
	if (sqlite3_close(db) != SQLITE_OK && ok)
		ok = cli_set_error(error, CLI_FAILURE, _("cannot write '%s': %s"), export->output,
				   sqlite3_errmsg(db));
	sql_tables_free(tables);
	return ok;
}
