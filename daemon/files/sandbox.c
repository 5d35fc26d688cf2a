/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Sandbox - restricts the process that opens files
 *
 * It must read every process and file of the session, so it keeps the capabilities for this. Its
 * requests come from an engine that may have been taken over. It parses nothing; another
 * profd-files process, without rights over processes, parses the files for probes. Neither can gain
 * rights, write to a named file, execute, connect, fork, or be traced or dumped.
 * Invariants: (1) it has no capabilities except those in `wishes`
 *                 [test_hostile_files: test_rights]
 *             (2) it cannot open a file for writing, make a socket or execute a program
 *                 [test-files: sandbox]
 */
#include "config.h"

#include "daemon/files/sandbox.h"

#include "arch/base.h"
#include "arch/uapi.h"
#include "daemon/filter.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/nsfs.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#ifndef CAP_CHECKPOINT_RESTORE
#define CAP_CHECKPOINT_RESTORE 40
#endif

#define MAX_MEMORY (UINT64_C(1) << 30)
#define MAX_WRITTEN (UINT64_C(1) << 30) /* maximum size of a snapshot, or of a copied file */

/* ---- Capabilities ---------------------------------------------------------------------------- */

struct wish {
	int capability;
	enum { FOR_PROCESSES, FOR_FILES, FOR_CLIENT, FOR_KERNEL } when;
};

static const struct wish wishes[] = {
	{ CAP_SYS_PTRACE,
	  FOR_PROCESSES }, /* for maps, exe, root, cmdline of other users' processes */
	{ CAP_CHECKPOINT_RESTORE, FOR_PROCESSES }, /* map_files */
	{ CAP_DAC_READ_SEARCH,
	  FOR_FILES },              /* for files and directories that not everybody may read */
	{ CAP_SETUID, FOR_CLIENT }, /* for checking what the client may read */
	{ CAP_SETGID, FOR_CLIENT },
	{ CAP_SYSLOG, FOR_KERNEL }, /* for addresses in /proc/modules */
};

static bool drop_capabilities(const struct files_config *config)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2], kept[2] = { 0 };

	if (syscall(SYS_capget, &header, data) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(wishes); i++) {
		unsigned word = (unsigned)wishes[i].capability / 32;

		if ((wishes[i].when != FOR_PROCESSES || !config->probes) &&
		    (wishes[i].when != FOR_CLIENT || !config->any_image) &&
		    (wishes[i].when != FOR_KERNEL || config->kernel))
			kept[word].permitted |= 1u << (wishes[i].capability % 32);
	}
	for (unsigned word = 0; word < ARRAY_SIZE(kept); word++) {
		kept[word].permitted &= data[word].permitted;
		kept[word].effective = kept[word].permitted;
	}
	for (int i = 0; prctl(PR_CAPBSET_READ, i, 0, 0, 0) >= 0; i++)
		(void)prctl(PR_CAPBSET_DROP, i, 0, 0, 0);
	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	return syscall(SYS_capset, &header, kept) == 0;
}

/* ---- Limits ---------------------------------------------------------------------------------- */

static bool limit(int resource, rlim_t value)
{
	struct rlimit old;

	if (getrlimit(resource, &old) < 0)
		return false;
	value = MIN_OF(value, old.rlim_max);
	return setrlimit(resource, &(struct rlimit){ value, value }) == 0;
}

/* ---- System calls ---------------------------------------------------------------------------- */

static const int allowed[] = {
	SCMP_SYS(newfstatat), SCMP_SYS(stat),       SCMP_SYS(statx),      SCMP_SYS(fgetxattr),
	SCMP_SYS(readlink),   SCMP_SYS(readlinkat), SCMP_SYS(getdents64), SCMP_SYS(geteuid),
	SCMP_SYS(getegid),    SCMP_SYS(pread64),
};

static const int allowed_for_client[] = {
	SCMP_SYS(faccessat2), SCMP_SYS(setfsuid), SCMP_SYS(setfsgid),
	SCMP_SYS(setgroups),  SCMP_SYS(capget),   SCMP_SYS(capset),
};

#define NO_WRITING SCMP_A2_64(SCMP_CMP_MASKED_EQ, O_ACCMODE | O_CREAT | O_TRUNC, O_RDONLY)

static const struct filter_rule allowed_with[] = {
	{ SCMP_SYS(openat), NO_WRITING },
	{ SCMP_SYS(getrusage), SCMP_A0_32(SCMP_CMP_EQ, RUSAGE_THREAD, 0) },
	{ SCMP_SYS(ioctl), SCMP_A1_64(SCMP_CMP_EQ, UAPI_PROCMAP_QUERY, 0) },
	{ SCMP_SYS(ioctl), SCMP_A1_64(SCMP_CMP_EQ, FS_IOC_GETVERSION, 0) },
	{ SCMP_SYS(ioctl), SCMP_A1_64(SCMP_CMP_EQ, NS_GET_PARENT, 0) },
	{ SCMP_SYS(ioctl), SCMP_A1_64(SCMP_CMP_EQ, NS_GET_OWNER_UID, 0) },
	{ SCMP_SYS(fcntl), SCMP_A1_64(SCMP_CMP_EQ, F_SETFD, 0) }, /* for fdopendir() */
};

static bool filter_calls(const struct files_config *config)
{
	const struct filter_calls lists[] = {
		{ SCMP_ACT_ALLOW, allowed, ARRAY_SIZE(allowed) },
		{ SCMP_ACT_ALLOW, allowed_for_client, ARRAY_SIZE(allowed_for_client) },
	};
	const struct filter filter = {
		.otherwise = SCMP_ACT_KILL_PROCESS,
		.lists = lists,
		.n_lists = config->any_image ? 1 : ARRAY_SIZE(lists),
		.rules = allowed_with,
		.n_rules = ARRAY_SIZE(allowed_with),
	};

	return filter_load(&filter) == 0;
}

bool sandbox_enter(const struct files_config *config)
{
	if (geteuid() == 0)
		(void)setgroups(0, NULL); /* fails if a user namespace forbids it */
	/* The number of descriptors is not limited, because the kernel would compare the limit with
	 * all descriptors that the user has in flight in sockets. A sanitizer's shadow memory
	 * exceeds any limit on memory. */
	return drop_capabilities(config) && limit(RLIMIT_CORE, 0) &&
	       limit(RLIMIT_FSIZE, MAX_WRITTEN) &&
	       (PROF_SANITIZED || limit(RLIMIT_AS, MAX_MEMORY)) &&
	       prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 && (PROF_SANITIZED || filter_calls(config));
}
