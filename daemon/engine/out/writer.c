/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Writer - encodes, compresses and writes blocks in a separate thread
 *
 * A bounded queue of blocks connects the writer to the drain thread, which never waits: if the
 * queue is full, the drain thread keeps the block and counts its rows as dropped. After the first
 * error only loss rows are written: other rows are counted, and the file ends with a loss row for
 * each table that lost rows, and the trailer, for which the library has reserved room. The same
 * happens after writer_hurry().
 * Invariants: (1) blocks are written in the order of writer_push       [test-engine-rows: order]
 *             (2) the queue has at most QUEUE_BYTES of data, or twice that with dictionaries, and
 *                 in addition about a row of losses a second for each stream and cause
 *                 [test-engine-rows: backlog]
 *             (3) the drain thread waits only in writer_finish(), and at most `wait_ms`
 * Threads: the writer's own, and the drain thread, which calls every function in the header. `lock`
 * guards the shared state; the capture belongs to the writer thread once it is open.
 */
#include "daemon/engine/out/writer.h"

#include "arch/base.h"
#include "arch/errno-text.h"
#include "base/clock.h"
#include "base/each.h"
#include "base/order.h"

#include <errno.h>
#include <glib.h>
#include <pthread.h>
#include <sys/eventfd.h>

#define QUEUE_BYTES (64u << 20)
#define SPARE_BLOCKS 3u
#define SPARE_BYTES (8u << 20)

struct writer {
	pthread_t thread;
	bool running;
	pthread_mutex_t lock;
	pthread_cond_t wake; /* a block was queued, or `ending` was set */
	pthread_cond_t end;  /* `ended` was set */
	GQueue *queue;       /* struct writer_batch */
	GPtrArray *spare[PROF_TABLE_LAST + 1];
	size_t queued_bytes;
	bool ending, ended;
	int event_fd;
	struct prof_writer *capture;
	GArray *losses;
	int error;  /* atomic */
	bool hurry; /* atomic */
};

static void free_batch(gpointer data)
{
	struct writer_batch *batch = data;

	prof_block_free(batch->block);
	g_free(batch);
}

static void count_loss(struct writer *writer, const struct writer_batch *batch)
{
	enum prof_table table = prof_block_table(batch->block)->id;
	struct writer_loss *loss = NULL;

	for (guint i = 0; i < writer->losses->len && !loss; i++)
		if (g_array_index(writer->losses, struct writer_loss, i).table == table)
			loss = &g_array_index(writer->losses, struct writer_loss, i);
	if (!loss) {
		g_array_append_vals(
			writer->losses,
			&(struct writer_loss){ .table = table, .from_ns = batch->from_ns }, 1);
		loss = &g_array_index(writer->losses, struct writer_loss, writer->losses->len - 1);
	}
	loss->rows += prof_block_rows(batch->block);
	loss->bytes += prof_block_bytes(batch->block);
	loss->to_ns = MAX_OF(loss->to_ns, batch->to_ns);
}

static void fail(struct writer *writer, int error)
{
	uint64_t one = 1;

	if (__atomic_load_n(&writer->error, __ATOMIC_RELAXED) != 0)
		return;
	/* Pairs with writer_error(). */
	__atomic_store_n(&writer->error, error, __ATOMIC_RELEASE);
	if (write(writer->event_fd, &one, sizeof(one)) < 0)
		return; /* the drain thread also checks the error regularly */
}

/* Converts a library result; a positive one reports invalid rows. */
static int to_errno(int result)
{
	return result < 0 ? -result : EIO;
}

static void write_batch(struct writer *writer, const struct writer_batch *batch)
{
	/* Pairs with writer_hurry(). */
	bool failed = __atomic_load_n(&writer->error, __ATOMIC_RELAXED) != 0 ||
		      __atomic_load_n(&writer->hurry, __ATOMIC_RELAXED);
	bool is_loss = prof_block_table(batch->block)->id == PROF_TABLE_LOSS;
	int r;

	if (failed && !is_loss) {
		count_loss(writer, batch);
		return;
	}
	r = prof_writer_write(writer->capture, batch->block);
	if (r == 0)
		return;
	count_loss(writer, batch);
	fail(writer, to_errno(r));
}

