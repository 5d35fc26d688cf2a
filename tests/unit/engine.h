/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Engine fixtures - generate records and snapshots, and read the resulting rows from a capture
 *
 *     struct parts parts;
 *     parts_init(&parts);
 *     tasks_fork(&parts.tasks, …);
 *     parts_finish(&parts);
 *     CHECK_INT(rows_of(&parts, PROF_TABLE_TASK), 1);
 *     parts_done(&parts);
 */
#pragma once

#include "daemon/engine/model/kernel.h"
#include "daemon/engine/model/scan.h"
#include "daemon/engine/model/tasks.h"
#include "daemon/engine/out/loss.h"
#include "daemon/engine/out/output.h"
#include "daemon/engine/out/writer.h"
#include "daemon/engine/peers/collectors.h"
#include "daemon/engine/perf/samples.h"
#include "daemon/protocol.h"
#include "tests/tools/chunks.h"
#include "tests/unit/test.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct parts {
	int fd;
	struct writer *writer;
	struct output output;
	struct images images;
	struct kernel kernel;
	struct tasks tasks;
	struct samples samples;
	struct loss_table losses;
	struct scan scan;
	struct prof_reader *reader;
	unsigned int first_hits;
	bool is_finished;
};

static inline void parts_first_hit(struct image *image, const struct mapping *mapping, int32_t pid,
				   void *data)
{
	((struct parts *)data)->first_hits++;
}

static inline void parts_init_fd(struct parts *parts, int fd)
{
	const struct prof_writer_options options = { .segment.start_monotonic_ns = 1 };

	*parts = (struct parts){ .fd = fd };
	parts->writer = writer_new(NULL);
	if (!parts->writer || !writer_open(parts->writer, parts->fd, &options, NULL))
		abort();
	output_init(&parts->output, parts->writer, writer_first_epoch(parts->writer));
	output_tick(&parts->output, 1000);
	images_init(&parts->images);
	kernel_init(&parts->kernel, &parts->images);
	tasks_init(&parts->tasks, &parts->output);
	samples_init(&parts->samples, &parts->output, &parts->tasks, &parts->images,
		     &parts->kernel);
	parts->samples.first_hit = parts_first_hit;
	parts->samples.data = parts;
	loss_init(&parts->losses);
	parts->scan = (struct scan){ .tasks = &parts->tasks,
				     .images = &parts->images,
				     .kernel = &parts->kernel };
}

static inline void parts_init(struct parts *parts)
{
	parts_init_fd(parts, memfd_create("capture", MFD_CLOEXEC));
}

/* Writes all rows, and opens the capture. */
static inline void parts_finish(struct parts *parts)
{
	output_flush(&parts->output);
	if (!writer_finish(parts->writer, 5000))
		abort();
	if (prof_reader_open(parts->fd, &parts->reader) != 0)
		parts->reader = NULL;
	parts->is_finished = true;
}

/* Does what the session does for collectors in one iteration. */
static inline void parts_step(struct parts *parts, struct collectors *collectors, uint64_t at_ns)
{
	output_tick(&parts->output, at_ns);
	collectors_drain(collectors, at_ns);
	collectors_serve(collectors, at_ns, at_ns);
	collectors_emit(collectors, at_ns, UINT64_MAX);
}

static inline void parts_finish_collectors(struct parts *parts, struct collectors *collectors)
{
	collectors_finish(collectors, UINT64_MAX);
	loss_flush(&parts->losses, &parts->output);
	parts_finish(parts);
}

static inline void parts_done(struct parts *parts)
{
	/* Finish the writer. Otherwise, its thread could write to the descriptor's number after
	 * another test got that number. */
	if (!parts->is_finished)
		parts_finish(parts);
	samples_done(&parts->samples);
	output_done(&parts->output);
	tasks_done(&parts->tasks);
	kernel_done(&parts->kernel);
	images_done(&parts->images);
	loss_done(&parts->losses);
	prof_reader_free(parts->reader);
	writer_free(parts->writer);
	close(parts->fd);
}

static inline size_t rows_of(const struct parts *parts, unsigned int table)
{
	size_t n = 0, rows = 0, i;
	CLEANUP_FREE struct prof_chunk *chunks = parts->reader ? chunks_of(parts->reader, &n)
							       : NULL;

	for (i = 0; i < n; i++)
		rows += chunks[i].table == table ? chunks[i].rows : 0;
	return rows;
}

/* Returns the number in a column of the i-th row of a table; UINT64_MAX if there is no such row. */
static inline uint64_t number_of(const struct parts *parts, unsigned int table, uint16_t column,
				 size_t i)
{
	const struct prof_cursor_options options = { .table = table,
						     .columns = &column,
						     .n_columns = 1 };
	struct prof_cursor *cursor;
	struct prof_batch batch;
	uint64_t number = UINT64_MAX;

	if (!parts->reader || prof_cursor_new(parts->reader, &options, &cursor) != 0)
		return UINT64_MAX;
	while (prof_cursor_next(cursor, &batch) == 0) {
		if (i < batch.rows) {
			number = batch.columns[0].numbers[i];
			break;
		}
		i -= batch.rows;
	}
	prof_cursor_free(cursor);
	return number;
}

