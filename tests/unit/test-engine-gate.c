/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* gate.c, by programs that use its page as recorder.c does, and by one that lies. */
#include "daemon/engine/gate.h"
#include "tests/unit/test.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static struct control_page *open_page(struct gate *gate)
{
	struct control_page *page;
	int fd = -1;

	*gate = (struct gate){ 0 };
	if (!gate_open(gate, &fd))
		abort();
	CHECK(ftruncate(fd, 0) != 0);
	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		abort();
	close(fd);
	return page;
}

static void close_page(struct gate *gate, struct control_page *page)
{
	munmap(page, sizeof(*page));
	gate_done(gate);
	CHECK(!gate_is_open(gate));
}

static void add_edge(struct control_page *page, uint64_t time_ns)
{
	uint64_t n = page->n_edges;

	page->edges[n % CONTROL_PAGE_EDGES] = time_ns;
	__atomic_store_n(&page->n_edges, n + 1, __ATOMIC_RELEASE);
}

static void test_none(void)
{
	struct gate gate = { 0 };

	gate_take(&gate, 1);
	gate_set_on(&gate, true);
	CHECK(gate_includes(&gate, 1));
	gate_forget(&gate, 2);
	gate_done(&gate);
}

/* Blocks [10, 20), [30, 40) and so on, with whatever was taken and forgotten between. */
static void test_blocks(void)
{
	struct gate gate;
	struct control_page *page = open_page(&gate);
	uint64_t n = 3 * CONTROL_PAGE_EDGES;

	CHECK(!gate_includes(&gate, 100));
	for (uint64_t i = 1; i <= n; i++) {
		add_edge(page, i * 10);
		if (i % 7 == 0) {
			gate_take(&gate, i);
			CHECK_INT(gate.used_ns, i);
			CHECK_INT(page->n_taken, i);
		}
		if (i % 7 != 0)
			continue;
		for (uint64_t j = i > 20 ? i - 19 : 1; j <= i; j++) {
			CHECK_INT(gate_includes(&gate, j * 10 - 1), j % 2 == 0);
			CHECK_INT(gate_includes(&gate, j * 10), j % 2 == 1);
			CHECK_INT(gate_includes(&gate, j * 10 + 5), j % 2 == 1);
		}
		gate_forget(&gate, i > 20 ? (i - 20) * 10 : 0);
		CHECK(gate.edges->len < 64);
	}
	CHECK(!gate.is_broken);
	close_page(&gate, page);
}

static void test_on(void)
{
	struct gate gate;
	struct control_page *page = open_page(&gate);

	gate_set_on(&gate, true);
	CHECK_INT(page->state, CONTROL_PAGE_ON);
	page->state |= CONTROL_PAGE_BLOCK;
	CHECK(!gate_try_off(&gate));
	CHECK_INT(page->state, CONTROL_PAGE_ON | CONTROL_PAGE_BLOCK);
	gate_set_on(&gate, false);
	CHECK_INT(page->state, CONTROL_PAGE_BLOCK);
	CHECK(!gate_try_off(&gate));
	page->state = 0;
	CHECK(gate_try_off(&gate));
	gate_set_on(&gate, true);
	CHECK(gate_try_off(&gate));
	CHECK_INT(page->state, 0);
	close_page(&gate, page);
}

/* Blocks that end at the time, and begin again a pause later. Returns whether events had to be
 * enabled again. */
static bool pauses_late(struct gate *gate, uint64_t *now_ms, uint64_t pause_ms)
{
	uint64_t end_ms = *now_ms + pause_ms;
	bool late = false;

	for (; *now_ms < end_ms; *now_ms += 10)
		late = late || gate_is_over(gate, *now_ms * 1000000);
	gate_use(gate, end_ms * 1000000, late);
	gate_set_on(gate, true);
	return late;
}

