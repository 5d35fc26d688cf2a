/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Reads the build-id of the kernel's 64-bit vdso. Returns its length; 0 if the vdso has no
 * build-id, or if that exceeds `size` bytes. */
size_t vdso_read_build_id(uint8_t *build_id, size_t size);

/* Returns the ELF image of the vdso, or NULL. */
const uint8_t *vdso_find(size_t *ret_size);
