/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Cursor - rows of one table in file order
 *
 * A cursor owns all memory for reading: a page of entries, a stored chunk, and a decoded row group,
 * which are reused from chunk to chunk. Only requested columns are decompressed. Chunks and row
 * groups outside the requested time are skipped.
 *
 * Invariants: (1) memory does not depend on the length of the capture        [test-capture-memory]
 *             (2) a damaged chunk costs only its own rows, and is counted
 *                 [test-capture-reader: flips]
 * Each cursor may be used by one thread at a time; any number of cursors may use one reader.
 */
#include "libcapture/reader.h"

struct prof_cursor {
	const struct prof_reader *reader;
	uint64_t t_from, t_to; /* 0, 0: all */
	struct entries_cursor entries;
	struct chunk_decoder decoder;
	struct buffer stored;
	struct prof_chunk chunk; /* valid if is_open */
	bool is_open;
	const uint8_t *at, *end; /* rest of the open chunk's payload */
	uint64_t rows_left;
	uint64_t lost_chunks, lost_rows;
	/* index in the reader's damage; earlier entries are before the open chunk */
	size_t next_damage;
	uint64_t breaks;
};

PROF_PUBLIC int prof_cursor_new(const struct prof_reader *reader,
				const struct prof_cursor_options *options,
				struct prof_cursor **ret_cursor)
{
	const struct prof_table_def *def = schema_find(&reader->schema, options->table);
	struct entries_filter filter = { .segment = options->segment, .epoch = options->epoch };
	struct prof_cursor *cursor;
	int r;

	if (!def)
		return PROF_NO_TABLE;
	/* A dictionary requests the id in addition to its caller's columns. */
	if (options->columns && options->n_columns > PROF_MAX_COLUMNS + 1)
		return -EINVAL;
	cursor = calloc(1, sizeof(*cursor));
	if (!cursor)
		return -ENOMEM;
	cursor->reader = reader;
	filter.table = def->id;
	if (def->flags & PROF_TABLE_TIMED) {
		filter.t_from = cursor->t_from = options->t_from;
		filter.t_to = cursor->t_to = options->t_to;
	}
	r = entries_cursor_init(&cursor->entries, &reader->entries, &filter);
	if (!r)
		r = chunk_decoder_init(&cursor->decoder, def, options->columns, options->n_columns);
	if (!r)
		cursor->decoder.codec.zstd = spare_take(reader->entries.spares->zstd);
	if (r) {
		prof_cursor_free(cursor);
		return r;
	}
	*ret_cursor = cursor;
	return 0;
}

PROF_PUBLIC void prof_cursor_free(struct prof_cursor *cursor)
{
	if (!cursor)
		return;
	entries_cursor_done(&cursor->entries);
	cursor->decoder.codec.zstd =
		spare_leave(cursor->reader->entries.spares->zstd, cursor->decoder.codec.zstd);
	chunk_decoder_done(&cursor->decoder);
	buffer_done(&cursor->stored);
	free(cursor);
}

/* Drops the rest of the open chunk, because it is damaged. */
static int cursor_lose(struct prof_cursor *cursor)
{
	cursor->lost_chunks++;
	cursor->lost_rows += cursor->rows_left;
	cursor->breaks++;
	cursor->is_open = false;
	return lost_add(cursor->reader->lost, &cursor->chunk, cursor->rows_left);
}

/* Counts the damaged ranges before `offset` that may have held chunks of the table. */
static void cursor_pass(struct prof_cursor *cursor, uint64_t offset)
{
	const struct damage_list *damage = &cursor->reader->damage;

	for (; cursor->next_damage < damage->n; cursor->next_damage++) {
		const struct prof_damage *at = &damage->items[cursor->next_damage];

		if (at->offset > offset)
			return;
		cursor->breaks += damage_is_stretch(cursor->reader, at);
	}
}

