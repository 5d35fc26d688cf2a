/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Append - continues a capture
 *
 * A reader opens the file, whatever its state. The reader's entries become the start of the new
 * index, its schema and segments are reused, and writing continues after the file's last byte.
 * Bytes that belong to no chunk, in the middle or at the end, become a gap and a row of the loss
 * table.
 *
 * Invariants: (1) existing content is never changed or cut off      [test-capture-reader: append]
 *             (2) a reader finds all chunks that it would have found before
 *                 [test-capture-reader: prefixes, flips]
 */
#include "libcapture/reader.h"
#include "libcapture/writer.h"

/* Bytes that belong neither to a chunk nor, until now, to a gap of the index. */
struct garbage {
	uint64_t stretches, bytes;
};

static int writer_receive_entry(struct prof_writer *writer, const struct prof_reader *reader,
				const struct entry *entry, struct garbage *garbage)
{
	uint64_t end = writer->index.end, hole = entry->chunk.offset - end;
	int r = 0;

	if (hole > 0 && !reader_gap_covers(reader, end, hole)) {
		garbage->stretches++;
		garbage->bytes += hole;
		r = writer->gaps.n < FORMAT_MAX_GAPS ? gap_list_add(&writer->gaps, end, hole) : 0;
	}
	/* The next checkpoint lists the entries that are in no checkpoint yet. */
	if (!r && entry->chunk.offset >= reader->last_checkpoint)
		r = entry_block_add(writer->pending, entry, end);
	return r ? r : entries_add(&writer->index, entry);
}

static int writer_receive_entries(struct prof_writer *writer, const struct prof_reader *reader,
				  struct garbage *garbage)
{
	CLEANUP(entries_cursor_done) struct entries_cursor cursor = { 0 };
	struct entry entry;
	int r = entries_cursor_init(&cursor, &reader->entries,
				    &(struct entries_filter){ .others = true });

	for (size_t i = 0; !r && i < reader->gaps.n; i++)
		r = gap_list_add(&writer->gaps, reader->gaps.items[i].offset,
				 reader->gaps.items[i].bytes);
	writer->new_gaps = writer->gaps.n;
	while (!r && !(r = entries_cursor_next(&cursor, &entry))) {
		r = writer_receive_entry(writer, reader, &entry, garbage);
		writer->last_segment = MAX_OF(writer->last_segment, entry.chunk.segment);
		if (entry.kind == CHUNK_DATA)
			writer->first_epoch = MAX_OF(writer->first_epoch, entry.chunk.epoch + 1);
	}
	if (r != PROF_END)
		return r;
	if (reader->size > writer->index.end) {
		garbage->stretches++;
		garbage->bytes += reader->size - writer->index.end;
	}
	return 0;
}

static int write_garbage_row(struct prof_writer *writer, const struct garbage *garbage)
{
	uint64_t now = writer_segment(writer)->start_monotonic_ns;
	const struct prof_value values[PROF_LOSS_COLUMNS] = {
		[PROF_LOSS_TIME] = PROF_NUMBER(now),
		[PROF_LOSS_TIME_END] = PROF_NUMBER(now),
		[PROF_LOSS_STREAM] = PROF_BYTES("capture", 7),
		[PROF_LOSS_CAUSE] = PROF_NUMBER(PROF_LOSS_FILE_DAMAGE),
		[PROF_LOSS_COUNT] = PROF_NUMBER(garbage->stretches),
		[PROF_LOSS_BYTES] = PROF_NUMBER(garbage->bytes),
	};
	struct prof_block *block;
	int r = prof_block_new(prof_table_v1(PROF_TABLE_LOSS), &block);

	if (r)
		return r;
	r = prof_block_add(block, values);
	if (!r)
		r = prof_writer_write(writer, block);
	prof_block_free(block);
	return r;
}

static int writer_receive_reader(struct prof_writer *writer, const struct prof_reader *reader,
				 const struct prof_writer_options *options, struct garbage *garbage)
{
	CLEANUP(buffer_done) struct buffer encoded = { 0 };
	int r;

	writer->header = reader->header;
	writer->first_epoch = 1;
	writer->sequence = reader->next_sequence;
	writer->last_checkpoint = reader->last_checkpoint;
	writer->sink.position = reader->size;
	for (size_t i = 0; i < reader->n_segments; i++) {
		writer->last_segment = MAX_OF(writer->last_segment, reader->segments[i].number);
		r = writer_add_segment(writer, &reader->segments[i]);
		if (r)
			return r;
	}
	r = schema_encode(&reader->schema, &encoded);
	if (!r)
		r = schema_decode(&writer->schema, encoded.data, encoded.size);
	if (!r)
		r = checkpoint_encode_schema(&writer->schema, &writer->schema_section);
	if (!r)
		r = writer_receive_entries(writer, reader, garbage);
	if (r)
		return r;
	writer->checkpoint_end = reader->size;
	if (options->mode == PROF_WRITE_EXTEND && writer->n_segments > 0)
		return 0;
	return writer_new_segment(writer, &options->segment);
}

int writer_append(struct prof_writer *writer, const struct prof_writer_options *options)
{
	struct garbage garbage = { 0 };
	struct prof_reader *reader;
	int r = prof_reader_open(writer->sink.fd, &reader);

	if (r)
		return r;
	r = writer_receive_reader(writer, reader, options, &garbage);
	prof_reader_free(reader);
	if (!r)
		r = writer_add_v1(writer);
	if (!r)
		r = writer_write_checkpoints(writer);
	if (!r && garbage.stretches > 0)
		r = write_garbage_row(writer, &garbage);
	return r;
}
