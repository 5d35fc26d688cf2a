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
	/* by task: struct task_event; then the descriptors above are for the rings */
	GPtrArray *events;
	struct ring side_band, samples; /* samples.control NULL: none, or not mapped yet */
	uint32_t sample_pages;
	struct switches switches;
	uint64_t told_lost[2];    /* by LOST records: samples, side band */
	uint64_t counted_lost;    /* samples of the first source that are in sampled_ns */
	uint64_t last_ns[2];      /* time of the last record, likewise */
	uint64_t throttled_ns;    /* since when; 0 = not */
	uint64_t gone_ns;         /* offline since; 0 = online */
	uint64_t busy_ns;         /* of /proc/stat when comparing ticks began */
	uint64_t ran_ns;          /* likewise, for how long the targets had run */
	uint64_t sampled_ns;      /* that samples since then stand for */
	uint64_t sampled_here_ns; /* the part of it that is in the capture */
	uint64_t missed_ns;       /* that ticks since then were said to be missed for */
	uint64_t missed_since_ns; /* when that was said */
	uint64_t busy_now_ns;     /* of /proc/stat when it was last read */
	uint64_t busy_heard_ns;   /* the same when a record had come since the reading before */
	uint64_t heard_ns;        /* time of that record */
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
/* Takes the descriptors of a MESSAGE_CPU and maps the side band; a CPU that was known has been
 * closed before. */
struct cpu *cpus_open(struct cpus *cpus, const struct message_cpu *message, int *fds, size_t n_fds,
		      GError **error);
/* The ring of its sources; there are some. */
bool cpu_map_samples(struct cpu *cpu, GError **error);
/* Takes the descriptor of one of MESSAGE_EVENTS, whatever comes of it, and has it write into a
 * ring of its CPU. */
bool cpus_add_event(struct cpus *cpus, const struct message_event *message, int fd, GError **error);
/* The event of a thread, or NULL: there is none with that id, or events are not by task. */
const struct task_event *cpus_find_event(const struct cpus *cpus, uint64_t event_id);
/* By task: a CPU that was not there when events were opened, of which nothing is known until the
 * end. */
void cpus_add_missing(struct cpus *cpus, uint32_t number, uint64_t now_ns);
/* Disables the events. The rings can still be read. */
void cpu_disable(struct cpu *cpu);
/* Adds what the kernel lost without saying so. */
void cpu_add_lost(struct cpu *cpu, struct loss_table *losses, uint64_t now_ns);
/* Samples that found no room were samples too: their ticks were not missed. The LOST record may
 * come much later. */
void cpu_count_lost(struct cpu *cpu, uint64_t period_ns);
void cpu_close(struct cpu *cpu);
bool cpu_enable_side_band(struct cpu *cpu, GError **error);
bool cpu_enable_sampling(struct cpu *cpu, bool enable, GError **error);
/* It was busy for a while and nothing came: its events went with it when it was offline, too
 * briefly to be seen. */
bool cpu_is_silent(const struct cpu *cpu);
/* Position of the source that an event id belongs to, or -1. */
int cpu_find_source(const struct cpu *cpu, uint64_t event_id);

/* Reads the list of online CPUs; true when it differs from what was read before. Bits of
 * *ret_online: by number. */
bool cpus_read_online(struct cpus *cpus, uint8_t *ret_online);
/* "0-3,8": sets a byte for each number below n. */
void cpus_parse_list(const char *text, uint8_t *online, size_t n);
