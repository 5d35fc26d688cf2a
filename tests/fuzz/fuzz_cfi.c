/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of the CFI evaluator and of the compiler of tables: a byte for architecture and kind
 * of section, a byte for the size of .eh_frame_hdr, that header, and the section. Rows must ascend
 * and cover their FDE, and the compiled table must have the rules that the evaluator finds.
 */
#include "arch/table.h"

#include <stdlib.h>

#define IS_DEBUG_FRAME 0x80
#define ADDRESS 0x10000000u
#define LOW 0x400000u
#define HIGH 0x40000000u
#define MAX_PROBES 32

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct probes {
	uint64_t addresses[MAX_PROBES];
	size_t n;
};

static void *resize(void *data, void *block, size_t old_bytes, size_t new_bytes)
{
	if (new_bytes > 0)
		return realloc(block, new_bytes);
	free(block);
	return NULL;
}

static void check_rows(const struct cfi_reader *reader, const struct cfi_fde *fde,
		       struct probes *probes)
{
	uint64_t pc = fde->start;
	struct cfi_rows rows;
	struct cfi_row row;

	if (fde->start >= fde->end)
		abort();
	for (cfi_rows_init(&rows, reader, fde); cfi_rows_next(&rows, &row); pc = row.end) {
		if (row.start != pc || row.end <= row.start || row.end > fde->end ||
		    row.rule.cfa == CFI_CFA_NONE || row.rule.cfa >= CFI_N_CFAS ||
		    row.rule.fp >= CFI_N_PLACES || row.rule.ra >= CFI_N_PLACES)
			abort();
		if (probes->n < MAX_PROBES)
			probes->addresses[probes->n++] = row.start;
	}
	if (pc != fde->end)
		abort();
}

static void check_table(const struct cfi_section *section, const struct probes *probes)
{
	static const struct table_memory memory = { resize, NULL };
	const struct table_source source = { section, 1, LOW, HIGH, 64u << 20 };
	struct cfi_section plain = *section;
	struct cfi_reader reader;
	struct unwind_table table;
	size_t size;
	void *bytes;

	if (table_build(&source, &memory, &bytes, &size) < 0)
		return;
	if (table_init(&table, bytes, size) < 0)
		abort();
	plain.header = NULL;
	cfi_reader_init(&reader, &plain);
	for (size_t i = 0; i < probes->n; i++) {
		uint64_t address = probes->addresses[i];
		const struct cfi_rule *compiled = table_get(&table, address);
		struct cfi_fde fde;
		struct cfi_rule rule;

		/* The table has no FDE that starts before the code. The evaluator uses such an FDE
		 * where it overlaps the start of the code. */
		if (address < LOW || address >= HIGH || !cfi_find(&reader, address, &fde) ||
		    fde.start < LOW)
			continue;
		cfi_get_rule(&reader, address, &rule);
		if (memcmp(compiled, &rule, sizeof(rule)) != 0)
			abort();
	}
	free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t header_size = size < 2 ? 0 : data[1], at = 0;
	struct cfi_section section = { .address = ADDRESS };
	struct probes probes = { .n = 0 };
	struct cfi_reader reader;
	struct cfi_rule rule;
	struct cfi_fde fde;

	if (size < 2 + header_size)
		return 0;
	section.arch = REGS_NONE + 1 + data[0] % (REGS_N_ARCHS - 1);
	section.is_debug_frame = data[0] & IS_DEBUG_FRAME;
	if (header_size > 0) {
		section.header = data + 2;
		section.header_size = header_size;
		section.header_address = (ADDRESS - header_size) & ~UINT64_C(7);
	}
	section.bytes = data + 2 + header_size;
	section.size = size - 2 - header_size;
	cfi_reader_init(&reader, &section);
	while (cfi_reader_next(&reader, &at, &fde))
		check_rows(&reader, &fde, &probes);
	for (size_t i = 0; i < probes.n; i++)
		cfi_get_rule(&reader, probes.addresses[i], &rule);
	check_table(&section, &probes);
	return 0;
}
