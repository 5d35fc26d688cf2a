/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Cursor - rows of one table in file order
 *
 * Owns all memory that reading takes: one chunk as stored, one row group decoded, reused from chunk to chunk. Only the
 * columns that were asked for are decompressed; chunks and row groups outside the asked time are not.
 *
 * Invariants: (1) memory does not depend on the length of the capture        [by construction: buffers hold one chunk and one group]
 *             (2) a damaged chunk costs its own rows and is counted           [test-capture-reader: flips]
 * One thread at a time; any number of cursors on one reader.
 */
#include "libcapture/reader.h"

struct prof_cursor {
	const struct prof_reader *reader;
	struct prof_cursor_options options; /* without columns */
	bool timed;
	struct chunk_decoder decoder;
	struct buffer stored;
	const uint32_t *chunks; /* of this table, as positions in the reader's */
	size_t n_chunks, next;
	const struct prof_chunk *chunk; /* NULL: none is open */
	size_t chunk_index;
	const uint8_t *at, *end; /* rest of the open chunk's payload */
	uint64_t rows_left;
	uint64_t lost_chunks, lost_rows;
};

PROF_PUBLIC int prof_cursor_new(const struct prof_reader *reader,
				const struct prof_cursor_options *options,
				struct prof_cursor **ret_cursor)
{
	const struct prof_table_def *def = schema_find(&reader->schema, options->table);
	const struct table_range *range = reader_range(reader, options->table);
	struct prof_cursor *cursor;
	int r;

	if (!def || !range)
		return PROF_NO_TABLE;
	/* One more than a table has: dictionaries ask for the id beside what their caller wants. */
	if (options->columns && options->n_columns > PROF_MAX_COLUMNS + 1)
		return -EINVAL;
	cursor = calloc(1, sizeof(*cursor));
	if (!cursor)
		return -ENOMEM;
	cursor->reader = reader;
	cursor->options = *options;
	cursor->timed = def->flags & PROF_TABLE_TIMED && (options->t_from || options->t_to);
	cursor->chunks = reader->by_table + range->first;
	cursor->n_chunks = range->n;
	r = chunk_decoder_init(&cursor->decoder, def, options->columns, options->n_columns);
	if (r) {
		free(cursor);
		return r;
	}
	*ret_cursor = cursor;
	return 0;
}

PROF_PUBLIC void prof_cursor_free(struct prof_cursor *cursor)
{
	if (!cursor)
		return;
	chunk_decoder_done(&cursor->decoder);
	buffer_done(&cursor->stored);
	free(cursor);
}

static bool in_time(const struct prof_cursor *cursor, uint64_t t_min, uint64_t t_max)
{
	return !cursor->timed || (t_min <= cursor->options.t_to && t_max >= cursor->options.t_from);
}

static bool wanted(const struct prof_cursor *cursor, const struct prof_chunk *chunk)
{
	return (!cursor->options.segment || chunk->segment == cursor->options.segment) &&
	       (!cursor->options.epoch || chunk->epoch == cursor->options.epoch) &&
	       in_time(cursor, chunk->t_min, chunk->t_max);
}

/* The chunk that is open cannot be read on. */
static void cursor_lose(struct prof_cursor *cursor)
{
	cursor->lost_chunks++;
	cursor->lost_rows += cursor->rows_left;
	cursor->chunk = NULL;
}

/* Opens the next chunk that is wanted and good. 0, PROF_END, -errno. */
static int cursor_open_chunk(struct prof_cursor *cursor)
{
	while (cursor->next < cursor->n_chunks) {
		uint32_t index = cursor->chunks[cursor->next++];
		const struct prof_chunk *chunk = &cursor->reader->chunks[index];
		enum prof_damage_reason reason;
		struct chunk_header header;
		int r;

		if (!wanted(cursor, chunk))
			continue;
		r = load_chunk(cursor->reader, chunk, &cursor->stored, &header, &cursor->at,
			       &reason);
		if (r < 0)
			return r;
		cursor->rows_left = chunk->rows;
		if (r > 0) {
			cursor_lose(cursor);
			continue;
		}
		cursor->chunk = chunk;
		cursor->chunk_index = index;
		cursor->end = cursor->at + header.stored;
		return 0;
	}
	return PROF_END;
}

PROF_PUBLIC int prof_cursor_next(struct prof_cursor *cursor, struct prof_batch *ret_batch)
{
	for (;;) {
		struct chunk_group group;
		int r = cursor->chunk ? 0 : cursor_open_chunk(cursor);

		if (r)
			return r;
		if (cursor->at == cursor->end ||
		    !chunk_group_next(&cursor->at, cursor->end, &group)) {
			cursor->chunk = NULL;
			continue;
		}
		if (!in_time(cursor, group.t_min, group.t_max)) {
			cursor->rows_left -= group.rows;
			continue;
		}
		r = chunk_decode(&cursor->decoder, &group);
		if (r < 0)
			return r;
		if (r > 0) {
			cursor_lose(cursor);
			continue;
		}
		cursor->rows_left -= group.rows;
		*ret_batch = (struct prof_batch){
			.columns = cursor->decoder.arrays,
			.rows = group.rows,
			.chunk = cursor->chunk_index,
			.segment = cursor->chunk->segment,
			.epoch = cursor->chunk->epoch,
		};
		return 0;
	}
}

PROF_PUBLIC void prof_cursor_lost(const struct prof_cursor *cursor, uint64_t *ret_chunks,
				  uint64_t *ret_rows)
{
	*ret_chunks = cursor->lost_chunks;
	*ret_rows = cursor->lost_rows;
}
