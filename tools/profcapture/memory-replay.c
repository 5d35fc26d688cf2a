/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory-replay - replays the allocations and frees of a stretch of a capture in order, with the
 * live blocks
 *
 * Invariants: (1) among rows of one time, a block is allocated before it is freed, and rows of a
 *                 process come in the order in which its threads made them
 *                 [test-memory: ties, order]
 *             (2) rows at a mark's own time do not change what the mark's blocks already include
 *                 [test-memory: marks]
 *             (3) whatever the rows are, memory is proportional to them  [test-memory: hostile]
 *             (4) heaps that ended before the stretch are not read for it  [test-memory: ended]
 */
#include "config.h"

#include "tools/profcapture/memory-replay.h"

#include "tools/common/capture-error.h"

#include <glib/gi18n.h>

/* A block from before the stretch has order 0, and is not temporary. */
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

/* The rows of one of the two tables. */
struct stream {
	struct prof_cursor *cursor; /* NULL: no more rows */
	struct prof_batch batch;
	struct names_epoch *names;
	struct memory_epoch *epoch; /* of allocations, if nodes are wanted */
	size_t at;
	bool is_free;
	/* of the thread that was looked up last */
	bool has_thread;
	uint64_t thread_id;
	uint32_t thread, process, heap;
	/* of the next row */
	uint64_t time, block;
	/* of a free: the newest block that was allocated before it */
	uint64_t last;
};

struct pass {
	struct memory_replay *replay;
	struct capture *capture;
	uint32_t segment;
	uint64_t from, to; /* in the segment's clock */
	struct stream streams[2];
	GArray *ends; /* uint32_t: indices of the marks that are ends, by time */
	guint next_end;
};

/* ---- blocks by heap -------------------------------------------------------------------------- */

struct memory_blocks *memory_replay_blocks(const struct memory_replay *replay, uint32_t heap)
{
	return heap < replay->blocks->len ? replay->blocks->pdata[heap] : NULL;
}

static struct memory_blocks *blocks_of(struct memory_replay *replay, uint32_t heap)
{
	struct memory_blocks *blocks = memory_replay_blocks(replay, heap);

	if (!blocks) {
		if (heap >= replay->blocks->len)
			g_ptr_array_set_size(replay->blocks, (gint)heap + 1);
		replay->blocks->pdata[heap] = blocks = g_new(struct memory_blocks, 1);
		memory_blocks_init(blocks, replay->wants_more);
	}
	return blocks;
}

static void free_blocks(gpointer pointer)
{
	struct memory_blocks *blocks = pointer;

	if (blocks)
		memory_blocks_done(blocks);
	g_free(blocks);
}

static void drop_blocks(struct memory_replay *replay, uint32_t heap)
{
	if (heap >= replay->blocks->len)
		return;
	free_blocks(replay->blocks->pdata[heap]);
	replay->blocks->pdata[heap] = NULL;
}

