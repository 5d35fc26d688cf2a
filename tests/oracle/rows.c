/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Only FDEs that a search finds are compared: of those that others cover no way finds the rows by address. */
#include "tests/oracle/rows.h"

#include "tests/oracle/elf-cfi.h"
#include "tests/oracle/oracle.h"

#include <inttypes.h>
#include <stdio.h>

#define MAX_PRINTED 5

struct check {
	const char *path;
	struct elf_cfi *file;
	struct table table;
	struct oracle oracle;
	struct rows_count count;
};

static void print_rule(const char *what, const struct cfi_rule *rule)
{
	printf("  %s {cfa %u%+d fp %u%+d ra %u%+d flags 0x%x}", what, rule->cfa, rule->cfa_offset,
	       rule->fp, rule->fp_offset, rule->ra, rule->ra_offset, rule->flags);
}

static void print_difference(struct check *check, const struct cfi_row *row, const char *what,
			     const struct cfi_rule *other)
{
	if (check->count.different++ >= MAX_PRINTED)
		return;
	printf("# %s: 0x%" PRIx64 "..0x%" PRIx64, check->path, row->start, row->end);
	print_rule("evaluated", &row->rule);
	print_rule(what, other);
	printf("\n");
}

static bool same(const struct cfi_rule *a, const struct cfi_rule *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

/* libdw has no word for a signed return address. */
static void check_oracle(struct check *check, const struct cfi_row *row, bool is_debug_frame)
{
	struct cfi_rule rule = { .cfa = CFI_CFA_UNSUPPORTED }, evaluated = row->rule;
	uint64_t end = row->end;

	evaluated.flags &= (uint8_t)~CFI_RA_SIGNED;
	if (!oracle_get(&check->oracle, is_debug_frame, row->start, &rule, &end)) {
		check->count.refused += evaluated.cfa != CFI_CFA_UNSUPPORTED;
		return;
	}
	if (!same(&rule, &evaluated) || end != row->end)
		print_difference(check, row, "libdw", &rule);
}

/* Whether a search finds this FDE for all of its addresses. */
static bool is_found(struct cfi_reader *finder, const struct elf_cfi *file,
		     const struct cfi_fde *fde)
{
	struct cfi_fde found;

	if (fde->start < file->low || fde->end > file->high)
		return false;
	return !finder->section->header ||
	       (cfi_find(finder, fde->start, &found) && found.at == fde->at &&
		cfi_find(finder, fde->end - 1, &found) && found.at == fde->at);
}

static void check_fde(struct check *check, const struct cfi_reader *reader,
		      const struct cfi_fde *fde)
{
	struct cfi_rows rows;
	struct cfi_row row;

	for (cfi_rows_init(&rows, reader, fde); cfi_rows_next(&rows, &row);) {
		const struct cfi_rule *first = table_get(&check->table, row.start);
		const struct cfi_rule *last = table_get(&check->table, row.end - 1);

		check->count.rows++;
		check->count.unsupported += row.rule.cfa == CFI_CFA_UNSUPPORTED;
		if (!same(&row.rule, first) || !same(&row.rule, last))
			print_difference(check, &row, "compiled", first);
		check_oracle(check, &row, reader->section->is_debug_frame);
	}
}

static void check_section(struct check *check, const struct cfi_section *section)
{
	struct cfi_reader reader, finder;
	struct cfi_fde fde;
	size_t at = 0;

	cfi_reader_init(&reader, section);
	cfi_reader_init(&finder, section);
	while (cfi_reader_next(&reader, &at, &fde)) {
		if (is_found(&finder, check->file, &fde))
			check_fde(check, &reader, &fde);
		else
			check->count.covered++;
	}
}

bool rows_check(const char *path, struct rows_count *ret_count)
{
	CLEANUP_ELF_CFI struct elf_cfi *file = elf_cfi_open(path);
	struct check check = { .path = path, .file = file };
	CLEANUP_FREE void *bytes = NULL;
	size_t size;

	if (!file || !elf_cfi_build(file, &check.table, &bytes, &size))
		return false;
	oracle_init(&check.oracle, file->elf, file->arch);
	check_section(&check, &file->sections[0]);
	oracle_done(&check.oracle);
	check.count.table_rows = check.table.n_rows;
	check.count.table_bytes = size;
	*ret_count = check.count;
	return true;
}

bool rows_check_files(const char *const *paths, size_t n)
{
	struct rows_count all = { 0 };
	size_t n_files = 0;

	for (size_t i = 0; i < n; i++) {
		struct rows_count count;

		if (!rows_check(paths[i], &count))
			continue;
		n_files++;
		all.rows += count.rows;
		all.unsupported += count.unsupported;
		all.covered += count.covered;
		all.refused += count.refused;
		all.different += count.different;
		all.table_rows += count.table_rows;
		all.table_bytes += count.table_bytes;
		if (count.different > 0)
			printf("%s: %zu of %zu rows differ\n", paths[i], count.different,
			       count.rows);
	}
	printf("%zu files, %zu rows: %zu differ; %zu hold what no rule can, %zu are refused by libdw, "
	       "%zu FDEs lie over each other\n",
	       n_files, all.rows, all.different, all.unsupported, all.refused, all.covered);
	printf("their tables: %zu rows in %.1f MB, %.2f B/row\n", all.table_rows,
	       (double)all.table_bytes / 1e6,
	       (double)all.table_bytes / (double)MAX_OF(all.table_rows, (size_t)1));
	return all.different == 0;
}
