/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of arch/cfi and arch/table on real files: compiled rows, evaluated rows and libdw's rows
 * are equal. Reads some files of this machine, and all libraries of the cross compilers; `./dev
 * bench bench_unwind_rows` reads all files of a machine.
 */
#include "tests/oracle/rows.h"
#include "tests/unit/test.h"

#include "arch/base.h"

#include <glob.h>
#include <sys/stat.h>

/* Checks that no row differs or is refused, and that at most one in `one_in` rows cannot be
 * expressed by our rules. */
static void check_count(const struct rows_count *count, size_t one_in)
{
	rows_print(count);
	CHECK(count->rows > 0);
	CHECK_INT(count->different, 0);
	CHECK_INT(count->refused, 0);
	CHECK(count->unsupported * one_in <= count->rows);
}

static void test_native(void)
{
	static const char *const files[] = {
		"/lib/x86_64-linux-gnu/libc.so.6",
		"/lib64/ld-linux-x86-64.so.2",
		"/usr/bin/python3.11",
		"/usr/bin/git",
		"/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
		"/proc/self/exe",
	};
	struct rows_count count = { .files = 0 };

	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		rows_check(files[i], &count);
	check_count(&count, 1000);
}

/* Skips symbolic links, whose targets are also read, and linker scripts, which are not ELF
 * files. */
static void check_foreign(const char *pattern, size_t one_in)
{
	struct rows_count count = { .files = 0 };
	glob_t found;
	struct stat st;

	if (glob(pattern, 0, NULL, &found) != 0)
		SKIP("no libraries of this architecture are here: ./dev setup --foreign");
	for (size_t i = 0; i < found.gl_pathc; i++)
		if (lstat(found.gl_pathv[i], &st) == 0 && S_ISREG(st.st_mode))
			rows_check(found.gl_pathv[i], &count);
	globfree(&found);
	check_count(&count, one_in);
}

static void test_aarch64(void)
{
	check_foreign("/usr/aarch64-linux-gnu/lib/*.so*", 10000);
}

static void test_riscv64(void)
{
	check_foreign("/usr/riscv64-linux-gnu/lib/*.so*", 1000);
}

static void test_ppc64le(void)
{
	check_foreign("/usr/powerpc64le-linux-gnu/lib/*.so*", 1000);
}

int main(void)
{
	RUN(test_native);
	RUN(test_aarch64);
	RUN(test_riscv64);
	RUN(test_ppc64le);
	return test_end();
}
