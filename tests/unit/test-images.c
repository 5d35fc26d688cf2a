/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "tests/unit/test.h"

#include "daemon/broker/error.h"
#include "daemon/broker/images.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static char *folder;

static char *path_of(const char *name)
{
	return g_build_filename(folder, name, NULL);
}

static char *put(const char *name, const char *text)
{
	char *path = path_of(name);

	g_file_set_contents(path, text, -1, NULL);
	return path;
}

/* By the path alone: no mapping is at 0. */
static int by_path(const char *path, int *ret_fd)
{
	struct message_image_request request = { .pid = getpid() };

	return image_open(&request, path, ret_fd);
}

static void test_path(void)
{
	g_autofree char *path = put("plain", "hello");
	char text[8] = { 0 };
	int fd = -1;

	REQUIRE(CHECK_INT(by_path(path, &fd), 0));
	CHECK_INT(read(fd, text, sizeof(text)), 5);
	CHECK_STR(text, "hello");
	CHECK_INT(write(fd, "x", 1), -1);
	CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	close(fd);
	CHECK_INT(by_path("plain", &fd), ENOENT);
	CHECK_INT(by_path("", &fd), ENOENT);
	CHECK_INT(by_path("/no/such/file", &fd), ENOENT);
	/* what is at that path now is another file */
	g_autofree char *deleted = put("gone (deleted)", "other");
	CHECK_INT(by_path(deleted, &fd), ENOENT);
}

static void test_only_regular_files(void)
{
	g_autofree char *fifo = path_of("fifo");
	g_autofree char *link = path_of("link");
	int fd = -1;

	REQUIRE(mkfifo(fifo, 0600) == 0); /* opening it would block */
	REQUIRE(symlink(fifo, link) == 0);
	CHECK_INT(by_path(fifo, &fd), EINVAL);
	CHECK_INT(by_path(link, &fd), EINVAL);
	CHECK_INT(by_path("/dev/zero", &fd), EINVAL);
	CHECK_INT(by_path(folder, &fd), EINVAL);
	CHECK_INT(fd, -1);
}

static void test_no_magic_links(void)
{
	int fd = -1;

	CHECK_INT(by_path("/proc/self/exe", &fd), ELOOP);
	CHECK_INT(by_path("/proc/self/root/etc/passwd", &fd), ELOOP);
	CHECK_INT(fd, -1);
}

static void test_mapping_of_a_deleted_file(void)
{
	g_autofree char *path = put("mapped", "mapped bytes");
	g_autofree char *named = g_strconcat(path, " (deleted)", NULL);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct message_image_request request = { .pid = getpid() };
	char text[16] = { 0 };
	int fd = open(path, O_RDONLY | O_CLOEXEC), found = -1;
	void *map = mmap(NULL, page, PROT_READ, MAP_PRIVATE, fd, 0);

	close(fd);
	g_unlink(path);
	REQUIRE(map != MAP_FAILED);
	if (geteuid() != 0)
		SKIP("map_files needs CAP_CHECKPOINT_RESTORE");
	request.start = (uintptr_t)map;
	request.end = request.start + page;
	REQUIRE(CHECK_INT(image_open(&request, named, &found), 0));
	CHECK_INT(read(found, text, sizeof(text)), 12);
	CHECK_STR(text, "mapped bytes");
	close(found);
	munmap(map, page);
}

/* Another file is mapped where a sample hit the first one. */
static void test_mapping_of_another_file(void)
{
	g_autofree char *first = put("first", "first bytes");
	g_autofree char *second = put("second", "second bytes");
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct message_image_request request = { .pid = getpid() };
	int fd = open(second, O_RDONLY | O_CLOEXEC), found = -1;
	void *map = mmap(NULL, page, PROT_READ, MAP_PRIVATE, fd, 0);
	char text[16] = { 0 };
	struct stat status;

	close(fd);
	REQUIRE(map != MAP_FAILED && stat(first, &status) == 0);
	request.start = (uintptr_t)map;
	request.end = request.start + page;
	request.inode = status.st_ino;
	REQUIRE(CHECK_INT(image_open(&request, first, &found), 0));
	CHECK_INT(read(found, text, sizeof(text)), 11);
	CHECK_STR(text, "first bytes");
	close(found);
	g_unlink(first);
	CHECK_INT(image_open(&request, first, &found), ENOENT);
	munmap(map, page);
}

/* A process is gone, and its path leads to another file meanwhile. */
static void test_replaced(void)
{
	g_autofree char *path = put("replaced", "first");
	struct message_image_request request = { .pid = getpid() };
	struct stat status;
	int fd = -1;

	REQUIRE(stat(path, &status) == 0);
	request.inode = status.st_ino;
	CHECK_INT(image_open(&request, path, &fd), 0);
	close(fd);
	request.inode++;
	CHECK_INT(image_open(&request, path, &fd), ESTALE);
}

static void test_build_id(void)
{
	struct message_image answer = { 0 };
	g_autofree char *text = put("no-elf", "text");
	int exe = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	int plain = open(text, O_RDONLY | O_CLOEXEC);

	if (!image_build_ids_known())
		SKIP("PROCMAP_QUERY needs Linux 6.11");
	REQUIRE(image_stat(exe, &answer));
	CHECK_INT(answer.build_id_size,
		  20); /* cc and clang are told to: -Wl,--build-id=sha1 is Debian's default */
	REQUIRE(image_stat(plain, &answer));
	CHECK_INT(answer.build_id_size, 0);
	close(exe);
	close(plain);
}

static void test_kept(void)
{
	g_autofree char *path = put("kept", "kept");
	struct images *images = images_new();
	g_autoptr(GError) error = NULL;
	char text[8] = { 0 };
	int fd = -1;

	for (int i = 0; i < 2; i++) {
		REQUIRE(by_path(path, &fd) == 0);
		CHECK_INT(images_add(images, 7, fd), i == 0 ? 0 : EEXIST);
	}
	/* each client starts at the beginning */
	for (int i = 0; i < 2; i++) {
		REQUIRE(images_get(images, 7, &fd, NULL));
		CHECK_INT(read(fd, text, sizeof(text)), 4);
		close(fd);
	}
	CHECK(!images_get(images, 8, &fd, &error));
	CHECK(g_error_matches(error, BROKER_ERROR, BROKER_ERROR_NO_SUCH_IMAGE));
	images_free(images);
}

static void test_bounded(void)
{
	g_autofree char *path = put("many", "many");
	struct images *images = images_new();
	uint64_t id = 0;
	int fd, r = 0;

	while (r == 0 && id <= 4096) {
		REQUIRE(by_path(path, &fd) == 0);
		r = images_add(images, ++id, fd);
	}
	CHECK_INT(r, EMFILE);
	images_free(images);
}

int main(void)
{
	folder = g_dir_make_tmp("images-XXXXXX", NULL);
	RUN(test_path);
	RUN(test_only_regular_files);
	RUN(test_no_magic_links);
	RUN(test_mapping_of_a_deleted_file);
	RUN(test_mapping_of_another_file);
	RUN(test_replaced);
	RUN(test_build_id);
	RUN(test_kept);
	RUN(test_bounded);
	return test_end();
}
