/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/bells.h"
#include "daemon/engine/collector-rows.h"
#include "daemon/engine/sysprof-frames.h"
#include "daemon/engine/sysprof-ring.h"
#include "daemon/protocol.h"
#include "libcollector/control.h"

#define PEER_MAX_ARENAS 8     /* of our own */
#define PEER_MAX_SYSPROF 512u /* of sysprof's rings */

/* Up to where in a queue, in all, records are an owner's. */
struct peer_span {
	struct collector_owner *owner; /* with a reference */
	uint64_t end;
};

/* Some of the records of a ring, whole ones; they stay where they are until they are skipped. */
struct peer_chunk {
	struct peer_chunk *next;
	size_t n, room;
	uint64_t is_large; /* so that what follows is aligned */
	uint8_t bytes[];   /* struct peer_item, payload, … */
};

/* Records of a ring that are not rows yet. */
struct peer_queue {
	struct peer_chunk *chunks, *last;
	size_t at;               /* of the oldest one, in the first chunk */
	size_t slots, blocks;    /* there: how far has been said what comes (collectors-merge.c) */
	uint64_t n_put, n_taken; /* bytes, in all */
	struct peer_span *spans; /* of what is there: from the first on */
	uint32_t first, n_spans, span_room;
};

/* A record's header as the ring's reader leaves it. */
struct peer_item {
	uint32_t bytes; /* with what follows; a multiple of 8 */
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
	struct collector_owner *owner; /* NULL: not claimed, as far as we know */
	struct peer_queue queue;
	uint64_t bound_ns;
	struct ring_totals told; /* in loss rows */
	bool told_fault;
	bool has_more; /* than was taken by the last drain */
};

/* A ring of sysprof's (sysprof-ring.h). Of what is in the only peer_ring, reader has size, times
 * and the fault. */
struct peer_sysprof {
	struct sysprof_ring ring;
	struct sysprof_frames *frames;
	uint32_t largest; /* frame, in bytes */
	int32_t pid;      /* that its frames say; 0: whose it is, is not known yet */
	uint64_t
		found_ns; /* since when it is written by somebody who has not asked; 0: it is not */
	unsigned int n_faults;
	uint64_t ended_ns; /* since its thread says so; 0: it does not */
	size_t n_queued;   /* bytes, by the drain that runs */
};

struct peer_arena {
	struct ring_arena_memory memory;
	struct peer_ring *rings;      /* memory.n_places */
	struct peer_sysprof *sysprof; /* NULL: an arena of our own */
	struct bell bell;
	bool armed;
	bool is_lossless;
	bool is_filling;    /* a ring was more than a third full since that was looked at */
	uint64_t told_lost; /* without a ring */
	uint64_t lost_ns;   /* when that was looked at */
	unsigned int false_bells;
	uint64_t deaf_until_ns; /* it rang for nothing too often */
};

/* What a thread has: more than one ring, where it went on in a larger one. */
struct peer_claim {
	struct collector_owner *owner;
	uint32_t n_rings;
};

enum peer_state {
	PEER_WAITING, /* for what the side band says of it */
	PEER_ACTIVE,
	PEER_GONE, /* dead, or another one by exec: what is queued becomes rows */
};

/* A process that has registered. */
struct peer {
	struct collector_process process;
	enum peer_state state;
	int connection, pidfd; /* -1: closed */
	uint64_t came_ns, gone_ns;
	uint32_t wants;
	bool ended;  /* the pidfd says so */
	bool called; /* there is something on the connection */
	uint32_t n_requests;
	uint64_t asked_ns; /* /proc, for who its threads are */
	unsigned int n_asked;
	bool is_late; /* what is read of it is only counted, as lost: there is no time for more */
	bool is_sysprof;    /* it speaks that protocol: each request is for a ring */
	bool is_refused;    /* there was no room, and it knows: it is only to be counted */
	bool is_blocked;    /* nobody reads the answers: it has time until the next round */
	uint32_t n_wanted;  /* requests of that kind without an answer */
	uint64_t wanted_ns; /* the last one of a further thread */
	struct sysprof_counters *counters; /* of those */
	struct peer_arena **arenas;
	uint32_t n_arenas, arena_room;
	GHashTable *claims;    /* struct peer_claim, by tid */
	uint64_t queued_bytes; /* of all of its rings */
};

