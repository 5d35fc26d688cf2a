/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Names of generated code from files: perf-PID.map and jit-PID.dump
 *
 * Promises:
 * - lines of all dialects are read; others are skipped, and so is a truncated line [map]
 * - if several lines have one address, the last one is used; code without samples is left out [map]
 * - loads and moves have the dump's times, in either byte order, even if the dump is cut [dump]
 * - loads before the segment are valid from its start; loads after its end are left out [dump]
 * - lines belong to the load at the address; the offset in V8's addresses is removed [lines]
 * - if a line's file name is invalid, the function's file name is used; if that is invalid, too,
 *   the function has no lines [freed_file]
 * - names are harmless to terminals; false lengths have no effect [hostile]
 * - a file is not read if it belongs neither to the process's user nor to root, if it is a pipe, or
 *   if it is outdated [owner]
 * - the pid is in the path of a dump [paths]
 */
#include "config.h"

#include "arch/base.h"
#include "arch/jit-dump.h"
#include "tests/unit/test.h"
#include "tools/symbols/jit-names.h"

#include <byteswap.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <time.h>

/* Returns the rows as "START+SIZE NAME@TIME", separated by spaces. */
static const char *text_of(GArray *rows)
{
	static char text[1024];
	size_t at = 0;

	text[0] = 0;
	for (guint i = 0; rows && i < rows->len; i++) {
		const struct jit_name *row = &g_array_index(rows, struct jit_name, i);

		at += (size_t)snprintf(text + at, sizeof(text) - at,
				       "%s%" PRIx64 "+%" PRIx64 " %s@%" PRIu64, i ? "  " : "",
				       row->address, row->size,
				       row->event == PROF_JIT_MOVE ? "(moved)" : row->name,
				       row->time_ns);
	}
	if (rows)
		g_array_unref(rows);
	return text;
}

static void map(void)
{
	static const char lines[] = "7f00 10 JS:*alpha /a b.js:1:15\n"
				    "0x8000 0x20 Ljava/lang/Object;::<init>()V\r\n"
				    "8000 20 again\n"
				    "\n"
				    "nonsense\n"
				    "9000 0 empty\n"
				    "9000 10\n"
				    "9000 10 \n"
				    "ffffffffffffffff 10 beyond\n"
				    "11112222333344445 1 long\n"
				    "a000\t8\tpy::f:/x.py\n"
				    "b000 10 nobody hit it\n"
				    "c000 10 cut";
	static const uint64_t addresses[] = { 0x7f0f, 0x7f10, 0x8001, 0x9001, 0xa000, 0xc001 };
	GStringChunk *texts = g_string_chunk_new(64);

	CHECK_STR(text_of(jit_names_of_map(lines, sizeof(lines) - 1, addresses,
					   ARRAY_SIZE(addresses), 5, texts)),
		  "7f00+10 JS:*alpha /a b.js:1:15@5  8000+20 again@5  a000+8 py::f:/x.py@5");
	for (size_t n = 0; n < sizeof(lines); n++) {
		char *part = g_memdup2(lines, n + 1);

		text_of(jit_names_of_map(part, n, addresses, ARRAY_SIZE(addresses), 5, texts));
		g_free(part);
	}
	g_string_chunk_free(texts);
}

/* ---- Dumps ----------------------------------------------------------------------------------- */

struct bytes {
	uint8_t data[2048];
	size_t n;
	bool swapped;
};

static void put32(struct bytes *bytes, uint32_t value)
{
	value = bytes->swapped ? bswap_32(value) : value;
	memcpy(bytes->data + bytes->n, &value, 4);
	bytes->n += 4;
}

static void put64(struct bytes *bytes, uint64_t value)
{
	value = bytes->swapped ? bswap_64(value) : value;
	memcpy(bytes->data + bytes->n, &value, 8);
	bytes->n += 8;
}

static void begin_dump(struct bytes *bytes, bool swapped, uint64_t flags)
{
	*bytes = (struct bytes){ .swapped = swapped };
	put32(bytes, 0x4a695444);
	put32(bytes, 1);
	put32(bytes, 40);
	put32(bytes, 62);
	put32(bytes, 0);
	put32(bytes, 77);
	put64(bytes, 1);
	put64(bytes, flags);
}

