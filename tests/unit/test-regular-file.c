/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of arch/regular-file with all file types that a target may have at a path. inotify reports
 * whether a file was opened.
 */
#include "arch/regular-file.h"

#include "arch/base.h"
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static const char *at(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static void make_folder(void)
{
	snprintf(folder, sizeof(folder), "/tmp/regular-file-XXXXXX");
	REQUIRE(mkdtemp(folder) != NULL);
	REQUIRE(mkfifo(at("fifo"), 0600) == 0);
	close(open(at("file"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	REQUIRE(truncate(at("file"), 100) == 0);
	REQUIRE(symlink("fifo", at("to-fifo")) == 0);
	REQUIRE(symlink("/file", at("to-file")) == 0);
	REQUIRE(symlink("/dev/ptmx", at("to-ptmx")) == 0);
}

static void remove_folder(void)
{
	static const char *const names[] = { "fifo", "file", "to-fifo", "to-file", "to-ptmx" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		CHECK(unlink(at(names[i])) == 0);
	CHECK(rmdir(folder) == 0);
}

static void test_files(void)
{
	CLEANUP_CLOSE int root = -1;
	int fd;

	make_folder();
	root = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	fd = regular_file_open(-1, at("file"));
	CHECK(fd >= 0 && fcntl(fd, F_GETFL) & O_NONBLOCK && fcntl(fd, F_GETFD) & FD_CLOEXEC);
	close(fd);
	fd = regular_file_open(root, "/to-file");
	CHECK(fd >= 0 && lseek(fd, 0, SEEK_END) == 100);
	close(fd);
	CHECK_INT(regular_file_open(-1, at("nothing")), -ENOENT);
	fd = open(at("file"), O_PATH | O_CLOEXEC);
	CHECK_INT(regular_file_reopen(fd, 99), -EFBIG);
	close(fd);
	remove_folder();
}

/* inotify reports an open() only if O_PATH is not among its flags. */
static void test_others(void)
{
	static const char *const elsewhere[] = { "/dev/null",         "/dev/ptmx",
						 "/proc/self/maps",   "/proc/self/fd/0",
						 "/sys/kernel/notes", "/proc" };
	struct inotify_event event;
	CLEANUP_CLOSE int root = -1;
	int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);

	make_folder();
	root = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	REQUIRE(inotify_add_watch(watch, at("fifo"), IN_OPEN) >= 0);
	CHECK_INT(regular_file_open(-1, at("fifo")), -EINVAL);
	CHECK_INT(regular_file_open(-1, at("to-fifo")), -EINVAL);
	CHECK_INT(regular_file_open(root, "/fifo"), -EINVAL);
	CHECK_INT(regular_file_open(-1, at("to-ptmx")), -EINVAL);
	CHECK_INT(regular_file_open(-1, folder), -EINVAL);
	CHECK(regular_file_open(root, "/to-ptmx") < 0);
	CHECK(read(watch, &event, sizeof(event)) < 0 && errno == EAGAIN);
	for (size_t i = 0; i < ARRAY_SIZE(elsewhere); i++)
		CHECK(regular_file_open(-1, elsewhere[i]) < 0);
	close(watch);
	remove_folder();
}

int main(void)
{
	RUN(test_files);
	RUN(test_others);
	return test_end();
}