static bool wants_heap(const struct memory_replay *replay, uint32_t heap)
{
	return !replay->wants_heap || replay->wants_heap(heap, replay->data);
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

static void release(struct memory_replay *replay, const struct memory_event *event, uint64_t number,
		    enum memory_release how, uint32_t *ret_chain)
{
	const struct reader *reader = replay->heaps->reader;
	struct memory_blocks *blocks = memory_replay_blocks(replay, event->heap);
	struct memory_block_more more = { 0 };
	struct memory_event with = *event;
	struct memory_block block;

	if (!blocks || !memory_blocks_take(blocks, number, &block, &more)) {
		/* With --tid or --comm, blocks of other threads are not tracked, so a missing one
		 * is normal. */
		if (how == MEMORY_FREED && event->is_counted && !reader->tids && !reader->comms &&
		    number > memory_heap_at(replay->heaps, event->heap)->inherited)
			replay->unknown++;
		return;
	}
	if (replay->wants_more)
		with.others = *order_of(replay, event->thread) - more.order;
	*ret_chain = more.chain;
	if (replay->ops->released)
		replay->ops->released(&with, &block, &more, how, replay->data);
}

static void allocate(struct memory_replay *replay, const struct memory_event *event)
{
	struct memory_block block = memory_event_block(event), old;
	struct memory_block_more more = { .since = event->time };
	uint32_t chain = 0;

	if (event->block == 0)
		return;
	if (event->prior) {
		release(replay, event, event->prior, MEMORY_REALLOCATED, &chain);
		more.chain = memory_event_moves(event) ? chain + (chain < UINT32_MAX) : 0;
	}
	if (!event->is_wanted)
		return;
	if (replay->wants_more)
		more.order = ++*order_of(replay, event->thread);
	if (memory_blocks_add(blocks_of(replay, event->heap), &block, &more, &old) &&
	    replay->ops->released)
		replay->ops->released(event, &old, &(struct memory_block_more){ 0 }, MEMORY_GONE,
				      replay->data);
	if (replay->ops->allocated)
		replay->ops->allocated(event, &block, &more, replay->data);
}

static void apply(struct memory_replay *replay, const struct memory_event *event)
{
	uint32_t chain;

	if (event->is_wanted && replay->ops->call)
		replay->ops->call(event, replay->data);
	if (!event->is_free)
		allocate(replay, event);
	else if (event->block)
		release(replay, event, event->block, MEMORY_FREED, &chain);
}

static void end_heaps(struct pass *pass, uint64_t before)
{
	struct memory_replay *replay = pass->replay;

	for (; pass->next_end < pass->ends->len; pass->next_end++) {
		const struct memory_mark *mark = memory_mark_at(
			replay->heaps, g_array_index(pass->ends, uint32_t, pass->next_end));

		if (mark->time >= before)
			break;
		if (!memory_replay_blocks(replay, mark->heap))
			continue;
		if (replay->ops->ended)
			replay->ops->ended(mark->heap, replay->data);
		drop_blocks(replay, mark->heap);
	}
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void peek(struct stream *stream)
{
	stream->time = array_number_or(&stream->batch.columns[TIME], stream->at, 0);
	stream->block = array_number_or(&stream->batch.columns[BLOCK], stream->at, 0);
	if (stream->is_free &&
	    !add_u64(stream->block, array_number_or(&stream->batch.columns[YOUNGER], stream->at, 0),
		     &stream->last))
		stream->last = UINT64_MAX;
}

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
	/* Only two epochs are cached. Looking up the other stream's epoch first keeps it. */
	if (other->cursor)
		(void)names_epoch(pass->capture->names, other->batch.epoch, error);
	stream->names = names_epoch(pass->capture->names, stream->batch.epoch, error);
	if (!stream->names || !names_load_identities(stream->names, error))
		return false;
	stream->epoch = NULL;
	peek(stream);
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
		.t_to = MAX_OF(pass->to, UINT64_C(1)), /* 0, 0 would select all rows */
	};
	int r = prof_cursor_new(pass->capture->reader, &options, &stream->cursor);

	stream->is_free = is_free;
	if (r == PROF_NO_TABLE)
		return true;
	if (r != 0)
		return capture_error(error, r, _("cannot read allocations of '%s'"),
				     pass->capture->file);
	return next_batch(pass, stream, error);
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

/* Returns the stream whose row is next. If two rows have the same time, the
 * free comes first if the allocated block did not exist yet when it happened. */
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
	uint64_t address;

	find_thread(pass, stream);
	*event = (struct memory_event){
		.time = stream->time,
		.block = stream->block,
		.segment = pass->segment,
		.heap = stream->heap,
		.thread = stream->thread,
		.is_free = stream->is_free,
		.kind = (uint8_t)MIN_OF(array_number_or(&c[KIND], stream->at, 0), UINT64_C(255)),
		.is_counted = stream->time >= pass->from,
		.is_wanted = reader_wants_thread_at(replay->heaps->reader, stream->thread,
						    capture_time(pass->capture, pass->segment,
								 stream->time)),
	};
	if (stream->is_free) {
		event->has_address = array_number(&c[ADDRESS], stream->at, &address);
		return true;
	}
	event->size = array_number_or(&c[SIZE], stream->at, 0);
	event->prior = array_number_or(&c[PRIOR], stream->at, 0);
	if (!replay->wants_nodes || !event->is_wanted)
		return true;
	/* The other stream may have evicted the epoch from the tree. */
	stream->epoch = memory_tree_epoch(replay->heaps->tree, stream->names, error);
	if (stream->epoch)
		event->node = memory_tree_node(replay->heaps->tree, stream->epoch,
					       array_number_or(&c[STACK], stream->at, 0),
					       pass->segment, stream->time);
	return stream->epoch;
}

