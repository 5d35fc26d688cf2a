/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Function-names - shortens readable C++, Rust and Go names
 *
 * Thread-safe: all functions depend on their arguments only. Names are split at brackets, so a
 * malformed name stays unchanged or loses the wrong part, but nothing is added. Names of C, Ruby
 * and generated code, which equal their raw names, lose at most a known prefix, because their
 * spaces and brackets have other meanings.
 */
#pragma once

#include "arch/base.h"

#include "tools/present/table.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Returns the name without inline namespaces of the standard library, default arguments of its
 * templates, and return types. Uses "std::string" for std::basic_string<char>. Removes prefixes
 * that glibc and the kernel add to C names.
 */
char *function_name_simplify(const char *name, const char *raw_name) MUST_CHECK;
/* Returns the simplified name without parameters. */
char *function_name_for_people(const char *name, const char *raw_name) MUST_CHECK;
/* Shortens a name to a number of columns: first template arguments, then outer namespaces. The last
 * component is never cut, so the result may still be too wide. */
char *function_name_fit(const char *name, unsigned columns) MUST_CHECK;
/* The functions with which a table shortens function names. */
extern const struct table_fit function_name_fits;

/* Returns the text after the first of the prefixes that matches, or NULL. */
const char *skip_any_prefix(const char *text, const char *const *prefixes);

/* Returns whether the raw name is that of a system call's function in the kernel. */
bool function_name_is_syscall(const char *raw_name);

/* Returns the name without return type and parameters: "a::b" for "int a::b(char) const". */
char *function_name_plain(const char *name) MUST_CHECK;

/* How well a text matches a function's name, the weakest match first. */
enum function_name_match {
	FUNCTION_NAME_DIFFERS,
	/* its last component, or the whole name without template arguments: "find" or
	 * "std::map::find" of "std::map<int>::find(int)" */
	FUNCTION_NAME_COMPONENT,
	FUNCTION_NAME_PLAIN, /* without parameters or return type, or as shortened */
	FUNCTION_NAME_WHOLE, /* the readable or the raw name */
};
enum function_name_match function_name_match(const char *name, const char *raw_name,
					     const char *text);
