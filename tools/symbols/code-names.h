/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Code names - what generated code was called, where and when
 *
 * Read from the table jit. A load or move gives some bytes of a process a name, until an unload, a
 * move away, or a load or move over any of them. A forked child inherits the names of its parent.
 * Immutable once loaded.
 */
#pragma once

#include "tools/symbols/names.h"

struct code_name {
	uint64_t start, end;
	uint64_t from_ns, to_ns; /* of the segment's clock: the name is valid in [from_ns, to_ns) */
	uint32_t segment;
	uint32_t process; /* index of names */
	uint32_t user;    /* free for the caller, 0 at first */
	const char *name; /* interned; never NULL */
};

struct code_names;

struct code_names *code_names_load(struct names *names, GError **error); /* borrows names */
void code_names_free(struct code_names *codes);

/* Returns whether any process has names. */
bool code_names_any(const struct code_names *codes);
/* Returns whether the process itself has names. */
bool code_names_has(const struct code_names *codes, uint32_t process);
/*
 * Returns the name of the address at that time, or NULL. The result is valid from time_ns until
 * just before *ret_until.
 */
struct code_name *code_names_find(const struct code_names *codes, uint32_t process,
				  uint64_t address, uint32_t segment, uint64_t time_ns,
				  uint64_t *ret_until);
