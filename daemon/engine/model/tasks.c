/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Tasks - the tables of processes and threads
 *
 * The side band reports forks, execs, names and exits in time order; /proc reports what existed
 * before. A record that is older than the /proc reading of its process is ignored, because the
 * reading includes its effect. A struct process has one program: exec begins a new one, with a new
 * thread. Threads that have exited can be found for two more seconds, because their last samples
 * and switches come after the exit record. With a filter, only targets and their descendants are in
 * the tables, so no other process can get into the capture.
 * Invariants: (1) a child without exec has its parent's maps, command line and program
 *                 [test-engine-tasks: fork]
 *             (2) exec ends every other thread of the process  [test-engine-tasks: exec]
 *             (3) the tables of a filtered session have targets and descendants only
 *                 [test-engine-tasks: filter]
 *             (4) with per-task events, no event is applied twice  [test-engine-samples: ranks]
 *             (5) n_alive counts the processes that have a thread  [test-engine-tasks: exit]
 * Runs on the drain thread only. events.c reads the records, and scan.c the snapshots.
 */
#include "daemon/engine/model/tasks.h"

#include "arch/base.h"

#define EXITED_NS (2 * G_GUINT64_CONSTANT(1000000000))
#define KTHREADD_PID 2
#define MAX_ARGUMENTS 512
#define MAX_CMDLINE 16384

static void write_process(struct row *row, struct output *output)
{
	struct process *process = (struct process *)row;
	uint64_t arguments[MAX_ARGUMENTS];
	const char *at = NULL, *end = NULL;
	gsize length = 0;
	size_t n = 0;

	if (process->cmdline)
		at = g_bytes_get_data(process->cmdline, &length);
	if (at)
		end = at + length;
	for (; at < end && n < MAX_ARGUMENTS; n++) {
		size_t bytes = strnlen(at, end - at);

		arguments[n] = output_string(output, at, bytes);
		at += bytes + 1;
	}
	output_add(
		output, PROF_TABLE_PROCESS,
		(const struct prof_value[]){
			[PROF_PROCESS_ID] = PROF_NUMBER(row->id),
			[PROF_PROCESS_PID] = PROF_NUMBER(MAX_OF(process->pid, 0)),
			[PROF_PROCESS_PPID] = PROF_NUMBER(MAX_OF(process->ppid, 0)),
			[PROF_PROCESS_START_TIME] = PROF_NUMBER(process->start_ns),
			[PROF_PROCESS_EXEC_GENERATION] = PROF_NUMBER(process->exec_generation),
			[PROF_PROCESS_CMDLINE] = PROF_BYTES(arguments, n),
			[PROF_PROCESS_EXE] = PROF_NUMBER(output_text(output, process->exe)),
			[PROF_PROCESS_CGROUP] = PROF_NUMBER(output_text(output, process->cgroup)),
			[PROF_PROCESS_UID] = PROF_NUMBER(process->uid),
			[PROF_PROCESS_NS_PIDS] = PROF_BYTES(process->ns_pids, process->n_ns_pids),
		});
}

static void free_process(struct row *row)
{
	struct process *process = (struct process *)row;

	g_clear_pointer(&process->cmdline, g_bytes_unref);
	if (process->exe)
		g_ref_string_release(process->exe);
	if (process->cgroup)
		g_ref_string_release(process->cgroup);
	g_free(process->ns_pids);
	g_clear_pointer(&process->inner, g_hash_table_destroy);
	maps_unref(process->maps);
	g_free(process);
}

static void write_thread(struct row *row, struct output *output)
{
	struct thread *thread = (struct thread *)row;
	const struct process *process = thread->process;
	bool leader = thread->tid == process->pid;

	output_need(output, &thread->process->row);
	output_add(output, PROF_TABLE_THREAD,
		   (const struct prof_value[]){
			   [PROF_THREAD_ID] = PROF_NUMBER(row->id),
			   [PROF_THREAD_PROCESS] = PROF_NUMBER(process->row.id),
			   [PROF_THREAD_TID] = PROF_NUMBER(MAX_OF(thread->tid, 0)),
			   [PROF_THREAD_START_TIME] = PROF_NUMBER(thread->start_ns),
			   [PROF_THREAD_COMM] = PROF_NUMBER(output_text(output, thread->comm)),
			   [PROF_THREAD_NS_TIDS] =
				   leader ? PROF_BYTES(process->ns_pids, process->n_ns_pids)
					  : PROF_BYTES(thread->ns_tids, thread->n_ns_tids),
		   });
}

