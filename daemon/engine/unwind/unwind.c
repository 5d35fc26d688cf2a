/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Unwind - finds the callers from the registers and the stack of a sample
 *
 * arch/walk.h walks the frames. This file finds the code at an address of a process, and repairs
 * walks that did not reach the root. A file is requested when a walk first reaches it, and the walk
 * is repeated when its table is ready. A stack that is deeper than its copy is continued with
 * callers that the same thread's frames had before: a frame with the same return address and stack
 * pointer probably has the same caller (method `stitched`). This is done only if each frame up to
 * the root was seen often enough, always with the same caller. Otherwise the kernel's chain of
 * frame pointers may continue from the last frame (`fp-repaired`): if, according to the CFI, every
 * function from that frame to the last but one had set up its frame pointer, the chain skips no
 * function. If only pc and sp are known and a function's CFI needs fp, fp is computed from sp and a
 * distance that the function's prologue contains. A walk with this fp is used only if it reaches
 * the root by CFI (also `fp-repaired`).
 * Invariants: (1) no sample causes a read outside its copy  [fuzz_walk]
 *             (2) a stitched stack never has method `cfi`, nor frames of another thread
 *                 [test-engine-unwind: stitch]
 *             (3) a frame that had two different callers is not stitched
 *                 [test-engine-unwind: stitch]
 *             (4) a walk with last_chance always ends, even without a table
 *                 [test-engine-unwind: waits]
 *             (5) a stack walked from pc and sp alone is never wrong if its method is `cfi`
 *                 [test-engine-unwind: from_sp]
 * Runs on the drain thread only.
 */
#include "daemon/engine/unwind/unwind.h"

#include "arch/base.h"
#include "daemon/engine/unwind/jit-frames.h"
#include "daemon/engine/unwind/unwind-file.h"

#include <string.h>

#define N_ROOTS 128
#define DEEP_THREADS 64
#define LINK_SETS (size_t)8192 /* a power of 2 */
#define LINK_WAYS 8
#define LINK_AGREED 8 /* a caller that was seen this often is assumed to stay the same */
#define LINK_SPLIT UINT32_MAX
#define MAX_SEARCHED_BYTES (size_t)16384
#define FRAME_ALIGN 16 /* alignment of fp: x86_64 psABI, 3.2.2 */
#define MAX_ARGUMENT_BYTES 64
#define TABLES_STRIDE 0x9e3779b1u /* far larger than any version of mappings */

struct place {
	uint64_t ip, sp;
};

/* The caller that a frame had, in a thread with deep stacks. */
struct unwind_link {
	struct place frame, caller; /* caller.ip 0: the frame is the root */
	uint32_t thread;
	uint32_t seen; /* LINK_SPLIT: callers differed; 0: empty slot */
};

struct unwind_links {
	uint32_t deep[DEEP_THREADS];                    /* ids of threads with deep stacks */
	struct unwind_link links[LINK_SETS][LINK_WAYS]; /* the last link of a set is replaced */
};

/* The state of one of the walks that run in parallel. */
struct unwind_lane {
	struct unwind *unwind;
	int32_t pid;
	const struct maps *maps;
	const struct unwind_input *input;
	/* index, in the kernel's chain, of the return address in the frame at chain_fp */
	size_t chain_at;
	uint64_t chain_fp;
	bool maps_known, last_chance;
	bool pending;          /* a table, the size of a frame, or the mappings were missing */
	struct image *missing; /* file whose table or frame size was missing; NULL: mappings */
	struct walk_frame frames[UNWIND_MAX_WALKED];
	uint64_t ips[UNWIND_MAX_WALKED], sps[UNWIND_MAX_WALKED];
};

void unwind_init(struct unwind *unwind, struct unwind_tables *tables)
{
	memset(unwind, 0, sizeof(*unwind));
	unwind->tables = tables;
	unwind->links = g_new0(struct unwind_links, 1);
	unwind->lanes = g_new0(struct unwind_lane, WALK_TOGETHER);
}

void unwind_done(struct unwind *unwind)
{
	g_clear_pointer(&unwind->links, g_free);
	g_clear_pointer(&unwind->lanes, g_free);
}

