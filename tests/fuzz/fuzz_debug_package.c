/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of the reader of packages of split DWARF (debug-split.c): the input is one file; its
 * last 8 bytes are the id of the requested unit. The result must be an ELF file with the unit's
 * DWARF.
 */
#include "arch/base.h"
#include "tools/symbols/debug-split.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int write_file(const uint8_t *data, size_t size)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	if (fd >= 0 && write(fd, data, size) == (ssize_t)size)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

static void check(const GByteArray *unit)
{
	int fd = write_file(unit->data, unit->len);
	struct elf_image *elf = fd < 0 ? NULL : elf_image_open(fd);
	GElf_Shdr header;

	if (fd < 0)
		return;
	if (!elf || !elf_image_get_section(elf, ".debug_info.dwo", &header) || header.sh_size == 0)
		abort();
	elf_image_free(elf);
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct debug_package *package;
	GByteArray *unit;
	uint64_t id;
	int fd;

	if (size < sizeof(id))
		return 0;
	memcpy(&id, data + size - sizeof(id), sizeof(id));
	fd = write_file(data, size);
	package = fd < 0 ? NULL : debug_package_open(fd);
	unit = package ? debug_package_extract(package, id) : NULL;
	if (unit) {
		check(unit);
		g_byte_array_unref(unit);
	}
	debug_package_free(package);
	return 0;
}
