/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Proc - what existed before the recording, read from /proc
 *
 * The engine asks for this once the side band is enabled: what changes while it is read is in the side band too, and
 * each record carries the time just before it was read, so that the two can be put in order. Nothing is stopped.
 * Only /proc's directory structure is understood here. File contents go to the engine as they are: targets choose
 * their names, and hostile bytes are the engine's business.
 * A process may go at any moment: what could not be read is left out, and that is no error.
 */
#include "config.h"

#include "daemon/broker/proc.h"

#include "arch/base.h"
#include "arch/uapi.h"
#include "daemon/broker/error.h"
#include "daemon/protocol.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>

#define SMALL_FILE_BYTES (64u << 10) /* all but maps */
#define MAPS_BYTES (16u << 20)
#define MAX_MAPPINGS 65536 /* executable ones of a process */
#define MAX_SNAPSHOT_BYTES (512u << 20)
#define THREAD_PASSES 4 /* a directory that changes while it is read may hide a thread */

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void snapshot_add(struct snapshot *snapshot, const struct snapshot_record *record, const void *data,
		  const void *more, size_t more_bytes)
{
	static const uint8_t zeros[8];
	struct snapshot_record full = *record;
	size_t data_bytes = record->length;

	if (snapshot->bytes->len > MAX_SNAPSHOT_BYTES)
		return;
	full.length += (uint32_t)more_bytes;
	g_byte_array_append(snapshot->bytes, (const uint8_t *)&full, sizeof(full));
	g_byte_array_append(snapshot->bytes, data, (guint)data_bytes);
	if (more_bytes)
		g_byte_array_append(snapshot->bytes, more, (guint)more_bytes);
	g_byte_array_append(snapshot->bytes, zeros, -full.length & 7);
}

/* A whole file as one record, read into place. */
static void add_file(struct snapshot *snapshot, int dir, const char *path,
		     struct snapshot_record record, size_t limit)
{
	CLEANUP_CLOSE int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
	GByteArray *bytes = snapshot->bytes;
	size_t begin = bytes->len, at = begin + sizeof(record);
	ssize_t n = -1;

	if (fd < 0 || begin > MAX_SNAPSHOT_BYTES)
		return;
	record.time_ns = now_ns();
	do {
		size_t space = at == begin + sizeof(record) ? 4096 : 65536;

		g_byte_array_set_size(bytes, (guint)(at + space));
		n = read(fd, bytes->data + at, space);
		if (n > 0)
			at += (size_t)n;
	} while (n > 0 && at - begin < limit);
	if (n < 0) {
		g_byte_array_set_size(bytes, (guint)begin);
		return;
	}
	record.length = (uint32_t)(at - begin - sizeof(record));
	memcpy(bytes->data + begin, &record, sizeof(record));
	g_byte_array_set_size(bytes, (guint)(at + (-record.length & 7)));
	memset(bytes->data + at, 0, -record.length & 7);
}

static bool read_exe(struct snapshot *snapshot, int dir, pid_t pid)
{
	struct snapshot_record record = { .kind = SNAPSHOT_EXE, .pid = pid, .tid = pid };
	char path[PATH_MAX];
	ssize_t n;

	record.time_ns = now_ns();
	n = readlinkat(dir, "exe", path, sizeof(path));
	if (n <= 0)
		return errno != ENOENT;
	record.length = (uint32_t)n;
	snapshot_add(snapshot, &record, path, NULL, 0);
	return true;
}

/* Asks for the next executable mapping at or above *address. 0, or an errno. */
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

	if (!snapshot->maps_as_text)
		fd = openat(dir, "maps", O_RDONLY | O_CLOEXEC);
	for (unsigned i = 0; fd >= 0 && i < MAX_MAPPINGS; i++) {
		int failed;

		record.time_ns = now_ns();
		failed = query_mapping(fd, mapping.end, &mapping, name, &name_bytes);
		if (failed == ENOTTY)
			snapshot->maps_as_text = true;
		if (failed)
			break;
		record.length = sizeof(mapping);
		snapshot_add(snapshot, &record, &mapping, name, name_bytes);
	}
	if (snapshot->maps_as_text) {
		record.kind = SNAPSHOT_MAPS;
		add_file(snapshot, dir, "maps", record, MAPS_BYTES);
	}
}

