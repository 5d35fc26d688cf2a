/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Rows - one file, three ways: every row of every FDE as compiled, as evaluated, and as libdw has it
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct rows_count {
	size_t rows;
	size_t unsupported; /* of them, what no rule can hold */
	size_t covered; /* FDEs that others cover, wholly or in part: no way finds their rows by address */
	size_t refused; /* libdw says the program is broken, and we do not: a register behind an expression */
	size_t different;  /* compiled, evaluated and libdw do not agree */
	size_t table_rows; /* neighbours with the same rule are one; with the gaps */
	size_t table_bytes;
};

/* Prints what differs. False where the file has no CFI that can be used. */
bool rows_check(const char *path, struct rows_count *ret_count);

/* The same for many, with a line for each; false where something differs. */
bool rows_check_files(const char *const *paths, size_t n);
