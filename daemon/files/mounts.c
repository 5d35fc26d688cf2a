/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Mounts - finds the type of a file's filesystem
 *
 * Reads /proc/self/mountinfo, which no server can delay. Mounts of other namespaces are not in it,
 * and count as not local.
 */
#include "daemon/files/mounts.h"

#include "arch/base.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

struct mount {
	unsigned long long id;
	dev_t dev;
	char type[MOUNTS_TYPE_BYTES];
};

static bool parse(const char *line, struct mount *ret_mount)
{
	const char *right = strstr(line, " - ");
	unsigned int major_number, minor_number;

	if (!right ||
	    sscanf(line, "%llu %*d %u:%u", &ret_mount->id, &major_number, &minor_number) != 3 ||
	    sscanf(right, " - %63s", ret_mount->type) != 1)
		return false;
	ret_mount->dev = makedev(major_number, minor_number);
	return true;
}

static bool find(bool (*fits)(const struct mount *mount, const void *wanted), const void *wanted,
		 char ret_type[MOUNTS_TYPE_BYTES])
{
	FILE *file = fopen("/proc/self/mountinfo", "re");
	CLEANUP_FREE char *line = NULL;
	struct mount mount;
	size_t size = 0;
	bool found = false;

	while (file && !found && getline(&line, &size, file) > 0)
		found = parse(line, &mount) && fits(&mount, wanted);
	if (file)
		fclose(file);
	if (found)
		memcpy(ret_type, mount.type, MOUNTS_TYPE_BYTES);
	return found;
}

static bool has_dev(const struct mount *mount, const void *wanted)
{
	return mount->dev == *(const dev_t *)wanted;
}

static bool has_id(const struct mount *mount, const void *wanted)
{
	return mount->id == *(const unsigned long long *)wanted;
}

bool mounts_type(dev_t dev, char ret_type[MOUNTS_TYPE_BYTES])
{
	return find(has_dev, &dev, ret_type);
}

static bool get_mount_id(int folder, const char *path, int flags, unsigned long long *ret_id)
{
	struct statx status;

	if (statx(folder, path, flags | AT_STATX_DONT_SYNC, STATX_MNT_ID, &status) < 0 ||
	    !(status.stx_mask & STATX_MNT_ID))
		return false;
	*ret_id = status.stx_mnt_id;
	return true;
}

bool mounts_is_local(int handle)
{
	static const char *const types[] = { "ext2",  "ext3",     "ext4",  "xfs",
					     "btrfs", "f2fs",     "zfs",   "tmpfs",
					     "ramfs", "bcachefs", "erofs", "squashfs" };
	char type[MOUNTS_TYPE_BYTES];
	unsigned long long id, root;

	if (!get_mount_id(handle, "", AT_EMPTY_PATH, &id))
		return false;
	if (get_mount_id(AT_FDCWD, "/", 0, &root) && id == root)
		return true;
	if (!find(has_id, &id, type))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (strcmp(type, types[i]) == 0)
			return true;
	return false;
}
