/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Heap, excluded - records which processes reported no allocations, and why
 *
 * Allocations are expected of some processes and their descendants. The collector is preloaded into
 * their programs. It registers at the first allocation, unless it lacks memory or descriptors. A
 * process without a registration gets one row in the table heap when it ends or when the session
 * does, so that missing allocations are not mistaken for no allocations. Here a process is a struct
 * process: exec replaces it by another one. A forked process that soon executes a program gets no
 * row, nor does one that uses its parent's collector. If the library was mapped, it gives the
 * reason (libcollector/control.h). Otherwise the reason follows from the program's file: it has no
 * dynamic linker (static); it has another architecture or libc, so that it cannot load the library;
 * exec gives it rights, so that the linker ignores the library; or else the program was started
 * with an environment that does not name the library. The file is requested when it is mapped,
 * because its path may lead elsewhere later. If exec gives rights, perf reports the end of the
 * process before anything is mapped (fs/exec.c, begin_new_exec: perf_event_exit_task() of a process
 * that is not dumpable). Most programs with rights are recognized by this early end.
 * Invariants: (1) at most one row per process, and none for a registered one
 *                 [test-engine-heap-excluded: once]
 *             (2) no row is later than the time that the collectors' merge has reached
 *                 [test-engine-heap-excluded: order]
 *             (3) an unanswered request for an image delays a row by at most WAIT_NS
 *                                                              [test-engine-heap-excluded: silence]
 * Runs on the drain thread only.
 */
#include "daemon/engine/alloc/heap-excluded.h"

#include "base/order.h"
#include "libcollector/control.h"

#define LIBRARY "/libprofpreload-memory.so"
#define SECOND_NS UINT64_C(1000000000)
#define REGISTERS_NS SECOND_NS /* after this time, a registration in progress has arrived */
#define WAIT_NS (4 * SECOND_NS)

/* Gets the reason that the library gives for not recording (libcollector/control.h). Returns false
 * if the library was never mapped. */
static bool get_library_reason(const struct process *process, enum engine_excluded *ret_reason)
{
	static const enum engine_excluded reasons[CONTROL_N_REASONS] = {
		[CONTROL_REASON_NONE] = ENGINE_EXCLUDED_NEVER_ALLOCATED,
		[CONTROL_REASON_NO_DESCRIPTORS] = ENGINE_EXCLUDED_NO_DESCRIPTORS,
		[CONTROL_REASON_NO_MEMORY] = ENGINE_EXCLUDED_NO_MEMORY,
		[CONTROL_REASON_SANITIZER] = ENGINE_EXCLUDED_SANITIZER,
		[CONTROL_REASON_ENVIRONMENT] = ENGINE_EXCLUDED_ENVIRONMENT,
		[CONTROL_REASON_OTHER] = ENGINE_EXCLUDED_UNREGISTERED,
	};
	enum control_reason reason = CONTROL_REASON_NONE;
	const struct maps *maps = process->maps;
	bool is_mapped = false;

	for (uint32_t i = 0; i < maps->n; i++) {
		const struct mapping *mapping = &maps->mappings[i];
		uint64_t pages = (mapping->end - mapping->start) / CONTROL_REASON_PAGE;

		if (!mapping->image || !g_str_has_suffix(mapping->image->path, LIBRARY))
			continue;
		is_mapped = true;
		if (pages < CONTROL_N_REASONS)
			reason = (enum control_reason)pages;
	}
	/* The library gives its reason as a number of pages of CONTROL_REASON_PAGE bytes. If the
	 * kernel's pages have another size, no mapping gives a reason, so the reason is unknown. */
	if (reason == CONTROL_REASON_NONE && sysconf(_SC_PAGESIZE) != CONTROL_REASON_PAGE)
		reason = CONTROL_REASON_OTHER;
	*ret_reason = reasons[reason];
	return is_mapped;
}

/* Returns whether the process should have reported allocations. None are expected of a forked
 * process that an exec replaced, or whose parent has a collector, because the child's copy of that
 * collector registers at the child's first allocation. */
