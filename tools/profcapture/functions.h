/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Functions - what a frame is called, the same in every epoch
 *
 * A function is a symbol of an image, or, where no symbol holds it, one frame's place in its image
 * ("libc.so.6+0x26000", kind unresolved). Functions have indexes; two are always there:
 * FUNCTION_NO_STACK for samples without any frame and FUNCTION_LOST for frames that the capture
 * does not explain. A frame in memory that a program puts code into is of a function at a time:
 * functions_is_timed().
 */
#pragma once

#include "tools/common/code-names.h"
#include "tools/common/json.h"
#include "tools/common/line-rows.h"
#include "tools/common/symbol-rows.h"
#include "tools/profcapture/own-memory.h"

#define FUNCTION_NO_STACK 0u
#define FUNCTION_LOST 1u

struct function {
	const char *name, *raw_name; /* interned */
	const char *kind;            /* "user", "kernel", "jit", "unresolved" */
	const char *file;            /* NULL = unknown */
	uint64_t offset;
	uint64_t length; /* bytes where it was first, of code that a program made; 0 of all other */
	uint32_t image;  /* index of names */
	uint32_t line;   /* 0 = unknown */
	bool is_line;    /* file and line are of what was hit, not of the function */
	bool is_inlined; /* into others: all calls of it together, unless they are joined with it */
	/* Of a place in a function (FUNCTIONS_PLACES); 0 in others. */
	uint32_t whole; /* index of what it counts as */
	uint32_t depth; /* into how many calls of the same frame it is inlined */
};

/* What a frame is counted as: a function, one of its lines, or a place in it. */
enum functions_detail { FUNCTIONS_WHOLE, FUNCTIONS_LINES, FUNCTIONS_PLACES };

struct functions {
	/* what entities of frames are: set before the first is asked for */
	enum functions_detail detail;
	bool inlined; /* functions_at_row(): also the calls that are inlined there */
	/* these count for the function of their name, where the image has one */
	bool joins_inlined;
	/* the rest is its own */
	struct names *names;
	struct symbol_rows *symbols;
	struct line_rows *lines;
	struct code_names *codes;
	struct own_memory *memory;
	GHashTable *code;        /* process and name → index */
	GArray *all;             /* of struct function */
	GHashTable *whole;       /* struct function, without its place → index */
	GHashTable *unresolved;  /* image and offset → index */
	GHashTable *known_lines; /* struct function of a line or of an inlined function → index */
};

struct functions *functions_new(struct names *names, GError **error); /* borrows names */
void functions_free(struct functions *functions);

/* Index of the function of a row of the epoch's table of frames (loaded, as identities are),
 * whatever the time. */
uint32_t functions_of_row(struct functions *functions, struct names_epoch *epoch, size_t row);
/*
 * The same, as an entity of `detail`. A line has that of the frame as file and line, and the name
 * of the function that it is written in. A place is the function with where in the source of it the
 * frame is, or calls what is inlined there.
 */
uint32_t functions_entity_of_row(struct functions *functions, struct names_epoch *epoch,
				 size_t row);
/* Which inlined functions a frame is in, outermost first, as entities of their own, or their
 * places; at most FUNCTIONS_MAX_INLINED. How many there are. */
#define FUNCTIONS_MAX_INLINED LINE_ROWS_MAX_CALLS
size_t functions_inlined_at_row(struct functions *functions, struct names_epoch *epoch, size_t row,
				uint32_t *ret_functions);
/* Whether it depends on the time. */
bool functions_is_timed(struct functions *functions, struct names_epoch *epoch, size_t row);
/*
 * What a frame is at a time of a segment's clock: the entity, and with `inlined` what is inlined
 * into it, outermost first; at most FUNCTIONS_MAX_AT_ROW. How many they are. *ret_until, if that is
 * not NULL: the answer is the same for all times before that one.
 */
#define FUNCTIONS_MAX_AT_ROW (1 + FUNCTIONS_MAX_INLINED)
size_t functions_at_row(struct functions *functions, struct names_epoch *epoch, size_t row,
			uint32_t segment, uint64_t time_ns, uint32_t *ret_entities,
			uint64_t *ret_until);

static inline const struct function *functions_at(const struct functions *functions, uint32_t index)
{
	return &((const struct function *)(void *)functions->all->data)[index];
}

/* What a place counts as; anything else is that itself. */
static inline uint32_t functions_whole(const struct functions *functions, uint32_t index)
{
	uint32_t whole = functions_at(functions, index)->whole;

	return whole ? whole : index;
}

/* The line that a place is: what functions_entity_of_row() gives for it with FUNCTIONS_LINES. */
uint32_t functions_line_of_place(struct functions *functions, uint32_t place);

/* The members of FN. */
void functions_write(const struct functions *functions, uint32_t index, struct json *json);
/* Path of its image, or NULL. */
const char *functions_image(const struct functions *functions, uint32_t index);
/* "  [libc.so.6]", as it stands behind the function's name; nothing where the image is unknown. */
void functions_print_image(const struct functions *functions, uint32_t index, struct out *out);
/* "  spin.c:14", as it stands behind the name of a line or a place; nothing where it is unknown. */
void functions_print_line(const struct functions *functions, uint32_t index, struct out *out);
/* Its name and its image; full_names: else as function_name_shorten() has it. */
void functions_print(const struct functions *functions, uint32_t index, bool full_names,
		     struct out *out);
