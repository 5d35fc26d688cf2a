/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Rows - compares three results for every row of a file's CFI: compiled, evaluated, libdw's
 *
 * The rows are those of a file's first section with CFI.
 *
 * The compiled table is queried for every pc. libdw is queried at the start of each row, and
 * returns the end of the range for which its answer is valid.
 */
#pragma once

#include "tests/oracle/oracle.h"

#include <stdbool.h>
#include <stddef.h>

/* How another result can differ from the evaluated row. */
enum rows_difference {
	ROWS_COMPILED,    /* the compiled table has another rule for one of the row's addresses */
	ROWS_LIBDW_RULE,  /* libdw has another rule */
	ROWS_LIBDW_END,   /* libdw has the same rule, but up to another address */
	ROWS_LIBDW_KNOWS, /* libdw has a rule, but ours is CFI_CFA_UNSUPPORTED */
	ROWS_N_DIFFERENCES,
};

struct rows_count {
	size_t files;
	size_t rows, addresses;
	size_t unsupported; /* rows that our rules cannot express */
	size_t why[ORACLE_N_WHYS];
	/* FDEs that cannot be found by address, such as FDEs that other FDEs cover wholly or
	 * partly */
	size_t covered;
	/* rows of CFI programs that only libdw considers broken: they set the CFA's register after
	 * an expression */
	size_t refused;
	size_t different; /* rows with any difference */
	size_t differences[ROWS_N_DIFFERENCES];
	size_t table_rows; /* rows after merging neighbors with the same rule, including gaps */
	size_t table_bytes;
};

/* Adds to the counts, and prints rows that differ. Returns false if the file has no usable CFI. */
bool rows_check(const char *path, struct rows_count *count);

/* Prints the counts by kind of difference and by reason. */
void rows_print(const struct rows_count *count);
