/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "tools/profile/function-names.h"

#include "tools/common/text.h"

#include <string.h>

/* A name with more nested brackets stays as it is. */
#define MAX_DEPTH 64

static bool is_of_name(char c)
{
	return g_ascii_isalnum(c) || c == '_';
}

/* Returns the length of a name such as "operator<<", whose signs are not brackets; 0: no
 * operator. */
static size_t operator_at(const char *name, const char *at)
{
	static const char word[] = "operator";
	size_t n = sizeof(word) - 1;

	if ((at > name && is_of_name(at[-1])) || strncmp(at, word, n) != 0 || is_of_name(at[n]))
		return 0;
	return n + (strncmp(at + n, "()", 2) == 0 ? 2 : strspn(at + n, "<>=-"));
}

const char *skip_any_prefix(const char *text, const char *const *prefixes)
{
	for (; *prefixes; prefixes++)
		if (g_str_has_prefix(text, *prefixes))
			return text + strlen(*prefixes);
	return NULL;
}

/* ---- simplified names ------------------------------------------------------------------------ */

/* Returns whether `to` ends with the name of a standard library template. */
static bool ends_with_std(const GString *to)
{
	static const char *const namespaces[] = { "std::", "__gnu_cxx::", NULL };
	size_t start = to->len;
	const char *word = g_strrstr(to->str, "operator");

	if (word && word[8 + strspn(word + 8, "+-*/%<>=!&|^~[]() ")] == '\0')
		start = (size_t)(word - to->str);
	while (start > 0 && (is_of_name(to->str[start - 1]) || to->str[start - 1] == ':'))
		start--;
	return skip_any_prefix(to->str + start, namespaces);
}

/* Replaces "std::basic_string<char>" with "std::string", and the like. */
static void name_common_templates(GString *to)
{
	static const char *const suffixes[] = { "<char>", "<wchar_t>" };

	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		size_t length = strlen(suffixes[i]), start;

		if (!g_str_has_suffix(to->str, suffixes[i]))
			continue;
		for (start = to->len - length; start > 0 && is_of_name(to->str[start - 1]);)
			start--;
		if (start < 5 || strncmp(to->str + start - 5, "std::basic_", 11) != 0)
			return;
		g_string_truncate(to, to->len - length);
		g_string_erase(to, (gssize)start, 6);
		if (i == 1)
			g_string_insert_c(to, (gssize)start, 'w');
		return;
	}
}

static const char *copy_until(GString *to, const char *name, const char *at, const char *ends,
			      unsigned depth);

/* Copies template arguments from after "<" up to and with ">". Returns the end, or NULL if the name
 * is malformed. */
static const char *copy_arguments(GString *to, const char *name, const char *at, unsigned depth)
{
	static const char *const defaults[] = { "std::allocator<",  "std::char_traits<",
						"std::less<",       "std::hash<",
						"std::equal_to<",   "std::default_delete<",
						"std::_Select1st<", "std::_Identity<",
						"std::__detail::",  NULL };
	g_autoptr(GPtrArray) arguments = g_ptr_array_new_with_free_func(g_free);
	bool is_std = ends_with_std(to);

	for (;;) {
		GString *argument = g_string_new(NULL);

		at += strspn(at, " ");
		at = copy_until(argument, name, at, ",>", depth + 1);
		g_ptr_array_add(arguments, g_strchomp(g_string_free(argument, FALSE)));
		if (!at || *at == '\0')
			return NULL;
		if (*at++ == '>')
			break;
	}
	while (is_std && arguments->len > 1 &&
	       skip_any_prefix(arguments->pdata[arguments->len - 1], defaults))
		g_ptr_array_set_size(arguments, (gint)arguments->len - 1);
	g_string_append_c(to, '<');
	for (guint i = 0; i < arguments->len; i++)
		g_string_append_printf(to, "%s%s", i ? ", " : "", (char *)arguments->pdata[i]);
	g_string_append_c(to, '>');
	name_common_templates(to);
	return at;
}

