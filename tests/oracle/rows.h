/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Rows - files three ways: every row of every FDE as compiled, as evaluated, and as libdw has it
 *
 * The compiled table is asked for every pc. libdw is asked where a row begins, and says up to where
 * its answer holds.
 */
#pragma once

#include "tests/oracle/oracle.h"

#include <stdbool.h>
#include <stddef.h>

/* How a row can differ from the one that was evaluated. */
enum rows_difference {
	ROWS_COMPILED,    /* the table has another rule for one of its addresses */
	ROWS_LIBDW_RULE,  /* libdw has another rule */
	ROWS_LIBDW_END,   /* libdw has the same, up to another address */
	ROWS_LIBDW_KNOWS, /* libdw says what it is, and we that the program is broken */
	ROWS_N_DIFFERENCES,
};

struct rows_count {
	size_t files;
	size_t rows, addresses;
	size_t unsupported; /* of the rows, what no rule can hold */
	size_t why[ORACLE_N_WHYS];
	/* FDEs that others cover, wholly or in part: no way finds their rows by address */
	size_t covered;
	/* libdw says the program is broken, and we do not: a register behind an expression */
	size_t refused;
	size_t different; /* rows that differ in any way */
	size_t differences[ROWS_N_DIFFERENCES];
	size_t table_rows; /* neighbours with the same rule are one; with the gaps */
	size_t table_bytes;
};

/* Adds to the count, and prints every row that differs. False where the file has no CFI that can
 * be used. */
bool rows_check(const char *path, struct rows_count *count);

/* What was counted, with the kinds of rows that differ or that no rule can hold. */
void rows_print(const struct rows_count *count);
