/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Own code - what a ring's owner has said of where code lies, so that its stacks can be understood
 * when it is gone
 *
 * A stretch of memory is what /proc/self/maps says at the first pc in it. Whether it is the same
 * one still is seen by the bytes of its module's build-id, or, where it is no module's, by the
 * loader having none there: so dlclose() need not be noticed. Of a module of which that file says
 * nothing, or not that it is one, as where text was moved to other pages, frames are addresses;
 * whether it is the same one is seen all the same.
 * For one thread and the handlers on it.
 */
#pragma once

#include "libcollector/module-id.h"

#define OWN_CODE_MAX 96u
#define OWN_CODE_LINE \
	8192 /* of /proc/self/maps; a path has at most 4096 bytes, escaped some more */

struct own_code_range {
	uint64_t start, end;
	uint64_t file_offset;
	uint64_t id_at; /* of its build-id; without one, of its ELF header */
	uint32_t n_id_bytes;
	uint32_t image; /* as sent; 0: its frames are addresses */
	uint32_t stamp; /* of own_code_stamp(); 0: none */
	bool has_build_id;
	bool was_loaded; /* no image, but the loader had a module there, or could not be asked */
	uint8_t id[MODULE_MAX_ID];
};

/* All zero is empty. */
struct own_code {
	volatile uint32_t version; /* another one: something has changed */
	uint32_t epoch;            /* of the ids of images */
	uint32_t n;
	uint32_t n_replaced; /* times that another module was found where one was known */
	struct own_code_range ranges[OWN_CODE_MAX]; /* ascending */
	char line[OWN_CODE_LINE];
};

/* pcs, innermost first, and which of them are behind a call. */
struct own_code_stack {
	const void *const *pcs;
	uint32_t n;
	uint32_t n_exact; /* the innermost ones are not */
};

/* A byte of the instruction that a frame is in. */
static inline uint64_t own_code_byte(const struct own_code_stack *stack, uint32_t i)
{
	uint64_t pc = (uintptr_t)stack->pcs[i];

	return pc - (i >= stack->n_exact && pc != 0 ? 1 : 0);
}

/* NULL: nothing is known of it. */
const struct own_code_range *own_code_find(const struct own_code *code, uint64_t address);

/*
 * Whether all is known that the stack goes through, and is so still. False: own_code_scan() is to
 * be called, where calls are allowed.
 */
bool own_code_check(struct own_code *code, const struct own_code_stack *stack, uint32_t epoch);

/* Tells what is there: an image by its id, or 0; negative: no more can be told now. */
typedef int64_t own_code_tell(void *data, const struct own_code_range *range, uint64_t dev,
			      uint64_t inode, const char *path);
/* Looks for what is missing. Signals are blocked. False: `tell` has said so. */
bool own_code_scan(struct own_code *code, const struct own_code_stack *stack, own_code_tell *tell,
		   void *data);

/* That the ranges which the stack goes through were the same when whoever stamps them looked. */
void own_code_stamp(struct own_code *code, const struct own_code_stack *stack, uint32_t stamp);