enum prof_loss_cause writer_loss_cause(const struct writer *writer)
{
	int error = writer_error(writer);

	if (error == 0)
		return PROF_LOSS_WRITER_BACKLOG;
	return error == ENOSPC || error == EDQUOT || error == EFBIG ? PROF_LOSS_DISK_FULL
								    : PROF_LOSS_IO_ERROR;
}

static void write_losses(struct writer *writer)
{
	enum prof_loss_cause cause = writer_loss_cause(writer);
	const struct prof_table_def *def = prof_table_v1(PROF_TABLE_LOSS);
	struct prof_block *block;
	int r;

	if (writer->losses->len == 0 || prof_block_new(def, &block) != 0)
		return;
	ARRAY_EACH(const struct writer_loss, loss, writer->losses) {
		const char *stream = prof_table_v1(loss->table)->name;
		const struct prof_value row[PROF_LOSS_COLUMNS] = {
			[PROF_LOSS_TIME] = PROF_NUMBER(loss->from_ns),
			[PROF_LOSS_TIME_END] = PROF_NUMBER(loss->to_ns),
			[PROF_LOSS_STREAM] = PROF_BYTES(stream, strlen(stream)),
			[PROF_LOSS_CAUSE] = PROF_NUMBER(cause),
			[PROF_LOSS_COUNT] = PROF_NUMBER(loss->rows),
			[PROF_LOSS_BYTES] = PROF_NUMBER(loss->bytes),
		};

		if (prof_block_add(block, row) != 0)
			break;
	}
	/* If even these rows do not fit, the broker still receives the losses. */
	r = prof_writer_write(writer->capture, block);
	if (r != 0)
		fail(writer, to_errno(r));
	prof_block_free(block);
}

COMPARE_BY(compare_losses, struct writer_loss, ORDER(a->from_ns, b->from_ns))

static void finish(struct writer *writer)
{
	uint64_t one = 1;
	int r;

	g_array_sort(writer->losses, compare_losses);
	write_losses(writer);
	r = prof_writer_finish(writer->capture);
	if (r != 0)
		fail(writer, to_errno(r));
	if (write(writer->event_fd, &one, sizeof(one)) < 0)
		return; /* writer_finish() waits for the condition, not for the descriptor */
}

static void *run(void *data)
{
	struct writer *writer = data;
	struct writer_batch *batch;
	GPtrArray *spare;
	size_t bytes;

	pthread_setname_np(pthread_self(), "writer");
	pthread_mutex_lock(&writer->lock);
	for (;;) {
		while (!writer->ending && g_queue_is_empty(writer->queue))
			pthread_cond_wait(&writer->wake, &writer->lock);
		batch = g_queue_pop_head(writer->queue);
		if (!batch)
			break;
		pthread_mutex_unlock(&writer->lock);
		bytes = prof_block_bytes(batch->block);
		write_batch(writer, batch);
		pthread_mutex_lock(&writer->lock);
		writer->queued_bytes -= bytes;
		/* Keep a few empty blocks, so that their memory is reused. */
		spare = writer->spare[prof_block_table(batch->block)->id];
		if (spare->len < SPARE_BLOCKS && bytes < SPARE_BYTES) {
			prof_block_reset(batch->block);
			g_ptr_array_add(spare, steal_ptr(&batch->block));
		}
		free_batch(batch);
	}
	pthread_mutex_unlock(&writer->lock);
	if (writer->capture)
		finish(writer);
	pthread_mutex_lock(&writer->lock);
	writer->ended = true;
	pthread_cond_signal(&writer->end);
	pthread_mutex_unlock(&writer->lock);
	return NULL;
}

struct writer *writer_new(GError **error)
{
	struct writer *writer = g_new0(struct writer, 1);
	pthread_condattr_t attributes;
	int r;

