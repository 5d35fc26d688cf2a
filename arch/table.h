/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Table - all the CFI of a file, compiled for looking up
 *
 * A table is one block of bytes without pointers: it can be kept, mapped, and shared. Addresses are
 * those of the file's ELF header, so one table serves every process that has the file mapped. See
 * table.c for the layout.
 */
#pragma once

#include "arch/base.h"
#include "arch/cfi.h"

#define TABLE_MAX_SPAN (UINT64_C(1) << 32) /* of code in one file: no code model reaches further */
#define TABLE_MAX_RULES (1u << 20)         /* 4 112 were counted in 1 352 files together */

/*
 * What a table is built in. resize() is realloc() told the old size; NULL means that there is no
 * memory, and a new size of 0 frees and returns NULL. Blocks are aligned to 16 bytes.
 */
struct table_memory {
	void *(*resize)(void *data, void *block, size_t old_bytes, size_t new_bytes);
	void *data;
};

struct table_source {
	/* Where two sections have an FDE for the same start, the first section's counts. At
	 * least one. */
	const struct cfi_section *sections;
	size_t n_sections;
	uint64_t low, high; /* the file's code; what lies outside is left out */
	uint64_t max_bytes; /* of memory while building; 0: no limit */
};

/* A table that was checked, and where its parts are. Embed it; the bytes stay the caller's. */
struct table {
	const uint32_t *pages; /* the first row of each page, and one more */
	const uint16_t *rows;  /* where rows begin, within their page */
	const void *ids;       /* the rule of each row: uint16_t, or uint32_t in a wide table */
	const struct cfi_rule *rules;
	uint64_t base;
	uint32_t n_pages, n_rows, n_rules;
	bool is_wide;
	enum regs_arch arch;
};

/*
 * Compiles. Returns 0; -ENOMEM; -E2BIG where the code spans more than TABLE_MAX_SPAN, has more
 * rules than TABLE_MAX_RULES, or needs more than max_bytes; -ENODATA where no FDE is inside of
 * [low, high). On success the block at *ret_bytes came from `memory` and is the caller's to free;
 * on failure nothing is left. Allocates only through `memory`; async-signal-safe where that is.
 * Takes 12 KiB of stack. Time is linear in the sections.
 */
MUST_CHECK int table_build(const struct table_source *source, const struct table_memory *memory,
			   void **ret_bytes, size_t *ret_size);

/*
 * Looks at bytes from anywhere: 0, or -EBADMSG where they are no table; then no address makes
 * table_get() read outside of them, or return a rule with a kind that does not exist. `bytes` is
 * aligned to 16, and must not change afterwards.
 */
MUST_CHECK int table_init(struct table *table, const void *bytes, size_t size);

/* The rule at an address of the file. Never NULL: where the table says nothing, a rule of kind
 * CFI_CFA_NONE. */
const struct cfi_rule *table_get(const struct table *table, uint64_t address);
