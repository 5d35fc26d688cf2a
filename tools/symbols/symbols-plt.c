/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Symbols of PLT entries - "foo@plt"
 *
 * An entry of .plt, .plt.sec or .plt.got jumps through a slot of the global offset table, and the
 * relocation of that slot names the function. The jump is decoded rather than counted, because the
 * linker chooses the order of entries and relocations. An entry that cannot be decoded, or whose
 * slot has no named relocation (IRELATIVE), gets no name here.
 */
#include "arch/base.h"
#include "tools/common/sorted.h"
#include "tools/symbols/symbols-source.h"

#define MAX_ENTRY_BYTES 16

/* A place in a PLT: its entry, and the slot through which the entry jumps. */
struct entry {
	uint64_t slot;
	const struct symbols_place *place;
	uint64_t start, end;
};

/* [endbr64] [bnd] jmp *slot(%rip) */
static bool decode_x86_64(const uint8_t *code, size_t size, uint64_t address, uint64_t *ret_slot)
{
	static const uint8_t endbr64[] = { 0xf3, 0x0f, 0x1e, 0xfa };
	size_t at = 0;

	if (size >= sizeof(endbr64) && memcmp(code, endbr64, sizeof(endbr64)) == 0)
		at += sizeof(endbr64);
	if (at < size && code[at] == 0xf2)
		at++;
	if (at + 6 > size || code[at] != 0xff || code[at + 1] != 0x25)
		return false;
	*ret_slot = address + at + 6 + (uint64_t)(int64_t)(int32_t)load_le32(code + at + 2);
	return true;
}

/* [bti c]; adrp x16, page; ldr x17, [x16, #low] */
static bool decode_aarch64(const uint8_t *code, size_t size, uint64_t address, uint64_t *ret_slot)
{
	size_t at = size >= 4 && load_le32(code) == 0xd503245f ? 4 : 0;
	uint32_t adrp, ldr;
	int64_t pages;

	if (at + 8 > size)
		return false;
	adrp = load_le32(code + at);
	ldr = load_le32(code + at + 4);
	if ((adrp & 0x9f00001f) != 0x90000010 || (ldr & 0xffc003ff) != 0xf9400211)
		return false;
	pages = (int64_t)((uint64_t)((adrp >> 5 & 0x7ffff) << 2 | (adrp >> 29 & 3)) << 43) >> 43;
	*ret_slot = ((address + at) & ~UINT64_C(0xfff)) + (uint64_t)pages * 4096 +
		    (ldr >> 10 & 0xfff) * 8;
	return true;
}

static const struct {
	uint16_t machine;
	bool (*decode)(const uint8_t *code, size_t size, uint64_t address, uint64_t *ret_slot);
} decoders[] = {
	{ EM_X86_64, decode_x86_64 },
	{ EM_AARCH64, decode_aarch64 },
};

static bool decode(const struct elf_image *elf, struct entry *entry)
{
	uint8_t code[MAX_ENTRY_BYTES];
	size_t size = MIN_OF(entry->end - entry->start, sizeof(code));

	size = elf_image_read(elf, entry->start, code, size);
	for (size_t i = 0; i < ARRAY_SIZE(decoders); i++)
		if (decoders[i].machine == elf->machine)
			return decoders[i].decode(code, size, entry->start, &entry->slot);
	return false;
}

/* Adds the entry of each place in a PLT section, if the entry's jump can be decoded. */
static void add_entries(struct symbols_query *query, const char *name, GArray *entries)
{
	struct elf_range plt;
	GElf_Shdr header;
	uint64_t size;

	if (!elf_image_get_section(query->elf, name, &header) ||
	    !add_u64(header.sh_addr, header.sh_size, &plt.end))
		return;
	plt.start = header.sh_addr;
	size = header.sh_entsize == 8 || header.sh_entsize == 16 ? header.sh_entsize : 16;
	for (size_t i = 0; i < query->n_places; i++) {
		struct entry entry = { .place = &query->places[i] };
		uint64_t address = entry.place->address;

		if (address < plt.start || address >= plt.end)
			continue;
		entry.start = address - (address - plt.start) % size;
		entry.end = MIN_OF(entry.start + size, plt.end);
		if (decode(query->elf, &entry))
			g_array_append_val(entries, entry);
	}
}

static void name_entries(struct symbols_query *query, const GArray *entries, uint64_t slot,
			 const char *function)
{
	g_autofree char *name = g_strconcat(function, "@plt", NULL);

	for (size_t low = sorted_below(entries->data, entries->len, sizeof(struct entry), slot);
	     low < entries->len; low++) {
		const struct entry *entry = &g_array_index(entries, struct entry, low);

		if (entry->slot != slot)
			break;
		symbols_query_add(query, entry->place, entry->start, entry->end, name,
				  SYMBOLS_FROM_PLT);
	}
}

static void read_relocations(struct symbols_query *query, const char *section_name,
			     const GArray *entries)
{
	Elf_Data *relocations, *symbols;
	Elf_Scn *section, *table;
	GElf_Shdr header, table_header;
	uint64_t first, last;

	section = elf_image_get_section(query->elf, section_name, &header);
	if (!section || header.sh_type != SHT_RELA)
		return;
	table = elf_getscn(query->elf->elf, header.sh_link);
	if (!table || !gelf_getshdr(table, &table_header) || table_header.sh_type != SHT_DYNSYM)
		return;
	relocations = elf_image_get_data(query->elf, section);
	symbols = elf_image_get_data(query->elf, table);
	if (!relocations || !symbols)
		return;
	first = g_array_index(entries, struct entry, 0).slot;
	last = g_array_index(entries, struct entry, entries->len - 1).slot;
	for (int i = 0;; i++) {
		const char *function;
		GElf_Rela relocation;
		GElf_Sym symbol;
		uint64_t index;

		if (!gelf_getrela(relocations, i, &relocation))
			break;
		index = GELF_R_SYM(relocation.r_info);
		if (relocation.r_offset < first || relocation.r_offset > last || index == 0 ||
		    index > INT32_MAX || !gelf_getsym(symbols, (int)index, &symbol))
			continue;
		function = elf_image_get_string(query->elf, table_header.sh_link, symbol.st_name);
		if (function && function[0] != '\0')
			name_entries(query, entries, relocation.r_offset, function);
	}
}

void symbols_plt_read(struct symbols_query *query)
{
	g_autoptr(GArray) entries = g_array_new(FALSE, FALSE, sizeof(struct entry));

	add_entries(query, ".plt.sec", entries);
	add_entries(query, ".plt", entries);
	add_entries(query, ".plt.got", entries);
	if (entries->len == 0)
		return;
	g_array_sort(entries, sorted_compare);
	read_relocations(query, ".rela.plt", entries);
	read_relocations(query, ".rela.dyn", entries);
}
