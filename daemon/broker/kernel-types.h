/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Kernel-types - finds members of structures in the kernel's type information (BTF)
 *
 * libbpf copies all this information, 5 MB, for each program that it loads. This file only reads
 * it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Changes `own`, a BTF: in structures whose names end with ___kernel, sets the offsets of members
 * to the kernel's, so that libbpf finds them in `own` instead of in the kernel's information.
 * Returns false if either BTF is not valid, or if a member's offset is not certain: the member is
 * missing, a bit-field, or at another offset in another structure of the same name. `own` must not
 * be used then. */
bool kernel_types_apply(void *own, size_t own_bytes, const void *kernel, size_t kernel_bytes);
