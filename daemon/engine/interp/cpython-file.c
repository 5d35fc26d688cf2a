/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Cpython-file - finds CPython in an ELF file
 *
 * Invariants: (1) memory and work are bounded, whatever the file says  [fuzz_cpython_file]
 *             (2) a file whose own offsets differ from the table is not used
 *                 [test-cpython: offsets of the file]
 * Pure functions of the file.
 */
#include "daemon/engine/interp/cpython-file.h"

#include "arch/base.h"
#include "base/cpython-layouts.h"

#include <elf.h>
#include <errno.h>

#define MAX_SECTIONS 1024u
#define MAX_SEGMENTS 64u
#define MAX_SYMBOLS (1u << 19)
#define MAX_NAMES_BYTES (32u << 20)
#define SYMBOLS_AT_ONCE 1024u

/* The symbols that are looked up. Those of functions tell the versions before 3.11, which has
 * Py_Version. */
enum { RUNTIME, CODE_TYPE, EVAL, VERSION, SINCE_3_8, SINCE_3_9, SINCE_3_10, N_SYMBOLS };
static const char *const names[N_SYMBOLS] = {
	[RUNTIME] = "_PyRuntime",
	[CODE_TYPE] = "PyCode_Type",
	[EVAL] = "_PyEval_EvalFrameDefault",
	[VERSION] = "Py_Version",
	[SINCE_3_8] = "PyConfig_InitPythonConfig",
	[SINCE_3_9] = "PyObject_CallNoArgs",
	[SINCE_3_10] = "Py_IsTrue",
};

struct elf {
	int fd;
	Elf64_Phdr segments[MAX_SEGMENTS];
	size_t n_segments;
	Elf64_Sym found[N_SYMBOLS]; /* st_shndx SHN_UNDEF: not found */
};

static bool read_at(int fd, void *to, size_t size, uint64_t offset)
{
	size_t done = 0;
	ssize_t n = 0;

	if (offset > INT64_MAX - size)
		return false;
	while (done < size) {
		n = pread(fd, (char *)to + done, size - done, (off_t)(offset + done));
		if (n == 0 || (n < 0 && errno != EINTR))
			return false;
		done += n > 0 ? (size_t)n : 0;
	}
	return true;
}

/* Reads bytes of the file by their address. */
static bool read_address(const struct elf *elf, void *to, size_t size, uint64_t address)
{
	for (size_t i = 0; i < elf->n_segments; i++) {
		const Elf64_Phdr *segment = &elf->segments[i];

		if (segment->p_type == PT_LOAD && address >= segment->p_vaddr &&
		    address - segment->p_vaddr <= segment->p_filesz &&
		    size <= segment->p_filesz - (address - segment->p_vaddr))
			return read_at(elf->fd, to, size,
				       segment->p_offset + (address - segment->p_vaddr));
	}
	return false;
}

/* Stores the symbol if its name is one that is looked up. */
static void take_symbol(struct elf *elf, const Elf64_Sym *symbol, const char *strings, size_t size)
{
	const char *name = strings + symbol->st_name;

	/* The last byte of `strings` is 0. */
	if (symbol->st_name >= size || symbol->st_shndx == SHN_UNDEF || name[0] == '\0' ||
	    (name[0] != 'P' && name[0] != '_') || name[1] == '\0' ||
	    (name[1] != 'P' && name[1] != 'y'))
		return;
	for (size_t i = 0; i < N_SYMBOLS; i++)
		if (strcmp(name, names[i]) == 0)
			elf->found[i] = *symbol;
}

static bool read_symbols(struct elf *elf, const Elf64_Shdr *table, const Elf64_Shdr *strings)
{
	const size_t n = table->sh_size / sizeof(Elf64_Sym);
	CLEANUP_FREE Elf64_Sym *symbols = NULL;
	CLEANUP_FREE char *text = NULL;

	if (n > MAX_SYMBOLS || strings->sh_size == 0 || strings->sh_size > MAX_NAMES_BYTES)
		return false;
	symbols = malloc(SYMBOLS_AT_ONCE * sizeof(*symbols));
	text = malloc(strings->sh_size);
	if (!symbols || !text || !read_at(elf->fd, text, strings->sh_size, strings->sh_offset))
		return false;
	text[strings->sh_size - 1] = '\0';
	for (size_t done = 0; done < n;) {
		const size_t part = MIN_OF(n - done, (size_t)SYMBOLS_AT_ONCE);

		if (!read_at(elf->fd, symbols, part * sizeof(*symbols),
			     table->sh_offset + done * sizeof(*symbols)))
			return false;
		for (size_t i = 0; i < part; i++)
			take_symbol(elf, &symbols[i], text, strings->sh_size);
		done += part;
	}
	return true;
}

