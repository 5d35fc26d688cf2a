/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Unwind file - compiles the unwind table of an ELF file
 *
 * The headers and the CFI of the file are read into memory: if the file is truncated meanwhile, a
 * read is short, but a mapping would raise SIGBUS. Section headers locate .eh_frame and
 * .debug_frame. Without them, PT_GNU_EH_FRAME locates .eh_frame, which is read up to the end of its
 * segment. Go's linker and `gcc -gz` compress .debug_frame. A Go program without .debug_frame gets
 * one from .gopclntab. The sizes of frames of functions that keep a frame pointer are read from
 * their code (arch/prologue.h), on request. The file may be hostile.
 * Invariants:
 *      (1) the file is not trusted: all lengths and offsets are checked, work is linear
 *          [fuzz_unwind_file]
 *      (2) sections take at most max_bytes of memory together, packed and unpacked
 *                                             [test-engine-unwind: bad_files, packed, lying_packed]
 * Thread-safe: no state. See elf(5) for Elf64_Chdr, and the Linux Standard Base Core 5.0, section
 * 10.6, for .eh_frame_hdr.
 */
#include "daemon/engine/unwind/unwind-file.h"

#include "arch/base.h"
#include "arch/prologue.h"
#include "daemon/engine/unwind/go-frames.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#define MAX_PROGRAM_HEADERS 256
#define MAX_NAMES_BYTES (1u << 20)
#define MAX_ZLIB_RATIO 1032                /* maximum compression ratio of deflate */
#define PACKED_ZSTD 2                      /* ELFCOMPRESS_ZSTD of newer <elf.h> */
#define MAX_SEARCHED_ROWS 4096u            /* limit of the search for where a function sets fp */
#define MAX_BASE_BYTES (UINT64_C(4) << 20) /* limit for compile_base() */
#define PACKED_BY_GNU 12 /* bytes of the header: "ZLIB", and the size as 64 bits, big-endian */

struct loader {
	const struct unwind_source *source;
	uint64_t max_bytes, section_bytes; /* memory for all sections: limit; in use */
	enum regs_arch arch;
	Elf64_Ehdr header;
	Elf64_Phdr *segments;
	size_t n_segments;
	struct cfi_section sections[2]; /* .eh_frame first: its entries take precedence */
	uint8_t *bytes[2];              /* memory of the sections; owned */
	size_t n_sections;
};

/* ---- Reading ---- */

