/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * ELF image - an ELF file of somebody else, opened for reading
 *
 * File offsets, addresses and bytes of one little-endian ELF file. Knows nothing of symbols.
 */
#pragma once

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
	int fd; /* borrowed */
	uint16_t machine;
	bool is_64;
	uint64_t file_size;
	struct elf_segment *segments;
	size_t n_segments;
	/* executable sections by address; the executable segments where there are no sections */
	struct elf_range *code;
	size_t n_code;
	struct elf_range frame_header; /* PT_GNU_EH_FRAME; empty = none */
};

/* Opens the file; NULL where it is no ELF file that can be used here. The fd is borrowed until
 * elf_image_free(). */
struct elf_image *elf_image_open(int fd);
void elf_image_free(struct elf_image *image);

/* Copies the build-id; returns its length, 0 = none. */
size_t elf_image_get_build_id(const struct elf_image *image,
			      uint8_t ret_id[ELF_IMAGE_MAX_BUILD_ID]);

/* Between file offsets and addresses; false outside the loaded parts. Executable segments are
 * looked at first. */
bool elf_image_get_address(const struct elf_image *image, uint64_t offset, uint64_t *ret_address);
bool elf_image_get_offset(const struct elf_image *image, uint64_t address, uint64_t *ret_offset);

/* The stretch of code around an address: a section, or where there are none, a segment. */
bool elf_image_get_code(const struct elf_image *image, uint64_t address,
			struct elf_range *ret_code);

/* Reads at most `size` bytes at an address; returns how many there were. */
size_t elf_image_read(const struct elf_image *image, uint64_t address, void *ret_bytes,
		      size_t size);

/* First section of that name; NULL = none. */
Elf_Scn *elf_image_get_section(const struct elf_image *image, const char *name,
			       GElf_Shdr *ret_header);

/* The bytes of a section, converted to this machine's form; NULL where they are not all in the
 * file or too many. */
Elf_Data *elf_image_get_data(const struct elf_image *image, Elf_Scn *section);

/* A string of a string table (SHT_STRTAB, by its section number); NULL where it is not one or
 * does not end in it. */
const char *elf_image_get_string(const struct elf_image *image, size_t table, uint64_t at);
/* The same as a whole, for who needs many: the last byte is a 0. */
const Elf_Data *elf_image_get_strings(const struct elf_image *image, size_t table);
