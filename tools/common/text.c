/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Text - text that is safe for a terminal
 *
 * Invariants: (1) text_escape() emits printable characters only          [test-text: hostile]
 *             (2) text_fit() returns exactly the requested columns       [test-text: fit]
 */
#include "tools/common/text.h"

#define REPLACEMENT "\357\277\275" /* U+FFFD */

const char *text_sign(enum text_sign sign)
{
	static const char *const signs[][2] = {
		[TEXT_ELLIPSIS] = { "...", "…" },      [TEXT_AT_LEAST] = { ">=", "≥" },
		[TEXT_PLUS_MINUS] = { "+-", "±" },     [TEXT_BRANCH] = { "|- ", "├─ " },
		[TEXT_LAST_BRANCH] = { "`- ", "└─ " }, [TEXT_LINE] = { "|  ", "│  " },
	};

	return signs[sign][g_get_charset(NULL)];
}

/* Returns the length of the character at `bytes`, or of the invalid part if *ret_char is
 * (gunichar)-1: a byte and the continuation bytes after it, or all of a truncated sequence. NUL is
 * treated as a character. */
static size_t text_decode(const char *bytes, size_t length, gunichar *ret_char)
{
	gunichar c = *bytes ? g_utf8_get_char_validated(bytes, (gssize)length) : 0;
	size_t n = 1;

	*ret_char = c == (gunichar)-2 ? (gunichar)-1 : c;
	if (c == 0)
		return 1;
	if (c == (gunichar)-2) /* truncated at the end: one U+FFFD for the whole sequence */
		return length;
	if (c != (gunichar)-1)
		return (size_t)(g_utf8_next_char(bytes) - bytes);
	while (n < length && ((unsigned char)bytes[n] & 0xc0) == 0x80)
		n++;
	return n;
}

void text_append_valid(GString *to, const char *bytes, size_t length)
{
	while (length > 0) {
		const char *end;
		gunichar c;
		size_t n;

		/* Find the valid part at once, because nearly all texts are valid up to their
		 * end. */
		(void)g_utf8_validate(bytes, (gssize)length, &end);
		g_string_append_len(to, bytes, end - bytes);
		length -= (size_t)(end - bytes);
		bytes = end;
		if (length == 0)
			break;
		n = text_decode(bytes, length, &c);
		if (c == (gunichar)-1)
			g_string_append(to, REPLACEMENT);
		else
			g_string_append_len(to, bytes, (gssize)n);
		bytes += n;
		length -= n;
	}
}

static char *escape(const char *bytes, size_t length, bool is_ascii)
{
	GString *to = g_string_sized_new(length + 1);

	while (length > 0) {
		gunichar c;
		size_t n = text_decode(bytes, length, &c);
		GUnicodeType type = g_unichar_type(c);

		if (c == (gunichar)-1)
			g_string_append(to, is_ascii ? "?" : REPLACEMENT);
		else if (g_unichar_isprint(c) && (c < 0x80 || !is_ascii) &&
			 type != G_UNICODE_LINE_SEPARATOR &&
			 type != G_UNICODE_PARAGRAPH_SEPARATOR && type != G_UNICODE_PRIVATE_USE)
			g_string_append_len(to, bytes, (gssize)n);
		else if (c == '\n' || c == '\t')
			g_string_append(to, c == '\n' ? "\\n" : "\\t");
		else
			g_string_append_printf(to, c < 0x80 ? "\\x%02x" : "\\u{%x}", c);
		bytes += n;
		length -= n;
	}
	return g_string_free(to, FALSE);
}

char *text_escape_utf8(const char *bytes, size_t length)
{
	return escape(bytes, length, false);
}

char *text_escape_n(const char *bytes, size_t length)
{
	return escape(bytes, length, !g_get_charset(NULL));
}

