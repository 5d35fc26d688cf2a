/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Heap rows - turns a process's allocation records into rows of the tables alloc, free, heap and
 * live
 *
 *     alloc, free ▶ address to block (live-blocks.c) ▶ rows
 *     realloc ▶ ends its old block ▶ the new block waits for its time ▶ row
 *     calls ▶ nodes (call-nodes.c) ▶ stacks
 *
 * Records come merged by time. A realloc is one record and two events: between them another thread
 * may get the old address, or free the block at the new one. So the second event waits (pending.c)
 * and is merged with the records of all processes. Mappings may end in part, and may replace
 * others. They are kept by address range, and the rest of a mapping becomes another block. If an
 * address is allocated while it has a block, that block's end was not reported, and the block ends
 * then. But another thread's free of the same time may follow, so the new block waits until that
 * time is over.
 * Checkpoints list the live blocks, so that a reader can find them without reading everything
 * before. A process gets a checkpoint at its first event in an epoch and after many events, but not
 * before it has had half as many events as it has blocks, so that checkpoints write at most about
 * two rows for each event. At the start of an epoch, every other process with few blocks or many
 * changes gets a checkpoint, too, so that a reader need not go back to an idle process's last
 * event. While the session is paused, only the addresses of new blocks are kept, so that their ends
 * are not written, even after the pause.
 * Invariants: (1) blocks are numbered in the order of their rows
 *                 [test-engine-heap: realloc, reuse, mappings]
 *             (2) a heap row and its live rows list the blocks that are live after all rows up to
 *                 its time  [test-engine-heap-live: checkpoint, idle]
 *             (3) blocks freed before the process or the session ended are not in the live rows
 *                 of the event `end`
 *                 [test-engine-heap-live: ends; test-engine-collectors-stacks: allocations]
 *             (4) an inherited block is not a block of the process, but its end is recognized
 *                 [test-engine-heap-live: forks]
 *             (5) in a pause, no block begins, but existing blocks end
 *                 [test-engine-heap-live: pause]
 *             (6) the data kept for a process is bounded, and the excess is counted as lost
 *                 [test-engine-heap: limits]
 *             (7) among events of one time, an address is freed before it is allocated again, in
 *                 whatever order they are reported  [test-engine-heap: ties]
 *             (8) alloc and free rows of one time show the order in which they were written
 *                 [test-engine-heap: order]
 *             (9) no step takes long: live blocks are written in pieces, between which the caller
 *                 can drain rings, and no record is added
 *                 [test-engine-heap-live: pieces; test-engine-collectors-stacks: between_pieces]
 * Runs on the drain thread only.
 */
#include "daemon/engine/alloc/heap-rows.h"

#include "arch/base.h"
#include "daemon/engine/alloc/call-nodes.h"
#include "daemon/engine/out/loss.h"

#include <assert.h>
#include <sys/random.h>

#define AHEAD 16u /* prefetch distance in blocks */
/* Row times are rounded down to this unit: lower digits are noise and took a sixth of all bytes. No
 * thread makes two records within the unit. */
#define TIME_UNIT_NS 16u
#define CHECKPOINT_EVENTS (UINT64_C(1) << 24)
#define FEW 256u /* blocks: few enough to write in each epoch */

/* Maximum number of pending blocks per thread: signal handlers may reallocate during a realloc. */
#define MAX_PENDING 8u

/* A thread that has a producer or live blocks. Rows may refer to it long after it has exited. */
struct heap_thread {
	struct thread *thread; /* NULL: this number is free */
	uint32_t next_free;    /* next free number, if this one is free */
	uint32_t n_blocks;     /* including pending ones */
	uint32_t n_pending;
	uint32_t n_producers;
	uint32_t epoch; /* the last epoch that has its row */
};

struct heap_rows {
	struct all_heaps *all;
	struct process *process;
	struct loss_stream *losses;
	struct output *output;
	struct heap_budget budget;
	struct live_blocks live;
	struct heap_parent parent; /* inherited blocks, and data for processes that it forks */
	struct live_blocks passed; /* blocks that were allocated in a pause */
	struct call_nodes nodes;
	GArray *threads;
	uint32_t first_free;  /* first free number; UINT32_MAX: none */
	uint64_t last_number; /* number of the process's latest block */
	/* number and time of the last alloc row with a block */
	uint64_t last_row_number, last_row_ns;
	uint64_t n_events; /* events since the last listing of live blocks */
	uint32_t epoch;    /* epoch of the last listing, or of the row `begin` if none */
	bool has_begun;
	bool is_paused; /* the process's rows show that there is a pause */
};

