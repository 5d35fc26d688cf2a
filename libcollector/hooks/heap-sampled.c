/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Heap sampled - chooses the allocations to record, and finds their blocks when they are freed
 *
 * Random choice: points lie along the bytes that a thread requests, at exponentially distributed
 * distances; an allocation that contains a point is chosen. So an allocation of s bytes is chosen
 * with the probability 1 - exp(-s / mean), independent of earlier ones.
 *
 * The set of addresses has buckets of one cache line. Each address has two possible buckets, and is
 * added to the one with more room. Only one thread frees a block, so entries need not move and
 * threads need not wait: one exchange adds or removes an entry. For most blocks that are not in the
 * set, a free reads only the filter of counts.
 *
 * Invariants: (1) an added address is found, once       [test-heap-sampled: set, threads]
 *             (2) memory is one mapping of SET_BYTES        [test-heap-sampled: full]
 *             (3) of the allocations of s bytes, a share of 1 - exp(-s / mean) is chosen
 *                 [test-heap-sampled: chance]
 *             (4) the mean in use is the one set last, whatever was set before
 *                 [test-heap-sampled: generations]
 *             (5) there are no floating point computations              [test_heap_zoo: exceptions]
 */
#include "libcollector/hooks/heap-sampled.h"

#include "base/clock.h"
#include "base/hash.h"

#include <sys/mman.h>
#include <time.h>

#define BUCKET_ENTRIES 8u
/* log2 of the number of buckets: 8 MiB; only used parts take memory */
#define SET_BITS 17
#define SET_BYTES (sizeof(struct bucket) << SET_BITS)
#define MAX_MEAN (UINT64_C(1) << 50)
#define ONE_BITS 53 /* number of random bits */
/* bits after the binary point: a distance is off by less than 2^-39 of the mean */
#define LOG_BITS 40
#define LOG_OF_2 UINT64_C(0xb17217f7d1cf79ab) /* natural logarithm of 2, times 2^64 */

struct bucket {
	uintptr_t entries[BUCKET_ENTRIES]; /* 0: empty */
};

__thread struct heap_chance heap_chance
	__attribute__((tls_model("initial-exec"), visibility("hidden")));
uint64_t heap_least;
uint8_t heap_filter[1 << HEAP_FILTER_BITS];

static uint64_t mean;
static struct bucket *set;

void heap_sampled_set_mean(uint64_t bytes)
{
	mean = bytes <= 1 ? 0 : MIN_OF(bytes, MAX_MEAN);
}

void heap_sampled_set_least(uint64_t bytes)
{
	heap_least = bytes;
}

bool heap_sampled_setup(void)
{
	void *at = set ? set
		       : mmap(NULL, SET_BYTES, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED)
		return false;
	set = at;
	return true;
}

void heap_sampled_clear(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(heap_filter); i++)
		if (heap_filter[i] != UINT8_MAX)
			heap_filter[i] = 0;
	madvise(set, SET_BYTES, MADV_DONTNEED);
}

/* ---- Chance ---- */

/* Returns log2(x / 2^63) in units of 2^-LOG_BITS; x is at least 2^63. Each iteration squares x /
 * 2^63: if the square is 2 or more, the next bit is 1, and the square is halved. Truncating x
 * lowers the logarithm by less than 2^-60. */
static uint64_t log2_of(uint64_t x)
{
	uint64_t log = 0;

	for (int i = 0; i < LOG_BITS; i++) {
		unsigned __int128 square = (unsigned __int128)x * x;
		unsigned is_more = (unsigned)(square >> 127);

		x = (uint64_t)(square >> (63 + is_more));
		log = log << 1 | is_more;
	}
	return log;
}

/* Returns -log(u) * mean, where u is a random multiple of 2^-53 in (0, 1]. Uses integers, because
 * the floating point flags and exceptions belong to the program. */
