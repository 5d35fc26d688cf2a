/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/collector-rows.h"
#include "daemon/engine/doorbells.h"
#include "daemon/engine/sysprof-frames.h"
#include "daemon/engine/sysprof-ring.h"
#include "daemon/protocol.h"
#include "libcollector/control.h"

#define PEER_MAX_ARENAS 8     /* of our own */
#define PEER_MAX_SYSPROF 512u /* of sysprof's rings */

/* The records of a queue that are a producer's: up to that byte, counted from the queue's
 * beginning. */
struct peer_span {
	struct collector_producer *producer; /* a reference */
	uint64_t end;
};

/* Some of a ring's records, each of them whole. They do not move until they are skipped. */
struct peer_chunk {
	struct peer_chunk *next;
	size_t n, room;
	uint64_t is_large; /* 64 bits, so that the bytes are aligned */
	uint8_t bytes[];   /* struct peer_item, payload, … */
};

/* Records of a ring that are not rows yet. */
struct peer_queue {
	struct peer_chunk *chunks, *last;
	size_t at;                 /* offset of the oldest record in the first chunk */
	size_t slots, blocks;      /* in it: how far prefetch() has looked (collectors-merge.c) */
	uint64_t n_put, n_skipped; /* total bytes */
	struct peer_span *spans;   /* of the queued records; the oldest is at `first` */
	uint32_t first, n_spans, span_room;
};

/* A record's header in the format that the ring's reader leaves. */
struct peer_item {
	uint32_t bytes; /* with the payload; a multiple of 8 */
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
	struct collector_producer *producer; /* NULL: no claim is known */
	struct peer_queue queue;
	uint64_t bound_ns;
	struct ring_totals reported; /* already in loss rows */
	bool reported_fault;
	bool has_more; /* than the last drain took */
};

/* A ring of sysprof's (sysprof-ring.h). The arena's only peer_ring has a reader of which only size,
 * times and the fault are used. */
struct peer_sysprof {
	struct sysprof_ring ring;
	struct sysprof_frames *frames;
	uint32_t largest; /* frame, in bytes */
	int32_t pid;      /* from its frames; 0: its writer is not known yet */
	/* when a process that did not request it was first seen writing; 0: never */
	uint64_t found_ns;
	unsigned int n_faults;
	uint64_t ended_ns; /* since when its thread has marked it as ended; 0: it has not */
	size_t n_queued;   /* bytes, by the current drain */
};

struct peer_arena {
	struct ring_arena_memory memory;
	struct peer_ring *rings;      /* memory.n_places */
	struct peer_sysprof *sysprof; /* NULL: an arena of our own */
	struct doorbell doorbell;
	bool armed;
	bool is_lossless;
	bool is_filling;        /* a ring was more than a third full since the last check */
	uint64_t reported_lost; /* of threads without a ring, already in loss rows */
	uint64_t lost_ns;       /* the last check of that */
	unsigned int false_doorbells;
	/* its doorbell is ignored until then, because it rang too often for nothing */
	uint64_t deaf_until_ns;
};

/* The claims of a thread: it has more than one ring if it moved to a larger one. */
struct peer_claim {
	struct collector_producer *producer;
	uint32_t n_rings;
};

enum peer_state {
	PEER_WAITING, /* for the side band to identify it */
	PEER_ACTIVE,
	PEER_GONE, /* dead or replaced by exec; what is queued still becomes rows */
};

