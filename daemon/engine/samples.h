/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/kernel.h"
#include "daemon/engine/record.h"
#include "daemon/engine/sample-queue.h"
#include "daemon/engine/tasks.h"

#define SAMPLES_CACHE 64
#define SAMPLES_MAX_IPS \
	1024 /* kernel.perf_event_max_stack may be raised; more are cut at the root */

#define SAMPLES_MAX_PATH (UNWIND_MAX_FRAMES + 2 + SAMPLES_MAX_IPS)

/* The last chain of a thread: the next one shares most of it. */
struct samples_chain {
	uint64_t maps_version;
	uint32_t epoch;
	uint32_t thread;
	uint32_t n;
	uint64_t ips[128];    /* from the root, with UNWIND_EXACT */
	uint32_t stacks[128]; /* of the part from the root up to here */
};

struct samples {
	struct output *output;
	struct tasks *tasks;
	struct images *images;
	struct kernel *kernel;
	bool keep_kernel;                            /* frames */
	GHashTable *cgroups;                         /* uint64_t id, struct samples_cgroup */
	uint64_t complete, truncated, guessed, none; /* by user stack: interfaces, UNWIND */
	uint64_t no_memory; /* of tasks without user memory; not in the counts above */
	/* An image was executed for the first time. */
	void (*first_hit)(struct image *image, const struct mapping *mapping, int32_t pid,
			  void *data);
	void *data;
	struct samples_chain *chains; /* SAMPLES_CACHE of them */
	struct unwind *unwind;        /* NULL: the kernel's chains are used */
	uint32_t stack_bytes;         /* copied by a sample, at most */
	struct sample_queue queue;
	/* Samples to be walked together; their stacks are still in the rings. */
	struct sample pending[WALK_TOGETHER];
	struct unwind_job jobs[WALK_TOGETHER]; /* jobs[i] is for pending[i] */
	size_t n_pending;
	struct image *cut, *deeper;    /* created for the first such stack */
	uint64_t ips[SAMPLES_MAX_IPS]; /* of the kernel's chain */
	/* The current sample's, root first. */
	struct output_place places[SAMPLES_MAX_PATH];
	uint32_t frames[SAMPLES_MAX_PATH], stacks[SAMPLES_MAX_PATH];
	bool added[SAMPLES_MAX_PATH];
};

void samples_init(struct samples *samples, struct output *output, struct tasks *tasks,
		  struct images *images, struct kernel *kernel);
/* Samples will have stacks of at most stack_bytes. */
void samples_unwind(struct samples *samples, const struct unwind_tables *tables,
		    uint32_t stack_bytes);
void samples_done(struct samples *samples);
void samples_set_cgroup(struct samples *samples, uint64_t id, const char *path, size_t length);
/* The memory that `record` points to, and the mappings of the thread's process, must not change
 * until samples_finalize(). */
void samples_add(struct samples *samples, const struct record *record, struct thread *thread,
		 struct row *source);
/* Walks and writes the samples that were added. */
void samples_finalize(struct samples *samples);
