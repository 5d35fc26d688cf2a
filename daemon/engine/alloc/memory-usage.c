/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory usage - RSS and PSS of the processes whose allocations are recorded; the counters of
 * processes
 *
 * All values are read at most ten times a second, PSS less often. RSS and PSS supplement the
 * allocation records: a process may use memory that no allocator reports, and keep memory that it
 * has freed. The counters are those of the kernel for each target: bytes read and written, faults,
 * threads, descriptors. The kernel's sums continue across an exec, so each program of a process
 * begins with the last value of the program before; if the process began in the recording, its
 * first program begins with 0.
 * The broker lets a separate process read /proc, because reading may block. For pss the kernel
 * walks the page tables, and meanwhile the process cannot change its mappings. So pss of large
 * processes is read less often: for at most a fiftieth of the time, but at least every ten seconds.
 * In between, only rss is read.
 * Invariants: (1) a counter has only values of its own process
 *                 [test-engine-memory-usage: instances]
 *             (2) rows are in one time order with the rows of the collectors
 *                 [test-engine-memory-usage: order]
 *             (3) hostile contents of an answer are rejected  [fuzz_snapshot]
 * Runs on the drain thread only.
 */
#include "daemon/engine/alloc/memory-usage.h"

#include "arch/base.h"
#include "base/order.h"

#define INTERVAL_NS UINT64_C(100000000)
#define SHARE 50                       /* reading takes at most 1/SHARE of the time */
#define ANSWER_NS UINT64_C(5000000000) /* after this time, no answer is expected any more */
#define MAX_INTERVAL_NS UINT64_C(10000000000)
#define MAX_VALUES 65536u
#define MAX_PIDS 65536u

enum {
	USAGE_RSS,
	USAGE_PSS,
	USAGE_THREADS,
	USAGE_FDS,
	USAGE_FIRST_SUM,
	USAGE_READ = USAGE_FIRST_SUM,
	USAGE_WRITTEN,
	USAGE_DISK_READ,
	USAGE_DISK_WRITTEN,
	USAGE_MINOR_FAULTS,
	USAGE_MAJOR_FAULTS,
	USAGE_COUNTERS
};

static const struct {
	const char *group, *name, *unit;
} definitions[USAGE_COUNTERS] = {
	[USAGE_RSS] = { "memory", "rss", "bytes" },
	[USAGE_PSS] = { "memory", "pss", "bytes" },
	[USAGE_THREADS] = { "process", "threads", "threads" },
	[USAGE_FDS] = { "process", "open files", "descriptors" },
	[USAGE_READ] = { "process", "read", "bytes" },
	[USAGE_WRITTEN] = { "process", "written", "bytes" },
	[USAGE_DISK_READ] = { "process", "read from disk", "bytes" },
	[USAGE_DISK_WRITTEN] = { "process", "written to disk", "bytes" },
	[USAGE_MINOR_FAULTS] = { "process", "minor faults", "" },
	[USAGE_MAJOR_FAULTS] = { "process", "major faults", "" },
};

struct usage_counter {
	struct row row;
	struct process *process; /* referenced */
	unsigned int what;       /* USAGE_* */
	double value;            /* the last value */
	/* time of the latest reading that was equal to `value`, and not written; 0: none */
	uint64_t held_ns;
};

struct process_usage {
	struct usage_counter *counters[USAGE_COUNTERS]; /* NULL: no value yet */
};

/* The last sums of a pid, from which the process's next program continues. */
struct pid_sums {
	uint64_t start_ns;                /* start time of the process */
	uint64_t time_ns[USAGE_COUNTERS]; /* 0: not known */
	double values[USAGE_COUNTERS];
};

struct usage_value {
	uint64_t time_ns;
	struct usage_counter *counter; /* referenced */
	double value;
};

/* ---- Counters -------------------------------------------------------------------------------- */

static void write_counter(struct row *row, struct output *output)
{
	const struct usage_counter *counter = (struct usage_counter *)row;

	output_need(output, &counter->process->row);
	output_add(output, PROF_TABLE_COUNTER,
		   (const struct prof_value[]){
			   [PROF_COUNTER_ID] = PROF_NUMBER(row->id),
			   [PROF_COUNTER_PROCESS] = PROF_NUMBER(counter->process->row.id),
			   [PROF_COUNTER_GROUP] = PROF_NUMBER(
				   output_text(output, definitions[counter->what].group)),
			   [PROF_COUNTER_NAME] = PROF_NUMBER(
				   output_text(output, definitions[counter->what].name)),
			   [PROF_COUNTER_UNIT] = PROF_NUMBER(
				   output_text(output, definitions[counter->what].unit)),
			   [PROF_COUNTER_KIND] = PROF_NUMBER(counter->what >= USAGE_FIRST_SUM
								     ? PROF_COUNTER_SUM
								     : PROF_COUNTER_GAUGE),
		   });
}

