/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Jitdump - reads the file in which a program records its generated code
 *
 *     header = magic u32 "JiTD", version u32, header bytes u32, elf machine u32, reserved u32,
 *              pid u32, time u64, flags u64
 *     record = id u32, bytes u32, time u64, …
 *       load (0)   pid u32, tid u32, vma u64, address u64, size u64, index u64, name, 0, code
 *       move (1)   pid u32, tid u32, vma u64, old address u64, new address u64, size u64, index u64
 *       lines (2)  address u64, number of lines u64, then for each: address u64, line u32,
 *                  discriminator u32, file, 0; the file "\xff" means the previous line's file
 *       unwinding (4)  bytes u64, bytes of .eh_frame_hdr u64, bytes that are mapped u64, .eh_frame,
 *                  .eh_frame_hdr: for the next load, as if .eh_frame were at the first multiple of
 *                  8 after its code
 *     Other records, such as the one at the end, are skipped by their length.
 * Invariants: (1) nothing outside of the bytes is read  [test-jit-names: dump, fuzz_jit_dump]
 *             (2) each step advances by at least a record's header, so a loop over records ends
 */
#include "arch/jit-dump.h"

#include "arch/base.h"

#include <byteswap.h>
#include <string.h>

#define MAGIC 0x4a695444u
#define HEADER_BYTES 40u
#define RECORD_BYTES 16u
#define BODY_BYTES 40u /* bytes of a load before its name */
#define MOVE_BYTES 48u
#define LINES_BYTES 16u
#define UNWINDING_BYTES 24u
#define LINE_BYTES 16u /* bytes of a line before its file */
#define SAME_FILE "\xff"
#define FLAG_ARCH_TIMESTAMP 1u

enum { RECORD_LOAD = 0, RECORD_MOVE = 1, RECORD_LINES = 2, RECORD_UNWINDING = 4 };

static uint32_t u32(const struct jit_dump *dump, size_t at)
{
	uint32_t value = load_le32(dump->bytes + at);

	return dump->swapped ? bswap_32(value) : value;
}

static uint64_t u64(const struct jit_dump *dump, size_t at)
{
	uint64_t value = load_le64(dump->bytes + at);

	return dump->swapped ? bswap_64(value) : value;
}

bool jit_dump_open(struct jit_dump *dump, const void *bytes, size_t size)
{
	struct jit_dump opened = { .bytes = bytes, .size = size };
	uint32_t version, header;

	if (size < HEADER_BYTES)
		return false;
	opened.swapped = load_le32(bytes) == bswap_32(MAGIC);
	version = u32(&opened, 4);
	header = u32(&opened, 8);
	if (u32(&opened, 0) != MAGIC || version < 1 || version > 2 || header < HEADER_BYTES ||
	    header > size || u64(&opened, 32) & FLAG_ARCH_TIMESTAMP)
		return false;
	opened.pid = u32(&opened, 20);
	opened.at = header;
	*dump = opened;
	return true;
}

static bool parse_load(const struct jit_dump *dump, size_t at, size_t end,
		       struct jit_dump_entry *entry)
{
	if (end - at < BODY_BYTES + 1 ||
	    !memchr(dump->bytes + at + BODY_BYTES, 0, end - at - BODY_BYTES))
		return false;
	entry->kind = JIT_DUMP_LOAD;
	entry->address = u64(dump, at + 16);
	entry->size = u64(dump, at + 24);
	entry->name = (const char *)dump->bytes + at + BODY_BYTES;
	return *entry->name && entry->size > 0;
}

static bool parse_move(const struct jit_dump *dump, size_t at, size_t end,
		       struct jit_dump_entry *entry)
{
	if (end - at < MOVE_BYTES)
		return false;
	entry->kind = JIT_DUMP_MOVE;
	entry->from = u64(dump, at + 16);
	entry->address = u64(dump, at + 24);
	entry->size = u64(dump, at + 32);
	return entry->size > 0;
}

