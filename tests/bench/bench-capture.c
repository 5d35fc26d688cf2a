/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * bench-capture - measures how fast libprofcapture writes, scans, seeks and opens
 *
 * The data are the rows of a real recording (made by bench_format.py with profctl), repeated with
 * shifted times, instead of constants. Uses only the public interface. Each verb prints a line of
 * JSON.
 *
 *     write IN OUT ROWS CHUNK_ROWS   writes ROWS sample rows to OUT: those of IN, repeatedly
 *     grow IN OUT BYTES CHUNK_ROWS   writes whole copies of IN to OUT (all tables, each copy with
 *                                    new epochs) until OUT has BYTES; writes no trailer
 *     finish OUT                     completes a grown capture
 *     scan FILE                      reads time and stack of every sample
 *     seek FILE N                    N times: finds the first rows at a random time
 *     open FILE                      calls prof_reader_open()
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libcapture/prof-capture.h"
#include "tests/tools/chunks.h"

#define NS 1000000000ull

static void die(const char *act, const char *object, int result)
{
	fprintf(stderr, "bench-capture: %s '%s': %s\n", act, object, prof_strerror(result));
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS + (uint64_t)t.tv_nsec;
}

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * NS + (uint64_t)t.tv_nsec;
}

static struct prof_reader *open_capture(const char *path)
{
	struct prof_reader *reader = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int r = fd < 0 ? -errno : prof_reader_open(fd, &reader);

	if (r != 0)
		die("open", path, r);
	close(fd);
	return reader;
}

static struct prof_writer *create(const char *path, enum prof_writer_mode mode, uint64_t start_ns,
				  int *ret_fd)
{
	struct prof_writer_options options = { .mode = mode };
	int flags = mode == PROF_WRITE_NEW ? O_TRUNC | O_CREAT : 0;
	struct prof_writer *writer = NULL;
	int fd = open(path, O_RDWR | O_CLOEXEC | flags, 0644);
	int r;

	options.segment.start_monotonic_ns = start_ns;
	r = fd < 0 ? -errno : prof_writer_new(fd, &options, &writer);
	if (r != 0)
		die("create", path, r);
	*ret_fd = fd;
	return writer;
}

/* Returns the recording's start time, which a copy must keep, because readers show the times of
 * rows relative to it. */
static uint64_t start_of(const struct prof_reader *reader)
{
	size_t n;
	const struct prof_segment *segments = prof_reader_segments(reader, &n);

	return n ? segments[0].start_monotonic_ns : 0;
}

/* Stores row `i` of a batch as values. A missing column is zero. Texts and lists point into the
 * batch. */
static void row_values(const struct prof_table_def *def, const struct prof_batch *batch, size_t i,
		       uint64_t shift_ns, struct prof_value *values)
{
	for (unsigned int c = 0; c < def->n_columns; c++) {
		const struct prof_array *a = &batch->columns[c];

		if (a->nulls && a->nulls[i])
			values[c] = PROF_NULL;
		else if (a->offsets && a->bytes)
			values[c] = PROF_BYTES(a->bytes + a->offsets[i],
					       a->offsets[i + 1] - a->offsets[i]);
		else if (a->offsets)
			values[c] = PROF_BYTES(a->numbers + a->offsets[i],
					       a->offsets[i + 1] - a->offsets[i]);
		else
			values[c] = PROF_NUMBER(a->numbers ? a->numbers[i] : 0);
		/* Times in dictionaries are not shifted, because a process is identified by its
		 * start time. */
		if (def->flags & PROF_TABLE_TIMED && def->columns[c].type == PROF_TYPE_TIME &&
		    a->numbers && values[c].number)
			values[c].number += shift_ns;
	}
}

/* All sample rows of a recording. */
struct rows {
	struct prof_value *values;
	size_t n;
	uint64_t t_min, span_ns;
};

static struct rows load_samples(const struct prof_reader *reader, const struct prof_table_def *def)
{
	struct prof_cursor_options options = { .table = PROF_TABLE_SAMPLE };
	struct prof_cursor *cursor = NULL;
	struct rows rows = { .t_min = UINT64_MAX };
	struct prof_batch batch;
	uint64_t t_max = 0;
	int r = prof_cursor_new(reader, &options, &cursor);

