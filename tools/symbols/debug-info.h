/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Debug info - which function, inlined calls and source line an address of a file is, from its
 * DWARF
 *
 * A unit is flattened when one of its addresses is first looked up; later lookups are two binary
 * searches. The debug_info owns all results, which last until it is freed. One thread at a time;
 * different files on different threads.
 */
#pragma once

#include "tools/symbols/debug-files.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A function, or one inlined call of it. */
struct debug_info_function {
	const struct debug_info_function
		*caller;  /* the function that it is inlined into; NULL = not inlined */
	const char *name; /* the linkage name if there is one; NULL = unknown */
	/* its call site if inlined, else its declaration; NULL = unknown */
	const char *file;
	uint32_t line;  /* 0 = unknown */
	uint32_t depth; /* in the tree of DIEs */
	uint64_t start; /* its first byte, not necessarily its entry */
	uint64_t end;   /* after its last byte; code of others may be in between */
	Dwarf_Off die;  /* read when the name is first needed */
	uint32_t call_file;
	bool named;
	bool scattered; /* in several pieces */
};

/* The answer for all addresses in [start, end). */
struct debug_info_place {
	uint64_t start, end;
	const struct debug_info_function *function; /* the innermost; NULL = unknown */
	const char *file;                           /* NULL = unknown */
	uint32_t line;                              /* 0 = unknown */
};

struct debug_info;

/* Borrows the file, which has DWARF; nobody else may use it meanwhile. */
struct debug_info *debug_info_new(const struct debug_file *file);
void debug_info_free(struct debug_info *info);

/* Returns false if nothing is known about the address. */
bool debug_info_find(struct debug_info *info, uint64_t address, struct debug_info_place *ret_place);
