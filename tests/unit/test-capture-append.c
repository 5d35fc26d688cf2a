/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Continues captures: finished, cut and crashed ones; with two writers; and with forged chunks
 *
 * Promises:
 * - append adds a segment; every row that was readable remains readable [finished crashed
 *   cut_anywhere]
 * - no existing byte is changed or truncated [finished crashed cut_anywhere]
 * - the loss table counts what a cut made unreadable [cut_anywhere]
 * - a second writer is refused [second_writer]
 * - bytes in a string that look like a chunk are not read as a chunk [forged_chunk]
 * - extend adds an epoch, but no segment [extend]
 */
#include "libcapture/format.h"
#include "tests/tools/chunks.h"
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHUNKS 5
#define CHUNK_ROWS 100

/* Writes CHUNKS chunks of metadata rows whose times start at `first`. */
static int write_part(int fd, enum prof_writer_mode mode, uint64_t first, bool finish)
{
	struct prof_writer_options options = { .mode = mode,
					       .segment = { .start_monotonic_ns = first } };
	struct prof_writer *writer = NULL;
	struct prof_block *block = NULL;
	int r = prof_writer_new(fd, &options, &writer);

	if (r == 0)
		r = prof_block_new(prof_table_v1(PROF_TABLE_METADATA), &block);
	for (int c = 0; r == 0 && c < CHUNKS; c++) {
		for (int i = 0; r == 0 && i < CHUNK_ROWS; i++) {
			struct prof_value row[] = { PROF_NUMBER(first++), PROF_BYTES("key", 3),
						    PROF_BYTES("some value", 10) };

			r = prof_block_add(block, row);
		}
		prof_block_set_epoch(block, prof_writer_first_epoch(writer));
		if (r == 0)
			r = prof_writer_write(writer, block);
		prof_block_reset(block);
	}
	if (r == 0 && finish)
		r = prof_writer_finish(writer);
	prof_block_free(block);
	prof_writer_free(writer);
	return r;
}

struct seen {
	size_t segments, rows, loss_rows;
	uint32_t epochs;
	uint64_t time_sum, loss_bytes, cut_at;
	enum prof_state state;
};

static int count_table(const struct prof_reader *reader, unsigned int table, struct seen *seen)
{
	struct prof_cursor_options options = { .table = table };
	struct prof_cursor *cursor = NULL;
	struct prof_batch batch;
	int r = prof_cursor_new(reader, &options, &cursor);

	while (r == 0 && (r = prof_cursor_next(cursor, &batch)) == 0) {
		for (size_t i = 0; i < batch.rows; i++) {
			if (table == PROF_TABLE_LOSS) {
				CHECK_INT(batch.columns[PROF_LOSS_CAUSE].numbers[i],
					  PROF_LOSS_FILE_DAMAGE);
				seen->loss_bytes += batch.columns[PROF_LOSS_BYTES].numbers[i];
				seen->loss_rows++;
			} else {
				seen->time_sum += batch.columns[0].numbers[i];
				seen->rows++;
			}
		}
	}
	prof_cursor_free(cursor);
	return r == PROF_END || r == PROF_NO_TABLE ? 0 : r;
}

static bool look(int fd, struct seen *seen)
{
	struct prof_reader *reader = NULL;

	memset(seen, 0, sizeof(*seen));
	if (!CHECK_INT(prof_reader_open(fd, &reader), 0))
		return false;
	(void)prof_reader_segments(reader, &seen->segments);
	seen->epochs = prof_reader_info(reader)->epochs;
	seen->state = prof_reader_info(reader)->state;
	seen->cut_at = prof_reader_info(reader)->cut_at;
	CHECK_INT(count_table(reader, PROF_TABLE_METADATA, seen), 0);
	CHECK_INT(count_table(reader, PROF_TABLE_LOSS, seen), 0);
	prof_reader_free(reader);
	return true;
}

static int new_file(void)
{
	return memfd_create("capture", MFD_CLOEXEC);
}

static uint64_t sum_of(uint64_t first, size_t n)
{
	uint64_t sum = 0;

	while (n--)
		sum += first++;
	return sum;
}

