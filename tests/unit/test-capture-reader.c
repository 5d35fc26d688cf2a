/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of which rows readers find in complete, crashed, cut, damaged and appended captures.
 */
#include "config.h"

#include "tests/tools/chunks.h"
#include "tests/tools/rows.h"
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define ROWS 300u
#define CHUNK_ROWS 40u
/* Distance between the positions at which a capture is cut or damaged. Near the start of the file
 * (for damage, also near its end), every position is tried. */
#define STRIDE ((off_t)(127 * test_stride(PROF_SANITIZED ? 47 : 8)))

static const struct prof_segment segment = { .boot_id = { 1, 2, 3 },
					     .start_monotonic_ns = ROWS_START,
					     .wall_ns = 17 };

static int new_file(void)
{
	return memfd_create("capture", MFD_CLOEXEC);
}

/* Returns the i-th table of version 1, in id order. After the last of these, returns the foreign
 * table, then NULL. */
static const struct prof_table_def *table_at(size_t i)
{
	size_t n = 0;

	for (unsigned int id = 1; id < 64; id++)
		if (prof_table_v1(id) && n++ == i)
			return prof_table_v1(id);
	return n == i ? rows_foreign_table() : NULL;
}

static int write_tables(struct prof_writer *writer, uint64_t first)
{
	const struct prof_table_def *def;
	int r = prof_writer_add_table(writer, rows_foreign_table());

	for (size_t i = 0; !r && (def = table_at(i)); i++)
		r = rows_write(writer, def, first, ROWS, CHUNK_ROWS,
			       prof_writer_first_epoch(writer));
	return r;
}

/* Writes rows [first, first + ROWS) of every table. Without `finish`, the file is as after a
 * crash. */
static int write_capture(int fd, enum prof_writer_mode mode, uint64_t first, bool finish)
{
	const struct prof_writer_options options = { .mode = mode,
						     .segment = segment,
						     .group_rows = 16 };
	struct prof_writer *writer;
	int r = prof_writer_new(fd, &options, &writer);

	if (r)
		return r;
	r = write_tables(writer, first);
	if (!r && finish)
		r = prof_writer_finish(writer);
	prof_writer_free(writer);
	return r;
}

/* Compares the rows of a table in one segment (0: all) with the expected rows from `first` on.
 * Returns how many are equal. */
static uint64_t count_good(const struct prof_reader *reader, const struct prof_table_def *def,
			   uint32_t number, uint64_t first)
{
	const struct prof_cursor_options options = { .table = def->id, .segment = number };
	struct prof_cursor *cursor;
	struct prof_batch batch;
	struct row row;
	uint64_t i = first, good = 0;

	if (!CHECK_INT(prof_cursor_new(reader, &options, &cursor), 0))
		return 0;
	while (prof_cursor_next(cursor, &batch) == 0)
		for (size_t r = 0; r < batch.rows; r++, i++) {
			bool equal = true;

			rows_make(def, i, &row);
			for (size_t c = 0; c < def->n_columns; c++)
				equal = equal && rows_equal(&batch.columns[c], r, &def->columns[c],
							    &row.values[c]);
			good += equal;
		}
	prof_cursor_free(cursor);
	return good;
}

static void check_tables(const struct prof_reader *reader, uint32_t number, uint64_t first)
{
	const struct prof_table_def *def;

	for (size_t i = 0; (def = table_at(i)); i++) {
		const struct prof_table_def *read = prof_reader_table(reader, def->id);

		if (!CHECK(read))
			continue;
		CHECK_STR(read->name, def->name);
		CHECK_INT(read->n_columns, def->n_columns);
		if (!CHECK_INT(count_good(reader, read, number, first), ROWS))
			printf("# table %s\n", def->name);
	}
}

static int ignore_damage(const struct prof_damage *damage, void *data)
{
	(*(unsigned int *)data)++;
	printf("# damage at %" PRIu64 ": %s\n", damage->offset,
	       prof_damage_reason_name(damage->reason));
	return 0;
}

static void check_verify(const struct prof_reader *reader)
{
	uint64_t chunks = 0, good = 0;
	unsigned int found = 0;

	CHECK_INT(prof_reader_verify(reader, ignore_damage, &found, &chunks, &good), 0);
	CHECK_INT(found, 0);
	CHECK(chunks > 0);
	CHECK_INT(chunks, good);
}

