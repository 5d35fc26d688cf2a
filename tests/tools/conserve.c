/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Conserve - counts marks in a file that survives the program, and checks a capture against it
 *
 *     conserve write SLOT THREADS N FILE [US]  each thread tries N marks; the program is killed
 *                                              after US microseconds
 *     conserve check CAPTURE FILE …            checks all programs that wrote into CAPTURE, each
 *                                              with its own slot
 *
 * check prints how many marks were tried, how many are rows, how many are counted as lost, and how
 * many threads were killed. Exit status 1: a row that no thread tried, a duplicate row, a row out
 * of its thread's order, more rows than calls that reported success, or, if nothing was lost,
 * fewer.
 */
#include "arch/base.h"
#include "libcapture/prof-capture.h"
#include "libcollector/prof-collector.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MAX_SLOTS 64u
#define MAX_THREADS 64u

/* Padded to 128 bytes, so that threads do not slow each other down by writing to one cache line. */
struct count {
	uint64_t tried, recorded;
	bool is_used, has_ended;
	uint8_t padding[110];
};

struct counts {
	uint64_t slot;
	struct count threads[MAX_THREADS];
};

struct work {
	uint64_t first_id, n;
	struct count *count;
};

static struct counts *map_counts(const char *path)
{
	CLEANUP_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	void *counts = MAP_FAILED;

	if (fd >= 0 && ftruncate(fd, sizeof(struct counts)) == 0)
		counts = mmap(NULL, sizeof(struct counts), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			      0);
	if (counts == MAP_FAILED) {
		fprintf(stderr, "conserve: cannot map \"%s\"\n", path);
		exit(2);
	}
	return counts;
}

/* ---- Writing ---- */

static void *write_all(void *data)
{
	const struct work *work = data;
	volatile struct count *count = work->count;

	for (uint64_t i = 1; i <= work->n; i++) {
		count->tried = i;
		if (prof_mark_begin(work->first_id + i, "conserve", "mark", NULL, 0))
			count->recorded++;
	}
	count->has_ended = true;
	return NULL;
}

static void *kill_self(void *data)
{
	const uint64_t *us = data;

	nanosleep(&(struct timespec){ (time_t)(*us / 1000000), (long)(*us % 1000000 * 1000) },
		  NULL);
	raise(SIGKILL);
	return NULL;
}

static int write_marks(uint64_t slot, unsigned n_threads, uint64_t n, const char *path,
		       const char *us_text)
{
	struct counts *counts = map_counts(path);
	struct work work[MAX_THREADS];
	pthread_t ids[MAX_THREADS], killer;
	uint64_t us = us_text ? strtoull(us_text, NULL, 10) : 0;

	if (slot >= MAX_SLOTS || n_threads > MAX_THREADS)
		return 2;
	counts->slot = slot;
	if (us_text && pthread_create(&killer, NULL, kill_self, &us) != 0)
		return 2;
	for (unsigned i = 0; i < n_threads; i++) {
		counts->threads[i].is_used = true;
		work[i] = (struct work){ slot << 56 | (uint64_t)i << 48, n, &counts->threads[i] };
		if (pthread_create(&ids[i], NULL, write_all, &work[i]) != 0)
			return 2;
	}
	for (unsigned i = 0; i < n_threads; i++)
		pthread_join(ids[i], NULL);
	return 0;
}

/* ---- Checking ---- */

static const struct counts *slots[MAX_SLOTS];
static struct {
	uint64_t rows, last;
} found[MAX_SLOTS][MAX_THREADS];
static bool is_wrong;

static void complain(const char *what, uint64_t id)
{
	fprintf(stderr, "conserve: %s: %" PRIu64 " of thread %u of program %u\n", what,
		id & (UINT64_MAX >> 16), (unsigned)(id >> 48 & 0xff), (unsigned)(id >> 56));
	is_wrong = true;
}

static void check_row(uint64_t id)
{
	uint64_t slot = id >> 56, thread = id >> 48 & 0xff, i = id & (UINT64_MAX >> 16);

	if (slot >= MAX_SLOTS || thread >= MAX_THREADS || !slots[slot] ||
	    i > slots[slot]->threads[thread].tried) {
		complain("nobody tried", id);
		return;
	}
	if (i <= found[slot][thread].last)
		complain("not in order", id);
	found[slot][thread].last = i;
	found[slot][thread].rows++;
}

