/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Between cfi.c and cfi-program.c. */
#pragma once

#include "arch/cfi-bytes.h"
#include "arch/cfi.h"

/* Runs a CIE's program and keeps its state. Returns false if the program is broken. The other
 * fields of `cie` are filled in. */
bool cfi_program_initial(struct cfi_reader *reader, struct cfi_cie *cie,
			 const struct cfi_bytes *program);

/* Takes a number in one of the encodings DW_EH_PE_* of LSB 10.5.1. funcrel is relative to
 * `function`. */
uint64_t cfi_take_pointer(const struct cfi_section *section, struct cfi_bytes *bytes,
			  uint8_t encoding, uint64_t function);