static void test_round_trip(void)
{
	int fd = new_file();
	struct prof_reader *reader;
	size_t n;

	REQUIRE(fd >= 0);
	CHECK_INT(write_capture(fd, PROF_WRITE_NEW, 0, true), 0);
	REQUIRE(prof_reader_open(fd, &reader) == 0);
	CHECK_INT(prof_reader_info(reader)->state, PROF_STATE_FINISHED);
	CHECK(prof_reader_info(reader)->indexed);
	CHECK(prof_reader_info(reader)->cut_at == UINT64_MAX);
	CHECK_INT(prof_reader_info(reader)->epochs, 1);
	check_tables(reader, 0, 0);
	check_verify(reader);
	CHECK_INT(prof_reader_segments(reader, &n)[0].wall_ns, 17);
	CHECK_INT(n, 1);
	prof_reader_free(reader);
	close(fd);
}

static void test_crash(void)
{
	int fd = new_file();
	struct prof_reader *reader;

	CHECK_INT(write_capture(fd, PROF_WRITE_NEW, 0, false), 0);
	REQUIRE(prof_reader_open(fd, &reader) == 0);
	CHECK_INT(prof_reader_info(reader)->state, PROF_STATE_UNFINISHED);
	CHECK(prof_reader_info(reader)->cut_at == prof_reader_info(reader)->bytes);
	check_tables(reader, 0, 0);
	check_verify(reader);
	prof_reader_free(reader);
	close(fd);
}

static void append_to(int fd, bool finish, const char *what)
{
	struct prof_reader *reader;
	size_t n;

	printf("# append to %s\n", what);
	if (!CHECK_INT(write_capture(fd, PROF_WRITE_APPEND, 1000, finish), 0) ||
	    !CHECK_INT(prof_reader_open(fd, &reader), 0))
		return;
	CHECK_INT(prof_reader_info(reader)->state,
		  finish ? PROF_STATE_FINISHED : PROF_STATE_UNFINISHED);
	check_verify(reader);
	CHECK_INT(prof_reader_segments(reader, &n)[1].number, 2);
	CHECK_INT(n, 2);
	CHECK_INT(count_good(reader, prof_table_v1(PROF_TABLE_SAMPLE), 2, 1000), ROWS);
	prof_reader_free(reader);
}

static void test_append(void)
{
	for (int finished = 0; finished < 2; finished++)
		for (int finish = 0; finish < 2; finish++) {
			struct prof_reader *reader;
			int fd = new_file();

			CHECK_INT(write_capture(fd, PROF_WRITE_NEW, 0, finished), 0);
			append_to(fd, finish,
				  finished ? "a finished capture" : "a crashed capture");
			REQUIRE(prof_reader_open(fd, &reader) == 0);
			check_tables(reader, 1, 0);
			check_tables(reader, 2, 1000);
			prof_reader_free(reader);
			close(fd);
		}
}

/* When a capture that ends with garbage is continued, a loss row has the exact number of garbage
 * bytes. */
static void test_append_after_garbage(void)
{
	int fd = new_file();
	struct prof_reader *reader;
	struct prof_cursor *cursor;
	struct prof_batch batch;
	struct prof_cursor_options options = { .table = PROF_TABLE_LOSS, .segment = 2 };
	struct stat st;

	CHECK_INT(write_capture(fd, PROF_WRITE_NEW, 0, false), 0);
	REQUIRE(fstat(fd, &st) == 0);
	CHECK_INT(pwrite(fd, "garbage", 7, st.st_size), 7);
	append_to(fd, true, "garbage");
	REQUIRE(prof_reader_open(fd, &reader) == 0);
	check_tables(reader, 1, 0);
	REQUIRE(prof_cursor_new(reader, &options, &cursor) == 0);
	REQUIRE(prof_cursor_next(cursor, &batch) == 0);
	CHECK_INT(batch.columns[PROF_LOSS_CAUSE].numbers[0], PROF_LOSS_FILE_DAMAGE);
	CHECK_INT(batch.columns[PROF_LOSS_BYTES].numbers[0], 7);
	prof_cursor_free(cursor);
	prof_reader_free(reader);
	close(fd);
}

