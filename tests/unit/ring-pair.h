/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Ring-pair - one struct pair (ring.h), shared by all cases of a test
 */
#pragma once

#include "tests/unit/ring.h"

#include <time.h>

#define SMALL 4096u

static struct pair pair;

static inline struct ring_batch drain(enum ring_drain how)
{
	struct ring_batch batch;

	ring_reader_drain(&pair.reader, how, pair.buffer, sizeof(pair.buffer), &batch);
	return batch;
}

static inline void pause_ms(long ms)
{
	const struct timespec pause = { .tv_nsec = ms * 1000000 };

	nanosleep(&pause, NULL);
}
