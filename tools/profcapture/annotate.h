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
	const char *function; /* that it is written in */
	const char *file;     /* NULL = unknown */
	uint32_t line;        /* 0 = unknown */
	bool is_inlined;      /* of another function than the one that is shown */
	struct amount self, total;
	uint64_t first; /* offset of its first instruction */
};

struct annotate_instruction {
	uint64_t offset, address; /* in the file, and as the file counts */
	char *text;               /* NULL = unknown */
	uint32_t line;            /* index of lines */
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
	uint32_t function;  /* index of the tally's */
	uint64_t start, end;
	GPtrArray *candidates; /* lines of text, when it is not clear which */
	/* its code */
	const char *why_no_code; /* NULL = there is */
	struct symbols *symbols; /* of the file; NULL where the lines are the capture's */
	GArray *instructions; /* struct annotate_instruction, by offset; none of generated code */
	GArray *lines;        /* struct annotate_line; of a file 0 is what no line is known of */
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

/* Code that a program made: it has no file, and may stand at several places and share them with
 * other code. */
static inline bool annotate_is_generated(const struct annotate *annotate)
{
	return annotate_function(annotate)->length > 0;
}

/* Fills in the code; what cannot be read of it is no error. */
bool annotate_read_code(struct annotate *annotate, GError **error);
void annotate_code_done(struct annotate *annotate);
/* NULL where it cannot be read. */
const struct source_text *annotate_source(struct annotate *annotate, const char *file);

void annotate_show(struct annotate *annotate, struct out *out);
