/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Walk - finds a thread's chain of callers from its registers and stack
 *
 * The same code walks copies of stacks (profd-engine) and a thread's own stack (inside of a
 * process); callbacks cover the differences. Allocates nothing, takes no lock, and is
 * async-signal-safe if the callbacks are. Walks on different threads need separate caches.
 */
#pragma once

#include "arch/table.h"
#include "base/hash.h"

#define WALK_MAX_STEPS 8192 /* limit for frames that are walked, whether or not they are kept */
#define WALK_CACHE_SLOTS 8192
#define WALK_TOGETHER 8
/*
 * A lookup that misses the cache counts as this many steps, because it waits for memory. A
 * recursion repeats its pcs, so only a stack that was made to be slow has hundreds of new pcs. The
 * next walk finds these pcs in the cache, and gets further.
 */
#define WALK_LOOKUP_STEPS 20

/* Why a walk ended. */
enum walk_stop {
	WALK_ROOT,      /* the outermost frame was reached */
	WALK_COPY_END,  /* the stack continues in a part that cannot be read */
	WALK_NO_TABLE,  /* no frame pointers, and the CFI is missing or not ready */
	WALK_NO_RULE,   /* CFI that no rule can express, or that needs an unknown register */
	WALK_BAD_FRAME, /* the values found cannot be a frame */
	WALK_DEPTH,     /* more frames than there is room for, or more than WALK_MAX_STEPS steps */
	WALK_N_STOPS,
};

enum walk_code_kind {
	WALK_CODE_NONE,    /* no executable code */
	WALK_CODE_TABLE,   /* the rule is in `table`, at `address` */
	WALK_CODE_RULE,    /* `rule` is its CFI */
	WALK_CODE_FP,      /* code without CFI: follow frame pointers */
	WALK_CODE_JIT,     /* generated code: follow frame pointers */
	WALK_CODE_ENTRY,   /* start of a program: has no caller, even if CFI describes one */
	WALK_CODE_PENDING, /* the table is not ready: the walk ends here, with WALK_NO_TABLE */
};

struct walk_code {
	uint8_t kind; /* enum walk_code_kind */
	const struct unwind_table *table;
	uint64_t address; /* pc as an address of the table */
	struct cfi_rule rule;
};

struct walk_registers {
	uint64_t pc, sp, fp, lr; /* lr: only if the architecture has one */
};

#define WALK_FRAME_EXACT 0x01 /* pc is where the CPU was, not a return address */
/* found by a frame pointer: may be wrong, or may have skipped the callee's caller */
#define WALK_FRAME_FP 0x02
#define WALK_FRAME_JIT 0x04 /* pc is in generated code */

struct walk_frame {
	uint64_t pc;
	/* sp in this frame: the callee's CFA. (pc, sp) is constant while a call from it runs */
	uint64_t sp;
	uint32_t flags;
	uint32_t reserved;
};

#define WALK_SLOT_PLAIN 0x01u /* walk_plan() can apply the rule, which loads only aligned words */
#define WALK_SLOT_ROOT 0x02u  /* the rule says that the frame has no caller */
/* Set by the cache's user, valid until the slot is filled again: a walk followed a frame pointer
 * from this pc to its caller (CHAIN), or from a callee to this pc (CALLED). */
#define WALK_SLOT_CHAIN 0x04u
#define WALK_SLOT_CALLED 0x08u
/* The step by a plain rule or a chain uses fp (NEEDS), or loads the caller's fp (GIVES). */
#define WALK_SLOT_NEEDS_FP 0x40u
#define WALK_SLOT_GIVES_FP 0x80u

struct walk_slot {
	uint64_t pc;
	uint32_t generation;
	uint8_t kind;    /* enum walk_code_kind */
	uint8_t flags;   /* WALK_SLOT_* */
	uint16_t origin; /* equal for all rules of one table; 0: none */
	struct cfi_rule rule;
};

/* Caches lookups by pc, so that tables are rarely searched. A zeroed structure is an empty cache.
 * Tables that are not ready, and addresses without code, are not cached. */
struct walk_cache {
	struct walk_slot slots[WALK_CACHE_SLOTS];
};

static inline struct walk_slot *walk_cache_at(struct walk_cache *cache, uint64_t pc,
					      uint32_t generation)
{
	return &cache->slots[(pc ^ generation) * HASH_ODD / (UINT64_MAX / WALK_CACHE_SLOTS + 1)];
}

/* A planned step by a plain rule. */
struct walk_move {
	uint64_t cfa;
	uint64_t ra_at, fp_at; /* offsets in the stack; equal if fp is not loaded */
	bool has_fp;
};

/*
 * Plans a step by the plain rule of a slot, in the stack of `size` bytes at `start`. Returns false
 * if the stack lacks a word that the rule needs, if fp is needed but unknown, if the CFA is not
 * aligned, or if the step makes no progress. Avoids branches that depend on the rule, because they
 * are mispredicted.
 */
