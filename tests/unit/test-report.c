/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of profile, stacks, functions and run-times on captures with results that can be counted
 * by hand.
 */
#include "tests/unit/build-capture.h"
#include "tests/unit/test.h"
#include "tools/profcapture/profile.h"
#include "tools/profcapture/run-times.h"
#include "tools/profile/code-origin.h"
#include "tools/profile/function-labels.h"
#include "tools/profile/stacks.h"

/* Image 1 has functions a (0x100), b (0x200), c (0x300) of 0x100 bytes. Frame N is at 0xN00. */
static void begin_epoch(struct build *build)
{
	static const char *const names[] = { "a", "b", "c" };

	build_text(build, 1, "/lib/x.so");
	BUILD(build, PROF_TABLE_IMAGE, N(1), N(1), PROF_BYTES(NULL, 0), N(10), N(1), N(5),
	      N(PROF_IMAGE_FILE), N(5), N(0));
	for (unsigned i = 0; i < 3; i++) {
		build_text(build, i + 2, names[i]);
		BUILD(build, PROF_TABLE_SYMBOL, N(i + 1), N(1), N(0x100 * (i + 1)), N(0x100),
		      N(i + 2), N(0), N(0), N(0), N(0));
	}
	for (unsigned i = 1; i <= 3; i++)
		BUILD(build, PROF_TABLE_FRAME, N(i), N(1), N(0x100 * i), N(PROF_FRAME_EXACT));
	build_text(build, 8, "comm");
	build_text(build, 9, "/slice");
	BUILD(build, PROF_TABLE_PROCESS, N(1), N(100), N(1), N(5), N(0), PROF_BYTES(NULL, 0), N(0),
	      N(9), N(0), PROF_BYTES(NULL, 0));
	for (unsigned i = 1; i <= 2; i++)
		BUILD(build, PROF_TABLE_THREAD, N(i), N(1), N(100 + i), N(5), N(8),
		      PROF_BYTES(NULL, 0));
}

static void begin(struct build *build)
{
	build_begin(build);
	begin_epoch(build);
}

static void stack(struct build *build, uint64_t id, uint64_t parent, uint64_t frame)
{
	BUILD(build, PROF_TABLE_STACK, N(id), N(parent), N(frame));
}

static void samples(struct build *build, unsigned count, uint64_t stack_id)
{
	for (unsigned i = 0; i < count; i++)
		BUILD(build, PROF_TABLE_SAMPLE,
		      N(BUILD_START + prof_block_rows(build->blocks[PROF_TABLE_SAMPLE])),
		      N(1 + i % 2), N(i % 2), N(PROF_MODE_USER), N(stack_id), N(1), N(0),
		      N(PROF_METHOD_CFI), N(PROF_STOP_ROOT), N(9));
}

struct answer {
	struct reader reader;
	struct profile profile;
};

static bool run(struct answer *answer, const struct build *build)
{
	GError *error = NULL;
	bool ok;

	answer->reader.writes_empty = true;
	ok = reader_open(&answer->reader, build->path, &error) &&
	     profile_run(&answer->profile, &answer->reader, &error);

	if (!ok)
		printf("# %s\n", error->message);
	g_clear_error(&error);
	return ok;
}

static void done(struct answer *answer)
{
	profile_done(&answer->profile);
	reader_done(&answer->reader);
}

static struct profile_count count_in(const struct answer *answer, const GArray *counts,
				     const char *name)
{
	for (guint i = 0; i < counts->len; i++)
		if (strcmp(functions_at(answer->profile.functions, i)->name, name) == 0)
			return profile_count_at(counts, i);
	return (struct profile_count){ 0 };
}

#define CHECK_COUNT(counts, name, want_self, want_total)                           \
	do {                                                                       \
		struct profile_count count_ = count_in(&answer, (counts), (name)); \
		CHECK_INT(count_.self.samples, (want_self));                       \
		CHECK_INT(count_.total.samples, (want_total));                     \
	} while (0)

static uint64_t sum_of_self(const GArray *counts)
{
	uint64_t sum = 0;

	for (guint i = 0; i < counts->len; i++)
		sum += profile_count_at(counts, i).self.samples;
	return sum;
}

/* a → b → c, and a alone. In the second epoch, frame 1 is in c. */
static void test_totals(void)
{
	struct build build;
	struct answer answer = { 0 };

	begin(&build);
	stack(&build, 1, 0, 1);
	stack(&build, 2, 1, 2);
	stack(&build, 3, 2, 3);
	samples(&build, 5, 3);
	samples(&build, 2, 1);
	build_next_epoch(&build);
	build_text(&build, 7, "/lib/x.so");
	BUILD(&build, PROF_TABLE_IMAGE, N(3), N(7), PROF_BYTES(NULL, 0), N(10), N(1), N(5),
	      N(PROF_IMAGE_FILE), N(5), N(0));
	BUILD(&build, PROF_TABLE_FRAME, N(1), N(3), N(0x3ff), N(PROF_FRAME_EXACT));
	stack(&build, 1, 0, 1);
	BUILD(&build, PROF_TABLE_SAMPLE, N(BUILD_START + 50), N(0), N(0), N(0), N(1), N(1), N(0),
	      N(0), N(0), N(0));
	build_finish(&build);
	REQUIRE(run(&answer, &build));
	CHECK_INT(answer.profile.all.samples, 8);
	CHECK_COUNT(answer.profile.counts, "a", 2, 7);
	CHECK_COUNT(answer.profile.counts, "b", 0, 5);
	CHECK_COUNT(answer.profile.counts, "c", 6, 6);
	CHECK_INT(answer.profile.unresolved, 0);
	CHECK_INT(answer.profile.unwind[UNWIND_COMPLETE], 7);
	CHECK_INT(answer.profile.unwind[UNWIND_NONE], 1);
	done(&answer);
	build_done(&build);
}

/* a → b → a → b */
static void recursive(struct build *build)
{
	begin(build);
	stack(build, 1, 0, 1);
	stack(build, 2, 1, 2);
	stack(build, 3, 2, 1);
	stack(build, 4, 3, 2);
	samples(build, 3, 4);
	samples(build, 1, 3);
	build_finish(build);
}