/* Returns the text of a string id in the first epoch, or NULL. */
static inline const char *text_of(const struct parts *parts, uint64_t id)
{
	static char text[256];
	struct prof_dictionary *strings;
	const struct prof_array *column;
	ssize_t row;

	text[0] = 0;
	if (!parts->reader ||
	    prof_dictionary_load(parts->reader, PROF_TABLE_STRING, 1, NULL, 0, &strings) != 0)
		return NULL;
	row = prof_dictionary_find(strings, id);
	column = prof_dictionary_column(strings, PROF_STRING_TEXT);
	if (row >= 0)
		snprintf(text, sizeof(text), "%.*s",
			 (int)(column->offsets[row + 1] - column->offsets[row]),
			 (const char *)column->bytes + column->offsets[row]);
	prof_dictionary_free(strings);
	return row >= 0 ? text : NULL;
}

/* Returns how many records were lost for this cause in the whole session. */
static inline uint64_t losses_of(const struct parts *parts, enum prof_loss_cause cause)
{
	GHashTableIter iter;
	gpointer value;
	uint64_t sum = 0;

	g_hash_table_iter_init(&iter, parts->losses.total);
	while (g_hash_table_iter_next(&iter, NULL, &value))
		if (((struct loss *)value)->key.cause == cause)
			sum += ((struct loss *)value)->count;
	return sum;
}

/* Returns whether an unknown number of records was lost for this cause. */
static inline bool has_uncounted_loss(const struct parts *parts, enum prof_loss_cause cause)
{
	GHashTableIter iter;
	gpointer value;

	g_hash_table_iter_init(&iter, parts->losses.total);
	while (g_hash_table_iter_next(&iter, NULL, &value))
		if (((struct loss *)value)->key.cause == cause &&
		    ((struct loss *)value)->key.is_unknown)
			return true;
	return false;
}

struct bytes {
	_Alignas(8) uint8_t data[16384];
	size_t length;
};

static inline void put(struct bytes *bytes, const void *data, size_t length)
{
	if (length)
		memcpy(bytes->data + bytes->length, data, length);
	bytes->length += length;
}

static inline void put_u64(struct bytes *bytes, uint64_t v)
{
	put(bytes, &v, sizeof(v));
}

static inline void put_u32(struct bytes *bytes, uint32_t v)
{
	put(bytes, &v, sizeof(v));
}

/* Appends the name with its NUL, padded to a multiple of 8 bytes. */
static inline void put_name(struct bytes *bytes, const char *name)
{
	static const char zeros[8];
	size_t length = strlen(name) + 1;

	put(bytes, name, length);
	put(bytes, zeros, -length & 7);
}

/* Begins a perf record. Returns its offset, for record_end(), which appends the trailer, or for
 * record_close(). */
static inline size_t record_begin(struct bytes *bytes, uint32_t type, uint16_t misc)
{
	const struct perf_event_header header = { .type = type, .misc = misc };
	size_t at = bytes->length;

	put(bytes, &header, sizeof(header));
	return at;
}

static inline void record_close(struct bytes *bytes, size_t at)
{
	((struct perf_event_header *)(void *)(bytes->data + at))->size = bytes->length - at;
}

static inline void record_end(struct bytes *bytes, size_t at, int32_t pid, int32_t tid,
			      uint64_t time_ns)
{
	put_u32(bytes, pid);
	put_u32(bytes, tid);
	put_u64(bytes, time_ns);
	put_u64(bytes, 0); /* cpu */
	put_u64(bytes, 7); /* event id */
	record_close(bytes, at);
}

static inline void put_sample(struct bytes *bytes, uint16_t mode, int32_t pid, int32_t tid,
			      uint64_t time_ns, const uint64_t *ips, size_t n)
{
	size_t at = record_begin(bytes, PERF_RECORD_SAMPLE, mode);

	put_u64(bytes, 7);
	put_u64(bytes, n ? ips[n > 1] : 0x1234);
	put_u32(bytes, pid);
	put_u32(bytes, tid);
	put_u64(bytes, time_ns);
	put_u64(bytes, 0);
	put_u64(bytes, 1001001);
	put_u64(bytes, n);
	put(bytes, ips, n * sizeof(*ips));
	put_u64(bytes, 1); /* cgroup */
	record_close(bytes, at);
}

static inline void put_comm(struct bytes *bytes, int32_t pid, const char *name, bool exec,
			    uint64_t time_ns)
{
	size_t at = record_begin(bytes, PERF_RECORD_COMM, exec ? PERF_RECORD_MISC_COMM_EXEC : 0);

	put_u32(bytes, pid);
	put_u32(bytes, pid);
	put_name(bytes, name);
	record_end(bytes, at, pid, pid, time_ns);
}

static inline void put_item(struct bytes *bytes, uint32_t kind, int32_t pid, uint64_t time_ns,
			    const void *data, size_t length)
{
	const struct snapshot_record record = {
		.kind = kind, .length = length, .pid = pid, .tid = pid, .time_ns = time_ns
	};
	static const char zeros[8];

	put(bytes, &record, sizeof(record));
	put(bytes, data, length);
	put(bytes, zeros, -length & 7);
}

static inline void put_text(struct bytes *bytes, uint32_t kind, int32_t pid, uint64_t time_ns,
			    const char *text)
{
	put_item(bytes, kind, pid, time_ns, text, strlen(text));
}
