/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Perl.bpf - reads the frames of a Perl program at the moment of a sample, or before a sleep
 *
 * An interpreter belongs to one thread, and has a list of stacks: one for the program, and one for
 * each sort, tied variable, destructor, overloaded operator or handler that it executes. Each stack
 * has an array of contexts, in which those of subs, evals and formats are linked by their indexes,
 * innermost first. A context has the statement at which it was entered, so the statement of a frame
 * is in the next inner context. A sub or eval without an operation to return to was called from C,
 * by a new activation of Perl_runops_standard().
 *
 * The innermost context may be incomplete: the depth of a sub is increased after its context is
 * linked, and decreased before it is unlinked. So if the innermost context contradicts the depth,
 * it is not shown; if another context does, the list is torn. Reads are bounded, and a process can
 * harm only its own samples.
 */
#include "daemon/broker/bpf/interp.bpf.h"

/* intrpvar.h: offsets that all versions have in common */
#define STATE_BYTES 232
#define STATE_COP 208
#define STATE_STACK 224
#define PHASE_RUN 4

/* cop.h: PERL_SI, as words; the halves of the last two are {index, maximum} of the contexts, and
 * {index of the innermost sub, kind} */
#define STACK_WORDS 6
#define STACK_CONTEXTS 1
#define STACK_PREVIOUS 2
#define STACK_TOP 4
#define STACK_SUB 5
#define KIND_SORT 3

/* cop.h: PERL_CONTEXT. In blk_u16 of an eval, the bits from EVAL_OPERATION_SHIFT on are the type of
 * its operation. */
#define CONTEXT_BYTES 104
#define CONTEXT_U16 2
#define EVAL_OPERATION_SHIFT 7
#define EVAL_AFTER_REQUIRE 3
#define CONTEXT_COP 16
#define CONTEXT_RETURN 48
#define CONTEXT_OUTER 56
#define EVAL_NAME 64
#define SUB_CV 72
#define SUB_DEPTH 80
#define TYPE_MASK 0xf
#define TYPE_NULL 0
#define TYPE_SUB 9
#define TYPE_FORMAT 10
#define TYPE_EVAL 11
#define SUB_MULTICALL 0x10
#define SUB_REGEX 0xc0
#define EVAL_BLOCK 0x40

/* sv.h, cv.h, gv.h, hv.h: values as words {body, count | flags, text}, and offsets in their
 * bodies */
#define VALUE_TYPE(flags) ((flags) >> 32 & 0xff)
#define VALUE_GLOB 9
#define VALUE_CODE 13
#define VALUE_FORMAT 14
#define TEXT_BYTES 16
#define CV_BYTES 104
#define CV_STASH 32
#define CV_START 40
#define CV_ROOT 48
#define CV_GLOB 56
#define CV_FILE 64
#define CV_FLAGS 92
#define CV_DEPTH 96
#define CV_IS_XSUB 0x8
#define CV_IS_NAMED 0x8000
#define CV_IS_LEXICAL 0x10000
#define GLOB_NAME 32
#define GLOB_STASH 40
#define STASH_NAME 32
#define STASH_NAMES 60
#define KEY_TEXT 8
#define KEY_IS_UTF_8 1

/* op.h, cop.h: statements, as words from this offset on: {type, line}, package, file */
#define COP_START 32
#define COP_WORDS 3
#define OPERATION_TYPE 0x1ff

#define MAX_CONTEXTS 1024
#define NAME_TAIL 64

/* The layouts by minor version. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct interp_perl);
} perl_layouts SEC(".maps");

/* Whether the last frame of the current stack ended a run: no; yes; yes, but there was no room for
 * the frame. */
enum ended { ENDED_NOWHERE, ENDED_IN_FRAMES, ENDED_BEYOND };

struct perl_walk {
	struct walk common;
	const struct interp_perl *layout;
};

/* The values that the steps of a walk change. They are in scratch->staged, because the verifier
 * would follow them if they were on the stack. */
