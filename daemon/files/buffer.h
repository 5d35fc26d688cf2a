/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "arch/base.h"
#include "daemon/protocol.h"

/* The records of one process, or the records that precede those of all processes. */
struct buffer {
	uint8_t *bytes;
	size_t length, size;
	bool failed; /* memory ran out; further records are ignored */
};

/* Makes room for `bytes` more bytes. Returns false if there is no memory. */
bool buffer_reserve(struct buffer *buffer, size_t bytes);
/* Adds a record: record->length bytes of `data`, then `more`. */
void buffer_add(struct buffer *buffer, const struct snapshot_record *record, const void *data,
		const void *more, size_t more_bytes);
/* Adds a file as one record, with the time just before reading. Stops reading once the record has
 * `limit` bytes. Returns false if the file cannot be read. */
bool buffer_add_file(struct buffer *buffer, int dir, const char *path,
		     struct snapshot_record record, size_t limit);
void buffer_done(struct buffer *buffer);
