/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory for reading and writing does not grow with the bytes, and little with the chunks
 *
 * Captures of 8 and of 64 MiB, and of 8,000 and of 64,000 chunks, are written, scanned and verified
 * by children, whose peak resident memory is compared. Not run with sanitizers, because they keep
 * freed memory.
 *
 * Promises:
 * - a scan of all columns takes less than 16 MiB, regardless of the length [scan]
 * - writing and verifying take less than 16 MiB, too [write_both verify]
 * - eight times the length takes at most 1 MiB more [all]
 * - eight times as many chunks take at most 24 bytes more per chunk [many_*]
 */
#include "tests/tools/rows.h"
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ul << 20)
#define SMALL_BYTES (8 * MIB)
#define LARGE_BYTES (64 * MIB)
#define PEAK_BYTES (16 * MIB)
#define GROWTH_BYTES (1 * MIB)
#define CHUNK_BYTES 24
#define CHUNK_ROWS 2048
#define SMALL_CHUNKS 8000
#define LARGE_CHUNKS 64000

/* Creates a file on disk, because the pages of a memfd would count as memory of the process. */
static int new_file(void)
{
	char path[] = "/tmp/prof-test-memory-XXXXXX";
	int fd = mkostemp(path, O_CLOEXEC);

	unlink(path);
	return fd;
}

/* Writes samples with numbers that no codec can shorten. */
static int fill(struct prof_writer *writer, struct prof_block *block, uint64_t bytes)
{
	uint64_t row = 0;
	int r = 0;

	while (!r && prof_writer_bytes(writer) < bytes) {
		struct prof_value values[PROF_SAMPLE_COLUMNS] = { 0 };

		values[PROF_SAMPLE_TIME] = PROF_NUMBER(rows_time(row));
		for (unsigned int c = 1; c < PROF_SAMPLE_VALUES; c++)
			values[c] = PROF_NUMBER(rows_mix(row * PROF_SAMPLE_COLUMNS + c));
		r = prof_block_add(block, values);
		if (!r && ++row % CHUNK_ROWS == 0) {
			r = prof_writer_write(writer, block);
			prof_block_reset(block);
		}
	}
	return r;
}

static int write_capture(int fd, bool finish, uint64_t size,
			 int (*fill_it)(struct prof_writer *writer, struct prof_block *block,
					uint64_t size))
{
	const struct prof_writer_options options = { .mode = PROF_WRITE_NEW };
	struct prof_writer *writer = NULL;
	struct prof_block *block = NULL;
	int r = prof_writer_new(fd, &options, &writer);

	if (!r)
		r = prof_block_new(prof_table_v1(PROF_TABLE_SAMPLE), &block);
	if (!r)
		r = fill_it(writer, block, size);
	if (!r && finish)
		r = prof_writer_finish(writer);
	prof_block_free(block);
	prof_writer_free(writer);
	return r;
}

static int do_write(int fd, uint64_t bytes)
{
	return write_capture(fd, true, bytes, fill);
}

/* Writes chunks of one row each. */
static int fill_chunks(struct prof_writer *writer, struct prof_block *block, uint64_t chunks)
{
	int r = 0;

	for (uint64_t i = 0; !r && i < chunks; i++) {
		struct prof_value values[PROF_SAMPLE_COLUMNS] = { PROF_NUMBER(rows_time(i)) };

		r = prof_block_add(block, values);
		if (!r)
			r = prof_writer_write(writer, block);
		prof_block_reset(block);
	}
	return r;
}

static int do_write_many(int fd, uint64_t chunks)
{
	return write_capture(fd, true, chunks, fill_chunks);
}

static int do_write_crashed(int fd, uint64_t chunks)
{
	return write_capture(fd, false, chunks, fill_chunks);
}

static int do_scan(int fd, uint64_t bytes)
{
	const struct prof_cursor_options options = { .table = PROF_TABLE_SAMPLE };
	struct prof_cursor *cursor = NULL;
	struct prof_reader *reader = NULL;
	struct prof_batch batch;
	uint64_t rows = 0;
	int r = prof_reader_open(fd, &reader);

	if (!r)
		r = prof_cursor_new(reader, &options, &cursor);
	while (!r && !(r = prof_cursor_next(cursor, &batch)))
		rows += batch.rows;
	prof_cursor_free(cursor);
	prof_reader_free(reader);
	return r == PROF_END && (rows == bytes || rows * 80 > bytes) ? 0 : -EIO;
}

static int count(const struct prof_damage *damage, void *data)
{
	return -EIO;
}

static int do_verify(int fd, uint64_t bytes)
{
	struct prof_reader *reader = NULL;
	uint64_t chunks, good;
	int r = prof_reader_open(fd, &reader);

	if (!r)
		r = prof_reader_verify(reader, count, NULL, &chunks, &good);
	prof_reader_free(reader);
	return r;
}

/* Returns the peak resident memory of a child that runs `act`, in bytes; 0 if it failed. */
static uint64_t peak_of(int (*act)(int fd, uint64_t bytes), int fd, uint64_t bytes)
{
	struct rusage usage;
	int status = -1;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0)
		_exit(act(fd, bytes) ? 1 : 0);
	if (!CHECK(pid > 0 && wait4(pid, &status, 0, &usage) == pid && status == 0))
		return 0;
	return (uint64_t)usage.ru_maxrss * 1024;
}

static struct files {
	int small, large;
	uint64_t small_size, large_size; /* bytes or chunks */
	uint64_t growth;                 /* maximum additional memory for the large file */
} files, many, crashed;

static void compare(int (*act)(int fd, uint64_t size), const struct files *of)
{
	uint64_t small = peak_of(act, of->small, of->small_size);
	uint64_t large = peak_of(act, of->large, of->large_size);

	printf("# %" PRIu64 " KiB for %" PRIu64 ", %" PRIu64 " KiB for %" PRIu64 "\n", small / 1024,
	       of->small_size, large / 1024, of->large_size);
	CHECK(small > 0 && large < PEAK_BYTES);
	CHECK(large < small + of->growth);
}

static void make(struct files *to, uint64_t small_size, uint64_t large_size, uint64_t growth)
{
	*to = (struct files){ new_file(), new_file(), small_size, large_size, growth };
	REQUIRE(to->small >= 0 && to->large >= 0);
}

static void write_both(void)
{
	make(&files, SMALL_BYTES, LARGE_BYTES, GROWTH_BYTES);
	compare(do_write, &files);
}

static void scan(void)
{
	compare(do_scan, &files);
}

static void verify(void)
{
	compare(do_verify, &files);
}

static void many_chunks(void)
{
	make(&many, SMALL_CHUNKS, LARGE_CHUNKS, LARGE_CHUNKS * CHUNK_BYTES);
	compare(do_write_many, &many);
	compare(do_scan, &many);
	compare(do_verify, &many);
}

/* Scans unfinished captures by their checkpoints. Then damages the first checkpoint of each, so
 * that they are scanned without checkpoints. */
static void many_crashed(void)
{
	make(&crashed, SMALL_CHUNKS, LARGE_CHUNKS, LARGE_CHUNKS * CHUNK_BYTES);
	compare(do_write_crashed, &crashed);
	compare(do_scan, &crashed);
	REQUIRE(pwrite(crashed.small, "x", 1, 256) == 1 && pwrite(crashed.large, "x", 1, 256) == 1);
	compare(do_scan, &crashed);
}

int main(void)
{
	RUN(write_both);
	RUN(scan);
	RUN(verify);
	RUN(many_chunks);
	RUN(many_crashed);
	return test_end();
}
