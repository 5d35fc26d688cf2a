/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Entries - packed descriptions of all chunks of a file
 *
 * One thread builds the list; once sealed it does not change, and any number of cursors may use it.
 */
#pragma once

#include "libcapture/checkpoint.h"

#include <stdatomic.h>

/* Properties of a page, which allow skipping it without unpacking. */
struct entries_page {
	size_t at;                     /* offset in `groups` */
	uint64_t from;                 /* end of the chunk before the page's first chunk */
	uint64_t tables;               /* bit id % 64 is set for each table with data in the page */
	uint64_t t_min, t_max;         /* time range of its timed data; t_min > t_max: none */
	uint32_t epoch_min, epoch_max; /* epochs of its data */
};

/* Unpacks pages, and keeps the last one. */
struct entries_decoder {
	struct chunk_decoder chunk;
	size_t page; /* index of the unpacked page; SIZE_MAX: none */
};

/* Objects that cursors leave to later cursors of any thread, because making them takes longer than
 * reading a dictionary of a few rows. Two of each are kept, because dictionaries are read while a
 * cursor is open. */
#define SPARES 2
struct entries_spares {
	_Atomic(void *) decoders[SPARES]; /* struct entries_decoder, or NULL */
	_Atomic(void *) zstd[SPARES];     /* ZSTD_DCtx for the rows of chunks, or NULL */
};

/* Takes a spare object. Returns NULL if no slot has one. */
static inline void *spare_take(_Atomic(void *) *slots)
{
	void *spare = NULL;

	for (size_t i = 0; !spare && i < SPARES; i++)
		spare = atomic_exchange(&slots[i], NULL);
	return spare;
}

/* Keeps the object as a spare and returns NULL, or returns the object if there is no room. */
static inline void *spare_leave(_Atomic(void *) *slots, void *spare)
{
	for (size_t i = 0; spare && i < SPARES; i++) {
		void *none = NULL;

		if (atomic_compare_exchange_strong(&slots[i], &none, spare))
			return NULL;
	}
	return spare;
}

struct entries {
	/* one row group of entry_table for each page, and the rest of an adopted index */
	struct buffer groups;
	struct entries_page *pages;
	size_t n_pages, capacity;
	struct codec_encoder encoder;
	struct prof_block *open;       /* rows that are not packed yet; NULL: sealed */
	struct entries_page open_page; /* properties of `open` */
	struct entries_spares *spares;
	uint64_t n, n_data;
	uint64_t end;      /* end of the last chunk; FILE_HEADER_BYTES before the first chunk */
	struct entry last; /* valid if n > 0 */
};

MUST_CHECK int entries_init(struct entries *entries);
void entries_done(struct entries *entries);
/* `entry` must be after all others in the file. Returns -ENOMEM if it was not added. */
MUST_CHECK int entries_add(struct entries *entries, const struct entry *entry);
/* Undoes the last entries_add(). `end`: the value of entries->end before it. */
void entries_remove_from(struct entries *entries, uint64_t end);
/*
 * Use the entries of an index instead of adding them. First call entries_adopt(), which takes
 * ownership of the index's payload. Then, for each group, call entries_adopt_group(), and
 * entries_adopt_entry() for each of its entries.
 */
bool entries_can_adopt(const struct entries *entries, const struct checkpoint_view *index);
void entries_adopt(struct entries *entries, struct buffer *payload);
MUST_CHECK int entries_adopt_group(struct entries *entries, const uint8_t *group);
void entries_adopt_entry(struct entries *entries, const struct entry *entry);
/* Packs the open page. More entries may be added. */
MUST_CHECK int entries_pack(struct entries *entries);
/* Packs the open page, and frees the memory that adding needs. */
MUST_CHECK int entries_seal(struct entries *entries);

/* Selects entries; zeros select all data. */
struct entries_filter {
	bool others; /* include chunks without data; no other filter may be set then */
	uint16_t table;
	uint32_t segment, epoch;
	uint64_t t_from, t_to; /* skip chunks outside [t_from, t_to]; 0, 0: skip none */
};

/* May be used by one thread at a time. */
struct entries_cursor {
	const struct entries *entries;
	struct entries_filter filter;
	struct entries_decoder *decoder;
	size_t page;      /* index of the next page */
	size_t row, rows; /* in the unpacked page */
	uint64_t position;
};

MUST_CHECK int entries_cursor_init(struct entries_cursor *cursor, const struct entries *entries,
				   const struct entries_filter *filter);
void entries_cursor_done(struct entries_cursor *cursor);
/* Returns 0, PROF_END or -ENOMEM. */
MUST_CHECK int entries_cursor_next(struct entries_cursor *cursor, struct entry *ret_entry);
