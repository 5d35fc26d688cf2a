/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profcapture sql - queries of a capture in SQL
 *
 * The database is in memory and has virtual tables only (sql-tables.h). A query can only read
 * them, because SQLite's authorizer refuses everything else. The memory of a query is limited by
 * the budget of the capture, and its time by --timeout  [test_sql: hostile_queries]
 * Rows are written as they are found, unless they are limited or for a terminal. With a limit, one
 * row more is read, to find out whether there are more. A query that ends early shows the rows that
 * it has found  [test_sql: partial_results]
 *
 * A signal (the first SIGINT, SIGTERM or SIGHUP; SIGALRM for --timeout) asks SQLite's machine to
 * stop. If an instruction takes too long, such as a function of a long text, a second thread shows
 * the rows and ends the program. It first takes `lock`, which the main thread holds except while it
 * waits for a row.
 */
#include "config.h"

#include "base/each.h"
#include "tools/common/budget.h"
#include "tools/profcapture/sql-printf.h"
#include "tools/profcapture/sql-tables.h"
#include "tools/profcapture/sql-views.h"
#include "tools/profcapture/verbs.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

/* Rows that a terminal shows by default. */
#define TERMINAL_ROWS 1000
#define DEFAULT_TIMEOUT_NS (UINT64_C(300) * 1000000000)
/* Instructions of SQLite's machine between two checks of `stopped`. */
#define STEPS_BETWEEN_CHECKS 100000
/* Time from the signal until the second thread ends the program. */
#define GRACE_US 200000
#define MAX_LENGTH (64 << 20) /* longest text in bytes: PROF_MAX_PAYLOAD */

struct sql {
	struct reader reader;
	uint64_t timeout_ns;
	sqlite3 *db;
	struct sql_tables *tables;
	GPtrArray *keys;              /* unique names of the result's columns, NULL at the end */
	uint64_t rows;                /* number of rows found so far */
	bool keeps;                   /* the rows are kept, and shown at the end */
	GArray *kept;                 /* struct cell */
	int types[TABLE_MAX_COLUMNS]; /* type of each kept column's first non-NULL value */
	struct json json;
	GThread *watch;
	GMutex lock;
	atomic_bool is_done;
};

static atomic_int stopped; /* number of the signal that ends the query */
static sem_t wakes_watch;  /* posted when the query is stopped or done */

static const struct cli_option options[] = {
	{ "timeout", 0, CLI_DURATION, offsetof(struct sql, timeout_ns), N_("TIME"),
	  N_("Stop the query after TIME (default: 5m, 0: no limit)") },
	{ NULL },
};

/* Examples of queries, each for captures that have rows of the table. */
static const struct {
	unsigned table;
	const char *query;
} examples[] = {
	{ PROF_TABLE_SAMPLE, "SELECT function, self, total FROM hot_functions LIMIT 10" },
	{ PROF_TABLE_ALLOC, "SELECT function, sum(bytes) FROM allocations WHERE freed_ns IS NULL "
			    "GROUP BY function ORDER BY 2 DESC LIMIT 10" },
	{ PROF_TABLE_MARK, "SELECT name, count(*), avg(duration_ns) FROM marks GROUP BY name" },
	{ PROF_TABLE_SAMPLE,
	  "SELECT comm, sum(weight) FROM samples WHERE time_ns < 1000000000 GROUP BY comm" },
	{ PROF_TABLE_WAIT,
	  "SELECT cause, function, sum(duration_ns) FROM waits GROUP BY 1, 2 ORDER BY 3 DESC "
	  "LIMIT 10" },
	{ PROF_TABLE_SWITCH,
	  "SELECT comm, state, sum(duration_ns) FROM waits GROUP BY comm, state" },
	{ PROF_TABLE_COUNTER_VALUE, "SELECT name, max(value) FROM counters GROUP BY name" },
	{ PROF_TABLE_PROCESS, "SELECT DISTINCT pid, exe FROM process" },
	{ PROF_TABLE_IMAGE, "SELECT DISTINCT path, build_id FROM image" },
	{ PROF_TABLE_METADATA, "SELECT key, value FROM metadata" },
};

