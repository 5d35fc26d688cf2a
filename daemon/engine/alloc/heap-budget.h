/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Heap budget - limits the memory for data about allocations, per process and in total */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define HEAP_PROCESS_BYTES (UINT64_C(400) << 20)
#define HEAP_ALL_BYTES (UINT64_C(448) << 20)

struct heap_budget {
	uint64_t used, limit;
	struct heap_budget *all; /* NULL: this is the budget of all processes */
};

/* Returns false if there is no room. */
static inline bool heap_budget_reserve(struct heap_budget *budget, uint64_t bytes)
{
	if (bytes > budget->limit - budget->used ||
	    (budget->all && !heap_budget_reserve(budget->all, bytes)))
		return false;
	budget->used += bytes;
	return true;
}

static inline void heap_budget_release(struct heap_budget *budget, uint64_t bytes)
{
	budget->used -= bytes;
	if (budget->all)
		budget->all->used -= bytes;
}
