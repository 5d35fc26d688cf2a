/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of libcollector/hooks/call-tree.c: the stack that a reader builds from RING_CALLS is the
 * thread's stack, even if the ring, its ids or the code changed meanwhile.
 */
#include "libcollector/hooks/call-tree.h"

#include "config.h"
#include "libcollector/hooks/message.h"
#include "tests/unit/ring.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#define BIG (1u << 22)
#define N_BITS 18
#define MAX_TOLD (1u << 22)

/* A node as a reader received it. Its caller is the latest node that was sent with the caller's
 * id. */
struct node {
	uint64_t pc; /* address in the process */
	uint32_t kind;
	uint64_t inode; /* inode of its image */
	const struct node *parent;
};

struct image {
	uint64_t start, file_offset, inode;
};

static struct pair pair;
static struct ring_reader *reader; /* reads the ring to which nodes are sent */
static struct producer *producer;
static struct node *pool; /* all nodes sent in a test */
static struct node *nodes[RING_MAX_CALLS];
static struct image images[8192];
static uint32_t n_told, n_records;
static const uint32_t never_ended;
static struct self_unwind own;
static uint32_t n_unread;
/* inode of the image of the function that calls see()'s caller; 0: any */
static uint64_t expected_inode;
static uint32_t expected_kind = RING_FRAME_RETURN;
static uint64_t pcs[SELF_UNWIND_MAX_FRAMES];

/* ---- The reader ---- */

static void forget_told(void)
{
	memset(nodes, 0, sizeof(nodes));
	memset(images, 0, sizeof(images));
}

static void take_calls(const struct ring_calls *calls)
{
	const struct ring_frame *frames = (const void *)(calls + 1);
	const struct node *parent = calls->parent ? nodes[calls->parent] : NULL;

	CHECK(calls->first > 0 && calls->first + calls->n_frames <= RING_MAX_CALLS);
	CHECK(calls->parent == 0 || parent);
	for (uint32_t i = 0; i < calls->n_frames; i++) {
		struct node *node = &pool[n_told++];

		REQUIRE(n_told < MAX_TOLD);
		node->inode = 0;
		node->kind = frames[i].kind;
		node->pc = frames[i].offset;
		node->parent = parent;
		if (frames[i].image != 0) {
			CHECK(images[frames[i].image].start != 0);
			node->pc += images[frames[i].image].start -
				    images[frames[i].image].file_offset;
			node->inode = images[frames[i].image].inode;
		}
		nodes[calls->first + i] = node;
		parent = node;
	}
}

static void take_record(const struct ring_record *record)
{
	const struct ring_image *image = record->payload;

	n_records++;
	if (record->type == RING_CALLS)
		take_calls(record->payload);
	if (record->type == RING_IMAGE && CHECK(image->id < ARRAY_SIZE(images)))
		images[image->id] =
			(struct image){ image->start, image->file_offset, image->inode };
}

static void drain(void)
{
	struct ring_batch batch;
	struct ring_record record;

	do {
		ring_reader_drain(reader, RING_DRAIN_LIVE, pair.buffer, sizeof(pair.buffer),
				  &batch);
		while (ring_batch_next(&batch, &record))
			take_record(&record);
	} while (batch.is_more);
	CHECK_INT(reader->fault, RING_FAULT_NONE);
}

/* ---- The program ---- */

static const struct node *check_frames(const struct node *node, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++, node = node->parent)
		if (!CHECK(node) || !CHECK_INT(node->pc, pcs[i]) ||
		    !CHECK_INT(node->kind & ~RING_FRAME_CUT, expected_kind))
			return NULL;
	return node;
}

/* Checks a deep stack, from which frames were cut: the innermost frames and the outermost frame are
 * those of the walk. */
static void check_deep(const struct node *node, const struct self_unwind_chain *chain)
{
	size_t n_inner = 0, n_outer = 0, n_all = chain->n + chain->n_cut - 1;
	const struct node *at = node;

	for (; at && !(at->kind & RING_FRAME_CUT); at = at->parent)
		n_inner++;
	CHECK_INT(n_inner + 1, CALL_TREE_INNER);
	check_frames(node, 1, CALL_TREE_INNER + 1);
	for (at = at ? at->parent : NULL; at; at = at->parent)
		n_outer++;
	if (n_all > UNWIND_CACHE_MAX_FRAMES) {
		CHECK_INT(n_outer, 0);
		return;
	}
	CHECK_INT(n_outer, CALL_TREE_MAX_DEPTH - CALL_TREE_INNER);
	for (at = node; at && n_outer-- > 0;)
		at = at->parent;
	while (at && at->parent && n_all-- > 0)
		at = at->parent;
	CHECK(at && at->pc == pcs[chain->n - 1]);
}

static void check_node(uint32_t id, const struct self_unwind_chain *chain)
{
	const struct node *node = id < RING_MAX_CALLS ? nodes[id] : NULL;

	if (!CHECK(id != 0 && node))
		return;
	if (expected_inode)
		CHECK(node->parent && node->parent->inode == expected_inode);
	if (chain->n + chain->n_cut - 1 > CALL_TREE_MAX_DEPTH)
		check_deep(node, chain);
	else
		CHECK(!check_frames(node, 1, chain->n));
}

