/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/collector-peer.h"
#include "daemon/engine/exit-status.h"

#define COLLECTORS_MAX_PEERS 1024u
#define COLLECTORS_MAX_BYTES (UINT64_C(256) << 20)      /* of all arenas */
#define COLLECTORS_MAX_PEER_BYTES (UINT64_C(128) << 20) /* of the arenas of a process */
#define COLLECTORS_MAX_SYSPROF_BYTES \
	(UINT64_C(1) << 30)                        /* of sysprof's rings; half of it of a process */
#define COLLECTORS_MAX_QUEUED (UINT64_C(48) << 20) /* of records that wait for others */
#define COLLECTORS_MODEST (COLLECTORS_MAX_QUEUED / 16) /* of a process */

struct collectors_options {
	struct output *output;
	struct tasks *tasks;
	struct loss_table *losses;
	struct images *images;
	void (*request_image)(struct image *image, const struct mapping *mapping, int32_t pid,
			      void *data); /* as in struct samples */
	struct doorbells *doorbells;       /* borrowed; NULL: only the timer */
	struct tick_clock *ticks;          /* borrowed; NULL: ring times are ns */
	int epoll_fd;                      /* gets connections and pidfds; -1: none */
	uint64_t session;
	enum engine_policy policy;
	/* Requests a look-up of the process in /proc. */
	void (*query)(struct process *process, void *data);
	/* The same for the threads of a process, repeatedly; returns false if not possible now. */
	bool (*query_again)(struct process *process, void *data);
	void (*warn)(const char *code, const char *text, void *data);
	void *data;
};

struct collectors {
	struct collectors_options options;
	struct collector_rows *rows;
	GPtrArray *peers;  /* struct peer */
	GHashTable *by_fd; /* struct peer by connection and by pidfd */
	struct peer_ring **heap;
	size_t n_heap, n_rings, heap_room;
	unsigned int n_active; /* peers, at the last drain */
	struct exit_statuses statuses;
	uint64_t arena_bytes, queued_bytes;
	uint64_t sysprof_bytes,
		sysprof_max_bytes; /* of sysprof's rings, which are not in arena_bytes */
	uint64_t bound_ns;         /* records that come later are not older, except late ones */
	uint64_t emitted_ns;
	uint64_t reached_ns;     /* everything before is rows */
	uint64_t arena_until_ns; /* no arena is made earlier */
	uint64_t drained_ns;
	uint64_t keep_up_ns; /* when rings are checked next during long steps */
	uint64_t woke_ns;    /* when producers that wait for room were last woken */
	uint64_t armed_ns;   /* doorbells */
	uint64_t due_ns;
	unsigned int interval_ms; /* of drains: 1 … */
	bool has_sysprof;         /* a process has asked for one of sysprof's rings */
	unsigned int poll_ms;     /* interval of checks of sysprof's rings */
	uint64_t poll_ns;         /* next check */
	unsigned int n_faults;
	bool rung, unfinished, is_finishing;
	bool has_more; /* in the rings, after the last drain */
	uint8_t *buffer;
};

void collectors_init(struct collectors *collectors, const struct collectors_options *options);
void collectors_done(struct collectors *collectors);

/* Adds a process that the broker admitted. Takes ownership of the descriptors. */
void collectors_add_peer(struct collectors *collectors, const struct message_peer *message,
			 int connection, int pidfd, uint64_t now_ns);
/* Handles an event of the epoll set. Returns false if the descriptor is not ours. */
bool collectors_wake(struct collectors *collectors, int fd);
/* Gives arenas to the targets, as far as the side band is applied (limit_ns), and answers
 * requests. */
void collectors_serve(struct collectors *collectors, uint64_t limit_ns, uint64_t now_ns);
/* Takes some of each ring's records, so that no ring fills up. */
void collectors_drain(struct collectors *collectors, uint64_t now_ns);
/* Makes records up to limit_ns rows, also those that are still in the rings; stops at until_ns of
 * the clock. The side band must be applied up to limit_ns. */
void collectors_emit(struct collectors *collectors, uint64_t limit_ns, uint64_t until_ns);
/* Called after all of these. Returns when they are due again, by the clock, and stores that in
 * due_ns; UINT64_MAX if there are no peers. If nothing can be missed, that is after longest_ns. */
uint64_t collectors_sleep(struct collectors *collectors, uint64_t now_ns, uint64_t longest_ns);
/* Returns whether nothing waits, and every new record goes to a ring whose doorbell is heard. */
bool collectors_are_quiet(const struct collectors *collectors, uint64_t now_ns);
/* Returns whether a process writes to a ring whose request the broker has not passed on yet. */
bool collectors_miss_requests(const struct collectors *collectors);
/*
 * Called before the end as long as it returns more than 0. Producers stop, and some of their
 * records become rows, until until_ns of the clock. Returns the bytes that are left; 0 if no
 * process records allocations, because only allocations must be complete.
 */
uint64_t collectors_finish_some(struct collectors *collectors, uint64_t until_ns);
/*
 * Stops the producers and makes their records rows. Records that are not rows at until_ns of the
 * clock are lost. At half of that time, if other processes wait, the records of processes with much
 * in the queues are lost.
 */
void collectors_finish(struct collectors *collectors, uint64_t until_ns);
