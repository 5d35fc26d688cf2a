/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of maps.c, images.c, tasks.c, scan.c and switches.c in daemon/engine: processes as the
 * side band and /proc report them.
 */
#include "daemon/engine/model/switches.h"
#include "tests/unit/engine.h"

static const char alive[] = "1 (name) S 1 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 100 0 0 0\n";
static const char early[] = "1 (name) S 1 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 0 0 0 0\n";
static const char ready[] = "1 (name) R 1 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 0 0 0 0\n";
static const char zombie[] = "1 (name) Z 1 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 100 0 0 0\n";
static const char kthread[] =
	"1 (kworker/0:1) I 2 0 0 0 -1 2097152 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0 0\n";

static void add_range(struct maps **maps, uint64_t start, uint64_t end, uint64_t offset,
		      uint64_t time_ns)
{
	maps_insert(maps, &(struct mapping){ .start = start,
					     .end = end,
					     .file_offset = offset,
					     .time_ns = time_ns });
}

static bool is_sorted(const struct maps *maps)
{
	uint32_t i;

	for (i = 1; i < maps->n; i++)
		if (maps->mappings[i].start < maps->mappings[i - 1].end)
			return false;
	return true;
}

static void test_maps_overlap(void)
{
	struct maps *maps = maps_new();

	add_range(&maps, 0x1000, 0x5000, 0, 1);
	add_range(&maps, 0x8000, 0x9000, 0, 1);
	add_range(&maps, 0x2000, 0x3000, 0x70000, 2);
	CHECK_INT(maps->n, 4);
	CHECK(is_sorted(maps));
	CHECK_INT(maps_find(maps, 0x1fff)->end, 0x2000);
	CHECK_INT(maps_find(maps, 0x2000)->file_offset, 0x70000);
	CHECK_INT(maps_find(maps, 0x3000)->file_offset, 0x2000);
	CHECK(maps_find(maps, 0x5000) == NULL);
	CHECK(maps_find(maps, 0) == NULL);
	CHECK(maps_find(maps, UINT64_MAX) == NULL);
	add_range(&maps, 0x0, 0x8800, 0, 3);
	CHECK_INT(maps->n, 2);
	CHECK_INT(maps_find(maps, 0x8800)->file_offset, 0x800);
	maps_unref(maps);
}

/* An anonymous mapping does not replace the program's code, but it replaces every other mapping. */
static void test_maps_copied(void)
{
	struct image program = { .kind = PROF_IMAGE_FILE, .path = (char *)"/bin/x" };
	struct image library = { .kind = PROF_IMAGE_FILE, .path = (char *)"/lib/y" };
	const struct mapping text[] = {
		{ .start = 0x2000, .end = 0x4000, .file_offset = 0x1000, .image = &program },
		{ .start = 0x5000, .end = 0x6000, .file_offset = 0x4000, .image = &program },
		{ .start = 0x7000, .end = 0x8000, .image = &library },
	};
	const struct mapping copy = { .start = 0x1000, .end = 0x9000 };
	struct maps *maps = maps_new();

	for (size_t i = 0; i < ARRAY_SIZE(text); i++)
		maps_insert(&maps, &text[i]);
	maps_insert_anonymous(&maps, &copy, "/bin/x");
	for (uint64_t at = 0x1000; at < 0x9000; at += 0x800) {
		bool is_text = (at >= 0x2000 && at < 0x4000) || (at >= 0x5000 && at < 0x6000);
		const struct mapping *found = maps_find(maps, at);

		REQUIRE(found != NULL);
		CHECK(found->image == (is_text ? &program : NULL));
		CHECK(!is_text || found->file_offset + (at - found->start) == at - 0x1000);
	}
	CHECK(maps_find(maps, 0x9000) == NULL);
	maps_unref(maps);
}

static void test_maps_fork(void)
{
	struct maps *parent = maps_new(), *child;
	uint64_t version;

	add_range(&parent, 0x1000, 0x2000, 0, 1);
	child = maps_ref(parent);
	version = parent->version;
	add_range(&child, 0x1000, 0x2000, 0x9000, 2);
	CHECK(child != parent && child->version != version);
	CHECK_INT(maps_find(parent, 0x1000)->file_offset, 0);
	CHECK_INT(maps_find(child, 0x1000)->file_offset, 0x9000);
	CHECK(parent->version == version);
	maps_unref(parent);
	maps_unref(child);
}

