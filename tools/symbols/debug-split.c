/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * libdw can join the halves of a unit, but it does not check the location or type of the file that
 * the skeleton (the half in the program) names, and it does not read packages. So libdw gets a
 * generated skeleton with the address and bases of the real one. This skeleton names a file that is
 * already open: /proc/self/fd/N. A unit in a package is copied to a file like the one that the
 * compiler wrote. The index of a package (.debug_cu_index, a hash table of ids) maps a unit to its
 * part of each section. Version 2 is GNU's for DWARF 4, version 5 is the standard's. All units
 * share the strings; a unit's strings are copied, and its string offsets adjusted. Parts that names
 * and lines do not need are omitted: locations, macros, type units.
 * Invariants: (1) only regular files are opened, and with a sysroot only files inside it
 *                 [test_split_dwarf: sysroot]
 *             (2) a half is used only if its id is the skeleton's  [test_split_dwarf: other]
 *             (3) nothing outside of a package's section is read, whatever the index says
 *                 [test-debug-package: hostile]
 *             (4) a lookup takes at most as many steps as the index has slots
 *                 [test-debug-package: full]
 *             (5) a unit of a package is no larger than MAX_UNIT_BYTES
 *                 [test-debug-package: hostile]
 */
#include "tools/symbols/debug-split.h"

#include "arch/base.h"
#include "tools/common/sorted.h"

#include <dwarf.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define MAX_TABLE_BYTES (UINT64_C(256) << 20)
#define MAX_UNIT_BYTES (UINT64_C(256) << 20)
#define MAX_COLUMNS 16
#define INDEX_HEADER_BYTES 16
#define STR_OFFSETS_HEADER_BYTES 8
#define ADDR_HEADER_BYTES 8

static void put(GByteArray *bytes, uint64_t value, guint size)
{
	value = htole64(value);
	g_byte_array_append(bytes, (const uint8_t *)&value, size);
}

/* ---- files of sections only ------------------------------------------------------------------ */

static void align(GByteArray *file)
{
	static const uint8_t zeros[8];

	g_byte_array_append(file, zeros, (8 - file->len % 8) % 8);
}

static void add_header(GArray *headers, GByteArray *names, const char *name, Elf64_Shdr header)
{
	header.sh_name = names->len;
	header.sh_addralign = 1;
	g_byte_array_append(names, (const uint8_t *)name, (guint)strlen(name) + 1);
	g_array_append_val(headers, header);
}

GByteArray *elf_sections_build(const struct elf_section *sections, size_t n)
{
	g_autoptr(GArray) headers = g_array_new(FALSE, TRUE, sizeof(Elf64_Shdr));
	g_autoptr(GByteArray) names = g_byte_array_new();
	GByteArray *file = g_byte_array_new();
	Elf64_Ehdr header = {
		.e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
			     EV_CURRENT },
		.e_type = ET_REL,
		.e_machine = EM_X86_64,
		.e_version = EV_CURRENT,
		.e_ehsize = sizeof(Elf64_Ehdr),
		.e_shentsize = sizeof(Elf64_Shdr),
	};

	g_array_set_size(headers, 1);
	g_byte_array_append(names, (const uint8_t *)"", 1);
	g_byte_array_append(file, (const uint8_t *)&header, sizeof(header));
	for (size_t i = 0; i < n; i++) {
		if (sections[i].size == 0)
			continue;
		align(file);
		add_header(headers, names, sections[i].name,
			   (Elf64_Shdr){ .sh_type = SHT_PROGBITS,
					 .sh_offset = file->len,
					 .sh_size = sections[i].size });
		g_byte_array_append(file, sections[i].bytes, (guint)sections[i].size);
	}
	header.e_shstrndx = (Elf64_Half)headers->len;
	add_header(headers, names, ".shstrtab",
		   (Elf64_Shdr){ .sh_type = SHT_STRTAB, .sh_offset = file->len });
	g_array_index(headers, Elf64_Shdr, header.e_shstrndx).sh_size = names->len;
	g_byte_array_append(file, names->data, names->len);
	align(file);
	header.e_shoff = file->len;
	header.e_shnum = (Elf64_Half)headers->len;
	g_byte_array_append(file, (const uint8_t *)headers->data,
			    headers->len * (guint)sizeof(Elf64_Shdr));
	memcpy(file->data, &header, sizeof(header));
	return file;
}

/* ---- packages -------------------------------------------------------------------------------- */

/* The parts of a package that are used, in the order of the output. */
enum part { INFO, ABBREV, LINE, STR_OFFSETS, RNGLISTS, STR, N_PARTS };

