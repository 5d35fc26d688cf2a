/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of collector-stacks.c in daemon/engine: images, stacks and code that a process reports,
 * and allocations through rings. Allocations at chosen times are in test-engine-heap.c.
 */
#include "tests/unit/collectors.h"

/* ---- Images, stacks and code ---- */

#define CODE UINT64_C(0x700000001000)
#define LIBRARY UINT64_C(0x700000400000)

static void write_image(struct ring *ring, uint32_t id, uint32_t path, uint64_t start)
{
	struct ring_image *image = ring_begin(ring, RING_IMAGE, sizeof(*image) + 20);

	*image = (struct ring_image){ .id = id,
				      .n_build_id_bytes = 20,
				      .start = start,
				      .end = start + 0x2000,
				      .file_offset = 0x1000,
				      .dev = 5,
				      .inode = 6,
				      .path = path };
	memset(image + 1, 0xab, 20);
	ring_end(ring, image);
}

static void write_stack(struct ring *ring, uint32_t id, const struct ring_frame *frames, uint32_t n)
{
	struct ring_stack *stack =
		ring_begin(ring, RING_STACK, sizeof(*stack) + n * sizeof(*frames));

	*stack = (struct ring_stack){ .id = id, .n_frames = n };
	memcpy(stack + 1, frames, n * sizeof(*frames));
	ring_end(ring, stack);
}

static void write_mark_at(struct ring *ring, uint32_t stack, uint64_t id)
{
	struct ring_at *at = ring_begin(ring, RING_MARK_AT, sizeof(*at) + sizeof(struct ring_mark));

	if (!at)
		return;
	*at = (struct ring_at){ .stack = stack };
	*(struct ring_mark *)(at + 1) = (struct ring_mark){ .id = id };
	ring_end(ring, at);
}

static void write_log_at(struct ring *ring, uint32_t stack, const char *text, uint16_t flags)
{
	struct ring_at *at =
		ring_begin(ring, RING_LOG_AT, sizeof(*at) + sizeof(struct ring_log) + strlen(text));
	struct ring_log *log = (struct ring_log *)(at + 1);

	*at = (struct ring_at){ .stack = stack };
	*log = (struct ring_log){ .level = 6, .part = flags, .n_bytes = (uint32_t)strlen(text) };
	memcpy(log + 1, text, strlen(text));
	ring_set_flags(at, flags);
	ring_end(ring, at);
}

static void write_jit(struct ring *ring, struct ring_jit jit)
{
	struct ring_jit *to = ring_begin(ring, RING_JIT, sizeof(*to));

	*to = jit;
	ring_end(ring, to);
}

static void map_library(struct fixture *fixture, const char *path, uint64_t inode)
{
	const struct image_key key = {
		.path = path, .path_bytes = strlen(path), .dev = 5, .inode = inode
	};
	struct process *process = tasks_process(&fixture->parts.tasks, getpid());
	const struct mapping mapping = { .start = LIBRARY,
					 .end = LIBRARY + 0x3000,
					 .file_offset = 0x1000,
					 .image = images_of_mapping(&fixture->parts.images, &key) };

	maps_insert(&process->maps, &mapping);
}

/* Returns a column of the i-th frame, in the order of writing. */
static uint64_t frame_number(const struct fixture *fixture, uint16_t column, size_t i)
{
	return number_of(&fixture->parts, PROF_TABLE_FRAME, column, i);
}

/* Frames are in an image that only the process reports, in one that the side band also reports, or
 * in no file. */
