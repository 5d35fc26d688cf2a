/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Sandbox - drops every privilege that the engine does not need
 *
 * The engine reads untrusted bytes, so an attacker who takes it over must gain nothing. If root
 * starts it, it becomes user `profd`, or a user id without an account if that user does not exist,
 * unless its user namespace has only one id. It keeps no capabilities and cannot gain any by exec;
 * it can be neither traced nor dumped; and the filter kills it at the first system call outside the
 * list. The broker sends descriptors over the socket: the engine itself cannot open, connect or
 * execute anything.
 * Memory is limited: at the limit malloc() fails, the engine ends, and the broker reports it; the
 * file is readable up to its last block  [test_attack_memory].
 * libc opens its message catalog when it first translates an error or a failed assertion. For
 * errors the engine avoids this (prof_strerror() opens no files). A failed assertion must not look
 * like an attack, so its text is translated once before the filter is installed.
 * Invariants: (1) open, connect, socket, execve, ptrace, clone fail, or kill the engine
 *                 [test-engine-sandbox]
 *             (2) after sandbox_drop_privileges no capability set has a bit, except the bounding
 *                 set without CAP_SETPCAP  [test-engine-sandbox]
 *             (3) memory is never executable                                  [test-engine-sandbox]
 *             (4) memory, processes and the file's size are limited  [test-engine-sandbox: limits]
 *             (5) a failure is reported; the filter allows this  [test-engine-sandbox: errors]
 */
#include "config.h"

#include "daemon/engine/session/sandbox.h"

#include "arch/base.h"
#include "arch/uapi.h"
#include "daemon/filter.h"
#include "daemon/protocol.h"
#include "libcapture/prof-capture.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <grp.h>
#include <libintl.h>
#include <linux/capability.h>
#include <linux/perf_event.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define USER_NAME "profd"
/* An id without an account, below the range that systemd allocates. Another service must not share
 * it, because kernel limits (locked memory of rings) are per user, and processes of one user have
 * rights over each other. */
#define ENGINE_ID 61183
/* A capture may exceed its limit by the size of the writer's queue, because session.c checks the
 * limit only between its jobs. */
#define FILE_SLACK_BYTES (UINT64_C(128) << 20)

static bool fail(GError **error, const char *what, int number)
{
	g_set_error(error, G_FILE_ERROR, g_file_error_from_errno(number), "%s failed: %s", what,
		    prof_strerror(-number));
	return false;
}

/* Reads /etc/passwd directly. A name service would load libraries and connect to servers. */
static uid_t find_user(gid_t *ret_gid)
{
	FILE *passwd = fopen("/etc/passwd", "re");
	struct passwd *entry = NULL;
	uid_t uid = ENGINE_ID;

	*ret_gid = ENGINE_ID;
	while (passwd && (entry = fgetpwent(passwd)) != NULL)
		if (strcmp(entry->pw_name, USER_NAME) == 0 && entry->pw_uid != 0)
			break;
	if (entry) {
		uid = entry->pw_uid;
		*ret_gid = entry->pw_gid;
	}
	if (passwd)
		fclose(passwd);
	return uid;
}

static bool leave_root(GError **error)
{
	gid_t gid;
	uid_t uid = find_user(&gid);

	if (setgroups(0, NULL) != 0)
		return fail(error, "Leaving all groups", errno);
	if (setresgid(gid, gid, gid) != 0)
		return fail(error, "Changing the group", errno);
	if (setresuid(uid, uid, uid) != 0)
		return fail(error, "Changing the user", errno);
	if (getuid() == 0 || geteuid() == 0)
		return fail(error, "Leaving root", EPERM);
	return true;
}

/* Returns whether this user namespace has only one id, so there is no other user to change to. */
static bool is_alone_in_namespace(void)
{
	unsigned long long inside, outside, count;
	FILE *map = fopen("/proc/self/uid_map", "re");
	bool alone = map && fscanf(map, "%llu %llu %llu", &inside, &outside, &count) == 3 &&
		     count == 1 && fscanf(map, "%llu", &inside) != 1;

	if (map)
		fclose(map);
	return alone;
}

static bool limit_at(__rlimit_resource_t resource, uint64_t most)
{
	struct rlimit limit;

	if (getrlimit(resource, &limit) != 0)
		return false;
	limit.rlim_max = MIN_OF(limit.rlim_max, (rlim_t)most);
	limit.rlim_cur = MIN_OF(limit.rlim_cur, limit.rlim_max);
	return setrlimit(resource, &limit) == 0;
}