static void test_linger(void)
{
	struct gate gate;
	struct control_page *page = open_page(&gate);
	uint64_t now_ms = 1000000;

	gate_use(&gate, now_ms * 1000000, true);
	gate_set_on(&gate, true);
	CHECK(!pauses_late(&gate, &now_ms, 50));
	/* once, and what it did not know of */
	CHECK(pauses_late(&gate, &now_ms, 350));
	for (int i = 0; i < 10; i++)
		CHECK(!pauses_late(&gate, &now_ms, 350 + 30 * i));
	CHECK(pauses_late(&gate, &now_ms, 1500));
	CHECK(!pauses_late(&gate, &now_ms, 1900));
	/* Long ones teach nothing, and are not lingered for. */
	for (int i = 0; i < 6; i++)
		CHECK(pauses_late(&gate, &now_ms, 60000));
	CHECK(!gate_is_over(&gate, now_ms * 1000000 + 80000000));
	CHECK(pauses_late(&gate, &now_ms, 200));
	/* Nor where a block is open. */
	page->state |= CONTROL_PAGE_BLOCK;
	CHECK(!gate_is_over(&gate, (now_ms + 5000) * 1000000));
	CHECK(!pauses_late(&gate, &now_ms, 10));
	close_page(&gate, page);
}

struct race {
	struct control_page *page;
	bool is_enabled, is_over;
	uint64_t n_blocks, n_unsampled;
};

static void *use_blocks(void *data)
{
	struct race *race = data;

	while (!__atomic_load_n(&race->is_over, __ATOMIC_RELAXED)) {
		uint32_t on = CONTROL_PAGE_ON;

		if (!__atomic_compare_exchange_n(&race->page->state, &on,
						 CONTROL_PAGE_ON | CONTROL_PAGE_BLOCK, false,
						 __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			continue;
		race->n_blocks++;
		for (int i = 0; i < 20; i++)
			race->n_unsampled += !__atomic_load_n(&race->is_enabled, __ATOMIC_SEQ_CST);
		__atomic_fetch_and(&race->page->state, ~CONTROL_PAGE_BLOCK, __ATOMIC_SEQ_CST);
	}
	return NULL;
}

/* Events are enabled in each block, whenever we would like to disable them. */
static void test_race(void)
{
	struct gate gate;
	struct race race = { .page = open_page(&gate) };
	pthread_t thread;
	unsigned int n_off = 0;

	REQUIRE(pthread_create(&thread, NULL, use_blocks, &race) == 0);
	for (int i = 0; i < 200000 || (n_off < 10 && i < 20000000); i++) {
		__atomic_store_n(&race.is_enabled, true, __ATOMIC_SEQ_CST);
		gate_set_on(&gate, true);
		if (i % 1000 == 0)
			usleep(10);
		if (!gate_try_off(&gate))
			continue;
		__atomic_store_n(&race.is_enabled, false, __ATOMIC_SEQ_CST);
		n_off++;
	}
	__atomic_store_n(&race.is_over, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	CHECK(race.n_blocks > 0 && n_off > 0);
	CHECK_INT(race.n_unsampled, 0);
	close_page(&gate, race.page);
}

/* More edges than there are, times that go back or are never over, and no end of them. */
static void test_hostile(void)
{
	struct gate gate;
	struct control_page *page = open_page(&gate);

	add_edge(page, 50);
	add_edge(page, 40);
	add_edge(page, UINT64_MAX);
	gate_take(&gate, 1);
	CHECK(!gate.is_broken);
	CHECK(!gate_includes(&gate, 45) && !gate_includes(&gate, 50));
	CHECK(!gate_includes(&gate, 1000));
	page->n_edges += CONTROL_PAGE_EDGES + 1;
	gate_take(&gate, 1);
	CHECK(gate.is_broken);
	close_page(&gate, page);
	page = open_page(&gate);
	page->n_edges = UINT64_MAX;
	gate_take(&gate, 1);
	CHECK(gate.is_broken);
	close_page(&gate, page);
	page = open_page(&gate);
	for (int i = 0; i < 100000 && !gate.is_broken; i++) {
		page->n_edges += CONTROL_PAGE_EDGES;
		gate_take(&gate, 1);
		gate_forget(&gate, 0);
	}
	CHECK(gate.is_broken);
	CHECK(gate.edges->len < 2000000);
	close_page(&gate, page);
}

int main(void)
{
	RUN(test_none);
	RUN(test_blocks);
	RUN(test_on);
	RUN(test_linger);
	RUN(test_race);
	RUN(test_hostile);
	return test_end();
}
