/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profcapture/sql-views.h"

#include "arch/base.h"

#include <glib.h>
#include <string.h>

/* For views: columns that describe the call in a row of `s`. Each column is a subquery, so that
 * SQLite looks up only the columns that are used. */
#define OF_CALL(id, column) "(SELECT c." column " FROM calls AS c WHERE c.id = s." id ")"
#define OF_FUNCTION(id, column)                                                                \
	"(SELECT f." column " FROM calls AS c CROSS JOIN functions AS f ON f.id = c.function " \
	"WHERE c.id = s." id ")"
#define PLACE_COLUMNS                                                        \
	OF_FUNCTION("call", "name")                                          \
	" AS function, " OF_FUNCTION("call", "image") " AS image, " OF_CALL( \
		"call", "file") " AS file, " OF_CALL("call", "line") " AS line, "
/* Builds a stack's text from the calls, because in a database file, the table of calls has no
 * column for it. */
#define STACK_QUERY(id)                                                                   \
	"(WITH RECURSIVE up(caller, text) AS (SELECT c.caller, f.name FROM calls AS c "   \
	"CROSS JOIN functions AS f ON f.id = c.function WHERE c.id = s." id " UNION ALL " \
	"SELECT above.caller, named.name || ';' || up.text FROM up "                      \
	"CROSS JOIN calls AS above ON above.id = up.caller "                              \
	"CROSS JOIN functions AS named ON named.id = above.function) "                    \
	"SELECT text FROM up WHERE caller IS NULL)"
/* clang-format off */
#define OF_WAKER(column) \
	"(SELECT t." column " FROM thread AS t WHERE t.epoch = s.epoch AND t.id = s.waker_thread)"
#define WAKER_COLUMNS \
	"s.waker, " OF_WAKER("pid") " AS waker_pid, " OF_WAKER("tid") " AS waker_tid, " \
	OF_WAKER("comm") " AS waker_comm, " \
	OF_FUNCTION("waker_call", "name") " AS waker_function, "
/* clang-format on */

/* CROSS JOIN prevents SQLite from changing the order of the tables. */
static const struct {
	const char *name, *before;
	const char *between; /* SQL after the text of the stack; NULL: the view has no stack */
	/* SQL after the text of the waker's stack; NULL: the view has no waker */
	const char *after;
} views[] = {
	{ "samples",
	  "SELECT s.time_ns, s.event, s.pid, s.tid, s.comm, s.exe, s.cpu, s.mode, "
	  "s.amount AS weight, " PLACE_COLUMNS,
	  " AS stack, s.call, s.fields FROM sample AS s" },
	{ "hot_functions",
	  "WITH RECURSIVE hit AS (SELECT event, call, sum(amount) AS weight FROM sample "
	  "GROUP BY event, call), "
	  "up(event, call, at, weight) AS (SELECT event, call, call, weight FROM hit UNION ALL "
	  "SELECT up.event, up.call, c.caller, up.weight FROM up "
	  "CROSS JOIN calls AS c ON c.id = up.at WHERE c.caller IS NOT NULL), "
	  "part AS (SELECT up.event, up.call, c.function, max(up.at = up.call) AS is_leaf, "
	  "up.weight FROM up CROSS JOIN calls AS c ON c.id = up.at GROUP BY 1, 2, 3) "
	  "SELECT p.event, f.name AS function, f.image, sum(p.weight * p.is_leaf) AS self, "
	  "sum(p.weight) AS total FROM part AS p CROSS JOIN functions AS f ON f.id = p.function "
	  "GROUP BY p.event, p.function ORDER BY self DESC, total DESC" },
	{ "allocations",
	  "SELECT s.time_ns, s.freed_ns, s.lifetime_ns, s.pid, s.tid, s.comm, s.exe, s.block, "
	  "s.size, s.blocks, s.bytes, s.ended, " PLACE_COLUMNS,
	  " AS stack, s.call FROM blocks AS s" },
	{ "waits",
	  "SELECT s.time_ns - s.duration AS time_ns, s.time_ns AS end_ns, "
	  "s.duration AS duration_ns, s.pid, s.tid, s.comm, s.exe, s.state, s.cpu, s.cause, " PLACE_COLUMNS,
	  " AS stack, s.call, s.syscall, s.object, " WAKER_COLUMNS,
	  " AS waker_stack, s.waker_call FROM wait AS s" },
	{ "counters", "SELECT v.time_ns, c.pid, c.\"group\", c.name, c.unit, c.kind, v.value "
		      "FROM counter_value AS v "
		      "CROSS JOIN counter AS c ON c.epoch = v.epoch AND c.id = v.counter" },
};

/* The view of waits in a capture without rows of the table `wait`: context switches show when
 * threads did not run. A UNION of waits and switches would make SQLite compute all columns of
 * each row. */
#define WAITS_BY_SWITCHES                                                                        \
	"SELECT *, NULL AS cause, NULL AS function, NULL AS image, NULL AS file, NULL AS line, " \
	"NULL AS stack, NULL AS call, NULL AS syscall, NULL AS object, NULL AS waker, "          \
	"NULL AS waker_pid, NULL AS waker_tid, NULL AS waker_comm, NULL AS waker_function, "     \
	"NULL AS waker_stack, NULL AS waker_call FROM thread_states WHERE state <> 'running'"

bool sql_views_has(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(views); i++)
		if (g_ascii_strcasecmp(name, views[i].name) == 0)
			return true;
	return false;
}

int sql_views_create(sqlite3 *db, const char *schema, bool has_stacks, bool has_waits)
{
	int r = SQLITE_OK;

	for (size_t i = 0; r == SQLITE_OK && i < ARRAY_SIZE(views); i++) {
		bool is_by_switches = strcmp(views[i].name, "waits") == 0 && !has_waits;
		GString *create = g_string_new("CREATE VIEW ");

		g_string_append_printf(create, "%s.%s AS %s", schema, views[i].name,
				       is_by_switches ? WAITS_BY_SWITCHES : views[i].before);
		if (views[i].between && !is_by_switches) {
			g_string_append(create, has_stacks ? OF_CALL("call", "stack")
							   : STACK_QUERY("call"));
			g_string_append(create, views[i].between);
		}
		if (views[i].after && !is_by_switches) {
			g_string_append(create, has_stacks ? OF_CALL("waker_call", "stack")
							   : STACK_QUERY("waker_call"));
			g_string_append(create, views[i].after);
		}
		r = sqlite3_exec(db, create->str, NULL, NULL, NULL);
		g_string_free(create, TRUE);
	}
	return r;
}
