/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Perf tasks - opens events for the targets' threads instead of whole CPUs
 *
 * This is for users who may not see other processes. Each thread gets a side-band event and the
 * sampling events on each CPU; threads and processes that it creates later inherit them in the
 * kernel. The kernel removes them from a task that executes a setuid program, so such a program is
 * never recorded.
 *
 * New threads may start while events are being opened. A thread that is cloned after its parent's
 * events are complete inherits all of them; one that is cloned earlier inherits some or none. So
 * the list of threads is read until it has no new ones, and every thread on it gets events. A
 * thread may then have some events twice, inherited and its own. The rank decides which events are
 * used: those that were opened last are complete, and those of a lower rank are ignored
 * (engine/model/tasks.h: thread_accepts). A process that a target forks meanwhile is not recorded,
 * because it began before the recording.
 *
 * A tid may be reused between listing and opening. For an unprivileged profd, the kernel checks
 * what it may open. If root opens events for a user, the process is checked before and after, and
 * pinned by a pidfd. Opening events for thousands of threads takes long, and profd has other
 * clients. So all this runs in a separate thread, which reads only the data that it is given.
 * Invariants: (1) a process that has ended, or is not entirely the user's if that is required,
 *                 keeps no event  [test_tasks: test_own_only_refuses]
 *             (2) no event is enabled here
 *             (3) one user's threads do not take the descriptors that others need
 *                 [test_bus_limits]
 */
#include "config.h"

#include "daemon/broker/perf-tasks.h"

#include "arch/base.h"
#include "daemon/broker/error.h"
#include "daemon/broker/limits.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

#define MAX_PASSES 32 /* limit for a process that clones endlessly */
#define MAX_FEW 4096  /* number of events that take about 20 ms to open */

struct perf_tasks {
	const struct perf_plan *plan;
	const GArray *cpus; /* struct perf_cpu */
	const struct access *access;
	const struct targets *targets;
	bool wants_interpreters;
	GArray *pids;   /* int32_t */
	GArray *events; /* struct perf_task_event */
	uint32_t rank;
	unsigned reserved;                 /* descriptors counted in `reservations` */
	struct interpreters *interpreters; /* NULL: not wanted, or failed */
	GError *no_interpreters;
	GThread *thread;
	int cancelled; /* stop opening events */
	bool ok;
	GError *error;
	void (*done)(void *data);
	void *data;
};

/* Returns the number of events of a thread on a CPU: the side band, the sources, and sleeps. */
static unsigned events_a_cpu(const struct perf_plan *plan)
{
	return 1 + plan->n_events + (plan->sleep_id != 0);
}

static unsigned events_a_thread(const struct perf_tasks *opening)
{
	return opening->cpus->len * events_a_cpu(opening->plan);
}

/* Event descriptors for each user's threads, over all sessions being opened: uid → count. */
static struct {
	pthread_mutex_t lock;
	GHashTable *of_users;
	unsigned of_all;
} reservations = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Reserves n more descriptors; releases them if n is negative. */
static bool reserve(struct perf_tasks *opening, int n, GError **error)
{
	gpointer key = GUINT_TO_POINTER(opening->access->uid);
	unsigned sum;
	bool ok;

	if (!opening->access->limited || n == 0)
		return true;
	pthread_mutex_lock(&reservations.lock);
	if (!reservations.of_users)
		reservations.of_users = g_hash_table_new(NULL, NULL);
	sum = GPOINTER_TO_UINT(g_hash_table_lookup(reservations.of_users, key)) + (unsigned)n;
	ok = n < 0 || limits_check_thread_events(opening->access, reservations.of_all + (unsigned)n,
						 sum, events_a_thread(opening), error);
	if (ok && sum)
		g_hash_table_insert(reservations.of_users, key, GUINT_TO_POINTER(sum));
	else if (ok)
		g_hash_table_remove(reservations.of_users, key);
	reservations.of_all += ok ? (unsigned)n : 0;
	pthread_mutex_unlock(&reservations.lock);
	if (ok)
		opening->reserved += (unsigned)n;
	return ok;
}

