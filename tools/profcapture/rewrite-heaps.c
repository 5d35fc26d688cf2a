/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Rewrite-heaps - the blocks that each process had when a slice begins
 *
 * Invariants: (1) a slice reports the same blocks as the whole file does for the same stretch
 *                 [test_memory_reader: cut]
 *             (2) a file cannot choose blocks that collide  (a seed of the process)
 */
#include "config.h"

#include "tools/profcapture/rewrite-heaps.h"

#include "tools/common/capture-error.h"

#include <glib/gi18n.h>

struct block {
	uint64_t number, size, alignment, since, kind;
	uint64_t thread, stack; /* ids in the epoch */
	uint32_t process;       /* index of names */
	uint32_t epoch;
};

/* A process, by index of names. */
struct heap {
	uint64_t id; /* in the epoch */
	uint64_t inherited, bytes, blocks;
	uint32_t epoch; /* 0: the process has no heap */
	bool has_ended;
};

struct rewrite_heaps {
	struct capture *from;
	uint64_t start;
	GHashTable *blocks; /* set of struct block */
	GArray *heaps;      /* struct heap */
};

static guint hash_block(gconstpointer data)
{
	static uint64_t seed;
	const struct block *block = data;

	if (seed == 0)
		seed = (uint64_t)g_random_int() << 32 | g_random_int() | 1;
	return (guint)(((block->number ^ (uint64_t)block->process << 40) * seed) >> 32);
}

static gboolean same_block(gconstpointer left, gconstpointer right)
{
	const struct block *a = left, *b = right;

	return a->number == b->number && a->process == b->process;
}

struct rewrite_heaps *rewrite_heaps_new(struct capture *from, uint64_t start)
{
	struct rewrite_heaps *heaps = g_new0(struct rewrite_heaps, 1);

	heaps->from = from;
	heaps->start = start;
	heaps->blocks = g_hash_table_new_full(hash_block, same_block, g_free, NULL);
	heaps->heaps = g_array_new(FALSE, TRUE, sizeof(struct heap));
	return heaps;
}

void rewrite_heaps_free(struct rewrite_heaps *heaps)
{
	if (!heaps)
		return;
	g_hash_table_unref(heaps->blocks);
	g_array_unref(heaps->heaps);
	g_free(heaps);
}

