/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Ruby.bpf - reads the frames of a Ruby program at the moment of a sample, or before a sleep
 *
 * A thread's control frames are an array at the end of its own stack of words, innermost first.
 * Only the thread itself changes them. Frames of C functions have no iseq, and are left out: the
 * native stack has them. A frame with the flag FINISH is the outermost of an activation of
 * rb_vm_exec(). Each activation has a tag in its C frame, to which exceptions jump, so the tags
 * whose code is in rb_vm_exec() are the activations. Frames and tags are matched from the root,
 * because the innermost frame may not be executed yet, or no longer. While a thread changes to
 * another fiber, its frames belong to one fiber, and its native stack to the other: such samples
 * are flagged. Reads are bounded, and a process can harm only its own samples.
 */
#include "daemon/broker/bpf/interp.bpf.h"

/* include/ruby/internal: value_type.h, fl_type.h, core/rstring.h, core/rarray.h; internal/imemo.h;
 * vm_core.h */
#define TYPE_MASK 0x1f
#define TYPE_CLASS 2
#define TYPE_MODULE 3
#define TYPE_STRING 5
#define TYPE_ARRAY 7
#define IMEMO_MASK 0xf01f
#define IMEMO_VARIABLES 0x201a
#define IMEMO_METHOD 0x601a
#define IMEMO_ISEQ 0x701a
#define STRING_NOT_EMBEDDED (1 << 13)
#define STRING_BYTES(flags) ((flags) >> 14 & 0x1f)
#define ARRAY_EMBEDDED (1 << 13)
#define FRAME_FINISH 0x20
#define FRAME_IS_LOCAL 2

#define FRAMES_AT_ONCE 7 /* control frames */
#define FRAMES_MASK 511
#define ENVIRONMENT_BYTES 24
#define WINDOW_BYTES 504
#define WINDOW_MASK 511
#define BODY_BYTES 160
#define ENTRY_BYTES 12
#define ENTRIES_AT_ONCE 60u
#define POSITIONS_FIXED 48
#define POSITIONS_BLOCK 80
#define POSITIONS_IN_FIXED 54
#define POSITIONS_IN_BLOCK 512

/* Frames beyond those that are shown are only counted. */
#define MAX_CONTROL_FRAMES 1024
#define MAX_TAGS 512
#define MAX_NESTED 8 /* maximum nesting of blocks for which the method is found */

/* A class has few variables of its own. TABLE_BOUND and TABLE_ENTRIES are the indexes of the words
 * `entries_bound` and `entries` in struct st_table (st.c); an entry is {hash, key, value}. Only
 * Ruby itself can give a variable of a class a name in which the NAME_SCOPE bits are 0 (id.h). */
#define MAX_VARIABLES 8
#define TABLE_BYTES 56
#define TABLE_BOUND 5
#define TABLE_ENTRIES 6
#define VARIABLE_BYTES 24
#define NAME_SCOPE 0xe

/* shape.h: struct rb_shape. A shape of type SHAPE_IS_VARIABLE adds a variable to its parent. Shapes
 * of other types add none. The number of a class's shape is in the class's flags. */
#define SHAPE_BYTES 32
#define SHAPE_OF(flags) ((flags) >> 32)
#define SHAPE_NAME 1      /* index of the word */
#define SHAPE_VARIABLES 2 /* index of the word; its lower half is the number of variables */
#define SHAPE_TYPE 3      /* index of the word; lowest byte: the type; upper half: the parent */
#define SHAPE_ROOT 0
#define SHAPE_IS_VARIABLE 1
#define MAX_SHAPES 16

/* glibc on x86-64 mangles addresses in a jmp_buf with the guard at this offset of a thread's data
 * (sysdep.h, PTR_MANGLE) */
#define THREAD_GUARD 0x30
#define MANGLE_ROTATION 17

/* The layouts by minor version. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 32);
	__type(key, __u32);
	__type(value, struct interp_ruby);
} ruby_layouts SEC(".maps");

struct ruby_walk {
	struct walk common;
	const struct interp_ruby *layout;
	__u64 stack, frame, end, tag, eval, eval_end;
	__u64 sp;    /* stack pointer of the thread */
	__u64 guard; /* glibc mangles addresses in the thread's tags with this */
};

