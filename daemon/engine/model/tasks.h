/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/model/maps.h"
#include "daemon/engine/model/snapshot.h"
#include "daemon/engine/out/output.h"

#include <glib.h>

/* A process from a fork or exec to the next exec or exit. Unlike a pid, it is not reused, and its
 * program does not change. */
struct process {
	struct row row;
	int32_t pid, ppid;
	uint64_t start_ns; /* when the process with this pid was created */
	uint64_t begin_ns; /* time of its fork or exec; 0: no record of either was seen */
	uint32_t origin;   /* id of the first process in its chain of forks without an exec */
	uint32_t exec_generation;
	uint32_t uid;
	unsigned int n_threads; /* threads that have not exited */
	GBytes *cmdline;        /* arguments, each with its NUL; NULL: unknown */
	char *exe;              /* GRefString */
	char *cgroup;           /* GRefString */
	uint64_t *ns_pids;
	uint32_t n_ns_pids;
	/* struct thread by tid in the process's own PID namespace; NULL: none */
	GHashTable *inner;
	struct maps *maps;
	/* images of its anonymous memory, and of addresses in no mapping; NULL: not needed yet */
	struct image *anon, *unknown;
	struct image *program; /* the first file that exec mapped; NULL: unknown */
	/* The mapped file that has an interpreter (NULL: none is known), and the bias of its
	 * addresses; the version of the maps and the generation at the last search
	 * (perf/interpreted.h). */
	struct image *interpreter;
	uint64_t interpreter_bias, interpreter_maps;
	uint32_t interpreter_generation;
	bool has_unread_interpreter; /* the process maps another interpreter, which is not read */
	bool describes_code;         /* the process maps a dump of the code that it generates */
	bool has_chains;             /* the frames of its interpreter were read before a sleep */
	uint64_t stat_ns, maps_ns;   /* when stat and maps in /proc were read; 0: never */
	bool kernel;
	bool gone;       /* replaced by exec, or without threads */
	bool queried;    /* a snapshot of the process was requested */
	bool maps_known; /* mappings are known from its parent, its exec, or /proc */
	bool executed;   /* began by an exec */
	bool replaced;   /* ended by an exec */
	/* its allocations, or those of an ancestor, are to be recorded */
	bool expects_heap;
	bool has_heap;     /* has registered to record allocations */
	bool forked_heap;  /* forked from a registered process, so it is expected to register */
	bool refused_heap; /* tried to register, but was refused or recorded nothing */
	uint64_t end_ns;   /* only if gone */
};

struct wait;

struct thread {
	struct row row;
	int32_t tid;
	struct process *process;
	uint64_t start_ns;
	uint64_t exit_ns; /* 0: alive */
	uint64_t stat_ns;
	/* tids in the PID namespaces below the daemon's; NULL for the leader: see
	 * process->ns_pids */
	uint64_t *ns_tids;
	uint32_t n_ns_tids;
	uint32_t rank; /* highest rank of its per-task events; 0: unknown */
	bool has_state;
	bool has_status; /* of the process; only for a leader */
	/* state in /proc when the recording began; 0: unknown, or a later row has the state */
	char found_state;
	enum prof_switch_state state; /* RUNNING on a CPU, else the state in its last switch row */
	uint64_t state_ns;            /* the time of that row */
	struct wait *wait;            /* only for waits.c; NULL: none */
	uint64_t cgroup;              /* id in the thread's or its creator's last sample; 0: none */
	char comm[SNAPSHOT_COMM_BYTES];
};

/* A task and its parent. */
struct task_ids {
	int32_t pid, ppid, tid, ptid;
};

struct tasks {
	GHashTable *processes; /* by pid */
	GHashTable *threads;   /* by tid; exited threads remain for a while */
	GQueue exited;         /* struct thread, in order of exit */
	struct output *output;
	uint32_t last_process, last_thread;
	unsigned int n_alive; /* processes that have a thread */
	bool filtered, children;
	/* pids; with a filter, only targets and their descendants are in the tables */
	GHashTable *targets;
	/* rank by tid, for threads that existed when their per-task events were opened */
	GHashTable *ranks;
	GHashTable *cgroups;                                /* struct cgroup by its uint64_t id */
	void (*ended)(struct process *process, void *data); /* may be NULL */
	void *data;
	/* Called when a process was forked; may be NULL. */
	void (*forked)(struct process *parent, struct process *child, uint64_t time_ns, void *data);
	void *forked_data;
};

