/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/tasks.h"
#include "daemon/protocol.h"

/* The counters of how much memory processes take. */
struct footprints {
	struct tasks *tasks;    /* NULL: nobody wants to know */
	uint32_t *last_counter; /* ids that other counters have */
	GHashTable *counters;   /* struct footprint by its struct process */
	GArray *values;         /* struct footprint_value, that are not rows yet */
	uint32_t serial;        /* of the request on the way; 0: there is none */
	uint64_t asked_ns, interval_ns;
	uint64_t whole_ns; /* from then on pss is asked for too */
	bool is_whole;     /* the last request has done so */
	int32_t last_pid;  /* of the last request, where one is not enough for all */
};

void footprints_init(struct footprints *footprints, struct tasks *tasks, uint32_t *last_counter,
		     uint64_t now_ns);
void footprints_done(struct footprints *footprints);

/* When it is time for the next request; UINT64_MAX: never. */
uint64_t footprints_due_ns(const struct footprints *footprints);
/* Whom the request is to be about, as it has them; up to ENGINE_MAX_FOOTPRINTS. It is on the way
 * then, unless that is 0. */
uint32_t footprints_ask(struct footprints *footprints, uint32_t serial, uint64_t now_ns,
			int32_t *ret_pids);
/* The answer: a snapshot (daemon/protocol.h). One that nobody waits for any more is dropped. */
void footprints_take(struct footprints *footprints, uint32_t serial, const void *bytes,
		     size_t length);
/* Values up to reached_ns become rows. */
void footprints_write(struct footprints *footprints, uint64_t reached_ns);
