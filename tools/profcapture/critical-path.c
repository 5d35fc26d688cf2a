/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Four passes read the creation of threads, all waits, all states, and the samples. States and
 * samples count only inside segments: times in which the path's thread did not wait.
 * Invariant: the time of each span equals the sum over the tree's leaves [test_critical_path: sums]
 */
#include "config.h"

#include "tools/profcapture/critical-path.h"

#include "base/each.h"
#include "base/order.h"
#include "tools/common/grown-array.h"
#include "tools/common/keyed.h"
#include "tools/profcapture/run-times.h"
#include "tools/profcapture/spans.h"
#include "tools/profile/function-names.h"

#include <glib/gi18n.h>
#include <string.h>

/* A path is cut after this many threads: the waits of the last thread have no children. */
#define MAX_WALK (CCT_MAX_DEPTH / 2)
/* Limits that only hostile files, or marks of very many threads at once, exceed. */
#define MOST_SEGMENTS 8000000u
#define MOST_NODES 2000000u

struct path_wait {
	int64_t from_ns, to_ns;
	uint32_t label;
	uint32_t waker; /* index in names; NAMES_NONE: no thread */
};

struct birth {
	bool is_task; /* the task table has a row of the thread */
	bool is_exec; /* `creator` is the same thread, before it ran another program */
	/* index in names; NAMES_NONE: the thread existed when the recording began; NAMES_LOST: not
	 * known */
	uint32_t creator;
	int64_t at_ns, end_ns; /* end: 0 if the thread did not end */
};

struct path_span {
	uint32_t thread;
	int64_t from_ns, to_ns;
};

/* A time in which a thread was on the path and did not wait. */
struct segment {
	int64_t from_ns, to_ns;
	int64_t last_ns; /* the greatest to_ns of this and earlier segments of the thread */
	uint32_t node;
};

struct node_sum {
	struct path_time time;
	uint64_t samples;
};

/* ---- The tree -------------------------------------------------------------------------------- */

/* Threads with the same name and executable are shown as one. Both strings are interned. */
struct thread_name {
	const char *comm, *exe;
};

KEYED_BY(name, struct thread_name, (uintptr_t)a->comm, (uintptr_t)a->exe)

/* Returns the first thread with the same name and executable. Keeps the result of the first call
 * for each thread, because reading an epoch again can change the thread's name. */
static uint32_t first_of(struct critical_path *path, uint32_t thread)
{
	uint32_t *first = GROWN_AT(path->first_of, uint32_t, thread);
	const struct names *names = path->reader->capture->names;
	const struct names_thread *at = names_thread_at(names, thread);
	struct thread_name name = { at->comm, names_process_at(names, at->process)->exe };

	if (thread <= NAMES_LOST || *first)
		return thread <= NAMES_LOST ? thread : *first;
	*first = GPOINTER_TO_UINT(g_hash_table_lookup(path->firsts, &name));
	if (*first == 0) {
		*first = thread;
		g_hash_table_insert(path->firsts, g_memdup2(&name, sizeof(name)),
				    GUINT_TO_POINTER(thread));
	}
	return *first;
}

KEYED_BY(label, struct path_label, (uint64_t)a->kind << 32 | a->place,
	 (uint64_t)a->cause << 32 | a->waker, (uintptr_t)a->call, a->thread)

static uint32_t label_of(struct critical_path *path, const struct path_label *label)
{
	struct path_label key = *label;

	key.thread = first_of(path, label->thread);
	return keyed_index(path->label_indexes, path->labels, &key);
}

static void add_step(struct critical_path *path, const struct path_step *step)
{
	if (!path->steps || step->to_ns < step->from_ns)
		return;
	if (path->steps->len < path->most_steps)
		g_array_append_val(path->steps, *step);
	else
		g_clear_pointer(&path->steps, g_array_unref);
}

static void add_leaf(struct critical_path *path, uint32_t parent, const struct path_label *label,
		     double ns, double samples)
{
	struct cct_node *node;
	uint32_t index;

	if (!(ns > 0))
		return;
	index = cct_child(path->nodes, &path->children, parent, label_of(path, label));
	node = &g_array_index(path->nodes, struct cct_node, index);
	node->self += ns;
	node->self_count += samples;
}

/* Returns the sums of one thread. Later, sum_up() adds up those of threads with equal names. */
static struct path_thread *sums_of_thread(struct critical_path *path, uint32_t thread)
{
	struct path_thread *at = GROWN_AT(path->threads, struct path_thread, thread);

	at->thread = thread;
	return at;
}

/* ---- Threads and waits ----------------------------------------------------------------------- */

static struct birth *birth_of(struct critical_path *path, uint32_t thread)
{
	return GROWN_AT(path->births, struct birth, thread);
}

/* Returns `last`, the previous thread with the same tid, if it became `thread` by exec; else
 * NAMES_LOST. If `last` has ended, another thread of the process called exec. */
