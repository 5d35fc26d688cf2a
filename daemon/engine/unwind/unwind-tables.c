/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Unwind tables - compiles the table of each file once, in a worker thread
 *
 * The worker reads and compiles a file that profd-files has opened. This takes from 0.1 ms to about
 * 50 ms. Build-id, device, inode, size and change time together identify a file. A build-id alone
 * could be forged; with the other fields, only processes that map the forged file get its table.
 * Images of one identity share a table. Tables remain until the session ends. Their total memory is
 * limited; a file beyond the limit gets no table.
 * Invariants: (1) the drain thread never waits for a file, because it shares only two queues with
 *                 the worker
 *             (2) an unusable file costs its own table only
 *                 [test-engine-unwind: bad]
 *             (3) each identity is compiled once  [test-engine-unwind: shared]
 *             (4) at most MAX_OPEN files stay open  [test-engine-unwind: many_open]
 * A dump of generated code grows. Its next part is read when a frame is in code that was not read
 * yet. The frame sizes of functions that keep a frame pointer are read from the code when a walk
 * needs them. Threads: the worker uses only queued files; the drain thread calls every function in
 * the header. `lock` guards the two queues.
 */
#include "daemon/engine/unwind/unwind-tables.h"

#include "arch/base.h"
#include "arch/errno-text.h"
#include "base/clock.h"
#include "base/each.h"
#include "base/hash.h"
#include "base/order.h"
#include "daemon/engine/interp/interp-runtime.h"
#include "daemon/engine/model/program.h"
#include "daemon/engine/model/vdso.h"
#include "daemon/engine/unwind/jit-frames.h"
#include "daemon/engine/unwind/unwind-file.h"

#include <errno.h>
#include <glib.h>
#include <pthread.h>
#include <sys/eventfd.h>

/* Limit for a file's sections; compiling them may use the same amount again. */
#define MAX_FILE_BYTES (UINT64_C(256) << 20)
#define MAX_FRAMES 1024u /* limit for how many frame sizes are read from a file */
#define MAX_OPEN 1024u   /* files that stay open, so that frames can be read */
#define MAX_TABLES_BYTES (UINT64_C(256) << 20)
#define END_PATIENCE_MS 100
#define REREAD_NS UINT64_C(50000000)

struct identity {
	uint64_t dev, inode, size;
	int64_t ctime_ns;
	uint32_t build_id_bytes;
	uint8_t build_id[IMAGE_BUILD_ID_MAX];
};

/* The frame of a function that keeps a frame pointer, at an address of the function. */
struct frame {
	uint64_t address;
	uint32_t sp_bytes;
	enum unwind_frame_state state;
};

/* A file, from its first request to the end of the session. The worker owns queued files. */
struct file {
	struct identity identity;
	int fd;             /* -1: not needed any more, or owned by `jit` */
	unsigned int parts; /* of enum unwind_tables_part */
	enum image_program program;
	bool done;
	struct interp_runtime runtime; /* runtime.found is INTERP_FOUND_NONE: no interpreter */
	struct unwind_file *table;     /* NULL: unusable, or not made yet */
	struct jit_frames *jit;        /* tables of generated code, instead of `table` */
	GArray *reading;               /* struct frame: frames to be read; NULL: none */
	/* `done`, `images` and the next five belong to the drain thread. is_read: the file is
	 * queued to be read again. */
	GArray *frames; /* struct frame: all that were requested; NULL: none */
	guint n_read;   /* the sizes of the first n_read frames were read */
	bool is_read;
	bool is_requested; /* a frame is in code that `jit` lacks */
	uint64_t read_ns;
	int error;
	GPtrArray *images; /* images that wait for the table; referenced */
};

struct unwind_tables {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake, end;
	GQueue todo, done; /* struct file */
	bool ending, ended;
	int event_fd;
	uint64_t bytes;      /* bytes of all tables; used by the worker only */
	unsigned int n_open; /* files that stay open; used by the worker only */
	GHashTable *files;   /* struct file by its identity; used by the drain thread only */
	GPtrArray *dumps;    /* files with generated code; used by the drain thread only */
	uint32_t version;    /* see unwind_tables_version() */
	unsigned int n_waiting;
	unsigned int parts; /* of enum unwind_tables_part */
	struct unwind_file *vdso;
};

