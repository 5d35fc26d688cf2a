/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Many threads can share a reader; CI runs this under ThreadSanitizer
 *
 * Eight threads share a reader. Each scans every table with its own cursors, loads dictionaries and
 * checks chunks. The results must equal those of a single thread.
 */
#include "arch/base.h"
#include "libcapture/prof-capture.h"
#include "tests/tools/chunks.h"
#include "tests/unit/test.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#define THREADS 8
#define ROWS 20000

static int write_samples(int fd)
{
	struct prof_writer_options options = { .mode = PROF_WRITE_NEW };
	struct prof_writer *writer = NULL;
	struct prof_block *samples = NULL, *strings = NULL;
	int r = prof_writer_new(fd, &options, &writer);

	if (r == 0)
		r = prof_block_new(prof_table_v1(PROF_TABLE_SAMPLE), &samples);
	if (r == 0)
		r = prof_block_new(prof_table_v1(PROF_TABLE_STRING), &strings);
	for (uint64_t i = 0; r == 0 && i < ROWS; i++) {
		struct prof_value row[PROF_SAMPLE_COLUMNS] = { PROF_NUMBER(i * 1001),
							       PROF_NUMBER(i % 13) };
		char text[32];
		struct prof_value string[] = {
			PROF_NUMBER(i + 1),
			PROF_BYTES(text, (uint64_t)snprintf(text, sizeof(text), "s%lu", i))
		};

		row[PROF_SAMPLE_STACK] = PROF_NUMBER(i * 7 % 997);
		r = prof_block_add(samples, row);
		if (r == 0)
			r = prof_block_add(strings, string);
		if (r == 0 && i % 1000 == 999) {
			prof_block_set_epoch(strings, prof_writer_first_epoch(writer));
			prof_block_set_epoch(samples, prof_writer_first_epoch(writer));
			r = prof_writer_write(writer, strings);
			if (r == 0)
				r = prof_writer_write(writer, samples);
			prof_block_reset(samples);
			prof_block_reset(strings);
		}
	}
	if (r == 0)
		r = prof_writer_finish(writer);
	prof_block_free(samples);
	prof_block_free(strings);
	prof_writer_free(writer);
	return r;
}

static uint64_t scan(const struct prof_reader *reader, unsigned int table)
{
	struct prof_cursor_options options = { .table = table };
	struct prof_cursor *cursor = NULL;
	uint64_t sum = 0;
	struct prof_batch batch;
	int r = prof_cursor_new(reader, &options, &cursor);

	while (r == 0 && (r = prof_cursor_next(cursor, &batch)) == 0)
		for (size_t i = 0; i < batch.rows; i++)
			sum = sum * 31 + batch.columns[0].numbers[i];
	prof_cursor_free(cursor);
	return r == PROF_END ? sum : 0;
}

static uint64_t everything(const struct prof_reader *reader)
{
	struct prof_dictionary *strings = NULL;
	struct prof_damage damage;
	uint64_t sum = scan(reader, PROF_TABLE_SAMPLE) ^ scan(reader, PROF_TABLE_STRING);
	size_t n;
	CLEANUP_FREE struct prof_chunk *chunks = chunks_of(reader, &n);

	for (size_t i = 0; i < n; i++)
		if (prof_reader_check(reader, &chunks[i], &damage) != 0)
			return 0;
	if (prof_dictionary_load(reader, PROF_TABLE_STRING, chunks[0].epoch, NULL, 0, &strings) !=
	    0)
		return 0;
	for (uint64_t id = 1; id <= ROWS; id += 97)
		sum = sum * 31 + (uint64_t)prof_dictionary_find(strings, id);
	prof_dictionary_free(strings);
	return sum;
}

struct worker {
	pthread_t thread;
	const struct prof_reader *reader;
	uint64_t sum;
};

static void *work(void *data)
{
	struct worker *worker = data;

	worker->sum = everything(worker->reader);
	return NULL;
}

static void shared_reader(void)
{
	int fd = memfd_create("capture", MFD_CLOEXEC);
	struct prof_reader *reader = NULL;
	struct worker workers[THREADS];
	uint64_t alone;

	REQUIRE(write_samples(fd) == 0);
	REQUIRE(prof_reader_open(fd, &reader) == 0);
	close(fd); /* the reader has duplicated it */
	alone = everything(reader);
	CHECK(alone != 0);
	for (size_t i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){ .reader = reader };
		REQUIRE(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
	}
	for (size_t i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		CHECK(workers[i].sum == alone);
	}
	prof_reader_free(reader);
}

int main(void)
{
	RUN(shared_reader);
	return test_end();
}