static bool is_expected(const struct process *process)
{
	enum engine_excluded reason;

	if (!process->expects_heap || process->kernel)
		return false;
	if (process->executed || process->refused_heap ||
	    (!process->has_heap && get_library_reason(process, &reason) &&
	     reason != ENGINE_EXCLUDED_NEVER_ALLOCATED))
		return true;
	return !process->replaced && !process->forked_heap;
}

static void on_ended(struct process *process, void *data)
{
	struct heap_excluded *excluded = data;

	/* Keep registered processes, too, because the engine may learn later that such a process
	 * could not map its arena, and then clears has_heap. */
	if (is_expected(process))
		g_queue_push_tail(&excluded->ended, row_ref(&process->row));
}

void heap_excluded_begin(struct heap_excluded *excluded, struct tasks *tasks, const int32_t *pids,
			 size_t n)
{
	excluded->tasks = tasks;
	for (size_t i = 0; i < n; i++) {
		struct process *process = tasks_process(tasks, pids[i]);

		if (process)
			process->expects_heap = true;
	}
	tasks->ended = on_ended;
	tasks->data = excluded;
}

static void drop(gpointer row)
{
	row_unref(row);
}

void heap_excluded_done(struct heap_excluded *excluded)
{
	if (excluded->tasks)
		excluded->tasks->ended = NULL;
	g_queue_clear_full(&excluded->ended, drop);
	*excluded = (struct heap_excluded){ 0 };
}

void heap_excluded_program(struct heap_excluded *excluded, struct process *process,
			   const struct mapping *mapping)
{
	struct image *image = mapping->image;

	if (!process->expects_heap || !image_may_request(image, process->pid))
		return;
	image->requested = true;
	excluded->request_image(image, mapping, process->pid, excluded->data);
}

/* ---- Reasons --------------------------------------------------------------------------------- */

/* Returns the program's image, or NULL. In a process that ran before the recording, it is the image
 * with the path from /proc. */
static const struct image *program_of(const struct process *process)
{
	const struct maps *maps = process->maps;

	if (process->program || !process->exe)
		return process->program;
	for (uint32_t i = 0; i < maps->n; i++) {
		const struct image *image = maps->mappings[i].image;

		if (image && image->kind == PROF_IMAGE_FILE &&
		    strcmp(image->path, process->exe) == 0)
			return image;
	}
	return NULL;
}

/* Returns whether exec gives the program rights. A setuid bit does so only if the file's owner is
 * not the user who executed it. */
static bool gives_rights(const struct process *process, const struct image *image)
{
	if (image->rights & MESSAGE_IMAGE_SETGID)
		return true;
	if (image->rights & MESSAGE_IMAGE_CAPABILITIES)
		return process->uid != 0;
	return image->rights & MESSAGE_IMAGE_SETUID && image->owner != process->uid;
}

/* Finds the reason why the process's allocations are not recorded. Returns false while the request
 * for the program's file is unanswered. */
