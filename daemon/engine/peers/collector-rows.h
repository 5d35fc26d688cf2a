/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/alloc/heap-rows.h"
#include "daemon/engine/model/tasks.h"
#include "daemon/engine/out/loss.h"
#include "libcollector/ring/ring-reader.h"

#define COLLECTOR_MAX_TEXT (4u << 20) /* maximum bytes of a string or log; the rest is cut */
#define COLLECTOR_PROCESS_TEXT \
	(UINT64_C(16) << 20) /* per process: strings, images, stacks, counters, open logs */
#define COLLECTOR_ALL_TEXT (UINT64_C(96) << 20) /* for all processes */
#define COLLECTOR_HEAP_BYTES \
	192u /* bytes charged for a string, image, stack, log or counter, besides its contents */
#define COLLECTOR_MAX_IDS 65536u      /* maximum per kind and producer */
#define COLLECTOR_MAX_COUNTERS 4096u  /* maximum per process */
#define COLLECTOR_MAX_IMAGES 1024u    /* maximum per process; announced images only */
#define COLLECTOR_ALL_IMAGES 16384u   /* maximum for all processes; announced images only */
#define COLLECTOR_MAX_ARGUMENTS 1024u /* maximum per mark; the rest is cut */

/* The state that the rows of all collectors share. */
struct collector_rows {
	struct output *output;
	struct tasks *tasks;
	struct loss_table *losses;
	struct images *images;
	/* Requests the file of a side-band image that a producer announced; may be NULL. */
	void (*request_image)(struct image *image, const struct mapping *mapping, int32_t pid,
			      void *data);
	void *request_data;
	uint64_t text_bytes; /* sum of text_bytes of all processes */
	uint32_t n_images;
	struct image *lost_image;   /* for frames of unannounced images; NULL: not needed yet */
	struct image *cut_image;    /* for missing callers of a frame; NULL: not needed yet */
	struct image *unread_image; /* for functions that were not read; NULL: not needed yet */
	uint32_t last_counter;
	struct all_heaps heaps;
	struct peer_chunk *spare; /* spare chunks for queues (collector-peer.c) */
	unsigned int n_spare;
	uint32_t lost_string, lost_epoch; /* id of "<lost>", and the epoch that has it */
	uint64_t names[COLLECTOR_MAX_ARGUMENTS], kinds[COLLECTOR_MAX_ARGUMENTS],
		values[COLLECTOR_MAX_ARGUMENTS], texts[COLLECTOR_MAX_ARGUMENTS];
	/* Buffers for a stack, root first. */
	uint32_t frames[OUTPUT_MAX_PATH], stacks[OUTPUT_MAX_PATH];
	bool added[OUTPUT_MAX_PATH];
};

/* A process that writes records. */
struct collector_process {
	struct collector_rows *rows;
	int32_t pid;
	uint32_t inner_pid;      /* pid in its own PID namespace; 0: that is the daemon's */
	struct process *process; /* NULL: not bound yet */
	struct thread *leader;
	bool has_unknown;       /* has a thread that /proc should identify */
	GHashTable *counters;   /* set of struct collector_counter */
	struct maps *code;      /* mappings that the process announced */
	struct heap_rows *heap; /* NULL: it has recorded no allocation */
	uint32_t n_images;
	uint64_t n_unread; /* allocations whose stacks lack functions of an interpreter */
	uint64_t text_bytes;
	struct loss_stream losses;
};

void collector_process_init(struct collector_process *process, struct collector_rows *rows,
			    int32_t pid, uint32_t inner_pid);
void collector_process_done(struct collector_process *process);
/* Binds `process` to the struct process that had its pid at time_ns, as far as the side band shows.
 * Returns false if no process had the pid. */
bool collector_process_bind(struct collector_process *process, uint64_t time_ns);
/* Called when all records of the process are rows and no more will come, because the process or the
 * session has ended. Returns false if there is more to do; then repeat the call, and add nothing in
 * between. */
bool collector_process_end(struct collector_process *process, uint64_t time_ns);

/* Adds to the number of bytes that are kept for the process; `bytes` may be negative. */
void collector_process_charge(struct collector_process *process, int64_t bytes);
/* Charges more bytes. Returns false if there is no room. */
bool collector_process_reserve(struct collector_process *process, uint64_t bytes);

/* A thread, from its first claim of a ring until all of its records are rows. */
struct collector_producer;

struct collector_producer *collector_producer_new(struct collector_process *process, uint32_t tid);
struct collector_producer *collector_producer_ref(struct collector_producer *producer);
void collector_producer_unref(struct collector_producer *producer); /* NULL is allowed */
uint32_t collector_producer_tid(const struct collector_producer *producer);

/* Turns a record into a row or a part of a row. The process must be bound. If the record's contents
 * are invalid, adds no row and stores the fault in *ret_fault, else stores RING_FAULT_NONE. Returns
 * false without adding the record if a long step must finish first. Each call does a piece of that
 * step, so repeat the call, and add nothing else in between. */
bool collector_producer_add(struct collector_producer *producer, const struct ring_record *record,
			    enum ring_fault *ret_fault);