static void add_load(struct bytes *bytes, uint64_t time, uint64_t address, uint64_t size,
		     const char *name)
{
	size_t n = strlen(name) + 1;

	put32(bytes, 0);
	put32(bytes, (uint32_t)(16 + 40 + n + 3));
	put64(bytes, time);
	put64(bytes, 77);
	put64(bytes, address);
	put64(bytes, address);
	put64(bytes, size);
	put64(bytes, 1);
	memcpy(bytes->data + bytes->n, name, n);
	bytes->n += n + 3; /* plus three bytes of code */
}

static void add_move(struct bytes *bytes, uint64_t time, uint64_t from, uint64_t to, uint64_t size)
{
	put32(bytes, 1);
	put32(bytes, 16 + 48);
	put64(bytes, time);
	put64(bytes, 77);
	put64(bytes, from);
	put64(bytes, from);
	put64(bytes, to);
	put64(bytes, size);
	put64(bytes, 1);
}

static void build_dump(struct bytes *bytes, bool swapped)
{
	begin_dump(bytes, swapped, 0);
	add_load(bytes, 5, 0x1000, 0x100, "early");
	put32(bytes, 2); /* a record with lines, which is skipped */
	put32(bytes, 24);
	put64(bytes, 11);
	put64(bytes, 0);
	add_load(bytes, 20, 0x5000, 0x100, "moves");
	add_load(bytes, 21, 0x6000, 0x100, "not hit");
	add_load(bytes, 30, 0x1000, 0x80, "later");
	add_move(bytes, 40, 0x5000, 0x2000, 0x100);
	add_load(bytes, 50, 0x1000, 0x80, "too late");
}

static void dump(void)
{
	static const uint64_t addresses[] = { 0x1001, 0x2001 };
	static const char expected[] =
		"1000+100 early@10  5000+100 moves@20  1000+80 later@30  2000+0 (moved)@40";
	GStringChunk *texts = g_string_chunk_new(64);
	struct bytes bytes;

	for (int swapped = 0; swapped < 2; swapped++) {
		build_dump(&bytes, swapped);
		CHECK_STR(text_of(jit_names_of_dump(bytes.data, bytes.n, addresses, 2, 10, 45,
						    texts)),
			  expected);
		for (size_t n = 0; n < bytes.n; n++) {
			uint8_t *part = g_memdup2(bytes.data, n + 1);

			text_of(jit_names_of_dump(part, n, addresses, 2, 10, 45, texts));
			g_free(part);
		}
	}
	begin_dump(&bytes, false, 1); /* the times are of another clock */
	add_load(&bytes, 20, 0x1000, 0x100, "x");
	CHECK_STR(text_of(jit_names_of_dump(bytes.data, bytes.n, addresses, 2, 10, 45, texts)), "");
	g_string_chunk_free(texts);
}

/* Begins a record with lines. add_line() updates its length. */
static size_t begin_lines(struct bytes *bytes, uint64_t address, uint64_t n)
{
	size_t at = bytes->n + 4;

	put32(bytes, 2);
	put32(bytes, 16 + 16);
	put64(bytes, 1);
	put64(bytes, address);
	put64(bytes, n);
	return at;
}

/* Adds a line. `at`: the result of begin_lines(). */
static void add_line(struct bytes *bytes, size_t at, uint64_t address, uint32_t line,
		     const char *file)
{
	size_t n = strlen(file) + 1, end;

	put64(bytes, address);
	put32(bytes, line);
	put32(bytes, 0);
	memcpy(bytes->data + bytes->n, file, n);
	bytes->n += n;
	end = bytes->n;
	bytes->n = at;
	put32(bytes, (uint32_t)(end - (at - 4)));
	bytes->n = end;
}

/* Returns the rows as "ADDRESS FILE:LINE". */
static const char *text_of_lines(GArray *rows)
{
	static char text[1024];
	size_t at = 0;

	text[0] = 0;
	for (guint i = 0; i < rows->len; i++) {
		const struct jit_line *row = &g_array_index(rows, struct jit_line, i);

		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%" PRIx64 " %s:%u",
				       i ? "  " : "", row->address, row->file, row->line);
	}
	g_array_unref(rows);
	return text;
}

