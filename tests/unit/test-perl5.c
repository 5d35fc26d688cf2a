/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks how Perl is found in files, how its functions are named, and where these functions belong
 * in native stacks.
 */
#include "arch/base.h"
#include "base/perl-layouts.h"
#include "daemon/engine/interp/interp-elf.h"
#include "daemon/engine/interp/interp-functions.h"
#include "daemon/engine/interp/interp-merge.h"
#include "tests/unit/interp-files.h"
#include "tests/unit/test.h"

static void test_layouts(void)
{
	for (unsigned minor = PERL_FIRST_MINOR; minor <= PERL_LAST_MINOR; minor += 2) {
		REQUIRE(perl_layout(minor));
		CHECK_INT(perl_layout(minor)->minor, minor);
		CHECK(!perl_layout(minor + 1));
	}
	CHECK(!perl_layout(PERL_FIRST_MINOR - 2));
	CHECK(!perl_layout(PERL_LAST_MINOR + 2));
}

/* The machine's own Perl, in the program and in the library, if it is a supported one. */
static void test_program(void)
{
	static const char *const paths[] = { "/usr/bin/perl",
					     "/usr/lib/x86_64-linux-gnu/libperl.so.5.36" };

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		CLEANUP_CLOSE int fd = open(paths[i], O_RDONLY | O_CLOEXEC);
		struct interp_runtime runtime;
		struct interp_elf elf;

		if (fd < 0 || !interp_elf_read(&elf, fd) || !elf.is_x86_64 ||
		    interp_runtime_find(fd, &runtime) == INTERP_OTHER_VERSION)
			continue;
		CHECK_INT(runtime.found, INTERP_FOUND);
		CHECK_INT(runtime.family, INTERP_PERL);
		CHECK(runtime.eval_size > 0 && runtime.main.size > 0 && runtime.again.size > 0);
		CHECK_INT(runtime.addresses[INTERP_PERL_OF_KEY] != 0, i == 1);
		CHECK_INT(runtime.addresses[INTERP_PERL_OF_FIRST] != 0, i == 1);
	}
}

static void check_perl_file(const struct interp_runtime *runtime)
{
	CHECK_INT(runtime->eval, 0x40480);
	CHECK_INT(runtime->again.start, 0x40440);
	CHECK_INT(runtime->again.size, 0x40);
	CHECK_INT(runtime->main.start, 0x404d0);
	CHECK_INT(runtime->code_bias, 0x40000);
}

static void test_files(void)
{
	static const struct interp_file_case files[] = {
		{ "perl-program", INTERP_FOUND, 36, { 0x51100, 0, 0x51108, 0 } },
		{ "perl-library", INTERP_FOUND, 36, { 0x51100, 0x51020, 0x51108, 0x51028 } },
		{ "perl-5.40", INTERP_FOUND, 40, { 0x51100, 0, 0x51108, 0 } },
		{ "perl-5.34", INTERP_OTHER_VERSION, 34, { 0 } },
		{ "perl-no-threads", INTERP_OTHER_BUILD, 36, { 0 } },
		{ "perl-debugging", INTERP_OTHER_BUILD, 36, { 0 } },
		{ "perl-other-machine", INTERP_OTHER_BUILD, 36, { 0 } },
		{ "perl-other-code", INTERP_OTHER_BUILD, 36, { 0 } },
		{ "perl-program-musl", INTERP_OTHER_BUILD, 36, { 0 } },
		{ "perl-undefined", INTERP_OTHER_BUILD, 36, { 0 } },
		{ "perl-far-operations", INTERP_OTHER_BUILD, 36, { 0 } },
	};

	check_interp_files(INTERP_PERL, files, ARRAY_SIZE(files), check_perl_file);
}

/* `flags`: INTERP_CODE_OWNER_LATIN_1 if `name` and `owner` are in Latin-1; 0: they are in UTF-8. */
static void check_perl_name(enum interp_perl_kind kind, const char *name, const char *owner,
			    unsigned flags, const char *file, const char *want,
			    const char *want_file)
{
	check_interp_name((struct interp_code){ .family = INTERP_PERL,
						.minor = 36,
						.kind = kind,
						.first_line = 10,
						.flags = flags,
						.name_width = flags ? 1 : INTERP_UTF_8 },
			  name, owner, file, want, want_file);
}

