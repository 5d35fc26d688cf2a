/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Cpython.bpf - reads the frames of a Python program at the moment of a sample, or before a sleep
 *
 * The interrupted thread does not run meanwhile, so its frames change only if another thread
 * changes them, which the interpreter's lock prevents. But the thread may be interrupted between
 * two instructions that link a frame. A list that shows this is flagged, and never looks whole:
 * each activation's entry frame must be the next activation's caller, and each code object must
 * be one. Reads are bounded, and a process can harm only its own samples.
 *
 * Loaded and attached by profd, which owns the maps. Needs Linux 5.17 (bpf_loop).
 */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <linux/errno.h>
#include <stdbool.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "daemon/interp-protocol.h"

/* The kernel's structures, as far as they are used; libbpf finds the offsets, and ignores the
 * suffix. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct super_block___kernel {
	__u32 s_dev;
};
struct inode___kernel {
	unsigned long i_ino;
	struct super_block___kernel *i_sb;
};
struct file___kernel {
	struct inode___kernel *f_inode;
};
struct mm_struct___kernel {
	unsigned long start_stack;
	struct file___kernel *exe_file;
};
struct perf_event___kernel {
	__u64 id;
	struct perf_event___kernel *parent;
};
struct bpf_perf_event_data_kern___kernel {
	struct perf_event___kernel *event;
};
struct thread_struct___kernel {
	unsigned long fsbase;
};
struct task_struct___kernel {
	int tgid;
	struct mm_struct___kernel *mm;
	struct task_struct___kernel *real_parent, *group_leader;
	struct thread_struct___kernel thread;
};
#pragma clang attribute pop

#define FRAME_BYTES 112
#define CODE_BYTES 144

/* glibc's struct pthread on x86-64: two levels of {sequence, value} pairs (nptl/descr.h) */
#define PTHREAD_SPECIFIC 0x510
#define KEYS_PER_BLOCK 32
#define KEY_BYTES 16
#define KEY_VALUE 8

/* Walks before sleeps take about a fiftieth of the time. The chance of each adapts to it. */
#define SLEEPS_INTERVAL_NS 10000000ull
#define SLEEPS_BUDGET_NS (SLEEPS_INTERVAL_NS / 50)
#define SLEEPS_ALL 65536ull /* the chance at which every sleep is walked */
#define SLEEPS_FEWEST 64ull

struct described_key {
	__u64 code;
	__u32 memory; /* the process's memory: changes with exec, and differs after fork */
	__u32 id;
};

struct scratch {
	struct interp_sample sample;
	struct interp_code code;
	__u8 frame[128], object[256];
};

/* An entry is only used for the memory that it was made for, so that ended processes may remain
 * until others need the room. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, struct interp_process);
} processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, struct interp_file);
	__type(value, struct interp_process);
} files SEC(".maps");

/* By minor version. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 32);
	__type(key, __u32);
	__type(value, struct interp_cpython);
} layouts SEC(".maps");

/* The events, by CPU, that write samples and code objects into the CPU's ring. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} sample_outputs SEC(".maps"), code_outputs SEC(".maps");

/* Code objects that were described. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct described_key);
	__type(value, __u8);
} described SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct interp_counts);
} counts SEC(".maps");

struct walk {
	void *ctx;
	struct scratch *scratch;
	const struct interp_cpython *layout;
	__u64 code_type, frame, cframe;
	__u32 pid, n, n_described, flags;
	/* As in struct described_key. Not next to `n`: the compiler would set both at once, and the
	 * verifier would lose track of `n`. */
	__u32 memory;
};

/* Bounds a number in a way that the compiler cannot remove and the verifier understands. */
static __always_inline __u64 masked(__u64 number, __u64 mask)
{
	asm volatile("" : "+r"(number));
	return number & mask;
}

static __always_inline __u64 word_at(const __u8 *bytes, __u64 offset, __u64 mask)
{
	return *(const __u64 *)(bytes + masked(offset, mask));
}

static __always_inline long read_user(void *to, __u32 size, __u64 from)
{
	return bpf_probe_read_user(to, size, (const void *)from);
}