static guint hash_identity(gconstpointer data)
{
	const struct identity *identity = data;
	uint64_t hash = identity->inode * HASH_ODD ^ identity->dev;

	return (guint)(hash >> 32) ^ (guint)hash ^ (guint)identity->ctime_ns;
}

static gboolean same_identity(gconstpointer a, gconstpointer b)
{
	const struct identity *x = a, *y = b;

	return x->dev == y->dev && x->inode == y->inode && x->size == y->size &&
	       x->ctime_ns == y->ctime_ns && x->build_id_bytes == y->build_id_bytes &&
	       memcmp(x->build_id, y->build_id, x->build_id_bytes) == 0;
}

static void free_file(gpointer data)
{
	struct file *file = data;

	if (file->fd >= 0)
		close(file->fd);
	unwind_file_free(file->table);
	jit_frames_free(file->jit);
	g_clear_pointer(&file->frames, g_array_unref);
	g_clear_pointer(&file->reading, g_array_unref);
	g_ptr_array_free(file->images, TRUE);
	g_free(file);
}

/* ---- The worker ---- */

static void make(struct unwind_tables *tables, struct file *file)
{
	const struct unwind_source source = { .fd = file->fd };

	if (file->reading) {
		ARRAY_EACH(struct frame, frame, file->reading)
			frame->state = unwind_file_frame_bytes(file->table, &source, frame->address,
							       &frame->sp_bytes)
					       ? UNWIND_FRAME_KNOWN
					       : UNWIND_FRAME_UNKNOWN;
		return;
	}
	if (!file->jit && file->parts & UNWIND_TABLES_TABLE)
		file->jit = jit_frames_new(file->fd);
	if (file->jit) {
		file->fd = -1;
		file->program = IMAGE_PROGRAM_NONE;
		tables->bytes += jit_frames_read(
			file->jit, MAX_TABLES_BYTES - MIN_OF(tables->bytes, MAX_TABLES_BYTES));
		return;
	}
	file->program = program_read(file->fd);
	if (file->parts & UNWIND_TABLES_INTERPRETER)
		(void)interp_runtime_find(file->fd, &file->runtime);
	if (file->parts & UNWIND_TABLES_TABLE)
		file->table = unwind_file_new(&source, MAX_FILE_BYTES, &file->error);
	if (file->table && tables->bytes + file->table->size > MAX_TABLES_BYTES) {
		unwind_file_free(steal_ptr(&file->table));
		file->error = E2BIG;
	}
	if (file->table)
		tables->bytes += file->table->size;
	/* Frame sizes cannot be read from a closed file. */
	if (!file->table || !(file->parts & UNWIND_TABLES_FRAMES) || tables->n_open == MAX_OPEN)
		close(steal_fd(&file->fd));
	else
		tables->n_open++;
}

static void *work(void *data)
{
	struct unwind_tables *tables = data;
	struct file *file;
	uint64_t one = 1;

	pthread_mutex_lock(&tables->lock);
	while (!tables->ending) {
		file = g_queue_pop_head(&tables->todo);
		if (!file) {
			pthread_cond_wait(&tables->wake, &tables->lock);
			continue;
		}
		pthread_mutex_unlock(&tables->lock);
		make(tables, file);
		pthread_mutex_lock(&tables->lock);
		g_queue_push_tail(&tables->done, file);
		if (write(tables->event_fd, &one, sizeof(one)) < 0)
			continue; /* the drain thread also checks in each round */
	}
	tables->ended = true;
	pthread_cond_signal(&tables->end);
	pthread_mutex_unlock(&tables->lock);
	return NULL;
}

/* ---- The drain thread ---- */

struct unwind_tables *unwind_tables_new(GError **error)
{
	struct unwind_tables *tables = g_new0(struct unwind_tables, 1);
	struct unwind_source vdso = { .fd = -1 };
	pthread_condattr_t attributes;
	int r = 0;

