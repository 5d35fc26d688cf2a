/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Walk - steps from frame to frame
 *
 * A step looks up the rule for a frame's pc, computes the CFA from sp or fp, and reads the return
 * address and the caller's fp relative to it. A return address is looked up one byte earlier,
 * because a call may be the last instruction of its function; an interrupted pc is looked up as it
 * is. Without CFI, frame pointers are followed, and their values are used only if they are
 * plausible.
 * Invariants: (1) sp rises with every step, except out of a leaf that has its return address in a
 *                 register (possible for the innermost frame and interrupted ones), and out of at
 *                 most MAX_SWITCHES signal handlers, which may have had another stack. With
 *                 WALK_MAX_STEPS every walk ends  [test-walk: random stacks, cycles; fuzz_walk]
 *             (2) a walk with a cache takes less than 100 us for any stack, because of
 *                 WALK_MAX_STEPS and WALK_LOOKUP_STEPS
 *                 [test-walk: random stacks, lookups; bench-unwind-random]
 *             (3) memory is read only in the copy, within its bounds, and by the callbacks
 *                 [fuzz_walk]
 *             (4) the chain is the one that elfutils finds  [bench-unwind]
 *             (5) interleaved walks have the same results as separate ones  [test-walk: together]
 * Does not join stacks, guess the meaning of unsupported rules, or interpret prologues.
 */
#include "arch/walk.h"

#define MAX_SWITCHES 16
#define CALL_BYTES 8
#define MAX_CALLEES 32u /* limit for the callees in which find_base() looks */
#define MAX_ARGUMENTS (UINT64_C(1) << 20)
#define MAX_FP_FRAME (UINT64_C(1) << 20) /* maximum distance of a plausible fp from sp or CFA */
#define RED_ZONE 128         /* bytes below sp that a leaf may use (x86_64 psABI, 3.2.2) */
#define WALK_GO WALK_N_STOPS /* the walk continues */

struct state {
	const struct walk *walk;
	const struct regs *regs;
	struct walk_registers at;
	bool fp_known, lr_known, exact;
	/* pc is the start of a function that was passed to makecontext(): see find_place() */
	bool is_made;
	uint32_t flags; /* flags of the next frame to be stored */
	unsigned int n_switches;
	size_t n, n_lookups;
	size_t n_inner; /* the first n_inner frames are stored in order, later ones in a ring */
	struct walk_result *result;
};

/* ---- Reading ---- */

static inline bool read_word(const struct state *state, uint64_t address, uint64_t *ret_word)
{
	const struct walk *walk = state->walk;
	uint64_t at = address - walk->stack_start;

	if (at < walk->stack_size && walk->stack_size - at >= 8) {
		memcpy(ret_word, walk->stack + at, 8);
		return true;
	}
	return walk->read_word && walk->read_word(walk->data, address, ret_word);
}

static inline bool add_offset(uint64_t base, int64_t offset, uint64_t *ret_address)
{
	return !__builtin_add_overflow(base, offset, ret_address);
}

static enum walk_stop read_at(const struct state *state, uint64_t base, int64_t offset,
			      uint64_t *ret_word)
{
	uint64_t address;

	if (!add_offset(base, offset, &address))
		return WALK_BAD_FRAME;
	if (read_word(state, address, ret_word))
		return WALK_GO;
	return address < state->at.sp ? WALK_BAD_FRAME : WALK_COPY_END;
}

static bool has_code(const struct state *state, uint64_t address, const uint8_t *bytes, size_t size)
{
	uint8_t code[REGS_MAX_SIGRETURN];

	return state->walk->read_code &&
	       state->walk->read_code(state->walk->data, address, code, size) &&
	       memcmp(code, bytes, size) == 0;
}

/* Returns true also if the code before the address cannot be read, because it could be a call. */
static bool is_after_call(const struct state *state, uint64_t address)
{
	uint8_t code[CALL_BYTES];

	if (!state->walk->read_code || address < CALL_BYTES ||
	    !state->walk->read_code(state->walk->data, address - CALL_BYTES, code, CALL_BYTES))
		return true;
	return regs_is_call(state->walk->arch, code, CALL_BYTES);
}

/* ---- Frames ---- */

/* Returns the place of frame n in walk->frames. The last n_roots places are a ring buffer. */
static struct walk_frame *frame_at(const struct state *state, size_t n)
{
	if (n >= state->n_inner)
		n = state->n_inner + (n - state->n_inner) % state->walk->n_roots;
	return &state->walk->frames[n];
}

/* Stores a frame. Returns false if there is no room, or after WALK_MAX_STEPS frames. */
static bool store(struct state *state)
{
	if (state->n >= WALK_MAX_STEPS || (state->n >= state->n_inner && state->walk->n_roots == 0))
		return false;
	*frame_at(state, state->n) =
		(struct walk_frame){ state->at.pc, state->at.sp, state->flags, 0 };
	state->result->flags |= state->flags;
	state->n++;
	return true;
}

