/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of number-map: values are found, also after the map has grown or was cleared.
 */
#include "tests/unit/test.h"
#include "tools/common/number-map.h"

static void test_grow(void)
{
	struct number_map map;
	unsigned wrong = 0;

	number_map_init(&map);
	CHECK_INT(number_map_get(&map, 7), 0);
	for (uint32_t i = 1; i <= 100000; i++)
		*number_map_at(&map, (uint64_t)i << 32) = i;
	for (uint32_t i = 1; i <= 100000; i++)
		wrong += number_map_get(&map, (uint64_t)i << 32) != i;
	CHECK_INT(wrong, 0);
	CHECK_INT(map.used, 100000);
	CHECK(map.used * 3 <= map.n_slots * 2);
	CHECK_INT(number_map_get(&map, 5), 0);
	number_map_clear(&map);
	CHECK_INT(number_map_get(&map, UINT64_C(1) << 32), 0);
	number_map_done(&map);
}

static void test_odd_keys(void)
{
	struct number_map map;

	number_map_init(&map);
	*number_map_at(&map, 0) = 1;
	*number_map_at(&map, UINT64_MAX) = 2;
	CHECK_INT(*number_map_at(&map, 0), 1);
	CHECK_INT(*number_map_at(&map, UINT64_MAX), 2);
	CHECK_INT(map.used, 2);
	number_map_done(&map);
}

int main(void)
{
	RUN(test_grow);
	RUN(test_odd_keys);
	return test_end();
}
