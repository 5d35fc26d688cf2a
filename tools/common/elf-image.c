/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * ELF image - an untrusted ELF file, opened for reading
 *
 * libelf reads the headers and the requested sections with pread and never through a mapping: the
 * file may shrink at any time, which would turn a mapping into SIGBUS. Values from libelf are
 * checked again here if they are used as bounds.
 * Invariants: (1) nothing is read outside the file                         [fuzz_symbols_elf]
 *             (2) numbers of segments and sections and sizes are bounded   [fuzz_symbols_elf]
 *             (3) an offset maps to an address and back to itself  [test-symbols: round trip]
 * The only global state is libelf's version check. Big-endian files are refused: no supported
 * machine has them.
 */
#include "tools/common/elf-image.h"

#include "arch/base.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#define MAX_SEGMENTS 1024
#define MAX_SECTIONS (1u << 20)
#define MAX_SECTION_BYTES (256u << 20)
#define MAX_NOTE_BYTES (64u << 10)

void elf_image_free(struct elf_image *image)
{
	if (!image)
		return;
	elf_end(image->elf);
	free(image->segments);
	free(image->code);
	free(image);
}

static void free_image(struct elf_image **image)
{
	elf_image_free(*image);
}

/* Returns whether the segment has bytes in the file and does not overflow. */
static bool segment_fits(const struct elf_image *image, const GElf_Phdr *header)
{
	uint64_t end;

	return header->p_filesz > 0 && add_u64(header->p_offset, header->p_filesz, &end) &&
	       header->p_offset < image->file_size &&
	       add_u64(header->p_vaddr, header->p_filesz, &end);
}

static void add_segment(struct elf_image *image, const GElf_Phdr *header)
{
	if (!segment_fits(image, header))
		return;
	if (header->p_type == PT_GNU_EH_FRAME)
		image->frame_header =
			(struct elf_range){ header->p_vaddr, header->p_vaddr + header->p_filesz };
	if (header->p_type != PT_LOAD)
		return;
	image->segments[image->n_segments++] = (struct elf_segment){
		.offset = header->p_offset,
		.address = header->p_vaddr,
		.size = MIN_OF(header->p_filesz, image->file_size - header->p_offset),
		.executable = header->p_flags & PF_X,
	};
}

static bool read_segments(struct elf_image *image)
{
	size_t n;

	if (elf_getphdrnum(image->elf, &n) != 0 || n > MAX_SEGMENTS)
		return false;
	image->segments = calloc(n + 1, sizeof(*image->segments));
	if (!image->segments)
		return false;
	for (size_t i = 0; i < n; i++) {
		GElf_Phdr header;

		if (gelf_getphdr(image->elf, (int)i, &header))
			add_segment(image, &header);
	}
	return true;
}

static int compare_ranges(const void *a, const void *b)
{
	const struct elf_range *left = a, *right = b;

	return (left->start > right->start) - (left->start < right->start);
}

static void add_code(struct elf_image *image, uint64_t start, uint64_t size)
{
	uint64_t end;

	if (size > 0 && add_u64(start, size, &end))
		image->code[image->n_code++] = (struct elf_range){ start, end };
}

static bool read_code(struct elf_image *image)
{
	Elf_Scn *section = NULL;
	size_t n;

	if (elf_getshdrnum(image->elf, &n) != 0 || n > MAX_SECTIONS)
		n = 0;
	image->code = calloc(n + image->n_segments + 1, sizeof(*image->code));
	if (!image->code)
		return false;
	for (size_t i = 0; i < n && (section = elf_nextscn(image->elf, section)); i++) {
		GElf_Shdr header;

		if (gelf_getshdr(section, &header) && (header.sh_flags & SHF_EXECINSTR) &&
		    (header.sh_flags & SHF_ALLOC))
			add_code(image, header.sh_addr, header.sh_size);
	}
	if (image->n_code == 0)
		for (size_t i = 0; i < image->n_segments; i++)
			if (image->segments[i].executable)
				add_code(image, image->segments[i].address,
					 image->segments[i].size);
	qsort(image->code, image->n_code, sizeof(*image->code), compare_ranges);
	return true;
}

static bool read_header(struct elf_image *image)
{
	GElf_Ehdr header;

	if (elf_kind(image->elf) != ELF_K_ELF || !gelf_getehdr(image->elf, &header))
		return false;
	image->machine = header.e_machine;
	image->is_64 = header.e_ident[EI_CLASS] == ELFCLASS64;
	return header.e_ident[EI_DATA] == ELFDATA2LSB;
}

struct elf_image *elf_image_open(int fd)
{
	CLEANUP(free_image) struct elf_image *image = calloc(1, sizeof(*image));
	struct stat st;

	if (!image || fstat(fd, &st) < 0 || st.st_size <= 0)
		return NULL;
	image->fd = fd;
	image->file_size = (uint64_t)st.st_size;
	if (elf_version(EV_CURRENT) == EV_NONE)
		return NULL;
	image->elf = elf_begin(fd, ELF_C_READ, NULL);
	if (!image->elf || !read_header(image) || !read_segments(image) || !read_code(image))
		return NULL;
	return steal_ptr(&image);
}

