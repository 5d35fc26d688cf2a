/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Function-labels - names and places of functions that are shown together, for people
 *
 * A name has its parameters only if another shown function differs in nothing else. A place is the
 * name of a file; its folder precedes it only if another shown file has the same name. So add all
 * functions before asking for the first label.                        [test-report: labels]
 */
#pragma once

#include "tools/profile/functions.h"

struct function_labels;

/* Borrows the functions. With full_names, a name is what the capture has. */
struct function_labels *function_labels_new(const struct functions *functions, bool full_names);
void function_labels_free(struct function_labels *labels);
void function_labels_add(struct function_labels *labels, uint32_t function);
/* Return new strings, not escaped. */
char *function_labels_name(const struct function_labels *labels, uint32_t function) MUST_CHECK;
/* "shop.cpp:46", "libc.so.6" or "[kernel]"; NULL if it is not known or part of the name. */
char *function_labels_place(const struct function_labels *labels, uint32_t function) MUST_CHECK;