static void test_maps_scan(void)
{
	const struct mapping scanned[] = { { .start = 0x1000, .end = 0x2000, .time_ns = 50 },
					   { .start = 0x4000, .end = 0x6000, .time_ns = 50 } };
	struct maps *maps = maps_new();

	add_range(&maps, 0x5000, 0x7000, 0, 60);
	add_range(&maps, 0x9000, 0xa000, 0, 40);
	maps_replace(&maps, scanned, 2, 50);
	CHECK(is_sorted(maps));
	CHECK(maps_find(maps, 0x9000) == NULL);
	CHECK_INT(maps_find(maps, 0x5000)->time_ns, 60);
	CHECK_INT(maps_find(maps, 0x4000)->end, 0x5000);
	maps_unref(maps);
}

static struct image *image_at(struct images *images, const char *path, uint8_t id, uint64_t inode)
{
	uint8_t build_id[20] = { id };

	return images_of_mapping(images, &(struct image_key){ .path = path,
							      .path_bytes = strlen(path),
							      .build_id = build_id,
							      .build_id_bytes = id ? 20 : 0,
							      .dev = 1,
							      .inode = inode });
}

static void test_images(void)
{
	struct image_key key = { .path = "[vdso]", .path_bytes = 6 };
	struct images images;
	struct image *image;

	images_init(&images);
	image = image_at(&images, "/bin/x", 1, 0);
	CHECK(image == image_at(&images, "/bin/x", 1, 0));
	CHECK(image != image_at(&images, "/bin/x", 1, 55));
	CHECK(image == image_at(&images, "/bin/x (deleted)", 1, 0));
	CHECK(image != image_at(&images, "/bin/x", 2, 0));
	CHECK(image != image_at(&images, "/bin/y", 1, 0));
	CHECK(image_at(&images, "/bin/z", 0, 5) == image_at(&images, "/bin/z", 0, 5));
	CHECK(image_at(&images, "/bin/z", 0, 5) != image_at(&images, "/bin/z", 0, 6));
	CHECK_INT(image_at(&images, "[vdso]", 0, 0)->kind, PROF_IMAGE_VDSO);
	CHECK_INT(image_at(&images, "[vdso]", 0, 0)->mapped.build_id_bytes, 0);
	key.start = UINT64_C(0x7ffc00000000);
	image = images_of_mapping(&images, &key);
	CHECK_INT(image->mapped.build_id_bytes, images.vdso.build_id_bytes);
	CHECK(image->mapped.build_id_bytes > 0 && image->kind == PROF_IMAGE_VDSO);
	CHECK(image_at(&images, "//anon", 0, 0) == NULL);
	CHECK(image_at(&images, "", 0, 0) == NULL);
	CHECK(image_at(&images, "[heap]", 0, 0) == NULL);
	CHECK(image_at(&images, "/memfd:code (deleted)", 0, 9) != NULL);
	key = (struct image_key){ .path = "/memfd:jit", .path_bytes = 10, .is_shared = true };
	CHECK(images_of_mapping(&images, &key) == NULL);
	CHECK(images_by_id(&images, image->row.id) == image);
	CHECK(images_by_id(&images, UINT64_MAX) == NULL);
	images_done(&images);
}

static void fork_process(struct parts *parts, int32_t pid, int32_t ppid, uint64_t time_ns)
{
	tasks_fork(&parts->tasks,
		   &(struct task_ids){ .pid = pid, .ppid = ppid, .tid = pid, .ptid = ppid },
		   time_ns);
}

static void fork_thread(struct parts *parts, int32_t pid, int32_t tid, uint64_t time_ns)
{
	tasks_fork(&parts->tasks,
		   &(struct task_ids){ .pid = pid, .ppid = pid, .tid = tid, .ptid = pid }, time_ns);
}

static void exit_task(struct parts *parts, int32_t pid, int32_t tid, uint64_t time_ns)
{
	tasks_exit(&parts->tasks, &(struct task_ids){ .pid = pid, .tid = tid }, time_ns);
}

