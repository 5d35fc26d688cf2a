/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of the parser of objdump's output. Scripts in place of objdump print valid and invalid
 * text.
 */
#include "tests/unit/test.h"
#include "tools/profcapture/disassembly.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

static char *folder;

/* Creates a script that is the first objdump in PATH. */
static void pretend(const char *script)
{
	g_autofree char *path = g_build_filename(folder, "objdump", NULL);
	g_autofree char *search = g_strdup_printf("%s:/usr/bin:/bin", folder);

	CHECK(g_file_set_contents(path, script, -1, NULL) && chmod(path, 0700) == 0);
	g_setenv("PATH", search, TRUE);
}

static GArray *run(const char *script, unsigned timeout_ms, GError **error)
{
	CLEANUP_CLOSE int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	pretend(script);
	return disassembly_read(fd, 0x1000, 0x2000, timeout_ms, error);
}

static void check_fails(const char *script, const char *said)
{
	GError *error = NULL;
	GArray *found = run(script, 500, &error);

	REQUIRE(!found && error);
	printf("# %s\n", error->message);
	CHECK(strstr(error->message, said) != NULL);
	g_error_free(error);
}

static void test_lines(void)
{
	g_autoptr(GArray)
		found = run("#!/bin/sh\n"
			    "printf '\\n0000000000001000 <f>:\\n'\n"
			    "printf '    1000:\\tpush   %%rbp\\n'\n"
			    "printf '    1001:\\tcall   1050 <g>  \\n\\t...\\n'\n"
			    "printf 'no: line\\n   zz:\\tx\\n 12 \\tx\\nffff:\\tleft\\n'\n",
			    10000, NULL);
	const struct disassembly_line *line;

	REQUIRE(found && found->len == 2);
	line = &g_array_index(found, struct disassembly_line, 1);
	CHECK_INT(line->address, 0x1001);
	CHECK_STR(line->text, "call   1050 <g>");
}

static void test_bounded(void)
{
	GArray *found;

	check_fails("#!/bin/sh\nexec yes '  1000:	nop'\n", "too much");
	found = run("#!/bin/sh\nyes '  1000:	nop' | head -n 300000\n", 10000, NULL);
	REQUIRE(found);
	CHECK_INT(found->len, DISASSEMBLY_MAX_LINES);
	g_array_unref(found);
}

/* The memory of objdump is limited to 1 GiB; `ulimit` prints KiB. */
static void test_memory(void)
{
	g_autoptr(GArray)
		found = run("#!/bin/sh\nprintf '  %x:\\tx\\n' $(ulimit -v)\n", 10000, NULL);

	REQUIRE(found && found->len == 1);
	CHECK_INT(g_array_index(found, struct disassembly_line, 0).address, 1 << 20);
}

static void test_never_ends(void)
{
	check_fails("#!/bin/sh\nexec sleep 1000\n", "too long");
	check_fails("#!/bin/sh\necho 'objdump: x: odd format'; exit 1\n", "x: odd format");
	check_fails("#!/bin/sh\nkill -SEGV $$\n", "reported no reason");
}

static void test_no_objdump(void)
{
	CLEANUP_CLOSE int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	GError *error = NULL;

	g_setenv("PATH", "/nowhere", TRUE);
	CHECK(!disassembly_read(fd, 0, 1, 1000, &error));
	CHECK(error && strstr(error->message, "binutils"));
	g_clear_error(&error);
}

int main(void)
{
	g_autofree char *path = NULL;

	folder = g_dir_make_tmp("disassembly-XXXXXX", NULL);
	path = g_build_filename(folder, "objdump", NULL);
	RUN(test_lines);
	RUN(test_bounded);
	RUN(test_memory);
	RUN(test_never_ends);
	RUN(test_no_objdump);
	unlink(path);
	rmdir(folder);
	g_free(folder);
	return test_end();
}
