/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Writer - writes blocks as chunks, checkpoints in between, and an index at the end
 *
 * Chunks are built whole in memory and written in one piece. Written data is never changed, so a
 * crash at any instruction leaves whole chunks and at most one partial chunk. The entry of a chunk
 * is kept until the next checkpoint, and packed (entries.c) for the index.
 *
 * Invariants: (1) sequence numbers rise by one with each chunk, also after a failed write; after a
 *                 gap they are higher than any that is possible before the gap
 *                 [test-capture-writer: errors, test-capture-cut]
 *             (2) a table's schema is in a checkpoint before its first row is in a chunk
 *                 [test-capture-reader: round trip]
 *             (3) while the file system can reserve space, there is always enough left for loss
 *                 rows and for the index and the trailer  [test-capture-writer: full]
 *             (4) the file's content at open is never changed or cut off
 *                 [test-capture-reader: append]
 * Not thread safe. block.c collects rows, chunk.c encodes them, sink.c handles the disk.
 */
#include "libcapture/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/random.h>

/* Space kept free for loss and metadata rows, in addition to that for index and trailer. */
#define CLOSING_BYTES (UINT64_C(64) << 10)
/* Maximum size of one encoded pending entry; and of those parts of the index and the trailer that
 * index_bytes() does not compute. */
#define ENTRY_BYTES_MAX 128u
#define INDEX_BYTES_MIN 4096u

const struct prof_segment *writer_segment(const struct prof_writer *writer)
{
	return &writer->segments[writer->n_segments - 1];
}

/* ---- Chunks ---------------------------------------------------------------------------------- */

/* Returns the maximum space that finishing needs from the current position on. */
static uint64_t index_bytes(const struct prof_writer *writer)
{
	return INDEX_BYTES_MIN + writer->schema_section.size + writer->index.groups.size +
	       prof_block_rows(writer->index.open) * ENTRY_BYTES_MAX +
	       writer->n_segments * SEGMENT_BYTES + writer->gaps.n * GAP_BYTES;
}

/*
 * Moves to the next possible start of a chunk, and records a gap after the last chunk. A partial
 * chunk may be in the gap, and padding with zeros could complete it, so the padding is 0xff. The
 * partial chunk's sequence number is unknown, so the next chunk gets the highest number that is
 * possible at its offset.
 */
static int writer_align(struct prof_writer *writer)
{
	static const uint8_t zeros[8], ones[8] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };
	struct sink *sink = &writer->sink;
	struct gap *last =
		writer->gaps.n > writer->new_gaps ? &writer->gaps.items[writer->gaps.n - 1] : NULL;
	size_t pad = -sink->position & 7;
	bool gap = sink->position > writer->index.end;
	int r = pad && (gap || sink->stream) ? sink_write(sink, gap ? ones : zeros, pad) : 0;

	if (r)
		return r;
	__atomic_store_n(&sink->position, PADDED(sink->position), __ATOMIC_RELAXED);
	if (sink->position <= writer->index.end)
		return 0;
	writer->sequence = format_max_sequence(sink->position);
	if (writer->gaps.n >= FORMAT_MAX_GAPS)
		return 0;
	if (!last || last->offset != writer->index.end)
		return gap_list_add(&writer->gaps, writer->index.end,
				    sink->position - writer->index.end);
	last->bytes = sink->position - writer->index.end;
	return 0;
}

static int chunk_begin(struct prof_writer *writer)
{
	int r = writer_align(writer);

	writer->chunk.size = 0;
	if (!r)
		r = buffer_reserve(&writer->chunk, CHUNK_HEADER_BYTES);
	writer->chunk.size = CHUNK_HEADER_BYTES;
	return r;
}

/* Writes the chunk in writer->chunk: space for the header, then the payload. `reserve`: bytes that
 * must stay free after the chunk. */
static int chunk_end(struct prof_writer *writer, struct chunk_header *header, uint64_t reserve)
{
	struct buffer *chunk = &writer->chunk;
	uint64_t end = writer->index.end;
	struct entry entry;
	int r;

	if (chunk->size - CHUNK_HEADER_BYTES > PROF_MAX_PAYLOAD)
		return PROF_LIMIT;
	header->stored = chunk->size - CHUNK_HEADER_BYTES;
	header->sequence = writer->sequence;
	header->segment = writer_segment(writer)->number;
	header->checksum = format_checksum(chunk->data + CHUNK_HEADER_BYTES, header->stored,
					   writer->header.salt);
	chunk_header_encode(header, writer->header.salt, chunk->data);
	r = buffer_pad8(chunk);
	if (!r)
		r = sink_reserve(&writer->sink, chunk->size, reserve);
	if (r)
		return r;
	entry = entry_of_header(header, writer->sink.position);
	/* Add the entry before the write: it can be removed if the write fails, but a chunk without
	 * an entry would be a gap. */
	r = entry_block_add(writer->pending, &entry, end);
	if (r)
		return r;
	r = entries_add(&writer->index, &entry);
	if (!r) {
		r = sink_write(&writer->sink, chunk->data, chunk->size);
		if (r)
			entries_remove_from(&writer->index, end);
	}
	if (r) {
		writer->pending->rows--;
		return r;
	}
	writer->sequence++;
	writer->chunks_since++;
	return 0;
}

