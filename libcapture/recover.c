/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Recover - finds chunks without an index
 *
 * A walk goes from header to header. If there is no valid header, it searches for the next one: a
 * magic with a matching salted checksum and a sequence number higher than all before, so that
 * forged or copied chunks inside a payload are not accepted. The skipped bytes are a hole.
 *
 * A header may be whole although its payload is not: a writer crashed in its last chunk, and
 * another writer continued after it. So if a chunk is not followed by the next sequence number and
 * its payload is not valid, the walk searches for chunks inside it. If there are any, the chunk is
 * dropped. If the other writer's padding completed the chunk, that writer's checkpoint lists it as
 * a gap.
 *
 * Invariants: (1) chunks ascend in offset and sequence and do not overlap
 *                 [test-capture-reader: flips]
 *             (2) to check payloads, a walk reads at most WALK_BUDGET plus the file's size
 *                                                         [by construction of walk_check_payload()]
 *             (3) no valid chunk is lost by damage elsewhere
 *                 [test-capture-reader: flips, test-capture-cut]
 */
#include "libcapture/reader.h"

#define SEARCH_BYTES (1u << 20)
#define WALK_BUDGET (256u << 20)
/* Smaller chunks are read through a window, larger ones by one read for each header. */
#define SMALL_CHUNK 2048u
#define SMALL_WINDOW (64u << 10)
/* A checkpoint follows every CHECKPOINT_BYTES; the chunk before it may have any size. */
#define LAST_CHECKPOINT_WINDOW (2 * CHECKPOINT_BYTES)

void walk_init(struct walk *walk, const struct prof_reader *reader, uint64_t from,
	       uint64_t next_sequence)
{
	*walk = (struct walk){
		.reader = reader,
		.end = from,
		.at = from,
		.next_sequence = next_sequence,
		.budget = WALK_BUDGET + reader->size,
	};
}

void walk_done(struct walk *walk)
{
	damage_list_done(&walk->damage);
	buffer_done(&walk->window);
	buffer_done(&walk->payload);
}

/* Reads `size` bytes at an offset through the window; fewer only at the end of the file. */
static int walk_read(struct walk *walk, uint64_t offset, size_t size, size_t ahead,
		     const uint8_t **ret_data, size_t *ret_size)
{
	struct buffer *window = &walk->window;
	size_t n;
	int r;

	if (offset < walk->window_offset || offset + size > walk->window_offset + window->size) {
		window->size = 0;
		r = buffer_reserve(window, MAX_OF(size, ahead));
		if (!r)
			r = read_at(walk->reader->fd, offset, window->data, MAX_OF(size, ahead),
				    &n);
		if (r)
			return r;
		window->size = n;
		walk->window_offset = offset;
	}
	*ret_data = window->data + (offset - walk->window_offset);
	*ret_size = MIN_OF(size, window->size - (size_t)(offset - walk->window_offset));
	return 0;
}

/* Reads the header at an offset. Returns 0, PROF_DAMAGED if no valid header is there, or PROF_END
 * if the file ends inside the chunk. */
static int walk_header(struct walk *walk, uint64_t offset, size_t ahead,
		       struct chunk_header *ret_header)
{
	uint64_t left = walk->reader->size - offset;
	const uint8_t *bytes;
	size_t n;
	int r;

	if (left < CHUNK_HEADER_BYTES)
		return PROF_END;
	r = walk_read(walk, offset, CHUNK_HEADER_BYTES, ahead, &bytes, &n);
	if (r)
		return r;
	if (n < CHUNK_HEADER_BYTES ||
	    !chunk_header_decode(bytes, walk->reader->header.salt, ret_header) ||
	    ret_header->sequence < walk->next_sequence ||
	    ret_header->sequence > format_max_sequence(offset))
		return PROF_DAMAGED;
	return ret_header->stored > left - CHUNK_HEADER_BYTES ? PROF_END : 0;
}

static int add_damage(struct walk *walk, uint64_t offset, uint64_t bytes, uint64_t sequence,
		      enum prof_damage_reason reason)
{
	const struct prof_damage damage = {
		.offset = offset,
		.bytes = bytes,
		.sequence = sequence,
		.rows = reason == PROF_DAMAGE_INDEX ? 0 : UINT64_MAX,
		.reason = reason,
	};

