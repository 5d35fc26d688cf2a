/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "libcapture/prof-capture.h"

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

struct writer;

/* A block and the time range of its rows. */
struct writer_batch {
	struct prof_block *block;
	uint64_t from_ns, to_ns;
};

/* The rows of one table that could not be written. */
struct writer_loss {
	enum prof_table table;
	uint64_t rows, bytes, from_ns, to_ns;
};

/* Starts the thread, which waits for blocks. */
struct writer *writer_new(GError **error);
/* Borrows the capture until writer_free(). On failure, writer_error() returns the same error. */
bool writer_open(struct writer *writer, int capture, const struct prof_writer_options *options,
		 GError **error);
uint32_t writer_first_epoch(const struct writer *writer);
/* Returns a descriptor that is readable when the writer has failed or finished. */
int writer_fd(const struct writer *writer);

/* Queues a block and takes ownership of it. If the queue is full, returns false, and the caller
 * keeps the block. For dictionaries (`data` false), the queue may be twice as long. Rows of losses
 * always fit, because dropping them would lose their counts. */
bool writer_push(struct writer *writer, const struct writer_batch *batch, bool data);
/* Returns an empty block of a table, for reuse, or NULL. */
struct prof_block *writer_get_block(struct writer *writer, enum prof_table table);
uint64_t writer_bytes(
	const struct writer *writer); /* bytes of the capture; for a pipe, updated during a write */
int writer_error(const struct writer *writer); /* 0, or the errno that ended writing */

/* Ends the input: writes the queue and loss rows for blocks that were not written, and finishes the
 * capture. Returns false if this takes longer than `wait_ms`; the thread continues, and the call
 * can be repeated. */
bool writer_finish(struct writer *writer, unsigned int wait_ms);
/* Counts the rest of the queue as lost instead of writing it, except rows of losses. */
void writer_hurry(struct writer *writer);
/* Returns the cause for the losses in writer_losses(). */
enum prof_loss_cause writer_loss_cause(const struct writer *writer);
/* Returns the losses, of struct writer_loss. Valid after writer_finish(). */
const GArray *writer_losses(const struct writer *writer);
void writer_free(struct writer *writer);
