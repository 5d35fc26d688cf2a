/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SNAPSHOT_MAX_NS 32     /* MAX_PID_NS_LEVEL of the kernel */
#define SNAPSHOT_COMM_BYTES 64 /* names of kernel workers are longer than TASK_COMM_LEN */

/* Iterates over the records of a snapshot (daemon/protocol.h). */
struct snapshot {
	const uint8_t *bytes;
	size_t length, offset;
};

struct snapshot_item {
	uint32_t kind; /* enum snapshot_kind */
	int32_t pid, tid;
	uint64_t time_ns;
	const char *text; /* not NUL-terminated */
	size_t length;
};

/* Returns false at the end, or if the next record exceeds the snapshot. */
bool snapshot_next(struct snapshot *snapshot, struct snapshot_item *ret_item);

struct snapshot_stat {
	char comm[SNAPSHOT_COMM_BYTES];
	int32_t ppid;
	uint64_t flags;       /* PF_* */
	uint64_t start_ticks; /* in CLOCK_BOOTTIME */
	char state;
};
bool snapshot_parse_stat(const char *text, size_t length, struct snapshot_stat *ret_stat);

struct snapshot_status {
	uint32_t uid; /* real user id */
	unsigned int n_ns_pids;
	uint64_t ns_pids[SNAPSHOT_MAX_NS];
};
bool snapshot_parse_status(const char *text, size_t length, struct snapshot_status *ret_status);

struct snapshot_range {
	uint64_t start, end, file_offset, inode;
	uint32_t dev_major, dev_minor;
	const uint8_t *build_id;
	uint32_t build_id_bytes;
	bool executable;
	bool is_shared;
	const char *name; /* not NUL-terminated */
	size_t name_bytes;
};
/* Returns the next valid line of /proc/PID/maps. Moves *text and *length past it. */
bool snapshot_next_range(const char **text, size_t *length, struct snapshot_range *ret_range);
/* Parses the text of a SNAPSHOT_MAPPING item: a struct snapshot_mapping, then the name. */
bool snapshot_parse_mapping(const char *text, size_t length, struct snapshot_range *ret_range);

struct snapshot_module {
	const char *name;
	size_t name_bytes;
	uint64_t start, length;
};
/* Like snapshot_next_range(), for /proc/modules. */
bool snapshot_next_module(const char **text, size_t *length, struct snapshot_module *ret_module);

struct snapshot_usage {
	uint64_t rss_bytes;
	uint64_t pss_bytes;
	bool has_pss;
};
/* Parse /proc/PID/smaps_rollup and /proc/PID/statm. */
bool snapshot_parse_rollup(const char *text, size_t length, struct snapshot_usage *ret);
bool snapshot_parse_statm(const char *text, size_t length, struct snapshot_usage *ret);

/* Counts of a process since its start; `threads` and rss_bytes are current values. */
struct snapshot_counts {
	/* from /proc/PID/stat, without the children of the process */
	uint64_t minor_faults, major_faults, threads, rss_bytes;
	/* from /proc/PID/io: bytes that system calls read and wrote, and those from and to disks */
	uint64_t read_bytes, written_bytes, disk_read_bytes, disk_written_bytes;
};
/* Parse /proc/PID/stat and /proc/PID/io. They set only their own fields, and none on failure. */
bool snapshot_parse_counts(const char *text, size_t length, struct snapshot_counts *counts);
bool snapshot_parse_io(const char *text, size_t length, struct snapshot_counts *counts);

/* Finds the path of the unified hierarchy in /proc/PID/cgroup, or else the first path. Returns
 * false if there is no path. */
bool snapshot_parse_cgroup(const char *text, size_t length, const char **ret_path,
			   size_t *ret_path_bytes);
