/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Ring map - maps a process's arena, and claims rings for its threads
 *
 * The engine made and sealed the arena, and can change it at any time. The header is copied when
 * the arena is mapped, a ring's directory entry when the ring is claimed. Only the copies are
 * checked and used, so that no change can lead outside the arena. The claim itself is one atomic
 * compare-and-exchange.
 * Invariants: (1) memory that could raise SIGBUS is not mapped      [test-ring: map]
 *             (2) a ring has one owner                              [test-ring: recycle, claims]
 *             (3) a forked child has no ring                        [test-ring-interrupted: fork]
 *             (4) a core file has no arena                          [test-ring: kept out]
 */
#include "libcollector/ring/ring-inline.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

/* ---- The arena ---- */

static bool is_good_header(const struct ring_arena_header *header, uint64_t bytes)
{
	return header->magic == RING_MAGIC && header->version == RING_VERSION &&
	       header->incompat == 0 && header->clock == RING_CLOCK_MONOTONIC &&
	       header->arena_bytes == bytes && header->n_rings <= RING_MAX_RINGS &&
	       header->directory_offset % 8 == 0 && header->directory_offset <= bytes &&
	       header->n_rings <= (bytes - header->directory_offset) / sizeof(struct ring_place);
}

static bool is_good_place(const struct ring_place *place, uint64_t bytes)
{
	return place->header_offset % RING_LINE == 0 && place->header_offset <= bytes &&
	       bytes - place->header_offset >= sizeof(struct ring_header) &&
	       place->data_bytes >= RING_MIN_BYTES && place->data_bytes <= RING_MAX_BYTES &&
	       (place->data_bytes & (place->data_bytes - 1)) == 0 && place->data_offset % 8 == 0 &&
	       place->data_offset <= bytes && bytes - place->data_offset >= place->data_bytes;
}

static struct ring_place read_place(const struct ring_place *places, uint32_t i)
{
	return *(const volatile struct ring_place *)&places[i];
}