/* A crashed writer left half a chunk, and another writer continued. The half chunk must not hide
 * the chunks after it. */
static void test_append_after_half_a_chunk(void)
{
	for (int finish = 0; finish < 2; finish++) {
		int fd = new_file();
		struct prof_reader *reader;
		CLEANUP_FREE struct prof_chunk *chunks = NULL;
		size_t n;

		CHECK_INT(write_capture(fd, PROF_WRITE_NEW, 0, false), 0);
		REQUIRE(prof_reader_open(fd, &reader) == 0);
		chunks = chunks_of(reader, &n);
		REQUIRE(ftruncate(fd, (off_t)(chunks[n - 1].offset + 120)) == 0);
		prof_reader_free(reader);
		append_to(fd, finish, "half a chunk");
		close(fd);
	}
}

static void test_extend(void)
{
	int fd = new_file();
	struct prof_reader *reader;
	size_t n;

	CHECK_INT(write_capture(fd, PROF_WRITE_NEW, 0, true), 0);
	CHECK_INT(write_capture(fd, PROF_WRITE_EXTEND, 1000, true), 0);
	REQUIRE(prof_reader_open(fd, &reader) == 0);
	CHECK_INT(prof_reader_info(reader)->state, PROF_STATE_FINISHED);
	CHECK_INT(prof_reader_info(reader)->epochs, 2);
	(void)prof_reader_segments(reader, &n);
	CHECK_INT(n, 1);
	check_verify(reader);
	prof_reader_free(reader);
	close(fd);
}

struct pipe_end {
	int fd;
	int result;
};

static void *write_into_pipe(void *data)
{
	struct pipe_end *end = data;

	end->result = write_capture(end->fd, PROF_WRITE_NEW, 0, true);
	close(end->fd);
	return NULL;
}

static void test_pipe(void)
{
	struct pipe_end end;
	struct prof_reader *reader;
	pthread_t thread;
	int fds[2];

	REQUIRE(pipe2(fds, O_CLOEXEC) == 0);
	end.fd = fds[1];
	REQUIRE(pthread_create(&thread, NULL, write_into_pipe, &end) == 0);
	CHECK_INT(prof_reader_open(fds[0], &reader), 0);
	pthread_join(thread, NULL);
	CHECK_INT(end.result, 0);
	CHECK_INT(prof_reader_info(reader)->state, PROF_STATE_FINISHED);
	check_tables(reader, 0, 0);
	prof_reader_free(reader);
	close(fds[0]);
}

/* The input is an endless stream, not a capture. */
static void test_endless(void)
{
	struct prof_reader *reader;
	int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);

	REQUIRE(fd >= 0);
	CHECK_INT(prof_reader_open(fd, &reader), PROF_NOT_CAPTURE);
	close(fd);
}

static void test_lock(void)
{
	const struct prof_writer_options options = { .mode = PROF_WRITE_APPEND,
						     .segment = segment };
	char path[64];
	struct prof_writer *first, *second;
	int fd = new_file(), other;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	other = open(path, O_RDWR | O_CLOEXEC);
	REQUIRE(other >= 0);
	REQUIRE(prof_writer_new(fd, &options, &first) == 0);
	CHECK_INT(prof_writer_new(other, &options, &second), -EWOULDBLOCK);
	prof_writer_free(first);
	CHECK_INT(prof_writer_new(other, &options, &second), 0);
	prof_writer_free(second);
	close(other);
	close(fd);
}

/* Returns the number of rows, of all tables, that can still be read. */
static uint64_t count_rows(const struct prof_reader *reader)
{
	const struct prof_table_def *const *tables;
	uint64_t rows = 0;
	size_t n;

	tables = prof_reader_tables(reader, &n);
	for (size_t i = 0; i < n; i++) {
		const struct prof_cursor_options options = { .table = tables[i]->id };
		struct prof_cursor *cursor;
		struct prof_batch batch;

		if (prof_cursor_new(reader, &options, &cursor))
			continue;
		while (prof_cursor_next(cursor, &batch) == 0)
			rows += batch.rows;
		prof_cursor_free(cursor);
	}
	return rows;
}

