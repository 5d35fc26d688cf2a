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

/* The worst first. DOCTOR_OFF is for text only: an optional part that works, but is not in use. */
enum doctor_status { DOCTOR_FAIL, DOCTOR_WARN, DOCTOR_OK, DOCTOR_OFF };

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
	/* For text, translated; NULL: everything may be recorded, the part is in use */
	const char *verdict; /* a sentence: what may be recorded */
	const char *off;     /* how to use an optional part */
};

struct doctor_check {
	const char *id;
	void (*run)(const struct doctor_host *host, struct doctor_finding *finding);
};

#define DOCTOR_CHECKS 17
/* In report order. */
extern const struct doctor_check doctor_checks[DOCTOR_CHECKS];

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

/* Returns the text of a file below the host's root without trailing newlines; NULL if it is
 * unreadable. */
char *doctor_read(const struct doctor_host *host, const char *path) MUST_CHECK;
