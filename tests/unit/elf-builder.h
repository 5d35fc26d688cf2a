/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * ELF-builder - builds small, valid or broken ELF files, for tests
 *
 * Layout: headers and notes at offset 0, 0x800 bytes of code at 0x1000 (.text), 0x80 bytes after it
 * (.fini), call frame information at 0x2000, symbol tables from 0x3000 on. Addresses are offset +
 * 0x400000 for headers and code, and + 0x401000 for all data after the code, so that tests detect
 * the use of an offset as an address.
 * The caller provides symbols and FDEs.
 */
#pragma once

#include "arch/base.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>

#define BUILD_TEXT_OFFSET 0x1000u
#define BUILD_TEXT_BYTES 0x800u
#define BUILD_FINI_OFFSET 0x1800u
#define BUILD_FINI_BYTES 0x80u
#define BUILD_FRAME_OFFSET 0x2000u
#define BUILD_CODE_BIAS 0x400000u
#define BUILD_DATA_BIAS 0x401000u
#define BUILD_FILE_BYTES 0x5000u

struct build_symbol {
	uint64_t address;
	uint64_t size;
	const char *name;
	uint8_t type;
	uint8_t binding;
	bool dynamic;
};

struct build_fde {
	uint64_t address;
	uint32_t length;
};

struct build {
	const struct build_symbol *symbols;
	size_t n_symbols;
	const struct build_fde *fdes; /* in ascending order */
	size_t n_fdes;
	bool no_table;    /* without .eh_frame_hdr */
	bool lying_table; /* all entries of the table point to the first FDE */
	bool no_sections;
	uint16_t machine; /* 0 = x86-64 */
	uint8_t build_id[20];
	size_t build_id_size; /* 0 = none */
};

struct builder {
	const struct build *build;
	uint8_t *file;
	size_t names; /* current end of .shstrtab */
	size_t n_sections;
};

#define BUILD_NAMES_OFFSET 0x4c00u
#define BUILD_SECTIONS_OFFSET 0x4800u

static void build_section(struct builder *builder, const char *name, Elf64_Shdr header)
{
	header.sh_name = (uint32_t)builder->names;
	memcpy(builder->file + BUILD_NAMES_OFFSET + builder->names, name, strlen(name) + 1);
	builder->names += strlen(name) + 1;
	memcpy(builder->file + BUILD_SECTIONS_OFFSET + builder->n_sections++ * sizeof(header),
	       &header, sizeof(header));
}

/* Writes .eh_frame_hdr, and .eh_frame: a CIE with "zR" (pcrel|sdata4), the FDEs, a terminator.
 * Returns the size of .eh_frame. */
static size_t build_frames(const struct build *build, uint8_t *file)
{
	static const uint8_t cie[] = { 12, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1 };
	size_t table = BUILD_FRAME_OFFSET, frames = table + 12 + 8 * build->n_fdes;
	size_t at = frames + sizeof(cie) + 1 + 3;
	size_t first = at;

	memcpy(file + frames, cie, sizeof(cie));
	store_le32(file + frames, sizeof(cie) - 4 + 1 + 3); /* with the encoding and padding */
	file[frames + sizeof(cie)] = 0x1b;
	for (size_t i = 0; i < build->n_fdes; i++, at += 20) {
		store_le32(file + at, 16);
		store_le32(file + at + 4, (uint32_t)(at + 4 - frames));
		store_le32(file + at + 8,
			   (uint32_t)(build->fdes[i].address - (at + 8 + BUILD_DATA_BIAS)));
		store_le32(file + at + 12, build->fdes[i].length);
		store_le32(file + table + 12 + 8 * i,
			   (uint32_t)(build->fdes[i].address - (table + BUILD_DATA_BIAS)));
		store_le32(file + table + 16 + 8 * i,
			   (uint32_t)((build->lying_table ? first : at) - table));
	}
	memcpy(file + table, "\1\x1b\3\x3b", 4);
	store_le32(file + table + 4, (uint32_t)(frames - (table + 4)));
	store_le32(file + table + 8, (uint32_t)build->n_fdes);
	return at + 4 - frames;
}

/* Writes a symbol table and its strings. Returns the number of symbols, with the null symbol. */
static size_t build_symbols(const struct build *build, uint8_t *file, size_t table, size_t strings,
			    bool dynamic)
{
	size_t n = 1, at = 1;

	for (size_t i = 0; i < build->n_symbols; i++) {
		const struct build_symbol *symbol = &build->symbols[i];
		Elf64_Sym entry = {
			.st_name = (uint32_t)at,
			.st_info = ELF64_ST_INFO(symbol->binding, symbol->type),
			.st_shndx = 1,
			.st_value = symbol->address,
			.st_size = symbol->size,
		};

		if (symbol->dynamic != dynamic)
			continue;
		memcpy(file + table + n++ * sizeof(entry), &entry, sizeof(entry));
		memcpy(file + strings + at, symbol->name, strlen(symbol->name) + 1);
		at += strlen(symbol->name) + 1;
	}
	return n;
}

