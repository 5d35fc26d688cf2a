/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Heap next - finds the allocator that the hooks call; a pool serves allocations until then
 *
 * Calls through heap_next are not recorded. A hook checks heap_mode first: if it is 0, the hook
 * needs only heap_next.
 */
#pragma once

#include "arch/base.h"

#include <sys/types.h>

#define HEAP_ALL 0x01u         /* every call is recorded */
#define HEAP_SAMPLED 0x02u     /* some calls are recorded: see heap-sampled.h */
#define HEAP_MAPPINGS 0x04u    /* mmap() and related calls are recorded, too */
#define HEAP_FOREIGN 0x08u     /* copy of heap_is_foreign, to get it in the same load */
#define HEAP_ATTACH 0x40u      /* a recording is requested: attach.h */
#define HEAP_UNSET 0x80u       /* not set up yet */
#define HEAP_GENERATION 0x100u /* lowest bit of the recording's number */
#define HEAP_OPEN (HEAP_UNSET | HEAP_ATTACH) /* something must be done before the call */

/* HEAP_*; 0: dormant, because no session records the process. */
extern uint32_t heap_mode __attribute__((visibility("hidden")));
/* Whether the allocator is not libc's; such an allocator may call the hooked names itself. */
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

/* Fills heap_next once, and answers a request to record. Preserves errno. Returns false on re-entry
 * or while another thread sets up: use the pool then. */
bool heap_next_prepare(void);
/* Sets what is recorded from the next registration on. `settings`: the value of PROF_MEMORY.
 * Returns false if nothing is requested or can be recorded. */
bool heap_next_choose(const char *settings);
/* Sets heap_mode as the collector's state requires, and clears HEAP_ATTACH. */
void heap_next_update_mode(void);
/* Adds a warning to the recording: the text `why`, followed by `what` (NULL: "another"). Does
 * nothing if no allocations are requested. */
void heap_next_warn(const char *why, const char *what);
/* Called when a module is opened that gets libc's names from libc itself (RTLD_DEEPBIND). Warns
 * about the first such module, and repeats the warning in each later recording. */
void heap_next_note_deep(const char *file);
/* Called when a module is opened. If its name is that of Python's library, and no Python was found
 * before, warns that Python functions are not read, because the module may be unloaded at any time.
 * Repeats the warning in each later recording. */
void heap_next_note_python(const char *file);
/* Warns if Python functions, C++'s operator new, or a module with deep binding are not recorded. */
void heap_next_warn_of_unseen(void);
/* Finds only mmap() and related functions, which an allocator may call during its own
 * initialization. */
void heap_next_find_mappings(void);
/* Finds only dlopen() and related functions. */
void heap_next_find_loader(void);

/* ---- The pool, for allocations before heap_next is filled. Its memory is never reused. ---- */

#define HEAP_POOL_BYTES (1u << 16)

extern uint8_t heap_pool[HEAP_POOL_BYTES] __attribute__((visibility("hidden")));

/* Returns zeroed memory, or NULL with errno ENOMEM if the pool is full. alignment: a power of
 * two. */
void *heap_pool_get(size_t size, size_t alignment);
size_t heap_pool_size(const void *address);

static inline bool heap_pool_has(const void *address)
{
	return __builtin_expect((uintptr_t)address - (uintptr_t)heap_pool < HEAP_POOL_BYTES, 0);
}
