/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Entries - packed descriptions of all chunks of a file
 *
 * A capture of a gigabyte may have hundreds of thousands of chunks. Their entries are kept as the
 * full index stores them: row groups of entry_table, with ENTRIES_PAGE entries each, and some eight
 * bytes per entry. Entries of an index that was read are not copied. A cursor unpacks one page at a
 * time, and skips pages without matching entries. It leaves the unpacked page to the next cursor,
 * because one page describes most dictionaries of an epoch.
 *
 * Invariants: (1) a sealed list is never written to, except for the spares, which are exchanged
 *                 atomically; so threads may share it  [test-capture-threads]
 *             (2) memory is some 8 bytes per chunk, one page per cursor, and SPARES spare pages
 *                 [test-capture-memory: many chunks]
 *             (3) a skipped page has no matching entry  [test-capture-pages]
 * checkpoint.c and index.c check entries.
 */
#include "libcapture/entries.h"

#define ENTRIES_PAGE 2048u
/* Groups of an index are adopted as pages if none is larger than ADOPT_MOST, and their average is
 * at least ADOPT_LEAST. */
#define ADOPT_MOST (4 * ENTRIES_PAGE)
#define ADOPT_LEAST (ENTRIES_PAGE / 2)

static const struct entries_page no_page = { .t_min = UINT64_MAX, .epoch_min = UINT32_MAX };

int entries_init(struct entries *entries)
{
	int r;

	*entries = (struct entries){ .end = FILE_HEADER_BYTES, .open_page = no_page };
	entries->spares = calloc(1, sizeof(*entries->spares));
	r = entries->spares ? codec_encoder_init(&entries->encoder, 1) : -ENOMEM;
	if (!r)
		r = prof_block_new(&entry_table, &entries->open);
	entries->open_page.from = FILE_HEADER_BYTES;
	return r;
}

static void decoder_free(struct entries_decoder *decoder)
{
	if (decoder)
		chunk_decoder_done(&decoder->chunk);
	free(decoder);
}

void entries_done(struct entries *entries)
{
	for (size_t i = 0; entries->spares && i < SPARES; i++) {
		decoder_free(entries->spares->decoders[i]);
		ZSTD_freeDCtx(entries->spares->zstd[i]);
	}
	free(entries->spares);
	codec_encoder_done(&entries->encoder);
	prof_block_free(entries->open);
	buffer_done(&entries->groups);
	free(entries->pages);
	*entries = (struct entries){ .end = FILE_HEADER_BYTES };
}

/* ---- Adding ---------------------------------------------------------------------------------- */

static uint64_t table_bit(unsigned int table)
{
	return UINT64_C(1) << table % 64;
}

static int pages_reserve(struct entries *entries)
{
	size_t capacity = MAX_OF((size_t)16, entries->capacity * 2);
	struct entries_page *pages;

	if (entries->n_pages < entries->capacity)
		return 0;
	pages = reallocarray(entries->pages, capacity, sizeof(*pages));
	if (!pages)
		return -ENOMEM;
	entries->pages = pages;
	entries->capacity = capacity;
	return 0;
}

static void entries_note(struct entries *entries, struct entries_page *page,
			 const struct entry *entry)
{
	const struct prof_chunk *chunk = &entry->chunk;

	if (entry->kind == CHUNK_DATA) {
		page->tables |= table_bit(chunk->table);
		page->epoch_min = MIN_OF(page->epoch_min, chunk->epoch);
		page->epoch_max = MAX_OF(page->epoch_max, chunk->epoch);
		if (chunk->t_min != 0 || chunk->t_max != 0) {
			page->t_min = MIN_OF(page->t_min, chunk->t_min);
			page->t_max = MAX_OF(page->t_max, chunk->t_max);
		}
		entries->n_data++;
	}
	entries->n++;
	entries->end = entry_end(entry);
	entries->last = *entry;
}

int entries_pack(struct entries *entries)
{
	size_t at = entries->groups.size;
	struct chunk_extent extent;
	int r;

	if (prof_block_rows(entries->open) == 0)
		return 0;
	r = pages_reserve(entries);
	if (!r)
		r = chunk_encode(&entries->encoder, entries->open, PROF_MAX_GROUP_ROWS,
				 &entries->groups, &extent);
	if (r) {
		entries->groups.size = at;
		return r;
	}
	entries->open_page.at = at;
	entries->pages[entries->n_pages++] = entries->open_page;
	prof_block_reset(entries->open);
	entries->open_page = no_page;
	entries->open_page.from = entries->end;
	return 0;
}

int entries_add(struct entries *entries, const struct entry *entry)
{
	int r = 0;

	/* Pack before the entry is added, so that entries_remove_from() can still remove it. */
	if (prof_block_rows(entries->open) >= ENTRIES_PAGE)
		r = entries_pack(entries);
	if (!r)
		r = entry_block_add(entries->open, entry, entries->end);
	if (r)
		return r;
	entries_note(entries, &entries->open_page, entry);
	return 0;
}

void entries_remove_from(struct entries *entries, uint64_t end)
{
	entries->n_data -= entries->last.kind == CHUNK_DATA;
	entries->n--;
	entries->end = end;
	entries->open->rows--;
}

bool entries_can_adopt(const struct entries *entries, const struct checkpoint_view *index)
{
	const uint8_t *at = index->groups;
	struct chunk_group group;

	if (entries->n > 0 || index->n_entries / ADOPT_LEAST + 1 < index->n_groups)
		return false;
	for (uint32_t g = 0; g < index->n_groups; g++)
		if (!chunk_group_next(&at, index->groups + index->groups_bytes, &group) ||
		    group.rows > ADOPT_MOST)
			return false;
	return true;
}