/* Reads at most `most` bytes of a str object. Returns their number. */
static __always_inline __u32 read_text(const struct interp_cpython *layout, __u64 object, __u8 *to,
				       __u64 most, __u8 *ret_width, bool *ret_cut)
{
	__u64 head[5] = {}, bytes;
	__u32 state;

	*ret_width = 1;
	if (read_user(head, sizeof(head), object))
		return 0;
	state = (__u32)head[4];
	/* Two bits precede the width, or 16 in newer sources; a width is never 0. */
	if (!(state >> 2 & 7))
		state >>= 14;
	*ret_width = state >> 2 & 7;
	/* The characters of a subclass's text are elsewhere. */
	if (!(state >> 5 & 1))
		return 0;
	if (head[2] > 1u << 24)
		head[2] = 1u << 24;
	bytes = head[2] * *ret_width;
	*ret_cut = bytes > most;
	if (bytes > most)
		bytes = most;
	bytes = masked(bytes, most);
	if (read_user(to, bytes,
		      object + (state >> 6 & 1 ? layout->text_ascii : layout->text_other)))
		return 0;
	return bytes;
}

/* Writes a description of the code object whose bytes are in scratch->object. */
static __noinline int describe(struct walk *walk, __u64 object, __u32 id, __u32 first_line)
{
	const struct interp_cpython *layout;
	struct interp_code *code;
	struct scratch *scratch;
	__u64 size = 0, lines;
	__u32 bytes;
	bool cut = false;

	if (!walk)
		return -1;
	scratch = walk->scratch;
	layout = walk->layout;
	code = &scratch->code;
	code->record = INTERP_RECORD_CODE;
	code->pid = walk->pid;
	code->code = object;
	code->id = id;
	code->first_line = first_line;
	code->minor = layout->minor;
	code->flags = 0;
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
	/* a bytes object: reference count, type, size, hash, bytes */
	if (read_user(&size, sizeof(size), lines + 16))
		size = 0;
	if (size > INTERP_MAX_LINES) {
		code->flags |= INTERP_CODE_LINES_CUT;
		size = INTERP_MAX_LINES;
	}
	size = masked(size, INTERP_MAX_LINES);
	if (!read_user(code->lines, size, lines + 32))
		code->lines_bytes = size;
	bytes = __builtin_offsetof(struct interp_code, lines) +
		masked(code->lines_bytes, INTERP_MAX_LINES);
	return bpf_perf_event_output(walk->ctx, &code_outputs, BPF_F_CURRENT_CPU, code, bytes);
}

/* Sets the frame's id, and describes its code object if that is new. */
static __always_inline void identify(struct walk *walk, struct interp_frame *frame)
{
	const struct interp_cpython *layout = walk->layout;
	struct scratch *scratch = walk->scratch;
	const __u8 one = 1;
	struct described_key key;
	__u32 first_line, zero = 0;
	__u64 hash = 0;
	struct interp_counts *count;

	if (read_user(scratch->object, CODE_BYTES, frame->code)) {
		walk->flags |= INTERP_FAULT;
		return;
	}
	if (*(const __u64 *)(scratch->object + 8) != walk->code_type) {
		walk->flags |= INTERP_TORN;
		return;
	}
	first_line = *(const __u32 *)(scratch->object + masked(layout->code_first_line, 0x7c));
	/* The name is interned, so its hash is always there: the identity includes what the name
	 * is, not only where. */
	if (read_user(&hash, sizeof(hash),
		      word_at(scratch->object, layout->code_name, 0x78) + 24)) {
		walk->flags |= INTERP_FAULT;
		return;
	}
	hash ^= (word_at(scratch->object, layout->code_lines, 0xf8) >> 3) * 0x9e3779b97f4a7c15ull;
	hash ^= first_line * 0xff51afd7ed558ccdull;
	frame->id = (__u32)(hash >> 32) ^ (__u32)hash;
	key = (struct described_key){ frame->code, walk->memory, frame->id };
	if (bpf_map_lookup_elem(&described, &key))
		return;
	count = bpf_map_lookup_elem(&counts, &zero);
	if (!count)
		return;
	if (walk->n_described >= INTERP_MAX_NEW_CODES) {
		scratch->sample.n_undescribed++;
		return;
	}
	walk->n_described++;
	if (describe(walk, frame->code, frame->id, first_line)) {
		count->codes_lost++;
		return;
	}
	count->codes++;
	bpf_map_update_elem(&described, &key, &one, BPF_ANY);
}

