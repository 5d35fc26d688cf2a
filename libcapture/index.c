/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Index - finds the chunks of a capture
 *
 * There are three ways; if one fails, the next one is tried:
 *   1. The trailer at the end names the index of the whole file.
 *   2. Without a trailer, the last valid checkpoint is searched for from the end. Its links lead
 *      back to the first checkpoint (or to an index). The headers after the last checkpoint are
 *      walked.
 *   3. All headers are walked (recover.c).
 * Entries found by 1 or 2 are used if they do not overlap, are inside the file, and leave out only
 * known gaps. An entry is compared with its chunk's header when the chunk is read (load.c).
 *
 * Invariants: (1) links lead back to chunks that do not overlap, so no byte is read twice
 *             (2) a way that fails leaves no state for the next
 *                 [by construction of index_forget()]
 */
#include "base/order.h"
#include "libcapture/reader.h"

/* ---- Checkpoints ----------------------------------------------------------------------------- */

static int reader_add_segment(struct prof_reader *reader, const struct prof_segment *segment)
{
	struct prof_segment *segments;

	for (size_t i = reader->n_segments; i > 0; i--)
		if (reader->segments[i - 1].number == segment->number)
			return 0;
	if (reader->n_segments == FORMAT_MAX_SEGMENTS)
		return PROF_LIMIT;
	segments = reallocarray(reader->segments, reader->n_segments + 1, sizeof(*segments));
	if (!segments)
		return -ENOMEM;
	segments[reader->n_segments++] = *segment;
	reader->segments = segments;
	return 0;
}

static int reader_receive_schema(struct prof_reader *reader, const struct checkpoint_view *view)
{
	int r;

	if (view->schema_bytes == reader->schema_section.size &&
	    memcmp(view->schema, reader->schema_section.data, view->schema_bytes) == 0)
		return 0;
	if (load_le32(view->schema) > reader->schema_budget)
		return PROF_DAMAGED;
	reader->schema_budget -= load_le32(view->schema);
	r = checkpoint_decode_schema(view, &reader->schema);
	if (r == SCHEMA_CONFLICT)
		r = reader_add_damage(reader, 0, 0, UINT64_MAX, PROF_DAMAGE_INDEX);
	if (r)
		return r;
	reader->schema_section.size = 0;
	return buffer_add(&reader->schema_section, view->schema, view->schema_bytes);
}

int reader_receive_checkpoint(struct prof_reader *reader, const struct checkpoint_view *view)
{
	int r = reader_receive_schema(reader, view);

	for (size_t i = 0; !r && i < view->n_segments; i++) {
		struct prof_segment segment = checkpoint_segment(view, i);

		r = reader_add_segment(reader, &segment);
	}
	for (size_t i = 0; !r && i < view->n_gaps; i++) {
		struct gap gap = checkpoint_gap(view, i);

		if (reader->gaps.n >= FORMAT_MAX_GAPS)
			break;
		r = gap_list_add(&reader->gaps, gap.offset, gap.bytes);
	}
	/* Treat exceeded limits and invalid content of a valid payload as damage, because the rest
	 * may still be readable. */
	return r > 0 ? PROF_DAMAGED : r;
}

COMPARE_BY(compare_gaps, struct gap, ORDER(a->offset, b->offset), ORDER(a->bytes, b->bytes))

/* Sorts by offset and removes duplicates. */
static void reader_sort_gaps(struct prof_reader *reader)
{
	size_t n = 0;

	if (reader->gaps.n == 0)
		return;
	qsort(reader->gaps.items, reader->gaps.n, sizeof(struct gap), compare_gaps);
	for (size_t i = 0; i < reader->gaps.n; i++)
		if (n == 0 || compare_gaps(&reader->gaps.items[n - 1], &reader->gaps.items[i]) != 0)
			reader->gaps.items[n++] = reader->gaps.items[i];
	reader->gaps.n = n;
}

/* Requires sorted gaps. Gaps of a valid file do not overlap, so only the last one that starts at or
 * before `offset` can match. */
bool reader_gap_covers(const struct prof_reader *reader, uint64_t offset, uint64_t bytes)
{
	size_t low = 0, high = reader->gaps.n;
	const struct gap *gap;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (reader->gaps.items[middle].offset <= offset)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0)
		return false;
	gap = &reader->gaps.items[low - 1];
	return offset - gap->offset <= gap->bytes && bytes <= gap->bytes - (offset - gap->offset);
}

/* ---- Entries --------------------------------------------------------------------------------- */

static int reader_note_entry(struct prof_reader *reader, const struct entry *entry)
{
	static_assert(PROF_TABLE_LAST < 64, "v1_tables has a bit for each table of version 1");

	if (entry->kind != CHUNK_DATA)
		return 0;
	if (entry->chunk.table < 64)
		reader->v1_tables |= UINT64_C(1) << entry->chunk.table;
	return epoch_set_add(&reader->epochs, entry->chunk.epoch);
}