/* ---- limits ---------------------------------------------------------------------------------- */

static int authorize(void *data, int action, const char *first, const char *second,
		     const char *schema, const char *trigger)
{
	static const char *const pragmas[] = {
		"table_info",     "table_xinfo",     "table_list", "function_list",
		"collation_list", "compile_options", NULL
	};

	if (action == SQLITE_SELECT || action == SQLITE_READ || action == SQLITE_RECURSIVE)
		return SQLITE_OK;
	if (action == SQLITE_FUNCTION)
		return g_ascii_strcasecmp(second, "load_extension") == 0 ? SQLITE_DENY : SQLITE_OK;
	return action == SQLITE_PRAGMA && g_strv_contains(pragmas, first) ? SQLITE_OK : SQLITE_DENY;
}

static int must_stop(void *data)
{
	return stopped || out_failed(out_stdout());
}

static void set_limits(sqlite3 *db)
{
	static const int limits[][2] = {
		{ SQLITE_LIMIT_LENGTH, MAX_LENGTH },        { SQLITE_LIMIT_SQL_LENGTH, 1 << 20 },
		{ SQLITE_LIMIT_COLUMN, TABLE_MAX_COLUMNS }, { SQLITE_LIMIT_ATTACHED, 0 },
		{ SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1000 }, { SQLITE_LIMIT_WORKER_THREADS, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(limits); i++)
		sqlite3_limit(db, limits[i][0], limits[i][1]);
	(void)sqlite3_hard_heap_limit64((sqlite3_int64)budget_bytes());
	/* A misspelled name in double quotes is an error, not a text. */
	(void)sqlite3_db_config(db, SQLITE_DBCONFIG_DQS_DML, 0, NULL);
	(void)sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	(void)sqlite3_set_authorizer(db, authorize, NULL);
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* If the message is about an unknown table, prints an error that suggests or lists tables, and
 * returns true. */
static bool is_unknown_table(struct sql *sql, const char *message)
{
	static const char prefix[] = "no such table: ";
	g_autoptr(GPtrArray) valid = g_ptr_array_new_with_free_func(g_free);
	sqlite3_stmt *names = NULL;

	if (!g_str_has_prefix(message, prefix) ||
	    sqlite3_prepare_v2(sql->db, "SELECT name FROM sqlite_temp_schema ORDER BY name", -1,
			       &names, NULL) != SQLITE_OK)
		return false;
	while (sqlite3_step(names) == SQLITE_ROW)
		g_ptr_array_add(valid, g_strdup((const char *)sqlite3_column_text(names, 0)));
	sqlite3_finalize(names);
	g_ptr_array_add(valid, NULL);
	sql->reader.status = cli_unknown(_("table"), message + strlen(prefix),
					 (const char *const *)valid->pdata);
	return true;
}

/* Returns the query's line at an offset, with a caret below that offset. */
static char *point_at(const char *query, int offset)
{
	const char *at = query + MIN_OF((size_t)MAX_OF(offset, 0), strlen(query)), *line = at;
	g_autofree char *before = NULL, *after = NULL;

	while (line > query && line[-1] != '\n')
		line--;
	before = text_escape_n(line, (size_t)(at - line));
	after = text_escape_n(at, strcspn(at, "\n"));
	return g_strdup_printf("\n  %s%s\n  %*s^", before, after, (int)text_width(before), "");
}

/* Sets the error of a query that a signal ended. Returns false. */
static bool set_stopped(const struct sql *sql, GError **error)
{
	g_autofree char *limit = text_duration(sql->timeout_ns);

	if (stopped == SIGALRM)
		return cli_set_error(error, CLI_FAILURE,
				     _("the query took longer than %s; --timeout allows more"),
				     limit);
	return cli_set_error(error, CLI_INTERRUPTED, "%s", _("the query was interrupted"));
}

/* Sets the error of a failed query, or prints it and sets the exit status. Returns false. */
static bool fail(struct sql *sql, const char *query, GError **error)
{
	g_autofree char *message = g_strdup(sqlite3_errmsg(sql->db)), *place = NULL;
	int code = sqlite3_errcode(sql->db), offset = sqlite3_error_offset(sql->db);

	if (sql->tables->error) {
		g_propagate_error(error, g_steal_pointer(&sql->tables->error));
		return false;
	}
	if (stopped)
		return set_stopped(sql, error);
	if (code == SQLITE_NOMEM)
		return cli_set_error(error, CLI_FAILURE,
				     _("the query needs more than %" PRIu64
				       " MiB, the limit for a capture of this size"),
				     budget_bytes() >> 20);
	if (code == SQLITE_AUTH)
		return cli_set_error(error, CLI_USAGE,
				     _("a query can only read the capture, with SELECT (%s)"),
				     message);
	if (is_unknown_table(sql, message))
		return false;
	if (offset >= 0)
		place = point_at(query, offset);
	return cli_set_error(error, code == SQLITE_ERROR ? CLI_USAGE : CLI_FAILURE, "%s%s", message,
			     place ? place : "");
}

/* ---- the result ------------------------------------------------------------------------------ */

static bool is_text(const struct sql *sql)
{
	return sql->reader.format == READER_TEXT;
}

/* In text, numbers are as SQLite prints them. `keeps`: the cell outlives the row. */
static struct cell cell_of(const struct sql *sql, sqlite3_stmt *statement, int column, bool keeps)
{
	int type = sqlite3_column_type(statement, column);
	struct cell cell = { .kind = type == SQLITE_BLOB ? CELL_BYTES : CELL_SLICE };

	if (type == SQLITE_NULL)
		return cell_unknown();
	if (type == SQLITE_INTEGER && !is_text(sql))
		return cell_int(sqlite3_column_int64(statement, column));
	if (type == SQLITE_FLOAT && !is_text(sql))
		return cell_double(sqlite3_column_double(statement, column));
	cell.text = type == SQLITE_BLOB ? sqlite3_column_blob(statement, column)
					: (const char *)sqlite3_column_text(statement, column);
	cell.number = (uint64_t)sqlite3_column_bytes(statement, column);
	if (keeps)
		cell.text = cell.owned = g_memdup2(cell.text, cell.number);
	if (cell.number == 0)
		cell.text = ""; /* SQLite returns NULL for an empty blob */
	return cell;
}

/* Two columns may have the same name, but two JSON members may not. */
static void name_columns(struct sql *sql, sqlite3_stmt *statement)
{
	sql->keys = g_ptr_array_new_with_free_func(g_free);
	for (int i = 0; i < sqlite3_column_count(statement); i++) {
		char *key = g_strdup(sqlite3_column_name(statement, i));
		guint n = 2;

		while (g_ptr_array_find_with_equal_func(sql->keys, key, g_str_equal, NULL)) {
			g_free(key);
			key = g_strdup_printf("%s_%u", sqlite3_column_name(statement, i), n++);
		}
		g_ptr_array_add(sql->keys, key);
	}
	g_ptr_array_add(sql->keys, NULL);
}

static void print_separated(struct sql *sql, sqlite3_stmt *statement, struct out *out)
{
	for (guint i = 0; i + 1 < sql->keys->len; i++) {
		struct cell cell = statement ? cell_of(sql, statement, (int)i, false)
					     : cell_text(sql->keys->pdata[i]);
		g_autofree char *text = cell.kind == CELL_TEXT ? text_escape(cell.text)
					: cell.kind == CELL_SLICE
						? text_escape_n(cell.text, cell.number)
						: g_strdup(cell.kind == CELL_BYTES ? "" : "-");

		if (i > 0)
			out_char(out, '\t');
		out_text(out, text);
		for (uint64_t b = 0; cell.kind == CELL_BYTES && b < cell.number; b++)
			out_printf(out, "%02x", (uint8_t)cell.text[b]);
	}
	out_char(out, '\n');
}

static void begin_rows(struct sql *sql)
{
	if (is_text(sql)) {
		print_separated(sql, NULL, out_stdout());
		return;
	}
	reader_begin(&sql->reader, &sql->json, "sql", false, READER_TOTAL_UNKNOWN);
	rows_open(&sql->json, reader_json_format(&sql->reader),
		  (const char *const *)sql->keys->pdata);
}

static void write_end(struct sql *sql, bool is_partial)
{
	if (sql->reader.format == READER_JSON)
		json_bool(&sql->json, "partial", is_partial);
	reader_end(&sql->reader, &sql->json);
}

static void write_row(struct sql *sql, sqlite3_stmt *statement)
{
	if (is_text(sql)) {
		print_separated(sql, statement, out_stdout());
		return;
	}
	rows_begin(&sql->json);
	for (guint i = 0; i + 1 < sql->keys->len; i++) {
		const struct cell cell = cell_of(sql, statement, (int)i, false);

		cell_write(&sql->json, sql->keys->pdata[i], &cell);
	}
	rows_end(&sql->json);
}

static struct cell get_kept(const void *data, size_t row, unsigned field)
{
	const struct sql *sql = data;

	struct cell cell =
		g_array_index(sql->kept, struct cell, row * (sql->keys->len - 1) + field);

	cell.owned = NULL;
	return cell;
}

/* `more`: there are more rows than the kept ones. */
static void show_kept(struct sql *sql, bool more, bool is_partial)
{
	unsigned n = sql->keys->len - 1, name = n;
	struct table *table = g_new0(struct table, 1);
	struct table_member *members = g_new0(struct table_member, n + 1);
	struct table_style style = { .out = out_stdout(),
				     .is_colored = sql->reader.colored,
				     .columns = sql->reader.columns };
	/* a query may name columns with any bytes, so the names are escaped */
	g_autoptr(GPtrArray) titles = g_ptr_array_new_with_free_func(g_free);

	for (unsigned i = 0; i < n; i++) {
		g_ptr_array_add(titles, text_escape(sql->keys->pdata[i]));
		members[i] = (struct table_member){ sql->keys->pdata[i], i };
		if (sql->types[i] == SQLITE_TEXT)
			name = i;
	}
	*table = (struct table){
		.rows = sql->kept->len / n, .get = get_kept, .data = sql, .members = members
	};
	/* The last text column may be cut to the width of the terminal. */
	for (unsigned i = 0; i < n; i++)
		table_add_column(table, i,
				 i == name ? COLUMN_NAME
				 : sql->types[i] == SQLITE_TEXT || sql->types[i] == SQLITE_BLOB
					 ? COLUMN_WORD
					 : COLUMN_NUMBER,
				 titles->pdata[i]);
	if (is_text(sql)) {
		table_print(table, &style, table->rows);
		if (more && !is_partial)
			out_printf(out_stdout(), _("There are more rows (--limit 0)\n"));
	} else {
		reader_begin(&sql->reader, &sql->json, "sql", more,
			     more ? READER_TOTAL_UNKNOWN : table->rows);
		table_write(table, &sql->json, reader_json_format(&sql->reader), table->rows);
		write_end(sql, is_partial);
	}
	g_free(table);
	g_free(members);
}

static void show_rows(struct sql *sql, bool more, bool is_partial)
{
	if (sql->keeps) {
		show_kept(sql, more, is_partial);
		return;
	}
	if (sql->rows == 0)
		begin_rows(sql);
	if (is_text(sql))
		return;
	rows_close(&sql->json);
	write_end(sql, is_partial);
}

/* Shows the rows that a query found before it failed, and adds their number to the error. */
static void show_partial(struct sql *sql, GError *error)
{
	char *message = error->message;

	if (sql->rows == 0)
		return;
	show_rows(sql, true, true);
	error->message = g_strdup_printf(ngettext("%s (partial result: %" PRIu64 " row)",
						  "%s (partial result: %" PRIu64 " rows)",
						  (gulong)sql->rows),
					 message, sql->rows);
	g_free(message);
}

/* ---- early ends ------------------------------------------------------------------------------ */

/* A signal restores its default action (SA_RESETHAND), so a second one ends the program. */
static void on_signal(int number)
{
	int before = 0;

	if (atomic_compare_exchange_strong(&stopped, &before, number))
		(void)sem_post(&wakes_watch);
	else if (number != SIGALRM)
		(void)raise(number);
}

static gpointer watch_query(gpointer data)
{
	struct sql *sql = data;
	GError *error = NULL;

	while (sem_wait(&wakes_watch) < 0)
		continue;
	for (unsigned us = 0; us < GRACE_US && !sql->is_done; us += 5000)
		g_usleep(5000);
	g_mutex_lock(&sql->lock);
	if (!sql->is_done) {
		(void)set_stopped(sql, &error);
		show_partial(sql, error);
		(void)out_flush(out_stdout());
		_exit(cli_fail(error));
	}
	g_mutex_unlock(&sql->lock);
	return NULL;
}

/* Starts the thread that ends the program if a query does not stop, and sets the signal handlers
 * and the timer. A signal that is ignored, as by nohup(1), stays ignored. */
static void start_watch(struct sql *sql)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGALRM };
	const struct sigaction action = { .sa_handler = on_signal,
					  .sa_flags = SA_RESTART | (int)SA_RESETHAND };
	uint64_t ns = MIN_OF(sql->timeout_ns, (uint64_t)INT64_MAX);
	const struct itimerval timer = { .it_value = { (time_t)(ns / 1000000000),
						       (suseconds_t)(ns % 1000000000 / 1000) } };
	struct sigaction inherited;

	sqlite3_progress_handler(sql->db, STEPS_BETWEEN_CHECKS, must_stop, NULL);
	(void)sem_init(&wakes_watch, 0, 0);
	g_mutex_init(&sql->lock);
	g_mutex_lock(&sql->lock);
	sql->watch = g_thread_new("watch", watch_query, sql);
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		if (sigaction(signals[i], NULL, &inherited) == 0 &&
		    (inherited.sa_handler != SIG_IGN || signals[i] == SIGALRM))
			(void)sigaction(signals[i], &action, NULL);
	(void)setitimer(ITIMER_REAL, &timer, NULL);
}

