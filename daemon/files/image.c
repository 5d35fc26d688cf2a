/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Image - opens the file of a mapping
 *
 * /proc/PID/map_files leads to the very file that is mapped, even if it is deleted, replaced,
 * overlaid, or in another root or namespace. This way needs CAP_CHECKPOINT_RESTORE and a mapping
 * that still exists. So the path is tried second, and /proc/PID/exe third, for a plain user's own
 * programs. A target chooses what it maps, and the request may come from an engine that was taken
 * over.
 * Invariants: (1) a mapping is opened only if it is executable (kernels before 6.11 do not report
 *                 this)  [test-files: only_executable]
 *             (2) a path is resolved below the process's root, without symbolic links: mapped paths
 *                 have none  [test-files: links]
 *             (3) unless this process has only the client's rights, a file is opened by path alone
 *                 only if everybody may read it, or if inode and generation prove that it is the
 *                 mapped file: the generation cannot be guessed  [test-files: unreadable]
 *             (4) only a regular file that can be mapped is opened for reading: a FIFO or a device
 *                 is opened only by O_PATH, and files of /proc and the like are refused
 *                 [test-files: only_regular_files]
 *             (5) only this process reads from a filesystem that a process serves: such files are
 *                 copied  [test_hostile_files]
 *             (6) in an own_only session, the process's leader belongs to the client before
 *                 opening, all of its threads do afterwards, and the client may read the file; or
 *                 the process has ended, and the client may reach and read the file by its path
 *                 [test-files: own_only, ended]
 *             (7) a descriptor that is passed on is read-only, and a copy is sealed
 *                 [test_attack_descriptors]
 *             (8) by path alone, a file is given only to clients that can reach it
 *                 [test-files: unreachable, others]
 * This process parses no file. The kernel parses the build-id, which is queried for a page of the
 * file that is mapped here and never accessed. The side band could also deliver build-ids. But the
 * kernel then marks the mmap2 records of every other profiler on the machine as if they had
 * build-ids, which perf 6.1 cannot handle. So the side band delivers them only on kernels before
 * 6.11, which lack the query.
 */
#include "daemon/files/image.h"

#include "arch/base.h"
#include "arch/regular-file.h"
#include "arch/uapi.h"
#include "daemon/files/below.h"
#include "daemon/files/mounts.h"
#include "daemon/files/status.h"
#include "daemon/process-access.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

#define MAX_FILE_BYTES (UINT64_C(4) << 30)
#define FUSE_MAGIC 0x65735546

/* The mapped file that is to be opened. */
struct target {
	const struct files_config *config;
	const struct client *client;
	const struct message_image_request *mapping;
	const char *path;
	bool careful;
	int dir;        /* /proc/PID; -1: the process has exited */
	bool is_own;    /* the process is the client's */
	bool is_mapped; /* the file was found by the mapping, not by its path */
};

/* ---- What a file is -------------------------------------------------------------------------- */

/* Returns whether the process has ended. An ended process has no program. */
static bool has_ended(int32_t pid)
{
	char name[32], program[1];

	snprintf(name, sizeof(name), "/proc/%d/exe", pid);
	return readlink(name, program, sizeof(program)) < 0 && (errno == ENOENT || errno == ESRCH);
}

/* Opens an O_PATH descriptor for reading. */
static int reopen(int handle, int *ret_fd)
{
	int fd;

	status_progress();
	fd = regular_file_reopen(handle, MAX_FILE_BYTES);
	if (fd < 0)
		return -fd;
	*ret_fd = fd;
	return 0;
}

/* Returns whether this is the mapped file, as far as its inode and generation are known. */
static bool is_same_file(int fd, const struct message_image_request *mapping)
{
	struct stat status;
	int generation = 0;

	if (fstat(fd, &status) < 0 || (mapping->inode && status.st_ino != mapping->inode))
		return false;
	if (mapping->inode_generation == 0 || ioctl(fd, FS_IOC_GETVERSION, &generation) < 0)
		return true;
	return (uint32_t)generation == (uint32_t)mapping->inode_generation;
}

