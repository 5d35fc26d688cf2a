/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profcapture/export-samples.h"

#include "base/each.h"
#include "base/order.h"
#include "base/pqueue.h"
#include "tools/common/cli.h"
#include "tools/common/spool.h"

#include <errno.h>
#include <glib/gi18n.h>
#include <unistd.h>

#define MOST_RUN (1u << 20) /* 32 MiB */
#define WINDOW 4096u        /* samples that are read at once */

void export_samples_init(struct export_samples *samples)
{
	*samples = (struct export_samples){
		.most = MOST_RUN,
		.run = g_array_new(FALSE, FALSE, sizeof(struct profile_sample)),
		.runs.fd = -1,
		.ends = g_array_new(FALSE, FALSE, sizeof(uint64_t)),
		.file.fd = -1,
		.threads = g_array_new(FALSE, FALSE, sizeof(struct export_thread_samples)),
		.window = g_array_new(FALSE, FALSE, sizeof(struct profile_sample)),
	};
}

static void close_file(struct out *file)
{
	if (file->fd >= 0)
		close(file->fd);
	out_done(file);
}

void export_samples_done(struct export_samples *samples)
{
	GArray **const arrays[] = { &samples->run, &samples->ends, &samples->threads,
				    &samples->window };

	for (size_t i = 0; i < ARRAY_SIZE(arrays); i++)
		g_clear_pointer(arrays[i], g_array_unref);
	close_file(&samples->runs);
	close_file(&samples->file);
	g_clear_error(&samples->error);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void fail(struct export_samples *samples, const char *what, int code)
{
	if (!samples->error)
		cli_set_error(&samples->error, CLI_FAILURE, what, g_strerror(code));
}

static void open_file(struct export_samples *samples, struct out *file)
{
	int fd = samples->error ? -1 : spool_open(&samples->error);

	if (fd >= 0)
		out_init(file, fd);
}

static void flush(struct export_samples *samples, struct out *file)
{
	int r = file->fd >= 0 ? out_flush(file) : 0;

	if (r != 0)
		fail(samples, _("cannot write a temporary file: %s; TMPDIR chooses another folder"),
		     -r);
}

/* Reads n samples from `first` on. Fills in zeros after a failure. */
static void read_file(struct export_samples *samples, const struct out *file, uint64_t first,
		      guint n, GArray *to)
{
	const size_t size = sizeof(struct profile_sample);
	size_t done = 0;

	g_array_set_size(to, n);
	while (done < n * size) {
		ssize_t r = pread(file->fd, to->data + done, n * size - done,
				  (off_t)(first * size + done));

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0) {
			fail(samples, _("cannot read a temporary file: %s"), r < 0 ? errno : EIO);
			memset(to->data + done, 0, n * size - done);
			return;
		}
		done += (size_t)r;
	}
}

/* ---- sorting --------------------------------------------------------------------------------- */

COMPARE_BY(compare, struct profile_sample, ORDER(a->thread, b->thread),
	   ORDER(a->time_ns, b->time_ns))

/* Moves the run to the file. */
static void end_run(struct export_samples *samples)
{
	uint64_t end = samples->run->len;

	if (samples->ends->len == 0)
		open_file(samples, &samples->runs);
	else
		end += g_array_index(samples->ends, uint64_t, samples->ends->len - 1);
	g_array_sort(samples->run, compare);
	ARRAY_EACH(const struct profile_sample, sample, samples->run)
		if (!samples->error)
			out_write(&samples->runs, sample, sizeof(*sample));
	flush(samples, &samples->runs);
	g_array_append_val(samples->ends, end);
	g_array_set_size(samples->run, 0);
}

void export_samples_take(const struct profile_sample *each, size_t n, void *data)
{
	struct export_samples *samples = data;

	while (n > 0) {
		guint part = (guint)MIN_OF(n, (size_t)samples->most - samples->run->len);

		g_array_append_vals(samples->run, each, part);
		each += part;
		n -= part;
		if (n > 0)
			end_run(samples);
	}
}

