/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "libcollector/ring-layout.h"

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SYSPROF_FRAME_BYTES 24 /* of a frame's header; the smallest frames have no body */
#define SYSPROF_MAX_COUNTERS 4096u

/* Converts the frames of one ring into records of our own rings, for the code that reads those. */
struct sysprof_frames;

/* Counters of a process: any of its threads may set what another has defined. */
struct sysprof_counters;
struct sysprof_counters *sysprof_counters_new(void);
void sysprof_counters_free(struct sysprof_counters *counters); /* takes NULL */

/* Receives a record: its fixed part, and the text after that. Strings and counters belong to the
 * ring. */
typedef void (*sysprof_put)(enum ring_type type, uint64_t time_ns, const void *fixed,
			    uint32_t n_fixed, const void *text, uint32_t n_text, void *data);

/* For one ring. No record is older than from_ns. */
struct sysprof_frames *sysprof_frames_new(uint64_t from_ns, sysprof_put put, void *data);
void sysprof_frames_free(struct sysprof_frames *frames); /* takes NULL */

enum sysprof_result {
	SYSPROF_ADDED,   /* it became a record, or was ignored */
	SYSPROF_REFUSED, /* no table for it, or no room */
	SYSPROF_END,     /* its thread has ended */
	SYSPROF_BAD,     /* not a valid frame */
};

/* Returns the length of the frame at `frame`: a multiple of 8, and at most n; 0: not a frame. */
size_t sysprof_frame_bytes(const uint8_t *frame, size_t n);
/* Returns the pid in the frame, in the process's own PID namespace; 0: the end of a thread, which
 * has none. */
int32_t sysprof_frame_pid(const uint8_t *frame);
/*
 * frame: n_bytes, aligned to 8, in private memory; its content is not trusted. now_ns: no record
 * is later. ret_lost: the number of its items that did not become records.
 */
enum sysprof_result sysprof_frame_add(struct sysprof_frames *frames,
				      struct sysprof_counters *counters, const uint8_t *frame,
				      size_t n_bytes, uint64_t now_ns, uint64_t *ret_lost);
/* The time of the last record. */
uint64_t sysprof_frames_last_ns(const struct sysprof_frames *frames);