static void append_to(bool finish)
{
	CLEANUP_CLOSE int fd = new_file();
	struct seen seen;

	REQUIRE(write_part(fd, PROF_WRITE_NEW, 1000, finish) == 0);
	REQUIRE(write_part(fd, PROF_WRITE_APPEND, 5000, true) == 0);
	REQUIRE(look(fd, &seen));
	CHECK_INT(seen.segments, 2);
	CHECK_INT(seen.rows, 2 * CHUNKS * CHUNK_ROWS);
	CHECK_INT(seen.time_sum,
		  sum_of(1000, CHUNKS * CHUNK_ROWS) + sum_of(5000, CHUNKS * CHUNK_ROWS));
	CHECK_INT(seen.state, PROF_STATE_FINISHED);
	CHECK_INT(seen.epochs, 2);
}

static void finished(void)
{
	append_to(true);
}

static void crashed(void)
{
	append_to(false);
}

/* Cuts a capture at every seventh byte after its header, and appends to it. */
static void cut_anywhere(void)
{
	CLEANUP_CLOSE int whole = new_file();
	CLEANUP_FREE uint8_t *data = NULL;
	size_t bytes;

	REQUIRE(write_part(whole, PROF_WRITE_NEW, 1000, true) == 0);
	bytes = (size_t)lseek(whole, 0, SEEK_END);
	data = malloc(bytes);
	REQUIRE(data && pread(whole, data, bytes, 0) == (ssize_t)bytes);
	for (size_t cut = 256; cut < bytes; cut += 7) {
		CLEANUP_CLOSE int fd = new_file();
		CLEANUP_FREE uint8_t *after = malloc(cut);
		struct seen before, seen;

		REQUIRE(after && write(fd, data, cut) == (ssize_t)cut);
		REQUIRE(look(fd, &before));
		if (!CHECK_INT(write_part(fd, PROF_WRITE_APPEND, 5000, true), 0)) {
			printf("# cut at %zu of %zu\n", cut, bytes);
			return;
		}
		REQUIRE(pread(fd, after, cut, 0) == (ssize_t)cut);
		CHECK(memcmp(after, data, cut) == 0);
		REQUIRE(look(fd, &seen));
		CHECK_INT(seen.rows, before.rows + CHUNKS * CHUNK_ROWS);
		CHECK_INT(seen.time_sum, before.time_sum + sum_of(5000, CHUNKS * CHUNK_ROWS));
		CHECK_INT(seen.state, PROF_STATE_FINISHED);
		CHECK_INT(seen.loss_rows, before.cut_at < cut);
		CHECK_INT(seen.loss_bytes, cut - before.cut_at);
	}
}

static void second_writer(void)
{
	char path[] = "/tmp/prof-test-XXXXXX";
	CLEANUP_CLOSE int first = mkostemp(path, O_CLOEXEC);
	CLEANUP_CLOSE int second = open(path, O_RDWR | O_CLOEXEC);
	struct prof_writer_options options = { .mode = PROF_WRITE_NEW };
	struct prof_writer *writer = NULL, *other = NULL;

	unlink(path);
	REQUIRE(first >= 0 && second >= 0);
	REQUIRE(prof_writer_new(first, &options, &writer) == 0);
	options.mode = PROF_WRITE_APPEND;
	CHECK_INT(prof_writer_new(second, &options, &other), -EWOULDBLOCK);
	CHECK(other == NULL);
	CHECK_INT(prof_writer_finish(writer), 0);
	prof_writer_free(writer);
	CHECK_INT(prof_writer_new(second, &options, &other),
		  0); /* the first writer released the lock */
	prof_writer_free(other);
}

static void extend(void)
{
	CLEANUP_CLOSE int fd = new_file();
	struct seen seen;

	REQUIRE(write_part(fd, PROF_WRITE_NEW, 1000, true) == 0);
	REQUIRE(write_part(fd, PROF_WRITE_EXTEND, 5000, true) == 0);
	REQUIRE(look(fd, &seen));
	CHECK_INT(seen.segments, 1);
	CHECK_INT(seen.epochs, 2);
	CHECK_INT(seen.rows, 2 * CHUNKS * CHUNK_ROWS);
	CHECK_INT(seen.state, PROF_STATE_FINISHED);
}

#define HAYSTACK_BYTES 4096u
#define FORGED_AT 1024u
#define FORGED_PAYLOAD 256u
#define FORGED_BYTES (CHUNK_HEADER_BYTES + FORGED_PAYLOAD)

static void fill_random(uint8_t *bytes, size_t size)
{
	uint64_t state = 88172645463325252u;

	for (size_t i = 0; i < size; i++) {
		state ^= state << 13, state ^= state >> 7, state ^= state << 17;
		bytes[i] = (uint8_t)(state >> 24);
	}
}

/* Writes a chunk header before a random payload. The checksums match `salt`, which the forger
 * chose. Random bytes cannot be compressed, so the chunk appears unchanged in a file. */
