/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "libcapture/prof-capture.h"

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

struct writer;

/* A block and when its rows came. */
struct writer_batch {
	struct prof_block *block;
	uint64_t from_ns, to_ns;
};

/* Rows of a table that could not be written. */
struct writer_loss {
	enum prof_table table;
	uint64_t rows, bytes, from_ns, to_ns;
};

/* Starts the thread, which waits for writer_open. */
struct writer *writer_new(GError **error);
/* The capture is borrowed until writer_free. A failure is the writer's error too. */
bool writer_open(struct writer *writer, int capture, const struct prof_writer_options *options,
		 GError **error);
uint32_t writer_first_epoch(const struct writer *writer);
/* Readable when the writer has failed or finished. */
int writer_fd(const struct writer *writer);

/* Queues a block, which then belongs to the writer. False: the queue is full, the block stays
 * with the caller. Dictionaries (`data` false) are still taken when data no longer are. */
bool writer_push(struct writer *writer, const struct writer_batch *batch, bool data);
/* An empty block of a table that was written before, or NULL. */
struct prof_block *writer_take_block(struct writer *writer, enum prof_table table);
uint64_t writer_bytes(
	const struct writer *writer); /* of the capture, also amid a block where it is a pipe */
int writer_error(const struct writer *writer); /* 0, or the errno that ended writing */

/* Nothing is pushed any more: writes what is queued, says in the capture what an error kept out
 * of it, finishes it. False: not done after `wait_ms`; it goes on, and can be waited for again. */
bool writer_finish(struct writer *writer, unsigned int wait_ms);
/* What is still queued is counted as lost, so that the end comes soon. */
void writer_hurry(struct writer *writer);
/* Of writer_losses. */
enum prof_loss_cause writer_loss_cause(const struct writer *writer);
/* After writer_finish: struct writer_loss. */
const GArray *writer_losses(const struct writer *writer);
void writer_free(struct writer *writer);
