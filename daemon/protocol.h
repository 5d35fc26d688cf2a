/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Broker and engine - the messages between the two processes of one session
 *
 * profd (the broker) has the privileges: it opens perf events, /proc and mapped files, and passes
 * the descriptors. profd-engine has none: it reads from these descriptors. They communicate over a
 * SOCK_SEQPACKET socketpair, which is the engine's fd ENGINE_SOCKET_FD. A datagram is one message:
 * struct message, then its body, with descriptors (SCM_RIGHTS) in the order that the message's
 * comment gives. Both programs come from one build, so there is no version. Each side still checks
 * every length, because hostile bytes may have taken over the engine.
 *
 * A session: broker CONFIG, CPU (one per CPU), for per-task events EVENTS (any number), START ->
 * engine enables the side band, unless the broker has done so, SNAPSHOT_REQUEST -> broker SNAPSHOT
 * -> engine enables sampling, STARTED … PROGRESS … STOP -> engine drains, finishes the file,
 * FINISHED, exits. The engine treats end-of-file on the socket like STOP with reason client-gone.
 */
#pragma once

#include "arch/probe-arguments.h"

#include <stdint.h>

#define ENGINE_SOCKET_FD 3
#define MESSAGE_MAX_BYTES 65536
#define MESSAGE_MAX_FDS 64
#define ENGINE_MAX_SOURCES 16
#define ENGINE_SOURCE_NAME 256 /* bytes of a source's name, with its NUL */
#define ENGINE_MAX_FIELDS 64   /* fields of a source; further ones are not recorded */
#define ENGINE_MAX_TARGETS 256u
#define ENGINE_MAX_USAGE_PIDS 256u
#define ENGINE_MAX_CPUS 1024
/* Memory limit of an engine, without its rings. The largest parts have their own limits: unwind
 * tables 256 MiB, data about allocations 448 MiB. */
#define ENGINE_MEMORY_BYTES (UINT64_C(1) << 30)
/* Exit status of an engine that ran out of memory. */
#define ENGINE_EXIT_NO_MEMORY 71

enum message_type {
	/* broker to engine */
	MESSAGE_CONFIG =
		/* struct message_config, fds: capture, /proc/stat, cpu/online, kallsyms (last may
		 * be absent) */
	1,
	/* struct message_cpu, fds: side band, sources, then wake-ups, sleeps, wakers if recorded */
	MESSAGE_CPU,
	MESSAGE_START,
	MESSAGE_STOP, /* struct message_stop */
	MESSAGE_PAUSE,
	MESSAGE_RESUME,
	MESSAGE_SNAPSHOT, /* struct message_snapshot, fd: sealed memfd of snapshot records */
	/* struct message_image; fd: the file, if it was opened, and if the call graph is
	 * ENGINE_CALL_GRAPH_DWARF or allocations are expected */
	MESSAGE_IMAGE,
	MESSAGE_EVENTS, /* with per-task events, before START: struct message_event, one per fd */
	/* struct message_peer, fds: the connection of the process, and a pidfd unless it has
	 * exited; without fds if PEER_REFUSED */
	MESSAGE_PEER,
	/* before START, fd: a socket whose peer enables and disables sampling
	 * (libcollector/control.h); sampling is initially disabled */
	MESSAGE_SWITCH,
	/* before START: struct message_counter_file, one per fd */
	MESSAGE_COUNTERS,
	/* before START: struct message_fields, then its fields; one message for each tracepoint,
	 * and for each static probe that has arguments */
	MESSAGE_FIELDS,
	/* before START: struct message_arguments; one for each place of a probe */
	MESSAGE_ARGUMENTS,
	/* OUTPUTS: struct message_outputs for each CPU, fds: the events that write samples and code
	 * objects. NO_OUTPUTS: text that says why interpreters are not read. Either message answers
	 * the first INTERPRETED; NO_OUTPUTS also answers the first INTERPRETED of a family whose
	 * programs the kernel refuses. With per-task events, OUTPUTS come before START. */
	MESSAGE_OUTPUTS,
	MESSAGE_NO_OUTPUTS,
	/* engine to broker */
	MESSAGE_STARTED = 64,     /* sampling is enabled, or would be if not paused */
	MESSAGE_SNAPSHOT_REQUEST, /* struct message_snapshot_request */
	MESSAGE_IMAGE_REQUEST,    /* struct message_image_request */
	MESSAGE_CPU_REQUEST,      /* struct message_cpu_request: a CPU came online */
	MESSAGE_PROGRESS,         /* struct message_progress, about one a second while it changes */
	MESSAGE_WARNING,          /* struct message_warning */
	MESSAGE_FINISHED,         /* struct message_finished, the last message */
	/* struct message_usage_request; the answer, if any, is a SNAPSHOT */
	MESSAGE_USAGE_REQUEST,
	MESSAGE_OBEYED, /* PAUSE or RESUME has taken effect; one for each, in order */
	/* struct message_interpreted; after the last OUTPUTS, sent again for each process */
	MESSAGE_INTERPRETED,
};

