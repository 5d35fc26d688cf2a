/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Debug split - the other halves of units whose DWARF the compiler split off (-gsplit-dwarf)
 *
 * libdw joins two halves itself, but it opens the file that the skeleton names without checking
 * where that file is or what type it has, and it does not read packages. So libdw gets a generated
 * skeleton with the address and bases of the real one, which names a file that is already open:
 * /proc/self/fd/N.
 * Invariants: (1) only regular files are opened, and with a sysroot only files inside it
 *                 [test_split_dwarf: sysroot]
 *             (2) a half is used only if its id is the skeleton's  [test_split_dwarf: other]
 */
#include "tools/common/debug-split.h"

#include "arch/base.h"
#include "tools/common/debug-package.h"
#include "tools/common/elf-sections.h"

#include <dwarf.h>
#include <glib.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define MAX_TABLE_BYTES (UINT64_C(256) << 20)
#define ADDR_HEADER_BYTES 8

struct debug_split {
	const struct debug_files *files;
	Dwarf *dwarf;
	char *path, *debug_path;
	struct debug_package *package;
	bool looked_for_package;
	GArray *addresses, *ranges; /* uint64_t, sorted: the bases of all units of DWARF 4 */
};

struct debug_half {
	GByteArray *bytes; /* of the skeleton's file */
	Elf *elf;
	Dwarf *dwarf;
	Dwarf_Die unit;
};

struct debug_split *debug_split_new(const struct debug_files *files, Dwarf *dwarf, const char *path,
				    const char *debug_path)
{
	struct debug_split *split = g_new0(struct debug_split, 1);

	split->files = files;
	split->dwarf = dwarf;
	split->path = g_strdup(path);
	split->debug_path = g_strdup(debug_path);
	return split;
}

void debug_split_free(struct debug_split *split)
{
	if (!split)
		return;
	debug_package_free(split->package);
	if (split->addresses)
		g_array_unref(split->addresses);
	if (split->ranges)
		g_array_unref(split->ranges);
	g_free(split->path);
	g_free(split->debug_path);
	g_free(split);
}

void debug_half_free(struct debug_half *half)
{
	if (!half)
		return;
	dwarf_end(half->dwarf);
	elf_end(half->elf);
	if (half->bytes)
		g_byte_array_unref(half->bytes);
	g_free(half);
}

Dwarf_Die debug_half_unit(const struct debug_half *half)
{
	return half->unit;
}

/* ---- the skeleton ---------------------------------------------------------------------------- */

static const char *get_string(Dwarf_Die *die, unsigned int name, unsigned int gnu_name)
{
	Dwarf_Attribute attribute;

	if (!dwarf_attr(die, name, &attribute) && !dwarf_attr(die, gnu_name, &attribute))
		return NULL;
	return dwarf_formstring(&attribute);
}

static uint64_t get_number(Dwarf_Die *die, unsigned int name)
{
	Dwarf_Attribute attribute;
	Dwarf_Word value;

	return dwarf_attr(die, name, &attribute) && dwarf_formudata(&attribute, &value) == 0 ? value
											     : 0;
}

/* Returns a section of the file that has the skeletons, which libdw has already unpacked. */
static const Elf_Data *get_table(const struct debug_split *split, const char *name)
{
	Elf *elf = dwarf_getelf(split->dwarf);
	Elf_Scn *section = NULL;
	GElf_Shdr header;
	size_t names;

	if (elf_getshdrstrndx(elf, &names) != 0)
		return NULL;
	while ((section = elf_nextscn(elf, section))) {
		const char *own = gelf_getshdr(section, &header)
					  ? elf_strptr(elf, names, header.sh_name)
					  : NULL;

		if (own && strcmp(own, name) == 0 && header.sh_type != SHT_NOBITS &&
		    !(header.sh_flags & SHF_COMPRESSED))
			return elf_rawdata(section, NULL);
	}
	return NULL;
}

