/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/peers/collector-rows.h"
#include "daemon/engine/peers/doorbells.h"
#include "daemon/protocol.h"
#include "libcollector/control.h"

#define PEER_MAX_ARENAS 8     /* arenas of a process, without those of sysprof rings */
#define PEER_MAX_SYSPROF 512u /* sysprof rings of a process */

/* Consecutive records of one producer in a queue. `end`: n_put after the last record. */
struct peer_span {
	struct collector_producer *producer; /* a reference */
	uint64_t end;
};

/* A block of whole records. Records do not move until they are skipped. */
struct peer_chunk {
	struct peer_chunk *next;
	size_t n, room;
	uint64_t is_large; /* 64 bits wide, to align `bytes` */
	uint8_t bytes[];   /* struct peer_item, payload, … */
};

/* Records of a ring that have not become rows yet. */
struct peer_queue {
	struct peer_chunk *chunks, *last;
	size_t at;            /* offset of the oldest record in the first chunk */
	size_t slots, blocks; /* how far prefetch() (collectors-merge.c) has read the first chunk */
	/* bytes that were ever queued, and bytes of them that have left the queue */
	uint64_t n_put, n_skipped;
	struct peer_span *spans; /* producers of the queued records; the oldest is at `first` */
	uint32_t first, n_spans, span_room;
};

/* A record's header, in the format of struct ring_record_header. */
struct peer_item {
	uint32_t bytes; /* bytes of header and payload; a multiple of 8 */
	uint8_t type, verdict;
	uint16_t flags;
	uint64_t time_ns;
};
static_assert(sizeof(struct peer_item) == sizeof(struct ring_record_header) &&
		      offsetof(struct peer_item, verdict) ==
			      offsetof(struct ring_record_header, type) + 1 &&
		      offsetof(struct peer_item, flags) ==
			      offsetof(struct ring_record_header, flags) &&
		      offsetof(struct peer_item, time_ns) ==
			      offsetof(struct ring_record_header, time_ns),
	      "item");

struct peer_ring {
	struct ring_reader reader;
	struct peer *peer;
	struct collector_producer *producer; /* NULL: no thread is known to have claimed the ring */
	struct peer_queue queue;
	uint64_t bound_ns;
	struct ring_totals reported; /* totals that loss rows already contain */
	bool reported_fault;
	bool has_more; /* the last drain left records in the ring */
};

struct peer_arena {
	struct ring_arena_memory memory;
	struct peer_ring *rings;      /* memory.n_places items */
	struct peer_sysprof *sysprof; /* state of sysprof-peer.c */
	struct doorbell doorbell;
	bool armed;
	bool is_lossless;
	bool is_filling;        /* since the last check, a ring was over 1/3 full or not drained */
	uint64_t reported_lost; /* loss of threads without a ring, already in loss rows */
	uint64_t lost_ns;       /* when that loss was last reported; at first, the arena's start */
	unsigned int false_doorbells;
	/* until this time the doorbell is ignored, because it rang too often without reason */
	uint64_t deaf_until_ns;
};

/* A thread that claimed a ring, or several rings, because it moved to a larger one. */
struct peer_claim {
	struct collector_producer *producer;
	uint32_t n_rings;
};

enum peer_state {
	PEER_WAITING, /* until the side band identifies it */
	PEER_ACTIVE,
	PEER_GONE, /* dead or replaced by exec; its queued records still become rows */
};

struct collectors;
struct peer;

/* The differences between the protocols by which processes record: profd's own (collectors.c) and
 * sysprof's (sysprof-peer.c). Optional functions may be NULL. */
struct peer_type {
	/* A peer is one program: an exec or another registration ends it. If false, a peer is a
	 * process whose threads send requests through the broker. */
	bool is_program;
	/* Rings have doorbells, and a producer may wait for room. Otherwise rings are polled. */
	bool has_doorbells;
	uint64_t hold_ns; /* maximum delay from a record's time to its publication */

