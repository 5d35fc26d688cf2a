/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Demangle - readable names of C++ and Rust symbols
 *
 * C++ is the business of its own run-time library (__cxa_demangle of libstdc++). That has no limit
 * to what a name may grow into, and a name of a few hundred bytes can ask for gigabytes by naming
 * its own parts again and again; so a bound for the result is computed first, and what may exceed
 * it keeps its raw name.
 *
 * The bound goes through the name by its brackets (I, N, F, X, J, L, Z … E) only. Each reference to
 * an earlier part (S_, T_) is counted as the largest part there was, whatever it names, and also
 * where it may be text of an identifier. So the bound is generous: of 245 000 names of Debian's
 * libraries and node it refuses one in a thousand.
 * Invariants: (1) no name costs more than a few times MAX_WEIGHT bytes   [test-demangle: bomb]
 *             (2) Rust is tried first: its legacy names are C++ names too  [test-demangle: rust]
 */
#include "tools/common/demangle.h"

#include "arch/base.h"

#include <ctype.h>

#define MAX_RAW_BYTES 8192
#define MAX_WEIGHT (16u << 20)
#define MAX_DEPTH 256

/* The C++ ABI, 3.4: in libstdc++, whose header is for C++ only. */
char *__cxa_demangle(const char *raw_name, char *buffer, size_t *length, int *ret_status);

struct bracket {
	uint64_t weight; /* what is in it may print as so many bytes */
	bool literal;    /* L <type> <number> E … */
	bool typed;      /* … behind the type: digits are the number */
};

struct bound {
	const char *at;
	struct bracket brackets[MAX_DEPTH]; /* 0: outside of all */
	size_t depth;
	uint64_t open;    /* sum of the open brackets' weights */
	uint64_t largest; /* what a reference may stand for */
};

static void bound_add(struct bound *bound, uint64_t bytes)
{
	struct bracket *bracket = &bound->brackets[bound->depth];

	bytes = MIN_OF(bytes, MAX_WEIGHT);
	bracket->weight = MIN_OF(bracket->weight + bytes, MAX_WEIGHT);
	if (bound->depth > 0)
		bound->open = MIN_OF(bound->open + bytes, MAX_WEIGHT);
	bound->largest = MAX_OF(bound->largest, bound->open);
}

static bool bound_open(struct bound *bound)
{
	if (bound->depth + 1 == MAX_DEPTH)
		return false;
	bound->depth++;
	bound->brackets[bound->depth] = (struct bracket){ .literal = *bound->at == 'L' };
	return true;
}

static void bound_close(struct bound *bound)
{
	uint64_t weight = bound->brackets[bound->depth].weight;

	if (bound->depth == 0)
		return;
	bound->depth--;
	bound->brackets[bound->depth].typed = true;
	if (bound->depth == 0)
		bound->open = 0;
	else
		bound->open -= MIN_OF(weight, bound->open);
	bound_add(bound, weight);
}

/* S_, S0_, SA_, T_, T0_: an earlier part of the name again. */
static bool is_reference(const char *at)
{
	if (at[0] == 'S')
		return at[1] == '_' || isdigit((unsigned char)at[1]) ||
		       isupper((unsigned char)at[1]);
	return at[0] == 'T' && (at[1] == '_' || isdigit((unsigned char)at[1]));
}

/* Digits are a length, and an identifier follows ("3foo"), unless they stand where only a number
 * can. */
static void skip_digits(struct bound *bound, char before)
{
	struct bracket *bracket = &bound->brackets[bound->depth];
	bool number = (bracket->literal && bracket->typed) || before == 'A' || before == '_';
	size_t length = 0;

	while (isdigit((unsigned char)*bound->at) && length < MAX_RAW_BYTES)
		length = length * 10 + (size_t)(*bound->at++ - '0');
	if (number || *bound->at == '_' || strnlen(bound->at, length) < length)
		return;
	bound_add(bound, length + 2);
	for (const char *end = bound->at + length; bound->at < end; bound->at++)
		if (is_reference(bound->at))
			bound_add(bound, bound->largest);
	bracket->typed = true;
}

static bool skip_letter(struct bound *bound)
{
	char letter = *bound->at;
	struct bracket *bracket = &bound->brackets[bound->depth];

	bound_add(bound, 4);
	if (is_reference(bound->at)) {
		bound_add(bound, bound->largest);
		bound->at += strcspn(bound->at, "_");
		bracket->typed = true;
	} else if (letter == 'E') {
		bound_close(bound);
	} else if (strchr("INFXJLZ", letter)) {
		if (!bound_open(bound))
			return false;
	} else if (islower((unsigned char)letter)) {
		bracket->typed = true;
	}
	bound->at += *bound->at != '\0';
	return true;
}

static bool is_bounded(const char *raw_name)
{
	struct bound bound = { .at = raw_name + 2 };
	char before =
		/* the character in front, where it was not part of an identifier or reference */
		'\0';

	while (*bound.at && bound.largest < MAX_WEIGHT) {
		bool digits = isdigit((unsigned char)*bound.at);
		char here = digits || is_reference(bound.at) ? '\0' : *bound.at;

		if (digits)
			skip_digits(&bound, before);
		else if (!skip_letter(&bound))
			return false;
		before = here;
	}
	return bound.largest < MAX_WEIGHT;
}

char *demangle_get(const char *raw_name)
{
	CLEANUP_FREE char *readable = NULL;
	char rust[DEMANGLE_MAX_BYTES];
	int status = -1;

	if (raw_name[0] != '_' || strnlen(raw_name, MAX_RAW_BYTES) == MAX_RAW_BYTES)
		return NULL;
	if (demangle_rust(raw_name, rust, sizeof(rust)))
		return strdup(rust);
	if (raw_name[1] != 'Z' || !is_bounded(raw_name))
		return NULL;
	readable = __cxa_demangle(raw_name, NULL, NULL, &status);
	if (!readable || status != 0 || strnlen(readable, DEMANGLE_MAX_BYTES) == DEMANGLE_MAX_BYTES)
		return NULL;
	return steal_ptr(&readable);
}