static bool read_elf(struct elf *elf)
{
	CLEANUP_FREE Elf64_Shdr *sections = NULL;
	Elf64_Ehdr header;

	if (!read_at(elf->fd, &header, sizeof(header), 0) ||
	    memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
	    header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
	    header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > MAX_SEGMENTS ||
	    header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shnum > MAX_SECTIONS)
		return false;
	elf->n_segments = header.e_phnum;
	sections = malloc((header.e_shnum + 1) * sizeof(*sections));
	if (!sections ||
	    !read_at(elf->fd, elf->segments, elf->n_segments * sizeof(elf->segments[0]),
		     header.e_phoff) ||
	    !read_at(elf->fd, sections, header.e_shnum * sizeof(*sections), header.e_shoff))
		return false;
	for (size_t i = 0; i < header.e_shnum; i++)
		if (sections[i].sh_type == SHT_DYNSYM && sections[i].sh_link < header.e_shnum)
			return read_symbols(elf, &sections[i], &sections[sections[i].sh_link]);
	return false;
}

/* Returns the difference for the segment with the function that evaluates; 0 if it is unknown. */
static uint64_t find_code_bias(const struct elf *elf)
{
	const uint64_t address = elf->found[EVAL].st_value;

	for (size_t i = 0; i < elf->n_segments; i++) {
		const Elf64_Phdr *segment = &elf->segments[i];

		if (segment->p_type == PT_LOAD && address >= segment->p_vaddr &&
		    address - segment->p_vaddr < segment->p_memsz)
			return segment->p_vaddr - segment->p_offset;
	}
	return 0;
}

static bool has(const struct elf *elf, int symbol)
{
	return elf->found[symbol].st_shndx != SHN_UNDEF;
}

/* Returns the minor version; 0 if it is not known. */
static unsigned find_minor(const struct elf *elf)
{
	uint64_t version; /* PY_VERSION_HEX, as an unsigned long */

	if (has(elf, VERSION))
		return read_address(elf, &version, sizeof(version), elf->found[VERSION].st_value) &&
				       version >> 24 == 3
			       ? version >> 16 & 255
			       : 0;
	return has(elf, SINCE_3_10) ? 10 : has(elf, SINCE_3_9) ? 9 : has(elf, SINCE_3_8) ? 8 : 0;
}

/* Returns whether the file's own offsets, if it has some, are those of the layout. */
static bool offsets_agree(const struct elf *elf, const struct interp_cpython *layout)
{
	__u64 words[CPYTHON_DEBUG_WORDS];

	if (layout->minor < CPYTHON_FIRST_DEBUG_MINOR)
		return true;
	return read_address(elf, words, sizeof(words), elf->found[RUNTIME].st_value) &&
	       cpython_offsets_agree(layout, words);
}

enum cpython_found cpython_file_find(int fd, struct cpython_file *ret_file)
{
	struct elf elf = { .fd = fd };
	const struct interp_cpython *layout;

	if (!read_elf(&elf) || !has(&elf, RUNTIME) || !has(&elf, CODE_TYPE))
		return CPYTHON_NONE;
	*ret_file = (struct cpython_file){
		.minor = find_minor(&elf),
		.runtime = elf.found[RUNTIME].st_value,
		.code_type = elf.found[CODE_TYPE].st_value,
		.eval = elf.found[EVAL].st_value,
		.eval_size = elf.found[EVAL].st_size,
		.code_bias = find_code_bias(&elf),
	};
	layout = cpython_layout(ret_file->minor);
	ret_file->found = !layout                       ? CPYTHON_OTHER_VERSION
			  : offsets_agree(&elf, layout) ? CPYTHON_FOUND
							: CPYTHON_OTHER_BUILD;
	return ret_file->found;
}