/* Returns the layout of the current process's version, or NULL. */
static __always_inline const struct interp_ruby *find_layout(void)
{
	struct scratch *scratch = get_scratch();
	__u32 minor;

	if (!scratch)
		return 0;
	minor = scratch->process.minor;
	return bpf_map_lookup_elem(&ruby_layouts, &minor);
}

/* Reads at most `most` bytes of a String object. Returns their number. */
static __always_inline __u32 read_string(const struct interp_ruby *layout, __u64 object, __u8 *to,
					 __u64 most, bool *ret_cut)
{
	__u64 head[4] = {}, bytes, from;

	/* Immediate objects are not addresses. */
	if (object & 7 || read_user(head, sizeof(head), object) ||
	    (head[0] & TYPE_MASK) != TYPE_STRING)
		return 0;
	bytes = head[2];
	from = head[3];
	if (!(head[0] & STRING_NOT_EMBEDDED)) {
		from = object + layout->text_embedded;
		if (layout->text_embedded_bytes == INTERP_ABSENT)
			bytes = STRING_BYTES(head[0]);
	}
	*ret_cut = bytes > most;
	if (bytes > most)
		bytes = most;
	bytes = masked(bytes, most);
	return read_user(to, bytes, from) ? 0 : bytes;
}

/* Returns the String of a path; if the object is a pair of paths, that of the real path. */
static __always_inline __u64 find_path(__u64 object)
{
	__u64 head[5] = {}, pair[2] = {};

	if (object & 7 || read_user(head, sizeof(head), object) ||
	    (head[0] & TYPE_MASK) != TYPE_ARRAY)
		return object;
	if (read_user(pair, sizeof(pair), head[0] & ARRAY_EMBEDDED ? object + 16 : head[4]))
		return 0;
	/* For code that is in no file, the real path is nil. */
	return pair[1] & 7 || pair[1] < 4096 ? pair[0] : pair[1];
}

static __always_inline bool has_type(__u64 object, __u64 type, __u64 other_type)
{
	__u64 flags = 0;

	return !(object & 7) && !read_user(&flags, 8, object) &&
	       ((flags & TYPE_MASK) == type || (flags & TYPE_MASK) == other_type);
}

/* Like ruby_find_variable(), for a class with a shape. */
static __always_inline __u64 find_by_shape(const struct interp_ruby *layout, __u64 number,
					   __u64 values, __u64 type, __u64 other_type)
{
	__u64 at = 0, value = 0, shape[SHAPE_BYTES / 8] = {};
	struct scratch *scratch = get_scratch();

	if (!scratch || read_user(&at, 8, scratch->thread + layout->thread_object) ||
	    read_user(&at, 8, at + layout->object_vm) || read_user(&at, 8, at + layout->vm_shapes))
		return 0;
	for (int i = 0; i < MAX_SHAPES; i++) {
		if (read_user(shape, sizeof(shape), at + number * SHAPE_BYTES) ||
		    (__u8)shape[SHAPE_TYPE] == SHAPE_ROOT)
			return 0;
		if ((__u8)shape[SHAPE_TYPE] == SHAPE_IS_VARIABLE &&
		    !(shape[SHAPE_NAME] & NAME_SCOPE) &&
		    !read_user(&value, 8, values + 8 * ((__u32)shape[SHAPE_VARIABLES] - 1ull)) &&
		    has_type(value, type, other_type))
			return value;
		number = shape[SHAPE_TYPE] >> 32;
	}
	return 0;
}

/* Returns a variable that Ruby itself has set in a class: the class's name (TYPE_STRING), or the
 * object that a singleton class belongs to. Returns 0 if no such variable has one of the types.
 * `flags`, `extension`: the class's first and fourth word. Not static, like ruby_describe(). */
