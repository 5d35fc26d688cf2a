/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "tools/profile/function-names.h"

#include "tools/common/text.h"

#include <string.h>

/* A name with brackets nested more deeply stays as it is. */
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

/* Copies template arguments from after "<" up to and including ">". Returns the end, or NULL if the
 * name is malformed. */
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
						"__se_sys_",  "__riscv_sys_", "__do_sys_",
						"ksys_",      "sys_",         NULL };
	const char *rest = skip_any_prefix(raw_name, prefixes);

	return rest && *rest;
}

/* Returns whether the name is one of Ruby, such as "block in Shop::Till#sell (eval)", of PHP,
 * such as "Shop::{closure} (shop.php)" or "class@anonymous::sell (shop.php)", or of Perl, such as
 * "Shop::__ANON__ (shop.pl)" or "Shop::BEGIN (shop.pl)". A name of C++ has a '#' only in a part
 * such as "{lambda()#1}". */
static bool is_of_script(const char *name)
{
	return strstr(name, " in ") || (strchr(name, '#') && !strchr(name, '{')) ||
	       g_str_has_suffix(name, " (eval)") || strstr(name, "{closure} (") ||
	       strstr(name, "@anonymous::") || strstr(name, "__ANON__ (") ||
	       strstr(name, "::BEGIN (") || strstr(name, "::END (") ||
	       g_str_has_prefix(name, "format ");
}

/* Returns whether the name has the syntax of C++ or Rust: it was demangled, or debug information
 * has a function in a namespace without a linkage name. */
static bool is_readable(const char *name, const char *raw_name)
{
	static const char *const mangled[] = { "_Z", "_R", "_D", "__Z", NULL };
	const char *rest = skip_any_prefix(raw_name, mangled);

	return strcmp(name, raw_name) != 0
		       ? rest && *rest
		       : strstr(name, "::") != NULL && !strchr(name, '/') && !is_of_script(name);
}

/* Returns where the name starts after the return type: after the last space outside of brackets
 * that does not belong to an operator, " const" or " [clone". */
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
						  "__riscv_sys_", "__do_sys_",  "__se_sys_",
						  "ksys_",        NULL };
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

/* Returns the position after the bracket that closes the one at `at`, or the end of the name. */
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

/* Returns whether the bracket at `at` starts template arguments or Rust's "<T as Trait>", and not a
 * name as in Python's "f.<locals>.<genexpr>" or Ruby's "block in <main>". */
static bool starts_arguments(const char *name, const char *at)
{
	if (at == name)
		return strncmp(skip_brackets(at), "::", 2) == 0;
	return at[-1] != '.' && (at[-1] != ' ' || at < name + 2 || !is_of_name(at[-2]));
}

