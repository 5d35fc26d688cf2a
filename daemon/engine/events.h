/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/cpus.h"
#include "daemon/engine/ring-merge.h"
#include "daemon/engine/sample-window.h"
#include "daemon/engine/samples.h"
#include "daemon/engine/sources.h"

/* The state that records act on. */
struct events {
	const struct cpus *cpus;
	struct tasks *tasks;
	struct images *images;
	struct kernel *kernel;
	struct samples *samples;
	struct loss_table *losses;
	const struct sample_window *window; /* NULL: all time counts */
	struct source *sources[ENGINE_MAX_SOURCES];
	uint32_t n_sources;
	bool has_stacks;    /* samples have copies of registers and stack */
	bool build_ids;     /* build-ids were requested for MMAP2 records */
	uint64_t n_samples; /* taken into the capture */
	uint64_t begin_ns;  /* when the side band was enabled */
	uint64_t max_rate;  /* samples a second; 0: unlimited */
	uint64_t second, n_in_second;
	/* of the clock: samples that are handled later are counted as lost; 0: never */
	uint64_t until_ns;
	uint32_t n_handled;
	bool too_late;
	void (*query)(struct process *process, void *data); /* too little is known of it */
	void (*rescan)(void *data);                         /* side-band records were lost */
	void (*over_rate)(void *data); /* once a second with too many samples */
	/* Called when an exec has mapped its program; may be NULL. */
	void (*program)(struct process *process, const struct mapping *mapping, void *data);
	void *data;
};

/* The handlers of a round; data is a struct events, the owner of an input a struct cpu. */
void events_record(const struct ring_merge_input *input, bool late, void *data);
void events_finalize(void *data);
void events_corrupt(const struct ring_merge_input *input, void *data);
