/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Interp.bpf - finds the interpreter of the current process at a sample, or before a sleep
 *
 * Loaded and attached by profd, which owns the maps. Needs Linux 5.17 (bpf_loop).
 */
#define SHARED
#include "daemon/broker/bpf/interp.bpf.h"

/* Walks before sleeps are limited to about 2 % of the time, by adapting the chance that a
 * sleep is walked. */
#define SLEEPS_INTERVAL_NS 10000000ull
#define SLEEPS_BUDGET_NS (SLEEPS_INTERVAL_NS / 50)
#define SLEEPS_ALL 65536ull /* the chance at which every sleep is walked */
#define SLEEPS_FEWEST 64ull

/* An entry is used only for the process memory that it was made for, so entries of ended processes
 * may stay until new entries need the room. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, struct interp_process);
} processes SEC(".maps");

/* The walkers, by family. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, INTERP_FAMILIES);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} sample_walkers SEC(".maps"), sleep_walkers SEC(".maps");

/* Returns the only set that may contain the code object. */
static __always_inline struct described_set *find_set(__u64 code, __u32 memory, __u32 id)
{
	const __u64 mixed = (code ^ (__u64)memory << 32 ^ id) * 0x9e3779b97f4a7c15ull;
	const __u32 set = mixed >> (64 - DESCRIBED_BITS);

	return bpf_map_lookup_elem(&described, &set);
}

/* These two functions are not static, because the kernel verifies a global function once, but a
 * static one for each state of its callers. */
__noinline int is_described(__u64 code, __u32 memory, __u32 id)
{
	const struct described_set *set = find_set(code, memory, id);

	for (__u32 i = 0; set && i < SET_KEYS; i++)
		if (set->keys[i].code == code && set->keys[i].memory == memory &&
		    set->keys[i].id == id)
			return 1;
	return 0;
}

__noinline int set_described(__u64 code, __u32 memory, __u32 id)
{
	struct described_set *set = find_set(code, memory, id);
	__u32 place = bpf_get_prandom_u32();

	for (__u32 i = 0; set && i < SET_KEYS; i++)
		if (set->keys[i].code == 0)
			place = i;
	if (set)
		set->keys[masked(place, SET_KEYS - 1)] = (struct described_key){ code, memory, id };
	return 0;
}

/* Returns the interpreter of the current process, from the entry of the process or of the process
 * that it was forked from. */
static __always_inline struct interp_process *find_process(__u32 *memory, __u32 *flags)
{
	struct task_struct___kernel *task = (struct task_struct___kernel *)bpf_get_current_task();
	const __u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct interp_process *own, *other;
	struct mm_struct___kernel *mm = BPF_CORE_READ(task, mm);
	__u32 parent;
	__u64 stack;

	if (!mm)
		return 0;
	stack = BPF_CORE_READ(mm, start_stack);
	*memory = pid ^ (__u32)(stack >> 4);
	own = bpf_map_lookup_elem(&processes, &pid);
	if (own && own->start_stack == stack)
		return own->family ? own : 0;
	parent = BPF_CORE_READ(task, group_leader, real_parent, tgid);
	other = bpf_map_lookup_elem(&processes, &parent);
	if (other && other->start_stack == stack) {
		bpf_map_update_elem(&processes, &pid, other, BPF_ANY);
		*flags = INTERP_FORKED;
		return other->family ? other : 0;
	}
	return 0;
}

/* Prepares the walk in the current process. Returns the family; INTERP_NONE: the process has no
 * interpreter. */
static __always_inline __u32 prepare(struct scratch *scratch)
{
	__u32 memory = 0, flags = 0;
	const struct interp_process *process = find_process(&memory, &flags);

	if (!process)
		return INTERP_NONE;
	scratch->begin_ns = bpf_ktime_get_ns();
	scratch->process = *process;
	scratch->memory = memory;
	scratch->flags = flags;
	return scratch->process.family;
}

/* Returns 1 if no walker writes the sample, so that the kernel writes it. */
SEC("perf_event")
int interp_sample(struct bpf_perf_event_data *ctx)
{
	struct interp_counts *count = get_counts();
	struct scratch *scratch = get_scratch();
	__u32 family;

	if (!count || !scratch)
		return 1;
	count->samples++;
	family = prepare(scratch);
	if (family != INTERP_NONE)
		bpf_tail_call(ctx, &sample_walkers, family);
	return 1;
}

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
 * hide the event from everybody else who traces it. While this program runs, the kernel drops the
 * samples of events whose interrupts cannot be masked: hardware events on most machines. */
SEC("tracepoint")
int interp_sleep(struct sched_switch *ctx)
{
	struct interp_counts *count;
	struct scratch *scratch;
	__u32 family;

	if (!(ctx->prev_state & STATE_SLEEPS))
		return 1;
	count = get_counts();
	scratch = get_scratch();
	if (!count || !scratch || !is_chosen(count, bpf_ktime_get_ns()))
		return 1;
	family = prepare(scratch);
	if (family != INTERP_NONE)
		bpf_tail_call(ctx, &sleep_walkers, family);
	return 1;
}

char interp_license[] SEC("license") = "Dual BSD/GPL";
