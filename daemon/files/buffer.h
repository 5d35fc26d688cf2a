/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "arch/base.h"
#include "daemon/protocol.h"

/* Records in the making: those of one process, or of what is read before them. */
struct buffer {
	uint8_t *bytes;
	size_t length, size;
	bool failed; /* no memory; nothing is added any more */
};

/* Room for that many bytes more. */
bool buffer_reserve(struct buffer *buffer, size_t bytes);
/* A record: record->length bytes of data, then more. */
void buffer_add(struct buffer *buffer, const struct snapshot_record *record, const void *data,
		const void *more, size_t more_bytes);
/* A whole file as one record, stamped with the time before it is read. False: it cannot be read. */
bool buffer_add_file(struct buffer *buffer, int dir, const char *path,
		     struct snapshot_record record, size_t limit);
void buffer_done(struct buffer *buffer);

/* CLOCK_MONOTONIC */
uint64_t buffer_now_ns(void);
