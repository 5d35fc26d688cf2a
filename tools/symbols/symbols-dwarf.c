/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Symbols of DWARF - inlined calls and lines, and functions that are in no symbol table
 *
 * The outermost function keeps its name from a table. DWARF adds its declaration, the calls inlined
 * into it, and the sampled lines.
 */
#include "arch/base.h"
#include "tools/symbols/debug-info.h"
#include "tools/symbols/symbols-source.h"

#define MAX_INLINED 512

/*
 * Returns the row of the outermost function at a place. Adds it, unless a source other than
 * SYMBOLS_FROM_FDE has named the place. Other functions may lie between the pieces of a scattered
 * function, so its row is the piece that its call frame information describes, or else only the
 * range that has the place's line.
 */
static uint32_t outermost_row(struct symbols_query *query, const struct symbols_place *place,
			      const struct debug_info_function *function,
			      const struct debug_info_place *found)
{
	uint32_t known = query->result->row_of[place->index], row;
	struct elf_range piece = { found->start, found->end }, described;
	struct symbol symbol = {
		.raw_name = function->name,
		.file = function->file,
		.line = function->line,
		.inline_parent = SYMBOLS_NONE,
		.origin = SYMBOLS_FROM_DWARF,
	};

	if (known != SYMBOLS_NONE) {
		struct symbol *of_table = g_ptr_array_index(query->rows, known);

		if (of_table->origin == SYMBOLS_FROM_PLT)
			return known;
		if (of_table->origin == SYMBOLS_FROM_TABLE && !of_table->file) {
			of_table->file = symbols_query_add_text(query, function->file);
			of_table->line = of_table->file ? function->line : 0;
		}
		if (of_table->origin != SYMBOLS_FROM_FDE)
			return known;
	}
	if (elf_frames_get(symbols_query_frames(query), place->address, &described))
		piece = described;
	else if (!function->scattered)
		piece = (struct elf_range){ function->start, function->end };
	if (place->address < piece.start || place->address >= piece.end ||
	    !elf_image_get_offset(query->elf, piece.start, &symbol.start) ||
	    symbol.start + (place->address - piece.start) != query->offsets[place->index])
		return known;
	symbol.length = piece.end - piece.start;
	row = symbols_query_add_row(query, &symbol);
	if (row == SYMBOLS_NONE)
		return known;
	query->result->row_of[place->index] = row;
	return row;
}

/* Adds the functions around a place. Returns the row of the innermost one. */
static uint32_t innermost_row(struct symbols_query *query, const struct symbols_place *place,
			      const struct debug_info_place *found)
{
	const struct debug_info_function *chain[MAX_INLINED], *function = found->function;
	size_t n = 0;
	uint32_t row, depth = 0;

	for (; function && function->caller && n < MAX_INLINED; function = function->caller)
		chain[n++] = function;
	if (!function || function->caller)
		return query->result->row_of[place->index];
	row = outermost_row(query, place, function, found);
	while (n-- > 0 && row != SYMBOLS_NONE) {
		struct symbol symbol = {
			.length = chain[n]->end - chain[n]->start,
			.raw_name = chain[n]->name,
			.file = chain[n]->file,
			.line = chain[n]->line,
			.declared_file = chain[n]->declared_file,
			.declared_line = chain[n]->declared_line,
			.inline_parent = row,
			.inline_depth = depth + 1,
			.origin = SYMBOLS_FROM_DWARF,
		};
		uint32_t inner = SYMBOLS_NONE;

		if (elf_image_get_offset(query->elf, chain[n]->start, &symbol.start))
			inner = symbols_query_add_row(query, &symbol);
		if (inner == SYMBOLS_NONE)
			continue;
		row = inner;
		depth++;
	}
	return row;
}

/* Adds the line of a place, as a range of file offsets. The range stays inside the function already
 * known at the place (if any) and its code segment, and after the previous line. */
static void add_line(struct symbols_query *query, const struct symbols_place *place,
		     const struct debug_info_place *found, const struct symbol_line *last)
{
	uint64_t offset = query->offsets[place->index], before = place->address - found->start,
		 behind = found->end - place->address;
	uint32_t function = query->result->row_of[place->index];
	struct symbol_line line = {
		.file = symbols_query_add_text(query, found->file),
		.line = found->line,
		.symbol = innermost_row(query, place, found),
	};
	struct elf_range code;

	if (function != SYMBOLS_NONE) {
		const struct symbol *row = g_ptr_array_index(query->rows, function);

		before = MIN_OF(before, offset - row->start);
		behind = MIN_OF(behind, row->start + row->length - offset);
	}
	if (elf_image_get_code(query->elf, place->address, &code)) {
		before = MIN_OF(before, place->address - code.start);
		behind = MIN_OF(behind, code.end - place->address);
	}
	before = MIN_OF(before, offset);
	if (last)
		before = MIN_OF(before, offset - (last->start + last->length));
	line.start = offset - before;
	line.length = offset - line.start + behind;
	g_array_append_val(query->lines, line);
}

void symbols_dwarf_read(struct symbols_query *query)
{
	struct debug_info *info = debug_info_new(query->debug);

	symbols_query_list_places(query, true);
	for (size_t i = 0; i < query->n_places; i++) {
		const struct symbols_place *place = &query->places[i];
		const struct symbol_line *last =
			query->lines->len ? &g_array_index(query->lines, struct symbol_line,
							   query->lines->len - 1)
					  : NULL;
		struct debug_info_place found;

		if (last && query->offsets[place->index] - last->start < last->length) {
			const struct symbols_place *before = &query->places[i - 1];

			if (query->result->row_of[place->index] == SYMBOLS_NONE)
				query->result->row_of[place->index] =
					query->result->row_of[before->index];
			continue;
		}
		if (debug_info_find(info, place->address, &found))
			add_line(query, place, &found, last);
	}
	debug_info_free(info);
}