	pthread_mutex_init(&tables->lock, NULL);
	pthread_cond_init(&tables->wake, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&tables->end, &attributes);
	pthread_condattr_destroy(&attributes);
	tables->files = g_hash_table_new_full(hash_identity, same_identity, NULL, free_file);
	tables->dumps = g_ptr_array_new();
	tables->parts = UNWIND_TABLES_TABLE | UNWIND_TABLES_INTERPRETER | UNWIND_TABLES_FRAMES;
	tables->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = tables->event_fd < 0 ? errno : pthread_create(&tables->thread, NULL, work, tables);
	if (r == 0) {
		vdso.bytes = vdso_find(&vdso.size);
		if (vdso.bytes)
			tables->vdso = unwind_file_new(&vdso, MAX_FILE_BYTES, &r);
		return tables;
	}
	g_set_error(error, G_FILE_ERROR, g_file_error_from_errno(r),
		    "Starting the thread for unwind tables failed: %s", ERRNO_TEXT(r));
	if (tables->event_fd >= 0)
		close(tables->event_fd);
	g_ptr_array_unref(tables->dumps);
	g_hash_table_destroy(tables->files);
	g_free(tables);
	return NULL;
}

static bool end_worker(struct unwind_tables *tables)
{
	const struct timespec until =
		clock_timespec(clock_now() + END_PATIENCE_MS * UINT64_C(1000000));
	bool ended;
	int r = 0;

	pthread_mutex_lock(&tables->lock);
	tables->ending = true;
	pthread_cond_signal(&tables->wake);
	while (!tables->ended && r == 0)
		r = pthread_cond_timedwait(&tables->end, &tables->lock, &until);
	ended = tables->ended;
	pthread_mutex_unlock(&tables->lock);
	return ended;
}

void unwind_tables_free(struct unwind_tables *tables)
{
	if (!tables)
		return;
	if (!end_worker(tables)) {
		pthread_detach(tables->thread);
		return;
	}
	pthread_join(tables->thread, NULL);
	g_queue_clear(&tables->todo);
	g_queue_clear(&tables->done);
	g_ptr_array_unref(tables->dumps);
	g_hash_table_destroy(tables->files);
	unwind_file_free(tables->vdso);
	pthread_mutex_destroy(&tables->lock);
	pthread_cond_destroy(&tables->wake);
	pthread_cond_destroy(&tables->end);
	close(tables->event_fd);
	g_free(tables);
}

void unwind_tables_limit(struct unwind_tables *tables, unsigned int parts)
{
	tables->parts = parts;
}

int unwind_tables_fd(const struct unwind_tables *tables)
{
	return tables->event_fd;
}

static void give(struct unwind_tables *tables, const struct file *file, struct image *image)
{
	/* Some stacks were walked without the table: see image_is_given_up(). */
	tables->version += image->failed != NULL;
	image->program = file->program;
	image->unwind = file->table;
	image->jit = file->jit;
	image->runtime = file->runtime.found != INTERP_FOUND_NONE ? &file->runtime : NULL;
	image->unwind_state = file->table || file->jit ? IMAGE_UNWIND_READY : IMAGE_UNWIND_NONE;
}

static struct identity identity_of(const struct image *image)
{
	struct identity identity = {
		.dev = image->opened.dev,
		.inode = image->opened.inode,
		.size = image->size,
		.ctime_ns = image->ctime_ns,
		.build_id_bytes = image->opened.build_id_bytes,
	};

	memcpy(identity.build_id, image->opened.build_id, identity.build_id_bytes);
	return identity;
}

/* Sorts small files first: many samples wait for them, and they compile fast. */
COMPARE_WITH(compare_sizes, struct file, ORDER(a->identity.size, b->identity.size))

static void hand_over(struct unwind_tables *tables, struct file *file)
{
	pthread_mutex_lock(&tables->lock);
	g_queue_insert_sorted(&tables->todo, file, compare_sizes, NULL);
	pthread_cond_signal(&tables->wake);
	pthread_mutex_unlock(&tables->lock);
}

void unwind_tables_add(struct unwind_tables *tables, struct image *image, int fd)
{
	struct identity identity = identity_of(image);
	struct file *file = g_hash_table_lookup(tables->files, &identity);

	if (file && file->done) {
		give(tables, file, image);
		close(fd);
		return;
	}
	image->unwind_state = IMAGE_UNWIND_WAITING;
	if (file) {
		g_ptr_array_add(file->images, row_ref(&image->row));
		close(fd);
		return;
	}
	file = g_new0(struct file, 1);
	file->identity = identity;
	file->fd = fd;
	file->parts = tables->parts;
	file->images = g_ptr_array_new_with_free_func((GDestroyNotify)row_unref);
	g_ptr_array_add(file->images, row_ref(&image->row));
	g_hash_table_insert(tables->files, &file->identity, file);
	tables->n_waiting++;
	hand_over(tables, file);
}

