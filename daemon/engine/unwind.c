/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Unwind - from the registers and the stack of a sample to its callers
 *
 * arch/walk.h does the steps; here stand what is where in a process, and what becomes of a walk that did not reach the
 * root. A file is asked for when a walk first gets there, and the walk is done again when its table is ready. A stack
 * that is deeper than its copy is continued with what the same thread's stack was before: a frame that returns to the
 * same place at the same height of the stack has the same callers, unless it was left and entered again. That is a
 * guess, and is called stitched. Where that fails the kernel's chain of frame pointers may go on from the last frame;
 * it is followed if by its CFI every function on it, from that frame to the last but one, had set its frame pointer up:
 * then none was skipped. That is called fp-repaired.
 * Invariants: (1) what a sample says never makes a walk read outside of its copy            [fuzz_walk]
 *             (2) a stitched stack is never `cfi`, nor stitched to another thread's         [test-engine-unwind: stitch]
 *             (3) a walk that waits for a table ends with last_chance                       [test-engine-unwind: waits]
 * Runs on the drain thread only.
 */
#include "daemon/engine/unwind.h"

#include "arch/base.h"
#include "daemon/engine/unwind-file.h"

#include <string.h>

#define N_ROOTS 128
#define HISTORY_SLOTS 64
#define MAX_SEARCHED_BYTES (size_t)16384

/* The last stack of a thread that was nearly as deep as a copy, or deeper. */
struct unwind_history {
	uint32_t thread;
	size_t n;
	struct place {
		uint64_t ip, sp;
	} * places; /* leaf first, to the root */
};

/* One of the walks that go on side by side. */
struct unwind_lane {
	struct unwind *unwind;
	int32_t pid;
	const struct maps *maps;
	bool maps_known, last_chance;
	bool pending;          /* something was not ready */
	struct image *missing; /* its file; NULL: the mappings are not known */
	struct walk_frame frames[UNWIND_MAX_WALKED];
	uint64_t ips[UNWIND_MAX_WALKED];
};

void unwind_init(struct unwind *unwind, const struct unwind_tables *tables)
{
	memset(unwind, 0, sizeof(*unwind));
	unwind->tables = tables;
	unwind->history = g_new0(struct unwind_history, HISTORY_SLOTS);
	unwind->lanes = g_new0(struct unwind_lane, WALK_TOGETHER);
}

void unwind_done(struct unwind *unwind)
{
	size_t i;

	for (i = 0; unwind->history && i < HISTORY_SLOTS; i++)
		g_free(unwind->history[i].places);
	g_clear_pointer(&unwind->history, g_free);
	g_clear_pointer(&unwind->lanes, g_free);
}

void unwind_read_registers(const uint64_t *registers, struct walk_registers *ret_registers)
{
	const struct regs *regs = regs_get(REGS_NATIVE);

	*ret_registers = (struct walk_registers){
		.pc = registers[regs->perf_pc],
		.sp = registers[regs->perf_sp],
		.fp = registers[regs->perf_fp],
		.lr = regs->has_lr ? registers[regs->perf_lr] : 0,
	};
}

/* ---- What is where ---- */

static void resolve_file(struct unwind_lane *lane, const struct mapping *mapping, uint64_t pc,
			 struct walk_code *ret_code)
{
	struct unwind *unwind = lane->unwind;
	struct image *image = mapping->image;
	const struct unwind_file *file = image->unwind;

	if (image->kind == PROF_IMAGE_VDSO) {
		file = unwind_tables_vdso(unwind->tables);
	} else if (image->unwind_state == IMAGE_UNWIND_UNASKED && !image->requested) {
		unwind->want(image, mapping, lane->pid, unwind->data);
	}
	ret_code->kind = WALK_CODE_FP;
	if (file) {
		if (unwind_file_address(file, pc - mapping->start + mapping->file_offset,
					&ret_code->address)) {
			ret_code->kind = WALK_CODE_TABLE;
			ret_code->table = &file->table;
			if (ret_code->address == file->entry)
				ret_code->kind = WALK_CODE_ENTRY;
		}
		return;
	}
	if (image->kind != PROF_IMAGE_FILE || image->unwind_state == IMAGE_UNWIND_NONE)
		return;
	lane->pending = true;
	lane->missing = image;
	if (!lane->last_chance)
		ret_code->kind = WALK_CODE_PENDING;
}

static void resolve(void *data, uint64_t pc, struct walk_code *ret_code)
{
	struct unwind_lane *lane = data;
	const struct mapping *mapping = maps_find(lane->maps, pc);

	if (mapping && mapping->image) {
		resolve_file(lane, mapping, pc, ret_code);
	} else if (mapping) {
		ret_code->kind = WALK_CODE_JIT;
	} else if (!lane->maps_known) {
		lane->pending = true;
		lane->missing = NULL;
		ret_code->kind = lane->last_chance ? WALK_CODE_FP : WALK_CODE_PENDING;
	}
}

