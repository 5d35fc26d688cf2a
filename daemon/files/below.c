/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Below - opens a file by an untrusted path
 *
 * Like openat2() with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS, but with one openat() for each name.
 * The flags of openat2() are in memory, so a filter that allows openat2() cannot prevent opening
 * for writing (sandbox.c). Opens only handles (O_PATH).
 * Invariants: (1) the result is below the root, even if files are renamed meanwhile
 *                 [test-files: links]
 *             (2) no link is followed, not even one of /proc  [test-files: links]
 *             (3) with `careful`, no file server is accessed  [test-files: careful]
 */
#include "daemon/files/below.h"

#include "arch/base.h"
#include "daemon/files/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

static int step(int folder, const char *name, bool careful, int *ret_handle)
{
	int handle = openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct stat status;

	if (handle < 0)
		return errno;
	if (careful && !mounts_is_local(handle)) {
		close(handle);
		return EACCES;
	}
	if (fstat(handle, &status) < 0 || S_ISLNK(status.st_mode)) {
		close(handle);
		return ELOOP;
	}
	*ret_handle = handle;
	return 0;
}

int below_open(int root, const char *path, bool careful, int *ret_handle)
{
	CLEANUP_CLOSE int at = openat(root, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char name[NAME_MAX + 1];
	int failed = at < 0 ? errno : 0, next = -1;

	if (failed == 0 && careful && !mounts_is_local(at))
		return EACCES;
	for (; failed == 0; path += strlen(name)) {
		path += strspn(path, "/");
		if (*path == '\0')
			break;
		if (strcspn(path, "/") > NAME_MAX)
			return ENAMETOOLONG;
		memcpy(name, path, strcspn(path, "/"));
		name[strcspn(path, "/")] = '\0';
		if (strcmp(name, "..") == 0)
			return EXDEV;
		failed = step(at, name, careful, &next);
		if (failed == 0) {
			close(at);
			at = next;
		}
	}
	if (failed == 0)
		*ret_handle = steal_fd(&at);
	return failed;
}
