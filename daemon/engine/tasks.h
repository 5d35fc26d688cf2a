/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/maps.h"
#include "daemon/engine/output.h"
#include "daemon/engine/snapshot.h"

#include <glib.h>

/* A process from fork or exec to exec or exit. Unlike a pid, it is not reused, and its program does
 * not change. */
struct process {
	struct row row;
	int32_t pid, ppid;
	uint64_t start_ns; /* of the pid */
	uint64_t begin_ns; /* of this instance: fork or exec; 0 = before the recording */
	uint32_t exec_generation;
	uint32_t uid;
	unsigned int n_threads; /* not exited */
	GBytes *cmdline;        /* arguments, each with its NUL; NULL = unknown */
	char *exe;              /* GRefString */
	char *cgroup;           /* GRefString */
	uint64_t *ns_pids;
	uint32_t n_ns_pids;
	/* its threads by tid in its own PID namespace; NULL: none */
	GHashTable *inner;
	struct maps *maps;
	struct image *anon, *unknown; /* created for the first frame there */
	struct image *program;        /* the first file that exec mapped; NULL: unknown */
	uint64_t stat_ns, maps_ns;    /* when /proc was read; 0 = not yet */
	bool kernel;
	bool gone;       /* replaced or without threads */
	bool queried;    /* a snapshot of it was requested */
	bool maps_known; /* from its parent, its exec, or /proc */
	bool executed;   /* it began by an exec */
	bool replaced;   /* it ended by an exec */
	/* its allocations, or those of an ancestor, are to be recorded */
	bool expects_heap;
	bool has_heap;     /* it has registered to record them */
	bool forked_heap;  /* it was forked from a registered process, so it would register too */
	bool refused_heap; /* it wanted to register, but was refused or quit */
	uint64_t end_ns;   /* valid if gone */
};

struct thread {
	struct row row;
	int32_t tid;
	struct process *process;
	uint64_t start_ns;
	uint64_t exit_ns; /* 0 = alive */
	uint64_t stat_ns;
	/* in PID namespaces below ours; not of the leader, which has those of the process */
	uint64_t *ns_tids;
	uint32_t n_ns_tids;
	uint32_t rank; /* by task: of the events that count; 0 = unknown */
	bool has_state;
	bool may_run; /* it was ready when the recording began, and has no later row */
	enum prof_switch_state state; /* of its last switch row */
	char comm[SNAPSHOT_COMM_BYTES];
};

struct tasks {
	GHashTable *processes; /* by pid */
	GHashTable *threads;   /* by tid; exited ones for a while */
	GQueue exited;         /* struct thread, by exit time */
	struct output *output;
	uint32_t last_process, last_thread;
	unsigned int n_alive; /* processes */
	bool filtered, children;
	/* pids; with a filter, only targets and their descendants are in the tables */
	GHashTable *targets;
	GHashTable *ranks; /* by tid, of live threads with events of their own */
	void (*ended)(struct process *process, void *data); /* may be NULL */
	void *data;
	/* A process was forked; may be NULL. */
	void (*forked)(struct process *parent, struct process *child, uint64_t time_ns, void *data);
	void *forked_data;
};

void tasks_init(struct tasks *tasks, struct output *output);
void tasks_done(struct tasks *tasks);
/* Keeps only these processes, their threads and, with `children`, the processes that they fork. */
void tasks_filter(struct tasks *tasks, const int32_t *pids, size_t n, bool children);

/* An existing thread has events of this rank. */
void tasks_set_rank(struct tasks *tasks, int32_t tid, uint32_t rank);
/* Returns whether events of this rank count for the thread. A thread with events of several ranks
 * has complete ones of the highest rank; lower ranks repeat a part of them
 * (daemon/broker/perf-tasks.c). */
static inline bool thread_accepts(struct thread *thread, uint32_t rank)
{
	if (rank > thread->rank)
		thread->rank = rank;
	return rank == thread->rank;
}

struct thread *tasks_thread(const struct tasks *tasks, int32_t tid);
/* Returns the leader of the instance that had the pid at time_ns, if that is recent; otherwise the
 * latest leader, or NULL. */
struct thread *tasks_leader_at(const struct tasks *tasks, int32_t pid, uint64_t time_ns);
struct process *tasks_process(const struct tasks *tasks, int32_t pid);
static inline bool tasks_is_target(const struct tasks *tasks, int32_t pid)
{
	return !tasks->filtered || g_hash_table_contains(tasks->targets, GINT_TO_POINTER(pid));
}

/* These apply records of the side band. */
void tasks_fork(struct tasks *tasks, const struct record_task *task, uint64_t time_ns);
void tasks_exit(struct tasks *tasks, const struct record_task *task, uint64_t time_ns);
void tasks_comm(struct tasks *tasks, int32_t tid, const char *comm, uint64_t time_ns);
/* Returns the new instance, or NULL if nothing changes. */
struct process *tasks_exec(struct tasks *tasks, int32_t pid, const char *comm, uint64_t time_ns);
/* Adds a process or thread that no record has reported. */
struct thread *tasks_found(struct tasks *tasks, int32_t pid, int32_t tid, uint64_t start_ns);

/*
 * Returns the thread with this tid in the process's own PID namespace at that time. The caller owns
 * one reference. An unknown thread gets a row of its own, with tid 0 until the tid is known.
 */
struct thread *tasks_inner_thread(struct tasks *tasks, struct process *process, uint32_t inner_tid,
				  uint64_t time_ns);
/* Sets the tids of a thread in the PID namespaces below ours, outermost first. */
void tasks_set_inner(struct tasks *tasks, struct process *process, int32_t tid,
		     const uint64_t *ns_tids, size_t n);

void tasks_add_row(struct tasks *tasks, struct thread *thread, enum prof_task_event event,
		   struct thread *parent, uint64_t time_ns);
/* Adds the exit status of a process, as from wait(). It is known only after the wait, so its row
 * has the time of the table's last row. */
void tasks_add_status(struct tasks *tasks, struct thread *leader, int32_t status);
/* A row refers to the thread, and thereby to its process. */
static inline void tasks_need(struct tasks *tasks, struct thread *thread)
{
	output_need(tasks->output, &thread->row);
	output_need(tasks->output, &thread->process->row);
}
/* Drops threads that exited long ago. */
void tasks_sweep(struct tasks *tasks, uint64_t now_ns);
/* Called after a scan: a target without a process has ended, and its pid may be reused. */
void tasks_drop_absent(struct tasks *tasks);
/* Ends the threads that a scan which began at time_ns has not found. */
void tasks_end_unseen(struct tasks *tasks, uint64_t time_ns);

/* Returns the image of the process's anonymous memory; the first call creates it. */
struct image *process_anon_image(struct process *process, struct images *images);
/* Call it when the process has ended, because its images and the process reference each other. */
void process_release_images(struct process *process);
void process_set_exe(struct process *process, const char *path, size_t length);
void process_set_cgroup(struct process *process, const char *path, size_t length);
void process_set_cmdline(struct process *process, const char *bytes, size_t length);
void process_set_ns_pids(struct process *process, const uint64_t *pids, size_t n);
