/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Only names of sampled addresses are kept. An entry of a perf map has no time: it is valid from
 * the segment's start, and an entry that later entries cover is dropped, as in perf. Code that
 * was loaded before the segment is valid from the segment's start. In a dump, a record of source
 * lines precedes its load and states where each source line begins. Source lines in a capture
 * have no time, so an address that more than one load held gets no line. V8 adds the size of an
 * ELF header to the addresses of lines, because 'perf inject' puts code after such a header. A
 * dump in which no function has a line in its first ELF_HEADER_BYTES is assumed to be V8's. V8
 * of node 20 frees the name of a script file before writing it, so the file of each line is
 * garbage, with a NUL anywhere. But all entries of a record have the same size, and the
 * function's name contains the file's name, so the lines can be recovered: see repair().
 * Invariants: (1) rows are sorted by time; those with the same time keep the order of the file
 *                 [test-jit-names: map, dump]
 *             (2) a name is valid UTF-8 without control characters  [test-jit-names: hostile]
 *             (3) a file that another user may have written is not read  [test-jit-names: owner]
 *             (4) nothing outside of a map's text is read, whatever the text is
 *                 [test-jit-names: map, fuzz_perf_map]
 *             (5) a record of lines is searched once, however many loads there are
 *                 [test-jit-names: lines]
 *             (6) a line belongs to the load that held the address, and to no other
 *                 [test-jit-names: lines]
 *             (7) if one line of a record is outside of the code, the whole record is ignored
 *                 [test-jit-names: freed_file]
 */
#include "config.h"

#include "tools/symbols/jit-names.h"

#include "arch/base.h"
#include "arch/jit-dump.h"
#include "base/clock.h"
#include "tools/common/sorted.h"
#include "tools/common/text.h"
#include "tools/symbols/debug-files.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define MAX_FILE_BYTES (INT64_C(256) << 20)
#define MAX_NAME_BYTES 4096u
/* tolerance for the difference of two clocks, and for the resolution of file times */
#define SLACK_NS INT64_C(2000000000)
#define NS_PER_SECOND INT64_C(1000000000)
#define ELF_HEADER_BYTES 0x40u
#define LINE_BYTES 16u
#define PADDING_BYTES 8u
#define MAX_LINES (UINT64_C(1) << 20) /* per function */
#define MAX_STEPS (UINT64_C(1) << 28) /* limit for pairs of a load and an address that it held */

/* Returns the index of the first of n sorted addresses that is not below `address`, or n. */
static size_t first_at(const uint64_t *addresses, size_t n, uint64_t address)
{
	return sorted_below(addresses, n, sizeof(*addresses), address);
}

static const char *add_text(const char *bytes, size_t n, GStringChunk *texts)
{
	g_autofree char *text = text_escape_utf8(bytes, MIN_OF(n, (size_t)MAX_NAME_BYTES));

	return g_string_chunk_insert_const(texts, text);
}

/* ---- Maps ------------------------------------------------------------------------------------ */

/* Reads a hex number at *at and the blanks after it. */
static bool take_number(const char **at, const char *end, uint64_t *ret_number)
{
	const char *p = *at;
	uint64_t number = 0;
	unsigned digits = 0;

	if (end - p >= 2 && p[0] == '0' && (p[1] == 'x' || p[1] == 'X'))
		p += 2;
	for (; p < end && g_ascii_isxdigit(*p); p++, digits++)
		number = number << 4 | (unsigned)g_ascii_xdigit_value(*p);
	if (digits == 0 || digits > 16 || p == end || (*p != ' ' && *p != '\t'))
		return false;
	while (p < end && (*p == ' ' || *p == '\t'))
		p++;
	*at = p;
	*ret_number = number;
	return true;
}

bool perf_map_next(const char *text, size_t bytes, size_t *at, struct perf_map_entry *ret_entry)
{
	while (*at < bytes) {
		const char *line = text + *at, *end = memchr(line, '\n', bytes - *at);
		uint64_t start, size;

		*at = end ? (size_t)(end + 1 - text) : bytes;
		if (end && end > line && end[-1] == '\r')
			end--;
		if (!end || !take_number(&line, end, &start) || !take_number(&line, end, &size) ||
		    line == end || size == 0 || size > UINT64_MAX - start)
			continue;
		*ret_entry = (struct perf_map_entry){ start, size, line, (size_t)(end - line) };
		return true;
	}
	return false;
}