struct perl_list {
	/* states of the current thread's interpreter and of the process's first interpreter */
	__u64 interpreter, first_interpreter;
	__u64 contexts, previous; /* contexts of the current stack; the next outer stack, 0: none */
	__u64 cop;                /* the statement at which the next frame is; 0: unknown */
	__s32 context, top;       /* index of the next sub's context; of the innermost context */
	__u32 kind, ended;
	__u32 leaf_line; /* first line of the innermost function, if it has executed no statement */
	bool is_innermost, is_open, has_begun, has_compiling, has_main, has_ended;
	/* The frame that the current step adds; whether it ends a run; whether that run repeats. */
	__u32 frame_kind, line, first_line; /* frame_kind: enum interp_perl_kind; 0: no frame */
	bool ends, repeats;
	__u64 code, hash;
	__u64 file; /* file of the function; 0: unknown */
	__u64 name; /* address of the name of a required file */
};

static __always_inline struct perl_list *list_of(const struct perl_walk *walk)
{
	return (struct perl_list *)walk->common.scratch->staged;
}

static __always_inline __u64 mixed(__u64 hash, __u64 word)
{
	return (hash ^ word >> 3) * 0x9e3779b97f4a7c15ull;
}

/* Reads a name of the symbol table, which is UTF-8 or Latin-1. Returns the number of bytes. */
static __always_inline __u32 read_key(__u64 key, __u8 *to, bool *ret_latin_1, bool *ret_cut)
{
	__u32 head[2] = {}, bytes;
	__u8 flags = 0;

	if (!key || read_user(head, sizeof(head), key) || (__s32)head[1] < 0)
		return 0;
	*ret_latin_1 = !read_user(&flags, 1, key + KEY_TEXT + head[1] + 1) &&
		       !(flags & KEY_IS_UTF_8);
	bytes = head[1];
	*ret_cut |= bytes > INTERP_MAX_OWNER - 1;
	if (bytes > INTERP_MAX_OWNER - 1)
		bytes = INTERP_MAX_OWNER - 1;
	bytes = masked(bytes, INTERP_MAX_OWNER - 1);
	return read_user(to, bytes, key + KEY_TEXT) ? 0 : bytes;
}

/* Returns the name of a package; 0: it has none. */
static __always_inline __u64 find_package(__u64 stash)
{
	__u64 body = 0, name = 0;
	__s32 names = 0;

	if (!stash || read_user(&body, 8, stash) || read_user(&name, 8, body + STASH_NAME) ||
	    read_user(&names, sizeof(names), body + STASH_NAMES) ||
	    (names != 0 && read_user(&name, 8, name)))
		return 0;
	return name;
}

/* Stores the names of the sub whose body is in scratch->object. */
static __always_inline void read_names(struct scratch *scratch, struct interp_code *code)
{
	const __u32 flags = *(const __u32 *)(scratch->object + CV_FLAGS);
	__u64 key = word_at(scratch->object, CV_GLOB, 0xf8), head[2] = {};
	__u64 stash = word_at(scratch->object, CV_STASH, 0xf8);
	bool latin_1 = false, owner_latin_1 = false, cut = false;

	if (!(flags & CV_IS_NAMED)) {
		if (!key || read_user(head, sizeof(head), key) ||
		    VALUE_TYPE(head[1]) != VALUE_GLOB || read_user(&key, 8, head[0] + GLOB_NAME) ||
		    read_user(&stash, 8, head[0] + GLOB_STASH))
			return;
	} else if (flags & CV_IS_LEXICAL) {
		stash = 0;
	}
	code->name_bytes = read_key(key, code->name, &latin_1, &cut);
	code->owner_bytes =
		read_key(find_package(stash), code->name + INTERP_MAX_OWNER, &owner_latin_1, &cut);
	if (latin_1)
		code->name_width = 1;
	code->flags |= (owner_latin_1 ? INTERP_CODE_OWNER_LATIN_1 : 0) |
		       (cut ? INTERP_CODE_NAME_CUT : 0);
}

