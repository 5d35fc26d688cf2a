/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Finding PHP in files, the names and lines of its functions, and where they belong in native
 * stacks.
 */
#include "arch/base.h"
#include "base/php-layouts.h"
#include "daemon/engine/interp/interp-merge.h"
#include "tests/unit/interp-files.h"
#include "tests/unit/test.h"

static void test_layouts(void)
{
	for (unsigned minor = PHP_FIRST_MINOR; minor <= PHP_LAST_MINOR; minor++) {
		const struct interp_php *layout = php_layout(minor);

		REQUIRE(layout);
		CHECK_INT(layout->minor, minor);
		/* within the bytes that the BPF program reads of a frame and of a function */
		CHECK(layout->frame_previous + 8 <= 56);
		CHECK(layout->function_handler + 8 <= 96);
		CHECK(layout->code_first_line + 4 <= 184);
	}
	CHECK(!php_layout(PHP_FIRST_MINOR - 1));
	CHECK(!php_layout(PHP_LAST_MINOR + 1));
}

/* The machine's own PHP 8.2, if it is installed. */
static void test_program(void)
{
	CLEANUP_CLOSE int fd = open("/usr/bin/php8.2", O_RDONLY | O_CLOEXEC);
	struct interp_runtime runtime;

	if (fd < 0)
		SKIP("no /usr/bin/php8.2");
	CHECK_INT(interp_runtime_find(fd, &runtime), INTERP_FOUND);
	CHECK_INT(runtime.family, INTERP_PHP);
	CHECK_INT(runtime.minor, 2);
	CHECK(runtime.eval != 0 && runtime.eval_size > 0);
}

static void check_php_file(const struct interp_runtime *runtime)
{
	CHECK_INT(runtime->eval, 0x40180);
	CHECK_INT(runtime->code_bias, 0x40000);
}

static void test_files(void)
{
	static const struct interp_file_case files[] = {
		{ "php-program", INTERP_FOUND, 2, { 0x51100 } },
		{ "php-far-text", INTERP_FOUND, 2, { 0x51100 } },
		{ "php-library", INTERP_FOUND, 2, { 0x51100, 0x51090 } },
		{ "php-threads", INTERP_OTHER_BUILD, 2, { 0 } },
		{ "php-larger", INTERP_FOUND, 2, { 0x51100 } },
		{ "php-debug", INTERP_OTHER_BUILD, 2, { 0 } },
		{ "php-other-size", INTERP_OTHER_BUILD, 2, { 0 } },
		{ "php-other-machine", INTERP_OTHER_BUILD, 2, { 0 } },
		{ "php-8.4", INTERP_OTHER_BUILD, 4, { 0 } },
		{ "php-8.6", INTERP_OTHER_VERSION, 6, { 0 } },
		{ "php-7.4", INTERP_OTHER_VERSION, 0, { 0 } },
		{ "php-no-day", INTERP_OTHER_VERSION, 0, { 0 } },
	};

	check_interp_files(INTERP_PHP, files, ARRAY_SIZE(files), check_php_file);
}

/* In builds with thread safety, the place of the thread's pointer is found in code. */
static void test_threads(void)
{
	static const struct interp_file_case files[] = {
		{ "php-ts-constant", INTERP_FOUND, 4, { 0x51100, 0, (uint64_t)-16, 0 } },
		{ "php-ts-word", INTERP_FOUND, 4, { 0x51100, 0, 0, 0x51200 } },
		{ "php-ts-word-not-relocated", INTERP_OTHER_BUILD, 4, { 0 } },
		{ "php-ts-positive", INTERP_OTHER_BUILD, 4, { 0 } },
		{ "php-ts-other-code", INTERP_OTHER_BUILD, 4, { 0 } },
		{ "php-ts-long-code", INTERP_OTHER_BUILD, 4, { 0 } },
		{ "php-ts-debug", INTERP_OTHER_BUILD, 4, { 0 } },
	};

	check_interp_files(INTERP_PHP, files, ARRAY_SIZE(files), NULL);
}

