/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/model/tasks.h"
#include "daemon/engine/perf/record.h"
#include "daemon/engine/perf/samples.h"
#include "daemon/engine/perf/wait-stacks.h"

struct last_wakers;

struct waits {
	struct samples *samples;
	GQueue begun; /* struct wait that have not ended; each is the `wait` of its thread */
	/* woken struct thread → struct waker, as long as no wait of the thread is known */
	GHashTable *early;
	GQueue ended;         /* struct wait, in order of their ends; not written yet */
	GPtrArray *requested; /* struct wait; their stacks are being read */
	/* struct wait_pause by process id: stacks of these processes are not read for a while,
	 * because their memory was locked for long */
	GHashTable *pauses;
	uint64_t now_ns;  /* time at which the last wait ended */
	uint64_t lost_ns; /* time until which switches may have been lost; 0: none was lost */
	bool has_begun;   /* threads that have slept since before the recording are in `begun` */
	struct wait_stacks stacks;
	struct last_wakers *last_wakers;       /* by CPU */
	uint64_t slept_ns[PROF_STACK_SOURCES]; /* sums over the rows, by enum prof_stack_source */
};

void waits_init(struct waits *waits, struct samples *samples);
void waits_done(struct waits *waits);

/* Called when a thread is about to sleep. The registers are those of its user code. */
void waits_sleep(struct waits *waits, struct thread *thread, const struct record *record);
/* Called before waits_sleep(), with the frames of the thread's interpreter: an
 * INTERP_RECORD_SLEEP. */
void waits_interpret(struct waits *waits, struct thread *thread, const uint8_t *bytes, size_t size);
/* Like waits_sleep(), with a copy of the thread's stack. As in samples_add(), nothing that the
 * record points to may change until samples_finalize(). */
void waits_copy(struct waits *waits, struct thread *thread, const struct record *record);
/* Called when a thread is woken on a CPU. `thread`: NULL if it is not recorded. `by`: the waker;
 * NULL: an interrupt, or a thread that is not recorded. `cpu` is below ENGINE_MAX_CPUS. Must be
 * called before waits_end(). */
void waits_wake(struct waits *waits, uint32_t cpu, struct thread *thread, struct thread *by,
		const struct record *record);
/* Like waits_copy(), for a thread that wakes another one. The waking is that of the CPU's last
 * waits_wake(), or of its next one. */
void waits_copy_waker(struct waits *waits, uint32_t cpu, struct thread *thread,
		      const struct record *record);
/* Called when the thread has left the CPU: waits_begin() if it sleeps, waits_drop() if it was
 * preempted after all. */
void waits_begin(struct waits *waits, struct thread *thread, uint32_t cpu, uint64_t time_ns);
void waits_drop(struct waits *waits, struct thread *thread);
/* Called when switches on any CPU may have been lost, up to until_ns. */
void waits_lose_switches(struct waits *waits, uint64_t until_ns);
/* Called when the thread was woken, or runs. Must be called before switches.h changes its state. */
void waits_end(struct waits *waits, struct thread *thread, uint64_t time_ns);
/* Writes the rows of ended waits in order, up to the first one whose stack is pending or is held
 * for a better one. With UINT64_MAX, none is held. Call it in each round, before an epoch ends, and
 * at the end. */
void waits_write(struct waits *waits, uint64_t now_ns);
/* Ends all waits, at the end of the recording. */
void waits_end_all(struct waits *waits, uint64_t time_ns);
#define WAITS_MAX_REQUESTED 64u
/* Maximum number of ended waits that are not written yet: about 550 bytes each, plus up to 4 KiB of
 * interpreter frames and 16 KiB for the addresses of a copied stack. If there are more, the
 * requested stacks are abandoned (waits_give_up()). */
#define WAITS_MAX_ENDED 32768u
/* Stores the sorted tids of threads that have slept for threshold_ns, at most WAITS_MAX_REQUESTED:
 * those whose stacks are unknown and not requested yet and, if there is room, those whose stacks
 * were copied. The answer is a snapshot for waits_receive(). If the answer never comes,
 * waits_give_up() allows the stacks to be requested again. Must be called in each round. */
uint32_t waits_request(struct waits *waits, uint64_t now_ns, uint64_t threshold_ns,
		       int32_t *ret_tids);
/* Must be called when the switches until the snapshot's arrival have been applied. */
void waits_receive(struct waits *waits, const void *bytes, size_t length);
void waits_give_up(struct waits *waits);
/* Called when the sample of a wait or a waker will not be walked. */
void waits_lose(struct waits *waits, struct wait_code *code);
