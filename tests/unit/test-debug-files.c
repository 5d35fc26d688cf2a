/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of the search for debug files: the search accepts only the right, regular file, which must
 * be inside the sysroot; finds files in other containers; and fetches a file only if this machine
 * does not have it.
 */
#include "tests/unit/elf-builder.h"
#include "tests/unit/test.h"
#include "tools/symbols/debug-files.h"

#include <glib.h>
#include <glib/gstdio.h>
#include <sys/stat.h>

static const struct build right = { .build_id = "\xab\xcd\xef 1", .build_id_size = 5 };
static const struct build wrong = { .build_id = "\xab\xcd\xef 2", .build_id_size = 5 };

static char folder[64];

static const char *in(const char *name)
{
	static char path[2][256];
	static int turn;

	turn = !turn;
	snprintf(path[turn], sizeof(path[turn]), "%s/%s", folder, name);
	return path[turn];
}

static void put_file(const char *name, const struct build *build)
{
	CLEANUP_CLOSE int from = build_elf(build);
	CLEANUP_CLOSE int to = -1;
	g_autofree char *parent = g_path_get_dirname(in(name));
	static char bytes[BUILD_FILE_BYTES];
	ssize_t n = pread(from, bytes, sizeof(bytes), 0);

	CHECK_INT(g_mkdir_with_parents(parent, 0700), 0);
	to = open(in(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	CHECK(n > 0 && write(to, bytes, (size_t)n) == n);
}

static const struct build *served; /* the file that serve() has; NULL: none */
static unsigned asked;

static struct elf_image *serve(const uint8_t *id, size_t size, char **ret_path, void *data)
{
	struct elf_image *elf;

	CHECK(data == &asked);
	CHECK(size == right.build_id_size && memcmp(id, right.build_id, size) == 0);
	asked++;
	elf = debug_files_check(served ? build_elf(served) : -1, id, size);
	if (elf)
		*ret_path = g_strdup("served");
	return elf;
}

/* Returns the path found for the build-id of `right`. The caller frees it. */
static char *find(const char *sysroot, const char *debug_folder)
{
	const char *const folders[] = { debug_folder, NULL };
	struct debug_files *files = debug_files_new(sysroot, folders);
	CLEANUP_CLOSE int fd = build_elf(&right);
	struct elf_image *image = elf_image_open(fd);
	struct debug_file *found;
	char *path;

	if (served)
		debug_files_set_fetch(files, serve, &asked);
	found = debug_files_find(files, image, "/bin/x", false);
	path = found ? g_strdup(found->path) : NULL;
	debug_file_free(found);
	elf_image_free(image);
	debug_files_free(files);
	return path;
}

static void test_wrong(void)
{
	g_autofree char *none = NULL, *one = NULL;

	put_file("a/.build-id/ab/cdef2031.debug", &wrong);
	none = find(NULL, in("a"));
	CHECK_STR(none, NULL);
	put_file("a/.build-id/ab/cdef2031.debug", &right);
	one = find(NULL, in("a"));
	CHECK_STR(one, in("a/.build-id/ab/cdef2031.debug"));
}

static void test_fetch(void)
{
	g_autofree char *here = NULL, *elsewhere = NULL, *other = NULL;

	served = &right;
	here = find(NULL, in("a")); /* written by the previous case */
	CHECK_STR(here, in("a/.build-id/ab/cdef2031.debug"));
	CHECK_INT(asked, 0);
	elsewhere = find(NULL, in("b"));
	CHECK_STR(elsewhere, "served");
	CHECK_INT(asked, 1);
	served = &wrong;
	other = find(NULL, in("b"));
	CHECK_STR(other, NULL);
	CHECK_INT(asked, 2);
	served = NULL;
}

static void test_sysroot(void)
{
	struct debug_files *files;
	g_autofree char *found = NULL;

	put_file("root/usr/lib/debug/.build-id/ab/cdef2031.debug", &right);
	found = find(in("root"), NULL);
	CHECK_STR(found, "/usr/lib/debug/.build-id/ab/cdef2031.debug");
	put_file("outside", &right);
	CHECK_INT(symlink(in("outside"), in("root/out")), 0);
	CHECK_INT(symlink("../../outside", in("root/up")), 0);
	CHECK_INT(symlink("/usr/lib/debug/.build-id/ab/cdef2031.debug", in("root/inside")), 0);
	files = debug_files_new(in("root"), NULL);
	REQUIRE(files);
	CHECK_INT(debug_files_open_path(files, "/out"), -1);
	CHECK_INT(debug_files_open_path(files, "/up"), -1);
	CHECK_INT(debug_files_open_path(files, "/../outside"), -1);
	CHECK_INT(debug_files_open_path(files, "outside"), -1);
	CHECK_INT(close(debug_files_open_path(files, "/inside")), 0);
	debug_files_free(files);
	CHECK(!debug_files_new(in("nowhere"), NULL));
}

/* Searches for the debug file of a program in a container with the root `other`. `path`: "/bin/x",
 * which this machine does not have, or a file of this machine. */
static char *find_with_other(const char *other, const char *path)
{
	struct debug_files *files = debug_files_new(NULL, NULL);
	CLEANUP_CLOSE int fd = strcmp(path, "/bin/x") == 0 ? build_elf(&right)
							   : open(path, O_RDONLY | O_CLOEXEC);
	struct elf_image *image = elf_image_open(fd);
	struct debug_file *found;
	char *where;

	debug_files_add_other(files, debug_files_new(other, NULL));
	found = debug_files_find(files, image, path, false);
	where = found ? g_strdup(found->path) : NULL;
	debug_file_free(found);
	elf_image_free(image);
	debug_files_free(files);
	return where;
}

static void test_other(void)
{
	g_autofree char *there = NULL, *here = NULL, *outside = NULL;

	/* written by test_sysroot */
	there = find_with_other(in("root"), "/bin/x");
	CHECK_STR(there, "/usr/lib/debug/.build-id/ab/cdef2031.debug");
	put_file("x", &right);
	here = find_with_other(in("root"), in("x"));
	CHECK_STR(here, NULL);
	CHECK_INT(unlink(in("root/usr/lib/debug/.build-id/ab/cdef2031.debug")), 0);
	CHECK_INT(symlink(in("outside"), in("root/usr/lib/debug/.build-id/ab/cdef2031.debug")), 0);
	outside = find_with_other(in("root"), "/bin/x");
	CHECK_STR(outside, NULL);
}

static void test_pipe(void)
{
	struct debug_files *files = debug_files_new(NULL, NULL);

	CHECK_INT(mkfifo(in("pipe"), 0600), 0);
	CHECK_INT(debug_files_open_path(files, in("pipe")), -1);
	CHECK_INT(debug_files_open_path(files, folder), -1);
	debug_files_free(files);
}

int main(void)
{
	snprintf(folder, sizeof(folder), "%s/debug-files-XXXXXX", g_get_tmp_dir());
	if (!mkdtemp(folder))
		return 1;
	RUN(test_wrong);
	RUN(test_fetch);
	RUN(test_sysroot);
	RUN(test_other);
	RUN(test_pipe);
	return test_end_without(folder);
}
