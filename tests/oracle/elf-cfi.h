/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * ELF CFI - the call frame information of an ELF file, in the form that the unwinder takes
 *
 * For tests and benchmarks: whole sections in memory, read by libelf. The functions return NULL for
 * an unusable file.
 */
#pragma once

#include "arch/base.h"
#include "arch/table.h"

#include <libelf.h>

#define ELF_CFI_MAX_SEGMENTS 16

struct elf_cfi_segment {
	uint64_t start, end; /* addresses of the file */
	uint64_t offset;
};

struct elf_cfi {
	int fd;
	Elf *elf;
	enum regs_arch arch;
	struct cfi_section sections[2]; /* .eh_frame and .debug_frame, if present */
	size_t n_sections;
	struct elf_cfi_segment segments[ELF_CFI_MAX_SEGMENTS]; /* executable ones only */
	size_t n_segments;
	uint64_t low, high; /* bounds of all segments */
};

struct elf_cfi *elf_cfi_open(const char *path);
/* The vdso of this process, which is that of every process of the same architecture. */
struct elf_cfi *elf_cfi_open_vdso(void);
void elf_cfi_free(struct elf_cfi *file);

static inline void elf_cfi_cleanup(struct elf_cfi **file)
{
	elf_cfi_free(*file);
}
#define CLEANUP_ELF_CFI CLEANUP(elf_cfi_cleanup)

/* Allocates with malloc(). Returns false if the table cannot be built. */
bool elf_cfi_build(const struct elf_cfi *file, struct unwind_table *ret_table, void **ret_bytes,
		   size_t *ret_size);

/* realloc(), for table_build(). */
extern const struct table_memory elf_cfi_memory;
