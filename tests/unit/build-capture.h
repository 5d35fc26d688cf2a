/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Build-capture - writes captures row by row, for tests
 *
 *     struct build build;
 *     build_begin(&build);
 *     build_text(&build, 1, "libx.so");
 *     BUILD(&build, PROF_TABLE_FRAME, N(1), N(2), N(0x10), N(PROF_FRAME_EXACT));
 *     build_finish(&build);
 *     …open build.path, any number of times…
 *     build_done(&build);
 */
#pragma once

#include "libcapture/prof-capture.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BUILD_TABLES (PROF_TABLE_LAST + 1)
#define BUILD_START 1000000000

struct build {
	int fd;
	char path[32];
	struct prof_writer *writer;
	struct prof_block *blocks[BUILD_TABLES];
	uint32_t epoch;
};

#define N PROF_NUMBER
#define BUILD(build, table, ...)                                          \
	build_row((build), (table), (struct prof_value[]){ __VA_ARGS__ }, \
		  sizeof((struct prof_value[]){ __VA_ARGS__ }) / sizeof(struct prof_value))

static inline void build_open_segment(struct build *build, enum prof_writer_mode mode,
				      uint64_t start, uint8_t boot)
{
	struct prof_writer_options options = {
		.mode = mode,
		.segment = { .boot_id = { boot },
			     .start_monotonic_ns = start,
			     .wall_ns = 1700000000000000000 + (int64_t)start },
	};
	int r = prof_writer_new(build->fd, &options, &build->writer);

	assert(r == 0);
	build->epoch = prof_writer_first_epoch(build->writer);
}

static inline void build_begin(struct build *build)
{
	*build = (struct build){ .fd = memfd_create("test-capture", MFD_CLOEXEC) };
	assert(build->fd >= 0);
	snprintf(build->path, sizeof(build->path), "/proc/self/fd/%d", build->fd);
	for (unsigned id = 1; id < BUILD_TABLES; id++)
		if (prof_table_v1(id)) {
			int r = prof_block_new(prof_table_v1(id), &build->blocks[id]);

			assert(r == 0);
		}
	build_open_segment(build, PROF_WRITE_NEW, BUILD_START, 1);
}

/* Adds a row. Columns at its end may be left out, and are then 0 or empty. */
static inline void build_row(struct build *build, unsigned table, const struct prof_value *values,
			     size_t n)
{
	const struct prof_table_def *def = prof_table_v1(table);
	struct prof_value row[PROF_MAX_COLUMNS] = { 0 };
	int r;

	assert(n <= def->n_columns);
	memcpy(row, values, n * sizeof(*row));
	r = prof_block_add(build->blocks[table], row);
	assert(r == 0);
}

static inline void build_text(struct build *build, uint64_t id, const char *text)
{
	BUILD(build, PROF_TABLE_STRING, N(id), PROF_BYTES(text, strlen(text)));
}

static inline void build_metadata(struct build *build, const char *key, const char *value)
{
	BUILD(build, PROF_TABLE_METADATA, N(BUILD_START), PROF_BYTES(key, strlen(key)),
	      PROF_BYTES(value, strlen(value)));
}

/* Writes the rows of one table as a chunk of the current epoch. */
static inline void build_write(struct build *build, unsigned table)
{
	int r;

	if (!build->blocks[table] || prof_block_rows(build->blocks[table]) == 0)
		return;
	prof_block_set_epoch(build->blocks[table], build->epoch);
	r = prof_writer_write(build->writer, build->blocks[table]);
	assert(r == 0);
	prof_block_reset(build->blocks[table]);
}

/* Writes all rows, then begins a new epoch. Strings and processes are written first, then the other
 * tables in the order of their ids, so that names precede the rows that refer to them. */
static inline void build_next_epoch(struct build *build)
{
	build_write(build, PROF_TABLE_STRING);
	build_write(build, PROF_TABLE_PROCESS);
	for (unsigned id = 1; id < BUILD_TABLES; id++)
		build_write(build, id);
	build->epoch++;
}

static inline void build_next_segment(struct build *build, uint64_t start, uint8_t boot)
{
	int r;

	build_next_epoch(build);
	r = prof_writer_finish(build->writer);
	assert(r == 0);
	prof_writer_free(build->writer);
	build_open_segment(build, PROF_WRITE_APPEND, start, boot);
}

static inline void build_finish(struct build *build)
{
	int r;

	build_next_epoch(build);
	r = prof_writer_finish(build->writer);
	assert(r == 0);
	prof_writer_free(build->writer);
	build->writer = NULL;
}

static inline void build_done(struct build *build)
{
	prof_writer_free(build->writer);
	for (unsigned id = 1; id < BUILD_TABLES; id++)
		prof_block_free(build->blocks[id]);
	close(build->fd);
}
