/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * With more chunks than a reader unpacks at once, every chunk is found by table, epoch and time
 *
 * A capture of 7,000 chunks in 40 epochs is queried for every table, every epoch and many times:
 * finished, as after a crash, without its first checkpoint, and extended. The chunks that a cursor
 * returns are compared with the list of all chunks.
 */
#include "tests/tools/chunks.h"
#include "tests/tools/rows.h"
#include "tests/unit/test.h"

#include <sys/mman.h>
#include <unistd.h>

#define EPOCHS 40u
#define ROUNDS 35u /* rounds per epoch */
#define ROWS 3u    /* rows per chunk */
#define RARE_EPOCH 17u

static const unsigned int tables[] = { PROF_TABLE_STRING, PROF_TABLE_STACK, PROF_TABLE_SAMPLE,
				       PROF_TABLE_SWITCH, PROF_TABLE_COUNTER_VALUE };

static int write_epoch(struct prof_writer *writer, uint32_t epoch)
{
	uint64_t first = (uint64_t)epoch * ROUNDS * ROWS;
	int r = 0;

	for (uint64_t i = 0; !r && i < ROUNDS; i++)
		for (size_t t = 0; !r && t < ARRAY_SIZE(tables); t++)
			r = rows_write(writer, prof_table_v1(tables[t]), first + i * ROWS, ROWS,
				       ROWS, prof_writer_first_epoch(writer) + epoch);
	if (!r && epoch == RARE_EPOCH)
		r = rows_write(writer, rows_foreign_table(), first, ROWS, ROWS,
			       prof_writer_first_epoch(writer) + epoch);
	return r;
}

static int make_capture(bool finish)
{
	const struct prof_writer_options options = { .segment.start_monotonic_ns = ROWS_START };
	int fd = memfd_create("capture", MFD_CLOEXEC);
	struct prof_writer *writer = NULL;
	int r = prof_writer_new(fd, &options, &writer);

	if (!r)
		r = prof_writer_add_table(writer, rows_foreign_table());
	for (uint32_t epoch = 0; !r && epoch < EPOCHS; epoch++)
		r = write_epoch(writer, epoch);
	if (!r && finish)
		r = prof_writer_finish(writer);
	prof_writer_free(writer);
	CHECK_INT(r, 0);
	return fd;
}

static bool wanted(const struct prof_chunk *chunk, const struct prof_cursor_options *options)
{
	bool all = options->t_from == 0 && options->t_to == 0;

	return chunk->table == options->table &&
	       (!options->epoch || chunk->epoch == options->epoch) &&
	       (!options->segment || chunk->segment == options->segment) &&
	       (all || (chunk->t_min <= options->t_to && chunk->t_max >= options->t_from));
}

/* Checks that a cursor returns the selected chunks of the list, in order. Returns the number of
 * these chunks, or SIZE_MAX if the cursor returns others. */
static size_t compare(const struct prof_reader *reader, const struct prof_chunk *chunks, size_t n,
		      const struct prof_cursor_options *options)
{
	struct prof_cursor *cursor = NULL;
	struct prof_batch batch;
	size_t at = 0, found = 0;
	int r = prof_cursor_new(reader, options, &cursor);

	while (!r && !(r = prof_cursor_next(cursor, &batch))) {
		while (at < n && !wanted(&chunks[at], options))
			at++;
		if (at == n || chunks[at].sequence != batch.sequence ||
		    chunks[at].rows != batch.rows || chunks[at].epoch != batch.epoch)
			break;
		at++;
		found++;
	}
	while (at < n && !wanted(&chunks[at], options))
		at++;
	prof_cursor_free(cursor);
	return r == PROF_END && at == n ? found : SIZE_MAX;
}

static void check_tables(const struct prof_reader *reader, const struct prof_chunk *chunks,
			 size_t n)
{
	struct prof_cursor_options options = { .table = rows_foreign_table()->id };

	CHECK_INT(compare(reader, chunks, n, &options), 1);
	options.segment = 2;
	CHECK_INT(compare(reader, chunks, n, &options), 0);
	options = (struct prof_cursor_options){ .table = PROF_TABLE_MARK };
	CHECK_INT(compare(reader, chunks, n, &options), 0);
	for (size_t t = 0; t < ARRAY_SIZE(tables); t++) {
		options.table = tables[t];
		CHECK_INT(compare(reader, chunks, n, &options), EPOCHS * ROUNDS);
	}
}