static void test_stacks(void)
{
	const struct ring_frame frames[] = { { LIBRARY + 0x10, 0, RING_FRAME_NO_FILE },
					     { LIBRARY + 0x10, 0, RING_FRAME_RETURN },
					     { 0x1234, 3, 1 },
					     { 0x1fff, 4, 0 } };
	struct fixture fixture;
	struct ring *ring;
	uint64_t code;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	map_library(&fixture, "/lib/known.so", 6);
	ring = claim(&fixture, getpid());
	write_string(ring, 1, "/lib/told.so", 12, 0);
	write_string(ring, 2, "/lib/known.so (deleted)", 23, 0);
	write_image(ring, 3, 1, CODE + 0x100000);
	write_image(ring, 4, 2, LIBRARY);
	write_stack(ring, 5, frames, 4);
	write_mark_at(ring, 5, 1);
	write_mark_at(ring, 5, 2);
	write_log_at(ring, 5, "one ", RING_FLAG_MORE);
	write_log(ring, "log", 0, RING_FLAG_MORE);
	/* an address of stack 5, but exact, as in a handler; a return address at the image's end */
	write_stack(ring, 6,
		    (const struct ring_frame[]){ { CODE + 0x100234, 0, 0 },
						 { CODE + 0x102000, 0, 1 } },
		    2);
	write_mark_at(ring, 6, 3);
	settle(&fixture);
	finish(&fixture);
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_CORRUPT), 0);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_IMAGE), 3);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_STACK), 6);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_LOG), 1);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_STACK, 0), 4);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_STACK, 1), 4);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_STACK, 2), 6);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_LOG, PROF_LOG_STACK, 0), 4);
	/* the root comes first */
	CHECK_INT(frame_number(&fixture, PROF_FRAME_OFFSET, 0), 0x1fff);
	CHECK_INT(frame_number(&fixture, PROF_FRAME_OFFSET, 1), 0x1234);
	CHECK_INT(frame_number(&fixture, PROF_FRAME_OFFSET, 2), 0x1010);
	CHECK_INT(frame_number(&fixture, PROF_FRAME_OFFSET, 3), LIBRARY + 0x10);
	CHECK_INT(frame_number(&fixture, PROF_FRAME_OFFSET, 4), 0x3000);
	CHECK_INT(frame_number(&fixture, PROF_FRAME_OFFSET, 5), 0x1234);
	CHECK_INT(frame_number(&fixture, PROF_FRAME_KIND, 2), PROF_FRAME_RETURN);
	CHECK_INT(frame_number(&fixture, PROF_FRAME_KIND, 3), PROF_FRAME_EXACT);
	code = frame_number(&fixture, PROF_FRAME_IMAGE, 3);
	CHECK_INT(frame_number(&fixture, PROF_FRAME_IMAGE, 0),
		  frame_number(&fixture, PROF_FRAME_IMAGE, 2));
	CHECK_INT(frame_number(&fixture, PROF_FRAME_IMAGE, 1),
		  frame_number(&fixture, PROF_FRAME_IMAGE, 4));
	CHECK(frame_number(&fixture, PROF_FRAME_IMAGE, 1) != code);
	CHECK(frame_number(&fixture, PROF_FRAME_IMAGE, 0) != code);
	fixture_done(&fixture);
}

/* If the side band has another file at the address, the reported file is a separate image. */
static void test_other_image(void)
{
	const struct ring_frame frame = { 0x1010, 4, 0 };
	struct fixture fixture;
	struct ring *ring;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	map_library(&fixture, "/lib/known.so", 7);
	ring = claim(&fixture, getpid());
	write_string(ring, 2, "/lib/known.so", 13, 0);
	write_image(ring, 4, 2, LIBRARY);
	write_stack(ring, 5, &frame, 1);
	write_mark_at(ring, 5, 1);
	settle(&fixture);
	finish(&fixture);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_IMAGE, PROF_IMAGE_INODE, 0), 6);
	fixture_done(&fixture);
}

/* Stack ids of another producer, and undefined ids, have no stack. An id can be reported again,
 * even with a frame in an image that was never reported. */
static void test_stack_ids(void)
{
	const struct ring_frame first = { CODE, 0, 0 }, second = { CODE + 8, 77, 0 };
	struct fixture fixture;
	struct ring *ring, *other;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	ring = claim(&fixture, getpid());
	other = claim(&fixture, OTHER_TID);
	write_stack(ring, 1, &first, 1);
	write_stack(ring, 0, &first, 1);
	write_stack(ring, 2, &first, 0);
	settle(&fixture);
	write_mark_at(other, 1, 1);
	settle(&fixture);
	write_mark_at(ring, 1, 2);
	write_mark_at(ring, 2, 3);
	settle(&fixture);
	output_end_epoch(&fixture.parts.output);
	write_mark_at(ring, 1, 4);
	write_stack(ring, 1, &second, 1);
	write_mark_at(ring, 1, 5);
	settle(&fixture);
	finish(&fixture);
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_CORRUPT), 1);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_STACK, 0), 0);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_STACK, 1), 1);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_STACK, 2), 0);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_STACK, 3), 1);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_MARK, PROF_MARK_STACK, 4), 2);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_STACK), 3);
	CHECK_INT(frame_number(&fixture, PROF_FRAME_OFFSET, 2), CODE + 8);
	CHECK_INT(fixture.warnings, 0);
	fixture_done(&fixture);
}