/* ---- Checkpoints ----------------------------------------------------------------------------- */

static int encode_pending(struct prof_writer *writer, struct buffer *ret_groups,
			  uint32_t *ret_n_groups)
{
	struct chunk_extent extent = { 0 };
	int r = 0;

	if (prof_block_rows(writer->pending) > 0)
		r = chunk_encode(&writer->encoder, writer->pending, PROF_MAX_GROUP_ROWS, ret_groups,
				 &extent);
	if (!r)
		*ret_n_groups = extent.groups;
	return r;
}

static int write_checkpoint(struct prof_writer *writer, bool full, uint64_t reserve)
{
	CLEANUP(buffer_done) struct buffer groups = { 0 };
	struct checkpoint_content content = { .schema = &writer->schema_section };
	struct prof_block *pending = writer->pending;
	struct chunk_header header = {
		.kind = CHUNK_CHECKPOINT,
		.flags = full ? CHUNK_FULL_INDEX : 0,
		.link = writer->last_checkpoint,
	};
	uint32_t n_pending = prof_block_rows(writer->pending), n_groups = 0;
	int r = chunk_begin(writer);

	if (!r)
		r = full ? entries_pack(&writer->index)
			 : encode_pending(writer, &groups, &n_groups);
	if (r)
		return r;
	content.segments = full ? writer->segments : writer_segment(writer);
	content.n_segments = full ? writer->n_segments : 1;
	content.groups = full ? &writer->index.groups : &groups;
	content.n_entries = full ? writer->index.n : n_pending;
	content.n_groups = full ? writer->index.n_pages : n_groups;
	content.gaps = writer->gaps.n ? writer->gaps.items + (full ? 0 : writer->new_gaps) : NULL;
	content.n_gaps = writer->gaps.n - (full ? 0 : writer->new_gaps);
	r = checkpoint_encode(&content, &writer->chunk);
	if (!r)
		r = chunk_end(writer, &header, reserve);
	if (r)
		return r;
	/* keep only the entry of the checkpoint that was just written */
	for (size_t i = 0; i < pending->def->n_columns; i++)
		memmove(pending->columns[i].numbers, pending->columns[i].numbers + n_pending,
			(pending->rows - n_pending) * sizeof(uint64_t));
	pending->rows -= n_pending;
	writer->new_gaps = writer->gaps.n;
	writer->last_checkpoint = writer->sink.position - writer->chunk.size;
	writer->checkpoint_end = writer->sink.position;
	writer->chunks_since = 0;
	return 0;
}

int writer_write_checkpoints(struct prof_writer *writer)
{
	bool twice = writer->schema_changed;
	int r = twice ? checkpoint_encode_schema(&writer->schema, &writer->schema_section) : 0;

	if (!r)
		r = write_checkpoint(writer, false, index_bytes(writer));
	if (!r && twice)
		r = write_checkpoint(writer, false, index_bytes(writer));
	if (!r)
		writer->schema_changed = false;
	return r;
}

PROF_PUBLIC int prof_writer_checkpoint(struct prof_writer *writer)
{
	return writer->finished ? -EINVAL : writer_write_checkpoints(writer);
}

/* ---- Opening --------------------------------------------------------------------------------- */

int writer_add_segment(struct prof_writer *writer, const struct prof_segment *segment)
{
	struct prof_segment *segments =
		reallocarray(writer->segments, writer->n_segments + 1, sizeof(*segments));

	if (!segments)
		return -ENOMEM;
	segments[writer->n_segments++] = *segment;
	writer->segments = segments;
	return 0;
}

int writer_new_segment(struct prof_writer *writer, const struct prof_segment *segment)
{
	struct prof_segment new = *segment;

	if (writer->n_segments >= FORMAT_MAX_SEGMENTS)
		return PROF_LIMIT;
	new.number = writer->last_segment + 1;
	new.first_epoch = writer->first_epoch;
	writer->last_segment = new.number;
	writer->schema_changed = true;
	return writer_add_segment(writer, &new);
}

