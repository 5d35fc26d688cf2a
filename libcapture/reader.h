/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Reader - an open capture, for the files of this library
 *
 * reader.c opens it, index.c finds the chunks, recover.c finds them without an index, entries.c
 * keeps their descriptions; load.c reads and checks one chunk, verify.c all chunks.
 */
#pragma once

#include "libcapture/entries.h"
#include "libcapture/lost.h"

struct damage_list {
	struct prof_damage *items;
	size_t n, capacity;
};

/* A set of epoch numbers. */
struct epoch_set {
	uint32_t *items; /* in the order of epoch_set_add() until sorted */
	size_t n, capacity;
};

struct prof_reader {
	int fd;
	uint64_t size;
	struct file_header header;
	unsigned int bad_header_copies;
	struct prof_reader_info info;
	struct schema schema;
	struct buffer schema_section; /* last decoded section, because most checkpoints repeat it */
	uint64_t schema_budget;       /* limit for the bytes of schemas decoded from now on */
	struct prof_segment *segments;
	size_t n_segments;
	struct entries entries;  /* entries of chunks of all kinds */
	struct gap_list holes;   /* ranges between entries of checkpoints; only while opening */
	struct epoch_set epochs; /* epochs of data; only while opening */
	uint64_t v1_tables;      /* bit n: version-1 table n has data */
	struct gap_list gaps;
	struct damage_list damage;
	struct lost *lost;                            /* chunks found damaged while reading */
	int (*guard)(unsigned int table, void *data); /* or NULL */
	void *guard_data;
	uint64_t end; /* end of the last whole chunk */
	uint64_t next_sequence;
	uint64_t last_checkpoint; /* offset; 0 = none */
};

/* ---- reader.c -------------------------------------------------------------------------------- */

void damage_list_done(struct damage_list *list);
MUST_CHECK int damage_list_add(struct damage_list *list, const struct prof_damage *damage);
void epoch_set_done(struct epoch_set *set);
MUST_CHECK int epoch_set_add(struct epoch_set *set, uint32_t epoch);

MUST_CHECK int reader_add_damage(struct prof_reader *reader, uint64_t offset, uint64_t bytes,
				 uint64_t sequence, enum prof_damage_reason reason);

/* Returns whether the damaged range may have held chunks, whose tables are unknown. */
bool damage_is_stretch(const struct prof_reader *reader, const struct prof_damage *damage);

/* ---- index.c --------------------------------------------------------------------------------- */

/* Finds all chunks in file order. Sets entries, epochs, tables, segments, schema, gaps, damage,
 * end, next_sequence, last_checkpoint and, with a valid index, the state `finished`. */
MUST_CHECK int index_find_chunks(struct prof_reader *reader);
void index_forget(struct prof_reader *reader);
/* Reads the content of a checked checkpoint except for its entries. Returns PROF_DAMAGED if some of
 * the content was invalid. */
MUST_CHECK int reader_receive_checkpoint(struct prof_reader *reader,
					 const struct checkpoint_view *view);
/* Returns whether a known gap covers this range. */
bool reader_gap_covers(const struct prof_reader *reader, uint64_t offset, uint64_t bytes);

/* ---- load.c ---------------------------------------------------------------------------------- */

/* Reads `size` bytes; fewer only at the end of the file. */
MUST_CHECK int read_at(int fd, uint64_t offset, void *data, size_t size, size_t *ret_size);
/* Returns 0, -errno, or PROF_DAMAGED if there is no valid header with its whole payload. */
MUST_CHECK int load_header(const struct prof_reader *reader, uint64_t offset,
			   struct chunk_header *ret_header);
/* Reads the payload after the header into *buffer, and checks it against the header's checksum.
 * Returns PROF_DAMAGED with a reason on failure. */
MUST_CHECK int load_payload(const struct prof_reader *reader, uint64_t offset,
			    const struct chunk_header *header, struct buffer *buffer,
			    enum prof_damage_reason *ret_reason);
/* Like load_header() and load_payload(), for a chunk of the index; its header must match the index.
 * *ret_payload points into buffer. */
MUST_CHECK int load_chunk(const struct prof_reader *reader, const struct prof_chunk *chunk,
			  struct buffer *buffer, struct chunk_header *ret_header,
			  const uint8_t **ret_payload, enum prof_damage_reason *ret_reason);

/* ---- recover.c ------------------------------------------------------------------------------- */

/* A walk over headers from `at` on. A chunk is final, and passed to receive(), when the next one is
 * found. By then all damage up to the chunk's offset is in the list, and does not change later. */
struct walk {
	const struct prof_reader *reader;
	struct prof_reader *learn; /* equal to `reader` if checkpoints are to be read, else NULL */
	/* A result other than 0 ends the walk. */
	int (*receive)(struct walk *walk, const struct entry *entry, void *data);
	void *data;
	struct entry last; /* not final; valid if has_last */
	bool has_last;
	struct damage_list damage; /* all damage, in file order, including known gaps */
	uint64_t end;              /* end of the last final chunk, or the walk's start */
	uint64_t at;
	uint64_t next_sequence;
	uint64_t last_checkpoint;
	/* limit for payload bytes that may be read to distinguish holes from chunks */
	uint64_t budget;
	struct buffer window; /* bytes of the file from window_offset on */
	uint64_t window_offset;
	struct buffer payload;
	bool verified;   /* the payload of the last chunk was checked */
	bool after_hole; /* the next chunk's sequence need not follow the last one's */
};

void walk_init(struct walk *walk, const struct prof_reader *reader, uint64_t from,
	       uint64_t next_sequence);
void walk_done(struct walk *walk);
uint64_t walk_end(const struct walk *walk);
/* Returns 0, -errno, or receive()'s result; damage is not an error. */
MUST_CHECK int recover_walk(struct walk *walk);
/* Finds a whole capture header at any offset in [from, to). Returns 0, PROF_END if the range has no
 * header, or -errno. */
MUST_CHECK int find_file_header(const struct prof_reader *reader, uint64_t from, uint64_t to,
				uint64_t *ret_offset);
/* Searches for the last valid checkpoint from the end. Returns 0, PROF_END if none is near, or
 * -errno. */
MUST_CHECK int find_last_checkpoint(const struct prof_reader *reader, uint64_t *ret_offset);
