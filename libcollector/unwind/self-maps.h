/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Self maps - the code ranges that a ring's owner has sent, so that stacks can be read after the
 * process has ended
 *
 * A range is the line of /proc/self/maps that contains the first pc that was looked up in it. A
 * change is detected by the bytes of the module's build-id, or, if the range belongs to no module,
 * by asking the loader whether a module is there now. So dlclose() need not be intercepted. If
 * /proc/self/maps does not list a module, or lists it as several mappings (for example because text
 * was moved to other pages), frames are sent as addresses; changes are still detected. For one
 * thread and its handlers.
 */
#pragma once

#include "libcollector/unwind/module-id.h"

#define SELF_MAPS_MAX 96u
#define SELF_MAPS_LINE \
	8192 /* limit for a line: a path has at most 4096 bytes, and escapes take more */

struct self_maps_range {
	uint64_t start, end;
	uint64_t file_offset;
	uint64_t id_at; /* address of the build-id; in a file without one, of the ELF header */
	uint32_t n_id_bytes;
	uint32_t image; /* id of the sent image; 0: frames are addresses */
	uint32_t stamp; /* set by self_maps_stamp(); 0: none */
	bool has_build_id;
	bool was_loaded; /* no image, but the loader had a module there, or could not be asked */
	uint8_t id[MODULE_MAX_ID];
};

/* A zeroed structure is empty. */
struct self_maps {
	volatile uint32_t version; /* incremented by each change */
	uint32_t epoch;            /* epoch of the images' ids */
	uint32_t n;
	uint32_t n_replaced; /* number of times that a module was found replaced */
	struct self_maps_range ranges[SELF_MAPS_MAX]; /* ascending */
	char line[SELF_MAPS_LINE];
};

/* A stack, innermost frame first. The first n_exact pcs are exact; the others are return
 * addresses. */
struct self_maps_stack {
	const void *const *pcs;
	uint32_t n;
	uint32_t n_exact;
};

/* Returns an address inside the instruction that the frame executes. */
static inline uint64_t self_maps_byte(const struct self_maps_stack *stack, uint32_t i)
{
	uint64_t pc = (uintptr_t)stack->pcs[i];

	return pc - (i >= stack->n_exact && pc != 0 ? 1 : 0);
}

/* Returns NULL if no range contains the address. */
const struct self_maps_range *self_maps_find(const struct self_maps *code, uint64_t address);

/* Returns whether all ranges of the stack are known and unchanged. If not, call self_maps_scan(),
 * if system calls are allowed. */
bool self_maps_check(struct self_maps *code, const struct self_maps_stack *stack, uint32_t epoch);

/* Sends a range. Returns the image's id, 0 for none, or a negative value if nothing more can be
 * sent now. */
typedef int64_t self_maps_notify(void *data, const struct self_maps_range *range, uint64_t dev,
				 uint64_t inode, const char *path);
/* Finds and sends the missing ranges. Signals must be blocked. Returns false if `notify` failed. */
bool self_maps_scan(struct self_maps *code, const struct self_maps_stack *stack,
		    self_maps_notify *notify, void *data);

/* Stores `stamp` in the ranges of the stack, which were unchanged at that time. */
void self_maps_stamp(struct self_maps *code, const struct self_maps_stack *stack, uint32_t stamp);