static bool find_reason(const struct process *process, enum engine_excluded *ret_reason)
{
	const struct image *image = program_of(process);
	bool is_mapped = get_library_reason(process, ret_reason);

	if (is_mapped)
		return true;
	*ret_reason = ENGINE_EXCLUDED_UNREGISTERED;
	if (!image && process->executed && process->gone && process->maps->n == 0)
		*ret_reason = ENGINE_EXCLUDED_SETUID;
	if (!image)
		return true;
	if (image->program == IMAGE_PROGRAM_STATIC)
		*ret_reason = ENGINE_EXCLUDED_STATIC;
	else if (image->program == IMAGE_PROGRAM_OTHER_ARCH)
		*ret_reason = ENGINE_EXCLUDED_OTHER_ARCH;
	else if (gives_rights(process, image))
		*ret_reason = ENGINE_EXCLUDED_SETUID;
	else if (image->program == IMAGE_PROGRAM_OTHER_LIBC)
		*ret_reason = ENGINE_EXCLUDED_OTHER_LIBC;
	else if (image->program == IMAGE_PROGRAM_DYNAMIC && process->executed)
		*ret_reason = ENGINE_EXCLUDED_ENVIRONMENT;
	return image->program != IMAGE_PROGRAM_UNKNOWN || !image->requested;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static void write_row(struct heap_excluded *excluded, struct process *process, uint64_t time_ns,
		      enum engine_excluded reason)
{
	static const enum prof_heap_event events[] = {
		[ENGINE_EXCLUDED_STATIC] = PROF_HEAP_STATIC,
		[ENGINE_EXCLUDED_SETUID] = PROF_HEAP_SETUID,
		[ENGINE_EXCLUDED_OTHER_ARCH] = PROF_HEAP_OTHER_ARCH,
		[ENGINE_EXCLUDED_UNREGISTERED] = PROF_HEAP_UNREGISTERED,
		[ENGINE_EXCLUDED_OTHER_LIBC] = PROF_HEAP_OTHER_LIBC,
		[ENGINE_EXCLUDED_ENVIRONMENT] = PROF_HEAP_ENVIRONMENT,
		[ENGINE_EXCLUDED_NO_DESCRIPTORS] = PROF_HEAP_NO_DESCRIPTORS,
		[ENGINE_EXCLUDED_NO_MEMORY] = PROF_HEAP_NO_MEMORY,
		[ENGINE_EXCLUDED_SANITIZER] = PROF_HEAP_SANITIZER,
		[ENGINE_EXCLUDED_NEVER_ALLOCATED] = PROF_HEAP_NEVER_ALLOCATED,
	};
	struct output *output = excluded->tasks->output;

	excluded->counts[reason]++;
	output_need(output, &process->row);
	output_add(output, PROF_TABLE_HEAP,
		   (const struct prof_value[]){
			   [PROF_HEAP_TIME] = PROF_NUMBER(time_ns),
			   [PROF_HEAP_PROCESS] = PROF_NUMBER(process->row.id),
			   [PROF_HEAP_EVENT] = PROF_NUMBER(events[reason]),
			   [PROF_HEAP_LIVE_BYTES] = PROF_NUMBER(0),
			   [PROF_HEAP_LIVE_BLOCKS] = PROF_NUMBER(0),
			   [PROF_HEAP_PEAK_BYTES] = PROF_NUMBER(0),
			   [PROF_HEAP_PEAK_TIME] = PROF_NUMBER(time_ns),
			   [PROF_HEAP_INHERITED] = PROF_NUMBER(0),
		   });
}

void heap_excluded_run(struct heap_excluded *excluded, uint64_t now_ns, uint64_t reached_ns)
{
	enum engine_excluded reason;
	struct process *process;

	while ((process = g_queue_peek_head(&excluded->ended)) != NULL &&
	       process->end_ns <= reached_ns && now_ns >= process->end_ns + REGISTERS_NS) {
		if (!find_reason(process, &reason) && !process->has_heap &&
		    now_ns < process->end_ns + WAIT_NS)
			return;
		if (!process->has_heap)
			write_row(excluded, process, process->end_ns, reason);
		row_unref(g_queue_pop_head(&excluded->ended));
	}
}

bool heap_excluded_waits(const struct heap_excluded *excluded)
{
	enum engine_excluded reason;
	const GList *item;

	for (item = excluded->ended.head; item; item = item->next) {
		const struct process *process = item->data;

		if (!process->has_heap && !find_reason(process, &reason))
			return true;
	}
	return false;
}

COMPARE_AT(by_id, struct process, ORDER(a->row.id, b->row.id))

static void finish_running(struct heap_excluded *excluded, uint64_t now_ns)
{
	g_autoptr(GPtrArray) running = g_ptr_array_new();
	enum engine_excluded reason;
	GHashTableIter iter;
	gpointer value;

	g_hash_table_iter_init(&iter, excluded->tasks->processes);
	while (g_hash_table_iter_next(&iter, NULL, &value)) {
		struct process *process = value;

		if (!process->has_heap && is_expected(process))
			g_ptr_array_add(running, process);
	}
	g_ptr_array_sort(running, by_id);
	for (guint i = 0; i < running->len; i++) {
		find_reason(g_ptr_array_index(running, i), &reason);
		write_row(excluded, g_ptr_array_index(running, i), now_ns, reason);
	}
}

void heap_excluded_finish(struct heap_excluded *excluded, uint64_t now_ns)
{
	if (!excluded->tasks)
		return;
	heap_excluded_run(excluded, UINT64_MAX, UINT64_MAX);
	finish_running(excluded, now_ns);
}
