/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/model/kernel.h"
#include "daemon/engine/model/tasks.h"
#include "daemon/engine/perf/interpreted.h"
#include "daemon/engine/perf/record.h"
#include "daemon/engine/unwind/sample-queue.h"

#define SAMPLES_CACHE 64
#define SAMPLES_MAX_IPS 1024 /* kernel.perf_event_max_stack may be larger; the root is then cut */

/* The arguments of a static probe in a sample. */
struct samples_values {
	struct probe_value values[PROBE_MAX_ARGUMENTS];
};

#define SAMPLES_MAX_PATH (UNWIND_MAX_FRAMES + 2 + INTERP_MAX_FRAMES + SAMPLES_MAX_IPS)

/* The last chain of a thread. The thread's next chain usually has most of its frames. */
struct samples_chain {
	uint64_t maps_version;
	uint32_t epoch;
	uint32_t thread;
	uint32_t n;
	uint64_t ips[128];    /* root first; bit UNWIND_EXACT as in struct unwind_stack */
	uint32_t stacks[128]; /* stacks[i]: stack id of ips[0] … ips[i] */
};

struct samples {
	struct output *output;
	struct tasks *tasks;
	struct images *images;
	struct kernel *kernel;
	bool keep_kernel;                            /* record kernel frames */
	uint64_t complete, truncated, guessed, none; /* samples by quality of user stack */
	uint64_t no_memory; /* samples of tasks without user memory; in none of the counts above */
	/* Requests the file of an image, when a stack first has an address in the image. */
	void (*first_hit)(struct image *image, const struct mapping *mapping, int32_t pid,
			  void *data);
	void *data;
	/* Called instead of writing a sample whose `wait` is not NULL. */
	void (*keep_wait)(const struct sample *sample, struct maps **maps, void *data);
	void *wait_data;
	struct samples_chain *chains; /* SAMPLES_CACHE items */
	struct unwind *unwind;        /* NULL: use the kernel's chains */
	uint32_t stack_bytes;         /* maximum size of a stack copy */
	struct sample_queue queue;
	struct interpreted *interpreted; /* NULL: frames of interpreters are not wanted */
	/* Samples to be walked together; their stacks are still in the rings. */
	struct sample pending[WALK_TOGETHER];
	struct samples_values values[WALK_TOGETHER];
	struct unwind_job jobs[WALK_TOGETHER]; /* jobs[i] is for pending[i] */
	/* mappings of jobs[i], referenced: writing a wait may replace those of the process */
	struct maps *pending_maps[WALK_TOGETHER];
	size_t n_pending;
	struct image *cut, *deeper;    /* created on first use */
	uint64_t ips[SAMPLES_MAX_IPS]; /* buffer for the kernel's chain */
	/* The frames of the current sample, root first. */
	struct output_place places[SAMPLES_MAX_PATH];
	uint32_t frames[SAMPLES_MAX_PATH], stacks[SAMPLES_MAX_PATH];
	bool added[SAMPLES_MAX_PATH];
};

void samples_init(struct samples *samples, struct output *output, struct tasks *tasks,
		  struct images *images, struct kernel *kernel);
/* Enables walking of copied stacks of at most stack_bytes. */
void samples_unwind(struct samples *samples, struct unwind_tables *tables, uint32_t stack_bytes);
void samples_done(struct samples *samples);
/* Returns room for the arguments of the next sample. */
struct probe_value *samples_values(struct samples *samples);
/* `values`: filled by the caller if the sample is of a static probe with arguments; else NULL.
 * Until samples_finalize(), neither the memory that `record` points to nor the mappings of the
 * thread's process may change. */
void samples_add(struct samples *samples, const struct record *record, struct thread *thread,
		 struct row *source, const struct probe_value *values);
/* Like samples_add(), for the stack of a wait or waker. `frames`: those of the thread's
 * interpreter; NULL: none. */
void samples_add_wait(struct samples *samples, const struct record *record, struct thread *thread,
		      struct wait_code *wait, const uint8_t *frames, uint32_t frames_bytes);
/* Returns the program counter of a sample's user code, from its chain; 0: unknown. */
uint64_t samples_user_pc(const struct record_sample *sample);
/* Returns the stack of a walked sample, in the current epoch; 0 if it has none. is_interpreted:
 * include the functions that interpreted_merge() has placed. */
uint32_t samples_add_stack(struct samples *samples, const struct sample *sample, struct maps **maps,
			   bool is_interpreted);
/* Walks and writes the added samples. */
void samples_finalize(struct samples *samples);
