/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Register - the state of a recorded process, for register.c and register-process.c */
#pragma once

#include "libcollector/register/control-client.h"
#include "libcollector/register/register.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#define REGISTER_MAX_ARENAS 64 /* limit for all successive sessions of a process together */

struct arena_entry {
	struct ring_arena *arena;
	struct producer **producers; /* the producer of each ring; NULL: the ring was never owned */
};

/* Zeroed in a forked child. */
struct process {
	uint32_t state; /* enum process_state of register-process.c; private futex */
	uint32_t tgid;
	uint64_t generation;
	uint64_t lost; /* records lost before the first arena */
	struct control_connection connection;
	struct ring_budget budget; /* limits all waits except that for the registration */
	uint32_t growing;          /* 1: a thread requests an arena */
	uint32_t sweeping;
	uint32_t answering; /* 1: a thread answers an attach request */
	uint64_t no_growth_until_ns;
	uint32_t n_owners; /* number of owners that rings have had so far */
	uint32_t n_arenas;
	uint32_t n_retired; /* number of arenas that were retired: arenas[0] and following */
	struct arena_entry arenas[REGISTER_MAX_ARENAS];
};
static_assert(sizeof(struct process) <= RING_PAGE, "process");

/* NULL: not set up yet. */
extern struct process *register_process __attribute__((visibility("hidden")));

static inline void *register_map_memory(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

/* Returns false in a child of vfork(), which shares its parent's memory. */
static inline bool register_is_this_process(void)
{
	uint32_t tgid = RING_LOAD(&register_process->tgid);

	return tgid == 0 || tgid == (uint32_t)syscall(SYS_getpid);
}

/* pairs with add_arena() */
static inline uint32_t register_count_arenas(void)
{
	return __atomic_load_n(&register_process->n_arenas, __ATOMIC_ACQUIRE);
}

/* Returns the number of retired arenas. When a session begins, the arenas of all earlier sessions
 * are retired. Load it before register_count_arenas(). Pairs with retire_arenas(). */
static inline uint32_t register_count_retired(void)
{
	return __atomic_load_n(&register_process->n_retired, __ATOMIC_ACQUIRE);
}

/* ---- register-process.c ---- */

/* Registers the process if needed, or waits for the thread that registers it. */
bool register_is_registered(void);
/* Returns a free ring. If no ring is free and this thread may wait, waits for one up to
 * RING_WAIT_NS, or in a lossless session as long as the budget allows. */
struct ring *register_get_ring(uint32_t tid, uint32_t flags, struct arena_entry **ret_entry);
/* Returns a ring of at least `bytes`, from a new arena if needed. */
struct ring *register_get_bigger_ring(uint32_t tid, uint64_t bytes, uint32_t flags,
				      struct arena_entry **ret_entry);
/* ---- register.c ---- */

/* Returns whether the last session has ended, or its engine is gone. */
bool register_is_over(void);
/* Called once for each process image. Makes threads release their rings when they exit. */
void register_watch_threads(void);
