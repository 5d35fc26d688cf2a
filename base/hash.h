/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Hash - mixes words by a 128-bit multiplication. Add a secret seed to words that others choose. */
#pragma once

#include <stdint.h>

/* Odd, and its bits look random: 2^64 divided by the golden ratio */
#define HASH_ODD UINT64_C(0x9e3779b97f4a7c15)

static inline __attribute__((always_inline)) uint64_t hash_multiply(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Returns a hash of two words, each of which may be 0. */
static inline __attribute__((always_inline)) uint64_t hash_words(uint64_t a, uint64_t b)
{
	return hash_multiply(a ^ UINT64_C(0xa0761d6478bd642f), b ^ UINT64_C(0xe7037ed1a0b428db));
}

static inline uint32_t hash_fold(uint64_t hash)
{
	return (uint32_t)hash ^ (uint32_t)(hash >> 32);
}
