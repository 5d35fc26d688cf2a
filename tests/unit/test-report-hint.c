/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of the hint of a report: each capture has one main problem.
 */
#include "tests/unit/build-capture.h"
#include "tests/unit/test.h"
#include "tools/profcapture/report-hint.h"

struct lacks {
	const char *exe, *path; /* path of the process; path of the image without names */
	unsigned kind;
	unsigned unnamed, named, truncated; /* numbers of samples; truncated ones have names */
	unsigned cause, lost;
	const char *problem, *advice, *subject, *says;
};

static void samples(struct build *build, unsigned count, uint64_t stack, unsigned stop)
{
	for (unsigned i = 0; i < count; i++)
		BUILD(build, PROF_TABLE_SAMPLE, N(BUILD_START + i), N(1), N(0), N(PROF_MODE_USER),
		      N(stack), N(1), N(0), N(PROF_METHOD_CFI), N(stop), N(0));
}

/* The function of stack 1 has a name, and is in libc; that of stack 2 has no name. */
static void write_capture(struct build *build, const struct lacks *lacks)
{
	build_begin(build);
	build_text(build, 1, lacks->exe);
	build_text(build, 2, lacks->path);
	build_text(build, 3, "known");
	build_text(build, 4, "/usr/lib/libc.so.6");
	BUILD(build, PROF_TABLE_PROCESS, N(1), N(100), N(1), N(5), N(0), PROF_BYTES(NULL, 0), N(1),
	      N(0), N(0), PROF_BYTES(NULL, 0));
	BUILD(build, PROF_TABLE_THREAD, N(1), N(1), N(100), N(5), N(3), PROF_BYTES(NULL, 0));
	BUILD(build, PROF_TABLE_IMAGE, N(1), N(4), PROF_BYTES(NULL, 0), N(10), N(1), N(5),
	      N(PROF_IMAGE_FILE), N(5), N(0));
	BUILD(build, PROF_TABLE_IMAGE, N(2), N(2), PROF_BYTES(NULL, 0), N(10), N(1), N(6),
	      N(lacks->kind), N(5), N(1));
	if (lacks->named + lacks->truncated)
		BUILD(build, PROF_TABLE_SYMBOL, N(1), N(1), N(0x100), N(0x100), N(3), N(0), N(0),
		      N(0), N(0));
	BUILD(build, PROF_TABLE_FRAME, N(1), N(1), N(0x100), N(PROF_FRAME_EXACT));
	BUILD(build, PROF_TABLE_FRAME, N(2), N(2), N(0x100), N(PROF_FRAME_EXACT));
	BUILD(build, PROF_TABLE_STACK, N(1), N(0), N(1));
	BUILD(build, PROF_TABLE_STACK, N(2), N(0), N(2));
	samples(build, lacks->named, 1, PROF_STOP_ROOT);
	samples(build, lacks->truncated, 1, PROF_STOP_COPY_END);
	samples(build, lacks->unnamed, 2, PROF_STOP_ROOT);
	if (lacks->lost)
		BUILD(build, PROF_TABLE_LOSS, N(BUILD_START), N(BUILD_START + 1), N(0),
		      N(lacks->cause), N(lacks->lost), N(0));
	build_finish(build);
}

static void check(const struct lacks *lacks, enum profile_by by)
{
	struct build build;
	struct reader reader = { 0 };
	struct profile profile = { .by = by };
	struct report_hint hint;
	struct out out;

	write_capture(&build, lacks);
	CHECK(reader_open(&reader, build.path, NULL) && profile_run(&profile, &reader, NULL));
	hint = report_hint_find(&profile);
	CHECK_STR(hint.problem, lacks->problem);
	CHECK_STR(hint.advice, lacks->advice);
	CHECK_STR(hint.subject, lacks->subject);
	out = out_buffer();
	report_hint_print(&hint, &out);
	printf("# %s", out.text->len ? out.text->str : "-\n");
	CHECK(lacks->says ? strstr(out.text->str, lacks->says) != NULL : out.text->len == 0);
	out_done(&out);
	profile_done(&profile);
	reader_done(&reader);
	build_done(&build);
}

