/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Demangle - readable names of C++ and Rust symbols
 */
#pragma once

/* Maximum size of a readable name, with its NUL. */
#define DEMANGLE_MAX_BYTES 16384

/*
 * Returns the readable form of a C++ or Rust symbol, without Rust's hashes. Returns NULL if the
 * name is not mangled, or if the name or its readable form is too long. Free the result with
 * free(). Any thread may call this.
 */
char *demangle_get(const char *raw_name);