/* Returns whether inode and generation prove that this is the mapped file. */
static bool is_proven(int fd, const struct message_image_request *mapping)
{
	int generation = 0;

	return mapping->inode && (uint32_t)mapping->inode_generation && is_same_file(fd, mapping) &&
	       ioctl(fd, FS_IOC_GETVERSION, &generation) == 0 &&
	       (uint32_t)generation == (uint32_t)mapping->inode_generation;
}

/* Returns whether this is an overlaid file of that name. The inode is not compared, because the
 * kernel reports another inode for the file's mapping. */
static bool is_overlaid_file(int fd, const char *name)
{
	char link[32], path[PATH_MAX];
	struct statfs status;
	ssize_t length;
	size_t end = strlen(name);

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (fstatfs(fd, &status) < 0 || status.f_type != OVERLAYFS_SUPER_MAGIC)
		return false;
	length = readlink(link, path, sizeof(path));
	return length >= 0 && (size_t)length >= end && memcmp(path + length - end, name, end) == 0;
}

/* ---- Ways to open it ------------------------------------------------------------------------- */

static bool is_executable(int dir, uint64_t start, uint64_t end)
{
	CLEANUP_CLOSE int maps = openat(dir, "maps", O_RDONLY | O_CLOEXEC);
	struct uapi_procmap_query query = {
		.size = sizeof(query),
		.query_flags = UAPI_PROCMAP_QUERY_VMA_EXECUTABLE,
		.query_addr = start,
	};

	if (maps < 0)
		return false;
	if (ioctl(maps, UAPI_PROCMAP_QUERY, &query) < 0)
		return errno == ENOTTY; /* the kernel is older than 6.11 */
	return query.vma_start == start && query.vma_end == end;
}

static int open_mapping(const struct target *target, int *ret_fd)
{
	const struct message_image_request *mapping = target->mapping;
	CLEANUP_CLOSE int handle = -1;
	CLEANUP_CLOSE int fd = -1;
	char name[80];
	int failed;

	if (target->dir < 0 || mapping->end <= mapping->start)
		return ENOENT;
	snprintf(name, sizeof(name), "map_files/%" PRIx64 "-%" PRIx64, mapping->start,
		 mapping->end);
	status_progress();
	handle = openat(target->dir, name, O_PATH | O_CLOEXEC);
	if (handle < 0)
		return errno;
	if (!is_executable(target->dir, mapping->start, mapping->end))
		return EACCES;
	failed = reopen(handle, &fd);
	if (failed)
		return failed;
	/* The mapping may have been replaced by one of another file at the same address. */
	if (!is_same_file(fd, mapping) && !is_overlaid_file(fd, target->path))
		return ESTALE;
	*ret_fd = steal_fd(&fd);
	return 0;
}

static int open_below(const struct target *target, int root, int *ret_fd)
{
	CLEANUP_CLOSE int handle = -1;
	int failed;

	status_progress();
	failed = below_open(root, target->path, target->careful, &handle);
	return failed ? failed : reopen(handle, ret_fd);
}

/* Resolves the path below the root of the process and, if that fails, below our root. A process
 * that has exited probably had our root, and the kernel reports the paths of a process in a chroot
 * from our root. The caller checks whether the result is the mapped file. */
static int open_named(const struct target *target, int *ret_fd)
{
	static const char deleted[] = " (deleted)";
	size_t n = strlen(target->path);
	CLEANUP_CLOSE int root = -1;
	CLEANUP_CLOSE int ours = -1;
	int failed = ENOENT;

	if (target->path[0] != '/' ||
	    (n >= strlen(deleted) && strcmp(target->path + n - strlen(deleted), deleted) == 0))
		return ENOENT;
	if (target->dir >= 0)
		root = openat(target->dir, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root >= 0)
		failed = open_below(target, root, ret_fd);
	if (failed == 0 || (failed != ENOENT && !target->careful) ||
	    (target->config->own_only &&
	     (!target->mapping->inode || !has_ended(target->mapping->pid))))
		return failed;
	ours = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return ours < 0 ? errno : open_below(target, ours, ret_fd);
}