static uint32_t before_exec(struct critical_path *path, uint32_t thread, uint32_t last)
{
	const struct names *names = path->reader->capture->names;
	const struct names_process *now =
		names_process_at(names, names_thread_at(names, thread)->process);
	const struct names_process *before =
		names_process_at(names, names_thread_at(names, last)->process);

	return last > NAMES_LOST && last != thread && before->pid == now->pid &&
			       before->start_time == now->start_time &&
			       birth_of(path, last)->end_ns == 0
		       ? last
		       : NAMES_LOST;
}

/* The rows of the task table are in time order. */
static bool add_births(struct names_epoch *epoch, const struct prof_batch *batch, void *data,
		       GError **error)
{
	enum { TIME, THREAD, EVENT, PARENT };
	struct critical_path *path = data;
	const struct prof_array *c = batch->columns;

	for (size_t i = 0; i < batch->rows; i++) {
		uint32_t thread = names_thread(epoch, array_number_or(&c[THREAD], i, 0));
		uint32_t parent = names_thread(epoch, array_number_or(&c[PARENT], i, 0));
		uint64_t event = array_number_or(&c[EVENT], i, PROF_TASK_EXISTS);
		int64_t at_ns = capture_time(path->reader->capture, batch->segment,
					     array_number_or(&c[TIME], i, 0));
		struct birth birth;
		uint32_t *last;

		if (thread <= NAMES_LOST)
			continue;
		(void)first_of(path, thread);
		birth = *birth_of(path, thread);
		birth.is_task = true;
		last = number_map_at(&path->by_tid, names_thread_at(epoch->names, thread)->tid);
		if (event == PROF_TASK_EXIT)
			birth.end_ns = at_ns;
		if ((event == PROF_TASK_FORK || event == PROF_TASK_EXEC) && !birth.creator) {
			birth.at_ns = at_ns;
			birth.is_exec = event == PROF_TASK_EXEC;
			birth.creator = birth.is_exec ? before_exec(path, thread, *last)
						      : MAX_OF(parent, NAMES_LOST);
			if (birth.is_exec && birth.creator > NAMES_LOST)
				birth_of(path, birth.creator)->end_ns = at_ns;
		}
		*birth_of(path, thread) = birth;
		*last = thread;
	}
	return true;
}

static bool read_births(struct critical_path *path, GError **error)
{
	return names_each_batch(path->reader->capture->names,
				NAMES_COLUMNS(PROF_TABLE_TASK, PROF_TASK_TIME, PROF_TASK_THREAD,
					      PROF_TASK_EVENT, PROF_TASK_PARENT),
				add_births, path, error);
}

/* Returns a thread's array, which is created if needed. `size`: bytes of an element. */
static GArray *array_of(GPtrArray *arrays, uint32_t thread, guint size)
{
	if (arrays->len <= thread)
		g_ptr_array_set_size(arrays, (gint)thread + 1);
	if (!arrays->pdata[thread])
		arrays->pdata[thread] = g_array_new(FALSE, FALSE, size);
	return arrays->pdata[thread];
}

static const GArray *array_at(const GPtrArray *arrays, uint32_t thread)
{
	return thread < arrays->len ? arrays->pdata[thread] : NULL;
}

static bool add_waits(struct names_epoch *epoch, const struct prof_batch *batch, void *data,
		      GError **error)
{
	enum {
		TIME,
		THREAD,
		DURATION,
		STACK,
		STACK_SOURCE,
		STATE,
		SYSCALL,
		OBJECT,
		WAKER,
		WAKER_THREAD
	};
	struct critical_path *path = data;
	struct stack_places *places = &path->places;
	const struct prof_array *c = batch->columns;

	if (!stack_places_begin(places, epoch, error))
		return false;
	for (size_t i = 0; i < batch->rows; i++) {
		uint64_t end = array_number_or(&c[TIME], i, 0);
		uint64_t begin = end - MIN_OF(array_number_or(&c[DURATION], i, 0), end);
		uint32_t thread = names_thread(epoch, array_number_or(&c[THREAD], i, 0));
		uint32_t node = stack_places_node(places, array_number_or(&c[STACK], i, 0),
						  batch->segment, end);
		struct stack_place found = stack_places_find(places, node);
		struct path_label label = {
			.kind = PATH_WAIT,
			.place = found.place,
			.cause = found.cause,
			.call = found.call,
			.waker = (uint32_t)array_number_or(&c[WAKER], i, PROF_WAKER_UNKNOWN),
		};
		const char *call = wait_call_name(&(struct wait_call){
			.source = array_number_or(&c[STACK_SOURCE], i, PROF_STACK_NONE),
			.state = array_number_or(&c[STATE], i, PROF_WAIT_UNKNOWN),
			.call = names_text(epoch, array_number_or(&c[SYSCALL], i, 0)),
			.object = names_text(epoch, array_number_or(&c[OBJECT], i, 0)),
		});
		const char *name = NULL;
		enum wait_cause cause = call ? wait_cause_of(call, &name) : WAIT_UNKNOWN;
		struct path_wait wait = {
			.from_ns = capture_time(path->reader->capture, batch->segment, begin),
			.to_ns = capture_time(path->reader->capture, batch->segment, end),
		};

		if (thread <= NAMES_LOST)
			continue;
		if (label.waker > PROF_WAKER_OUTSIDE)
			label.waker = PROF_WAKER_UNKNOWN;
		if (cause != WAIT_UNKNOWN) {
			label.cause = cause;
			label.call = name;
		}
		if (label.waker == PROF_WAKER_THREAD)
			wait.waker = names_thread(epoch, array_number_or(&c[WAKER_THREAD], i, 0));
		/* A thread cannot end its own wait. */
		if (wait.waker <= NAMES_LOST || wait.waker == thread)
			wait.waker = NAMES_NONE;
		label.thread = wait.waker;
		wait.label = label_of(path, &label);
		g_array_append_val(array_of(path->waits, thread, sizeof(wait)), wait);
	}
	return true;
}

