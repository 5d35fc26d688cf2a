/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Intern - small ids for strings, frames and stack nodes of one epoch
 *
 * Open addressing with linear probing over 4-byte slots, at most half full; the items are stored
 * separately, in the order of their ids. A pair takes 16 bytes, plus 8 to 16 bytes of slots. A
 * table that grew large in an epoch is released when the next epoch begins.
 * Invariants: (1) within an epoch, equal keys have equal ids  [test-engine-rows: intern_same]
 *             (2) ids start at 1 and have no gaps  [test-engine-rows: intern_same]
 *             (3) a path gets the same ids as its pairs added one by one
 *                 [test-engine-rows: intern_path]
 * Runs on the drain thread only.
 */
#include "daemon/engine/out/intern.h"

#include "arch/base.h"
#include "base/hash.h"

#include <glib.h>
#include <string.h>

#define FIRST_SLOTS 4096u
#define FIRST_BYTES 65536u
#define KEPT_SLOTS 65536u
#define PART 64 /* pairs that are prefetched together */

static void insert_slot(uint32_t *slots, uint32_t mask, uint32_t hash, uint32_t id)
{
	uint32_t i = hash & mask;

	while (slots[i])
		i = (i + 1) & mask;
	slots[i] = id;
}

void intern_pairs_init(struct intern_pairs *intern, uint64_t seed)
{
	*intern = (struct intern_pairs){ .seed = seed, .mask = FIRST_SLOTS - 1 };
	intern->slots = g_new0(uint32_t, FIRST_SLOTS);
}

void intern_pairs_done(struct intern_pairs *intern)
{
	g_free(intern->slots);
	g_free(intern->pairs);
	*intern = (struct intern_pairs){ 0 };
}

void intern_pairs_clear(struct intern_pairs *intern)
{
	uint64_t seed = intern->seed;

	if (intern->mask >= KEPT_SLOTS) {
		intern_pairs_done(intern);
		intern_pairs_init(intern, seed);
		return;
	}
	memset(intern->slots, 0, ((size_t)intern->mask + 1) * sizeof(*intern->slots));
	intern->n = 0;
}

static void grow_pairs(struct intern_pairs *intern)
{
	if (intern->n == intern->allocated) {
		intern->allocated = intern->allocated ? intern->allocated * 2 : FIRST_SLOTS / 2;
		intern->pairs = g_renew(struct intern_pair, intern->pairs, intern->allocated);
	}
	if (intern->n < intern->mask / 2)
		return;
	g_free(intern->slots);
	intern->mask = intern->mask * 2 + 1;
	intern->slots = g_new0(uint32_t, (size_t)intern->mask + 1);
	for (uint32_t i = 0; i < intern->n; i++)
		insert_slot(intern->slots, intern->mask, intern->pairs[i].hash, i + 1);
}

static uint32_t add_pair(struct intern_pairs *intern, uint32_t hash, uint64_t a, uint32_t b,
			 bool *ret_new)
{
	const struct intern_pair *pair;
	uint32_t i, id;

	for (i = hash & intern->mask; (id = intern->slots[i]) != 0; i = (i + 1) & intern->mask) {
		pair = &intern->pairs[id - 1];
		if (pair->hash == hash && pair->a == a && pair->b == b) {
			*ret_new = false;
			return id;
		}
	}
	grow_pairs(intern);
	intern->pairs[intern->n] = (struct intern_pair){ .a = a, .b = b, .hash = hash };
	id = ++intern->n;
	insert_slot(intern->slots, intern->mask, hash, id);
	*ret_new = true;
	return id;
}

static uint32_t hash_pair(const struct intern_pairs *intern, uint64_t a, uint32_t b)
{
	return hash_fold(hash_words(a ^ intern->seed, ((uint64_t)b << 32 | b) + intern->seed));
}

/* Prefetches the slots first, then the pairs whose ids they contain. */
static void prefetch(const struct intern_pairs *intern, const uint32_t *hashes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		prefetch_line(&intern->slots[hashes[i] & intern->mask]);
	for (size_t i = 0; i < n; i++) {
		uint32_t id = intern->slots[hashes[i] & intern->mask];

		if (id)
			prefetch_line(&intern->pairs[id - 1]);
	}
}