static void test_names(void)
{
	static const struct lacks all[] = {
		{ "/usr/bin/node", "[anon]", PROF_IMAGE_ANON, 60, 40, 0, 0, 0, "unresolved", "node",
		  "[anon]",
		  "60.0 % of the samples have no name, most in code that the program made while it ran: run node with --perf-basic-prof" },
		{ "/opt/jdk/bin/java", "[anon]", PROF_IMAGE_ANON, 60, 40, 0, 0, 0, "unresolved",
		  "java", "[anon]", "DumpPerfMapAtExit" },
		{ "/usr/bin/luajit", "[anon]", PROF_IMAGE_ANON, 60, 40, 0, 0, 0, "unresolved",
		  "perf-map", "[anon]", "/tmp/perf-PID.map" },
		{ "/a", "/usr/lib/libfoo.so.1", PROF_IMAGE_FILE, 60, 40, 0, 0, 0, "unresolved",
		  "debug-symbols", "/usr/lib/libfoo.so.1", "-dbgsym" },
		{ "/a", "/usr/local/lib/libfoo.so.1", PROF_IMAGE_FILE, 60, 40, 0, 0, 0,
		  "unresolved", "build-symbols", "/usr/local/lib/libfoo.so.1", "build it with -g" },
		{ "/a", "/opt/tool", PROF_IMAGE_FILE, 60, 0, 0, 0, 0, "unresolved", "symbolize",
		  "/opt/tool", "'profcapture symbolize /" },
		{ "/a", "[kernel]", PROF_IMAGE_KERNEL, 60, 40, 0, 0, 0, "unresolved",
		  "kernel-names", "[kernel]", "profctl doctor" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		check(&all[i], PROFILE_FUNCTION);
}

static void test_losses(void)
{
	static const struct lacks all[] = {
		{ "/a", "/b", 0, 10, 90, 0, PROF_LOSS_PERF_RING, 50, "lost", "lower-frequency",
		  "perf-ring",
		  "33.3 % were lost, most as perf-ring: record with a lower --frequency" },
		{ "/a", "/b", 0, 10, 90, 0, PROF_LOSS_THROTTLED, 50, "lost", "raise-limit",
		  "throttled", "kernel.perf_cpu_time_max_percent" },
		{ "/a", "/b", 0, 10, 90, 0, PROF_LOSS_RING_FULL, 50, "lost", "lossless",
		  "ring-full", "--policy lossless" },
		{ "/a", "/b", 0, 10, 90, 0, PROF_LOSS_DISK_FULL, 50, "lost", "free-space",
		  "disk-full", "more space" },
		{ "/a", "/b", 0, 10, 90, 0, PROF_LOSS_RING_CORRUPT, 50, "lost", "info",
		  "ring-corrupt", "profcapture info" },
		/* a tick that the kernel missed is not a loss */
		{ "/a", "/b", 0, 0, 90, 0, PROF_LOSS_TICKS_MISSED, 50, NULL, NULL, NULL, NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		check(&all[i], PROFILE_FUNCTION);
}

/* The largest of several problems is reported; none if all are small. */
static void test_largest(void)
{
	static const struct lacks all[] = {
		{ "/a", "/b", 0, 10, 70, 20, PROF_LOSS_PERF_RING, 5, "truncated", "frame-pointers",
		  NULL, "20.0 % of the samples have a truncated stack" },
		{ "/a", "/b", 0, 30, 50, 20, PROF_LOSS_PERF_RING, 5, "unresolved", "build-symbols",
		  "/b", "30.0 %" },
		{ "/a", "/b", 0, 1, 499, 2, PROF_LOSS_PERF_RING, 3, NULL, NULL, NULL, NULL },
		{ "/a", "/b", 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL },
	};
	const struct lacks by_thread = { "/a", "/b", 0, 50, 50, 0, 0, 0, NULL, NULL, NULL, NULL };

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		check(&all[i], PROFILE_FUNCTION);
	check(&by_thread, PROFILE_THREAD);
}

/* If samples lack the functions of their program, the hint has the reasons from the metadata. */
static void test_interpreted(void)
{
	static const struct {
		const char *cause, *advice;
	} all[] = {
		{ "Ruby 3.3 is not supported", "ruby-version" },
		{ "this build of Ruby 3.1 is not supported", "ruby-version" },
		{ "code that PHP generates hides where some of its functions belong",
		  "no-generated-code" },
		{ "PHP 8.4 is not supported", "php-version" },
		{ "this build of PHP 8.2 is not supported", "php-version" },
		{ "Perl 5.34 is not supported", "perl-version" },
		{ "this build of Perl 5.36 is not supported", "perl-version" },
		{ "this version of V8 is not supported", "node-version" },
		{ "Perl 5.30 is not supported\nPerl 5.34 is not supported", "perl-version" },
		{ "Perl 5.34 is not supported\nthis version of V8 is not supported",
		  "interpreter-versions" },
		{ "this build of V8 11.3 is not supported", "node-version" },
		{ "Python 3.7 is not supported", "python-perf" },
		{ "this kernel has no type information for BPF programs", "kernel-types" },
		{ "loading the program that reads interpreters: Operation not permitted; CAP_BPF and CAP_PERFMON are needed",
		  "read-interpreters" },
		{ "loading the program that reads interpreters: Operation not permitted; root lacks CAP_BPF or CAP_PERFMON",
		  "container" },
		{ "loading the program that reads interpreters: Operation not permitted; the kernel is locked down, or CAP_BPF and CAP_PERFMON are those of a user namespace",
		  "lockdown" },
		{ "loading the program that reads interpreters: Invalid argument; Linux 5.17 is needed",
		  "newer-kernel" },
		{ "profd was built without libbpf, bpftool or clang", "build-profd" },
		{ "the kernel refuses the program that reads Ruby: Invalid argument",
		  "refused-program" },
		{ "Python 3.11 is not read in a process that also has Ruby 3.1",
		  "one-interpreter" },
		{ "there is no room for more functions of interpreted programs",
		  "fewer-functions" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		struct build build;
		struct reader reader = { 0 };
		struct profile profile = { .by = PROFILE_THREAD };
		struct report_hint hint;
		g_auto(GStrv) causes = g_strsplit(all[i].cause, "\n", -1);
		g_autofree char *joined = NULL;

		build_begin(&build);
		build_metadata(&build, "interpreters.missing", all[i].cause);
		for (unsigned j = 0; j < 4; j++)
			BUILD(&build, PROF_TABLE_SAMPLE, N(BUILD_START + j), N(1), N(0),
			      N(PROF_MODE_USER), N(0), N(1), N(0), N(PROF_METHOD_CFI),
			      N(PROF_STOP_ROOT), N(0), PROF_BYTES(NULL, 0), PROF_BYTES(NULL, 0),
			      N(j ? PROF_INTERPRETER_COMPLETE : PROF_INTERPRETER_MISSING));
		build_finish(&build);
		CHECK(reader_open(&reader, build.path, NULL) &&
		      profile_run(&profile, &reader, NULL));
		hint = report_hint_find(&profile);
		CHECK_STR(hint.problem, "interpreted");
		joined = g_strjoinv("; ", causes);
		CHECK_STR(hint.subject, joined);
		CHECK_STR(hint.advice, all[i].advice);
		CHECK_INT(hint.count, 1);
		profile_done(&profile);
		reader_done(&reader);
		build_done(&build);
	}
}

int main(void)
{
	RUN(test_names);
	RUN(test_losses);
	RUN(test_largest);
	RUN(test_interpreted);
	return test_end();
}
