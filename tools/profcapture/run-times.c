/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profcapture/run-times.h"

#include "tools/common/capture-error.h"
#include "tools/common/grown-array.h"

#include <glib/gi18n.h>

/* The CPU column is read only with --cpu. */
enum { TIME, THREAD, START, STATE, CPU, N_COLUMNS };
static const uint16_t columns[N_COLUMNS] = { PROF_SWITCH_TIME, PROF_SWITCH_THREAD,
					     PROF_SWITCH_START, PROF_SWITCH_STATE,
					     PROF_SWITCH_CPU };

/* Returns how long [from, to] is in the reader's range while the thread has a selected name. */
static uint64_t wanted_part(struct reader *reader, uint32_t thread, int64_t from, int64_t to)
{
	uint64_t sum = 0;

	from = MAX_OF(from, reader->from_ns);
	to = MIN_OF(to, reader->to_ns);
	while (from < to) {
		int64_t next = to;

		if (reader->comms)
			next = MIN_OF(thread_names_until(reader->thread_names, thread, from), to);
		if (!reader->comms || reader_wants_thread_at(reader, thread, from))
			sum += (uint64_t)next - (uint64_t)from;
		from = next;
	}
	return sum;
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
	bool filters_threads = reader_filters_threads(reader);
	/* converts clock values to relative times */
	uint64_t shift = (uint64_t)capture_time(reader->capture, batch->segment, 0);

	for (size_t i = 0; i < batch->rows; i++) {
		uint32_t thread = names_thread(epoch, array_number_or(&c[THREAD], i, 0));
		uint64_t time = array_number_or(&c[TIME], i, 0);
		int64_t start = (int64_t)(array_number_or(&c[START], i, time) + shift);
		struct run_time *at;

		if (thread <= NAMES_LOST ||
		    (filters_threads && !reader_wants_thread(reader, thread)))
			continue;
		at = GROWN_AT(times, struct run_time, thread);
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
		at->left_ns = (int64_t)(time + shift);
		at->left_how = (uint32_t)array_number_or(&c[STATE], i, PROF_SWITCH_RUNNING);
		at->is_there = true;
		if (!reader->cpus ||
		    reader_wants_cpu(reader, array_number_or(&c[CPU], i, UINT64_MAX)))
			at->run_ns += wanted_part(reader, thread, start, at->left_ns);
	}
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
		/* Rows may be missing here. Ignore the gap of each thread that begins before this
		 * point, because the thread may have run in it. */
		for (guint i = 0; prof_cursor_breaks(cursor) != breaks && i < times->len; i++)
			g_array_index(times, struct run_time, i).left_ns = INT64_MAX;
		breaks = prof_cursor_breaks(cursor);
		add_batch(reader, epoch, &batch, times);
	}
	return r == PROF_END || capture_error(error, r, _("cannot read context switches of '%s'"),
					      reader->capture->file);
}

GArray *run_times_read(struct reader *reader, GError **error)
{
	const struct prof_cursor_options options = { .table = PROF_TABLE_SWITCH,
						     .columns = columns,
						     .n_columns = reader->cpus ? N_COLUMNS : CPU };
	g_autoptr(GArray) times = g_array_new(FALSE, TRUE, sizeof(struct run_time));
	struct prof_cursor *cursor;
	bool ok;
	int r = prof_cursor_new(reader->capture->reader, &options, &cursor);

	if (r == PROF_NO_TABLE)
		return g_steal_pointer(&times);
	if (r != 0) {
		capture_error(error, r, _("cannot read context switches of '%s'"),
			      reader->capture->file);
		return NULL;
	}
	ok = read_rows(reader, cursor, times, error);
	prof_cursor_free(cursor);
	for (guint i = 0; i < times->len; i++) {
		struct run_time *at = &g_array_index(times, struct run_time, i);

		at->known = at->run_ns || at->wait_ns || at->preempted_ns || at->runnable_ns;
	}
	return ok ? g_steal_pointer(&times) : NULL;
}