static void reverse(struct walk_frame *frames, size_t n)
{
	for (size_t i = 0; i < n / 2; i++) {
		struct walk_frame frame = frames[i];

		frames[i] = frames[n - 1 - i];
		frames[n - 1 - i] = frame;
	}
}

/* Rotates the ring buffer into order, and computes the number of dropped frames. */
static void finish(const struct state *state)
{
	const struct walk *walk = state->walk;
	size_t n_inner = state->n_inner, first;
	struct walk_result *result = state->result;

	result->last = state->at;
	result->n = result->cut_at = MIN_OF(state->n, walk->n_frames);
	if (state->n <= walk->n_frames)
		return;
	first = (state->n - n_inner) % walk->n_roots;
	reverse(walk->frames + n_inner, first);
	reverse(walk->frames + n_inner + first, walk->n_roots - first);
	reverse(walk->frames + n_inner, walk->n_roots);
	result->cut_at = n_inner;
	result->n_cut = state->n - walk->n_frames;
}

/* ---- Steps ---- */

/* Moves to the caller. The calling function has checked `sp`, so that the walk ends. */
static enum walk_stop go_to(struct state *state, uint64_t pc, uint64_t sp, uint32_t flags)
{
	pc &= ~state->walk->pac_mask;
	if (pc == 0)
		return WALK_ROOT;
	state->at.pc = pc;
	state->at.sp = sp;
	state->exact = flags & WALK_FRAME_EXACT;
	state->lr_known = false;
	state->flags = flags;
	return WALK_GO;
}

/* Returns a register by DWARF number. Returns NULL outside of the innermost frame, because most
 * registers of its callers are unknown. */
static const uint64_t *numbered(const struct state *state, uint64_t number)
{
	if (state->n != 1 || !state->exact || number >= state->regs->n_numbered ||
	    !state->walk->numbered)
		return NULL;
	return &state->walk->numbered[number];
}

/* Finds the value that the register regs->base has in the current frame. Each callee either keeps
 * the value in the register or stores it on the stack. */
static bool find_base(const struct state *state, uint64_t *ret_value)
{
	const struct walk *walk = state->walk;
	const struct walk_frame *frame = &walk->frames[state->n - 1], *caller;

	if (!walk->find_base || state->n > MIN_OF(MAX_CALLEES, state->n_inner))
		return false;
	while (frame > walk->frames) {
		bool is_exact, is_popped;
		const struct cfi_rule *rule;
		uint64_t place;

		caller = frame--;
		is_exact = frame->flags & WALK_FRAME_EXACT;
		rule = walk->find_base(walk->data, frame->pc - !is_exact);
		if (!rule || rule->cfa == CFI_CFA_NONE || rule->cfa == CFI_CFA_UNSUPPORTED ||
		    (caller->flags & ~WALK_FRAME_EXACT))
			return false;
		/* Compilers emit no CFI for a pop, after which the place is below sp. */
		place = caller->sp + (uint64_t)(int64_t)rule->fp_offset;
		is_popped = is_exact && place < frame->sp;
		if (rule->fp == CFI_AT_CFA && !is_popped)
			return read_at(state, place, 0, ret_value) == WALK_GO;
		/* The registers of a frame that a signal interrupted are in the signal's frame. */
		if ((rule->fp != CFI_SAME && rule->fp != CFI_AT_CFA) ||
		    is_exact != (frame == walk->frames))
			return false;
	}
	/* A register that was not read is 0. */
	*ret_value = walk->numbered ? walk->numbered[state->regs->base] : 0;
	return *ret_value != 0;
}

static enum walk_stop get_cfa(const struct state *state, const struct cfi_rule *rule,
			      uint64_t *ret_cfa)
{
	const struct walk_registers *at = &state->at;
	bool by_fp = rule->cfa == CFI_CFA_FP || rule->cfa == CFI_CFA_AT_FP;
	int64_t offset = rule->cfa_offset;
	uint64_t word;

	if (by_fp && !state->fp_known)
		return WALK_NO_RULE;
	if (rule->cfa == CFI_CFA_REGISTER) {
		const unsigned int number = CFI_NUMBER(rule->flags);
		const uint64_t *value = numbered(state, number);

		if (value)
			word = *value;
		else if (number == 0 || number != state->regs->base || !find_base(state, &word))
			return WALK_NO_RULE;
		return add_offset(word, offset, ret_cfa) ? WALK_GO : WALK_BAD_FRAME;
	}
	if (rule->cfa == CFI_CFA_AT_SP || rule->cfa == CFI_CFA_AT_FP) {
		enum walk_stop stop = read_at(state, by_fp ? at->fp : at->sp, offset, &word);

		if (stop != WALK_GO)
			return stop;
		return add_offset(word, 8 * (int64_t)CFI_NUMBER(rule->flags), ret_cfa)
			       ? WALK_GO
			       : WALK_BAD_FRAME;
	}
	if (rule->cfa == CFI_CFA_PLT && at->pc % 16 >= CFI_NUMBER(rule->flags))
		offset += 8;
	return add_offset(by_fp ? at->fp : at->sp, offset, ret_cfa) ? WALK_GO : WALK_BAD_FRAME;
}

