/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Self-unwind - walks the calling thread's own stack
 *
 * A walk needs two things: the part of the stack that may be loaded directly, and a cache of unwind
 * rules.
 *
 * The stack. The highest address of a thread's stack is found without a lock: it is the thread
 * pointer, because libc puts the thread's structure on top of the stack; for the first thread, it
 * is the address of the random bytes (AT_RANDOM) that the kernel put on top. sp is on the same
 * stack if every page in between is readable. If a later sp is lower, the additional pages are
 * checked, once.
 * Otherwise sp is on a signal stack, if sigaltstack() says so, or on a fiber. There, and wherever a
 * frame leads out of the known range, safe-read.c makes each read; on a fiber the walk ends after
 * SELF_UNWIND_MAX_FOREIGN frames.
 *
 * A cache. One mapping holds a fixed number of caches. A walk claims a free one by one exchange,
 * preferably the one that the thread tried first in earlier walks, and releases it afterwards. A
 * handler that interrupts a walk finds that cache claimed and uses another one, so no walk ever
 * waits. If siglongjmp() left a walk, or the walk died with a vfork() child, its frame is gone, and
 * its cache is reused.
 *
 * A forked child has copies of the caches, because a handler may have forked within a walk that
 * continues in the child. The child has no claims (MADV_WIPEONFORK), so caches that other threads
 * held are free, and each cache is cleared when the child first claims it. A vfork() child runs as
 * the same thread, on the same stack, while the parent waits. Any other child that shares memory,
 * like posix_spawn()'s, is detected by its pid, and does not change its parent's struct
 * self_unwind.
 * Invariants: (1) only bytes between sp and the top of the thread's own stack are loaded directly
 *                                          [test-self-unwind: fiber, signal stack, corrupt,
 *                                          overflow]
 *             (2) a cache has one user      [test-self-unwind: storm, threads, fork in walk]
 *             (3) memory is one mapping, which the kernel lists as two  [test-self-unwind: memory]
 *             (4) errno does not change     [test-self-unwind: errno]
 * If a stack or a fiber has no guard page, readable memory below it looks like a part of it, and is
 * counted as room for a walk, even if that memory is unmapped later.
 */
#include "libcollector/unwind/self-unwind.h"

#include "libcollector/unwind/modules.h"

#include <errno.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define N_CACHES 32
#define ROOT_SHARE 8 /* one in ROOT_SHARE frames is reserved for the outermost frames */
#define MAX_FOREIGN_READS (2 * SELF_UNWIND_MAX_FOREIGN)
/* limit of the search for a stack's pages below the known range */
#define MAX_GROWTH (UINT64_C(64) << 20)
#define GUARD_BYTES SAFE_READ_PAGE /* sp may be in the guard page after an overflow */
#define WINDOW_BYTES 512
#define ROOM 4096 /* bytes of stack that must be left for a walk, which needs less */

#define MAX_PAGE 65536 /* maximum page size; the kernel wipes only whole pages */

/* The claim of a cache. */
struct claim {
	alignas(64) _Atomic(uintptr_t) holder;
	bool is_used; /* this process has used the cache since it was forked */
};

struct cache {
	/* frame of the walk that holds the cache; 0: none, or the claim is being made or
	 * released */
	uint64_t holder_sp;
	/* thread pointer of that walk; like the frame, it survives fork() */
	uint64_t holder_thread;
	uintptr_t holder;    /* copy of claim.holder */
	uint32_t generation; /* generation of `slots`; 0: never used */
	/* value of self_unwind_generation() when last claimed */
	uint32_t own_generation;
	struct walk_cache slots;
	struct modules modules;
	struct walk_frame frames[SELF_UNWIND_MAX_FRAMES];
	uint8_t window[WINDOW_BYTES];
	struct self_unwind_step step; /* current step of self_unwind_step() */
};

struct arena {
	/* Zeroed in a forked child. */
	union {
		struct {
			_Atomic(int32_t) pid; /* 0: just forked */
			_Atomic(uint32_t) n_threads;
			struct claim claims[N_CACHES];
		};
		uint8_t pages[MAX_PAGE];
	};
	struct cache caches[N_CACHES];
};