void entries_adopt(struct entries *entries, struct buffer *payload)
{
	buffer_done(&entries->groups);
	entries->groups = *payload;
	*payload = (struct buffer){ 0 };
}

int entries_adopt_group(struct entries *entries, const uint8_t *group)
{
	int r = pages_reserve(entries);

	if (r)
		return r;
	entries->pages[entries->n_pages] = no_page;
	entries->pages[entries->n_pages].at = (size_t)(group - entries->groups.data);
	entries->pages[entries->n_pages++].from = entries->end;
	return 0;
}

void entries_adopt_entry(struct entries *entries, const struct entry *entry)
{
	entries_note(entries, &entries->pages[entries->n_pages - 1], entry);
	entries->open_page.from = entries->end;
}

int entries_seal(struct entries *entries)
{
	int r = entries_pack(entries);

	if (r)
		return r;
	codec_encoder_done(&entries->encoder);
	entries->encoder = (struct codec_encoder){ 0 };
	prof_block_free(entries->open);
	entries->open = NULL;
	return 0;
}

/* ---- Cursors --------------------------------------------------------------------------------- */

int entries_cursor_init(struct entries_cursor *cursor, const struct entries *entries,
			const struct entries_filter *filter)
{
	int r;

	*cursor = (struct entries_cursor){ .entries = entries, .filter = *filter };
	cursor->decoder = spare_take(entries->spares->decoders);
	if (cursor->decoder)
		return 0;
	cursor->decoder = calloc(1, sizeof(*cursor->decoder));
	if (!cursor->decoder)
		return -ENOMEM;
	cursor->decoder->page = SIZE_MAX;
	r = chunk_decoder_init(&cursor->decoder->chunk, &entry_table, NULL, 0);
	if (r) {
		free(cursor->decoder);
		cursor->decoder = NULL;
	}
	return r;
}

void entries_cursor_done(struct entries_cursor *cursor)
{
	if (cursor->decoder)
		decoder_free(spare_leave(cursor->entries->spares->decoders, cursor->decoder));
	cursor->decoder = NULL;
}

/* Returns whether a page may have matching entries. Its time range ignores chunks whose times are
 * 0. */
static bool page_wanted(const struct entries_page *page, const struct entries_filter *filter)
{
	if (filter->others)
		return true;
	return page->tables != 0 && (!filter->table || page->tables & table_bit(filter->table)) &&
	       (!filter->epoch ||
		(filter->epoch >= page->epoch_min && filter->epoch <= page->epoch_max)) &&
	       (filter->t_from == 0 ||
		(filter->t_from <= page->t_max && filter->t_to >= page->t_min));
}

static bool entry_wanted(const struct entry *entry, const struct entries_filter *filter)
{
	const struct prof_chunk *chunk = &entry->chunk;

	if (filter->others)
		return true;
	return entry->kind == CHUNK_DATA && (!filter->table || chunk->table == filter->table) &&
	       (!filter->segment || chunk->segment == filter->segment) &&
	       (!filter->epoch || chunk->epoch == filter->epoch) &&
	       ((filter->t_from == 0 && filter->t_to == 0) ||
		(chunk->t_min <= filter->t_to && chunk->t_max >= filter->t_from));
}

/* Unpacks the next page that can match. */
static int cursor_unpack(struct entries_cursor *cursor)
{
	const struct entries *entries = cursor->entries;

	while (cursor->page < entries->n_pages) {
		const struct entries_page *page = &entries->pages[cursor->page++];
		const uint8_t *at = entries->groups.data + page->at;
		struct chunk_group group;
		int r;

		if (!page_wanted(page, &cursor->filter))
			continue;
		r = chunk_group_next(&at, entries->groups.data + entries->groups.size, &group)
			    ? 0
			    : PROF_DAMAGED;
		if (!r && cursor->decoder->page != cursor->page - 1) {
			cursor->decoder->page = SIZE_MAX;
			r = chunk_decode(&cursor->decoder->chunk, &group);
		}
		assert(r <= 0);
		if (r)
			return r;
		cursor->decoder->page = cursor->page - 1;
		cursor->row = 0;
		cursor->rows = group.rows;
		cursor->position = page->from;
		return 0;
	}
	return PROF_END;
}

int entries_cursor_next(struct entries_cursor *cursor, struct entry *ret_entry)
{
	const struct entries_filter *filter = &cursor->filter;

	for (;;) {
		const struct prof_array *arrays = cursor->decoder->chunk.arrays;
		int r = cursor->row < cursor->rows ? 0 : cursor_unpack(cursor);

		if (r)
			return r;
		while (cursor->row < cursor->rows) {
			size_t row = cursor->row++;
			struct entry entry;

			/* Most entries are of other tables or epochs, so compare these columns
			 * first. */
			if ((filter->table && arrays[ENTRY_TABLE].numbers[row] != filter->table) ||
			    (filter->epoch && arrays[ENTRY_EPOCH].numbers[row] != filter->epoch)) {
				cursor->position += arrays[ENTRY_GAP].numbers[row] +
						    CHUNK_HEADER_BYTES +
						    PADDED(arrays[ENTRY_STORED].numbers[row]);
				continue;
			}
			entry = entry_of_row(arrays, row, cursor->position);
			cursor->position = entry_end(&entry);
			if (!entry_wanted(&entry, filter))
				continue;
			*ret_entry = entry;
			return 0;
		}
	}
}
