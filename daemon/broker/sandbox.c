/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Sandbox - drops the privileges that profd does not use, with or without systemd
 *
 * As root, profd keeps only the capabilities in `kept`, and exec cannot regain others. A plain user
 * has no capabilities to drop, but gets the same seccomp filter. The filter allows the calls that
 * profd, the programs that it starts and their dynamic linker make. All these programs inherit it,
 * and the engine adds a stricter one. Other calls fail with EPERM; calls that indicate an attack
 * end the process. Files cannot be opened for writing, created, renamed or removed: a capture
 * arrives as a descriptor and is passed on to the engine. The flags of openat2() are in memory,
 * where a filter cannot check them, so openat2() fails as on a kernel without it.
 * Invariants: (1) no capability except `kept` is in any set, and CAP_SYS_ADMIN only for probes
 *                 [test-broker-sandbox: capabilities]
 *             (2) open() and openat() are for reading only  [test-broker-sandbox: calls]
 *             (3) no ptrace, mounts, modules, namespaces, network
 *                 [test-broker-sandbox: calls]
 *             (4) starting and running the engine is not affected  [test-broker-sandbox: work]
 *             (5) each capability in `kept` is needed  [test_capabilities]
 */
#include "config.h"

#include "daemon/broker/sandbox.h"

#include "arch/base.h"
#include "arch/uapi.h"
#include "daemon/filter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/nsfs.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define NICE (-10)

static const int kept[] = {
	CAP_PERFMON,            /* events for all users' processes, kernel addresses */
	CAP_BPF,                /* frames of interpreters */
	CAP_IPC_LOCK,           /* rings beyond kernel.perf_event_mlock_kb */
	CAP_SYS_PTRACE,         /* /proc/PID/maps, exe, root of all users' processes */
	CAP_CHECKPOINT_RESTORE, /* /proc/PID/map_files */
	CAP_DAC_READ_SEARCH,    /* files that only their owner may read */
	CAP_SYSLOG,             /* addresses in /proc/kallsyms and /proc/modules */
	CAP_SETUID,             /* the engine stops being root */
	CAP_SETGID,             /* like CAP_SETUID */
	CAP_SETPCAP,            /* the bounding set, here and in the engine */
	CAP_KILL,               /* ending an engine that hangs */
	CAP_SYS_NICE,           /* the engine's higher priority */
};

static bool fail(GError **error, const char *what, int number)
{
	g_set_error(error, G_IO_ERROR, g_io_error_from_errno(number), "%s failed: %s", what,
		    g_strerror(number));
	return false;
}

/* ---- Capabilities ---------------------------------------------------------------------------- */

/* Whether to keep CAP_SYS_ADMIN, without which the kernel places no probes in programs. The filter
 * still forbids the other uses of this capability, such as mounts and namespaces. */
static bool keeps_admin;

void sandbox_keep_probes(void)
{
	keeps_admin = true;
}

static bool is_kept(int capability)
{
	if (capability == CAP_SYS_ADMIN)
		return keeps_admin;
	for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
		if (kept[i] == capability)
			return true;
	return false;
}

bool sandbox_drop_capabilities(GError **error)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct sets[2] = { 0 };

	if (syscall(SYS_capget, &header, sets) != 0)
		return fail(error, "Reading the capabilities", errno);
	/* PR_CAPBSET_DROP fails without CAP_SETPCAP; then PR_SET_NO_NEW_PRIVS suffices. */
	for (int i = 0; prctl(PR_CAPBSET_READ, i, 0, 0, 0) >= 0; i++)
		if (!is_kept(i))
			(void)prctl(PR_CAPBSET_DROP, i, 0, 0, 0);
	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	for (int i = 0; i < 64; i++) {
		if (!is_kept(i))
			sets[i / 32].permitted &= ~(1u << i % 32);
	}
	for (size_t i = 0; i < ARRAY_SIZE(sets); i++) {
		sets[i].effective = sets[i].permitted;
		sets[i].inheritable = 0;
	}
	if (syscall(SYS_capset, &header, sets) != 0)
		return fail(error, "Dropping capabilities", errno);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		return fail(error, "Forbidding new privileges", errno);
	/* LeakSanitizer traces its own process. */
	if (!PROF_SANITIZED && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
		return fail(error, "Forbidding to be traced", errno);
	return true;
}