static bool is_cancelled(struct perf_tasks *opening)
{
	return g_atomic_int_get(&opening->cancelled);
}

static void clear_event(void *data)
{
	struct perf_task_event *event = data;

	if (event->fd >= 0)
		close(event->fd);
	event->fd = -1;
}

static bool fail_limit(const struct perf_tasks *opening, GError **error)
{
	unsigned a_thread = events_a_thread(opening);
	struct rlimit limit = { 0 };

	getrlimit(RLIMIT_NOFILE, &limit);
	return broker_fail(
		error, BROKER_ERROR_LIMIT_EXCEEDED,
		"too many open files: recording by task needs %u for each thread (%u CPUs, %u events and "
		"one more), and %u threads were opened; raise `ulimit -n` (now %llu)",
		a_thread, opening->cpus->len, opening->plan->n_events,
		opening->events->len / a_thread, (unsigned long long)limit.rlim_cur);
}

static bool fail_task(const struct perf_tasks *opening, const struct event *event, pid_t tid,
		      unsigned cpu, int failed, GError **error)
{
	if (failed == EMFILE || failed == ENFILE)
		return fail_limit(opening, error);
	if ((failed == EACCES || failed == EPERM) && !event)
		return broker_fail(
			error, BROKER_ERROR_NOT_AUTHORIZED,
			"cannot record process %d: it is another user's, runs a setuid or unreadable "
			"program, or has capabilities. Use sudo, CAP_PERFMON or the profd service.",
			tid);
	return perf_fail_open(event, cpu, failed, error);
}

/* Attaches to an event the BPF program that reads the frames of interpreted programs. If that
 * fails, the BPF program is used at no event. It does nothing until it is given a process. */
static void attach(struct perf_tasks *opening, const struct event *event, int fd)
{
	if (!opening->interpreters ||
	    interpreters_attach(opening->interpreters, event, fd, &opening->no_interpreters))
		return;
	g_clear_pointer(&opening->interpreters, interpreters_free);
}

/* Opens an event. *ret_gone: the thread no longer exists. */
static bool open_event(struct perf_tasks *opening, unsigned position, pid_t tid, unsigned cpu,
		       bool *ret_gone, GError **error)
{
	const struct perf_plan *plan = opening->plan;
	bool sleeps = position == ENGINE_POSITION_SLEEPS;
	const struct event *event = sleeps     ? &plan->events[plan->n_events - 1]
				    : position ? &plan->events[position - 1]
					       : NULL;
	struct perf_event_attr attr = sleeps  ? perf_sleep_attr(plan)
				      : event ? perf_source_attr(plan, event)
					      : perf_side_band_attr(plan);
	struct perf_task_event opened = {
		.fd = perf_open_event(&attr, tid, (int)cpu),
		.cpu = cpu,
		.rank = opening->rank,
		.tid = tid,
		.position = position,
	};

	*ret_gone = opened.fd < 0 && errno == ESRCH;
	if (opened.fd >= 0) {
		g_array_append_val(opening->events, opened);
		if (event && !sleeps)
			attach(opening, event, opened.fd);
		if (ioctl(opened.fd, PERF_EVENT_IOC_ID,
			  &g_array_index(opening->events, struct perf_task_event,
					 opening->events->len - 1)
				   .id) == 0)
			return !event || perf_set_filter(opened.fd, event, error);
	}
	return !*ret_gone && fail_task(opening, event, tid, cpu, errno, error);
}

