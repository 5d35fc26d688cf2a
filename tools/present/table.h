/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Table - rows and columns as text, JSON, ndjson or CSV
 *
 * A query describes its result once: the number of rows, and a function that returns the cell of a
 * row and a field. Text has the columns added with table_add_column(); other formats have
 * `members`. Both refer to fields by numbers that the caller chooses. A cell without a value is
 * unknown ("-" in text, null or empty elsewhere) or does not apply to its row (empty in text).
 *
 * In text, numbers come first, right-aligned, then the name, then the place. If a row is too wide
 * for the terminal, template arguments are left out, then its place, then the scopes of its name;
 * numbers are never cut. Names that would become equal keep a part that differs. If names would
 * have fewer than 24 columns, the sparkline is left out, then all places. Rows are read twice, so
 * that they need not be stored.
 *
 * Text for a pipe is neither cut nor padded, so that a row does not depend on other rows: two
 * answers differ only in the lines of rows that differ, and cut(1) can split rows. Empty cells are
 * "0" or "-" there, so that each row has the same number of columns; only the place at the end may
 * be missing. A tree is a table whose names have a prefix: places directly follow the
 * names, each row is cut independently, and numbers are always padded, because otherwise the lines
 * of the tree would not meet.
 *                                                                    [test-present-table: *]
 */
#pragma once

#include "tools/common/json.h"

#include "tools/common/text.h"
#include <assert.h>

enum cell_kind {
	CELL_NONE, /* does not apply to the row */
	CELL_UNKNOWN,
	CELL_UINT,
	CELL_INT,
	CELL_DOUBLE,
	CELL_BOOL,
	CELL_TEXT,
	CELL_HEX,     /* a number as "0x1f" */
	CELL_SLICE,   /* text of `number` bytes */
	CELL_BYTES,   /* `number` bytes, as hexadecimal digits */
	CELL_WRITTEN, /* written by `write`; not in text */
	CELL_LIST,    /* strings; not in text */
};

struct cell {
	enum cell_kind kind;
	int format;      /* enum column_format, if it differs from the column's; or 0 */
	bool is_least;   /* the value is a lower bound */
	uint64_t number; /* value of CELL_UINT, CELL_INT (as int64_t), CELL_BOOL and CELL_HEX */
	/* text of CELL_TEXT (NULL: unknown), CELL_SLICE and CELL_BYTES; not escaped */
	const char *text;
	void *owned;  /* freed after use, usually the text */
	char *prefix; /* text: printed before the name, not escaped; freed after use; or NULL */
	const void *data;
	union {
		double real;             /* value of CELL_DOUBLE */
		const char *const *list; /* texts of CELL_LIST; NULL at the end */
		/* for CELL_WRITTEN: writes the member */
		void (*write)(struct json *json, const char *key, const void *data);
	};
};
/* A larger struct would be copied and cleared by slow instructions, for millions of cells. */
static_assert(sizeof(struct cell) <= 64, "size");

enum column_format {
	COLUMN_COUNT = 1, /* digits are grouped; 0 is empty */
	COLUMN_NUMBER,    /* not grouped: pids, lines, addresses */
	COLUMN_SIZE,      /* bytes, "2.15 MiB"; 0 is empty */
	COLUMN_DURATION,  /* ns, "618 us" */
	COLUMN_SECONDS,   /* ns, "0.76" */
	COLUMN_PERCENT,   /* 0 is empty */
	COLUMN_REAL,      /* rounded to three digits, or to a whole number */
	COLUMN_WORD,      /* short text */
	COLUMN_SPARKLINE, /* text of equal width in each row */
	COLUMN_NAME,      /* text that may be cut; at most one column */
	COLUMN_PLACE,     /* follows the name; must be the last column */
};

struct table_column {
	unsigned field;
	enum column_format format;
	const char *title; /* translated */
	bool is_signed;    /* numbers above 0 have a "+" */
};

/* A member of a row in JSON and ndjson, and a column in CSV. */
struct table_member {
	const char *key; /* NULL ends the list */
	unsigned field;
};

#define TABLE_MAX_COLUMNS 128

/* How to shorten escaped names to a number of columns. All return new strings, which may still be
 * too wide. */
