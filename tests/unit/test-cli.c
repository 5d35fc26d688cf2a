/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "tests/unit/test.h"
#include "tools/common/cli.h"

#include <fcntl.h>
#include <limits.h>

struct options {
	bool json, system;
	const char *output, *memory;
	GPtrArray *events;
	GArray *pids;
	uint64_t frequency, duration, size;
	struct units_range range;
	int color, mode;
};

static const char *const modes[] = { "auto", "fp", "none", NULL };
static const char *const amounts[] = { "all", "some:", NULL };

static const struct cli_option record_options[] = {
	{ "json", 0, CLI_FLAG, offsetof(struct options, json), NULL, "print JSON" },
	{ "system", 'a', CLI_FLAG, offsetof(struct options, system), NULL, "everything" },
	{ "output", 'o', CLI_STRING, offsetof(struct options, output), "FILE", "write to FILE" },
	{ "event", 'e', CLI_LIST, offsetof(struct options, events), "EVENT", "what to count" },
	{ "pid", 'p', CLI_NUMBERS, offsetof(struct options, pids), "PID", "processes" },
	{ "frequency", 'F', CLI_UINT, offsetof(struct options, frequency), "HZ", "samples a second",
	  NULL, 0, 100000 },
	{ "mode", 'g', CLI_CHOICE, offsetof(struct options, mode), "MODE", "how", modes,
	  .bare = true },
	{ "duration", 'd', CLI_DURATION, offsetof(struct options, duration), "TIME", "how long" },
	{ "memory", 0, CLI_OPTIONAL, offsetof(struct options, memory), "[=all|some:N]", "how much",
	  amounts },
	{ NULL },
};

static const struct cli_option more_options[] = {
	{ "size", 0, CLI_SIZE, offsetof(struct options, size), "BYTES", "size" },
	{ "from", 0, CLI_RANGE, offsetof(struct options, range), "TIME", "start" },
	{ "to", 0, CLI_TIME, offsetof(struct options, range.to), "TIME", "end" },
	{ "color", 0, CLI_CHOICE, offsetof(struct options, color), "WHEN", "colour",
	  cli_color_choices },
	{ NULL },
};

static struct options o;
static int n_operands;
static char **operands;

static void options_done(void)
{
	g_clear_pointer(&o.events, g_ptr_array_unref);
	g_clear_pointer(&o.pids, g_array_unref);
	o = (struct options){ .frequency = 999 };
}

static int parse(bool command, const char *line)
{
	static char **strings, **argv;
	const struct cli_group groups[] = { { NULL, record_options, &o },
					    { "More", more_options, &o },
					    { NULL } };
	const struct cli_spec spec = { "[COMMAND]", "Test.", 0, command ? UINT_MAX : 2, command };

	g_strfreev(strings);
	g_free(argv);
	options_done();
	strings = g_strsplit(line, " ", -1);
	n_operands = (int)g_strv_length(strings);
	/* a copy, because parsing reorders argv */
	argv = g_memdup2(strings, sizeof(*argv) * ((size_t)n_operands + 1));
	operands = argv;
	return cli_parse(&spec, groups, &n_operands, &operands);
}

static void test_values(void)
{
	CHECK_INT(parse(false, "record --json -a -o x.cap --frequency=100 -d1.5s --size 4K"),
		  CLI_CONTINUE);
	CHECK(o.json && o.system);
	CHECK_STR(o.output, "x.cap");
	CHECK_INT(o.frequency, 100);
	CHECK_INT(o.duration, 1500000000);
	CHECK_INT(o.size, 4096);
	CHECK_INT(n_operands, 0);
	CHECK_INT(parse(false, "record"), CLI_CONTINUE);
	CHECK_INT(o.frequency, 999);
	CHECK_INT(parse(false, "record -aF 50 -F60"), CLI_CONTINUE);
	CHECK_INT(o.frequency, 60);
	CHECK_INT(parse(false, "record -e cycles --event=cpu/event=1,umask=2/"), CLI_CONTINUE);
	REQUIRE(o.events && o.events->len == 2);
	CHECK_STR(g_ptr_array_index(o.events, 1), "cpu/event=1,umask=2/");
	CHECK_INT(parse(false, "record -p 1,2 --pid 3"), CLI_CONTINUE);
	REQUIRE(o.pids && o.pids->len == 3);
	CHECK_INT(g_array_index(o.pids, uint32_t, 2), 3);
	CHECK_INT(parse(false, "record --from -5s --to=-1s --color never --output="), CLI_CONTINUE);
	CHECK(o.range.from.kind == UNITS_TIME_END && o.range.to.kind == UNITS_TIME_END);
	CHECK_INT(o.color, CLI_COLOR_NEVER);
	CHECK_STR(o.output, "");
}

