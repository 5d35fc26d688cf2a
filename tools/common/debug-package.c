/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Debug package - a .dwp file: the split DWARF of all units of a program in one file
 *
 * An index (.debug_cu_index, a hash table of ids) maps a unit to its part of each section: version
 * 2 is GNU's for DWARF 4, version 5 that of the standard. All units share the strings; the strings
 * of the unit are copied, and its string offsets adjusted.
 * Invariants: (1) nothing outside of a section is read, whatever the index says
 *                 [test-debug-package: hostile]
 *             (2) a lookup ends after as many steps as the index has slots
 *                 [test-debug-package: full]
 *             (3) a unit is no larger than MAX_UNIT_BYTES  [test-debug-package: hostile]
 * Omits the parts that names and lines do not need: locations, macros, type units.
 */
#include "tools/common/debug-package.h"

#include "arch/base.h"
#include "tools/common/elf-sections.h"

#include <string.h>

#define MAX_UNIT_BYTES (UINT64_C(256) << 20)
#define MAX_COLUMNS 16
#define HEADER_BYTES 16
#define STR_OFFSETS_HEADER_BYTES 8

/* The parts of a package that are used, in this order. */
enum part { INFO, ABBREV, LINE, STR_OFFSETS, RNGLISTS, STR, N_PARTS };

static const struct {
	const char *name;
	uint32_t id[2]; /* of its column in an index of version 2, and of version 5 */
} parts[] = {
	[INFO] = { ".debug_info.dwo", { 1, 1 } },
	[ABBREV] = { ".debug_abbrev.dwo", { 3, 3 } },
	[LINE] = { ".debug_line.dwo", { 4, 4 } },
	[STR_OFFSETS] = { ".debug_str_offsets.dwo", { 6, 6 } },
	[RNGLISTS] = { ".debug_rnglists.dwo", { 0, 8 } },
	[STR] = { ".debug_str.dwo", { 0, 0 } },
};

struct debug_package {
	struct elf_image *elf;
	const uint8_t *index;
	const Elf_Data *strings;
	uint32_t columns, units, slots;
	bool is_5;
};