/* State of one walk. */
struct visit {
	struct safe_read memory;
	struct cache *cache;
	struct claim *claim; /* claim of `cache` */
	uintptr_t holder;
	uint64_t frame;             /* frame of self_unwind_walk() or self_unwind_step() */
	uint64_t outer;             /* frame of the walk that this one may have interrupted */
	uint64_t low, high;         /* bounds of the thread's stack */
	uint64_t alt_low, alt_high; /* bounds of the signal stack, if sp is on it */
	bool is_quiet;              /* only probes are allowed as system calls */
	bool is_tight;              /* too little stack is left for a walk */
	bool is_child;              /* this process shares its parent's memory */
	bool is_stale;              /* a module was found to have been unloaded */
	size_t n_foreign_reads;
	uint64_t start;  /* lowest address that may be loaded directly, in self_unwind_step() */
	uint64_t window; /* address of the bytes that are copied to cache->window */
	size_t n_window_bytes;
};

static _Atomic(struct arena *) shared_arena;
_Atomic(uint32_t) self_unwind_generation_now;
uint64_t self_unwind_pac_bits;
static uint64_t first_stack_top;
static int32_t first_pid;

/* ---- The process ---- */

size_t self_unwind_max_bytes(void)
{
	return sizeof(struct arena);
}