static void test_code(void)
{
	struct fixture fixture;
	struct ring *ring;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	ring = claim(&fixture, getpid());
	write_string(ring, 1, "f", 1, 0);
	write_jit(ring, (struct ring_jit){ .name = 1, .address = CODE, .size = 64, .from = 9 });
	write_jit(ring,
		  (struct ring_jit){
			  .kind = RING_JIT_MOVE, .name = 77, .address = CODE + 64, .from = CODE });
	write_jit(ring, (struct ring_jit){ .kind = RING_JIT_UNLOAD, .address = CODE + 64 });
	settle(&fixture);
	write_jit(ring, (struct ring_jit){ .kind = RING_JIT_N_KINDS });
	settle(&fixture);
	CHECK_INT(fixture.warnings, 1);
	finish(&fixture);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_JIT), 3);
	CHECK_STR(text_of(&fixture.parts,
			  number_of(&fixture.parts, PROF_TABLE_JIT, PROF_JIT_NAME, 0)),
		  "f");
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_JIT, PROF_JIT_NAME, 1), 0);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_JIT, PROF_JIT_FROM, 0), 0);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_JIT, PROF_JIT_FROM, 1), CODE);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_JIT, PROF_JIT_ADDRESS, 2), CODE + 64);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_JIT, PROF_JIT_EVENT, 2), PROF_JIT_UNLOAD);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_JIT, PROF_JIT_PROCESS, 0), 1);
	fixture_done(&fixture);
}

static void lie_about_frames(struct ring *ring)
{
	write_stack(ring, 1, &(const struct ring_frame){ .kind = 4 }, 1);
}

static void lie_about_image(struct ring *ring)
{
	struct ring_image *image = ring_begin(ring, RING_IMAGE, sizeof(*image));

	*image = (struct ring_image){ .id = 1, .start = CODE, .end = CODE };
	ring_end(ring, image);
}

static void test_lying_stacks(void)
{
	static void (*const lies[])(struct ring *) = { lie_about_frames, lie_about_image };

	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		struct fixture fixture;

		REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
		lies[i](claim(&fixture, getpid()));
		settle(&fixture);
		CHECK_INT(fixture.warnings, 1);
		finish(&fixture);
		fixture_done(&fixture);
	}
}

/* A process sends stacks and images without end. */
static void test_endless_stacks(void)
{
	static struct ring_frame frames[1000];
	struct fixture fixture;
	struct ring *ring;

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	ring = ring_claim(fixture.arena, (uint32_t)getpid(), 64u << 10, 0);
	write_string(ring, 1, "/x", 2, 0);
	for (uint32_t i = 1; i < 3000; i++) {
		write_image(ring, i, 1, CODE + i * 0x4000);
		write_string(ring, 1, &i, sizeof(i), 0);
		write_stack(ring, i, frames, 900);
		collectors_drain(&fixture.collectors, now());
		if (i % 100 == 0)
			settle(&fixture);
	}
	settle(&fixture);
	CHECK(fixture.collectors.rows->text_bytes <= COLLECTOR_PROCESS_TEXT);
	CHECK(fixture.collectors.rows->n_images <= COLLECTOR_MAX_IMAGES);
	CHECK(losses_of(&fixture.parts, PROF_LOSS_RING_REFUSED) > 3000);
	finish(&fixture);
	fixture_done(&fixture);
}

/* ---- Allocations ---- */

static void write_alloc(struct ring *ring, uint64_t address, uint64_t size, uint32_t stack)
{
	struct ring_alloc *alloc = ring_begin(ring, RING_ALLOC, sizeof(*alloc));

	if (!alloc)
		return;
	*alloc = (struct ring_alloc){ .address = address, .size = size, .stack = stack };
	ring_end(ring, alloc);
}

static void write_free(struct ring *ring, uint64_t address)
{
	struct ring_free_block *freed = ring_begin(ring, RING_FREE_BLOCK, sizeof(*freed));

	*freed = (struct ring_free_block){ .address = address };
	ring_end(ring, freed);
}

static void write_calls(struct ring *ring, uint32_t first, uint32_t parent, uint64_t address)
{
	struct ring_calls *calls =
		ring_begin(ring, RING_CALLS, sizeof(*calls) + sizeof(struct ring_frame));

	*calls = (struct ring_calls){ .first = first, .parent = parent, .n_frames = 1 };
	*(struct ring_frame *)(calls + 1) = (struct ring_frame){ address, 0, RING_FRAME_NO_FILE };
	ring_end(ring, calls);
}

