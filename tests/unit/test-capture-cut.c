/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Appends, once and repeatedly, to captures that were cut, have flipped bits, or end in junk
 *
 * Promises:
 * - after any cut, a new segment can be appended: all rows of complete chunks and of the new
 *   segment are read, and nothing is damaged [every_length junk]
 * - earlier damage remains the only damage [flips]
 * - a second append keeps these promises [every_length chains]
 * - the remains of a failed write, padded by the next write, are not read [stream]
 * - without the checkpoints written before the append, a reader finds the same chunks
 *   [without_checkpoints]
 *
 * Rows, and so some chunks, end in zeros or ff, like a writer's padding. So a chunk from which a
 * few bytes were cut may become complete by an append.
 */
#include "config.h"

#include "arch/base.h"
#include "libcapture/format.h"
#include "tests/tools/chunks.h"
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define CHUNKS 2 /* chunks in a segment, with one row each */
#define FILE_BYTES (64u << 10)

struct bytes {
	uint8_t data[FILE_BYTES];
	size_t size;
	size_t last_segment; /* offset of the last segment; cuts before it are tried in captures
			      * with fewer segments */
};

#define CUT_STEP test_stride(PROF_SANITIZED ? 83 : 11)

struct seen {
	size_t rows, segments;
	uint64_t time_sum;
};

/* Writes a row. Times are powers of two, so that a sum identifies the set of rows. */
static int write_row(struct prof_writer *writer, unsigned int time)
{
	const char *value = time % 2 ? "value\xff\xff\xff\xff\xff\xff\xff\xff\xff"
				     : "value\0\0\0\0\0\0\0\0\0";
	const struct prof_value row[] = { PROF_NUMBER(UINT64_C(1) << time), PROF_BYTES("key", 3),
					  PROF_BYTES(value, 14) };
	struct prof_block *block = NULL;
	int r = prof_block_new(prof_table_v1(PROF_TABLE_METADATA), &block);

	if (r == 0)
		r = prof_block_add(block, row);
	if (r == 0) {
		prof_block_set_epoch(block, prof_writer_first_epoch(writer));
		r = prof_writer_write(writer, block);
	}
	prof_block_free(block);
	return r;
}

static int write_segment(int fd, enum prof_writer_mode mode, unsigned int first, bool finish)
{
	struct prof_writer_options options = { .mode = mode,
					       .segment = { .start_monotonic_ns = first + 1 } };
	struct prof_writer *writer = NULL;
	int r = prof_writer_new(fd, &options, &writer);

	for (unsigned int c = 0; r == 0 && c < CHUNKS; c++)
		r = write_row(writer, first + c);
	if (r == 0 && finish)
		r = prof_writer_finish(writer);
	prof_writer_free(writer);
	return r;
}

static int file_of(const uint8_t *data, size_t size)
{
	int fd = memfd_create("capture", MFD_CLOEXEC);

	if (fd >= 0 && pwrite(fd, data, size, 0) != (ssize_t)size) {
		close(fd);
		return -1;
	}
	return fd;
}

static bool bytes_of(int fd, struct bytes *ret_bytes)
{
	ssize_t n = pread(fd, ret_bytes->data, FILE_BYTES, 0);

	ret_bytes->size = n > 0 ? (size_t)n : 0;
	return n > 0 && n < (ssize_t)FILE_BYTES;
}

/* Writes the capture to be damaged. All segments except the last one are always finished. */
static bool make_capture(unsigned int segments, bool finish, struct bytes *ret_bytes)
{
	CLEANUP_CLOSE int fd = memfd_create("capture", MFD_CLOEXEC);
	bool ok = fd >= 0;

	ret_bytes->last_segment = FILE_HEADER_BYTES;
	for (unsigned int s = 0; ok && s < segments; s++) {
		if (s > 0)
			ret_bytes->last_segment = (size_t)lseek(fd, 0, SEEK_END);
		ok = CHECK_INT(write_segment(fd, s ? PROF_WRITE_APPEND : PROF_WRITE_NEW, s * CHUNKS,
					     finish || s + 1 < segments),
			       0);
	}
	return ok && CHECK(bytes_of(fd, ret_bytes));
}

