/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Unwind cache - the calling thread's stack, cached from one walk to the next
 *
 * A frame's caller depends on the frame's position (pc, sp and, if a rule needs it, fp), on the
 * rule of its code, and on words on the stack. So each frame is kept with these words, its guards;
 * the guards of all frames are in one array, outermost first. A walk steps from the innermost frame
 * outwards until it matches a frame of the last walk. If all guards from there on still hold, the
 * remaining frames are unchanged; otherwise the walk continues past the guard that failed.
 *
 * The new frames of a walk are also kept as a variant, with their words and the frame that called
 * them. A walk that matches a variant takes no step. In a program that allocates in few places,
 * nearly every walk matches a variant.
 *
 * Nearly all code has a plain rule, for which walk_plan() computes the step; generated code has no
 * rules, but frame pointers. self-unwind.c handles everything else, one step at a time, and fills
 * the cache of rules.
 *
 * In most code fp is a general-purpose register, so its value is checked only if it is used to find
 * a frame further out. An invalid return address may be anywhere. If it points into the stack, the
 * bytes before it are among the guards, because the walk looks for a call there. Code elsewhere is
 * assumed to be unchanged.
 * Invariants: (1) the frames are those that self_unwind_walk() finds
 *                 [test-unwind-cache: random, mutated, made up]
 *             (2) a guard loads only from the thread's own stack, not below the innermost frame
 *                                             [test-unwind-cache: fiber; test-self-unwind: signal
 *                                             stack]
 *             (3) no result outlives self_unwind_invalidate()  [test-unwind-cache: modules,
 *                 recalled]
 *             (4) errno does not change
 * A chain that does not end on the thread's own stack is walked completely each time.
 */
#include "libcollector/unwind/unwind-cache.h"

#include <string.h>

/* Flags in the state of frames and of pending frames. */
#define EXACT 0x01u      /* the frame was interrupted */
#define BY_FP 0x02u      /* the frame was found by a frame pointer because there was no rule */
#define FP_UNKNOWN 0x04u /* fp is unknown */
#define LR_KNOWN 0x08u
#define SWITCHES 0xffff00u /* number of switches from one stack to another, times 0x100 */
#define PLACE (EXACT | BY_FP | LR_KNOWN | SWITCHES)
#define GENERAL 0x10u               /* only self-unwind.c can make the step from this frame */
#define FIRST 0x20u                 /* the frame was the innermost one */
#define NEEDS_FP WALK_SLOT_NEEDS_FP /* the step from this frame uses fp */
#define GIVES_FP WALK_SLOT_GIVES_FP /* the caller's fp was loaded; it is the frame's last word */
/* the step from this frame, or from one further out, uses this frame's fp */
#define USES_FP 0x01000000u
#define INTERRUPTED 0x02000000u /* this frame or one further out was interrupted */

/* flags of a slot; step_plainly() needs one of them */
#define FAST (WALK_SLOT_PLAIN | WALK_SLOT_ROOT | WALK_SLOT_CHAIN)

/* The state of a walk. */
struct visit {
	struct unwind_cache *calls;
	uint64_t pc, sp, fp, lr;
	uint32_t state; /* PLACE and FP_UNKNOWN flags */
	uint32_t n_lookups;
	uint64_t start; /* sp of the innermost frame */
	uint64_t pac_mask;
	uint32_t n_pending, n_words;
	uint32_t n_known; /* number of frames of the last walk that may still match */
	bool is_matched;  /* the walk is at a matching frame */
	bool is_open;
};

/* ---- Frames of the last walk ---- */

static inline bool is_own(const struct visit *visit)
{
	const struct self_unwind *own = &visit->calls->own;

	return visit->start - own->low < own->high - own->low;
}

static inline bool is_at(const struct visit *visit, const struct unwind_cache_frame *frame)
{
	if (frame->sp != visit->sp || frame->pc != visit->pc ||
	    ((frame->state ^ visit->state) & PLACE) != 0 || (frame->state & LR_KNOWN))
		return false;
	if ((frame->state & GENERAL) && !(frame->state & FIRST) != (visit->n_pending != 0))
		return false;
	return !(frame->state & USES_FP) ||
	       (((frame->state ^ visit->state) & FP_UNKNOWN) == 0 && frame->fp == visit->fp);
}

/* Returns whether the walk is at a frame of the last walk, and everything is unchanged from there
 * on. Sets n_known to the number of frames up to that frame; otherwise, to the number of frames
 * that may still match. */
