/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks the readable part of damaged captures: every prefix, every flipped bit
 *
 * A small capture with every table of version 1 and at least 20 chunks is cut at each length, and
 * each of its bits is flipped. The readable part is compared chunk by chunk with the original. For
 * a larger capture, only some positions are tried. Each run tries some of the lengths and bits,
 * which depend on the commit; ./dev soak tries all (test_stride() in tests/unit/test.h).
 *
 * Promises:
 * - in a prefix, exactly the complete chunks are readable [prefixes]
 * - no row is lost by a flip in the file header, a checkpoint, the index or the trailer [flips_*]
 * - a flip in a chunk loses at most all rows of that chunk; they are counted, unless the chunk's
 *   header is bad and there is no index [flips_*]
 * - a lost dictionary chunk leaves ids unresolved, and has no other effect [lost_names]
 * - verify and a scan notice every flip, also in padding [flips_*]
 * - a reader counts a lost chunk once, even if scan, cursor, dictionary and check all find it
 *   [lost_once]
 * - a capture that cat(1) appended to another one is found where it begins [joined]
 */
#include "config.h"

#include "arch/base.h"
#include "libcapture/prof-capture.h"
#include "tests/tools/chunks.h"
#include "tests/unit/test.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define FILE_HEADER_BYTES 256
#define CHUNK_HEADER_BYTES 96
#define MAX_CHUNKS 512
/* Odd, so that bits at every position in a byte are flipped. */
#define STRIDE (PROF_SANITIZED ? 397 : 31)

/* ---- a capture with every table -------------------------------------------------------------- */

static struct prof_value value_for(const struct prof_column_def *column, uint64_t row,
				   uint64_t *scratch)
{
	static const char text[] = "the quick brown fox jumps over the lazy dog";

	if ((column->flags & PROF_COLUMN_NULLABLE) && row % 3 == 1)
		return PROF_NULL;
	if (column->flags & PROF_COLUMN_LIST) {
		scratch[0] = row;
		scratch[1] = row * 7;
		return PROF_BYTES(scratch, row % 3);
	}
	switch (column->type) {
	case PROF_TYPE_TEXT:
	case PROF_TYPE_BINARY:
		return PROF_BYTES(text + row % 7, row % 36);
	case PROF_TYPE_TIME:
		return PROF_NUMBER(1000000000 + row * 1001003);
	case PROF_TYPE_ENUM:
	case PROF_TYPE_BOOL:
		return PROF_NUMBER(row & 1);
	case PROF_TYPE_REF:
		return PROF_NUMBER(row % 5 ? row % 5 : 1);
	default:
		return PROF_NUMBER(row * row * 2654435761u);
	}
}

static int write_rows(struct prof_writer *writer, const struct prof_table_def *def, uint32_t epoch,
		      uint64_t first, size_t n)
{
	struct prof_block *block = NULL;
	int r = prof_block_new(def, &block);

	for (uint64_t i = first; r == 0 && i < first + n; i++) {
		struct prof_value values[PROF_MAX_COLUMNS];
		uint64_t scratch[PROF_MAX_COLUMNS][2];

		for (unsigned int c = 0; c < def->n_columns; c++)
			values[c] = value_for(&def->columns[c], i, scratch[c]);
		if (def->flags & PROF_TABLE_DICTIONARY)
			values[0] = PROF_NUMBER(i + 1);
		if (def->id == PROF_TABLE_STACK)
			values[PROF_STACK_PARENT] = PROF_NUMBER(i);
		r = prof_block_add(block, values);
	}
	prof_block_set_epoch(block, epoch);
	if (r == 0)
		r = prof_writer_write(writer, block);
	prof_block_free(block);
	return r;
}

