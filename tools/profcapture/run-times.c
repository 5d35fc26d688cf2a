/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profcapture/run-times.h"

#include "tools/common/capture-error.h"

#include <glib/gi18n.h>

enum { TIME, THREAD, CPU, START, STATE, N_COLUMNS };
static const uint16_t columns[N_COLUMNS] = { PROF_SWITCH_TIME, PROF_SWITCH_THREAD, PROF_SWITCH_CPU,
					     PROF_SWITCH_START, PROF_SWITCH_STATE };

/* Returns how much of [from, to] is in the reader's range. */
static uint64_t part_in_range(const struct reader *reader, int64_t from, int64_t to)
{
	from = MAX_OF(from, reader->from_ns);
	to = MIN_OF(to, reader->to_ns);
	return from < to ? (uint64_t)to - (uint64_t)from : 0;
}

/* The same, but only while the thread has a wanted name. */
static uint64_t wanted_part(struct reader *reader, uint32_t thread, int64_t from, int64_t to)
{
	uint64_t sum = 0;

	if (!reader->comms)
		return part_in_range(reader, from, to);
	while (from < to) {
		int64_t next = MIN_OF(thread_names_until(reader->thread_names, thread, from), to);

		if (reader_wants_thread_at(reader, thread, from))
			sum += part_in_range(reader, from, next);
		from = next;
	}
	return sum;
}

static void add_row(struct reader *reader, uint32_t thread, struct run_time *at, int64_t start,
		    int64_t end, uint64_t cpu, bool has_wakeups)
{
	if (at->is_there && at->left_ns < start) {
		uint64_t gap = wanted_part(reader, thread, at->left_ns, start);

		if (at->left_how == PROF_SWITCH_WAIT)
			at->wait_ns += gap;
		else if (at->left_how == PROF_SWITCH_PREEMPTED ||
			 (at->left_how == PROF_SWITCH_RUNNABLE && !has_wakeups))
			at->preempted_ns += gap;
		else if (at->left_how == PROF_SWITCH_RUNNABLE)
			at->runnable_ns += gap;
	}
	if (reader_wants_cpu(reader, cpu))
		at->run_ns += wanted_part(reader, thread, start, end);
	at->left_ns = end;
	at->is_there = true;
	at->known = at->run_ns || at->wait_ns || at->preempted_ns || at->runnable_ns;
}

bool run_times_have_wakeups(const struct capture *capture)
{
	return capture_metadata(capture, "wakeups") != NULL;
}

static void add_batch(struct reader *reader, struct names_epoch *epoch,
		      const struct prof_batch *batch, GArray *times)
{
	const struct prof_array *c = batch->columns;
	bool has_wakeups = capture_metadata_of(reader->capture, batch->segment, "wakeups") != NULL;

	for (size_t i = 0; i < batch->rows; i++) {
		uint32_t thread = names_thread(epoch, array_number_or(&c[THREAD], i, 0));
		uint64_t end = array_number_or(&c[TIME], i, 0);
		uint64_t start = array_number_or(&c[START], i, end);
		struct run_time *at;

		if (thread <= NAMES_LOST || !reader_wants_thread(reader, thread))
			continue;
		if (times->len <= thread)
			g_array_set_size(times, thread + 1);
		at = &g_array_index(times, struct run_time, thread);
		add_row(reader, thread, at, capture_time(reader->capture, batch->segment, start),
			capture_time(reader->capture, batch->segment, end),
			array_number_or(&c[CPU], i, UINT64_MAX), has_wakeups);
		at->left_how = (uint32_t)array_number_or(&c[STATE], i, PROF_SWITCH_RUNNING);
	}
}

/* Rows may be missing here. It is not known whether a thread ran in a gap that begins before this
 * point, so the gap does not count. */
static void forget_gaps(GArray *times)
{
	for (guint i = 0; i < times->len; i++)
		g_array_index(times, struct run_time, i).left_ns = INT64_MAX;
}

static bool read_rows(struct reader *reader, struct prof_cursor *cursor, GArray *times,
		      GError **error)
{
	struct prof_batch batch;
	uint64_t breaks = 0;
	int r;

	while ((r = prof_cursor_next(cursor, &batch)) == 0) {
		struct names_epoch *epoch = names_epoch(reader->capture->names, batch.epoch, error);

		if (!epoch || !names_load_identities(epoch, error))
			return false;
		if (prof_cursor_breaks(cursor) != breaks)
			forget_gaps(times);
		breaks = prof_cursor_breaks(cursor);
		add_batch(reader, epoch, &batch, times);
	}
	if (r != PROF_END)
		return capture_error(error, r, _("cannot read context switches of '%s'"),
				     reader->capture->file);
	return true;
}

GArray *run_times_read(struct reader *reader, GError **error)
{
	const struct prof_cursor_options options = { .table = PROF_TABLE_SWITCH,
						     .columns = columns,
						     .n_columns = N_COLUMNS };
	GArray *times = g_array_new(FALSE, TRUE, sizeof(struct run_time));
	struct prof_cursor *cursor;
	bool ok;
	int r = prof_cursor_new(reader->capture->reader, &options, &cursor);

	if (r == PROF_NO_TABLE)
		return times;
	ok = r == 0 ? read_rows(reader, cursor, times, error)
		    : capture_error(error, r, _("cannot read context switches of '%s'"),
				    reader->capture->file);
	if (r == 0)
		prof_cursor_free(cursor);
	if (ok)
		return times;
	g_array_unref(times);
	return NULL;
}
