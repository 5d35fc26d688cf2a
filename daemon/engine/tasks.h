/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/maps.h"
#include "daemon/engine/output.h"
#include "daemon/engine/snapshot.h"

#include <glib.h>

/* A process from fork or exec to exec or exit: pids are reused and programs change, these are
 * not. */
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
	/* its threads by what they are called in its own PID namespace; NULL: none is known */
	GHashTable *inner;
	struct maps *maps;
	struct image *anon, *unknown; /* made when a frame lies there */
	struct image *program;        /* the first file that exec mapped; NULL: it was not seen */
	uint64_t stat_ns, maps_ns;    /* when /proc was read; 0 = it was not */
	bool kernel;
	bool gone;       /* replaced or without threads */
	bool asked;      /* a snapshot of it was asked for */
	bool maps_known; /* from its parent, its exec, or /proc */
	bool executed;   /* it began by an exec */
	bool replaced;   /* it ended by one */
	/* it, or whom it descends from, is one whose allocations are to be recorded */
	bool expects_heap;
	bool has_heap;     /* it has registered for that */
	bool forked_heap;  /* it was forked from one that had, so it would */
	bool refused_heap; /* it wanted to */
	uint64_t end_ns;   /* where it is gone */
};

struct thread {
	struct row row;
	int32_t tid;
	struct process *process;
	uint64_t start_ns;
	uint64_t exit_ns; /* 0 = alive */
	uint64_t stat_ns;
	/* in PID namespaces below ours, but the leader's, whose are the process's */
	uint64_t *ns_tids;
	uint32_t n_ns_tids;
	uint32_t rank; /* by task: of the events that count; 0 = not known yet */
	bool has_state;
	bool may_run; /* it was ready when the recording began, and has had no other row */
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
	/* pids; while filtered, only targets and what descends from them are here */
	GHashTable *targets;
	GHashTable *ranks; /* by tid, of threads that are alive and got events of their own */
	void (*ended)(struct process *process, void *data); /* NULL: nobody wants to know */
	void *data;
	/* A process was forked; NULL: the same. */
	void (*forked)(struct process *parent, struct process *child, uint64_t time_ns, void *data);
	void *forked_data;
};

void tasks_init(struct tasks *tasks, struct output *output);
void tasks_done(struct tasks *tasks);
/* Keeps only these processes, their threads and, with `children`, what they fork. */
void tasks_filter(struct tasks *tasks, const int32_t *pids, size_t n, bool children);

/* A thread that is there already has got events of this rank. */
void tasks_set_rank(struct tasks *tasks, int32_t tid, uint32_t rank);
/* Whether what an event of this rank says of the thread counts. One that has events of several
 * ranks has those of the highest completely; those below say a part of it once more
 * (daemon/broker/perf-tasks.c). */
static inline bool thread_takes(struct thread *thread, uint32_t rank)
{
	if (rank > thread->rank)
		thread->rank = rank;
	return rank == thread->rank;
}

struct thread *tasks_thread(const struct tasks *tasks, int32_t tid);
/* The first thread of the instance that the process was then, of late; NULL: none is known. */
struct thread *tasks_leader_at(const struct tasks *tasks, int32_t pid, uint64_t time_ns);
struct process *tasks_process(const struct tasks *tasks, int32_t pid);
static inline bool tasks_wants(const struct tasks *tasks, int32_t pid)
{
	return !tasks->filtered || g_hash_table_contains(tasks->targets, GINT_TO_POINTER(pid));
}

/* What the side band says. */
void tasks_fork(struct tasks *tasks, const struct record_task *task, uint64_t time_ns);
void tasks_exit(struct tasks *tasks, const struct record_task *task, uint64_t time_ns);
void tasks_comm(struct tasks *tasks, int32_t tid, const char *comm, uint64_t time_ns);
/* Returns the new instance, or NULL when nothing is to change. */
struct process *tasks_exec(struct tasks *tasks, int32_t pid, const char *comm, uint64_t time_ns);
/* A process or thread that turns up without having been announced. */
struct thread *tasks_found(struct tasks *tasks, int32_t pid, int32_t tid, uint64_t start_ns);

/*
 * The thread of that number in the process's own PID namespace, at that time; one reference is the
 * caller's. Where it is not known which one that is, a row of its own, with tid 0 until it is
 * known.
 */
struct thread *tasks_inner_thread(struct tasks *tasks, struct process *process, uint32_t inner_tid,
				  uint64_t time_ns);
/* What a thread is called in the PID namespaces below ours, outermost first. */
void tasks_set_inner(struct tasks *tasks, struct process *process, int32_t tid,
		     const uint64_t *ns_tids, size_t n);

void tasks_add_row(struct tasks *tasks, struct thread *thread, enum prof_task_event event,
		   struct thread *parent, uint64_t time_ns);
/* How a process has ended, as wait() has it: known when it has been waited for, so behind all
 * rows that are there. */
void tasks_add_status(struct tasks *tasks, struct thread *leader, int32_t status);
/* A row that names the thread, and through it the process. */
static inline void tasks_need(struct tasks *tasks, struct thread *thread)
{
	output_need(tasks->output, &thread->row);
	output_need(tasks->output, &thread->process->row);
}
/* Forgets threads that exited long before. */
void tasks_sweep(struct tasks *tasks, uint64_t now_ns);
/* After a scan: a target that is not there has ended, and its pid may be anybody's. */
void tasks_drop_absent(struct tasks *tasks);
/* Whatever was not seen by a scan that began at time_ns has exited unnoticed. */
void tasks_end_unseen(struct tasks *tasks, uint64_t time_ns);

/* Of its anonymous memory; made with the first call. */
struct image *process_anon_image(struct process *process, struct images *images);
/* They and the process hold each other: to be called when it is over. */
void process_release_images(struct process *process);
void process_set_exe(struct process *process, const char *path, size_t length);
void process_set_cgroup(struct process *process, const char *path, size_t length);
void process_set_cmdline(struct process *process, const char *bytes, size_t length);
void process_set_ns_pids(struct process *process, const uint64_t *pids, size_t n);
