/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Function-names - parts of readable C++, Rust and Go names
 *
 * Pure functions of text: any thread may call them.
 */
#pragma once

#include "arch/base.h"

#include <stdint.h>

/* Removes the arguments of templates: "a<b<c> >::d<e>(f<g>)" becomes "a<>::d<>(f<>)". Operators
 * keep their signs. */
char *function_name_shorten(const char *name) MUST_CHECK;

/* Returns the name without its return type and parameters: "a::b" of "int a::b(char) const". */
char *function_name_plain(const char *name) MUST_CHECK;

/* The part of a function's name that a text equals, the weakest match first. */
enum function_name_match {
	FUNCTION_NAME_DIFFERS,
	FUNCTION_NAME_COMPONENT, /* its last component: "find" of "std::map<int>::find(int)" */
	FUNCTION_NAME_PLAIN,     /* without parameters or return type, or with short templates */
	FUNCTION_NAME_WHOLE,     /* the readable or the raw name */
};
enum function_name_match function_name_match(const char *name, const char *raw_name,
					     const char *text);
