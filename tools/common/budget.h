/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Budget - how much memory the state that is built from captures may take
 *
 * A small capture can hold millions of valid rows, and most verbs keep something for each row. So
 * the process may use 256 MiB and 100 bytes for each byte of its captures, and no more than the
 * machine has. The budget is measured, not counted: before each batch of rows that is read
 * (prof_reader_set_guard()) the process's own memory is compared with the allowance. So no state
 * can be left out of it. The error names the table whose rows made the process grow the most.
 *
 * State may take three tenths of the allowance: a hash table that grows has three times its memory
 * for a moment, and results are sorted and printed at the end.
 *
 * One process has one budget. Not thread safe.
 */
#pragma once

#include "libcapture/prof-capture.h"

/* Lets the process use what a capture of this size is worth, from now on, and guards the reader. */
void budget_add_capture(struct prof_reader *reader, const char *file);
/* All captures that were added are closed. What the process has now, as of debug files, is not
 * counted for the next one. */
void budget_begin_anew(void);
/* Why a reading ended with PROF_OVER_BUDGET: what takes the memory, of which file, and what to
 * do. Freed by the caller. */
char *budget_describe(void);
