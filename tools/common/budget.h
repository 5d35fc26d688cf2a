/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Budget - limits the memory for state that is built from captures
 *
 * A small capture can hold millions of valid rows, and most verbs keep something for each row. So
 * the process may use 256 MiB plus 100 bytes for each byte of its captures, but no more than the
 * machine has. Memory is measured, not counted: before each batch of rows (prof_reader_set_guard())
 * the process's own memory is compared with the allowance, so that all state is included. The error
 * names the table whose rows made the process grow the most.
 *
 * State may take three tenths of the allowance: a hash table briefly needs three times its memory
 * while it grows, and results are sorted and printed at the end.
 *
 * One process has one budget. Not thread safe.
 */
#pragma once

#include "libcapture/prof-capture.h"

/* Adds the capture's share to the allowance, and guards its reader. */
void budget_add_capture(struct prof_reader *reader, const char *file);
/* Returns how many bytes the state of the added captures may take. */
uint64_t budget_bytes(void);
/* Call this when all added captures are closed. The memory that the process uses now, for example
 * for debug files, is not charged to the next capture. */
void budget_begin_anew(void);
/* Describes a PROF_OVER_BUDGET failure: what takes the memory, in which file, and what to do. The
 * caller frees the text. */
char *budget_describe(void);
