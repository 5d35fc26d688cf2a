/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Symbols - finds the names at sampled offsets of an image
 *
 * Given an image as the capture describes it, a file that may be the image's, and file offsets,
 * symbols_read() returns the names at those offsets. The file is compared with the image first, so
 * that a file that was replaced since the recording yields no name instead of a wrong one. Offsets
 * are those of the capture's frames; if several segments map an offset, an executable one is used.
 * For a return address the caller passes the offset - 1.
 */
#pragma once

#include "libcapture/prof-capture.h"
#include "tools/symbols/debug-files.h"

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The image as the capture describes it. Unknown fields are zero or NULL. Borrows everything. */
struct symbols_image {
	const char *path;
	const uint8_t *build_id;
	size_t build_id_size;
	uint64_t dev;
	uint64_t inode;
	uint64_t size;
	enum prof_image_kind kind;
	const struct debug_files *debug_files; /* NULL: use only the file itself */
	bool names_only; /* skip lines and inlined calls, which take much longer */
};

enum symbols_state {
	SYMBOLS_READ,           /* the file was read; offsets without a name have no name in it */
	SYMBOLS_CHANGED,        /* the file differs from the recorded one; no names */
	SYMBOLS_NO_FILE,        /* no file was given, or the image is neither a file nor the vdso */
	SYMBOLS_UNKNOWN_FORMAT, /* the file is not a readable ELF file */
};

/* The source of a name, best source first. */
enum symbols_origin {
	SYMBOLS_FROM_TABLE, /* .symtab or .dynsym */
	SYMBOLS_FROM_DWARF, /* a function that is in no table, or an inlined call */
	/* "foo+?": after the end of a symbol without a size, in code without call frame
	 * information */
	SYMBOLS_BEYOND,
	SYMBOLS_FROM_PLT, /* "foo@plt" */
	SYMBOLS_FROM_GO,  /* .gopclntab, the table that Go's own stack traces use */
	/* "image+0xSTART": a stripped function, found by its call frame information */
	SYMBOLS_FROM_FDE,
};

#define SYMBOLS_NONE UINT32_MAX

/* A function, or an inlined call. Functions may nest: the innermost one has the highest start. The
 * range of an inlined call may include code of other functions. */
struct symbol {
	uint64_t start;       /* file offset */
	uint64_t length;      /* bytes, at least 1 */
	const char *name;     /* demangled, without a version; never empty; printable */
	const char *raw_name; /* as in the image: may be mangled, or have a version or suffix */
	const char *file; /* file of the declaration or, if inlined, of the call; NULL: unknown */
	uint32_t line;    /* 0 = unknown */
	const char *declared_file; /* if inlined: file of the declaration; NULL: unknown */
	uint32_t declared_line;    /* 0 = unknown */
	uint32_t inline_depth;     /* 0: a function */
	/* row into which this one is inlined; SYMBOLS_NONE for a function */
	uint32_t inline_parent;
	enum symbols_origin origin;
};

/* A range of code that contains requested offsets. */
struct symbol_line {
	uint64_t start;   /* file offset */
	uint64_t length;  /* bytes, at least 1 */
	const char *file; /* NULL = unknown */
	uint32_t line;    /* 0 = unknown */
	uint32_t symbol;  /* innermost function or inlined call; SYMBOLS_NONE: unknown */
};

struct symbols {
	/* functions by start, then inlined calls, each after the row into which it is inlined */
	struct symbol *rows;
	size_t n_rows;
	struct symbol_line *lines; /* sorted by start, without overlaps */
	size_t n_lines;
	uint32_t *row_of; /* function of each requested offset, or SYMBOLS_NONE */
	size_t n_offsets;
	enum symbols_state state;
	GStringChunk *strings; /* owns all texts of the rows and lines */
};

/*
 * Reads the names of `offsets` (in any order, best sorted). `fd` is the image's file, open for
 * reading and borrowed; -1: no file (the vdso needs none). The file position is not used, and the
 * file is never mapped, so a file that shrinks meanwhile only loses names. Fails only if the file
 * cannot be read at all. Several threads may call this at once.
 */
bool symbols_read(const struct symbols_image *image, int fd, const uint64_t *offsets,
		  size_t n_offsets, struct symbols **ret_symbols, GError **error);
void symbols_free(struct symbols *symbols);

/* Returns a name for an offset without a symbol: "libc.so.6+0x26000". Free with g_free(). */
char *symbols_offset_name(const struct symbols_image *image, uint64_t offset);