static void check_epochs(const struct prof_reader *reader, const struct prof_chunk *chunks,
			 size_t n)
{
	for (uint32_t epoch = 1; epoch <= EPOCHS + 1; epoch++) {
		const struct prof_cursor_options options = { .table = epoch % 2 ? PROF_TABLE_STRING
										: PROF_TABLE_SAMPLE,
							     .epoch = epoch };

		CHECK_INT(compare(reader, chunks, n, &options), epoch <= EPOCHS ? ROUNDS : 0);
	}
}

static void check_times(const struct prof_reader *reader, const struct prof_chunk *chunks, size_t n)
{
	for (uint64_t i = 0; i < EPOCHS * ROUNDS; i += 7) {
		struct prof_cursor_options options = { .table = PROF_TABLE_SAMPLE,
						       .t_from = rows_time(i * ROWS + 1),
						       .t_to = rows_time(i * ROWS + 1) };
		size_t found;

		CHECK_INT(compare(reader, chunks, n, &options), 1);
		options.t_to += 10 * ROWS * ROWS_STEP;
		found = compare(reader, chunks, n, &options);
		CHECK(found >= 1 && found <= 12);
	}
	CHECK_INT(compare(reader, chunks, n,
			  &(struct prof_cursor_options){ .table = PROF_TABLE_SAMPLE, .t_to = 1 }),
		  0);
	CHECK_INT(compare(reader, chunks, n,
			  &(struct prof_cursor_options){ .table = PROF_TABLE_SAMPLE,
							 .t_to = rows_time(0) }),
		  1);
	CHECK_INT(compare(reader, chunks, n,
			  &(struct prof_cursor_options){ .table = PROF_TABLE_SAMPLE,
							 .t_from = UINT64_MAX,
							 .t_to = UINT64_MAX }),
		  0);
}

static void check(int fd, enum prof_state state, bool indexed)
{
	CLEANUP_FREE struct prof_chunk *chunks = NULL;
	struct prof_reader *reader = NULL;
	size_t n;

	REQUIRE(prof_reader_open(fd, &reader) == 0);
	CHECK_INT(prof_reader_info(reader)->state, state);
	CHECK_INT(prof_reader_info(reader)->indexed, indexed);
	CHECK_INT(prof_reader_info(reader)->epochs, EPOCHS);
	chunks = chunks_of(reader, &n);
	CHECK_INT(n, EPOCHS * ROUNDS * ARRAY_SIZE(tables) + 1);
	for (size_t i = 1; i < n; i++)
		if (!CHECK(chunks[i].offset > chunks[i - 1].offset &&
			   chunks[i].sequence > chunks[i - 1].sequence))
			break;
	check_tables(reader, chunks, n);
	check_epochs(reader, chunks, n);
	check_times(reader, chunks, n);
	prof_reader_free(reader);
}

static void finished(void)
{
	CLEANUP_CLOSE int fd = make_capture(true);

	check(fd, PROF_STATE_FINISHED, true);
}

static void crashed(void)
{
	CLEANUP_CLOSE int fd = make_capture(false);

	check(fd, PROF_STATE_UNFINISHED, true);
}

static void without_first_checkpoint(void)
{
	CLEANUP_CLOSE int fd = make_capture(false);

	REQUIRE(pwrite(fd, "x", 1, 256) == 1);
	check(fd, PROF_STATE_DAMAGED, false);
}

static void appended(void)
{
	const struct prof_writer_options options = { .mode = PROF_WRITE_EXTEND };
	CLEANUP_CLOSE int fd = make_capture(false);
	struct prof_writer *writer = NULL;

	REQUIRE(prof_writer_new(fd, &options, &writer) == 0);
	CHECK_INT(prof_writer_finish(writer), 0);
	prof_writer_free(writer);
	check(fd, PROF_STATE_FINISHED, true);
}

int main(void)
{
	RUN(finished);
	RUN(crashed);
	RUN(without_first_checkpoint);
	RUN(appended);
	return test_end();
}