static int reader_receive_entry(struct prof_reader *reader, const struct entry *entry)
{
	int r = reader_note_entry(reader, entry);

	return r ? r : entries_add(&reader->entries, entry);
}

/* Checks that a chunk follows the last entry. Notes the range between them, which a gap must
 * cover. */
static int reader_follows(struct prof_reader *reader, uint64_t offset, uint64_t sequence)
{
	const struct entries *entries = &reader->entries;
	uint64_t expected = entries->n ? entries->last.chunk.sequence + 1 : 0;

	if (offset < entries->end || sequence < expected)
		return PROF_DAMAGED;
	if (offset == entries->end)
		return sequence == expected ? 0 : PROF_DAMAGED;
	if (reader->holes.n >= FORMAT_MAX_GAPS)
		return PROF_DAMAGED;
	return gap_list_add(&reader->holes, entries->end, offset - entries->end);
}

/* Receives an entry of an index that the reader adopts. */
static int receive_adopted(const struct entry *entry, void *data)
{
	struct prof_reader *reader = data;
	int r = reader_follows(reader, entry->chunk.offset, entry->chunk.sequence);

	if (!r)
		r = reader_note_entry(reader, entry);
	if (!r)
		entries_adopt_entry(&reader->entries, entry);
	return r;
}

static int receive_adopted_group(const uint8_t *group, void *data)
{
	struct prof_reader *reader = data;

	return entries_adopt_group(&reader->entries, group);
}

/* Receives an entry of a checkpoint. */
static int receive_listed(const struct entry *entry, void *data)
{
	struct prof_reader *reader = data;
	int r = reader_follows(reader, entry->chunk.offset, entry->chunk.sequence);

	return r ? r : reader_receive_entry(reader, entry);
}

static int receive_walked(struct walk *walk, const struct entry *entry, void *data)
{
	return reader_receive_entry(data, entry);
}

/* ---- Opening by index ------------------------------------------------------------------------ */

/* Reads a checkpoint's header and payload. Returns PROF_DAMAGED also if the payload is invalid. */
static int read_checkpoint(const struct prof_reader *reader, uint64_t offset,
			   struct chunk_header *ret_header, struct buffer *payload,
			   struct checkpoint_view *ret_view)
{
	enum prof_damage_reason reason;
	int r = load_header(reader, offset, ret_header);

	if (!r && ret_header->kind != CHUNK_CHECKPOINT)
		r = PROF_DAMAGED;
	if (!r)
		r = load_payload(reader, offset, ret_header, payload, &reason);
	return r ? r : checkpoint_parse(payload->data, payload->size, ret_view);
}

/* Collects the positions of checkpoints from `last` back to the first one, or to a full index. */
static int follow_links(const struct prof_reader *reader, uint64_t last, struct gap_list *ret_chain)
{
	uint64_t at = last, end = reader->size;

	for (;;) {
		struct chunk_header header;
		int r = load_header(reader, at, &header);

		if (!r && (header.kind != CHUNK_CHECKPOINT ||
			   header.stored > end - at - CHUNK_HEADER_BYTES))
			r = PROF_DAMAGED;
		if (!r)
			r = gap_list_add(ret_chain, at, chunk_bytes(&header));
		if (r || header.link == 0 || header.flags & CHUNK_FULL_INDEX)
			return r;
		if (header.link >= at || at - header.link < CHUNK_HEADER_BYTES)
			return PROF_DAMAGED;
		end = at;
		at = header.link;
	}
}

/* Adds the entries of a checkpoint. */
static int reader_receive_entries(struct prof_reader *reader, struct chunk_decoder *decoder,
				  const struct checkpoint_view *view,
				  const struct chunk_header *header, uint64_t at,
				  struct buffer *payload)
{
	bool full = header->flags & CHUNK_FULL_INDEX;
	struct entry_receiver receiver = { .receive = receive_listed, .data = reader };

	if (full && entries_can_adopt(&reader->entries, view)) {
		/* The view's pointers stay valid: entries_adopt() moves no bytes. */
		entries_adopt(&reader->entries, payload);
		receiver.receive = receive_adopted;
		receiver.group = receive_adopted_group;
	}
	return checkpoint_decode_entries(view, decoder, full ? 0 : header->link, at, &receiver);
}

/* Reads all entries before the checkpoint `last`, from that checkpoint and earlier ones. Entries
 * may be missing only for known gaps. */
