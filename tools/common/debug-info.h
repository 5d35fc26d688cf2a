/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Debug info - which function, inlined calls and source line an address of a file is, from its
 * DWARF
 *
 * A unit is flattened when an address of it is first asked for; from then on a lookup is two binary
 * searches. All that is handed out is owned by the debug_info and lasts until it is freed. One
 * thread at a time; different files on different threads.
 */
#pragma once

#include "tools/common/debug-files.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A function, or one inlined call of it. */
struct debug_info_function {
	const struct debug_info_function
		*caller;  /* that it is inlined into; NULL = it is not inlined */
	const char *name; /* the linker's name where there is one; NULL = unknown */
	/* where it is called, if inlined, else where it is declared; NULL = unknown */
	const char *file;
	uint32_t line;  /* 0 = unknown */
	uint32_t depth; /* in the tree of DIEs */
	uint64_t start; /* its first byte, which need not be where it is entered, */
	uint64_t end;   /* and behind its last; between them may be code of others */
	Dwarf_Off die;  /* read when its name is first asked for */
	uint32_t call_file;
	bool named;
	bool scattered; /* in several pieces */
};

/* What is the same for all addresses in [start, end). */
struct debug_info_place {
	uint64_t start, end;
	const struct debug_info_function *function; /* the innermost; NULL = unknown */
	const char *file;                           /* NULL = unknown */
	uint32_t line;                              /* 0 = unknown */
};

struct debug_info;

/* The file, which has DWARF, is borrowed, and no one else's meanwhile. */
struct debug_info *debug_info_new(const struct debug_file *file);
void debug_info_free(struct debug_info *info);

/* False where nothing is known of the address. */
bool debug_info_find(struct debug_info *info, uint64_t address, struct debug_info_place *ret_place);

/* Why answers may be missing: limits were met in at least one unit. */
bool debug_info_is_cut(const struct debug_info *info);
