/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Entries - packed descriptions of all chunks of a file
 *
 * See entries.c. Built by one thread; after sealing nothing changes, and any number of cursors may
 * use them.
 */
#pragma once

#include "libcapture/checkpoint.h"

/* Properties of a page, to skip it without unpacking. */
struct entries_page {
	size_t at;                     /* in `groups` */
	uint64_t from;                 /* where the chunk before its first one ends */
	uint64_t tables;               /* bit id % 64 of each table that has data in it */
	uint64_t t_min, t_max;         /* of its data with times; t_min > t_max: no times */
	uint32_t epoch_min, epoch_max; /* of its data */
};

struct entries {
	struct buffer groups; /* one row group of entry_table a page, and the rest of an index */
	struct entries_page *pages;
	size_t n_pages, capacity;
	struct codec_encoder encoder;
	struct prof_block *open;       /* rows of the page that is not packed yet; NULL: sealed */
	struct entries_page open_page; /* its properties */
	uint64_t n, n_data;
	uint64_t end;      /* end of the last one; FILE_HEADER_BYTES without chunks */
	struct entry last; /* valid if n > 0 */
};

MUST_CHECK int entries_init(struct entries *entries);
void entries_done(struct entries *entries);
/* `entry` must be after all others. -ENOMEM: it was not added. */
MUST_CHECK int entries_add(struct entries *entries, const struct entry *entry);
/* Undoes the last entries_add(); `end` is the earlier value of ->end. */
void entries_remove_from(struct entries *entries, uint64_t end);
/* Instead of adding: uses the entries of an index, whose payload is kept as it is. First call
 * entries_adopt() for all of it, which takes over the buffer, then for each group
 * entries_adopt_group() and entries_adopt_entry() of its entries. */
bool entries_can_adopt(const struct entries *entries, const struct checkpoint_view *index);
void entries_adopt(struct entries *entries, struct buffer *payload);
MUST_CHECK int entries_adopt_group(struct entries *entries, const uint8_t *group);
void entries_adopt_entry(struct entries *entries, const struct entry *entry);
/* Packs the open page. More may be added. */
MUST_CHECK int entries_pack(struct entries *entries);
/* The same, and frees the memory for adding. */
MUST_CHECK int entries_seal(struct entries *entries);

/* Selects entries; zeros: all data. */
struct entries_filter {
	bool others; /* include chunks without data; no other filter may be set */
	uint16_t table;
	uint32_t segment, epoch;
	uint64_t t_from, t_to; /* skip chunks outside [t_from, t_to]; 0, 0: none */
};

/* One thread at a time. */
struct entries_cursor {
	const struct entries *entries;
	struct entries_filter filter;
	struct chunk_decoder decoder;
	size_t page;      /* the next one */
	size_t row, rows; /* of the unpacked page */
	uint64_t position;
};

MUST_CHECK int entries_cursor_init(struct entries_cursor *cursor, const struct entries *entries,
				   const struct entries_filter *filter);
void entries_cursor_done(struct entries_cursor *cursor);
/* 0, PROF_END, -ENOMEM. */
MUST_CHECK int entries_cursor_next(struct entries_cursor *cursor, struct entry *ret_entry);
