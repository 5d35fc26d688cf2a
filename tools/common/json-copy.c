/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/common/json-copy.h"

#include <string.h>

#define MAX_NESTING 32

/* A parser that writes each value after reading it. */
struct copy {
	const char *at;
	struct json json; /* in memory, because the text may turn out to be invalid */
	unsigned depth;
};

static bool copy_value(struct copy *copy, const char *key);

static void skip_space(struct copy *copy)
{
	copy->at += strspn(copy->at, " \t\r\n");
}

static bool match(struct copy *copy, const char *word)
{
	size_t length = strlen(word);

	if (strncmp(copy->at, word, length) != 0)
		return false;
	copy->at += length;
	return true;
}

static bool parse_hex4(struct copy *copy, gunichar *ret_unit)
{
	gunichar unit = 0;

	for (unsigned i = 0; i < 4; i++) {
		int digit = g_ascii_xdigit_value(*copy->at);

		if (digit < 0)
			return false;
		unit = unit << 4 | (gunichar)digit;
		copy->at++;
	}
	*ret_unit = unit;
	return true;
}

static bool parse_unicode(struct copy *copy, GString *text)
{
	gunichar unit, low;

	if (!parse_hex4(copy, &unit))
		return false;
	if (unit >= 0xd800 && unit < 0xdc00 && match(copy, "\\u")) {
		if (!parse_hex4(copy, &low) || low < 0xdc00 || low > 0xdfff)
			return false;
		unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
	}
	g_string_append_unichar(text, unit && g_unichar_validate(unit) ? unit : 0xfffd);
	return true;
}

static bool parse_escape(struct copy *copy, GString *text)
{
	static const char letters[] = "\"\\/bfnrt";
	static const char meant[] = "\"\\/\b\f\n\r\t";
	const char *letter;

	if (match(copy, "u"))
		return parse_unicode(copy, text);
	letter = *copy->at ? strchr(letters, *copy->at) : NULL;
	if (!letter)
		return false;
	g_string_append_c(text, meant[letter - letters]);
	copy->at++;
	return true;
}

static bool parse_string(struct copy *copy, GString *text)
{
	if (!match(copy, "\""))
		return false;
	while (*copy->at != '"') {
		if ((unsigned char)*copy->at < 0x20)
			return false;
		if (match(copy, "\\")) {
			if (!parse_escape(copy, text))
				return false;
			continue;
		}
		g_string_append_c(text, *copy->at++);
	}
	copy->at++;
	return true;
}

static bool copy_number(struct copy *copy, const char *key)
{
	size_t length = strspn(copy->at, "-+.0123456789eE");
	g_autofree char *text = g_strndup(copy->at, length);
	char *end;
	gint64 integer;
	guint64 natural;
	double number = g_ascii_strtod(text, &end);

	if (length == 0 || *end || !(g_ascii_isdigit(*text) || *text == '-'))
		return false;
	copy->at += length;
	if (g_ascii_string_to_unsigned(text, 10, 0, G_MAXUINT64, &natural, NULL))
		json_uint(&copy->json, key, natural);
	else if (g_ascii_string_to_signed(text, 10, G_MININT64, G_MAXINT64, &integer, NULL))
		json_int(&copy->json, key, integer);
	else
		json_double(&copy->json, key, number);
	return true;
}

static bool copy_members(struct copy *copy, bool object)
{
	const char *end = object ? "}" : "]";

	skip_space(copy);
	if (match(copy, end))
		return true;
	do {
		g_autoptr(GString) key = g_string_new(NULL);

		skip_space(copy);
		if (object) {
			if (!parse_string(copy, key))
				return false;
			skip_space(copy);
			if (!match(copy, ":"))
				return false;
		}
		if (!copy_value(copy, object ? key->str : NULL))
			return false;
		skip_space(copy);
	} while (match(copy, ","));
	return match(copy, end);
}

static bool copy_nested(struct copy *copy, const char *key, bool object)
{
	bool ok;

	if (copy->depth == MAX_NESTING)
		return false;
	copy->depth++;
	if (object)
		json_begin_object(&copy->json, key);
	else
		json_begin_array(&copy->json, key);
	ok = copy_members(copy, object);
	json_end(&copy->json);
	copy->depth--;
	return ok;
}

static bool copy_value(struct copy *copy, const char *key)
{
	g_autoptr(GString) text = g_string_new(NULL);

	skip_space(copy);
	if (match(copy, "{"))
		return copy_nested(copy, key, true);
	if (match(copy, "["))
		return copy_nested(copy, key, false);
	if (*copy->at == '"') {
		if (!parse_string(copy, text))
			return false;
		json_string_n(&copy->json, key, text->str, text->len);
	} else if (match(copy, "null")) {
		json_null(&copy->json, key);
	} else if (match(copy, "true")) {
		json_bool(&copy->json, key, true);
	} else if (match(copy, "false")) {
		json_bool(&copy->json, key, false);
	} else {
		return copy_number(copy, key);
	}
	return true;
}

void json_copy(struct json *json, const char *key, const char *text)
{
	struct copy copy = { .at = text ? text : "" };
	CLEANUP_OUT struct out out = out_buffer();
	bool ok;

	json_init(&copy.json, &out);
	ok = copy_value(&copy, NULL);
	skip_space(&copy);
	if (ok && !*copy.at) {
		/* Remove the newline that ends a value at the top level. */
		g_string_truncate(out.text, out.text->len - 1);
		json_raw(json, key, out.text->str);
	} else {
		json_null(json, key);
	}
	json_done(&copy.json);
}
