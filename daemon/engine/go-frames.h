/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Go frames - call frame information for a Go program that was stripped of its own
 *
 * Go's linker makes .debug_frame from .gopclntab. If .debug_frame was stripped, this makes it
 * again.
 */
#pragma once

#include "arch/go-table.h"
#include "arch/regs.h"

/* Makes a .debug_frame; the caller frees the bytes. Returns 0, E2BIG (it would take more than
 * max_bytes) or ENOMEM. */
int go_frames_build(const struct go_table *table, enum regs_arch arch, uint64_t max_bytes,
		    uint8_t **ret_bytes, uint64_t *ret_size);