__noinline __u64 ruby_find_variable(__u64 class, __u64 flags, __u64 extension, __u64 type,
				    __u64 other_type)
{
	__u64 table = 0, value = 0, head[TABLE_BYTES / 8] = {}, variable[3] = {};
	const struct interp_ruby *layout = find_layout();
	__u64 at;

	if (!layout)
		return 0;
	at = type == TYPE_STRING ? layout->class_name : layout->class_attached;
	if (at != INTERP_ABSENT)
		return !read_user(&value, 8, class + at) && has_type(value, type, other_type)
			       ? value
			       : 0;
	if (!layout->class_extension)
		extension = class;
	if (read_user(&table, 8, extension + layout->extension_variables) || !table)
		return 0;
	if (layout->thread_object != INTERP_ABSENT)
		return find_by_shape(layout, SHAPE_OF(flags), table, type, other_type);
	if (read_user(head, sizeof(head), table))
		return 0;
	for (int i = 0; i < MAX_VARIABLES; i++) {
		if (i >= head[TABLE_BOUND] ||
		    read_user(variable, sizeof(variable), head[TABLE_ENTRIES] + i * VARIABLE_BYTES))
			return 0;
		/* A variable that was removed has the hash ~0. */
		if (~variable[0] && !(variable[1] & NAME_SCOPE) &&
		    has_type(variable[2], type, other_type))
			return variable[2];
	}
	return 0;
}

/* Reads the name of a class or module; for a singleton class, of the class or module that it
 * belongs to. */
static __always_inline void read_owner(const struct interp_ruby *layout, __u64 owner,
				       struct interp_code *code)
{
	__u64 head[4] = {};
	bool cut = false;

	code->owner_bytes = code->is_singleton = 0;
	if (!owner || owner & 7 || read_user(head, sizeof(head), owner))
		return;
	if (head[0] >> (layout->singleton_bit & 63) & 1) {
		code->is_singleton = 1;
		owner = ruby_find_variable(owner, head[0], head[3], TYPE_CLASS, TYPE_MODULE);
		if (!owner || read_user(head, sizeof(head), owner))
			return;
	}
	if ((head[0] & TYPE_MASK) != TYPE_CLASS && (head[0] & TYPE_MASK) != TYPE_MODULE)
		return;
	code->owner_bytes = read_string(
		layout, ruby_find_variable(owner, head[0], head[3], TYPE_STRING, TYPE_STRING),
		code->name + INTERP_RUBY_OWNER, INTERP_RUBY_OWNER - 1, &cut);
	if (cut)
		code->flags |= INTERP_CODE_NAME_CUT;
}

struct line_copy {
	struct scratch *scratch;
	__u64 entries;
	__u32 n, done;
};

/* Copies the line numbers of some entries. Returns 1 to end the loop. */
static long copy_lines(__u32 index, struct line_copy *copy)
{
	__u8 *to = copy->scratch->code.lines + sizeof(struct interp_ruby_lines);
	const __u32 *from = (const __u32 *)copy->scratch->staged;
	__u32 n = copy->n - copy->done;

	if (n == 0)
		return 1;
	if (n > ENTRIES_AT_ONCE)
		n = ENTRIES_AT_ONCE;
	if (read_user(copy->scratch->staged, masked(n * ENTRY_BYTES, 1023),
		      copy->entries + copy->done * ENTRY_BYTES))
		return 1;
	to += masked(index, 31) * ENTRIES_AT_ONCE * 4;
	for (__u32 i = 0; i < ENTRIES_AT_ONCE; i++)
		*(__u32 *)(to + 4 * i) = from[i * ENTRY_BYTES / 4];
	copy->done += n;
	return 0;
}

/* Returns the size of the set of positions. Returns 0 if all code is in one line, because Ruby then
 * stores no set. */
static __always_inline __u64 positions_bytes(__u32 n, __u32 words)
{
	if (n <= 1)
		return 0;
	return POSITIONS_FIXED +
	       (words <= POSITIONS_IN_FIXED
			? 0
			: (words - POSITIONS_IN_FIXED + POSITIONS_IN_BLOCK - 1ull) /
				  POSITIONS_IN_BLOCK * POSITIONS_BLOCK);
}

