/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of the writer and of blocks: limits, refusals, full disks (also when a reader copies a
 * pipe to disk), partial writes, hostile dictionaries.
 */
#include "tests/tools/rows.h"
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct prof_writer_options new_options = { .segment = { .start_monotonic_ns =
									     ROWS_START } };

static uint64_t count_rows(const struct prof_reader *reader, unsigned int table)
{
	const struct prof_cursor_options options = { .table = table };
	struct prof_cursor *cursor;
	struct prof_batch batch;
	uint64_t rows = 0;

	if (prof_cursor_new(reader, &options, &cursor))
		return 0;
	while (prof_cursor_next(cursor, &batch) == 0)
		rows += batch.rows;
	prof_cursor_free(cursor);
	return rows;
}

static int count_damage(const struct prof_damage *damage, void *data)
{
	printf("# damage at %" PRIu64 ": %s\n", damage->offset,
	       prof_damage_reason_name(damage->reason));
	(*(unsigned int *)data)++;
	return 0;
}

/* Checks that the capture is finished and undamaged, and has this number of sample rows. */
static void check_finished(int fd, uint64_t rows)
{
	struct prof_reader *reader;
	uint64_t chunks, good;
	unsigned int damage = 0;

	REQUIRE(prof_reader_open(fd, &reader) == 0);
	CHECK_INT(prof_reader_info(reader)->state, PROF_STATE_FINISHED);
	CHECK_INT(count_rows(reader, PROF_TABLE_SAMPLE), rows);
	CHECK_INT(prof_reader_verify(reader, count_damage, &damage, &chunks, &good), 0);
	CHECK_INT(damage, 0);
	prof_reader_free(reader);
}

static void test_block_limits(void)
{
	static const struct prof_column_def columns[] = {
		{ .id = 0, .name = "bytes", .type = PROF_TYPE_BINARY },
		{ .id = 1, .name = "list", .type = PROF_TYPE_UINT, .flags = PROF_COLUMN_LIST },
		{ .id = 2, .name = "n", .type = PROF_TYPE_UINT },
	};
	static const struct prof_table_def def = {
		.name = "t", .columns = columns, .n_columns = 3, .id = 2000
	};
	void *big = calloc(1, PROF_MAX_BLOCK_BYTES);
	struct prof_value row[3] = { PROF_BYTES(big, PROF_MAX_BLOCK_BYTES + 1), PROF_BYTES(big, 0),
				     PROF_NUMBER(1) };
	struct prof_block *block;
	size_t rows = 0;
	int r;

	REQUIRE(big && prof_block_new(&def, &block) == 0);
	CHECK_INT(prof_block_add(block, row), PROF_LIMIT);
	row[0].number = 0;
	row[1].number = UINT64_MAX / 4;
	CHECK_INT(prof_block_add(block, row), PROF_LIMIT);
	row[1] = PROF_NULL;
	CHECK_INT(prof_block_add(block, row), -EINVAL);
	CHECK_INT(prof_block_rows(block), 0);
	row[1] = PROF_BYTES(big, 0);
	row[0].number = PROF_MAX_BLOCK_BYTES;
	CHECK_INT(prof_block_add(block, row), 0);
	row[0].number = 1;
	CHECK_INT(prof_block_add(block, row), PROF_LIMIT);
	CHECK_INT(prof_block_rows(block), 1);
	prof_block_reset(block);
	row[0].number = 0;
	while ((r = prof_block_add(block, row)) == 0)
		rows++;
	CHECK_INT(r, PROF_LIMIT);
	CHECK_INT(rows, PROF_MAX_ROWS);
	prof_block_free(block);
	free(big);
}

