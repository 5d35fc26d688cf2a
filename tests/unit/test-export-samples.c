/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of the samples by thread and time: sorted runs in a file give the same order as sorting in
 * memory, and an error of the file is reported.
 */
#include "tests/unit/test.h"
#include "tools/profcapture/export-samples.h"

#include <fcntl.h>
#include <unistd.h>

#define N_SAMPLES 50000u
#define N_THREADS 7u

/* Adds samples in a mixed order, in parts whose size differs from that of the runs. Samples come in
 * pairs with the same thread and time. */
static void add_all(struct export_samples *samples, guint most)
{
	struct profile_sample part[300];

	export_samples_init(samples);
	samples->most = most;
	for (uint32_t i = 0; i < N_SAMPLES; i++) {
		uint32_t k = i / 2 * 0x9e3779b1u;

		part[i % 300] = (struct profile_sample){ .time_ns = k >> 8,
							 .thread = 2 + k % N_THREADS,
							 .node = i };
		if (i % 300 == 299 || i + 1 == N_SAMPLES)
			export_samples_take(part, i % 300 + 1, samples);
	}
}

static void test_runs(void)
{
	static const guint most[] = { 1000, N_SAMPLES / 2, N_SAMPLES - 1, N_SAMPLES };
	struct export_samples in_memory;

	add_all(&in_memory, UINT32_MAX);
	REQUIRE(export_samples_sort(&in_memory, NULL));
	for (size_t m = 0; m < G_N_ELEMENTS(most); m++) {
		struct export_samples sorted;
		uint64_t n = 0;

		add_all(&sorted, most[m]);
		REQUIRE(export_samples_sort(&sorted, NULL));
		CHECK((sorted.file.fd >= 0) == (most[m] < N_SAMPLES));
		REQUIRE(sorted.threads->len == N_THREADS);
		for (uint32_t i = 0; i < N_THREADS; i++) {
			const struct export_thread_samples *at =
				&g_array_index(sorted.threads, struct export_thread_samples, i);

			CHECK_INT(at->thread, 2 + i);
			CHECK_INT(at->first, n);
			for (uint64_t k = at->first; k < at->first + at->n; k++)
				CHECK_INT(export_samples_at(&sorted, k).thread, at->thread);
			n += at->n;
		}
		CHECK_INT(n, N_SAMPLES);
		for (uint64_t i = 0; i < N_SAMPLES; i++) {
			const struct profile_sample a = export_samples_at(&in_memory, i),
						    b = export_samples_at(&sorted, i);

			CHECK_INT(b.time_ns, a.time_ns);
			CHECK_INT(b.node, a.node); /* equal samples keep their order */
		}
		/* samples can be read again: a table of columns reads them once for each column */
		CHECK_INT(export_samples_at(&sorted, 0).node,
			  export_samples_at(&in_memory, 0).node);
		CHECK(!sorted.error);
		export_samples_done(&sorted);
	}
	export_samples_done(&in_memory);
}

static void test_failing_files(void)
{
	struct export_samples samples;
	g_autoptr(GError) error = NULL;

	add_all(&samples, 1000);
	close(samples.runs.fd); /* writing the next run fails, as on a full disk */
	samples.runs.fd = open("/dev/full", O_RDWR | O_CLOEXEC);
	REQUIRE(samples.runs.fd >= 0);
	CHECK(!export_samples_sort(&samples, &error));
	CHECK(error && strstr(error->message, "cannot write a temporary file: "));
	export_samples_done(&samples);

	add_all(&samples, 1000);
	REQUIRE(export_samples_sort(&samples, NULL));
	REQUIRE(ftruncate(samples.file.fd, 0) == 0);
	CHECK_INT(export_samples_at(&samples, 0).node, 0);
	CHECK(samples.error && strstr(samples.error->message, "cannot read a temporary file: "));
	export_samples_done(&samples);
}

int main(void)
{
	RUN(test_runs);
	RUN(test_failing_files);
	return test_end();
}