int self_unwind_setup(void)
{
	const size_t size = sizeof(struct arena);
	struct arena *arena, *none = NULL;

	if (atomic_load_explicit(&shared_arena, memory_order_acquire))
		return 0;
	first_stack_top = getauxval(AT_RANDOM);
	self_unwind_pac_bits = cpu_pac_mask();
	first_pid = (int32_t)getpid();
	arena = mmap(NULL, size, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (arena == MAP_FAILED)
		return -ENOMEM;
	madvise(arena, size, MADV_NOHUGEPAGE);
	madvise(arena, offsetof(struct arena, caches), MADV_WIPEONFORK);
	atomic_store(&arena->pid, first_pid);
	/* pairs with get_arena() */
	if (!atomic_compare_exchange_strong(&shared_arena, &none, arena))
		munmap(arena, size);
	return 0;
}

void self_unwind_invalidate(void)
{
	atomic_fetch_add(&self_unwind_generation_now, 1);
}

/* Returns whether this process shares another process's memory. */
static bool is_child(struct arena *arena)
{
	int32_t own = (int32_t)syscall(SYS_getpid), forked = 0;

	return !atomic_compare_exchange_strong(&arena->pid, &forked, own) && forked != own;
}

/* ---- The stack ---- */

/* Moves *low down to the page of sp, or as far as all pages are readable. */
static void reach(struct safe_read *memory, uint64_t sp, uint64_t *low)
{
	uint64_t page = sp & -(uint64_t)SAFE_READ_PAGE;

	if (sp >= *low || *low - sp > MAX_GROWTH)
		return;
	*low -= safe_read_count_below(memory, *low, (*low - page) / SAFE_READ_PAGE) *
		SAFE_READ_PAGE;
}

static bool is_near(uint64_t top, uint64_t frame)
{
	return frame < top && top - frame <= MAX_GROWTH;
}

/* Sets the range from `top` down to the current frame, or as far as pages are readable. */
static void find_range(struct visit *visit, uint64_t top, uint64_t frame)
{
	visit->high = top & ~UINT64_C(7);
	visit->low = top & -(uint64_t)SAFE_READ_PAGE;
	reach(&visit->memory, is_near(top, frame) ? frame : visit->low - MAX_GROWTH, &visit->low);
}

/* Finds the range of the thread's stack. The first thread has the stack that the kernel made,
 * unless another thread of the parent forked this process. The range is found even if the thread is
 * first seen on another stack. */
static void find_ranges(struct visit *visit)
{
	uint64_t frame = (uint64_t)(uintptr_t)__builtin_frame_address(0);
	int32_t pid = visit->is_quiet ? 0 : (int32_t)syscall(SYS_getpid);
	bool is_first = visit->is_quiet ? is_near(first_stack_top, frame)
					: syscall(SYS_gettid) == pid;

	find_range(visit, is_first ? first_stack_top : cpu_thread_pointer(), frame);
	if (!is_first || pid == first_pid || (frame >= visit->low && frame < visit->high))
		return;
	find_range(visit, cpu_thread_pointer(), frame);
	if (frame < visit->low || frame >= visit->high)
		find_range(visit, first_stack_top, frame);
}

static void find_signal_stack(struct visit *visit, uint64_t sp)
{
	stack_t stack;
	uint64_t start;

	if (syscall(SYS_sigaltstack, NULL, &stack) != 0 || (stack.ss_flags & SS_DISABLE))
		return;
	start = (uint64_t)(uintptr_t)stack.ss_sp;
	visit->is_tight = visit->frame - start < MIN_OF(stack.ss_size, (size_t)ROOM);
	if (sp - start >= stack.ss_size)
		return;
	visit->alt_low = start;
	visit->alt_high = start + stack.ss_size;
}

/* Returns whether enough stack is left. The first thread's stack grows. Other stacks are complete,
 * down to a page that is not readable. */
static bool has_room(const struct visit *visit)
{
	uint64_t top = first_stack_top & ~UINT64_C(7);

	return visit->frame < visit->high &&
	       (visit->high == top || visit->frame >= visit->low + ROOM);
}

/* Finds the stack that sp is on. Returns early while sp stays in the range found before. */
static void find_stack(struct arena *arena, struct self_unwind *own, uint64_t sp,
		       struct visit *visit)
{
	visit->low = own->low;
	visit->high = own->high;
	if (sp >= visit->low && sp < visit->high && has_room(visit))
		return;
	if (!visit->is_quiet) {
		visit->is_child = is_child(arena);
		find_signal_stack(visit, sp);
	}
	if (visit->high == 0)
		find_ranges(visit);
	if (sp < visit->high && visit->alt_high == 0)
		reach(&visit->memory, sp, &visit->low);
	/* Check the room below the current frame, if that is on the thread's own stack. */
	if (visit->frame + ROOM >= visit->low && visit->frame < visit->high && !has_room(visit)) {
		reach(&visit->memory, visit->frame - ROOM, &visit->low);
		visit->is_tight = !has_room(visit);
	}
	if (visit->is_child)
		return;
	own->low = visit->low;
	own->high = visit->high;
}

static bool is_own(const struct visit *visit, uint64_t address)
{
	return address < visit->high && address + GUARD_BYTES >= visit->low;
}

static bool is_foreign(const struct visit *visit, uint64_t address)
{
	return !is_own(visit, address) && !(address >= visit->alt_low && address < visit->alt_high);
}

/* ---- A cache ---- */

static void clear(struct cache *cache)
{
	cache->generation += cache->generation == UINT32_MAX ? 2 : 1;
	modules_clear(&cache->modules);
}

/* Returns whether this walk interrupted another walk of the thread, which will continue. */
static bool has_outer(const struct visit *visit)
{
	uint64_t outer = visit->outer;

	return outer != 0 &&
	       (!is_own(visit, visit->frame) || (is_own(visit, outer) && outer > visit->frame));
}

/* An earlier walk of this thread holds the cache. Returns whether that walk was abandoned, because
 * its frame has ended: frames deeper than the current one have ended, and so have those on other
 * stacks if the thread runs on its own stack again. */
static bool is_abandoned(const struct cache *cache, const struct visit *visit)
{
	uint64_t sp = cache->holder_sp;

	if (!has_outer(visit))
		return true;
	return sp != 0 && is_own(visit, visit->frame) && (!is_own(visit, sp) || sp < visit->frame);
}

static bool claim_abandoned(struct claim *claim, struct cache *cache, uintptr_t before,
			    const struct visit *visit)
{
	/* The holder was a child that shared this memory and has exited, or a walk that will never
	 * continue. */
	bool is_gone = (!visit->is_quiet && (before & 1) &&
			syscall(SYS_kill, (pid_t)(before >> 1), 0) < 0 && errno == ESRCH) ||
		       (before == visit->holder && !visit->is_child && is_abandoned(cache, visit));

	if (!is_gone || !atomic_compare_exchange_strong(&claim->holder, &before, visit->holder))
		return false;
	clear(cache);
	return true;
}

static bool claim_cache(struct claim *claim, struct cache *cache, const struct visit *visit)
{
	uintptr_t before = 0;
	bool is_free = atomic_compare_exchange_strong_explicit(
		&claim->holder, &before, visit->holder, memory_order_acquire, memory_order_relaxed);

	/* This process was forked within a walk that used the cache. Only a walk of this thread
	 * continues here; ignore walks of other threads. */
	if (is_free && !claim->is_used && cache->holder_sp != 0 &&
	    cache->holder_thread == cpu_thread_pointer()) {
		before = cache->holder;
		atomic_store_explicit(&claim->holder, before, memory_order_relaxed);
		is_free = false;
	}
	if (!is_free && !claim_abandoned(claim, cache, before, visit))
		return false;
	if (!claim->is_used)
		clear(cache);
	claim->is_used = true;
	cache->holder_thread = cpu_thread_pointer();
	cache->holder = visit->holder;
	atomic_signal_fence(memory_order_seq_cst);
	cache->holder_sp = visit->frame;
	return true;
}

static bool claim_any(struct arena *arena, struct self_unwind *own, struct visit *visit)
{
	uint32_t first = own->cache, generation;

	if (first == 0) {
		first = atomic_fetch_add_explicit(&arena->n_threads, 1, memory_order_relaxed) %
				N_CACHES +
			1;
		own->cache = first;
	}
	for (uint32_t i = 0; i < N_CACHES; i++) {
		uint32_t at = (first - 1 + i) % N_CACHES;
		struct cache *cache = &arena->caches[at];

		if (!claim_cache(&arena->claims[at], cache, visit))
			continue;
		generation = self_unwind_generation();
		if (cache->generation == 0 || cache->own_generation != generation)
			clear(cache);
		cache->own_generation = generation;
		visit->cache = cache;
		visit->claim = &arena->claims[at];
		return true;
	}
	visit->cache = NULL;
	return false;
}

/* ---- The walk ---- */

/* Reads through a window, because a frame's words are close to each other. */
static bool read_word(void *data, uint64_t address, uint64_t *ret_word)
{
	struct visit *visit = data;
	uint64_t at = address - visit->window, rest = SAFE_READ_PAGE - address % SAFE_READ_PAGE;
	size_t size = MIN_OF(MAX_OF(rest, sizeof(*ret_word)), (size_t)WINDOW_BYTES);

	if (is_foreign(visit, address) && visit->n_foreign_reads++ >= MAX_FOREIGN_READS)
		return false;
	if (at >= visit->n_window_bytes || visit->n_window_bytes - at < sizeof(*ret_word)) {
		visit->n_window_bytes = 0;
		if (!safe_read(&visit->memory, address, visit->cache->window, size))
			return false;
		visit->window = address;
		visit->n_window_bytes = size;
		at = 0;
	}
	memcpy(ret_word, visit->cache->window + at, sizeof(*ret_word));
	return true;
}

static bool read_code(void *data, uint64_t address, void *buffer, size_t size)
{
	struct visit *visit = data;

	return safe_read(&visit->memory, address, buffer, size);
}

static void resolve(void *data, uint64_t pc, struct walk_code *ret_code)
{
	struct visit *visit = data;

	if (modules_resolve(&visit->cache->modules, &visit->memory, pc, ret_code))
		return;
	ret_code->kind = WALK_CODE_PENDING;
	visit->is_stale = true;
}

static void run(struct visit *visit, const struct walk_registers *registers, size_t n_pcs,
		struct walk_result *ret_result)
{
	uint64_t start = MAX_OF(registers->sp, visit->low);
	bool is_foreign_stack = is_foreign(visit, registers->sp);
	size_t n =
		MIN_OF(n_pcs, is_foreign_stack ? SELF_UNWIND_MAX_FOREIGN : SELF_UNWIND_MAX_FRAMES);
	const struct walk walk = {
		.arch = REGS_NATIVE,
		.pac_mask = self_unwind_pac_bits,
		.stack = (const uint8_t *)(uintptr_t)start,
		.stack_start = start,
		.stack_size = is_own(visit, registers->sp) ? visit->high - start : 0,
		.read_word = read_word,
		.read_code = read_code,
		.resolve = resolve,
		.data = visit,
		.cache = &visit->cache->slots,
		.generation = visit->cache->generation,
		.frames = visit->cache->frames,
		.n_frames = n,
		.n_roots = is_foreign_stack ? 0 : n / ROOT_SHARE,
	};

	visit->n_foreign_reads = 0;
	visit->n_window_bytes = 0;
	visit->is_stale = false;
	walk_run(&walk, registers, ret_result);
}

/* Runs a walk. If a module on the chain has changed, clears the cache and runs the walk once
 * more. */
static void run_checked(struct visit *visit, const struct walk_registers *registers, size_t n_pcs,
			struct walk_result *ret_result)
{
	struct cache *cache = visit->cache;

	run(visit, registers, n_pcs, ret_result);
	if (!visit->is_stale &&
	    modules_check(&cache->modules, &visit->memory, cache->frames, ret_result->n,
			  ret_result->stop == WALK_ROOT && ret_result->flags == WALK_FRAME_EXACT))
		return;
	clear(cache);
	run(visit, registers, n_pcs, ret_result);
}

static void copy_chain(const struct visit *visit, const struct walk_result *result, uint64_t *pcs,
		       struct self_unwind_chain *chain)
{
	size_t n_foreign = 0;

	*chain = (struct self_unwind_chain){
		.stop = result->stop,
		.n_cut = result->n_cut,
		.cut_at = result->cut_at,
		.flags = (result->flags & WALK_FRAME_FP ? SELF_UNWIND_FP : 0) |
			 (result->flags & WALK_FRAME_JIT ? SELF_UNWIND_JIT : 0),
	};
	for (; chain->n < result->n; chain->n++) {
		const struct walk_frame *frame = &visit->cache->frames[chain->n];

		if (is_foreign(visit, frame->sp)) {
			if (n_foreign++ == SELF_UNWIND_MAX_FOREIGN) {
				chain->stop = WALK_DEPTH;
				break;
			}
			chain->flags |= SELF_UNWIND_FOREIGN;
		}
		pcs[chain->n] = frame->pc;
	}
	if (chain->cut_at >= chain->n) {
		chain->cut_at = chain->n;
		chain->n_cut = 0;
	}
}

/* Returns false if no cache is free. */
static bool enter(struct arena *arena, struct self_unwind *own, struct visit *visit)
{
	visit->holder = (uintptr_t)own;
	if (visit->is_child)
		visit->holder = (uintptr_t)getpid() << 1 | 1; /* odd, unlike an address */
	visit->outer = own->walking;
	if (!visit->is_child)
		own->walking = visit->frame;
	atomic_signal_fence(memory_order_seq_cst);
	return claim_any(arena, own, visit);
}

static void leave(struct self_unwind *own, struct visit *visit)
{
	uintptr_t holder = visit->holder;
	if (visit->cache) {
		visit->cache->holder_sp = 0;
		/* pairs with claim_cache() */
		atomic_compare_exchange_strong_explicit(&visit->claim->holder, &holder, 0,
							memory_order_release, memory_order_relaxed);
	}
	atomic_signal_fence(memory_order_seq_cst);
	if (!visit->is_child)
		own->walking = has_outer(visit) ? visit->outer : 0;
}

static bool walk_with_any(struct arena *arena, struct self_unwind *own,
			  const struct walk_registers *registers, struct visit *visit,
			  uint64_t *pcs, size_t n_pcs, struct self_unwind_chain *ret_chain)
{
	struct walk_result result;

	if (enter(arena, own, visit)) {
		run_checked(visit, registers, n_pcs, &result);
		copy_chain(visit, &result, pcs, ret_chain);
	}
	leave(own, visit);
	return visit->cache != NULL;
}

/* Returns NULL if no walk is possible at all. */
static struct arena *get_arena(const struct self_unwind *own)
{
	if (own->quiet == SELF_UNWIND_SILENT)
		return NULL;
	/* pairs with self_unwind_setup() */
	return atomic_load_explicit(&shared_arena, memory_order_acquire);
}

static void begin(struct visit *visit, const struct self_unwind *own, uint64_t frame)
{
	visit->is_quiet = own->quiet != SELF_UNWIND_ANY;
	visit->memory = (struct safe_read){ .way = visit->is_quiet ? SAFE_READ_BY_PROBE
								   : SAFE_READ_UNKNOWN };
	visit->frame = frame;
	visit->alt_low = visit->alt_high = 0;
	visit->is_child = visit->is_tight = false;
}

void self_unwind_walk(struct self_unwind *own, const struct walk_registers *registers,
		      uint64_t *pcs, size_t n_pcs, struct self_unwind_chain *ret_chain)
{
	struct arena *arena = get_arena(own);
	struct visit visit;
	int error = errno;

	begin(&visit, own, (uint64_t)(uintptr_t)__builtin_frame_address(0));
	if (arena)
		find_stack(arena, own, registers->sp, &visit);
	if (!arena || visit.is_tight ||
	    !walk_with_any(arena, own, registers, &visit, pcs, n_pcs, ret_chain)) {
		*ret_chain = (struct self_unwind_chain){
			.stop = WALK_NO_TABLE, .n = 1, .cut_at = 1, .flags = SELF_UNWIND_BUSY
		};
		pcs[0] = registers->pc;
	}
	errno = error;
}

/* ---- Step by step ---- */

/* Loads one word of any frame. ASan must not check this. */
__attribute__((no_sanitize("address"))) static uint64_t load_word(uint64_t address)
{
	return *(const volatile uint64_t *)(uintptr_t)address;
}

/* Loads a word of the thread's own stack directly, and stores it in the step. If the word
 * is elsewhere or does not fit into the step, clears step->is_own. */
static bool read_and_note(void *data, uint64_t address, uint64_t *ret_word)
{
	struct visit *visit = data;
	struct self_unwind_step *step = &visit->cache->step;
	bool is_near = address % 8 == 0 && address >= visit->start && address < visit->high;

	if (!is_near || step->n_words == SELF_UNWIND_MAX_WORDS) {
		step->is_own = false;
		if (!is_near)
			return read_word(data, address, ret_word);
	}
	*ret_word = load_word(address);
	if (step->n_words < SELF_UNWIND_MAX_WORDS)
		step->words[step->n_words++] = (struct self_unwind_word){ address, *ret_word };
	return true;
}

/* Reads code. If an invalid return address points into the stack, also notes the words there,
 * because they may change. */
static bool read_code_and_note(void *data, uint64_t address, void *buffer, size_t size)
{
	struct visit *visit = data;
	struct self_unwind_step *step = &visit->cache->step;
	uint64_t end = address + size, word;

	if (address < visit->high && end + GUARD_BYTES > visit->low) {
		step->is_own &= address >= visit->start && end <= visit->high;
		for (uint64_t at = address & ~UINT64_C(7); step->is_own && at < end; at += 8)
			read_and_note(data, at, &word);
	}
	return read_code(data, address, buffer, size);
}

static enum walk_stop step_on(struct visit *visit, uint64_t start, const struct walk_place *from,
			      struct walk_cache *rules, uint32_t generation,
			      self_unwind_receive *keep, void *data)
{
	const struct walk walk = {
		.arch = REGS_NATIVE,
		.pac_mask = self_unwind_pac_bits,
		.read_word = read_and_note,
		.read_code = read_code_and_note,
		.resolve = resolve,
		.data = visit,
		.cache = rules,
		.generation = generation,
	};
	struct self_unwind_step *step = &visit->cache->step;
	uint32_t n_foreign = 0;

	visit->start = is_own(visit, start) ? MAX_OF(start, visit->low) : visit->high;
	*step = (struct self_unwind_step){ .next = *from, .stop = WALK_N_STOPS };
	visit->n_foreign_reads = 0;
	visit->n_window_bytes = 0;
	while (step->stop == WALK_N_STOPS) {
		/* Stop after SELF_UNWIND_MAX_FOREIGN frames on fibers. If the walk starts on a
		 * fiber, all its frames count. */
		n_foreign += is_foreign(visit, step->next.at.sp);
		if (n_foreign > SELF_UNWIND_MAX_FOREIGN ||
		    (step->next.n >= SELF_UNWIND_MAX_FOREIGN && is_foreign(visit, start)))
			return WALK_DEPTH;
		step->at = step->next;
		step->n_words = 0;
		step->is_own = true;
		if (!walk_step(&walk, &step->next, &step->slot, &step->stop))
			return step->stop;
		if (!keep(data, step))
			return WALK_N_STOPS;
	}
	return step->stop;
}

enum walk_stop self_unwind_step(struct self_unwind *own, uint64_t start,
				const struct walk_place *from, struct walk_cache *rules,
				uint32_t generation, self_unwind_receive *keep, void *data)
{
	struct arena *arena = get_arena(own);
	enum walk_stop stop = WALK_NO_TABLE;
	struct visit visit;
	int error = errno;

	if (!arena)
		return WALK_NO_TABLE;
	begin(&visit, own, (uint64_t)(uintptr_t)__builtin_frame_address(0));
	visit.is_stale = false;
	find_stack(arena, own, start, &visit);
	if (visit.is_tight) {
		errno = error;
		return WALK_NO_TABLE;
	}
	if (enter(arena, own, &visit)) {
		stop = step_on(&visit, start, from, rules, generation, keep, data);
		if (visit.is_stale) /* a module was unloaded without self_unwind_invalidate() */
			self_unwind_invalidate();
	}
	leave(own, &visit);
	errno = error;
	return stop;
}