static inline __attribute__((always_inline)) bool walk_plan(const struct cfi_rule *rule,
							    uint64_t sp, uint64_t fp, bool fp_known,
							    uint64_t start, uint64_t size,
							    struct walk_move *ret_move)
{
	const bool by_fp = rule->cfa == CFI_CFA_FP;
	uint64_t cfa, ra_at, fp_at;

	if ((by_fp & !fp_known) ||
	    __builtin_add_overflow(by_fp ? fp : sp, (int64_t)rule->cfa_offset, &cfa) || cfa <= sp ||
	    (cfa % 8 != 0) | (size < 8))
		return false;
	ra_at = cfa - start + (uint64_t)(int64_t)rule->ra_offset;
	fp_at = cfa - start + (uint64_t)(int64_t)rule->fp_offset;
	if ((ra_at > size - 8) | (fp_at > size - 8))
		return false;
	*ret_move = (struct walk_move){ cfa, ra_at, fp_at, rule->fp == CFI_AT_CFA };
	return true;
}

struct walk {
	enum regs_arch arch;
	/* bits of a return address that hold a signature (aarch64: NT_ARM_PAC_MASK) */
	uint64_t pac_mask;

	/* The innermost frame's DWARF registers 0 to n_numbered - 1 (struct regs). NULL: only
	 * struct walk_registers is known. */
	const uint64_t *numbered;

	/* The innermost frame's fp is unknown: a rule that needs it ends the walk with
	 * WALK_NO_RULE. */
	bool fp_unknown;

	/* The stack from `stack_start` on, as far as it was copied. */
	const uint8_t *stack;
	uint64_t stack_start;
	size_t stack_size;

	/* Reads eight bytes outside of the copy; returns false on failure. NULL: no reads. */
	bool (*read_word)(void *data, uint64_t address, uint64_t *ret_word);
	/* Reads code, to check whether a call is before a return address. NULL: no checks. */
	bool (*read_code)(void *data, uint64_t address, void *buffer, size_t size);
	/*
	 * For a return address that is not in the code of a file: returns the address that was at
	 * `slot` before a return probe replaced it. Returns false if none is known. NULL: no such
	 * lookup.
	 */
	bool (*find_replaced)(void *data, uint64_t slot, uint64_t *ret_pc);
	/* Returns the rule at `pc` in which the place of fp is replaced by that of the register
	 * `base` (struct regs); NULL if that is unknown. NULL callback: no such lookup. */
	const struct cfi_rule *(*find_base)(void *data, uint64_t pc);
	/* If a return address leads to no function, look for one passed to makecontext(). */
	bool finds_contexts;
	void (*resolve)(void *data, uint64_t pc, struct walk_code *ret_code);
	void *data; /* for all callbacks */

	/* Slots are valid for one generation. Use another number for another process, or after its
	 * mappings have changed. */
	struct walk_cache *cache; /* NULL: none */
	uint32_t generation;      /* generation of the slots; not 0 */

	/* Frames, innermost first. If the stack has more frames, the last n_roots elements keep the
	 * outermost frames. */
	struct walk_frame *frames;
	size_t n_frames, n_roots; /* n_roots < n_frames */
};

struct walk_result {
	enum walk_stop stop;
	size_t n;      /* number of stored frames, at least one */
	size_t n_cut;  /* number of dropped frames, between frames[cut_at - 1] and frames[cut_at] */
	size_t cut_at; /* n if none was dropped */
	uint32_t flags;             /* WALK_FRAME_* of all frames */
	struct walk_registers last; /* registers of the outermost frame, as far as known */
};

void walk_run(const struct walk *walk, const struct walk_registers *registers,
	      struct walk_result *ret_result);

/* The state of a walk: everything that determines the next steps, except for memory and
 * resolve(). */
struct walk_place {
	struct walk_registers at;
	uint32_t flags; /* WALK_FRAME_* */
	uint32_t n_switches;
	uint32_t n; /* number of frames before this one */
	uint32_t n_lookups;
	bool fp_known, lr_known;
};

/*
 * Makes one step, from a frame to its caller, for users that cache steps. Updates `place`.
 * *ret_stop: WALK_N_STOPS if the walk continues. Returns false if `place` is not a frame of the
 * walk. `walk` needs no room for frames.
 */
bool walk_step(const struct walk *walk, struct walk_place *place, struct walk_slot *ret_slot,
	       enum walk_stop *ret_stop);

struct walk_job {
	struct walk walk;
	struct walk_registers registers;
	struct walk_result result;
};

/*
 * Runs up to WALK_TOGETHER walks interleaved. A stack that was just copied from the kernel is not
 * in the CPU's caches, so each step waits for memory at an address that the previous step has
 * found; meanwhile the other walks continue. The results are the same as those of walk_run(). Walks
 * may share a struct walk_cache, but not the room for frames or the state of resolve().
 */
void walk_run_together(struct walk_job *jobs, size_t n);