/* Writes a description of a function. */
static __noinline int describe(struct perl_walk *walk, __u64 code_at, __u32 id, __u32 first_line,
			       __u32 kind)
{
	struct interp_code *code;
	struct scratch *scratch;
	struct perl_list *list;
	long bytes;

	if (!walk)
		return -1;
	scratch = walk->common.scratch;
	list = list_of(walk);
	code = begin_code(scratch, code_at, id, first_line, INTERP_PERL, walk->layout->minor);
	code->kind = kind;
	if (kind == INTERP_PERL_SUB || kind == INTERP_PERL_FORMAT)
		read_names(scratch, code);
	if (kind == INTERP_PERL_REQUIRE) {
		bytes = bpf_probe_read_user_str(code->name, INTERP_MAX_NAME + 1,
						(const void *)list->name);
		code->name_bytes = bytes > 0 ? masked(bytes - 1, INTERP_MAX_NAME) : 0;
		code->flags |= code->name_bytes == INTERP_MAX_NAME ? INTERP_CODE_NAME_CUT : 0;
	}
	if (list->file) {
		bytes = bpf_probe_read_user_str(code->file, INTERP_MAX_FILE + 1,
						(const void *)list->file);
		code->file_bytes = bytes > 0 ? masked(bytes - 1, INTERP_MAX_FILE) : 0;
		code->flags |= code->file_bytes == INTERP_MAX_FILE ? INTERP_CODE_FILE_CUT : 0;
	}
	return bpf_perf_event_output(walk->common.ctx, &code_outputs, BPF_F_CURRENT_CPU, code,
				     __builtin_offsetof(struct interp_code, lines));
}

/* Reads the line and the file of a statement. Returns the type of the operation; 0 on failure. */
static __always_inline __u32 read_cop(__u64 cop, __u32 *ret_line, __u64 *ret_file)
{
	__u64 words[COP_WORDS] = {};

	if (!cop || read_user(words, sizeof(words), cop + COP_START))
		return 0;
	*ret_line = words[0] >> 32;
	*ret_file = words[2];
	return words[0] & OPERATION_TYPE;
}

/* Reads the line and the file of the next frame; changes neither if they are unknown. Perl has one
 * statement for all files that are being compiled, so only the place in the innermost of these
 * files is known. */
static __always_inline void read_place(struct perl_walk *walk, __u32 *ret_line, __u64 *ret_file)
{
	struct perl_list *list = list_of(walk);

	if (list->cop == list->interpreter + walk->layout->state_compiling) {
		if (list->has_compiling)
			return;
		list->has_compiling = true;
	}
	read_cop(list->cop, ret_line, ret_file);
}

/* Adds the current step's frame, and describes its function if that is new. */
static __always_inline void add(struct perl_walk *walk)
{
	struct perl_list *list = list_of(walk);
	struct walk *common = &walk->common;
	struct interp_frame *frame = add_frame(common);
	const __u32 kind = list->frame_kind, first_line = list->first_line;
	__u64 hash;

	if (!frame)
		return;
	hash = mixed(list->hash, (__u64)first_line << 8 | kind << 3);
	*frame = (struct interp_frame){ .code = list->code, .position = list->line };
	frame->id = (__u32)(hash >> 32) ^ (__u32)hash;
	/* The path of a required file may become known later. Until then, use another id, so that
	 * the file is described again. */
	if (kind == INTERP_PERL_REQUIRE && !list->file &&
	    !is_described(frame->code, common->memory, frame->id))
		frame->id ^= 1;
	common->n++;
	if (is_new_code(common, frame))
		count_code(common, frame, describe(walk, frame->code, frame->id, first_line, kind));
}

/* Ends a run: the last frames belong to one activation. */
static __always_inline void end_activation(struct perl_walk *walk)
{
	struct perl_list *list = list_of(walk);
	struct walk *common = &walk->common;

	list->is_open = false;
	list->ended = ENDED_IN_FRAMES;
	if (common->flags & INTERP_DEEPER) {
		list->ended = ENDED_BEYOND;
		common->scratch->runs++;
		return;
	}
	end_run(common, 0);
	if (list->repeats && common->n > 0)
		common->scratch->sample.frames[masked(common->n - 1, INTERP_MAX_FRAMES - 1)]
			.flags |= INTERP_FRAME_REPEATS;
}

