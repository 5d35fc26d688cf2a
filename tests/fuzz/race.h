/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Race - code shared by the fuzz targets in which a thread writes to memory that the engine reads
 *
 * An input is a list of steps: records for a ring, and words. While the ring is drained, another
 * thread changes the words in it and restores them, again and again. The target defines records and
 * changes.
 *
 *     race_open(data, size, &kinds);
 *     collectors_add_peer(&race.collectors, …);
 *     race_start();
 *     … race_go_to(place); put race.plan.records into a ring; race_drain(race_now()); …
 *     race_end();
 *     race_finish();
 *     race_close();
 */
#pragma once

#include "daemon/engine/peers/collectors.h"
#include "tests/unit/engine.h"

#include <pthread.h>
#include <sched.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <time.h>

#define RACE_BYTES 4096u /* size of all records of an input */
#define RACE_MAX_WORDS 16u
#define RACE_MAX_PAYLOAD 512u
#define RACE_KEPT_INPUTS 64 /* inputs that share one capture */
#define RACE_OVER UINT32_MAX

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Step kind 0. The target defines the other kinds; each changes a word. */
#define RACE_RECORD 0

struct race_step {
	uint8_t kind;   /* modulo race_kinds.n */
	uint8_t type;   /* type of a record */
	uint16_t at;    /* record: defined by the target; word: its index */
	uint32_t n;     /* length of the record's payload, which follows the step */
	uint64_t value; /* word: its value; record: its length field, if not 0 */
};
_Static_assert(sizeof(struct race_step) == 16, "step");

struct race_word {
	uint8_t kind;
	uint16_t at;
	uint64_t value;
};

struct race_kinds {
	uint8_t n;
	/* Makes a record from the step, and passes it to race_put(). */
	void (*add)(const struct race_step *step, const uint8_t *payload, size_t n);
	/* Runs on the other thread. `place` is the argument of the last race_go_to(). */
	void (*change)(const struct race_word *word, uint32_t place, bool back);
};

static struct {
	const struct race_kinds *kinds;
	struct {
		struct race_word words[RACE_MAX_WORDS];
		size_t n_words;
		uint8_t records[RACE_BYTES];
		uint32_t n_bytes, n_records;
	} plan;
	struct parts parts;
	struct interpreted_code code;
	struct collectors collectors;
	unsigned int n_inputs;
	pthread_t thread;
	uint32_t place;   /* atomic: where the other thread changes words, or RACE_OVER */
	uint32_t n_turns; /* atomic */
} race;

static inline uint64_t race_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline void race_must(bool is_so)
{
	if (!is_so)
		abort();
}

/* ---- The input ---- */

/* Appends a record, if it fits. */
static inline void race_put(const void *header, size_t n_header, const uint8_t *payload, size_t n)
{
	uint8_t *end = race.plan.records + race.plan.n_bytes;

	if (race.plan.n_bytes + n_header + n > sizeof(race.plan.records))
		return;
	memcpy(end, header, n_header);
	memcpy(end + n_header, payload, n);
	race.plan.n_bytes += (uint32_t)(n_header + n);
	race.plan.n_records++;
}

static inline void race_plan(const uint8_t *data, size_t size)
{
	struct race_step step;

	memset(&race.plan, 0, sizeof(race.plan));
	while (size >= sizeof(step)) {
		size_t n = 0;

		memcpy(&step, data, sizeof(step));
		data += sizeof(step);
		size -= sizeof(step);
		step.kind %= race.kinds->n;
		if (step.kind == RACE_RECORD) {
			n = MIN_OF((size_t)(step.n % (RACE_MAX_PAYLOAD + 1)), size) / 8 * 8;
			race.kinds->add(&step, data, n);
		} else if (race.plan.n_words < RACE_MAX_WORDS) {
			race.plan.words[race.plan.n_words++] =
				(struct race_word){ step.kind, step.at, step.value };
		}
		data += n;
		size -= n;
	}
}

/* ---- The process's side ---- */

/* Returns the original value of a word in the records. */
static inline uint32_t race_planned(uint32_t at)
{
	return load_le32(race.plan.records + at);
}

static inline void *race_run(void *data)
{
	uint32_t place;

	while ((place = __atomic_load_n(&race.place, __ATOMIC_ACQUIRE)) != RACE_OVER) {
		for (int turn = 0; turn < 64; turn++)
			for (size_t i = 0; i < race.plan.n_words; i++)
				race.kinds->change(&race.plan.words[i], place, turn % 2);
		__atomic_fetch_add(&race.n_turns, 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

static inline void race_go_to(uint32_t place)
{
	__atomic_store_n(&race.place, place, __ATOMIC_RELEASE);
}

/* Starts the other thread, and waits until it has begun to change words. */
static inline void race_start(void)
{
	uint32_t before = __atomic_load_n(&race.n_turns, __ATOMIC_ACQUIRE);

	race_go_to(0);
	race_must(pthread_create(&race.thread, NULL, race_run, NULL) == 0);
	while (__atomic_load_n(&race.n_turns, __ATOMIC_ACQUIRE) - before < 2)
		sched_yield();
}

static inline void race_end(void)
{
	race_go_to(RACE_OVER);
	pthread_join(race.thread, NULL);
}

/* ---- The engine's side ---- */

static inline void race_on_warning(const char *code, const char *text, void *data)
{
	race_must(code && text);
}

static inline void race_open_parts(void)
{
	const int32_t self = getpid();

	parts_init(&race.parts);
	interpreted_code_init(&race.code, &race.parts.output, &race.parts.images);
	tasks_filter(&race.parts.tasks, &self, 1, true);
	tasks_found(&race.parts.tasks, self, self, 1);
}

static inline void race_open(const uint8_t *data, size_t size, const struct race_kinds *kinds)
{
	race.kinds = kinds;
	race_plan(data, size);
	if (race.n_inputs == 0)
		race_open_parts();
	collectors_init(&race.collectors, &(struct collectors_options){
						  .output = &race.parts.output,
						  .tasks = &race.parts.tasks,
						  .images = &race.parts.images,
						  .code = &race.code,
						  .losses = &race.parts.losses,
						  .epoll_fd = -1,
						  .session = 7,
						  .warn = race_on_warning,
					  });
}

static inline void race_drain(uint64_t at_ns)
{
	parts_step(&race.parts, &race.collectors, at_ns);
	collectors_sleep(&race.collectors, at_ns, 0);
}

/* Finishes the session. Results can be read until race_close(). */
static inline void race_finish(void)
{
	collectors_finish(&race.collectors, UINT64_MAX);
	race_must(race.collectors.queued_bytes == 0);
}

static inline void race_close(void)
{
	collectors_done(&race.collectors);
	if (++race.n_inputs < RACE_KEPT_INPUTS)
		return;
	parts_finish(&race.parts);
	interpreted_code_done(&race.code);
	parts_done(&race.parts);
	race.n_inputs = 0;
}