	/* Sets `charged` and the protocol's own state, which done() frees. */
	void (*begin)(struct collectors *collectors, struct peer *peer);
	void (*done)(struct peer *peer); /* optional */
	/* Answers the first request of a target. Returns false if the process gets no memory. */
	bool (*admit)(struct collectors *collectors, struct peer *peer);
	/* Answers later requests. limit_ns: time that the side band has reached; requests after
	 * it wait. */
	void (*serve)(struct collectors *collectors, struct peer *peer, uint64_t limit_ns,
		      uint64_t now_ns);
	/* Answers all waiting requests; the threads continue without a ring. Optional. */
	void (*release)(struct peer *peer);
	/* Gives each arena to the process that writes to it, because a process may have received an
	 * answer meant for another. Optional, as are the next three. */
	void (*sort)(struct collectors *collectors, struct peer *peer, uint64_t now_ns);
	/* Returns whether a process writes to an arena but its request has not arrived yet. */
	bool (*misses_request)(const struct collectors *collectors, const struct peer *peer);
	/* Returns whether the writer of an arena is still unknown. At the end,
	 * lose_unclaimed() counts the records of such writers as lost. */
	bool (*is_unclaimed)(const struct peer_arena *arena);
	void (*lose_unclaimed)(struct peer *peer);

	/* Requests that producers stop. Optional. */
	void (*stop)(struct peer_arena *arena);
	/* Queues some of a ring's records; all of them if its process is dead. Returns the number
	 * of queued bytes. *ret_fill: the number of bytes that the ring held. */
	size_t (*drain)(struct collectors *collectors, struct peer_arena *arena, uint32_t i,
			enum ring_drain how, uint64_t *ret_fill);
	/* Returns the number of unread bytes in a ring, as its positions show it. */
	uint64_t (*unread)(const struct peer_arena *arena, uint32_t i);
	/* Called between drains. Returns whether the ring is full enough to drain. Optional. */
	bool (*poll)(struct peer_arena *arena);
	void (*free_arena)(struct peer_arena *arena); /* optional */
};

/* A registered process. */
struct peer {
	struct collector_process process;
	const struct peer_type *type;
	uint64_t *charged; /* where the bytes of its arenas are counted */
	enum peer_state state;
	int connection, pidfd; /* -1: closed */
	uint64_t came_ns, gone_ns;
	uint32_t wants;
	bool ended;  /* its pidfd is readable */
	bool called; /* its connection is readable */
	uint32_t n_requests;
	uint64_t queried_ns; /* when a look-up of its unknown threads was last requested */
	unsigned int n_queries;
	bool is_late;    /* records are only counted as lost, because time has run out */
	bool is_refused; /* refused for lack of room and answered; kept only to be counted */
	bool is_blocked; /* does not read answers now; retried by the next collectors_serve() */
	uint32_t n_unanswered; /* requests that came through the broker and have no answer */
	uint64_t requested_ns; /* time of the last request after the first one; 0: none */
	struct sysprof_counters *counters; /* state of sysprof-peer.c */
	struct peer_arena **arenas;
	uint32_t n_arenas, arena_room;
	GHashTable *claims;    /* struct peer_claim, by tid */
	uint64_t queued_bytes; /* bytes in all of its queues */
};

struct peer *peer_new(struct collector_rows *rows, const struct message_peer *message,
		      int connection, int pidfd, uint64_t now_ns);
uint64_t peer_arena_bytes(const struct peer *peer);
void peer_free(struct peer *peer);
/* Releases spare queue memory of all peers. */
void peer_free_spare(struct collector_rows *rows);

/* Does not block. Returns false if the answer was not sent; the connection is then useless. */
bool peer_answer(struct peer *peer, enum control_status status, uint64_t session, int arena_fd);
enum peer_message { PEER_NOTHING, PEER_REQUEST, PEER_CLOSED };
/* Receives the next request. PEER_CLOSED: the connection was closed or has sent something
 * invalid. */