	while (r == 0 && (r = prof_cursor_next(cursor, &batch)) == 0) {
		rows.values = realloc(rows.values, (rows.n + batch.rows) * def->n_columns *
							   sizeof(*rows.values));
		if (!rows.values)
			die("load", "samples", -ENOMEM);
		for (size_t i = 0; i < batch.rows; i++, rows.n++) {
			struct prof_value *v = rows.values + rows.n * def->n_columns;

			row_values(def, &batch, i, 0, v);
			if (v[PROF_SAMPLE_TIME].number < rows.t_min)
				rows.t_min = v[PROF_SAMPLE_TIME].number;
			if (v[PROF_SAMPLE_TIME].number > t_max)
				t_max = v[PROF_SAMPLE_TIME].number;
		}
	}
	prof_cursor_free(cursor);
	if (r != PROF_END || rows.n == 0)
		die("load", "samples", r);
	rows.span_ns = t_max - rows.t_min + 1;
	return rows;
}

/* Stores the next rows of the recording, which is repeated with its span added to all times. The
 * rows are copied, so that they are in the CPU's caches like a producer's rows. */
static void next_rows(struct rows *rows, const struct prof_table_def *def, size_t done, size_t n,
		      struct prof_value *ret_values)
{
	for (size_t i = 0; i < n; i++, done++) {
		struct prof_value *v = rows->values + done % rows->n * def->n_columns;

		if (done >= rows->n)
			v[PROF_SAMPLE_TIME].number += rows->span_ns;
		memcpy(ret_values + i * def->n_columns, v, def->n_columns * sizeof(*v));
	}
}

static int write_rows(struct prof_writer *writer, struct prof_block *block,
		      const struct prof_value *values, size_t n, size_t n_columns)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++)
		r = prof_block_add(block, values + i * n_columns);
	if (r == 0)
		r = prof_writer_write(writer, block);
	prof_block_reset(block);
	return r;
}

static int verb_write(char **args)
{
	struct prof_reader *reader = open_capture(args[0]);
	const struct prof_table_def *def = prof_table_v1(PROF_TABLE_SAMPLE);
	struct rows rows = load_samples(reader, def);
	size_t total = strtoull(args[2], NULL, 0), chunk = strtoull(args[3], NULL, 0), n;
	struct prof_value *values = calloc(chunk * def->n_columns, sizeof(*values));
	struct prof_block *block = NULL;
	int fd, r = values ? prof_block_new(def, &block) : -ENOMEM;
	struct prof_writer *writer = create(args[1], PROF_WRITE_NEW, start_of(reader), &fd);
	uint64_t cpu = 0;

	prof_block_set_epoch(block, prof_writer_first_epoch(writer));
	for (size_t done = 0; r == 0 && done < total; done += n) {
		uint64_t start;

		n = total - done < chunk ? total - done : chunk;
		next_rows(&rows, def, done, n, values);
		start = cpu_ns();
		r = write_rows(writer, block, values, n, def->n_columns);
		cpu += cpu_ns() - start;
	}
	if (r == 0) {
		uint64_t start = cpu_ns();

		r = prof_writer_finish(writer);
		cpu += cpu_ns() - start;
	}
	if (r != 0)
		die("write", args[1], r);
	printf("{\"rows\":%zu,\"chunk_rows\":%zu,\"cpu_ns\":%lu,\"bytes\":%lu}\n", total, chunk,
	       cpu, prof_writer_bytes(writer));
	prof_writer_free(writer);
	prof_block_free(block);
	prof_reader_free(reader);
	free(values);
	free(rows.values);
	close(fd);
	return 0;
}

/* Writes one copy of the whole recording in file order, so that dictionaries come before the rows
 * that refer to them. */
