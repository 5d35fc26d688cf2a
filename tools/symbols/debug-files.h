/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Debug files - where the symbols and the DWARF are that were split from a file
 *
 * In this order: by build-id below the folders of debug files (.build-id/ab/cdef.debug), by the
 * name and checksum in .gnu_debuglink (beside the file, in .debug beside it, in the folders), in
 * the file itself. If none of these has it, it is fetched, provided that a fetch function is set.
 */
#pragma once

#include "tools/symbols/elf-image.h"

#include <elfutils/libdw.h>

/* Where to look. Immutable after setup; several threads may use it. */
struct debug_files;

/*
 * `sysroot`, or NULL: a folder that is / of the recorded machine; paths of files and the usual
 * folder of debug files, /usr/lib/debug, are below it and cannot leave it. `folders`, or NULL:
 * further folders of debug files, which are searched first. Returns NULL with errno set if the
 * sysroot cannot be opened.
 */
struct debug_files *debug_files_new(const char *sysroot, const char *const *folders);
void debug_files_free(struct debug_files *files);

/*
 * Adds another root, for example of a container. An image that is not the file at its path here is
 * also looked for below the other's sysroot, by build-id and by name, and nowhere else there. Takes
 * `other`; has no effect if `files` has a sysroot itself. Call it before threads use the files.
 */
void debug_files_add_other(struct debug_files *files, struct debug_files *other);

/*
 * Fetches the debug file of a build-id. Returns the file as debug_files_check() accepted it, with
 * its present path in *ret_path; NULL if nobody has it. Several threads may call it at once.
 */
typedef struct elf_image *debug_files_fetch(const uint8_t *id, size_t size, char **ret_path,
					    void *data);
/* Fetches the files that are not found here. Call it before threads use the files. */
void debug_files_set_fetch(struct debug_files *files, debug_files_fetch *fetch, void *data);
/* Returns the fd as an ELF file if it is a regular file with this build-id; else NULL. Takes the
 * fd, which may be -1. */
struct elf_image *debug_files_check(int fd, const uint8_t *id, size_t size);

/* Opens a file of that machine by its absolute path; < 0 if it is not a regular file. */
int debug_files_open_path(const struct debug_files *files, const char *path);

/* Opens the next regular file of that name below the folders of debug files, the user's first; *at
 * is 0 at first. Returns < 0 after the last. *ret_path is the file's path; may be NULL. */
int debug_files_open_below(const struct debug_files *files, const char *name, unsigned int *at,
			   char **ret_path);

/* Returns false if the sections are too large for libdw, which reads them into memory. */
bool debug_files_can_hold(const struct elf_image *elf);

struct debug_split;

struct debug_file {
	const struct debug_files *files; /* the files that it was found in */
	struct elf_image *elf;           /* separate file; NULL = the image itself has the DWARF */
	Dwarf *dwarf;                    /* NULL = no usable DWARF */
	char *path;                      /* of the separate file */
	struct debug_split
		*split; /* where the other halves of split units are; NULL = not looked for */
	struct debug_file
		*shared; /* DWARF that `dwarf` shares with others (.gnu_debugaltlink), or NULL */
};

/* Finds the debug file of an image that was opened as `path`; NULL = not found. Borrows the image.
 * With `files` NULL it uses only the image itself. With `symbols_only` the DWARF, which is slow to
 * open if it is compressed, is left out. */
struct debug_file *debug_files_find(const struct debug_files *files, const struct elf_image *image,
				    const char *path, bool symbols_only);
void debug_file_free(struct debug_file *file);

/* Unpacks the .gnu_debugdata symbols of a stripped file into an ELF file in memory; NULL = none. */
struct elf_image *debug_files_unpack(const struct elf_image *image);