static bool count_rows(const struct prof_reader *reader, struct seen *seen)
{
	const struct prof_cursor_options options = { .table = PROF_TABLE_METADATA };
	struct prof_cursor *cursor = NULL;
	struct prof_batch batch;
	int r = prof_cursor_new(reader, &options, &cursor);

	while (r == 0 && (r = prof_cursor_next(cursor, &batch)) == 0) {
		seen->rows += batch.rows;
		for (size_t i = 0; i < batch.rows; i++)
			seen->time_sum += batch.columns[0].numbers[i];
	}
	prof_cursor_free(cursor);
	return CHECK(r == PROF_END || r == PROF_NO_TABLE);
}

static bool rising(const struct prof_reader *reader)
{
	size_t n;
	struct prof_chunk *chunks = chunks_of(reader, &n);
	bool ok = CHECK_INT(n, prof_reader_info(reader)->chunks);

	for (size_t i = 1; i < n; i++)
		ok = ok && CHECK(chunks[i].sequence > chunks[i - 1].sequence);
	free(chunks);
	return ok;
}

struct found {
	size_t holes, chunks;
	uint64_t offset; /* offset of a damaged chunk */
};

static int count_damage(const struct prof_damage *damage, void *data)
{
	struct found *found = data;

	if (damage->reason == PROF_DAMAGE_HEADER || damage->reason == PROF_DAMAGE_CUT) {
		found->holes += damage->reason == PROF_DAMAGE_HEADER;
	} else {
		found->chunks++;
		found->offset = damage->offset;
	}
	return 0;
}

/* Reads all rows, and verifies the file to find damage. */
static bool look(int fd, struct seen *ret_seen, struct found *ret_found, enum prof_state *ret_state)
{
	struct prof_reader *reader = NULL;
	uint64_t chunks, good;
	bool ok;

	*ret_seen = (struct seen){ 0 };
	*ret_found = (struct found){ 0 };
	if (!CHECK_INT(prof_reader_open(fd, &reader), 0))
		return false;
	(void)prof_reader_segments(reader, &ret_seen->segments);
	*ret_state = prof_reader_info(reader)->state;
	ok = rising(reader) && count_rows(reader, ret_seen) &&
	     CHECK_INT(prof_reader_verify(reader, count_damage, ret_found, &chunks, &good), 0);
	prof_reader_free(reader);
	return ok;
}

/* Finds the chunks that are complete in the first `cut` bytes of a whole capture, without using a
 * reader. */
static struct seen whole_chunks(const struct bytes *bytes, size_t cut)
{
	struct seen seen = { 0 };
	struct file_header file;
	struct chunk_header header;
	unsigned int bad, next = 0;

	if (!CHECK_INT(file_header_decode(bytes->data, &file, &bad), 0))
		return seen;
	for (size_t at = FILE_HEADER_BYTES; at + CHUNK_HEADER_BYTES <= cut;
	     at += chunk_bytes(&header)) {
		if (!CHECK(chunk_header_decode(bytes->data + at, file.salt, &header)))
			break;
		if (at + CHUNK_HEADER_BYTES + header.stored > cut)
			break;
		if (header.kind == CHUNK_DATA && header.table == PROF_TABLE_METADATA) {
			seen.rows++;
			seen.time_sum += UINT64_C(1) << next++;
		}
		/* A segment is known from its first checkpoint on. */
		seen.segments = MAX_OF(seen.segments, (size_t)header.segment);
	}
	return seen;
}

static bool same(const struct seen *got, const struct seen *want)
{
	bool ok = CHECK_INT(got->rows, want->rows);

	ok = CHECK_INT(got->time_sum, want->time_sum) && ok;
	return CHECK_INT(got->segments, want->segments) && ok;
}

/* Appends a segment, and adds it to *there. Checks that readers find all of *there, and no damage
 * except `bad` chunks. */
