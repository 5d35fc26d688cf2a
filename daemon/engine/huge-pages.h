/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <stdint.h>

#define HUGE_PAGE (UINT64_C(1) << 21)

/* What huge_pages_map() takes for so many bytes. */
static inline uint64_t huge_pages(uint64_t bytes)
{
	return (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

/* Zeros, to be unmapped by munmap(2), `bytes` being a multiple of HUGE_PAGE; NULL: there is no
 * room. Any thread. */
void *huge_pages_map(uint64_t bytes);