static int open_path(const struct target *target, int *ret_fd)
{
	CLEANUP_CLOSE int fd = -1;
	struct stat status;
	int failed = open_named(target, &fd);

	if (failed)
		return failed;
	if (!is_same_file(fd, target->mapping))
		return ESTALE;
	if (!target->client->is_self && (fstat(fd, &status) < 0 || !(status.st_mode & S_IROTH)) &&
	    !is_proven(fd, target->mapping))
		return EACCES;
	*ret_fd = steal_fd(&fd);
	return 0;
}

/* Opens the program itself by /proc/PID/exe, if its path does not lead to it any more. Only users
 * who may not read map_files need this. */
static int open_exe(const struct target *target, int *ret_fd)
{
	CLEANUP_CLOSE int handle = -1;
	CLEANUP_CLOSE int fd = -1;
	int failed;

	if (target->dir < 0 || !target->client->is_self || !target->mapping->inode ||
	    target->careful)
		return ENOENT;
	status_progress();
	handle = openat(target->dir, "exe", O_PATH | O_CLOEXEC);
	failed = handle < 0 ? errno : reopen(handle, &fd);
	if (failed)
		return failed;
	if (!is_same_file(fd, target->mapping))
		return ESTALE;
	*ret_fd = steal_fd(&fd);
	return 0;
}

/* ---- Authorization --------------------------------------------------------------------------- */

/* The client needs read permission, and either a process that maps the file or a path to it. A
 * plain user's own profd can open only what the user can reach. */
static bool client_may_have(const struct target *target, int fd)
{
	CLEANUP_CLOSE int found = -1;
	struct stat wanted, status;

	if (target->config->any_image)
		return true;
	if (!client_may_read(target->client, fd))
		return false;
	if (target->is_own &&
	    (target->is_mapped || target->client->is_self || is_proven(fd, target->mapping)))
		return true;
	found = client_find(target->client, target->path, target->careful);
	return found >= 0 && fstat(fd, &wanted) == 0 && fstat(found, &status) == 0 &&
	       wanted.st_dev == status.st_dev && wanted.st_ino == status.st_ino;
}

/* ---- Filesystems that a process serves ------------------------------------------------------- */

static bool in_our_user_namespace(int dir)
{
	struct stat ours, theirs;

	return stat("/proc/self/ns/user", &ours) == 0 && fstatat(dir, "ns/user", &theirs, 0) == 0 &&
	       ours.st_ino == theirs.st_ino;
}

/* Returns whether a process could block those who read or close the file. This is so for FUSE,
 * unless the machine's host serves it (virtiofs), and for overlays in another user namespace, which
 * a user may have put over FUSE. */
static bool is_served(int fd, int dir)
{
	struct statfs status;
	struct stat file;
	char type[MOUNTS_TYPE_BYTES];

	if (fstatfs(fd, &status) < 0 || fstat(fd, &file) < 0)
		return true;
	if (status.f_type == OVERLAYFS_SUPER_MAGIC)
		return dir < 0 || !in_our_user_namespace(dir);
	if (status.f_type != FUSE_MAGIC)
		return false;
	return !mounts_type(file.st_dev, type) || strcmp(type, "virtiofs") != 0;
}

