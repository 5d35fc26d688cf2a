/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Reads the example of docs/format.md with the library
 *
 * The bytes are taken from section 16 of that page, which explains the format of its lines.
 *
 * Promises:
 * - the example is finished and undamaged, and is opened with its index [opens]
 * - the example has the tables, the segment and the rows that the text states [rows]
 * - the example can also be opened without its trailer, with the same rows [cut]
 */
#include "arch/base.h"
#include "libcapture/prof-capture.h"
#include "tests/unit/test.h"

#include <stdlib.h>
#include <sys/mman.h>

#define EXAMPLE_MAX 8192
#define TRAILER_BYTES 96

static uint8_t example[EXAMPLE_MAX];
static size_t example_bytes;

/* Parses "= FROM N" (repeats the N bytes at FROM), "00 x N" (N zeros), or hexadecimal bytes. */
static bool parse_bytes(const char *text, const char *end)
{
	unsigned int from, n;
	char *next;

	if (sscanf(text, " = %x %u", &from, &n) == 2 || sscanf(text, " 00 x %u", &n) == 1) {
		bool zeros = !memchr(text, '=', (size_t)(end - text));

		if (n > EXAMPLE_MAX - example_bytes ||
		    (!zeros && (from > example_bytes || n > example_bytes - from)))
			return false;
		if (!zeros)
			memcpy(example + example_bytes, example + from, n);
		example_bytes += n;
		return true;
	}
	while (text < end) {
		unsigned long byte = strtoul(text, &next, 16);

		if (next == text || next > end)
			break;
		if (byte > 255 || example_bytes == EXAMPLE_MAX)
			return false;
		example[example_bytes++] = (uint8_t)byte;
		text = next;
	}
	return true;
}

/* Parses a line "OFFSET  BYTES  | description". */
static bool parse_line(const char *line)
{
	const char *end = strchr(line, '|');
	char *bytes;

	if (line[0] == '#')
		return true;
	if (strtoul(line, &bytes, 16) != example_bytes || bytes == line)
		return false;
	return parse_bytes(bytes, end ? end : line + strlen(line));
}

static bool parse_document(FILE *document)
{
	char line[512];
	bool inside = false;

	while (fgets(line, sizeof(line), document)) {
		if (inside && strncmp(line, "```", 3) == 0)
			return true;
		if (inside && !CHECK(parse_line(line))) {
			printf("# line: %s", line);
			return false;
		}
		inside = inside || strcmp(line, "```text\n") == 0;
	}
	return false;
}

static bool load_example(void)
{
	const char *source = getenv("PROF_SOURCE_DIR");
	char path[4096];
	FILE *document;
	bool found;

	if (example_bytes > 0)
		return true;
	snprintf(path, sizeof(path), "%s/docs/format.md", source ? source : ".");
	document = fopen(path, "re");
	if (!CHECK(document != NULL))
		return false;
	found = CHECK(parse_document(document));
	fclose(document);
	return found;
}

static struct prof_reader *open_example(size_t bytes)
{
	CLEANUP_CLOSE int fd = memfd_create("example", MFD_CLOEXEC);
	struct prof_reader *reader = NULL;

	if (!load_example() || !CHECK(bytes <= example_bytes) ||
	    !CHECK(write(fd, example, example_bytes - bytes) == (ssize_t)(example_bytes - bytes)) ||
	    !CHECK_INT(prof_reader_open(fd, &reader), 0))
		return NULL;
	return reader;
}

static int fail_on_damage(const struct prof_damage *damage, void *data)
{
	printf("# damage at %" PRIu64 ": %s\n", damage->offset,
	       prof_damage_reason_name(damage->reason));
	return PROF_DAMAGED;
}

static void opens(void)
{
	struct prof_reader *reader = open_example(0);
	const struct prof_reader_info *info;
	uint64_t chunks, good;

	REQUIRE(reader);
	info = prof_reader_info(reader);
	CHECK_INT(info->state, PROF_STATE_FINISHED);
	CHECK(info->indexed);
	CHECK_INT(info->bytes, 2480);
	CHECK_INT(info->incompat, 0);
	CHECK_INT(info->uuid[0], 0xa0);
	CHECK_INT(info->uuid[15], 0xaf);
	CHECK_INT(prof_reader_verify(reader, fail_on_damage, NULL, &chunks, &good), 0);
	CHECK_INT(chunks, 6);
	CHECK_INT(good, 6);
	prof_reader_free(reader);
}

static bool bytes_are(const struct prof_array *array, size_t row, const char *text)
{
	uint64_t from = array->offsets[row], to = array->offsets[row + 1];

	return to - from == strlen(text) && memcmp(array->bytes + from, text, to - from) == 0;
}

static void check_metadata(const struct prof_reader *reader)
{
	struct prof_cursor_options options = { .table = PROF_TABLE_METADATA };
	struct prof_cursor *cursor = NULL;
	struct prof_batch batch;

	REQUIRE(prof_cursor_new(reader, &options, &cursor) == 0);
	if (CHECK_INT(prof_cursor_next(cursor, &batch), 0) && CHECK_INT(batch.rows, 2)) {
		CHECK_INT(batch.columns[PROF_METADATA_TIME].numbers[0], 1000000500);
		CHECK_INT(batch.columns[PROF_METADATA_TIME].numbers[1], 1000000750);
		CHECK(bytes_are(&batch.columns[PROF_METADATA_KEY], 0, "host"));
		CHECK(bytes_are(&batch.columns[PROF_METADATA_KEY], 1, "arch"));
		CHECK(bytes_are(&batch.columns[PROF_METADATA_VALUE], 0, "example"));
		CHECK(bytes_are(&batch.columns[PROF_METADATA_VALUE], 1, "x86-64"));
		CHECK_INT(batch.segment, 1);
		CHECK_INT(batch.epoch, 1);
		CHECK_INT(prof_cursor_next(cursor, &batch), PROF_END);
	}
	prof_cursor_free(cursor);
}

static void check_rows(const struct prof_reader *reader)
{
	struct prof_dictionary *strings = NULL;
	const struct prof_segment *segments;
	size_t n;

	(void)prof_reader_tables(reader, &n);
	CHECK_INT(n, 2);
	segments = prof_reader_segments(reader, &n);
	REQUIRE(CHECK_INT(n, 1));
	CHECK_INT(segments[0].start_monotonic_ns, 1000000000);
	CHECK_INT(segments[0].wall_ns, INT64_C(1700000000000000000));
	CHECK_INT(segments[0].wall_error_ns, 50);
	REQUIRE(prof_dictionary_load(reader, PROF_TABLE_STRING, 1, NULL, 0, &strings) == 0);
	CHECK_INT(prof_dictionary_rows(strings), 1);
	if (CHECK_INT(prof_dictionary_find(strings, 1), 0))
		CHECK(bytes_are(prof_dictionary_column(strings, PROF_STRING_TEXT), 0, "hello"));
	CHECK_INT(prof_dictionary_find(strings, 2), -1);
	prof_dictionary_free(strings);
	check_metadata(reader);
}

static void rows(void)
{
	struct prof_reader *reader = open_example(0);

	REQUIRE(reader);
	check_rows(reader);
	prof_reader_free(reader);
}

static void cut(void)
{
	struct prof_reader *reader = open_example(TRAILER_BYTES);

	REQUIRE(reader);
	CHECK_INT(prof_reader_info(reader)->state, PROF_STATE_UNFINISHED);
	check_rows(reader);
	prof_reader_free(reader);
}

int main(void)
{
	RUN(opens);
	RUN(rows);
	RUN(cut);
	return test_end();
}
