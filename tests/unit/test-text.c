/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "tests/unit/test.h"
#include "tools/common/text.h"

#include <locale.h>

static void check_escaped(const char *bytes, const char *want)
{
	g_autofree char *escaped = text_escape(bytes);

	CHECK_STR(escaped, want);
}

static void test_hostile(void)
{
	g_autofree char *nul = text_escape_n("a\0b", 3);

	check_escaped("main", "main");
	check_escaped("", "");
	check_escaped("caf\303\251 \344\270\255", "caf\303\251 \344\270\255");
	check_escaped("a\nb\tc\rd", "a\\nb\\tc\\x0dd");
	check_escaped("\033[2J\033]0;x\007", "\\x1b[2J\\x1b]0;x\\x07");
	check_escaped("\177", "\\x7f");
	check_escaped("\302\233", "\\u{9b}");             /* C1 CSI */
	check_escaped("\342\200\256gpj", "\\u{202e}gpj"); /* right-to-left override */
	check_escaped("\342\201\246", "\\u{2066}");
	check_escaped("\342\200\250", "\\u{2028}"); /* line separator */
	check_escaped("\357\273\277", "\\u{feff}");
	check_escaped("\363\240\201\201", "\\u{e0041}"); /* tag character */
	check_escaped("\377", "\357\277\275");
	check_escaped("a\300\257b", "a\357\277\275b"); /* overlong slash */
	check_escaped("\355\240\200", "\357\277\275"); /* surrogate */
	check_escaped("x\342\202", "x\357\277\275");   /* cut short */
	CHECK_STR(nul, "a\\x00b");
}

/* For any input, the output is valid UTF-8 without control characters. */
static void test_all_bytes(void)
{
	char bytes[3];

	for (unsigned i = 0; i < 1u << 16; i++) {
		g_autofree char *escaped = NULL;
		bool clean = true;

		bytes[0] = (char)i;
		bytes[1] = (char)(i >> 8);
		bytes[2] = (char)(0x80 | (i * 7 & 0x3f));
		escaped = text_escape_n(bytes, sizeof(bytes));
		for (const char *p = escaped; *p; p++)
			clean = clean && (unsigned char)*p >= 0x20 && *p != 0x7f;
		if (!clean || !g_utf8_validate(escaped, -1, NULL)) {
			CHECK(!"control or invalid character");
			break;
		}
	}
}

static void check_fit(const char *text, unsigned width, enum text_align align, const char *want)
{
	g_autofree char *fitted = text_fit(text, width, align);

	CHECK_STR(fitted, want);
	CHECK_INT(text_width(fitted), width);
}

static void check_cut(const char *text, unsigned width, const char *want)
{
	g_autofree char *got = text_cut(text, width);

	CHECK_STR(got, want);
}

static void test_fit(void)
{
	check_fit("abc", 5, TEXT_LEFT, "abc  ");
	check_fit("abc", 5, TEXT_RIGHT, "  abc");
	check_fit("abc", 3, TEXT_LEFT, "abc");
	check_fit("abcdef", 4, TEXT_LEFT, "abc\342\200\246");
	check_fit("/usr/lib/x", 5, TEXT_TAIL, "\342\200\246ib/x");
	check_fit("abc", 1, TEXT_LEFT, "\342\200\246");
	check_fit("abc", 0, TEXT_LEFT, "");
	check_cut("abc", 5, "abc");
	check_cut("abcdef", 4, "abc\342\200\246");
	check_cut("abcdef", 0, "abcdef");
	check_fit("", 2, TEXT_TAIL, "  ");
	/* A wide character takes two columns and is not split. */
	CHECK_INT(text_width("\344\270\255\346\226\207"), 4);
	check_fit("\344\270\255\346\226\207", 4, TEXT_LEFT, "\344\270\255\346\226\207");
	check_fit("\344\270\255\346\226\207", 3, TEXT_LEFT, "\344\270\255\342\200\246");
	check_fit("a\344\270\255\346\226\207", 3, TEXT_LEFT, "a\342\200\246 ");
	check_fit("\344\270\255\346\226\207", 2, TEXT_TAIL, "\342\200\246 ");
	/* A combining accent takes no column. */
	CHECK_INT(text_width("e\314\201"), 1);
	check_fit("e\314\201", 2, TEXT_RIGHT, " e\314\201");
}

static void check_wrapped(const char *text, unsigned column, unsigned columns, const char *want)
{
	struct out out;

	out = out_buffer();
	text_wrap(&out, text, column, 2, columns);
	CHECK_STR(out.text->str, want);
	out_done(&out);
}

static void test_wrap(void)
{
	check_wrapped("aa bb cc", 0, 5, "aa bb\n  cc\n");
	check_wrapped("aa bb cc", 3, 5, "aa\n  bb\n  cc\n");
	check_wrapped("aa bb cc", 0, 0, "aa bb cc\n");
	check_wrapped("longer than that", 0, 4, "longer\n  than\n  that\n");
	check_wrapped("", 0, 4, "\n");
	check_wrapped("aa 29 %, bb", 0, 6, "aa\n  29 %,\n  bb\n");
	check_wrapped("aa 29 ms. 3 x", 0, 7, "aa\n  29 ms.\n  3 x\n");
}