/* Adds a sample to the count of its thread. Must be called in sorted order. */
static void count(struct export_samples *samples, const struct profile_sample *sample)
{
	GArray *threads = samples->threads;
	struct export_thread_samples *last =
		threads->len
			? &g_array_index(threads, struct export_thread_samples, threads->len - 1)
			: NULL;

	if (!last || last->thread != sample->thread) {
		const struct export_thread_samples new = { sample->thread,
							   last ? last->first + last->n : 0, 1 };

		g_array_append_val(threads, new);
	} else {
		last->n++;
	}
}

/* A run that is being merged. */
struct sorted_run {
	struct profile_sample next;
	uint64_t at, end; /* places in the file */
	GArray *read;
	guint used;   /* number of items of `read` that were used */
	guint number; /* orders equal samples as in the capture */
};

static bool is_before(const struct sorted_run *one, const struct sorted_run *other)
{
	int order = compare(&one->next, &other->next);

	return order < 0 || (order == 0 && one->number < other->number);
}

PQUEUE_DEFINE(run, struct sorted_run *, is_before)

/* Returns false at the end of the run. */
static bool next_of(struct export_samples *samples, struct sorted_run *run)
{
	if (run->used == run->read->len) {
		guint n = (guint)MIN_OF(run->end - run->at, (uint64_t)WINDOW);

		if (n == 0)
			return false;
		read_file(samples, &samples->runs, run->at, n, run->read);
		run->at += n;
		run->used = 0;
	}
	run->next = g_array_index(run->read, struct profile_sample, run->used++);
	return true;
}

static void merge(struct export_samples *samples)
{
	size_t n = samples->ends->len;
	g_autofree struct sorted_run *all = g_new0(struct sorted_run, n);
	g_autofree struct sorted_run **queue = g_new(struct sorted_run *, n);

	open_file(samples, &samples->file);
	for (guint i = 0; i < samples->ends->len; i++) {
		all[i] = (struct sorted_run){
			.number = i,
			.at = i ? all[i - 1].end : 0,
			.end = g_array_index(samples->ends, uint64_t, i),
			.read = g_array_new(FALSE, FALSE, sizeof(struct profile_sample)),
		};
		queue[i] = &all[i];
		if (!samples->error)
			(void)next_of(samples, &all[i]);
	}
	run_order(queue, n);
	while (n > 0 && !samples->error) {
		out_write(&samples->file, &queue[0]->next, sizeof(queue[0]->next));
		count(samples, &queue[0]->next);
		if (next_of(samples, queue[0]))
			run_sift_down(queue, n, 0);
		else
			run_pop(queue, &n);
	}
	flush(samples, &samples->file);
	for (guint i = 0; i < samples->ends->len; i++)
		g_array_unref(all[i].read);
	close_file(&samples->runs);
}

bool export_samples_sort(struct export_samples *samples, GError **error)
{
	if (samples->ends->len > 0) {
		end_run(samples);
		g_array_unref(samples->run);
		samples->run = g_array_new(FALSE, FALSE, sizeof(struct profile_sample));
		merge(samples);
	} else {
		g_array_sort(samples->run, compare);
		for (guint i = 0; i < samples->run->len; i++)
			count(samples, &g_array_index(samples->run, struct profile_sample, i));
	}
	if (!samples->error)
		return true;
	g_propagate_error(error, g_steal_pointer(&samples->error));
	return false;
}

struct profile_sample export_samples_at(struct export_samples *samples, uint64_t index)
{
	const struct export_thread_samples *last;
	uint64_t end;

	if (samples->file.fd < 0)
		return g_array_index(samples->run, struct profile_sample, index);
	if (index < samples->window_first ||
	    index - samples->window_first >= samples->window->len) {
		last = &g_array_index(samples->threads, struct export_thread_samples,
				      samples->threads->len - 1);
		end = last->first + last->n;
		read_file(samples, &samples->file, index,
			  (guint)MIN_OF(end - index, (uint64_t)WINDOW), samples->window);
		samples->window_first = index;
	}
	return g_array_index(samples->window, struct profile_sample, index - samples->window_first);
}
