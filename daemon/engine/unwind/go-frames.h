/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Go frames - call frame information for a stripped Go program
 *
 * Go's linker makes .debug_frame from .gopclntab. If .debug_frame was stripped, go_frames_build()
 * makes it again.
 */
#pragma once

#include "arch/go-table.h"
#include "arch/regs.h"

/* Makes a .debug_frame, which the caller frees. Returns 0; ENOMEM; or E2BIG if the buffer, whose
 * size doubles when it is full, would exceed max_bytes. */
int go_frames_build(const struct go_table *table, enum regs_arch arch, uint64_t max_bytes,
		    uint8_t **ret_bytes, uint64_t *ret_size);