static int read_at(const struct unwind_source *source, uint64_t offset, void *buffer, size_t size)
{
	size_t done = 0;
	ssize_t n;

	if (source->fd < 0) {
		if (offset > source->size || source->size - offset < size)
			return ENOEXEC;
		memcpy(buffer, source->bytes + offset, size);
		return 0;
	}
	if (offset > INT64_MAX - size)
		return ENOEXEC;
	while (done < size) {
		n = pread(source->fd, (uint8_t *)buffer + done, size - done,
			  (off_t)(offset + done));
		if (n < 0 && errno != EINTR)
			return errno;
		if (n == 0)
			return ENOEXEC;
		done += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

/* Reads `size` bytes at `offset` into memory that the caller frees. Reads in growing parts, so that
 * a false size costs little memory. */
static int read_new(const struct loader *loader, uint64_t offset, uint64_t size, void **ret_bytes)
{
	uint8_t *bytes = NULL, *grown;
	size_t done = 0, part;
	int r = 0;

	if (size == 0 || size > loader->max_bytes - loader->section_bytes)
		return size ? E2BIG : ENODATA;
	while (r == 0 && done < size) {
		part = MIN_OF(size - done, MAX_OF(done, (size_t)(1u << 20)));
		grown = realloc(bytes, done + part);
		if (!grown) {
			r = ENOMEM;
			break;
		}
		bytes = grown;
		r = read_at(loader->source, offset + done, bytes + done, part);
		done += part;
	}
	if (r != 0) {
		free(bytes);
		return r;
	}
	*ret_bytes = bytes;
	return 0;
}

static int read_headers(struct loader *loader)
{
	Elf64_Ehdr *header = &loader->header;
	void *segments;
	int r = read_at(loader->source, 0, header, sizeof(*header));

	if (r != 0)
		return r;
	loader->arch = regs_of_elf(header->e_machine);
	if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
	    header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB ||
	    loader->arch == REGS_NONE || loader->arch != REGS_NATIVE ||
	    header->e_phentsize != sizeof(Elf64_Phdr) || header->e_phnum == 0 ||
	    header->e_phnum > MAX_PROGRAM_HEADERS)
		return ENOEXEC;
	r = read_new(loader, header->e_phoff, header->e_phnum * sizeof(Elf64_Phdr), &segments);
	if (r != 0)
		return r;
	loader->segments = segments;
	loader->n_segments = header->e_phnum;
	return 0;
}

/* ---- Sections ---- */

/* Reads the header of a packed section. *ret_header_bytes: offset of its stream. */
static int read_packing(const uint8_t *packed, uint64_t size, bool is_gnu, Elf64_Chdr *ret_header,
			uint64_t *ret_header_bytes)
{
	uint64_t header_bytes = is_gnu ? PACKED_BY_GNU : sizeof(*ret_header);
	Elf64_Chdr header = { .ch_type = ELFCOMPRESS_ZLIB };
	uint64_t most;

	if (size <= header_bytes || (is_gnu && memcmp(packed, "ZLIB", 4) != 0))
		return ENODATA;
	if (is_gnu) {
		header.ch_size = be64toh(load_le64(packed + 4));
	} else {
		memcpy(&header, packed, sizeof(header));
	}
	if (header.ch_type != ELFCOMPRESS_ZLIB && header.ch_type != PACKED_ZSTD)
		return ENODATA;
	if (header.ch_type == ELFCOMPRESS_ZLIB &&
	    (!mul_u64(size, MAX_ZLIB_RATIO, &most) || header.ch_size > most))
		return ENODATA;
	*ret_header = header;
	*ret_header_bytes = header_bytes;
	return header.ch_size > 0 ? 0 : ENODATA;
}

/* Unpacks a section into new memory. Fails if the stream is damaged or has the wrong size. */
static int unpack(const struct loader *loader, const uint8_t *packed, uint64_t size, bool is_gnu,
		  void **ret_bytes, uint64_t *ret_size)
{
	CLEANUP_FREE uint8_t *bytes = NULL;
	uint64_t at, made;
	Elf64_Chdr header;
	uLongf room;
	int r = read_packing(packed, size, is_gnu, &header, &at);

	if (r != 0)
		return r;
	/* The packed bytes are still allocated. */
	if (header.ch_size > loader->max_bytes - loader->section_bytes - size)
		return E2BIG;
	bytes = malloc(header.ch_size);
	if (!bytes)
		return ENOMEM;
	if (header.ch_type == PACKED_ZSTD) {
		made = ZSTD_decompress(bytes, header.ch_size, packed + at, size - at);
	} else {
		room = header.ch_size;
		made = uncompress(bytes, &room, packed + at, size - at) == Z_OK ? room : 0;
	}
	if (made != header.ch_size)
		return ENODATA;
	*ret_bytes = steal_ptr(&bytes);
	*ret_size = header.ch_size;
	return 0;
}

enum packing { NOT_PACKED, PACKED, PACKED_GNU };

static void keep_section(struct loader *loader, uint8_t *bytes, uint64_t size, uint64_t address,
			 bool is_debug_frame)
{
	loader->sections[loader->n_sections] = (struct cfi_section){
		.bytes = bytes,
		.size = size,
		.address = address,
		.arch = loader->arch,
		.is_debug_frame = is_debug_frame,
	};
	loader->bytes[loader->n_sections++] = bytes;
	loader->section_bytes += size;
}

static int add_section(struct loader *loader, const Elf64_Shdr *header, enum packing packing,
		       bool is_debug_frame)
{
	uint64_t size = header->sh_size;
	void *bytes, *packed;
	int r = read_new(loader, header->sh_offset, size, &bytes);

	if (r == 0 && packing != NOT_PACKED) {
		packed = bytes;
		r = unpack(loader, packed, size, packing == PACKED_GNU, &bytes, &size);
		free(packed);
	}
	if (r == 0)
		keep_section(loader, bytes, size, header->sh_addr, is_debug_frame);
	return r;
}

struct section_list {
	const Elf64_Shdr *sections;
	size_t n;
	const char *names;
	size_t names_bytes;
};

/* Returns NULL if there is no such section, or if it has no bytes in the file. */
static const Elf64_Shdr *find_section(const struct section_list *list, const char *name)
{
	size_t i, length = strlen(name) + 1;

	for (i = 0; i < list->n; i++) {
		const Elf64_Shdr *section = &list->sections[i];

		if (section->sh_name < list->names_bytes &&
		    list->names_bytes - section->sh_name >= length &&
		    memcmp(list->names + section->sh_name, name, length) == 0)
			return section->sh_type != SHT_NOBITS && section->sh_size > 0 ? section
										      : NULL;
	}
	return NULL;
}

/* Returns the address of the first function of a position-independent file: from a relocation, else
 * the start of .text. */
static uint64_t find_go_text(const struct loader *loader, const struct section_list *list,
			     uint64_t address)
{
	const Elf64_Shdr *section = find_section(list, ".rela.dyn");
	void *relocations = NULL;
	uint64_t text = 0;
	bool is_found;

	if (section && read_new(loader, section->sh_offset, section->sh_size, &relocations) != 0)
		relocations = NULL;
	is_found = relocations && go_table_relocate(relocations, section->sh_size, address, &text);
	free(relocations);
	section = find_section(list, ".text");
	return !is_found && section ? section->sh_addr : text;
}

/* Makes CFI from .gopclntab. Also returns 0 if the file has no usable table. */
static int add_go_frames(struct loader *loader, const struct section_list *list)
{
	const Elf64_Shdr *section = find_section(list, ".gopclntab");
	struct go_table table;
	void *read = NULL;
	uint8_t *bytes;
	uint64_t size;
	size_t text_at;
	int r;

	if (!section)
		section = find_section(list, ".data.rel.ro.gopclntab");
	if (!section || (section->sh_flags & SHF_COMPRESSED))
		return 0;
	r = read_new(loader, section->sh_offset, section->sh_size, &read);
	if (r == 0 && go_table_init(&table, read, section->sh_size, &text_at)) {
		if (text_at > 0 && table.text == 0)
			table.text = find_go_text(loader, list, section->sh_addr + text_at);
		r = go_frames_build(&table, loader->arch, loader->max_bytes - loader->section_bytes,
				    &bytes, &size);
		if (r == 0)
			keep_section(loader, bytes, size, 0, true);
	}
	free(read);
	return r == ENOMEM ? r : 0;
}

/* Adds the CFI sections. Also returns 0 if the file has none. */
static int add_named(struct loader *loader, const struct section_list *list)
{
	const Elf64_Shdr *eh_frame = find_section(list, ".eh_frame");
	const Elf64_Shdr *plain = find_section(list, ".debug_frame");
	const Elf64_Shdr *packed = find_section(list, ".zdebug_frame");
	int r = 0;

	if (eh_frame && !(eh_frame->sh_flags & SHF_COMPRESSED))
		r = add_section(loader, eh_frame, NOT_PACKED, false);
	if (r != 0)
		return r;
	if (plain)
		r = add_section(loader, plain,
				plain->sh_flags & SHF_COMPRESSED ? PACKED : NOT_PACKED, true);
	else
		r = packed ? add_section(loader, packed, PACKED_GNU, true)
			   : add_go_frames(loader, list);
	/* With an .eh_frame, .debug_frame is optional. */
	return r == ENOMEM || loader->n_sections == 0 ? r : 0;
}

static int add_by_sections(struct loader *loader)
{
	const Elf64_Ehdr *header = &loader->header;
	const Elf64_Shdr *names_section;
	void *sections = NULL, *names = NULL;
	int r;

	if (header->e_shoff == 0 || header->e_shnum == 0 ||
	    header->e_shentsize != sizeof(Elf64_Shdr) || header->e_shstrndx >= header->e_shnum)
		return 0;
	r = read_new(loader, header->e_shoff, header->e_shnum * sizeof(Elf64_Shdr), &sections);
	if (r != 0)
		return r == ENOMEM ? r : 0;
	names_section = (const Elf64_Shdr *)sections + header->e_shstrndx;
	if (names_section->sh_size <= MAX_NAMES_BYTES)
		r = read_new(loader, names_section->sh_offset, names_section->sh_size, &names);
	if (r == 0 && names)
		r = add_named(loader,
			      &(const struct section_list){ sections, header->e_shnum, names,
							    names_section->sh_size });
	free(names);
	free(sections);
	return r == ENOEXEC || r == ENODATA ? 0 : r;
}

static const Elf64_Phdr *find_load(const struct loader *loader, uint64_t address)
{
	for (size_t i = 0; i < loader->n_segments; i++) {
		const Elf64_Phdr *segment = &loader->segments[i];

		if (segment->p_type == PT_LOAD && address >= segment->p_vaddr &&
		    address - segment->p_vaddr < segment->p_filesz)
			return segment;
	}
	return NULL;
}

/* Adds the .eh_frame to which .eh_frame_hdr points. The pointer follows a version and three
 * encodings. Linkers write sdata4 relative to its own address; no other encoding is supported. */
static int add_by_header(struct loader *loader)
{
	const Elf64_Phdr *segment = NULL, *load;
	struct {
		uint8_t version, encoding, count_encoding, table_encoding;
		int32_t distance;
	} hdr;
	uint64_t address, inside;
	Elf64_Shdr section;
	int r;

	for (size_t i = 0; i < loader->n_segments && !segment; i++)
		if (loader->segments[i].p_type == PT_GNU_EH_FRAME)
			segment = &loader->segments[i];
	if (!segment)
		return ENODATA;
	r = read_at(loader->source, segment->p_offset, &hdr, sizeof(hdr));
	if (r != 0)
		return r;
	if (hdr.version != 1 || hdr.encoding != 0x1b)
		return ENODATA;
	address = segment->p_vaddr + 4 + (uint64_t)(int64_t)hdr.distance;
	load = find_load(loader, address);
	if (!load)
		return ENODATA;
	inside = address - load->p_vaddr;
	section = (Elf64_Shdr){
		.sh_offset = load->p_offset + inside,
		.sh_size = load->p_filesz - inside,
		.sh_addr = address,
	};
	return add_section(loader, &section, NOT_PACKED, false);
}

/* ---- Compiling ---- */

static void *resize(void *data, void *block, size_t old_bytes, size_t new_bytes)
{
	if (new_bytes > 0)
		return realloc(block, new_bytes);
	free(block);
	return NULL;
}

static int add_segments(const struct loader *loader, struct unwind_file *file,
			struct table_source *source)
{
	source->low = UINT64_MAX;
	for (size_t i = 0; i < loader->n_segments && file->n_segments < UNWIND_FILE_MAX_SEGMENTS;
	     i++) {
		const Elf64_Phdr *segment = &loader->segments[i];
		uint64_t end;

		if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X) ||
		    !add_u64(segment->p_vaddr, segment->p_filesz, &end) || segment->p_filesz == 0)
			continue;
		file->segments[file->n_segments++] = (struct unwind_segment){
			.offset = segment->p_offset,
			.size = segment->p_filesz,
			.address = segment->p_vaddr,
		};
		source->low = MIN_OF(source->low, segment->p_vaddr);
		source->high = MAX_OF(source->high, end);
	}
	return file->n_segments ? 0 : ENODATA;
}

