/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Images - keeps the open files of one session, for OpenImage
 *
 * profd-files opens a file when the engine first requests it, usually at the first sample in it.
 * The file stays open until the session closes, because processes exit, files are replaced, and
 * symbols are looked up after the recording. As for any descriptor, permission to read is checked
 * when the file is opened.
 * Invariants: (1) a file that the session's client may not read is never passed on
 *                 [test-images: refused]
 *             (2) copies are limited in bytes, descriptors in number  [test-images: bounded]
 */
#include "config.h"

#include "arch/errno-text.h"
#include "daemon/broker/images.h"

#include "arch/base.h"
#include "arch/uapi.h"
#include "daemon/broker/error.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define MAX_IMAGES 4096u /* per session; also at most a quarter of profd's descriptors */

#define MAX_COPY_BYTES (UINT64_C(64) << 20)
#define MAX_ALL_COPIES (UINT64_C(256) << 20)

struct image {
	int fd;
	bool client_read;
};

struct images {
	GHashTable *files; /* struct image by id */
	unsigned max;
	uint64_t copy_bytes; /* bytes that may still be copied */
};

static void image_free(gpointer data)
{
	struct image *image = data;

	close(image->fd);
	g_free(image);
}

struct images *images_new(void)
{
	struct images *images = g_new0(struct images, 1);
	struct rlimit limit = { 0 };

	getrlimit(RLIMIT_NOFILE, &limit);
	images->max = (unsigned)MIN_OF(MAX_IMAGES, limit.rlim_cur / 4);
	images->copy_bytes = MAX_ALL_COPIES;
	images->files = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, image_free);
	return images;
}

void images_free(struct images *images)
{
	if (!images)
		return;
	g_hash_table_unref(images->files);
	g_free(images);
}

void images_raise_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

int images_add(struct images *images, const struct files_answer *answer, int fd)
{
	uint64_t id = answer->image.image_id, bytes = 0;
	bool known = g_hash_table_contains(images->files, &id);
	struct image *image;
	struct stat status;
	uint64_t *key;

	/* Measure the copy itself, because the original file's server chooses the length that it
	 * reports. */
	if (answer->is_copy)
		bytes = fstat(fd, &status) == 0 ? (uint64_t)status.st_size : UINT64_MAX;

	if (known || g_hash_table_size(images->files) >= images->max ||
	    bytes > images->copy_bytes) {
		close(fd);
		return known ? EEXIST : EMFILE;
	}
	images->copy_bytes -= bytes;
	key = g_new(uint64_t, 1);
	*key = id;
	image = g_new(struct image, 1);
	*image = (struct image){ .fd = fd, .client_read = answer->client_read };
	g_hash_table_insert(images->files, key, image);
	return 0;
}

uint64_t images_copy_bytes(const struct images *images)
{
	return MIN_OF(images->copy_bytes, MAX_COPY_BYTES);
}

bool images_get(const struct images *images, uint64_t id, int *ret_fd, GError **error)
{
	const struct image *image = g_hash_table_lookup(images->files, &id);
	char path[32];
	int fd;

	if (!image)
		return broker_fail(error, BROKER_ERROR_NO_SUCH_IMAGE,
				   "no file is open for image %" PRIu64 " of this session", id);
	if (!image->client_read)
		return broker_fail(error, BROKER_ERROR_NOT_AUTHORIZED,
				   "you may not read the file of image %" PRIu64, id);
	/* Open the file again: a duplicate would share its position with all other readers. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", image->fd);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		fd = fcntl(image->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return broker_fail(error, BROKER_ERROR_FAILED, "opening image %" PRIu64 ": %s", id,
				   ERRNO_TEXT(errno));
	*ret_fd = fd;
	return true;
}

bool image_build_ids_known(void)
{
	CLEANUP_CLOSE int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	struct uapi_procmap_query query = {
		.size = sizeof(query),
		.query_flags = UAPI_PROCMAP_QUERY_COVERING_OR_NEXT_VMA,
	};

	return fd >= 0 && ioctl(fd, UAPI_PROCMAP_QUERY, &query) == 0;
}