static uint64_t heap_number(const struct fixture *fixture, uint16_t column, size_t i)
{
	return number_of(&fixture->parts, PROF_TABLE_HEAP, column, i);
}

/* One thread allocates and another one frees. There are live blocks when the process or the session
 * ends. */
static void check_allocations(bool dies)
{
	struct fixture fixture;
	struct ring *ring, *other;
	uint64_t begin_ns = now();

	REQUIRE(begin(&fixture, ENGINE_POLICY_DEFAULT));
	ring = claim(&fixture, getpid());
	other = claim(&fixture, OTHER_TID);
	write_calls(ring, 1, 0, CODE);
	write_calls(ring, 2, 1, CODE + 8);
	for (uint64_t i = 1; i <= 100; i++) {
		write_alloc(ring, i * 16, i, 2);
		/* so that the clock advances */
		usleep(1);
		write_free(other, i * 16);
	}
	write_alloc(ring, 16, 1000, 2);
	settle(&fixture);
	write_alloc(other, 32, 2000, 0);
	if (dies) {
		CHECK(collectors_wake(&fixture.collectors, fixture.pidfd));
		settle(&fixture);
		CHECK_INT(fixture.collectors.peers->len, 0);
	}
	/* producers have stopped, so any time limit suffices */
	for (int i = 0; i < 1000 && collectors_finish_some(&fixture.collectors, 0) > 0; i++)
		usleep(1000);
	CHECK_INT(collectors_finish_some(&fixture.collectors, 0), 0);
	CHECK(dies || fixture.shared->ended == 1);
	finish(&fixture);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_ALLOC), 102);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_FREE), 100);
	for (size_t i = 0; i < 100; i++)
		CHECK_INT(number_of(&fixture.parts, PROF_TABLE_FREE, PROF_FREE_BLOCK, i), i + 1);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_STACK), 2);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_HEAP), 2);
	CHECK_INT(heap_number(&fixture, PROF_HEAP_EVENT, 1), PROF_HEAP_END);
	CHECK_INT(heap_number(&fixture, PROF_HEAP_LIVE_BYTES, 1), 3000);
	CHECK(heap_number(&fixture, PROF_HEAP_TIME, 0) > begin_ns);
	CHECK(heap_number(&fixture, PROF_HEAP_TIME, 1) <= now());
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_LIVE), 2);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_LIVE, PROF_LIVE_BLOCK, 1), 102);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_LIVE, PROF_LIVE_STACK, 0), 2);
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_LATE), 0);
	CHECK_INT(fixture.warnings, 0);
	fixture_done(&fixture);
}

static void test_allocations(void)
{
	check_allocations(false);
	check_allocations(true);
}

/* A process with many live blocks. */
struct flood {
	struct fixture fixture;
	struct peer *peer;
	struct ring *ring;
	uint64_t n_blocks;
};

#define N_FIRST (4 * (uint64_t)LIVE_PIECE)

static void allocate(struct flood *flood, uint64_t n)
{
	for (; n > 0; n--) {
		flood->n_blocks++;
		write_alloc(flood->ring, flood->n_blocks * 16, flood->n_blocks, 0);
	}
}

/* Allocates N_FIRST blocks, and ends the epoch. The next allocation begins a checkpoint of these
 * blocks. */
static bool begin_flood(struct flood *flood)
{
	*flood = (struct flood){ 0 };
	if (!begin(&flood->fixture, ENGINE_POLICY_DEFAULT))
		return false;
	flood->peer = g_ptr_array_index(flood->fixture.collectors.peers, 0);
	flood->ring = claim(&flood->fixture, getpid());
	/* leave no larger ring to move to */
	while (ring_claim(flood->fixture.arena, OTHER_TID, 0, 0))
		;
	while (flood->n_blocks < N_FIRST) {
		allocate(flood, 256);
		step(&flood->fixture);
	}
	settle(&flood->fixture);
	output_end_epoch(&flood->fixture.parts.output);
	return true;
}

/* Checks that n rows from `row` on have the numbers from `first` on in this column. */
static void check_sequence(const struct fixture *fixture, unsigned int table, uint16_t column,
			   size_t row, uint64_t first, uint64_t n)
{
	const struct prof_cursor_options options = { .table = table,
						     .columns = &column,
						     .n_columns = 1 };
	uint64_t n_rows = 0, n_wrong = 0;
	struct prof_cursor *cursor;
	struct prof_batch batch;

	if (!CHECK_INT(prof_cursor_new(fixture->parts.reader, &options, &cursor), 0))
		return;
	while (prof_cursor_next(cursor, &batch) == 0)
		for (size_t i = 0; i < batch.rows; i++, n_rows++)
			if (n_rows >= row && n_rows < row + n)
				n_wrong += batch.columns[0].numbers[i] != first + n_rows - row;
	CHECK(n_rows >= row + n);
	CHECK_INT(n_wrong, 0);
	prof_cursor_free(cursor);
}