static __attribute__((noinline)) uint32_t see(void)
{
	struct walk_registers caller, here;
	struct self_unwind_chain chain;
	uint32_t id;

	unwind_cache_get_caller(&caller);
	errno = 12345;
	id = call_tree_get(producer, &caller);
	CHECK_INT(errno, 12345);
	self_unwind_get_registers(&here);
	self_unwind_walk(&own, &here, pcs, ARRAY_SIZE(pcs), &chain);
	drain();
	check_node(id, &chain);
	return id;
}

/* Like see(), without checks. */
static __attribute__((noinline)) uint32_t call_here(void)
{
	struct walk_registers caller;
	uint32_t id;

	unwind_cache_get_caller(&caller);
	id = call_tree_get(producer, &caller);
	if (++n_unread % 4096 == 0)
		drain();
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
	if (!pool)
		pool = mmap(NULL, MAX_TOLD * sizeof(*pool), PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	REQUIRE(producer != MAP_FAILED && pool != MAP_FAILED);
	producer->ring = producer->current = pair.ring;
	producer->ended = &never_ended;
	producer->n_types = RING_N_TYPES;
	intern_restart(&producer->intern);
	reader = &pair.reader;
	forget_told();
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
	/* volatile: if the compiler split the loop in two, the callers would differ */
	for (volatile int i = 0; i < 100; i++) {
		recurse(i % 30);
		other(i % 30);
		if (i == 50)
			before = n_records;
	}
	CHECK_INT(n_records, before);
	pair_done(&pair);
}

/* In a new ring, ids from an earlier ring are invalid, so all nodes are sent again. */
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
		forget_told();
		recurse(9);
		self_unwind_invalidate();
		memset(nodes, 0, sizeof(nodes));
		recurse(9);
	}
	pair_done(&pair);
}