static void test_recursion(void)
{
	struct build build;
	struct answer answer = { .profile.wants_tree = true };

	recursive(&build);
	REQUIRE(run(&answer, &build));
	CHECK_COUNT(answer.profile.counts, "a", 1, 4);
	CHECK_COUNT(answer.profile.counts, "b", 3, 4);
	/* three nodes that always exist, and one for each frame */
	CHECK_INT(answer.profile.tree.nodes->len, 3 + 4);
	done(&answer);
	build_done(&build);
}

/*
 * An interpreter, image 1, runs the program's functions f and g: main a → interpreter b → f →
 * interpreter b → libx h → interpreter b → g → interpreter c. Samples end in the innermost frame,
 * in the interpreter below f, in h, and in an interpreter that runs nothing.
 */
static void interpreted(struct build *build)
{
	begin(build);
	build_text(build, 20, "[python 3.11]");
	build_text(build, 21, "m.f");
	build_text(build, 22, "m.g");
	build_text(build, 23, "/src/m.py");
	build_text(build, 24, "/lib/libx.so");
	build_text(build, 25, "h");
	BUILD(build, PROF_TABLE_IMAGE, N(2), N(20), PROF_BYTES(NULL, 0), N(10), N(1), N(5),
	      N(PROF_IMAGE_INTERPRETER), N(5), N(0));
	BUILD(build, PROF_TABLE_IMAGE, N(3), N(24), PROF_BYTES(NULL, 0), N(10), N(1), N(6),
	      N(PROF_IMAGE_FILE), N(5), N(0));
	BUILD(build, PROF_TABLE_SYMBOL, N(11), N(2), N(0), N(10), N(21), N(21), N(23), N(7), N(0));
	BUILD(build, PROF_TABLE_SYMBOL, N(12), N(2), N(10), N(10), N(22), N(22), N(23), N(40),
	      N(0));
	BUILD(build, PROF_TABLE_SYMBOL, N(13), N(3), N(0), N(10), N(25), N(25), N(0), N(0), N(0));
	BUILD(build, PROF_TABLE_LINE, N(1), N(2), N(13), N(1), N(23), N(43), N(12));
	BUILD(build, PROF_TABLE_FRAME, N(11), N(2), N(2), N(PROF_FRAME_EXACT));
	BUILD(build, PROF_TABLE_FRAME, N(12), N(2), N(13), N(PROF_FRAME_EXACT));
	BUILD(build, PROF_TABLE_FRAME, N(13), N(3), N(1), N(PROF_FRAME_RETURN));
	stack(build, 1, 0, 1);
	stack(build, 2, 1, 2);
	stack(build, 3, 2, 11);
	stack(build, 4, 3, 2);
	stack(build, 5, 4, 13);
	stack(build, 6, 5, 2);
	stack(build, 7, 6, 12);
	stack(build, 8, 7, 3);
	samples(build, 4, 8);
	samples(build, 3, 4);
	samples(build, 2, 5);
	samples(build, 1, 2);
	build_finish(build);
}

static void test_interpreter(void)
{
	struct build build;
	struct answer answer = { .profile.wants_tree = true };
	const struct function *f = NULL;

	interpreted(&build);
	REQUIRE(run(&answer, &build));
	CHECK_INT(answer.profile.all.samples, 10);
	CHECK_INT(sum_of_self(answer.profile.counts), 10);
	CHECK_COUNT(answer.profile.counts, "m.g", 4, 4);
	CHECK_COUNT(answer.profile.counts, "m.f", 3, 9);
	CHECK_COUNT(answer.profile.counts, "h", 2, 6);
	CHECK_COUNT(answer.profile.counts, "c", 0, 0);
	/* A stack without a function of the program keeps its frames. */
	CHECK_COUNT(answer.profile.counts, "b", 1, 1);
	CHECK_COUNT(answer.profile.counts, "a", 0, 1);
	/* a, b; and f, h, g */
	CHECK_INT(answer.profile.tree.nodes->len, 3 + 5);
	for (guint i = 0; i < answer.profile.functions->all->len; i++)
		if (strcmp(functions_at(answer.profile.functions, i)->name, "m.g") == 0)
			f = functions_at(answer.profile.functions, i);
	REQUIRE(f);
	CHECK_STR(f->kind, "python");
	CHECK_STR(f->file, "/src/m.py");
	CHECK_INT(f->line, 40);
	CHECK_INT(profile_interpreted(&answer.profile), 0);
	done(&answer);

	answer = (struct answer){ .reader.interpreter_frames = true };
	REQUIRE(run(&answer, &build));
	CHECK_INT(sum_of_self(answer.profile.counts), 10);
	CHECK_COUNT(answer.profile.counts, "m.g", 0, 4);
	CHECK_COUNT(answer.profile.counts, "m.f", 0, 9);
	CHECK_COUNT(answer.profile.counts, "b", 4, 10);
	CHECK_COUNT(answer.profile.counts, "c", 4, 4);
	done(&answer);
	build_done(&build);
}

