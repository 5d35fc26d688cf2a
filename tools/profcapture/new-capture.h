/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * New-capture - a capture that is being written from another one
 *
 * Rows are added table by table; blocks, chunks and epochs are its business. Dictionary rows are
 * interned: the same content gets the same id within an epoch and is written once, before the first
 * row that names it.
 */
#pragma once

#include "tools/common/number-map.h"

#include "arch/base.h"
#include "libcapture/prof-capture.h"

#include <glib.h>

/* An id that no dictionary row of a new capture has: what was lost stays lost. */
#define NEW_CAPTURE_LOST UINT32_MAX
/* An epoch is full when one of its dictionaries has as many rows. */
#define NEW_CAPTURE_EPOCH_ROWS (2u << 20)

struct new_table {
	const struct prof_table_def *def;
	struct prof_block *block;
	uint32_t next_id;
	struct number_map known; /* hash of content → id */
	GByteArray *contents;    /* rows interned in this epoch, encoded */
	GArray *content_of;      /* size_t by id: where its content begins */
	unsigned rank;           /* dictionaries are written in this order: what is named first */
};

struct new_capture {
	const char *file; /* for messages */
	int fd;
	struct prof_writer *writer;
	struct new_table *tables;
	size_t n_tables;
	uint32_t epoch;
	GByteArray *scratch;
};

/* Begins a capture in an empty file, or in a pipe. The definitions must outlive it. */
bool new_capture_init(struct new_capture *to, int fd, const char *file,
		      const struct prof_table_def *const *tables, size_t n_tables,
		      const struct prof_segment *segment, GError **error);
void new_capture_done(struct new_capture *to);

/* Adds a row to a table that is no dictionary. */
bool new_capture_add(struct new_capture *to, size_t table, const struct prof_value *values,
		     GError **error);
/* Id of a dictionary row; values[0] is ignored. False: ret_id untouched. */
bool new_capture_intern(struct new_capture *to, size_t table, const struct prof_value *values,
			uint32_t *ret_id, GError **error);
/* Ids of before mean nothing from here on. */
bool new_capture_next_epoch(struct new_capture *to, GError **error);
bool new_capture_next_segment(struct new_capture *to, const struct prof_segment *segment,
			      GError **error);
bool new_capture_finish(struct new_capture *to, GError **error);
