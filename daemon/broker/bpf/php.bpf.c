/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Php.bpf - reads the frames of a PHP program at the moment of a sample, or before a sleep
 *
 * Without thread safety, PHP has one list of frames, which only the thread that executes PHP
 * changes; the process's other threads have no frames. With thread safety, each thread has its own
 * list. A frame is linked only when it is complete. A PHP function's frame with the flag TOP is the
 * outermost of an activation of execute_ex(). A fiber's list ends with a frame without a name, and
 * continues with the frames of the code that resumed it, which are on another native stack. A fiber
 * that is suspended has no link to these frames, so samples in which a thread leaves a fiber are
 * flagged. Reads are bounded, and a process can harm only its own samples.
 */
#include "daemon/broker/bpf/interp.bpf.h"

/* Zend: zend_compile.h, zend_types.h, zend_fibers.c */
#define TYPE_INTERNAL 1
#define TYPE_USER 2
#define TYPE_EVAL 4
#define INFO_TOP (1 << 17)
#define FUNCTION_FLAGS 4
#define FLAG_TRAMPOLINE (1 << 18)
#define FLAG_GENERATOR (1 << 24)
#define OPERATION_BYTES 32
#define OPERATION_LINE 24
#define STRING_HASH 1                                 /* word */
#define STRING_TYPE(head) ((head) >> 32 & 0xfffffc0f) /* without flags */
#define TYPE_STRING 6
#define STRING_LENGTH 16
#define STRING_BYTES 24

#define FRAME_BYTES 56
#define FUNCTION_BYTES 96
#define CODE_BYTES 184

#define MAX_FRAMES_AND_PLACEHOLDERS 1024
#define MAX_GENERATORS 64u

/* The layouts by minor version. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 32);
	__type(key, __u32);
	__type(value, struct interp_php);
} php_layouts SEC(".maps");

struct php_walk {
	struct walk common;
	const struct interp_php *layout;
	__u64 globals, frame;
	/* Values of the registers in which execute_ex() has the current frame and operation. */
	__u64 frame_register, operation_register;
	__u64 generator; /* next generator to stage */
	bool is_fiber;   /* the thread is on the native stack of the current fiber */
	bool has_own_globals;
};

/* Reads the hash of a string, which is 0 if it was not computed yet. Returns false on a fault, or
 * if the string was released, because the code of an eval() stays current while PHP destroys it. */
static __always_inline bool read_hash(struct php_walk *walk, __u64 object, __u64 *ret_hash)
{
	__u64 head[2] = {};

	if (read_user(head, sizeof(head), object)) {
		walk->common.flags |= INTERP_FAULT;
		return false;
	}
	if (STRING_TYPE(head[0]) != TYPE_STRING) {
		walk->common.flags |= INTERP_TORN;
		return false;
	}
	*ret_hash = head[STRING_HASH];
	return true;
}

/* Reads at most `most` bytes of a string. Returns their number. */
static __always_inline __u32 read_string(__u64 object, __u8 *to, __u64 most, bool *ret_cut)
{
	__u64 bytes = 0;

	if (!object || read_user(&bytes, 8, object + STRING_LENGTH))
		return 0;
	*ret_cut = bytes > most;
	if (bytes > most)
		bytes = most;
	bytes = masked(bytes, most);
	return read_user(to, bytes, object + STRING_BYTES) ? 0 : bytes;
}

static __always_inline const struct interp_php *find_layout(const struct scratch *scratch)
{
	const __u32 minor = scratch->process.minor;

	return bpf_map_lookup_elem(&php_layouts, &minor);
}

/* Describes, in scratch->code, the function whose bytes are in scratch->object. Returns 0, or an
 * error. Not static, so that the verifier checks it only once. */