static enum walk_stop get_place(const struct state *state, uint8_t place, int32_t offset,
				uint64_t cfa, uint64_t *ret_word)
{
	if (place == CFI_AT_FP && !state->fp_known)
		return WALK_NO_RULE;
	if (place == CFI_IN_REGISTER) {
		const uint64_t *value = numbered(state, (uint64_t)offset);

		/* Registers that were not read are 0. */
		*ret_word = value ? *value : 0;
		return *ret_word ? WALK_GO : WALK_NO_RULE;
	}
	return read_at(state,
		       place == CFI_AT_CFA  ? cfa
		       : place == CFI_AT_FP ? state->at.fp
					    : state->at.sp,
		       offset, ret_word);
}

/* Returns whether a step to cfa is allowed: to a higher sp, out of a signal handler (at most
 * MAX_SWITCHES times), or out of a leaf that has its return address in a register. */
static bool may_go(struct state *state, const struct cfi_rule *rule, uint64_t cfa)
{
	if (cfa % 8 != 0)
		return false;
	if (cfa > state->at.sp)
		return true;
	if (rule->flags & CFI_SIGNAL)
		return state->n_switches++ < MAX_SWITCHES;
	return cfa == state->at.sp && (rule->ra == CFI_SAME || rule->ra == CFI_IN_REGISTER);
}

/*
 * Returns whether fp has been popped. Compilers emit no CFI for `pop fp`, so until `ret` the rule
 * says that fp is on the stack, at an address that is below sp by then. A leaf may also have stored
 * fp there to reuse the register, so fp must look like a caller's frame pointer.
 */
static bool is_popped(const struct state *state, const struct cfi_rule *rule, uint64_t cfa)
{
	uint64_t fp = state->at.fp, place = cfa + (uint64_t)(int64_t)rule->fp_offset;

	return state->exact && state->fp_known && rule->fp == CFI_AT_CFA && place < state->at.sp &&
	       state->at.sp - place <= RED_ZONE && fp >= cfa && fp - cfa <= MAX_FP_FRAME &&
	       fp % 8 == 0;
}

static void set_fp(struct state *state, const struct cfi_rule *rule, uint64_t cfa)
{
	uint64_t fp;

	if (rule->fp == CFI_SAME)
		return;
	if (rule->fp != CFI_UNDEFINED &&
	    get_place(state, rule->fp, rule->fp_offset, cfa, &fp) == WALK_GO) {
		state->fp_known = true;
		state->at.fp = fp;
		return;
	}
	state->fp_known = is_popped(state, rule, cfa);
}

static inline bool plan(const struct state *state, const struct cfi_rule *rule,
			struct walk_move *ret_move)
{
	const struct walk *walk = state->walk;

	return walk_plan(rule, state->at.sp, state->at.fp, state->fp_known, walk->stack_start,
			 walk->stack_size, ret_move);
}

static inline enum walk_stop go(struct state *state, const struct walk_move *move)
{
	uint64_t ra, fp;

	memcpy(&ra, state->walk->stack + move->ra_at, 8);
	memcpy(&fp, state->walk->stack + move->fp_at, 8);
	state->at.fp = move->has_fp ? fp : state->at.fp;
	state->fp_known |= move->has_fp;
	return go_to(state, ra, move->cfa, 0);
}

/*
 * Finds the return address that vfork() has popped into a register, because the child overwrites
 * the stack: rdx in musl, r12 in Go. The CFI of vfork() still gives the place on the stack from
 * which the address was popped. That place is now below sp.
 */
static bool find_popped(const struct state *state, const struct cfi_rule *rule, uint64_t cfa,
			uint64_t *ret_ra)
{
	static const uint8_t registers[] = { 1, 12 };

	if (rule->ra != CFI_AT_CFA || rule->ra_offset != -8 || cfa != state->at.sp)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(registers); i++) {
		const uint64_t *value = numbered(state, registers[i]);
		struct walk_code code = { .kind = WALK_CODE_NONE };

		if (!value || *value == 0)
			continue;
		state->walk->resolve(state->walk->data, *value - 1, &code);
		if (code.kind != WALK_CODE_TABLE)
			continue;
		*ret_ra = *value;
		return true;
	}
	return false;
}

/* Returns whether this is the new thread that a clone() has just created, not its parent. */
static bool is_child(const struct state *state)
{
	const uint64_t *result = numbered(state, state->regs->result);

	return result && *result == 0;
}

