/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Buffer - snapshot records (daemon/protocol.h) in memory
 *
 * Files of /proc are read directly into the buffer, because they are most of a snapshot.
 */
#include "daemon/files/buffer.h"

#include "base/clock.h"
#include "daemon/files/status.h"

#include <fcntl.h>
#include <time.h>

#define FIRST_BYTES (256u << 10)

bool buffer_reserve(struct buffer *buffer, size_t bytes)
{
	size_t size = MAX_OF(buffer->size, FIRST_BYTES);
	void *larger;

	if (buffer->failed)
		return false;
	if (buffer->length + bytes <= buffer->size)
		return true;
	while (size < buffer->length + bytes)
		size *= 2;
	larger = realloc(buffer->bytes, size);
	if (!larger) {
		buffer->failed = true;
		return false;
	}
	buffer->bytes = larger;
	buffer->size = size;
	return true;
}

static void append(struct buffer *buffer, const void *bytes, size_t n)
{
	if (n)
		memcpy(buffer->bytes + buffer->length, bytes, n);
	buffer->length += n;
}

void buffer_add(struct buffer *buffer, const struct snapshot_record *record, const void *data,
		const void *more, size_t more_bytes)
{
	static const uint8_t zeros[8];
	struct snapshot_record full = *record;

	full.length += (uint32_t)more_bytes;
	if (!buffer_reserve(buffer, sizeof(full) + full.length + sizeof(zeros)))
		return;
	append(buffer, &full, sizeof(full));
	append(buffer, data, record->length);
	append(buffer, more, more_bytes);
	append(buffer, zeros, -full.length & 7);
}

bool buffer_add_file(struct buffer *buffer, int dir, const char *path,
		     struct snapshot_record record, size_t limit)
{
	CLEANUP_CLOSE int fd = -1;
	size_t begin = buffer->length, at = begin + sizeof(record);
	size_t space = 4096;
	ssize_t n = -1;

	status_progress();
	fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return false;
	record.time_ns = clock_now();
	do {
		if (!buffer_reserve(buffer, sizeof(record) + (at - begin) + space + 8))
			return false;
		n = read(fd, buffer->bytes + at, space);
		if (n > 0)
			at += (size_t)n;
		space = 65536;
	} while (n > 0 && at - begin < limit);
	if (n < 0)
		return false;
	record.length = (uint32_t)(at - begin - sizeof(record));
	memcpy(buffer->bytes + begin, &record, sizeof(record));
	memset(buffer->bytes + at, 0, -record.length & 7);
	buffer->length = at + (-record.length & 7);
	return true;
}

void buffer_done(struct buffer *buffer)
{
	free(buffer->bytes);
	*buffer = (struct buffer){ 0 };
}