static int write_all_tables(int fd, size_t rounds, size_t rows)
{
	struct prof_writer_options options = { .mode = PROF_WRITE_NEW,
					       .segment = { .start_monotonic_ns = 1000000000 } };
	struct prof_writer *writer = NULL;
	int r = prof_writer_new(fd, &options, &writer);
	uint32_t epoch = r == 0 ? prof_writer_first_epoch(writer) : 0;

	for (size_t round = 0; r == 0 && round < rounds; round++) {
		for (unsigned int id = 1; r == 0 && id <= PROF_TABLE_LAST; id++) {
			const struct prof_table_def *def = prof_table_v1(id);

			/* an epoch has the rows of two rounds */
			if (def)
				r = write_rows(writer, def, epoch + (uint32_t)round / 2,
					       round * rows, rows);
		}
		if (r == 0 && round % 2)
			r = prof_writer_checkpoint(writer);
	}
	if (r == 0)
		r = prof_writer_finish(writer);
	prof_writer_free(writer);
	return r;
}

/* Writes an unfinished capture. Only its first checkpoints describe its two tables. */
static int write_crashed(int fd)
{
	static const struct prof_column_def columns[] = {
		{ .id = 0, .name = "time", .type = PROF_TYPE_TIME, .order = PROF_ORDER_DELTA },
		{ .id = 7, .name = "what", .type = PROF_TYPE_TEXT, .flags = PROF_COLUMN_NULLABLE },
		{ .id = 8, .name = "how", .type = PROF_TYPE_UINT, .flags = PROF_COLUMN_LIST },
	};
	static const struct prof_table_def foreign = { .name = "foreign",
						       .columns = columns,
						       .n_columns = ARRAY_SIZE(columns),
						       .id = PROF_TABLE_FIRST_FOREIGN,
						       .flags = PROF_TABLE_TIMED };
	struct prof_writer_options options = { .mode = PROF_WRITE_NEW };
	struct prof_writer *writer = NULL;
	int r = prof_writer_new(fd, &options, &writer);

	if (r == 0)
		r = prof_writer_add_table(writer, &foreign);
	for (size_t i = 0; r == 0 && i < 6; i++)
		r = write_rows(writer, i % 2 ? prof_table_v1(PROF_TABLE_LOSS) : &foreign,
			       prof_writer_first_epoch(writer), i * 5, 5);
	prof_writer_free(writer);
	return r;
}

/* ---- what can be read ------------------------------------------------------------------------ */

struct contents {
	uint64_t hash[MAX_CHUNKS]; /* hash of a chunk's rows, by its sequence number; 0: not read */
	uint32_t rows[MAX_CHUNKS];
	size_t tables;
	uint64_t lost_rows;
	enum prof_state state;
	uint64_t cut_at;
	bool damage; /* verify found damage */
	bool is_scan_clean;
	struct prof_lost scan_lost, lost; /* after the scan, and after reading everything */
};

static uint64_t mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
	return hash ^ hash >> 29;
}

static uint64_t hash_array(uint64_t hash, const struct prof_array *a, size_t rows)
{
	size_t n = a->offsets ? a->offsets[rows] : rows;

	for (size_t i = 0; a->offsets && i <= rows; i++)
		hash = mix(hash, a->offsets[i]);
	for (size_t i = 0; a->numbers && i < n; i++)
		hash = mix(hash, a->numbers[i]);
	for (size_t i = 0; a->bytes && i < n; i++)
		hash = mix(hash, a->bytes[i]);
	for (size_t i = 0; a->nulls && i < rows; i++)
		hash = mix(hash, a->nulls[i]);
	return hash;
}

static int read_table(const struct prof_reader *reader, const struct prof_table_def *def,
		      struct contents *contents)
{
	struct prof_cursor_options options = { .table = def->id };
	struct prof_cursor *cursor = NULL;
	uint64_t lost_chunks = 0, lost_rows = 0;
	struct prof_batch batch;
	int r = prof_cursor_new(reader, &options, &cursor);

