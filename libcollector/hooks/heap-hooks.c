/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Heap hooks - the allocator's functions, as libprofpreload-memory.so replaces them
 *
 * Each hook calls the next allocator and records the call: a free before the call, an allocation
 * after it, and realloc() around it. If nothing is recorded, a hook costs two loads and a jump.
 *
 * libc never calls its public names internally, except in reallocarray(), which is implemented
 * here. Another allocator may call hooked names within a call; such inner calls are passed on
 * without a record. C++'s operators new and delete are not hooked, because they call malloc(),
 * aligned_alloc() and free(). If an allocator has its own operators, calls of these are not seen.
 * Invariants: (1) every call behaves as without this library  [test_heap_zoo: zoo, kinds, run_path]
 *             (2) each call is recorded once, or counted as lost  [test_heap_zoo: kinds, full_set]
 */
#include "libcollector/hooks/heap-next.h"
#include "libcollector/hooks/heap-record.h"
#include "libcollector/hooks/heap-sampled.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/auxv.h>

#define HOOK __attribute__((visibility("default")))
#define OUTLINE static __attribute__((noinline))

/* The headers of this libc do not declare these. */
HOOK void cfree(void *address);
HOOK void free_sized(void *address, size_t size);
HOOK void free_aligned_sized(void *address, size_t alignment, size_t size);

/* ---- Dispatch of a call ---- */

/* Pairs with switch_mode(): if HEAP_UNSET is clear, heap_next is valid. */
static inline __attribute__((always_inline)) uint32_t load_mode(void)
{
	return __atomic_load_n(&heap_mode, __ATOMIC_ACQUIRE);
}

/* Returns whether only some calls are recorded, so that the others can be passed on. */
static inline __attribute__((always_inline)) bool is_sampled(uint32_t mode)
{
	return (mode & (HEAP_SAMPLED | HEAP_OPEN | HEAP_FOREIGN)) == HEAP_SAMPLED;
}

/* Returns whether every call is recorded, the allocator is libc's, and nothing must be done before
 * the call. */
static inline __attribute__((always_inline)) bool is_all(uint32_t mode)
{
	return (mode & (HEAP_ALL | HEAP_SAMPLED | HEAP_FOREIGN | HEAP_OPEN)) == HEAP_ALL;
}

/* Returns true if a quick check shows that an allocation is not recorded; if calls are sampled,
 * also counts its bytes. Otherwise is_wanted() decides. */
static inline __attribute__((always_inline)) bool is_passed(size_t size)
{
	uint32_t mode = load_mode();

	/* Only is_wanted() sets a thread's generation, so modes without sampling never match it. */
	return __builtin_expect(mode == 0, 1) || heap_sampled_pass_over(mode, size);
}

/* Like is_passed(), for the release of a block. Returns false for blocks of the pool, which must
 * not reach an allocator. */
static inline __attribute__((always_inline)) bool is_end_passed(uint32_t mode, const void *address)
{
	if (__builtin_expect(mode == 0, 1))
		return !heap_pool_has(address);
	return is_sampled(mode) && heap_sampled_lacks(address) && _r_debug.r_state != RT_DELETE;
}

/* Returns false if the caller must use the pool. */
static inline bool is_ready(void)
{
	return __builtin_expect(!(heap_mode & HEAP_OPEN), 1) || heap_next_prepare();
}

/* Returns whether a foreign allocator made this call while it served a call by the program. */
static inline __attribute__((always_inline)) bool is_inner(void)
{
	return heap_is_foreign &&
	       (uint64_t)(uintptr_t)__builtin_frame_address(0) < heap_thread.guard;
}

/* Returns whether to record an allocation that is_passed() did not pass. */
static inline __attribute__((always_inline)) bool is_wanted(size_t size)
{
	uint32_t mode = heap_mode;

	if (is_inner())
		return false;
	if (mode & HEAP_SAMPLED) {
		/* If is_passed() must not skip any call, use a generation that differs from every
		 * mode. */
		uint32_t generation = is_sampled(mode) ? mode : ~mode;

		return !heap_sampled_pass_over(generation, size) &&
		       heap_sampled_throw(generation, size);
	}
	return mode & HEAP_ALL;
}

/* Returns whether to record the end of a block. */
static inline __attribute__((always_inline)) bool is_end_wanted(const void *address)
{
	uint32_t mode = heap_mode;

	if (mode & HEAP_SAMPLED)
		return !heap_sampled_lacks(address) && heap_sampled_remove(address) && !is_inner();
	return (mode & HEAP_ALL) && !is_inner();
}

