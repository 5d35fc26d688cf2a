/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Invariants: (1) among rows of one time, a block is allocated before it is freed, and a process's
 *                 rows are in the order in which its threads made them  [test-memory: ties, order]
 *             (2) rows at the time of a mark do not repeat changes that the mark includes
 *                 [test-memory: marks]
 *             (3) memory is at most proportional to the number of rows  [test-memory: hostile]
 *             (4) heaps that ended before the range are not read  [test-memory: ended]
 */
#include "config.h"

#include "tools/profcapture/memory-replay.h"

#include "base/each.h"
#include "base/order.h"
#include "tools/common/capture-error.h"

#include <glib/gi18n.h>

/* First value of `order`. Blocks from before the replay have 0, so they never count as
 * temporary. */
#define FIRST_ORDER 0x40000000u

enum { TIME, THREAD, BLOCK, KIND, SIZE, STACK, PRIOR, N_ALLOC };
enum { ADDRESS = KIND + 1, YOUNGER, N_FREE };
static const uint16_t alloc_columns[N_ALLOC] = { PROF_ALLOC_TIME,  PROF_ALLOC_THREAD,
						 PROF_ALLOC_BLOCK, PROF_ALLOC_KIND,
						 PROF_ALLOC_SIZE,  PROF_ALLOC_STACK,
						 PROF_ALLOC_PRIOR };
static const uint16_t free_columns[N_FREE] = {
	PROF_FREE_TIME, PROF_FREE_THREAD,  PROF_FREE_BLOCK,
	PROF_FREE_KIND, PROF_FREE_ADDRESS, PROF_FREE_YOUNGER
};

/* Reads the rows of the table `alloc` or `free`. */
struct stream {
	struct prof_cursor *cursor; /* NULL: no more rows */
	struct prof_batch batch;
	struct names_epoch *names;
	size_t at;
	bool is_free;
	/* the thread that was looked up last */
	bool has_thread;
	uint64_t thread_id;
	uint32_t thread, process, heap;
	/* the next row */
	uint64_t time, block;
	/* for a free: number of the newest block that was allocated before the free */
	uint64_t last;
};

struct pass {
	struct memory_replay *replay;
	struct capture *capture;
	uint32_t segment;
	uint64_t from, to; /* clock values of the segment */
	struct stream streams[2];
	GArray *ends; /* uint32_t: indexes of the marks at which heaps ended, by time */
	guint next_end;
};

/* ---- blocks by heap -------------------------------------------------------------------------- */

static struct memory_blocks *blocks_at(const struct memory_replay *replay, uint32_t heap)
{
	return heap < replay->blocks->len ? replay->blocks->pdata[heap] : NULL;
}

static bool add_block(struct memory_replay *replay, const struct memory_live *live,
		      struct memory_block *ret_old)
{
	struct memory_blocks *blocks = blocks_at(replay, live->heap);

	if (!blocks) {
		if (live->heap >= replay->blocks->len)
			g_ptr_array_set_size(replay->blocks, (gint)live->heap + 1);
		replay->blocks->pdata[live->heap] = blocks = g_new(struct memory_blocks, 1);
		memory_blocks_init(blocks, replay->wants_more);
	}
	return memory_blocks_add(blocks, &live->block, &live->more, ret_old);
}

static void free_blocks(gpointer pointer)
{
	struct memory_blocks *blocks = pointer;

	if (blocks)
		memory_blocks_done(blocks);
	g_free(blocks);
}

struct each {
	struct memory_replay *replay;
	uint32_t heap;
	void (*call)(const struct memory_live *live, void *data);
};

static void pass_block(const struct memory_block *block, const struct memory_block_more *more,
		       void *data)
{
	const struct each *each = data;
	struct memory_live live = { .heap = each->heap, .block = *block };

	if (more)
		live.more = *more;
	memory_weigh(each->replay->heaps, &live);
	each->call(&live, each->replay->data);
}

