/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "arch/walk.h"
#include "daemon/engine/model/maps.h"
#include "daemon/engine/unwind/unwind-tables.h"
#include "libcapture/prof-capture.h"

#define UNWIND_MAX_FRAMES 1024           /* maximum number of frames kept of a stack */
#define UNWIND_MAX_WALKED WALK_MAX_STEPS /* maximum number of frames in a copy of 64 KiB */
#define UNWIND_EXACT \
	(UINT64_C(1) << 63) /* set: the CPU was at the address; not set: return address */

/* The user part of a stack. Addresses are leaf first; each includes the bit UNWIND_EXACT. */
struct unwind_stack {
	const uint64_t *ips;
	size_t n;
	/* The stack pointer in each frame, as in struct walk_frame; known for the first n_sps
	 * frames. */
	const uint64_t *sps;
	size_t n_sps;
	size_t cut_at, n_cut; /* n_cut frames are missing before ips[cut_at]; n_cut 0: none */
	bool deeper;          /* the last frame has unknown callers */
	enum prof_user_method method;
	enum prof_user_stop stop;
};

/* The input of a walk. The stack must not change until the walk ends. */
struct unwind_input {
	struct walk_registers registers;
	uint64_t numbered[REGS_MAX_NUMBERED]; /* the registers above and others, by DWARF number */
	const uint8_t *stack;
	size_t stack_bytes, full_bytes; /* bytes of this copy; bytes of a full copy */
	const uint64_t *chain; /* the kernel's frame-pointer chain: leaf first, no PERF_CONTEXT_* */
	size_t n_chain;
	bool chain_is_cut; /* the kernel's chain has the maximum number of frames */
	uint32_t thread;   /* id of the thread's row */
	int32_t pid;
	bool in_kernel;
	bool only_pc_sp; /* the other registers are unknown */
};

/* A walk that runs in parallel with others, and its result. */
struct unwind_job {
	struct unwind_input input;
	const struct maps *maps;
	bool maps_known;
	/* The following members are set by unwind_run_together(). */
	bool done; /* false: a table, the size of a frame, or the mappings are missing */
	struct unwind_stack stack; /* if done; valid until the next walk */
	struct image *missing; /* if not done: image whose table or frame size is missing; NULL: the
				* mappings */
};

struct unwind_links;
struct unwind_lane;

struct unwind {
	struct unwind_tables *tables;
	/* Called when a walk reaches a file that has not been requested. */
	void (*request_image)(struct image *image, const struct mapping *mapping, int32_t pid,
			      void *data);
	void *data;
	struct walk_cache cache;
	struct unwind_lane *lanes;  /* WALK_TOGETHER items */
	struct unwind_links *links; /* for threads with deep stacks */
};

/* The struct is large: allocate it on the heap. */
void unwind_init(struct unwind *unwind, struct unwind_tables *tables);
void unwind_done(struct unwind *unwind);

/* Requests the files of all possible return addresses in the stack's first 16 KiB, so that a walk
 * waits for these files at the same time. */
void unwind_request_all(struct unwind *unwind, const struct unwind_input *input,
			const struct maps *maps);

/* Copies the registers of a sample. The sample must have registers. */
void unwind_read_registers(const uint64_t *registers, struct unwind_input *input);

/* Walks a stack. Returns false if a table, the size of a frame, or the mappings are missing:
 * *ret_missing is then the image, or NULL for the mappings. With last_chance, always returns true,
 * and follows frames without a table by frame pointers. The result is valid until the next walk. */
bool unwind_run(struct unwind *unwind, const struct unwind_input *input, const struct maps *maps,
		bool maps_known, bool last_chance, struct unwind_stack *ret_stack,
		struct image **ret_missing);
/* Like unwind_run(), for up to WALK_TOGETHER walks without last_chance. */
void unwind_run_together(struct unwind *unwind, struct unwind_job *jobs, size_t n);
/* Returns the frames of the last unwind_run(), as they were walked. Their number is that of the
 * returned stack, unless frames were appended or cut. */
const struct walk_frame *unwind_last_frames(const struct unwind *unwind);