static void free_counter(struct row *row)
{
	row_unref(&((struct usage_counter *)row)->process->row);
	g_free(row);
}

static void unref_counter(struct usage_counter *counter)
{
	if (counter)
		row_unref(&counter->row);
}

static void free_counters(gpointer data)
{
	struct process_usage *usage = data;

	for (size_t i = 0; i < USAGE_COUNTERS; i++)
		unref_counter(usage->counters[i]);
	g_free(usage);
}

static void clear_value(gpointer data)
{
	unref_counter(((struct usage_value *)data)->counter);
}

void memory_usage_init(struct memory_usage *usage, struct tasks *tasks, uint32_t *last_counter,
		       const struct memory_usage_options *options, uint64_t now_ns)
{
	*usage = (struct memory_usage){
		.tasks = tasks,
		.options = *options,
		.begin_ns = now_ns,
		.sums = g_hash_table_new_full(NULL, NULL, NULL, g_free),
		.last_counter = last_counter,
		.counters = g_hash_table_new_full(NULL, NULL, NULL, free_counters),
		.values = g_array_new(FALSE, FALSE, sizeof(struct usage_value)),
		/* Request the first values of counters immediately. */
		.queried_ns = options->counters ? now_ns - INTERVAL_NS : now_ns,
		.interval_ns = INTERVAL_NS,
	};
	g_array_set_clear_func(usage->values, clear_value);
}

void memory_usage_done(struct memory_usage *usage)
{
	if (!usage->tasks)
		return;
	g_hash_table_destroy(usage->counters);
	g_hash_table_destroy(usage->sums);
	g_array_free(usage->values, TRUE);
	*usage = (struct memory_usage){ 0 };
}

/* ---- Requests -------------------------------------------------------------------------------- */

uint64_t memory_usage_due_ns(const struct memory_usage *usage)
{
	if (!usage->tasks)
		return UINT64_MAX;
	return usage->queried_ns + (usage->serial ? ANSWER_NS : usage->interval_ns);
}

COMPARE_BY(compare_pids, int32_t, ORDER(*a, *b))

static gboolean is_gone(gpointer process, gpointer counters, gpointer data)
{
	return ((const struct process *)process)->gone;
}

/* Returns the pids of all processes to read, ascending. */
static GArray *list_pids(const struct memory_usage *usage)
{
	GArray *pids = g_array_new(FALSE, FALSE, sizeof(int32_t));
	GHashTableIter iter;
	gpointer value;

	g_hash_table_iter_init(&iter, usage->tasks->processes);
	while (g_hash_table_iter_next(&iter, NULL, &value)) {
		const struct process *process = value;

		if ((process->expects_heap || usage->options.counters) && !process->kernel &&
		    process->pid > 0)
			g_array_append_val(pids, process->pid);
	}
	g_array_sort(pids, compare_pids);
	return pids;
}

uint32_t memory_usage_request(struct memory_usage *usage, uint32_t serial, uint64_t now_ns,
			      int32_t *ret_pids)
{
	g_autoptr(GArray) pids = list_pids(usage);
	const int32_t *all = (const int32_t *)(void *)pids->data;
	uint32_t first = 0, n = MIN_OF(pids->len, ENGINE_MAX_USAGE_PIDS);

	g_hash_table_foreach_remove(usage->counters, is_gone, NULL);
	while (n < pids->len && first < pids->len && all[first] <= usage->last_pid)
		first++;
	n = MIN_OF(n, pids->len - first);
	if (n == 0 && first > 0) {
		first = 0;
		n = ENGINE_MAX_USAGE_PIDS;
	}
	if (n > 0)
		memcpy(ret_pids, all + first, n * sizeof(*all));
	usage->last_pid = n > 0 ? ret_pids[n - 1] : 0;
	usage->queried_ns = now_ns;
	/* Decide only at the start of a pass over all processes, so that a pass reads the pss of
	 * each process or of none. */
	if (first == 0)
		usage->is_whole = now_ns >= usage->whole_ns;
	for (uint32_t i = 0; !usage->is_whole && i < n; i++)
		ret_pids[i] = -ret_pids[i];
	usage->serial = n > 0 ? serial : 0;
	return n;
}

