/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Sample window - limits samples to blocks of a program, which publishes their starts and ends
 * (edges) in shared memory
 *
 * Enabling or disabling events takes longer than a short block. So events stay enabled for some
 * time after the end of a block (the hysteresis). The program records when its blocks begin and
 * end, and samples outside them are dropped. Two bits coordinate both sides. The engine sets ON;
 * while it is set, events are enabled. The program sets BLOCK only while ON is set, by a
 * compare-and-exchange. The engine also clears ON by a compare-and-exchange, which fails while
 * BLOCK is set.
 *
 * The hysteresis uses the caller's clock (session-sampling.c). It is short, because enabled events
 * have a cost, and it adapts: if a block begins after the hysteresis, but within two seconds, the
 * hysteresis becomes twice that pause; if it ends without a new block, it is halved. The time to
 * enable events grows with the number of CPUs; the start of a block waits for that only after a
 * pause that is longer than the previous ones.
 *
 * The program publishes an edge before the call that begins or ends the block returns. So if the
 * clock is read first, sample_window_receive() then gets all edges for samples up to that time.
 * Invariants: (1) a sample after a begin call has returned and before the end call is in a block
 *                 [test-engine-sample-window: blocks; test_recorder: edges]
 *             (2) a sample after an end call has returned and before the next begin call is in none
 *                 [test-engine-sample-window: blocks; test_recorder: edges]
 *             (3) a block after a pause of the same length causes no request
 *                 [test-engine-sample-window: hysteresis]
 *             (4) no contents of the page cause a write outside it, and memory is bounded
 *                 [test-engine-sample-window: hostile]
 * Runs on the drain thread only.
 */
#include "daemon/engine/perf/sample-window.h"

#include "arch/base.h"

#include <fcntl.h>
#include <sys/mman.h>

#define MIN_HYSTERESIS_NS \
	UINT64_C(90000000) /* below ROUND_NS, so that it is over in the round after a block's end */
#define MAX_HYSTERESIS_NS UINT64_C(2000000000)
#define MAX_EDGES \
	(1u << 20) /* maximum number of edges: 10 s of 10-us blocks, or a page with false counts */

bool sample_window_open(struct sample_window *window, int *ret_fd)
{
	CLEANUP_CLOSE int fd = memfd_create("prof-window", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	const size_t bytes = sizeof(struct control_page);
	void *page;

	if (fd < 0 || ftruncate(fd, bytes) < 0 || fallocate(fd, 0, 0, bytes) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return false;
	page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		return false;
	*window = (struct sample_window){ .page = page,
					  .edges = g_array_new(FALSE, FALSE, sizeof(uint64_t)),
					  .hysteresis_ns = MIN_HYSTERESIS_NS };
	*ret_fd = steal_fd(&fd);
	return true;
}

void sample_window_done(struct sample_window *window)
{
	if (!window->page)
		return;
	munmap(window->page, sizeof(*window->page));
	g_array_unref(window->edges);
	*window = (struct sample_window){ 0 };
}

void sample_window_set_on(struct sample_window *window, bool on)
{
	if (!window->page)
		return;
	if (on)
		__atomic_fetch_or(&window->page->state, CONTROL_PAGE_ON, __ATOMIC_SEQ_CST);
	else
		__atomic_fetch_and(&window->page->state, ~CONTROL_PAGE_ON, __ATOMIC_SEQ_CST);
}

/* Pairs with try_begin() of libcollector/register/recorder.c. */
bool sample_window_try_off(struct sample_window *window)
{
	uint32_t state = CONTROL_PAGE_ON;

	return __atomic_compare_exchange_n(&window->page->state, &state, 0, false, __ATOMIC_SEQ_CST,
					   __ATOMIC_SEQ_CST) ||
	       !(state & CONTROL_PAGE_BLOCK);
}

void sample_window_use(struct sample_window *window, uint64_t now_ns, bool late)
{
	uint64_t pause_ns = now_ns - MIN_OF(window->used_ns, now_ns);

	if (late && pause_ns <= MAX_HYSTERESIS_NS)
		window->hysteresis_ns =
			MIN_OF(MAX_OF(2 * pause_ns, MIN_HYSTERESIS_NS), MAX_HYSTERESIS_NS);
	window->used_ns = now_ns;
}

bool sample_window_is_over(struct sample_window *window, uint64_t now_ns)
{
	if (now_ns < window->used_ns + window->hysteresis_ns || !sample_window_try_off(window))
		return false;
	window->hysteresis_ns = MAX_OF(window->hysteresis_ns / 2, MIN_HYSTERESIS_NS);
	return true;
}

void sample_window_receive(struct sample_window *window, uint64_t now_ns)
{
	GArray *edges = window->edges;
	uint64_t n;

	if (!window->page || window->is_broken)
		return;
	/* Pairs with add_edge() of libcollector/register/recorder.c. */
	n = __atomic_load_n(&window->page->n_edges, __ATOMIC_ACQUIRE);
	window->is_broken = n - window->n_received > CONTROL_PAGE_EDGES || edges->len > MAX_EDGES;
	if (window->is_broken || n == window->n_received)
		return;
	while (window->n_received != n) {
		uint64_t edge = __atomic_load_n(
			&window->page->edges[window->n_received++ % CONTROL_PAGE_EDGES],
			__ATOMIC_RELAXED);

		if (edges->len > 0)
			edge = MAX_OF(edge, g_array_index(edges, uint64_t, edges->len - 1));
		g_array_append_val(edges, edge);
	}
	__atomic_store_n(&window->page->n_taken, n, __ATOMIC_RELEASE);
	window->used_ns = now_ns;
}

/* Returns the number of edges at or before time_ns. */
static size_t count_until(const struct sample_window *window, uint64_t time_ns)
{
	size_t low = 0, high = window->edges->len;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (g_array_index(window->edges, uint64_t, middle) <= time_ns)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

bool sample_window_includes(const struct sample_window *window, uint64_t time_ns)
{
	return !window->page || (window->n_dropped + count_until(window, time_ns)) % 2 != 0;
}

void sample_window_drop(struct sample_window *window, uint64_t before_ns)
{
	size_t n = window->page && before_ns ? count_until(window, before_ns - 1) : 0;

	if (n == 0)
		return;
	g_array_remove_range(window->edges, 0, (guint)n);
	window->n_dropped += n;
}