/* ---- Common ---------------------------------------------------------------------------------- */

static uint64_t random_seed(const void *fallback)
{
	uint64_t seed = 0;

	/* Without randomness the tables still work, but are predictable. */
	if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != sizeof(seed))
		seed = (uintptr_t)fallback;
	return seed;
}

static struct heap_thread *thread_at(const struct heap_rows *rows, uint32_t number)
{
	return &g_array_index(rows->threads, struct heap_thread, number);
}

static void lose(const struct heap_rows *rows, enum prof_loss_cause cause, uint64_t time_ns)
{
	loss_stream_add(rows->losses, cause, 1, time_ns, time_ns);
}

/* Returns the time for the next row. Rows of the four tables are in one common order. */
static uint64_t row_time(struct heap_rows *rows, uint64_t time_ns)
{
	rows->all->last_ns = MAX_OF(rows->all->last_ns, time_ns);
	return rows->all->last_ns;
}

/* Returns the time of the last row. heap-excluded.c writes heap rows too. */
static uint64_t last_time(const struct heap_rows *rows)
{
	return MAX_OF(rows->all->last_ns, rows->output->last_ns[PROF_TABLE_HEAP]);
}

/* ---- Threads --------------------------------------------------------------------------------- */

uint32_t heap_rows_add_thread(struct heap_rows *rows, struct thread *thread)
{
	const struct heap_thread added = { .thread = thread, .n_producers = 1 };
	uint32_t number = rows->first_free;

	row_ref(&thread->row);
	if (number == UINT32_MAX) {
		g_array_append_val(rows->threads, added);
		return rows->threads->len - 1;
	}
	rows->first_free = thread_at(rows, number)->next_free;
	*thread_at(rows, number) = added;
	return number;
}

/* Releases a thread's number, unless a producer or a block uses it. */
static void drop_thread(struct heap_rows *rows, uint32_t number)
{
	struct heap_thread *thread = thread_at(rows, number);

	if (thread->n_producers > 0 || thread->n_blocks > 0)
		return;
	row_unref(&thread->thread->row);
	*thread = (struct heap_thread){ .next_free = rows->first_free };
	rows->first_free = number;
}

void heap_rows_end_producer(struct heap_rows *rows, uint32_t number)
{
	thread_at(rows, number)->n_producers--;
	drop_thread(rows, number);
}