static void *map_memory(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

static int map_own(struct ring_arena_header *shared, const struct ring_arena_header *header,
		   struct ring_arena **ret_arena)
{
	size_t own = sizeof(struct ring_arena) + header->n_rings * sizeof(struct ring);
	struct ring_arena *arena = map_memory(own);
	uint32_t *alive = map_memory(RING_PAGE);
	int r = arena && alive ? 0 : -ENOMEM;

	if (r == 0 && madvise(alive, RING_PAGE, MADV_WIPEONFORK) < 0)
		r = -errno;
	if (r < 0) {
		if (arena)
			munmap(arena, own);
		if (alive)
			munmap(alive, RING_PAGE);
		return r;
	}
	*alive = 1;
	arena->shared = shared;
	arena->alive = alive;
	arena->bytes = header->arena_bytes;
	arena->own_bytes = own;
	arena->places = (const void *)((const uint8_t *)shared + header->directory_offset);
	arena->n_rings = header->n_rings;
	if (CPU_HAS_TICK && (header->compat & RING_COMPAT_TICKS))
		arena->time_flags = RING_FLAG_TICKS;
	arena->budget = &arena->own_budget;
	*ret_arena = arena;
	return 0;
}

static int map_shared(struct ring_arena_header *shared, size_t bytes, struct ring_arena **ret_arena)
{
	const struct ring_arena_header header = *(const volatile struct ring_arena_header *)shared;
	const struct ring_place *places;

	if (!is_good_header(&header, bytes))
		return -EPROTO;
	places = (const void *)((const uint8_t *)shared + header.directory_offset);
	for (uint32_t i = 0; i < header.n_rings; i++) {
		struct ring_place place = read_place(places, i);

		if (!is_good_place(&place, bytes))
			return -EPROTO;
	}
	if (madvise(shared, bytes, MADV_DONTFORK) < 0)
		return -errno;
	/* Keep the arena out of the program's core files. */
	madvise(shared, bytes, MADV_DONTDUMP);
	return map_own(shared, &header, ret_arena);
}

int ring_arena_map(int fd, struct ring_arena **ret_arena)
{
	long bytes = syscall(SYS_lseek, fd, 0L, SEEK_END);
	long seals = syscall(SYS_fcntl, fd, F_GET_SEALS, 0L);
	struct ring_arena_header *shared;
	int r;

	/* A file that is not sealed could shrink and raise SIGBUS in the target. */
	if (bytes < 0 || seals < 0)
		return -errno;
	if ((seals & SEALS) != SEALS || bytes < (long)sizeof(*shared))
		return -EPROTO;
	shared = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (shared == MAP_FAILED)
		return -errno;
	r = map_shared(shared, (size_t)bytes, ret_arena);
	if (r < 0)
		munmap(shared, (size_t)bytes);
	return r;
}

void ring_arena_unmap(struct ring_arena *arena)
{
	if (!arena)
		return;
	if (*arena->alive)
		munmap(arena->shared, arena->bytes);
	munmap((void *)arena->alive, RING_PAGE);
	munmap(arena, arena->own_bytes);
}

void ring_arena_range(const struct ring_arena *arena, void **ret_start, size_t *ret_bytes)
{
	*ret_start = arena->shared;
	*ret_bytes = arena->bytes;
}

void ring_arena_set_budget(struct ring_arena *arena, struct ring_budget *budget)
{
	arena->budget = budget;
}

int ring_arena_shield(void *start, size_t bytes)
{
	void *at = mmap(start, bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);

	return at == MAP_FAILED ? -errno : 0;
}

void ring_arena_join(struct ring_arena *arena)
{
	__atomic_store_n(&arena->shared->joined, 1, __ATOMIC_RELEASE);
}

void ring_arena_count_lost(struct ring_arena *arena)
{
	if (*arena->alive)
		__atomic_fetch_add(&arena->shared->lost_no_ring, 1, __ATOMIC_RELAXED);
}

/* ---- Claim and release ---- */

static void ring_init(struct ring *ring, struct ring_arena *arena, const struct ring_place *place,
		      struct ring_header *header, uint32_t tid, uint32_t flags)
{
	uint64_t head = RING_LOAD(&header->head), state = RING_LOAD(&header->state);

	*ring = (struct ring){
		.alive = arena->alive,
		.shared = header,
		.data = (uint8_t *)arena->shared + place->data_offset,
		.size = place->data_bytes,
		.most_bytes = MIN_OF(place->data_bytes / 4, (uint64_t)RING_MAX_RECORD) -
			      sizeof(struct ring_record_header),
		.head = head,
		.end = head,
		.tail = __atomic_load_n(&header->tail, __ATOMIC_ACQUIRE),
		.next_check = head,
		.time_flags = arena->time_flags,
		.lap_head = head,
		.arena = arena,
		.flags = flags,
	};
	RING_STORE(&header->busy, 0);
	/* pairs with ring_arena_sweep() and ring_release_of() */
	__atomic_store_n(&ring->owner, state >> 32 << 32 | tid, __ATOMIC_RELEASE);
}

struct ring *ring_claim(struct ring_arena *arena, uint32_t tid, uint64_t min_bytes, uint32_t flags)
{
	if (!*arena->alive)
		return NULL;
	for (uint32_t i = 0; i < arena->n_rings; i++) {
		struct ring_place place = read_place(arena->places, i);
		struct ring_header *header;
		uint64_t state;

		if (place.data_bytes < min_bytes || !is_good_place(&place, arena->bytes))
			continue;
		header = (void *)((uint8_t *)arena->shared + place.header_offset);
		/* pairs with ring_reader_recycle() */
		state = __atomic_load_n(&header->state, __ATOMIC_ACQUIRE);
		if ((uint32_t)state != RING_FREE ||
		    !__atomic_compare_exchange_n(&header->state, &state,
						 ((state >> 32) + 1) << 32 | RING_OWNED, false,
						 __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			continue;
		RING_STORE(&header->tid, tid);
		ring_init(&arena->rings[i], arena, &place, header, tid, flags);
		return &arena->rings[i];
	}
	return NULL;
}

bool ring_arena_is_lossless(const struct ring_arena *arena)
{
	const struct ring_header *header;
	struct ring_place place;

	if (!*arena->alive || arena->n_rings == 0)
		return false;
	place = read_place(arena->places, 0);
	if (!is_good_place(&place, arena->bytes))
		return false;
	header = (const void *)((const uint8_t *)arena->shared + place.header_offset);
	return RING_LOAD(&header->policy) == RING_LOSSLESS;
}

uint32_t ring_arena_count_free(const struct ring_arena *arena)
{
	uint32_t n = 0;

	for (uint32_t i = 0; *arena->alive && i < arena->n_rings; i++) {
		/* A ring that was never claimed has no header pointer yet. */
		const struct ring_header *shared = RING_LOAD(&arena->rings[i].shared);

		n += !shared || (uint32_t)RING_LOAD(&shared->state) == RING_FREE;
	}
	return n;
}

void ring_arena_sweep(struct ring_arena *arena, uint32_t tgid, uint32_t own_tid)
{
	if (!*arena->alive)
		return;
	/* A replaced ring precedes the larger ring that replaced it; both are released together. */
	for (uint32_t i = 0; i < arena->n_rings; i++) {
		struct ring *ring = &arena->rings[i];
		/* pairs with ring_init() */
		uint64_t owner = __atomic_load_n(&ring->owner, __ATOMIC_ACQUIRE);
		uint32_t tid = (uint32_t)owner;

		/* If the exited thread released the ring meanwhile, another thread may own it now.
		 * ring_release_of() leaves it alone then. */
		if (owner != 0 &&
		    (tid == own_tid ||
		     (syscall(SYS_tgkill, (long)tgid, (long)tid, 0L) < 0 && errno == ESRCH)))
			ring_release_of(ring, owner);
	}
}

void ring_arena_retire(struct ring_arena *arena)
{
	*arena->alive = 0;
}
