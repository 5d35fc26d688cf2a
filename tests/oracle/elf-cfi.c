/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Uses libelf, because a reference must not use the code under test. */
#include "tests/oracle/elf-cfi.h"

#include <fcntl.h>
#include <gelf.h>
#include <sys/auxv.h>

static void add_section(struct elf_cfi *file, Elf_Scn *section, const GElf_Shdr *header,
			bool is_debug_frame)
{
	Elf_Data *data = elf_rawdata(section, NULL);

	if (header->sh_type == SHT_NOBITS || (header->sh_flags & SHF_COMPRESSED) || !data ||
	    data->d_size == 0 || file->n_sections == ARRAY_SIZE(file->sections))
		return;
	file->sections[file->n_sections++] = (struct cfi_section){
		.bytes = data->d_buf,
		.size = data->d_size,
		.address = header->sh_addr,
		.arch = file->arch,
		.is_debug_frame = is_debug_frame,
	};
}

static Elf_Scn *find_section(Elf *elf, const char *name, GElf_Shdr *ret_header)
{
	Elf_Scn *section = NULL;
	size_t names;

	if (elf_getshdrstrndx(elf, &names) < 0)
		return NULL;
	while ((section = elf_nextscn(elf, section))) {
		const char *found;

		if (!gelf_getshdr(section, ret_header))
			continue;
		found = elf_strptr(elf, names, ret_header->sh_name);
		if (found && strcmp(found, name) == 0)
			return section;
	}
	return NULL;
}

static void read_sections(struct elf_cfi *file)
{
	GElf_Shdr header;
	Elf_Scn *section = find_section(file->elf, ".eh_frame", &header);
	Elf_Data *data;

	if (section)
		add_section(file, section, &header, false);
	section = file->n_sections ? find_section(file->elf, ".eh_frame_hdr", &header) : NULL;
	data = section ? elf_rawdata(section, NULL) : NULL;
	if (data) {
		file->sections[0].header = data->d_buf;
		file->sections[0].header_size = data->d_size;
		file->sections[0].header_address = header.sh_addr;
	}
	section = find_section(file->elf, ".debug_frame", &header);
	if (section)
		add_section(file, section, &header, true);
}

static void read_segments(struct elf_cfi *file)
{
	size_t n = 0;

	elf_getphdrnum(file->elf, &n);
	file->low = UINT64_MAX;
	for (size_t i = 0; i < n && file->n_segments < ELF_CFI_MAX_SEGMENTS; i++) {
		GElf_Phdr header;

		if (!gelf_getphdr(file->elf, (int)i, &header) || header.p_type != PT_LOAD ||
		    !(header.p_flags & PF_X))
			continue;
		file->segments[file->n_segments++] =
			(struct elf_cfi_segment){ header.p_vaddr, header.p_vaddr + header.p_memsz,
						  header.p_offset };
		file->low = MIN_OF(file->low, header.p_vaddr);
		file->high = MAX_OF(file->high, header.p_vaddr + header.p_memsz);
	}
}

/* Takes ownership of `file`. */
static struct elf_cfi *read_file(struct elf_cfi *file)
{
	GElf_Ehdr header;

	if (file->elf && gelf_getehdr(file->elf, &header) &&
	    header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_ident[EI_DATA] == ELFDATA2LSB)
		file->arch = regs_of_elf(header.e_machine);
	if (file->arch != REGS_NONE) {
		read_sections(file);
		read_segments(file);
	}
	if (file->n_sections > 0 && file->n_segments > 0)
		return file;
	elf_cfi_free(file);
	return NULL;
}

struct elf_cfi *elf_cfi_open(const char *path)
{
	struct elf_cfi *file = calloc(1, sizeof(*file));

	if (!file)
		return NULL;
	elf_version(EV_CURRENT);
	file->fd = open(path, O_RDONLY | O_CLOEXEC);
	file->elf = file->fd < 0 ? NULL : elf_begin(file->fd, ELF_C_READ_MMAP, NULL);
	return read_file(file);
}

struct elf_cfi *elf_cfi_open_vdso(void)
{
	const Elf64_Ehdr *image = (const Elf64_Ehdr *)getauxval(AT_SYSINFO_EHDR);
	struct elf_cfi *file = image ? calloc(1, sizeof(*file)) : NULL;

	if (!file)
		return NULL;
	elf_version(EV_CURRENT);
	file->fd = -1;
	file->elf = elf_memory((char *)image,
			       image->e_shoff + (size_t)image->e_shnum * image->e_shentsize);
	return read_file(file);
}

void elf_cfi_free(struct elf_cfi *file)
{
	if (!file)
		return;
	if (file->elf)
		elf_end(file->elf);
	if (file->fd >= 0)
		close(file->fd);
	free(file);
}

static void *resize(void *data, void *block, size_t old_bytes, size_t new_bytes)
{
	if (new_bytes > 0)
		return realloc(block, new_bytes);
	free(block);
	return NULL;
}

const struct table_memory elf_cfi_memory = { .resize = resize };

bool elf_cfi_build(const struct elf_cfi *file, struct unwind_table *ret_table, void **ret_bytes,
		   size_t *ret_size)
{
	const struct table_source source = {
		.sections = file->sections,
		.n_sections = file->n_sections,
		.low = file->low,
		.high = file->high,
	};
	void *bytes;
	size_t size;

	if (table_build(&source, &elf_cfi_memory, &bytes, &size) < 0)
		return false;
	if (table_init(ret_table, bytes, size) < 0) {
		free(bytes);
		return false;
	}
	*ret_bytes = bytes;
	*ret_size = size;
	return true;
}
