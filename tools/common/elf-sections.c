/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * ELF sections - builds an ELF file of named sections only
 *
 * Header, the bytes of the sections, their names, the table of sections.
 */
#include "tools/common/elf-sections.h"

#include <elf.h>
#include <string.h>

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