static gint compare_bases(gconstpointer left, gconstpointer right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

static GArray *list_bases(const struct debug_split *split, unsigned int name)
{
	GArray *bases = g_array_new(FALSE, FALSE, sizeof(uint64_t));
	Dwarf_CU *unit = NULL;
	Dwarf_Die die;

	while (dwarf_get_units(split->dwarf, unit, &unit, NULL, NULL, &die, NULL) == 0) {
		uint64_t base = get_number(&die, name);

		g_array_append_val(bases, base);
	}
	g_array_sort(bases, compare_bases);
	return bases;
}

/* Returns a part of a table; empty if it is missing. */
static struct elf_section slice(const char *name, const Elf_Data *table, uint64_t start,
				uint64_t end)
{
	struct elf_section section = { .name = name };

	if (!table || !table->d_buf || start >= table->d_size)
		return section;
	end = MIN_OF(end, table->d_size);
	if (end <= start || end - start > MAX_TABLE_BYTES)
		return section;
	section.bytes = (const uint8_t *)table->d_buf + start;
	section.size = end - start;
	return section;
}

static void put_u16(GByteArray *bytes, uint16_t value)
{
	g_byte_array_append(bytes, (const uint8_t *)&value, sizeof(value));
}

static void put_u32(GByteArray *bytes, uint32_t value)
{
	g_byte_array_append(bytes, (const uint8_t *)&value, sizeof(value));
}

static void put_u64(GByteArray *bytes, uint64_t value)
{
	g_byte_array_append(bytes, (const uint8_t *)&value, sizeof(value));
}

/* Writes a unit of one DIE: the name of the other half, address, bases, and in DWARF 4 the id,
 * which DWARF 5 has in the header. */
static void put_unit(GByteArray *bytes, bool is_5, uint64_t id, uint64_t address, const char *name)
{
	uint32_t length;

	put_u32(bytes, 0);
	put_u16(bytes, is_5 ? 5 : 4);
	if (is_5)
		g_byte_array_append(bytes, (const uint8_t[]){ DW_UT_skeleton, 8 }, 2);
	put_u32(bytes, 0);
	if (is_5)
		put_u64(bytes, id);
	else
		g_byte_array_append(bytes, (const uint8_t[]){ 8 }, 1);
	g_byte_array_append(bytes, (const uint8_t[]){ 1 }, 1);
	put_u64(bytes, address);
	put_u32(bytes, is_5 ? ADDR_HEADER_BYTES : 0);
	if (!is_5) {
		put_u64(bytes, id);
		put_u32(bytes, 0);
	}
	g_byte_array_append(bytes, (const uint8_t *)name, (guint)strlen(name) + 1);
	length = bytes->len - (uint32_t)sizeof(length);
	memcpy(bytes->data, &length, sizeof(length));
}

static const uint8_t abbreviations_5[] = {
	1,
	DW_TAG_skeleton_unit,
	DW_CHILDREN_no,
	DW_AT_low_pc,
	DW_FORM_addr,
	DW_AT_addr_base,
	DW_FORM_sec_offset,
	DW_AT_dwo_name,
	DW_FORM_string,
	0,
	0,
	0,
};

/* The GNU attributes are 0x2130 to 0x2133, in two bytes of LEB128. */
static const uint8_t abbreviations_4[] = {
	1,
	DW_TAG_compile_unit,
	DW_CHILDREN_no,
	DW_AT_low_pc,
	DW_FORM_addr,
	0xb3,
	0x42,
	DW_FORM_sec_offset,
	0xb1,
	0x42,
	DW_FORM_data8,
	0xb2,
	0x42,
	DW_FORM_sec_offset,
	0xb0,
	0x42,
	DW_FORM_string,
	0,
	0,
	0,
};

/* A table of DWARF 4 does not store the size of a unit's part: it ends at the next unit's base. */
static uint64_t next_base(const struct debug_split *split, GArray **bases, unsigned int name,
			  uint64_t base)
{
	guint low = 0, high;

	if (!*bases)
		*bases = list_bases(split, name);
	high = (*bases)->len;
	while (low < high) {
		guint middle = low + (high - low) / 2;

		if (g_array_index(*bases, uint64_t, middle) <= base)
			low = middle + 1;
		else
			high = middle;
	}
	return low < (*bases)->len ? g_array_index(*bases, uint64_t, low) : UINT64_MAX;
}

/* Returns the part of .debug_addr that belongs to a unit. In DWARF 5 it has a header, with the
 * length, before the base. */
static struct elf_section address_part(struct debug_split *split, Dwarf_Die *real, bool is_5)
{
	const Elf_Data *table = get_table(split, ".debug_addr");
	uint64_t base = get_number(real, is_5 ? DW_AT_addr_base : DW_AT_GNU_addr_base);
	uint32_t length;

	if (!is_5)
		return slice(".debug_addr", table, base,
			     next_base(split, &split->addresses, DW_AT_GNU_addr_base, base));
	if (!table || base < ADDR_HEADER_BYTES || base > table->d_size)
		return (struct elf_section){ 0 };
	base -= ADDR_HEADER_BYTES;
	memcpy(&length, (const uint8_t *)table->d_buf + base, sizeof(length));
	return slice(".debug_addr", table, base, base + sizeof(length) + length);
}

static struct elf_section range_part(struct debug_split *split, Dwarf_Die *real)
{
	uint64_t base = get_number(real, DW_AT_GNU_ranges_base);

	return slice(".debug_ranges", get_table(split, ".debug_ranges"), base,
		     next_base(split, &split->ranges, DW_AT_GNU_ranges_base, base));
}

static GByteArray *build_skeleton(struct debug_split *split, Dwarf_Die *real, bool is_5,
				  uint64_t id, const char *name)
{
	g_autoptr(GByteArray) unit = g_byte_array_new();
	struct elf_section sections[4] = { 0 };
	Dwarf_Addr low = 0;

	if (dwarf_lowpc(real, &low) != 0)
		low = 0;
	put_unit(unit, is_5, id, low, name);
	sections[0] = (struct elf_section){ ".debug_info", unit->data, unit->len };
	sections[1] =
		(struct elf_section){ ".debug_abbrev", is_5 ? abbreviations_5 : abbreviations_4,
				      is_5 ? sizeof(abbreviations_5) : sizeof(abbreviations_4) };
	sections[2] = address_part(split, real, is_5);
	if (!is_5)
		sections[3] = range_part(split, real);
	return elf_sections_build(sections, ARRAY_SIZE(sections));
}

/* ---- both halves ----------------------------------------------------------------------------- */

/* Joins the halves if `fd` is a file with the half of that id. */
static struct debug_half *join(struct debug_split *split, Dwarf_Die *real, bool is_5, uint64_t id,
			       int fd)
{
	struct debug_half *half = g_new0(struct debug_half, 1);
	char name[32];
	Dwarf_CU *unit = NULL;
	Dwarf_Die skeleton;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	half->bytes = build_skeleton(split, real, is_5, id, name);
	half->elf = elf_memory((char *)half->bytes->data, half->bytes->len);
	half->dwarf = half->elf ? dwarf_begin_elf(half->elf, DWARF_C_READ, NULL) : NULL;
	if (half->dwarf &&
	    dwarf_get_units(half->dwarf, NULL, &unit, NULL, NULL, &skeleton, &half->unit) == 0 &&
	    half->unit.cu)
		return half;
	debug_half_free(half);
	return NULL;
}

static bool is_usable(int fd)
{
	struct elf_image *elf = elf_image_open(fd);
	bool usable = elf && debug_files_can_hold(elf);

	elf_image_free(elf);
	return usable;
}

/* Takes the fd. */
static struct debug_half *join_file(struct debug_split *split, Dwarf_Die *real, bool is_5,
				    uint64_t id, int opened)
{
	CLEANUP_CLOSE int fd = opened;

	return fd >= 0 && is_usable(fd) ? join(split, real, is_5, id, fd) : NULL;
}

static struct debug_package *open_package(const struct debug_split *split, const char *path)
{
	g_autofree char *name = path ? g_strconcat(path, ".dwp", NULL) : NULL;
	struct debug_package *package = NULL;
	guint at = 0;
	int fd = name ? debug_files_open_path(split->files, name) : -1;

	if (fd >= 0)
		package = debug_package_open(fd);
	while (name && !package && (fd = debug_files_open_below(split->files, name, &at)) >= 0)
		package = debug_package_open(fd);
	return package;
}

static struct debug_half *find_in_package(struct debug_split *split, Dwarf_Die *real, bool is_5,
					  uint64_t id)
{
	g_autoptr(GByteArray) bytes = NULL;
	CLEANUP_CLOSE int fd = -1;

	if (!split->looked_for_package) {
		split->looked_for_package = true;
		split->package = open_package(split, split->path);
		if (!split->package)
			split->package = open_package(split, split->debug_path);
	}
	bytes = split->package ? debug_package_extract(split->package, id) : NULL;
	fd = bytes ? memfd_create("dwo", MFD_CLOEXEC) : -1;
	if (fd < 0 || write(fd, bytes->data, bytes->len) != (ssize_t)bytes->len)
		return NULL;
	return join(split, real, is_5, id, fd);
}

static struct debug_half *find_beside(struct debug_split *split, Dwarf_Die *real, bool is_5,
				      uint64_t id, const char *path, const char *name)
{
	g_autofree char *folder = path ? g_path_get_dirname(path) : NULL;
	g_autofree char *beside = folder ? g_build_filename(folder, name, NULL) : NULL;

	return beside ? join_file(split, real, is_5, id,
				  debug_files_open_path(split->files, beside))
		      : NULL;
}

static struct debug_half *find_file(struct debug_split *split, Dwarf_Die *real, bool is_5,
				    uint64_t id, const char *name)
{
	const char *folder = get_string(real, DW_AT_comp_dir, DW_AT_comp_dir);
	g_autofree char *base = g_path_get_basename(name);
	g_autofree char *path = name[0] == '/' || !folder ? g_strdup(name)
							  : g_build_filename(folder, name, NULL);
	const char *const below[] = { path, base };
	struct debug_half *half =
		join_file(split, real, is_5, id, debug_files_open_path(split->files, path));

	if (!half)
		half = find_beside(split, real, is_5, id, split->path, name);
	if (!half)
		half = find_beside(split, real, is_5, id, split->debug_path, name);
	for (size_t i = 0; !half && i < ARRAY_SIZE(below); i++) {
		guint at = 0;
		int fd;

		while (!half && (fd = debug_files_open_below(split->files, below[i], &at)) >= 0)
			half = join_file(split, real, is_5, id, fd);
	}
	return half;
}

struct debug_half *debug_split_open(struct debug_split *split, Dwarf_Die *skeleton)
{
	const char *name = get_string(skeleton, DW_AT_dwo_name, DW_AT_GNU_dwo_name);
	struct debug_half *half;
	Dwarf_Half version;
	uint64_t id;

	if (!name || !name[0] ||
	    dwarf_cu_info(skeleton->cu, &version, NULL, NULL, NULL, &id, NULL, NULL) != 0)
		return NULL;
	half = find_in_package(split, skeleton, version >= 5, id);
	return half ? half : find_file(split, skeleton, version >= 5, id, name);
}