static enum walk_stop step_by_rule(struct state *state, const struct cfi_rule *rule)
{
	uint32_t flags = rule->flags & CFI_SIGNAL ? WALK_FRAME_EXACT : 0;
	uint64_t cfa, ra = state->at.lr;
	enum walk_stop stop;

	if (rule->cfa == CFI_CFA_UNSUPPORTED)
		return WALK_NO_RULE;
	if (rule->ra == CFI_UNDEFINED || (rule->flags & CFI_CLONE && is_child(state)))
		return WALK_ROOT;
	if (rule->ra == CFI_SAME && !state->lr_known)
		return WALK_BAD_FRAME;
	stop = get_cfa(state, rule, &cfa);
	if (stop != WALK_GO)
		return stop;
	if (!find_popped(state, rule, cfa, &ra)) {
		if (!may_go(state, rule, cfa))
			return WALK_BAD_FRAME;
		if (rule->ra != CFI_SAME)
			stop = get_place(state, rule->ra, rule->ra_offset, cfa, &ra);
		if (stop != WALK_GO)
			return stop;
	}
	set_fp(state, rule, cfa);
	return go_to(state, ra, cfa, flags);
}

/* Finds the frame that the frame pointer describes: addresses of the saved fp and of the return
 * address, and the caller's sp. */
static bool find_frame(const struct state *state, uint64_t *ret_fp_at, uint64_t *ret_ra_at,
		       uint64_t *ret_sp)
{
	uint64_t fp = state->at.fp;

	switch (state->regs->frame) {
	case REGS_FRAME_RECORD:
		*ret_fp_at = fp;
		return add_offset(fp, 8, ret_ra_at) && add_offset(fp, 16, ret_sp);
	case REGS_FRAME_BELOW:
		*ret_sp = fp;
		return add_offset(fp, -8, ret_ra_at) && add_offset(fp, -16, ret_fp_at);
	default:
		*ret_fp_at = state->at.sp;
		return read_word(state, state->at.sp, ret_sp) &&
		       add_offset(*ret_sp, state->regs->chain_ra, ret_ra_at);
	}
}

/* Returns whether this is the start of a program: the kernel puts argc and argv at sp, with a 0
 * after them. The code there often has no CFI. */
static bool is_entry(const struct state *state)
{
	uint64_t sp = state->at.sp, argc, first, end;

	return sp % 16 == 0 && read_word(state, sp, &argc) && argc > 0 && argc < MAX_ARGUMENTS &&
	       read_word(state, sp + 8, &first) && first > sp &&
	       (!read_word(state, sp + 8 + 8 * argc, &end) || end == 0);
}

static enum walk_stop step_by_fp(struct state *state)
{
	bool is_chain = state->regs->frame == REGS_FRAME_CHAIN;
	uint64_t fp_at, ra_at, sp, fp, ra, next;

	if (!is_chain && !state->fp_known)
		return WALK_NO_TABLE;
	/* A chain ends with a 0. But the innermost function may not have linked its frame yet, and
	 * in code without frame pointers, the register may hold any value, even 0. */
	next = state->at.fp;
	if (is_chain ? state->n > 1 && read_word(state, state->at.sp, &next) && next == 0
		     : next == 0 && ((state->flags & WALK_FRAME_FP) || is_entry(state)))
		return WALK_ROOT;
	if (!find_frame(state, &fp_at, &ra_at, &sp) || fp_at < state->at.sp || fp_at % 8 != 0 ||
	    sp <= state->at.sp)
		return WALK_NO_TABLE;
	if (!read_word(state, ra_at, &ra) || !read_word(state, fp_at, &fp))
		return fp_at - state->at.sp > MAX_FP_FRAME ? WALK_NO_TABLE : WALK_COPY_END;
	ra &= ~state->walk->pac_mask;
	if (ra == 0 && !is_chain && !(state->flags & WALK_FRAME_FP))
		return WALK_NO_TABLE;
	if (ra != 0 && (ra % state->regs->code_align != 0 || !is_after_call(state, ra)))
		return WALK_NO_TABLE;
	state->fp_known = !is_chain;
	state->at.fp = fp;
	return go_to(state, ra, sp, WALK_FRAME_FP);
}

/* Steps to the registers that a signal interrupted, which the kernel saved on the stack. */
static enum walk_stop step_by_signal(struct state *state)
{
	static const struct cfi_rule rule = { .flags = CFI_SIGNAL };
	const struct regs *regs = state->regs;
	uint64_t pc, sp, fp, lr = 0, from = state->at.sp;
	enum walk_stop stop = read_at(state, from, regs->signal_pc, &pc);

