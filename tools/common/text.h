/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Text - text that is safe for a terminal
 *
 * Names come from other people's processes and files. text_escape() makes any bytes harmless to a
 * terminal. The other functions count columns instead of bytes, so that tables line up with wide
 * and combining characters.
 */
#pragma once

#include "tools/common/out.h"

/*
 * Returns a new string (g_free) that is valid UTF-8 and does not move the cursor. Bytes that are
 * not UTF-8 become U+FFFD ("?" if the locale has only ASCII). Control and format characters
 * (escapes, newlines, bidi controls, invisible ones) become \n, \t, \xNN or \u{NNNN}, and so do all
 * non-ASCII characters if the locale has only ASCII.
 */
char *text_escape(const char *bytes) MUST_CHECK;
char *text_escape_n(const char *bytes, size_t length) MUST_CHECK;
/* Like text_escape_n(), but independent of the locale: for files. */
char *text_escape_utf8(const char *bytes, size_t length) MUST_CHECK;
/* Quotes a word for a shell, if needed. Bytes that cannot be printed become $'\ooo'. */
char *text_shell_word(const char *word) MUST_CHECK;
/* Quotes a file name for a shell. The result never looks like an option. */
char *text_shell_file(const char *file) MUST_CHECK;

/* Appends the bytes, with U+FFFD for each maximal invalid part, as JSON requires. Changes nothing
 * else. */
void text_append_valid(GString *to, const char *bytes, size_t length);

/* Returns the number of columns that valid UTF-8 takes on a terminal. */
unsigned text_width(const char *text);

enum text_align {
	TEXT_LEFT,  /* padded and cut at the end */
	TEXT_RIGHT, /* padded at the start, cut at the end */
	TEXT_TAIL,  /* padded at the end, cut at the start: paths */
};

/* Returns a new string of exactly `width` columns. Longer text is cut and marked with an ellipsis.
 * `text` must be escaped. */
char *text_fit(const char *text, unsigned width, enum text_align align) MUST_CHECK;

/* Returns a copy of the text, cut at the end and marked if it is wider than `width` columns (0: no
 * limit). `text` must be escaped. */
char *text_cut(const char *text, unsigned width) MUST_CHECK;

/* Escapes and writes text, padded or cut at the end. `width` 0: neither pads nor cuts it. */
void text_cell(struct out *out, const char *bytes, unsigned width);

/* Writes text, which must be escaped, and a newline. Breaks the text at spaces into lines of at
 * most `columns` (0: no limit); all lines but the first are indented. The cursor must be at
 * `column`. */
void text_wrap(struct out *out, const char *text, unsigned column, unsigned indent,
	       unsigned columns);

/* These return new strings: "1.21 MiB", "12.3 s", "1,234,567" (digits grouped as in the locale).
 * For people, never for JSON. */
char *text_bytes(uint64_t bytes) MUST_CHECK;
char *text_duration(uint64_t ns) MUST_CHECK;
char *text_count(uint64_t count) MUST_CHECK;
/* Returns all digits of a time, as time options accept them in every locale: "0.5". */
char *text_seconds(int64_t ns) MUST_CHECK;
/* Returns a bound of a time range like text_seconds(), with at most three decimals: rounded down
 * or, if `is_end`, up, so that the range with this bound contains `ns`. */
char *text_bound(int64_t ns, bool is_end) MUST_CHECK;
/* Returns two hexadecimal digits for each byte. */
char *text_hex(const void *bytes, uint64_t n) MUST_CHECK;
/* Returns "12.7" or, if not `fine`, "13". Shares that only round to 0 or 100 are shown as "<0.1",
 * ">99.9", "<1" or ">99". */
char *text_percent(double percent, bool fine) MUST_CHECK;

/* Signs; ASCII replacements are used if the locale has only ASCII. */
enum text_sign {
	TEXT_ELLIPSIS,
	TEXT_AT_LEAST, /* before a number that is a lower bound */
	TEXT_PLUS_MINUS,
	TEXT_BRANCH, /* this and the next two precede a node of a tree; each has three columns */
	TEXT_LAST_BRANCH,
	TEXT_LINE,
};
const char *text_sign(enum text_sign sign);
