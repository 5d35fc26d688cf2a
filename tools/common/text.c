/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Text - text that is safe for a terminal
 *
 * Invariants: (1) text_escape() emits printable characters only          [test-text: hostile]
 *             (2) text_fit() returns exactly the columns asked for       [test-text: fit]
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

/*
 * Returns the length of the character at `bytes`, or of the invalid part when *ret_char is
 * (gunichar)-1: one byte, or all of a truncated sequence. NUL is a character here.
 */
static size_t text_decode(const char *bytes, size_t length, gunichar *ret_char)
{
	gunichar c = g_utf8_get_char_validated(bytes, (gssize)length);
	size_t skip = 1;

	if (*bytes == '\0') {
		*ret_char = 0;
		return 1;
	}
	if (c != (gunichar)-1 && c != (gunichar)-2) {
		*ret_char = c;
		return (size_t)(g_utf8_next_char(bytes) - bytes);
	}
	*ret_char = (gunichar)-1;
	if (c == (gunichar)-2) /* cut off at the end: one mark for all of it */
		return length;
	while (skip < length && ((unsigned char)bytes[skip] & 0xc0) == 0x80)
		skip++;
	return skip;
}

void text_append_valid(GString *to, const char *bytes, size_t length)
{
	while (length > 0) {
		gunichar c;
		size_t n = text_decode(bytes, length, &c);

		if (c == (gunichar)-1)
			g_string_append(to, REPLACEMENT);
		else
			g_string_append_len(to, bytes, (gssize)n);
		bytes += n;
		length -= n;
	}
}

static bool text_is_harmless(gunichar c)
{
	GUnicodeType type = g_unichar_type(c);

	return g_unichar_isprint(c) && type != G_UNICODE_LINE_SEPARATOR &&
	       type != G_UNICODE_PARAGRAPH_SEPARATOR && type != G_UNICODE_PRIVATE_USE;
}

static void text_append_escaped(GString *to, gunichar c)
{
	if (c == '\n')
		g_string_append(to, "\\n");
	else if (c == '\t')
		g_string_append(to, "\\t");
	else if (c < 0x80)
		g_string_append_printf(to, "\\x%02x", c);
	else
		g_string_append_printf(to, "\\u{%x}", c);
}

static char *escape(const char *bytes, size_t length, bool is_ascii)
{
	GString *to = g_string_sized_new(length + 1);

	while (length > 0) {
		gunichar c;
		size_t n = text_decode(bytes, length, &c);

		if (c == (gunichar)-1)
			g_string_append(to, is_ascii ? "?" : REPLACEMENT);
		else if (text_is_harmless(c) && (c < 0x80 || !is_ascii))
			g_string_append_len(to, bytes, (gssize)n);
		else
			text_append_escaped(to, c);
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

/* Returns the end of the longest head of `text` that takes at most `width` columns. */
static const char *text_head(const char *text, unsigned width, unsigned *ret_width)
{
	unsigned used = 0;

	for (; *text; text = g_utf8_next_char(text)) {
		unsigned w = text_char_width(g_utf8_get_char(text));

		if (used + w > width)
			break;
		used += w;
	}
	*ret_width = used;
	return text;
}

/* Returns the start of the longest tail of `text` that takes at most `width` columns. */
static const char *text_tail(const char *text, unsigned width, unsigned *ret_width)
{
	unsigned used = text_width(text);

	for (; *text && used > width; text = g_utf8_next_char(text))
		used -= text_char_width(g_utf8_get_char(text));
	while (*text && text_char_width(g_utf8_get_char(text)) == 0)
		text = g_utf8_next_char(text); /* a combining mark without its letter */
	*ret_width = used;
	return text;
}

static void text_fill(GString *to, unsigned columns)
{
	for (; columns > 0; columns--)
		g_string_append_c(to, ' ');
}

char *text_fit(const char *text, unsigned width, enum text_align align)
{
	const char *ellipsis = text_sign(TEXT_ELLIPSIS);
	unsigned cut = MIN_OF(text_width(ellipsis), width);
	GString *to = g_string_sized_new(width + 8);
	unsigned used = text_width(text);
	/* "..." may be wider than the cell. */
	gssize cut_bytes = *ellipsis == '.' ? (gssize)cut : -1;

	if (used <= width) {
		if (align == TEXT_RIGHT)
			text_fill(to, width - used);
		g_string_append(to, text);
		if (align != TEXT_RIGHT)
			text_fill(to, width - used);
	} else if (width > 0 && align == TEXT_TAIL) {
		const char *tail = text_tail(text, width - cut, &used);

		g_string_append_len(to, ellipsis, cut_bytes);
		g_string_append(to, tail);
		text_fill(to, width - cut - used);
	} else if (width > 0) {
		const char *end = text_head(text, width - cut, &used);

		g_string_append_len(to, text, end - text);
		g_string_append_len(to, ellipsis, cut_bytes);
		text_fill(to, width - cut - used);
	}
	return g_string_free(to, FALSE);
}

void text_cell(struct out *out, const char *bytes, unsigned width, enum text_align align)
{
	g_autofree char *escaped = text_escape(bytes);
	g_autofree char *fitted = width > 0 ? text_fit(escaped, width, align) : NULL;

	out_text(out, fitted ? fitted : escaped);
}

void text_wrap(struct out *out, const char *text, unsigned column, unsigned indent,
	       unsigned columns)
{
	g_auto(GStrv) words = g_strsplit(text, " ", -1);

	for (unsigned i = 0; words[i]; i++) {
		unsigned width = text_width(words[i]);

		if (i > 0 && columns > 0 && column + 1 + width > columns) {
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

/* Returns the number with three digits: "3.18", "46.8", "618". */
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

char *text_count(uint64_t count)
{
	/* The apostrophe groups digits as the locale does. */
	return g_strdup_printf("%'" G_GUINT64_FORMAT, count);
}

char *text_percent(double percent, bool fine)
{
	if (percent > 0 && percent < (fine ? 0.05 : 0.5))
		return g_strdup(fine ? "<0.1" : "<1");
	return g_strdup_printf("%.*f", fine ? 1 : 0, percent);
}
