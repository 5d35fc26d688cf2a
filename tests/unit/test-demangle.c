/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of tools/symbols/demangle: C++, both Rust schemes (compared with rustc-demangle's output,
 * data/rust-names.txt), and names that would need too much time or memory.
 */
#include "arch/base.h"
#include "tests/unit/test.h"
#include "tools/symbols/demangle.h"

static void check_name(const char *raw_name, const char *want)
{
	CLEANUP_FREE char *name = demangle_get(raw_name);

	CHECK_STR(name, want);
}

static void test_cxx(void)
{
	check_name("_ZNSt6vectorIiSaIiEE9push_backEOi",
		   "std::vector<int, std::allocator<int> >::push_back(int&&)");
	check_name("_Z10copy_countILi16EEjPsPKsl",
		   "unsigned int copy_count<16>(short*, short const*, long)");
	check_name("_Z3foov.cold", "foo() [clone .cold]");
	check_name("_ZTV3foo", "vtable for foo");
	check_name("main", NULL);
	check_name("", NULL);
	check_name("_", NULL);
	check_name("_Z", NULL);
	check_name("_start", NULL);
	check_name("_ZN3foo", NULL);
	check_name("i", NULL); /* not the type int */
}

static void test_rust(void)
{
	CLEANUP_FREE char *path = NULL;
	const char *source = getenv("PROF_SOURCE_DIR");
	char line[2048];
	int cases = 0;
	FILE *file;

	REQUIRE(source != NULL);
	REQUIRE(asprintf(&path, "%s/tests/unit/data/rust-names.txt", source) > 0);
	file = fopen(path, "re");
	REQUIRE(file != NULL);
	while (fgets(line, sizeof(line), file)) {
		char *readable = strchr(line, '\t');

		if (line[0] == '#' || !CHECK(readable != NULL))
			continue;
		*readable++ = '\0';
		readable[strcspn(readable, "\n")] = '\0';
		cases++;
		check_name(line, strcmp(readable, "-") == 0 ? NULL : readable);
	}
	fclose(file);
	CHECK(cases > 400);
}

static void test_rust_suffix(void)
{
	check_name("_RC3foo.llvm.9D1C9369", "foo");
	check_name("_RC3foo.llvm.9D1C9369.cold", "foo");
}

static void test_cxx_is_not_rust(void)
{
	check_name("_ZN3foo17h05af221e174051e9Ev", "foo::h05af221e174051e9()");
	check_name("_ZN3foo3barE", "foo::bar");
	check_name("_ZN3foo18h05af221e174051e9aE", "foo::h05af221e174051e9a");
}

/* Limits on depth, length and steps; and a back reference that points forward. */
static void test_limits(void)
{
	char raw_name[4096];

	memset(raw_name, 0, sizeof(raw_name));
	memcpy(raw_name, "_RMC0", 5);
	memset(raw_name + 5, 'S', 1000);
	raw_name[1005] = 'e';
	free(demangle_get(raw_name)); /* must not hang */
	check_name("_RNvC1a2bb", "a::bb");
	check_name("_RNvB_1a", NULL);
	check_name("_RB9_", NULL);
	check_name("_RNvC2\303\2511b", NULL);
	/* a binder of more than 62^7 lifetimes, not printed; and 'G's that do not begin a binder */
	check_name("_RXMC1eFGUKKCRL0a_R", NULL);
	check_name("_RNvMNtC1a5GraphNtB2_5Graph3new", "<a::Graph::Graph>::new");
	check_name("_RNvNtCsGGGGGGGGGGG_1a5Gaaa_1f", "a::Gaaa_::f");
	check_name("_RMC1aFG_RL0_hEu", "<for<'a> fn(&'a u8)>");
	/* (T, T) of (T, T) of …: 2^n names for n back references */
	check_name("_RMC0TTTTTTTTTTTTTTTTuuEB4_EB3_EB2_EB1_EB0_EBZ_EBY_EBX_EBW_EBV_EBU_E", NULL);
}

/* f(A<int>, A<A<int>, A<int>>, …): each argument is twice as long as the previous one. */
static void test_bomb(void)
{
	char raw_name[1024] = "_Z1f1AIiE";
	size_t length = strlen(raw_name);
	static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";

	for (size_t i = 0; i < 36; i++)
		length += (size_t)snprintf(raw_name + length, sizeof(raw_name) - length,
					   "S_IS%c_S%c_E", digits[i], digits[i]);
	check_name(raw_name, NULL);
}

static void test_long_names(void)
{
	CLEANUP_FREE char *raw_name = malloc(70000);

	REQUIRE(raw_name != NULL);
	memcpy(raw_name, "_Z60000", 7);
	memset(raw_name + 7, 'a', 60000);
	strcpy(raw_name + 60007, "v");
	check_name(raw_name, NULL);
	memset(raw_name, 'P', 8000);
	memcpy(raw_name, "_Z1f", 4);
	strcpy(raw_name + 8000, "i");
	free(demangle_get(raw_name)); /* must not hang */
}

int main(void)
{
	RUN(test_cxx);
	RUN(test_rust);
	RUN(test_rust_suffix);
	RUN(test_cxx_is_not_rust);
	RUN(test_limits);
	RUN(test_bomb);
	RUN(test_long_names);
	return test_end();
}
