/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Streams: captures read while they are written
 *
 * Promises:
 * - streams return the same rows as cursors, in the order written, also of later segments and
 *   tables [same_rows]
 * - results do not depend on the size of reads, and no call blocks [pieces]
 * - only the requested tables are returned [tables]
 * - a prefix of a capture is read up to its last complete chunk; other input is refused [prefixes]
 * - a flipped bit loses at most its chunk, or ends the stream; no wrong row is returned [flips]
 * - a stream waits for the rest of a chunk, but ends at a chunk that claims more bytes than the
 *   format allows [sizes]
 */
#include "config.h"

#include "arch/base.h"
#include "libcapture/format.h"
#include "tests/unit/build-capture.h"
#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>

#define ROWS 40000 /* rows per table: several groups in a chunk */

/* The content read from a capture. */
struct seen {
	uint64_t rows[BUILD_TABLES];
	uint64_t sums[BUILD_TABLES]; /* sums over the rows of each table, in order */
	uint64_t lost;
};

static uint64_t mix(uint64_t sum, uint64_t value)
{
	return (sum ^ value) * UINT64_C(0x9e3779b97f4a7c15);
}

/* The result depends on the order of a table's rows, but not on the order of tables. */
static void see(struct seen *seen, unsigned table, const struct prof_batch *batch)
{
	const struct prof_table_def *def = prof_table_v1(table);

	CHECK(def != NULL);
	seen->rows[table] += batch->rows;
	for (size_t i = 0; i < batch->rows; i++) {
		uint64_t sum = table * 1000003ull + batch->epoch + batch->segment;

		for (size_t c = 0; c < def->n_columns; c++) {
			const struct prof_array *array = &batch->columns[c];

			if (array->bytes)
				for (uint64_t b = array->offsets[i]; b < array->offsets[i + 1]; b++)
					sum = mix(sum, array->bytes[b]);
			else if (array->offsets)
				for (uint64_t n = array->offsets[i]; n < array->offsets[i + 1]; n++)
					sum = mix(sum, array->numbers[n]);
			else if (array->numbers)
				sum = mix(sum, array->numbers[i]);
		}
		seen->sums[table] = mix(seen->sums[table], sum);
	}
}

static struct seen by_cursors(int fd)
{
	struct prof_reader *reader = NULL;
	struct seen seen = { 0 };
	int r = prof_reader_open(fd, &reader);

	CHECK_INT(r, 0);
	for (unsigned table = 1; table < BUILD_TABLES; table++) {
		const struct prof_cursor_options options = { .table = table };
		struct prof_cursor *cursor = NULL;
		struct prof_batch batch;

		if (!prof_table_v1(table) || prof_cursor_new(reader, &options, &cursor) != 0)
			continue;
		while (prof_cursor_next(cursor, &batch) == 0)
			see(&seen, table, &batch);
		prof_cursor_free(cursor);
	}
	prof_reader_free(reader);
	return seen;
}

/* Reads to the end or to an error. Returns the last result. */
static int drain(struct prof_stream *stream, struct seen *seen)
{
	struct prof_batch batch;
	unsigned table = 0;
	int r;

	while ((r = prof_stream_next(stream, &table, &batch)) == 0)
		see(seen, table, &batch);
	seen->lost = prof_stream_lost(stream);
	return r;
}

static int by_stream(const void *data, size_t size, uint64_t tables, struct seen *ret_seen)
{
	int fd = memfd_create("bytes", MFD_CLOEXEC), r;
	struct prof_stream *stream = NULL;

	CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size && lseek(fd, 0, SEEK_SET) == 0);
	*ret_seen = (struct seen){ 0 };
	r = prof_stream_new(fd, tables, &stream);
	CHECK_INT(r, 0);
	r = drain(stream, ret_seen);
	CHECK_INT(prof_stream_next(stream, &(unsigned){ 0 }, &(struct prof_batch){ 0 }), PROF_END);
	prof_stream_free(stream);
	close(fd);
	return r;
}

/* Writes two segments with epochs, texts and lists. With ROWS rows, a chunk has several groups. */
static void build(struct build *build, unsigned rows)
{
	static const uint64_t ids[] = { 7, 8, 9 };

	build_begin(build);
	for (unsigned half = 0; half < 2; half++) {
		if (half)
			build_next_segment(build, BUILD_START + 1000000, 2);
		build_text(build, 1, half ? "second" : "first");
		BUILD(build, PROF_TABLE_PROCESS, N(1), N(10), N(1), N(0), N(0), PROF_BYTES(ids, 3),
		      N(1), N(0), N(1000), PROF_BYTES(ids, 3));
		for (unsigned i = 0; i < rows; i++) {
			BUILD(build, PROF_TABLE_FRAME, N(i + 1), N(1), N(i * 16), N(i % 2));
			BUILD(build, PROF_TABLE_COUNTER_VALUE, N(BUILD_START + i), N(1), N(i * i));
		}
		build_next_epoch(build);
		build_metadata(build, "key", half ? "b" : "a");
	}
	build_finish(build);
}

static uint8_t *bytes_of(const struct build *build, size_t *ret_size)
{
	off_t size = lseek(build->fd, 0, SEEK_END);
	uint8_t *data = malloc((size_t)size);

	CHECK(data && pread(build->fd, data, (size_t)size, 0) == size);
	*ret_size = (size_t)size;
	return data;
}

