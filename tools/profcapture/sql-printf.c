/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * SQL printf - versions of SQLite's printf() and format() that fail if the result is too long
 *
 * The replacements call SQLite's own functions in a second connection, which still has them.
 */
#include "config.h"

#include "tools/profcapture/sql-printf.h"

#include "arch/base.h"

#include <glib.h>
#include <stdint.h>
#include <string.h>

/* Maximum bytes of a number, or of the quotes around a text. %f of a double has up to 317. */
#define CONVERSION_BYTES 512

struct printf_caller {
	sqlite3 *db;
	sqlite3_stmt *call; /* NULL: not prepared yet */
	int argc;           /* number of arguments of the call */
};

static void caller_free(void *data)
{
	struct printf_caller *caller = data;

	sqlite3_finalize(caller->call);
	(void)sqlite3_close(caller->db);
	g_free(caller);
}

static uint64_t add_bounded(uint64_t a, uint64_t b)
{
	return b > UINT32_MAX || a + b > UINT32_MAX ? UINT32_MAX : a + b;
}

/* Returns an upper bound for the bytes of the result; at most UINT32_MAX. */
static uint64_t longest_result(const char *format, int argc, sqlite3_value **argv)
{
	uint64_t bytes = strlen(format);

	/* Any argument may be the width for a '*', or a text whose quotes are doubled. */
	for (int i = 1; i < argc; i++) {
		int64_t star = sqlite3_value_int64(argv[i]);

		if (strchr(format, '*'))
			bytes = add_bounded(bytes, star < 0 ? -(uint64_t)star : (uint64_t)star);
		bytes = add_bounded(bytes, 2 * (uint64_t)sqlite3_value_bytes(argv[i]));
	}
	while ((format = strchr(format, '%'))) {
		format++;
		bytes = add_bounded(bytes, CONVERSION_BYTES);
		while (*format && strchr("-+ #0,!*.123456789", *format)) {
			if (g_ascii_isdigit(*format))
				bytes = add_bounded(bytes, g_ascii_strtoull(format, NULL, 10));
			format += MAX_OF(strspn(format, "0123456789"), (size_t)1);
		}
		if (*format == '%')
			format++;
	}
	return bytes;
}

/* Prepares a call with this number of arguments. */
static int prepare(struct printf_caller *caller, int argc)
{
	g_autoptr(GString) query = g_string_new("SELECT printf(");

	if (caller->call && caller->argc == argc)
		return SQLITE_OK;
	sqlite3_finalize(caller->call);
	caller->call = NULL;
	caller->argc = argc;
	for (int i = 0; i < argc; i++)
		g_string_append(query, i ? ", ?" : "?");
	g_string_append_c(query, ')');
	return sqlite3_prepare_v2(caller->db, query->str, -1, &caller->call, NULL);
}

static void call_printf(sqlite3_context *context, int argc, sqlite3_value **argv)
{
	struct printf_caller *caller = sqlite3_user_data(context);
	int most = sqlite3_limit(sqlite3_context_db_handle(context), SQLITE_LIMIT_LENGTH, -1);
	const char *format = argc > 0 ? (const char *)sqlite3_value_text(argv[0]) : NULL;
	uint64_t longest = format ? longest_result(format, argc, argv) : 0;
	int r = SQLITE_OK;

	if (!format)
		return;
	(void)sqlite3_limit(caller->db, SQLITE_LIMIT_LENGTH, most);
	if (longest > 2 * (uint64_t)most)
		r = SQLITE_TOOBIG;
	if (r == SQLITE_OK)
		r = prepare(caller, argc);
	for (int i = 0; r == SQLITE_OK && i < argc; i++)
		r = sqlite3_bind_value(caller->call, i + 1, argv[i]);
	if (r == SQLITE_OK)
		r = sqlite3_step(caller->call);
	if (r == SQLITE_ROW && sqlite3_column_type(caller->call, 0) == SQLITE_NULL)
		r = longest > (uint64_t)most ? SQLITE_TOOBIG : SQLITE_DONE;
	if (r == SQLITE_ROW)
		sqlite3_result_value(context, sqlite3_column_value(caller->call, 0));
	else if (r == SQLITE_TOOBIG)
		sqlite3_result_error_toobig(context);
	else if (r != SQLITE_DONE)
		sqlite3_result_error_code(context, r);
	if (caller->call)
		(void)sqlite3_reset(caller->call);
}

int sql_printf_register(sqlite3 *db)
{
	static const char *const names[] = { "printf", "format" };
	int r = SQLITE_OK;

	for (size_t i = 0; r == SQLITE_OK && i < ARRAY_SIZE(names); i++) {
		struct printf_caller *caller = g_new0(struct printf_caller, 1);

		r = sqlite3_open_v2(":memory:", &caller->db, SQLITE_OPEN_READWRITE, NULL);
		/* sqlite3_create_function_v2() frees `caller` even if it fails. */
		if (r == SQLITE_OK)
			r = sqlite3_create_function_v2(db, names[i], -1,
						       SQLITE_UTF8 | SQLITE_DETERMINISTIC, caller,
						       call_printf, NULL, NULL, caller_free);
		else
			caller_free(caller);
	}
	return r;
}
