/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Process access - decides which user may access a process, for profd and profd-files
 *
 * Applies the kernel's rules for ptrace and perf (kernel/ptrace.c: __ptrace_may_access) for a user
 * who is not the caller. A process is a user's if all uids of all its threads are the user's, all
 * gids of each thread are equal, it is dumpable, and, unless the user is root, it has no
 * capability. If a process is not dumpable, root owns its files in /proc/PID; the directory itself
 * always belongs to the effective user.
 * Capabilities in another user namespace are ignored if the user created that namespace, or its
 * ancestor directly below ours: the user has all capabilities there (security/commoncap.c:
 * cap_capable). In a namespace that another user made, even a process without capabilities is not
 * the user's.
 * The directory's descriptor refers to one process, never to a later one with the same pid.
 * Invariants: (1) a process that cannot be inspected belongs to no user
 *                 [test-process-access: gone]
 *             (2) one thread that is not the user's makes the process not the user's
 *                 [test-process-access: not_the_users]
 *             (3) in a user namespace, a process is the user's only if the namespace is, too
 *                 [test-process-access: namespaces]
 */
#include "daemon/process-access.h"

#include "arch/base.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/nsfs.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#define MAX_NAMESPACES 33 /* nesting limit: kernel/user_namespace.c */

/* From /proc/PID/task/TID/status. */
struct thread {
	char state;
	unsigned uids[4], gids[4]; /* real, effective, saved, filesystem */
	unsigned long long capabilities;
};

static void close_dir(DIR **dir)
{
	if (*dir)
		closedir(*dir);
}

static void close_file(FILE **file)
{
	if (*file)
		fclose(*file);
}

/* ---- User namespaces ------------------------------------------------------------------------- */

static bool is_our_namespace(int namespace)
{
	struct stat ours, theirs;

	return stat("/proc/self/ns/user", &ours) == 0 && fstat(namespace, &theirs) == 0 &&
	       ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

/* Returns whether the user created this namespace, or its ancestor directly below ours. Takes
 * ownership of the descriptor. */
static bool rules_namespace(int namespace, uid_t uid)
{
	CLEANUP_CLOSE int at = namespace;
	uid_t owner;

	for (unsigned i = 0; i < MAX_NAMESPACES; i++) {
		CLEANUP_CLOSE int parent = ioctl(at, NS_GET_PARENT);

		if (parent < 0)
			return false;
		if (is_our_namespace(parent))
			return ioctl(at, NS_GET_OWNER_UID, &owner) == 0 && owner == uid;
		close(at);
		at = steal_fd(&parent);
	}
	return false;
}

/* Returns whether the user namespace of the process, which all its threads share, is ours or ruled
 * by the user. *ret_is_ours: it is ours, so capabilities in it matter. */
static bool check_namespace(int dir, uid_t uid, bool *ret_is_ours)
{
	CLEANUP_CLOSE int namespace = openat(dir, "ns/user", O_RDONLY | O_CLOEXEC);

	if (namespace < 0)
		return false;
	*ret_is_ours = is_our_namespace(namespace);
	return *ret_is_ours || rules_namespace(steal_fd(&namespace), uid);
}

/* ---- Threads --------------------------------------------------------------------------------- */

static bool is_one_id(const unsigned ids[4])
{
	return ids[0] == ids[1] && ids[0] == ids[2] && ids[0] == ids[3];
}

static bool read_ids(const char *line, const char *key, unsigned ret_ids[4])
{
	size_t length = strlen(key);

	return strncmp(line, key, length) == 0 &&
	       sscanf(line + length, "%u %u %u %u", &ret_ids[0], &ret_ids[1], &ret_ids[2],
		      &ret_ids[3]) == 4;
}

/* Each key occurs once, in this order; the kernel escapes newlines in names. */
static bool read_status(int tasks, const char *tid, struct thread *ret_thread)
{
	char path[NAME_MAX + sizeof("/status")];
	CLEANUP_FREE char *line = NULL;
	CLEANUP(close_file) FILE *file = NULL;
	bool uids = false, gids = false;
	size_t size = 0;
	int fd;

	snprintf(path, sizeof(path), "%s/status", tid);
	fd = openat(tasks, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	file = fd >= 0 ? fdopen(fd, "r") : NULL;
	if (fd >= 0 && !file)
		close(fd);
	while (file && getline(&line, &size, file) > 0) {
		if (strncmp(line, "State:\t", 7) == 0)
			ret_thread->state = line[7];
		uids = uids || read_ids(line, "Uid:", ret_thread->uids);
		gids = gids || read_ids(line, "Gid:", ret_thread->gids);
		if (sscanf(line, "CapPrm: %llx", &ret_thread->capabilities) == 1)
			return uids && gids;
	}
	return false;
}

enum verdict { FOREIGN, OWNED, ENDED };

static enum verdict judge_thread(int tasks, const char *tid, uid_t uid, bool capabilities_count)
{
	struct thread thread = { 0 };
	struct stat file;
	char path[NAME_MAX + sizeof("/status")];

	if (!read_status(tasks, tid, &thread))
		return fstatat(tasks, tid, &file, AT_SYMLINK_NOFOLLOW) < 0 ? ENDED : FOREIGN;
	if (thread.state == 'Z' || thread.state == 'X')
		return ENDED;
	if (!is_one_id(thread.uids) || thread.uids[0] != uid || !is_one_id(thread.gids))
		return FOREIGN;
	if (capabilities_count && thread.capabilities)
		return FOREIGN;
	snprintf(path, sizeof(path), "%s/stat", tid);
	if (fstatat(tasks, path, &file, AT_SYMLINK_NOFOLLOW) < 0 || file.st_uid != uid)
		return FOREIGN;
	return OWNED;
}

/* A fast check that comes first, because most processes of a machine belong to other users. */
static bool may_be(int dir, uid_t uid)
{
	struct stat folder;

	return fstat(dir, &folder) == 0 && folder.st_uid == uid;
}

bool process_access_first(int dir, uid_t uid)
{
	bool is_ours;
	enum verdict verdict;

	if (!may_be(dir, uid) || !check_namespace(dir, uid, &is_ours))
		return false;
	verdict = judge_thread(dir, ".", uid, is_ours && uid != 0);
	/* The leader may have ended before the other threads. */
	return verdict == OWNED || (verdict == ENDED && process_access_all(dir, uid));
}

bool process_access_all(int dir, uid_t uid)
{
	CLEANUP(close_dir) DIR *tasks = NULL;
	bool owned = false, is_ours = true;
	struct dirent *entry;
	int fd;

	if (!may_be(dir, uid) || !check_namespace(dir, uid, &is_ours))
		return false;
	fd = openat(dir, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	tasks = fd >= 0 ? fdopendir(fd) : NULL;
	if (fd >= 0 && !tasks)
		close(fd);
	while (tasks && (entry = readdir(tasks))) {
		enum verdict verdict;

		if (entry->d_name[0] == '.')
			continue;
		verdict = judge_thread(fd, entry->d_name, uid, is_ours && uid != 0);
		if (verdict == FOREIGN)
			return false;
		owned = owned || verdict == OWNED;
	}
	return owned;
}
