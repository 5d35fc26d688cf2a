/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Annotate-code - the code of a function, and the samples in it
 *
 * The function is chosen among those with samples: by its name, or by "image+0xOFFSET" of any
 * address in it, which distinguishes functions of the same name. The code shown is the function's
 * own code and its inlined copies in the image.
 *
 * The instructions come from the file that ran, which is found by its build-id. If the file is
 * missing, only sampled addresses are shown, without instructions. A sample counts at the
 * instruction that it interrupted. A return address counts only in the total of its line. Generated
 * code has only lines, with the same counts as in a report by line.
 *
 * Invariants: (1) the self counts of all instructions, and those of all lines, sum up to the self
 *                 count of the function [test_annotate: sums, inlined; test_jit: annotate]
 *             (2) no code of a different file is shown  [test_annotate: other file]
 */
#pragma once

#include "tools/profcapture/sampled-frames.h"
#include "tools/symbols/symbols.h"

/* The samples at one place in the source. The first four fields identify the place. */
struct annotate_place {
	const char *function; /* the innermost function; all text is interned */
	const char *file;     /* NULL = unknown */
	uint32_t line;        /* 0 = unknown */
	bool is_inlined;      /* belongs to a function other than the one shown */
	struct amount self, total;
};

/* With `merges_callees`, all code that is inlined at one line of the shown function and has the
 * same callee name is one annotate_line. `functions` has the innermost functions of that code. */
struct annotate_line {
	struct annotate_place at;
	uint32_t number;               /* index in annotate_code.lines */
	GHashTable *functions;         /* set of names */
	struct annotate_place hottest; /* place of the heaviest instruction */
};

struct annotate_instruction {
	uint64_t offset, address; /* file offset; ELF address, or the offset if not disassembled */
	const char *text;         /* NULL = unknown */
	const char *callee;       /* name for the call that is inlined here; NULL: none */
	struct annotate_place at;
	uint32_t line; /* annotate_line.number of the line at which its samples count */
};

/* Calls to the shown function that are inlined at the same lines of the same callers. */
struct inline_site {
	GPtrArray *callers; /* names, innermost first */
	struct amount self;
};

struct annotate_code {
	/* options; the first four are borrowed */
	struct reader *reader; /* an open reader */
	/* counts by function; has `inlined` and `joins_inlined` set, unless no_inline is set */
	struct profile *profile;
	struct debug_files *debug_files;
	/* sampled frames of the image; NULL: annotate_code_read() counts them */
	const struct sampled_frames *sampled;
	const char *image;   /* choose only functions of this image; NULL: any image */
	bool merges_callees; /* one line for each class or function inlined at a line */
	bool full_names;     /* do not shorten names of sites */
	bool wants_total;    /* compute the totals of lines */
	bool no_inline;      /* count inlined code for the function that contains it */
	uint32_t function;   /* index in the profile */
	/* results: the function */
	struct function shown;
	uint64_t start, end; /* range of the function's own code; empty if it is only inlined */
	bool has_hint;       /* after a failure: the message or `candidates` suggests functions */
	GString *candidates; /* after a failure: similar functions, as escaped lines; or NULL */
	/* results: the function's code */
	const char *why_no_code; /* NULL: the code is known */
	guint unread_containers; /* number of inlining functions whose code is not read */
	GPtrArray *sites;        /* struct inline_site, heaviest first */
	GArray *instructions; /* struct annotate_instruction, by offset; empty for generated code */
	GPtrArray *lines;     /* struct annotate_line */
	bool has_callee_totals; /* lines of inlined calls have totals, too */
	struct amount self;     /* sum of all instructions */
	struct amount own_self; /* `self` without code inlined in the function, unless no_inline */
	struct amount total;
	/* the rest is private */
	struct symbols *symbols; /* symbols of the file; NULL if the lines come from the capture */
	GArray *frames;          /* struct sampled_frame: those in the function */
	struct number_map known_frames; /* offset and kind → index + 1 */
	GArray *ranges;          /* struct code_range: own code, then the others, heaviest first */
	bool has_inlined;        /* inlined copies can be recognized by name */
	const char *plain;       /* `shown`'s name without parameters; NULL: it has overloads */
	GHashTable *known_lines; /* set of the lines, by place */
};

/* Sets `function` to the function that `text` names (annotate-choose.c). */
bool annotate_code_choose(struct annotate_code *code, const char *text, GError **error);
/* Returns the end of a function's code. A symbol without a length extends to the next symbol. */
uint64_t annotate_code_end(const struct annotate_code *code, const struct function *function);
/* Reads the code of `function`. The caller sets the options and zeroes the rest. Code that cannot
 * be read is not an error. */
bool annotate_code_read(struct annotate_code *code, GError **error);
/* Counts the totals of the function and its lines. A recursive function occurs several times in a
 * stack, so the totals of its frames must not be added up. */
bool annotate_code_count_totals(struct annotate_code *code, GError **error);
/* Returns the index of the instruction that counts the samples at an offset of the image. */
#define ANNOTATE_NOWHERE UINT_MAX /* the function has no samples there */
guint annotate_code_find(const struct annotate_code *code, uint64_t offset);
void annotate_code_done(struct annotate_code *code);

/* Returns whether the program generated the code. Such code has no file. The function's code may be
 * at several addresses, which other code may use at other times. */
static inline bool annotate_code_is_generated(const struct annotate_code *code)
{
	return code->shown.length > 0;
}

static inline struct annotate_instruction *annotate_instruction_at(const struct annotate_code *code,
								   guint index)
{
	return &g_array_index(code->instructions, struct annotate_instruction, index);
}