/* Functions of interpreted languages, of interpreters and of their modules. */
static const struct origin_case {
	const char *image, *file;
	enum code_origin origin;
} origin_cases[] = {
	{ "[python 3.11]", "/srv/shop/json.py", CODE_ORIGIN_OWN },
	{ "[python 3.11]", "<string>", CODE_ORIGIN_OWN },
	{ "[python 3.11]", "/srv/lib/python/own.py", CODE_ORIGIN_OWN },
	{ "[python 3.11]", "/usr/lib/python3.11/json/__init__.py", CODE_ORIGIN_LIBRARY },
	{ "[python 3.11]", "<frozen importlib._bootstrap>", CODE_ORIGIN_LIBRARY },
	{ "[python 3.11]", "/srv/venv/lib64/python3.11/site-packages/a/b.py", CODE_ORIGIN_LIBRARY },
	{ "[python 3.11]", "/usr/lib/python3/dist-packages/a.py", CODE_ORIGIN_LIBRARY },
	{ "[ruby 3.1]", "/srv/shop/gems/own/lib/own.rb", CODE_ORIGIN_OWN },
	{ "[ruby 3.1]", "/usr/lib/ruby/3.1.0/set.rb", CODE_ORIGIN_LIBRARY },
	{ "[ruby 3.1]", "/usr/lib/ruby/vendor_ruby/rubygems.rb", CODE_ORIGIN_LIBRARY },
	{ "[ruby 3.1]", "/var/lib/gems/3.1.0/gems/rack-3.0/lib/rack.rb", CODE_ORIGIN_LIBRARY },
	{ "[ruby 3.1]", "<internal:kernel>", CODE_ORIGIN_LIBRARY },
	{ "[ruby 3.1]", "ruby", CODE_ORIGIN_LIBRARY },
	{ "[php 8.2]", "/srv/shop/src/vendors.php", CODE_ORIGIN_OWN },
	{ "[php 8.2]", "/srv/shop/vendor/a/b/c.php", CODE_ORIGIN_LIBRARY },
	{ "[php 8.2]", NULL, CODE_ORIGIN_LIBRARY },
	{ "[perl 5.36]", "shop.pl", CODE_ORIGIN_OWN },
	{ "[perl 5.36]", "/usr/share/perl/5.36/Carp.pm", CODE_ORIGIN_LIBRARY },
	{ "[javascript 11.3]", "/srv/shop/internal/main.js", CODE_ORIGIN_OWN },
	{ "[javascript 11.3]", "node:internal/util", CODE_ORIGIN_LIBRARY },
	{ "[javascript 11.3]", "/srv/shop/node_modules/a/index.js", CODE_ORIGIN_LIBRARY },
	{ "[javascript 11.3]", NULL, CODE_ORIGIN_LIBRARY },
	{ "/usr/bin/python3.11", NULL, CODE_ORIGIN_LIBRARY },
	{ "/usr/bin/node", NULL, CODE_ORIGIN_LIBRARY },
	{ "/usr/lib/libruby-3.1.so.3.1.2", NULL, CODE_ORIGIN_LIBRARY },
	{ "/usr/lib/python3.11/lib-dynload/_json.cpython-311.so", NULL, CODE_ORIGIN_LIBRARY },
	{ "/srv/shop/_fast.cpython-311.so", NULL, CODE_ORIGIN_OWN },
	{ "/usr/bin/node_exporter", NULL, CODE_ORIGIN_OWN },
	{ "/usr/bin/shop", NULL, CODE_ORIGIN_OWN },
	/* libraries of the system; a library in /usr/local; and a program outside of the system,
	 * with its library */
	{ "/usr/lib/x86_64-linux-gnu/libcrypto.so.3", NULL, CODE_ORIGIN_LIBRARY },
	{ "/lib64/libz.so.1.3", NULL, CODE_ORIGIN_LIBRARY },
	{ "/usr/local/lib/libown.so", NULL, CODE_ORIGIN_OWN },
	{ "/srv/shop/lib/libshop.so", NULL, CODE_ORIGIN_OWN },
	{ "/srv/shop/bin/shop", NULL, CODE_ORIGIN_OWN },
};
#define N_ORIGINS ARRAY_SIZE(origin_cases)

/* Each case is a function named by its number, with one sample. */
static void write_origins(struct build *build, unsigned first, unsigned end)
{
	build_begin(build);
	build_text(build, 8, "comm");
	BUILD(build, PROF_TABLE_PROCESS, N(1), N(100), N(1), N(5));
	for (unsigned i = 1; i <= 2; i++)
		BUILD(build, PROF_TABLE_THREAD, N(i), N(1), N(100 + i), N(5), N(8));
	for (unsigned i = first; i < end; i++) {
		const struct origin_case *at = &origin_cases[i];
		unsigned id = 100 + i;
		char name[16];

		snprintf(name, sizeof(name), "%u", i);
		build_text(build, id, name);
		build_text(build, id + 100, at->image);
		if (at->file)
			build_text(build, id + 200, at->file);
		BUILD(build, PROF_TABLE_IMAGE, N(id), N(id + 100), PROF_BYTES(NULL, 0), N(10), N(1),
		      N(id), N(*at->image == '[' ? PROF_IMAGE_INTERPRETER : PROF_IMAGE_FILE));
		BUILD(build, PROF_TABLE_SYMBOL, N(id), N(id), N(0), N(10), N(id), N(id),
		      N(at->file ? id + 200 : 0));
		BUILD(build, PROF_TABLE_FRAME, N(id), N(id), N(1), N(PROF_FRAME_EXACT));
		stack(build, id, 0, id);
		samples(build, 1, id);
	}
	build_finish(build);
}

static void check_origins(unsigned first, unsigned end, enum code_origin native)
{
	struct build build;
	struct own_weights own = { 0 };
	struct answer answer = { .profile.own = &own };
	g_autoptr(GArray) counted = NULL;
	unsigned n = 0, n_counted = 0;

	write_origins(&build, first, end);
	REQUIRE(run(&answer, &build));
	for (uint32_t i = FUNCTION_LOST + 1; i < answer.profile.functions->all->len; i++) {
		const char *name = functions_at(answer.profile.functions, i)->name;
		const struct origin_case *at = &origin_cases[atoi(name)];
		enum code_origin origin = code_origin_of(answer.profile.functions, i);

		/* Code that is not in a file on disk has a place, too. */
		if (g_strcmp0(at->file, "<string>") == 0) {
			g_autofree char *place =
				functions_place(answer.profile.functions, i, false);

			CHECK_STR(place ? place : "none", "<string>");
		}
		n++;
		if (!CHECK_INT(origin, native == CODE_ORIGIN_OWN ? native : at->origin))
			printf("# %s, %s\n", at->image, at->file ? at->file : "no file");
		n_counted += origin == CODE_ORIGIN_OWN || *at->image == '[';
	}
	CHECK_INT(n, end - first);
	/* If a stack has no own function, its samples count for an interpreted function. */
	counted = own_weights_rows(&own);
	CHECK_INT(counted->len, n_counted);
	own_weights_done(&own);
	done(&answer);
	build_done(&build);
}

static void test_origins(void)
{
	unsigned native = 0;

	check_origins(0, N_ORIGINS - 1, CODE_ORIGIN_LIBRARY);
	/* Without interpreted functions, an interpreter is treated like any other program. */
	while (*origin_cases[native].image == '[')
		native++;
	check_origins(native, N_ORIGINS - 1, CODE_ORIGIN_OWN);
	/* Libraries of the system count as own code only in programs of the system. */
	check_origins(N_ORIGINS - 5, N_ORIGINS, CODE_ORIGIN_LIBRARY);
}