static const struct table_memory memory = { .resize = resize };

static bool needs_base(const struct unwind_table *table, unsigned int base)
{
	for (uint32_t i = 0; base > 0 && i < table->n_rules; i++)
		if (table->rules[i].cfa == CFI_CFA_REGISTER &&
		    CFI_NUMBER(table->rules[i].flags) == base)
			return true;
	return false;
}

/* Compiles base_table if possible. Without it, walks end where they need the register `base`. */
static void compile_base(struct loader *loader, struct unwind_file *file,
			 struct table_source *source)
{
	struct regs regs = *regs_get(loader->arch);
	void *bytes = NULL;
	size_t size;

	regs.fp = regs.base;
	source->max_bytes = MIN_OF(source->max_bytes, MAX_BASE_BYTES);
	for (size_t i = 0; i < loader->n_sections; i++)
		loader->sections[i].regs = &regs;
	if (table_build(source, &memory, &bytes, &size) == 0 &&
	    table_init(&file->base_table, bytes, size) == 0) {
		file->base_bytes = steal_ptr(&bytes);
		file->size += size;
	}
	free(bytes);
}

static int compile(struct loader *loader, struct unwind_file *file)
{
	struct table_source source = {
		.sections = loader->sections,
		.n_sections = loader->n_sections,
		.max_bytes = loader->max_bytes,
	};
	int r = add_segments(loader, file, &source);

	file->entry = loader->header.e_entry;
	if (r == 0)
		r = -table_build(&source, &memory, &file->bytes, &file->size);
	if (r == 0)
		r = -table_init(&file->table, file->bytes, file->size);
	if (r == 0 && needs_base(&file->table, regs_get(loader->arch)->base))
		compile_base(loader, file, &source);
	return r;
}

