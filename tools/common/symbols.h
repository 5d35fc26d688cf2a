/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Symbols - the names of the places in an image that a recording hit
 *
 * One question: here is an image as the capture knows it, a file that may be it, and file offsets
 * in it; what are they called? The file is compared with the image first, so that a file that was
 * replaced since the recording gives no name rather than a wrong one. Offsets are those of the
 * capture's frames (through the executable segment); a return address is looked up at offset - 1,
 * which the caller subtracts.
 */
#pragma once

#include "libcapture/prof-capture.h"
#include "tools/common/debug-files.h"

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the capture says about an image. Zero or NULL where it does not know; everything is
 * borrowed. */
struct symbols_image {
	const char *path;
	const uint8_t *build_id;
	size_t build_id_size;
	uint64_t dev;
	uint64_t inode;
	uint64_t size;
	enum prof_image_kind kind;
	const struct debug_files *debug_files; /* NULL = only what is in the file itself */
	bool names_only; /* no lines and no inlined calls, which take much longer */
};

enum symbols_state {
	SYMBOLS_READ,           /* the file was read; an offset without a name has none in it */
	SYMBOLS_CHANGED,        /* the file is not the one that was recorded; no names */
	SYMBOLS_NO_FILE,        /* no file was given, and no source of names works without */
	SYMBOLS_UNKNOWN_FORMAT, /* a file, but no ELF file that can be read */
};

/* Where a name comes from, best first. */
enum symbols_origin {
	SYMBOLS_FROM_TABLE, /* .symtab or .dynsym */
	SYMBOLS_FROM_DWARF, /* of a function that no table has, or an inlined call */
	/* "foo+?": after the end of a symbol without a size, in code that nothing describes */
	SYMBOLS_BEYOND,
	SYMBOLS_FROM_PLT, /* "foo@plt" */
	SYMBOLS_FROM_GO,  /* the table that Go's own stack traces use, .gopclntab */
	/* "image+0xSTART": a stripped function, known by its call frame information */
	SYMBOLS_FROM_FDE,
};

#define SYMBOLS_NONE UINT32_MAX

/*
 * One function, or one inlined call. Functions may nest: the innermost one is that with the
 * greatest start. The stretch of an inlined call may hold code of others.
 */
struct symbol {
	uint64_t start;         /* file offset */
	uint64_t length;        /* bytes, at least 1 */
	const char *name;       /* demangled, without a version; never empty, valid UTF-8 */
	const char *raw_name;   /* as it stands in the image; equal where nothing was mangled */
	const char *file;       /* where it is declared, or if inlined, called; NULL = unknown */
	uint32_t line;          /* 0 = unknown */
	uint32_t inline_depth;  /* 0 = a function */
	uint32_t inline_parent; /* row that this one is inlined into; SYMBOLS_NONE for a function */
	enum symbols_origin origin;
};

/* What is known of a stretch of code that was asked for. */
struct symbol_line {
	uint64_t start;   /* file offset */
	uint64_t length;  /* bytes, at least 1 */
	const char *file; /* NULL = unknown */
	uint32_t line;    /* 0 = unknown */
	uint32_t symbol;  /* the innermost function or inlined call; SYMBOLS_NONE = unknown */
};

struct symbols {
	/* functions by start, then inlined calls behind what they are inlined into; each once */
	struct symbol *rows;
	size_t n_rows;
	struct symbol_line *lines; /* by start, without overlaps */
	size_t n_lines;
	uint32_t *row_of; /* for each offset asked for: its function, or SYMBOLS_NONE */
	size_t n_offsets;
	enum symbols_state state;
	GStringChunk *strings; /* owns all text of the rows */
};

/*
 * Reads the names of `offsets` (in any order, best sorted). `fd` is the image's file, open for
 * reading and borrowed; -1 where there is none (the vdso needs none). The file position is not used
 * and the file is never mapped, so that one that shrinks meanwhile costs names only. Fails only
 * where the file cannot be read at all. May be called on several threads at once.
 */
bool symbols_read(const struct symbols_image *image, int fd, const uint64_t *offsets,
		  size_t n_offsets, struct symbols **ret_symbols, GError **error);
void symbols_free(struct symbols *symbols);

/* The name of an offset that has none: "libc.so.6+0x26000". Free with g_free(). */
char *symbols_offset_name(const struct symbols_image *image, uint64_t offset);