/* A registered process. */
struct peer {
	struct collector_process process;
	enum peer_state state;
	int connection, pidfd; /* -1: closed */
	uint64_t came_ns, gone_ns;
	uint32_t wants;
	bool ended;  /* by its pidfd */
	bool called; /* the connection has something to read */
	uint32_t n_requests;
	uint64_t queried_ns; /* when /proc was last asked which threads it has */
	unsigned int n_queries;
	bool is_late;    /* its records are only counted as lost, because there is no time left */
	bool is_sysprof; /* it uses that protocol: each request is for one ring */
	bool is_refused; /* it was refused for lack of room and notified; it is only counted */
	bool is_blocked; /* it does not read the answers; retried in the next round */
	uint32_t n_unanswered;             /* sysprof's requests without an answer */
	uint64_t requested_ns;             /* last request of another thread */
	struct sysprof_counters *counters; /* of sysprof's rings */
	struct peer_arena **arenas;
	uint32_t n_arenas, arena_room;
	GHashTable *claims;    /* struct peer_claim, by tid */
	uint64_t queued_bytes; /* of all of its rings */
};

struct peer *peer_new(struct collector_rows *rows, const struct message_peer *message,
		      int connection, int pidfd, uint64_t now_ns);
void peer_free(struct peer *peer);
/* Releases spare queue memory of all peers. */
void peer_free_spare(struct collector_rows *rows);

/* Does not block. Returns false if the process does not read: the connection is of no use then. */
bool peer_answer(struct peer *peer, enum control_status status, uint64_t session, int arena_fd);
enum peer_message { PEER_NOTHING, PEER_REQUEST, PEER_CLOSED };
/* Returns the next request of the process. */
enum peer_message peer_receive(struct peer *peer, struct control_request *ret_request);
/* Returns whether its connection has hung up: another process has its pid, or exec replaced it. */
bool peer_has_hung_up(const struct peer *peer);

/* Takes ownership of the arena and its rings. */
void peer_attach_arena(struct peer *peer, struct peer_arena *arena);
/* Takes the i-th arena away from the peer. */
struct peer_arena *peer_detach_arena(struct peer *peer, uint32_t i);
/* Also drops what is queued of its rings. */
void peer_arena_free(struct peer_arena *arena);
/* Appends a record to the ring's queue. Returns the bytes that it took. */
size_t peer_ring_put(struct peer_ring *ring, enum ring_type type, uint64_t time_ns,
		     const void *fixed, uint32_t n_fixed, const void *text, uint32_t n_text);

/* Records that were dropped because there was no time to read them: one loss row for all. */
struct peer_loss {
	uint64_t count, from_ns, to_ns;
};
void peer_loss_add(struct peer_loss *loss, enum ring_type type, uint64_t time_ns);
void peer_loss_report(const struct peer_loss *loss, struct peer *peer);

/* Returns 0 or -errno. If `ticks` is not NULL, ring times may be ticks. `ticks` is borrowed. */
MUST_CHECK int peer_add_arena(struct peer *peer, const struct ring_arena_sizes *sizes,
			      struct tick_clock *ticks, int *ret_fd);
/* Returns whether larger rings could get memory and one of the largest rings that have it is
 * used. */
bool peer_arena_needs_more(const struct peer_arena *arena);
/* Gives more rings memory, a piece at a time. A ring can be claimed when all of its memory is
 * there. Does nothing if all rings have theirs. */
void peer_arena_grow(struct peer_arena *arena, struct tick_clock *ticks);
/*
 * Copies records of the ring into its queue, through `buffer`, until that is `most` bytes or a
 * little more. Returns the bytes that they take in the queue. Counts losses.
 */
size_t peer_ring_drain(struct peer_ring *ring, enum ring_drain how, void *buffer, size_t n_bytes,
		       uint64_t most);
/* Returns the oldest record, or NULL. It does not move when more are queued. */
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
/* Moves to the next record if another producer's records, another chunk, a pad, or nothing is next.
 * Returns the bytes of the pads that it skipped. */
size_t peer_ring_advance(struct peer_ring *ring);
/* Skips the oldest record. Returns the bytes that it took. */
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
/* Stops reading the ring, and drops what is queued. Returns the bytes that it took. */
size_t peer_ring_quarantine(struct peer_ring *ring, enum ring_fault fault);
/* Counts records of threads that got no ring. */
void peer_arena_count_lost(struct peer *peer, struct peer_arena *arena, uint64_t now_ns);