static bool limit_resources(uint64_t max_bytes, GError **error)
{
	struct rlimit files;

	if (!limit_at(RLIMIT_CORE, 0))
		return fail(error, "Forbidding core dumps", errno);
	/* A sanitizer's shadow memory exceeds the limit. */
	if (!PROF_SANITIZED && !limit_at(RLIMIT_DATA, ENGINE_MEMORY_BYTES))
		return fail(error, "Limiting memory", errno);
	if (max_bytes && !limit_at(RLIMIT_FSIZE, max_bytes + FILE_SLACK_BYTES))
		return fail(error, "Limiting the size of files", errno);
	if (getrlimit(RLIMIT_NOFILE, &files) != 0)
		return fail(error, "Reading the limit of descriptors", errno);
	/* The broker sends a descriptor for each event, that is, for each CPU and source. */
	files.rlim_cur = files.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &files) != 0)
		return fail(error, "Raising the limit of descriptors", errno);
	return true;
}

bool sandbox_drop_privileges(uint64_t max_bytes, GError **error)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { 0 };

	/* Dropping these fails without CAP_SETPCAP, but PR_SET_NO_NEW_PRIVS is enough then. */
	for (int capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; capability++)
		(void)prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (geteuid() == 0 && !is_alone_in_namespace() && !leave_root(error))
		return false;
	if (syscall(SYS_capset, &header, none) != 0)
		return fail(error, "Dropping all capabilities", errno);
	if (!limit_resources(max_bytes, error))
		return false;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		return fail(error, "Forbidding new privileges", errno);
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
		return fail(error, "Forbidding to be traced", errno);
	return true;
}

static const int allowed_calls[] = {
	SCMP_SYS(readv),
	SCMP_SYS(pread64),
	SCMP_SYS(write),
	SCMP_SYS(writev),
	SCMP_SYS(pwritev),
	SCMP_SYS(fallocate),
	SCMP_SYS(fdatasync),
	SCMP_SYS(fsync),
	SCMP_SYS(sync_file_range),
	SCMP_SYS(flock),
	SCMP_SYS(sched_yield),
	SCMP_SYS(sched_getaffinity),
	SCMP_SYS(clock_getres),
	SCMP_SYS(clock_nanosleep),
	SCMP_SYS(nanosleep),
	SCMP_SYS(poll),
	SCMP_SYS(ppoll),
	SCMP_SYS(epoll_create1),
	SCMP_SYS(epoll_wait),
	SCMP_SYS(epoll_pwait),
	SCMP_SYS(epoll_ctl),
	SCMP_SYS(rseq),
	SCMP_SYS(set_robust_list),
	/* for the arenas of collectors and their doorbells */
	SCMP_SYS(futex_waitv),
};

static const struct filter_rule allowed_with[] = {
	{ SCMP_SYS(shutdown), SCMP_A1_64(SCMP_CMP_EQ, SHUT_RD, 0) },
	{ SCMP_SYS(ioctl), SCMP_A1_64(SCMP_CMP_EQ, PERF_EVENT_IOC_ENABLE, 0) },
	{ SCMP_SYS(ioctl), SCMP_A1_64(SCMP_CMP_EQ, PERF_EVENT_IOC_DISABLE, 0) },
	{ SCMP_SYS(ioctl), SCMP_A1_64(SCMP_CMP_EQ, PERF_EVENT_IOC_SET_OUTPUT, 0) },
	{ SCMP_SYS(ioctl), SCMP_A1_64(SCMP_CMP_EQ, PERF_EVENT_IOC_PERIOD, 0) },
	{ SCMP_SYS(ioctl), SCMP_A1_64(SCMP_CMP_EQ, UAPI_PIDFD_GET_INFO, 0) },
	{ SCMP_SYS(fcntl), SCMP_A1_64(SCMP_CMP_EQ, F_SETFL, 0) },
	{ SCMP_SYS(fcntl), SCMP_A1_64(SCMP_CMP_EQ, F_GETFD, 0) },
	{ SCMP_SYS(fcntl), SCMP_A1_64(SCMP_CMP_EQ, F_DUPFD_CLOEXEC, 0) },
	{ SCMP_SYS(prctl), SCMP_A0_64(SCMP_CMP_EQ, PR_SET_NAME, 0) },
	/* fstat() of libc; the call can query a path, but not open the file */
	{ SCMP_SYS(newfstatat), SCMP_A3_64(SCMP_CMP_EQ, AT_EMPTY_PATH, 0) },
	/* send() of libc is sendto() without an address */
	{ SCMP_SYS(sendto), SCMP_A4_64(SCMP_CMP_EQ, 0, 0) },
};

bool sandbox_filter(GError **error)
{
	const struct filter_calls allowed = { SCMP_ACT_ALLOW, allowed_calls,
					      ARRAY_SIZE(allowed_calls) };
	const struct filter filter = {
		.otherwise = SCMP_ACT_KILL_PROCESS,
		.lists = &allowed,
		.n_lists = 1,
		.rules = allowed_with,
		.n_rules = ARRAY_SIZE(allowed_with),
	};
	int r;

	(void)dgettext("libc", "Assertion");
	/* All threads have been created. */
	if (!limit_at(RLIMIT_NPROC, 0))
		return fail(error, "Limiting processes", errno);
	r = filter_load(&filter);
	if (r != 0)
		return fail(error, "Filtering system calls", -r);
	return true;
}