GArray *jit_names_of_map(const char *text, size_t bytes, const uint64_t *addresses, size_t n,
			 uint64_t time_ns, GStringChunk *texts)
{
	/* for each address: end of the last line for it, or 0 */
	g_autofree size_t *lines = g_new0(size_t, n + 1);
	GArray *rows = g_array_new(FALSE, FALSE, sizeof(struct jit_name));
	struct perf_map_entry entry;
	size_t at = 0;

	while (perf_map_next(text, bytes, &at, &entry))
		for (size_t i = first_at(addresses, n, entry.start);
		     i < n && addresses[i] - entry.start < entry.size; i++)
			lines[i] = at;
	at = 0;
	while (perf_map_next(text, bytes, &at, &entry)) {
		struct jit_name row = { .time_ns = time_ns,
					.event = PROF_JIT_LOAD,
					.address = entry.start,
					.size = entry.size };
		bool counts = false;

		for (size_t i = first_at(addresses, n, entry.start);
		     i < n && addresses[i] - entry.start < entry.size; i++)
			counts |= lines[i] == at;
		if (!counts)
			continue;
		row.name = add_text(entry.name, entry.name_bytes, texts);
		g_array_append_val(rows, row);
	}
	return rows;
}

/* ---- Dumps ----------------------------------------------------------------------------------- */

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
		size_t i = first_at(addresses, n, entry.address);
		bool is_hit = i < n && addresses[i] - entry.address < entry.size;

		if (!jit_dump_is_code(entry.kind) || entry.time_ns > to_ns ||
		    (!is_hit && entry.kind == JIT_DUMP_LOAD &&
		     !g_hash_table_contains(moved, &entry.address)))
			continue;
		if (entry.kind == JIT_DUMP_LOAD)
			row.name = add_text(entry.name, strlen(entry.name), texts);
		else
			row.size = 0;
		g_array_append_val(rows, row);
	}
	g_array_sort(rows, sorted_compare); /* stable */
	return rows;
}

/* ---- Lines of dumps -------------------------------------------------------------------------- */

/* The loads that held an address. */
struct held {
	/* 0: none; 1: only the load before `load`; 2: several, or the code was moved there */
	uint32_t loads;
	size_t load; /* position in the dump after the last load */
};

struct search {
	const uint64_t *addresses;
	size_t n;
	struct held *held; /* for each address */
	uint64_t from_ns, to_ns;
	uint64_t shift; /* amount by which line addresses in the dump are too large */
};

static uint64_t shift_of(struct jit_dump dump)
{
	struct jit_dump_entry entry;
	struct jit_dump_line line;
	bool any = false;

	while (jit_dump_next(&dump, &entry)) {
		if (entry.kind != JIT_DUMP_LINES)
			continue;
		while (jit_dump_next_line(&entry.lines, &line)) {
			any = true;
			if (line.address - entry.address < ELF_HEADER_BYTES)
				return 0;
		}
	}
	return any ? ELF_HEADER_BYTES : 0;
}

/* Finds the loads that held each address. Of the loads before from_ns, only the last one counts.
 * Returns false after MAX_STEPS steps. */
static bool hold(struct search *search, struct jit_dump dump)
{
	struct jit_dump_entry entry;
	uint64_t steps = 0;

	while (jit_dump_next(&dump, &entry)) {
		size_t i = first_at(search->addresses, search->n, entry.address);
		bool is_first = entry.time_ns <= search->from_ns && entry.kind == JIT_DUMP_LOAD;

		if (!jit_dump_is_code(entry.kind) || entry.time_ns > search->to_ns)
			continue;
		for (; i < search->n && search->addresses[i] - entry.address < entry.size; i++) {
			struct held *held = &search->held[i];

			held->loads = is_first ? 1 : MIN_OF(held->loads + 1, 2u);
			held->loads = entry.kind == JIT_DUMP_MOVE ? 2 : held->loads;
			held->load = dump.at;
			steps++;
		}
		if (steps > MAX_STEPS)
			return false;
	}
	return true;
}