struct message {
	uint32_t type;
	uint32_t length; /* length of the body */
};

/* sample_type of every sampling event */
#define ENGINE_SAMPLE_TYPE                                                              \
	(PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | \
	 PERF_SAMPLE_CPU | PERF_SAMPLE_PERIOD | PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_CGROUP)
/* sample_type with copied stacks: registers and stack precede the cgroup */
#define ENGINE_STACK_SAMPLE_TYPE \
	(ENGINE_SAMPLE_TYPE | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER)
/* sample_type of the event that copies the stacks of sleeping threads. If its samples had a period,
 * the kernel would ignore the tracepoint's fixed period. So they have a stream id instead of the
 * period. The stream id is where other samples have the CPU, and the CPU is where they have the
 * period, so all samples are parsed alike. */
#define ENGINE_COPY_TYPE(type) (((type) & ~(uint64_t)PERF_SAMPLE_PERIOD) | PERF_SAMPLE_STREAM_ID)
/* With has_fields, every sample has PERF_SAMPLE_RAW in addition, after the call chain. */
/* sample_type of side-band events; every record ends with tid, time, cpu, identifier */
#define ENGINE_SIDE_BAND_TYPE \
	(PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU)

/* sample_type of sched:sched_wakeup, whose records are in the side band's ring; the fields before
 * `raw` are those of a sample */
#define ENGINE_WAKEUP_TYPE                                                              \
	(PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | \
	 PERF_SAMPLE_CPU | PERF_SAMPLE_RAW)
#define ENGINE_WAKEUP_TID_OFFSET 24 /* offset of the woken tid in the tracepoint's own fields */

/* sample_type of sched:sched_switch with the registers of a thread that is about to sleep
 * (regs->perf_sleep_mask), whose records are in the side band's ring. The tracepoint's own fields
 * precede the registers. */
#define ENGINE_SLEEP_TYPE (ENGINE_WAKEUP_TYPE | PERF_SAMPLE_REGS_USER)
#define ENGINE_SLEEP_STATE_OFFSET 32 /* offset of the state, of 8 bytes, in these fields */

/* Records of sched:sched_waking have ENGINE_SLEEP_TYPE, too. They are in the side band's ring, with
 * the registers of the thread that wakes another (regs_waking_mask()), and the fields of
 * sched_wakeup.
 * sched_wakeup occurs on the CPU on which the woken thread will run, sched_waking on that of the
 * waker. */
#define ENGINE_FLAGS_OFFSET \
	2 /* offset of the context's flags, a byte, in any tracepoint's fields */
/* from TRACE_FLAG_HARDIRQ, _SOFTIRQ and _NMI of <linux/trace_events.h> */
#define ENGINE_FLAGS_INTERRUPT 0x58u

enum engine_call_graph { ENGINE_CALL_GRAPH_NONE, ENGINE_CALL_GRAPH_FP, ENGINE_CALL_GRAPH_DWARF };

