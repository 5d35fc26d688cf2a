/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of libcollector/call-tree: what a reader makes of RING_CALLS is the stack that the thread was in, whatever happens to
 * the ring, its ids and the code meanwhile.
 */
#include "libcollector/call-tree.h"

#include "config.h"
#include "libcollector/message.h"
#include "tests/unit/ring.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#define BIG (1u << 22)
#define MAX_SEEN 8192

/* What a reader knows of a node: the tree goes on where it was told again. */
struct node {
	uint64_t pc; /* its address, found by its image */
	uint32_t kind;
	const struct node *parent;
};

struct image {
	uint64_t start, file_offset;
};

static struct pair pair;
static struct producer *producer;
static struct node *nodes[RING_MAX_CALLS];
static struct image images[8192];
static uint32_t n_told, n_records;
static const uint32_t never_ended;
static struct own_stack own;
static uint64_t pcs[OWN_STACK_MAX_FRAMES];

/* ---- The reader ---- */

static void take_calls(const struct ring_calls *calls)
{
	const struct ring_frame *frames = (const void *)(calls + 1);
	const struct node *parent = calls->parent ? nodes[calls->parent] : NULL;

	CHECK(calls->first > 0 && calls->first + calls->n_frames <= RING_MAX_CALLS);
	CHECK(calls->parent == 0 || parent);
	for (uint32_t i = 0; i < calls->n_frames; i++) {
		struct node *node = calloc(1, sizeof(*node));

		REQUIRE(node);
		node->kind = frames[i].kind;
		node->pc = frames[i].offset;
		node->parent = parent;
		if (frames[i].image != 0) {
			CHECK(images[frames[i].image].start != 0);
			node->pc += images[frames[i].image].start -
				    images[frames[i].image].file_offset;
		}
		nodes[calls->first + i] = node;
		parent = node;
	}
	n_told += calls->n_frames;
}

static void drain(void)
{
	struct ring_batch batch;
	struct ring_record record;

	do {
		ring_reader_drain(&pair.reader, RING_DRAIN_LIVE, pair.buffer, sizeof(pair.buffer),
				  &batch);
		while (ring_batch_next(&batch, &record)) {
			const struct ring_image *image = record.payload;

			n_records++;
			if (record.type == RING_CALLS)
				take_calls(record.payload);
			if (record.type == RING_IMAGE && CHECK(image->id < ARRAY_SIZE(images)))
				images[image->id] =
					(struct image){ image->start, image->file_offset };
		}
	} while (batch.is_more);
	CHECK_INT(pair.reader.fault, RING_FAULT_NONE);
}

/* ---- The program ---- */

static void check_node(uint32_t id, const struct own_stack_chain *chain)
{
	const struct node *node = id < RING_MAX_CALLS ? nodes[id] : NULL;

	if (!CHECK(id != 0 && node))
		return;
	for (size_t i = 1; i < chain->n; i++, node = node->parent)
		if (!CHECK(node) || !CHECK_INT(node->pc, pcs[i]) ||
		    !CHECK_INT(node->kind, RING_FRAME_RETURN))
			return;
	CHECK(!node);
}

static __attribute__((noinline)) uint32_t see(void)
{
	struct walk_registers caller, here;
	struct own_stack_chain chain;
	uint32_t id;

	own_calls_get_caller(&caller);
	errno = 12345;
	id = call_tree_get(producer, &caller);
	CHECK_INT(errno, 12345);
	own_stack_get_registers(&here);
	own_stack_walk(&own, &here, pcs, ARRAY_SIZE(pcs), &chain);
	drain();
	check_node(id, &chain);
	return id;
}

static __attribute__((noinline)) uint32_t recurse(int n)
{
	volatile uint32_t id = n == 0 ? see() : recurse(n - 1);

	return id;
}

static __attribute__((noinline)) uint32_t other(int n)
{
	volatile uint32_t id = n == 0 ? see() : n % 2 ? recurse(n / 2) : other(n - 1);

	return id;
}

static void begin(uint64_t bytes)
{
	REQUIRE(pair_init(&pair, bytes, 1, RING_DROP));
	if (!producer)
		producer = mmap(NULL, sizeof(*producer), PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(producer != MAP_FAILED);
	producer->ring = producer->current = pair.ring;
	producer->ended = &never_ended;
	producer->n_types = RING_N_TYPES;
	intern_restart(&producer->intern);
	memset(nodes, 0, sizeof(nodes));
	n_told = n_records = 0;
}

static void test_stacks(void)
{
	uint32_t before, ids[2];

	begin(BIG);
	for (volatile int i = 0; i < 2; i++)
		ids[i] = recurse(5);
	CHECK_INT(ids[0], ids[1]);
	before = n_records;
	for (int i = 0; i < 100; i++) {
		recurse(i % 30);
		other(i % 30);
		if (i == 50)
			before = n_records;
	}
	CHECK_INT(n_records, before);
	pair_done(&pair);
}

/* Another owner of the ring: nothing that was told before holds. */
static void test_owners(void)
{
	for (int i = 0; i < 3; i++) {
		begin(BIG);
		recurse(7);
		CHECK(n_told >= 8);
		pair_done(&pair);
	}
}

static void test_epochs(void)
{
	begin(BIG);
	for (int i = 0; i < 20; i++) {
		recurse(7);
		intern_restart(&producer->intern);
		memset(nodes, 0, sizeof(nodes));
		memset(images, 0, sizeof(images));
		recurse(9);
		own_stack_forget();
		memset(nodes, 0, sizeof(nodes));
		recurse(9);
	}
	pair_done(&pair);
}

/* No room: there is no node, and none is believed to be told. */
static void test_full(void)
{
	struct walk_registers caller;
	uint32_t n_none = 0;

	begin(4096);
	own_calls_get_caller(&caller);
	recurse(1);
	while (write_mark(pair.ring, 1))
		;
	for (int i = 0; i < 3; i++) {
		caller.pc++;
		n_none += call_tree_get(producer, &caller) == 0;
	}
	CHECK_INT(n_none, 3);
	drain();
	recurse(20);
	pair_done(&pair);
}

int main(void)
{
	if (own_stack_setup() < 0)
		return 1;
	RUN(test_stacks);
	RUN(test_owners);
	RUN(test_epochs);
	RUN(test_full);
	return test_end();
}
