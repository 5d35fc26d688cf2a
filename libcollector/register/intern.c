/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Intern - caches which strings a ring's owner has sent, by content
 *
 * Invariants: (1) an id that is found was sent by this owner of the ring
 *                 [test-intern: epochs, interrupted, places]
 *             (2) nothing is read beyond the page that a string ends in
 *                 [test-intern: page_end, places]
 */
#include "libcollector/register/intern.h"

uint64_t intern_load_tail(const char *at)
{
	uint64_t word = 0;

	for (uint32_t i = 0; i < 8 && at[i]; i++)
		word |= (uint64_t)(uint8_t)at[i] << i * 8;
	return word;
}

void intern_reset(struct intern *intern)
{
	__atomic_add_fetch(&intern->epoch, 1, __ATOMIC_RELAXED);
}

void intern_restart(struct intern *intern)
{
	/* Begin the new epoch first, so that no id is used twice in the old one. */
	intern_reset(intern);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	__atomic_store_n(&intern->last_id, 0, __ATOMIC_RELAXED);
}

uint32_t intern_new_id(struct intern *intern)
{
	return __atomic_add_fetch(&intern->last_id, 1, __ATOMIC_RELAXED);
}

void intern_add(struct intern *intern, const struct text *text, uint32_t epoch)
{
	struct intern_entry *entries = intern->entries[text->hash % INTERN_SETS], *entry = NULL;
	uint64_t id = (uint64_t)epoch << 32 | text->id;

	/* Prefer to replace an entry of an earlier epoch. */
	for (uint32_t i = 0; i < INTERN_WAYS && !entry; i++)
		if (__atomic_load_n(&entries[i].id, __ATOMIC_RELAXED) >> 32 != epoch)
			entry = &entries[i];
	if (!entry)
		entry = &entries[intern->next_way++ % INTERN_WAYS];

	__atomic_store_n(&entry->id, id, __ATOMIC_RELAXED);
	__atomic_store_n(&entry->check, intern_check(id, text), __ATOMIC_RELAXED);
}

/* A handler that interrupts this adds no entry. If the handler leaves by siglongjmp(), this
 * producer adds no more entries; nothing else breaks. */
void intern_add_place(struct intern *intern, const struct text *text, uint32_t epoch)
{
	struct intern_place *place = &intern->places[intern_place_of(text->bytes)];
	uint32_t n_words = text->n_bytes / 8 + 1, rest = text->n_bytes % 8 + 1;

	if (text->id == 0 || n_words > INTERN_PLACE_WORDS || intern->is_placing ||
	    ((uintptr_t)text->bytes ^ ((uintptr_t)text->bytes + n_words * 8 - 1)) >= INTERN_PAGE)
		return;
	intern->is_placing = 1;
	__atomic_store_n(&place->id, 0, __ATOMIC_RELAXED);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	place->at = text->bytes;
	place->n_words = n_words;
	place->last_mask = UINT64_MAX >> (64 - 8 * rest);
	memset(place->words, 0, sizeof(place->words));
	memcpy(place->words, text->bytes, text->n_bytes);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	__atomic_store_n(&place->id, (uint64_t)epoch << 32 | text->id, __ATOMIC_RELEASE);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	intern->is_placing = 0;
}
