/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Uapi - kernel interfaces that are newer than the build's headers
 *
 * The oldest supported build host is Debian 12, whose linux-libc-dev is 6.1. Newer interfaces are
 * declared here under separate names, so that newer headers do not clash. Each entry names its
 * kernel header and the first version that has it, and must be probed at run time: an older kernel
 * returns ENOTTY or EINVAL. All of perf_event that profd uses, including PERF_FORMAT_LOST (6.0), is
 * in 6.1's linux/perf_event.h.
 */
#pragma once

#include <assert.h>
#include <linux/perf_event.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

/*
 * enum procmap_query_flags and struct procmap_query of include/uapi/linux/fs.h, for an ioctl on an
 * fd of /proc/PID/maps that returns one mapping, since Linux 6.11. Errors: ENOENT: there is no
 * such mapping; ESRCH: the process is gone; ENAMETOOLONG: a buffer is too small; ENOTTY: the kernel
 * is older.
 */
enum uapi_procmap_query_flags {
	/* The mapping must have these permissions; vma_flags returns the actual ones. */
	UAPI_PROCMAP_QUERY_VMA_READABLE = 0x01,
	UAPI_PROCMAP_QUERY_VMA_WRITABLE = 0x02,
	UAPI_PROCMAP_QUERY_VMA_EXECUTABLE = 0x04,
	UAPI_PROCMAP_QUERY_VMA_SHARED = 0x08,
	/* If no mapping covers query_addr, return the next one above it. */
	UAPI_PROCMAP_QUERY_COVERING_OR_NEXT_VMA = 0x10,
	UAPI_PROCMAP_QUERY_FILE_BACKED_VMA = 0x20,
};

struct uapi_procmap_query {
	uint64_t size;          /* in: sizeof(struct uapi_procmap_query) */
	uint64_t query_flags;   /* in: enum uapi_procmap_query_flags */
	uint64_t query_addr;    /* in */
	uint64_t vma_start;     /* out */
	uint64_t vma_end;       /* out: first address after it */
	uint64_t vma_flags;     /* out: UAPI_PROCMAP_QUERY_VMA_* */
	uint64_t vma_page_size; /* out */
	uint64_t vma_offset;    /* out: file offset in bytes */
	uint64_t inode;         /* out: 0 without a file */
	uint32_t dev_major;     /* out */
	uint32_t dev_minor;     /* out */
	/* in: size of the buffer, 0: none; out: length with the NUL, 0 without a name */
	uint32_t vma_name_size;
	/* in: size of the buffer, 0: none; out: 0 without a build-id */
	uint32_t build_id_size;
	uint64_t vma_name_addr; /* in: buffer of at most PATH_MAX bytes */
	uint64_t build_id_addr; /* in: buffer; the kernel has build-ids of at most 20 bytes */
};

static_assert(sizeof(struct uapi_procmap_query) == 104, "layout of linux/fs.h");
static_assert(offsetof(struct uapi_procmap_query, inode) == 64, "layout of linux/fs.h");
static_assert(offsetof(struct uapi_procmap_query, vma_name_size) == 80, "layout of linux/fs.h");
static_assert(offsetof(struct uapi_procmap_query, build_id_addr) == 96, "layout of linux/fs.h");

/* _IOWR(PROCFS_IOCTL_MAGIC, 17, struct procmap_query), PROCFS_IOCTL_MAGIC being 'f'. */
#define UAPI_PROCMAP_QUERY _IOWR('f', 17, struct uapi_procmap_query)

static_assert(UAPI_PROCMAP_QUERY == 0xc0686611, "ioctl number of linux/fs.h");

/*
 * struct pidfd_info of include/uapi/linux/pidfd.h, for an ioctl on a pidfd, since Linux 6.13; the
 * exit status since 6.15. For a process that has been waited for, only UAPI_PIDFD_INFO_EXIT is
 * available. Errors: ENOTTY: the kernel is older than 6.13; ESRCH: the process is gone, and the
 * kernel is older than 6.15.
 */
struct uapi_pidfd_info {
	uint64_t mask; /* in: UAPI_PIDFD_INFO_*; out: what is available */
	uint64_t cgroup;
	uint32_t ids[11];
	int32_t exit_code; /* as from wait() */
};
static_assert(sizeof(struct uapi_pidfd_info) == 64, "layout of linux/pidfd.h");

#define UAPI_PIDFD_INFO_EXIT UINT64_C(0x08)
/* _IOWR(PIDFS_IOCTL_MAGIC, 11, struct pidfd_info), PIDFS_IOCTL_MAGIC being 0xff. */
#define UAPI_PIDFD_GET_INFO _IOWR(0xff, 11, struct uapi_pidfd_info)

static_assert(PERF_FORMAT_LOST == 1U << 4, "linux/perf_event.h of Linux 6.0 or newer is needed");
static_assert(sizeof(struct perf_event_attr) >= 128,
	      "linux/perf_event.h of Linux 5.13 or newer is needed");
