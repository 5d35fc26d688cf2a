/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/model/tasks.h"
#include "daemon/engine/unwind/unwind.h"

#include <glib.h>

#define SAMPLE_QUEUE_WAIT_NS UINT64_C(250000000)

struct wait_code;

/* A sample that is not written yet. */
struct sample {
	uint64_t time_ns, period, cgroup;
	uint32_t cpu;
	bool in_kernel;
	struct thread *thread;
	struct row *source;     /* NULL: the stack of a wait, not a sample */
	struct wait_code *wait; /* the wait or waker with this stack (daemon/engine/perf/waits.h) */
	const uint64_t *kernel; /* leaf first */
	size_t n_kernel;
	struct unwind_stack user;
	/* fields of a tracepoint, arguments of a static probe, or frames of an interpreter */
	const uint8_t *raw;
	uint32_t raw_bytes;
	bool is_interpreted; /* `raw` is a struct interp_sample */
};

/* Waiting samples, in order. */
struct sample_queue {
	GQueue items; /* struct queued_sample */
	uint64_t bytes;
	unsigned int n_waiting; /* samples without a stack yet; the others wait for earlier ones */
	struct unwind *unwind;
	void (*emit)(const struct sample *sample, struct maps **maps, void *data);
	void *data;
	uint64_t until_ns; /* walks stop soon after this time of clock_now(); 0: no limit */
};

void sample_queue_init(struct sample_queue *queue, struct unwind *unwind,
		       void (*emit)(const struct sample *sample, struct maps **maps, void *data),
		       void *data);
void sample_queue_done(struct sample_queue *queue);

/* Returns whether a new sample can be written at once, because no older one waits. */
static inline bool sample_queue_is_empty(const struct sample_queue *queue)
{
	return g_queue_is_empty((GQueue *)&queue->items);
}
/* Returns the maximum age of a waiting sample; 0 if none waits. */
static inline uint64_t sample_queue_delay_ns(const struct sample_queue *queue)
{
	return sample_queue_is_empty(queue) ? 0 : SAMPLE_QUEUE_WAIT_NS;
}
/* Copies a sample whose stack is complete. */
void sample_queue_add(struct sample_queue *queue, const struct sample *sample);
/* Copies a sample and its stack. `missing`: from unwind_run(). Returns false if there is no
 * room. */
bool sample_queue_add_waiting(struct sample_queue *queue, const struct sample *sample,
			      const struct unwind_input *input, struct image *missing,
			      uint64_t now_ns);
/* Retries samples that can make progress or have waited too long, and emits complete ones. */
void sample_queue_run(struct sample_queue *queue, uint64_t now_ns);
/* Emits complete samples, and calls `lost` for the others. */
void sample_queue_end(struct sample_queue *queue,
		      void (*lost)(const struct sample *sample, void *data), void *data);
