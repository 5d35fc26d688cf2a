/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of symbolize on a capture with samples in functions of this program.
 */
#include "tests/tools/chunks.h"
#include "tests/unit/build-capture.h"
#include "tests/unit/test.h"
#include "tools/symbols/symbol-rows.h"
#include "tools/symbols/symbolize.h"

#include <link.h>
#include <sys/stat.h>

#define SELF "/proc/self/exe"

/* Two functions with symbols, for the samples. */
__attribute__((noinline, used)) static int first_function(int n)
{
	return n * 3 + 1;
}

__attribute__((noinline, used)) static int second_function(int n)
{
	return n ^ 0x55;
}

/* An address, and the offset that the kernel computes for the address from its segment. */
struct place {
	uint64_t address;
	uint64_t offset;
};

static int find_place(struct dl_phdr_info *info, size_t size, void *data)
{
	struct place *place = data;

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
		uint64_t start = info->dlpi_addr + segment->p_vaddr;

		if (segment->p_type == PT_LOAD && place->address - start < segment->p_memsz)
			place->offset = place->address - start + segment->p_offset;
	}
	return 1; /* the program itself is the first object */
}

static uint64_t offset_of(int (*function)(int))
{
	struct place place = { .address = (uint64_t)(uintptr_t)function };

	dl_iterate_phdr(find_place, &place);
	return place.offset;
}

static void image(struct build *build, uint64_t id, uint64_t size, unsigned kind)
{
	struct stat status;
	int r = stat(SELF, &status);

	assert(r == 0);
	BUILD(build, PROF_TABLE_IMAGE, N(id), N(1), PROF_BYTES(NULL, 0),
	      N(size ? size : (uint64_t)status.st_size), N(status.st_dev), N(status.st_ino),
	      N(kind), N(status.st_ctim.tv_sec * 1000000000 + status.st_ctim.tv_nsec), N(0));
}

struct opened {
	unsigned count;
	const char *path;
};

static int open_self(const struct names_image *wanted, void *data)
{
	struct opened *opened = data;

	opened->count++;
	CHECK(wanted->id != 0 && wanted->epoch != 0);
	return opened->path ? open(opened->path, O_RDONLY | O_CLOEXEC) : -1;
}

static bool symbolize(int fd, struct opened *opened, struct symbolize_result *ret_result,
		      GError **error)
{
	const struct symbolize_sources sources = { open_self, opened, NULL };

	return symbolize_capture(fd, &sources, ret_result, error);
}

/* Two epochs have the same two places in a file, but different ids for the file. The second place
 * is a return address. Both epochs also have a kernel image. */
static void capture_of_self(struct build *build, uint64_t size)
{
	build_begin(build);
	for (unsigned epoch = 0; epoch < 2; epoch++) {
		build_text(build, 1, SELF);
		image(build, 5 + epoch, size, PROF_IMAGE_FILE);
		image(build, 9, size, PROF_IMAGE_KERNEL);
		BUILD(build, PROF_TABLE_FRAME, N(1), N(5 + epoch), N(offset_of(first_function)),
		      N(PROF_FRAME_EXACT));
		BUILD(build, PROF_TABLE_FRAME, N(2), N(5 + epoch),
		      N(offset_of(second_function) + 1), N(PROF_FRAME_RETURN));
		BUILD(build, PROF_TABLE_FRAME, N(3), N(9), N(0x1234), N(PROF_FRAME_EXACT));
		if (epoch == 0)
			build_next_epoch(build);
	}
	build_finish(build);
}

static const char *name_of(const struct build *build, uint64_t offset)
{
	static char name[64];
	struct prof_reader *reader;
	struct names *names;
	struct symbol_rows *rows;
	const struct symbol_row *row;
	struct names_epoch *epoch;

	if (prof_reader_open(build->fd, &reader) != 0)
		return NULL;
	names = names_new(reader);
	rows = symbol_rows_load(names, NULL);
	epoch = names_epoch(names, chunks_first_epoch(reader), NULL);
	CHECK(epoch);
	row = symbol_rows_find(rows, names_image(epoch, 5), offset);
	snprintf(name, sizeof(name), "%s", row ? row->name : "");
	symbol_rows_free(rows);
	names_free(names);
	prof_reader_free(reader);
	return name;
}

/* One file has two rows: the row from a mapping record may have only the build-id; the row from a
 * snapshot also has device and inode. */
static void test_two_rows(void)
{
	struct build build;
	struct opened opened = { .path = SELF };
	struct symbolize_result result;

	build_begin(&build);
	build_text(&build, 1, SELF);
	for (uint64_t id = 1; id <= 2; id++) {
		BUILD(&build, PROF_TABLE_IMAGE, N(id), N(1), PROF_BYTES("\x01\xab", 2), N(0),
		      N(id - 1), N(id - 1), N(PROF_IMAGE_FILE), N(0), N(0));
		BUILD(&build, PROF_TABLE_FRAME, N(id), N(id), N(0x1000), N(PROF_FRAME_EXACT));
	}
	build_finish(&build);
	REQUIRE(symbolize(build.fd, &opened, &result, NULL));
	CHECK_INT(opened.count, 1);
	CHECK_INT(result.images, 1);
	CHECK_INT(result.places, 1);
	symbolize_result_done(&result);
	build_done(&build);
}

