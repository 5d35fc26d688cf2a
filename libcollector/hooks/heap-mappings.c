/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Heap mappings - mmap() and related functions, as libprofpreload-memory.so replaces them
 *
 * With `mmap` in PROF_MEMORY, the program's own mappings are recorded. Mappings that libc makes for
 * malloc(), threads and modules are not recorded, because libc makes them by direct system calls;
 * nor are mappings made before the first allocation.
 *
 * If a mapping replaces another one, the end of the replaced mapping is recorded after the call,
 * because the kernel may refuse the call; no other thread can get the address in between. mremap()
 * records no end of a mapping that it replaces: a new block at the address implies that end.
 * Invariants: (1) a refused mmap(), munmap() or mremap() ends no mapping [test_heap_zoo: mappings,
 *                 refused_mappings]
 *
 * This library's own mappings are not recorded: the linker redirects its calls to the __wrap_
 * functions.
 */
#include "libcollector/hooks/heap-next.h"
#include "libcollector/hooks/heap-record.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HOOK __attribute__((visibility("default")))

void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
	__attribute__((alias("__wrap_mmap")));
int __wrap_munmap(void *address, size_t bytes);

void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	return (void *)syscall(SYS_mmap, address, bytes, (long)protection, (long)flags, (long)fd,
			       offset);
}

int __wrap_munmap(void *address, size_t bytes)
{
	return (int)syscall(SYS_munmap, address, bytes);
}

/* Finds only mmap() and related functions. An allocator may map memory during its own
 * initialization, and must not be called then. */
static void prepare(void)
{
	if (__builtin_expect(__atomic_load_n(&heap_mode, __ATOMIC_ACQUIRE) & HEAP_UNSET, 0))
		heap_next_find_mappings();
}

/* Returns whether to record a mapping. A mapping that a foreign allocator makes while a hook calls
 * the allocator is not recorded. */
static bool is_recorded(void)
{
	return (heap_mode & HEAP_MAPPINGS) &&
	       !(heap_is_foreign &&
		 (uint64_t)(uintptr_t)__builtin_frame_address(0) < heap_thread.guard);
}

static inline __attribute__((always_inline)) void record(enum ring_alloc_kind kind, uint64_t size,
							 void *address)
{
	struct walk_registers caller;

	unwind_cache_get_caller(&caller);
	heap_record_alloc(kind, size, address == MAP_FAILED ? NULL : address, caller.pc, caller.sp,
			  caller.fp);
}

static uint32_t pages_of(uint64_t bytes)
{
	return (uint32_t)MIN_OF(bytes / 4096 + (bytes % 4096 != 0), (uint64_t)UINT32_MAX);
}

HOOK void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	void *at;

	prepare();
	if (!heap_next.mmap)
		return __wrap_mmap(address, bytes, protection, flags, fd, offset);
	if (!is_recorded())
		return heap_next.mmap(address, bytes, protection, flags, fd, offset);
	at = heap_next.mmap(address, bytes, protection, flags, fd, offset);
	if ((flags & MAP_FIXED) && at != MAP_FAILED)
		heap_record_free(RING_FREE_MUNMAP, at, pages_of(bytes));
	record(RING_ALLOC_MMAP, bytes, at);
	return at;
}

/* off_t has 64 bits on every supported architecture, so this is mmap(). */
HOOK void *mmap64(void *address, size_t bytes, int protection, int flags, int fd, off64_t offset)
	__attribute__((alias("mmap")));

HOOK int munmap(void *address, size_t bytes)
{
	prepare();
	if (!heap_next.munmap)
		return __wrap_munmap(address, bytes);
	/* The kernel refuses other arguments, and no mapping ends then. */
	if (is_recorded() && (uintptr_t)address % 4096 == 0 && bytes > 0)
		heap_record_free(RING_FREE_MUNMAP, address, pages_of(bytes));
	return heap_next.munmap(address, bytes);
}

static void *call_mremap(void *address, size_t bytes, size_t size, int flags, void *to)
{
	if (heap_next.mremap)
		return heap_next.mremap(address, bytes, size, flags, to);
	return (void *)syscall(SYS_mremap, address, bytes, size, (long)flags, to);
}

HOOK void *mremap(void *address, size_t bytes, size_t size, int flags, ...)
{
	struct heap_call call = { .kind = RING_ALLOC_MREMAP, .size = size };
	struct heap_change change;
	void *to = NULL, *at;
	va_list rest;
	bool is_kept;

	if (flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) {
		va_start(rest, flags);
		to = va_arg(rest, void *);
		va_end(rest);
	}
	prepare();
	if (!is_recorded())
		return call_mremap(address, bytes, size, flags, to);
	unwind_cache_get_caller(&call.caller);
	is_kept = bytes == 0 || (flags & MREMAP_DONTUNMAP);
	heap_record_begin(&call, is_kept ? NULL : address, &change);
	at = call_mremap(address, bytes, size, flags, to);
	heap_record_end(&change, at == MAP_FAILED ? NULL : at, false);
	return at;
}

/* ---- The break ---- */

static void record_shrunk(uintptr_t to, uintptr_t from)
{
	heap_record_free(RING_FREE_BRK, (void *)to, pages_of(from - to));
}

HOOK void *sbrk(intptr_t bytes)
{
	void *before;

	prepare();
	if (!heap_next.sbrk) {
		errno = ENOMEM;
		return (void *)-1;
	}
	if (bytes == 0 || !is_recorded())
		return heap_next.sbrk(bytes);
	if (bytes < 0) {
		uintptr_t end = (uintptr_t)heap_next.sbrk(0);

		record_shrunk(end - (uintptr_t)-bytes, end);
		return heap_next.sbrk(bytes);
	}
	before = heap_next.sbrk(bytes);
	record(RING_ALLOC_BRK, (uint64_t)bytes, before);
	return before;
}

HOOK int brk(void *address)
{
	uintptr_t before, to = (uintptr_t)address;
	int r;

	prepare();
	if (!heap_next.brk || !heap_next.sbrk) {
		errno = ENOMEM;
		return -1;
	}
	if (!is_recorded())
		return heap_next.brk(address);
	before = (uintptr_t)heap_next.sbrk(0);
	if (to < before)
		record_shrunk(to, before);
	r = heap_next.brk(address);
	if (to > before)
		record(RING_ALLOC_BRK, to - before, r == 0 ? (void *)before : NULL);
	return r;
}