static inline __attribute__((always_inline)) uint64_t enter(void)
{
	uint64_t outer;

	if (__builtin_expect(!heap_is_foreign, 1))
		return 0;
	outer = heap_thread.guard;
	heap_thread.guard = MAX_OF(outer, (uint64_t)(uintptr_t)__builtin_frame_address(0));
	return outer;
}

static inline __attribute__((always_inline)) void leave(uint64_t outer)
{
	if (__builtin_expect(heap_is_foreign, 0))
		heap_thread.guard = outer;
}

static inline __attribute__((always_inline)) void *record(const struct heap_call *call,
							  void *address)
{
	if (!(heap_mode & HEAP_SAMPLED) || !address || heap_sampled_add(address))
		return heap_record_alloc(call->kind | call->alignment_log2 << 8, call->size,
					 address, call->caller.pc, call->caller.sp,
					 call->caller.fp);
	register_count_lost();
	return address;
}

/* Records an allocation. Inlined into the hook, or into a function to which the hook jumps. The
 * recorded stack begins at the caller of that function. */
static inline __attribute__((always_inline)) void *record_here(enum ring_alloc_kind kind,
							       size_t alignment, size_t size,
							       void *address)
{
	struct heap_call call = {
		kind, alignment == 0 ? 0 : 63 - (uint32_t)__builtin_clzll(alignment), size, { 0 }
	};

	unwind_cache_get_caller(&call.caller);
	return record(&call, address);
}

static size_t page_bytes(void)
{
	return (size_t)getauxval(AT_PAGESZ);
}

/* ---- malloc() and calloc() ---- */

OUTLINE void *malloc_awake(size_t size)
{
	bool wanted;
	uint64_t outer;
	void *address;

	if (__builtin_expect(is_all(load_mode()), 1))
		return record_here(RING_ALLOC_MALLOC, 0, size, heap_next.malloc(size));
	if (!is_ready())
		return heap_pool_get(size, 1);
	wanted = is_wanted(size);
	outer = enter();
	address = heap_next.malloc(size);
	leave(outer);
	if (wanted)
		record_here(RING_ALLOC_MALLOC, 0, size, address);
	return address;
}

HOOK void *malloc(size_t size)
{
	return is_passed(size) ? heap_next.malloc(size) : malloc_awake(size);
}

OUTLINE void *calloc_awake(size_t n, size_t size)
{
	size_t bytes;
	bool wanted;
	uint64_t outer;
	void *address;

	if (__builtin_mul_overflow(n, size, &bytes))
		bytes = SIZE_MAX;
	if (!is_ready())
		return heap_pool_get(bytes, 1);
	wanted = is_wanted(bytes);
	outer = enter();
	address = heap_next.calloc(n, size);
	leave(outer);
	if (wanted)
		record_here(RING_ALLOC_CALLOC, 0, bytes, address);
	return address;
}

HOOK void *calloc(size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes))
		bytes = SIZE_MAX;
	return is_passed(bytes) ? heap_next.calloc(n, size) : calloc_awake(n, size);
}

/* ---- realloc() and reallocarray() ---- */

/* Reallocates a block whose release must be recorded; `prior` may be NULL. Writes one record,
 * whether the call succeeds or fails. */
static void *change(const struct heap_call *call, void *prior, bool wanted)
{
	bool is_sampled = heap_mode & HEAP_SAMPLED, is_freed;
	struct heap_change change;
	void *address;

	heap_record_begin(call, prior, &change);
	address = heap_next.realloc(prior, call->size);
	is_freed = !address && call->size == 0 && prior;
	/* If the new block is not in the set, because it was not chosen or the set is full, its
	 * release would not be recorded, so record the block as freed now. */
	if (is_sampled && address && !(wanted && heap_sampled_add(address))) {
		if (wanted)
			register_count_lost();
		heap_record_end(&change, NULL, true);
		return address;
	}
	if (is_sampled && !address && !is_freed && prior && !heap_sampled_add(prior))
		register_count_lost();
	heap_record_end(&change, address, is_freed);
	return address;
}