/* The claimed number of lines may be too high, so the record's length limits it. */
static bool parse_lines(const struct jit_dump *dump, size_t at, size_t end,
			struct jit_dump_entry *entry)
{
	if (end - at < LINES_BYTES)
		return false;
	entry->kind = JIT_DUMP_LINES;
	entry->address = u64(dump, at);
	entry->lines = (struct jit_dump_lines){
		.dump = dump, .at = at + LINES_BYTES, .end = end, .n = u64(dump, at + 8)
	};
	return true;
}

static bool parse_unwinding(const struct jit_dump *dump, size_t at, size_t end,
			    struct jit_dump_entry *entry)
{
	uint64_t all, header;

	if (end - at < UNWINDING_BYTES)
		return false;
	all = u64(dump, at);
	header = u64(dump, at + 8);
	if (header > all || all > end - at - UNWINDING_BYTES)
		return false;
	entry->kind = JIT_DUMP_UNWINDING;
	entry->eh_frame = dump->bytes + at + UNWINDING_BYTES;
	entry->eh_frame_bytes = all - header;
	return true;
}

bool jit_dump_next_line(struct jit_dump_lines *lines, struct jit_dump_line *ret_line)
{
	size_t at = lines->at;
	const char *file, *zero;

	if (lines->n == 0 || lines->end - at < (lines->stride ? lines->stride : LINE_BYTES + 1))
		return false;
	if (lines->stride) {
		lines->at += lines->stride;
	} else {
		file = (const char *)lines->dump->bytes + at + LINE_BYTES;
		zero = memchr(file, 0, lines->end - at - LINE_BYTES);
		if (!zero)
			return false;
		lines->at += LINE_BYTES + (size_t)(zero - file) + 1;
		if (strcmp(file, SAME_FILE) != 0)
			lines->file = file;
	}
	lines->n--;
	*ret_line = (struct jit_dump_line){ u64(lines->dump, at), u32(lines->dump, at + 8),
					    lines->file };
	return true;
}

bool jit_dump_next(struct jit_dump *dump, struct jit_dump_entry *ret_entry)
{
	while (dump->size - dump->at >= RECORD_BYTES) {
		struct jit_dump_entry entry = { .time_ns = u64(dump, dump->at + 8) };
		uint32_t id = u32(dump, dump->at), bytes = u32(dump, dump->at + 4);
		size_t body = dump->at + RECORD_BYTES, end;
		bool is_one = false;

		if (bytes < RECORD_BYTES || bytes > dump->size - dump->at)
			return false; /* cut, or invalid */
		end = dump->at + bytes;
		dump->at = end;
		if (id == RECORD_LOAD)
			is_one = parse_load(dump, body, end, &entry);
		else if (id == RECORD_MOVE)
			is_one = parse_move(dump, body, end, &entry);
		else if (id == RECORD_LINES)
			is_one = parse_lines(dump, body, end, &entry);
		else if (id == RECORD_UNWINDING)
			is_one = parse_unwinding(dump, body, end, &entry);
		if (is_one && entry.size <= UINT64_MAX - entry.address) {
			*ret_entry = entry;
			return true;
		}
	}
	return false;
}

uint64_t jit_dump_pid_of_path(const char *path)
{
	static const char ends[][16] = { ".dump", ".dump (deleted)" };
	const char *base = path ? strrchr(path, '/') : NULL;
	uint64_t pid = 0;
	size_t at = 5;

	if (!base || strncmp(base, "/jit-", at) != 0)
		return 0;
	for (; base[at] >= '0' && base[at] <= '9' && pid <= UINT32_MAX; at++)
		pid = pid * 10 + (uint64_t)(base[at] - '0');
	if (strcmp(base + at, ends[0]) == 0 || strcmp(base + at, ends[1]) == 0)
		return pid;
	return 0;
}
