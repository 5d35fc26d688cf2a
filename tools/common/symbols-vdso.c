/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Symbols of the vdso - the image without a file
 *
 * The kernel maps the same image into every process, so our own copy serves if its build-id is the
 * recorded one (symbols.c checks that: the capture may be from another machine or kernel).
 */
#include "arch/base.h"
#include "tools/common/symbols-source.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#define MAX_VDSO_BYTES (1u << 20)

/* Returns the size of the mapping that starts at an address. */
static size_t get_mapping_size(uint64_t address)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	uint64_t start, end;
	char line[512];
	size_t size = 0;

	while (maps && size == 0 && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%" SCNx64 "-%" SCNx64, &start, &end) == 2 && start == address)
			size = end - start;
	if (maps)
		fclose(maps);
	return size;
}

int symbols_vdso_open(void)
{
	CLEANUP_CLOSE int fd = memfd_create("vdso", MFD_CLOEXEC);
	uint64_t address = getauxval(AT_SYSINFO_EHDR);
	size_t size = address ? get_mapping_size(address) : 0;

	if (fd < 0 || size == 0 || size > MAX_VDSO_BYTES ||
	    write(fd, (const void *)(uintptr_t)address, size) != (ssize_t)size)
		return -1;
	return steal_fd(&fd);
}