static void stop_watch(struct sql *sql)
{
	int before = 0;

	(void)setitimer(ITIMER_REAL, &(const struct itimerval){ 0 }, NULL);
	if (!sql->watch)
		return;
	/* from now on, a signal ends the program, because only output remains to be written */
	(void)atomic_compare_exchange_strong(&stopped, &before, SIGALRM);
	sql->is_done = true;
	g_mutex_unlock(&sql->lock);
	(void)sem_post(&wakes_watch);
	g_thread_join(sql->watch);
	g_mutex_clear(&sql->lock);
}

/* ---- the query ------------------------------------------------------------------------------- */

static int step(struct sql *sql, sqlite3_stmt *statement)
{
	int r;

	g_mutex_unlock(&sql->lock);
	r = sqlite3_step(statement);
	g_mutex_lock(&sql->lock);
	return r;
}

static bool run_statement(struct sql *sql, const char *query, sqlite3_stmt *statement,
			  GError **error)
{
	uint64_t limit = sql->reader.limit;
	int r;

	/* Text for a terminal has to be measured. */
	sql->keeps = limit > 0 || (is_text(sql) && sql->reader.columns > 0);
	name_columns(sql, statement);
	while ((r = step(sql, statement)) == SQLITE_ROW && !(limit && sql->rows == limit)) {
		if (!sql->keeps && sql->rows == 0)
			begin_rows(sql);
		sql->rows++;
		if (!sql->keeps) {
			write_row(sql, statement);
			continue;
		}
		for (int i = 0; i < sqlite3_column_count(statement); i++) {
			struct cell cell = cell_of(sql, statement, i, true);

			if (sql->types[i] == 0 && cell.kind != CELL_UNKNOWN)
				sql->types[i] = sqlite3_column_type(statement, i);
			g_array_append_val(sql->kept, cell);
		}
	}
	/* If the output failed, must_stop() stopped the query, which is not an error. */
	if (r != SQLITE_ROW && r != SQLITE_DONE && !out_failed(out_stdout())) {
		(void)fail(sql, query, error);
		if (*error)
			show_partial(sql, *error);
		return false;
	}
	show_rows(sql, r == SQLITE_ROW, false);
	return true;
}