static inline bool match(struct visit *visit)
{
	const struct unwind_cache *calls = visit->calls;
	uint32_t n = visit->n_known, changed;

	while (n > 0 && calls->frames[n - 1].sp < visit->sp)
		n--;
	visit->n_known = n;
	if (n == 0 || !is_at(visit, &calls->frames[n - 1]) || !is_own(visit))
		return false;
	changed = unwind_cache_find_changed(calls->guards, calls->frames[n - 1].end);
	if (__builtin_expect(changed == 0, 1))
		return true;
	/* The frame of the changed guard now has another caller. */
	while (n > 1 && calls->frames[n - 2].end >= changed)
		n--;
	visit->n_known = n - 1;
	return false;
}

/* ---- Steps ---- */

/* Returns the slot of a return address, or NULL if the rule is not known. */
static inline struct walk_slot *find_slot(struct unwind_cache *calls, uint64_t pc)
{
	struct walk_slot *slot = walk_cache_at(&calls->rules, pc - 1, calls->rule_generation);

	return slot->pc == pc - 1 && slot->generation == calls->rule_generation ? slot : NULL;
}

static void mark_slot(struct unwind_cache *calls, uint64_t pc, uint8_t flag)
{
	struct walk_slot *slot = find_slot(calls, pc);

	if (slot)
		slot->flags |= flag;
}

static inline struct unwind_cache_pending *add_pending(struct visit *visit, uint32_t state)
{
	struct unwind_cache_pending *pending = &visit->calls->pending[visit->n_pending++];

	pending->pc = visit->pc;
	pending->sp = visit->sp;
	pending->fp = visit->fp;
	pending->state = visit->state | state;
	pending->flags = visit->state & EXACT;
	pending->n_words = 0;
	return pending;
}

static inline void add_word(struct visit *visit, struct unwind_cache_pending *pending, uint64_t at,
			    uint64_t value)
{
	visit->calls->words[visit->n_words++] = (struct self_unwind_word){ at, value };
	pending->n_words++;
}

static inline uint32_t state_of(const struct walk_slot *slot)
{
	return slot->flags & (NEEDS_FP | GIVES_FP);
}

static inline bool is_full(const struct visit *visit)
{
	return visit->n_pending == UNWIND_CACHE_MAX_FRAMES ||
	       visit->n_words > UNWIND_CACHE_MAX_GUARDS - SELF_UNWIND_MAX_WORDS;
}

/* Makes a step by a known rule. Returns false if walk_plan() is not sufficient for it. */
static inline bool step_plainly(struct visit *visit, enum walk_stop *ret_stop)
{
	/* No rule: follow the frame pointer, if it leads to an address after a call. */
	static const struct cfi_rule record = {
		.cfa = CFI_CFA_FP,
		.ra = CFI_AT_CFA,
		.fp = CFI_AT_CFA,
		.cfa_offset = 16,
		.ra_offset = -8,
		.fp_offset = -16,
	};
	struct unwind_cache *calls = visit->calls;
	const struct walk_slot *slot = find_slot(calls, visit->pc), *caller;
	const struct cfi_rule *rule;
	struct unwind_cache_pending *pending;
	struct walk_move move;
	uint64_t ra;

	if (!slot || (visit->state & (EXACT | FP_UNKNOWN | LR_KNOWN)) || !(slot->flags & FAST))
		return false;
	if (slot->flags & WALK_SLOT_ROOT) {
		add_pending(visit, 0);
		*ret_stop = WALK_ROOT;
		return true;
	}
	rule = __builtin_expect(slot->flags & WALK_SLOT_CHAIN, 0) ? &record : &slot->rule;
	if (!walk_plan(rule, visit->sp, visit->fp, true, visit->start,
		       calls->own.high - visit->start, &move) ||
	    move.cfa > calls->own.high)
		return false;
	ra = unwind_cache_load(visit->start + move.ra_at);
	if (__builtin_expect(slot->flags & WALK_SLOT_CHAIN, 0)) {
		caller = find_slot(calls, ra & ~visit->pac_mask);
		if (visit->fp < visit->sp || ra == 0 || !caller ||
		    !(caller->flags & WALK_SLOT_CALLED))
			return false;
	}
	pending = add_pending(visit, state_of(slot));
	add_word(visit, pending, visit->start + move.ra_at, ra);
	if (move.has_fp) {
		visit->fp = unwind_cache_load(visit->start + move.fp_at);
		add_word(visit, pending, visit->start + move.fp_at, visit->fp);
	}
	visit->pc = ra & ~visit->pac_mask;
	visit->sp = move.cfa;
	visit->state = (visit->state & SWITCHES) | (slot->flags & WALK_SLOT_CHAIN ? BY_FP : 0);
	*ret_stop = visit->pc == 0 ? WALK_ROOT : WALK_N_STOPS;
	return true;
}