static bool advance(struct pass *pass, struct stream *stream, GError **error)
{
	if (++stream->at < stream->batch.rows) {
		peek(stream);
		return true;
	}
	return next_batch(pass, stream, error);
}

static bool is_skipped(const struct memory_replay *replay, const struct memory_event *event)
{
	return (event->heap < replay->skip_before->len &&
		event->time < g_array_index(replay->skip_before, uint64_t, event->heap)) ||
	       !wants_heap(replay, event->heap);
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

		if (stream->time > pass->to) {
			close_stream(stream);
			continue;
		}
		if (stream->time >= start) {
			if (!make_event(pass, stream, &event, error))
				return false;
			end_heaps(pass, event.time);
			if (!is_skipped(replay, &event))
				apply(replay, &event);
		}
		if (!advance(pass, stream, error))
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
		(void)memory_blocks_add(blocks_of(replay, live->heap), &live->block, &live->more,
					&old);
}

struct load_each {
	struct memory_replay *replay;
	uint32_t heap;
};

static void tell_loaded(const struct memory_block *block, const struct memory_block_more *more,
			void *data)
{
	const struct load_each *each = data;
	struct memory_live live = { .heap = each->heap, .block = *block };

	if (more)
		live.more = *more;
	each->replay->ops->loaded(&live, each->replay->data);
}

/* Returns the mark that a heap is loaded from, as index + 1. If no mark is before the stretch, that
 * is the first mark, if it has blocks. */
static uint32_t base_of(const struct pass *pass, uint32_t heap)
{
	const struct memory_heaps *heaps = pass->replay->heaps;
	uint32_t first = memory_heap_at(heaps, heap)->first;
	const struct memory_mark *mark = first ? memory_mark_at(heaps, first - 1) : NULL;
	uint32_t base = memory_heaps_before(heaps, heap, pass->from);

	if (!base && mark && memory_mark_has_blocks(mark) && !mark->is_broken)
		base = first;
	return base;
}

/* Returns the time from which a heap's rows are read. */
static uint64_t start_of(const struct pass *pass, uint32_t heap, uint32_t base)
{
	const struct memory_heaps *heaps = pass->replay->heaps;
	uint32_t first = memory_heap_at(heaps, heap)->first;

	if (base && memory_mark_at(heaps, base - 1)->time <= pass->from)
		return memory_mark_at(heaps, base - 1)->time;
	if (base || !first)
		return 0;
	return memory_mark_at(heaps, first - 1)->time;
}

/* Returns whether the heap, which would be loaded from that mark, ended before the stretch. */
static bool is_over(const struct pass *pass, uint32_t heap, uint32_t base)
{
	const struct memory_heaps *heaps = pass->replay->heaps;

	return base && base == memory_heap_at(heaps, heap)->end &&
	       memory_heap_at(heaps, heap)->has_ended &&
	       memory_mark_at(heaps, base - 1)->time < pass->from;
}

/* Loads the blocks that are live at or before the start of the stretch. *ret_start is the time from
 * which rows are read. */