struct peer *peer_new(struct collector_rows *rows, const struct message_peer *message,
		      int connection, int pidfd, uint64_t now_ns);
void peer_free(struct peer *peer);
/* Memory that queues had, of all peers. */
void peer_free_spare(struct collector_rows *rows);

/* Non-blocking; false: the process is not reading, and the connection is of no use. */
bool peer_answer(struct peer *peer, enum control_status status, uint64_t session, int arena_fd);
enum peer_message { PEER_NOTHING, PEER_REQUEST, PEER_CLOSED };
/* What the process asks for next. */
enum peer_message peer_receive(struct peer *peer, struct control_request *ret_request);
/* Another one has this process's number, or its memory was given up by exec. */
bool peer_has_hung_up(const struct peer *peer);

/* Takes it; its rings are the peer's from now on. */
void peer_take_arena(struct peer *peer, struct peer_arena *arena);
/* The i-th is not the peer's any more. */
struct peer_arena *peer_steal_arena(struct peer *peer, uint32_t i);
/* With what is queued of its rings. */
void peer_arena_free(struct peer_arena *arena);
/* Behind what its ring has. Returns the bytes that it took. */
size_t peer_ring_put(struct peer_ring *ring, enum ring_type type, uint64_t time_ns,
		     const void *fixed, uint32_t n_fixed, const void *text, uint32_t n_text);

/* Records of a ring that there is no time for: one row, however many. */
struct peer_loss {
	uint64_t count, from_ns, to_ns;
};
void peer_loss_add(struct peer_loss *loss, enum ring_type type, uint64_t time_ns);
void peer_loss_tell(const struct peer_loss *loss, struct peer *peer);

/* Returns 0 or -errno. */
/* With a clock, which is borrowed, its times may be ticks. */
MUST_CHECK int peer_add_arena(struct peer *peer, const struct ring_arena_sizes *sizes,
			      struct tick_clock *ticks, int *ret_fd);
/* There are larger rings than those that have memory, and the largest of these are used. */
bool peer_arena_wants_more(const struct peer_arena *arena);
/* A piece of memory for the next one, which can be claimed when it has all. Nothing, where all
 * have theirs. */
void peer_arena_grow(struct peer_arena *arena, struct tick_clock *ticks);
/*
 * Copies what is in the ring into its queue, through `buffer`, until that is `most` bytes or a
 * little more; returns how many bytes that took. Counts what was lost.
 */
size_t peer_ring_drain(struct peer_ring *ring, enum ring_drain how, void *buffer, size_t n_bytes,
		       uint64_t most);
/* Its oldest record, which stays there though more may be queued; NULL: none. */
static inline struct peer_item *peer_ring_peek(const struct peer_ring *ring)
{
	const struct peer_queue *queue = &ring->queue;

	return queue->chunks && queue->at < queue->chunks->n
		       ? (struct peer_item *)(void *)(queue->chunks->bytes + queue->at)
		       : NULL;
}
/* Whose that is; borrowed. */
static inline struct collector_owner *peer_ring_owner(const struct peer_ring *ring)
{
	return ring->queue.spans[ring->queue.first].owner;
}
/* Another owner's records, another chunk, a pad, or nothing is next. Returns the bytes that pads
 * took. */
size_t peer_ring_settle(struct peer_ring *ring);
/* Behind the oldest record; returns the bytes that it took. */
static inline size_t peer_ring_skip(struct peer_ring *ring)
{
	struct peer_queue *queue = &ring->queue;
	size_t bytes = peer_ring_peek(ring)->bytes;

	queue->at += bytes;
	queue->n_taken += bytes;
	ring->peer->queued_bytes -= bytes;
	if (queue->n_taken == queue->spans[queue->first].end || queue->at == queue->chunks->n ||
	    peer_ring_peek(ring)->type == RING_PAD)
		bytes += peer_ring_settle(ring);
	return bytes;
}
/* The ring is not read any more; what is queued is lost. Returns the bytes that it took. */
size_t peer_ring_quarantine(struct peer_ring *ring, enum ring_fault fault);
/* Of threads that have no ring. */
void peer_arena_count_lost(struct peer *peer, struct peer_arena *arena, uint64_t now_ns);
