/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Self maps - the code ranges that a ring's owner has sent, so that stacks can be read after the
 * process has ended
 *
 * The source is /proc/self/maps instead of the loader: the file needs no lock that another thread
 * may hold, lists the vdso and mappings made without the loader, and names files as the kernel's
 * own records do.
 * Invariants: (1) a range's module is identified by its bytes in memory, which are compared for
 *                 each stack  [test_jit: dlclose]
 *             (2) only safe-read.c loads from a module [test-self-maps: unmapped]
 *             (3) each try to send a stack reads the file at most once
 *                 [test-self-maps: heap]
 *             (4) a module's code is searched once, even if it cannot be identified
 *                 [test-self-maps: no descriptor, test-call-tree: moved]
 * Ranges are added with signals blocked, so that no handler sees an incomplete change.
 */
#include "libcollector/unwind/self-maps.h"

#include "libcollector/unwind/safe-read.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* A line of the file: start-end perms offset major:minor inode    name */
struct line {
	uint64_t start, end, offset, dev, inode;
	bool is_executable;
	const char *path; /* "": no path */
};

struct scan {
	struct self_maps *code;
	const struct self_maps_stack *stack;
	struct safe_read memory;
	struct line first; /* latest line with offset 0: the first line of a file */
	self_maps_notify *notify;
	void *data;
};

/* ---- Known ranges ---- */

