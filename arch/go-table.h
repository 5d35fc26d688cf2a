/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Go table - .gopclntab: the functions of a Go program, their names and how far they move the stack
 * pointer
 *
 * Go's runtime prints its stack traces with it, so it exists even if everything else was stripped
 * (`go build -ldflags="-s -w"`). Allocates nothing; any number of threads may use a table, and its
 * bytes must not move. Sources: Go's src/runtime/symtab.go, src/internal/abi/symtab.go and
 * src/debug/gosym/pclntab.go: the layouts of Go 1.2 to 1.15, 1.16 and 1.17, 1.18 and 1.19, and
 * since 1.20.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct go_table {
	const uint8_t *bytes;
	size_t size;
	uint8_t word;     /* bytes of a pointer */
	uint8_t quantum;  /* bytes that all instructions are multiples of */
	uint8_t number;   /* bytes of a start, and of the offset of a record */
	uint8_t flags_at; /* in a record; 0: none */
	/* offset of {start, offset of the record} pairs by start; a last start ends the last
	 * function */
	size_t functions;
	size_t names, numbers; /* offsets that those in a record are relative to */
	uint64_t n_functions;
	uint64_t text; /* address that starts are relative to */
};

struct go_function {
	uint64_t start, end; /* addresses; start < end */
	size_t record;       /* offset */
};

/* A range of a function's code, and the distance of sp there from its value at the function's
 * entry. */
struct go_row {
	uint64_t start, end;
	int64_t distance; /* bytes */
};

struct go_rows {
	const struct go_table *table;
	struct go_function function;
	size_t at;
	uint64_t pc;
	int64_t distance;
};

/*
 * Reads the header of a section. Returns false if it is not a table. A position-independent file
 * has 0 for ret_table->text, and a relocation that writes it: *ret_text_at is the offset of that
 * word in the section (0: the layout has none).
 */
bool go_table_init(struct go_table *ret_table, const uint8_t *bytes, size_t size,
		   size_t *ret_text_at);
/* Returns the addend of the relocation at `address` in the bytes of a .rela.dyn; false if there is
 * no such relocation. */
bool go_table_relocate(const uint8_t *relocations, size_t size, uint64_t address,
		       uint64_t *ret_value);

/* Requires i < n_functions. Returns false if the table is damaged there. */
bool go_table_get(const struct go_table *table, uint64_t i, struct go_function *ret_function);
bool go_table_find(const struct go_table *table, uint64_t address,
		   struct go_function *ret_function);
/* Returns NULL if the function has no name. */
const char *go_table_name(const struct go_table *table, const struct go_function *function);
/* Returns whether a stack ends at this function, because nothing calls it (runtime.goexit). */
bool go_table_is_outermost(const struct go_table *table, const struct go_function *function);

void go_rows_init(struct go_rows *ret_rows, const struct go_table *table,
		  const struct go_function *function);
bool go_rows_next(struct go_rows *rows, struct go_row *ret_row);
