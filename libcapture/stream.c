/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Stream - reads a capture while it is being written
 *
 * For live views: a pipe that profd writes into. Chunks are returned in the order in which they
 * arrive, each as soon as it is whole. Earlier chunks are not kept, so memory does not depend on
 * the length of the recording. A stream needs no index, cannot seek, and is not repaired: it ends
 * at the first bytes that are not a chunk.
 *
 * Invariants: (1) the rows of a stream are those that a cursor finds in the same bytes
 *                 [test-capture-stream: same rows]
 *             (2) the boundaries of reads do not matter  [test-capture-stream: pieces]
 *             (3) memory is bounded by the largest chunk that the format allows
 *                 [test-capture-stream: sizes]
 * One thread. Does not write, and does not keep dictionaries.
 */
#include "libcapture/reader.h"

#include <errno.h>
#include <unistd.h>

#define READ_BYTES (256u << 10)

struct table_decoder {
	struct chunk_decoder decoder;
	uint16_t table;
};

struct prof_stream {
	int fd;
	uint64_t tables; /* bit n is set if table n is requested */
	struct file_header header;
	bool has_header;
	bool ended;         /* no more bytes will come */
	struct buffer read; /* bytes read; those before `at` were handled */
	size_t at;
	struct schema schema;
	struct buffer schema_section; /* last decoded section, because most checkpoints repeat it */
	uint64_t schema_budget;       /* limit for the bytes of schemas decoded from now on */
	struct table_decoder *decoders; /* for the current schema */
	size_t n_decoders;
	/* chunk whose groups are being returned */
	struct chunk_header chunk;
	const uint8_t *group, *end; /* in `read`; group == end: no more groups */
	struct chunk_decoder *decoder;
	uint64_t lost_chunks;
};

PROF_PUBLIC int prof_stream_new(int fd, uint64_t tables, struct prof_stream **ret_stream)
{
	struct prof_stream *stream = calloc(1, sizeof(*stream));

	if (!stream)
		return -ENOMEM;
	stream->fd = fd;
	stream->tables = tables;
	stream->schema_budget = FORMAT_MAX_SCHEMAS;
	*ret_stream = stream;
	return 0;
}

static void forget_decoders(struct prof_stream *stream)
{
	for (size_t i = 0; i < stream->n_decoders; i++)
		chunk_decoder_done(&stream->decoders[i].decoder);
	free(stream->decoders);
	stream->decoders = NULL;
	stream->n_decoders = 0;
	stream->decoder = NULL;
}

PROF_PUBLIC void prof_stream_free(struct prof_stream *stream)
{
	if (!stream)
		return;
	forget_decoders(stream);
	schema_done(&stream->schema);
	buffer_done(&stream->schema_section);
	buffer_done(&stream->read);
	free(stream);
}

/* ---- Bytes ----------------------------------------------------------------------------------- */

/* Reads until `bytes` bytes are available from `at` on. Returns 0, -EAGAIN, PROF_END if no more
 * bytes will come, or -errno. */
static int fill(struct prof_stream *stream, size_t bytes)
{
	struct buffer *read_bytes = &stream->read;

	if (read_bytes->size - stream->at >= bytes)
		return 0;
	if (stream->at > 0)
		memmove(read_bytes->data, read_bytes->data + stream->at,
			read_bytes->size - stream->at);
	read_bytes->size -= stream->at;
	stream->at = 0;
	while (read_bytes->size < bytes) {
		ssize_t n;
		int r = buffer_reserve(read_bytes,
				       MAX_OF(bytes - read_bytes->size, (size_t)READ_BYTES));

		if (r)
			return r;
		n = read(stream->fd, read_bytes->data + read_bytes->size,
			 read_bytes->capacity - read_bytes->size);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EWOULDBLOCK ? -EAGAIN : -errno;
		if (n == 0)
			return PROF_END;
		read_bytes->size += (size_t)n;
	}
	return 0;
}

static int read_file_header(struct prof_stream *stream)
{
	unsigned int bad_copies;
	int r = fill(stream, FILE_HEADER_BYTES);

	if (!r)
		r = file_header_decode(stream->read.data + stream->at, &stream->header,
				       &bad_copies);
	if (r)
		return r == PROF_END ? PROF_TOO_SHORT : r;
	stream->at += FILE_HEADER_BYTES;
	stream->has_header = true;
	return 0;
}

/* ---- Chunks ---------------------------------------------------------------------------------- */

/* Finds the decoder of a table; NULL if the table's schema is unknown. */
static int find_decoder(struct prof_stream *stream, uint16_t table,
			struct chunk_decoder **ret_decoder)
{
	const struct prof_table_def *def = schema_find(&stream->schema, table);
	const struct prof_table_def *known;
	uint16_t ids[PROF_MAX_COLUMNS];
	struct table_decoder *grown;
	int r;

