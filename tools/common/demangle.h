/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Demangle - readable names of C++ and Rust symbols
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Longest readable name, with its final 0; a name that would be longer stays as it is. */
#define DEMANGLE_MAX_BYTES 16384

/*
 * The readable form of a C++ or Rust symbol, without Rust's hashes; NULL where the name is not
 * mangled, or too long, or not to be trusted. Free with free(). May be called on several threads at
 * once.
 */
char *demangle_get(const char *raw_name);

/* The same for Rust alone, into a buffer: both the legacy scheme (_ZN…17h…E) and v0 (_R…). */
bool demangle_rust(const char *raw_name, char *ret_name, size_t size);
