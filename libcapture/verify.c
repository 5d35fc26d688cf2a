/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Verify - makes all checks of a chunk that need no other chunk
 *
 * A walk over the whole file finds the chunks; the index is used only to name missing chunks.
 * Damage reasons, in the order of the checks: cut (the file ends in the chunk), header, checksum,
 * payload (structure), decode, order (times that descend, or differ from the header), dictionary
 * (lowest id), index (an invalid checkpoint), payload (padding).
 */
#include "libcapture/reader.h"

struct checker {
	const struct prof_reader *reader;
	struct chunk_decoder decoder; /* decoder for `def` */
	const struct prof_table_def *def;
	struct buffer stored;
};

static void checker_done(struct checker *checker)
{
	chunk_decoder_done(&checker->decoder);
	buffer_done(&checker->stored);
}

/* Prepares the decoder for a table; `def` is NULL if the table has no schema. */
static int checker_use(struct checker *checker, unsigned int table)
{
	const struct prof_table_def *def = schema_find(&checker->reader->schema, table);
	int r;

	if (def == checker->def)
		return 0;
	chunk_decoder_done(&checker->decoder);
	checker->def = NULL;
	r = def ? chunk_decoder_init(&checker->decoder, def, NULL, 0) : 0;
	if (!r)
		checker->def = def;
	return r;
}

/* Checks times and ids against the header. Returns the damage reason, or -1 if they agree. */
static int contradiction(const struct checker *checker, const struct prof_chunk *chunk,
			 const struct chunk_group *group)
{
	const struct prof_table_def *def = checker->def;
	const struct prof_array *arrays = checker->decoder.arrays;
	uint64_t t_min = UINT64_MAX, t_max = 0;

	if (def->flags & PROF_TABLE_TIMED && arrays[0].numbers) {
		for (size_t i = 1; i < group->rows; i++)
			if (arrays[0].numbers[i] < arrays[0].numbers[i - 1])
				return PROF_DAMAGE_ORDER;
		chunk_times(def, arrays, group->rows, &t_min, &t_max);
		if (t_min != group->t_min || t_max != group->t_max || t_min < chunk->t_min ||
		    t_max > chunk->t_max)
			return PROF_DAMAGE_ORDER;
	}
	if (def->flags & PROF_TABLE_DICTIONARY && arrays[0].numbers)
		for (size_t i = 0; i < group->rows; i++)
			if (arrays[0].numbers[i] < chunk->first_id)
				return PROF_DAMAGE_DICTIONARY;
	return -1;
}

/* Decodes a payload. Returns 0, PROF_DAMAGED with a reason and the lost rows, or -errno. */
static int check_rows(struct checker *checker, const struct prof_chunk *chunk,
		      const uint8_t *payload, enum prof_damage_reason *ret_reason,
		      uint64_t *ret_rows)
{
	const uint8_t *at = payload, *end = payload + chunk->stored_bytes;
	uint64_t left = chunk->rows;
	int r = checker_use(checker, chunk->table);

	while (!r && at < end) {
		struct chunk_group group;
		int wrong = -1;

		if (!chunk_group_next(&at, end, &group))
			return PROF_DAMAGED;
		if (!checker->def)
			continue;
		r = chunk_decode(&checker->decoder, &group);
		if (r == PROF_DAMAGED) {
			*ret_reason = PROF_DAMAGE_DECODE;
			*ret_rows = left;
		}
		left -= group.rows;
		if (!r)
			wrong = contradiction(checker, chunk, &group);
		if (wrong >= 0) {
			*ret_reason = wrong;
			*ret_rows = 0;
			return PROF_DAMAGED;
		}
	}
	return r;
}

/* Checks that padding is zeros; it may be missing at the end of the file. Wrong padding loses no
 * rows. */
static int check_padding(const struct prof_reader *reader, const struct prof_chunk *chunk)
{
	static const uint8_t zeros[8];
	size_t size = PADDED(chunk->stored_bytes) - chunk->stored_bytes, n;
	uint8_t padding[8];
	int r = read_at(reader->fd, chunk->offset + CHUNK_HEADER_BYTES + chunk->stored_bytes,
			padding, size, &n);

	if (r)
		return r;
	return memcmp(padding, zeros, n) == 0 ? 0 : PROF_DAMAGED;
}

static struct prof_damage damage_of(const struct prof_chunk *chunk)
{
	return (struct prof_damage){
		.offset = chunk->offset,
		.bytes = CHUNK_HEADER_BYTES + PADDED(chunk->stored_bytes),
		.sequence = chunk->sequence,
		.rows = chunk->rows,
		.table = chunk->table,
		.stream = chunk->stream,
	};
}