static uint32_t read_u32(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static uint64_t read_u64(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static const Elf_Data *get_data(const struct debug_package *package, const char *name)
{
	GElf_Shdr header;
	Elf_Scn *section = elf_image_get_section(package->elf, name, &header);

	return section ? elf_image_get_data(package->elf, section) : NULL;
}

static bool read_index(struct debug_package *package)
{
	const Elf_Data *data = get_data(package, ".debug_cu_index");
	uint32_t version;
	uint64_t bytes;

	if (!data || data->d_size < HEADER_BYTES)
		return false;
	package->index = data->d_buf;
	version = read_u32(package->index);
	package->is_5 = (version & 0xffff) == 5;
	package->columns = read_u32(package->index + 4);
	package->units = read_u32(package->index + 8);
	package->slots = read_u32(package->index + 12);
	if ((version != 2 && !package->is_5) || package->columns == 0 ||
	    package->columns > MAX_COLUMNS || package->slots == 0 ||
	    (package->slots & (package->slots - 1)) != 0)
		return false;
	bytes = HEADER_BYTES + (uint64_t)package->slots * 12 + package->columns * UINT64_C(4) +
		(uint64_t)package->units * package->columns * 8;
	return bytes <= data->d_size;
}

void debug_package_free(struct debug_package *package)
{
	if (!package)
		return;
	if (package->elf) {
		close(package->elf->fd);
		elf_image_free(package->elf);
	}
	g_free(package);
}

struct debug_package *debug_package_open(int fd)
{
	struct debug_package *package = g_new0(struct debug_package, 1);

	package->elf = elf_image_open(fd);
	if (!package->elf)
		close(fd);
	else if (package->elf->is_64 && read_index(package)) {
		package->strings = get_data(package, parts[STR].name);
		return package;
	}
	debug_package_free(package);
	return NULL;
}

/* Returns the row of a unit, from 1; 0 = not found. */
static uint32_t find_row(const struct debug_package *package, uint64_t id)
{
	const uint8_t *ids = package->index + HEADER_BYTES;
	const uint8_t *rows = ids + (size_t)package->slots * 8;
	uint32_t mask = package->slots - 1;
	uint32_t at = (uint32_t)id & mask, step = ((uint32_t)(id >> 32) & mask) | 1;

	for (uint32_t i = 0; i < package->slots; i++, at = (at + step) & mask) {
		uint32_t row = read_u32(rows + (size_t)at * 4);

		if (row == 0 || row > package->units)
			return 0;
		if (read_u64(ids + (size_t)at * 8) == id)
			return row;
	}
	return 0;
}

/* Reads the part of a section that belongs to a unit; empty if the unit has no such part. Returns
 * false if bytes are missing. */
static bool read_part(const struct debug_package *package, uint32_t row, enum part part,
		      GByteArray *bytes)
{
	const uint8_t *ids = package->index + HEADER_BYTES + (size_t)package->slots * 12;
	const uint8_t *offsets = ids + package->columns * 4 * (size_t)row;
	const uint8_t *sizes = offsets + package->columns * 4 * (size_t)package->units;
	GElf_Shdr header;
	uint32_t column = 0, offset, size;

	while (column < package->columns &&
	       read_u32(ids + (size_t)column * 4) != parts[part].id[package->is_5])
		column++;
	if (column == package->columns || parts[part].id[package->is_5] == 0)
		return true;
	offset = read_u32(offsets + (size_t)column * 4);
	size = read_u32(sizes + (size_t)column * 4);
	if (size == 0)
		return true;
	if (size > MAX_UNIT_BYTES ||
	    !elf_image_get_section(package->elf, parts[part].name, &header) ||
	    header.sh_type == SHT_NOBITS || (header.sh_flags & SHF_COMPRESSED) ||
	    (uint64_t)offset + size > header.sh_size ||
	    header.sh_offset > package->elf->file_size ||
	    header.sh_size > package->elf->file_size - header.sh_offset)
		return false;
	g_byte_array_set_size(bytes, size);
	return pread(package->elf->fd, bytes->data, size, (off_t)(header.sh_offset + offset)) ==
	       (ssize_t)size;
}

/* Copies the strings of the unit; a missing string becomes empty. */
static bool copy_strings(const struct debug_package *package, GByteArray *offsets,
			 GByteArray *strings)
{
	size_t n = package->strings ? package->strings->d_size : 0;
	const char *text = n ? package->strings->d_buf : NULL;

	g_byte_array_append(strings, (const uint8_t *)"", 1);
	for (guint at = package->is_5 ? STR_OFFSETS_HEADER_BYTES : 0; at + 4 <= offsets->len;
	     at += 4) {
		uint32_t from = read_u32(offsets->data + at), to = strings->len;
		const char *end = from < n ? memchr(text + from, '\0', n - from) : NULL;
		size_t length = end ? (size_t)(end - (text + from)) + 1 : 0;

		if (strings->len + length > MAX_UNIT_BYTES)
			return false;
		if (length == 0)
			to = 0;
		else
			g_byte_array_append(strings, (const uint8_t *)text + from, (guint)length);
		memcpy(offsets->data + at, &to, sizeof(to));
	}
	return true;
}

GByteArray *debug_package_extract(const struct debug_package *package, uint64_t id)
{
	GByteArray *bytes[N_PARTS];
	struct elf_section sections[N_PARTS];
	uint32_t row = find_row(package, id);
	bool ok = row != 0;
	GByteArray *file = NULL;

	for (enum part part = 0; part < N_PARTS; part++) {
		bytes[part] = g_byte_array_new();
		ok = ok && read_part(package, row, part, bytes[part]);
	}
	ok = ok && bytes[INFO]->len > 0 && copy_strings(package, bytes[STR_OFFSETS], bytes[STR]);
	for (enum part part = 0; part < N_PARTS; part++)
		sections[part] = (struct elf_section){ parts[part].name, bytes[part]->data,
						       bytes[part]->len };
	if (ok)
		file = elf_sections_build(sections, N_PARTS);
	for (enum part part = 0; part < N_PARTS; part++)
		g_byte_array_unref(bytes[part]);
	return file;
}