void unwind_read_registers(const uint64_t *registers, struct unwind_input *input)
{
	const struct regs *regs = regs_get(REGS_NATIVE);
	size_t i;

	for (i = 0; i < regs->n_numbered; i++)
		input->numbered[i] = registers[regs->perf_numbered[i]];
	input->registers = (struct walk_registers){
		.pc = registers[regs->perf_pc],
		.sp = registers[regs->perf_sp],
		.fp = registers[regs->perf_fp],
		.lr = regs->has_lr ? registers[regs->perf_lr] : 0,
	};
}

/* ---- Code at an address ---- */

/* Returns NULL if the file has no table, or none yet. */
static const struct unwind_file *file_of(const struct unwind_lane *lane,
					 const struct mapping *mapping)
{
	return mapping->image->kind == PROF_IMAGE_VDSO ? unwind_tables_vdso(lane->unwind->tables)
						       : mapping->image->unwind;
}

static void resolve_file(struct unwind_lane *lane, const struct mapping *mapping, uint64_t pc,
			 struct walk_code *ret_code)
{
	struct unwind *unwind = lane->unwind;
	struct image *image = mapping->image;
	const struct unwind_file *file;

	if (image->kind != PROF_IMAGE_VDSO && image->unwind_state == IMAGE_UNWIND_UNREQUESTED &&
	    image_may_request(image, lane->pid))
		unwind->request_image(image, mapping, lane->pid, unwind->data);
	file = file_of(lane, mapping);
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
	if (image->kind != PROF_IMAGE_FILE || image_is_given_up(image, lane->pid))
		return;
	lane->pending = true;
	lane->missing = image;
	if (!lane->last_chance)
		ret_code->kind = WALK_CODE_PENDING;
}

static void resolve_generated(struct unwind_lane *lane, uint64_t pc, struct walk_code *ret_code)
{
	const struct maps *maps = lane->maps;
	const struct mapping *dump = NULL; /* the process's dump of generated code */

	for (uint32_t i = 0; !dump && i < maps->n; i++)
		if (maps->mappings[i].image && maps->mappings[i].image->is_jit_dump)
			dump = &maps->mappings[i];
	if (dump && !dump->image->jit) {
		resolve_file(lane, dump, pc, ret_code);
	} else if (dump) {
		ret_code->table = jit_frames_find(dump->image->jit, pc, &ret_code->address);
		if (!ret_code->table)
			unwind_tables_request_more(lane->unwind->tables, dump->image);
	}
	if (ret_code->kind != WALK_CODE_PENDING)
		ret_code->kind = ret_code->table ? WALK_CODE_TABLE : WALK_CODE_JIT;
}

static void resolve(void *data, uint64_t pc, struct walk_code *ret_code)
{
	struct unwind_lane *lane = data;
	const struct mapping *mapping = maps_find(lane->maps, pc);

	if (mapping && mapping->image) {
		resolve_file(lane, mapping, pc, ret_code);
	} else if (mapping) {
		resolve_generated(lane, pc, ret_code);
	} else if (!lane->maps_known) {
		lane->pending = true;
		lane->missing = NULL;
		ret_code->kind = lane->last_chance ? WALK_CODE_FP : WALK_CODE_PENDING;
	}
}

/* Finds the return address that a return probe has replaced on the stack: the kernel's chain has
 * the original addresses (since Linux 6.11). Follows the chain along the copy, to find which of its
 * addresses was in the slot. Slots ascend, so each walk follows the chain only once. */
static bool find_replaced(void *data, uint64_t slot, uint64_t *ret_pc)
{
	struct unwind_lane *lane = data;
	const struct unwind_input *input = lane->input;
	const uint64_t sp = input->registers.sp;
	uint64_t fp = lane->chain_fp, next;

	while (lane->chain_at < input->n_chain && fp >= sp && fp - sp < input->stack_bytes &&
	       input->stack_bytes - (fp - sp) >= 16 && fp + 8 < slot) {
		memcpy(&next, input->stack + (fp - sp), sizeof(next));
		lane->chain_at = next > fp ? lane->chain_at + 1 : input->n_chain;
		lane->chain_fp = fp = next;
	}
	if (lane->chain_at >= input->n_chain || fp + 8 != slot)
		return false;
	*ret_pc = input->chain[lane->chain_at];
	return true;
}

