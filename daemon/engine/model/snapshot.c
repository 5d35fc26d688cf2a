/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Snapshot - parses the copies of /proc files
 *
 * profd-files copies files of /proc into a memfd. Users choose the names of processes, files and
 * cgroups, so the texts may be hostile: a comm may contain blanks and parentheses, a path any byte.
 * Invariants: (1) nothing outside the given bytes is read         [fuzz_snapshot]
 *             (2) each call that returns an item consumes at least one byte, so loops end
 *                                                             [fuzz_snapshot]
 *             (3) a line that does not parse is skipped, not fatal [test-engine-snapshot: hostile]
 * Pure functions. Does not use the task tables (scan.c).
 */
#include "daemon/engine/model/snapshot.h"

#include "arch/base.h"
#include "daemon/protocol.h"

#include <glib.h>
#include <unistd.h>

struct text {
	const char *at, *end;
};

bool snapshot_next(struct snapshot *snapshot, struct snapshot_item *ret_item)
{
	struct snapshot_record record;
	size_t left = snapshot->length - snapshot->offset;
	size_t padded;

	if (left < sizeof(record))
		return false;
	memcpy(&record, snapshot->bytes + snapshot->offset, sizeof(record));
	left -= sizeof(record);
	padded = ((size_t)record.length + 7) & ~(size_t)7;
	if (record.length > left)
		return false;
	*ret_item = (struct snapshot_item){
		.kind = record.kind,
		.pid = record.pid,
		.tid = record.tid,
		.time_ns = record.time_ns,
		.text = (const char *)snapshot->bytes + snapshot->offset + sizeof(record),
		.length = record.length,
	};
	snapshot->offset += sizeof(record) + MIN_OF(padded, left);
	return true;
}

static bool read_char(struct text *text, char wanted)
{
	if (text->at >= text->end || *text->at != wanted)
		return false;
	text->at++;
	return true;
}

static void skip_blanks(struct text *text)
{
	while (text->at < text->end && (*text->at == ' ' || *text->at == '\t'))
		text->at++;
}

static bool skip_word(struct text *text)
{
	const char *start;

	skip_blanks(text);
	start = text->at;
	while (text->at < text->end && *text->at != ' ' && *text->at != '\t' && *text->at != '\n')
		text->at++;
	return text->at > start;
}

static bool read_number(struct text *text, unsigned int base, uint64_t *ret_number)
{
	const char *start = text->at;
	uint64_t number = 0;

	for (; text->at < text->end; text->at++) {
		int digit = g_ascii_xdigit_value(*text->at);

		if (digit < 0 || (unsigned int)digit >= base)
			break;
		if (!mul_u64(number, base, &number) || !add_u64(number, digit, &number))
			return false;
	}
	if (text->at == start)
		return false;
	*ret_number = number;
	return true;
}

static bool read_decimal(struct text *text, uint64_t *ret_number)
{
	skip_blanks(text);
	return read_number(text, 10, ret_number);
}

/* Removes the next line from the text, and returns it without its newline. */
static bool next_line(struct text *text, struct text *ret_line)
{
	const char *newline;

	if (text->at >= text->end)
		return false;
	newline = memchr(text->at, '\n', text->end - text->at);
	ret_line->at = text->at;
	ret_line->end = newline ? newline : text->end;
	text->at = newline ? newline + 1 : text->end;
	return true;
}

/* man 5 proc: pid (comm) state ppid pgrp session tty tpgid flags … starttime is the 22nd field. */
bool snapshot_parse_stat(const char *bytes, size_t length, struct snapshot_stat *ret_stat)
{
	struct text text = { bytes, bytes + length };
	struct snapshot_stat stat = { 0 };
	const char *open = length ? memchr(bytes, '(', length) : NULL;
	const char *close = length ? memrchr(bytes, ')', length) : NULL;
	uint64_t ppid;
	int field;

	if (!open || !close || close < open)
		return false;
	memcpy(stat.comm, open + 1, MIN_OF((size_t)(close - open - 1), sizeof(stat.comm) - 1));
	text.at = close + 1;
	skip_blanks(&text);
	if (text.at >= text.end)
		return false;
	stat.state = *text.at++;
	if (!read_decimal(&text, &ppid) || ppid > INT32_MAX)
		return false;
	stat.ppid = ppid;
	for (field = 5; field < 9; field++)
		if (!skip_word(&text))
			return false;
	if (!read_decimal(&text, &stat.flags))
		return false;
	for (field = 10; field < 22; field++)
		if (!skip_word(&text))
			return false;
	if (!read_decimal(&text, &stat.start_ticks))
		return false;
	*ret_stat = stat;
	return true;
}

