/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Interp.bpf - definitions that the programs that read interpreters share
 *
 * The programs of interp.bpf.c find out whether the current process has an interpreter, and of
 * which family. They call the family's walker, which does not return to them: it reads the frames
 * into the sample, and ends with write_sample() or write_sleep().
 */
#pragma once

#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <linux/errno.h>
#include <stdbool.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "daemon/interp-protocol.h"

/* Empty in the file that defines the maps. */
#ifndef SHARED
#define SHARED extern
#endif

/* The members of the kernel's structures that are used. libbpf finds their offsets, and ignores the
 * suffix ___kernel. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct mm_struct___kernel {
	unsigned long start_stack;
};
struct perf_event___kernel {
	__u64 id;
	struct perf_event___kernel *parent;
};
struct bpf_perf_event_data_kern___kernel {
	struct perf_event___kernel *event;
};
struct pt_regs___kernel {
	unsigned long sp, bp, r14, r15;
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

struct described_key {
	__u64 code;
	/* identifies the process's memory: changes with exec, and differs after fork */
	__u32 memory;
	__u32 id;
};

/* Keys with the same hash. Unused keys are 0. */
#define SET_KEYS 4u
struct described_set {
	struct described_key keys[SET_KEYS];
};
#define DESCRIBED_BITS 14

/* The programs' state while they read a sample; each CPU has its own. */
struct scratch {
	struct interp_sample sample;
	struct interp_code code;
	__u8 frame[512], object[256], staged[1024], window[512];
	/* interpreter of the current process */
	struct interp_process process;
	__u64 begin_ns;
	__u32 memory; /* as in struct described_key */
	__u32 flags;  /* enum interp_flags */
	__u64 thread; /* the interpreter's state of the current thread */
	/* Values that loops change, which the verifier would follow if they were on the stack. */
	__u32 runs, activations;
	__s32 skipped; /* index of the activation of the next run; negative: the run has none */
	/* Source addresses of the bytes in `frame` and `window`, if these hold several frames. */
	__u64 frames_at, window_at;
	__u32 frames_bytes, window_bytes;
	/* PHP: generators: number of generators in `staged`. fibers: number of fibers whose last
	 * frame was read. is_open: the outermost function of the current activation is still to be
	 * read */
	__u32 generators, fibers, is_open;
	/* V8: maps that are known to be those of a SharedFunctionInfo and of a Script */
	__u64 info_map, script_map;
	__u64 script; /* V8: identifies the function's script in the process */
	__u32 parts;  /* V8: parts of texts that may still be counted */
};

/* The events, by CPU, that write samples and code objects into the CPU's ring. */
SHARED struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} sample_outputs SEC(".maps"), code_outputs SEC(".maps");

/* Code objects that were described. In a full set, a new key replaces a random one. (An LRU hash
 * takes 20 times as long to make.) If two CPUs write to the same place at once, the key there may
 * have the code from one CPU and the id from the other; no code object has such a key. */
SHARED struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << DESCRIBED_BITS);
	__type(key, __u32);
	__type(value, struct described_set);
} described SEC(".maps");

SHARED struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

SHARED struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct interp_counts);
} counts SEC(".maps");

/* The first fields of the tracepoint sched_switch, in the order of its format. */
struct sched_switch {
	__u64 common;
	char prev_comm[16];
	int prev_pid, prev_prio;
	long prev_state;
};