	return damage_list_add(&walk->damage, &damage);
}

/* Finds the first offset >= from with a valid header whose sequence number is higher than all
 * before, and whose chunk ends within the file. Does not read the payload. Returns PROF_END if the
 * file has no such header. */
static int walk_search(struct walk *walk, uint64_t from, uint64_t *ret_offset)
{
	uint64_t at = PADDED(from);

	while (at < walk->reader->size && walk->reader->size - at >= CHUNK_HEADER_BYTES) {
		struct chunk_header header;
		const uint8_t *bytes;
		size_t n, found;
		int r = walk_read(walk, at, CHUNK_HEADER_BYTES, SEARCH_BYTES, &bytes, &n);

		if (r)
			return r;
		/* Search the whole rest of the window, so that it is read only once, however many
		 * magics it has. */
		n = walk->window.size - (size_t)(at - walk->window_offset);
		found = chunk_magic_find(bytes, n, 0);
		if (found == SIZE_MAX) {
			at += MAX_OF(n & ~(size_t)7, (size_t)8);
			continue;
		}
		at += found;
		r = walk_header(walk, at, SEARCH_BYTES, &header);
		if (r <= 0) {
			*ret_offset = at;
			return r;
		}
		at += 8;
	}
	return PROF_END;
}

/* Checks whether a chunk's payload is whole; assumes that it is if it exceeds the budget that is
 * left. */
static int walk_check_payload(struct walk *walk, const struct entry *entry, bool *ret_good)
{
	enum prof_damage_reason reason;
	struct chunk_header header;
	int r = load_header(walk->reader, entry->chunk.offset, &header);

	if (!r && header.stored > walk->budget) {
		*ret_good = true;
		return 0;
	}
	if (!r) {
		walk->budget -= header.stored;
		r = load_payload(walk->reader, entry->chunk.offset, &header, &walk->payload,
				 &reason);
	}
	if (r < 0)
		return r;
	*ret_good = r == 0;
	return 0;
}

/* Drops the last chunk, which is not whole or is in a gap, as if the walk had never accepted it. */
static void walk_drop_last(struct walk *walk)
{
	const struct prof_chunk *last = &walk->last.chunk;

	walk->next_sequence = last->sequence;
	while (walk->damage.n > 0 &&
	       walk->damage.items[walk->damage.n - 1].offset >= last->offset &&
	       walk->damage.items[walk->damage.n - 1].reason != PROF_DAMAGE_HEADER)
		walk->damage.n--;
	walk->has_last = false;
}

/* Checks whether chunks continue inside the last chunk, which means that a crashed writer left it
 * unfinished. If so, drops it. */
static int walk_enter_last(struct walk *walk, uint64_t *ret_next)
{
	const struct entry last = walk->last;
	uint64_t next_sequence = walk->next_sequence, next;
	bool good;
	int r = walk_check_payload(walk, &last, &good);

	if (r || good)
		return r ? r : PROF_END;
	walk->next_sequence = last.chunk.sequence;
	r = walk_search(walk, last.chunk.offset + 8, &next);
	if (r == 0 && next < entry_end(&last)) {
		walk_drop_last(walk);
		*ret_next = next;
		return 0;
	}
	walk->next_sequence = next_sequence;
	return r < 0 ? r : PROF_END;
}

/* Called if no chunk follows: the file was cut inside a chunk, or ends with garbage. `cut`: header
 * of the cut chunk; NULL: the header is not whole, or there is garbage. */
static int walk_tail(struct walk *walk, const struct chunk_header *cut)
{
	struct prof_damage damage = {
		.offset = walk->at,
		.bytes = walk->reader->size - walk->at,
		.sequence = walk->next_sequence,
		.rows = UINT64_MAX,
		.reason = cut || walk->reader->size - walk->at < CHUNK_HEADER_BYTES
				  ? PROF_DAMAGE_CUT
				  : PROF_DAMAGE_HEADER,
	};

	if (cut) {
		damage.rows = cut->rows;
		damage.table = cut->table;
		damage.stream = cut->stream;
	}
	walk->at = walk->reader->size;
	return damage_list_add(&walk->damage, &damage);
}

/* Continues at the chunk at `next`. Records the bytes between the last chunk and `next` as one
 * hole, in place of holes that were recorded there. */
