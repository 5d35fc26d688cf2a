/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Debug files - finds the symbols and the DWARF that were split from a file
 *
 * Searches in this order: by build-id in the folders of debug files (.build-id/ab/cdef.debug); by
 * the name and checksum in .gnu_debuglink (beside the file, in .debug beside it, in the folders);
 * the file itself; other roots. If all fail, and a fetch function is set, fetches the file.
 */
#pragma once

#include "tools/symbols/elf-image.h"

#include <elfutils/libdw.h>

/* Where to search. Immutable after setup; several threads may use it. */
struct debug_files;

/*
 * `sysroot`: a folder that is / of the recorded machine, or NULL. Paths of files, and of the usual
 * folder of debug files, /usr/lib/debug, are below it and cannot leave it. `folders`: further
 * folders of debug files, which are searched first, or NULL. Returns NULL and sets errno if the
 * sysroot cannot be opened.
 */
struct debug_files *debug_files_new(const char *sysroot, const char *const *folders);
void debug_files_free(struct debug_files *files);

/*
 * Adds another root, for example of a container. If an image's file is not at its path on this
 * machine, the image's debug file is also searched for in the sysroot of `other`, by build-id and
 * by name.
 * Takes ownership of `other`. Frees it instead if `files` has a sysroot itself. Call this before
 * threads use `files`.
 */
void debug_files_add_other(struct debug_files *files, struct debug_files *other);

/*
 * Fetches the debug file with a build-id. Returns the file as accepted by debug_files_check(), with
 * its current path in *ret_path, or NULL if no server has it. Several threads may call it at once.
 */
typedef struct elf_image *debug_files_fetch(const uint8_t *id, size_t size, char **ret_path,
					    void *data);
/* Sets the function that fetches missing files. Must be called before threads use `files`. */
void debug_files_set_fetch(struct debug_files *files, debug_files_fetch *fetch, void *data);
/* Returns fd as an ELF file if it is a regular file with this build-id, else NULL. Takes ownership
 * of fd, which may be -1. */
struct elf_image *debug_files_check(int fd, const uint8_t *id, size_t size);

/* Opens a file of the recorded machine by its absolute path. Returns < 0 if there is no such
 * regular file. */
int debug_files_open_path(const struct debug_files *files, const char *path);

/* Opens the next regular file with this name below the folders of debug files, the user's first.
 * Set *at to 0 before the first call. Returns < 0 after the last file. *ret_path: may be NULL. */
int debug_files_open_below(const struct debug_files *files, const char *name, unsigned int *at,
			   char **ret_path);

/* Returns false if the sections are too large for libdw, which reads them into memory. */
bool debug_files_can_hold(const struct elf_image *elf);

struct debug_split;

struct debug_file {
	const struct debug_files *files; /* the root in which the file was found */
	struct elf_image *elf;           /* separate file; NULL: the image itself has the DWARF */
	Dwarf *dwarf;                    /* NULL: no usable DWARF */
	char *path;                      /* path of the separate file */
	/* finds the other halves of split units; NULL: not searched for */
	struct debug_split *split;
	/* DWARF that `dwarf` shares with other files (.gnu_debugaltlink), or NULL */
	struct debug_file *shared;
};

/*
 * Finds the debug file of an image that was opened as `path`. Returns NULL if it finds no separate
 * file and opens no DWARF. Borrows the image. If `files` is NULL, uses only the image itself. If
 * symbols_only is set, does not open the DWARF, which is slow if it is compressed.
 */
struct debug_file *debug_files_find(const struct debug_files *files, const struct elf_image *image,
				    const char *path, bool symbols_only);
void debug_file_free(struct debug_file *file);

/* Unpacks the .gnu_debugdata symbols of a stripped file into an ELF file in memory. Returns NULL if
 * the file has no such symbols. */
struct elf_image *debug_files_unpack(const struct elf_image *image);