void intern_pairs_add_all(struct intern_pairs *intern, const uint64_t *a, const uint32_t *b,
			  size_t n, uint32_t *ret_ids, bool *ret_new)
{
	uint32_t hashes[PART];
	size_t from, i, part;

	for (from = 0; from < n; from += part) {
		part = MIN(n - from, (size_t)PART);
		for (i = 0; i < part; i++)
			hashes[i] = hash_pair(intern, a[from + i], b[from + i]);
		prefetch(intern, hashes, part);
		for (i = from; i < from + part; i++)
			ret_ids[i] = add_pair(intern, hashes[i - from], a[i], b[i], &ret_new[i]);
	}
}

void intern_pairs_add_path(struct intern_pairs *intern, uint32_t parent, const uint32_t *b,
			   size_t n, uint32_t *ret_ids, bool *ret_new)
{
	/* Hashes derive from the preceding hashes, because the ids are not known yet. */
	uint32_t hashes[PART], hash = parent ? intern->pairs[parent - 1].hash : 0;
	size_t from, i, part;

	for (from = 0; from < n; from += part) {
		part = MIN(n - from, (size_t)PART);
		for (i = 0; i < part; i++)
			hashes[i] = hash = hash_pair(intern, hash, b[from + i]);
		prefetch(intern, hashes, part);
		for (i = from; i < from + part; i++)
			parent = ret_ids[i] =
				add_pair(intern, hashes[i - from], parent, b[i], &ret_new[i]);
	}
}

void intern_strings_init(struct intern_strings *intern, uint64_t seed)
{
	*intern = (struct intern_strings){ .seed = seed, .mask = FIRST_SLOTS - 1 };
	intern->slots = g_new0(uint32_t, FIRST_SLOTS);
}

void intern_strings_done(struct intern_strings *intern)
{
	g_free(intern->slots);
	g_free(intern->strings);
	g_free(intern->bytes);
	*intern = (struct intern_strings){ 0 };
}

void intern_strings_clear(struct intern_strings *intern)
{
	uint64_t seed = intern->seed;

	intern_strings_done(intern);
	intern_strings_init(intern, seed);
}

static uint32_t hash_bytes(const uint8_t *bytes, size_t length, uint64_t seed)
{
	uint64_t hash = seed ^ length, word;

	for (; length >= sizeof(word); bytes += sizeof(word), length -= sizeof(word)) {
		memcpy(&word, bytes, sizeof(word));
		hash = (hash ^ word) * 0x9fb21c651e98df25u;
		hash ^= hash >> 32;
	}
	word = 0;
	memcpy(&word, bytes, length);
	return hash_fold(hash_words(hash, word ^ seed));
}

static void grow_strings(struct intern_strings *intern, size_t length)
{
	uint64_t needed = (uint64_t)intern->n_bytes + length;

	if (intern->n == intern->allocated) {
		intern->allocated = intern->allocated ? intern->allocated * 2 : FIRST_SLOTS / 2;
		intern->strings = g_renew(struct intern_string, intern->strings, intern->allocated);
	}
	if (needed > intern->allocated_bytes) {
		uint64_t grown = MAX((uint64_t)intern->allocated_bytes * 2, FIRST_BYTES);

		intern->allocated_bytes = MIN(MAX(grown, needed), UINT32_MAX);
		intern->bytes = g_realloc(intern->bytes, intern->allocated_bytes);
	}
	if (intern->n < intern->mask / 2)
		return;
	g_free(intern->slots);
	intern->mask = intern->mask * 2 + 1;
	intern->slots = g_new0(uint32_t, (size_t)intern->mask + 1);
	for (uint32_t i = 0; i < intern->n; i++)
		insert_slot(intern->slots, intern->mask, intern->strings[i].hash, i + 1);
}

uint32_t intern_strings_add(struct intern_strings *intern, const void *bytes, size_t length,
			    bool *ret_new)
{
	uint32_t hash = hash_bytes(bytes, length, intern->seed);
	const struct intern_string *string;
	uint32_t i, id;

	for (i = hash & intern->mask; (id = intern->slots[i]) != 0; i = (i + 1) & intern->mask) {
		string = &intern->strings[id - 1];
		if (string->hash == hash && string->length == length &&
		    memcmp(intern->bytes + string->offset, bytes, length) == 0) {
			*ret_new = false;
			return id;
		}
	}
	grow_strings(intern, length);
	intern->strings[intern->n] = (struct intern_string){
		.offset = intern->n_bytes,
		.length = length,
		.hash = hash,
	};
	memcpy(intern->bytes + intern->n_bytes, bytes, length);
	intern->n_bytes += length;
	id = ++intern->n;
	insert_slot(intern->slots, intern->mask, hash, id);
	*ret_new = true;
	return id;
}