/* If the ring has no room for a node, call_tree_get() returns 0. Later calls send nodes again. */
static void test_full(void)
{
	struct walk_registers caller;
	uint32_t n_none = 0;

	begin(4096);
	unwind_cache_get_caller(&caller);
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

/* The thread moves to a larger ring, to which no nodes have been sent yet. */
static void test_bigger(void)
{
	const struct ring_arena_sizes sizes = { { { 4096, 1, RING_DROP },
						  { 1u << 20, 1, RING_DROP } } };
	struct ring_reader bigger;
	uint32_t depth = 1;

	begin(BIG);
	pair_done(&pair);
	REQUIRE(ring_arena_make(&sizes, &pair.memory, &pair.fd) == 0 &&
		ring_arena_map(pair.fd, &pair.arena) == 0);
	ring_reader_init(&pair.reader, &pair.memory, 0);
	ring_reader_init(&bigger, &pair.memory, 1);
	pair.ring = ring_claim(pair.arena, 1, 0, 0);
	producer->ring = producer->current = pair.ring;
	intern_restart(&producer->intern);
	recurse(3);
	/* Fill the ring, so that the next node is sent to the larger one. */
	while (write_mark(pair.ring, 1) && !pair.ring->bigger)
		;
	reader = &bigger;
	forget_told();
	for (; depth < 30; depth++)
		recurse((int)depth);
	CHECK(producer->current == pair.ring->bigger);
	pair_done(&pair);
}

/* Reaches see() or call_here() by n calls. Each value of the low `n` bits gives a different
 * stack. */
static __attribute__((noinline)) uint32_t path(uint32_t bits, int n)
{
	volatile uint32_t id;

	if (n == 0) {
		id = bits % 64 ? call_here() : see();
	} else if (bits >> (n - 1) & 1) {
		__asm__ volatile("nop");
		id = path(bits, n - 1);
	} else {
		id = path(bits, n - 1);
		__asm__ volatile("nop"); /* so that the two calls have different addresses */
	}
	return id;
}

/* Sends more nodes than there are ids, so that ids are reused. */
static void test_evicted(void)
{
	uint32_t most = 0;

	begin(BIG);
	for (uint32_t i = 0; i < 1u << N_BITS; i++) {
		uint32_t id = path(i, N_BITS);

		most = id > most ? id : most;
		if (i % 64 == 0)
			path(0, N_BITS);
	}
	CHECK(n_told > RING_MAX_CALLS);
	CHECK(most < RING_MAX_CALLS);
	for (uint32_t i = 0; i < 64 * 64; i += 64)
		path(i, N_BITS);
	pair_done(&pair);
}

static void test_deep(void)
{
	begin(BIG);
	for (int i = 0; i < 3; i++) {
		recurse(1000);
		recurse(1010 + i);
		recurse(2000 + i);
		recurse(4500);
		other(3000);
	}
	pair_done(&pair);
}

/* ---- Modules ---- */

static int call_see(void)
{
	return see() != 0;
}

static void call_module(const char *path, uint64_t *ret_at)
{
	void *module = dlopen(path, RTLD_NOW);
	int (*call)(int (*)(void)) = NULL;
	struct stat status;

	if (module)
		call = (int (*)(int (*)(void)))dlsym(module, "own_module_call");
	if (!CHECK(call && stat(path, &status) == 0))
		return;
	expected_inode = status.st_ino;
	for (int i = 0; i < 3; i++)
		call(call_see);
	expected_inode = 0;
	*ret_at = (uint64_t)(uintptr_t)call;
	dlclose(module);
	self_unwind_invalidate();
}

/* Modules are replaced, so that different functions have the same address. */
static void test_modules(void)
{
	uint64_t a = 0, b = 1;
	unsigned int n_same = 0;

	begin(BIG);
	for (int i = 0; i < 100; i++) {
		call_module(OWN_MODULE_A, &a);
		call_module(OWN_MODULE_B, &b);
		n_same += a == b;
	}
	CHECK(n_same > 10);
	pair_done(&pair);
}

static void allow_files(bool allowed)
{
	struct rlimit limit;

	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = allowed ? limit.rlim_max : 0;
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/* If the mappings cannot be read, and no module was unloaded, nodes have plain addresses, which the
 * reader looks up. */
static void test_no_descriptor(void)
{
	uint32_t before = self_unwind_generation(), n = 0;

	begin(BIG);
	allow_files(false);
	for (volatile int i = 0; i < 100; i++) {
		recurse(i % 30);
		other(i % 30);
		if (i == 50)
			n = n_records;
	}
	allow_files(true);
	CHECK_INT(n_records, n);
	CHECK_INT(self_unwind_generation(), before);
	pair_done(&pair);
}

/* Like test_no_descriptor(), but after an unload: another module may be at the address, so nodes
 * have no file. */
static void test_no_descriptor_gone(void)
{
	self_unwind_invalidate();
	expected_kind = RING_FRAME_RETURN | RING_FRAME_NO_FILE;
	test_no_descriptor();
	expected_kind = RING_FRAME_RETURN;
}

/* Remaps the page of a module's function, like programs that copy their code to large pages. */
static bool move_page(void *function)
{
	char *at = (char *)((uintptr_t)function & ~(uintptr_t)4095);
	char *copy = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (copy == MAP_FAILED)
		return false;
	memcpy(copy, at, 4096);
	return mprotect(copy, 4096, PROT_READ | PROT_EXEC) == 0 &&
	       mremap(copy, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at;
}

static void test_moved(void)
{
	void *module = dlopen(OWN_MODULE_A, RTLD_NOW);
	int (*call)(int (*)(void)) = NULL;
	uint32_t before = self_unwind_generation(), n = 0;

	begin(BIG);
	if (module)
		call = (int (*)(int (*)(void)))dlsym(module, "own_module_call");
	REQUIRE(call && move_page((void *)(uintptr_t)call));
	/* a loop, so that there is one call site, and so one caller */
	for (volatile int i = 0; i < 10; i++) {
		call(call_see);
		n = i == 0 ? n_records : n;
	}
	CHECK_INT(n_records, n);
	CHECK_INT(self_unwind_generation(), before);
	pair_done(&pair);
	dlclose(module);
	self_unwind_invalidate();
}

/* ---- Handlers ---- */

static volatile sig_atomic_t n_signals, may_restart;

static void restart_handler(int number)
{
	n_signals = n_signals + 1;
	if (may_restart)
		intern_restart(&producer->intern);
}

/* An id is valid only in the current epoch, and a handler may begin another epoch at any time. */
static void test_handler(void)
{
	struct sigaction action = { .sa_handler = restart_handler }, before;
	const struct itimerspec often = { { 0, 100000 }, { 0, 100000 } };
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGPROF };
	uint32_t n_kept = 0;
	timer_t timer;

	begin(BIG);
	CHECK(sigaction(SIGPROF, &action, &before) == 0);
	CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 &&
	      timer_settime(timer, 0, &often, NULL) == 0);
	while (n_signals < 2000) {
		uint32_t id;

		may_restart = 1;
		id = path((uint32_t)n_signals * 64 + 1, 12);
		may_restart = 0;
		drain();
		if (id != 0 && producer->intern.epoch == call_tree_epoch(producer)) {
			n_kept++;
			CHECK(nodes[id]);
		}
		see();
	}
	timer_delete(timer);
	sigaction(SIGPROF, &before, NULL);
	CHECK(n_kept > 100);
	pair_done(&pair);
}

int main(void)
{
	if (self_unwind_setup() < 0)
		return 1;
	RUN(test_no_descriptor);
	RUN(test_moved);
	RUN(test_stacks);
	RUN(test_owners);
	RUN(test_epochs);
	RUN(test_full);
	RUN(test_bigger);
	RUN(test_evicted);
	RUN(test_deep);
	RUN(test_modules);
	RUN(test_no_descriptor_gone);
	RUN(test_handler);
	return test_end();
}
