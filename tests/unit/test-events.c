/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "tests/unit/test.h"

#include "daemon/broker/error.h"
#include "daemon/broker/event-format.h"
#include "daemon/broker/events.h"
#include "daemon/broker/probes.h"

#include <fcntl.h>
#include <glib/gstdio.h>

#define COMMON                                                                 \
	"name: x\nID: 1\nformat:\n"                                            \
	"\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n" \
	"\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
#define SWITCH_FORMAT                                                          \
	COMMON "\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n" \
	       "\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n"     \
	       "\nprint fmt: \"field:int x;\toffset:1;\", REC->prev_pid\n"

/* A simulated machine with one tracepoint and one PMU. */
static struct event_dirs dirs = { .pmus = -1, .tracepoints = -1 };
static char *folder;

static void put(const char *path, const char *text)
{
	g_autofree char *full = g_build_filename(folder, path, NULL);
	g_autofree char *parent = g_path_get_dirname(full);

	g_mkdir_with_parents(parent, 0700);
	g_file_set_contents(full, text, -1, NULL);
}

static int open_below(const char *path)
{
	g_autofree char *full = g_build_filename(folder, path, NULL);

	return open(full, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void set_up(void)
{
	folder = g_dir_make_tmp("events-XXXXXX", NULL);
	put("secret/id", "666\n");
	put("tracing/sched/sched_switch/id", "314\n");
	put("tracing/sched/sched_wakeup/id", "315\n");
	put("tracing/sched/sched_switch/format", SWITCH_FORMAT);
	put("pmus/cpu/type", "4\n");
	put("pmus/cpu/format/event", "config:0-7,32-35\n");
	put("pmus/cpu/format/umask", "config:8-15\n");
	put("pmus/cpu/format/offcore", "config1:0-63\n");
	put("pmus/cpu/events/mem-loads", "event=0xcd,umask=0x1\n");
	dirs.tracepoints = open_below("tracing");
	dirs.pmus = open_below("pmus");
}

static bool parse(const char *text, struct event *event)
{
	return event_parse(&dirs, text, event, NULL);
}

/* Checks that the text is refused. Returns the message. */
static const char *refusal(const char *text)
{
	static char message[512];
	g_autoptr(GError) error = NULL;
	struct event event;

	if (event_parse(&dirs, text, &event, &error))
		return "accepted";
	g_strlcpy(message, error->message, sizeof(message));
	return message;
}

static void test_fixed_names(void)
{
	struct event event;

	REQUIRE(parse("cpu-clock", &event));
	CHECK_INT(event.attr.type, PERF_TYPE_SOFTWARE);
	CHECK_INT(event.attr.config, PERF_COUNT_SW_CPU_CLOCK);
	CHECK(event.counts_ns && !event.kernel_only && !event.every_one);
	REQUIRE(parse("cycles", &event));
	CHECK_INT(event.attr.type, PERF_TYPE_HARDWARE);
	CHECK_INT(event.kind, PROF_SOURCE_HARDWARE);
	REQUIRE(parse("cs", &event));
	CHECK(event.kernel_only);
	for (const char *const *name = event_names(); *name; name++)
		CHECK(parse(*name, &event));
}

static void test_cache_and_raw(void)
{
	struct event event;

	REQUIRE(parse("LLC-load-misses", &event));
	CHECK_INT(event.attr.type, PERF_TYPE_HW_CACHE);
	CHECK_INT(event.attr.config,
		  PERF_COUNT_HW_CACHE_LL | PERF_COUNT_HW_CACHE_RESULT_MISS << 16);
	REQUIRE(parse("dTLB-stores", &event));
	CHECK_INT(event.attr.config, PERF_COUNT_HW_CACHE_DTLB | PERF_COUNT_HW_CACHE_OP_WRITE << 8);
	REQUIRE(parse("r1A8", &event));
	CHECK_INT(event.attr.type, PERF_TYPE_RAW);
	CHECK_INT(event.attr.config, 0x1a8);
	CHECK(!parse("r", &event));
	CHECK(!parse("rxyz", &event));
	CHECK(!parse("r00000000000000001", &event));
}

static void test_modifiers(void)
{
	struct event event;

	REQUIRE(parse("cycles:u", &event));
	CHECK(event.attr.exclude_kernel && !event.attr.exclude_user);
	REQUIRE(parse("cycles:kpp", &event));
	CHECK(event.attr.exclude_user && !event.attr.exclude_kernel);
	CHECK_INT(event.attr.precise_ip, 2);
	CHECK_STR(refusal("cycles:x"),
		  "event \"cycles:x\": unknown modifier \"x\"; valid are u, k, p, pp, ppp");
	REQUIRE(parse("sched:sched_switch:u", &event));
	CHECK(event.attr.exclude_kernel);
	REQUIRE(parse("cpu/event=1/u", &event));
	CHECK(event.attr.exclude_kernel);
}

static void test_tracepoints(void)
{
	struct event event;

	REQUIRE(parse("sched:sched_switch", &event));
	CHECK_INT(event.attr.type, PERF_TYPE_TRACEPOINT);
	CHECK_INT(event.attr.config, 314);
	CHECK_INT(event.attr.sample_period, 1);
	CHECK(event.every_one && event.kernel_only);
	CHECK_STR(refusal("sched:sched_swich"),
		  "unknown event \"sched:sched_swich\"; did you mean \"sched:sched_switch\"?");
	CHECK_STR(refusal("shed:sched_wakeup"),
		  "unknown event \"shed:sched_wakeup\"; did you mean \"sched:sched_wakeup\"?");
}

static void test_filters(void)
{
	struct event event;

	REQUIRE(parse("sched:sched_switch/prev_comm ~ \"a/b\" && prev_pid > 1/", &event));
	CHECK_INT(event.attr.config, 314);
	CHECK_STR(event.filter, "prev_comm ~ \"a/b\" && prev_pid > 1");
	REQUIRE(parse("sched:sched_switch:u/prev_pid==1/", &event));
	CHECK(event.attr.exclude_kernel);
	CHECK_STR(event.filter, "prev_pid==1");
	REQUIRE(parse("sched:sched_switch", &event));
	CHECK_STR(event.filter, "");
	CHECK_STR(refusal("cycles:u/x==1/"),
		  "event \"cycles:u/x==1/\": only tracepoints take a filter");
	CHECK_STR(refusal("sched:sched_switch/x"),
		  "event \"sched:sched_switch/x\": a filter is between two \"/\", as in "
		  "sched:sched_switch/prev_pid==1/");
	CHECK_STR(parse("sched:sched_switch//", &event) ? "accepted" : "refused", "refused");
}

static void test_probe_filters(void)
{
	static const char *const plain[] = { "/a/b:f", "/a/b:f%return", "/a/b:p:n",
					     "/a/b:github.com/c/d.F" };
	struct event event;

	for (size_t i = 0; i < G_N_ELEMENTS(plain); i++) {
		REQUIRE(parse(plain[i], &event));
		CHECK_INT(event.kind, PROF_SOURCE_PROBE);
		CHECK_STR(event.filter, "");
		CHECK_INT(event_probe_length(plain[i]), strlen(plain[i]));
	}
	REQUIRE(parse("/a/b:p:n/arg1==3 || arg2&4/", &event));
	CHECK_STR(event.filter, "arg1==3 || arg2&4");
	CHECK_INT(event_probe_length(event.name), strlen("/a/b:p:n"));
	CHECK(!parse("/a/b:p:n//", &event));
	CHECK(!parse("/a/b:p:n/", &event));
}

/* Two places of one probe, with different arguments, and another probe. */
static void test_probe_fields(void)
{
	struct event events[] = {
		{ .n_arguments = 2,
		  .arguments = { { .bytes = 4 }, { .bytes = 8, .is_float = 1 } } },
		{ .n_arguments = 1, .arguments = { { .bytes = 2, .is_signed = 1 } } },
		{ .same_as = 1,
		  .n_arguments = 3,
		  .arguments = { { .bytes = 8, .is_signed = 1 }, { .bytes = 8 }, { .bytes = 1 } } },
	};
	g_autoptr(GArray) fields = probes_fields(events, G_N_ELEMENTS(events), 0);
	g_autoptr(GArray) others = probes_fields(events, G_N_ELEMENTS(events), 1);
	const struct message_field *field = (const void *)fields->data;

	REQUIRE(fields->len == 3 && others->len == 1);
	CHECK_STR(field[0].name, "arg1");
	CHECK_STR(field[0].type, "s64");
	CHECK_INT(field[0].kind, PROF_ARGUMENT_S64);
	CHECK_STR(field[1].type, "f64");
	CHECK_INT(field[1].kind, PROF_ARGUMENT_DOUBLE);
	CHECK_STR(field[2].type, "u8");
	CHECK_INT(field[2].kind, PROF_ARGUMENT_U64);
	CHECK_INT(field[2].offset, 2 * sizeof(struct probe_value));
	CHECK_STR(g_array_index(others, struct message_field, 0).type, "s16");
}

/* Returns the only field of a description, as text. */
static const char *field_of(const char *line)
{
	static char text[256];
	g_autofree char *format = g_strconcat(COMMON, line, "\n", NULL);
	g_autoptr(GArray) fields = event_format_parse(format);
	const struct message_field *field = (const void *)fields->data;

	if (fields->len != 1)
		return "none";
	g_snprintf(text, sizeof(text), "%s %s at %u size %u kind %u place %u element %u signed %u",
		   field->type, field->name, field->offset, field->size, field->kind, field->place,
		   field->element, field->is_signed);
	return text;
}

static void test_format(void)
{
	struct event event;
	g_autoptr(GArray) fields = NULL;

	REQUIRE(parse("sched:sched_switch:k/prev_pid==1/", &event));
	fields = event_fields(&dirs, &event);
	REQUIRE(fields != NULL && fields->len == 2);
	CHECK_STR(g_array_index(fields, struct message_field, 1).name, "prev_pid");
	CHECK_STR(field_of("\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;"),
		  "char prev_comm at 8 size 16 kind 3 place 0 element 1 signed 0");
	CHECK_STR(field_of("\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;"),
		  "pid_t prev_pid at 24 size 4 kind 0 place 0 element 0 signed 1");
	CHECK_STR(field_of("\tfield:const char * filename;\toffset:24;\tsize:8;\tsigned:0;"),
		  "const char * filename at 24 size 8 kind 4 place 0 element 0 signed 0");
	CHECK_STR(field_of("\tfield:__data_loc char[] name;\toffset:8;\tsize:4;\tsigned:0;"),
		  "char name at 8 size 4 kind 3 place 1 element 1 signed 0");
	CHECK_STR(field_of("\tfield:__rel_loc u64[] a;\toffset:8;\tsize:4;\tsigned:0;"),
		  "u64 a at 8 size 4 kind 3 place 2 element 8 signed 0");
	CHECK_STR(field_of("\tfield:__u8 saddr[4];\toffset:20;\tsize:4;\tsigned:0;"),
		  "__u8 saddr at 20 size 4 kind 3 place 0 element 1 signed 0");
	/* an argument of a system call: the low half of a register */
	CHECK_STR(field_of("\tfield:int dfd;\toffset:16;\tsize:8;\tsigned:0;"),
		  G_BYTE_ORDER == G_LITTLE_ENDIAN
			  ? "int dfd at 16 size 4 kind 0 place 0 element 0 signed 1"
			  : "int dfd at 20 size 4 kind 0 place 0 element 0 signed 1");
	/* a struct */
	CHECK_STR(field_of("\tfield:struct x y;\toffset:16;\tsize:12;\tsigned:0;"),
		  "struct x y at 16 size 12 kind 3 place 0 element 1 signed 0");
}

static void test_format_hostile(void)
{
	static const char *const bad[] = {
		"field:int x;\toffset:65535;\tsize:4;\tsigned:0;",
		"field:int x;\toffset:70000;\tsize:4;\tsigned:0;",
		"field:int x;\toffset:-1;\tsize:4;\tsigned:0;",
		"field:int x;\toffset:8;\tsize:0;\tsigned:0;",
		"field:int x;\toffset:8;\tsize:4;",
		"field:int;\toffset:8;\tsize:4;\tsigned:0;",
		"field:;\toffset:8;\tsize:4;\tsigned:0;",
		"field:int 1x;\toffset:8;\tsize:4;\tsigned:0;",
		"field:int x[];\toffset:8;\tsize:4;\tsigned:0;",
		"field:int x[0];\toffset:8;\tsize:4;\tsigned:0;",
		"field:int x[99999];\toffset:8;\tsize:4;\tsigned:0;",
		"field:int (*x)(int);\toffset:8;\tsize:8;\tsigned:0;",
		"field:__data_loc char[] x;\toffset:8;\tsize:8;\tsigned:0;",
		"field",
		"",
	};
	g_autofree char *name = g_strnfill(80, 'n');
	g_autofree char *line =
		g_strconcat("field:int ", name, ";\toffset:8;\tsize:4;\tsigned:0;\n", NULL);
	g_autoptr(GString) many = g_string_new(NULL);
	g_autoptr(GArray) fields = NULL;

	for (size_t i = 0; i < G_N_ELEMENTS(bad); i++)
		CHECK_STR(field_of(bad[i]), "none");
	CHECK_STR(field_of(line), "none");
	for (size_t i = 0; i < 1000; i++)
		g_string_append(many, "field:int x;\toffset:8;\tsize:4;\tsigned:0;\n");
	fields = event_format_parse(many->str);
	CHECK_INT(fields->len, ENGINE_MAX_FIELDS);
}

static void test_dynamic(void)
{
	struct event event;

	REQUIRE(parse("cpu/event=0x1ff,umask=2,offcore=0xffffffffffffffff/", &event));
	CHECK_INT(event.attr.type, 4);
	CHECK_INT(event.attr.config, 0x1000002ff);
	CHECK(event.attr.config1 == UINT64_MAX);
	REQUIRE(parse("cpu/mem-loads,period=1000/", &event));
	CHECK_INT(event.attr.config, 0x1cd);
	CHECK_INT(event.attr.sample_period, 1000);
	CHECK(event.every_one);
	CHECK_STR(refusal("cpu/umask=256/"),
		  "event \"cpu/umask=256/\": the value of \"umask\" does not fit into config:8-15");
	CHECK_STR(refusal("gpu/event=1/"),
		  "event \"gpu/event=1/\": there is no PMU \"gpu\"; this machine has cpu");
}

static void test_refused(void)
{
	static const char *const bad[] = { "",
					   ":",
					   "::",
					   "/",
					   "//",
					   "cpu/",

					   "cpu/event=/",
					   "cpu/,/",
					   "cpu/event=1z/",
					   "cycles cycles",
					   "sched:",
					   ":switch",
					   "a:b:c:d",
					   "cpu/event=1/x" };
	g_autofree char *longest = g_strnfill(4096, 'c');
	struct event event;

	for (size_t i = 0; i < G_N_ELEMENTS(bad); i++)
		CHECK_STR(parse(bad[i], &event) ? bad[i] : "refused", "refused");
	CHECK(!parse(longest, &event));
	CHECK_STR(refusal("cycels"), "unknown event \"cycels\"; did you mean \"cycles\"?");
}

static void test_hostile(void)
{
	static const char *const bad[] = { "..:secret", "../secret:id", "sched/..:sched_switch",
					   "../x/y/",   "cpu/../y/",    "cpu/..=1/",
					   ".:.",       "cpu/events\n/" };
	struct event event;

	for (size_t i = 0; i < G_N_ELEMENTS(bad); i++)
		CHECK_STR(parse(bad[i], &event) ? bad[i] : "refused", "refused");
}

int main(void)
{
	set_up();
	RUN(test_fixed_names);
	RUN(test_cache_and_raw);
	RUN(test_modifiers);
	RUN(test_tracepoints);
	RUN(test_filters);
	RUN(test_probe_filters);
	RUN(test_probe_fields);
	RUN(test_format);
	RUN(test_format_hostile);
	RUN(test_dynamic);
	RUN(test_refused);
	RUN(test_hostile);
	return test_end_without(folder);
}