/* Returns the lines, sorted by address, or NULL if they do not belong to this code. */
static GArray *read_lines(struct jit_dump_lines lines, const struct jit_dump_entry *load,
			  uint64_t shift)
{
	g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(struct jit_dump_line));
	struct jit_dump_line line;

	while (all->len < MAX_LINES && jit_dump_next_line(&lines, &line)) {
		if (line.address - load->address - shift > load->size)
			return NULL;
		if (line.line > 0 && line.line <= INT32_MAX && line.file && *line.file)
			g_array_append_val(all, line);
	}
	if (lines.n > 0)
		return NULL;
	g_array_sort(all, sorted_compare); /* stable */
	return g_steal_pointer(&all);
}

/* Finds the end of the file's name in a name such as "JS:*name file:12:34": *ret_end is the start
 * of ":12:34". Returns false if the name is not from V8. */
static bool find_end_of_file(const char *name, const char **ret_end)
{
	const char *end = name + strlen(name);

	if (!g_str_has_prefix(name, "JS:"))
		return false;
	for (int i = 0; i < 2; i++) {
		const char *digits = end;

		while (digits > name && g_ascii_isdigit(digits[-1]))
			digits--;
		if (digits == end || digits == name || digits[-1] != ':')
			return false;
		end = digits - 1;
	}
	*ret_end = end;
	return true;
}

/* Sets the file that all lines of V8's record have, taken from the function's name, and the length
 * of one line. Padding may follow the last line. Returns false if the record is not V8's. */
static bool repair(struct jit_dump_lines *lines, const char *name, GStringChunk *texts)
{
	size_t bytes = lines->end - lines->at;
	const char *end;

	if (lines->n == 0 || lines->n > MAX_LINES || !find_end_of_file(name, &end))
		return false;
	for (size_t stride = bytes / lines->n;
	     stride > LINE_BYTES + 1 && bytes - lines->n * stride < PADDING_BYTES; stride--) {
		size_t file_bytes = stride - LINE_BYTES - 1;

		if (file_bytes >= (size_t)(end - name) || end[-(ptrdiff_t)file_bytes - 1] != ' ')
			continue;
		lines->stride = stride;
		lines->file =
			g_string_chunk_insert_len(texts, end - file_bytes, (gssize)file_bytes);
		return true;
	}
	return false;
}

/* Adds the rows of a load. `at`: position after the load, as in struct held. */
static void name_load(const struct search *search, const struct jit_dump_entry *load, size_t at,
		      struct jit_dump_lines lines, GStringChunk *texts, GArray *rows)
{
	g_autoptr(GArray) all = NULL;

	for (size_t i = first_at(search->addresses, search->n, load->address);
	     i < search->n && search->addresses[i] - load->address < load->size; i++) {
		const struct jit_dump_line *line;
		struct jit_line row = { .address = search->addresses[i] };
		guint n;

		if (search->held[i].loads != 1 || search->held[i].load != at)
			continue;
		if (!all)
			all = read_lines(lines, load, search->shift);
		if (!all && repair(&lines, load->name, texts))
			all = read_lines(lines, load, search->shift);
		if (!all)
			return;
		n = sorted_array_upto(all, sizeof(*line), row.address + search->shift);
		line = n > 0 ? &g_array_index(all, struct jit_dump_line, n - 1) : NULL;
		if (!line || line->address < load->address)
			continue;
		row.line = line->line;
		row.file = add_text(line->file, strnlen(line->file, MAX_NAME_BYTES), texts);
		g_array_append_val(rows, row);
	}
}