/* ---- Answers --------------------------------------------------------------------------------- */

static void add_value(struct memory_usage *usage, struct process *process, unsigned int what,
		      double number, uint64_t time_ns)
{
	struct process_usage *counters = g_hash_table_lookup(usage->counters, process);
	struct usage_value value = { .time_ns = time_ns, .value = number };
	struct usage_counter *counter;

	if (usage->values->len >= MAX_VALUES)
		return;
	if (!counters) {
		counters = g_new0(struct process_usage, 1);
		g_hash_table_insert(usage->counters, process, counters);
	}
	counter = counters->counters[what];
	/* A value is valid until the next one, so an unchanged value is not written. RSS and PSS
	 * are always written, because exporters show them as measured. */
	if (counter && counter->value == number && what > USAGE_PSS) {
		counter->held_ns = time_ns;
		return;
	}
	if (!counter) {
		counter = counters->counters[what] = g_new0(struct usage_counter, 1);
		row_init(&counter->row, ++*usage->last_counter, write_counter, free_counter);
		row_ref(&process->row);
		counter->process = process;
		counter->what = what;
	}
	/* Write the last reading of the old value, so that a rate covers only the last interval. */
	if (counter->held_ns) {
		struct usage_value held = { counter->held_ns, counter, counter->value };

		row_ref(&counter->row);
		g_array_append_val(usage->values, held);
	}
	counter->held_ns = 0;
	counter->value = number;
	row_ref(&counter->row);
	value.counter = counter;
	g_array_append_val(usage->values, value);
}

/* Returns the sums of the process's pid. Creates new sums if the pid has none, or only those of
 * another process. */
static struct pid_sums *find_sums(struct memory_usage *usage, const struct process *process)
{
	gpointer pid = GINT_TO_POINTER(process->pid);
	struct pid_sums *sums = g_hash_table_lookup(usage->sums, pid);

	if (sums && sums->start_ns == process->start_ns)
		return sums;
	if (!sums && g_hash_table_size(usage->sums) >= MAX_PIDS)
		g_hash_table_remove_all(usage->sums);
	sums = g_new0(struct pid_sums, 1);
	sums->start_ns = process->start_ns;
	if (usage->options.is_command || process->start_ns >= usage->begin_ns)
		for (size_t i = 0; i < USAGE_COUNTERS; i++)
			sums->time_ns[i] = MAX_OF(process->start_ns, usage->begin_ns);
	g_hash_table_replace(usage->sums, pid, sums);
	return sums;
}

/* Adds a reading of a sum. Readers need differences, so the first reading is written only together
 * with the second. */
static void add_sum(struct memory_usage *usage, struct process *process, unsigned int what,
		    uint64_t number, uint64_t time_ns)
{
	const struct process_usage *counters = g_hash_table_lookup(usage->counters, process);
	struct pid_sums *sums = find_sums(usage, process);

	if (sums->time_ns[what] && (!counters || !counters->counters[what]))
		add_value(usage, process, what, sums->values[what],
			  MAX_OF(sums->time_ns[what], process->begin_ns));
	if (sums->time_ns[what])
		add_value(usage, process, what, (double)number, time_ns);
	sums->time_ns[what] = time_ns;
	sums->values[what] = (double)number;
}

static void receive_memory(struct memory_usage *usage, const struct snapshot_item *item,
			   struct process *process)
{
	struct snapshot_usage found = { 0 };
	bool parsed = item->kind == SNAPSHOT_ROLLUP
			      ? snapshot_parse_rollup(item->text, item->length, &found)
			      : snapshot_parse_statm(item->text, item->length, &found);

	/* The process may have no memory left. */
	if (!parsed || !process->expects_heap || found.rss_bytes == 0)
		return;
	add_value(usage, process, USAGE_RSS, (double)found.rss_bytes, item->time_ns);
	if (found.has_pss)
		add_value(usage, process, USAGE_PSS, (double)found.pss_bytes, item->time_ns);
}

