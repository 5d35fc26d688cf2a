/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Owner - whose process this is
 *
 * The folder /proc/PID always belongs to the effective uid; its files belong to root where the process is not dumpable, and
 * that is the kernel's own answer to "may this user look into it". The folder's descriptor stands for one process: it
 * does not lead to the next one of the same number.
 */
#include "daemon/files/owner.h"

#include <fcntl.h>
#include <sys/stat.h>

bool owner_get(int dir, uid_t *ret_uid)
{
	struct stat status;

	if (fstatat(dir, "maps", &status, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	*ret_uid = status.st_uid;
	return true;
}

bool owner_is(int dir, uid_t uid)
{
	uid_t owner;

	return owner_get(dir, &owner) && owner == uid;
}
