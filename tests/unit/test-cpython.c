/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of how the engine understands CPython: files, records, lines, functions, and the places of
 * frames in a native stack.
 */
#include "arch/base.h"
#include "base/cpython-layouts.h"
#include "base/python-module.h"
#include "daemon/engine/interp/cpython-lines.h"
#include "daemon/engine/interp/interp-functions.h"
#include "daemon/engine/interp/interp-merge.h"
#include "daemon/engine/interp/interp-runtime.h"
#include "tests/unit/cpython-tables.h"
#include "tests/unit/test.h"

#include <fcntl.h>

/* Each run extends from its position to the position of the next run. */
static void check_lines(unsigned minor, const uint8_t *table, size_t size,
			const uint16_t (*runs)[2], size_t n, unsigned end)
{
	const struct cpython_lines lines = { minor, 2, table, size };
	const unsigned unit = minor == 10 ? 2 : 1;

	for (size_t i = 0; i < n; i++)
		for (unsigned at = runs[i][0]; at < (i + 1 < n ? runs[i + 1][0] : end); at += 2)
			CHECK_INT(cpython_lines_find(&lines, at / unit), runs[i][1]);
	CHECK_INT(cpython_lines_find(&lines, -2), 2);
}

#define CHECK_LINES(minor)                                                       \
	check_lines(minor, cpython_table_##minor, sizeof(cpython_table_##minor), \
		    cpython_runs_##minor, ARRAY_SIZE(cpython_runs_##minor), cpython_end_##minor)

static void test_lines(void)
{
	CHECK_LINES(8);
	CHECK_LINES(10);
	CHECK_LINES(11);
	CHECK_LINES(13);
}

/* The machine's own Python, if it is a supported one. */
static void test_file(void)
{
	CLEANUP_CLOSE int fd = open("/usr/bin/python3", O_RDONLY | O_CLOEXEC);
	struct interp_runtime file;
	enum interp_found found;

	if (fd < 0)
		SKIP("no /usr/bin/python3");
	found = interp_runtime_find(fd, &file);
	if (found == INTERP_FOUND_NONE)
		SKIP("/usr/bin/python3 has its interpreter in a library");
	if (found != INTERP_FOUND)
		SKIP("/usr/bin/python3 is not of a supported version");
	CHECK(file.minor >= CPYTHON_FIRST_MINOR && file.minor <= CPYTHON_LAST_MINOR);
	CHECK(file.addresses[0] != 0 && file.addresses[1] != 0 && file.eval != 0 &&
	      file.eval_size > 0);
}

static void find_in_corpus(const char *name, struct interp_runtime *ret_file)
{
	CLEANUP_CLOSE int fd = -1;
	char path[512];

	snprintf(path, sizeof(path), "%s/tests/fuzz/corpus/interp_runtime/%s",
		 getenv("PROF_SOURCE_DIR"), name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	interp_runtime_find(fd, ret_file);
}

/* The version and build of an interpreter's file are recognized, or the file is refused. Since
 * Python 3.13, the file contains the offsets of its structures, which must be those of a known
 * build. */
static void test_offsets_of_the_file(void)
{
	static const struct {
		const char *name;
		enum interp_found found;
		unsigned minor;
		bool uses_musl;
	} files[] = {
		{ "version-7", INTERP_OTHER_VERSION, 0 },
		{ "version-8", INTERP_FOUND, 8 },
		{ "version-9", INTERP_FOUND, 9 },
		{ "version-10", INTERP_FOUND, 10 },
		{ "version-11", INTERP_FOUND, 11 },
		{ "version-13", INTERP_FOUND, 13 },
		{ "version-14", INTERP_FOUND, 14 },
		{ "version-13t", INTERP_FOUND, 13 + CPYTHON_FREE_THREADED },
		{ "version-14t", INTERP_FOUND, 14 + CPYTHON_FREE_THREADED },
		{ "free-threaded", INTERP_OTHER_BUILD, 13 + CPYTHON_FREE_THREADED },
		{ "other-copies", INTERP_OTHER_BUILD, 14 + CPYTHON_FREE_THREADED },
		{ "no-cookie", INTERP_OTHER_BUILD, 13 },
		{ "version-11-musl", INTERP_FOUND, 11, true },
		{ "version-2", INTERP_OTHER_VERSION, 0 },
		{ "none", INTERP_FOUND_NONE, 0 },
	};

	if (!getenv("PROF_SOURCE_DIR"))
		SKIP("PROF_SOURCE_DIR is not set");
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		struct interp_runtime file;

		find_in_corpus(files[i].name, &file);
		CHECK_INT(file.found, files[i].found);
		CHECK_INT(file.minor, files[i].minor);
		CHECK_INT(file.addresses[INTERP_PYTHON_MUSL], files[i].uses_musl);
	}
}

static void test_no_interpreter(void)
{
	CLEANUP_CLOSE int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	CLEANUP_CLOSE int text = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	struct interp_runtime file;

	CHECK_INT(interp_runtime_find(self, &file), INTERP_FOUND_NONE);
	CHECK_INT(interp_runtime_find(text, &file), INTERP_FOUND_NONE);
	CHECK_INT(interp_runtime_find(-1, &file), INTERP_FOUND_NONE);
}

static void check_layout(unsigned minor)
{
	const struct interp_cpython *layout = cpython_layout(minor);

	REQUIRE(layout);
	CHECK_INT(layout->minor, minor);
	/* All members must be within the part of a frame or code object that the BPF program
	 * reads. */
	CHECK(layout->frame_previous <= 104 && layout->frame_code <= 104 &&
	      layout->frame_position <= 104);
	CHECK(layout->code_lines <= 152 && layout->code_qualname <= 152 &&
	      layout->code_first_line <= 156);
}

static void test_layouts(void)
{
	for (unsigned minor = CPYTHON_FIRST_MINOR; minor <= CPYTHON_LAST_MINOR; minor++)
		check_layout(minor);
	for (unsigned minor = CPYTHON_FIRST_DEBUG_MINOR; minor <= CPYTHON_LAST_MINOR; minor++)
		check_layout(minor + CPYTHON_FREE_THREADED);
	CHECK(!cpython_layout(CPYTHON_FIRST_MINOR - 1));
	CHECK(!cpython_layout(CPYTHON_LAST_MINOR + 1));
	CHECK(!cpython_layout(CPYTHON_FIRST_DEBUG_MINOR - 1 + CPYTHON_FREE_THREADED));
	CHECK(!cpython_layout(CPYTHON_LAST_MINOR + 1 + CPYTHON_FREE_THREADED));
	CHECK_INT(interp_minor(INTERP_PYTHON, 13 + CPYTHON_FREE_THREADED), 13);
	CHECK_STR(interp_suffix(INTERP_PYTHON, 13 + CPYTHON_FREE_THREADED), "t");
	CHECK_STR(interp_suffix(INTERP_PYTHON, 13), "");
	CHECK_STR(interp_suffix(INTERP_PERL, 36), "");
}

static void make_code(struct interp_code *code, const void *name, unsigned name_bytes,
		      unsigned name_width, const char *file)
{
	*code = (struct interp_code){ .record = INTERP_RECORD_CODE,
				      .pid = 7,
				      .code = 0x1000,
				      .id = 3,
				      .first_line = 2,
				      .family = INTERP_PYTHON,
				      .minor = 13,
				      .name_bytes = (uint16_t)name_bytes,
				      .name_width = (uint8_t)name_width,
				      .file_bytes = (uint16_t)strlen(file),
				      .file_width = 1,
				      .lines_bytes = sizeof(cpython_table_13) };
	memcpy(code->name, name, name_bytes);
	memcpy(code->file, file, strlen(file));
	memcpy(code->lines, cpython_table_13, sizeof(cpython_table_13));
}

static bool parse(const struct interp_code *code, struct interp_code_text *ret_text)
{
	return interp_record_code((const uint8_t *)code,
				  offsetof(struct interp_code, lines) + code->lines_bytes,
				  ret_text);
}

static void test_texts(void)
{
	static const uint16_t wide[] = { 'f', 0x20ac, 0xd800 };
	static const uint32_t wider[] = { 'f', 0x1f40d, 0x110000, 0 };
	struct interp_code code;
	struct interp_code_text text;

	make_code(&code, "caf\xe9", 4, 1, "/a.py");
	REQUIRE(parse(&code, &text));
	CHECK_STR(text.name, "caf\xc3\xa9");
	CHECK_STR(text.file, "/a.py");
	CHECK_INT(text.lines_bytes, sizeof(cpython_table_13));
	make_code(&code, wide, sizeof(wide), 2, "");
	REQUIRE(parse(&code, &text));
	CHECK_STR(text.name, "f\xe2\x82\xac\xef\xbf\xbd");
	CHECK_STR(text.file, "");
	make_code(&code, wider, sizeof(wider), 4, "x");
	code.flags = INTERP_CODE_NAME_CUT;
	REQUIRE(parse(&code, &text));
	CHECK_STR(text.name, "f\xf0\x9f\x90\x8d\xef\xbf\xbd\xef\xbf\xbd\xe2\x80\xa6");
	/* the longest name that a record can contain */
	make_code(&code, "", 0, 1, "x");
	code.name_bytes = INTERP_MAX_NAME;
	memset(code.name, 0xe9, INTERP_MAX_NAME);
	code.flags = INTERP_CODE_NAME_CUT;
	REQUIRE(parse(&code, &text));
	CHECK_INT(strlen(text.name), 2 * INTERP_MAX_NAME + 3);
	/* each NUL becomes a replacement character */
	memset(code.name, 0, INTERP_MAX_NAME);
	memset(code.file, 0, INTERP_MAX_FILE);
	code.file_bytes = INTERP_MAX_FILE;
	code.flags |= INTERP_CODE_FILE_CUT;
	REQUIRE(parse(&code, &text));
	CHECK_INT(strlen(text.name), 3 * INTERP_MAX_NAME + 3);
	CHECK_INT(strlen(text.file), 3 * INTERP_MAX_FILE + 3);
}

static void test_bad_records(void)
{
	struct interp_code code;
	struct interp_code_text text;
	struct interp_sample sample = { .record = INTERP_RECORD_SAMPLE,
					.n = 2,
					.family = INTERP_PYTHON };
	struct interp_chain chain;
	const uint8_t *bytes = (const uint8_t *)&sample;
	const size_t fixed = offsetof(struct interp_sample, frames);

	CHECK(interp_record_sample(bytes, fixed + 2 * sizeof(struct interp_frame), &chain));
	CHECK(!interp_record_sample(bytes, fixed + 2 * sizeof(struct interp_frame) - 1, &chain));
	CHECK(!interp_record_sample(bytes, fixed - 1, &chain));
	sample.n = INTERP_MAX_FRAMES + 1;
	CHECK(!interp_record_sample(bytes, sizeof(sample), &chain));
	make_code(&code, "f", 1, 1, "x");
	CHECK(!interp_record_code((const uint8_t *)&code, offsetof(struct interp_code, lines),
				  &text));
	code.name_width = 3;
	CHECK(!parse(&code, &text));
	code.name_width = 1;
	code.name_bytes = INTERP_MAX_NAME + 1;
	CHECK(!parse(&code, &text));
	code.name_bytes = 1;
	code.record = INTERP_RECORD_SAMPLE;
	CHECK(!parse(&code, &text));
}

static void check_module(const char *file, const char *want)
{
	char module[PYTHON_MODULE_BYTES];

	CHECK_STR(python_module(file, module), want);
}

static void test_modules(void)
{
	check_module("/usr/lib/python3.11/json/decoder.py", "json.decoder");
	check_module("/usr/lib/python3.11/json/__init__.py", "json");
	check_module("/usr/lib/python3/dist-packages/gi/overrides/Gtk.py", "gi.overrides.Gtk");
	check_module("/v/lib/python3.12/site-packages/numpy/core/_methods.py",
		     "numpy.core._methods");
	check_module("/srv/shop.py", "shop");
	check_module("shop.py", "shop");
	check_module("<frozen importlib._bootstrap>", "importlib._bootstrap");
	check_module("<frozen >", "");
	check_module("<string>", "<string>");
	check_module("", "?");
	check_module("/", "");
}

static void test_functions(void)
{
	struct interp_functions *functions = interp_functions_new(1u << 20, 5);
	struct interp_code code;
	struct interp_code_text text;
	struct interp_frame frame = { .code = 0x1000, .id = 3, .position = 200 + 56 };
	const struct interp_function *function;
	uint64_t number;

	make_code(&code, "A.f", 3, 1, "/src/shop.py");
	REQUIRE(parse(&code, &text));
	CHECK(!interp_functions_find(functions, 1, &frame));
	CHECK(interp_functions_add(functions, 1, &text));
	CHECK(interp_functions_add(functions, 2, &text));
	function = interp_functions_find(functions, 1, &frame);
	REQUIRE(function);
	CHECK_STR(function->name, "shop.A.f");
	CHECK_INT(interp_function_line(function, &frame), 7);
	CHECK(function == interp_functions_find(functions, 2, &frame));
	CHECK(!interp_functions_find(functions, 3, &frame));
	number = function->number;
	/* another function at the same address has another id */
	text.id = 4;
	text.first_line = 30;
	CHECK(interp_functions_add(functions, 1, &text));
	frame.id = 4;
	function = interp_functions_find(functions, 1, &frame);
	REQUIRE(function);
	CHECK(function->number != number);
	interp_functions_free(functions);
}

static void test_functions_limit(void)
{
	struct interp_functions *functions = interp_functions_new(4096, 5);
	struct interp_code code;
	struct interp_code_text text;
	unsigned n = 0;

	make_code(&code, "f", 1, 1, "x.py");
	REQUIRE(parse(&code, &text));
	for (; n < 100 && interp_functions_add(functions, 1, &text); n++) {
		text.first_line++;
		text.code++;
	}
	CHECK(n > 1 && n < 40);
	interp_functions_free(functions);
}

static const struct walk_frame native_frames[] = {
	/* leaf; C function called by the inner activation; inner activation; C function; outer
	 * activation; main */
	{ .pc = 0x500, .sp = 0x7000, .flags = WALK_FRAME_EXACT },
	{ .pc = 0x600, .sp = 0x7100 },
	{ .pc = 0x110, .sp = 0x7200 },
	{ .pc = 0x700, .sp = 0x7300 },
	{ .pc = 0x180, .sp = 0x7400 },
	{ .pc = 0x800, .sp = 0x7500 },
};

/* Three frames: two in the inner activation, one in the outer. */
static struct interp_chain chain_of(unsigned minor, uint64_t inner, uint64_t outer)
{
	struct interp_chain chain = { .family = INTERP_PYTHON, .minor = minor, .n = 3 };

	chain.frames[0].flags = minor <= 10 ? INTERP_FRAME_ENDS_RUN : 0;
	chain.frames[1].flags = chain.frames[2].flags = INTERP_FRAME_ENDS_RUN;
	chain.frames[1].at = inner;
	chain.frames[2].at = outer;
	return chain;
}

static void test_merge(void)
{
	struct interp_native native = { native_frames, ARRAY_SIZE(native_frames), true, 0, 0 };
	struct interp_chain chain = chain_of(12, 0x7210, 0x7440);
	struct interp_run runs[INTERP_MAX_FRAMES];
	size_t n;

	REQUIRE(interp_merge(&chain, &native, runs, &n));
	CHECK_INT(n, 2);
	CHECK(runs[0].first == 0 && runs[0].end == 2 && runs[0].native == 2);
	CHECK(runs[1].first == 2 && runs[1].end == 3 && runs[1].native == 4);
	/* a chain with functions of the outer activation, one without them, and an empty one */
	native.eval = 0x100;
	native.eval_end = 0x200;
	CHECK(!interp_merge_lacks_callers(&chain, &native, runs, n));
	CHECK(interp_merge_lacks_callers(&chain, &native, runs, 1));
	CHECK(!interp_merge_lacks_callers(&chain, &native, runs, 0));
	/* an address below the stack; then, runs in the wrong order */
	chain = chain_of(12, 0x6f00, 0x7440);
	CHECK(!interp_merge(&chain, &native, runs, &n));
	chain = chain_of(12, 0x7440, 0x7210);
	CHECK(!interp_merge(&chain, &native, runs, &n));
	/* the copy of the stack ends before the outer activation */
	native.n = 4;
	native.has_root = false;
	chain = chain_of(11, 0x7210, 0x7440);
	REQUIRE(interp_merge(&chain, &native, runs, &n));
	CHECK(runs[0].native == 2 && runs[1].native == 4);
	native.n = 0;
	CHECK(!interp_merge(&chain, &native, runs, &n));
}

/* Up to Python 3.10, frames have no address, so activations are counted. */
static void test_merge_by_function(void)
{
	static const struct walk_frame nested[] = {
		{ .pc = 0x120, .flags = WALK_FRAME_EXACT },
		{ .pc = 0x700 },
		{ .pc = 0x110 },
		{ .pc = 0x700 },
		{ .pc = 0x180 },
		{ .pc = 0x800 },
	};
	struct interp_native native = { native_frames, ARRAY_SIZE(native_frames), true, 0x100,
					0x200 };
	struct interp_chain chain = chain_of(10, 0, 0);
	struct interp_run runs[INTERP_MAX_FRAMES];
	size_t n;

	CHECK(!interp_merge(&chain, &native, runs, &n)); /* three frames, two activations */
	chain.n = 2;
	REQUIRE(interp_merge(&chain, &native, runs, &n));
	CHECK(n == 2 && runs[0].native == 2 && runs[1].native == 4);
	CHECK(!interp_merge_lacks_callers(&chain, &native, runs, n));
	/* The inner activation has called functions in C, so it must have a frame: the only frame
	 * of the chain. The outer activation belongs to another interpreter. */
	chain.n = 1;
	REQUIRE(interp_merge(&chain, &native, runs, &n));
	CHECK(n == 1 && runs[0].native == 2);
	CHECK(interp_merge_lacks_callers(&chain, &native, runs, n));
	/* the innermost activation has no frame yet */
	native.frames += 2;
	native.n -= 2;
	REQUIRE(interp_merge(&chain, &native, runs, &n));
	CHECK(n == 1 && runs[0].native == 2);
	CHECK(!interp_merge_lacks_callers(&chain, &native, runs, n));
	/* the two outer activations belong to another interpreter */
	native.frames = nested;
	native.n = ARRAY_SIZE(nested);
	REQUIRE(interp_merge(&chain, &native, runs, &n));
	CHECK(n == 1 && runs[0].native == 0);
	CHECK(interp_merge_lacks_callers(&chain, &native, runs, n));
	native.has_root = false;
	CHECK(!interp_merge(&chain, &native, runs, &n));
}

int main(void)
{
	RUN(test_layouts);
	RUN(test_file);
	RUN(test_offsets_of_the_file);
	RUN(test_no_interpreter);
	RUN(test_lines);
	RUN(test_texts);
	RUN(test_bad_records);
	RUN(test_modules);
	RUN(test_functions);
	RUN(test_functions_limit);
	RUN(test_merge);
	RUN(test_merge_by_function);
	return test_end();
}