enum peer_message peer_receive(struct peer *peer, struct control_request *ret_request);
/* Returns whether the peer has closed its connection. Its pid may then belong to another process,
 * or exec may have replaced the program. */
bool peer_has_hung_up(const struct peer *peer);

/* Takes ownership of the arena and its rings. */
void peer_attach_arena(struct peer *peer, struct peer_arena *arena);
/* Removes the i-th arena from the peer; the caller owns it. */
struct peer_arena *peer_detach_arena(struct peer *peer, uint32_t i);
/* Also drops the queued records of its rings. */
void peer_arena_free(struct peer_arena *arena);
/* Appends a record to the ring's queue. Returns its size there, in bytes. */
size_t peer_ring_put(struct peer_ring *ring, enum ring_type type, uint64_t time_ns,
		     const void *fixed, uint32_t n_fixed, const void *text, uint32_t n_text);

/* Records that were dropped because there was no time to read them; reported as one loss row. */
struct peer_loss {
	uint64_t count, from_ns, to_ns;
};
void peer_loss_add(struct peer_loss *loss, enum ring_type type, uint64_t time_ns);
void peer_loss_report(const struct peer_loss *loss, struct peer *peer);

/* Makes an arena. Returns 0 or -errno. `ticks` (borrowed): NULL if times must be in ns. */
MUST_CHECK int peer_add_arena(struct peer *peer, const struct ring_arena_sizes *sizes,
			      struct tick_clock *ticks, int *ret_fd);
/* Returns whether some rings have no memory yet, and one of the largest rings with memory has been
 * used. */
bool peer_arena_needs_more(const struct peer_arena *arena);
/* Gives more rings memory, piece by piece. A ring can be claimed once all of its memory is present.
 * Does nothing if all rings have memory. */
void peer_arena_grow(struct peer_arena *arena, struct tick_clock *ticks);
/* Copies records of the ring into its queue, up to `most` bytes, or up to n_bytes more. Records of
 * a late peer are copied to `buffer` and only counted. Returns the number of queued bytes, without
 * skipped pads. Counts losses. */
size_t peer_ring_drain(struct peer_ring *ring, enum ring_drain how, void *buffer, size_t n_bytes,
		       uint64_t most);
/* Returns the oldest record, or NULL. The record does not move when others are queued. */
static inline struct peer_item *peer_ring_peek(const struct peer_ring *ring)
{
	const struct peer_queue *queue = &ring->queue;

	return queue->chunks && queue->at < queue->chunks->n
		       ? (struct peer_item *)(void *)(queue->chunks->bytes + queue->at)
		       : NULL;
}
/* Returns the producer of the oldest record; borrowed. */
static inline struct collector_producer *peer_ring_producer(const struct peer_ring *ring)
{
	return ring->queue.spans[ring->queue.first].producer;
}
/* Called when the oldest record has changed. Releases the producer and the chunk that the next
 * record does not use, and skips pads. Returns the number of bytes of these pads. */
size_t peer_ring_advance(struct peer_ring *ring);
/* Skips the oldest record and the pads after it. Returns the number of skipped bytes. */
static inline size_t peer_ring_skip(struct peer_ring *ring)
{
	struct peer_queue *queue = &ring->queue;
	size_t bytes = peer_ring_peek(ring)->bytes;

	queue->at += bytes;
	queue->n_skipped += bytes;
	ring->peer->queued_bytes -= bytes;
	if (queue->n_skipped == queue->spans[queue->first].end || queue->at == queue->chunks->n ||
	    peer_ring_peek(ring)->type == RING_PAD)
		bytes += peer_ring_advance(ring);
	return bytes;
}
/* Stops reading the ring and drops its queued records. Returns the number of dropped bytes. */
size_t peer_ring_quarantine(struct peer_ring *ring, enum ring_fault fault);
/* Reports the loss of threads that got no ring. */
void peer_arena_count_lost(struct peer *peer, struct peer_arena *arena, uint64_t now_ns);