/* Two functions run one after the other. Samples without a stack also count. */
static void test_timeline(void)
{
	struct build build;
	struct answer answer = { .profile.wants_timeline = true };
	uint64_t sums[3] = { 0 };

	begin(&build);
	stack(&build, 1, 0, 1);
	stack(&build, 2, 1, 2);
	samples(&build, 60, 1);
	samples(&build, 60, 2);
	samples(&build, 24, 0);
	build_finish(&build);
	REQUIRE(run(&answer, &build));
	for (guint i = 0; i < answer.profile.timelines->len; i++) {
		const struct profile_timeline *line =
			&g_array_index(answer.profile.timelines, struct profile_timeline, i);
		const char *name = functions_at(answer.profile.functions, i)->name;
		bool is_a = strcmp(name, "a") == 0, is_b = strcmp(name, "b") == 0;

		for (unsigned bin = 0; bin < PROFILE_BINS; bin++) {
			sums[is_a ? 0 : is_b ? 1 : 2] += line->self[bin].samples;
			CHECK(!is_a || line->self[bin].samples == (bin < 10 ? 6u : 0u));
			CHECK(!is_b ||
			      line->self[bin].samples == (bin >= 10 && bin < 20 ? 6u : 0u));
		}
	}
	CHECK_INT(sums[0], 60);
	CHECK_INT(sums[1], 60);
	CHECK_INT(sums[2], 24);
	done(&answer);
	build_done(&build);
}

static void test_callers(void)
{
	struct build build;
	struct answer answer = { .profile.focus = "b" };

	recursive(&build);
	REQUIRE(run(&answer, &build));
	CHECK(answer.profile.focus_found);
	CHECK_INT(answer.profile.focus_entity.count.self.samples, 3);
	CHECK_INT(answer.profile.focus_entity.count.total.samples, 4);
	CHECK_COUNT(answer.profile.callers, "a", 3, 4);
	CHECK_COUNT(answer.profile.callees, "a", 1, 4);
	CHECK_COUNT(answer.profile.callees, "b", 0, 0);
	done(&answer);
	build_done(&build);
}

static void test_return(void)
{
	struct build build;
	struct answer answer = { 0 };

	begin(&build);
	/* After the last instruction of a: the return address of a call that does not return. */
	BUILD(&build, PROF_TABLE_FRAME, N(10), N(1), N(0x200), N(PROF_FRAME_RETURN));
	BUILD(&build, PROF_TABLE_FRAME, N(11), N(1), N(0), N(PROF_FRAME_RETURN));
	stack(&build, 1, 0, 10);
	stack(&build, 2, 0, 11);
	samples(&build, 1, 1);
	samples(&build, 1, 2);
	build_finish(&build);
	REQUIRE(run(&answer, &build));
	CHECK_COUNT(answer.profile.counts, "a", 1, 1);
	CHECK_COUNT(answer.profile.counts, "x.so+0x0", 1, 1);
	CHECK_INT(answer.profile.unresolved, 1);
	done(&answer);
	build_done(&build);
}

/* The symbols a and a.isra.0.cold are one function, which counts a stack with both once. Two
 * symbols named b remain two functions. */
static void test_clones(void)
{
	static const char *const names[] = { "a.isra.0.cold", "b" };
	struct build build;
	struct answer answer = { 0 };
	unsigned b = 0;

	begin(&build);
	for (unsigned i = 0; i < 2; i++) {
		build_text(&build, 20 + i, names[i]);
		BUILD(&build, PROF_TABLE_SYMBOL, N(10 + i), N(1), N(0x400 + 0x100 * i), N(0x100),
		      N(20 + i), N(20 + i), N(0), N(0), N(0));
		BUILD(&build, PROF_TABLE_FRAME, N(10 + i), N(1), N(0x400 + 0x100 * i),
		      N(PROF_FRAME_EXACT));
	}
	stack(&build, 1, 0, 10);
	stack(&build, 2, 1, 1);
	stack(&build, 3, 0, 11);
	stack(&build, 4, 0, 2);
	for (unsigned i = 1; i <= 4; i++)
		samples(&build, 1, i);
	build_finish(&build);
	REQUIRE(run(&answer, &build));
	CHECK_COUNT(answer.profile.counts, "a", 2, 2);
	for (guint i = 0; i < answer.profile.counts->len; i++) {
		const struct function *function = functions_at(answer.profile.functions, i);

		b += strcmp(function->name, "b") == 0;
		if (strcmp(function->name, "a") == 0)
			CHECK_STR(function->raw_name, "a");
	}
	CHECK_INT(b, 2);
	done(&answer);
	build_done(&build);
}

/* Checks the label of the function with this name, among some shown functions. */
static void check_label(const struct answer *answer, const struct function_labels *labels,
			const char *raw_name, const char *name, const char *place)
{
	for (guint i = 0; i < answer->profile.functions->all->len; i++) {
		g_autofree char *found = NULL, *at = NULL;

		if (strcmp(functions_at(answer->profile.functions, i)->raw_name, raw_name) != 0)
			continue;
		found = function_labels_name(labels, i);
		at = function_labels_place(labels, i);
		CHECK_STR(found, name);
		CHECK_STR(at, place);
		return;
	}
	CHECK(!"found");
}

/* Parameters and directories are shown only if shown functions would have equal labels without
 * them. */