/* Reads the lines of the iseq whose body is in scratch->object. Returns the number of bytes. */
static __always_inline __u32 read_lines(const struct interp_ruby *layout, struct scratch *scratch)
{
	const __u8 *body = scratch->object;
	struct interp_ruby_lines head = {
		.n = *(const __u32 *)(body + masked(layout->body_n_lines, 0xfc)),
	};
	struct line_copy copy = { .scratch = scratch,
				  .entries = word_at(body, layout->body_lines, 0xf8),
				  .n = head.n };
	__u64 positions, done;

	positions =
		positions_bytes(head.n, *(const __u32 *)(body + masked(layout->body_size, 0x7c)));
	if (positions > INTERP_RUBY_MAX_POSITIONS) {
		scratch->code.flags |= INTERP_CODE_LINES_CUT;
		positions = INTERP_RUBY_MAX_POSITIONS;
	}
	if (copy.n > INTERP_RUBY_MAX_LINES) {
		scratch->code.flags |= INTERP_CODE_LINES_CUT;
		copy.n = INTERP_RUBY_MAX_LINES;
	}
	bpf_loop(INTERP_RUBY_MAX_LINES / ENTRIES_AT_ONCE, copy_lines, &copy, 0);
	done = copy.done;
	asm volatile("" : "+r"(done));
	if (done > INTERP_RUBY_MAX_LINES)
		return 0;
	head.n_read = done;
	__builtin_memcpy(scratch->code.lines, &head, sizeof(head));
	done = sizeof(head) + 4 * done;
	positions = masked(positions, INTERP_RUBY_MAX_POSITIONS);
	if (read_user(scratch->code.lines + done, positions,
		      word_at(body, layout->body_positions, 0xf8)))
		positions = 0;
	return done + positions;
}

/* Describes, in scratch->code, the iseq whose body is in scratch->object. Returns the size of the
 * record, or 0. Not static: the kernel verifies a global function once, but a static one for each
 * state of its callers, which would take most of the time until the first sample can be read. */
__noinline __u32 ruby_describe(__u64 body, __u32 id, __u32 first_line, __u64 owner)
{
	const struct interp_ruby *layout = find_layout();
	struct scratch *scratch = get_scratch();
	struct interp_code *code;
	bool cut = false;

	if (!scratch || !layout)
		return 0;
	code = begin_code(scratch, body, id, first_line, INTERP_RUBY, layout->minor);
	code->name_bytes = read_string(layout, word_at(scratch->object, layout->body_label, 0xf8),
				       code->name, INTERP_RUBY_OWNER - 1, &cut);
	if (cut)
		code->flags |= INTERP_CODE_NAME_CUT;
	read_owner(layout, owner, code);
	cut = false;
	code->file_bytes = read_string(layout,
				       find_path(word_at(scratch->object, layout->body_path, 0xf8)),
				       code->file, INTERP_MAX_FILE, &cut);
	if (cut)
		code->flags |= INTERP_CODE_FILE_CUT;
	code->lines_bytes = read_lines(layout, scratch);
	return __builtin_offsetof(struct interp_code, lines) +
	       masked(code->lines_bytes, INTERP_MAX_LINES);
}

/* Writes a description of the frame's iseq. Returns 0, or an error. */
static __always_inline long describe(struct ruby_walk *walk, const struct interp_frame *frame,
				     __u32 first_line, __u64 owner)
{
	__u64 bytes = ruby_describe(frame->code, frame->id, first_line, owner);

	asm volatile("" : "+r"(bytes));
	if (bytes == 0 || bytes > sizeof(struct interp_code))
		return -EINVAL;
	return bpf_perf_event_output(walk->common.ctx, &code_outputs, BPF_F_CURRENT_CPU,
				     &walk->common.scratch->code, bytes);
}

