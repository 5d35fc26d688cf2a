/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Broker and engine - the messages between the two processes of one session
 *
 * profd (the broker) has the privileges: it opens perf events, /proc and mapped files, and passes
 * descriptors. profd-engine has none: it reads what they deliver. They talk over a SOCK_SEQPACKET
 * socketpair, which is the engine's fd ENGINE_SOCKET_FD. A datagram is one message: struct message,
 * then its body, descriptors by SCM_RIGHTS in the order that the message's comment gives. Both
 * programs come from one build, so there is no version. Each side still checks every length,
 * because the broker must not trust an engine that hostile bytes may have taken over.
 *
 * A session: broker CONFIG, CPU (one each), by task EVENTS (as many as necessary), START -> engine
 * enables the side band, if the broker could not yet, SNAPSHOT_REQUEST -> broker SNAPSHOT -> engine
 * enables sampling, STARTED … PROGRESS … STOP -> engine drains, finishes the file, FINISHED, exits.
 * The engine treats end-of-file on the socket as STOP with reason client-gone.
 */
#pragma once

#include <stdint.h>

#define ENGINE_SOCKET_FD 3
#define MESSAGE_MAX_BYTES 65536
#define MESSAGE_MAX_FDS 64
#define ENGINE_MAX_SOURCES 16
#define ENGINE_MAX_TARGETS 256u
#define ENGINE_MAX_USAGE_PIDS 256u
#define ENGINE_MAX_CPUS 1024
/* The limit of an engine's own memory: tables of 256 MiB, queues of 64 and 128 MiB, dictionaries of
 * an epoch below 300 MiB, and the rest. Rings do not count. */
#define ENGINE_MEMORY_BYTES (UINT64_C(1) << 30)
/* Exit status of an engine that needed more. */
#define ENGINE_EXIT_NO_MEMORY 71

enum message_type {
	/* broker to engine */
	MESSAGE_CONFIG =
		/* struct message_config, fds: capture, /proc/stat, cpu/online, kallsyms (last may
		 * be absent) */
	1,
	MESSAGE_CPU, /* struct message_cpu, fds: side band, then one a source */
	MESSAGE_START,
	MESSAGE_STOP, /* struct message_stop */
	MESSAGE_PAUSE,
	MESSAGE_RESUME,
	MESSAGE_SNAPSHOT, /* struct message_snapshot, fd: sealed memfd of snapshot records */
	/* struct message_image; without error, fd: the file, if stacks are copied or allocations
	 * expected */
	MESSAGE_IMAGE,
	MESSAGE_EVENTS, /* by task, before START: struct message_event, one for each fd */
	/* struct message_peer, fds: its connection, a pidfd unless it is gone; none for
	 * PEER_REFUSED */
	MESSAGE_PEER,
	/* before START, fd: a socket whose other end switches sampling on and off
	 * (libcollector/control.h); off at first */
	MESSAGE_SWITCH,
	/* engine to broker */
	MESSAGE_STARTED = 64,     /* sampling is enabled (or would be, when paused) */
	MESSAGE_SNAPSHOT_REQUEST, /* struct message_snapshot_request */
	MESSAGE_IMAGE_REQUEST,    /* struct message_image_request */
	MESSAGE_CPU_REQUEST,      /* struct message_cpu_request: a CPU came online */
	MESSAGE_PROGRESS,         /* struct message_progress, about one a second */
	MESSAGE_WARNING,          /* struct message_warning */
	MESSAGE_FINISHED,         /* struct message_finished, the last message */
	/* struct message_usage_request; answered by SNAPSHOT, if at all */
	MESSAGE_USAGE_REQUEST,
	MESSAGE_OBEYED, /* to each PAUSE and RESUME, in their order, once it took effect */
};

struct message {
	uint32_t type;
	uint32_t length; /* of the body */
};

/* perf sample_type of every sampling event, and read_format */
#define ENGINE_SAMPLE_TYPE                                                              \
	(PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | \
	 PERF_SAMPLE_CPU | PERF_SAMPLE_PERIOD | PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_CGROUP)