/* ---- System calls ---------------------------------------------------------------------------- */

static const int allowed_calls[] = {
	/* descriptors */
	SCMP_SYS(readv),
	SCMP_SYS(pread64),
	SCMP_SYS(write),
	SCMP_SYS(writev),
	SCMP_SYS(pwritev),
	SCMP_SYS(close_range),
	SCMP_SYS(dup),
	SCMP_SYS(dup2),
	SCMP_SYS(dup3),
	SCMP_SYS(pipe2),
	SCMP_SYS(eventfd2),
	SCMP_SYS(poll),
	SCMP_SYS(ppoll),
	SCMP_SYS(pselect6),
	SCMP_SYS(epoll_create1),
	SCMP_SYS(epoll_wait),
	SCMP_SYS(epoll_pwait),
	SCMP_SYS(epoll_ctl),
	/* calls with which the engine writes the capture */
	SCMP_SYS(fallocate),
	SCMP_SYS(fdatasync),
	SCMP_SYS(fsync),
	SCMP_SYS(sync_file_range),
	SCMP_SYS(flock),
	/* inspecting files */
	SCMP_SYS(stat),
	SCMP_SYS(lstat),
	SCMP_SYS(newfstatat),
	SCMP_SYS(statx),
	SCMP_SYS(statfs),
	SCMP_SYS(access),
	SCMP_SYS(faccessat),
	SCMP_SYS(faccessat2),
	SCMP_SYS(readlink),
	SCMP_SYS(readlinkat),
	SCMP_SYS(getdents64),
	SCMP_SYS(getcwd),
	SCMP_SYS(chdir),
	/* existing sockets */
	SCMP_SYS(accept4),
	SCMP_SYS(connect),
	SCMP_SYS(recvfrom),
	SCMP_SYS(sendto),
	SCMP_SYS(sendmmsg),
	SCMP_SYS(shutdown),
	SCMP_SYS(getsockname),
	SCMP_SYS(getpeername),
	SCMP_SYS(getsockopt),
	SCMP_SYS(setsockopt),
	/* threads, time, signals */
	SCMP_SYS(futex_waitv),
	SCMP_SYS(sched_yield),
	SCMP_SYS(sched_getaffinity),
	SCMP_SYS(sched_getattr),
	SCMP_SYS(sched_setattr),
	SCMP_SYS(clock_getres),
	SCMP_SYS(clock_nanosleep),
	SCMP_SYS(nanosleep),
	SCMP_SYS(sigaltstack),
	SCMP_SYS(rseq),
	SCMP_SYS(set_robust_list),
	SCMP_SYS(get_robust_list),
	SCMP_SYS(set_tid_address),
	SCMP_SYS(arch_prctl),
	SCMP_SYS(uname),
	/* processes: ids; starting, ending and waiting for children */
	SCMP_SYS(getppid),
	SCMP_SYS(getuid),
	SCMP_SYS(geteuid),
	SCMP_SYS(getgid),
	SCMP_SYS(getegid),
	SCMP_SYS(getresuid),
	SCMP_SYS(getresgid),
	SCMP_SYS(getgroups),
	SCMP_SYS(getpgrp),
	SCMP_SYS(getpgid),
	SCMP_SYS(getsid),
	SCMP_SYS(setsid),
	SCMP_SYS(getpriority),
	SCMP_SYS(getrusage),
	SCMP_SYS(execve),
	SCMP_SYS(vfork),
	SCMP_SYS(wait4),
	SCMP_SYS(waitid),
	SCMP_SYS(kill),
	SCMP_SYS(pidfd_open),
	SCMP_SYS(pidfd_send_signal),
	SCMP_SYS(perf_event_open),
	/* calls with which the engine and profd-files stop being root */
	SCMP_SYS(setpriority),
	SCMP_SYS(prlimit64),
	SCMP_SYS(getrlimit),
	SCMP_SYS(setrlimit),
	SCMP_SYS(capget),
	SCMP_SYS(capset),
	SCMP_SYS(setgroups),
	SCMP_SYS(setresuid),
	SCMP_SYS(setresgid),
	SCMP_SYS(setfsuid),
	SCMP_SYS(setfsgid),
	SCMP_SYS(prctl),
	SCMP_SYS(seccomp),
};

