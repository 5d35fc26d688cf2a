/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Scan - applies a /proc snapshot to the task tables
 *
 * Each item has the time just before it was read. An item is not applied to a process that began
 * later, because it describes an earlier process or the program before an exec. Mappings that the
 * side band reported later are kept.
 * Invariants: (1) applying the same snapshot twice changes nothing  [test-engine-tasks: scan]
 *             (2) an item older than a process is not applied to it
 *                 [test-engine-tasks: scan_stamps]
 *             (3) a filtered session adds only its targets  [test-engine-tasks: filter]
 * Runs on the drain thread only.
 */
#include "daemon/engine/model/scan.h"

#include "arch/base.h"
#include "base/order.h"
#include "daemon/engine/model/snapshot.h"
#include "daemon/engine/model/switches.h"
#include "daemon/protocol.h"

#include <sys/sysmacros.h>

#define PF_KTHREAD 0x00200000u /* include/linux/sched.h */
#define UNSEEN_NS UINT64_C(1000000000)

struct application {
	const struct scan *scan;
	int32_t pid; /* 0: all processes */
	uint64_t first_ns;
	struct process *process; /* the process whose mappings are being collected */
	GArray *mappings;        /* struct mapping */
	uint64_t mappings_ns;
};

/* Returns the process of an item; NULL if it is not in the tables or began after the item. */
static struct process *process_of(const struct application *application,
				  const struct snapshot_item *item)
{
	struct process *process = tasks_process(application->scan->tasks, item->pid);

	return process && process->begin_ns <= item->time_ns ? process : NULL;
}

/* Adds a thread that existed before the recording. Its state in /proc is valid until its first
 * switch. */
static struct thread *add_thread(const struct application *application,
				 const struct snapshot_item *item, const struct snapshot_stat *stat)
{
	const struct scan *scan = application->scan;
	uint64_t tick_ns = UINT64_C(1000000000) / (uint64_t)sysconf(_SC_CLK_TCK), start_ns;
	struct thread *thread;

	if (!mul_u64(stat->start_ticks, tick_ns, &start_ns) || start_ns <= scan->boot_offset_ns)
		start_ns = scan->boot_offset_ns;
	thread = tasks_found(scan->tasks, item->pid, item->tid, start_ns - scan->boot_offset_ns);
	g_strlcpy(thread->comm, stat->comm, sizeof(thread->comm));
	tasks_add_row(scan->tasks, thread, PROF_TASK_EXISTS, NULL, item->time_ns);
	if (!scan->is_command || thread->start_ns >= scan->begin_ns)
		switches_note(scan->tasks, thread,
			      stat->state == 'R' ? PROF_SWITCH_RUNNABLE : PROF_SWITCH_WAIT,
			      MIN_OF(MAX_OF(scan->begin_ns, thread->start_ns), item->time_ns));
	thread->found_state = stat->state;
	return thread;
}

static void apply_stat(struct application *application, const struct snapshot_item *item)
{
	struct tasks *tasks = application->scan->tasks;
	struct thread *thread = tasks_thread(tasks, item->tid);
	struct process *process;
	struct snapshot_stat stat;

	if (application->first_ns == 0)
		application->first_ns = item->time_ns;
	if (item->pid <= 0 || item->tid <= 0 || !tasks_is_target(tasks, item->pid) ||
	    !snapshot_parse_stat(item->text, item->length, &stat))
		return;
	if (stat.state == 'Z' || stat.state == 'X')
		return;
	if (thread && (thread->start_ns > item->time_ns || thread->exit_ns > item->time_ns))
		return;
	if (!thread || thread->exit_ns) {
		/* In a snapshot of one process, skip the thread, whose fork record follows. */
		if (application->pid)
			return;
		thread = add_thread(application, item, &stat);
	} else if (thread->comm[0] == 0) {
		g_strlcpy(thread->comm, stat.comm, sizeof(thread->comm));
		output_touch(tasks->output, &thread->row);
	}
	thread->stat_ns = item->time_ns;
	process = thread->process;
	/* The leader describes the process; if it has ended, another thread does. */
	if ((item->pid != item->tid && process->stat_ns) || process->begin_ns > item->time_ns)
		return;
	process->stat_ns = item->time_ns;
	/* Keep the parent that a fork reported: stat may name a process that adopted this one. */
	if (process->ppid == 0)
		process->ppid = stat.ppid;
	process->kernel = stat.flags & PF_KTHREAD;
	output_touch(tasks->output, &process->row);
}