/* The chunk of a full block with incompressible bytes can be read. */
static void test_largest_chunks(void)
{
	static const struct prof_column_def columns[] = {
		{ .id = 0, .name = "bytes", .type = PROF_TYPE_BINARY },
		{ .id = 1, .name = "n", .type = PROF_TYPE_UINT },
	};
	static const struct prof_table_def def = {
		.name = "t", .columns = columns, .n_columns = 2, .id = 2000
	};
	int fd = memfd_create("capture", MFD_CLOEXEC);
	uint64_t *noise = malloc(PROF_MAX_BLOCK_BYTES);
	struct prof_value row[2] = { PROF_BYTES(noise, PROF_MAX_BLOCK_BYTES), PROF_NUMBER(0) };
	struct prof_writer *writer;
	struct prof_block *block;
	struct prof_reader *reader;
	uint64_t i;

	REQUIRE(noise && prof_writer_new(fd, &new_options, &writer) == 0);
	CHECK_INT(prof_writer_add_table(writer, &def), 0);
	REQUIRE(prof_block_new(&def, &block) == 0);
	for (i = 0; i < PROF_MAX_BLOCK_BYTES / 8; i++)
		noise[i] = rows_mix(i);
	CHECK_INT(prof_block_add(block, row), 0);
	row[0].number = 0;
	for (i = 1; prof_block_add(block, row) == 0; i++)
		row[1].number = rows_mix(i);
	CHECK_INT(prof_writer_write(writer, block), 0);
	CHECK_INT(prof_writer_finish(writer), 0);
	prof_writer_free(writer);
	prof_block_free(block);
	REQUIRE(prof_reader_open(fd, &reader) == 0);
	CHECK_INT(count_rows(reader, 2000), i);
	prof_reader_free(reader);
	free(noise);
	close(fd);
}

static void test_refusals(void)
{
	int fd = memfd_create("capture", MFD_CLOEXEC);
	struct prof_writer *writer, *second;
	struct prof_block *block;
	struct row row;

	REQUIRE(prof_writer_new(fd, &new_options, &writer) == 0);
	CHECK_INT(prof_writer_new(fd, &new_options, &second), -EEXIST);
	/* The table was not declared. */
	REQUIRE(prof_block_new(rows_foreign_table(), &block) == 0);
	rows_make(rows_foreign_table(), 0, &row);
	CHECK_INT(prof_block_add(block, row.values), 0);
	CHECK_INT(prof_writer_write(writer, block), -EINVAL);
	CHECK_INT(prof_writer_add_table(writer, rows_foreign_table()), 0);
	CHECK_INT(prof_writer_write(writer, block), 0);
	CHECK_INT(prof_writer_finish(writer), 0);
	CHECK_INT(prof_writer_write(writer, block), -EINVAL);
	CHECK_INT(prof_writer_finish(writer), -EINVAL);
	prof_block_free(block);
	prof_writer_free(writer);
	/* Epochs of the previous segment are closed. */
	REQUIRE(prof_writer_new(fd, &(struct prof_writer_options){ .mode = PROF_WRITE_APPEND },
				&writer) == 0);
	CHECK_INT(prof_writer_first_epoch(writer), 2);
	CHECK_INT(rows_write(writer, prof_table_v1(PROF_TABLE_SAMPLE), 0, 1, 1, 1), -EINVAL);
	CHECK_INT(rows_write(writer, prof_table_v1(PROF_TABLE_SAMPLE), 0, 1, 1, 2), 0);
	prof_writer_free(writer);
	close(fd);
}

/* Returns a descriptor of the root of a new file system of 1 MiB, which only this process can
 * reach; -1: mounting failed. */
static int small_disk(void)
{
	char directory[] = "/tmp/prof-small-disk-XXXXXX";
	int fd;

	if (!mkdtemp(directory))
		return -1;
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("none", directory, "tmpfs", 0, "size=1m") < 0) {
		rmdir(directory);
		return -1;
	}
	fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	umount2(directory, MNT_DETACH);
	rmdir(directory);
	return fd;
}

/* On a full disk, the chunk that does not fit is dropped, but loss rows and the trailer are
 * written. */