static void *realloc_awake(const struct heap_call *call, void *prior)
{
	bool is_known, wanted;
	uint64_t outer;
	void *address;

	if (heap_pool_has(prior) || !is_ready()) {
		if (!prior)
			return heap_pool_get(call->size, 1);
		address = malloc(call->size);
		if (address)
			memcpy(address, prior, MIN_OF(heap_pool_size(prior), (size_t)call->size));
		return address;
	}
	wanted = is_wanted(call->size);
	is_known = is_end_wanted(prior);
	outer = enter();
	if (is_known) {
		address = change(call, prior, wanted);
	} else {
		address = heap_next.realloc(prior, call->size);
		if (wanted && (address || call->size != 0))
			record(call, address);
	}
	leave(outer);
	return address;
}

HOOK void *realloc(void *prior, size_t size)
{
	struct heap_call call = { RING_ALLOC_REALLOC, 0, size, { 0 } };

	if (is_end_passed(load_mode(), prior) && is_passed(size))
		return heap_next.realloc(prior, size);
	unwind_cache_get_caller(&call.caller);
	return realloc_awake(&call, prior);
}

HOOK void *reallocarray(void *prior, size_t n, size_t size)
{
	struct heap_call call = { RING_ALLOC_REALLOCARRAY, 0, 0, { 0 } };
	struct heap_change failed;
	bool is_too_much = __builtin_mul_overflow(n, size, &call.size);

	if (!is_too_much && is_end_passed(load_mode(), prior) && is_passed(call.size))
		return heap_next.realloc(prior, call.size);
	unwind_cache_get_caller(&call.caller);
	if (!is_too_much)
		return realloc_awake(&call, prior);
	call.size = SIZE_MAX;
	if (is_ready() && (heap_mode & HEAP_ALL) && !is_inner()) {
		heap_record_begin(&call, prior, &failed);
		heap_record_end(&failed, NULL, false);
	}
	errno = ENOMEM;
	return NULL;
}

/* ---- Aligned allocations ---- */

OUTLINE int posix_memalign_awake(void **ret_address, size_t alignment, size_t size)
{
	void *address = NULL;
	bool wanted;
	uint64_t outer;
	int r;

	if (!is_ready()) {
		address = heap_pool_get(size, alignment);
		if (address)
			*ret_address = address;
		return address ? 0 : ENOMEM;
	}
	wanted = is_wanted(size);
	outer = enter();
	r = heap_next.posix_memalign(&address, alignment, size);
	leave(outer);
	if (r != 0)
		address = NULL;
	if (wanted)
		record_here(RING_ALLOC_POSIX_MEMALIGN, alignment, size, address);
	/* Store the address last, because another thread may wait for it and free the block
	 * immediately. */
	if (r == 0)
		*ret_address = address;
	return r;
}

HOOK int posix_memalign(void **ret_address, size_t alignment, size_t size)
{
	return is_passed(size) ? heap_next.posix_memalign(ret_address, alignment, size)
			       : posix_memalign_awake(ret_address, alignment, size);
}

/* Type of the functions that take an alignment and a size. */
typedef void *allocate_aligned(size_t alignment, size_t size);

OUTLINE void *aligned_awake(enum ring_alloc_kind kind, allocate_aligned *const *next,
			    size_t alignment, size_t size)
{
	bool wanted;
	uint64_t outer;
	void *address;

	if (!is_ready())
		return heap_pool_get(size, alignment);
	wanted = is_wanted(size);
	outer = enter();
	address = (*next)(alignment, size);
	leave(outer);
	if (wanted)
		record_here(kind, alignment, size, address);
	return address;
}

HOOK void *aligned_alloc(size_t alignment, size_t size)
{
	return is_passed(size) ? heap_next.aligned_alloc(alignment, size)
			       : aligned_awake(RING_ALLOC_ALIGNED_ALLOC, &heap_next.aligned_alloc,
					       alignment, size);
}

HOOK void *memalign(size_t alignment, size_t size)
{
	return is_passed(size)
		       ? heap_next.memalign(alignment, size)
		       : aligned_awake(RING_ALLOC_MEMALIGN, &heap_next.memalign, alignment, size);
}

OUTLINE void *pages_awake(enum ring_alloc_kind kind, void *(*const *next)(size_t), size_t size)
{
	bool wanted;
	uint64_t outer;
	void *address;

	if (!is_ready())
		return heap_pool_get(size, page_bytes());
	wanted = is_wanted(size);
	outer = enter();
	address = (*next)(size);
	leave(outer);
	if (wanted)
		record_here(kind, page_bytes(), size, address);
	return address;
}

HOOK void *valloc(size_t size)
{
	return is_passed(size) ? heap_next.valloc(size)
			       : pages_awake(RING_ALLOC_VALLOC, &heap_next.valloc, size);
}