	*ret_decoder = NULL;
	for (size_t i = 0; i < stream->n_decoders; i++)
		if (stream->decoders[i].table == table)
			*ret_decoder = &stream->decoders[i].decoder;
	if (*ret_decoder || !def)
		return 0;
	grown = reallocarray(stream->decoders, stream->n_decoders + 1, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	stream->decoders = grown;
	grown += stream->n_decoders;
	/* Columns of version-1 tables keep the positions of the built-in definition, whatever the
	 * writer's version. */
	known = prof_table_v1(table);
	for (uint16_t i = 0; known && i < known->n_columns; i++)
		ids[i] = known->columns[i].id;
	r = chunk_decoder_init(&grown->decoder, def, known ? ids : NULL,
			       known ? known->n_columns : 0);
	if (r)
		return r;
	grown->table = table;
	stream->n_decoders++;
	*ret_decoder = &grown->decoder;
	return 0;
}

static int receive_schema(struct prof_stream *stream, const struct checkpoint_view *view)
{
	struct buffer *last = &stream->schema_section;
	int r;

	if (view->schema_bytes == last->size &&
	    memcmp(view->schema, last->data, view->schema_bytes) == 0)
		return 0;
	if (load_le32(view->schema) > stream->schema_budget)
		return PROF_LIMIT;
	stream->schema_budget -= load_le32(view->schema);
	forget_decoders(stream);
	last->size = 0;
	r = checkpoint_decode_schema(view, &stream->schema);
	if (r && r != SCHEMA_CONFLICT)
		return r;
	return buffer_add(last, view->schema, view->schema_bytes);
}

static int receive_data(struct prof_stream *stream, const uint8_t *payload)
{
	uint16_t table = stream->chunk.table;
	int r;

	if (stream->tables && (table >= 64 || !(stream->tables >> table & 1)))
		return 0;
	r = find_decoder(stream, table, &stream->decoder);
	if (r)
		return r;
	if (!stream->decoder || stream->chunk.rows == 0 || stream->chunk.rows > PROF_MAX_ROWS ||
	    !chunk_groups_valid(payload, stream->chunk.stored, stream->chunk.groups,
				stream->chunk.rows)) {
		stream->lost_chunks++;
		return 0;
	}
	stream->group = payload;
	stream->end = payload + stream->chunk.stored;
	return 0;
}

/* Reads and checks the next chunk. Results as for prof_stream_next(). */
static int next_chunk(struct prof_stream *stream)
{
	struct checkpoint_view view;
	const uint8_t *payload;
	int r;

	stream->group = stream->end = NULL;
	r = fill(stream, CHUNK_HEADER_BYTES);
	if (r)
		return r;
	if (!chunk_header_decode(stream->read.data + stream->at, stream->header.salt,
				 &stream->chunk))
		return PROF_DAMAGED;
	r = fill(stream, chunk_bytes(&stream->chunk));
	if (r)
		return r;
	payload = stream->read.data + stream->at + CHUNK_HEADER_BYTES;
	stream->at += chunk_bytes(&stream->chunk);
	if (stream->chunk.kind != CHUNK_DATA && stream->chunk.kind != CHUNK_CHECKPOINT)
		return 0;
	if (format_checksum(payload, stream->chunk.stored, stream->header.salt) !=
	    stream->chunk.checksum) {
		stream->lost_chunks++;
		return 0;
	}
	if (stream->chunk.kind == CHUNK_DATA)
		return receive_data(stream, payload);
	r = checkpoint_parse(payload, stream->chunk.stored, &view);
	if (!r)
		r = receive_schema(stream, &view);
	/* A damaged checkpoint loses the tables that it declares. */
	stream->lost_chunks += r > 0;
	return MIN_OF(r, 0);
}

/* Decodes the next group of the chunk. Returns 0, PROF_END after the last group or at a damaged
 * one, or -errno. */
static int next_group(struct prof_stream *stream, struct prof_batch *ret_batch)
{
	struct chunk_group group;
	int r;

	if (stream->group == stream->end || !chunk_group_next(&stream->group, stream->end, &group))
		return PROF_END;
	r = chunk_decode(stream->decoder, &group);
	if (r < 0)
		return r;
	if (r > 0) {
		stream->lost_chunks++;
		return PROF_END;
	}
	*ret_batch = (struct prof_batch){
		.columns = stream->decoder->arrays,
		.rows = group.rows,
		.sequence = stream->chunk.sequence,
		.segment = stream->chunk.segment,
		.epoch = stream->chunk.epoch,
	};
	return 0;
}

PROF_PUBLIC int prof_stream_next(struct prof_stream *stream, unsigned int *ret_table,
				 struct prof_batch *ret_batch)
{
	int r = stream->ended ? PROF_END : 0;

	if (!r && !stream->has_header)
		r = read_file_header(stream);
	while (!r) {
		r = next_group(stream, ret_batch);
		if (!r) {
			*ret_table = stream->chunk.table;
			return 0;
		}
		if (r == PROF_END)
			r = next_chunk(stream);
	}
	stream->ended = r != -EAGAIN;
	return r;
}

PROF_PUBLIC uint64_t prof_stream_lost(const struct prof_stream *stream)
{
	return stream->lost_chunks;
}