/* Marks the last frame as the outermost of its activation, which is at this address. */
static __always_inline void end_run(struct walk *walk, __u64 at)
{
	struct interp_frame *last;

	if (walk->n == 0)
		return;
	last = &walk->scratch->sample.frames[masked(walk->n - 1, INTERP_MAX_FRAMES - 1)];
	if (last->flags & INTERP_FRAME_ENDS_RUN)
		return;
	last->flags |= INTERP_FRAME_ENDS_RUN;
	last->at = at;
}

/* 3.11: the frame is the outermost of an activation; the activation before it must be that of its
 * caller. */
static __always_inline void end_entry(struct walk *walk)
{
	const struct interp_cpython *layout = walk->layout;
	__u64 previous = 0, top = 0;

	end_run(walk, walk->cframe);
	if (!walk->cframe)
		return;
	if (read_user(&previous, 8, walk->cframe + layout->cframe_previous))
		walk->flags |= INTERP_FAULT;
	else if (previous &&
		 (read_user(&top, 8, previous + layout->cframe_frame) || top != walk->frame))
		walk->flags |= INTERP_TORN;
	walk->cframe = previous;
}

/* Reads one frame. Returns 1 to end the loop. */
static long step(__u32 index, struct walk *walk)
{
	const struct interp_cpython *layout = walk->layout;
	struct scratch *scratch = walk->scratch;
	const __u64 at = walk->frame;
	struct interp_frame *frame;
	__u8 owner = 0;

	if (at == 0)
		return 1;
	if (read_user(scratch->frame, FRAME_BYTES, at)) {
		walk->flags |= INTERP_FAULT;
		return 1;
	}
	if (layout->frame_owner != INTERP_ABSENT)
		owner = scratch->frame[masked(layout->frame_owner, 127)];
	walk->frame = word_at(scratch->frame, layout->frame_previous, 0x78);
	if (owner >= 3 && layout->frame_is_entry == INTERP_ABSENT) {
		/* From 3.12 on, a frame on the C stack ends the run of an activation. */
		end_run(walk, at);
		return 0;
	}
	if (walk->n >= INTERP_MAX_FRAMES) {
		walk->flags |= INTERP_DEEPER;
		return 1;
	}
	frame = &scratch->sample.frames[masked(walk->n, INTERP_MAX_FRAMES - 1)];
	/* 3.14 keeps a tag in the lowest bits. */
	*frame = (struct interp_frame){
		.code = word_at(scratch->frame, layout->frame_code, 0x78) & ~3ull,
	};
	frame->position = word_at(scratch->frame, layout->frame_position, 0x78);
	if (layout->code_start != INTERP_ABSENT)
		frame->position -= (__u32)frame->code;
	walk->n++;
	identify(walk, frame);
	if (layout->frame_owner == INTERP_ABSENT)
		end_run(walk, 0);
	else if (layout->frame_is_entry != INTERP_ABSENT &&
		 scratch->frame[masked(layout->frame_is_entry, 127)])
		end_entry(walk);
	return 0;
}

/* Returns the interpreter of the current process: its own entry, that of the process that it was
 * forked from, or that of the file that it executes. */
static __always_inline struct interp_process *find_process(struct task_struct___kernel *task,
							   __u32 pid, __u32 *memory, __u32 *flags)
{
	struct interp_process *own, *other;
	struct mm_struct___kernel *mm = BPF_CORE_READ(task, mm);
	struct interp_file key = {};
	__u32 parent;
	__u64 stack;

	if (!mm)
		return 0;
	stack = BPF_CORE_READ(mm, start_stack);
	*memory = pid ^ (__u32)(stack >> 4);
	own = bpf_map_lookup_elem(&processes, &pid);
	if (own && own->start_stack == stack)
		return own->runtime ? own : 0;
	parent = BPF_CORE_READ(task, group_leader, real_parent, tgid);
	other = bpf_map_lookup_elem(&processes, &parent);
	if (other && other->start_stack == stack) {
		bpf_map_update_elem(&processes, &pid, other, BPF_ANY);
		*flags = INTERP_FORKED;
		return other->runtime ? other : 0;
	}
	key.inode = BPF_CORE_READ(mm, exe_file, f_inode, i_ino);
	key.dev = BPF_CORE_READ(mm, exe_file, f_inode, i_sb, s_dev);
	other = bpf_map_lookup_elem(&files, &key);
	if (other)
		*flags = INTERP_BY_FILE;
	return other;
}

