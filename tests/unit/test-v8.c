/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Finding V8 in files, and the names of functions of JavaScript.
 */
#include "arch/base.h"
#include "base/v8-layouts.h"
#include "daemon/engine/interp/interp-merge.h"
#include "tests/unit/interp-files.h"
#include "tests/unit/test.h"

static void test_layouts(void)
{
	static const unsigned versions[] = { 102, 113, 124, 136 };

	for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
		const struct interp_v8 *layout = v8_layout(versions[i]);

		REQUIRE(layout);
		CHECK_INT(layout->version, versions[i]);
		/* within the bytes that the BPF program reads of a frame, a function and a
		 * script */
		CHECK_INT(layout->frame_function, layout->frame_type + 8);
		CHECK(layout->info_number + 4 <= 255);
		CHECK(layout->script_id + 8 <= 72);
	}
	CHECK(!v8_layout(V8_VERSION(12, 3)));
	CHECK(!v8_layout(0));
	CHECK_INT(interp_major(INTERP_V8, V8_VERSION(13, 6)), 13);
	CHECK_INT(interp_minor(INTERP_V8, V8_VERSION(13, 6)), 6);
}

static void check_v8_file(const struct interp_runtime *runtime)
{
	CHECK_INT(runtime->code_bias, 0x40000);
}

static void test_files(void)
{
	static const struct interp_file_case files[] = {
		{ "v8-program", INTERP_FOUND, 113, { 0, (uint64_t)(0xb0 - 0x100) } },
		{ "v8-library", INTERP_FOUND, 113, { 0x51090 } },
		{ "v8-module", INTERP_FOUND, 113, { 0, 0xb0, 0, 0x51090 } },
		{ "v8-10.2", INTERP_FOUND, 102, { 0, 0, 0x4111c } },
		{ "v8-12.4", INTERP_FOUND, 124, { 0, (uint64_t)(0xb0 - 0x100) } },
		{ "v8-13.6", INTERP_FOUND, 136, { 0, (uint64_t)-0xa0 } },
		{ "v8-10.2-musl", INTERP_OTHER_BUILD, 102, { 0 } },
		{ "v8-module-musl", INTERP_OTHER_BUILD, 113, { 0 } },
		{ "v8-13.6-other-code", INTERP_OTHER_BUILD, 136, { 0 } },
		{ "v8-13.6-positive", INTERP_OTHER_BUILD, 136, { 0 } },
		{ "v8-13.6-short-code", INTERP_OTHER_BUILD, 136, { 0 } },
		{ "v8-not-relocated", INTERP_OTHER_BUILD, 113, { 0 } },
		{ "v8-11.8", INTERP_OTHER_VERSION, 118, { 0 } },
		{ "v8-14.1", INTERP_OTHER_VERSION, 141, { 0 } },
		{ "v8-no-version", INTERP_OTHER_VERSION, 0, { 0 } },
		{ "v8-other-number", INTERP_OTHER_BUILD, 113, { 0 } },
		{ "v8-no-number", INTERP_OTHER_BUILD, 113, { 0 } },
		{ "v8-compressed", INTERP_OTHER_BUILD, 113, { 0 } },
		{ "v8-other-machine", INTERP_OTHER_BUILD, 113, { 0 } },
		{ "v8-no-isolate", INTERP_OTHER_BUILD, 113, { 0 } },
		{ "v8-no-block", INTERP_OTHER_BUILD, 113, { 0 } },
		{ "v8-odd-block", INTERP_OTHER_BUILD, 113, { 0 } },
	};

	check_interp_files(INTERP_V8, files, ARRAY_SIZE(files), check_v8_file);
}

static void check_v8_name(enum interp_v8_kind kind, const char *name, const char *file,
			  uint32_t line, const char *want, const char *want_file)
{
	check_interp_name((struct interp_code){ .family = INTERP_V8,
						.minor = 113,
						.kind = kind,
						.first_line = line,
						.name_width = 1,
						.file_width = 1 },
			  name, "", file, want, want_file);
}

static void test_names(void)
{
	check_v8_name(INTERP_V8_FUNCTION, "sell", "/srv/shop.js", 7, "sell (shop.js)",
		      "/srv/shop.js");
	check_v8_name(INTERP_V8_FUNCTION, "", "file:///srv/shop.mjs", 7, "<anonymous> (shop.mjs:7)",
		      "/srv/shop.mjs");
	check_v8_name(INTERP_V8_FUNCTION, "", "/srv/shop.js", 0, "<anonymous> (shop.js)",
		      "/srv/shop.js");
	check_v8_name(INTERP_V8_FUNCTION, "Module._load", "node:internal/modules/cjs/loader", 9,
		      "Module._load (node:internal/modules/cjs/loader)",
		      "node:internal/modules/cjs/loader");
	check_v8_name(INTERP_V8_MODULE, "", "/srv/shop.js", 1, "<module> (shop.js)",
		      "/srv/shop.js");
	check_v8_name(INTERP_V8_NATIVE, "map", "", 0, "map (native)", "");
	check_v8_name(INTERP_V8_NATIVE, "", "", 0, "<anonymous> (native)", "");
	check_v8_name(INTERP_V8_FUNCTION, "sell", "", 2, "sell (eval)", "");
	check_v8_name(INTERP_V8_FUNCTION, "", "", 2, "<anonymous> (eval:2)", "");
	check_v8_name(INTERP_V8_MODULE, "", "", 1, "<module> (eval)", "");
}

/* Each frame is placed in the native stack by its address. A chain with a frame that has no address
 * is rejected. */
static void test_frames(void)
{
	static const struct walk_frame frames[] = { { .pc = 1, .sp = 0x100 },
						    { .pc = 2, .sp = 0x140 },
						    { .pc = 3, .sp = 0x180 } };
	const struct interp_native native = { .frames = frames, .n = 3, .has_root = true };
	struct interp_chain chain = { .family = INTERP_V8, .minor = 113, .n = 2 };
	struct interp_run runs[INTERP_MAX_FRAMES];
	size_t n;

	chain.frames[0] = (struct interp_frame){ .at = 0x130, .flags = INTERP_FRAME_ENDS_RUN };
	chain.frames[1] = (struct interp_frame){ .at = 0x1b0, .flags = INTERP_FRAME_ENDS_RUN };
	CHECK(interp_merge_is_sound(&chain));
	CHECK(interp_merge(&chain, &native, runs, &n));
	CHECK_INT(n, 2);
	CHECK_INT(runs[0].native, 0);
	CHECK_INT(runs[1].native, 2);
	chain.frames[1].at = 0;
	CHECK(!interp_merge_is_sound(&chain));
}

int main(void)
{
	RUN(test_layouts);
	RUN(test_files);
	RUN(test_names);
	RUN(test_frames);
	return test_end();
}