static uint64_t throw_distance(struct heap_chance *chance)
{
	uint64_t one, log;
	unsigned zeros;

	if (mean == 0)
		return 0;
	if (chance->random == 0) {
		chance->random = hash_words((uintptr_t)chance, clock_now()) | 1;
	}
	/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014) */
	one = chance->random += HASH_ODD;
	one = (one ^ one >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	one = (one ^ one >> 27) * UINT64_C(0x94d049bb133111eb);
	one = ((one ^ one >> 31) >> (64 - ONE_BITS)) + 1;
	zeros = (unsigned)__builtin_clzll(one);
	/* log2 of 1 / u: ONE_BITS minus log2 of `one` */
	log = ((uint64_t)(zeros - (63 - ONE_BITS)) << LOG_BITS) - log2_of(one << zeros);
	log = (uint64_t)((unsigned __int128)log * LOG_OF_2 >> 64);
	return (uint64_t)((unsigned __int128)log * mean >> LOG_BITS);
}

bool heap_sampled_throw(uint32_t generation, uint64_t size)
{
	struct heap_chance *chance = &heap_chance;

	if (chance->generation != generation) {
		chance->left = throw_distance(chance);
		chance->generation = generation;
		if (heap_sampled_pass_over(generation, size))
			return false;
	}
	chance->left = throw_distance(chance);
	return true;
}

/* ---- The filter ---- */

static void count_in_filter(uint64_t hash, int change)
{
	uint8_t *count = &heap_filter[hash >> (64 - HEAP_FILTER_BITS)];
	uint8_t before = __atomic_load_n(count, __ATOMIC_RELAXED);

	while (before != UINT8_MAX &&
	       !__atomic_compare_exchange_n(count, &before, (uint8_t)(before + change), true,
					    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

void heap_sampled_except(const void *address)
{
	uint64_t hash = heap_sampled_hash(address);

	__atomic_store_n(&heap_filter[hash >> (64 - HEAP_FILTER_BITS)], UINT8_MAX,
			 __ATOMIC_RELAXED);
}

/* ---- The set ---- */

static struct bucket *bucket_of(uint64_t hash, int which)
{
	uint64_t bits = which == 0 ? hash : hash * UINT64_C(0xbf58476d1ce4e5b9);

	return &set[bits >> 20 & ((UINT64_C(1) << SET_BITS) - 1)];
}

static unsigned count_room(const struct bucket *bucket)
{
	unsigned n = 0;

	for (size_t i = 0; i < BUCKET_ENTRIES; i++)
		n += __atomic_load_n(&bucket->entries[i], __ATOMIC_RELAXED) == 0;
	return n;
}

static bool exchange(struct bucket *bucket, uintptr_t from, uintptr_t to)
{
	for (size_t i = 0; i < BUCKET_ENTRIES; i++) {
		uintptr_t before = from;

		if (__atomic_load_n(&bucket->entries[i], __ATOMIC_RELAXED) == from &&
		    __atomic_compare_exchange_n(&bucket->entries[i], &before, to, false,
						__ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return true;
	}
	return false;
}

bool heap_sampled_add(const void *address)
{
	uint64_t hash = heap_sampled_hash(address);
	struct bucket *first = bucket_of(hash, 0), *second = bucket_of(hash, 1);

	if (count_room(second) > count_room(first)) {
		struct bucket *swapped = first;

		first = second;
		second = swapped;
	}
	/* Count first, because a free checks the filter before the set. */
	count_in_filter(hash, 1);
	if (exchange(first, 0, (uintptr_t)address) || exchange(second, 0, (uintptr_t)address))
		return true;
	count_in_filter(hash, -1);
	return false;
}

bool heap_sampled_remove(const void *address)
{
	uint64_t hash = heap_sampled_hash(address);

	if (!address || (!exchange(bucket_of(hash, 0), (uintptr_t)address, 0) &&
			 !exchange(bucket_of(hash, 1), (uintptr_t)address, 0)))
		return false;
	count_in_filter(hash, -1);
	return true;
}
