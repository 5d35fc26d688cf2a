/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Record-capture - adds names to the finished capture, and reads facts about the recording
 *
 * Names and lines: profd has kept the mapped files that samples hit, so names are also correct for
 * deleted or replaced files and in containers. A file that profd does not have is opened by its
 * path. In both cases, symbolize checks that it is the recorded file. symbolize_capture() runs on
 * another thread, so that the main loop can handle Ctrl-C. After the main loop has set *skip, that
 * thread gets no more files, so it ends soon. The capture is complete in either case.
 *
 * Processes that outlive the command are found by their recorded parents, because a daemon's
 * current parent is init. A pid is listed only if the start time matches.
 */
#include "config.h"

#include "tools/profctl/record-capture.h"

#include "base/order.h"
#include "tools/common/budget.h"
#include "tools/profcapture/profile.h"
#include "tools/profctl/worker.h"
#include "tools/symbols/symbolize.h"

#include <inttypes.h>
#include <time.h>

#define NS_PER_S INT64_C(1000000000)
#define MAX_ANCESTORS 1000
#define START_FIELD 20 /* number of the start time in /proc/PID/stat, counted from the state as 1 */

/* Ignores exits: the tasks are read only because this makes threads and processes known. */
static void ignore_exit(uint32_t process, int64_t time_ns, void *data)
{
}

/* Counts samples, threads and processes in the same way as `profcapture info`. */
static bool count_samples(int fd, struct record_samples *ret_samples, GError **error)
{
	g_autofree char *path = g_strdup_printf("/proc/self/fd/%d", fd);
	g_autoptr(GHashTable) threads = g_hash_table_new(NULL, NULL);
	g_autoptr(GHashTable) processes = g_hash_table_new(NULL, NULL);
	CLEANUP_READER struct reader reader = { 0 };
	CLEANUP_PROFILE struct profile profile = { .by = PROFILE_THREAD, .wants_all_events = true };
	const struct capture *capture;

	budget_begin_anew();
	if (!reader_open(&reader, path, error))
		return false;
	capture = reader.capture;
	if (capture->n_segments > 1) {
		const struct prof_segment *last = &capture->segments[capture->n_segments - 1];

		reader.from_ns = capture_time(capture, last->number, last->start_monotonic_ns);
		reader.timed = true;
	}
	if (!profile_run(&profile, &reader, error) ||
	    !capture_each_exit(capture, ignore_exit, NULL, error))
		return false;
	*ret_samples = (struct record_samples){ .unresolved = profile.unresolved };
	for (uint32_t i = NAMES_LOST + 1; i < capture->names->threads->len; i++) {
		const struct names_thread *thread = names_thread_at(capture->names, i);
		const struct names_process *process =
			names_process_at(capture->names, thread->process);

		/* `names` has the threads of all segments */
		if (reader.timed &&
		    (i >= profile.counts->len || !profile_count_at(profile.counts, i).self.samples))
			continue;
		g_hash_table_add(threads, GSIZE_TO_POINTER(process->pid << 32 | thread->tid));
		g_hash_table_add(processes, GSIZE_TO_POINTER(process->pid));
	}
	ret_samples->threads = g_hash_table_size(threads);
	ret_samples->processes = g_hash_table_size(processes);
	return true;
}

uint64_t record_capture_length(int fd)
{
	const struct prof_table_def *const *tables;
	const struct prof_segment *segments;
	size_t n_tables, n_segments;
	struct prof_reader *reader;
	uint64_t length_ns = 0;

	if (prof_reader_open(fd, &reader) != 0)
		return 0;
	tables = prof_reader_tables(reader, &n_tables);
	segments = prof_reader_segments(reader, &n_segments);
	for (size_t i = 0; n_segments && i < n_tables; i++) {
		const struct prof_segment *last = &segments[n_segments - 1];
		struct prof_chunks *chunks = NULL;
		struct prof_chunk chunk;
		int r = tables[i]->flags & PROF_TABLE_TIMED
				? prof_chunks_new(reader, tables[i]->id, &chunks)
				: PROF_END;

		while (r == 0 && (r = prof_chunks_next(chunks, &chunk)) == 0)
			if (chunk.segment == last->number && chunk.t_max > last->start_monotonic_ns)
				length_ns =
					MAX_OF(length_ns, chunk.t_max - last->start_monotonic_ns);
		prof_chunks_free(chunks);
	}
	prof_reader_free(reader);
	return length_ns;
}