/* Releases a block's reference to its thread. */
static void release(struct heap_rows *rows, const struct live_block *block)
{
	struct heap_thread *thread = thread_at(rows, block->thread);

	if (--thread->n_blocks == 0)
		drop_thread(rows, block->thread);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static void write_heap(struct heap_rows *rows, enum prof_heap_event event, uint64_t time_ns)
{
	const struct live_blocks *live = &rows->live;

	output_need(rows->output, &rows->process->row);
	output_add(rows->output, PROF_TABLE_HEAP,
		   (const struct prof_value[]){
			   [PROF_HEAP_TIME] = PROF_NUMBER(time_ns),
			   [PROF_HEAP_PROCESS] = PROF_NUMBER(rows->process->row.id),
			   [PROF_HEAP_EVENT] = PROF_NUMBER(event),
			   [PROF_HEAP_LIVE_BYTES] = PROF_NUMBER(live->live_bytes),
			   [PROF_HEAP_LIVE_BLOCKS] = PROF_NUMBER(live_blocks_count(live)),
			   [PROF_HEAP_PEAK_BYTES] = PROF_NUMBER(live->peak_bytes),
			   [PROF_HEAP_PEAK_TIME] = PROF_NUMBER(live->peak_ns),
			   [PROF_HEAP_INHERITED] = PROF_NUMBER(rows->parent.n_inherited),
		   });
	live_blocks_reset_peak(&rows->live, time_ns);
}

static uint64_t alignment_of(uint8_t log2)
{
	return log2 ? UINT64_C(1) << log2 : 0;
}

/* Returns a thread's id, and writes its row if the epoch lacks it. */
static uint32_t name_thread(struct heap_rows *rows, uint32_t number)
{
	struct heap_thread *thread = thread_at(rows, number);

	if (thread->epoch != rows->output->epoch) {
		tasks_need(rows->all->tasks, thread->thread);
		thread->epoch = rows->output->epoch;
	}
	return thread->thread->row.id;
}

static void write_live(struct heap_rows *rows, const struct live_block *block, uint64_t time_ns)
{
	const uint64_t numbers[PROF_LIVE_COLUMNS] = {
		[PROF_LIVE_TIME] = time_ns,
		[PROF_LIVE_THREAD] = name_thread(rows, block->thread),
		[PROF_LIVE_KIND] = live_block_kind(block),
		[PROF_LIVE_BLOCK] = live_block_number(block),
		[PROF_LIVE_SIZE] = block->size,
		[PROF_LIVE_ALIGNMENT] = alignment_of(live_block_alignment(block)),
		[PROF_LIVE_STACK] = call_nodes_stack(&rows->nodes, rows->output, block->calls),
		[PROF_LIVE_SINCE] = block->since_ns,
	};

	output_add_numbers(rows->output, PROF_TABLE_LIVE, numbers, 0);
}

/* Returns the old blocks of pending reallocs, which are live until the realloc is complete. */
static const struct live_block **list_held(const struct heap_rows *rows)
{
	const struct pending_allocs *pending = &rows->all->pending;
	const struct live_block **held = g_new(const struct live_block *, rows->live.n_held + 1);
	uint32_t n = 0;

	for (size_t i = 0; i < pending->n; i++)
		if (pending->items[i].rows == rows && pending->items[i].prior.label)
			held[n++] = &pending->items[i].prior;
	assert(n == rows->live.n_held);
	return held;
}

/* Begins to write all live blocks, after all rows so far. */
static void begin_listing(struct heap_rows *rows, enum prof_heap_event event, uint64_t time_ns)
{
	g_autofree const struct live_block **held = list_held(rows);
	struct heap_listing *listing = &rows->all->listing;

	assert(!listing->rows);
	write_heap(rows, event, time_ns);
	listing->rows = rows;
	listing->time_ns = time_ns;
	listing->n_written = 0;
	if (!live_list_init(&listing->list, &rows->live, held, rows->last_number))
		loss_stream_add(rows->losses, PROF_LOSS_RING_REFUSED,
				live_blocks_count(&rows->live), time_ns, time_ns);
	rows->n_events = 0;
	rows->epoch = rows->output->epoch;
}

/* Writes a piece of the live blocks. Returns whether all are written. */
static bool continue_listing(struct all_heaps *all)
{
	struct heap_listing *listing = &all->listing;
	const struct live_list *list = &listing->list;
	uint32_t end;

	if (!listing->rows)
		return true;
	if (!live_list_run(&listing->list))
		return false;
	end = MIN_OF(list->n, listing->n_written + LIVE_PIECE);
	for (; listing->n_written < end; listing->n_written++) {
		uint32_t ahead = MIN_OF(listing->n_written + AHEAD, list->n - 1);

		prefetch_line(list->items[ahead].block);
		write_live(listing->rows, list->items[listing->n_written].block, listing->time_ns);
	}
	if (end < list->n)
		return false;
	live_list_done(&listing->list);
	listing->rows = NULL;
	return true;
}

/* Returns a process whose checkpoint is due before an event of `rows`, or NULL. */
static struct heap_rows *find_due(struct heap_rows *rows)
{
	struct all_heaps *all = rows->all;
	GHashTableIter iter;
	gpointer value;

	/* At the first event of an epoch, a checkpoint is also due for each other process whose
	 * heap is small or has changed enough. */
	if (all->epoch != rows->output->epoch) {
		g_hash_table_iter_init(&iter, all->forks.parents);
		while (g_hash_table_iter_next(&iter, NULL, &value)) {
			struct heap_rows *other = ((struct heap_parent *)value)->rows;

			if (other != rows && other->has_begun &&
			    other->epoch != rows->output->epoch &&
			    (other->live.n <= FEW || other->n_events >= other->live.n / 2))
				return other;
		}
		all->epoch = rows->output->epoch;
	}
	if (!rows->has_begun || rows->n_events == 0 || rows->n_events < rows->live.n / 2)
		return NULL;
	return rows;
}

/* A separate function, because heap_rows_run() runs for each record and rarely needs this part. */
static __attribute__((noinline)) bool run_rest(struct heap_rows *rows, uint64_t time_ns)
{
	struct heap_rows *due;

	if (!heap_forks_copy(&rows->all->forks, &rows->parent))
		return false;
	/* A checkpoint must come after all rows of its time. */
	if (time_ns - time_ns % TIME_UNIT_NS <= last_time(rows))
		return true;
	due = find_due(rows);
	if (due)
		begin_listing(due, PROF_HEAP_CHECKPOINT, row_time(due, last_time(due)));
	return !due;
}

bool heap_rows_run(struct heap_rows *rows, uint64_t time_ns)
{
	if (rows->epoch == rows->output->epoch && rows->n_events < CHECKPOINT_EVENTS)
		return true;
	return run_rest(rows, time_ns);
}

/* Writes the process's first row, and in a pause a second one. */
static void begin(struct heap_rows *rows, uint64_t time_ns)
{
	rows->has_begun = true;
	rows->is_paused = rows->all->is_paused;
	rows->epoch = rows->output->epoch;
	live_blocks_reset_peak(&rows->live, time_ns);
	write_heap(rows, PROF_HEAP_BEGIN, time_ns);
	if (rows->is_paused)
		write_heap(rows, PROF_HEAP_PAUSED, time_ns);
}

/* Called before each event. Returns the time of its row. */
static uint64_t prepare(struct heap_rows *rows, uint64_t time_ns)
{
	uint64_t row_ns = time_ns - time_ns % TIME_UNIT_NS;

	if (!rows->has_begun)
		begin(rows, row_ns);
	heap_forks_run(&rows->all->forks, &rows->parent, time_ns);
	rows->n_events++;
	return row_time(rows, row_ns);
}

static void write_alloc(struct heap_rows *rows, const struct live_block *block, uint64_t prior)
{
	const uint64_t numbers[PROF_ALLOC_COLUMNS] = {
		[PROF_ALLOC_TIME] = block->since_ns,
		[PROF_ALLOC_THREAD] = name_thread(rows, block->thread),
		[PROF_ALLOC_KIND] = live_block_kind(block),
		[PROF_ALLOC_BLOCK] = live_block_number(block),
		[PROF_ALLOC_SIZE] = block->size,
		[PROF_ALLOC_ALIGNMENT] = alignment_of(live_block_alignment(block)),
		[PROF_ALLOC_STACK] = call_nodes_stack(&rows->nodes, rows->output, block->calls),
		[PROF_ALLOC_PRIOR] = prior,
	};

	if (numbers[PROF_ALLOC_BLOCK]) {
		rows->last_row_number = numbers[PROF_ALLOC_BLOCK];
		rows->last_row_ns = block->since_ns;
	}
	output_add_numbers(rows->output, PROF_TABLE_ALLOC, numbers, 0);
}

/* `thread`: a number from heap_rows_add_thread(). */
static void write_free(struct heap_rows *rows, uint32_t thread, uint64_t time_ns, uint64_t number,
		       uint64_t address, enum prof_free_kind kind)
{
	const uint64_t numbers[PROF_FREE_COLUMNS] = {
		[PROF_FREE_TIME] = time_ns,
		[PROF_FREE_THREAD] = name_thread(rows, thread),
		[PROF_FREE_BLOCK] = number,
		[PROF_FREE_ADDRESS] = address,
		[PROF_FREE_KIND] = kind,
		[PROF_FREE_YOUNGER] =
			number && time_ns == rows->last_row_ns ? rows->last_row_number - number : 0,
	};

	output_add_numbers(rows->output, PROF_TABLE_FREE, numbers,
			   number || !address ? UINT64_C(1) << PROF_FREE_ADDRESS : 0);
}

/* ---- Mappings -------------------------------------------------------------------------------- */

/* Adds [from, to), which remains of a partly unmapped mapping, as a new block. */
static void add_rest(struct heap_rows *rows, const struct live_block *block, uint64_t from,
		     uint64_t to, uint64_t time_ns)
{
	struct live_block rest = *block;

	if (from >= to)
		return;
	rest.address = from;
	rest.size = to - from;
	rest.since_ns = time_ns;
	rest.label = live_block_label(rows->last_number + 1, PROF_ALLOC_MMAP, 0);
	if (!live_blocks_map(&rows->live, &rest)) {
		lose(rows, PROF_LOSS_RING_REFUSED, time_ns);
		return;
	}
	rows->last_number++;
	thread_at(rows, rest.thread)->n_blocks++;
	write_alloc(rows, &rest, live_block_number(block));
}

/* Ends the mappings in [from, to). Returns false if none is known. time_ns: from prepare(). */
static bool unmap(struct heap_rows *rows, uint32_t thread, uint64_t from, uint64_t to,
		  enum prof_free_kind kind, uint64_t time_ns)
{
	struct live_block block;
	bool is_known = false;

	for (; live_blocks_unmap(&rows->live, from, to, &block); is_known = true) {
		uint64_t end = live_block_end(&block);

		live_blocks_drop(&rows->live, &block);
		if (block.address >= from && end <= to)
			write_free(rows, thread, time_ns, live_block_number(&block), 0, kind);
		add_rest(rows, &block, block.address, from, time_ns);
		add_rest(rows, &block, to, end, time_ns);
		release(rows, &block);
	}
	return is_known;
}

static void add_mapping(struct heap_rows *rows, struct live_block *block, uint64_t prior)
{
	/* A mapping that is replaced by another one may have no record of its end. */
	unmap(rows, block->thread, block->address, live_block_end(block), PROF_FREE_MUNMAP,
	      block->since_ns);
	block->label |= live_block_label(rows->last_number + 1, 0, 0);
	if (!live_blocks_map(&rows->live, block)) {
		lose(rows, PROF_LOSS_RING_REFUSED, block->since_ns);
		release(rows, block);
		return;
	}
	rows->last_number++;
	write_alloc(rows, block, prior);
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

/* Ends a block whose address is in use again although its end was not reported. If the process has
 * losses, the missing record is already counted. */
static void end_unreported(struct heap_rows *rows, const struct live_block *before,
			   const struct live_block *block, uint64_t *prior)
{
	if (!rows->losses->has_lost)
		lose(rows, PROF_LOSS_RING_CORRUPT, block->since_ns);
	/* An alloc row has room for only one prior block. */
	if (*prior)
		write_free(rows, block->thread, block->since_ns, live_block_number(before), 0,
			   PROF_FREE_UNTOLD);
	else
		*prior = live_block_number(before);
	heap_forks_end(&rows->all->forks, &rows->parent, before);
	release(rows, before);
}

/* Keeps the old block, because the record of its end may still follow, and queues the new one.
 * Returns false, and changes nothing, if too many blocks of the thread are queued. */
static bool wait_for_end(struct heap_rows *rows, const struct live_block *before,
			 const struct live_block *block, uint64_t prior, uint64_t time_ns)
{
	struct heap_thread *thread = thread_at(rows, block->thread);
	uint64_t due_ns = time_ns + (time_ns < UINT64_MAX);
	struct pending_alloc pending = {
		.due_ns = due_ns,
		.time_ns = due_ns,
		.rows = rows,
		.prior_number = prior,
		.block = *block,
		.is_second = true,
	};
	struct live_block put;

	if (thread->n_pending >= MAX_PENDING)
		return false;
	thread->n_pending++;
	pending.block.label =
		live_block_label(0, live_block_kind(block), live_block_alignment(block));
	/* Cannot fail: the address has a block, and the previous put has grown the table if
	 * necessary. */
	(void)live_blocks_put(&rows->live, before, &put);
	pending_allocs_push(&rows->all->pending, &pending);
	return true;
}

/* Numbers the block, which is already counted in its thread's n_blocks, and writes its row.
 * `may_wait`: if the address still has a block, queues the new one instead. */
static void add(struct heap_rows *rows, struct live_block *block, uint64_t prior, uint64_t time_ns,
		bool may_wait)
{
	struct live_block before;

	block->since_ns = prepare(rows, time_ns);
	if (block->address == 0) {
		write_alloc(rows, block, prior);
		release(rows, block);
		return;
	}
	if (live_block_kind(block) >= PROF_ALLOC_MMAP) {
		add_mapping(rows, block, prior);
		return;
	}
	block->label |= live_block_label(rows->last_number + 1, 0, 0);
	/* If a block that was allocated in a pause had this address, its end was lost. */
	if (rows->passed.n > 0)
		(void)live_blocks_remove(&rows->passed, block->address, &before);
	if (!live_blocks_put(&rows->live, block, &before)) {
		lose(rows, PROF_LOSS_RING_REFUSED, time_ns);
		release(rows, block);
		return;
	}
	if (before.label && may_wait && wait_for_end(rows, &before, block, prior, time_ns))
		return;
	rows->last_number++;
	if (before.label)
		end_unreported(rows, &before, block, &prior);
	write_alloc(rows, block, prior);
}

/* Returns whether the end of a block must not be written: the block was allocated in a pause
 * (has_passed() then forgets the block), or there is a pause and the block is unknown. */
static bool has_passed(struct heap_rows *rows, uint64_t address)
{
	struct live_block block;

	if (address && live_blocks_remove(&rows->passed, address, &block))
		return true;
	return rows->all->is_paused && !live_blocks_find(&rows->live, address) &&
	       !live_blocks_find(&rows->parent.inherited, address) &&
	       !live_blocks_mapped(&rows->live, address);
}

/* Keeps a block that was allocated in a pause. */
static void pass(struct heap_rows *rows, const struct live_block *block, uint64_t time_ns)
{
	struct live_block passed = *block, before;

	if (!block->address)
		return;
	passed.label = live_block_label(1, 0, 0);
	if (!live_blocks_put(&rows->passed, &passed, &before))
		lose(rows, PROF_LOSS_RING_REFUSED, time_ns);
}

bool heap_rows_are_paused(const struct heap_rows *rows)
{
	return rows->all->is_paused;
}

void heap_rows_alloc(struct heap_rows *rows, struct live_block *block, uint64_t time_ns)
{
	if (rows->all->is_paused) {
		pass(rows, block, time_ns);
		return;
	}
	thread_at(rows, block->thread)->n_blocks++;
	add(rows, block, 0, time_ns, true);
}

void heap_rows_free_block(struct heap_rows *rows, uint32_t thread, uint64_t address,
			  enum prof_free_kind kind, uint64_t time_ns)
{
	struct live_block block = { 0 };
	bool is_own;

	if (has_passed(rows, address))
		return;
	time_ns = prepare(rows, time_ns);
	is_own = address && live_blocks_remove(&rows->live, address, &block);
	if (!is_own &&
	    (!address || !live_blocks_remove(&rows->parent.inherited, address, &block))) {
		write_free(rows, thread, time_ns, 0, address, kind);
		return;
	}
	heap_forks_end(&rows->all->forks, &rows->parent, &block);
	write_free(rows, thread, time_ns, live_block_number(&block), 0, kind);
	if (is_own)
		release(rows, &block);
}

void heap_rows_unmap(struct heap_rows *rows, uint32_t thread, uint64_t from, uint64_t to,
		     enum prof_free_kind kind, uint64_t time_ns)
{
	if (has_passed(rows, from))
		return;
	time_ns = prepare(rows, time_ns);
	if (!unmap(rows, thread, from, to, kind, time_ns))
		write_free(rows, thread, time_ns, 0, from, kind);
}

static enum prof_free_kind free_kind_of(uint8_t realloc_kind)
{
	switch (realloc_kind) {
	case PROF_ALLOC_REALLOCARRAY:
		return PROF_FREE_REALLOCARRAY;
	case PROF_ALLOC_MREMAP:
		return PROF_FREE_MUNMAP;
	default:
		return PROF_FREE_REALLOC;
	}
}

/* Ends the realloc's old block, unless the realloc failed. */
static void end_prior(struct pending_alloc *pending, uint64_t prior)
{
	struct heap_rows *rows = pending->rows;
	struct live_blocks *live = &rows->live;
	bool is_moved = pending->block.address != 0;
	bool is_mapping = live_block_kind(&pending->block) == PROF_ALLOC_MREMAP;
	struct live_block block = { 0 };
	const struct live_block *found;

	if (prior == 0 || (is_moved && live_blocks_remove(&rows->passed, prior, &block)))
		return;
	if (is_moved && is_mapping) {
		(void)live_blocks_unmap(live, prior, prior + 1, &pending->prior);
		block = pending->prior;
	} else if (is_moved) {
		if (live_blocks_hold(live, prior, &pending->prior))
			block = pending->prior;
		else
			(void)live_blocks_remove(&rows->parent.inherited, prior, &block);
		if (block.label)
			heap_forks_end(&rows->all->forks, &rows->parent, &block);
	} else {
		found = is_mapping ? live_blocks_mapped(live, prior)
				   : live_blocks_find(live, prior);
		if (!found)
			found = live_blocks_find(&rows->parent.inherited, prior);
		block.label = found ? found->label : 0;
	}
	pending->prior_number = live_block_number(&block);
}

static void complete(struct pending_alloc *pending)
{
	struct heap_rows *rows = pending->rows;

	if (pending->prior.label) {
		live_blocks_drop(&rows->live, &pending->prior);
		release(rows, &pending->prior);
	}
	add(rows, &pending->block, pending->prior_number, pending->time_ns, !pending->is_second);
}

void heap_rows_realloc(struct heap_rows *rows, const struct heap_realloc *moved)
{
	const struct live_block *block = &moved->block;
	struct heap_thread *thread = thread_at(rows, block->thread);
	enum prof_free_kind kind = free_kind_of(live_block_kind(block));
	struct pending_alloc pending = {
		.time_ns = moved->time_ns,
		.rows = rows,
		.block = *block,
	};

	if (block->address == 0 && moved->is_freed) {
		heap_rows_free_block(rows, block->thread, moved->prior, kind, moved->time_ns);
		return;
	}
	if (rows->all->is_paused) {
		if (block->address && moved->prior)
			heap_rows_free_block(rows, block->thread, moved->prior, kind,
					     moved->time_ns);
		pass(rows, block, moved->time_ns);
		return;
	}
	heap_forks_run(&rows->all->forks, &rows->parent, moved->time_ns);
	end_prior(&pending, moved->prior);
	thread->n_blocks++;
	if (thread->n_pending >= MAX_PENDING) {
		lose(rows, PROF_LOSS_RING_CORRUPT, moved->time_ns);
		complete(&pending);
		return;
	}
	thread->n_pending++;
	pending.time_ns += MIN_OF(moved->duration_ns, UINT64_MAX - pending.time_ns);
	pending.due_ns = pending.time_ns;
	pending_allocs_push(&rows->all->pending, &pending);
}

/* ---- Pending events -------------------------------------------------------------------------- */

static void complete_pending(struct pending_alloc *pending)
{
	thread_at(pending->rows, pending->block.thread)->n_pending--;
	complete(pending);
}

/* Writes the row for the beginning or end of the pause, for each process that lacks it. Must be
 * called when all rows up to switch_ns are written. Returns false if a listing of live blocks has
 * begun and must be continued first. */
static bool continue_switch(struct all_heaps *all)
{
	GHashTableIter iter;
	gpointer value;

	if (!all->is_switching)
		return true;
	g_hash_table_iter_init(&iter, all->forks.parents);
	while (g_hash_table_iter_next(&iter, NULL, &value)) {
		struct heap_rows *rows = ((struct heap_parent *)value)->rows;
		uint64_t time_ns;

		if (!rows->has_begun || rows->is_paused == all->is_paused)
			continue;
		rows->is_paused = all->is_paused;
		time_ns = row_time(rows, MAX_OF(all->switch_ns, last_time(rows)));
		if (all->is_paused) {
			begin_listing(rows, PROF_HEAP_PAUSED, time_ns);
			return false;
		}
		write_heap(rows, PROF_HEAP_RESUMED, time_ns);
	}
	all->is_switching = false;
	return true;
}

bool all_heaps_apply(struct all_heaps *all, uint64_t time_ns)
{
	const struct pending_alloc *due;
	struct pending_alloc item;

	while (continue_listing(all) && continue_switch(all)) {
		due = pending_allocs_due(&all->pending, time_ns);
		if (!due)
			return true;
		if (due->rows && !heap_rows_run(due->rows, due->time_ns))
			return false;
		item = pending_allocs_pop(&all->pending);
		if (item.rows) {
			complete_pending(&item);
		} else if (all->last_ns < time_ns) {
			all->is_switching = true;
			all->is_paused = item.is_paused;
			all->switch_ns = item.time_ns;
		} else {
			/* Defer the pause: more records with the time of the last row may follow,
			 * and must precede the pause. */
			item.due_ns = all->last_ns;
			pending_allocs_push(&all->pending, &item);
		}
	}
	return false;
}

void all_heaps_pause(struct all_heaps *all, bool is_paused, uint64_t time_ns)
{
	const struct pending_alloc pause = {
		.due_ns = MAX_OF(time_ns, all->last_ns), /* not due before a deferred pause */
		.time_ns = time_ns,
		.is_paused = is_paused,
	};

	pending_allocs_push(&all->pending, &pause);
}

void all_heaps_init(struct all_heaps *all, struct output *output, struct tasks *tasks)
{
	*all = (struct all_heaps){
		.output = output,
		.tasks = tasks,
		.budget.limit = HEAP_ALL_BYTES,
	};
	heap_forks_init(&all->forks, tasks, &all->last_ns);
}

void all_heaps_done(struct all_heaps *all)
{
	heap_forks_done(&all->forks);
	pending_allocs_done(&all->pending);
	*all = (struct all_heaps){ 0 };
}

/* ---- Processes ------------------------------------------------------------------------------- */

struct heap_rows *heap_rows_new(struct all_heaps *all, struct process *process,
				struct loss_stream *losses)
{
	struct heap_rows *rows = g_new0(struct heap_rows, 1);

	rows->all = all;
	rows->process = process;
	rows->losses = losses;
	rows->output = all->output;
	rows->budget = (struct heap_budget){ .limit = HEAP_PROCESS_BYTES, .all = &all->budget };
	rows->threads = g_array_new(FALSE, TRUE, sizeof(struct heap_thread));
	rows->first_free = UINT32_MAX;
	live_blocks_init(&rows->live, random_seed(rows), &rows->budget);
	rows->parent = (struct heap_parent){
		.process = process,
		.rows = rows,
		.live = &rows->live,
		.last_number = &rows->last_number,
		.budget = &rows->budget,
	};
	heap_forks_join(&rows->all->forks, &rows->parent);
	live_blocks_init(&rows->passed, rows->live.seed, &rows->budget);
	/* The process's own blocks get higher numbers than the inherited ones. */
	rows->last_number = rows->parent.n_inherited;
	call_nodes_init(&rows->nodes, random_seed(rows), &rows->budget);
	rows->nodes.code = all->code;
	return rows;
}

bool heap_rows_end(struct heap_rows *rows, uint64_t time_ns)
{
	struct all_heaps *all = rows->all;
	struct pending_alloc item;

	if (!continue_listing(all))
		return false;
	/* An item may be deferred again, but only once, so the loop ends. */
	while (pending_allocs_expedite(&all->pending, rows, time_ns))
		while (pending_allocs_due(&all->pending, 0)) {
			item = pending_allocs_pop(&all->pending);
			complete_pending(&item);
		}
	if (!rows->has_begun)
		return true;
	begin_listing(rows, PROF_HEAP_END, row_time(rows, MAX_OF(time_ns, last_time(rows))));
	rows->has_begun = false;
	rows->epoch = 0;
	return false;
}

void heap_rows_free(struct heap_rows *rows)
{
	if (!rows)
		return;
	assert(rows->all->listing.rows != rows);
	pending_allocs_drop(&rows->all->pending, rows);
	for (uint32_t i = 0; i < rows->threads->len; i++)
		if (thread_at(rows, i)->thread)
			row_unref(&thread_at(rows, i)->thread->row);
	g_array_free(rows->threads, TRUE);
	heap_forks_leave(&rows->all->forks, &rows->parent);
	live_blocks_done(&rows->live);
	live_blocks_done(&rows->passed);
	call_nodes_done(&rows->nodes);
	g_free(rows);
}

const struct live_blocks *heap_rows_live(const struct heap_rows *rows)
{
	return &rows->live;
}

struct call_nodes *heap_rows_nodes(struct heap_rows *rows)
{
	return &rows->nodes;
}