static void test_fork(void)
{
	struct parts parts;
	struct process *parent, *child;

	parts_init(&parts);
	parent = tasks_found(&parts.tasks, 10, 10, 1)->process;
	process_set_cmdline(parent, "prog\0-x", 8);
	process_set_exe(parent, "/bin/prog", 9);
	add_range(&parent->maps, 0x1000, 0x2000, 0, 1);
	fork_process(&parts, 11, 10, 2000);
	child = tasks_process(&parts.tasks, 11);
	REQUIRE(child);
	CHECK(child->maps == parent->maps && child->cmdline == parent->cmdline);
	CHECK_STR(child->exe, "/bin/prog");
	CHECK_INT(child->ppid, 10);
	/* the fork is reported twice more, once with an earlier time */
	fork_process(&parts, 11, 10, 2000);
	fork_process(&parts, 11, 10, 1500);
	CHECK(tasks_process(&parts.tasks, 11) == child);
	CHECK_INT(parts.tasks.n_alive, 2);
	parts_finish(&parts);
	CHECK_INT(rows_of(&parts, PROF_TABLE_TASK), 1);
	CHECK_INT(number_of(&parts, PROF_TABLE_TASK, PROF_TASK_EVENT, 0), PROF_TASK_FORK);
	parts_done(&parts);
}

static void test_exec(void)
{
	struct parts parts;
	struct process *before, *after;
	struct thread *leader;

	parts_init(&parts);
	leader = tasks_found(&parts.tasks, 10, 10, 1);
	row_ref(&leader->row);
	before = leader->process;
	fork_thread(&parts, 10, 20, 2000);
	CHECK_INT(before->n_threads, 2);
	row_ref(&before->row);
	after = tasks_exec(&parts.tasks, 10, "new", 3000);
	REQUIRE(after && after != before);
	CHECK_INT(after->exec_generation, 1);
	CHECK_INT(after->n_threads, 1);
	CHECK(after->maps_known && !after->exe && after->maps->n == 0);
	CHECK(before->gone && before->n_threads == 0);
	CHECK(tasks_thread(&parts.tasks, 10)->process == after);
	CHECK(tasks_thread(&parts.tasks, 20)->exit_ns == 3000);
	CHECK_INT(parts.tasks.n_alive, 1);
	row_unref(&before->row);
	exit_task(&parts, 10, 10, 4000);
	CHECK_INT(parts.tasks.n_alive, 0);
	/* the process has one status, whichever of its programs it is reported for */
	tasks_add_status(&parts.tasks, leader, 0);
	tasks_add_status(&parts.tasks, tasks_thread(&parts.tasks, 10), 0);
	CHECK(!leader->has_status && tasks_thread(&parts.tasks, 10)->has_status);
	row_unref(&leader->row);
	CHECK(tasks_thread(&parts.tasks, 10) != NULL);
	tasks_sweep(&parts.tasks, UINT64_C(5000000000));
	CHECK(tasks_thread(&parts.tasks, 10) == NULL);
	parts_finish(&parts);
	CHECK_INT(rows_of(&parts, PROF_TABLE_THREAD), 3);
	CHECK_INT(rows_of(&parts, PROF_TABLE_TASK), 4);
	parts_done(&parts);
}

/* The leader exits first. The process ends with its last thread. */
static void test_exit(void)
{
	struct parts parts;

	parts_init(&parts);
	tasks_found(&parts.tasks, 10, 10, 1);
	fork_thread(&parts, 10, 20, 2000);
	exit_task(&parts, 10, 10, 3000);
	CHECK_INT(parts.tasks.n_alive, 1);
	CHECK(tasks_process(&parts.tasks, 10) != NULL);
	exit_task(&parts, 10, 20, 4000);
	exit_task(&parts, 10, 20, 4001);
	CHECK_INT(parts.tasks.n_alive, 0);
	CHECK(tasks_process(&parts.tasks, 10) == NULL);
	/* the pid is reused at once */
	fork_process(&parts, 10, 1, 5000);
	CHECK_INT(parts.tasks.n_alive, 1);
	CHECK(tasks_thread(&parts.tasks, 10)->exit_ns == 0);
	tasks_sweep(&parts.tasks, UINT64_C(5000000000));
	CHECK(tasks_thread(&parts.tasks, 10) != NULL);
	parts_finish(&parts);
	parts_done(&parts);
}

