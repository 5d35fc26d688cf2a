/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/files/buffer.h"

/* The hierarchy that perf's cgroup ids belong to. */
struct cgroups;

/* Returns NULL if there is no hierarchy. */
struct cgroups *cgroups_new(void);
void cgroups_free(struct cgroups *cgroups);
/* Adds a SNAPSHOT_CGROUP_DIR for each directory of the hierarchy. */
void cgroups_add_all(struct cgroups *cgroups, struct buffer *buffer);
/* Adds one for the directory of a process, whose /proc/PID/cgroup is given. Skips the directory
 * that was added last. */
void cgroups_add_one(struct cgroups *cgroups, struct buffer *buffer, const char *text,
		     size_t length);
