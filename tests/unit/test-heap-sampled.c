/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "libcollector/hooks/heap-sampled.h"

#include "tests/unit/test.h"

#include <math.h>
#include <pthread.h>

#define N 100000
#define MANY 1500000 /* more than fit into the table */

/* Returns a block's address. Each block has 48 bytes. */
static const void *block(size_t i)
{
	return (const void *)(uintptr_t)(UINT64_C(0x7f1234560010) + 48 * i);
}

static uint32_t generation = 1;

static bool choose(uint64_t size)
{
	return !heap_sampled_pass_over(generation, size) && heap_sampled_throw(generation, size);
}

static bool remove_block(const void *address)
{
	return !heap_sampled_lacks(address) && heap_sampled_remove(address);
}

static void test_set(void)
{
	CHECK(!remove_block(block(0)));
	CHECK(!remove_block(NULL));
	for (size_t i = 0; i < N; i += 2)
		CHECK(heap_sampled_add(block(i)));
	for (size_t i = 0; i < N; i++)
		CHECK(remove_block(block(i)) == (i % 2 == 0));
	for (size_t i = 0; i < N; i++)
		CHECK(!remove_block(block(i)));
	for (size_t i = 0; i < 1 << HEAP_FILTER_BITS; i++)
		CHECK_INT(heap_filter[i], 0);
}

static void *add_and_remove(void *data)
{
	size_t first = (size_t)(uintptr_t)data * N, n = 0;

	for (int round = 0; round < 20; round++) {
		for (size_t i = 0; i < 2000; i++)
			n += heap_sampled_add(block(first + i));
		for (size_t i = 0; i < 2000; i++)
			n += remove_block(block(first + i));
	}
	CHECK_INT(n, 80000);
	return NULL;
}

static void test_threads(void)
{
	pthread_t ids[4];

	for (uintptr_t i = 0; i < 4; i++)
		REQUIRE(pthread_create(&ids[i], NULL, add_and_remove, (void *)i) == 0);
	for (int i = 0; i < 4; i++)
		pthread_join(ids[i], NULL);
	for (size_t i = 0; i < 1 << HEAP_FILTER_BITS; i++)
		CHECK_INT(heap_filter[i], 0);
}

/* No refused block is found, and every accepted block is found. */
static void test_full(void)
{
	static bool is_there[MANY];
	size_t n = 0, found = 0;

	for (size_t i = 0; i < MANY; i++)
		n += is_there[i] = heap_sampled_add(block(i));
	CHECK(n > 900000 && n <= 1 << 20);
	for (size_t i = 0; i < MANY; i++) {
		bool is_found = remove_block(block(i));

		CHECK(is_found == is_there[i]);
		found += is_found;
	}
	CHECK_INT(found, n);
	CHECK(heap_sampled_add(block(0)));
	heap_sampled_clear();
	CHECK(!remove_block(block(0)));
}

/* heap_sampled_lacks() is false for an excepted address, also in the next session. It is false even
 * if no block was added at the address; heap_sampled_remove() then finds none. */
static void test_excepted(void)
{
	heap_sampled_clear();
	CHECK(heap_sampled_lacks(block(7)));
	heap_sampled_except(block(7));
	for (int i = 0; i < 2; i++) {
		CHECK(!heap_sampled_lacks(block(7)) && !heap_sampled_remove(block(7)));
		CHECK(heap_sampled_add(block(7)) && remove_block(block(7)));
		heap_sampled_clear();
	}
}

static void check_share(uint64_t size, double mean)
{
	const int n = 400000;
	double share = 1 - exp(-(double)size / mean), sigma = sqrt(n * share * (1 - share)) + 1;
	int chosen = 0;

	for (int i = 0; i < n; i++)
		chosen += choose(size);
	CHECK(fabs(chosen - n * share) < 6 * sigma);
}

static void test_chance(void)
{
	static const uint64_t sizes[] = { 1, 16, 1000, 4096, 5000, 100000, 1 << 20 };
	int chosen = 0;

	heap_sampled_set_mean(4096);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		check_share(sizes[i], 4096);
	for (int i = 0; i < 1000; i++)
		chosen += choose(0) + !choose(UINT64_MAX);
	CHECK_INT(chosen, 0);
}

static void test_least(void)
{
	generation++;
	heap_sampled_set_mean(0);
	heap_sampled_set_least(100);
	for (int i = 0; i < 1000; i++)
		CHECK(!choose(99) && choose(100) && choose(UINT64_MAX));
	generation++;
	heap_sampled_set_mean(4096);
	for (int i = 0; i < 100000; i++)
		CHECK(!choose(99));
	check_share(1000, 4096);
}

/* A distance that was drawn for another mean is not used. */
static void test_generations(void)
{
	heap_sampled_set_least(0);
	for (int i = 0; i < 10; i++) {
		generation++;
		heap_sampled_set_mean(UINT64_MAX);
		CHECK(!choose(1) && !choose(1000));
		generation++;
		heap_sampled_set_mean(1000);
		check_share(1000, 1000);
		generation++;
		heap_sampled_set_mean(UINT64_MAX);
		CHECK(!choose(1));
		generation++;
		heap_sampled_set_mean(0);
		CHECK(choose(1) && choose(1));
	}
}

int main(void)
{
	if (!heap_sampled_setup())
		return 1;
	RUN(test_set);
	RUN(test_threads);
	RUN(test_chance);
	RUN(test_least);
	RUN(test_generations);
	RUN(test_full);
	RUN(test_excepted);
	return test_end();
}
