/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Compares only FDEs that a search finds. An FDE that other FDEs cover cannot be found by
 * address. */
#include "tests/oracle/rows.h"

#include "tests/oracle/elf-cfi.h"

#include <inttypes.h>
#include <stdio.h>

static const char *const difference_names[ROWS_N_DIFFERENCES] = {
	[ROWS_COMPILED] = "compiled",
	[ROWS_LIBDW_RULE] = "libdw's rule",
	[ROWS_LIBDW_END] = "libdw's end",
	[ROWS_LIBDW_KNOWS] = "libdw knows",
};

static const char *const why_names[ORACLE_N_WHYS] = {
	[ORACLE_CFA_REGISTER] = "CFA by another register",
	[ORACLE_CFA_EXPRESSION] = "CFA by an expression",
	[ORACLE_SP] = "sp is not the CFA",
	[ORACLE_RA_REGISTER] = "return address in a register",
	[ORACLE_RA_EXPRESSION] = "return address by an expression",
	[ORACLE_BROKEN] = "broken",
};

struct check {
	const char *path;
	struct elf_cfi *file;
	struct unwind_table table;
	struct oracle oracle;
	struct rows_count *count;
};

static void print_rule(const char *what, const struct cfi_rule *rule)
{
	printf("  %s {cfa %u%+d fp %u%+d ra %u%+d flags 0x%x}", what, rule->cfa, rule->cfa_offset,
	       rule->fp, rule->fp_offset, rule->ra, rule->ra_offset, rule->flags);
}

static void add_difference(struct check *check, const struct cfi_row *row,
			   enum rows_difference difference, const struct cfi_rule *other)
{
	check->count->differences[difference]++;
	printf("# %s: 0x%" PRIx64 "..0x%" PRIx64, check->path, row->start, row->end);
	print_rule("evaluated", &row->rule);
	print_rule(difference_names[difference], other);
	printf("\n");
}

static bool same(const struct cfi_rule *a, const struct cfi_rule *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

static bool check_compiled(struct check *check, const struct cfi_row *row)
{
	for (uint64_t pc = row->start; pc < row->end; pc++) {
		const struct cfi_rule *compiled = table_get(&check->table, pc);

		if (same(&row->rule, compiled))
			continue;
		add_difference(check, row, ROWS_COMPILED, compiled);
		return false;
	}
	return true;
}

/* Compares with libdw, which cannot express a signed return address. */
static bool check_oracle(struct check *check, const struct cfi_row *row, bool is_debug_frame)
{
	struct cfi_rule rule = { .cfa = CFI_CFA_UNSUPPORTED }, evaluated = row->rule;
	enum rows_difference difference = ROWS_LIBDW_RULE;
	uint64_t end = row->end;

	evaluated.flags &= (uint8_t)~CFI_RA_SIGNED;
	if (!oracle_get(&check->oracle, is_debug_frame, row->start, &rule, &end)) {
		check->count->refused += evaluated.cfa != CFI_CFA_UNSUPPORTED;
		check->count->why[ORACLE_BROKEN] += evaluated.cfa == CFI_CFA_UNSUPPORTED;
		return true;
	}
	if (same(&rule, &evaluated) && end == row->end) {
		if (rule.cfa == CFI_CFA_UNSUPPORTED)
			check->count->why[check->oracle.why]++;
		return true;
	}
	if (same(&rule, &evaluated))
		difference = ROWS_LIBDW_END;
	else if (evaluated.cfa == CFI_CFA_UNSUPPORTED)
		difference = ROWS_LIBDW_KNOWS;
	add_difference(check, row, difference, &rule);
	return false;
}

/* Returns whether the FDE is in the file's code and, if there is a search table, is found at its
 * first and at its last address. */
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
	struct rows_count *count = check->count;
	struct cfi_rows rows;
	struct cfi_row row;

	for (cfi_rows_init(&rows, reader, fde); cfi_rows_next(&rows, &row);) {
		bool compiled = check_compiled(check, &row);
		bool oracle = check_oracle(check, &row, reader->section->is_debug_frame);

		count->rows++;
		count->addresses += row.end - row.start;
		count->unsupported += row.rule.cfa == CFI_CFA_UNSUPPORTED;
		count->different += !compiled || !oracle;
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
			check->count->covered++;
	}
}

bool rows_check(const char *path, struct rows_count *count)
{
	CLEANUP_ELF_CFI struct elf_cfi *file = elf_cfi_open(path);
	struct check check = { .path = path, .file = file, .count = count };
	CLEANUP_FREE void *bytes = NULL;
	size_t size;

	if (!file || !elf_cfi_build(file, &check.table, &bytes, &size))
		return false;
	oracle_init(&check.oracle, file->elf, file->arch);
	check_section(&check, &file->sections[0]);
	oracle_done(&check.oracle);
	count->files++;
	count->table_rows += check.table.n_rows;
	count->table_bytes += size;
	return true;
}

static void print_kinds(const char *const *names, const size_t *counts, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (counts[i] > 0)
			printf("#     %s: %zu\n", names[i], counts[i]);
}

void rows_print(const struct rows_count *count)
{
	printf("# %zu files, %zu rows with %zu addresses: %zu rows differ; %zu (%.3f %%) hold what no rule can, "
	       "%zu are refused by libdw, %zu FDEs lie over each other\n",
	       count->files, count->rows, count->addresses, count->different, count->unsupported,
	       100.0 * (double)count->unsupported / (double)MAX_OF(count->rows, (size_t)1),
	       count->refused, count->covered);
	print_kinds(difference_names, count->differences, ROWS_N_DIFFERENCES);
	print_kinds(why_names, count->why, ORACLE_N_WHYS);
	printf("#     their tables: %zu rows in %.1f MB, %.2f B/row\n", count->table_rows,
	       (double)count->table_bytes / 1e6,
	       (double)count->table_bytes / (double)MAX_OF(count->table_rows, (size_t)1));
}
