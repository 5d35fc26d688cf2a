/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Doctor - checks what a recording on this machine needs
 *
 * A check depends only on the host's state (files below a root, the caller's privileges) and on the
 * answers of the running system (struct doctor_probes). Both are passed in, so that tests can
 * simulate other machines.
 */
#pragma once

#include "arch/base.h"

#include <glib.h>
#include <linux/perf_event.h>
#include <sys/types.h>

/* The worst first. DOCTOR_OFF is for text: an optional part that works but is not in use. */
enum doctor_status { DOCTOR_FAIL, DOCTOR_WARN, DOCTOR_OK, DOCTOR_OFF };

/* Queries of the running system. Each returns -errno on failure. */
struct doctor_probes {
	/* Opens a perf event; returns its descriptor. pid 0: the caller, -1: all; cpu -1: any. */
	int (*perf_open)(const struct perf_event_attr *attr, pid_t pid, int cpu);
	/* Maps and unmaps a ring with `bytes` of data on a descriptor from perf_open. Returns 0. */
	int (*perf_ring)(int fd, size_t bytes);
	/* Returns the id of a tracepoint. Mounts a tracefs for this query only. */
	int64_t (*tracepoint)(const char *name);
	/* Runs PROCMAP_QUERY on the file, a /proc/PID/maps. Returns 0. */
	int (*procmap_query)(const char *path);
	/* Opens one file in a process's map_files directory. Returns 0. */
	int (*map_file)(const char *directory);
	/* Stores how many bytes the caller can still write below the directory. Returns 0. */
	int (*free_bytes)(const char *directory, uint64_t *ret_bytes);
	/* Returns 1 if the system bus has a service of that name or can start it, 0 if not,
	 * -ENOTCONN if there is no bus. */
	int (*bus_service)(const char *name);
	/* Returns 0 if the loader finds the library, which remains loaded, else -ENOENT. */
	int (*library)(const char *name);
};

/* Capabilities in the initial user namespace. perf and kallsyms ignore those of a container. */
enum doctor_capability {
	DOCTOR_IPC_LOCK = 1 << 0,
	DOCTOR_SYSLOG = 1 << 1,
	DOCTOR_BPF = 1 << 2, /* CAP_BPF and CAP_PERFMON */
};

struct doctor_host {
	const char *root;        /* "", or the directory of a fixture tree */
	const char *directory;   /* where a capture would be written */
	const char *libexec_dir; /* directory of profd and of the programs that it starts */
	const struct doctor_probes *probes;
	unsigned capabilities;              /* enum doctor_capability */
	bool superuser;                     /* effective uid 0 of the initial user namespace */
	bool user_namespace, pid_namespace; /* the caller is not in the initial namespace */
	bool interpreters;                  /* profd was built with BPF, to read interpreted code */
};

struct doctor_finding {
	enum doctor_status status;
	char *summary; /* one line, translated */
	char *fix;     /* a command or a sentence, or NULL */
	/* For text, translated. */
	const char *verdict; /* a sentence on what can be recorded; NULL: everything can */
	const char *off;     /* how to use the optional part; NULL: it is in use */
};

struct doctor_check {
	const char *id;
	void (*run)(const struct doctor_host *host, struct doctor_finding *finding);
};

#define DOCTOR_CHECKS 21
extern const struct doctor_check doctor_checks[DOCTOR_CHECKS];

/* The checks of doctor-names.c. */
void doctor_check_debuginfo(const struct doctor_host *host, struct doctor_finding *finding);
void doctor_check_debuginfod(const struct doctor_host *host, struct doctor_finding *finding);
void doctor_check_interpreters(const struct doctor_host *host, struct doctor_finding *finding);
void doctor_check_jit_maps(const struct doctor_host *host, struct doctor_finding *finding);

/* The probes that query the running system. */
extern const struct doctor_probes doctor_live_probes;

/* Initializes *host. Reads the caller's privileges and namespaces from the tree below root. */
void doctor_host_init(struct doctor_host *host, const char *root, const char *directory,
		      const char *libexec_dir, const struct doctor_probes *probes);

/* Runs the check with an id. Returns false if the id is unknown. The caller frees the strings in
 * *ret_finding. */
bool doctor_run(const struct doctor_host *host, const char *id, struct doctor_finding *ret_finding);
/* Sets a finding. `fix`: a command or a sentence, or NULL. */
void PRINTF_LIKE(4, 5) doctor_found(struct doctor_finding *finding, enum doctor_status status,
				    const char *fix, const char *summary, ...);
void doctor_finding_done(struct doctor_finding *finding);

/* Returns the content of a file below the host's root, without trailing newlines; NULL if it cannot
 * be read. */
char *doctor_read(const struct doctor_host *host, const char *path) MUST_CHECK;
