/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Json - streaming writer of JSON, ndjson and CSV
 *
 * Only the nesting is kept in memory, so a capture of any size can be written. A value that ends at
 * the top level ends its line, so ndjson is a sequence of top-level objects. Inside an object every
 * value has a key; inside an array and at the top level the key is NULL. Bytes that are not UTF-8
 * become U+FFFD. Write errors stay in struct out.
 *
 * Rows: the same calls write a row in each of the three formats.
 *
 *     rows_open(json, format, columns);    JSON: begins the array "rows" in the open object
 *     for (…) {
 *             rows_begin(json);
 *             json_string(json, "name", name);
 *             json_uint(json, "count", count);
 *             rows_end(json);
 *     }
 *     rows_close(json);
 *
 * In CSV the header is `columns`, and a value goes to the column of its key. Null, and columns that
 * a row does not set, are empty. Arrays and objects inside a row are JSON in their cell. In ndjson
 * and CSV the caller is at the top level, and itself writes anything before the rows (ndjson: the
 * envelope without data).
 */
#pragma once

#include "tools/common/out.h"

enum json_format { JSON_FORMAT_JSON, JSON_FORMAT_NDJSON, JSON_FORMAT_CSV };

/* A CSV cell, whose text is in `row`. */
struct json_cell {
	size_t start, length;
	bool is_plain; /* needs no quotes */
};

struct json {
	struct out *out;
	GString *nesting; /* a byte per level: '{' or '[', 0x80 set after its first element */
	enum json_format rows;
	const char *const *columns; /* CSV: columns of the open rows, else NULL */
	struct json_cell *cells;    /* cells of the row that is being written, one per column */
	GString *row;               /* the texts of the cells */
	unsigned n_columns, next_column;
	struct json_cell *cell; /* the cell that is being written, NULL outside of CSV rows */
	bool is_terminal;       /* `out` writes to a terminal */
};

void json_init(struct json *json, struct out *out);
void json_done(struct json *json);

void json_begin_object(struct json *json, const char *key);
void json_begin_array(struct json *json, const char *key);
/* Ends the innermost object or array. */
void json_end(struct json *json);

void json_string(struct json *json, const char *key, const char *value); /* NULL: null */
void json_string_n(struct json *json, const char *key, const char *value, size_t length);
void json_uint(struct json *json, const char *key, uint64_t value);
/* Writes null unless the value is known. */
void json_uint_if(struct json *json, const char *key, bool is_known, uint64_t value);
void json_int(struct json *json, const char *key, int64_t value);
/* Writes 15 to 17 significant digits, so that the text reads back as the same number; null if it is
 * not finite. */
void json_double(struct json *json, const char *key, double value);
void json_bool(struct json *json, const char *key, bool value);
void json_null(struct json *json, const char *key);
/* Writes a hexadecimal string, such as "0x1f", for addresses and offsets. */
void json_hex(struct json *json, const char *key, uint64_t value);
/* Writes hexadecimal digits, such as "1f8b…", for build-ids; null if length is 0. */
void json_hex_bytes(struct json *json, const char *key, const void *bytes, size_t length);
/* Writes `text`, which must be JSON. */
void json_raw(struct json *json, const char *key, const char *text);
/* Writes an array of strings; null for NULL. */
void json_strings(struct json *json, const char *key, const char *const *values);

/* These begin and end an answer of profctl: an object with the name of its schema and the object
 * "data", into which the caller writes. */
void json_begin_envelope(struct json *json, const char *schema);
void json_end_envelope(struct json *json);

/* `columns` ends with NULL. It is borrowed until rows_close(); only CSV uses it. */
void rows_open(struct json *json, enum json_format format, const char *const *columns);
/* Like rows_open(), with another name for the array. */
void rows_open_as(struct json *json, enum json_format format, const char *key,
		  const char *const *columns);
void rows_begin(struct json *json);
void rows_end(struct json *json);
void rows_close(struct json *json);
