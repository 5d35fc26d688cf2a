/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/out/output.h"
#include "daemon/protocol.h"

#include <glib.h>

/* Counters of the machine and of a cgroup, read at most ten times a second. */
struct machine_counters {
	struct output *output;
	uint32_t *last_counter; /* last id of a counter; shared with collector-rows.c */
	GPtrArray *files;       /* struct counter_source */
	GArray *values;         /* struct machine_value; not rows yet */
	char *text;             /* contents of one file */
	unsigned int n_counters;
	uint64_t read_ns, interval_ns;
	uint64_t n_rows; /* rows written so far */
};

void machine_counters_init(struct machine_counters *machine, struct output *output,
			   uint32_t *last_counter);
void machine_counters_done(struct machine_counters *machine);
/* Takes ownership of fd. Returns false if the kind is unknown, or there are too many files. */
bool machine_counters_add(struct machine_counters *machine, const struct message_counter_file *file,
			  int fd);
/* Returns when the next reading is due; UINT64_MAX: never. */
uint64_t machine_counters_due_ns(const struct machine_counters *machine);
/* Reads the files, and keeps values that have changed. */
void machine_counters_read(struct machine_counters *machine, uint64_t now_ns);
/* Returns the time of the first value that is not written yet; UINT64_MAX: none. */
uint64_t machine_counters_next_ns(const struct machine_counters *machine);
/* Writes values up to reached_ns as rows. */
void machine_counters_write(struct machine_counters *machine, uint64_t reached_ns);

/* Parses the text of a source's file. The text ends with a NUL. Declared here for tests. */
struct counter_source;
void machine_counters_parse(struct machine_counters *machine, struct counter_source *source,
			    const char *text, uint64_t time_ns);
