/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Between cfi.c and cfi-program.c. */
#pragma once

#include "arch/cfi-bytes.h"
#include "arch/cfi.h"

/* Runs a CIE's program and keeps its state. Returns false if the program is broken. The other
 * fields of `cie` are filled in. */
bool cfi_program_initial(struct cfi_reader *reader, struct cfi_cie *cie,
			 const struct cfi_bytes *program);