static int count_damage(const struct prof_damage *damage, void *data)
{
	(*(unsigned int *)data)++;
	return 0;
}

/* One wrong bit costs at most the rows of one data chunk, and verify finds it. */
static void check_flip(int fd, off_t at, uint64_t all)
{
	struct prof_reader *reader;
	uint64_t rows, chunks, good;
	unsigned int found = 0;
	bool ok;

	if (!CHECK_INT(prof_reader_open(fd, &reader), 0)) {
		printf("# bit at %jd\n", (intmax_t)at);
		return;
	}
	rows = count_rows(reader);
	ok = CHECK(rows + CHUNK_ROWS >= all && rows <= all);
	ok = CHECK_INT(prof_reader_verify(reader, count_damage, &found, &chunks, &good), 0) && ok;
	ok = CHECK(found > 0) && ok;
	if (at < 256)
		ok = CHECK(rows == all && prof_reader_info(reader)->state == PROF_STATE_DAMAGED) &&
		     ok;
	if (!ok)
		printf("# bit at %jd: %" PRIu64 " of %" PRIu64 " rows\n", (intmax_t)at, rows, all);
	prof_reader_free(reader);
}

/* After any damage, appending to the capture loses no more rows. */
static void check_append(int fd, uint64_t before, const char *what, off_t at)
{
	struct prof_reader *reader;
	bool ok = CHECK_INT(write_capture(fd, PROF_WRITE_APPEND, 1000, true), 0);
	const struct prof_segment *segments;
	size_t n;

	if (ok && CHECK_INT(prof_reader_open(fd, &reader), 0)) {
		ok = CHECK(count_rows(reader) >= before + (uint64_t)21 * ROWS);
		segments = prof_reader_segments(reader, &n);
		ok = CHECK_INT(count_good(reader, prof_table_v1(PROF_TABLE_TASK),
					  segments[n - 1].number, 1000),
			       ROWS) &&
		     ok;
		ok = CHECK(prof_reader_info(reader)->state != PROF_STATE_UNFINISHED) && ok;
		prof_reader_free(reader);
	}
	if (!ok)
		printf("# %s at %jd\n", what, (intmax_t)at);
}

/* Returns the next position to try. Up to `first` and from `last` on, every position is tried; in
 * between, every STRIDEth one. */
static off_t next_position(off_t at, off_t first, off_t last)
{
	if (at < first || at >= last)
		return at + 1;
	return MIN_OF(at + STRIDE + (at == first ? (off_t)test_start((size_t)STRIDE) : 0), last);
}

/* A guard that refuses every batch after the first one. */
static int allow_one(unsigned int table, void *data)
{
	unsigned int *asked = data;

	CHECK(table == PROF_TABLE_SAMPLE || table == PROF_TABLE_STRING);
	return ++*asked > 1 ? PROF_OVER_BUDGET : 0;
}

static void test_guard(void)
{
	const struct prof_cursor_options options = { .table = PROF_TABLE_SAMPLE };
	CLEANUP_CLOSE int fd = new_file();
	struct prof_dictionary *dictionary = NULL;
	struct prof_reader *reader;
	struct prof_cursor *cursor;
	struct prof_batch batch;
	unsigned int asked = 0;

	REQUIRE(write_capture(fd, PROF_WRITE_NEW, 0, true) == 0);
	REQUIRE(prof_reader_open(fd, &reader) == 0);
	prof_reader_set_guard(reader, allow_one, &asked);
	REQUIRE(prof_cursor_new(reader, &options, &cursor) == 0);
	CHECK_INT(prof_cursor_next(cursor, &batch), 0);
	CHECK_INT(prof_cursor_next(cursor, &batch), PROF_OVER_BUDGET);
	CHECK_INT(asked, 2);
	prof_cursor_free(cursor);
	CHECK_INT(prof_dictionary_load(reader, PROF_TABLE_STRING, chunks_first_epoch(reader), NULL,
				       0, &dictionary),
		  PROF_OVER_BUDGET);
	CHECK(!dictionary);
	CHECK(strstr(prof_strerror(PROF_OVER_BUDGET), "memory"));
	prof_reader_free(reader);
}

