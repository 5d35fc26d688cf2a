/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DOORBELLS_MAX 127 /* FUTEX_WAITV_MAX - 1 */

/* A thread that waits for the doorbells of arenas, because epoll cannot wait for futexes. */
struct doorbells;

struct doorbell {
	uint32_t *word;
	uint32_t value; /* the doorbell has rung when the word has another value */
};

struct doorbells *doorbells_new(GError **error);
void doorbells_free(struct doorbells *doorbells); /* NULL is allowed */
/* Returns false if this kernel cannot wait for doorbells, so that no doorbell is ever reported. The
 * answer is valid shortly after the first doorbells_set() with a doorbell in its list. */
bool doorbells_are_heard(struct doorbells *doorbells);
/* Returns a descriptor that becomes readable when a doorbell rings, once per doorbells_set(). */
int doorbells_fd(const struct doorbells *doorbells);
/* Replaces the list of doorbells, of which at most DOORBELLS_MAX are used. Unmapping a word counts
 * as ringing. */
void doorbells_set(struct doorbells *doorbells, const struct doorbell *list, size_t n);
/* Resets doorbells_fd(), so that it is not readable until a doorbell rings again. */
void doorbells_receive(struct doorbells *doorbells);
