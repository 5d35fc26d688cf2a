/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Writer - shared by writer.c and append.c */
#pragma once

#include "libcapture/entries.h"
#include "libcapture/sink.h"

/* Rows of a dictionary table in its current epoch. */
struct dictionary_count {
	uint16_t table;
	uint32_t epoch;
	uint64_t rows, bytes;
};

struct prof_writer {
	struct sink sink;
	struct file_header header;
	struct codec_encoder encoder;
	size_t group_rows;
	struct schema schema;
	struct buffer schema_section;
	bool schema_changed;
	struct prof_segment *segments;
	size_t n_segments;
	uint32_t last_segment; /* highest segment number, even if that segment's record was lost */
	uint32_t first_epoch;
	uint64_t sequence;
	struct buffer chunk;        /* chunk being written */
	struct prof_block *pending; /* entries of the last checkpoint and of the chunks after it */
	struct entries index;       /* entries of all chunks */
	struct gap_list gaps;
	size_t new_gaps; /* index of the first gap that is in no checkpoint */
	uint64_t last_checkpoint;
	uint64_t checkpoint_end;
	size_t chunks_since;
	struct dictionary_count counts[PROF_MAX_TABLES];
	size_t n_counts;
	bool finished;
};

/* ---- writer.c -------------------------------------------------------------------------------- */

/* Returns the segment that is being written. */
const struct prof_segment *writer_segment(const struct prof_writer *writer);
MUST_CHECK int writer_add_segment(struct prof_writer *writer, const struct prof_segment *segment);
/* Adds a segment that starts now, with the next number and epoch. */
MUST_CHECK int writer_new_segment(struct prof_writer *writer, const struct prof_segment *segment);
/* Adds the tables and columns of version 1 that the schema lacks. Keeps the file's definitions that
 * conflict with version 1. */
MUST_CHECK int writer_add_v1(struct prof_writer *writer);
/* Writes a checkpoint, or two if the schema or the segment is new, so that neither is lost if one
 * checkpoint is damaged. */
MUST_CHECK int writer_write_checkpoints(struct prof_writer *writer);

/* ---- append.c -------------------------------------------------------------------------------- */

/* Continues the capture in the sink's file. */
MUST_CHECK int writer_append(struct prof_writer *writer, const struct prof_writer_options *options);