/* Replaces the arguments of the outermost templates (keeps_first: all but the first) with
 * `fill`. */
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
		} else if (*at == '<' && !starts_arguments(name, at)) {
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

static char *fit_arguments(const char *name, unsigned columns)
{
	char *fitted = g_strdup(name);

	for (unsigned step = 0; step < 2 && text_width(fitted) > columns; step++) {
		g_free(fitted);
		fitted = cut_arguments(name, text_sign(TEXT_ELLIPSIS), step == 0);
	}
	return fitted;
}

/* Returns where the first component of a name ends: "::b" of "a::b", ".<genexpr>" of
 * "f.<genexpr>". Returns NULL if there is only one. */
static const char *skip_component(const char *name)
{
	bool has_scopes = strstr(name, "::") != NULL;
	/* Paths, and names such as "libc.so.6+0x26000", have no components. */
	bool has_dots = !has_scopes && !strpbrk(name, " /+:@-");

	for (const char *at = name; *at;) {
		if (at > name && ((has_scopes && strncmp(at, "::", 2) == 0) ||
				  (has_dots && at[0] == '.' && at[1])))
			return at;
		at = strchr("<({[", *at) ? skip_brackets(at) : at + 1;
	}
	return NULL;
}

/* Replaces template arguments, then outer scopes, with an ellipsis, until the name fits. */
static char *fit_scopes(const char *name, unsigned columns)
{
	g_autofree char *fitted = fit_arguments(name, columns);
	const size_t ellipsis = strlen(text_sign(TEXT_ELLIPSIS));

	while (text_width(fitted) > columns) {
		const char *from = fitted, *next;
		char *shorter;
		size_t length;

		if (g_str_has_prefix(from, text_sign(TEXT_ELLIPSIS)))
			from += ellipsis + (from[ellipsis] == '.' ? 1 : 2);
		next = skip_component(from);
		if (!next || (*next == ':' && next > last_component(fitted, &length)) ||
		    /* "::operator()" of a lambda says nothing without the lambda */
		    (next > fitted && next[-1] == '}' && strcmp(next, "::operator()") == 0))
			break;
		shorter = g_strconcat(text_sign(TEXT_ELLIPSIS), next, NULL);
		g_free(fitted);
		fitted = shorter;
	}
	return g_steal_pointer(&fitted);
}

/* A shown name: "callee < caller  +3". */
struct shown_name {
	char *callee, *caller; /* caller: NULL = none */
	const char *skipped;   /* "  +3", or "" */
};

static struct shown_name split_shown(const char *name)
{
	const char *skipped = g_strrstr(name, "  +"), *between;
	const char *end = skipped ? skipped : name + strlen(name);
	struct shown_name shown = { .skipped = end };

	between = g_strstr_len(name, end - name, " < ");
	if (between)
		shown.caller = g_strndup(between + 3, (gsize)(end - between - 3));
	shown.callee = g_strndup(name, (gsize)((between ? between : end) - name));
	return shown;
}

static void shown_done(struct shown_name *shown)
{
	g_free(shown->callee);
	g_free(shown->caller);
}

static unsigned less(unsigned columns, unsigned used)
{
	return columns > used ? columns - used : 1;
}

static char *fit_shown(const char *name, unsigned columns,
		       char *(*fit)(const char *name, unsigned columns))
{
	CLEANUP(shown_done) struct shown_name shown = split_shown(name);
	g_autofree char *callee = NULL, *caller = NULL;

	columns = less(columns, text_width(shown.skipped));
	if (!shown.caller) {
		callee = fit(shown.callee, columns);
		return g_strconcat(callee, shown.skipped, NULL);
	}
	callee = fit(shown.callee, less(columns, 3 + text_width(shown.caller)));
	caller = fit(shown.caller, less(columns, 3 + text_width(callee)));
	return g_strconcat(callee, " < ", caller, shown.skipped, NULL);
}

static char *function_name_fit_arguments(const char *name, unsigned columns)
{
	return fit_shown(name, columns, fit_arguments);
}

char *function_name_fit(const char *name, unsigned columns)
{
	g_autofree char *fitted = fit_shown(name, columns, fit_arguments);

	return text_width(fitted) <= columns ? g_steal_pointer(&fitted)
					     : fit_shown(fitted, columns, fit_scopes);
}

/* Returns the outermost '<' of template arguments that contain `end`, or NULL. */
static const char *open_bracket(const char *name, const char *end)
{
	for (const char *at = name; at < end;) {
		size_t n = operator_at(name, at);

		if (n == 0 && *at == '<' && starts_arguments(name, at) && skip_brackets(at) > end)
			return at;
		at = n > 0 ? at + n : strchr("<({[", *at) ? skip_brackets(at) : at + 1;
	}
	return NULL;
}

/* Returns the part of `name` that differs from `other`, extended to whole words. */
static const char *find_difference(const char *name, const char *other, const char **ret_end)
{
	const char *start = name, *end = name + strlen(name), *end_of_other = other + strlen(other);

	while (*start && *start == other[start - name])
		start++;
	other += start - name;
	while (start > name && is_of_name(start[-1])) {
		start--;
		other--;
	}
	while (end > start && end_of_other > other && end[-1] == end_of_other[-1]) {
		end--;
		end_of_other--;
	}
	while (is_of_name(*end))
		end++;
	*ret_end = end;
	return start;
}

/* Shortens a name to the columns, but keeps the part that differs from `other`. */
static char *fit_difference(const char *name, const char *other, unsigned columns)
{
	const char *sign = text_sign(TEXT_ELLIPSIS), *end;
	const char *start = find_difference(name, other, &end);
	const char *bracket = open_bracket(name, start), *close, *scope;
	g_autofree char *before = NULL, *tail = NULL, *inside = NULL;

	if (!bracket) {
		char *rest = fit_arguments(start, less(columns, text_width(sign)));
		char *fitted = g_strconcat(start > name ? sign : "", rest, NULL);

		g_free(rest);
		return fitted;
	}
	close = skip_brackets(bracket);
	end = MIN_OF(end, close - 1);
	inside = g_strdup_printf("<%s%.*s%s>", start > bracket + 1 ? sign : "",
				 (int)MAX_OF(end - start, 0), start, end < close - 1 ? sign : "");
	tail = cut_arguments(close, sign, false);
	other = g_strndup(name, (gsize)(bracket - name));
	before = cut_arguments(other, sign, false);
	g_free((char *)other);
	/* Drop outer scopes, one after the other, until the name fits. */
	for (scope = before; scope; scope = skip_component(scope + 2)) {
		char *fitted = g_strconcat(scope > before ? sign : "", scope, inside, tail, NULL);

		if (text_width(fitted) <= columns)
			return fitted;
		g_free(fitted);
		if (strlen(scope) < 2)
			break;
	}
	return g_strconcat(sign, inside, tail, NULL);
}

static char *function_name_fit_apart(const char *name, const char *other, unsigned columns)
{
	CLEANUP(shown_done) struct shown_name shown = split_shown(name);
	CLEANUP(shown_done) struct shown_name from = split_shown(other);
	g_autofree char *callee = NULL, *caller = NULL;

	columns = less(columns, text_width(shown.skipped));
	if (strcmp(shown.callee, from.callee) != 0) {
		caller = shown.caller ? fit_scopes(shown.caller, columns / 2) : NULL;
		callee = fit_difference(shown.callee, from.callee,
					less(columns, caller ? 3 + text_width(caller) : 0));
	} else if (shown.caller && from.caller) {
		callee = fit_scopes(shown.callee, columns / 2);
		caller = fit_difference(shown.caller, from.caller,
					less(columns, 3 + text_width(callee)));
	} else {
		return function_name_fit(name, columns);
	}
	return g_strconcat(callee, caller ? " < " : "", caller ? caller : "", shown.skipped, NULL);
}

const struct table_fit function_name_fits = {
	.arguments = function_name_fit_arguments,
	.whole = function_name_fit,
	.apart = function_name_fit_apart,
};

/* ---- look-up by name ------------------------------------------------------------------------- */

enum function_name_match function_name_match(const char *name, const char *raw_name,
					     const char *text)
{
	g_autofree char *plain = function_name_plain(name), *simple = NULL, *people = NULL;
	g_autofree char *cut = NULL, *first = NULL, *empty = NULL, *bare = NULL;
	g_auto(GStrv) parts = NULL;
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
	/* Names in each form that is shown, and with "<>" for template arguments. */
	simple = function_name_simplify(name, raw_name);
	people = function_name_for_people(name, raw_name);
	cut = cut_arguments(people, text_sign(TEXT_ELLIPSIS), false);
	first = cut_arguments(people, text_sign(TEXT_ELLIPSIS), true);
	empty = cut_arguments(plain, "", false);
	if (g_strv_contains((const char *const[]){ simple, people, cut, first, empty, NULL }, text))
		return FUNCTION_NAME_PLAIN;
	parts = g_strsplit(empty, "<>", -1);
	bare = g_strjoinv(NULL, parts);
	return strcmp(bare, text) == 0 ? FUNCTION_NAME_COMPONENT : FUNCTION_NAME_DIFFERS;
}