/* Copies up to one of `ends` outside of brackets, or to the end of the name. Returns where it
 * stopped, or NULL if the name is malformed. */
static const char *copy_until(GString *to, const char *name, const char *at, const char *ends,
			      unsigned depth)
{
	static const char *const inline_namespaces[] = { "__cxx11::", "__1::", "__ndk1::", "_V2::",
							 NULL };

	if (depth > MAX_DEPTH)
		return NULL;
	while (*at) {
		size_t n = operator_at(name, at);
		const char *inner = NULL;
		char close = *at == '(' ? ')' : *at == '[' ? ']' : *at == '{' ? '}' : '\0';

		if (at - name >= 5 && strncmp(at - 5, "std::", 5) == 0)
			inner = skip_any_prefix(at, inline_namespaces);
		if (n > 0) {
			g_string_append_len(to, at, (gssize)n);
			at += n;
		} else if (inner) {
			at = inner;
		} else if (strchr(ends, *at) && !(*at == '>' && at[-1] == '-')) {
			return at;
		} else if (*at == '<') {
			at = copy_arguments(to, name, at + 1, depth);
			if (!at)
				return NULL;
		} else if (close) {
			g_string_append_c(to, *at);
			at = copy_until(to, name, at + 1, (const char[]){ close, '\0' }, depth + 1);
			if (!at || *at == '\0')
				return NULL;
			g_string_append_c(to, *at++);
		} else {
			g_string_append_c(to, *at++);
		}
	}
	return at;
}

bool function_name_is_syscall(const char *raw_name)
{
	static const char *const prefixes[] = { "__x64_sys_", "__ia32_sys_",  "__arm64_sys_",
						"__se_sys_",  "__riscv_sys_", "sys_",
						NULL };
	const char *rest = skip_any_prefix(raw_name, prefixes);

	return rest && *rest;
}

/* Returns whether the name has the syntax of C++ or Rust: it was demangled, or debug information
 * has a function in a namespace without a linkage name. */
static bool is_readable(const char *name, const char *raw_name)
{
	static const char *const mangled[] = { "_Z", "_R", "_D", "__Z", NULL };
	const char *rest = skip_any_prefix(raw_name, mangled);

	return strcmp(name, raw_name) != 0 ? rest && *rest
					   : strstr(name, "::") != NULL && !strchr(name, '/');
}

/* Returns where the name starts after the return type: after the last space outside of brackets
 * that does not belong to an operator, "thunk to" or "guard variable for". */
static const char *skip_return_type(const char *name)
{
	const char *start = name;
	unsigned depth = 0;

	for (const char *at = name; *at; at++) {
		size_t n = operator_at(name, at);

		if (n > 0 && depth == 0)
			break;
		if (n > 0)
			at += n - 1;
		else if (strchr("<({[", *at))
			/* Only parameters follow a name directly. */
			depth++;
		else if (strchr(">)}]", *at))
			depth -= depth > 0 && (*at != '>' || at == name || at[-1] != '-');
		else if (depth == 0 && *at == ' ' && strncmp(at, " const", 6) != 0 &&
			 strncmp(at, " [clone", 7) != 0)
			start = at + 1;
	}
	return start;
}

char *function_name_simplify(const char *name, const char *raw_name)
{
	/* prefixes that glibc and the kernel add to the well-known names of functions */
	static const char *const c_prefixes[] = { "__GI_",        "__x64_sys_", "__arm64_sys_",
						  "__riscv_sys_", "ksys_",      NULL };
	GString *to;

	if (!is_readable(name, raw_name)) {
		const char *rest = skip_any_prefix(name, c_prefixes);

		return g_strdup(rest && *rest ? rest : name);
	}
	to = g_string_sized_new(64);
	if (!copy_until(to, name, name, "", 0))
		g_string_assign(to, name);
	if (!strstr(to->str, " to ") && !strstr(to->str, " for "))
		g_string_erase(to, 0, skip_return_type(to->str) - to->str);
	return g_string_free(to, FALSE);
}

