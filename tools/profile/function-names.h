/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Function-names - readable C++, Rust and Go names, shortened for people
 *
 * Pure functions of text: any thread may call them. Brackets delimit all parts, so a malformed name
 * stays as it is or loses the wrong part, but nothing is added. Names of generated code and of C
 * are the same as their raw names; they are never shortened, because their spaces and brackets mean
 * other things.
 */
#pragma once

#include "arch/base.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Returns the name without what says nothing: inline namespaces of the standard library, default
 * arguments of its templates, and return types; "std::string" for its template; and without
 * prefixes that glibc and the kernel add to names of C.
 */
char *function_name_simplify(const char *name, const char *raw_name) MUST_CHECK;
/* Returns the same without parameters. */
char *function_name_for_people(const char *name, const char *raw_name) MUST_CHECK;
/* Shortens a name to a number of columns: first the arguments of templates, then the outer
 * namespaces. The last component is never cut, so the result may still be too wide. */
char *function_name_fit(const char *name, unsigned columns) MUST_CHECK;

/* Returns the rest of the text after the first of the prefixes that it has, or NULL. */
const char *skip_any_prefix(const char *text, const char *const *prefixes);

/* Returns whether the raw name is that of the kernel's function for a system call. */
bool function_name_is_syscall(const char *raw_name);

/* Returns the name without its return type and parameters: "a::b" of "int a::b(char) const". */
char *function_name_plain(const char *name) MUST_CHECK;

/* The part of a function's name that a text equals, the weakest match first. */
enum function_name_match {
	FUNCTION_NAME_DIFFERS,
	FUNCTION_NAME_COMPONENT, /* its last component: "find" of "std::map<int>::find(int)" */
	FUNCTION_NAME_PLAIN,     /* without parameters or return type, or shortened for people */
	FUNCTION_NAME_WHOLE,     /* the readable or the raw name */
};
enum function_name_match function_name_match(const char *name, const char *raw_name,
					     const char *text);
