/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * make-wild - writes captures with valid checksums and senseless rows
 *
 *     make-wild FIRST LAST FOLDER     FOLDER/SEED.cap for each seed from FIRST to LAST
 *
 * Most tables of version 1 have rows. Most values are plausible, so that readers do not stop early.
 * Many are extreme: references to missing rows or to the row itself, decreasing times, sizes near
 * 2^64, numbers outside of enumerations, texts that are not UTF-8. A seed always gives the same
 * rows, but different bytes, because the header has a random salt.
 */
#include "arch/base.h"
#include "libcapture/prof-capture.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define START UINT64_C(5000000000000)
#define MAX_ROWS 60

struct wild {
	uint64_t state;
	unsigned mildness; /* one of this many values is extreme */
	uint64_t time;
	uint32_t rows[PROF_TABLE_LAST + 1]; /* number of rows of dictionary tables */
	uint64_t list[8];
	char text[40000];
};

static uint64_t draw(struct wild *wild)
{
	uint64_t z = (wild->state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static uint64_t below(struct wild *wild, uint64_t n)
{
	return draw(wild) % n;
}

static void check(int r, const char *what)
{
	if (r == 0)
		return;
	fprintf(stderr, "make-wild: %s: %s\n", what, prof_strerror(r));
	exit(1);
}

static uint64_t extreme(struct wild *wild)
{
	static const uint64_t values[] = {
		0,
		1,
		UINT64_MAX,
		UINT64_MAX - 1,
		INT64_MAX,
		INT64_MIN,
		UINT32_MAX,
		UINT32_MAX + 1ul,
		INT32_MAX,
		1u << 31,
		1ul << 47,
		1ul << 63,
		UINT64_C(0xffffffff80000000),
		UINT64_C(0x7ff8000000000000),
		UINT64_C(0x7ff0000000000000),
		UINT64_C(0xfff0000000000000),
		0x7fff,
		0x10000,
	};

	return below(wild, 4) ? values[below(wild, ARRAY_SIZE(values))]
			      : draw(wild) >> below(wild, 64);
}

static struct prof_value text_of(struct wild *wild)
{
	static const char *const texts[] = {
		"main",
		"libc.so.6",
		"/usr/bin/python3.11",
		"[kernel]",
		"[vdso]",
		"a::b<c>::operator()(int)",
		"_ZN1aIiE1bEv",
		"",
		".",
		"/",
		"/proc/self/mem",
		"/dev/zero",
		"%s%n%s",
		"a\nb\tc\rd",
		"\x1b[2J\x07",
		"\xff\xfe\x80",
		"\xed\xa0\x80",
		"\xc2\x9b"
		"31m",
		"\xe2\x80\xae"
		"txt.exe",
		"=1+1",
		"\"quoted\"",
		"<b>&amp;",
		"event",
		"events",
		"frequency_hz",
		"call_graph",
		"command",
		"host",
		"kernel",
		"arch",
		"sources",
		"999",
		"cpu-clock",
		"../../../../etc/passwd",
		"jit-1.dump",
		"/memfd:x (deleted)",
	};
	const char *text = texts[below(wild, ARRAY_SIZE(texts))];
	size_t n = 0;

	switch (below(wild, wild->mildness * 2)) {
	case 0:
		n = below(wild, sizeof(wild->text));
		memset(wild->text, (int)below(wild, 256), n);
		return PROF_BYTES(wild->text, n);
	case 1:
		for (n = 0; n < 40; n++)
			wild->text[n] = (char)draw(wild);
		return PROF_BYTES(wild->text, n);
	default:
		return PROF_BYTES(text, strlen(text));
	}
}

static uint64_t number_of(struct wild *wild, const struct prof_column_def *column, uint64_t row)
{
	bool is_extreme = below(wild, wild->mildness) == 0;
	uint64_t n = 0;

	switch (column->type) {
	case PROF_TYPE_REF:
		n = wild->rows[MIN_OF(column->ref, (uint16_t)PROF_TABLE_LAST)];
		return is_extreme ? extreme(wild) : below(wild, n + 2);
	case PROF_TYPE_TIME:
		return is_extreme ? extreme(wild) : START + below(wild, 1000000000);
	case PROF_TYPE_ENUM:
		while (column->values && column->values[n])
			n++;
		return is_extreme ? n + below(wild, 300) : below(wild, MAX_OF(n, UINT64_C(1)));
	case PROF_TYPE_BOOL:
		return below(wild, is_extreme ? 300 : 2);
	default:
		if (is_extreme)
			return extreme(wild);
		return column->unit == PROF_UNIT_ADDRESS ? 0x400000 + below(wild, 64) * 4096
							 : below(wild, 100 + row);
	}
}

static struct prof_value list_of(struct wild *wild, const struct prof_column_def *column,
				 uint64_t row)
{
	uint64_t n = below(wild, ARRAY_SIZE(wild->list));

	for (uint64_t i = 0; i < n; i++)
		wild->list[i] = number_of(wild, column, row);
	return PROF_BYTES(wild->list, n);
}

/* Returns the value of the first column, an id or a time, by which the rows are sorted. */
static struct prof_value first_of(struct wild *wild, const struct prof_table_def *def, uint64_t row)
{
	if (def->flags & PROF_TABLE_TIMED) {
		wild->time += below(wild, 4) ? below(wild, 1000000) : 0;
		if (below(wild, wild->mildness * 20) == 0)
			wild->time = MAX_OF(wild->time, UINT64_MAX - below(wild, 100000));
		return PROF_NUMBER(wild->time);
	}
	return PROF_NUMBER(row + 1 - (below(wild, wild->mildness) == 0 && row > 0));
}

static void write_table(struct wild *wild, struct prof_writer *writer, uint16_t id, uint32_t epoch)
{
	const struct prof_table_def *def = prof_table_v1(id);
	uint64_t n = below(wild, 4) ? below(wild, MAX_ROWS) : below(wild, 3);
	struct prof_value values[PROF_MAX_COLUMNS];
	struct prof_block *block;

	if (def->flags & PROF_TABLE_DICTIONARY)
		wild->rows[id] = (uint32_t)n;
	wild->time = START + below(wild, 1000);
	check(prof_block_new(def, &block), "no block");
	prof_block_set_epoch(block, epoch);
	for (uint64_t row = 0; row < n; row++) {
		/* random texts use one buffer, so each random text of a row has the bytes of the
		 * last one; lists likewise */
		for (uint16_t c = 0; c < def->n_columns; c++) {
			const struct prof_column_def *column = &def->columns[c];

			if (c == 0 && def->flags & (PROF_TABLE_DICTIONARY | PROF_TABLE_TIMED))
				values[c] = first_of(wild, def, row);
			else if (column->type == PROF_TYPE_TEXT || column->type == PROF_TYPE_BINARY)
				values[c] = text_of(wild);
			else if (column->flags & PROF_COLUMN_LIST)
				values[c] = list_of(wild, column, row);
			else if (column->flags & PROF_COLUMN_NULLABLE && below(wild, 3) == 0)
				values[c] = PROF_NULL;
			else
				values[c] = PROF_NUMBER(number_of(wild, column, row));
		}
		check(prof_block_add(block, values), def->name);
	}
	if (n > 0)
		check(prof_writer_write(writer, block), def->name);
	prof_block_free(block);
}

static void write_segment(struct wild *wild, int fd, enum prof_writer_mode mode, bool finishes)
{
	const struct prof_writer_options options = {
		.mode = mode,
		.segment = { .boot_id = { 0xb0, (uint8_t)below(wild, 2) },
			     .start_monotonic_ns = below(wild, 8) ? START : extreme(wild),
			     .wall_ns = below(wild, 8) ? INT64_C(1700000000000000000)
						       : (int64_t)extreme(wild) },
		.group_rows = 64,
	};
	uint32_t n_epochs = 1 + (uint32_t)below(wild, 3), first;
	struct prof_writer *writer;

	check(prof_writer_new(fd, &options, &writer), "no writer");
	first = prof_writer_first_epoch(writer);
	for (uint32_t epoch = first; epoch < first + n_epochs; epoch++)
		for (uint16_t id = 1; id <= PROF_TABLE_LAST; id++)
			if (prof_table_v1(id) && below(wild, 10) > 0)
				write_table(wild, writer, id, epoch);
	if (finishes)
		check(prof_writer_finish(writer), "cannot finish");
	prof_writer_free(writer);
}

static void make(uint64_t seed, const char *folder)
{
	static struct wild wild;
	char path[4096];
	int fd;

	memset(&wild, 0, sizeof(wild));
	wild.state = seed;
	wild.mildness = 3u << below(&wild, 5);
	snprintf(path, sizeof(path), "%s/%" PRIu64 ".cap", folder, seed);
	fd = open(path, O_RDWR | O_CLOEXEC | O_CREAT | O_TRUNC, 0666);
	check(fd < 0 ? -errno : 0, path);
	write_segment(&wild, fd, PROF_WRITE_NEW, below(&wild, 8) > 0);
	if (below(&wild, 4) == 0)
		write_segment(&wild, fd, PROF_WRITE_APPEND, true);
	close(fd);
}

int main(int argc, char **argv)
{
	uint64_t last = argc == 4 ? strtoull(argv[2], NULL, 10) : 0;

	if (argc != 4) {
		fputs("Usage: make-wild FIRST LAST FOLDER\n", stderr);
		return 2;
	}
	for (uint64_t seed = strtoull(argv[1], NULL, 10); seed <= last; seed++)
		make(seed, argv[3]);
	return 0;
}