/* Returns the interpreter's state of the current thread, or 0. Up to 3.11 this is the state of the
 * thread that holds the lock, if it is this thread; else the value of the runtime's key in the
 * thread's own data. */
static __always_inline __u64 find_thread(const struct interp_cpython *layout, __u64 runtime,
					 __u64 fsbase)
{
	__u64 state = 0, id = 0, block = 0;
	__u32 key[2] = {};

	if (layout->runtime_current != INTERP_ABSENT &&
	    !read_user(&state, 8, runtime + layout->runtime_current) && state &&
	    !read_user(&id, 8, state + layout->thread_id) && id == fsbase)
		return state;
	if (read_user(key, sizeof(key), runtime + layout->runtime_tss) || !key[0] ||
	    key[1] >= KEYS_PER_BLOCK * KEYS_PER_BLOCK)
		return 0;
	if (read_user(&block, 8, fsbase + PTHREAD_SPECIFIC + 8 * (key[1] / KEYS_PER_BLOCK)) ||
	    !block || read_user(&state, 8, block + key[1] % KEYS_PER_BLOCK * KEY_BYTES + KEY_VALUE))
		return 0;
	return state;
}

/* Fills in the sample. */
static __always_inline void walk_thread(struct walk *walk, const struct interp_process *process,
					__u64 fsbase)
{
	const struct interp_cpython *layout = walk->layout;
	__u64 thread = find_thread(layout, process->runtime, fsbase);

	if (!thread) {
		walk->flags |= INTERP_NO_THREAD;
		return;
	}
	if (layout->thread_cframe != INTERP_ABSENT
		    ? read_user(&walk->cframe, 8, thread + layout->thread_cframe) ||
			      read_user(&walk->frame, 8, walk->cframe + layout->cframe_frame)
		    : read_user(&walk->frame, 8, thread + layout->thread_frame)) {
		walk->flags |= INTERP_FAULT;
		return;
	}
	/* Entry frames do not count as frames, so there may be twice as many. */
	bpf_loop(2 * INTERP_MAX_FRAMES + 1, step, walk, 0);
	if (walk->frame && !(walk->flags & (INTERP_FAULT | INTERP_DEEPER)))
		walk->flags |= INTERP_DEEPER;
	walk->flags |= INTERP_WALKED;
}

/* Returns the id (PERF_EVENT_IOC_ID) of the event, or of the event that it is inherited from. */
static __always_inline __u64 event_id(void *ctx)
{
	struct perf_event___kernel *event =
		BPF_CORE_READ((struct bpf_perf_event_data_kern___kernel *)ctx, event);
	struct perf_event___kernel *parent = BPF_CORE_READ(event, parent);

	return parent ? BPF_CORE_READ(parent, id) : BPF_CORE_READ(event, id);
}

/* Reads the frames of the current thread into scratch->sample. Returns the size of the record; 0 if
 * its process has no interpreter. */
static __always_inline __u32 read_frames(void *ctx, struct scratch *scratch,
					 struct interp_counts *count)
{
	struct task_struct___kernel *task = (struct task_struct___kernel *)bpf_get_current_task();
	const __u32 pid = bpf_get_current_pid_tgid() >> 32;
	const struct interp_cpython *layout;
	const struct interp_process *process;
	__u32 minor, memory = 0, flags = 0, bytes;
	__u64 begin_ns;

	process = find_process(task, pid, &memory, &flags);
	if (!process)
		return 0;
	minor = process->minor;
	layout = bpf_map_lookup_elem(&layouts, &minor);
	if (!layout || layout->minor != minor)
		return 0;
	begin_ns = bpf_ktime_get_ns();
	scratch->sample.minor = minor;
	scratch->sample.n_undescribed = 0;

	struct walk walk = { .ctx = ctx,
			     .scratch = scratch,
			     .layout = layout,
			     .code_type = process->code_type,
			     .pid = pid,
			     .memory = memory,
			     .flags = flags };