struct table_fit {
	/* Removes what a reader misses least: template arguments. */
	char *(*arguments)(const char *name, unsigned columns);
	/* Removes scopes, too. */
	char *(*whole)(const char *name, unsigned columns);
	/* Shortens a name, but keeps a part that differs from another name. */
	char *(*apart)(const char *name, const char *other, unsigned columns);
};

struct table {
	size_t rows;
	/* Returns a cell that the caller frees by cell_done(). */
	struct cell (*get)(const void *data, size_t row, unsigned field);
	const void *data;
	const struct table_member *members;
	const char *key; /* key of the rows in JSON; NULL: "rows" */
	/* Writes further members of a row in JSON and ndjson. NULL: rows have no others. */
	void (*write)(const void *data, size_t row, struct json *json);
	/* Text only */
	bool is_coarse; /* shares have no decimals, because there are fewer than 1,000 samples */
	bool is_tree;   /* names may have prefixes */
	const struct table_fit *fit; /* NULL: cut the end of names */
	/* Returns whether to print a row in bold. NULL: no row is bold. */
	bool (*is_bold)(const void *data, size_t row);
	/* Returns a text for the rows from `shown` on, such as "11 more functions, 0.96 MiB"; NULL:
	 * print their number. */
	char *(*rest)(const void *data, size_t shown);
	struct table_column columns[TABLE_MAX_COLUMNS];
	unsigned n_columns;
};

/* How and where to print text. */
struct table_style {
	struct out *out;
	bool is_colored;
	unsigned columns; /* width of the terminal; 0: nothing is cut */
	bool is_padded;   /* pad numbers even if `columns` is 0: for whole names on a
			   * terminal, or for rows of source text */
};

/* Returns a number in the format of a column; a new string. */
char *table_number(enum column_format format, double value) MUST_CHECK;

void table_add_column(struct table *table, unsigned field, enum column_format format,
		      const char *title);
/* Prints the titles and the first `shown` rows; nothing if `shown` is 0. */
void table_print(const struct table *table, const struct table_style *style, size_t shown);
/* Writes the first `shown` rows, including rows_open() and rows_close(). */
void table_write(const struct table *table, struct json *json, enum json_format format,
		 size_t shown);
/* Writes the first `shown` rows as an array of objects, for answers with several tables. */
void table_write_array(const struct table *table, struct json *json, const char *key, size_t shown);
/* Write a cell as a member of the current object, and free the data that a cell owns. */
void cell_write(struct json *json, const char *key, const struct cell *cell);
void cell_done(struct cell *cell);
/* Writes the members of a row into the current object. */
void table_write_row(const struct table *table, struct json *json, size_t row);

static inline struct cell cell_uint(uint64_t number)
{
	return (struct cell){ .kind = CELL_UINT, .number = number };
}

static inline struct cell cell_int(int64_t number)
{
	return (struct cell){ .kind = CELL_INT, .number = (uint64_t)number };
}

static inline struct cell cell_double(double real)
{
	return (struct cell){ .kind = CELL_DOUBLE, .real = real };
}

static inline struct cell cell_bool(bool value)
{
	return (struct cell){ .kind = CELL_BOOL, .number = value };
}

/* Borrows the text. */
static inline struct cell cell_text(const char *text)
{
	return (struct cell){ .kind = text ? CELL_TEXT : CELL_UNKNOWN, .text = text };
}

/* Takes ownership of the text. */
static inline struct cell cell_own_text(char *text)
{
	return (struct cell){ .kind = CELL_TEXT, .text = text, .owned = text };
}

/* Takes ownership of the list, but not of its strings. */
static inline struct cell cell_own_list(const char **list)
{
	return (struct cell){ .kind = CELL_LIST, .list = list, .owned = list };
}

static inline struct cell cell_unknown(void)
{
	return (struct cell){ .kind = CELL_UNKNOWN };
}

static inline struct cell cell_none(void)
{
	return (struct cell){ .kind = CELL_NONE };
}

/* Takes ownership of the text. NULL: the cell does not apply to the row. */
static inline struct cell cell_own_or_none(char *text)
{
	return text ? cell_own_text(text) : cell_none();
}