static bool append(int fd, unsigned int first, size_t bad, struct seen *there)
{
	struct found found;
	struct seen seen;
	enum prof_state state;

	if (!CHECK_INT(write_segment(fd, PROF_WRITE_APPEND, first, true), 0))
		return false;
	there->rows += CHUNKS;
	there->time_sum += (UINT64_C(3)) << first;
	there->segments++;
	return look(fd, &seen, &found, &state) && same(&seen, there) && CHECK_INT(found.holes, 0) &&
	       CHECK_INT(found.chunks, bad) && CHECK_INT(state, PROF_STATE_FINISHED);
}

/* Appends twice. The existing bytes must not change. */
static bool append_twice(const struct bytes *bytes, int fd, size_t size, size_t bad,
			 struct seen there)
{
	struct bytes after;

	return append(fd, 10, bad, &there) && append(fd, 20, bad, &there) &&
	       CHECK(bytes_of(fd, &after)) && CHECK(memcmp(after.data, bytes->data, size) == 0);
}

/* Damages every checkpoint from before the append, and writes no index, so that a reader must find
 * all chunks by going from header to header. */
static bool walk(const struct bytes *bytes, size_t cut, struct seen there)
{
	CLEANUP_CLOSE int fd = file_of(bytes->data, cut);
	struct chunk_header header;
	struct file_header file;
	struct found found;
	struct seen seen;
	enum prof_state state;
	unsigned int bad, flips = 0;

	if (!CHECK(fd >= 0) || !CHECK_INT(write_segment(fd, PROF_WRITE_APPEND, 10, false), 0) ||
	    !CHECK_INT(file_header_decode(bytes->data, &file, &bad), 0))
		return false;
	for (size_t at = FILE_HEADER_BYTES; at < cut; at += chunk_bytes(&header)) {
		uint8_t flipped;

		if (at + CHUNK_HEADER_BYTES >= cut ||
		    !chunk_header_decode(bytes->data + at, file.salt, &header) ||
		    at + chunk_bytes(&header) > cut)
			break;
		flipped = bytes->data[at + CHUNK_HEADER_BYTES] ^ 1;
		if (header.kind == CHUNK_CHECKPOINT &&
		    !CHECK(pwrite(fd, &flipped, 1, (off_t)at + CHUNK_HEADER_BYTES) == 1))
			return false;
		flips += header.kind == CHUNK_CHECKPOINT;
	}
	there.rows += CHUNKS;
	there.time_sum += UINT64_C(3) << 10;
	if (!look(fd, &seen, &found, &state))
		return false;
	there.segments = seen.segments; /* segments are lost with their checkpoints */
	return same(&seen, &there) && CHECK_INT(found.holes, 0) && CHECK_INT(found.chunks, flips);
}

static const struct {
	unsigned int segments;
	bool finish;
} captures[] = { { 1, true }, { 1, false }, { 2, true }, { 2, false } };

static void every_length(void)
{
	for (size_t c = 0; c < ARRAY_SIZE(captures); c++) {
		struct bytes bytes;

		REQUIRE(make_capture(captures[c].segments, captures[c].finish, &bytes));
		for (size_t cut = bytes.last_segment + test_start(CUT_STEP); cut <= bytes.size;
		     cut += CUT_STEP) {
			CLEANUP_CLOSE int fd = file_of(bytes.data, cut);

			if (!append_twice(&bytes, fd, cut, 0, whole_chunks(&bytes, cut)))
				printf("# capture %zu cut at %zu of %zu\n", c, cut, bytes.size);
		}
	}
}

static void without_checkpoints(void)
{
	for (size_t c = 0; c < ARRAY_SIZE(captures); c++) {
		struct bytes bytes;

		REQUIRE(make_capture(captures[c].segments, captures[c].finish, &bytes));
		for (size_t cut = bytes.last_segment + test_start(3 * CUT_STEP); cut <= bytes.size;
		     cut += 3 * CUT_STEP)
			if (!walk(&bytes, cut, whole_chunks(&bytes, cut)))
				printf("# capture %zu cut at %zu of %zu\n", c, cut, bytes.size);
	}
}

static uint32_t next_random(uint64_t *state)
{
	*state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
	return (uint32_t)(*state >> 24);
}

