/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "libcollector/ring-layout.h"

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SYSPROF_FRAME_BYTES 24 /* of a frame's header, which is all that the smallest have */
#define SYSPROF_MAX_COUNTERS 4096u

/* What sysprof's library writes, as records of our own rings: what is behind them need not know. */
struct sysprof_frames;

/* Counters of a process: any of its threads may set what another has defined. */
struct sysprof_counters;
struct sysprof_counters *sysprof_counters_new(void);
void sysprof_counters_free(struct sysprof_counters *counters); /* takes NULL */

/* A record: what is fixed of it, and the text behind that. Strings and counters are the ring's. */
typedef void (*sysprof_put)(enum ring_type type, uint64_t time_ns, const void *fixed,
			    uint32_t n_fixed, const void *text, uint32_t n_text, void *data);

/* Of a ring. No record is older than from_ns. */
struct sysprof_frames *sysprof_frames_new(uint64_t from_ns, sysprof_put put, void *data);
void sysprof_frames_free(struct sysprof_frames *frames); /* takes NULL */

enum sysprof_result {
	SYSPROF_TAKEN,   /* it is a record, or says nothing that is not known */
	SYSPROF_REFUSED, /* there is no table for it, or no room */
	SYSPROF_END,     /* its thread has ended */
	SYSPROF_BAD,     /* no such frame */
};

/* How long the frame is that begins there: a multiple of 8, and not more than n; 0: there is
 * none. */
size_t sysprof_frame_bytes(const uint8_t *frame, size_t n);
/* Which process the frame says it is of, as that calls itself; 0: the end of a thread is of
 * none. */
int32_t sysprof_frame_pid(const uint8_t *frame);
/*
 * frame: of n_bytes, aligned to 8, and nobody else's to write. What is in it is somebody's claim.
 * now_ns: nothing is later. ret_lost: how much of it is not in a record.
 */
enum sysprof_result sysprof_frame_add(struct sysprof_frames *frames,
				      struct sysprof_counters *counters, const uint8_t *frame,
				      size_t n_bytes, uint64_t now_ns, uint64_t *ret_lost);
/* Of the record that was put last. */
uint64_t sysprof_frames_last_ns(const struct sysprof_frames *frames);