/* An option like perf's -g, with or without a value. */
static void test_bare(void)
{
	static const struct {
		const char *line;
		int mode;
		const char *operand;
	} cases[] = {
		{ "record -g", 0, NULL },
		{ "record -g none", 2, NULL },
		{ "record -gfp ls", 1, "ls" },
		{ "record -g ls fp", 0, "ls" },
		{ "record -ag ls", 0, "ls" },
		{ "record -ga ls", 0, "ls" },
		{ "record -g fp -- ls", 1, "ls" },
		{ "record -g -- fp", 0, "fp" },
		{ "record --mode none -g", 0, NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CHECK_INT(parse(true, cases[i].line), CLI_CONTINUE);
		CHECK_INT(o.mode, cases[i].mode);
		CHECK_STR(operands[0], cases[i].operand);
	}
	CHECK_INT(parse(true, "record --mode ls"), CLI_USAGE);
}

/* An option with an optional value does not take the next word as its value. */
static void test_optional(void)
{
	CHECK_INT(parse(true, "record --memory ls all"), CLI_CONTINUE);
	CHECK_STR(o.memory, "all");
	CHECK_STR(operands[0], "ls");
	CHECK_INT(parse(true, "record --memory=some:5 -- ls"), CLI_CONTINUE);
	CHECK_STR(o.memory, "some:5");
	CHECK_INT(parse(true, "record --memory="), CLI_CONTINUE);
	CHECK_STR(o.memory, "");
	CHECK_INT(parse(true, "record ls --memory"), CLI_CONTINUE);
	CHECK_STR(o.memory, NULL);
}

static void test_operands(void)
{
	CHECK_INT(parse(false, "info a --json b"), CLI_CONTINUE);
	CHECK_INT(n_operands, 2);
	CHECK(o.json);
	CHECK_STR(operands[1], "b");
	CHECK(operands[2] == NULL);
	CHECK_INT(parse(false, "info - -- --json"), CLI_CONTINUE);
	CHECK_STR(operands[0], "-");
	CHECK_STR(operands[1], "--json");
	CHECK(!o.json);
	CHECK_INT(parse(false, "info a b c"), CLI_USAGE);
}

static void test_commands(void)
{
	CHECK_INT(parse(true, "record -a ls -a --json -- x"), CLI_CONTINUE);
	CHECK(o.system && !o.json);
	CHECK_INT(n_operands, 5);
	CHECK_STR(operands[0], "ls");
	CHECK_STR(operands[3], "--");
	CHECK_INT(parse(true, "record --json -- -weird --help"), CLI_CONTINUE);
	CHECK(o.json);
	CHECK_STR(operands[0], "-weird");
	CHECK_INT(n_operands, 2);
	CHECK_INT(parse(true, "record -- --"), CLI_CONTINUE);
	CHECK_STR(operands[0], "--");
	CHECK_INT(parse(true, "record -a --"), CLI_USAGE); /* as from an empty $COMMAND */
}

static void test_refusals(void)
{
	static const char *const lines[] = {
		"x --jsno",
		"x --json=1",
		"x --output",
		"x -o",
		"x -z",
		"x -aZ",
		"x -F many",
		"x --frequency 100001",
		"x -p 1,,2",
		"x -p ",
		"x -p 4294967296",
		"x --color sometimes",
		"x --color=",
		"x --duration 1,5",
		"x --size 3Q",
		"x --from @foo",
		"x --outpu=file",
		"x --complete-more",
		"x ---",
		"x --help=3",
		"x -json",
	};

	for (unsigned i = 0; i < ARRAY_SIZE(lines); i++)
		if (!CHECK_INT(parse(false, lines[i]), CLI_USAGE))
			printf("# line: %s\n", lines[i]);
}

/* The text of --help goes to out_stdout(), and describes every option. */
static void test_help(void)
{
	struct out *out = out_stdout();

	out->fd = -1;
	CHECK_INT(parse(false, "record --help"), CLI_OK);
	for (const struct cli_option *option = record_options; option->name; option++)
		CHECK(strstr(out->text->str, option->name) && strstr(out->text->str, option->help));
	CHECK(strstr(out->text->str, "--color auto|always|never"));
	CHECK(strstr(out->text->str, "--memory[=all|some:N]"));
	g_string_truncate(out->text, 0);
	CHECK_INT(parse(false, "record --complete"), CLI_OK);
	CHECK(strstr(out->text->str, "--json\n"));
	CHECK(strstr(out->text->str, "-o=\n--output=\n"));
	CHECK(strstr(out->text->str, "--color=never\n"));
	CHECK(strstr(out->text->str, "--memory\n--memory=all\n--memory=some:\n"));
	out_done(out);
}

static void test_suggest(void)
{
	static const char *const verbs[] = { "record", "report", "doctor", "schema", NULL };
	static const char *const names[] = { "", "main", "EvalFrameDefault", NULL };

	CHECK_STR(cli_suggest("recrod", verbs), "record");
	CHECK_STR(cli_suggest("reprot", verbs), "report");
	CHECK_STR(cli_suggest("RECORD", verbs), "record");
	CHECK_STR(cli_suggest("docter", verbs), "doctor");
	CHECK_STR(cli_suggest("sch", verbs), "schema");
	CHECK_STR(cli_suggest("evalFramedefualt", names), "EvalFrameDefault");
	CHECK_STR(cli_suggest("evalf", names), "EvalFrameDefault");
	CHECK_STR(cli_suggest("zzz", verbs), NULL);
	CHECK_STR(cli_suggest("", verbs), NULL);
	CHECK_STR(cli_suggest("x", verbs), NULL);
}

static int last_argc;

static int run_verb(int argc, char **argv)
{
	last_argc = argc;
	out_text(out_stdout(), "result\n");
	return CLI_OK;
}

static int call_main(int argc, const char *a, const char *b)
{
	static const struct cli_verb verbs[] = { { "work", "works", run_verb }, { NULL } };
	static const struct cli_tool tool = { "profctl", "", "Works.", "The end.", verbs };
	char *argv[] = { (char *)"profctl", (char *)a, (char *)b, NULL };

	return cli_main(&tool, argc, argv);
}

static void test_main(void)
{
	CLEANUP_CLOSE int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
	CLEANUP_CLOSE int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	out_stdout()->fd = null;
	CHECK_INT(call_main(3, "work", "x"), CLI_OK);
	CHECK_INT(last_argc, 2);
	CHECK_INT(call_main(1, NULL, NULL), CLI_USAGE);
	CHECK_INT(call_main(2, "wrok", NULL), CLI_USAGE);
	CHECK_INT(call_main(2, "--vresion", NULL), CLI_USAGE);
	out_stdout()->fd = null;
	CHECK_INT(call_main(2, "--help", NULL), CLI_OK);
	out_stdout()->fd = null;
	CHECK_INT(call_main(2, "--version", NULL), CLI_OK);
	out_stdout()->fd = full;
	CHECK_INT(call_main(2, "work", NULL), CLI_FAILURE);
}

static void test_color(void)
{
	CLEANUP_CLOSE int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	g_unsetenv("NO_COLOR");
	g_unsetenv("CLICOLOR_FORCE");
	CHECK(!cli_color_wanted(CLI_COLOR_AUTO, null));
	CHECK(cli_color_wanted(CLI_COLOR_ALWAYS, null));
	g_setenv("CLICOLOR_FORCE", "1", TRUE);
	CHECK(cli_color_wanted(CLI_COLOR_AUTO, null));
	CHECK(!cli_color_wanted(CLI_COLOR_NEVER, null));
	g_setenv("NO_COLOR", "1", TRUE);
	CHECK(!cli_color_wanted(CLI_COLOR_AUTO, null));
	CHECK(cli_color_wanted(CLI_COLOR_ALWAYS, null));
	CHECK_INT(cli_columns(null), 0);
}

int main(void)
{
	RUN(test_values);
	RUN(test_bare);
	RUN(test_optional);
	RUN(test_operands);
	RUN(test_commands);
	RUN(test_refusals);
	RUN(test_help);
	RUN(test_suggest);
	RUN(test_main);
	RUN(test_color);
	options_done();
	return test_end();
}