static void forge_chunk(uint8_t *bytes, uint64_t salt)
{
	uint64_t checksum = format_checksum(bytes + CHUNK_HEADER_BYTES, FORGED_PAYLOAD, salt);
	struct chunk_header header = {
		.kind = CHUNK_DATA,
		.table = PROF_TABLE_METADATA,
		.sequence = 200, /* valid, because it is at most offset / 8 */
		.segment = 0x01020304,
		.epoch = 0x05060708,
		.rows = 0x0a0b,
		.groups = 0x0c0d0e0f,
		.stored = FORGED_PAYLOAD,
		.checksum = checksum,
	};
	uint8_t random[CHUNK_HEADER_BYTES];

	memcpy(random, bytes, sizeof(random));
	chunk_header_encode(&header, salt, bytes);
	/* times, raw, link and reserved bytes: random values instead of zeros */
	memcpy(bytes + 48, random + 48, 16);
	memcpy(bytes + 68, random + 68, 4);
	memcpy(bytes + 80, random + 80, 16);
	store_le64(bytes + 8, format_checksum(bytes + 16, CHUNK_HEADER_BYTES - 16, salt));
}

/* Writes an unfinished capture with one row, whose value is `haystack`. */
static int write_haystack(int fd, const uint8_t *haystack)
{
	struct prof_writer_options options = { .mode = PROF_WRITE_NEW };
	struct prof_value row[] = { PROF_NUMBER(1), PROF_BYTES("key", 3),
				    PROF_BYTES(haystack, HAYSTACK_BYTES) };
	struct prof_writer *writer = NULL;
	struct prof_block *block = NULL;
	int r = prof_writer_new(fd, &options, &writer);

	if (r == 0)
		r = prof_block_new(prof_table_v1(PROF_TABLE_METADATA), &block);
	if (r == 0)
		r = prof_block_add(block, row);
	if (r == 0)
		r = prof_writer_write(writer, block);
	prof_block_free(block);
	prof_writer_free(writer);
	return r;
}

/* Damages the header of the only data chunk, so that readers search its payload for chunks, and
 * checks that they find none. */
static void expect_no_chunk(int fd, const uint8_t *forged, bool *found_aligned)
{
	struct prof_reader *reader = NULL;
	CLEANUP_FREE uint8_t *file = NULL;
	CLEANUP_FREE struct prof_chunk *chunks = NULL;
	const uint8_t *needle;
	size_t n, bytes = (size_t)lseek(fd, 0, SEEK_END);
	uint8_t byte;
	off_t at;

	file = malloc(bytes);
	REQUIRE(file && pread(fd, file, bytes, 0) == (ssize_t)bytes);
	needle = memmem(file, bytes, forged, FORGED_BYTES);
	REQUIRE(needle);
	*found_aligned = *found_aligned || (needle - file) % 8 == 0;
	REQUIRE(prof_reader_open(fd, &reader) == 0);
	chunks = chunks_of(reader, &n);
	CHECK_INT(n, 1);
	at = (off_t)chunks[0].offset + 20;
	prof_reader_free(reader);
	byte = file[at] ^ 1;
	REQUIRE(pwrite(fd, &byte, 1, at) == 1);
	REQUIRE(prof_reader_open(fd, &reader) == 0);
	CHECK_INT(chunks_count(reader), 0);
	CHECK_INT(prof_reader_info(reader)->state, PROF_STATE_DAMAGED);
	prof_reader_free(reader);
}

static void forged_chunk(void)
{
	static const uint64_t salts[] = { 0, UINT64_C(0x1122334455667788) };
	bool found_aligned = false;

	for (size_t i = 0; i < 8 * ARRAY_SIZE(salts); i++) {
		CLEANUP_CLOSE int fd = new_file();
		uint8_t haystack[HAYSTACK_BYTES], *forged = haystack + FORGED_AT + i % 8;
		struct seen seen;

		fill_random(haystack, sizeof(haystack));
		forge_chunk(forged, salts[i / 8]);
		REQUIRE(write_haystack(fd, haystack) == 0);
		REQUIRE(look(fd, &seen));
		CHECK_INT(seen.rows, 1);
		expect_no_chunk(fd, forged, &found_aligned);
	}
	CHECK(found_aligned);
}

int main(void)
{
	RUN(finished);
	RUN(crashed);
	RUN(cut_anywhere);
	RUN(second_writer);
	RUN(extend);
	RUN(forged_chunk);
	return test_end();
}
