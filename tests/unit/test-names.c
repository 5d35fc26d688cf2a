/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of names and symbol-rows: identities across epochs, lost rows, forged ids, and the symbol
 * at an offset.
 */
#include "tests/tools/chunks.h"
#include "tests/unit/build-capture.h"
#include "tests/unit/test.h"
#include "tools/symbols/symbol-rows.h"

static void image(struct build *build, uint64_t id, uint64_t path, uint64_t inode)
{
	BUILD(build, PROF_TABLE_IMAGE, N(id), N(path), PROF_BYTES("\x01\xab", 2), N(10), N(1),
	      N(inode), N(PROF_IMAGE_FILE), N(5), N(0));
}

static void process(struct build *build, uint64_t id, uint64_t pid, uint64_t generation)
{
	BUILD(build, PROF_TABLE_PROCESS, N(id), N(pid), N(1), N(77), N(generation),
	      PROF_BYTES(NULL, 0), N(0), N(0), N(0), PROF_BYTES(NULL, 0));
}

static void thread(struct build *build, uint64_t id, uint64_t of, uint64_t tid, uint64_t comm)
{
	BUILD(build, PROF_TABLE_THREAD, N(id), N(of), N(tid), N(77), N(comm), PROF_BYTES(NULL, 0));
}

static void symbol(struct build *build, uint64_t id, uint64_t start, uint64_t length, uint64_t name)
{
	BUILD(build, PROF_TABLE_SYMBOL, N(id), N(1), N(start), N(length), N(name), N(0), N(0), N(0),
	      N(0));
}

/* Ids have different meanings in each epoch. */
static void two_epochs(struct build *build)
{
	build_begin(build);
	build_text(build, 1, "/lib/a.so");
	build_text(build, 2, "first");
	image(build, 1, 1, 5);
	process(build, 1, 100, 0);
	thread(build, 1, 1, 101, 2);
	build_next_epoch(build);
	build_text(build, 1, "second");
	build_text(build, 9, "/lib/a.so");
	image(build, 1, 9, 6); /* the same path, but another file */
	image(build, 2, 9, 5);
	process(build, 4, 100, 0);
	process(build, 5, 100, 1); /* after exec */
	thread(build, 7, 4, 101, 1);
	thread(build, 8, 5, 101, 1);
	build_finish(build);
}

static struct prof_reader *open_reader(const struct build *build)
{
	struct prof_reader *reader;
	int r = prof_reader_open(build->fd, &reader);

	assert(r == 0);
	return reader;
}

static struct names_epoch *load(struct names *names, uint32_t number)
{
	struct names_epoch *epoch = names_epoch(names, number, NULL);

	assert(epoch);
	return epoch;
}

static void test_epochs(void)
{
	struct build build;
	struct prof_reader *reader;
	struct names *names;
	uint32_t first, image_index, thread_index;

	two_epochs(&build);
	reader = open_reader(&build);
	first = chunks_first_epoch(reader);
	names = names_new(reader);
	image_index = names_image(load(names, first), 1);
	thread_index = names_thread(load(names, first), 1);
	CHECK_STR(names_text(load(names, first), 2), "first");
	CHECK_STR(names_text(load(names, first + 1), 1), "second");
	CHECK_INT(names_image(load(names, first + 1), 2), image_index);
	CHECK(names_image(load(names, first + 1), 1) != image_index);
	CHECK_INT(names_thread(load(names, first + 1), 7), thread_index);
	CHECK(names_thread(load(names, first + 1), 8) != thread_index);
	CHECK_STR(names_thread_at(names, thread_index)->comm, "second");
	CHECK_STR(names_image_at(names, image_index)->build_id, "01ab");
	CHECK_INT(names_process_at(names, names_thread_at(names, thread_index)->process)->pid, 100);
	CHECK_INT(names->lost, 0);
	/* A third, empty epoch evicts the least recently used one. */
	(void)load(names, first + 9);
	CHECK_INT(names->epochs->len, 2);
	CHECK_INT(((const struct names_epoch *)names->epochs->pdata[0])->epoch, first + 1);
	CHECK_INT(names_image(load(names, first), 1), image_index);
	names_forget(names);
	CHECK_INT(names_identities(names), 6);
	CHECK_INT(names_thread(load(names, first), 1), NAMES_LOST + 1);
	CHECK_STR(names_thread_at(names, NAMES_LOST + 1)->comm, "first");
	CHECK_INT(names_thread(load(names, first + 1), 7), NAMES_LOST + 1);
	CHECK_INT(names->lost, 0);
	names_free(names);
	prof_reader_free(reader);
	build_done(&build);
}

