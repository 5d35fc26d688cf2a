/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of how the engine understands Ruby: files, records, lines, and the places of frames in a
 * native stack.
 */
#include "arch/base.h"
#include "base/ruby-layouts.h"
#include "daemon/engine/interp/interp-functions.h"
#include "daemon/engine/interp/interp-merge.h"
#include "daemon/engine/interp/interp-runtime.h"
#include "daemon/engine/interp/ruby-lines.h"
#include "tests/unit/cruby-tables.h"
#include "tests/unit/interp-files.h"
#include "tests/unit/test.h"

/* Each run extends from its position to the position of the next run. */
static void check_ruby_lines(const uint8_t *table, size_t size, const uint16_t (*runs)[2], size_t n,
			     unsigned end)
{
	for (size_t i = 0; i < n; i++)
		for (unsigned at = runs[i][0]; at < (i + 1 < n ? runs[i + 1][0] : end); at++)
			CHECK_INT(ruby_lines_find(table, size, at), runs[i][1]);
}

static void test_lines(void)
{
	uint8_t table[sizeof(ruby_table_big)];

	check_ruby_lines(ruby_table_small, sizeof(ruby_table_small), ruby_runs_small,
			 ARRAY_SIZE(ruby_runs_small), ruby_end_small);
	check_ruby_lines(ruby_table_big, sizeof(ruby_table_big), ruby_runs_big,
			 ARRAY_SIZE(ruby_runs_big), ruby_end_big);
	/* a table that was cut, or that contradicts itself */
	memcpy(table, ruby_table_big, sizeof(table));
	for (size_t size = 0; size < sizeof(table); size++)
		(void)ruby_lines_find(table, size, ruby_end_big - 1);
	CHECK_INT(ruby_lines_find(table, sizeof(table), 1u << 20), 0);
	CHECK_INT(ruby_lines_find(table, sizeof(table), UINT32_MAX), 0);
	memset(table + offsetof(struct interp_ruby_lines, n_read), 0xff, 4);
	CHECK_INT(ruby_lines_find(table, sizeof(table), 0), 0);
}

/* If all positions have the same line, the table has no set of positions. */
static void test_one_line(void)
{
	static const uint8_t table[] = { 1, 0, 0, 0, 1, 0, 0, 0, 42, 0, 0, 0 };
	static const uint8_t none[] = { 0, 0, 0, 0, 0, 0, 0, 0 };

	CHECK_INT(ruby_lines_find(table, sizeof(table), 0), 42);
	CHECK_INT(ruby_lines_find(table, sizeof(table), 1000), 42);
	CHECK_INT(ruby_lines_find(none, sizeof(none), 0), 0);
}

/* The machine's own Ruby, if it is Ruby 3.1. */
static void test_library(void)
{
	CLEANUP_CLOSE int fd =
		open("/usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1", O_RDONLY | O_CLOEXEC);
	struct interp_runtime runtime;

	if (fd < 0)
		SKIP("no libruby-3.1.so.3.1");
	CHECK_INT(interp_runtime_find(fd, &runtime), INTERP_FOUND);
	CHECK_INT(runtime.family, INTERP_RUBY);
	CHECK_INT(runtime.minor, 1);
	CHECK(runtime.addresses[INTERP_RUBY_MODULE] != 0);
	CHECK(runtime.addresses[INTERP_RUBY_EVAL] < runtime.addresses[INTERP_RUBY_EVAL_END]);
}