__noinline int php_describe(__u64 code_at, __u32 id, __u32 first_line, __u32 kind)
{
	struct scratch *scratch = get_scratch();
	const struct interp_php *layout = scratch ? find_layout(scratch) : 0;
	struct interp_code *code;
	__u64 class_name = 0;
	bool cut = false;

	if (!layout)
		return -EINVAL;
	code = begin_code(scratch, code_at, id, first_line, INTERP_PHP, layout->minor);
	code->kind = kind;
	code->name_bytes = read_string(word_at(scratch->object, layout->function_name, 0xf8),
				       code->name, INTERP_MAX_OWNER - 1, &cut);
	if (cut)
		code->flags |= INTERP_CODE_NAME_CUT;
	cut = false;
	if (word_at(scratch->object, layout->function_scope, 0xf8) &&
	    !read_user(&class_name, 8,
		       word_at(scratch->object, layout->function_scope, 0xf8) + layout->class_name))
		code->owner_bytes = read_string(class_name, code->name + INTERP_MAX_OWNER,
						INTERP_MAX_OWNER - 1, &cut);
	if (cut)
		code->flags |= INTERP_CODE_NAME_CUT;
	cut = false;
	if (kind != INTERP_PHP_INTERNAL)
		code->file_bytes = read_string(word_at(scratch->object, layout->code_file, 0xf8),
					       code->file, INTERP_MAX_FILE, &cut);
	if (cut)
		code->flags |= INTERP_CODE_FILE_CUT;
	return 0;
}

/* Writes a description of the function whose bytes are in scratch->object. Returns 0, or an
 * error. */
static __always_inline long describe(struct php_walk *walk, const struct interp_frame *frame,
				     __u32 first_line, __u32 kind)
{
	const int error = php_describe(frame->code, frame->id, first_line, kind);

	return error ? error
		     : bpf_perf_event_output(walk->common.ctx, &code_outputs, BPF_F_CURRENT_CPU,
					     &walk->common.scratch->code,
					     __builtin_offsetof(struct interp_code, lines));
}

/* Returns the current line of the frame whose function is in scratch->object; 0: not known. */
static __always_inline __u32 read_line(struct php_walk *walk, __u64 at, __u64 operation)
{
	const struct interp_php *layout = walk->layout;
	const __u8 *object = walk->common.scratch->object;
	const __u64 start = word_at(object, layout->code_start, 0xf8);
	const __u64 bytes = OPERATION_BYTES * (__u64) *
			    (const __u32 *)(object + masked(layout->code_n, 0xfc));
	__u32 line = 0;

	/* PHP stores the operation in the frame only if the operation calls something, or may fail;
	 * the register always has it. */
	if (at == walk->frame_register && walk->operation_register - start < bytes)
		operation = walk->operation_register;
	/* After an exception, the frame's operation is a member of the globals. Another member has
	 * the address of the operation that failed. */
	if (operation - walk->globals < layout->globals_bytes &&
	    read_user(&operation, 8, walk->globals + layout->globals_exception))
		return 0;
	if (operation - start >= bytes || (operation - start) % OPERATION_BYTES ||
	    read_user(&line, sizeof(line), operation + OPERATION_LINE))
		return 0;
	return line;
}

/* Adds the function whose bytes are in scratch->object. Returns 1 to end the loop. */
static __always_inline long add_function(struct php_walk *walk, __u64 at, __u32 kind)
{
	const struct interp_php *layout = walk->layout;
	struct scratch *scratch = walk->common.scratch;
	const __u64 name = word_at(scratch->object, layout->function_name, 0xf8);
	__u64 name_hash = 0, file_hash = 0, hash;
	__u32 first_line = 0;
	struct interp_frame *frame = add_frame(&walk->common);

	if (!frame)
		return 0;
	*frame = (struct interp_frame){
		.code = word_at(scratch->object,
				kind == INTERP_PHP_INTERNAL ? layout->function_handler
							    : layout->code_start,
				0xf8),
	};
	walk->common.n++;
	if (name && !read_hash(walk, name, &name_hash))
		return 1;
	hash = name_hash ^ (name >> 3) * 0x9e3779b97f4a7c15ull;
	hash ^= (word_at(scratch->object, layout->function_scope, 0xf8) >> 3) *
		0xc4ceb9fe1a85ec53ull;
	hash ^= kind * 0x165667b19e3779f9ull;
	if (kind != INTERP_PHP_INTERNAL) {
		const __u64 file = word_at(scratch->object, layout->code_file, 0xf8);

		first_line =
			*(const __u32 *)(scratch->object + masked(layout->code_first_line, 0xfc));
		if (!read_hash(walk, file, &file_hash))
			return 1;
		frame->position = read_line(walk, at, word_at(scratch->frame, 0, 0x78));
		hash ^= file_hash * 0xff51afd7ed558ccdull ^ (file >> 3) * 0xc2b2ae3d27d4eb4full;
		hash ^= first_line * 0xff51afd7ed558ccdull;
	}
	frame->id = (__u32)(hash >> 32) ^ (__u32)hash;
	if (is_new_code(&walk->common, frame))
		count_code(&walk->common, frame, describe(walk, frame, first_line, kind));
	return 0;
}

