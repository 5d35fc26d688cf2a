/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Doctor-host - the caller's privileges, and probes of the running kernel
 */
#include "tools/profctl/doctor.h"

#include "arch/uapi.h"
#include "tools/profctl/transport.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

/* Inode numbers of the initial namespaces (include/linux/proc_ns.h: PROC_USER_INIT_INO,
 * PROC_PID_INIT_INO). */
#define INITIAL_USER_NAMESPACE "user:[4026531837]"
#define INITIAL_PID_NAMESPACE "pid:[4026531836]"

static bool doctor_in_namespace(const struct doctor_host *host, const char *name,
				const char *initial)
{
	g_autofree char *path = g_strconcat(host->root, "/proc/self/ns/", name, NULL);
	g_autofree char *target = g_file_read_link(path, NULL);

	return target && strcmp(target, initial) != 0;
}

void doctor_host_init(struct doctor_host *host, const char *root, const char *directory,
		      const char *libexec_dir, const struct doctor_probes *probes)
{
	g_autofree char *status = NULL;
	const char *effective, *uids;

	*host = (struct doctor_host){
		.root = root, .directory = directory, .libexec_dir = libexec_dir, .probes = probes
	};
#ifdef PROF_HAS_BPF
	host->interpreters = true;
#endif
	host->user_namespace = doctor_in_namespace(host, "user", INITIAL_USER_NAMESPACE);
	host->pid_namespace = doctor_in_namespace(host, "pid", INITIAL_PID_NAMESPACE);
	status = doctor_read(host, "/proc/self/status");
	if (!status || host->user_namespace)
		return;
	effective = strstr(status, "\nCapEff:");
	if (effective) {
		uint64_t set = g_ascii_strtoull(effective + strlen("\nCapEff:"), NULL, 16);

		host->capabilities = (set >> CAP_IPC_LOCK & 1 ? DOCTOR_IPC_LOCK : 0) |
				     (set >> CAP_SYSLOG & 1 ? DOCTOR_SYSLOG : 0) |
				     (set >> CAP_BPF & set >> CAP_PERFMON & 1 ? DOCTOR_BPF : 0);
	}
	/* "Uid:" has the real, effective, saved and file system uid. */
	uids = strstr(status, "\nUid:");
	uids = uids ? strchr(uids + strlen("\nUid:\t"), '\t') : NULL;
	host->superuser = uids && g_ascii_strtoull(uids, NULL, 10) == 0;
}

static int live_perf_open(const struct perf_event_attr *attr, pid_t pid, int cpu)
{
	long fd = syscall(SYS_perf_event_open, attr, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : (int)fd;
}

static int live_perf_ring(int fd, size_t bytes)
{
	size_t length = bytes + (size_t)sysconf(_SC_PAGESIZE);
	void *ring = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (ring == MAP_FAILED)
		return -errno;
	munmap(ring, length);
	return 0;
}

static int64_t live_tracepoint(const char *name)
{
	g_autofree char *path = g_strdup_printf("events/%s/id", name);
	CLEANUP_CLOSE int context = fsopen("tracefs", FSOPEN_CLOEXEC);
	CLEANUP_CLOSE int root = -1, file = -1;
	char text[32] = "";

	if (context < 0 || fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	root = fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC);
	file = root < 0 ? -1 : openat(root, path, O_RDONLY | O_CLOEXEC);
	if (file < 0 || read(file, text, sizeof(text) - 1) < 0)
		return -errno;
	return g_ascii_strtoll(text, NULL, 10);
}

static int live_procmap_query(const char *path)
{
	struct uapi_procmap_query query = {
		.size = sizeof(query),
		.query_flags = UAPI_PROCMAP_QUERY_COVERING_OR_NEXT_VMA,
	};
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return ioctl(fd, UAPI_PROCMAP_QUERY, &query) < 0 ? -errno : 0;
}

static int live_map_file(const char *directory)
{
	DIR *dir = opendir(directory);
	struct dirent *entry;
	int result = -ENOENT;

	if (!dir)
		return -errno;
	while ((entry = readdir(dir))) {
		CLEANUP_CLOSE int fd = -1;

		if (entry->d_name[0] == '.')
			continue;
		fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		result = fd < 0 ? -errno : 0;
		break;
	}
	closedir(dir);
	return result;
}

static int live_free_bytes(const char *directory, uint64_t *ret_bytes)
{
	struct statvfs fs;

	if (access(directory, W_OK) < 0 || statvfs(directory, &fs) < 0)
		return -errno;
	if (!mul_u64(fs.f_bavail, fs.f_frsize, ret_bytes))
		*ret_bytes = UINT64_MAX;
	return 0;
}

static int live_library(const char *name)
{
	return dlopen(name, RTLD_LAZY | RTLD_LOCAL) ? 0 : -ENOENT;
}

const struct doctor_probes doctor_live_probes = {
	.perf_open = live_perf_open,
	.perf_ring = live_perf_ring,
	.tracepoint = live_tracepoint,
	.procmap_query = live_procmap_query,
	.map_file = live_map_file,
	.free_bytes = live_free_bytes,
	.bus_service = transport_bus_has,
	.library = live_library,
};
