/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of clone suffixes of GCC and Clang, combinations of suffixes, and names that only look
 * similar.
 */
#include "arch/base.h"
#include "tests/unit/test.h"
#include "tools/symbols/clone-suffix.h"

static void check_base(const char *name, const char *base)
{
	char shown[128];

	snprintf(shown, sizeof(shown), "%.*s", (int)clone_suffix_skip_shown(name), name);
	CHECK_STR(shown, base);
}

static void test_suffixes(void)
{
	static const char *const suffixes[] = {
		".cold",
		".cold.12",
		".isra.0",
		".part.3",
		".constprop.0",
		".lto_priv.1",
		".llvm.1234567",
		".isra.0.cold",
		".part.0.isra.1",
		".lto_priv.0.cold",
		".localalias",
		".constprop.0.isra.0.cold.7",
		".__uniq.12345.llvm.678",
	};
	char name[64];

	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		snprintf(name, sizeof(name), "parse%s", suffixes[i]);
		check_base(name, "parse");
		snprintf(name, sizeof(name), "_Z3foov%s", suffixes[i]);
		check_base(name, "_Z3foov");
	}
	check_base("foo(int) [clone .isra.0] [clone .cold]", "foo(int)");
}

static void test_others(void)
{
	static const char *const names[] = {
		"",           "parse",         "parse.0",          "main.part",
		"main.llvm",  "x.isra.",       "a.part.b_",        ".cold",
		".isra.0",    "cold",          "py::f:/a.cold.py", "foo.clone",
		"a.b.c.isra", "foo() [clone]", "[clone .cold]",    "..",
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		check_base(names[i], names[i]);
}

int main(void)
{
	RUN(test_suffixes);
	RUN(test_others);
	return test_end();
}