static void check_flood(struct flood *flood)
{
	struct fixture *fixture = &flood->fixture;

	finish(fixture);
	CHECK_INT(losses_of(&fixture->parts, PROF_LOSS_RING_FULL), 0);
	CHECK_INT(losses_of(&fixture->parts, PROF_LOSS_LATE), 0);
	CHECK_INT(rows_of(&fixture->parts, PROF_TABLE_ALLOC), flood->n_blocks);
	check_sequence(fixture, PROF_TABLE_ALLOC, PROF_ALLOC_SIZE, 0, 1, flood->n_blocks);
	CHECK_INT(rows_of(&fixture->parts, PROF_TABLE_HEAP), 3);
	CHECK_INT(heap_number(fixture, PROF_HEAP_EVENT, 1), PROF_HEAP_CHECKPOINT);
	CHECK_INT(heap_number(fixture, PROF_HEAP_LIVE_BLOCKS, 1), N_FIRST);
	check_sequence(fixture, PROF_TABLE_LIVE, PROF_LIVE_BLOCK, 0, 1, N_FIRST);
}

static const struct peer_type *own_type;
static struct flood *flooded;
static unsigned int n_drains; /* drains of the first ring since the checkpoint was due */

/* Drains a ring. After a drain of the first ring, fills half of it, until the checkpoint is
 * complete. */
static size_t drain_and_fill(struct collectors *collectors, struct peer_arena *arena, uint32_t i,
			     enum ring_drain how, uint64_t *ret_fill)
{
	size_t n = own_type->drain(collectors, arena, i, how, ret_fill);
	uint64_t bytes = sizeof(struct ring_record_header) + sizeof(struct ring_alloc);

	if (i == 0 && (n_drains == 0 || collectors->rows->heaps.listing.rows)) {
		n_drains++;
		allocate(flooded, arena->rings[0].reader.size / bytes / 2);
	}
	return n;
}

/* A ring that fills while live blocks are written is drained between the pieces. */
static void test_keep_up(void)
{
	struct peer_type filling;
	struct flood flood;

	REQUIRE(begin_flood(&flood));
	flooded = &flood;
	own_type = flood.peer->type;
	filling = *own_type;
	filling.drain = drain_and_fill;
	flood.peer->type = &filling;
	allocate(&flood, 1);
	/* the check for filling rings is due at once */
	flood.fixture.collectors.keep_up_ns = 0;
	usleep(1000);
	step(&flood.fixture);
	CHECK(n_drains > 1);
	flood.peer->type = own_type;
	settle(&flood.fixture);
	check_flood(&flood);
	fixture_done(&flood.fixture);
}

/* Does a piece of the work for the oldest record of the ring. Returns whether the record is
 * done. */
static bool add_piece(struct flood *flood, struct peer_ring *ring)
{
	const struct peer_item *item = peer_ring_peek(ring);
	const struct ring_record record = { .type = item->type,
					    .time_ns = item->time_ns,
					    .payload = item + 1 };
	enum ring_fault fault;

	if (!collector_producer_add(peer_ring_producer(ring), &record, &fault))
		return false;
	CHECK_INT(fault, RING_FAULT_NONE);
	flood->fixture.collectors.queued_bytes -= peer_ring_skip(ring);
	return true;
}

/* Between the pieces of a checkpoint, blocks are freed and allocated: some that are already listed,
 * and others that are not. The checkpoint lists the blocks of its time, and nothing is lost. */