/* the same with copied stacks: registers and stack come before the cgroup */
#define ENGINE_STACK_SAMPLE_TYPE \
	(ENGINE_SAMPLE_TYPE | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER)
/* of the side band (with sample_id_all: the trailer of every record, in this order: tid, time,
 * cpu, identifier) */
#define ENGINE_SIDE_BAND_TYPE \
	(PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU)

/* of sched:sched_wakeup, whose records are in the ring of the side band; the fields before `raw`
 * are as in a sample */
#define ENGINE_WAKEUP_TYPE                                                              \
	(PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | \
	 PERF_SAMPLE_CPU | PERF_SAMPLE_RAW)
#define ENGINE_WAKEUP_TID_OFFSET 24 /* of the thread's number in the tracepoint's own fields */

enum engine_call_graph { ENGINE_CALL_GRAPH_NONE, ENGINE_CALL_GRAPH_FP, ENGINE_CALL_GRAPH_DWARF };

/* The behavior of a collector whose ring is full. */
enum engine_policy {
	ENGINE_POLICY_DEFAULT, /* lossless for collectors that record allocations */
	ENGINE_POLICY_DROP,
	ENGINE_POLICY_LOSSLESS,
};

/* An event that is sampled. Its events have this position on every CPU. */
struct message_source {
	char name[128]; /* as the user may write it: "cpu-clock", "sched:sched_switch" */
	uint32_t kind;  /* enum prof_source_kind */
	uint32_t uses_callgraph;
	/* fixed period, or the period that replaces frequency if it is fixed (cpu-clock: ns) */
	uint64_t period;
	uint64_t frequency; /* 0 = fixed period */
	uint32_t
		counts_ns; /* period counts nanoseconds of CPU time: missed ticks can be computed */
	uint32_t pad;
};

struct message_config {
	uint32_t system;   /* 1: everything; 0: targets only */
	uint32_t children; /* threads and children of targets too (threads always) */
	uint32_t n_targets;
	int32_t targets[ENGINE_MAX_TARGETS]; /* pids */
	uint32_t kernel;                     /* keep kernel frames */
	uint32_t call_graph;                 /* enum engine_call_graph */
	uint32_t append;
	uint32_t paused;
	uint32_t n_sources; /* 0: no sampling, side band only */
	uint32_t has_kallsyms;
	uint32_t build_ids; /* 1: MMAP2 records carry build-ids in place of device and inode */
	/* bytes that a sample copies, at most; 0: none, samples are of ENGINE_SAMPLE_TYPE */
	uint32_t stack_bytes;
	struct message_source sources[ENGINE_MAX_SOURCES];
	uint64_t max_bytes;       /* of the capture; 0 = no limit */
	uint64_t max_duration_ns; /* 0 = no limit */
	uint64_t max_rate;        /* samples a second of all CPUs; 0 = no limit */
	/* when the broker enabled the side band (CLOCK_MONOTONIC); 0: the engine does it */
	uint64_t begin_ns;
	int32_t ignored_pids[4]; /* reserved, 0 */
	/* after this struct: struct message_metadata, key, value, …; written as metadata rows */
	uint32_t metadata_bytes;
	/* 1: events of threads, which come with EVENTS; those of CPU are only for the rings */
	uint32_t by_task;
	uint32_t policy;    /* enum engine_policy */
	uint32_t session;   /* its number, for processes that register */
	uint32_t memory;    /* 1: allocations are expected, and memory usage is measured */
	int32_t memory_pid; /* of this process and its children; 0: of the targets and theirs */
};

/* Without padding or NUL; a value may contain NULs ("command": the arguments, a NUL after each).
 * Keys: host kernel arch event frequency_hz call_graph stack_bytes command options (as JSON)
 * memory.mode memory.sample_bytes memory.min_bytes memory.mmap. */
struct message_metadata {
	uint32_t key_bytes, value_bytes;
};

/* Rings: an event's first mapping has 1 + ring_pages pages; the broker has mapped each once before.
 * Sources after the first write into the ring of the first (PERF_EVENT_IOC_SET_OUTPUT is done). By
 * task the first two events deliver nothing, and n_sources is 1 if there is sampling. */
