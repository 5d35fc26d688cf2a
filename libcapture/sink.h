/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Sink - the destination of a writer's bytes */
#pragma once

#include "arch/base.h"

struct sink {
	int fd;
	bool stream;      /* a pipe or similar: bytes are only appended */
	bool preallocate; /* reserve space before it is used */
	bool locked;
	uint64_t position;  /* offset of the next chunk */
	uint64_t allocated; /* end of the space that the file system has reserved */
	uint64_t touched;   /* end of the bytes written, valid or not */
};

/* Locks a regular file. Returns 0, -EWOULDBLOCK if another writer has the lock, or -errno.
 * *ret_size: the file's length; 0 if it is not a regular file. */
MUST_CHECK int sink_init(struct sink *sink, int fd, uint64_t *ret_size);
void sink_done(struct sink *sink);
/* If `preallocate` is set, makes sure that `bytes`, and `reserve` more bytes after them, can be
 * written at the position. Returns 0, or -errno such as -ENOSPC. */
MUST_CHECK int sink_reserve(struct sink *sink, uint64_t bytes, uint64_t reserve);
/* Writes everything or fails. After a failure, the position of a file is unchanged. A stream's
 * position is after the bytes that were written, which are garbage. */
MUST_CHECK int sink_write(struct sink *sink, const void *data, size_t size);
/* Cuts a file at the position, to release the reserved space. Does nothing for a stream. */
MUST_CHECK int sink_trim(struct sink *sink);
