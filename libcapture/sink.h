/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Sink - the destination of a writer's bytes
 *
 * See sink.c.
 */
#pragma once

#include "arch/base.h"

struct sink {
	int fd;
	bool stream;      /* a pipe or similar: bytes are appended */
	bool preallocate; /* room is reserved before it is used */
	bool locked;
	uint64_t position;  /* where the next chunk goes */
	uint64_t allocated; /* the file system has room up to here */
	uint64_t touched;   /* highest byte written, valid or not */
};

/* Locks a regular file. -EWOULDBLOCK: another writer has it. *ret_size: its length; 0 if it is not
 * a file. */
MUST_CHECK int sink_init(struct sink *sink, int fd, uint64_t *ret_size);
void sink_done(struct sink *sink);
/* Makes sure that `bytes` can be written at the position and `reserve` more bytes after them.
 * -ENOSPC… */
MUST_CHECK int sink_reserve(struct sink *sink, uint64_t bytes, uint64_t reserve);
/* Writes everything or fails. After a failure the position is where the next write may continue;
 * the bytes between the old and the new position are garbage. */
MUST_CHECK int sink_write(struct sink *sink, const void *data, size_t size);
/* Releases the room that was reserved beyond the position. */
MUST_CHECK int sink_trim(struct sink *sink);