/* The behavior of a collector whose ring is full. */
enum engine_policy {
	ENGINE_POLICY_DEFAULT, /* lossless for collectors that record allocations */
	ENGINE_POLICY_DROP,
	ENGINE_POLICY_LOSSLESS,
};

/* A sampled event. Its index in message_config.sources is its position on every CPU. */
struct message_source {
	/* as the user writes it: "cpu-clock", "sched:sched_switch" */
	char name[ENGINE_SOURCE_NAME];
	uint32_t kind; /* enum prof_source_kind */
	uint32_t uses_callgraph;
	/* fixed period, or the equivalent of the frequency if that is constant (cpu-clock: ns) */
	uint64_t period;
	uint64_t frequency; /* 0: fixed period */
	uint32_t counts_ns; /* the period is in ns of CPU time, so missed ticks can be computed */
	/* 0: a source of samples. Otherwise, the samples are stacks of threads that are about to
	 * sleep (1), or that wake another thread (2). Such sources come last. */
	uint32_t off_cpu;
	/* another place of a probe: 1 + the position of the probe's first source, to which the
	 * samples belong; 0: any other source */
	uint32_t same_as;
	uint32_t pad;
};

struct message_config {
	uint32_t system;   /* 1: the whole system; 0: targets only */
	uint32_t children; /* 1: also children of targets; threads of targets are always included */
	uint32_t n_targets;
	int32_t targets[ENGINE_MAX_TARGETS]; /* pids */
	uint32_t kernel;                     /* keep kernel frames */
	uint32_t call_graph;                 /* enum engine_call_graph */
	uint32_t append;
	uint32_t paused;
	uint32_t n_sources; /* 0: only the side band, no samples */
	uint32_t has_kallsyms;
	uint32_t build_ids; /* 1: MMAP2 records have build-ids instead of device and inode */
	/* maximum size of a stack copy, also of a stack that is read from a sleeping thread; 0: no
	 * stacks are walked */
	uint32_t stack_bytes;
	struct message_source sources[ENGINE_MAX_SOURCES];
	uint64_t max_bytes;       /* maximum size of the capture; 0: unlimited */
	uint64_t max_duration_ns; /* 0: unlimited */
	uint64_t max_rate;        /* samples per second, all CPUs together; 0: unlimited */
	/* when the broker enabled the side band (CLOCK_MONOTONIC); 0: the engine enables it */
	uint64_t begin_ns;
	uint32_t interpreters, pad; /* 1: interpreters are read, if stacks are walked */
	/* number of bytes after this struct, which become metadata rows: struct message_metadata,
	 * key, value, … */
	uint32_t metadata_bytes;
	/* 1: events are per task, and sent with EVENTS; the events sent with CPU serve only to own
	 * the rings */
	uint32_t by_task;
	uint32_t policy;  /* enum engine_policy */
	uint32_t session; /* number of the session, for processes that register */
	uint32_t memory;  /* 1: allocations are expected, and memory usage is recorded */
	/* allocations are expected of this process and its descendants; 0: of the targets and their
	 * descendants */
	int32_t memory_pid;
	uint32_t process_counters; /* 1: record I/O, faults, descriptors, … of the targets */
	uint32_t is_command;       /* 1: the targets were started for this session */
	uint32_t has_fields;       /* 1: samples contain the raw fields of tracepoints */
	uint32_t off_cpu;          /* 1: write a row for each wait */
	/* if there are more sleeps a second than this, stop recording stacks of waits; 0: no
	 * limit */
	uint32_t off_cpu_max_rate;
	/* 1: samples are of ENGINE_STACK_SAMPLE_TYPE, even if no stack is walked; 0: of
	 * ENGINE_SAMPLE_TYPE */
	uint32_t has_stacks;
	/* if a thread waits at least this long, read what it waits for, and its stack if that was
	 * not copied; not 0 if off_cpu is 1 */
	uint64_t off_cpu_threshold_ns;
};