static int read_marks(const struct prof_reader *reader, uint64_t *ret_rows)
{
	const uint16_t column = PROF_MARK_ID;
	const struct prof_cursor_options options = { .table = PROF_TABLE_MARK,
						     .columns = &column,
						     .n_columns = 1 };
	struct prof_cursor *cursor;
	struct prof_batch batch;
	int r = prof_cursor_new(reader, &options, &cursor);

	if (r)
		return r;
	while (!(r = prof_cursor_next(cursor, &batch))) {
		for (size_t i = 0; i < batch.rows; i++)
			check_row(batch.columns[0].numbers[i]);
		*ret_rows += batch.rows;
	}
	prof_cursor_free(cursor);
	return r == PROF_END ? 0 : r;
}

/* Returns whether row i of the losses counts lost marks. Late marks are not lost. */
static bool is_of_marks(const struct prof_array *stream, size_t i, uint64_t cause)
{
	const char *text = (const char *)stream->bytes + stream->offsets[i];
	size_t n = (size_t)(stream->offsets[i + 1] - stream->offsets[i]);

	if (cause == PROF_LOSS_LATE)
		return false;
	return (n >= strlen("collector") && strncmp(text, "collector", strlen("collector")) == 0) ||
	       (n == strlen("mark") && strncmp(text, "mark", n) == 0);
}

static int read_losses(const struct prof_reader *reader, uint64_t *ret_lost)
{
	static const uint16_t columns[] = { PROF_LOSS_STREAM, PROF_LOSS_CAUSE, PROF_LOSS_COUNT };
	const struct prof_cursor_options options = { .table = PROF_TABLE_LOSS,
						     .columns = columns,
						     .n_columns = ARRAY_SIZE(columns) };
	struct prof_cursor *cursor;
	struct prof_batch batch;
	int r = prof_cursor_new(reader, &options, &cursor);

	if (r)
		return r;
	while (!(r = prof_cursor_next(cursor, &batch)))
		for (size_t i = 0; i < batch.rows; i++)
			if (is_of_marks(&batch.columns[0], i, batch.columns[1].numbers[i]))
				*ret_lost += batch.columns[2].numbers[i];
	prof_cursor_free(cursor);
	return r == PROF_END ? 0 : r;
}

static void check_slot(const struct counts *counts, uint64_t lost, uint64_t *tried,
		       uint64_t *n_killed)
{
	for (uint32_t i = 0; i < MAX_THREADS; i++) {
		const struct count *count = &counts->threads[i];
		uint64_t rows = found[counts->slot][i].rows;

		*tried += count->tried;
		*n_killed += count->is_used && !count->has_ended;
		if (lost == 0 && rows < count->recorded)
			complain("rows are missing", counts->slot << 56 | (uint64_t)i << 48 | rows);
		if (rows > count->recorded + !count->has_ended)
			complain("rows are too many",
				 counts->slot << 56 | (uint64_t)i << 48 | rows);
	}
}

static int check(const char *path, char **files, int n_files)
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t tried = 0, rows = 0, lost = 0, n_killed = 0;
	struct prof_reader *reader;
	int r = fd < 0 ? -1 : prof_reader_open(fd, &reader);

	for (int i = 0; i < n_files; i++) {
		const struct counts *counts = map_counts(files[i]);

		slots[counts->slot % MAX_SLOTS] = counts;
	}
	if (r == 0)
		r = read_marks(reader, &rows);
	if (r == 0)
		r = read_losses(reader, &lost);
	if (r) {
		fprintf(stderr, "conserve: cannot read \"%s\"\n", path);
		return 2;
	}
	for (uint32_t i = 0; i < MAX_SLOTS; i++)
		if (slots[i])
			check_slot(slots[i], lost, &tried, &n_killed);
	printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", tried, rows, lost, n_killed);
	prof_reader_free(reader);
	return is_wrong;
}

int main(int argc, char **argv)
{
	if (argc >= 6 && strcmp(argv[1], "write") == 0)
		return write_marks(strtoull(argv[2], NULL, 10), (unsigned)atoi(argv[3]),
				   strtoull(argv[4], NULL, 10), argv[5], argv[6]);
	if (argc >= 4 && strcmp(argv[1], "check") == 0)
		return check(argv[2], argv + 3, argc - 3);
	return 2;
}
