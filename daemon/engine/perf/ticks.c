/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Ticks - counts samples that were due but not taken
 *
 * A virtual CPU takes no timer interrupts while its host does not run it, and the kernel then
 * merges all due interrupts into one, so samples are lost without a record that counts them. Their
 * number follows from the difference between the busy time of a CPU, which is /proc/stat without
 * steal, and the time that its samples and lost samples represent. /proc/stat has a coarse unit, so
 * both times are summed from the beginning, and a difference is reported when it has grown by two
 * units: the error stays below that. A filtered session gets a share of the missed ticks, in
 * proportion to its share of the CPU's samples. Per-task events are compared with the run time of
 * the targets in the side band. The side band does not show how much of that was in user mode, so
 * per-task events that sample only user mode are not compared.
 * Runs on the drain thread only.
 */
#include "daemon/engine/perf/ticks.h"

#include "arch/base.h"
#include "base/each.h"

#include <stdio.h>

#define STAT_BYTES (256 * 1024)

void ticks_parse(const char *text, bool user_only, uint64_t *busy_ns, size_t n)
{
	uint64_t tick_ns = UINT64_C(1000000000) / (uint64_t)sysconf(_SC_CLK_TCK);
	unsigned long long user, nice, system, idle, iowait, irq, softirq;
	const char *line = text;
	unsigned int cpu;

	while (line && strncmp(line, "cpu", 3) == 0) {
		/* cpuN user nice system idle iowait irq softirq steal … in USER_HZ; man 5 proc */
		if (sscanf(line, "cpu%u %llu %llu %llu %llu %llu %llu %llu", &cpu, &user, &nice,
			   &system, &idle, &iowait, &irq, &softirq) == 8 &&
		    cpu < n)
			busy_ns[cpu] = (user + nice + (user_only ? 0 : system + irq + softirq)) *
				       tick_ns;
		line = strchr(line, '\n');
		line = line ? line + 1 : NULL;
	}
}

/* Begins a comparison. A CPU that /proc/stat does not list is compared once it is back online. */
static void ticks_begin_cpu(struct cpu *cpu, const uint64_t *busy_ns, uint64_t now_ns)
{
	cpu->busy_ns = cpu->open && busy_ns[cpu->number] ? busy_ns[cpu->number] : UINT64_MAX;
	cpu->ran_ns = switches_ran_ns(&cpu->switches, now_ns);
	cpu->sampled_ns = cpu->sampled_here_ns = cpu->missed_ns = 0;
	cpu->missed_since_ns = now_ns;
	cpu->busy_now_ns = cpu->busy_heard_ns = busy_ns[cpu->number];
}

/* Returns whether either ring of the CPU has delivered a record since the last reading. */
static bool is_heard(struct cpu *cpu, uint64_t busy_ns)
{
	uint64_t heard_ns = MAX_OF(cpu->last_ns[0], cpu->last_ns[1]);

	cpu->busy_now_ns = busy_ns;
	if (heard_ns == cpu->heard_ns)
		return false;
	cpu->heard_ns = heard_ns;
	cpu->busy_heard_ns = busy_ns;
	return true;
}

void ticks_read(struct ticks *ticks)
{
	CLEANUP_FREE char *text = malloc(STAT_BYTES);
	ssize_t length = text ? pread(ticks->stat_fd, text, STAT_BYTES - 1, 0) : -1;

	ticks->is_read = length > 0;
	if (!ticks->is_read)
		return;
	text[length] = 0;
	memset(ticks->busy_ns, 0, sizeof(ticks->busy_ns));
	ticks_parse(text, ticks->user_only, ticks->busy_ns, ENGINE_MAX_CPUS);
}

void ticks_drop(struct ticks *ticks)
{
	ticks->is_read = false;
}

void ticks_begin(struct ticks *ticks, struct cpus *cpus, uint64_t now_ns)
{
	ticks_read(ticks);
	ticks->running = ticks->period_ns && ticks->is_read &&
			 !(ticks->by_task && ticks->user_only);
	for (guint i = 0; ticks->running && i < cpus->all->len; i++) {
		struct cpu *cpu = g_ptr_array_index(cpus->all, i);

		cpu_count_lost(cpu, ticks->period_ns);
		ticks_begin_cpu(cpu, ticks->busy_ns, now_ns);
	}
}

/* Returns the time for which ticks are missing and not yet reported. */
static uint64_t missing_ns(const struct ticks *ticks, const struct cpu *cpu, uint64_t now_ns)
{
	uint64_t slack_ns = 2 * UINT64_C(1000000000) / (uint64_t)sysconf(_SC_CLK_TCK);
	uint64_t explained_ns = cpu->busy_ns + cpu->sampled_ns + cpu->missed_ns;
	/* The time that samples should represent, with the same origin as cpu->busy_ns. */
	uint64_t due_ns = ticks->busy_ns[cpu->number];

	if (ticks->by_task)
		due_ns = MIN_OF(due_ns, cpu->busy_ns + switches_ran_ns(&cpu->switches, now_ns) -
						cpu->ran_ns);
	return due_ns >= explained_ns + slack_ns ? due_ns - explained_ns : 0;
}

void ticks_compare(struct ticks *ticks, struct cpus *cpus, struct loss_table *losses,
		   uint64_t now_ns)
{
	const uint64_t *busy_ns = ticks->busy_ns;
	uint64_t missed_ns;
	double share;

	if (!ticks->running || !ticks->is_read)
		return;
	POINTER_EACH(struct cpu, cpu, cpus->all) {
		cpu_count_lost(cpu, ticks->period_ns);
		if (cpu->busy_ns == UINT64_MAX || !cpu->open) {
			ticks_begin_cpu(cpu, busy_ns, now_ns);
			continue;
		}
		/* A silent CPU may have lost its events, which is counted as a different loss. */
		if (!ticks->by_task && !is_heard(cpu, busy_ns[cpu->number]))
			continue;
		missed_ns = missing_ns(ticks, cpu, now_ns);
		if (missed_ns == 0)
			continue;
		share = cpu->sampled_ns ? (double)cpu->sampled_here_ns / (double)cpu->sampled_ns
					: 1;
		loss_add_cpu(losses, cpu->number, false, PROF_LOSS_TICKS_MISSED,
			     (uint64_t)((double)(missed_ns / ticks->period_ns) * share),
			     cpu->missed_since_ns, now_ns);
		cpu->missed_ns += missed_ns;
		cpu->missed_since_ns = now_ns;
	}
}