static void test_names(void)
{
	static const char file[] = "/srv/shop.pl";

	check_perl_name(INTERP_PERL_SUB, "sell", "Shop::Till", 0, file, "Shop::Till::sell", file);
	check_perl_name(INTERP_PERL_SUB, "(+", "Shop::Sum", 0, file, "Shop::Sum::(+", file);
	check_perl_name(INTERP_PERL_SUB, "<it>", "Shop", 0, file, "Shop::<it>", file);
	check_perl_name(INTERP_PERL_SUB, "lexical", "", 0, file, "lexical", file);
	check_perl_name(INTERP_PERL_SUB, "", "", 0, file, "?", file);
	check_perl_name(INTERP_PERL_SUB, "\xe9t\xe9", "\xc9t\xe9", INTERP_CODE_OWNER_LATIN_1, file,
			"\xc3\x89t\xc3\xa9::\xc3\xa9t\xc3\xa9", file);
	check_perl_name(INTERP_PERL_SUB, "__ANON__", "Shop", 0, file, "Shop::__ANON__ (shop.pl)",
			file);
	check_perl_name(INTERP_PERL_SUB, "BEGIN", "Shop", 0, file, "Shop::BEGIN (shop.pl)", file);
	check_perl_name(INTERP_PERL_SUB, "__ANON__", "Shop", 0, "(eval 12)",
			"Shop::__ANON__ (eval)", "(eval)");
	check_perl_name(INTERP_PERL_SUB, "made", "Shop", 0, "(eval 12)[x.pl:3]", "Shop::made",
			"(eval 12)[x.pl:3]");
	check_perl_name(INTERP_PERL_FORMAT, "STDOUT", "main", 0, file, "format main::STDOUT", file);
	check_perl_name(INTERP_PERL_REQUIRE, "Shop/Till.pm", "", 0, "lib/Shop/Till.pm",
			"require Shop/Till.pm", "lib/Shop/Till.pm");
	check_perl_name(INTERP_PERL_EVAL, "", "", 0, file, "eval (shop.pl)", file);
	check_perl_name(INTERP_PERL_EVAL, "", "", 0, "(re_eval 7)", "eval (re_eval)", "(re_eval)");
	check_perl_name(INTERP_PERL_SORT, "", "", 0, "-e", "sort block (-e)", "-e");
	check_perl_name(INTERP_PERL_REGEX, "", "", 0, file, "regex block (shop.pl)", file);
	check_perl_name(INTERP_PERL_MAIN, "", "", 0, file, "<main> (shop.pl)", file);
	check_perl_name((enum interp_perl_kind)200, "f\xff", "", 0, "", "f\xef\xbf\xbd", "");
}

/* The leaf, Perl_runops_standard(), Perl_call_sv(), Perl_runops_standard(), docatch(),
 * Perl_runops_standard(), perl_run(), main() */