/* While a batch is processed, loads three other epochs, and once calls names_each_batch()
 * itself. */
static bool take_and_load(struct names_epoch *epoch, const struct prof_batch *batch, void *data,
			  GError **error)
{
	unsigned *depth = data;
	const struct prof_cursor_options options = { .table = PROF_TABLE_IMAGE };

	for (uint32_t i = 7; i < 10; i++)
		(void)load(epoch->names, batch->epoch + i);
	if ((*depth)++ == 0 &&
	    !names_each_batch(epoch->names, &options, take_and_load, depth, error))
		return false;
	for (uint32_t i = 7; i < 10; i++)
		(void)load(epoch->names, batch->epoch + i);
	CHECK_INT(epoch->epoch, batch->epoch);
	CHECK(epoch->tables[NAMES_STRING] != NULL);
	CHECK(names_row(epoch, NAMES_STRING, 1) >= 0);
	return true;
}

static void test_each_batch(void)
{
	const struct prof_cursor_options options = { .table = PROF_TABLE_THREAD };
	struct build build;
	struct prof_reader *reader;
	struct names *names;
	unsigned depth = 0;

	two_epochs(&build);
	reader = open_reader(&build);
	names = names_new(reader);
	CHECK(names_each_batch(names, &options, take_and_load, &depth, NULL));
	CHECK_INT(depth, 4);
	/* Afterwards, only the two epochs used last are kept. */
	(void)load(names, chunks_first_epoch(reader) + 20);
	CHECK_INT(names->epochs->len, 2);
	names_free(names);
	prof_reader_free(reader);
	build_done(&build);
}

static void file(struct build *build, uint64_t id, uint64_t path, uint64_t size, uint64_t inode)
{
	BUILD(build, PROF_TABLE_IMAGE, N(id), N(path), PROF_BYTES("\x01\xab", 2), N(size),
	      N(inode ? 1 : 0), N(inode), N(PROF_IMAGE_FILE), N(5), N(0));
}

/* Rows of one file are one image, whether they come from records or from snapshots, and whether
 * they were made before or after the file was opened. */
static void test_one_file(void)
{
	struct build build;
	struct prof_reader *reader;
	struct names *names;
	struct names_epoch *epoch;
	uint32_t index;

	build_begin(&build);
	build_text(&build, 1, "/lib/a.so");
	build_text(&build, 2, "/lib/b.so");
	file(&build, 1, 1, 0, 0);  /* with only the build-id */
	file(&build, 2, 1, 0, 5);  /* with device and inode, too */
	file(&build, 3, 1, 10, 5); /* as opened by profd-files */
	file(&build, 4, 1, 0, 0);
	file(&build, 5, 1, 10, 6); /* in a container */
	file(&build, 6, 2, 10, 5); /* another path */
	build_finish(&build);
	reader = open_reader(&build);
	/* in any order: a reader that begins at the table's end finds the container's row first */
	for (unsigned backwards = 0; backwards < 2; backwards++) {
		names = names_new(reader);
		epoch = load(names, chunks_first_epoch(reader));
		for (uint64_t id = 1; id <= 6; id++)
			(void)names_image(epoch, backwards ? 7 - id : id);
		index = names_image(epoch, 3);
		CHECK_INT(names_image(epoch, 2), index);
		CHECK_INT(names_image(epoch, 4), names_image(epoch, 1));
		CHECK_INT(names_image(epoch, 1), names_image(epoch, backwards ? 5 : 3));
		CHECK(names_image(epoch, 5) != index && names_image(epoch, 6) != index);
		CHECK_INT(names_image_at(names, index)->id, 3);
		CHECK_INT(names_image_at(names, index)->size, 10);
		CHECK_INT(names_image_at(names, index)->inode, 5);
		CHECK_INT(names->images->len, 2 + 3);
		names_free(names);
	}
	prof_reader_free(reader);
	build_done(&build);
}