/* Returns the key in process->inner of a thread with ns_tids: its tid in its own PID namespace. */
static gpointer inner_key(const struct thread *thread)
{
	return GUINT_TO_POINTER(thread->ns_tids[thread->n_ns_tids - 1]);
}

static void free_thread(struct row *row)
{
	struct thread *thread = (struct thread *)row;
	GHashTable *inner = thread->process->inner;

	if (thread->n_ns_tids && g_hash_table_lookup(inner, inner_key(thread)) == thread)
		g_hash_table_remove(inner, inner_key(thread));
	g_free(thread->ns_tids);
	row_unref(&thread->process->row);
	g_free(thread);
}

struct cgroup {
	uint64_t id;
	char *path;
	uint32_t epoch, string;
};

static void free_cgroup(gpointer data)
{
	struct cgroup *cgroup = data;

	g_free(cgroup->path);
	g_free(cgroup);
}

void tasks_set_cgroup(struct tasks *tasks, uint64_t id, const char *path, size_t length)
{
	struct cgroup *cgroup = g_new0(struct cgroup, 1);

	cgroup->id = id;
	cgroup->path = g_strndup(path, length);
	g_hash_table_replace(tasks->cgroups, &cgroup->id, cgroup);
}

uint32_t tasks_cgroup(struct tasks *tasks, uint64_t id)
{
	struct cgroup *cgroup = g_hash_table_lookup(tasks->cgroups, &id);

	if (!cgroup)
		return 0;
	if (cgroup->epoch != tasks->output->epoch) {
		cgroup->string = output_text(tasks->output, cgroup->path);
		cgroup->epoch = tasks->output->epoch;
	}
	return cgroup->string;
}

void tasks_init(struct tasks *tasks, struct output *output)
{
	*tasks = (struct tasks){ .output = output };
	tasks->processes = g_hash_table_new_full(g_direct_hash, g_direct_equal, NULL,
						 (GDestroyNotify)row_unref);
	tasks->threads = g_hash_table_new_full(g_direct_hash, g_direct_equal, NULL,
					       (GDestroyNotify)row_unref);
	tasks->targets = g_hash_table_new(g_direct_hash, g_direct_equal);
	tasks->ranks = g_hash_table_new(g_direct_hash, g_direct_equal);
	tasks->cgroups = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, free_cgroup);
}

/* Breaks the reference cycle between a process and the images of its anonymous memory. */
void process_release_images(struct process *process)
{
	struct image *anon = steal_ptr(&process->anon), *unknown = steal_ptr(&process->unknown);

	if (anon)
		row_unref(&anon->row);
	if (unknown)
		row_unref(&unknown->row);
}

void tasks_done(struct tasks *tasks)
{
	GHashTableIter iter;
	struct thread *thread;
	gpointer value;

	if (!tasks->processes)
		return;
	while ((thread = g_queue_pop_head(&tasks->exited)) != NULL) {
		process_release_images(thread->process);
		row_unref(&thread->row);
	}
	g_hash_table_iter_init(&iter, tasks->threads);
	while (g_hash_table_iter_next(&iter, NULL, &value))
		process_release_images(((struct thread *)value)->process);
	g_hash_table_destroy(tasks->threads);
	g_hash_table_destroy(tasks->processes);
	g_hash_table_destroy(tasks->targets);
	g_hash_table_destroy(tasks->ranks);
	g_hash_table_destroy(tasks->cgroups);
	*tasks = (struct tasks){ 0 };
}

void tasks_filter(struct tasks *tasks, const int32_t *pids, size_t n, bool children)
{
	tasks->filtered = true;
	tasks->children = children;
	for (size_t i = 0; i < n; i++)
		g_hash_table_add(tasks->targets, GINT_TO_POINTER(pids[i]));
}