static void test_prefixes(void)
{
	int fd = new_file(), cut = new_file();
	struct prof_reader *whole, *reader;
	CLEANUP_FREE struct prof_chunk *chunks = NULL;
	struct stat st;
	uint8_t *bytes;
	size_t n, turn = 0;
	uint64_t rows;

	CHECK_INT(write_capture(fd, PROF_WRITE_NEW, 0, true), 0);
	REQUIRE(fstat(fd, &st) == 0);
	bytes = mmap(NULL, st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	REQUIRE(bytes != MAP_FAILED);
	REQUIRE(prof_reader_open(fd, &whole) == 0);
	chunks = chunks_of(whole, &n);
	for (off_t length = 0; length < st.st_size;
	     length = next_position(length, 512, st.st_size)) {
		size_t complete = 0;
		int r;

		REQUIRE(ftruncate(cut, 0) == 0 && pwrite(cut, bytes, length, 0) == length);
		r = prof_reader_open(cut, &reader);
		CHECK_INT(r, length < 256 ? PROF_TOO_SHORT : 0);
		if (r)
			continue;
		while (complete < n &&
		       chunks[complete].offset + 96 + chunks[complete].stored_bytes <=
			       (uint64_t)length)
			complete++;
		if (!CHECK_INT(chunks_count(reader), complete) ||
		    !CHECK_INT(prof_reader_info(reader)->state, PROF_STATE_UNFINISHED))
			printf("# length %jd\n", (intmax_t)length);
		CHECK(prof_reader_info(reader)->cut_at <= (uint64_t)length);
		rows = turn % 16 == 0 ? count_rows(reader) : 0;
		prof_reader_free(reader);
		if (turn++ % 16 == 0)
			check_append(cut, rows, "cut", length);
	}
	prof_reader_free(whole);
	munmap(bytes, st.st_size);
	close(cut);
	close(fd);
}

/* Flips bits of a finished or crashed capture, one at a time. */
static void flips(bool finished)
{
	int fd = new_file();
	struct prof_reader *reader;
	uint64_t all;
	struct stat st;
	size_t turn = 0;

	CHECK_INT(write_capture(fd, PROF_WRITE_NEW, 0, finished), 0);
	REQUIRE(fstat(fd, &st) == 0);
	REQUIRE(prof_reader_open(fd, &reader) == 0);
	all = count_rows(reader);
	prof_reader_free(reader);
	for (off_t at = 0; at < st.st_size; at = next_position(at, 360, st.st_size - 200)) {
		uint8_t byte, wrong;

		REQUIRE(pread(fd, &byte, 1, at) == 1);
		wrong = byte ^ 1u << at % 8;
		REQUIRE(pwrite(fd, &wrong, 1, at) == 1);
		check_flip(fd, at, all);
		if (turn++ % 16 == 0) {
			check_append(fd, all - CHUNK_ROWS, "bit", at);
			REQUIRE(ftruncate(fd, st.st_size) == 0);
		}
		REQUIRE(pwrite(fd, &byte, 1, at) == 1);
	}
	close(fd);
}

static void test_flips_finished(void)
{
	flips(true);
}

static void test_flips_crashed(void)
{
	flips(false);
}

/* A value contains copies of the file's own chunks, some with a wrong checksum. No search may
 * accept these copies as chunks. */
static void test_forged(void)
{
	static const struct prof_column_def columns[] = {
		{ .id = 0, .name = "b", .type = PROF_TYPE_BINARY }
	};
	static const struct prof_table_def def = {
		.name = "t", .columns = columns, .n_columns = 1, .id = 2000
	};
	const struct prof_writer_options options = { .segment = segment };
	static uint8_t blob[1 << 16];
	struct prof_value row[1] = { PROF_BYTES(blob, sizeof(blob)) };
	int fd = new_file();
	struct prof_writer *writer;
	struct prof_block *block;
	struct prof_reader *reader;
	CLEANUP_FREE struct prof_chunk *chunks = NULL;
	uint64_t forged_at, noise;
	size_t n;

	REQUIRE(prof_writer_new(fd, &options, &writer) == 0);
	CHECK_INT(prof_writer_add_table(writer, &def), 0);
	CHECK_INT(rows_write(writer, prof_table_v1(PROF_TABLE_SAMPLE), 0, 200, 100, 0), 0);
	for (size_t i = 0; i < sizeof(blob); i += 8) {
		noise = rows_mix(i);
		memcpy(blob + i, &noise, 8);
	}
	/* Copy the first checkpoint and the bytes after it, at every alignment. */
	for (size_t k = 0; k < 8; k++) {
		struct stat st;
		size_t size = 6000;

		REQUIRE(fstat(fd, &st) == 0);
		size = st.st_size - 256 < (off_t)size ? (size_t)st.st_size - 256 : size;
		REQUIRE(pread(fd, blob + k * 8001, size, 256) == (ssize_t)size);
		blob[k * 8001 + 40] ^= k & 1; /* in every other copy, the first header has a wrong
					       * checksum */
	}
	REQUIRE(prof_block_new(&def, &block) == 0);
	CHECK_INT(prof_block_add(block, row), 0);
	CHECK_INT(prof_writer_write(writer, block), 0);
	CHECK_INT(rows_write(writer, prof_table_v1(PROF_TABLE_SAMPLE), 200, 200, 100, 0), 0);
	prof_writer_free(writer);
	prof_block_free(block);

	/* The reader searches for the last valid checkpoint among the forged ones. */
	REQUIRE(prof_reader_open(fd, &reader) == 0);
	CHECK_INT(prof_reader_info(reader)->state, PROF_STATE_UNFINISHED);
	chunks = chunks_of(reader, &n);
	CHECK_INT(n, 5);
	forged_at = chunks[2].offset;
	prof_reader_free(reader);

	/* Damage the header of the value's chunk, so that the search passes through the forged
	 * headers. */
	REQUIRE(pwrite(fd, "x", 1, (off_t)forged_at) == 1);
	REQUIRE(prof_reader_open(fd, &reader) == 0);
	CHECK_INT(prof_reader_info(reader)->state, PROF_STATE_DAMAGED);
	CHECK_INT(chunks_count(reader), 4);
	CHECK_INT(count_rows(reader), 400);
	CHECK_INT(prof_reader_damage(reader, &n)[0].offset, forged_at);
	CHECK_INT(n, 1);
	prof_reader_free(reader);
	close(fd);
}

static void *count_in_thread(void *data)
{
	const struct prof_reader *reader = data;
	struct prof_dictionary *dictionary;
	CLEANUP_FREE struct prof_chunk *chunks = NULL;
	struct prof_damage damage;
	size_t n;
	uint64_t rows = count_rows(reader);

	if (prof_dictionary_load(reader, PROF_TABLE_STACK, 1, NULL, 0, &dictionary) == 0) {
		rows += prof_dictionary_rows(dictionary);
		prof_dictionary_free(dictionary);
	}
	chunks = chunks_of(reader, &n);
	CHECK(n > 3 && prof_reader_check(reader, &chunks[3], &damage) == 0);
	return (void *)(uintptr_t)rows;
}

/* Several threads use one reader (under TSan in CI). */
static void test_threads(void)
{
	pthread_t threads[4];
	struct prof_reader *reader;
	int fd = new_file();

	CHECK_INT(write_capture(fd, PROF_WRITE_NEW, 0, true), 0);
	REQUIRE(prof_reader_open(fd, &reader) == 0);
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		REQUIRE(pthread_create(&threads[i], NULL, count_in_thread, reader) == 0);
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
		void *rows;

		pthread_join(threads[i], &rows);
		CHECK_INT((uintptr_t)rows, 27 * ROWS);
	}
	prof_reader_free(reader);
	close(fd);
}

int main(void)
{
	RUN(test_round_trip);
	RUN(test_crash);
	RUN(test_append);
	RUN(test_append_after_garbage);
	RUN(test_append_after_half_a_chunk);
	RUN(test_extend);
	RUN(test_pipe);
	RUN(test_endless);
	RUN(test_lock);
	RUN(test_guard);
	RUN(test_forged);
	RUN(test_threads);
	RUN(test_prefixes);
	RUN(test_flips_finished);
	RUN(test_flips_crashed);
	return test_end();
}