	while (r == 0 && (r = prof_cursor_next(cursor, &batch)) == 0) {
		uint64_t sequence = batch.sequence;
		uint64_t hash = mix(def->id, batch.epoch);

		if (sequence >= MAX_CHUNKS)
			continue;
		for (unsigned int c = 0; c < def->n_columns; c++)
			hash = hash_array(mix(hash, c), &batch.columns[c], batch.rows);
		contents->hash[sequence] = mix(contents->hash[sequence], hash) | 1;
		contents->rows[sequence] += (uint32_t)batch.rows;
	}
	if (cursor)
		prof_cursor_lost(cursor, &lost_chunks, &lost_rows);
	contents->lost_rows += lost_rows;
	prof_cursor_free(cursor);
	return r == PROF_END ? 0 : r;
}

static int note_damage(const struct prof_damage *damage, void *data)
{
	*(bool *)data = true;
	return PROF_DAMAGED;
}

static int read_all(int fd, struct contents *contents)
{
	struct prof_reader *reader = NULL;
	int r = prof_reader_open(fd, &reader);
	const struct prof_table_def *const *tables;
	uint64_t chunks, good;

	memset(contents, 0, sizeof(*contents));
	if (r != 0)
		return r;
	contents->state = prof_reader_info(reader)->state;
	contents->cut_at = prof_reader_info(reader)->cut_at;
	r = prof_reader_scan(reader, NULL, NULL);
	prof_reader_lost(reader, 0, &contents->scan_lost);
	contents->is_scan_clean = contents->scan_lost.chunks == 0 &&
				  contents->scan_lost.flawed == 0 &&
				  contents->state != PROF_STATE_DAMAGED;
	tables = prof_reader_tables(reader, &contents->tables);
	for (size_t i = 0; r == 0 && i < contents->tables; i++)
		r = read_table(reader, tables[i], contents);
	if (r == 0)
		r = prof_reader_verify(reader, note_damage, &contents->damage, &chunks, &good);
	prof_reader_lost(reader, 0, &contents->lost);
	prof_reader_free(reader);
	return r == PROF_DAMAGED && contents->damage ? 0 : r;
}

/* ---- the capture under test ------------------------------------------------------------------ */

static struct {
	int fd;
	size_t bytes;
	uint8_t *data;
	struct prof_chunk chunks[MAX_CHUNKS]; /* data chunks, in file order */
	size_t n_chunks;
	struct contents contents;
} original;