static void test_between_pieces(void)
{
	struct flood flood;
	struct fixture *fixture = &flood.fixture;
	const struct heap_listing *listing;
	uint64_t n_pairs = 0;
	unsigned int n_pieces = 0;

	REQUIRE(begin_flood(&flood));
	listing = &fixture->collectors.rows->heaps.listing;
	allocate(&flood, 1);
	collectors_drain(&fixture->collectors, now());
	for (; !add_piece(&flood, &flood.peer->arenas[0]->rings[0]); n_pieces++) {
		allocate(&flood, 1);
		if (listing->n_written > 0) {
			n_pairs++;
			write_free(flood.ring, n_pairs * 16);
			write_free(flood.ring, (N_FIRST - n_pairs) * 16);
			/* The first of these addresses is allocated again. */
			write_alloc(flood.ring, n_pairs * 16, ++flood.n_blocks, 0);
		}
		collectors_drain(&fixture->collectors, now());
	}
	CHECK(n_pieces >= 4 * N_FIRST / LIVE_PIECE);
	CHECK_INT(n_pairs, 3);
	settle(fixture);
	check_flood(&flood);
	for (uint64_t i = 1; i <= n_pairs; i++) {
		CHECK_INT(number_of(&fixture->parts, PROF_TABLE_FREE, PROF_FREE_BLOCK, 2 * i - 2),
			  i);
		CHECK_INT(number_of(&fixture->parts, PROF_TABLE_FREE, PROF_FREE_BLOCK, 2 * i - 1),
			  N_FIRST - i);
	}
	/* the live blocks at the end */
	CHECK_INT(rows_of(&fixture->parts, PROF_TABLE_LIVE),
		  N_FIRST + flood.n_blocks - 2 * n_pairs);
	check_sequence(fixture, PROF_TABLE_LIVE, PROF_LIVE_BLOCK, N_FIRST, n_pairs + 1,
		       N_FIRST - 2 * n_pairs - 1);
	fixture_done(fixture);
}

/* Rings of the next size become available after a ring of the largest size so far has been written
 * to and read. */
static void test_growth(void)
{
	static const uint64_t sizes[] = { 128u << 10, 512u << 10, 4u << 20 };
	struct fixture fixture;

	REQUIRE(begin(&fixture, ENGINE_POLICY_LOSSLESS));
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct ring *ring = ring_claim(fixture.arena, getpid(), sizes[i], 0);

		CHECK_INT(ring != NULL, i == 0);
		/* the engine clears memory in at most a third of its time */
		for (int j = 0; j < 1000 && !ring; j++) {
			settle(&fixture);
			ring = ring_claim(fixture.arena, getpid(), sizes[i], 0);
		}
		REQUIRE(CHECK(ring));
		write_alloc(ring, (i + 1) * 16, i, 0);
	}
	finish(&fixture);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_ALLOC), ARRAY_SIZE(sizes));
	CHECK_INT(fixture.warnings, 0);
	fixture_done(&fixture);
}

/* If a process's threads do not wait for room, it has rings of all sizes from the beginning. */
static void test_room(void)
{
	struct fixture fixture;

	fixture_init(&fixture, ENGINE_POLICY_LOSSLESS);
	connect_as(&fixture, getpid(), CONTROL_WANTS_ROOM);
	step_until_answer(&fixture);
	REQUIRE(take_arena(&fixture));
	CHECK(ring_claim(fixture.arena, getpid(), 4u << 20, 0));
	finish(&fixture);
	fixture_done(&fixture);
}

/* For a ring that is never empty, memory is only used for queued records, not for earlier ones. */
static void test_never_empty(void)
{
	struct fixture fixture;
	struct peer_queue *queue;
	struct ring *ring;
	size_t most = 0;

	REQUIRE(begin(&fixture, ENGINE_POLICY_LOSSLESS));
	ring = claim(&fixture, getpid());
	/* leave no larger ring to move to */
	while (ring_claim(fixture.arena, OTHER_TID, 0, 0))
		;
	queue = &((struct peer *)g_ptr_array_index(fixture.collectors.peers, 0))
			 ->arenas[0]
			 ->rings[0]
			 .queue;
	for (uint64_t i = 0; i < 20000; i++) {
		write_alloc(ring, (i + 1) * 16, i, 0);
		if (i % 20 != 0)
			continue;
		/* as in a session, keep records of the last millisecond in the queue */
		usleep(500);
		parts_step(&fixture.parts, &fixture.collectors, now() - 1000000);
		for (const struct peer_chunk *chunk = queue->chunks; chunk; chunk = chunk->next)
			most = MAX_OF(most, chunk->room);
	}
	CHECK(most > 0 && most < 32u << 10);
	finish(&fixture);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_ALLOC), 20000);
	fixture_done(&fixture);
}

int main(void)
{
	RUN(test_stacks);
	RUN(test_other_image);
	RUN(test_stack_ids);
	RUN(test_code);
	RUN(test_lying_stacks);
	RUN(test_endless_stacks);
	RUN(test_allocations);
	RUN(test_keep_up);
	RUN(test_between_pieces);
	RUN(test_growth);
	RUN(test_room);
	RUN(test_never_empty);
	return test_end();
}