static bool read_waits(struct critical_path *path, GError **error)
{
	return names_each_batch(path->reader->capture->names,
				NAMES_COLUMNS(PROF_TABLE_WAIT, PROF_WAIT_TIME, PROF_WAIT_THREAD,
					      PROF_WAIT_DURATION, PROF_WAIT_STACK,
					      PROF_WAIT_STACK_SOURCE, PROF_WAIT_STATE,
					      PROF_WAIT_SYSCALL, PROF_WAIT_OBJECT, PROF_WAIT_WAKER,
					      PROF_WAIT_WAKER_THREAD),
				add_waits, path, error);
}

/* ---- The walk back --------------------------------------------------------------------------- */

static void add_segment(struct critical_path *path, uint32_t thread, uint32_t node, int64_t from_ns,
			int64_t to_ns)
{
	const struct segment segment = { from_ns, to_ns, to_ns, node };

	if (from_ns >= to_ns)
		return;
	path->is_too_large |= ++path->n_segments > MOST_SEGMENTS || path->nodes->len > MOST_NODES;
	g_array_append_val(array_of(path->segments, thread, sizeof(segment)), segment);
}

/* Returns the index of the first element whose int64_t at `offset` is greater than a time. The
 * elements are sorted by this number. A NULL array is empty. */