GArray *jit_lines_of_dump(const void *bytes, size_t size, const uint64_t *addresses, size_t n,
			  uint64_t from_ns, uint64_t to_ns, GStringChunk *texts)
{
	GArray *rows = g_array_new(FALSE, FALSE, sizeof(struct jit_line));
	g_autofree struct held *held = g_new0(struct held, n + 1);
	struct search search = { addresses, n, held, from_ns, to_ns, 0 };
	struct jit_dump_entry entry, before = { 0 };
	struct jit_dump dump;

	if (!jit_dump_open(&dump, bytes, size))
		return rows;
	search.shift = shift_of(dump);
	if (!hold(&search, dump))
		return rows;
	while (jit_dump_next(&dump, &entry)) {
		if (entry.kind == JIT_DUMP_LOAD && before.kind == JIT_DUMP_LINES &&
		    before.address == entry.address)
			name_load(&search, &entry, dump.at, before.lines, texts, rows);
		/* Moves, unwinding data and other records may come between lines and load. */
		if (entry.kind == JIT_DUMP_LOAD || entry.kind == JIT_DUMP_LINES)
			before = entry;
	}
	g_array_sort(rows, sorted_compare);
	return rows;
}

/* ---- Files ----------------------------------------------------------------------------------- */

/* Gets the start time, in CLOCK_BOOTTIME, of the process that now has the pid. Returns false if
 * no process has it. */
static bool read_start(uint64_t pid, uint64_t *ret_ns)
{
	g_autofree char *path = g_strdup_printf("/proc/%" PRIu64 "/stat", pid);
	g_autofree char *text = NULL;
	g_auto(GStrv) fields = NULL;
	const char *behind;

	if (!g_file_get_contents(path, &text, NULL, NULL) || !(behind = strrchr(text, ')')))
		return false;
	fields = g_strsplit(behind, " ", 22);
	if (g_strv_length(fields) < 21)
		return false;
	*ret_ns = g_ascii_strtoull(fields[20], NULL, 10) *
		  (uint64_t)(NS_PER_SECOND / sysconf(_SC_CLK_TCK));
	return true;
}

/* Returns whether the process still has its pid. A process that started after the segment has
 * reused the pid. */
static bool lives(const struct jit_process *process)
{
	uint64_t start_ns;

	if (!read_start(process->pid, &start_ns))
		return false;
	/* CLOCK_BOOTTIME also counts the time in which the machine was suspended. */
	return start_ns < process->end_ns + clock_read(CLOCK_BOOTTIME) - clock_now();
}

/* Returns the process's pid in its own pid namespace. */
static uint64_t own_pid(uint64_t pid)
{
	g_autofree char *path = g_strdup_printf("/proc/%" PRIu64 "/status", pid);
	g_autofree char *text = NULL, *line = NULL;
	const char *found;

	if (!g_file_get_contents(path, &text, NULL, NULL) || !(found = strstr(text, "\nNSpid:")))
		return pid;
	line = g_strndup(found + 1, strcspn(found + 1, "\n"));
	found = strrchr(line, '\t');
	return found ? g_ascii_strtoull(found + 1, NULL, 10) : pid;
}

/* Returns the bytes of a file of the process, followed by a NUL. Returns NULL if the file is
 * missing or not trusted. */
static char *read_trusted(const struct jit_process *process, const char *root, const char *path,
			  size_t *ret_size)
{
	const struct prof_segment *segment = process->segment;
	int64_t start_ns = segment->wall_ns -
			   (int64_t)(segment->start_monotonic_ns - process->start_ns);
	struct debug_files *files = debug_files_new(root, NULL);
	CLEANUP_CLOSE int fd = files ? debug_files_open_path(files, path) : -1;
	struct stat status;
	ssize_t got = 1;
	char *bytes;

	debug_files_free(files);
	if (fd < 0 || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) ||
	    (status.st_uid != process->uid && status.st_uid != 0) || status.st_size <= 0 ||
	    status.st_size > MAX_FILE_BYTES)
		return NULL;
	if (process->start_ns != 0 &&
	    status.st_mtim.tv_sec * NS_PER_SECOND + status.st_mtim.tv_nsec < start_ns - SLACK_NS)
		return NULL;
	bytes = g_malloc((size_t)status.st_size + 1);
	for (*ret_size = 0; got > 0 && *ret_size < (size_t)status.st_size;
	     *ret_size += (size_t)got) {
		do
			got = pread(fd, bytes + *ret_size, (size_t)status.st_size - *ret_size,
				    (off_t)*ret_size);
		while (got < 0 && errno == EINTR);
		got = MAX_OF(got, 0);
	}
	bytes[*ret_size] = 0;
	return bytes;
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