static void build_sections(struct builder *builder, size_t frame_bytes)
{
	const struct build *build = builder->build;
	size_t symbols = build_symbols(build, builder->file, 0x3000, 0x3800, false);
	size_t dynamic = build_symbols(build, builder->file, 0x4000, 0x4400, true);
	size_t frames = BUILD_FRAME_OFFSET + 12 + 8 * build->n_fdes;
	const uint64_t code = SHF_ALLOC | SHF_EXECINSTR;

	builder->names = 1;
	builder->n_sections = 1;
	build_section(builder, ".text",
		      (Elf64_Shdr){ .sh_type = SHT_PROGBITS,
				    .sh_flags = code,
				    .sh_addr = BUILD_TEXT_OFFSET + BUILD_CODE_BIAS,
				    .sh_offset = BUILD_TEXT_OFFSET,
				    .sh_size = BUILD_TEXT_BYTES });
	build_section(builder, ".fini",
		      (Elf64_Shdr){ .sh_type = SHT_PROGBITS,
				    .sh_flags = code,
				    .sh_addr = BUILD_FINI_OFFSET + BUILD_CODE_BIAS,
				    .sh_offset = BUILD_FINI_OFFSET,
				    .sh_size = BUILD_FINI_BYTES });
	build_section(builder, ".eh_frame",
		      (Elf64_Shdr){ .sh_type = SHT_PROGBITS,
				    .sh_flags = SHF_ALLOC,
				    .sh_addr = frames + BUILD_DATA_BIAS,
				    .sh_offset = frames,
				    .sh_size = frame_bytes });
	build_section(builder, ".symtab",
		      (Elf64_Shdr){ .sh_type = SHT_SYMTAB,
				    .sh_offset = 0x3000,
				    .sh_size = symbols * sizeof(Elf64_Sym),
				    .sh_link = 5,
				    .sh_entsize = sizeof(Elf64_Sym) });
	build_section(builder, ".strtab",
		      (Elf64_Shdr){ .sh_type = SHT_STRTAB, .sh_offset = 0x3800, .sh_size = 0x800 });
	build_section(builder, ".dynsym",
		      (Elf64_Shdr){ .sh_type = SHT_DYNSYM,
				    .sh_offset = 0x4000,
				    .sh_size = dynamic * sizeof(Elf64_Sym),
				    .sh_link = 7,
				    .sh_entsize = sizeof(Elf64_Sym) });
	build_section(builder, ".dynstr",
		      (Elf64_Shdr){ .sh_type = SHT_STRTAB, .sh_offset = 0x4400, .sh_size = 0x400 });
	build_section(builder, ".shstrtab",
		      (Elf64_Shdr){ .sh_type = SHT_STRTAB,
				    .sh_offset = BUILD_NAMES_OFFSET,
				    .sh_size = 0x400 });
}

static void build_segments(const struct build *build, uint8_t *file, size_t frame_bytes)
{
	size_t frames = 12 + 8 * build->n_fdes + frame_bytes;
	const Elf64_Phdr headers[] = {
		{ .p_type = PT_LOAD,
		  .p_flags = PF_R,
		  .p_filesz = 0x1000,
		  .p_memsz = 0x1000,
		  .p_vaddr = BUILD_CODE_BIAS },
		{ .p_type = PT_LOAD,
		  .p_flags = PF_R | PF_X,
		  .p_offset = BUILD_TEXT_OFFSET,
		  .p_vaddr = BUILD_TEXT_OFFSET + BUILD_CODE_BIAS,
		  .p_filesz = 0x1000,
		  .p_memsz = 0x1000 },
		{ .p_type = PT_LOAD,
		  .p_flags = PF_R,
		  .p_offset = BUILD_FRAME_OFFSET,
		  .p_vaddr = BUILD_FRAME_OFFSET + BUILD_DATA_BIAS,
		  .p_filesz = 0x1000,
		  .p_memsz = 0x1000 },
		{ .p_type = PT_NOTE,
		  .p_offset = 0x400,
		  .p_vaddr = 0x400 + BUILD_CODE_BIAS,
		  .p_align = 4,
		  .p_filesz = build->build_id_size ? 16 + 20 : 0 },
		{ .p_type = build->no_table ? PT_NULL : PT_GNU_EH_FRAME,
		  .p_offset = BUILD_FRAME_OFFSET,
		  .p_vaddr = BUILD_FRAME_OFFSET + BUILD_DATA_BIAS,
		  .p_filesz = frames },
	};

	memcpy(file + sizeof(Elf64_Ehdr), headers, sizeof(headers));
	store_le32(file + 0x400, 4);
	store_le32(file + 0x404, (uint32_t)build->build_id_size);
	store_le32(file + 0x408, NT_GNU_BUILD_ID);
	memcpy(file + 0x40c, "GNU", 4);
	memcpy(file + 0x410, build->build_id, sizeof(build->build_id));
}

/* Returns a memfd with the file. */
static int build_elf(const struct build *build)
{
	uint8_t *file = calloc(1, BUILD_FILE_BYTES);
	struct builder builder = { .build = build, .file = file };
	Elf64_Ehdr header = {
		.e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
			     EV_CURRENT },
		.e_type = ET_EXEC,
		.e_machine = build->machine ? build->machine : EM_X86_64,
		.e_version = EV_CURRENT,
		.e_phoff = sizeof(header),
		.e_ehsize = sizeof(header),
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = 5,
		.e_shentsize = sizeof(Elf64_Shdr),
	};
	int fd = memfd_create("elf", MFD_CLOEXEC);
	size_t frame_bytes = build_frames(build, file);

	build_segments(build, file, frame_bytes);
	if (!build->no_sections) {
		build_sections(&builder, frame_bytes);
		header.e_shoff = BUILD_SECTIONS_OFFSET;
		header.e_shnum = (uint16_t)builder.n_sections;
		header.e_shstrndx = (uint16_t)(builder.n_sections - 1);
	}
	memcpy(file, &header, sizeof(header));
	if (write(fd, file, BUILD_FILE_BYTES) != BUILD_FILE_BYTES)
		abort();
	free(file);
	return fd;
}
