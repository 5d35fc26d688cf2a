/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Cpython.bpf - reads the frames of a Python program at the moment of a sample, or before a sleep
 *
 * The interrupted thread does not run meanwhile, and no other thread changes its frames, even in
 * builds without the interpreter's lock. But the thread may be interrupted between two instructions
 * that link a frame into the list. An incomplete list is detected and flagged: the caller of each
 * activation's entry frame must be the current frame of the next outer activation, and each code
 * object must have the type of code objects. Reads are bounded, and a process can harm only its own
 * samples.
 */
#include "daemon/broker/bpf/interp.bpf.h"

#define FRAME_BYTES 112
#define CODE_BYTES 160

/* The layouts by minor version. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * CPYTHON_FREE_THREADED);
	__type(key, __u32);
	__type(value, struct interp_cpython);
} cpython_layouts SEC(".maps");

struct cpython_walk {
	struct walk common;
	const struct interp_cpython *layout;
	__u64 code_type, frame, cframe;
};

/* Reads at most `most` bytes of a str object. Returns their number. */
static __always_inline __u32 read_text(const struct interp_cpython *layout, __u64 object, __u8 *to,
				       __u64 most, __u8 *ret_width, bool *ret_cut)
{
	__u64 head[4] = {}, bytes; /* type, length, hash, state */
	__u32 state;

	*ret_width = 1;
	if (read_user(head, sizeof(head), object + layout->object_type))
		return 0;
	state = cpython_text_state((__u32)head[3]);
	*ret_width = state & 7;
	/* The characters of an object of a subclass of str are elsewhere. */
	if (!(state >> 3 & 1))
		return 0;
	if (head[1] > 1u << 24)
		head[1] = 1u << 24;
	bytes = head[1] * *ret_width;
	*ret_cut = bytes > most;
	if (bytes > most)
		bytes = most;
	bytes = masked(bytes, most);
	if (read_user(to, bytes,
		      object + (state >> 4 & 1 ? layout->text_ascii : layout->text_other)))
		return 0;
	return bytes;
}

/* Writes a description of the code object whose bytes are in scratch->object. */
static __noinline int describe(struct cpython_walk *walk, __u64 object, __u32 id, __u32 first_line)
{
	const struct interp_cpython *layout;
	struct interp_code *code;
	struct scratch *scratch;
	__u64 size = 0, lines;
	__u32 bytes;
	bool cut = false;

	if (!walk)
		return -1;
	scratch = walk->common.scratch;
	layout = walk->layout;
	code = begin_code(scratch, object, id, first_line, INTERP_PYTHON, layout->minor);
	code->name_bytes = read_text(layout, word_at(scratch->object, layout->code_qualname, 0xf8),
				     code->name, INTERP_MAX_NAME, &code->name_width, &cut);
	if (cut)
		code->flags |= INTERP_CODE_NAME_CUT;
	cut = false;
	code->file_bytes = read_text(layout, word_at(scratch->object, layout->code_file, 0xf8),
				     code->file, INTERP_MAX_FILE, &code->file_width, &cut);
	if (cut)
		code->flags |= INTERP_CODE_FILE_CUT;
	lines = word_at(scratch->object, layout->code_lines, 0xf8);
	code->lines_bytes = 0;
	if (read_user(&size, sizeof(size), lines + CPYTHON_SIZE(layout)))
		size = 0;
	if (size > INTERP_MAX_LINES) {
		code->flags |= INTERP_CODE_LINES_CUT;
		size = INTERP_MAX_LINES;
	}
	size = masked(size, INTERP_MAX_LINES);
	if (!read_user(code->lines, size, lines + CPYTHON_BYTES(layout)))
		code->lines_bytes = size;
	bytes = __builtin_offsetof(struct interp_code, lines) +
		masked(code->lines_bytes, INTERP_MAX_LINES);
	return bpf_perf_event_output(walk->common.ctx, &code_outputs, BPF_F_CURRENT_CPU, code,
				     bytes);
}

/* Converts the frame's position from the thread's copy of the bytecode to the code object, which
 * has `size` instructions. A position outside of these is torn: the thread was interrupted between
 * changing the frame's copy and its position. */