/* A file of the kernel with counters of the machine or of a cgroup. */
enum counter_file {
	COUNTER_FILE_STAT,          /* /proc/stat */
	COUNTER_FILE_FREQUENCY,     /* scaling_cur_freq of the CPUs `name`, kHz */
	COUNTER_FILE_PRESSURE,      /* /proc/pressure/`name` */
	COUNTER_FILE_MEMINFO,       /* /proc/meminfo */
	COUNTER_FILE_VMSTAT,        /* /proc/vmstat */
	COUNTER_FILE_DISK,          /* /sys/block/`name`/stat */
	COUNTER_FILE_NETWORK,       /* /proc/PID/net/dev */
	COUNTER_FILE_CGROUP_CPU,    /* cpu.stat of the cgroup `name` */
	COUNTER_FILE_CGROUP_MEMORY, /* memory.current */
	COUNTER_FILE_CGROUP_IO,     /* io.stat */
	COUNTER_FILE_ENERGY,        /* energy_uj of the power domain `name` */
	COUNTER_FILE_TEMPERATURE,   /* temp of the zone `name`, 1/1000 degree Celsius */
	COUNTER_FILE_KINDS
};

#define MAX_COUNTER_FILES 192u

struct message_counter_file {
	uint32_t kind; /* enum counter_file */
	uint32_t pad;
	uint64_t wrap; /* energy: restarts at 0 after this value; 0: unknown */
	char name[256];
};

/* Where the bytes of a field are in a record. */
enum field_place {
	FIELD_HERE,
	/* The field has 32 bits: the offset of the bytes (low half) and their length. The offset is
	 * from the record's start (AT_OFFSET) or from the end of the field (BEHIND). */
	FIELD_AT_OFFSET,
	FIELD_BEHIND,
	/* the bytes are a struct probe_value, which the engine read */
	FIELD_ARGUMENT,
};

/* A field of a tracepoint's records, or an argument of a static probe. */
struct message_field {
	/* with NUL; tracepoint: as the kernel declares them; static probe: such as "arg1", "s32" */
	char name[64], type[64];
	uint16_t offset, size;
	uint8_t kind;    /* enum prof_argument_kind */
	uint8_t place;   /* enum field_place */
	uint8_t element; /* size of one array item (text: 1); 0: not an array */
	uint8_t is_signed;
};

struct message_fields {
	uint32_t source; /* its index in message_config.sources */
	uint32_t n;      /* at most ENGINE_MAX_FIELDS */
	struct message_field fields[];
};

/* The locations of a static probe's arguments at one of its places. Other probes have no
 * arguments. */
struct message_arguments {
	uint32_t source; /* its index in message_config.sources */
	uint32_t n;
	char filter[ENGINE_SOURCE_NAME]; /* filter for probe_filter_test(), with NUL; empty: none */
	struct probe_argument arguments[PROBE_MAX_ARGUMENTS];
};

/* The key and the value follow, without padding or a final NUL. A value may contain NULs
 * ("command": arguments, each with a NUL). add_all_metadata() in daemon/broker/engine-config.c has
 * the keys. */
struct message_metadata {
	uint32_t key_bytes, value_bytes;
};

/* A ring of n pages is mapped with 1 + n pages; the broker has mapped each ring once before. The
 * sources write into the first source's ring. But if copy_pages is not 0, the sources that copy
 * stacks of waits write into a second ring, that of the first such source.
 * (PERF_EVENT_IOC_SET_OUTPUT is done.) With per-task events, the CPU's events deliver nothing: each
 * one only has a ring. */
struct message_cpu {
	uint32_t cpu;
	uint32_t side_band_pages;
	uint32_t sample_pages; /* 0: no sampling */
	uint32_t copy_pages;   /* 0: copies of stacks have no separate ring */
	uint32_t n_sources, pad;
	uint64_t source_ids[ENGINE_MAX_SOURCES]; /* PERF_EVENT_IOC_ID */
	uint64_t side_band_id;
	/* 1: an event reports wake-ups, sleeps, or wakers, into the side band's ring */
	uint32_t has_wakeups, has_sleeps, has_wakings, pad2;
	uint64_t sleep_id, waking_id;
};

