/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Line-rows - the lines and inlined calls that a capture carries, by image
 *
 * Like symbols (symbol-rows.h), they may be in other epochs than the frames that they explain.
 * Immutable once loaded.
 */
#pragma once

#include "tools/common/names.h"

/* Deeper chains are cut: the calls nearest to the function are dropped. */
#define LINE_ROWS_MAX_CALLS 512

/* A call that is inlined into a function, or into another call. */
struct line_call {
	const char *name;     /* interned; never NULL */
	const char *raw_name; /* interned; never NULL */
	const char *file;     /* of the call site; NULL = unknown */
	uint32_t line;        /* 0 = unknown */
	uint32_t parent; /* number of the call that it is inlined into; 0 = into the function */
	uint32_t depth; /* of the chain of parents, including itself: at most LINE_ROWS_MAX_CALLS */
	uint64_t start; /* in the offsets of frames */
};

/* A stretch of code that was hit. */
struct line_row {
	uint64_t start, length; /* in the offsets of frames */
	const char *file;       /* NULL = unknown */
	uint32_t line;          /* 0 = unknown */
	uint32_t call;          /* number of the innermost inlined call; 0 = none */
};

struct line_rows;

/* Reads all lines of the capture. */
struct line_rows *line_rows_load(struct names *names, GError **error);
void line_rows_free(struct line_rows *rows);
/* Returns the line of an offset, or NULL. */
const struct line_row *line_rows_find(const struct line_rows *rows, uint32_t image,
				      uint64_t offset);
/* `number` is not 0. */
const struct line_call *line_rows_call(const struct line_rows *rows, uint32_t number);
