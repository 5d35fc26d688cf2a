/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * libelf reads the headers and the requested sections with pread() and never through a mapping,
 * because the file may shrink at any time, which would raise SIGBUS for a mapping. Values from
 * libelf that are used as bounds are checked again here.
 * Invariants: (1) nothing is read outside the file                         [fuzz_symbols_elf]
 *             (2) sizes, and numbers of segments and sections, are bounded [fuzz_symbols_elf]
 *             (3) an offset maps to an address and back to itself  [test-symbols: round trip]
 * The only global state is libelf's version check. Big-endian files are rejected: no supported
 * machine has them.
 */
#include "tools/symbols/elf-image.h"

#include "tools/common/sorted.h"

#include <elfutils/libdwelf.h>
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
	if (image->owns_fd)
		close(image->fd);
	free(image->segments);
	free(image->code);
	free(image);
}

/* Adds a segment if it has bytes in the file and does not overflow. */
static void add_segment(struct elf_image *image, const GElf_Phdr *header)
{
	uint64_t end;

	if (header->p_filesz == 0 || !add_u64(header->p_offset, header->p_filesz, &end) ||
	    header->p_offset >= image->file_size ||
	    !add_u64(header->p_vaddr, header->p_filesz, &end))
		return;
	if (header->p_type == PT_GNU_EH_FRAME)
		image->frame_header = (struct elf_range){ header->p_vaddr, end };
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
	qsort(image->code, image->n_code, sizeof(*image->code), sorted_compare);
	return true;
}

static struct elf_image *open_image(int fd, bool owns_fd)
{
	CLEANUP_ELF struct elf_image *image = calloc(1, sizeof(*image));
	GElf_Ehdr header;
	struct stat st;

	if (!image)
		return NULL;
	image->fd = fd;
	image->owns_fd = owns_fd;
	if (fstat(fd, &st) < 0 || st.st_size <= 0 || elf_version(EV_CURRENT) == EV_NONE)
		return NULL;
	image->file_size = (uint64_t)st.st_size;
	image->elf = elf_begin(fd, ELF_C_READ, NULL);
	if (!image->elf || elf_kind(image->elf) != ELF_K_ELF ||
	    !gelf_getehdr(image->elf, &header) || header.e_ident[EI_DATA] != ELFDATA2LSB)
		return NULL;
	image->machine = header.e_machine;
	image->is_64 = header.e_ident[EI_CLASS] == ELFCLASS64;
	if (!read_segments(image) || !read_code(image))
		return NULL;
	return steal_ptr(&image);
}

struct elf_image *elf_image_open(int fd)
{
	return open_image(fd, false);
}

struct elf_image *elf_image_take(int fd)
{
	return fd < 0 ? NULL : open_image(fd, true);
}

/* Searches sections first, because in debug files made by objcopy, segments refer to missing bytes.
 * Then searches segments, which libdw does only if there are no sections at all. */
size_t elf_image_get_build_id(const struct elf_image *image, const void **ret_id)
{
	ssize_t size = dwelf_elf_gnu_build_id(image->elf, ret_id);
	size_t n, at = 0, name, description;
	GElf_Nhdr note;

	if (size > 0 || elf_getphdrnum(image->elf, &n) != 0 || n > MAX_SEGMENTS)
		return size > 0 && size <= ELF_IMAGE_MAX_BUILD_ID ? (size_t)size : 0;
	for (size_t i = 0; i < n; i++) {
		Elf_Data *data;
		GElf_Phdr header;

		if (!gelf_getphdr(image->elf, (int)i, &header) || header.p_type != PT_NOTE ||
		    header.p_filesz > MAX_NOTE_BYTES)
			continue;
		data = elf_getdata_rawchunk(image->elf, (int64_t)header.p_offset, header.p_filesz,
					    header.p_align == 8 ? ELF_T_NHDR8 : ELF_T_NHDR);
		while (data && (at = gelf_getnote(data, at, &note, &name, &description)) > 0) {
			const char *bytes = data->d_buf;

			if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != sizeof("GNU") ||
			    memcmp(bytes + name, "GNU", sizeof("GNU")) != 0 || note.n_descsz == 0 ||
			    note.n_descsz > ELF_IMAGE_MAX_BUILD_ID)
				continue;
			*ret_id = bytes + description;
			return note.n_descsz;
		}
	}
	return 0;
}

/* Finds the segment whose bytes in the file include a file offset, or an address. */
static const struct elf_segment *find_segment(const struct elf_image *image, uint64_t place,
					      bool is_offset)
{
	for (int executable = 1; executable >= 0; executable--)
		for (size_t i = 0; i < image->n_segments; i++) {
			const struct elf_segment *segment = &image->segments[i];
			uint64_t start = is_offset ? segment->offset : segment->address;

			if (segment->executable == executable && place >= start &&
			    place - start < segment->size)
				return segment;
		}
	return NULL;
}

bool elf_image_get_address(const struct elf_image *image, uint64_t offset, uint64_t *ret_address)
{
	const struct elf_segment *segment = find_segment(image, offset, true);

	if (!segment)
		return false;
	*ret_address = segment->address + (offset - segment->offset);
	return true;
}

bool elf_image_get_offset(const struct elf_image *image, uint64_t address, uint64_t *ret_offset)
{
	const struct elf_segment *segment = find_segment(image, address, false);

	if (!segment)
		return false;
	*ret_offset = segment->offset + (address - segment->address);
	return true;
}

bool elf_image_get_code(const struct elf_image *image, uint64_t address, struct elf_range *ret_code)
{
	size_t low = sorted_upto(image->code, image->n_code, sizeof(*image->code), address);

	if (low == 0 || address >= image->code[low - 1].end)
		return false;
	*ret_code = image->code[low - 1];
	return true;
}

size_t elf_image_read(const struct elf_image *image, uint64_t address, void *ret_bytes, size_t size)
{
	const struct elf_segment *segment = find_segment(image, address, false);
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