	walk_thread(&walk, process, BPF_CORE_READ(task, thread.fsbase));
	scratch->sample.n = walk.n;
	scratch->sample.flags = walk.flags;
	count->walked++;
	count->walk_ns += bpf_ktime_get_ns() - begin_ns;
	bytes = masked(walk.n, 2 * INTERP_MAX_FRAMES - 1);
	if (bytes > INTERP_MAX_FRAMES)
		bytes = INTERP_MAX_FRAMES;
	return __builtin_offsetof(struct interp_sample, frames) +
	       bytes * sizeof(struct interp_frame);
}

/* Returns 0 if the sample was written, or is lost; 1: the kernel has to write it. */
SEC("perf_event")
int cpython_sample(struct bpf_perf_event_data *ctx)
{
	struct interp_counts *count;
	struct scratch *scratch;
	__u32 zero = 0, bytes;
	long error;

	count = bpf_map_lookup_elem(&counts, &zero);
	scratch = bpf_map_lookup_elem(&scratches, &zero);
	if (!count || !scratch)
		return 1;
	count->samples++;
	bytes = read_frames(ctx, scratch, count);
	if (!bytes)
		return 1;
	scratch->sample.record = INTERP_RECORD_SAMPLE;
	scratch->sample.period = ctx->sample_period;
	scratch->sample.event = event_id(ctx);
	error = bpf_perf_event_output(ctx, &sample_outputs, BPF_F_CURRENT_CPU, &scratch->sample,
				      bytes);
	if (error)
		count->lost++;
	/* A full ring counts what it loses; the kernel's own record would be lost, too. */
	return error && error != -ENOSPC;
}

/* Fields of the tracepoint, in the order of its format. */
struct sched_switch {
	__u64 common;
	char prev_comm[16];
	int prev_pid, prev_prio;
	long prev_state;
};

#define STATE_SLEEPS 15 /* S, D, T, t; not preempted, exiting or parked */

/* Returns whether to read the frames before a sleep. The choice is random: it depends neither on
 * the place nor on how long the thread ran before, so each caller keeps its share. */
static __always_inline bool is_chosen(struct interp_counts *count, __u64 now_ns)
{
	__u64 chance = count->sleeps_chance ? count->sleeps_chance : SLEEPS_ALL;

	if (now_ns >= count->sleeps_end_ns) {
		if (count->sleeps_walk_ns > SLEEPS_BUDGET_NS && chance > SLEEPS_FEWEST)
			chance /= 2;
		else if (count->sleeps_walk_ns < SLEEPS_BUDGET_NS / 2 && chance < SLEEPS_ALL)
			chance *= 2;
		count->sleeps_chance = chance;
		count->sleeps_walk_ns = 0;
		count->sleeps_end_ns = now_ns + SLEEPS_INTERVAL_NS;
	}
	return count->sleeps_walk_ns <= 4 * SLEEPS_BUDGET_NS &&
	       (bpf_get_prandom_u32() & (SLEEPS_ALL - 1)) < chance;
}

/* A thread may sleep very often, so the time of the walks is limited. Returns 1, because 0 would
 * hide the event from all others. While this runs, the kernel drops the samples of events whose
 * interrupts cannot be masked, hardware events on most machines. */
SEC("tracepoint")
int cpython_sleep(struct sched_switch *ctx)
{
	struct interp_counts *count;
	struct scratch *scratch;
	__u32 zero = 0, bytes;
	__u64 before_ns;

	if (!(ctx->prev_state & STATE_SLEEPS))
		return 1;
	count = bpf_map_lookup_elem(&counts, &zero);
	scratch = bpf_map_lookup_elem(&scratches, &zero);
	if (!count || !scratch || !is_chosen(count, bpf_ktime_get_ns()))
		return 1;
	before_ns = count->walk_ns;
	bytes = read_frames(ctx, scratch, count);
	count->sleeps_walk_ns += count->walk_ns - before_ns;
	if (!bytes)
		return 1;
	scratch->sample.record = INTERP_RECORD_SLEEP;
	scratch->sample.period = scratch->sample.event = 0;
	bpf_perf_event_output(ctx, &code_outputs, BPF_F_CURRENT_CPU, &scratch->sample, bytes);
	return 1;
}

char cpython_license[] SEC("license") = "Dual BSD/GPL";