static struct heap *heap_of(struct rewrite_heaps *heaps, uint32_t process)
{
	if (process >= heaps->heaps->len)
		g_array_set_size(heaps->heaps, process + 1);
	return &((struct heap *)(void *)heaps->heaps->data)[process];
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The rows of one table in one epoch. */
struct stream {
	struct prof_cursor *cursor; /* NULL: no more rows */
	struct prof_batch batch;
	size_t row;
	uint64_t time;
};

static bool stream_next(struct rewrite_heaps *heaps, struct stream *stream, GError **error)
{
	int r = 0;

	stream->row++;
	while (stream->row >= stream->batch.rows && r == 0) {
		r = prof_cursor_next(stream->cursor, &stream->batch);
		stream->row = 0;
	}
	if (r == 0)
		stream->time = array_number_or(&stream->batch.columns[0], stream->row, 0);
	if (r == 0 && stream->time <= heaps->start)
		return true;
	prof_cursor_free(stream->cursor);
	stream->cursor = NULL;
	return r == 0 || r == PROF_END ||
	       capture_error(error, r, _("cannot read '%s'"), heaps->from->file);
}

static bool stream_open(struct rewrite_heaps *heaps, struct stream *stream,
			const struct prof_cursor_options *options, unsigned table, GError **error)
{
	struct prof_cursor_options of_table = *options;
	int r;

	of_table.table = table;
	*stream = (struct stream){ 0 };
	r = prof_cursor_new(heaps->from->reader, &of_table, &stream->cursor);
	if (r == PROF_NO_TABLE)
		return true;
	return r == 0 ? stream_next(heaps, stream, error)
		      : capture_error(error, r, _("cannot read '%s'"), heaps->from->file);
}

static uint64_t cell(const struct stream *stream, size_t column)
{
	return array_number_or(&stream->batch.columns[column], stream->row, 0);
}

static uint32_t process_of(const struct rewrite_heaps *heaps, struct names_epoch *names,
			   uint64_t thread)
{
	return names_thread_at(heaps->from->names, names_thread(names, thread))->process;
}

static void take_heap(struct rewrite_heaps *heaps, struct names_epoch *names,
		      const struct stream *stream)
{
	uint64_t id = cell(stream, PROF_HEAP_PROCESS), event = cell(stream, PROF_HEAP_EVENT);
	struct heap *heap = heap_of(heaps, names_process(names, id));

	if (event >= PROF_HEAP_STATIC)
		return;
	heap->id = id;
	heap->epoch = stream->batch.epoch;
	heap->inherited = cell(stream, PROF_HEAP_INHERITED);
	heap->has_ended = event == PROF_HEAP_END;
}

static void take_live(struct rewrite_heaps *heaps, struct names_epoch *names,
		      const struct stream *stream)
{
	const struct block block = {
		.number = cell(stream, PROF_LIVE_BLOCK),
		.size = cell(stream, PROF_LIVE_SIZE),
		.alignment = cell(stream, PROF_LIVE_ALIGNMENT),
		.since = cell(stream, PROF_LIVE_SINCE),
		.kind = cell(stream, PROF_LIVE_KIND),
		.thread = cell(stream, PROF_LIVE_THREAD),
		.stack = cell(stream, PROF_LIVE_STACK),
		.process = process_of(heaps, names, cell(stream, PROF_LIVE_THREAD)),
		.epoch = stream->batch.epoch,
	};

	if (!g_hash_table_contains(heaps->blocks, &block))
		g_hash_table_add(heaps->blocks, g_memdup2(&block, sizeof(block)));
}

static void take_alloc(struct rewrite_heaps *heaps, struct names_epoch *names,
		       const struct stream *stream)
{
	const struct block block = {
		.number = cell(stream, PROF_ALLOC_BLOCK),
		.size = cell(stream, PROF_ALLOC_SIZE),
		.alignment = cell(stream, PROF_ALLOC_ALIGNMENT),
		.since = stream->time,
		.kind = cell(stream, PROF_ALLOC_KIND),
		.thread = cell(stream, PROF_ALLOC_THREAD),
		.stack = cell(stream, PROF_ALLOC_STACK),
		.process = process_of(heaps, names, cell(stream, PROF_ALLOC_THREAD)),
		.epoch = stream->batch.epoch,
	};
	const struct block prior = { .number = cell(stream, PROF_ALLOC_PRIOR),
				     .process = block.process };

	if (block.number == 0)
		return;
	if (prior.number)
		g_hash_table_remove(heaps->blocks, &prior);
	g_hash_table_add(heaps->blocks, g_memdup2(&block, sizeof(block)));
}

static void take_free(struct rewrite_heaps *heaps, struct names_epoch *names,
		      const struct stream *stream)
{
	const struct block block = {
		.number = cell(stream, PROF_FREE_BLOCK),
		.process = process_of(heaps, names, cell(stream, PROF_FREE_THREAD)),
	};

	g_hash_table_remove(heaps->blocks, &block);
}

static bool read_each(struct rewrite_heaps *heaps, const struct prof_cursor_options *options,
		      unsigned table, struct names_epoch *names,
		      void (*take)(struct rewrite_heaps *, struct names_epoch *,
				   const struct stream *),
		      GError **error)
{
	struct stream stream;

	if (!stream_open(heaps, &stream, options, table, error))
		return false;
	while (stream.cursor) {
		take(heaps, names, &stream);
		if (!stream_next(heaps, &stream, error))
			return false;
	}
	return true;
}

/* Reads both tables side by side, so that only live blocks are kept. */
static bool read_changes(struct rewrite_heaps *heaps, const struct prof_cursor_options *options,
			 struct names_epoch *names, GError **error)
{
	struct stream allocs, frees;
	bool ok = stream_open(heaps, &allocs, options, PROF_TABLE_ALLOC, error) &&
		  stream_open(heaps, &frees, options, PROF_TABLE_FREE, error);