static bool starts_with(const struct text *text, const char *prefix)
{
	size_t n = strlen(prefix);

	return (size_t)(text->end - text->at) >= n && memcmp(text->at, prefix, n) == 0;
}

bool snapshot_parse_status(const char *bytes, size_t length, struct snapshot_status *ret_status)
{
	struct text text = { bytes, bytes + length }, line;
	struct snapshot_status status = { 0 };
	bool found = false;
	uint64_t number;

	while (next_line(&text, &line)) {
		if (starts_with(&line, "Uid:")) {
			line.at += strlen("Uid:");
			if (!read_decimal(&line, &number) || number > UINT32_MAX)
				return false;
			status.uid = number;
			found = true;
		} else if (starts_with(&line, "NSpid:")) {
			line.at += strlen("NSpid:");
			while (status.n_ns_pids < SNAPSHOT_MAX_NS && read_decimal(&line, &number))
				status.ns_pids[status.n_ns_pids++] = number;
		}
	}
	if (found)
		*ret_status = status;
	return found;
}

/* start-end perms offset major:minor inode    name */
static bool parse_maps_line(struct text line, struct snapshot_range *ret_range)
{
	struct snapshot_range range = { 0 };
	uint64_t major, minor;

	if (!read_number(&line, 16, &range.start) || !read_char(&line, '-') ||
	    !read_number(&line, 16, &range.end) || !read_char(&line, ' ') ||
	    range.end <= range.start || line.end - line.at < 5)
		return false;
	range.executable = line.at[2] == 'x';
	range.is_shared = line.at[3] == 's';
	line.at += 4;
	if (!read_char(&line, ' ') || !read_number(&line, 16, &range.file_offset) ||
	    !read_char(&line, ' ') || !read_number(&line, 16, &major) || !read_char(&line, ':') ||
	    !read_number(&line, 16, &minor) || !read_decimal(&line, &range.inode))
		return false;
	if (major > UINT32_MAX || minor > UINT32_MAX)
		return false;
	skip_blanks(&line);
	range.dev_major = major;
	range.dev_minor = minor;
	range.name = line.at;
	range.name_bytes = line.end - line.at;
	*ret_range = range;
	return true;
}

bool snapshot_next_range(const char **text, size_t *length, struct snapshot_range *ret_range)
{
	struct text rest = { *text, *text + *length }, line;
	bool found = false;

	while (!found && next_line(&rest, &line))
		found = parse_maps_line(line, ret_range);
	*text = rest.at;
	*length = rest.end - rest.at;
	return found;
}

bool snapshot_parse_mapping(const char *text, size_t length, struct snapshot_range *ret_range)
{
	struct snapshot_mapping mapping;

	if (length < sizeof(mapping))
		return false;
	memcpy(&mapping, text, sizeof(mapping));
	if (mapping.end <= mapping.start || mapping.build_id_size > sizeof(mapping.build_id))
		return false;
	*ret_range = (struct snapshot_range){
		.start = mapping.start,
		.end = mapping.end,
		.file_offset = mapping.file_offset,
		.inode = mapping.inode,
		.dev_major = mapping.dev_major,
		.dev_minor = mapping.dev_minor,
		.build_id = (const uint8_t *)text + offsetof(struct snapshot_mapping, build_id),
		.build_id_bytes = mapping.build_id_size,
		.executable = true,
		.is_shared = mapping.is_shared,
		.name = text + sizeof(mapping),
		.name_bytes = strnlen(text + sizeof(mapping), length - sizeof(mapping)),
	};
	return true;
}

/* name size refcount users state 0xaddress … */
static bool parse_module_line(struct text line, struct snapshot_module *ret_module)
{
	struct snapshot_module module = { .name = line.at };

	if (!skip_word(&line))
		return false;
	module.name_bytes = line.at - module.name;
	if (!read_decimal(&line, &module.length) || !skip_word(&line) || !skip_word(&line) ||
	    !skip_word(&line))
		return false;
	skip_blanks(&line);
	if (!read_char(&line, '0') || !read_char(&line, 'x') ||
	    !read_number(&line, 16, &module.start) || module.start == 0)
		return false;
	*ret_module = module;
	return true;
}