static void add_heap_rows(const struct prof_batch *batch, struct record_allocations *allocations)
{
	for (size_t row = 0; row < batch->rows; row++) {
		const struct prof_array *columns = batch->columns;
		uint64_t event = array_number_or(&columns[PROF_HEAP_EVENT], row, 0);

		/* blocks that were inherited at fork would count in both heaps */
		if (event == PROF_HEAP_END &&
		    array_number_or(&columns[PROF_HEAP_INHERITED], row, 0) == 0)
			allocations->live_bytes +=
				array_number_or(&columns[PROF_HEAP_LIVE_BYTES], row, 0);
		else if (event != PROF_HEAP_BEGIN && event != PROF_HEAP_CHECKPOINT)
			allocations->knows_live = false;
	}
}

bool record_capture_allocations(int fd, struct record_allocations *ret_allocations)
{
	const struct prof_cursor_options options = { .table = PROF_TABLE_HEAP };
	struct record_allocations allocations = { .knows_live = true };
	struct prof_chunks *chunks = NULL;
	struct prof_cursor *cursor = NULL;
	struct prof_reader *reader;
	struct prof_chunk chunk;
	struct prof_batch batch;
	int r;

	if (prof_reader_open(fd, &reader) != 0)
		return false;
	r = prof_chunks_new(reader, PROF_TABLE_ALLOC, &chunks);
	while (r == 0 && (r = prof_chunks_next(chunks, &chunk)) == 0)
		allocations.n += chunk.rows;
	if (r == PROF_END)
		r = prof_cursor_new(reader, &options, &cursor);
	while (r == 0 && (r = prof_cursor_next(cursor, &batch)) == 0)
		add_heap_rows(&batch, &allocations);
	prof_cursor_free(cursor);
	prof_chunks_free(chunks);
	prof_reader_free(reader);
	*ret_allocations = allocations;
	return r == PROF_END && allocations.n > 0;
}

/* ---- Processes that outlive the command ------------------------------------------------------ */

struct process {
	uint64_t pid, ppid, start_ns;
};

static void read_processes(struct names *names, GHashTable *processes)
{
	struct prof_chunks *chunks = NULL;
	struct prof_chunk chunk;
	uint32_t last = 0;

	if (prof_chunks_new(names->reader, PROF_TABLE_PROCESS, &chunks) != 0)
		return;
	while (prof_chunks_next(chunks, &chunk) == 0) {
		struct names_epoch *epoch =
			chunk.epoch == last ? NULL : names_epoch(names, chunk.epoch, NULL);
		size_t rows = 0;

		last = chunk.epoch;
		if (epoch && epoch->tables[NAMES_PROCESS])
			rows = prof_dictionary_rows(epoch->tables[NAMES_PROCESS]);
		for (size_t row = 0; row < rows; row++) {
			struct process *process = g_new0(struct process, 1);

			(void)names_number(epoch, NAMES_PROCESS, PROF_PROCESS_PID, row,
					   &process->pid);
			(void)names_number(epoch, NAMES_PROCESS, PROF_PROCESS_PPID, row,
					   &process->ppid);
			(void)names_number(epoch, NAMES_PROCESS, PROF_PROCESS_START_TIME, row,
					   &process->start_ns);
			g_hash_table_replace(processes, &process->pid, process);
		}
	}
	prof_chunks_free(chunks);
}

