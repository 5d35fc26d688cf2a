/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profcapture/run-times.h"

#include "base/each.h"
#include "tools/common/capture-error.h"
#include "tools/common/grown-array.h"

#include <glib/gi18n.h>

/* The CPU column is read only if it is used. */
enum { TIME, THREAD, START, STATE, CPU, N_COLUMNS };
static const uint16_t columns[N_COLUMNS] = { PROF_SWITCH_TIME, PROF_SWITCH_THREAD,
					     PROF_SWITCH_START, PROF_SWITCH_STATE,
					     PROF_SWITCH_CPU };

/* Returns how much of [from, to] is in the reader's range while the thread has a selected name. */
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

struct run_walk {
	struct reader *reader;
	GArray *times; /* struct run_time by thread */
	void (*found)(const struct run_state *state, void *data);
	void *data;
	bool reads_cpu;
};

static void add_gap(struct run_walk *walk, uint32_t thread, int64_t start_ns, bool has_wakeups)
{
	struct run_time *at = &g_array_index(walk->times, struct run_time, thread);
	uint32_t how = at->left_how == PROF_SWITCH_RUNNABLE && !has_wakeups ? PROF_SWITCH_PREEMPTED
									    : at->left_how;
	const struct run_state state = { at->left_ns, start_ns, PROF_SWITCH_NO_CPU, thread, how };
	uint64_t *sum = how == PROF_SWITCH_WAIT        ? &at->wait_ns
			: how == PROF_SWITCH_PREEMPTED ? &at->preempted_ns
			: how == PROF_SWITCH_RUNNABLE  ? &at->runnable_ns
						       : NULL;

	if (!sum)
		return;
	*sum += wanted_part(walk->reader, thread, at->left_ns, start_ns);
	if (walk->found)
		walk->found(&state, walk->data);
}

static void add_batch(struct run_walk *walk, struct names_epoch *epoch,
		      const struct prof_batch *batch)
{
	struct reader *reader = walk->reader;
	const struct prof_array *c = batch->columns;
	bool has_wakeups = capture_metadata_of(reader->capture, batch->segment, "wakeups") != NULL;
	bool filters_threads = reader_filters_threads(reader);
	/* converts clock values to relative times */
	uint64_t shift = (uint64_t)capture_time(reader->capture, batch->segment, 0);

	for (size_t i = 0; i < batch->rows; i++) {
		uint32_t thread = names_thread(epoch, array_number_or(&c[THREAD], i, 0));
		uint64_t time = array_number_or(&c[TIME], i, 0);
		/* a hostile row may start after its end */
		uint64_t start = MIN_OF(array_number_or(&c[START], i, time), time);
		struct run_state run = { .from_ns = (int64_t)(start + shift),
					 .to_ns = (int64_t)(time + shift),
					 .cpu = PROF_SWITCH_NO_CPU,
					 .thread = thread,
					 .state = PROF_SWITCH_RUNNING };
		struct run_time *at;

		if (thread <= NAMES_LOST ||
		    (filters_threads && !reader_wants_thread(reader, thread)))
			continue;
		at = GROWN_AT(walk->times, struct run_time, thread);
		if (at->is_there && at->left_ns < run.from_ns)
			add_gap(walk, thread, run.from_ns, has_wakeups);
		at->left_ns = run.to_ns;
		at->left_how = (uint32_t)array_number_or(&c[STATE], i, PROF_SWITCH_RUNNING);
		at->is_there = true;
		if (walk->reads_cpu)
			run.cpu = array_number_or(&c[CPU], i, PROF_SWITCH_NO_CPU);
		if (walk->found && run.from_ns < run.to_ns)
			walk->found(&run, walk->data);
		if (!reader->cpus || reader_wants_cpu(reader, run.cpu))
			at->run_ns += wanted_part(reader, thread, run.from_ns, run.to_ns);
	}
}

static bool read_rows(struct run_walk *walk, struct prof_cursor *cursor, GError **error)
{
	struct capture *capture = walk->reader->capture;
	struct prof_batch batch;
	uint64_t breaks = 0;
	int r;

	while ((r = prof_cursor_next(cursor, &batch)) == 0) {
		struct names_epoch *epoch = names_epoch(capture->names, batch.epoch, error);

		if (!epoch)
			return false;
		/* Rows may be missing here. It is not known whether a thread ran in a gap that
		 * begins before this point, so the gap does not count. */
		for (guint i = 0; prof_cursor_breaks(cursor) != breaks && i < walk->times->len; i++)
			g_array_index(walk->times, struct run_time, i).left_ns = INT64_MAX;
		breaks = prof_cursor_breaks(cursor);
		add_batch(walk, epoch, &batch);
	}
	return r == PROF_END ||
	       capture_error(error, r, _("cannot read context switches of '%s'"), capture->file);
}

static bool read_switches(struct run_walk *walk, GError **error)
{
	const struct prof_cursor_options options = { .table = PROF_TABLE_SWITCH,
						     .columns = columns,
						     .n_columns = walk->reads_cpu ? N_COLUMNS
										  : CPU };
	struct capture *capture = walk->reader->capture;
	struct prof_cursor *cursor;
	bool ok;
	int r = prof_cursor_new(capture->reader, &options, &cursor);

	if (r != 0)
		return r == PROF_NO_TABLE ||
		       capture_error(error, r, _("cannot read context switches of '%s'"),
				     capture->file);
	ok = read_rows(walk, cursor, error);
	prof_cursor_free(cursor);
	return ok;
}

GArray *run_times_each_state(struct reader *reader,
			     void (*found)(const struct run_state *state, void *data), void *data,
			     GError **error)
{
	g_autoptr(GArray) times = g_array_new(FALSE, TRUE, sizeof(struct run_time));
	struct run_walk walk = { reader, times, found, data, .reads_cpu = found || reader->cpus };

	if (!read_switches(&walk, error))
		return NULL;
	ARRAY_EACH(struct run_time, at, times)
		at->known = at->run_ns || at->wait_ns || at->preempted_ns || at->runnable_ns;
	return g_steal_pointer(&times);
}

GArray *run_times_read(struct reader *reader, GError **error)
{
	return run_times_each_state(reader, NULL, NULL, error);
}
