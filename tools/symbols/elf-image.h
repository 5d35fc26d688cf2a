/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * ELF image - an untrusted ELF file, opened for reading
 *
 * File offsets, addresses and bytes of one little-endian ELF file.
 */
#pragma once

#include "arch/base.h"

#include <gelf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ELF_IMAGE_MAX_BUILD_ID 64

struct elf_range {
	uint64_t start;
	uint64_t end;
};

struct elf_segment {
	uint64_t offset;
	uint64_t address;
	uint64_t size; /* bytes in the file */
	bool executable;
};

struct elf_image {
	Elf *elf;
	int fd;
	bool owns_fd;
	uint16_t machine;
	bool is_64;
	uint64_t file_size;
	struct elf_segment *segments;
	size_t n_segments;
	/* executable sections or, if there are none, executable segments; sorted by address */
	struct elf_range *code;
	size_t n_code;
	struct elf_range frame_header; /* PT_GNU_EH_FRAME; empty = none */
};

/* Opens the file. Returns NULL if it is not a supported ELF file. fd is borrowed until
 * elf_image_free(). */
struct elf_image *elf_image_open(int fd);
/* Like elf_image_open(), but takes ownership of fd, which may be -1. */
struct elf_image *elf_image_take(int fd);
void elf_image_free(struct elf_image *image);
static inline void elf_image_cleanup(struct elf_image **image)
{
	elf_image_free(*image);
}
#define CLEANUP_ELF CLEANUP(elf_image_cleanup)

/* Returns the length of the build-id; 0: none. The bytes are valid as long as the image. */
size_t elf_image_get_build_id(const struct elf_image *image, const void **ret_id);

/* Convert between file offsets and addresses. Return false outside the loaded parts. Executable
 * segments are searched first. */
bool elf_image_get_address(const struct elf_image *image, uint64_t offset, uint64_t *ret_address);
bool elf_image_get_offset(const struct elf_image *image, uint64_t address, uint64_t *ret_offset);

/* Gets the range of code around an address: its section or, if no section is executable, its
 * segment. Returns false if there is none. */
bool elf_image_get_code(const struct elf_image *image, uint64_t address,
			struct elf_range *ret_code);

/* Reads at most `size` bytes at an address. Returns the number of bytes read. */
size_t elf_image_read(const struct elf_image *image, uint64_t address, void *ret_bytes,
		      size_t size);

/* Returns the first section with this name, or NULL. */
Elf_Scn *elf_image_get_section(const struct elf_image *image, const char *name,
			       GElf_Shdr *ret_header);

/* Returns the bytes of a section, converted to host form. Returns NULL if the section is empty,
 * compressed or too large, or if some bytes are not in the file. */
Elf_Data *elf_image_get_data(const struct elf_image *image, Elf_Scn *section);

/* Returns the string at offset `at` of the string table in section number `table`. Returns NULL if
 * the table or the offset is invalid, or if the table does not end with a NUL. */
const char *elf_image_get_string(const struct elf_image *image, size_t table, uint64_t at);
/* Returns the whole string table, for callers that need many strings. Returns NULL if the table is
 * invalid, or if its last byte is not a NUL. */
const Elf_Data *elf_image_get_strings(const struct elf_image *image, size_t table);
