/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Symbol rows - the functions, lines and inlined calls in a capture, by image
 *
 * These rows may be in other epochs than the frames that they name, because they are appended after
 * a recording; the image's identity (names.h) connects the two. Immutable once loaded, except for
 * an index of names. For one thread.
 */
#pragma once

#include "tools/symbols/names.h"

/* Deeper chains of inlined calls are cut: the calls closest to the function are dropped. */
#define SYMBOL_ROWS_MAX_CALLS 512

/* `start` is an offset in the image, like that of a frame. */
struct symbol_row {
	uint64_t start, length; /* length 0: up to the next symbol */
	const char *name;       /* interned, without clone suffixes; never NULL */
	const char *raw_name;   /* interned; never NULL */
	const char *file;       /* NULL = unknown */
	uint32_t line;          /* 0 = unknown */
	uint32_t user;          /* free for the caller's use; initially 0 */
};

/* A call that was inlined into a function, or into another call. */
struct line_call {
	const char *name;          /* interned; never NULL */
	const char *raw_name;      /* interned; never NULL */
	const char *file;          /* file of the call site; NULL: unknown */
	uint32_t line;             /* 0 = unknown */
	const char *declared_file; /* file of the function's declaration; NULL: unknown */
	uint32_t declared_line;    /* 0 = unknown */
	uint32_t parent; /* number of the call into which it is inlined; 0: into the function */
	/* length of the chain of parents, including this call, at most SYMBOL_ROWS_MAX_CALLS */
	uint32_t depth;
	uint64_t start; /* offset in the image, like that of a frame */
};

/* A range of sampled code. */
struct line_row {
	uint64_t start, length; /* start: offset in the image, like that of a frame */
	const char *file;       /* NULL = unknown */
	uint32_t line;          /* 0 = unknown */
	uint32_t call;          /* number of the innermost inlined call; 0 = none */
};

struct symbol_rows;

/* Reads all symbols and lines of the capture. */
struct symbol_rows *symbol_rows_load(struct names *names, GError **error);
void symbol_rows_free(struct symbol_rows *rows);
/* Returns whether the image has functions. */
bool symbol_rows_any(const struct symbol_rows *rows, uint32_t image);
/* Returns the innermost function of the image that contains the offset, or NULL. */
struct symbol_row *symbol_rows_find(const struct symbol_rows *rows, uint32_t image,
				    uint64_t offset);
/* Returns the image's function with this interned name, ignoring clones. Returns NULL if there is
 * none, or more than one. */
struct symbol_row *symbol_rows_named(const struct symbol_rows *rows, uint32_t image,
				     const char *name);
const struct line_row *symbol_rows_line(const struct symbol_rows *rows, uint32_t image,
					uint64_t offset);
/* Returns a call by its number, which must not be 0. */
const struct line_call *symbol_rows_call(const struct symbol_rows *rows, uint32_t number);
