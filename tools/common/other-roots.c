/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Other roots - the / of recorded processes, if it is not ours
 *
 * A root is a folder in a mount namespace: it counts as known only if both match. A pid may belong
 * to another process by now, but files below its root are compared with the recorded ones anyway.
 */
#include "config.h"

#include "tools/common/other-roots.h"

#include "arch/base.h"

#include <fcntl.h>
#include <glib.h>
#include <inttypes.h>
#include <sys/stat.h>

#define MAX_ROOTS 64

struct root {
	uint64_t dev, inode, mounts;
};

/* Asks only the kernel, because a file system may not answer. */
static bool look_at(const char *process, const char *name, struct statx *ret_status)
{
	g_autofree char *path = g_strdup_printf("/proc/%s/%s", process, name);

	return statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_INO, ret_status) == 0;
}

/* Returns false if the process has ended or access is denied. */
static bool read_root(const char *process, struct root *ret_root)
{
	struct statx root, mounts;

	if (!look_at(process, "root", &root) || !look_at(process, "ns/mnt", &mounts))
		return false;
	*ret_root = (struct root){ .dev = (uint64_t)root.stx_dev_major << 32 | root.stx_dev_minor,
				   .inode = root.stx_ino,
				   .mounts = mounts.stx_ino };
	return true;
}

static bool is_known(const GArray *known, const struct root *root)
{
	for (guint i = 0; i < known->len; i++)
		if (memcmp(&g_array_index(known, struct root, i), root, sizeof(*root)) == 0)
			return true;
	return false;
}

void other_roots_add(const struct names *names, struct debug_files *files)
{
	g_autoptr(GArray) known = g_array_new(FALSE, FALSE, sizeof(struct root));
	struct root root;

	if (!read_root("self", &root))
		return;
	g_array_append_val(known, root);
	for (guint i = NAMES_LOST + 1; i < names->processes->len && known->len <= MAX_ROOTS; i++) {
		g_autofree char *pid = g_strdup_printf("%" PRIu64, names_process_at(names, i)->pid);
		g_autofree char *folder = g_strdup_printf("/proc/%s/root", pid);
		struct debug_files *other;

		if (!read_root(pid, &root) || is_known(known, &root))
			continue;
		g_array_append_val(known, root);
		other = debug_files_new(folder, NULL);
		if (other)
			debug_files_add_other(files, other);
	}
}