static void test_labels(void)
{
	static const char *const names[][2] = {
		{ "f(int)", "_Z1fi" }, { "f(long)", "_Z1fl" }, { "g(int)", "_Z1gi" },
		{ "h", "h" },          { "k", "k" },           { "k", "k" },
	};
	struct build build;
	struct answer answer = { 0 };

	begin(&build);
	build_text(&build, 40, "/opt/x.so");
	build_text(&build, 41, "/src/g.cpp");
	BUILD(&build, PROF_TABLE_IMAGE, N(2), N(40), PROF_BYTES(NULL, 0), N(10), N(1), N(6),
	      N(PROF_IMAGE_FILE), N(5), N(0));
	for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
		build_text(&build, 20 + i, names[i][0]);
		build_text(&build, 30 + i, names[i][1]);
		BUILD(&build, PROF_TABLE_SYMBOL, N(10 + i), N(i == 3 || i == 5 ? 2 : 1),
		      N(0x400 + 0x100 * i), N(0x100), N(20 + i), N(30 + i), N(i == 2 ? 41 : 0),
		      N(i == 2 ? 7 : 0), N(0));
		BUILD(&build, PROF_TABLE_FRAME, N(10 + i), N(i == 3 || i == 5 ? 2 : 1),
		      N(0x400 + 0x100 * i), N(PROF_FRAME_EXACT));
		stack(&build, 1 + i, 0, 10 + i);
		samples(&build, 1, 1 + i);
	}
	build_finish(&build);
	REQUIRE(run(&answer, &build));
	for (unsigned all = 0; all < 2; all++) {
		struct function_labels *labels =
			function_labels_new(answer.profile.functions, false);

		for (guint i = 0; i < answer.profile.functions->all->len; i++)
			if (all || strcmp(functions_at(answer.profile.functions, i)->raw_name,
					  "_Z1fi") == 0)
				function_labels_add(labels, i);
		check_label(&answer, labels, "_Z1fi", all ? "f(int)" : "f",
			    all ? "lib/x.so" : "x.so");
		if (all) {
			check_label(&answer, labels, "_Z1fl", "f(long)", "lib/x.so");
			check_label(&answer, labels, "_Z1gi", "g", "g.cpp:7");
			check_label(&answer, labels, "h", "h", "opt/x.so");
		}
		for (guint i = 0; i < answer.profile.functions->all->len; i++)
			CHECK_INT(function_labels_is_shared(labels, i),
				  all && strcmp(functions_at(answer.profile.functions, i)->name,
						"k") == 0);
		function_labels_free(labels);
	}
	done(&answer);
	build_done(&build);
}

static void test_sums(void)
{
	static const enum profile_by all[] = { PROFILE_FUNCTION, PROFILE_IMAGE, PROFILE_THREAD,
					       PROFILE_PROCESS, PROFILE_CGROUP };
	struct build build;

	begin(&build);
	BUILD(&build, PROF_TABLE_FRAME, N(20), N(999), N(0), N(0)); /* its image is lost */
	stack(&build, 1, 0, 1);
	stack(&build, 2, 1, 777); /* its frame is lost */
	stack(&build, 3, 0, 20);
	samples(&build, 4, 1);
	samples(&build, 4, 2);
	samples(&build, 4, 3);
	samples(&build, 4, 888); /* its stack is lost */
	samples(&build, 4, 0);
	build_finish(&build);
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		struct answer answer = { .profile.by = all[i], .profile.wants_tree = i == 0 };

		REQUIRE(run(&answer, &build));
		CHECK_INT(answer.profile.all.samples, 20);
		CHECK_INT(sum_of_self(answer.profile.counts), 20);
		if (i == 0) {
			CHECK_COUNT(answer.profile.counts, NAMES_LOST_TEXT, 12, 12);
			CHECK_COUNT(answer.profile.counts, "<no stack>", 4, 4);
			CHECK_COUNT(answer.profile.counts, "a", 4, 8);
			CHECK_INT(answer.profile.unresolved, 16);
		}
		done(&answer);
	}
	build_done(&build);
}

static void test_cyclic_stacks(void)
{
	struct build build;
	struct answer answer = { .profile.wants_tree = true };

	begin(&build);
	stack(&build, 1, 1, 1); /* its own parent */
	stack(&build, 2, 3, 2);
	stack(&build, 3, 2, 3); /* each other's parents */
	stack(&build, 9, 2, 1);
	stack(&build, 5, 0, 1);
	stack(&build, 5, 9, 2); /* twice: the last one is used; its parent has a higher id */
	samples(&build, 2, 1);
	samples(&build, 2, 2);
	samples(&build, 2, 3);
	samples(&build, 2, 9);
	samples(&build, 2, 5);
	build_finish(&build);
	REQUIRE(run(&answer, &build));
	CHECK_INT(answer.profile.all.samples, 10);
	CHECK_INT(sum_of_self(answer.profile.counts), 10);
	CHECK(answer.profile.bad_stacks >= 3);
	CHECK_COUNT(answer.profile.counts, "a", 4, 4);
	CHECK_COUNT(answer.profile.counts, "b", 4, 8);
	CHECK_COUNT(answer.profile.counts, "c", 2, 2);
	done(&answer);
	build_done(&build);
}

/* Returns how many nodes of the whole tree that have at least `min` samples are also in the pruned
 * tree. Checks that their counts are equal. */
static guint count_alike(struct answer *whole, struct answer *pruned, uint64_t min)
{
	g_autofree uint32_t *twin = g_new0(uint32_t, whole->profile.tree.nodes->len);
	guint alike = 0;

	for (guint i = 0; i < whole->profile.tree.nodes->len; i++) {
		const struct profile_node *want =
			&g_array_index(whole->profile.tree.nodes, struct profile_node, i);

		if (want->count.total.samples < min)
			continue;
		for (guint k = 1; k < pruned->profile.tree.nodes->len; k++) {
			const struct profile_node *got =
				&g_array_index(pruned->profile.tree.nodes, struct profile_node, k);

			if (got->entity != want->entity || got->parent != twin[want->parent])
				continue;
			CHECK_INT(got->count.self.samples, want->count.self.samples);
			CHECK_INT(got->count.total.samples, want->count.total.samples);
			twin[i] = k;
			alike++;
		}
	}
	return alike;
}

/* Writes one epoch with a → b → c and another root, with the given numbers of samples in c, in b
 * and in that root. */
static void epoch_of(struct build *build, unsigned c, unsigned b, unsigned root, uint64_t frame)
{
	stack(build, 1, 0, 1);
	stack(build, 2, 1, 2);
	stack(build, 3, 2, 3);
	stack(build, 4, 0, frame);
	samples(build, c, 3);
	samples(build, b, 2);
	samples(build, root, 4);
}

/* c below b has more than a tenth of all samples, because of the first epoch. As roots, b and c
 * have less than a tenth of the samples of each epoch. */
