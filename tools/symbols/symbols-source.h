/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Symbol source - shared by symbols.c and the sources of names
 *
 * A query is one call of symbols_read(). The sources are queried in the order of the table in
 * symbols.c; each gets only the places that earlier ones left without a name.
 */
#pragma once

#include "tools/symbols/elf-frames.h"
#include "tools/symbols/elf-image.h"
#include "tools/symbols/symbols.h"

/* A place whose name or line is wanted: its ELF address, and its index in the caller's offsets. */
struct symbols_place {
	uint64_t address;
	uint32_t index;
};

struct symbols_query {
	const struct symbols_image *image;
	const uint64_t *offsets;
	struct elf_image *elf;
	struct debug_file *debug;     /* separate debug file and its DWARF; NULL: none */
	struct elf_image *packed;     /* symbols in .gnu_debugdata; NULL: none */
	struct elf_frames *frames;    /* set by symbols_query_frames() */
	struct symbols_place *places; /* sorted by address */
	size_t n_places;
	struct symbols *result;
	GPtrArray *rows;        /* struct symbol, in the order found */
	GHashTable *row_by_key; /* row → its index + 1 */
	GArray *lines;          /* struct symbol_line */
};

/* Sources of names. */
void symbols_elf_read(struct symbols_query *query);
void symbols_plt_read(struct symbols_query *query);

/* Lists the places of all offsets, or of those that have no name yet. */
void symbols_query_list_places(struct symbols_query *query, bool all);

/*
 * Names a place, unless it is outside of the ELF addresses [start, end), or in another segment than
 * `start`. Copies `raw_name`, with bytes that are not printable escaped. An empty name leaves the
 * place for the next source.
 */
void symbols_query_add(struct symbols_query *query, const struct symbols_place *place,
		       uint64_t start, uint64_t end, const char *raw_name,
		       enum symbols_origin origin);

/* Returns the index of a row, which is added if it is new. Returns SYMBOLS_NONE if its raw_name is
 * NULL or empty. Copies the texts; sets `name`. */
uint32_t symbols_query_add_row(struct symbols_query *query, const struct symbol *symbol);

/* Returns an interned copy of the text, or NULL if it is NULL or empty. */
const char *symbols_query_add_text(struct symbols_query *query, const char *text);

/* Reads the DWARF of all offsets. Call this after the sources. */
void symbols_dwarf_read(struct symbols_query *query);

/* Returns the call frame information of the image; never NULL. Reads it on first use. */
struct elf_frames *symbols_query_frames(struct symbols_query *query);

/* Returns a memfd with a copy of this process's own vdso, or -1 if the process has no vdso
 * or the copy fails. */
int symbols_vdso_open(void);
