/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * ELF-CFI - reads the call frame information of an ELF file in the unwinder's format
 *
 * For tests and benchmarks. Reads whole sections into memory with libelf. The functions return NULL
 * if a file cannot be used.
 */
#pragma once

#include "arch/base.h"
#include "arch/table.h"

#include <libelf.h>

#define ELF_CFI_MAX_SEGMENTS 16

struct elf_cfi_segment {
	uint64_t start, end; /* addresses in the file */
	uint64_t offset;
};

struct elf_cfi {
	int fd;
	Elf *elf;
	enum regs_arch arch;
	struct cfi_section sections[2]; /* .eh_frame and .debug_frame, if present */
	size_t n_sections;
	struct elf_cfi_segment segments[ELF_CFI_MAX_SEGMENTS]; /* only executable segments */
	size_t n_segments;
	uint64_t low, high; /* bounds of all segments */
};

struct elf_cfi *elf_cfi_open(const char *path);
/* Opens the vdso of this process, which is the same in every process of this architecture. */
struct elf_cfi *elf_cfi_open_vdso(void);
void elf_cfi_free(struct elf_cfi *file);

static inline void elf_cfi_cleanup(struct elf_cfi **file)
{
	elf_cfi_free(*file);
}
#define CLEANUP_ELF_CFI CLEANUP(elf_cfi_cleanup)

/* Builds a table. Allocates it with malloc(). Returns false if it cannot be built. */
bool elf_cfi_build(const struct elf_cfi *file, struct unwind_table *ret_table, void **ret_bytes,
		   size_t *ret_size);

/* Uses realloc(); for table_build(). */
extern const struct table_memory elf_cfi_memory;
