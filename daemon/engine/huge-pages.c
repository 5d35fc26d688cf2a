/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Huge pages - memory in pages of 2 MiB, where the kernel has them
 *
 * A huge page replaces 512 pages, is allocated as fast as a few dozen pages, and is accessed
 * faster.
 * Invariants: (1) all mapped memory is aligned to huge pages     [test-engine-heap: huge_pages]
 */
#include "daemon/engine/huge-pages.h"

#include <stddef.h>
#include <sys/mman.h>

void *huge_pages_map(uint64_t bytes)
{
	uint64_t start;
	char *at = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return NULL;
	start = huge_pages((uintptr_t)at) - (uintptr_t)at;
	if (start > 0)
		munmap(at, start);
	if (start < HUGE_PAGE)
		munmap(at + start + bytes, HUGE_PAGE - start);
	madvise(at + start, bytes, MADV_HUGEPAGE);
	return at + start;
}