/* Returns the length of the build-id in one stretch of notes; 0 = none. */
static size_t find_build_id(const struct elf_image *image, const GElf_Phdr *segment,
			    uint8_t *ret_id)
{
	Elf_Data *data;
	size_t at = 0, name, description;
	GElf_Nhdr note;

	if (!segment_fits(image, segment) || segment->p_filesz > MAX_NOTE_BYTES)
		return 0;
	data = elf_getdata_rawchunk(image->elf, (int64_t)segment->p_offset, segment->p_filesz,
				    segment->p_align == 8 ? ELF_T_NHDR8 : ELF_T_NHDR);
	while (data && (at = gelf_getnote(data, at, &note, &name, &description)) > 0) {
		const char *bytes = data->d_buf;

		if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != sizeof("GNU") ||
		    memcmp(bytes + name, "GNU", sizeof("GNU")) != 0)
			continue;
		if (note.n_descsz == 0 || note.n_descsz > ELF_IMAGE_MAX_BUILD_ID)
			continue;
		memcpy(ret_id, bytes + description, note.n_descsz);
		return note.n_descsz;
	}
	return 0;
}

size_t elf_image_get_build_id(const struct elf_image *image, uint8_t ret_id[ELF_IMAGE_MAX_BUILD_ID])
{
	size_t n, size = 0;

	if (elf_getphdrnum(image->elf, &n) != 0 || n > MAX_SEGMENTS)
		return 0;
	for (size_t i = 0; i < n && size == 0; i++) {
		GElf_Phdr header;

		if (gelf_getphdr(image->elf, (int)i, &header) && header.p_type == PT_NOTE)
			size = find_build_id(image, &header, ret_id);
	}
	return size;
}

bool elf_image_get_address(const struct elf_image *image, uint64_t offset, uint64_t *ret_address)
{
	for (int executable = 1; executable >= 0; executable--) {
		for (size_t i = 0; i < image->n_segments; i++) {
			const struct elf_segment *segment = &image->segments[i];

			if (segment->executable != executable || offset < segment->offset ||
			    offset - segment->offset >= segment->size)
				continue;
			*ret_address = segment->address + (offset - segment->offset);
			return true;
		}
	}
	return false;
}

static const struct elf_segment *find_segment(const struct elf_image *image, uint64_t address)
{
	for (int executable = 1; executable >= 0; executable--) {
		for (size_t i = 0; i < image->n_segments; i++) {
			const struct elf_segment *segment = &image->segments[i];

			if (segment->executable == executable && address >= segment->address &&
			    address - segment->address < segment->size)
				return segment;
		}
	}
	return NULL;
}

bool elf_image_get_offset(const struct elf_image *image, uint64_t address, uint64_t *ret_offset)
{
	const struct elf_segment *segment = find_segment(image, address);

	if (!segment)
		return false;
	*ret_offset = segment->offset + (address - segment->address);
	return true;
}

bool elf_image_get_code(const struct elf_image *image, uint64_t address, struct elf_range *ret_code)
{
	size_t low = 0, high = image->n_code;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (image->code[middle].start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0 || address >= image->code[low - 1].end)
		return false;
	*ret_code = image->code[low - 1];
	return true;
}

size_t elf_image_read(const struct elf_image *image, uint64_t address, void *ret_bytes, size_t size)
{
	const struct elf_segment *segment = find_segment(image, address);
	uint64_t inside;
	ssize_t n;

	if (!segment)
		return 0;
	inside = address - segment->address;
	size = MIN_OF(size, segment->size - inside);
	do
		n = pread(image->fd, ret_bytes, size, (off_t)(segment->offset + inside));
	while (n < 0 && errno == EINTR);
	return n < 0 ? 0 : (size_t)n;
}

Elf_Scn *elf_image_get_section(const struct elf_image *image, const char *name,
			       GElf_Shdr *ret_header)
{
	Elf_Scn *section = NULL;
	size_t names;

	if (elf_getshdrstrndx(image->elf, &names) != 0)
		return NULL;
	for (size_t i = 0; i < MAX_SECTIONS && (section = elf_nextscn(image->elf, section)); i++) {
		const char *found;
		GElf_Shdr header;

		if (!gelf_getshdr(section, &header))
			continue;
		found = elf_image_get_string(image, names, header.sh_name);
		if (found && strcmp(found, name) == 0) {
			*ret_header = header;
			return section;
		}
	}
	return NULL;
}

Elf_Data *elf_image_get_data(const struct elf_image *image, Elf_Scn *section)
{
	Elf_Data *data;
	GElf_Shdr header;
	uint64_t end;

	if (!gelf_getshdr(section, &header) || header.sh_type == SHT_NOBITS ||
	    (header.sh_flags & SHF_COMPRESSED) || header.sh_size == 0 ||
	    header.sh_size > MAX_SECTION_BYTES ||
	    !add_u64(header.sh_offset, header.sh_size, &end) || end > image->file_size)
		return NULL;
	data = elf_getdata(section, NULL);
	return data && data->d_buf && data->d_size > 0 && data->d_size <= header.sh_size ? data
											 : NULL;
}

const Elf_Data *elf_image_get_strings(const struct elf_image *image, size_t table)
{
	Elf_Scn *section = elf_getscn(image->elf, table);
	GElf_Shdr header;
	Elf_Data *data;

	if (!section || !gelf_getshdr(section, &header) || header.sh_type != SHT_STRTAB)
		return NULL;
	data = elf_image_get_data(image, section);
	return data && ((const char *)data->d_buf)[data->d_size - 1] == '\0' ? data : NULL;
}

const char *elf_image_get_string(const struct elf_image *image, size_t table, uint64_t at)
{
	const Elf_Data *strings = elf_image_get_strings(image, table);

	return strings && at < strings->d_size ? (const char *)strings->d_buf + at : NULL;
}
