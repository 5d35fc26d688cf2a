/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * New-capture - writes a capture from the rows of another one
 *
 * Callers add rows table by table. This module manages blocks, chunks and epochs. Dictionary rows
 * are interned: within an epoch, equal rows get one id and are written once, before any row that
 * refers to them.
 */
#pragma once

#include "tools/common/number-map.h"

#include "arch/base.h"
#include "libcapture/prof-capture.h"

#include <glib.h>

/* The id for references to lost rows. No dictionary row of a new capture has it. */
#define NEW_CAPTURE_LOST UINT32_MAX
/* Callers begin a new epoch when a dictionary has this many rows. */
#define NEW_CAPTURE_EPOCH_ROWS (2u << 20)

struct new_table {
	const struct prof_table_def *def;
	struct prof_block *block;
	uint32_t next_id;
	struct number_map known; /* hash of content → id */
	GByteArray *contents;    /* encoded rows of this epoch's dictionary */
	GArray *content_of;      /* size_t by id: offset in contents */
	unsigned rank; /* order in which dictionaries are written: referenced ones first */
};

struct new_capture {
	const char *file; /* name for messages */
	int fd;
	struct prof_writer *writer;
	struct new_table *tables;
	size_t n_tables;
	uint32_t epoch;
	GByteArray *scratch;
};

/* Begins a capture in an empty file or a pipe. `tables` must outlive `to`. */
bool new_capture_init(struct new_capture *to, int fd, const char *file,
		      const struct prof_table_def *const *tables, size_t n_tables,
		      const struct prof_segment *segment, GError **error);
void new_capture_done(struct new_capture *to);

/* Adds a row to a table that is not a dictionary. */
bool new_capture_add(struct new_capture *to, size_t table, const struct prof_value *values,
		     GError **error);
/* Interns a dictionary row and stores its id in *ret_id. Ignores values[0]. */
bool new_capture_intern(struct new_capture *to, size_t table, const struct prof_value *values,
			uint32_t *ret_id, GError **error);
/* Starts an epoch or a segment. Either invalidates all ids. */
bool new_capture_next_epoch(struct new_capture *to, GError **error);
bool new_capture_next_segment(struct new_capture *to, const struct prof_segment *segment,
			      GError **error);
bool new_capture_finish(struct new_capture *to, GError **error);