/* Appends to captures, complete or cut near their end, that are followed by junk. */
static void junk(void)
{
	uint64_t random = UINT64_C(88172645463325252);
	size_t stride = test_stride(PROF_SANITIZED ? 29 : 7);

	for (size_t i = test_start(stride); i < 200 * ARRAY_SIZE(captures); i += stride) {
		size_t c = i % ARRAY_SIZE(captures), cut, size;
		struct bytes bytes;

		REQUIRE(make_capture(captures[c].segments, captures[c].finish, &bytes));
		cut = bytes.size - (i / 8 % 2 ? next_random(&random) % 200 : 0);
		size = cut + 1 + i / 8;
		REQUIRE(size < FILE_BYTES);
		/* Zeros are tried, too, because file systems leave them in place of lost data. */
		for (size_t at = cut; at < size; at++)
			bytes.data[at] = i / 4 % 2 ? (uint8_t)next_random(&random) : 0;
		{
			struct seen there = whole_chunks(&bytes, cut);
			CLEANUP_CLOSE int fd = file_of(bytes.data, size);
			struct seen before;
			struct found found;
			enum prof_state state;

			/* Zeros may have completed the cut chunk, which adds rows. */
			REQUIRE(look(fd, &before, &found, &state));
			CHECK(before.rows >= there.rows);
			if (!append_twice(&bytes, fd, size, found.chunks, before))
				printf("# capture %zu cut at %zu of %zu, junk up to %zu\n", c, cut,
				       bytes.size, size);
		}
	}
}

static size_t last_chunk(const struct bytes *bytes)
{
	struct chunk_header header;
	struct file_header file;
	unsigned int bad;
	size_t last = 0;

	if (file_header_decode(bytes->data, &file, &bad) != 0)
		return 0;
	for (size_t at = FILE_HEADER_BYTES; at < bytes->size; at += chunk_bytes(&header)) {
		if (!chunk_header_decode(bytes->data + at, file.salt, &header))
			return 0;
		last = at;
	}
	return last;
}

/* Flips bits in the last chunk. */
static void flips(void)
{
	size_t stride = test_stride(PROF_SANITIZED ? 29 : 5);

	for (size_t c = 0; c < ARRAY_SIZE(captures); c++) {
		struct bytes bytes;
		size_t last;

		REQUIRE(make_capture(captures[c].segments, captures[c].finish, &bytes));
		last = last_chunk(&bytes);
		REQUIRE(last > 0);
		for (size_t at = last + test_start(stride); at < bytes.size; at += stride) {
			CLEANUP_CLOSE int fd = file_of(bytes.data, bytes.size);
			uint8_t byte = bytes.data[at] ^ (uint8_t)(1u << at % 8);
			bool header = at < last + CHUNK_HEADER_BYTES;
			struct found before_found, found;
			struct seen before, seen;
			enum prof_state state;
			bool ok;

			REQUIRE(fd >= 0 && pwrite(fd, &byte, 1, (off_t)at) == 1);
			REQUIRE(look(fd, &before, &before_found, &state));
			CHECK_INT(before_found.holes + before_found.chunks, 1);
			REQUIRE(write_segment(fd, PROF_WRITE_APPEND, 10, true) == 0);
			REQUIRE(look(fd, &seen, &found, &state));
			before.rows += CHUNKS;
			before.time_sum += UINT64_C(3) << 10;
			before.segments++;
			ok = same(&seen, &before);
			/* A chunk with a bad header becomes a gap; a chunk with a wrong checksum
			 * remains damaged. */
			ok = CHECK_INT(found.holes, 0) && ok;
			ok = CHECK_INT(found.chunks, header ? 0 : 1) && ok;
			ok = CHECK(header || found.offset == last) && ok;
			ok = CHECK_INT(state, PROF_STATE_FINISHED) && ok;
			if (!ok)
				printf("# capture %zu, byte %zu of the last chunk\n", c, at - last);
		}
	}
}

/* Repeatedly cuts up to 2,499 bytes, mostly fewer than 8, and appends a segment, finished or not.
 * Rows that were readable before an append must remain readable. */
