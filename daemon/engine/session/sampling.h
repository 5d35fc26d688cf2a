/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/perf/ring-merge.h"
#include "daemon/engine/perf/ticks.h"
#include "daemon/engine/session/channel.h"

/* Enables and disables the sampling events, and counts the ticks missed while they are enabled. */
struct sampling {
	struct cpus *cpus;
	struct ring_merge *merge;
	struct loss_table *losses;
	struct ticks ticks;
	/* socket at which a program requests to switch the events on or off; -1: none, or closed */
	int switch_fd;
	bool paused, switched_off; /* reasons not to sample */
	bool has_begun, is_on;
	bool is_repeated; /* sampling_repeat() was called */
	/* when events were last enabled and disabled; off_ns is 0 once ticks are compared */
	uint64_t on_ns, off_ns;
};

/* Enables the events, unless there is a reason not to sample. */
bool sampling_begin(struct sampling *sampling, GError **error);
/* Enables the events of another CPU, if the others are enabled. */
bool sampling_add_cpu(const struct sampling *sampling, struct cpu *cpu, GError **error);
/* Enables or disables the events again, as they are now. With per-task events, call it a little
 * after each change: a child that was forked meanwhile may have inherited the earlier state (the
 * kernel reads the parent's state before taking the lock: kernel/events/core.c, inherit_event). */
bool sampling_repeat(struct sampling *sampling, GError **error);
bool sampling_set_paused(struct sampling *sampling, bool paused, GError **error);
bool sampling_add_switch(struct sampling *sampling, struct channel_message *message,
			 GError **error);
bool sampling_receive_switch(struct sampling *sampling, GError **error);
/* Reads the ticks, before the rings are drained. */
void sampling_read_ticks(struct sampling *sampling);
/* Adds the ticks missed until now_ns to the losses. */
void sampling_add_missed(struct sampling *sampling, uint64_t now_ns);
/* Compares the ticks due in the last sampled interval with those taken, if the rings are drained
 * past the end of the interval. Pass UINT64_MAX to compare in any case. */
void sampling_compare_ticks(struct sampling *sampling, uint64_t drained_ns);