static void apply_status(struct application *application, const struct snapshot_item *item)
{
	struct process *process = process_of(application, item);
	struct snapshot_status status;

	if (!process || !snapshot_parse_status(item->text, item->length, &status))
		return;
	if (item->tid != item->pid) {
		if (status.n_ns_pids > 1)
			tasks_set_inner(application->scan->tasks, process, item->tid,
					status.ns_pids + 1, status.n_ns_pids - 1);
		return;
	}
	process->uid = status.uid;
	if (status.n_ns_pids > 1)
		process_set_ns_pids(process, status.ns_pids + 1, status.n_ns_pids - 1);
}

static void apply_cmdline(struct application *application, const struct snapshot_item *item)
{
	struct process *process = process_of(application, item);

	if (process)
		process_set_cmdline(process, item->text, item->length);
}

static void apply_cgroup(struct application *application, const struct snapshot_item *item)
{
	struct process *process = process_of(application, item);
	const char *path;
	size_t length;

	if (process && snapshot_parse_cgroup(item->text, item->length, &path, &length))
		process_set_cgroup(process, path, length);
}

static void apply_exe(struct application *application, const struct snapshot_item *item)
{
	struct process *process = process_of(application, item);

	if (process)
		process_set_exe(process, item->text, item->length);
}

COMPARE_BY(by_start, struct mapping, ORDER(a->start, b->start))

/* Sorts the mappings and drops overlapping ones, because the snapshot is not trusted. */
static void tidy_mappings(GArray *mappings)
{
	struct mapping *mapping, *last = NULL;
	guint from, to = 0;

	g_array_sort(mappings, by_start);
	for (from = 0; from < mappings->len; from++) {
		mapping = &g_array_index(mappings, struct mapping, from);
		if (last && mapping->start < last->end)
			continue;
		last = &g_array_index(mappings, struct mapping, to++);
		*last = *mapping;
	}
	g_array_set_size(mappings, to);
}

/* Treats anonymous code that exactly fills the gap between two parts of a file as a copy of the
 * missing part. */
static void find_copies(GArray *mappings)
{
	for (guint i = 1; i + 1 < mappings->len; i++) {
		struct mapping *mapping = &g_array_index(mappings, struct mapping, i);
		const struct mapping *before = mapping - 1, *after = mapping + 1;

		if (mapping->image || !before->image || before->image != after->image ||
		    before->end != mapping->start || mapping->end != after->start ||
		    after->file_offset - before->file_offset != after->start - before->start)
			continue;
		mapping->image = before->image;
		mapping->file_offset = before->file_offset + (mapping->start - before->start);
	}
}

static void finish_mappings(struct application *application)
{
	struct process *process = steal_ptr(&application->process);
	GArray *mappings = application->mappings;

	if (!process)
		return;
	if (application->pid == 0 || !process->maps_known) {
		tidy_mappings(mappings);
		find_copies(mappings);
		maps_replace(&process->maps, (const struct mapping *)(void *)mappings->data,
			     mappings->len, application->mappings_ns);
		process->maps_ns = application->mappings_ns;
		process->maps_known = true;
	}
	g_array_set_size(mappings, 0);
	row_unref(&process->row);
}

/* Begins collecting the mappings of the item's process. Returns false if the item does not
 * apply. */
