/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * What reading and writing take: memory that does not grow with the capture
 *
 * Captures of 8 and of 64 MiB are written, scanned and verified by children, whose peak of resident memory is compared.
 * Sanitizers keep freed memory, so this runs without them.
 *
 * Promises: a scan of all columns takes less than 16 MiB, whatever the length       [scan]
 *           so do writing and verifying                                             [write_both verify]
 *           eight times the length takes at most 1 MiB more                         [all: the index, 100 bytes a chunk]
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
#define CHUNK_ROWS 2048

/* On disk and not in memory: pages of a memfd would count as ours. */
static int new_file(void)
{
	char path[] = "/tmp/prof-test-memory-XXXXXX";
	int fd = mkostemp(path, O_CLOEXEC);

	unlink(path);
	return fd;
}

/* Samples whose numbers no codec makes small. */
static int fill(struct prof_writer *writer, struct prof_block *block, uint64_t bytes)
{
	uint64_t row = 0;
	int r = 0;

	while (!r && prof_writer_bytes(writer) < bytes) {
		struct prof_value values[PROF_SAMPLE_COLUMNS];

		values[PROF_SAMPLE_TIME] = PROF_NUMBER(rows_time(row));
		for (unsigned int c = 1; c < PROF_SAMPLE_COLUMNS; c++)
			values[c] = PROF_NUMBER(rows_mix(row * PROF_SAMPLE_COLUMNS + c));
		r = prof_block_add(block, values);
		if (!r && ++row % CHUNK_ROWS == 0) {
			r = prof_writer_write(writer, block);
			prof_block_reset(block);
		}
	}
	return r;
}

static int do_write(int fd, uint64_t bytes)
{
	const struct prof_writer_options options = { .mode = PROF_WRITE_NEW };
	struct prof_writer *writer = NULL;
	struct prof_block *block = NULL;
	int r = prof_writer_new(fd, &options, &writer);

	if (!r)
		r = prof_block_new(prof_table_v1(PROF_TABLE_SAMPLE), &block);
	if (!r)
		r = fill(writer, block, bytes);
	if (!r)
		r = prof_writer_finish(writer);
	prof_block_free(block);
	prof_writer_free(writer);
	return r;
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
	return r == PROF_END && rows * 80 > bytes ? 0 : -EIO;
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

/* Peak of resident memory of a child that does this, in bytes; 0: it failed. */
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

static struct {
	int small, large;
} files = { -1, -1 };

static void compare(int (*act)(int fd, uint64_t bytes))
{
	uint64_t small = peak_of(act, files.small, SMALL_BYTES);
	uint64_t large = peak_of(act, files.large, LARGE_BYTES);

	printf("# %" PRIu64 " KiB for 8 MiB, %" PRIu64 " KiB for 64 MiB\n", small / 1024,
	       large / 1024);
	CHECK(small > 0 && large < PEAK_BYTES);
	CHECK(large < small + GROWTH_BYTES);
}

static void write_both(void)
{
	files.small = new_file();
	files.large = new_file();
	REQUIRE(files.small >= 0 && files.large >= 0);
	compare(do_write);
}

static void scan(void)
{
	compare(do_scan);
}

static void verify(void)
{
	compare(do_verify);
}

int main(void)
{
	RUN(write_both);
	RUN(scan);
	RUN(verify);
	return test_end();
}