static int writer_random(void *data, size_t size)
{
	size_t done = 0;

	while (done < size) {
		ssize_t n = getrandom((uint8_t *)data + done, size - done, 0);

		if (n < 0 && errno != EINTR)
			return -errno;
		done += MAX_OF(n, 0);
	}
	return 0;
}

static int writer_start_file(struct prof_writer *writer, const struct prof_segment *segment)
{
	uint8_t bytes[FILE_HEADER_BYTES];
	int r;

	writer->header.version = FORMAT_VERSION;
	r = writer_random(writer->header.uuid, sizeof(writer->header.uuid));
	if (!r)
		r = writer_random(&writer->header.salt, sizeof(writer->header.salt));
	if (r)
		return r;
	file_header_encode(&writer->header, bytes);
	r = sink_reserve(&writer->sink, sizeof(bytes), 0);
	if (!r)
		r = sink_write(&writer->sink, bytes, sizeof(bytes));
	if (r)
		return r;
	writer->first_epoch = 1;
	writer->checkpoint_end = writer->sink.position;
	return writer_new_segment(writer, segment);
}

int writer_add_v1(struct prof_writer *writer)
{
	for (unsigned int id = 1; id < PROF_TABLE_FIRST_FOREIGN; id++) {
		const struct prof_table_def *def = prof_table_v1(id);
		const struct prof_table_def *known = def ? schema_find(&writer->schema, id) : NULL;
		int r = def ? schema_add(&writer->schema, def) : 0;

		if (r && r != SCHEMA_CONFLICT)
			return r;
		writer->schema_changed = writer->schema_changed ||
					 (def && schema_find(&writer->schema, id) != known);
	}
	return 0;
}

PROF_PUBLIC int prof_writer_new(int fd, const struct prof_writer_options *options,
				struct prof_writer **ret_writer)
{
	struct prof_writer *writer = calloc(1, sizeof(*writer));
	uint64_t size = 0;
	int r;

	if (!writer)
		return -ENOMEM;
	writer->group_rows = MIN_OF(options->group_rows ? options->group_rows : GROUP_ROWS_DEFAULT,
				    PROF_MAX_GROUP_ROWS);
	r = sink_init(&writer->sink, fd, &size);
	if (!r)
		r = codec_encoder_init(&writer->encoder, options->level ? options->level : 1);
	if (!r)
		r = prof_block_new(&entry_table, &writer->pending);
	if (!r)
		r = entries_init(&writer->index);
	if (!r && options->mode == PROF_WRITE_NEW && size > 0)
		r = -EEXIST;
	if (!r && size > 0)
		r = writer_append(writer, options);
	else if (!r && !(r = writer_start_file(writer, &options->segment)) &&
		 !(r = writer_add_v1(writer)))
		r = writer_write_checkpoints(writer);
	if (r) {
		/* remove what was appended before the failure */
		if (writer->sink.touched > size && size > 0 && ftruncate(fd, (off_t)size) < 0)
			errno = 0;
		prof_writer_free(writer);
		return r;
	}
	*ret_writer = writer;
	return 0;
}

PROF_PUBLIC void prof_writer_free(struct prof_writer *writer)
{
	if (!writer)
		return;
	sink_done(&writer->sink);
	codec_encoder_done(&writer->encoder);
	schema_done(&writer->schema);
	buffer_done(&writer->schema_section);
	buffer_done(&writer->chunk);
	entries_done(&writer->index);
	gap_list_done(&writer->gaps);
	prof_block_free(writer->pending);
	free(writer->segments);
	free(writer);
}

/* ---- Writing --------------------------------------------------------------------------------- */

PROF_PUBLIC int prof_writer_add_table(struct prof_writer *writer, const struct prof_table_def *def)
{
	CLEANUP(buffer_done) struct buffer encoded = { 0 };
	struct schema one CLEANUP(schema_done) = { 0 };
	const struct prof_table_def *known = schema_find(&writer->schema, def->id);
	int r = writer->finished ? -EINVAL : schema_add(&one, def);

	if (!r)
		r = schema_encode(&one, &encoded);
	/* Copies the definition, so that the caller's definition need not outlive this call. */
	if (!r)
		r = schema_decode(&writer->schema, encoded.data, encoded.size);
	if (r)
		return r == SCHEMA_CONFLICT ? -EEXIST : r;
	if (schema_find(&writer->schema, def->id) != known)
		writer->schema_changed = true;
	return 0;
}

PROF_PUBLIC uint32_t prof_writer_first_epoch(const struct prof_writer *writer)
{
	return writer->first_epoch;
}

