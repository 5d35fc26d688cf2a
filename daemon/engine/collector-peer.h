/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/bells.h"
#include "daemon/engine/collector-rows.h"
#include "daemon/protocol.h"
#include "libcollector/control.h"

#define PEER_MAX_ARENAS 8

/* Records of a ring that are not rows yet. */
struct peer_queue {
	uint8_t *bytes; /* struct peer_item, payload, … */
	size_t at, n, room;
};

struct peer_item {
	uint64_t time_ns;
	struct collector_owner *owner; /* with a reference */
	uint32_t n_bytes;              /* that follow, padded to 8 */
	uint16_t flags;
	uint8_t type, verdict;
};

struct peer_ring {
	struct ring_reader reader;
	struct peer *peer;
	struct collector_owner *owner; /* NULL: not claimed, as far as we know */
	struct peer_queue queue;
	uint64_t bound_ns;
	struct ring_totals told; /* in loss rows */
	bool told_fault;
};

struct peer_arena {
	struct ring_arena_memory memory;
	struct peer_ring *rings; /* memory.n_rings */
	struct bell bell;
	bool armed;
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
	uint64_t came_ns;
	uint32_t wants;
	bool ended;  /* the pidfd says so */
	bool called; /* there is something on the connection */
	uint32_t n_requests;
	uint64_t asked_ns; /* /proc, for who its threads are */
	unsigned int n_asked;
	struct peer_arena *arenas[PEER_MAX_ARENAS];
	uint32_t n_arenas;
	GHashTable *claims;    /* struct peer_claim, by tid */
	uint64_t queued_bytes; /* of all of its rings */
};

struct peer *peer_new(struct collector_rows *rows, const struct message_peer *message,
		      int connection, int pidfd, uint64_t now_ns);
void peer_free(struct peer *peer);

/* Non-blocking; false: the process is not reading, and the connection is of no use. */
bool peer_answer(struct peer *peer, enum control_status status, uint64_t session, int arena_fd);
enum peer_message { PEER_NOTHING, PEER_REQUEST, PEER_CLOSED };
/* What the process asks for next. */
enum peer_message peer_receive(struct peer *peer, struct control_request *ret_request);
/* Another one has this process's number, or its memory was given up by exec. */
bool peer_has_hung_up(const struct peer *peer);

/* Returns 0 or -errno. */
MUST_CHECK int peer_add_arena(struct peer *peer, const struct ring_arena_sizes *sizes, int *ret_fd);
/*
 * Copies what is in the ring into its queue, through `buffer`; returns how many bytes that took. Counts what was lost.
 * ret_fill: bytes that were there.
 */
size_t peer_ring_drain(struct peer_ring *ring, enum ring_drain how, void *buffer, size_t n_bytes,
		       uint64_t *ret_fill);
/* Its oldest record; NULL: none. */
struct peer_item *peer_ring_peek(const struct peer_ring *ring);
/* Behind that; returns the bytes that it took. */
size_t peer_ring_skip(struct peer_ring *ring);
/* The ring is not read any more; what is queued is lost. Returns the bytes that it took. */
size_t peer_ring_quarantine(struct peer_ring *ring, enum ring_fault fault);
/* Of threads that have no ring. */
void peer_arena_count_lost(struct peer *peer, struct peer_arena *arena, uint64_t now_ns);
