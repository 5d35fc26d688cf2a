/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Go frames - call frame information for a Go program that was stripped of its own
 *
 * Go's linker makes .debug_frame of .gopclntab; where somebody removed the one, it is made again of the other.
 */
#pragma once

#include "arch/go-table.h"
#include "arch/regs.h"

/* The bytes of a .debug_frame, to be freed. 0, E2BIG where it would take more than max_bytes, ENOMEM, or ENODATA. */
int go_frames_build(const struct go_table *table, enum regs_arch arch, uint64_t max_bytes,
		    uint8_t **ret_bytes, uint64_t *ret_size);