struct message_cpu {
	uint32_t cpu;
	uint32_t side_band_pages;
	uint32_t sample_pages; /* 0: no sampling */
	uint32_t n_sources;
	uint64_t source_ids[ENGINE_MAX_SOURCES]; /* PERF_EVENT_IOC_ID */
	uint64_t side_band_id;
	/* 1: the last event reports wake-ups, into the ring of the side band */
	uint32_t has_wakeups;
	uint32_t pad;
};

/* An event of a thread, and of what inherits it. The engine makes it write into a ring of its CPU.
 * A thread with events of several ranks has those of the highest completely; the others are
 * duplicates. */
struct message_event {
	uint64_t id; /* PERF_EVENT_IOC_ID */
	uint32_t cpu;
	int32_t tid;
	uint32_t rank;     /* from 1 on */
	uint32_t position; /* 0: the side band, else 1 + that of the source */
};

enum peer_protocol {
	PEER_OWN, /* libcollector/control.h: the connection is the process's */
	/* a ring for one of its threads; all who ask share the socket, which is only for answers */
	PEER_SYSPROF,
	/* it was refused for lack of room: without descriptors, because it has its answer */
	PEER_REFUSED,
};

/* A process that wants to register its collector, whose hello or request was read, and which the
 * session may see. The kernel says who it is. The engine checks whether it is a target, and
 * answers. */
struct message_peer {
	int32_t pid;
	uint32_t inner_pid; /* in its PID namespace; 0: it is in ours */
	uint32_t wants;     /* CONTROL_WANTS_* */
	uint32_t protocol;  /* enum peer_protocol */
};

enum engine_reason {
	ENGINE_REASON_STOPPED,
	ENGINE_REASON_CLIENT_GONE,
	ENGINE_REASON_TARGET_EXITED,
	ENGINE_REASON_DURATION,
	ENGINE_REASON_SIZE,
	ENGINE_REASON_DISK_FULL,
	ENGINE_REASON_IO_ERROR,
	ENGINE_REASON_INTERNAL,
};

/* Why a process delivered no allocations although some were expected. */
enum engine_excluded {
	ENGINE_EXCLUDED_STATIC, /* no dynamic linker, so no library */
	ENGINE_EXCLUDED_SETUID, /* the dynamic linker loads nothing that its caller names */
	ENGINE_EXCLUDED_OTHER_ARCH,
	ENGINE_EXCLUDED_UNREGISTERED, /* the reason is not known */
	ENGINE_EXCLUDED_OTHER_LIBC,   /* its dynamic linker is not glibc's */
	ENGINE_EXCLUDED_ENVIRONMENT,  /* it was started without our variables */
	ENGINE_EXCLUDED_NO_DESCRIPTORS,
	ENGINE_EXCLUDED_NO_MEMORY,
	ENGINE_EXCLUDED_SANITIZER,
	ENGINE_EXCLUDED_NEVER_ALLOCATED,
	ENGINE_EXCLUDED_KINDS
};

struct message_stop {
	uint32_t reason; /* enum engine_reason */
};

struct message_snapshot_request {
	uint32_t serial;
	int32_t pid;         /* 0: all processes, and the cgroups */
	uint32_t maps_known; /* 1: without mappings, which cost most */
	uint32_t pad;
};

/* Asks for the memory usage of processes. One at a time: others are dropped until it is
 * answered. */
struct message_usage_request {
	uint32_t serial;
	uint32_t n;     /* up to ENGINE_MAX_USAGE_PIDS */
	int32_t pids[]; /* ascending without their signs; negative: without what takes long */
};

#define MESSAGE_SNAPSHOT_USAGE (-1) /* instead of a pid: the snapshot is about memory usage */

struct message_snapshot {
	uint32_t serial;
	int32_t pid;
};