static bool collect_for(struct application *application, const struct snapshot_item *item)
{
	struct process *process = process_of(application, item);

	if (application->process && application->process != process)
		finish_mappings(application);
	if (!process)
		return false;
	if (!application->process) {
		row_ref(&process->row);
		application->process = process;
		application->mappings_ns = item->time_ns;
	}
	return true;
}

static void collect(struct application *application, const struct snapshot_range *range,
		    uint64_t time_ns)
{
	struct image_key key = {
		.path = range->name,
		.path_bytes = range->name_bytes,
		.build_id = range->build_id,
		.build_id_bytes = range->build_id_bytes,
		.dev = makedev(range->dev_major, range->dev_minor),
		.inode = range->inode,
		.is_shared = range->is_shared,
		.start = range->start,
	};
	struct mapping mapping = {
		.start = range->start,
		.end = range->end,
		.file_offset = range->file_offset,
		.time_ns = time_ns,
	};

	if (!range->executable)
		return;
	mapping.image = images_of_mapping(application->scan->images, &key);
	g_array_append_val(application->mappings, mapping);
}

static void apply_mapping(struct application *application, const struct snapshot_item *item)
{
	struct snapshot_range range;

	if (collect_for(application, item) &&
	    snapshot_parse_mapping(item->text, item->length, &range))
		collect(application, &range, item->time_ns);
}

static void apply_maps(struct application *application, const struct snapshot_item *item)
{
	struct snapshot_range range;
	const char *text = item->text;
	size_t length = item->length;

	if (!collect_for(application, item))
		return;
	while (snapshot_next_range(&text, &length, &range))
		collect(application, &range, item->time_ns);
}

static void apply_cgroup_dir(struct application *application, const struct snapshot_item *item)
{
	uint64_t id;

	if (item->length < sizeof(id))
		return;
	memcpy(&id, item->text, sizeof(id));
	tasks_set_cgroup(application->scan->tasks, id, item->text + sizeof(id),
			 strnlen(item->text + sizeof(id), item->length - sizeof(id)));
}

static void apply_modules(struct application *application, const struct snapshot_item *item)
{
	struct snapshot_module module;
	const char *text = item->text;
	size_t length = item->length;

	while (snapshot_next_module(&text, &length, &module))
		kernel_add_region(application->scan->kernel, PROF_IMAGE_MODULE, module.name,
				  module.name_bytes, module.start, module.length);
}

static void (*const appliers[])(struct application *, const struct snapshot_item *) = {
	[SNAPSHOT_STAT] = apply_stat,       [SNAPSHOT_STATUS] = apply_status,
	[SNAPSHOT_CMDLINE] = apply_cmdline, [SNAPSHOT_CGROUP] = apply_cgroup,
	[SNAPSHOT_EXE] = apply_exe,         [SNAPSHOT_MAPS] = apply_maps,
	[SNAPSHOT_MAPPING] = apply_mapping, [SNAPSHOT_CGROUP_DIR] = apply_cgroup_dir,
	[SNAPSHOT_MODULES] = apply_modules,
};

bool scan_apply(const struct scan *scan, const void *bytes, size_t length, int32_t pid, bool again)
{
	struct application application = {
		.scan = scan,
		.pid = pid,
		.mappings = g_array_new(FALSE, FALSE, sizeof(struct mapping)),
	};
	struct snapshot snapshot = { .bytes = bytes, .length = length };
	struct process *process;
	struct snapshot_item item;

	while (snapshot_next(&snapshot, &item)) {
		if (item.kind < ARRAY_SIZE(appliers) && appliers[item.kind])
			appliers[item.kind](&application, &item);
	}
	finish_mappings(&application);
	g_array_free(application.mappings, TRUE);
	if (pid == 0)
		tasks_drop_absent(scan->tasks);
	if (pid == 0 && again && application.first_ns > UNSEEN_NS)
		tasks_end_unseen(scan->tasks, application.first_ns - UNSEEN_NS);
	process = pid ? tasks_process(scan->tasks, pid) : NULL;
	if (process)
		output_touch(scan->tasks->output, &process->row);
	return snapshot.offset == length;
}
