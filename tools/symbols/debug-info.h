/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Debug info - finds the function, inlined calls and source line at an address, from a file's DWARF
 *
 * A unit is flattened when one of its addresses is first looked up; later lookups are two binary
 * searches. The debug_info owns all results, which are valid until it is freed. For one thread at a
 * time; other threads may read other files.
 */
#pragma once

#include "tools/symbols/debug-files.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A function, or one inlined call of a function. */
struct debug_info_function {
	/* the function into which it is inlined; NULL: not inlined */
	const struct debug_info_function *caller;
	const char *name; /* the linkage name, or else the plain name; NULL: unknown */
	/* its call site if inlined, else its declaration; NULL: unknown */
	const char *file;
	uint32_t line; /* 0 = unknown */
	/* if inlined: declaration of the function; NULL, 0: unknown */
	const char *declared_file;
	uint32_t declared_line;
	uint32_t depth; /* in the tree of DIEs */
	uint64_t start; /* lowest address, not necessarily the entry */
	uint64_t end;   /* end of the highest range; other functions' code may be in between */
	Dwarf_Off die;  /* offset of the DIE; its name is read when it is first needed */
	uint32_t call_file;
	bool named;
	bool scattered; /* the code is in several pieces */
};

/* The result for all addresses in [start, end). */
struct debug_info_place {
	uint64_t start, end;
	const struct debug_info_function *function; /* innermost function; NULL: unknown */
	const char *file;                           /* NULL = unknown */
	uint32_t line;                              /* 0 = unknown */
};

struct debug_info;

/* Borrows the file, which must have DWARF; nothing else may use it meanwhile. */
struct debug_info *debug_info_new(const struct debug_file *file);
void debug_info_free(struct debug_info *info);

/* Returns false if the DWARF has nothing about the address. */
bool debug_info_find(struct debug_info *info, uint64_t address, struct debug_info_place *ret_place);