/* Returns whether the step followed a frame pointer and read nothing else. */
static bool is_chain(const struct self_unwind_step *step)
{
	uint64_t fp = step->at.at.fp;

	return CPU_HAS_RECORDS && step->stop == WALK_N_STOPS &&
	       (step->next.flags & WALK_FRAME_FP) && fp != 0 && step->n_words == 2 &&
	       step->words[0].at == fp + 8 && step->words[1].at == fp;
}

/* Returns the state of the step's frame: GENERAL if step_plainly() cannot make the step. */
static uint32_t classify(struct unwind_cache *calls, const struct self_unwind_step *step)
{
	const struct cfi_rule *rule = &step->slot.rule;

	if ((step->at.flags & WALK_FRAME_EXACT) || !step->at.fp_known || step->at.lr_known ||
	    !step->is_own)
		return GENERAL;
	if (step->slot.flags & WALK_SLOT_ROOT)
		return 0;
	if (step->slot.flags & WALK_SLOT_PLAIN)
		return step->n_words == 1 + (rule->fp == CFI_AT_CFA) ? state_of(&step->slot)
								     : GENERAL;
	if ((step->slot.kind == WALK_CODE_TABLE && rule->cfa != CFI_CFA_NONE) || !is_chain(step))
		return GENERAL;
	mark_slot(calls, step->at.at.pc, WALK_SLOT_CHAIN | NEEDS_FP | GIVES_FP);
	return NEEDS_FP | GIVES_FP;
}

static struct walk_place get_place(const struct visit *visit)
{
	return (struct walk_place){
		.at = { visit->pc, visit->sp, visit->fp, visit->lr },
		.flags = (visit->state & EXACT ? WALK_FRAME_EXACT : 0) |
			 (visit->state & BY_FP ? WALK_FRAME_FP : 0),
		.n_switches = (visit->state & SWITCHES) >> 8,
		.n = visit->n_pending,
		.n_lookups = visit->n_lookups,
		.fp_known = !(visit->state & FP_UNKNOWN),
		.lr_known = visit->state & LR_KNOWN,
	};
}

/* Stores the step. Returns false if the walk has matched, is full, or can continue faster. */
static bool keep_step(void *data, const struct self_unwind_step *step)
{
	struct visit *visit = data;
	uint32_t kind = classify(visit->calls, step);
	const struct walk_place *place = &step->next;
	struct unwind_cache_pending *pending;
	const struct walk_slot *slot;

	if (step->at.flags & WALK_FRAME_FP)
		mark_slot(visit->calls, step->at.at.pc, WALK_SLOT_CALLED);
	if ((kind & GENERAL) && visit->n_pending == 0)
		kind |= FIRST;
	pending = add_pending(visit, kind);
	for (uint32_t i = 0; i < step->n_words; i++)
		add_word(visit, pending, step->words[i].at, step->words[i].value);
	visit->is_open |= !step->is_own;
	if (step->stop != WALK_N_STOPS)
		return true;
	visit->pc = place->at.pc;
	visit->sp = place->at.sp;
	visit->fp = place->at.fp;
	visit->lr = place->at.lr;
	visit->n_lookups = place->n_lookups;
	visit->state = (place->flags & WALK_FRAME_EXACT ? EXACT : 0) |
		       (place->flags & WALK_FRAME_FP ? BY_FP : 0) |
		       (place->fp_known ? 0 : FP_UNKNOWN) | (place->lr_known ? LR_KNOWN : 0) |
		       ((place->n_switches << 8) & SWITCHES);
	if (place->flags & WALK_FRAME_FP)
		mark_slot(visit->calls, place->at.pc, WALK_SLOT_CALLED);
	visit->is_matched = match(visit);
	slot = find_slot(visit->calls, visit->pc);
	return !visit->is_matched && !is_full(visit) &&
	       !(slot && (slot->flags & FAST) && is_own(visit));
}

