/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Record symbols - names and lines for the recording that just ended
 *
 * profd has kept the files that samples hit, as they were mapped, so names are right for deleted
 * and replaced files and for those in containers. A file that profd does not have is opened by its
 * path; symbolize compares it with the recorded one in either case. symbolize_capture() runs on a
 * thread of its own, so that the main loop handles Ctrl-C: after a skip it finds no more files, and
 * ends soon. The capture is complete at its end in any case.
 */
#include "config.h"

#include "tools/profctl/record-symbols.h"

#include "tools/common/budget.h"
#include "tools/common/symbolize.h"
#include "tools/profcapture/tally.h"
#include "tools/profctl/worker.h"

#include <stdatomic.h>

struct record_symbols {
	struct client *client;
	struct debug_files *debug_files;
	int fd;
	const char *file;
	void (*done)(void *data);
	void *data;
	atomic_bool skip;
	bool ok; /* this and the following: written by the thread, read after it ends */
	uint64_t unresolved;
	struct symbolize_result result;
	GError *error;
};

static int open_image(const struct names_image *image, void *data)
{
	struct record_symbols *symbols = data;
	int fd;

	if (atomic_load(&symbols->skip))
		return -1;
	if (client_open_image(symbols->client, image->id, &fd, NULL))
		return fd;
	return debug_files_open_path(symbols->debug_files, image->path);
}

/* Counts as `profcapture info` does, in the last segment. */
static bool count_unresolved(struct record_symbols *symbols)
{
	g_autofree char *path = g_strdup_printf("/proc/self/fd/%d", symbols->fd);
	CLEANUP_READER struct reader reader = { 0 };
	CLEANUP(tally_done) struct tally tally = { .by = TALLY_FUNCTION, .wants_all_events = true };

	budget_begin_anew();
	if (!reader_open(&reader, path, &symbols->error))
		return false;
	if (reader.capture->n_segments > 1) {
		const struct prof_segment *last =
			&reader.capture->segments[reader.capture->n_segments - 1];

		reader.from_ns =
			capture_time(reader.capture, last->number, last->start_monotonic_ns);
		reader.timed = true;
	}
	if (!tally_run(&tally, &reader, &symbols->error))
		return false;
	symbols->unresolved = tally.unresolved;
	return true;
}

static void work(void *data)
{
	struct record_symbols *symbols = data;
	const struct symbolize_sources sources = { open_image, symbols, symbols->debug_files,
						   symbols->file };

	symbols->ok = symbolize_capture(symbols->fd, &sources, &symbols->result, &symbols->error) &&
		      count_unresolved(symbols);
}

static void on_done(void *data)
{
	const struct record_symbols *symbols = data;

	symbols->done(symbols->data);
}

struct record_symbols *record_symbols_start(int fd, const char *file, struct client *client,
					    void (*done)(void *data), void *data, GError **error)
{
	struct record_symbols *symbols = g_new0(struct record_symbols, 1);

	symbols->client = client;
	symbols->debug_files = debug_files_new(NULL, NULL);
	symbols->fd = fd;
	symbols->file = file;
	symbols->done = done;
	symbols->data = data;
	if (worker_start(work, on_done, symbols, error))
		return symbols;
	record_symbols_free(symbols);
	return NULL;
}

void record_symbols_skip(struct record_symbols *symbols)
{
	atomic_store(&symbols->skip, true);
}

bool record_symbols_finish(struct record_symbols *symbols, uint64_t *ret_unresolved, GError **error)
{
	if (!symbols->ok) {
		g_propagate_error(error, g_steal_pointer(&symbols->error));
		return false;
	}
	*ret_unresolved = symbols->unresolved;
	return !atomic_load(&symbols->skip);
}

void record_symbols_free(struct record_symbols *symbols)
{
	if (!symbols)
		return;
	symbolize_result_done(&symbols->result);
	debug_files_free(symbols->debug_files);
	g_clear_error(&symbols->error);
	g_free(symbols);
}
