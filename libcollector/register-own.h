/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Register own - what a process that is recorded keeps of itself; for the files register*.c
 */
#pragma once

#include "libcollector/control-client.h"
#include "libcollector/register.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#define REGISTER_MAX_ARENAS 64 /* of all sessions of a process, one after another */

struct arena_entry {
	struct ring_arena *arena;
	struct producer **producers; /* by ring; NULL: never owned */
};

/* Zeros in a forked child. */
struct process {
	uint32_t state; /* enum process_state of register-process.c; futex, private */
	uint32_t tgid;
	uint64_t generation;
	uint64_t lost; /* before there was an arena */
	struct control_connection connection;
	struct ring_budget budget; /* of all waits but the first */
	uint32_t growing;          /* by a thread */
	uint32_t sweeping;
	uint32_t answering; /* a wake */
	uint64_t no_growth_until_ns;
	uint32_t n_owners; /* of rings */
	uint32_t n_arenas;
	uint32_t n_retired; /* of them: the first ones, of sessions that are over */
	struct arena_entry arenas[REGISTER_MAX_ARENAS];
};
static_assert(sizeof(struct process) <= RING_PAGE, "process");

/* NULL: not set up. */
extern struct process *register_process __attribute__((visibility("hidden")));

static inline void *register_map_memory(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

/* A child of vfork() is another process in this one's memory. */
static inline bool register_is_this_process(void)
{
	uint32_t tgid = RING_LOAD(&register_process->tgid);

	return tgid == 0 || tgid == (uint32_t)syscall(SYS_getpid);
}

/* pairs with register_add_arena() */
static inline uint32_t register_count_arenas(void)
{
	return __atomic_load_n(&register_process->n_arenas, __ATOMIC_ACQUIRE);
}

/*
 * Of them, those of sessions that are over: all, where another session begins. To be asked before
 * how many there are. Pairs with register_retire_arenas().
 */
static inline uint32_t register_count_retired(void)
{
	return __atomic_load_n(&register_process->n_retired, __ATOMIC_ACQUIRE);
}

/* ---- register-process.c ---- */

/* May register it, or wait for who does. */
bool register_is_registered(void);
bool register_is_realtime(void);

/* ---- register-rings.c ---- */

/* By whoever has `state` or `growing`. */
int register_add_arena(int memfd);
/* What is free at once, else what comes free within RING_WAIT_NS, where this thread may wait. */
struct ring *register_get_ring(uint32_t tid, uint32_t flags, struct arena_entry **ret_entry);
/* One of at least so many bytes, from a new arena if need be. */
struct ring *register_get_bigger_ring(uint32_t tid, uint64_t bytes, uint32_t flags,
				      struct arena_entry **ret_entry);
/* Of the session before. A thread that is amid a record ends it in memory of its own; the
 * arena's goes when the engine goes. */
void register_retire_arenas(void);
/* In a forked child: of its parent, by the parent's generation. */
void register_shield_arenas(uint64_t generation);

/* ---- register.c ---- */

/* The last session has ended, or its engine is gone. */
bool register_is_over(void);
/* Once a process image: a thread that ends lets go of its ring. */
void register_watch_threads(void);
