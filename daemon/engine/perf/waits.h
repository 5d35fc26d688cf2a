/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/model/tasks.h"
#include "daemon/engine/perf/record.h"
#include "daemon/engine/perf/samples.h"

struct wait;
struct wait_code;
struct last_wakers;
struct wait_stratum;

struct waits {
	struct samples *samples;
	GQueue begun; /* struct wait that have not ended; each is the `wait` of its thread */
	/* struct waker by the woken struct thread, of which no wait is known yet */
	GHashTable *early;
	GQueue ended;         /* struct wait, in order of their ends; not written yet */
	GPtrArray *requested; /* struct wait; their stacks are being read */
	/* id of the process → struct wait_pause: its memory was locked for long, so the next stack
	 * is read later */
	GHashTable *pauses;
	uint64_t now_ns; /* of the last end */
	bool has_begun;  /* threads that sleep since before the recording are in `begun` */
	struct wait_stratum *strata;
	/* referenced; the last code at a place of an interpreted process with its stack, or NULL */
	struct wait_code **natives;
	struct last_wakers *last_wakers;       /* by CPU */
	uint64_t slept_ns[PROF_STACK_SOURCES]; /* of the rows, by enum prof_stack_source */
};

void waits_init(struct waits *waits, struct samples *samples);
void waits_done(struct waits *waits);

/* A thread is about to sleep. The registers are those of its user code. */
void waits_sleep(struct waits *waits, struct thread *thread, const struct record *record);
/* Like waits_sleep(), before it, with the frames of its interpreter: an INTERP_RECORD_SLEEP. */
void waits_interpret(struct waits *waits, struct thread *thread, const uint8_t *bytes, size_t size);
/* Like waits_sleep(), with a copy of its stack. As in samples_add(), nothing that the record points
 * to may change until samples_finalize(). */
void waits_copy(struct waits *waits, struct thread *thread, const struct record *record);
/* A thread is woken on a CPU. `thread`: NULL if it is not recorded. `by`: NULL if it is woken by an
 * interrupt, or by a thread that is not recorded. `cpu` is below ENGINE_MAX_CPUS. Must be called
 * before waits_end(). */
void waits_wake(struct waits *waits, uint32_t cpu, struct thread *thread, struct thread *by,
		const struct record *record);
/* Like waits_copy(), for a thread that wakes another one: the one of the last waits_wake() of the
 * CPU, or of the next. */
void waits_copy_waker(struct waits *waits, uint32_t cpu, struct thread *thread,
		      const struct record *record);
/* The thread has left the CPU, and sleeps; or it was preempted after all. */
void waits_begin(struct waits *waits, struct thread *thread, uint32_t cpu, uint64_t time_ns);
void waits_drop(struct waits *waits, struct thread *thread);
/* The thread was woken, or runs. Must be called before switches.h changes its state. */
void waits_end(struct waits *waits, struct thread *thread, uint64_t time_ns);
/* Writes the rows of waits that have ended, and need not be held for a better stack any longer;
 * UINT64_MAX: at all. Call it in each round, before an epoch ends, and at the end. */
void waits_write(struct waits *waits, uint64_t now_ns);
/* Ends all waits, at the end of the recording. */
void waits_end_all(struct waits *waits, uint64_t time_ns);
#define WAITS_MAX_REQUESTED 64u
/* Waits that have ended but are not written yet, of about 550 bytes each, up to 4 KiB more with the
 * frames of an interpreter, and, if its stack was copied, up to 16 KiB more. With more, the
 * requested stacks are given up. */
#define WAITS_MAX_ENDED 32768u
/* Fills in the sorted tids of threads that have slept for threshold_ns, and whose stacks are
 * unknown and not requested yet; at most WAITS_MAX_REQUESTED. The answer is a snapshot, for
 * waits_receive(), or never comes: waits_give_up(), which allows to request them again. Must be
 * called in each round. */
uint32_t waits_request(struct waits *waits, uint64_t now_ns, uint64_t threshold_ns,
		       int32_t *ret_tids);
/* Must be called when the switches until the snapshot's arrival have been applied. */
void waits_receive(struct waits *waits, const void *bytes, size_t length);
void waits_give_up(struct waits *waits);
/* The sample of a wait or a waker is not walked any more. */
void waits_lose(struct waits *waits, struct wait_code *code);
