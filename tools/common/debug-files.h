/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Debug files - where the symbols and the DWARF of a file are that were taken out of it
 *
 * In this order: by build-id below the folders of debug files (.build-id/ab/cdef.debug), by the
 * name and checksum in .gnu_debuglink (beside the file, in .debug beside it, in the folders), in
 * the file itself. What is in none of these places is fetched, where somebody said how.
 */
#pragma once

#include "tools/common/elf-image.h"

#include <elfutils/libdw.h>

/* Where to look. Immutable once it is used; may be used on several threads. */
struct debug_files;

/*
 * `sysroot`, or NULL: a folder that is / of the machine that was recorded; paths of files and the
 * usual folder of debug files, /usr/lib/debug, are below it and cannot leave it. `folders`, or
 * NULL: further folders of debug files, which are looked at first. NULL where the sysroot cannot be
 * opened, with errno set.
 */
struct debug_files *debug_files_new(const char *sysroot, const char *const *folders);
void debug_files_free(struct debug_files *files);

/*
 * The debug files of an image that is not the file of that path here, as those of a container are
 * not, are looked for there too: by build-id and by name below the other's sysroot, and nowhere
 * else. Takes `other`; without effect where `files` has a sysroot itself. Before the files are used
 * on threads.
 */
void debug_files_add_other(struct debug_files *files, struct debug_files *other);

/*
 * Gets the debug file of a build-id from elsewhere, as debug_files_check() let it through, and
 * where it is now; NULL: it is nowhere. May be called on several threads.
 */
typedef struct elf_image *debug_files_fetch(const uint8_t *id, size_t size, char **ret_path,
					    void *data);
/* From now on what is not found here is asked for; before the files are used on threads. */
void debug_files_set_fetch(struct debug_files *files, debug_files_fetch *fetch, void *data);
/* The file as an ELF file, if it is a regular one that has this build-id; else NULL. Takes the
 * fd, which may be -1. */
struct elf_image *debug_files_check(int fd, const uint8_t *id, size_t size);

/* A file of that machine by its absolute path, if it is a regular one; -1 if not. */
int debug_files_open_path(const struct debug_files *files, const char *path);

/* The next regular file of that name below the folders of debug files; *at is 0 at first. -1
 * where there is no more. */
int debug_files_open_below(const struct debug_files *files, const char *name, unsigned int *at);

/* False for a file whose sections are too large for libdw, which reads them into memory. */
bool debug_files_can_hold(const struct elf_image *elf);

struct debug_split;

struct debug_file {
	const struct debug_files *files; /* those that it was found in */
	struct elf_image *elf;           /* the file apart; NULL = the image itself has the DWARF */
	Dwarf *dwarf;                    /* NULL = there is none that can be used */
	char *path;                      /* of the file apart */
	struct debug_split
		*split; /* where the other halves of split units are; NULL = not looked for */
	struct debug_file
		*shared; /* what `dwarf` has in common with others (.gnu_debugaltlink), or NULL */
};

/* Of an image that was opened as `path`; NULL = nothing was found. It borrows the image. Without
 * `files` the image's own. */
struct debug_file *debug_files_find(const struct debug_files *files, const struct elf_image *image,
				    const char *path);
/* The same without its DWARF, which takes long where that is compressed; NULL also where there
 * is no file apart. */
struct debug_file *debug_files_find_symbols(const struct debug_files *files,
					    const struct elf_image *image, const char *path);
void debug_file_free(struct debug_file *file);

/* The symbols that a stripped file has in .gnu_debugdata, as an ELF file in memory; NULL = none. */
struct elf_image *debug_files_unpack(const struct elf_image *image);
void debug_files_free_unpacked(struct elf_image *unpacked);
