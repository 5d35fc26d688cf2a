/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Probe filter - compares the arguments of a static probe with numbers
 *
 *     or          and ("||" and)…
 *     and         term ("&&" term)…
 *     term        "!" term | "(" or ")" | "argN" operator number
 *
 * The text is evaluated while it is parsed; both sides of each operator are evaluated.
 * Invariants: (1) the text may be anything  [fuzz_probe_filter]
 *             (2) numbers are compared by their values, even if only one is signed
 *                 [test-probe-filter: filter_numbers]
 * Pure.
 */
#include "arch/probe-filter.h"

#include "arch/base.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 64 /* nesting limit of parentheses and negations */

struct filter_parser {
	const char *at;
	const struct probe_number *numbers;
	unsigned n, depth;
	bool failed;
};

static void skip_spaces(struct filter_parser *filter)
{
	filter->at += strspn(filter->at, " \t");
}

/* Skips spaces, and the word if it follows. Returns whether the word follows. */
static bool take(struct filter_parser *filter, const char *word)
{
	skip_spaces(filter);
	if (strncmp(filter->at, word, strlen(word)) != 0)
		return false;
	filter->at += strlen(word);
	return true;
}

static enum probe_verdict fail(struct filter_parser *filter)
{
	filter->failed = true;
	return PROBE_FILTER_UNKNOWN;
}

/* Parses digits, decimal or with 0x. */
static bool parse_digits(struct filter_parser *filter, uint64_t *ret_number)
{
	char *end;

	if (*filter->at < '0' || *filter->at > '9')
		return false;
	errno = 0;
	*ret_number = strtoull(filter->at, &end, strncmp(filter->at, "0x", 2) == 0 ? 16 : 10);
	if (errno)
		return false;
	filter->at = end;
	return true;
}

static bool is_nan(const struct probe_number *argument)
{
	double number;

	memcpy(&number, &argument->value, sizeof(number));
	return argument->is_float && number != number;
}

/* Returns -1, 0 or 1: how an argument compares with a number, which is negative if `minus`. */
static int compare(const struct probe_number *argument, uint64_t number, bool minus)
{
	bool is_negative = argument->is_signed && (int64_t)argument->value < 0;
	double left, right;

	if (argument->is_float) {
		memcpy(&left, &argument->value, sizeof(left));
		right = minus ? -(double)number : (double)number;
		return (left > right) - (left < right);
	}
	minus = minus && number > 0;
	if (is_negative != minus)
		return is_negative ? -1 : 1;
	if (minus) {
		uint64_t size = -argument->value;

		return (size < number) - (size > number);
	}
	return (argument->value > number) - (argument->value < number);
}

static enum probe_verdict parse_comparison(struct filter_parser *filter)
{
	static const struct {
		char text[3];
		bool less, equal, greater;
	} operators[] = {
		{ "==", false, true, false }, { "!=", true, false, true },
		{ "<=", true, true, false },  { ">=", false, true, true },
		{ "<", true, false, false },  { ">", false, false, true },
		{ "&", false, false, false },
	};
	const char *name = filter->at;
	const struct probe_number *argument;
	uint64_t index, number;
	size_t i = 0;
	bool minus;
	int order;

	if (!take(filter, "arg") || !parse_digits(filter, &index) || index == 0 ||
	    index > filter->n) {
		filter->at = name;
		return fail(filter);
	}
	argument = &filter->numbers[index - 1];
	while (i < ARRAY_SIZE(operators) && !take(filter, operators[i].text))
		i++;
	if (i == ARRAY_SIZE(operators) || (operators[i].text[0] == '&' && argument->is_float))
		return fail(filter);
	minus = take(filter, "-");
	skip_spaces(filter);
	if (!parse_digits(filter, &number))
		return fail(filter);
	if (!argument->is_known)
		return PROBE_FILTER_UNKNOWN;
	if (operators[i].text[0] == '&')
		return argument->value & (minus ? -number : number) ? PROBE_FILTER_YES
								    : PROBE_FILTER_NO;
	if (is_nan(argument))
		return strcmp(operators[i].text, "!=") == 0 ? PROBE_FILTER_YES : PROBE_FILTER_NO;
	order = compare(argument, number, minus);
	return (order < 0    ? operators[i].less
		: order == 0 ? operators[i].equal
			     : operators[i].greater)
		       ? PROBE_FILTER_YES
		       : PROBE_FILTER_NO;
}

static enum probe_verdict parse_or(struct filter_parser *filter);

static enum probe_verdict parse_term(struct filter_parser *filter)
{
	enum probe_verdict verdict;

	if (filter->failed || filter->depth > MAX_DEPTH)
		return fail(filter);
	filter->depth++;
	skip_spaces(filter);
	if (take(filter, "!")) {
		verdict = parse_term(filter);
		if (verdict != PROBE_FILTER_UNKNOWN)
			verdict = verdict == PROBE_FILTER_NO ? PROBE_FILTER_YES : PROBE_FILTER_NO;
	} else if (take(filter, "(")) {
		verdict = parse_or(filter);
		if (!filter->failed && !take(filter, ")"))
			verdict = fail(filter);
	} else {
		verdict = parse_comparison(filter);
	}
	filter->depth--;
	return verdict;
}

static enum probe_verdict parse_and(struct filter_parser *filter)
{
	enum probe_verdict left = parse_term(filter);

	while (!filter->failed && take(filter, "&&")) {
		enum probe_verdict right = parse_term(filter);

		if (left == PROBE_FILTER_NO || right == PROBE_FILTER_NO)
			left = PROBE_FILTER_NO;
		else if (left == PROBE_FILTER_YES)
			left = right;
	}
	return left;
}

static enum probe_verdict parse_or(struct filter_parser *filter)
{
	enum probe_verdict left = parse_and(filter);

	while (!filter->failed && take(filter, "||")) {
		enum probe_verdict right = parse_and(filter);

		if (left == PROBE_FILTER_YES || right == PROBE_FILTER_YES)
			left = PROBE_FILTER_YES;
		else if (left == PROBE_FILTER_NO)
			left = right;
	}
	return left;
}

enum probe_verdict probe_filter_test(const char *text, const struct probe_number *numbers,
				     unsigned n, const char **ret_at)
{
	struct filter_parser filter = { .at = text, .numbers = numbers, .n = n };
	enum probe_verdict verdict = parse_or(&filter);

	skip_spaces(&filter);
	if (!filter.failed && *filter.at == '\0')
		return verdict;
	if (ret_at)
		*ret_at = filter.at;
	return PROBE_FILTER_INVALID;
}