/* Looks up threads by their numbers in a PID namespace, before and after these are known. */
static void test_inner(void)
{
	const uint64_t numbers[] = { 7, 3 };
	struct thread *unknown, *thread, *later;
	struct process *process;
	struct parts parts;

	parts_init(&parts);
	process = tasks_found(&parts.tasks, 10, 10, 1)->process;
	fork_thread(&parts, 10, 20, 2000);
	thread = tasks_thread(&parts.tasks, 20);
	unknown = tasks_inner_thread(&parts.tasks, process, 3, 2500);
	tasks_need(&parts.tasks, unknown);
	CHECK(unknown != thread && unknown->tid == 0);
	g_strlcpy(thread->comm, "name", sizeof(thread->comm));
	/* The numbers of the leader, and of a thread of another process, have no effect. */
	tasks_set_inner(&parts.tasks, process, 10, numbers, 2);
	tasks_set_inner(&parts.tasks, tasks_found(&parts.tasks, 11, 11, 1)->process, 20, numbers,
			2);
	CHECK_INT(unknown->tid, 0);
	tasks_set_inner(&parts.tasks, process, 20, numbers, 2);
	CHECK_INT(unknown->tid, 20);
	CHECK_STR(unknown->comm, "name");
	later = tasks_inner_thread(&parts.tasks, process, 3, 2600);
	CHECK(later == thread);
	row_unref(&later->row);
	/* The thread has exited. Earlier records belong to it, later ones to a new thread. */
	exit_task(&parts, 10, 20, 3000);
	later = tasks_inner_thread(&parts.tasks, process, 3, 3000);
	CHECK(later == thread);
	row_unref(&later->row);
	later = tasks_inner_thread(&parts.tasks, process, 3, 3001);
	CHECK(later != thread && later != unknown && later->tid == 0);
	row_unref(&later->row);
	later = tasks_inner_thread(&parts.tasks, process, 0, 3001);
	CHECK(later->tid == 0);
	row_unref(&later->row);
	later = tasks_inner_thread(&parts.tasks, process, 0, 3002);
	row_unref(&later->row);
	row_unref(&unknown->row);
	parts_finish(&parts);
	parts_done(&parts);
}

static bool apply(struct parts *parts, const struct bytes *bytes, bool again)
{
	return scan_apply(&parts->scan, bytes->data, bytes->length, 0, again);
}

static void test_filter(void)
{
	const int32_t targets[] = { 10 };
	struct bytes bytes = { .length = 0 };
	struct parts parts;

	parts_init(&parts);
	tasks_filter(&parts.tasks, targets, 1, true);
	put_text(&bytes, SNAPSHOT_STAT, 9, 1000, alive);
	put_text(&bytes, SNAPSHOT_EXE, 9, 1000, "/bin/stranger");
	put_text(&bytes, SNAPSHOT_STAT, 10, 1000, alive);
	CHECK(apply(&parts, &bytes, false));
	CHECK_INT(parts.tasks.n_alive, 1);
	fork_process(&parts, 11, 10, 2000);
	fork_process(&parts, 12, 11, 2100);
	fork_process(&parts, 13, 9, 2200);
	CHECK(tasks_exec(&parts.tasks, 13, "stranger", 2300) == NULL);
	CHECK(tasks_exec(&parts.tasks, 12, "ours", 2400) != NULL);
	CHECK(tasks_thread(&parts.tasks, 13) == NULL && tasks_process(&parts.tasks, 9) == NULL);
	CHECK_INT(parts.tasks.n_alive, 3);
	exit_task(&parts, 10, 10, 3000);
	CHECK(tasks_thread(&parts.tasks, 10) != NULL);
	/* the new process with that pid is not a target */
	fork_process(&parts, 10, 9, 4000);
	CHECK(tasks_thread(&parts.tasks, 10) == NULL);
	fork_process(&parts, 14, 10, 4100);
	CHECK(tasks_thread(&parts.tasks, 14) == NULL);
	CHECK_INT(parts.tasks.n_alive, 2);
	exit_task(&parts, 11, 11, 5000);
	exit_task(&parts, 12, 12, 5000);
	CHECK_INT(parts.tasks.n_alive, 0);
	parts_finish(&parts);
	CHECK_INT(rows_of(&parts, PROF_TABLE_PROCESS), 4);
	parts_done(&parts);
}

