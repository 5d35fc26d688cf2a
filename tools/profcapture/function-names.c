/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Function-names - parts of readable C++, Rust and Go names
 *
 * A name is parsed by its brackets only, so a malformed name has odd parts, but always parts
 * of the name.                                   [test-report: names_match, shortened]
 */
#include "tools/profcapture/function-names.h"

#include <glib.h>
#include <string.h>

static bool is_of_name(char c)
{
	return g_ascii_isalnum(c) || c == '_';
}

/* Returns the length of "operator<<" and the like, whose signs are not brackets; 0: no operator. */
static size_t operator_at(const char *name, const char *at)
{
	static const char word[] = "operator";
	size_t n = sizeof(word) - 1;

	if ((at > name && is_of_name(at[-1])) || strncmp(at, word, n) != 0 || is_of_name(at[n]))
		return 0;
	return n + (strncmp(at + n, "()", 2) == 0 ? 2 : strspn(at + n, "<>=-"));
}

char *function_name_shorten(const char *name)
{
	GString *text = g_string_new(NULL);
	unsigned depth = 0;

	for (const char *at = name; *at; at++) {
		size_t n = operator_at(name, at);

		if (n > 0) {
			if (depth == 0)
				g_string_append_len(text, at, (gssize)n);
			at += n - 1;
		} else if (*at == '<' && (depth > 0 || (at > name && is_of_name(at[-1])))) {
			if (depth++ == 0)
				g_string_append(text, "<>");
		} else if (depth == 0) {
			g_string_append_c(text, *at);
		} else if (*at == '>' && at[-1] != '-') {
			depth--;
		}
	}
	if (depth > 0)
		g_string_assign(text, name);
	return g_string_free(text, FALSE);
}

/* The parts of a name: `plain` to `end` excludes the return type and parameters; the last component
 * excludes its template arguments. */
struct parts {
	const char *plain, *end;
	const char *component, *component_end;
};

static struct parts parts_of(const char *name)
{
	struct parts parts = { .plain = name, .component = name };
	const char *at, *arguments = NULL; /* of the component's template */
	unsigned depth = 0;

	for (at = name; *at; at++) {
		size_t n = operator_at(name, at);
		bool after_name = at > name && (is_of_name(at[-1]) || at[-1] == '>');

		if (n > 0 &&
		    depth == 0) { /* the rest is part of the name: "operator bool", "new[]" */
			at += n + strcspn(at + n, "(");
			break;
		}
		/* In "(anonymous namespace)::f" and Go's "main.(*T).f", a bracket does not start
		 * parameters. */
		if (depth == 0 && *at == '(' && after_name)
			break;
		if (depth == 0 && *at == '<' && after_name && !arguments)
			arguments = at;
		if (strchr("<({[", *at)) {
			depth++;
		} else if (strchr(">)}]", *at)) {
			depth -= depth > 0 && (*at != '>' || at[-1] != '-');
		} else if (depth == 0 && *at == ' ') {
			parts.plain = parts.component = at + 1;
			arguments = NULL;
		} else if (depth == 0 && strncmp(at, "::", 2) == 0) {
			parts.component = at + 2;
			arguments = NULL;
		}
	}
	parts.end = at;
	parts.component_end = arguments ? arguments : at;
	return parts;
}

char *function_name_plain(const char *name)
{
	struct parts parts = parts_of(name);

	return g_strndup(parts.plain, (gsize)(parts.end - parts.plain));
}

static bool is_text(const char *start, const char *end, const char *text)
{
	size_t length = (size_t)(end - start);

	return strlen(text) == length && memcmp(start, text, length) == 0;
}

enum function_name_match function_name_match(const char *name, const char *raw_name,
					     const char *text)
{
	struct parts parts = parts_of(name);
	g_autofree char *shortened = NULL;

	if (!*text)
		return FUNCTION_NAME_DIFFERS;
	if (strcmp(name, text) == 0 || strcmp(raw_name, text) == 0)
		return FUNCTION_NAME_WHOLE;
	if (is_text(parts.plain, parts.end, text))
		return FUNCTION_NAME_PLAIN;
	if (is_text(parts.component, parts.component_end, text))
		return FUNCTION_NAME_COMPONENT;
	if (!strchr(text, '<'))
		return FUNCTION_NAME_DIFFERS;
	shortened = function_name_shorten(name);
	parts = parts_of(shortened);
	return strcmp(shortened, text) == 0 || is_text(parts.plain, parts.end, text)
		       ? FUNCTION_NAME_PLAIN
		       : FUNCTION_NAME_DIFFERS;
}