	if (stop == WALK_GO)
		stop = read_at(state, from, regs->signal_sp, &sp);
	if (stop == WALK_GO)
		stop = read_at(state, from, regs->signal_fp, &fp);
	if (stop == WALK_GO && regs->has_lr)
		stop = read_at(state, from, regs->signal_lr, &lr);
	if (stop != WALK_GO)
		return stop;
	if (!may_go(state, &rule, sp))
		return WALK_BAD_FRAME;
	state->at.fp = fp;
	state->fp_known = true;
	stop = go_to(state, pc, sp, WALK_FRAME_EXACT);
	state->at.lr = lr;
	state->lr_known = regs->has_lr;
	return stop;
}

/* ---- Lookup ---- */

static_assert((CFI_CFA_SP ^ CFI_CFA_FP) == 1 && (CFI_SAME ^ CFI_AT_CFA) == 1,
	      "one comparison tells whether it is one of the two");

/* Returns the slot flags of a rule. If a plain rule keeps fp, sets fp_offset to ra_offset, so that
 * walk_plan() needs no special case. */
static uint8_t classify(struct cfi_rule *rule)
{
	if ((rule->flags & (CFI_SIGNAL | CFI_CLONE)) || rule->cfa == CFI_CFA_NONE ||
	    rule->cfa == CFI_CFA_UNSUPPORTED)
		return 0;
	if (rule->ra == CFI_UNDEFINED)
		return WALK_SLOT_ROOT;
	if ((rule->cfa ^ CFI_CFA_SP) > 1 || (rule->fp ^ CFI_SAME) > 1 || rule->ra != CFI_AT_CFA)
		return 0;
	if (rule->fp == CFI_SAME)
		rule->fp_offset = rule->ra_offset;
	return (rule->ra_offset | rule->fp_offset) % 8 != 0
		       ? 0
		       : WALK_SLOT_PLAIN | (rule->cfa == CFI_CFA_FP ? WALK_SLOT_NEEDS_FP : 0) |
				 (rule->fp == CFI_AT_CFA ? WALK_SLOT_GIVES_FP : 0);
}

static void look_up(const struct walk *walk, uint64_t pc, struct walk_slot *ret_slot)
{
	struct walk_code code = { .kind = WALK_CODE_NONE };

	walk->resolve(walk->data, pc, &code);
	*ret_slot = (struct walk_slot){
		.pc = pc,
		.generation = walk->generation,
		.kind = code.kind,
	};
	if (code.kind == WALK_CODE_TABLE) {
		ret_slot->rule = *table_get(code.table, code.address);
		/* Two tables have the same origin with a probability of 1 in 32 768. */
		ret_slot->origin = (uint16_t)(((uintptr_t)code.table * HASH_ODD) >> 48) | 1;
	}
	if (code.kind == WALK_CODE_RULE) {
		ret_slot->kind = WALK_CODE_TABLE;
		ret_slot->rule = code.rule;
	}
	if (ret_slot->kind == WALK_CODE_TABLE)
		ret_slot->flags = classify(&ret_slot->rule);
}

/* Looks up a pc that is not cached, for find_slot(). Caches the result unless it may change
 * soon. */
static const struct walk_slot *fill_slot(struct state *state, uint64_t pc, struct walk_slot *own)
{
	const struct walk *walk = state->walk;
	struct walk_slot *slot = walk->cache ? walk_cache_at(walk->cache, pc, walk->generation)
					     : own;

	if (walk->cache && state->n + WALK_LOOKUP_STEPS * state->n_lookups++ >= WALK_MAX_STEPS)
		return NULL;
	look_up(walk, pc, slot);
	if ((slot->kind == WALK_CODE_PENDING || slot->kind == WALK_CODE_NONE) && walk->cache) {
		*own = *slot;
		slot->generation = 0;
		return own;
	}
	return slot;
}

/* Returns the result of looking up pc, or NULL after too many lookups. A result that is not cached
 * is stored in `own`. */
static inline const struct walk_slot *find_slot(struct state *state, uint64_t pc,
						struct walk_slot *own)
{
	const struct walk *walk = state->walk;

	if (walk->cache) {
		struct walk_slot *slot = walk_cache_at(walk->cache, pc, walk->generation);

		if (slot->pc == pc && slot->generation == walk->generation)
			return slot;
	}
	return fill_slot(state, pc, own);
}

/* Returns whether pc is in a signal trampoline (recognized by its code) whose rule is missing or,
 * on architectures with an lr, does not restore the lr. */
static bool is_signal_trampoline(const struct state *state, const struct cfi_rule *rule)
{
	if (rule && (!(rule->flags & CFI_SIGNAL) || !state->regs->has_lr))
		return false;
	return has_code(state, state->at.pc, state->regs->sigreturn, state->regs->sigreturn_size);
}

/* ---- Generated code ---- */

/* Returns whether the frame pointer points to a frame whose return address is in executable
 * code. */