#define WRITES (O_ACCMODE | O_CREAT | O_TRUNC)
#define NAMESPACES                                                                     \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | \
	 CLONE_NEWPID | CLONE_NEWNET)
#define IOCTL_GROUP 0xff00

static const struct filter_rule allowed_with[] = {
	{ SCMP_SYS(open), SCMP_A1_64(SCMP_CMP_MASKED_EQ, WRITES, O_RDONLY) },
	{ SCMP_SYS(openat), SCMP_A2_64(SCMP_CMP_MASKED_EQ, WRITES, O_RDONLY) },
	{ SCMP_SYS(socket), SCMP_A0_64(SCMP_CMP_EQ, AF_UNIX, 0) },
	{ SCMP_SYS(socketpair), SCMP_A0_64(SCMP_CMP_EQ, AF_UNIX, 0) },
	/* calls for loading the program that reads interpreters (interpreters.c) */
	{ SCMP_SYS(bpf), SCMP_A0_64(SCMP_CMP_EQ, BPF_BTF_LOAD, 0) },
	{ SCMP_SYS(bpf), SCMP_A0_64(SCMP_CMP_EQ, BPF_MAP_CREATE, 0) },
	{ SCMP_SYS(bpf), SCMP_A0_64(SCMP_CMP_EQ, BPF_MAP_LOOKUP_ELEM, 0) },
	{ SCMP_SYS(bpf), SCMP_A0_64(SCMP_CMP_EQ, BPF_MAP_UPDATE_ELEM, 0) },
	{ SCMP_SYS(bpf), SCMP_A0_64(SCMP_CMP_EQ, BPF_PROG_LOAD, 0) },
	{ SCMP_SYS(bpf), SCMP_A0_64(SCMP_CMP_EQ, BPF_LINK_CREATE, 0) },
	{ SCMP_SYS(bpf), SCMP_A0_64(SCMP_CMP_EQ, BPF_OBJ_GET_INFO_BY_FD, 0) },
	{ SCMP_SYS(clone), SCMP_A0_64(SCMP_CMP_MASKED_EQ, NAMESPACES, 0) },
	/* daemon/filter.c allows memory that is not executable, and this filter memory that is not
	 * writable, so no memory is both writable and executable */
	{ SCMP_SYS(mmap), SCMP_A2_64(SCMP_CMP_MASKED_EQ, PROT_WRITE, 0) },
	{ SCMP_SYS(mprotect), SCMP_A2_64(SCMP_CMP_MASKED_EQ, PROT_WRITE, 0) },
	{ SCMP_SYS(ioctl), SCMP_A1_64(SCMP_CMP_MASKED_EQ, IOCTL_GROUP, '$' << 8) }, /* perf */
	{ SCMP_SYS(ioctl), SCMP_A1_64(SCMP_CMP_EQ, UAPI_PROCMAP_QUERY, 0) },
	{ SCMP_SYS(ioctl), SCMP_A1_64(SCMP_CMP_EQ, UAPI_PIDFD_GET_INFO,
				      0) }, /* for engines, which inherit the filter */
	{ SCMP_SYS(ioctl), SCMP_A1_64(SCMP_CMP_EQ, FS_IOC_GETVERSION, 0) },
	{ SCMP_SYS(ioctl), SCMP_A1_64(SCMP_CMP_EQ, NS_GET_PARENT, 0) },
	{ SCMP_SYS(ioctl), SCMP_A1_64(SCMP_CMP_EQ, NS_GET_OWNER_UID, 0) },
	{ SCMP_SYS(ioctl), SCMP_A1_64(SCMP_CMP_EQ, TCGETS, 0) }, /* isatty() of stderr */
	{ SCMP_SYS(ioctl), SCMP_A1_64(SCMP_CMP_EQ, FIONREAD, 0) },
	/* same effect as fcntl(F_SETFD) */
	{ SCMP_SYS(ioctl), SCMP_A1_64(SCMP_CMP_EQ, FIOCLEX, 0) },
	/* same effect as fcntl(F_SETFL) */
	{ SCMP_SYS(ioctl), SCMP_A1_64(SCMP_CMP_EQ, FIONBIO, 0) },
	{ SCMP_SYS(fcntl), SCMP_A1_64(SCMP_CMP_EQ, F_DUPFD, 0) },
	{ SCMP_SYS(fcntl), SCMP_A1_64(SCMP_CMP_EQ, F_DUPFD_CLOEXEC, 0) },
	{ SCMP_SYS(fcntl), SCMP_A1_64(SCMP_CMP_EQ, F_GETFD, 0) },
	{ SCMP_SYS(fcntl), SCMP_A1_64(SCMP_CMP_EQ, F_SETFD, 0) },
	{ SCMP_SYS(fcntl), SCMP_A1_64(SCMP_CMP_EQ, F_SETFL, 0) },
	{ SCMP_SYS(fcntl), SCMP_A1_64(SCMP_CMP_EQ, F_GET_SEALS, 0) },
};