static const struct cfi_rule *find_base(void *data, uint64_t pc)
{
	struct unwind_lane *lane = data;
	const struct mapping *mapping = maps_find(lane->maps, pc);
	const struct unwind_file *file = mapping && mapping->image ? file_of(lane, mapping) : NULL;
	uint64_t address;

	return file && file->base_bytes &&
			       unwind_file_address(file, pc - mapping->start + mapping->file_offset,
						   &address)
		       ? table_get(&file->base_table, address)
		       : NULL;
}

void unwind_request_all(struct unwind *unwind, const struct unwind_input *input,
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
		    mapping->image->unwind_state == IMAGE_UNWIND_UNREQUESTED &&
		    image_may_request(mapping->image, input->pid))
			unwind->request_image(mapping->image, mapping, input->pid, unwind->data);
	}
}

/* ---- Deep stacks ---- */

/* Returns the set of a frame. Frames that are close on the stack have sets that are close. */
static struct unwind_link *link_set(struct unwind_links *links, uint32_t thread, uint64_t sp)
{
	return links->links[(sp / 16 + sp / (16 * LINK_SETS) + thread * UINT64_C(2654435761)) %
			    LINK_SETS];
}

/* Returns the index of a frame's link in its set; LINK_WAYS if the set has no such link. */
static size_t find_link(const struct unwind_link *set, uint32_t thread, const struct place *frame)
{
	size_t i = 0;

	while (i < LINK_WAYS && (set[i].frame.ip != frame->ip || set[i].frame.sp != frame->sp ||
				 set[i].thread != thread || set[i].seen == 0))
		i++;
	return i;
}

static void learn(struct unwind_links *links, uint32_t thread, const struct place *frame,
		  const struct place *caller)
{
	struct unwind_link *set = link_set(links, thread, frame->sp), link;
	size_t i = find_link(set, thread, frame);

	if (i == LINK_WAYS) {
		set[--i] = (struct unwind_link){
			.frame = *frame, .caller = *caller, .thread = thread, .seen = 1
		};
	} else if (set[i].caller.ip != caller->ip || set[i].caller.sp != caller->sp) {
		set[i].seen = LINK_SPLIT;
	} else if (set[i].seen < LINK_AGREED) {
		set[i].seen++;
	}
	/* Move a used link away from the end of its set, where links are replaced. */
	if (i > 0) {
		link = set[i];
		set[i] = set[i - 1];
		set[i - 1] = link;
	}
}

static struct place place_of(const struct unwind_lane *lane, size_t i)
{
	return (struct place){ lane->ips[i], lane->frames[i].sp };
}

/* Stores each frame's caller, but not the leaf's: the leaf is rarely at the same address twice. */
static void learn_stack(struct unwind_lane *lane, uint32_t thread, const struct unwind_stack *stack)
{
	static const struct place none;
	struct unwind_links *links = lane->unwind->links;
	struct place frame, caller;
	size_t i;

	if (stack->n < 2)
		return;
	for (i = 1, frame = place_of(lane, 1); i + 1 < stack->n; i++, frame = caller) {
		caller = place_of(lane, i + 1);
		learn(links, thread, &frame, &caller);
	}
	if (stack->stop == PROF_STOP_ROOT)
		learn(links, thread, &frame, &none);
}

/* Appends the callers of the outermost frame, if each frame up to the root always had the same
 * caller. */
