/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BELLS_MAX 127 /* FUTEX_WAITV_MAX - 1 */

/* A thread that sleeps on the doorbells of arenas, because epoll cannot. */
struct bells;

struct bell {
	uint32_t *word;
	uint32_t value; /* the bell has rung when the word differs from it */
};

/* Starts the thread. */
struct bells *bells_new(GError **error);
void bells_free(struct bells *bells); /* NULL is allowed */
/* Returns false if this kernel cannot wait for bells, so that no bell is ever heard. Valid shortly
 * after the first bells_set() with a bell in its list. */
bool bells_are_heard(struct bells *bells);
/* Becomes readable once when a bell has rung, and not again before the next bells_set(). */
int bells_fd(const struct bells *bells);
/* Replaces the list of bells; uses at most BELLS_MAX. If a word gets unmapped, that counts as a
 * ring. */
void bells_set(struct bells *bells, const struct bell *list, size_t n);
/* Clears the signal of bells_fd(). */
void bells_take(struct bells *bells);