/* A target that has already exited is ignored. The next process with its pid is not a target. */
static void test_filter_ended(void)
{
	const int32_t targets[] = { 10, 11 };
	struct bytes bytes = { .length = 0 };
	struct parts parts;

	parts_init(&parts);
	tasks_filter(&parts.tasks, targets, 2, true);
	put_text(&bytes, SNAPSHOT_STAT, 10, 1000, alive);
	put_text(&bytes, SNAPSHOT_STAT, 11, 1000, zombie);
	CHECK(apply(&parts, &bytes, false));
	bytes.length = 0;
	put_text(&bytes, SNAPSHOT_STAT, 10, 5000, alive);
	put_text(&bytes, SNAPSHOT_STAT, 11, 5000, alive);
	CHECK(apply(&parts, &bytes, true));
	CHECK_INT(parts.tasks.n_alive, 1);
	CHECK(tasks_process(&parts.tasks, 11) == NULL);
	parts_finish(&parts);
	parts_done(&parts);
}

static void test_filter_children(void)
{
	const int32_t targets[] = { 10 };
	struct parts parts;

	parts_init(&parts);
	tasks_filter(&parts.tasks, targets, 1, false);
	tasks_found(&parts.tasks, 10, 10, 1);
	fork_process(&parts, 11, 10, 2000);
	fork_thread(&parts, 10, 12, 2000);
	CHECK(tasks_thread(&parts.tasks, 11) == NULL);
	CHECK(tasks_thread(&parts.tasks, 12) != NULL);
	parts_finish(&parts);
	parts_done(&parts);
}

static void put_mapping(struct bytes *bytes, int32_t pid, uint64_t time_ns, uint64_t start,
			uint64_t end, const char *name)
{
	struct bytes item = { .length = 0 };
	const struct snapshot_mapping mapping = { .start = start, .end = end, .inode = 5 };

	put(&item, &mapping, sizeof(mapping));
	put(&item, name, strlen(name));
	put_item(bytes, SNAPSHOT_MAPPING, pid, time_ns, item.data, item.length);
}

static void test_scan(void)
{
	struct bytes bytes = { .length = 0 };
	struct process *process;
	struct parts parts;

	parts_init(&parts);
	put_text(&bytes, SNAPSHOT_STAT, 10, 1000, alive);
	put_text(&bytes, SNAPSHOT_STATUS, 10, 1000, "Uid:\t7\nNSpid:\t10\t3\n");
	put_item(&bytes, SNAPSHOT_CMDLINE, 10, 1000, "a\0b", 4);
	put_mapping(&bytes, 10, 1001, 0x3000, 0x4000, "/bin/b");
	put_mapping(&bytes, 10, 1001, 0x1000, 0x2000, "/bin/a");
	put_mapping(&bytes, 10, 1001, 0x1800, 0x2800, "/bin/lie");
	put_text(&bytes, SNAPSHOT_STAT, 11, 1002, zombie);
	put_text(&bytes, SNAPSHOT_STAT, 12, 1003, kthread);
	CHECK(apply(&parts, &bytes, false));
	CHECK(apply(&parts, &bytes, true));
	CHECK_INT(parts.tasks.n_alive, 2);
	process = tasks_process(&parts.tasks, 10);
	REQUIRE(process);
	CHECK_INT(process->uid, 7);
	CHECK_INT(process->n_ns_pids, 1);
	CHECK_INT(process->ns_pids[0], 3);
	CHECK_INT(process->maps->n, 2);
	CHECK(is_sorted(process->maps));
	CHECK(tasks_process(&parts.tasks, 12)->kernel);
	bytes.length -= 8;
	CHECK(!apply(&parts, &bytes, false));
	parts_finish(&parts);
	CHECK_INT(rows_of(&parts, PROF_TABLE_TASK), 2);
	parts_done(&parts);
}