static __attribute__((noinline)) enum walk_stop step_by_self_unwind(struct visit *visit)
{
	struct walk_place place = get_place(visit);
	uint32_t n = visit->n_pending;
	enum walk_stop stop = self_unwind_step(&visit->calls->own, visit->start, &place,
					       &visit->calls->rules, visit->calls->rule_generation,
					       keep_step, visit);

	/* The reason for the end is not on the stack, so no guard detects a change. */
	if (stop == WALK_DEPTH || (stop == WALK_NO_TABLE && visit->n_pending == n))
		visit->is_open = true;
	return stop;
}

/* ---- A walk ---- */

/* Appends the new frames, outermost first, after the n unchanged frames. */
static void push(struct visit *visit, uint32_t n, enum walk_stop stop)
{
	struct unwind_cache *calls = visit->calls;
	const struct self_unwind_word *word = &calls->words[visit->n_words];
	uint32_t end = 0, uses_fp = 0, interrupted = 0;
	uint64_t hash = 0;

	if (n > 0) {
		const struct unwind_cache_frame *outer = &calls->frames[n - 1];

		end = outer->end;
		uses_fp = outer->state & USES_FP;
		interrupted = outer->state & INTERRUPTED;
		hash = outer->hash;
	}
	for (uint32_t i = visit->n_pending; i-- > 0; n++) {
		const struct unwind_cache_pending *pending = &calls->pending[i];
		struct unwind_cache_frame *frame = &calls->frames[n];
		uint32_t n_guards = pending->n_words,
			 flags = n == 0 && stop != WALK_ROOT ? pending->flags | UNWIND_CACHE_CUT
							     : pending->flags;

		word -= pending->n_words;
		if (!uses_fp && (pending->state & GIVES_FP))
			n_guards--;
		for (uint32_t j = 0; j < n_guards; j++)
			calls->guards[end++] = word[j];
		if ((pending->state & (GIVES_FP | NEEDS_FP | GENERAL)) != 0)
			uses_fp = pending->state & (NEEDS_FP | GENERAL) ? USES_FP : 0;
		if (pending->state & EXACT)
			interrupted = INTERRUPTED;
		hash = unwind_cache_hash(hash, pending->pc, flags);
		*frame = (struct unwind_cache_frame){
			.pc = pending->pc,
			.sp = pending->sp,
			.fp = pending->fp,
			.hash = hash,
			.end = end,
			.state = pending->state | uses_fp | interrupted,
			.flags = flags,
		};
	}
	calls->n = n;
}

/* Returns false if there are too many frames or guards, known and new together. */
static __attribute__((noinline)) bool walk(struct unwind_cache *calls,
					   const struct walk_registers *caller)
{
	struct visit visit = {
		.calls = calls,
		.pc = caller->pc & ~self_unwind_pac_mask(),
		.sp = caller->sp,
		.fp = caller->fp,
		.start = caller->sp,
		.pac_mask = self_unwind_pac_mask(),
		.n_known = calls->is_open ? 0 : calls->n,
	};
	enum walk_stop stop = WALK_N_STOPS;

	while (stop == WALK_N_STOPS && !visit.is_matched && !(visit.is_matched = match(&visit))) {
		if (is_full(&visit)) {
			visit.is_open = true;
			stop = WALK_DEPTH;
		} else if (!is_own(&visit) || !step_plainly(&visit, &stop)) {
			stop = step_by_self_unwind(&visit);
		}
	}
	if (!visit.is_matched)
		visit.n_known = 0;
	calls->n_same = visit.n_known;
	calls->is_open = visit.is_open;
	if (visit.n_known + visit.n_pending > UNWIND_CACHE_MAX_FRAMES ||
	    (visit.n_known > 0 &&
	     calls->frames[visit.n_known - 1].end + visit.n_words > UNWIND_CACHE_MAX_GUARDS))
		return false;
	if (visit.n_known + visit.n_pending == 0)
		add_pending(&visit, GENERAL);
	push(&visit, visit.n_known, visit.is_matched ? WALK_ROOT : stop);
	return true;
}

/* ---- Variants ---- */

static uint64_t fp_mask(const struct unwind_cache_frame *frame)
{
	return frame->state & USES_FP ? UINT64_MAX : 0;
}

