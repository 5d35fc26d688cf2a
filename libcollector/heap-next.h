/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Heap next - the allocator behind the hooks, and what stands in for it until it is known
 *
 * Nothing here is recorded. A hook asks heap_mode first: where it is 0, heap_next is all that it
 * needs.
 */
#pragma once

#include "arch/base.h"

#include <sys/types.h>

#define HEAP_ALL 0x01u                     /* every call is recorded */
#define HEAP_SAMPLED 0x02u                 /* some are: those of heap-sampled.h */
#define HEAP_MAPPINGS 0x04u                /* mmap() and its kind too */
#define HEAP_FOREIGN 0x08u                 /* heap_is_foreign, where one look is to say all */
#define HEAP_WAKE 0x40u                    /* somebody asks for a recording: wake.h */
#define HEAP_UNSET 0x80u                   /* nothing is known yet */
#define HEAP_TURN 0x100u                   /* one more for each recording, from here on */
#define HEAP_OPEN (HEAP_UNSET | HEAP_WAKE) /* there is something to be done before the call */

/* HEAP_*; 0: dormant, as long as no session records the process. */
extern uint32_t heap_mode __attribute__((visibility("hidden")));
/* The allocator is not libc's: it may call the names that are hooked itself. */
extern bool heap_is_foreign __attribute__((visibility("hidden")));

struct heap_next {
	void *(*malloc)(size_t size);
	void *(*calloc)(size_t n, size_t size);
	void *(*realloc)(void *address, size_t size);
	void (*free)(void *address);
	int (*posix_memalign)(void **address, size_t alignment, size_t size);
	void *(*aligned_alloc)(size_t alignment, size_t size);
	void *(*memalign)(size_t alignment, size_t size);
	void *(*valloc)(size_t size);
	void *(*pvalloc)(size_t size);
	size_t (*malloc_usable_size)(void *address);
	void (*free_sized)(void *address, size_t size);
	void (*free_aligned_sized)(void *address, size_t alignment, size_t size);
	void *(*mmap)(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
	int (*munmap)(void *address, size_t bytes);
	void *(*mremap)(void *address, size_t bytes, size_t size, int flags, ...);
	int (*brk)(void *address);
	void *(*sbrk)(intptr_t bytes);
	int (*dlclose)(void *handle);
	void *(*dlopen)(const char *file, int mode);
	void *(*dlmopen)(long space, const char *file, int mode);
};
extern struct heap_next heap_next __attribute__((visibility("hidden")));

/*
 * Finds all of that, once, and answers who asks for a recording; errno stays. False: this is called
 * by what does so, or by another thread meanwhile: the pool is to be used.
 */
bool heap_next_prepare(void);
/* What is recorded from the next registration on, as PROF_MEMORY says it. False: nothing can be. */
bool heap_next_choose(const char *settings);
/* heap_mode is what it is to be, whatever was written there. */
void heap_next_settle(void);
/* Says in the recording, as a warning, what is not recorded: `why`, and `what`. Where
 * allocations are asked for. */
void heap_next_warn(const char *why, const char *what);
/* A module is opened that has libc's names from libc. Of the first one that is said once, and
 * again in each recording that comes. */
void heap_next_note_deep(const char *file);
/* As heap_next_warn(), of what an allocator that is not libc's keeps to itself, and of that
 * module. */
void heap_next_warn_of_unseen(void);
/* Finds mmap() and its kind alone, which an allocator may call that is being made ready itself. */
void heap_next_find_mappings(void);
/* The same of dlopen() and its kind. */
void heap_next_find_loader(void);

/* ---- The pool: what is allocated until then. Never used again. ---- */

#define HEAP_POOL_BYTES (1u << 16)

extern uint8_t heap_pool[HEAP_POOL_BYTES] __attribute__((visibility("hidden")));

/* Zeros. NULL, and errno ENOMEM: there is no room. alignment: a power of two. */
void *heap_pool_get(size_t size, size_t alignment);
size_t heap_pool_size(const void *address);

static inline bool heap_pool_has(const void *address)
{
	return __builtin_expect((uintptr_t)address - (uintptr_t)heap_pool < HEAP_POOL_BYTES, 0);
}