/* Builds a dump with lines. `shift`: 0x40, as V8 adds to addresses, or 0. */
static void build_lines(struct bytes *bytes, bool swapped, uint64_t shift)
{
	size_t at;

	begin_dump(bytes, swapped, 0);
	at = begin_lines(bytes, 0x1000, 5);
	add_line(bytes, at, 0x1020 + shift, 7, "\xff"); /* not in order; no file is known yet */
	add_line(bytes, at, 0x1020 + shift, 7, "a.js");
	add_line(bytes, at, 0x1040 + shift, 9, "\xff");
	add_line(bytes, at, 0x1000 + shift, 3, "b\033.js");
	add_line(bytes, at, 0x1050 + shift, 0, "a.js");
	add_load(bytes, 5, 0x1000, 0x100, "once");
	add_load(bytes, 6, 0x1000, 0x10, "again, without lines");
	at = begin_lines(bytes, 0x2000, 1);
	add_line(bytes, at, 0x2000 + shift, 1, "c.js");
	add_load(bytes, 20, 0x2000, 0x100, "first");
	at = begin_lines(bytes, 0x2000, 1);
	add_line(bytes, at, 0x2000 + shift, 2, "c.js");
	add_load(bytes, 30, 0x2000, 0x80, "second");
	at = begin_lines(bytes, 0x3000, 1);
	add_line(bytes, at, 0x3000 + shift, 4, "d.js");
	add_load(bytes, 31, 0x3100, 0x80, "another one's");
}

static void lines(void)
{
	static const uint64_t addresses[] = { 0x1001, 0x1010, 0x101f, 0x1020, 0x1048,
					      0x1fff, 0x2001, 0x2090, 0x3000, 0x3100 };
	static const char expected[] =
		"1010 b\\x1b.js:3  101f b\\x1b.js:3  1020 a.js:7  1048 a.js:9"
		"  2090 c.js:1";
	GStringChunk *texts = g_string_chunk_new(64);
	struct bytes bytes;

	for (unsigned how = 0; how < 4; how++) {
		build_lines(&bytes, how & 1, how & 2 ? 0x40 : 0);
		CHECK_STR(text_of_lines(jit_lines_of_dump(bytes.data, bytes.n, addresses,
							  ARRAY_SIZE(addresses), 10, 45, texts)),
			  expected);
		for (size_t n = 0; n < bytes.n; n++) {
			uint8_t *part = g_memdup2(bytes.data, n + 1);

			text_of_lines(jit_lines_of_dump(part, n, addresses, ARRAY_SIZE(addresses),
							10, 45, texts));
			g_free(part);
		}
	}
	/* lines of an earlier load are replaced by those of a load at the relevant time, but not by
	 * those of a later load */
	CHECK_STR(text_of_lines(
			  jit_lines_of_dump(bytes.data, bytes.n, &addresses[6], 1, 30, 45, texts)),
		  "2001 c.js:2");
	CHECK_STR(text_of_lines(
			  jit_lines_of_dump(bytes.data, bytes.n, &addresses[6], 1, 10, 25, texts)),
		  "2001 c.js:1");
	add_move(&bytes, 40, 0x1000, 0x2010, 0x100);
	CHECK_STR(text_of_lines(
			  jit_lines_of_dump(bytes.data, bytes.n, &addresses[7], 1, 10, 45, texts)),
		  "");
	g_string_chunk_free(texts);
}

/* If the name of a file was freed, V8 writes other bytes of the same length, some of them zero. */
static void freed_file(void)
{
	static const uint64_t addresses[] = { 0x1001, 0x1021 };
	static const char name[] = "JS:*f /a b/c.js:1:15";
	GStringChunk *texts = g_string_chunk_new(64);
	struct bytes bytes;

	for (int is_node = 0; is_node < 2; is_node++) {
		size_t at;

		begin_dump(&bytes, false, 0);
		at = begin_lines(&bytes, 0x1000, 2);
		for (unsigned i = 0; i < 2; i++) {
			add_line(&bytes, at, 0x1040 + i * 0x20, 3 + i, "/a b/c.js");
			memcpy(bytes.data + bytes.n - 10, "G]\0\0\0\1\2\3\4", 10);
		}
		put32(&bytes, 0); /* padding */
		bytes.data[at] += 4;
		add_load(&bytes, 5, 0x1000, 0x100, is_node ? name : "f /a b/c.js");
		CHECK_STR(text_of_lines(jit_lines_of_dump(bytes.data, bytes.n, addresses, 2, 10, 45,
							  texts)),
			  is_node ? "1001 /a b/c.js:3  1021 /a b/c.js:4" : "");
	}
	g_string_chunk_free(texts);
}

