/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Symbol-rows - the functions, lines and inlined calls that a capture carries, by image
 *
 * They may be in other epochs than the frames that they explain (they are appended after a
 * recording); the image's identity (names.h) connects the two. Immutable once loaded, except for an
 * index of names. For one thread.
 */
#pragma once

#include "tools/symbols/names.h"

/* Deeper chains of inlined calls are cut: the calls nearest to the function are dropped. */
#define SYMBOL_ROWS_MAX_CALLS 512

struct symbol_row {
	uint64_t start, length; /* in the offsets of frames; length 0 = up to the next symbol */
	const char *name;       /* interned, without clone suffixes; never NULL */
	const char *raw_name;   /* interned; never NULL */
	const char *file;       /* NULL = unknown */
	uint32_t line;          /* 0 = unknown */
	uint32_t user;          /* free for the caller, 0 at first */
};

/* A call that is inlined into a function, or into another call. */
struct line_call {
	const char *name;     /* interned; never NULL */
	const char *raw_name; /* interned; never NULL */
	const char *file;     /* of the call site; NULL = unknown */
	uint32_t line;        /* 0 = unknown */
	uint32_t parent; /* number of the call that it is inlined into; 0 = into the function */
	uint32_t depth;  /* of the chain of parents with itself: at most SYMBOL_ROWS_MAX_CALLS */
	uint64_t start;  /* in the offsets of frames */
};

/* A stretch of code that was hit. */
struct line_row {
	uint64_t start, length; /* in the offsets of frames */
	const char *file;       /* NULL = unknown */
	uint32_t line;          /* 0 = unknown */
	uint32_t call;          /* number of the innermost inlined call; 0 = none */
};

struct symbol_rows;

/* Reads every symbol and line of the capture. */
struct symbol_rows *symbol_rows_load(struct names *names, GError **error);
void symbol_rows_free(struct symbol_rows *rows);
/* Returns whether the image has functions. */
bool symbol_rows_any(const struct symbol_rows *rows, uint32_t image);
/* Returns the innermost function of the image that holds the offset, or NULL. */
struct symbol_row *symbol_rows_find(const struct symbol_rows *rows, uint32_t image,
				    uint64_t offset);
/* Returns the function of the image that has the interned name, ignoring clones. NULL if there are
 * none or several. */
struct symbol_row *symbol_rows_named(const struct symbol_rows *rows, uint32_t image,
				     const char *name);
/* Returns the line of an offset, or NULL. */
const struct line_row *symbol_rows_line(const struct symbol_rows *rows, uint32_t image,
					uint64_t offset);
/* Returns a call by its number, which is not 0. */
const struct line_call *symbol_rows_call(const struct symbol_rows *rows, uint32_t number);