/* Sets the frame's position and id, and describes its iseq if that is new. */
static __always_inline void identify(struct ruby_walk *walk, struct interp_frame *frame, __u64 pc,
				     __u64 owner)
{
	const struct interp_ruby *layout = walk->layout;
	struct scratch *scratch = walk->common.scratch;
	__u64 code, hash, first_line, words;

	if (read_user(scratch->object, BODY_BYTES, frame->code)) {
		walk->common.flags |= INTERP_FAULT;
		return;
	}
	code = word_at(scratch->object, layout->body_code, 0xf8);
	first_line = word_at(scratch->object, layout->body_first_line, 0xf8);
	first_line = layout->is_first_line_tagged ? first_line >> 1 : (__u32)first_line;
	words = *(const __u32 *)(scratch->object + masked(layout->body_size, 0x7c));
	if (pc < code || pc - code > 8 * words) {
		walk->common.flags |= INTERP_TORN;
		return;
	}
	/* The program counter is after the instruction that runs. */
	frame->position = pc > code ? (pc - code) / 8 - 1 : 0;
	hash = (word_at(scratch->object, layout->body_label, 0xf8) >> 3) * 0x9e3779b97f4a7c15ull;
	hash ^= (code >> 3) * 0xc2b2ae3d27d4eb4full;
	hash ^= (word_at(scratch->object, layout->body_lines, 0xf8) >> 3) * 0x165667b19e3779f9ull;
	hash ^= first_line * 0xff51afd7ed558ccdull;
	/* Different classes may have methods from the same source. */
	hash ^= (owner >> 3) * 0xc4ceb9fe1a85ec53ull;
	frame->id = (__u32)(hash >> 32) ^ (__u32)hash;
	if (is_new_code(&walk->common, frame))
		count_code(&walk->common, frame, describe(walk, frame, first_line, owner));
}

/* Reads the three words that end at `ep`: the method, the environment around the block, and flags.
 * Usually the words of callers are right before them on the stack, so those are copied, too. A
 * block that outlived its method has its words elsewhere. Returns false on failure. */
static __always_inline bool read_environment(struct ruby_walk *walk, __u64 ep, __u64 *ret_words)
{
	struct scratch *scratch = walk->common.scratch;
	const __u64 at = ep - ENVIRONMENT_BYTES + 8;
	__u64 offset = at - scratch->window_at;

	if (offset >= scratch->window_bytes || offset + ENVIRONMENT_BYTES > scratch->window_bytes) {
		if (at < walk->stack || ep >= walk->end)
			return !read_user(ret_words, ENVIRONMENT_BYTES, at);
		scratch->window_at = walk->stack;
		if (ep + 8 - walk->stack > WINDOW_BYTES)
			scratch->window_at = ep + 8 - WINDOW_BYTES;
		scratch->window_bytes = masked(ep + 8 - scratch->window_at, WINDOW_MASK);
		if (read_user(scratch->window, scratch->window_bytes, scratch->window_at)) {
			scratch->window_bytes = 0;
			return false;
		}
		offset = at - scratch->window_at;
	}
	for (int i = 0; i < ENVIRONMENT_BYTES / 8; i++)
		ret_words[i] = word_at(scratch->window, offset + 8 * i, WINDOW_MASK & ~7ull);
	return true;
}

/* Returns the class of the method that a frame executes, or that contains the frame's block; 0: not
 * known. The arguments are the words of the frame's environment. Not static, like
 * ruby_describe(). */
__noinline __u64 ruby_find_owner(__u64 method_of, __u64 parent, __u64 flags)
{
	__u64 words[ENVIRONMENT_BYTES / 8] = { method_of, parent, flags }, method[5] = {};

	for (int i = 0; i < MAX_NESTED; i++) {
		if (words[0] && !(words[0] & 7) && !read_user(method, sizeof(method), words[0])) {
			if ((method[0] & IMEMO_MASK) == IMEMO_VARIABLES &&
			    read_user(method, sizeof(method), method[1]))
				return 0;
			if ((method[0] & IMEMO_MASK) == IMEMO_METHOD)
				return method[4];
		}
		if (words[2] & FRAME_IS_LOCAL ||
		    read_user(words, sizeof(words), (words[1] & ~3ull) - ENVIRONMENT_BYTES + 8))
			return 0;
	}
	return 0;
}

/* Adds the frame of a control frame that has an iseq. Returns 1 to end the loop. */
static __always_inline int step_iseq(struct ruby_walk *walk, __u64 iseq, __u64 pc, __u64 ep)
{
	struct scratch *scratch = walk->common.scratch;
	__u64 head[3] = {}, environment[ENVIRONMENT_BYTES / 8] = {};
	struct interp_frame *frame;

	if (!read_environment(walk, ep, environment)) {
		walk->common.flags |= INTERP_FAULT;
		return 1;
	}
	if (environment[2] & FRAME_FINISH)
		scratch->runs++;
	/* Without room for the frame, the runs are still counted. */
	frame = add_frame(&walk->common);
	if (!frame)
		return 0;
	if (read_user(head, sizeof(head), iseq)) {
		walk->common.flags |= INTERP_FAULT;
		return 1;
	}
	if ((head[0] & IMEMO_MASK) != IMEMO_ISEQ) {
		walk->common.flags |= INTERP_TORN;
		return 1;
	}
	*frame = (struct interp_frame){ .code = head[2] };
	walk->common.n++;
	identify(walk, frame, pc, ruby_find_owner(environment[0], environment[1], environment[2]));
	if (environment[2] & FRAME_FINISH)
		end_run(&walk->common, 0);
	return 0;
}

