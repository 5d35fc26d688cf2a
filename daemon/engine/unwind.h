/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "arch/walk.h"
#include "daemon/engine/maps.h"
#include "daemon/engine/record.h"
#include "daemon/engine/unwind-tables.h"
#include "libcapture/prof-capture.h"

#define UNWIND_MAX_FRAMES 1024           /* that are kept of a stack */
#define UNWIND_MAX_WALKED WALK_MAX_STEPS /* a copy of 64 KiB has no more */
#define UNWIND_EXACT \
	(UINT64_C(1) << 63) /* with an address: the CPU was there, it is no return address */

/* The user part of a stack. Addresses are leaf first, with UNWIND_EXACT. */
struct unwind_stack {
	const uint64_t *ips;
	size_t n;
	size_t cut_at, n_cut; /* n_cut frames were left out before ips[cut_at]; n_cut 0: none */
	bool deeper;          /* the callers of the last are not known */
	enum prof_user_method method;
	enum prof_user_stop stop;
};

/* What a walk starts from. The stack is not changed while it goes on. */
struct unwind_input {
	struct walk_registers registers;
	uint64_t numbered[REGS_MAX_NUMBERED]; /* the same and others, as DWARF has them */
	const uint8_t *stack;
	size_t stack_bytes,
		wanted_bytes;  /* how much there is; how much there would be of a deep stack */
	const uint64_t *chain; /* the kernel's, by frame pointers: leaf first, without marks */
	size_t n_chain;
	uint32_t thread; /* id of the row */
	int32_t pid;
	bool in_kernel;
};

/* A walk that goes on with others, and what came of it. */
struct unwind_job {
	struct unwind_input input;
	const struct maps *maps;
	bool maps_known;
	/* Set by unwind_run_together(): */
	bool done;                 /* else a table or the mappings are not there yet */
	struct unwind_stack stack; /* when it is done; valid until the next walk */
	struct image *missing;     /* when not */
};

struct unwind_links;
struct unwind_lane;

struct unwind {
	const struct unwind_tables *tables;
	/* A file was hit that nobody has asked for. */
	void (*want)(struct image *image, const struct mapping *mapping, int32_t pid, void *data);
	void *data;
	struct walk_cache cache;
	struct unwind_lane *lanes;  /* WALK_TOGETHER of them */
	struct unwind_links *links; /* of threads with deep stacks */
};

/* Big: on the heap. */
void unwind_init(struct unwind *unwind, const struct unwind_tables *tables);
void unwind_done(struct unwind *unwind);

/* Asks for the files of everything on the stack that may be a return address, so that a walk
 * that has to wait for one of them does not wait for each. */
void unwind_want_all(struct unwind *unwind, const struct unwind_input *input,
		     const struct maps *maps);

/* The registers of a sample that has some. */
void unwind_read_registers(const uint64_t *registers, struct unwind_input *input);

/*
 * Walks. False where a table or the mappings are not there yet: then *ret_missing is the image that
 * has to have its table first, or NULL where it is the mappings. With last_chance it does not wait:
 * frames without a table are followed by frame pointers. The result is valid until the next walk.
 */
bool unwind_run(struct unwind *unwind, const struct unwind_input *input, const struct maps *maps,
		bool maps_known, bool last_chance, struct unwind_stack *ret_stack,
		struct image **ret_missing);
/* The same for up to WALK_TOGETHER walks, none of which is the last chance. */
void unwind_run_together(struct unwind *unwind, struct unwind_job *jobs, size_t n);
/* The frames of the last unwind_run(), as they were walked: as many as its stack has, where
 * nothing was put behind them. */
const struct walk_frame *unwind_last_frames(const struct unwind *unwind);