/* No program of profd makes these calls under the filter. */
static const int deadly_calls[] = {
	SCMP_SYS(ptrace),
	SCMP_SYS(process_vm_writev),
	SCMP_SYS(mount),
	SCMP_SYS(umount2),
	SCMP_SYS(move_mount),
	SCMP_SYS(open_tree),
	SCMP_SYS(fsopen),
	SCMP_SYS(pivot_root),
	SCMP_SYS(chroot),
	SCMP_SYS(setns),
	SCMP_SYS(unshare),
	SCMP_SYS(init_module),
	SCMP_SYS(finit_module),
	SCMP_SYS(delete_module),
	SCMP_SYS(kexec_load),
	SCMP_SYS(kexec_file_load),
	SCMP_SYS(reboot),
	SCMP_SYS(swapon),
	SCMP_SYS(io_uring_setup),
	SCMP_SYS(userfaultfd),
	SCMP_SYS(open_by_handle_at),
};

/* These calls have their arguments in memory, where a filter cannot check them. They fail with
 * ENOSYS, so that libc uses the older calls. */
static const int missing_calls[] = { SCMP_SYS(clone3), SCMP_SYS(openat2) };

bool sandbox_filter(GError **error)
{
	const struct filter_calls lists[] = {
		{ SCMP_ACT_ALLOW, allowed_calls, ARRAY_SIZE(allowed_calls) },
		{ SCMP_ACT_KILL_PROCESS, deadly_calls, ARRAY_SIZE(deadly_calls) },
		{ SCMP_ACT_ERRNO(ENOSYS), missing_calls, ARRAY_SIZE(missing_calls) },
	};
	const struct filter filter = {
		.otherwise = SCMP_ACT_ERRNO(EPERM),
		.lists = lists,
		.n_lists = ARRAY_SIZE(lists),
		.rules = allowed_with,
		.n_rules = ARRAY_SIZE(allowed_with),
	};
	int r = filter_load(&filter);

	if (r != 0)
		return fail(error, "Filtering system calls", -r);
	return true;
}

/* ---- All of it ------------------------------------------------------------------------------- */

bool sandbox_enter(GError **error)
{
	CLEANUP_CLOSE int fd = -1;
	char text[16];

	/* The engine raises its own priority (daemon/engine/main.c). With autogroups (sched(7)) a
	 * nice value applies only within its session, and the session's own value is in a file that
	 * cannot be written under the filter. So if profd leads a session, the value is set here,
	 * and engines stay in the session. If this is not permitted, nothing changes. */
	if (getsid(0) == getpid())
		fd = open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);
	g_snprintf(text, sizeof(text), "%d", NICE);
	if (fd >= 0)
		(void)!write(fd, text, strlen(text));
	if (!sandbox_drop_capabilities(error))
		return false;
	/* Sanitizer runtimes need further calls. */
	return PROF_SANITIZED || sandbox_filter(error);
}
