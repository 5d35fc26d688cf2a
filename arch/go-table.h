/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Go table - .gopclntab: a Go program's functions, their names, and how they move the stack pointer
 *
 * Go's runtime uses it to print stack traces, so it exists even if everything else was stripped
 * (`go build -ldflags="-s -w"`). Allocates nothing. Any number of threads may use a table, whose
 * bytes must not move. Sources: Go's src/runtime/symtab.go, src/internal/abi/symtab.go and
 * src/debug/gosym/pclntab.go. Supports the layouts of Go 1.2 to 1.15, 1.16 and 1.17, 1.18 and 1.19,
 * and from 1.20 on.
 */
#pragma once

#include "base/bytes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct go_table {
	const uint8_t *bytes;
	size_t size;
	uint8_t word;     /* size of a pointer in bytes */
	uint8_t quantum;  /* lengths of instructions are multiples of this */
	uint8_t number;   /* size in bytes of a start, and of a record offset */
	uint8_t flags_at; /* offset of the flags in a record; 0: none */
	/* offset of the {start, record offset} pairs, sorted by start; one more start follows
	 * them */
	size_t functions;
	size_t names, numbers; /* bases of the offsets in a record */
	uint64_t n_functions;
	uint64_t text; /* address to which starts are relative */
};

struct go_function {
	uint64_t start, end; /* addresses; start < end */
	size_t record;       /* offset of the record */
};

/* A range of a function's code. `distance`: sp at the function's entry minus sp in this range. */
struct go_row {
	uint64_t start, end;
	int64_t distance; /* bytes */
};

struct go_rows {
	const struct go_table *table;
	struct go_function function;
	struct byte_reader distances; /* the encoded rows that remain */
	uint64_t pc;
	int64_t distance;
};

/*
 * Reads the header of a section. Returns false if it is not a table. *ret_text_at: offset of the
 * word of the section that has ret_table->text; 0: the layout has no such word. In a
 * position-independent file the word is 0, and a relocation sets it.
 */
bool go_table_init(struct go_table *ret_table, const uint8_t *bytes, size_t size,
		   size_t *ret_text_at);
/* Finds the relocation at `address` in a .rela.dyn, and returns its addend. Returns false if no
 * relocation is there. */
bool go_table_relocate(const uint8_t *relocations, size_t size, uint64_t address,
		       uint64_t *ret_value);

/* Requires i < n_functions. Returns false if entry i is damaged. */
bool go_table_get(const struct go_table *table, uint64_t i, struct go_function *ret_function);
bool go_table_find(const struct go_table *table, uint64_t address,
		   struct go_function *ret_function);
/* Returns NULL if the function has no name. */
const char *go_table_name(const struct go_table *table, const struct go_function *function);
/* Returns whether stacks end at this function, because no function calls it (runtime.goexit). */
bool go_table_is_outermost(const struct go_table *table, const struct go_function *function);

void go_rows_init(struct go_rows *ret_rows, const struct go_table *table,
		  const struct go_function *function);
bool go_rows_next(struct go_rows *rows, struct go_row *ret_row);