/* Prepares the frame of a block that has no sub. The sub that the block called last has no
 * operation to return to, so it was recorded as the end of a run. But one activation executes the
 * block and that sub, so this end is undone. */
static __always_inline void take_block(struct perl_walk *walk, __u32 kind, __u64 cop)
{
	struct perl_list *list = list_of(walk);
	struct walk *common = &walk->common;
	__u64 file = 0;

	if (list->ended == ENDED_BEYOND)
		common->scratch->runs--;
	else if (list->ended == ENDED_IN_FRAMES && common->n > 0)
		common->scratch->sample.frames[masked(common->n - 1, INTERP_MAX_FRAMES - 1)]
			.flags &= ~(INTERP_FRAME_ENDS_RUN | INTERP_FRAME_REPEATS);
	read_place(walk, &list->line, &file);
	read_cop(cop, &list->first_line, &list->file);
	list->frame_kind = kind;
	list->code = cop;
	list->hash = list->file;
	list->cop = cop;
	list->ends = list->repeats = true;
}

static __always_inline void begin_stack(struct perl_walk *walk, __u64 stack)
{
	struct perl_list *list = list_of(walk);
	__u64 words[STACK_WORDS] = {};

	if (read_user(words, sizeof(words), stack)) {
		walk->common.flags |= INTERP_FAULT;
		return;
	}
	list->contexts = words[STACK_CONTEXTS];
	list->previous = words[STACK_PREVIOUS];
	list->top = (__s32)words[STACK_TOP];
	list->context = (__s32)words[STACK_SUB];
	list->kind = words[STACK_SUB] >> 32;
	list->ended = ENDED_NOWHERE;
	if (list->context > list->top || list->context < -1)
		walk->common.flags |= INTERP_TORN;
}

/* Prepares the frame of the main program. */
static __always_inline void take_main(struct perl_walk *walk)
{
	struct perl_list *list = list_of(walk);
	__u32 phase = 0;
	__u64 file = 0;

	list->has_main = true;
	if (read_user(&phase, sizeof(phase), list->interpreter + walk->layout->state_phase) ||
	    read_user(&list->file, 8, list->interpreter + walk->layout->state_script)) {
		walk->common.flags |= INTERP_FAULT;
		return;
	}
	/* Perl has not opened the script yet, or has freed its name. */
	if (!list->file) {
		walk->common.flags |= walk->common.n == 0 ? INTERP_NO_THREAD : 0;
		return;
	}
	/* After the run phase, the statement is the last one that was compiled. */
	if (phase <= PHASE_RUN)
		read_place(walk, &list->line, &file);
	list->frame_kind = INTERP_PERL_MAIN;
	list->code = list->file;
	list->hash = 0;
	list->first_line = 1;
	list->ends = phase == PHASE_RUN;
}

/* Ends the current stack, and begins the next one. If there is a frame without a context, prepares
 * that frame first, in a separate step. Returns 1 after the last stack. */
static __always_inline long end_stack(struct perl_walk *walk)
{
	struct perl_list *list = list_of(walk);
	__u64 words[CONTEXT_COP / 8 + 1] = {};
	const __u32 kind = list->kind;

	list->is_innermost = false;
	list->kind = 0;
	if (kind == KIND_SORT && list->top >= 0 &&
	    !read_user(words, sizeof(words), list->contexts) &&
	    (words[0] & TYPE_MASK) == TYPE_NULL) {
		take_block(walk, INTERP_PERL_SORT, words[CONTEXT_COP / 8]);
	} else if (list->previous) {
		if (list->is_open)
			end_activation(walk);
		begin_stack(walk, list->previous);
	} else if (list->interpreter == list->first_interpreter && !list->has_main) {
		take_main(walk);
	} else {
		list->has_ended = true;
		return 1;
	}
	return 0;
}