/* Copies a file. Does not report progress, because the file's server may be arbitrarily slow. */
static int copy(int fd, uint64_t limit, int *ret_fd)
{
	CLEANUP_CLOSE int memfd = memfd_create("prof-image", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	static uint8_t buffer[128 << 10];
	uint64_t at = 0;
	ssize_t n;

	if (memfd < 0)
		return errno;
	while ((n = read(fd, buffer, sizeof(buffer))) > 0) {
		if (at + (uint64_t)n > limit)
			return EFBIG;
		if (pwrite(memfd, buffer, (size_t)n, (off_t)at) != n)
			return ENOSPC;
		at += (uint64_t)n;
	}
	if (n < 0 ||
	    fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0)
		return errno;
	*ret_fd = steal_fd(&memfd);
	return 0;
}

/* ---- Data for the engine --------------------------------------------------------------------- */

/* Returns the build-id's length; 0: no build-id, or the kernel lacks the query. */
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

/* Returns the rights that exec of the file gives. A mount option may disable them. */
static uint32_t rights_of(int fd, const struct stat *status)
{
	struct statfs mount;
	uint32_t rights = 0;

	if (fstatfs(fd, &mount) < 0 || mount.f_flags & ST_NOSUID)
		return 0;
	if (status->st_mode & S_ISUID)
		rights |= MESSAGE_IMAGE_SETUID;
	if ((status->st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP))
		rights |= MESSAGE_IMAGE_SETGID;
	if (fgetxattr(fd, "security.capability", NULL, 0) > 0)
		rights |= MESSAGE_IMAGE_CAPABILITIES;
	return rights;
}

static bool describe(int fd, struct message_image *image)
{
	struct stat status;

	if (fstat(fd, &status) < 0)
		return false;
	image->dev = status.st_dev;
	image->inode = status.st_ino;
	image->size = (uint64_t)status.st_size;
	image->ctime_ns = status.st_ctim.tv_sec * 1000000000 + status.st_ctim.tv_nsec;
	image->build_id_size = read_build_id(fd, image->build_id, sizeof(image->build_id));
	image->owner = status.st_uid;
	image->rights = rights_of(fd, &status);
	return true;
}

/* Fills in the file's identity, and replaces the file by a copy if necessary. */
static int finish(const struct target *target, uint64_t copy_bytes, int *fd,
		  struct files_answer *answer)
{
	CLEANUP_CLOSE int memfd = -1;
	int failed;

	if (!describe(*fd, &answer->image))
		return errno;
	answer->is_copy = is_served(*fd, target->dir);
	if (!answer->is_copy)
		return 0;
	failed = copy(*fd, copy_bytes, &memfd);
	if (failed)
		return failed;
	close(*fd);
	*fd = steal_fd(&memfd);
	return 0;
}

static int open_of_process(const struct files_config *config, const struct client *client,
			   const struct files_image *request, const char *path,
			   struct files_answer *answer, int *ret_fd)
{
	struct target target = {
		.config = config,
		.client = client,
		.mapping = &request->request,
		.path = path,
		.careful = request->careful,
	};
	CLEANUP_CLOSE int dir = -1;
	CLEANUP_CLOSE int fd = -1;
	char name[32];
	int failed;

	status_set_pid(request->request.pid);
	snprintf(name, sizeof(name), "/proc/%d", request->request.pid);
	target.dir = dir = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (!config->any_image)
		target.is_own = dir >= 0 && process_access_first(dir, client->uid);
	if (config->own_only && !target.is_own && !has_ended(request->request.pid))
		return dir < 0 ? ESRCH : EACCES;
	failed = target.careful ? ENOENT : open_mapping(&target, &fd);
	target.is_mapped = failed == 0;
	if (failed)
		failed = open_path(&target, &fd);
	if (failed && open_exe(&target, &fd) != 0)
		return failed;
	/* By now the process may be another user's, or it may have ended. */
	if (target.is_own && !process_access_all(dir, client->uid)) {
		if (!has_ended(request->request.pid))
			return EACCES;
		target.is_own = false;
	}
	answer->client_read = client_may_have(&target, fd);
	if (config->own_only && !answer->client_read)
		return EACCES;
	failed = finish(&target, request->copy_bytes, &fd, answer);
	if (failed)
		return failed;
	*ret_fd = steal_fd(&fd);
	return 0;
}

int image_open(const struct files_config *config, const struct client *client,
	       const struct files_image *request, const char *path, struct files_answer *answer,
	       int *ret_fd)
{
	int failed = open_of_process(config, client, request, path, answer, ret_fd);

	return failed && has_ended(request->request.pid) ? ESRCH : failed;
}
