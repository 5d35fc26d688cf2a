/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Annotate-code - the code of a function, and the samples in it
 *
 * The function is chosen among those with samples: by its name, or by "image+0xOFFSET" of any place
 * in it, which distinguishes functions of the same name. Its code is the function of that name in
 * the image, and all places of the image where it is inlined.
 *
 * The instructions come from the file that ran, which is found by its build-id; if it is missing,
 * the sampled places are shown without instructions. A sample counts for the instruction at which
 * its innermost frame was interrupted; a return address counts only in the total of its line.
 * Generated code has only lines, counted as by a report by line.
 *
 * Invariants: (1) the self counts of the instructions, and those of the lines, sum up to the
 *                 function's  [test_annotate: sums, inlined; test_jit: annotate]
 *             (2) no code of a different file is shown  [test_annotate: other file]
 */
#pragma once

#include "tools/common/number-map.h"
#include "tools/profcapture/profile.h"
#include "tools/symbols/symbols.h"

/* A place in the source, which the first four fields identify, and its samples. */
struct annotate_place {
	const char *function; /* the innermost one; all text is interned */
	const char *file;     /* NULL = unknown */
	uint32_t line;        /* 0 = unknown */
	bool is_inlined;      /* belongs to another function than the shown one */
	struct amount self, total;
};

/* With `merges_callees`, a function that is inlined into the shown one has the place of its call,
 * and `functions` are those that were inlined there. */
struct annotate_line {
	struct annotate_place at;
	uint32_t number;               /* index when it was added */
	GHashTable *functions;         /* set of names */
	struct annotate_place hottest; /* place of the instruction with the most samples */
};

struct annotate_instruction {
	uint64_t offset, address; /* in the file, and in ELF */
	const char *text;         /* NULL = unknown */
	const char *callee; /* what is inlined into the shown function there; NULL = nothing */
	struct annotate_place at;
};

/* Calls of the function that are inlined in the same way. */
struct inline_site {
	GPtrArray *callers; /* names, innermost first */
	struct amount self;
};

struct annotate_code {
	/* options */
	struct reader reader;
	const char *image, *sysroot;
	GPtrArray *debug_folders;
	bool wants_total; /* of lines */
	/* which function */
	struct debug_files *debug_files;
	struct profile profile; /* by function */
	uint32_t function;      /* index in the profile */
	struct function shown;
	uint64_t start, end; /* of its own code; equal if it is only inlined */
	GString *candidates; /* escaped lines of text, if the function is ambiguous; or NULL */
	/* its code */
	const char *why_no_code; /* NULL: the code is known */
	guint unread_containers; /* functions that it is inlined into and whose code is not read */
	GPtrArray *sites;        /* struct inline_site, those with the most samples first */
	GArray *instructions; /* struct annotate_instruction, by offset; empty for generated code */
	GPtrArray *lines;     /* struct annotate_line */
	bool merges_callees;  /* text: a line for each class or function inlined at a line */
	bool has_callee_totals; /* the totals of what is inlined at a line are known */
	struct amount self;     /* of all instructions */
	struct amount own_self; /* without what is inlined into it */
	struct amount total;
	/* the rest is private */
	struct symbols *symbols;        /* of the file; NULL if the lines come from the capture */
	GArray *frames;                 /* struct sampled_frame */
	struct number_map known_frames; /* offset and kind → index + 1 */
	GArray *ranges;                 /* struct code_range, the own one first, then by samples */
	bool has_inlined;               /* it may be inlined */
	const char *plain;       /* its name without parameters, if it has no overloads; or NULL */
	GHashTable *known_lines; /* set of the lines, by place */
};

/* Opens the capture, chooses the function and reads its code. `code` has the options and zeros.
 * Code that cannot be read is not an error. */
bool annotate_code_read(struct annotate_code *code, const char *file, const char *function,
			GError **error);
void annotate_code_done(struct annotate_code *code);

/* Returns whether the program generated the code. Such code has no file. It may be at several
 * addresses and share them with other code. */
static inline bool annotate_code_is_generated(const struct annotate_code *code)
{
	return code->shown.length > 0;
}

static inline struct annotate_instruction *annotate_instruction_at(const struct annotate_code *code,
								   guint index)
{
	return &g_array_index(code->instructions, struct annotate_instruction, index);
}

/* Returns the name of a file without its folders. */
static inline const char *annotate_base_name(const char *path)
{
	const char *slash = path ? strrchr(path, '/') : NULL;

	return slash ? slash + 1 : path;
}