/* Prepares the frame of a required file. */
static __always_inline void take_require(struct perl_walk *walk, __u64 value)
{
	struct perl_list *list = list_of(walk);
	__u64 head[3] = {}, bytes = 0, tail[NAME_TAIL / 8] = {}, hash = 0;

	read_place(walk, &list->line, &list->file);
	if (read_user(head, sizeof(head), value) || read_user(&bytes, 8, head[0] + TEXT_BYTES)) {
		walk->common.flags |= INTERP_FAULT;
		return;
	}
	list->name = head[2];
	if (bytes < NAME_TAIL ? read_user(tail, masked(bytes, NAME_TAIL - 1), list->name)
			      : read_user(tail, NAME_TAIL, list->name + bytes - NAME_TAIL)) {
		walk->common.flags |= INTERP_FAULT;
		return;
	}
	for (int i = 0; i < NAME_TAIL / 8; i++)
		hash = (hash ^ tail[i]) * 0xff51afd7ed558ccdull ^ hash >> 29;
	list->frame_kind = INTERP_PERL_REQUIRE;
	list->code = hash;
	list->hash = bytes << 3;
	list->first_line = 1;
}

/* Prepares the frame of the sub or format whose body is in scratch->object. */
static __always_inline void take_sub(struct perl_walk *walk, __u32 kind, __u64 cop)
{
	struct perl_list *list = list_of(walk);
	const __u8 *object = walk->common.scratch->object;
	const __u64 start = word_at(object, CV_START, 0xf8);
	__u64 file = 0, hash;
	__u32 type;

	read_place(walk, &list->line, &file);
	type = read_cop(start, &list->first_line, &list->file);
	/* `start` is neither a statement nor a debugger's statement. */
	if (type - walk->layout->op_nextstate > 1) {
		list->first_line = 0;
		list->file = word_at(object, CV_FILE, 0xf8);
	}
	if (list->is_innermost && list->cop == cop) {
		list->has_begun = false;
		list->leaf_line = list->first_line;
	}
	hash = mixed(start, word_at(object, CV_GLOB, 0xf8));
	hash = mixed(hash, word_at(object, CV_STASH, 0xf8));
	/* Without a statement, list->file is the address of the sub's own copy of the file's name.
	 * Each closure has another copy, so the hash leaves that address out. */
	list->hash = list->first_line ? mixed(hash, list->file) : hash;
	list->frame_kind = kind;
	list->code = word_at(object, CV_ROOT, 0xf8);
}

/* Reads the sub of a context in scratch->frame. Returns 1 if the sub is to be shown; 0 if it is
 * not; -1 if the list is wrong. */
static __always_inline int read_sub(struct perl_walk *walk, __u32 type)
{
	struct perl_list *list = list_of(walk);
	struct scratch *scratch = walk->common.scratch;
	const __u64 cv = word_at(scratch->frame, SUB_CV, 0x78);
	const __s32 outer_depth = *(const __s32 *)(scratch->frame + SUB_DEPTH);
	__u64 head[2] = {};
	__s32 depth;

	/* If the context has no sub, its sub has returned and is being freed, and freeing the sub
	 * calls destructors. */
	if (!cv)
		return word_at(scratch->frame, CONTEXT_RETURN, 0x78) ? 0 : -1;
	if (read_user(head, sizeof(head), cv) || read_user(scratch->object, CV_BYTES, head[0]))
		return -1;
	if (type == TYPE_FORMAT)
		return VALUE_TYPE(head[1]) == VALUE_FORMAT ? 1 : -1;
	if (VALUE_TYPE(head[1]) != VALUE_CODE)
		return -1;
	/* A function in C that sort() calls has no depth. */
	if (*(const __u32 *)(scratch->object + CV_FLAGS) & CV_IS_XSUB)
		return 0;
	depth = *(const __s32 *)(scratch->object + CV_DEPTH);
	if (list->is_innermost ? depth != outer_depth + 1 : depth <= outer_depth)
		return -1;
	return 1;
}

/* Omits an incomplete context, which must be the innermost one. If the current statement is not yet
 * the caller's, it belongs to the omitted function, and the caller's is unknown. */
static __always_inline void skip_innermost(struct perl_walk *walk, __u64 cop)
{
	struct perl_list *list = list_of(walk);

	if (!list->is_innermost)
		walk->common.flags |= INTERP_TORN;
	else if (list->cop != cop)
		list->cop = 0;
}