/* `n_owner`: bytes, of which some may be 0. */
static void check_php_name(enum interp_php_kind kind, const char *name, const char *owner,
			   size_t n_owner, const char *file, const char *want)
{
	check_interp_name((struct interp_code){ .family = INTERP_PHP,
						.minor = 2,
						.kind = kind,
						.first_line = 10,
						.owner_bytes = (uint16_t)n_owner },
			  name, owner, file, want, file);
}

static void test_names(void)
{
	static const char nameless[] = "class@anonymous\0/srv/shop.php:3$0";
	static const char file[] = "/srv/shop.php";

	check_php_name(INTERP_PHP_FUNCTION, "spin", "", 0, file, "spin");
	check_php_name(INTERP_PHP_FUNCTION, "sell", "Shop\\Till", 9, file, "Shop\\Till::sell");
	check_php_name(INTERP_PHP_FUNCTION, "Shop\\{closure}", "", 0, file,
		       "Shop\\{closure} (shop.php)");
	check_php_name(INTERP_PHP_FUNCTION, "Shop\\{closure}", "Shop\\Till", 9, file,
		       "Shop\\Till::{closure} (shop.php)");
	check_php_name(INTERP_PHP_FUNCTION, "{closure:/srv/shop.php:3}", "", 0, file,
		       "{closure} (shop.php)");
	check_php_name(INTERP_PHP_FUNCTION, "{closure:Shop\\Till::sell():20}", "Shop\\Till", 9,
		       file, "Shop\\Till::{closure} (shop.php)");
	check_php_name(INTERP_PHP_FUNCTION, "sell", nameless, sizeof(nameless) - 1, file,
		       "class@anonymous::sell (shop.php)");
	check_php_name(INTERP_PHP_INTERNAL, "array_map", "", 0, "", "array_map");
	check_php_name(INTERP_PHP_INTERNAL, "", "", 0, "", "?");
	check_php_name(INTERP_PHP_MAIN, "", "", 0, file, "{main} (shop.php)");
	check_php_name(INTERP_PHP_INCLUDE, "", "Shop", 4, "part.php", "include (part.php)");
	check_php_name(INTERP_PHP_EVAL, "", "", 0, "/srv/shop.php(3) : eval()'d code",
		       "eval (shop.php(3) : eval()'d code)");
	check_php_name((enum interp_php_kind)200, "f\xff", "", 0, "", "f\xef\xbf\xbd");
}

/* The leaf, execute_ex(), zend_call_function(), array_map(), execute_ex(), main() */
static const struct walk_frame frames[] = {
	{ .pc = 0x500, .flags = WALK_FRAME_EXACT },
	{ .pc = 0x110 },
	{ .pc = 0x700 },
	{ .pc = 0x780 },
	{ .pc = 0x180 },
	{ .pc = 0x800 },
};

/* Returns the native frames of the runs as text; "-": cannot be placed. */
static const char *place(const struct interp_chain *chain, struct interp_native native)
{
	static char text[128];
	struct interp_run runs[INTERP_MAX_FRAMES];
	char *to = text;
	size_t n;

	native.frames = frames;
	native.eval = 0x100;
	native.eval_end = 0x200;
	if (!interp_merge(chain, &native, runs, &n))
		return "-";
	*to = '\0';
	for (size_t i = 0; i < n; i++)
		to += sprintf(to, "%u-%u@%u ", runs[i].first, runs[i].end, runs[i].native);
	return text;
}

#define PLACE_IN(n_frames, ...) \
	place(&chain, (struct interp_native){ .n = (n_frames), __VA_ARGS__ })
#define PLACE(...) PLACE_IN(ARRAY_SIZE(frames), __VA_ARGS__)