/* State from /proc that is older than an exec belongs to the old program. */
static void test_scan_stamps(void)
{
	struct bytes bytes = { .length = 0 };
	struct process *process;
	struct parts parts;

	parts_init(&parts);
	tasks_found(&parts.tasks, 10, 10, 1);
	process = tasks_exec(&parts.tasks, 10, "new", 2000);
	REQUIRE(process);
	add_range(&process->maps, 0x1000, 0x2000, 0, 2100);
	put_text(&bytes, SNAPSHOT_STAT, 10, 1900, alive);
	put_text(&bytes, SNAPSHOT_EXE, 10, 1900, "/bin/old");
	put_mapping(&bytes, 10, 1900, 0x1000, 0x9000, "/bin/old");
	put_text(&bytes, SNAPSHOT_CMDLINE, 10, 2050, "new");
	CHECK(apply(&parts, &bytes, false));
	CHECK(!process->exe && process->cmdline);
	CHECK_INT(process->maps->n, 1);
	/* records from before the scan have no effect */
	bytes.length = 0;
	put_text(&bytes, SNAPSHOT_STAT, 10, 3000, alive);
	CHECK(apply(&parts, &bytes, false));
	CHECK(tasks_exec(&parts.tasks, 10, "late", 2900) == NULL);
	exit_task(&parts, 10, 10, 2950);
	CHECK_INT(parts.tasks.n_alive, 1);
	parts_finish(&parts);
	parts_done(&parts);
}

/* After a gap in the side band, a scan ends the older tasks that it does not list. */
static void test_scan_unseen(void)
{
	const uint64_t second = UINT64_C(1000000000);
	struct bytes bytes = { .length = 0 };
	struct parts parts;

	parts_init(&parts);
	tasks_found(&parts.tasks, 10, 10, 1);
	tasks_found(&parts.tasks, 11, 11, 1);
	tasks_found(&parts.tasks, 12, 12, 10 * second);
	put_text(&bytes, SNAPSHOT_STAT, 10, 10 * second, alive);
	CHECK(apply(&parts, &bytes, true));
	CHECK(tasks_process(&parts.tasks, 10) && tasks_process(&parts.tasks, 12));
	CHECK(!tasks_process(&parts.tasks, 11));
	parts_finish(&parts);
	parts_done(&parts);
}

static void switch_to(struct parts *parts, struct switches *switches, int32_t from, int32_t to,
		      bool preempted, uint64_t time_ns)
{
	struct switch_event event = { .tid = from,
				      .cpu = 3,
				      .time_ns = time_ns,
				      .other_tid = to,
				      .out = true,
				      .preempted = preempted };

	switches_apply(switches, &parts->tasks, &event);
	event.out = false;
	event.tid = to;
	event.time_ns += 10;
	switches_apply(switches, &parts->tasks, &event);
}

static void test_switches(void)
{
	struct switches switches;
	struct parts parts;

	parts_init(&parts);
	switches_init(&switches, 1000);
	tasks_found(&parts.tasks, 10, 10, 1);
	tasks_found(&parts.tasks, 11, 11, 1);
	switch_to(&parts, &switches, 10, 11, true, 2000);
	switch_to(&parts, &switches, 11, 0, false, 3000);
	switch_to(&parts, &switches, 0, 99, false, 4000);
	switch_to(&parts, &switches, 99, 10, false, 5000);
	/* tid -1: an exiting thread, which is the one that entered last */
	switch_to(&parts, &switches, -1, 11, false, 6000);
	switches_end(&switches, &parts.tasks, 3, 7000);
	switches_end(&switches, &parts.tasks, 3, 8000);
	parts_finish(&parts);
	CHECK_INT(rows_of(&parts, PROF_TABLE_SWITCH), 4);
	CHECK_INT(number_of(&parts, PROF_TABLE_SWITCH, PROF_SWITCH_START, 0), 1000);
	CHECK_INT(number_of(&parts, PROF_TABLE_SWITCH, PROF_SWITCH_STATE, 0),
		  PROF_SWITCH_PREEMPTED);
	CHECK_INT(number_of(&parts, PROF_TABLE_SWITCH, PROF_SWITCH_START, 1), 2010);
	CHECK_INT(number_of(&parts, PROF_TABLE_SWITCH, PROF_SWITCH_START, 2), 5010);
	CHECK_INT(number_of(&parts, PROF_TABLE_SWITCH, PROF_SWITCH_TIME, 2), 6000);
	CHECK_INT(number_of(&parts, PROF_TABLE_SWITCH, PROF_SWITCH_STATE, 3), PROF_SWITCH_RUNNING);
	switches_done(&switches);
	parts_done(&parts);
}

