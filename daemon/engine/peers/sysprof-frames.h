/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "arch/sysprof-format.h"
#include "libcollector/ring/ring-layout.h"

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SYSPROF_MAX_COUNTERS 4096u

/* Converts the frames of one ring into records of profd's own rings. */
struct sysprof_frames;

/* The counters of a process: each thread may set counters that another thread has defined. */
struct sysprof_counters;
struct sysprof_counters *sysprof_counters_new(void);
void sysprof_counters_free(struct sysprof_counters *counters); /* NULL is allowed */

/* Receives a record: its fixed part, then its text. String and counter ids are those of the
 * ring. */
typedef void (*sysprof_put)(enum ring_type type, uint64_t time_ns, const void *fixed,
			    uint32_t n_fixed, const void *text, uint32_t n_text, void *data);

/* Makes a converter for one ring. No record will be older than from_ns. */
struct sysprof_frames *sysprof_frames_new(uint64_t from_ns, sysprof_put put, void *data);
void sysprof_frames_free(struct sysprof_frames *frames); /* NULL is allowed */

enum sysprof_result {
	SYSPROF_ADDED,   /* became a record, or was ignored */
	SYSPROF_REFUSED, /* some or all items were not converted: see ret_lost */
	SYSPROF_END,     /* the thread has ended */
	SYSPROF_BAD,     /* not a valid frame */
};

/* Returns the length of the frame, a multiple of 8 and at most n; 0: not a frame. */
size_t sysprof_frame_bytes(const uint8_t *frame, size_t n);
/* Returns the pid in the frame, in the process's own PID namespace; 0: the frame marks the end of a
 * thread, and has no pid. */
int32_t sysprof_frame_pid(const uint8_t *frame);
/* Converts a frame of n_bytes, 8-byte aligned, in private memory; its contents are not trusted. No
 * record will be later than now_ns. *ret_lost: number of items that did not become records. */
enum sysprof_result sysprof_frame_add(struct sysprof_frames *frames,
				      struct sysprof_counters *counters, const uint8_t *frame,
				      size_t n_bytes, uint64_t now_ns, uint64_t *ret_lost);
/* Returns the time of the last record. */
uint64_t sysprof_frames_last_ns(const struct sysprof_frames *frames);
