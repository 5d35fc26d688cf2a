/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Table - layout, check and lookup; table-build.c builds tables
 *
 *     header  table-layout.h
 *     rules   n_rules x 16 bytes; rule 0 is "no CFI"
 *     pages   (n_pages + 1) x u32: the first row of each 4 KiB of code; so few rows are searched
 *     rows    n_rows x u16: start of each row within its page; ascending
 *     ids     n_rows x u16, or u32 in a wide table: the rule from that row to the next one
 *
 * A row is valid beyond the end of its page, until the next row begins, so long functions need no
 * row on every page. `rows` and `ids` are separate arrays, because the search reads only `rows`: a
 * cache line holds 32 of them.
 * Invariants: (1) table_get() reads only inside a checked table, for any address
 *                                                          [test-table: damaged; fuzz_unwind_table]
 *             (2) at every address the table has the rule of the CFI      [test-cfi-files]
 */
#include "arch/table.h"

#include "arch/table-layout.h"

#include <errno.h>

#define CACHE_LINE 64

struct layout {
	uint64_t rules, pages, rows, ids, end;
};

/* The offsets are sums of 32-bit counts, so they cannot overflow. */
static struct layout lay_out(const struct table_header *header)
{
	uint64_t id_size = header->is_wide ? sizeof(uint32_t) : sizeof(uint16_t);
	struct layout layout = { .rules = sizeof(*header) };

	layout.pages = layout.rules + (uint64_t)header->n_rules * sizeof(struct cfi_rule);
	layout.rows = layout.pages + ((uint64_t)header->n_pages + 1) * sizeof(uint32_t);
	layout.ids = layout.rows + (uint64_t)header->n_rows * sizeof(uint16_t);
	layout.ids = (layout.ids + 3) & ~UINT64_C(3);
	layout.end = layout.ids + header->n_rows * id_size;
	return layout;
}

uint64_t table_layout_size(const struct table_header *header)
{
	return lay_out(header).end;
}

void table_layout_set(struct unwind_table *table, const void *bytes)
{
	const struct table_header *header = bytes;
	struct layout layout = lay_out(header);
	const uint8_t *start = bytes;

	*table = (struct unwind_table){
		.pages = (const uint32_t *)(start + layout.pages),
		.rows = (const uint16_t *)(start + layout.rows),
		.ids = start + layout.ids,
		.rules = (const struct cfi_rule *)(start + layout.rules),
		.base = header->base,
		.n_pages = header->n_pages,
		.n_rows = header->n_rows,
		.n_rules = header->n_rules,
		.is_wide = header->is_wide,
		.arch = (enum regs_arch)header->arch,
	};
}

static uint32_t get_id(const struct unwind_table *table, uint32_t row)
{
	return table->is_wide ? ((const uint32_t *)table->ids)[row]
			      : ((const uint16_t *)table->ids)[row];
}

static bool check_header(const struct table_header *header, size_t size)
{
	return header->magic == TABLE_MAGIC && header->version == TABLE_VERSION &&
	       header->is_wide <= 1 && regs_get((enum regs_arch)header->arch) &&
	       header->base % TABLE_PAGE == 0 && header->n_pages <= TABLE_MAX_SPAN / TABLE_PAGE &&
	       header->n_rules > 0 && header->n_rules <= TABLE_MAX_RULES &&
	       lay_out(header).end == size;
}

static bool check_pages(const struct unwind_table *table)
{
	if (table->pages[0] != 0 || table->pages[table->n_pages] != table->n_rows)
		return false;
	for (uint32_t page = 0; page < table->n_pages; page++) {
		uint32_t end = table->pages[page + 1];

		if (table->pages[page] > end || end > table->n_rows)
			return false;
		for (uint32_t row = table->pages[page] + 1; row < end; row++)
			if (table->rows[row] <= table->rows[row - 1])
				return false;
	}
	return true;
}

int table_init(struct unwind_table *table, const void *bytes, size_t size)
{
	struct unwind_table checked;

	if ((uintptr_t)bytes % 16 != 0 || size < sizeof(struct table_header) ||
	    !check_header(bytes, size))
		return -EBADMSG;
	table_layout_set(&checked, bytes);
	for (uint32_t i = 0; i < checked.n_rules; i++) {
		const struct cfi_rule *rule = &checked.rules[i];

		if (rule->cfa >= CFI_N_CFAS || rule->fp >= CFI_N_PLACES ||
		    rule->ra >= CFI_N_PLACES || (i == 0 && rule->cfa != CFI_CFA_NONE))
			return -EBADMSG;
	}
	for (uint32_t row = 0; row < checked.n_rows; row++)
		if (get_id(&checked, row) >= checked.n_rules)
			return -EBADMSG;
	if (!check_pages(&checked))
		return -EBADMSG;
	*table = checked;
	return 0;
}

/* Prefetches a page's rows and ids, because a search would wait for each cache line that it reads,
 * and then for the id. Few pages have more rows than are prefetched. */
static inline void prefetch_rows(const struct unwind_table *table, uint32_t row, uint32_t n)
{
	const uint8_t *ids = table->ids;

	if (table->is_wide)
		return;
	for (uint32_t i = 0; i < MIN_OF(n, 128u); i += CACHE_LINE / sizeof(uint16_t)) {
		prefetch_line(&table->rows[row + i]);
		prefetch_line(ids + (row + i) * sizeof(uint16_t));
	}
}

const struct cfi_rule *table_get(const struct unwind_table *table, uint64_t address)
{
	uint64_t page = (address - table->base) / TABLE_PAGE;
	uint16_t offset = (uint16_t)(address % TABLE_PAGE);
	uint32_t row, n;

	if (address < table->base || page >= table->n_pages)
		return &table->rules[0];
	row = table->pages[page];
	n = table->pages[page + 1] - row;
	prefetch_rows(table, row, n);
	while (n > 1) {
		uint32_t half = n / 2;

		row += table->rows[row + half] <= offset ? half : 0;
		n -= half;
	}
	if (n == 0 || table->rows[row] > offset) {
		if (row == 0)
			return &table->rules[0];
		row--;
	}
	return &table->rules[get_id(table, row)];
}