static void test_files(void)
{
	static const struct interp_file_case files[] = {
		{ "ruby-library", INTERP_FOUND, 1, { 0x41010, 8, 0x41500, 0x41600 } },
		{ "ruby-own-module", INTERP_FOUND, 1, { 0x41020, 8, 0x41500, 0x41600 } },
		{ "ruby-program", INTERP_FOUND, 1, { 0, UINT64_C(8) - 32, 0x41500, 0x41600 } },
		{ "ruby-program-musl", INTERP_FOUND, 1, { 0, UINT64_C(8) - 32, 0x41500, 0x41600 } },
		{ "ruby-library-musl", INTERP_OTHER_BUILD, 1, { 0 } },
		{ "ruby-other-access", INTERP_OTHER_BUILD, 1, { 0 } },
		{ "ruby-no-block", INTERP_OTHER_BUILD, 1, { 0 } },
		{ "ruby-odd-block", INTERP_OTHER_BUILD, 1, { 0 } },
		{ "ruby-part", INTERP_OTHER_BUILD, 1, { 0 } },
		{ "ruby-other-machine", INTERP_OTHER_BUILD, 1, { 0 } },
		{ "ruby-3.3", INTERP_OTHER_BUILD, 3, { 0 } },
		{ "ruby-3.2", INTERP_FOUND, 2, { 0, UINT64_C(8) - 24, 0x41500, 0x41600 } },
		{ "ruby-code", INTERP_FOUND, 3, { 0x1300, 8, 0x1700, 0x1780 } },
		{ "ruby-code-other-jump", INTERP_OTHER_BUILD, 3, { 0 } },
		{ "ruby-code-two-jumps", INTERP_OTHER_BUILD, 3, { 0 } },
		{ "ruby-code-no-function", INTERP_OTHER_BUILD, 3, { 0 } },
		{ "ruby-code-not-relocated", INTERP_OTHER_BUILD, 3, { 0 } },
		{ "ruby-code-other-sequence", INTERP_OTHER_BUILD, 3, { 0 } },
		{ "ruby-code-far", INTERP_OTHER_BUILD, 3, { 0 } },
		{ "ruby-4.1", INTERP_OTHER_VERSION, 0, { 0 } },
	};

	check_interp_files(INTERP_RUBY, files, ARRAY_SIZE(files), NULL);
}

static void test_layouts(void)
{
	for (unsigned minor = RUBY_FIRST_MINOR; minor <= RUBY_LAST_MINOR; minor++) {
		const struct interp_ruby *layout = ruby_layout(minor);

		REQUIRE(layout);
		CHECK_INT(layout->minor, minor);
		/* All members must be within the part of a frame or iseq body that the BPF program
		 * reads. */
		CHECK(layout->frame_iseq <= 56 && layout->frame_pc <= 56 && layout->frame_ep <= 56);
		CHECK(layout->body_positions <= 152 && layout->body_lines <= 152 &&
		      layout->body_n_lines <= 152 && layout->body_first_line <= 152);
	}
	CHECK(!ruby_layout(RUBY_FIRST_MINOR - 1));
	CHECK(!ruby_layout(RUBY_LAST_MINOR + 1));
}

static void make_ruby_code(struct interp_code *code, const char *name, const char *file)
{
	*code = (struct interp_code){ .record = INTERP_RECORD_CODE,
				      .pid = 7,
				      .code = 0x1000,
				      .id = 3,
				      .first_line = 1,
				      .family = INTERP_RUBY,
				      .minor = 1,
				      .name_width = INTERP_UTF_8,
				      .file_width = INTERP_UTF_8,
				      .name_bytes = (uint16_t)strlen(name),
				      .file_bytes = (uint16_t)strlen(file),
				      .lines_bytes = sizeof(ruby_table_small) };
	memcpy(code->name, name, strlen(name));
	memcpy(code->file, file, strlen(file));
	memcpy(code->lines, ruby_table_small, sizeof(ruby_table_small));
}

static bool parse_ruby(const struct interp_code *code, struct interp_code_text *ret_text)
{
	return interp_record_code((const uint8_t *)code,
				  offsetof(struct interp_code, lines) + code->lines_bytes,
				  ret_text);
}