static bool has_frame(struct state *state)
{
	uint64_t fp_at, ra_at, sp, ra;
	const struct walk_slot *slot;
	struct walk_slot own;

	if (!state->fp_known || !find_frame(state, &fp_at, &ra_at, &sp) || fp_at < state->at.sp ||
	    fp_at % 8 != 0 || !read_word(state, ra_at, &ra))
		return false;
	slot = find_slot(state, (ra & ~state->walk->pac_mask) - 1, &own);
	return slot && slot->kind != WALK_CODE_NONE;
}

/*
 * Returns whether the frame pointer may replace a missing rule: its frame must return into a
 * function that keeps its own frame pointer. If the function without a rule has no frame, its
 * caller is skipped.
 */
static bool may_follow_fp(struct state *state)
{
	const struct walk_slot *slot;
	struct walk_slot own;
	uint64_t ra;

	if (state->regs->frame != REGS_FRAME_RECORD || !has_frame(state) ||
	    !read_word(state, state->at.fp + 8, &ra))
		return false;
	slot = find_slot(state, (ra & ~state->walk->pac_mask) - 1, &own);
	return slot && slot->rule.cfa == CFI_CFA_FP && slot->rule.fp == CFI_AT_CFA;
}

/* Returns whether this is a trampoline of Python. If the walk has no read_code(), checks instead
 * that the caller and the callee are in one file (the interpreter), and that the frame has eight
 * bytes of padding. */
static bool is_python_trampoline(struct state *state)
{
	const struct regs *regs = state->regs;
	const struct walk_frame *callee;
	const struct walk_slot *slot;
	struct walk_slot own;
	uint16_t origin;
	uint64_t ra;

	if (regs->trampoline_size == 0 || state->exact)
		return false;
	if (state->walk->read_code)
		return has_code(state, state->at.pc - regs->trampoline_return, regs->trampoline,
				regs->trampoline_size);
	/* walk_step() does not keep the callee */
	callee = state->n > 0 ? frame_at(state, state->n - 1) : NULL;
	if (!callee || callee->pc == 0 || state->at.sp % 16 != 0 ||
	    !read_word(state, state->at.sp + 8, &ra))
		return false;
	slot = find_slot(state, callee->pc - (callee->flags & WALK_FRAME_EXACT ? 0 : 1), &own);
	origin = slot ? slot->origin : 0;
	slot = origin != 0 ? find_slot(state, ra - 1, &own) : NULL;
	return slot && slot->origin == origin && !has_frame(state);
}

/* Returns whether a return probe replaced the return address by the address of its trampoline. If
 * so, uses the original address, which the kernel keeps. */
static bool is_probed(struct state *state)
{
	const struct walk *walk = state->walk;
	uint64_t pc, slot = state->at.sp + (uint64_t)(int64_t)state->regs->ra_from_cfa;

	if (state->exact || state->regs->has_lr || !walk->find_replaced ||
	    !walk->find_replaced(walk->data, slot, &pc) || pc == state->at.pc)
		return false;
	state->at.pc = pc;
	state->flags |= WALK_FRAME_FP;
	return true;
}

static enum walk_stop step_by_generated(struct state *state)
{
	static const struct cfi_rule trampoline = {
		.cfa = CFI_CFA_SP,
		.cfa_offset = 16,
		.ra = CFI_AT_CFA,
		.ra_offset = -8,
	};
	bool is_python = is_python_trampoline(state);
	bool is_signal = !is_python && is_signal_trampoline(state, NULL);

	state->flags |= WALK_FRAME_JIT | (is_signal ? WALK_FRAME_EXACT : 0);
	if (!store(state))
		return WALK_DEPTH;
	if (is_python)
		return step_by_rule(state, &trampoline);
	return is_signal ? step_by_signal(state) : step_by_fp(state);
}

/* Steps out of a function that was passed to makecontext(). Its rule may describe a caller that
 * does not exist, so there must be code at the return address. */
static enum walk_stop step_over_made(struct state *state, const struct cfi_rule *rule)
{
	enum walk_stop stop = step_by_rule(state, rule);
	const struct walk_slot *slot = NULL;
	struct walk_slot own;

	if (stop == WALK_GO)
		slot = find_slot(state, state->at.pc - (state->exact ? 0 : 1), &own);
	return slot && slot->kind != WALK_CODE_NONE ? stop : WALK_ROOT;
}

static enum walk_stop step_any(struct state *state, const struct walk_slot *slot)
{
	const struct cfi_rule *rule = NULL;
	const bool is_made = state->is_made;
	bool is_trampoline;
	enum walk_stop stop;
	struct walk_move move;

