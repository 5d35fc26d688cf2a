/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Self maps - the code ranges that a ring's owner has sent, so that stacks are readable after its
 * end
 *
 * A range is the line of /proc/self/maps for the first pc in it. Whether it is unchanged is
 * detected by the bytes of its module's build-id, or, if it belongs to no module, by the loader
 * having none there: so dlclose() need not be noticed. If that file does not list a module, or not
 * as one, as when text was moved to other pages, frames are addresses; changes are detected
 * nevertheless.
 * For one thread and its handlers.
 */
#pragma once

#include "libcollector/module-id.h"

#define SELF_MAPS_MAX 96u
#define SELF_MAPS_LINE \
	8192 /* of /proc/self/maps; a path has at most 4096 bytes, escaped ones some more */

struct self_maps_range {
	uint64_t start, end;
	uint64_t file_offset;
	uint64_t id_at; /* of its build-id; without one, of its ELF header */
	uint32_t n_id_bytes;
	uint32_t image; /* as sent; 0: frames are addresses */
	uint32_t stamp; /* set by self_maps_stamp(); 0: none */
	bool has_build_id;
	bool was_loaded; /* no image, but the loader had a module there, or is unavailable */
	uint8_t id[MODULE_MAX_ID];
};

/* All zeros is empty. */
struct self_maps {
	volatile uint32_t version; /* changes with every change */
	uint32_t epoch;            /* of the ids of images */
	uint32_t n;
	uint32_t n_replaced; /* number of times that another module replaced one */
	struct self_maps_range ranges[SELF_MAPS_MAX]; /* ascending */
	char line[SELF_MAPS_LINE];
};

/* pcs, innermost first; the first n_exact are exact, the others return addresses. */
struct self_maps_stack {
	const void *const *pcs;
	uint32_t n;
	uint32_t n_exact; /* the innermost ones */
};

/* Returns an address inside the frame's instruction. */
static inline uint64_t self_maps_byte(const struct self_maps_stack *stack, uint32_t i)
{
	uint64_t pc = (uintptr_t)stack->pcs[i];

	return pc - (i >= stack->n_exact && pc != 0 ? 1 : 0);
}

/* Returns NULL if no range has the address. */
const struct self_maps_range *self_maps_find(const struct self_maps *code, uint64_t address);

/*
 * Returns whether all ranges that the stack goes through are known and unchanged. If not, call
 * self_maps_scan(), if system calls are allowed.
 */
bool self_maps_check(struct self_maps *code, const struct self_maps_stack *stack, uint32_t epoch);

/* Sends a range. Returns the image's id, or 0; negative: nothing more can be sent now. */
typedef int64_t self_maps_notify(void *data, const struct self_maps_range *range, uint64_t dev,
				 uint64_t inode, const char *path);
/* Finds the missing ranges. Signals must be blocked. Returns false if `notify` failed. */
bool self_maps_scan(struct self_maps *code, const struct self_maps_stack *stack,
		    self_maps_notify *notify, void *data);

/* Marks the ranges that the stack goes through as unchanged at that stamp. */
void self_maps_stamp(struct self_maps *code, const struct self_maps_stack *stack, uint32_t stamp);