static int load(struct loader *loader, struct unwind_file *file)
{
	int r = read_headers(loader);

	if (r == 0)
		r = add_by_sections(loader);
	if (r == 0 && loader->n_sections == 0)
		r = add_by_header(loader);
	return r == 0 ? compile(loader, file) : r;
}

struct unwind_file *unwind_file_new(const struct unwind_source *source, uint64_t max_bytes,
				    int *ret_error)
{
	struct loader loader = { .source = source, .max_bytes = max_bytes };
	struct unwind_file *file = calloc(1, sizeof(*file));
	int r = file ? load(&loader, file) : ENOMEM;

	free(loader.segments);
	free(loader.bytes[0]);
	free(loader.bytes[1]);
	if (r == 0)
		return file;
	unwind_file_free(file);
	*ret_error = r;
	return NULL;
}

void unwind_file_free(struct unwind_file *file)
{
	if (!file)
		return;
	free(file->bytes);
	free(file->base_bytes);
	free(file);
}

bool unwind_file_address(const struct unwind_file *file, uint64_t offset, uint64_t *ret_address)
{
	const struct unwind_segment *segment;

	for (segment = file->segments; segment < file->segments + file->n_segments; segment++)
		if (offset >= segment->offset && offset - segment->offset < segment->size) {
			*ret_address = segment->address + (offset - segment->offset);
			return true;
		}
	return false;
}