char *text_shell_word(const char *word)
{
	g_autofree char *printable = text_escape_utf8(word, strlen(word));
	bool is_plain = *word;
	GString *octal;

	for (const char *c = word; *c; c++)
		is_plain = is_plain && (g_ascii_isalnum(*c) || strchr("/._-+:@%,=", *c) ||
					(unsigned char)*c >= 0x80);
	if (strcmp(printable, word) == 0)
		return is_plain ? g_strdup(word) : g_shell_quote(word);
	octal = g_string_new("$'");
	for (const char *c = word; *c; c++)
		if (g_ascii_isprint(*c) && *c != '\'' && *c != '\\')
			g_string_append_c(octal, *c);
		else
			g_string_append_printf(octal, "\\%03o", (unsigned char)*c);
	g_string_append_c(octal, '\'');
	return g_string_free(octal, FALSE);
}

char *text_shell_file(const char *file)
{
	g_autofree char *path = g_strconcat("./", file, NULL);

	return text_shell_word(file[0] == '-' && file[1] ? path : file);
}

char *text_escape(const char *bytes)
{
	return text_escape_n(bytes, strlen(bytes));
}

static unsigned text_char_width(gunichar c)
{
	if (g_unichar_iszerowidth(c))
		return 0;
	return g_unichar_iswide(c) ? 2 : 1;
}

unsigned text_width(const char *text)
{
	unsigned width = 0;

	for (; *text; text = g_utf8_next_char(text))
		width += text_char_width(g_utf8_get_char(text));
	return width;
}

char *text_fit(const char *text, unsigned width, enum text_align align)
{
	const char *ellipsis = text_sign(TEXT_ELLIPSIS), *end = text;
	/* "..." may be wider than the cell */
	unsigned cut = MIN_OF(text_width(ellipsis), width), used = text_width(text), w;
	int cut_bytes = *ellipsis == '.' ? (int)cut : (int)strlen(ellipsis);

	if (used <= width) {
		int pad = (int)(width - used);

		return align == TEXT_RIGHT ? g_strdup_printf("%*s%s", pad, "", text)
					   : g_strdup_printf("%s%*s", text, pad, "");
	}
	if (width == 0)
		return g_strdup("");
	if (align == TEXT_TAIL) {
		for (; *text && used > width - cut; text = g_utf8_next_char(text))
			used -= text_char_width(g_utf8_get_char(text));
		while (*text && text_char_width(g_utf8_get_char(text)) == 0)
			text = g_utf8_next_char(text); /* a combining mark without its letter */
		return g_strdup_printf("%.*s%s%*s", cut_bytes, ellipsis, text,
				       (int)(width - cut - used), "");
	}
	for (used = 0; *end; end = g_utf8_next_char(end), used += w) {
		w = text_char_width(g_utf8_get_char(end));
		if (used + w > width - cut)
			break;
	}
	return g_strdup_printf("%.*s%.*s%*s", (int)(end - text), text, cut_bytes, ellipsis,
			       (int)(width - cut - used), "");
}

char *text_cut(const char *text, unsigned width)
{
	return width > 0 && text_width(text) > width ? text_fit(text, width, TEXT_LEFT)
						     : g_strdup(text);
}

void text_cell(struct out *out, const char *bytes, unsigned width)
{
	g_autofree char *escaped = text_escape(bytes);
	g_autofree char *fitted = width > 0 ? text_fit(escaped, width, TEXT_LEFT) : NULL;

	out_text(out, fitted ? fitted : escaped);
}

/* Returns whether two words stay on one line: a number and its unit. */
static bool is_number_with_unit(const char *word, const char *next)
{
	static const char *const units[] = { "%",   "ns",  "us",  "ms",  "s", "B",
					     "KiB", "MiB", "GiB", "TiB", NULL };
	size_t length = strlen(word);
	g_autofree char *unit = g_strndup(next, strcspn(next, ".,;:)"));

	return length > 0 && g_ascii_isdigit(word[length - 1]) && g_strv_contains(units, unit);
}

