/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Firefox - what the files of the Firefox Profiler's format share: the profile (export-firefox.c),
 * and its content (firefox-*.c)
 *
 * Columns are JSON arrays, one for each field of a table. Texts are indexes in shared.stringArray,
 * which is written last.
 */
#pragma once

#include "tools/profcapture/export.h"

enum { FIREFOX_OTHER, FIREFOX_USER, FIREFOX_KERNEL, FIREFOX_JIT };

struct firefox {
	struct export *export;
	struct json json;
	GHashTable *index;   /* text → index + 1 */
	GPtrArray *strings;  /* as in the capture */
	GArray *functions;   /* uint32_t: functions that have a row in the table of functions */
	GArray *function_of; /* uint32_t: that row, by function */
	GArray *resources;   /* uint32_t: image of names, by resource */
	GArray *resource_of; /* uint32_t: resource + 1, by image; 0 = none */
	GArray *threads;     /* uint32_t: index of names, by thread of the profile; at least one */
	GPtrArray *marks;    /* GArray of marks, by thread of names; NULL = none */
	struct firefox_counters *counters;
	/* uint32_t: index of its first allocation + 1, by thread of names; 0 = none */
	GArray *first_event;
};

uint64_t firefox_string(struct firefox *firefox, const char *text);
void firefox_ms(struct json *json, const char *key, int64_t ns);
/* Writes the time between two, which a damaged file may place further apart than an int64_t
 * holds. */
void firefox_ms_between(struct json *json, int64_t before_ns, int64_t ns);
/* Write a column with the same value in every row, or with nulls. */
void firefox_constant(struct json *json, const char *key, size_t n, int64_t value);
void firefox_nulls(struct json *json, const char *key, size_t n);
/* Returns the last part of a path, or "-". */
const char *firefox_base_name(const char *path);

/* firefox-tables.c: what all threads share. List the rows of each table before anything is
 * written. */
void firefox_list_rows(struct firefox *firefox);
void firefox_write_libraries(struct firefox *firefox);
/* Call it last, because everything written before may add strings. */
void firefox_write_shared(struct firefox *firefox);

/* firefox-marks.c */
bool firefox_read_marks(struct firefox *firefox, GError **error);
void firefox_free_marks(struct firefox *firefox);
void firefox_write_mark_schema(struct json *json);
/* Writes the marks of a thread. */
void firefox_write_marks(struct firefox *firefox, uint32_t thread);
/* firefox-allocations.c: by the thread that allocated. Sort them before anything is written. */
void firefox_sort_allocations(struct firefox *firefox);
bool firefox_has_allocations(const struct firefox *firefox, uint32_t thread);
void firefox_write_allocations(struct firefox *firefox, uint32_t thread);

/* firefox-counters.c */
bool firefox_read_counters(struct firefox *firefox, GError **error);
void firefox_free_counters(struct firefox *firefox);
void firefox_write_counters(struct firefox *firefox);

static inline bool firefox_has_marks(const struct firefox *firefox, uint32_t thread)
{
	return thread < firefox->marks->len && firefox->marks->pdata[thread];
}