/* Ends the run of an activation. Beyond the limit of frames, only counts the run. */
static __always_inline void end_activation(struct php_walk *walk)
{
	walk->common.scratch->is_open = 0;
	if (walk->common.flags & INTERP_DEEPER)
		walk->common.scratch->runs++;
	else
		end_run(&walk->common, 0);
}

/* Called after the last frame of a fiber. The next frames are on another native stack; at least one
 * follows. */
static __always_inline void end_fiber(struct php_walk *walk)
{
	struct walk *common = &walk->common;

	if (common->scratch->is_open) {
		common->flags |= INTERP_TORN;
		return;
	}
	common->scratch->is_open = 1;
	/* The thread has just left a fiber that has ended. */
	if (common->n == 0 && !walk->is_fiber)
		return;
	common->scratch->fibers++;
	if (common->flags & INTERP_DEEPER)
		return;
	if (common->n == 0) {
		common->flags |= INTERP_OTHER_STACK;
		return;
	}
	common->scratch->sample.frames[masked(common->n - 1, INTERP_MAX_FRAMES - 1)].flags |=
		INTERP_FRAME_ENDS_STACK;
}

/* A generator that executes `yield from` has a placeholder instead of its frame, because the last
 * generator of the chain is executed for it. The frames of the generators between these two come
 * before its own frame, so all generators except the last are staged, one in each step. */
static __always_inline void stage_generator(struct php_walk *walk)
{
	struct walk *common = &walk->common;
	__u64 *staged = (__u64 *)common->scratch->staged, parent = 0;

	if (read_user(&parent, 8, walk->generator + walk->layout->generator_parent)) {
		common->flags |= INTERP_FAULT;
		return;
	}
	if (parent && common->scratch->generators < MAX_GENERATORS) {
		staged[masked(common->scratch->generators, MAX_GENERATORS - 1)] = walk->generator;
		common->scratch->generators++;
		walk->generator = parent;
		return;
	}
	walk->generator = 0;
	if (parent || common->scratch->generators == 0 || common->scratch->is_open) {
		common->flags |= INTERP_TORN;
		return;
	}
	/* One activation executes all staged generators. So its run ends at the generator that was
	 * staged first, not at the frame that was added last. If there is no frame yet, the chain's
	 * last generator has just ended. */
	if (common->flags & INTERP_DEEPER)
		common->scratch->runs--;
	else if (common->n > 0)
		common->scratch->sample.frames[masked(common->n - 1, INTERP_MAX_FRAMES - 1)]
			.flags &= ~INTERP_FRAME_ENDS_RUN;
}

/* Returns the address of the next frame: of a staged generator, if any, else walk->frame. 0: after
 * the last frame, or a fault. */
static __always_inline __u64 next_frame(struct php_walk *walk)
{
	struct scratch *scratch = walk->common.scratch;
	__u64 generator, at = 0;

	if (scratch->generators == 0)
		return walk->frame;
	scratch->generators--;
	generator =
		((const __u64 *)scratch->staged)[masked(scratch->generators, MAX_GENERATORS - 1)];
	if (read_user(&at, 8, generator + walk->layout->generator_frame) || !at)
		walk->common.flags |= INTERP_FAULT;
	return at;
}

/* Returns the kind of the function whose bytes are in scratch->object; 0 if the bytes are no
 * function. */
static __always_inline __u32 kind_of(const struct php_walk *walk)
{
	const __u8 *object = walk->common.scratch->object;
	const bool has_name = word_at(object, walk->layout->function_name, 0xf8) != 0;

	if (object[0] == TYPE_INTERNAL)
		return INTERP_PHP_INTERNAL;
	if (object[0] != TYPE_USER && object[0] != TYPE_EVAL)
		return 0;
	if (has_name)
		return INTERP_PHP_FUNCTION;
	if (!walk->frame)
		return INTERP_PHP_MAIN;
	return object[0] == TYPE_EVAL ? INTERP_PHP_EVAL : INTERP_PHP_INCLUDE;
}