static bool run_query(struct sql *sql, const char *query, GError **error)
{
	sqlite3_stmt *statement = NULL, *next = NULL;
	const char *rest = "";
	bool ok = sqlite3_prepare_v2(sql->db, query, -1, &statement, &rest) == SQLITE_OK;

	if (!ok)
		return fail(sql, query, error);
	if (sqlite3_column_count(statement) == 0)
		ok = cli_set_error(error, CLI_USAGE, "%s", _("the query has no result"));
	else if (sqlite3_prepare_v2(sql->db, rest, -1, &next, NULL) != SQLITE_OK || next)
		ok = cli_set_error(error, CLI_USAGE, "%s",
				   _("a query is one statement, with nothing after it"));
	ok = ok && run_statement(sql, query, statement, error);
	sqlite3_finalize(next);
	sqlite3_finalize(statement);
	return ok;
}

#define QUERY_OF_COLUMNS                                                        \
	"SELECT m.name AS \"table\", c.name AS \"column\", c.type AS \"type\" " \
	"FROM sqlite_temp_schema AS m, pragma_table_info(m.name, 'temp') AS c " \
	"ORDER BY m.type DESC, m.rowid, c.cid"

/* SQLite declares the table of a table-valued function on first use, which the authorizer refuses.
 * So this query runs before the authorizer is set. */
