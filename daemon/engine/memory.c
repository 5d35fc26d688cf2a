/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory - an engine that gets none says so by its exit status
 *
 * GLib says why and ends a process that gets no memory, but to say it takes memory itself: where
 * not even that is there it calls itself until the stack is at its end, or what asks for a file,
 * which the filter kills for. So whoever asks for little and gets nothing ends the engine here.
 * Callers of large blocks have to be able to do without.
 * Invariants: (1) wherever memory ends, the exit status is ENGINE_EXIT_NO_MEMORY
 *                 [test_attack_memory]
 * Any thread. Of the program alone: tests of its parts do not have it, nor do sanitizers, whose
 * heap is their own.
 */
#include "daemon/protocol.h"

#include <malloc.h>
#include <stdlib.h>
#include <unistd.h>

#define LITTLE_BYTES (64u << 10)

/* glibc's own, by the names that are there for this. */
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
