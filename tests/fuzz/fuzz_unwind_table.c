/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of the check of compiled tables: a table that passes must return one of its own rules
 * for any address.
 */
#include "arch/table.h"

#include <stdlib.h>

#define PLACES 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP_FREE uint8_t *copy = NULL;
	struct unwind_table table;

	if (posix_memalign((void **)&copy, 16, size + 1) != 0)
		return 0;
	memcpy(copy, data, size);
	if (table_init(&table, copy, size) < 0)
		return 0;
	for (uint64_t i = 0; i < PLACES; i++) {
		uint64_t span = ((uint64_t)table.n_pages + 2) << 16;
		const struct cfi_rule *rule =
			table_get(&table, table.base - 0x10000 + span / PLACES * i + i % 16);

		if (rule < table.rules || rule >= table.rules + table.n_rules)
			abort();
	}
	return 0;
}