static int read_chain(struct prof_reader *reader, uint64_t last)
{
	struct gap_list chain CLEANUP(gap_list_done) = { 0 };
	CLEANUP(buffer_done) struct buffer payload = { 0 };
	struct chunk_decoder decoder CLEANUP(chunk_decoder_done) = { 0 };
	int r = chunk_decoder_init(&decoder, &entry_table, NULL, 0);

	if (!r)
		r = follow_links(reader, last, &chain);
	for (size_t i = chain.n; !r && i > 0; i--) {
		uint64_t at = chain.items[i - 1].offset;
		struct checkpoint_view view;
		struct chunk_header header;

		r = read_checkpoint(reader, at, &header, &payload, &view);
		if (!r)
			r = reader_receive_checkpoint(reader, &view);
		if (!r)
			r = reader_receive_entries(reader, &decoder, &view, &header, at, &payload);
		if (!r && i == 1)
			r = reader_follows(reader, at, header.sequence);
	}
	reader_sort_gaps(reader);
	for (size_t i = 0; !r && i < reader->holes.n; i++)
		if (!reader_gap_covers(reader, reader->holes.items[i].offset,
				       reader->holes.items[i].bytes))
			r = PROF_DAMAGED;
	return r;
}

void index_forget(struct prof_reader *reader)
{
	schema_done(&reader->schema);
	buffer_done(&reader->schema_section);
	reader->schema_budget = FORMAT_MAX_SCHEMAS;
	entries_done(&reader->entries);
	epoch_set_done(&reader->epochs);
	reader->v1_tables = 0;
	gap_list_done(&reader->holes);
	gap_list_done(&reader->gaps);
	damage_list_done(&reader->damage);
	free(reader->segments);
	reader->segments = NULL;
	reader->n_segments = 0;
}

/* Stores the result of a walk from a checkpoint or the first chunk. Ignores damage where a
 * checkpoint lists a gap. */
static int reader_receive_walk(struct prof_reader *reader, const struct walk *walk)
{
	int r = 0;

	reader_sort_gaps(reader);
	reader->end = MIN_OF(walk_end(walk), reader->size);
	for (size_t i = 0; !r && i < walk->damage.n; i++) {
		const struct prof_damage *damage = &walk->damage.items[i];

		if (damage->reason == PROF_DAMAGE_HEADER &&
		    reader_gap_covers(reader, damage->offset, damage->bytes))
			continue;
		r = damage_list_add(&reader->damage, damage);
	}
	reader->next_sequence = walk->next_sequence;
	if (walk->last_checkpoint)
		reader->last_checkpoint = walk->last_checkpoint;
	return r;
}

static int walk_from(struct prof_reader *reader, uint64_t from, uint64_t sequence)
{
	struct walk walk CLEANUP(walk_done) = { 0 };
	int r;

	walk_init(&walk, reader, from, sequence);
	walk.learn = reader;
	walk.receive = receive_walked;
	walk.data = reader;
	r = recover_walk(&walk);
	return r ? r : reader_receive_walk(reader, &walk);
}

/* Returns PROF_DAMAGED if another way must be tried. */
static int open_by_trailer(struct prof_reader *reader)
{
	uint64_t at = reader->size - CHUNK_HEADER_BYTES;
	struct chunk_header trailer, index;
	struct entry entry;
	int r;

	if (reader->size < FILE_HEADER_BYTES + CHUNK_HEADER_BYTES)
		return PROF_DAMAGED;
	r = load_header(reader, at, &trailer);
	if (!r && (trailer.kind != CHUNK_TRAILER || trailer.stored != 0))
		r = PROF_DAMAGED;
	if (!r)
		r = load_header(reader, trailer.link, &index);
	if (r)
		return r;
	if (trailer.link + chunk_bytes(&index) != at || index.sequence + 1 != trailer.sequence)
		return PROF_DAMAGED;
	r = read_chain(reader, trailer.link);
	entry = entry_of_header(&index, trailer.link);
	if (!r)
		r = reader_receive_entry(reader, &entry);
	entry = entry_of_header(&trailer, at);
	if (!r)
		r = reader_receive_entry(reader, &entry);
	if (r)
		return r;
	reader->end = reader->size;
	reader->next_sequence = trailer.sequence + 1;
	reader->last_checkpoint = trailer.link;
	reader->info.indexed = true;
	reader->info.state = PROF_STATE_FINISHED;
	return 0;
}

static int open_by_checkpoints(struct prof_reader *reader)
{
	struct chunk_header header;
	uint64_t last;
	int r = find_last_checkpoint(reader, &last);

	if (!r)
		r = load_header(reader, last, &header);
	if (!r)
		r = read_chain(reader, last);
	if (r)
		return r == PROF_END ? PROF_DAMAGED : r;
	reader->info.indexed = true;
	return walk_from(reader, last, header.sequence);
}

static int open_by_walk(struct prof_reader *reader)
{
	reader->info.indexed = false;
	return walk_from(reader, FILE_HEADER_BYTES, 0);
}

int index_find_chunks(struct prof_reader *reader)
{
	static int (*const ways[])(struct prof_reader *) = {
		open_by_trailer,
		open_by_checkpoints,
		open_by_walk,
	};
	int r = PROF_DAMAGED;

	for (size_t i = 0; r == PROF_DAMAGED && i < ARRAY_SIZE(ways); i++) {
		index_forget(reader);
		r = entries_init(&reader->entries);
		if (!r)
			r = ways[i](reader);
	}
	gap_list_done(&reader->holes);
	return r ? r : entries_seal(&reader->entries);
}
