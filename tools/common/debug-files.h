/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Debug files - where the symbols and the DWARF of a file are that were taken out of it
 *
 * In this order: by build-id below the folders of debug files (.build-id/ab/cdef.debug), by the name and checksum in
 * .gnu_debuglink (beside the file, in .debug beside it, in the folders), in the file itself.
 */
#pragma once

#include "tools/common/elf-image.h"

#include <elfutils/libdw.h>

/* Where to look. Immutable; may be used on several threads. */
struct debug_files;

/*
 * `sysroot`, or NULL: a folder that is / of the machine that was recorded; paths of files and the usual folder of debug
 * files, /usr/lib/debug, are below it and cannot leave it. `folders`, or NULL: further folders of debug files, which are
 * looked at first. NULL where the sysroot cannot be opened, with errno set.
 */
struct debug_files *debug_files_new(const char *sysroot, const char *const *folders);
void debug_files_free(struct debug_files *files);

/* A file of that machine by its absolute path, if it is a regular one; -1 if not. */
int debug_files_open_path(const struct debug_files *files, const char *path);

struct debug_file {
	struct elf_image *elf; /* the file apart; NULL = the image itself has the DWARF */
	Dwarf *dwarf;          /* NULL = there is none that can be used */
	char *path;            /* of the file apart */
	struct debug_file
		*shared; /* what `dwarf` has in common with others (.gnu_debugaltlink), or NULL */
};

/* Of an image that was opened as `path`; NULL = nothing was found. It borrows the image. Without `files` the image's own. */
struct debug_file *debug_files_find(const struct debug_files *files, const struct elf_image *image,
				    const char *path);
void debug_file_free(struct debug_file *file);

/* The symbols that a stripped file has in .gnu_debugdata, as an ELF file in memory; NULL = none. */
struct elf_image *debug_files_unpack(const struct elf_image *image);
void debug_files_free_unpacked(struct elf_image *unpacked);
