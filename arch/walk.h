/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Walk - finds a thread's chain of callers from its registers and stack
 *
 * One implementation for copies of stacks (profd-engine) and for the own stack (inside of a
 * process): callbacks cover the differences. Allocates nothing, takes no lock, and is
 * async-signal-safe if the callbacks are. Walks of different threads need caches of their own.
 */
#pragma once

#include "arch/table.h"

#define WALK_MAX_STEPS 8192 /* frames that are walked, whether or not they are kept */
#define WALK_CACHE_SLOTS 4096
#define WALK_TOGETHER 8
/*
 * A place that is not in the cache counts as so many steps, because its lookup waits for memory. A
 * recursion repeats its places; only a stack that was made to be slow has hundreds of new ones, and
 * the next walk gets further.
 */
#define WALK_LOOKUP_STEPS 20

/* The reason why a walk ended. */
enum walk_stop {
	WALK_ROOT,      /* the outermost frame was reached */
	WALK_COPY_END,  /* the stack continues where it cannot be read */
	WALK_NO_TABLE,  /* no CFI, or not yet, and no frame pointers either */
	WALK_NO_RULE,   /* CFI that no rule can express */
	WALK_BAD_FRAME, /* the values found cannot be a frame */
	WALK_DEPTH,     /* more frames than room, or than WALK_MAX_STEPS */
	WALK_N_STOPS,
};

enum walk_code_kind {
	WALK_CODE_NONE,    /* no executable code */
	WALK_CODE_TABLE,   /* `table` has the rule, at `address` */
	WALK_CODE_RULE,    /* `rule` is its CFI */
	WALK_CODE_FP,      /* code without CFI: by frame pointers */
	WALK_CODE_JIT,     /* the same for generated code */
	WALK_CODE_ENTRY,   /* the start of a program: it has no caller; CFI may not say so */
	WALK_CODE_PENDING, /* its table is not ready: the walk ends here, with WALK_NO_TABLE */
};

struct walk_code {
	uint8_t kind; /* enum walk_code_kind */
	const struct unwind_table *table;
	uint64_t address; /* the pc in the table's addresses */
	struct cfi_rule rule;
};

struct walk_registers {
	uint64_t pc, sp, fp, lr; /* lr: only if the architecture has one */
};

#define WALK_FRAME_EXACT 0x01 /* pc is where the CPU was, not a return address */
/* found by a frame pointer: may be wrong, and may have skipped its callee's caller */
#define WALK_FRAME_FP 0x02
#define WALK_FRAME_JIT 0x04 /* pc is in generated code */

struct walk_frame {
	uint64_t pc;
	/* in this frame: the callee's CFA. (pc, sp) does not change while callees come and go */
	uint64_t sp;
	uint32_t flags;
	uint32_t reserved;
};

struct walk_slot {
	uint64_t pc;
	uint32_t generation;
	uint8_t kind;    /* enum walk_code_kind */
	bool is_plain;   /* a rule like nearly all: see is_plain() in walk.c */
	uint16_t origin; /* same for all rules of a table; 0: none */
	struct cfi_rule rule;
};

/*
 * Results of lookups by pc, so that tables are rarely searched. All zeros is empty. Tables that are
 * not ready, and places without code, are not cached.
 */
struct walk_cache {
	struct walk_slot slots[WALK_CACHE_SLOTS];
};

struct walk {
	enum regs_arch arch;
	/* bits of a return address that are a signature (aarch64: NT_ARM_PAC_MASK) */
	uint64_t pac_mask;

	/* Registers of the innermost frame, by DWARF's numbers, as many as struct regs has
	 * numbered. NULL: only struct walk_registers. */
	const uint64_t *numbered;

	/* The stack from `stack_start` on, as far as it was copied. */
	const uint8_t *stack;
	uint64_t stack_start;
	size_t stack_size;

	/* Reads eight bytes outside of that; false if they cannot be read. NULL: no reads. */
	bool (*read_word)(void *data, uint64_t address, uint64_t *ret_word);
	/* Reads `size` bytes of code, to check the code before a return address. NULL: no
	 * checks. */
	bool (*read_code)(void *data, uint64_t address, void *buffer, size_t size);
	/*
	 * For a return address that leads to no code of a file: returns the one that was at `slot`
	 * before a return probe replaced it. False: none is known. NULL: no such lookup.
	 */
	bool (*find_replaced)(void *data, uint64_t slot, uint64_t *ret_pc);
	/* True: search a function that makecontext() named if a return address leads to no
	 * function. */
	bool finds_contexts;
	/* Finds the code at pc. */
	void (*resolve)(void *data, uint64_t pc, struct walk_code *ret_code);
	void *data; /* for all of them */

	/* Slots are valid for one generation: use another number for another process, or after a
	 * change of its mappings. */
	struct walk_cache *cache; /* NULL: none */
	uint32_t generation;      /* not 0 */

	/* Room for frames, innermost first; of a deeper stack the last n_roots are for the
	 * outermost ones. */
	struct walk_frame *frames;
	size_t n_frames, n_roots; /* n_roots < n_frames */
};

struct walk_result {
	enum walk_stop stop;
	size_t n;       /* stored frames: at least one */
	size_t n_cut;   /* dropped frames between frames[cut_at - 1] and frames[cut_at] */
	size_t cut_at;  /* n if none was dropped */
	uint32_t flags; /* WALK_FRAME_* of all frames */
	struct walk_registers last; /* of the outermost frame, as far as known */
};

void walk_run(const struct walk *walk, const struct walk_registers *registers,
	      struct walk_result *ret_result);

/* The position of a walk: everything that the next steps depend on, except for reads and
 * resolve(). */
struct walk_place {
	struct walk_registers at;
	uint32_t flags; /* WALK_FRAME_* */
	uint32_t n_switches;
	uint32_t n; /* frames before it */
	uint32_t n_lookups;
	bool fp_known, lr_known;
};

/*
 * One step, for callers that cache steps: from a frame to its caller, which `place` then is.
 * WALK_N_STOPS: the walk continues. Returns false if there is no frame; *ret_stop is the reason.
 * `walk` needs no room for frames.
 */
bool walk_step(const struct walk *walk, struct walk_place *place, struct walk_slot *ret_slot,
	       enum walk_stop *ret_stop);

struct walk_job {
	struct walk walk;
	struct walk_registers registers;
	struct walk_result result;
};

/*
 * Up to WALK_TOGETHER walks side by side. A copy of a stack has just come from the kernel, so each
 * step waits for memory whose address the step before has found; meanwhile the other walks
 * continue. Each result is that of walk_run(). The walks may share a cache; the room for frames,
 * and the state of resolve(), are separate.
 */
void walk_run_together(struct walk_job *jobs, size_t n);
