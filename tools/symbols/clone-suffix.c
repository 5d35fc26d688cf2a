/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Removes all suffixes of clones, from the end. A numbered suffix, such as ".part.0", is removed
 * only with its number, because "main.part" may be a function of Go. Plain numbers ("count.0")
 * stay, because they belong to different functions, or to variables.
 */
#include "tools/symbols/clone-suffix.h"

#include "arch/base.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#define READABLE_CLONE " [clone "

static bool is_word(const char *at, size_t length, const char *const *words, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strlen(words[i]) == length && memcmp(at, words[i], length) == 0)
			return true;
	return false;
}

/* Returns the position of the last '.' that is not at the start; 0: none. */
static size_t last_dot(const char *name, size_t length)
{
	const char *dot = memrchr(name, '.', length);

	return dot ? (size_t)(dot - name) : 0;
}

/* Returns the length of the name without its last suffix; `length` if it has none. */
static size_t skip_one(const char *name, size_t length)
{
	static const char *const alone[] = { "cold", "localalias" };
	static const char *const numbered[] = { "isra",     "part", "constprop",  "llvm",
						"lto_priv", "cold", "localalias", "__uniq" };
	size_t dot = last_dot(name, length), before, at = dot + 1;

	if (dot == 0)
		return length;
	if (is_word(name + dot + 1, length - dot - 1, alone, ARRAY_SIZE(alone)))
		return dot;
	before = last_dot(name, dot);
	while (at < length && isxdigit((unsigned char)name[at]))
		at++;
	if (before > 0 && at == length && length > dot + 1 &&
	    is_word(name + before + 1, dot - before - 1, numbered, ARRAY_SIZE(numbered)))
		return before;
	return length;
}

size_t clone_suffix_skip(const char *raw_name)
{
	size_t length = strlen(raw_name), shorter;

	while ((shorter = skip_one(raw_name, length)) < length)
		length = shorter;
	return length;
}

size_t clone_suffix_skip_shown(const char *name)
{
	const char *clone = strstr(name, READABLE_CLONE ".");

	return clone && clone > name ? (size_t)(clone - name) : clone_suffix_skip(name);
}
