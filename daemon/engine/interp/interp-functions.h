/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Interp-functions - the functions of interpreted programs, as the capture numbers them
 *
 * A code object is known by its process, address and id. Code objects of the same function, in any
 * process, have one number. In the image of the interpreter, a function with number N has the
 * offsets from N * INTERP_FUNCTION_LINES on, one for each line of its file.
 */
#pragma once

#include "daemon/engine/interp/interp-record.h"

#include <glib.h>

#define INTERP_FUNCTION_LINES (UINT64_C(1) << 20)

struct interp_function {
	uint64_t number; /* counted from 1 */
	/* Python: "module.Class.method"; Ruby: "block in Class#method", "<main> (file.rb)"; PHP:
	 * "Class::method", "{closure} (file.php)"; Perl: "Package::sub", "require Module.pm";
	 * JavaScript: "function (file.js)" */
	char *name;
	char *file;
	uint32_t first_line; /* 0: not known */
	enum interp_family family;
	unsigned minor;
	uint8_t *lines;
	uint32_t lines_bytes;
};

struct interp_functions;
/* `seed` must be random, so that a program cannot choose colliding names. */
struct interp_functions *interp_functions_new(uint64_t max_bytes, uint64_t seed);
void interp_functions_free(struct interp_functions *functions);
/* Returns whether there was no room for a function. */
bool interp_functions_are_full(const struct interp_functions *functions);
/* Returns the function with this name, file and lines, and adds it if it is new. NULL: no room. */
const struct interp_function *interp_functions_intern(struct interp_functions *functions,
						      const struct interp_code_text *code);
/* Returns the function with this number; NULL if no function has it. */
const struct interp_function *interp_functions_at(const struct interp_functions *functions,
						  uint64_t number);
/* Interns the function of a process's code object. `process`: id of the process's row. Returns
 * false if there is no room for it. */
bool interp_functions_add(struct interp_functions *functions, uint32_t process,
			  const struct interp_code_text *code);
/* Returns NULL if the code object is not known. */
const struct interp_function *interp_functions_find(const struct interp_functions *functions,
						    uint32_t process,
						    const struct interp_frame *frame);
/* Returns whether the function belongs to the interpreter itself, and has no source lines. */
bool interp_function_is_hidden(const struct interp_function *function);
/* Returns the line at which the frame is; 0: not known. */
uint32_t interp_function_line(const struct interp_function *function,
			      const struct interp_frame *frame);