/* Directory entries that are numbers, rising. */
static void list_numbers(int dir, const char *path, GArray *numbers)
{
	int fd = openat(dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;

	g_array_set_size(numbers, 0);
	while (stream && (entry = readdir(stream))) {
		pid_t number = (pid_t)strtol(entry->d_name, NULL, 10);

		if (number > 0)
			g_array_append_val(numbers, number);
	}
	if (stream)
		closedir(stream);
	else if (fd >= 0)
		close(fd);
}

/* Threads but the leader; again until no new one is found. Returns one of them, or 0. */
static pid_t add_threads(struct snapshot *snapshot, int dir, pid_t pid)
{
	g_autoptr(GHashTable) seen = g_hash_table_new(NULL, NULL);
	g_autoptr(GArray) tids = g_array_new(FALSE, FALSE, sizeof(pid_t));
	bool found = true;
	pid_t other = 0;

	g_hash_table_add(seen, GINT_TO_POINTER(pid));
	for (unsigned pass = 0; found && pass < THREAD_PASSES; pass++) {
		found = false;
		list_numbers(dir, "task", tids);
		if (tids->len <= 1)
			break;
		for (unsigned i = 0; i < tids->len; i++) {
			pid_t tid = g_array_index(tids, pid_t, i);
			char path[64];

			if (!g_hash_table_add(seen, GINT_TO_POINTER(tid)))
				continue;
			found = true;
			snprintf(path, sizeof(path), "task/%d/stat", tid);
			add_file(snapshot, dir, path,
				 (struct snapshot_record){
					 .kind = SNAPSHOT_STAT, .pid = pid, .tid = tid },
				 SMALL_FILE_BYTES);
			other = tid;
		}
	}
	return other;
}

/* What goes with the memory, which a leader has given up that ended before its other threads. */
static bool add_program(struct snapshot *snapshot, int dir, pid_t pid)
{
	struct snapshot_record cmdline = { .kind = SNAPSHOT_CMDLINE, .pid = pid, .tid = pid };

	/* a kernel thread has neither a program nor mappings */
	if (!read_exe(snapshot, dir, pid))
		return false;
	add_file(snapshot, dir, "cmdline", cmdline, SMALL_FILE_BYTES);
	add_mappings(snapshot, dir, pid);
	return true;
}

static void add_process(struct snapshot *snapshot, int proc, pid_t pid)
{
	static const struct {
		const char *path;
		uint32_t kind;
	} files[] = {
		{ "status", SNAPSHOT_STATUS },
		{ "cgroup", SNAPSHOT_CGROUP },
	};
	struct snapshot_record stat = { .kind = SNAPSHOT_STAT, .pid = pid, .tid = pid };
	CLEANUP_CLOSE int dir = -1;
	CLEANUP_CLOSE int thread = -1;
	char name[32];
	pid_t other;

	snprintf(name, sizeof(name), "%d", pid);
	dir = openat(proc, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return;
	add_file(snapshot, dir, "stat", stat, SMALL_FILE_BYTES);
	other = add_threads(snapshot, dir, pid);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		struct snapshot_record record = { .kind = files[i].kind, .pid = pid, .tid = pid };

		add_file(snapshot, dir, files[i].path, record, SMALL_FILE_BYTES);
	}
	if (add_program(snapshot, dir, pid) || !other)
		return;
	snprintf(name, sizeof(name), "task/%d", other);
	thread = openat(dir, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (thread >= 0)
		add_program(snapshot, thread, pid);
}

static void add_all(struct snapshot *snapshot, int proc)
{
	g_autoptr(GArray) pids = g_array_new(FALSE, FALSE, sizeof(pid_t));

	add_file(snapshot, proc, "modules", (struct snapshot_record){ .kind = SNAPSHOT_MODULES },
		 MAPS_BYTES);
	cgroups_snapshot(snapshot);
	list_numbers(proc, ".", pids);
	for (unsigned i = 0; i < pids->len; i++)
		add_process(snapshot, proc, g_array_index(pids, pid_t, i));
}

static int seal(const GByteArray *bytes)
{
	CLEANUP_CLOSE int fd = memfd_create("prof-snapshot", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -1;
	for (size_t at = 0; at < bytes->len;) {
		ssize_t n = write(fd, bytes->data + at, bytes->len - at);

		if (n < 0)
			return -1;
		at += (size_t)n;
	}
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0 ||
	    lseek(fd, 0, SEEK_SET) < 0)
		return -1;
	return steal_fd(&fd);
}

bool proc_snapshot(pid_t pid, int *ret_memfd, GError **error)
{
	CLEANUP_CLOSE int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct snapshot snapshot = { 0 };
	int fd = -1;

	if (proc < 0)
		return broker_fail(error, BROKER_ERROR_FAILED, "opening \"/proc\": %s",
				   g_strerror(errno));
	snapshot.bytes = g_byte_array_sized_new(1 << 20);
	if (pid)
		add_process(&snapshot, proc, pid);
	else
		add_all(&snapshot, proc);
	fd = seal(snapshot.bytes);
	if (fd < 0)
		broker_fail(error, BROKER_ERROR_FAILED, "passing on what /proc says: %s",
			    g_strerror(errno));
	else
		*ret_memfd = fd;
	g_byte_array_unref(snapshot.bytes);
	return fd >= 0;
}