void unwind_want_all(struct unwind *unwind, const struct unwind_input *input,
		     const struct maps *maps)
{
	const struct mapping *mapping;
	uint64_t word, low, high;
	size_t at;

	if (maps->n == 0)
		return;
	low = maps->mappings[0].start;
	high = maps->mappings[maps->n - 1].end;
	for (at = 0; at + sizeof(word) <= MIN_OF(input->stack_bytes, MAX_SEARCHED_BYTES);
	     at += sizeof(word)) {
		memcpy(&word, input->stack + at, sizeof(word));
		mapping = word > low && word < high ? maps_find(maps, word - 1) : NULL;
		if (mapping && mapping->image && mapping->image->kind == PROF_IMAGE_FILE &&
		    mapping->image->unwind_state == IMAGE_UNWIND_UNASKED &&
		    !mapping->image->requested)
			unwind->want(mapping->image, mapping, input->pid, unwind->data);
	}
}

/* ---- Deep stacks ---- */

static void take_history(struct unwind_lane *lane, struct unwind_history *history, uint32_t thread,
			 const struct unwind_stack *stack)
{
	size_t i;

	history->places = g_renew(struct place, history->places, stack->n);
	history->thread = thread;
	history->n = stack->n;
	for (i = 0; i < stack->n; i++)
		history->places[i] = (struct place){ stack->ips[i], lane->frames[i].sp };
}

/* Puts the callers of the outermost frame that the thread's last deep stack had behind it. */
static void stitch(struct unwind_lane *lane, const struct unwind_history *history,
		   struct unwind_stack *stack)
{
	const uint64_t ip = stack->ips[stack->n - 1], sp = lane->frames[stack->n - 1].sp;
	size_t i;

	for (i = 0; i < history->n; i++)
		if (history->places[i].sp == sp && history->places[i].ip == ip)
			break;
	if (i == history->n || history->n - i > UNWIND_MAX_WALKED - stack->n)
		return;
	while (++i < history->n) {
		lane->ips[stack->n] = history->places[i].ip;
		lane->frames[stack->n++].sp = history->places[i].sp;
	}
	stack->method = PROF_METHOD_STITCHED;
	stack->stop = PROF_STOP_ROOT;
}

/* The rule at a place; NULL where no table is. */
static const struct cfi_rule *rule_at(struct unwind_lane *lane, uint64_t ip)
{
	struct walk_code code = { .kind = WALK_CODE_NONE };

	resolve(lane, ip & UNWIND_EXACT ? ip & ~UNWIND_EXACT : ip - 1, &code);
	return code.kind == WALK_CODE_TABLE ? table_get(code.table, code.address) : NULL;
}

/* Whether the function there has its caller's registers where its frame pointer says, so that a chain of frame pointers
 * has its return address. */
static bool is_on_chain(struct unwind_lane *lane, uint64_t ip)
{
	const struct cfi_rule *rule = rule_at(lane, ip);

	return rule && rule->cfa == CFI_CFA_FP && rule->fp == CFI_AT_CFA;
}

/* Goes on with the kernel's chain of frame pointers, where that can be trusted. */
static void repair(struct unwind_lane *lane, const uint64_t *chain, size_t n,
		   struct unwind_stack *stack)
{
	const struct cfi_rule *rule;
	size_t i, from = 0;

	/* The kernel's chains are shorter. */
	if (stack->n > UNWIND_MAX_FRAMES)
		return;
	/* Where the chain has the last frame: each function up to there with a frame pointer has one address on it. */
	for (i = 0; i + 1 < stack->n; i++)
		from += is_on_chain(lane, stack->ips[i]);
	if (from + 1 >= n || chain[from] != stack->ips[stack->n - 1] ||
	    !is_on_chain(lane, stack->ips[stack->n - 2]) ||
	    stack->n + (n - from - 1) > UNWIND_MAX_FRAMES)
		return;
	/* Nothing is taken from the frame of the last one. */
	for (i = from; i + 1 < n; i++)
		if (!is_on_chain(lane, chain[i]))
			return;
	for (i = from + 1; i < n; i++)
		lane->ips[stack->n++] = chain[i];
	rule = rule_at(lane, chain[n - 1]);
	stack->method = PROF_METHOD_FP_REPAIRED;
	stack->stop = rule && rule->ra == CFI_UNDEFINED ? PROF_STOP_ROOT : PROF_STOP_UNKNOWN;
}

static void mend_deep(struct unwind_lane *lane, const struct unwind_input *input,
		      struct unwind_stack *stack)
{
	struct unwind_history *history = &lane->unwind->history[input->thread % HISTORY_SLOTS];
	uint64_t depth = lane->frames[stack->n - 1].sp - input->registers.sp;

	if (stack->stop == PROF_STOP_COPY_END && stack->n > 1) {
		if (history->thread == input->thread)
			stitch(lane, history, stack);
		if (stack->stop == PROF_STOP_COPY_END)
			repair(lane, input->chain, input->n_chain, stack);
	}
	/* Whole ones, where the next may be deeper than a copy. */
	if (stack->stop == PROF_STOP_ROOT && stack->method != PROF_METHOD_FP_REPAIRED &&
	    (stack->method == PROF_METHOD_STITCHED || depth > input->wanted_bytes / 2))
		take_history(lane, history, input->thread, stack);
}

