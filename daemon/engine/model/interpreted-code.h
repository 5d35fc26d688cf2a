/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Interpreted-code - the functions of interpreted programs, as rows of the tables image, symbol and
 * line
 *
 * A function's place is an offset in an image of kind interpreter, of which there is one for each
 * interpreter's file (interp/interp-functions.h). The function's name is written once per epoch, as
 * is the line of each frame.
 */
#pragma once

#include "daemon/engine/interp/interp-functions.h"
#include "daemon/engine/model/images.h"

/* The function number in places whose function was not described. */
#define INTERPRETED_UNKNOWN UINT64_C(0)

struct interpreted_code {
	struct output *output;
	struct images *images;
	struct interp_functions *functions;
	GHashTable *programs; /* struct image of kind interpreter by the struct image of its file */
	GHashTable *symbols;  /* ids of the epoch's symbols, by image and function */
	uint32_t epoch, last_symbol, last_line;
};

void interpreted_code_init(struct interpreted_code *code, struct output *output,
			   struct images *images);
void interpreted_code_done(struct interpreted_code *code);

/* Returns the image of the functions that an interpreter executes; the caller borrows it. `file`:
 * image of the interpreter's file; NULL: unknown. */
struct image *interpreted_code_program(struct interpreted_code *code, const struct image *file,
				       enum interp_family family, unsigned minor);
/* Called when the broker has described a file. Copies the description to the image of the
 * functions, if `file` is the file of an interpreter. */
void interpreted_code_opened(struct interpreted_code *code, const struct image *file);
/* Writes the name and the line of a place whose frame is new. */
void interpreted_code_write(struct interpreted_code *code, const struct row *program,
			    uint64_t offset);