/* Per-task events report switches in and out, but not the other task. */
static void test_switches_by_task(void)
{
	struct switch_event event = { 0 };
	struct switches switches;
	struct parts parts;

	parts_init(&parts);
	switches_init(&switches, 1000);
	tasks_found(&parts.tasks, 10, 10, 1);
	tasks_found(&parts.tasks, 11, 11, 1);
	for (int i = 0; i < 4; i++) {
		event.tid = i < 2 ? 10 : 11;
		event.out = i % 2;
		event.time_ns = 2000 + i * 100;
		switches_apply(&switches, &parts.tasks, &event);
	}
	CHECK_INT(switches_ran_ns(&switches, 9000), 200);
	/* the switch in was lost, so the time before this switch out is not counted */
	event.time_ns = 5000;
	switches_apply(&switches, &parts.tasks, &event);
	CHECK_INT(switches_ran_ns(&switches, 9000), 200);
	event.out = false;
	event.time_ns = 6000;
	switches_apply(&switches, &parts.tasks, &event);
	CHECK_INT(switches_ran_ns(&switches, 9000), 3200);
	switches_exit(&switches, &parts.tasks, 3, 10, 6500); /* not running here */
	switches_exit(&switches, &parts.tasks, 3, 11, 7000);
	switches_end(&switches, &parts.tasks, 3, 8000);
	CHECK_INT(switches_ran_ns(&switches, 9000), 1200);
	parts_finish(&parts);
	CHECK_INT(rows_of(&parts, PROF_TABLE_SWITCH), 4);
	CHECK_INT(number_of(&parts, PROF_TABLE_SWITCH, PROF_SWITCH_START, 2), 5000);
	switches_done(&switches);
	parts_done(&parts);
}

/* The first snapshot sets no state for the command's thread, because that thread sleeps only until
 * the recording begins. A thread that a later snapshot finds gets a state. */
static void test_switch_command(void)
{
	struct bytes bytes = { .length = 0 };
	struct parts parts;

	parts_init(&parts);
	parts.scan.begin_ns = 500;
	parts.scan.is_command = true;
	put_text(&bytes, SNAPSHOT_STAT, 10, 1000, early);
	CHECK(apply(&parts, &bytes, false));
	CHECK(tasks_thread(&parts.tasks, 10) && !tasks_thread(&parts.tasks, 10)->has_state);
	put_text(&bytes, SNAPSHOT_STAT, 11, UINT64_C(2000000000), alive);
	CHECK(apply(&parts, &bytes, true));
	CHECK(tasks_thread(&parts.tasks, 11) && tasks_thread(&parts.tasks, 11)->has_state);
	parts_finish(&parts);
	CHECK_INT(rows_of(&parts, PROF_TABLE_SWITCH), 1);
	parts_done(&parts);
}

/* A thread that is not on a CPU at the start or at the end of the recording gets a row for that
 * time. A thread that has run since the start needs none. */