static void each_block(struct memory_replay *replay, uint32_t heap,
		       void (*call)(const struct memory_live *live, void *data))
{
	struct each each = { replay, heap, call };

	if (call && blocks_at(replay, heap))
		memory_blocks_each(blocks_at(replay, heap), pass_block, &each);
}

static void end_heap(struct memory_replay *replay, uint32_t heap)
{
	if (!blocks_at(replay, heap))
		return;
	each_block(replay, heap, replay->ops->ended);
	free_blocks(replay->blocks->pdata[heap]);
	replay->blocks->pdata[heap] = NULL;
}

/* Ends all heaps of a segment, because it is unknown which blocks are live in the next segment. */
static void end_segment(struct memory_replay *replay)
{
	for (uint32_t i = 0; i < replay->blocks->len; i++)
		end_heap(replay, i);
}

static bool skips_heap(const struct memory_replay *replay, uint32_t heap)
{
	return replay->skipped && heap < replay->skipped->len
		       ? replay->skipped->data[heap]
		       : !memory_heaps_wants(replay->heaps, heap);
}

static uint32_t *order_of(struct memory_replay *replay, uint32_t thread)
{
	for (uint32_t i = replay->orders->len; i <= thread; i++) {
		uint32_t first = FIRST_ORDER;

		g_array_append_val(replay->orders, first);
	}
	return &((uint32_t *)(void *)replay->orders->data)[thread];
}

/* ---- applying rows --------------------------------------------------------------------------- */

/* Releases a block. Returns the number of reallocs that led to it. */
static uint32_t release(struct memory_replay *replay, const struct memory_event *event,
			uint64_t number, enum memory_release how)
{
	const struct reader *reader = replay->heaps->reader;
	struct memory_blocks *blocks = blocks_at(replay, event->heap);
	struct memory_live live = { .heap = event->heap };
	struct memory_event with = *event;

	if (!blocks || !memory_blocks_take(blocks, number, &live.block, &live.more)) {
		/* With --tid or --comm, blocks of other threads are not tracked, so their frees do
		 * not count as unknown. */
		if (how == MEMORY_FREED && event->is_counted && !reader->tids && !reader->comms &&
		    number > memory_heap_at(replay->heaps, event->heap)->inherited)
			replay->unknown++;
		return 0;
	}
	if (replay->wants_more)
		with.others = *order_of(replay, event->thread) - live.more.order;
	if (replay->ops->released) {
		memory_weigh(replay->heaps, &live);
		replay->ops->released(&with, &live, how, replay->data);
	}
	return live.more.chain;
}

static void allocate(struct memory_replay *replay, const struct memory_event *event)
{
	struct memory_live live = { .heap = event->heap,
				    .block = memory_event_block(event),
				    .more.since = event->time };
	struct memory_live old = { .heap = event->heap };

	if (event->block == 0)
		return;
	if (event->prior) {
		uint32_t chain = release(replay, event, event->prior, MEMORY_REALLOCATED);

		live.more.chain = memory_event_moves(event) ? chain + (chain < UINT32_MAX) : 0;
	}
	if (!event->is_wanted)
		return;
	if (replay->wants_more)
		live.more.order = ++*order_of(replay, event->thread);
	if (add_block(replay, &live, &old.block) && replay->ops->released) {
		memory_weigh(replay->heaps, &old);
		replay->ops->released(event, &old, MEMORY_GONE, replay->data);
	}
	if (replay->ops->allocated) {
		memory_weigh(replay->heaps, &live);
		replay->ops->allocated(event, &live, replay->data);
	}
}