bool snapshot_next_module(const char **text, size_t *length, struct snapshot_module *ret_module)
{
	struct text rest = { *text, *text + *length }, line;
	bool found = false;

	while (!found && next_line(&rest, &line))
		found = parse_module_line(line, ret_module);
	*text = rest.at;
	*length = rest.end - rest.at;
	return found;
}

/* "Rss:  1234 kB" */
static bool read_size(struct text line, const char *name, uint64_t *ret_bytes)
{
	uint64_t kib;

	if (!starts_with(&line, name))
		return false;
	line.at += strlen(name);
	return read_decimal(&line, &kib) && mul_u64(kib, 1024, ret_bytes);
}

bool snapshot_parse_rollup(const char *bytes, size_t length, struct snapshot_usage *ret)
{
	struct text text = { bytes, bytes + length }, line;
	struct snapshot_usage usage = { 0 };
	bool found = false;

	while (next_line(&text, &line)) {
		found = read_size(line, "Rss:", &usage.rss_bytes) || found;
		usage.has_pss = read_size(line, "Pss:", &usage.pss_bytes) || usage.has_pss;
	}
	if (found)
		*ret = usage;
	return found;
}

/* size resident … in pages */
bool snapshot_parse_statm(const char *bytes, size_t length, struct snapshot_usage *ret)
{
	struct text text = { bytes, bytes + length };
	struct snapshot_usage usage = { 0 };
	uint64_t pages;

	if (!skip_word(&text) || !read_decimal(&text, &pages) ||
	    !mul_u64(pages, (uint64_t)sysconf(_SC_PAGESIZE), &usage.rss_bytes))
		return false;
	*ret = usage;
	return true;
}

/* pid (comm) state, then numbers; fields are counted from 1, as in proc_pid_stat(5) */
bool snapshot_parse_counts(const char *bytes, size_t length, struct snapshot_counts *counts)
{
	enum { MINOR = 10, MAJOR = 12, THREADS = 20, RSS = 24 };
	struct text text = { bytes, bytes + length };
	uint64_t numbers[RSS + 1] = { 0 }, rss_bytes;

	/* A comm may contain parentheses, but nothing after it does. */
	while (text.end > bytes && text.end[-1] != ')')
		text.end--;
	if (text.end == bytes)
		return false;
	text = (struct text){ text.end, bytes + length };
	for (int i = 3; i <= RSS; i++) {
		skip_blanks(&text);
		if (i == MINOR || i == MAJOR || i == THREADS || i == RSS) {
			if (!read_number(&text, 10, &numbers[i]))
				return false;
		} else if (!skip_word(&text)) {
			return false;
		}
	}
	if (!mul_u64(numbers[RSS], (uint64_t)sysconf(_SC_PAGESIZE), &rss_bytes))
		return false;
	counts->minor_faults = numbers[MINOR];
	counts->major_faults = numbers[MAJOR];
	counts->threads = numbers[THREADS];
	counts->rss_bytes = rss_bytes;
	return true;
}

bool snapshot_parse_io(const char *bytes, size_t length, struct snapshot_counts *counts)
{
	static const char *const names[] = { "rchar: ", "wchar: ", "read_bytes: ",
					     "write_bytes: " };
	struct text text = { bytes, bytes + length }, line;
	uint64_t numbers[ARRAY_SIZE(names)];
	unsigned int found = 0;

	while (next_line(&text, &line)) {
		for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
			struct text number = line;

			if (!starts_with(&line, names[i]))
				continue;
			number.at += strlen(names[i]);
			if (read_decimal(&number, &numbers[i]))
				found |= 1u << i;
		}
	}
	if (found != (1u << ARRAY_SIZE(names)) - 1)
		return false;
	counts->read_bytes = numbers[0];
	counts->written_bytes = numbers[1];
	counts->disk_read_bytes = numbers[2];
	counts->disk_written_bytes = numbers[3];
	return true;
}

bool snapshot_parse_cgroup(const char *bytes, size_t length, const char **ret_path,
			   size_t *ret_path_bytes)
{
	struct text text = { bytes, bytes + length }, line, chosen = { 0 };
	const char *colon;

	while (next_line(&text, &line)) {
		if (starts_with(&line, "0::"))
			chosen = line;
		else if (!chosen.at)
			chosen = line;
	}
	if (!chosen.at)
		return false;
	colon = memchr(chosen.at, ':', chosen.end - chosen.at);
	if (colon)
		colon = memchr(colon + 1, ':', chosen.end - colon - 1);
	if (!colon)
		return false;
	*ret_path = colon + 1;
	*ret_path_bytes = chosen.end - colon - 1;
	return true;
}