/* Queues each dump in which requested code was not found yet, so that its next part is read. */
static void read_on(struct unwind_tables *tables)
{
	POINTER_EACH(struct file, file, tables->dumps) {
		uint64_t now_ns;

		if (!file->is_requested || file->is_read)
			continue;
		now_ns = clock_now();
		if (now_ns - file->read_ns < REREAD_NS)
			continue;
		file->is_requested = false;
		file->is_read = true;
		file->read_ns = now_ns;
		hand_over(tables, file);
	}
}

void unwind_tables_request_more(const struct unwind_tables *tables, const struct image *dump)
{
	POINTER_EACH(struct file, file, tables->dumps)
		file->is_requested |= file->jit == dump->jit;
}

/* Queues a file, unless it is queued already, so that its requested frames are read. */
static void read_frames(struct unwind_tables *tables, struct file *file)
{
	const guint n = file->frames ? file->frames->len - file->n_read : 0;

	if (file->is_read || n == 0)
		return;
	file->reading = g_array_sized_new(FALSE, FALSE, sizeof(struct frame), n);
	g_array_append_vals(file->reading, &g_array_index(file->frames, struct frame, file->n_read),
			    n);
	file->is_read = true;
	hand_over(tables, file);
}

static void receive_frames(struct unwind_tables *tables, struct file *file)
{
	g_autoptr(GArray) read = g_steal_pointer(&file->reading);

	for (guint i = 0; read && i < read->len; i++)
		g_array_index(file->frames, struct frame, file->n_read++) =
			g_array_index(read, struct frame, i);
	read_frames(tables, file);
}

enum unwind_frame_state unwind_tables_frame_bytes(struct unwind_tables *tables,
						  const struct image *image, uint64_t address,
						  uint32_t *ret_bytes)
{
	const struct identity identity = identity_of(image);
	struct file *file = g_hash_table_lookup(tables->files, &identity);
	const struct frame added = { .address = address, .state = UNWIND_FRAME_PENDING };

	if (!file || !file->done || !file->table || !(file->parts & UNWIND_TABLES_FRAMES))
		return UNWIND_FRAME_UNKNOWN;
	if (!file->frames)
		file->frames = g_array_new(FALSE, FALSE, sizeof(struct frame));
	ARRAY_EACH(const struct frame, frame, file->frames) {
		if (frame->address != address)
			continue;
		*ret_bytes = frame->sp_bytes;
		return frame->state;
	}
	if (file->frames->len == MAX_FRAMES)
		return UNWIND_FRAME_UNKNOWN;
	g_array_append_val(file->frames, added);
	read_frames(tables, file);
	return UNWIND_FRAME_PENDING;
}

uint32_t unwind_tables_version(const struct unwind_tables *tables)
{
	return tables->version;
}

bool unwind_tables_receive(struct unwind_tables *tables)
{
	GQueue done;
	struct file *file;
	uint64_t count;
	bool any = false;

	read_on(tables);
	/* Read even if nothing is pending: the worker may write the counter after this read, but
	 * before its file is received below. A counter that is never read would wake the drain
	 * thread forever. */
	if (read(tables->event_fd, &count, sizeof(count)) < 0 && tables->n_waiting == 0)
		return false;
	pthread_mutex_lock(&tables->lock);
	done = tables->done;
	g_queue_init(&tables->done);
	pthread_mutex_unlock(&tables->lock);
	while ((file = g_queue_pop_head(&done)) != NULL) {
		any = true;
		if (!file->done) {
			tables->n_waiting--;
			file->done = true;
			if (file->jit)
				g_ptr_array_add(tables->dumps, file);
			for (guint i = 0; i < file->images->len; i++)
				give(tables, file, g_ptr_array_index(file->images, i));
			g_ptr_array_set_size(file->images, 0);
		}
		file->is_read = false;
		receive_frames(tables, file);
		if (file->jit && jit_frames_receive(file->jit))
			tables->version++;
	}
	return any;
}

unsigned int unwind_tables_waiting(const struct unwind_tables *tables)
{
	return tables->n_waiting;
}

const struct unwind_file *unwind_tables_vdso(const struct unwind_tables *tables)
{
	return tables->vdso;
}