static uint32_t find_index(const struct self_maps *code, uint64_t address)
{
	uint32_t low = 0, high = code->n;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (code->ranges[middle].end <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

const struct self_maps_range *self_maps_find(const struct self_maps *code, uint64_t address)
{
	uint32_t i = find_index(code, address);

	return i < code->n && address >= code->ranges[i].start ? &code->ranges[i] : NULL;
}

static void clear(struct self_maps *code)
{
	code->version++;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	code->n = 0;
}

/* Adds a range. Replaces overlapping ranges. If there is no room, the range stays unknown. */
static void add(struct self_maps *code, const struct self_maps_range *range)
{
	uint32_t first, last;

	if (code->n == SELF_MAPS_MAX)
		return;
	code->version++;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	first = last = find_index(code, range->start);
	while (last < code->n && code->ranges[last].start < range->end)
		last++;
	if (last == first)
		memmove(&code->ranges[first + 1], &code->ranges[first],
			(code->n - first) * sizeof(*range));
	else
		memmove(&code->ranges[first + 1], &code->ranges[last],
			(code->n - last) * sizeof(*range));
	code->n = code->n - (last - first) + 1;
	code->ranges[first] = *range;
}

static bool is_same(struct safe_read *memory, const struct self_maps_range *range, uint64_t address)
{
	uint8_t id[MODULE_MAX_ID];
	uint64_t start, end;

	if (range->n_id_bytes == 0)
		return module_find_loaded(address, &start, &end) == range->was_loaded;
	return safe_read(memory, range->id_at, id, range->n_id_bytes) &&
	       memcmp(id, range->id, range->n_id_bytes) == 0;
}

bool self_maps_check(struct self_maps *code, const struct self_maps_stack *stack, uint32_t epoch)
{
	struct safe_read memory = { 0 };
	const struct self_maps_range *last = NULL;

	if (code->epoch != epoch) {
		clear(code);
		code->epoch = epoch;
	}
	for (uint32_t i = 0; i < stack->n; i++) {
		uint64_t address = self_maps_byte(stack, i);
		const struct self_maps_range *range = self_maps_find(code, address);

		if (!range)
			return false;
		if (range != last && !is_same(&memory, range, address)) {
			clear(code);
			code->n_replaced++;
			return false;
		}
		/* The next frame is often in the same range, which needs no second check. But a
		 * range without an id is checked at each address. */
		last = range->n_id_bytes ? range : NULL;
	}
	return true;
}

void self_maps_stamp(struct self_maps *code, const struct self_maps_stack *stack, uint32_t stamp)
{
	for (uint32_t i = 0; i < stack->n; i++) {
		uint64_t address = self_maps_byte(stack, i);
		uint32_t at = find_index(code, address);

		if (at < code->n && address >= code->ranges[at].start)
			code->ranges[at].stamp = stamp;
	}
}

/* ---- /proc/self/maps ---- */

static bool parse_number(const char **at, unsigned base, uint64_t *ret_value)
{
	const char *from = *at;
	uint64_t value = 0;

	for (;; (*at)++) {
		char c = **at;
		unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
				 : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
							: 16;

		if (digit >= base)
			break;
		value = value * base + digit;
	}
	*ret_value = value;
	return *at > from;
}

static bool parse_char(const char **at, char wanted)
{
	return **at == wanted ? (*at)++, true : false;
}

/* Replaces the kernel's escapes, which it uses only for line ends. */
static char *unescape(char *path)
{
	char *to = path;

	for (const char *from = path; *from; to++) {
		bool is_escaped = from[0] == '\\' && from[1] == '0' && from[2] == '1' &&
				  from[3] == '2';

		*to = *from;
		if (is_escaped)
			*to = '\n';
		from += is_escaped ? 4 : 1;
	}
	*to = 0;
	return path;
}

static bool parse_line(char *text, struct line *ret_line)
{
	const char *at = text;
	uint64_t major_number, minor_number;

	if (!parse_number(&at, 16, &ret_line->start) || !parse_char(&at, '-') ||
	    !parse_number(&at, 16, &ret_line->end) || !parse_char(&at, ' ') || !at[0] || !at[1] ||
	    !at[2] || !at[3] || at[4] != ' ')
		return false;
	ret_line->is_executable = at[2] == 'x';
	at += 5;
	if (!parse_number(&at, 16, &ret_line->offset) || !parse_char(&at, ' ') ||
	    !parse_number(&at, 16, &major_number) || !parse_char(&at, ':') ||
	    !parse_number(&at, 16, &minor_number) || !parse_char(&at, ' ') ||
	    !parse_number(&at, 10, &ret_line->inode))
		return false;
	while (*at == ' ')
		at++;
	ret_line->dev = makedev((unsigned)major_number, (unsigned)minor_number);
	ret_line->path = unescape(text + (at - text));
	return true;
}

static bool find_wanted(const struct scan *scan, const struct line *line, uint64_t *ret_address)
{
	for (uint32_t i = 0; i < scan->stack->n; i++) {
		uint64_t address = self_maps_byte(scan->stack, i);

		if (address >= line->start && address < line->end &&
		    !self_maps_find(scan->code, address)) {
			*ret_address = address;
			return true;
		}
	}
	return false;
}

static bool read_memory(void *data, uint64_t address, void *buffer, size_t size)
{
	return safe_read(data, address, buffer, size);
}

/* Reads the id of the module at `start`: its build-id, or else its first bytes. Returns false if
 * this is not an ELF file, or cannot be read. */
static bool read_id(struct scan *scan, uint64_t start, uint64_t end, struct self_maps_range *range)
{
	const struct module_memory memory = { start, end, read_memory, &scan->memory };

	if (!module_is_elf(&memory))
		return false;
	range->id_at = module_find_build_id(&memory, &range->n_id_bytes);
	range->has_build_id = range->id_at != 0;
	if (!range->has_build_id) {
		range->id_at = start;
		range->n_id_bytes = MODULE_MAX_ID;
	}
	return module_read(&memory, range->id_at, range->id, range->n_id_bytes);
}

/* Makes a range for memory whose file is unknown: [start, end) or, if the loader has a module at
 * the address, only the part of [start, end) that is in the module or in the address's page. */
static struct self_maps_range make_nameless(struct scan *scan, uint64_t address, uint64_t start,
					    uint64_t end)
{
	struct self_maps_range range = { .start = start, .end = end };
	uint64_t page = address & -(uint64_t)SAFE_READ_PAGE, from, to;

	if (!module_find_loaded(address, &from, &to))
		return range;
	range.was_loaded = true;
	range.start = MAX_OF(start, MIN_OF(from, page));
	range.end = MIN_OF(end, MAX_OF(to, page + SAFE_READ_PAGE));
	if (!read_id(scan, from, to, &range))
		range.n_id_bytes = 0;
	return range;
}

static bool read_line(struct scan *scan, char *text)
{
	struct line line;
	struct self_maps_range range;
	uint64_t address;
	int64_t image = 0;

	if (!parse_line(text, &line))
		return true;
	/* A mapping of anonymous memory between a file's segments does not begin a file. */
	if (line.offset == 0 && line.inode != 0)
		scan->first = line;
	if (!find_wanted(scan, &line, &address))
		return true;
	range = (struct self_maps_range){ .start = line.start,
					  .end = line.end,
					  .file_offset = line.offset };
	/* The line belongs to an ELF file whose first line was seen. */
	if (line.is_executable && line.path[0] && scan->first.dev == line.dev &&
	    scan->first.inode == line.inode && scan->first.end <= line.end &&
	    read_id(scan, scan->first.start, line.end, &range))
		image = scan->notify(scan->data, &range, line.dev, line.inode, line.path);
	else
		range = make_nameless(scan, address, line.start, line.end);
	if (image < 0)
		return false;
	range.image = (uint32_t)image;
	add(scan->code, &range);
	return true;
}

/* Handles whole lines, and moves the rest to the front. Returns the rest's length, or UINT32_MAX to
 * stop. */
static uint32_t parse_lines(struct scan *scan, uint32_t n)
{
	char *buffer = scan->code->line;
	uint32_t at = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (buffer[i] != '\n')
			continue;
		buffer[i] = 0;
		if (!read_line(scan, buffer + at))
			return UINT32_MAX;
		at = i + 1;
	}
	memmove(buffer, buffer + at, n - at);
	/* Ignore a line that does not fit. */
	return n - at < SELF_MAPS_LINE ? n - at : 0;
}

/* Adds the pages of addresses that are not mapped or not listed, so that they are not searched
 * again. If the loader has a module there, adds the whole unknown part of the module. */
static void add_rest(struct scan *scan)
{
	for (uint32_t i = 0; i < scan->stack->n; i++) {
		uint64_t address = self_maps_byte(scan->stack, i);
		uint64_t page = address & -(uint64_t)SAFE_READ_PAGE;
		struct self_maps_range rest;
		uint32_t at;

		if (self_maps_find(scan->code, address) || page + SAFE_READ_PAGE == 0)
			continue;
		at = find_index(scan->code, address); /* index of the range after the gap */
		rest = make_nameless(scan, address, at > 0 ? scan->code->ranges[at - 1].end : 0,
				     at < scan->code->n ? scan->code->ranges[at].start
							: UINT64_MAX);
		if (!rest.was_loaded) {
			rest.start = page;
			rest.end = page + SAFE_READ_PAGE;
		}
		add(scan->code, &rest);
	}
}

bool self_maps_scan(struct self_maps *code, const struct self_maps_stack *stack,
		    self_maps_notify *notify, void *data)
{
	struct scan scan = { .code = code, .stack = stack, .notify = notify, .data = data };
	long fd = syscall(SYS_openat, (long)AT_FDCWD, "/proc/self/maps",
			  (long)(O_RDONLY | O_CLOEXEC), 0L);
	uint32_t n = 0;
	long got = 1;

	/* Make room before the search, because the search must find the dropped ranges again. */
	if (code->n + MIN_OF(stack->n, SELF_MAPS_MAX / 2) > SELF_MAPS_MAX)
		clear(code);
	while (fd >= 0 && got > 0 && n != UINT32_MAX) {
		got = syscall(SYS_read, fd, code->line + n, (long)(SELF_MAPS_LINE - n));
		if (got > 0)
			n = parse_lines(&scan, n + (uint32_t)got);
	}
	if (fd >= 0)
		syscall(SYS_close, fd);
	if (n == UINT32_MAX)
		return false;
	add_rest(&scan);
	return true;
}
