/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of memory-blocks against a plain array.
 */
#include "tests/unit/test.h"
#include "tools/profcapture/memory-blocks.h"

#define NUMBERS 300000u

struct seen {
	uint64_t count, sizes;
};

static void see(const struct memory_block *block, const struct memory_block_more *more, void *data)
{
	struct seen *seen = data;

	seen->count++;
	seen->sizes += block->size;
	CHECK(more->since == block->size + 1);
}

static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525 + 1013904223;
	return *state >> 8;
}

/* Numbers ascend. Some blocks live long, most are freed soon; some old numbers are used again. */
static void test_random(void)
{
	uint32_t *size_of = calloc(NUMBERS, sizeof(*size_of));
	struct memory_blocks blocks;
	uint64_t live = 0, sizes = 0;
	uint32_t state = 7;
	struct seen seen = { 0 };

	memory_blocks_init(&blocks, true);
	for (uint32_t number = 1; number < NUMBERS; number++) {
		uint32_t size = next_random(&state) % 1000 + 1;
		struct memory_block block = { .number = number, .size = size }, old;
		struct memory_block_more more = { .since = size + 1 };

		if (next_random(&state) % 50 == 0)
			block.number = next_random(&state) % number + 1;
		CHECK_INT(memory_blocks_add(&blocks, &block, &more, &old),
			  size_of[block.number] != 0);
		live += size_of[block.number] == 0;
		sizes += (uint64_t)size - size_of[block.number];
		size_of[block.number] = size;
		for (unsigned i = 0; i < 2; i++) {
			uint32_t ago = next_random(&state) % (i ? NUMBERS : 40);
			uint64_t victim = ago < number ? number - ago : 0;
			bool is_there = victim && size_of[victim];

			if (number % 3 == 0)
				continue;
			CHECK_INT(memory_blocks_take(&blocks, victim, &old, &more), is_there);
			if (!is_there)
				continue;
			CHECK_INT(old.size, size_of[victim]);
			CHECK_INT(more.since, size_of[victim] + 1);
			live--;
			sizes -= size_of[victim];
			size_of[victim] = 0;
		}
	}
	CHECK_INT(memory_blocks_count(&blocks), live);
	memory_blocks_each(&blocks, see, &seen);
	CHECK_INT(seen.count, live);
	CHECK_INT(seen.sizes, sizes);
	for (uint64_t number = 1; number < NUMBERS; number++) {
		struct memory_block old;
		struct memory_block_more more;

		CHECK_INT(memory_blocks_take(&blocks, number, &old, &more), size_of[number] != 0);
	}
	CHECK_INT(memory_blocks_count(&blocks), 0);
	memory_blocks_done(&blocks);
	free(size_of);
}

static void test_far_numbers(void)
{
	static const uint64_t numbers[] = { UINT64_MAX, 1,   UINT64_MAX / 2,
					    257,        513, UINT64_MAX - 256,
					    769,        1025 };
	struct memory_block block = { 0 }, old;
	struct memory_block_more more = { 0 };
	struct memory_blocks blocks;

	memory_blocks_init(&blocks, false);
	CHECK(!memory_blocks_take(&blocks, 1, &old, &more));
	for (unsigned i = 0; i < 8; i++) {
		block.number = numbers[i];
		block.size = i;
		CHECK(!memory_blocks_add(&blocks, &block, &more, &old));
	}
	CHECK_INT(memory_blocks_count(&blocks), 8);
	for (unsigned i = 0; i < 8; i++) {
		CHECK(memory_blocks_take(&blocks, numbers[i], &old, &more));
		CHECK_INT(old.size, i);
		CHECK(!memory_blocks_take(&blocks, numbers[i], &old, &more));
	}
	CHECK(!memory_blocks_take(&blocks, 0, &old, &more));
	memory_blocks_done(&blocks);
}

int main(void)
{
	RUN(test_random);
	RUN(test_far_numbers);
	return test_end();
}