static const struct walk_frame frames[] = {
	{ .pc = 0x500, .flags = WALK_FRAME_EXACT },
	{ .pc = 0x110 },
	{ .pc = 0x700 },
	{ .pc = 0x180 },
	{ .pc = 0x310 },
	{ .pc = 0x180 },
	{ .pc = 0x410 },
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
	native.again = (struct interp_range){ 0x300, 0x100 };
	native.main = (struct interp_range){ 0x400, 0x100 };
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

/* An activation that docatch() continues counts only once. */
static void test_merge(void)
{
	struct interp_chain chain = {
		.family = INTERP_PERL, .minor = 36, .n = 4, .flags = INTERP_MAIN
	};

	CHECK(!interp_merge_by_address(&chain));
	CHECK(interp_merge_is_sound(&chain));
	chain.frames[1].flags = chain.frames[3].flags = INTERP_FRAME_ENDS_RUN;
	CHECK_STR(PLACE(.has_root = true), "0-2@1 2-4@3 ");
	CHECK_STR(PLACE(), "0-2@1 2-4@3 ");
	CHECK_STR(PLACE(.is_cut = true), "-");
	/* the innermost activation begins or ends */
	chain.frames[1].flags = 0;
	CHECK_STR(PLACE(.has_root = true), "0-4@3 ");
	CHECK_STR(PLACE(), "-");
	/* the innermost run is not executed */
	chain.frames[0].flags = chain.frames[1].flags = INTERP_FRAME_ENDS_RUN;
	CHECK_STR(PLACE(.has_root = true), "1-2@1 2-4@3 ");
	chain.frames[0].flags |= INTERP_FRAME_REPEATS;
	CHECK_STR(PLACE(.has_root = true), "1-2@1 2-4@3 ");
	chain.frames[1].flags |= INTERP_FRAME_REPEATS;
	CHECK_STR(PLACE(.has_root = true), "1-2@1 2-4@3 ");
	/* C code will call a sub, or the function at 0x6f0 has called it */
	chain.frames[0].flags = INTERP_FRAME_ENDS_RUN;
	CHECK_STR(PLACE(.has_root = true), "1-2@1 2-4@3 ");
	CHECK_STR(PLACE(.has_root = true, .callers = { { 0x6f0, 0x20 } }), "0-2@1 2-4@3 ");
	/* any of several runs may be the one without an activation */
	chain.frames[2].flags = INTERP_FRAME_ENDS_RUN;
	CHECK_STR(PLACE(.has_root = true), "-");
	chain.n = 5;
	chain.frames[3].flags = INTERP_FRAME_ENDS_RUN | INTERP_FRAME_REPEATS;
	CHECK_STR(PLACE(.has_root = true), "-");
	chain.n = 0;
	CHECK_STR(PLACE(.has_root = true), "-");
	CHECK_STR(PLACE_IN(1, .has_root = true), "");
}

/* The main program has no activation while it is compiled, and after it has ended. */
static void test_merge_of_main(void)
{
	struct interp_chain chain = {
		.family = INTERP_PERL, .minor = 36, .n = 3, .flags = INTERP_MAIN
	};

	chain.frames[0].flags = chain.frames[1].flags = INTERP_FRAME_ENDS_RUN;
	CHECK_STR(PLACE(.has_root = true), "0-1@1 1-2@3 2-3@8 ");
	/* The program is embedded, and has ended. */
	chain.frames[2].flags = INTERP_FRAME_ENDS_RUN;
	CHECK_STR(PLACE_IN(6, .has_root = true), "0-1@1 1-2@3 ");
	chain.n = 1;
	CHECK_STR(PLACE_IN(1, .has_root = true), "");
	chain.frames[0].flags = 0;
	CHECK_STR(PLACE_IN(1, .has_root = true), "0-1@1 ");
}

/* Activations beyond the frames that are shown are the outermost. */
static void test_merge_of_part(void)
{
	struct interp_chain chain = {
		.family = INTERP_PERL, .minor = 36, .n = 3, .flags = INTERP_DEEPER
	};

	chain.frames[1].flags = INTERP_FRAME_ENDS_RUN;
	chain.n_more_runs = 1;
	CHECK_STR(PLACE(.has_root = true), "0-2@1 2-3@3 ");
	chain.n_more_runs = 3;
	CHECK_STR(PLACE(.has_root = true), "-");
	/* If the last frame shown is in the outermost activation, all activations are known. */
	chain.n_more_runs = INTERP_RUNS_UNKNOWN;
	CHECK_STR(PLACE(.has_root = true), "0-2@1 2-3@3 ");
	CHECK_STR(PLACE(), "-");
	chain.frames[0].flags = INTERP_FRAME_ENDS_RUN;
	CHECK_STR(PLACE(.has_root = true), "-");
	chain.frames[0].flags = chain.frames[1].flags = 0;
	CHECK_STR(PLACE(.has_root = true), "-");
}

int main(void)
{
	RUN(test_layouts);
	RUN(test_program);
	RUN(test_files);
	RUN(test_names);
	RUN(test_merge);
	RUN(test_merge_of_main);
	RUN(test_merge_of_part);
	return test_end();
}