/* Takes ownership of the fd. */
static bool take_original(int fd, enum prof_state state)
{
	struct prof_reader *reader = NULL;
	CLEANUP_FREE struct prof_chunk *chunks = NULL;

	if (original.data)
		munmap(original.data, original.bytes);
	if (original.fd > 0)
		close(original.fd);
	original.fd = fd;
	original.bytes = (size_t)lseek(fd, 0, SEEK_END);
	original.data = mmap(NULL, original.bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (!CHECK_INT(prof_reader_open(fd, &reader), 0))
		return false;
	chunks = chunks_of(reader, &original.n_chunks);
	if (!CHECK(original.n_chunks <= MAX_CHUNKS))
		return false;
	memcpy(original.chunks, chunks, original.n_chunks * sizeof(*chunks));
	prof_reader_free(reader);
	CHECK_INT(read_all(fd, &original.contents), 0);
	CHECK(!original.contents.damage && original.contents.is_scan_clean);
	return CHECK_INT(original.contents.state, state);
}

static bool make_original(size_t rounds, size_t rows)
{
	int fd = memfd_create("capture", MFD_CLOEXEC);

	return CHECK_INT(write_all_tables(fd, rounds, rows), 0) &&
	       take_original(fd, PROF_STATE_FINISHED) && CHECK(original.n_chunks >= 20);
}

/* Returns the index in original.chunks of the chunk that contains the byte, or SIZE_MAX. */
static size_t owner_of(uint64_t offset)
{
	for (size_t i = 0; i < original.n_chunks; i++) {
		uint64_t end = original.chunks[i].offset + CHUNK_HEADER_BYTES +
			       original.chunks[i].stored_bytes;

		if (offset >= original.chunks[i].offset && offset < end)
			return i;
	}
	return SIZE_MAX;
}

/* ---- prefixes -------------------------------------------------------------------------------- */

static bool prefix_is_right(int fd, size_t bytes)
{
	static struct contents got;
	uint64_t last_end = FILE_HEADER_BYTES;
	int r = read_all(fd, &got);

	if (bytes < FILE_HEADER_BYTES)
		return CHECK(r == PROF_TOO_SHORT || (bytes < 8 && r == PROF_NOT_CAPTURE));
	if (!CHECK_INT(r, 0))
		return false;
	for (size_t i = 0; i < original.n_chunks; i++) {
		const struct prof_chunk *chunk = &original.chunks[i];
		uint64_t end = chunk->offset + CHUNK_HEADER_BYTES + chunk->stored_bytes;
		bool whole = end <= bytes;

		if (!CHECK_INT(got.rows[chunk->sequence], whole ? chunk->rows : 0) ||
		    !CHECK(!whole ||
			   got.hash[chunk->sequence] == original.contents.hash[chunk->sequence]))
			return false;
		if (whole)
			last_end = end;
	}
	if (bytes == original.bytes)
		return CHECK_INT(got.state, PROF_STATE_FINISHED);
	return CHECK_INT(got.state, PROF_STATE_UNFINISHED) &&
	       CHECK(got.cut_at >= last_end && got.cut_at <= bytes);
}

static void prefixes(void)
{
	int fd = memfd_create("prefix", MFD_CLOEXEC);
	size_t step = test_stride(PROF_SANITIZED ? 61 : 7);

	REQUIRE(make_original(1, 4));
	/* Try every byte of the file header, then some positions, then the whole file. */
	for (size_t bytes = 0, next; bytes <= original.bytes; bytes = next) {
		if (!prefix_is_right(fd, bytes)) {
			printf("# at a prefix of %zu of %zu bytes\n", bytes, original.bytes);
			break;
		}
		next = bytes < FILE_HEADER_BYTES ? bytes + 1 : bytes + step;
		if (bytes == FILE_HEADER_BYTES)
			next += test_start(step);
		if (bytes < original.bytes)
			next = MIN_OF(next, original.bytes);
		if (next <= original.bytes)
			REQUIRE(pwrite(fd, original.data + bytes, next - bytes, (off_t)bytes) ==
				(ssize_t)(next - bytes));
	}
	close(fd);
}

/* ---- flips ----------------------------------------------------------------------------------- */

static bool flip_is_right(int fd, size_t bit)
{
	static struct contents got;
	size_t owner = owner_of(bit / 8);
	uint64_t lost = 0;
	int r = read_all(fd, &got);

	if (!CHECK_INT(r, 0) || !CHECK_INT(got.tables, original.contents.tables))
		return false;
	if (!CHECK(got.damage) || !CHECK(!got.is_scan_clean) ||
	    !CHECK_INT(got.scan_lost.rows, got.lost_rows) ||
	    !CHECK_INT(got.lost.rows, got.lost_rows) ||
	    !CHECK_INT(got.lost.chunks, got.lost_rows > 0))
		return false;
	for (size_t i = 0; i < original.n_chunks; i++) {
		uint64_t sequence = original.chunks[i].sequence;
		bool same = got.hash[sequence] == original.contents.hash[sequence];

		/* the damaged chunk is lost as a whole or not at all; others are readable */
		if (!CHECK(same || (i == owner && got.rows[sequence] == 0)))
			return false;
		lost += same ? 0 : original.chunks[i].rows;
	}
	/* without an index, it is unknown how many rows a chunk with a bad header had */
	return CHECK(got.lost_rows == lost ||
		     (got.state != PROF_STATE_FINISHED && got.lost_rows == 0));
}

/* Flips every `step`th bit of a copy of the capture, one at a time. */
static void flip_bits(size_t step)
{
	CLEANUP_CLOSE int fd = memfd_create("flipped", MFD_CLOEXEC);
	int failed = 0;

	REQUIRE(write(fd, original.data, original.bytes) == (ssize_t)original.bytes);
	for (size_t bit = test_start(step); bit < original.bytes * 8 && failed < 3; bit += step) {
		uint8_t byte = original.data[bit / 8] ^ (uint8_t)(1u << bit % 8);

		REQUIRE(pwrite(fd, &byte, 1, (off_t)(bit / 8)) == 1);
		if (!flip_is_right(fd, bit)) {
			printf("# bit %zu of byte %zu of %zu, data chunk %zd\n", bit % 8, bit / 8,
			       original.bytes, (ssize_t)owner_of(bit / 8));
			failed++;
		}
		byte = original.data[bit / 8];
		REQUIRE(pwrite(fd, &byte, 1, (off_t)(bit / 8)) == 1);
	}
}

static void flips_small(void)
{
	REQUIRE(make_original(1, 4));
	printf("# %zu bytes, %zu data chunks\n", original.bytes, original.n_chunks);
	flip_bits(test_stride(STRIDE));
}

static void flips_crashed(void)
{
	int fd = memfd_create("capture", MFD_CLOEXEC);

	REQUIRE(write_crashed(fd) == 0);
	REQUIRE(take_original(fd, PROF_STATE_UNFINISHED));
	CHECK_INT(original.n_chunks, 6);
	flip_bits(test_stride(STRIDE));
}

static void flips_large_sampled(void)
{
	REQUIRE(make_original(8, 600));
	printf("# %zu bytes, %zu data chunks\n", original.bytes, original.n_chunks);
	flip_bits(original.bytes * 8 / 1000 * test_stride(PROF_SANITIZED ? 29 : 3) | 1);
}

/* ---- names ----------------------------------------------------------------------------------- */

static void lost_names(void)
{
	struct prof_reader *reader = NULL;
	struct prof_dictionary *strings = NULL;
	const struct prof_chunk *lost = NULL;
	uint8_t byte;

	REQUIRE(make_original(2, 50));
	for (size_t i = 0; i < original.n_chunks && !lost; i++)
		if (original.chunks[i].table == PROF_TABLE_STRING)
			lost = &original.chunks[i];
	REQUIRE(lost);
	byte = original.data[lost->offset + CHUNK_HEADER_BYTES + 40] ^ 1;
	REQUIRE(pwrite(original.fd, &byte, 1, (off_t)lost->offset + CHUNK_HEADER_BYTES + 40) == 1);
	REQUIRE(prof_reader_open(original.fd, &reader) == 0);
	REQUIRE(prof_dictionary_load(reader, PROF_TABLE_STRING, lost->epoch, NULL, 0, &strings) ==
		0);
	CHECK_INT(prof_dictionary_find(strings, 1), -1);
	CHECK_INT(prof_dictionary_find(strings, 50), -1);
	CHECK(prof_dictionary_find(strings, 51) >= 0); /* id 51 is in the epoch's second chunk */
	CHECK_INT(prof_dictionary_find(strings, UINT64_MAX), -1);
	prof_dictionary_free(strings);
	prof_reader_free(reader);
}

/* ---- what a reader counts -------------------------------------------------------------------- */

static bool lost_is(const struct prof_reader *reader, unsigned int table, uint64_t chunks,
		    uint64_t rows)
{
	struct prof_lost lost;
	bool is_good;

	prof_reader_lost(reader, table, &lost);
	is_good = CHECK_INT(lost.chunks, chunks);
	is_good &= CHECK_INT(lost.rows, rows);
	is_good &= CHECK_INT(lost.flawed, 0);
	return CHECK_INT(lost.stretches, 0) && is_good;
}

static const struct prof_chunk *first_of(unsigned int table)
{
	for (size_t i = 0; i < original.n_chunks; i++)
		if (original.chunks[i].table == table)
			return &original.chunks[i];
	return NULL;
}

static bool flip_payload(const struct prof_chunk *chunk)
{
	off_t at = (off_t)chunk->offset + CHUNK_HEADER_BYTES + 40;
	uint8_t byte = original.data[at] ^ 1;

	return pwrite(original.fd, &byte, 1, at) == 1;
}

static bool wants_symbols(const struct prof_chunk *chunk, void *data)
{
	(void)data;
	return chunk->table == PROF_TABLE_SYMBOL;
}

static void lost_once(void)
{
	static struct contents contents;
	const struct prof_chunk *symbols, *samples;
	struct prof_reader *reader = NULL;
	struct prof_damage damage;

	REQUIRE(make_original(2, 50));
	symbols = first_of(PROF_TABLE_SYMBOL);
	samples = first_of(PROF_TABLE_SAMPLE);
	REQUIRE(symbols && samples && flip_payload(symbols) && flip_payload(samples));
	REQUIRE(prof_reader_open(original.fd, &reader) == 0);
	CHECK(lost_is(reader, 0, 0, 0)); /* nothing has been read */
	for (int i = 0; i < 2; i++) {
		struct prof_dictionary *names = NULL;

		CHECK(prof_dictionary_load(reader, PROF_TABLE_SYMBOL, symbols->epoch, NULL, 0,
					   &names) == 0);
		prof_dictionary_free(names);
		CHECK(lost_is(reader, 0, 1, 50) && lost_is(reader, PROF_TABLE_SYMBOL, 1, 50));
	}
	CHECK(prof_reader_check(reader, symbols, &damage) == PROF_DAMAGED);
	CHECK(prof_reader_scan(reader, wants_symbols, NULL) == 0);
	CHECK(lost_is(reader, 0, 1, 50) && lost_is(reader, PROF_TABLE_SAMPLE, 0, 0));
	CHECK(prof_reader_scan(reader, NULL, NULL) == 0);
	CHECK(read_table(reader, prof_table_v1(PROF_TABLE_SAMPLE), &contents) == 0);
	CHECK(lost_is(reader, 0, 2, 100) && lost_is(reader, PROF_TABLE_SAMPLE, 1, 50));
	prof_reader_free(reader);
}

/* Joins two captures, or a capture and its copy. The first one is whole, or is cut by 1 or 500
 * bytes. */
static void joined(void)
{
	static const size_t cuts[] = { 0, 1, 500 };
	CLEANUP_CLOSE int other = memfd_create("other", MFD_CLOEXEC);
	uint8_t bytes[1 << 16];
	ssize_t n;

	REQUIRE(write_all_tables(other, 1, 2) == 0);
	n = pread(other, bytes, sizeof(bytes), 0);
	REQUIRE(n > 0 && n < (ssize_t)sizeof(bytes));
	for (size_t i = 0; i < ARRAY_SIZE(cuts); i++) {
		for (int twice = 0; twice < 2; twice++) {
			CLEANUP_CLOSE int fd = memfd_create("joined", MFD_CLOEXEC);
			struct prof_reader *reader = NULL;
			struct prof_lost lost;
			size_t first;

			REQUIRE(make_original(1, 4));
			first = original.bytes - cuts[i];
			REQUIRE(write(fd, original.data, first) == (ssize_t)first);
			REQUIRE(write(fd, twice ? original.data : bytes,
				      twice ? original.bytes : (size_t)n) > 0);
			REQUIRE(prof_reader_open(fd, &reader) == 0);
			CHECK_INT(prof_reader_info(reader)->second_at, first);
			CHECK_INT(prof_reader_info(reader)->state, PROF_STATE_DAMAGED);
			prof_reader_lost(reader, 0, &lost);
			if (cuts[i] == 0) {
				CHECK_INT(lost.stretches, 0);
				CHECK_INT(prof_reader_info(reader)->chunks, original.n_chunks);
			}
			prof_reader_free(reader);
		}
	}
}

int main(void)
{
	RUN(prefixes);
	RUN(flips_small);
	RUN(flips_crashed);
	RUN(flips_large_sampled);
	RUN(lost_names);
	RUN(lost_once);
	RUN(joined);
	return test_end();
}
