/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of daemon/broker/kernel-types.c: the input is the BTF of both the kernel and the BPF
 * program.
 */
#include "daemon/broker/kernel-types.h"

#include <glib.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	g_autofree void *own = g_memdup2(data, size);
	g_autofree void *kernel = g_memdup2(data, size);

	kernel_types_apply(own, size, kernel, size);
	return 0;
}