	state->is_made = false;
	if ((slot->kind == WALK_CODE_JIT || slot->kind == WALK_CODE_NONE) && is_probed(state))
		return WALK_GO;
	if (slot->kind == WALK_CODE_NONE && state->n > 0)
		return WALK_BAD_FRAME;
	if (slot->kind == WALK_CODE_JIT)
		return step_by_generated(state);
	if (slot->kind == WALK_CODE_TABLE && slot->rule.cfa != CFI_CFA_NONE)
		rule = &slot->rule;
	is_trampoline = (slot->kind == WALK_CODE_TABLE || slot->kind == WALK_CODE_FP) &&
			is_signal_trampoline(state, rule);
	/* A handler returns to the trampoline's first instruction, which no call precedes. */
	if (is_trampoline || (rule && rule->flags & CFI_SIGNAL))
		state->flags |= WALK_FRAME_EXACT;
	if (!store(state))
		return WALK_DEPTH;
	if (slot->kind == WALK_CODE_NONE)
		return WALK_BAD_FRAME;
	if (slot->kind == WALK_CODE_ENTRY)
		return WALK_ROOT;
	if (slot->kind == WALK_CODE_PENDING)
		return WALK_NO_TABLE;
	if (slot->flags & WALK_SLOT_PLAIN && !is_made && plan(state, rule, &move))
		return go(state, &move);
	if (is_trampoline)
		return step_by_signal(state);
	if (is_made)
		return step_over_made(state, rule);
	stop = rule ? step_by_rule(state, rule) : WALK_NO_TABLE;
	return !rule || (stop == WALK_NO_RULE && may_follow_fp(state)) ? step_by_fp(state) : stop;
}

/* Plans a step by a plain rule. Returns false if step_any() must make the step. */
static inline bool plan_step(const struct state *state, const struct walk_slot *slot,
			     struct walk_move *ret_move)
{
	return slot->flags & WALK_SLOT_PLAIN && state->flags == 0 && state->n < state->n_inner &&
	       plan(state, &slot->rule, ret_move);
}

static inline enum walk_stop step_plainly(struct state *state, const struct walk_move *move)
{
	state->walk->frames[state->n++] = (struct walk_frame){ state->at.pc, state->at.sp, 0, 0 };
	return go(state, move);
}

static inline enum walk_stop step(struct state *state, const struct walk_slot *slot)
{
	struct walk_move move;

	return plan_step(state, slot, &move) ? step_plainly(state, &move) : step_any(state, slot);
}

/*
 * Finds the slot of the current pc, like find_slot(). makecontext() writes the address of a
 * function's first instruction in place of a return address; the byte before that belongs to no
 * function.
 */
static inline const struct walk_slot *find_place(struct state *state, struct walk_slot *own)
{
	uint64_t pc = state->at.pc;
	const struct walk_slot *slot = find_slot(state, pc - (state->exact ? 0 : 1), own);

	if (!slot || slot->flags & WALK_SLOT_PLAIN || state->exact ||
	    !state->walk->finds_contexts || slot->kind != WALK_CODE_TABLE ||
	    slot->rule.cfa != CFI_CFA_NONE)
		return slot;
	slot = find_slot(state, pc, own);
	if (!slot || slot->kind != WALK_CODE_TABLE || slot->rule.cfa == CFI_CFA_NONE)
		return find_slot(state, pc - 1, own);
	state->is_made = true;
	state->flags |= WALK_FRAME_EXACT;
	return slot;
}

static void begin(struct state *state, const struct walk *walk,
		  const struct walk_registers *registers, struct walk_result *result)
{
	assert(walk->n_frames > walk->n_roots && walk->generation != 0);
	*result = (struct walk_result){ .stop = WALK_GO };
	*state = (struct state){
		.walk = walk,
		.regs = regs_get(walk->arch),
		.at = *registers,
		.fp_known = !walk->fp_unknown,
		.exact = true,
		.flags = WALK_FRAME_EXACT,
		.n_inner = MIN_OF(walk->n_frames - walk->n_roots, (size_t)WALK_MAX_STEPS),
		.result = result,
	};
	assert(state->regs);
	state->lr_known = state->regs->has_lr;
}

/* Makes the next steps, like find_place() and step(), as long as their slots are cached and their
 * rules plain. Each step needs the result of the previous one, so pc, sp and fp are local variables
 * that can stay in registers. */
static enum walk_stop step_cached(struct state *state)
{
	const struct walk *walk = state->walk;
	uint64_t pc = state->at.pc, sp = state->at.sp, fp = state->at.fp, ra, saved_fp;
	enum walk_stop stop = WALK_GO;
	bool fp_known = state->fp_known;
	struct walk_move move;
	size_t n = state->n;

