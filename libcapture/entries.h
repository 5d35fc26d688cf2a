/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Entries - what is known of all chunks of a file, packed
 *
 * See entries.c. Built by one thread; once sealed nothing changes, and any number of cursors may go
 * through them.
 */
#pragma once

#include "libcapture/checkpoint.h"

/* What passes over a page without unpacking it. */
struct entries_page {
	size_t at;                     /* in `groups` */
	uint64_t from;                 /* where the chunk before its first one ends */
	uint64_t tables;               /* bit id % 64 of each table that has data in it */
	uint64_t t_min, t_max;         /* of its data that has times; t_min > t_max: none has */
	uint32_t epoch_min, epoch_max; /* of its data */
};

struct entries {
	struct buffer groups; /* one row group of entry_table a page, and what else an index had */
	struct entries_page *pages;
	size_t n_pages, capacity;
	struct codec_encoder encoder;
	struct prof_block *open;       /* rows of the page that is not packed yet; NULL: sealed */
	struct entries_page open_page; /* what is known of it */
	uint64_t n, n_data;
	uint64_t end;      /* where the last one ends; FILE_HEADER_BYTES: there is none */
	struct entry last; /* of n > 0 */
};

MUST_CHECK int entries_init(struct entries *entries);
void entries_done(struct entries *entries);
/* `entry` lies behind all others. -ENOMEM: it was not added. */
MUST_CHECK int entries_add(struct entries *entries, const struct entry *entry);
/* Takes back what the last entries_add() did; `end` is what ->end was before it. */
void entries_take_back(struct entries *entries, uint64_t end);
/* Instead of adding: the entries of an index, whose payload is kept as it is. First
 * entries_adopt() of all of it, which takes the buffer over, then for each group
 * entries_adopt_group() and entries_adopt_entry() of what stands in it. */
bool entries_can_adopt(const struct entries *entries, const struct checkpoint_view *index);
void entries_adopt(struct entries *entries, struct buffer *payload);
MUST_CHECK int entries_adopt_group(struct entries *entries, const uint8_t *group);
void entries_adopt_entry(struct entries *entries, const struct entry *entry);
/* Packs the page that is open. More may be added. */
MUST_CHECK int entries_pack(struct entries *entries);
/* The same, and gives back what adding takes. */
MUST_CHECK int entries_seal(struct entries *entries);

/* Which entries; zeros: all data. */
struct entries_filter {
	bool others; /* also what is no data; nothing else may be set */
	uint16_t table;
	uint32_t segment, epoch;
	uint64_t t_from, t_to; /* chunks outside [t_from, t_to] are not wanted; 0, 0: all are */
};

/* One thread at a time. */
struct entries_cursor {
	const struct entries *entries;
	struct entries_filter filter;
	struct chunk_decoder decoder;
	size_t page;      /* the next one */
	size_t row, rows; /* of the one that is unpacked */
	uint64_t position;
};

MUST_CHECK int entries_cursor_init(struct entries_cursor *cursor, const struct entries *entries,
				   const struct entries_filter *filter);
void entries_cursor_done(struct entries_cursor *cursor);
/* 0, PROF_END, -ENOMEM. */
MUST_CHECK int entries_cursor_next(struct entries_cursor *cursor, struct entry *ret_entry);