static void stitch(struct unwind_lane *lane, uint32_t thread, struct unwind_stack *stack)
{
	struct unwind_links *links = lane->unwind->links;
	struct place frame = place_of(lane, stack->n - 1);
	const struct unwind_link *set;
	size_t n = stack->n, i;

	for (;;) {
		set = link_set(links, thread, frame.sp);
		i = find_link(set, thread, &frame);
		if (i == LINK_WAYS || set[i].seen != LINK_AGREED)
			return;
		frame = set[i].caller;
		if (frame.ip == 0)
			break;
		if (n == UNWIND_MAX_WALKED)
			return;
		lane->ips[n] = frame.ip;
		lane->sps[n] = frame.sp;
		lane->frames[n++].sp = frame.sp;
	}
	stack->n = stack->n_sps = n;
	stack->method = PROF_METHOD_STITCHED;
	stack->stop = PROF_STOP_ROOT;
}

/* Returns the rule at an address; NULL if there is no table. */
static const struct cfi_rule *rule_at(struct unwind_lane *lane, uint64_t ip)
{
	struct walk_code code = { .kind = WALK_CODE_NONE };

	resolve(lane, ip & UNWIND_EXACT ? ip & ~UNWIND_EXACT : ip - 1, &code);
	return code.kind == WALK_CODE_TABLE ? table_get(code.table, code.address) : NULL;
}

/* Returns whether the code at this address has no table, so that frame pointers are followed. */
static bool has_no_table(struct unwind_lane *lane, uint64_t pc)
{
	struct walk_code code = { .kind = WALK_CODE_NONE };

	resolve(lane, pc, &code);
	return code.kind == WALK_CODE_FP;
}

/* Returns whether the function at `ip` stores its caller's registers at its frame pointer, so that
 * its return address is on a chain of frame pointers. */
static bool is_on_chain(struct unwind_lane *lane, uint64_t ip)
{
	const struct cfi_rule *rule = rule_at(lane, ip);

	return rule && rule->cfa == CFI_CFA_FP && rule->fp == CFI_AT_CFA;
}

/* Appends the rest of the kernel's chain of frame pointers, if it can be trusted. */
static void repair(struct unwind_lane *lane, const struct unwind_input *input,
		   struct unwind_stack *stack)
{
	const uint64_t *chain = input->chain;
	const struct cfi_rule *rule;
	size_t i, n = input->n_chain, from = 0;

	/* The kernel's chains are never this deep. */
	if (stack->n > UNWIND_MAX_FRAMES)
		return;
	/* Find the stack's last frame on the chain, where each earlier function with a frame
	 * pointer has one address. */
	for (i = 0; i + 1 < stack->n; i++)
		from += is_on_chain(lane, stack->ips[i]);
	if (from + 1 >= n || chain[from] != stack->ips[stack->n - 1] ||
	    !is_on_chain(lane, stack->ips[stack->n - 2]) ||
	    stack->n + (n - from - 1) > UNWIND_MAX_FRAMES)
		return;
	/* The last address need not be checked, because the chain is not followed beyond it. */
	for (i = from; i + 1 < n; i++)
		if (!is_on_chain(lane, chain[i]))
			return;
	for (i = from + 1; i < n; i++)
		lane->ips[stack->n++] = chain[i];
	rule = rule_at(lane, chain[n - 1]);
	stack->method = PROF_METHOD_FP_REPAIRED;
	stack->stop = rule && rule->ra == CFI_UNDEFINED ? PROF_STOP_ROOT
		      : input->chain_is_cut             ? PROF_STOP_DEPTH
							: PROF_STOP_UNKNOWN;
}

static void mend_deep(struct unwind_lane *lane, const struct unwind_input *input,
		      struct unwind_stack *stack)
{
	uint64_t depth = lane->frames[stack->n - 1].sp - input->registers.sp;
	uint32_t *deep = &lane->unwind->links->deep[input->thread % DEEP_THREADS];
	bool is_cut = stack->stop == PROF_STOP_COPY_END;

	/* If this stack is half as deep as a copy, the next one may be deeper than a copy. */
	if (is_cut || depth > input->full_bytes / 2)
		*deep = input->thread;
	if (*deep == input->thread && (is_cut || stack->stop == PROF_STOP_ROOT))
		learn_stack(lane, input->thread, stack);
	if (!is_cut || stack->n < 2)
		return;
	stitch(lane, input->thread, stack);
	if (stack->stop == PROF_STOP_COPY_END)
		repair(lane, input, stack);
}

