/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/peers/collectors.h"
#include "daemon/engine/peers/sysprof-frames.h"
#include "daemon/engine/peers/sysprof-ring.h"

/* Maximum delay from a frame's time to its publication. A frame in progress is not visible, and a
 * thread requests its ring only after it has taken the time of its first mark. */
#define SYSPROF_HOLD_NS RING_BUSY_NS

/* A ring of sysprof's (sysprof-ring.h). Its arena has one peer_ring, whose reader is used only for
 * size, times and fault. */
struct peer_sysprof {
	struct sysprof_ring ring;
	struct sysprof_frames *frames;
	uint32_t largest; /* largest frame, in bytes */
	int32_t pid;      /* pid that all frames must have; 0: not known yet */
	/* when a writer that had not requested the ring was first seen; 0: never */
	uint64_t found_ns;
	unsigned int n_faults;
	uint64_t ended_ns; /* when the ring was found marked as ended; 0: not marked */
	size_t n_queued;   /* bytes queued by the current drain */
};

/* The protocol of sysprof's library, in which each thread of a process requests a ring. */
extern const struct peer_type sysprof_type;