static void test_full(void)
{
	int disk = small_disk(), fd;
	struct prof_writer *writer;
	uint64_t rows = 0;
	struct stat st;
	int r;

	if (disk < 0)
		SKIP("needs the right to mount a tmpfs");
	fd = openat(disk, "capture", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	REQUIRE(fd >= 0 && prof_writer_new(fd, &new_options, &writer) == 0);
	while ((r = rows_write(writer, prof_table_v1(PROF_TABLE_SAMPLE), rows, 500, 500, 0)) == 0)
		rows += 500;
	CHECK_INT(r, -ENOSPC);
	CHECK(rows > 50000);
	for (int i = 0; i < 10; i++)
		CHECK_INT(rows_write(writer, prof_table_v1(PROF_TABLE_LOSS), 0, 20, 20, 0), 0);
	CHECK_INT(prof_writer_finish(writer), 0);
	REQUIRE(fstat(fd, &st) == 0);
	CHECK_INT(st.st_size, prof_writer_bytes(writer));
	CHECK(st.st_blocks * 512 < st.st_size + 8192);
	prof_writer_free(writer);
	check_finished(fd, rows);
	close(fd);
	close(disk);
}

/* Writes a capture's header, then zeros as long as there is a reader. */
static _Noreturn void write_endlessly(int from, int to)
{
	uint8_t bytes[4096] = { 0 };
	bool ok = pread(from, bytes, 256, 0) == 256;

	signal(SIGPIPE, SIG_DFL);
	while (ok && write(to, bytes, sizeof(bytes)) > 0)
		memset(bytes, 0, sizeof(bytes));
	_exit(1);
}

/* A reader that copies a pipe uses at most half of the free space on the disk. */
static void test_endless_capture(void)
{
	int disk = small_disk(), file = memfd_create("capture", MFD_CLOEXEC), ends[2];
	char path[64], *before = getenv("TMPDIR");
	struct prof_writer *writer;
	struct prof_reader *reader;
	pid_t child;

	if (disk < 0)
		SKIP("needs the right to mount a tmpfs");
	REQUIRE(file >= 0 && prof_writer_new(file, &new_options, &writer) == 0);
	prof_writer_free(writer);
	REQUIRE(pipe2(ends, O_CLOEXEC) == 0 && (child = fork()) >= 0);
	if (child == 0) {
		close(ends[0]);
		write_endlessly(file, ends[1]);
	}
	close(ends[1]);
	before = before ? strdup(before) : NULL;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", disk);
	setenv("TMPDIR", path, 1);
	CHECK_INT(prof_reader_open(ends[0], &reader), -ENOSPC);
	if (before)
		setenv("TMPDIR", before, 1);
	else
		unsetenv("TMPDIR");
	free(before);
	close(ends[0]);
	CHECK(waitpid(child, NULL, 0) == child);
	close(file);
	close(disk);
}

/* Limits the file's size to the middle of a chunk, then removes the limit. */
static void fail_once(int fd)
{
	const struct rlimit none = { .rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY };
	struct rlimit limit = none;
	struct prof_writer *writer;

	REQUIRE(prof_writer_new(fd, &new_options, &writer) == 0);
	CHECK_INT(rows_write(writer, prof_table_v1(PROF_TABLE_SAMPLE), 0, 500, 100, 0), 0);
	for (int i = 0; i < 3; i++) {
		limit.rlim_cur = prof_writer_bytes(writer) + 101;
		REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
		CHECK_INT(rows_write(writer, prof_table_v1(PROF_TABLE_SAMPLE), 500, 500, 500, 0),
			  -EFBIG);
		REQUIRE(setrlimit(RLIMIT_FSIZE, &none) == 0);
	}
	CHECK_INT(rows_write(writer, prof_table_v1(PROF_TABLE_SAMPLE), 500, 500, 500, 0), 0);
	CHECK_INT(prof_writer_finish(writer), 0);
	prof_writer_free(writer);
	check_finished(fd, 1000);
}

static void test_errors(void)
{
	int fd = memfd_create("capture", MFD_CLOEXEC), appending;
	char path[64];

	signal(SIGXFSZ, SIG_IGN);
	fail_once(fd);
	close(fd);
	/* With O_APPEND, the bytes that a failed write left cannot be overwritten. */
	fd = memfd_create("capture", MFD_CLOEXEC);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	appending = open(path, O_RDWR | O_APPEND | O_CLOEXEC);
	REQUIRE(appending >= 0);
	fail_once(appending);
	close(appending);
	close(fd);
}

/* Memory does not depend on the range of ids, which a file may choose freely. */
static void test_hostile_ids(void)
{
	static const uint64_t ids[] = { UINT64_C(1) << 63, 1, UINT64_MAX, 5, 1 };
	int fd = memfd_create("capture", MFD_CLOEXEC);
	const uint16_t text = PROF_STRING_TEXT;
	struct prof_writer *writer;
	struct prof_block *block;
	struct prof_reader *reader;
	struct prof_dictionary *dictionary;

	REQUIRE(prof_writer_new(fd, &new_options, &writer) == 0);
	REQUIRE(prof_block_new(prof_table_v1(PROF_TABLE_STRING), &block) == 0);
	for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
		const struct prof_value row[] = { PROF_NUMBER(ids[i]), PROF_BYTES("abcde", i) };

		CHECK_INT(prof_block_add(block, row), 0);
	}
	CHECK_INT(prof_writer_write(writer, block), 0);
	prof_writer_free(writer);
	prof_block_free(block);
	REQUIRE(prof_reader_open(fd, &reader) == 0);
	REQUIRE(prof_dictionary_load(reader, PROF_TABLE_STRING, 1, &text, 1, &dictionary) == 0);
	CHECK_INT(prof_dictionary_rows(dictionary), 5);
	CHECK_INT(prof_dictionary_find(dictionary, UINT64_C(1) << 63), 0);
	CHECK_INT(prof_dictionary_find(dictionary, UINT64_MAX), 2);
	CHECK_INT(prof_dictionary_find(dictionary, 5), 3);
	CHECK_INT(prof_dictionary_find(dictionary, 1), 4);
	CHECK_INT(prof_dictionary_find(dictionary, 0), -1);
	CHECK_INT(prof_dictionary_find(dictionary, 6), -1);
	CHECK_INT(prof_dictionary_column(dictionary, 0)->offsets[5], 0 + 1 + 2 + 3 + 4);
	prof_dictionary_free(dictionary);
	CHECK_INT(prof_dictionary_load(reader, PROF_TABLE_STRING, 9, NULL, 0, &dictionary), 0);
	CHECK_INT(prof_dictionary_rows(dictionary), 0);
	CHECK_INT(prof_dictionary_find(dictionary, 1), -1);
	prof_dictionary_free(dictionary);
	CHECK_INT(prof_dictionary_load(reader, PROF_TABLE_SAMPLE, 1, NULL, 0, &dictionary),
		  -EINVAL);
	CHECK_INT(prof_dictionary_load(reader, 4711, 1, NULL, 0, &dictionary), PROF_NO_TABLE);
	prof_reader_free(reader);
	close(fd);
}

