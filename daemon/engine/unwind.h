/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "arch/walk.h"
#include "daemon/engine/maps.h"
#include "daemon/engine/record.h"
#include "daemon/engine/unwind-tables.h"
#include "libcapture/prof-capture.h"

#define UNWIND_MAX_FRAMES 1024           /* kept of a stack */
#define UNWIND_MAX_WALKED WALK_MAX_STEPS /* the most that a copy of 64 KiB can have */
#define UNWIND_EXACT \
	(UINT64_C(1) << 63) /* set if the CPU was at the address; else it is a return address */

/* The user part of a stack. Addresses are leaf first, with UNWIND_EXACT. */
struct unwind_stack {
	const uint64_t *ips;
	size_t n;
	size_t cut_at, n_cut; /* n_cut frames were left out before ips[cut_at]; n_cut 0: none */
	bool deeper;          /* the callers of the last frame are unknown */
	enum prof_user_method method;
	enum prof_user_stop stop;
};

/* The start of a walk. The stack must not change until the walk ends. */
struct unwind_input {
	struct walk_registers registers;
	uint64_t numbered[REGS_MAX_NUMBERED]; /* the same and others, by DWARF number */
	const uint8_t *stack;
	size_t stack_bytes,
		full_bytes;    /* bytes of the copy; bytes that a deep stack's copy would have */
	const uint64_t *chain; /* the kernel's, by frame pointers: leaf first, without marks */
	size_t n_chain;
	uint32_t thread; /* id of the row */
	int32_t pid;
	bool in_kernel;
};

/* A walk that runs in parallel with others, and its result. */
struct unwind_job {
	struct unwind_input input;
	const struct maps *maps;
	bool maps_known;
	/* Set by unwind_run_together(): */
	bool done;                 /* false: a table or the mappings are missing */
	struct unwind_stack stack; /* if done; valid until the next walk */
	struct image *missing;     /* if not done; NULL: the mappings */
};

struct unwind_links;
struct unwind_lane;

struct unwind {
	const struct unwind_tables *tables;
	/* A walk reached a file that has not been requested. */
	void (*request_image)(struct image *image, const struct mapping *mapping, int32_t pid,
			      void *data);
	void *data;
	struct walk_cache cache;
	struct unwind_lane *lanes;  /* WALK_TOGETHER of them */
	struct unwind_links *links; /* of threads with deep stacks */
};

/* The struct is large: allocate it on the heap. */
void unwind_init(struct unwind *unwind, const struct unwind_tables *tables);
void unwind_done(struct unwind *unwind);

/* Requests the files of everything on the stack that may be a return address, so that a walk waits
 * for all of them at once. */
void unwind_request_all(struct unwind *unwind, const struct unwind_input *input,
			const struct maps *maps);

/* Copies the registers of a sample that has some. */
void unwind_read_registers(const uint64_t *registers, struct unwind_input *input);

/*
 * Walks. False if a table or the mappings are missing: then *ret_missing is the image that lacks
 * its table, or NULL for the mappings. With last_chance it always returns true and follows frames
 * without a table by frame pointers. The result is valid until the next walk.
 */
bool unwind_run(struct unwind *unwind, const struct unwind_input *input, const struct maps *maps,
		bool maps_known, bool last_chance, struct unwind_stack *ret_stack,
		struct image **ret_missing);
/* The same for up to WALK_TOGETHER walks, without last_chance. */
void unwind_run_together(struct unwind *unwind, struct unwind_job *jobs, size_t n);
/* The frames of the last unwind_run(), as they were walked. Their number is that of its stack,
 * unless frames were appended or cut. */
const struct walk_frame *unwind_last_frames(const struct unwind *unwind);
