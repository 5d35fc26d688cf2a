/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Kernel-types - finds members of structures in the kernel's type information (BTF)
 *
 * libbpf copies all of it, 5 MB, for each program that it loads. This only looks at it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Makes the structures in `own`, which is BTF, have their members at the kernel's offsets if their
 * names end with ___kernel, so that libbpf finds them there instead of in the kernel's information.
 * Returns false if either is not valid, or if a member's offset is not certain: the member is
 * missing, a bit-field, or elsewhere in another structure of the same name. `own` is then not of
 * use. */
bool kernel_types_apply(void *own, size_t own_bytes, const void *kernel, size_t kernel_bytes);
