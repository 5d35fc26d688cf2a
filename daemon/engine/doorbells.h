/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DOORBELLS_MAX 127 /* FUTEX_WAITV_MAX - 1 */

/* A thread that sleeps on the doorbells of arenas, because epoll cannot. */
struct doorbells;

struct doorbell {
	uint32_t *word;
	uint32_t value; /* the doorbell has rung when the word differs from it */
};

/* Starts the thread. */
struct doorbells *doorbells_new(GError **error);
void doorbells_free(struct doorbells *doorbells); /* NULL is allowed */
/* Returns false if this kernel cannot wait for doorbells, so that no doorbell is ever heard. Valid
 * shortly after the first doorbells_set() with a doorbell in its list. */
bool doorbells_are_heard(struct doorbells *doorbells);
/* Becomes readable once when a doorbell has rung, and not again before the next doorbells_set(). */
int doorbells_fd(const struct doorbells *doorbells);
/* Replaces the list of doorbells; uses at most DOORBELLS_MAX. If a word gets unmapped, that counts
 * as a ring. */
void doorbells_set(struct doorbells *doorbells, const struct doorbell *list, size_t n);
/* Clears the signal of doorbells_fd(). */
void doorbells_receive(struct doorbells *doorbells);