static void hostile(void)
{
	static const uint64_t addresses[] = { 0x1001 };
	static const char escape[] = "1000 10 a\033[2J\377b\n";
	GStringChunk *texts = g_string_chunk_new(64);
	struct bytes bytes;

	CHECK_STR(text_of(jit_names_of_map(escape, sizeof(escape) - 1, addresses, 1, 5, texts)),
		  "1000+10 a\\x1b[2J\xef\xbf\xbd"
		  "b@5");
	begin_dump(&bytes, false, 0);
	add_load(&bytes, 20, 0x1000, UINT64_MAX, "wraps");
	add_load(&bytes, 20, 0x1000, 0, "empty");
	add_load(&bytes, 20, 0x1000, 0x10, "");
	add_load(&bytes, 20, 0x1000, 0x10, "good");
	put32(&bytes, 0);
	put32(&bytes, 8); /* a record shorter than its header */
	put64(&bytes, 0);
	add_load(&bytes, 20, 0x1000, 0x10, "behind");
	CHECK_STR(text_of(jit_names_of_dump(bytes.data, bytes.n, addresses, 1, 10, 45, texts)),
		  "1000+10 good@20");
	for (size_t i = 0; i < bytes.n; i++) {
		bytes.data[i] ^= 0xff;
		text_of(jit_names_of_dump(bytes.data, bytes.n, addresses, 1, 10, 45, texts));
		bytes.data[i] ^= 0xff;
	}
	g_string_chunk_free(texts);
}

/* ---- Files ----------------------------------------------------------------------------------- */

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* No process has this pid: it is above the kernel's maximum. */
#define NO_PID 4194305

static void write_map(const char *path)
{
	CHECK(g_file_set_contents(path, "1000 10 found\n", -1, NULL));
}

static void owner(void)
{
	static const uint64_t addresses[] = { 0x1001 };
	g_autofree char *path = g_strdup_printf("/tmp/perf-%d.map", NO_PID);
	GStringChunk *texts = g_string_chunk_new(64);
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	const struct prof_segment segment = { .start_monotonic_ns = now_ns,
					      .wall_ns = (int64_t)clock_ns(CLOCK_REALTIME) };
	struct jit_process process = { .pid = NO_PID,
				       .uid = geteuid(),
				       .start_ns = now_ns,
				       .segment = &segment,
				       .end_ns = now_ns + 1000000000 };
	const struct timespec old[] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };
	g_autofree char *expected = g_strdup_printf("1000+10 found@%" PRIu64, now_ns);

	unlink(path);
	CHECK_STR(text_of(jit_names_find(&process, addresses, 1, texts)), "");
	write_map(path);
	CHECK_STR(text_of(jit_names_find(&process, addresses, 1, texts)), expected);
	CHECK_INT(utimensat(AT_FDCWD, path, old, 0), 0);
	CHECK_STR(text_of(jit_names_find(&process, addresses, 1, texts)), "");
	unlink(path);
	CHECK_INT(mkfifo(path, 0600), 0);
	CHECK_STR(text_of(jit_names_find(&process, addresses, 1, texts)), "");
	unlink(path);
	if (geteuid() == 0) {
		write_map(path);
		process.uid = 65534;
		CHECK_STR(text_of(jit_names_find(&process, addresses, 1, texts)), expected);
		CHECK_INT(chown(path, 65533, 65533), 0);
		CHECK_STR(text_of(jit_names_find(&process, addresses, 1, texts)), "");
		unlink(path);
	}
	g_string_chunk_free(texts);
}

static void paths(void)
{
	CHECK_INT(jit_dump_pid_of_path("/a b/jit-123.dump"), 123);
	CHECK_INT(jit_dump_pid_of_path("/x/jit-123.dump (deleted)"), 123);
	CHECK_INT(jit_dump_pid_of_path("/x/jit-.dump"), 0);
	CHECK_INT(jit_dump_pid_of_path("/x/jit-12.dumps"), 0);
	CHECK_INT(jit_dump_pid_of_path("/jit-12.dump/file"), 0);
	CHECK_INT(jit_dump_pid_of_path("jit-12.dump"), 0);
	CHECK_INT(jit_dump_pid_of_path(NULL), 0);
}

int main(void)
{
	RUN(map);
	RUN(dump);
	RUN(lines);
	RUN(freed_file);
	RUN(hostile);
	RUN(owner);
	RUN(paths);
	return test_end();
}