static void same_rows(void)
{
	CLEANUP(build_done) struct build capture;
	CLEANUP_FREE uint8_t *data = NULL;
	struct seen expected, seen;
	size_t size;

	build(&capture, ROWS);
	data = bytes_of(&capture, &size);
	expected = by_cursors(capture.fd);
	CHECK_INT(expected.rows[PROF_TABLE_FRAME], 2 * ROWS);
	CHECK_INT(by_stream(data, size, 0, &seen), PROF_END);
	CHECK(memcmp(&seen, &expected, sizeof(seen)) == 0);
}

static void tables(void)
{
	CLEANUP(build_done) struct build capture;
	CLEANUP_FREE uint8_t *data = NULL;
	struct seen seen;
	size_t size;

	build(&capture, 100);
	data = bytes_of(&capture, &size);
	CHECK_INT(by_stream(data, size, UINT64_C(1) << PROF_TABLE_FRAME, &seen), PROF_END);
	CHECK_INT(seen.rows[PROF_TABLE_FRAME], 200);
	CHECK_INT(seen.rows[PROF_TABLE_COUNTER_VALUE] + seen.rows[PROF_TABLE_STRING], 0);
}

/* The capture comes through a non-blocking pipe, in pieces of several sizes. */
static void pieces(void)
{
	CLEANUP(build_done) struct build capture;
	CLEANUP_FREE uint8_t *data = NULL;
	struct seen expected;
	size_t size;

	build(&capture, 500);
	data = bytes_of(&capture, &size);
	expected = by_cursors(capture.fd);
	for (size_t piece = 1; piece < 600; piece = piece * 3 + 1) {
		struct prof_stream *stream = NULL;
		struct seen seen = { 0 };
		int fds[2];

		CHECK_INT(pipe2(fds, O_NONBLOCK | O_CLOEXEC), 0);
		CHECK_INT(prof_stream_new(fds[0], 0, &stream), 0);
		CHECK_INT(drain(stream, &seen), -EAGAIN);
		for (size_t at = 0; at < size; at += piece) {
			size_t n = MIN_OF(piece, size - at);

			CHECK_INT(write(fds[1], data + at, n), (ssize_t)n);
			CHECK_INT(drain(stream, &seen), -EAGAIN);
		}
		close(fds[1]);
		CHECK_INT(drain(stream, &seen), PROF_END);
		CHECK(memcmp(&seen, &expected, sizeof(seen)) == 0);
		prof_stream_free(stream);
		close(fds[0]);
	}
}

static void prefixes(void)
{
	CLEANUP(build_done) struct build capture;
	CLEANUP_FREE uint8_t *data = NULL;
	size_t size, stride = test_stride(7);
	uint64_t last = 0;
	struct seen seen;

	build(&capture, 20);
	data = bytes_of(&capture, &size);
	for (size_t n = test_start(stride); n < size; n += stride) {
		int r = by_stream(data, n, 0, &seen);

		CHECK_INT(r, n < FILE_HEADER_BYTES ? PROF_TOO_SHORT : PROF_END);
		CHECK_INT(seen.lost, 0);
		CHECK(seen.rows[PROF_TABLE_FRAME] >= last);
		last = seen.rows[PROF_TABLE_FRAME];
	}
	CHECK_INT(last, 40);
	memset(data, 'x', FILE_HEADER_BYTES);
	CHECK_INT(by_stream(data, size, 0, &seen), PROF_NOT_CAPTURE);
}

/* If nothing is lost, all rows are those of the original: a wrong row would change the sum. */
static void flips(void)
{
	CLEANUP(build_done) struct build capture;
	CLEANUP_FREE uint8_t *data = NULL;
	size_t size, stride = test_stride(29);
	struct seen whole, seen;

	build(&capture, 20);
	data = bytes_of(&capture, &size);
	CHECK_INT(by_stream(data, size, 0, &whole), PROF_END);
	for (size_t bit = FILE_HEADER_BYTES * 8 + test_start(stride); bit < size * 8;
	     bit += stride) {
		int r;

		data[bit / 8] ^= (uint8_t)(1u << bit % 8);
		r = by_stream(data, size, 0, &seen);
		CHECK(r == PROF_END || r == PROF_DAMAGED);
		for (unsigned table = 1; table < BUILD_TABLES; table++)
			CHECK(seen.rows[table] <= whole.rows[table]);
		if (r == PROF_END && seen.lost == 0)
			CHECK(memcmp(seen.sums, whole.sums, sizeof(seen.sums)) == 0);
		data[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
}

static void sizes(void)
{
	CLEANUP(build_done) struct build capture;
	CLEANUP_FREE uint8_t *data = NULL;
	struct file_header header;
	struct chunk_header chunk;
	unsigned int bad;
	struct seen seen;
	size_t size;

	build(&capture, 20);
	data = bytes_of(&capture, &size);
	CHECK_INT(file_header_decode(data, &header, &bad), 0);
	CHECK(chunk_header_decode(data + FILE_HEADER_BYTES, header.salt, &chunk));
	chunk.stored = PROF_MAX_PAYLOAD;
	chunk_header_encode(&chunk, header.salt, data + FILE_HEADER_BYTES);
	CHECK_INT(by_stream(data, size, 0, &seen), PROF_END);
	chunk.stored = PROF_MAX_PAYLOAD + 1;
	chunk_header_encode(&chunk, header.salt, data + FILE_HEADER_BYTES);
	CHECK_INT(by_stream(data, size, 0, &seen), PROF_DAMAGED);
}

int main(void)
{
	RUN(same_rows);
	RUN(tables);
	RUN(pieces);
	RUN(prefixes);
	RUN(flips);
	RUN(sizes);
	return test_end();
}
