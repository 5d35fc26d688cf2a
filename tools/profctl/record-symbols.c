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

#include "tools/common/symbolize.h"
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
	struct record_samples samples;
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

static void work(void *data)
{
	struct record_symbols *symbols = data;
	const struct symbolize_sources sources = { open_image, symbols, symbols->debug_files,
						   symbols->file };

	symbols->ok = symbolize_capture(symbols->fd, &sources, &symbols->result, &symbols->error) &&
		      record_capture_samples(symbols->fd, &symbols->samples, &symbols->error);
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

bool record_symbols_finish(struct record_symbols *symbols, struct record_samples *ret_samples,
			   GError **error)
{
	if (!symbols->ok) {
		g_propagate_error(error, g_steal_pointer(&symbols->error));
		return false;
	}
	*ret_samples = symbols->samples;
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
