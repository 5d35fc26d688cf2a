/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * bench-unwind-rows - compares the compiled, the evaluated and libdw's row for every pc of every
 * FDE
 *
 *     bench-unwind-rows [FILE…]  default: all ELF files in directories of programs and libraries
 *
 * Prints every row that differs, and counts by kind of difference. Fails if any row differs, or,
 * without arguments, if there are fewer than MIN_FILES files.
 */
#include "arch/base.h"
#include "tests/oracle/rows.h"

#include <ftw.h>
#include <stdio.h>

#define MIN_FILES 200
#define MAX_OPEN 32

static const char *const folders[] = { "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/libexec" };

static struct rows_count count;

/* Checks one file. rows_check() ignores files that are not ELF. */
static int check_file(const char *path, const struct stat *st, int kind, struct FTW *place)
{
	if (kind == FTW_F && S_ISREG(st->st_mode))
		rows_check(path, &count);
	return 0;
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		rows_check(argv[i], &count);
	for (size_t i = 0; i < ARRAY_SIZE(folders) && argc == 1; i++)
		nftw(folders[i], check_file, MAX_OPEN, FTW_PHYS);
	rows_print(&count);
	return count.different == 0 && (argc > 1 || count.files >= MIN_FILES) ? 0 : 1;
}