void unwind_cache_remember(struct unwind_cache *calls, uint32_t node)
{
	const struct unwind_cache_frame *inner = &calls->frames[calls->n - 1], *outer;
	uint32_t n_outer = MIN_OF(calls->n_same, calls->n - 1);
	struct unwind_cache_variant *variant;

	if (n_outer == 0 || calls->is_open || (inner->state & (PLACE | FP_UNKNOWN | GENERAL)) ||
	    inner->sp - calls->own.low >= calls->own.high - calls->own.low)
		return;
	outer = &calls->frames[n_outer - 1];
	if (inner->end - outer->end > UNWIND_CACHE_VARIANT_WORDS)
		return;
	/* If siglongjmp() leaves here, is_busy stays set, and the next walk clears the cache. */
	calls->is_busy = true;
	atomic_signal_fence(memory_order_seq_cst);
	variant = &calls->variants[unwind_cache_variant_at(inner->pc, inner->sp)];
	if (variant->pc != inner->pc || variant->sp != inner->sp)
		variant[1] = variant[0];
	variant->pc = inner->pc;
	variant->sp = inner->sp;
	variant->fp = inner->fp;
	variant->fp_mask = fp_mask(inner);
	variant->outer_hash = outer->hash;
	variant->outer_sp = outer->sp;
	variant->outer_fp = outer->fp;
	variant->outer_fp_mask = fp_mask(outer);
	variant->outer_state = outer->state;
	variant->n_outer = n_outer;
	variant->n_words = inner->end - outer->end;
	variant->node = node;
	variant->generation = calls->variant_generation;
	memcpy(variant->words, &calls->guards[outer->end],
	       variant->n_words * sizeof(*variant->words));
	atomic_signal_fence(memory_order_seq_cst);
	calls->is_busy = false;
}

bool unwind_cache_is_interrupted(const struct unwind_cache *calls)
{
	return calls->n > 0 && (calls->frames[calls->n - 1].state & INTERRUPTED);
}

void unwind_cache_invalidate_nodes(struct unwind_cache *calls)
{
	calls->variant_generation++;
	for (uint32_t i = 0; i < calls->n; i++)
		calls->frames[i].node = 0;
}

void unwind_cache_clear(struct unwind_cache *calls)
{
	unwind_cache_invalidate_nodes(calls);
	calls->n = 0;
	/* If siglongjmp() leaves while rule_generation is 0, the next walk clears again. */
	if (calls->rule_generation == UINT32_MAX) {
		memset(&calls->rules, 0, sizeof(calls->rules));
		atomic_signal_fence(memory_order_seq_cst);
		calls->rule_generation = 0;
	}
	calls->rule_generation++;
	atomic_signal_fence(memory_order_seq_cst);
	calls->own_generation = self_unwind_generation();
}

/* Returns whether nothing has changed, up to the innermost frame: the common case. */
static inline bool is_same(const struct unwind_cache *calls, const struct walk_registers *caller)
{
	uint32_t n = calls->n;
	const struct unwind_cache_frame *frame = &calls->frames[n > 0 ? n - 1 : 0];

	return n > 0 && frame->pc == caller->pc && frame->sp == caller->sp &&
	       !(frame->state & (PLACE | FP_UNKNOWN | GENERAL)) &&
	       (!(frame->state & USES_FP) || frame->fp == caller->fp) && !calls->is_open &&
	       !calls->is_busy && calls->own_generation == self_unwind_generation() &&
	       caller->sp - calls->own.low < calls->own.high - calls->own.low &&
	       unwind_cache_find_changed(calls->guards, frame->end) == 0;
}

uint32_t unwind_cache_walk(struct unwind_cache *calls, const struct walk_registers *caller)
{
	if (__builtin_expect(is_same(calls, caller), 1)) {
		calls->n_same = calls->n;
		return calls->n;
	}
	if (__builtin_expect(calls->is_busy || calls->own_generation != self_unwind_generation() ||
				     calls->rule_generation == 0,
			     0))
		unwind_cache_clear(calls);
	calls->is_busy = true;
	atomic_signal_fence(memory_order_seq_cst);
	for (int i = 0; i < 2; i++) {
		if (__builtin_expect(walk(calls, caller), 1) &&
		    __builtin_expect(calls->own_generation == self_unwind_generation(), 1))
			break;
		if (calls->own_generation == self_unwind_generation())
			calls->n = 0;
		else
			unwind_cache_clear(calls);
	}
	atomic_signal_fence(memory_order_seq_cst);
	calls->is_busy = false;
	return calls->n;
}