HOOK void *pvalloc(size_t size)
{
	return is_passed(size) ? heap_next.pvalloc(size)
			       : pages_awake(RING_ALLOC_PVALLOC, &heap_next.pvalloc, size);
}

/* ---- free() ---- */

/* Returns whether the allocator may now release the block. Also detects that libc closes its own
 * modules: libc does so without dlclose(), but the loader then frees its data about the modules. */
static inline __attribute__((always_inline)) bool note_end(enum ring_free_kind kind,
							   const void *address)
{
	if (heap_pool_has(address) || !is_ready())
		return false;
	if (__builtin_expect(_r_debug.r_state == RT_DELETE, 0))
		self_unwind_invalidate();
	if (is_end_wanted(address))
		heap_record_free(kind, address, 0);
	return true;
}

OUTLINE void free_recorded(void *address, enum heap_outcome outcome, uint64_t frame)
{
	heap_record_free_rest(RING_FREE_FREE, address, 0, outcome, frame);
	heap_next.free(address);
}

OUTLINE void free_awake(enum ring_free_kind kind, void *address)
{
	uint64_t outer;

	if (!note_end(kind, address))
		return;
	outer = enter();
	heap_next.free(address);
	leave(outer);
}

HOOK void free(void *address)
{
	uint32_t mode = load_mode();
	enum heap_outcome outcome;

	if (is_end_passed(mode, address)) {
		heap_next.free(address);
	} else if (__builtin_expect(is_all(mode) && !heap_pool_has(address) &&
					    _r_debug.r_state != RT_DELETE,
				    1)) {
		outcome = heap_try_record_free(RING_FREE_FREE, address, 0);
		if (__builtin_expect(outcome == HEAP_RECORDED, 1))
			heap_next.free(address);
		else
			free_recorded(address, outcome, heap_frame());
	} else {
		free_awake(RING_FREE_FREE, address);
	}
}

HOOK void cfree(void *address)
{
	free_awake(RING_FREE_CFREE, address);
}

HOOK void free_sized(void *address, size_t size)
{
	uint64_t outer;

	if (!note_end(RING_FREE_SIZED, address))
		return;
	outer = enter();
	heap_next.free_sized(address, size);
	leave(outer);
}

HOOK void free_aligned_sized(void *address, size_t alignment, size_t size)
{
	uint64_t outer;

	if (!note_end(RING_FREE_ALIGNED_SIZED, address))
		return;
	outer = enter();
	heap_next.free_aligned_sized(address, alignment, size);
	leave(outer);
}

/* ---- Functions that are not recorded ---- */

HOOK size_t malloc_usable_size(void *address)
{
	if (heap_pool_has(address))
		return heap_pool_size(address);
	return is_ready() ? heap_next.malloc_usable_size(address) : 0;
}

/* Other code may be mapped at the same addresses after this, so cached stacks become invalid. */
HOOK int dlclose(void *handle)
{
	int r = is_ready() ? heap_next.dlclose(handle) : -1;

	self_unwind_invalidate();
	return r;
}

/*
 * Warns about calls and functions that the hooks cannot see. A new namespace has its own libc with
 * another heap, and a module opened with RTLD_DEEPBIND gets libc's names from libc itself. The
 * result of dlopen() depends on its caller, so the hook must jump to the next dlopen(), and cannot
 * look at the module.
 */
OUTLINE void note_module(long space, const char *file, int mode)
{
	if (!is_ready())
		heap_next_find_loader();
	else if (space == LM_ID_NEWLM)
		heap_next_warn("no allocation is recorded of a namespace of its own, with ", file);
	else if (file && (mode & RTLD_DEEPBIND))
		heap_next_note_deep(file);
	else if (file && !(mode & RTLD_NOLOAD))
		heap_next_note_python(file);
}

#if defined(__clang__)
#define JUMP __attribute__((musttail)) return
#else
#define JUMP return
void *dlopen(const char *file, int mode) __attribute__((optimize("O2")));
void *dlmopen(Lmid_t space, const char *file, int mode) __attribute__((optimize("O2")));
#endif

HOOK void *dlopen(const char *file, int mode)
{
	note_module(LM_ID_BASE, file, mode);
	JUMP heap_next.dlopen(file, mode);
}

HOOK void *dlmopen(Lmid_t space, const char *file, int mode)
{
	note_module(space, file, mode);
	JUMP heap_next.dlmopen(space, file, mode);
}