static void test_named(void)
{
	struct build build;
	struct opened opened = { .path = SELF };
	struct symbolize_result result;
	GError *error = NULL;

	capture_of_self(&build, 0);
	REQUIRE(symbolize(build.fd, &opened, &result, &error));
	CHECK_INT(opened.count, 1);
	CHECK_INT(result.places, 2);
	CHECK_INT(result.named, 2);
	CHECK_INT(result.symbols, 2);
	CHECK_INT(result.changed->len + result.missing->len, 0);
	CHECK_STR(name_of(&build, offset_of(first_function)), "first_function");
	CHECK_STR(name_of(&build, offset_of(second_function)), "second_function");
	symbolize_result_done(&result);
	build_done(&build);
}

static void test_twice(void)
{
	struct build build;
	struct opened opened = { .path = SELF };
	struct symbolize_result result;
	struct stat before, after;

	capture_of_self(&build, 0);
	REQUIRE(symbolize(build.fd, &opened, &result, NULL));
	symbolize_result_done(&result);
	CHECK_INT(fstat(build.fd, &before), 0);
	REQUIRE(symbolize(build.fd, &opened, &result, NULL));
	CHECK_INT(fstat(build.fd, &after), 0);
	CHECK_INT(opened.count, 1);
	CHECK_INT(result.places, 0);
	CHECK_INT(after.st_size, before.st_size);
	symbolize_result_done(&result);
	build_done(&build);
}

static void test_changed_and_missing(void)
{
	struct build build;
	struct opened self = { .path = SELF }, nothing = { 0 },
		      text = { .path = "/proc/self/stat" };
	struct symbolize_result result;

	capture_of_self(&build, 12345);
	REQUIRE(symbolize(build.fd, &self, &result, NULL));
	CHECK_INT(result.named, 0);
	CHECK_INT(result.changed->len, 1);
	symbolize_result_done(&result);
	build_done(&build);

	capture_of_self(&build, 0);
	REQUIRE(symbolize(build.fd, &nothing, &result, NULL));
	CHECK_INT(result.missing->len, 1);
	symbolize_result_done(&result);
	REQUIRE(symbolize(build.fd, &text, &result, NULL));
	CHECK_INT(result.named, 0);
	CHECK_INT(result.missing->len + result.changed->len, 1);
	symbolize_result_done(&result);
	build_done(&build);
}

static void test_not_a_capture(void)
{
	struct symbolize_result result;
	g_autoptr(GError) error = NULL;
	int fd = memfd_create("empty", MFD_CLOEXEC);

	CHECK(!symbolize(fd, NULL, &result, &error));
	CHECK(error != NULL);
	close(fd);
}

/* Forged calls are their own parents, or have a parent that comes later or does not exist. Forged
 * lines refer to a missing call, have no bytes, are duplicated, or are beyond the end. */
static void test_lines_that_lie(void)
{
	enum { CALLS = 2000 };
	struct build build;
	struct prof_reader *reader;
	struct names *names;
	struct names_epoch *epoch;
	struct symbol_rows *rows;
	uint32_t file;

	build_begin(&build);
	build_text(&build, 1, SELF);
	image(&build, 5, 0, PROF_IMAGE_FILE);
	for (unsigned i = 1; i <= CALLS; i++)
		BUILD(&build, PROF_TABLE_SYMBOL, N(i), N(5), N(i), N(1), N(1), N(0), N(0), N(i),
		      N(i % 10 == 0   ? i
			: i % 10 == 1 ? i + 1
			: i % 10 == 2 ? 100000
				      : i - 1));
	for (unsigned i = 1; i <= CALLS; i++)
		BUILD(&build, PROF_TABLE_LINE, N(i), N(5), N(8 * i), N(i % 7 ? 8 : 0), N(1), N(i),
		      N(i % 5 ? i : i + 5000));
	BUILD(&build, PROF_TABLE_LINE, N(CALLS + 1), N(5), N(8), N(8), N(1), N(77), N(0));
	BUILD(&build, PROF_TABLE_LINE, N(CALLS + 2), N(5), N(UINT64_MAX - 3), N(100), N(1), N(78),
	      N(3));
	build_finish(&build);
	REQUIRE(prof_reader_open(build.fd, &reader) == 0);
	names = names_new(reader);
	rows = symbol_rows_load(names, NULL);
	REQUIRE(rows != NULL);
	epoch = names_epoch(names, chunks_first_epoch(reader), NULL);
	CHECK(epoch);
	file = names_image(epoch, 5);
	CHECK_INT(symbol_rows_line(rows, file, 8)->line, 77);
	CHECK(symbol_rows_line(rows, file, 7) == NULL);
	CHECK(symbol_rows_line(rows, file, 8 * 7) == NULL);
	CHECK_INT(symbol_rows_line(rows, file, UINT64_MAX)->line, 78);
	CHECK(symbol_rows_line(rows, file + 1, 8) == NULL);
	for (unsigned i = 2; i <= CALLS; i++) {
		const struct line_row *line = symbol_rows_line(rows, file, 8 * i);
		unsigned depth = 0;

		for (uint32_t call = line ? line->call : 0; call != 0; depth++) {
			uint32_t parent = symbol_rows_call(rows, call)->parent;

			CHECK(parent < call);
			call = parent;
		}
		CHECK(depth <= 10);
	}
	symbol_rows_free(rows);
	names_free(names);
	prof_reader_free(reader);
	build_done(&build);
}

