/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/model/switches.h"
#include "daemon/engine/out/loss.h"
#include "daemon/engine/perf/ring.h"
#include "daemon/protocol.h"

#include <glib.h>

/* A per-task event. It writes into a ring of its CPU. */
struct task_event {
	struct message_event message; /* its id is the key in cpus.events */
	int fd;
};

struct cpu {
	uint32_t number;
	bool open;
	int side_band_fd;
	int source_fds[ENGINE_MAX_SOURCES];
	int wakeup_fd, sleep_fd, waking_fd; /* -1: none */
	uint64_t sleep_id, waking_id;
	/* 1 + position of the source that copies stacks of sleeping threads; the sources after it
	 * copy stacks of wakers. 0: no source copies stacks. */
	uint32_t copies;
	bool by_task;
	bool stopped;                 /* cpu_stop_sleeps() was called */
	uint64_t n_sleeps, n_wakings; /* reported so far; wakings only by threads */
	/* the last run of cpu_pace_copies(): its time, n_sleeps and n_wakings then, and the periods
	 * that it set for the sources that copy stacks; period 0: none set yet */
	uint64_t paced_ns, paced[2], copy_periods[2];
	uint32_t n_sources;
	uint64_t source_ids[ENGINE_MAX_SOURCES];
	/* events that write samples and code objects of interpreted programs; ids 0: none */
	int output_fds[2];
	uint64_t sample_id, code_id;
	/* struct task_event; they write into the rings of side_band_fd and source_fds. NULL: not
	 * per task. */
	GPtrArray *events;
	/* samples.control is NULL if there are no sources or the ring is not mapped yet. `copied`
	 * has the stacks of waits, and is unused if copy_pages is 0. */
	struct ring side_band, samples, copied;
	uint32_t sample_pages, copy_pages;
	struct switches switches;
	uint64_t reported_lost[2]; /* losses so far: [0] samples except copies; [1] side band */
	uint64_t noticed_lost;     /* losses of the side band that cpu_has_lost() has seen */
	uint64_t lost_code;        /* code objects in LOST records so far */
	uint64_t counted_lost;     /* lost samples that cpu_count_lost() added to sampled_ns */
	uint64_t last_ns[2];       /* time of the last record: [0] samples, [1] side band */
	uint64_t throttled_ns;     /* start of throttling; 0: not throttled */
	uint64_t gone_ns;          /* time at which the CPU went offline; 0: online */
	uint64_t busy_ns;          /* busy time in /proc/stat when the comparison of ticks began */
	uint64_t ran_ns;           /* run time of the targets when the comparison began */
	uint64_t sampled_ns;       /* sampled time since the comparison began */
	uint64_t sampled_here_ns; /* the part of sampled_ns that is in targets, lost or throttled */
	uint64_t missed_ns;       /* reported time of missed ticks since the comparison began */
	uint64_t missed_since_ns; /* start of the period for the next report */
	uint64_t busy_now_ns;     /* busy time in /proc/stat at the last reading */
	uint64_t busy_heard_ns;   /* busy_now_ns at the last reading after which a record came */
	uint64_t heard_ns;        /* time of that record */
};

struct cpus {
	struct cpu *by_number[ENGINE_MAX_CPUS];
	GPtrArray *all;     /* struct cpu */
	GHashTable *events; /* struct task_event by its id; NULL: not per task */
	uint32_t copies;    /* `copies` of each CPU */
	int online_fd;
	char online[4096]; /* the list of online CPUs as last read */
};

void cpus_init(struct cpus *cpus, int online_fd, bool by_task);
void cpus_done(struct cpus *cpus);
/* Takes the descriptors of a MESSAGE_CPU and maps the side band. Closes older descriptors of the
 * CPU first. */
struct cpu *cpus_open(struct cpus *cpus, const struct message_cpu *message, int *fds, size_t n_fds,
		      GError **error);
/* Maps the rings of the CPU's sources. The CPU must have sources. */
bool cpu_map_samples(struct cpu *cpu, GError **error);
/* Takes the descriptors of a MESSAGE_OUTPUTS. Returns false if the message contradicts itself. */
bool cpus_add_outputs(struct cpus *cpus, const struct message_outputs *message, int *fds,
		      size_t n_fds);
/* Takes the descriptor of an entry of MESSAGE_EVENTS, even on failure, and redirects the event to a
 * ring of its CPU. */
bool cpus_add_event(struct cpus *cpus, const struct message_event *message, int fd, GError **error);
/* Returns the per-task event with this id; NULL if no event has it or events are not per task. */
const struct task_event *cpus_find_event(const struct cpus *cpus, uint64_t event_id);
/* With per-task events: adds a CPU that was offline when the events were opened. From now_ns to the
 * end, its samples count as lost. */
void cpus_add_missing(struct cpus *cpus, uint32_t number, uint64_t now_ns);
/* Sets the period of the sources that copy stacks, so that there are about 500 copies of
 * sleeping threads a second, and as many of wakers. Must be called in each round. */
void cpu_pace_copies(struct cpu *cpu, uint64_t now_ns);
/* Disables, for good, the events that report sleeps and wakers, and the events that copy stacks. */
void cpu_stop_sleeps(struct cpu *cpu);
/* Disables the events. The rings can still be read. */
void cpu_disable(struct cpu *cpu);
/* Returns the event whose ring contains the copies of stacks. Without copy_pages, they are in the
 * ring of the samples. */
int cpu_copies_fd(const struct cpu *cpu);
/* Returns how many lost samples a LOST record in this ring reports. Lost copies of stacks do not
 * count: their waits show another kind of stack, or none. Lost descriptions of interpreted
 * functions do not count, either. */
uint64_t cpu_lost_samples(struct cpu *cpu, const struct ring *ring, uint64_t lost);
/* Returns whether the kernel has lost records of the side band since the last call. The kernel
 * writes a LOST record only before the next record, which may come much later. Returns false with
 * per-task events, which are too many to read. */
bool cpu_has_lost(struct cpu *cpu);
/* Counts records that the kernel lost without a LOST record. */
void cpu_add_lost(struct cpu *cpu, struct loss_table *losses, uint64_t now_ns);
/* Counts samples that did not fit into the ring as sampled time, so that their ticks do not also
 * count as missed. Their LOST record may come much later. */
void cpu_count_lost(struct cpu *cpu, uint64_t period_ns);
void cpu_close(struct cpu *cpu);
bool cpu_enable_side_band(struct cpu *cpu, GError **error);
bool cpu_enable_sampling(struct cpu *cpu, bool enable, GError **error);
/* Returns whether the CPU was busy for a while without a record. If so, it was offline, but too
 * briefly for cpus_read_online() to see this, and its events are gone. */
bool cpu_is_silent(const struct cpu *cpu);
/* Returns the position of the source that an event id belongs to, or -1. */
int cpu_find_source(const struct cpu *cpu, uint64_t event_id);

/* Reads the list of online CPUs. Returns whether it has changed. *ret_online: a byte per CPU. */
bool cpus_read_online(struct cpus *cpus, uint8_t *ret_online);
/* Parses "0-3,8": sets a byte for each number below n. */
void cpus_parse_list(const char *text, uint8_t *online, size_t n);
