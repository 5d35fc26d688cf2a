/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/collector-peer.h"
#include "daemon/engine/endings.h"

#define COLLECTORS_MAX_PEERS 1024u
#define COLLECTORS_MAX_BYTES (UINT64_C(256) << 20)      /* of all arenas */
#define COLLECTORS_MAX_PEER_BYTES (UINT64_C(128) << 20) /* of those of a process */
#define COLLECTORS_MAX_SYSPROF_BYTES \
	(UINT64_C(1) << 30)                        /* of sysprof's rings; half of it of a process */
#define COLLECTORS_MAX_QUEUED (UINT64_C(48) << 20) /* of records that wait for others */
#define COLLECTORS_MODEST (COLLECTORS_MAX_QUEUED / 16) /* of a process */

struct collectors_options {
	struct output *output;
	struct tasks *tasks;
	struct loss_table *losses;
	struct images *images;
	void (*want)(struct image *image, const struct mapping *mapping, int32_t pid,
		     void *data); /* as in struct samples */
	struct bells *bells;      /* borrowed; NULL: the timer alone */
	struct tick_clock *ticks; /* borrowed; NULL: rings have ns */
	int epoll_fd;             /* where connections and pidfds are waited for; -1: nowhere */
	uint64_t session;
	enum engine_policy policy;
	/* A process of which /proc is to tell. */
	void (*ask)(struct process *process, void *data);
	/* The same for who its threads are, again and again; false: not now. */
	bool (*ask_again)(struct process *process, void *data);
	void (*warn)(const char *code, const char *text, void *data);
	void *data;
};

struct collectors {
	struct collectors_options options;
	struct collector_rows *rows;
	GPtrArray *peers;  /* struct peer */
	GHashTable *by_fd; /* struct peer by connection, and by pidfd */
	struct peer_ring **heap;
	size_t n_heap, n_rings, heap_room;
	unsigned int n_active; /* peers, at the last drain */
	struct endings endings;
	uint64_t arena_bytes, queued_bytes;
	uint64_t sysprof_bytes,
		sysprof_max_bytes; /* of sysprof's rings, which are not in arena_bytes */
	uint64_t bound_ns;         /* nothing that comes is older, but for what is late */
	uint64_t emitted_ns;
	uint64_t reached_ns;     /* what is until then is rows */
	uint64_t arena_until_ns; /* no arena is made before */
	uint64_t drained_ns;
	uint64_t keep_up_ns; /* when rings are to be looked at next, amid what takes long */
	uint64_t woke_ns;    /* when producers that wait for room were woken last */
	uint64_t armed_ns;   /* bells */
	uint64_t due_ns;
	unsigned int interval_ms; /* of drains: 1 … */
	bool has_sysprof;         /* somebody has asked for a ring of that kind */
	unsigned int poll_ms;     /* of looks at these */
	uint64_t poll_ns;         /* the next one */
	unsigned int n_faults;
	bool rung, unfinished, is_finishing;
	bool has_more; /* in the rings, by the last drain */
	uint8_t *buffer;
};

void collectors_init(struct collectors *collectors, const struct collectors_options *options);
void collectors_done(struct collectors *collectors);

/* A process that the broker let in. The descriptors are taken. */
void collectors_add_peer(struct collectors *collectors, const struct message_peer *message,
			 int connection, int pidfd, uint64_t now_ns);
/* An event of the epoll set. False: not of one of ours. */
bool collectors_wake(struct collectors *collectors, int fd);
/* Who is a target gets an arena, where the side band has been applied up to limit_ns; requests
 * are answered. */
void collectors_serve(struct collectors *collectors, uint64_t limit_ns, uint64_t now_ns);
/* Takes some of what is in the rings, so that none gets full. */
void collectors_drain(struct collectors *collectors, uint64_t now_ns);
/* Records up to limit_ns, which the side band has been applied up to, become rows, those that
 * are in the rings yet too; not after until_ns of the clock. */
void collectors_emit(struct collectors *collectors, uint64_t limit_ns, uint64_t until_ns);
/* Behind all of that: when all of it is due again, by the clock; in due_ns too. UINT64_MAX:
 * nobody is there. Where it says that nothing can be missed, that is after longest_ns. */
uint64_t collectors_sleep(struct collectors *collectors, uint64_t now_ns, uint64_t longest_ns);
/* Whether nothing waits, and whatever is written from now on fills a ring whose bell is heard. */
bool collectors_are_quiet(const struct collectors *collectors, uint64_t now_ns);
/* Somebody writes into a ring whose request the broker has not passed on yet. */
bool collectors_miss_requests(const struct collectors *collectors);
/*
 * Before the end, as long as it returns more than 0: producers stop, and some of what they have
 * written becomes rows, until until_ns of the clock. Returns the bytes that are left, if there are
 * allocations among what processes tell of: of these nothing is to be lost.
 */
uint64_t collectors_finish_some(struct collectors *collectors, uint64_t until_ns);
/*
 * Producers stop, and what they have written becomes rows. What is not one at until_ns of the clock
 * is lost; half-way to it, what is queued of those of whom that is much, where others wait.
 */
void collectors_finish(struct collectors *collectors, uint64_t until_ns);
