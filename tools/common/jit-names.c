/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * JIT names - names of generated code from the files that programs write
 *
 * Only names of places that were hit are kept. A line of a map has no time: it is valid from the
 * segment's begin, and a line that later lines cover is dropped, as in perf. Code that was loaded
 * before the segment is valid from its begin.
 *
 * Invariants: (1) rows are by time, and those of one time in the order of the file
 *                 [test-jit-names: map, dump]
 *             (2) a name is valid UTF-8 without control characters  [test-jit-names: hostile]
 *             (3) a file that another user may have written is not read  [test-jit-names: owner]
 */
#include "config.h"

#include "tools/common/jit-names.h"

#include "arch/base.h"
#include "arch/jit-dump.h"
#include "tools/common/debug-files.h"
#include "tools/common/jit-lines.h"
#include "tools/common/perf-map.h"
#include "tools/common/text.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_FILE_BYTES (INT64_C(256) << 20)
#define MAX_NAME_BYTES 4096u
#define SLACK_NS INT64_C(2000000000) /* tolerance between two clocks, and of file system times */
#define NS_PER_SECOND INT64_C(1000000000)

/* ---- Which names are wanted ------------------------------------------------------------------ */

static bool is_hit(const uint64_t *addresses, size_t n, uint64_t start, uint64_t size)
{
	size_t first = jit_first_at(addresses, n, start);

	return first < n && addresses[first] - start < size;
}

static const char *name_of(const char *bytes, size_t n, GStringChunk *texts)
{
	g_autofree char *name = text_escape_n(bytes, MIN_OF(n, (size_t)MAX_NAME_BYTES));

	return g_string_chunk_insert_const(texts, name);
}

GArray *jit_names_of_map(const char *text, size_t bytes, const uint64_t *addresses, size_t n,
			 uint64_t time_ns, GStringChunk *texts)
{
	g_autofree size_t *lines =
		g_new0(size_t, n + 1); /* by address: the end of its last line, or 0 */
	GArray *rows = g_array_new(FALSE, FALSE, sizeof(struct jit_name));
	struct perf_map_entry entry;
	size_t at = 0;

	while (perf_map_next(text, bytes, &at, &entry))
		for (size_t i = jit_first_at(addresses, n, entry.start);
		     i < n && addresses[i] - entry.start < entry.size; i++)
			lines[i] = at;
	at = 0;
	while (perf_map_next(text, bytes, &at, &entry)) {
		struct jit_name row = { .time_ns = time_ns,
					.event = PROF_JIT_LOAD,
					.address = entry.start,
					.size = entry.size };
		bool counts = false;

		for (size_t i = jit_first_at(addresses, n, entry.start);
		     i < n && addresses[i] - entry.start < entry.size; i++)
			counts |= lines[i] == at;
		if (!counts)
			continue;
		row.name = name_of(entry.name, entry.name_bytes, texts);
		g_array_append_val(rows, row);
	}
	return rows;
}

static gint compare_times(gconstpointer left, gconstpointer right)
{
	const struct jit_name *a = left, *b = right;

	return (a->time_ns > b->time_ns) - (a->time_ns < b->time_ns);
}

/* Moves are not followed: every load that may be moved is kept, even if no move reaches a hit
 * address. */
GArray *jit_names_of_dump(const void *bytes, size_t size, const uint64_t *addresses, size_t n,
			  uint64_t from_ns, uint64_t to_ns, GStringChunk *texts)
{
	GArray *rows = g_array_new(FALSE, FALSE, sizeof(struct jit_name));
	g_autoptr(GHashTable) moved = g_hash_table_new(g_int64_hash, g_int64_equal);
	g_autoptr(GArray) froms = g_array_new(FALSE, FALSE, sizeof(uint64_t));
	struct jit_dump_entry entry;
	struct jit_dump dump;

	if (!jit_dump_open(&dump, bytes, size))
		return rows;
	for (struct jit_dump all = dump; jit_dump_next(&all, &entry);)
		if (entry.kind == JIT_DUMP_MOVE)
			g_array_append_val(froms, entry.from);
	for (guint i = 0; i < froms->len; i++)
		g_hash_table_add(moved, &g_array_index(froms, uint64_t, i));
	while (jit_dump_next(&dump, &entry)) {
		struct jit_name row = { .time_ns = MAX_OF(entry.time_ns, from_ns),
					.event = entry.kind == JIT_DUMP_MOVE ? PROF_JIT_MOVE
									     : PROF_JIT_LOAD,
					.address = entry.address,
					.size = entry.size,
					.from = entry.from,
					.name = "" };

		if (!jit_dump_is_code(entry.kind) || entry.time_ns > to_ns ||
		    (!is_hit(addresses, n, entry.address, entry.size) &&
		     entry.kind == JIT_DUMP_LOAD && !g_hash_table_contains(moved, &entry.address)))
			continue;
		if (entry.kind == JIT_DUMP_LOAD)
			row.name = name_of(entry.name, strlen(entry.name), texts);
		else
			row.size = 0;
		g_array_append_val(rows, row);
	}
	g_array_sort(rows, compare_times); /* a stable sort */
	return rows;
}

/* ---- Files ----------------------------------------------------------------------------------- */

static bool read_file(const char *path, char **ret_text)
{
	return g_file_get_contents(path, ret_text, NULL, NULL);
}