static void test_texts(void)
{
	struct interp_code code;
	struct interp_code_text text;

	make_ruby_code(&code, "caf\xc3\xa9 \xff\xf0\x9f\x90", "/a.rb");
	REQUIRE(parse_ruby(&code, &text));
	CHECK_STR(text.name, "caf\xc3\xa9 \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
	CHECK_STR(text.file, "/a.rb");
	/* the longest possible text; a NUL and invalid bytes become replacement characters */
	memset(code.name, 0xff, INTERP_MAX_NAME);
	code.name[0] = 0;
	code.name_bytes = INTERP_MAX_NAME;
	code.flags = INTERP_CODE_NAME_CUT;
	REQUIRE(parse_ruby(&code, &text));
	CHECK_INT(strlen(text.name), 3 * INTERP_MAX_NAME + 3);
	code.family = INTERP_FAMILIES;
	CHECK(!parse_ruby(&code, &text));
	/* a name of INTERP_RUBY_OWNER or more bytes leaves no room for a class's name */
	code.family = INTERP_RUBY;
	code.owner_bytes = 1;
	CHECK(!parse_ruby(&code, &text));
	code.name_bytes = code.owner_bytes = INTERP_RUBY_OWNER - 1;
	memset(code.name, 0xff, sizeof(code.name));
	REQUIRE(parse_ruby(&code, &text));
	CHECK(text.has_owner);
	CHECK_INT(strlen(text.name), 2 * 3 * (INTERP_RUBY_OWNER - 1) + 1 + 3);
	code.owner_bytes++;
	CHECK(!parse_ruby(&code, &text));
}

static void check_ruby_name(const char *name, const char *owner, const char *file, const char *want)
{
	struct interp_functions *functions = interp_functions_new(1u << 20, 5);
	const struct interp_frame frame = { .code = 0x1000, .id = 3, .position = 0 };
	const struct interp_function *function;
	struct interp_code_text text;
	struct interp_code code;

	make_ruby_code(&code, name, file);
	code.is_singleton = *owner == '.';
	owner += code.is_singleton;
	code.owner_bytes = (uint16_t)strlen(owner);
	memcpy(code.name + INTERP_RUBY_OWNER, owner, strlen(owner));
	REQUIRE(parse_ruby(&code, &text));
	CHECK(interp_functions_add(functions, 1, &text));
	function = interp_functions_find(functions, 1, &frame);
	REQUIRE(function);
	CHECK_STR(function->name, want);
	CHECK_INT(interp_function_line(function, &frame), ruby_runs_small[0][1]);
	interp_functions_free(functions);
}

static void test_names(void)
{
	check_ruby_name("block in spin", "", "/srv/shop.rb", "block in spin (shop.rb)");
	check_ruby_name("spin", "", "shop.rb", "spin (shop.rb)");
	check_ruby_name("tap", "", "<internal:kernel>", "tap (<internal:kernel>)");
	check_ruby_name("require", "", "<internal:/usr/lib/ruby/require.rb>",
			"require (require.rb)");
	check_ruby_name("made", "", "(eval)", "made (eval)");
	check_ruby_name("", "", "", "? ()");
	/* names with a class or module */
	check_ruby_name("sell", "Shop::Till", "/srv/shop.rb", "Shop::Till#sell");
	check_ruby_name("sell", ".Shop", "/srv/shop.rb", "Shop.sell");
	check_ruby_name("rescue in block in sell", "Shop", "/srv/shop.rb",
			"rescue in block in Shop#sell");
	check_ruby_name("made", "Shop", "(eval)", "Shop#made (eval)");
	check_ruby_name("tap", "Kernel", "<internal:kernel>", "Kernel#tap (<internal:kernel>)");
	check_ruby_name("block in <class:Shop>", "Shop", "/srv/shop.rb",
			"block in <class:Shop> (shop.rb)");
	check_ruby_name("<=>", "Shop", "shop.rb", "Shop#<=>");
	check_ruby_name("", "Shop", "shop.rb", "? (shop.rb)");
}

/* Code made from a template may begin before line 1. The function of such code is shown, not
 * hidden. */
static void test_lines_before_the_first(void)
{
	struct interp_functions *functions = interp_functions_new(1u << 20, 5);
	const struct interp_frame frame = { .code = 0x1000, .id = 3 };
	const struct interp_function *function;
	struct interp_code_text text;
	struct interp_code code;

	make_ruby_code(&code, "f", "a.erb");
	code.first_line = (uint32_t)-3;
	REQUIRE(parse_ruby(&code, &text));
	CHECK(interp_functions_add(functions, 1, &text));
	function = interp_functions_find(functions, 1, &frame);
	REQUIRE(function);
	CHECK_INT(function->first_line, 0);
	CHECK(!interp_function_is_hidden(function));
	interp_functions_free(functions);
}

/* Runs are placed by address, also in a stack without its root. */
static void test_merge(void)
{
	static const struct walk_frame frames[] = {
		/* leaf; inner activation; C function; outer activation; the thread's first */
		{ .pc = 0x500, .sp = 0x7000, .flags = WALK_FRAME_EXACT },
		{ .pc = 0x110, .sp = 0x7100 },
		{ .pc = 0x700, .sp = 0x7200 },
		{ .pc = 0x180, .sp = 0x7300 },
		{ .pc = 0x800, .sp = 0x7400 },
	};
	const struct interp_native native = { frames, ARRAY_SIZE(frames), false, 0, 0 };
	struct interp_chain chain = { .family = INTERP_RUBY, .minor = 1, .n = 3 };
	struct interp_run runs[INTERP_MAX_FRAMES];
	size_t n;

	CHECK(interp_merge_by_address(&chain));
	chain.frames[0].flags = chain.frames[2].flags = INTERP_FRAME_ENDS_RUN;
	chain.frames[0].at = 0x7180;
	chain.frames[2].at = 0x7380;
	REQUIRE(interp_merge(&chain, &native, runs, &n));
	CHECK(n == 2 && runs[0].native == 1 && runs[1].native == 3);
	CHECK(runs[1].first == 1 && runs[1].end == 3);
	/* the innermost frame was pushed, and is not executed yet: its address is the leaf's */
	chain.frames[0].at = 0x7000;
	REQUIRE(interp_merge(&chain, &native, runs, &n));
	CHECK(n == 2 && runs[0].native == 0 && runs[1].native == 3);
	/* the innermost frame's activation is unknown */
	chain.frames[0].at = 0;
	CHECK(!interp_merge(&chain, &native, runs, &n));
}

/* A chain is not sound if one of its runs has no activation. */
static void test_unsound(void)
{
	struct interp_chain chain = { .family = INTERP_RUBY, .minor = 1, .n = 2 };

	chain.frames[1].flags = INTERP_FRAME_ENDS_RUN;
	CHECK(!interp_merge_is_sound(&chain));
	chain.frames[1].at = 0x7000;
	CHECK(interp_merge_is_sound(&chain));
	chain.frames[1].flags = 0;
	CHECK(!interp_merge_is_sound(&chain));
	chain.flags = INTERP_DEEPER;
	CHECK(interp_merge_is_sound(&chain));
	chain.n = 0;
	chain.flags = 0;
	CHECK(interp_merge_is_sound(&chain));
	/* Frames of Python 3.10 have no address. */
	chain = (struct interp_chain){ .family = INTERP_PYTHON, .minor = 10, .n = 1 };
	chain.frames[0].flags = INTERP_FRAME_ENDS_RUN;
	CHECK(interp_merge_is_sound(&chain));
}

int main(void)
{
	RUN(test_layouts);
	RUN(test_library);
	RUN(test_files);
	RUN(test_lines);
	RUN(test_one_line);
	RUN(test_texts);
	RUN(test_names);
	RUN(test_lines_before_the_first);
	RUN(test_merge);
	RUN(test_unsound);
	return test_end();
}
