/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Sink - where a writer's bytes go
 *
 * See sink.c.
 */
#pragma once

#include "arch/base.h"

struct sink {
	int fd;
	bool stream;      /* a pipe and the like: bytes go where the last ones ended */
	bool preallocate; /* room is reserved before it is used */
	bool locked;
	uint64_t position;  /* where the next chunk goes */
	uint64_t allocated; /* the file system has room up to here */
	uint64_t touched;   /* highest byte written, whether it counts or not */
};

/* Locks a regular file. -EWOULDBLOCK: somebody else writes it. *ret_size: its length; 0 for what
 * is not a file. */
MUST_CHECK int sink_init(struct sink *sink, int fd, uint64_t *ret_size);
void sink_done(struct sink *sink);
/* Makes sure that `bytes` can be written at the position and `reserve` more bytes after them.
 * -ENOSPC… */
MUST_CHECK int sink_reserve(struct sink *sink, uint64_t bytes, uint64_t reserve);
/* Writes all or fails. After a failure the position is where a next write may go on; what lies
 * between the old and the new position is garbage. */
MUST_CHECK int sink_write(struct sink *sink, const void *data, size_t size);
/* Gives back what was reserved beyond the position. */
MUST_CHECK int sink_trim(struct sink *sink);
