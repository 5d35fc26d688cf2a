/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Prologue - finds the size of a frame from the first instructions of its function
 *
 * CFI that computes the CFA from fp does not contain the frame's size, so it does not help if only
 * sp is known. The prologue, which allocates the frame, contains the size. Allocates nothing and is
 * async-signal-safe. The code may be hostile: every read is within its bounds.
 */
#pragma once

#include "arch/regs.h"

#include <stddef.h>

/* Maximum size of the code that is searched for the end of the prologue. */
#define PROLOGUE_MAX_BYTES 512u

/*
 * Finds how many bytes sp is below fp after the prologue. `code`: the `size` bytes after the
 * instruction that copies sp to fp. Returns false if the distance is not certain: the frame is
 * aligned or has a variable size, an instruction is unknown, or the prologue does not end within
 * `size` bytes. During a call with arguments on the stack, sp is lower.
 */
bool prologue_frame_bytes(enum regs_arch arch, const uint8_t *code, size_t size,
			  uint32_t *ret_bytes);