char *function_name_for_people(const char *name, const char *raw_name)
{
	g_autofree char *simple = function_name_simplify(name, raw_name);

	if (!is_readable(name, raw_name) || strstr(simple, " to ") || strstr(simple, " for "))
		return g_steal_pointer(&simple);
	return function_name_plain(simple);
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* Returns where the bracket at `at` is closed, or the end of the name. */
static const char *skip_brackets(const char *at)
{
	unsigned depth = 0;

	for (; *at; at++) {
		if (strchr("<({[", *at))
			depth++;
		else if (strchr(">)}]", *at) && (*at != '>' || at[-1] != '-') && --depth == 0)
			return at + 1;
	}
	return at;
}

char *function_name_plain(const char *name)
{
	GString *plain = g_string_new(NULL);
	const char *at = name;

	while (*at) {
		size_t n = operator_at(name, at);
		bool is_after_name = at > name && (is_of_name(at[-1]) || strchr(">}'", at[-1]));
		const char *end;

		if (n > 0) { /* the rest belongs to the name: "operator bool", "new[]" */
			n += strcspn(at + n, "(");
			g_string_append_len(plain, at, (gssize)n);
			at += n;
			is_after_name = true;
		}
		/* In "(anonymous namespace)::f" and Go's "main.(*T).f", a bracket does not start
		 * parameters. */
		if (*at == '(' && is_after_name) {
			at = skip_brackets(at);
			/* a lambda of the function may follow: "f(int) const::{lambda()#1}" */
			at += strncmp(at, " const::", 8) == 0 ? 6 : 0;
			if (strncmp(at, "::", 2) != 0)
				break;
		} else if (strchr("<({[", *at) && *at) {
			end = skip_brackets(at);
			g_string_append_len(plain, at, end - at);
			at = end;
		} else if (*at == ' ') {
			g_string_truncate(plain, 0);
			at++;
		} else if (*at) {
			g_string_append_c(plain, *at++);
		}
	}
	return g_string_free(plain, FALSE);
}

/* Returns the last component of a plain name, and its length without template arguments. */
static const char *last_component(const char *plain, size_t *ret_length)
{
	const char *component = plain, *arguments = NULL, *at = plain;

	while (*at) {
		size_t n = operator_at(plain, at);

		if (n > 0) {
			at += n + strcspn(at + n, "(");
		} else if (strncmp(at, "::", 2) == 0) {
			component = at += 2;
			arguments = NULL;
		} else if (strchr("<({[", *at)) {
			if (*at == '<' && !arguments && at > component)
				arguments = at;
			at = skip_brackets(at);
		} else {
			at++;
		}
	}
	*ret_length = (size_t)((arguments ? arguments : at) - component);
	return component;
}

/* ---- narrow columns -------------------------------------------------------------------------- */

/* Replaces the arguments of the outermost templates, or those after the first, with `fill`. */
static char *cut_arguments(const char *name, const char *fill, bool keeps_first)
{
	GString *to = g_string_new(NULL);
	const char *at = name;

	while (*at) {
		size_t n = operator_at(name, at);
		const char *end;

		if (n > 0) {
			g_string_append_len(to, at, (gssize)n);
			at += n;
		} else if (*at == '<' && at > name && at[-1] == '.') {
			/* Python's "f.<locals>.<genexpr>" has no arguments. */
			end = skip_brackets(at);
			g_string_append_len(to, at, end - at);
			at = end;
		} else if (*at == '<') {
			size_t first = 1;

			end = skip_brackets(at);
			while (keeps_first && at + first < end - 1 && at[first] != ',')
				first = (size_t)((strchr("<({[", at[first])
							  ? skip_brackets(at + first)
							  : at + first + 1) -
						 at);
			if (keeps_first)
				g_string_append_len(to, at, (gssize)first);
			else
				g_string_append_c(to, '<');
			if (!keeps_first || at + first < end - 1)
				g_string_append(to, fill);
			g_string_append_c(to, '>');
			at = end;
		} else {
			g_string_append_c(to, *at++);
		}
	}
	return g_string_free(to, FALSE);
}

/* Fits one name. */
static char *fit_one(const char *name, unsigned columns)
{
	g_autofree char *fitted = g_strdup(name);

	for (unsigned step = 0; step < 2 && text_width(fitted) > columns; step++) {
		g_free(fitted);
		fitted = cut_arguments(name, text_sign(TEXT_ELLIPSIS), step == 0);
	}
	while (text_width(fitted) > columns) {
		const char *from = fitted;
		const char *next;
		char *shorter;
		size_t length;

		if (g_str_has_prefix(from, text_sign(TEXT_ELLIPSIS)))
			from += strlen(text_sign(TEXT_ELLIPSIS)) + 2;
		next = from;
		while (*next && strncmp(next, "::", 2) != 0)
			next = strchr("<({[", *next) ? skip_brackets(next) : next + 1;
		if (!*next || next > last_component(fitted, &length))
			break;
		shorter = g_strconcat(text_sign(TEXT_ELLIPSIS), next, NULL);
		g_free(fitted);
		fitted = shorter;
	}
	if (text_width(fitted) > columns && strstr(fitted, ".<")) {
		char *last = g_strconcat(text_sign(TEXT_ELLIPSIS), strrchr(fitted, '.'), NULL);

		g_free(fitted);
		fitted = last;
	}
	return g_steal_pointer(&fitted);
}

char *function_name_fit(const char *name, unsigned columns)
{
	const char *skipped = g_strrstr(name, "  +"), *between;
	unsigned used = skipped ? text_width(skipped) : 0, room;
	g_autofree char *both = skipped ? g_strndup(name, (size_t)(skipped - name))
					: g_strdup(name);
	g_autofree char *callee = NULL, *caller = NULL, *fitted = NULL;

	columns = columns > used ? columns - used : 1;
	between = strstr(both, " < ");
	if (!between) {
		fitted = fit_one(both, columns);
		return g_strconcat(fitted, skipped, NULL);
	}
	room = text_width(between);
	fitted = g_strndup(both, (size_t)(between - both));
	callee = fit_one(fitted, columns > room ? columns - room : 1);
	room = text_width(callee) + 3;
	caller = fit_one(between + 3, columns > room ? columns - room : 1);
	return g_strconcat(callee, " < ", caller, skipped, NULL);
}

/* ---- look-up by name ------------------------------------------------------------------------- */

enum function_name_match function_name_match(const char *name, const char *raw_name,
					     const char *text)
{
	g_autofree char *plain = function_name_plain(name), *simple = NULL, *people = NULL;
	g_autofree char *cut = NULL, *first = NULL, *empty = NULL;
	const char *component;
	size_t length;

	if (!*text)
		return FUNCTION_NAME_DIFFERS;
	if (strcmp(name, text) == 0 || strcmp(raw_name, text) == 0)
		return FUNCTION_NAME_WHOLE;
	if (strcmp(plain, text) == 0)
		return FUNCTION_NAME_PLAIN;
	component = last_component(plain, &length);
	if (strlen(text) == length && memcmp(component, text, length) == 0)
		return FUNCTION_NAME_COMPONENT;
	/* Names as they are shown, and with "<>" for arguments. */
	simple = function_name_simplify(name, raw_name);
	people = function_name_for_people(name, raw_name);
	cut = cut_arguments(people, text_sign(TEXT_ELLIPSIS), false);
	first = cut_arguments(people, text_sign(TEXT_ELLIPSIS), true);
	empty = cut_arguments(plain, "", false);
	return g_strv_contains((const char *const[]){ simple, people, cut, first, empty, NULL },
			       text)
		       ? FUNCTION_NAME_PLAIN
		       : FUNCTION_NAME_DIFFERS;
}