/* Gets the start of the process that has the pid now, by CLOCK_BOOTTIME; false if none has. */
static bool read_start(uint64_t pid, uint64_t *ret_ns)
{
	g_autofree char *path = g_strdup_printf("/proc/%" PRIu64 "/stat", pid);
	g_autofree char *text = NULL;
	g_auto(GStrv) fields = NULL;
	const char *behind;

	if (!read_file(path, &text) || !(behind = strrchr(text, ')')))
		return false;
	fields = g_strsplit(behind, " ", 22);
	if (g_strv_length(fields) < 21)
		return false;
	*ret_ns = g_ascii_strtoull(fields[20], NULL, 10) *
		  (uint64_t)(NS_PER_SECOND / sysconf(_SC_CLK_TCK));
	return true;
}

/* Returns whether the pid still belongs to this process: one that started after the segment has
 * reused it. */
static bool lives(const struct jit_process *process)
{
	struct timespec boot, monotonic;
	uint64_t start_ns, asleep_ns;

	if (!read_start(process->pid, &start_ns))
		return false;
	clock_gettime(CLOCK_BOOTTIME, &boot);
	clock_gettime(CLOCK_MONOTONIC, &monotonic);
	asleep_ns = (uint64_t)((boot.tv_sec - monotonic.tv_sec) * NS_PER_SECOND + boot.tv_nsec -
			       monotonic.tv_nsec);
	return start_ns < process->end_ns + asleep_ns;
}

/* Returns the pid in the process's own pid namespace. */
static uint64_t own_pid(uint64_t pid)
{
	g_autofree char *path = g_strdup_printf("/proc/%" PRIu64 "/status", pid);
	g_autofree char *text = NULL, *line = NULL;
	const char *found;

	if (!read_file(path, &text) || !(found = strstr(text, "\nNSpid:")))
		return pid;
	line = g_strndup(found + 1, strcspn(found + 1, "\n"));
	found = strrchr(line, '\t');
	return found ? g_ascii_strtoull(found + 1, NULL, 10) : pid;
}

static bool is_trusted(const struct jit_process *process, const struct stat *status)
{
	const struct prof_segment *segment = process->segment;
	int64_t written_ns = status->st_mtim.tv_sec * NS_PER_SECOND + status->st_mtim.tv_nsec;
	int64_t start_ns = segment->wall_ns -
			   (int64_t)(segment->start_monotonic_ns - process->start_ns);

	return S_ISREG(status->st_mode) &&
	       (status->st_uid == process->uid || status->st_uid == 0) && status->st_size > 0 &&
	       status->st_size <= MAX_FILE_BYTES &&
	       (process->start_ns == 0 || written_ns >= start_ns - SLACK_NS);
}

static char *read_bytes(int fd, size_t size, size_t *ret_size)
{
	char *bytes = g_malloc(size + 1);
	size_t done = 0;

	while (done < size) {
		ssize_t n = pread(fd, bytes + done, size - done, (off_t)done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		done += (size_t)n;
	}
	bytes[done] = 0;
	*ret_size = done;
	return bytes;
}

/* Returns the bytes of a file of the process, with a 0 after them; NULL if it is missing or
 * not trusted. */
static char *read_trusted(const struct jit_process *process, const char *root, const char *path,
			  size_t *ret_size)
{
	struct debug_files *files = debug_files_new(root, NULL);
	CLEANUP_CLOSE int fd = files ? debug_files_open_path(files, path) : -1;
	struct stat status;

	debug_files_free(files);
	if (fd < 0 || fstat(fd, &status) < 0 || !is_trusted(process, &status))
		return NULL;
	return read_bytes(fd, (size_t)status.st_size, ret_size);
}

static GArray *find_below(const struct jit_process *process, const char *root, uint64_t pid,
			  const uint64_t *addresses, size_t n, GStringChunk *texts)
{
	uint64_t from_ns = process->segment->start_monotonic_ns;
	g_autofree char *path = g_strdup_printf("/tmp/perf-%" PRIu64 ".map", pid);
	g_autofree char *bytes = NULL;
	size_t size;
	GArray *rows;

	if (process->dump)
		bytes = read_trusted(process, root, process->dump, &size);
	if (bytes) {
		rows = jit_names_of_dump(bytes, size, addresses, n, from_ns, process->end_ns,
					 texts);
		if (rows->len && process->lines)
			*process->lines = jit_lines_of_dump(bytes, size, addresses, n, from_ns,
							    process->end_ns, texts);
		if (rows->len)
			return rows;
		g_array_unref(rows);
		g_clear_pointer(&bytes, g_free);
	}
	bytes = read_trusted(process, root, path, &size);
	return bytes ? jit_names_of_map(bytes, size, addresses, n, from_ns, texts) : NULL;
}

GArray *jit_names_find(const struct jit_process *process, const uint64_t *addresses, size_t n,
		       GStringChunk *texts)
{
	g_autofree char *root = g_strdup_printf("/proc/%" PRIu64 "/root", process->pid);
	GArray *rows = NULL;

	if (lives(process))
		rows = find_below(process, root, own_pid(process->pid), addresses, n, texts);
	return rows ? rows : find_below(process, NULL, process->pid, addresses, n, texts);
}
