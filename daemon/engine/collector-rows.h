/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/heap-rows.h"
#include "daemon/engine/loss.h"
#include "daemon/engine/tasks.h"
#include "libcollector/ring-reader.h"

#define COLLECTOR_MAX_TEXT (4u << 20) /* of one string or log; more is cut */
#define COLLECTOR_PROCESS_TEXT \
	(UINT64_C(16)          \
	 << 20) /* that is kept of a process: strings, stacks, names of counters, open logs */
#define COLLECTOR_ALL_TEXT (UINT64_C(96) << 20) /* of all processes */
#define COLLECTOR_HEAP_BYTES \
	192u /* what is kept of a string, stack, log or counter takes, besides its text or frames */
#define COLLECTOR_MAX_IDS 65536u     /* of a ring's owner: strings, counters, images, stacks */
#define COLLECTOR_MAX_COUNTERS 4096u /* of a process */
#define COLLECTOR_MAX_IMAGES 1024u   /* that a process tells of and nobody else */
#define COLLECTOR_ALL_IMAGES 16384u  /* of all processes */
#define COLLECTOR_MAX_STREAMS 256u
#define COLLECTOR_MAX_ARGUMENTS 1024u /* of a mark; more are cut */

/* What the rows of all collectors share. */
struct collector_rows {
	struct output *output;
	struct tasks *tasks;
	struct loss_table *losses;
	struct images *images;
	/* An image that the side band knows was hit for the first time; NULL: nobody wants to
	 * know. */
	void (*want)(struct image *image, const struct mapping *mapping, int32_t pid, void *data);
	void *want_data;
	uint64_t text_bytes; /* of strings and stacks */
	uint32_t n_images;
	struct image *lost_image; /* made when a frame names one that was never told of */
	struct image *cut_image;  /* made when callers of a frame are missing */
	uint32_t last_counter;
	unsigned int n_streams; /* of processes that lost something */
	struct heap_merge heaps;
	struct peer_chunk *spare; /* memory of queues, for queues (collector-peer.c) */
	unsigned int n_spare;
	uint32_t lost_string, lost_epoch; /* "<lost>" in that epoch */
	uint64_t names[COLLECTOR_MAX_ARGUMENTS], kinds[COLLECTOR_MAX_ARGUMENTS],
		values[COLLECTOR_MAX_ARGUMENTS], texts[COLLECTOR_MAX_ARGUMENTS];
	/* Of a stack, root first. */
	uint32_t frames[OUTPUT_MAX_PATH], stacks[OUTPUT_MAX_PATH];
	bool added[OUTPUT_MAX_PATH];
};

/* A process whose records these are. */
struct collector_process {
	struct collector_rows *rows;
	int32_t pid;
	uint32_t inner_pid;      /* in its own PID namespace; 0: that is ours */
	struct process *process; /* NULL: not bound yet */
	struct thread *leader;
	bool has_unknown;       /* there is a thread of which /proc should tell who it is */
	GHashTable *counters;   /* struct collector_counter, by itself */
	struct maps *code;      /* what it says is mapped */
	struct heap_rows *heap; /* NULL: it has told of no allocation */
	uint32_t n_images;
	uint64_t text_bytes;
	char stream
		/* of its losses: "collector/PID", or "collectors" where those are many */
		[LOSS_STREAM_BYTES];
	bool has_lost;
};

void collector_process_init(struct collector_process *process, struct collector_rows *rows,
			    int32_t pid, uint32_t inner_pid);
void collector_process_done(struct collector_process *process);
/* It is who had the pid then, as far as the side band is known. False: nobody has it. */
bool collector_process_bind(struct collector_process *process, uint64_t time_ns);
/* All of its records are rows, and no more will come: it ended then, or the session does. */
void collector_process_end(struct collector_process *process, uint64_t time_ns);
void collector_process_lose(struct collector_process *process, enum prof_loss_cause cause,
			    uint64_t count, uint64_t from_ns, uint64_t to_ns);

/* Of what is kept of it: more bytes, or fewer. */
void collector_process_charge(struct collector_process *process, int64_t bytes);
/* More; false: there is no room. */
bool collector_process_take(struct collector_process *process, uint64_t bytes);

/* A thread, from when it claimed a ring until all of its records are rows. */
struct collector_owner;

struct collector_owner *collector_owner_new(struct collector_process *process, uint32_t tid);
struct collector_owner *collector_owner_ref(struct collector_owner *owner);
void collector_owner_unref(struct collector_owner *owner); /* takes NULL */
uint32_t collector_owner_tid(const struct collector_owner *owner);

/* A record becomes a row, or part of one. The process is bound. Not NONE: its ring lies, and
 * there is no row. */
enum ring_fault collector_owner_add(struct collector_owner *owner,
				    const struct ring_record *record);