static void receive_counts(struct memory_usage *usage, const struct snapshot_item *item,
			   struct process *process)
{
	struct snapshot_counts counts;
	uint64_t number, time_ns = item->time_ns;

	if (!usage->options.counters)
		return;
	if (item->kind == SNAPSHOT_FDS && item->length == sizeof(number)) {
		memcpy(&number, item->text, sizeof(number));
		add_value(usage, process, USAGE_FDS, (double)number, time_ns);
	} else if (item->kind == SNAPSHOT_IO &&
		   snapshot_parse_io(item->text, item->length, &counts)) {
		add_sum(usage, process, USAGE_READ, counts.read_bytes, time_ns);
		add_sum(usage, process, USAGE_WRITTEN, counts.written_bytes, time_ns);
		add_sum(usage, process, USAGE_DISK_READ, counts.disk_read_bytes, time_ns);
		add_sum(usage, process, USAGE_DISK_WRITTEN, counts.disk_written_bytes, time_ns);
	} else if (item->kind == SNAPSHOT_STAT &&
		   snapshot_parse_counts(item->text, item->length, &counts)) {
		add_value(usage, process, USAGE_THREADS, (double)counts.threads, time_ns);
		add_sum(usage, process, USAGE_MINOR_FAULTS, counts.minor_faults, time_ns);
		add_sum(usage, process, USAGE_MAJOR_FAULTS, counts.major_faults, time_ns);
		if (!usage->options.memory && counts.rss_bytes)
			add_value(usage, process, USAGE_RSS, (double)counts.rss_bytes, time_ns);
	}
}

static void receive_item(struct memory_usage *usage, const struct snapshot_item *item)
{
	struct process *process = tasks_process(usage->tasks, item->pid);

	/* A program that began after the reading may have the pid now. */
	if (!process || process->begin_ns > item->time_ns)
		return;
	if (item->kind == SNAPSHOT_ROLLUP || item->kind == SNAPSHOT_STATM)
		receive_memory(usage, item, process);
	else
		receive_counts(usage, item, process);
}

COMPARE_BY(compare_values, struct usage_value, ORDER(a->time_ns, b->time_ns))

void memory_usage_receive(struct memory_usage *usage, uint32_t serial, const void *bytes,
			  size_t length)
{
	struct snapshot snapshot = { .bytes = bytes, .length = length };
	struct snapshot_item item;
	uint64_t first_ns = 0, took_ns = 0;

	if (serial == 0 || serial != usage->serial)
		return;
	usage->serial = 0;
	while (snapshot_next(&snapshot, &item)) {
		first_ns = first_ns ? first_ns : item.time_ns;
		if (item.kind != SNAPSHOT_END)
			receive_item(usage, &item);
		else if (item.time_ns > first_ns)
			took_ns = item.time_ns - first_ns;
	}
	g_array_sort(usage->values, compare_values);
	took_ns = MIN_OF(took_ns, MAX_INTERVAL_NS / SHARE) * SHARE;
	if (usage->is_whole)
		usage->whole_ns = usage->queried_ns + took_ns;
	else
		usage->interval_ns = MAX_OF(took_ns, INTERVAL_NS);
}

uint64_t memory_usage_next_ns(const struct memory_usage *usage)
{
	return usage->tasks && usage->values->len
		       ? g_array_index(usage->values, struct usage_value, 0).time_ns
		       : UINT64_MAX;
}

void memory_usage_write(struct memory_usage *usage, uint64_t reached_ns)
{
	GArray *values = usage->values;
	struct output *output;
	guint n;

	if (!usage->tasks)
		return;
	output = usage->tasks->output;
	for (n = 0; n < values->len; n++) {
		const struct usage_value *value = &g_array_index(values, struct usage_value, n);
		uint64_t bits;

		if (value->time_ns > reached_ns)
			break;
		memcpy(&bits, &value->value, sizeof(bits));
		output_need(output, &value->counter->row);
		output_add(output, PROF_TABLE_COUNTER_VALUE,
			   (const struct prof_value[]){
				   [PROF_COUNTER_VALUE_TIME] = PROF_NUMBER(value->time_ns),
				   [PROF_COUNTER_VALUE_COUNTER] =
					   PROF_NUMBER(value->counter->row.id),
				   [PROF_COUNTER_VALUE_VALUE] = PROF_NUMBER(bits),
			   });
	}
	if (n > 0)
		g_array_remove_range(values, 0, n);
}
