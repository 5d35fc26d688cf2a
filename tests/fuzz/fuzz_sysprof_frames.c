/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of daemon/engine/peers/sysprof-frames.c: any contents of one of sysprof's rings,
 * drained at once. Each frame is in its own heap block, so that a sanitizer detects reads past its
 * end.
 */
#include "daemon/engine/peers/sysprof-frames.h"

#include <stdlib.h>
#include <string.h>

#define NOW_NS UINT64_C(4000000000000)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sum;
static uint64_t last_ns;

static void on_record(enum ring_type type, uint64_t time_ns, const void *fixed, uint32_t n_fixed,
		      const void *text, uint32_t n_text, void *data)
{
	const uint8_t *bytes = fixed;

	if (time_ns < last_ns || time_ns > NOW_NS || type >= RING_N_TYPES)
		abort();
	last_ns = time_ns;
	for (uint32_t i = 0; i < n_fixed; i++)
		sum += bytes[i];
	bytes = text;
	for (uint32_t i = 0; i < n_text; i++)
		sum += bytes[i];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sysprof_frames *frames = sysprof_frames_new(1, on_record, NULL);
	struct sysprof_counters *counters = sysprof_counters_new();
	enum sysprof_result result = SYSPROF_ADDED;
	size_t n;

	last_ns = 0;
	while (size >= SYSPROF_FRAME_BYTES) {
		/* copy only as many bytes as the frame's length field claims */
		uint8_t *copy = malloc(size);
		uint64_t lost;

		if (!copy)
			abort();
		memcpy(copy, data, size);
		n = sysprof_frame_bytes(copy, size);
		copy = realloc(copy, n ? n : SYSPROF_FRAME_BYTES);
		if (n > 0 && result != SYSPROF_END) {
			sum += (uint64_t)sysprof_frame_pid(copy);
			result = sysprof_frame_add(frames, counters, copy, n, NOW_NS, &lost);
			sum += lost + sysprof_frames_last_ns(frames);
		}
		free(copy);
		if (n == 0)
			break;
		data += n;
		size -= n;
	}
	sysprof_frames_free(frames);
	sysprof_counters_free(counters);
	return 0;
}
