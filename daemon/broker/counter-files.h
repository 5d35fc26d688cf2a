/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/protocol.h"

#include <gio/gio.h>
#include <stdbool.h>

/* The groups that option "counters" can name. In a set of groups, bit i is set for group i. */
enum counter_group {
	COUNTER_GROUP_CPU,
	COUNTER_GROUP_FREQUENCY,
	COUNTER_GROUP_PRESSURE,
	COUNTER_GROUP_MEMORY,
	COUNTER_GROUP_DISK,
	COUNTER_GROUP_NETWORK,
	COUNTER_GROUP_CGROUP,
	COUNTER_GROUP_ENERGY,
	COUNTER_GROUP_TEMPERATURE,
	COUNTER_GROUP_PROCESS,
	COUNTER_GROUPS
};

/* Parses names of groups, or "all", into a set of groups. */
bool counter_groups_parse(GVariant *names, uint32_t *ret_groups, GError **error);

/* Open files of the kernel that have counters. */
struct counter_files {
	unsigned n;
	int fds[MAX_COUNTER_FILES];
	struct message_counter_file files[MAX_COUNTER_FILES];
};

/* Opens the files of the groups. `pid`: the process whose cgroup and network are counted; 0: the
 * network of the machine's first process, and no cgroup. `is_public`: open only files that every
 * user may read. Returns the names of groups without a file, such as "energy, cgroup", or NULL;
 * free with g_free(). */
char *counter_files_open(struct counter_files *files, uint32_t groups, pid_t pid, bool is_public);
void counter_files_close(struct counter_files *files);
