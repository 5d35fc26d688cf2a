/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Code names - names of generated (JIT) code, by address and time
 *
 * Read from the table jit. A load or move names an address range of a process. The name is valid
 * until the range is unloaded or moved away, or another load or move overlaps it. A forked child
 * inherits its parent's names. Immutable once loaded.
 */
#pragma once

#include "tools/symbols/names.h"

struct code_name {
	uint64_t start, end;
	uint64_t from_ns, to_ns; /* in the segment's clock; valid in [from_ns, to_ns) */
	uint32_t segment;
	uint32_t process; /* index in `names` */
	uint32_t user;    /* free for the caller's use; initially 0 */
	const char *name; /* interned; never NULL */
};

struct code_names;

struct code_names *code_names_load(struct names *names, GError **error); /* borrows names */
void code_names_free(struct code_names *codes);

/* Returns whether any process has names. */
bool code_names_any(const struct code_names *codes);
/* Returns whether any name starts with the prefix. */
bool code_names_any_with(const struct code_names *codes, const char *prefix);
/* Returns whether the process has names. */
bool code_names_has(const struct code_names *codes, uint32_t process);
/* Returns the name of the address at time_ns, or NULL. The same result is valid from time_ns until
 * just before *ret_until. */
struct code_name *code_names_find(const struct code_names *codes, uint32_t process,
				  uint64_t address, uint32_t segment, uint64_t time_ns,
				  uint64_t *ret_until);