static guint first_after(const GArray *all, size_t offset, int64_t time_ns)
{
	guint low = 0, high = all ? all->len : 0;

	while (low < high) {
		guint middle = low + (high - low) / 2;
		int64_t ns;

		memcpy(&ns, all->data + middle * g_array_get_element_size((GArray *)all) + offset,
		       sizeof(ns));
		if (ns <= time_ns)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Returns the index of the first wait that ends after a time. */
static guint first_wait(const GArray *waits, int64_t from_ns)
{
	return first_after(waits, offsetof(struct path_wait, to_ns), from_ns);
}

/* Returns when a thread began the wait that contains a time; INT64_MAX: it did not wait then. */
static int64_t waits_since(const struct critical_path *path, uint32_t thread, int64_t time_ns)
{
	const GArray *waits = array_at(path->waits, thread);
	guint i = first_wait(waits, time_ns);

	return waits && i < waits->len &&
			       g_array_index(waits, struct path_wait, i).from_ns < time_ns
		       ? g_array_index(waits, struct path_wait, i).from_ns
		       : INT64_MAX;
}

static void walk(struct critical_path *path, uint32_t thread, int64_t from_ns, int64_t to_ns,
		 uint32_t node, unsigned depth);

/* Adds a part of a wait to its node: what the waker did meanwhile. The wait ends a little after the
 * wakeup, and by then the waker may wait again. The time since the waker's wait began, and a wait
 * that no thread ended, are the node's own time. */
static void follow(struct critical_path *path, uint32_t thread, const struct path_wait *wait,
		   int64_t from_ns, int64_t to_ns, uint32_t node, unsigned depth)
{
	int64_t until_ns = from_ns;

	path->is_deep |= wait->waker && depth >= MAX_WALK;
	if (wait->waker && depth < MAX_WALK)
		until_ns =
			MIN_OF(MAX_OF(waits_since(path, wait->waker, wait->to_ns), from_ns), to_ns);
	if (from_ns < until_ns)
		walk(path, wait->waker, from_ns, until_ns, node, depth + 1);
	g_array_index(path->nodes, struct cct_node, node).self +=
		(double)((uint64_t)to_ns - (uint64_t)until_ns);
	add_step(path,
		 &(struct path_step){
			 .from_ns = until_ns, .to_ns = to_ns, .part = PATH_OWN, .node = node });
	sums_of_thread(path, thread)->leaf_ns += (uint64_t)to_ns - (uint64_t)until_ns;
}

/* Adds to a node what a thread did in a time range, and what the threads that it waited for did. */
static void walk(struct critical_path *path, uint32_t thread, int64_t from_ns, int64_t to_ns,
		 uint32_t node, unsigned depth)
{
	const GArray *waits = array_at(path->waits, thread);
	struct birth birth = *birth_of(path, thread);

	if (birth.creator && from_ns < birth.at_ns) {
		const struct path_label label = { .kind = PATH_CREATED, .thread = birth.creator };
		int64_t until_ns = MIN_OF(birth.at_ns, to_ns);

		path->is_deep |= depth >= MAX_WALK;
		if (birth.creator <= NAMES_LOST || depth >= MAX_WALK)
			add_segment(path, thread, node, from_ns, until_ns);
		else
			walk(path, birth.creator, from_ns, until_ns,
			     birth.is_exec ? node
					   : cct_child(path->nodes, &path->children, node,
						       label_of(path, &label)),
			     depth + 1);
		from_ns = until_ns;
	}
	for (guint i = first_wait(waits, from_ns);
	     waits && i < waits->len && from_ns < to_ns && !path->is_too_large; i++) {
		const struct path_wait *wait = &g_array_index(waits, struct path_wait, i);
		int64_t begin_ns = MAX_OF(wait->from_ns, from_ns);
		int64_t end_ns = MIN_OF(wait->to_ns, to_ns);
		uint32_t child;

		if (begin_ns >= to_ns)
			break;
		if (begin_ns >= end_ns)
			continue;
		add_segment(path, thread, node, from_ns, begin_ns);
		child = cct_child(path->nodes, &path->children, node, wait->label);
		g_array_index(path->nodes, struct cct_node, child).total_count++;
		follow(path, thread, wait, begin_ns, end_ns, child, depth);
		from_ns = end_ns;
	}
	add_segment(path, thread, node, from_ns, to_ns);
}

/* Returns the time at which a thread began, even if it called exec later. The command begins at its
 * exec, because before that, profctl waited for the recording to begin. */
static int64_t begin_of(struct critical_path *path, const struct birth *birth)
{
	const struct capture *capture = path->reader->capture;
	bool is_command = capture_metadata(capture, "command") && !capture_is_system(capture);

	while (birth->is_exec && birth->creator > NAMES_LOST) {
		const struct birth *before = birth_of(path, birth->creator);

		if ((!before->creator && is_command) || before->at_ns >= birth->at_ns)
			break;
		birth = before;
	}
	return birth->at_ns;
}

static void add_root(struct critical_path *path, uint32_t thread, int64_t from_ns, int64_t to_ns)
{
	const struct path_label label = { .kind = PATH_THREAD, .thread = thread };
	const struct birth *birth = birth_of(path, thread);

	from_ns = MAX_OF(from_ns, MAX_OF(begin_of(path, birth), INT64_C(0)));
	if (birth->end_ns)
		to_ns = MIN_OF(to_ns, birth->end_ns);
	to_ns = MIN_OF(to_ns, path->reader->capture->duration_ns);
	if (from_ns < to_ns)
		walk(path, thread, from_ns, to_ns,
		     cct_child(path->nodes, &path->children, 0, label_of(path, &label)), 0);
}

static void add_span(const struct span *span, void *data)
{
	struct critical_path *path = data;
	struct reader *reader = path->reader;
	const struct path_span found = { span->thread, MAX_OF(span->start_ns, reader->from_ns),
					 MIN_OF(span->end_ns, reader->to_ns) };

	if (!span->name || strcmp(span->name, path->mark) != 0)
		return;
	path->marks++;
	if (span->kind == SPAN_WHOLE && span->thread > NAMES_LOST && found.from_ns < found.to_ns &&
	    reader_wants_thread_at(reader, span->thread, span->start_ns))
		g_array_append_val(path->spans_found, found);
}

COMPARE_BY(compare_spans, struct path_span, ORDER(a->thread, b->thread),
	   ORDER(a->from_ns, b->from_ns))

/* Joins the spans of a thread that overlap, so that their common time counts once. */
static void add_spans(struct critical_path *path)
{
	GArray *spans = path->spans_found;

	g_array_sort(spans, compare_spans);
	for (guint i = 0; i < spans->len;) {
		struct path_span all = g_array_index(spans, struct path_span, i++);

		for (; i < spans->len; i++) {
			const struct path_span *next = &g_array_index(spans, struct path_span, i);

			if (next->thread != all.thread || next->from_ns > all.to_ns)
				break;
			all.to_ns = MAX_OF(all.to_ns, next->to_ns);
		}
		add_root(path, all.thread, all.from_ns, all.to_ns);
	}
	path->spans = spans->len;
}

/* Returns whether to prefer a thread to another one. Prefers main threads, then threads of older
 * processes, then threads of a process's later programs, then older threads. */
static bool is_better(const struct names *names, uint32_t index, uint32_t than)
{
	const struct names_thread *a = names_thread_at(names, index),
				  *b = names_thread_at(names, than);
	const struct names_process *pa = names_process_at(names, a->process),
				   *pb = names_process_at(names, b->process);

	if ((a->tid == pa->pid) != (b->tid == pb->pid))
		return a->tid == pa->pid;
	if (pa->start_time != pb->start_time)
		return pa->start_time < pb->start_time;
	if (pa->exec_generation != pb->exec_generation)
		return pa->exec_generation > pb->exec_generation;
	return a->start_time < b->start_time;
}

/* Returns the best thread among those that the reader selects; NAMES_NONE: it selects none. */
static uint32_t first_thread(struct critical_path *path)
{
	struct reader *reader = path->reader;
	const struct names *names = reader->capture->names;
	uint32_t found = NAMES_NONE;

	/* Threads without a row in the task table did not run during the recording. */
	for (uint32_t i = NAMES_LOST + 1; i < path->births->len; i++)
		if (g_array_index(path->births, struct birth, i).is_task &&
		    reader_wants_thread(reader, i) && (!found || is_better(names, i, found)))
			found = i;
	return found;
}

static bool find_roots(struct critical_path *path, GError **error)
{
	struct reader *reader = path->reader;
	const struct capture *capture = reader->capture;

	if (!path->mark && capture_is_system(capture) && !reader_filters_threads(reader))
		return cli_set_error(
			error, CLI_USAGE,
			_("'%s' has the whole system: select a thread with --tid, --pid or --comm, or a mark with --mark"),
			capture->file);
	if (path->mark) {
		if (!spans_read(capture, add_span, path, error))
			return false;
		if (path->marks == 0)
			return reader_no_mark(reader, path->mark, error);
		add_spans(path);
	} else {
		path->thread = first_thread(path);
		path->spans = 1;
		if (path->thread)
			add_root(path, path->thread, reader->from_ns, reader->to_ns);
	}
	if (path->is_too_large)
		return cli_set_error(
			error, CLI_UNREADABLE,
			_("the critical path of '%s' has more than %u parts; choose a shorter "
			  "time with --from and --to"),
			capture->file, MOST_SEGMENTS);
	if (path->nodes->len == 1 && path->mark)
		return cli_set_error(
			error, CLI_NOTHING_CAPTURED,
			_("no mark '%s' of '%s' has a begin and an end, in this time and these "
			  "threads"),
			path->mark, capture->file);
	if (path->nodes->len == 1)
		return cli_set_error(error, CLI_NOTHING_CAPTURED,
				     _("'%s' has no such thread in this time"), capture->file);
	return true;
}

/* ---- States and samples of the segments ------------------------------------------------------ */

COMPARE_BY(compare_segments, struct segment, ORDER(a->from_ns, b->from_ns))

/* Segments of a thread may overlap if spans of several threads waited for it. */
static void sort_segments(struct critical_path *path)
{
	for (guint thread = 0; thread < path->segments->len; thread++) {
		GArray *segments = path->segments->pdata[thread];
		int64_t last_ns = INT64_MIN;

		if (!segments)
			continue;
		g_array_sort(segments, compare_segments);
		ARRAY_EACH(struct segment, at, segments)
			at->last_ns = last_ns = MAX_OF(last_ns, at->to_ns);
	}
}

/* Returns the index of the first segment that may end after a time. */
static guint first_segment(const GArray *segments, int64_t from_ns)
{
	return first_after(segments, offsetof(struct segment, last_ns), from_ns);
}

static const struct path_label running = { .kind = PATH_RUN };
static const struct path_label ready = { .kind = PATH_READY };
static const struct path_label waited = { .kind = PATH_WAIT,
					  .place = FUNCTION_NO_STACK,
					  .cause = WAIT_UNKNOWN,
					  .waker = PROF_WAKER_UNKNOWN };
static const struct path_label unknown = { .kind = PATH_UNKNOWN };

static void add_state(const struct run_state *state, void *data)
{
	struct critical_path *path = data;
	bool runs = state->state == PROF_SWITCH_RUNNING;
	struct path_step step = { .part = runs ? PATH_RUNNING : PATH_STATE };
	const GArray *segments = array_at(path->segments, state->thread);

	for (guint i = first_segment(segments, state->from_ns); segments && i < segments->len;
	     i++) {
		const struct segment *at = &g_array_index(segments, struct segment, i);
		int64_t from_ns = MAX_OF(at->from_ns, state->from_ns);
		int64_t to_ns = MIN_OF(at->to_ns, state->to_ns);
		uint64_t ns = (uint64_t)to_ns - (uint64_t)from_ns;
		struct path_time *times[2];

		if (at->from_ns >= state->to_ns)
			break;
		if (from_ns >= to_ns)
			continue;
		step.from_ns = from_ns;
		step.to_ns = to_ns;
		step.node = at->node;
		if (path->steps && !runs)
			step.label =
				label_of(path, state->state == PROF_SWITCH_WAIT ? &waited : &ready);
		add_step(path, &step);
		times[0] = &GROWN_AT(path->sums, struct node_sum, at->node)->time;
		times[1] = &sums_of_thread(path, state->thread)->time;
		for (unsigned j = 0; j < ARRAY_SIZE(times); j++) {
			if (state->state == PROF_SWITCH_RUNNING)
				times[j]->run_ns += ns;
			else if (state->state == PROF_SWITCH_WAIT)
				times[j]->wait_ns += ns;
			else
				times[j]->ready_ns += ns;
		}
	}
}

/* Adds a sample of a function to the segments that contain its time. */
static void add_sample(struct critical_path *path, uint32_t thread, int64_t time_ns,
		       uint32_t function)
{
	const GArray *segments = array_at(path->segments, thread);

	for (guint i = first_segment(segments, time_ns); segments && i < segments->len; i++) {
		const struct segment *at = &g_array_index(segments, struct segment, i);

		if (at->from_ns > time_ns)
			break;
		if (at->to_ns <= time_ns)
			continue;
		if (path->steps) {
			const struct path_label label = { .kind = PATH_FUNCTION,
							  .place = function };

			add_step(path, &(struct path_step){ .from_ns = time_ns,
							    .to_ns = time_ns,
							    .part = PATH_SAMPLE,
							    .node = at->node,
							    .label = label_of(path, &label) });
		}
		++*number_map_at(&path->hits, (uint64_t)at->node << 32 | function);
		GROWN_AT(path->sums, struct node_sum, at->node)->samples++;
		path->samples++;
	}
}

static bool add_samples(struct names_epoch *epoch, const struct prof_batch *batch, void *data,
			GError **error)
{
	enum { TIME, THREAD, STACK, SOURCE };
	struct critical_path *path = data;
	const struct capture *capture = path->reader->capture;
	struct stack_places *places = &path->places;
	const struct prof_array *c = batch->columns;

	if (!stack_places_begin(places, epoch, error))
		return false;
	for (size_t i = 0; i < batch->rows; i++) {
		uint32_t thread = names_thread(epoch, array_number_or(&c[THREAD], i, 0));
		uint64_t time = array_number_or(&c[TIME], i, 0);
		uint64_t source = array_number_or(&c[SOURCE], i, 0);
		struct stack_place found;

		if (!array_at(path->segments, thread) ||
		    sampled_events_of(capture->sampled, epoch->epoch, source) != path->event)
			continue;
		found = stack_places_find(
			places, stack_places_node(places, array_number_or(&c[STACK], i, 0),
						  batch->segment, time));
		add_sample(path, thread, capture_time(capture, batch->segment, time),
			   functions_whole(places->functions, found.place));
	}
	return true;
}

/* Reads the samples of the first event that measures time: other events do not show where time
 * went. */
static bool read_samples(struct critical_path *path, GError **error)
{
	struct capture *capture = path->reader->capture;

	if (!sampled_events_read(capture->sampled, capture->reader, capture->names, error))
		return false;
	for (path->event = 0; path->event < capture->sampled->all->len; path->event++) {
		const struct sampled_event *event = sampled_event_at(capture->sampled, path->event);

		if (sampled_event_is_clock(event) || g_strcmp0(event->name, "cycles") == 0)
			return names_each_batch(capture->names,
						NAMES_COLUMNS(PROF_TABLE_SAMPLE, PROF_SAMPLE_TIME,
							      PROF_SAMPLE_THREAD, PROF_SAMPLE_STACK,
							      PROF_SAMPLE_SOURCE),
						add_samples, path, error);
	}
	return true;
}

/* ---- The result ------------------------------------------------------------------------------ */

/* The samples of a function in a node. The array is sorted by key, because the order of the map
 * differs between runs, and equal children would keep that order. */
struct path_hits {
	uint64_t key;
	uint32_t samples;
};

COMPARE_BY(compare_hits, struct path_hits, ORDER(a->key, b->key))

/* Divides the running time of each node among the functions that its samples hit. */
static void add_functions(struct critical_path *path)
{
	g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(struct path_hits));
	struct path_hits next;
	size_t at = 0;

	while (number_map_next(&path->hits, &at, &next.key, &next.samples))
		g_array_append_val(all, next);
	g_array_sort(all, compare_hits);
	ARRAY_EACH(struct path_hits, hits, all) {
		uint32_t node = (uint32_t)(hits->key >> 32);
		struct node_sum sum = *GROWN_AT(path->sums, struct node_sum, node);
		const struct path_label label = { .kind = PATH_FUNCTION,
						  .place = (uint32_t)hits->key };

		add_leaf(path,
			 cct_child(path->nodes, &path->children, node, label_of(path, &running)),
			 &label, (double)sum.time.run_ns * hits->samples / (double)sum.samples,
			 hits->samples);
	}
}

/* Adds the length of every segment to the unknown time, from which add_leaves() subtracts the known
 * states. */
static void add_unknown(struct critical_path *path)
{
	for (guint thread = 0; thread < path->segments->len; thread++) {
		const GArray *segments = path->segments->pdata[thread];

		for (guint i = 0; segments && i < segments->len; i++) {
			const struct segment *at = &g_array_index(segments, struct segment, i);
			uint64_t ns = (uint64_t)at->to_ns - (uint64_t)at->from_ns;

			add_step(path, &(struct path_step){ .from_ns = at->from_ns,
							    .to_ns = at->to_ns,
							    .part = PATH_SEGMENT,
							    .node = at->node });
			GROWN_AT(path->sums, struct node_sum, at->node)->time.unknown_ns += ns;
			sums_of_thread(path, thread)->time.unknown_ns += ns;
		}
	}
}

static uint64_t less(uint64_t from, const struct path_time *time)
{
	uint64_t known = time->run_ns + time->ready_ns + time->wait_ns;

	return from > known ? from - known : 0;
}

static void add_leaves(struct critical_path *path)
{
	guint n = path->sums->len;

	for (guint node = 0; node < n; node++) {
		struct node_sum sum = g_array_index(path->sums, struct node_sum, node);

		if (sum.samples == 0)
			add_leaf(path, node, &running, (double)sum.time.run_ns, 0);
		add_leaf(path, node, &ready, (double)sum.time.ready_ns, 0);
		add_leaf(path, node, &waited, (double)sum.time.wait_ns, 0);
		add_leaf(path, node, &unknown, (double)less(sum.time.unknown_ns, &sum.time), 0);
	}
	add_functions(path);
}

/* Returns the index of the child with this label. Returns 0 if the parent has no such child. */
static uint32_t find_child(const struct critical_path *path, uint32_t parent, uint32_t label)
{
	return number_map_get(&path->children, (uint64_t)parent << 32 | label);
}

/* Replaces the node of each step by the node that its time belongs to. */
static void resolve_steps(struct critical_path *path)
{
	uint32_t runs = label_of(path, &running), nothing = label_of(path, &unknown);
	guint kept = 0;

	for (guint i = 0; path->steps && i < path->steps->len; i++) {
		struct path_step step = g_array_index(path->steps, struct path_step, i);

		if (step.part == PATH_SAMPLE)
			step.node = find_child(path, step.node, runs);
		if (step.part == PATH_STATE || step.part == PATH_SAMPLE)
			step.node = find_child(path, step.node, step.label);
		else if (step.part == PATH_RUNNING)
			step.node = find_child(path, step.node, runs);
		else if (step.part == PATH_SEGMENT)
			step.node = find_child(path, step.node, nothing);
		if (step.node)
			g_array_index(path->steps, struct path_step, kept++) = step;
	}
	if (path->steps)
		g_array_set_size(path->steps, kept);
}

COMPARE_BY(compare_threads, struct path_thread,
	   ORDER(path_time_sum(&b->time), path_time_sum(&a->time)))

static void add_time(struct path_time *to, const struct path_time *time)
{
	to->run_ns += time->run_ns;
	to->ready_ns += time->ready_ns;
	to->wait_ns += time->wait_ns;
	to->unknown_ns += time->unknown_ns;
}

static void sum_up(struct critical_path *path)
{
	g_autoptr(GArray) by_name = g_array_new(FALSE, TRUE, sizeof(struct path_thread));

	for (guint i = path->nodes->len; i-- > 0;) {
		struct cct_node node, *parent;

		node = g_array_index(path->nodes, struct cct_node, i);
		node.total += node.self;
		g_array_index(path->nodes, struct cct_node, i) = node;
		parent = &g_array_index(path->nodes, struct cct_node, node.parent);
		if (i > 0)
			parent->total += node.total;
	}
	for (guint i = 0; i < path->threads->len; i++) {
		struct path_thread at = g_array_index(path->threads, struct path_thread, i);
		struct path_thread *sum;

		if (!at.thread)
			continue;
		sum = GROWN_AT(by_name, struct path_thread, first_of(path, at.thread));
		sum->thread = first_of(path, at.thread);
		at.time.unknown_ns = less(at.time.unknown_ns, &at.time);
		at.time.wait_ns += at.leaf_ns;
		add_time(&sum->time, &at.time);
		add_time(&path->all, &at.time);
	}
	g_array_set_size(path->threads, 0);
	for (guint i = 0; i < by_name->len; i++)
		if (g_array_index(by_name, struct path_thread, i).thread)
			g_array_append_val(path->threads,
					   g_array_index(by_name, struct path_thread, i));
	g_array_sort(path->threads, compare_threads);
}

/* ---- Text ------------------------------------------------------------------------------------ */

const char *critical_path_comm(const struct critical_path *path, uint32_t thread)
{
	const char *comm = names_thread_at(path->reader->capture->names, thread)->comm;

	return comm ? comm : "-";
}

static char *name_of_place(const struct critical_path *path, uint32_t place, bool full_names)
{
	const struct function *function = functions_at(path->places.functions, place);

	if (place == FUNCTION_NO_STACK)
		return g_strdup(_("[no stack]"));
	return full_names ? g_strdup(function->name)
			  : function_name_for_people(function->name, function->raw_name);
}

/* Returns text such as "waits for worker in acquire" or "waits in save: fsync". */
static char *describe_wait(const struct critical_path *path, const struct path_label *label,
			   bool full_names)
{
	g_autofree char *place = name_of_place(path, label->place, full_names);
	const char *what = label->call ? label->call : wait_cause_names[label->cause];

	if (label->thread)
		return g_strdup_printf(_("waits for %s in %s"),
				       critical_path_comm(path, label->thread), place);
	if (label->waker == PROF_WAKER_OUTSIDE)
		return g_strdup_printf(_("waits for a thread that was not recorded, in %s: %s"),
				       place, what);
	if (label->waker == PROF_WAKER_INTERRUPT)
		return g_strdup_printf(_("waits in %s: %s"), place, what);
	return g_strdup_printf(_("waits in %s: %s, and its end is unknown"), place, what);
}

char *critical_path_name(const struct critical_path *path, uint32_t index, bool full_names)
{
	const struct path_label *label = &g_array_index(path->labels, struct path_label, index);

	switch (label->kind) {
	case PATH_THREAD:
		return g_strdup(critical_path_comm(path, label->thread));
	case PATH_RUN:
		return g_strdup(_("runs"));
	case PATH_FUNCTION:
		return name_of_place(path, label->place, full_names);
	case PATH_READY:
		return g_strdup(_("[ready, without a CPU]"));
	case PATH_WAIT:
		return describe_wait(path, label, full_names);
	case PATH_CREATED:
		return g_strdup_printf(_("is created by %s"),
				       critical_path_comm(path, label->thread));
	default:
		return g_strdup(_("[not recorded]"));
	}
}

char *critical_path_place(const struct critical_path *path, uint32_t index)
{
	uint32_t place = g_array_index(path->labels, struct path_label, index).place;

	return place > FUNCTION_LOST ? functions_place(path->places.functions, place, false) : NULL;
}

/* ---- All passes ------------------------------------------------------------------------------ */

static void free_array(gpointer pointer)
{
	g_clear_pointer(&pointer, g_array_unref);
}

bool critical_path_find(struct critical_path *path, struct reader *reader, GError **error)
{
	/* The path contains threads that the reader's filters do not select. */
	struct reader everyone = { .capture = reader->capture,
				   .from_ns = reader->from_ns,
				   .to_ns = reader->to_ns };
	g_autoptr(GArray) times = NULL;

	path->reader = reader;
	path->labels = g_array_new(FALSE, TRUE, sizeof(struct path_label));
	path->nodes = g_array_new(FALSE, TRUE, sizeof(struct cct_node));
	path->threads = g_array_new(FALSE, TRUE, sizeof(struct path_thread));
	if (path->most_steps)
		path->steps = g_array_new(FALSE, FALSE, sizeof(struct path_step));
	path->label_indexes = g_hash_table_new_full(label_hash, label_equal, g_free, NULL);
	path->firsts = g_hash_table_new_full(name_hash, name_equal, g_free, NULL);
	path->first_of = g_array_new(FALSE, TRUE, sizeof(uint32_t));
	path->spans_found = g_array_new(FALSE, FALSE, sizeof(struct path_span));
	path->waits = g_ptr_array_new_with_free_func(free_array);
	path->births = g_array_new(FALSE, TRUE, sizeof(struct birth));
	path->segments = g_ptr_array_new_with_free_func(free_array);
	path->sums = g_array_new(FALSE, TRUE, sizeof(struct node_sum));
	number_map_init(&path->children);
	number_map_init(&path->by_tid);
	number_map_init(&path->hits);
	g_array_set_size(path->nodes, 1);
	if (!stack_places_init(&path->places, reader->capture->names, error) ||
	    !read_births(path, error) || !read_waits(path, error) || !find_roots(path, error))
		return false;
	sort_segments(path);
	add_unknown(path);
	/* Reading the states may free the epoch of these stacks. */
	g_clear_pointer(&path->places.stacks, stacks_free);
	times = run_times_each_state(&everyone, add_state, path, error);
	if (!times || !read_samples(path, error))
		return false;
	add_leaves(path);
	resolve_steps(path);
	sum_up(path);
	return true;
}

void critical_path_done(struct critical_path *path)
{
	if (!path->labels)
		return;
	stack_places_done(&path->places);
	number_map_done(&path->children);
	number_map_done(&path->by_tid);
	number_map_done(&path->hits);
	g_array_unref(path->labels);
	g_array_unref(path->nodes);
	g_array_unref(path->threads);
	g_clear_pointer(&path->steps, g_array_unref);
	g_hash_table_unref(path->label_indexes);
	g_hash_table_unref(path->firsts);
	g_array_unref(path->first_of);
	g_array_unref(path->spans_found);
	g_ptr_array_unref(path->waits);
	g_array_unref(path->births);
	g_ptr_array_unref(path->segments);
	g_array_unref(path->sums);
}
