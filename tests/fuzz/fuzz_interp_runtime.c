/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Fuzz target of daemon/engine/interp/interp-runtime.c: an ELF file. */
#include "daemon/engine/interp/interp-runtime.h"

#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = memfd_create("program", MFD_CLOEXEC);
	struct interp_runtime runtime;

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	(void)interp_runtime_find(fd, &runtime);
	close(fd);
	return 0;
}