#define QUERY_OF_FUNCTIONS                                                              \
	"SELECT 1 FROM json_each('[]'), json_tree('[]'), pragma_table_info('sample'), " \
	"pragma_table_xinfo('sample'), pragma_table_list, pragma_function_list, "       \
	"pragma_collation_list, pragma_compile_options LIMIT 0"

static bool has_no_rows(const struct sql *sql, const char *name)
{
	POINTER_EACH(const struct sql_table, table, sql->tables->all)
		if (strcmp(table->name, name) == 0)
			return table->rows == 0;
	return false;
}

/* Prints the tables that have rows, with their columns, and example queries for this capture. */
static bool print_tables(struct sql *sql, GError **error)
{
	const unsigned width = sql->reader.columns;
	g_autoptr(GString) line = g_string_new(NULL), empty = g_string_new(NULL);
	g_autofree char *word = text_shell_file(sql->reader.capture->file), *table = NULL;
	struct out *out = out_stdout();
	sqlite3_stmt *statement = NULL;
	unsigned shown = 0;
	int r;

	if (sqlite3_prepare_v2(sql->db, QUERY_OF_COLUMNS, -1, &statement, NULL) != SQLITE_OK)
		return fail(sql, QUERY_OF_COLUMNS, error);
	out_text(out, _("Tables\n"));
	do {
		const char *name;

		r = sqlite3_step(statement);
		name = r == SQLITE_ROW ? (const char *)sqlite3_column_text(statement, 0) : NULL;
		if (table && g_strcmp0(table, name) != 0) {
			if (has_no_rows(sql, table)) {
				g_string_append_printf(empty, "%s%s", empty->len ? ", " : "",
						       table);
			} else {
				g_string_append_c(line, ')');
				out_text(out, "  ");
				text_wrap(out, line->str, 2, 6, width);
			}
		}
		if (name && g_strcmp0(table, name) != 0) {
			g_free(table);
			table = g_strdup(name);
			g_string_printf(line, "%s(%s", name, sqlite3_column_text(statement, 1));
		} else if (name) {
			g_string_append_printf(line, ", %s", sqlite3_column_text(statement, 1));
		}
	} while (r == SQLITE_ROW);
	sqlite3_finalize(statement);
	if (empty->len) {
		g_string_prepend(empty, _("Without rows: "));
		text_wrap(out, empty->str, 0, 2, width);
	}
	out_text(out,
		 _("\nTimes are nanoseconds since the start. Quote names that SQL uses itself, "
		   "such as \"group\".\n\nExamples\n"));
	for (size_t i = 0; shown < 3 && i < ARRAY_SIZE(examples); i++) {
		if (sql_tables_rows(sql->tables, examples[i].table) == 0)
			continue;
		shown++;
		out_printf(out, "  profcapture sql %s \\\n    \"%s\"\n", word, examples[i].query);
	}
	return true;
}