/* Of a stack that is too deep the frames next to the leaf and next to the root are kept. */
static void cut(struct unwind_lane *lane, struct unwind_stack *stack)
{
	const size_t n_inner = UNWIND_MAX_FRAMES - N_ROOTS;

	stack->cut_at = stack->n;
	if (stack->n <= UNWIND_MAX_FRAMES)
		return;
	memmove(lane->ips + n_inner, lane->ips + stack->n - N_ROOTS, N_ROOTS * sizeof(*lane->ips));
	stack->cut_at = n_inner;
	stack->n_cut = stack->n - UNWIND_MAX_FRAMES;
	/* The root is there, but the stack is not whole. */
	if (stack->stop == PROF_STOP_ROOT)
		stack->stop = PROF_STOP_DEPTH;
	stack->n = UNWIND_MAX_FRAMES;
}

/* ---- Walking ---- */

static enum prof_user_method method_of(uint32_t flags)
{
	if (flags & WALK_FRAME_JIT)
		return PROF_METHOD_JIT_FP;
	return flags & WALK_FRAME_FP ? PROF_METHOD_FP : PROF_METHOD_CFI;
}

static void prepare(struct unwind *unwind, struct unwind_lane *lane, const struct unwind_job *job,
		    bool last_chance, struct walk_job *ret_walk)
{
	const struct unwind_input *input = &job->input;

	lane->unwind = unwind;
	lane->pid = input->pid;
	lane->maps = job->maps;
	lane->maps_known = job->maps_known;
	lane->last_chance = last_chance;
	lane->pending = false;
	ret_walk->registers = input->registers;
	ret_walk->walk = (struct walk){
		.arch = REGS_NATIVE,
		.stack = input->stack,
		.stack_start = input->registers.sp,
		.stack_size = input->stack_bytes,
		.resolve = resolve,
		.data = lane,
		/* A guess for want of a table must not outlive the want. */
		.cache = last_chance ? NULL : &unwind->cache,
		.generation = (uint32_t)job->maps->version | 1u << 31,
		.frames = lane->frames,
		.n_frames = UNWIND_MAX_WALKED,
	};
}

/* What a walk found becomes a stack, or has to wait. */
static void conclude(struct unwind_lane *lane, const struct walk_result *result,
		     struct unwind_job *job)
{
	static const enum prof_user_stop stops[] = {
		[WALK_ROOT] = PROF_STOP_ROOT,           [WALK_COPY_END] = PROF_STOP_COPY_END,
		[WALK_NO_TABLE] = PROF_STOP_NO_TABLE,   [WALK_NO_RULE] = PROF_STOP_NO_RULE,
		[WALK_BAD_FRAME] = PROF_STOP_BAD_FRAME, [WALK_DEPTH] = PROF_STOP_DEPTH,
	};
	size_t i;

	job->done = !lane->pending || lane->last_chance;
	job->missing = lane->missing;
	if (!job->done)
		return;
	for (i = 0; i < result->n; i++)
		lane->ips[i] = (lane->frames[i].pc & ~UNWIND_EXACT) |
			       (lane->frames[i].flags & WALK_FRAME_EXACT ? UNWIND_EXACT : 0);
	job->stack = (struct unwind_stack){
		.ips = lane->ips,
		.n = result->n,
		.method = method_of(result->flags),
		.stop = lane->pending ? PROF_STOP_NO_TABLE : stops[result->stop],
	};
	/* Within exec the registers are those of the program before, in a process that is the next one already. */
	if (job->input.in_kernel && result->n == 1 && result->stop == WALK_BAD_FRAME)
		job->stack = (struct unwind_stack){ .stop = PROF_STOP_UNKNOWN };
	else
		mend_deep(lane, &job->input, &job->stack);
	cut(lane, &job->stack);
}

void unwind_run_together(struct unwind *unwind, struct unwind_job *jobs, size_t n)
{
	struct walk_job walks[WALK_TOGETHER];
	size_t i;

	for (i = 0; i < n; i++)
		prepare(unwind, &unwind->lanes[i], &jobs[i], false, &walks[i]);
	walk_run_together(walks, n);
	for (i = 0; i < n; i++)
		conclude(&unwind->lanes[i], &walks[i].result, &jobs[i]);
}

bool unwind_run(struct unwind *unwind, const struct unwind_input *input, const struct maps *maps,
		bool maps_known, bool last_chance, struct unwind_stack *ret_stack,
		struct image **ret_missing)
{
	struct unwind_job job = { .input = *input, .maps = maps, .maps_known = maps_known };
	struct walk_job walk;

	prepare(unwind, unwind->lanes, &job, last_chance, &walk);
	walk_run(&walk.walk, &walk.registers, &walk.result);
	conclude(unwind->lanes, &walk.result, &job);
	if (job.done)
		*ret_stack = job.stack;
	else
		*ret_missing = job.missing;
	return job.done;
}

const struct walk_frame *unwind_last_frames(const struct unwind *unwind)
{
	return unwind->lanes->frames;
}
