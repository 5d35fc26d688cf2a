/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/perf/cpus.h"
#include "daemon/engine/perf/event-source.h"
#include "daemon/engine/perf/ring-merge.h"
#include "daemon/engine/perf/samples.h"
#include "daemon/engine/perf/waits.h"

/* The state that records act on. */
struct events {
	const struct cpus *cpus;
	struct tasks *tasks;
	struct images *images;
	struct kernel *kernel;
	struct samples *samples;
	struct waits *waits; /* NULL: waits are not recorded */
	struct loss_table *losses;
	struct event_source *sources[ENGINE_MAX_SOURCES];
	uint32_t n_sources;
	/* arguments of static probes, by source */
	struct message_arguments arguments[ENGINE_MAX_SOURCES];
	unsigned parts;     /* RECORD_*: what samples contain */
	bool build_ids;     /* build-ids were requested for MMAP2 records */
	uint64_t n_samples; /* samples in the capture */
	uint64_t begin_ns;  /* time at which the side band was enabled */
	uint64_t max_rate;  /* in samples per second; 0: unlimited */
	uint64_t second, n_in_second;
	/* samples and switches handled after this time are counted as lost; 0: none are */
	uint64_t until_ns;
	uint32_t n_handled;
	bool too_late;
	void (*query)(struct process *process, void *data); /* requests the process's /proc data */
	void (*rescan)(void *data);                         /* side-band records were lost */
	void (*over_rate)(void *data); /* called once in each second with too many samples */
	/* Called when an exec has mapped its program; may be NULL. */
	void (*program)(struct process *process, const struct mapping *mapping, void *data);
	void *data;
};

/* Handlers for a ring merge. data: a struct events; an input's owner: a struct cpu. */
void events_record(const struct ring_merge_input *input, bool late, void *data);
void events_finalize(void *data);
void events_corrupt(const struct ring_merge_input *input, void *data);