static int copy_all(const struct prof_reader *reader, struct prof_writer *writer,
		    struct prof_block **blocks, uint64_t shift_ns, uint32_t epoch_shift,
		    size_t chunk_rows)
{
	size_t n_chunks;
	struct prof_chunk *chunks = chunks_of(reader, &n_chunks);
	struct prof_value values[PROF_MAX_COLUMNS];
	size_t n_tables;
	const struct prof_table_def *const *tables = prof_reader_tables(reader, &n_tables);
	struct prof_cursor *cursors[PROF_TABLE_LAST + 1] = { 0 };
	int r = 0;

	for (size_t i = 0; r == 0 && i < n_tables; i++) {
		struct prof_cursor_options options = { .table = tables[i]->id };

		if (tables[i]->id <= PROF_TABLE_LAST)
			r = prof_cursor_new(reader, &options, &cursors[tables[i]->id]);
	}
	for (size_t c = 0; r == 0 && c < n_chunks; c++) {
		uint16_t table = chunks[c].table;
		const struct prof_table_def *def = prof_reader_table(reader, table);
		struct prof_batch batch;
		size_t left = chunks[c].rows;

		if (table > PROF_TABLE_LAST || !cursors[table])
			continue;
		if (!blocks[table])
			r = prof_block_new(def, &blocks[table]);
		while (r == 0 && left > 0 && (r = prof_cursor_next(cursors[table], &batch)) == 0) {
			prof_block_set_epoch(blocks[table], batch.epoch + epoch_shift);
			for (size_t i = 0; r == 0 && i < batch.rows; i++) {
				row_values(def, &batch, i, shift_ns, values);
				r = prof_block_add(blocks[table], values);
				if (r == 0 && prof_block_rows(blocks[table]) >= chunk_rows) {
					r = prof_writer_write(writer, blocks[table]);
					prof_block_reset(blocks[table]);
				}
			}
			left -= batch.rows < left ? batch.rows : left;
		}
		if (r == 0 && prof_block_rows(blocks[table])) {
			r = prof_writer_write(writer, blocks[table]);
			prof_block_reset(blocks[table]);
		}
	}
	for (size_t i = 0; i <= PROF_TABLE_LAST; i++)
		prof_cursor_free(cursors[i]);
	free(chunks);
	return r;
}

static int verb_grow(char **args)
{
	struct prof_reader *reader = open_capture(args[0]);
	uint64_t limit = strtoull(args[2], NULL, 0), shift_ns = 0, t_min = UINT64_MAX, t_max = 0;
	size_t n_chunks, copies = 0, chunk_rows = strtoull(args[3], NULL, 0);
	struct prof_chunk *chunks = chunks_of(reader, &n_chunks);
	struct prof_block *blocks[PROF_TABLE_LAST + 1] = { 0 };
	uint32_t first = UINT32_MAX, last = 0;
	int fd, r = 0;
	struct prof_writer *writer = create(args[1], PROF_WRITE_NEW, start_of(reader), &fd);
	uint32_t epoch = prof_writer_first_epoch(writer);

	for (size_t c = 0; c < n_chunks; c++) {
		if (chunks[c].table == PROF_TABLE_SAMPLE && chunks[c].t_min < t_min)
			t_min = chunks[c].t_min;
		if (chunks[c].table == PROF_TABLE_SAMPLE && chunks[c].t_max > t_max)
			t_max = chunks[c].t_max;
		if (chunks[c].epoch < first)
			first = chunks[c].epoch;
		if (chunks[c].epoch > last)
			last = chunks[c].epoch;
	}
	while (r == 0 && prof_writer_bytes(writer) < limit) {
		r = copy_all(reader, writer, blocks, shift_ns, epoch - first, chunk_rows);
		shift_ns += t_max - t_min + 1;
		epoch += last - first + 1;
		copies++;
	}
	if (r != 0)
		die("grow", args[1], r);
	printf("{\"bytes\":%lu,\"copies\":%zu}\n", prof_writer_bytes(writer), copies);
	for (size_t i = 0; i <= PROF_TABLE_LAST; i++)
		prof_block_free(blocks[i]);
	free(chunks);
	prof_writer_free(writer); /* leaves the file as after a crash */
	prof_reader_free(reader);
	close(fd);
	return 0;
}

static int verb_finish(char **args)
{
	int fd;
	struct prof_writer *writer = create(args[0], PROF_WRITE_EXTEND, 0, &fd);
	int r = prof_writer_finish(writer);

	if (r != 0)
		die("finish", args[0], r);
	prof_writer_free(writer);
	close(fd);
	return 0;
}

