/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Intern - caches which strings a ring's owner has sent, by content
 *
 * The number of entries is fixed; evicted strings are sent again. A handler may interrupt a lookup
 * or an addition with another one. An entry is two words, and the second depends on the first, so
 * an entry of mixed words from two writers does not match. Ids are valid in one epoch. A caller
 * compares the epoch before and after it uses ids, because a handler may have begun another epoch.
 *
 * Most names have the same address the next time. So `places` caches the short string that was last
 * found at an address. Comparing the string with the cached copy costs less than a hash.
 */
#pragma once

#include "arch/base.h"
#include "base/hash.h"

#include <assert.h>

#define INTERN_SETS 128u
#define INTERN_WAYS 4u
#define INTERN_MAX_BYTES (UINT32_C(1) << 26) /* limit for a string; longer ones are cut */
#define INTERN_PLACES 256u
#define INTERN_PLACE_WORDS 4u /* limit for a string in `places`, with its NUL; 8-byte words */

struct text {
	const char *bytes;
	uint64_t hash;
	uint32_t n_bytes;
	uint32_t id;  /* 0: not found, or empty */
	bool is_name; /* likely to have the same address the next time: use `places` */
};

struct intern_entry {
	uint64_t id;    /* upper half: the epoch */
	uint64_t check; /* depends on id and text: see intern_check() */
};

/* One cache line. The id is written last, and by one writer at a time. */
struct intern_place {
	uint64_t id; /* upper half: the epoch; 0: none */
	const char *at;
	uint32_t n_words;
	uint32_t reserved;
	uint64_t last_mask; /* mask of the string's bytes in the last word */
	uint64_t words[INTERN_PLACE_WORDS];
};
static_assert(sizeof(struct intern_place) == 64, "place");

struct intern {
	volatile uint32_t epoch; /* entries of other epochs are empty */
	uint32_t last_id;
	uint32_t next_way;
	uint32_t is_placing;
	struct intern_entry entries[INTERN_SETS][INTERN_WAYS];
	struct intern_place places[INTERN_PLACES] __attribute__((aligned(64)));
};

/* Begins another epoch, in which nothing has been sent. A zeroed structure is a fresh state. */
void intern_reset(struct intern *intern);
/* Like intern_reset(), and restarts ids at 1: for another owner, or if there are too many ids. */
void intern_restart(struct intern *intern);
uint32_t intern_new_id(struct intern *intern);
/* Adds a text that was sent with text->id, unless the epoch has changed. */
void intern_add(struct intern *intern, const struct text *text, uint32_t epoch);
/* Adds the text's address, unless the epoch has changed. */
void intern_add_place(struct intern *intern, const struct text *text, uint32_t epoch);

static inline uint64_t intern_check(uint64_t id, const struct text *text)
{
	return id + text->hash;
}

/* intern_measure() computes length and hash in one pass, a word at a time. A word is read whole if
 * it does not leave the page, so up to 7 bytes after the string may be read; they are ignored. */
#define INTERN_PAGE 4096u
#define INTERN_ONES UINT64_C(0x0101010101010101)
#define INTERN_HIGHS UINT64_C(0x8080808080808080)

struct intern_word {
	uint64_t value;
} __attribute__((packed, may_alias));

static inline __attribute__((always_inline)) uint64_t intern_mix(uint64_t word, uint64_t at)
{
	return hash_multiply(word ^ UINT64_C(0xa0761d6478bd642f),
			     UINT64_C(0xe7037ed1a0b428db) + at * UINT64_C(0x9e3779b97f4a7c16));
}

uint64_t intern_load_tail(const char *at);

/* Returns the next 8 bytes; they may go beyond the string's end, which *ret_end marks. */
static inline __attribute__((always_inline)) uint64_t intern_load(const char *at, uint64_t *ret_end)
{
	uint64_t word;

	if (__builtin_expect(((uintptr_t)at & (INTERN_PAGE - 1)) > INTERN_PAGE - 8, 0))
		word = intern_load_tail(at);
	else
		word = le64toh(((const struct intern_word *)at)->value);
	*ret_end = (word - INTERN_ONES) & ~word & INTERN_HIGHS;
	return word;
}

__attribute__((no_sanitize("address", "thread"))) static inline void intern_measure(
	const char *bytes, struct text *ret_text)
{
	uint64_t hash = 0, n = 0, end, word;

	for (word = intern_load(bytes, &end); end == 0 && n < INTERN_MAX_BYTES - 8;
	     word = intern_load(bytes + n, &end)) {
		hash += intern_mix(word, n);
		n += 8;
	}
	if (end != 0) {
		uint32_t rest = (uint32_t)__builtin_ctzll(end) / 8;

		/* Mask the word: for rest 0, a shift would be by 64, which is undefined. */
		word &= (UINT64_C(1) << rest * 8) - 1;
		hash += intern_mix(word, n);
		n += rest;
	}
	ret_text->bytes = bytes;
	ret_text->hash = hash + n * HASH_ODD;
	ret_text->n_bytes = (uint32_t)n;
}

/* Returns whether the text was sent or is empty. Sets text->id; 0 if it was not sent or is
 * empty. */
static inline bool intern_find(const struct intern *intern, struct text *text)
{
	const struct intern_entry *entries = intern->entries[text->hash % INTERN_SETS];
	uint32_t epoch = intern->epoch;

	text->id = 0;
	if (text->n_bytes == 0)
		return true;
	for (uint32_t i = 0; i < INTERN_WAYS; i++) {
		uint64_t id = __atomic_load_n(&entries[i].id, __ATOMIC_RELAXED);

		if (id >> 32 == epoch && __atomic_load_n(&entries[i].check, __ATOMIC_RELAXED) ==
						 intern_check(id, text)) {
			text->id = (uint32_t)id;
			return true;
		}
	}
	return false;
}

static inline __attribute__((always_inline)) uint32_t intern_place_of(const char *at)
{
	uint32_t bits = (uint32_t)(uintptr_t)at;

	return (bits ^ bits >> 8) % INTERN_PLACES;
}

/* Returns the id that `places` has for the string at this address, or 0. Reads the string only as
 * far as it equals the cached copy, and not beyond its page. */
__attribute__((no_sanitize("address", "thread"))) static inline uint32_t intern_find_place(
	const struct intern *intern, const char *at)
{
	const struct intern_place *place = &intern->places[intern_place_of(at)];
	uint64_t id = __atomic_load_n(&place->id, __ATOMIC_RELAXED), last_mask;
	const struct intern_word *words = (const void *)at;
	uint32_t last;

	/* Hide the size of a literal from the compiler. */
	__asm__("" : "+r"(words));
	__atomic_signal_fence(__ATOMIC_ACQUIRE);
	if (place->at != at || id >> 32 != intern->epoch)
		return 0;
	last = place->n_words - 1;
	last_mask = place->last_mask;
	__atomic_signal_fence(__ATOMIC_ACQUIRE);
	/* If a handler replaced the entry, its number of words may not be this address's. If a
	 * handler replaces it now, the comparison still reads only this address's words; the last
	 * check detects the change. */
	if (__atomic_load_n(&place->id, __ATOMIC_RELAXED) != id)
		return 0;
	for (uint32_t i = 0; i < last; i++)
		if (words[i].value != place->words[i])
			return 0;
	if ((words[last].value & last_mask) != place->words[last])
		return 0;
	__atomic_signal_fence(__ATOMIC_ACQUIRE);
	return __atomic_load_n(&place->id, __ATOMIC_RELAXED) == id ? (uint32_t)id : 0;
}
