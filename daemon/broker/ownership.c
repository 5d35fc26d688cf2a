/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Ownership - whether a process is wholly its user's
 *
 * The rules of the kernel for ptrace and perf (kernel/ptrace.c: __ptrace_may_access), for a user who is not the caller: a
 * process is a user's when all ids of all its threads say so, when it has no capability, and when it is dumpable. The
 * kernel shows the last by the owner of the files in /proc/PID, which is root otherwise; not by that of the
 * folder itself, which is always the effective user.
 * A process that has capabilities in a user namespace of its own is not recognised, and counts as not the user's.
 * Invariants: (1) a process that cannot be looked at is nobody's        [test-ownership: gone]
 *             (2) what is said of a number is said of the pidfd's process, which is alive afterwards
 */
#include "config.h"

#include "daemon/broker/ownership.h"

#include "arch/base.h"

#include <dirent.h>
#include <fcntl.h>
#include <glib.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>

#define MAX_STATUS_BYTES (1u << 20) /* the groups alone may be 65536 */

int target_open(pid_t pid)
{
	return pidfd_open(pid, 0);
}

bool target_is_alive(int pidfd)
{
	struct pollfd item = { .fd = pidfd, .events = POLLIN };

	return poll(&item, 1, 0) == 0;
}

/* NUL-terminated, or NULL. */
static char *read_file(int dir, const char *path)
{
	CLEANUP_CLOSE int fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	g_autoptr(GString) text = g_string_sized_new(4096);
	char part[4096];
	ssize_t n;

	if (fd < 0)
		return NULL;
	while ((n = read(fd, part, sizeof(part))) > 0 && text->len < MAX_STATUS_BYTES)
		g_string_append_len(text, part, n);
	return n == 0 ? g_string_free(g_steal_pointer(&text), FALSE) : NULL;
}

/* What stands behind "KEY:\t" at the start of a line. The kernel escapes newlines in names. */
static const char *find_value(const char *status, const char *key)
{
	size_t length = strlen(key);

	for (; status; status = strchr(status, '\n')) {
		status += *status == '\n';
		if (strncmp(status, key, length) == 0 && status[length] == ':')
			return status + length + 1;
	}
	return NULL;
}

/* Real, effective, saved and file system id are one; *ret_id is that. */
static bool is_one_id(const char *status, const char *key, uid_t *ret_id)
{
	const char *value = find_value(status, key);
	unsigned ids[4];

	if (!value || sscanf(value, "%u %u %u %u", &ids[0], &ids[1], &ids[2], &ids[3]) != 4 ||
	    ids[0] != ids[1] || ids[0] != ids[2] || ids[0] != ids[3])
		return false;
	*ret_id = ids[0];
	return true;
}

enum verdict { FOREIGN, OWNED, ENDED };

static enum verdict judge_thread(int tasks, const char *tid, uid_t uid)
{
	g_autofree char *path = g_strconcat(tid, "/status", NULL);
	g_autofree char *stat_path = g_strconcat(tid, "/stat", NULL);
	g_autofree char *status = read_file(tasks, path);
	const char *state = status ? find_value(status, "State") : NULL;
	const char *capabilities = status ? find_value(status, "CapPrm") : NULL;
	uid_t owner, group;
	struct stat file;

	/* it ended meanwhile */
	if (!status)
		return faccessat(tasks, tid, F_OK, AT_SYMLINK_NOFOLLOW) < 0 ? ENDED : FOREIGN;
	if (state && (state[1] == 'Z' || state[1] == 'X'))
		return ENDED;
	if (!is_one_id(status, "Uid", &owner) || owner != uid || !is_one_id(status, "Gid", &group))
		return FOREIGN;
	if (uid != 0 && (!capabilities || strtoull(capabilities, NULL, 16) != 0))
		return FOREIGN;
	if (fstatat(tasks, stat_path, &file, AT_SYMLINK_NOFOLLOW) < 0 || file.st_uid != uid)
		return FOREIGN;
	return OWNED;
}

static void close_dir(DIR **dir)
{
	if (*dir)
		closedir(*dir);
}

bool target_is_owned(int pidfd, pid_t pid, uid_t uid)
{
	CLEANUP(close_dir) DIR *tasks = NULL;
	bool owned = false;
	struct dirent *entry;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	tasks = opendir(path);
	while (tasks && (entry = readdir(tasks))) {
		enum verdict verdict;

		if (!g_ascii_isdigit(entry->d_name[0]))
			continue;
		verdict = judge_thread(dirfd(tasks), entry->d_name, uid);
		if (verdict == FOREIGN)
			return false;
		owned = owned || verdict == OWNED;
	}
	return owned && target_is_alive(pidfd);
}