/* ---- Frames ---- */

/* Returns whether the instruction before this address sets fp: from here on, the CFA is computed
 * from fp instead of sp. */
static bool sets_fp(const struct unwind_table *table, uint64_t address)
{
	const struct cfi_rule *rule = table_get(table, address);
	const struct cfi_rule *before = table_get(table, address - 1);

	return rule->cfa == CFI_CFA_FP && rule->fp == CFI_AT_CFA && before->cfa == CFI_CFA_SP &&
	       before->fp == CFI_AT_CFA && before->cfa_offset == rule->cfa_offset;
}

/* Finds the last address up to `address` for which sets_fp() is true. */
static bool find_fp_set(const struct unwind_table *table, uint64_t address, uint64_t *ret_set)
{
	uint64_t page = MIN_OF((address - table->base) / TABLE_PAGE + 1, (uint64_t)table->n_pages);
	unsigned int n = 0;

	while (page-- > 0)
		for (uint32_t row = table->pages[page + 1]; row-- > table->pages[page];) {
			*ret_set = table->base + page * TABLE_PAGE + table->rows[row];
			if (*ret_set <= address && sets_fp(table, *ret_set))
				return true;
			if (n++ == MAX_SEARCHED_ROWS)
				return false;
		}
	return false;
}

bool unwind_file_frame_bytes(const struct unwind_file *file, const struct unwind_source *source,
			     uint64_t address, uint32_t *ret_bytes)
{
	uint8_t code[PROLOGUE_MAX_BYTES];
	uint64_t at, offset;
	size_t size;

	if (!find_fp_set(&file->table, address, &at))
		return false;
	for (size_t i = 0; i < file->n_segments; i++) {
		const struct unwind_segment *segment = &file->segments[i];

		offset = at - segment->address;
		if (offset >= segment->size)
			continue;
		size = MIN_OF(segment->size - offset, (uint64_t)sizeof(code));
		return read_at(source, segment->offset + offset, code, size) == 0 &&
		       prologue_frame_bytes(REGS_NATIVE, code, size, ret_bytes);
	}
	return false;
}