/* Content of the memfd: records, each padded to 8 bytes. Bytes of /proc are unchanged. */
enum snapshot_kind {
	SNAPSHOT_STAT = 1, /* /proc/PID/task/TID/stat; the thread group leader's comes first */
	/* /proc/PID/status; of one process in a PID namespace below ours, also task/TID/status */
	SNAPSHOT_STATUS,
	SNAPSHOT_CMDLINE,
	SNAPSHOT_CGROUP,     /* /proc/PID/cgroup */
	SNAPSHOT_EXE,        /* target of /proc/PID/exe, no NUL */
	SNAPSHOT_MAPS,       /* text of /proc/PID/maps, if the kernel has no PROCMAP_QUERY */
	SNAPSHOT_MAPPING,    /* struct snapshot_mapping, then the name */
	SNAPSHOT_CGROUP_DIR, /* uint64_t id, then the path below the hierarchy's root */
	SNAPSHOT_MODULES,    /* /proc/modules */
	SNAPSHOT_ROLLUP,     /* /proc/PID/smaps_rollup */
	SNAPSHOT_STATM,      /* /proc/PID/statm, if smaps_rollup cannot be read */
	SNAPSHOT_END,        /* of memory usage: when all were read */
};

struct snapshot_record {
	uint32_t kind;
	uint32_t length; /* of what follows, without padding */
	int32_t pid, tid;
	uint64_t time_ns; /* CLOCK_MONOTONIC just before it was read */
};

struct snapshot_mapping {
	uint64_t start, end, file_offset, inode;
	uint32_t dev_major, dev_minor;
	uint32_t build_id_size;
	uint8_t build_id[20];
	uint32_t is_shared; /* not 0: what the process writes changes the file */
	uint32_t reserved;
};

/* "Open the file that PID maps executably at start-end": the broker opens /proc/PID/map_files/…,
 * else the path below the process's root, and keeps the fd under image_id for OpenImage. */
struct message_image_request {
	uint64_t image_id; /* the id of the image row; unique in a session */
	uint64_t start, end;
	uint64_t inode, inode_generation; /* 0 = unknown; the path must lead to that file */
	int32_t pid;
	uint32_t path_bytes; /* of the path that follows, no NUL */
};

struct message_image {
	uint64_t image_id;
	int32_t error;          /* errno, 0 = the rest is valid */
	uint32_t build_id_size; /* 0 = none, or the kernel does not report it */
	uint64_t dev, inode, size;
	int64_t ctime_ns;
	uint8_t build_id[20];
	uint32_t owner;
	uint32_t rights; /* MESSAGE_IMAGE_* */
	uint32_t pad;
};

/* Rights that the file gives to those who run it, but their caller does not have: by its owner, its
 * group, its capabilities. */
#define MESSAGE_IMAGE_SETUID 0x1u
#define MESSAGE_IMAGE_SETGID 0x2u
#define MESSAGE_IMAGE_CAPABILITIES 0x4u

struct message_cpu_request {
	uint32_t cpu;
};

struct message_progress {
	uint64_t samples, events, lost, bytes;
};

struct message_warning {
	char code[32];
	char text[480];
};

struct message_loss {
	char stream[32];
	uint32_t cause; /* enum prof_loss_cause */
	uint32_t pad;
	uint64_t count;                 /* 0: unknown, at least one */
	uint64_t bytes, from_ns, to_ns; /* from_ns, to_ns: CLOCK_MONOTONIC */
};

#define MESSAGE_MAX_LOSS 512 /* further rows are summed by cause into the last ones */

struct message_finished {
	uint32_t ok;
	uint32_t reason; /* enum engine_reason */
	int32_t error;   /* errno of disk-full and io-error; ENOMEM of internal */
	uint32_t n_loss;
	uint64_t samples, events, lost, missed_ticks, bytes;
	uint64_t start_ns, stop_ns; /* CLOCK_MONOTONIC: sampling enabled, disabled */
	uint64_t unwind_complete, unwind_truncated, unwind_guessed, unwind_none, unwind_no_memory;
	uint64_t excluded
		/* processes without allocations, by enum engine_excluded */
		[ENGINE_EXCLUDED_KINDS];
	struct message_loss loss[]; /* n_loss */
};