static int verb_scan(char **args)
{
	static const uint16_t columns[] = { PROF_SAMPLE_TIME, PROF_SAMPLE_STACK };
	struct prof_cursor_options options = { .table = PROF_TABLE_SAMPLE,
					       .columns = columns,
					       .n_columns = 2 };
	struct prof_reader *reader = open_capture(args[0]);
	struct prof_cursor *cursor = NULL;
	struct prof_batch batch;
	uint64_t sum = 0, rows = 0, wall = now_ns();
	int r = prof_cursor_new(reader, &options, &cursor);

	while (r == 0 && (r = prof_cursor_next(cursor, &batch)) == 0) {
		for (size_t i = 0; i < batch.rows; i++)
			sum += batch.columns[0].numbers[i] ^ batch.columns[1].numbers[i];
		rows += batch.rows;
	}
	wall = now_ns() - wall;
	if (r != PROF_END)
		die("scan", args[0], r);
	printf("{\"rows\":%lu,\"wall_ns\":%lu,\"sum\":%lu}\n", rows, wall, sum);
	prof_cursor_free(cursor);
	prof_reader_free(reader);
	return 0;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static int verb_seek(char **args)
{
	struct prof_reader *reader = open_capture(args[0]);
	size_t n = strtoull(args[1], NULL, 0), n_chunks;
	struct prof_chunk *chunks = chunks_of(reader, &n_chunks);
	uint64_t t_min = UINT64_MAX, t_max = 0, *took = calloc(n, sizeof(*took)), found = 0;

	for (size_t c = 0; c < n_chunks; c++) {
		if (chunks[c].table != PROF_TABLE_SAMPLE)
			continue;
		t_min = chunks[c].t_min < t_min ? chunks[c].t_min : t_min;
		t_max = chunks[c].t_max > t_max ? chunks[c].t_max : t_max;
	}
	free(chunks);
	srand48(1);
	for (size_t i = 0; i < n && took; i++) {
		uint64_t t = t_min + (uint64_t)(drand48() * (double)(t_max - t_min));
		struct prof_cursor_options options = { .table = PROF_TABLE_SAMPLE,
						       .t_from = t,
						       .t_to = t + NS };
		struct prof_cursor *cursor = NULL;
		struct prof_batch batch;
		uint64_t start = now_ns();
		int r = prof_cursor_new(reader, &options, &cursor);

		if (r == 0)
			r = prof_cursor_next(cursor, &batch);
		if (r == 0)
			found += batch.rows;
		else if (r != PROF_END)
			die("seek", args[0], r);
		took[i] = now_ns() - start;
		prof_cursor_free(cursor);
	}
	if (!took)
		die("seek", args[0], -ENOMEM);
	qsort(took, n, sizeof(*took), by_value);
	printf("{\"seeks\":%zu,\"rows\":%lu,\"median_ns\":%lu,\"max_ns\":%lu}\n", n, found,
	       took[n / 2], took[n - 1]);
	free(took);
	prof_reader_free(reader);
	return 0;
}

static int verb_open(char **args)
{
	uint64_t wall = now_ns();
	struct prof_reader *reader = open_capture(args[0]);
	const struct prof_reader_info *info = prof_reader_info(reader);

	wall = now_ns() - wall;
	printf("{\"wall_ns\":%lu,\"bytes\":%lu,\"chunks\":%lu,\"indexed\":%s,\"state\":%d}\n", wall,
	       info->bytes, info->chunks, info->indexed ? "true" : "false", (int)info->state);
	prof_reader_free(reader);
	return 0;
}

static const struct {
	const char *name;
	int n_args;
	int (*run)(char **args);
} verbs[] = {
	{ "write", 4, verb_write }, { "grow", 4, verb_grow }, { "finish", 1, verb_finish },
	{ "scan", 1, verb_scan },   { "seek", 2, verb_seek }, { "open", 1, verb_open },
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc > 1 && i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (strcmp(argv[1], verbs[i].name) == 0 && argc - 2 == verbs[i].n_args)
			return verbs[i].run(argv + 2);
	fprintf(stderr,
		"usage: bench-capture write IN OUT ROWS CHUNK_ROWS | grow IN OUT BYTES CHUNK_ROWS | finish OUT |"
		" scan FILE | seek FILE N | open FILE\n");
	return 2;
}
