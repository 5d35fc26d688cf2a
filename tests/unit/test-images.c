/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "tests/unit/test.h"

#include "daemon/broker/error.h"
#include "daemon/broker/images.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

static char *path;

static int open_file(void)
{
	return open(path, O_RDONLY | O_CLOEXEC);
}

static int add(struct images *images, uint64_t id, bool client_read)
{
	const struct files_answer answer = { .client_read = client_read,
					     .image = { .image_id = id } };

	return images_add(images, &answer, open_file());
}

static void test_kept(void)
{
	struct images *images = images_new();
	g_autoptr(GError) error = NULL;
	char text[8] = { 0 };
	int fd = -1;

	CHECK_INT(add(images, 7, true), 0);
	CHECK_INT(add(images, 7, true), EEXIST);
	/* each descriptor starts at the beginning of the file */
	for (int i = 0; i < 2; i++) {
		REQUIRE(images_get(images, 7, &fd, NULL));
		CHECK_INT(read(fd, text, sizeof(text)), 4);
		close(fd);
	}
	CHECK(!images_get(images, 8, &fd, &error));
	CHECK(g_error_matches(error, BROKER_ERROR, BROKER_ERROR_NO_SUCH_IMAGE));
	images_free(images);
}

static void test_refused(void)
{
	struct images *images = images_new();
	g_autoptr(GError) error = NULL;
	int fd = -1;

	REQUIRE(add(images, 1, false) == 0);
	CHECK(!images_get(images, 1, &fd, &error));
	CHECK(g_error_matches(error, BROKER_ERROR, BROKER_ERROR_NOT_AUTHORIZED));
	CHECK_INT(fd, -1);
	images_free(images);
}

static void test_bounded(void)
{
	struct images *images = images_new();
	uint64_t id = 0;
	int r = 0;

	while (r == 0 && id <= 4096)
		r = add(images, ++id, true);
	CHECK_INT(r, EMFILE);
	images_free(images);
}

/* Creates a copy of 60 MiB. The test claims that the copied file has one byte. */
static int open_copy(void)
{
	int fd = memfd_create("copy", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, 60 << 20) < 0)
		abort();
	return fd;
}

static void test_copies(void)
{
	struct files_answer copy = { .is_copy = true, .image = { .size = 1 } };
	struct images *images = images_new();
	unsigned n = 0;

	CHECK_INT(images_copy_bytes(images), 64 << 20);
	do {
		copy.image.image_id = ++n;
	} while (n < 10 && images_add(images, &copy, open_copy()) == 0);
	CHECK_INT(n, 5);
	CHECK(images_copy_bytes(images) < 60 << 20);
	images_free(images);
}

int main(void)
{
	int fd = g_file_open_tmp("images-XXXXXX", &path, NULL);

	if (fd < 0 || write(fd, "kept", 4) != 4)
		return 1;
	close(fd);
	images_raise_limit();
	RUN(test_kept);
	RUN(test_refused);
	RUN(test_bounded);
	RUN(test_copies);
	unlink(path);
	return test_end();
}
