/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Proc - reads the state before the recording from /proc
 *
 * The engine requests the state once the side band is enabled. Processes continue to run: the side
 * band also has the changes during the reading, and each record has the time just before its data
 * was read, so that changes and records can be ordered. This process parses only the directory
 * structure of /proc. File contents go to the engine unchanged, because targets choose them, and
 * only the engine handles hostile bytes. A process may exit at any time: data that cannot be read
 * is omitted, which is not an error.
 * Invariants: (1) up to the offset of status_set_bytes(), the memfd has only whole processes: if
 *                 this worker is killed, the next worker continues there
 *                 [test_hostile_files: test_locked_memory]
 *             (2) if a process is to be read bare, no file is read that depends on the memory of
 *                 the process, which may be mapped from a file whose server never answers
 *                 [test_hostile_files: test_locked_memory]
 *             (3) an own_only session gets only records of processes whose leader was the client's
 *                 before reading and that were entirely the client's afterwards, and nothing of the
 *                 kernel  [test-files: own_only]
 */
#include "daemon/files/proc.h"

#include "arch/base.h"
#include "arch/uapi.h"
#include "base/clock.h"
#include "base/order.h"
#include "daemon/files/buffer.h"
#include "daemon/files/cgroups.h"
#include "daemon/files/stack.h"
#include "daemon/files/status.h"
#include "daemon/process-access.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#define SMALL_FILE_BYTES (64u << 10) /* maximum size of a file, except maps and modules */
#define MAPS_BYTES (16u << 20)
#define MAX_MAPPINGS 65536 /* maximum number of executable mappings of a process */
#define MAX_SNAPSHOT_BYTES (512u << 20)
#define THREAD_PASSES 4 /* a directory that changes while it is read may omit a thread */

struct snapshot {
	const struct files_config *config;
	const struct files_snapshot *request;
	struct buffer buffer;
	struct cgroups *cgroups; /* for an own_only session */
	uint64_t offset;
	int memfd;
	bool maps_as_text; /* the kernel lacks PROCMAP_QUERY */
};

/* ---- Numbers --------------------------------------------------------------------------------- */

struct numbers {
	pid_t *values;
	size_t n, size;
};

static void free_numbers(struct numbers *numbers)
{
	free(numbers->values);
}

COMPARE_BY(compare_numbers, pid_t, ORDER(*a, *b))

static void add_number(struct numbers *numbers, pid_t number)
{
	size_t size = numbers->size ? numbers->size * 2 : 64;
	void *larger;

	if (numbers->n == numbers->size) {
		larger = realloc(numbers->values, size * sizeof(number));
		if (!larger)
			return;
		numbers->values = larger;
		numbers->size = size;
	}
	numbers->values[numbers->n++] = number;
}