	if (!walk->cache || state->exact || state->flags != 0)
		return WALK_GO;
	while (stop == WALK_GO && n < state->n_inner) {
		const struct walk_slot *slot = walk_cache_at(walk->cache, pc - 1, walk->generation);

		if (slot->pc != pc - 1 || slot->generation != walk->generation)
			break;
		if (!(slot->flags & WALK_SLOT_PLAIN)) {
			if (!(slot->flags & WALK_SLOT_ROOT))
				break;
			walk->frames[n++] = (struct walk_frame){ pc, sp, 0, 0 };
			stop = WALK_ROOT;
			break;
		}
		if (!walk_plan(&slot->rule, sp, fp, fp_known, walk->stack_start, walk->stack_size,
			       &move))
			break;
		walk->frames[n++] = (struct walk_frame){ pc, sp, 0, 0 };
		memcpy(&ra, walk->stack + move.ra_at, 8);
		memcpy(&saved_fp, walk->stack + move.fp_at, 8);
		fp = move.has_fp ? saved_fp : fp;
		fp_known |= move.has_fp;
		ra &= ~walk->pac_mask;
		if (ra == 0) {
			stop = WALK_ROOT;
		} else {
			pc = ra;
			sp = move.cfa;
		}
	}
	state->at.pc = pc;
	state->at.sp = sp;
	state->at.fp = fp;
	state->fp_known = fp_known;
	state->n = n;
	return stop;
}

void walk_run(const struct walk *walk, const struct walk_registers *registers,
	      struct walk_result *ret_result)
{
	const struct walk_slot *slot;
	struct walk_slot own;
	struct state state;

	begin(&state, walk, registers, ret_result);
	while (ret_result->stop == WALK_GO) {
		ret_result->stop = step_cached(&state);
		if (ret_result->stop != WALK_GO)
			break;
		slot = find_place(&state, &own);
		ret_result->stop = slot ? step(&state, slot) : WALK_DEPTH;
	}
	finish(&state);
}

/* Room for the innermost and the latest frame is enough, because the frames are not returned. */
bool walk_step(const struct walk *walk, struct walk_place *place, struct walk_slot *ret_slot,
	       enum walk_stop *ret_stop)
{
	struct walk_frame frames[2] = { 0 };
	struct walk_result result = { .stop = WALK_GO };
	struct walk with_room = *walk;
	struct state state = {
		.walk = &with_room,
		.regs = regs_get(walk->arch),
		.at = place->at,
		.fp_known = place->fp_known,
		.lr_known = place->lr_known,
		.exact = place->flags & WALK_FRAME_EXACT,
		.flags = place->flags,
		.n_switches = place->n_switches,
		.n = place->n,
		.n_lookups = place->n_lookups,
		.n_inner = 1,
		.result = &result,
	};
	const struct walk_slot *slot = find_place(&state, ret_slot);
	bool is_stored;

	assert(state.regs);
	with_room.frames = frames;
	with_room.n_frames = 2;
	with_room.n_roots = 1;
	if (slot && slot != ret_slot)
		*ret_slot = *slot;
	*ret_stop = slot ? step(&state, ret_slot) : WALK_DEPTH;
	is_stored = state.n > place->n;
	*place = (struct walk_place){
		.at = state.at,
		.flags = state.flags,
		.n_switches = state.n_switches,
		.n = (uint32_t)state.n,
		.n_lookups = (uint32_t)state.n_lookups,
		.fp_known = state.fp_known,
		.lr_known = state.lr_known,
	};
	return is_stored;
}

/* ---- Interleaved walks ---- */

/* A walk and its next step: a planned move, or a slot. */
struct lane {
	struct state state;
	bool is_planned;
	struct walk_move move;
	struct walk_slot slot; /* a copy, because the other walks use the same cache */
};

/* Finds the next step, and prefetches its reads. */
static inline enum walk_stop look_ahead(struct lane *lane)
{
	const struct walk_slot *slot = find_place(&lane->state, &lane->slot);

	if (!slot)
		return WALK_DEPTH;
	lane->is_planned = plan_step(&lane->state, slot, &lane->move);
	if (lane->is_planned) {
		prefetch_line(lane->state.walk->stack + lane->move.ra_at);
		prefetch_line(lane->state.walk->stack + lane->move.fp_at);
	} else if (slot != &lane->slot) {
		lane->slot = *slot;
	}
	return WALK_GO;
}

static inline enum walk_stop advance(struct lane *lane)
{
	enum walk_stop stop = lane->is_planned ? step_plainly(&lane->state, &lane->move)
					       : step_any(&lane->state, &lane->slot);

	return stop == WALK_GO ? look_ahead(lane) : stop;
}

void walk_run_together(struct walk_job *jobs, size_t n)
{
	struct lane lanes[WALK_TOGETHER], *active[WALK_TOGETHER];
	size_t n_active = n, i;

	assert(n <= WALK_TOGETHER);
	for (i = 0; i < n; i++) {
		active[i] = &lanes[i];
		begin(&lanes[i].state, &jobs[i].walk, &jobs[i].registers, &jobs[i].result);
		jobs[i].result.stop = look_ahead(&lanes[i]);
	}
	for (i = 0; n_active > 0; i = i + 1 < n_active ? i + 1 : 0) {
		struct walk_result *result = active[i]->state.result;

		if (result->stop == WALK_GO)
			result->stop = advance(active[i]);
		if (result->stop == WALK_GO)
			continue;
		finish(&active[i]->state);
		active[i] = active[--n_active];
	}
}