static __always_inline void leave_copy(struct cpython_walk *walk, struct interp_frame *frame,
				       __u32 size)
{
	const struct interp_cpython *layout = walk->layout;
	const __u32 index =
		*(const __u32 *)(walk->common.scratch->frame + masked(layout->frame_copy, 0x7c));
	__u64 copies = 0, copy = frame->code + layout->code_start;

	if (index != 0 && (read_user(&copies, 8, frame->code + layout->code_copies) ||
			   read_user(&copy, 8, copies + 8 + 8 * (__u64)index)))
		walk->common.flags |= INTERP_FAULT;
	frame->position -= (__u32)copy - (__u32)frame->code - layout->code_start;
	if (frame->position - layout->code_start >= 2 * size)
		walk->common.flags |= INTERP_TORN;
}

/* Sets the frame's id, and describes its code object if that is new. */
static __always_inline void identify(struct cpython_walk *walk, struct interp_frame *frame)
{
	const struct interp_cpython *layout = walk->layout;
	struct scratch *scratch = walk->common.scratch;
	__u32 first_line;
	__u64 hash = 0, size;

	if (read_user(scratch->object, CODE_BYTES, frame->code)) {
		walk->common.flags |= INTERP_FAULT;
		return;
	}
	if (word_at(scratch->object, layout->object_type, 0x78) != walk->code_type) {
		walk->common.flags |= INTERP_TORN;
		return;
	}
	first_line = *(const __u32 *)(scratch->object + masked(layout->code_first_line, 0x7c));
	size = *(const __u32 *)(scratch->object + masked(CPYTHON_SIZE(layout), 0x7c));
	/* The name is interned, so its hash is always stored, and the id depends on the name
	 * itself, not only on its address. The file and the size distinguish modules, which all
	 * have the same name and may have had the same address and table of lines. */
	if (read_user(&hash, sizeof(hash),
		      word_at(scratch->object, layout->code_name, 0xf8) +
			      CPYTHON_TEXT_HASH(layout))) {
		walk->common.flags |= INTERP_FAULT;
		return;
	}
	hash ^= (word_at(scratch->object, layout->code_lines, 0xf8) >> 3) * 0x9e3779b97f4a7c15ull;
	hash ^= (word_at(scratch->object, layout->code_file, 0xf8) >> 3) * 0xc4ceb9fe1a85ec53ull;
	hash ^= (first_line | size << 32) * 0xff51afd7ed558ccdull;
	frame->id = (__u32)(hash >> 32) ^ (__u32)hash;
	if (layout->frame_copy != INTERP_ABSENT)
		leave_copy(walk, frame, (__u32)size);
	if (is_new_code(&walk->common, frame))
		count_code(&walk->common, frame,
			   describe(walk, frame->code, frame->id, first_line));
}

/* Ends an activation of Python 3.11 after its outermost frame, whose caller must be the current
 * frame of the next outer activation. */
static __always_inline void end_entry(struct cpython_walk *walk)
{
	const struct interp_cpython *layout = walk->layout;
	__u64 previous = 0, top = 0;

	end_run(&walk->common, walk->cframe);
	if (!walk->cframe)
		return;
	if (read_user(&previous, 8, walk->cframe + layout->cframe_previous))
		walk->common.flags |= INTERP_FAULT;
	else if (previous &&
		 (read_user(&top, 8, previous + layout->cframe_frame) || top != walk->frame))
		walk->common.flags |= INTERP_TORN;
	walk->cframe = previous;
}

