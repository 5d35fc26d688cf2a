/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * print-rows - prints every row of a capture as the library decodes it, with unresolved references
 *
 * One line per row: table, epoch, and the columns, separated by tabs. Numbers are decimal, bytes
 * are x and hex digits, a list is [1,2], - is null, and ~ is a column that the row group does not
 * have.
 */
#include "arch/base.h"
#include "libcapture/prof-capture.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>

static void print_cell(const struct prof_array *array, size_t row)
{
	uint64_t from = array->offsets ? array->offsets[row] : row;
	uint64_t to = array->offsets ? array->offsets[row + 1] : row + 1;

	if (!array->numbers && !array->bytes) {
		printf("\t~");
	} else if (array->nulls && array->nulls[row]) {
		printf("\t-");
	} else if (array->bytes) {
		printf("\tx");
		for (; from < to; from++)
			printf("%02x", array->bytes[from]);
	} else if (array->offsets) {
		printf("\t[");
		for (uint64_t i = from; i < to; i++)
			printf("%s%" PRIu64, i > from ? "," : "", array->numbers[i]);
		printf("]");
	} else {
		printf("\t%" PRIu64, array->numbers[row]);
	}
}

static int print_table(const struct prof_reader *reader, const struct prof_table_def *def)
{
	const struct prof_cursor_options options = { .table = def->id };
	struct prof_cursor *cursor;
	struct prof_batch batch;
	int r = prof_cursor_new(reader, &options, &cursor);

	if (r)
		return r;
	while (!(r = prof_cursor_next(cursor, &batch))) {
		for (size_t i = 0; i < batch.rows; i++) {
			printf("%s\t%" PRIu32, def->name, batch.epoch);
			for (size_t c = 0; c < def->n_columns; c++)
				print_cell(&batch.columns[c], i);
			printf("\n");
		}
	}
	prof_cursor_free(cursor);
	return r == PROF_END ? 0 : r;
}

static int print_file(const char *path)
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	const struct prof_table_def *const *tables;
	struct prof_reader *reader;
	size_t n;
	int r = fd < 0 ? -errno : prof_reader_open(fd, &reader);

	if (r)
		return r;
	tables = prof_reader_tables(reader, &n);
	for (size_t i = 0; !r && i < n; i++)
		r = print_table(reader, tables[i]);
	prof_reader_free(reader);
	return r;
}

int main(int argc, char **argv)
{
	int r;

	if (argc != 2) {
		fprintf(stderr, "Usage: print-rows FILE\n");
		return 2;
	}
	r = print_file(argv[1]);
	if (r)
		fprintf(stderr, "print-rows: cannot read \"%s\": %s\n", argv[1], prof_strerror(r));
	return r ? 1 : 0;
}