static int check_data(struct checker *checker, const struct prof_chunk *chunk,
		      struct prof_damage *ret_damage)
{
	struct prof_damage damage = damage_of(chunk);
	struct chunk_header header;
	const uint8_t *payload;
	int r = load_chunk(checker->reader, chunk, &checker->stored, &header, &payload,
			   &damage.reason);

	if (!r)
		r = check_rows(checker, chunk, payload, &damage.reason, &damage.rows);
	if (!r) {
		damage.reason = PROF_DAMAGE_PAYLOAD;
		damage.rows = 0;
		r = check_padding(checker->reader, chunk);
	}
	if (r == PROF_DAMAGED)
		*ret_damage = damage;
	return r;
}

/* Checks chunks without rows: checkpoints, trailers and kinds of later versions. */
static int check_other(struct checker *checker, const struct entry *entry,
		       struct prof_damage *ret_damage)
{
	struct prof_damage damage = damage_of(&entry->chunk);
	struct checkpoint_view view;
	struct chunk_header header;
	int r = load_header(checker->reader, entry->chunk.offset, &header);

	damage.rows = 0;
	damage.reason = PROF_DAMAGE_HEADER;
	if (!r)
		r = load_payload(checker->reader, entry->chunk.offset, &header, &checker->stored,
				 &damage.reason);
	if (!r && entry->kind == CHUNK_CHECKPOINT) {
		damage.reason = PROF_DAMAGE_INDEX;
		r = checkpoint_parse(checker->stored.data, checker->stored.size, &view);
	}
	if (!r) {
		damage.reason = PROF_DAMAGE_PAYLOAD;
		r = check_padding(checker->reader, &entry->chunk);
	}
	if (r == PROF_DAMAGED && entry->kind == CHUNK_CHECKPOINT &&
	    damage.reason == PROF_DAMAGE_CHECKSUM)
		damage.reason = PROF_DAMAGE_INDEX;
	if (r == PROF_DAMAGED)
		*ret_damage = damage;
	return r;
}

/* Records damage for prof_reader_lost(). Returns `result`, or -errno. */
static int note_result(const struct prof_reader *reader, const struct prof_chunk *chunk,
		       uint64_t rows_lost, int result)
{
	int r = result == PROF_DAMAGED ? lost_add(reader->lost, chunk, rows_lost) : 0;

	return r ? r : result;
}

static int check_entry(struct checker *checker, const struct entry *entry,
		       struct prof_damage *ret_damage)
{
	struct prof_damage damage = { 0 };
	int r = entry->kind == CHUNK_DATA ? check_data(checker, &entry->chunk, &damage)
					  : check_other(checker, entry, &damage);

	if (r == PROF_DAMAGED)
		*ret_damage = damage;
	return note_result(checker->reader, &entry->chunk, damage.rows, r);
}

PROF_PUBLIC int prof_reader_check(const struct prof_reader *reader, const struct prof_chunk *chunk,
				  struct prof_damage *ret_damage)
{
	CLEANUP(checker_done) struct checker checker = { .reader = reader };
	const struct entry entry = { .chunk = *chunk, .kind = CHUNK_DATA };

	return check_entry(&checker, &entry, ret_damage);
}

/* ---- All bytes, without decoding ------------------------------------------------------------- */

PROF_PUBLIC int prof_reader_scan(const struct prof_reader *reader,
				 bool (*wanted)(const struct prof_chunk *chunk, void *data),
				 void *data)
{
	CLEANUP(checker_done) struct checker checker = { .reader = reader };
	CLEANUP(entries_cursor_done) struct entries_cursor cursor;
	enum prof_damage_reason reason;
	struct chunk_header header;
	struct prof_damage damage;
	const uint8_t *payload;
	struct entry entry;
	int r = entries_cursor_init(&cursor, &reader->entries,
				    &(struct entries_filter){ .others = true });

	while (!r && !(r = entries_cursor_next(&cursor, &entry))) {
		/* The index is large, and opening the capture has checked everything except its
		 * padding. */
		if (reader->info.indexed && entry.chunk.offset == reader->last_checkpoint) {
			r = note_result(reader, &entry.chunk, 0,
					check_padding(reader, &entry.chunk));
		} else if (entry.kind != CHUNK_DATA) {
			r = check_entry(&checker, &entry, &damage);
		} else if (!wanted || wanted(&entry.chunk, data)) {
			/* A valid checksum is enough: decoding would detect only errors of the
			 * writer. */
			r = load_chunk(reader, &entry.chunk, &checker.stored, &header, &payload,
				       &reason);
			r = note_result(reader, &entry.chunk, entry.chunk.rows, r);
			if (!r)
				r = note_result(reader, &entry.chunk, 0,
						check_padding(reader, &entry.chunk));
		}
		if (r == PROF_DAMAGED)
			r = 0;
	}
	return r == PROF_END ? 0 : r;
}

