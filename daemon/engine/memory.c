/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory - ends the engine with a specific exit status when it runs out of memory
 *
 * GLib logs a failed allocation and ends the process, but logging allocates too. If that fails as
 * well, GLib recurses until the stack overflows, or calls code that opens a file, for which the
 * filter kills the process. So these wrappers end the engine when a small allocation fails. Callers
 * that allocate large blocks must handle failure.
 * Invariants: (1) whichever small allocation fails, the exit status is ENGINE_EXIT_NO_MEMORY
 *                 [test_attack_memory]
 * Any thread. Linked into the program only, not into unit tests. Sanitizer builds leave it out,
 * because the sanitizer replaces malloc().
 */
#include "daemon/protocol.h"

#include <malloc.h>
#include <stdlib.h>
#include <unistd.h>

#define LITTLE_BYTES (64u << 10)

/* glibc's own functions, by the names that it exports for wrappers. */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);
extern void *__libc_realloc(void *block, size_t bytes);

static void *check(void *block, size_t bytes)
{
	if (!block && bytes <= LITTLE_BYTES && bytes > 0)
		_exit(ENGINE_EXIT_NO_MEMORY);
	return block;
}

__attribute__((visibility("default"))) void *malloc(size_t bytes)
{
	return check(__libc_malloc(bytes), bytes);
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t bytes)
{
	void *block = __libc_calloc(n, bytes);

	return block || n == 0 || bytes > LITTLE_BYTES / n ? block : check(block, n * bytes);
}

__attribute__((visibility("default"))) void *realloc(void *block, size_t bytes)
{
	return check(__libc_realloc(block, bytes), bytes);
}