static bool sql_query(void *data, char **operands, GError **error)
{
	struct sql *sql = data;
	struct reader *reader = &sql->reader;
	bool prints_tables;

	reader->text_limit = cli_columns(out_stdout()->fd) > 0 ? TERMINAL_ROWS : 0;
	/* JSON begins with the state of the capture, so damage must be known before the rows. */
	reader->finds_damage_late = !reader->json &&
				    (reader->format == READER_TEXT || reader->format == READER_CSV);
	if (!reader_open(reader, operands[0], error))
		return false;
	sql->kept = g_array_new(FALSE, FALSE, sizeof(struct cell));
	if (sqlite3_open_v2(":memory:", &sql->db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK)
		return cli_set_error(error, CLI_FAILURE, "%s", sqlite3_errmsg(sql->db));
	sql->tables = sql_tables_new(reader, sql->db, error);
	if (!sql->tables)
		return false;
	if (sql_views_create(sql->db, "temp", true,
			     sql_tables_rows(sql->tables, PROF_TABLE_WAIT) > 0) != SQLITE_OK ||
	    sqlite3_exec(sql->db, QUERY_OF_FUNCTIONS, NULL, NULL, NULL) != SQLITE_OK ||
	    sql_printf_register(sql->db) != SQLITE_OK)
		return fail(sql, "", error);
	set_limits(sql->db);
	start_watch(sql);
	prints_tables = !operands[1] && is_text(sql);
	return prints_tables ? print_tables(sql, error)
			     : run_query(sql, operands[1] ? operands[1] : QUERY_OF_COLUMNS, error);
}

static void sql_done(struct sql *sql)
{
	stop_watch(sql);
	for (guint i = 0; sql->kept && i < sql->kept->len; i++)
		cell_done(&g_array_index(sql->kept, struct cell, i));
	g_clear_pointer(&sql->kept, g_array_unref);
	g_clear_pointer(&sql->keys, g_ptr_array_unref);
	(void)sqlite3_close(sql->db);
	sql_tables_free(sql->tables);
	json_done(&sql->json);
	reader_done(&sql->reader);
}

int verb_sql(int argc, char **argv)
{
	static const struct reader_verb verb = {
		.spec = { N_("FILE [QUERY]"),
			  N_("Run an SQL query on a capture, or list its tables and examples."), 1,
			  2 },
		.query = sql_query,
	};
	CLEANUP(sql_done)
	struct sql sql = { .reader.limit = READER_LIMIT_UNSET, .timeout_ns = DEFAULT_TIMEOUT_NS };
	const struct cli_group groups[] = { { NULL, options, &sql },
					    { N_("Output"), reader_output_options, &sql.reader },
					    { NULL } };

	json_init(&sql.json, out_stdout());
	return reader_run(&verb, groups, &sql, argc, argv);
}
