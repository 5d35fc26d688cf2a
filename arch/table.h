/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Table - all the CFI of a file, compiled for lookups
 *
 * A table is one block of bytes without pointers: it can be kept, mapped, and shared. Its addresses
 * are those in the file's program headers, so one table serves every process that maps the file.
 * See table.c for the layout.
 */
#pragma once

#include "arch/base.h"
#include "arch/cfi.h"

/* limit for the code of one file; no code model allows more */
#define TABLE_MAX_SPAN (UINT64_C(1) << 32)
#define TABLE_PAGE 4096u
#define TABLE_MAX_RULES (1u << 20) /* 1 352 files together had 4 112 rules */

/*
 * The memory of a build. resize() is realloc() with the old size, and returns NULL if there is no
 * memory. If new_bytes is 0, it frees the block and returns NULL. Blocks are aligned to 16 bytes.
 */
struct table_memory {
	void *(*resize)(void *data, void *block, size_t old_bytes, size_t new_bytes);
	void *data;
};

struct table_source {
	/* There must be at least one section. If two have an FDE with the same start, the FDE of
	 * the first section is used. */
	const struct cfi_section *sections;
	size_t n_sections;
	uint64_t low, high; /* the file's code; FDEs that start outside are ignored */
	uint64_t max_bytes; /* limit for memory during the build; 0: no limit */
};

/* A checked table: pointers to the parts of its bytes, which the caller keeps. */
struct unwind_table {
	const uint32_t *pages; /* first row of each page, and one more entry */
	const uint16_t *rows;  /* start of each row within its page */
	const void *ids;       /* rule of each row: uint16_t, or uint32_t in a wide table */
	const struct cfi_rule *rules;
	uint64_t base;
	uint32_t n_pages, n_rows, n_rules;
	bool is_wide;
	enum regs_arch arch;
};

/*
 * Compiles a table. Returns 0; -ENOMEM; -E2BIG if the code is empty or spans more than
 * TABLE_MAX_SPAN, has more rules than TABLE_MAX_RULES, needs more than max_bytes, or exceeds
 * another limit; -ENODATA if no FDE starts in [low, high). On success the caller frees the block
 * *ret_bytes, which came from `memory`; on failure all memory is freed. Allocates only through
 * `memory`, and is async-signal-safe if resize() is. Takes 12 KiB of stack. Time is linear in the
 * size of the sections.
 */
MUST_CHECK int table_build(const struct table_source *source, const struct table_memory *memory,
			   void **ret_bytes, size_t *ret_size);

/*
 * Checks untrusted bytes. Returns 0, or -EBADMSG if they are not a table. After success,
 * table_get() never reads outside of them, and returns no rule with an invalid kind. `bytes` must
 * be aligned to 16, and must not change afterwards.
 */
MUST_CHECK int table_init(struct unwind_table *table, const void *bytes, size_t size);

/* Returns the rule at an address of the file; never NULL. Without CFI the rule is CFI_CFA_NONE. */
const struct cfi_rule *table_get(const struct unwind_table *table, uint64_t address);