static const struct {
	const char *name;
	uint32_t id[2]; /* ids of the part's column in an index of version 2 and of version 5 */
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

static const Elf_Data *package_data(const struct debug_package *package, const char *name)
{
	GElf_Shdr header;
	Elf_Scn *section = elf_image_get_section(package->elf, name, &header);

	return section ? elf_image_get_data(package->elf, section) : NULL;
}

static bool read_index(struct debug_package *package)
{
	const Elf_Data *data = package_data(package, ".debug_cu_index");
	uint32_t version;
	uint64_t bytes;

	if (!data || data->d_size < INDEX_HEADER_BYTES)
		return false;
	package->index = data->d_buf;
	version = load_le32(package->index);
	package->is_5 = (version & 0xffff) == 5;
	package->columns = load_le32(package->index + 4);
	package->units = load_le32(package->index + 8);
	package->slots = load_le32(package->index + 12);
	if ((version != 2 && !package->is_5) || package->columns == 0 ||
	    package->columns > MAX_COLUMNS || package->slots == 0 ||
	    (package->slots & (package->slots - 1)) != 0)
		return false;
	bytes = INDEX_HEADER_BYTES + (uint64_t)package->slots * 12 +
		package->columns * UINT64_C(4) + (uint64_t)package->units * package->columns * 8;
	return bytes <= data->d_size;
}

void debug_package_free(struct debug_package *package)
{
	if (!package)
		return;
	elf_image_free(package->elf);
	g_free(package);
}

struct debug_package *debug_package_open(int fd)
{
	struct debug_package *package = g_new0(struct debug_package, 1);

	package->elf = elf_image_take(fd);
	if (package->elf && package->elf->is_64 && read_index(package)) {
		package->strings = package_data(package, parts[STR].name);
		return package;
	}
	debug_package_free(package);
	return NULL;
}

/* Returns the row of a unit, counted from 1; 0: not found. */
static uint32_t find_row(const struct debug_package *package, uint64_t id)
{
	const uint8_t *ids = package->index + INDEX_HEADER_BYTES;
	const uint8_t *rows = ids + (size_t)package->slots * 8;
	uint32_t mask = package->slots - 1;
	uint32_t at = (uint32_t)id & mask, step = ((uint32_t)(id >> 32) & mask) | 1;

	for (uint32_t i = 0; i < package->slots; i++, at = (at + step) & mask) {
		uint32_t row = load_le32(rows + (size_t)at * 4);

		if (row == 0 || row > package->units)
			return 0;
		if (load_le64(ids + (size_t)at * 8) == id)
			return row;
	}
	return 0;
}

/* Reads a unit's part of a section; empty if it has none. Returns false if bytes are missing. */
static bool read_part(const struct debug_package *package, uint32_t row, enum part part,
		      GByteArray *bytes)
{
	const uint8_t *ids = package->index + INDEX_HEADER_BYTES + (size_t)package->slots * 12;
	const uint8_t *offsets = ids + package->columns * 4 * (size_t)row;
	const uint8_t *sizes = offsets + package->columns * 4 * (size_t)package->units;
	GElf_Shdr header;
	uint32_t column = 0, offset, size;

	while (column < package->columns &&
	       load_le32(ids + (size_t)column * 4) != parts[part].id[package->is_5])
		column++;
	if (column == package->columns || parts[part].id[package->is_5] == 0)
		return true;
	offset = load_le32(offsets + (size_t)column * 4);
	size = load_le32(sizes + (size_t)column * 4);
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

/* Copies the strings of the unit. A missing string becomes empty. */
static bool copy_strings(const struct debug_package *package, GByteArray *offsets,
			 GByteArray *strings)
{
	size_t n = package->strings ? package->strings->d_size : 0;
	const char *text = n ? package->strings->d_buf : NULL;

	g_byte_array_append(strings, (const uint8_t *)"", 1);
	for (guint at = package->is_5 ? STR_OFFSETS_HEADER_BYTES : 0; at + 4 <= offsets->len;
	     at += 4) {
		uint32_t from = load_le32(offsets->data + at), to = strings->len;
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

/* ---- split files ----------------------------------------------------------------------------- */

struct debug_split {
	const struct debug_files *files;
	Dwarf *dwarf;
	char *path, *debug_path;
	struct debug_package *package;
	bool looked_for_package;
	GArray *addresses, *ranges; /* uint64_t, sorted: the bases of all DWARF 4 units */
};

/* A unit whose other half is searched for. */
struct skeleton {
	Dwarf_Die *die;
	bool is_5; /* DWARF 5 */
	uint64_t id;
};

struct debug_half {
	GByteArray *bytes; /* bytes of the generated skeleton */
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
	g_clear_pointer(&split->addresses, g_array_unref);
	g_clear_pointer(&split->ranges, g_array_unref);
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
	g_clear_pointer(&half->bytes, g_byte_array_unref);
	g_free(half);
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

/* Returns a section of the file that has the skeletons. libdw has already unpacked it. */
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

/* Returns a part of a table; empty if the part is missing or too large. */
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

/* Writes a unit with one DIE: the name of the other half, address, bases, and in DWARF 4 the id;
 * DWARF 5 has the id in the header. */
static void put_unit(GByteArray *bytes, const struct skeleton *of, uint64_t address,
		     const char *name)
{
	put(bytes, 0, 4); /* the length */
	put(bytes, of->is_5 ? 5 : 4, 2);
	if (of->is_5)
		put(bytes, DW_UT_skeleton | 8 << 8, 2);
	put(bytes, 0, 4);
	put(bytes, of->is_5 ? of->id : 8, of->is_5 ? 8 : 1);
	put(bytes, 1, 1);
	put(bytes, address, 8);
	put(bytes, of->is_5 ? ADDR_HEADER_BYTES : 0, 4);
	if (!of->is_5) {
		put(bytes, of->id, 8);
		put(bytes, 0, 4);
	}
	g_byte_array_append(bytes, (const uint8_t *)name, (guint)strlen(name) + 1);
	store_le32(bytes->data, bytes->len - 4);
}

/* clang-format off */
static const uint8_t abbreviations_5[] = {
	1, DW_TAG_skeleton_unit, DW_CHILDREN_no,
	DW_AT_low_pc, DW_FORM_addr, DW_AT_addr_base, DW_FORM_sec_offset, DW_AT_dwo_name, DW_FORM_string,
	0, 0, 0,
};

/* The GNU attributes are 0x2130 to 0x2133, as LEB128 of two bytes. */
static const uint8_t abbreviations_4[] = {
	1, DW_TAG_compile_unit, DW_CHILDREN_no,
	DW_AT_low_pc, DW_FORM_addr, 0xb3, 0x42, DW_FORM_sec_offset, 0xb1, 0x42, DW_FORM_data8,
	0xb2, 0x42, DW_FORM_sec_offset, 0xb0, 0x42, DW_FORM_string,
	0, 0, 0,
};
/* clang-format on */

/* Returns the end of a unit's part of a DWARF 4 table, which stores no sizes: the next unit's
 * base. */
static uint64_t next_base(const struct debug_split *split, GArray **bases, unsigned int name,
			  uint64_t base)
{
	Dwarf_CU *unit = NULL;
	Dwarf_Die die;
	guint n;

	if (!*bases) {
		*bases = g_array_new(FALSE, FALSE, sizeof(uint64_t));
		while (dwarf_get_units(split->dwarf, unit, &unit, NULL, NULL, &die, NULL) == 0) {
			uint64_t of_unit = get_number(&die, name);

			g_array_append_val(*bases, of_unit);
		}
		g_array_sort(*bases, sorted_compare);
	}
	n = sorted_array_upto(*bases, sizeof(uint64_t), base);
	return n < (*bases)->len ? g_array_index(*bases, uint64_t, n) : UINT64_MAX;
}

/* Returns a unit's part of .debug_addr. In DWARF 5, a header with the length precedes the base. */
static struct elf_section address_part(struct debug_split *split, const struct skeleton *of)
{
	const Elf_Data *table = get_table(split, ".debug_addr");
	uint64_t base = get_number(of->die, of->is_5 ? DW_AT_addr_base : DW_AT_GNU_addr_base);

	if (!of->is_5)
		return slice(".debug_addr", table, base,
			     next_base(split, &split->addresses, DW_AT_GNU_addr_base, base));
	if (!table || base < ADDR_HEADER_BYTES || base > table->d_size)
		return (struct elf_section){ 0 };
	base -= ADDR_HEADER_BYTES;
	return slice(".debug_addr", table, base,
		     base + 4 + load_le32((const uint8_t *)table->d_buf + base));
}

static GByteArray *build_skeleton(struct debug_split *split, const struct skeleton *of,
				  const char *name)
{
	g_autoptr(GByteArray) unit = g_byte_array_new();
	uint64_t ranges = of->is_5 ? 0 : get_number(of->die, DW_AT_GNU_ranges_base);
	struct elf_section sections[4] = { 0 };
	Dwarf_Addr low = 0;

	if (dwarf_lowpc(of->die, &low) != 0)
		low = 0;
	put_unit(unit, of, low, name);
	sections[0] = (struct elf_section){ ".debug_info", unit->data, unit->len };
	sections[1] = (struct elf_section){ ".debug_abbrev",
					    of->is_5 ? abbreviations_5 : abbreviations_4,
					    of->is_5 ? sizeof(abbreviations_5)
						     : sizeof(abbreviations_4) };
	sections[2] = address_part(split, of);
	if (!of->is_5)
		sections[3] =
			slice(".debug_ranges", get_table(split, ".debug_ranges"), ranges,
			      next_base(split, &split->ranges, DW_AT_GNU_ranges_base, ranges));
	return elf_sections_build(sections, ARRAY_SIZE(sections));
}

/* ---- both halves ----------------------------------------------------------------------------- */

/* Joins the halves. Returns NULL if `fd` does not have the half with the skeleton's id. */
static struct debug_half *join(struct debug_split *split, const struct skeleton *of, int fd)
{
	struct debug_half *half = g_new0(struct debug_half, 1);
	char name[32];
	Dwarf_CU *unit = NULL;
	Dwarf_Die skeleton;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	half->bytes = build_skeleton(split, of, name);
	half->elf = elf_memory((char *)half->bytes->data, half->bytes->len);
	half->dwarf = half->elf ? dwarf_begin_elf(half->elf, DWARF_C_READ, NULL) : NULL;
	if (half->dwarf &&
	    dwarf_get_units(half->dwarf, NULL, &unit, NULL, NULL, &skeleton, &half->unit) == 0 &&
	    half->unit.cu)
		return half;
	debug_half_free(half);
	return NULL;
}

/* Takes ownership of `opened`. */
static struct debug_half *join_file(struct debug_split *split, const struct skeleton *of,
				    int opened)
{
	CLEANUP_CLOSE int fd = opened;
	struct elf_image *elf = fd >= 0 ? elf_image_open(fd) : NULL;
	bool is_usable = elf && debug_files_can_hold(elf);

	elf_image_free(elf);
	return is_usable ? join(split, of, fd) : NULL;
}

static struct debug_package *open_package(const struct debug_split *split, const char *path)
{
	g_autofree char *name = path ? g_strconcat(path, ".dwp", NULL) : NULL;
	struct debug_package *package = NULL;
	guint at = 0;
	int fd = name ? debug_files_open_path(split->files, name) : -1;

	if (fd >= 0)
		package = debug_package_open(fd);
	while (name && !package &&
	       (fd = debug_files_open_below(split->files, name, &at, NULL)) >= 0)
		package = debug_package_open(fd);
	return package;
}

static struct debug_half *find_in_package(struct debug_split *split, const struct skeleton *of)
{
	g_autoptr(GByteArray) bytes = NULL;
	CLEANUP_CLOSE int fd = -1;

	if (!split->looked_for_package) {
		split->looked_for_package = true;
		split->package = open_package(split, split->path);
		if (!split->package)
			split->package = open_package(split, split->debug_path);
	}
	bytes = split->package ? debug_package_extract(split->package, of->id) : NULL;
	fd = bytes ? memfd_create("dwo", MFD_CLOEXEC) : -1;
	if (fd < 0 || write(fd, bytes->data, bytes->len) != (ssize_t)bytes->len)
		return NULL;
	return join(split, of, fd);
}

static struct debug_half *find_file(struct debug_split *split, const struct skeleton *of,
				    const char *name)
{
	const char *folder = get_string(of->die, DW_AT_comp_dir, DW_AT_comp_dir);
	const char *const programs[] = { split->path, split->debug_path };
	g_autofree char *base = g_path_get_basename(name);
	g_autofree char *path = name[0] == '/' || !folder ? g_strdup(name)
							  : g_build_filename(folder, name, NULL);
	const char *const below[] = { path, base };
	struct debug_half *half = join_file(split, of, debug_files_open_path(split->files, path));

	for (size_t i = 0; !half && i < ARRAY_SIZE(programs); i++) {
		g_autofree char *near = programs[i] ? g_path_get_dirname(programs[i]) : NULL;
		g_autofree char *beside = near ? g_build_filename(near, name, NULL) : NULL;

		half = join_file(split, of, debug_files_open_path(split->files, beside));
	}
	for (size_t i = 0; !half && i < ARRAY_SIZE(below); i++) {
		guint at = 0;
		int fd;

		while (!half &&
		       (fd = debug_files_open_below(split->files, below[i], &at, NULL)) >= 0)
			half = join_file(split, of, fd);
	}
	return half;
}

struct debug_half *debug_split_open(struct debug_split *split, Dwarf_Die *skeleton,
				    Dwarf_Die *ret_unit)
{
	const char *name = get_string(skeleton, DW_AT_dwo_name, DW_AT_GNU_dwo_name);
	struct skeleton of = { .die = skeleton };
	struct debug_half *half;
	Dwarf_Half version;

	if (!name || !name[0] ||
	    dwarf_cu_info(skeleton->cu, &version, NULL, NULL, NULL, &of.id, NULL, NULL) != 0)
		return NULL;
	of.is_5 = version >= 5;
	half = find_in_package(split, &of);
	if (!half)
		half = find_file(split, &of, name);
	if (half)
		*ret_unit = half->unit;
	return half;
}
