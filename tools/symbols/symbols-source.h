/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Symbol source - what symbols.c and the sources of names share
 *
 * A query is one call of symbols_read(). The sources are asked in the order of the table in
 * symbols.c; each sees only the places that the earlier ones left without a name.
 */
#pragma once

#include "tools/symbols/elf-frames.h"
#include "tools/symbols/elf-image.h"
#include "tools/symbols/symbols.h"

/* A place without a name: its ELF address and its position in the caller's offsets. */
struct symbols_place {
	uint64_t address;
	uint32_t index;
};

struct symbols_query {
	const struct symbols_image *image;
	const uint64_t *offsets;
	struct elf_image *elf;
	struct debug_file *debug;     /* the separate debug file and its DWARF; NULL = none */
	struct elf_image *packed;     /* the symbols in .gnu_debugdata; NULL = none */
	struct elf_frames *frames;    /* set by symbols_query_frames() */
	struct symbols_place *places; /* by address */
	size_t n_places;
	struct symbols *result;
	GPtrArray *rows;        /* struct symbol, in the order found */
	GHashTable *row_by_key; /* row -> its number + 1 */
	GArray *lines;          /* struct symbol_line */
};

/* Sources: name places. */
void symbols_elf_read(struct symbols_query *query);
void symbols_plt_read(struct symbols_query *query);

/* Lists the places of all offsets, or of those that have no name yet. */
void symbols_query_list_places(struct symbols_query *query, bool all);

/*
 * Names a place: [start, end) in ELF addresses, at least the place itself. Copies `raw_name`. A
 * name that is empty, not UTF-8 or has control characters is refused, and the place stays open for
 * the next source.
 */
void symbols_query_add(struct symbols_query *query, const struct symbols_place *place,
		       uint64_t start, uint64_t end, const char *raw_name,
		       enum symbols_origin origin);

/*
 * Returns the number of a row, which is added if it is new; SYMBOLS_NONE if its name is refused.
 * Copies `raw_name` and `file`; `name` may be NULL.
 */
uint32_t symbols_query_add_row(struct symbols_query *query, const struct symbol *symbol);

/* Returns an interned copy of the text; NULL if it is NULL or not valid text. */
const char *symbols_query_add_text(struct symbols_query *query, const char *text);

/* Reads the DWARF of all offsets, after the sources. */
void symbols_dwarf_read(struct symbols_query *query);

/* Returns the call frame information of the image, never NULL; it is read on first use. */
struct elf_frames *symbols_query_frames(struct symbols_query *query);

/* Returns a memfd with a copy of this process's own vdso; -1 if it has none. */
int symbols_vdso_open(void);