/* Handles the context of a sub or format in scratch->frame. */
static __always_inline void take_sub_context(struct perl_walk *walk, __u32 type, __u64 cop)
{
	struct perl_list *list = list_of(walk);
	const struct scratch *scratch = walk->common.scratch;
	const __u8 flags = scratch->frame[0];
	const __u64 returns = word_at(scratch->frame, CONTEXT_RETURN, 0x78);
	int shown = 1;

	if (type == TYPE_SUB && flags & SUB_REGEX) {
		take_block(walk, INTERP_PERL_REGEX, cop);
		return;
	}
	if (walk->common.n < INTERP_MAX_FRAMES)
		shown = read_sub(walk, type);
	if (shown < 0) {
		skip_innermost(walk, cop);
		return;
	}
	if (shown > 0) {
		list->is_open = true;
		list->ended = ENDED_NOWHERE;
		list->frame_kind = INTERP_PERL_SUB;
		if (walk->common.n < INTERP_MAX_FRAMES)
			take_sub(walk, type == TYPE_FORMAT ? INTERP_PERL_FORMAT : INTERP_PERL_SUB,
				 cop);
		list->ends = !returns;
		list->repeats = type == TYPE_SUB && flags & SUB_MULTICALL;
	}
	list->cop = cop;
}

/* Handles the context of an eval in scratch->frame. An eval of a block is not a function. */
static __always_inline void take_eval_context(struct perl_walk *walk, __u64 cop)
{
	struct perl_list *list = list_of(walk);
	const struct scratch *scratch = walk->common.scratch;
	const __u64 name = word_at(scratch->frame, EVAL_NAME, 0x78);
	const __u64 returns = word_at(scratch->frame, CONTEXT_RETURN, 0x78);
	const __u32 operation = *(const __u16 *)(scratch->frame + CONTEXT_U16) >>
				EVAL_OPERATION_SHIFT;
	const bool requires = operation - walk->layout->op_require <= 1;
	__u64 file = 0;

	if (scratch->frame[0] & EVAL_BLOCK)
		return;
	/* Only the context of a required file has a name. */
	if (requires != (name != 0) ||
	    (!requires && operation != walk->layout->op_require + EVAL_AFTER_REQUIRE)) {
		skip_innermost(walk, cop);
		return;
	}
	list->is_open = true;
	list->ended = ENDED_NOWHERE;
	if (requires) {
		take_require(walk, name);
	} else {
		/* Use the line of the eval, because a line of its text would look like a line of
		 * the file. */
		read_place(walk, &list->line, &file);
		read_cop(cop, &list->first_line, &list->file);
		list->line = list->first_line;
		list->frame_kind = INTERP_PERL_EVAL;
		list->code = cop;
		list->hash = list->file;
	}
	list->cop = cop;
	list->ends = !returns;
}

/* Reads and handles the next context. */
static __always_inline void take_context(struct perl_walk *walk)
{
	struct perl_list *list = list_of(walk);
	struct scratch *scratch = walk->common.scratch;
	__s32 outer;
	__u32 type;
	__u64 cop;

	if (read_user(scratch->frame, CONTEXT_BYTES,
		      list->contexts + (__u64)list->context * CONTEXT_BYTES)) {
		walk->common.flags |= INTERP_FAULT;
		return;
	}
	type = scratch->frame[0] & TYPE_MASK;
	cop = word_at(scratch->frame, CONTEXT_COP, 0x78);
	outer = *(const __s32 *)(scratch->frame + CONTEXT_OUTER);
	if (outer >= list->context || outer < -1 ||
	    (type != TYPE_EVAL && type != TYPE_SUB && type != TYPE_FORMAT)) {
		walk->common.flags |= INTERP_TORN;
		return;
	}
	list->context = outer;
	if (type == TYPE_EVAL)
		take_eval_context(walk, cop);
	else
		take_sub_context(walk, type, cop);
	list->is_innermost = false;
}