/* Opens all events of a thread, or none if the thread ends meanwhile. */
static bool open_thread(struct perf_tasks *opening, pid_t tid, GError **error)
{
	unsigned before = opening->events->len;
	bool gone = false;

	if (!reserve(opening, (int)events_a_thread(opening), error))
		return false;
	opening->rank++;
	for (unsigned i = 0; i < opening->cpus->len; i++)
		for (unsigned n = 0; n < events_a_cpu(opening->plan); n++) {
			unsigned cpu = g_array_index(opening->cpus, struct perf_cpu, i).cpu;
			unsigned position = n <= opening->plan->n_events ? n
									 : ENGINE_POSITION_SLEEPS;

			if (open_event(opening, position, tid, cpu, &gone, error))
				continue;
			if (gone)
				g_array_set_size(opening->events, before);
			return gone;
		}
	return true;
}

/* Opens events for threads that are not in `seen`. *ret_found: there was such a thread. */
static bool open_new_threads(struct perf_tasks *opening, pid_t pid, GHashTable *seen,
			     bool *ret_found, GError **error)
{
	g_autoptr(GArray) tids = g_array_new(FALSE, FALSE, sizeof(pid_t));
	struct dirent *entry;
	char path[32];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);

		if (tid > 0 && g_hash_table_add(seen, GINT_TO_POINTER(tid)))
			g_array_append_val(tids, tid);
	}
	if (dir)
		closedir(dir);
	for (unsigned i = 0; i < tids->len && !is_cancelled(opening); i++)
		if (!open_thread(opening, g_array_index(tids, pid_t, i), error))
			return false;
	*ret_found = tids->len > 0;
	return true;
}

/* Opens the events of a process. *ret_gone: the process has ended and keeps no events. */
static bool open_process(struct perf_tasks *opening, pid_t pid, bool *ret_gone, GError **error)
{
	const struct access *access = opening->access;
	g_autoptr(GHashTable) seen = g_hash_table_new(NULL, NULL);
	CLEANUP_CLOSE int pidfd = target_open(pid);
	unsigned before = opening->events->len;
	bool found = pidfd >= 0, owned = true;

	if (pidfd >= 0 && access->own_only)
		owned = found = target_is_owned(pidfd, pid, access->uid);
	for (unsigned pass = 0; found && pass < MAX_PASSES && !is_cancelled(opening); pass++)
		if (!open_new_threads(opening, pid, seen, &found, error))
			return false;
	if (owned && access->own_only)
		owned = pidfd >= 0 && target_is_owned(pidfd, pid, access->uid);
	/* Check this last: if the process lives, everything above was about this process. */
	*ret_gone = pidfd < 0 || !target_is_alive(pidfd);
	if (*ret_gone)
		g_array_set_size(opening->events, before);
	return *ret_gone || owned ||
	       broker_fail(error, BROKER_ERROR_NOT_AUTHORIZED,
			   "process %d is not wholly your own: another user's, or it runs a setuid "
			   "program, has capabilities or cannot be inspected",
			   pid);
}

static bool open_all(struct perf_tasks *opening, GError **error)
{
	GArray *pids = opening->pids;
	unsigned left = 0;

	for (unsigned i = 0; i < pids->len && !is_cancelled(opening); i++) {
		int32_t pid = g_array_index(pids, int32_t, i);
		bool gone;

		if (!open_process(opening, pid, &gone, error))
			return false;
		if (!gone)
			g_array_index(pids, int32_t, left++) = pid;
	}
	if (is_cancelled(opening))
		return true;
	if (left == 0)
		return broker_fail(error, BROKER_ERROR_FAILED,
				   "process %d ended before it could be recorded",
				   g_array_index(pids, int32_t, 0));
	g_array_set_size(pids, left);
	/* Check the targets last: if they still run, no pid was reused meanwhile. */
	return !opening->targets ||
	       targets_check(opening->targets,
			     opening->access->own_only ? opening->access->uid : TARGETS_ANY_USER,
			     error);
}

static gboolean on_done(gpointer data)
{
	struct perf_tasks *opening = data;

	opening->done(opening->data); /* frees `opening` */
	return G_SOURCE_REMOVE;
}

