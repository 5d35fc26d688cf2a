/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Client - checks what a session's user may read
 *
 * Queries the kernel with that user's ids and groups, without the capabilities that bypass
 * permissions, so that ACLs and security modules apply. Nothing else is done between
 * rights_acquire() and rights_give_back().
 * Invariants: (1) after acquiring the user's rights, the process restores its own, or ends
 *                 [test-files: client]
 */
#include "daemon/files/client.h"

#include "arch/base.h"
#include "daemon/files/below.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>

#define NOGROUP 65534
#define BIT(capability) (1u << (capability))
/* The capabilities that bypass checks of a file's owner or mode; all numbers are below 32. */
#define OVERRIDES                                                                                  \
	(BIT(CAP_DAC_OVERRIDE) | BIT(CAP_DAC_READ_SEARCH) | BIT(CAP_FOWNER) | BIT(CAP_SYS_ADMIN) | \
	 BIT(CAP_CHOWN) | BIT(CAP_FSETID))

void client_init(struct client *client, uid_t uid)
{
	FILE *file = fopen("/etc/passwd", "re");
	CLEANUP_FREE char *name = NULL;
	struct passwd *entry;
	struct group *group;

	*client = (struct client){ .uid = uid, .gid = NOGROUP, .is_self = geteuid() != 0 };
	while (file && !name && (entry = fgetpwent(file)) != NULL) {
		if (entry->pw_uid != uid)
			continue;
		name = strdup(entry->pw_name);
		client->gid = entry->pw_gid;
	}
	if (file)
		fclose(file);
	file = name ? fopen("/etc/group", "re") : NULL;
	while (file && (group = fgetgrent(file)) != NULL)
		for (char **member = group->gr_mem; member && *member; member++)
			if (strcmp(*member, name) == 0 && client->n_groups < CLIENT_MAX_GROUPS)
				client->groups[client->n_groups++] = group->gr_gid;
	if (file)
		fclose(file);
}

static void capabilities(struct __user_cap_data_struct data[2], bool set)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };

	if (syscall(set ? SYS_capset : SYS_capget, &header, data) < 0)
		abort();
}

/* Acquires the user's rights; ret_before is for rights_give_back(). If it returns false, nothing
 * has changed. */
static bool rights_acquire(const struct client *client, struct __user_cap_data_struct ret_before[2])
{
	struct __user_cap_data_struct data[2];

	capabilities(ret_before, false);
	if (setgroups(client->n_groups, client->groups) < 0)
		return false;
	setfsgid(client->gid);
	setfsuid(client->uid);
	/* Set the capabilities after the ids, because changing the ids also changes them. */
	capabilities(data, false);
	if (client->uid != 0)
		data[0].effective &= ~OVERRIDES;
	capabilities(data, true);
	if ((uid_t)setfsuid((uid_t)-1) != client->uid || (gid_t)setfsgid((gid_t)-1) != client->gid)
		abort();
	return true;
}

static void rights_give_back(struct __user_cap_data_struct before[2])
{
	setfsuid(geteuid());
	setfsgid(getegid());
	capabilities(before, true);
	if (setgroups(0, NULL) < 0 || (uid_t)setfsuid((uid_t)-1) != geteuid())
		abort();
}

bool client_may_read(const struct client *client, int fd)
{
	struct __user_cap_data_struct before[2];
	long r;

	if (client->is_self)
		return syscall(SYS_faccessat2, fd, "", R_OK, AT_EMPTY_PATH | AT_EACCESS) == 0;
	if (!rights_acquire(client, before))
		return false;
	r = syscall(SYS_faccessat2, fd, "", R_OK, AT_EMPTY_PATH | AT_EACCESS);
	rights_give_back(before);
	return r == 0;
}

int client_find(const struct client *client, const char *path, bool careful)
{
	CLEANUP_CLOSE int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct __user_cap_data_struct before[2];
	int failed, fd = -1;

	if (root < 0)
		return -1;
	if (client->is_self)
		return below_open(root, path, careful, &fd) ? -1 : fd;
	if (!rights_acquire(client, before))
		return -1;
	failed = below_open(root, path, careful, &fd);
	rights_give_back(before);
	return failed ? -1 : fd;
}