static void chains(void)
{
	uint64_t random = UINT64_C(0x9e3779b97f4a7c15);

	for (size_t chain = 0; chain < 60; chain += test_stride(PROF_SANITIZED ? 6 : 3)) {
		CLEANUP_CLOSE int fd = memfd_create("capture", MFD_CLOEXEC);
		struct seen before, seen;
		struct found found;
		enum prof_state state;

		REQUIRE(write_segment(fd, PROF_WRITE_NEW, 0, chain % 2) == 0);
		for (unsigned int round = 1; round < 14; round++) {
			off_t size = lseek(fd, 0, SEEK_END);
			uint32_t cut = next_random(&random) % 4 ? next_random(&random) % 8
								: next_random(&random) % 2500;
			bool finish = next_random(&random) % 2;

			size = MAX_OF(size - (off_t)cut, (off_t)FILE_HEADER_BYTES);
			REQUIRE(ftruncate(fd, size) == 0);
			REQUIRE(look(fd, &before, &found, &state));
			CHECK_INT(found.holes + found.chunks, 0);
			REQUIRE(write_segment(fd, PROF_WRITE_APPEND, round * CHUNKS, finish) == 0);
			REQUIRE(look(fd, &seen, &found, &state));
			before.rows += CHUNKS;
			before.time_sum += UINT64_C(3) << round * CHUNKS;
			before.segments++;
			if (!same(&seen, &before) || !CHECK_INT(found.holes + found.chunks, 0) ||
			    !CHECK_INT(state,
				       finish ? PROF_STATE_FINISHED : PROF_STATE_UNFINISHED)) {
				printf("# chain %zu, round %u, cut by %u\n", chain, round, cut);
				return;
			}
		}
	}
}

/* In an append-only file, a write fails before the last `missing` bytes of a chunk. The next write
 * succeeds. *ret_all: whether `missing` was the whole chunk. */
static bool fail_and_go_on(unsigned int missing, bool *ret_all)
{
	const struct prof_writer_options options = { .mode = PROF_WRITE_NEW };
	const struct rlimit none = { .rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY };
	struct rlimit limit = none;
	CLEANUP_CLOSE int file = memfd_create("capture", MFD_CLOEXEC);
	struct prof_writer *writer = NULL;
	struct found found;
	struct seen seen;
	enum prof_state state;
	uint64_t size;
	bool ok = CHECK(fcntl(file, F_SETFL, O_APPEND) == 0) &&
		  CHECK_INT(prof_writer_new(file, &options, &writer), 0);

	if (!ok)
		return false;
	size = prof_writer_bytes(writer);
	ok = CHECK_INT(write_row(writer, 0), 0);
	size = prof_writer_bytes(writer) - size; /* size of each chunk in this test */
	*ret_all = missing == size;
	limit.rlim_cur = prof_writer_bytes(writer) + size - missing;
	ok = ok && CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	ok = ok && CHECK_INT(write_row(writer, 1), -EFBIG);
	ok = CHECK(setrlimit(RLIMIT_FSIZE, &none) == 0) && ok;
	ok = ok && CHECK_INT(write_row(writer, 1), 0);
	ok = ok && CHECK_INT(prof_writer_finish(writer), 0);
	prof_writer_free(writer);
	return ok && look(file, &seen, &found, &state) && CHECK_INT(seen.rows, 2) &&
	       CHECK_INT(seen.time_sum, 3) && CHECK_INT(found.holes + found.chunks, 0) &&
	       CHECK_INT(state, PROF_STATE_FINISHED);
}

static void stream(void)
{
	bool all = false;

	signal(SIGXFSZ, SIG_IGN);
	for (unsigned int missing = 1; !all; missing++)
		if (!fail_and_go_on(missing, &all)) {
			printf("# %u bytes missing\n", missing);
			return;
		}
}

int main(void)
{
	RUN(every_length);
	RUN(without_checkpoints);
	RUN(junk);
	RUN(flips);
	RUN(chains);
	RUN(stream);
	return test_end();
}