/* Returns whether the file's schema has all columns of the block's definition. */
static bool table_declared(const struct prof_writer *writer, const struct prof_table_def *def)
{
	const struct prof_table_def *known = schema_find(&writer->schema, def->id);
	size_t found = 0;

	if (!known || known == def)
		return known;
	for (size_t i = 0; i < known->n_columns && found < def->n_columns; i++)
		found += known->columns[i].id == def->columns[found].id;
	return found == def->n_columns && schema_tables_agree(known, def);
}

static struct dictionary_count *dictionary_count(struct prof_writer *writer, uint16_t table,
						 uint32_t epoch)
{
	struct dictionary_count *count = NULL;

	for (size_t i = 0; i < writer->n_counts; i++)
		if (writer->counts[i].table == table)
			count = &writer->counts[i];
	if (!count) {
		assert(writer->n_counts < PROF_MAX_TABLES);
		count = &writer->counts[writer->n_counts++];
		*count = (struct dictionary_count){ .table = table, .epoch = epoch };
	}
	if (count->epoch != epoch) {
		count->epoch = epoch;
		count->rows = count->bytes = 0;
	}
	return count;
}

static int write_block(struct prof_writer *writer, const struct prof_block *block, uint32_t epoch)
{
	uint64_t reserve = index_bytes(writer);
	struct chunk_extent extent;
	struct chunk_header header;
	int r = chunk_begin(writer);

	if (!r)
		r = chunk_encode(&writer->encoder, block, writer->group_rows, &writer->chunk,
				 &extent);
	if (r)
		return r;
	header = (struct chunk_header){
		.kind = CHUNK_DATA,
		.table = block->def->id,
		.epoch = epoch,
		.rows = block->rows,
		.groups = extent.groups,
		.t_min = extent.t_min,
		.t_max = extent.t_max,
		.raw = extent.raw,
		.link = extent.first_id,
	};
	/* Loss and metadata rows may use the space that is kept free for them. */
	if (block->def->id != PROF_TABLE_LOSS && block->def->id != PROF_TABLE_METADATA)
		reserve += CLOSING_BYTES;
	return chunk_end(writer, &header, reserve);
}

PROF_PUBLIC int prof_writer_write(struct prof_writer *writer, const struct prof_block *block)
{
	uint32_t epoch = block->epoch ? block->epoch : writer->first_epoch;
	struct dictionary_count *count = NULL;
	int r = 0;

	if (writer->finished || epoch < writer->first_epoch || !table_declared(writer, block->def))
		return -EINVAL;
	if (block->rows == 0)
		return 0;
	if (block->def->flags & PROF_TABLE_DICTIONARY) {
		count = dictionary_count(writer, block->def->id, epoch);
		if (count->rows + block->rows > PROF_MAX_DICTIONARY_ROWS ||
		    count->bytes + block->item_bytes > PROF_MAX_DICTIONARY_BYTES)
			return PROF_LIMIT;
	}
	if (writer->schema_changed || writer->chunks_since >= CHECKPOINT_CHUNKS ||
	    writer->sink.position - writer->checkpoint_end >= CHECKPOINT_BYTES)
		r = writer_write_checkpoints(writer);
	if (!r)
		r = write_block(writer, block, epoch);
	if (!r && count) {
		count->rows += block->rows;
		count->bytes += block->item_bytes;
	}
	return r;
}

PROF_PUBLIC int prof_writer_finish(struct prof_writer *writer)
{
	struct chunk_header trailer = { .kind = CHUNK_TRAILER };
	int r;

	if (writer->finished)
		return -EINVAL;
	r = writer->schema_changed ? writer_write_checkpoints(writer) : 0;
	/* Use the reserved space now; a write may succeed even if reserving failed. */
	writer->sink.preallocate = false;
	if (!r)
		r = write_checkpoint(writer, true, 0);
	/* If the full index would exceed the size of a chunk, write a checkpoint without it;
	 * readers then follow the links. */
	if (r == PROF_LIMIT)
		r = write_checkpoint(writer, false, 0);
	trailer.link = writer->last_checkpoint;
	if (!r)
		r = chunk_begin(writer);
	if (!r)
		r = chunk_end(writer, &trailer, 0);
	if (!r)
		r = sink_trim(&writer->sink);
	if (!r)
		writer->finished = true;
	return r;
}

PROF_PUBLIC uint64_t prof_writer_bytes(const struct prof_writer *writer)
{
	/* pairs with sink_write() */
	return __atomic_load_n(&writer->sink.position, __ATOMIC_RELAXED);
}
