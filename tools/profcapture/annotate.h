/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Annotate - what the files of the verb `annotate` share: the verb and which function is meant
 * (annotate.c), its code, lines and their samples (annotate-code.c), and how they are shown
 * (annotate-show.c)
 */
#pragma once

#include "tools/common/symbols.h"
#include "tools/profcapture/source-text.h"
#include "tools/profcapture/tally.h"

/* All text is interned. */
struct annotate_line {
	const char *function; /* in whose source it is */
	const char *file;     /* NULL = unknown */
	uint32_t line;        /* 0 = unknown */
	bool is_inlined;      /* belongs to another function than the shown one */
	struct amount self, total;
	uint64_t first; /* offset of its first instruction */
};

struct annotate_instruction {
	uint64_t offset, address; /* in the file, and in ELF */
	char *text;               /* NULL = unknown */
	uint32_t line;            /* index in lines */
	struct amount self;
};

struct annotate {
	struct reader reader;
	/* options */
	const char *image, *sysroot;
	GPtrArray *debug_folders, *source_folders;
	int by;
	bool wants_total;
	/* which function */
	struct debug_files *debug_files;
	struct tally tally; /* by function */
	uint32_t function;  /* index in the tally */
	uint64_t start, end;
	GPtrArray *candidates; /* lines of text, if the function is ambiguous */
	/* its code */
	const char *why_no_code; /* NULL: the code is known */
	struct symbols *symbols; /* of the file; NULL if the lines come from the capture */
	GArray *instructions; /* struct annotate_instruction, by offset; empty for generated code */
	GArray *lines;        /* struct annotate_line; line 0: code of the file without a line */
	GHashTable *known_lines; /* struct annotate_line → index */
	GHashTable *sources;     /* file → struct source_text or NULL */
	struct amount self;      /* of all instructions */
};

extern const char *const annotate_by_names[];
enum annotate_by { ANNOTATE_BOTH, ANNOTATE_BY_LINE, ANNOTATE_BY_INSTRUCTION };

static inline const struct function *annotate_function(const struct annotate *annotate)
{
	return functions_at(annotate->tally.functions, annotate->function);
}

/* Returns whether the program generated the code. Such code has no file. It may be at several
 * addresses and share them with other code. */
static inline bool annotate_is_generated(const struct annotate *annotate)
{
	return annotate_function(annotate)->length > 0;
}

/* Fills in the code; code that cannot be read is not an error. */
bool annotate_read_code(struct annotate *annotate, GError **error);
void annotate_code_done(struct annotate *annotate);
/* Returns NULL if the file cannot be read. */
const struct source_text *annotate_source(struct annotate *annotate, const char *file);

void annotate_show(struct annotate *annotate, struct out *out);
