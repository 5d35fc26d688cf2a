/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Program - checks whether a library can be preloaded into a program
 *
 * The answer depends on the dynamic linker that the program names (PT_INTERP). A program that names
 * no dynamic linker is linked statically. The file may be hostile, so every length is checked.
 */
#include "daemon/engine/model/program.h"

#include "arch/regs.h"

#include <elf.h>
#include <errno.h>
#include <link.h>

#define MAX_HEADERS 256
#define MAX_PATH 1024
#define OWN_CLASS (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32)
#define OWN_DATA (__BYTE_ORDER == __LITTLE_ENDIAN ? ELFDATA2LSB : ELFDATA2MSB)

static bool read_at(int fd, uint64_t offset, void *buffer, size_t size)
{
	ssize_t n;

	if (offset > INT64_MAX - size)
		return false;
	do {
		n = pread(fd, buffer, size, (off_t)offset);
	} while (n < 0 && errno == EINTR);
	return n == (ssize_t)size;
}

enum image_program program_read(int fd)
{
	char path[MAX_PATH] = { 0 };
	const char *name;
	ElfW(Ehdr) header;
	ElfW(Phdr) segment;

	if (!read_at(fd, 0, &header, sizeof(header)) ||
	    memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
		return IMAGE_PROGRAM_NONE;
	if (header.e_ident[EI_CLASS] != OWN_CLASS || header.e_ident[EI_DATA] != OWN_DATA ||
	    regs_of_elf(header.e_machine) != REGS_NATIVE)
		return IMAGE_PROGRAM_OTHER_ARCH;
	if (header.e_phentsize != sizeof(segment) || header.e_phnum > MAX_HEADERS)
		return IMAGE_PROGRAM_NONE;
	for (unsigned int i = 0; i < header.e_phnum; i++) {
		if (!read_at(fd, header.e_phoff + i * sizeof(segment), &segment, sizeof(segment)))
			return IMAGE_PROGRAM_NONE;
		if (segment.p_type != PT_INTERP)
			continue;
		if (segment.p_filesz >= sizeof(path) ||
		    !read_at(fd, segment.p_offset, path, segment.p_filesz))
			return IMAGE_PROGRAM_OTHER_LIBC;
		/* Identify glibc's dynamic linker by its name: /lib64/ld-linux-x86-64.so.2,
		 * /lib64/ld64.so.2. */
		name = strrchr(path, '/');
		name = name ? name + 1 : path;
		return strncmp(name, "ld-linux", 8) == 0 || strncmp(name, "ld64.so.", 8) == 0
			       ? IMAGE_PROGRAM_DYNAMIC
			       : IMAGE_PROGRAM_OTHER_LIBC;
	}
	return IMAGE_PROGRAM_STATIC;
}