/* Reads one frame. Returns 1 to end the loop. */
static long step(__u32 index, struct php_walk *walk)
{
	const struct interp_php *layout = walk->layout;
	struct scratch *scratch = walk->common.scratch;
	const bool is_staged = scratch->generators > 0;
	__u64 at, function, object;
	__u32 kind;

	if (walk->common.flags & (INTERP_FAULT | INTERP_TORN))
		return 1;
	if (walk->generator) {
		stage_generator(walk);
		return 0;
	}
	at = next_frame(walk);
	if (!at)
		return 1;
	if (read_user(scratch->frame, FRAME_BYTES, at)) {
		walk->common.flags |= INTERP_FAULT;
		return 1;
	}
	if (!is_staged)
		walk->frame = word_at(scratch->frame, layout->frame_previous, 0x78);
	function = word_at(scratch->frame, layout->frame_function, 0x78);
	if (!function) {
		object = word_at(scratch->frame, layout->frame_this, 0x78);
		if (object + layout->generator_placeholder == at)
			walk->generator = object;
		return 0;
	}
	/* Beyond the limit of frames, only frames that end a run or a fiber matter. A fiber's last
	 * frame has no operation, so its first word is 0. */
	if (walk->common.flags & INTERP_DEEPER && !is_staged &&
	    !(word_at(scratch->frame, layout->frame_info, 0x78) & INFO_TOP) &&
	    word_at(scratch->frame, 0, 0x78)) {
		scratch->is_open = 1;
		return 0;
	}
	if (read_user(scratch->object, CODE_BYTES, function) &&
	    read_user(scratch->object, FUNCTION_BYTES, function)) {
		walk->common.flags |= INTERP_FAULT;
		return 1;
	}
	/* A call of a missing method is about to become a call of __call() or __callStatic(). */
	if (scratch->object[0] == TYPE_USER &&
	    *(const __u32 *)(scratch->object + FUNCTION_FLAGS) & FLAG_TRAMPOLINE)
		return 0;
	kind = kind_of(walk);
	/* A generator is not linked to its caller yet when it becomes the current frame. */
	if (kind == 0 || (kind != INTERP_PHP_INTERNAL && !walk->frame && !is_staged &&
			  *(const __u32 *)(scratch->object + FUNCTION_FLAGS) & FLAG_GENERATOR)) {
		walk->common.flags |= INTERP_TORN;
		return 1;
	}
	if (kind == INTERP_PHP_INTERNAL && !word_at(scratch->object, layout->function_name, 0xf8)) {
		end_fiber(walk);
		return 0;
	}
	if (kind != INTERP_PHP_INTERNAL)
		scratch->is_open = 1;
	if (add_function(walk, at, kind))
		return 1;
	if (kind != INTERP_PHP_INTERNAL && scratch->generators == 0 &&
	    word_at(scratch->frame, layout->frame_info, 0x78) & INFO_TOP)
		end_activation(walk);
	return 0;
}

/* Returns whether the current thread executes PHP: its native stack is the current fiber's, or has
 * the place to which a fatal error jumps (bailout). If no bailout is set, returns whether the
 * thread is the first one or has its own globals. Sets is_fiber in the first case. */
