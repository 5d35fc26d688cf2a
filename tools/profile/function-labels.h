/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Function-labels - unambiguous names and places of functions that are shown together
 *
 * A name has parameters only if another shown function would have the same name without them. A
 * place is a file name, with its directory only if another shown file has the same name. So all
 * functions must be added before the first label is requested.
 * [test-report: labels]
 */
#pragma once

#include "tools/profile/functions.h"

struct function_labels;

/* Returns the name of one function without parameters, or "static initialization of shop.cpp" for
 * the function that a compiler generates from a file's constructors; a new string. */
char *function_label(const struct functions *functions, uint32_t function) MUST_CHECK;
/* Returns whether function_label() includes the function's file. */
bool function_label_has_file(const struct functions *functions, uint32_t function);

/* Borrows `functions`. With full_names, names are not shortened. */
struct function_labels *function_labels_new(const struct functions *functions, bool full_names);
void function_labels_free(struct function_labels *labels);
void function_labels_add(struct function_labels *labels, uint32_t function);
/* Returns a new string, not escaped. */
char *function_labels_name(const struct function_labels *labels, uint32_t function) MUST_CHECK;
/* Returns whether another function that was added has the same full name. */
bool function_labels_is_shared(const struct function_labels *labels, uint32_t function);
/* Returns "shop.cpp:46", "libc.so.6" or "[kernel]"; NULL if unknown, or if the name includes it. */
char *function_labels_place(const struct function_labels *labels, uint32_t function) MUST_CHECK;