/* Reads one frame. Returns 1 to end the loop. */
static long step(__u32 index, struct cpython_walk *walk)
{
	const struct interp_cpython *layout = walk->layout;
	struct scratch *scratch = walk->common.scratch;
	const __u64 at = walk->frame;
	struct interp_frame *frame;
	__u8 owner = 0;

	if (at == 0)
		return 1;
	if (read_user(scratch->frame, FRAME_BYTES, at)) {
		walk->common.flags |= INTERP_FAULT;
		return 1;
	}
	if (layout->frame_owner != INTERP_ABSENT)
		owner = scratch->frame[masked(layout->frame_owner, 127)];
	walk->frame = word_at(scratch->frame, layout->frame_previous, 0x78);
	if (owner >= 3 && layout->frame_is_entry == INTERP_ABSENT) {
		/* From 3.12 on, a frame on the C stack ends the run of an activation. */
		end_run(&walk->common, at);
		return 0;
	}
	frame = add_frame(&walk->common);
	if (!frame)
		return 1;
	/* The lowest bits may be a tag. */
	*frame = (struct interp_frame){
		.code = word_at(scratch->frame, layout->frame_code, 0x78) & ~3ull,
	};
	frame->position = word_at(scratch->frame, layout->frame_position, 0x78);
	if (layout->code_start != INTERP_ABSENT)
		frame->position -= (__u32)frame->code;
	walk->common.n++;
	identify(walk, frame);
	if (layout->frame_owner == INTERP_ABSENT)
		end_run(&walk->common, 0);
	else if (layout->frame_is_entry != INTERP_ABSENT &&
		 scratch->frame[masked(layout->frame_is_entry, 127)])
		end_entry(walk);
	return 0;
}

/* Returns the interpreter's state of the current thread, or 0. Up to 3.11, the runtime has the
 * state of the thread that holds the lock, which may be this thread. Otherwise, the state is the
 * value of the runtime's key in the thread's own data. */
static __always_inline __u64 find_thread(const struct interp_cpython *layout,
					 const struct interp_process *process, __u64 fsbase)
{
	const __u64 runtime = process->addresses[INTERP_PYTHON_RUNTIME];
	__u64 state = 0, id = 0;
	__u32 key[2] = {};

	if (layout->runtime_current != INTERP_ABSENT &&
	    !read_user(&state, 8, runtime + layout->runtime_current) && state &&
	    !read_user(&id, 8, state + layout->thread_id) && id == fsbase)
		return state;
	if (read_user(key, sizeof(key), runtime + layout->runtime_tss) || !key[0])
		return 0;
	return process->addresses[INTERP_PYTHON_MUSL] ? read_musl_specific(fsbase, key[1])
						      : read_specific(fsbase, key[1]);
}

/* Reads the frames of the current thread into the sample. */
static __always_inline void walk_thread(struct cpython_walk *walk)
{
	struct task_struct___kernel *task = (struct task_struct___kernel *)bpf_get_current_task();
	const struct interp_process *process = &walk->common.scratch->process;
	const struct interp_cpython *layout = walk->layout;
	__u64 thread = find_thread(layout, process, BPF_CORE_READ(task, thread.fsbase));

	if (!thread) {
		walk->common.flags |= INTERP_NO_THREAD;
		return;
	}
	if (layout->thread_cframe != INTERP_ABSENT
		    ? read_user(&walk->cframe, 8, thread + layout->thread_cframe) ||
			      read_user(&walk->frame, 8, walk->cframe + layout->cframe_frame)
		    : read_user(&walk->frame, 8, thread + layout->thread_frame)) {
		walk->common.flags |= INTERP_FAULT;
		return;
	}
	/* The list also has entry frames, which are not counted, so it may be twice as long. */
	bpf_loop(2 * INTERP_MAX_FRAMES + 1, step, walk, 0);
	if (walk->frame && !(walk->common.flags & (INTERP_FAULT | INTERP_DEEPER)))
		walk->common.flags |= INTERP_DEEPER;
	walk->common.flags |= INTERP_WALKED;
}

static __always_inline bool read_python(struct cpython_walk *walk, void *ctx)
{
	struct scratch *scratch = get_scratch();
	__u32 minor;

	if (!scratch)
		return false;
	minor = scratch->process.minor;
	*walk = (struct cpython_walk){
		.common = begin_walk(ctx, scratch),
		.layout = bpf_map_lookup_elem(&cpython_layouts, &minor),
		.code_type = scratch->process.addresses[INTERP_PYTHON_CODE_TYPE],
	};
	if (!walk->layout || walk->layout->minor != minor)
		return false;
	walk_thread(walk);
	return true;
}

INTERP_WALKER(cpython, read_python);