/* An event of a thread, which its children inherit. The engine redirects it to a ring of its CPU.
 * If a thread has events of several ranks, those of the highest rank are complete; the others are
 * duplicates. */
struct message_event {
	uint64_t id; /* PERF_EVENT_IOC_ID */
	uint32_t cpu;
	int32_t tid;
	uint32_t rank; /* from 1 */
	/* 0: side band; ENGINE_POSITION_SLEEPS; else 1 + the source's position */
	uint32_t position;
};
#define ENGINE_POSITION_SLEEPS (ENGINE_MAX_SOURCES + 1u)

/* A process has an interpreter, whose frames shall be read at each sample, and before it sleeps
 * (interp-protocol.h). */
struct message_interpreted {
	uint32_t sleeps; /* 0: stop reading frames before sleeps, for all processes */
	int32_t pid;
	uint32_t family; /* enum interp_family; 0: no process is added */
	/* enum interp_family whose BPF programs to load, because a process that needs them is
	 * expected soon; 0: none */
	uint32_t expected;
	uint32_t minor;        /* as in interp_major() */
	uint64_t addresses[4]; /* as in struct interp_process */
};

/* Two further events that write into the ring of a CPU's sources. For processes with an
 * interpreter, the first event writes the samples, instead of the source; the second event writes
 * the code objects. */
struct message_outputs {
	uint32_t cpu;
	uint32_t is_last; /* 1: all CPUs have their events now */
	uint64_t sample_id, code_id;
};

enum peer_protocol {
	PEER_OWN, /* libcollector/control.h; the connection belongs to the process */
	/* requests a ring for a thread; the connection is shared, and only for answers */
	PEER_SYSPROF,
	/* already refused for lack of room, and answered; without descriptors */
	PEER_REFUSED,
};

/* A process that wants to register its collector. The kernel identifies the process. The broker has
 * read the hello or request, and checked that the session may see the process. The engine checks
 * whether it is a target, and answers. */
struct message_peer {
	int32_t pid;
	uint32_t inner_pid; /* pid in its own PID namespace; 0: the process is in ours */
	uint32_t wants;     /* CONTROL_WANTS_* */
	uint32_t protocol;  /* enum peer_protocol */
};

#define ENGINE_STACK_SOURCES 5u /* enum prof_stack_source */

/* Which waits have stacks. */
enum engine_off_cpu {
	ENGINE_OFF_CPU_NONE,
	ENGINE_OFF_CPU_OWN,     /* waits that last until the stack is read */
	ENGINE_OFF_CPU_FULL,    /* short waits, too */
	ENGINE_OFF_CPU_STOPPED, /* waits in the first second only: sleeps were too frequent */
	ENGINE_OFF_CPU_KINDS
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
	ENGINE_EXCLUDED_STATIC, /* has no dynamic linker, so it cannot load the library */
	ENGINE_EXCLUDED_SETUID, /* exec gives it rights, so the dynamic linker ignores LD_PRELOAD */
	ENGINE_EXCLUDED_OTHER_ARCH,
	ENGINE_EXCLUDED_UNREGISTERED, /* unknown reason */
	ENGINE_EXCLUDED_OTHER_LIBC,   /* has another dynamic linker than glibc's */
	ENGINE_EXCLUDED_ENVIRONMENT,  /* was started without the collector's variables */
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
	uint32_t maps_known; /* 1: omit the mappings, which cost most */
	uint32_t pad;
};

/* Requests the memory usage and the counters of processes, as far as the session records them; or
 * the stacks of sleeping threads. Further requests of the same kind are dropped until this one is
 * answered. */
struct message_usage_request {
	uint32_t serial;
	uint32_t stacks; /* 1: `pids` are the threads whose stacks to read */
	uint32_t n;      /* at most ENGINE_MAX_USAGE_PIDS */
	int32_t pids[];  /* sorted by absolute value; negative: omit what takes long */
};

/* Instead of a pid: the snapshot contains memory usage, or stacks. */
#define MESSAGE_SNAPSHOT_USAGE (-1)
#define MESSAGE_SNAPSHOT_STACKS (-2)