void text_wrap(struct out *out, const char *text, unsigned column, unsigned indent,
	       unsigned columns)
{
	g_auto(GStrv) words = g_strsplit(text, " ", -1);

	for (unsigned i = 0; words[i]; i++) {
		unsigned width = text_width(words[i]);

		unsigned unit = words[i + 1] && is_number_with_unit(words[i], words[i + 1])
					? 1 + text_width(words[i + 1])
					: 0;

		if (i > 0 && columns > 0 && column + 1 + width + unit > columns &&
		    !is_number_with_unit(words[i - 1], words[i])) {
			out_printf(out, "\n%*s", (int)indent, "");
			column = indent;
		} else if (i > 0) {
			out_char(out, ' ');
			column++;
		}
		out_text(out, words[i]);
		column += width;
	}
	out_char(out, '\n');
}

/* Returns the number with three digits, and its unit: "3.18 s", "46.8 s", "618 s". */
static char *three_digits(double value, const char *unit)
{
	int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;

	return g_strdup_printf("%.*f %s", decimals, value, unit);
}

char *text_bytes(uint64_t bytes)
{
	static const char *const units[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double value = (double)bytes / 1024;
	unsigned unit = 0;

	if (bytes < 1024)
		return g_strdup_printf("%u B", (unsigned)bytes);
	for (; value >= 1023.5 && unit + 1 < ARRAY_SIZE(units); unit++)
		value /= 1024;
	return three_digits(value, units[unit]);
}

char *text_duration(uint64_t ns)
{
	const uint64_t second = UINT64_C(1000000000);

	if (ns < 1000)
		return g_strdup_printf("%u ns", (unsigned)ns);
	if (ns < 999500)
		return three_digits((double)ns / 1e3, "us");
	if (ns < 999500000)
		return three_digits((double)ns / 1e6, "ms");
	if (ns < 120 * second)
		return three_digits((double)ns / 1e9, "s");
	return g_strdup_printf("%" G_GUINT64_FORMAT " min %02u s", ns / (60 * second),
			       (unsigned)(ns / second % 60));
}

char *text_seconds(int64_t ns)
{
	const uint64_t second = UINT64_C(1000000000);
	uint64_t absolute = ns < 0 ? -(uint64_t)ns : (uint64_t)ns;
	char *text = g_strdup_printf("%s%" G_GUINT64_FORMAT ".%09" G_GUINT64_FORMAT,
				     ns < 0 ? "-" : "", absolute / second, absolute % second);
	size_t length = strlen(text);

	while (text[length - 1] == '0' && text[length - 2] != '.')
		text[--length] = '\0';
	return text;
}

char *text_bound(int64_t ns, bool is_end)
{
	const int64_t unit = 1000000;
	int64_t units = MAX_OF(ns, INT64_C(0)) / unit;

	/* The end of a range is not part of it. */
	if (is_end)
		units++;
	return text_seconds(units > INT64_MAX / unit ? INT64_MAX : units * unit);
}

char *text_hex(const void *bytes, uint64_t n)
{
	GString *hex = g_string_new(NULL);

	for (uint64_t i = 0; i < n; i++) {
		g_string_append_c(hex, "0123456789abcdef"[((const uint8_t *)bytes)[i] >> 4]);
		g_string_append_c(hex, "0123456789abcdef"[((const uint8_t *)bytes)[i] & 15]);
	}
	return g_string_free(hex, FALSE);
}

char *text_count(uint64_t count)
{
	/* The apostrophe groups digits as in the locale. */
	return g_strdup_printf("%'" G_GUINT64_FORMAT, count);
}

char *text_percent(double percent, bool fine)
{
	if (percent > 0 && percent < (fine ? 0.05 : 0.5))
		return g_strdup(fine ? "<0.1" : "<1");
	/* The margin lets a sum of rounded parts be 100. */
	if (percent >= (fine ? 99.95 : 99.5) && percent < 100 - 1e-9)
		return g_strdup(fine ? ">99.9" : ">99");
	return g_strdup_printf("%.*f", fine ? 1 : 0, percent);
}
