/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Images - the files that processes map, opened while they can be
 *
 * A file is opened when the engine first sees a sample in it, and kept until the session closes: processes exit, files
 * are replaced, and names are looked up after the recording. /proc/PID/map_files reaches deleted, replaced and
 * overlaid files; it needs CAP_CHECKPOINT_RESTORE, so the path below the process's root is the second way.
 * The path is what a target chose. Invariants: (1) it is resolved below the process's root, through no magic link
 *                                              (2) nothing but a regular file is opened for reading: a FIFO or a
 *                                                  device is looked at by O_PATH only
 * No byte of any file is read here. The build-id comes from the kernel, which parses the file: it is asked about a page
 * of it that we map and never touch. The side band could deliver build-ids too, but then the kernel marks the mmap2
 * records of every other profiler on the machine as if they had some, and perf 6.1 does not survive that; so that is
 * left to kernels before 6.11, which cannot be asked.
 */
#include "config.h"

#include "daemon/broker/images.h"

#include "arch/base.h"
#include "arch/uapi.h"
#include "daemon/broker/error.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#define MAX_IMAGES 4096 /* of a session; and at most a quarter of our descriptors */

struct images {
	GHashTable *fds; /* id → descriptor */
	unsigned max;
};

static void close_value(gpointer fd)
{
	close(GPOINTER_TO_INT(fd));
}

struct images *images_new(void)
{
	struct images *images = g_new0(struct images, 1);
	struct rlimit limit = { 0 };

	getrlimit(RLIMIT_NOFILE, &limit);
	images->max = (unsigned)MIN_OF(MAX_IMAGES, limit.rlim_cur / 4);
	images->fds = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, close_value);
	return images;
}

void images_free(struct images *images)
{
	if (!images)
		return;
	g_hash_table_unref(images->fds);
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

/* From O_PATH to readable, of regular files. */
static int reopen(int handle, int *ret_fd)
{
	struct stat status;
	char path[32];
	int fd;

	if (fstat(handle, &status) < 0)
		return errno;
	if (!S_ISREG(status.st_mode))
		return EINVAL;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", handle);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return errno;
	*ret_fd = fd;
	return 0;
}

static int open_mapping(pid_t pid, uint64_t start, uint64_t end, int *ret_fd)
{
	CLEANUP_CLOSE int handle = -1;
	char path[96];

	snprintf(path, sizeof(path), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, pid, start, end);
	handle = open(path, O_PATH | O_CLOEXEC);
	return handle < 0 ? errno : reopen(handle, ret_fd);
}

static int open_path(pid_t pid, const char *path, int *ret_fd)
{
	struct open_how how = {
		.flags = O_PATH | O_CLOEXEC,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};
	CLEANUP_CLOSE int root = -1;
	CLEANUP_CLOSE int handle = -1;
	char name[32];

	if (path[0] != '/' || g_str_has_suffix(path, " (deleted)"))
		return ENOENT;
	snprintf(name, sizeof(name), "/proc/%d/root", pid);
	root = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0) /* gone: most likely it had our root; the reader checks the build-id */
		root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root >= 0)
		handle = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
	return handle < 0 ? errno : reopen(handle, ret_fd);
}

/* Whether a path still leads to the file that was mapped, as far as inode and generation were told. */
static bool is_same_file(int fd, const struct message_image_request *request)
{
	struct stat status;
	int generation = 0;

	if (fstat(fd, &status) < 0 || (request->inode && status.st_ino != request->inode))
		return false;
	if (request->inode_generation == 0 || ioctl(fd, FS_IOC_GETVERSION, &generation) < 0)
		return true;
	return (uint32_t)generation == (uint32_t)request->inode_generation;
}

/* An overlaid file's inode is not the one that the kernel tells of mappings, so its name has to do. */
static bool is_overlaid_file(int fd, const char *name)
{
	char link[32], path[PATH_MAX];
	struct statfs status;
	ssize_t length;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (fstatfs(fd, &status) < 0 || status.f_type != OVERLAYFS_SUPER_MAGIC)
		return false;
	length = readlink(link, path, sizeof(path) - 1);
	if (length < 0)
		return false;
	path[length] = '\0';
	return g_str_has_suffix(path, name);
}

int image_open(const struct message_image_request *request, const char *path, int *ret_fd)
{
	CLEANUP_CLOSE int mapped = -1;
	CLEANUP_CLOSE int fd = -1;
	int failed;

	/* A library may have been closed since, and another one opened at the same place. */
	if (open_mapping(request->pid, request->start, request->end, &mapped) == 0 &&
	    (is_same_file(mapped, request) || is_overlaid_file(mapped, path))) {
		*ret_fd = steal_fd(&mapped);
		return 0;
	}
	failed = open_path(request->pid, path, &fd);
	if (failed)
		return failed;
	if (!is_same_file(fd, request))
		return ESTALE;
	*ret_fd = steal_fd(&fd);
	return 0;
}

int images_add(struct images *images, uint64_t id, int fd)
{
	uint64_t *key;

	if (g_hash_table_contains(images->fds, &id) ||
	    g_hash_table_size(images->fds) >= images->max) {
		close(fd);
		return g_hash_table_contains(images->fds, &id) ? EEXIST : EMFILE;
	}
	key = g_new(uint64_t, 1);
	*key = id;
	g_hash_table_insert(images->fds, key, GINT_TO_POINTER(fd));
	return 0;
}

bool images_get(const struct images *images, uint64_t id, int *ret_fd, GError **error)
{
	gpointer kept;
	int fd = -1;

	if (!g_hash_table_lookup_extended(images->fds, &id, NULL, &kept))
		return broker_fail(error, BROKER_ERROR_NO_SUCH_IMAGE,
				   "no file is open for image %" PRIu64 " of this session", id);
	/* opened anew: a duplicate would share its position with every other reader */
	if (reopen(GPOINTER_TO_INT(kept), &fd) != 0)
		fd = fcntl(GPOINTER_TO_INT(kept), F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return broker_fail(error, BROKER_ERROR_FAILED, "opening image %" PRIu64 ": %s", id,
				   g_strerror(errno));
	*ret_fd = fd;
	return true;
}

/* 0: the file has none, or the kernel cannot be asked. */
static uint32_t read_build_id(int fd, uint8_t *ret_build_id, uint32_t size)
{
	CLEANUP_CLOSE int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *mapping = maps < 0 ? MAP_FAILED : mmap(NULL, page, PROT_READ, MAP_PRIVATE, fd, 0);
	struct uapi_procmap_query query = {
		.size = sizeof(query),
		.query_addr = (uintptr_t)mapping,
		.build_id_size = size,
		.build_id_addr = (uintptr_t)ret_build_id,
	};
	uint32_t bytes = 0;

	if (mapping == MAP_FAILED)
		return 0;
	if (ioctl(maps, UAPI_PROCMAP_QUERY, &query) == 0)
		bytes = MIN_OF(query.build_id_size, size);
	munmap(mapping, page);
	return bytes;
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

bool image_stat(int fd, struct message_image *image)
{
	struct stat status;

	if (fstat(fd, &status) < 0)
		return false;
	image->dev = status.st_dev;
	image->inode = status.st_ino;
	image->size = (uint64_t)status.st_size;
	image->ctime_ns = status.st_ctim.tv_sec * 1000000000 + status.st_ctim.tv_nsec;
	image->build_id_size = read_build_id(fd, image->build_id, sizeof(image->build_id));
	return true;
}