/* ---- The whole file -------------------------------------------------------------------------- */

struct report {
	const struct prof_reader *reader;
	int (*found)(const struct prof_damage *damage, void *data);
	void *data;
	uint64_t chunks, good;
	struct checker checker;
	struct entries_cursor known; /* chunks of the index; advanced up to the last hole */
	struct entry next_known;
	bool has_known;
	size_t next_hole; /* index in the walk's damage */
};

static void report_done(struct report *report)
{
	checker_done(&report->checker);
	entries_cursor_done(&report->known);
}

static int report_one(struct report *report, const struct prof_damage *damage)
{
	return report->found ? report->found(damage, report->data) : 0;
}

/* Reports a hole: the chunks of the index that were in it, or only its range. */
static int report_hole(struct report *report, const struct prof_damage *hole)
{
	bool named = false;
	int r;

	if (hole->reason == PROF_DAMAGE_HEADER &&
	    reader_gap_covers(report->reader, hole->offset, hole->bytes))
		return 0;
	for (;;) {
		struct prof_damage damage;

		/* Keep the next chunk of the index until it is reported. */
		r = report->has_known ? 0
				      : entries_cursor_next(&report->known, &report->next_known);
		report->has_known = r == 0;
		if (r)
			break;
		damage = damage_of(&report->next_known.chunk);
		if (damage.offset >= hole->offset + hole->bytes)
			break;
		report->has_known = false;
		if (damage.offset < hole->offset)
			continue;
		damage.reason = hole->reason;
		named = true;
		report->chunks++;
		r = lost_add(report->reader->lost, &report->next_known.chunk, damage.rows);
		if (!r)
			r = report_one(report, &damage);
		if (r)
			return r;
	}
	if (r < 0)
		return r;
	if (named)
		return 0;
	report->chunks += hole->bytes > 0;
	return report_one(report, hole);
}

static int report_header(struct report *report)
{
	for (unsigned int copy = 0; copy < 2; copy++) {
		const struct prof_damage damage = {
			.offset = copy * FILE_RECORD_BYTES,
			.bytes = FILE_RECORD_BYTES,
			.sequence = UINT64_MAX,
			.reason = PROF_DAMAGE_HEADER,
		};
		int r = report->reader->bad_header_copies & 1u << copy ? report_one(report, &damage)
								       : 0;

		if (r)
			return r;
	}
	return 0;
}

static int report_holes(struct report *report, const struct walk *walk, uint64_t up_to)
{
	int r = 0;

	while (!r && report->next_hole < walk->damage.n &&
	       walk->damage.items[report->next_hole].offset <= up_to)
		r = report_hole(report, &walk->damage.items[report->next_hole++]);
	return r;
}

static int report_chunk(struct walk *walk, const struct entry *entry, void *data)
{
	struct report *report = data;
	struct prof_damage damage;
	int r = report_holes(report, walk, entry->chunk.offset);

	if (r)
		return r;
	r = check_entry(&report->checker, entry, &damage);
	report->chunks++;
	if (r == PROF_DAMAGED)
		return report_one(report, &damage);
	report->good += r == 0;
	return r;
}

PROF_PUBLIC int prof_reader_verify(const struct prof_reader *reader,
				   int (*found)(const struct prof_damage *damage, void *data),
				   void *data, uint64_t *ret_chunks, uint64_t *ret_good_chunks)
{
	CLEANUP(walk_done) struct walk walk = { 0 };
	CLEANUP(report_done)
	struct report report = {
		.reader = reader, .found = found, .data = data, .checker.reader = reader
	};
	int r;

	walk_init(&walk, reader, FILE_HEADER_BYTES, 0);
	walk.receive = report_chunk;
	walk.data = &report;
	r = entries_cursor_init(&report.known, &reader->entries, &(struct entries_filter){ 0 });
	if (!r)
		r = report_header(&report);
	if (!r)
		r = recover_walk(&walk);
	if (!r)
		r = report_holes(&report, &walk, UINT64_MAX);
	if (r)
		return r;
	*ret_chunks = report.chunks;
	*ret_good_chunks = report.good;
	return 0;
}
