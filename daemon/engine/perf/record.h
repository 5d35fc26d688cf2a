/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/model/tasks.h"

#include <linux/perf_event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum record_kind {
	RECORD_OTHER, /* not used by the engine, or unknown */
	RECORD_SAMPLE,
	RECORD_MMAP,
	RECORD_COMM,
	RECORD_FORK,
	RECORD_EXIT,
	RECORD_SWITCH,
	RECORD_LOST,
	RECORD_LOST_SAMPLES,
	RECORD_THROTTLE,
	RECORD_UNTHROTTLE,
	RECORD_KSYMBOL,
	RECORD_CGROUP,
	RECORD_WAKEUP,
	RECORD_SLEEP,
	RECORD_WAKING,
	RECORD_CODE,
};

#define RECORD_BUILD_ID_MAX 20

struct record_sample {
	uint64_t ip, period, cgroup;
	const uint64_t *ips; /* with PERF_CONTEXT_* entries */
	size_t n_ips;
	const uint64_t
		*registers; /* user-mode, in the order of regs.h; NULL: none, or a 32-bit program */
	const uint8_t *stack; /* copy of the stack from the user's sp on, 8-byte aligned */
	size_t stack_bytes;
	const uint8_t *raw; /* fields of a tracepoint, or what the BPF program wrote */
	uint32_t raw_bytes;
	bool is_interpreted; /* `raw` is a struct interp_sample */
	bool only_pc_sp;     /* the other registers are unknown */
};

struct record_mmap {
	uint64_t start, length, file_offset, inode;
	uint32_t dev_major, dev_minor;
	uint64_t inode_generation;
	/* not 0: the record has a build-id instead of dev and inode */
	uint32_t build_id_bytes;
	const uint8_t *build_id;
	const char *name; /* NUL-terminated */
	bool executable;
	bool is_shared; /* MAP_SHARED */
};

struct record_comm {
	const char *name;
	bool exec;
};

struct record_switch {
	int32_t other_pid, other_tid; /* next task if `out`, else previous; 0: per-task event */
	bool out, preempted;
};

struct record_ksymbol {
	uint64_t address;
	uint32_t length;
	bool unregister;
	const char *name;
};

struct record_cgroup {
	uint64_t id;
	const char *path;
};

struct record_sleep {
	uint64_t state; /* bits of the kernel's task state */
	/* registers of regs->perf_sleep_mask; NULL: none, or a 32-bit program */
	const uint64_t *registers;
};

struct record_waking {
	int32_t tid; /* tid of the woken thread; the record's own tid is the waker's */
	bool in_interrupt;
	bool has_registers; /* false: a kernel thread, or a 32-bit program */
	uint64_t pc, sp, argument;
};

/* A parsed record. Its pointers point into the parsed bytes. */
struct record {
	enum record_kind kind;
	uint16_t cpumode; /* PERF_RECORD_MISC_KERNEL, … */
	int32_t pid, tid; /* the task that caused the record; -1: exiting */
	uint32_t cpu;
	uint64_t time_ns;
	uint64_t event_id; /* PERF_EVENT_IOC_ID */
	union {
		struct record_sample sample;
		struct record_mmap mmap;
		struct record_comm comm;
		struct task_ids task;
		struct record_switch switched;
		struct record_ksymbol ksymbol;
		struct record_cgroup cgroup;
		uint64_t lost;
		int32_t woken_tid;
		struct record_sleep sleep;
		struct record_waking waking;
	};
};

/* Further contents of samples, besides ENGINE_SAMPLE_TYPE. */
#define RECORD_STACKS 1u /* PERF_SAMPLE_REGS_USER, PERF_SAMPLE_STACK_USER */
#define RECORD_FIELDS 2u /* PERF_SAMPLE_RAW */

/* Parses a whole record, 8-byte aligned, of header->size bytes. `parts`: RECORD_* of its samples.
 * Returns false if the record is too short or contradicts itself. */
bool record_parse(const struct perf_event_header *header, unsigned parts,
		  struct record *ret_record);
/* Like record_parse(), for samples in a side-band ring. Wake-ups are of ENGINE_WAKEUP_TYPE; sleeps
 * and wakings are of ENGINE_SLEEP_TYPE. */
bool record_parse_wakeup(const struct perf_event_header *header, struct record *ret_record);
bool record_parse_sleep(const struct perf_event_header *header, struct record *ret_record);
bool record_parse_waking(const struct perf_event_header *header, struct record *ret_record);
/* Parses a description of a code object (interp-protocol.h) in a ring of samples. */
bool record_parse_code(const struct perf_event_header *header, struct record *ret_record);
/* Returns the id of a sample's event; 0 if the record is too short. */
uint64_t record_event_id(const struct perf_event_header *header);
/* Parses only the time. */
bool record_time(const struct perf_event_header *header, uint64_t *ret_time_ns);
