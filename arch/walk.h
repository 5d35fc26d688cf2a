/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Walk - from the registers of a thread and its stack to the chain of its callers
 *
 * One implementation for copies of stacks (profd-engine) and for the own stack (inside of a
 * process): what differs is behind callbacks. Allocates nothing, takes no lock, is
 * async-signal-safe where the callbacks are. Walks of different threads need caches of their own.
 */
#pragma once

#include "arch/table.h"

#define WALK_MAX_STEPS 8192 /* frames that are looked at, whatever is kept of them */
#define WALK_CACHE_SLOTS 4096
#define WALK_TOGETHER 8
/*
 * A place that a cache has not got counts as so many steps, since looking it up waits for memory. A
 * recursion repeats its places; only a stack that was made to be slow has hundreds of new ones, and
 * the next walk gets further.
 */
#define WALK_LOOKUP_STEPS 20

/* Why a walk ended. */
enum walk_stop {
	WALK_ROOT,      /* the outermost frame was reached */
	WALK_COPY_END,  /* the stack goes on where it cannot be read */
	WALK_NO_TABLE,  /* no CFI, or not yet, and no frame pointers either */
	WALK_NO_RULE,   /* CFI that no rule can hold */
	WALK_BAD_FRAME, /* what was found cannot be a frame */
	WALK_DEPTH,     /* there are more frames than room or than WALK_MAX_STEPS */
	WALK_N_STOPS,
};

enum walk_code_kind {
	WALK_CODE_NONE,  /* nothing executable is there */
	WALK_CODE_TABLE, /* `table` has it at `address` */
	WALK_CODE_RULE,  /* `rule` is what CFI says of it */
	WALK_CODE_FP,    /* code without CFI: by frame pointers */
	WALK_CODE_JIT,   /* the same for generated code */
	WALK_CODE_ENTRY, /* where a program begins: nothing called it, and CFI may not say so yet */
	WALK_CODE_PENDING, /* its table is not ready: the walk ends here, with WALK_NO_TABLE */
};

struct walk_code {
	uint8_t kind; /* enum walk_code_kind */
	const struct table *table;
	uint64_t address; /* what the table calls the place */
	struct cfi_rule rule;
};

struct walk_registers {
	uint64_t pc, sp, fp, lr; /* lr: only where the architecture has one */
};

#define WALK_FRAME_EXACT 0x01 /* pc is where the CPU was, not a return address */
/* was found by a frame pointer: may be wrong, and may have skipped its callee's caller */
#define WALK_FRAME_FP 0x02
#define WALK_FRAME_JIT 0x04 /* pc is in generated code */

struct walk_frame {
	uint64_t pc;
	/* in this frame: the callee's CFA. (pc, sp) is what stays the same while callees come and
	 * go */
	uint64_t sp;
	uint32_t flags;
	uint32_t reserved;
};

struct walk_slot {
	uint64_t pc;
	uint32_t generation;
	uint8_t kind;  /* enum walk_code_kind */
	bool is_plain; /* the rule is one of those that nearly all are: see is_plain() in walk.c */
	uint16_t origin; /* the same for all rules of one table; 0: of none */
	struct cfi_rule rule;
};

/*
 * What was found for a pc, so that tables are rarely searched. All zero is empty. What is not
 * ready, or no code, is not kept.
 */
struct walk_cache {
	struct walk_slot slots[WALK_CACHE_SLOTS];
};

struct walk {
	enum regs_arch arch;
	/* bits of a return address that are a signature (aarch64: NT_ARM_PAC_MASK) */
	uint64_t pac_mask;

	/* Of the innermost frame, by DWARF's numbers, as many as struct regs has numbered. NULL:
	 * only struct walk_registers. */
	const uint64_t *numbered;

	/* The stack from `stack_start` on, as far as it is there. */
	const uint8_t *stack;
	uint64_t stack_start;
	size_t stack_size;

	/* Eight bytes outside of that; false where they cannot be read. NULL: nothing can. */
	bool (*read_word)(void *data, uint64_t address, uint64_t *ret_word);
	/* `size` bytes of code, for looking at what stands before a return address. NULL: nobody
	 * looks. */
	bool (*read_code)(void *data, uint64_t address, void *buffer, size_t size);
	/*
	 * Of a return address that leads to no code of a file: which one stood at `slot` before a
	 * return probe replaced it. False where none is known to have. NULL: nobody knows.
	 */
	bool (*find_replaced)(void *data, uint64_t slot, uint64_t *ret_pc);
	/* Whether a function that makecontext() named is looked for where a return address leads
	 * to no function. */
	bool finds_contexts;
	/* What is at pc. */
	void (*resolve)(void *data, uint64_t pc, struct walk_code *ret_code);
	void *data; /* for all of them */

	/* Slots count only for their generation: another number for another process, or when its
	 * mappings change. */
	struct walk_cache *cache; /* NULL: none */
	uint32_t generation;      /* not 0 */

	/* Room for frames, innermost first; of a deeper stack the last n_roots of them are for
	 * the outermost ones. */
	struct walk_frame *frames;
	size_t n_frames, n_roots; /* n_roots < n_frames */
};

struct walk_result {
	enum walk_stop stop;
	size_t n;      /* frames that were stored: at least one */
	size_t n_cut;  /* frames that were left out between frames[cut_at - 1] and frames[cut_at] */
	size_t cut_at; /* n where nothing was */
	uint32_t flags;             /* WALK_FRAME_* of all frames */
	struct walk_registers last; /* of the outermost frame, as far as they are known */
};

void walk_run(const struct walk *walk, const struct walk_registers *registers,
	      struct walk_result *ret_result);

/* Where a walk is: all that what comes depends on, but for what is read and resolved. */
struct walk_place {
	struct walk_registers at;
	uint32_t flags; /* WALK_FRAME_* */
	uint32_t n_switches;
	uint32_t n; /* frames before it */
	uint32_t n_lookups;
	bool fp_known, lr_known;
};

/*
 * One step, for who keeps what a step found: from a frame to its caller, which `place` is then.
 * WALK_N_STOPS: it goes on. False: no frame is there, and *ret_stop says why. `walk` needs no room
 * for frames.
 */
bool walk_step(const struct walk *walk, struct walk_place *place, struct walk_slot *ret_slot,
	       enum walk_stop *ret_stop);

struct walk_job {
	struct walk walk;
	struct walk_registers registers;
	struct walk_result result;
};

/*
 * Up to WALK_TOGETHER walks side by side: a copy of a stack has just come from the kernel, each
 * step waits for memory that the step before has named, and meanwhile the others go on. Each finds
 * what walk_run() does. They may share a cache; room for frames, and what resolve() remembers of a
 * walk, is each one's own.
 */
void walk_run_together(struct walk_job *jobs, size_t n);