static int walk_leap(struct walk *walk, uint64_t next)
{
	uint64_t hole = walk_end(walk);
	struct chunk_header header;
	int r = walk_header(walk, next, 0, &header);

	if (r)
		return r < 0 ? r : -EIO;
	while (walk->damage.n > 0 && walk->damage.items[walk->damage.n - 1].offset >= hole)
		walk->damage.n--;
	walk->at = next;
	walk->after_hole = true;
	return add_damage(walk, hole, next - hole,
			  header.sequence == walk->next_sequence + 1 ? walk->next_sequence
								     : UINT64_MAX,
			  PROF_DAMAGE_HEADER);
}

/* Called if no chunk starts at walk->at (`cut`: NULL), or if the file ends inside the chunk there
 * (`cut`: that chunk's header). Finds where chunks continue, and records the hole. */
static int walk_hole(struct walk *walk, const struct chunk_header *cut)
{
	uint64_t next = 0;
	int r = PROF_END;

	if (walk->has_last && !walk->verified) {
		r = walk_enter_last(walk, &next);
		if (r < 0)
			return r;
		walk->verified = true;
	}
	if (r > 0)
		r = walk_search(walk, walk->at + 8, &next);
	if (r)
		return r < 0 ? r : walk_tail(walk, cut);
	return walk_leap(walk, next);
}

/* Drops the last chunk, because it is in a gap that ends at walk->at. */
static int walk_forget_last(struct walk *walk)
{
	walk_drop_last(walk);
	return walk_leap(walk, walk->at);
}

/* Returns whether the checkpoint at walk->at has a gap that ends there and covers the last
 * chunk. */
static bool view_has_gap(const struct walk *walk, const struct checkpoint_view *view)
{
	for (size_t i = 0; walk->has_last && i < view->n_gaps; i++) {
		struct gap gap = checkpoint_gap(view, i);

		if (gap.offset <= walk->last.chunk.offset && walk->at - gap.offset == gap.bytes)
			return true;
	}
	return false;
}

static int walk_checkpoint(struct walk *walk, const struct chunk_header *header)
{
	enum prof_damage_reason reason = PROF_DAMAGE_INDEX;
	struct checkpoint_view view;
	int r = load_payload(walk->reader, walk->at, header, &walk->payload, &reason);

	if (!r) {
		walk->verified = true;
		r = checkpoint_parse(walk->payload.data, walk->payload.size, &view);
	}
	if (!r)
		r = reader_receive_checkpoint(walk->learn, &view);
	if (!r)
		walk->last_checkpoint = walk->at;
	if (!r && view_has_gap(walk, &view))
		r = walk_forget_last(walk);
	if (r != PROF_DAMAGED)
		return r;
	return add_damage(walk, walk->at, chunk_bytes(header), header->sequence, PROF_DAMAGE_INDEX);
}

uint64_t walk_end(const struct walk *walk)
{
	return walk->has_last ? entry_end(&walk->last) : walk->end;
}

static int walk_finalize(struct walk *walk)
{
	int r = walk->has_last ? walk->receive(walk, &walk->last, walk->data) : 0;

	walk->end = walk_end(walk);
	walk->has_last = false;
	return r;
}

static int walk_chunk(struct walk *walk, const struct chunk_header *header)
{
	struct entry entry = entry_of_header(header, walk->at);
	uint64_t end = MIN_OF(walk->at + chunk_bytes(header), walk->reader->size);
	bool follows = header->sequence == walk->next_sequence || walk->after_hole;
	uint64_t last, next;
	int r = 0;

	if (!follows && walk->has_last && !walk->verified) {
		/* There may be chunks inside the last chunk. */
		r = walk_enter_last(walk, &next);
		walk->verified = true;
		if (!r)
			r = walk_leap(walk, next);
		if (r != PROF_END)
			return r;
		r = 0;
	}
	last = walk->last.chunk.offset;
	if (walk->has_last && reader_gap_covers(walk->reader, last, walk->at - last) &&
	    !reader_gap_covers(walk->reader, last, walk->at - last + 1))
		r = walk_forget_last(walk);
	else if (!follows)
		r = add_damage(walk, walk->at, 0, walk->next_sequence, PROF_DAMAGE_ORDER);
	walk->verified = header->stored == 0;
	if (!r && header->kind == CHUNK_CHECKPOINT && walk->learn)
		r = walk_checkpoint(walk, header);
	walk->after_hole = false;
	if (!r)
		r = walk_finalize(walk);
	walk->last = entry;
	walk->has_last = true;
	walk->next_sequence = header->sequence + 1;
	walk->at = end;
	return r;
}

