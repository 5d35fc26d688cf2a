/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BELLS_MAX 127 /* FUTEX_WAITV_MAX less one */

/* A thread that sleeps on the doorbells of arenas, since epoll cannot. */
struct bells;

struct bell {
	uint32_t *word;
	uint32_t value; /* it has rung when the word is another */
};

/* Starts the thread. */
struct bells *bells_new(GError **error);
void bells_free(struct bells *bells); /* takes NULL */
/* False: this kernel has no way to, and none of them is ever heard. Known after the first
 * bells_set() that lists one, a moment later. */
bool bells_are_heard(struct bells *bells);
/* Readable once when one of them has rung; then it is silent until bells_set(). */
int bells_fd(const struct bells *bells);
/* What to listen to from now on, up to BELLS_MAX. A word may be unmapped meanwhile: that counts
 * as rung. */
void bells_set(struct bells *bells, const struct bell *list, size_t n);
/* Takes the signal back. */
void bells_take(struct bells *bells);
