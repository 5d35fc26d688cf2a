/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The build-id of the kernel's 64-bit vdso: its length, 0 where there is none or more than
 * `size` bytes. */
size_t vdso_read_build_id(uint8_t *build_id, size_t size);

/* The vdso itself, as the ELF file that it is; NULL where there is none. */
const uint8_t *vdso_find(size_t *ret_size);