void tasks_set_rank(struct tasks *tasks, int32_t tid, uint32_t rank)
{
	g_hash_table_insert(tasks->ranks, GINT_TO_POINTER(tid), GUINT_TO_POINTER(rank));
}

struct thread *tasks_thread(const struct tasks *tasks, int32_t tid)
{
	return g_hash_table_lookup(tasks->threads, GINT_TO_POINTER(tid));
}

struct process *tasks_process(const struct tasks *tasks, int32_t pid)
{
	return g_hash_table_lookup(tasks->processes, GINT_TO_POINTER(pid));
}

/* Ends a process; its pid may be reused. */
static void end_process(struct tasks *tasks, struct process *process, uint64_t time_ns)
{
	if (process->gone)
		return;
	process->gone = true;
	process->end_ns = time_ns;
	if (tasks->ended)
		tasks->ended(process, tasks->data);
	tasks->n_alive--;
	if (tasks_process(tasks, process->pid) == process)
		g_hash_table_remove(tasks->processes, GINT_TO_POINTER(process->pid));
}

static void end_thread(struct tasks *tasks, struct thread *thread, uint64_t time_ns)
{
	if (thread->exit_ns)
		return;
	thread->exit_ns = MAX_OF(time_ns, UINT64_C(1));
	g_hash_table_remove(tasks->ranks, GINT_TO_POINTER(thread->tid));
	row_ref(&thread->row);
	g_queue_push_tail(&tasks->exited, thread);
	row_ref(&thread->process->row);
	if (thread->process->n_threads && --thread->process->n_threads == 0) {
		end_process(tasks, thread->process, time_ns);
		g_hash_table_remove(tasks->targets, GINT_TO_POINTER(thread->process->pid));
	}
	row_unref(&thread->process->row);
}

void tasks_sweep(struct tasks *tasks, uint64_t now_ns)
{
	struct thread *thread;

	while ((thread = g_queue_peek_head(&tasks->exited)) != NULL &&
	       now_ns - thread->exit_ns > EXITED_NS && now_ns > thread->exit_ns) {
		g_queue_pop_head(&tasks->exited);
		if (thread->process->gone)
			process_release_images(thread->process);
		if (tasks_thread(tasks, thread->tid) == thread)
			g_hash_table_remove(tasks->threads, GINT_TO_POINTER(thread->tid));
		row_unref(&thread->row);
	}
}

static struct process *new_process(struct tasks *tasks, int32_t pid, uint64_t start_ns)
{
	struct process *process = g_new0(struct process, 1);
	struct process *before = tasks_process(tasks, pid);

	if (before)
		end_process(tasks, before, start_ns);
	row_init(&process->row, ++tasks->last_process, write_process, free_process);
	process->origin = process->row.id;
	process->pid = pid;
	process->start_ns = start_ns;
	process->maps = maps_new();
	g_hash_table_insert(tasks->processes, GINT_TO_POINTER(pid), process);
	tasks->n_alive++;
	return process;
}

static struct thread *new_thread(struct tasks *tasks, struct process *process, int32_t tid,
				 const char *comm, uint64_t start_ns)
{
	struct thread *thread = g_new0(struct thread, 1);
	struct thread *before = tasks_thread(tasks, tid);

	if (before)
		end_thread(tasks, before, start_ns);
	row_init(&thread->row, ++tasks->last_thread, write_thread, free_thread);
	thread->tid = tid;
	row_ref(&process->row);
	thread->process = process;
	thread->start_ns = start_ns;
	g_strlcpy(thread->comm, comm, sizeof(thread->comm));
	process->n_threads++;
	g_hash_table_replace(tasks->threads, GINT_TO_POINTER(tid), thread);
	return thread;
}

/* Makes find_inner() return this thread for its innermost tid. */
static void set_ns_tids(struct thread *thread, const uint64_t *ns_tids, size_t n)
{
	struct process *process = thread->process;

	if (!process->inner)
		process->inner = g_hash_table_new(g_direct_hash, g_direct_equal);
	g_free(thread->ns_tids);
	thread->ns_tids = g_memdup2(ns_tids, n * sizeof(*ns_tids));
	thread->n_ns_tids = n;
	g_hash_table_insert(process->inner, inner_key(thread), thread);
}