/* Three epochs have the same ids, and the middle one has no lines. struct names keeps only two
 * epochs. */
static void test_calls_of_epochs(void)
{
	static const char *const texts[] = { "first", "second", "third" };
	struct build build;
	struct prof_reader *reader;
	struct names *names;
	struct names_epoch *epoch;
	struct symbol_rows *rows;
	uint32_t file;

	build_begin(&build);
	for (unsigned i = 0; i < ARRAY_SIZE(texts); i++) {
		build_text(&build, 1, SELF);
		build_text(&build, 2, texts[i]);
		image(&build, 5, 0, PROF_IMAGE_FILE);
		BUILD(&build, PROF_TABLE_SYMBOL, N(1), N(5), N(8 * i + 8), N(8), N(1), N(0), N(0),
		      N(1), N(0));
		BUILD(&build, PROF_TABLE_SYMBOL, N(2), N(5), N(8 * i + 8), N(8), N(2), N(0), N(0),
		      N(2), N(1));
		if (i != 1)
			BUILD(&build, PROF_TABLE_LINE, N(1), N(5), N(8 * i + 8), N(8), N(1), N(7),
			      N(2));
		if (i < 2)
			build_next_epoch(&build);
	}
	build_finish(&build);
	REQUIRE(prof_reader_open(build.fd, &reader) == 0);
	names = names_new(reader);
	rows = symbol_rows_load(names, NULL);
	REQUIRE(rows != NULL);
	epoch = names_epoch(names, chunks_first_epoch(reader), NULL);
	CHECK(epoch);
	file = names_image(epoch, 5);
	for (unsigned i = 0; i < ARRAY_SIZE(texts); i += 2) {
		const struct line_row *line = symbol_rows_line(rows, file, 8 * i + 8);

		REQUIRE(line && line->call);
		CHECK(strcmp(symbol_rows_call(rows, line->call)->name, texts[i]) == 0);
	}
	symbol_rows_free(rows);
	names_free(names);
	prof_reader_free(reader);
	build_done(&build);
}

/* Each call is inlined into the previous one. The lines begin with the outermost call, so each call
 * extends a cached chain, which must not become too long. */
static void test_chain_without_end(void)
{
	enum { CALLS = 2000 };
	struct build build;
	struct prof_reader *reader;
	struct names *names;
	struct symbol_rows *rows;
	uint32_t file, depth = 0;

	build_begin(&build);
	build_text(&build, 1, SELF);
	image(&build, 5, 0, PROF_IMAGE_FILE);
	for (unsigned i = 1; i <= CALLS; i++)
		BUILD(&build, PROF_TABLE_SYMBOL, N(i), N(5), N(i), N(1), N(1), N(0), N(0), N(i),
		      N(i - 1));
	for (unsigned i = 1; i <= CALLS; i++)
		BUILD(&build, PROF_TABLE_LINE, N(i), N(5), N(8 * i), N(8), N(1), N(i), N(i));
	build_finish(&build);
	REQUIRE(prof_reader_open(build.fd, &reader) == 0);
	names = names_new(reader);
	rows = symbol_rows_load(names, NULL);
	REQUIRE(rows != NULL);
	file = names_image(names_epoch(names, chunks_first_epoch(reader), NULL), 5);
	for (unsigned i = 2; i <= CALLS; i++) {
		uint32_t call = symbol_rows_line(rows, file, 8 * i)->call;

		CHECK(call != 0);
		for (depth = 0; call != 0; depth++)
			call = symbol_rows_call(rows, call)->parent;
		CHECK(depth <= SYMBOL_ROWS_MAX_CALLS);
	}
	CHECK(depth > 0);
	symbol_rows_free(rows);
	names_free(names);
	prof_reader_free(reader);
	build_done(&build);
}

int main(void)
{
	RUN(test_two_rows);
	RUN(test_named);
	RUN(test_twice);
	RUN(test_changed_and_missing);
	RUN(test_not_a_capture);
	RUN(test_lines_that_lie);
	RUN(test_calls_of_epochs);
	RUN(test_chain_without_end);
	return test_end();
}
