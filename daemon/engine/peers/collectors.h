/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "base/clock.h"
#include "daemon/engine/model/exit-status.h"
#include "daemon/engine/peers/collector-peer.h"

#define COLLECTORS_MAX_PEERS 1024u
#define COLLECTORS_MAX_BYTES (UINT64_C(256) << 20)      /* all arenas together */
#define COLLECTORS_MAX_PEER_BYTES (UINT64_C(128) << 20) /* the arenas of a process */
#define COLLECTORS_MAX_SYSPROF_BYTES \
	(UINT64_C(1) << 30) /* limit for all sysprof rings; one process may use half of it */
#define COLLECTORS_BUFFER_BYTES (64u << 10)        /* small, so that records stay in caches */
#define COLLECTORS_MAX_QUEUED (UINT64_C(48) << 20) /* queued records of all processes */
/* up to this size, a process's queued records count as few: see collectors_finish() */
#define COLLECTORS_MODEST (COLLECTORS_MAX_QUEUED / 16)

struct collectors_options {
	struct output *output;
	struct tasks *tasks;
	struct loss_table *losses;
	struct images *images;
	struct interpreted_code *code; /* NULL: functions of interpreters are not shown */
	void (*request_image)(struct image *image, const struct mapping *mapping, int32_t pid,
			      void *data); /* see struct collector_rows */
	struct doorbells *doorbells;       /* borrowed; NULL: drain only by timer */
	struct tick_clock *ticks;          /* borrowed; NULL: ring times are ns */
	int epoll_fd;                      /* watches connections and pidfds; -1: none */
	uint64_t session;
	enum engine_policy policy;
	/* Requests a look-up of the process in /proc. */
	void (*query)(struct process *process, void *data);
	/* Requests a look-up of the process's threads; may be called any number of times. Returns
	 * false if that is not possible now. */
	bool (*query_again)(struct process *process, void *data);
	void (*warn)(const char *code, const char *text, void *data);
	void *data;
};

struct collectors {
	struct collectors_options options;
	struct collector_rows *rows;
	GPtrArray *peers;  /* struct peer */
	GHashTable *by_fd; /* struct peer, by connection and by pidfd */
	struct peer_ring **heap;
	size_t n_heap, n_rings, heap_room;
	unsigned int n_active; /* active peers at the last drain */
	struct exit_statuses statuses;
	uint64_t arena_bytes, queued_bytes;
	/* bytes and maximum of sysprof's rings; not in arena_bytes */
	uint64_t sysprof_bytes, sysprof_max_bytes;
	uint64_t bound_ns; /* records that come from now on are not older, except late ones */
	uint64_t emitted_ns;
	uint64_t reached_ns;     /* all records before this time are rows */
	uint64_t arena_until_ns; /* no arena is made before this time */
	uint64_t drained_ns;
	uint64_t keep_up_ns; /* from then on, collectors_keep_up() drains filling rings again */
	uint64_t woke_ns;    /* when producers that wait for room were last woken */
	uint64_t armed_ns;   /* when the doorbells were last armed */
	uint64_t due_ns;
	unsigned int interval_ms; /* between drains: 1 … COLLECTORS_MAX_INTERVAL_MS */
	uint64_t hold_ns;         /* maximum hold_ns of all peers' types so far */
	unsigned int poll_ms;     /* interval of polling rings without doorbells */
	uint64_t poll_ns;         /* next poll */
	unsigned int n_faults;
	bool rung, unfinished, is_finishing;
	bool has_more; /* the last drain left records in the rings */
	uint8_t *buffer;
};

static inline struct peer *peer_at(const struct collectors *collectors, guint i)
{
	return g_ptr_array_index(collectors->peers, i);
}

/* Called after clearing the memory of arenas, which began at begin_ns. Delays the next clearing, so
 * that clearing takes at most a third of the time. */
static inline void collectors_note_clearing(struct collectors *collectors, uint64_t begin_ns)
{
	uint64_t now_ns = clock_now();

	collectors->arena_until_ns = now_ns + 2 * (now_ns - begin_ns);
}

/* Counts a new arena, the peer's last one. begin_ns: when making it began. */
static inline void collectors_count_arena(struct collectors *collectors, const struct peer *peer,
					  uint64_t begin_ns)
{
	const struct ring_arena_memory *memory = &peer->arenas[peer->n_arenas - 1]->memory;

	collectors_note_clearing(collectors, begin_ns);
	*peer->charged += memory->bytes;
	collectors->n_rings += memory->n_rings;
}

void collectors_init(struct collectors *collectors, const struct collectors_options *options);
void collectors_done(struct collectors *collectors);

/* Adds a process that the broker admitted. Takes ownership of the descriptors. */
void collectors_add_peer(struct collectors *collectors, const struct message_peer *message,
			 int connection, int pidfd, uint64_t now_ns);
/* Notes an event of the epoll set. Returns false if the descriptor belongs neither to a peer nor to
 * the doorbells. */
bool collectors_wake(struct collectors *collectors, int fd);
/* Gives arenas to targets and answers requests, according to the side band up to limit_ns. */
void collectors_serve(struct collectors *collectors, uint64_t limit_ns, uint64_t now_ns);
/* Drains some of each ring's records, so that no ring fills up. */
void collectors_drain(struct collectors *collectors, uint64_t now_ns);
/* Writes rows of the records up to limit_ns, including those that are still in the rings; stops
 * when the clock reaches until_ns. The side band must be applied up to limit_ns. */
void collectors_emit(struct collectors *collectors, uint64_t limit_ns, uint64_t until_ns);
/* Called after the functions above. Returns when to call them again; UINT64_MAX: there is no peer.
 * Stores the time of the next drain in due_ns. If no record can be missed, the next drain may be
 * as late as longest_ns after the last one. */
uint64_t collectors_sleep(struct collectors *collectors, uint64_t now_ns, uint64_t longest_ns);
/* Returns whether nothing waits and every new record goes to a ring with a working doorbell. */
bool collectors_are_quiet(const struct collectors *collectors, uint64_t now_ns);
/* Returns whether a process writes to a ring, but its request has not arrived yet. */
bool collectors_miss_requests(const struct collectors *collectors);
/* Call this repeatedly, before collectors_finish(), until the result is 0. Stops the producers, and
 * writes rows of some of their records until the clock reaches until_ns. Returns the number of
 * bytes that are left. Returns 0 if no process records allocations, because only allocations must
 * be complete. */
uint64_t collectors_finish_some(struct collectors *collectors, uint64_t until_ns);
/* Stops the producers and writes rows of their records. Records that are not rows when the clock
 * reaches until_ns are lost. If processes with few queued records (COLLECTORS_MODEST) still wait
 * some time before that, the queued records of the other processes are lost; the few records may
 * then become rows slightly after until_ns. */
void collectors_finish(struct collectors *collectors, uint64_t until_ns);