static void test_pruned(void)
{
	struct build build;
	struct answer whole = { .profile.wants_tree = true };
	struct answer pruned = { .profile = { .wants_tree = true, .tree.min_share = 0.1 } };

	begin(&build);
	epoch_of(&build, 30, 70, 5, 2);
	build_next_epoch(&build);
	begin_epoch(&build);
	epoch_of(&build, 2, 95, 9, 3);
	build_finish(&build);
	REQUIRE(run(&whole, &build) && run(&pruned, &build));
	CHECK_INT(pruned.profile.all.samples, whole.profile.all.samples);
	CHECK_INT(whole.profile.all.samples, 30 + 70 + 5 + 2 + 95 + 9);
	CHECK(!whole.profile.tree.cut && pruned.profile.tree.cut);
	CHECK_INT(whole.profile.tree.nodes->len, 3 + 5);
	CHECK_INT(pruned.profile.tree.nodes->len, 3 + 3);
	CHECK_INT(count_alike(&whole, &pruned, 32), 3);
	CHECK_INT(sum_of_self(pruned.profile.counts), pruned.profile.all.samples);
	done(&whole);
	done(&pruned);
	build_done(&build);
}

static void test_deep_stacks(void)
{
	struct build build;
	struct answer answer = { .profile.wants_tree = true };
	const unsigned depth = 3 * STACKS_MAX_DEPTH;

	begin(&build);
	for (unsigned i = 1; i <= depth; i++)
		stack(&build, i, i - 1, i == 1 ? 2 : 1);
	samples(&build, 1, depth);
	build_finish(&build);
	REQUIRE(run(&answer, &build));
	CHECK_INT(sum_of_self(answer.profile.counts), 1);
	CHECK_COUNT(answer.profile.counts, "a", 1, 1);
	CHECK_INT(answer.profile.bad_stacks, 2);
	/* The stack is too deep, so its root is cut off. */
	CHECK_COUNT(answer.profile.counts, "b", 0, 0);
	done(&answer);
	build_done(&build);
}

static void test_unknown_values(void)
{
	struct build build;
	struct answer answer = { 0 };

	begin(&build);
	stack(&build, 1, 0, 1);
	BUILD(&build, PROF_TABLE_SAMPLE, N(BUILD_START), N(1), N(0), N(77), N(1), N(1), N(99),
	      N(77), N(PROF_STOP_ROOT), N(0));
	BUILD(&build, PROF_TABLE_SAMPLE, N(BUILD_START), N(1), N(0), N(0), N(1), N(1), N(99),
	      N(PROF_METHOD_CFI), N(UINT64_MAX), N(0));
	build_finish(&build);
	REQUIRE(run(&answer, &build));
	CHECK_INT(answer.profile.unwind[UNWIND_GUESSED], 2);
	CHECK_INT(answer.profile.all.samples, 2);
	done(&answer);
	build_done(&build);
}

static void filtered(struct build *build, struct answer *answer, uint64_t want)
{
	REQUIRE(run(answer, build));
	CHECK_INT(answer->profile.all.samples, want);
	CHECK_INT(sum_of_self(answer->profile.counts), want);
	done(answer);
}

static void test_filters(void)
{
	struct build build;
	struct answer from = { .reader.range.from = { UNITS_TIME_START, 6, NULL } };
	struct answer to = { .reader.range.to = { UNITS_TIME_START, 5, NULL } };
	struct answer end = { .reader.range.from = { UNITS_TIME_END, 1, NULL } };
	struct answer tid = { 0 }, comm = { 0 };
	uint32_t wanted = 102;

	begin(&build);
	stack(&build, 1, 0, 1);
	samples(&build, 10, 1);
	build_finish(&build);
	filtered(&build, &from, 4);
	filtered(&build, &to, 6);
	filtered(&build, &end, 2);
	tid.reader.tids = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	g_array_append_val(tid.reader.tids, wanted);
	filtered(&build, &tid, 5);
	comm.reader.comms = g_ptr_array_new();
	g_ptr_array_add(comm.reader.comms, (char *)"nobody");
	filtered(&build, &comm, 0);
	build_done(&build);
}

static void test_run_times(void)
{
	struct build build;
	struct answer answer = { .profile.by = PROFILE_THREAD };
	const struct run_time *time;
	GArray *times;
	uint64_t t = BUILD_START;

	begin(&build);
	/* runs 10, waits 5, runs 20, is preempted 7, runs 1 until the end */
	BUILD(&build, PROF_TABLE_SWITCH, N(t + 10), N(1), N(0), N(t), N(PROF_SWITCH_WAIT));
	BUILD(&build, PROF_TABLE_SWITCH, N(t + 35), N(1), N(0), N(t + 15),
	      N(PROF_SWITCH_PREEMPTED));
	BUILD(&build, PROF_TABLE_SWITCH, N(t + 43), N(1), N(1), N(t + 42), N(PROF_SWITCH_RUNNING));
	build_finish(&build);
	REQUIRE(run(&answer, &build));
	times = run_times_read(&answer.reader, NULL);
	REQUIRE(times != NULL && times->len == 3);
	time = &g_array_index(times, struct run_time, 2);
	CHECK_INT(time->run_ns, 31);
	CHECK_INT(time->wait_ns, 5);
	CHECK_INT(time->preempted_ns, 7);
	CHECK_INT(time->runnable_ns, 0);
	g_array_unref(times);
	done(&answer);

	answer = (struct answer){ .reader.range = { { UNITS_TIME_START, 5, NULL },
						    { UNITS_TIME_START, 12, NULL } } };
	REQUIRE(run(&answer, &build));
	times = run_times_read(&answer.reader, NULL);
	time = &g_array_index(times, struct run_time, 2);
	CHECK_INT(time->run_ns, 5);
	CHECK_INT(time->wait_ns, 2);
	CHECK_INT(time->preempted_ns, 0);
	g_array_unref(times);
	done(&answer);
	build_done(&build);
}

static void check_samples(struct build *build, const char *comm, unsigned n)
{
	struct answer answer = { .profile.by = PROFILE_THREAD };

	answer.reader.comms = g_ptr_array_new_with_free_func(g_free);
	g_ptr_array_add(answer.reader.comms, g_strdup(comm));
	REQUIRE(run(&answer, build));
	CHECK_INT(answer.profile.all.samples, n);
	done(&answer);
}