void tasks_init(struct tasks *tasks, struct output *output);
void tasks_done(struct tasks *tasks);
/* Restricts the tables to these processes and, with `children`, their descendants. */
void tasks_filter(struct tasks *tasks, const int32_t *pids, size_t n, bool children);

/* Sets the rank of an existing thread's per-task events. */
void tasks_set_rank(struct tasks *tasks, int32_t tid, uint32_t rank);
/* Returns whether to apply events of this rank to the thread. If a thread has events of several
 * ranks, those of the highest rank are complete; lower ranks repeat a part of them
 * (daemon/broker/perf-tasks.c). */
static inline bool thread_accepts(struct thread *thread, uint32_t rank)
{
	if (rank > thread->rank)
		thread->rank = rank;
	return rank == thread->rank;
}

struct thread *tasks_thread(const struct tasks *tasks, int32_t tid);
/* Returns the leader of the process that had the pid at time_ns, if time_ns is recent; otherwise
 * the latest leader with that pid, or NULL. */
struct thread *tasks_leader_at(const struct tasks *tasks, int32_t pid, uint64_t time_ns);
struct process *tasks_process(const struct tasks *tasks, int32_t pid);
static inline bool tasks_is_target(const struct tasks *tasks, int32_t pid)
{
	return !tasks->filtered || g_hash_table_contains(tasks->targets, GINT_TO_POINTER(pid));
}

/* These functions apply records of the side band. */
void tasks_fork(struct tasks *tasks, const struct task_ids *task, uint64_t time_ns);
void tasks_exit(struct tasks *tasks, const struct task_ids *task, uint64_t time_ns);
void tasks_comm(struct tasks *tasks, int32_t tid, const char *comm, uint64_t time_ns);
/* Returns the new struct process, or NULL if nothing changes. */
struct process *tasks_exec(struct tasks *tasks, int32_t pid, const char *comm, uint64_t time_ns);
/* Adds a thread that no fork record has reported, for example one that was found in /proc, and, if
 * necessary, its process. */
struct thread *tasks_found(struct tasks *tasks, int32_t pid, int32_t tid, uint64_t start_ns);

/* Returns the thread that had this tid in the process's own PID namespace at time_ns. The caller
 * owns a reference. If the thread is unknown, makes one, whose tid is 0 until it is known. */
struct thread *tasks_inner_thread(struct tasks *tasks, struct process *process, uint32_t inner_tid,
				  uint64_t time_ns);
/* Sets the tids of a thread in the PID namespaces below the daemon's, outermost first. Ignores the
 * leader, whose tids are in process->ns_pids. */
void tasks_set_inner(struct tasks *tasks, struct process *process, int32_t tid,
		     const uint64_t *ns_tids, size_t n);

void tasks_add_row(struct tasks *tasks, struct thread *thread, enum prof_task_event event,
		   struct thread *parent, uint64_t time_ns);
/* Writes the exit status of a process, as wait() reports it: for the process's last program, and
 * only once. The status is known only after that wait, so its row has the time of the table's last
 * row. */
void tasks_add_status(struct tasks *tasks, struct thread *leader, int32_t status);
/* Must be called for each row that refers to the thread, and therefore to its process. */
static inline void tasks_need(struct tasks *tasks, struct thread *thread)
{
	output_need(tasks->output, &thread->row);
	output_need(tasks->output, &thread->process->row);
}
/* Drops threads that exited two seconds before now_ns. No later row may need their tids. */
void tasks_sweep(struct tasks *tasks, uint64_t now_ns);
/* Called after a scan. Drops targets without a process: they have ended, and their pids may be
 * reused. */
void tasks_drop_absent(struct tasks *tasks);
/* Ends the threads that began before time_ns and that no scan has found since. */
void tasks_end_unseen(struct tasks *tasks, uint64_t time_ns);

/* Returns the image of the process's anonymous memory, and creates it if necessary. */
struct image *process_anon_image(struct process *process, struct images *images);
/* Must be called when the process has ended, because its images and the process reference each
 * other. */
void process_release_images(struct process *process);
void process_set_exe(struct process *process, const char *path, size_t length);
/* Sets the path of a cgroup by its id. */
void tasks_set_cgroup(struct tasks *tasks, uint64_t id, const char *path, size_t length);
/* Returns the current epoch's string id of a cgroup's path; 0: unknown. `id`: of the cgroup. */
uint32_t tasks_cgroup(struct tasks *tasks, uint64_t id);
void process_set_cgroup(struct process *process, const char *path, size_t length);
void process_set_cmdline(struct process *process, const char *bytes, size_t length);
void process_set_ns_pids(struct process *process, const uint64_t *pids, size_t n);