	while (ok && (allocs.cursor || frees.cursor)) {
		bool is_alloc = allocs.cursor && (!frees.cursor || allocs.time <= frees.time);

		(is_alloc ? take_alloc : take_free)(heaps, names, is_alloc ? &allocs : &frees);
		ok = stream_next(heaps, is_alloc ? &allocs : &frees, error);
	}
	return ok;
}

static gboolean has_ended(gpointer key, gpointer value, gpointer data)
{
	(void)value;
	return heap_of(data, ((const struct block *)key)->process)->has_ended;
}

bool rewrite_heaps_read(struct rewrite_heaps *heaps, uint32_t segment, uint32_t epoch,
			GError **error)
{
	const struct prof_cursor_options options = { .segment = segment, .epoch = epoch };
	struct names_epoch *names = names_epoch(heaps->from->names, epoch, error);

	if (!names || !names_load_identities(names, error) ||
	    !read_each(heaps, &options, PROF_TABLE_HEAP, names, take_heap, error) ||
	    !read_each(heaps, &options, PROF_TABLE_LIVE, names, take_live, error) ||
	    !read_changes(heaps, &options, names, error))
		return false;
	g_hash_table_foreach_remove(heaps->blocks, has_ended, heaps);
	return true;
}

/* ---- writing --------------------------------------------------------------------------------- */

static gint compare_blocks(gconstpointer left, gconstpointer right)
{
	const struct block *a = *(const struct block *const *)left,
			   *b = *(const struct block *const *)right;

	if (a->process != b->process)
		return a->process < b->process ? -1 : 1;
	return a->number < b->number ? -1 : a->number > b->number;
}

static bool write_heap(const struct rewrite_heaps *heaps, const struct heap *heap,
		       struct row_copier *copier, size_t table, GError **error)
{
	struct prof_value values[PROF_MAX_COLUMNS] = {
		[PROF_HEAP_TIME] = PROF_NUMBER(heaps->start),
		[PROF_HEAP_EVENT] = PROF_NUMBER(PROF_HEAP_CHECKPOINT),
		[PROF_HEAP_LIVE_BYTES] = PROF_NUMBER(heap->bytes),
		[PROF_HEAP_LIVE_BLOCKS] = PROF_NUMBER(heap->blocks),
		[PROF_HEAP_PEAK_BYTES] = PROF_NUMBER(heap->bytes),
		[PROF_HEAP_PEAK_TIME] = PROF_NUMBER(heaps->start),
		[PROF_HEAP_INHERITED] = PROF_NUMBER(heap->inherited),
	};

	row_copier_use(copier, heap->epoch);
	values[PROF_HEAP_PROCESS] =
		PROF_NUMBER(row_copier_id(copier, PROF_TABLE_PROCESS, heap->id));
	return row_copier_add(copier, table, values, error);
}

static bool write_live(const struct rewrite_heaps *heaps, const struct block *block,
		       struct row_copier *copier, size_t table, GError **error)
{
	struct prof_value values[PROF_MAX_COLUMNS] = {
		[PROF_LIVE_TIME] = PROF_NUMBER(heaps->start),
		[PROF_LIVE_KIND] = PROF_NUMBER(block->kind),
		[PROF_LIVE_BLOCK] = PROF_NUMBER(block->number),
		[PROF_LIVE_SIZE] = PROF_NUMBER(block->size),
		[PROF_LIVE_ALIGNMENT] = PROF_NUMBER(block->alignment),
		[PROF_LIVE_SINCE] = PROF_NUMBER(block->since),
	};

	row_copier_use(copier, block->epoch);
	values[PROF_LIVE_THREAD] =
		PROF_NUMBER(row_copier_id(copier, PROF_TABLE_THREAD, block->thread));
	values[PROF_LIVE_STACK] =
		PROF_NUMBER(row_copier_id(copier, PROF_TABLE_STACK, block->stack));
	return row_copier_add(copier, table, values, error);
}

bool rewrite_heaps_write(struct rewrite_heaps *heaps, struct row_copier *copier, GError **error)
{
	size_t heap_table = row_copier_table(copier, PROF_TABLE_HEAP),
	       live_table = row_copier_table(copier, PROF_TABLE_LIVE);
	g_autoptr(GPtrArray) blocks = g_ptr_array_new();
	GHashTableIter iter;
	gpointer block;

	if (heap_table == SIZE_MAX || live_table == SIZE_MAX)
		return true;
	g_hash_table_iter_init(&iter, heaps->blocks);
	while (g_hash_table_iter_next(&iter, &block, NULL)) {
		struct heap *heap = heap_of(heaps, ((const struct block *)block)->process);

		if (heap->epoch == 0)
			continue;
		heap->blocks++;
		heap->bytes += ((const struct block *)block)->size;
		g_ptr_array_add(blocks, block);
	}
	g_ptr_array_sort(blocks, compare_blocks);
	for (uint32_t i = NAMES_LOST + 1; i < heaps->heaps->len; i++) {
		const struct heap *heap = heap_of(heaps, i);

		if (heap->epoch && !heap->has_ended &&
		    !write_heap(heaps, heap, copier, heap_table, error))
			return false;
	}
	for (guint i = 0; i < blocks->len; i++)
		if (!write_live(heaps, g_ptr_array_index(blocks, i), copier, live_table, error))
			return false;
	return true;
}