/* The data that all walks share. */
struct walk {
	void *ctx;
	struct scratch *scratch;
	__u32 pid, n, n_described, flags;
	/* as in struct described_key; not next to `n`, because the compiler would then set both at
	 * once, and the verifier would lose track of `n` */
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

/* glibc's struct pthread on x86-64: pointers to blocks of {sequence, value} pairs (nptl/descr.h) */
#define PTHREAD_SPECIFIC 0x510
#define KEYS_PER_BLOCK 32
#define KEY_BYTES 16
#define KEY_VALUE 8

/* Returns the value that a key has in the thread (pthread_getspecific()); 0: none. */
static __always_inline __u64 read_specific(__u64 fsbase, __u32 key)
{
	__u64 block = 0, value = 0;

	if (key >= KEYS_PER_BLOCK * KEYS_PER_BLOCK ||
	    read_user(&block, 8, fsbase + PTHREAD_SPECIFIC + 8 * (key / KEYS_PER_BLOCK)) ||
	    !block || read_user(&value, 8, block + key % KEYS_PER_BLOCK * KEY_BYTES + KEY_VALUE))
		return 0;
	return value;
}

/* musl from 1.2 on, x86-64: offset in struct pthread of the pointer to the values
 * (src/internal/pthread_impl.h) */
#define MUSL_SPECIFIC 0x80
#define MUSL_KEYS 128

/* Like read_specific(), for musl. */
static __always_inline __u64 read_musl_specific(__u64 fsbase, __u32 key)
{
	__u64 values = 0, value = 0;

	if (key >= MUSL_KEYS || read_user(&values, 8, fsbase + MUSL_SPECIFIC) || !values ||
	    read_user(&value, 8, values + 8 * (__u64)key))
		return 0;
	return value;
}

/* glibc on x86-64: the thread's table of thread-local blocks, {address, address to free} by
 * module. */
#define THREAD_BLOCKS 8
#define BLOCK_BYTES 16
#define MAX_MODULES 4096u
#define NO_BLOCK (~0ull)

/* Returns the thread's block of a module; 0: none. `of_module`: address of the module's number. */
static __always_inline __u64 read_thread_block(__u64 fsbase, __u64 of_module)
{
	__u64 module = 0, blocks = 0, block = 0;

	if (read_user(&module, 8, of_module) || module == 0 || module > MAX_MODULES ||
	    read_user(&blocks, 8, fsbase + THREAD_BLOCKS) ||
	    read_user(&block, 8, blocks + BLOCK_BYTES * module) || block == NO_BLOCK)
		return 0;
	return block;
}

static __always_inline struct scratch *get_scratch(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&scratches, &zero);
}

static __always_inline struct interp_counts *get_counts(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&counts, &zero);
}

static __always_inline struct walk begin_walk(void *ctx, struct scratch *scratch)
{
	scratch->sample.n_undescribed = scratch->sample.n_more_runs = 0;
	return (struct walk){ .ctx = ctx,
			      .scratch = scratch,
			      .pid = bpf_get_current_pid_tgid() >> 32,
			      .memory = scratch->memory,
			      .flags = scratch->flags };
}

/* Begins the description of a code object in scratch->code, without names. */
static __always_inline struct interp_code *begin_code(struct scratch *scratch, __u64 object,
						      __u32 id, __u32 first_line, __u8 family,
						      __u8 minor)
{
	struct interp_code *code = &scratch->code;

	code->record = INTERP_RECORD_CODE;
	code->pid = bpf_get_current_pid_tgid() >> 32;
	code->code = object;
	code->id = id;
	code->first_line = first_line;
	code->family = family;
	code->minor = minor;
	code->flags = code->kind = code->is_singleton = 0;
	code->name_width = code->file_width = INTERP_UTF_8;
	code->name_bytes = code->file_bytes = code->lines_bytes = code->owner_bytes = 0;
	return code;
}

/* Returns the walk's next frame, or NULL if there is no room. */
static __always_inline struct interp_frame *add_frame(struct walk *walk)
{
	if (walk->n >= INTERP_MAX_FRAMES) {
		walk->flags |= INTERP_DEEPER;
		return 0;
	}
	return &walk->scratch->sample.frames[masked(walk->n, INTERP_MAX_FRAMES - 1)];
}

/* Marks the last frame as the outermost of its activation. `at`: address of the activation. */
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

/* Returns 1 if the code object was described. */
int is_described(__u64 code, __u32 memory, __u32 id);
/* Makes is_described() return 1 for the code object, until another one replaces its key. */
int set_described(__u64 code, __u32 memory, __u32 id);

/* Returns whether the frame's code object must be described now. */
static __always_inline bool is_new_code(struct walk *walk, const struct interp_frame *frame)
{
	if (is_described(frame->code, walk->memory, frame->id))
		return false;
	if (walk->n_described >= INTERP_MAX_NEW_CODES) {
		walk->scratch->sample.n_undescribed++;
		return false;
	}
	walk->n_described++;
	return true;
}