struct message_snapshot {
	uint32_t serial;
	int32_t pid;
};

/* The memfd contains records, each padded to 8 bytes. Files of /proc are copied unchanged. */
enum snapshot_kind {
	/* of the process: /proc/PID/stat; then of each further thread: /proc/PID/task/TID/stat */
	SNAPSHOT_STAT = 1,
	/* /proc/PID/status; for one process in a PID namespace below ours, also task/TID/status */
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
	SNAPSHOT_IO,         /* /proc/PID/io */
	SNAPSHOT_FDS,        /* uint64_t: number of open descriptors */
	SNAPSHOT_STACK,      /* struct snapshot_stack, then the bytes of the stack */
	SNAPSHOT_END,        /* end of memory usage; has the time when all was read */
};

struct snapshot_record {
	uint32_t kind;
	uint32_t length; /* length of the payload, without padding */
	int32_t pid, tid;
	uint64_t time_ns; /* CLOCK_MONOTONIC just before the payload was read */
};

/* A thread that was found asleep after the record's time. */
struct snapshot_stack {
	uint64_t done_ns; /* CLOCK_MONOTONIC just after the stack was read */
	int64_t number;   /* number of the system call; -1: none */
	uint64_t argument, sp, pc;
	uint32_t bytes;
	uint32_t is_preempted;         /* the reader lost its CPU meanwhile */
	char syscall[32], object[160]; /* NUL-terminated, perhaps empty */
};

struct snapshot_mapping {
	uint64_t start, end, file_offset, inode;
	uint32_t dev_major, dev_minor;
	uint32_t build_id_size;
	uint8_t build_id[20];
	uint32_t is_shared; /* not 0: MAP_SHARED, so writes of the process change the file */
	uint32_t reserved;
};

/* Requests the file that `pid` maps executably at start-end. profd-files opens
 * map_files/START-END in /proc/PID. If that fails, it opens the path below the process's root or
 * below our root, or /proc/PID/exe. The broker keeps the fd for OpenImage. */
struct message_image_request {
	uint64_t image_id; /* id of the image row; unique in a session */
	uint64_t start, end;
	uint64_t inode, inode_generation; /* 0: unknown; else the path must lead to this file */
	int32_t pid;
	uint32_t path_bytes; /* bytes of the path that follows; no NUL */
};

struct message_image {
	uint64_t image_id;
	int32_t error;          /* errno; 0: the rest is valid */
	uint32_t build_id_size; /* 0: none, or the kernel does not report it */
	uint64_t dev, inode, size;
	int64_t ctime_ns;
	uint8_t build_id[20];
	uint32_t owner;
	uint32_t rights; /* MESSAGE_IMAGE_* */
	uint32_t pad;
};

/* Rights that exec of the file gives to a process: by owner, group, or capabilities. */
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
	uint64_t count;                 /* 0: unknown, but at least one */
	uint64_t bytes, from_ns, to_ns; /* times in CLOCK_MONOTONIC */
};

#define MESSAGE_MAX_LOSS 512 /* further rows are merged by cause */

struct message_finished {
	uint32_t ok;
	uint32_t reason; /* enum engine_reason */
	int32_t error;   /* errno for disk-full and io-error; internal: ENOMEM, or 0 if unknown */
	uint32_t n_loss;
	uint64_t samples, events, lost, missed_ticks, bytes;
	uint64_t start_ns, stop_ns; /* CLOCK_MONOTONIC when sampling was enabled, disabled */
	uint64_t unwind_complete, unwind_truncated, unwind_guessed, unwind_none, unwind_no_memory;
	uint64_t off_cpu;                        /* enum engine_off_cpu */
	uint64_t slept_ns[ENGINE_STACK_SOURCES]; /* sum of waits, by enum prof_stack_source */
	uint64_t excluded
		/* number of processes without allocations, by enum engine_excluded */
		[ENGINE_EXCLUDED_KINDS];
	struct message_loss loss[]; /* n_loss */
};