/* Runs are counted from the root. */
static void test_merge(void)
{
	struct interp_chain chain = { .family = INTERP_PHP, .minor = 2, .n = 4 };

	CHECK(!interp_merge_by_address(&chain));
	CHECK(interp_merge_is_sound(&chain));
	chain.frames[1].flags = chain.frames[3].flags = INTERP_FRAME_ENDS_RUN;
	CHECK_STR(PLACE(.has_root = true), "0-2@1 2-4@4 ");
	CHECK_STR(PLACE(), "0-2@1 2-4@4 ");
	CHECK_STR(PLACE(.is_cut = true), "-");
	/* the innermost activation is about to begin, or has ended */
	chain.frames[0].flags = INTERP_FRAME_ENDS_RUN;
	CHECK_STR(PLACE(.has_root = true), "0-1@0 1-2@1 2-4@4 ");
	CHECK_STR(PLACE(), "-");
	chain.frames[0].flags = chain.frames[1].flags = 0;
	CHECK_STR(PLACE(.has_root = true), "0-4@4 ");
	/* more runs than activations: two more, and then an unknown number */
	chain.frames[3].flags = 0;
	chain.n_more_runs = 4;
	CHECK_STR(PLACE(.has_root = true), "-");
	chain.n_more_runs = INTERP_RUNS_UNKNOWN;
	CHECK_STR(PLACE(.has_root = true), "-");
	/* the runs that are not shown are the outermost */
	chain.n_more_runs = 1;
	chain.frames[0].flags = INTERP_FRAME_ENDS_RUN;
	CHECK_STR(PLACE(.has_root = true), "0-1@1 1-4@4 ");
	chain.frames[3].flags = INTERP_FRAME_ENDS_RUN;
	CHECK_STR(PLACE(.has_root = true), "0-1@0 1-4@1 ");
	chain.n = 0;
	CHECK_STR(PLACE(.has_root = true), "");
}

/* Functions in C that C calls, without a function of PHP around them. */
static void test_merge_without_activation(void)
{
	struct interp_chain chain = { .family = INTERP_PHP, .minor = 2, .n = 3 };

	chain.frames[0].flags = chain.frames[1].flags = INTERP_FRAME_ENDS_RUN;
	CHECK_STR(PLACE(.has_root = true), "0-1@1 1-2@4 2-3@6 ");
}

/* The frames of the code that resumed a fiber are on another native stack. */
static void test_merge_of_fibers(void)
{
	struct interp_chain chain = { .family = INTERP_PHP, .minor = 2, .n = 4 };

	chain.frames[0].flags = chain.frames[3].flags = INTERP_FRAME_ENDS_RUN;
	chain.frames[1].flags = INTERP_FRAME_ENDS_RUN | INTERP_FRAME_ENDS_STACK;
	CHECK_STR(PLACE(), "0-1@1 1-2@4 2-4@6 ");
	chain.n_more_runs = INTERP_RUNS_UNKNOWN;
	CHECK_STR(PLACE(), "0-1@1 1-2@4 2-4@6 ");
	/* a fiber of a function in C */
	chain.frames[1].flags = INTERP_FRAME_ENDS_STACK;
	CHECK_STR(PLACE(), "-");
	chain.frames[0].flags = 0;
	CHECK_STR(PLACE_IN(1), "0-2@1 2-4@1 ");
	/* a fiber that has no frames yet */
	chain.flags = INTERP_OTHER_STACK;
	CHECK_STR(PLACE(.has_root = true), "0-2@6 2-4@6 ");
}

/* Generated code has no unwind tables, so a stack may end in it. */
static void test_merge_with_generated_code(void)
{
	struct interp_chain chain = { .family = INTERP_PHP, .minor = 2, .n = 2 };

	chain.frames[0].flags = chain.frames[1].flags = INTERP_FRAME_ENDS_RUN;
	CHECK_STR(PLACE_IN(1), "0-1@1 1-2@1 ");
	CHECK_STR(PLACE_IN(0), "0-1@0 1-2@0 ");
	CHECK_STR(PLACE_IN(3), "-");
}

int main(void)
{
	RUN(test_layouts);
	RUN(test_program);
	RUN(test_files);
	RUN(test_threads);
	RUN(test_names);
	RUN(test_merge);
	RUN(test_merge_without_activation);
	RUN(test_merge_of_fibers);
	RUN(test_merge_with_generated_code);
	return test_end();
}