/* Reads one control frame. Returns 1 to end the loop. */
static long step(__u32 index, struct ruby_walk *walk)
{
	const struct interp_ruby *layout = walk->layout;
	struct scratch *scratch = walk->common.scratch;
	__u64 offset = walk->frame - scratch->frames_at, iseq, pc;

	if (walk->frame >= walk->end)
		return 1;
	if (offset >= scratch->frames_bytes) {
		__u64 bytes = FRAMES_AT_ONCE * layout->frame_bytes;

		if (bytes > walk->end - walk->frame)
			bytes = walk->end - walk->frame;
		if (bytes < layout->frame_bytes ||
		    read_user(scratch->frame, masked(bytes, FRAMES_MASK), walk->frame)) {
			walk->common.flags |= INTERP_FAULT;
			return 1;
		}
		scratch->frames_at = walk->frame;
		scratch->frames_bytes = bytes - bytes % layout->frame_bytes;
		offset = 0;
	}
	iseq = word_at(scratch->frame, offset + layout->frame_iseq, FRAMES_MASK & ~7ull);
	pc = word_at(scratch->frame, offset + layout->frame_pc, FRAMES_MASK & ~7ull);
	if (iseq && pc &&
	    step_iseq(walk, iseq, pc,
		      word_at(scratch->frame, offset + layout->frame_ep, FRAMES_MASK & ~7ull)))
		return 1;
	walk->frame += layout->frame_bytes;
	return 0;
}

/* Reads one tag, and notes its address if it belongs to an activation. Returns 1 to end the
 * loop. */
static long step_tag(__u32 index, struct ruby_walk *walk)
{
	const struct interp_ruby *layout = walk->layout;
	__u64 resume = 0, previous = 0;

	if (!walk->tag)
		return 1;
	if (read_user(&resume, 8, walk->tag + layout->tag_resume) ||
	    read_user(&previous, 8, walk->tag + layout->tag_previous)) {
		walk->common.flags |= INTERP_FAULT;
		return 1;
	}
	if (layout->is_resume_mangled)
		resume = (resume >> MANGLE_ROTATION | resume << (64 - MANGLE_ROTATION)) ^
			 walk->guard;
	if (resume >= walk->eval && resume < walk->eval_end) {
		__u64 *at = (__u64 *)walk->common.scratch->staged;

		if (walk->common.scratch->activations < INTERP_MAX_FRAMES)
			at[masked(walk->common.scratch->activations, INTERP_MAX_FRAMES - 1)] =
				walk->tag;
		walk->common.scratch->activations++;
	}
	walk->tag = previous;
	return 0;
}

/* Sets the address of a frame that ends a run. */
static long step_run(__u32 index, struct ruby_walk *walk)
{
	const __u64 *at = (const __u64 *)walk->common.scratch->staged;
	struct interp_frame *frame =
		&walk->common.scratch->sample.frames[masked(index, INTERP_MAX_FRAMES - 1)];

	if (index >= walk->common.n)
		return 1;
	if (!(frame->flags & INTERP_FRAME_ENDS_RUN))
		return 0;
	if (walk->common.scratch->skipped < 0)
		frame->at = walk->sp;
	else if (walk->common.scratch->skipped < INTERP_MAX_FRAMES)
		frame->at = at[masked(walk->common.scratch->skipped, INTERP_MAX_FRAMES - 1)];
	walk->common.scratch->skipped++;
	return 0;
}

/* Assigns an activation to each run, the outermost one to the outermost run. If there is one run
 * more, the innermost run gets the stack pointer; if there is one activation more, the innermost
 * activation is left out. Assigns nothing if the numbers differ by more, or if not all runs and
 * activations were read. */