static __always_inline bool find_stack(struct php_walk *walk, __u64 sp, __u64 fsbase)
{
	const __u64 id = bpf_get_current_pid_tgid();
	const bool is_first = (__u32)id == id >> 32;
	const struct interp_php *layout = walk->layout;
	__u64 fiber = 0, of_fiber = 0, stack[2] = {}, bailout = 0;

	if (read_user(&fiber, 8, walk->globals + layout->globals_fiber) ||
	    read_user(&bailout, 8, walk->globals + layout->globals_bailout))
		return false;
	if (fiber && !read_user(&of_fiber, 8, fiber + layout->fiber_stack) && of_fiber)
		read_user(stack, sizeof(stack), of_fiber);
	if (sp - stack[0] < stack[1]) {
		walk->is_fiber = true;
		/* While a fiber starts or resumes, the frames are still those of the code that
		 * resumed it. */
		if (bailout && bailout - stack[0] >= stack[1])
			walk->common.flags |= INTERP_OTHER_STACK;
		return true;
	}
	/* Without a bailout, the thread may be about to leave the stack whose frames it still
	 * has. */
	if (!bailout)
		return is_first || walk->has_own_globals;
	/* The stacks of all threads but the first end below fsbase, because glibc puts a thread's
	 * control block, to which fsbase points, at the end of its stack. */
	return sp <= bailout &&
	       bailout <= (is_first ? walk->common.scratch->process.start_stack : fsbase);
}

/* Finds the globals of the current thread. Returns false if it has none. */
static __always_inline bool find_globals(struct php_walk *walk, __u64 fsbase)
{
	const __u64 *addresses = walk->common.scratch->process.addresses;
	__u64 pointer = addresses[INTERP_PHP_POINTER], own = 0, offset = 0;

	walk->globals = addresses[INTERP_PHP_GLOBALS];
	if (addresses[INTERP_PHP_OF_GLOBALS])
		read_user(&walk->globals, 8, addresses[INTERP_PHP_OF_GLOBALS]);
	if (!pointer && !addresses[INTERP_PHP_OF_POINTER])
		return true;
	if ((!pointer && read_user(&pointer, 8, addresses[INTERP_PHP_OF_POINTER])) ||
	    read_user(&own, 8, fsbase + pointer) || !own || read_user(&offset, 8, walk->globals))
		return false;
	walk->globals = own + offset;
	walk->has_own_globals = true;
	return true;
}

/* Reads the frames of the current thread into the sample. */
static __always_inline void walk_thread(struct php_walk *walk)
{
	struct task_struct___kernel *task = (struct task_struct___kernel *)bpf_get_current_task();
	const struct pt_regs___kernel *regs =
		(const struct pt_regs___kernel *)bpf_task_pt_regs(bpf_get_current_task_btf());
	const __u64 fsbase = BPF_CORE_READ(task, thread.fsbase);

	walk->frame_register = BPF_CORE_READ(regs, r14);
	walk->operation_register = BPF_CORE_READ(regs, r15);
	if (!find_globals(walk, fsbase) || !find_stack(walk, BPF_CORE_READ(regs, sp), fsbase)) {
		walk->common.flags |= INTERP_NO_THREAD;
		return;
	}
	if (read_user(&walk->frame, 8, walk->globals + walk->layout->globals_frame)) {
		walk->common.flags |= INTERP_FAULT;
		return;
	}
	if (!walk->frame)
		return;
	bpf_loop(MAX_FRAMES_AND_PLACEHOLDERS, step, walk, 0);
	if (walk->common.flags & (INTERP_FAULT | INTERP_TORN))
		return;
	if (walk->frame || walk->generator || walk->common.scratch->generators) {
		walk->common.flags |= INTERP_DEEPER;
		walk->common.scratch->sample.n_more_runs = INTERP_RUNS_UNKNOWN;
	} else {
		walk->common.scratch->sample.n_more_runs = walk->common.scratch->runs;
		/* A fiber that is starting has no frames yet; the known frames are those of the
		 * code that resumed it. */
		if (walk->is_fiber && walk->common.scratch->fibers == 0)
			walk->common.flags |= INTERP_OTHER_STACK;
		if (walk->common.scratch->is_open)
			walk->common.flags |= INTERP_TORN;
	}
	walk->common.flags |= INTERP_WALKED;
}

static __always_inline bool read_php(struct php_walk *walk, void *ctx)
{
	struct scratch *scratch = get_scratch();
	__u32 minor;

	if (!scratch)
		return false;
	minor = scratch->process.minor;
	scratch->runs = scratch->generators = scratch->fibers = scratch->is_open = 0;
	*walk = (struct php_walk){
		.common = begin_walk(ctx, scratch),
		.layout = find_layout(scratch),
	};
	if (!walk->layout || walk->layout->minor != minor)
		return false;
	walk_thread(walk);
	return true;
}

INTERP_WALKER(php, read_php);