static struct thread *find_inner(const struct process *process, uint64_t inner_tid)
{
	return process->inner ? g_hash_table_lookup(process->inner, GUINT_TO_POINTER(inner_tid))
			      : NULL;
}

struct thread *tasks_leader_at(const struct tasks *tasks, int32_t pid, uint64_t time_ns)
{
	struct thread *leader = tasks_thread(tasks, pid);

	if (!leader || leader->process->pid != pid || leader->process->begin_ns <= time_ns)
		return leader && leader->process->pid == pid ? leader : NULL;
	for (GList *item = tasks->exited.tail; item; item = item->prev) {
		struct thread *thread = item->data;

		if (thread->tid == pid && thread->process->pid == pid &&
		    thread->process->begin_ns <= time_ns && thread->exit_ns >= time_ns)
			return thread;
	}
	return leader;
}

struct thread *tasks_inner_thread(struct tasks *tasks, struct process *process, uint32_t inner_tid,
				  uint64_t time_ns)
{
	struct thread *thread = find_inner(process, inner_tid);
	uint64_t number = inner_tid;

	if (thread && (thread->exit_ns == 0 || time_ns <= thread->exit_ns))
		return (struct thread *)row_ref(&thread->row);
	thread = g_new0(struct thread, 1);
	row_init(&thread->row, ++tasks->last_thread, write_thread, free_thread);
	row_ref(&process->row);
	thread->process = process;
	set_ns_tids(thread, &number, 1);
	return thread;
}

void tasks_set_inner(struct tasks *tasks, struct process *process, int32_t tid,
		     const uint64_t *ns_tids, size_t n)
{
	struct thread *thread = tasks_thread(tasks, tid), *unknown;

	if (!thread || thread->process != process || thread->exit_ns || thread->n_ns_tids ||
	    tid == process->pid)
		return;
	unknown = find_inner(process, ns_tids[n - 1]);
	set_ns_tids(thread, ns_tids, n);
	output_touch(tasks->output, &thread->row);
	if (!unknown || unknown->tid != 0)
		return;
	unknown->tid = tid;
	unknown->start_ns = thread->start_ns;
	g_strlcpy(unknown->comm, thread->comm, sizeof(unknown->comm));
	output_touch(tasks->output, &unknown->row);
}

static void add_row(struct tasks *tasks, struct thread *thread, enum prof_task_event event,
		    struct thread *parent, struct prof_value status, uint64_t time_ns)
{
	struct output *output = tasks->output;

	tasks_need(tasks, thread);
	if (parent)
		tasks_need(tasks, parent);
	output_add(output, PROF_TABLE_TASK,
		   (const struct prof_value[]){
			   [PROF_TASK_TIME] = PROF_NUMBER(time_ns),
			   [PROF_TASK_THREAD] = PROF_NUMBER(thread->row.id),
			   [PROF_TASK_EVENT] = PROF_NUMBER(event),
			   [PROF_TASK_COMM] = PROF_NUMBER(output_text(output, thread->comm)),
			   [PROF_TASK_EXIT_STATUS] = status,
			   [PROF_TASK_PARENT] = PROF_NUMBER(parent ? parent->row.id : 0),
		   });
}

void tasks_add_row(struct tasks *tasks, struct thread *thread, enum prof_task_event event,
		   struct thread *parent, uint64_t time_ns)
{
	add_row(tasks, thread, event, parent, (struct prof_value)PROF_NULL, time_ns);
}

void tasks_add_status(struct tasks *tasks, struct thread *leader, int32_t status)
{
	struct thread *last = tasks_thread(tasks, leader->tid);

	/* exec() gave the process another row, whose exit it is. */
	if (last && last->process->start_ns == leader->process->start_ns)
		leader = last;
	if (leader->has_status)
		return;
	leader->has_status = true;
	add_row(tasks, leader, PROF_TASK_STATUS, NULL,
		(struct prof_value)PROF_NUMBER((uint64_t)(int64_t)status),
		tasks->output->last_ns[PROF_TABLE_TASK]);
}

