/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Target - holds a session's processes, and checks that they are the user's and still the same
 *
 * A pidfd is opened for each process when the session is made. Until the pidfd reports the end of
 * the process, its pid is not reused. So data read from /proc/PID before a successful check of the
 * pidfd is about this process.
 * Invariants: (1) everything is read first, and only then is the pidfd checked
 *                 [test_bus_polkit: of another process]
 *             (2) a process that the user may not trace is not the user's own
 *                 [test_bus_polkit: own is own, not dumpable]
 * process-access.c decides whether a process is the user's own.
 */
#include "config.h"

#include "daemon/broker/target.h"

#include "arch/base.h"
#include "daemon/broker/error.h"
#include "daemon/process-access.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>

#define NAMED_TARGETS 3u

struct target {
	pid_t pid;
	int pidfd;
};

struct targets {
	unsigned n;
	struct target items[];
};

int target_open(pid_t pid)
{
	return pidfd_open(pid, 0);
}

bool target_is_alive(int pidfd)
{
	struct pollfd item = { .fd = pidfd, .events = POLLIN };

	return poll(&item, 1, 0) == 0;
}

bool target_is_owned(int pidfd, pid_t pid, uid_t uid)
{
	g_autofree char *path = g_strdup_printf("/proc/%d", (int)pid);
	CLEANUP_CLOSE int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

	return dir >= 0 && process_access_all(dir, uid) && target_is_alive(pidfd);
}

bool target_inner_pid(pid_t pid, pid_t *ret_inner)
{
	g_autofree char *path = g_strdup_printf("/proc/%d/status", (int)pid);
	char line[1024];
	FILE *file = fopen(path, "re");
	bool found = false;

	*ret_inner = 0;
	while (file && !found && fgets(line, sizeof(line), file)) {
		char *last = strrchr(line, '\t');

		found = strncmp(line, "NSpid:", strlen("NSpid:")) == 0;
		if (found && last != strchr(line, '\t'))
			*ret_inner = (pid_t)strtol(last + 1, NULL, 10);
	}
	if (file)
		fclose(file);
	return found;
}

bool targets_check(const struct targets *targets, uid_t uid, GError **error)
{
	for (unsigned i = 0; i < targets->n; i++) {
		const struct target *target = &targets->items[i];
		bool own = uid == TARGETS_ANY_USER ||
			   target_is_owned(target->pidfd, target->pid, uid);

		if (!target_is_alive(target->pidfd))
			return broker_fail(error, BROKER_ERROR_FAILED, "process %d has ended",
					   (int)target->pid);
		if (!own)
			return broker_fail(error, BROKER_ERROR_NOT_AUTHORIZED,
					   "process %d is not one of user %u alone",
					   (int)target->pid, (unsigned)uid);
	}
	return true;
}

bool targets_new(const int32_t *pids, unsigned n, struct targets **ret_targets, GError **error)
{
	struct targets *targets = g_malloc(sizeof(*targets) + n * sizeof(targets->items[0]));

	for (targets->n = 0; targets->n < n; targets->n++) {
		struct target *target = &targets->items[targets->n];

		target->pid = pids[targets->n];
		target->pidfd = target_open(target->pid);
		if (target->pidfd < 0) {
			broker_fail(error, BROKER_ERROR_FAILED,
				    errno == EINVAL ? "%d is a thread; name its process"
						    : "there is no process %d",
				    (int)target->pid);
			targets_free(targets);
			return false;
		}
	}
	*ret_targets = targets;
	return true;
}

void targets_free(struct targets *targets)
{
	if (!targets)
		return;
	for (unsigned i = 0; i < targets->n; i++)
		close(targets->items[i].pidfd);
	g_free(targets);
}

char *target_name(pid_t pid)
{
	g_autofree char *path = g_strdup_printf("/proc/%d/comm", (int)pid);
	CLEANUP_CLOSE int fd = pid > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	char name[17] = "";
	ssize_t n = fd >= 0 ? read(fd, name, sizeof(name) - 1) : 0;

	name[MAX_OF(n, 0)] = '\0';
	g_strchomp(name);
	for (char *c = name; *c; c++)
		if (!g_ascii_isalnum(*c) && !strchr("_-.+:/ ", *c))
			*c = '?';
	return g_strdup(*name ? name : "?");
}

char *targets_describe(const struct targets *targets)
{
	GString *text = g_string_new(NULL);
	unsigned named = MIN_OF(targets->n, NAMED_TARGETS);

	for (unsigned i = 0; i < named; i++) {
		g_autofree char *name = target_name(targets->items[i].pid);

		g_string_append_printf(text, "%s%s (%d)", i ? ", " : "", name,
				       (int)targets->items[i].pid);
	}
	if (named < targets->n)
		g_string_append_printf(text, " +%u", targets->n - named);
	return g_string_free(text, FALSE);
}