/* Counts a description as written or, if `error` is not 0, as lost. Stores that a written one was
 * described. */
static __always_inline void count_code(const struct walk *walk, const struct interp_frame *frame,
				       int error)
{
	struct interp_counts *count = get_counts();

	if (!count)
		return;
	if (error) {
		count->codes_lost++;
		return;
	}
	count->codes++;
	set_described(frame->code, walk->memory, frame->id);
}

/* Ends a walk. Returns the size of the record. */
static __always_inline __u32 end_walk(const struct walk *walk, struct interp_counts *count)
{
	struct scratch *scratch = walk->scratch;
	__u32 n = masked(walk->n, 2 * INTERP_MAX_FRAMES - 1);

	scratch->sample.family = scratch->process.family;
	scratch->sample.minor = scratch->process.minor;
	scratch->sample.n = walk->n;
	scratch->sample.flags = walk->flags;
	count->walked++;
	count->walk_ns += bpf_ktime_get_ns() - scratch->begin_ns;
	if (n > INTERP_MAX_FRAMES)
		n = INTERP_MAX_FRAMES;
	return __builtin_offsetof(struct interp_sample, frames) + n * sizeof(struct interp_frame);
}

/* Returns the id (PERF_EVENT_IOC_ID) of the event, or of the event that it is inherited from. */
static __always_inline __u64 event_id(void *ctx)
{
	struct perf_event___kernel *event =
		BPF_CORE_READ((struct bpf_perf_event_data_kern___kernel *)ctx, event);
	struct perf_event___kernel *parent = BPF_CORE_READ(event, parent);

	return parent ? BPF_CORE_READ(parent, id) : BPF_CORE_READ(event, id);
}

/* Returns 0 if the sample was written, or is lost; 1: the kernel has to write it. */
static __always_inline int write_sample(struct bpf_perf_event_data *ctx, const struct walk *walk)
{
	struct interp_sample *sample = &walk->scratch->sample;
	struct interp_counts *count = get_counts();
	__u32 bytes;
	long error;

	if (!count)
		return 1;
	bytes = end_walk(walk, count);
	sample->record = INTERP_RECORD_SAMPLE;
	sample->period = ctx->sample_period;
	sample->event = event_id(ctx);
	error = bpf_perf_event_output(ctx, &sample_outputs, BPF_F_CURRENT_CPU, sample, bytes);
	if (error)
		count->lost++;
	/* A full ring counts the lost sample; the kernel's own sample would be lost, too. */
	return error && error != -ENOSPC;
}

/* Returns 1, because 0 would hide the event from everybody else who traces it. */
static __always_inline int write_sleep(struct sched_switch *ctx, const struct walk *walk)
{
	struct interp_sample *sample = &walk->scratch->sample;
	struct interp_counts *count = get_counts();
	__u64 before_ns;
	__u32 bytes;

	if (!count)
		return 1;
	before_ns = count->walk_ns;
	bytes = end_walk(walk, count);
	count->sleeps_walk_ns += count->walk_ns - before_ns;
	sample->record = INTERP_RECORD_SLEEP;
	sample->period = sample->event = 0;
	bpf_perf_event_output(ctx, &code_outputs, BPF_F_CURRENT_CPU, sample, bytes);
	return 1;
}

/* The programs of a family. `read`: fills in a struct FAMILY_walk, which begins with a struct walk.
 * It returns false if it cannot walk, for example because the version has no layout. */
#define INTERP_WALKER(family, read)                                            \
	SEC("perf_event") int family##_sample(struct bpf_perf_event_data *ctx) \
	{                                                                      \
		struct family##_walk walk;                                     \
                                                                               \
		return !read(&walk, ctx) || write_sample(ctx, &walk.common);   \
	}                                                                      \
	SEC("tracepoint") int family##_sleep(struct sched_switch *ctx)         \
	{                                                                      \
		struct family##_walk walk;                                     \
                                                                               \
		return !read(&walk, ctx) || write_sleep(ctx, &walk.common);    \
	}                                                                      \
	char family##_license[] SEC("license") = "Dual BSD/GPL"