static void inherit(struct process *child, const struct process *parent)
{
	child->origin = parent->origin;
	child->uid = parent->uid;
	child->kernel = parent->kernel;
	child->program = parent->program;
	child->expects_heap = parent->expects_heap;
	child->forked_heap = parent->has_heap || parent->forked_heap;
	child->cmdline = parent->cmdline ? g_bytes_ref(parent->cmdline) : NULL;
	child->exe = parent->exe ? g_ref_string_acquire(parent->exe) : NULL;
	child->cgroup = parent->cgroup ? g_ref_string_acquire(parent->cgroup) : NULL;
	maps_unref(child->maps);
	child->maps = maps_ref(parent->maps);
	child->maps_known = parent->maps_known;
}

void tasks_fork(struct tasks *tasks, const struct task_ids *task, uint64_t time_ns)
{
	struct thread *parent = tasks_thread(tasks, task->ptid), *child;
	struct process *from = parent ? parent->process : tasks_process(tasks, task->ppid);
	struct process *process = from;
	bool is_thread = task->pid == task->ppid;

	if (task->pid <= 0 || task->tid <= 0)
		return;
	child = tasks_thread(tasks, task->tid);
	if (child && !child->exit_ns && MAX_OF(child->start_ns, child->stat_ns) >= time_ns)
		return;
	if (tasks->filtered && (!from || (!is_thread && !tasks->children))) {
		/* A thread that is not recorded has reused the tid. Its samples and children must
		 * be ignored. */
		if (child) {
			end_thread(tasks, child, time_ns);
			g_hash_table_remove(tasks->threads, GINT_TO_POINTER(task->tid));
		}
		return;
	}
	if (!is_thread) {
		process = new_process(tasks, task->pid, time_ns);
		process->begin_ns = time_ns;
		process->ppid = task->ppid;
		process->kernel = task->ppid == KTHREADD_PID;
		if (from)
			inherit(process, from);
		if (tasks->filtered)
			g_hash_table_add(tasks->targets, GINT_TO_POINTER(task->pid));
		if (from && tasks->forked)
			tasks->forked(from, process, time_ns, tasks->forked_data);
	} else if (!process) {
		process = new_process(tasks, task->pid, time_ns);
	}
	child = new_thread(tasks, process, task->tid, parent ? parent->comm : "", time_ns);
	child->rank = parent ? parent->rank : 0;
	child->cgroup = parent ? parent->cgroup : 0;
	tasks_add_row(tasks, child, PROF_TASK_FORK, parent, time_ns);
}

void tasks_exit(struct tasks *tasks, const struct task_ids *task, uint64_t time_ns)
{
	struct thread *thread = tasks_thread(tasks, task->tid);

	if (!thread || thread->exit_ns || thread->stat_ns > time_ns)
		return;
	tasks_add_row(tasks, thread, PROF_TASK_EXIT, NULL, time_ns);
	end_thread(tasks, thread, time_ns);
}

void tasks_comm(struct tasks *tasks, int32_t tid, const char *comm, uint64_t time_ns)
{
	struct thread *thread = tasks_thread(tasks, tid);

	if (!thread || thread->stat_ns > time_ns || strcmp(thread->comm, comm) == 0)
		return;
	g_strlcpy(thread->comm, comm, sizeof(thread->comm));
	tasks_add_row(tasks, thread, PROF_TASK_COMM_CHANGE, NULL, time_ns);
	output_touch(tasks->output, &thread->row);
}

/* Ends the threads of a process without writing rows, because exec has ended them. Their exit
 * records have come already, or will never come. */
static void end_threads(struct tasks *tasks, const struct process *process, uint64_t time_ns)
{
	GHashTableIter iter;
	gpointer value;

	/* Ending a thread does not change this table, so the iteration is safe. */
	g_hash_table_iter_init(&iter, tasks->threads);
	while (g_hash_table_iter_next(&iter, NULL, &value))
		if (((struct thread *)value)->process == process)
			end_thread(tasks, value, time_ns);
}

struct process *tasks_exec(struct tasks *tasks, int32_t pid, const char *comm, uint64_t time_ns)
{
	struct process *before = tasks_process(tasks, pid), *process;
	struct thread *thread = tasks_thread(tasks, pid);
	bool target = tasks->filtered && tasks_is_target(tasks, pid);
	uint32_t rank = thread ? thread->rank : 0;
	uint64_t cgroup = thread ? thread->cgroup : 0;

