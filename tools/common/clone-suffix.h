/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Clone suffix - what compilers append to the name of a function of which they made another, or
 * moved a part away
 *
 * "parse.isra.0", "parse.part.3.cold", "parse.llvm.1234" are all "parse" to who reads a profile.
 */
#pragma once

#include <stddef.h>

/* How many bytes of a symbol's name are without such suffixes; never 0 but for "". */
size_t clone_suffix_skip(const char *raw_name);

/* The same of a name that may be readable already: "foo(int) [clone .cold]". */
size_t clone_suffix_skip_shown(const char *name);