static void test_people(void)
{
	g_autofree char *small = text_bytes(1023);
	g_autofree char *rounded = text_bytes(1024 * 1024 - 1);
	g_autofree char *huge = text_bytes(UINT64_MAX);
	g_autofree char *ns = text_duration(999);
	g_autofree char *ms = text_duration(12340000);
	g_autofree char *minutes = text_duration(UINT64_C(125000000000));
	g_autofree char *count = text_count(1234567);
	g_autofree char *zero = text_count(0);

	CHECK_STR(small, "1023 B");
	CHECK_STR(rounded, "1.00 MiB");
	CHECK_STR(huge, "16.0 EiB");
	CHECK_STR(ns, "999 ns");
	CHECK_STR(ms, "12.3 ms");
	CHECK_STR(minutes, "2 min 05 s");
	CHECK_STR(count, "1234567"); /* this locale does not group digits */
	CHECK_STR(zero, "0");
}

static void check_share(double percent, bool fine, const char *want)
{
	g_autofree char *text = text_percent(percent, fine);

	CHECK_STR(text, want);
}

/* Only nothing is 0 %, and only the whole is 100 %, apart from rounding errors of doubles. */
static void test_shares(void)
{
	check_share(0, true, "0.0");
	check_share(0.04, true, "<0.1");
	check_share(0.4, false, "<1");
	check_share(12.74, true, "12.7");
	check_share(99.4, false, "99");
	check_share(99.8, false, ">99");
	check_share(99.94, true, "99.9");
	check_share(99.96, true, ">99.9");
	check_share(100 - 1e-12, true, "100.0");
	check_share(100, false, "100");
	check_share(250, false, "250");
}

static void check_seconds(int64_t ns, const char *want)
{
	g_autofree char *text = text_seconds(ns);

	CHECK_STR(text, want);
}

/* No digit is lost. */
static void test_seconds(void)
{
	check_seconds(0, "0.0");
	check_seconds(500000000, "0.5");
	check_seconds(674840865, "0.674840865");
	check_seconds(-1, "-0.000000001");
	check_seconds(INT64_MAX, "9223372036.854775807");
	check_seconds(INT64_MIN, "-9223372036.854775808");
}

static void check_bound(int64_t ns, bool up, const char *want)
{
	g_autofree char *text = text_bound(ns, up);

	CHECK_STR(text, want);
}

/* A range between two bounds contains the times from which the bounds were made, except for
 * negative times and INT64_MAX. The end of a range is not part of the range, so an upper bound is
 * greater than its time. */
static void test_bounds(void)
{
	check_bound(463721004, false, "0.463");
	check_bound(463721004, true, "0.464");
	check_bound(463000000, false, "0.463");
	check_bound(463000000, true, "0.464");
	check_bound(999999999, true, "1.0");
	check_bound(0, false, "0.0");
	check_bound(-5, false, "0.0");
	check_bound(-5, true, "0.001");
	check_bound(INT64_MAX, true, "9223372036.854775807");
}

static void test_hex(void)
{
	g_autofree char *hex = text_hex("\001\377\012", 3), *none = text_hex(NULL, 0);

	CHECK_STR(hex, "01ff0a");
	CHECK_STR(none, "");
}

/* The locale has only ASCII. */
static void test_ascii(void)
{
	g_autofree char *file = text_escape_utf8("caf\303\251\033", 6);

	setlocale(LC_ALL, "C");
	check_escaped("caf\303\251 \377", "caf\\u{e9} ?");
	check_fit("abcdef", 5, TEXT_LEFT, "ab...");
	check_fit("/usr/lib/x", 6, TEXT_TAIL, "...b/x");
	check_fit("abcdef", 2, TEXT_LEFT, "..");
	CHECK_STR(text_sign(TEXT_AT_LEAST), ">=");
	CHECK_STR(file, "caf\303\251\\x1b");
	setlocale(LC_ALL, "C.UTF-8");
}

/* Each word is what a shell makes of its quoted form. */
static void test_shell(void)
{
	static const char *const words[][2] = {
		{ "a-B_1.cap", "a-B_1.cap" },
		{ "", "''" },
		{ "#x", "'#x'" },
		{ "~", "'~'" },
		{ "a b", "'a b'" },
		{ "{a,b}[c]!", "'{a,b}[c]!'" },
		{ "it's", "'it'\\''s'" },
		{ "\303\244", "\303\244" },
		{ "tab\tx'", "$'tab\\011x\\047'" },
		{ "\377", "$'\\377'" },
		{ "\342\200\256", "$'\\342\\200\\256'" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		g_autofree char *quoted = text_shell_word(words[i][0]);

		CHECK_STR(quoted, words[i][1]);
	}
	for (size_t i = 0; i < 2; i++) {
		g_autofree char *quoted = text_shell_file(i ? "-" : "-x");

		CHECK_STR(quoted, i ? "-" : "./-x");
	}
}

int main(void)
{
	setlocale(LC_ALL, "C.UTF-8");
	RUN(test_hostile);
	RUN(test_all_bytes);
	RUN(test_fit);
	RUN(test_wrap);
	RUN(test_people);
	RUN(test_shares);
	RUN(test_seconds);
	RUN(test_bounds);
	RUN(test_hex);
	RUN(test_ascii);
	RUN(test_shell);
	return test_end();
}