static __always_inline void place_runs(struct ruby_walk *walk)
{
	bpf_loop(MAX_TAGS, step_tag, walk, 0);
	walk->common.scratch->skipped =
		(__s32)(walk->common.scratch->activations - walk->common.scratch->runs);
	if (walk->tag || walk->frame < walk->end)
		walk->common.flags |= INTERP_DEEPER;
	else if (walk->common.scratch->skipped < -1 || walk->common.scratch->skipped > 1)
		walk->common.flags |= INTERP_TORN;
	else
		bpf_loop(INTERP_MAX_FRAMES, step_run, walk, 0);
}

/* Returns the current thread's state, or 0. */
static __always_inline __u64 find_thread(const struct interp_process *process, __u64 fsbase)
{
	const __u64 of_module = process->addresses[INTERP_RUBY_MODULE];
	const __u64 block = of_module ? read_thread_block(fsbase, of_module) : fsbase;
	__u64 thread = 0;

	return !block || read_user(&thread, 8, block + process->addresses[INTERP_RUBY_OFFSET])
		       ? 0
		       : thread;
}

/* Returns whether the thread is on the native stack that belongs to its frames. */
static __always_inline bool is_on_its_stack(const struct interp_ruby *layout, __u64 thread,
					    __u64 sp)
{
	__u64 end = 0, bytes = 0;

	return !read_user(&end, 8, thread + layout->thread_machine_stack) &&
	       !read_user(&bytes, 8, thread + layout->thread_machine_stack_bytes) && sp <= end &&
	       end - sp <= bytes;
}

/* Reads the frames of the current thread into the sample. */
static __always_inline void walk_thread(struct ruby_walk *walk)
{
	struct task_struct___kernel *task = (struct task_struct___kernel *)bpf_get_current_task();
	const struct pt_regs___kernel *regs =
		(const struct pt_regs___kernel *)bpf_task_pt_regs(bpf_get_current_task_btf());
	const struct interp_ruby *layout = walk->layout;
	const __u64 fsbase = BPF_CORE_READ(task, thread.fsbase);
	__u64 thread, words = 0;

	thread = find_thread(&walk->common.scratch->process, fsbase);
	if (!thread) {
		walk->common.flags |= INTERP_NO_THREAD;
		return;
	}
	walk->common.scratch->thread = thread;
	if (read_user(&walk->guard, 8, fsbase + THREAD_GUARD) ||
	    read_user(&walk->stack, 8, thread + layout->thread_stack) ||
	    read_user(&words, 8, thread + layout->thread_stack_words) ||
	    read_user(&walk->frame, 8, thread + layout->thread_frame) ||
	    read_user(&walk->tag, 8, thread + layout->thread_tag)) {
		walk->common.flags |= INTERP_FAULT;
		return;
	}
	/* The thread is starting or ending. */
	if (!walk->stack || !walk->frame) {
		walk->common.flags |= INTERP_NO_THREAD;
		return;
	}
	walk->end = walk->stack + 8 * words;
	walk->sp = BPF_CORE_READ(regs, sp);
	if (walk->frame < walk->stack || walk->frame > walk->end ||
	    !is_on_its_stack(layout, thread, walk->sp)) {
		walk->common.flags |= INTERP_TORN;
		return;
	}
	bpf_loop(MAX_CONTROL_FRAMES, step, walk, 0);
	if (!(walk->common.flags & (INTERP_FAULT | INTERP_TORN)))
		place_runs(walk);
	walk->common.flags |= INTERP_WALKED;
}

static __always_inline bool read_ruby(struct ruby_walk *walk, void *ctx)
{
	struct scratch *scratch = get_scratch();

	if (!scratch)
		return false;
	scratch->runs = scratch->activations = 0;
	scratch->frames_bytes = scratch->window_bytes = 0;
	*walk = (struct ruby_walk){
		.common = begin_walk(ctx, scratch),
		.layout = find_layout(),
		.eval = scratch->process.addresses[INTERP_RUBY_EVAL],
		.eval_end = scratch->process.addresses[INTERP_RUBY_EVAL_END],
	};
	if (!walk->layout || walk->layout->minor != scratch->process.minor)
		return false;
	walk_thread(walk);
	return true;
}

INTERP_WALKER(ruby, read_ruby);