/* Thread 1 is renamed to "first", to "second", and to "first" again. Thread 2 is never renamed. */
static void test_thread_names(void)
{
	static const unsigned texts[] = { 20, 21, 20 };
	struct build build;
	struct answer answer = { 0 };
	const struct thread_names *names;
	uint64_t t = BUILD_START;

	begin(&build);
	build_text(&build, 20, "first");
	build_text(&build, 21, "second");
	BUILD(&build, PROF_TABLE_TASK, N(t + 5), N(1), N(PROF_TASK_FORK), N(8), PROF_NULL, N(0));
	BUILD(&build, PROF_TABLE_TASK, N(t + 5), N(2), N(PROF_TASK_EXISTS), N(8), PROF_NULL, N(0));
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		BUILD(&build, PROF_TABLE_TASK, N(t + 10 * (i + 1)), N(1), N(PROF_TASK_COMM_CHANGE),
		      N(texts[i]), PROF_NULL, N(0));
	stack(&build, 1, 0, 1);
	samples(&build, 80, 1); /* the threads alternate */
	build_finish(&build);
	REQUIRE(run(&answer, &build));
	REQUIRE(reader_load_names(&answer.reader, NULL));
	names = answer.reader.thread_names;
	/* thread 1 has index 2 in names */
	CHECK_STR(thread_names_at(names, 2, 0), "comm");
	CHECK_STR(thread_names_at(names, 2, 9), "comm");
	CHECK_STR(thread_names_at(names, 2, 10), "first");
	CHECK_STR(thread_names_at(names, 2, 29), "second");
	CHECK_STR(thread_names_at(names, 2, 1000), "first");
	CHECK_INT(thread_names_until(names, 2, 9), 10);
	CHECK_INT(thread_names_until(names, 2, 10), 20);
	CHECK(thread_names_until(names, 2, 30) == INT64_MAX);
	CHECK(thread_names_until(names, 3, 30) == INT64_MAX);
	CHECK_INT(thread_names_count(names, 2), 2);
	CHECK_INT(thread_names_count(names, 3), 1);
	CHECK_STR(thread_names_at(names, 3, 50), "comm");
	CHECK(!thread_names_at(names, NAMES_NONE, 50));
	done(&answer);
	/* thread 1 has "comm" from 0 to 8, "first" from 10 to 18 and from 30 to 78, "second" from
	 * 20 to 28 */
	check_samples(&build, "comm", 5 + 40);
	check_samples(&build, "first", 5 + 25);
	check_samples(&build, "second", 5);
	check_samples(&build, "third", 0);
	build_done(&build);
}

/* A row of length 0 gives a thread's state where it has no other row. */
static void test_run_times_of_ends(void)
{
	for (int has_wakeups = 0; has_wakeups < 2; has_wakeups++) {
		struct build build;
		struct answer answer = { .profile.by = PROFILE_THREAD };
		const struct run_time *time;
		GArray *times;
		uint64_t t = BUILD_START;
		const uint64_t none = PROF_SWITCH_NO_CPU;

		begin(&build);
		if (has_wakeups)
			build_metadata(&build, "wakeups", "yes");
		/* waits 10, is runnable for 3 after its wake-up, runs 7, is preempted 20 */
		BUILD(&build, PROF_TABLE_SWITCH, N(t), N(1), N(none), N(t), N(PROF_SWITCH_WAIT));
		BUILD(&build, PROF_TABLE_SWITCH, N(t + 10), N(1), N(none), N(t + 10),
		      N(PROF_SWITCH_RUNNABLE));
		BUILD(&build, PROF_TABLE_SWITCH, N(t + 20), N(1), N(0), N(t + 13),
		      N(PROF_SWITCH_PREEMPTED));
		BUILD(&build, PROF_TABLE_SWITCH, N(t + 40), N(1), N(none), N(t + 40),
		      N(PROF_SWITCH_PREEMPTED));
		build_finish(&build);
		REQUIRE(run(&answer, &build));
		times = run_times_read(&answer.reader, NULL);
		REQUIRE(times != NULL && times->len == 3);
		time = &g_array_index(times, struct run_time, 2);
		CHECK_INT(time->run_ns, 7);
		CHECK_INT(time->wait_ns, 10);
		CHECK_INT(time->preempted_ns, has_wakeups ? 20 : 23);
		CHECK_INT(time->runnable_ns, has_wakeups ? 3 : 0);
		g_array_unref(times);
		done(&answer);
		build_done(&build);
	}
}

/* The second segment is from another boot with a new monotonic clock. Its wall clock is a second
 * earlier. */
static void test_boots(void)
{
	struct build build;
	struct answer all = { 0 }, late = { .reader.range.from = { UNITS_TIME_START, 1, NULL } };

	begin(&build);
	stack(&build, 1, 0, 1);
	samples(&build, 1, 1);
	build_next_segment(&build, 500, 2);
	BUILD(&build, PROF_TABLE_SAMPLE, N(700), N(0), N(0), N(0), N(0), N(1), N(0), N(0), N(0),
	      N(0));
	build_finish(&build);
	REQUIRE(run(&all, &build));
	CHECK_INT(all.profile.all.samples, 2);
	CHECK_INT(all.reader.capture->n_segments, 2);
	CHECK_INT(capture_time(all.reader.capture, 1, BUILD_START + 3), 3);
	/* In build-capture.h, a segment's wall clock is a constant plus its start. */
	CHECK_INT(capture_time(all.reader.capture, 2, 700), 500 + 200 - BUILD_START);
	CHECK_INT(capture_clock(all.reader.capture, 1, 3), BUILD_START + 3);
	CHECK_INT(capture_clock(all.reader.capture, 1, -5000000000), 0);
	done(&all);
	REQUIRE(run(&late, &build));
	CHECK_INT(late.profile.all.samples, 0);
	done(&late);
	build_done(&build);
}

static void sample_of(struct build *build, uint64_t stack_id, uint64_t weight, uint64_t source)
{
	BUILD(build, PROF_TABLE_SAMPLE,
	      N(BUILD_START + prof_block_rows(build->blocks[PROF_TABLE_SAMPLE])), N(1), N(0),
	      N(PROF_MODE_USER), N(stack_id), N(weight), N(source), N(PROF_METHOD_CFI),
	      N(PROF_STOP_ROOT), N(9));
}

static void check_event(const struct build *build, const char *event, uint64_t samples_wanted,
			uint64_t a, uint64_t b)
{
	struct answer answer = { .reader.event = event, .profile.wants_tree = true };

	REQUIRE(run(&answer, build));
	CHECK_INT(answer.profile.all.samples, samples_wanted);
	CHECK_INT(count_in(&answer, answer.profile.counts, "a").self.weight, a);
	CHECK_INT(count_in(&answer, answer.profile.counts, "b").self.weight, b);
	CHECK_INT(answer.profile.all.weight, a + b);
	CHECK_INT(count_in(&answer, answer.profile.counts, "a").total.weight, a + b);
	done(&answer);
}