static void end_heaps(struct pass *pass, uint64_t before)
{
	for (; pass->next_end < pass->ends->len; pass->next_end++) {
		const struct memory_mark *mark = memory_mark_at(
			pass->replay->heaps, g_array_index(pass->ends, uint32_t, pass->next_end));

		if (mark->time >= before)
			break;
		end_heap(pass->replay, mark->heap);
	}
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void close_stream(struct stream *stream)
{
	prof_cursor_free(stream->cursor);
	stream->cursor = NULL;
}

static bool next_batch(struct pass *pass, struct stream *stream, GError **error)
{
	const struct stream *other = &pass->streams[stream == &pass->streams[0]];
	int r = prof_cursor_next(stream->cursor, &stream->batch);

	stream->at = 0;
	if (r != 0) {
		close_stream(stream);
		return r == PROF_END ||
		       capture_error(error, r, _("cannot read allocations of '%s'"),
				     pass->capture->file);
	}
	pass->replay->heaps->n_rows += stream->batch.rows;
	stream->has_thread = false;
	/* Two epochs are cached. Look up the other stream's epoch first, to keep it. */
	if (other->cursor && !names_epoch(pass->capture->names, other->batch.epoch, error))
		return false;
	stream->names = names_epoch(pass->capture->names, stream->batch.epoch, error);
	return stream->names != NULL;
}

static bool next_row(struct pass *pass, struct stream *stream, GError **error)
{
	const struct prof_array *c = stream->batch.columns;

	if (++stream->at >= stream->batch.rows) {
		if (!next_batch(pass, stream, error))
			return false;
		if (!stream->cursor)
			return true;
		c = stream->batch.columns;
	}
	stream->time = array_number_or(&c[TIME], stream->at, 0);
	stream->block = array_number_or(&c[BLOCK], stream->at, 0);
	if (stream->is_free &&
	    !add_u64(stream->block, array_number_or(&c[YOUNGER], stream->at, 0), &stream->last))
		stream->last = UINT64_MAX;
	return true;
}

static bool open_stream(struct pass *pass, struct stream *stream, bool is_free, uint64_t from,
			GError **error)
{
	const struct prof_cursor_options options = {
		.table = is_free ? PROF_TABLE_FREE : PROF_TABLE_ALLOC,
		.columns = is_free ? free_columns : alloc_columns,
		.n_columns = is_free ? N_FREE : N_ALLOC,
		.segment = pass->segment,
		.t_from = from,
		.t_to = MAX_OF(pass->to, UINT64_C(1)), /* the range 0 to 0 would select all rows */
	};
	int r = prof_cursor_new(pass->capture->reader, &options, &stream->cursor);

	stream->is_free = is_free;
	if (r == PROF_NO_TABLE)
		return true;
	if (r != 0)
		return capture_error(error, r, _("cannot read allocations of '%s'"),
				     pass->capture->file);
	return next_row(pass, stream, error);
}

static void find_thread(struct pass *pass, struct stream *stream)
{
	uint64_t id = array_number_or(&stream->batch.columns[THREAD], stream->at, 0);

	if (stream->has_thread && id == stream->thread_id)
		return;
	stream->has_thread = true;
	stream->thread_id = id;
	stream->thread = names_thread(stream->names, id);
	stream->process = names_thread_at(pass->capture->names, stream->thread)->process;
	stream->heap = memory_heaps_get(pass->replay->heaps, pass->segment, stream->process);
}

/* Returns the stream with the next row. Of two rows with the same time, the free comes first only
 * if the same process made it before the allocation. */
static struct stream *next_stream(struct pass *pass)
{
	struct stream *alloc = &pass->streams[0], *free_row = &pass->streams[1];

	if (!alloc->cursor || !free_row->cursor)
		return alloc->cursor ? alloc : free_row->cursor ? free_row : NULL;
	if (alloc->time != free_row->time)
		return alloc->time < free_row->time ? alloc : free_row;
	find_thread(pass, alloc);
	find_thread(pass, free_row);
	return free_row->process == alloc->process && free_row->last < alloc->block ? free_row
										    : alloc;
}

static bool make_event(struct pass *pass, struct stream *stream, struct memory_event *event,
		       GError **error)
{
	const struct prof_array *c = stream->batch.columns;
	struct memory_replay *replay = pass->replay;
	int64_t time_ns = capture_time(pass->capture, pass->segment, stream->time);
	struct memory_epoch *epoch;
	uint64_t address;

	find_thread(pass, stream);
	*event = (struct memory_event){
		.time = stream->time,
		.time_ns = time_ns,
		.block = stream->block,
		.segment = pass->segment,
		.heap = stream->heap,
		.thread = stream->thread,
		.is_free = stream->is_free,
		.kind = (uint8_t)MIN_OF(array_number_or(&c[KIND], stream->at, 0), UINT64_C(255)),
		.is_counted = stream->time >= pass->from,
		.is_wanted = reader_wants_thread_at(replay->heaps->reader, stream->thread, time_ns),
	};
	if (stream->is_free) {
		event->has_address = array_number(&c[ADDRESS], stream->at, &address);
		return true;
	}
	event->size = array_number_or(&c[SIZE], stream->at, 0);
	event->prior = array_number_or(&c[PRIOR], stream->at, 0);
	if (!replay->wants_nodes || !event->is_wanted)
		return true;
	/* The other stream may have evicted the tree's nodes of this epoch. */
	epoch = memory_tree_epoch(replay->heaps->tree, stream->names, error);
	if (epoch)
		event->node = memory_tree_node(replay->heaps->tree, epoch,
					       array_number_or(&c[STACK], stream->at, 0),
					       pass->segment, stream->time);
	return epoch;
}

static bool read_rows(struct pass *pass, uint64_t start, GError **error)
{
	struct memory_replay *replay = pass->replay;
	struct stream *stream;

	if (!open_stream(pass, &pass->streams[0], false, start, error) ||
	    !open_stream(pass, &pass->streams[1], true, start, error))
		return false;
	while ((stream = next_stream(pass))) {
		struct memory_event event;
		bool is_skipped;

		if (stream->time > pass->to) {
			close_stream(stream);
			continue;
		}
		if (stream->time >= start) {
			if (!make_event(pass, stream, &event, error))
				return false;
			end_heaps(pass, event.time);
			is_skipped = skips_heap(replay, event.heap) ||
				     (event.heap < replay->skip_before->len &&
				      event.time < g_array_index(replay->skip_before, uint64_t,
								 event.heap));
			if (!is_skipped && event.is_wanted && replay->ops->call)
				replay->ops->call(&event, replay->data);
			if (!is_skipped && !event.is_free)
				allocate(replay, &event);
			else if (!is_skipped && event.block)
				(void)release(replay, &event, event.block, MEMORY_FREED);
		}
		if (!next_row(pass, stream, error))
			return false;
	}
	end_heaps(pass, pass->to == UINT64_MAX ? UINT64_MAX : pass->to + 1);
	return true;
}

/* ---- where to begin -------------------------------------------------------------------------- */

static void load(const struct memory_live *live, void *data)
{
	struct memory_replay *replay = data;
	struct memory_block old;

	if (reader_wants_thread(replay->heaps->reader, live->block.thread) && live->block.number)
		(void)add_block(replay, live, &old);
}

/*
 * Loads the blocks from which the replay starts: for each heap, the blocks of its last unbroken
 * mark that is not after the range's start; without such a mark, the blocks of its first mark,
 * unless that mark is broken.
 * Stores in *ret_start the time from which rows must be read.
 */
static bool load_bases(struct pass *pass, uint64_t *ret_start, bool *ret_broken, GError **error)
{
	struct memory_replay *replay = pass->replay;
	struct memory_heaps *heaps = replay->heaps;
	g_autoptr(GArray) bases = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	uint64_t start = UINT64_MAX;

	g_array_set_size(replay->skip_before, 0);
	g_array_set_size(replay->skip_before, heaps->heaps->len);
	for (uint32_t i = 0; i < heaps->heaps->len; i++) {
		const struct memory_heap *heap = memory_heap_at(heaps, i);
		const struct memory_mark *mark = NULL;
		uint32_t base = memory_heaps_before(heaps, i, pass->from);
		uint64_t from = 0;

		if (heap->segment != pass->segment || skips_heap(replay, i))
			continue;
		if (base || heap->first)
			mark = memory_mark_at(heaps, (base ? base : heap->first) - 1);
		if (!base && mark && memory_mark_has_blocks(mark) && !mark->is_broken)
			base = heap->first;
		else if (mark)
			from = mark->time;
		g_array_index(replay->skip_before, uint64_t, i) = from;
		if (base && base == heap->end && heap->has_ended && mark->time < pass->from) {
			start = MIN_OF(start, pass->from);
			continue;
		}
		if (base)
			g_array_append_val(bases, base);
		start = MIN_OF(start, from);
	}
	/* If there is no heap to replay, all rows are read, because processes without heap marks
	 * may have rows. */
	*ret_start = start == UINT64_MAX ? 0 : start;
	*ret_broken = false;
	return bases->len == 0 ||
	       memory_heaps_read_live(heaps, (const uint32_t *)(void *)bases->data, bases->len,
				      load, replay, ret_broken, error);
}

static gint compare_ends(gconstpointer left, gconstpointer right, gpointer data)
{
	return ORDER(memory_mark_at(data, *(const uint32_t *)left)->time,
		     memory_mark_at(data, *(const uint32_t *)right)->time);
}

static void list_ends(struct pass *pass)
{
	const struct memory_heaps *heaps = pass->replay->heaps;

	ARRAY_EACH(const struct memory_heap, heap, heaps->heaps) {
		uint32_t mark = heap->end - 1;

		if (heap->segment == pass->segment && heap->end && heap->has_ended)
			g_array_append_val(pass->ends, mark);
	}
	g_array_sort_with_data(pass->ends, compare_ends, (gpointer)heaps);
}

static bool run_segment(struct memory_replay *replay, uint32_t segment, GError **error)
{
	struct capture *capture = replay->heaps->reader->capture;
	struct pass pass = { .replay = replay, .capture = capture, .segment = segment };
	bool ok, broken;
	uint64_t start;

	pass.from = replay->from_ns == INT64_MIN ? 0
						 : capture_clock(capture, segment, replay->from_ns);
	pass.to = replay->to_ns == INT64_MAX ? UINT64_MAX
					     : capture_clock(capture, segment, replay->to_ns);
	pass.ends = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	/* A load is repeated only after it found another broken mark, so the loop ends. */
	do {
		g_ptr_array_set_size(replay->blocks, 0);
		ok = load_bases(&pass, &start, &broken, error);
	} while (ok && broken);
	for (uint32_t i = 0; ok && i < replay->blocks->len; i++)
		each_block(replay, i, replay->ops->loaded);
	list_ends(&pass);
	ok = ok && read_rows(&pass, start, error);
	for (unsigned i = 0; i < ARRAY_SIZE(pass.streams); i++)
		prof_cursor_free(pass.streams[i].cursor);
	g_array_unref(pass.ends);
	return ok;
}

static int64_t begin_of(const struct capture *capture, size_t segment)
{
	return capture_time(capture, capture->segments[segment].number,
			    capture->segments[segment].start_monotonic_ns);
}

bool memory_replay_run(struct memory_replay *replay, GError **error)
{
	const struct capture *capture = replay->heaps->reader->capture;

	replay->blocks = g_ptr_array_new_with_free_func(free_blocks);
	replay->orders = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	replay->skip_before = g_array_new(FALSE, TRUE, sizeof(uint64_t));
	for (size_t i = 0; i < capture->n_segments; i++) {
		if (replay->segment && replay->segment != capture->segments[i].number)
			continue;
		if (!replay->segment && i + 1 < capture->n_segments &&
		    begin_of(capture, i + 1) <= replay->from_ns)
			continue;
		if (!replay->segment && i > 0 && begin_of(capture, i) > replay->to_ns)
			break;
		end_segment(replay);
		if (!run_segment(replay, capture->segments[i].number, error))
			return false;
	}
	if (replay->ends_all)
		end_segment(replay);
	return true;
}

void memory_replay_done(struct memory_replay *replay)
{
	if (!replay->blocks)
		return;
	g_ptr_array_unref(replay->blocks);
	g_array_unref(replay->orders);
	g_array_unref(replay->skip_before);
	replay->blocks = NULL;
}