/* A file of less than 100 kB has a dictionary of five million rows, which is refused because it
 * exceeds the limit. */
static void test_dictionary_bomb(void)
{
	static const struct prof_column_def columns[] = {
		{ .id = 0, .name = "id", .type = PROF_TYPE_UINT },
		{ .id = 1, .name = "a", .type = PROF_TYPE_UINT }
	};
	static const struct prof_table_def def = { .name = "t",
						   .columns = columns,
						   .n_columns = 2,
						   .id = 2000,
						   .flags = PROF_TABLE_DICTIONARY };
	const struct prof_value row[] = { PROF_NUMBER(1), PROF_NUMBER(2) };
	int fd = memfd_create("capture", MFD_CLOEXEC);
	struct prof_writer *writer;
	struct prof_block *block;
	struct prof_reader *reader;
	struct prof_dictionary *dictionary;
	int r = 0;

	REQUIRE(prof_writer_new(fd, &new_options, &writer) == 0);
	CHECK_INT(prof_writer_add_table(writer, &def), 0);
	REQUIRE(prof_block_new(&def, &block) == 0);
	while (prof_block_add(block, row) == 0)
		;
	/* The writer does not write a dictionary that readers would refuse. */
	for (size_t i = 0; !r && i < 100; i++)
		r = prof_writer_write(writer, block);
	CHECK_INT(r, PROF_LIMIT);
	prof_block_set_epoch(block, 2);
	CHECK_INT(prof_writer_write(writer, block), 0);
	/* Another writer might write such a dictionary. Alternate epochs, because this writer
	 * counts only the rows of the current epoch. */
	for (size_t i = 0; i < 40; i++) {
		prof_block_set_epoch(block, 3 + i % 2);
		CHECK_INT(prof_writer_write(writer, block), 0);
	}
	CHECK_INT(prof_writer_finish(writer), 0);
	prof_writer_free(writer);
	prof_block_free(block);
	REQUIRE(prof_reader_open(fd, &reader) == 0);
	CHECK(prof_reader_info(reader)->bytes < 100000);
	CHECK_INT(prof_dictionary_load(reader, 2000, 1, NULL, 0, &dictionary), 0);
	CHECK_INT(prof_dictionary_rows(dictionary), PROF_MAX_DICTIONARY_ROWS);
	prof_dictionary_free(dictionary);
	CHECK_INT(prof_dictionary_load(reader, 2000, 3, NULL, 0, &dictionary), PROF_LIMIT);
	CHECK_INT(prof_dictionary_load(reader, 2000, 2, NULL, 0, &dictionary), 0);
	prof_dictionary_free(dictionary);
	prof_reader_free(reader);
	close(fd);
}

int main(void)
{
	RUN(test_block_limits);
	RUN(test_largest_chunks);
	RUN(test_refusals);
	RUN(test_errors);
	RUN(test_hostile_ids);
	RUN(test_dictionary_bomb);
	RUN(test_full);
	RUN(test_endless_capture);
	return test_end();
}
