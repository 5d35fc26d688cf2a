/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/loss.h"
#include "daemon/engine/ring.h"
#include "daemon/engine/switches.h"
#include "daemon/protocol.h"

#include <glib.h>

/* An event of a thread; it writes into a ring of its CPU. */
struct task_event {
	struct message_event message; /* first: it is found by its id */
	int fd;
};

struct cpu {
	uint32_t number;
	bool open;
	int side_band_fd;
	int source_fds[ENGINE_MAX_SOURCES];
	int wakeup_fd; /* -1: none */
	uint32_t n_sources;
	uint64_t source_ids[ENGINE_MAX_SOURCES];
	/* if by task: struct task_event; then the descriptors above are only for the rings */
	GPtrArray *events;
	struct ring side_band, samples; /* samples.control NULL: no sources, or not mapped yet */
	uint32_t sample_pages;
	struct switches switches;
	uint64_t reported_lost[2]; /* in LOST records: samples, side band */
	uint64_t counted_lost;     /* samples of the first source that are in sampled_ns */
	uint64_t last_ns[2];       /* time of the last record, likewise */
	uint64_t throttled_ns;     /* since when; 0: not throttled */
	uint64_t gone_ns;          /* offline since; 0: online */
	uint64_t busy_ns;          /* of /proc/stat, when comparing ticks began */
	uint64_t ran_ns;           /* likewise: the time that the targets had run */
	uint64_t sampled_ns;       /* that samples since then stand for */
	uint64_t sampled_here_ns;  /* the part of it in the capture */
	uint64_t missed_ns;        /* of the ticks since then that were reported as missed */
	uint64_t missed_since_ns;  /* when that was reported */
	uint64_t busy_now_ns;      /* of /proc/stat, by the last reading */
	uint64_t busy_heard_ns;    /* the same, by the last reading that a record came before */
	uint64_t heard_ns;         /* time of that record */
};

struct cpus {
	struct cpu *by_number[ENGINE_MAX_CPUS];
	GPtrArray *all;     /* struct cpu */
	GHashTable *events; /* struct task_event by its id; NULL: not by task */
	int online_fd;
	char online[4096]; /* as last read */
};

void cpus_init(struct cpus *cpus, int online_fd, bool by_task);
void cpus_done(struct cpus *cpus);
/* Takes the descriptors of a MESSAGE_CPU and maps the side band. If the CPU is known, its old
 * descriptors are closed first. */
struct cpu *cpus_open(struct cpus *cpus, const struct message_cpu *message, int *fds, size_t n_fds,
		      GError **error);
/* Maps the ring of its sources; it must have sources. */
bool cpu_map_samples(struct cpu *cpu, GError **error);
/* Takes the descriptor of one of MESSAGE_EVENTS, also if it fails, and lets it write into a ring of
 * its CPU. */
bool cpus_add_event(struct cpus *cpus, const struct message_event *message, int fd, GError **error);
/* Returns the event of a thread; NULL if no event has that id, or if events are not by task. */
const struct task_event *cpus_find_event(const struct cpus *cpus, uint64_t event_id);
/* By task: adds a CPU that was missing when events were opened. Nothing of it is known until the
 * end. */
void cpus_add_missing(struct cpus *cpus, uint32_t number, uint64_t now_ns);
/* Disables the events. The rings can still be read. */
void cpu_disable(struct cpu *cpu);
/* Adds what the kernel lost without a record. */
void cpu_add_lost(struct cpu *cpu, struct loss_table *losses, uint64_t now_ns);
/* Counts samples that found no room as samples, so that their ticks are not counted as missed.
 * Their LOST record may come much later. */
void cpu_count_lost(struct cpu *cpu, uint64_t period_ns);
void cpu_close(struct cpu *cpu);
bool cpu_enable_side_band(struct cpu *cpu, GError **error);
bool cpu_enable_sampling(struct cpu *cpu, bool enable, GError **error);
/* Returns whether the CPU was busy for a while without a record: it was offline, too briefly to be
 * seen, and its events are gone. */
bool cpu_is_silent(const struct cpu *cpu);
/* Returns the position of the source that an event id belongs to, or -1. */
int cpu_find_source(const struct cpu *cpu, uint64_t event_id);

/* Reads the list of online CPUs. Returns true if it has changed. *ret_online: a byte per number. */
bool cpus_read_online(struct cpus *cpus, uint8_t *ret_online);
/* Parses "0-3,8": sets a byte for each number below n. */
void cpus_parse_list(const char *text, uint8_t *online, size_t n);
