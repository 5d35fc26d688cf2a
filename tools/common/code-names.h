/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Code names - what generated code was called, where and when
 *
 * From the table jit: a name holds for some bytes of a process from a load or move to it until an
 * unload, a move away, or a load or move over any of them. A forked child begins with what its
 * parent had. Immutable once loaded.
 */
#pragma once

#include "tools/common/names.h"

struct code_name {
	uint64_t start, end;
	uint64_t from_ns, to_ns; /* of the segment's clock: it holds in [from_ns, to_ns) */
	uint32_t segment;
	uint32_t process; /* index of names */
	uint32_t user;    /* free for the caller, 0 at first */
	const char *name; /* interned; never NULL */
};

struct code_names;

struct code_names *code_names_load(struct names *names, GError **error); /* borrows names */
void code_names_free(struct code_names *codes);

/* Whether there are any, of whatever process. */
bool code_names_any(const struct code_names *codes);
/* Whether there are any of that process itself. */
bool code_names_has(const struct code_names *codes, uint32_t process);
/*
 * What the address was called at that time, or NULL. *ret_until: the answer is the same for all
 * times from time_ns to before that one.
 */
struct code_name *code_names_find(const struct code_names *codes, uint32_t process,
				  uint64_t address, uint32_t segment, uint64_t time_ns,
				  uint64_t *ret_until);
