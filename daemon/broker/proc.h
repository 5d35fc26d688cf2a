/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <gio/gio.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Reads what is known about one process (pid), or about all of them, the cgroups and the kernel's modules (pid 0),
 * into a sealed memfd of snapshot records (daemon/protocol.h). A process that is gone leaves no record. Blocks for
 * some 50 us a process; safe on any thread. */
bool proc_snapshot(pid_t pid, int *ret_memfd, GError **error);

/* Records in the making; cgroups.c adds to them too. */
struct snapshot {
	GByteArray *bytes;
	bool maps_as_text; /* the kernel has no PROCMAP_QUERY */
};

struct snapshot_record;
void snapshot_add(struct snapshot *snapshot, const struct snapshot_record *record, const void *data,
		  const void *more, size_t more_bytes);
/* A SNAPSHOT_CGROUP_DIR for each directory of the hierarchy that perf's cgroup ids belong to. */
void cgroups_snapshot(struct snapshot *snapshot);