/* Ids of sources are valid in one epoch only. Clock samples without a weight get the period. One
 * source is missing. */
static void test_events(void)
{
	struct build build;
	struct answer none = { .reader.event = "cycles" };

	begin(&build);
	build_text(&build, 30, "cpu-clock");
	build_text(&build, 31, "page-faults");
	build_text(&build, 32, "ns");
	BUILD(&build, PROF_TABLE_SOURCE, N(1), N(30), N(PROF_SOURCE_SOFTWARE), N(32), N(1000),
	      N(0));
	BUILD(&build, PROF_TABLE_SOURCE, N(2), N(31), N(PROF_SOURCE_SOFTWARE), N(31), N(0), N(99));
	stack(&build, 1, 0, 1);
	stack(&build, 2, 1, 2);
	sample_of(&build, 1, 1000, 1);
	sample_of(&build, 2, 0, 1);
	sample_of(&build, 1, 7, 2);
	sample_of(&build, 2, 50, 2);
	sample_of(&build, 2, 60, 2);
	build_next_epoch(&build);
	begin_epoch(&build);
	build_text(&build, 30, "page-faults");
	BUILD(&build, PROF_TABLE_SOURCE, N(1), N(30), N(PROF_SOURCE_SOFTWARE), N(30), N(0), N(99));
	stack(&build, 1, 0, 1);
	sample_of(&build, 1, 11, 1);
	sample_of(&build, 1, 1000000, 2);
	build_finish(&build);
	check_event(&build, NULL, 2, 1000, 1000);
	check_event(&build, "cpu-clock", 2, 1000, 1000);
	check_event(&build, "page-faults", 4, 18, 110);
	check_event(&build, NAMES_LOST_TEXT, 1, 1, 0);
	CHECK(!run(&none, &build));
	done(&none);
	build_done(&build);
}

/*
 * a calls generated code, which calls b. The sampled line 20 is in a function that is inlined into
 * b at line 30. Names of generated code depend on the time. Functions that generated code calls
 * have lines and inlined calls, as in any other stack.
 */
static void with_generated_code(struct build *build)
{
	begin(build);
	build_text(build, 20, "[anon]");
	build_text(build, 21, "made");
	build_text(build, 22, "inlined");
	build_text(build, 23, "b.c");
	build_text(build, 24, "made.js");
	BUILD(build, PROF_TABLE_IMAGE, N(2), N(20), PROF_BYTES(NULL, 0), N(0), N(0), N(0),
	      N(PROF_IMAGE_ANON), N(0), N(1));
	BUILD(build, PROF_TABLE_SYMBOL, N(4), N(1), N(0x210), N(8), N(22), N(0), N(23), N(30),
	      N(2));
	BUILD(build, PROF_TABLE_FRAME, N(4), N(2), N(0x7008), N(PROF_FRAME_RETURN));
	BUILD(build, PROF_TABLE_FRAME, N(5), N(1), N(0x210), N(PROF_FRAME_EXACT));
	BUILD(build, PROF_TABLE_LINE, N(1), N(1), N(0x210), N(8), N(23), N(20), N(4));
	BUILD(build, PROF_TABLE_LINE, N(2), N(2), N(0x7007), N(1), N(24), N(7), N(0));
	BUILD(build, PROF_TABLE_JIT, N(BUILD_START), N(1), N(PROF_JIT_LOAD), N(0x7000), N(0x20),
	      N(21), PROF_NULL);
	stack(build, 1, 0, 1);
	stack(build, 2, 1, 4);
	stack(build, 3, 2, 5);
	samples(build, 6, 3);
	samples(build, 2, 2);
	build_finish(build);
}

/* Returns "FILE:LINE" of the line in the function with this name; "": there is no such line. */
static const char *line_in(const struct answer *answer, const char *name)
{
	static char text[64];

	text[0] = 0;
	for (guint i = 0; i < answer->profile.functions->all->len; i++) {
		const struct function *at = functions_at(answer->profile.functions, i);

		if (at->is_line && at->file && strcmp(at->name, name) == 0)
			snprintf(text, sizeof(text), "%s:%u", at->file, at->line);
	}
	return text;
}

static void test_below_generated_code(void)
{
	struct build build;
	struct answer answer = { .profile.by = PROFILE_LINE };

	with_generated_code(&build);
	REQUIRE(run(&answer, &build));
	CHECK_STR(line_in(&answer, "made"), "made.js:7");
	CHECK_STR(line_in(&answer, "inlined"), "b.c:20");
	CHECK_INT(sum_of_self(answer.profile.counts), 8);
	done(&answer);

	answer = (struct answer){ .profile.inlined = true };
	REQUIRE(run(&answer, &build));
	CHECK_COUNT(answer.profile.counts, "a", 0, 8);
	CHECK_COUNT(answer.profile.counts, "made", 2, 8);
	CHECK_COUNT(answer.profile.counts, "b", 0, 6);
	CHECK_COUNT(answer.profile.counts, "inlined", 6, 6);
	done(&answer);

	answer = (struct answer){ .profile = { .inlined = true, .places = true } };
	REQUIRE(run(&answer, &build));
	CHECK_STR(line_in(&answer, "made"), "made.js:7");
	CHECK_STR(line_in(&answer, "b"), "b.c:30");
	CHECK_STR(line_in(&answer, "inlined"), "b.c:20");
	done(&answer);
	build_done(&build);
}

int main(void)
{
	RUN(test_totals);
	RUN(test_events);
	RUN(test_recursion);
	RUN(test_interpreter);
	RUN(test_origins);
	RUN(test_timeline);
	RUN(test_callers);
	RUN(test_return);
	RUN(test_clones);
	RUN(test_labels);
	RUN(test_sums);
	RUN(test_cyclic_stacks);
	RUN(test_pruned);
	RUN(test_deep_stacks);
	RUN(test_unknown_values);
	RUN(test_below_generated_code);
	RUN(test_filters);
	RUN(test_run_times);
	RUN(test_run_times_of_ends);
	RUN(test_thread_names);
	RUN(test_boots);
	return test_end();
}
