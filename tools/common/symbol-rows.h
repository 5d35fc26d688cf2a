/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Symbol-rows - the symbols that a capture carries, by image
 *
 * Symbols may be in other epochs than the frames that they explain (they are appended after a
 * recording); the image's identity (names.h) connects the two. Immutable once loaded, except for an
 * index of names. For one thread.
 */
#pragma once

#include "tools/common/names.h"

struct symbol_row {
	uint64_t start, length; /* in the offsets of frames; length 0 = up to the next symbol */
	const char *name;       /* interned, without clone suffixes; never NULL */
	const char *raw_name;   /* interned; never NULL */
	const char *file;       /* NULL = unknown */
	uint32_t line;          /* 0 = unknown */
	uint32_t user;          /* free for the caller, 0 at first */
};

struct symbol_rows;

/* Reads every symbol of the capture except inlined ones. */
struct symbol_rows *symbol_rows_load(struct names *names, GError **error);
void symbol_rows_free(struct symbol_rows *rows);
/* Returns whether the image has symbols. */
bool symbol_rows_any(const struct symbol_rows *rows, uint32_t image);
/* Returns the innermost symbol of the image that holds the offset, or NULL. */
struct symbol_row *symbol_rows_find(const struct symbol_rows *rows, uint32_t image,
				    uint64_t offset);
/* Returns the symbol of the image that has the interned name, ignoring clones. NULL if there are
 * none or several. */
struct symbol_row *symbol_rows_named(const struct symbol_rows *rows, uint32_t image,
				     const char *name);