/* Keeps the innermost and the outermost frames of a stack that is too deep. */
static void cut(struct unwind_lane *lane, struct unwind_stack *stack)
{
	const size_t n_inner = UNWIND_MAX_FRAMES - N_ROOTS;

	stack->cut_at = stack->n;
	stack->deeper = stack->stop == PROF_STOP_COPY_END || stack->stop == PROF_STOP_DEPTH;
	if (stack->n <= UNWIND_MAX_FRAMES)
		return;
	memmove(lane->ips + n_inner, lane->ips + stack->n - N_ROOTS, N_ROOTS * sizeof(*lane->ips));
	memmove(lane->sps + n_inner, lane->sps + stack->n - N_ROOTS, N_ROOTS * sizeof(*lane->sps));
	stack->cut_at = n_inner;
	stack->n_cut = stack->n - UNWIND_MAX_FRAMES;
	/* The walk reached the root, but the stack is incomplete. */
	if (stack->stop == PROF_STOP_ROOT)
		stack->stop = PROF_STOP_DEPTH;
	stack->n = stack->n_sps = UNWIND_MAX_FRAMES;
}

/* ---- Walking ---- */

static void prepare(struct unwind *unwind, struct unwind_lane *lane, const struct unwind_job *job,
		    bool last_chance, struct walk_job *ret_walk)
{
	const struct unwind_input *input = &job->input;

	lane->unwind = unwind;
	lane->pid = input->pid;
	lane->maps = job->maps;
	lane->input = input;
	lane->chain_at = 1;
	lane->chain_fp = input->registers.fp;
	lane->maps_known = job->maps_known;
	lane->last_chance = last_chance;
	lane->pending = false;
	ret_walk->registers = input->registers;
	ret_walk->walk = (struct walk){
		.arch = REGS_NATIVE,
		.numbered = input->numbered,
		.stack = input->stack,
		.stack_start = input->registers.sp,
		.stack_size = input->stack_bytes,
		.fp_unknown = input->only_pc_sp,
		.finds_contexts = true,
		.resolve = resolve,
		.find_replaced = find_replaced,
		.find_base = find_base,
		.data = lane,
		/* With last_chance, fallbacks replace missing tables, and must not be cached. */
		.cache = last_chance ? NULL : &unwind->cache,
		.generation = ((uint32_t)job->maps->version +
			       unwind_tables_version(unwind->tables) * TABLES_STRIDE) |
			      1u << 31,
		.frames = lane->frames,
		.n_frames = UNWIND_MAX_WALKED,
	};
}

/* Computes the fp of a frame whose rule needs it, from the sp in that frame. Returns false if that
 * is not possible; the lane is then pending if it may be possible later. */
static bool compute_fp(struct unwind_lane *lane, const struct walk_frame *frame, uint64_t *ret_fp)
{
	const uint64_t pc = frame->flags & WALK_FRAME_EXACT ? frame->pc : frame->pc - 1;
	const struct mapping *mapping = maps_find(lane->maps, pc);
	const struct unwind_file *file = mapping && mapping->image ? mapping->image->unwind : NULL;
	enum unwind_frame_state state;
	uint64_t address;
	uint32_t bytes;

	if (!file ||
	    !unwind_file_address(file, pc - mapping->start + mapping->file_offset, &address) ||
	    table_get(&file->table, address)->cfa != CFI_CFA_FP)
		return false;
	state = unwind_tables_frame_bytes(lane->unwind->tables, mapping->image, address, &bytes);
	lane->pending = state == UNWIND_FRAME_PENDING;
	lane->missing = mapping->image;
	return state == UNWIND_FRAME_KNOWN && add_u64(frame->sp, bytes, ret_fp);
}

/*
 * Repeats a walk that ended because fp was unknown, with an fp that is computed from sp. fp is
 * aligned, and higher if the call has arguments on the stack. An address below the right fp is that
 * of an argument or a saved register, not of a frame; an address above the right fp may be that of
 * an outer function's frame. So the right fp is the lowest one from which the walk reaches the root
 * by CFI alone.
 * Returns whether there is such an fp; if not, the frames are the same as before.
 */