static void test_hostile(void)
{
	static const uint64_t ids[] = { 2, 77, UINT32_MAX, UINT64_MAX };
	struct build build;
	struct prof_reader *reader;
	struct names *names;
	struct names_epoch *epoch;

	build_begin(&build);
	BUILD(&build, PROF_TABLE_STRING, N(1), PROF_BYTES("a\0b", 3));
	image(&build, 1, UINT64_MAX, 5);
	thread(&build, 1, 999, 5, 1);
	build_finish(&build);
	reader = open_reader(&build);
	names = names_new(reader);
	epoch = load(names, chunks_first_epoch(reader));
	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		CHECK_INT(names_image(epoch, ids[i]), NAMES_LOST);
		CHECK_INT(names_thread(epoch, ids[i]), NAMES_LOST);
		CHECK_STR(names_text(epoch, ids[i]), NAMES_LOST_TEXT);
	}
	CHECK_INT(names->lost, 12);
	CHECK(names_text(epoch, 0) == NULL);
	CHECK_INT(names_thread(epoch, 0), NAMES_NONE);
	CHECK_INT(names->lost, 12);
	CHECK_STR(names_text(epoch, 1), "a b");
	CHECK_STR(names_image_at(names, names_image(epoch, 1))->path, NAMES_LOST_TEXT);
	CHECK_INT(names_thread_at(names, names_thread(epoch, 1))->process, NAMES_LOST);
	names_free(names);
	prof_reader_free(reader);
	build_done(&build);
}

static const char *name_at(const struct symbol_rows *rows, uint32_t image_index, uint64_t offset)
{
	const struct symbol_row *row = symbol_rows_find(rows, image_index, offset);

	return row ? row->name : NULL;
}

static void test_symbols(void)
{
	struct build build;
	struct prof_reader *reader;
	struct names *names;
	struct symbol_rows *rows;
	uint32_t index;

	build_begin(&build);
	build_text(&build, 1, "/lib/a.so");
	image(&build, 1, 1, 5);
	build_next_epoch(&build);
	build_text(&build, 1, "/lib/a.so");
	build_text(&build, 2, "outer");
	build_text(&build, 3, "inner");
	build_text(&build, 4, "open end");
	build_text(&build, 5, "last");
	image(&build, 1, 1, 5);
	symbol(&build, 1, 300, 0, 4);
	symbol(&build, 2, 100, 100, 2);
	symbol(&build, 3, 120, 10, 3);
	symbol(&build, 4, 400, 10, 5);
	symbol(&build, 5, 100, 100, 2); /* the same symbol again */
	symbol(&build, 6, 500, 10, 99); /* its name is lost */
	BUILD(&build, PROF_TABLE_SYMBOL, N(7), N(77), N(0), N(UINT64_MAX), N(2), N(0), N(0), N(0),
	      N(0)); /* its image is lost */
	BUILD(&build, PROF_TABLE_SYMBOL, N(8), N(1), N(0), N(UINT64_MAX), N(3), N(0), N(0), N(0),
	      N(2)); /* inlined */
	build_finish(&build);
	reader = open_reader(&build);
	names = names_new(reader);
	rows = symbol_rows_load(names, NULL);
	REQUIRE(rows != NULL);
	index = names_image(load(names, chunks_first_epoch(reader)), 1);
	CHECK_STR(name_at(rows, index, 99), NULL);
	CHECK_STR(name_at(rows, index, 100), "outer");
	CHECK_STR(name_at(rows, index, 120), "inner");
	CHECK_STR(name_at(rows, index, 130), "outer");
	CHECK_STR(name_at(rows, index, 199), "outer");
	CHECK_STR(name_at(rows, index, 200), NULL);
	CHECK_STR(name_at(rows, index, 399), "open end");
	CHECK_STR(name_at(rows, index, 400), "last");
	CHECK_STR(name_at(rows, index, 410), NULL);
	CHECK_STR(name_at(rows, index, 505), NAMES_LOST_TEXT);
	CHECK_STR(name_at(rows, index, UINT64_MAX), NULL);
	CHECK_STR(name_at(rows, 12345, 100), NULL);
	symbol_rows_free(rows);
	names_free(names);
	prof_reader_free(reader);
	build_done(&build);
}

int main(void)
{
	RUN(test_epochs);
	RUN(test_each_batch);
	RUN(test_one_file);
	RUN(test_hostile);
	RUN(test_symbols);
	return test_end();
}
