/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Invariants: (1) a cut capture reports the same blocks as the whole file does for that time range
 *                 [test_memory_reader: cut]
 *             (2) a file cannot force hash collisions  (the hash has a per-process seed)
 */
#include "config.h"

#include "tools/profcapture/rewrite-heaps.h"

#include "base/each.h"
#include "base/order.h"
#include "tools/common/capture-error.h"
#include "tools/common/keyed.h"

#include <glib/gi18n.h>

struct block {
	uint64_t number, size, alignment, since, kind;
	uint64_t thread, stack; /* ids in the block's epoch */
	uint32_t process;       /* index in names */
	uint32_t epoch;
};

/* A process's heap. */
struct heap {
	uint64_t id; /* id of the process in `epoch` */
	uint64_t inherited, bytes, blocks;
	uint32_t epoch; /* 0: the process has no heap */
	bool has_ended;
};

struct heaps {
	struct capture *from;
	uint64_t start;
	GHashTable *blocks; /* set of struct block */
	GArray *heaps;      /* struct heap */
};

KEYED_BY(block, struct block, a->number, a->process)

static struct heap *heap_of(struct heaps *heaps, uint32_t process)
{
	if (process >= heaps->heaps->len)
		g_array_set_size(heaps->heaps, process + 1);
	return &((struct heap *)(void *)heaps->heaps->data)[process];
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Reads the rows of one table in one epoch. */
struct stream {
	unsigned table;
	void (*take)(struct heaps *heaps, struct names_epoch *names, const struct stream *stream);
	struct prof_cursor *cursor; /* NULL: no more rows */
	struct prof_batch batch;
	size_t row;
	uint64_t time;
};

static bool stream_next(struct heaps *heaps, struct stream *stream, GError **error)
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
	g_clear_pointer(&stream->cursor, prof_cursor_free);
	return r == 0 || r == PROF_END ||
	       capture_error(error, r, _("cannot read '%s'"), heaps->from->file);
}

static uint64_t cell(const struct stream *stream, size_t column)
{
	return array_number_or(&stream->batch.columns[column], stream->row, 0);
}

static uint32_t process_of(const struct heaps *heaps, struct names_epoch *names, uint64_t thread)
{
	return names_thread_at(heaps->from->names, names_thread(names, thread))->process;
}

static void take_heap(struct heaps *heaps, struct names_epoch *names, const struct stream *stream)
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

static void take_live(struct heaps *heaps, struct names_epoch *names, const struct stream *stream)
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

static void take_alloc(struct heaps *heaps, struct names_epoch *names, const struct stream *stream)
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

static void take_free(struct heaps *heaps, struct names_epoch *names, const struct stream *stream)
{
	const struct block block = {
		.number = cell(stream, PROF_FREE_BLOCK),
		.process = process_of(heaps, names, cell(stream, PROF_FREE_THREAD)),
	};

	g_hash_table_remove(heaps->blocks, &block);
}

/* Reads several tables in the order of time, so that only live blocks must be kept. */
static bool read_streams(struct heaps *heaps, const struct rewrite_part *part,
			 struct names_epoch *names, struct stream *streams, size_t n,
			 GError **error)
{
	struct stream *first;
	bool ok = true;

	for (size_t i = 0; ok && i < n; i++) {
		const struct prof_cursor_options options = { .table = streams[i].table,
							     .segment = part->segment,
							     .epoch = part->epoch };
		int r = prof_cursor_new(heaps->from->reader, &options, &streams[i].cursor);

		if (r == 0)
			ok = stream_next(heaps, &streams[i], error);
		else if (r != PROF_NO_TABLE)
			ok = capture_error(error, r, _("cannot read '%s'"), heaps->from->file);
	}
	while (ok) {
		first = NULL;
		for (size_t i = 0; i < n; i++)
			if (streams[i].cursor && (!first || streams[i].time < first->time))
				first = &streams[i];
		if (!first)
			return true;
		first->take(heaps, names, first);
		ok = stream_next(heaps, first, error);
	}
	for (size_t i = 0; i < n; i++)
		prof_cursor_free(streams[i].cursor);
	return false;
}

static gboolean has_ended(gpointer key, gpointer value, gpointer data)
{
	return heap_of(data, ((const struct block *)key)->process)->has_ended;
}

static bool read_part(struct heaps *heaps, const struct rewrite_part *part, GError **error)
{
	struct stream heap = { PROF_TABLE_HEAP, take_heap }, live = { PROF_TABLE_LIVE, take_live };
	struct stream changes[] = { { PROF_TABLE_ALLOC, take_alloc },
				    { PROF_TABLE_FREE, take_free } };
	struct names_epoch *names = names_epoch(heaps->from->names, part->epoch, error);

	if (!names || !read_streams(heaps, part, names, &heap, 1, error) ||
	    !read_streams(heaps, part, names, &live, 1, error) ||
	    !read_streams(heaps, part, names, changes, ARRAY_SIZE(changes), error))
		return false;
	g_hash_table_foreach_remove(heaps->blocks, has_ended, heaps);
	return true;
}

/* ---- writing --------------------------------------------------------------------------------- */

COMPARE_AT(compare_blocks, struct block, ORDER(a->process, b->process), ORDER(a->number, b->number))

static bool write_heap(const struct heaps *heaps, const struct heap *heap,
		       struct row_copier *copier, GError **error)
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
	return row_copier_add(copier, PROF_TABLE_HEAP, values, error);
}

static bool write_live(const struct heaps *heaps, const struct block *block,
		       struct row_copier *copier, GError **error)
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
	return row_copier_add(copier, PROF_TABLE_LIVE, values, error);
}

static bool write_heaps(struct heaps *heaps, struct row_copier *copier, GError **error)
{
	g_autoptr(GPtrArray) blocks = g_ptr_array_new();
	GHashTableIter iter;
	gpointer key;

	g_hash_table_iter_init(&iter, heaps->blocks);
	while (g_hash_table_iter_next(&iter, &key, NULL)) {
		const struct block *block = key;
		struct heap *heap = heap_of(heaps, block->process);

		if (heap->epoch == 0)
			continue;
		heap->blocks++;
		heap->bytes += block->size;
		g_ptr_array_add(blocks, key);
	}
	g_ptr_array_sort(blocks, compare_blocks);
	for (uint32_t i = NAMES_LOST + 1; i < heaps->heaps->len; i++) {
		const struct heap *heap = heap_of(heaps, i);

		if (heap->epoch && !heap->has_ended && !write_heap(heaps, heap, copier, error))
			return false;
	}
	for (guint i = 0; i < blocks->len; i++)
		if (!write_live(heaps, g_ptr_array_index(blocks, i), copier, error))
			return false;
	return true;
}

bool rewrite_heaps_copy(struct capture *from, uint32_t segment, uint64_t start, const GArray *parts,
			struct row_copier *copier, GError **error)
{
	g_autoptr(GHashTable) blocks = g_hash_table_new_full(block_hash, block_equal, g_free, NULL);
	g_autoptr(GArray) all = g_array_new(FALSE, TRUE, sizeof(struct heap));
	struct heaps heaps = { from, start, blocks, all };

	ARRAY_EACH(const struct rewrite_part, part, parts)
		if (part->segment == segment && !read_part(&heaps, part, error))
			return false;
	return write_heaps(&heaps, copier, error);
}
