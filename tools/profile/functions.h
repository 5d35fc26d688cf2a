/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Functions - the names of frames, the same in every epoch
 *
 * A function is a symbol of an image. If no symbol contains a frame, its function is its offset in
 * the image ("libc.so.6+0x26000", kind unresolved). Functions have indexes, of which two always
 * exist: FUNCTION_NO_STACK for samples without frames, and FUNCTION_LOST for frames that the
 * capture lost. In generated code, a frame's function depends on the time: functions_is_timed().
 */
#pragma once

#include "tools/common/json.h"
#include "tools/present/table.h"
#include "tools/profile/own-memory.h"
#include "tools/symbols/code-names.h"
#include "tools/symbols/symbol-rows.h"

#define FUNCTION_NO_STACK 0u
#define FUNCTION_LOST 1u

struct function {
	const char *name, *raw_name; /* interned */
	/* "user", "kernel", "jit", "unresolved"; of an interpreted function: the language, or
	 * "interpreter" if that is unknown */
	const char *kind;
	const char *file; /* NULL = unknown */
	/* for an inlined function whose file is unknown: the first file in which its code was seen;
	 * not part of the function's identity; NULL = unknown */
	const char *code_file;
	uint64_t offset;
	uint64_t length; /* bytes of generated code at its first address; 0: other code */
	uint32_t image;  /* index in names */
	uint32_t line;   /* 0 = unknown */
	bool is_line;    /* file and line are those of the frame, not of the function */
	bool is_inlined; /* represents a function's inlined copies, if not joined with it */
	bool is_address; /* the offset is that of the frame (FUNCTIONS_ADDRESSES) */
	/* For places (FUNCTIONS_PLACES); otherwise 0. */
	uint32_t whole; /* index of the function that contains the place */
	uint32_t depth; /* number of inlined calls of the frame that contain the place */
};

/* The entity of a frame: a function, a source line, a place (a source line of a function), or a
 * place at one address. */
enum functions_detail { FUNCTIONS_WHOLE, FUNCTIONS_LINES, FUNCTIONS_PLACES, FUNCTIONS_ADDRESSES };

struct functions {
	/* must be set before the first entity is requested */
	enum functions_detail detail;
	bool inlined; /* functions_at_row(): also return inlined calls */
	/* count inlined calls for the function with the same name, if the image has one */
	bool joins_inlined;
	/* the rest is private */
	struct names *names;
	struct symbol_rows *symbols;
	struct code_names *codes;
	struct own_memory *memory;
	GArray *all;           /* struct function by index */
	GHashTable *known;     /* struct function by key_equal() → index */
	bool has_interpreter;  /* functions were read from an interpreter */
	GHashTable *languages; /* languages of interpreted functions, as in `kind` */
	bool is_foreign; /* the recorded program is not part of the system, see code-origin.c */
	uint32_t kernel; /* index of the kernel's image in names; 0: none */
};

struct functions *functions_new(struct names *names, GError **error); /* borrows names */
void functions_free(struct functions *functions);

/* Returns the function of a row of the epoch's frame table, ignoring the time. The table and the
 * identities must be loaded. */
uint32_t functions_of_row(struct functions *functions, struct names_epoch *epoch, size_t row);
/*
 * Like functions_of_row(), but returns an entity of `detail`. A line has the frame's file and line,
 * and the name of the function that contains that line in the source. A place is the function plus
 * the source line of the frame; if the frame has inlined code, the line of the inlined call.
 */
uint32_t functions_entity_of_row(struct functions *functions, struct names_epoch *epoch,
				 size_t row);
/* Stores the inlined functions that a frame is in, outermost first, as functions or places. Returns
 * their number, at most FUNCTIONS_MAX_INLINED. */
#define FUNCTIONS_MAX_INLINED SYMBOL_ROWS_MAX_CALLS
size_t functions_inlined_at_row(struct functions *functions, struct names_epoch *epoch, size_t row,
				uint32_t *ret_functions);
