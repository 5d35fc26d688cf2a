/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Checks of sample-window.c with programs that use its page like recorder.c, and with one that
 * lies. */
#include "daemon/engine/perf/sample-window.h"
#include "tests/unit/test.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static struct control_page *open_page(struct sample_window *window)
{
	struct control_page *page;
	int fd = -1;

	*window = (struct sample_window){ 0 };
	if (!sample_window_open(window, &fd))
		abort();
	CHECK(ftruncate(fd, 0) != 0);
	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		abort();
	close(fd);
	return page;
}

static void close_page(struct sample_window *window, struct control_page *page)
{
	munmap(page, sizeof(*page));
	sample_window_done(window);
	CHECK(!sample_window_is_open(window));
}

static void add_edge(struct control_page *page, uint64_t time_ns)
{
	uint64_t n = page->n_edges;

	page->edges[n % CONTROL_PAGE_EDGES] = time_ns;
	__atomic_store_n(&page->n_edges, n + 1, __ATOMIC_RELEASE);
}

static void test_none(void)
{
	struct sample_window window = { 0 };

	sample_window_receive(&window, 1);
	sample_window_set_on(&window, true);
	CHECK(sample_window_includes(&window, 1));
	sample_window_drop(&window, 2);
	sample_window_done(&window);
}

/* Blocks [10, 20), [30, 40) and so on. Reads and cleanups happen at any time in between. */
static void test_blocks(void)
{
	struct sample_window window;
	struct control_page *page = open_page(&window);
	uint64_t n = 3 * CONTROL_PAGE_EDGES;

	CHECK(!sample_window_includes(&window, 100));
	for (uint64_t i = 1; i <= n; i++) {
		add_edge(page, i * 10);
		if (i % 7 == 0) {
			sample_window_receive(&window, i);
			CHECK_INT(window.used_ns, i);
			CHECK_INT(page->n_taken, i);
		}
		if (i % 7 != 0)
			continue;
		for (uint64_t j = i > 20 ? i - 19 : 1; j <= i; j++) {
			CHECK_INT(sample_window_includes(&window, j * 10 - 1), j % 2 == 0);
			CHECK_INT(sample_window_includes(&window, j * 10), j % 2 == 1);
			CHECK_INT(sample_window_includes(&window, j * 10 + 5), j % 2 == 1);
		}
		sample_window_drop(&window, i > 20 ? (i - 20) * 10 : 0);
		CHECK(window.edges->len < 64);
	}
	CHECK(!window.is_broken);
	close_page(&window, page);
}

static void test_on(void)
{
	struct sample_window window;
	struct control_page *page = open_page(&window);

	sample_window_set_on(&window, true);
	CHECK_INT(page->state, CONTROL_PAGE_ON);
	page->state |= CONTROL_PAGE_BLOCK;
	CHECK(!sample_window_try_off(&window));
	CHECK_INT(page->state, CONTROL_PAGE_ON | CONTROL_PAGE_BLOCK);
	sample_window_set_on(&window, false);
	CHECK_INT(page->state, CONTROL_PAGE_BLOCK);
	CHECK(!sample_window_try_off(&window));
	page->state = 0;
	CHECK(sample_window_try_off(&window));
	sample_window_set_on(&window, true);
	CHECK(sample_window_try_off(&window));
	CHECK_INT(page->state, 0);
	close_page(&window, page);
}

/* Blocks end now, and begin again after a pause. Returns whether events had to be enabled again. */
static bool pauses_late(struct sample_window *window, uint64_t *now_ms, uint64_t pause_ms)
{
	uint64_t end_ms = *now_ms + pause_ms;
	bool late = false;

	for (; *now_ms < end_ms; *now_ms += 10)
		late = late || sample_window_is_over(window, *now_ms * 1000000);
	sample_window_use(window, end_ms * 1000000, late);
	sample_window_set_on(window, true);
	return late;
}

static void test_hysteresis(void)
{
	struct sample_window window;
	struct control_page *page = open_page(&window);
	uint64_t now_ms = 1000000;

	sample_window_use(&window, now_ms * 1000000, true);
	sample_window_set_on(&window, true);
	CHECK(!pauses_late(&window, &now_ms, 50));
	/* late once, because such a pause is new */
	CHECK(pauses_late(&window, &now_ms, 350));
	for (int i = 0; i < 10; i++)
		CHECK(!pauses_late(&window, &now_ms, 350 + 30 * i));
	CHECK(pauses_late(&window, &now_ms, 1500));
	CHECK(!pauses_late(&window, &now_ms, 1900));
	/* Long pauses are not learned: they do not extend the window. */
	for (int i = 0; i < 6; i++)
		CHECK(pauses_late(&window, &now_ms, 60000));
	CHECK(!sample_window_is_over(&window, now_ms * 1000000 + 80000000));
	CHECK(pauses_late(&window, &now_ms, 200));
	/* Events remain enabled while a block is open. */
	page->state |= CONTROL_PAGE_BLOCK;
	CHECK(!sample_window_is_over(&window, (now_ms + 5000) * 1000000));
	CHECK(!pauses_late(&window, &now_ms, 10));
	close_page(&window, page);
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

/* Events are enabled in every block, even if the engine tries to disable them at any time. */
static void test_race(void)
{
	struct sample_window window;
	struct race race = { .page = open_page(&window) };
	pthread_t thread;
	unsigned int n_off = 0;

	REQUIRE(pthread_create(&thread, NULL, use_blocks, &race) == 0);
	for (int i = 0; i < 200000 || (n_off < 10 && i < 20000000); i++) {
		__atomic_store_n(&race.is_enabled, true, __ATOMIC_SEQ_CST);
		sample_window_set_on(&window, true);
		if (i % 1000 == 0)
			usleep(10);
		if (!sample_window_try_off(&window))
			continue;
		__atomic_store_n(&race.is_enabled, false, __ATOMIC_SEQ_CST);
		n_off++;
	}
	__atomic_store_n(&race.is_over, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	CHECK(race.n_blocks > 0 && n_off > 0);
	CHECK_INT(race.n_unsampled, 0);
	close_page(&window, race.page);
}

/* Impossible numbers of edges, times that decrease or never end, and edges without end. */
static void test_hostile(void)
{
	struct sample_window window;
	struct control_page *page = open_page(&window);

	add_edge(page, 50);
	add_edge(page, 40);
	add_edge(page, UINT64_MAX);
	sample_window_receive(&window, 1);
	CHECK(!window.is_broken);
	CHECK(!sample_window_includes(&window, 45) && !sample_window_includes(&window, 50));
	CHECK(!sample_window_includes(&window, 1000));
	page->n_edges += CONTROL_PAGE_EDGES + 1;
	sample_window_receive(&window, 1);
	CHECK(window.is_broken);
	close_page(&window, page);
	page = open_page(&window);
	page->n_edges = UINT64_MAX;
	sample_window_receive(&window, 1);
	CHECK(window.is_broken);
	close_page(&window, page);
	page = open_page(&window);
	for (int i = 0; i < 100000 && !window.is_broken; i++) {
		page->n_edges += CONTROL_PAGE_EDGES;
		sample_window_receive(&window, 1);
		sample_window_drop(&window, 0);
	}
	CHECK(window.is_broken);
	CHECK(window.edges->len < 2000000);
	close_page(&window, page);
}

int main(void)
{
	RUN(test_none);
	RUN(test_blocks);
	RUN(test_on);
	RUN(test_hysteresis);
	RUN(test_race);
	RUN(test_hostile);
	return test_end();
}