/* Returns whether the process runs. /proc counts ticks since boot, including time in suspend. */
static bool is_running(const struct process *process)
{
	g_autofree char *path = g_strdup_printf("/proc/%" PRIu64 "/stat", process->pid);
	g_autofree char *text = NULL;
	g_auto(GStrv) fields = NULL;
	int64_t tick_ns = NS_PER_S / sysconf(_SC_CLK_TCK), started;
	struct timespec now;
	const char *end;

	if (!g_file_get_contents(path, &text, NULL, NULL) || !(end = strrchr(text, ')')))
		return false;
	fields = g_strsplit(end + 1 + strspn(end + 1, " "), " ", -1);
	if (g_strv_length(fields) <= START_FIELD || *fields[0] == 'Z' || *fields[0] == 'X')
		return false;
	clock_gettime(CLOCK_BOOTTIME, &now);
	started = g_ascii_strtoll(fields[START_FIELD - 1], NULL, 10) * tick_ns -
		  (now.tv_sec * NS_PER_S + now.tv_nsec - g_get_monotonic_time() * 1000);
	return llabs(started - (int64_t)process->start_ns) <= 2 * tick_ns;
}

COMPARE_BY(compare_pids, uint32_t, ORDER(*a, *b))

GArray *record_capture_left(int fd, pid_t command)
{
	g_autoptr(GHashTable)
		processes = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
	GArray *pids = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	const struct process *process;
	struct prof_reader *reader;
	struct names *names;
	GHashTableIter iter;

	if (prof_reader_open(fd, &reader) != 0)
		return pids;
	names = names_new(reader);
	read_processes(names, processes);
	names_free(names);
	prof_reader_free(reader);
	g_hash_table_iter_init(&iter, processes);
	while (g_hash_table_iter_next(&iter, NULL, (void **)&process)) {
		const struct process *ancestor = process;
		uint32_t pid = (uint32_t)process->pid;

		for (int i = 0; ancestor && ancestor->ppid != (uint64_t)command; i++)
			ancestor = i == MAX_ANCESTORS
					   ? NULL
					   : g_hash_table_lookup(processes, &ancestor->ppid);
		if (ancestor && is_running(process))
			g_array_append_val(pids, pid);
	}
	g_array_sort(pids, compare_pids);
	return pids;
}

/* ---- Names ----------------------------------------------------------------------------------- */

struct symbols_job {
	struct client *client;
	struct debug_files *debug_files;
	int fd;
	const char *file;
	GMainLoop *loop;
	const atomic_bool *skip;
	bool is_done;
	bool ok; /* this and the following fields: written by the thread, read after it ends */
	struct record_samples samples;
	struct symbolize_result result;
	GError *error;
};

static int open_image(const struct names_image *image, void *data)
{
	const struct symbols_job *job = data;
	int fd;

	if (atomic_load(job->skip))
		return -1;
	fd = client_open_image(job->client, image->id);
	return fd >= 0 ? fd : debug_files_open_path(job->debug_files, image->path);
}

static void work(void *data)
{
	struct symbols_job *job = data;
	const struct symbolize_sources sources = { open_image, job, job->debug_files, job->file };

	job->ok = symbolize_capture(job->fd, &sources, &job->result, &job->error) &&
		  count_samples(job->fd, &job->samples, &job->error);
}

static void on_done(void *data)
{
	struct symbols_job *job = data;

	job->is_done = true;
	g_main_loop_quit(job->loop);
}

bool record_capture_symbolize(int fd, const char *file, struct client *client, GMainLoop *loop,
			      const atomic_bool *skip, struct record_samples *ret_samples,
			      GError **error)
{
	struct symbols_job *job = g_new0(struct symbols_job, 1);
	bool ok;

	*job = (struct symbols_job){ .client = client,
				     .debug_files = debug_files_new(NULL, NULL),
				     .fd = fd,
				     .file = file,
				     .loop = loop,
				     .skip = skip };
	if (worker_start(work, on_done, job, &job->error)) {
		g_main_loop_run(loop);
		if (!job->is_done)
			return false; /* the thread still uses the job */
	}
	ok = job->ok && !atomic_load(skip);
	*ret_samples = job->samples;
	if (job->error)
		g_propagate_error(error, job->error);
	symbolize_result_done(&job->result);
	debug_files_free(job->debug_files);
	g_free(job);
	return ok;
}
