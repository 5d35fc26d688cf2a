/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Chunks - returns all data chunks of a capture as an array, for tests that need the n-th chunk
 */
#pragma once

#include "arch/base.h"
#include "libcapture/prof-capture.h"

#include <stdlib.h>

/* The caller frees the array. Sets *ret_n to 0 if the chunks cannot be listed. */
static inline struct prof_chunk *chunks_of(const struct prof_reader *reader, size_t *ret_n)
{
	size_t n = 0, capacity = (size_t)prof_reader_info(reader)->chunks;
	struct prof_chunk *array = calloc(capacity + 1, sizeof(*array));
	struct prof_chunks *chunks;
	int r = PROF_END;

	*ret_n = 0;
	if (array && prof_chunks_new(reader, 0, &chunks) == 0) {
		while (n < capacity && (r = prof_chunks_next(chunks, &array[n])) == 0)
			n++;
		if (r == 0 && prof_chunks_next(chunks, &array[n]) != PROF_END)
			n = 0; /* the reader listed more chunks than it reports */
		prof_chunks_free(chunks);
	}
	if (n != capacity)
		n = 0;
	*ret_n = n;
	return array;
}

static inline size_t chunks_count(const struct prof_reader *reader)
{
	size_t n;

	free(chunks_of(reader, &n));
	return n;
}

static inline uint32_t chunks_first_epoch(const struct prof_reader *reader)
{
	size_t n;
	struct prof_chunk *chunks = chunks_of(reader, &n);
	uint32_t epoch = n ? chunks[0].epoch : 0;

	free(chunks);
	return epoch;
}
