/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Regular file - checks an untrusted path, then opens it
 *
 * Invariant: only regular files are opened, but no files of procfs, sysfs and similar
 * [test-regular-file: others]
 */
#include "arch/regular-file.h"

#include "arch/base.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define OPEN_FLAGS (O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)

bool regular_file_is_made_up(int handle)
{
	static const long magics[] = {
		PROC_SUPER_MAGIC, SYSFS_MAGIC,        DEBUGFS_MAGIC,       TRACEFS_MAGIC,
		SECURITYFS_MAGIC, CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, BPF_FS_MAGIC,
		EFIVARFS_MAGIC,   BINFMTFS_MAGIC,     SELINUX_MAGIC,       PSTOREFS_MAGIC,
	};
	struct statfs status;

	if (fstatfs(handle, &status) < 0)
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(magics); i++)
		if ((long)status.f_type == magics[i])
			return true;
	return false;
}

static int open_number(int handle)
{
	char path[] = "/proc/self/fd/\0\0\0\0\0\0\0\0\0\0";
	size_t at = strlen(path);
	int fd, power = 1;

	while (handle / power >= 10)
		power *= 10;
	for (; power > 0; power /= 10)
		path[at++] = (char)('0' + handle / power % 10);
	fd = open(path, OPEN_FLAGS);
	return fd < 0 ? -errno : fd;
}

int regular_file_reopen(int handle, uint64_t max_bytes)
{
	struct stat status;

	if (fstat(handle, &status) < 0)
		return -errno;
	if (!S_ISREG(status.st_mode) || regular_file_is_made_up(handle))
		return -EINVAL;
	if ((uint64_t)status.st_size > max_bytes)
		return -EFBIG;
	return open_number(handle);
}

int regular_file_open(int root, const char *path)
{
	const struct open_how how = { .flags = O_PATH | O_CLOEXEC,
				      .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
	CLEANUP_CLOSE int handle =
		root < 0 ? open(path, O_PATH | O_CLOEXEC)
			 : (int)syscall(SYS_openat2, root, path, &how, sizeof(how));

	return handle < 0 ? -errno : regular_file_reopen(handle, UINT64_MAX);
}
