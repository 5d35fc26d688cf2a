/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Load - reads one chunk into memory and checks it
 *
 * Files are read with pread() and never mapped: if a file shrinks, its reader finds a damaged
 * chunk, and gets no SIGBUS. Several threads may use one reader; the caller owns the buffers.
 */
#include "libcapture/reader.h"

#include <errno.h>

int read_at(int fd, uint64_t offset, void *data, size_t size, size_t *ret_size)
{
	size_t done = 0;

	while (done < size) {
		ssize_t n = pread(fd, (uint8_t *)data + done, size - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += n;
	}
	*ret_size = done;
	return 0;
}

int load_header(const struct prof_reader *reader, uint64_t offset, struct chunk_header *ret_header)
{
	uint8_t bytes[CHUNK_HEADER_BYTES];
	struct chunk_header header;
	size_t n;
	int r;

	if (offset < FILE_HEADER_BYTES || offset % 8 != 0 || offset > reader->size ||
	    reader->size - offset < sizeof(bytes))
		return PROF_DAMAGED;
	r = read_at(reader->fd, offset, bytes, sizeof(bytes), &n);
	if (r)
		return r;
	if (n < sizeof(bytes) || !chunk_header_decode(bytes, reader->header.salt, &header) ||
	    header.stored > reader->size - offset - sizeof(bytes) ||
	    header.sequence > format_max_sequence(offset))
		return PROF_DAMAGED;
	*ret_header = header;
	return 0;
}

int load_payload(const struct prof_reader *reader, uint64_t offset,
		 const struct chunk_header *header, struct buffer *buffer,
		 enum prof_damage_reason *ret_reason)
{
	size_t n;
	int r;

	buffer->size = 0;
	r = buffer_reserve(buffer, header->stored);
	if (!r)
		r = read_at(reader->fd, offset + CHUNK_HEADER_BYTES, buffer->data, header->stored,
			    &n);
	if (r)
		return r;
	buffer->size = n;
	if (n < header->stored) {
		*ret_reason = PROF_DAMAGE_CUT;
		return PROF_DAMAGED;
	}
	if (format_checksum(buffer->data, n, reader->header.salt) != header->checksum) {
		*ret_reason = PROF_DAMAGE_CHECKSUM;
		return PROF_DAMAGED;
	}
	return 0;
}

static bool header_is(const struct chunk_header *header, const struct prof_chunk *chunk)
{
	return header->kind == CHUNK_DATA && header->sequence == chunk->sequence &&
	       header->table == chunk->table && header->stream == chunk->stream &&
	       header->rows == chunk->rows && header->segment == chunk->segment &&
	       header->epoch == chunk->epoch && header->stored == chunk->stored_bytes &&
	       header->t_min == chunk->t_min && header->t_max == chunk->t_max &&
	       header->link == chunk->first_id;
}

int load_chunk(const struct prof_reader *reader, const struct prof_chunk *chunk,
	       struct buffer *buffer, struct chunk_header *ret_header, const uint8_t **ret_payload,
	       enum prof_damage_reason *ret_reason)
{
	size_t size = CHUNK_HEADER_BYTES + (size_t)chunk->stored_bytes, n;
	struct chunk_header header;
	int r;

	buffer->size = 0;
	r = buffer_reserve(buffer, size);
	if (!r)
		r = read_at(reader->fd, chunk->offset, buffer->data, size, &n);
	if (r)
		return r;
	buffer->size = n;
	if (n < size) {
		*ret_reason = PROF_DAMAGE_CUT;
		return PROF_DAMAGED;
	}
	if (!chunk_header_decode(buffer->data, reader->header.salt, &header) ||
	    !header_is(&header, chunk)) {
		*ret_reason = PROF_DAMAGE_HEADER;
		return PROF_DAMAGED;
	}
	if (format_checksum(buffer->data + CHUNK_HEADER_BYTES, header.stored,
			    reader->header.salt) != header.checksum) {
		*ret_reason = PROF_DAMAGE_CHECKSUM;
		return PROF_DAMAGED;
	}
	if (header.rows == 0 || header.rows > PROF_MAX_ROWS ||
	    !chunk_groups_valid(buffer->data + CHUNK_HEADER_BYTES, header.stored, header.groups,
				header.rows)) {
		*ret_reason = PROF_DAMAGE_PAYLOAD;
		return PROF_DAMAGED;
	}
	*ret_header = header;
	*ret_payload = buffer->data + CHUNK_HEADER_BYTES;
	return 0;
}
