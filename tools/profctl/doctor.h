/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Doctor - checks of the machine a recording would run on
 *
 * A check is a function of the host's state (files below a root, the caller's rights) and of the
 * kernel's answers (struct doctor_probes). Both are passed in, so that tests can simulate other
 * machines.
 */
#pragma once

#include "arch/base.h"

#include <glib.h>
#include <linux/perf_event.h>
#include <sys/types.h>

enum doctor_status { DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL };

/* Queries of the real kernel; each returns -errno on failure. */
struct doctor_probes {
	/* Opens a perf event; returns an fd. pid 0 is the caller, -1 everybody; cpu -1 is any. */
	int (*perf_open)(const struct perf_event_attr *attr, pid_t pid, int cpu);
	/* Maps a ring with that many data bytes on an fd of perf_open and unmaps it; returns 0. */
	int (*perf_ring)(int fd, size_t bytes);
	/* Returns the number of a tracepoint from a tracefs that is mounted for this query only. */
	int64_t (*tracepoint)(const char *name);
	/* Runs PROCMAP_QUERY on the file, which is a /proc/PID/maps; returns 0. */
	int (*procmap_query)(const char *path);
	/* Opens one mapped file of the process through map_files; returns 0. */
	int (*map_file)(const char *directory);
	/* Gets the bytes that the caller can still write below the directory; returns 0. */
	int (*free_bytes)(const char *directory, uint64_t *ret_bytes);
	/* 1: the system bus has a service of that name, or can start it; 0: it does not; -ENOTCONN:
	 * no bus. */
	int (*bus_service)(const char *name);
	/* 0: the loader finds the library, which stays loaded; -ENOENT: it does not. */
	int (*library)(const char *name);
};

/* Capabilities that are valid in the initial user namespace: perf and kallsyms ignore those of a
 * container. */
enum doctor_capability {
	DOCTOR_IPC_LOCK = 1 << 0,
	DOCTOR_SYSLOG = 1 << 1,
};

struct doctor_host {
	const char *root;        /* "" or the folder of a fixture tree */
	const char *directory;   /* where a capture would be written */
	const char *libexec_dir; /* where profd and the programs that it starts are */
	const struct doctor_probes *probes;
	unsigned capabilities;              /* enum doctor_capability */
	bool superuser;                     /* effective uid 0 of the initial user namespace */
	bool user_namespace, pid_namespace; /* not the initial one */
};

struct doctor_finding {
	enum doctor_status status;
	char *summary; /* one line, translated */
	char *fix;     /* a command or a sentence, or NULL */
};

struct doctor_check {
	const char *id;
	void (*run)(const struct doctor_host *host, struct doctor_finding *finding);
};

/* In report order; the last one's id is NULL. */
extern const struct doctor_check doctor_checks[];

/* The probes of the running kernel. */
extern const struct doctor_probes doctor_live_probes;

/* Reads the caller's rights and namespaces from the tree below root; sets the rest of *host to the
 * given values. */
void doctor_host_init(struct doctor_host *host, const char *root, const char *directory,
		      const char *libexec_dir, const struct doctor_probes *probes);

/* Runs the check of that id; false if the id is unknown. The caller frees the strings in
 * *ret_finding. */
bool doctor_run(const struct doctor_host *host, const char *id, struct doctor_finding *ret_finding);
void doctor_finding_done(struct doctor_finding *finding);

/* For checks. The path and the text are formatted; `text` has no trailing newlines and is NULL if
 * unreadable. */
char *doctor_read(const struct doctor_host *host, const char *path) MUST_CHECK;
bool doctor_read_int(const struct doctor_host *host, const char *path, int64_t *ret_value)
	MUST_CHECK;
void doctor_found(struct doctor_finding *finding, enum doctor_status status, const char *summary,
		  ...) PRINTF_LIKE(3, 4);
void doctor_fix(struct doctor_finding *finding, const char *fix, ...) PRINTF_LIKE(2, 3);

/* doctor-perf.c */
void doctor_perf_paranoid(const struct doctor_host *host, struct doctor_finding *finding);
void doctor_perf_mlock(const struct doctor_host *host, struct doctor_finding *finding);
void doctor_perf_max_rate(const struct doctor_host *host, struct doctor_finding *finding);
void doctor_pmu(const struct doctor_host *host, struct doctor_finding *finding);

/* doctor-kernel.c */
void doctor_kptr_restrict(const struct doctor_host *host, struct doctor_finding *finding);
void doctor_ptrace_scope(const struct doctor_host *host, struct doctor_finding *finding);
void doctor_tracefs(const struct doctor_host *host, struct doctor_finding *finding);
void doctor_map_files(const struct doctor_host *host, struct doctor_finding *finding);
void doctor_procmap_query(const struct doctor_host *host, struct doctor_finding *finding);
void doctor_cgroup(const struct doctor_host *host, struct doctor_finding *finding);
void doctor_clocksource(const struct doctor_host *host, struct doctor_finding *finding);

/* doctor-names.c */
void doctor_debuginfod(const struct doctor_host *host, struct doctor_finding *finding);
void doctor_jit_maps(const struct doctor_host *host, struct doctor_finding *finding);

/* doctor-system.c */
void doctor_daemon(const struct doctor_host *host, struct doctor_finding *finding);
void doctor_polkit(const struct doctor_host *host, struct doctor_finding *finding);
void doctor_container(const struct doctor_host *host, struct doctor_finding *finding);
void doctor_disk_space(const struct doctor_host *host, struct doctor_finding *finding);