static bool walk_from_sp(struct unwind_lane *lane, struct walk_job *job)
{
	struct walk_job repeated = *job;
	uint64_t least, fp;

	if (job->result.stop != WALK_NO_RULE ||
	    !compute_fp(lane, &lane->frames[job->result.n - 1], &least))
		return false;
	least = (least + FRAME_ALIGN - 1) & ~(uint64_t)(FRAME_ALIGN - 1);
	repeated.walk.fp_unknown = false;
	/* If finds_contexts were set, the walk would end at the address of any function, as if that
	 * were the root. */
	repeated.walk.finds_contexts = false;
	for (fp = least; fp - least <= MAX_ARGUMENT_BYTES; fp += FRAME_ALIGN) {
		repeated.registers.fp = fp;
		walk_run(&repeated.walk, &repeated.registers, &repeated.result);
		if (repeated.result.stop != WALK_ROOT || repeated.result.n <= job->result.n ||
		    repeated.result.flags & (WALK_FRAME_FP | WALK_FRAME_JIT))
			continue;
		*job = repeated;
		return true;
	}
	walk_run(&job->walk, &job->registers, &job->result);
	return false;
}

/* Turns the result into a stack, unless the walk must wait. */
static void conclude(struct unwind_lane *lane, struct walk_job *walk, struct unwind_job *job)
{
	const struct walk_result *result = &walk->result;
	static const enum prof_user_stop stops[] = {
		[WALK_ROOT] = PROF_STOP_ROOT,           [WALK_COPY_END] = PROF_STOP_COPY_END,
		[WALK_NO_TABLE] = PROF_STOP_NO_TABLE,   [WALK_NO_RULE] = PROF_STOP_NO_RULE,
		[WALK_BAD_FRAME] = PROF_STOP_BAD_FRAME, [WALK_DEPTH] = PROF_STOP_DEPTH,
	};
	bool is_repaired;
	size_t i;

	is_repaired = job->input.only_pc_sp && !lane->pending && walk_from_sp(lane, walk);
	job->done = !lane->pending || lane->last_chance;
	job->missing = lane->missing;
	if (!job->done)
		return;
	for (i = 0; i < result->n; i++) {
		lane->ips[i] = (lane->frames[i].pc & ~UNWIND_EXACT) |
			       (lane->frames[i].flags & WALK_FRAME_EXACT ? UNWIND_EXACT : 0);
		lane->sps[i] = lane->frames[i].sp;
	}
	job->stack = (struct unwind_stack){
		.ips = lane->ips,
		.n = result->n,
		.sps = lane->sps,
		.n_sps = result->n,
		.method = result->flags & WALK_FRAME_JIT  ? PROF_METHOD_JIT_FP
			  : result->flags & WALK_FRAME_FP ? PROF_METHOD_FP
			  : is_repaired                   ? PROF_METHOD_FP_REPAIRED
							  : PROF_METHOD_CFI,
		.stop = lane->pending ? PROF_STOP_NO_TABLE : stops[result->stop],
	};
	/* During exec the registers are those of the old program, but the memory is that of the new
	 * one. If the frame pointer was followed, a bad frame is not evidence of this. */
	if (job->input.in_kernel && !lane->pending && result->n == 1 &&
	    result->stop == WALK_BAD_FRAME && !has_no_table(lane, job->input.registers.pc))
		job->stack = (struct unwind_stack){ .stop = PROF_STOP_NO_MEMORY };
	else if (!is_repaired)
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
		conclude(&unwind->lanes[i], &walks[i], &jobs[i]);
}

bool unwind_run(struct unwind *unwind, const struct unwind_input *input, const struct maps *maps,
		bool maps_known, bool last_chance, struct unwind_stack *ret_stack,
		struct image **ret_missing)
{
	struct unwind_job job = { .input = *input, .maps = maps, .maps_known = maps_known };
	struct walk_job walk;

	prepare(unwind, unwind->lanes, &job, last_chance, &walk);
	walk_run(&walk.walk, &walk.registers, &walk.result);
	conclude(unwind->lanes, &walk, &job);
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