static gpointer run(gpointer data)
{
	struct perf_tasks *opening = data;

	/* Load the BPF program first, so that it is attached to each event before a child inherits
	 * the event. */
	if (opening->wants_interpreters && !is_cancelled(opening))
		opening->interpreters = interpreters_new(~0u, opening->plan->sleep_id != 0,
							 &opening->no_interpreters);
	opening->ok = open_all(opening, &opening->error);
	g_idle_add_full(G_PRIORITY_DEFAULT, on_done, opening, NULL);
	return NULL;
}

static unsigned count_threads(pid_t pid)
{
	char path[32];
	const struct dirent *entry;
	unsigned n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	while (dir && (entry = readdir(dir)))
		n += entry->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return n;
}

bool perf_tasks_are_few(const struct perf_plan *plan, const int32_t *pids, unsigned n_pids)
{
	g_autoptr(GArray) cpus = NULL;
	struct rlimit limit = { 0 };
	uint64_t n = 0;

	getrlimit(RLIMIT_NOFILE, &limit);
	if (n_pids == 0 || !perf_online_cpus(&cpus, NULL))
		return false;
	for (unsigned i = 0; i < n_pids; i++)
		n += count_threads(pids[i]);
	return n * cpus->len * events_a_cpu(plan) <=
	       MIN_OF((uint64_t)MAX_FEW, (uint64_t)limit.rlim_cur / 4);
}

struct perf_tasks *perf_tasks_new(const struct perf_tasks_options *options, GError **error)
{
	struct perf_tasks *opening = g_new0(struct perf_tasks, 1);

	opening->plan = options->plan;
	opening->cpus = options->cpus;
	opening->access = options->access;
	opening->targets = options->targets;
	opening->wants_interpreters = options->interpreters;
	opening->done = options->done;
	opening->data = options->data;
	opening->pids = g_array_new(FALSE, FALSE, sizeof(int32_t));
	g_array_append_vals(opening->pids, options->pids, options->n_pids);
	opening->events = g_array_new(FALSE, TRUE, sizeof(struct perf_task_event));
	g_array_set_clear_func(opening->events, clear_event);
	opening->thread = g_thread_try_new("open-events", run, opening, error);
	if (opening->thread)
		return opening;
	perf_tasks_free(opening);
	return NULL;
}

void perf_tasks_cancel(struct perf_tasks *opening)
{
	g_atomic_int_set(&opening->cancelled, true);
}

bool perf_tasks_steal(struct perf_tasks *opening, int32_t *pids, unsigned *n_pids,
		      GArray **ret_events, GError **error)
{
	g_thread_join(g_steal_pointer(&opening->thread));
	if (!opening->ok) {
		g_propagate_error(error, g_steal_pointer(&opening->error));
		return false;
	}
	if (is_cancelled(opening))
		g_array_set_size(opening->events, 0);
	memcpy(pids, opening->pids->data, opening->pids->len * sizeof(*pids));
	*n_pids = opening->pids->len;
	*ret_events = g_steal_pointer(&opening->events);
	return true;
}

struct interpreters *perf_tasks_steal_interpreters(struct perf_tasks *opening, GError **ret_reason)
{
	*ret_reason = g_steal_pointer(&opening->no_interpreters);
	return g_steal_pointer(&opening->interpreters);
}

void perf_tasks_free(struct perf_tasks *opening)
{
	if (!opening)
		return;
	perf_tasks_cancel(opening);
	if (opening->thread)
		g_thread_join(opening->thread);
	g_idle_remove_by_data(opening);
	(void)reserve(opening, -(int)opening->reserved, NULL);
	g_array_unref(opening->pids);
	g_clear_pointer(&opening->events, g_array_unref);
	interpreters_free(opening->interpreters);
	g_clear_error(&opening->no_interpreters);
	g_clear_error(&opening->error);
	g_free(opening);
}