static void test_switch_ends(void)
{
	static const uint64_t rows[][4] = {
		{ 500, 500, 10, PROF_SWITCH_WAIT },        { 500, 500, 11, PROF_SWITCH_RUNNABLE },
		{ 500, 500, 12, PROF_SWITCH_RUNNABLE },    { 2000, 500, 11, PROF_SWITCH_WAIT },
		{ 4000, 3000, 10, PROF_SWITCH_PREEMPTED }, { 9000, 4000, 13, PROF_SWITCH_RUNNING },
	};
	struct bytes bytes = { .length = 0 };
	struct switches switches;
	struct parts parts;
	size_t n;

	parts_init(&parts);
	parts.scan.begin_ns = 500;
	put_text(&bytes, SNAPSHOT_STAT, 10, 1000, early);
	put_text(&bytes, SNAPSHOT_STAT, 11, 1000, ready);
	put_text(&bytes, SNAPSHOT_STAT, 12, 1000, ready);
	CHECK(apply(&parts, &bytes, false));
	switches_init(&switches, 0);
	switches_seen(&switches, &parts.tasks, -1, 500);
	switches_seen(&switches, &parts.tasks, 11, 500);
	switches_seen(&switches, &parts.tasks, 12, 500); /* ignored: 11 runs here */
	switch_to(&parts, &switches, 11, 0, false, 2000);
	switch_to(&parts, &switches, 0, 10, false, 2990);
	tasks_found(&parts.tasks, 13, 13, 3000);
	switch_to(&parts, &switches, 10, 13, true, 4000);
	switches_end(&switches, &parts.tasks, 3, 9000);
	switches_note_all(&parts.tasks, false, 9000);
	parts_finish(&parts);
	n = rows_of(&parts, PROF_TABLE_SWITCH);
	/* two more rows, for 10 and 11 at the end; 12 may have run all the time on a CPU without
	 * records */
	REQUIRE(n == ARRAY_SIZE(rows) + 2);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		CHECK_INT(number_of(&parts, PROF_TABLE_SWITCH, PROF_SWITCH_TIME, i), rows[i][0]);
		CHECK_INT(number_of(&parts, PROF_TABLE_SWITCH, PROF_SWITCH_STATE, i), rows[i][3]);
	}
	CHECK_INT(number_of(&parts, PROF_TABLE_SWITCH, PROF_SWITCH_START, 3), 500);
	for (size_t i = ARRAY_SIZE(rows); i < n; i++) {
		CHECK_INT(number_of(&parts, PROF_TABLE_SWITCH, PROF_SWITCH_TIME, i), 9000);
		CHECK_INT(number_of(&parts, PROF_TABLE_SWITCH, PROF_SWITCH_START, i), 9000);
		CHECK_INT(number_of(&parts, PROF_TABLE_SWITCH, PROF_SWITCH_CPU, i),
			  PROF_SWITCH_NO_CPU);
	}
	switches_done(&switches);
	parts_done(&parts);
}

/* Time before an exec belongs to the old program, time after it to the new one. */
static void test_switch_exec(void)
{
	struct switches switches;
	struct parts parts;
	uint32_t before, after;

	parts_init(&parts);
	switches_init(&switches, 1000);
	before = tasks_found(&parts.tasks, 10, 10, 1)->row.id;
	switch_to(&parts, &switches, 0, 10, false, 2000);
	CHECK(tasks_exec(&parts.tasks, 10, "next", 3000) != NULL);
	switches_exec(&switches, &parts.tasks, 3, 10, 3000);
	after = tasks_thread(&parts.tasks, 10)->row.id;
	switch_to(&parts, &switches, 10, 0, false, 9000);
	parts_finish(&parts);
	CHECK_INT(rows_of(&parts, PROF_TABLE_SWITCH), 2);
	CHECK_INT(number_of(&parts, PROF_TABLE_SWITCH, PROF_SWITCH_THREAD, 0), before);
	CHECK_INT(number_of(&parts, PROF_TABLE_SWITCH, PROF_SWITCH_TIME, 0), 3000);
	CHECK_INT(number_of(&parts, PROF_TABLE_SWITCH, PROF_SWITCH_STATE, 0), PROF_SWITCH_RUNNING);
	CHECK_INT(number_of(&parts, PROF_TABLE_SWITCH, PROF_SWITCH_THREAD, 1), after);
	CHECK_INT(number_of(&parts, PROF_TABLE_SWITCH, PROF_SWITCH_START, 1), 3000);
	switches_done(&switches);
	parts_done(&parts);
}

int main(void)
{
	RUN(test_maps_overlap);
	RUN(test_maps_copied);
	RUN(test_maps_fork);
	RUN(test_maps_scan);
	RUN(test_images);
	RUN(test_fork);
	RUN(test_exec);
	RUN(test_exit);
	RUN(test_inner);
	RUN(test_filter);
	RUN(test_filter_ended);
	RUN(test_filter_children);
	RUN(test_scan);
	RUN(test_scan_stamps);
	RUN(test_scan_unseen);
	RUN(test_switches);
	RUN(test_switches_by_task);
	RUN(test_switch_exec);
	RUN(test_switch_command);
	RUN(test_switch_ends);
	return test_end();
}
