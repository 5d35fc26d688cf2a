/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Sink - the destination of a writer's bytes
 *
 * A regular file is written with pwrite() at the sink's own position, so the next write overwrites
 * a partial one. Other files, and those opened with O_APPEND, are written sequentially: the bytes
 * of a failed write stay and become a gap.
 *
 * Space is reserved with fallocate(FALLOC_FL_KEEP_SIZE) before it is needed, so that a full disk is
 * detected before a chunk is begun, and the final loss rows still fit. If a file system cannot do
 * that, writes fail when the disk is full.
 *
 * This file handles short writes, EINTR, and EAGAIN of a non-blocking pipe. The caller handles
 * SIGPIPE. A stream is written in small pieces, and the position advances with each, so that the
 * progress of a slow reader is visible.
 */
#include "libcapture/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>

/* The space reserved ahead is an eighth of the position, but within these limits. */
#define AHEAD_MIN (UINT64_C(256) << 10)
#define AHEAD_MAX (UINT64_C(8) << 20)
#define STREAM_PIECE ((size_t)4096)

int sink_init(struct sink *sink, int fd, uint64_t *ret_size)
{
	struct stat st;
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fstat(fd, &st) < 0)
		return -errno;
	*sink = (struct sink){ .fd = fd, .stream = !S_ISREG(st.st_mode) || flags & O_APPEND };
	sink->preallocate = !sink->stream;
	*ret_size = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
	if (!S_ISREG(st.st_mode))
		return 0;
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		sink->locked = true;
	else if (errno == EWOULDBLOCK)
		return -EWOULDBLOCK;
	/* Other errors mean that the file system does not support locks. */
	return 0;
}

void sink_done(struct sink *sink)
{
	if (sink->locked)
		flock(sink->fd, LOCK_UN);
	sink->locked = false;
}

static int allocate(struct sink *sink, uint64_t to)
{
	uint64_t from = MAX_OF(sink->allocated, sink->position);
	int r;

	do
		r = fallocate(sink->fd, FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(to - from)) < 0
			    ? -errno
			    : 0;
	while (r == -EINTR);
	if (r == 0)
		sink->allocated = to;
	return r;
}

int sink_reserve(struct sink *sink, uint64_t bytes, uint64_t reserve)
{
	uint64_t need = sink->position + bytes + reserve, ahead = sink->position / 8;
	int r;

	if (!sink->preallocate || need <= sink->allocated)
		return 0;
	r = allocate(sink, need + MIN_OF(MAX_OF(ahead, AHEAD_MIN), AHEAD_MAX));
	if (r == -ENOSPC || r == -EDQUOT || r == -EFBIG)
		r = allocate(sink, need);
	if (r == -EOPNOTSUPP || r == -ENOSYS) {
		sink->preallocate = false;
		r = 0;
	}
	return r;
}

/* Writes once. Returns the number of bytes written, 0 after a signal or a wait for a full pipe, or
 * -errno. */
static ssize_t write_some(const struct sink *sink, const uint8_t *data, size_t size, uint64_t at)
{
	ssize_t n = sink->stream ? write(sink->fd, data, MIN_OF(size, STREAM_PIECE))
				 : pwrite(sink->fd, data, size, (off_t)at);
	struct pollfd pollfd = { .fd = sink->fd, .events = POLLOUT };

	if (n > 0)
		return n;
	if (n == 0)
		return -EIO;
	if (errno == EINTR)
		return 0;
	if (errno != EAGAIN || !sink->stream)
		return -errno;
	return poll(&pollfd, 1, -1) < 0 && errno != EINTR ? -errno : 0;
}

/* pairs with prof_writer_bytes() */
static void set_position(struct sink *sink, uint64_t position)
{
	__atomic_store_n(&sink->position, position, __ATOMIC_RELAXED);
}

int sink_write(struct sink *sink, const void *data, size_t size)
{
	uint64_t at = sink->position;
	size_t done = 0;

	while (done < size) {
		ssize_t n = write_some(sink, (const uint8_t *)data + done, size - done, at + done);

		if (n < 0) {
			sink->touched = MAX_OF(sink->touched, at + done);
			set_position(sink, sink->stream ? at + done : at);
			return (int)n;
		}
		done += n;
		if (sink->stream)
			set_position(sink, at + done);
	}
	set_position(sink, at + done);
	sink->touched = MAX_OF(sink->touched, sink->position);
	return 0;
}

int sink_trim(struct sink *sink)
{
	if (sink->stream || MAX_OF(sink->allocated, sink->touched) <= sink->position)
		return 0;
	while (ftruncate(sink->fd, (off_t)sink->position) < 0)
		if (errno != EINTR)
			return -errno;
	sink->allocated = sink->touched = sink->position;
	return 0;
}