	if (!before && thread)
		before = thread->process;
	if (tasks->filtered && (!target || !before))
		return NULL;
	if (before && before->stat_ns > time_ns)
		return NULL;
	if (before) {
		row_ref(&before->row);
		before->replaced = true;
	}
	process = new_process(tasks, pid, time_ns);
	process->begin_ns = time_ns;
	process->maps_known = true;
	process->executed = true;
	if (before) {
		process->expects_heap = before->expects_heap;
		process->ppid = before->ppid;
		process->uid = before->uid;
		process->exec_generation = before->exec_generation + 1;
		process->start_ns = before->start_ns;
		process->cgroup = before->cgroup ? g_ref_string_acquire(before->cgroup) : NULL;
		process_set_ns_pids(process, before->ns_pids, before->n_ns_pids);
		/* Most processes have one thread. Search for others only if there are some. */
		if (thread && before->n_threads == 1 && thread->process == before)
			end_thread(tasks, thread, time_ns);
		else
			end_threads(tasks, before, time_ns);
		row_unref(&before->row);
	}
	if (target)
		g_hash_table_add(tasks->targets, GINT_TO_POINTER(pid));
	thread = new_thread(tasks, process, pid, comm, time_ns);
	thread->rank = rank;
	thread->cgroup = cgroup;
	tasks_add_row(tasks, thread, PROF_TASK_EXEC, NULL, time_ns);
	return process;
}

struct thread *tasks_found(struct tasks *tasks, int32_t pid, int32_t tid, uint64_t start_ns)
{
	struct process *process = tasks_process(tasks, pid);
	struct thread *thread;

	if (!process)
		process = new_process(tasks, pid, start_ns);
	thread = new_thread(tasks, process, tid, "", start_ns);
	thread->rank = GPOINTER_TO_UINT(g_hash_table_lookup(tasks->ranks, GINT_TO_POINTER(tid)));
	return thread;
}

static gboolean is_absent(gpointer key, gpointer value, gpointer data)
{
	return tasks_process(data, GPOINTER_TO_INT(key)) == NULL;
}

void tasks_drop_absent(struct tasks *tasks)
{
	g_hash_table_foreach_remove(tasks->targets, is_absent, tasks);
}

void tasks_end_unseen(struct tasks *tasks, uint64_t time_ns)
{
	GHashTableIter iter;
	gpointer value;

	g_hash_table_iter_init(&iter, tasks->threads);
	while (g_hash_table_iter_next(&iter, NULL, &value)) {
		struct thread *thread = value;

		if (thread->exit_ns || thread->stat_ns >= time_ns || thread->start_ns >= time_ns ||
		    thread->tid <= 0)
			continue;
		tasks_add_row(tasks, thread, PROF_TASK_EXIT, NULL, time_ns);
		end_thread(tasks, thread, time_ns);
	}
}

static void set_ref_string(char **string, const char *text, size_t length)
{
	if (*string)
		g_ref_string_release(*string);
	*string = length ? g_ref_string_new_len(text, length) : NULL;
}

struct image *process_anon_image(struct process *process, struct images *images)
{
	if (!process->anon)
		process->anon = images_new(images, PROF_IMAGE_ANON, "//anon", &process->row);
	return process->anon;
}

void process_set_exe(struct process *process, const char *path, size_t length)
{
	set_ref_string(&process->exe, path, length);
}

void process_set_cgroup(struct process *process, const char *path, size_t length)
{
	set_ref_string(&process->cgroup, path, length);
}

void process_set_cmdline(struct process *process, const char *bytes, size_t length)
{
	g_clear_pointer(&process->cmdline, g_bytes_unref);
	process->cmdline = length ? g_bytes_new(bytes, MIN_OF(length, (size_t)MAX_CMDLINE)) : NULL;
}

void process_set_ns_pids(struct process *process, const uint64_t *pids, size_t n)
{
	g_free(process->ns_pids);
	process->ns_pids = n ? g_memdup2(pids, n * sizeof(*pids)) : NULL;
	process->n_ns_pids = n;
}
