/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Shared by table.c and table-build.c: the first bytes of a table. */
#pragma once

#include "arch/table.h"

#include <assert.h>
#include <endian.h>

#define TABLE_MAGIC 0x62617475u /* "utab" */
#define TABLE_VERSION 1

/* Numbers are in the machine's byte order, which is little-endian on every supported machine. */
static_assert(__BYTE_ORDER == __LITTLE_ENDIAN, "tables are little-endian");

struct table_header {
	uint32_t magic;
	uint16_t version;
	uint8_t arch;    /* enum regs_arch */
	uint8_t is_wide; /* ids have 32 bits */
	uint64_t base;   /* address of the first page */
	uint32_t n_pages, n_rows, n_rules;
	uint32_t reserved; /* 0 */
};
static_assert(sizeof(struct table_header) == 32, "rules are aligned after it");

uint64_t table_layout_size(const struct table_header *header);
void table_layout_set(struct unwind_table *table, const void *bytes);