/* Opens the next matching chunk that is valid. Returns 0, PROF_END or -errno. */
static int cursor_open_chunk(struct prof_cursor *cursor)
{
	for (;;) {
		enum prof_damage_reason reason;
		struct chunk_header header;
		struct entry entry;
		int r = entries_cursor_next(&cursor->entries, &entry);

		if (r == PROF_END)
			cursor_pass(cursor, UINT64_MAX);
		if (r)
			return r;
		cursor_pass(cursor, entry.chunk.offset);
		r = load_chunk(cursor->reader, &entry.chunk, &cursor->stored, &header, &cursor->at,
			       &reason);
		if (r < 0)
			return r;
		cursor->chunk = entry.chunk;
		cursor->rows_left = entry.chunk.rows;
		if (r > 0) {
			r = cursor_lose(cursor);
			if (r)
				return r;
			continue;
		}
		cursor->is_open = true;
		cursor->end = cursor->at + header.stored;
		return 0;
	}
}

PROF_PUBLIC int prof_cursor_next(struct prof_cursor *cursor, struct prof_batch *ret_batch)
{
	for (;;) {
		struct chunk_group group;
		int r = cursor->is_open ? 0 : cursor_open_chunk(cursor);

		if (r)
			return r;
		if (cursor->at == cursor->end ||
		    !chunk_group_next(&cursor->at, cursor->end, &group)) {
			cursor->is_open = false;
			continue;
		}
		if ((cursor->t_from != 0 || cursor->t_to != 0) &&
		    (group.t_min > cursor->t_to || group.t_max < cursor->t_from)) {
			cursor->rows_left -= group.rows;
			continue;
		}
		if (cursor->reader->guard)
			r = cursor->reader->guard(cursor->chunk.table, cursor->reader->guard_data);
		if (r)
			return r;
		r = chunk_decode(&cursor->decoder, &group);
		if (r < 0)
			return r;
		if (r > 0) {
			r = cursor_lose(cursor);
			if (r)
				return r;
			continue;
		}
		*ret_batch = (struct prof_batch){
			.columns = cursor->decoder.arrays,
			.rows = group.rows,
			.sequence = cursor->chunk.sequence,
			.segment = cursor->chunk.segment,
			.epoch = cursor->chunk.epoch,
			.first_row = (uint32_t)(cursor->chunk.rows - cursor->rows_left),
		};
		cursor->rows_left -= group.rows;
		return 0;
	}
}

PROF_PUBLIC void prof_cursor_lost(const struct prof_cursor *cursor, uint64_t *ret_chunks,
				  uint64_t *ret_rows)
{
	*ret_chunks = cursor->lost_chunks;
	*ret_rows = cursor->lost_rows;
}

PROF_PUBLIC uint64_t prof_cursor_breaks(const struct prof_cursor *cursor)
{
	return cursor->breaks;
}

/* ---- Chunks ---------------------------------------------------------------------------------- */

struct prof_chunks {
	struct entries_cursor entries;
};

PROF_PUBLIC int prof_chunks_new(const struct prof_reader *reader, unsigned int table,
				struct prof_chunks **ret_chunks)
{
	const struct entries_filter filter = { .table = (uint16_t)table };
	struct prof_chunks *chunks;
	int r;

	if (table > UINT16_MAX)
		return PROF_NO_TABLE;
	chunks = calloc(1, sizeof(*chunks));
	if (!chunks)
		return -ENOMEM;
	r = entries_cursor_init(&chunks->entries, &reader->entries, &filter);
	if (r) {
		free(chunks);
		return r;
	}
	*ret_chunks = chunks;
	return 0;
}

PROF_PUBLIC void prof_chunks_free(struct prof_chunks *chunks)
{
	if (!chunks)
		return;
	entries_cursor_done(&chunks->entries);
	free(chunks);
}

PROF_PUBLIC int prof_chunks_next(struct prof_chunks *chunks, struct prof_chunk *ret_chunk)
{
	struct entry entry;
	int r = entries_cursor_next(&chunks->entries, &entry);

	if (!r)
		*ret_chunk = entry.chunk;
	return r;
}
