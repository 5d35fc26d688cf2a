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

/* The last chain of a thread: most of it is the next one's. */
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
	uint64_t no_memory; /* of tasks that had no user memory, so none of the above */
	/* An image was executed for the first time. */
	void (*first_hit)(struct image *image, const struct mapping *mapping, int32_t pid,
			  void *data);
	void *data;
	struct samples_chain *chains; /* SAMPLES_CACHE of them */
	struct unwind *unwind;        /* NULL: chains are the kernel's */
	uint32_t stack_bytes;         /* that a sample copies, at most */
	struct sample_queue queue;
	/* Samples whose stacks, which are in the rings, are about to be walked together. */
	struct sample pending[WALK_TOGETHER];
	struct unwind_job jobs[WALK_TOGETHER]; /* of each */
	size_t n_pending;
	struct image *cut, *deeper;    /* made with the first stack that is */
	uint64_t ips[SAMPLES_MAX_IPS]; /* of a chain of the kernel's */
	/* Of a sample, root first. */
	struct output_place places[SAMPLES_MAX_PATH];
	uint32_t frames[SAMPLES_MAX_PATH], stacks[SAMPLES_MAX_PATH];
	bool added[SAMPLES_MAX_PATH];
};

void samples_init(struct samples *samples, struct output *output, struct tasks *tasks,
		  struct images *images, struct kernel *kernel);
/* Samples will have stacks, of so many bytes at most. */
void samples_unwind(struct samples *samples, const struct unwind_tables *tables,
		    uint32_t stack_bytes);
void samples_done(struct samples *samples);
void samples_set_cgroup(struct samples *samples, uint64_t id, const char *path, size_t length);
/* What `record` leads to stays until samples_settle(), as does what is known of the thread's
 * process. */
void samples_add(struct samples *samples, const struct record *record, struct thread *thread,
		 struct row *source);
/* Walks and writes the samples that were added. */
void samples_settle(struct samples *samples);
/* Goes on with samples that wait for a table. */
void samples_run(struct samples *samples, uint64_t now_ns);
/* No walk is begun after until_ns of the clock. */
void samples_hurry(struct samples *samples, uint64_t until_ns);
/* Ends the waiting; `lost` is told of samples that were not walked. */
void samples_end(struct samples *samples, void (*lost)(const struct sample *sample, void *data),
		 void *data);
/* How old the oldest of them may be; 0: none waits. */
uint64_t samples_delay_ns(const struct samples *samples);
