/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Assigns ids to pairs: 1, 2, … in the order of their first use. */
struct intern_pairs {
	struct intern_pair {
		uint64_t a;
		uint32_t b;
		uint32_t hash;
	} __attribute__((packed, aligned(4))) * pairs; /* the pair with id i is at i - 1 */
	uint32_t *slots;
	uint32_t n, allocated, mask;
	uint64_t seed;
};

/* Assigns ids to strings: 1, 2, … in the order of their first use. */
struct intern_strings {
	struct intern_string {
		uint32_t offset, length, hash;
	} * strings;
	uint32_t *slots;
	char *bytes;
	uint32_t n, allocated, mask;
	uint32_t n_bytes, allocated_bytes;
	uint64_t seed;
};

/* `seed` must be random, so that nobody can choose colliding keys. */
void intern_pairs_init(struct intern_pairs *intern, uint64_t seed);
void intern_pairs_done(struct intern_pairs *intern);
void intern_pairs_clear(struct intern_pairs *intern);
/* Returns the ids of n pairs (a[i], b[i]). Their memory is prefetched together. ret_new[i]: whether
 * pair i is new. */
void intern_pairs_add_all(struct intern_pairs *intern, const uint64_t *a, const uint32_t *b,
			  size_t n, uint32_t *ret_ids, bool *ret_new);

/* Like intern_pairs_add_all(), for a path in a tree: pair i is (id of pair i - 1, b[i]), and the
 * first pair is (parent, b[0]), where `parent` is an id of this table or 0. */
void intern_pairs_add_path(struct intern_pairs *intern, uint32_t parent, const uint32_t *b,
			   size_t n, uint32_t *ret_ids, bool *ret_new);

void intern_strings_init(struct intern_strings *intern, uint64_t seed);
void intern_strings_done(struct intern_strings *intern);
void intern_strings_clear(struct intern_strings *intern);
uint32_t intern_strings_add(struct intern_strings *intern, const void *bytes, size_t length,
			    bool *ret_new);