/* Reads one context, or changes to the next stack. Returns 1 to end the loop. */
static long step(__u32 index, struct perl_walk *walk)
{
	struct perl_list *list = list_of(walk);

	list->frame_kind = 0;
	list->line = list->first_line = 0;
	list->file = 0;
	list->ends = list->repeats = false;
	if (list->context >= 0)
		take_context(walk);
	else if (end_stack(walk))
		return 1;
	if (walk->common.flags & (INTERP_FAULT | INTERP_TORN))
		return 1;
	if (list->frame_kind) {
		add(walk);
		if (list->frame_kind == INTERP_PERL_MAIN && !(walk->common.flags & INTERP_DEEPER))
			walk->common.flags |= INTERP_MAIN;
	}
	if (list->ends)
		end_activation(walk);
	return 0;
}

/* Returns the address of a variable. If process->addresses[of_address] is not 0, reads the
 * variable's address from there, because a program may have its own copy of a library's
 * variable. */
static __always_inline __u64 find_variable(const struct interp_process *process, __u32 address,
					   __u32 of_address)
{
	__u64 at = process->addresses[address];

	if (process->addresses[of_address])
		read_user(&at, 8, process->addresses[of_address]);
	return at;
}

/* Reads the frames of the current thread into the sample. */
static __always_inline void walk_thread(struct perl_walk *walk)
{
	struct perl_list *list = list_of(walk);
	struct task_struct___kernel *task = (struct task_struct___kernel *)bpf_get_current_task();
	struct scratch *scratch = walk->common.scratch;
	const struct interp_process *process = &scratch->process;
	__u32 key = 0;

	if (read_user(&list->first_interpreter, 8,
		      find_variable(process, INTERP_PERL_FIRST, INTERP_PERL_OF_FIRST)) ||
	    read_user(&key, sizeof(key),
		      find_variable(process, INTERP_PERL_KEY, INTERP_PERL_OF_KEY))) {
		walk->common.flags |= INTERP_FAULT;
		return;
	}
	if (list->first_interpreter)
		list->interpreter = read_specific(BPF_CORE_READ(task, thread.fsbase), key);
	if (!list->interpreter) {
		walk->common.flags |= INTERP_NO_THREAD;
		return;
	}
	if (read_user(scratch->frame, STATE_BYTES, list->interpreter)) {
		walk->common.flags |= INTERP_FAULT;
		return;
	}
	list->cop = word_at(scratch->frame, STATE_COP, 0x1f8);
	/* An interpreter has no stack while it starts or ends. */
	if (!word_at(scratch->frame, STATE_STACK, 0x1f8)) {
		walk->common.flags |= INTERP_NO_THREAD;
		return;
	}
	begin_stack(walk, word_at(scratch->frame, STATE_STACK, 0x1f8));
	bpf_loop(MAX_CONTEXTS, step, walk, 0);
	if (walk->common.flags & (INTERP_FAULT | INTERP_TORN | INTERP_NO_THREAD))
		return;
	if (list->has_ended) {
		if (list->is_open && !list->has_main)
			end_activation(walk);
		scratch->sample.n_more_runs = scratch->runs;
	} else {
		walk->common.flags |= INTERP_DEEPER;
		scratch->sample.n_more_runs = INTERP_RUNS_UNKNOWN;
	}
	/* If the current statement is the caller's, the innermost sub has not begun, and is at its
	 * first line. If a sub calls itself, caller and callee may really be at one statement, so
	 * the line stays. */
	if (!list->has_begun && (walk->common.n < 2 ||
				 scratch->sample.frames[0].code != scratch->sample.frames[1].code))
		scratch->sample.frames[0].position = list->leaf_line;
	walk->common.flags |= INTERP_WALKED;
}

static __always_inline bool read_perl(struct perl_walk *walk, void *ctx)
{
	struct scratch *scratch = get_scratch();
	__u32 minor;

	if (!scratch)
		return false;
	minor = scratch->process.minor;
	scratch->runs = 0;
	*walk = (struct perl_walk){
		.common = begin_walk(ctx, scratch),
		.layout = bpf_map_lookup_elem(&perl_layouts, &minor),
	};
	if (!walk->layout || walk->layout->minor != minor)
		return false;
	*list_of(walk) = (struct perl_list){ .is_innermost = true, .has_begun = true };
	walk_thread(walk);
	return true;
}

INTERP_WALKER(perl, read_perl);
