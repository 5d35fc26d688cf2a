/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/files/buffer.h"

/* The cgroup hierarchy that perf's ids refer to. */
struct cgroups;

/* Returns NULL if no hierarchy is mounted. */
struct cgroups *cgroups_new(void);
void cgroups_free(struct cgroups *cgroups);
/* Adds a SNAPSHOT_CGROUP_DIR for each directory of the hierarchy. */
void cgroups_add_all(struct cgroups *cgroups, struct buffer *buffer);
/* Adds a record for the directory of a process, given its /proc/PID/cgroup. Does nothing if that
 * directory was added last. */
void cgroups_add_one(struct cgroups *cgroups, struct buffer *buffer, const char *text,
		     size_t length);
