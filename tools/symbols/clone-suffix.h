/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Clone suffix - suffixes that compilers append to the name of a function that they cloned or split
 *
 * In a profile, "parse.isra.0", "parse.part.3.cold" and "parse.llvm.1234" are all "parse".
 */
#pragma once

#include <stddef.h>

/* Returns how many bytes of a symbol's name remain without such suffixes; 0 only for "". */
size_t clone_suffix_skip(const char *raw_name);

/* Like clone_suffix_skip(), for a name that may be demangled: "foo(int) [clone .cold]". */
size_t clone_suffix_skip_shown(const char *name);