static bool load_bases(struct pass *pass, uint64_t *ret_start, bool *ret_broken, GError **error)
{
	struct memory_replay *replay = pass->replay;
	struct memory_heaps *heaps = replay->heaps;
	g_autoptr(GArray) bases = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	uint64_t start = UINT64_MAX;

	g_array_set_size(replay->skip_before, 0);
	g_array_set_size(replay->skip_before, heaps->heaps->len);
	for (uint32_t i = 0; i < heaps->heaps->len; i++) {
		uint32_t base;

		if (memory_heap_at(heaps, i)->segment != pass->segment || !wants_heap(replay, i))
			continue;
		base = base_of(pass, i);
		g_array_index(replay->skip_before, uint64_t, i) = start_of(pass, i, base);
		if (is_over(pass, i, base)) {
			start = MIN_OF(start, pass->from);
			continue;
		}
		if (base)
			g_array_append_val(bases, base);
		start = MIN_OF(start, start_of(pass, i, base));
	}
	/* Rows of processes without a heap are read anyway. */
	*ret_start = start == UINT64_MAX ? 0 : start;
	*ret_broken = false;
	return bases->len == 0 ||
	       memory_heaps_read_live(heaps, (const uint32_t *)(void *)bases->data, bases->len,
				      load, replay, ret_broken, error);
}

static gint compare_ends(gconstpointer left, gconstpointer right, gpointer data)
{
	const struct memory_heaps *heaps = data;
	const struct memory_mark *a = memory_mark_at(heaps, *(const uint32_t *)left);
	const struct memory_mark *b = memory_mark_at(heaps, *(const uint32_t *)right);

	return a->time < b->time ? -1 : a->time > b->time;
}

static void list_ends(struct pass *pass)
{
	const struct memory_heaps *heaps = pass->replay->heaps;

	for (uint32_t i = 0; i < heaps->heaps->len; i++) {
		const struct memory_heap *heap = memory_heap_at(heaps, i);
		uint32_t mark = heap->end - 1;

		if (heap->segment == pass->segment && heap->end && heap->has_ended)
			g_array_append_val(pass->ends, mark);
	}
	g_array_sort_with_data(pass->ends, compare_ends, (gpointer)heaps);
}

static bool run_pass(struct pass *pass, GError **error)
{
	struct memory_replay *replay = pass->replay;
	uint64_t start;
	bool broken;

	/* Each iteration finds at least one more broken mark, so the loop ends. */
	do {
		g_ptr_array_set_size(replay->blocks, 0);
		if (!load_bases(pass, &start, &broken, error))
			return false;
	} while (broken);
	for (uint32_t i = 0; replay->ops->loaded && i < replay->blocks->len; i++) {
		struct load_each each = { replay, i };

		if (replay->blocks->pdata[i])
			memory_blocks_each(replay->blocks->pdata[i], tell_loaded, &each);
	}
	list_ends(pass);
	return read_rows(pass, start, error);
}

/* It is not known which blocks live on in the next segment. */
static void end_segment(struct memory_replay *replay)
{
	for (uint32_t i = 0; i < replay->blocks->len; i++) {
		if (!replay->blocks->pdata[i])
			continue;
		if (replay->ops->ended)
			replay->ops->ended(i, replay->data);
		drop_blocks(replay, i);
	}
}

static bool run_segment(struct memory_replay *replay, uint32_t segment, GError **error)
{
	struct capture *capture = replay->heaps->reader->capture;
	struct pass pass = { .replay = replay, .capture = capture, .segment = segment };
	bool ok;

	pass.from = replay->from_ns == INT64_MIN ? 0
						 : capture_clock(capture, segment, replay->from_ns);
	pass.to = replay->to_ns == INT64_MAX ? UINT64_MAX
					     : capture_clock(capture, segment, replay->to_ns);
	pass.ends = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	ok = run_pass(&pass, error);
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
		/* Skip segments that end before the stretch or begin after it. */
		if (!replay->segment && i + 1 < capture->n_segments &&
		    begin_of(capture, i + 1) <= replay->from_ns)
			continue;
		if (!replay->segment && i > 0 && begin_of(capture, i) > replay->to_ns)
			break;
		end_segment(replay);
		if (!run_segment(replay, capture->segments[i].number, error))
			return false;
	}
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
