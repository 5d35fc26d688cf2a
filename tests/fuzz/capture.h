/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Capture - code shared by the fuzz targets that read whole captures
 *
 * A fuzzer cannot guess checksums, so capture_repair() writes a valid file header with the input's
 * salt, and corrects the magics and checksums of all chunks that can be reached by the lengths of
 * the chunks before them. Other bytes of chunks remain as they are. The other functions do what a
 * program may do with a capture, and read every byte that they receive.
 */
#pragma once

#include "libcapture/format.h"

#include <stdlib.h>
#include <sys/mman.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Limits of the reads: enough for a small capture, but low enough for a short run if a few bytes
 * expand to many rows. */
#define CAPTURE_BATCHES 8u
#define CAPTURE_EPOCHS 4u

static volatile uint64_t capture_sink;

static inline void capture_repair(uint8_t *data, size_t size)
{
	struct file_header header = { .version = FORMAT_VERSION };
	uint8_t first[FILE_HEADER_BYTES], magic[CHUNK_HEADER_BYTES];
	size_t at = FILE_HEADER_BYTES;

	if (size < FILE_HEADER_BYTES)
		return;
	header.salt = load_le64(data + 48);
	file_header_encode(&header, first);
	memcpy(data, first, sizeof(first));
	chunk_header_encode(&(struct chunk_header){ .kind = 0 }, header.salt, magic);
	while (at < size && size - at >= CHUNK_HEADER_BYTES) {
		uint8_t *bytes = data + at;
		size_t stored = load_le32(bytes + 64), left = size - at - CHUNK_HEADER_BYTES;

		memcpy(bytes, magic, 8);
		if (stored <= left)
			store_le64(bytes + 72, format_checksum(bytes + CHUNK_HEADER_BYTES, stored,
							       header.salt));
		store_le64(bytes + 8,
			   format_checksum(bytes + 16, CHUNK_HEADER_BYTES - 16, header.salt));
		if (stored > left)
			return;
		at += CHUNK_HEADER_BYTES + PADDED(stored);
	}
}

static inline struct prof_reader *capture_open(const uint8_t *data, size_t size)
{
	static int fd = -1;
	struct prof_reader *reader;

	if (fd < 0)
		fd = memfd_create("capture", MFD_CLOEXEC);
	if (ftruncate(fd, 0) < 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
		abort();
	return prof_reader_open(fd, &reader) == 0 ? reader : NULL;
}

static inline void capture_touch(const struct prof_array *array, size_t rows)
{
	size_t n = array->offsets ? array->offsets[rows] : rows;
	uint64_t sum = 0;

	for (size_t i = 0; array->offsets && i < rows; i++)
		if (array->offsets[i] > array->offsets[i + 1])
			abort();
	for (size_t i = 0; array->numbers && i < n; i++)
		sum += array->numbers[i];
	for (size_t i = 0; array->bytes && i < n; i++)
		sum += array->bytes[i];
	for (size_t i = 0; array->nulls && i < rows; i++)
		sum += array->nulls[i];
	capture_sink += sum;
}

static inline void capture_read_table(const struct prof_reader *reader,
				      const struct prof_table_def *def)
{
	const struct prof_cursor_options options = { .table = def->id };
	struct prof_cursor *cursor;
	struct prof_batch batch;
	uint64_t chunks, rows;

	if (prof_cursor_new(reader, &options, &cursor) != 0)
		return;
	for (size_t i = 0; i < CAPTURE_BATCHES && prof_cursor_next(cursor, &batch) == 0; i++)
		for (size_t c = 0; c < def->n_columns; c++)
			capture_touch(&batch.columns[c], batch.rows);
	prof_cursor_lost(cursor, &chunks, &rows);
	capture_sink += chunks + rows;
	prof_cursor_free(cursor);
}

static inline void capture_read_dictionary(const struct prof_reader *reader,
					   const struct prof_table_def *def, uint32_t epoch)
{
	struct prof_dictionary *dictionary;

	if (prof_dictionary_load(reader, def->id, epoch, NULL, 0, &dictionary) != 0)
		return;
	for (size_t c = 0; c < def->n_columns; c++)
		capture_touch(prof_dictionary_column(dictionary, c),
			      prof_dictionary_rows(dictionary));
	for (uint64_t id = 0; id < 16; id++)
		if (prof_dictionary_find(dictionary, id * id) >=
		    (ssize_t)prof_dictionary_rows(dictionary))
			abort();
	prof_dictionary_free(dictionary);
}

/* Reads the dictionaries of the first epochs in which the table has chunks. */
static inline void capture_read_epochs(const struct prof_reader *reader,
				       const struct prof_table_def *def)
{
	struct prof_chunks *chunks;
	struct prof_chunk chunk;
	uint32_t last = 0;
	size_t read = 0;

	if (prof_chunks_new(reader, def->id, &chunks) != 0)
		return;
	while (read < CAPTURE_EPOCHS && prof_chunks_next(chunks, &chunk) == 0) {
		if (chunk.table != def->id)
			abort();
		if (read && chunk.epoch == last)
			continue;
		last = chunk.epoch;
		capture_read_dictionary(reader, def, last);
		read++;
	}
	prof_chunks_free(chunks);
}

static inline void capture_check_chunks(const struct prof_reader *reader)
{
	struct prof_chunks *chunks;
	struct prof_damage damage;
	struct prof_chunk chunk;
	uint64_t n = 0;
	int r = 0;

	if (prof_chunks_new(reader, 0, &chunks) != 0)
		return;
	while (!r && !(r = prof_chunks_next(chunks, &chunk)))
		if (n++ < CAPTURE_BATCHES)
			(void)!prof_reader_check(reader, &chunk, &damage);
	if (r == PROF_END && n != prof_reader_info(reader)->chunks)
		abort();
	prof_chunks_free(chunks);
}
