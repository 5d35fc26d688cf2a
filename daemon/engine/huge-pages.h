/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <stdint.h>

#define HUGE_PAGE (UINT64_C(1) << 21)

/* Rounds up to whole huge pages, as huge_pages_map() needs. */
static inline uint64_t huge_pages(uint64_t bytes)
{
	return (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

/* Returns zeroed memory, to be released with munmap(2), or NULL. `bytes`: a multiple of HUGE_PAGE.
 * Any thread. */
void *huge_pages_map(uint64_t bytes);