	/* writer_finish() uses this clock for its deadline. */
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&writer->end, &attributes);
	pthread_condattr_destroy(&attributes);
	pthread_cond_init(&writer->wake, NULL);
	pthread_mutex_init(&writer->lock, NULL);
	writer->queue = g_queue_new();
	writer->losses = g_array_new(FALSE, TRUE, sizeof(struct writer_loss));
	for (size_t i = 0; i < ARRAY_SIZE(writer->spare); i++)
		writer->spare[i] = g_ptr_array_new_with_free_func((GDestroyNotify)prof_block_free);
	writer->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = writer->event_fd < 0 ? errno : pthread_create(&writer->thread, NULL, run, writer);
	writer->running = r == 0;
	if (!writer->running) {
		g_set_error(error, G_FILE_ERROR, g_file_error_from_errno(r),
			    "Starting the writing thread failed: %s", ERRNO_TEXT(r));
		writer_free(writer);
		return NULL;
	}
	return writer;
}

bool writer_open(struct writer *writer, int capture, const struct prof_writer_options *options,
		 GError **error)
{
	int r = prof_writer_new(capture, options, &writer->capture);

	if (r == 0)
		return true;
	fail(writer, to_errno(r));
	g_set_error(error, G_FILE_ERROR, g_file_error_from_errno(to_errno(r)),
		    "Opening the capture for writing failed: %s", prof_strerror(r));
	return false;
}

uint32_t writer_first_epoch(const struct writer *writer)
{
	return prof_writer_first_epoch(writer->capture);
}

int writer_fd(const struct writer *writer)
{
	return writer->event_fd;
}

bool writer_push(struct writer *writer, const struct writer_batch *batch, bool data)
{
	size_t bytes = prof_block_bytes(batch->block);
	size_t limit = data ? QUEUE_BYTES : 2 * (size_t)QUEUE_BYTES;
	bool fits = prof_block_table(batch->block)->id == PROF_TABLE_LOSS;

	pthread_mutex_lock(&writer->lock);
	fits = fits || writer->queued_bytes + bytes <= limit;
	if (fits) {
		writer->queued_bytes += bytes;
		g_queue_push_tail(writer->queue, g_memdup2(batch, sizeof(*batch)));
		pthread_cond_signal(&writer->wake);
	}
	pthread_mutex_unlock(&writer->lock);
	return fits;
}

struct prof_block *writer_get_block(struct writer *writer, enum prof_table table)
{
	GPtrArray *spare = writer->spare[table];
	struct prof_block *block = NULL;

	pthread_mutex_lock(&writer->lock);
	if (spare->len)
		block = g_ptr_array_steal_index(spare, spare->len - 1);
	pthread_mutex_unlock(&writer->lock);
	return block;
}

uint64_t writer_bytes(const struct writer *writer)
{
	return writer->capture ? prof_writer_bytes(writer->capture) : 0;
}

int writer_error(const struct writer *writer)
{
	/* Pairs with fail(). */
	return __atomic_load_n(&writer->error, __ATOMIC_ACQUIRE);
}

bool writer_finish(struct writer *writer, unsigned int wait_ms)
{
	const struct timespec until = clock_timespec(clock_now() + wait_ms * UINT64_C(1000000));
	bool ended;
	int r = 0;

	pthread_mutex_lock(&writer->lock);
	writer->ending = true;
	pthread_cond_signal(&writer->wake);
	while (!writer->ended && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&writer->end, &writer->lock, &until);
	ended = writer->ended;
	pthread_mutex_unlock(&writer->lock);
	if (ended && writer->running) {
		pthread_join(writer->thread, NULL);
		writer->running = false;
	}
	return ended;
}

void writer_hurry(struct writer *writer)
{
	/* Pairs with write_batch(). */
	__atomic_store_n(&writer->hurry, true, __ATOMIC_RELAXED);
}

const GArray *writer_losses(const struct writer *writer)
{
	return writer->losses;
}

void writer_free(struct writer *writer)
{
	if (!writer)
		return;
	if (writer->running) {
		writer_finish(writer, 0);
		if (writer->running)
			return; /* stuck in write(): leak it until the process exits */
	}
	prof_writer_free(writer->capture);
	g_queue_free_full(writer->queue, free_batch);
	g_array_free(writer->losses, TRUE);
	for (size_t i = 0; i < ARRAY_SIZE(writer->spare); i++)
		g_ptr_array_free(writer->spare[i], TRUE);
	if (writer->event_fd >= 0)
		close(writer->event_fd);
	pthread_mutex_destroy(&writer->lock);
	pthread_cond_destroy(&writer->wake);
	pthread_cond_destroy(&writer->end);
	g_free(writer);
}
