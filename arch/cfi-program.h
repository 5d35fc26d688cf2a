/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Shared by cfi.c and cfi-program.c. */
#pragma once

#include "arch/cfi.h"
#include "base/bytes.h"

/* Runs a CIE's program and stores the resulting state in cie->initial. Returns false if the program
 * is broken. The caller has set the other fields of `cie`. */
bool cfi_program_initial(struct cfi_reader *reader, struct cfi_cie *cie,
			 const struct byte_reader *program);