/* Lists directory entries that are numbers, in ascending order. */
static void list_numbers(int dir, const char *path, struct numbers *numbers)
{
	int fd = openat(dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;

	numbers->n = 0;
	while (stream && (entry = readdir(stream))) {
		pid_t number = (pid_t)strtol(entry->d_name, NULL, 10);

		if (number > 0)
			add_number(numbers, number);
	}
	if (stream)
		closedir(stream);
	else if (fd >= 0)
		close(fd);
	if (numbers->n)
		qsort(numbers->values, numbers->n, sizeof(pid_t), compare_numbers);
}

/* ---- One process ----------------------------------------------------------------------------- */

/* Adds the program's path. Returns false if the thread has no memory: a kernel thread, or a leader
 * that ended before its threads. */
static bool read_exe(struct snapshot *snapshot, int dir, pid_t pid)
{
	struct snapshot_record record = { .kind = SNAPSHOT_EXE, .pid = pid, .tid = pid };
	char path[PATH_MAX];
	ssize_t n;

	record.time_ns = clock_now();
	n = readlinkat(dir, "exe", path, sizeof(path));
	record.length = n > 0 ? (uint32_t)n : 0;
	if (n > 0)
		buffer_add(&snapshot->buffer, &record, path, NULL, 0);
	return n > 0 || errno != ENOENT;
}

/* Queries the next executable mapping at or above `address`. Returns 0 or an errno. */
static int query_mapping(int fd, uint64_t address, struct snapshot_mapping *ret_mapping,
			 char name[PATH_MAX], size_t *ret_name_bytes)
{
	struct snapshot_mapping mapping = { 0 };
	struct uapi_procmap_query query = {
		.size = sizeof(query),
		.query_flags = UAPI_PROCMAP_QUERY_VMA_EXECUTABLE |
			       UAPI_PROCMAP_QUERY_COVERING_OR_NEXT_VMA,
		.query_addr = address,
		.vma_name_size = PATH_MAX,
		.vma_name_addr = (uintptr_t)name,
		.build_id_size = sizeof(mapping.build_id),
		.build_id_addr = (uintptr_t)mapping.build_id,
	};

	if (ioctl(fd, UAPI_PROCMAP_QUERY, &query) < 0) {
		if (errno != ENAMETOOLONG)
			return errno;
		query.vma_name_size = query.build_id_size = 0;
		query.vma_name_addr = query.build_id_addr = 0;
		if (ioctl(fd, UAPI_PROCMAP_QUERY, &query) < 0)
			return errno;
	}
	mapping.start = query.vma_start;
	mapping.end = query.vma_end;
	mapping.file_offset = query.vma_offset;
	mapping.inode = query.inode;
	mapping.dev_major = query.dev_major;
	mapping.dev_minor = query.dev_minor;
	mapping.is_shared = (query.vma_flags & UAPI_PROCMAP_QUERY_VMA_SHARED) != 0;
	mapping.build_id_size = MIN_OF(query.build_id_size, sizeof(mapping.build_id));
	*ret_mapping = mapping;
	*ret_name_bytes = query.vma_name_size ? strnlen(name, PATH_MAX) : 0;
	return 0;
}

static void add_mappings(struct snapshot *snapshot, int dir, pid_t pid)
{
	struct snapshot_record record = { .kind = SNAPSHOT_MAPPING, .pid = pid, .tid = pid };
	CLEANUP_CLOSE int fd = -1;
	struct snapshot_mapping mapping = { 0 };
	char name[PATH_MAX];
	size_t name_bytes = 0;

	status_progress();
	if (!snapshot->maps_as_text)
		fd = openat(dir, "maps", O_RDONLY | O_CLOEXEC);
	for (unsigned i = 0; fd >= 0 && i < MAX_MAPPINGS; i++) {
		int failed;

		record.time_ns = clock_now();
		failed = query_mapping(fd, mapping.end, &mapping, name, &name_bytes);
		if (failed == ENOTTY)
			snapshot->maps_as_text = true;
		if (failed)
			break;
		record.length = sizeof(mapping);
		buffer_add(&snapshot->buffer, &record, &mapping, name, name_bytes);
	}
	if (snapshot->maps_as_text) {
		record.kind = SNAPSHOT_MAPS;
		buffer_add_file(&snapshot->buffer, dir, "maps", record, MAPS_BYTES);
	}
}

/* Returns whether the process is in a PID namespace below ours, with other numbers. */
static bool is_below(int dir)
{
	struct stat own, theirs;

	return stat("/proc/self/ns/pid", &own) == 0 && fstatat(dir, "ns/pid", &theirs, 0) == 0 &&
	       own.st_ino != theirs.st_ino;
}

static void add_thread(struct snapshot *snapshot, int dir, pid_t pid, pid_t tid, bool is_below)
{
	struct snapshot_record record = { .kind = SNAPSHOT_STAT, .pid = pid, .tid = tid };
	char path[64];

	snprintf(path, sizeof(path), "task/%d/stat", tid);
	buffer_add_file(&snapshot->buffer, dir, path, record, SMALL_FILE_BYTES);
	if (!is_below)
		return;
	record.kind = SNAPSHOT_STATUS;
	snprintf(path, sizeof(path), "task/%d/status", tid);
	buffer_add_file(&snapshot->buffer, dir, path, record, SMALL_FILE_BYTES);
}

/* Adds the threads except the leader, in up to THREAD_PASSES passes, until a pass finds no new
 * thread. Returns one of them, or 0. */
static pid_t add_threads(struct snapshot *snapshot, int dir, pid_t pid)
{
	CLEANUP(free_numbers) struct numbers seen = { 0 };
	CLEANUP(free_numbers) struct numbers tids = { 0 };
	bool found = true, below;
	struct stat status;
	pid_t other = 0;

	/* The directory has one link per thread (fs/proc/base.c: proc_task_getattr). Reading the
	 * link count costs less than listing the threads. */
	if (fstatat(dir, "task", &status, 0) == 0 && status.st_nlink == 2 + 1)
		return 0;
	/* The engine requests a process with a collector by its pid, and needs the tids in the
	 * process's own PID namespace. */
	below = snapshot->request->pid != 0 && is_below(dir);
	add_number(&seen, pid);
	for (unsigned pass = 0; found && pass < THREAD_PASSES; pass++) {
		size_t before = seen.n;

		found = false;
		list_numbers(dir, "task", &tids);
		if (tids.n <= 1)
			break;
		for (size_t i = 0; i < tids.n; i++) {
			pid_t tid = tids.values[i];

			if (bsearch(&tid, seen.values, before, sizeof(tid), compare_numbers))
				continue;
			found = true;
			add_number(&seen, tid);
			add_thread(snapshot, dir, pid, tid, below);
			other = tid;
		}
		qsort(seen.values, seen.n, sizeof(pid_t), compare_numbers);
	}
	return other;
}

/* Adds the program's path. Unless `bare`, also adds its command line and mappings; reading these
 * may block. Returns false if the process or thread has no memory. */
static bool add_program(struct snapshot *snapshot, int dir, pid_t pid, bool bare)
{
	struct snapshot_record cmdline = { .kind = SNAPSHOT_CMDLINE, .pid = pid, .tid = pid };

	if (!read_exe(snapshot, dir, pid))
		return false;
	if (bare)
		return true;
	buffer_add_file(&snapshot->buffer, dir, "cmdline", cmdline, SMALL_FILE_BYTES);
	if (!snapshot->request->maps_known)
		add_mappings(snapshot, dir, pid);
	return true;
}

static void add_texts(struct snapshot *snapshot, int dir, pid_t pid)
{
	struct snapshot_record status = { .kind = SNAPSHOT_STATUS, .pid = pid, .tid = pid };
	struct snapshot_record cgroup = { .kind = SNAPSHOT_CGROUP, .pid = pid, .tid = pid };
	struct buffer *buffer = &snapshot->buffer;
	size_t at;

	buffer_add_file(buffer, dir, "status", status, SMALL_FILE_BYTES);
	at = buffer->length + sizeof(cgroup);
	if (!buffer_add_file(buffer, dir, "cgroup", cgroup, SMALL_FILE_BYTES) || !snapshot->cgroups)
		return;
	/* Copy the text, because adding a record may move the buffer. */
	CLEANUP_FREE char *text = strndup((const char *)buffer->bytes + at, buffer->length - at);
	if (text)
		cgroups_add_one(snapshot->cgroups, buffer, text, strlen(text));
}

static bool is_bare(const struct snapshot *snapshot, int dir, pid_t pid)
{
	const struct files_snapshot *request = snapshot->request;
	struct stat status;

	if (pid == request->bare_pid)
		return true;
	/* The directory's owner is the user who runs the process, even if the process is not
	 * dumpable. */
	if (request->n_bare == 0 || fstat(dir, &status) < 0)
		return false;
	for (uint32_t i = 0; i < MIN_OF(request->n_bare, FILES_MAX_BARE); i++)
		if (request->bare[i].uid == status.st_uid &&
		    (!request->bare[i].pid || request->bare[i].pid == pid))
			return true;
	return false;
}

static void read_process(struct snapshot *snapshot, int dir, pid_t pid)
{
	struct snapshot_record stat = { .kind = SNAPSHOT_STAT, .pid = pid, .tid = pid };
	bool bare = is_bare(snapshot, dir, pid);
	CLEANUP_CLOSE int thread = -1;
	char name[32];
	pid_t other;

	buffer_add_file(&snapshot->buffer, dir, "stat", stat, SMALL_FILE_BYTES);
	other = add_threads(snapshot, dir, pid);
	add_texts(snapshot, dir, pid);
	if (add_program(snapshot, dir, pid, bare) || !other)
		return;
	snprintf(name, sizeof(name), "task/%d", other);
	thread = openat(dir, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (thread >= 0)
		add_program(snapshot, thread, pid, bare);
}

/* ---- All of it ------------------------------------------------------------------------------- */

/* Writes the buffer to the snapshot. */
static int flush(struct snapshot *snapshot)
{
	struct buffer *buffer = &snapshot->buffer;
	size_t at = 0;

	if (buffer->failed)
		return ENOMEM;
	if (snapshot->offset > MAX_SNAPSHOT_BYTES)
		buffer->length = 0;
	while (at < buffer->length) {
		ssize_t n = pwrite(snapshot->memfd, buffer->bytes + at, buffer->length - at,
				   (off_t)(snapshot->offset + at));

		if (n < 0)
			return errno;
		at += (size_t)n;
	}
	snapshot->offset += at;
	buffer->length = 0;
	status_set_bytes(snapshot->offset);
	return 0;
}

/* Adds stat, io, and the number of descriptors. */
static void add_counters(struct snapshot *snapshot, int dir, pid_t pid)
{
	struct snapshot_record record = { .kind = SNAPSHOT_STAT, .pid = pid, .tid = pid };
	CLEANUP_CLOSE int fds = -1;
	CLEANUP_CLOSE int first = -1;
	struct numbers numbers = { 0 };
	struct statx status;
	uint64_t n;

	buffer_add_file(&snapshot->buffer, dir, "stat", record, SMALL_FILE_BYTES);
	record.kind = SNAPSHOT_IO;
	buffer_add_file(&snapshot->buffer, dir, "io", record, SMALL_FILE_BYTES);
	record.kind = SNAPSHOT_FDS;
	record.length = sizeof(n);
	record.time_ns = clock_now();
	fds = openat(dir, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fds < 0 || statx(fds, "", AT_EMPTY_PATH, STATX_SIZE, &status) != 0)
		return;
	/* Since Linux 6.2, the directory's size is the number of descriptors. */
	n = status.stx_size;
	if (n == 0) {
		list_numbers(dir, "fd", &numbers);
		first = openat(fds, "0", O_PATH | O_NOFOLLOW | O_CLOEXEC);
		n = numbers.n + (first >= 0); /* list_numbers() omits descriptor 0 */
		free_numbers(&numbers);
	}
	buffer_add(&snapshot->buffer, &record, &n, NULL, 0);
}

/* Adds the records of a process or of a thread; their directories are alike. `number`: the pid or
 * tid; if it is negative, the memory usage of process -number is read bare. */
static int add_process(struct snapshot *snapshot, int proc, int32_t number)
{
	const pid_t pid = abs(number);
	const struct files_config *config = snapshot->config;
	struct snapshot_record rollup = { .kind = SNAPSHOT_ROLLUP, .pid = pid, .tid = pid };
	struct snapshot_record statm = { .kind = SNAPSHOT_STATM, .pid = pid, .tid = pid };
	CLEANUP_CLOSE int dir = -1;
	char name[32];

	status_set_pid(pid);
	snprintf(name, sizeof(name), "%d", pid);
	dir = openat(proc, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0 || (config->own_only && !process_access_first(dir, config->uid)))
		return 0;
	if (!snapshot->request->n_usage_pids)
		read_process(snapshot, dir, pid);
	if (snapshot->request->usage & FILES_USAGE_STACKS && number > 0 &&
	    !is_bare(snapshot, dir, pid))
		stack_add(&snapshot->buffer, dir, pid);
	if (snapshot->request->usage & FILES_USAGE_COUNTERS)
		add_counters(snapshot, dir, pid);
	/* Reading smaps_rollup walks the page tables under a lock of the process's memory, which
	 * another thread may hold. If this must be avoided, use statm. */
	if (snapshot->request->usage & FILES_USAGE_MEMORY &&
	    (number < 0 || is_bare(snapshot, dir, pid) ||
	     !buffer_add_file(&snapshot->buffer, dir, "smaps_rollup", rollup, SMALL_FILE_BYTES)))
		buffer_add_file(&snapshot->buffer, dir, "statm", statm, SMALL_FILE_BYTES);
	/* By now the process may be another user's. */
	if (config->own_only && !process_access_all(dir, config->uid))
		snapshot->buffer.length = 0;
	return flush(snapshot);
}

static int add_first(struct snapshot *snapshot, int proc)
{
	struct cgroups *cgroups;

	if (snapshot->config->kernel)
		buffer_add_file(&snapshot->buffer, proc, "modules",
				(struct snapshot_record){ .kind = SNAPSHOT_MODULES }, MAPS_BYTES);
	cgroups = snapshot->config->own_only ? NULL : cgroups_new();
	if (cgroups)
		cgroups_add_all(cgroups, &snapshot->buffer);
	cgroups_free(cgroups);
	return flush(snapshot);
}

static bool is_target(const struct files_config *config, pid_t pid)
{
	for (uint32_t i = 0; i < MIN_OF(config->n_targets, ENGINE_MAX_TARGETS); i++)
		if (config->targets[i] == pid)
			return true;
	return false;
}

static int add_all(struct snapshot *snapshot, int proc)
{
	CLEANUP(free_numbers) struct numbers pids = { 0 };
	int failed = 0;

	if (snapshot->request->from_pid == 0)
		failed = add_first(snapshot, proc);
	list_numbers(proc, ".", &pids);
	for (size_t i = 0; i < pids.n && !failed; i++)
		if (pids.values[i] >= snapshot->request->from_pid &&
		    (!snapshot->request->targets_only ||
		     is_target(snapshot->config, pids.values[i])))
			failed = add_process(snapshot, proc, pids.values[i]);
	return failed;
}

/* Returns the pid of a thread's process; 0: it is gone. */
static pid_t process_of(int dir)
{
	CLEANUP_CLOSE int fd = openat(dir, "status", O_RDONLY | O_CLOEXEC);
	char text[1024];
	ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
	const char *line;

	text[MAX_OF(n, (ssize_t)0)] = '\0';
	line = strstr(text, "\nTgid:\t"); /* the kernel escapes newlines in the name above */
	return line ? (pid_t)strtol(line + strlen("\nTgid:\t"), NULL, 10) : 0;
}

/* Adds the stacks of those threads that are the user's. Checking a process takes long if it has
 * many threads, so each process is checked once, after all its stacks were read. The process's
 * directory is opened before the first stack is read: if the pid was reused meanwhile, the
 * directory's process is gone, and the check fails. */
static int add_own_stacks(struct snapshot *snapshot, int proc)
{
	const struct files_snapshot *request = snapshot->request;
	uint32_t n = MIN_OF(request->n_usage_pids, ENGINE_MAX_USAGE_PIDS), n_processes = 0;
	struct own_process {
		pid_t pid;
		int dir;
		bool is_own;
	} processes[ENGINE_MAX_USAGE_PIDS];
	struct own_stack {
		size_t end;
		const struct own_process *process; /* NULL: no stack */
	} stacks[ENGINE_MAX_USAGE_PIDS] = { 0 };
	struct buffer *buffer = &snapshot->buffer;
	size_t begin = 0, kept = 0;

	for (uint32_t i = 0; i < n; stacks[i++].end = buffer->length) {
		const pid_t tid = request->usage_pids[i];
		CLEANUP_CLOSE int dir = -1;
		uint32_t at = 0;
		char name[32];
		pid_t pid;

		if (tid < MAX_OF(request->from_pid, 1))
			continue;
		status_set_pid(tid);
		snprintf(name, sizeof(name), "%d", tid);
		dir = openat(proc, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (dir < 0 || !process_access_first(dir, snapshot->config->uid) ||
		    is_bare(snapshot, dir, tid) || (pid = process_of(dir)) <= 0)
			continue;
		while (at < n_processes && processes[at].pid != pid)
			at++;
		if (at == n_processes) {
			snprintf(name, sizeof(name), "%d", pid);
			processes[n_processes++] = (struct own_process){
				.pid = pid,
				.dir = openat(proc, name, O_PATH | O_DIRECTORY | O_CLOEXEC),
			};
		}
		stack_add(buffer, dir, tid);
		stacks[i].process = &processes[at];
	}
	for (uint32_t i = 0; i < n_processes; i++) {
		struct own_process *process = &processes[i];

		status_progress();
		process->is_own = process->dir >= 0 &&
				  process_access_all(process->dir, snapshot->config->uid);
		if (process->dir >= 0)
			close(process->dir);
	}
	for (uint32_t i = 0; i < n; begin = stacks[i++].end)
		if (stacks[i].process && stacks[i].process->is_own) {
			memmove(buffer->bytes + kept, buffer->bytes + begin, stacks[i].end - begin);
			kept += stacks[i].end - begin;
		}
	buffer->length = kept;
	return flush(snapshot);
}

static int add_memory_usage(struct snapshot *snapshot, int proc)
{
	const struct files_snapshot *request = snapshot->request;
	struct snapshot_record end = { .kind = SNAPSHOT_END };
	bool own_stacks = snapshot->config->own_only && request->usage == FILES_USAGE_STACKS;
	int failed = 0;

	if (own_stacks)
		failed = add_own_stacks(snapshot, proc);
	for (uint32_t i = 0;
	     !own_stacks && i < MIN_OF(request->n_usage_pids, ENGINE_MAX_USAGE_PIDS); i++)
		if (!failed && abs(request->usage_pids[i]) >= MAX_OF(request->from_pid, 1))
			failed = add_process(snapshot, proc, request->usage_pids[i]);
	end.time_ns = clock_now();
	buffer_add(&snapshot->buffer, &end, NULL, NULL, 0);
	return failed ? failed : flush(snapshot);
}

int proc_snapshot(const struct files_config *config, const struct files_snapshot *request,
		  int memfd)
{
	CLEANUP_CLOSE int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct snapshot snapshot = {
		.config = config,
		.request = request,
		.offset = request->offset,
		.memfd = memfd,
	};
	int failed;

	if (proc < 0 || ftruncate(memfd, (off_t)request->offset) < 0)
		return errno;
	status_set_bytes(request->offset);
	snapshot.cgroups = config->own_only ? cgroups_new() : NULL;
	if (request->n_usage_pids)
		failed = add_memory_usage(&snapshot, proc);
	else if (request->pid)
		failed = add_process(&snapshot, proc, request->pid);
	else
		failed = add_all(&snapshot, proc);
	cgroups_free(snapshot.cgroups);
	buffer_done(&snapshot.buffer);
	return failed;
}