int recover_walk(struct walk *walk)
{
	size_t ahead = 0;

	while (walk->at < walk->reader->size) {
		struct chunk_header header;
		int r = walk_header(walk, walk->at, ahead, &header);

		if (r == 0) {
			ahead = header.stored < SMALL_CHUNK ? SMALL_WINDOW : 0;
			r = walk_chunk(walk, &header);
		} else if (r > 0) {
			bool cut = r == PROF_END &&
				   walk->reader->size - walk->at >= CHUNK_HEADER_BYTES;

			r = walk_hole(walk, cut ? &header : NULL);
		}
		if (r)
			return r;
	}
	return walk_finalize(walk);
}

int find_file_header(const struct prof_reader *reader, uint64_t from, uint64_t to,
		     uint64_t *ret_offset)
{
	CLEANUP(buffer_done) struct buffer block = { 0 };
	int r = buffer_reserve(&block, SEARCH_BYTES);

	for (; !r && from < to && to - from >= FILE_HEADER_BYTES;
	     from += SEARCH_BYTES - FILE_HEADER_BYTES + 1) {
		struct file_header header;
		unsigned int bad_copies;
		size_t n;

		r = read_at(reader->fd, from, block.data, MIN_OF((uint64_t)SEARCH_BYTES, to - from),
			    &n);
		for (size_t at = 0; !r && at + FILE_HEADER_BYTES <= n; at++) {
			if (!file_magic_matches(block.data + at, FILE_HEADER_BYTES) ||
			    file_header_decode(block.data + at, &header, &bad_copies) != 0)
				continue;
			*ret_offset = from + at;
			return 0;
		}
	}
	return r ? r : PROF_END;
}

/* Finds the last valid checkpoint that starts in [from, from + SEARCH_BYTES), or returns
 * PROF_END. */
static int find_in_block(const struct prof_reader *reader, uint64_t from, struct buffer *block,
			 struct buffer *payload, uint64_t *budget, uint64_t *ret_offset)
{
	uint64_t best = 0;
	size_t n;
	int r;

	block->size = 0;
	r = buffer_reserve(block, SEARCH_BYTES);
	if (!r)
		r = read_at(reader->fd, from, block->data, SEARCH_BYTES, &n);
	if (r)
		return r;
	for (size_t at = 0; (at = chunk_magic_find(block->data, n, at)) != SIZE_MAX; at += 8) {
		enum prof_damage_reason reason;
		struct chunk_header header;
		struct checkpoint_view view;

		r = load_header(reader, from + at, &header);
		if (r < 0)
			return r;
		if (r || header.kind != CHUNK_CHECKPOINT || header.stored > *budget)
			continue;
		*budget -= header.stored;
		r = load_payload(reader, from + at, &header, payload, &reason);
		if (r < 0)
			return r;
		if (!r && checkpoint_parse(payload->data, payload->size, &view) == 0)
			best = from + at;
	}
	if (best == 0)
		return PROF_END;
	*ret_offset = best;
	return 0;
}

int find_last_checkpoint(const struct prof_reader *reader, uint64_t *ret_offset)
{
	CLEANUP(buffer_done) struct buffer block = { 0 };
	CLEANUP(buffer_done) struct buffer payload = { 0 };
	uint64_t end = reader->size & ~UINT64_C(7), budget = WALK_BUDGET;
	uint64_t stop = end > LAST_CHECKPOINT_WINDOW ? end - LAST_CHECKPOINT_WINDOW
						     : FILE_HEADER_BYTES;
	int r = PROF_END;

	while (r == PROF_END && end > stop) {
		uint64_t from = end > SEARCH_BYTES ? end - SEARCH_BYTES : 0;

		from = MAX_OF(from, (uint64_t)FILE_HEADER_BYTES);
		r = find_in_block(reader, from, &block, &payload, &budget, ret_offset);
		end = from;
	}
	return r;
}