/* Returns the kernel's function for a system call that has no frame. Keeps the pointer `name`. */
uint32_t functions_of_call(struct functions *functions, const char *name);
/* Returns whether the function of a row depends on the time. */
bool functions_is_timed(struct functions *functions, struct names_epoch *epoch, size_t row);
/*
 * Stores the entities of a frame at a time of a segment's clock: the frame's own, then, with
 * `inlined`, the calls inlined into it, outermost first. Returns the number of entities, at most
 * FUNCTIONS_MAX_AT_ROW. If ret_until is not NULL, the result is valid for all times before
 * *ret_until.
 */
#define FUNCTIONS_MAX_AT_ROW (1 + FUNCTIONS_MAX_INLINED)
size_t functions_at_row(struct functions *functions, struct names_epoch *epoch, size_t row,
			uint32_t segment, uint64_t time_ns, uint32_t *ret_entities,
			uint64_t *ret_until);

static inline const struct function *functions_at(const struct functions *functions, uint32_t index)
{
	return &((const struct function *)(void *)functions->all->data)[index];
}

/* Returns the function that contains a place; any other entity is returned unchanged. */
static inline uint32_t functions_whole(const struct functions *functions, uint32_t index)
{
	uint32_t whole = functions_at(functions, index)->whole;

	return whole ? whole : index;
}

/* Returns the line of a place, as functions_entity_of_row() does with FUNCTIONS_LINES. */
uint32_t functions_line_of_place(struct functions *functions, uint32_t place);

/* The JSON members that describe a function, as fields of a table. A table's own fields start at
 * FN_FIELDS. */
enum function_field {
	FN_NAME,
	FN_RAW_NAME,
	FN_IMAGE,
	FN_BUILD_ID,
	FN_OFFSET,
	FN_KIND,
	FN_FILE,
	FN_LINE,
	FN_FIELDS,
};
/* clang-format off */
#define FN_MEMBERS \
	{ "name", FN_NAME }, { "raw_name", FN_RAW_NAME }, { "image", FN_IMAGE }, \
	{ "build_id", FN_BUILD_ID }, { "offset", FN_OFFSET }, { "kind", FN_KIND }, \
	{ "file", FN_FILE }, { "line", FN_LINE }
/* clang-format on */
struct cell functions_cell(const struct functions *functions, uint32_t index,
			   enum function_field field);
/* Writes the members FN_MEMBERS of a function. */
void functions_write(const struct functions *functions, uint32_t index, struct json *json);
/* Returns the part of a path after the last slash; "-" if it is NULL or empty. */
const char *functions_basename(const char *path);
/* Returns whether names were added to the capture: whether any function of a program has a name. */
bool functions_have_names(const struct functions *functions);
/* Returns the part of a path from its last folder on if `has_folder`, else its basename. */
const char *functions_short_path(const char *path, bool has_folder);
/* Returns whether two different paths have the same basename. Either may be NULL. */
bool functions_have_one_basename(const char *path, const char *other);
/* Returns the path of a function's image, or NULL. */
const char *functions_image(const struct functions *functions, uint32_t index);
/* Returns the path of a function's source, else of its image, or NULL. */
const char *functions_path(const struct functions *functions, uint32_t index);
/* Returns where a function is: "shop.cpp:46" if its declaration is known, else "libc.so.6" or
 * "[kernel]"; NULL if unknown, or if the name includes it. `has_folder`: "src/shop.cpp:46". */
char *functions_place(const struct functions *functions, uint32_t index, bool has_folder);
/* Prints "  [libc.so.6]" after the function's name; nothing if the image is unknown. */
void functions_print_image(const struct functions *functions, uint32_t index, struct out *out);
/* Prints "  spin.c:14" after the name of a line or a place; nothing if it is unknown. */
void functions_print_line(const struct functions *functions, uint32_t index, struct out *out);
